/* A model: an open file, what its metadata says, and the tensors that the file does not have but its graph needs. An
 * architecture is one file here and one row in the table of model.c. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <pthread.h>

#include "model/gguf.h"
#include "model/synthetic.h"
#include "monotile/model.h"

typedef struct model_architecture {
    const char *name; /* general.architecture */
    /* Reads and checks hyperparameters and tensor shapes; fills m->info and derived tensors. */
    mt_status (*open)(mt_model *m, mt_error *error);
    mt_status (*graph)(const mt_model *m, const mt_step *step, mt_graph *g, mt_error *error);
} model_architecture;

extern const model_architecture model_llama, model_qwen3;

typedef struct model_derived { /* a tensor made at load: it is bound by name like the file's */
    const char *name;
    const void *data;
    size_t bytes;
} model_derived;

typedef struct model_tokenizer { /* made when it is first asked for */
    pthread_mutex_t lock;
    mt_tokenizer *made;
} model_tokenizer;

struct mt_model {
    arena *memory;
    gguf *file;
    synthetic *weights; /* of a model that never was a file; otherwise NULL */
    const model_architecture *architecture;
    mt_model_info info;
    double norm_epsilon;
    const char *output; /* the tensor of the output layer: its own, or the embedding table */
    model_derived *derived;
    size_t derived_count, derived_capacity;
    model_tokenizer *tokenizer;
};

/* Opens a model behind its file. Takes over both, also when it fails. */
mt_status model_open(mt_model **out, gguf *file, synthetic *weights, mt_error *error);

/* A hyperparameter "<architecture>.<name>". *out keeps its value when the key is absent and `required` is false. */
mt_status model_get_i64(const mt_model *m, const char *name, bool required, int64_t *out, mt_error *error);
mt_status model_get_f64(const mt_model *m, const char *name, bool required, double *out, mt_error *error);
mt_status model_get_string(const mt_model *m, const char *name, bool required, gguf_string *out, mt_error *error);

/* Adds the file's tensor as a weight of the graph, checking its shape. rank 0: the tensor may be absent, and *out is
 * then -1: pass `optional`. */
mt_status model_weight(const mt_model *m, mt_graph *g, const char *name, bool optional, int rank, const int64_t *extent,
                       mt_tensor *out, mt_error *error);
/* sample.c: appends the choice of the next token to a step, as mt_model_graph says. */
mt_status model_sample(mt_graph *g, const mt_step *step, int64_t vocab, mt_tensor logits, mt_live pos, mt_tensor token,
                       mt_error *error);
mt_status model_check_tensor(const mt_model *m, const char *name, bool optional, int rank, const int64_t *extent,
                             mt_error *error);

#endif
