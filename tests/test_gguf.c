/* The GGUF reader against files written here byte by byte (gguf_writer.h), and against damage: every truncation, every
 * flipped bit, and each lie that a header can tell. Input lies in front of a page that cannot be read, so that a read
 * past its end is seen without sanitizers too. */
#include "gguf_writer.h"

#include "fuzz_gguf.c"

static void test_values(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        text bytes = everything(version);
        guarded m = guard(bytes.data, bytes.length);
        gguf *g = open_good(&m);
        assert_int_equal(gguf_version(g), version);
        assert_int_equal(gguf_part_count(g), 1);
        assert_string_equal(gguf_name(g), "good");
        static const struct {
            const char *key;
            int64_t number;
        } integers[] = {
            {"u8", 200},
            {"i8", -128},
            {"u16", 65535},
            {"i16", -32768},
            {"u32", UINT32_MAX},
            {"i32", INT32_MIN},
            {"i64", INT64_MIN},
            {"", 1},
            {"general.alignment", 256},
        };
        int64_t n;
        double f;
        for (size_t i = 0; i < COUNT_OF(integers); i++) {
            assert_int_equal(gguf_get_i64(g, integers[i].key, &n, NULL, NULL), MT_OK);
            assert_true(n == integers[i].number);
            assert_int_equal(gguf_get_f64(g, integers[i].key, &f, NULL, NULL), MT_OK);
            assert_true(f == (double)integers[i].number);
        }
        assert_int_equal(gguf_get_f64(g, "f32", &f, NULL, NULL), MT_OK);
        assert_true(f == (double)-0.1f);
        assert_int_equal(gguf_get_f64(g, "f64", &f, NULL, NULL), MT_OK);
        assert_true(f == 1.0 / 3);
        assert_int_equal(gguf_get_f64(g, "u64", &f, NULL, NULL), MT_OK);
        assert_true(f == 0x1p64);
        assert_true(gguf_find(g, "u64")->u == UINT64_MAX);
        bool b = false;
        assert_int_equal(gguf_get_bool(g, "bool", &b, NULL, NULL), MT_OK);
        assert_true(b);
        gguf_string s;
        assert_int_equal(gguf_get_string(g, "string", &s, NULL, NULL), MT_OK);
        assert_int_equal(s.length, 6);
        assert_memory_equal(s.data, "a text", 6);
        const gguf_value *a;
        assert_int_equal(gguf_get_array(g, "strings", GGUF_STRING, &a, NULL, NULL), MT_OK);
        assert_int_equal(a->array.count, 3);
        s = gguf_element(a, 2).string;
        assert_int_equal(s.length, 5);
        assert_memory_equal(s.data, "three", 5);
        assert_int_equal(gguf_element(a, 1).string.length, 0);
        assert_int_equal(gguf_element(a, 3).kind, GGUF_NONE);
        assert_int_equal(gguf_get_array(g, "i16s", GGUF_NONE, &a, NULL, NULL), MT_OK);
        for (int i = 0; i < 3; i++) assert_true(gguf_element(a, (uint64_t)i).i == i - 1);
        assert_int_equal(gguf_element(gguf_find(g, "u8"), 0).kind, GGUF_NONE);
        size_t count;
        const gguf_entry *entries = gguf_entries(g, &count);
        assert_int_equal(count, 19);
        assert_string_equal(entries[0].key, "u8");
        assert_string_equal(entries[18].key, "general.alignment");
        gguf_close(g);
        LLVMFuzzerTestOneInput(m.data, m.size);
        unguard(&m);
        text_free(&bytes);
    }
}

/* Which typed getters refuse which values, with what. */
static void test_getters(void **state) {
    (void)state;
    text bytes = everything(3);
    guarded m = guard(bytes.data, bytes.length);
    gguf *g = open_good(&m);
    uint32_t u = 7;
    int64_t n = 7;
    double f = 7;
    bool b = true, found = true;
    gguf_string s = {"seven", 5};
    const gguf_value *a = NULL;
    mt_error error = {0};
#define ABSENT(call) (assert_int_equal((call), MT_OK), assert_false(found), found = true)
    ABSENT(gguf_get_u32(g, "absent", &u, &found, &error));
    ABSENT(gguf_get_i64(g, "absent", &n, &found, &error));
    ABSENT(gguf_get_f64(g, "absent", &f, &found, &error));
    ABSENT(gguf_get_bool(g, "absent", &b, &found, &error));
    ABSENT(gguf_get_string(g, "absent", &s, &found, &error));
    ABSENT(gguf_get_array(g, "absent", GGUF_NONE, &a, &found, &error));
    assert_null(gguf_find(g, "absent"));
    assert_null(gguf_find_tensor(g, "absent"));
#define REFUSED(call, part)                                                                                            \
    (assert_int_equal((call), MT_E_FORMAT), assert_int_equal(error.code, MT_E_FORMAT),                                 \
     assert_string_equal(error.where, "good"), assert_non_null(strstr(error.message, part)))
    REFUSED(gguf_get_u32(g, "absent", &u, NULL, &error), "'absent' is missing");
    REFUSED(gguf_get_string(g, "absent", &s, NULL, &error), "'absent' is missing");
    REFUSED(gguf_get_u32(g, "i8", &u, &found, &error), "'i8' holds -128");
    REFUSED(gguf_get_u32(g, "i64", &u, &found, &error), "'i64' holds -9223372036854775808");
    REFUSED(gguf_get_u32(g, "f32", &u, &found, &error), "'f32' must hold an integer, but it holds f32");
    REFUSED(gguf_get_u32(g, "bool", &u, &found, &error), "but it holds bool");
    REFUSED(gguf_get_i64(g, "u64", &n, &found, &error), "18446744073709551615");
    REFUSED(gguf_get_i64(g, "strings", &n, &found, &error), "an array of string");
    REFUSED(gguf_get_f64(g, "string", &f, &found, &error), "'string' must hold a number, but it holds string");
    REFUSED(gguf_get_bool(g, "u8", &b, &found, &error), "must hold a bool, but it holds u8");
    REFUSED(gguf_get_string(g, "i16s", &s, &found, &error), "must hold a string, but it holds an array of i16");
    REFUSED(gguf_get_array(g, "i16s", GGUF_STRING, &a, &found, &error), "an array of string, but it holds an array of");
    REFUSED(gguf_get_array(g, "string", GGUF_NONE, &a, &found, &error), "must hold an array, but it holds string");
    assert_true(u == 7 && n == 7 && f == 7 && b && s.length == 5 && !a);
    gguf_close(g);
    unguard(&m);
    text_free(&bytes);
}

static void test_tensors(void **state) {
    (void)state;
    text bytes = everything(3);
    guarded m = guard(bytes.data, bytes.length);
    gguf *g = open_good(&m);
    static const struct {
        const char *name, *format;
        size_t bytes;
        int rank;
        int64_t extent[4];
    } wanted[] = {
        {"matrix", "q4_0", 108, 2, {3, 64}}, {"vector", "f32", 20, 1, {5}},        {"row", "f64", 32, 1, {4}},
        {"column", "f16", 8, 2, {4, 1}},     {"cube", "i8", 120, 4, {5, 4, 3, 2}}, {"scalar", "bf16", 2, 1, {1}},
    };
    static const uint8_t file_rank[] = {2, 1, 2, 2, 4, 0}; /* what put_tensor began the bytes with */
    size_t count;
    const gguf_tensor *tensors = gguf_tensors(g, &count);
    assert_int_equal(count, COUNT_OF(wanted));
    for (size_t i = 0; i < count; i++) {
        const gguf_tensor *t = gguf_find_tensor(g, wanted[i].name);
        assert_ptr_equal(t, &tensors[i]);
        assert_ptr_equal(t->format, tile_format_find(wanted[i].format));
        assert_int_equal(t->bytes, wanted[i].bytes);
        assert_int_equal(t->rank, wanted[i].rank);
        for (int d = 0; d < t->rank; d++) assert_int_equal(t->extent[d], wanted[i].extent[d]);
        assert_int_equal(t->offset % 256, 0);
        for (size_t k = 0; k < t->bytes; k++) assert_int_equal(t->data[k], (uint8_t)(k * 7 + file_rank[i]));
    }
    gguf_close(g);
    unguard(&m);
    text_free(&bytes);
}

/* Every element type of ggml has its size, or an error that names it. */
static void test_types(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        const char *name;
        size_t bytes;
    } types_known[] = {
        /* bytes of 256 elements */
        {0, "f32", 1024},      {1, "f16", 512},    {2, "q4_0", 144},  {3, "q4_1", 160},  {6, "q5_0", 176},
        {7, "q5_1", 192},      {8, "q8_0", 272},   {9, "q8_1", 0},    {10, "q2_k", 84},  {11, "q3_k", 110},
        {12, "q4_k", 144},     {13, "q5_k", 176},  {14, "q6_k", 210}, {15, "q8_k", 0},   {16, "iq2_xxs", 0},
        {17, "iq2_xs", 0},     {18, "iq3_xxs", 0}, {19, "iq1_s", 0},  {20, "iq4_nl", 0}, {21, "iq3_s", 0},
        {22, "iq2_s", 0},      {23, "iq4_xs", 0},  {24, "i8", 256},   {25, "i16", 512},  {26, "i32", 1024},
        {27, "i64", 2048},     {28, "f64", 2048},  {29, "iq1_m", 0},  {30, "bf16", 512}, {34, "tq1_0", 0},
        {35, "tq2_0", 0},      {39, "mxfp4", 136}, {40, "nvfp4", 0},  {41, "q1_0", 0},   {42, NULL, 0},
        {UINT32_MAX, NULL, 0},
    };
    for (size_t i = 0; i < COUNT_OF(types_known); i++) {
        const char *name = types_known[i].name;
        const size_t size = types_known[i].bytes;
        writer w = writer_new();
        put_tensor(&w, "the.weight", EXTENTS(256), types_known[i].type, 2048);
        text bytes = finish(&w);
        if (!size && (!name || !tile_format_find(name))) { /* a later version may have a declaration for it */
            char part[64] = "'the.weight' has the unknown element type 4";
            if (name) snprintf(part, sizeof part, "'the.weight' has the element type %s,", name);
            expect(bytes, MT_E_UNSUPPORTED, part);
            continue;
        }
        guarded m = guard(bytes.data, bytes.length);
        gguf *g = open_good(&m);
        const gguf_tensor *t = gguf_find_tensor(g, "the.weight");
        assert_string_equal(t->format->name, name);
        if (size) assert_int_equal(t->bytes, size);
        gguf_close(g);
        unguard(&m);
        text_free(&bytes);
    }
}

static void test_header(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *part;
    } versions[] = {
        {0, "version 0"}, {1, "version 1;"}, {4, "version 4;"}, {0x02000000, "big-endian"}, {0x03000000, "big-endian"},
    };
    for (size_t i = 0; i < COUNT_OF(versions); i++)
        expect(everything(versions[i].version), MT_E_UNSUPPORTED, versions[i].part);
    text t = everything(3);
    memcpy(t.data, "FUGG", 4);
    expect(t, MT_E_UNSUPPORTED, "big-endian");
    t = everything(3);
    memcpy(t.data, "PK\3\4", 4);
    expect(t, MT_E_FORMAT, "not a GGUF file: it begins with the bytes 50 4b 03 04");
    expect((text){0}, MT_E_FORMAT, "the file is empty");
    t = everything(3);
    patch(&t, 8, UINT64_C(1) << 60, 8);
    expect(t, MT_E_FORMAT, "claims 1152921504606846976 tensors");
    t = everything(3);
    patch(&t, 16, UINT64_C(1) << 60, 8);
    expect(t, MT_E_FORMAT, "claims 1152921504606846976 key-values");
    t = everything(3);
    patch(&t, 16, UINT64_MAX, 8);
    expect(t, MT_E_FORMAT, "claims 18446744073709551615 key-values");
    /* An empty model is a valid file. */
    writer w = writer_new();
    t = finish(&w);
    guarded m = guard(t.data, t.length);
    gguf_close(open_good(&m));
    unguard(&m);
    text_free(&t);
    /* Counts that the file could hold, but that are over the limits. */
    for (int which = 0; which < 2; which++) {
        w = writer_new();
        t = finish(&w);
        patch(&t, which ? 16 : 8, which ? 65537 : 262145, 8);
        while (t.length < 8000000) text_append(&t, (const char[4096]){0}, 4096);
        expect(t, MT_E_LIMIT, which ? "65537 keys; at most 65536" : "262145 tensors; at most 262144");
    }
}

static void test_bad_keys(void **state) {
    (void)state;
    static const struct {
        uint32_t kind;
        uint64_t count;
        const char *part;
    } counts[] = {
        {GGUF_U8, UINT64_C(1) << 60, "elements"},    {GGUF_F64, UINT64_C(1) << 61, "elements"},
        {GGUF_I64, UINT64_MAX, "elements"},          {GGUF_I16, UINT64_C(1) << 63, "elements"},
        {GGUF_STRING, UINT64_C(1) << 60, "strings"}, {GGUF_STRING, 2, "strings"},
        {GGUF_STRING, UINT64_MAX, "strings"},        {GGUF_U32, 3, "elements"},
    };
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        writer w = writer_new();
        text *t = put_array(&w, "the.key", counts[i].kind, counts[i].count);
        put(t, 0, 8);
        char part[64];
        snprintf(part, sizeof part, "the value of 'the.key' claims %llu %s", (unsigned long long)counts[i].count,
                 counts[i].part);
        expect(finish(&w), MT_E_FORMAT, part);
    }
    writer w = writer_new();
    put(put_array(&w, "the.key", GGUF_ARRAY, 1), 0, 12);
    expect(finish(&w), MT_E_UNSUPPORTED, "'the.key' is an array of arrays");
    w = writer_new();
    put(put_array(&w, "the.key", GGUF_NONE, 1), 0, 8);
    expect(finish(&w), MT_E_FORMAT, "'the.key' is an array of the unknown kind 13");
    w = writer_new();
    put(put_key(&w, "the.key", 13), 0, 8);
    expect(finish(&w), MT_E_FORMAT, "'the.key' is of the unknown kind 13");
    w = writer_new();
    put(put_key(&w, "the.key", GGUF_BOOL), 2, 1);
    expect(finish(&w), MT_E_FORMAT, "'the.key' is a bool, but its byte is 2");
    w = writer_new();
    put(put_array(&w, "the.key", GGUF_BOOL, 2), 0x0201, 2);
    expect(finish(&w), MT_E_FORMAT, "one byte is 2");
    w = writer_new();
    put(put_key(&w, "the.key", GGUF_STRING), UINT64_MAX - 7, 8);
    expect(finish(&w), MT_E_FORMAT, "the file ends inside the value of 'the.key'");
    w = writer_new();
    put(put_key(&w, "twice", GGUF_U8), 1, 1);
    put(put_key(&w, "twice", GGUF_U8), 1, 1);
    expect(finish(&w), MT_E_FORMAT, "'twice' stands in the file twice");
    w = writer_new();
    put(put_key(&w, "escape\033[2J", GGUF_U8), 1, 1);
    expect(finish(&w), MT_E_FORMAT, "the name of key-value 1 of 1 has a control character (byte 0x1b)");
    w = writer_new();
    put(&w.entries, 70000, 8);
    for (int i = 0; i < 70000; i++) put(&w.entries, 'a', 1);
    put(&w.entries, GGUF_BOOL, 5);
    w.keys++;
    expect(finish(&w), MT_E_LIMIT, "has 70000 bytes; at most 65535");
    static const struct {
        uint32_t kind;
        uint64_t number;
        size_t size;
        const char *part;
    } alignments[] = {
        {GGUF_U32, 0, 4, "general.alignment' holds 0"},    {GGUF_U32, 48, 4, "not a power of two"},
        {GGUF_U32, 4, 4, "general.alignment' holds 4"},    {GGUF_U32, 24, 4, "not a power of two"},
        {GGUF_U32, 1 << 21, 4, "from 8 to 1048576"},       {GGUF_I32, 0x80000000, 4, "holds -2147483648"},
        {GGUF_U64, UINT64_MAX, 8, "18446744073709551615"}, {GGUF_F32, 0x42000000, 4, "must hold an integer"},
    };
    for (size_t i = 0; i < COUNT_OF(alignments); i++) {
        w = writer_new();
        put(put_key(&w, "general.alignment", alignments[i].kind), alignments[i].number, alignments[i].size);
        expect(finish(&w), MT_E_FORMAT, alignments[i].part);
    }
}

static void test_bad_tensors(void **state) {
    (void)state;
    const uint64_t big = UINT64_C(1) << 32;
    const struct {
        uint32_t rank, type;
        uint64_t inner[5], offset;
        mt_status status;
        const char *part;
    } bad[] = {
        {1, 0, {64}, 32, MT_E_FORMAT, "needs 256 bytes at offset 32 of the data, but the file has only 256 bytes"},
        {1, 0, {65}, 0, MT_E_FORMAT, "needs 260 bytes at offset 0"},
        {1, 0, {1}, 256, MT_E_FORMAT, "needs 4 bytes at offset 256"},
        {1, 0, {1}, UINT64_MAX - 31, MT_E_FORMAT, "needs 4 bytes at offset 18446744073709551584"},
        {1, 0, {1}, 4, MT_E_FORMAT, "at offset 4, no multiple of the alignment 32"},
        {2, 0, {1, 0}, 0, MT_E_FORMAT, "a dimension of 0 elements"},
        {2, 0, {big, big}, 0, MT_E_FORMAT, "more elements than"},
        {4, 0, {big, 2, 1, big}, 0, MT_E_FORMAT, "more elements than"},
        {1, 0, {UINT64_MAX}, 0, MT_E_FORMAT, "more elements than"},
        {1, 0, {INT64_MAX}, 0, MT_E_FORMAT, "more bytes than"},
        {1, 28, {UINT64_C(1) << 61}, 0, MT_E_FORMAT, "more bytes than"},
        {1, 2, {33}, 0, MT_E_FORMAT, "has rows of 33 elements, but q4_0 stores blocks of 32"},
        {2, 2, {16, 2}, 0, MT_E_FORMAT, "has rows of 16 elements"},
        {0, 2, {0}, 0, MT_E_FORMAT, "has rows of 1 elements"},
        {5, 0, {1, 1, 1, 1, 1}, 0, MT_E_LIMIT, "has 5 dimensions"},
        {1, 16, {256}, 0, MT_E_UNSUPPORTED, "the element type iq2_xxs"},
        {1, 5000, {256}, 0, MT_E_UNSUPPORTED, "the unknown element type 5000"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        writer w = writer_new();
        put_tensor(&w, "good.weight", EXTENTS(64), 0, 256);
        put_description(&w, "the.weight", bad[i].rank, bad[i].inner, bad[i].type, bad[i].offset);
        expect(finish(&w), bad[i].status, bad[i].part);
    }
    writer w = writer_new();
    put_tensor(&w, "twice", EXTENTS(1), 0, 4);
    put_tensor(&w, "twice", EXTENTS(1), 0, 4);
    expect(finish(&w), MT_E_FORMAT, "'twice' is defined twice");
    w = writer_new();
    put_tensor(&w, "new\nline", EXTENTS(1), 0, 4);
    expect(finish(&w), MT_E_FORMAT, "tensor 1 of 1 has a control character");
    w = writer_new();
    put_tensor(&w, "the.weight", EXTENTS(1), 0, 4);
    text t = finish(&w);
    const uint32_t rank = UINT32_MAX;
    memcpy((char *)memmem(t.data, t.length, "the.weight", 10) + 10, &rank, 4);
    expect(t, MT_E_LIMIT, "has 4294967295 dimensions");
}

/* No file that was cut off opens, and none reads past its end. */
static void test_truncation(void **state) {
    (void)state;
    text bytes = everything(3);
    for (size_t size = 0; size < bytes.length; size++) {
        guarded m = guard(bytes.data, size);
        gguf *g;
        mt_error error = {0};
        assert_int_equal(gguf_open_memory(&g, m.data, m.size, "cut", &error), MT_E_FORMAT);
        assert_true(error.message[0]);
        unguard(&m);
    }
    text_free(&bytes);
}

static void test_mutation(void **state) {
    (void)state;
    text bytes = everything(3);
    guarded m = guard(bytes.data, bytes.length);
    for (size_t i = 0; i < m.size; i++) { /* one byte: every bit flipped, then the extremes */
        for (int k = 0; k < 10; k++) {
            m.data[i] = (uint8_t)(k < 8 ? bytes.data[i] ^ (1 << k) : k == 8 ? 0 : 0xff);
            LLVMFuzzerTestOneInput(m.data, m.size);
        }
        m.data[i] = (uint8_t)bytes.data[i];
    }
    uint64_t random = 88172645463325252u; /* several bytes at once */
    for (int round = 0; round < 20000; round++) {
        size_t at[4];
        for (int k = 0; k < 4; k++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            at[k] = (size_t)(random >> 16) % m.size;
            m.data[at[k]] = (uint8_t)(k < 2 ? random >> 8 & 15 : random);
        }
        LLVMFuzzerTestOneInput(m.data, m.size);
        for (int k = 0; k < 4; k++) m.data[at[k]] = (uint8_t)bytes.data[at[k]];
    }
    unguard(&m);
    text_free(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_getters),    cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_types),       cmocka_unit_test(test_header),     cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_truncation), cmocka_unit_test(test_mutation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
