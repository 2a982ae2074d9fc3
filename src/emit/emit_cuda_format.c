/* Decoders of block formats for CUDA, from their declarations: one element at a time; and, for a product's operand, the
 * 8 elements that a lane of the tensor cores takes of 32 (cuda_dot.h), as pairs of the product's type: with q, the
 * lane's place in its row, 4 from 4q on and 4 from 16 + 4q on.
 *
 * Of those, q and the slice (which 32 of the block) are run-time values. The index of every field is computed here for
 * all of them; where it turns out to be a sum of multiples of q and of the slice's bits, it is printed so. Four
 * neighbours whose bits follow each other in equal steps come from one word, and are spread over its bytes: small
 * integers that are made of such codes by bits' operations are computed four at once, and a byte becomes a float by
 * being put where a larger float's last bits are. All other fields are read one by one.
 *
 * Each operation is rounded as the declaration says: a product that is not exact is kept apart from sums. But where all
 * that the last operation takes (a sum, a product, or the sum of an exact product and a third) is exact in a product's
 * f16, it is done in f16, two elements at once: rounded once, where f32 would be rounded again. */
#include "emit/emit_cuda_internal.h"

#include <inttypes.h>
#include <math.h>

enum { QUARTERS = 4, FOUR = 4, SLICE = 32 };

typedef struct decoder {
    arena *memory;
    const tile_format *format;
    text *out;
    const tile_format *product; /* of pairs; NULL: one element, number `i` */
    int half, lane;             /* which four; which of them */
    int guarded;                /* within a condition: nothing may be computed in front */
    const char **names;         /* expression, name, ... */
    size_t name_count, name_capacity;
} decoder;

static bool is_float(const tile_node *n) { return n->type->scalar.kind == TILE_FLOAT; }
static bool is_bool(const tile_node *n) { return n->type->scalar.kind == TILE_BOOL; }
static int slices_of(const decoder *d) { return d->format->block / SLICE; }
static int element_of(const decoder *d, int lane, int q, int slice) {
    return slice * SLICE + d->half * 16 + q * FOUR + lane;
}

static const char *literal(arena *m, const tile_node *n, format_value v) {
    tile_node c = {.kind = TILE_CONST, .type = n->type, .value = {.i = v.i}};
    if (is_float(n)) c.value.f = v.f;
    return emit_literal(m, &c);
}

static const char *named(decoder *d, const char *type, const char *expression) {
    if (d->guarded || emit_is_name(expression)) return expression;
    for (size_t i = 0; i < d->name_count; i += 2)
        if (!strcmp(d->names[i], expression)) return d->names[i + 1];
    const char *name = arena_printf(d->memory, "%c%zu",
                                    *type == 'u'   ? 'w'
                                    : *type == 'f' ? 'f'
                                                   : 'n',
                                    d->name_count / 2);
    *ARENA_PUSH(d->memory, d->names, d->name_count, d->name_capacity) = expression;
    *ARENA_PUSH(d->memory, d->names, d->name_count, d->name_capacity) = name;
    text_printf(d->out, "        const %s %s = %s;\n", type, name, emit_bare(d->memory, expression));
    return name;
}

/* ---- integers that depend on q and the slice ---- */

enum { Q_BITS = 2, SLICE_BITS = 5, ALL_BITS = Q_BITS + SLICE_BITS };

/* base + the sum of bit[i] over the bits that are set: first the bits of q, then those of the slice's number. */
typedef struct affine {
    int64_t base, bit[ALL_BITS];
} affine;

static int bits_of_slices(const decoder *d) {
    int bits = 0;
    while (1 << bits < slices_of(d)) bits++;
    return bits;
}

/* scale * (the node's value at this lane) + shift as such a sum; false when it is none. */
static bool affine_of(const decoder *d, const tile_node *n, int lane, int64_t scale, int64_t shift, affine *out) {
    *out = (affine){.base = scale * emit_known_value(n, element_of(d, lane, 0, 0)).i + shift};
    for (int b = 0; b < Q_BITS; b++)
        out->bit[b] = scale * emit_known_value(n, element_of(d, lane, 1 << b, 0)).i + shift - out->base;
    for (int b = 0; b < bits_of_slices(d); b++)
        out->bit[Q_BITS + b] = scale * emit_known_value(n, element_of(d, lane, 0, 1 << b)).i + shift - out->base;
    for (int s = 0; s < slices_of(d); s++)
        for (int q = 0; q < QUARTERS; q++) {
            int64_t want = out->base;
            for (int b = 0; b < ALL_BITS; b++) want += ((s << Q_BITS | q) >> b & 1) * out->bit[b];
            if (want != scale * emit_known_value(n, element_of(d, lane, q, s)).i + shift) return false;
        }
    return true;
}

static int64_t divisor_of(const affine *a, int64_t n) { /* the largest of n, n/2, ... that divides all */
    for (; n > 1; n /= 2) {
        bool all = a->base % n == 0;
        for (int b = 0; b < ALL_BITS; b++) all &= a->bit[b] % n == 0;
        if (all) break;
    }
    return n;
}

static const char *add_term(const decoder *d, const char *sum, const char *name, int64_t factor) {
    const char *term = factor == 1 ? name : arena_printf(d->memory, "%s * %" PRId64, name, factor);
    return sum ? arena_printf(d->memory, "%s + %s", sum, term) : term;
}

/* The terms of the bits [first, first + count) of a variable: of the variable as a whole where that is the same. */
static const char *add_terms(const decoder *d, const char *sum, const char *name, const int64_t *bit, int count) {
    bool whole = count > 0 && bit[0];
    for (int b = 1; b < count; b++) whole &= bit[b] == bit[0] * ((int64_t)1 << b);
    if (whole) return add_term(d, sum, name, bit[0]);
    for (int b = 0; b < count; b++)
        if (bit[b])
            sum = add_term(d, sum,
                           b ? arena_printf(d->memory, "(%s >> %d & 1)", name, b)
                             : arena_printf(d->memory, "(%s & 1)", name),
                           bit[b]);
    return sum;
}

static const char *affine_text(const decoder *d, const affine *a) {
    const char *sum = a->base ? arena_printf(d->memory, "%" PRId64, a->base) : NULL;
    sum = add_terms(d, sum, "q", a->bit, Q_BITS);
    sum = add_terms(d, sum, "slice", a->bit + Q_BITS, bits_of_slices(d));
    return sum ? sum : "0";
}

/* The node has the same value for all four lanes. */
static bool is_uniform(const decoder *d, const tile_node *n) {
    if (!n) return true;
    if (!emit_has_field(n)) {
        for (int s = 0; s < slices_of(d); s++)
            for (int q = 0; q < QUARTERS; q++)
                for (int l = 1; l < FOUR; l++) {
                    const format_value a = emit_known_value(n, element_of(d, 0, q, s)),
                                       b = emit_known_value(n, element_of(d, l, q, s));
                    if (is_float(n) ? a.f != b.f : a.i != b.i) return false;
                }
        return true;
    }
    return is_uniform(d, n->a) && is_uniform(d, n->b) && is_uniform(d, n->c);
}

/* ---- expressions ---- */

static const char *expression(decoder *d, const tile_node *n);

/* The number that a field's code stands for. */
static const char *decoded(const decoder *d, const tile_field *f, const char *code) {
    arena *m = d->memory;
    const tile_scalar t = f->type->scalar;
    if (t.kind == TILE_BOOL) return arena_printf(m, "(%s != 0)", code);
    if (t.kind == TILE_INT && t.bits < 32) return arena_printf(m, "mt_sign(%s, %d)", code, t.bits);
    if (t.kind != TILE_FLOAT) return arena_printf(m, "(int32_t)%s", code);
    return t.bits == 32 ? arena_printf(m, "mt_float(%s)", code)
                        : emit_cast(m, code, f->type, tile_format_scalar("f32", 3));
}

/* One code. `bit` is where it begins; or, when whole bytes lie in front of it, `byte`. `align`: bits that divide the
 * place. */
static const char *code_at(const decoder *d, const char *bit, const char *byte, int64_t align, int bits) {
    const int bytes = d->format->bits / 8, both = (int)(bytes % 4 == 0 && align % 32 == 0   ? 4
                                                        : bytes % 2 == 0 && align % 16 == 0 ? 2
                                                                                            : 1);
    if (align % 8 || (bits != 8 && bits != 16 && bits != 32))
        return arena_printf(d->memory, "mt_get_code(p, %s, %d)", bit, bits);
    return bits == 8 ? arena_printf(d->memory, "p[%s]", byte)
                     : arena_printf(d->memory, "mt_get%d(p + %s, %d)", bits, byte, both);
}

static const char *code_at_affine(const decoder *d, const affine *at, int bits) {
    affine byte = {.base = at->base / 8};
    for (int b = 0; b < ALL_BITS; b++) byte.bit[b] = at->bit[b] / 8;
    return code_at(d, affine_text(d, at), affine_text(d, &byte), divisor_of(at, 32), bits);
}

/* Four neighbours' word: the address takes the whole bytes of the first one's place, a shift the rest; what is left is
 * *first bits above the word's end, and *step bits from one to the next. NULL: there is no such word. */
static const char *word_of(decoder *d, const tile_node *n, int *first, int *step) {
    arena *m = d->memory;
    const tile_field *f = &d->format->body->fields[n->index];
    const int bits = f->type->scalar.bits, bytes = d->format->bits / 8;
    affine at[FOUR], byte = {.base = 0}, rest = {.base = 0};
    for (int l = 0; l < FOUR; l++)
        if (!affine_of(d, n->a, l, bits, f->bit_offset, &at[l])) return NULL;
    const int64_t apart = at[1].base - at[0].base;
    if (apart <= 0 || bits > 8 || at[0].base < 0) return NULL;
    for (int l = 0; l < FOUR; l++)
        if (at[l].base != at[0].base + l * apart || memcmp(at[l].bit, at[0].bit, sizeof at[0].bit)) return NULL;
    int64_t span = at[0].base % 8, furthest = at[0].base / 8;
    byte.base = at[0].base / 8;
    rest.base = at[0].base % 8;
    for (int b = 0; b < ALL_BITS; b++) {
        if (at[0].bit[b] < 0) return NULL;
        byte.bit[b] = at[0].bit[b] / 8;
        rest.bit[b] = at[0].bit[b] % 8;
        furthest += byte.bit[b];
        span += rest.bit[b];
    }
    span += 3 * apart + bits;
    const int64_t size = span <= 16 ? 2 : 4;
    if (span > 32 || furthest + size > bytes) return NULL;
    const int64_t align = divisor_of(&byte, bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1);
    const char *word =
        named(d, "uint32_t", arena_printf(m, "mt_get%d(p + %s, %d)", (int)size * 8, affine_text(d, &byte), (int)align));
    bool moves = false;
    for (int b = 0; b < ALL_BITS; b++) moves |= rest.bit[b] != 0;
    if (moves) word = named(d, "uint32_t", arena_printf(m, "(%s >> (%s))", word, affine_text(d, &rest)));
    *first = moves ? 0 : (int)rest.base;
    *step = (int)apart;
    return word;
}

/* The lane's code from such a word. */
static const char *from_word(decoder *d, const tile_node *n) {
    const int mask = (1 << d->format->body->fields[n->index].type->scalar.bits) - 1;
    int first, step;
    const char *word = word_of(d, n, &first, &step);
    if (!word) return NULL;
    first += d->lane * step;
    return first ? arena_printf(d->memory, "(%s >> %d & %d)", word, first, mask)
                 : arena_printf(d->memory, "(%s & %d)", word, mask);
}

static const char *field_code(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    const tile_field *f = &d->format->body->fields[n->index];
    const int bits = f->type->scalar.bits;
    if (!n->a || n->a->kind == TILE_CONST)
        return code_at_affine(d, &(affine){.base = f->bit_offset + (n->a ? n->a->value.i : 0) * bits}, bits);
    if (d->product && !emit_has_field(n->a)) {
        const char *code = is_uniform(d, n->a) ? NULL : from_word(d, n);
        affine at;
        if (code) return code;
        if (affine_of(d, n->a, d->lane, bits, f->bit_offset, &at)) return code_at_affine(d, &at, bits);
    }
    const char *index = expression(d, n->a);
    const int64_t align = divisor_of(&(affine){.base = f->bit_offset, .bit = {bits}}, 32);
    const char *byte = bits == 8 ? arena_printf(m, "%d + %s", f->bit_offset / 8, index)
                                 : arena_printf(m, "%d + %s * %d", f->bit_offset / 8, index, bits / 8);
    return code_at(d, arena_printf(m, "%d + %s * %d", f->bit_offset, index, bits), byte, align, bits);
}

static const char *field(decoder *d, const tile_node *n) {
    return decoded(d, &d->format->body->fields[n->index], field_code(d, n));
}

static const char *operate(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    emit e = {.memory = m}; /* for the operators; there are no ranges here */
    const char *a = expression(d, n->a), *b = n->b ? expression(d, n->b) : NULL;
    if (is_float(n) && n->op == TILE_MUL && !emit_is_exact_product(d->format, n))
        return arena_printf(m, "mt_mul_rounded(%s, %s)", a, b);
    if ((n->op == TILE_DIV || n->op == TILE_MOD) && !is_float(n) && n->b->kind == TILE_CONST && n->b->value.i > 0 &&
        !emit_has_field(n->a)) {
        bool negative = false; /* where nothing is, C divides like the language */
        for (int i = 0; i < d->format->block; i++) negative |= emit_known_value(n->a, i).i < 0;
        if (!negative) return arena_printf(m, "(%s %s %s)", a, n->op == TILE_DIV ? "/" : "%", b);
    }
    return emit_operate(&e, n, a, b);
}

/* ---- four bytes at once ---- */

/* Integers of the half's four lanes: a byte each, less the same for all. */
typedef struct four {
    const char *text; /* a word; NULL: they are none such */
    int bits;         /* of a byte at most */
    int64_t bias;
} four;

static four four_of(decoder *d, const tile_node *n);

static bool is_constant(const decoder *d, const tile_node *n, int64_t *value) {
    if (emit_has_field(n) || is_float(n)) return false;
    *value = emit_known_value(n, 0).i;
    for (int i = 1; i < d->format->block; i++)
        if (emit_known_value(n, i).i != *value) return false;
    return true;
}

static four four_codes(decoder *d, const tile_node *n) {
    const tile_field *f = &d->format->body->fields[n->index];
    const int bits = f->type->scalar.bits;
    int first, step;
    if (bits > 8 || !n->a || emit_has_field(n->a) || is_uniform(d, n->a)) return (four){NULL, 0, 0};
    const char *word = word_of(d, n, &first, &step);
    if (!word || (step != 8 && step > 4) || step < bits) return (four){NULL, 0, 0};
    if (first) word = arena_printf(d->memory, "%s >> %d", word, first);
    if (step != 8 || bits != 8) word = arena_printf(d->memory, "mt_four_codes(%s, %d, %d)", word, step, bits);
    return (four){named(d, "uint32_t", word), bits, 0};
}

static four four_operation(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    int64_t c = 0;
    if (!n->b) return (four){NULL, 0, 0};
    const bool constant = is_constant(d, n->b, &c);
    const four a = four_of(d, n->a);
    if (!a.text) return a;
    if (n->op == TILE_SUB || n->op == TILE_ADD) {
        const int64_t bias = n->op == TILE_SUB ? a.bias + c : a.bias - c;
        return constant && bias >= -512 && bias <= 512 ? (four){a.text, a.bits, bias} : (four){NULL, 0, 0};
    }
    if (a.bias) return (four){NULL, 0, 0};
    if (n->op == TILE_BIT_OR && !constant) {
        const four b = four_of(d, n->b);
        if (!b.text || b.bias) return (four){NULL, 0, 0};
        return (four){arena_printf(m, "(%s | %s)", a.text, b.text), a.bits > b.bits ? a.bits : b.bits, 0};
    }
    if (n->op == TILE_SHL && constant && c >= 0 && a.bits + c <= 8)
        return (four){arena_printf(m, "(%s << %d)", a.text, (int)c), a.bits + (int)c, 0};
    return (four){NULL, 0, 0};
}

static four four_of(decoder *d, const tile_node *n) {
    if (!d->product || d->guarded || n->type->scalar.kind == TILE_FLOAT || !emit_has_field(n))
        return (four){NULL, 0, 0};
    if (n->kind == TILE_ELEMENTWISE) return four_operation(d, n);
    if (n->kind != TILE_FIELD || is_bool(n)) return (four){NULL, 0, 0};
    four out = four_codes(d, n);
    if (out.text && d->format->body->fields[n->index].type->scalar.kind == TILE_INT) { /* two's complement */
        out.bias = (int64_t)1 << (out.bits - 1);
        out.text =
            named(d, "uint32_t", arena_printf(d->memory, "(%s ^ 0x%08" PRIx64 ")", out.text, out.bias * 0x01010101));
    }
    return out;
}

/* Codes of small floats without special ones: put at the end of an f16's exponent and the start of its significand they
 * are the number, subnormal or not, times a power of two. With at most 2 bits of significand that is the upper byte.
 * Text of four such bytes; *scale is what they are to be multiplied with. */
static const char *four_halves(decoder *d, const tile_node *n, double *scale) {
    arena *m = d->memory;
    if (!d->product || d->guarded || n->kind != TILE_FIELD || !is_float(n)) return NULL;
    const tile_scalar t = d->format->body->fields[n->index].type->scalar;
    if (t.bits > 8 || t.is_unsigned || t.mantissa > 2 || t.exponent > 5 || t.exponent < 1 ||
        t.bits != 1 + t.exponent + t.mantissa ||
        (t.special != TILE_FINITE && !(t.special == TILE_IEEE && t.exponent == 5)))
        return NULL;
    const four codes = four_codes(d, n);
    if (!codes.text) return NULL;
    const int rest = t.bits - 1, up = 2 - t.mantissa;
    *scale = 1;
    for (int i = (1 << (t.exponent - 1)) - 1; i < 15; i++) *scale *= 2;
    if (t.bits == 8 && !up) return codes.text;
    return named(d, "uint32_t",
                 arena_printf(m, "((%s & 0x%08xu) << %d | (%s & 0x%08xu) << %d)", codes.text, 0x01010101u << rest,
                              7 - rest, codes.text, 0x01010101u * ((1u << rest) - 1), up));
}

/* An integer as a float; NULL: by a conversion. */
static const char *float_of(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    enum { EXACT = 24 };
    const four a = four_of(d, n);
    if (a.text) return arena_printf(m, "mt_f32_from_byte(%s, %d, %" PRId64 ".0f)", a.text, d->lane, a.bias);
    if (n->kind != TILE_ELEMENTWISE || (n->op != TILE_ADD && n->op != TILE_SUB) || !is_uniform(d, n->b) ||
        emit_integer_bits(d->format, n) > EXACT)
        return NULL;
    const char *from = float_of(d, n->a);
    if (!from) return NULL;
    const char *by = named(d, "float", emit_cast(m, expression(d, n->b), n->b->type, tile_format_scalar("f32", 3)));
    return arena_printf(m, "(%s %c %s)", from, n->op == TILE_ADD ? '+' : '-', by);
}

/* A few bits become a float by an addition, which the chip does eight times as fast as a conversion. */
static const char *converted(decoder *d, const tile_node *n) {
    enum { FEW = 20 };
    if (is_float(n) && !is_float(n->a) && !is_bool(n->a) && d->product && !d->guarded && !is_uniform(d, n->a)) {
        const char *exact = float_of(d, n->a);
        if (exact) return exact;
    }
    const char *value = expression(d, n->a);
    if (is_float(n) == is_float(n->a)) return value;
    const bool byte = n->a->kind == TILE_FIELD && d->format->body->fields[n->a->index].type->bits == 8;
    const bool few = d->product && is_float(n) && !is_bool(n->a) && !byte && emit_integer_bits(d->format, n->a) <= FEW;
    return few ? arena_printf(d->memory, "mt_f32_from_few(%s)", emit_bare(d->memory, value))
               : emit_cast(d->memory, value, n->a->type, n->type);
}

static const char *number(decoder *d, const tile_node *n) { /* without fields */
    if (d->product) {
        affine at;
        bool same = true;
        const format_value first = emit_known_value(n, element_of(d, d->lane, 0, 0));
        for (int s = 0; s < slices_of(d); s++)
            for (int q = 0; q < QUARTERS; q++) {
                const format_value v = emit_known_value(n, element_of(d, d->lane, q, s));
                same &= is_float(n) ? v.f == first.f : v.i == first.i;
            }
        if (same) return literal(d->memory, n, first);
        if (!is_float(n) && !is_bool(n) && affine_of(d, n, d->lane, 1, 0, &at))
            return arena_printf(d->memory, "(%s)", affine_text(d, &at));
    }
    switch (n->kind) {
    case TILE_CONST:
        return literal(d->memory, n, emit_known_value(n, 0));
    case TILE_FORMAT_INDEX:
        return !d->product ? "i" : arena_printf(d->memory, "(slice * 32 + %d + q * 4)", d->half * 16 + d->lane);
    default:
        return NULL;
    }
}

static const char *expression(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    if (!emit_has_field(n)) {
        const char *known = number(d, n);
        if (known) return known;
    }
    const char *out;
    switch (n->kind) {
    case TILE_FIELD: {
        double scale;
        const char *halves = is_uniform(d, n) ? NULL : four_halves(d, n, &scale);
        out = halves ? arena_printf(m, "(mt_f32_from_f16(mt_high_bytes(%s, %d) >> %d) * %.1ff)", halves, d->lane / 2,
                                    d->lane % 2 * 16, scale)
                     : field(d, n);
        break;
    }
    case TILE_CAST:
        out = converted(d, n);
        break;
    case TILE_SELECT: {
        const char *c = expression(d, n->a);
        if (!emit_has_field(n->a) && (!strcmp(c, "0") || !strcmp(c, "1")))
            return expression(d, *c == '1' ? n->b : n->c);
        d->guarded++; /* only the side that is chosen may be computed */
        out = arena_printf(m, "(%s ? %s : %s)", c, expression(d, n->b), expression(d, n->c));
        d->guarded--;
        break;
    }
    default:
        out = operate(d, n);
        break;
    }
    if (d->product && emit_has_field(n) && is_uniform(d, n))
        return named(d, is_float(n) ? "float" : is_bool(n) ? "bool" : "int32_t", out);
    return out;
}

/* ---- pairs of f16 ---- */

typedef struct pairs {
    const char *text[2]; /* lanes 0 and 1, 2 and 3; NULL: there are none */
} pairs;

static bool fits_f16(tile_scalar t) {
    return t.kind == TILE_FLOAT && !t.is_unsigned && t.exponent <= 5 && t.mantissa <= 10;
}

static bool is_f16(tile_scalar t) { return t.kind == TILE_FLOAT && t.exponent == 5 && t.mantissa == 10; }
static pairs twice(const char *pair) { return (pairs){{pair, pair}}; }

/* The whole word that an f16 field is half of, where a block has such words: a neighbour may need it, too. NULL: there
 * is none. */
static const char *word_of_half(decoder *d, const tile_node *n, int *half) {
    const tile_field *f = &d->format->body->fields[n->index];
    affine at = {.base = f->bit_offset}, word = {.base = 0};
    bool whole = d->format->bits % 32 == 0;
    if (n->a && (emit_has_field(n->a) || !affine_of(d, n->a, d->lane, 16, f->bit_offset, &at))) whole = false;
    for (int b = 0; b < ALL_BITS; b++) {
        whole &= at.bit[b] % 32 == 0;
        word.bit[b] = at.bit[b] / 8;
    }
    if (!whole || at.base % 16) return NULL;
    word.base = at.base / 32 * 4;
    *half = (int)(at.base / 16 % 2);
    return named(d, "uint32_t", arena_printf(d->memory, "mt_get32(p + %s, 4)", affine_text(d, &word)));
}

/* An f16 field's code, twice. */
static const char *half_twice(decoder *d, const tile_node *n) {
    int half;
    const char *word = word_of_half(d, n, &half);
    return word ? arena_printf(d->memory, "mt_twice(%s, %d)", word, half)
                : arena_printf(d->memory, "mt_twice(%s, 0)", field_code(d, n));
}

/* One number for all lanes. */
static pairs uniform_pairs(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    const tile_node *from = n->kind == TILE_CAST ? n->a : n;
    const bool field_fits =
        from->kind == TILE_FIELD && is_float(from) && fits_f16(d->format->body->fields[from->index].type->scalar);
    const bool integer_fits = !is_float(from) && !is_bool(from) && emit_integer_bits(d->format, from) <= 11;
    if (!field_fits && !integer_fits) return (pairs){{NULL}};
    if (from == n && is_f16(d->format->body->fields[n->index].type->scalar))
        return twice(named(d, "uint32_t", half_twice(d, n)));
    const char *value = expression(d, n);
    if (!is_float(n)) value = emit_cast(m, value, n->type, tile_format_scalar("f32", 3));
    value = emit_bare(m, value);
    return twice(named(d, "uint32_t", arena_printf(m, "mt_f16_pair(%s, %s)", value, value)));
}

static pairs integer_pairs(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    enum { EXACT = 11 };
    pairs out = {{NULL}};
    if (is_uniform(d, n)) return uniform_pairs(d, n);
    const four a = four_of(d, n);
    if (a.text)
        for (int i = 0; i < 2; i++)
            out.text[i] = arena_printf(m, "mt_f16_from_bytes(%s, %d, %" PRId64 ".0f)", a.text, i, a.bias);
    else if (n->kind == TILE_ELEMENTWISE && (n->op == TILE_ADD || n->op == TILE_SUB) &&
             emit_integer_bits(d->format, n) <= EXACT) {
        const pairs x = integer_pairs(d, n->a), y = x.text[0] ? integer_pairs(d, n->b) : x;
        for (int i = 0; i < 2 && y.text[0]; i++)
            out.text[i] = arena_printf(m, "mt_add_f16x2(%s, %s%s)", x.text[i], y.text[i],
                                       n->op == TILE_ADD ? "" : " ^ 0x80008000u");
    }
    return out;
}

/* Numbers that f16 holds exactly. */
static pairs exact_pairs(decoder *d, const tile_node *n) {
    double scale;
    pairs out = {{NULL}};
    if (n->kind == TILE_CAST && is_float(n) && !is_float(n->a) && !is_bool(n->a)) return integer_pairs(d, n->a);
    if (n->kind != TILE_FIELD || !is_float(n)) return out;
    if (is_uniform(d, n)) return uniform_pairs(d, n);
    const char *halves = four_halves(d, n, &scale);
    for (int i = 0; i < 2 && halves; i++) {
        out.text[i] = arena_printf(d->memory, "mt_high_bytes(%s, %d)", halves, i);
        if (scale != 1)
            out.text[i] =
                arena_printf(d->memory, "mt_mul_f16x2(%s, mt_f16_pair(%.1ff, %.1ff))", out.text[i], scale, scale);
    }
    return out;
}

/* The half's four values with one rounding. */
static pairs rounded_pairs(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    pairs out = exact_pairs(d, n);
    if (out.text[0] || n->kind != TILE_ELEMENTWISE || !is_float(n)) return out;
    const bool sum = n->op == TILE_ADD || n->op == TILE_SUB;
    if (!sum && n->op != TILE_MUL) return out;
    const tile_node *product = sum && emit_is_exact_product(d->format, n->a) ? n->a : NULL;
    const pairs b = exact_pairs(d, n->b), x = exact_pairs(d, product ? product->a : n->a),
                y = product ? exact_pairs(d, product->b) : b;
    if (!b.text[0] || !x.text[0] || !y.text[0]) return out;
    const char *minus = n->op == TILE_SUB ? " ^ 0x80008000u" : "";
    for (int i = 0; i < 2; i++)
        out.text[i] = product
                          ? arena_printf(m, "mt_fma_f16x2(%s, %s, %s%s)", x.text[i], y.text[i], b.text[i], minus)
                          : arena_printf(m, "mt_%s_f16x2(%s, %s%s)", sum ? "add" : "mul", x.text[i], b.text[i], minus);
    return out;
}

static pairs pairs_of(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    const bool f16 = d->product->scalar.exponent == 5;
    pairs out = f16 ? rounded_pairs(d, n) : (pairs){{NULL}};
    for (int i = 0; i < 2 && (i || !out.text[0]); i++) {
        const char *lane[2];
        for (int l = 0; l < 2; l++) {
            d->lane = 2 * i + l;
            lane[l] = emit_bare(m, expression(d, n));
        }
        out.text[i] = arena_printf(m, "mt_%s_pair(%s, %s)", f16 ? "f16" : "bf16", lane[0], lane[1]);
    }
    return out;
}

/* ---- codes and scales apart ----
 *
 * Where the elements of half a slice are scale * (code - bias) + offset, with the same numbers for all of them, a
 * product of few rows need not make the elements: it multiplies what the scale is a factor of, and what comes out. That
 * is an f16, a power of two apart from what it stands for: a small integer is put where a subnormal has its bits. The
 * bias is taken from it there, which is exact: were it taken from the sums, a weight of zero would leave what rounding
 * the sums left, next to an activation that is far larger than the others all there is. */

typedef struct apart {
    const char *codes[2];       /* pairs, less their bias; NULL: there are none */
    int power;                  /* 2^power times a pair's number is the code */
    const char *scale, *offset; /* f32; NULL: 1, 0 */
} apart;

/* The same for all elements of this half, whatever q is. */
static bool is_even(const decoder *d, const tile_node *n) {
    if (!n) return true;
    if (emit_has_field(n)) return is_even(d, n->a) && is_even(d, n->b) && is_even(d, n->c);
    for (int s = 0; s < slices_of(d); s++)
        for (int e = 1; e < QUARTERS * FOUR; e++) {
            const format_value a = emit_known_value(n, element_of(d, 0, 0, s)),
                               b = emit_known_value(n, element_of(d, e % FOUR, e / FOUR, s));
            if (is_float(n) ? a.f != b.f : a.i != b.i) return false;
        }
    return true;
}

static const char *even_float(decoder *d, const tile_node *n) {
    int half;
    const bool field = n->kind == TILE_FIELD && is_f16(d->format->body->fields[n->index].type->scalar);
    const char *word = field ? word_of_half(d, n, &half) : NULL;
    if (word) return named(d, "float", arena_printf(d->memory, "mt_f32_from_f16(%s >> %d & 0xffff)", word, half * 16));
    return named(d, "float", emit_cast(d->memory, expression(d, n), n->type, tile_format_scalar("f32", 3)));
}

/* Integer codes of at most 8 bits as subnormals; *bias: what each is too large by. */
static bool integer_codes(decoder *d, const tile_node *n, apart *out, int64_t *bias) {
    arena *m = d->memory;
    int first = 0, step = 8, bits = 8;
    const bool field = n->kind == TILE_FIELD && n->a && !emit_has_field(n->a);
    const tile_scalar t = field ? d->format->body->fields[n->index].type->scalar : (tile_scalar){.bits = 0};
    const char *word = t.bits && t.bits < 8 && !is_bool(n) && !is_uniform(d, n) ? word_of(d, n, &first, &step) : NULL;
    uint32_t flip = 0, mask = 0;
    if (word && step == 8 && first + t.bits <= 8) { /* straight from the bytes that have them */
        bits = t.bits;
        mask = (((1u << bits) - 1) << first) * 0x00010001u;
        if (t.kind == TILE_INT) flip = (1u << (first + bits - 1)) * 0x00010001u;
        *bias = flip ? 1 << (bits - 1) : 0;
    } else {
        const four f = four_of(d, n);
        if (!f.text) return false;
        word = named(d, "uint32_t", f.text);
        first = 0;
        *bias = f.bias;
    }
    for (int i = 0; i < 2; i++) {
        out->codes[i] = arena_printf(m, "mt_bytes(%s, 0, %s)", word, i ? "0x4342u" : "0x4140u");
        if (mask) out->codes[i] = arena_printf(m, "(%s & 0x%08xu)", named(d, "uint32_t", out->codes[i]), mask);
        if (flip) out->codes[i] = arena_printf(m, "(%s ^ 0x%08xu)", out->codes[i], flip);
    }
    out->power = 24 - first;
    return true;
}

/* What f16 holds exactly, 2^-power times an integer of a few bits, less the bias. */
static void take_bias(decoder *d, apart *out, const char *bias) {
    arena *m = d->memory;
    const char *less = arena_printf(m, "%s * %af", bias, ldexp(-1, -out->power));
    less = named(d, "uint32_t", arena_printf(m, "mt_f16_pair(%s, %s)", less, less));
    for (int i = 0; i < 2; i++) out->codes[i] = arena_printf(m, "mt_add_f16x2(%s, %s)", out->codes[i], less);
}

static bool codes_apart(decoder *d, const tile_node *n, apart *out) {
    enum { EXACT = 11 };
    double scale;
    if (n->kind == TILE_CAST && is_float(n) && !is_float(n->a) && !is_bool(n->a)) {
        const tile_node *x = n->a;
        int64_t bias;
        if (integer_codes(d, x, out, &bias)) {
            if (bias) take_bias(d, out, arena_printf(d->memory, "%" PRId64 ".0f", bias));
            return emit_integer_bits(d->format, x) <= EXACT;
        }
        if (x->kind != TILE_ELEMENTWISE || x->op != TILE_SUB || !is_even(d, x->b) ||
            emit_integer_bits(d->format, x) > EXACT || emit_integer_bits(d->format, x->b) > EXACT ||
            !integer_codes(d, x->a, out, &bias) || bias)
            return false;
        take_bias(d, out, even_float(d, x->b));
        return true;
    }
    const char *halves = n->kind == TILE_FIELD && !is_uniform(d, n) ? four_halves(d, n, &scale) : NULL;
    for (int i = 0; i < 2 && halves; i++) out->codes[i] = arena_printf(d->memory, "mt_high_bytes(%s, %d)", halves, i);
    for (out->power = 0; halves && scale > 1; scale /= 2) out->power++;
    return halves != NULL;
}

static apart apart_of(decoder *d, const tile_node *n) {
    apart out = {{NULL}, 0, NULL, NULL};
    const tile_node *offset = NULL;
    bool minus = false;
    if (d->product->scalar.exponent != 5) return out;
    if (n->kind == TILE_ELEMENTWISE && is_float(n) && (n->op == TILE_ADD || n->op == TILE_SUB) && is_even(d, n->b)) {
        minus = n->op == TILE_SUB;
        offset = n->b;
        n = n->a;
    }
    const bool scaled = n->kind == TILE_ELEMENTWISE && is_float(n) && n->op == TILE_MUL;
    const tile_node *code = !scaled ? n : is_even(d, n->a) ? n->b : n->a, *scale = code == n->b ? n->a : n->b;
    if ((scaled && !is_even(d, scale)) || !codes_apart(d, code, &out)) return (apart){{NULL}, 0, NULL, NULL};
    d->lane = 0;
    if (scaled) out.scale = even_float(d, scale);
    if (offset) out.offset = even_float(d, offset);
    if (minus) out.offset = arena_printf(d->memory, "-%s", out.offset);
    return out;
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static void write_apart(text *out, decoder *d) {
    apart half[2];
    text *const unit = d->out;
    text body = {0};
    d->out = &body;
    d->name_count = 0;
    for (d->half = 0; d->half < 2; d->half++) half[d->half] = apart_of(d, d->format->body->value);
    d->out = unit;
    const bool both = half[0].codes[0] && half[1].codes[0];
    if (both) {
        const bool same = same_text(half[0].scale, half[1].scale) && same_text(half[0].offset, half[1].offset);
        text_printf(out, "    enum { APART = 1, SAME = %d, OFFSET = %d, POWER = %d, HIGHER = %d };\n", same,
                    half[0].offset || half[1].offset, half[0].power, half[1].power - half[0].power);
        text_string(out, "    static __device__ __forceinline__ void apart(uint32_t (&w)[4], float (&scale)[2], float "
                         "(&offset)[2], const uint8_t *p, int slice, int q) {\n");
        text_append(out, body.data, body.length);
        for (int h = 0; h < 2; h++) {
            for (int i = 0; i < 2; i++) text_printf(out, "        w[%d] = %s;\n", h * 2 + i, half[h].codes[i]);
            text_printf(out, "        scale[%d] = %s, offset[%d] = %s;\n", h, half[h].scale ? half[h].scale : "1.0f", h,
                        half[h].offset ? half[h].offset : "0.0f");
        }
        text_string(out, "    }\n");
    } else
        text_string(out, "    enum { APART = 0 };\n");
    text_free(&body);
}

/* ---- the struct ---- */

static void write_format(cuda_unit_text *u, const cuda_format *c) {
    text *out = u->formats;
    const tile_format *f = c->format;
    decoder d = {.memory = u->memory, .format = f, .out = out, .product = c->product, .guarded = !c->product};
    text_printf(out, "\n/* %s */\nstruct %s {\n    enum { BLOCK = %d, BYTES = %d", f->body->text, c->name, f->block,
                f->bits / 8);
    if (!c->product) {
        text_printf(out, " };\n    static __device__ float value(const uint8_t *p, int i) { return %s; }\n};\n",
                    emit_bare(u->memory, expression(&d, f->body->value)));
        return;
    }
    text_printf(out, ", PRODUCT = %s };\n", c->product->scalar.exponent == 8 ? "MT_BF16" : "MT_F16");
    text_string(out,
                "    static __device__ __forceinline__ void slice(uint32_t (&w)[4], const uint8_t *p, int slice, int "
                "q) {\n");
    for (d.half = 0; d.half < 2; d.half++) {
        const pairs w = pairs_of(&d, f->body->value);
        for (int i = 0; i < 2; i++) text_printf(out, "        w[%d] = %s;\n", d.half * 2 + i, w.text[i]);
    }
    text_string(out, "    }\n");
    write_apart(out, &d);
    text_string(out, "};\n");
}

const char *cuda_format_of(cuda_unit_text *u, const tile_format *f, const tile_format *product) {
    cuda_format **at = &u->list;
    int namesakes = 0;
    for (; *at; at = &(*at)->next) {
        if (strcmp((*at)->format->name, f->name) || (*at)->product != product) continue;
        if (!strcmp((*at)->format->body->text, f->body->text)) return (*at)->name;
        namesakes++;
    }
    const char *name = product ? arena_printf(u->memory, "mt_format_%s_as_%s", f->name, product->name)
                               : arena_printf(u->memory, "mt_format_%s", f->name);
    if (namesakes) name = arena_printf(u->memory, "%s_%d", name, namesakes);
    *at = ARENA_NEW(u->memory, cuda_format);
    **at = (cuda_format){f, product, name, NULL};
    write_format(u, *at);
    return name;
}
