/* Makes a format of its declaration: lays out the fields, types the value and inlines the functions it calls.
 *
 * A function is typed once where it is declared, with an unknown index, which reports its errors, and again at every
 * call with the call's arguments in the place of its indices. A body that is called can only hold what is known to be
 * right. Since a call can use its arguments many times and calls nest, the tree may grow exponentially; the count of
 * nodes is limited, also over all formats of a file, and so is the depth.
 *
 * Types: bool, i32, f32. Where i32 meets f32 a cast is inserted. Operations on constants are computed here, except
 * those that have no result (a division by zero): they are left to the proof (prove.c), which knows whether they are
 * ever evaluated. */
#include "tile/format.h"

#include <math.h>
#include <stdio.h>

enum { DEPTH_LIMIT = 1000, INDEX_LIMIT = 8 };

typedef struct builder {
    arena *memory;
    ast_reporter *report;
    const tile_format *i32, *f32, *boolean;
    tile_format *format;
    map names; /* of the members declared so far, to their place in `members` */
    const format_member *members[2 * FORMAT_FIELD_LIMIT];
    int field[2 * FORMAT_FIELD_LIMIT]; /* the field a member is; -1 for functions, -2 for functions with errors */
    int member_count;
    int64_t nodes, limit;
    int depth;
    bool exhausted;
} builder;

typedef struct scope { /* what a function's indices stand for */
    const format_index *indices;
    tile_node *values[INDEX_LIMIT];
} scope;

/* Reports an error; always false. */
static bool PRINTF_LIKE(3, 4) wrong(builder *b, ast_place at, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    ast_report(b->report, at, "%s", message);
    return false;
}

static tile_node *type_expr(builder *b, const scope *s, const ast_expr *e);

static tile_node *new_node(builder *b, ast_place at, tile_node_kind kind, const tile_format *type) {
    tile_node *n = ARENA_NEW(b->memory, tile_node);
    n->kind = kind;
    n->type = type;
    n->op = TILE_OPERATOR_COUNT;
    n->line = at.line;
    n->column = at.column;
    if (++b->nodes > b->limit) b->exhausted = true;
    return n;
}

static tile_node *new_integer(builder *b, ast_place at, const tile_format *type, int64_t value) {
    tile_node *n = new_node(b, at, TILE_CONST, type);
    n->value.i = value;
    return n;
}

static tile_node *copy_node(builder *b, const tile_node *n) {
    if (!n) return NULL;
    tile_node *copy = new_node(b, (ast_place){n->line, n->column}, n->kind, n->type);
    if (b->exhausted) return copy;
    *copy = *n;
    copy->a = copy_node(b, n->a);
    copy->b = copy_node(b, n->b);
    copy->c = copy_node(b, n->c);
    return copy;
}

static bool is_const(const tile_node *n) { return !n || n->kind == TILE_CONST; }

static format_value value_of(const builder *b, const tile_node *n) {
    return n->type == b->f32 ? (format_value){.f = (float)n->value.f} : (format_value){.i = (int32_t)n->value.i};
}

static tile_node *constant(builder *b, const tile_node *n, format_value v) {
    tile_node *c = new_node(b, (ast_place){n->line, n->column}, TILE_CONST, n->type);
    if (n->type == b->f32)
        c->value.f = v.f;
    else
        c->value.i = v.i;
    return c;
}

/* Whether format_operate may be asked for it. A NaN is left to be computed: constants are numbers. */
static bool folds(const builder *b, const tile_node *n) {
    if (!is_const(n->a) || !is_const(n->b)) return false;
    if (n->a->type == b->f32)
        return n->type != b->f32 || !isnan(format_operate(n, value_of(b, n->a), value_of(b, n->b ? n->b : n->a)).f);
    switch (n->op) {
    case TILE_DIV:
    case TILE_MOD:
    case TILE_CEIL_DIV:
        return n->b->value.i != 0 && (n->a->value.i != INT32_MIN || n->b->value.i != -1);
    case TILE_SHL:
    case TILE_SHR:
        return n->b->value.i >= 0 && n->b->value.i <= 31;
    default:
        return true;
    }
}

static tile_node *elementwise(builder *b, ast_place at, tile_operator op, const tile_format *type, tile_node *x,
                              tile_node *y) {
    tile_node *n = new_node(b, at, TILE_ELEMENTWISE, type);
    n->op = op;
    n->a = x;
    n->b = y;
    if (!folds(b, n)) return n;
    return constant(b, n, format_operate(n, value_of(b, x), value_of(b, y ? y : x)));
}

static tile_node *cast(builder *b, ast_place at, tile_node *x, const tile_format *type) {
    if (x->type == type) return x;
    tile_node *n = new_node(b, at, TILE_CAST, type);
    n->a = x;
    return is_const(x) ? constant(b, n, format_cast(n, value_of(b, x))) : n;
}

static ast_place place_of(const tile_node *n) { return (ast_place){n->line, n->column}; }

/* Gives two operands one type: i32 becomes f32 where it meets f32. */
static bool unify(builder *b, ast_place at, tile_node **x, tile_node **y) {
    const tile_format *tx = (*x)->type, *ty = (*y)->type;
    if (tx != ty && (tx == b->boolean || ty == b->boolean)) {
        return wrong(b, at, "expected operands of one type, found %s and %s", tx->name, ty->name);
    }
    if (tx == b->f32) *y = cast(b, place_of(*y), *y, b->f32);
    if (ty == b->f32) *x = cast(b, place_of(*x), *x, b->f32);
    return true;
}

/* ---- operators and functions ------------------------------------------------------------------------------------ */

enum { ON_BOOL = 1, ON_I32 = 2, ON_F32 = 4 };

/* What an operator of the language works on here; 0 for those that have no place in a format. */
static int operands_of(tile_operator op) {
    switch (op) {
    /* clang-format off */
    case TILE_AND: case TILE_OR: case TILE_NOT: return ON_BOOL;
    case TILE_BIT_AND: case TILE_BIT_OR: case TILE_BIT_XOR: case TILE_SHL: case TILE_SHR: case TILE_MOD:
    case TILE_CEIL_DIV: return ON_I32;
    case TILE_SQRT: case TILE_FLOOR: case TILE_CEIL: case TILE_ROUND: return ON_F32;
    case TILE_NEG: case TILE_ABS: case TILE_ADD: case TILE_SUB: case TILE_MUL: case TILE_DIV: case TILE_MIN:
    case TILE_MAX: case TILE_LT: case TILE_LE: case TILE_GT: case TILE_GE: return ON_I32 | ON_F32;
    case TILE_EQ: case TILE_NE: return ON_BOOL | ON_I32 | ON_F32;
    /* clang-format on */
    default:
        return 0;
    }
}

/* The operator on operands that are typed already; y is NULL for unary ones. */
static tile_node *operate(builder *b, ast_place at, tile_operator op, const char *name, tile_node *x, tile_node *y) {
    const int allowed = operands_of(op);
    if (y && !unify(b, at, &x, &y)) return NULL;
    if (allowed == ON_F32) x = x->type == b->i32 ? cast(b, place_of(x), x, b->f32) : x;
    const int type = x->type == b->boolean ? ON_BOOL : x->type == b->i32 ? ON_I32 : ON_F32;
    if (!(type & allowed)) {
        static const char *const wanted[] = {"", "bool", "i32", "", "f32", "", "i32 or f32"};
        wrong(b, at, "'%s' works on %s here, found %s", name, wanted[allowed], x->type->name);
        return NULL;
    }
    return elementwise(b, at, op, op >= TILE_EQ && op <= TILE_GE ? b->boolean : x->type, x, y);
}

static tile_node *where(builder *b, ast_place at, tile_node *c, tile_node *x, tile_node *y) {
    if (c->type != b->boolean) {
        wrong(b, place_of(c), "expected a bool as the condition of where, found %s", c->type->name);
        return NULL;
    }
    if (!unify(b, at, &x, &y)) return NULL;
    if (is_const(c)) return c->value.i ? x : y;
    tile_node *n = new_node(b, at, TILE_SELECT, x->type);
    n->a = c;
    n->b = x;
    n->c = y;
    return n;
}

/* clang-format off */
static const struct { const char *name; int arity; tile_operator op; } functions[] = {
    {"abs", 1, TILE_ABS}, {"ceil", 1, TILE_CEIL}, {"floor", 1, TILE_FLOOR}, {"round", 1, TILE_ROUND},
    {"sqrt", 1, TILE_SQRT}, {"max", 2, TILE_MAX}, {"min", 2, TILE_MIN}, {"where", 3, TILE_OPERATOR_COUNT},
    {"f32", 1, TILE_OPERATOR_COUNT}, {"i32", 1, TILE_OPERATOR_COUNT},
};
/* clang-format on */

static tile_node *type_call(builder *b, const scope *s, const ast_expr *e) {
    size_t f = 0;
    while (f < COUNT_OF(functions) && strcmp(functions[f].name, e->name)) f++;
    if (f == COUNT_OF(functions) || e->shape || e->axis) {
        wrong(b, e->place,
              "expected a function that formats have (abs, ceil, floor, max, min, round, sqrt, where, f32, i32), found "
              "'%s'%s",
              e->name, f < COUNT_OF(functions) ? " with a shape or an axis" : "");
        return NULL;
    }
    int count = 0;
    for (const ast_expr *x = e->arguments; x; x = x->next) count++;
    if (count != functions[f].arity) {
        wrong(b, e->place, "%s takes %d argument%s, found %d", e->name, functions[f].arity,
              functions[f].arity > 1 ? "s" : "", count);
        return NULL;
    }
    const ast_expr *first = e->arguments;
    tile_node *x[3] = {NULL};
    const bool of_quotient = functions[f].op == TILE_CEIL && first->kind == AST_BINARY && first->op == TILE_DIV;
    if (of_quotient) { /* of two integers: the ceiling division */
        tile_node *n = type_expr(b, s, first->a), *d = n ? type_expr(b, s, first->b) : NULL;
        if (!d) return NULL;
        if (n->type == b->i32 && d->type == b->i32) return operate(b, e->place, TILE_CEIL_DIV, "ceil", n, d);
        x[0] = operate(b, first->place, TILE_DIV, "/", n, d);
    } else {
        bool good = true;
        int i = 0;
        for (const ast_expr *a = first; a; a = a->next) good = (x[i++] = type_expr(b, s, a)) && good;
        if (!good) return NULL;
    }
    if (!x[0]) return NULL;
    if (functions[f].op != TILE_OPERATOR_COUNT) return operate(b, e->place, functions[f].op, e->name, x[0], x[1]);
    if (functions[f].arity == 3) return where(b, e->place, x[0], x[1], x[2]);
    return cast(b, e->place, x[0], e->name[0] == 'f' ? b->f32 : b->i32);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static tile_node *type_integer(builder *b, ast_place at, int64_t value, bool negative) {
    if (value > (int64_t)INT32_MAX + negative) {
        wrong(b, at, "this integer does not fit in i32");
        return NULL;
    }
    return new_integer(b, at, b->i32, negative ? -value : value);
}

static int find_member(builder *b, const ast_expr *name) {
    const int64_t m = map_get(&b->names, name->name, strlen(name->name));
    if (m < 0) wrong(b, name->place, "there is no field, function or index '%s' declared above", name->name);
    return (int)m;
}

static tile_node *type_name(builder *b, const scope *s, const ast_expr *e) {
    int k = 0;
    for (const format_index *i = s->indices; i; i = i->next, k++)
        if (!strcmp(i->name, e->name)) return copy_node(b, s->values[k]);
    const int m = find_member(b, e);
    if (m < 0 || b->field[m] == -2) return NULL;
    if (b->members[m]->count >= 0 || b->members[m]->indices) {
        wrong(b, e->place, "expected an index behind '%s', as in %s[i]", e->name, e->name);
        return NULL;
    }
    const tile_field *field = &b->format->body->fields[b->field[m]];
    tile_node *n = new_node(b, e->place, TILE_FIELD, field->type->scalar.kind == TILE_FLOAT ? b->f32 : b->i32);
    n->index = b->field[m];
    n->a = new_integer(b, e->place, b->i32, 0);
    return n;
}

/* An element of a field, or a call of a function. */
static tile_node *type_slice(builder *b, const scope *s, const ast_expr *e) {
    if (e->a->kind != AST_NAME) {
        wrong(b, e->place, "only fields and functions have indices");
        return NULL;
    }
    const int m = find_member(b, e->a);
    if (m < 0) return NULL;
    const format_member *member = b->members[m];
    scope inner = {.indices = member->indices};
    int wanted = member->count >= 0, count = 0;
    for (const format_index *i = member->indices; i; i = i->next) wanted++;
    bool good = true;
    for (const ast_item *i = e->items; i; i = i->next, count++) {
        if (!i->start || i->size) {
            wrong(b, i->place, "expected one index, not a range");
            return NULL;
        }
        tile_node *x = type_expr(b, s, i->start);
        if (x && x->type != b->i32) {
            wrong(b, i->start->place, "expected an index of type i32, found %s", x->type->name);
            x = NULL;
        }
        good = good && x;
        if (count < INDEX_LIMIT) inner.values[count] = x;
    }
    if (count != wanted) {
        wrong(b, e->place,
              wanted ? "'%s' takes %d ind%s, found %d" : "'%s' has no elements; expected no index behind it",
              e->a->name, wanted, wanted > 1 ? "ices" : "ex", count);
        return NULL;
    }
    if (!good || b->field[m] == -2) return NULL;
    if (member->indices) return type_expr(b, &inner, member->value);
    const tile_field *field = &b->format->body->fields[b->field[m]];
    tile_node *n = new_node(b, e->a->place, TILE_FIELD, field->type->scalar.kind == TILE_FLOAT ? b->f32 : b->i32);
    n->index = b->field[m];
    n->a = inner.values[0];
    return n;
}

static tile_node *type_number(builder *b, const ast_expr *e) {
    if (isinf((float)e->number) && !isinf(e->number)) {
        wrong(b, e->place, "this number does not fit in f32");
        return NULL;
    }
    tile_node *n = new_node(b, e->place, TILE_CONST, b->f32);
    n->value.f = (float)e->number;
    return n;
}

static tile_node *type_node(builder *b, const scope *s, const ast_expr *e) {
    switch (e->kind) {
    case AST_INTEGER:
        return type_integer(b, e->place, e->integer, false);
    case AST_FLOAT:
        return type_number(b, e);
    case AST_BOOL:
        return new_integer(b, e->place, b->boolean, e->integer);
    case AST_NAME:
        return type_name(b, s, e);
    case AST_CALL:
        return type_call(b, s, e);
    case AST_SLICE:
        return type_slice(b, s, e);
    case AST_UNARY: {
        if (e->op == TILE_NEG && e->a->kind == AST_INTEGER) return type_integer(b, e->place, e->a->integer, true);
        tile_node *x = type_expr(b, s, e->a);
        return x ? operate(b, e->place, e->op, tile_operator_text(e->op), x, NULL) : NULL;
    }
    case AST_BINARY: {
        tile_node *x = type_expr(b, s, e->a), *y = type_expr(b, s, e->b);
        return x && y ? operate(b, e->place, e->op, tile_operator_text(e->op), x, y) : NULL;
    }
    default:
        wrong(b, e->place, "a format has no transposes");
        return NULL;
    }
}

static tile_node *type_expr(builder *b, const scope *s, const ast_expr *e) {
    if (b->depth > DEPTH_LIMIT) b->exhausted = true;
    if (b->exhausted) return NULL;
    b->depth++;
    tile_node *n = type_node(b, s, e);
    b->depth--;
    return b->exhausted ? NULL : n;
}

/* ---- declarations ----------------------------------------------------------------------------------------------- */

/* Adds a field behind the `bits` bits before it. */
static bool add_field(builder *b, const format_member *m, int *bits) {
    tile_format_body *body = b->format->body;
    const tile_format *type = tile_format_scalar(m->type, strlen(m->type));
    if (!type) return wrong(b, m->type_place, "expected a scalar type, found '%s'", m->type);
    if (type->bits > 32) return wrong(b, m->type_place, "expected a type of up to 32 bits, found '%s'", m->type);
    if (!strcmp(m->name, "value"))
        return wrong(b, m->place, "'value' is the function that gives the elements, as in value[i] = ...");
    if (m->count == 0 || m->count > FORMAT_COUNT_LIMIT)
        return wrong(b, m->count_place, "a field has 1 to %d elements, found %lld", FORMAT_COUNT_LIMIT,
                     (long long)m->count);
    if (body->field_count == FORMAT_FIELD_LIMIT)
        return wrong(b, m->place, "a format has up to %d fields", FORMAT_FIELD_LIMIT);
    b->field[b->member_count] = body->field_count;
    body->fields[body->field_count++] =
        (tile_field){.name = m->name, .type = type, .count = m->count < 0 ? 1 : (int)m->count, .bit_offset = *bits};
    *bits += (m->count < 0 ? 1 : (int)m->count) * type->bits;
    return true;
}

/* Types a function for its own sake; of value[i] the tree is kept. */
static bool add_function(builder *b, const format_member *m) {
    const bool is_value = !strcmp(m->name, "value");
    scope s = {.indices = m->indices};
    map names = {0};
    int count = 0;
    bool good = true;
    for (const format_index *i = m->indices; i; i = i->next, count++) {
        const size_t length = strlen(i->name);
        if (map_get(&names, i->name, length) >= 0 || map_get(&b->names, i->name, length) >= 0)
            good = wrong(b, i->place, "'%s' is declared twice", i->name);
        map_put(b->memory, &names, i->name, length, count);
        if (count < INDEX_LIMIT)
            s.values[count] = new_node(b, i->place, TILE_FORMAT_INDEX, b->i32);
        else
            good = wrong(b, i->place, "a function has up to %d indices", INDEX_LIMIT);
    }
    if (is_value && count != 1)
        good = (wrong(b, m->place, "value has one index, as in value[i]; found %d", count), false);
    tile_node *n = good ? type_expr(b, &s, m->value) : NULL;
    if (n && is_value && n->type == b->boolean) {
        wrong(b, m->value->place, "expected a number, found a bool");
        n = NULL;
    }
    if (n && is_value) b->format->body->value = cast(b, place_of(n), n, b->f32);
    b->field[b->member_count] = n ? -1 : -2;
    return n != NULL;
}

static bool add_members(builder *b, const format_declaration *d, int *bits) {
    bool good = true, complete = false;
    for (const format_member *m = d->members; m && !b->exhausted; m = m->next) {
        const size_t length = strlen(m->name);
        const int64_t other = map_get(&b->names, m->name, length);
        if (complete) {
            return wrong(b, m->place, "expected nothing behind value[i]");
        }
        if (b->member_count == COUNT_OF(b->members)) {
            return wrong(b, m->place, "a format has up to %zu fields and functions", COUNT_OF(b->members));
        }
        if (other >= 0) {
            wrong(b, m->place, "'%s' is declared twice; the other one is on line %d", m->name,
                  b->members[other]->place.line);
            good = false;
            continue;
        }
        b->members[b->member_count] = m;
        complete = m->value && !strcmp(m->name, "value");
        if (!(m->type ? add_field(b, m, bits) : add_function(b, m))) {
            good = false;
            b->field[b->member_count] = -2;
        }
        map_put(b->memory, &b->names, m->name, length, b->member_count++);
    }
    if (!complete && !b->exhausted)
        wrong(b, d->end_place, "expected value[i] = ... at the end of format '%s'", d->name);
    return good && complete;
}

tile_format *format_build(arena *memory, ast_reporter *report, const format_declaration *d, int64_t *budget) {
    builder *b = ARENA_NEW(memory, builder);
    *b = (builder){.memory = memory, .report = report, .limit = min_i64(*budget, FORMAT_NODE_LIMIT)};
    b->i32 = tile_format_scalar("i32", 3);
    b->f32 = tile_format_scalar("f32", 3);
    b->boolean = tile_format_scalar("bool", 4);
    tile_format *f = b->format = ARENA_NEW(memory, tile_format);
    f->name = d->name;
    f->scalar = b->f32->scalar;
    f->body = ARENA_NEW(memory, tile_format_body);
    f->body->fields = ARENA_ARRAY(memory, FORMAT_FIELD_LIMIT, tile_field);
    f->body->text = d->text;
    f->body->doc = d->doc;
    bool good = true;
    if (!d->block_place.line)
        good = wrong(b, d->place, "expected the size of a block in format '%s', as in block 32", d->name);
    else if (d->block < 1 || d->block > FORMAT_BLOCK_LIMIT)
        good = wrong(b, d->block_place, "a block has 1 to %d elements, found %lld", FORMAT_BLOCK_LIMIT,
                     (long long)d->block);
    f->block = (int)d->block;
    good = add_members(b, d, &f->bits) && good;
    *budget -= b->nodes;
    if (b->exhausted)
        good = wrong(b, d->place,
                     "format '%s' is too large: with functions inlined a format has up to %d operations, all formats "
                     "of a file up to %d",
                     d->name, FORMAT_NODE_LIMIT, FORMAT_BUDGET);
    if (good && f->bits % 8)
        good = wrong(b, d->place, "the fields of format '%s' take %d bits, which is no whole number of bytes", d->name,
                     f->bits);
    return good && format_prove(report, f) ? f : NULL;
}
