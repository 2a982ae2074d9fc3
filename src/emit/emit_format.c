/* Decoders of storage formats, generated from their declarations.
 *
 * A block is decoded in chunks of 16 elements. Within a chunk the element's index is known, so every index expression
 * is computed here, for all 16 lanes, and only its pattern is left: the same for all lanes (a scalar, hoisted), bytes
 * that follow each other with one shift, in one run or two (a vector load, a shift, a mask), elements of less than a
 * byte that follow each other. What has no pattern is spelled out lane by lane. The chunk is then one expression of
 * vectors, in the order of operations of the declaration; a product and a sum are fused only where the product is
 * exact, which counting significant bits shows. */
#include "emit/emit_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LANES = 16 };

typedef enum lanes_kind {
    LANES_KNOWN, /* values that depend on the index alone: v */
    LANES_SAME,  /* one run-time value for all lanes: a scalar expression */
    LANES_VECTOR /* an expression of vectors; bools are masks */
} lanes_kind;

typedef struct lanes {
    lanes_kind kind;
    format_value v[LANES];
    const char *text;
} lanes;

typedef struct decoder {
    arena *memory;
    const tile_format *format;
    text *out;
    const char **names; /* scalars that have been declared: "type expression", name, ... */
    size_t name_count, name_capacity;
    int first;   /* the chunk's first element */
    int spelled; /* counts arrays of spelled-out lanes */
} decoder;

static bool is_float(const tile_node *n) { return n->type->scalar.kind == TILE_FLOAT; }
static bool is_bool(const tile_node *n) { return n->type->scalar.kind == TILE_BOOL; }

/* ---- what is known ---- */

static bool has_field(const tile_node *n) {
    return n && (n->kind == TILE_FIELD || has_field(n->a) || has_field(n->b) || has_field(n->c));
}

/* The value of a node without fields for element i. */
static format_value known_value(const tile_node *n, int i) {
    switch (n->kind) {
    case TILE_CONST:
        return is_float(n) ? (format_value){.f = (float)n->value.f} : (format_value){.i = (int32_t)n->value.i};
    case TILE_FORMAT_INDEX:
        return (format_value){.i = i};
    case TILE_CAST:
        return format_cast(n, known_value(n->a, i));
    case TILE_SELECT:
        return known_value(known_value(n->a, i).i ? n->b : n->c, i);
    case TILE_ELEMENTWISE:
        return format_operate(n, known_value(n->a, i), n->b ? known_value(n->b, i) : (format_value){.i = 0});
    default:
        return (format_value){.i = 0};
    }
}

static const char *literal(arena *m, const tile_node *n, format_value v) {
    const tile_node c = {.kind = TILE_CONST, .type = n->type, .value = {.i = v.i}};
    tile_node f = c;
    f.value.f = v.f;
    return emit_literal(m, is_float(n) ? &f : &c);
}

/* ---- exactness ---- */

enum { MANY = 99 };

static int bits_of(const decoder *d, const tile_node *n);

static bool is_nonnegative(const decoder *d, const tile_node *n) {
    switch (n->kind) {
    case TILE_CONST:
        return n->value.i >= 0;
    case TILE_FORMAT_INDEX:
        return true;
    case TILE_FIELD:
        return d->format->body->fields[n->index].type->scalar.kind != TILE_INT &&
               d->format->body->fields[n->index].type->scalar.bits < 32;
    case TILE_SELECT:
        return is_nonnegative(d, n->b) && is_nonnegative(d, n->c);
    case TILE_ELEMENTWISE:
        switch (n->op) {
        case TILE_BIT_AND:
            return is_nonnegative(d, n->a) || is_nonnegative(d, n->b);
        case TILE_BIT_OR:
            return is_nonnegative(d, n->a) && is_nonnegative(d, n->b);
        case TILE_SHR:
            return is_nonnegative(d, n->a);
        case TILE_SHL:
            return is_nonnegative(d, n->a) && bits_of(d, n) < 32;
        default:
            return false;
        }
    default:
        return false;
    }
}

/* The magnitude of an integer fits in so many bits. */
static int bits_of(const decoder *d, const tile_node *n) {
    if (!has_field(n) && !is_float(n)) {
        int bits = 0;
        for (int i = 0; i < d->format->block; i++)
            for (int64_t v = known_value(n, i).i; (v < 0 ? -v : v) >> bits; bits++) {}
        return bits;
    }
    switch (n->kind) {
    case TILE_FIELD:
        return d->format->body->fields[n->index].type->scalar.bits;
    case TILE_SELECT:
        return bits_of(d, n->b) > bits_of(d, n->c) ? bits_of(d, n->b) : bits_of(d, n->c);
    case TILE_ELEMENTWISE: {
        const int a = bits_of(d, n->a), b = n->b ? bits_of(d, n->b) : 0, most = a > b ? a : b;
        switch (n->op) {
        case TILE_NEG:
            return a;
        case TILE_ADD:
        case TILE_SUB:
            return most + 1;
        case TILE_MUL:
            return a + b;
        case TILE_BIT_AND:
            if (n->b->kind == TILE_CONST && n->b->value.i >= 0) return bits_of(d, n->b);
            return is_nonnegative(d, n->a) && is_nonnegative(d, n->b) ? most : 32;
        case TILE_BIT_OR:
            return is_nonnegative(d, n->a) && is_nonnegative(d, n->b) ? most : 32;
        case TILE_SHR:
            return n->b->kind == TILE_CONST && is_nonnegative(d, n->a)
                       ? (a > n->b->value.i ? a - (int)n->b->value.i : 0)
                       : a;
        case TILE_SHL:
            return n->b->kind == TILE_CONST ? a + (int)n->b->value.i : 32;
        default:
            return 32;
        }
    }
    default:
        return 32;
    }
}

/* Significant bits of a float; MANY where they are not known, or where the exponent may be so extreme that a product is
 * not exact. */
static int significant_bits(const decoder *d, const tile_node *n) {
    switch (n->kind) {
    case TILE_FIELD: {
        const tile_scalar t = d->format->body->fields[n->index].type->scalar;
        return t.exponent < 8 ? t.mantissa + 1 : MANY;
    }
    case TILE_CAST:
        return bits_of(d, n->a);
    case TILE_SELECT: {
        const int a = significant_bits(d, n->b), b = significant_bits(d, n->c);
        return a > b ? a : b;
    }
    case TILE_ELEMENTWISE:
        if (n->op == TILE_NEG) return significant_bits(d, n->a);
        return n->op == TILE_MUL ? significant_bits(d, n->a) + significant_bits(d, n->b) : MANY;
    default:
        return MANY;
    }
}

static bool is_exact_product(const decoder *d, const tile_node *n) {
    return n->kind == TILE_ELEMENTWISE && n->op == TILE_MUL && is_float(n) && significant_bits(d, n) <= 24;
}

bool emit_is_exact_product(const tile_format *f, const tile_node *n) {
    const decoder d = {.format = f};
    return is_exact_product(&d, n);
}
int emit_integer_bits(const tile_format *f, const tile_node *n) {
    const decoder d = {.format = f};
    return bits_of(&d, n);
}
bool emit_has_field(const tile_node *n) { return has_field(n); }
format_value emit_known_value(const tile_node *n, int i) { return known_value(n, i); }

/* ---- scalars ---- */

/* Declares a scalar once, and gives its name. */
static const char *named(decoder *d, const char *type, const char *expression, const char *name) {
    for (size_t i = 0; i < d->name_count; i += 2)
        if (!strcmp(d->names[i], expression)) return d->names[i + 1];
    if (!name && emit_is_name(expression)) return expression;
    if (!name) name = arena_printf(d->memory, "s%zu", d->name_count / 2);
    *ARENA_PUSH(d->memory, d->names, d->name_count, d->name_capacity) = expression;
    *ARENA_PUSH(d->memory, d->names, d->name_count, d->name_capacity) = name;
    text_printf(d->out, "    const %s %s = %s;\n", type, name, emit_bare(d->memory, expression));
    return name;
}

/* Element e of a field. */
static const char *field_element(decoder *d, const tile_field *f, int e) {
    arena *m = d->memory;
    const tile_scalar t = f->type->scalar;
    const int at = f->bit_offset + e * t.bits, byte = at / 8, shift = at % 8;
    const char *code;
    if (shift == 0 && t.bits == 8)
        code = arena_printf(m, "p[%d]", byte);
    else if (shift == 0 && t.bits < 8)
        code = arena_printf(m, "(p[%d] & %d)", byte, (1 << t.bits) - 1);
    else if (shift + t.bits <= 8)
        code = arena_printf(m, "(p[%d] >> %d & %d)", byte, shift, (1 << t.bits) - 1);
    else if (shift == 0 && t.bits >= 16)
        code = arena_printf(m, "mt_get%d(p + %d)", t.bits, byte);
    else
        code = arena_printf(m, "mt_get_code(p, %d, %d)", at, t.bits);
    if (t.kind == TILE_BOOL) return arena_printf(m, "(%s != 0)", code);
    if (t.kind == TILE_INT && t.bits < 32)
        return arena_printf(m,
                            t.bits == 8    ? "(int32_t)(int8_t)%s"
                            : t.bits == 16 ? "(int32_t)(int16_t)%s"
                                           : "mt_sign((uint32_t)%s, %d)",
                            code, t.bits);
    if (t.kind != TILE_FLOAT) return arena_printf(m, "(int32_t)%s", code);
    if (t.bits == 32) return arena_printf(m, "mt_float(%s)", code);
    if (t.exponent == 5 && t.bits == 16 && shift == 0) return arena_printf(m, "mt_get_f16(p + %d)", byte);
    return emit_cast(m, code, f->type, tile_format_scalar("f32", 3));
}

/* The scalar expression of a node for element i. */
static const char *scalar_text(decoder *d, const tile_node *n, int i) {
    arena *m = d->memory;
    if (!has_field(n)) return literal(m, n, known_value(n, i));
    switch (n->kind) {
    case TILE_FIELD: {
        const tile_field *f = &d->format->body->fields[n->index];
        if (!has_field(n->a)) {
            const int e = known_value(n->a, i).i;
            return named(d, is_float(n) ? "float" : "int32_t", field_element(d, f, e),
                         arena_printf(m, "%s_%d", f->name, e));
        }
        /* an index that comes from the block: the checker has shown that it is in range */
        const char *at = named(d, "int", scalar_text(d, n->a, i), NULL);
        const char *code = arena_printf(m, "mt_get_code(p, %d + %s * %d, %d)", f->bit_offset, at, f->type->scalar.bits,
                                        f->type->scalar.bits);
        if (f->type->scalar.kind == TILE_INT && f->type->scalar.bits < 32)
            return arena_printf(m, "mt_sign(%s, %d)", code, f->type->scalar.bits);
        if (f->type->scalar.kind != TILE_FLOAT) return arena_printf(m, "(int32_t)%s", code);
        return f->type->scalar.bits == 32 ? arena_printf(m, "mt_float(%s)", code)
                                          : emit_cast(m, code, f->type, tile_format_scalar("f32", 3));
    }
    case TILE_CAST:
        return is_float(n) == is_float(n->a) ? scalar_text(d, n->a, i)
                                             : emit_cast(m, scalar_text(d, n->a, i), n->a->type, n->type);
    case TILE_SELECT:
        if (!has_field(n->a)) return scalar_text(d, known_value(n->a, i).i ? n->b : n->c, i);
        return arena_printf(m, "(%s ? %s : %s)", scalar_text(d, n->a, i), scalar_text(d, n->b, i),
                            scalar_text(d, n->c, i));
    default: {
        emit e = {.memory = m}; /* for the operators; there are no ranges here */
        return emit_operate(&e, n, scalar_text(d, n->a, i), n->b ? scalar_text(d, n->b, i) : NULL);
    }
    }
}

/* ---- vectors ---- */

static lanes vector(const char *expression) { return (lanes){.kind = LANES_VECTOR, .text = expression}; }

/* The lanes one by one, into an array. */
static lanes spelled_out(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    const char *name = arena_printf(m, "lanes%d", d->spelled++), *list = "";
    for (int l = 0; l < LANES; l++) {
        const char *one = scalar_text(d, n, d->first + l);
        list = arena_printf(m, is_bool(n) ? "%s%s-(int32_t)%s" : "%s%s%s", list, l ? ", " : "", one);
    }
    text_printf(d->out, "    const %s %s[16] = {%s};\n", is_float(n) ? "float" : "int32_t", name, list);
    return vector(arena_printf(m, is_float(n) ? "mt_load(%s + l)" : "mt_load_i32(%s + l)", name));
}

/* As a vector, whatever it is. */
static const char *vector_text(decoder *d, const tile_node *n, const lanes *v) {
    arena *m = d->memory;
    if (v->kind == LANES_VECTOR) return v->text;
    if (v->kind == LANES_KNOWN && memcmp(v->v, v->v + 1, sizeof v->v - sizeof v->v[0])) return spelled_out(d, n).text;
    const char *scalar =
        v->kind == LANES_KNOWN ? literal(m, n, v->v[0]) : named(d, is_float(n) ? "float" : "int32_t", v->text, NULL);
    return arena_printf(m,
                        is_float(n)  ? "mt_splat(%s)"
                        : is_bool(n) ? "((mt_ivec){0} - %s)"
                                     : "((mt_ivec){0} + %s)",
                        scalar);
}
/* As an operand beside a vector: scalars may stay what they are. */
static const char *operand_text(decoder *d, const tile_node *n, const lanes *v) {
    const bool uniform =
        v->kind == LANES_SAME || (v->kind == LANES_KNOWN && !memcmp(v->v, v->v + 1, sizeof v->v - sizeof v->v[0]));
    if (!uniform || is_bool(n)) return vector_text(d, n, v);
    return v->kind == LANES_KNOWN ? literal(d->memory, n, v->v[0])
                                  : named(d, is_float(n) ? "float" : "int32_t", v->text, NULL);
}

/* The codes of a vector as values of the field's type. */
static lanes decoded_codes(decoder *d, const tile_node *n, const char *code) {
    const tile_scalar t = d->format->body->fields[n->index].type->scalar;
    if (t.kind == TILE_FLOAT)
        return vector(arena_printf(d->memory, "mt_vfloat(%s, %d, %d, %s)", code, t.exponent, t.mantissa,
                                   t.special == TILE_IEEE  ? "MT_IEEE"
                                   : t.special == TILE_NAN ? "MT_NAN"
                                                           : "MT_FINITE"));
    if (t.kind == TILE_INT)
        code = arena_printf(d->memory, "((%s ^ %d) - %d)", code, 1 << (t.bits - 1), 1 << (t.bits - 1));
    return vector(code);
}

/* A field at the indices start, start + step, ... of all lanes; the second half may begin elsewhere, at `half`. */
static lanes field_vector(decoder *d, const tile_node *n, int start, int half, int step) {
    arena *m = d->memory;
    const tile_field *f = &d->format->body->fields[n->index];
    const tile_scalar t = f->type->scalar;
    const int at = f->bit_offset + start * t.bits, shift = at % 8, stride = t.bits * step;
    const int at_half = f->bit_offset + half * t.bits, shift_half = at_half % 8;
    const bool straight = half == start + 8 * step;
    if (t.kind == TILE_BOOL || t.is_unsigned) return spelled_out(d, n);
    if (straight && step == 1 && t.bits >= 16 && shift == 0) {
        if (t.bits == 32)
            return vector(arena_printf(
                m, is_float(n) ? "mt_load((const float *)(p + %d) + l)" : "mt_load_i32(p + %d + 4 * l)", at / 8));
        const char *load = t.kind == TILE_INT ? "i16" : t.kind == TILE_UINT ? "u16" : t.exponent == 8 ? "bf16" : "f16";
        return vector(arena_printf(m, "mt_load_%s(p + %d + 2 * l)", load, at / 8));
    }
    if (stride == 8 && shift + t.bits <= 8 &&
        shift_half + t.bits <= 8) { /* one byte an element, one shift for all or for each half */
        if (straight && t.bits == 8 && t.kind == TILE_INT)
            return vector(arena_printf(m, "mt_load_i8(p + %d + l)", at / 8));
        const char *code = straight ? arena_printf(m, "mt_load_u8(p + %d + l)", at / 8)
                                    : arena_printf(m, "mt_load_halves(p + %d, p + %d, l)", at / 8, at_half / 8);
        if (shift != shift_half)
            code = arena_printf(m, "%s >> mt_halves(%d, %d, l)", code, shift, shift_half);
        else if (shift)
            code = arena_printf(m, "%s >> %d", code, shift);
        if (t.bits < 8 && !(shift == shift_half && shift + t.bits == 8))
            code = arena_printf(m, "(%s & %d)", code, (1 << t.bits) - 1);
        else if (shift || shift_half)
            code = arena_printf(m, "(%s)", code);
        return decoded_codes(d, n, code);
    }
    if (straight && step == 1 && t.bits < 8 && shift == 0)
        return decoded_codes(d, n, arena_printf(m, "mt_load_bits(p + %d, %d, l)", at / 8, t.bits));
    return spelled_out(d, n);
}

static lanes evaluate(decoder *d, const tile_node *n);

static lanes field(decoder *d, const tile_node *n) {
    const lanes index = evaluate(d, n->a);
    if (index.kind == LANES_SAME) return (lanes){.kind = LANES_SAME, .text = scalar_text(d, n, d->first)};
    if (index.kind == LANES_VECTOR) return spelled_out(d, n);
    const int start = index.v[0].i, half = index.v[LANES / 2].i, step = index.v[1].i - start;
    for (int l = 0; l < LANES; l++)
        if (index.v[l].i != (l < LANES / 2 ? start + l * step : half + (l - LANES / 2) * step))
            return spelled_out(d, n);
    if (step == 0 && start == half) return (lanes){.kind = LANES_SAME, .text = scalar_text(d, n, d->first)};
    return step > 0 ? field_vector(d, n, start, half, step) : spelled_out(d, n);
}

static lanes select_lanes(decoder *d, const tile_node *n) {
    const lanes c = evaluate(d, n->a);
    if (c.kind == LANES_KNOWN) {
        for (int l = 1; l < LANES; l++)
            if (!c.v[l].i != !c.v[0].i) return spelled_out(d, n); /* each lane may evaluate its own side only */
        return evaluate(d, c.v[0].i ? n->b : n->c);
    }
    const lanes a = evaluate(d, n->b), b = evaluate(d, n->c);
    if (c.kind == LANES_SAME && a.kind != LANES_VECTOR && b.kind != LANES_VECTOR) {
        const bool varies = (a.kind == LANES_KNOWN && memcmp(a.v, a.v + 1, sizeof a.v - sizeof a.v[0])) ||
                            (b.kind == LANES_KNOWN && memcmp(b.v, b.v + 1, sizeof b.v - sizeof b.v[0]));
        if (!varies) return (lanes){.kind = LANES_SAME, .text = scalar_text(d, n, d->first)};
    }
    return vector(arena_printf(d->memory, "mt_%sselect(%s, %s, %s)", is_float(n) ? "" : "i", vector_text(d, n->a, &c),
                               vector_text(d, n->b, &a), vector_text(d, n->c, &b)));
}

static bool power_of_two(const tile_node *n, const lanes *v, int *log) {
    if (n->kind != TILE_CONST || v->kind != LANES_KNOWN || n->value.i < 1 || n->value.i & (n->value.i - 1))
        return false;
    for (*log = 0; n->value.i >> *log > 1; ++*log) {}
    return true;
}

/* a op b where one of them is a vector; NULL: there is no such operation. */
static const char *vector_operation(decoder *d, const tile_node *n, const lanes *a, const lanes *b) {
    arena *m = d->memory;
    const char *symbol = tile_operator_text(n->op);
    int log;
    switch (n->op) {
    case TILE_NEG:
        return arena_printf(m, "(-%s)", a->text);
    case TILE_NOT:
        return arena_printf(m, "(~%s)", a->text);
    case TILE_SHL:
    case TILE_SHR:
    case TILE_BIT_AND:
    case TILE_BIT_OR:
    case TILE_BIT_XOR:
    case TILE_ADD:
    case TILE_SUB:
    case TILE_MUL:
        break;
    case TILE_DIV:
        if (is_float(n)) break;
        return power_of_two(n->b, b, &log) ? arena_printf(m, "(%s >> %d)", a->text, log) : NULL;
    case TILE_MOD:
        return power_of_two(n->b, b, &log) ? arena_printf(m, "(%s & %d)", a->text, (1 << log) - 1) : NULL;
    case TILE_AND:
        symbol = "&";
        break;
    case TILE_OR:
        symbol = "|";
        break;
    case TILE_EQ:
    case TILE_NE:
    case TILE_LT:
    case TILE_LE:
    case TILE_GT:
    case TILE_GE:
        return arena_printf(m, "(mt_ivec)(%s %s %s)", operand_text(d, n->a, a), symbol, operand_text(d, n->b, b));
    default:
        return NULL;
    }
    return arena_printf(m, "(%s %s %s)", operand_text(d, n->a, a), symbol, operand_text(d, n->b, b));
}

static lanes operate(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    const tile_node *product =
        n->op == TILE_ADD || n->op == TILE_SUB ? (is_exact_product(d, n->a) ? n->a : NULL) : NULL;
    const lanes a = evaluate(d, n->a), b = n->b ? evaluate(d, n->b) : a;
    if (a.kind != LANES_VECTOR && b.kind != LANES_VECTOR) {
        const bool varies = (a.kind == LANES_KNOWN && memcmp(a.v, a.v + 1, sizeof a.v - sizeof a.v[0])) ||
                            (n->b && b.kind == LANES_KNOWN && memcmp(b.v, b.v + 1, sizeof b.v - sizeof b.v[0]));
        if (!varies) return (lanes){.kind = LANES_SAME, .text = scalar_text(d, n, d->first)};
        if (a.kind == LANES_KNOWN && b.kind == LANES_KNOWN) return spelled_out(d, n);
    }
    if (product && n->b) { /* x * y + z, or x * y - z, with an exact product: one rounding either way */
        const lanes x = evaluate(d, product->a), y = evaluate(d, product->b);
        const char *z = vector_text(d, n->b, &b);
        return vector(arena_printf(m, n->op == TILE_ADD ? "mt_vfma(%s, %s, %s)" : "mt_vfma(%s, %s, -%s)",
                                   vector_text(d, product->a, &x), vector_text(d, product->b, &y), z));
    }
    const char *out = vector_operation(d, n, &a, &b);
    return out ? vector(out) : spelled_out(d, n);
}

static lanes evaluate(decoder *d, const tile_node *n) {
    if (!has_field(n)) {
        lanes v = {.kind = LANES_KNOWN};
        for (int l = 0; l < LANES; l++) v.v[l] = known_value(n, d->first + l);
        return v;
    }
    switch (n->kind) {
    case TILE_FIELD:
        return field(d, n);
    case TILE_SELECT:
        return select_lanes(d, n);
    case TILE_CAST: {
        const lanes v = evaluate(d, n->a);
        if (v.kind != LANES_VECTOR) return (lanes){.kind = LANES_SAME, .text = scalar_text(d, n, d->first)};
        if (is_float(n) == is_float(n->a)) return v;
        return is_float(n) && !is_bool(n->a) ? vector(arena_printf(d->memory, "mt_to_float(%s)", v.text))
                                             : spelled_out(d, n);
    }
    default:
        return operate(d, n);
    }
}

/* ---- functions ---- */

static void decode_block(emit_unit *u, const tile_format *f, const char *name) {
    decoder d = {.memory = u->memory, .format = f, .out = u->codecs};
    text_printf(u->codecs, "MT_INLINE void mt_decode_%s(const uint8_t *restrict p, float *restrict out) {\n", name);
    const tile_node *value = f->body->value;
    for (; d.first + LANES <= f->block; d.first += LANES) {
        const lanes v = evaluate(&d, value);
        const char *expression = vector_text(&d, value, &v);
        text_printf(u->codecs, "    for (int l = 0; l < 16; l += MT_LANES) mt_store(out + %d + l, %s);\n", d.first,
                    emit_bare(u->memory, expression));
    }
    for (; d.first < f->block; d.first++) {
        const char *expression = scalar_text(&d, value, d.first);
        text_printf(u->codecs, "    out[%d] = %s;\n", d.first, expression);
    }
    text_string(u->codecs, "}\n");
}

static void block_codec(emit_unit *u, const tile_format *f, const char *name) {
    const int block = f->block, bytes = f->bits / 8;
    text *out = u->codecs;
    text_printf(out, "\n/* %s */\n", f->body->text);
    decode_block(u, f, name);
    text_printf(out,
                "static void mt_span_%s(const uint8_t *data, int64_t first, int64_t from, int64_t to, int64_t low, "
                "int64_t high, float *out) {\n"
                "    float w[%d];\n"
                "    mt_span_blocks(mt_decode_%s, %d, %d, w, data, first, from, to, low, high, out);\n"
                "}\n",
                name, block, name, block, bytes);
    if (block % LANES == 0)
        text_printf(out,
                    "static void mt_four_%s(float sum[4], const float *a, const uint8_t *const row[4], int64_t low, "
                    "int64_t high) {\n"
                    "    mt_vec lanes[4] = {{0}};\n"
                    "    for (int64_t k = low; k < high; k += %d) {\n"
                    "        float w[4][%d];\n"
                    "        for (int r = 0; r < 4; r++) mt_decode_%s(row[r] + k / %d * %d, w[r]);\n"
                    "        for (int l = 0; l < %d; l += MT_LANES) {\n"
                    "            const mt_vec x = mt_load(a + k + l);\n"
                    "            for (int r = 0; r < 4; r++) lanes[r] = mt_vfma(x, mt_load(w[r] + l), lanes[r]);\n"
                    "        }\n"
                    "    }\n"
                    "    mt_fold4(lanes, sum);\n"
                    "}\n",
                    name, block, block, name, block, bytes, block);
    text_printf(out, "static const mt_codec mt_codec_%s = {mt_span_%s, %s%s, %d, %d};\n", name, name,
                block % LANES ? "0" : "mt_four_", block % LANES ? "" : name, block, bytes);
}

static void scalar_codec(emit_unit *u, const tile_format *f, const char *name) {
    const tile_scalar t = f->scalar;
    const int bytes = t.bits / 8;
    text *out = u->codecs;
    const char *load = NULL;
    if (t.kind == TILE_FLOAT && t.bits == 8 && !t.is_unsigned)
        load = arena_printf(u->memory, "mt_vfloat(mt_load_u8(p + l), %d, %d, %s)", t.exponent, t.mantissa,
                            t.special == TILE_IEEE  ? "MT_IEEE"
                            : t.special == TILE_NAN ? "MT_NAN"
                                                    : "MT_FINITE");
    else if (t.kind == TILE_FLOAT && t.bits <= 32 && t.bits >= 16)
        load = t.bits == 32      ? "mt_load((const float *)p + l)"
               : t.exponent == 8 ? "mt_load_bf16(p + 2 * l)"
                                 : "mt_load_f16(p + 2 * l)";
    else if (t.bits == 8 && t.kind != TILE_FLOAT)
        load = t.kind == TILE_INT ? "mt_to_float(mt_load_i8(p + l))" : "mt_to_float(mt_load_u8(p + l))";
    text_printf(out, "\nMT_INLINE void mt_decode_%s(const uint8_t *restrict p, float *restrict out) {\n", name);
    if (load)
        text_printf(out, "    for (int l = 0; l < MT_CHUNK; l += MT_LANES) mt_store(out + l, %s);\n", load);
    else {
        const char *type = t.is_unsigned ? "uint8_t" : emit_c_type(f);
        text_printf(out, "    %s v[MT_CHUNK];\n    __builtin_memcpy(v, p, sizeof v);\n", type);
        text_printf(out, "    for (int l = 0; l < MT_CHUNK; l++) out[l] = %s;\n",
                    emit_cast(u->memory, "v[l]", f, tile_format_scalar("f32", 3)));
    }
    text_printf(out,
                "}\n"
                "static void mt_span_%s(const uint8_t *data, int64_t first, int64_t from, int64_t to, int64_t low, "
                "int64_t high, float *out) {\n"
                "    mt_span_elements(mt_decode_%s, %d, data, first, from, to, low, high, out);\n"
                "}\n"
                "static void mt_four_%s(float sum[4], const float *a, const uint8_t *const row[4], int64_t low, "
                "int64_t high) {\n"
                "    mt_vec lanes[4] = {{0}};\n"
                "    mt_four_elements(mt_decode_%s, %d, lanes, a, row, low, high);\n"
                "    mt_fold4(lanes, sum);\n"
                "}\n"
                "static const mt_codec mt_codec_%s = {mt_span_%s, mt_four_%s, 1, %d};\n",
                name, name, bytes, name, name, bytes, name, name, name, bytes);
}

/* The codec of `of` with its values rounded to a smaller float. */
static void rounded_codec(emit_unit *u, const emit_codec *of, const char *name, const tile_format *rounded) {
    const tile_format *f32 = tile_format_scalar("f32", 3);
    const char *value = emit_cast(u->memory, emit_cast(u->memory, "out[i]", f32, rounded), rounded, f32);
    text_printf(u->codecs,
                "\nstatic void mt_span_%s(const uint8_t *data, int64_t first, int64_t from, int64_t to, int64_t low,\n"
                "                     int64_t high, float *out) {\n"
                "    %s.span(data, first, from, to, low, high, out);\n"
                "    for (int64_t i = 0; i < to - from; i++) out[i] = %s;\n"
                "}\n"
                "static const mt_codec mt_codec_%s = {mt_span_%s, 0, %d, %d};\n",
                name, of->name, value, name, name, of->format->block, of->format->bits / 8);
}

static emit_codec *add_codec(emit_unit *u, const tile_format *f, const tile_format *rounded) {
    emit_codec **at = &u->list;
    int namesakes = 0;
    for (; *at; at = &(*at)->next) {
        const tile_format *other = (*at)->format;
        if (strcmp(other->name, f->name) || (*at)->rounded != rounded) continue;
        if (!f->body == !other->body && (!f->body || !strcmp(f->body->text, other->body->text))) return *at;
        namesakes++;
    }
    const emit_codec *of = rounded ? add_codec(u, f, NULL) : NULL;
    while (*at) at = &(*at)->next;
    const char *name =
        rounded ? arena_printf(u->memory, "%s_as_%s", of->name + strlen("mt_codec_"), rounded->name) : f->name;
    if (namesakes) name = arena_printf(u->memory, "%s__%d", name, namesakes);
    emit_codec *c = *at = ARENA_NEW(u->memory, emit_codec);
    *c = (emit_codec){f, rounded, arena_printf(u->memory, "mt_codec_%s", name), NULL};
    if (rounded)
        rounded_codec(u, of, name, rounded);
    else if (tile_format_is_block(f))
        block_codec(u, f, name);
    else
        scalar_codec(u, f, name);
    return c;
}

const char *emit_codec_of(emit *e, const tile_format *f, const tile_format *rounded) {
    return add_codec(e->unit, f, rounded)->name;
}
