/* Constants: literals that take the type they meet, and arithmetic on constants.
 *
 * A literal (and an integer constant of the program) is a TILE_CONST whose type is check_integer or check_number until
 * it meets a tile, a variable or a tensor whose type it then takes. Operations on literals alone are computed here,
 * integers in 64 bits with checks, numbers in double, and give literals again; so do not lose precision before the type
 * is known. Operations on typed integers and bools that are constant are computed, too, so that what must be constant
 * can be written in any way; operations on typed floats are left to run time, whose rounding they keep. */
#include "tile/check.h"

#include <inttypes.h>
#include <math.h>

const tile_format check_integer = {
    .name = "an integer literal", .scalar = {.kind = TILE_INT, .bits = 64}, .block = 1, .bits = 64};
const tile_format check_number = {.name = "a number literal",
                                  .scalar = {.kind = TILE_FLOAT, .bits = 64, .exponent = 11, .mantissa = 52},
                                  .block = 1,
                                  .bits = 64};

bool check_is_literal(const tile_node *n) {
    return n->kind == TILE_CONST && (n->type == &check_integer || n->type == &check_number);
}

static tile_node *constant(check *c, ast_place at, const tile_format *type) {
    return check_node(c, at, TILE_CONST, type, &(tile_shape){0});
}

tile_node *check_literal_integer(check *c, ast_place at, int64_t value) {
    tile_node *n = constant(c, at, &check_integer);
    n->value.i = value;
    return n;
}

static bool is_integer(const tile_format *t) { return t->scalar.kind == TILE_INT || t->scalar.kind == TILE_UINT; }

static bool fits(int64_t value, tile_scalar t) {
    if (t.kind == TILE_UINT) return value >= 0 && (t.bits > 62 || value >> t.bits == 0);
    return t.bits == 64 || (value >= -((int64_t)1 << (t.bits - 1)) && value < (int64_t)1 << (t.bits - 1));
}

/* The number of that type next to `value`. */
static double rounded(tile_scalar t, double value) { return tile_scalar_decode(t, tile_scalar_encode(t, value)); }

bool check_adapt(check *c, tile_node *n, const tile_format *type) {
    if (!check_is_literal(n) || n->type == type) return true;
    const ast_place at = check_place(n);
    if (tile_format_is_block(type)) {
        REPORT(c, at, "a literal cannot be of the block format %s", type->name);
        return false;
    }
    if (type->scalar.kind == TILE_BOOL) {
        REPORT(c, at, "a bool is expected here: true, false or a comparison");
        return false;
    }
    if (n->type == &check_integer) {
        if (is_integer(type) && !fits(n->value.i, type->scalar)) {
            REPORT(c, at, "%" PRId64 " does not fit in %s", n->value.i, type->name);
            return false;
        }
        if (!is_integer(type)) n->value.f = rounded(type->scalar, (double)n->value.i);
    } else {
        if (is_integer(type)) {
            REPORT(c, at, "%g is a float literal, and %s is expected here", n->value.f, type->name);
            return false;
        }
        n->value.f = rounded(type->scalar, n->value.f);
    }
    n->type = type;
    return true;
}

tile_node *check_settle(check *c, tile_node *n) {
    if (n && check_is_literal(n)) check_adapt(c, n, n->type == &check_integer ? c->i64 : c->f32);
    return n;
}

bool check_compute(tile_operator op, int64_t a, int64_t b, int64_t *out) {
    switch (op) {
    case TILE_NEG:
        return !__builtin_sub_overflow((int64_t)0, a, out);
    case TILE_ABS:
        return a < 0 ? !__builtin_sub_overflow((int64_t)0, a, out) : (*out = a, true);
    case TILE_ADD:
        return !__builtin_add_overflow(a, b, out);
    case TILE_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case TILE_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case TILE_SHL:
        return b < 63 ? !__builtin_mul_overflow(a, (int64_t)1 << b, out) : (*out = 0, a == 0);
    case TILE_SHR:
        return *out = a >> b, true;
    case TILE_DIV:
        if (b == -1) return !__builtin_sub_overflow((int64_t)0, a, out);
        return *out = floor_div(a, b), true;
    case TILE_MOD:
        return *out = b == -1 ? 0 : floor_mod(a, b), true;
    case TILE_CEIL_DIV:
        if (b == -1) return !__builtin_sub_overflow((int64_t)0, a, out);
        return *out = floor_div(a, b) + (a % b != 0), true;
    case TILE_MIN:
        return *out = a < b ? a : b, true;
    case TILE_MAX:
        return *out = a > b ? a : b, true;
    case TILE_AND:
    case TILE_BIT_AND:
        return *out = a & b, true;
    case TILE_OR:
    case TILE_BIT_OR:
        return *out = a | b, true;
    case TILE_BIT_XOR:
        return *out = a ^ b, true;
    case TILE_NOT:
        return *out = !a, true;
    case TILE_EQ:
        return *out = a == b, true;
    case TILE_NE:
        return *out = a != b, true;
    case TILE_LT:
        return *out = a < b, true;
    case TILE_LE:
        return *out = a <= b, true;
    case TILE_GT:
        return *out = a > b, true;
    case TILE_GE:
        return *out = a >= b, true;
    default:
        return false;
    }
}

/* False for operations that are not computed on literals. Comparisons give 0 or 1. */
static bool compute_number(tile_operator op, double a, double b, double *out) {
    switch (op) {
    case TILE_NEG:
        return *out = -a, true;
    case TILE_ABS:
        return *out = fabs(a), true;
    case TILE_ADD:
        return *out = a + b, true;
    case TILE_SUB:
        return *out = a - b, true;
    case TILE_MUL:
        return *out = a * b, true;
    case TILE_DIV:
        return *out = a / b, true;
    case TILE_MIN:
        return *out = fmin(a, b), true;
    case TILE_MAX:
        return *out = fmax(a, b), true;
    case TILE_EQ:
        return *out = a == b, true;
    case TILE_NE:
        return *out = a != b, true;
    case TILE_LT:
        return *out = a < b, true;
    case TILE_LE:
        return *out = a <= b, true;
    case TILE_GT:
        return *out = a > b, true;
    case TILE_GE:
        return *out = a >= b, true;
    default:
        return false;
    }
}

static bool folds(const tile_node *n) {
    return !n || (n->kind == TILE_CONST && (n->type == &check_number || n->type->scalar.kind != TILE_FLOAT));
}

tile_node *check_fold(check *c, ast_place at, tile_operator op, const tile_node *a, const tile_node *b, bool *failed) {
    const bool constant_divisor = b && b->kind == TILE_CONST && is_integer(b->type);
    const bool divides = op == TILE_DIV || op == TILE_MOD || op == TILE_CEIL_DIV,
               shifts = op == TILE_SHL || op == TILE_SHR;
    *failed = true;
    if (constant_divisor && divides && b->value.i == 0) {
        REPORT(c, check_place(b), "this is a division by zero");
        return NULL;
    }
    if (constant_divisor && shifts && (b->value.i < 0 || b->value.i >= a->type->bits)) {
        REPORT(c, check_place(b), "a shift by %" PRId64 "; expected 0 to %d", b->value.i, a->type->bits - 1);
        return NULL;
    }
    *failed = false;
    if (!folds(a) || !folds(b)) return NULL;
    const bool compares = op >= TILE_EQ && op <= TILE_GE;
    if (a->type == &check_number) {
        double value;
        if (!compute_number(op, a->value.f, b ? b->value.f : 0, &value)) return NULL;
        tile_node *n = constant(c, at, compares ? c->boolean : &check_number);
        if (compares)
            n->value.i = value != 0;
        else
            n->value.f = value;
        return n;
    }
    int64_t value;
    if (!check_compute(op, a->value.i, b ? b->value.i : 0, &value) ||
        (!compares && is_integer(a->type) && !fits(value, a->type->scalar))) {
        REPORT(c, at, "the result of this operation does not fit in %s",
               a->type == &check_integer ? "64 bits" : a->type->name);
        *failed = true;
        return NULL;
    }
    tile_node *n = constant(c, at, compares ? c->boolean : a->type);
    n->value.i = value;
    return n;
}

tile_node *check_fold_cast(check *c, const tile_node *n, const tile_format *type) {
    if (n->kind != TILE_CONST) return NULL;
    const ast_place at = check_place(n);
    const bool literal = check_is_literal(n);
    tile_node *out = constant(c, at, n->type);
    out->value = n->value;
    if (type->scalar.kind == TILE_BOOL && literal) {
        out->value.i = n->type == &check_integer ? n->value.i > 0 : n->value.f > 0.5; /* saturates to 0 or 1 */
    } else if (n->type == &check_number && is_integer(type)) { /* rounds and saturates as at run time */
        const int unused = 64 - type->bits;
        const uint64_t code = tile_scalar_encode(type->scalar, n->value.f) << unused;
        if (type->scalar.kind == TILE_UINT && code >> unused > INT64_MAX) {
            REPORT(c, at, "%g is too large for a constant: at most 2^63 - 1", n->value.f);
            return NULL;
        }
        out->value.i = type->scalar.kind == TILE_UINT ? (int64_t)(code >> unused) : (int64_t)code >> unused;
    } else if (literal) {
        return check_adapt(c, out, type) ? out : NULL;
    } else if (is_integer(n->type) && is_integer(type) && fits(n->value.i, type->scalar)) {
        /* the value stays */
    } else {
        return NULL;
    }
    out->type = type;
    return out;
}
