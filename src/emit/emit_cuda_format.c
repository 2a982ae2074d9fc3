/* Decoders of block formats for CUDA, from their declarations: one element at a time, and the 8 elements that a lane of
 * the tensor cores' operand takes of 32 (cuda_dot.h): with q, the lane's place in its row, 4 from 4q on and 4 from 16 +
 * 4q on.
 *
 * Of those, q and the slice (which 32 of the block) are run-time values. The index of every field is computed here for
 * all of them; where it turns out to be a sum of multiples of q and of the slice's bits, it is printed so. Four
 * neighbours whose bits follow each other in equal steps come from one word. All other fields are read one by one. Each
 * operation is rounded as the declaration says: a product that is not exact is kept apart from sums. */
#include "emit/emit_cuda_internal.h"

#include <inttypes.h>

enum { QUARTERS = 4, FOUR = 4, SLICE = 32 };

typedef struct decoder {
    arena *memory;
    const tile_format *format;
    text *out;
    bool whole;         /* one element, number `i`; else four of a slice */
    int half, lane;     /* which four; which of them */
    int guarded;        /* within a condition: nothing may be computed in front */
    const char **names; /* expression, name, ... */
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

/* Four neighbours' word: the lane's code, or NULL when there is no such word. Its address takes the whole bytes of the
 * place, a shift the rest. */
static const char *from_word(decoder *d, const tile_node *n, const tile_field *f) {
    arena *m = d->memory;
    const int bits = f->type->scalar.bits, bytes = d->format->bits / 8;
    affine at[FOUR], byte = {.base = 0}, rest = {.base = 0};
    for (int l = 0; l < FOUR; l++)
        if (!affine_of(d, n->a, l, bits, f->bit_offset, &at[l])) return NULL;
    const int64_t step = at[1].base - at[0].base;
    if (step <= 0 || bits > 8 || at[0].base < 0) return NULL;
    for (int l = 0; l < FOUR; l++)
        if (at[l].base != at[0].base + l * step || memcmp(at[l].bit, at[0].bit, sizeof at[0].bit)) return NULL;
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
    span += 3 * step + bits;
    const int64_t size = span <= 16 ? 2 : 4;
    if (span > 32 || furthest + size > bytes) return NULL;
    const int64_t align = divisor_of(&byte, bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1);
    const char *word =
        named(d, "uint32_t", arena_printf(m, "mt_get%d(p + %s, %d)", (int)size * 8, affine_text(d, &byte), (int)align));
    int64_t by = rest.base;
    bool moves = false;
    for (int b = 0; b < ALL_BITS; b++) moves |= rest.bit[b] != 0;
    if (moves) {
        word = named(d, "uint32_t", arena_printf(m, "(%s >> (%s))", word, affine_text(d, &rest)));
        by = 0;
    }
    by += d->lane * step;
    return by ? arena_printf(m, "(%s >> %d & %d)", word, (int)by, (1 << bits) - 1)
              : arena_printf(m, "(%s & %d)", word, (1 << bits) - 1);
}

static const char *field(decoder *d, const tile_node *n) {
    arena *m = d->memory;
    const tile_field *f = &d->format->body->fields[n->index];
    const int bits = f->type->scalar.bits;
    if (!n->a || n->a->kind == TILE_CONST)
        return decoded(d, f,
                       code_at_affine(d, &(affine){.base = f->bit_offset + (n->a ? n->a->value.i : 0) * bits}, bits));
    if (!d->whole && !emit_has_field(n->a)) {
        const char *code = is_uniform(d, n->a) ? NULL : from_word(d, n, f);
        affine at;
        if (code) return decoded(d, f, code);
        if (affine_of(d, n->a, d->lane, bits, f->bit_offset, &at)) return decoded(d, f, code_at_affine(d, &at, bits));
    }
    const char *index = expression(d, n->a);
    const int64_t align = divisor_of(&(affine){.base = f->bit_offset, .bit = {bits}}, 32);
    const char *byte = bits == 8 ? arena_printf(m, "%d + %s", f->bit_offset / 8, index)
                                 : arena_printf(m, "%d + %s * %d", f->bit_offset / 8, index, bits / 8);
    return decoded(d, f, code_at(d, arena_printf(m, "%d + %s * %d", f->bit_offset, index, bits), byte, align, bits));
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

/* A few bits become a float by an addition, which the chip does eight times as fast as a conversion; but bytes are
 * converted at once. */
static const char *converted(decoder *d, const tile_node *n) {
    enum { FEW = 20 };
    const char *value = expression(d, n->a);
    if (is_float(n) == is_float(n->a)) return value;
    const bool byte = n->a->kind == TILE_FIELD && d->format->body->fields[n->a->index].type->bits == 8;
    const bool few = !d->whole && is_float(n) && !is_bool(n->a) && !byte && emit_integer_bits(d->format, n->a) <= FEW;
    return few ? arena_printf(d->memory, "mt_f32_from_few(%s)", emit_bare(d->memory, value))
               : emit_cast(d->memory, value, n->a->type, n->type);
}

static const char *number(decoder *d, const tile_node *n) { /* without fields */
    if (!d->whole) {
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
        return d->whole ? "i" : arena_printf(d->memory, "(slice * 32 + %d + q * 4)", d->half * 16 + d->lane);
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
    case TILE_FIELD:
        out = field(d, n);
        break;
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
    if (!d->whole && emit_has_field(n) && is_uniform(d, n))
        return named(d, is_float(n) ? "float" : is_bool(n) ? "bool" : "int32_t", out);
    return out;
}

/* ---- the struct ---- */

static void write_format(cuda_unit_text *u, const tile_format *f, const char *name) {
    text *out = u->formats;
    text_printf(out, "\n/* %s */\nstruct %s {\n    enum { BLOCK = %d, BYTES = %d };\n", f->body->text, name, f->block,
                f->bits / 8);
    decoder one = {.memory = u->memory, .format = f, .out = out, .whole = true, .guarded = 1};
    text_printf(out, "    static __device__ float value(const uint8_t *p, int i) { return %s; }\n",
                emit_bare(u->memory, expression(&one, f->body->value)));
    if (f->block % SLICE == 0 && f->block / SLICE <= 32) {
        text_string(
            out,
            "    static __device__ __forceinline__ void slice(float (&e)[8], const uint8_t *p, int slice, int q) {\n");
        decoder d = {.memory = u->memory, .format = f, .out = out};
        for (d.half = 0; d.half < 2; d.half++)
            for (d.lane = 0; d.lane < FOUR; d.lane++) {
                const char *value = expression(&d, f->body->value);
                text_printf(out, "        e[%d] = %s;\n", d.half * FOUR + d.lane, emit_bare(u->memory, value));
            }
        text_string(out, "    }\n");
    }
    text_string(out, "};\n");
}

const char *cuda_format_of(cuda_unit_text *u, const tile_format *f) {
    cuda_format **at = &u->list;
    int namesakes = 0;
    for (; *at; at = &(*at)->next) {
        if (strcmp((*at)->format->name, f->name)) continue;
        if (!strcmp((*at)->format->body->text, f->body->text)) return (*at)->name;
        namesakes++;
    }
    *at = ARENA_NEW(u->memory, cuda_format);
    **at = (cuda_format){f, arena_printf(u->memory, namesakes ? "mt_format_%s_%d" : "mt_format_%s", f->name, namesakes),
                         NULL};
    write_format(u, f, (*at)->name);
    return (*at)->name;
}
