/* Splitting, as for a machine with many processors, against float64 references: attention in parts, on the CPU machine;
 * products of many rows whose columns are in parts, on the CPU machine and on the simulator. And where nothing is
 * split.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "graph_make.h"
#include "monotile/machine.h"
#include "temporary.h"
#include "unit_text.h"

enum { H = 6, HK = 2, D = 10, S = 300, N = 37 }; /* heads, key-value heads, head, positions, outputs */
static float q[H * D], kc[S * HK * D], vc[S * HK * D], w[N * H * D], r[N];

static float noise(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (1 << 23) - 1;
}

/* y = softmax(q · k / 3) · v · wᵀ + r over positions 0 .. pos. */
static void reference(int pos, double *y) {
    double x[H * D];
    for (int h = 0; h < H; h++) {
        double score[S], most = -INFINITY, total = 0;
        const int k = h / (H / HK);
        for (int s = 0; s <= pos; s++) {
            score[s] = 0;
            for (int d = 0; d < D; d++) score[s] += (double)q[h * D + d] * kc[(s * HK + k) * D + d] / 3;
            most = fmax(most, score[s]);
        }
        for (int s = 0; s <= pos; s++) total += score[s] = exp(score[s] - most);
        for (int d = 0; d < D; d++) {
            x[h * D + d] = 0;
            for (int s = 0; s <= pos; s++) x[h * D + d] += score[s] / total * vc[(s * HK + k) * D + d];
        }
    }
    for (int n = 0; n < N; n++) {
        y[n] = r[n];
        for (int i = 0; i < H * D; i++) y[n] += x[i] * w[n * H * D + i];
    }
}

static mt_graph *make_attention(void) {
    mt_error e = {0};
    mt_graph *g;
    mt_tensor tq = -1, tk = -1, tv = -1, tw = -1, tr = -1, ty = -1, a = -1, rows = -1;
    mt_live pos = -1;
    bool good = mt_graph_create(&g, &e) == MT_OK && mt_graph_live(g, "pos", 0, S - 1, &pos, &e) == MT_OK;
    good = good && mt_graph_tensor(g, MT_INPUT, "q", "f32", 3, (int64_t[]){1, H, D}, &tq, &e) == MT_OK;
    good = good && mt_graph_tensor(g, MT_STATE, "kc", "f32", 3, (int64_t[]){S, HK, D}, &tk, &e) == MT_OK;
    good = good && mt_graph_tensor(g, MT_STATE, "vc", "f32", 3, (int64_t[]){S, HK, D}, &tv, &e) == MT_OK;
    good = good && mt_graph_tensor(g, MT_WEIGHT, "w", "f32", 2, (int64_t[]){N, H * D}, &tw, &e) == MT_OK;
    good = good && mt_graph_tensor(g, MT_INPUT, "r", "f32", 2, (int64_t[]){1, N}, &tr, &e) == MT_OK;
    good = good && mt_graph_tensor(g, MT_OUTPUT, "y", "f32", 2, (int64_t[]){1, N}, &ty, &e) == MT_OK;
    const mt_operand attention[] = {MT_OPERAND("q", tq), MT_OPERAND("kc", tk), MT_OPERAND("vc", tv),
                                    MT_OPERAND_LIVE("pos", pos), MT_OPERAND_FLOAT("scale", 1 / 3.f)};
    good = good && mt_graph_node(g, NULL, "attention", NULL, attention, COUNT_OF(attention), &a, &e) == MT_OK;
    good = good && mt_graph_reshape(g, a, 2, (int64_t[]){1, H * D}, &rows, &e) == MT_OK;
    const mt_operand linear[] = {MT_OPERAND("x", rows), MT_OPERAND("w", tw), MT_OPERAND("r", tr), MT_OPERAND("y", ty)};
    good = good && mt_graph_node(g, NULL, "linear_add", NULL, linear, COUNT_OF(linear), NULL, &e) == MT_OK;
    if (!good) fail_msg("%s: %s", e.where, e.message);
    return g;
}

typedef struct seen { /* programs in the graph behind all passes */
    bool part, merge, whole;
} seen;

static void look(void *context, const char *pass, const char *graph) {
    seen *s = context;
    if (!strcmp(pass, "lower"))
        *s = (seen){strstr(graph, "= attention_part["), strstr(graph, "= merge_linear_add["),
                    strstr(graph, "= attention[")};
}

static void put(mt_session *s, const char *name, const void *data, size_t size) {
    void *memory;
    size_t bytes;
    assert_int_equal(mt_session_memory(s, name, &memory, &bytes, NULL), MT_OK);
    assert_int_equal(bytes, size);
    memcpy(memory, data, size);
}

static void check(const char *machine, int processors, bool split) {
    mt_error e = {0};
    seen s = {0};
    const mt_target target = {.machine = machine, .processors = processors, .dump = look, .dump_context = &s};
    mt_graph *g = make_attention();
    mt_program *p;
    mt_machine *m;
    mt_session *session;
    if (mt_compile(g, &target, &p, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
    assert_true(s.part == split && s.merge == split && s.whole == !split);
    assert_int_equal(mt_machine_open(&m, "cpu:2", &e), MT_OK);
    if (mt_session_create(&session, m, p, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
    put(session, "q", q, sizeof q);
    put(session, "kc", kc, sizeof kc);
    put(session, "vc", vc, sizeof vc);
    put(session, "r", r, sizeof r);
    assert_int_equal(mt_session_bind_weight(session, "w", w, sizeof w, &e), MT_OK);
    const int at[] = {0, 1, 63, 64, 65, 127, 128, 255, 256, S - 1};
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        double expected[N], worst = 0, norm = 0;
        void *y;
        size_t bytes;
        reference(at[i], expected);
        assert_int_equal(mt_session_memory(session, "y", &y, &bytes, &e), MT_OK);
        memset(y, 0xff, bytes);
        assert_int_equal(mt_session_live(session, "pos", at[i], &e), MT_OK);
        if (mt_session_run(session, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
        for (int n = 0; n < N; n++) {
            const double d = ((float *)y)[n] - expected[n];
            worst += d * d;
            norm += expected[n] * expected[n];
        }
        if (!(sqrt(worst) <= 1e-6 * sqrt(norm)))
            fail_msg("%s, position %d: relative difference %g", machine, at[i], sqrt(worst / norm));
    }
    mt_session_destroy(session);
    mt_program_destroy(p);
    mt_machine_close(m);
    mt_graph_destroy(g);
}

static void attention_in_parts(void **state) {
    (void)state;
    check("cuda", 132, true);
    check("cuda", 20, true); /* larger parts */
    check("cuda", 1, false); /* nobody is idle */
    check("cpu", 7, false);  /* results must not depend on the number of workers */
}

/* ---- products ---- */

typedef struct product {  /* y = x · wᵀ (+ r) */
    int rows, columns, k; /* of y; of x */
    const char *weights;
    bool adds;
} product;

static void look_for_parts(void *context, const char *pass, const char *graph) {
    seen *s = context;
    if (!strcmp(pass, "lower"))
        *s = (seen){strstr(graph, "= linear_part["),
                    strstr(graph, "= add_parts[") || (strstr(graph, "= sum_parts[") && !strstr(graph, "= add[")),
                    strstr(graph, "= linear[") || strstr(graph, "= linear_add[")};
}

/* The rows are live. */
static mt_graph *make_product(const product *p) {
    mt_error e = {0};
    mt_live rows;
    mt_graph *g = make_graph(NULL);
    const mt_tensor tx = make_tensor(g, MT_INPUT, "x", "bf16", p->rows, p->k),
                    tw = make_tensor(g, MT_WEIGHT, "w", p->weights, p->columns, p->k),
                    ty = make_tensor(g, MT_OUTPUT, "y", "f32", p->rows, p->columns);
    assert_int_equal(mt_graph_live(g, "rows", 1, p->rows, &rows, &e), MT_OK);
    assert_int_equal(mt_graph_live_extent(g, tx, 0, rows, &e), MT_OK);
    assert_int_equal(mt_graph_live_extent(g, ty, 0, rows, &e), MT_OK);
    const mt_operand type = MT_OPERAND_TYPE("P", "bf16"), x = MT_OPERAND("x", tx), weights = MT_OPERAND("w", tw),
                     y = MT_OPERAND("y", ty);
    if (p->adds) {
        const mt_tensor tr = make_tensor(g, MT_INPUT, "r", "f32", p->rows, p->columns);
        assert_int_equal(mt_graph_live_extent(g, tr, 0, rows, &e), MT_OK);
        NODE(g, "linear_add", x, weights, MT_OPERAND("r", tr), y, type);
    } else
        NODE(g, "linear", x, weights, y, type);
    return g;
}

/* Cut off. */
static uint16_t bf16_of(float f) {
    uint16_t out;
    memcpy(&out, (const char *)&f + 2, 2);
    return out;
}
static double value_of(uint16_t bf16) {
    float out = 0;
    memcpy((char *)&out + 2, &bf16, 2);
    return out;
}

/* Weights and their values: bf16, or q8_0 blocks of 32 with a scale of 2^-6 or 2^-7. */
static size_t make_weights(const product *p, uint8_t *bytes, double *values, uint64_t *seed) {
    const bool packed = !strcmp(p->weights, "q8_0");
    size_t at = 0;
    for (int i = 0; i < p->columns * p->k; i++) {
        if (packed && i % 32 == 0) {
            const uint16_t scale = i / 32 % 3 ? 0x2400 : 0x2000;
            memcpy(bytes + at, &scale, 2);
            at += 2;
        }
        const int8_t code = (int8_t)(noise(seed) * 127);
        const double scale = packed && i / 32 % 3 == 0 ? 1. / 128 : 1. / 64;
        const uint16_t dense = bf16_of((float)(code * scale)); /* exact */
        values[i] = code * scale;
        memcpy(bytes + at, packed ? (const void *)&code : &dense, packed ? 1 : 2);
        at += packed ? 1 : 2;
    }
    return at;
}

typedef struct data {
    uint16_t *x;
    float *r;
    double *values;
    uint8_t *w;
    size_t bytes; /* of w */
} data;

static void run_product(const product *p, const data *d, const mt_program *program, const char *machine, int rows,
                        float *y) {
    mt_error e = {0};
    mt_machine *m;
    mt_session *session;
    void *memory;
    size_t bytes;
    assert_int_equal(mt_machine_open(&m, machine, &e), MT_OK);
    if (mt_session_create(&session, m, program, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
    put(session, "x", d->x, (size_t)(p->rows * p->k) * 2);
    if (p->adds) put(session, "r", d->r, (size_t)(p->rows * p->columns) * 4);
    assert_int_equal(mt_session_bind_weight(session, "w", d->w, d->bytes, &e), MT_OK);
    assert_int_equal(mt_session_memory(session, "y", &memory, &bytes, &e), MT_OK);
    memset(memory, 0xff, bytes);
    assert_int_equal(mt_session_live(session, "rows", rows, &e), MT_OK);
    if (mt_session_run(session, &e) != MT_OK) fail_msg("%s: %s: %s", machine, e.where, e.message);
    memcpy(y, memory, bytes);
    mt_session_destroy(session);
    mt_machine_close(m);
}

static void check_product(const product *p, const data *d, const float *y, int rows, const char *machine) {
    double worst = 0, norm = 0;
    for (int m = 0; m < rows; m++)
        for (int n = 0; n < p->columns; n++) {
            double sum = p->adds ? d->r[m * p->columns + n] : 0;
            for (int k = 0; k < p->k; k++) sum += value_of(d->x[m * p->k + k]) * d->values[n * p->k + k];
            worst += (y[m * p->columns + n] - sum) * (y[m * p->columns + n] - sum);
            norm += sum * sum;
        }
    if (!(sqrt(worst) <= 2e-6 * sqrt(norm)))
        fail_msg("%s, %d rows: relative difference %g", machine, rows, sqrt(worst / norm));
    for (int i = rows * p->columns; i < p->rows * p->columns; i++) /* nothing beyond the live rows is written */
        assert_int_equal(((const uint32_t *)(const void *)y)[i], UINT32_MAX);
}

static void products_in_parts(void **state) {
    (void)state;
    /* the last part of K is shorter, or not: parts have multiples of 256 columns; rows have whole pairs of blocks, or
     * not */
    static const product all[] = {{70, 135, 1608, "bf16", true},
                                  {150, 131, 2048, "bf16", false},
                                  {70, 70, 4832, "q8_0", true},
                                  {70, 70, 4864, "q8_0", false}};
    static const char *const machines[] = {"cpu:1",  "cpu:2",           "cpu:3",
                                           "sim:16", "sim:16,random=3", "sim:16,adversarial=starve-sm,seed=1"};
    uint64_t seed = 5;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const product *p = &all[i];
        const size_t outputs = (size_t)(p->rows * p->columns), ins = (size_t)(p->rows * p->k),
                     weights = (size_t)(p->columns * p->k);
        data d = {malloc(ins * sizeof *d.x), malloc(outputs * sizeof *d.r), malloc(weights * sizeof *d.values),
                  malloc(weights * 2), 0};
        float *y = malloc(outputs * sizeof *y), *first = malloc(outputs * sizeof *y);
        assert_true(d.x && d.r && d.values && d.w && y && first);
        for (size_t j = 0; j < ins; j++) d.x[j] = bf16_of(noise(&seed));
        for (size_t j = 0; j < outputs; j++) d.r[j] = noise(&seed);
        d.bytes = make_weights(p, d.w, d.values, &seed);
        mt_error e = {0};
        seen s = {0};
        mt_program *program;
        mt_graph *g = make_product(p);
        const mt_target target = {.machine = "sim", .processors = 16, .dump = look_for_parts, .dump_context = &s};
        if (mt_compile(g, &target, &program, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
        if (!s.part || !s.merge || s.whole) fail_msg("case %zu: %d %d %d", i, s.part, s.merge, s.whole);
        for (int live = 0; live < 2; live++)
            for (size_t m = 0; m < COUNT_OF(machines); m++) {
                const int rows = live ? 37 : p->rows, is_sim = machines[m][0] == 's';
                if (is_sim && unit_no_compiler()) continue;
                run_product(p, &d, program, machines[m], rows, m == 0 || m == 3 ? first : y);
                if (m == 0 || m == 3)
                    check_product(p, &d, first, rows, machines[m]);
                else /* the same bits, whoever runs what and when */
                    assert_memory_equal(y, first, outputs * sizeof *y);
            }
        mt_program_destroy(program);
        mt_graph_destroy(g);
        free(d.x);
        free(d.r);
        free(d.values);
        free(d.w);
        free(y);
        free(first);
    }
}

static void where_products_are_split(void **state) {
    (void)state;
    static const struct {
        product p;
        const char *machine, *architecture;
        int processors;
        bool split;
    } all[] = {
        {{512, 2048, 8192, "bf16", true}, "cuda", NULL, 132, true}, /* 64 tiles of 128 x 128 */
        {{128, 2048, 2048, "bf16", false}, "cuda", NULL, 132, true},
        {{512, 2048, 8192, "q4_1", true}, "cuda", NULL, 132, true},
        {{64, 2048, 8192, "bf16", true}, "cuda", NULL, 132, true},
        {{256, 2048, 2048, "bf16", true}, "cuda", NULL, 132, false}, /* but for the hand-off parts would take less */
        {{256, 2048, 8192, "q8_0", true}, "cuda", NULL, 132, true},
        {{256, 2048, 8192, "q4_k", true}, "cuda", NULL, 132, true},
        {{512, 2048, 8192, "bf16", true}, "cuda", NULL, 16, false},   /* tiles enough */
        {{4096, 2048, 8192, "bf16", true}, "cuda", NULL, 132, false}, /* tiles enough */
        {{512, 16384, 2048, "bf16", false}, "cuda", NULL, 132, false},
        {{512, 2048, 200, "bf16", true}, "cuda", NULL, 132, false},     /* short sums: parts cost more */
        {{16, 2048, 8192, "bf16", true}, "cuda", NULL, 132, false},     /* few rows: not wide */
        {{512, 2048, 8192, "bf16", true}, "cuda", "sm_80", 132, false}, /* no wide products */
        {{512, 2048, 8192, "bf16", true}, "cpu", NULL, 132, false},     /* bits must not depend on the workers */
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        mt_error e = {0};
        seen s = {0};
        mt_program *program;
        mt_graph *g = make_product(&all[i].p);
        const mt_target target = {.machine = all[i].machine,
                                  .architecture = all[i].architecture,
                                  .processors = all[i].processors,
                                  .dump = look_for_parts,
                                  .dump_context = &s};
        if (mt_compile(g, &target, &program, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
        if (s.part != all[i].split || s.merge != all[i].split || s.whole == all[i].split) fail_msg("case %zu", i);
        mt_program_destroy(program);
        mt_graph_destroy(g);
    }
}

/* Projections of one input run side by side: their tiles are enough together. */
static void neighbours_stay(void **state) {
    (void)state;
    for (int several = 0; several < 2; several++) {
        mt_error e = {0};
        seen s = {0};
        mt_program *program;
        mt_graph *g = make_graph(NULL);
        const mt_tensor x = make_tensor(g, MT_INPUT, "x", "bf16", 128, 2048);
        for (int i = 0; i <= 2 * several; i++) {
            const char name[][3] = {{'w', (char)('0' + i)}, {'y', (char)('0' + i)}};
            NODE(g, "linear", MT_OPERAND("x", x),
                 MT_OPERAND("w", make_tensor(g, MT_WEIGHT, name[0], "bf16", 2048, 2048)),
                 MT_OPERAND("y", make_tensor(g, MT_OUTPUT, name[1], "f32", 128, 2048)), MT_OPERAND_TYPE("P", "bf16"));
        }
        const mt_target target = {.machine = "cuda", .processors = 132, .dump = look_for_parts, .dump_context = &s};
        if (mt_compile(g, &target, &program, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
        assert_true(s.part == !several && s.whole == several);
        mt_program_destroy(program);
        mt_graph_destroy(g);
    }
}

static char folder[TEMPORARY_BYTES];
static int set_up(void **state) {
    (void)state;
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}
static int tear_down(void **state) {
    (void)state;
    return temporary_remove(folder);
}

int main(void) {
    uint64_t seed = 11;
    float *const all[] = {q, kc, vc, w, r};
    const size_t count[] = {COUNT_OF(q), COUNT_OF(kc), COUNT_OF(vc), COUNT_OF(w), COUNT_OF(r)};
    for (size_t t = 0; t < COUNT_OF(all); t++)
        for (size_t i = 0; i < count[t]; i++) all[t][i] = noise(&seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_in_parts), cmocka_unit_test(products_in_parts),
                                       cmocka_unit_test(where_products_are_split), cmocka_unit_test(neighbours_stay)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
