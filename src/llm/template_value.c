/* The values of a chat template, and its filters and methods, with the meaning that Python and Jinja give them. */
#include <stdio.h>
#include <utf8proc.h>

#include "llm/template_value.h"

const char *const value_kind_names[] = {
    "something undefined", "none",       "a bool", "a number", "a string", "a list", "a dict",
    "a namespace",         "a function", "nothing"};

void run_fail(run *r, const template_node *n, mt_status status, const char *format, ...) {
    char where[64], message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    template_where(r->t, n ? n->at : 0, where);
    r->status = error_set(r->error, status, where, "%s", message);
    longjmp(r->trap, 1);
}

void run_step(run *r, const template_node *n, size_t bytes) {
    if ((r->steps += 1 + bytes / 256) > STEP_LIMIT)
        run_fail(r, n, MT_E_LIMIT, "The chat template takes more than %d steps.", STEP_LIMIT);
}

/* Memory and strings ----------------------------------------------------------------------------------------------- */

static void charge(run *r, const template_node *n, size_t size) {
    if (size > BYTE_LIMIT || (r->bytes += size) > BYTE_LIMIT)
        run_fail(r, n, MT_E_LIMIT, "The chat template needs more than %d MiB.", BYTE_LIMIT >> 20);
}

void *run_alloc(run *r, const template_node *n, size_t size) {
    charge(r, n, size);
    return arena_alloc(r->arena, size);
}

static bool same_string(value a, value b) { return a.count == b.count && !memcmp(a.s, b.s, a.count); }

value *dict_find(const dict *d, value key) {
    for (size_t i = 0; i < d->count; i++)
        if (same_string(d->pairs[i].key, key)) return &d->pairs[i].value;
    return NULL;
}

void dict_put(run *r, const template_node *n, dict *d, value key, value v) {
    value *old = dict_find(d, key);
    if (old) {
        *old = v;
        return;
    }
    charge(r, n, 4 * sizeof *d->pairs);
    *ARENA_PUSH(r->arena, d->pairs, d->count, d->capacity) = (pair){key, v};
}

value *value_items(run *r, const template_node *n, size_t count) {
    if (count > BYTE_LIMIT) count = BYTE_LIMIT; /* which is refused */
    return run_alloc(r, n, (count ? count : 1) * sizeof(value));
}

/* str(v) */
value value_text(run *r, const template_node *n, value v) {
    switch (v.kind) {
    case STRING:
        return v;
    case UNDEFINED:
        return c_string("");
    case NONE:
        return c_string("None");
    case BOOL:
        return c_string(v.i ? "True" : "False");
    case INTEGER: {
        char *s = run_alloc(r, n, 24);
        return string_of(s, (size_t)snprintf(s, 24, "%lld", (long long)v.i));
    }
    default:
        run_fail(r, n, MT_E_UNSUPPORTED, "Writing %s as text is not supported.", value_kind_names[v.kind]);
    }
}

bool value_truth(value v) {
    switch (v.kind) {
    case UNDEFINED:
    case NONE:
        return false;
    case BOOL:
    case INTEGER:
        return v.i;
    case STRING:
    case LIST:
        return v.count;
    case DICT:
        return v.dict->count;
    default:
        return true;
    }
}

size_t value_offset(value s, int64_t *count) {
    size_t i = 0;
    int64_t n = 0;
    int32_t c;
    for (; i < s.count && n < *count; n++) i += template_character(s.s + i, s.count - i, &c);
    *count = n;
    return i;
}

int64_t value_length(run *r, const template_node *n, value v) {
    int64_t count = INT64_MAX;
    switch (v.kind) {
    case UNDEFINED:
        return 0;
    case LIST:
        return (int64_t)v.count;
    case DICT:
        return (int64_t)v.dict->count;
    case STRING:
        run_step(r, n, v.count);
        value_offset(v, &count);
        return count;
    default:
        run_fail(r, n, MT_E_FORMAT, "The length of %s is asked for.", value_kind_names[v.kind]);
    }
}

value value_elements(run *r, const template_node *n, value v) {
    if (v.kind == LIST) return v;
    if (v.kind == UNDEFINED) return list_of(NULL, 0);
    if (v.kind != STRING && v.kind != DICT)
        run_fail(r, n, MT_E_FORMAT, "%s has no elements.", value_kind_names[v.kind]);
    const size_t count = (size_t)value_length(r, n, v);
    value *items = value_items(r, n, count);
    for (size_t i = 0, at = 0; i < count; i++) {
        if (v.kind == DICT) {
            items[i] = v.dict->pairs[i].key;
        } else {
            int32_t c;
            items[i] = string_of(v.s + at, template_character(v.s + at, v.count - at, &c));
            at += items[i].count;
        }
    }
    return list_of(items, count);
}

bool value_equal(run *r, const template_node *n, value a, value b, int depth) {
    if (depth > DEPTH_LIMIT) run_fail(r, n, MT_E_LIMIT, "A value is more than %d deep.", DEPTH_LIMIT);
    run_step(r, n, a.kind == STRING ? a.count : 0);
    if (is_number(a) && is_number(b)) return a.i == b.i;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case STRING:
        return same_string(a, b);
    case LIST:
        if (a.count != b.count) return false;
        for (size_t i = 0; i < a.count; i++)
            if (!value_equal(r, n, a.items[i], b.items[i], depth + 1)) return false;
        return true;
    case DICT:
        if (a.dict->count != b.dict->count) return false;
        for (size_t i = 0; i < a.dict->count; i++) {
            const value *other = dict_find(b.dict, a.dict->pairs[i].key);
            if (!other || !value_equal(r, n, a.dict->pairs[i].value, *other, depth + 1)) return false;
        }
        return true;
    case NAMESPACE:
        return a.dict == b.dict;
    case FUNCTION:
        return !strcmp(a.s, b.s);
    default:
        return true;
    }
}

int value_compare(run *r, const template_node *n, value a, value b) {
    if (is_number(a) && is_number(b)) return (a.i > b.i) - (a.i < b.i);
    if (a.kind == STRING && b.kind == STRING) {
        run_step(r, n, a.count);
        const int order = memcmp(a.s, b.s, a.count < b.count ? a.count : b.count);
        return order ? order : (a.count > b.count) - (a.count < b.count);
    }
    if (a.kind == LIST && b.kind == LIST)
        run_fail(r, n, MT_E_UNSUPPORTED, "Comparing the order of lists is not supported.");
    run_fail(r, n, MT_E_FORMAT, "%s and %s have no order.", value_kind_names[a.kind], value_kind_names[b.kind]);
}

bool value_contains(run *r, const template_node *n, value part, value whole) {
    if (whole.kind == STRING) {
        if (part.kind != STRING)
            run_fail(r, n, MT_E_FORMAT, "%s is looked for in a string.", value_kind_names[part.kind]);
        run_step(r, n, whole.count);
        return memmem(whole.s, whole.count, part.s, part.count) != NULL || !part.count;
    }
    if (whole.kind == DICT) return part.kind == STRING && dict_find(whole.dict, part);
    whole = value_elements(r, n, whole);
    for (size_t i = 0; i < whole.count; i++)
        if (value_equal(r, n, whole.items[i], part, 0)) return true;
    return false;
}

/* Filters and methods ---------------------------------------------------------------------------------------------- */

static bool given(value v) { return v.kind != ABSENT; }

static value need_string(run *r, const template_node *n, value v) {
    if (v.kind != STRING) run_fail(r, n, MT_E_FORMAT, "A string is needed, but this is %s.", value_kind_names[v.kind]);
    return v;
}

static value strip(run *r, const template_node *n, value s, value set, bool left, bool right) {
    s = value_text(r, n, s);
    run_step(r, n, s.count);
    if (!given(set) || set.kind == NONE) {
        const size_t leading = left ? template_leading_space(s.s, s.count) : 0;
        s = string_of(s.s + leading, s.count - leading);
        s.count -= right ? template_trailing_space(s.s, s.count) : 0;
        return s;
    }
    const value marks = value_elements(r, n, need_string(r, n, set)), all = value_elements(r, n, s);
    size_t from = 0, to = all.count;
    while (left && from < to && value_contains(r, n, all.items[from], marks)) from++;
    while (right && to > from && value_contains(r, n, all.items[to - 1], marks)) to--;
    return from == to ? c_string("")
                      : string_of(all.items[from].s,
                                  (size_t)(all.items[to - 1].s + all.items[to - 1].count - all.items[from].s));
}

static value trim(run *r, const template_node *n, value s, const value *a) { return strip(r, n, s, a[0], true, true); }
static value trim_left(run *r, const template_node *n, value s, const value *a) {
    return strip(r, n, s, a[0], true, false);
}
static value trim_right(run *r, const template_node *n, value s, const value *a) {
    return strip(r, n, s, a[0], false, true);
}

/* Letters to upper case where `up` says so, else to lower case: nowhere, everywhere, at the beginning, where no letter
 * is before (Python's title), where white space or a bracket is before (Jinja's title). */
typedef enum casing { LOWER, UPPER, FIRST, AFTER_LETTER, AFTER_GAP } casing;

static value change_case(run *r, const template_node *n, value s, casing how) {
    s = value_text(r, n, s);
    char *out = run_alloc(r, n, 4 * s.count + 4);
    size_t length = 0;
    bool begins = true;
    for (size_t i = 0; i < s.count;) {
        int32_t c;
        const size_t size = template_character(s.s + i, s.count - i, &c);
        const int32_t changed = c < 0                                      ? c
                                : how == UPPER || (how >= FIRST && begins) ? utf8proc_toupper(c)
                                                                           : utf8proc_tolower(c);
        if (changed == c) {
            memcpy(out + length, s.s + i, size);
            length += size;
        } else {
            length += (size_t)utf8proc_encode_char(changed, (uint8_t *)out + length);
        }
        const bool letter = c >= 0 && (utf8proc_toupper(c) != c || utf8proc_tolower(c) != c);
        begins = how == AFTER_LETTER
                     ? !letter
                     : how == AFTER_GAP && (template_is_space(c) || (c > 0 && c < 128 && strchr("-({[<", c)));
        i += size;
    }
    return string_of(out, length);
}

static value upper(run *r, const template_node *n, value s, const value *a) {
    return (void)a, change_case(r, n, s, UPPER);
}
static value lower(run *r, const template_node *n, value s, const value *a) {
    return (void)a, change_case(r, n, s, LOWER);
}
static value capitalize(run *r, const template_node *n, value s, const value *a) {
    return (void)a, change_case(r, n, s, FIRST);
}
static value title_method(run *r, const template_node *n, value s, const value *a) {
    return (void)a, change_case(r, n, s, AFTER_LETTER);
}
static value title_filter(run *r, const template_node *n, value s, const value *a) {
    return (void)a, change_case(r, n, s, AFTER_GAP);
}

static value count_filter(run *r, const template_node *n, value v, const value *a) {
    return (void)a, integer(value_length(r, n, v));
}
static value list_filter(run *r, const template_node *n, value v, const value *a) {
    return (void)a, value_elements(r, n, v);
}
static value string_filter(run *r, const template_node *n, value v, const value *a) {
    return (void)a, value_text(r, n, v);
}
static value safe_filter(run *r, const template_node *n, value v, const value *a) {
    return (void)r, (void)n, (void)a, v;
}

static value default_filter(run *r, const template_node *n, value v, const value *a) {
    (void)r, (void)n;
    if (v.kind != UNDEFINED && !(given(a[1]) && value_truth(a[1]) && !value_truth(v))) return v;
    return given(a[0]) ? a[0] : c_string("");
}

static value first_filter(run *r, const template_node *n, value v, const value *a) {
    (void)a;
    v = value_elements(r, n, v);
    return v.count ? v.items[0] : nothing(UNDEFINED);
}

static value last_filter(run *r, const template_node *n, value v, const value *a) {
    (void)a;
    v = value_elements(r, n, v);
    return v.count ? v.items[v.count - 1] : nothing(UNDEFINED);
}

static value join_list(run *r, const template_node *n, value list, value separator) {
    size_t size = 0, at = 0;
    value *parts = value_items(r, n, list.count);
    for (size_t i = 0; i < list.count; i++) {
        parts[i] = value_text(r, n, list.items[i]);
        size += parts[i].count + (i ? separator.count : 0);
        if (size > BYTE_LIMIT) break; /* reserve says so */
    }
    char *s = run_alloc(r, n, size);
    for (size_t i = 0; i < list.count; i++) {
        if (i) memcpy(s + at, separator.s, separator.count), at += separator.count;
        memcpy(s + at, parts[i].s, parts[i].count);
        at += parts[i].count;
    }
    return string_of(s, size);
}

static value join_filter(run *r, const template_node *n, value v, const value *a) {
    return join_list(r, n, value_elements(r, n, v), given(a[0]) ? value_text(r, n, a[0]) : c_string(""));
}

static value join_method(run *r, const template_node *n, value s, const value *a) {
    const value list = value_elements(r, n, a[0]);
    for (size_t i = 0; i < list.count; i++) need_string(r, n, list.items[i]);
    return join_list(r, n, list, s);
}

/* The parts of s between separators, or between white space, at most `limit` cuts. */
static value cut(run *r, const template_node *n, value s, value separator, int64_t limit) {
    value *parts = NULL;
    size_t count = 0, capacity = 0;
    const bool space = separator.kind == NONE || separator.kind == ABSENT;
    if (!space && !need_string(r, n, separator).count)
        run_fail(r, n, MT_E_FORMAT, "A string is split at an empty one.");
    for (size_t at = 0, next;; at = next) {
        if (space) at += template_leading_space(s.s + at, s.count - at);
        if (space && at == s.count) break;
        size_t end = next = s.count;
        if (limit < 0 || (int64_t)count < limit) {
            const char *found = space ? NULL : memmem(s.s + at, s.count - at, separator.s, separator.count);
            if (found) end = (size_t)(found - s.s), next = end + separator.count;
            for (size_t i = at; space && i < s.count && end == s.count;) {
                int32_t c;
                const size_t size = template_character(s.s + i, s.count - i, &c);
                if (template_is_space(c)) end = next = i;
                i += size;
            }
        }
        charge(r, n, 4 * sizeof *parts);
        *ARENA_PUSH(r->arena, parts, count, capacity) = string_of(s.s + at, end - at);
        if (end == s.count) break;
    }
    return list_of(parts, count);
}

static value split(run *r, const template_node *n, value s, const value *a) {
    if (given(a[1]) && !is_number(a[1]))
        run_fail(r, n, MT_E_FORMAT, "The number of cuts is %s.", value_kind_names[a[1].kind]);
    return cut(r, n, s, a[0], given(a[1]) ? a[1].i : -1);
}

static value replace(run *r, const template_node *n, value s, const value *a) {
    s = value_text(r, n, s);
    const value from = need_string(r, n, a[0]), to = need_string(r, n, a[1]);
    if (!from.count) run_fail(r, n, MT_E_UNSUPPORTED, "Replacing the empty string is not supported.");
    if (given(a[2]) && a[2].kind != NONE && !is_number(a[2]))
        run_fail(r, n, MT_E_FORMAT, "The number of replacements is %s.", value_kind_names[a[2].kind]);
    return join_list(r, n, cut(r, n, s, from, given(a[2]) && a[2].kind != NONE ? a[2].i : -1), to);
}

static value replace_filter(run *r, const template_node *n, value s, const value *a) {
    return replace(r, n, s, (const value[]){value_text(r, n, a[0]), value_text(r, n, a[1]), a[2]});
}

static value starts_with(run *r, const template_node *n, value s, const value *a) {
    const value list = a[0].kind == LIST ? a[0] : list_of(&a[0], 1);
    bool found = false;
    for (size_t i = 0; i < list.count; i++) {
        const value p = need_string(r, n, list.items[i]);
        found |= p.count <= s.count && !memcmp(s.s, p.s, p.count);
    }
    return boolean(found);
}

static value ends_with(run *r, const template_node *n, value s, const value *a) {
    const value list = a[0].kind == LIST ? a[0] : list_of(&a[0], 1);
    bool found = false;
    for (size_t i = 0; i < list.count; i++) {
        const value p = need_string(r, n, list.items[i]);
        found |= p.count <= s.count && !memcmp(s.s + s.count - p.count, p.s, p.count);
    }
    return boolean(found);
}

static value items_method(run *r, const template_node *n, value v, const value *a) {
    (void)a;
    if (v.kind == UNDEFINED) return list_of(NULL, 0);
    if (v.kind != DICT) run_fail(r, n, MT_E_FORMAT, "The items of %s are asked for.", value_kind_names[v.kind]);
    value *items = value_items(r, n, v.dict->count);
    for (size_t i = 0; i < v.dict->count; i++) {
        value *both = value_items(r, n, 2);
        both[0] = v.dict->pairs[i].key;
        both[1] = v.dict->pairs[i].value;
        items[i] = list_of(both, 2);
    }
    return list_of(items, v.dict->count);
}

static value keys_method(run *r, const template_node *n, value v, const value *a) {
    return (void)a, value_elements(r, n, v);
}

static value values_method(run *r, const template_node *n, value v, const value *a) {
    (void)a;
    value *items = value_items(r, n, v.dict->count);
    for (size_t i = 0; i < v.dict->count; i++) items[i] = v.dict->pairs[i].value;
    return list_of(items, v.dict->count);
}

static value get_method(run *r, const template_node *n, value v, const value *a) {
    (void)r, (void)n;
    const value *found = a[0].kind == STRING ? dict_find(v.dict, a[0]) : NULL;
    return found ? *found : given(a[1]) ? a[1] : nothing(NONE);
}

/* json.dumps(v, ensure_ascii=False, indent=indent); indent < 0 is none. */
static void write_json(run *r, const template_node *n, text *out, value v, int64_t indent, int depth) {
    static const char escapes[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    if (depth > DEPTH_LIMIT) run_fail(r, n, MT_E_LIMIT, "A value is more than %d deep.", DEPTH_LIMIT);
    run_step(r, n, 0);
    if (out->length > BYTE_LIMIT)
        run_fail(r, n, MT_E_LIMIT, "The chat template writes more than %d MiB.", BYTE_LIMIT >> 20);
    if (v.kind == NONE || v.kind == BOOL) {
        text_string(out, v.kind == NONE ? "null" : v.i ? "true" : "false");
    } else if (v.kind == INTEGER) {
        text_printf(out, "%lld", (long long)v.i);
    } else if (v.kind == STRING) {
        text_string(out, "\"");
        for (size_t i = 0; i < v.count; i++) {
            const char c = v.s[i], *escape = c ? strchr(escapes, c) : NULL;
            if (escape)
                text_append(out, (char[]){'\\', names[escape - escapes]}, 2);
            else if ((unsigned char)c < 32)
                text_printf(out, "\\u%04x", c);
            else
                text_append(out, &c, 1);
            if (out->length > BYTE_LIMIT) break; /* and the next step fails */
        }
        text_string(out, "\"");
    } else if (v.kind == LIST || v.kind == DICT) {
        const size_t count = v.kind == LIST ? v.count : v.dict->count;
        text_string(out, v.kind == LIST ? "[" : "{");
        for (size_t i = 0; i <= count; i++) {
            if (i && i < count) text_string(out, indent < 0 ? ", " : ",");
            if (indent >= 0 && count) text_printf(out, "\n%*s", (int)(indent * (depth + (i < count))), "");
            if (i == count) break;
            if (v.kind == DICT) {
                write_json(r, n, out, v.dict->pairs[i].key, indent, depth + 1);
                text_string(out, ": ");
            }
            write_json(r, n, out, v.kind == LIST ? v.items[i] : v.dict->pairs[i].value, indent, depth + 1);
        }
        text_string(out, v.kind == LIST ? "]" : "}");
    } else {
        run_fail(r, n, MT_E_FORMAT, "%s has no JSON.", value_kind_names[v.kind]);
    }
}

/* What has been written to r->out since it was `start` long, taken back as a string. */
value run_take_written(run *r, const template_node *n, size_t start) {
    if (r->out.failed) run_fail(r, n, MT_E_MEMORY, "Out of memory.");
    const size_t length = r->out.length - start;
    char *s = run_alloc(r, n, length);
    if (length) memcpy(s, r->out.data + start, length);
    r->out.length = start;
    return string_of(s, length);
}

/* The arguments come in the order of transformers' own filter, which replaces Jinja's. */
static value tojson(run *r, const template_node *n, value v, const value *a) {
    const bool indented = given(a[1]) && a[1].kind != NONE;
    if (given(a[0]) && value_truth(a[0]))
        run_fail(r, n, MT_E_UNSUPPORTED, "tojson with ensure_ascii is not supported.");
    if (indented && (!is_number(a[1]) || a[1].i < 0 || a[1].i > 100))
        run_fail(r, n, MT_E_UNSUPPORTED, "The indent of tojson is none or a number from 0 to 100.");
    const size_t start = r->out.length;
    write_json(r, n, &r->out, v, indented ? a[1].i : -1, 0);
    return run_take_written(r, n, start);
}

typedef struct entry {
    const char *name;
    value_operation operation;
} entry;

static const entry filters[] = {
    {"trim", {trim, "chars", 0}},
    {"length", {count_filter, "", 0}},
    {"count", {count_filter, "", 0}},
    {"upper", {upper, "", 0}},
    {"lower", {lower, "", 0}},
    {"capitalize", {capitalize, "", 0}},
    {"title", {title_filter, "", 0}},
    {"tojson", {tojson, "ensure_ascii indent", 0}},
    {"default", {default_filter, "default_value boolean", 0}},
    {"d", {default_filter, "default_value boolean", 0}},
    {"first", {first_filter, "", 0}},
    {"last", {last_filter, "", 0}},
    {"join", {join_filter, "d", 0}},
    {"list", {list_filter, "", 0}},
    {"string", {string_filter, "", 0}},
    {"replace", {replace_filter, "old new count", 2}},
    {"items", {items_method, "", 0}},
    {"safe", {safe_filter, "", 0}},
};
static const entry string_methods[] = {
    {"strip", {trim, "chars", 0}},
    {"lstrip", {trim_left, "chars", 0}},
    {"rstrip", {trim_right, "chars", 0}},
    {"split", {split, "sep maxsplit", 0}},
    {"startswith", {starts_with, "prefix", 1}},
    {"endswith", {ends_with, "suffix", 1}},
    {"upper", {upper, "", 0}},
    {"lower", {lower, "", 0}},
    {"capitalize", {capitalize, "", 0}},
    {"title", {title_method, "", 0}},
    {"replace", {replace, "old new count", 2}},
    {"join", {join_method, "iterable", 1}},
};
static const entry dict_methods[] = {
    {"get", {get_method, "key default", 1}},
    {"items", {items_method, "", 0}},
    {"keys", {keys_method, "", 0}},
    {"values", {values_method, "", 0}},
};

static const value_operation *find(const entry *entries, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(entries[i].name, name)) return &entries[i].operation;
    return NULL;
}

const value_operation *value_filter(const char *name) { return find(filters, COUNT_OF(filters), name); }

const value_operation *value_method(value_kind kind, const char *name) {
    return kind == STRING ? find(string_methods, COUNT_OF(string_methods), name)
           : kind == DICT ? find(dict_methods, COUNT_OF(dict_methods), name)
                          : NULL;
}
