/* Architecture `llama`: Llama 2, 3 and 3.x, Mistral, SmolLM2 and others of their shape. GGUF's q and k weights are
 * permuted so that rotary pairs are neighbours (2i, 2i + 1). Llama 3's stretched rotary frequencies come as a tensor of
 * divisors, `rope_freqs.weight`. */
#include "model/decoder.h"

static const decoder_style style = {.rope = "rope", .biases = true, .divisors = true};

static mt_status llama_open(mt_model *m, mt_error *error) { return decoder_open(m, &style, error); }

static mt_status llama_graph(const mt_model *m, const mt_step *step, mt_graph *g, mt_error *error) {
    return decoder_graph(m, &style, step, g, error);
}

const model_architecture model_llama = {"llama", llama_open, llama_graph};
