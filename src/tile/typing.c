/* Types of expressions.
 *
 * Arithmetic has five types (f32, f64, i32, u32, i64) and bool; every operator says which of the three classes below it
 * works on. Two operands get one type by the two conversions that the language makes by itself: a literal takes the
 * other side's type, an i64 scalar (an index) that of an i32 tile. Everything else is an error that says what to
 * write. */
#include "tile/check.h"

#include <inttypes.h>

enum { FLOATS = 1, INTEGERS = 2, BOOLS = 4 };

static int class_of(const check *c, const tile_format *t) {
    if (t == &check_integer || t == c->i32 || t == c->i64 || (t->scalar.kind == TILE_UINT && t->scalar.bits == 32))
        return INTEGERS;
    if (tile_format_is_block(t)) return 0;
    if (t == &check_number || t == c->f32 || (t->scalar.kind == TILE_FLOAT && t->scalar.bits == 64)) return FLOATS;
    return t == c->boolean ? BOOLS : 0;
}

bool check_is_arithmetic(const check *c, const tile_format *t) { return class_of(c, t) & (FLOATS | INTEGERS); }

static int classes_of(tile_operator op) {
    switch (op) {
    case TILE_NOT:
    case TILE_AND:
    case TILE_OR:
        return BOOLS;
    case TILE_MOD:
    case TILE_CEIL_DIV:
    case TILE_BIT_AND:
    case TILE_BIT_OR:
    case TILE_BIT_XOR:
    case TILE_SHL:
    case TILE_SHR:
        return INTEGERS;
    case TILE_EQ:
    case TILE_NE:
        return FLOATS | INTEGERS | BOOLS;
    case TILE_EXP:
    case TILE_EXP2:
    case TILE_LOG:
    case TILE_LOG2:
    case TILE_SIN:
    case TILE_COS:
    case TILE_TANH:
    case TILE_SQRT:
    case TILE_RSQRT:
    case TILE_FLOOR:
    case TILE_CEIL:
    case TILE_ROUND:
        return FLOATS;
    default:
        return FLOATS | INTEGERS;
    }
}

static const char *classes_text(int classes) {
    static const char *const texts[8] = {[FLOATS] = "f32 and f64",
                                         [INTEGERS] = "i32, u32 and i64",
                                         [BOOLS] = "bool",
                                         [FLOATS | INTEGERS] = "f32, f64, i32, u32 and i64",
                                         [FLOATS | INTEGERS | BOOLS] = "f32, f64, i32, u32, i64 and bool"};
    return texts[classes];
}

/* A cast that makes a value of type t fit one of the classes. */
static const char *advice(const tile_format *t, int classes) {
    if (classes & FLOATS && (t->scalar.kind == TILE_FLOAT || !(classes & INTEGERS))) return "; cast it, as in f32(x)";
    return classes & INTEGERS ? "; cast it, as in i32(x)" : "; a comparison gives one";
}

static bool expect_class(check *c, ast_place at, const char *what, const tile_format *t, int classes) {
    if (class_of(c, t) & classes) return true;
    REPORT(c, at, "%s works on %s, not on %s%s", what, classes_text(classes), t->name, advice(t, classes));
    return false;
}

tile_node *check_node(check *c, ast_place at, tile_node_kind kind, const tile_format *type, const tile_shape *shape) {
    tile_node *n = ARENA_NEW(c->memory, tile_node);
    n->kind = kind;
    n->type = type;
    n->shape = *shape;
    n->line = at.line;
    n->column = at.column;
    return n;
}

/* ---- shapes ---- */

bool check_same_shape(const tile_shape *a, const tile_shape *b) {
    if (a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->extent[d] != b->extent[d]) return false;
    return true;
}

bool check_broadcast(const tile_shape *a, const tile_shape *b, tile_shape *out) {
    *out = (tile_shape){.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int d = 1; d <= out->rank; d++) { /* from the right */
        const int64_t x = d <= a->rank ? a->extent[a->rank - d] : 1, y = d <= b->rank ? b->extent[b->rank - d] : 1;
        if (x != y && x != 1 && y != 1) return false;
        out->extent[out->rank - d] = x == 1 ? y : x;
    }
    return true;
}

const char *check_shape_text(const check *c, const tile_shape *s) {
    const char *list = "[";
    for (int d = 0; d < s->rank; d++) list = arena_printf(c->memory, "%s%s%" PRId64, list, d ? ", " : "", s->extent[d]);
    return arena_printf(c->memory, "%s]", list);
}

bool check_size(check *c, ast_place at, const tile_shape *s) {
    int64_t count = 1;
    for (int d = 0; d < s->rank; d++)
        if (__builtin_mul_overflow(count, s->extent[d], &count) || count > TILE_ELEMENT_LIMIT) {
            REPORT(c, at, "a tile of shape %s is too large: at most %" PRId64 " elements", check_shape_text(c, s),
                   TILE_ELEMENT_LIMIT);
            return false;
        }
    return true;
}

static bool broadcast(check *c, ast_place at, const tile_node *a, const tile_node *b, tile_shape *out) {
    if (check_broadcast(&a->shape, &b->shape, out)) return check_size(c, at, out);
    REPORT(c, at, "the shapes %s and %s do not fit: aligned at the right, extents must be equal or 1",
           check_shape_text(c, &a->shape), check_shape_text(c, &b->shape));
    return false;
}

tile_node *check_stretch(check *c, ast_place at, tile_node *n, const tile_shape *shape, const char *what) {
    if (check_same_shape(&n->shape, shape)) return n;
    tile_shape wide;
    if (!check_broadcast(&n->shape, shape, &wide) || !check_same_shape(&wide, shape)) {
        REPORT(c, at, "a value of shape %s does not fit %s of shape %s", check_shape_text(c, &n->shape), what,
               check_shape_text(c, shape));
        return NULL;
    }
    if (tile_format_is_block(n->type)) {
        REPORT(c, at, "values of the block format %s cannot be stretched from %s to %s; cast them first, as in f32(x)",
               n->type->name, check_shape_text(c, &n->shape), check_shape_text(c, shape));
        return NULL;
    }
    tile_node *out = check_node(c, at, TILE_BROADCAST, n->type, shape);
    out->a = n;
    return out;
}

bool check_shape(check *c, ast_place at, const ast_expr *extents, tile_shape *out) {
    bool good = true;
    *out = (tile_shape){0};
    for (const ast_expr *e = extents; e; e = e->next) {
        if (out->rank == TILE_RANK) {
            REPORT(c, e->place, "a tile has at most %d dimensions", TILE_RANK);
            return false;
        }
        good &= check_constant(c, e, "a tile's extent", 1, TILE_ELEMENT_LIMIT, &out->extent[out->rank++]);
    }
    return good && check_size(c, at, out);
}

/* ---- operators ---- */

static tile_node *cast(check *c, ast_place at, tile_node *n, const tile_format *type) {
    if (n->type == type) return n;
    if (tile_format_is_block(type)) {
        REPORT(c, at, "nothing can be cast to the block format %s", type->name);
        return NULL;
    }
    if (tile_format_is_block(n->type) && type != c->f32) {
        REPORT(c, at, "the block format %s can be cast to f32 only: write %s(f32(x))", n->type->name, type->name);
        return NULL;
    }
    tile_node *out = check_fold_cast(c, n, type);
    if (out || check_is_literal(n)) return out;
    if (n->kind == TILE_CAST && n->type == c->f32 && n->a->type == type && type->scalar.kind == TILE_FLOAT &&
        type->scalar.bits < 32)
        return n->a; /* f16(f32(x)) of an f16: the wider type held it as it was */
    out = check_node(c, at, TILE_CAST, type, &n->shape);
    out->a = n;
    return out;
}

/* Gives *a and *b one type. */
static bool unify(check *c, ast_place at, const char *what, tile_node **a, tile_node **b) {
    const bool a_open = check_is_literal(*a), b_open = check_is_literal(*b);
    if ((*a)->type == (*b)->type) return true;
    if (a_open && b_open) return check_adapt(c, (*a)->type == &check_integer ? *a : *b, &check_number);
    if (a_open) return check_adapt(c, *a, (*b)->type);
    if (b_open) return check_adapt(c, *b, (*a)->type);
    tile_node **index = (*a)->type == c->i64 && (*b)->type == c->i32   ? a
                        : (*b)->type == c->i64 && (*a)->type == c->i32 ? b
                                                                       : NULL;
    if (index && (*index)->shape.rank == 0) return (*index = cast(c, check_place(*index), *index, c->i32)) != NULL;
    const tile_format *x = (*a)->type, *y = (*b)->type;
    const tile_format *common = class_of(c, x) & FLOATS   ? x
                                : class_of(c, y) & FLOATS ? y
                                : class_of(c, x)          ? x
                                : class_of(c, y)          ? y
                                                          : c->f32;
    REPORT(c, at, "%s needs operands of one type, not %s and %s; cast one, as in %s(x)", what, x->name, y->name,
           common->name);
    return false;
}

/* x * 1, x / 1, x + 0 and the like: what is left of a program's BM where it is 1. */
static bool changes_nothing(tile_operator op, const tile_node *b) {
    if (!b || b->kind != TILE_CONST || (b->type->scalar.kind != TILE_INT && b->type->scalar.kind != TILE_UINT))
        return false;
    if (op == TILE_ADD || op == TILE_SUB) return b->value.i == 0;
    return (op == TILE_MUL || op == TILE_DIV || op == TILE_CEIL_DIV) && b->value.i == 1;
}

tile_node *check_operator(check *c, ast_place at, tile_operator op, tile_node *a, tile_node *b) {
    if (!a || (op >= TILE_ADD && !b)) return NULL;
    const char *what = op == TILE_CEIL_DIV ? "ceil"
                                           : arena_printf(c->memory, op >= TILE_ABS && op <= TILE_ROUND ? "%s" : "'%s'",
                                                          tile_operator_text(op));
    const int classes = classes_of(op);
    /* Complain of a type that no operand may have before complaining that two differ. */
    if (!expect_class(c, at, what, a->type, classes) || (b && !expect_class(c, at, what, b->type, classes)))
        return NULL;
    if (b && !unify(c, at, what, &a, &b)) return NULL;
    bool failed;
    tile_node *folded = check_fold(c, at, op, a, b, &failed);
    if (folded || failed) return folded;
    check_settle(c, a);
    check_settle(c, b);
    if (changes_nothing(op, b)) return a;
    tile_shape shape = a->shape;
    if (b && !broadcast(c, at, a, b, &shape)) return NULL;
    tile_node *n = check_node(c, at, TILE_ELEMENTWISE, op >= TILE_EQ && op <= TILE_GE ? c->boolean : a->type, &shape);
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static tile_node *transpose(check *c, const ast_expr *e) {
    tile_node *a = check_value(c, e->a);
    if (!a) return NULL;
    const int r = a->shape.rank;
    if (r < 2) {
        REPORT(c, e->place, ".T needs a tile of two or more dimensions, not one of shape %s",
               check_shape_text(c, &a->shape));
        return NULL;
    }
    tile_node *n = check_node(c, e->place, TILE_TRANSPOSE, a->type, &a->shape);
    n->shape.extent[r - 1] = a->shape.extent[r - 2];
    n->shape.extent[r - 2] = a->shape.extent[r - 1];
    n->a = a;
    return n;
}

/* ---- functions ---- */

static tile_node *elementwise(check *c, const ast_expr *e, tile_operator op) {
    tile_node *a = check_open(c, e->arguments);
    return check_operator(c, e->place, op, a, NULL);
}

/* The bits of an f32 as a u32, or the other way round. */
static tile_node *bits(check *c, const ast_expr *e, tile_operator op) {
    tile_node *a = check_settle(c, check_open(c, e->arguments));
    if (!a) return NULL;
    const bool number = a->type == c->f32;
    if (!number && (a->type->scalar.kind != TILE_UINT || a->type->scalar.bits != 32 || tile_format_is_block(a->type))) {
        REPORT(c, e->place, "bits works on f32 and u32, not on %s; cast it, as in bits(f32(x))", a->type->name);
        return NULL;
    }
    tile_node *n = check_node(c, e->place, TILE_ELEMENTWISE, number ? tile_format_scalar("u32", 3) : c->f32, &a->shape);
    n->op = op;
    n->a = a;
    return n;
}

/* ceil(a / b) of integers is an operation of its own: a / b would have rounded down already. */
static tile_node *ceiling(check *c, const ast_expr *e, tile_operator op) {
    const ast_expr *quotient = e->arguments;
    if (quotient->kind != AST_BINARY || quotient->op != TILE_DIV) return elementwise(c, e, op);
    tile_node *a = check_open(c, quotient->a), *b = check_open(c, quotient->b);
    if (!a || !b) return NULL;
    if (class_of(c, a->type) & INTEGERS && class_of(c, b->type) & INTEGERS)
        return check_operator(c, e->place, TILE_CEIL_DIV, a, b);
    return check_operator(c, e->place, op, check_operator(c, quotient->place, TILE_DIV, a, b), NULL);
}

static tile_node *reduce(check *c, const ast_expr *e, tile_operator op) {
    tile_node *a = check_value(c, e->arguments);
    const ast_expr *where = e->axis ? e->axis : e->arguments->next;
    int64_t axis;
    if (!a || !expect_class(c, e->place, e->name, a->type, FLOATS | INTEGERS)) return NULL;
    if (a->shape.rank == 0) {
        REPORT(c, e->place, "%s needs a tile with an axis, not a scalar", e->name);
        return NULL;
    }
    if (!where || (e->axis && e->arguments->next)) {
        REPORT(c, e->place, "%s needs one axis, as in %s(x, axis = 1)", e->name, e->name);
        return NULL;
    }
    if (!check_constant(c, where, "the axis", 0, a->shape.rank - 1, &axis)) return NULL;
    tile_node *n = check_node(c, e->place, TILE_REDUCE, op == TILE_ARGMAX ? c->i32 : a->type, &a->shape);
    n->op = op;
    n->a = a;
    n->index = (int)axis;
    n->shape.extent[axis] = 1;
    return n;
}

static tile_node *extreme(check *c, const ast_expr *e, tile_operator op) {
    if (e->axis) return reduce(c, e, op == TILE_MAX ? TILE_REDUCE_MAX : TILE_REDUCE_MIN);
    if (!e->arguments->next) {
        REPORT(c, e->place, "%s needs two values, or an axis: %s(a, b), %s(x, axis = 1)", e->name, e->name, e->name);
        return NULL;
    }
    tile_node *a = check_open(c, e->arguments), *b = check_open(c, e->arguments->next);
    return check_operator(c, e->place, op, a, b);
}

static tile_node *choose(check *c, const ast_expr *e, tile_operator op) {
    (void)op;
    tile_node *condition = check_open(c, e->arguments), *a = check_open(c, e->arguments->next),
              *b = check_open(c, e->arguments->next->next);
    if (!condition || !a || !b) return NULL;
    if (condition->type != c->boolean) {
        REPORT(c, e->arguments->place, "where chooses by a bool, not by %s", condition->type->name);
        return NULL;
    }
    if (!unify(c, e->place, "where", &a, &b)) return NULL;
    if (tile_format_is_block(a->type)) {
        REPORT(c, e->place, "where works on elements, not on the block format %s; cast it, as in f32(x)",
               a->type->name);
        return NULL;
    }
    tile_shape shape;
    if (!broadcast(c, e->place, a, b, &shape)) return NULL;
    if (condition->kind == TILE_CONST && a->kind == TILE_CONST && b->kind == TILE_CONST)
        return condition->value.i ? a : b;
    check_settle(c, a);
    check_settle(c, b);
    tile_node *n = check_node(c, e->place, TILE_SELECT, a->type, &shape);
    n->a = condition;
    n->b = a;
    n->c = b;
    if (!broadcast(c, e->place, condition, n, &shape)) return NULL;
    n->shape = shape;
    return n;
}

/* A type dot can multiply: 1 for floats and block formats, 2 for small integers, 0 for others. */
static int dot_class(const tile_format *t) {
    if (tile_format_is_block(t) || t->scalar.kind == TILE_FLOAT) return 1;
    return t->scalar.kind != TILE_BOOL && t->scalar.bits <= 8 ? 2 : 0;
}

static tile_node *dot(check *c, const ast_expr *e, tile_operator op) {
    (void)op;
    tile_node *a = check_value(c, e->arguments), *b = check_value(c, e->arguments->next);
    if (!a || !b) return NULL;
    if (!dot_class(a->type) || dot_class(a->type) != dot_class(b->type)) {
        REPORT(c, e->place, "dot multiplies floats and block formats, or integers of up to 8 bits, not %s and %s",
               a->type->name, b->type->name);
        return NULL;
    }
    if (a->shape.rank != 2 || b->shape.rank != 2 || a->shape.extent[1] != b->shape.extent[0]) {
        REPORT(c, e->place, "dot needs shapes [m, k] and [k, n], not %s and %s", check_shape_text(c, &a->shape),
               check_shape_text(c, &b->shape));
        return NULL;
    }
    tile_node *n = check_node(c, e->place, TILE_DOT, dot_class(a->type) == 1 ? c->f32 : c->i32,
                              &(tile_shape){2, {a->shape.extent[0], b->shape.extent[1]}});
    n->a = a;
    n->b = b;
    return check_size(c, e->place, &n->shape) ? n : NULL;
}

static tile_node *iota(check *c, const ast_expr *e, tile_operator op) {
    (void)op;
    tile_shape shape;
    return check_shape(c, e->place, e->arguments, &shape) ? check_node(c, e->place, TILE_IOTA, c->i32, &shape) : NULL;
}

static tile_node *reshape(check *c, const ast_expr *e, tile_operator op) {
    (void)op;
    tile_node *a = check_value(c, e->arguments);
    tile_shape shape;
    if (!check_shape(c, e->place, e->arguments->next, &shape) || !a) return NULL;
    if (tile_shape_count(&shape) != tile_shape_count(&a->shape)) {
        REPORT(c, e->place, "reshape keeps the number of elements: %s has %" PRId64 ", %s has %" PRId64,
               check_shape_text(c, &a->shape), tile_shape_count(&a->shape), check_shape_text(c, &shape),
               tile_shape_count(&shape));
        return NULL;
    }
    tile_node *n = check_node(c, e->place, TILE_RESHAPE, a->type, &shape);
    n->a = a;
    return n;
}

/* True when b can stand behind a along the axis. */
static bool continues(const tile_node *a, const tile_node *b, int64_t axis) {
    if (a->type != b->type || a->shape.rank != b->shape.rank) return false;
    for (int d = 0; d < a->shape.rank; d++)
        if (d != axis && a->shape.extent[d] != b->shape.extent[d]) return false;
    return true;
}

static tile_node *concat(check *c, const ast_expr *e, tile_operator op) {
    (void)op;
    int count = 0;
    for (const ast_expr *x = e->arguments; x; x = x->next) count++;
    tile_node **list = ARENA_ARRAY(c->memory, (size_t)count, tile_node *);
    bool good = true;
    count = 0;
    for (const ast_expr *x = e->arguments; x; x = x->next) good &= (list[count++] = check_value(c, x)) != NULL;
    if (!good) return NULL;
    const tile_node *first = list[0];
    int64_t axis;
    if (first->shape.rank == 0 || !e->axis || tile_format_is_block(first->type)) {
        REPORT(c, e->place,
               first->shape.rank == 0 ? "concat needs tiles, not scalars"
               : !e->axis             ? "concat needs an axis, as in concat(a, b, axis = 1)"
                                      : "concat works on elements, not on block formats; cast them, as in f32(x)");
        return NULL;
    }
    if (!check_constant(c, e->axis, "the axis", 0, first->shape.rank - 1, &axis)) return NULL;
    tile_node *n = check_node(c, e->place, TILE_CONCAT, first->type, &first->shape);
    n->list = list;
    n->count = count;
    n->index = (int)axis;
    for (int i = 1; i < count; i++) {
        if (!continues(first, list[i], axis)) {
            REPORT(c, check_place(list[i]),
                   "concat along axis %d needs equal types and equal other extents, not %s%s and %s%s", n->index,
                   first->type->name, check_shape_text(c, &first->shape), list[i]->type->name,
                   check_shape_text(c, &list[i]->shape));
            return NULL;
        }
        n->shape.extent[axis] += list[i]->shape.extent[axis]; /* at most 2^24 each, and fewer than 2^31 of them */
    }
    return check_size(c, e->place, &n->shape) ? n : NULL;
}

static const struct function {
    const char *name;
    tile_node *(*check)(check *c, const ast_expr *e, tile_operator op);
    tile_operator op;
    int least, most; /* arguments, without axis = */
    bool axis;
} functions[] = {
    {"abs", elementwise, TILE_ABS, 1, 1, false},
    {"exp", elementwise, TILE_EXP, 1, 1, false},
    {"exp2", elementwise, TILE_EXP2, 1, 1, false},
    {"log", elementwise, TILE_LOG, 1, 1, false},
    {"log2", elementwise, TILE_LOG2, 1, 1, false},
    {"sin", elementwise, TILE_SIN, 1, 1, false},
    {"cos", elementwise, TILE_COS, 1, 1, false},
    {"tanh", elementwise, TILE_TANH, 1, 1, false},
    {"sqrt", elementwise, TILE_SQRT, 1, 1, false},
    {"rsqrt", elementwise, TILE_RSQRT, 1, 1, false},
    {"floor", elementwise, TILE_FLOOR, 1, 1, false},
    {"round", elementwise, TILE_ROUND, 1, 1, false},
    {"ceil", ceiling, TILE_CEIL, 1, 1, false},
    {"bits", bits, TILE_BITS, 1, 1, false},
    {"min", extreme, TILE_MIN, 1, 2, true},
    {"max", extreme, TILE_MAX, 1, 2, true},
    {"where", choose, TILE_OPERATOR_COUNT, 3, 3, false},
    {"sum", reduce, TILE_SUM, 1, 2, true},
    {"argmax", reduce, TILE_ARGMAX, 1, 2, true},
    {"dot", dot, TILE_OPERATOR_COUNT, 2, 2, false},
    {"iota", iota, TILE_OPERATOR_COUNT, 1, 1, false},
    {"reshape", reshape, TILE_OPERATOR_COUNT, 2, 1 + TILE_RANK, false},
    {"concat", concat, TILE_OPERATOR_COUNT, 1, 1 << 16, true},
};

/* T(x), T[2, 3](x) */
static tile_node *convert(check *c, const ast_expr *e, const tile_format *type) {
    tile_node *a = e->arguments ? check_open(c, e->arguments) : NULL;
    tile_shape shape;
    const bool good = !e->shape || check_shape(c, e->place, e->shape, &shape);
    if (!e->arguments || e->arguments->next || e->axis) {
        REPORT(c, e->place, "a cast takes one value, as in %s(x)", e->name);
        return NULL;
    }
    if (a) a = cast(c, e->place, a, type);
    if (!a || !good || !e->shape) return a;
    return check_stretch(c, e->place, a, &shape, "a tile");
}

static tile_node *call(check *c, const ast_expr *e) {
    const struct function *f = NULL;
    for (size_t i = 0; i < COUNT_OF(functions) && !f; i++)
        if (!strcmp(functions[i].name, e->name)) f = &functions[i];
    if (!f) {
        const check_symbol *s = check_find(c, e->name);
        if (!s && !tile_file_find_format(c->file, e->name)) {
            REPORT(c, e->place, "there is no function or type %s", e->name);
            return NULL;
        }
        const tile_format *type = check_type(c, e->place, e->name);
        return type ? convert(c, e, type) : NULL;
    }
    int count = 0;
    for (const ast_expr *x = e->arguments; x; x = x->next) count++;
    if (e->shape || (e->axis && !f->axis) || count < f->least || count > f->most) {
        if (e->shape || (e->axis && !f->axis))
            REPORT(c, e->place, "%s takes no %s", f->name, e->shape ? "shape" : "axis");
        else if (f->least == f->most)
            REPORT(c, e->place, "%s takes %d argument%s, not %d", f->name, f->least, f->least > 1 ? "s" : "", count);
        else
            REPORT(c, e->place, "%s takes %d to %d arguments, not %d", f->name, f->least, f->most, count);
        return NULL;
    }
    return f->check(c, e, f->op);
}

/* ---- names and the rest ---- */

static tile_node *param(check *c, const ast_expr *e, int index) {
    const tile_param *p = &c->op->params[index];
    if (p->kind != TILE_PARAM_ARG && p->kind != TILE_PARAM_LIVE) return check_load(c, e->place, index, NULL);
    const bool number = p->type == c->f32;
    if (c->in_header && number) {
        REPORT(c, e->place, "%s is an f32; extents and the grid are computed from integers", e->name);
        return NULL;
    }
    tile_node *n = check_node(c, e->place, p->kind == TILE_PARAM_ARG ? TILE_ARG : TILE_LIVE, number ? c->f32 : c->i64,
                              &(tile_shape){0});
    n->index = index;
    return n;
}

static tile_node *name(check *c, const ast_expr *e) {
    const check_symbol *s = check_find(c, e->name);
    if (!s || (s->kind == SYMBOL_CONSTANT && c->op->constants[s->index].type)) {
        if (s || tile_file_find_format(c->file, e->name)) {
            REPORT(c, e->place, "%s is a type; a value is expected here", e->name);
        } else {
            REPORT(c, e->place, "%s is not known", e->name);
            check_declare(c, e->place, e->name, SYMBOL_BROKEN, 0); /* say it once a block */
        }
        return NULL;
    }
    tile_node_kind kind;
    switch (s->kind) {
    case SYMBOL_CONSTANT:
        return check_literal_integer(c, e->place, c->op->constants[s->index].value);
    case SYMBOL_PARAM:
        return param(c, e, s->index);
    case SYMBOL_VARIABLE: {
        tile_variable *v = &c->op->variables[s->index];
        tile_node *n = check_node(c, e->place, TILE_VAR, v->type, &v->shape);
        n->index = s->index;
        v->uses++;
        return n;
    }
    case SYMBOL_EXTENT:
        kind = TILE_EXTENT;
        break;
    case SYMBOL_AXIS:
        kind = TILE_GRID;
        break;
    case SYMBOL_LOOP:
        kind = TILE_LOOP;
        break;
    case SYMBOL_SHARED:
        return explicit_view(c, e->place, s->index, NULL);
    case SYMBOL_BARRIER:
        REPORT(c, e->place, "%s is a barrier; a value is expected here", e->name);
        return NULL;
    default:
        return NULL;
    }
    tile_node *n = check_node(c, e->place, kind, c->i64, &(tile_shape){0});
    n->index = s->index;
    return n;
}

static tile_node *slice(check *c, const ast_expr *e) {
    if (e->a->kind == AST_NAME) {
        const check_symbol *s = check_find(c, e->a->name);
        if (s && s->kind == SYMBOL_PARAM && c->op->params[s->index].rank)
            return check_load(c, e->a->place, s->index, e->items);
        if (s && s->kind == SYMBOL_SHARED) return explicit_view(c, e->a->place, s->index, e->items);
    }
    return check_part(c, e->place, check_value(c, e->a), e->items);
}

tile_node *check_open(check *c, const ast_expr *e) {
    switch (e->kind) {
    case AST_INTEGER:
        return check_literal_integer(c, e->place, e->integer);
    case AST_FLOAT: {
        tile_node *n = check_node(c, e->place, TILE_CONST, &check_number, &(tile_shape){0});
        n->value.f = e->number;
        return n;
    }
    case AST_BOOL: {
        tile_node *n = check_node(c, e->place, TILE_CONST, c->boolean, &(tile_shape){0});
        n->value.i = e->integer != 0;
        return n;
    }
    case AST_NAME:
        return name(c, e);
    case AST_UNARY:
        return check_operator(c, e->place, e->op, check_open(c, e->a), NULL);
    case AST_BINARY: {
        tile_node *a = check_open(c, e->a), *b = check_open(c, e->b);
        return check_operator(c, e->place, e->op, a, b);
    }
    case AST_CALL:
        return call(c, e);
    case AST_SLICE:
        return slice(c, e);
    case AST_TRANSPOSE:
        return transpose(c, e);
    }
    return NULL;
}

tile_node *check_value(check *c, const ast_expr *e) { return check_settle(c, check_open(c, e)); }

tile_node *check_index(check *c, const ast_expr *e, const char *what) {
    return check_to_index(c, e->place, check_value(c, e), what);
}

tile_node *check_to_index(check *c, ast_place at, tile_node *n, const char *what) {
    if (!n) return NULL;
    if (n->shape.rank || (n->type != c->i64 && n->type != c->i32)) {
        const bool integer = n->type->scalar.kind == TILE_INT || n->type->scalar.kind == TILE_UINT;
        REPORT(c, at, "%s must be a scalar of type i64 or i32, not %s%s%s", what, n->type->name,
               n->shape.rank ? check_shape_text(c, &n->shape) : "",
               integer && !n->shape.rank ? "; cast it, as in i32(x)" : "");
        return NULL;
    }
    return cast(c, at, n, c->i64);
}

bool check_constant(check *c, const ast_expr *e, const char *what, int64_t least, int64_t most, int64_t *out) {
    const tile_node *n = check_open(c, e);
    if (!n) return false;
    if (n->kind != TILE_CONST || n->type == c->boolean || n->type->scalar.kind == TILE_FLOAT) {
        REPORT(c, e->place, "%s must be a constant integer", what);
        return false;
    }
    if (n->value.i < least || n->value.i > most) {
        REPORT(c, e->place, "%s is %" PRId64 "; expected %" PRId64 " to %" PRId64, what, n->value.i, least, most);
        return false;
    }
    *out = n->value.i;
    return true;
}
