/* The engine: one sequence on one machine. Two programs share its cache: one takes a single token, the other up to
 * `rows` tokens of a prompt. Others are compiled when tokens are first to be chosen with top-k, top-p or min-p inside
 * the machine.
 *
 * The prompt's program is compiled by a thread of its own, while the other one is compiled, loaded and given its
 * weights. */
#include "graph/graph.h"
#include "llm/engine.h"

#include <pthread.h>
#include <stdlib.h>

static mt_status memory_of(engine_program *l, const char *name, void *out, mt_error *error) {
    size_t bytes;
    return mt_session_memory(l->session, name, out, &bytes, error);
}

/* Gives a program the states that the single one has, too: the cache. */
static mt_status share_states(mt_engine *e, engine_program *l, mt_error *error) {
    mt_status status = MT_OK;
    for (size_t i = 0; i < mt_program_tensor_count(l->program) && status == MT_OK; i++) {
        mt_tensor_info info;
        void *memory;
        size_t bytes;
        status = mt_program_tensor(l->program, i, &info, error);
        if (status != MT_OK || info.role != MT_STATE || strncmp(info.name, "cache.", 6)) continue;
        status = mt_session_memory(e->single.session, info.name, &memory, &bytes, error);
        if (status == MT_OK) status = mt_session_bind(l->session, info.name, memory, bytes, error);
    }
    return status;
}

static mt_status bind_box(mt_engine *e, engine_program *l, mt_error *error) {
    engine_box *b = e->box;
    const struct {
        const char *name;
        void *data;
        size_t bytes;
    } parts[] = {{"ids", &b->token, sizeof b->token},
                 {"stop", &b->stop, sizeof b->stop},
                 {"sample.options", b->options, sizeof b->options},
                 {"sample.words", b->words, sizeof b->words},
                 {"sample.stops", b->stops, sizeof b->stops}};
    mt_status status = MT_OK;
    for (size_t i = 0; i < COUNT_OF(parts) && status == MT_OK; i++)
        status = mt_session_bind(l->session, parts[i].name, parts[i].data, parts[i].bytes, error);
    if (status == MT_OK) status = memory_of(l, "tokens", &l->tokens, error);
    l->ids = &b->token;
    return status;
}

static bool is_gpu(const char *machine) { return !strncmp(machine, "cuda", 4) || !strncmp(machine, "sim", 3); }

static mt_step step_of(const mt_engine *e, int32_t rows, mt_sampling sampling) {
    const mt_engine_options *o = &e->options;
    const bool gpu = is_gpu(mt_machine_name(e->machine));
    return (mt_step){.rows = rows,
                     .context = e->context,
                     .all_logits = o->all_logits,
                     .cache = o->cache || !gpu ? o->cache : "f16",
                     .products = o->products || !gpu ? o->products : "half",
                     .sampling = sampling};
}

static mt_status compile_graph(const mt_engine *e, engine_program *l, const mt_graph *g, int32_t rows,
                               mt_error *error) {
    const mt_target target = {.machine = mt_machine_name(e->machine),
                              .architecture = mt_machine_architecture(e->machine),
                              .processors = mt_machine_processors(e->machine),
                              .placement = e->options.placement,
                              .no_fusion = e->options.no_fusion};
    l->rows = rows;
    return mt_compile(g, &target, &l->program, error);
}

static mt_status compile(const mt_engine *e, engine_program *l, int32_t rows, mt_sampling sampling, mt_error *error) {
    mt_graph *g = NULL;
    const mt_step step = step_of(e, rows, sampling);
    mt_status status = mt_model_graph(e->model, &step, &g, error);
    if (status == MT_OK) status = compile_graph(e, l, g, rows, error);
    mt_graph_destroy(g);
    return status;
}

/* The prompt's program, with so many rows a run; 0: many where products of many rows have a faster code than those of
 * few, and instructions beyond a shorter prompt's rows are few. (The simulator would take too long.) */
static mt_status compile_prompt(mt_engine *e, int64_t given, mt_error *error) {
    enum { FEW = 64, MANY = 512 };
    const char *machine = mt_machine_name(e->machine);
    const int32_t few = (int32_t)min_i64(given ? given : FEW, e->context), many = (int32_t)min_i64(MANY, e->context);
    if (!given && !strncmp(machine, "cuda", 4) && !e->options.no_fusion) {
        mt_graph *g = NULL;
        const mt_step step = step_of(e, many, MT_SAMPLE_NOT);
        const graph_target target = {graph_costs_of(machine, mt_machine_architecture(e->machine)),
                                     mt_machine_processors(e->machine), e->options.placement};
        const bool wide = many > 1 && mt_model_graph(e->model, &step, &g, NULL) == MT_OK && graph_gets_wide(g, &target);
        const mt_status status = wide ? compile_graph(e, &e->prompt, g, many, error) : MT_OK;
        mt_graph_destroy(g);
        if (wide) return status;
    }
    return few > 1 ? compile(e, &e->prompt, few, MT_SAMPLE_NOT, error) : MT_OK;
}

/* Loads what was compiled. */
static mt_status start(mt_engine *e, engine_program *l, mt_sampling sampling, mt_error *error) {
    mt_status status = mt_session_create(&l->session, e->machine, l->program, error);
    if (status == MT_OK) status = mt_model_bind(e->model, l->program, l->session, error);
    if (status == MT_OK && sampling) status = bind_box(e, l, error);
    if (status == MT_OK && !sampling) status = memory_of(l, "logits", &l->logits, error);
    if (status == MT_OK && !sampling) status = memory_of(l, "ids", &l->ids, error);
    if (status == MT_OK && l != &e->single) status = share_states(e, l, error);
    return status;
}

static mt_status load(mt_engine *e, engine_program *l, int32_t rows, mt_sampling sampling, mt_error *error) {
    const mt_status status = compile(e, l, rows, sampling, error);
    return status == MT_OK ? start(e, l, sampling, error) : status;
}

typedef struct prompt_call {
    mt_engine *e;
    int64_t rows;
    mt_error error;
    mt_status status;
} prompt_call;

static void *call_compile_prompt(void *context) {
    prompt_call *c = context;
    c->status = compile_prompt(c->e, c->rows, &c->error);
    return NULL;
}

/* Both programs. */
static mt_status load_all(mt_engine *e, int64_t rows, mt_sampling sampling, mt_error *error) {
    prompt_call prompt = {.e = e, .rows = rows, .status = MT_OK};
    pthread_t thread;
    const bool beside = !pthread_create(&thread, NULL, call_compile_prompt, &prompt);
    const mt_status status = load(e, &e->single, 1, sampling, error);
    if (beside)
        pthread_join(thread, NULL);
    else if (status == MT_OK)
        call_compile_prompt(&prompt);
    if (status != MT_OK) return status;
    if (prompt.status != MT_OK && error) *error = prompt.error;
    if (prompt.status != MT_OK || !e->prompt.program) return prompt.status;
    return start(e, &e->prompt, MT_SAMPLE_NOT, error);
}

static void unload(engine_program *l) {
    mt_session_destroy(l->session);
    mt_program_destroy(l->program);
}

static mt_sampling sampling_of(const mt_sampler_options *o) {
    if (o->temperature == 0 || (o->top_k == 0 && o->top_p == 1 && o->min_p == 0)) return MT_SAMPLE_PLAIN;
    return o->top_k == 0 ? MT_SAMPLE_NUCLEUS : o->top_k <= MT_SAMPLE_MOST ? MT_SAMPLE_FEW : MT_SAMPLE_FILTERED;
}

mt_status engine_sampling_program(mt_engine *e, const mt_sampler_options *o, engine_program **out, mt_error *error) {
    const mt_sampling sampling = sampling_of(o);
    engine_program *l = *out = sampling == MT_SAMPLE_PLAIN ? &e->single : &e->sampling[sampling];
    if (l->tokens) return MT_OK;
    const mt_status status = load(e, l, 1, sampling, error);
    if (status == MT_OK) return MT_OK;
    unload(l);
    *l = (engine_program){0};
    return status;
}

/* Memory for what the machine's choice of tokens needs. */
static mt_status make_box(mt_engine *e, mt_error *error) {
    const size_t bytes = align_up(sizeof *e->box, 64);
    e->box = aligned_alloc(64, bytes);
    e->row = calloc((size_t)e->vocab, sizeof *e->row);
    if (!e->box || !e->row) return error_set(error, MT_E_MEMORY, NULL, "no memory for an engine");
    memset(e->box, 0, bytes);
    for (int i = 0; i < MT_SAMPLE_STOPS; i++) e->box->stops[i] = -1;
    return MT_OK;
}

mt_status mt_engine_create(mt_engine **out, const mt_model *m, mt_machine *machine, const mt_engine_options *options,
                           mt_error *error) {
    static const mt_engine_options plain;
    const mt_engine_options *o = options ? options : &plain;
    *out = NULL;
    mt_model_info info;
    mt_model_get_info(m, &info);
    const int64_t context = o->context ? o->context : min_i64(info.context, 4096), given = min_i64(o->rows, context);
    if (context < 1 || context > 1 << 24 || o->context < 0)
        return error_set(error, MT_E_ARGUMENT, NULL, "a context of %lld positions; it can have 1 to %d",
                         (long long)context, 1 << 24);
    if (o->rows < 0) return error_set(error, MT_E_ARGUMENT, NULL, "%d rows a run; at least 1 is needed", o->rows);
    mt_engine *e = calloc(1, sizeof *e);
    if (!e) return error_set(error, MT_E_MEMORY, NULL, "no memory for an engine");
    e->model = m;
    e->machine = machine;
    e->options = *o;
    e->context = (int32_t)context;
    e->vocab = info.vocab;
    const bool samples =
        o->sampler == MT_SAMPLER_MACHINE || (o->sampler == MT_SAMPLER_AUTO && is_gpu(mt_machine_name(machine)));
    mt_status status = samples ? make_box(e, error) : MT_OK;
    if (status == MT_OK) status = load_all(e, given, samples ? MT_SAMPLE_PLAIN : MT_SAMPLE_NOT, error);
    if (status == MT_OK)
        *out = e;
    else
        mt_engine_destroy(e);
    return status;
}

void mt_engine_destroy(mt_engine *e) {
    if (!e) return;
    unload(&e->prompt); /* first: they use the single one's states */
    for (size_t i = 0; i < COUNT_OF(e->sampling); i++) unload(&e->sampling[i]);
    unload(&e->single);
    free(e->box);
    free(e->row);
    free(e);
}

mt_status engine_read_logits(mt_engine *e, engine_program *p, mt_error *error) {
    e->last = NULL;
    const mt_status status = mt_session_read(p->session, "logits", e->row, (size_t)e->vocab * sizeof *e->row, error);
    if (status == MT_OK) e->last = e->row;
    return status;
}

/* Feeds what one run takes: one token, or up to `rows`. */
static mt_status feed_once(mt_engine *e, const int32_t *ids, int32_t count, float *logits, mt_error *error) {
    engine_program *l = count == 1 ? &e->single : &e->prompt;
    memcpy(l->ids, ids, (size_t)count * sizeof *ids);
    mt_status status = mt_session_live(l->session, "pos", e->position, error);
    if (status == MT_OK && l->rows > 1) status = mt_session_live(l->session, "rows", count, error);
    if (status == MT_OK) status = mt_session_run(l->session, error);
    if (status == MT_OK && !l->logits) status = engine_read_logits(e, l, error);
    if (status != MT_OK) return status;
    e->position += count;
    if (l->logits) e->last = l->logits + (e->options.all_logits ? (count - 1) * e->vocab : 0);
    if (logits) memcpy(logits, l->logits ? l->logits : e->row, (size_t)count * (size_t)e->vocab * sizeof *logits);
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
    if (logits && !e->options.all_logits)
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
