/* Generating: tokens, texts, counts and ends, whether the host chooses the tokens or the machine. On a small random
 * model. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include "generate_support.h"

enum { LENGTH = 130 };

static bool have_model;

typedef struct stage {
    mt_model *model;
    mt_machine *machine;
    int32_t ids[LENGTH];
} stage;

static void model_path(char path[500]) { snprintf(path, 500, "%s/model.gguf", folder_path); }

static void stage_open(stage *s) {
    char path[500];
    if (!have_model) skip();
    model_path(path);
    for (int i = 0; i < LENGTH; i++) s->ids[i] = i == 3 ? 514 : (i * i * 31 + i * 7) % 515;
    CHECK(mt_model_open(&s->model, path, error));
    CHECK(mt_machine_open(&s->machine, "cpu:2", error));
}

static void stage_close(stage *s) {
    mt_machine_close(s->machine);
    mt_model_close(s->model);
}

static mt_engine *engine(const stage *s, mt_engine_options options) {
    mt_engine *e;
    options.context = LENGTH;
    CHECK(mt_engine_create(&e, s->model, s->machine, &options, error));
    return e;
}

static int32_t largest(const float *row, size_t count) {
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (row[i] > row[best]) best = i;
    return (int32_t)best;
}

/* The host chooses tokens, or the machine does. */
static void generate_greedily(stage *s, mt_tokenizer *t, mt_sampler_place sampler) {
    enum { PROMPT = 5 };
    mt_error why = {0};
    mt_engine *e = engine(s, (mt_engine_options){.rows = 4, .sampler = sampler});
    int32_t expected[LENGTH];
    CHECK(mt_engine_feed(e, s->ids, PROMPT, NULL, error));
    for (int i = 0; i <= LENGTH - PROMPT; i++) {
        expected[i] = largest(mt_engine_logits(e), 515);
        if (i < LENGTH - PROMPT) CHECK(mt_engine_feed(e, expected + i, 1, NULL, error));
    }
    static const struct {
        int count, stop, expected;
    } cases[] = {{1, 0, 1}, {20, 0, 20}, {20, 3, 3}, {0, 0, LENGTH - PROMPT + 1}, {300, 0, LENGTH - PROMPT + 1}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        generated g = {.stop = cases[i].stop};
        mt_generate_options options = {.count = cases[i].count, .ignore_end = 1};
        mt_generate_stats stats;
        mt_sampler_options_default(&options.sampler);
        CHECK(mt_engine_rewind(e, 0, error));
        CHECK(mt_engine_generate(e, t, s->ids, PROMPT, &options, take, &g, &stats, error));
        assert_int_equal(g.count, cases[i].expected);
        assert_memory_equal(g.ids, expected, (size_t)g.count * sizeof *expected);
        assert_int_equal(stats.tokens, g.count);
        assert_int_equal(stats.prompt_tokens, PROMPT);
        assert_int_equal(stats.ended_by, -1);
        assert_true(stats.first_token_seconds >= stats.prompt_seconds && stats.prompt_seconds > 0 && stats.seconds > 0);
        assert_int_equal(mt_engine_position(e), PROMPT + g.count - 1); /* the last one is not fed */
        if (mt_engine_logits(e)) assert_int_equal(largest(mt_engine_logits(e), 515), expected[g.count - 1]);
        text_free(&g.said);
    }
    mt_generate_options options = {.count = 5};
    mt_sampler_options_default(&options.sampler);
    CHECK(mt_engine_rewind(e, 0, error));
    assert_refused(mt_engine_generate(e, t, NULL, 0, &options, NULL, NULL, NULL, &why), &why, MT_E_ARGUMENT,
                   "prompt is empty");
    options.sampler.temperature = -1;
    assert_refused(mt_engine_generate(e, t, s->ids, PROMPT, &options, NULL, NULL, NULL, &why), &why, MT_E_ARGUMENT,
                   "temperature");
    mt_engine_destroy(e);
}

static void test_generate(void **state) {
    (void)state;
    stage s;
    mt_tokenizer *t, *again;
    stage_open(&s);
    CHECK(mt_model_tokenizer(s.model, &t, error));
    CHECK(mt_model_tokenizer(s.model, &again, error));
    assert_ptr_equal(t, again);
    generate_greedily(&s, t, MT_SAMPLER_HOST);
    generate_greedily(&s, t, MT_SAMPLER_MACHINE);
    stage_close(&s);
}

/* The machine chooses the host's tokens, and ends where the host does. */
static void test_machine_samples(void **state) {
    (void)state;
    enum { PROMPT = 3 };
    static const mt_sampler_options options[] = {
        {.top_p = 1},
        {.temperature = 1, .top_p = 1, .seed = 3},
        {.temperature = 3, .top_p = 1, .min_p = 0.2f, .seed = 0xfedcba9876543210u},
        {.temperature = 2, .top_p = 0.8f, .seed = 5},
        {.temperature = 2, .top_p = 1, .top_k = 40, .seed = 6},
        {.temperature = 5, .top_p = 0.9f, .top_k = 100, .min_p = 0.01f, .seed = 1u << 31}};
    stage s;
    mt_tokenizer *t;
    stage_open(&s);
    CHECK(mt_model_tokenizer(s.model, &t, error));
    mt_engine *const engines[] = {engine(&s, (mt_engine_options){.rows = 4}),
                                  engine(&s, (mt_engine_options){.rows = 4, .sampler = MT_SAMPLER_MACHINE})};
    int ends = 0;
    for (size_t i = 0; i < 3 * COUNT_OF(options); i++) {
        generated g[2] = {{.count = 0}, {.count = 0}};
        mt_generate_options o = {.sampler = options[i % COUNT_OF(options)], .ignore_end = i < COUNT_OF(options)};
        mt_generate_stats stats[2];
        o.sampler.seed += i;
        for (int k = 0; k < 2; k++) {
            CHECK(mt_engine_rewind(engines[k], 0, error));
            CHECK(mt_engine_generate(engines[k], t, s.ids, PROMPT, &o, take_any, &g[k], &stats[k], error));
        }
        assert_int_equal(g[0].count, g[1].count);
        assert_memory_equal(g[0].ids, g[1].ids, (size_t)g[0].count * sizeof *g[0].ids);
        assert_int_equal(g[0].said.length, g[1].said.length);
        if (g[0].said.length) assert_memory_equal(g[0].said.data, g[1].said.data, g[0].said.length);
        assert_int_equal(stats[0].ended_by, stats[1].ended_by);
        assert_int_equal(mt_engine_position(engines[0]), mt_engine_position(engines[1]));
        assert_memory_equal(mt_engine_logits(engines[0]), mt_engine_logits(engines[1]), 515 * sizeof(float));
        ends += stats[0].ended_by >= 0;
        text_free(&g[0].said);
        text_free(&g[1].said);
    }
    assert_true(ends > 0);
    mt_engine_destroy(engines[0]);
    mt_engine_destroy(engines[1]);
    stage_close(&s);
}

/* What a way to choose tokens needs is compiled when it is asked for, and options are checked then. */
static void test_prepare(void **state) {
    (void)state;
    static const mt_sampler_options options[] = {{.top_p = 1},
                                                 {.temperature = 1, .top_p = 1, .top_k = 64},
                                                 {.temperature = 1, .top_p = 0.5f},
                                                 {.temperature = 1, .top_p = 1, .top_k = 65}};
    stage s;
    mt_error why = {0};
    stage_open(&s);
    for (int sampler = MT_SAMPLER_AUTO; sampler <= MT_SAMPLER_MACHINE; sampler++) {
        mt_engine *e = engine(&s, (mt_engine_options){.rows = 1, .sampler = (mt_sampler_place)sampler});
        for (size_t i = 0; i < 2 * COUNT_OF(options); i++)
            CHECK(mt_engine_prepare(e, &options[i % COUNT_OF(options)], error));
        CHECK(mt_engine_prepare(e, NULL, error));
        assert_refused(mt_engine_prepare(e, &(mt_sampler_options){.temperature = 1, .top_p = 2}, &why), &why,
                       MT_E_ARGUMENT, "top_p");
        /* the step's program ends with the choice of a token only where the machine chooses */
        const mt_program *p = mt_engine_program(e, 0);
        bool chooses = false;
        for (size_t i = 0; i < mt_program_tensor_count(p); i++) {
            mt_tensor_info info;
            CHECK(mt_program_tensor(p, i, &info, error));
            chooses |= !strcmp(info.name, "tokens");
        }
        assert_int_equal(chooses, sampler == MT_SAMPLER_MACHINE);
        mt_engine_destroy(e);
    }
    stage_close(&s);
}

static int setup(void **state) {
    (void)state;
    text jobs = {0};
    oracle o;
    char path[500];
    if (!temporary_make(folder_path)) return -1;
    model_path(path);
    text_printf(&jobs, "make %s --kv-heads 1\n", path);
    have_model = run_jobs(&o, &jobs);
    if (have_model) text_free(&o.bytes);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return temporary_remove(folder_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_generate), cmocka_unit_test(test_machine_samples),
                                       cmocka_unit_test(test_prepare)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
