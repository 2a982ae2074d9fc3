/* A graph by hand: three layers x = relu(x · W[i] + b[i]), with every W[i] and b[i] a slice of one tensor.
 *
 *     example_mlp [N] [ROWS]       the layers' width and the rows of x; 1024 and 1024 when not given
 *
 * The result is compared with plain loops in double precision; the largest difference is printed. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "monotile/monotile.h"

enum { LAYERS = 3 };

/* Numbers in (-1, 1), the same in every run. */
static float next_number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / (1 << 23) - 1);
}

static float *numbers(size_t count, double scale, uint64_t *state) {
    float *values = aligned_alloc(64, (count * sizeof *values + 63) / 64 * 64);
    for (size_t i = 0; values && i < count; i++) values[i] = (float)(scale * next_number(state));
    return values;
}

/* Tensors: x and y [rows, n], w [3, n, n], b [3, n]. A node for each operation; what lies between them has no name. */
static mt_status build(mt_graph *g, int64_t rows, int64_t n, mt_error *error) {
    mt_tensor x, y, w, b;
    mt_status status = mt_graph_tensor(g, MT_INPUT, "x", "f32", 2, (int64_t[]){rows, n}, &x, error);
    if (status == MT_OK) status = mt_graph_tensor(g, MT_OUTPUT, "y", "f32", 2, (int64_t[]){rows, n}, &y, error);
    if (status == MT_OK) status = mt_graph_tensor(g, MT_WEIGHT, "w", "f32", 3, (int64_t[]){LAYERS, n, n}, &w, error);
    if (status == MT_OK) status = mt_graph_tensor(g, MT_WEIGHT, "b", "f32", 2, (int64_t[]){LAYERS, n}, &b, error);
    for (int i = 0; i < LAYERS && status == MT_OK; i++) {
        mt_tensor wi, bi, product, sum;
        status = mt_graph_select(g, w, 0, i, &wi, error);
        if (status == MT_OK) status = mt_graph_select(g, b, 0, i, &bi, error);
        if (status == MT_OK)
            status = mt_graph_node(g, NULL, "matmul", NULL, (mt_operand[]){MT_OPERAND("x", x), MT_OPERAND("w", wi)}, 2,
                                   &product, error);
        if (status == MT_OK)
            status = mt_graph_node(g, NULL, "bias", NULL, (mt_operand[]){MT_OPERAND("x", product), MT_OPERAND("b", bi)},
                                   2, &sum, error);
        if (status == MT_OK) /* the last layer writes y */
            status = mt_graph_node(g, NULL, "relu", NULL, (mt_operand[]){MT_OPERAND("x", sum), MT_OPERAND("y", y)},
                                   i == LAYERS - 1 ? 2 : 1, &x, error);
    }
    return status;
}

/* The same in plain C. The result is the caller's. */
static double *reference(const float *x, const float *w, const float *b, size_t rows, size_t n) {
    double *now = calloc(rows * n, sizeof *now), *next = calloc(rows * n, sizeof *next);
    for (size_t i = 0; now && next && i < rows * n; i++) now[i] = x[i];
    for (int layer = 0; now && next && layer < LAYERS; layer++, w += n * n, b += n) {
        for (size_t r = 0; r < rows; r++) {
            double *row = next + r * n;
            for (size_t j = 0; j < n; j++) row[j] = b[j];
            for (size_t k = 0; k < n; k++)
                for (size_t j = 0; j < n; j++) row[j] += now[r * n + k] * w[k * n + j];
            for (size_t j = 0; j < n; j++) row[j] = row[j] > 0 ? row[j] : 0;
        }
        double *swap = now;
        now = next;
        next = swap;
    }
    free(next);
    return now;
}

int main(int argc, char **argv) {
    const int64_t n = argc > 1 ? atoll(argv[1]) : 1024, rows = argc > 2 ? atoll(argv[2]) : n;
    if (n < 1 || rows < 1 || n > 8192 || rows > 8192) {
        fprintf(stderr, "usage: %s [N] [ROWS], each from 1 to 8192\n", argv[0]);
        return 2;
    }
    const size_t count = (size_t)(rows * n), weights = (size_t)(LAYERS * n * n), biases = (size_t)(LAYERS * n);
    uint64_t state = 1;
    float *x = numbers(count, 1, &state), *w = numbers(weights, 2 / sqrt((double)n), &state),
          *b = numbers(biases, 0.1, &state);
    double *expected = x && w && b ? reference(x, w, b, (size_t)rows, (size_t)n) : NULL;
    mt_error error = {.message = "no memory"};
    mt_graph *graph = NULL;
    mt_machine *machine = NULL;
    mt_program *program = NULL;
    mt_session *session = NULL;
    void *result = NULL;
    size_t bytes = 0;

    mt_status status = expected ? mt_graph_create(&graph, &error) : MT_E_MEMORY;
    if (status == MT_OK) status = build(graph, rows, n, &error);
    if (status == MT_OK) status = mt_machine_open(&machine, "auto", &error);
    if (status == MT_OK)
        status = mt_compile(graph, &(mt_target){.processors = mt_machine_processors(machine)}, &program, &error);
    if (status == MT_OK) status = mt_session_create(&session, machine, program, &error);
    if (status == MT_OK) status = mt_session_bind(session, "x", x, count * sizeof *x, &error);
    if (status == MT_OK) status = mt_session_bind_weight(session, "w", w, weights * sizeof *w, &error);
    if (status == MT_OK) status = mt_session_bind_weight(session, "b", b, biases * sizeof *b, &error);
    if (status == MT_OK) status = mt_session_memory(session, "y", &result, &bytes, &error);
    if (status == MT_OK) status = mt_session_run(session, &error);

    int code = 1;
    if (status == MT_OK) {
        double largest = 0;
        for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(((float *)result)[i] - expected[i]));
        printf("%lld x %lld, %zu instructions on %d processors: largest error %.3g\n", (long long)rows, (long long)n,
               mt_program_instruction_count(program), mt_machine_processors(machine), largest);
        code = largest < 1e-4 ? 0 : 1;
    } else {
        fprintf(stderr, "%s: %s\n", error.where, error.message);
    }
    mt_session_destroy(session);
    mt_program_destroy(program);
    mt_machine_close(machine);
    mt_graph_destroy(graph);
    free(expected);
    free(x);
    free(w);
    free(b);
    return code;
}
