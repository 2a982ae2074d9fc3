/* Tests src/tile/type.c against references that share nothing with it: types of up to 8 bits against the textbook
 * formula and a search through all codes, wider ones against the host's own float and bit moves, both against PyPI's
 * ml_dtypes (oracle_type.py), and packed storage against a stream of single bits. */
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tile/type.h"

#define FAIL(...) (print_error(__VA_ARGS__), fail())

static uint64_t random_state = 1;

static uint64_t random_u64(void) { /* splitmix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double from_bits(uint64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static const tile_format *named(const char *name) {
    const tile_format *f = tile_format_scalar(name, strlen(name));
    if (!f) FAIL("no type %s\n", name);
    return f;
}

/* Equal as values, with the sign of zero; NaN equals NaN. */
static bool same(double a, double b) { return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b); }

static void check_decode(const tile_format *f, uint64_t code, double expected) {
    const double got = tile_scalar_decode(f->scalar, code);
    if (!same(got, expected)) FAIL("%s code %#llx: %a, not %a\n", f->name, (unsigned long long)code, got, expected);
}

static void check_encode(const tile_format *f, double value, uint64_t expected) {
    const uint64_t got = tile_scalar_encode(f->scalar, value);
    if (got != expected)
        FAIL("%s of %a: %#llx, not %#llx\n", f->name, value, (unsigned long long)got, (unsigned long long)expected);
}

/* The reference for types of up to 8 bits -------------------------------------------------------------------------- */

/* A type by its definition, and all its finite numbers in rising order; -0 stands just before 0. */
typedef struct small {
    char name[8];
    enum { BOOL, SIGNED, UNSIGNED, REAL, SCALE } kind;
    int bits, x, y; /* exponent and mantissa widths */
    int count;
    struct number {
        double value;
        int code;
    } numbers[256];
} small;

static bool is_e4m3(const small *t) { return t->kind == REAL && t->x == 4 && t->y == 3; }
static bool is_e5m2(const small *t) { return t->kind == REAL && t->x == 5 && t->y == 2; }

static double reference_decode(const small *t, int code) {
    const int codes = 1 << t->bits;
    switch (t->kind) {
    case BOOL:
        return code ? 1 : 0;
    case UNSIGNED:
        return code;
    case SIGNED:
        return code < codes / 2 ? code : code - codes;
    case SCALE:
        return code == 255 ? NAN : pow(2, code - 127);
    default:
        break;
    }
    const double sign = code < codes / 2 ? 1 : -1;
    const int magnitude = code % (codes / 2), exponent = magnitude / (1 << t->y);
    const double fraction = (double)(magnitude % (1 << t->y)) / (1 << t->y);
    const double bias = pow(2, t->x - 1) - 1;
    if (is_e4m3(t) && magnitude == 0x7f) return NAN;
    if (is_e5m2(t) && magnitude > 0x7c) return NAN;
    if (is_e5m2(t) && magnitude == 0x7c) return sign * INFINITY;
    return exponent ? sign * pow(2, exponent - bias) * (1 + fraction) : sign * pow(2, 1 - bias) * fraction;
}

static int compare_numbers(const void *a, const void *b) {
    const struct number *p = a, *q = b;
    if (p->value != q->value) return p->value < q->value ? -1 : 1;
    return signbit(q->value) != 0 ? 1 : signbit(p->value) != 0 ? -1 : 0;
}

static void list_numbers(small *t) {
    t->count = 0;
    for (int code = 0; code < (t->kind == BOOL ? 2 : 1 << t->bits); code++) {
        const double value = reference_decode(t, code);
        if (isfinite(value)) t->numbers[t->count++] = (struct number){value, code};
    }
    qsort(t->numbers, (size_t)t->count, sizeof *t->numbers, compare_numbers);
}

typedef void small_check(const small *t);

static void call(small_check *check, int kind, const char *name, int bits, int x, int y) {
    small t = {.kind = kind, .bits = bits, .x = x, .y = y};
    snprintf(t.name, sizeof t.name, "%s", name);
    list_numbers(&t);
    check(&t);
}

/* Calls check for every type of up to 8 bits and returns how many there are. */
static int each_small_type(small_check *check) {
    int types = 2;
    char name[32];
    call(check, BOOL, "bool", 8, 0, 0);
    call(check, SCALE, "e8m0", 8, 8, 0);
    for (int bits = 1; bits <= 8; bits++, types += 2) {
        snprintf(name, sizeof name, "i%d", bits), call(check, SIGNED, name, bits, 0, 0);
        snprintf(name, sizeof name, "u%d", bits), call(check, UNSIGNED, name, bits, 0, 0);
    }
    for (int bits = 3; bits <= 8; bits++)
        for (int x = 1, y = bits - 2; y >= 0; x++, y--, types++)
            snprintf(name, sizeof name, "e%dm%d", x, y), call(check, REAL, name, bits, x, y);
    return types;
}

/* The nearest number, by search. The middle of two neighbours is exact in a double, so that the comparison is exact. */
static int reference_encode(const small *t, double value) {
    const struct number *n = t->numbers;
    const bool real = t->kind == REAL || t->kind == SCALE;
    if (isnan(value)) return is_e4m3(t) ? 0x7f : is_e5m2(t) ? 0x7e : t->kind == SCALE ? 0xff : 0;
    int i = t->count - 1;
    while (i > 0 && n[i].value > value) i--; /* the largest number that is not above the value */
    if (i + 1 < t->count && value > n[i].value) {
        const double middle = (n[i].value + n[i + 1].value) / 2;
        if (value > middle) {
            i++;
        } else if (value == middle) {
            /* To the even code, and for numbers of the one significand 1 to the larger magnitude. */
            const bool powers = real && t->y == 0 && n[i].value != 0 && n[i + 1].value != 0;
            i += powers ? value > 0 : n[i].code % 2 != 0;
        }
    }
    if (n[i].value == 0 && t->kind == REAL) return signbit(value) ? 1 << (t->bits - 1) : 0;
    return n[i].code;
}

/* Names, fields and bounds ----------------------------------------------------------------------------------------- */

static void check_fields(const small *t) {
    const tile_format *f = named(t->name);
    assert_string_equal(f->name, t->name);
    assert_int_equal(f->block, 1);
    assert_int_equal(f->bits, t->bits);
    assert_false(tile_format_is_block(f));
    assert_int_equal(f->scalar.bits, t->bits);
    assert_int_equal(f->scalar.kind, t->kind == BOOL       ? TILE_BOOL
                                     : t->kind == SIGNED   ? TILE_INT
                                     : t->kind == UNSIGNED ? TILE_UINT
                                                           : TILE_FLOAT);
    assert_int_equal(f->scalar.exponent, t->x);
    assert_int_equal(f->scalar.mantissa, t->y);
    assert_int_equal(f->scalar.is_unsigned, t->kind == SCALE);
    if (t->x) assert_int_equal(tile_scalar_bias(f->scalar), (int)pow(2, t->x - 1) - 1);
    assert_true(tile_scalar_max(f->scalar) == t->numbers[t->count - 1].value);
    const char longer[] = {t->name[0], t->name[1], t->name[2], t->name[3], '7', 0};
    assert_ptr_equal(tile_format_scalar(longer, strlen(t->name)), f); /* a name inside a longer text */
}

static void test_names(void **state) {
    (void)state;
    assert_int_equal(each_small_type(check_fields), 2 + 16 + 27);
    static const struct {
        const char *name;
        int kind, bits, x, y;
        double max;
    } wide[] = {
        {"i16", TILE_INT, 16, 0, 0, 32767},      {"u16", TILE_UINT, 16, 0, 0, 65535},
        {"i32", TILE_INT, 32, 0, 0, 2147483647}, {"u32", TILE_UINT, 32, 0, 0, 4294967295},
        {"i64", TILE_INT, 64, 0, 0, 0x1p63},     {"u64", TILE_UINT, 64, 0, 0, 0x1p64},
        {"f16", TILE_FLOAT, 16, 5, 10, 65504},   {"bf16", TILE_FLOAT, 16, 8, 7, 0x1.fep127},
        {"f32", TILE_FLOAT, 32, 8, 23, FLT_MAX}, {"f64", TILE_FLOAT, 64, 11, 52, DBL_MAX},
    };
    for (size_t i = 0; i < COUNT_OF(wide); i++) {
        const tile_scalar t = named(wide[i].name)->scalar;
        assert_int_equal(t.kind, wide[i].kind);
        assert_int_equal(t.bits, wide[i].bits);
        assert_int_equal(t.exponent, wide[i].x);
        assert_int_equal(t.mantissa, wide[i].y);
        if (t.kind == TILE_FLOAT) assert_int_equal(t.special, TILE_IEEE);
        assert_true(tile_scalar_max(t) == wide[i].max);
    }
    static const char *const unknown[] = {"",      "i",    "i0",    "i9",   "i08",  "i128",  "u",
                                          "u12",   "f",    "f8",    "f128", "e",    "em",    "e0m3",
                                          "e1m0",  "e4m4", "e8m0x", "e8m1", "e9m0", "e5m",   "m3",
                                          "e4m-1", "E4M3", "e04m3", " f32", "f32 ", "bool8", "q4_1"};
    for (size_t i = 0; i < COUNT_OF(unknown); i++) assert_null(tile_format_scalar(unknown[i], strlen(unknown[i])));
    assert_null(tile_format_scalar("f32", 4)); /* with its NUL */
    assert_null(tile_format_scalar(NULL, 0));
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t count, bytes;
    } cases[] = {
        {"f32", 0, 0},
        {"f32", 3, 12},
        {"u1", 1, 1},
        {"u1", 8, 1},
        {"u1", 9, 2},
        {"i3", 2, 1},
        {"i3", 3, 2},
        {"e2m3", 4, 3},
        {"u7", 8, 7},
        {"u7", 9, 8},
        {"u5", 7, 5},
        {"u8", INT64_MAX, INT64_MAX},
        {"u1", INT64_MAX, INT64_MAX / 8 + 1},
        {"u7", INT64_MAX, INT64_MAX / 8 * 7 + 7},
        {"f64", INT64_MAX, -1},
        {"f64", INT64_MAX / 8, INT64_MAX - 7},
        {"f64", INT64_MAX / 8 + 1, -1},
        {"u16", INT64_MAX / 2 + 1, -1},
        {"u16", INT64_MAX / 2, INT64_MAX - 1},
        {"f32", -1, -1},
        {"f32", INT64_MIN, -1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (tile_format_bytes(named(cases[i].name), cases[i].count) != cases[i].bytes)
            FAIL("bytes of %lld %s\n", (long long)cases[i].count, cases[i].name);
    const tile_format block = {.name = "q", .scalar = named("f32")->scalar, .block = 32, .bits = 8 * 18};
    assert_int_equal(tile_format_bytes(&block, 0), 0);
    assert_int_equal(tile_format_bytes(&block, 32), 18);
    assert_int_equal(tile_format_bytes(&block, 32 * 1001), 18 * 1001);
    assert_int_equal(tile_format_bytes(&block, 33), -1);
    assert_int_equal(tile_format_bytes(&block, -32), -1);
    const tile_format large = {.name = "q", .scalar = named("f32")->scalar, .block = 2, .bits = 8 * 1000};
    assert_int_equal(tile_format_bytes(&large, INT64_MAX - 1), -1);
}

/* Types of up to 8 bits -------------------------------------------------------------------------------------------- */

static void check_small_decode(const small *t) {
    const tile_format *f = named(t->name);
    for (int code = 0; code < 1 << t->bits; code++) {
        check_decode(f, (uint64_t)code, reference_decode(t, code));
        if (t->bits < 64) check_decode(f, (uint64_t)code | ~(uint64_t)0 << t->bits, reference_decode(t, code));
    }
}

static void check_small_encode(const small *t) {
    const tile_format *f = named(t->name);
#define PROBE(v) (probe = (v), check_encode(f, probe, (uint64_t)reference_encode(t, probe)))
    double probe;
    for (int i = 0; i < t->count; i++) {
        check_encode(f, t->numbers[i].value, (uint64_t)t->numbers[i].code); /* every code comes back */
        const double v = t->numbers[i].value, next = i + 1 < t->count ? t->numbers[i + 1].value : 2 * v + 1;
        const double middle = v / 2 + next / 2;
        PROBE(v);
        PROBE(nextafter(v, INFINITY)), PROBE(nextafter(v, -INFINITY));
        PROBE(middle), PROBE(nextafter(middle, INFINITY)), PROBE(nextafter(middle, -INFINITY));
        /* Just off the middle by less than a float, half or bfloat16 can see: a detour through one of them shows. */
        PROBE(middle * (1 + 0x1p-30)), PROBE(middle * (1 - 0x1p-30));
        PROBE(middle * (1 + 0x1p-9)), PROBE(middle * (1 - 0x1p-9));
        for (int k = 0; k < 20; k++) PROBE(v + (next - v) * ((double)(random_u64() >> 11) * 0x1p-53));
    }
    static const double special[] = {0.0,
                                     INFINITY,
                                     NAN,
                                     DBL_MAX,
                                     DBL_MIN,
                                     DBL_TRUE_MIN,
                                     0x1p63,
                                     0x1p64,
                                     0x1p52,
                                     0x1p53,
                                     0.5,
                                     1.5,
                                     2.5,
                                     0x1.fffffffffffffp-2,
                                     127.5,
                                     128.5,
                                     254.5,
                                     255.5,
                                     256,
                                     448,
                                     464,
                                     480,
                                     57344,
                                     61440,
                                     65536,
                                     0x1p127,
                                     0x1.7fffffffffffcp127,
                                     0x1.8p127,
                                     0x1p-127,
                                     0x1p-128};
    for (size_t i = 0; i < COUNT_OF(special); i++) PROBE(special[i]), PROBE(-special[i]);
    for (int i = 0; i < 5000; i++) {
        PROBE(from_bits(random_u64())); /* all magnitudes, NaN too */
        PROBE(ldexp((double)(int64_t)random_u64(), (int)(random_u64() % 80) - 70 - 40));
    }
#undef PROBE
}

static void test_small_decode(void **state) {
    (void)state;
    each_small_type(check_small_decode);
}

static void test_small_encode(void **state) {
    (void)state;
    each_small_type(check_small_encode);
}

/* The types of the OCP standards, spelled out: their largest, smallest normal, smallest subnormal. */
static void test_standard_numbers(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double max, normal, subnormal;
    } cases[] = {
        {"e4m3", 448, 0x1p-6, 0x1p-9}, {"e5m2", 57344, 0x1p-14, 0x1p-16},
        {"e3m2", 28, 0.25, 0.0625},    {"e2m3", 7.5, 1, 0.125},
        {"e2m1", 6, 1, 0.5},           {"f16", 65504, 0x1p-14, 0x1p-24},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const tile_scalar t = named(cases[i].name)->scalar;
        assert_true(tile_scalar_max(t) == cases[i].max);
        assert_true(tile_scalar_decode(t, (uint64_t)1 << t.mantissa) == cases[i].normal);
        assert_true(tile_scalar_decode(t, 1) == cases[i].subnormal);
    }
    const tile_format *e4m3 = named("e4m3"), *e5m2 = named("e5m2"), *e8m0 = named("e8m0"), *e2m1 = named("e2m1");
    check_encode(e4m3, 1e9, 0x7e), check_encode(e4m3, -INFINITY, 0xfe), check_encode(e4m3, NAN, 0x7f);
    check_encode(e5m2, 1e9, 0x7b), check_encode(e5m2, INFINITY, 0x7b), check_encode(e5m2, -NAN, 0x7e);
    check_encode(e8m0, 0, 0), check_encode(e8m0, -1, 0), check_encode(e8m0, 1, 127), check_encode(e8m0, INFINITY, 254);
    check_encode(e2m1, NAN, 0), check_encode(e2m1, -0.25, 8), check_encode(e2m1, -0.0, 8), check_encode(e2m1, 5, 6);
}

/* Wider types ------------------------------------------------------------------------------------------------------ */

/* Codes from `first` to infinity's in steps, with both signs: the number itself, and the middle to the next one. */
static void check_middles(const tile_format *f, uint64_t first, uint64_t step) {
    const tile_scalar t = f->scalar;
    const uint64_t sign = (uint64_t)1 << (t.bits - 1), infinity = (((uint64_t)1 << t.exponent) - 1) << t.mantissa;
    for (uint64_t code = first; code < infinity; code += step) {
        const double v = tile_scalar_decode(t, code);
        /* Beyond the largest number the grid goes on as if there were one more; from its middle on it is infinity. */
        const double next =
            code + 1 < infinity ? tile_scalar_decode(t, code + 1) : 2 * v - tile_scalar_decode(t, code - 1);
        const double middle = (v + next) / 2;
        const uint64_t even = code + code % 2;
        const struct {
            double value;
            uint64_t code;
        } probes[] = {
            {v, code},      {nextafter(v, INFINITY), code},          {nextafter(middle, 0), code},
            {middle, even}, {nextafter(middle, INFINITY), code + 1}, {nextafter(next, 0), code + 1},
        };
        assert_true(v < middle && middle < next);
        for (size_t i = 0; i < COUNT_OF(probes); i++) {
            check_encode(f, probes[i].value, probes[i].code);
            check_encode(f, -probes[i].value, probes[i].code | sign);
        }
    }
}

static void test_f16(void **state) {
    (void)state;
    const tile_format *f = named("f16");
    for (int code = 0; code < 65536; code++) {
        const int exponent = code >> 10 & 31, fraction = code & 1023;
        double v = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
        if (code & 0x8000) v = -v;
        check_decode(f, (uint64_t)code, v);
        check_encode(f, v, isnan(v) ? 0x7e00 : (uint64_t)code);
    }
    check_middles(f, 0, 1);
    check_encode(f, 65519.99, 0x7bff), check_encode(f, 65520, 0x7c00), check_encode(f, -1e300, 0xfc00);
    check_encode(f, 0x1p-25, 0), check_encode(f, 0x1.0000000000001p-25, 1), check_encode(f, -DBL_TRUE_MIN, 0x8000);
    /* Through a float both of these would first land on a middle and then go the wrong way. */
    check_encode(f, 1 + 0x1p-11 + 0x1p-40, 0x3c01), check_encode(f, 1 + 3 * 0x1p-11 - 0x1p-40, 0x3c01);
}

static float float_from_bits(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void test_bf16(void **state) {
    (void)state;
    const tile_format *f = named("bf16");
    for (uint32_t code = 0; code < 65536; code++) {
        const double v = (double)float_from_bits(code << 16);
        check_decode(f, code, v);
        check_encode(f, v, isnan(v) ? 0x7fc0 : code);
    }
    check_middles(f, 0, 1);
}

static void test_f32(void **state) {
    (void)state;
    const tile_format *f = named("f32");
    for (int i = 0; i < 200000; i++) {
        const uint32_t code = (uint32_t)random_u64();
        const float v = float_from_bits(i % 4 ? code : code & 0x807fffff); /* every fourth is subnormal */
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        check_decode(f, bits, (double)v);
        /* The host's own rounding of a double that lies somewhere near, with 29 random bits more. */
        const double d = isfinite(v) ? (double)v * (1 + (double)(int64_t)random_u64() * 0x1p-84) : (double)v;
        const float rounded = (float)d;
        memcpy(&bits, &rounded, sizeof bits);
        check_encode(f, d, isnan(d) ? 0x7fc00000 : bits);
    }
    check_middles(f, 0, 65521); /* a prime */
    check_middles(f, 0x7f7fff00, 1);
    check_middles(f, 0x007fff80, 8388593);
}

static void test_f64(void **state) {
    (void)state;
    const tile_format *f = named("f64");
    for (int i = 0; i < 200000; i++) {
        const uint64_t code = random_u64() & (i % 4 ? UINT64_MAX : 0x800fffffffffffffu);
        const double v = from_bits(code);
        check_decode(f, code, v);
        check_encode(f, v, isnan(v) ? 0x7ff8000000000000u : code);
    }
    check_encode(f, INFINITY, 0x7ff0000000000000u), check_encode(f, -0.0, (uint64_t)1 << 63);
    check_encode(f, DBL_TRUE_MIN, 1);
}

static void test_wide_integers(void **state) {
    (void)state;
    const tile_format *i16 = named("i16"), *u16 = named("u16"), *i32 = named("i32"), *u32 = named("u32");
    const tile_format *i64 = named("i64"), *u64 = named("u64");
    for (int i = -70000; i <= 70000; i++) { /* halves too */
        const double v = i + (i % 3) * 0.5;
        const long n = lrint(v);
        check_encode(i16, v, (uint64_t)(n < -32768 ? -32768 : n > 32767 ? 32767 : n) & 0xffff);
        check_encode(u16, v, (uint64_t)(n < 0 ? 0 : n > 65535 ? 65535 : n));
        if (i >= 0 && i < 65536) check_decode(u16, (uint64_t)i, i), check_decode(i16, (uint64_t)i, (int16_t)i);
    }
    for (int i = 0; i < 100000; i++) {
        const uint64_t r = random_u64() >> random_u64() % 64;
        check_decode(i64, r, (double)(int64_t)r), check_decode(u64, r, (double)r);
        check_decode(i32, r, (double)(int32_t)r), check_decode(u32, r, (double)(uint32_t)r);
        const double v = ldexp((double)(int64_t)random_u64(), -(int)(random_u64() % 70) - 1); /* within i64 */
        const int64_t n = llrint(v);
        check_encode(i64, v, (uint64_t)n);
        check_encode(u64, v, n < 0 ? 0 : (uint64_t)n);
        check_encode(i32, v, (uint32_t)(n < INT32_MIN ? INT32_MIN : n > INT32_MAX ? INT32_MAX : n));
        check_encode(u32, v, n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint64_t)n);
    }
    const uint64_t top = (uint64_t)1 << 63;
    check_encode(i64, 0x1p63, INT64_MAX), check_encode(i64, -0x1p63, top), check_encode(i64, 1e300, INT64_MAX);
    check_encode(i64, -INFINITY, top), check_encode(i64, 0x1.fffffffffffffp62, 0x7ffffffffffffc00u);
    check_encode(u64, 0x1p63, top), check_encode(u64, 0x1.fffffffffffffp63, 0xfffffffffffff800u);
    check_encode(u64, 0x1p64, UINT64_MAX), check_encode(u64, INFINITY, UINT64_MAX), check_encode(u64, -1, 0);
    check_encode(i64, NAN, 0), check_encode(u64, NAN, 0);
    check_encode(i32, -0.5, 0), check_encode(i32, -1.5, 0xfffffffeu);
}

/* No rounding mode of the caller's may show. */
static void test_rounding_modes(void **state) {
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    const tile_format *types[] = {named("f16"), named("f32"), named("e4m3"), named("e2m1"), named("i8"), named("i32")};
    for (size_t t = 0; t < COUNT_OF(types); t++)
        for (int i = 0; i < 3000; i++) {
            const uint64_t exponent = 0x3c0 + random_u64() % 0x80;
            const double v = from_bits((random_u64() & 0x800fffffffffffffu) | exponent << 52);
            const uint64_t code = tile_scalar_encode(types[t]->scalar, v);
            const double back = tile_scalar_decode(types[t]->scalar, code);
            for (size_t m = 0; m < COUNT_OF(modes); m++) {
                fesetround(modes[m]);
                const uint64_t code_m = tile_scalar_encode(types[t]->scalar, v);
                const double back_m = tile_scalar_decode(types[t]->scalar, code_m);
                fesetround(FE_TONEAREST);
                assert_true(code_m == code && same(back_m, back));
            }
        }
}

/* Packed storage --------------------------------------------------------------------------------------------------- */

/* Sets elements in a buffer of exactly the format's bytes, all of them and then random ones, and after each compares
 * all bytes with a stream of bits written one by one. What lies behind the last element must keep its bits. */
static void check_packed(const tile_format *f, int64_t count) {
    const int64_t size = tile_format_bytes(f, count);
    assert_true(size >= 0);
    uint8_t *data = malloc((size_t)size + !size), *expected = malloc((size_t)size + !size);
    assert_true(data && expected);
    for (int64_t i = 0; i < size; i++) data[i] = expected[i] = (uint8_t)random_u64();
    for (int64_t i = 0; i < 2 * count; i++) {
        const int64_t index = i < count ? count - 1 - i : (int64_t)(random_u64() % (uint64_t)count);
        double v = tile_scalar_decode(f->scalar, random_u64());
        if (isnan(v)) v = 1;
        const uint64_t code = tile_scalar_encode(f->scalar, v);
        for (int b = 0; b < f->bits; b++) {
            const int64_t bit = index * f->bits + b;
            const uint8_t one = (uint8_t)(1 << bit % 8);
            expected[bit / 8] = (uint8_t)((expected[bit / 8] & ~one) | (code >> b & 1 ? one : 0));
        }
        tile_format_set(f, data, index, v);
        if (memcmp(data, expected, (size_t)size)) FAIL("%s[%lld]\n", f->name, (long long)index);
        const double got = tile_format_get(f, data, index), want = tile_scalar_decode(f->scalar, code);
        if (!same(got, want)) FAIL("%s[%lld]: %a, not %a\n", f->name, (long long)index, got, want);
    }
    free(data);
    free(expected);
}

static void check_packed_small(const small *t) {
    for (int64_t count = 1; count <= 19; count++) check_packed(named(t->name), count);
    check_packed(named(t->name), 515);
}

static void test_packed(void **state) {
    (void)state;
    each_small_type(check_packed_small);
    static const char *const wide[] = {"i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"};
    for (size_t i = 0; i < COUNT_OF(wide); i++) check_packed(named(wide[i]), 1), check_packed(named(wide[i]), 37);
    /* The order of bits: element 0 in the low bits of byte 0. */
    const uint8_t nibbles[] = {0x21, 0x43}, threes[] = {0xd1, 0xd9, 0x1c};
    for (int i = 0; i < 4; i++) assert_true(tile_format_get(named("u4"), nibbles, i) == i + 1);
    static const int values[] = {1, 2, 7, 4, 5, 1, 7, 0};
    for (int i = 0; i < 8; i++) assert_true(tile_format_get(named("u3"), threes, i) == values[i]);
}

/* ml_dtypes -------------------------------------------------------------------------------------------------------- */

static void test_against_ml_dtypes(void **state) {
    (void)state;
    assert_int_equal(setenv("TYPE_ORACLE", MONOTILE_SOURCE_FOLDER "/tests/oracle_type.py", 1), 0);
    FILE *oracle = popen("\"${MONOTILE_PYTHON:-python3}\" \"$TYPE_ORACLE\"", "r");
    assert_non_null(oracle);
    int decoded = 0, encoded = 0, wrong = 0;
    char line[256], name[8], first[64], second[64], what;
    while (fgets(line, sizeof line, oracle)) {
        if (sscanf(line, "%c%*s %7s %63s %63s", &what, name, first, second) != 4) FAIL("not a fact: %s\n", line);
        const tile_format *f = tile_format_scalar(name, strlen(name));
        if (!f) FAIL("no type %s\n", name);
        if (what == 'd') {
            decoded++;
            if (same(tile_scalar_decode(f->scalar, strtoull(first, NULL, 10)), strtod(second, NULL))) continue;
        } else {
            encoded++;
            if (tile_scalar_encode(f->scalar, strtod(first, NULL)) == strtoull(second, NULL, 10)) continue;
        }
        if (wrong++ < 20) print_error("differs: %s", line);
    }
    const int status = pclose(oracle);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 3 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: no Python with ml_dtypes and numpy ($MONOTILE_PYTHON, else python3)\n");
        skip();
    }
    assert_int_equal(status, 0);
    print_message("ml_dtypes: %d codes decoded, %d numbers encoded, %d differ\n", decoded, encoded, wrong);
    assert_int_equal(wrong, 0);
    assert_int_equal(decoded, 3 * 256 + 2 * 64 + 3 * 16 + 2 * 4 + 2 * 65536);
    assert_true(encoded > 400000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_small_decode),
        cmocka_unit_test(test_small_encode),
        cmocka_unit_test(test_standard_numbers),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_wide_integers),
        cmocka_unit_test(test_rounding_modes),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_against_ml_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
