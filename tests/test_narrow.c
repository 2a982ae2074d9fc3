/* Narrowing, and fusion beside it: a gated feed-forward layer of many rows. Compiled for a GPU its products are wide,
 * its norm stays a node of its own, what only products read lies in their type; for few rows nothing of this happens.
 * The passes change no bit: the CPU machine gives the same for the graph as it was and narrowed. The simulator runs the
 * whole program, where the loader waits for what other instructions write, over several runs and under hostile
 * schedules. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "graph/graph_internal.h"
#include "graph_make.h"
#include "machine/sim/sim.h"
#include "monotile/machine.h"
#include "temporary.h"
#include "unit_text.h"

enum { MOST = 200, K = 72, N = 136 };
static char folder[TEMPORARY_BYTES];
static float x[MOST * K], g[K];
static uint16_t gate[N * K], up[N * K], down[K * N];

static float noise(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (1 << 23) - 1;
}
static void noise16(uint16_t *to, size_t count, uint64_t *state) {
    for (size_t i = 0; i < count; i++) {
        const float f = noise(state);
        memcpy(&to[i], (const char *)&f + 2, 2);
    }
}

/* y = x + down(silu(gate(t)) * up(t)), t = rmsnorm(x). `tiles`: sizes are given, so that small products are wide, too.
 */
static mt_graph *layer(int rows, bool tiles, bool live) {
    mt_error error = {0};
    mt_graph *a = make_graph(NULL);
    const mt_tensor tx = make_tensor(a, MT_STATE, "x", "f32", rows, K),
                    tg = make_tensor(a, MT_WEIGHT, "g", "f32", K, 0),
                    tgate = make_tensor(a, MT_WEIGHT, "gate", "bf16", N, K),
                    tup = make_tensor(a, MT_WEIGHT, "up", "bf16", N, K),
                    tdown = make_tensor(a, MT_WEIGHT, "down", "bf16", K, N),
                    y = make_tensor(a, MT_STATE, "y", "f32", rows, K);
    if (live) {
        mt_live n;
        assert_int_equal(mt_graph_live(a, "rows", 1, rows, &n, &error), MT_OK);
        assert_int_equal(mt_graph_live_extent(a, tx, 0, n, &error), MT_OK);
        assert_int_equal(mt_graph_live_extent(a, y, 0, n, &error), MT_OK);
    }
    const mt_operand p = MT_OPERAND_TYPE("P", "bf16"), bm = MT_OPERAND_INTEGER("BM", 64),
                     bn = MT_OPERAND_INTEGER("BN", 64);
    const size_t count = tiles ? 5 : 3;
    const mt_tensor t = NODE(a, "rmsnorm", MT_OPERAND("x", tx), MT_OPERAND("g", tg), MT_OPERAND_FLOAT("eps", 1e-5f));
    const mt_tensor u = make_node(a, NULL, "linear",
                                  (mt_operand[]){MT_OPERAND("x", t), MT_OPERAND("w", tgate), p, bm, bn}, count),
                    v = make_node(a, NULL, "linear",
                                  (mt_operand[]){MT_OPERAND("x", t), MT_OPERAND("w", tup), p, bm, bn}, count);
    const mt_tensor h = NODE(a, "silu_mul", MT_OPERAND("a", u), MT_OPERAND("b", v));
    const mt_tensor d =
        make_node(a, NULL, "linear", (mt_operand[]){MT_OPERAND("x", h), MT_OPERAND("w", tdown), p, bm, bn}, count);
    NODE(a, "add", MT_OPERAND("a", d), MT_OPERAND("b", tx), MT_OPERAND("y", y));
    return a;
}

/* Runs a program once a row count of the list, and gives all results. */
static float *run(const mt_program *program, const char *machine, const int *rows, int runs, int most, bool live) {
    mt_error e = {0};
    mt_machine *m;
    mt_session *s;
    float *out = calloc((size_t)(runs * most * K), sizeof *out);
    assert_non_null(out);
    if (mt_machine_open(&m, machine, &e) != MT_OK || mt_session_create(&s, m, program, &e) != MT_OK)
        fail_msg("%s: %s: %s", machine, e.where, e.message);
    assert_int_equal(mt_session_bind_weight(s, "g", g, sizeof g, &e), MT_OK);
    assert_int_equal(mt_session_bind_weight(s, "gate", gate, sizeof gate, &e), MT_OK);
    assert_int_equal(mt_session_bind_weight(s, "up", up, sizeof up, &e), MT_OK);
    assert_int_equal(mt_session_bind_weight(s, "down", down, sizeof down, &e), MT_OK);
    for (int i = 0; i < runs; i++) {
        void *tx, *ty;
        assert_int_equal(mt_session_memory(s, "x", &tx, NULL, &e), MT_OK);
        assert_int_equal(mt_session_memory(s, "y", &ty, NULL, &e), MT_OK);
        for (int r = 0; r < most * K; r++) ((float *)tx)[r] = x[r] * (float)(i + 1) + (float)i;
        memset(ty, 0, (size_t)(most * K) * 4);
        if (live) assert_int_equal(mt_session_live(s, "rows", rows[i], &e), MT_OK);
        if (mt_session_run(s, &e) != MT_OK) fail_msg("%s: %s: %s", machine, e.where, e.message);
        memcpy(out + i * most * K, ty, (size_t)(most * K) * 4);
    }
    mt_session_destroy(s);
    mt_machine_close(m);
    return out;
}

static void apart(const float *a, const float *b, int count, double most, const char *what) {
    double d = 0, size = 1e-30;
    for (int i = 0; i < count; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    if (!(sqrt(d / size) <= most)) fail_msg("%s: %g apart", what, sqrt(d / size));
}

/* ---- the passes ---- */

static void look(void *context, const char *pass, const char *graph) {
    if (!strcmp(pass, "lower")) snprintf(context, 4000, "%s", graph);
}

static void what_is_narrowed(void **state) {
    (void)state;
    mt_error error = {0};
    for (int wide = 0; wide < 2; wide++) {
        char seen[4000] = "";
        mt_graph *a = layer(wide ? MOST : 9, wide, false);
        mt_program *p;
        const mt_target target = {.machine = "cuda", .processors = 8, .dump = look, .dump_context = seen};
        if (mt_compile(a, &target, &p, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
        const bool found = strstr(seen, "= rmsnorm[") && strstr(seen, "swiglu[") && strstr(seen, "= linear_add[") &&
                           !strstr(seen, "norm_swiglu[") && strstr(seen, "bf16[200, 72]") &&
                           strstr(seen, "bf16[200, 136]");
        const bool fused = strstr(seen, "norm_swiglu[") && !strstr(seen, "= rmsnorm[") && !strstr(seen, "bf16[9,");
        if (wide ? !found : !fused) fail_msg("%s", seen);
        mt_program_destroy(p);
        mt_graph_destroy(a);
    }
}

/* 64 rows are multiplied faster by products of few rows than by wide ones, but not than by wide ones in parts: what
 * these read is narrowed, too. Beside it: short sums, which have no parts. */
static void narrowed_for_parts(void **state) {
    (void)state;
    mt_error error = {0};
    for (int longer = 0; longer < 2; longer++) {
        char seen[4000] = "";
        mt_graph *a = make_graph(NULL);
        const int k = longer ? 8192 : 256, n = longer ? 2048 : 64;
        const mt_tensor t = NODE(a, "relu", MT_OPERAND("x", make_tensor(a, MT_INPUT, "x", "f32", 64, k)));
        NODE(a, "linear", MT_OPERAND("x", t), MT_OPERAND("w", make_tensor(a, MT_WEIGHT, "w", "q4_1", n, k)),
             MT_OPERAND("y", make_tensor(a, MT_OUTPUT, "y", "f32", 64, n)), MT_OPERAND_TYPE("P", "f16"));
        mt_program *p;
        const mt_target target = {.machine = "cuda", .processors = 132, .dump = look, .dump_context = seen};
        if (mt_compile(a, &target, &p, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
        if (!strstr(seen, longer ? "f16[64, 8192]" : "temp t0: f32[64, 256]") ||
            !strstr(seen, longer ? "= linear_part[" : "= linear["))
            fail_msg("%s", seen);
        mt_program_destroy(p);
        mt_graph_destroy(a);
    }
}

static void no_bit_changes(void **state) {
    (void)state;
    const graph_target target = {graph_costs_of("cuda", NULL), 8, MT_PLACE_STATIC};
    const mt_target plain = {.processors = 2, .no_fusion = 1};
    mt_error error = {0};
    float *result[2];
    for (int narrow = 0; narrow < 2; narrow++) {
        mt_graph *a = layer(MOST, true, false);
        mt_program *p;
        int narrowed = 0;
        if (narrow) assert_int_equal(graph_narrow(a, &target, &error), MT_OK);
        for (size_t t = 0; t < a->tensor_count; t++)
            narrowed += a->tensors[t].role == MT_TEMP && a->tensors[t].type == graph_type(a, tile_format_find("bf16"));
        assert_int_equal(narrowed, narrow ? 2 : 0);
        if (mt_compile(a, &plain, &p, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
        result[narrow] = run(p, "cpu:2", NULL, 1, MOST, false);
        mt_program_destroy(p);
        mt_graph_destroy(a);
    }
    assert_memory_equal(result[0], result[1], (size_t)(MOST * K) * 4);
    free(result[0]);
    free(result[1]);
}

/* A reader that does not round, an output, a sum in memory: these stay. */
static void what_stays(void **state) {
    (void)state;
    const graph_target target = {graph_costs_of("cuda", NULL), 8, MT_PLACE_STATIC};
    mt_error error = {0};
    for (int other = 0; other < 3; other++) {
        mt_graph *a = make_graph(NULL);
        const mt_operand p = MT_OPERAND_TYPE("P", "bf16"), bm = MT_OPERAND_INTEGER("BM", 64),
                         bn = MT_OPERAND_INTEGER("BN", 64);
        const mt_tensor b = make_tensor(a, MT_INPUT, "b", "f32", MOST, K),
                        w = make_tensor(a, MT_WEIGHT, "w", "bf16", N, K),
                        y = make_tensor(a, MT_OUTPUT, "y", "f32", MOST, N),
                        z = make_tensor(a, MT_OUTPUT, "z", "f32", MOST, K);
        const mt_tensor t = other == 1 ? z : make_tensor(a, MT_TEMP, NULL, "f32", MOST, K);
        NODE(a, "relu", MT_OPERAND("x", b), MT_OPERAND("y", t));
        NODE(a, "linear", MT_OPERAND("x", t), MT_OPERAND("w", w), MT_OPERAND("y", y), p, bm, bn);
        if (other == 0) NODE(a, "relu", MT_OPERAND("x", t), MT_OPERAND("y", z));
        if (other == 2) /* rounds to another type */
            NODE(a, "linear", MT_OPERAND("x", t), MT_OPERAND("w", w), MT_OPERAND_TYPE("P", "f16"), bm, bn);
        assert_int_equal(graph_narrow(a, &target, &error), MT_OK);
        for (size_t i = 0; i < a->tensor_count; i++)
            if (a->tensors[i].role == MT_TEMP) assert_string_equal(a->tensors[i].type->name, "f32");
        mt_graph_destroy(a);
    }
}

/* ---- on the simulator ---- */

static void runs_on_the_simulator(void **state) {
    (void)state;
    static const char *const machines[] = {"sim:3",
                                           "sim:3,random=5",
                                           "sim:3,random=6,pages=3",
                                           "sim:3,adversarial=loader-early",
                                           "sim:3,adversarial=starve-sm,seed=1",
                                           "sim:3,adversarial=copies-reverse",
                                           "sim:3,adversarial=loader-late"};
    static const int rows[] = {MOST, 70, 1};
    if (unit_no_compiler()) skip();
    mt_error error = {0};
    mt_program *p;
    mt_graph *a = layer(MOST, true, true);
    const mt_target target = {.machine = "sim", .processors = 3};
    if (mt_compile(a, &target, &p, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
    float *expected = run(p, "cpu:2", rows, 3, MOST, true), *first = NULL;
    for (size_t i = 0; i < COUNT_OF(machines); i++) {
        float *got = run(p, machines[i], rows, i ? 1 : 3, MOST, true);
        apart(got, expected, (i ? 1 : 3) * MOST * K, 1e-3, machines[i]);
        if (first) assert_memory_equal(got, first, (size_t)(MOST * K) * 4);
        if (first)
            free(got);
        else
            first = got;
    }
    free(first);
    free(expected);
    mt_program_destroy(p);
    mt_graph_destroy(a);
}

/* ---- seeded bugs: the simulator finds what the design rests on ---- */

static void bugs_are_found(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *machine, *found;
    } bugs[] = {
        /* the loader does not wait for what others write */
        {"if (!mt_operands_ready(mt)) return;", "", "sim:3,adversarial=loader-early", "race"},
        /* pages are given back while products are under way */
        {"mt_wgmma_wait<1>();", "", "sim:3,adversarial=loader-early", "page"},
        {"mt_wgmma_wait<0>();\n                mt_wide_release", "mt_wide_release", "sim:3,pages=3,random=3", "page"},
        /* not all pages of a step are given back */
        {"mt_wide_release(mt, before, 3);", "mt_wide_release(mt, before, 2);", "sim:3", "deadlock"},
        /* bytes that are not what comes */
        {"(uint32_t)(pieces * MT_PIECE)", "(uint32_t)(pieces * MT_PIECE) + 16", "sim:3", "deadlock"},
    };
    if (unit_no_compiler()) skip();
    mt_error error = {0};
    mt_program *p;
    mt_graph *a = layer(MOST, true, false);
    const mt_target target = {.machine = "sim", .processors = 3};
    if (mt_compile(a, &target, &p, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
    for (size_t i = 0; i < COUNT_OF(bugs); i++) {
        mt_machine *m;
        mt_session *s;
        void *memory;
        unit_edit e = {bugs[i].from, bugs[i].to, 0};
        assert_int_equal(mt_machine_open(&m, bugs[i].machine, &error), MT_OK);
        ((sim_machine *)m)->edit = unit_edit_apply;
        ((sim_machine *)m)->edit_context = &e;
        if (mt_session_create(&s, m, p, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
        if (!e.done) fail_msg("the code has no '%s'", bugs[i].from);
        assert_int_equal(mt_session_bind_weight(s, "g", g, sizeof g, &error), MT_OK);
        assert_int_equal(mt_session_bind_weight(s, "gate", gate, sizeof gate, &error), MT_OK);
        assert_int_equal(mt_session_bind_weight(s, "up", up, sizeof up, &error), MT_OK);
        assert_int_equal(mt_session_bind_weight(s, "down", down, sizeof down, &error), MT_OK);
        assert_int_equal(mt_session_memory(s, "x", &memory, NULL, &error), MT_OK);
        memcpy(memory, x, sizeof x);
        assert_int_not_equal(mt_session_run(s, &error), MT_OK);
        if (strncmp(error.message, bugs[i].found, strlen(bugs[i].found)))
            fail_msg("without '%s': %s, expected %s", bugs[i].from, error.message, bugs[i].found);
        mt_session_destroy(s);
        mt_machine_close(m);
    }
    mt_program_destroy(p);
    mt_graph_destroy(a);
}

static int set_up(void **state) {
    uint64_t seed = 11;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(x); i++) x[i] = noise(&seed);
    for (size_t i = 0; i < COUNT_OF(g); i++) g[i] = 1 + noise(&seed) / 4;
    noise16(gate, COUNT_OF(gate), &seed);
    noise16(up, COUNT_OF(up), &seed);
    noise16(down, COUNT_OF(down), &seed);
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}
static int tear_down(void **state) {
    (void)state;
    return temporary_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_narrowed),      cmocka_unit_test(narrowed_for_parts),
                                       cmocka_unit_test(no_bit_changes),        cmocka_unit_test(what_stays),
                                       cmocka_unit_test(runs_on_the_simulator), cmocka_unit_test(bugs_are_found)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
