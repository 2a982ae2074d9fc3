/* Running a language model: a context of tokens, logits, generated text. */
#ifndef MONOTILE_LLM_H
#define MONOTILE_LLM_H

#include "monotile/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mt_engine mt_engine; /* one sequence; one thread at a time */

/* Where mt_engine_generate chooses tokens. The rules and the random numbers are the same. */
typedef enum mt_sampler_place {
    MT_SAMPLER_AUTO,   /* in the machine on a GPU, else on the host */
    MT_SAMPLER_HOST,   /* from logits, by mt_sampler_sample */
    MT_SAMPLER_MACHINE /* as part of the program, so that step follows step without the host */
} mt_sampler_place;

typedef struct mt_engine_options {
    int32_t context;      /* positions; 0: what the model was trained for, at most 4096 */
    int32_t rows;         /* tokens of a prompt that one run takes; 0: 64, or 512 where that is faster */
    int all_logits;       /* keep logits of every row: mt_engine_feed can give them out */
    const char *cache;    /* element type of the key-value cache, a float; NULL: "f32" on a CPU, "f16" on a GPU */
    const char *products; /* see mt_step; NULL: "f32" on a CPU, "half" on a GPU */
    mt_placement placement;
    int no_fusion;
    mt_sampler_place sampler;
} mt_engine_options;

/* Compiles the model's programs for the machine (one for single tokens, one for prompts) and loads them. Model and
 * machine must outlive the engine. options may be NULL. */
MT_API mt_status mt_engine_create(mt_engine **out, const mt_model *m, mt_machine *machine,
                                  const mt_engine_options *options, mt_error *error);
MT_API void mt_engine_destroy(mt_engine *e); /* NULL is allowed */

/* Appends tokens to the context. MT_E_LIMIT when it has no room for them, MT_E_ARGUMENT for an id outside the
 * vocabulary; both before anything runs. `logits`, when not NULL, receives count x vocab floats, one row for each token
 * (only with all_logits). */
MT_API mt_status mt_engine_feed(mt_engine *e, const int32_t *ids, size_t count, float *logits, mt_error *error);
/* The logits behind the last token fed: vocab floats that belong to the engine and change with the next feed. NULL
 * before the first. */
MT_API const float *mt_engine_logits(const mt_engine *e);
MT_API int32_t mt_engine_position(const mt_engine *e); /* tokens in the context */
MT_API int32_t mt_engine_context(const mt_engine *e);  /* positions it has room for */
/* Forgets all tokens from `position` on (0: all). */
MT_API mt_status mt_engine_rewind(mt_engine *e, int32_t position, mt_error *error);
/* The programs, for inspection: they belong to the engine. prompt != 0: the one for prompts. */
MT_API const mt_program *mt_engine_program(const mt_engine *e, int prompt);
MT_API mt_session *mt_engine_session(mt_engine *e, int prompt);

/* A machine that chooses tokens has programs for several ways to do so (mt_sampling): the one for greedy choice and
 * temperature alone from the beginning, others when they are asked for. This compiles and loads what these options
 * need; mt_engine_generate does so when it must. On a GPU it takes seconds, but once: the code stays in the cache
 * folder. */
MT_API mt_status mt_engine_prepare(mt_engine *e, const mt_sampler_options *options, mt_error *error);

typedef struct mt_generate_options {
    int32_t count; /* tokens at most; 0: as many as the context has room for */
    mt_sampler_options sampler;
    int ignore_end; /* go on past end tokens */
} mt_generate_options;

typedef struct mt_generate_stats {
    size_t prompt_tokens, tokens;   /* fed, generated (the end token counts) */
    double compile_seconds;         /* before all else: see mt_engine_prepare */
    double prompt_seconds, seconds; /* feeding the prompt; from there to the last token */
    double first_token_seconds;     /* from where the prompt begins to the first token */
    int32_t ended_by;               /* the end token, or -1 when the count or the context ended it */
} mt_generate_stats;

/* Called for every generated token with the text that it completes ("" for none; UTF-8, NUL-terminated). Return
 * non-zero to stop. Text that is left at the end (an unfinished character) comes with id -1. */
typedef int mt_token_function(void *context, int32_t id, const char *text, size_t length);

/* Feeds the prompt's tokens and generates until an end token, the count, or the context's end. `stats` may be NULL. The
 * end token is given to `each` with empty text and is not fed. Without a tokenizer (NULL) there is no text and no end
 * token. */
MT_API mt_status mt_engine_generate(mt_engine *e, const mt_tokenizer *t, const int32_t *prompt, size_t prompt_count,
                                    const mt_generate_options *options, mt_token_function *each, void *context,
                                    mt_generate_stats *stats, mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
