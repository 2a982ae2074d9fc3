/* What the tests of whole models share: a folder that goes away, the Python oracle's jobs, engines, and how far two
 * rows of logits are apart. Include cmocka before. */
#ifndef MODEL_SUPPORT_H
#define MODEL_SUPPORT_H

#include <math.h>

#include "monotile/llm.h"
#include "temporary.h"
#include "text_oracle.h"

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        mt_error check_error = {0};                                                                                    \
        mt_error *const error = &check_error;                                                                          \
        if ((call) != MT_OK) fail_msg("%s: %s: %s", #call, check_error.where, check_error.message);                    \
    } while (0)

static char folder_path[TEMPORARY_BYTES];

/* Runs oracle_model.py on jobs, which are freed. False, having said why, when Python or a package of it is missing. */
static inline bool run_jobs(oracle *o, text *jobs) {
    char path[500];
    snprintf(path, sizeof path, "%s/jobs", folder_path);
    assert_false(jobs->failed);
    CHECK(file_write_atomic(path, jobs->data, jobs->length, error));
    text_free(jobs);
    return oracle_run(o, "oracle_model.py", path);
}

static inline void add_ids(text *jobs, const int32_t *ids, size_t count) {
    for (size_t i = 0; i < count; i++) text_printf(jobs, " %d", ids[i]);
    text_string(jobs, "\n");
}

static inline void read_ids(oracle *o, mt_tokens *out) {
    *out = (mt_tokens){.count = oracle_u32(o)};
    assert_true((o->bytes.length - o->at) / sizeof *out->ids >= out->count);
    out->ids = malloc((out->count + 1) * sizeof *out->ids);
    assert_non_null(out->ids);
    memcpy(out->ids, o->bytes.data + o->at, out->count * sizeof *out->ids);
    o->at += out->count * sizeof *out->ids;
}

/* Rows of logits. */
typedef struct logits {
    float *row;
    size_t count, vocab;
} logits;

static inline logits logits_new(size_t count, size_t vocab) {
    logits l = {calloc(count * vocab, sizeof(float)), count, vocab};
    assert_non_null(l.row);
    return l;
}

static inline logits read_logits(oracle *o, size_t count) {
    assert_int_equal(oracle_u32(o), count);
    logits l = logits_new(count, oracle_u32(o));
    const size_t bytes = count * l.vocab * sizeof(float);
    assert_true(o->bytes.length - o->at >= bytes);
    memcpy(l.row, o->bytes.data + o->at, bytes);
    o->at += bytes;
    return l;
}

/* The largest relative distance (l2) of a row of `a` from that of `b`; NaN counts as infinity. */
static inline double distance(const logits *a, const logits *b, size_t count) {
    double worst = 0;
    assert_int_equal(a->vocab, b->vocab);
    assert_true(a->count >= count && b->count >= count);
    for (size_t r = 0; r < count; r++) {
        double apart = 0, size = 0;
        for (size_t i = r * a->vocab; i < (r + 1) * a->vocab; i++) {
            const double x = a->row[i], y = b->row[i];
            apart += (x - y) * (x - y);
            size += y * y;
        }
        const double d = sqrt(apart / size);
        worst = isnan(d) ? INFINITY : fmax(worst, d);
    }
    return worst;
}

static inline void assert_same_bits(const logits *a, const logits *b, size_t count, const char *what) {
    assert_int_equal(a->vocab, b->vocab);
    for (size_t r = 0; r < count; r++)
        if (memcmp(a->row + r * a->vocab, b->row + r * a->vocab, a->vocab * sizeof(float)))
            fail_msg("%s: the logits of position %zu differ, and by %g in all", what, r, distance(a, b, count));
}

/* Feeds ids, `chunk` a call, from an empty context on. */
static inline void feed(mt_engine *e, const int32_t *ids, size_t count, size_t chunk, logits *out) {
    CHECK(mt_engine_rewind(e, 0, error));
    for (size_t i = 0; i < count; i += chunk)
        CHECK(mt_engine_feed(e, ids + i, count - i < chunk ? count - i : chunk, out->row + i * out->vocab, error));
    assert_int_equal(mt_engine_position(e), count);
    assert_memory_equal(mt_engine_logits(e), out->row + (count - 1) * out->vocab, out->vocab * sizeof(float));
}

static inline void assert_close(const logits *l, const logits *expected, size_t count, double bound, const char *what) {
    const double d = distance(l, expected, count);
    print_message("%s: %.1e\n", what, d);
    if (!(d < bound)) fail_msg("%s: %g apart; the bound is %g", what, d, bound);
}

static inline void assert_refused(mt_status status, const mt_error *error, mt_status wanted, const char *word) {
    if (status != wanted || error->code != wanted || !strstr(error->message, word))
        fail_msg("%s '%s' instead of %s with '%s'", mt_status_name(status), error->message, mt_status_name(wanted),
                 word);
}

#endif
