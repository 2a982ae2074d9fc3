/* Block formats: what is declared wrongly is reported, what is declared rightly decodes to the bits that PyPI's gguf,
 * Python or a decoder written here compute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "text_oracle.h"
#include "tile/ast.h"
#include "tile_source.h"

enum { BLOCK_LIMIT = 1024 };

static bool same_bits(float a, float b) { return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)); }

static uint64_t random_next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void random_fill(uint64_t *s, void *to, size_t size) {
    for (size_t i = 0; i < size; i++) ((uint8_t *)to)[i] = (uint8_t)(random_next(s) >> 32);
}

/* ---- gguf ------------------------------------------------------------------------------------------------------- */

/* Compares blocks with gguf's values, bit by bit; NaN need not have the same payload. Where gguf does not follow the
 * definition of the type in question, our value is compared with what the definition says:
 * - MXFP4: gguf takes the scale code 255 for 2^128; the OCP specification says NaN.
 * - NVFP4: gguf takes the scale codes 127 and 255 for 0 and 480 where e4m3 has NaN, and ignores the scale's sign, which
 * files never set.
 * - Both: gguf looks e2m1 up in a table of integers, which has no negative zero. */
static void compare(const tile_format *f, const uint8_t *block, const float *expected) {
    float values[BLOCK_LIMIT];
    tile_format_decode(f, block, values);
    const bool mx = !strcmp(f->name, "mxfp4"), nv = !strcmp(f->name, "nvfp4");
    for (int i = 0; i < f->block; i++) {
        bool same = same_bits(values[i], expected[i]);
        const int scale = block[nv ? i / 16 : 0];
        if ((mx && scale == 255) || (nv && (scale & 127) == 127))
            same = isnan(values[i]);
        else if (nv && scale > 127)
            same = values[i] == -expected[i];
        else if ((mx || nv) && expected[i] == 0)
            same = values[i] == 0;
        if (!same) fail_msg("%s, element %d: %a, expected %a", f->name, i, values[i], expected[i]);
    }
}

/* The oracle's records; of library formats or declared in the record. Returns how many there were. */
static int compare_records(oracle *o) {
    int count = 0;
    for (; o->at < o->bytes.length; count++) {
        size_t length, size, values;
        const char *name = oracle_string(o, &length);
        char *key = strndup(name, length);
        const char *declaration = oracle_string(o, &length);
        char *source = strndup(declaration, length);
        tile_file *file = length ? parse_good(source) : NULL;
        const tile_format *f = file ? tile_file_find_format(file, key) : tile_format_find(key);
        if (!f) fail_msg("there is no format %s", key);
        const uint32_t blocks = oracle_u32(o);
        const char *data = oracle_string(o, &size), *expected = oracle_string(o, &values);
        assert_int_equal(size, (int64_t)blocks * f->bits / 8);
        assert_int_equal(values, (size_t)blocks * (size_t)f->block * sizeof(float));
        for (uint32_t i = 0; i < blocks; i++) {
            uint8_t *block =
                malloc((size_t)f->bits / 8); /* of its own, so that the sanitizer sees every byte too far */
            float numbers[BLOCK_LIMIT];
            memcpy(block, data + (size_t)i * (size_t)f->bits / 8, (size_t)f->bits / 8);
            memcpy(numbers, expected + (size_t)i * (size_t)f->block * sizeof(float), (size_t)f->block * sizeof(float));
            compare(f, block, numbers);
            free(block);
        }
        tile_file_free(file);
        free(source);
        free(key);
    }
    text_free(&o->bytes);
    return count;
}

static void test_gguf(void **state) {
    (void)state;
    oracle o;
    if (!oracle_run(&o, "oracle_format.py", "library")) skip();
    const int count = compare_records(&o);
    if (count < 12) print_message("this version of gguf has no NVFP4\n");
    assert_true(count >= 11);
}

static void test_random_declarations(void **state) {
    (void)state;
    oracle o;
    if (!oracle_run(&o, "oracle_format.py", "random")) skip();
    assert_int_equal(compare_records(&o), 400);
}

/* ---- formats that gguf does not have ---------------------------------------------------------------------------- */

static float half(const uint8_t *at) {
    const int code = at[0] | at[1] << 8, exponent = code >> 10 & 31, fraction = code & 1023;
    const float sign = code >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24));
}

static float e4m3(uint8_t code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float sign = code >> 7 ? -1.0f : 1.0f;
    if ((code & 127) == 127) return NAN;
    return sign * (exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9));
}

static float group_element(const char *name, int block, const uint8_t *b, int i) {
    if (!strcmp(name, "e4m3_block128")) {
        float scale;
        memcpy(&scale, b, 4);
        return scale * e4m3(b[4 + i]);
    }
    const bool has_zero = name[0] == 'u';
    assert_true(block == 32 || block == 64 || block == 128);
    const int code = b[(has_zero ? 3 : 2) + i / 2] >> (i % 2 * 4) & 15;
    return half(b) * (float)(has_zero ? code - b[2] : code < 8 ? code : code - 16);
}

static void test_groups(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int block, bytes;
    } formats[] = {{"e4m3_block128", 128, 132}, {"i4_group32", 32, 18}, {"i4_group64", 64, 34},
                   {"i4_group128", 128, 66},    {"u4_group32", 32, 19}, {"u4_group64", 64, 35},
                   {"u4_group128", 128, 67}};
    uint64_t seed = 88172645463325252u;
    for (size_t k = 0; k < COUNT_OF(formats); k++) {
        const tile_format *f = tile_format_find(formats[k].name);
        assert_non_null(f);
        assert_int_equal(f->block, formats[k].block);
        assert_int_equal(f->bits, formats[k].bytes * 8);
        for (int round = 0; round < 300; round++) {
            uint8_t block[256];
            float values[BLOCK_LIMIT];
            random_fill(&seed, block, sizeof block);
            if (round % 2) {
                const float scale = (float)(random_next(&seed) % 1000) * 1e-4f;
                if (f->block == 128 && formats[k].name[0] == 'e')
                    memcpy(block, &scale, 4);
                else
                    block[1] = (block[1] & 0x83) | 0x28;
            }
            tile_format_decode(f, block, values);
            for (int i = 0; i < f->block; i++) {
                const float expected = group_element(f->name, f->block, block, i);
                if (!same_bits(values[i], expected))
                    fail_msg("%s, element %d: %a, expected %a", f->name, i, values[i], expected);
            }
        }
    }
}

/* Every format of the library has a test above. */
static void test_none_forgotten(void **state) {
    (void)state;
    static const char *const tested[] = {"q4_0",        "q4_1",       "q5_0",          "q5_1",       "q8_0",
                                         "q2_k",        "q3_k",       "q4_k",          "q5_k",       "q6_k",
                                         "mxfp4",       "nvfp4",      "e4m3_block128", "i4_group32", "i4_group64",
                                         "i4_group128", "u4_group32", "u4_group64",    "u4_group128"};
    static const int bytes[] = {18, 20, 22, 24, 34, 84, 110, 144, 176, 210, 17, 36, 132, 18, 34, 66, 19, 35, 67};
    const tile_file *library;
    assert_int_equal(tile_library(&library, NULL), MT_OK);
    assert_int_equal(tile_file_format_count(library), COUNT_OF(tested));
    for (size_t i = 0; i < COUNT_OF(tested); i++) {
        const tile_format *f = tile_format_find(tested[i]);
        assert_non_null(f);
        assert_true(tile_format_is_block(f) && f->scalar.kind == TILE_FLOAT && f->scalar.bits == 32);
        assert_int_equal(f->bits, bytes[i] * 8);
        assert_int_equal(tile_format_bytes(f, 3 * f->block), 3 * bytes[i]);
        assert_int_equal(tile_format_bytes(f, f->block + 1), -1);
    }
}

/* ---- what a declaration becomes ---------------------------------------------------------------------------------- */

static void test_layout(void **state) {
    (void)state;
    static const char source[] = "// doc\nformat f { block 3\n a: u1; b: i3[5]; c: f16; d: e2m1[2]\n e: bool; f: u32; "
                                 "g: e8m0; block: u8; twice[j] = 2 * j\n value[i] = b[twice[i]] }";
    static const struct {
        const char *name, *type;
        int count, offset;
    } fields[] = {{"a", "u1", 1, 0},    {"b", "i3", 5, 1},   {"c", "f16", 1, 16},  {"d", "e2m1", 2, 32},
                  {"e", "bool", 1, 40}, {"f", "u32", 1, 48}, {"g", "e8m0", 1, 80}, {"block", "u8", 1, 88}};
    tile_file *f = parse_good(source);
    arena *a = arena_new();
    const tile_format *own = tile_file_format(f, 0), *format = ast_copy_format(a, own);
    assert_ptr_not_equal(own, format);
    tile_file_free(f);
    assert_string_equal(format->name, "f");
    assert_int_equal(format->block, 3);
    assert_int_equal(format->bits, 96);
    assert_string_equal(format->body->doc, "doc");
    assert_string_equal(format->body->text, strchr(source, '\n') + 1);
    assert_int_equal(format->body->field_count, COUNT_OF(fields));
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        const tile_field *field = &format->body->fields[i];
        assert_string_equal(field->name, fields[i].name);
        assert_string_equal(field->type->name, fields[i].type);
        assert_int_equal(field->count, fields[i].count);
        assert_int_equal(field->bit_offset, fields[i].offset);
    }
    const tile_node *value = format->body->value; /* a cast of field 1 at 2 * i */
    assert_true(value->kind == TILE_CAST && value->type == tile_format_find("f32") &&
                value->a->type == tile_format_find("i32"));
    assert_true(value->a->kind == TILE_FIELD && value->a->index == 1 && value->a->a->kind == TILE_ELEMENTWISE &&
                value->a->a->op == TILE_MUL);
    assert_true(value->a->a->a->kind == TILE_CONST && value->a->a->a->value.i == 2 &&
                value->a->a->b->kind == TILE_FORMAT_INDEX);
    const uint8_t block[12] = {0x4d, 0xf5}; /* 1, then 6, 4, 2, 5, 7 */
    float values[3];
    tile_format_decode(format, block, values);
    assert_true(values[0] == -2 && values[1] == 2 && values[2] == -1);
    arena_free(a);
    const tile_format *library = tile_format_find("q4_1");
    assert_ptr_equal(ast_copy_format(NULL, library), library);
}

/* A file's own format comes before one of the library; both before nothing. */
static void test_shadow(void **state) {
    (void)state;
    tile_file *f = parse_good("format q4_1 { block 1; x: u8; value[i] = x }");
    assert_int_equal(tile_file_find_format(f, "q4_1")->block, 1);
    assert_int_equal(tile_file_find_format(f, "q4_0")->block, 32);
    assert_string_equal(tile_file_find_format(f, "u7")->name, "u7");
    assert_null(tile_file_find_format(f, "u9"));
    assert_int_equal(tile_format_find("q4_1")->block, 32);
    tile_file_free(f);
}

/* Functions that call functions twice grow exponentially, and chains of them deeply: both end in an error. */
static void test_growth(void **state) {
    (void)state;
    static const char *const bodies[] = {"a%d[i] = a%d[i] + a%d[i]; ", "a%d[i] = a%d[i]; ",
                                         "a%d[i] = a%d[a%d[i & 1]]; ", "a%d[i] = -----------------a%d[i]; "};
    for (size_t k = 0; k < COUNT_OF(bodies); k++) {
        for (int count = 2; count <= 100; count += 98) {
            text source = {0};
            text_string(&source, "format f { block 1024; x: u8; a0[i] = x & 1; ");
            for (int i = 1; i < count; i++) text_printf(&source, bodies[k], i, i - 1, i - 1);
            text_printf(&source, "value[i] = a%d[i] }", count - 1);
            tile_file *f;
            mt_error e = {0};
            const mt_status status = tile_parse(&f, "t.tile", source.data, source.length, NULL, &e);
            assert_int_equal(status, count == 2 ? MT_OK : MT_E_SYNTAX);
            if (status && !strstr(e.message, "format 'f' is too large")) fail_msg("%s", e.message);
            tile_file_free(f);
            text_free(&source);
        }
    }
}

static float first_value(const char *members) {
    char source[1024];
    snprintf(source, sizeof source, "format f { block 2; x: u8[4]; %s }", members);
    tile_file *f = parse_good(source);
    const uint8_t block[] = {7, 200, 0, 255};
    float values[2];
    tile_format_decode(tile_file_format(f, 0), block, values);
    tile_file_free(f);
    return values[1];
}

static void test_meaning(void **state) {
    (void)state;
    assert_true(first_value("value[i] = x[i]") == 200);
    assert_true(first_value("value[i] = -7 / 2") == -4);
    assert_true(first_value("value[i] = -7 % 2") == 1);
    assert_true(first_value("value[i] = -7 / 2.0") == -3.5f);
    assert_true(first_value("value[i] = (x[0] - 14) / 2") == -4);
    assert_true(first_value("value[i] = ceil(x[0] / 2)") == 4);
    assert_true(first_value("value[i] = ceil(7 / 2)") == 4);
    assert_true(first_value("value[i] = ceil(x[0] / 2.0)") == 4);
    assert_true(first_value("value[i] = -x[0] >> 1") == -4);
    assert_true(first_value("value[i] = 2147483647 + 1") == -2147483648.0f);
    assert_true(first_value("value[i] = -2147483648") == -2147483648.0f);
    assert_true(first_value("value[i] = 16777217") == 16777216);
    assert_true(first_value("value[i] = i32(2.5) + i32(3.5) * 10") == 42);
    assert_true(first_value("value[i] = i32(1e30) - 2147483640") == 7);
    assert_true(first_value("value[i] = i32(inf - inf)") == 0);
    assert_true(isnan(first_value("value[i] = inf - inf")));
    assert_true(first_value("value[i] = 1.0 / 0") == INFINITY);
    assert_true(first_value("value[i] = 0.1 + 0.2") == 0.1f + 0.2f);
    assert_true(first_value("value[i] = f32(x[1]) / 3") == 200.0f / 3.0f);
    assert_true(first_value("value[i] = sqrt(x[0] + 2)") == 3);
    assert_true(first_value("value[i] = i32(i == 1 and not (x[0] < 7 or false))") == 1);
    assert_true(first_value("value[i] = min(x[0], x[1]) + max(1.5, x[0])") == 14);
    /* of where only the chosen side is evaluated, so only that has to be right */
    assert_true(first_value("value[i] = where(i < 1, 3, x[i + 2])") == 255);
    assert_true(first_value("value[i] = where(i == 7, x[i + 9] + 1 / 0 + (1 << 99), 5)") == 5);
    assert_true(first_value("value[i] = where(true, 4, x[9])") == 4);
    /* an index may come from the block */
    assert_true(first_value("value[i] = x[x[0] & 3]") == 255);
    assert_true(first_value("value[i] = x[min(x[3], 3)]") == 255);
    assert_true(first_value("value[i] = x[x[1] % 4] + x[x[1] >> 6]") == 7 + 255);
    assert_true(first_value("value[i] = x[abs(x[0] / -86)] + x[max(1, x[0] / 64)]") == 200 + 200);
    assert_true(first_value("value[i] = x[where(x[0] > 3, 1, 2)]") == 200);
    assert_true(first_value("value[i] = x[3 - i32(x[0] == 7)]") == 0);
    /* functions */
    assert_true(first_value("a[j] = x[j] * 2; b[j, k] = a[k] - j; value[i] = b[i + 1, a[i - 1 & 2] & 0]") == 12);
    assert_true(first_value("a[i] = x[i]; value[k] = a[a[k] & 3]") == 7);
}

/* clang-format off */
struct wrong { const char *source; int line, column; const char *message; };

static const struct wrong wrong_formats[] = {
    {"block 8; x: nope; value[i] = 1", 2, 13, "expected a scalar type, found 'nope'"},
    {"block 8; x: q4_1; value[i] = 1", 2, 13, "expected a scalar type, found 'q4_1'"},
    {"block 8; x: f64; value[i] = x", 2, 13, "expected a type of up to 32 bits, found 'f64'"},
    {"block 8; x: i64; value[i] = x", 2, 13, "expected a type of up to 32 bits, found 'i64'"},
    {"block 8; x: u8[0]; value[i] = x[0]", 2, 16, "a field has 1 to 65536 elements, found 0"},
    {"block 8; x: u8[65537]; value[i] = x[0]", 2, 16, "a field has 1 to 65536 elements, found 65537"},
    {"block 8; x: u3; value[i] = x", 1, 8, "the fields of format 'f' take 3 bits, which is no whole number of bytes"},
    {"block 8; x: u8; x: u8; value[i] = x", 2, 17, "'x' is declared twice; the other one is on line 2"},
    {"block 8; x: u8; x[j] = j; value[i] = x", 2, 17, "'x' is declared twice; the other one is on line 2"},
    {"block 8; x: u8; a[x] = 1; value[i] = x", 2, 19, "'x' is declared twice"},
    {"block 8; x: u8; a[j, j] = 1; value[i] = x", 2, 22, "'j' is declared twice"},
    {"block 8; x: u8; value[x] = 1", 2, 23, "'x' is declared twice"},
    {"block 8; x: u8; value[i, j] = 1", 2, 17, "value has one index, as in value[i]; found 2"},
    {"block 8; x: u8; value[i] = x; y: u8", 2, 31, "expected nothing behind value[i]"},
    {"block 8; x: u8; a[i] = 1", 3, 1, "expected value[i] = ... at the end of format 'f'"},
    {"block 8; x: u8; value[i] = y", 2, 28, "there is no field, function or index 'y' declared above"},
    {"block 8; x: u8; a[j] = a[j]; value[i] = x", 2, 24, "there is no field, function or index 'a' declared above"},
    {"block 8; x: u8; a[j] = b[j]; b[j] = a[j]; value[i] = x", 2, 24,
     "there is no field, function or index 'b' declared above"},
    {"block 8; x: u8; a[j] = nope; value[i] = a[i] + a[i]", 2, 24,
     "there is no field, function or index 'nope' declared above"},
    {"block 8; x: u8[8]; value[i] = x", 2, 31, "expected an index behind 'x', as in x[i]"},
    {"block 8; x: u8; value[i] = x[i]", 2, 29, "'x' has no elements; expected no index behind it"},
    {"block 8; x: u8; a[j] = 1; value[i] = a", 2, 38, "expected an index behind 'a', as in a[i]"},
    {"block 8; x: u8; a[j, k] = 1; value[i] = a[i]", 2, 42, "'a' takes 2 indices, found 1"},
    {"block 8; x: u8; a[j] = 1; value[i] = a[1, 2]", 2, 39, "'a' takes 1 index, found 2"},
    {"block 8; x: u8; a[j] = 1; value[i] = a(1)", 2, 38,
     "expected a function that formats have (abs, ceil, floor, max, min, round, sqrt, where, f32, i32), found 'a'"},
    {"block 8; x: u8[8]; value[i] = x[:]", 2, 33, "expected one index, not a range"},
    {"block 8; x: u8[8]; value[i] = x[0 : +4]", 2, 33, "expected one index, not a range"},
    {"block 8; x: u8[8]; value[i] = x[1.5]", 2, 33, "expected an index of type i32, found f32"},
    {"block 8; x: u8[8]; value[i] = x[i < 3]", 2, 35, "expected an index of type i32, found bool"},
    {"block 8; x: u8[8]; value[i] = x[i / 2.0]", 2, 35, "expected an index of type i32, found f32"},
    {"block 8; x: u8[8]; value[i] = x[i].T", 2, 35, "a format has no transposes"},
    {"block 8; x: u8[8]; value[i] = x[i][0]", 2, 35, "only fields and functions have indices"},
    {"block 8; x: u8; value[i] = exp(x)", 2, 28,
     "expected a function that formats have (abs, ceil, floor, max, min, round, sqrt, where, f32, i32), found 'exp'"},
    {"block 8; x: u8; value[i] = dot(x, x)", 2, 28,
     "expected a function that formats have (abs, ceil, floor, max, min, round, sqrt, where, f32, i32), found 'dot'"},
    {"block 8; x: u8; value[i] = f32[2](x)", 2, 28,
     "expected a function that formats have (abs, ceil, floor, max, min, round, sqrt, where, f32, i32), found 'f32' with a shape or an axis"},
    {"block 8; x: u8; value[i] = max(x, axis = 1)", 2, 28,
     "expected a function that formats have (abs, ceil, floor, max, min, round, sqrt, where, f32, i32), found 'max' with a shape or an axis"},
    {"block 8; x: u8; value[i] = max(x)", 2, 28, "max takes 2 arguments, found 1"},
    {"block 8; x: u8; value[i] = where(x, 1, 2)", 2, 34, "expected a bool as the condition of where, found i32"},
    {"block 8; x: u8; value[i] = where(x > 0, 1)", 2, 28, "where takes 3 arguments, found 2"},
    {"block 8; x: u8; value[i] = x > 0", 2, 30, "expected a number, found a bool"},
    {"block 8; x: u8; value[i] = (x > 0) + 1", 2, 36, "expected operands of one type, found bool and i32"},
    {"block 8; x: u8; value[i] = not x", 2, 28, "'not' works on bool here, found i32"},
    {"block 8; x: u8; value[i] = i32(x and true)", 2, 34, "expected operands of one type, found i32 and bool"},
    {"block 8; x: u8; value[i] = 1.5 & 3", 2, 32, "'&' works on i32 here, found f32"},
    {"block 8; x: u8; value[i] = x % 2.0", 2, 30, "'%' works on i32 here, found f32"},
    {"block 8; x: u8; value[i] = x << 1.0", 2, 30, "'<<' works on i32 here, found f32"},
    {"block 8; x: u8; value[i] = -(x < 3)", 2, 28, "'-' works on i32 or f32 here, found bool"},
    {"block 8; x: u8; value[i] = where(x < 3, 1, true)", 2, 28, "expected operands of one type, found i32 and bool"},
    {"block 8; x: u8; value[i] = 2147483648", 2, 28, "this integer does not fit in i32"},
    {"block 8; x: u8; value[i] = -2147483649", 2, 28, "this integer does not fit in i32"},
    {"block 8; x: u8; value[i] = 1e39", 2, 28, "this number does not fit in f32"},
    {"block 8; x: u8; value[i] = bf16(x)", 2, 28,
     "expected a function that formats have (abs, ceil, floor, max, min, round, sqrt, where, f32, i32), found 'bf16'"},
    {"block 8; x: u8[7]; value[i] = x[i]", 2, 31, "the index of 'x' is 7 for element 7, expected 0 to 6"},
    {"block 8; x: u8[8]; value[i] = x[i - 1]", 2, 31, "the index of 'x' is -1 for element 0, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = x[x[i]]", 2, 31, "the index of 'x' can be 0 to 255 for element 0, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = x[x[i] & 15]", 2, 31,
     "the index of 'x' can be 0 to 15 for element 0, expected 0 to 7"},
    {"block 8; x: i8[8]; value[i] = x[x[i] % 9]", 2, 31,
     "the index of 'x' can be 0 to 8 for element 0, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = x[-x[i]]", 2, 31,
     "the index of 'x' can be -255 to 0 for element 0, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = x[where(x[0] > 3, 1, 8)]", 2, 31,
     "the index of 'x' can be 1 to 8 for element 0, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = where(i < 4, x[i + 4], x[i + 4])", 2, 54,
     "the index of 'x' is 8 for element 4, expected 0 to 7"},
    {"block 8; x: u8[8]; a[j] = x[j + 1]; value[i] = a[i] + a[i]", 2, 27,
     "the index of 'x' is 8 for element 7, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = 1 / i", 2, 33, "the divisor is zero for element 0"},
    {"block 8; x: u8[8]; value[i] = 1 % (i - 3)", 2, 33, "the divisor is zero for element 3"},
    {"block 8; x: u8[8]; value[i] = 1 / x[i]", 2, 33, "the divisor can be zero for element 0"},
    {"block 8; x: u8[8]; value[i] = ceil(x[i] / (x[0] - 1))", 2, 31, "the divisor can be zero for element 0"},
    {"block 8; x: i32; value[i] = x / (i - 8)", 2, 31, "the quotient -2^31 / -1 does not fit in i32"},
    {"block 8; x: u8[8]; value[i] = 1 << 32", 2, 33, "the shift is 32 for element 0, expected 0 to 31"},
    {"block 8; x: u8[8]; value[i] = 1 << x[i]", 2, 33, "the shift can be 0 to 255 for element 0, expected 0 to 31"},
    {"block 8; x: u8[8]; value[i] = 1 >> (i - 1)", 2, 33, "the shift is -1 for element 0, expected 0 to 31"},
    {"block 8; x: u8[8]; value[i] = x[i32(1.5 * i)]", 2, 31,
     "the index of 'x' can be -2147483648 to 2147483647 for element 0, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = x[x[0] * 16777216 * 256]", 2, 31,
     "the index of 'x' can be -2147483648 to 2147483647 for element 0, expected 0 to 7"},
    {"block 8; x: u8[8]; value[i] = x[f32(1)]", 2, 33, "expected an index of type i32, found f32"},
    {"block 8; x: u8[8]; value[i] = sqrt(true)", 2, 31, "'sqrt' works on f32 here, found bool"},
    {"block 8; x: u8[8]; value[i] = min(1, true)", 2, 31, "expected operands of one type, found i32 and bool"},
};

/* clang-format on */

static void test_wrong(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong_formats); i++) {
        const struct wrong *w = &wrong_formats[i];
        char source[1024], expected[512];
        snprintf(source, sizeof source, "format f {\n%s\n}", w->source);
        tile_file *f;
        tile_diagnostics d = {0};
        if (tile_parse(&f, "t.tile", source, strlen(source), &d, NULL) != MT_E_SYNTAX) fail_msg("accepted: %s", source);
        snprintf(expected, sizeof expected, "t.tile:%d:%d: error: %s\n", w->line, w->column, w->message);
        if (strncmp(d.text.data, expected, strlen(expected)) || d.count != 1)
            fail_msg("%s\nexpected %s\nfound %s", source, expected, d.text.data);
        text_free(&d.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),   cmocka_unit_test(test_random_declarations),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_none_forgotten),
        cmocka_unit_test(test_layout), cmocka_unit_test(test_shadow),
        cmocka_unit_test(test_growth), cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
