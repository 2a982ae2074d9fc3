/* The engine: one sequence on one machine. Two programs share its cache: one takes a single token, the other up to
 * `rows` tokens of a prompt. Nothing is compiled after mt_engine_create. */
#include "base/base.h"

#include <stdlib.h>

#include "monotile/llm.h"

typedef struct loaded { /* a program on the machine */
    mt_program *program;
    mt_session *session;
    int32_t *ids;
    float *logits;
    int32_t rows;
} loaded;

struct mt_engine {
    const mt_model *model;
    loaded single, prompt;
    const float *last; /* the newest row of logits; NULL before the first */
    int32_t context, position;
    int64_t vocab;
    bool all_logits;
};

static mt_status load(mt_engine *e, loaded *l, mt_machine *machine, const mt_engine_options *o, int32_t rows,
                      mt_error *error) {
    mt_graph *g = NULL;
    void *memory;
    size_t bytes;
    const char *machine_name = mt_machine_name(machine);
    const bool gpu = !strncmp(machine_name, "cuda", 4);
    const mt_step step = {.rows = rows,
                          .context = e->context,
                          .all_logits = o->all_logits,
                          .cache = o->cache || !gpu ? o->cache : "f16",
                          .products = o->products || !gpu ? o->products : "bf16"};
    const mt_target target = {.machine = machine_name,
                              .processors = mt_machine_processors(machine),
                              .placement = o->placement,
                              .no_fusion = o->no_fusion};
    l->rows = rows;
    mt_status status = mt_model_graph(e->model, &step, &g, error);
    if (status == MT_OK) status = mt_compile(g, &target, &l->program, error);
    if (status == MT_OK) status = mt_session_create(&l->session, machine, l->program, error);
    if (status == MT_OK) status = mt_model_bind(e->model, l->program, l->session, error);
    if (status == MT_OK) status = mt_session_memory(l->session, "logits", &memory, &bytes, error);
    if (status == MT_OK) l->logits = memory;
    if (status == MT_OK) status = mt_session_memory(l->session, "ids", &memory, &bytes, error);
    if (status == MT_OK) l->ids = memory;
    mt_graph_destroy(g);
    return status;
}

/* Gives the prompt's session the states of the single one. */
static mt_status share_states(mt_engine *e, mt_error *error) {
    mt_status status = MT_OK;
    for (size_t i = 0; i < mt_program_tensor_count(e->prompt.program) && status == MT_OK; i++) {
        mt_tensor_info info;
        void *memory;
        size_t bytes;
        status = mt_program_tensor(e->prompt.program, i, &info, error);
        if (status != MT_OK || info.role != MT_STATE) continue;
        status = mt_session_memory(e->single.session, info.name, &memory, &bytes, error);
        if (status == MT_OK) status = mt_session_bind(e->prompt.session, info.name, memory, bytes, error);
    }
    return status;
}

mt_status mt_engine_create(mt_engine **out, const mt_model *m, mt_machine *machine, const mt_engine_options *options,
                           mt_error *error) {
    static const mt_engine_options plain;
    const mt_engine_options *o = options ? options : &plain;
    *out = NULL;
    mt_model_info info;
    mt_model_get_info(m, &info);
    const int64_t context = o->context ? o->context : min_i64(info.context, 4096),
                  rows = min_i64(o->rows ? o->rows : 64, context);
    if (context < 1 || context > 1 << 24 || o->context < 0)
        return error_set(error, MT_E_ARGUMENT, NULL, "a context of %lld positions", (long long)context);
    if (rows < 1 || o->rows < 0) return error_set(error, MT_E_ARGUMENT, NULL, "a prompt of %d rows a run", o->rows);
    mt_engine *e = calloc(1, sizeof *e);
    if (!e) return error_set(error, MT_E_MEMORY, NULL, "no memory for an engine");
    e->model = m;
    e->context = (int32_t)context;
    e->vocab = info.vocab;
    e->all_logits = o->all_logits;
    mt_status status = load(e, &e->single, machine, o, 1, error);
    if (status == MT_OK && rows > 1) status = load(e, &e->prompt, machine, o, (int32_t)rows, error);
    if (status == MT_OK && rows > 1) status = share_states(e, error);
    if (status == MT_OK)
        *out = e;
    else
        mt_engine_destroy(e);
    return status;
}

void mt_engine_destroy(mt_engine *e) {
    if (!e) return;
    mt_session_destroy(e->prompt.session); /* first: it uses the other's states */
    mt_session_destroy(e->single.session);
    mt_program_destroy(e->prompt.program);
    mt_program_destroy(e->single.program);
    free(e);
}

/* Feeds what one run takes: one token, or up to `rows`. */
static mt_status feed_once(mt_engine *e, const int32_t *ids, int32_t count, float *logits, mt_error *error) {
    loaded *l = count == 1 ? &e->single : &e->prompt;
    memcpy(l->ids, ids, (size_t)count * sizeof *ids);
    mt_status status = mt_session_live(l->session, "pos", e->position, error);
    if (status == MT_OK && l->rows > 1) status = mt_session_live(l->session, "rows", count, error);
    if (status == MT_OK) status = mt_session_run(l->session, error);
    if (status != MT_OK) return status;
    e->position += count;
    e->last = l->logits + (e->all_logits ? (count - 1) * e->vocab : 0);
    if (logits) memcpy(logits, l->logits, (size_t)count * (size_t)e->vocab * sizeof *logits);
    return MT_OK;
}

mt_status mt_engine_feed(mt_engine *e, const int32_t *ids, size_t count, float *logits, mt_error *error) {
    if (count > (size_t)(e->context - e->position))
        return error_set(error, MT_E_LIMIT, NULL,
                         "the context has %d positions, %d of them taken: no room for %zu tokens", e->context,
                         e->position, count);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= e->vocab)
            return error_set(error, MT_E_ARGUMENT, NULL, "token %zu is %d, which is not in the vocabulary of %lld", i,
                             ids[i], (long long)e->vocab);
    if (logits && !e->all_logits)
        return error_set(error, MT_E_ARGUMENT, NULL, "logits of every token need an engine made with all_logits");
    mt_status status = MT_OK;
    for (size_t done = 0; done < count && status == MT_OK;) {
        const size_t rest = count - done, most = e->prompt.session ? (size_t)e->prompt.rows : 1,
                     now = rest < most ? rest : most;
        status = feed_once(e, ids + done, (int32_t)now, logits ? logits + done * (size_t)e->vocab : NULL, error);
        done += now;
    }
    return status;
}

const float *mt_engine_logits(const mt_engine *e) { return e->last; }
int32_t mt_engine_position(const mt_engine *e) { return e->position; }
int32_t mt_engine_context(const mt_engine *e) { return e->context; }
const mt_program *mt_engine_program(const mt_engine *e, int prompt) {
    return prompt ? e->prompt.program : e->single.program;
}
mt_session *mt_engine_session(mt_engine *e, int prompt) { return prompt ? e->prompt.session : e->single.session; }

mt_status mt_engine_rewind(mt_engine *e, int32_t position, mt_error *error) {
    if (position < 0 || position > e->position)
        return error_set(error, MT_E_ARGUMENT, NULL, "cannot rewind to position %d: the context has %d tokens",
                         position, e->position);
    if (position != e->position) e->last = NULL;
    e->position = position;
    return MT_OK;
}

static double seconds_since(uint64_t start) { return (double)(clock_ns() - start) * 1e-9; }

mt_status mt_engine_generate(mt_engine *e, const mt_tokenizer *t, const int32_t *prompt, size_t prompt_count,
                             const mt_generate_options *options, mt_token_function *each, void *context,
                             mt_generate_stats *stats, mt_error *error) {
    mt_generate_stats s = {.prompt_tokens = prompt_count, .ended_by = -1};
    mt_sampler *sampler = NULL;
    mt_detokenizer *detokenizer = NULL;
    const uint64_t start = clock_ns();
    mt_status status = mt_engine_feed(e, prompt, prompt_count, NULL, error);
    if (status == MT_OK && !e->last)
        status = error_set(error, MT_E_ARGUMENT, NULL, "nothing to go on from: the prompt is empty");
    if (status == MT_OK) status = mt_sampler_new(&sampler, &options->sampler, error);
    if (status == MT_OK) status = mt_detokenizer_new(&detokenizer, t, 0, error);
    s.prompt_seconds = seconds_since(start);
    const uint64_t generating = clock_ns();
    while (status == MT_OK) {
        int32_t id;
        const char *piece = "";
        size_t length = 0;
        if ((status = mt_sampler_sample(sampler, e->last, (size_t)e->vocab, &id, error)) != MT_OK) break;
        if (!s.tokens++) s.first_token_seconds = seconds_since(start);
        const bool end = !options->ignore_end && mt_tokenizer_is_end(t, id);
        if (end)
            s.ended_by = id;
        else if ((status = mt_detokenizer_push(detokenizer, id, &piece, &length, error)) != MT_OK)
            break;
        if (each && each(context, id, piece, length)) break;
        if (end || (options->count > 0 && s.tokens >= (size_t)options->count) || e->position == e->context) break;
        status = mt_engine_feed(e, &id, 1, NULL, error);
    }
    if (status == MT_OK) {
        const char *rest;
        size_t length;
        status = mt_detokenizer_flush(detokenizer, &rest, &length, error);
        if (status == MT_OK && length && each) each(context, -1, rest, length);
    }
    s.seconds = seconds_since(generating);
    mt_detokenizer_free(detokenizer);
    mt_sampler_free(sampler);
    if (stats) *stats = s;
    return status;
}
