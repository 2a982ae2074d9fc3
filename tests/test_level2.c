/* Level 2 of the language, its programs: those of examples/level2.tile and some of this file's own on the CPU and on
 * the simulator (level2_support.h); mistakes that only show when roles run, which every machine must report; what the
 * scheduler knows of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "level2_support.h"
#include "tile/explicit.h"

static void test_matmul(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    static const struct { /* the last runs through the ring more than once, and rows of 100 have no map */
        int64_t m, n, k;
        bool wide, weight;
    } sizes[] = {{1, 1, 8, false, true},
                 {129, 65, 100, false, false},
                 {127, 130, 456, true, true},
                 {128, 64, 328, false, false}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int64_t m = sizes[i].m, n = sizes[i].n, k = sizes[i].k;
        const bool wide = sizes[i].wide, weight = sizes[i].weight;
        array arrays[] = {
            {.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {m, k}},
            {.name = "w", .type = "bf16", .role = weight ? MT_WEIGHT : MT_INPUT, .rank = 2, .extent = {n, k}},
            {.name = "y", .type = wide ? "bf16" : "f32", .role = MT_OUTPUT, .rank = 2, .extent = {m, n}}};
        const node nodes[] = {{wide ? "matmul2_wgmma" : "matmul2", {"x=x", "w=w", "y=y"}}};
        check(file, nodes, 1, arrays, 3, linear, wide ? 4e-3 : 1e-5, i > 1 ? COUNT_OF(schedules) : 2);
    }
    mt_tile_close(file);
}

static double attention(const array *a, const int64_t *at) {
    const int64_t m = a[0].extent[0], h = a[0].extent[1], d = a[0].extent[2], s = a[1].extent[0], hk = a[1].extent[1],
                  head = at[1] / (h / hk);
    double total = 0, sum = 0;
    for (int64_t k = 0; k <= s - m + at[0]; k++) {
        double score = 0;
        for (int64_t i = 0; i < d; i++)
            score += value_of(&a[0], (size_t)((at[0] * h + at[1]) * d + i)) *
                     value_of(&a[1], (size_t)((k * hk + head) * d + i));
        const double weight = exp(score * 0.125);
        total += weight;
        sum += weight * value_of(&a[2], (size_t)((k * hk + head) * d + at[2]));
    }
    return sum / total;
}

static void test_attention(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    static const int64_t sizes[][5] = {{65, 130, 4, 2, 64}, {129, 129, 1, 1, 128}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int64_t m = sizes[i][0], s = sizes[i][1], h = sizes[i][2], hk = sizes[i][3], d = sizes[i][4];
        array arrays[] = {{.name = "q", .type = "bf16", .role = MT_INPUT, .rank = 3, .extent = {m, h, d}},
                          {.name = "k", .type = "bf16", .role = MT_INPUT, .rank = 3, .extent = {s, hk, d}},
                          {.name = "v", .type = "bf16", .role = MT_INPUT, .rank = 3, .extent = {s, hk, d}},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 3, .extent = {m, h, d}}};
        for (int wide = 0; wide < 2; wide++) {
            const node nodes[] = {
                {wide ? "attention2_wgmma" : "attention2", {"q=q", "k=k", "v=v", "scale=0.125", "y=y"}}};
            check(file, nodes, 1, arrays, 4, attention, 1.2e-2, i == 0 ? COUNT_OF(schedules) : 2);
        }
    }
    mt_tile_close(file);
}

/* Instructions that read what others write: the loader has to wait as the consumers do, in the second run as well. */
static double chain(const array *a, const int64_t *at) {
    double sum = 0;
    const size_t k = (size_t)a[0].extent[1], n = (size_t)a[1].extent[0];
    for (size_t j = 0; j < n; j++) {
        double inner = 0;
        for (size_t i = 0; i < k; i++) inner += value_of(&a[0], (size_t)at[0] * k + i) * value_of(&a[1], j * k + i);
        const uint32_t bits = (uint32_t)bf16_of((float)inner) << 16;
        float rounded;
        memcpy(&rounded, &bits, 4);
        sum += rounded * value_of(&a[2], (size_t)at[1] * n + j);
    }
    return sum;
}

static void test_chain(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    const int64_t m = 130, k = 72, n = 136, o = 40;
    array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {m, k}},
                      {.name = "w", .type = "bf16", .role = MT_WEIGHT, .rank = 2, .extent = {n, k}},
                      {.name = "v", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {o, n}},
                      {.name = "t", .type = "bf16", .role = MT_TEMP, .rank = 2, .extent = {m, n}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {m, o}}};
    const node nodes[] = {{"matmul2_wgmma", {"x=x", "w=w", "y=t"}}, {"matmul2", {"x=t", "w=v", "y=y"}}};
    check(file, nodes, 2, arrays, 5, chain, 2e-2, COUNT_OF(schedules));
    mt_tile_close(file);
}

/* A weight that an op of level 1 reads as well lies in atoms. */
static void test_atoms(void **state) {
    (void)state;
    mt_tile *file = open_examples();
    for (int wide = 0; wide < 2; wide++) {
        array arrays[] = {
            {.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {20, 136}},
            {.name = "w", .type = "bf16", .role = MT_WEIGHT, .rank = 2, .extent = {75, 136}},
            {.name = "z", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {20, 75}},
            {.name = "y", .type = wide ? "bf16" : "f32", .role = MT_OUTPUT, .rank = 2, .extent = {20, 75}}};
        const node nodes[] = {{"*linear", {"x=x", "w=w", "y=z", "P=bf16"}},
                              {wide ? "matmul2_wgmma" : "matmul2", {"x=x", "w=w", "y=y"}}};
        check(file, nodes, 2, arrays, 4, linear, wide ? 4e-3 : 1e-5, 3);
    }
    mt_tile_close(file);
}

/* Layouts that meet: given ones, transposes, a tile through resident memory, a left operand from another layout. */
static const char meeting[] = "tile meet(x: in f32[64, 64], y: out f32[64, 64]) over (one in 1) {\n"
                              " shared c: bf16[64, 64] resident swizzle(128)\n"
                              " role consumer {\n"
                              "  reg a: f32[64, 64] in spatial(16, 16).local(4, 4) = x\n"
                              "  reg b: f32[64, 64] in column_spatial(64, 4).local(1, 16) = a * 2.0\n"
                              "  t = b.T\n"
                              "  c = bf16(t)\n"
                              "  sync()\n"
                              "  acc: f32[64, 64] = 0\n"
                              "  left = bf16(a)\n"
                              "  mma(acc, left, c)\n" /* x · 2 xᵀᵀ... = x · (2 x)ᵀ */
                              "  acc = acc + sum(a, axis = 1) - max(b, axis = 1) * f32(c[:, 0 : +1])\n"
                              "  y[:, :] = acc\n"
                              " }\n"
                              "}\n"
                              "tile small(x: in f32[M, 3], y: out f32[3, M]) over (m in ceil(M / 5)) {\n"
                              " role consumer {\n"
                              "  v = x[m*5 : +5, :]\n"
                              "  w = v.T * 2.0 + 1.0\n"
                              "  for i in 3 { if i % 2 == 1 { w = w - f32(i) } }\n"
                              "  y[:, m*5 : +5] = w\n"
                              " }\n"
                              "}\n";

static double rounded(double v) {
    const uint32_t bits = (uint32_t)bf16_of((float)v) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static double met(const array *a, const int64_t *at) {
    double sum = 0, all = 0, most = -INFINITY;
    for (int64_t k = 0; k < 64; k++) {
        const double x = value_of(&a[0], (size_t)(at[0] * 64 + k)), z = value_of(&a[0], (size_t)(at[1] * 64 + k));
        sum += rounded(x) * rounded(2 * z);
        all += x;
        most = fmax(most, 2 * x);
    }
    return sum + all - most * rounded(2 * value_of(&a[0], (size_t)at[0]));
}
static double turned(const array *a, const int64_t *at) { return value_of(&a[0], (size_t)(at[1] * 3 + at[0])) * 2; }

static void test_layouts_meet(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "meet.tile", meeting, sizeof meeting - 1, NULL, &error_));
    array arrays[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {64, 64}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {64, 64}}};
    check(file, &(node){"meet", {"x=x", "y=y"}}, 1, arrays, 2, met, 1e-4, COUNT_OF(schedules));
    array few[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {13, 3}},
                   {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {3, 13}}};
    check(file, &(node){"small", {"x=x", "y=y"}}, 1, few, 2, turned, 1e-5, COUNT_OF(schedules));
    /* The conversions are shown. */
    char *shown;
    OK(mt_tile_lower((const mt_tile *)file, "meet", NULL, 0, 0, &shown, NULL, &error_));
    assert_non_null(strstr(shown, "it changes threads"));
    assert_non_null(strstr(shown, "column_spatial"));
    free(shown);
    mt_tile_close(file);
}

/* Programs without a reference of their own: what the simulator computes from the lowered form is what the CPU computes
 * from the text. Layouts of all sorts, other types, indirect rows, booleans, parts, axes of tiles of three dimensions.
 */
static const char various[] =
    "tile layouts(x: in bf16[128, 64], w: in bf16[64, 64], y: out f32[64, 128]) over (one in 1) {\n"
    " shared a: bf16[64, 128] resident rows(136)\n"
    " shared b: bf16[64, 64] resident\n"
    " role consumer {\n"
    "  a = x.T\n"
    "  b = w\n"
    "  sync()\n"
    "  reg acc: f32[128, 64] in column_local(2, 4).column_spatial(4, 2).local(2, 1).spatial(8, 4).local(1, 2) = 1.5\n"
    "  mma(acc, a.T, b)\n"
    "  reg two: f32[128, 64] in spatial(2, 4).local(4, 2).local(2, 1).spatial(8, 4).local(1, 2) = acc\n"
    "  mma(two, a.T, b.T)\n"
    "  y[:, :] = (acc + two).T\n"
    " }\n"
    "}\n"
    "tile types(x: in f16[M, 24], i: in i32[M], t: in f32[S, 24], n: arg i32, s: arg f32, y: inout f32[M, 24], z: out "
    "u8[M, 24])\n"
    " over (m in ceil(M / 20)) {\n"
    " shared c[2]: f32[20, 24] resident rows(28)\n"
    " role consumer {\n"
    "  v = f32(x[m*20 : +20 < n, :])\n"
    "  rows = t[i[m*20 : +20], :]\n"
    "  g = where(v > rows, v, rows * s)\n"
    "  big = g > 0.25\n"
    "  c[0] = g\n"
    "  c[1] = abs(v)\n"
    "  sync()\n"
    "  least = min(c[1], axis = 1)\n"
    "  mean = sum(g, axis = 0) / 20\n"
    "  q = concat(g[:, 0 : +8], c[0][:, 8 : +16] + least, axis = 1)\n"
    "  y[m*20 : +20, :] += q - mean\n"
    "  z[m*20 : +20, :] = u8(where(big, abs(g) * 100, 0.0))\n"
    " }\n"
    "}\n"
    "tile cube(x: in f32[4, 6, 10], y: out f32[4, 10], z: out f32[6, 4]) over (one in 1) {\n"
    " role consumer {\n"
    "  v = x\n"
    "  k: i32 = 0\n"
    "  for j in 3 { if j != 1 { v = v * 1.5 - f32(j); k = k + 1 } }\n"
    "  y[:, :] = reshape(max(v, axis = 1), 4, 10) + f32(k)\n"
    "  z[:, :] = reshape(sum(v, 2), 4, 6).T * f32[6, 4](0.5)\n"
    " }\n"
    "}\n"
    "tile halves[K = 96](x: in f16[M, K], w: in f16[24, K], y: out f16[M, 24]) over (m in ceil(M / 64)) {\n"
    " shared a[2]: f16[64, 32] pages rows(40)\n"
    " shared b[2]: f16[24, 32] pages swizzle(64)\n"
    " barrier full[2] (loader)\n"
    " barrier empty[2] (consumer)\n"
    " role loader { for k in K / 32 { s = k % 2; wait(empty[s], k / 2 - 1); expect(full[s], 64*32*2 + 24*32*2); "
    "copy(a[s], x[m*64 : +64, k*32 : +32], full[s]); copy(b[s], w[:, k*32 : +32], full[s]) } }\n"
    " role consumer { reg acc: f32[64, 24] in local(1, 3).spatial(4, 1).replicated(2).local(2, 1).spatial(8, "
    "4).local(1, 2) = 0\n"
    "  for k in stream(K / 32) { wait(full[k % 2], k / 2); mma(acc, a[k % 2], b[k % 2].T); arrive(empty[k % 2]) }\n"
    "  y[m*64 : +64, :] = f16(acc) }\n"
    "}\n";

/* The last columns come first: what the loader writes itself, behind them, copies overwrite in the next round, and
 * those of other instructions. */
static const char tails[] =
    "tile tails[K = 104](x: in f16[M, K], w: in f16[32, K], y: out f32[M, 32]) over (m in ceil(M / 64)) {\n"
    " shared a: f16[64, 32] pages rows(40)\n"
    " shared b: f16[32, 32] pages rows(40)\n"
    " barrier full (loader)\n"
    " barrier empty (consumer)\n"
    " role loader { for j in 4 { k = 3 - j; wait(empty, j - 1); expect(full, 64*32*2 + 32*32*2); "
    "copy(a, x[m*64 : +64, k*32 : +32], full); copy(b, w[:, k*32 : +32], full) } }\n"
    " role consumer { acc: f32[64, 32] = 0\n"
    "  for j in 4 { wait(full, j); mma(acc, a, b.T); arrive(empty) }\n"
    "  y[m*64 : +64, :] = acc }\n"
    "}\n";

static void test_tails(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "tails.tile", tails, sizeof tails - 1, NULL, &error_));
    array arrays[] = {{.name = "x", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {75, 104}},
                      {.name = "w", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {32, 104}},
                      {.name = "u", .type = "f16", .role = MT_WEIGHT, .rank = 2, .extent = {32, 104}},
                      {.name = "z", .type = "f16", .role = MT_OUTPUT, .rank = 2, .extent = {75, 32}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {75, 32}}};
    const node nodes[] = {{"tails", {"x=x", "w=w", "y=y"}}, {"*linear", {"x=x", "w=u", "y=z", "P=f16"}}};
    check(file, nodes, 2, arrays, 5, linear, 1e-4, 3);
    mt_tile_close(file);
}

static void test_various(void **state) {
    (void)state;
    mt_tile *file;
    OK(mt_tile_parse(&file, "various.tile", various, sizeof various - 1, NULL, &error_));
    array layouts[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {128, 64}},
                       {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {64, 64}},
                       {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {64, 128}}};
    check(file, &(node){"layouts", {"x=x", "w=w", "y=y"}}, 1, layouts, 3, NULL, 1e-4, 3);
    array types[] = {{.name = "x", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {33, 24}},
                     {.name = "i", .type = "i32", .role = MT_INPUT, .rank = 1, .extent = {33}},
                     {.name = "t", .type = "f32", .role = MT_INPUT, .rank = 2, .extent = {7, 24}},
                     {.name = "z", .type = "u8", .role = MT_OUTPUT, .rank = 2, .extent = {33, 24}},
                     {.name = "y", .type = "f32", .role = MT_STATE, .rank = 2, .extent = {33, 24}}};
    check(file, &(node){"types", {"x=x", "i=i", "t=t", "n=29", "s=1.25", "y=y", "z=z"}}, 1, types, 5, NULL, 1e-4, 3);
    const array last = types[3]; /* the other output */
    types[3] = types[4];
    types[4] = last;
    check(file, &(node){"types", {"x=x", "i=i", "t=t", "n=29", "s=1.25", "y=y", "z=z"}}, 1, types, 5, NULL, 1e-4, 3);
    array cube[] = {{.name = "x", .type = "f32", .role = MT_INPUT, .rank = 3, .extent = {4, 6, 10}},
                    {.name = "z", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {6, 4}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {4, 10}}};
    check(file, &(node){"cube", {"x=x", "y=y", "z=z"}}, 1, cube, 3, NULL, 1e-5, 3);
    array halves[] = {{.name = "x", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {65, 96}},
                      {.name = "w", .type = "f16", .role = MT_INPUT, .rank = 2, .extent = {24, 96}},
                      {.name = "y", .type = "f16", .role = MT_OUTPUT, .rank = 2, .extent = {65, 24}}};
    check(file, &(node){"halves", {"x=x", "w=w", "y=y"}}, 1, halves, 3, linear, 2e-3, COUNT_OF(schedules));
    mt_tile_close(file);
}

/* ---- mistakes that show when roles run ---- */

static void test_mistakes(void **state) {
    (void)state;
    if (getenv("LEVEL2_MACHINE")) skip();
    static const struct {
        const char *piece, *by, *machine, *says;
    } cases[] = {
        /* nobody frees a stage */
        {"arrive(empty[s])\n", "if k > 100 { arrive(empty[s]) }\n", "cpu:1",
         "no role can go on: role loader waits for empty at line 13; role consumer waits for full at line 23"},
        {"arrive(empty[s])\n", "if k > 100 { arrive(empty[s]) }\n", "sim:1",
         "waits for empty[0] of matmul2, phase 0: 0 of 8 arrivals"},
        /* a phase that nobody waits for, in the first of five instructions: another comes into its slot */
        {"wait(full[s], k / STAGES)", "wait(full[s], k / STAGES); if m == 0 { if k == 9 { arrive(empty[1]) } }",
         "sim:1", "lost arrivals: SM 0, empty[1] of matmul2 ends after 4 phases; 2 of them were waited for"},
        /* a wait for a phase that never comes */
        {"wait(full[s], k / STAGES)", "wait(full[s], k / STAGES + 1)", "cpu:1", "no role can go on"},
        {"wait(full[s], k / STAGES)", "wait(full[s], k / STAGES + 1)", "sim:1",
         "for phase 1 when phase 0 is at hand: it sees one bit of the phase, and passes too early (broken.tile:23"},
        /* its parity is right */
        {"wait(full[s], k / STAGES)", "wait(full[s], k / STAGES + 2)", "cpu:1", "no role can go on"},
        {"wait(full[s], k / STAGES)", "wait(full[s], k / STAGES + 2)", "sim:1",
         "for phase 2 when phase 0 is at hand: it sees one bit of the phase, and passes too early (broken.tile:23"},
        /* a wait for a phase that has been over for too long */
        {"wait(full[s], k / STAGES)", "wait(full[s], k / STAGES); if k == 9 { wait(full[0], 2) }", "sim:1",
         "waits at full[0] of matmul2 for phase 2 when phase 4 is at hand: it sees one bit of the phase, and waits for "
         "one that may never end"},
        /* a stage is read before it is full */
        {"wait(full[s], k / STAGES)", "if k != 4 { wait(full[s], k / STAGES) }", "sim:1,adversarial=copies-late",
         "it is not full"},
        /* a stage is filled before it is empty */
        {"wait(empty[s], k / STAGES - 1)", "if k < 3 { wait(empty[s], k / STAGES - 1) }",
         "sim:1,adversarial=loader-early", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        mt_tile *file = broken(cases[i].piece, cases[i].by);
        const int64_t m = strncmp(cases[i].says, "lost", 4) ? 128 : 600;
        array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {m, 640}},
                          {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {64, 640}},
                          {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {m, 64}}};
        for (int k = 0; k < 3; k++) make(&arrays[k]);
        mt_error error = {0};
        const mt_status status =
            run(cases[i].machine, file, &(node){"matmul2", {"x=x", "w=w", "y=y"}}, 1, arrays, 3, &error);
        if (status == MT_OK || !strstr(error.message, cases[i].says))
            fail_msg("%s: %s; expected %s", cases[i].by, status ? error.message : "nothing found", cases[i].says);
        for (int k = 0; k < 3; k++) free(arrays[k].data);
        mt_tile_close(file);
    }
    /* A ring that is too short for what an instruction holds. */
    mt_tile *file = open_examples();
    array arrays[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {8, 64}},
                      {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {8, 64}},
                      {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {8, 8}}};
    for (int k = 0; k < 3; k++) make(&arrays[k]);
    mt_error error = {0};
    assert_int_equal(run("sim:1,pages=5", file, &(node){"matmul2", {"x=x", "w=w", "y=y"}}, 1, arrays, 3, &error),
                     MT_E_LIMIT);
    for (int k = 0; k < 3; k++) free(arrays[k].data);
    mt_tile_close(file);
}

/* The proxies: what copies and wgmma read, and what they overwrite, has to be fenced when it was written in the
 * ordinary way; and what wgmma may still read may not be written. */
static const char resident[] =
    "tile resident(x: in bf16[256, 64], w: in bf16[64, 64], y: out f32[128, 64]) over (one in "
    "1) {\n"
    " shared a: bf16[128, 64] resident swizzle(128)\n"
    " shared b: bf16[64, 64] resident swizzle(128)\n"
    " role consumer {\n"
    "  acc: f32[128, 64] = 0\n"
    "  b = w\n"
    "  for i in 2 {\n"
    "   a = x[i*128 : +128, :]\n"
    "   sync()\n"
    "   wgmma(acc, a, b.T)\n"
    "   commit()\n"
    "   wait_group(0)\n"
    "   sync()\n"
    "  }\n"
    "  y[:, :] = acc\n"
    " }\n"
    "}\n";

static double both(const array *a, const int64_t *at) {
    double sum = 0;
    for (size_t i = 0; i < 128; i++)
        sum += value_of(&a[0], ((size_t)at[0] + i / 64 * 128) * 64 + i % 64) *
               value_of(&a[1], (size_t)at[1] * 64 + i % 64);
    return sum;
}

static void test_proxies(void **state) {
    (void)state;
    mt_tile *example = open_examples(), *tail, *own, *stores;
    OK(mt_tile_parse(&stores, "storing.tile", storing, sizeof storing - 1, NULL, &error_));
    OK(mt_tile_parse(&tail, "tails.tile", tails, sizeof tails - 1, NULL, &error_));
    OK(mt_tile_parse(&own, "resident.tile", resident, sizeof resident - 1, NULL, &error_));
    array good[] = {{.name = "x", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {256, 64}},
                    {.name = "w", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {64, 64}},
                    {.name = "y", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {128, 64}}};
    check(own, &(node){"resident", {"x=x", "w=w", "y=y"}}, 1, good, 3, both, 1e-5, 4);
    if (getenv("LEVEL2_MACHINE")) skip();
    const struct {
        bug bug;
        const mt_tile *file;
        node nodes[2];
        int64_t m, n, k;
        const char *machine, *says[3];
    } cases[] = {
        {.bug = {"void mt_fence_shared(void)", "mt_calls->fence_proxy(SIM_SPACE_SHARED);", ""},
         example,
         {{"matmul2_wgmma", {"x=x", "w=w", "y=y"}}},
         130,
         40,
         100,
         "sim:1",
         {"proxy", "a wgmma of consumer warp", "loader wrote in the ordinary way"}},
        {.bug = {"mt_rows_begin", "mt_fence_shared();", ""},
         tail,
         {{"tails", {"x=x", "w=w", "y=f"}}},
         75,
         32,
         104,
         "sim:1",
         {"proxy", "a copy writes page", "loader wrote in the ordinary way"}},
        {.bug = {"mt_operands_ready", "mt_fence_copies();", ""},
         example,
         {{"matmul2_wgmma", {"x=x", "w=w", "y=t"}}, {"matmul2", {"x=t", "w=v", "y=f"}}},
         130,
         40,
         40,
         "sim:2",
         {"proxy", "a copy reads t", "matmul2_wgmma"}},
        {.bug = {"void mt_op_make(", "mt_mbarrier_publish();", ""},
         example,
         {{"matmul2", {"x=x", "w=w", "y=f"}}},
         64,
         64,
         64,
         "sim:1",
         {"proxy", "is to arrive at", "made it an mbarrier"}},
        {.bug = {"void mt_fence_shared(void)", "mt_calls->fence_proxy(SIM_SPACE_SHARED);", ""},
         own,
         {{"resident", {"x=x", "w=w", "y=f"}}},
         128,
         64,
         64,
         "sim:1,random=1",
         {"proxy", "a wgmma of consumer warp", "in the ordinary way at resident.tile:"}},
        {.bug = {"op0_resident_run", "mt_wgmma_wait<0>", "mt_wgmma_wait<1>"},
         own,
         {{"resident", {"x=x", "w=w", "y=f"}}},
         128,
         64,
         64,
         "sim:1,adversarial=starve-warp",
         {"proxy", "may still read", "it was not waited for"}},
        {.bug = {"op0_matmul2_wgmma_run", "mt_wgmma_wait<1>", "mt_wgmma_wait<2>"},
         example,
         {{"matmul2_wgmma", {"x=x", "w=w", "y=y"}}},
         128,
         128,
         640,
         "sim:1",
         {"page", "is filled again", "a wgmma of consumer warp"}},
        {.bug = {"op0_silu_mul2_run", "mt_fence_shared();", ""},
         example,
         {{"silu_mul2", {"g=x", "u=w", "y=y"}}},
         520,
         520,
         520,
         "sim:1",
         {"proxy", "a bulk store reads", "in the ordinary way"}},
        {.bug = {"op0_silu_mul2_store", "mt_bulk_read<1>", "mt_bulk_read<2>"},
         example,
         {{"silu_mul2", {"g=x", "u=w", "y=y"}}},
         520,
         520,
         520,
         "sim:1",
         {"proxy", "a bulk store may still read", "it was not waited for"}},
        {.bug = {"void mt_stored(", "mt_bulk_wait();", ""},
         example,
         {{"silu_mul2", {"g=x", "u=w", "y=y"}}},
         16,
         16,
         16,
         "sim:1",
         {"bytes", "ends with 1", "bulk stores under way"}},
        {.bug = {"void mt_rows_store(", "mt_fence_copies();", ""},
         stores,
         {{"*add", {"a=x", "b=w", "y=y"}}, {"twice", {"x=x", "y=y"}}},
         16,
         16,
         16,
         "sim:2",
         {"proxy", "a bulk store writes y", "in the ordinary way"}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const int64_t m = cases[i].m, n = cases[i].n, k = cases[i].k, rows = cases[i].file == own ? 256 : m;
        const char *type = cases[i].file == tail ? "f16" : "bf16";
        array arrays[] = {{.name = "x", .type = type, .role = MT_INPUT, .rank = 2, .extent = {rows, k}},
                          {.name = "w", .type = type, .role = MT_INPUT, .rank = 2, .extent = {n, k}},
                          {.name = "v", .type = "bf16", .role = MT_INPUT, .rank = 2, .extent = {n, n}},
                          {.name = "t", .type = "bf16", .role = MT_TEMP, .rank = 2, .extent = {m, n}},
                          {.name = "y", .type = "bf16", .role = MT_OUTPUT, .rank = 2, .extent = {m, n}},
                          {.name = "f", .type = "f32", .role = MT_OUTPUT, .rank = 2, .extent = {m, n}}};
        for (size_t a = 0; a < COUNT_OF(arrays); a++) make(&arrays[a]);
        mt_error error = {0};
        seeded = &cases[i].bug;
        const mt_status status = run(cases[i].machine, cases[i].file, cases[i].nodes,
                                     1 + (cases[i].nodes[1].program != NULL), arrays, COUNT_OF(arrays), &error);
        seeded = NULL;
        for (size_t w = 0; w < 3; w++)
            if (status == MT_OK || !strstr(error.message, cases[i].says[w]))
                fail_msg("%s: %s; expected %s", cases[i].bug.near, status ? error.message : "nothing found",
                         cases[i].says[w]);
        for (size_t a = 0; a < COUNT_OF(arrays); a++) free(arrays[a].data);
    }
    mt_tile_close(own);
    mt_tile_close(stores);
    mt_tile_close(tail);
    mt_tile_close(example);
}

/* ---- what the scheduler knows ---- */

static void test_summary(void **state) {
    (void)state;
    const tile_file *file = (const tile_file *)open_examples();
    const tile_op *op;
    arena *a = arena_new();
    const tile_constant constants[] = {{.name = "N", .value = 100}, {.name = "K", .value = 130}};
    OK(tile_bind(a, &op, file, "matmul2", constants, 2, NULL, &error_));
    tile_instance i = {.op = op};
    const int64_t extents[3][2] = {{200, 130}, {100, 130}, {200, 100}};
    for (int t = 0; t < 3; t++) i.tensor[t] = (tile_operand){.rank = 2, .extent = {extents[t][0], extents[t][1]}};
    OK(tile_instance_check(&i, &error_));
    tile_summary s;
    tile_summarise(&i, (int64_t[]){1, 1, 0, 0, 0}, &s); /* n, m */
    assert_int_equal(s.flops, (int64_t)2 * 128 * 64 * 64 * 3);
    assert_int_equal(s.box_count, 3);
    const int64_t expected[3][2][2] = {{{128, 200}, {0, 130}}, {{64, 100}, {0, 130}}, {{128, 200}, {64, 100}}};
    for (int b = 0; b < 3; b++)
        for (int d = 0; d < 2; d++) {
            const tile_box *box = &s.box[b];
            assert_int_equal(box->dim[d].low, expected[box->tensor][d][0]);
            assert_int_equal(box->dim[d].high, expected[box->tensor][d][1]);
            assert_int_equal(box->writes, box->tensor == 2);
        }
    arena_free(a);
    mt_tile_close((mt_tile *)file);
}

int main(void) {
    static char folder[TEMPORARY_BYTES];
    if (!temporary_make(folder)) return 1;
    setenv("MONOTILE_CACHE", folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),  cmocka_unit_test(test_attention),    cmocka_unit_test(test_chain),
        cmocka_unit_test(test_atoms),   cmocka_unit_test(test_layouts_meet), cmocka_unit_test(test_tails),
        cmocka_unit_test(test_various), cmocka_unit_test(test_mistakes),     cmocka_unit_test(test_proxies),
        cmocka_unit_test(test_summary),
    };
    if (getenv("LEVEL2_ONLY")) cmocka_set_test_filter(getenv("LEVEL2_ONLY"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temporary_remove(folder);
    return failed;
}
