/* Fusion by rules that tile programs state themselves: those of the instruction library, and of the files in use.
 *
 * A rule is a program with `equals { t = rmsnorm(x, g, eps); y = linear(t, w) }`. The pass looks for a node that
 * applies the last step's program, and walks back: a name that is a parameter of the rule's program is bound to the
 * node's operand (two uses must agree); a name that an earlier step defines must be a temporary, written whole by one
 * node that applies that step's program. Then the last node becomes the fused one in place, and producers that nothing
 * reads any more fall away.
 *
 * What makes a match valid:
 *   - an intermediate has one writer, and its other readers, if any, apply the same program to it in the same place
 *     (they will be fused by the same rule, one after another: a norm that q, k and v projections read);
 *   - a producer writes nothing but intermediates;
 *   - nothing behind a producer, up to the last node itself, writes what the producer reads, since the reads move down
 *     to the last node;
 *   - products that are wide on the target (tile/role.h) still are: they read their left operand from memory as it is,
 *     so that a norm, for one, stays a node of its own there;
 *   - the fused node does not take longer: see `pays`;
 *   - the constants that the builder fixed on any matched node exist in the fused program, and its operands fit it.
 *
 * Work. An index answers who writes and who reads a tensor, so that a match costs what its rule is long, and the pass
 * is linear in the nodes. It runs in rounds, since a fused node can be a step of a larger rule, and at most
 * MOST_ROUNDS.
 *
 * Whether it pays. A fused node saves memory traffic and a hand-off, but it may have fewer instructions than its steps:
 * a projection with a norm of each head has one for each head, where the projection alone has as many as it has tiles
 * of columns. Where these few leave half of a target's processors idle, or more, the node is fused only if choose.c's
 * estimate of it is no more than that of its steps one after another, each further one with a hand-off. (With enough
 * instructions it always pays, and estimates of steps would mislead: the rest of a chain may have to stay apart with
 * its first step.) All are judged with the processors that they have beside their neighbours before anything is fused.
 * How long a node takes whose work depends on live values is not known; it is fused.
 *
 * Requires: a checked graph. Ensures: an equivalent graph, nodes in a valid order. */
#include "graph/graph_internal.h"

enum { MOST_ROUNDS = 16 };

typedef struct rule {
    const tile_file *file;
    const char *program;
    tile_step step[TILE_STEPS];
    const tile_signature_param *step_signature[TILE_STEPS]; /* of the step's program; NULL: there is none */
    int step_count;
    const tile_signature_param *signature;
    int param_count;
} rule;

/* How a node reads a tensor: through which parameter of which program. */
typedef struct use {
    const tile_signature_param *program; /* its signature: there is one of each program */
    int32_t tensor, param;
} use;

typedef struct fuser {
    mt_graph *g;
    const graph_target *target;
    rule *rules;
    size_t rule_count, rule_capacity;
    /* The index of a round. A node's writes do not change when it is fused: only reads do. */
    size_t *first_writer; /* by tensor: where its writers begin in `writers`; those of the next tensor end them */
    size_t *writers;      /* nodes in order */
    int64_t *readers;     /* by tensor: nodes that read it */
    int *processors;      /* by node: those that it has (graph_processors_of); NULL without a target */
    map uses;             /* use -> index into use_counts */
    int64_t *use_counts;  /* nodes that read so */
    size_t use_count, use_capacity;
    mt_error *error;
    mt_status status;
} fuser;

typedef struct match { /* a rule on its way to being matched */
    const rule *rule;
    size_t node[TILE_STEPS]; /* the node of each step */
    bool matched[TILE_STEPS];
    bool bound[TILE_PARAMS]; /* by parameter of the rule's program */
    int operand[TILE_PARAMS];
    union {
        int64_t i;
        float f;
    } arg[TILE_PARAMS];
} match;

/* ---- the index -------------------------------------------------------------------------------------------------- */

static bool reads(const tile_signature_param *p) { return p->kind == TILE_IN || p->kind == TILE_INOUT; }
static bool writes(const tile_signature_param *p) { return p->kind == TILE_OUT || p->kind == TILE_INOUT; }

/* The tensor that a node's parameter is bound to. */
static int tensor_of(const mt_graph *g, const graph_node *n, int p) { return g->views[n->operand[p]].tensor; }

/* True when an earlier parameter of the node names the same tensor in the same way, so that it counts once. */
static bool is_repeated(const mt_graph *g, const graph_node *n, int p, bool (*how)(const tile_signature_param *)) {
    for (int e = 0; e < p; e++)
        if (how(&n->signature[e]) && tensor_of(g, n, e) == tensor_of(g, n, p)) return true;
    return false;
}

/* The count of nodes that read a tensor so; NULL when it was never asked to count them. */
static int64_t *uses_of(fuser *f, use u, bool create) {
    const int64_t known = map_get(&f->uses, (const char *)&u, sizeof u);
    if (known >= 0) return &f->use_counts[known];
    if (!create) return NULL;
    use *key = ARENA_NEW(f->g->memory, use);
    *key = u;
    map_put(f->g->memory, &f->uses, (const char *)key, sizeof *key, (int64_t)f->use_count);
    return ARENA_PUSH(f->g->memory, f->use_counts, f->use_count, f->use_capacity);
}

/* Adds a node's reads to the index, or with -1 takes them out of it. */
static void count_reads(fuser *f, const graph_node *n, int by) {
    for (int32_t p = 0; p < n->param_count; p++) {
        if (!reads(&n->signature[p])) continue;
        const int tensor = tensor_of(f->g, n, p);
        *uses_of(f, (use){n->signature, tensor, p}, true) += by;
        if (!is_repeated(f->g, n, p, reads)) f->readers[tensor] += by;
        f->g->fuse_work++;
    }
}

static void make_index(fuser *f) {
    mt_graph *g = f->g;
    f->first_writer = ARENA_ARRAY(g->memory, g->tensor_count + 2, size_t);
    f->readers = ARENA_ARRAY(g->memory, g->tensor_count, int64_t);
    f->uses = (map){0};
    f->use_counts = NULL;
    f->use_count = f->use_capacity = 0;
    for (int fill = 0; fill < 2; fill++) { /* counts each tensor's writers two places on, then fills them in */
        for (size_t i = 0; i < g->node_count; i++) {
            const graph_node *n = &g->nodes[i];
            for (int p = 0; p < n->param_count; p++) {
                if (!writes(&n->signature[p]) || is_repeated(g, n, p, writes)) continue;
                size_t *at = &f->first_writer[tensor_of(g, n, p) + (fill ? 1 : 2)];
                if (fill) f->writers[*at] = i;
                ++*at;
                g->fuse_work++;
            }
        }
        if (fill) break;
        for (size_t t = 0; t < g->tensor_count; t++) f->first_writer[t + 2] += f->first_writer[t + 1];
        f->writers = ARENA_ARRAY(g->memory, f->first_writer[g->tensor_count + 1], size_t);
    }
    f->processors = f->target ? ARENA_ARRAY(g->memory, g->node_count, int) : NULL;
    for (size_t i = 0; i < g->node_count; i++) {
        count_reads(f, &g->nodes[i], 1);
        if (f->target) f->processors[i] = graph_processors_of(g, i, f->target);
    }
}

/* The only node that writes the tensor, or -1. */
static int64_t only_writer(const fuser *f, int tensor) {
    const size_t first = f->first_writer[tensor];
    return f->first_writer[tensor + 1] == first + 1 ? (int64_t)f->writers[first] : -1;
}

/* True when a node behind `first`, up to and with `last`, writes the tensor. */
static bool is_written_between(fuser *f, int tensor, size_t first, size_t last) {
    size_t low = f->first_writer[tensor], high = f->first_writer[tensor + 1];
    const size_t end = high;
    while (low < high) { /* the first writer behind `first` */
        const size_t middle = low + (high - low) / 2;
        if (f->writers[middle] <= first)
            low = middle + 1;
        else
            high = middle;
        f->g->fuse_work++;
    }
    return low < end && f->writers[low] <= last;
}

/* True when every node that reads the tensor applies the same program as n, and reads it through parameter `param`. */
static bool readers_alike(fuser *f, int tensor, const graph_node *n, int param) {
    const int64_t *alike = uses_of(f, (use){n->signature, tensor, param}, false);
    return alike && *alike == f->readers[tensor];
}

/* ---- matching --------------------------------------------------------------------------------------------------- */

static bool same_view(const graph_view *a, const graph_view *b) {
    if (a->tensor != b->tensor || a->rank != b->rank || a->offset != b->offset) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->extent[d] != b->extent[d] || a->stride[d] != b->stride[d] || a->live[d] != b->live[d]) return false;
    return true;
}

static int rule_param(const rule *r, const char *name) {
    for (int p = 0; p < r->param_count; p++)
        if (!strcmp(r->signature[p].name, name)) return p;
    return -1;
}

static bool is_float_arg(const tile_signature_param *p) { return p->type && p->type->scalar.kind == TILE_FLOAT; }

static bool bind_param(const mt_graph *g, match *m, int p, const graph_node *n, int from) {
    const tile_signature_param *is = &n->signature[from], *wanted = &m->rule->signature[p];
    if (is->kind != wanted->kind || is->rank != wanted->rank) return false;
    if (is->kind == TILE_PARAM_ARG && is_float_arg(is) != is_float_arg(wanted)) return false;
    if (!m->bound[p]) {
        m->bound[p] = true;
        m->operand[p] = n->operand[from];
        m->arg[p].i = n->arg[from].i;
        return true;
    }
    if (is->kind == TILE_PARAM_ARG) return m->arg[p].i == n->arg[from].i;
    if (is->kind == TILE_PARAM_LIVE) return m->operand[p] == n->operand[from];
    return same_view(&g->views[m->operand[p]], &g->views[n->operand[from]]);
}

/* Nothing behind node `first` up to the last step's node writes what `first` reads. */
static bool reads_stay(fuser *f, const match *m, size_t first) {
    const graph_node *n = &f->g->nodes[first];
    const size_t last = m->node[m->rule->step_count - 1];
    for (int p = 0; p < n->param_count; p++)
        if (reads(&n->signature[p]) && is_written_between(f, tensor_of(f->g, n, p), first, last)) return false;
    return true;
}

/* The step before `step` that defines the name, and as which of its outputs; -1: there is none. */
static int maker_of(const rule *r, int step, const char *name, int *output) {
    for (int e = 0; e < step; e++)
        for (*output = 0; *output < r->step[e].output_count; ++*output)
            if (!strcmp(r->step[e].output[*output], name)) return e;
    return -1;
}

/* The node's parameter that is its output of that number, or -1. */
static int output_param(const graph_node *n, int output) {
    for (int p = 0; p < n->param_count; p++)
        if (n->signature[p].kind == TILE_OUT && !output--) return p;
    return -1;
}

static bool match_step(fuser *f, match *m, int step, size_t node);

/* Matches the step that makes `name`, which a node of `step` reads through parameter p. */
static bool match_maker(fuser *f, match *m, int step, size_t node, int p, const char *name) {
    const mt_graph *g = f->g;
    const graph_node *n = &g->nodes[node];
    const graph_view *v = &g->views[n->operand[p]];
    if (g->tensors[v->tensor].role != MT_TEMP || !graph_view_is_whole(g, v)) return false;
    int output = 0;
    const int maker = maker_of(m->rule, step, name, &output);
    const int64_t writer = only_writer(f, v->tensor);
    if (maker < 0 || writer < 0 || (size_t)writer >= node || !readers_alike(f, v->tensor, n, p)) return false;
    const graph_node *w = &g->nodes[writer];
    const int made = output_param(w, output);
    if (made < 0 || tensor_of(g, w, made) != v->tensor || !graph_view_is_whole(g, &g->views[w->operand[made]]))
        return false;
    return reads_stay(f, m, (size_t)writer) && match_step(f, m, maker, (size_t)writer);
}

static bool match_step(fuser *f, match *m, int step, size_t node) {
    const tile_step *s = &m->rule->step[step];
    const graph_node *n = &f->g->nodes[node];
    const bool is_last = step == m->rule->step_count - 1;
    f->g->fuse_work++;
    if (n->signature != m->rule->step_signature[step]) return false;
    if (m->matched[step]) return m->node[step] == node;
    m->matched[step] = true;
    m->node[step] = node;
    for (int i = 0, inputs = 0, outputs = 0; i < n->param_count; i++) {
        const tile_param_kind kind = n->signature[i].kind;
        if (kind == TILE_OUT ? outputs >= s->output_count : inputs >= s->input_count) return false;
        const char *name = kind == TILE_OUT ? s->output[outputs++] : s->input[inputs++];
        const int p = rule_param(m->rule, name);
        if (writes(&n->signature[i]) && !is_last && (p >= 0 || kind == TILE_INOUT)) return false;
        if (p >= 0 && !bind_param(f->g, m, p, n, i)) return false;
        if (p < 0 && kind != TILE_OUT && (kind > TILE_INOUT || !match_maker(f, m, step, node, i, name))) return false;
    }
    return true;
}

/* ---- rewriting -------------------------------------------------------------------------------------------------- */

static bool has_constant(const graph_node *n, const char *name) {
    for (int k = 0; k < n->constant_count; k++)
        if (!strcmp(n->constants[k].name, name)) return true;
    return false;
}

/* The fused node of a match. False when constants that were fixed are not its program's, or its operands do not fit. */
static bool make_fused(const mt_graph *g, const match *m, graph_node *out) {
    const rule *r = m->rule;
    *out = (graph_node){.name = g->nodes[m->node[r->step_count - 1]].name,
                        .file = r->file,
                        .program = r->program,
                        .signature = r->signature,
                        .param_count = r->param_count};
    for (int p = 0; p < TILE_PARAMS; p++) {
        out->operand[p] = p < r->param_count ? m->operand[p] : -1;
        if (p < r->param_count) out->arg[p].i = m->arg[p].i;
    }
    tile_constant inferred[TILE_CONSTANTS * 8];
    for (int s = 0; s < r->step_count; s++) {
        const graph_node *n = &g->nodes[m->node[s]];
        for (int c = 0; c < n->constant_count; c++) {
            if (!tile_has_constant(r->file, r->program, n->constants[c].name)) return false;
            if (!has_constant(out, n->constants[c].name)) graph_add_constant(g->memory, out, n->constants[c]);
        }
    }
    size_t count;
    mt_error ignored;
    return graph_infer_constants(g, out, inferred, &count, &ignored) == MT_OK;
}

/* The fused node's processors: as many for its weights as the step with most of them has for its own. */
static int fused_processors(const fuser *f, const match *m, const graph_node *fused) {
    int processors = f->target->processors;
    double most = 0;
    for (int s = 0; s < m->rule->step_count; s++) {
        const double bytes = graph_weight_bytes(f->g, &f->g->nodes[m->node[s]]);
        if (bytes <= most) continue;
        most = bytes;
        processors = f->processors[m->node[s]];
    }
    if (most > 0 && processors < f->target->processors)
        processors = (int)(processors * (graph_weight_bytes(f->g, fused) / most) + 0.5);
    return processors < f->target->processors ? processors : f->target->processors;
}

static bool stays_wide(const fuser *f, const match *m, const graph_node *fused, int processors) {
    bool wide = false;
    for (int s = 0; s < m->rule->step_count; s++)
        wide = wide || graph_is_wide(f->g, &f->g->nodes[m->node[s]], f->target, f->processors[m->node[s]]);
    return !wide || graph_is_wide(f->g, fused, f->target, processors);
}

/* The fused node is not estimated to take longer than its steps, where it would leave processors idle. */
static bool pays(const fuser *f, const match *m, const graph_node *fused, int processors) {
    if (!f->target->costs->splits || !graph_has_few(f->g, fused, f->target)) return true;
    graph_stage stages[TILE_STEPS];
    graph_forecast whole, steps;
    if (!graph_foresee_stages(f->g, &(graph_stage){fused, processors}, 1, f->target, &whole)) return false;
    for (int s = 0; s < m->rule->step_count; s++)
        stages[s] = (graph_stage){&f->g->nodes[m->node[s]], f->processors[m->node[s]]};
    if (!graph_foresee_stages(f->g, stages, (size_t)m->rule->step_count, f->target, &steps)) return true;
    return !whole.steady || !steps.steady || whole.seconds <= steps.seconds;
}

static bool try_rule(fuser *f, const rule *r, size_t node) {
    match m = {.rule = r};
    m.node[r->step_count - 1] = node;
    if (!match_step(f, &m, r->step_count - 1, node)) return false;
    for (int s = 0; s < r->step_count; s++)
        if (!m.matched[s]) return false;
    for (int p = 0; p < r->param_count; p++)
        if (!m.bound[p]) return false;
    graph_node fused;
    if (!make_fused(f->g, &m, &fused)) return false;
    if (f->target) {
        const int processors = fused_processors(f, &m, &fused);
        if (!stays_wide(f, &m, &fused, processors) || !pays(f, &m, &fused, processors)) return false;
        f->processors[node] = processors;
    }
    count_reads(f, &f->g->nodes[node], -1);
    f->g->nodes[node] = fused;
    count_reads(f, &fused, 1);
    return true;
}

/* The rules of a file. A step names a program of the same file, or else one of the library. */
static void add_rules(fuser *f, const tile_file *file, const tile_file *library) {
    const size_t programs = tile_file_count(file);
    for (size_t i = 0; i < programs; i++) {
        rule r = {.file = file, .program = tile_file_name(file, i)};
        r.step_count = tile_equals(file, r.program, r.step);
        if (r.step_count <= 0) continue;
        r.signature = graph_signature(f->g, file, r.program, &r.param_count);
        for (int s = 0; s < r.step_count; s++) {
            int unused;
            r.step_signature[s] = graph_signature(f->g, file, r.step[s].program, &unused);
            if (!r.step_signature[s]) r.step_signature[s] = graph_signature(f->g, library, r.step[s].program, &unused);
        }
        *ARENA_PUSH(f->g->memory, f->rules, f->rule_count, f->rule_capacity) = r;
    }
}

static void run(void *context) {
    fuser *f = context;
    mt_graph *g = f->g;
    const tile_file *library;
    if ((f->status = tile_library(&library, f->error)) != MT_OK) return;
    add_rules(f, library, library);
    for (size_t i = 0; i < g->file_count; i++) add_rules(f, g->files[i], library);
    bool changed = true;
    for (int round = 0; changed && round < MOST_ROUNDS; round++) {
        changed = false;
        make_index(f);
        for (size_t n = 0; n < g->node_count; n++)
            for (size_t r = 0; r < f->rule_count; r++) changed |= try_rule(f, &f->rules[r], n);
        graph_remove_dead(g);
    }
}

mt_status graph_fuse(mt_graph *g, const graph_target *target, mt_error *error) {
    fuser f = {.g = g, .target = target, .error = error, .status = MT_OK};
    if (!arena_protect(g->memory, run, &f)) return error_set(error, MT_E_MEMORY, NULL, "no memory to fuse the graph");
    return f.status;
}
