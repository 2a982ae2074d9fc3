/* The engine's inside, shared by engine.c (programs, feeding) and generate.c (choosing tokens). */
#ifndef LLM_ENGINE_H
#define LLM_ENGINE_H

#include "base/base.h"
#include "monotile/llm.h"

/* What a step that samples reads and writes in the host's memory, copied around runs where a machine has its own. */
typedef struct engine_box {
    _Alignas(64) int32_t token;
    _Alignas(64) int32_t stop;
    _Alignas(64) float options[4]; /* as mt_model_graph says */
    _Alignas(64) uint32_t words[4];
    _Alignas(64) int32_t stops[MT_SAMPLE_STOPS];
} engine_box;

typedef struct engine_program { /* a program on the machine */
    mt_program *program;
    mt_session *session;
    int32_t *ids;
    float *logits;   /* NULL when they stay in the machine */
    int32_t *tokens; /* that it chose, by position; NULL when it does not */
    int32_t rows;
} engine_program;

struct mt_engine {
    const mt_model *model;
    mt_machine *machine;
    mt_engine_options options;
    /* One token; up to `rows` tokens; one token with other ways of sampling than the first has, made when they are
     * asked for. All share the states of the first. */
    engine_program single, prompt, sampling[MT_SAMPLE_FILTERED + 1];
    engine_box *box;   /* NULL when tokens are chosen on the host */
    float *row;        /* a copy of logits that stay in the machine */
    const float *last; /* the newest row of logits; NULL before the first */
    int32_t context, position;
    int64_t vocab;
};

/* The program that chooses tokens inside the machine as these options say. */
mt_status engine_sampling_program(mt_engine *e, const mt_sampler_options *o, engine_program **out, mt_error *error);
/* Fetches the logits that a program of one token left in the machine. */
mt_status engine_read_logits(mt_engine *e, engine_program *p, mt_error *error);

#endif
