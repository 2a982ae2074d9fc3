/* A decoder with grouped-query attention, rotary positions and a gated feed-forward part, as llama made it common, and
 * in what its architectures differ. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/model.h"

typedef struct decoder_style {
    const char *rope; /* the tile program that turns heads: which elements make a pair */
    bool head_norms;  /* an RMS norm of each query and key head, before it is turned */
    bool biases;      /* products may have biases */
    bool divisors;    /* the file may have divisors of the rotary frequencies */
} decoder_style;

/* What a model_architecture does, in a style. */
mt_status decoder_open(mt_model *m, const decoder_style *style, mt_error *error);
mt_status decoder_graph(const mt_model *m, const decoder_style *style, const mt_step *step, mt_graph *g,
                        mt_error *error);

#endif
