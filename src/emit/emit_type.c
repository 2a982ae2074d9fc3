/* Types in C: how elements are held, literals, casts and operators (see the head of cpu_prelude.h). */
#include "emit/emit_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

bool emit_is_float(const tile_format *t, int bits) { return t->scalar.kind == TILE_FLOAT && t->scalar.bits == bits; }

bool emit_is_name(const char *expression) {
    const char *c = expression;
    while (isalnum((unsigned char)*c) || *c == '_') c++;
    if (*c && !strncmp(expression, "(-", 2)) /* a negative literal */
        for (c = expression + 2; isdigit((unsigned char)*c) || (*c == ')' && !c[1]);) c++;
    return !*c;
}

const char *emit_bare(arena *a, const char *expression) {
    if (*expression != '(') return expression;
    int depth = 0;
    const char *c = expression;
    do depth += (*c == '(') - (*c == ')');
    while (*c++ && depth);
    return *c ? expression : arena_string(a, expression + 1, (size_t)(c - expression) - 2);
}

/* How casts see a type. */
typedef enum type_class { CLASS_F32, CLASS_F64, CLASS_SMALL, CLASS_INT, CLASS_BOOL } type_class;

static type_class class_of(const tile_format *t) {
    if (t->scalar.kind == TILE_BOOL) return CLASS_BOOL;
    if (t->scalar.kind != TILE_FLOAT) return CLASS_INT;
    return t->scalar.bits == 32 ? CLASS_F32 : t->scalar.bits == 64 ? CLASS_F64 : CLASS_SMALL;
}

const char *emit_c_type(const tile_format *t) {
    if (tile_format_is_block(t)) return "float"; /* decoded */
    switch (class_of(t)) {
    case CLASS_F32:
        return "float";
    case CLASS_F64:
        return "double";
    case CLASS_SMALL:
        return t->scalar.bits <= 8 && !t->scalar.is_unsigned ? "uint8_t" : "uint16_t"; /* e8m0 has one code more */
    case CLASS_BOOL:
        return "uint8_t";
    default:
        if (t->scalar.kind == TILE_INT)
            return t->scalar.bits <= 8    ? "int8_t"
                   : t->scalar.bits == 16 ? "int16_t"
                   : t->scalar.bits == 32 ? "int32_t"
                                          : "int64_t";
        return t->scalar.bits <= 8    ? "uint8_t"
               : t->scalar.bits == 16 ? "uint16_t"
               : t->scalar.bits == 32 ? "uint32_t"
                                      : "uint64_t";
    }
}

/* ---- literals ---- */

static const char *float_literal(arena *a, double value, bool is_double) {
    const char *suffix = is_double ? "" : "f";
    if (isnan(value)) return "NAN";
    if (isinf(value)) return value > 0 ? "INFINITY" : "(-INFINITY)";
    char digits[40];
    snprintf(digits, sizeof digits, is_double ? "%.17g" : "%.9g", value);
    const char *point = strpbrk(digits, ".e") ? "" : ".0";
    return arena_printf(a, signbit(value) ? "(%s%s%s)" : "%s%s%s", digits, point, suffix);
}

static const char *integer_literal(arena *a, const tile_format *t, int64_t value) {
    if (t->scalar.kind == TILE_UINT)
        return arena_printf(a,
                            t->scalar.bits == 64   ? "UINT64_C(%" PRIu64 ")"
                            : t->scalar.bits == 32 ? "%" PRIu64 "u"
                                                   : "%" PRIu64,
                            (uint64_t)value);
    if (value == INT64_MIN) return "INT64_MIN";
    if (value == INT32_MIN) return "INT32_MIN";
    if (value > INT32_MAX || value < INT32_MIN)
        return arena_printf(a, value < 0 ? "(-INT64_C(%" PRId64 "))" : "INT64_C(%" PRId64 ")",
                            value < 0 ? -value : value);
    return arena_printf(a, value < 0 ? "(%" PRId64 ")" : "%" PRId64, value);
}

const char *emit_literal(arena *a, const tile_node *n) {
    switch (class_of(n->type)) {
    case CLASS_F32:
    case CLASS_F64:
        return float_literal(a, n->value.f, class_of(n->type) == CLASS_F64);
    case CLASS_SMALL:
        return arena_printf(a, "0x%" PRIx64, tile_scalar_encode(n->type->scalar, n->value.f));
    default:
        return integer_literal(a, n->type, n->value.i);
    }
}

/* ---- casts ---- */

static const char *special_text(tile_scalar t) {
    return t.special == TILE_IEEE ? "MT_IEEE" : t.special == TILE_NAN ? "MT_NAN" : "MT_FINITE";
}

static const char *to_f32(arena *a, const char *v, const tile_format *from) {
    const tile_scalar t = from->scalar;
    if (tile_format_is_block(from) || class_of(from) == CLASS_F32) return v;
    if (class_of(from) != CLASS_SMALL) return arena_printf(a, "(float)%s", v);
    if (t.is_unsigned) return arena_printf(a, "mt_f32_from_e8m0(%s)", v);
    if (t.bits == 16) return arena_printf(a, t.exponent == 8 ? "mt_f32_from_bf16(%s)" : "mt_f32_from_f16(%s)", v);
    return arena_printf(a, "mt_f32_from_float(%s, %d, %d, %s)", v, t.exponent, t.mantissa, special_text(t));
}

static const char *to_f64(arena *a, const char *v, const tile_format *from) {
    if (class_of(from) == CLASS_F64) return v;
    return arena_printf(a, "(double)%s", class_of(from) == CLASS_SMALL ? to_f32(a, v, from) : v);
}

static const char *to_small(arena *a, const char *v, const tile_format *from, const tile_format *to) {
    const tile_scalar t = to->scalar;
    const bool exact_in_f32 = class_of(from) != CLASS_F64 && (class_of(from) != CLASS_INT || from->scalar.bits <= 16);
    if (t.is_unsigned || !exact_in_f32)
        return arena_printf(a, "mt_float_from_f64(%s, %d, %d, %s, %d)", to_f64(a, v, from), t.exponent, t.mantissa,
                            special_text(t), t.is_unsigned);
    v = to_f32(a, v, from);
    if (t.bits == 16) return arena_printf(a, t.exponent == 8 ? "mt_bf16_from_f32(%s)" : "mt_f16_from_f32(%s)", v);
    return arena_printf(a, "mt_float_from_f32(%s, %d, %d, %s)", v, t.exponent, t.mantissa, special_text(t));
}

/* The limits of an integer type or bool. */
static int64_t lowest(tile_scalar t) {
    return t.kind != TILE_INT ? 0 : t.bits == 64 ? INT64_MIN : -((int64_t)1 << (t.bits - 1));
}
static int64_t highest(tile_scalar t) {
    if (t.kind == TILE_BOOL) return 1;
    return t.kind == TILE_INT
               ? (t.bits == 64 ? INT64_MAX : ((int64_t)1 << (t.bits - 1)) - 1)
               : (t.bits == 64 ? INT64_MAX : ((int64_t)1 << t.bits) - 1); /* of u64: as far as i64 goes */
}
static bool is_wide(tile_scalar t) {
    return t.bits == 64 || (t.kind == TILE_UINT && t.bits == 32);
} /* does not fit in int32_t */

static const char *int_to_int(arena *a, const char *v, const tile_format *from, const tile_format *to) {
    const tile_scalar s = from->scalar, t = to->scalar;
    const int64_t low = lowest(t), high = highest(t);
    const char *type = emit_c_type(to);
    if (s.kind == TILE_UINT && s.bits == 64)
        return arena_printf(a, "(%s)mt_minu64(%s, UINT64_C(%" PRId64 "))", type, v, high);
    if (lowest(s) >= low && highest(s) <= high) return arena_printf(a, "(%s)%s", type, v);
    if (t.bits == 64) return arena_printf(a, "(uint64_t)mt_max(%s, 0)", v); /* signed to u64 */
    if (is_wide(s) || is_wide(t)) {
        if (!is_wide(s) && lowest(s) < 0) return arena_printf(a, "(%s)mt_max32(%s, 0)", type, v); /* signed to u32 */
        return arena_printf(a, "(%s)mt_clamp(%s, INT64_C(%" PRId64 "), INT64_C(%" PRId64 "))", type, v, low, high);
    }
    return arena_printf(a, "(%s)mt_clamp32(%s, %" PRId64 ", %" PRId64 ")", type, v, low, high);
}

static const char *to_int(arena *a, const char *v, const tile_format *from, const tile_format *to) {
    const tile_scalar t = to->scalar;
    const char *type = emit_c_type(to);
    if (class_of(from) == CLASS_INT || class_of(from) == CLASS_BOOL) return int_to_int(a, v, from, to);
    if (t.bits == 64)
        return arena_printf(a, t.kind == TILE_INT ? "mt_i64_from_f64(%s)" : "mt_u64_from_f64(%s)", to_f64(a, v, from));
    if (class_of(from) == CLASS_F64 || (t.kind == TILE_UINT && t.bits == 32))
        return arena_printf(a, "(%s)mt_int_from_f64(%s, INT64_C(%" PRId64 "), INT64_C(%" PRId64 "))", type,
                            to_f64(a, v, from), lowest(t), highest(t));
    if (t.bits == 32) return arena_printf(a, "mt_i32_from_f32(%s)", to_f32(a, v, from));
    return arena_printf(a, "(%s)mt_int_from_f32(%s, %" PRId64 ".0f, %" PRId64 ".0f)", type, to_f32(a, v, from),
                        lowest(t), highest(t));
}

const char *emit_cast(arena *a, const char *value, const tile_format *from, const tile_format *to) {
    if (from == to) return value;
    switch (class_of(to)) {
    case CLASS_F32:
        return to_f32(a, value, from);
    case CLASS_F64:
        return to_f64(a, value, from);
    case CLASS_SMALL:
        return to_small(a, value, from, to);
    default:
        return to_int(a, value, from, to);
    }
}

/* ---- operators ---- */

static const char *float_operator(arena *m, const tile_node *n, const char *a, const char *b, bool is_double) {
    static const struct {
        tile_operator op;
        const char *f32, *f64;
    } functions[] = {{TILE_ABS, "__builtin_fabsf", "__builtin_fabs"},
                     {TILE_EXP, "mt_exp", "__builtin_exp"},
                     {TILE_EXP2, "mt_exp2", "__builtin_exp2"},
                     {TILE_LOG, "mt_log", "__builtin_log"},
                     {TILE_LOG2, "mt_log2", "__builtin_log2"},
                     {TILE_SIN, "mt_sin", "__builtin_sin"},
                     {TILE_COS, "mt_cos", "__builtin_cos"},
                     {TILE_TANH, "mt_tanh", "__builtin_tanh"},
                     {TILE_SQRT, "__builtin_sqrtf", "__builtin_sqrt"},
                     {TILE_RSQRT, "mt_rsqrt", "1.0 / __builtin_sqrt"},
                     {TILE_FLOOR, "__builtin_floorf", "__builtin_floor"},
                     {TILE_CEIL, "__builtin_ceilf", "__builtin_ceil"},
                     {TILE_ROUND, "__builtin_rintf", "__builtin_rint"},
                     {TILE_MIN, "mt_min_f32", "mt_min_f64"},
                     {TILE_MAX, "mt_max_f32", "mt_max_f64"}};
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        if (functions[i].op == n->op) {
            const char *f = is_double ? functions[i].f64 : functions[i].f32;
            return b ? arena_printf(m, "%s(%s, %s)", f, a, b)
                     : arena_printf(m, n->op == TILE_RSQRT && is_double ? "(%s(%s))" : "%s(%s)", f, a);
        }
    return NULL;
}

static bool is_constant_in(const tile_node *n, int64_t low, int64_t high) {
    return n->kind == TILE_CONST && n->value.i >= low && n->value.i <= high;
}

/* / and % of C are right where nothing is negative. */
static bool is_plain_division(const emit *e, const tile_node *n) {
    int64_t low, high;
    if (!is_constant_in(n->b, 1, INT64_MAX)) return false;
    return n->a->type->scalar.kind == TILE_UINT || (emit_range(e, n->a, &low, &high) && low >= 0) ||
           n->a->kind == TILE_IOTA;
}

static const char *integer_operator(emit *e, const tile_node *n, const char *a, const char *b) {
    arena *m = e->memory;
    const tile_scalar t = n->a->type->scalar;
    const bool is_unsigned = t.kind == TILE_UINT, narrow = t.bits == 32;
    const char *suffix = !narrow ? "" : is_unsigned ? "u32" : "32";
    switch (n->op) {
    case TILE_NEG:
        return arena_printf(m, "(%s-%s)", is_unsigned ? "0u " : "", a);
    case TILE_ABS:
        return is_unsigned ? a : arena_printf(m, "mt_abs%s(%s)", suffix, a);
    case TILE_MIN:
    case TILE_MAX:
        return arena_printf(m, "mt_%s%s(%s, %s)", n->op == TILE_MIN ? "min" : "max", suffix, a, b);
    case TILE_DIV:
    case TILE_MOD:
        if (is_plain_division(e, n)) return arena_printf(m, "(%s %s %s)", a, n->op == TILE_DIV ? "/" : "%", b);
        /* fall through */
    case TILE_CEIL_DIV: {
        const char *f = n->op == TILE_DIV ? "mt_div" : n->op == TILE_MOD ? "mt_mod" : "mt_ceil_div";
        return narrow ? arena_printf(m, "(%s)%s(%s, %s)", emit_c_type(n->type), f, a, b)
                      : arena_printf(m, "%s(%s, %s)", f, a, b);
    }
    case TILE_SHL:
    case TILE_SHR:
        if (is_constant_in(n->b, 0, t.bits - 1))
            return arena_printf(m, "(%s %s %s)", a, n->op == TILE_SHL ? "<<" : ">>", b);
        if (is_unsigned)
            return arena_printf(m, n->op == TILE_SHL ? "(uint32_t)mt_shl64(%s & 0xffffffffu, %s)" : "mt_shru32(%s, %s)",
                                a, b);
        return arena_printf(m, "mt_sh%s%d(%s, %s)", n->op == TILE_SHL ? "l" : "r", t.bits, a, b);
    default:
        return NULL;
    }
}

const char *emit_operate(emit *e, const tile_node *n, const char *a, const char *b) {
    const tile_scalar t = n->a->type->scalar;
    const char *special = NULL;
    /* Short literals are ints in C, and two of them would be computed as ints. */
    if (t.kind == TILE_INT && t.bits == 64 && n->a->kind == TILE_CONST &&
        (!n->b || n->b->kind == TILE_CONST || n->op == TILE_SHL))
        a = arena_printf(e->memory, "(int64_t)%s", a);
    if (t.kind == TILE_FLOAT) special = float_operator(e->memory, n, a, b, t.bits == 64);
    if (t.kind == TILE_INT || t.kind == TILE_UINT) special = integer_operator(e, n, a, b);
    if (n->op == TILE_BITS) return arena_printf(e->memory, t.kind == TILE_FLOAT ? "mt_bits(%s)" : "mt_float(%s)", a);
    if (special) return special;
    if (n->op == TILE_NOT) return arena_printf(e->memory, "!%s", a);
    const char *symbol = n->op == TILE_AND ? "&" : n->op == TILE_OR ? "|" : tile_operator_text(n->op);
    return b ? arena_printf(e->memory, "(%s %s %s)", a, symbol, b) : arena_printf(e->memory, "(%s%s)", symbol, a);
}
