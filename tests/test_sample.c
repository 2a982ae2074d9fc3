/* Choosing tokens inside a machine: the tile programs of src/ops/sample_*.tile, put together by model_sample, against
 * the host's sampler, token by token, and against a distribution computed here. On the CPU machine, and one case on
 * the simulator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "graph_make.h"
#include "model/model.h"
#include "ok.h"
#include "temporary.h"

enum { ROOM = 20000 };

static char folder[TEMPORARY_BYTES];
static const char *the_machine = "cpu:2"; /* most tests' */

static int set_up(void **state) {
    (void)state;
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}

static int tear_down(void **state) {
    (void)state;
    return temporary_remove(folder);
}

static uint64_t random_state = 88172645463325252u;
static uint32_t random_u32(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

typedef struct stage { /* a program that is nothing but sampling */
    mt_machine *machine;
    mt_program *program;
    mt_session *session;
    int64_t vocab;
    float *logits, *options;
    uint32_t *words;
    int32_t *stops, *tokens;
} stage;

static void *memory_of(stage *s, const char *name) {
    void *memory;
    OK(mt_session_memory(s->session, name, &memory, NULL, &error));
    return memory;
}

static void open_stage(stage *s, const char *machine, int64_t vocab, mt_sampling sampling) {
    mt_graph *g = make_graph(NULL);
    const mt_step step = {.rows = 1, .context = ROOM, .sampling = sampling};
    mt_live pos;
    OK(mt_graph_live(g, "pos", 0, ROOM - 1, &pos, &error));
    const mt_tensor logits = make_tensor(g, MT_INPUT, "logits", "f32", 1, vocab),
                    token = make_tensor(g, MT_STATE, "token", "i32", 1, 0);
    OK(model_sample(g, &step, vocab, logits, pos, token, &error));
    OK(mt_machine_open(&s->machine, machine, &error));
    OK(mt_compile(g, &(mt_target){.machine = machine, .processors = 2}, &s->program, &error));
    OK(mt_session_create(&s->session, s->machine, s->program, &error));
    mt_graph_destroy(g);
    s->vocab = vocab;
    s->logits = memory_of(s, "logits");
    s->options = memory_of(s, "sample.options");
    s->words = memory_of(s, "sample.words");
    s->stops = memory_of(s, "sample.stops");
    s->tokens = memory_of(s, "tokens");
    for (int i = 0; i < MT_SAMPLE_STOPS; i++) s->stops[i] = -1;
}

static void close_stage(stage *s) {
    mt_session_destroy(s->session);
    mt_program_destroy(s->program);
    mt_machine_close(s->machine);
}

static void set_options(stage *s, const mt_sampler_options *o, int32_t offset) {
    memcpy(s->options, (float[]){o->temperature, o->top_p, o->min_p, 0}, 4 * sizeof *s->options);
    memcpy(s->words, (uint32_t[]){(uint32_t)o->top_k, (uint32_t)o->seed, (uint32_t)(o->seed >> 32), (uint32_t)offset},
           4 * sizeof *s->words);
}

/* Tokens of `count` steps, from position `pos` on. */
static void run(stage *s, int32_t pos, int32_t count) {
    const mt_live_step live = {"pos", pos, 1};
    int32_t done;
    OK(mt_session_loop(s->session, &(mt_loop){.runs = count, .lives = &live, .live_count = 1, .stop = "stop"}, &done,
                       &error));
    assert_int_equal(done, count);
}

/* ---- against the host's sampler ---- */

typedef enum kind { SMOOTH, STEPS, EQUAL, WILD, ONE, KINDS } kind;

static void fill(stage *s, kind k) {
    static const float wild[] = {NAN, -INFINITY, 0.0f, -0.0f, 1e-40f, -1e-40f, -3e38f, 4.0f};
    for (int64_t i = 0; i < s->vocab; i++) {
        float x = 0;
        for (int j = 0; j < 6; j++) x += (float)random_u32() / 4294967296.0f - 0.5f; /* nearly normal */
        x *= 3;
        if (k == STEPS) x = floorf(x * 2) / 2;
        if (k == EQUAL) x = -1.5f;
        if (k == WILD && random_u32() % 2) x = wild[random_u32() % COUNT_OF(wild)];
        if (k == ONE) x = -INFINITY;
        s->logits[i] = x;
    }
    if (k == ONE) s->logits[random_u32() % (uint32_t)s->vocab] = -7;
    if (k == WILD) s->logits[s->vocab - 1] = 4;
}

/* The host's token for a step. */
static int32_t host(const stage *s, const mt_sampler_options *o, uint64_t step) {
    mt_sampler *sampler;
    int32_t token;
    OK(mt_sampler_new(&sampler, o, &error));
    mt_sampler_set_step(sampler, step);
    OK(mt_sampler_sample(sampler, s->logits, (size_t)s->vocab, &token, &error));
    mt_sampler_free(sampler);
    return token;
}

static void compare(stage *s, const mt_sampler_options *options, kind k, int32_t count) {
    mt_sampler_options o = *options;
    const int32_t pos = (int32_t)(random_u32() % (uint32_t)(ROOM - count)),
                  offset = (int32_t)(random_u32() % 2000) - 1000;
    o.seed = (uint64_t)random_u32() << 32 | random_u32();
    if (pos + offset < 0) return;
    fill(s, k);
    set_options(s, &o, offset);
    run(s, pos, count);
    for (int32_t i = 0; i < count; i++) {
        const int32_t expected = host(s, &o, (uint64_t)(pos + i + offset)), got = s->tokens[pos + 1 + i];
        if (got != expected)
            fail_msg("%lld logits of kind %d, temperature %g, top_k %d, top_p %g, min_p %g, seed %llx, step %d: token "
                     "%d (%g); the host's is %d (%g)",
                     (long long)s->vocab, (int)k, (double)o.temperature, (int)o.top_k, (double)o.top_p, (double)o.min_p,
                     (unsigned long long)o.seed, (int)(pos + i + offset), (int)got,
                     got >= 0 && got < s->vocab ? (double)s->logits[got] : 0, (int)expected,
                     (double)s->logits[expected]);
    }
}

static void against_host(mt_sampling sampling, const mt_sampler_options *options, size_t count) {
    static const int64_t sizes[] = {1, 257, 5003};
    for (size_t n = 0; n < COUNT_OF(sizes); n++) {
        stage s;
        open_stage(&s, the_machine, sizes[n], sampling);
        for (size_t i = 0; i < count; i++)
            for (int k = 0; k < KINDS; k++) compare(&s, &options[i], (kind)k, sizes[n] < 1000 ? 40 : 12);
        close_stage(&s);
    }
}

static void test_plain(void **state) {
    (void)state;
    static const mt_sampler_options options[] = {
        {.top_p = 1},
        {.temperature = 1, .top_p = 1},
        {.temperature = 0.01f, .top_p = 1},
        {.temperature = 1e6f, .top_p = 1},
    };
    against_host(MT_SAMPLE_PLAIN, options, COUNT_OF(options));
}

/* A top-k of few: the best of every piece, then of all. */
static void test_few(void **state) {
    (void)state;
    static const mt_sampler_options options[] = {
        {.top_p = 0.5f, .top_k = 3},
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1, .top_k = 7},
        {.temperature = 3, .top_p = 1, .top_k = 40},
        {.temperature = 0.01f, .top_p = 1, .top_k = 20},
        {.temperature = 1e6f, .top_p = 1, .top_k = 63},
        {.temperature = 5, .top_p = 0.9f, .top_k = MT_SAMPLE_MOST},
        {.temperature = 1, .top_p = 1e-6f, .top_k = 30},
        {.temperature = 5, .top_p = 0.999f, .top_k = 12},
        {.temperature = 2, .top_p = 1, .top_k = 50, .min_p = 0.05f},
        {.temperature = 2, .top_p = 0.95f, .top_k = 40, .min_p = 0.02f},
        {.temperature = 2, .top_p = 0.95f, .top_k = 33, .min_p = 1},
    };
    against_host(MT_SAMPLE_FEW, options, COUNT_OF(options));
}

/* Top-p and min-p alone: few tokens are left, or many. */
static void test_nucleus(void **state) {
    (void)state;
    static const mt_sampler_options options[] = {
        {.top_p = 0.5f},
        {.temperature = 1, .top_p = 1},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 0.3f, .top_p = 0.9f},
        {.temperature = 1, .top_p = 1e-6f},
        {.temperature = 5, .top_p = 0.999f},
        {.temperature = 0.2f, .top_p = 0.5f, .min_p = 0.1f},
        {.temperature = 1, .top_p = 1, .min_p = 0.05f},
        {.temperature = 2, .top_p = 0.9f, .min_p = 0.001f},
        {.temperature = 2, .top_p = 1, .min_p = 1},
        {.temperature = 1, .top_p = 0.8f, .top_k = 33},
    };
    against_host(MT_SAMPLE_NUCLEUS, options, COUNT_OF(options));
}

static void test_filtered(void **state) {
    (void)state;
    static const mt_sampler_options options[] = {
        {.top_p = 1},
        {.top_p = 0.5f, .top_k = 3},
        {.temperature = 1, .top_p = 1},
        {.temperature = 1, .top_p = 1, .min_p = 0.05f},
        {.temperature = 2, .top_p = 1, .min_p = 1},
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1, .top_k = 7},
        {.temperature = 3, .top_p = 1, .top_k = 40},
        {.temperature = 1, .top_p = 1, .top_k = 1000},
        {.temperature = 1, .top_p = 1, .top_k = INT32_MAX},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 1, .top_p = 1e-6f},
        {.temperature = 5, .top_p = 0.999f},
        {.temperature = 0.3f, .top_p = 0.5f},
        {.temperature = 2, .top_p = 0.9f, .top_k = 40},
        {.temperature = 2, .top_p = 0.95f, .top_k = 300, .min_p = 0.02f},
    };
    against_host(MT_SAMPLE_FILTERED, options, COUNT_OF(options));
}

/* A vocabulary as large as a model's. */
static void test_large(void **state) {
    (void)state;
    static const mt_sampler_options options[] = {{.temperature = 1, .top_p = 1},
                                                 {.temperature = 1, .top_p = 0.9f, .top_k = 5000, .min_p = 0.001f},
                                                 {.temperature = 2, .top_p = 0.95f, .top_k = 40, .min_p = 0.02f},
                                                 {.temperature = 1, .top_p = 0.8f}};
    static const mt_sampling samplings[] = {MT_SAMPLE_PLAIN, MT_SAMPLE_FILTERED, MT_SAMPLE_FEW, MT_SAMPLE_NUCLEUS};
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        stage s;
        open_stage(&s, the_machine, 140001, samplings[i]);
        for (int k = 0; k < KINDS; k++) compare(&s, &options[i], (kind)k, i == 2 ? 12 : 3);
        close_stage(&s);
    }
}

static void test_sim(void **state) {
    (void)state;
    for (mt_sampling sampling = MT_SAMPLE_FEW; sampling <= MT_SAMPLE_FILTERED; sampling++) {
        stage s;
        open_stage(&s, "sim:3", 300, sampling);
        compare(&s, &(mt_sampler_options){.top_p = 1}, SMOOTH, 2);
        compare(&s, &(mt_sampler_options){.temperature = 2, .top_p = 0.9f, .top_k = 40, .min_p = 0.01f}, STEPS, 2);
        close_stage(&s);
    }
}

/* ---- the distribution ---- */

typedef struct chance {
    double weight;
    int32_t token;
} chance;

static int by_weight(const void *a, const void *b) {
    const chance *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return x->token - y->token;
}

/* Probabilities by the definition: sort, keep the first k, then the fewest that come to p, then those that are likely
 * enough next to the first. */
static void distribution(const stage *s, const mt_sampler_options *o, double *p) {
    chance *c = malloc((size_t)s->vocab * sizeof *c);
    assert_non_null(c);
    double most = -INFINITY, total = 0, sum = 0, left = 0;
    for (int64_t i = 0; i < s->vocab; i++) most = fmax(most, s->logits[i]);
    for (int64_t i = 0; i < s->vocab; i++) c[i] = (chance){exp((s->logits[i] - most) / o->temperature), (int32_t)i};
    qsort(c, (size_t)s->vocab, sizeof *c, by_weight);
    const int64_t k = o->top_k && o->top_k < s->vocab ? o->top_k : s->vocab;
    for (int64_t i = 0; i < k; i++) total += c[i].weight;
    for (int64_t i = 0; i < s->vocab; i++) p[i] = 0;
    for (int64_t i = 0; i < k && (o->top_p == 1 || sum < o->top_p * total); i++) {
        sum += c[i].weight;
        if (c[i].weight >= o->min_p) left += p[c[i].token] = c[i].weight;
    }
    for (int64_t i = 0; i < s->vocab; i++) p[i] /= left;
    free(c);
}

static void test_distribution(void **state) {
    (void)state;
    enum { VOCAB = 300 };
    static const mt_sampler_options options[] = {{.temperature = 1, .top_p = 1, .seed = 11},
                                                 {.temperature = 1, .top_p = 1, .top_k = 20, .seed = 12},
                                                 {.temperature = 1.5f, .top_p = 0.8f, .seed = 13},
                                                 {.temperature = 1, .top_p = 1, .min_p = 0.1f, .seed = 14},
                                                 {.temperature = 2, .top_p = 0.9f, .top_k = 60, .min_p = 0.05f}};
    stage s;
    double p[VOCAB];
    open_stage(&s, the_machine, VOCAB, MT_SAMPLE_FILTERED);
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        int seen[VOCAB] = {0};
        double chi = 0, rest = 0, rest_seen = 0;
        int degrees = -1;
        fill(&s, SMOOTH);
        distribution(&s, &options[i], p);
        set_options(&s, &options[i], 0);
        run(&s, 0, ROOM);
        for (int32_t r = 1; r <= ROOM; r++) {
            assert_in_range(s.tokens[r], 0, VOCAB - 1);
            seen[s.tokens[r]]++;
        }
        for (int t = 0; t < VOCAB; t++) {
            const double expected = p[t] * ROOM;
            assert_true(p[t] > 0 || !seen[t]); /* exactly those that stay */
            if (expected >= 5)
                chi += (seen[t] - expected) * (seen[t] - expected) / expected, degrees++;
            else
                rest += expected, rest_seen += seen[t];
        }
        if (rest >= 5) chi += (rest_seen - rest) * (rest_seen - rest) / rest, degrees++;
        if (fabs(chi - degrees) > 4 * sqrt(2.0 * degrees)) /* the seeds are fixed: this cannot fail by chance */
            fail_msg("options %zu: chi-square %g with %d degrees of freedom", i, chi, degrees);
    }
    close_stage(&s);
}

/* ---- ends ---- */

static int32_t word(stage *s) {
    int32_t stop;
    OK(mt_session_read(s->session, "stop", &stop, sizeof stop, &error));
    return stop;
}

static void test_ends(void **state) {
    (void)state;
    stage s;
    int32_t done, token;
    open_stage(&s, the_machine, 600, MT_SAMPLE_PLAIN);
    const mt_live_step live = {"pos", 0, 1};
    const mt_loop loop = {.runs = 5, .lives = &live, .live_count = 1, .stop = "stop"};
    set_options(&s, &(mt_sampler_options){.top_p = 1}, 0);
    memset(s.tokens, 255, (ROOM + 1) * sizeof *s.tokens);
    s.logits[577] = 1;
    s.stops[0] = 576, s.stops[3] = 578;
    run(&s, 0, 3);
    assert_int_equal(word(&s), 0);
    for (int i = 0; i < 5; i++) assert_int_equal(s.tokens[i], i >= 1 && i <= 3 ? 577 : -1);
    OK(mt_session_read(s.session, "token", &token, sizeof token, &error));
    assert_int_equal(token, 577);
    s.stops[MT_SAMPLE_STOPS - 1] = 577;
    OK(mt_session_loop(s.session, &loop, &done, &error));
    assert_int_equal(done, 1);
    assert_int_equal(word(&s), 1);
    /* equal ones: the lowest; not a number never wins */
    s.logits[3] = NAN, s.logits[511] = 1, s.logits[512] = 1;
    OK(mt_session_loop(s.session, &loop, &done, &error));
    assert_int_equal(s.tokens[1], 511);
    assert_int_equal(done, 5);
    for (int t = 0; t < 2; t++) { /* nothing to choose from */
        for (int64_t i = 0; i < s.vocab; i++) s.logits[i] = i % 3 ? NAN : -INFINITY;
        set_options(&s, &(mt_sampler_options){.temperature = (float)t, .top_p = 1}, 0);
        OK(mt_session_loop(s.session, &loop, &done, &error));
        assert_int_equal(done, 1);
        assert_int_equal(word(&s), 2);
        assert_int_equal(s.tokens[1], -1);
    }
    close_stage(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain),        cmocka_unit_test(test_few),
                                       cmocka_unit_test(test_nucleus),      cmocka_unit_test(test_filtered),
                                       cmocka_unit_test(test_large),        cmocka_unit_test(test_sim),
                                       cmocka_unit_test(test_distribution), cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
