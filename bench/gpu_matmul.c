/* How fast one linear layer of many rows is, y = x wᵀ in bf16, and whether sampled outputs are those of double
 * arithmetic. `gpu_matmul --help` says more. */
#include "gpu_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: gpu_matmul [OPTION]...\n"
    "TFLOP/s of y[M, N] = x[M, K] w[N, K]' in bf16, one launch a product, and the error of sampled outputs.\n\n"
    "  --size MxNxK        (8192x8192x8192)\n"
    "  --tile BMxBN        of an instruction (the compiler's choice)\n"
    "  --machine MACHINE   cuda:N, cpu, sim:N (cuda:0)\n"
    "  --repeats N         products (20); every fifth result and the last are compared\n"
    "  --samples N         outputs computed in double (2000)\n\n"
    "Columns: M; N; K; microseconds: median, least, p90; TFLOP/s of the median; same bits; worst error in spacings of\n"
    "bf16 (0.5 is exact rounding, up to 1 is right). Exit status: 1 when a run fails or results are wrong, 2 for bad\n"
    "input.\n";

typedef struct settings {
    const char *machine;
    bench_list size, tile;
    int64_t repeats, samples;
} settings;

typedef struct matrices {
    int64_t m, n, k;
    uint16_t *x, *w, *first, *later; /* bf16; results of the first run and of a later one */
    size_t x_bytes, w_bytes, y_bytes;
} matrices;

/* x of magnitude 0.5 to 1, w of 2^-6 to 2^-4: sums of some thousands stay of order 1. Signs are random. */
static mt_status make_matrices(const settings *o, matrices *a, mt_error *error) {
    uint64_t state = 88172645463325252u;
    a->m = o->size.values[0], a->n = o->size.values[1], a->k = o->size.values[2];
    a->x_bytes = (size_t)(a->m * a->k) * 2, a->w_bytes = (size_t)(a->n * a->k) * 2;
    a->y_bytes = (size_t)(a->m * a->n) * 2;
    a->x = malloc(a->x_bytes), a->w = malloc(a->w_bytes), a->first = malloc(a->y_bytes), a->later = malloc(a->y_bytes);
    if (!a->x || !a->w || !a->first || !a->later) return bench_no_memory(error);
    for (int64_t i = 0; i < a->m * a->k; i++) {
        const uint32_t r = bench_random(&state);
        a->x[i] = (uint16_t)((r & 0x8000) | (0x3f00 + (r >> 16 & 0x7f)));
    }
    for (int64_t i = 0; i < a->n * a->k; i++) {
        const uint32_t r = bench_random(&state);
        a->w[i] = (uint16_t)((r & 0x8000) | (0x3c80 + (r >> 16 & 0xff)));
    }
    return MT_OK;
}

static mt_status compile(const settings *o, const matrices *a, mt_machine *machine, mt_program **out, mt_error *error) {
    const mt_target target = {.machine = o->machine, .processors = mt_machine_processors(machine)};
    mt_graph *g = NULL;
    mt_tensor x = 0, w = 0, y = 0;
    mt_status status = mt_graph_create(&g, error);
    if (status == MT_OK) status = mt_graph_tensor(g, MT_STATE, "x", "bf16", 2, (int64_t[]){a->m, a->k}, &x, error);
    if (status == MT_OK) status = mt_graph_tensor(g, MT_WEIGHT, "w", "bf16", 2, (int64_t[]){a->n, a->k}, &w, error);
    if (status == MT_OK) status = mt_graph_tensor(g, MT_STATE, "y", "bf16", 2, (int64_t[]){a->m, a->n}, &y, error);
    mt_operand operands[6] = {MT_OPERAND("x", x), MT_OPERAND("w", w), MT_OPERAND("y", y), MT_OPERAND_TYPE("P", "bf16")};
    size_t count = 4;
    if (o->tile.count) {
        operands[count++] = MT_OPERAND_INTEGER("BM", o->tile.values[0]);
        operands[count++] = MT_OPERAND_INTEGER("BN", o->tile.values[1]);
    }
    if (status == MT_OK) status = mt_graph_node(g, NULL, "linear", "linear", operands, count, NULL, error);
    if (status == MT_OK) status = mt_compile(g, &target, out, error);
    mt_graph_destroy(g);
    return status;
}

/* The worst error of sampled outputs, corners among them, in spacings of bf16: 2^-7 of the value at most, and what
 * adding in float32 may cost. Infinite when an output is not a number. */
static double worst_error(const matrices *a, int64_t samples) {
    uint64_t state = 362436069;
    double worst = 0;
    for (int64_t i = 0; i < samples; i++) {
        const int64_t row = i < 4 ? (i & 1 ? a->m - 1 : 0) : bench_random(&state) % a->m;
        const int64_t column = i < 4 ? (i & 2 ? a->n - 1 : 0) : bench_random(&state) % a->n;
        double sum = 0, magnitudes = 0;
        for (int64_t k = 0; k < a->k; k++) {
            const double product =
                (double)bench_from_bf16(a->x[row * a->k + k]) * (double)bench_from_bf16(a->w[column * a->k + k]);
            sum += product;
            magnitudes += fabs(product);
        }
        const double error = fabs((double)bench_from_bf16(a->first[row * a->n + column]) - sum) /
                             (fabs(sum) / 128 + magnitudes * 1e-6 + 1e-9);
        if (isnan(error)) return INFINITY;
        if (error > worst) worst = error;
    }
    return worst;
}

static mt_status measure(mt_session *s, const settings *o, matrices *a, bench_times *time, bool *same,
                         mt_error *error) {
    double *seconds = malloc((size_t)o->repeats * sizeof *seconds);
    mt_status status = seconds ? MT_OK : bench_no_memory(error);
    memset(a->first, 0xff, a->y_bytes); /* NaN, where a run writes nothing */
    if (status == MT_OK) status = mt_session_bind_weight(s, "w", a->w, a->w_bytes, error);
    if (status == MT_OK) status = mt_session_write(s, "x", a->x, a->x_bytes, error);
    if (status == MT_OK) status = mt_session_write(s, "y", a->first, a->y_bytes, error);
    if (status == MT_OK) status = mt_session_run(s, error); /* not timed */
    if (status == MT_OK) status = mt_session_read(s, "y", a->first, a->y_bytes, error);
    *same = true;
    for (int64_t i = 0; i < o->repeats && status == MT_OK; i++) {
        const double start = bench_now();
        status = mt_session_run(s, error);
        seconds[i] = bench_now() - start;
        if (status != MT_OK || (i % 5 != 4 && i != o->repeats - 1)) continue;
        status = mt_session_read(s, "y", a->later, a->y_bytes, error);
        *same &= !memcmp(a->first, a->later, a->y_bytes);
    }
    if (status == MT_OK) *time = bench_sort(seconds, o->repeats);
    free(seconds);
    return status;
}

static int matmul(const settings *o) {
    mt_error error = {0};
    mt_machine *machine = NULL;
    mt_program *program = NULL;
    mt_session *session = NULL;
    matrices a = {0};
    bench_times time;
    bool same;
    mt_status status = mt_machine_open(&machine, o->machine, &error);
    if (status == MT_OK) status = make_matrices(o, &a, &error);
    if (status == MT_OK) status = compile(o, &a, machine, &program, &error);
    if (status == MT_OK) status = mt_session_create(&session, machine, program, &error);
    if (status == MT_OK) status = measure(session, o, &a, &time, &same, &error);
    int result = BENCH_OK;
    if (status == MT_OK) {
        const double worst = worst_error(&a, o->samples);
        const double work = 2.0 * (double)a.m * (double)a.n * (double)a.k;
        printf("# linear, bf16, on %s\n", o->machine);
        printf("#%5s %6s %6s %10s %10s %10s %9s %4s %6s\n", "M", "N", "K", "us", "least", "p90", "TFLOP/s", "same",
               "error");
        printf("%6lld %6lld %6lld %10.1f %10.1f %10.1f %9.4g %4s %6.3f\n", (long long)a.m, (long long)a.n,
               (long long)a.k, time.median * 1e6, time.least * 1e6, time.p90 * 1e6, work / time.median * 1e-12,
               same ? "yes" : "NO", worst);
        if (!same) result = bench_wrong("results differ from run to run");
        if (worst > 1) result = bench_wrong("outputs differ from those of double arithmetic");
    } else
        result = bench_fail(&error);
    mt_session_destroy(session);
    mt_program_destroy(program);
    mt_machine_close(machine);
    free(a.x);
    free(a.w);
    free(a.first);
    free(a.later);
    return result;
}

int main(int argc, char **argv) {
    settings o = {
        .machine = "cuda:0", .size = {.values = {8192, 8192, 8192}, .count = 3}, .repeats = 20, .samples = 2000};
    const bench_option options[] = {
        {"size", .list = &o.size, .least = 1, .most = 1 << 16, .separator = 'x'},
        {"tile", .list = &o.tile, .least = 1, .most = 1 << 10, .separator = 'x'},
        {"machine", .text = &o.machine},
        {"repeats", .integer = &o.repeats, .least = 1, .most = 1 << 20},
        {"samples", .integer = &o.samples, .least = 1, .most = 1 << 20},
    };
    const int result = bench_options(argc, argv, help, options, sizeof options / sizeof options[0]);
    if (result >= 0) return result;
    if (o.size.count != 3 || (o.tile.count != 0 && o.tile.count != 2)) {
        fputs("gpu_matmul: --size has three extents, --tile two; see --help\n", stderr);
        return BENCH_BAD;
    }
    return matmul(&o);
}
