/* Element types and storage formats.
 *
 * A scalar type is a few numbers (kind, bits, exponent and mantissa widths); every integer of 1 to 8, 16, 32 and 64
 * bits and every float of 3 to 8 bits exists without being listed anywhere. A storage format is what the elements of a
 * tensor in memory look like: either a scalar type, packed without padding, or a block format declared in a .tile file
 * (`format q4_1 { ... }`), which stores `block` elements in `bytes` bytes and decodes to f32. */
#ifndef TILE_TYPE_H
#define TILE_TYPE_H

#include "base/base.h"

typedef enum tile_kind {
    TILE_BOOL,  /* stored as one byte, 0 or 1 */
    TILE_INT,   /* two's complement, 1 to 8, 16, 32, 64 bits; i1 holds 0 and -1 */
    TILE_UINT,  /* 1 to 8, 16, 32, 64 bits */
    TILE_FLOAT, /* 1 sign bit unless `is_unsigned`, then exponent, then mantissa */
    TILE_BLOCK  /* a block format: only its decoded values can be computed with */
} tile_kind;

typedef enum tile_special {
    TILE_IEEE,  /* largest exponent: infinities and NaN (f64, f32, f16, bf16, e5m2) */
    TILE_NAN,   /* no infinities; only the code with all exponent and mantissa bits set is NaN (e4m3, e8m0) */
    TILE_FINITE /* every code is a number (all floats under 8 bits) */
} tile_special;

typedef struct tile_scalar {
    uint8_t kind;               /* tile_kind, not TILE_BLOCK */
    uint8_t bits;               /* 1..64 */
    uint8_t exponent, mantissa; /* TILE_FLOAT: widths in bits */
    uint8_t is_unsigned;        /* TILE_FLOAT: no sign bit (e8m0) */
    uint8_t special;            /* TILE_FLOAT: tile_special */
} tile_scalar;

struct tile_format_body; /* the parsed declaration of a block format; tile/tile.h */

typedef struct tile_format {
    const char *name;              /* "f32", "u4", "e4m3", "q4_1" */
    tile_scalar scalar;            /* scalar formats; a block format decodes to f32 and has f32 here */
    int block;                     /* elements in a block; 1 for scalar formats */
    int bits;                      /* bits in a block: scalar.bits, or 8 x bytes */
    struct tile_format_body *body; /* NULL for scalar formats */
} tile_format;

static inline bool tile_format_is_block(const tile_format *f) { return f->body != NULL; }
/* What tensor cores multiply: f16, bf16. */
static inline bool tile_format_is_16_bit_float(const tile_format *f) {
    return !tile_format_is_block(f) && f->scalar.kind == TILE_FLOAT && f->scalar.bits == 16;
}

/* The scalar format with this name, or NULL: bool, i1..i8, i16, i32, i64, u1..u8, u16, u32, u64, f16, bf16, f32, f64,
 * eXmY with 1 + X + Y in 3..8, X >= 1 (e4m3 has NaN, e5m2 is IEEE, the others are finite), and e8m0. The result is
 * interned: two calls with one name give one pointer. Thread-safe. */
const tile_format *tile_format_scalar(const char *name, size_t length);

/* The exponent's bias: 2^(exponent - 1) - 1, and 127 for e8m0; at least 0. e1mY types have no normal range of their
 * own: exponent code 0 is subnormal with scale 2^(1 - bias), code 1 normal. */
int tile_scalar_bias(tile_scalar t);
/* The number that `code` (its low t.bits bits) stands for. Integers of up to 53 bits and all floats are exact. */
double tile_scalar_decode(tile_scalar t, uint64_t code);
/* The nearest code: round to nearest, ties to even. Out of range saturates to the largest finite number, except in
 * TILE_IEEE types wider than 8 bits, which go to infinity as IEEE 754 says. NaN becomes the type's NaN, or 0 where it
 * has none. Integers: the nearest integer, ties to even, saturated. */
uint64_t tile_scalar_encode(tile_scalar t, double value);
/* The largest finite number. */
double tile_scalar_max(tile_scalar t);

/* Bytes of `count` elements stored one after another, or -1 when count is no multiple of the block or the product
 * overflows. Sub-byte totals round up to whole bytes. */
int64_t tile_format_bytes(const tile_format *f, int64_t count);

/* The number at element `index` of packed storage (bit index * bits, little-endian within bytes): scalar formats only.
 */
double tile_format_get(const tile_format *f, const void *data, int64_t index);
void tile_format_set(const tile_format *f, void *data, int64_t index, double value);

/* Any format by name: a scalar type, or a block format of the instruction library (src/ops/formats.tile, parsed once
 * per process). NULL when there is none. Thread-safe. */
const tile_format *tile_format_find(const char *name);

#endif
