/* What the GPU's bench programs share; gpu_bench.h says what. */
#include "gpu_bench.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- time ---- */

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bench_times bench_sort(double *values, int64_t count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return (bench_times){values[count / 2], values[0], values[count * 9 / 10]};
}

/* ---- options and errors ---- */

/* One to 16 integers; all of the text must be used. */
static bool parse_list(const bench_option *o, const char *text, bench_list *out) {
    out->count = 0;
    for (const char *rest = text; out->count < sizeof out->values / sizeof out->values[0]; rest++) {
        char *end;
        errno = 0;
        const long long value = strtoll(rest, &end, 10);
        if (end == rest || errno || (double)value < o->least || (double)value > o->most) return false;
        out->values[out->count++] = value;
        rest = end;
        if (!*rest) return true;
        if (*rest != o->separator) return false;
    }
    return false;
}

static bool parse(const bench_option *o, const char *text) {
    if (o->text)
        *o->text = text;
    else if (o->number) {
        char *end;
        *o->number = strtod(text, &end);
        return end != text && !*end && *o->number >= o->least && *o->number <= o->most;
    } else {
        bench_list list;
        if (!parse_list(o, text, o->list ? o->list : &list)) return false;
        if (o->integer) *o->integer = list.values[0]; /* no separator: there is one */
    }
    return true;
}

static int usage(void) {
    fprintf(stderr, "%s: see --help\n", program_invocation_short_name);
    return BENCH_BAD;
}

int bench_options(int argc, char **argv, const char *help, const bench_option *options, size_t count) {
    enum { MOST = 31 };
    struct option known[MOST + 2] = {{"help", no_argument, NULL, 'h'}};
    for (size_t i = 0; i < count && i < MOST; i++)
        known[i + 1] = (struct option){options[i].name, required_argument, NULL, 'v'};
    for (int index = 0, option; (option = getopt_long(argc, argv, "", known, &index)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            return BENCH_OK;
        }
        if (option != 'v') return usage();
        const bench_option *o = &options[index - 1];
        if (parse(o, optarg)) continue;
        fprintf(stderr, "%s: --%s: %s: ", program_invocation_short_name, o->name, optarg);
        if (o->number)
            fprintf(stderr, "a number from %g to %g is wanted\n", o->least, o->most);
        else
            fprintf(stderr, "%s from %.0f to %.0f wanted\n", o->list ? "integers" : "an integer", o->least, o->most);
        return usage();
    }
    if (optind == argc) return -1;
    fprintf(stderr, "%s: unexpected argument %s\n", program_invocation_short_name, argv[optind]);
    return usage();
}

int bench_fail(const mt_error *error) {
    fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, error->where, error->where[0] ? ": " : "",
            error->message);
    switch (error->code) {
    case MT_E_FORMAT:
    case MT_E_ARGUMENT:
    case MT_E_UNSUPPORTED:
    case MT_E_LIMIT:
        return BENCH_BAD;
    default:
        return BENCH_FAILED;
    }
}

int bench_wrong(const char *what) {
    fprintf(stderr, "%s: wrong: %s\n", program_invocation_short_name, what);
    return BENCH_FAILED;
}

mt_status bench_no_memory(mt_error *error) {
    *error = (mt_error){.code = MT_E_MEMORY, .message = "no memory"};
    return error->code;
}

/* ---- models and data ---- */

mt_status bench_model(mt_model **out, const char *name, mt_error *error) {
    static const char prefix[] = "synth:";
    const size_t length = sizeof prefix - 1;
    return strncmp(name, prefix, length) ? mt_model_open(out, name, error)
                                         : mt_model_synthesize(out, name + length, error);
}

mt_status bench_tokens(const mt_model *m, int64_t count, int32_t **out, mt_error *error) {
    mt_model_info info;
    uint64_t state = 7;
    mt_model_get_info(m, &info);
    *out = malloc((size_t)count * sizeof **out);
    if (!*out) return bench_no_memory(error);
    for (int64_t i = 0; i < count; i++) (*out)[i] = (int32_t)(bench_random(&state) % info.vocab);
    return MT_OK;
}

uint32_t bench_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

float bench_from_bf16(uint16_t code) {
    const uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float bench_from_f16(uint16_t code) {
    const int exponent = code >> 10 & 31, fraction = code & 1023;
    const float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                       : ldexpf((float)fraction, -24);
    return code & 0x8000 ? -value : value;
}
