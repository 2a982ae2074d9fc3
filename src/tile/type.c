/* Element types: their names, and exact conversion between codes and doubles.
 *
 * Floats rest on one fact: without their sign, codes are ordered like the numbers they stand for, and one step of the
 * code is one step of the grid of numbers, also from the largest subnormal to the smallest normal number and from one
 * binade to the next. Encoding cuts the 53-bit significand of the double once, at the last bit that the type keeps at
 * this exponent, and adds the result to the code at which that binade begins: a carry gives the next binade, a code
 * beyond the largest number means overflow, and subnormals are the lowest binade without its leading bit. Encoding is
 * integer arithmetic on the bits of the double, so that no rounding mode can change a result. */
#include "tile/type.h"

#include <math.h>

#define INTEGERS(n)                                                                                                    \
    {.name = "i" #n, .scalar = {.kind = TILE_INT, .bits = n}, .block = 1, .bits = n}, {                                \
        .name = "u" #n, .scalar = {.kind = TILE_UINT, .bits = n}, .block = 1, .bits = n                                \
    }
#define FLOAT(label, sign, x, y, s)                                                                                    \
    {                                                                                                                  \
        .name = label, .scalar = {TILE_FLOAT,    (sign) + (x) + (y),     .exponent = x,                                \
                                  .mantissa = y, .is_unsigned = !(sign), .special = s},                                \
        .block = 1, .bits = (sign) + (x) + (y)                                                                         \
    }
#define SMALL_FLOAT(x, y) FLOAT("e" #x "m" #y, 1, x, y, SMALL_SPECIAL(10 * (x) + (y)))
#define SMALL_SPECIAL(xy) ((xy) == 52 ? TILE_IEEE : (xy) == 43 ? TILE_NAN : TILE_FINITE)

/* Every scalar format. Constant, so that a name's pointer is the same for all threads without any initialisation. */
static const tile_format scalar_formats[] = {
    FLOAT("f32", 1, 8, 23, TILE_IEEE),
    FLOAT("f16", 1, 5, 10, TILE_IEEE),
    FLOAT("bf16", 1, 8, 7, TILE_IEEE),
    FLOAT("f64", 1, 11, 52, TILE_IEEE),
    FLOAT("e8m0", 0, 8, 0, TILE_NAN),
    {.name = "bool", .scalar = {.kind = TILE_BOOL, .bits = 8}, .block = 1, .bits = 8},
    INTEGERS(1),
    INTEGERS(2),
    INTEGERS(3),
    INTEGERS(4),
    INTEGERS(5),
    INTEGERS(6),
    INTEGERS(7),
    INTEGERS(8),
    INTEGERS(16),
    INTEGERS(32),
    INTEGERS(64),
    SMALL_FLOAT(1, 1),
    SMALL_FLOAT(2, 0),
    SMALL_FLOAT(1, 2),
    SMALL_FLOAT(2, 1),
    SMALL_FLOAT(3, 0),
    SMALL_FLOAT(1, 3),
    SMALL_FLOAT(2, 2),
    SMALL_FLOAT(3, 1),
    SMALL_FLOAT(4, 0),
    SMALL_FLOAT(1, 4),
    SMALL_FLOAT(2, 3),
    SMALL_FLOAT(3, 2),
    SMALL_FLOAT(4, 1),
    SMALL_FLOAT(5, 0),
    SMALL_FLOAT(1, 5),
    SMALL_FLOAT(2, 4),
    SMALL_FLOAT(3, 3),
    SMALL_FLOAT(4, 2),
    SMALL_FLOAT(5, 1),
    SMALL_FLOAT(6, 0),
    SMALL_FLOAT(1, 6),
    SMALL_FLOAT(2, 5),
    SMALL_FLOAT(3, 4),
    SMALL_FLOAT(4, 3),
    SMALL_FLOAT(5, 2),
    SMALL_FLOAT(6, 1),
    SMALL_FLOAT(7, 0),
};

const tile_format *tile_format_scalar(const char *name, size_t length) {
    if (!length) return NULL;
    for (size_t i = 0; i < COUNT_OF(scalar_formats); i++) {
        const tile_format *f = &scalar_formats[i];
        if (*f->name == *name && strlen(f->name) == length && !memcmp(f->name, name, length)) return f;
    }
    return NULL;
}

/* A mask of the low n bits, 0 <= n <= 64. */
static uint64_t mask(int n) { return n < 64 ? ((uint64_t)1 << n) - 1 : UINT64_MAX; }

/* The code of the largest finite number. */
static uint64_t max_code(tile_scalar t) {
    const uint64_t all = mask(t.exponent + t.mantissa);
    switch (t.kind) {
    case TILE_BOOL:
        return 1;
    case TILE_INT:
        return mask(t.bits - 1);
    case TILE_UINT:
        return mask(t.bits);
    default:
        return t.special == TILE_IEEE ? all - mask(t.mantissa) - 1 : t.special == TILE_NAN ? all - 1 : all;
    }
}

int tile_scalar_bias(tile_scalar t) { return t.exponent ? (1 << (t.exponent - 1)) - 1 : 0; }

double tile_scalar_max(tile_scalar t) { return tile_scalar_decode(t, max_code(t)); }

static double decode_float(tile_scalar t, uint64_t code) {
    const uint64_t magnitude = code & mask(t.exponent + t.mantissa), largest = max_code(t);
    const bool negative = !t.is_unsigned && code >> (t.bits - 1);
    if (magnitude > largest) {
        if (t.special != TILE_IEEE || magnitude > largest + 1) return NAN;
        return negative ? -INFINITY : INFINITY;
    }
    /* Signed, because clang's conversion of an unsigned 0 gives -0 when the host rounds down. */
    int64_t significand = (int64_t)(magnitude & mask(t.mantissa));
    int exponent = (int)(magnitude >> t.mantissa);
    if (exponent || t.is_unsigned)
        significand |= (int64_t)1 << t.mantissa;
    else
        exponent = 1;
    const double value = ldexp((double)significand, exponent - tile_scalar_bias(t) - t.mantissa);
    return negative ? -value : value;
}

double tile_scalar_decode(tile_scalar t, uint64_t code) {
    code &= mask(t.bits);
    const uint64_t sign = (uint64_t)1 << (t.bits - 1);
    switch (t.kind) {
    case TILE_BOOL:
        return code != 0;
    case TILE_INT:
        return (double)(int64_t)((code ^ sign) - sign);
    case TILE_UINT:
        return (double)code;
    default:
        return decode_float(t, code);
    }
}

/* A double taken apart: (-1)^negative x significand x 2^(exponent - 52). Infinity appears as 2^1024, beyond all. */
typedef struct parts {
    bool negative;
    int exponent;
    uint64_t significand; /* below 2^53 */
} parts;

static parts take_apart(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    const uint64_t fraction = bits & mask(52), leading = (uint64_t)(exponent > 0) << 52;
    return (parts){bits >> 63, (exponent ? exponent : 1) - 1023, fraction | leading};
}

/* n / 2^shift to the nearest integer, ties to even; n < 2^53, shift >= 0. */
static uint64_t shift_rounded(uint64_t n, int shift) {
    if (shift == 0) return n;
    if (shift > 54) return 0; /* less than half */
    const uint64_t down = n >> shift, rest = n & mask(shift), half = (uint64_t)1 << (shift - 1);
    return down + (rest > half || (rest == half && down % 2));
}

static uint64_t encode_integer(tile_scalar t, parts p) {
    const int shift = 52 - p.exponent;
    uint64_t n = shift < -11 ? UINT64_MAX : shift < 0 ? p.significand << -shift : shift_rounded(p.significand, shift);
    const uint64_t limit = !p.negative ? max_code(t) : t.kind == TILE_INT ? max_code(t) + 1 : 0;
    if (n > limit) n = limit;
    return (p.negative ? 0 - n : n) & mask(t.bits);
}

static uint64_t encode_float(tile_scalar t, parts p) {
    const int bias = tile_scalar_bias(t);
    const int lowest = (t.is_unsigned ? 0 : 1) - bias; /* the exponent of the smallest normal number */
    /* Without a sign there is no zero and no subnormal number either: the smallest number is the nearest. */
    if (t.is_unsigned && (p.negative || p.exponent < lowest)) return 0;
    const int exponent = p.exponent > lowest ? p.exponent : lowest;
    /* A tie goes to the even significand, as in IEEE 754: with no mantissa all numbers but 0 have the significand 1,
     * and the tie between 2^k and 2^(k + 1) goes up. The significand's leading bit adds 1 to the code, hence - 1. */
    const uint64_t significand = shift_rounded(p.significand, exponent - p.exponent + 52 - t.mantissa);
    uint64_t code = ((uint64_t)(int64_t)(exponent + bias - 1) << t.mantissa) + significand; /* modulo 2^64 for e8m0 */
    const uint64_t largest = max_code(t);
    if (code > largest) code = t.special == TILE_IEEE && t.bits > 8 ? largest + 1 : largest;
    return p.negative ? code | (uint64_t)1 << (t.bits - 1) : code;
}

uint64_t tile_scalar_encode(tile_scalar t, double value) {
    if (isnan(value)) {
        if (t.kind != TILE_FLOAT || t.special == TILE_FINITE) return 0;
        const uint64_t quiet = t.special == TILE_IEEE ? (uint64_t)1 << (t.mantissa - 1) : 0;
        return (max_code(t) + 1) | quiet;
    }
    const parts p = take_apart(value);
    return t.kind == TILE_FLOAT ? encode_float(t, p) : encode_integer(t, p);
}

int64_t tile_format_bytes(const tile_format *f, int64_t count) {
    if (count < 0 || count % f->block) return -1;
    const int64_t blocks = count / f->block; /* eight blocks take as many bytes as one block has bits */
    int64_t bytes;
    if (__builtin_mul_overflow(blocks / 8, (int64_t)f->bits, &bytes)) return -1;
    if (__builtin_add_overflow(bytes, ceil_div(blocks % 8 * f->bits, 8), &bytes)) return -1;
    return bytes;
}

/* Where an element of packed storage lies: `shift` bits into the byte at `first`, up to `bytes` bytes on. No element of
 * more than 8 bits starts inside a byte, so that every one and its shift fit in 64 bits. */
typedef struct place {
    size_t first;
    int shift, bytes;
} place;

static place place_of(int bits, int64_t index) {
    const int within = (int)(index % 8) * bits;
    return (place){(size_t)(index / 8) * (size_t)bits + (size_t)(within / 8), within % 8, (within % 8 + bits + 7) / 8};
}

static uint64_t load_bytes(const uint8_t *from, int count) {
    uint64_t word = 0;
    for (int i = 0; i < count; i++) word |= (uint64_t)from[i] << 8 * i;
    return word;
}

double tile_format_get(const tile_format *f, const void *data, int64_t index) {
    const place p = place_of(f->scalar.bits, index);
    return tile_scalar_decode(f->scalar, load_bytes((const uint8_t *)data + p.first, p.bytes) >> p.shift);
}

void tile_format_set(const tile_format *f, void *data, int64_t index, double value) {
    const place p = place_of(f->scalar.bits, index);
    uint8_t *to = (uint8_t *)data + p.first;
    const uint64_t field = mask(f->scalar.bits) << p.shift;
    const uint64_t word = (load_bytes(to, p.bytes) & ~field) | tile_scalar_encode(f->scalar, value) << p.shift;
    for (int i = 0; i < p.bytes; i++) to[i] = (uint8_t)(word >> 8 * i);
}
