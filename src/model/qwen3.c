/* Architecture `qwen3`: Qwen3's dense models. Every query and key head has an RMS norm before the rotary embedding,
 * whose pairs are (i, i + D / 2); there are no biases, and the heads' size does not follow from the hidden size. */
#include "model/decoder.h"

static const decoder_style style = {.rope = "rope_half", .head_norms = true};

static mt_status qwen3_open(mt_model *m, mt_error *error) { return decoder_open(m, &style, error); }

static mt_status qwen3_graph(const mt_model *m, const mt_step *step, mt_graph *g, mt_error *error) {
    return decoder_graph(m, &style, step, g, error);
}

const model_architecture model_qwen3 = {"qwen3", qwen3_open, qwen3_graph};
