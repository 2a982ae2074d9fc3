/* Whole models: logits against a numpy model in float64 (oracle_llama.py), of small
 * random models of every weight type and of odd sizes, and what the engine promises.
 *
 * However a text is fed (whole, in pieces, by single tokens, with other programs in between), on however many workers,
 * its logits must be the same bits: no row's result depends on who shares its run. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include "model_support.h"

#define BOUND      2e-3 /* relative, l2, at every position */
#define SHARP      2e-5 /* what float32 arithmetic needs: some 5 times what is seen */
#define SHARP_HALF 5e-4 /* with a cache of f16: the reference rounds the same numbers, save those between two */
#define FUSION     1e-5 /* fused against unfused */

enum { LENGTH = 130 }; /* ids for each small model: two whole runs of 64 rows and a bit */

/* ---- small models ---- */

typedef struct small_model {
    const char *name;
    const char *arguments; /* of make_model.py; its defaults: hidden 72, 3 heads, ffn 200, vocab 515, 2 layers */
    bool half;             /* test it with a cache of f16, too */
    logits expected, expected_half;
} small_model;

// clang-format off
static small_model small[] = {
    {.name = "f32", .arguments = "--kv-heads 1", .half = true},
    {.name = "f32_all", .arguments = "--bias --rope-base 500000 --rope-freqs --gguf-version 2"},
    {.name = "head_20", .arguments = "--head-dim 20 --kv-heads 1 --tied --rope-linear 4 --layers 3"},
    {.name = "f16", .arguments = "--type f16 --kv-heads 1 --tied"},
    {.name = "bf16", .arguments = "--type bf16 --bias --split 3"},
    {.name = "q4_0", .arguments = "--type q4_0 --hidden 96 --ffn 224 --kv-heads 1"},
    {.name = "q4_1", .arguments = "--type q4_1 --hidden 96 --ffn 224 --tied --bias", .half = true},
    {.name = "q5_0",
     .arguments = "--type q5_0 --hidden 96 --ffn 224 --kv-heads 1 --rope-freqs --gguf-version 2 --split 2"},
    {.name = "q5_1", .arguments = "--type q5_1 --hidden 160 --heads 5 --ffn 96 --embedding-type q8_0"},
    {.name = "q8_0", .arguments = "--type q8_0 --hidden 96 --ffn 200 --head-dim 14 --kv-heads 3 --tied"},
    {.name = "q2_k", .arguments = "--type q2_k --hidden 256 --heads 4 --kv-heads 2 --ffn 512 --tied"},
    {.name = "q3_k", .arguments = "--type q3_k --hidden 256 --heads 4 --kv-heads 1 --ffn 256"},
    {.name = "q4_k", .arguments = "--type q4_k --hidden 256 --heads 8 --kv-heads 4 --ffn 768 --embedding-type q6_k"},
    {.name = "q5_k",
     .arguments = "--type q5_k --hidden 512 --heads 7 --kv-heads 1 --head-dim 26 --ffn 256 --layers 1", .half = true},
    {.name = "q6_k", .arguments = "--type q6_k --hidden 256 --heads 2 --ffn 256 --embedding-type f16"},
    {.name = "mxfp4", .arguments = "--type mxfp4 --hidden 96 --ffn 224 --kv-heads 1 --embedding-type bf16"},
    {.name = "qwen3", .arguments = "--arch qwen3 --head-dim 32 --kv-heads 1 --rope-base 1000000", .half = true},
    {.name = "qwen3_bf16", .arguments = "--arch qwen3 --type bf16 --head-dim 18 --layers 3 --tied"},
    {.name = "qwen3_q4_1", .arguments = "--arch qwen3 --type q4_1 --hidden 96 --head-dim 32 --kv-heads 1 --ffn 224 --tied"},
    {.name = "no_tokenizer", .arguments = "--vocab 7 --hidden 10 --heads 1 --ffn 6 --layers 1 --no-tokenizer"},
};
enum { MODELS = COUNT_OF(small), F32 = 0, Q4_1 = 6, NO_TOKENIZER = MODELS - 1 };

/* What must be refused: by the model, its tokenizer, or the engine, with words that name it. */
typedef struct refusal {
    const char *name, *arguments;
    mt_status status;
    const char *word;
} refusal;

static const refusal refusals[] = {
    {"experts", "set llama.expert_count=4", MT_E_UNSUPPORTED, "experts"},
    {"window", "set llama.attention.sliding_window=64", MT_E_UNSUPPORTED, "sliding-window"},
    {"yarn", "set llama.rope.scaling.type=yarn llama.rope.scaling.factor=4.0", MT_E_UNSUPPORTED, "'yarn'"},
    {"partial_rope", "--rope-dim 12", MT_E_UNSUPPORTED, "rotary embedding of a part"},
    {"value_length", "set llama.attention.key_length=24 llama.attention.value_length=12",
     MT_E_UNSUPPORTED, "values of another length"},
    {"mamba", "set general.architecture=mamba", MT_E_UNSUPPORTED, "'mamba'"},
    {"scale", "set llama.attention.scale=0.5", MT_E_UNSUPPORTED, "llama.attention.scale"},
    {"unread", "tensor blk.0.attn_q_norm.weight", MT_E_UNSUPPORTED, "'blk.0.attn_q_norm.weight'"},
    {"qwen3_bias", "--arch qwen3 --bias", MT_E_UNSUPPORTED, "'blk.0.attn_q.bias'"},
    {"qwen3_divisors", "--arch qwen3 --rope-freqs", MT_E_UNSUPPORTED, "'rope_freqs.weight'"},
    {"qwen3_scale", "--arch qwen3 set qwen3.attention.scale=0.5", MT_E_UNSUPPORTED, "qwen3.attention.scale"},
    {"qwen3_heads", "--arch qwen3 set qwen3.attention.key_length=23", MT_E_FORMAT, "a head of 23"},
    {"one_layer_more", "tensor blk.2.ffn_norm.weight", MT_E_UNSUPPORTED, "'blk.2.ffn_norm.weight'"},
    {"spm", "set tokenizer.ggml.model=llama", MT_E_UNSUPPORTED, "\"llama\""},
    {"pre", "set tokenizer.ggml.pre=zebra", MT_E_UNSUPPORTED, "\"zebra\""},
    {"template", "set tokenizer.chat_template={%macro%}", MT_E_UNSUPPORTED, "macro"},
    {"no_text", "--no-tokenizer", MT_E_FORMAT, "tokenizer.ggml.model"},
    {"one_layer_less", "set llama.block_count=3", MT_E_FORMAT, "'blk.2.attn_norm.weight' is missing"},
    {"shape", "set llama.feed_forward_length=201",
     MT_E_FORMAT, "'blk.0.ffn_gate.weight' is [200, 72]; the metadata asks for [201, 72]"},
    {"heads", "set llama.attention.head_count_kv=2", MT_E_FORMAT, "3 heads, 2 key-value heads"},
    {"kind", "set llama.block_count=two", MT_E_FORMAT, "llama.block_count"},
    {"epsilon", "set llama.attention.layer_norm_rms_epsilon=nan", MT_E_FORMAT, "epsilon"},
    {"base", "set llama.rope.freq_base=0.0", MT_E_FORMAT, "rotary base"},
};
// clang-format on

static bool have_small;

static void model_path(const char *name, const char *arguments, char path[500]) {
    const char *split = strstr(arguments, "--split ");
    if (split)
        snprintf(path, 500, "%s/%s-00001-of-%05d.gguf", folder_path, name, atoi(split + 8));
    else
        snprintf(path, 500, "%s/%s.gguf", folder_path, name);
}

static void make_ids(const small_model *m, int32_t ids[LENGTH]) {
    const int vocab = m == &small[NO_TOKENIZER] ? 7 : 515;
    for (int i = 0; i < LENGTH; i++) ids[i] = i == 3 ? vocab - 1 : (i * i * 31 + i * 7) % vocab;
}

/* Opens a small model's file and a machine. */
typedef struct stage {
    mt_model *model;
    mt_machine *machine;
    int32_t ids[LENGTH];
} stage;

static void stage_open(stage *s, const small_model *m) {
    char path[500];
    if (!have_small) skip();
    model_path(m->name, m->arguments, path);
    make_ids(m, s->ids);
    CHECK(mt_model_open(&s->model, path, error));
    CHECK(mt_machine_open(&s->machine, "cpu:2", error));
}

static void stage_close(stage *s) {
    mt_machine_close(s->machine);
    mt_model_close(s->model);
}

static mt_engine *engine(const stage *s, mt_engine_options options) {
    mt_engine *e;
    if (!options.context) options.context = LENGTH;
    CHECK(mt_engine_create(&e, s->model, s->machine, &options, error));
    return e;
}

/* Any length and any cut of the text gives the bits that the whole text gives. */
static void assert_cuts(mt_engine *e, const int32_t *ids, const logits *whole) {
    static const size_t lengths[] = {1, 2, 63, 64, 65};
    logits l = logits_new(LENGTH, whole->vocab);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        feed(e, ids, lengths[i], lengths[i], &l);
        assert_same_bits(&l, whole, lengths[i], "a shorter text");
    }
    feed(e, ids, LENGTH, 7, &l);
    assert_same_bits(&l, whole, LENGTH, "chunks of 7");
    feed(e, ids, LENGTH, 1, &l);
    assert_same_bits(&l, whole, LENGTH, "one by one");
    free(l.row);
}

static void test_small(void **state) {
    const small_model *m = *state;
    stage s;
    stage_open(&s, m);
    logits whole = logits_new(LENGTH, m->expected.vocab);
    mt_engine *e = engine(&s, (mt_engine_options){.all_logits = 1});
    feed(e, s.ids, LENGTH, LENGTH, &whole);
    assert_close(&whole, &m->expected, LENGTH, SHARP, m->name);
    assert_cuts(e, s.ids, &whole);
    mt_engine_destroy(e);
    if (m->half) {
        e = engine(&s, (mt_engine_options){.all_logits = 1, .cache = "f16"});
        feed(e, s.ids, LENGTH, LENGTH, &whole);
        assert_close(&whole, &m->expected_half, LENGTH, SHARP_HALF, "cache of f16, from the reference with such a one");
        print_message("cache of f16, from the exact reference: %.1e\n", distance(&whole, &m->expected, LENGTH));
        assert_cuts(e, s.ids, &whole);
        mt_engine_destroy(e);
    }
    free(whole.row);
    stage_close(&s);
}

/* Every machine, placement and number of rows gives the same bits; so does an engine that keeps only the last row of
 * each run. */
static void test_machines(void **state) {
    (void)state;
    static const struct {
        const char *machine;
        mt_engine_options options;
    } others[] = {
        {"cpu:1", {.rows = 0}},
        {"cpu:7", {.rows = 0}},
        {"cpu:1", {.placement = MT_PLACE_QUEUE}},
        {"cpu:2", {.placement = MT_PLACE_QUEUE}},
        {"cpu:7", {.placement = MT_PLACE_QUEUE}},
        {"cpu:2", {.rows = 1}},
        {"cpu:2", {.rows = 2, .context = 400}},
        {"cpu:2", {.rows = LENGTH}},
        {"cpu:2", {.rows = 1000}}, /* more than the context has */
    };
    stage s;
    stage_open(&s, &small[Q4_1]);
    logits whole = logits_new(LENGTH, 515), l = logits_new(LENGTH, 515);
    mt_engine *e = engine(&s, (mt_engine_options){.all_logits = 1});
    feed(e, s.ids, LENGTH, LENGTH, &whole);
    const size_t fused = mt_program_instruction_count(mt_engine_program(e, 1));
    mt_engine_destroy(e);
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        mt_engine_options options = others[i].options;
        stage other = s;
        options.all_logits = 1;
        CHECK(mt_machine_open(&other.machine, others[i].machine, error));
        e = engine(&other, options);
        for (int repeat = 0; repeat < 2; repeat++) {
            memset(l.row, 0, LENGTH * l.vocab * sizeof *l.row);
            feed(e, s.ids, LENGTH, repeat ? 50 : LENGTH, &l);
            assert_same_bits(&l, &whole, LENGTH, others[i].machine);
        }
        mt_engine_destroy(e);
        mt_machine_close(other.machine);
    }
    for (int placement = MT_PLACE_STATIC; placement <= MT_PLACE_QUEUE;
         placement++) { /* often: a wait too few is a matter of luck */
        stage other = s;
        CHECK(mt_machine_open(&other.machine, "cpu:7", error));
        e = engine(&other, (mt_engine_options){.placement = placement});
        for (size_t k = 0; k < 200; k++) {
            if (k % 5 == 0) CHECK(mt_engine_rewind(e, 0, error));
            CHECK(mt_engine_feed(e, s.ids + k % 5 * 26, 26, NULL, error));
            assert_memory_equal(mt_engine_logits(e), whole.row + (k % 5 * 26 + 25) * 515, 515 * sizeof(float));
        }
        mt_engine_destroy(e);
        mt_machine_close(other.machine);
    }
    e = engine(&s, (mt_engine_options){.no_fusion = 1, .all_logits = 1});
    assert_true(mt_program_instruction_count(mt_engine_program(e, 1)) > fused);
    feed(e, s.ids, LENGTH, LENGTH, &l);
    assert_close(&l, &whole, LENGTH, FUSION, "unfused from fused");
    mt_engine_destroy(e);
    free(whole.row);
    free(l.row);
    stage_close(&s);
}

/* The context full to the last position, what goes past it, rewinding, and what the cache holds of other texts. */
static void test_context(void **state) {
    (void)state;
    stage s;
    mt_error why = {0};
    stage_open(&s, &small[F32]);
    logits whole = logits_new(LENGTH, 515), l = logits_new(LENGTH, 515);
    mt_engine *e = engine(&s, (mt_engine_options){.all_logits = 1});
    assert_int_equal(mt_engine_context(e), LENGTH);
    assert_int_equal(mt_engine_position(e), 0);
    assert_null(mt_engine_logits(e));
    feed(e, s.ids, LENGTH, LENGTH, &whole);
    assert_close(&whole, &small[F32].expected, LENGTH, SHARP, "a full context");

    assert_refused(mt_engine_feed(e, s.ids, 1, NULL, &why), &why, MT_E_LIMIT, "130 positions, 130 of them taken");
    CHECK(mt_engine_feed(e, NULL, 0, NULL, error));
    assert_int_equal(mt_engine_position(e), LENGTH);
    assert_memory_equal(mt_engine_logits(e), whole.row + (LENGTH - 1) * 515, 515 * sizeof(float));
    assert_refused(mt_engine_rewind(e, LENGTH + 1, &why), &why, MT_E_ARGUMENT, "131");
    assert_refused(mt_engine_rewind(e, -1, &why), &why, MT_E_ARGUMENT, "-1");
    CHECK(mt_engine_rewind(e, LENGTH, error)); /* where it is: nothing changes */
    assert_non_null(mt_engine_logits(e));

    CHECK(mt_engine_rewind(e, 60, error));
    assert_null(mt_engine_logits(e));
    assert_refused(mt_engine_feed(e, s.ids, LENGTH - 59, NULL, &why), &why, MT_E_LIMIT, "no room for 71");
    assert_int_equal(mt_engine_position(e), 60);
    CHECK(mt_engine_feed(e, s.ids + 60, LENGTH - 60, l.row + 60 * 515, error));
    memcpy(l.row, whole.row, 60 * 515 * sizeof(float));
    assert_same_bits(&l, &whole, LENGTH, "after going back to 60");

    static const int32_t bad[][2] = {{-1, 0}, {515, 0}, {0, -1}, {0, 515}, {INT32_MAX, INT32_MIN}};
    CHECK(mt_engine_rewind(e, 0, error));
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_refused(mt_engine_feed(e, bad[i], 2, NULL, &why), &why, MT_E_ARGUMENT, "not in the vocabulary of 515");
    assert_int_equal(mt_engine_position(e), 0);

    int32_t other[LENGTH];
    for (int i = 0; i < LENGTH; i++) other[i] = s.ids[LENGTH - 1 - i];
    feed(e, other, LENGTH, 50, &l);
    feed(e, s.ids, LENGTH, LENGTH, &l);
    assert_same_bits(&l, &whole, LENGTH, "after another text");

    for (int layer = 0; layer < 2; layer++)
        for (int k = 0; k < 2; k++) {
            char name[32];
            void *memory;
            size_t bytes;
            snprintf(name, sizeof name, "cache.%c.%d", "kv"[k], layer);
            CHECK(mt_session_memory(mt_engine_session(e, 0), name, &memory, &bytes, error));
            assert_int_equal(bytes, LENGTH * 24 * sizeof(float));
            memset(memory, 0xff, bytes); /* NaN */
        }
    feed(e, s.ids, LENGTH, 7, &l);
    assert_same_bits(&l, &whole, LENGTH, "over a cache of NaN");
    feed(e, s.ids, LENGTH, 1, &l);
    mt_engine_destroy(e);

    e = engine(&s, (mt_engine_options){.context = 1});
    CHECK(mt_engine_feed(e, s.ids, 1, NULL, error));
    assert_memory_equal(mt_engine_logits(e), whole.row, 515 * sizeof(float));
    assert_refused(mt_engine_feed(e, s.ids, 1, NULL, &why), &why, MT_E_LIMIT, "1 positions");
    assert_refused(mt_engine_feed(e, NULL, SIZE_MAX, NULL, &why), &why, MT_E_LIMIT, "no room");
    CHECK(mt_engine_rewind(e, 0, error));
    assert_refused(mt_engine_feed(e, s.ids, 1, l.row, &why), &why, MT_E_ARGUMENT, "all_logits");
    mt_engine_destroy(e);
    free(whole.row);
    free(l.row);
    stage_close(&s);
}

static void test_options(void **state) {
    (void)state;
    static const struct {
        mt_engine_options options;
        const char *word;
    } wrong[] = {{{.context = -1}, "context"}, {{.context = INT32_MAX}, "context"}, {{.rows = -1}, "rows"},
                 {{.cache = "f17"}, "'f17'"},  {{.cache = "q8_0"}, "'q8_0'"},       {{.cache = "i8"}, "'i8'"},
                 {{.products = "f17"}, "f17"}};
    stage s;
    mt_error why = {0};
    mt_engine *e;
    stage_open(&s, &small[F32]);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_refused(mt_engine_create(&e, s.model, s.machine, &wrong[i].options, &why), &why, MT_E_ARGUMENT,
                       wrong[i].word);
        assert_null(e);
    }
    CHECK(mt_engine_create(&e, s.model, s.machine, NULL, error));
    assert_int_equal(mt_engine_context(e), 256); /* the model's */
    mt_engine_destroy(e);
    mt_engine_destroy(NULL);
    mt_model_close(NULL);
    stage_close(&s);
}

/* The files that should be of another version or in parts are, and what the model says about itself is so. */
static void test_files(void **state) {
    (void)state;
    static const struct {
        int index;
        const char *says;
    } files[] = {{0, "GGUF version 3, 1 file\n"},
                 {1, "GGUF version 2, 1 file\n"},
                 {4, "GGUF version 3, 3 files\n"},
                 {7, "GGUF version 2, 2 files\n"}};
    stage s;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        stage_open(&s, &small[files[i].index]);
        char *says = mt_model_text(s.model);
        assert_non_null(says);
        assert_memory_equal(says, files[i].says, strlen(files[i].says));
        free(says);
        stage_close(&s);
    }
    mt_model_info info;
    stage_open(&s, &small[2]);
    mt_model_get_info(s.model, &info);
    assert_string_equal(info.architecture, "llama");
    assert_string_equal(info.name, "random llama");
    assert_true(info.layers == 3 && info.hidden == 72 && info.heads == 3 && info.kv_heads == 1 && info.head_dim == 20 &&
                info.ffn == 200 && info.vocab == 515 && info.context == 256);
    const double parameters = 515 * 72 + 72 + 3 * (2 * 72 + 72 * (60 + 20 + 20 + 60) + 3 * 72 * 200);
    assert_true(info.parameters == parameters && info.weight_bytes == 4 * (size_t)parameters &&
                info.step_bytes == info.weight_bytes);
    stage_close(&s);
}

static void test_refusals(void **state) {
    (void)state;
    if (!have_small) skip();
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        const refusal *r = &refusals[i];
        char path[500];
        mt_error why = {0};
        mt_model *model;
        mt_machine *machine = NULL;
        mt_engine *e = NULL;
        mt_tokenizer *tokenizer;
        mt_template *template = NULL;
        model_path(r->name, r->arguments, path);
        mt_status status = mt_model_open(&model, path, &why);
        if (status == MT_OK) status = mt_model_tokenizer(model, &tokenizer, &why);
        if (status == MT_OK) status = mt_model_template(model, &template, &why);
        if (status == MT_OK) status = mt_machine_open(&machine, "cpu:1", &why);
        if (status == MT_OK) status = mt_engine_create(&e, model, machine, NULL, &why);
        if (status == MT_OK) fail_msg("%s was not refused", r->name);
        assert_refused(status, &why, r->status, r->word);
        mt_engine_destroy(e);
        mt_machine_close(machine);
        mt_template_free(template);
        mt_model_close(model);
    }
}

/* ---- all ---- */

static int setup(void **state) {
    (void)state;
    text jobs = {0};
    oracle o;
    if (!temporary_make(folder_path)) return -1;
    for (size_t i = 0; i < COUNT_OF(refusals); i++)
        text_printf(&jobs, "make %s/%s.gguf %s\n", folder_path, refusals[i].name, refusals[i].arguments);
    for (size_t i = 0; i < MODELS; i++) {
        char path[500];
        int32_t ids[LENGTH];
        make_ids(&small[i], ids);
        model_path(small[i].name, small[i].arguments, path);
        text_printf(&jobs, "make %s/%s.gguf %s\n", folder_path, small[i].name, small[i].arguments);
        for (int half = 0; half <= small[i].half; half++) {
            text_printf(&jobs, "%s %s", half ? "half" : "logits", path);
            add_ids(&jobs, ids, LENGTH);
        }
    }
    have_small = run_jobs(&o, &jobs);
    for (size_t i = 0; i < MODELS && have_small; i++) {
        small[i].expected = read_logits(&o, LENGTH);
        if (small[i].half) small[i].expected_half = read_logits(&o, LENGTH);
    }
    if (have_small) text_free(&o.bytes);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        free(small[i].expected.row);
        free(small[i].expected_half.row);
    }
    return temporary_remove(folder_path);
}

int main(void) {
    static const struct CMUnitTest others[] = {cmocka_unit_test(test_machines), cmocka_unit_test(test_context),
                                               cmocka_unit_test(test_options), cmocka_unit_test(test_files),
                                               cmocka_unit_test(test_refusals)};
    struct CMUnitTest tests[MODELS + COUNT_OF(others)];
    for (size_t i = 0; i < MODELS; i++)
        tests[i] = (struct CMUnitTest){small[i].name, test_small, NULL, NULL, &small[i]};
    memcpy(tests + MODELS, others, sizeof others);
    return cmocka_run_group_tests(tests, setup, teardown);
}
