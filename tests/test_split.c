/* Splitting: attention in parts, as it is compiled for a machine with many processors, against a float64 reference and
 * against the whole program; both run on the CPU machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "monotile/machine.h"

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

static mt_graph *make_graph(void) {
    mt_error e = {0};
    mt_graph *g;
    mt_tensor tq, tk, tv, tw, tr, ty, a, rows;
    mt_live pos;
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
    mt_graph *g = make_graph();
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

int main(void) {
    uint64_t seed = 11;
    float *const all[] = {q, kc, vc, w, r};
    const size_t count[] = {COUNT_OF(q), COUNT_OF(kc), COUNT_OF(vc), COUNT_OF(w), COUNT_OF(r)};
    for (size_t t = 0; t < COUNT_OF(all); t++)
        for (size_t i = 0; i < count[t]; i++) all[t][i] = noise(&seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_in_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
