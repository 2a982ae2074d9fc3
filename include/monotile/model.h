/* Model files: open one, look at it, build the graph of one step, bind its weights. */
#ifndef MONOTILE_MODEL_H
#define MONOTILE_MODEL_H

#include "monotile/machine.h"
#include "monotile/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mt_model mt_model; /* read-only once open; may be shared between threads */

/* Opens a GGUF file (the first part of a split model). The file is mapped and its weights are used where they lie.
 * MT_E_UNSUPPORTED: an architecture or a feature that has no code; the message names it. */
MT_API mt_status mt_model_open(mt_model **out, const char *path, mt_error *error);
MT_API void mt_model_close(mt_model *m); /* after the sessions its weights are bound to; NULL is allowed */

typedef struct mt_model_info {
    const char *architecture, *name; /* the model's; "" where the file has no name */
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context; /* context: what it was trained for */
    double parameters;
    size_t weight_bytes; /* of all tensors as stored */
    size_t step_bytes; /* of the weights that one step reads: without the embedding table, except when it is the output
                          layer too */
} mt_model_info;
MT_API void mt_model_get_info(const mt_model *m, mt_model_info *out); /* strings belong to the model */
/* Metadata and tensors as text, for people; the caller frees it with free(). NULL when memory is out. */
MT_API char *mt_model_text(const mt_model *m);

MT_API mt_status mt_model_tokenizer(const mt_model *m, mt_tokenizer **out, mt_error *error);
/* MT_E_ARGUMENT when the file has no chat template. */
MT_API mt_status mt_model_template(const mt_model *m, mt_template **out, mt_error *error);

typedef struct mt_step {
    int32_t rows;      /* tokens a step takes at most. 1: exactly one. More: the live value "rows" says how many */
    int32_t context;   /* positions the cache has room for */
    int all_logits;    /* logits of every row; otherwise of the last one */
    const char *cache; /* the cache's element type; NULL: "f32" */
    const char
        *products; /* what weights and activations are rounded to where they are multiplied; NULL: "f32", not at all */
} mt_step;

/* The graph of one step. Live values: "pos" (positions before these tokens) and, when step->rows > 1, "rows". Input
 * "ids" i32 [rows]. States "cache.k.N", "cache.v.N" [context, kv_heads, head_dim]. Output "logits" f32 [rows or 1,
 * vocab]. The graph is the caller's. */
MT_API mt_status mt_model_graph(const mt_model *m, const mt_step *step, mt_graph **out, mt_error *error);

/* Binds every weight of a program that was compiled from one of this model's graphs. */
MT_API mt_status mt_model_bind(const mt_model *m, const mt_program *p, mt_session *s, mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
