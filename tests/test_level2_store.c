/* Level 2 of the language, beyond products: storers, atomics, stamped data and register budgets, on the CPU and on the
 * simulator (level2_support.h), and the mistakes that programs make with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "level2_support.h"

/* ---- storers ---- */

static double silu_mul(const array *a, const int64_t *at) {
    const size_t i = (size_t)(at[0] * a[0].extent[1] + at[1]);
    const double v = value_of(&a[0], i);
    return v / (1 + exp(-v)) * value_of(&a[1], i);
}

static double into(const array *a, const int64_t *at) {
    return at[1] == 1 ? value_of(&a[0], (size_t)(at[0] * 40 + at[2]))
                      : value_of(&a[1], (size_t)((at[0] * 3 + at[1]) * 40 + at[2])); /* only the CPU's is like it */
}
static double column(const array *a, const int64_t *at) {
    double sum = 0;
    for (int64_t i = 0; i < 64; i++) sum += value_of(&a[0], (size_t)(i * a[0].extent[1] + at[0]));
    return sum;
}

/* Of what a storer has stored. */
static double stored_linear(const array *a, const int64_t *at) {
    double sum = 0;
    for (int64_t k = 0; k < a[0].extent[1]; k++) {
        const double made = silu_mul(a, (int64_t[]){at[0], k});
        const uint32_t bits = (uint32_t)bf16_of((float)made) << 16;
        float stored;
        memcpy(&stored, &bits, 4);
        sum += stored * value_of(&a[2], (size_t)(at[1] * a[0].extent[1] + k));
    }
    return sum;
}

static void test_storer(void **state) {
    (void)state;
    mt_tile *file = open_examples(), *own;
    array chained[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {100, 264}},
                       {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {100, 264}},
                       {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {24, 264}},
                       {.name = "t", .type = "bf16", .role = MT_TEMP, .rank = 2, .extent = {100, 264}},
                       {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {100, 24}}};
    const node nodes[] = {{"silu_mul2", {"g=g", "u=u", "y=t"}}, {"matmul2", {"x=t", "w=w", "y=y"}}};
    check(file, nodes, 2, chained, 5, stored_linear, 1e-2, COUNT_OF(schedules));
    static const int64_t sizes[][2] = {{33, 1000}, {7, 264}, {16, 301}, {1, 1}}; /* rows of 301 are not aligned */
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        array arrays[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2},
                          {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2}};
        for (int k = 0; k < 3; k++) memcpy(arrays[k].extent, sizes[i], sizeof sizes[i]);
        check(file, &(node){"silu_mul2", {"g=g", "u=u", "y=y"}}, 1, arrays, 3, silu_mul, 4e-3,
              i == 0 ? COUNT_OF(schedules) : 3);
    }
    mt_tile_close(file);
    OK(mt_tile_parse(&own, "storing.tile", storing, sizeof storing - 1, NULL, &error_));
    array heads[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {45, 40}},
                     {.name = "y", .type = "f32", .role = MT_STATE, .rank = 3, .extent = {45, 3, 40}}};
    check(own, &(node){"into", {"x=x", "h=1", "y=y"}}, 1, heads, 2, into, 0, COUNT_OF(schedules));
    for (int64_t n = 63; n <= 200; n += 137) {
        array vector[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {64, n}},
                          {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 1, .extent = {n}}};
        check(own, &(node){"sums", {"x=x", "y=y"}}, 1, vector, 2, column, 1e-5, COUNT_OF(schedules));
    }
    mt_tile_close(own);
    if (getenv("LEVEL2_MACHINE")) skip();
    static const struct {
        const char *piece, *by, *machine, *says;
    } mistakes[] = {{"wait(stored[s], n / STAGES - 1)", "if n > 9 { wait(stored[s], 0) }",
                     "sim:1,adversarial=loader-late", "deadlock"},
                    {"wait(made[s], n / STAGES)", "wait(made[s], n / STAGES + 7)", "sim:1", "storer"},
                    {"wait(made[s], n / STAGES)", "if n > 9 { wait(made[s], 0) }", "sim:1", "a bulk store reads"},
                    {"wait_group(1)\n            if n > 0 { arrive(stored[(n - 1) % STAGES]) }", "arrive(stored[s])",
                     "sim:1,adversarial=starve-warp", "which a bulk store may still read"}};
    for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
        array arrays[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {16, 1024}},
                          {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {16, 1024}},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {16, 1024}}};
        mt_error error = {0};
        file = broken(mistakes[i].piece, mistakes[i].by);
        for (int k = 0; k < 3; k++) make(&arrays[k]);
        const node one = {"silu_mul2", {"g=g", "u=u", "y=y"}};
        if (run(mistakes[i].machine, file, &one, 1, arrays, 3, &error) == MT_OK ||
            !strstr(error.message, mistakes[i].says))
            fail_msg("%s: %s", mistakes[i].by, error.message);
        for (int k = 0; k < 3; k++) free(arrays[k].data);
        mt_tile_close(file);
    }
}

/* ---- atomics ---- */

/* Counts of numbers; the rest of what atomics can do. */
static const char atomics[] =
    "tile fill[V = 0, T = i32](y: out T[N]) over (n in ceil(N / 16)) { y[n*16 : +16] = T(V) }\n"
    "tile count(x: in i32[M], y: inout i32[N]) over (m in ceil(M / 24)) {\n"
    " unordered y\n"
    " role consumer {\n"
    "  bin = where(i32(m*24) + iota(24) < i32(M), x[m*24 : +24], -1)\n" /* none, behind the end */
    "  atomic_add(y[bin], 1, relaxed, gpu)\n"
    " }\n"
    "}\n"
    "tile others(x: in i32[M], y: inout i32[N], z: inout u32[N]) over (m in ceil(M / 8)) {\n"
    " unordered y, z\n"
    " role consumer {\n"
    "  v = x[m*8 : +8]\n"
    "  atomic_min(y[0 : +1], min(v, axis = 0), relaxed, gpu)\n"
    "  atomic_max(y[1 : +1], max(v, axis = 0), release, gpu)\n"
    "  atomic_and(y[2 : +2], i32[2](-1) - (1 << i32(m)), relaxed, gpu)\n"
    "  atomic_or(z[0], u32(1 << i32(m)), relaxed, gpu)\n"
    "  atomic_max(z[1], u32(m * 1000000000), relaxed, gpu)\n"
    "  atomic_min(z[2], 4000000000 - u32(m), relaxed, gpu)\n"
    "  before: u32 = 5\n"
    "  atomic_exchange(z[3], 7, acquire, gpu, before)\n"
    "  atomic_add(z[4 : +3], u32(where(before == 7, 10, 1)), relaxed, gpu)\n"
    "  atomic_add(z[m*2 + 8], 3, relaxed, cta)\n"
    "  atomic_add(z[m*2 + 60], 3, relaxed, cta)\n" /* outside */
    " }\n"
    "}\n";

static double counted(const array *a, const int64_t *at) {
    double n = 0;
    for (size_t i = 0; i < a[0].count; i++) n += value_of(&a[0], i) == (double)at[0];
    return n;
}
static double total(const array *a, const int64_t *at) {
    double sum = 0;
    for (size_t i = 0; i < (size_t)a[0].extent[0]; i++)
        sum += value_of(&a[0], i * (size_t)a[0].extent[1] + (size_t)at[0]);
    return sum;
}

static double other(const array *a, const int64_t *at) {
    double least = -1, most = -1;
    for (size_t i = 0; i < a[0].count; i++)
        least = fmin(least, value_of(&a[0], i)), most = fmax(most, value_of(&a[0], i));
    const double y[16] = {least, most, -32, -32, [4 ... 15] = -1};
    const double z[16] = {31, 4e9, 0, 7, 41, 41, 41, 0, 3, 0, 3, 0, 3, 0, 3};
    return a[2].type[0] == 'i' ? y[at[0]] : z[at[0]];
}

static void test_atomics(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "atomics.tile", atomics, sizeof atomics - 1, NULL, &error_));
    array counting[] = {{.name = "x", .type = "i32", .role = MT_INPUT, .rank = 1, .extent = {211}},
                        {.name = "y", .type = "i32", .role = MT_OUTPUT, .rank = 1, .extent = {7}}};
    const node count[] = {{"fill", {"y=y"}}, {"count", {"x=x", "y=y"}}};
    check(file, count, 2, counting, 2, counted, 0, COUNT_OF(schedules));
    array adding[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {200, 100}},
                      {.name = "t", .type = "f32", .role = MT_TEMP, .rank = 2, .extent = {3, 100}},
                      {.name = "n", .type = "i32", .role = MT_TEMP, .rank = 1, .extent = {16}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 1, .extent = {100}}};
    const node add[] = {{"fill", {"y=n"}}, {"column_sums2", {"x=x", "t=t", "come=n", "y=y", "PARTS=3"}}};
    text examples = {0};
    OK(file_read(&examples, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", 1 << 20, &error_));
    text_append(&examples, atomics, strcspn(atomics, "\n") + 1);
    mt_tile *sums = edited(examples.data, "", "");
    const mt_constant parts = {.name = "PARTS", .value = 3};
    char *shown;
    OK(mt_tile_lower((const mt_tile *)sums, "column_sums2", &parts, 1, 0, &shown, NULL, &error_));
    assert_non_null(strstr(shown, "atomic_add(come[n : +1], i32[1](1), acq_rel, gpu, before)"));
    free(shown);
    check(sums, add, 2, adding, 4, total, 1e-5, COUNT_OF(schedules));
    mt_tile_close(sums);
    array y = {.name = "y", .type = "i32", .role = MT_OUTPUT, .rank = 1, .extent = {16}}, z = y;
    z.name = "z";
    z.type = "u32";
    for (int last = 0; last < 2; last++) {
        array all[] = {
            {.name = "x", .type = "i32", .role = MT_INPUT, .rank = 1, .extent = {40}}, last ? y : z, last ? z : y};
        const node nodes[] = {{"fill", {"y=y", "V=-1"}}, {"fill", {"y=z"}}, {"others", {"x=x", "y=y", "z=z"}}};
        check(file, nodes, 3, all, 3, other, 0, COUNT_OF(schedules));
    }
    mt_tile_close(file);
    if (getenv("LEVEL2_MACHINE")) {
        text_free(&examples);
        skip();
    }
    /* The scheduler orders what is not unordered. */
    text ordered = {0};
    replace(&ordered, examples.data, "unordered t, come, y\n", "");
    sums = edited(ordered.data, "acq_rel, gpu, before", "relaxed, gpu, before");
    check(sums, add, 2, adding, 4, total, 1e-5, 3);
    mt_tile_close(sums);
    text_free(&ordered);
    /* An order or a scope that is too weak for what others read. */
    static const char *const weak[] = {"relaxed, gpu, before", "release, gpu, before", "acquire, gpu, before",
                                       "acq_rel, cta, before"};
    for (size_t i = 0; i < COUNT_OF(weak); i++) {
        mt_error error = {0};
        file = edited(examples.data, "acq_rel, gpu, before", weak[i]);
        for (int k = 0; k < 4; k++) make(&adding[k]);
        if (run("sim:3", file, add, 2, adding, 4, &error) == MT_OK || !strstr(error.message, "race"))
            fail_msg("%s: %s", weak[i], error.message);
        for (int k = 0; k < 4; k++) free(adding[k].data);
        mt_tile_close(file);
    }
    text_free(&examples);
}

/* ---- register budgets ---- */

static void test_budgets(void **state) {
    (void)state;
    text whole = {0}, one = {0};
    OK(file_read(&whole, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", 1 << 20, &error_));
    array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {129, 200}},
                      {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {65, 200}},
                      {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {129, 65}}};
    mt_tile *file =
        edited(whole.data, "role consumer (warpgroups = 2)", "role consumer (warpgroups = 2, registers = 216)");
    check(file, &(node){"matmul2_wgmma", {"x=x", "w=w", "y=y"}}, 1, arrays, 3, linear, 4e-3, 3);
    mt_tile_close(file);
    /* Others have what is left; the storer's budget is the loader's. */
    array streams[] = {{.name = "g", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {33, 520}},
                       {.name = "u", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {33, 520}},
                       {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {33, 520}}};
    replace(&one, whole.data, "role storer {", "role storer (registers = 88) {");
    file = edited(one.data, "role consumer (warpgroups = 2)", "role consumer (warpgroups = 2, registers = 232)");
    check(file, &(node){"silu_mul2", {"g=g", "u=u", "y=y"}}, 1, streams, 3, silu_mul, 4e-3, 3);
    /* Two ops that one kernel cannot have both. */
    array two[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {16, 16}},
                   {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {16, 16}},
                   {.name = "z", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {16, 16}}};
    const node nodes[] = {{"matmul2_wgmma", {"x=x", "w=x", "y=y"}}, {"silu_mul2", {"g=x", "u=x", "y=z"}}};
    for (int k = 0; k < 3; k++) make(&two[k]);
    mt_error error = {0};
    const char *only = getenv("LEVEL2_MACHINE");
    if (!only || strncmp(only, "cpu", 3)) {
        assert_int_equal(run(only ? only : "sim:1", file, nodes, 2, two, 3, &error), MT_E_LIMIT);
        assert_non_null(
            strstr(error.message, "'matmul2_wgmma' wants 232 a thread for the consumers, and op 'silu_mul2' 88"));
    }
    if (!only) OK(run("cpu:1", file, nodes, 2, two, 3, &error_));
    for (int k = 0; k < 3; k++) free(two[k].data);
    mt_tile_close(file);
    text_free(&one);
    text_free(&whole);
}

/* ---- stamped data ---- */

/* All that the others leave, in two dimensions and with a part that lies outside; a NaN is no stamp. */
static const char stamped[] =
    "tile clear[D = 6](t: inout f32[P, D]) over (p in P) { role consumer { stamp(t[p, :]) } }\n"
    "tile all(x: in f32[P, 6], t: inout f32[P, 6], y: out f32[P, 16]) over (p in 5) {\n"
    " unordered t, y\n"
    " role consumer {\n"
    "  nan = x[0, 0] * 0.0 / 0.0\n"
    "  post(t[p : +1, 0 : +4], x[p : +1, 0 : +4] * 2.0)\n"
    "  post(t[p, 4 : +2], nan)\n"
    "  v: f32[8, 16] = 1\n"
    "  if p == 4 { take(v, t[0 : +8, 0 : +16]); y[0 : +8, :] = where(v == v, v, -1.0) }\n"
    " }\n"
    "}\n";

static double running(const array *a, const int64_t *at) {
    double sum = 0;
    for (int64_t i = 0; i < min_i64(at[0] * 16 + 16, a[0].extent[0]); i++)
        sum += value_of(&a[0], (size_t)(i * 64 + at[1]));
    return sum;
}
static double all_taken(const array *a, const int64_t *at) {
    return at[1] < 4 ? 2 * value_of(&a[0], (size_t)(at[0] * 6 + at[1])) : at[1] < 6 ? -1 : 0;
}

static void test_stamped(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    array sums[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {90, 64}},
                    {.name = "t", .type = "f32", .role = MT_TEMP, .rank = 2, .extent = {6, 64}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {6, 64}}};
    const node nodes[] = {{"stamp2", {"t=t"}}, {"running2", {"x=x", "t=t", "y=y"}}};
    check(file, nodes, 2, sums, 3, running, 1e-5, COUNT_OF(schedules));
    mt_tile_close(file);
    OK(mt_tile_parse(&file, "stamped.tile", stamped, sizeof stamped - 1, NULL, &error_));
    array five[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {5, 6}},
                    {.name = "t", .type = "f32", .role = MT_TEMP, .rank = 2, .extent = {5, 6}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {5, 16}}};
    const node takes[] = {{"clear", {"t=t"}}, {"all", {"x=x", "t=t", "y=y"}}};
    check(file, takes, 2, five, 3, all_taken, 1e-6, COUNT_OF(schedules));
    mt_tile_close(file);
    if (getenv("LEVEL2_MACHINE")) skip();
    static const struct {
        const char *piece, *by, *says;
    } mistakes[] = {{"post(t[p, :], before + mine)",
                     "if p < 3 { post(t[p, :], before + mine) } else { t[p, :] = before + mine }", "race"},
                    {"post(t[p, :], before + mine)", "if p != 2 { post(t[p, :], before + mine) }",
                     "which is 4294967295: it is stamped, and nobody posts it"},
                    {"stamp(t[p, :])", "if p != 2 { stamp(t[p, :]) }",
                     "which nobody has posted in this launch, and gets what was there before"}};
    for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
        mt_error error = {0};
        file = broken(mistakes[i].piece, mistakes[i].by);
        for (int k = 0; k < 3; k++) make(&sums[k]);
        if (run(i < 2 ? "sim:2" : "sim:2,adversarial=starve-sm,seed=0", file, nodes, 2, sums, 3, &error) == MT_OK ||
            !strstr(error.message, mistakes[i].says))
            fail_msg("%s: %s", mistakes[i].by, error.message);
        for (int k = 0; k < 3; k++) free(sums[k].data);
        mt_tile_close(file);
    }
    /* What is posted last is not seen last: `part` is not stamped where it is taken, and relies on it. */
    static const char relies[] =
        "tile clear(t: inout f32[64], part: inout f32[128]) over (n in 1) { role consumer { stamp(t[0 : +64]); "
        "stamp(part[64 : +64]) } }\n"
        "tile pass(x: in f32[64], t: inout f32[64], part: inout f32[128], y: out f32[64]) over (p in 2) {\n"
        " unordered t, part\n"
        " role consumer {\n"
        "  a: f32[64] = 0\n"
        "  b: f32[64] = 0\n"
        "  if p == 0 { post(part[0 : +64], x * 2.0); post(t[0 : +64], x) }\n"
        "  if p == 1 { take(a, t[0 : +64]); take(b, part[0 : +64]); y[0 : +64] = a + b }\n"
        " }\n"
        "}\n";
    array passed[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 1, .extent = {64}},
                      {.name = "t", .type = "f32", .role = MT_TEMP, .rank = 1, .extent = {64}},
                      {.name = "part", .type = "f32", .role = MT_TEMP, .rank = 1, .extent = {128}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 1, .extent = {64}}};
    const node passes[] = {{"clear", {"t=t", "part=part"}}, {"pass", {"x=x", "t=t", "part=part", "y=y"}}};
    static const char *const late[] = {"sim:2", "sim:2,random=1", "sim:2,random=2", "sim:2,adversarial=copies-late"};
    OK(mt_tile_parse(&file, "relies.tile", relies, sizeof relies - 1, NULL, &error_));
    for (size_t i = 0; i < COUNT_OF(late); i++) {
        mt_error error = {0};
        for (int k = 0; k < 4; k++) make(&passed[k]);
        const mt_status status = run(late[i], file, passes, 2, passed, 4, &error);
        if ((status == MT_OK) != !i || (i && !strstr(error.message, "takes part + ")))
            fail_msg("%s: %s", late[i], error.message);
        for (int k = 0; k < 4; k++) free(passed[k].data);
    }
    mt_tile_close(file);
    /* Nobody stamps, or posts, in front: no machine takes the program. */
    static const node behind[] = {{"running2", {"x=x", "t=t", "y=y"}}, {"stamp2", {"t=t"}}};
    const struct {
        const char *piece, *by, *says;
        const node *nodes;
        int count;
        mt_role role;
    } refused[] = {{"", "", "and no node in front stamps it: it would take what was there before", behind, 1, MT_TEMP},
                   {"", "", "and no node in front stamps it", behind, 2, MT_TEMP},
                   {"post(t[p, :], before + mine)", "t[p, :] = before + mine",
                    "'running2' takes what is posted in 't', and no node in front posts it: it would wait for ever",
                    nodes, 2, MT_TEMP},
                   {"", "", "", behind, 2, MT_STATE}}; /* stamps for the next run */
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        mt_error error = {0};
        file = broken(refused[i].piece, refused[i].by);
        sums[1].role = refused[i].role;
        for (int k = 0; k < 3; k++) make(&sums[k]);
        memset(sums[1].data, 0xff, bytes_of(&sums[1]));
        const mt_status status = run("cpu:1", file, refused[i].nodes, refused[i].count, sums, 3, &error);
        if (status != (*refused[i].says ? MT_E_ARGUMENT : MT_OK) || !strstr(error.message, refused[i].says))
            fail_msg("%s: %s", refused[i].says, error.message);
        for (int k = 0; k < 3; k++) free(sums[k].data);
        mt_tile_close(file);
    }
}

int main(void) {
    static char folder[TEMPORARY_BYTES];
    if (!temporary_make(folder)) return 1;
    setenv("MONOTILE_CACHE", folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storer),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_stamped),
        cmocka_unit_test(test_budgets),
    };
    if (getenv("LEVEL2_ONLY")) cmocka_set_test_filter(getenv("LEVEL2_ONLY"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temporary_remove(folder);
    return failed;
}
