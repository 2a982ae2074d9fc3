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
/* Makes a model with the shape of a known one and random weights, always the same: "llama-3.2-1b", "llama-3-8b",
 * "qwen3-0.6b" or "qwen3-8b", with ":FORMAT" for the storage format of its matrices (bf16). For measurements: it has no
 * tokenizer, and equal pieces of its weights share memory, so that it takes some 64 MB of a host, whatever its size.
 * MT_E_ARGUMENT: no such model or format. */
MT_API mt_status mt_model_synthesize(mt_model **out, const char *name, mt_error *error);
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
/* The same of a GGUF file that need not be a model that mt_model_open takes: its architecture may have no code. */
MT_API mt_status mt_model_describe(const char *path, char **text, mt_error *error);

MT_API mt_status mt_model_tokenizer(const mt_model *m, mt_tokenizer **out, mt_error *error);
/* MT_E_ARGUMENT when the file has no chat template. */
MT_API mt_status mt_model_template(const mt_model *m, mt_template **out, mt_error *error);

/* Whether a step ends with the choice of the next token, so that steps can follow each other without the host. */
typedef enum mt_sampling {
    MT_SAMPLE_NOT,
    MT_SAMPLE_PLAIN,   /* greedy, temperature: two steps inside a machine */
    MT_SAMPLE_FEW,     /* a top-k of 1 to MT_SAMPLE_MOST, top-p, min-p: two steps */
    MT_SAMPLE_NUCLEUS, /* no top-k or one as above, top-p, min-p: two steps, or eleven where more tokens are left */
    MT_SAMPLE_FILTERED /* everything: twenty steps */
} mt_sampling;
enum { MT_SAMPLE_STOPS = 16, MT_SAMPLE_MOST = 64 };

typedef struct mt_step {
    int32_t rows;         /* tokens a step takes at most. 1: exactly one. More: the live value "rows" says how many */
    int32_t context;      /* positions the cache has room for */
    int all_logits;       /* logits of every row; otherwise of the last one */
    const char *cache;    /* the cache's element type, a float; NULL: "f32" */
    const char *products; /* what weights and activations are rounded to where they are multiplied; "half": bf16 where
                             the weight is bf16, f16 elsewhere; NULL: "f32", not at all */
    mt_sampling sampling; /* other than MT_SAMPLE_NOT only with rows = 1 */
} mt_step;

/* The graph of one step. Live values: "pos" (positions before these tokens) and, when step->rows > 1, "rows". Input
 * "ids" i32 [rows]. States "cache.k.N", "cache.v.N" [context, kv_heads, head_dim]. Output "logits" f32 [rows or 1,
 * vocab]. The graph is the caller's.
 *
 * With sampling, "logits" and "ids" are states, and "ids" is first the token that the step takes and then the one that
 * it chose. There are also: state "stop" i32 [1], which becomes 1 when that is one of the stops, 2 when no logit is a
 * number above -inf (the token is then -1), else 0; output "tokens" i32 [context + 1], whose element pos + 1 becomes
 * the token, the others stay; and the inputs "sample.options" f32 [4] (temperature, top-p, min-p, 0), "sample.words"
 * u32 [4] (top-k, the seed's low and high half, what is added to pos to make the step of the random numbers) and
 * "sample.stops" i32 [MT_SAMPLE_STOPS] (ids, the unused ones -1). The rules are those of mt_sampler_sample
 * (mt_sampler_options). */
MT_API mt_status mt_model_graph(const mt_model *m, const mt_step *step, mt_graph **out, mt_error *error);

/* Binds every weight of a program that was compiled from one of this model's graphs. */
MT_API mt_status mt_model_bind(const mt_model *m, const mt_program *p, mt_session *s, mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
