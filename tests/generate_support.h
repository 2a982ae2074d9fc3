/* What mt_engine_generate gives out, collected. */
#ifndef GENERATE_SUPPORT_H
#define GENERATE_SUPPORT_H

#include "model_support.h"

typedef struct generated {
    int32_t ids[300];
    int count, stop; /* stop: after so many; 0: never */
    text said;
} generated;

static inline int take_any(void *context, int32_t id, const char *piece, size_t length) {
    generated *g = context;
    text_append(&g->said, piece, length);
    if (id < 0) return 0;
    assert_true((size_t)g->count < COUNT_OF(g->ids));
    g->ids[g->count++] = id;
    return g->count == g->stop;
}
static inline int take(void *context, int32_t id, const char *piece, size_t length) {
    assert_int_equal(strlen(piece), length);
    return take_any(context, id, piece, length);
}

#endif
