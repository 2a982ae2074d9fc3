/* Synthetic models: the known shapes and their sizes, names that are refused, weights that are finite, centred and
 * always the same in every storage format, windows that differ and repeat as they must, and that a small one runs. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/model.h"
#include "model/synthetic.h"
#include "model/synthetic_pool.h"
#include "monotile/llm.h"
#include "tile/tile.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        mt_error check_error = {0};                                                                                    \
        mt_error *const error = &check_error;                                                                          \
        if ((call) != MT_OK) fail_msg("%s: %s: %s", #call, check_error.where, check_error.message);                    \
    } while (0)

/* ---- the known shapes ---- */

static void test_shapes(void **state) {
    (void)state;
    static const struct {
        const char *name, *architecture;
        int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, parameters, bytes, step_bytes;
    } known[] = {
        {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 1235814400, 2471763968, 2471763968},
        {"llama-3.2-1b:bf16", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 1235814400, 2471763968, 2471763968},
        {"llama-3-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 8030261248, 16061054976, 15010381824},
        {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 596049920, 1192230912, 1192230912},
        {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 8190735360, 16382087168, 15137427456},
        {"qwen3-8b:q4_1", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 8190735360, 5120249856, 4731293696},
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        mt_model *m;
        mt_model_info info;
        CHECK(mt_model_synthesize(&m, known[i].name, error));
        mt_model_get_info(m, &info);
        assert_string_equal(info.architecture, known[i].architecture);
        assert_non_null(strstr(info.name, known[i].name));
        const int64_t have[] = {info.layers,
                                info.hidden,
                                info.heads,
                                info.kv_heads,
                                info.head_dim,
                                info.ffn,
                                info.vocab,
                                (int64_t)info.parameters,
                                (int64_t)info.weight_bytes,
                                (int64_t)info.step_bytes},
                      want[] = {known[i].layers,   known[i].hidden,    known[i].heads, known[i].kv_heads,
                                known[i].head_dim, known[i].ffn,       known[i].vocab, known[i].parameters,
                                known[i].bytes,    known[i].step_bytes};
        for (size_t k = 0; k < COUNT_OF(have); k++)
            if (have[k] != want[k])
                fail_msg("%s, figure %zu: %lld, not %lld", known[i].name, k, (long long)have[k], (long long)want[k]);
        char *description = mt_model_text(m);
        assert_non_null(description);
        assert_non_null(strstr(description, "random weights"));
        free(description);
        mt_model_close(m);
    }
}

static void refused(const char *name, mt_status status, const char *word) {
    mt_model *m = (mt_model *)1;
    mt_error error = {0};
    if (mt_model_synthesize(&m, name, &error) != status || error.code != status || !strstr(error.message, word) || m)
        fail_msg("'%s': %s '%s' instead of %s with '%s'", name, mt_status_name(error.code), error.message,
                 mt_status_name(status), word);
}

static void test_refusals(void **state) {
    (void)state;
    refused("", MT_E_ARGUMENT, "llama-3.2-1b, llama-3-8b, qwen3-0.6b, qwen3-8b");
    refused("llama", MT_E_ARGUMENT, "llama-3.2-1b");
    refused("qwen3-8b ", MT_E_ARGUMENT, "no synthetic model");
    refused(":bf16", MT_E_ARGUMENT, "no synthetic model");
    refused("qwen3-0.6b:", MT_E_ARGUMENT, "format ''");
    refused("qwen3-0.6b:bf17", MT_E_ARGUMENT, "format 'bf17'");
    refused("qwen3-0.6b:q4_1:q4_1", MT_E_ARGUMENT, "format 'q4_1:q4_1'");
    refused("qwen3-0.6b:u4", MT_E_UNSUPPORTED, "'u4'");
    refused("qwen3-0.6b:bool", MT_E_UNSUPPORTED, "'bool'");
    refused("qwen3-0.6b:e8m0", MT_E_UNSUPPORTED, "'e8m0'");
    refused("qwen3-0.6b:i1", MT_E_UNSUPPORTED, "'i1'");

    mt_model *m;
    mt_tokenizer *t = (mt_tokenizer *)1;
    mt_template *chat;
    mt_error why = {0};
    CHECK(mt_model_synthesize(&m, "qwen3-0.6b:q8_0", error));
    assert_int_equal(mt_model_tokenizer(m, &t, &why), MT_E_ARGUMENT);
    assert_null(t);
    assert_non_null(strstr(why.message, "no tokenizer"));
    assert_int_equal(mt_model_template(m, &chat, &why), MT_E_ARGUMENT);
    mt_model_close(m);
}

/* ---- the numbers ---- */

static void check_numbers(const tile_format *f) {
    const size_t block = f->bits % 8 ? (size_t)f->bits : (size_t)f->bits / 8,
                 elements = f->bits % 8 ? 8 : (size_t)f->block;
    const size_t count = (size_t)ceil_div(200000, (int64_t)elements), bytes = count * block;
    const double spread = 1 / 32.0;
    uint8_t *data = malloc(bytes), *again = malloc(bytes);
    float *value = malloc(count * elements * sizeof *value);
    double have = 0, same = 0, sum = 0, squares = 0, fourth = 0;
    assert_true(data && again && value);
    memset(again, 0x5a, bytes);
    CHECK(synthetic_fill(f, spread, data, bytes, &have, error));
    CHECK(synthetic_fill(f, spread, again, bytes, &same, error));
    assert_memory_equal(data, again, bytes);
    assert_true(have == same);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < elements; k++)
            if (!tile_format_is_block(f))
                value[i * elements + k] = (float)tile_format_get(f, data, (int64_t)(i * elements + k));
            else if (!k)
                tile_format_decode(f, data + i * block, value + i * elements);
    const double n = (double)(count * elements);
    for (size_t i = 0; i < count * elements; i++) {
        if (!isfinite(value[i])) fail_msg("%s: element %zu is %g", f->name, i, (double)value[i]);
        sum += value[i];
        squares += pow(value[i], 2);
        fourth += pow(value[i], 4);
    }
    const double mean = sum / n, deviation = sqrt(squares / n - mean * mean);
    print_message("%-14s deviation %.4g, said %.4g, mean %.2g of it, kurtosis %.2f\n", f->name, deviation, have,
                  mean / deviation, fourth / n / pow(squares / n, 2));
    assert_true(fabs(mean) < 0.04 * deviation);
    assert_true(fabs(deviation - have) < 0.03 * have);
    assert_true(fourth / n / pow(squares / n, 2) < 12);
    if (f->scalar.kind == TILE_FLOAT && f->scalar.bits >= 16 && strcmp(f->name, "mxfp4") && strcmp(f->name, "nvfp4"))
        assert_true(fabs(deviation - spread) < 0.05 * spread); /* their scales are powers of two, or coarse */
    free(data);
    free(again);
    free(value);
}

static void test_numbers(void **state) {
    (void)state;
    static const char *const scalars[] = {"f64",  "f32", "f16", "bf16", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1",
                                          "e1m1", "i64", "i32", "i16",  "i8",   "i7",   "i5",   "i4",   "i3"};
    const tile_file *library;
    CHECK(tile_library(&library, error));
    for (size_t i = 0; i < tile_file_format_count(library); i++) check_numbers(tile_file_format(library, i));
    for (size_t i = 0; i < COUNT_OF(scalars); i++) check_numbers(tile_format_find(scalars[i]));
}

/* ---- the weights ---- */

static const synthetic_shape tiny[] = {
    {"tiny-llama", "llama", 2, 128, 4, 2, 32, 384, 700, 300, 10000, 1e-5, true},
    {"tiny-qwen3", "qwen3", 3, 96, 3, 1, 64, 160, 517, 300, 1000000, 1e-6, false},
};

static void test_windows(void **state) {
    (void)state;
    mt_model *a, *b;
    mt_model_info info;
    size_t count;
    CHECK(synthetic_model(&a, &tiny[1], "q8_0", error));
    CHECK(synthetic_model(&b, &tiny[1], "q8_0", error));
    const gguf_tensor *tensors = gguf_tensors(a->file, &count), *others = gguf_tensors(b->file, &count);
    assert_int_equal(count, 3 + 3 * 11);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(tensors[i].name, others[i].name);
        assert_int_equal(tensors[i].bytes, others[i].bytes);
        assert_memory_equal(tensors[i].data, others[i].data, tensors[i].bytes);
    }
    mt_model_get_info(a, &info);
    assert_int_equal(info.head_dim, 64);
    mt_model_close(a);
    mt_model_close(b);

    /* A matrix larger than the pool repeats after its size, on a whole block; matrices differ. */
    CHECK(mt_model_synthesize(&a, "llama-3-8b:q6_k", error));
    const gguf_tensor *t = gguf_find_tensor(a->file, "output.weight"),
                      *up = gguf_find_tensor(a->file, "blk.3.ffn_up.weight"),
                      *gate = gguf_find_tensor(a->file, "blk.3.ffn_gate.weight");
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t period = 0;
    for (size_t at = page; at < 70 << 20 && !period; at += page)
        if (!memcmp(t->data, t->data + at, 2 * page)) period = at;
    assert_true(period > 32 << 20);
    assert_int_equal(period % 210, 0);
    for (size_t at = 0; at + period < t->bytes; at += period) {
        const size_t rest = t->bytes - period - at, now = rest < period ? rest : period;
        assert_memory_equal(t->data + at, t->data + at + period, now);
    }
    assert_memory_not_equal(up->data, gate->data, page);
    mt_model_close(a);
}

/* ---- a run ---- */

static int take(void *context, int32_t id, const char *piece, size_t length) {
    int32_t **at = context;
    assert_true(id >= 0);
    assert_string_equal(piece, "");
    assert_int_equal(length, 0);
    *(*at)++ = id;
    return 0;
}

static void run(const synthetic_shape *shape, const char *format) {
    enum { COUNT = 12 };
    static const int32_t prompt[] = {3, 141, 59, 26, 5, 35};
    int32_t first[COUNT], second[COUNT], *const out[] = {first, second};
    mt_machine *machine;
    CHECK(mt_machine_open(&machine, "cpu:2", error));
    for (int turn = 0; turn < 2; turn++) {
        mt_model *m;
        mt_engine *e;
        mt_generate_stats stats;
        int32_t *at = out[turn];
        const mt_engine_options options = {.context = 32};
        mt_generate_options generate = {.count = COUNT};
        mt_sampler_options_default(&generate.sampler);
        CHECK(synthetic_model(&m, shape, format, error));
        CHECK(mt_engine_create(&e, m, machine, &options, error));
        CHECK(mt_engine_generate(e, NULL, prompt, COUNT_OF(prompt), &generate, take, &at, &stats, error));
        assert_ptr_equal(at, out[turn] + COUNT);
        assert_int_equal(stats.tokens, COUNT);
        assert_int_equal(stats.ended_by, -1);
        double squares = 0;
        for (int64_t i = 0; i < shape->vocab; i++) squares += pow(mt_engine_logits(e)[i], 2);
        const double deviation = sqrt(squares / (double)shape->vocab);
        print_message("%s %s: logits have a deviation of %.2f\n", shape->name, format, deviation);
        assert_true(deviation > 1 && deviation < 9);
        mt_engine_destroy(e);
        mt_model_close(m);
    }
    assert_memory_equal(first, second, sizeof first);
    bool varied = false;
    for (int i = 1; i < COUNT; i++) varied |= first[i] != first[0];
    assert_true(varied);
    mt_machine_close(machine);
}

static void test_runs(void **state) {
    (void)state;
    run(&tiny[0], "bf16");
    run(&tiny[0], "q4_1");
    run(&tiny[0], "i4");
    run(&tiny[1], "f16");
    run(&tiny[1], "q8_0");
    mt_model *m;
    mt_error error = {0};
    assert_int_equal(synthetic_model(&m, &tiny[0], "q4_k", &error), MT_E_ARGUMENT); /* 128 is no multiple of 256 */
    assert_non_null(strstr(error.message, "rows of 128"));
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_refusals),
                                              cmocka_unit_test(test_numbers), cmocka_unit_test(test_windows),
                                              cmocka_unit_test(test_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
