/* How long one token takes, with the cache filled to several lengths: as one launch a step, which writes its logits to
 * the host's memory, and in the loop on the device, which chooses tokens by itself. `gpu_decode --help` says more.
 *
 * A length L means that the step's token is the L-th of the context; the loop goes on from there. The loop's time runs
 * from the first token, which the host chooses from the prompt's logits, to the last: a launch and tokens - 1 steps.
 * Results are checked, too: logits of all launches and tokens of all loops must have the same bits, and the tokens must
 * be those that the host chooses from the logits of single steps. */
#include "gpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: gpu_decode [OPTION]...\n"
    "Microseconds a token, one launch a step and in the device's loop, beside the floor that memory sets.\n\n"
    "  --model MODEL       synth:NAME[:FORMAT] or a .gguf file (synth:llama-3.2-1b)\n"
    "  --machine MACHINE   cuda:N, cpu, sim:N (cuda:0)\n"
    "  --kv L,L,...        lengths of the context (64,512,2048)\n"
    "  --steps N           launches for each length (100)\n"
    "  --tokens N          tokens of a loop (64)\n"
    "  --loops N           loops for each length (5)\n"
    "  --products TYPE     what is multiplied is rounded to it: bf16, f16, half, f32 (the engine's choice)\n"
    "  --cache TYPE        the cache's type (the engine's choice)\n"
    "  --rows N            tokens of a prompt that a run takes; 0: the engine's choice, 1: no code for prompts (0)\n"
    "  --temperature T --top-k N --top-p P --min-p P --seed N\n"
    "                      how the loop chooses (temperature 0: the largest logit)\n"
    "  --bandwidth TB      the memory's, for the floor, in 10^12 bytes a second (4.58)\n\n"
    "Columns: context length; step: median, least, p90, same bits; loop: the same of its mean a token; the host's\n"
    "tokens; floor; loop's median over the floor. Exit status: 1 when a run fails or results differ, 2 for bad "
    "input.\n";

typedef struct settings {
    const char *model, *machine, *products, *cache;
    bench_list kv;
    int64_t steps, tokens, loops, rows;
    double bandwidth;
    mt_generate_options generate;
} settings;

typedef struct figures { /* of one length */
    bench_times step, loop;
    bool steps_same, loops_same, as_host;
} figures;

/* Tokens as they come, and when the first and the last one did. */
typedef struct arrivals {
    int32_t *ids;
    int64_t count, room;
    double first, last;
} arrivals;

static int arrive(void *context, int32_t id, const char *text, size_t length) {
    arrivals *a = context;
    (void)text, (void)length;
    a->last = bench_now();
    if (!a->count) a->first = a->last;
    if (a->count < a->room) a->ids[a->count++] = id;
    return 0;
}

static int64_t longest(const settings *o) {
    int64_t most = 0;
    for (size_t i = 0; i < o->kv.count; i++) most = o->kv.values[i] > most ? o->kv.values[i] : most;
    return most;
}

static mt_status make_engine(mt_engine **out, const mt_model *m, mt_machine *machine, const settings *o,
                             mt_sampler_place place, mt_error *error) {
    const mt_engine_options options = {.context = (int32_t)(longest(o) + o->tokens),
                                       .rows = (int32_t)o->rows,
                                       .cache = o->cache,
                                       .products = o->products,
                                       .sampler = place};
    return mt_engine_create(out, m, machine, &options, error);
}

/* Fills the context so that the next token is its `length`-th. */
static mt_status fill(mt_engine *e, const int32_t *ids, int64_t length, mt_error *error) {
    const mt_status status = mt_engine_rewind(e, 0, error);
    return status == MT_OK ? mt_engine_feed(e, ids, (size_t)length - 1, NULL, error) : status;
}

static mt_status generate(mt_engine *e, const int32_t *ids, int64_t length, const settings *o, arrivals *a,
                          mt_error *error) {
    a->count = 0;
    mt_status status = mt_engine_rewind(e, (int32_t)length - 1, error);
    if (status == MT_OK)
        status = mt_engine_generate(e, NULL, ids + length - 1, 1, &o->generate, arrive, a, NULL, error);
    return status;
}

/* The same step again and again, then the tokens that the host chooses from here. */
static mt_status measure_steps(mt_engine *e, const int32_t *ids, int64_t length, const settings *o, figures *f,
                               arrivals *host, mt_error *error) {
    mt_session *session = mt_engine_session(e, 0);
    double *seconds = malloc((size_t)o->steps * sizeof *seconds);
    void *logits = NULL, *first = NULL, *token = NULL;
    size_t bytes = 0, token_bytes = 0;
    mt_status status = seconds ? fill(e, ids, length, error) : bench_no_memory(error);
    if (status == MT_OK) status = mt_session_memory(session, "ids", &token, &token_bytes, error);
    if (status == MT_OK) status = mt_session_memory(session, "logits", &logits, &bytes, error);
    if (status == MT_OK) status = mt_session_live(session, "pos", (int32_t)length - 1, error);
    if (status == MT_OK) {
        memcpy(token, &ids[length - 1], sizeof ids[0]);
        status = mt_session_run(session, error);
    }
    if (status == MT_OK && !(first = malloc(bytes))) status = bench_no_memory(error);
    if (status != MT_OK) goto done;
    memcpy(first, logits, bytes);
    f->steps_same = true;
    for (int64_t i = 0; i < o->steps; i++) {
        const double start = bench_now();
        if ((status = mt_session_run(session, error)) != MT_OK) goto done;
        seconds[i] = bench_now() - start;
        f->steps_same &= !memcmp(first, logits, bytes);
    }
    f->step = bench_sort(seconds, o->steps);
    status = generate(e, ids, length, o, host, error);
done:
    free(first);
    free(seconds);
    return status;
}

static mt_status measure_loops(mt_engine *e, const int32_t *ids, int64_t length, const settings *o, figures *f,
                               const arrivals *host, mt_error *error) {
    const size_t bytes = (size_t)o->tokens * sizeof(int32_t);
    arrivals a = {.ids = malloc(bytes), .room = o->tokens};
    int32_t *first = malloc(bytes);
    double *seconds = malloc((size_t)o->loops * sizeof *seconds);
    mt_status status = a.ids && first && seconds ? fill(e, ids, length, error) : bench_no_memory(error);
    if (status == MT_OK) status = generate(e, ids, length, o, &a, error); /* not timed */
    if (status != MT_OK) goto done;
    memcpy(first, a.ids, bytes);
    f->as_host = a.count == host->count && !memcmp(a.ids, host->ids, bytes);
    f->loops_same = a.count == o->tokens;
    for (int64_t i = 0; i < o->loops; i++) {
        if ((status = generate(e, ids, length, o, &a, error)) != MT_OK) goto done;
        seconds[i] = (a.last - a.first) / (double)(o->tokens - 1);
        f->loops_same &= a.count == o->tokens && !memcmp(first, a.ids, bytes);
    }
    f->loop = bench_sort(seconds, o->loops);
done:
    free(a.ids);
    free(first);
    free(seconds);
    return status;
}

static int print(const settings *o, const mt_model_info *info, const figures *f) {
    const double floor = (double)info->step_bytes / (o->bandwidth * 1e12);
    const mt_sampler_options *s = &o->generate.sampler;
    bool right = true;
    printf("# %s on %s: a step reads %.3f GB of weights; temperature %g, top-k %d, top-p %g, min-p %g; "
           "%lld launches, %lld loops of %lld tokens\n",
           o->model, o->machine, (double)info->step_bytes * 1e-9, (double)s->temperature, s->top_k, (double)s->top_p,
           (double)s->min_p, (long long)o->steps, (long long)o->loops, (long long)o->tokens);
    printf("#%5s %9s %9s %9s %4s %9s %9s %9s %4s %7s %9s %6s\n", "kv", "step us", "least", "p90", "same", "loop us",
           "least", "p90", "same", "as host", "floor us", "ratio");
    for (size_t i = 0; i < o->kv.count; i++, f++) {
        printf("%6lld %9.1f %9.1f %9.1f %4s %9.1f %9.1f %9.1f %4s %7s %9.1f %6.2f\n", (long long)o->kv.values[i],
               f->step.median * 1e6, f->step.least * 1e6, f->step.p90 * 1e6, f->steps_same ? "yes" : "NO",
               f->loop.median * 1e6, f->loop.least * 1e6, f->loop.p90 * 1e6, f->loops_same ? "yes" : "NO",
               f->as_host ? "yes" : "NO", floor * 1e6, f->loop.median / floor);
        right &= f->steps_same && f->loops_same && f->as_host;
    }
    return right ? BENCH_OK : bench_wrong("results differ from run to run, or from the host's");
}

static int decode(const settings *o) {
    mt_error error = {0};
    mt_model *model = NULL;
    mt_machine *machine = NULL;
    mt_engine *engine = NULL;
    mt_model_info info;
    int32_t *ids = NULL;
    figures f[sizeof o->kv.values / sizeof o->kv.values[0]] = {0};
    arrivals host[sizeof o->kv.values / sizeof o->kv.values[0]] = {0};

    mt_status status = bench_model(&model, o->model, &error);
    if (status == MT_OK) status = mt_machine_open(&machine, o->machine, &error);
    if (status == MT_OK) status = bench_tokens(model, longest(o), &ids, &error);
    if (status == MT_OK) status = make_engine(&engine, model, machine, o, MT_SAMPLER_HOST, &error);
    for (size_t i = 0; i < o->kv.count && status == MT_OK; i++) {
        host[i] = (arrivals){.ids = malloc((size_t)o->tokens * sizeof(int32_t)), .room = o->tokens};
        status = host[i].ids ? measure_steps(engine, ids, o->kv.values[i], o, &f[i], &host[i], &error)
                             : bench_no_memory(&error);
    }
    mt_engine_destroy(engine); /* before the next one: a machine need not have room for two */
    engine = NULL;
    if (status == MT_OK) status = make_engine(&engine, model, machine, o, MT_SAMPLER_MACHINE, &error);
    if (status == MT_OK) status = mt_engine_prepare(engine, &o->generate.sampler, &error);
    for (size_t i = 0; i < o->kv.count && status == MT_OK; i++)
        status = measure_loops(engine, ids, o->kv.values[i], o, &f[i], &host[i], &error);
    int result = BENCH_OK;
    if (status == MT_OK) {
        mt_model_get_info(model, &info);
        result = print(o, &info, f);
    } else
        result = bench_fail(&error);
    for (size_t i = 0; i < o->kv.count; i++) free(host[i].ids);
    free(ids);
    mt_engine_destroy(engine);
    mt_machine_close(machine);
    mt_model_close(model);
    return result;
}

int main(int argc, char **argv) {
    settings o = {.model = "synth:llama-3.2-1b",
                  .machine = "cuda:0",
                  .kv = {.values = {64, 512, 2048}, .count = 3},
                  .steps = 100,
                  .tokens = 64,
                  .loops = 5,
                  .bandwidth = 4.58,
                  .generate = {.ignore_end = 1}};
    double temperature = 0, top_p = 1, min_p = 0;
    int64_t top_k = 0, seed = 42;
    const double many = 1 << 20;
    const bench_option options[] = {
        {"model", .text = &o.model},
        {"machine", .text = &o.machine},
        {"kv", .list = &o.kv, .least = 1, .most = many, .separator = ','},
        {"steps", .integer = &o.steps, .least = 1, .most = many},
        {"tokens", .integer = &o.tokens, .least = 2, .most = many},
        {"loops", .integer = &o.loops, .least = 1, .most = many},
        {"products", .text = &o.products},
        {"cache", .text = &o.cache},
        {"rows", .integer = &o.rows, .most = many},
        {"temperature", .number = &temperature, .most = 1000},
        {"top-k", .integer = &top_k, .most = INT32_MAX},
        {"top-p", .number = &top_p, .most = 1},
        {"min-p", .number = &min_p, .most = 1},
        {"seed", .integer = &seed, .most = 0x1p53},
        {"bandwidth", .number = &o.bandwidth, .least = 1e-3, .most = 1e3},
    };
    const int result = bench_options(argc, argv, help, options, sizeof options / sizeof options[0]);
    if (result >= 0) return result;
    o.generate.count = (int32_t)o.tokens;
    o.generate.sampler =
        (mt_sampler_options){(float)temperature, (float)top_p, (float)min_p, (int32_t)top_k, (uint64_t)seed};
    return decode(&o);
}
