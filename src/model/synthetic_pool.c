/* Fills memory with random weights of any storage format.
 *
 * Scalar elements are drawn from a table of codes of normally distributed numbers. In a block format the fields hold
 * either codes, one for each element, or scales, minima and zero points, few for each block. All bits are random but
 * those of the float fields that are no codes, and of integers that stand alone; their values are found by decoding a
 * few blocks:
 *   1. an integer that stands alone (a zero point) becomes the one that brings the mean nearest to 0;
 *   2. the first float field is 1, and the next one that moves the mean becomes what brings it to 0;
 *   3. all float fields are scaled to the deviation that is wanted, in every other variant with the other sign, for the
 *      sake of codes such as -8 to 7.
 * Codes that could be NaN or infinite lose the highest bit of their exponent. So a block is (random & mask) | fixed,
 * and there are a few variants of `fixed`, so that scales differ. */
#include "model/synthetic_pool.h"

#include <math.h>

#include "tile/tile.h"

enum { BLOCK_BYTES = 1024, BLOCK_ELEMENTS = 1024, TABLE = 4096, VARIANTS = 16, FEW = 1 << 11, MANY = 1 << 17 };

uint64_t synthetic_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* The sum of twelve uniform numbers: no tails beyond 6, which suits weights. */
double synthetic_normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(synthetic_random(state) >> 11) * 0x1p-53;
    return sum;
}

/* ---- scalar formats ---- */

static double fill_scalars(const tile_format *f, double spread, uint8_t *out, size_t bytes, uint64_t *state) {
    const int bits = f->scalar.bits;
    uint64_t code[TABLE];
    double squares = 0;
    for (int i = 0; i < TABLE; i += 2) { /* a number and its opposite, so that the mean is 0 */
        const double value = synthetic_normal(state) * spread;
        for (int sign = 0; sign < 2; sign++) {
            code[i + sign] = tile_scalar_encode(f->scalar, sign ? -value : value);
            squares += pow(tile_scalar_decode(f->scalar, code[i + sign]), 2);
        }
    }
    if (bits >= 8) {
        for (size_t at = 0; at < bytes; at += (size_t)bits / 8)
            memcpy(out + at, &code[synthetic_random(state) % TABLE], (size_t)bits / 8);
    } else {
        const uint64_t mask = (1u << bits) - 1;
        uint64_t held = 0;
        int have = 0;
        for (size_t at = 0; at < bytes; at++, held >>= 8, have -= 8) {
            for (; have < 8; have += bits) held |= (code[synthetic_random(state) % TABLE] & mask) << have;
            out[at] = (uint8_t)held;
        }
    }
    return sqrt(squares / TABLE);
}

/* ---- block formats ---- */

typedef struct plan {
    const tile_format *format;
    size_t bytes; /* of a block */
    uint8_t mask[BLOCK_BYTES], fixed[VARIANTS][BLOCK_BYTES];
} plan;

static void set_bits(uint8_t *block, int first, int bits, uint64_t value) {
    for (int i = 0; i < bits; i++) {
        uint8_t *byte = &block[(first + i) / 8];
        const uint8_t bit = (uint8_t)(1 << (first + i) % 8);
        *byte = (uint8_t)((*byte & ~bit) | (value >> i & 1 ? bit : 0));
    }
}

static bool is_code(const tile_format *f, const tile_field *field) { return field->count >= f->block; }
static bool is_float(const tile_field *field) { return field->type->scalar.kind == TILE_FLOAT; }

/* Gives all elements of a field that is not random a value. */
static void fix(plan *p, int variant, const tile_field *field, uint64_t code) {
    const int bits = field->type->scalar.bits;
    for (int i = 0; i < field->count; i++) {
        set_bits(p->mask, field->bit_offset + i * bits, bits, 0);
        set_bits(p->fixed[variant], field->bit_offset + i * bits, bits, code);
    }
}

static void fix_float(plan *p, int variant, const tile_field *field, double value) {
    fix(p, variant, field, tile_scalar_encode(field->type->scalar, value));
}

static void fill_blocks(const plan *p, uint8_t *out, size_t bytes, uint64_t *state) {
    uint64_t random[BLOCK_BYTES / 8 + 1];
    for (size_t at = 0; at < bytes; at += p->bytes) {
        const uint64_t variant = synthetic_random(state) % VARIANTS;
        for (size_t i = 0; i * 8 < p->bytes; i++) random[i] = synthetic_random(state);
        for (size_t i = 0; i < p->bytes; i++)
            out[at + i] = (uint8_t)((((const uint8_t *)random)[i] & p->mask[i]) | p->fixed[variant][i]);
    }
}

typedef struct moments {
    double mean, deviation;
} moments;

/* Of this many elements. */
static moments measure(const plan *p, int count) {
    float value[BLOCK_ELEMENTS];
    uint8_t block[BLOCK_BYTES];
    uint64_t state = 1;
    double sum = 0, squares = 0;
    for (int done = 0; done < count; done += p->format->block) {
        fill_blocks(p, block, p->bytes, &state);
        tile_format_decode(p->format, block, value);
        for (int k = 0; k < p->format->block; k++) {
            sum += value[k];
            squares += (double)value[k] * value[k];
        }
    }
    const double blocks = (double)ceil_div(count, p->format->block), mean = sum / (blocks * p->format->block);
    return (moments){mean, sqrt(fmax(squares / (blocks * p->format->block) - mean * mean, 0))};
}

static void set_all(plan *p, const tile_field *field, double value) {
    for (int v = 0; v < VARIANTS; v++) fix_float(p, v, field, value);
}

/* Step 1. */
static void choose_integer(plan *p, const tile_field *field) {
    uint64_t best = 0;
    double least = INFINITY;
    for (uint64_t code = 0; code < 1u << field->type->scalar.bits; code++) {
        for (int v = 0; v < VARIANTS; v++) fix(p, v, field, code);
        const double mean = fabs(measure(p, FEW).mean);
        if (mean < least) least = mean, best = code;
    }
    for (int v = 0; v < VARIANTS; v++) fix(p, v, field, best);
}

static mt_status make_plan(plan *p, double spread, mt_error *error) {
    const tile_format *f = p->format;
    const tile_field *scale = NULL, *offset = NULL;
    memset(p->mask, 0xff, sizeof p->mask);
    memset(p->fixed, 0, sizeof p->fixed);
    for (int i = 0; i < f->body->field_count; i++) {
        const tile_field *field = &f->body->fields[i];
        const tile_scalar t = field->type->scalar;
        if (is_float(field) && !is_code(f, field)) {
            if (!scale) scale = field;
            set_all(p, field, field == scale);
        } else if (is_float(field) && t.special != TILE_FINITE) {
            for (int k = 0; k < field->count; k++) set_bits(p->mask, field->bit_offset + k * t.bits + t.bits - 2, 1, 0);
        }
    }
    for (int i = 0; i < f->body->field_count; i++) {
        const tile_field *field = &f->body->fields[i];
        if (!is_float(field) && field->count == 1 && !is_code(f, field) && field->type->scalar.bits <= 8)
            choose_integer(p, field);
    }
    const moments raw = measure(p, MANY);
    double centre = 0;
    for (int i = 0; i < f->body->field_count && scale && !offset; i++) {
        const tile_field *field = &f->body->fields[i];
        if (field == scale || !is_float(field) || is_code(f, field)) continue;
        set_all(p, scale, 0);
        set_all(p, field, 1);
        const double moved = measure(p, MANY).mean;
        set_all(p, scale, 1);
        set_all(p, field, 0);
        if (moved != 0) offset = field, centre = -raw.mean / moved;
    }
    if (offset) set_all(p, offset, centre);
    const moments centred = measure(p, MANY);
    if (!(centred.deviation > 0) || !isfinite(centred.deviation) || fabs(centred.mean) > centred.deviation)
        return error_set(error, MT_E_UNSUPPORTED, f->name, "format '%s' has no random weights around 0", f->name);
    for (int v = 0; v < VARIANTS && scale; v++) {
        const double size = spread / centred.deviation * (0.75 + 0.5 * (v / 2) / (VARIANTS / 2 - 1)),
                     factor = v % 2 && scale->type->scalar.bits >= 16 ? -size
                                                                      : size; /* narrow scales tend to have no sign */
        fix_float(p, v, scale, factor);
        if (offset) fix_float(p, v, offset, centre * factor);
    }
    return MT_OK;
}

mt_status synthetic_fill(const tile_format *f, double spread, void *out, size_t bytes, double *have, mt_error *error) {
    uint64_t state = hash_u64(f->name, strlen(f->name));
    if (tile_format_is_block(f)) {
        plan p = {.format = f, .bytes = (size_t)f->bits / 8};
        if (p.bytes > BLOCK_BYTES || f->block > BLOCK_ELEMENTS)
            return error_set(error, MT_E_LIMIT, f->name, "a block of format '%s' has %d elements in %zu bytes", f->name,
                             f->block, p.bytes);
        const mt_status status = make_plan(&p, spread, error);
        if (status != MT_OK) return status;
        fill_blocks(&p, out, bytes, &state);
        *have = measure(&p, MANY).deviation;
        return MT_OK;
    }
    const tile_scalar t = f->scalar;
    const double most = tile_scalar_max(t);
    if (t.is_unsigned || (t.kind != TILE_FLOAT && t.kind != TILE_INT) || !(most > 0))
        return error_set(error, MT_E_UNSUPPORTED, f->name, "format '%s' has no random weights around 0", f->name);
    if (t.kind == TILE_INT)
        spread = fmin(most / 3, 32);
    else if (t.bits < 16)
        spread = fmin(most / 3, 1);
    *have = fill_scalars(f, spread, out, bytes, &state);
    return MT_OK;
}
