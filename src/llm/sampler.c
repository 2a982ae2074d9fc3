/* Choosing the next token from logits: greedy, or by temperature with top-k, top-p and min-p.
 *
 * The bits must not depend on the machine. So nothing here calls the C library's exp, whose last bit differs between
 * libraries; sums run in a fixed order; and the compiler may not contract a product and a sum
 * into one rounding. To cut the tail off, candidates lie in a heap and are taken from its top: finding the few likely
 * tokens among many costs little more than one pass. */
#include "llm/sampler.h"

#include <math.h>
#include <stdlib.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

typedef struct candidate {
    double weight;
    float logit; /* decides the order: different ones may have equal weights */
    int32_t token;
} candidate;

struct mt_sampler {
    mt_sampler_options options;
    uint64_t step;
    candidate *candidates; /* scratch, grown to the vocabulary's size */
    size_t capacity;
};

void sampler_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

double sampler_uniform(uint64_t seed, uint64_t step) {
    const uint32_t counter[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4];
    sampler_philox(counter, key, word);
    return (double)((uint64_t)word[0] << 21 | word[1] >> 11) * 0x1p-53;
}

/* x = k ln 2 + r with |r| <= ln 2 / 2: exp(x) = 2^k exp(r), and 13 terms of the series give exp(r) to the last bit or
 * two. ln 2 comes in two parts, the first with so few bits that k times it is exact. */
double sampler_exp(double x) {
    static const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33, log2_e = 0x1.71547652b82fep+0;
    static const double inverse_factorial[] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
        1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
    if (!(x >= -700)) return 0;
    const int k = (int)(x * log2_e - 0.5); /* rounds to nearest: x <= 0, and the cast cuts towards 0 */
    const double r = (x - k * ln2_high) - k * ln2_low;
    double sum = 0;
    for (size_t i = 0; i < COUNT_OF(inverse_factorial); i++) sum = sum * r + inverse_factorial[i];
    const uint64_t bits = (uint64_t)(1023 + k) << 52; /* 2^k, k >= -1011 */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

void mt_sampler_options_default(mt_sampler_options *options) { *options = (mt_sampler_options){.top_p = 1}; }

mt_status mt_sampler_new(mt_sampler **out, const mt_sampler_options *options, mt_error *error) {
    mt_sampler_options o;
    mt_sampler_options_default(&o);
    if (options) o = *options;
    /* Written so that NaN fails. */
    if (!(o.temperature >= 0 && o.temperature <= 1e6f))
        return error_set(error, MT_E_ARGUMENT, "sampler", "The temperature %g is not between 0 and 1000000.",
                         (double)o.temperature);
    if (!(o.top_p > 0 && o.top_p <= 1))
        return error_set(error, MT_E_ARGUMENT, "sampler", "top_p %g is not above 0 and at most 1.", (double)o.top_p);
    if (!(o.min_p >= 0 && o.min_p <= 1))
        return error_set(error, MT_E_ARGUMENT, "sampler", "min_p %g is not between 0 and 1.", (double)o.min_p);
    if (o.top_k < 0) return error_set(error, MT_E_ARGUMENT, "sampler", "top_k %d is negative.", (int)o.top_k);
    mt_sampler *s = calloc(1, sizeof *s);
    if (!s) return error_set(error, MT_E_MEMORY, "sampler", "Out of memory.");
    s->options = o;
    *out = s;
    return MT_OK;
}

void mt_sampler_free(mt_sampler *s) {
    if (!s) return;
    free(s->candidates);
    free(s);
}

uint64_t mt_sampler_step(const mt_sampler *s) { return s->step; }
void mt_sampler_set_step(mt_sampler *s, uint64_t step) { s->step = step; }

static bool before(candidate a, candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.token < b.token); }

static void sift_down(candidate *heap, size_t count, size_t at) {
    const candidate moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

/* Moves the `wanted` first candidates, in order, to the end of the array: the best one is last. Stops early when their
 * weights reach `enough`. Returns how many. */
static size_t take_best(candidate *c, size_t count, size_t wanted, double enough) {
    double sum = 0;
    size_t left = count;
    for (size_t i = count / 2; i-- > 0;) sift_down(c, count, i);
    while (left && count - left < wanted && sum < enough) {
        const candidate best = c[0];
        c[0] = c[--left];
        if (left) sift_down(c, left, 0);
        c[left] = best;
        sum += best.weight;
    }
    return count - left;
}

static int compare_tokens(const void *a, const void *b) {
    const int32_t x = ((const candidate *)a)->token, y = ((const candidate *)b)->token;
    return (x > y) - (x < y);
}

/* Cuts the candidates down by the options. Returns where those that are left begin, in the order of their tokens. */
static candidate *cut(const mt_sampler_options *o, candidate *c, size_t *count) {
    size_t kept = *count;
    const size_t k = o->top_k && (size_t)o->top_k < kept ? (size_t)o->top_k : kept;
    if (k < kept) {
        c += kept - take_best(c, kept, k, INFINITY);
        kept = k;
    }
    if (o->top_p < 1) {
        double total = 0;
        for (size_t i = 0; i < kept; i++) total += c[i].weight;
        const size_t best = take_best(c, kept, kept, o->top_p * total);
        c += kept - best;
        kept = best;
    }
    if (k < *count || o->top_p < 1) qsort(c, kept, sizeof *c, compare_tokens);
    if (o->min_p > 0) {
        size_t n = 0;
        for (size_t i = 0; i < kept; i++)
            if (c[i].weight >= o->min_p) c[n++] = c[i]; /* the largest weight is 1 */
        kept = n;
    }
    *count = kept;
    return c;
}

mt_status mt_sampler_sample(mt_sampler *s, const float *logits, size_t count, int32_t *token, mt_error *error) {
    const mt_sampler_options *o = &s->options;
    if (count > INT32_MAX)
        return error_set(error, MT_E_LIMIT, "sampler", "%zu logits are more than a token id can count.", count);
    size_t best = count;
    for (size_t i = 0; i < count; i++)
        if (logits[i] > (best < count ? logits[best] : -INFINITY)) best = i; /* false for NaN */
    if (best == count)
        return error_set(error, MT_E_ARGUMENT, "sampler", "None of %zu logits is a number above -inf.", count);
    if (o->temperature == 0) {
        s->step++;
        *token = (int32_t)best;
        return MT_OK;
    }
    if (count > s->capacity) {
        candidate *grown = realloc(s->candidates, count * sizeof *grown);
        if (!grown) return error_set(error, MT_E_MEMORY, "sampler", "Out of memory.");
        s->candidates = grown;
        s->capacity = count;
    }
    size_t kept = 0;
    const double largest = logits[best], scale = 1.0 / o->temperature;
    for (size_t i = 0; i < count; i++) {
        if (!(logits[i] > -INFINITY)) continue;
        const double weight = isinf(largest) ? logits[i] == largest : sampler_exp((logits[i] - largest) * scale);
        if (weight > 0) s->candidates[kept++] = (candidate){weight, logits[i], (int32_t)i};
    }
    const candidate *c = cut(o, s->candidates, &kept);
    double total = 0, sum = 0;
    for (size_t i = 0; i < kept; i++) total += c[i].weight;
    const double target = sampler_uniform(o->seed, s->step) * total;
    size_t chosen = 0;
    while (chosen + 1 < kept && (sum += c[chosen].weight) <= target) chosen++;
    s->step++;
    *token = c[chosen].token;
    return MT_OK;
}
