/* What the GPU's bench programs share: time, medians, options, random numbers, small floats. The programs use nothing
 * of Monotile but its public headers, and print lines of a comment (#) and rows of columns, which gpu.sh reads. */
#ifndef BENCH_GPU_BENCH_H
#define BENCH_GPU_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monotile/monotile.h"

enum {
    BENCH_OK = 0,
    BENCH_FAILED = 1, /* a run that failed, or whose results are wrong */
    BENCH_BAD = 2     /* options or files that do not fit */
};

/* ---- time ---- */

typedef struct bench_times {
    double median, least, p90;
} bench_times;

double bench_now(void); /* seconds */
/* Sorts the measurements; count is at least 1. */
bench_times bench_sort(double *values, int64_t count);

/* ---- options and errors ---- */

typedef struct bench_list {
    int64_t values[16];
    size_t count;
} bench_list;

/* A long option with a value, which goes to the pointer that is set. */
typedef struct bench_option {
    const char *name;
    const char **text;
    int64_t *integer;
    double *number;
    bench_list *list; /* integers with `separator` between them */
    double least, most;
    char separator;
} bench_option;

/* Reads the command line; --help prints `help`. Returns -1, or with what to exit. */
int bench_options(int argc, char **argv, const char *help, const bench_option *options, size_t count);
/* Prints the error; returns the exit code. */
int bench_fail(const mt_error *error);
/* Says on stderr that the results are wrong; returns BENCH_FAILED. */
int bench_wrong(const char *what);
mt_status bench_no_memory(mt_error *error);

/* ---- models and data ---- */

/* "synth:NAME" makes a synthetic model, anything else is a file's path. */
mt_status bench_model(mt_model **out, const char *name, mt_error *error);
/* Tokens of the model's vocabulary, always the same ones; free them with free(). */
mt_status bench_tokens(const mt_model *m, int64_t count, int32_t **out, mt_error *error);

uint32_t bench_random(uint64_t *state); /* xorshift; the state must not be 0 */
float bench_from_bf16(uint16_t code);
float bench_from_f16(uint16_t code);

#endif
