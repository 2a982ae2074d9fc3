/* How fast causal attention over whole sequences is, in f16, and whether sampled rows are those of double arithmetic.
 * A batch is as many nodes, each over one sequence. `gpu_attention --help` says more. */
#include "gpu_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: gpu_attention [OPTION]...\n"
    "TFLOP/s of causal attention in f16 (2 B S S H D operations), one launch a batch, and the error of sampled "
    "rows.\n\n"
    "  --batch B           sequences (4)\n"
    "  --length S          of a sequence (4096)\n"
    "  --heads H           of queries (32)\n"
    "  --kv-heads N        of keys and values, a divisor of H (as many as --heads)\n"
    "  --head-dim D        (128)\n"
    "  --placement WHICH   static or queue: which processor takes an instruction (static)\n"
    "  --machine MACHINE   cuda:N, cpu, sim:N (cuda:0)\n"
    "  --repeats N         batches (20); every fifth result and the last are compared\n"
    "  --samples N         rows of one head computed in double, for each sequence (40)\n\n"
    "Columns: B; S; H; kv heads; D; microseconds: median, least, p90; TFLOP/s of the median; same bits; relative l2\n"
    "error (up to 5e-3 is right). Exit status: 1 when a run fails or results are wrong, 2 for bad input.\n";

typedef struct settings {
    const char *machine, *placement;
    int64_t batch, length, heads, kv_heads, dim, repeats, samples;
} settings;

enum { Q, K, V, Y, TENSORS, MOST_BATCH = 64 };

typedef struct tensors {             /* f16; sequence after sequence */
    uint16_t *data[TENSORS], *later; /* Y: of the first run; later: one sequence of a later run */
    int64_t count[TENSORS];          /* elements of one sequence */
    char name[TENSORS][MOST_BATCH][8];
} tensors;

/* Queries of magnitude 2^-2 to 2^1, keys and values up to 2^0: some scores stand out. */
static mt_status make_tensors(const settings *o, tensors *t, mt_error *error) {
    static const uint32_t range[TENSORS] = {0xc00, 0x800, 0x800, 1};
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < TENSORS; i++) {
        t->count[i] = o->length * (i == K || i == V ? o->kv_heads : o->heads) * o->dim;
        t->data[i] = malloc((size_t)(t->count[i] * o->batch) * 2);
        if (!t->data[i]) return bench_no_memory(error);
        for (int64_t j = 0; j < t->count[i] * o->batch; j++) {
            const uint32_t r = bench_random(&state);
            /* Y is poisoned with NaN: where a run writes nothing it stays */
            t->data[i][j] = i == Y ? 0xffff : (uint16_t)((r & 0x8000) | (0x3400 + (r >> 16) % range[i]));
        }
        for (int64_t b = 0; b < o->batch; b++) snprintf(t->name[i][b], sizeof t->name[i][b], "%c%d", "qkvy"[i], (int)b);
    }
    t->later = malloc((size_t)t->count[Y] * 2);
    return t->later ? MT_OK : bench_no_memory(error);
}

static mt_status compile(const settings *o, const tensors *t, mt_machine *machine, mt_program **out, mt_error *error) {
    const mt_target target = {.machine = o->machine,
                              .processors = mt_machine_processors(machine),
                              .placement = strcmp(o->placement, "queue") ? MT_PLACE_STATIC : MT_PLACE_QUEUE};
    mt_graph *g = NULL;
    mt_live pos = 0;
    mt_status status = mt_graph_create(&g, error);
    if (status == MT_OK) status = mt_graph_live(g, "pos", 0, 1, &pos, error);
    for (int64_t b = 0; b < o->batch && status == MT_OK; b++) {
        mt_tensor x[TENSORS] = {0};
        for (int i = 0; i < TENSORS && status == MT_OK; i++) {
            const int64_t extent[] = {o->length, i == K || i == V ? o->kv_heads : o->heads, o->dim};
            status = mt_graph_tensor(g, MT_STATE, t->name[i][b], "f16", 3, extent, &x[i], error);
        }
        const mt_operand operands[] = {
            MT_OPERAND("q", x[Q]),       MT_OPERAND("kc", x[K]),
            MT_OPERAND("vc", x[V]),      MT_OPERAND("y", x[Y]),
            MT_OPERAND_LIVE("pos", pos), MT_OPERAND_FLOAT("scale", (float)(1 / sqrt((double)o->dim))),
            MT_OPERAND_TYPE("P", "f16")};
        if (status == MT_OK)
            status =
                mt_graph_node(g, NULL, "attention", NULL, operands, sizeof operands / sizeof operands[0], NULL, error);
    }
    if (status == MT_OK) status = mt_compile(g, &target, out, error);
    mt_graph_destroy(g);
    return status;
}

/* Relative l2 error of sampled rows, the first and last of each sequence among them. Infinite when an output is not a
 * number. `weight` has room for a row of scores. */
static double sampled_error(const settings *o, const tensors *t, double *weight) {
    uint64_t state = 362436069;
    double difference = 0, norm = 0;
    for (int64_t b = 0; b < o->batch; b++)
        for (int64_t x = 0; x < o->samples; x++) {
            const int64_t row = x < 2 ? (x ? o->length - 1 : 0) : bench_random(&state) % o->length;
            const int64_t head = bench_random(&state) % o->heads, kv_head = head / (o->heads / o->kv_heads);
            const int64_t at = (row * o->heads + head) * o->dim, step = o->kv_heads * o->dim;
            const uint16_t *q = t->data[Q] + b * t->count[Q] + at, *y = t->data[Y] + b * t->count[Y] + at;
            const uint16_t *k = t->data[K] + b * t->count[K] + kv_head * o->dim;
            const uint16_t *v = t->data[V] + b * t->count[V] + kv_head * o->dim;
            double most = -INFINITY, total = 0;
            for (int64_t j = 0; j <= row; j++) {
                weight[j] = 0;
                for (int64_t d = 0; d < o->dim; d++)
                    weight[j] += (double)bench_from_f16(q[d]) * (double)bench_from_f16(k[j * step + d]);
                weight[j] /= sqrt((double)o->dim);
                most = fmax(most, weight[j]);
            }
            for (int64_t j = 0; j <= row; j++) total += weight[j] = exp(weight[j] - most);
            for (int64_t d = 0; d < o->dim; d++) {
                double sum = 0;
                for (int64_t j = 0; j <= row; j++) sum += weight[j] * (double)bench_from_f16(v[j * step + d]);
                sum /= total;
                difference += (sum - (double)bench_from_f16(y[d])) * (sum - (double)bench_from_f16(y[d]));
                norm += sum * sum;
            }
        }
    const double error = sqrt(difference / norm);
    return isnan(error) ? INFINITY : error;
}

static mt_status compare(mt_session *s, const settings *o, const tensors *t, bool *same, mt_error *error) {
    const size_t bytes = (size_t)t->count[Y] * 2;
    mt_status status = MT_OK;
    for (int64_t b = 0; b < o->batch && status == MT_OK; b++) {
        status = mt_session_read(s, t->name[Y][b], t->later, bytes, error);
        *same &= !memcmp(t->data[Y] + b * t->count[Y], t->later, bytes);
    }
    return status;
}

static mt_status measure(mt_session *s, const settings *o, tensors *t, bench_times *time, bool *same, mt_error *error) {
    double *seconds = malloc((size_t)o->repeats * sizeof *seconds);
    mt_status status = seconds ? mt_session_live(s, "pos", 0, error) : bench_no_memory(error);
    for (int i = 0; i < TENSORS; i++)
        for (int64_t b = 0; b < o->batch && status == MT_OK; b++)
            status = mt_session_write(s, t->name[i][b], t->data[i] + b * t->count[i], (size_t)t->count[i] * 2, error);
    if (status == MT_OK) status = mt_session_run(s, error); /* not timed */
    for (int64_t b = 0; b < o->batch && status == MT_OK; b++)
        status = mt_session_read(s, t->name[Y][b], t->data[Y] + b * t->count[Y], (size_t)t->count[Y] * 2, error);
    *same = true;
    for (int64_t i = 0; i < o->repeats && status == MT_OK; i++) {
        const double start = bench_now();
        status = mt_session_run(s, error);
        seconds[i] = bench_now() - start;
        if (status == MT_OK && (i % 5 == 4 || i == o->repeats - 1)) status = compare(s, o, t, same, error);
    }
    if (status == MT_OK) *time = bench_sort(seconds, o->repeats);
    free(seconds);
    return status;
}

static int attention(const settings *o) {
    mt_error error = {0};
    mt_machine *machine = NULL;
    mt_program *program = NULL;
    mt_session *session = NULL;
    tensors t = {0};
    bench_times time;
    bool same;
    double *weight = malloc((size_t)o->length * sizeof *weight);
    mt_status status = weight ? mt_machine_open(&machine, o->machine, &error) : bench_no_memory(&error);
    if (status == MT_OK) status = make_tensors(o, &t, &error);
    if (status == MT_OK) status = compile(o, &t, machine, &program, &error);
    if (status == MT_OK) status = mt_session_create(&session, machine, program, &error);
    if (status == MT_OK) status = measure(session, o, &t, &time, &same, &error);
    int result = BENCH_OK;
    if (status == MT_OK) {
        const double l2 = sampled_error(o, &t, weight);
        const double work = 2.0 * (double)(o->batch * o->length * o->length) * (double)(o->heads * o->dim);
        printf("# causal attention, f16, on %s, %s placement\n", o->machine, o->placement);
        printf("#%3s %6s %4s %4s %4s %10s %10s %10s %9s %4s %9s\n", "B", "S", "H", "kv", "D", "us", "least", "p90",
               "TFLOP/s", "same", "l2");
        printf("%4lld %6lld %4lld %4lld %4lld %10.1f %10.1f %10.1f %9.4g %4s %9.2e\n", (long long)o->batch,
               (long long)o->length, (long long)o->heads, (long long)o->kv_heads, (long long)o->dim, time.median * 1e6,
               time.least * 1e6, time.p90 * 1e6, work / time.median * 1e-12, same ? "yes" : "NO", l2);
        if (!same) result = bench_wrong("results differ from run to run");
        if (l2 > 5e-3) result = bench_wrong("rows differ from those of double arithmetic");
    } else
        result = bench_fail(&error);
    mt_session_destroy(session);
    mt_program_destroy(program);
    mt_machine_close(machine);
    for (int i = 0; i < TENSORS; i++) free(t.data[i]);
    free(t.later);
    free(weight);
    return result;
}

int main(int argc, char **argv) {
    settings o = {.machine = "cuda:0",
                  .placement = "static",
                  .batch = 4,
                  .length = 4096,
                  .heads = 32,
                  .dim = 128,
                  .repeats = 20,
                  .samples = 40};
    const bench_option options[] = {
        {"batch", .integer = &o.batch, .least = 1, .most = MOST_BATCH},
        {"length", .integer = &o.length, .least = 1, .most = 1 << 20},
        {"heads", .integer = &o.heads, .least = 1, .most = 1 << 10},
        {"kv-heads", .integer = &o.kv_heads, .least = 1, .most = 1 << 10},
        {"head-dim", .integer = &o.dim, .least = 1, .most = 1 << 10},
        {"placement", .text = &o.placement},
        {"machine", .text = &o.machine},
        {"repeats", .integer = &o.repeats, .least = 1, .most = 1 << 20},
        {"samples", .integer = &o.samples, .least = 1, .most = 1 << 20},
    };
    const int result = bench_options(argc, argv, help, options, sizeof options / sizeof options[0]);
    if (result >= 0) return result;
    if (!o.kv_heads) o.kv_heads = o.heads;
    if (o.heads % o.kv_heads) {
        fputs("gpu_attention: --kv-heads must divide --heads; see --help\n", stderr);
        return BENCH_BAD;
    }
    if (strcmp(o.placement, "static") && strcmp(o.placement, "queue")) {
        fputs("gpu_attention: --placement is static or queue; see --help\n", stderr);
        return BENCH_BAD;
    }
    return attention(&o);
}
