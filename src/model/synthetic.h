/* Synthetic models: the shape of a known model with random weights, for measurements that need no answers.
 *
 * A model of 16 GB must not take 16 GB of a host's memory, nor the time to make as many random bytes. So there is one
 * pool of at most 64 MB, and every weight matrix is a window of it: a range of addresses onto which the pool is mapped,
 * again and again, from a place that its name decides. To everything else such a weight is ordinary memory, and the
 * model is a GGUF file that nobody wrote. The pool has a prime number of mapping units, so that a window's rows repeat
 * as late as can be. */
#ifndef MODEL_SYNTHETIC_H
#define MODEL_SYNTHETIC_H

#include "model/gguf.h"
#include "monotile/model.h"

typedef struct synthetic synthetic; /* a model's weights */
void synthetic_free(synthetic *s);  /* NULL is allowed */

typedef struct synthetic_shape {
    const char *name, *architecture;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
    double rope_base, norm_epsilon;
    bool tied; /* the output layer is the embedding table */
} synthetic_shape;

/* What mt_model_synthesize does, for any shape. `format` stores the matrices; vectors are f32. */
mt_status synthetic_model(mt_model **out, const synthetic_shape *shape, const char *format, mt_error *error);

#endif
