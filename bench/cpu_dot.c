/* How fast the emitted linear layer is on one core: weights as rows in every format, few and many rows of activations.
 *
 *   cpu_dot [N K]        prints medians: 10^9 weights a second, GB of weights a second, GFLOP/s
 *
 * Weights of several copies larger than the second cache are walked, so that M = 1 shows what a model's decode step
 * sees; the data is random bytes with plausible scales, its values do not matter. */
#include "emit/emit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emit/cpu_abi.h"

static int64_t round_trip(const cpu_entry *e, const cpu_tensor *tensors, int64_t columns, void *scratch) {
    const uint64_t start = clock_ns();
    for (int32_t i = 0; i < columns; i++) {
        const int32_t index[5] = {i, 0};
        e->code(tensors, NULL, NULL, index, scratch);
    }
    return (int64_t)(clock_ns() - start);
}

static int compare(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool compile(const text *source, const char *folder, char *object, size_t size) {
    char path[512], command[2048];
    snprintf(path, sizeof path, "%s/dot.c", folder);
    snprintf(object, size, "%s/dot.so", folder);
    if (file_write_atomic(path, source->data, source->length, NULL)) return false;
    int n = snprintf(command, sizeof command, "%s", getenv("CC") ? getenv("CC") : "cc");
    for (int i = 0; emit_c_flags[i]; i++)
        n += snprintf(command + n, sizeof command - (size_t)n, " %s", emit_c_flags[i]);
    snprintf(command + n, sizeof command - (size_t)n, " -shared -o %s %s -lm", object, path);
    return system(command) == 0;
}

int main(int argc, char **argv) {
    static const char *const formats[] = {"f32",  "f16",  "bf16", "e4m3", "q4_0", "q4_1",  "q5_0",
                                          "q8_0", "q2_k", "q3_k", "q4_k", "q6_k", "mxfp4", "nvfp4"};
    static const int64_t rows[] = {1, 2, 4, 16, 64};
    enum { FORMATS = COUNT_OF(formats), RUNS = 15 };
    const int64_t N = argc > 2 ? atoll(argv[1]) : 1536, K = argc > 2 ? atoll(argv[2]) : 576, BN = 64;
    arena *memory = arena_new();
    const tile_file *library;
    mt_error error = {0};
    const tile_op *ops[FORMATS * COUNT_OF(rows)];
    size_t count = 0;
    if (tile_library(&library, &error)) return printf("%s\n", error.message), 1;
    for (size_t f = 0; f < FORMATS; f++)
        for (size_t r = 0; r < COUNT_OF(rows); r++) {
            const tile_format *w = tile_format_find(formats[f]);
            if (!w || K % w->block) continue;
            const tile_constant constants[] = {
                {"N", N, NULL}, {"K", K, NULL}, {"BM", rows[r], NULL}, {"BN", BN, NULL}, {"W", 0, w}};
            if (tile_bind(memory, &ops[count++], library, "linear", constants, COUNT_OF(constants), NULL, &error))
                return printf("%s\n", error.message), 1;
        }
    text source = {0};
    char folder[] = "/tmp/cpu_dot_XXXXXX", object[512], path[512];
    if (emit_c(&source, ops, count, &error) || !mkdtemp(folder)) return printf("%s\n", error.message), 1;
    const uint64_t start = clock_ns();
    if (!compile(&source, folder, object, sizeof object)) return 1;
    printf("%zu ops compiled in %.1f s; N = %lld, K = %lld\n", count, (double)(clock_ns() - start) * 1e-9, (long long)N,
           (long long)K);
    void *library_object = dlopen(object, RTLD_NOW);
    if (!library_object) return printf("%s\n", dlerror()), 1;
    const cpu_entry *entries = dlsym(library_object, "mt_cpu_ops");
    printf("%-8s %6s %14s %10s %10s\n", "format", "M", "Gweights/s", "GB/s", "GFLOP/s");
    for (size_t i = 0; i < count; i++) {
        const tile_format *w = NULL;
        int64_t m = 0, times[RUNS];
        for (int c = 0; c < ops[i]->constant_count; c++) {
            if (!strcmp(ops[i]->constants[c].name, "W")) w = ops[i]->constants[c].type;
            if (!strcmp(ops[i]->constants[c].name, "BM")) m = ops[i]->constants[c].value;
        }
        const int64_t bytes = tile_format_bytes(w, N * K), copies = m > 4 ? 1 : max_i64(1, (8 << 20) / bytes);
        uint8_t *weights = malloc((size_t)(bytes * copies));
        float *x = malloc((size_t)(m * K) * sizeof *x), *y = malloc((size_t)(m * N) * sizeof *y);
        void *scratch = aligned_alloc(64, (size_t)align_up((uint64_t)entries[i].scratch + 64, 64));
        if (!weights || !x || !y || !scratch) return 1;
        for (int64_t b = 0; b < bytes * copies; b++)
            weights[b] = (uint8_t)(b * 7 % 113); /* no code is NaN or infinite */
        for (int64_t b = 0; b < m * K; b++) x[b] = (float)(b % 17) * 0.125f - 1.0f;
        cpu_tensor tensors[3] = {{x, {m, K}, {K, 1}}, {weights, {N, K}, {K, 1}}, {y, {m, N}, {N, 1}}};
        for (int r = 0; r < RUNS; r++) {
            times[r] = 0;
            for (int64_t c = 0; c < copies; c++) {
                tensors[1].data = weights + c * bytes;
                times[r] += round_trip(&entries[i], tensors, ceil_div(N, BN), scratch);
            }
        }
        qsort(times, RUNS, sizeof times[0], compare);
        const double seconds = (double)times[RUNS / 2] * 1e-9, all = (double)(N * K * copies);
        printf("%-8s %6lld %14.2f %10.2f %10.1f\n", w->name, (long long)m, all / seconds * 1e-9,
               (double)(bytes * copies) / seconds * 1e-9, 2.0 * all * (double)m / seconds * 1e-9);
        free(weights);
        free(x);
        free(y);
        free(scratch);
    }
    dlclose(library_object);
    snprintf(path, sizeof path, "%s/dot.c", folder);
    unlink(path);
    unlink(object);
    rmdir(folder);
    text_free(&source);
    arena_free(memory);
    return 0;
}
