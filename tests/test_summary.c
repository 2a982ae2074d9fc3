/* What instances of ops are: operands that fit or are refused, grids, intervals, numbers near the ends of 64 bits; and
 * what the schedule builds on, spelled out: boxes that move with live values, bytes of rows that data chooses. */
#include "access_check.h"

/* ---- instances ---- */

static void test_refused_instances(void **state) {
    (void)state;
    arena *a = arena_new();
    const tile_op *op = bind(a, "tile t[N = 8](x: in f32[M, N], y: out bf16[M + 1, 2 * n], w: in q8_0[K, L],\n"
                                "    c: in f32[pos + 3, M], u: in u4[U], n: arg i32, pos: live i32)\n"
                                "over (i in M) { y[i, 0] = 0 }");
    const tile_instance good = {.op = op,
                                .tensor = {{2, {5, 8}}, {2, {6, 6}}, {2, {3, 64}}, {2, {12, 5}}, {1, {77}}},
                                .arg = {{.i = 3}},
                                .live = {{0, 9}}};
    tile_instance i = good;
    mt_error e = {0};
    assert_int_equal(tile_instance_check(&i, &e), MT_OK);
    assert_true(i.free_extent[0] == 5 && i.free_extent[1] == 3 && i.free_extent[2] == 64 && i.free_extent[3] == 77);
#define REFUSED(change, expected)                                                                                      \
    do {                                                                                                               \
        i = good;                                                                                                      \
        change;                                                                                                        \
        assert_int_equal(tile_instance_check(&i, &e), MT_E_ARGUMENT);                                                  \
        assert_string_equal(e.message, expected);                                                                      \
    } while (0)
    REFUSED(i.tensor[0].rank = 3, "operand x of t has 3 dimensions; expected 2");
    REFUSED(i.tensor[0].rank = 1000000, "operand x of t has 1000000 dimensions; expected 2");
    REFUSED(i.tensor[0].extent[1] = 9, "operand x of t is f32[5, 9], but its dimension 1 must be 8");
    REFUSED(i.tensor[0].extent[0] = 4, "operand y of t is bf16[6, 6], but its dimension 0 must be M + 1 = 5");
    REFUSED(i.tensor[1].extent[1] = 7, "operand y of t is bf16[6, 7], but its dimension 1 must be 2 * n = 6");
    REFUSED(i.tensor[3].extent[1] = 7, "operand c of t is f32[12, 7], but its dimension 1 must be M = 5");
    REFUSED(i.tensor[3].extent[0] = 11,
            "operand c of t is f32[11, 5], but its dimension 0 must have room for pos + 3 = 12 at most");
    REFUSED(i.tensor[2].extent[1] = 65,
            "operand w of t is q8_0[3, 65], but its last extent must be a multiple of the format's block");
    REFUSED(i.tensor[4].extent[0] = -1, "operand u of t is u4[-1], but an extent must be between 0 and 2^40");
    REFUSED(i.tensor[4].extent[0] = ((int64_t)1 << 40) + 1,
            "operand u of t is u4[1099511627777], but an extent must be between 0 and 2^40");
    REFUSED((i.tensor[2].extent[0] = (int64_t)1 << 40, i.tensor[2].extent[1] = (int64_t)1 << 40),
            "operand w of t is q8_0[1099511627776, 1099511627776], but that is too large");
    REFUSED(i.arg[0].i = (int64_t)1 << 40, "argument n of t is 1099511627776, which does not fit in i32");
    REFUSED(i.live[0].least = 10, "live value pos of t has an empty range: 10 to 9");
#undef REFUSED
    i = good;
    i.tensor[3].extent[0] = 4000; /* more room than needed, and none */
    assert_int_equal(tile_instance_check(&i, &e), MT_OK);
    i.tensor[2].extent[0] = i.tensor[2].extent[1] = i.tensor[4].extent[0] = 0;
    assert_int_equal(tile_instance_check(&i, &e), MT_OK);
    op = bind(
        a, "tile t(x: in f32[M], y: out f32[M * M * M * M], z: in f32[M / n], n: arg i32) over (i in M) { y[i] = 0 }");
    i = (tile_instance){.op = op, .tensor = {{1, {(int64_t)1 << 20}}, {1, {9}}, {1, {9}}}, .arg = {{.i = 1}}};
    assert_int_equal(tile_instance_check(&i, &e), MT_E_ARGUMENT);
    assert_string_equal(
        e.message,
        "operand y of t is f32[9], but its dimension 0 must be M * M * M * M, which does not fit in 64 bits");
    i = (tile_instance){.op = op, .tensor = {{1, {2}}, {1, {16}}, {1, {9}}}, .arg = {{.i = 0}}};
    assert_int_equal(tile_instance_check(&i, &e), MT_E_ARGUMENT);
    assert_string_equal(e.message,
                        "operand z of t is f32[9], but its dimension 0 must be M / n, which does not fit in 64 bits");
    arena_free(a);
}

static void test_grids(void **state) {
    (void)state;
    static const struct {
        const char *axes;
        int64_t count[3], total;
    } cases[] = {
        {"i in ceil(M / 4)", {3, 1, 1}, 3},
        {"i in M - 20, j in M", {0, 9, 1}, 0},
        {"i in ceil(pos / 16), j in min(pos, 3), k in 2", {7, 3, 2}, 42},
        {"i in 60 - pos", {50, 1, 1}, 50},
        {"i in 2147483647", {2147483647, 1, 1}, 2147483647},
        {"i in 2147483647, j in 2", {2147483647, 2, 1}, -1},
        {"i in 1 << 40, j in 1 << 40, k in 1 << 40", {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40}, -1},
        {"i in 1 << 40, j in 1 << 40, k in M - 9", {(int64_t)1 << 40, (int64_t)1 << 40, 0}, 0},
        {"i in where(M > 8, 5, 6)", {5, 1, 1}, 5},
        {"i in n * n", {49, 1, 1}, 49},
        {"i in M * (1 << 62)", {0, 0, 0}, -1},
        {"i in pos * (1 << 62)", {0, 0, 0}, -1},
        {"i in 7 / (n + 7)", {0, 0, 0}, -1},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        char source[512];
        snprintf(source, sizeof source,
                 "tile t(x: in f32[M], y: out f32[M], pos: live i32, n: arg i32) over (%s) { y[i] = x[0] }",
                 cases[k].axes);
        arena *a = arena_new();
        const tile_op *op = bind(a, source);
        tile_instance i = {.op = op, .tensor = {{1, {9}}, {1, {9}}}, .arg = {{.i = -7}}, .live = {{10, 100}}};
        assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
        int64_t count[TILE_AXES];
        assert_int_equal(tile_instance_grid(&i, count), cases[k].total);
        if (cases[k].count[0] || cases[k].count[1])
            for (int d = 0; d < TILE_AXES; d++) assert_int_equal(count[d], d < 3 ? cases[k].count[d] : 1);
        arena_free(a);
    }
}

/* Numbers near the ends of 64 bits: indices that could wrap around give the whole dimension, and nothing overflows
 * here. */
static void test_overflow(void **state) {
    (void)state;
    static const struct {
        const char *statement;
        int64_t low, high;
    } cases[] = {
        {"v = x[i + 9223372036854775807]", 0, 9},
        {"v = x[i * 4611686018427387904 * 4]", 0, 9},
        {"v = x[pos * 9223372036854775807]", 0, 9},
        {"v = x[pos + 9223372036854775807]", 0, 9},
        {"v = x[pos - 9223372036854775807 - 10 : +4]", 0, 9},
        {"v = x[9223372036854775806 - pos : +16777216]", 0, 9},
        {"v = x[(i + 9223372036854775807) / -1 : +1]", 0, 9},
        {"v = x[i << 63]", 0, 9},
        {"v = x[abs(-9223372036854775807 - i)]", 0, 9},
        {"v = x[i / (i - 1)]", 0, 9},
        {"v = x[i % (i - 1)]", 0, 9},
        {"v = x[i - 9223372036854775807 : +4]", 0, 0},
        {"v = x[9223372036854775800 : +4]", 0, 0},
        {"for j in 9223372036854775807 { v = x[j] }", 0, 9},
        {"for j in -9223372036854775807 .. 9223372036854775807 { v = x[j - 1] }", 0, 9},
        {"for j in 9223372036854775807 { for k in 9223372036854775807 { v = exp(x[max(j, k) : +2]) } }", 0, 9},
        {"v = x[i32(i * 4294967296 + 2)]", 0, 0}, /* casts saturate */
        {"v = x[i32(i) * 2147483647 * 2]", 0, 9},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        char source[512];
        snprintf(source, sizeof source, "tile t(x: in f32[M], y: out f32[M], pos: live i32) over (i in 4) { %s }",
                 cases[k].statement);
        arena *a = arena_new();
        const tile_op *op = bind(a, source);
        tile_instance i = {.op = op, .tensor = {{1, {9}}, {1, {9}}}, .live = {{-2147483647 - 1, 2147483647}}};
        assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
        tile_summary s;
        tile_summarise(&i, (int64_t[TILE_AXES]){1}, &s);
        const tile_interval v =
            s.box_count ? tile_interval_absolute(&i, s.box[0].dim[0], 9) : (tile_interval){0, 0, -1};
        if (v.low != cases[k].low || v.high != cases[k].high)
            fail_msg("%s: [%" PRId64 ", %" PRId64 ")", cases[k].statement, v.low, v.high);
        assert_true(s.flops >= 0 && s.bytes_read >= 0 && s.bytes_read <= 36);
        arena_free(a);
    }
}

static void test_intervals(void **state) {
    (void)state;
    const tile_instance i = {.live = {{3, 8}, {-5, 2}}};
    static const struct {
        tile_interval v;
        int64_t extent, low, high;
    } cases[] = {
        {{2, 5, -1}, 9, 2, 5}, {{-2, 5, -1}, 9, 0, 5}, {{2, 50, -1}, 9, 2, 9},
        {{0, 1, 0}, 9, 3, 9},  {{0, 1, 0}, 8, 3, 8},   {{-4, -1, 0}, 20, 0, 7},
        {{0, 3, 1}, 20, 0, 5}, {{1, 2, 1}, 20, 0, 4},  {{INT64_MIN, INT64_MAX, -1}, 9, 0, 9},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        const tile_interval v = tile_interval_absolute(&i, cases[k].v, cases[k].extent);
        assert_true(v.low == cases[k].low && v.high == cases[k].high && v.offset_live == -1);
    }
    const tile_interval v = tile_interval_absolute(&i, (tile_interval){20, 30, -1}, 9);
    assert_true(v.low >= v.high && v.offset_live == -1);
}

/* What the schedule builds on, spelled out. */
static void test_relative_boxes(void **state) {
    (void)state;
    arena *a = arena_new();
    const tile_op *op = bind(
        a, "tile t(x: in f32[M, 4], k: out f16[S, 4], pos: live i32) over (r in M) { k[1 * pos / 1 + r] = f16(x[r]) }");
    tile_instance i = {.op = op, .tensor = {{2, {6, 4}}, {2, {100, 4}}}, .live = {{0, 99}}};
    assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
    tile_summary s;
    tile_summarise(&i, (int64_t[TILE_AXES]){2}, &s);
    const tile_box *box = box_of(&s, 1, true);
    assert_true(box->dim[0].low == 2 && box->dim[0].high == 3 && box->dim[0].offset_live == 0);
    assert_true(box->dim[1].low == 0 && box->dim[1].high == 4 && box->dim[1].offset_live == -1);
    assert_int_equal(s.bytes_read, 16);
    assert_int_equal(s.bytes_written, 0); /* at the maximum the row is out of range */
    i.live[0].most = 94;
    tile_summarise(&i, (int64_t[TILE_AXES]){2}, &s);
    assert_int_equal(s.bytes_written, 8);

    op = bind(a, "tile split(x: in f32[M, 64], y: inout f32[M]) over (m in ceil(M / 4), k in 4) {\n"
                 "    v = reshape(sum(x[m*4 : +4, k*16 : +16], 1), 4)\n"
                 "    if k == 0 { y[m*4 : +4] = v } else { y[m*4 : +4] += v }\n}");
    i = (tile_instance){.op = op, .tensor = {{2, {10, 64}}, {1, {10}}}};
    assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
    for (int64_t k = 0; k < 4; k++) {
        tile_summarise(&i, (int64_t[TILE_AXES]){2, k}, &s);
        assert_int_equal(box_of(&s, 1, false) != NULL, k > 0); /* the first of a sum reads nothing */
        assert_true(box_of(&s, 1, true)->dim[0].low == 8 && box_of(&s, 1, true)->dim[0].high == 10);
        assert_int_equal(s.flops, 64 + (k > 0 ? 4 : 0));
        assert_int_equal(s.bytes_read, 2 * 16 * 4 + (k > 0 ? 8 : 0));
    }
    arena_free(a);
}

/* Rows that data chooses: the box is the whole table, the bytes are those of the rows. */
static void test_gathered_bytes(void **state) {
    (void)state;
    static const struct {
        const char *source;
        int64_t read, written;
    } cases[] = {
        {"tile embed(ids: in i32[8], w: in q4_0[1000, 64], y: out f32[8, 64]) over (r in 2) {\n"
         "y[r*4 : +4] = f32(w[ids[r*4 : +4]]) }",
         4 * 4 + 4 * 2 * 18, 4 * 64 * 4},
        {"tile page(table: in i32[6], kc: in f16[50, 16, 8], y: out f16[16, 8]) over (r in 1) {\n"
         "for j in 6 { y[:] = kc[table[j]] } }",
         6 * 4 + 6 * 16 * 8 * 2, 16 * 8 * 2},
        {"tile scatter(ids: in i32[3], y: inout f32[40, 5]) over (r in 1) { y[ids[:], 1 : +2] += 1 }",
         3 * 4 + 3 * 2 * 4, 3 * 2 * 4},
        {"tile from(at: in i32[3], x: in u4[4096], y: out u4[6]) over (r in 1) { y[:] = x[at[r] : +6] }", 4 + 3, 3},
        {"tile often(ids: in i32[3], x: in f32[4], y: out f32[4]) over (r in 1) { for j in 9 { y[ids[j]] = x[ids[j]] } "
         "}",
         3 * 4 + 4 * 4, 4 * 4}, /* not more than there is */
        {"tile apart(x: in f32[1000], y: out f32[2]) over (r in 1) { y[0] = x[0]; y[1] = x[999] }", 2 * 4, 2 * 4},
        {"tile twice(x: in f32[8], y: out f32[8]) over (r in 1) { y[:] = x * x }", 8 * 4, 8 * 4},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        arena *a = arena_new();
        const tile_op *op = bind(a, cases[k].source);
        tile_instance i = instance_of(op, NULL, NULL, NULL);
        tile_summary s;
        tile_summarise(&i, (int64_t[TILE_AXES]){0}, &s);
        if (s.bytes_read != cases[k].read || s.bytes_written != cases[k].written)
            fail_msg("%s: %" PRId64 " bytes read, %" PRId64 " written", op->name, s.bytes_read, s.bytes_written);
        if (!strcmp(op->name, "embed"))
            assert_true(box_of(&s, 1, false)->dim[0].low == 0 && box_of(&s, 1, false)->dim[0].high == 1000);
        check_point(&i, (int64_t[TILE_AXES]){0}, DATA, op->name);
        arena_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_instances), cmocka_unit_test(test_grids),
        cmocka_unit_test(test_overflow),          cmocka_unit_test(test_intervals),
        cmocka_unit_test(test_relative_boxes),    cmocka_unit_test(test_gathered_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
