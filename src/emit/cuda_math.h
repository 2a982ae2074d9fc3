/* What ops' device code is written in, part two: conversions, arithmetic, and how threads read, write and add up tiles.
 * Pasted behind cuda_prelude.h, whose functions of the chip it stands on; there is nothing of the chip itself in here.
 *
 * Elements of tiles are held as types of their own: f32, f64, the integers; floats of up to 16 bits as their codes;
 * integers of up to 8 bits in int8_t or uint8_t; bool as 0 or 1. All functions are total. Functions of f32 are within 2
 * units in the last place; exp2 gives 0 for what is below the normal numbers. */
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

#ifndef INT64_C
#define INT64_C(x)  x##ll
#define UINT64_C(x) x##ull
#endif
#ifndef INT32_MIN
#define INT32_MIN  (-2147483647 - 1)
#define INT32_MAX  2147483647
#define INT64_MIN  (-9223372036854775807ll - 1)
#define INT64_MAX  9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
#endif
#undef NAN
#undef INFINITY
#define NAN      mt_float(0x7fc00000u)
#define INFINITY mt_float(0x7f800000u)

/* ---- integers ---- */

MT_DEVICE int64_t mt_min(int64_t a, int64_t b) { return a < b ? a : b; }
MT_DEVICE int64_t mt_max(int64_t a, int64_t b) { return a > b ? a : b; }
MT_DEVICE int64_t mt_clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }
MT_DEVICE uint64_t mt_minu64(uint64_t a, uint64_t b) { return a < b ? a : b; }
MT_DEVICE int32_t mt_min32(int32_t a, int32_t b) { return a < b ? a : b; }
MT_DEVICE int32_t mt_max32(int32_t a, int32_t b) { return a > b ? a : b; }
MT_DEVICE uint32_t mt_minu32(uint32_t a, uint32_t b) { return a < b ? a : b; }
MT_DEVICE uint32_t mt_maxu32(uint32_t a, uint32_t b) { return a > b ? a : b; }
MT_DEVICE int64_t mt_abs(int64_t x) { return x < 0 ? (int64_t)(0 - (uint64_t)x) : x; }
MT_DEVICE int32_t mt_abs32(int32_t x) { return x < 0 ? (int32_t)(0 - (uint32_t)x) : x; }
MT_DEVICE int32_t mt_clamp32(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }
/* Whether index i is in [0, extent). */
MT_DEVICE bool mt_in(int64_t i, int64_t extent) { return i >= 0 && i < extent; }

/* Towards minus infinity; a division by zero gives 0, as does the remainder. Most divisors are constants and powers of
 * two: a shift is all that stays of these. */
MT_DEVICE bool mt_is_power(int64_t b) { return b > 0 && !(b & (b - 1)); }
MT_DEVICE int64_t mt_div(int64_t a, int64_t b) {
    if (mt_is_power(b)) return a >> mt_log2(b);
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    const int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}
MT_DEVICE int64_t mt_mod(int64_t a, int64_t b) {
    if (mt_is_power(b)) return a & (b - 1);
    return b == 0 ? 0 : (int64_t)((uint64_t)a - (uint64_t)mt_div(a, b) * (uint64_t)b);
}
MT_DEVICE int64_t mt_ceil_div(int64_t a, int64_t b) { return b == 0 ? 0 : mt_div(a, b) + (mt_mod(a, b) != 0); }

/* Shifts by any count: what is shifted out is gone, and a negative count shifts by nothing. */
MT_DEVICE int64_t mt_shl64(int64_t a, int64_t n) { return n > 63 ? 0 : (int64_t)((uint64_t)a << (n < 0 ? 0 : n)); }
MT_DEVICE int64_t mt_shr64(int64_t a, int64_t n) { return a >> (n > 63 ? 63 : n < 0 ? 0 : n); }
MT_DEVICE int32_t mt_shl32(int32_t a, int32_t n) { return n > 31 ? 0 : (int32_t)((uint32_t)a << (n < 0 ? 0 : n)); }
MT_DEVICE int32_t mt_shr32(int32_t a, int32_t n) { return a >> (n > 31 ? 31 : n < 0 ? 0 : n); }
MT_DEVICE uint32_t mt_shru32(uint32_t a, uint32_t n) { return n > 31 ? 0 : a >> n; }

/* ---- from floats to integers: to nearest, ties to even, saturated; NaN gives 0 ---- */

MT_DEVICE int32_t mt_i32_from_f32(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int32_t)rintf(x);
}
/* For limits that f32 holds exactly. */
MT_DEVICE int32_t mt_int_from_f32(float x, float low, float high) {
    return x != x ? 0 : (int32_t)fminf(fmaxf(rintf(x), low), high);
}
MT_DEVICE int64_t mt_i64_from_f64(double x) {
    if (x != x) return 0;
    const double r = rint(x);
    return r >= 9223372036854775808.0 ? INT64_MAX : r < -9223372036854775808.0 ? INT64_MIN : (int64_t)r;
}
MT_DEVICE uint64_t mt_u64_from_f64(double x) {
    const double r = rint(x);
    return r >= 18446744073709551616.0 ? UINT64_MAX : r > 0.0 ? (uint64_t)r : 0;
}
MT_DEVICE int64_t mt_int_from_f64(double x, int64_t low, int64_t high) {
    return mt_clamp(mt_i64_from_f64(x), low, high);
}

/* ---- floats of up to 16 bits ----
 * The type is given by its widths and by what its highest codes mean; all three are constants where these are called.
 */

enum { MT_IEEE, MT_NAN, MT_FINITE }; /* infinities and NaN; all bits set is NaN; only numbers */

MT_DEVICE float mt_f32_from_float(uint32_t code, int exponent, int mantissa, int special) {
    const int bias = exponent == 8 ? 127 : (1 << (exponent - 1)) - 1;
    const uint32_t all = (1u << (exponent + mantissa)) - 1,
                   largest = special == MT_IEEE ? all - (1u << mantissa) + 1 : all;
    const uint32_t magnitude = code & all;
    const float normal = mt_float((magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23));
    const float subnormal = (float)(int32_t)magnitude * mt_float((uint32_t)(128 - bias - mantissa) << 23);
    uint32_t bits = mt_bits(magnitude < 1u << mantissa ? subnormal : normal);
    if (special == MT_IEEE) bits = magnitude >= largest ? 0x7f800000u | magnitude << (23 - mantissa) : bits;
    if (special == MT_NAN) bits = magnitude == all ? 0x7fc00000u : bits;
    return mt_float(bits | (code >> (exponent + mantissa) & 1) << 31);
}

MT_DEVICE uint32_t mt_float_from_f32(float x, int exponent, int mantissa, int special) {
    const int bias = exponent == 8 ? 127 : (1 << (exponent - 1)) - 1, shift = 23 - mantissa;
    const uint32_t all = (1u << (exponent + mantissa)) - 1, infinity = all - (1u << mantissa) + 1;
    const uint32_t largest = special == MT_IEEE ? infinity - 1 : special == MT_NAN ? all - 1 : all;
    const uint32_t over = special == MT_IEEE && exponent + mantissa > 7 ? infinity : largest;
    const uint32_t nan = special == MT_IEEE  ? infinity | 1u << (mantissa ? mantissa - 1 : 0)
                         : special == MT_NAN ? all
                                             : 0;
    const uint32_t bits = mt_bits(x) & 0x7fffffffu, sign = mt_bits(x) >> 31 << (exponent + mantissa);
    /* Below the normal numbers the float's own addition rounds: `step` has the spacing of the subnormal ones as its
     * last bit. */
    const float step = mt_float((uint32_t)(128 - bias - mantissa + 23) << 23);
    const uint32_t low = mt_bits(mt_add_rounded(mt_float(bits), step)) - mt_bits(step);
    const uint32_t odd = mantissa ? bits >> shift & 1 : 1; /* the significand's last bit; a tie makes it even */
    const uint32_t rounded = bits + ((1u << (shift - 1)) - 1) + odd;
    const uint32_t high = (rounded >> shift) - ((uint32_t)(127 - bias) << mantissa);
    uint32_t code = bits < (uint32_t)(128 - bias) << 23 ? low : high;
    code = (code > largest ? over : code) | sign;
    return x == x ? code : nan;
}

/* 256 is no code of e8m0: it stands for the zero that is read out of range. */
MT_DEVICE float mt_f32_from_e8m0(uint32_t code) {
    const uint32_t bits = code ? code << 23 : 0x00400000u;
    return mt_float(code == 255 ? 0x7fc00000u : code == 256 ? 0 : bits);
}

/* The same from f64, rounded once; also for e8m0 (is_unsigned), which has no zero. Follows tile_scalar_encode step by
 * step. */
MT_DEVICE uint32_t mt_float_from_f64(double x, int exponent, int mantissa, int special, int is_unsigned) {
    const int bias = exponent == 8 ? 127 : (1 << (exponent - 1)) - 1, lowest = (is_unsigned ? 0 : 1) - bias;
    const uint32_t all = (1u << (exponent + mantissa)) - 1, infinity = all - (1u << mantissa) + 1;
    const uint32_t largest = special == MT_IEEE ? infinity - 1 : special == MT_NAN ? all - 1 : all;
    if (x != x)
        return special == MT_IEEE ? infinity | 1u << (mantissa ? mantissa - 1 : 0) : special == MT_NAN ? all : 0;
    const uint64_t bits = mt_bits64(x), fraction = bits & (((uint64_t)1 << 52) - 1);
    const int field = (int)(bits >> 52 & 0x7ff), negative = (int)(bits >> 63), at = (field ? field : 1) - 1023;
    const uint64_t significand = fraction | (uint64_t)(field > 0) << 52;
    if (is_unsigned && (negative || at < lowest)) return 0;
    const int scale = at > lowest ? at : lowest, shift = scale - at + 52 - mantissa;
    uint64_t kept = 0;
    if (shift <= 54) {
        const uint64_t rest = significand & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
        kept = significand >> shift;
        kept += rest > half || (rest == half && (kept & 1));
    }
    /* The significand's leading bit adds 1 to the exponent's code, hence - 1. */
    uint64_t code = (uint64_t)((int64_t)(scale + bias - 1) * ((int64_t)1 << mantissa)) + kept;
    if (code > largest) code = special == MT_IEEE && exponent + mantissa > 7 ? infinity : largest;
    return (uint32_t)code | (is_unsigned ? 0 : (uint32_t)negative << (exponent + mantissa));
}

/* ---- functions ---- */

MT_DEVICE float mt_exp(float x) { return expf(x); }
MT_DEVICE float mt_log(float x) { return logf(x); }
MT_DEVICE float mt_log2(float x) { return log2f(x); }
MT_DEVICE float mt_tanh(float x) { return tanhf(x); }
MT_DEVICE float mt_rsqrt(float x) { return 1.0f / sqrtf(x); }

/* Sine and cosine in f64: x minus a multiple of pi / 2, in three pieces of 53 bits, then a polynomial. Within 1e-15 for
 * |x| < 2^31; CUDA's own functions have a slow path in local memory. `quarter` is 0 for the sine, 1 for the cosine. */
MT_DEVICE double mt_sin_quarter(double x, double quarter) {
    const double n = rint(x * 0.63661977236758134308);
    const double r =
        fma(-n, -1.4973849048591698e-33, fma(-n, 6.123233995736766e-17, fma(-n, 1.5707963267948966192313, x)));
    const double z = r * r;
    double s = fma(z, 1.58962301576546568060e-10, -2.50507477628578072866e-8),
           c = fma(z, -1.13585365213876817300e-11, 2.08757008419747316778e-9);
    s = fma(s, z, 2.75573136213857245213e-6);
    s = fma(s, z, -1.98412698295895385996e-4);
    s = fma(s, z, 8.33333333332211858878e-3);
    s = fma(s, z, -1.66666666666666307295e-1);
    s = fma(s * z, r, r);
    c = fma(c, z, -2.75573141792967388112e-7);
    c = fma(c, z, 2.48015872888517045348e-5);
    c = fma(c, z, -1.38888888888730564116e-3);
    c = fma(c, z, 4.16666666666665929218e-2);
    c = fma(c * z, z, fma(-0.5, z, 1.0));
    const double turn = n + quarter, half = turn - 4.0 * floor(turn * 0.25);
    const double y = turn - 2.0 * floor(turn * 0.5) > 0.5 ? c : s;
    return half > 1.5 ? -y : y;
}
MT_DEVICE double mt_sin64(double x) { return x == 0.0 ? x : mt_sin_quarter(x, 0.0); }
MT_DEVICE double mt_cos64(double x) { return mt_sin_quarter(x, 1.0); }
MT_DEVICE float mt_sin(float x) { return x == 0.0f ? x : (float)mt_sin_quarter(x, 0.0); }
MT_DEVICE float mt_cos(float x) { return (float)mt_sin_quarter(x, 1.0); }

/* Under the names by which the emitters print them (emit_type.c). */
#define __builtin_fabsf  fabsf
#define __builtin_fabs   fabs
#define __builtin_sqrtf  sqrtf
#define __builtin_sqrt   sqrt
#define __builtin_floorf floorf
#define __builtin_floor  floor
#define __builtin_ceilf  ceilf
#define __builtin_ceil   ceil
#define __builtin_rintf  rintf
#define __builtin_rint   rint
#define __builtin_exp    exp
#define __builtin_exp2   exp2
#define __builtin_log    log
#define __builtin_log2   log2
#define __builtin_tanh   tanh
#define __builtin_sin    mt_sin64
#define __builtin_cos    mt_cos64

/* A number wins over NaN. */
MT_DEVICE float mt_min_f32(float a, float b) { return fminf(a, b); }
MT_DEVICE float mt_max_f32(float a, float b) { return fmaxf(a, b); }
MT_DEVICE double mt_min_f64(double a, double b) { return a < b || b != b ? a : b; }
MT_DEVICE double mt_max_f64(double a, double b) { return a > b || b != b ? a : b; }

/* ---- bits of packed elements and blocks ---- */

/* An integer of magnitude up to 2^22: as the last bits of 1.5 * 2^23, which is then taken away. Exact. */
MT_DEVICE float mt_f32_from_few(int32_t x) { return mt_float(0x4b400000u + (uint32_t)x) - 12582912.0f; }

/* Four codes, a byte each, of `bits` bits that lie `step` bits apart from the word's first bit on. A step is 8, or at
 * most 4: then the upper two move apart from the others first, and every second one then. */
MT_DEVICE uint32_t mt_four_codes(uint32_t word, int step, int bits) {
    const uint32_t one = (1u << bits) - 1, two = one << step | one, codes = word & (two << 2 * step | two);
    if (step == 8) return codes;
    const uint32_t pairs = (codes | codes << 2 * (8 - step)) & (two << 16 | two);
    return (pairs | pairs << (8 - step)) & one * 0x01010101u;
}
/* Byte `lane` of four, less `bias` < 2^22: as the last bits of 2^23, which is then taken away. Exact. */
MT_DEVICE float mt_f32_from_byte(uint32_t four, int lane, float bias) {
    return mt_float(mt_bytes(four, 0x4b000000u, 0x7650u + (uint32_t)lane)) - (8388608.0f + bias);
}
/* The same with two neighbours, 2 pair and 2 pair + 1, as f16: on top of 1024. Exact while the results are. */
MT_DEVICE uint32_t mt_f16_from_bytes(uint32_t four, int pair, float bias) {
    return mt_add_f16x2(mt_bytes(four, 0x64646464u, pair ? 0x4342u : 0x4140u),
                        mt_f16_pair(-1024.0f - bias, -1024.0f - bias));
}
/* Two neighbours' bytes as the upper halves of f16 codes. */
MT_DEVICE uint32_t mt_high_bytes(uint32_t four, int pair) { return mt_bytes(four, 0, pair ? 0x3424u : 0x1404u); }

MT_DEVICE int32_t mt_sign(uint32_t code, int bits) { return (int32_t)(code << (32 - bits)) >> (32 - bits); }
/* Element i of packed storage with `bits` < 8 bits an element, as its code. Never reads beyond the element's last byte.
 */
MT_DEVICE uint32_t mt_get_bits(const void *data, int64_t i, int bits) {
    const uint8_t *p = (const uint8_t *)data + (i >> 3) * bits;
    const int at = (int)(i & 7) * bits, first = at >> 3, last = (at + bits - 1) >> 3;
    return ((uint32_t)p[first] | (uint32_t)p[last] << 8) >> (at & 7) & ((1u << bits) - 1);
}
/* Writes one; other threads may write the other elements of its bytes. */
MT_DEVICE void mt_put_bits(void *data, int64_t i, int bits, uint32_t code) {
    const size_t bit = ((size_t)data & 3) * 8 + (size_t)(i >> 3) * bits * 8 + (size_t)(i & 7) * bits, shift = bit % 32;
    uint32_t *word = (uint32_t *)((size_t)data & ~(size_t)3) + bit / 32;
    const uint64_t mask = (uint64_t)((1u << bits) - 1) << shift, value = (uint64_t)code << shift & mask;
    mt_set_bits(word, (uint32_t)mask, (uint32_t)value);
    if (mask >> 32) mt_set_bits(word + 1, (uint32_t)(mask >> 32), (uint32_t)(value >> 32));
}
/* `bits` <= 32 bits from bit `at` on. */
MT_DEVICE uint32_t mt_get_code(const uint8_t *p, int at, int bits) {
    uint64_t word = 0;
    for (int byte = (at + bits - 1) >> 3; byte >= at >> 3; byte--) word = word << 8 | p[byte];
    return (uint32_t)(word >> (at & 7) & (((uint64_t)1 << bits) - 1));
}
/* Little-endian words at an address that is a multiple of `align`, a constant. */
MT_DEVICE uint32_t mt_get16(const uint8_t *p, int align) {
    return align >= 2 ? *(const uint16_t *)p : p[0] | (uint32_t)p[1] << 8;
}
MT_DEVICE uint32_t mt_get32(const uint8_t *p, int align) {
    return align >= 4 ? *(const uint32_t *)p : mt_get16(p, align) | mt_get16(p + 2, align) << 16;
}

/* ---- vectors of neighbours ----
 * N elements each; N is 1, 2, 4 or 8. Buffers are aligned to N elements, tensors are asked. */

template <int BYTES> struct mt_word;
template <> struct mt_word<1> { typedef uint8_t type; };
template <> struct mt_word<2> { typedef uint16_t type; };
template <> struct mt_word<4> { typedef uint32_t type; };
template <> struct mt_word<8> { typedef uint2 type; };
template <> struct mt_word<16> { typedef uint4 type; };

/* Zeros where nothing is there: whole words, so that codes that are only passed on are never taken apart. */
template <typename T, int N> MT_DEVICE void mt_take(T (&to)[N], const T *from, bool there = true) {
    enum { BYTES = N * sizeof(T) > 16 ? 16 : N * sizeof(T), EACH = BYTES / sizeof(T) };
    union part {
        typename mt_word<BYTES>::type word;
        T element[EACH];
    };
#pragma unroll
    for (int i = 0; i < N; i += EACH) {
        part p = {};
        if (there) p.word = *(const typename mt_word<BYTES>::type *)(from + i);
#pragma unroll
        for (int j = 0; j < EACH; j++) to[i + j] = p.element[j];
    }
}
template <typename T, int N> MT_DEVICE void mt_put(T *to, const T (&from)[N]) {
    enum { BYTES = N * sizeof(T) > 16 ? 16 : N * sizeof(T), EACH = BYTES / sizeof(T) };
    union part {
        typename mt_word<BYTES>::type word;
        T element[EACH];
    };
#pragma unroll
    for (int i = 0; i < N; i += EACH) {
        part p;
#pragma unroll
        for (int j = 0; j < EACH; j++) p.element[j] = from[i + j];
        *(typename mt_word<BYTES>::type *)(to + i) = p.word;
    }
}
template <typename T, int N> MT_DEVICE bool mt_aligned(const T *p) {
    return ((size_t)p & (N * sizeof(T) > 16 ? 15 : N * sizeof(T) - 1)) == 0;
}

/* From a tensor: the elements low .. high - 1 of the N at `from` are there, the others read as `zero`. */
template <typename T, int N> MT_DEVICE void mt_load(T (&to)[N], const T *from, int low, int high, T zero) {
    if (low <= 0 && high >= N && mt_aligned<T, N>(from))
        mt_take(to, from);
    else {
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = j >= low && j < high ? from[j] : zero;
    }
}
/* All of them or none; ALIGNED: at a multiple of their bytes, or of 16. */
template <bool ALIGNED, typename T, int N> MT_DEVICE void mt_load_if(T (&to)[N], const T *from, bool there) {
    if (ALIGNED)
        mt_take(to, from, there);
    else if (there && mt_aligned<T, N>(from))
        mt_take(to, from);
    else {
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = there ? from[j] : (T)0;
    }
}
template <typename T, int N> MT_DEVICE void mt_load(T (&to)[N], const T *from) {
    if (mt_aligned<T, N>(from))
        mt_take(to, from);
    else {
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = from[j];
    }
}
template <typename T, int N> MT_DEVICE void mt_store(T *to, const T (&from)[N], int low, int high) {
    if (low <= 0 && high >= N && mt_aligned<T, N>(to))
        mt_put(to, from);
    else {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (j >= low && j < high) to[j] = from[j];
    }
}

/* Of `count` elements that begin at `start`, those that are in [0, extent). */
typedef struct mt_part {
    int low, high;
} mt_part;
MT_DEVICE mt_part mt_part_of(int64_t start, int64_t extent, int count) {
    const mt_part p = {(int)mt_clamp(-start, 0, count), (int)mt_clamp(extent - start, 0, count)};
    return p;
}
MT_DEVICE bool mt_within(int i, mt_part p) { return i >= p.low && i < p.high; }

/* ---- weights in their layouts (emit_cuda.h) ---- */

MT_DEVICE uint16_t mt_atom_element(const void *data, int64_t n, int64_t k, int atoms) {
    const char *atom = (const char *)data + ((n >> 3) * atoms + (k >> 6)) * 1024;
    return *(const uint16_t *)(atom + (n & 7) * 128 + (((k >> 3 & 7) ^ (n & 7)) << 4) + (k & 7) * 2);
}
/* The block with element (n, k): bands of `band` columns, their rows `row` bytes apart, those of the last band
 * `last_row`. */
MT_DEVICE const uint8_t *mt_band_block(const void *data, int64_t n, int64_t k, int band, int bands, int row,
                                       int last_row, int block, int block_bytes) {
    const int64_t at = k / band;
    const uint8_t *eight =
        (const uint8_t *)data + (n >> 3) * 8 * ((int64_t)(bands - 1) * row + last_row) + at * 8 * row;
    return eight + (n & 7) * (at == bands - 1 ? last_row : row) + (k - at * band) / block * block_bytes;
}

/* ---- adding up ----
 * Trees over lanes and sums over warps have one order, whatever the data. */

template <typename T> struct mt_best {
    T value;
    int index;
}; /* index -1: nothing yet */
template <typename T> MT_DEVICE void mt_best_of(mt_best<T> &best, T value, int index) {
    if (value == value && (best.index < 0 || value > best.value)) best.value = value, best.index = index;
}

enum { MT_SUM, MT_LARGEST, MT_SMALLEST };
MT_DEVICE float mt_join(float a, float b, int how) {
    return how == MT_SUM ? a + b : how == MT_LARGEST ? mt_max_f32(a, b) : mt_min_f32(a, b);
}
MT_DEVICE double mt_join(double a, double b, int how) {
    return how == MT_SUM ? a + b : how == MT_LARGEST ? mt_max_f64(a, b) : mt_min_f64(a, b);
}
MT_DEVICE int32_t mt_join(int32_t a, int32_t b, int how) {
    return how == MT_SUM ? (int32_t)((uint32_t)a + (uint32_t)b) : how == MT_LARGEST ? mt_max32(a, b) : mt_min32(a, b);
}
MT_DEVICE uint32_t mt_join(uint32_t a, uint32_t b, int how) {
    return how == MT_SUM ? a + b : how == MT_LARGEST ? mt_maxu32(a, b) : mt_minu32(a, b);
}
MT_DEVICE int64_t mt_join(int64_t a, int64_t b, int how) {
    return how == MT_SUM ? (int64_t)((uint64_t)a + (uint64_t)b) : how == MT_LARGEST ? mt_max(a, b) : mt_min(a, b);
}
MT_DEVICE uint64_t mt_join(uint64_t a, uint64_t b, int how) {
    return how == MT_SUM ? a + b : (how == MT_LARGEST) == (a > b) ? a : b;
}

/* Of the lanes from..LANES - 1 apart: all lanes of a group of LANES get the group's result. */
template <int LANES, typename T> MT_DEVICE T mt_join_lanes(T v, int how) {
#pragma unroll
    for (int o = LANES / 2; o > 0; o /= 2) v = mt_join(v, mt_shuffle_xor(v, o), how);
    return v;
}
/* Of the groups of LANES lanes in a warp: lane i of every group gets the result of all lanes i. */
template <int LANES, typename T> MT_DEVICE T mt_join_groups(T v, int how) {
#pragma unroll
    for (int o = LANES; o < 32; o *= 2) v = mt_join(v, mt_shuffle_xor(v, o), how);
    return v;
}
template <typename T> MT_DEVICE mt_best<T> mt_best_lane(mt_best<T> v) {
#pragma unroll
    for (int o = 16; o > 0; o /= 2) {
        const mt_best<T> other = {mt_shuffle_xor(v.value, o), mt_shuffle_xor(v.index, o)};
        const bool wins = other.index >= 0 &&
                          (v.index < 0 || other.value > v.value || (other.value == v.value && other.index < v.index));
        if (wins) v = other;
    }
    return v;
}
/* What all warps left, `stride` elements apart. */
template <typename T> MT_DEVICE T mt_parts(const T *parts, int stride, int how) {
    T v = parts[0];
#pragma unroll
    for (int w = 1; w < CUDA_WARPS; w++) v = mt_join(v, parts[w * stride], how);
    return v;
}
template <typename T, int N> MT_DEVICE void mt_take_parts(T (&to)[N], const T *parts, int stride, int how) {
    mt_take(to, parts);
#pragma unroll
    for (int w = 1; w < CUDA_WARPS; w++) {
        T part[N];
        mt_take(part, parts + w * stride);
#pragma unroll
        for (int j = 0; j < N; j++) to[j] = mt_join(to[j], part[j], how);
    }
}

#endif
