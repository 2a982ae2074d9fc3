/* Running a chat template: an interpreter for the tree of template_parse.c, with the meaning that Python's Jinja gives
 * it. What a hostile template can take is bounded: steps, bytes, and the depth of the tree. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <utf8proc.h>

#include "llm/template_value.h"

enum { SOURCE_LIMIT = 1 << 20, RANGE_LIMIT = 100000, ARGUMENTS = 4 };

typedef enum flow { NEXT, BREAK, CONTINUE } flow;

static value evaluate(run *r, const template_node *n);
static flow execute(run *r, const template_node *n);

/* Names and calls -------------------------------------------------------------------------------------------------- */

static value look_up(const run *r, value name) {
    static const char *const functions[] = {"raise_exception", "namespace", "range", "strftime_now"};
    for (const scope *s = r->scope; s; s = s->outer) {
        const value *found = dict_find(&s->names, name);
        if (found) return *found;
    }
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        if (!strcmp(functions[i], name.s)) return (value){FUNCTION, 0, {.s = functions[i]}};
    return nothing(UNDEFINED);
}

static void enter_scope(run *r, const template_node *n) {
    scope *inner = run_alloc(r, n, sizeof *inner);
    inner->outer = r->scope;
    r->scope = inner;
}

/* Evaluates the arguments of a call, filter or test, and puts them where `names` says. */
static void take_arguments(run *r, const template_node *n, const char *what, const char *names, int required,
                           value *out) {
    int position = 0;
    for (int i = 0; i < ARGUMENTS; i++) out[i] = nothing(ABSENT);
    for (const template_node *a = n->args; a; a = a->next) {
        const char *name = names;
        int i = 0;
        for (; *name; i++, name += strcspn(name, " "), name += *name == ' ') {
            const size_t length = strcspn(name, " ");
            if (a->keyword ? strlen(a->keyword) == length && !memcmp(name, a->keyword, length) : i == position) break;
        }
        if (!*name && a->keyword)
            run_fail(r, a, MT_E_UNSUPPORTED, "The argument \"%.60s\" of %.60s is not supported.", a->keyword, what);
        if (!*name) run_fail(r, a, MT_E_FORMAT, "%.60s has too many arguments.", what);
        if (out[i].kind != ABSENT) run_fail(r, a, MT_E_FORMAT, "%.60s has the same argument twice.", what);
        out[i] = evaluate(r, a);
        position += !a->keyword;
    }
    for (int i = 0; i < required; i++)
        if (out[i].kind == ABSENT) run_fail(r, n, MT_E_FORMAT, "%.60s has too few arguments.", what);
}

static value call_range(run *r, const template_node *n) {
    value a[ARGUMENTS];
    take_arguments(r, n, "range", "start stop step", 1, a);
    for (int i = 0; i < 3; i++)
        if (a[i].kind != ABSENT && !is_number(a[i]))
            run_fail(r, n, MT_E_FORMAT, "range is given %s.", value_kind_names[a[i].kind]);
    const int64_t start = a[1].kind == ABSENT ? 0 : a[0].i, stop = a[1].kind == ABSENT ? a[0].i : a[1].i,
                  step = a[2].kind == ABSENT ? 1 : a[2].i;
    if (!step) run_fail(r, n, MT_E_FORMAT, "The step of range is 0.");
    const __int128 distance = step > 0 ? (__int128)stop - start : (__int128)start - stop,
                   stride = step > 0 ? step : -(__int128)step;
    const __int128 count = distance > 0 ? (distance + stride - 1) / stride : 0;
    if (count > RANGE_LIMIT) run_fail(r, n, MT_E_LIMIT, "range is longer than %d.", RANGE_LIMIT);
    value *items = value_items(r, n, (size_t)count);
    for (int64_t i = 0; i < count; i++) items[i] = integer((int64_t)(start + (__int128)i * step));
    return list_of(items, (size_t)count);
}

static value call_function(run *r, const template_node *n, const char *name) {
    value a[ARGUMENTS];
    if (!strcmp(name, "range")) return call_range(r, n);
    if (!strcmp(name, "namespace")) {
        value space = {NAMESPACE, 0, {.dict = run_alloc(r, n, sizeof(dict))}};
        for (const template_node *arg = n->args; arg; arg = arg->next) {
            if (!arg->keyword)
                run_fail(r, arg, MT_E_UNSUPPORTED, "A namespace of anything but name=value is not supported.");
            dict_put(r, arg, space.dict, c_string(arg->keyword), evaluate(r, arg));
        }
        return space;
    }
    if (!strcmp(name, "raise_exception")) {
        take_arguments(r, n, name, "message", 1, a);
        const value message = value_text(r, n, a[0]);
        run_fail(r, n, MT_E_ARGUMENT, "The chat template rejects the messages: %.*s",
                 (int)(message.count < 400 ? message.count : 400), message.s);
    }
    if (!strcmp(name, "strftime_now")) {
        take_arguments(r, n, name, "format", 1, a);
        if (a[0].kind != STRING || a[0].count > 100)
            run_fail(r, n, MT_E_FORMAT, "The format of strftime_now is no short string.");
        char format[101] = "", *out = run_alloc(r, n, 1024);
        memcpy(format, a[0].s, a[0].count);
        const time_t now = time(NULL);
        struct tm local = {0};
        localtime_r(&now, &local);
        return string_of(out, strftime(out, 1024, format, &local));
    }
    run_fail(r, n, MT_E_UNSUPPORTED, "The function \"%.60s\" is not supported.", name);
}

static value call(run *r, const template_node *n) {
    value a[ARGUMENTS];
    if (n->a->kind == NODE_ATTRIBUTE) {
        const value self = evaluate(r, n->a->a);
        const value_operation *method = value_method(self.kind, n->a->s);
        if (self.kind == UNDEFINED)
            run_fail(r, n, MT_E_FORMAT, "\".%.60s()\" is asked of something undefined.", n->a->s);
        if (!method)
            run_fail(r, n, MT_E_UNSUPPORTED, "The method \"%.60s\" of %s is not supported.", n->a->s,
                     value_kind_names[self.kind]);
        take_arguments(r, n, n->a->s, method->names, method->required, a);
        return method->apply(r, n, self, a);
    }
    const value function = evaluate(r, n->a);
    if (function.kind == FUNCTION) return call_function(r, n, function.s);
    if (n->a->kind == NODE_NAME && function.kind == UNDEFINED)
        run_fail(r, n, MT_E_UNSUPPORTED, "The function \"%.60s\" is not supported.", n->a->s);
    run_fail(r, n, MT_E_FORMAT, "%s is called.", value_kind_names[function.kind]);
}

static value filter(run *r, const template_node *n) {
    value a[ARGUMENTS];
    const value_operation *f = value_filter(n->s);
    if (!f) run_fail(r, n, MT_E_UNSUPPORTED, "The filter \"%.60s\" is not supported.", n->s);
    const value self = evaluate(r, n->a);
    take_arguments(r, n, n->s, f->names, f->required, a);
    return f->apply(r, n, self, a);
}

static bool test(run *r, const template_node *n) {
    const value v = evaluate(r, n->a);
    value a[ARGUMENTS];
    const char *name = n->s;
    if (!strcmp(name, "equalto") || !strcmp(name, "eq")) {
        take_arguments(r, n, name, "other", 1, a);
        return value_equal(r, n, v, a[0], 0);
    }
    take_arguments(r, n, name, "", 0, a);
    if (!strcmp(name, "defined")) return v.kind != UNDEFINED;
    if (!strcmp(name, "undefined")) return v.kind == UNDEFINED;
    if (!strcmp(name, "none")) return v.kind == NONE;
    if (!strcmp(name, "string")) return v.kind == STRING;
    if (!strcmp(name, "mapping")) return v.kind == DICT;
    if (!strcmp(name, "iterable") || !strcmp(name, "sequence"))
        return v.kind == STRING || v.kind == LIST || v.kind == DICT || v.kind == UNDEFINED;
    if (!strcmp(name, "number")) return is_number(v);
    if (!strcmp(name, "integer")) return v.kind == INTEGER;
    if (!strcmp(name, "boolean")) return v.kind == BOOL;
    if (!strcmp(name, "true")) return v.kind == BOOL && v.i;
    if (!strcmp(name, "false")) return v.kind == BOOL && !v.i;
    if (!strcmp(name, "callable")) return v.kind == FUNCTION;
    if (!strcmp(name, "odd") || !strcmp(name, "even")) {
        if (!is_number(v)) run_fail(r, n, MT_E_FORMAT, "%s is neither odd nor even.", value_kind_names[v.kind]);
        return (v.i & 1) == (name[0] == 'o');
    }
    run_fail(r, n, MT_E_UNSUPPORTED, "The test \"%.60s\" is not supported.", name);
}

/* Expressions ------------------------------------------------------------------------------------------------------ */

static value attribute(run *r, const template_node *n) {
    const value of = evaluate(r, n->a);
    if (of.kind == UNDEFINED) run_fail(r, n, MT_E_FORMAT, "\".%.60s\" is asked of something undefined.", n->s);
    if (value_method(of.kind, n->s))
        run_fail(r, n, MT_E_UNSUPPORTED, "The method \"%.60s\" without a call is not supported.", n->s);
    const value *found =
        of.kind == DICT || of.kind == NAMESPACE ? dict_find(of.dict, string_of(n->s, n->length)) : NULL;
    return found ? *found : nothing(UNDEFINED);
}

/* The characters from `start` to before `stop`, both inside of the string. */
static value characters(value s, int64_t start, int64_t stop) {
    const size_t from = value_offset(s, &start), to = value_offset(s, &stop);
    return string_of(s.s + from, to > from ? to - from : 0);
}

static value subscript(run *r, const template_node *n) {
    const value of = evaluate(r, n->a), key = evaluate(r, n->b);
    if (of.kind == UNDEFINED) run_fail(r, n, MT_E_FORMAT, "An element is asked of something undefined.");
    if ((of.kind == DICT || of.kind == NAMESPACE) && key.kind == STRING) {
        const value *found = dict_find(of.dict, key);
        return found ? *found : nothing(UNDEFINED);
    }
    if ((of.kind != LIST && of.kind != STRING) || !is_number(key)) return nothing(UNDEFINED);
    const int64_t count = value_length(r, n, of), i = key.i < 0 ? key.i + count : key.i;
    if (i < 0 || i >= count) return nothing(UNDEFINED);
    return of.kind == LIST ? of.items[i] : characters(of, i, i + 1);
}

/* A bound of a slice, with Python's rules: from the end when negative, and kept inside. */
static int64_t bound(run *r, const template_node *n, int64_t missing, int64_t lowest, int64_t count, int64_t highest) {
    const value v = n ? evaluate(r, n) : nothing(NONE);
    if (v.kind == NONE) return missing;
    if (!is_number(v)) run_fail(r, n, MT_E_FORMAT, "The bound of a slice is %s.", value_kind_names[v.kind]);
    const int64_t i = v.i < 0 ? v.i + count : v.i;
    return i < lowest ? lowest : i > highest ? highest : i;
}

static value slice(run *r, const template_node *n) {
    const value of = evaluate(r, n->a);
    if (of.kind != LIST && of.kind != STRING)
        run_fail(r, n, MT_E_FORMAT, "A slice is asked of %s.", value_kind_names[of.kind]);
    const value wanted = n->d ? evaluate(r, n->d) : integer(1);
    if (wanted.kind != NONE && !is_number(wanted))
        run_fail(r, n, MT_E_FORMAT, "The step of a slice is %s.", value_kind_names[wanted.kind]);
    const int64_t step = wanted.kind == NONE ? 1 : wanted.i;
    if (!step) run_fail(r, n, MT_E_FORMAT, "The step of a slice is 0.");
    const int64_t count = value_length(r, n, of);
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count; /* where it may begin and end */
    const int64_t start = bound(r, n->b, step < 0 ? high : low, low, count, high),
                  stop = bound(r, n->c, step < 0 ? low : high, low, count, high);
    if (step == 1 && of.kind == STRING) return characters(of, start, stop);
    if (step == 1) return start < stop ? list_of(of.items + start, (size_t)(stop - start)) : list_of(NULL, 0);
    const value items = value_elements(r, n, of);
    size_t length = 0, bytes = 0;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step, length++) {
        if (of.kind == STRING) bytes += items.items[i].count;
        if (step > count || step < -count) {
            length++;
            break;
        }
    }
    value *out = value_items(r, n, length);
    char *joined = of.kind == STRING ? run_alloc(r, n, bytes) : NULL;
    for (size_t k = 0, at = 0; k < length; k++) {
        out[k] = items.items[start + (int64_t)k * step];
        if (joined) memcpy(joined + at, out[k].s, out[k].count), at += out[k].count;
    }
    return joined ? string_of(joined, bytes) : list_of(out, length);
}

static value add(run *r, const template_node *n, value a, value b) {
    if (a.kind == STRING && b.kind == STRING) {
        char *s = run_alloc(r, n, a.count + b.count);
        memcpy(s, a.s, a.count);
        memcpy(s + a.count, b.s, b.count);
        return string_of(s, a.count + b.count);
    }
    if (a.kind != LIST || b.kind != LIST)
        run_fail(r, n, MT_E_FORMAT, "%s and %s cannot be added.", value_kind_names[a.kind], value_kind_names[b.kind]);
    value *items = value_items(r, n, a.count + b.count);
    if (a.count) memcpy(items, a.items, a.count * sizeof *items);
    if (b.count) memcpy(items + a.count, b.items, b.count * sizeof *items);
    return list_of(items, a.count + b.count);
}

static value arithmetic(run *r, const template_node *n) {
    const value a = evaluate(r, n->a), b = evaluate(r, n->b);
    int64_t result = 0;
    bool overflow = false;
    if (n->kind == NODE_CONCATENATE) return add(r, n, value_text(r, n, a), value_text(r, n, b));
    if (n->kind == NODE_DIVIDE) run_fail(r, n, MT_E_UNSUPPORTED, "The operator \"/\" is not supported.");
    if (!is_number(a) || !is_number(b)) {
        if (n->kind == NODE_ADD) return add(r, n, a, b);
        const bool valid = (n->kind == NODE_MULTIPLY && (is_number(a) || is_number(b))) ||
                           (n->kind == NODE_MODULO && a.kind == STRING);
        run_fail(r, n, valid ? MT_E_UNSUPPORTED : MT_E_FORMAT, "Arithmetic with %s and %s is not %s.",
                 value_kind_names[a.kind], value_kind_names[b.kind], valid ? "supported" : "possible");
    }
    if (n->kind == NODE_FLOOR_DIVIDE || n->kind == NODE_MODULO) {
        if (!b.i) run_fail(r, n, MT_E_FORMAT, "A number is divided by 0.");
        if (b.i == -1) { /* INT64_MIN / -1 does not fit */
            overflow = n->kind == NODE_FLOOR_DIVIDE && __builtin_sub_overflow(0, a.i, &result);
        } else {
            const int64_t rest = a.i % b.i, down = rest && (rest < 0) != (b.i < 0); /* Python rounds down */
            result = n->kind == NODE_MODULO ? rest + (down ? b.i : 0) : a.i / b.i - down;
        }
    } else if (n->kind == NODE_ADD) {
        overflow = __builtin_add_overflow(a.i, b.i, &result);
    } else if (n->kind == NODE_SUBTRACT) {
        overflow = __builtin_sub_overflow(a.i, b.i, &result);
    } else {
        overflow = __builtin_mul_overflow(a.i, b.i, &result);
    }
    if (overflow) run_fail(r, n, MT_E_LIMIT, "A number grows beyond 64 bits.");
    return integer(result);
}

static bool comparison(run *r, const template_node *n) {
    const value a = evaluate(r, n->a), b = evaluate(r, n->b);
    switch (n->kind) {
    case NODE_EQUAL:
        return value_equal(r, n, a, b, 0);
    case NODE_NOT_EQUAL:
        return !value_equal(r, n, a, b, 0);
    case NODE_LESS:
        return value_compare(r, n, a, b) < 0;
    case NODE_LESS_EQUAL:
        return value_compare(r, n, a, b) <= 0;
    case NODE_GREATER:
        return value_compare(r, n, a, b) > 0;
    case NODE_GREATER_EQUAL:
        return value_compare(r, n, a, b) >= 0;
    case NODE_IN:
        return value_contains(r, n, a, b);
    default:
        return !value_contains(r, n, a, b);
    }
}

static value collect(run *r, const template_node *n) {
    size_t count = 0, i = 0;
    for (const template_node *e = n->args; e; e = e->next) count++;
    if (n->kind == NODE_LIST) {
        value *items = value_items(r, n, count);
        for (const template_node *e = n->args; e; e = e->next) items[i++] = evaluate(r, e);
        return list_of(items, count);
    }
    value d = {DICT, 0, {.dict = run_alloc(r, n, sizeof(dict))}};
    for (const template_node *e = n->args; e; e = e->next->next) {
        const value key = evaluate(r, e);
        if (key.kind != STRING)
            run_fail(r, e, MT_E_UNSUPPORTED, "A key that is %s is not supported.", value_kind_names[key.kind]);
        dict_put(r, e, d.dict, key, evaluate(r, e->next));
    }
    return d;
}

static value evaluate(run *r, const template_node *n) {
    value v;
    run_step(r, n, 0);
    switch (n->kind) {
    case NODE_STRING:
        return string_of(n->s, n->length);
    case NODE_INTEGER:
        return integer(n->i);
    case NODE_BOOL:
        return boolean(n->i);
    case NODE_NONE:
        return nothing(NONE);
    case NODE_NAME:
        return look_up(r, string_of(n->s, n->length));
    case NODE_LIST:
    case NODE_DICT:
        return collect(r, n);
    case NODE_ATTRIBUTE:
        return attribute(r, n);
    case NODE_INDEX:
        return subscript(r, n);
    case NODE_SLICE:
        return slice(r, n);
    case NODE_CALL:
        return call(r, n);
    case NODE_FILTER:
        return filter(r, n);
    case NODE_TEST:
        return boolean(test(r, n));
    case NODE_NEGATE:
        v = evaluate(r, n->a);
        if (!is_number(v) || v.i == INT64_MIN)
            run_fail(r, n, MT_E_FORMAT, "%s has no negative.", value_kind_names[v.kind]);
        return integer(-v.i);
    case NODE_NOT:
        return boolean(!value_truth(evaluate(r, n->a)));
    case NODE_AND:
        return value_truth(v = evaluate(r, n->a)) ? evaluate(r, n->b) : v;
    case NODE_OR:
        return value_truth(v = evaluate(r, n->a)) ? v : evaluate(r, n->b);
    case NODE_CHOOSE:
        if (value_truth(evaluate(r, n->b))) return evaluate(r, n->a);
        return n->c ? evaluate(r, n->c) : nothing(UNDEFINED);
    case NODE_ADD:
    case NODE_SUBTRACT:
    case NODE_MULTIPLY:
    case NODE_DIVIDE:
    case NODE_FLOOR_DIVIDE:
    case NODE_MODULO:
    case NODE_CONCATENATE:
        return arithmetic(r, n);
    default:
        return boolean(comparison(r, n));
    }
}

/* Statements ------------------------------------------------------------------------------------------------------- */

static void set_name(run *r, const template_node *n, value v) {
    dict_put(r, n, &r->scope->names, string_of(n->s, n->length), v);
}

/* Gives an element to the loop's names. */
static void unpack(run *r, const template_node *loop, value element) {
    if (!loop->args->next) {
        set_name(r, loop->args, element);
        return;
    }
    const value parts = value_elements(r, loop, element);
    size_t i = 0;
    for (const template_node *name = loop->args; name; name = name->next, i++)
        if (i < parts.count) set_name(r, name, parts.items[i]);
    if (i != parts.count) run_fail(r, loop, MT_E_FORMAT, "%zu values do not fit %zu names.", parts.count, i);
}

/* The elements that the loop's condition lets through. */
static value choose_elements(run *r, const template_node *n, value all) {
    value *kept = value_items(r, n, all.count);
    size_t count = 0;
    scope *const outer = r->scope;
    for (size_t i = 0; i < all.count; i++) {
        enter_scope(r, n);
        unpack(r, n, all.items[i]);
        if (value_truth(evaluate(r, n->b))) kept[count++] = all.items[i];
        r->scope = outer;
    }
    return list_of(kept, count);
}

static flow execute_for(run *r, const template_node *n) {
    value all = value_elements(r, n, evaluate(r, n->a));
    scope *const outer = r->scope;
    flow f = NEXT;
    bool finished = false; /* some round, to its end */
    if (n->b) all = choose_elements(r, n, all);
    const int64_t count = (int64_t)all.count;
    for (int64_t i = 0; i < count && f != BREAK; i++) {
        enter_scope(r, n); /* what the body sets is gone in the next round */
        const pair facts[] = {
            {c_string("index"), integer(i + 1)},
            {c_string("index0"), integer(i)},
            {c_string("revindex"), integer(count - i)},
            {c_string("revindex0"), integer(count - i - 1)},
            {c_string("first"), boolean(i == 0)},
            {c_string("last"), boolean(i == count - 1)},
            {c_string("length"), integer(count)},
            {c_string("previtem"), i ? all.items[i - 1] : nothing(UNDEFINED)},
            {c_string("nextitem"), i < count - 1 ? all.items[i + 1] : nothing(UNDEFINED)},
        };
        value loop = {NAMESPACE, 0, {.dict = run_alloc(r, n, sizeof(dict))}};
        for (size_t k = 0; k < COUNT_OF(facts); k++) dict_put(r, n, loop.dict, facts[k].key, facts[k].value);
        dict_put(r, n, &r->scope->names, c_string("loop"), loop);
        unpack(r, n, all.items[i]);
        f = execute(r, n->body);
        finished |= f == NEXT;
        r->scope = outer;
    }
    if (finished || !n->otherwise) return NEXT;
    enter_scope(r, n); /* as in Jinja a round that is broken off does not count */
    f = execute(r, n->otherwise);
    r->scope = outer;
    return f;
}

static void execute_set(run *r, const template_node *n) {
    value v;
    if (n->a) {
        v = evaluate(r, n->a);
    } else {
        scope *const outer = r->scope;
        const size_t start = r->out.length;
        enter_scope(r, n);
        execute(r, n->body);
        r->scope = outer;
        v = run_take_written(r, n, start);
    }
    if (n->c) {
        const value space = look_up(r, string_of(n->c->s, n->c->length));
        if (space.kind != NAMESPACE)
            run_fail(r, n, MT_E_FORMAT, "An attribute of %s is set.", value_kind_names[space.kind]);
        dict_put(r, n, space.dict, string_of(n->s, n->length), v);
    } else {
        set_name(r, n, v);
    }
}

static flow execute(run *r, const template_node *n) {
    flow f = NEXT;
    for (; n && f == NEXT; n = n->next) {
        run_step(r, n, 0);
        switch (n->kind) {
        case NODE_TEXT:
            text_append(&r->out, n->s, n->length);
            break;
        case NODE_PRINT: {
            const value v = value_text(r, n, evaluate(r, n->a));
            text_append(&r->out, v.s, v.count);
            break;
        }
        case NODE_IF:
            for (const template_node *b = n->args; b; b = b->next)
                if (!b->a || value_truth(evaluate(r, b->a))) {
                    f = execute(r, b->body);
                    break;
                }
            break;
        case NODE_FOR:
            f = execute_for(r, n);
            break;
        case NODE_SET:
            execute_set(r, n);
            break;
        case NODE_SCOPE: {
            scope *const outer = r->scope;
            enter_scope(r, n);
            f = execute(r, n->body);
            r->scope = outer;
            break;
        }
        case NODE_BREAK:
            f = BREAK;
            break;
        default:
            f = CONTINUE;
            break;
        }
        if (r->out.length > BYTE_LIMIT)
            run_fail(r, n, MT_E_LIMIT, "The chat template writes more than %d MiB.", BYTE_LIMIT >> 20);
    }
    return f;
}

/* The names that transformers gives to a template. */
static void define_names(run *r) {
    dict *names = &r->scope->names;
    value *messages = value_items(r, NULL, r->count);
    for (size_t i = 0; i < r->count; i++) {
        const mt_message *m = &r->messages[i];
        messages[i] = (value){DICT, 0, {.dict = run_alloc(r, NULL, sizeof(dict))}};
        dict_put(r, NULL, messages[i].dict, c_string("role"), c_string(m->role));
        dict_put(r, NULL, messages[i].dict, c_string("content"), m->content ? c_string(m->content) : nothing(NONE));
    }
    dict_put(r, NULL, names, c_string("messages"), list_of(messages, r->count));
    dict_put(r, NULL, names, c_string("tools"), nothing(NONE));
    dict_put(r, NULL, names, c_string("documents"), nothing(NONE));
    dict_put(r, NULL, names, c_string("add_generation_prompt"), boolean(r->options->add_generation_prompt));
    if (r->options->bos_token) dict_put(r, NULL, names, c_string("bos_token"), c_string(r->options->bos_token));
    if (r->options->eos_token) dict_put(r, NULL, names, c_string("eos_token"), c_string(r->options->eos_token));
}

static void run_template(void *context) {
    run *r = context;
    if (setjmp(r->trap)) return;
    enter_scope(r, NULL);
    define_names(r);
    execute(r, r->t->body);
}

mt_status mt_template_apply(const mt_template *t, const mt_message *messages, size_t count,
                            const mt_template_options *options, char **out, size_t *length, mt_error *error) {
    static const mt_template_options defaults = {0};
    run r = {.t = t,
             .error = error,
             .messages = messages,
             .count = count,
             .options = options ? options : &defaults,
             .arena = arena_new()};
    for (size_t i = 0; i < count; i++)
        if (!messages[i].role)
            r.status = error_set(error, MT_E_ARGUMENT, "chat template", "Message %zu has no role.", i);
    if (!r.status && (!r.arena || !arena_protect(r.arena, run_template, &r) || r.out.failed))
        r.status = error_set(error, MT_E_MEMORY, "chat template", "Out of memory.");
    text_append(&r.out, "", 0); /* so that there is a string even when nothing is written */
    if (!r.status && r.out.failed) r.status = error_set(error, MT_E_MEMORY, "chat template", "Out of memory.");
    arena_free(r.arena);
    if (r.status) {
        text_free(&r.out);
        return r.status;
    }
    *out = r.out.data;
    if (length) *length = r.out.length;
    return MT_OK;
}

/* Making one ------------------------------------------------------------------------------------------------------- */

/* Copies the source with "\n" for every end of line, and without one at the very end. False for what is no UTF-8. */
static bool copy_source(mt_template *t, const char *source, size_t length) {
    char *copy = arena_alloc(t->arena, length + 1);
    if (!copy) return true;
    for (size_t i = 0; i < length;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t n = utf8proc_iterate((const uint8_t *)source + i, (utf8proc_ssize_t)(length - i), &c);
        if (n <= 0) return false;
        memcpy(copy + t->length, source + i, (size_t)n);
        if (c == '\r') copy[t->length] = '\n';
        t->length += (size_t)n;
        i += (size_t)n + (c == '\r' && i + 1 < length && source[i + 1] == '\n');
    }
    if (t->length && copy[t->length - 1] == '\n') t->length--;
    t->source = copy;
    return true;
}

mt_status mt_template_new(mt_template **out, const char *source, size_t length, mt_error *error) {
    if (length > SOURCE_LIMIT)
        return error_set(error, MT_E_LIMIT, "chat template", "The chat template has %zu bytes; the limit is %d.",
                         length, SOURCE_LIMIT);
    arena *a = arena_new();
    mt_template *t = a ? ARENA_NEW(a, mt_template) : NULL;
    mt_status status = MT_OK;
    if (t) t->arena = a;
    if (t && !copy_source(t, source, length))
        status = error_set(error, MT_E_FORMAT, "chat template", "The chat template is no UTF-8.");
    else if (!t || !t->source)
        status = error_set(error, MT_E_MEMORY, "chat template", "Out of memory.");
    else
        status = template_parse(t, error);
    if (status)
        arena_free(a);
    else
        *out = t;
    return status;
}

void mt_template_free(mt_template *t) {
    if (t) arena_free(t->arena);
}
