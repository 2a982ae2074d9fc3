/* What emitted code is written in, part one: conversions, arithmetic and rows, for one element at a time.
 *
 * This file is pasted, as it is, into every translation unit that emit_c writes. All functions are total: no value of
 * their arguments traps or is undefined. They are free of branches where a loop over elements may call them, so that
 * the compiler can vectorise the loop; since nothing is contracted or reassociated behind their back (emit_c_flags), an
 * element's result is the same bits in a vector and alone. Elements of tiles are held as C types of their own: f32,
 * f64, the integers; floats of up to 16 bits as their codes; integers of up to 8 bits in int8_t or uint8_t; bool as 0
 * or 1. */
#ifndef CPU_PRELUDE_H
#define CPU_PRELUDE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#if defined __x86_64__
#include <immintrin.h>
#endif

#define MT_FN     static inline __attribute__((unused))
#define MT_INLINE static inline __attribute__((unused, always_inline))
/* Before an innermost loop: MT_VECTORISE when its iterations do not depend on each other, else MT_ROLLED. Neither is
 * unrolled before the compiler vectorises: gcc 12 makes wrong code of nests whose innermost loops of 2 or 4 iterations
 * it has unrolled and then vectorises as groups, where floats are narrowed to integers of 8 or 16 bits. */
#if defined __clang__
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic ignored "-Wpass-failed"
#pragma clang diagnostic ignored "-Wtautological-compare"
#pragma clang diagnostic ignored "-Wbitwise-instead-of-logical"
#define MT_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#define MT_ROLLED
#else
#define MT_VECTORISE _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#define MT_ROLLED    _Pragma("GCC unroll 1")
#endif

/* ---- bits -------------------------------------------------------------------------------------------------------- */

MT_FN float mt_float(uint32_t bits) {
    float f;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}
MT_FN uint32_t mt_bits(float f) {
    uint32_t bits;
    __builtin_memcpy(&bits, &f, sizeof bits);
    return bits;
}
MT_FN double mt_double(uint64_t bits) {
    double f;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}
MT_FN uint64_t mt_bits64(double f) {
    uint64_t bits;
    __builtin_memcpy(&bits, &f, sizeof bits);
    return bits;
}
MT_FN uint16_t mt_get16(const uint8_t *p) {
    uint16_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
MT_FN uint32_t mt_get32(const uint8_t *p) {
    uint32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

/* a * b + c, rounded once where the machine has that, else twice. */
MT_FN float mt_fma(float a, float b, float c) {
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

MT_FN int64_t mt_min(int64_t a, int64_t b) { return a < b ? a : b; }
MT_FN int64_t mt_max(int64_t a, int64_t b) { return a > b ? a : b; }
MT_FN int64_t mt_clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }
MT_FN uint64_t mt_minu64(uint64_t a, uint64_t b) { return a < b ? a : b; }
MT_FN int32_t mt_min32(int32_t a, int32_t b) { return a < b ? a : b; }
MT_FN int32_t mt_max32(int32_t a, int32_t b) { return a > b ? a : b; }
MT_FN uint32_t mt_minu32(uint32_t a, uint32_t b) { return a < b ? a : b; }
MT_FN uint32_t mt_maxu32(uint32_t a, uint32_t b) { return a > b ? a : b; }
MT_FN int64_t mt_abs(int64_t x) { return x < 0 ? (int64_t)(0 - (uint64_t)x) : x; }
MT_FN int32_t mt_abs32(int32_t x) { return x < 0 ? (int32_t)(0 - (uint32_t)x) : x; }
MT_FN int32_t mt_clamp32(int32_t x, int32_t low, int32_t high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}
/* Whether index i is in [0, extent). */
MT_FN int mt_in(int64_t i, int64_t extent) { return (i >= 0) & (i < extent); }

/* Towards minus infinity; a division by zero gives 0, as does the remainder. */
MT_FN int64_t mt_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    const int64_t q = a / b;
    return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
MT_FN int64_t mt_mod(int64_t a, int64_t b) {
    return b == 0 ? 0 : (int64_t)((uint64_t)a - (uint64_t)mt_div(a, b) * (uint64_t)b);
}
MT_FN int64_t mt_ceil_div(int64_t a, int64_t b) { return b == 0 ? 0 : mt_div(a, b) + (mt_mod(a, b) != 0); }

/* Shifts by any count: what is shifted out is gone, and a negative count shifts by nothing. */
MT_FN int64_t mt_shl64(int64_t a, int64_t n) { return n > 63 ? 0 : (int64_t)((uint64_t)a << (n < 0 ? 0 : n)); }
MT_FN int64_t mt_shr64(int64_t a, int64_t n) { return a >> (n > 63 ? 63 : n < 0 ? 0 : n); }
MT_FN int32_t mt_shl32(int32_t a, int32_t n) { return n > 31 ? 0 : (int32_t)((uint32_t)a << (n < 0 ? 0 : n)); }
MT_FN int32_t mt_shr32(int32_t a, int32_t n) { return a >> (n > 31 ? 31 : n < 0 ? 0 : n); }
MT_FN uint32_t mt_shru32(uint32_t a, uint32_t n) { return n > 31 ? 0 : a >> n; }

/* ---- from floats to integers: to nearest, ties to even, saturated; NaN gives 0 -------------------------------------
 */

MT_FN int32_t mt_i32_from_f32(float x) {
    const float r = __builtin_rintf(x), low = r < -0x1p31f ? -0x1p31f : r,
                in = low > 0x1.fffffep30f ? 0x1.fffffep30f : low;
    const int32_t i = (int32_t)(x == x ? in : 0.0f);
    return r >= 0x1p31f ? INT32_MAX : i;
}
/* For limits that f32 holds exactly. */
MT_FN int32_t mt_int_from_f32(float x, float low, float high) {
    float r = __builtin_rintf(x);
    r = r < low ? low : r;
    r = r > high ? high : r;
    return (int32_t)(x == x ? r : 0.0f);
}
MT_FN int64_t mt_i64_from_f64(double x) {
    if (x != x) return 0;
    const double r = __builtin_rint(x);
    return r >= 0x1p63 ? INT64_MAX : r < -0x1p63 ? INT64_MIN : (int64_t)r;
}
MT_FN uint64_t mt_u64_from_f64(double x) {
    const double r = __builtin_rint(x);
    return r >= 0x1p64 ? UINT64_MAX : r > 0.0 ? (uint64_t)r : 0;
}
MT_FN int64_t mt_int_from_f64(double x, int64_t low, int64_t high) { return mt_clamp(mt_i64_from_f64(x), low, high); }

/* ---- floats of up to 16 bits --------------------------------------------------------------------------------------
 * The type is given by its widths and by what its highest codes mean; all three are constants where these are called.
 */

enum { MT_IEEE, MT_NAN, MT_FINITE }; /* infinities and NaN; all bits set is NaN; only numbers */

MT_INLINE float mt_f32_from_float(uint32_t code, int exponent, int mantissa, int special) {
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

MT_INLINE uint32_t mt_float_from_f32(float x, int exponent, int mantissa, int special) {
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
    const uint32_t low = mt_bits(mt_float(bits) + step) - mt_bits(step);
    const uint32_t odd = mantissa ? bits >> shift & 1 : 1; /* the significand's last bit; a tie makes it even */
    const uint32_t rounded = bits + ((1u << (shift - 1)) - 1) + odd;
    const uint32_t high = (rounded >> shift) - ((uint32_t)(127 - bias) << mantissa);
    uint32_t code = bits < (uint32_t)(128 - bias) << 23 ? low : high;
    code = (code > largest ? over : code) | sign;
    return x == x ? code : nan;
}

MT_FN float mt_f32_from_bf16(uint32_t code) { return mt_float(code << 16); }
MT_FN uint32_t mt_bf16_from_f32(float x) {
    const uint32_t bits = mt_bits(x);
    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}
MT_FN float mt_f32_from_f16(uint32_t code) { return mt_f32_from_float(code, 5, 10, MT_IEEE); }
MT_FN uint32_t mt_f16_from_f32(float x) { return mt_float_from_f32(x, 5, 10, MT_IEEE); }
/* 256 is no code of e8m0: it stands for the zero that is read out of range. */
MT_FN float mt_f32_from_e8m0(uint32_t code) {
    const uint32_t bits = code ? code << 23 : 0x00400000u;
    return mt_float(code == 255 ? 0x7fc00000u : code == 256 ? 0 : bits);
}

/* The same from f64, rounded once; also for e8m0 (is_unsigned), which has no zero. Follows tile_scalar_encode step by
 * step. */
MT_FN uint32_t mt_float_from_f64(double x, int exponent, int mantissa, int special, int is_unsigned) {
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
        kept += (rest > half) | ((rest == half) & (kept & 1));
    }
    /* The significand's leading bit adds 1 to the exponent's code, hence - 1. */
    uint64_t code = (uint64_t)((int64_t)(scale + bias - 1) * ((int64_t)1 << mantissa)) + kept;
    if (code > largest) code = special == MT_IEEE && exponent + mantissa > 7 ? infinity : largest;
    return (uint32_t)code | (is_unsigned ? 0 : (uint32_t)negative << (exponent + mantissa));
}

/* ---- functions of f32, within 2 units in the last place -------------------------------------------------------------
 */

/* exp(r) for |r| <= log(2) / 2. */
MT_FN float mt_exp_near_zero(float r) {
    float p = 1.9875691500e-4f;
    p = mt_fma(p, r, 1.3981999507e-3f);
    p = mt_fma(p, r, 8.3334519073e-3f);
    p = mt_fma(p, r, 4.1665795894e-2f);
    p = mt_fma(p, r, 1.6666665459e-1f);
    p = mt_fma(p, r, 5.0000001201e-1f);
    return mt_fma(p * r, r, r) + 1.0f;
}
/* x * 2^n for |n| <= 252, rounded once. */
MT_FN float mt_scale(float x, int32_t n) {
    const int32_t half = n >> 1;
    return x * mt_float((uint32_t)(half + 127) << 23) * mt_float((uint32_t)(n - half + 127) << 23);
}
MT_FN float mt_exp(float x) {
    float y = x > 89.0f ? 89.0f : x;
    y = y < -104.0f ? -104.0f : y;
    const float n = __builtin_rintf(y * 1.44269504f);
    const float r = mt_fma(n, 2.12194440e-4f, mt_fma(n, -0.693359375f, y));
    return mt_scale(mt_exp_near_zero(r), (int32_t)(x == x ? n : 0.0f));
}
MT_FN float mt_exp2(float x) {
    float y = x > 129.0f ? 129.0f : x;
    y = y < -151.0f ? -151.0f : y;
    const float n = __builtin_rintf(y);
    return mt_scale(mt_exp_near_zero((y - n) * 0.693147181f), (int32_t)(x == x ? n : 0.0f));
}

/* x > 0 as (1 + m) * 2^e with sqrt(1/2) <= 1 + m < sqrt(2); log(1 + m) = m + (what is returned). */
MT_FN float mt_log_parts(float x, float *m, float *e) {
    const float y = x < 0x1p-126f ? x * 0x1p23f : x;
    const uint32_t bits = mt_bits(y) - 0x3f3504f3u; /* sqrt(1/2) */
    *e = (float)((int32_t)bits >> 23) - (x < 0x1p-126f ? 23.0f : 0.0f);
    const float f = mt_float((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f, z = f * f;
    float p = 7.0376836292e-2f;
    p = mt_fma(p, f, -1.1514610310e-1f);
    p = mt_fma(p, f, 1.1676998740e-1f);
    p = mt_fma(p, f, -1.2420140846e-1f);
    p = mt_fma(p, f, 1.4249322787e-1f);
    p = mt_fma(p, f, -1.6668057665e-1f);
    p = mt_fma(p, f, 2.0000714765e-1f);
    p = mt_fma(p, f, -2.4999993993e-1f);
    p = mt_fma(p, f, 3.3333331174e-1f);
    *m = f;
    return mt_fma(p, z * f, -0.5f * z);
}
MT_FN float mt_log_special(float x, float y) { /* y is the logarithm where x is positive and finite */
    y = x > 0.0f ? y : x == 0.0f ? -INFINITY : NAN;
    return x == INFINITY ? INFINITY : y;
}
MT_FN float mt_log(float x) {
    float m, e;
    const float p = mt_log_parts(x, &m, &e);
    return mt_log_special(x, mt_fma(e, 0.693359375f, m + mt_fma(e, -2.12194440e-4f, p)));
}
MT_FN float mt_log2(float x) {
    float m, e;
    const float p = mt_log_parts(x, &m, &e);
    return mt_log_special(x, mt_fma(p, 0.442695041f, m * 0.442695041f) + p + m + e);
}

/* Sine and cosine share the reduction by pi / 2, in f64, which is exact enough up to |x| = 1e5 and far beyond. */
MT_FN float mt_sin_quarter(float x, double quarter) {
    const double n = __builtin_rint((double)x * 0.63661977236758134);
    const double r = ((double)x - n * 1.5707963267341256) - n * 6.0771005065061922e-11, z = r * r;
    double s = 2.75573136213857e-6 - z * 2.50507477628503e-8, c = 2.75573143513907e-7 - z * 2.08757232129817e-9;
    s = r + r * z * (-1.6666666666666607e-1 + z * (8.3333333333065e-3 + z * (-1.98412698240592e-4 + z * s)));
    c = 2.48015872894767e-5 - z * c;
    c = 1.0 - 0.5 * z + z * z * (4.1666666666666600e-2 + z * (-1.38888888888741e-3 + z * c));
    const double turn = n + quarter, half = turn - 4.0 * __builtin_floor(turn * 0.25);
    const double y = turn - 2.0 * __builtin_floor(turn * 0.5) > 0.5 ? c : s;
    return (float)(half > 1.5 ? -y : y);
}
MT_FN float mt_sin(float x) { return x == 0.0f ? x : mt_sin_quarter(x, 0.0); }
MT_FN float mt_cos(float x) { return mt_sin_quarter(x, 1.0); }

MT_FN float mt_tanh(float x) {
    const float a = __builtin_fabsf(x), z = x * x, e = mt_exp(2.0f * a);
    float p = -5.70498872745e-3f;
    p = mt_fma(p, z, 2.06390887954e-2f);
    p = mt_fma(p, z, -5.37397155531e-2f);
    p = mt_fma(p, z, 1.33314422036e-1f);
    p = mt_fma(p, z, -3.33332819422e-1f);
    const float far = __builtin_copysignf(1.0f - 2.0f / (e + 1.0f), x);
    return a < 0.625f ? mt_fma(p * z, x, x) : x == x ? far : x;
}
MT_FN float mt_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
/* A number wins over NaN. */
MT_FN float mt_min_f32(float a, float b) { return ((a < b) | (b != b)) ? a : b; }
MT_FN float mt_max_f32(float a, float b) { return ((a > b) | (b != b)) ? a : b; }
MT_FN double mt_min_f64(double a, double b) { return ((a < b) | (b != b)) ? a : b; }
MT_FN double mt_max_f64(double a, double b) { return ((a > b) | (b != b)) ? a : b; }

/* ---- packed elements -----------------------------------------------------------------------------------------------
 */

/* Element i of packed storage with `bits` < 8 bits an element, as its code. Never reads beyond the element's last byte.
 */
MT_FN uint32_t mt_get_bits(const void *data, int64_t i, int bits) {
    const uint8_t *p = (const uint8_t *)data + (i >> 3) * bits;
    const int at = (int)(i & 7) * bits, first = at >> 3, last = (at + bits - 1) >> 3;
    return ((uint32_t)p[first] | (uint32_t)p[last] << 8) >> (at & 7) & ((1u << bits) - 1);
}
/* Writes one. The byte's other elements are read and written back: two instructions that write into one byte conflict.
 */
MT_FN void mt_put_bits(void *data, int64_t i, int bits, uint32_t code) {
    uint8_t *p = (uint8_t *)data + (i >> 3) * bits;
    const int at = (int)(i & 7) * bits, first = at >> 3, last = (at + bits - 1) >> 3;
    const uint32_t mask = ((1u << bits) - 1) << (at & 7), value = code << (at & 7) & mask;
    p[first] = (uint8_t)((p[first] & ~mask) | value);
    if (last != first) p[last] = (uint8_t)((p[last] & ~(mask >> 8)) | value >> 8);
}
/* The `bytes` <= 8 bytes at p as a number. */
MT_INLINE uint64_t mt_get_bytes(const uint8_t *p, int bytes) {
    uint64_t word = 0;
    __builtin_memcpy(&word, p, (size_t)bytes);
    return word;
}
/* `count` codes from element `first` on, one a byte. */
MT_FN void mt_unpack(const void *data, int64_t first, int64_t count, int bits, uint8_t *out) {
    const uint64_t ones = 0x0101010101010101u;
    int64_t i = 0;
    if (!(first & 7)) { /* eight elements at a time, from `bits` bytes */
        const uint8_t *p = (const uint8_t *)data + (first >> 3) * bits;
        for (; i + 8 <= count; i += 8, p += bits) {
            uint64_t word = 0, spread = 0;
            for (int b = 0; b < bits; b++) word |= (uint64_t)p[b] << 8 * b;
#if defined __BMI2__
            spread = _pdep_u64(word, ones * ((1u << bits) - 1));
#else
            for (int e = 0; e < 8; e++) spread |= (word >> e * bits & ((1u << bits) - 1)) << 8 * e;
#endif
            __builtin_memcpy(out + i, &spread, 8);
        }
    }
    (void)ones;
    for (; i < count; i++) out[i] = (uint8_t)mt_get_bits(data, first + i, bits);
}
/* `bits` <= 32 bits from bit `at` on. */
MT_FN uint32_t mt_get_code(const uint8_t *p, int at, int bits) {
    uint64_t word = 0;
    for (int byte = (at + bits - 1) >> 3; byte >= at >> 3; byte--) word = word << 8 | p[byte];
    return (uint32_t)(word >> (at & 7) & (((uint64_t)1 << bits) - 1));
}
MT_FN int32_t mt_sign(uint32_t code, int bits) { return (int32_t)(code << (32 - bits)) >> (32 - bits); }

/* ---- rows of tensors ------------------------------------------------------------------------------------------------
 * A row of a slice is read through a pointer: into the tensor where all that is needed is there, else to a copy that
 * has zeros (codes of zero) where the tensor has nothing. `offset` is the row's element 0, `start` where in the row the
 * slice begins, `extent` the row's elements; `valid` is false for a row that is not there at all. */

typedef struct mt_part {
    int64_t low, high;
} mt_part; /* of the `count` elements, those in range */
MT_FN mt_part mt_part_of(int valid, int64_t start, int64_t extent, int64_t count) {
    mt_part p = {start >= 0 ? 0 : start > -count ? -start : count, extent - start};
    p.high = p.high < count ? p.high : count;
    if (!valid || p.low >= p.high) p.low = p.high = 0;
    return p;
}
MT_FN const void *mt_row(const void *data, int64_t size, int64_t offset, int valid, int64_t start, int64_t extent,
                         int64_t count, void *copy) {
    const mt_part p = mt_part_of(valid, start, extent, count);
    const char *row = (const char *)data + (offset + start) * size;
    if (p.high - p.low == count) return row;
    char *to = (char *)copy;
    if (count > 0) __builtin_memset(to, 0, (size_t)(count * size));
    if (p.high > p.low) __builtin_memcpy(to + p.low * size, row + p.low * size, (size_t)((p.high - p.low) * size));
    return copy;
}
/* Elements of less than 8 bits, one a byte. */
MT_FN const uint8_t *mt_row_bits(const void *data, int bits, int64_t offset, int valid, int64_t start, int64_t extent,
                                 int64_t count, uint8_t *copy) {
    const mt_part p = mt_part_of(valid, start, extent, count);
    if (p.high - p.low < count) __builtin_memset(copy, 0, (size_t)(count > 0 ? count : 0));
    mt_unpack(data, offset + start + p.low, p.high - p.low, bits, copy + p.low);
    return copy;
}

#endif
