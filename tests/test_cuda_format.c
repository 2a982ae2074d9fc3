/* The CUDA decoders of block formats, as the tensor cores take them: pairs of every slice of random blocks (any bits:
 * infinities, subnormals, NaN) against the interpreter of declarations. In bf16 they are its values, rounded; in f16
 * the last operation may have been rounded once instead of twice, which is seen in the middle between two codes. And
 * codes and scales apart: together they are the values, but for roundings to f32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_harness.h"

static const char *const formats[] = {"q4_0",       "q4_1",       "q5_0",        "q5_1",         "q8_0",
                                      "q2_k",       "q3_k",       "q4_k",        "q5_k",         "q6_k",
                                      "mxfp4",      "nvfp4",      "i4_group32",  "i4_group64",   "i4_group128",
                                      "u4_group32", "u4_group64", "u4_group128", "e4m3_block128"};
static const char *const products[] = {"bf16", "f16"};
enum { FORMATS = COUNT_OF(formats), PRODUCTS = COUNT_OF(products), BLOCKS = 300 };

/* A format's decoder; or the one for pairs of its blocks, in bands of rows that have whole pairs. */
typedef struct decoder {
    const tile_format *single, *format; /* of a block; of what the decoder takes */
    int product;
} decoder;

typedef void decode_function(const uint8_t *block, int slice, int q, uint32_t *w);
/* factors: for each half scale, offset and what a pair's number is to be multiplied with. False: there is none.
 */
typedef bool apart_function(const uint8_t *block, int slice, int q, uint32_t *w, float *factors);

static const char apart_text[] =
    "template <typename F> static bool apart(const uint8_t *p, int slice, int q, uint32_t *w, float *f) {\n"
    "    if constexpr (F::APART) {\n"
    "        uint32_t all[4];\n"
    "        float scale[2], offset[2];\n"
    "        F::apart(all, scale, offset, p, slice, q);\n"
    "        memcpy(w, all, sizeof all);\n"
    "        for (int h = 0; h < 2; h++) {\n"
    "            f[3 * h] = scale[h], f[3 * h + 1] = offset[h];\n"
    "            f[3 * h + 2] = ldexpf(1, F::POWER + h * F::HIGHER);\n"
    "        }\n"
    "        return (F::OFFSET || (offset[0] == 0 && offset[1] == 0)) &&\n"
    "               (!F::SAME || !memcmp(&scale[0], &scale[1], 4));\n"
    "    }\n"
    "    return false;\n"
    "}\n";

/* The functions that give a decoder's words, and its codes apart. */
static void add_function(text *more, const char *format, const char *product) {
    text_printf(more,
                "extern \"C\" void decode_%s_%s(const uint8_t *p, int slice, int q, uint32_t *w) {\n"
                "    uint32_t all[4];\n"
                "    mt_format_%s_as_%s::slice(all, p, slice, q);\n"
                "    memcpy(w, all, sizeof all);\n"
                "}\n"
                "extern \"C\" bool apart_%s_%s(const uint8_t *p, int slice, int q, uint32_t *w, float *f) {\n"
                "    return apart<mt_format_%s_as_%s>(p, slice, q, w, f);\n"
                "}\n",
                format, product, format, product, format, product, format, product);
}

static bool is_nan(uint32_t code, const tile_format *product) {
    return tile_scalar_decode(product->scalar, code) != tile_scalar_decode(product->scalar, code);
}

/* Any bits, and what they stand for: a pair's are those of its two blocks. */
static void random_block(const decoder *d, uint8_t *block, float *want) {
    uint8_t blocks[4096];
    const size_t bytes = (size_t)d->single->bits / 8;
    assert_true(bytes * 2 <= sizeof blocks && d->format->block <= 1024);
    for (size_t i = 0; i < 2 * bytes; i++) blocks[i] = (uint8_t)random_bits();
    tile_format_decode(d->single, blocks, want);
    memcpy(block, blocks, bytes);
    if (d->format == d->single) return;
    tile_format_decode(d->single, blocks + bytes, want + d->single->block);
    role_lay_pairs(d->single, blocks, 1, block);
}

/* Fails where a code is another than the rounded reference's: but in f16, where this lies in the middle between the
 * two, as exactly as f32 can say. */
static void check_slices(decode_function *decode, const decoder *d, const tile_format *product) {
    _Alignas(16) uint8_t block[4096];
    static float want[1024];
    const tile_format *f = d->format;
    for (int b = 0; b < BLOCKS; b++) {
        random_block(d, block, want);
        for (int slice = 0; slice < f->block / 32; slice++)
            for (int q = 0; q < 4; q++) {
                uint32_t w[4];
                decode(block, slice, q, w);
                for (int e = 0; e < 8; e++) {
                    const int element = slice * 32 + e / 4 * 16 + q * 4 + e % 4;
                    const uint32_t got = w[e / 2] >> e % 2 * 16 & 0xffff,
                                   expected = (uint32_t)tile_scalar_encode(product->scalar, (double)want[element]);
                    if (got == expected || (is_nan(got, product) && is_nan(expected, product))) continue;
                    if (!((got | expected) & 0x7fff)) continue; /* a zero's sign */
                    const double middle = tile_scalar_decode(product->scalar, got) / 2 +
                                          tile_scalar_decode(product->scalar, expected) / 2,
                                 off = fabs(middle - (double)want[element]);
                    if (product->scalar.exponent == 8 || !(off <= fabs(middle) * 0x1p-22) ||
                        (got + 1 != expected && got != expected + 1))
                        fail_msg("%s as %s, block %d, element %d: %04x, not %04x", f->name, product->name, b, element,
                                 got, expected);
                }
            }
    }
}

/* False: the format gives no codes apart. */
static bool check_apart(apart_function *apart, const decoder *d) {
    _Alignas(16) uint8_t block[4096];
    static float want[1024];
    const tile_format *f = d->format;
    const tile_scalar f16 = tile_format_find("f16")->scalar;
    for (int b = 0; b < BLOCKS; b++) {
        random_block(d, block, want);
        for (int slice = 0; slice < f->block / 32; slice++)
            for (int q = 0; q < 4; q++) {
                uint32_t w[4];
                float factors[6];
                if (!apart(block, slice, q, w, factors)) return false;
                for (int e = 0; e < 8; e++) {
                    const int element = slice * 32 + e / 4 * 16 + q * 4 + e % 4;
                    const float *of = factors + e / 4 * 3;
                    const double code = tile_scalar_decode(f16, w[e / 2] >> e % 2 * 16 & 0xffff) * (double)of[2],
                                 product = code * (double)of[0], value = product + (double)of[1],
                                 expected = (double)want[element], size = fabs(product) + fabs((double)of[1]);
                    if (!isfinite(expected) || !isfinite(value)) continue;
                    if (fabs(value - expected) > size * 0x1p-22)
                        fail_msg("%s apart, block %d, element %d: %g, not %g", f->name, b, element, value, expected);
                }
            }
    }
    return true;
}

static void test_decoders(void **state) {
    (void)state;
    enum { WHOLE = 1024, ODD = 1056 }; /* columns: the latter are no whole pairs of 32 */
    static emit_cuda_op ops[2 * FORMATS * PRODUCTS];
    static decoder decoders[COUNT_OF(ops)];
    char line[80];
    size_t count = 0;
    text unit = {0}, more = {0};
    mt_error error = {0};
    emit_cuda_info info = {.no_lines = true};
    if (system("g++ --version > /dev/null 2>&1")) {
        print_message("skipped: there is no g++ to run the emitted code with\n");
        skip();
    }
    text_string(&more, apart_text);
    for (int i = 0; i < 2 * FORMATS * PRODUCTS; i++) {
        const tile_format *single = tile_format_find(formats[i / 4]);
        const decoder d = {single, role_banded(case_memory, single, i % 2 ? ODD : WHOLE), i / 2 % 2};
        test_case c = {.source = "linear", .constants = line};
        if (i % 2 && (single->block != 32 || single->bits % 32 == 0)) continue; /* as before */
        assert_true((d.format == single) == (single->block != 32 || single->bits % 32 == 0 || i % 2));
        snprintf(line, sizeof line, "N=16 K=%d BM=1 BN=16 W=%s P=%s", i % 2 ? ODD : WHOLE, single->name,
                 products[d.product]);
        assert_true(bind_case(&c));
        decoders[count] = d;
        ops[count++] = (emit_cuda_op){.op = c.op, .layout = {[1] = ROLE_BANDS}};
        add_function(&more, d.format->name, products[d.product]);
    }
    if (emit_cuda(&unit, ops, count, &info, &error)) fail_msg("%s: %s", error.where, error.message);
    void *library = compile_shim(unit.data, more.data);
    assert_non_null(library);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        decode_function *decode;
        apart_function *apart;
        const decoder *d = &decoders[i];
        snprintf(name, sizeof name, "decode_%s_%s", d->format->name, products[d->product]);
        *(void **)&decode = dlsym(library, name);
        assert_non_null(decode);
        check_slices(decode, d, tile_format_find(products[d->product]));
        snprintf(name, sizeof name, "apart_%s_%s", d->format->name, products[d->product]);
        *(void **)&apart = dlsym(library, name);
        assert_non_null(apart);
        /* f16, and not what has three bits of significand: not in a byte */
        const bool wanted = d->product == 1 && strcmp(d->format->name, "e4m3_block128");
        if (check_apart(apart, d) != wanted) fail_msg("%s: codes are%s apart", name, wanted ? " not" : "");
    }
    text_free(&unit);
    text_free(&more);
}

static int setup(void **state) {
    (void)state;
    return (case_memory = arena_new()) ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    arena_free(case_memory);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_decoders)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
