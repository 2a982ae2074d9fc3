/* Whole models on a GPU, against the CPU machine in float32; without a GPU or a model all of it is skipped.
 *
 *     test_cuda_model [MODEL.gguf | synth:NAME]...      (default: MONOTILE_MODEL)
 *
 * For every model: logits at positions 1 to CUDA_POSITIONS (2000), by prompts and token by token; the greedy text of
 * ten prompts, equal where the reference's margin allows, also from the loop on the device; the same bits
 * CUDA_REPEATS (100) times. Printed only: seconds from the start of a process to its first token with an empty cache
 * and a full one; what tracing costs. Synthetic models have no text: bits and tracing only. CUDA_TEST, CUDA_SKIP:
 * tests of that name ("*" stands for anything). CUDA_MACHINE: "cuda:0"; another one tries the test itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "monotile/llm.h"
#include "ok.h"
#include "temporary.h"

static const double MARK = 2e-2; /* of the logits' relative l2 distance, with 16-bit products */

static const char *machine_name, *model_name, *self;
static mt_machine *gpu, *cpu;
static mt_model *model;
static mt_tokenizer *tokenizer;
static mt_engine *reference, *engine; /* float32 on the CPU; prompts and tokens on the GPU */
static size_t vocab;
static int32_t positions, *ids; /* a text */

static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }
static double seconds_since(uint64_t begin) { return (double)(clock_ns() - begin) * 1e-9; }

static bool is_synthetic(void) { return !strncmp(model_name, "synth:", 6); }

static void need_all(void) {
    static mt_error error;
    if (!model_name) {
        print_message("skipped: no model: MONOTILE_MODEL names none\n");
        skip();
    }
    if (gpu) return;
    if (!*error.message && mt_machine_open(&gpu, machine_name, &error) == MT_OK) return;
    print_message("skipped: no GPU: %s\n", error.message);
    skip();
}

static const char *const sentences[] = {"The river rises in the hills and runs slowly to the sea.",
                                        "A good cook tastes the soup before it is served.",
                                        "In 1969 people walked on the moon for the first time.",
                                        "Water boils at a lower temperature on a high mountain.",
                                        "The library opens at nine, and closes late on Fridays.",
                                        "def area(r):\n    return 3.14159 * r * r\n",
                                        "Nobody knows why the old clock stopped at a quarter to four.",
                                        "Plants turn light, water and air into sugar.",
                                        "\"Where are you going?\" she asked. \"Home,\" he said.",
                                        "The train to Paris leaves from platform seven."};
static const char *const prompts[] = {"What is gravity? Gravity is",
                                      "The capital of France is",
                                      "Once upon a time, there was a little girl who",
                                      "def fibonacci(n):\n",
                                      "To make a good cup of tea, you need to",
                                      "Photosynthesis is the process by which",
                                      "The three primary colors are",
                                      "Dear Sir or Madam,\n\nI am writing to",
                                      "1, 1, 2, 3, 5, 8, 13,",
                                      "The Second World War began in"};

static mt_tokens encode(const char *words) {
    mt_tokens t = {0};
    OK(mt_tokenizer_encode(tokenizer, words, strlen(words), 0, &t, &error));
    return t;
}

/* A text of as many tokens as are wanted: sentences in an order that does not repeat. */
static void make_text(void) {
    ids = calloc((size_t)positions, sizeof *ids);
    assert_non_null(ids);
    uint32_t state = 7;
    for (int32_t count = 0; count < positions;) {
        state = state * 1664525u + 1013904223u;
        if (is_synthetic()) {
            ids[count++] = (int32_t)((state >> 8) % vocab);
            continue;
        }
        char line[200];
        snprintf(line, sizeof line, "%s %u ", sentences[(state >> 20) % COUNT_OF(sentences)], state >> 24);
        mt_tokens t = encode(line);
        for (size_t i = 0; i < t.count && count < positions; i++) ids[count++] = t.ids[i];
        mt_tokens_free(&t);
    }
}

static mt_engine *new_engine(mt_machine *m, int32_t rows, const char *products, mt_sampler_place place) {
    mt_engine *e;
    const mt_engine_options o = {.context = positions + 48,
                                 .rows = rows,
                                 .products = products,
                                 .cache = m == cpu ? "f32" : NULL,
                                 .sampler = place};
    const uint64_t begin = clock_ns();
    OK(mt_engine_create(&e, model, m, &o, &error));
    print_message("    %s, %d rows, products %s: ready after %.1f s\n", mt_machine_name(m), rows,
                  products ? products : "as it is", seconds_since(begin));
    return e;
}

/* What all need, made by the first. */
static void open_all(void) {
    need_all();
    if (model) return;
    mt_model_info info;
    positions = number("CUDA_POSITIONS", is_synthetic() ? 600 : 2000);
    if (is_synthetic())
        OK(mt_model_synthesize(&model, model_name + 6, &error));
    else {
        OK(mt_model_open(&model, model_name, &error));
        OK(mt_model_tokenizer(model, &tokenizer, &error));
        OK(mt_machine_open(&cpu, "cpu", &error));
    }
    mt_model_get_info(model, &info);
    vocab = (size_t)info.vocab;
    make_text();
    print_message("%s on %s\n", model_name, mt_machine_name(gpu));
    if (cpu) reference = new_engine(cpu, 64, "f32", MT_SAMPLER_HOST);
    engine = new_engine(gpu, 64, NULL, MT_SAMPLER_MACHINE);
}

static void close_all(void) {
    mt_engine_destroy(engine);
    mt_engine_destroy(reference);
    mt_model_close(model);
    mt_machine_close(cpu);
    free(ids);
    engine = reference = NULL;
    tokenizer = NULL;
    model = NULL;
    cpu = NULL;
    ids = NULL;
}

/* ---- logits ---- */

static double distance(const float *got, const float *expected) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < vocab; i++) {
        apart += ((double)got[i] - (double)expected[i]) * ((double)got[i] - (double)expected[i]);
        size += (double)expected[i] * (double)expected[i];
    }
    const double d = sqrt(apart / size);
    return isnan(d) ? (double)INFINITY : d;
}

static const int32_t stops[] = {1,   2,   3,   5,   8,   16,  31,  63,   64,   65,   100,
                                128, 129, 200, 256, 400, 512, 777, 1023, 1024, 1500, 2000};

/* The logits behind the first stops[i] tokens, for every stop that there is; a row each. */
static float *logits_at_stops(mt_engine *e, size_t *count) {
    float *rows = malloc(COUNT_OF(stops) * vocab * sizeof *rows);
    assert_non_null(rows);
    OK(mt_engine_rewind(e, 0, &error));
    const uint64_t begin = clock_ns();
    for (*count = 0; *count < COUNT_OF(stops) && stops[*count] <= positions; ++*count) {
        const int32_t at = mt_engine_position(e);
        OK(mt_engine_feed(e, ids + at, (size_t)(stops[*count] - at), NULL, &error));
        memcpy(rows + *count * vocab, mt_engine_logits(e), vocab * sizeof *rows);
    }
    print_message("    %d tokens fed in %.2f s\n", mt_engine_position(e), seconds_since(begin));
    return rows;
}

/* In bf16 the rounding alone brings some positions to the mark, on a CPU too: judged on average. */
static void compare_engine(mt_engine *e, const float *expected, bool on_average, const char *what) {
    size_t count, worst = 0;
    double most = 0, mean = 0;
    float *got = logits_at_stops(e, &count);
    for (size_t i = 0; i < count; i++) {
        const double d = distance(got + i * vocab, expected + i * vocab);
        mean += d / (double)count;
        if (d > most) most = d, worst = i;
    }
    print_message("  %s: relative l2 of the logits: worst %.2e (%d tokens), mean %.2e; the mark is %.0e\n", what, most,
                  stops[worst], mean, MARK);
    free(got);
    assert_true((on_average ? mean : most) <= MARK);
}

static void test_positions(void **state) {
    (void)state;
    open_all();
    if (is_synthetic()) skip();
    size_t count;
    float *expected = logits_at_stops(reference, &count);
    compare_engine(engine, expected, false, "prompts of 64 rows");
    mt_engine *single = new_engine(gpu, 1, NULL, MT_SAMPLER_MACHINE);
    compare_engine(single, expected, false, "token by token");
    mt_engine_destroy(single);
    mt_engine *bf16 = new_engine(gpu, 64, "bf16", MT_SAMPLER_HOST);
    compare_engine(bf16, expected, true, "prompts of 64 rows, products in bf16");
    mt_engine_destroy(bf16);
    free(expected);
}

/* ---- text ---- */

static int32_t best_of(const float *logits, double *margin) {
    size_t best = 0;
    double second = -(double)INFINITY;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    for (size_t i = 0; i < vocab; i++)
        if (i != best) second = fmax(second, (double)logits[i]);
    *margin = (double)logits[best] - second;
    return (int32_t)best;
}

typedef struct tokens {
    int32_t id[256];
    int count;
} tokens;
static int take(void *context, int32_t id, const char *words, size_t length) {
    tokens *t = context;
    (void)words, (void)length;
    if (id >= 0 && t->count < 256) t->id[t->count++] = id;
    return 0;
}

/* The reference's greedy text, fed to both: at each step the GPU must choose the same token, unless the reference's
 * margin is within what single logits are off at that step (six standard deviations of their differences). And from
 * the loop on the device, until the first such step, the same tokens. */
static void test_text(void **state) {
    (void)state;
    open_all();
    if (is_synthetic()) skip();
    const int steps = number("CUDA_STEPS", 32);
    int equal = 0, excused = 0, wrong = 0, looped = 0, whole = 0;
    for (size_t p = 0; p < COUNT_OF(prompts); p++) {
        mt_tokens prompt = encode(prompts[p]);
        tokens chosen = {{0}, 0}, loop = {{0}, 0};
        int differs = -1;
        OK(mt_engine_rewind(reference, 0, &error));
        OK(mt_engine_rewind(engine, 0, &error));
        OK(mt_engine_feed(reference, prompt.ids, prompt.count, NULL, &error));
        OK(mt_engine_feed(engine, prompt.ids, prompt.count, NULL, &error));
        for (int i = 0; i < steps; i++) {
            const float *expected = mt_engine_logits(reference), *got = mt_engine_logits(engine);
            double margin, own, size = 0;
            const int32_t id = best_of(expected, &margin), mine = best_of(got, &own);
            for (size_t v = 0; v < vocab; v++) size += (double)expected[v] * (double)expected[v];
            const double d = distance(got, expected), noise = 6 * d * sqrt(size / (double)vocab);
            chosen.id[chosen.count++] = id;
            equal += id == mine;
            if (id != mine) {
                const bool good = margin <= noise && d <= MARK;
                print_message("  prompt %zu, step %d: token %d, the reference's is %d; its margin is %.3g, single "
                              "logits are off by %.3g (six deviations): %s\n",
                              p, i, mine, id, margin, noise, good ? "allowed" : "WRONG");
                excused += good;
                wrong += !good;
                if (differs < 0) differs = i;
            }
            OK(mt_engine_feed(reference, &id, 1, NULL, &error));
            OK(mt_engine_feed(engine, &id, 1, NULL, &error));
        }
        mt_generate_options o = {.count = steps, .ignore_end = 1};
        mt_sampler_options_default(&o.sampler);
        OK(mt_engine_rewind(engine, 0, &error));
        OK(mt_engine_generate(engine, NULL, prompt.ids, prompt.count, &o, take, &loop, NULL, &error));
        assert_int_equal(loop.count, steps);
        const int same = differs < 0 ? steps : differs;
        const bool good = !memcmp(loop.id, chosen.id, (size_t)same * sizeof *loop.id);
        if (!good) print_message("  prompt %zu: the loop on the device chose other tokens\n", p);
        looped += good;
        whole += good && differs < 0;
        mt_tokens_free(&prompt);
    }
    print_message("  greedy text of %zu prompts: %d of them whole; %d of %d tokens equal, %d differ within the margin, "
                  "%d wrong; from the loop on the device %d as they should be\n",
                  COUNT_OF(prompts), whole, equal, (int)COUNT_OF(prompts) * steps, excused, wrong, looped);
    assert_int_equal(wrong, 0);
    assert_int_equal(looped, COUNT_OF(prompts));
}

/* ---- bits ---- */

/* A prompt, then single tokens: all logits. */
static hash128 bits_of_run(void) {
    hash128 parts[12];
    int32_t fed = (int32_t)min_i64(200, positions - 11);
    OK(mt_engine_rewind(engine, 0, &error));
    OK(mt_engine_feed(engine, ids, (size_t)fed, NULL, &error));
    for (int i = 0; i < 12; i++) {
        parts[i] = hash_bytes(mt_engine_logits(engine), vocab * sizeof(float));
        if (i < 11) OK(mt_engine_feed(engine, ids + fed + i, 1, NULL, &error));
    }
    return hash_bytes(parts, sizeof parts);
}

static void test_bits(void **state) {
    (void)state;
    open_all();
    const int repeats = number("CUDA_REPEATS", 100);
    const uint64_t begin = clock_ns();
    const hash128 first = bits_of_run();
    for (int r = 1; r < repeats; r++) {
        const hash128 now = bits_of_run();
        if (memcmp(&now, &first, sizeof now)) fail_msg("run %d has other bits", r);
    }
    print_message("  the same bits in %d runs (%.1f s)\n", repeats, seconds_since(begin));
}

/* ---- times: printed, not judged ---- */

/* In a process of its own. */
static int first_token(const char *path, const char *machine, uint64_t begin) {
    mt_error error = {0};
    mt_engine_options o = {.context = 2048};
    mt_generate_options g = {.count = 1, .ignore_end = 1};
    tokens t = {{0}, 0};
    mt_sampler_options_default(&g.sampler);
    const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8};
    mt_status status = mt_model_open(&model, path, &error);
    if (status == MT_OK) status = mt_machine_open(&gpu, machine, &error);
    const double opened = seconds_since(begin);
    if (status == MT_OK) status = mt_engine_create(&engine, model, gpu, &o, &error);
    const double ready = seconds_since(begin);
    if (status == MT_OK) status = mt_engine_generate(engine, NULL, prompt, 8, &g, take, &t, NULL, &error);
    if (status != MT_OK) return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;
    printf(
        "%.2f s from the process's start to its first token (machine open after %.2f s, engine ready after %.2f s)\n",
        seconds_since(begin), opened, ready);
    return 0;
}

static void test_time_start(void **state) {
    (void)state;
    char folder[TEMPORARY_BYTES], begin[32];
    need_all();
    if (is_synthetic()) skip();
    assert_true(temporary_make(folder));
    for (int run = 0; run < 3; run++) {
        printf("  %s cache: ", run ? "full" : "empty");
        fflush(stdout);
        snprintf(begin, sizeof begin, "%llu", (unsigned long long)clock_ns());
        const pid_t child = fork();
        if (child == 0) {
            setenv("MONOTILE_CACHE", folder, 1);
            execl(self, self, "--first-token", model_name, machine_name, begin, (char *)NULL);
            _exit(127);
        }
        int status = 1;
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        assert_int_equal(status, 0);
    }
    print_message("  the marks are 20 s and 0.3 s\n");
    temporary_remove(folder);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

/* Microseconds of a single step, by the host's clock, and of a step of the loop on the device. */
static void time_steps(double *single, double *looped) {
    enum { STEPS = 200, LOOPS = 5, TOKENS = 128 };
    double step[STEPS], loop[LOOPS];
    const int32_t at = (int32_t)min_i64(300, positions - 20);
    OK(mt_engine_rewind(engine, 0, &error));
    OK(mt_engine_feed(engine, ids, (size_t)at, NULL, &error));
    for (int i = 0; i < STEPS; i++) {
        OK(mt_engine_rewind(engine, at, &error));
        const uint64_t begin = clock_ns();
        OK(mt_session_live(mt_engine_session(engine, 0), "pos", at, &error));
        OK(mt_session_run(mt_engine_session(engine, 0), &error));
        step[i] = seconds_since(begin) * 1e6;
    }
    for (int i = 0; i < LOOPS; i++) {
        tokens t = {{0}, 0};
        mt_generate_stats s;
        mt_generate_options o = {.count = (int32_t)min_i64(TOKENS, positions + 40 - at), .ignore_end = 1};
        mt_sampler_options_default(&o.sampler);
        OK(mt_engine_rewind(engine, at - 1, &error));
        OK(mt_engine_generate(engine, NULL, ids + at - 1, 1, &o, take, &t, &s, &error));
        loop[i] = s.seconds / (double)s.tokens * 1e6;
    }
    *single = median(step, STEPS);
    *looped = median(loop, LOOPS);
}

static void test_time_trace(void **state) {
    (void)state;
    double single[2], looped[2];
    open_all();
    for (int traced = 0; traced < 2; traced++) {
        mt_error error = {0};
        if (mt_session_trace(mt_engine_session(engine, 0), traced, &error) != MT_OK) {
            print_message("skipped: %s\n", error.message);
            skip();
        }
        time_steps(&single[traced], &looped[traced]);
    }
    OK(mt_session_trace(mt_engine_session(engine, 0), 0, &error));
    print_message(
        "  a step: %.1f us, traced %.1f us (%+.1f %%); in the loop on the device %.1f us a token, traced %.1f "
        "us (%+.1f %%); the mark is 2 %%\n",
        single[0], single[1], (single[1] / single[0] - 1) * 100, looped[0], looped[1],
        (looped[1] / looped[0] - 1) * 100);
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "--first-token"))
        return first_token(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_positions), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_bits), cmocka_unit_test(test_time_start),
                                       cmocka_unit_test(test_time_trace)};
    int failed = 0;
    self = argv[0];
    machine_name = getenv("CUDA_MACHINE") ? getenv("CUDA_MACHINE") : "cuda:0";
    if (getenv("CUDA_TEST")) cmocka_set_test_filter(getenv("CUDA_TEST"));
    if (getenv("CUDA_SKIP")) cmocka_set_skip_filter(getenv("CUDA_SKIP"));
    for (int i = 1; i < argc || i == 1; i++) {
        model_name = i < argc ? argv[i] : getenv("MONOTILE_MODEL");
        failed += cmocka_run_group_tests_name(model_name ? model_name : "no model", tests, NULL, NULL);
        close_all();
    }
    mt_machine_close(gpu);
    return failed;
}
