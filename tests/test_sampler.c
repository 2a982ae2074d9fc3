/* The sampler: known answers of the generator, exp against the C library's, every choice against a plain implementation
 * that sorts, frequencies against probabilities, and logits that are no numbers. */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "llm/sampler.h"

static mt_sampler *make(mt_sampler_options o) {
    mt_sampler *s = NULL;
    mt_error error = {0};
    if (mt_sampler_new(&s, &o, &error)) fail_msg("%s", error.message);
    return s;
}

static int32_t sample(mt_sampler *s, const float *logits, size_t count) {
    int32_t token = -1;
    mt_error error = {0};
    if (mt_sampler_sample(s, logits, count, &token, &error)) fail_msg("%s", error.message);
    assert_true(token >= 0 && (size_t)token < count);
    return token;
}

/* The vectors that Random123 gives for philox4x32, 10 rounds. */
static void test_philox(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        uint32_t out[4];
        sampler_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    assert_true(sampler_uniform(0, 0) == ldexp(0x6627e8d5, -32) + ldexp(0xe169c58d >> 11, -53));
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        const double u = sampler_uniform(42, i << 31); /* both words of the counter */
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005);
}

static void test_exp(void **state) {
    (void)state;
    assert_true(sampler_exp(0) == 1);
    assert_true(sampler_exp(-0.0) == 1);
    assert_true(sampler_exp(-701) == 0);
    assert_true(sampler_exp(-INFINITY) == 0);
    assert_true(sampler_exp(-700) > 0);
    double worst = 0;
    for (int i = 0; i <= 1000000; i++) {
        const double x = -700.0 * i / 1000000 * (i % 3 ? 1 : i / 1e6), wanted = exp(x);
        worst = fmax(worst, fabs(sampler_exp(x) - wanted) / wanted);
    }
    assert_true(worst < 3 * 0x1p-53 * 2);
    double values[4096]; /* the same bits for every compiler and processor, with fused multiply-add or without */
    for (int i = 0; i < 4096; i++) values[i] = sampler_exp(-i * 0x1.5p-4);
    assert_true(hash_u64(values, sizeof values) == 0xd45aa7a394c347b8u);
}

static void test_greedy(void **state) {
    (void)state;
    mt_sampler *s = NULL;
    assert_int_equal(mt_sampler_new(&s, NULL, NULL), MT_OK);
    assert_int_equal(sample(s, (const float[]){1, 3, 3, 2}, 4), 1);
    assert_int_equal(sample(s, (const float[]){-INFINITY, NAN, -5, NAN}, 4), 2);
    assert_int_equal(sample(s, (const float[]){1, NAN, INFINITY, INFINITY, 9}, 5), 2);
    assert_int_equal(sample(s, (const float[]){-3e38f}, 1), 0);
    assert_int_equal(mt_sampler_step(s), 4);
    int32_t token = 77;
    mt_error error = {0};
    assert_int_equal(mt_sampler_sample(s, (const float[]){NAN, -INFINITY}, 2, &token, &error), MT_E_ARGUMENT);
    assert_non_null(strstr(error.message, "None of 2 logits"));
    assert_int_equal(mt_sampler_sample(s, NULL, 0, &token, NULL), MT_E_ARGUMENT);
    assert_int_equal(token, 77);
    assert_int_equal(mt_sampler_step(s), 4); /* a failure is no step */
    mt_sampler_free(s);
    mt_sampler_free(NULL);
}

static void test_odd_logits(void **state) {
    (void)state;
    mt_sampler *s = make((mt_sampler_options){.temperature = 1, .top_p = 0.9f, .top_k = 3, .seed = 5});
    int seen = 0;
    for (int i = 0; i < 200; i++) {
        const int32_t t = sample(s, (const float[]){NAN, INFINITY, 3, -INFINITY, INFINITY, 3e38f}, 6);
        assert_true(t == 1 || t == 4);
        seen |= 1 << t;
        assert_int_equal(sample(s, (const float[]){NAN, -INFINITY, -1e30f, NAN}, 4), 2);
        assert_int_equal(sample(s, (const float[]){3e38f, -3e38f}, 2), 0);
    }
    assert_int_equal(seen, 1 << 1 | 1 << 4);
    mt_sampler_free(s);
    s = make((mt_sampler_options){.temperature = 1e-30f, .top_p = 1});
    for (int i = 0; i < 50; i++) assert_int_equal(sample(s, (const float[]){1, 2, 3, 2.9999f}, 4), 2);
    mt_sampler_free(s);
}

static void test_options(void **state) {
    (void)state;
    static const struct {
        mt_sampler_options options;
        const char *part;
    } bad[] = {{{.temperature = -1, .top_p = 1}, "temperature -1"},
               {{.temperature = NAN, .top_p = 1}, "temperature"},
               {{.temperature = INFINITY, .top_p = 1}, "temperature"},
               {{.top_p = 0}, "top_p 0"},
               {{.top_p = 1.5f}, "top_p 1.5"},
               {{.top_p = NAN}, "top_p"},
               {{.top_p = 1, .min_p = -0.5f}, "min_p -0.5"},
               {{.top_p = 1, .min_p = NAN}, "min_p"},
               {{.top_p = 1, .top_k = -1}, "top_k -1"}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        mt_sampler *s = NULL;
        mt_error error = {0};
        assert_int_equal(mt_sampler_new(&s, &bad[i].options, &error), MT_E_ARGUMENT);
        assert_null(s);
        if (!strstr(error.message, bad[i].part)) fail_msg("\"%s\" does not say \"%s\"", error.message, bad[i].part);
    }
}

/* The plain way: weights, sorted; what is left is marked; drawn in the order of the indices. */
typedef struct plain {
    double weight;
    int index;
} plain;

static int compare_plain(const void *a, const void *b) {
    const plain *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight ? 1 : -1) : (x->index > y->index) - (x->index < y->index);
}

static int32_t plain_sample(const mt_sampler_options *o, uint64_t step, const float *logits, size_t count) {
    plain all[2000];
    double weight[2000] = {0}, largest = -INFINITY, total = 0, sum = 0;
    size_t n = 0, k = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, logits[i]);
    for (size_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY) all[n++] = (plain){exp((logits[i] - largest) / o->temperature), (int)i};
    qsort(all, n, sizeof *all, compare_plain);
    if (o->top_k && (size_t)o->top_k < n) n = (size_t)o->top_k;
    for (size_t i = 0; i < n; i++) total += all[i].weight;
    while (k < n && (o->top_p == 1 || sum < o->top_p * total)) sum += all[k++].weight;
    total = 0;
    for (size_t i = 0; i < k; i++)
        if (all[i].weight >= o->min_p) weight[all[i].index] = all[i].weight;
    for (size_t i = 0; i < count; i++) total += weight[i];
    const double target = sampler_uniform(o->seed, step) * total;
    int32_t last = -1;
    sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (weight[i] > 0) last = (int32_t)i;
        sum += weight[i];
        if (weight[i] > 0 && sum > target) break;
    }
    return last;
}

static void test_against_plain(void **state) {
    (void)state;
    static const size_t counts[] = {1, 2, 3, 7, 64, 515, 1999};
    static const float temperatures[] = {0.05f, 0.7f, 1, 3}, tops[] = {1, 0.95f, 0.5f, 0.01f}, mins[] = {0, 0.05f, 1};
    static const int32_t ks[] = {0, 1, 2, 40, 100000};
    float logits[2000];
    uint64_t random = 0, cases = 0;
    for (size_t c = 0; c < COUNT_OF(counts); c++)
        for (size_t t = 0; t < COUNT_OF(temperatures); t++)
            for (size_t p = 0; p < COUNT_OF(tops); p++)
                for (size_t m = 0; m < COUNT_OF(mins); m++)
                    for (size_t k = 0; k < COUNT_OF(ks); k++) {
                        const mt_sampler_options o = {temperatures[t], tops[p], mins[m], ks[k], 1000 + random};
                        mt_sampler *s = make(o);
                        for (uint64_t step = 0; step < 6; step++, cases++) {
                            for (size_t i = 0; i < counts[c]; i++) {
                                logits[i] = (float)(sampler_uniform(7, random++) * 20 - 10);
                                if (step % 3 == 1) logits[i] = roundf(logits[i]); /* many equal */
                                if (step % 3 == 2 && i && i % 5 == 0) logits[i] = i % 2 ? NAN : -INFINITY;
                            }
                            assert_int_equal(sample(s, logits, counts[c]), plain_sample(&o, step, logits, counts[c]));
                        }
                        mt_sampler_free(s);
                    }
    print_message("%llu choices\n", (unsigned long long)cases);
}

static void test_frequencies(void **state) {
    (void)state;
    static const float logits[] = {0, 1, -1, 2, 0.5f, -30, 1.5f};
    enum { COUNT = 7, DRAWS = 200000 };
    double p[COUNT], total = 0;
    int seen[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) total += p[i] = exp(logits[i] / 0.8);
    mt_sampler *s = make((mt_sampler_options){.temperature = 0.8f, .top_p = 1, .seed = 99});
    for (int i = 0; i < DRAWS; i++) seen[sample(s, logits, COUNT)]++;
    for (int i = 0; i < COUNT; i++) {
        const double wanted = p[i] / total, deviation = sqrt(wanted * (1 - wanted) / DRAWS);
        assert_true(fabs((double)seen[i] / DRAWS - wanted) < 5 * deviation + 1e-9);
    }
    mt_sampler_free(s);
}

static void test_reproducible(void **state) {
    (void)state;
    float logits[300];
    for (int i = 0; i < 300; i++) logits[i] = (float)(i % 17) / 4;
    mt_sampler *a = make((mt_sampler_options){.temperature = 1, .top_p = 0.9f, .seed = 3});
    mt_sampler *b = make((mt_sampler_options){.temperature = 1, .top_p = 0.9f, .seed = 3});
    mt_sampler *c = make((mt_sampler_options){.temperature = 1, .top_p = 0.9f, .seed = 4});
    int32_t first[100];
    int different = 0;
    for (int i = 0; i < 100; i++) {
        first[i] = sample(a, logits, 300);
        assert_int_equal(first[i], sample(b, logits, 300));
        different += first[i] != sample(c, logits, 300);
    }
    assert_true(different > 50);
    mt_sampler_set_step(a, 40);
    for (int i = 40; i < 100; i++) assert_int_equal(first[i], sample(a, logits, 300));
    mt_sampler_free(a);
    mt_sampler_free(b);
    mt_sampler_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),      cmocka_unit_test(test_exp),          cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_odd_logits),  cmocka_unit_test(test_options),      cmocka_unit_test(test_against_plain),
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_reproducible),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
