/* How fast a prompt is taken in, and how far the logits behind it are from those of another path: the same prompt with
 * few rows a run, which goes through other code (products of few rows instead of many). `gpu_prompt --help` says more.
 */
#include "gpu_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: gpu_prompt [OPTION]...\n"
    "Tokens of a prompt a second, and how far its last logits are from those that few rows a run give.\n\n"
    "  --model MODEL          synth:NAME[:FORMAT] or a .gguf file (synth:llama-3.2-1b)\n"
    "  --machine MACHINE      cuda:N, cpu, sim:N (cuda:0)\n"
    "  --tokens N             of the prompt (512)\n"
    "  --rows N               tokens that a run takes; 0: the engine's choice (0)\n"
    "  --reference-rows N     the same of the other path (16)\n"
    "  --repeats N            prompts (20; the other path: at most 3)\n"
    "  --products TYPE        what is multiplied is rounded to it: bf16, f16, half, f32 (the engine's choice)\n"
    "  --cache TYPE           the cache's type (the engine's choice)\n"
    "  --limit X              relative l2 distance that is right (0.02)\n\n"
    "Columns, a line for each path: tokens; rows; milliseconds: median, least, p90; tokens a second; same bits;\n"
    "relative l2 distance from the other path's logits. Exit status: 1 when a run fails or results are wrong, 2 for "
    "bad\n"
    "input.\n";

typedef struct settings {
    const char *model, *machine, *products, *cache;
    int64_t tokens, rows, reference_rows, repeats;
    double limit;
} settings;

typedef struct path {
    int64_t rows, repeats;
    bench_times time;
    bool same;
    float *logits;
} path;

/* Tokens that a run of the engine's program for prompts takes: the extent of its input. */
static int64_t rows_of(const mt_engine *e) {
    const mt_program *p = mt_engine_program(e, 1);
    mt_tensor_info info;
    for (size_t i = 0; p && i < mt_program_tensor_count(p); i++)
        if (mt_program_tensor(p, i, &info, NULL) == MT_OK && !strcmp(info.name, "ids")) return info.extent[0];
    return 1;
}

static mt_status measure(const mt_model *m, mt_machine *machine, const settings *o, const int32_t *ids, path *p,
                         mt_error *error) {
    const mt_engine_options options = {
        .context = (int32_t)o->tokens, .rows = (int32_t)p->rows, .cache = o->cache, .products = o->products};
    mt_engine *e = NULL;
    mt_model_info info;
    mt_model_get_info(m, &info);
    const size_t bytes = (size_t)info.vocab * sizeof *p->logits;
    double *seconds = malloc((size_t)p->repeats * sizeof *seconds);
    p->logits = malloc(bytes);
    mt_status status =
        seconds && p->logits ? mt_engine_create(&e, m, machine, &options, error) : bench_no_memory(error);
    if (status == MT_OK) status = mt_engine_feed(e, ids, (size_t)o->tokens, NULL, error); /* not timed */
    if (status != MT_OK) goto done;
    memcpy(p->logits, mt_engine_logits(e), bytes);
    p->rows = rows_of(e);
    p->same = true;
    for (int64_t i = 0; i < p->repeats; i++) {
        if ((status = mt_engine_rewind(e, 0, error)) != MT_OK) goto done;
        const double start = bench_now();
        if ((status = mt_engine_feed(e, ids, (size_t)o->tokens, NULL, error)) != MT_OK) goto done;
        seconds[i] = bench_now() - start;
        p->same &= !memcmp(p->logits, mt_engine_logits(e), bytes);
    }
    p->time = bench_sort(seconds, p->repeats);
done:
    mt_engine_destroy(e);
    free(seconds);
    return status;
}

static double distance(const float *a, const float *b, int64_t count) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

static int print(const settings *o, const path paths[2], int64_t vocab) {
    const double l2 = distance(paths[0].logits, paths[1].logits, vocab);
    printf("# %s on %s\n", o->model, o->machine);
    printf("#%6s %6s %10s %10s %10s %10s %4s %9s\n", "tokens", "rows", "ms", "least", "p90", "tokens/s", "same", "l2");
    for (const path *p = paths; p < paths + 2; p++)
        printf("%7lld %6lld %10.3f %10.3f %10.3f %10.0f %4s %9.2e\n", (long long)o->tokens, (long long)p->rows,
               p->time.median * 1e3, p->time.least * 1e3, p->time.p90 * 1e3, (double)o->tokens / p->time.median,
               p->same ? "yes" : "NO", l2);
    if (!paths[0].same || !paths[1].same) return bench_wrong("results differ from run to run");
    return l2 <= o->limit ? BENCH_OK : bench_wrong("the two paths' logits are too far apart");
}

static int prompt(const settings *o) {
    mt_error error = {0};
    mt_model *model = NULL;
    mt_machine *machine = NULL;
    mt_model_info info;
    int32_t *ids = NULL;
    path paths[2] = {{.rows = o->rows, .repeats = o->repeats},
                     {.rows = o->reference_rows, .repeats = o->repeats < 3 ? o->repeats : 3}};
    mt_status status = bench_model(&model, o->model, &error);
    if (status == MT_OK) status = mt_machine_open(&machine, o->machine, &error);
    if (status == MT_OK) status = bench_tokens(model, o->tokens, &ids, &error);
    for (int i = 0; i < 2 && status == MT_OK; i++) status = measure(model, machine, o, ids, &paths[i], &error);
    int result = BENCH_OK;
    if (status == MT_OK) {
        mt_model_get_info(model, &info);
        result = print(o, paths, info.vocab);
    } else
        result = bench_fail(&error);
    free(paths[0].logits);
    free(paths[1].logits);
    free(ids);
    mt_machine_close(machine);
    mt_model_close(model);
    return result;
}

int main(int argc, char **argv) {
    settings o = {.model = "synth:llama-3.2-1b",
                  .machine = "cuda:0",
                  .tokens = 512,
                  .reference_rows = 16,
                  .repeats = 20,
                  .limit = 0.02};
    const double many = 1 << 20;
    const bench_option options[] = {
        {"model", .text = &o.model},
        {"machine", .text = &o.machine},
        {"tokens", .integer = &o.tokens, .least = 1, .most = many},
        {"rows", .integer = &o.rows, .most = many},
        {"reference-rows", .integer = &o.reference_rows, .least = 1, .most = many},
        {"repeats", .integer = &o.repeats, .least = 1, .most = many},
        {"products", .text = &o.products},
        {"cache", .text = &o.cache},
        {"limit", .number = &o.limit, .most = 10},
    };
    const int result = bench_options(argc, argv, help, options, sizeof options / sizeof options[0]);
    return result >= 0 ? result : prompt(&o);
}
