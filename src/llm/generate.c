/* Generating text. Either the host chooses every token, or only the first: then steps follow each other inside the
 * machine, which chooses by the same rules from the same random numbers, and the host reads the tokens as they appear.
 */
#include "llm/engine.h"

#include <stdlib.h>

enum { NO_TOKEN = -2 }; /* in the machine's list, where no token has been written yet */

/* Generation under way, as the caller sees it. */
typedef struct stream {
    const mt_tokenizer *tokenizer;
    const mt_generate_options *options;
    mt_token_function *each;
    void *context;
    mt_detokenizer *detokenizer;
    mt_generate_stats stats;
    uint64_t start;
    bool ended; /* by an end token, by the count, by the caller, or by an error */
    mt_error *error;
    mt_status status;
} stream;

static double seconds_since(uint64_t start) { return (double)(clock_ns() - start) * 1e-9; }

/* Gives a token to the caller. */
static void deliver(stream *s, int32_t id) {
    const char *piece = "";
    size_t length = 0;
    if (!s->stats.tokens++) s->stats.first_token_seconds = seconds_since(s->start);
    const bool end = s->tokenizer && !s->options->ignore_end && mt_tokenizer_is_end(s->tokenizer, id);
    if (end)
        s->stats.ended_by = id;
    else if (s->tokenizer)
        s->status = mt_detokenizer_push(s->detokenizer, id, &piece, &length, s->error);
    s->ended = s->status != MT_OK || (s->each && s->each(s->context, id, piece, length)) || end ||
               (s->options->count > 0 && s->stats.tokens >= (size_t)s->options->count);
}

/* ---- the host chooses ---- */

static void on_host(mt_engine *e, stream *s, mt_sampler *sampler) {
    int32_t id;
    while (s->status == MT_OK) {
        s->status = mt_sampler_sample(sampler, e->last, (size_t)e->vocab, &id, s->error);
        if (s->status == MT_OK) deliver(s, id);
        if (s->status != MT_OK || s->ended || e->position == e->context) break;
        s->status = mt_engine_feed(e, &id, 1, NULL, s->error);
    }
}

/* ---- the machine chooses ---- */

typedef struct follow { /* reads what the machine writes */
    stream *s;
    const volatile int32_t *tokens; /* behind the first one */
    int32_t taken, count;           /* of them: given out; that there can be */
} follow;

static int take_tokens(void *context) {
    follow *f = context;
    for (int32_t id; !f->s->ended && f->taken < f->count && (id = f->tokens[f->taken]) >= 0; f->taken++)
        deliver(f->s, id); /* NO_TOKEN is below 0, and so is what comes of logits without a number */
    return f->s->ended;
}

/* The tokens that end generation. False: there are more than a program can look for. */
static bool list_stops(const stream *s, int32_t *stops) {
    int count = 0;
    for (int i = 0; i < MT_SAMPLE_STOPS; i++) stops[i] = -1;
    if (!s->tokenizer || s->options->ignore_end) return true;
    for (size_t id = 0; id < mt_tokenizer_count(s->tokenizer); id++)
        if (mt_tokenizer_is_end(s->tokenizer, (int32_t)id)) {
            if (count == MT_SAMPLE_STOPS) return false;
            stops[count++] = (int32_t)id;
        }
    return true;
}

static void on_machine(mt_engine *e, stream *s, mt_sampler *sampler, engine_program *p) {
    const mt_sampler_options *o = &s->options->sampler;
    engine_box *b = e->box;
    int32_t id;
    s->status = mt_sampler_sample(sampler, e->last, (size_t)e->vocab, &id, s->error);
    if (s->status == MT_OK) deliver(s, id);
    if (s->status != MT_OK || s->ended || e->position == e->context) return;
    const int32_t begin = e->position, room = e->context - begin;
    const int64_t wanted = s->options->count > 0 ? s->options->count - (int64_t)s->stats.tokens : room;
    const mt_live_step pos = {"pos", begin, 1};
    const int32_t runs = (int32_t)min_i64(wanted, room);
    follow f = {.s = s, .tokens = p->tokens + begin + 1, .count = runs};
    const mt_loop loop = {
        .runs = runs, .lives = &pos, .live_count = 1, .stop = "stop", .poll = take_tokens, .context = &f};
    b->token = id;
    b->stop = 0;
    memcpy(b->options, (float[]){o->temperature, o->top_p, o->min_p, 0}, sizeof b->options);
    /* The step's number, which goes with the random numbers, is the position and a constant, both taken modulo 2^32. */
    memcpy(b->words,
           (uint32_t[]){(uint32_t)o->top_k, (uint32_t)o->seed, (uint32_t)(o->seed >> 32),
                        (uint32_t)mt_sampler_step(sampler) - (uint32_t)begin},
           sizeof b->words);
    for (int32_t i = 0; i < runs; i++) p->tokens[begin + 1 + i] = NO_TOKEN;
    int32_t done = 0;
    e->last = NULL;
    const mt_status status = mt_session_loop(p->session, &loop, &done, s->status == MT_OK ? s->error : NULL);
    if (s->status == MT_OK) s->status = status;
    if (s->status == MT_OK) take_tokens(&f);
    if (s->status == MT_OK && b->stop == 2)
        s->status = error_set(s->error, MT_E_ARGUMENT, "sampler", "None of %lld logits is a number above -inf.",
                              (long long)e->vocab);
    /* The machine may have gone on past what was taken: those positions are free again. */
    const bool all = f.taken == done;
    e->position = begin + f.taken;
    if (s->status == MT_OK && all && done) s->status = engine_read_logits(e, p, s->error);
}

mt_status mt_engine_prepare(mt_engine *e, const mt_sampler_options *options, mt_error *error) {
    mt_sampler *sampler;
    engine_program *p;
    const mt_status status = mt_sampler_new(&sampler, options, error); /* checks them */
    if (status != MT_OK) return status;
    mt_sampler_free(sampler);
    return e->box && options ? engine_sampling_program(e, options, &p, error) : MT_OK;
}

mt_status mt_engine_generate(mt_engine *e, const mt_tokenizer *t, const int32_t *prompt, size_t prompt_count,
                             const mt_generate_options *options, mt_token_function *each, void *context,
                             mt_generate_stats *stats, mt_error *error) {
    stream s = {.tokenizer = t,
                .options = options,
                .each = each,
                .context = context,
                .stats = {.prompt_tokens = prompt_count, .ended_by = -1},
                .start = clock_ns(),
                .error = error};
    mt_sampler *sampler = NULL;
    engine_program *p = NULL;
    s.status = mt_sampler_new(&sampler, &options->sampler, error);
    if (s.status == MT_OK && e->box && list_stops(&s, e->box->stops))
        s.status = engine_sampling_program(e, &options->sampler, &p, error);
    s.stats.compile_seconds = seconds_since(s.start);
    s.start = clock_ns();
    if (s.status == MT_OK) s.status = mt_engine_feed(e, prompt, prompt_count, NULL, error);
    if (s.status == MT_OK && !e->last)
        s.status = error_set(error, MT_E_ARGUMENT, NULL, "nothing to go on from: the prompt is empty");
    if (s.status == MT_OK && t) s.status = mt_detokenizer_new(&s.detokenizer, t, 0, error);
    s.stats.prompt_seconds = seconds_since(s.start);
    const uint64_t generating = clock_ns();
    if (s.status == MT_OK) {
        if (p)
            on_machine(e, &s, sampler, p);
        else
            on_host(e, &s, sampler);
    }
    if (s.status == MT_OK && t) {
        const char *rest;
        size_t length;
        s.status = mt_detokenizer_flush(s.detokenizer, &rest, &length, error);
        if (s.status == MT_OK && length && each) each(context, -1, rest, length);
    }
    s.stats.seconds = seconds_since(generating);
    mt_detokenizer_free(s.detokenizer);
    mt_sampler_free(sampler);
    if (stats) *stats = s.stats;
    return s.status;
}
