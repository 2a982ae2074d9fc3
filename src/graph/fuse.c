/* Fusion by rules that the instruction library states itself.
 *
 * A rule is a program with `equals { t = rmsnorm(x, g, eps); y = linear(t, w) }`. The pass looks for a node that
 * applies the last step's program, and walks back: a name that is a parameter of the rule's program is bound to the
 * node's operand (two uses must agree); a name that an earlier step defines must be a temporary, written whole by one
 * node that applies that step's program. Then the last node becomes the fused one in place, and producers that nothing
 * reads any more fall away in graph_lower.
 *
 * What makes a match valid:
 *   - an intermediate has one writer, and its other readers, if any, apply the same program to it in the same place
 * (they will be fused by the same rule, one after another: a norm that q, k and v projections read);
 *   - nothing between a producer and the last node writes what the producer reads, since the reads move down to the
 * last node;
 *   - the constants that the builder fixed on any matched node exist in the fused program.
 *
 * Requires: a checked graph. Ensures: an equivalent graph, nodes in a valid order. */
#include "graph/graph_internal.h"

typedef struct rule {
    const tile_file *file;
    const char *program;
    tile_step step[TILE_STEPS];
    int step_count;
    tile_signature_param signature[TILE_PARAMS];
    int param_count;
} rule;

typedef struct fuser {
    mt_graph *g;
    rule *rules;
    size_t rule_count;
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

static bool bind_param(const mt_graph *g, match *m, int p, const graph_node *n, int from) {
    const tile_param_kind kind = n->signature[from].kind;
    if ((kind <= TILE_INOUT) != (m->rule->signature[p].kind <= TILE_INOUT)) return false;
    if (!m->bound[p]) {
        m->bound[p] = true;
        m->operand[p] = n->operand[from];
        m->arg[p].i = n->arg[from].i;
        return true;
    }
    if (kind == TILE_PARAM_ARG) return m->arg[p].i == n->arg[from].i;
    if (kind == TILE_PARAM_LIVE) return m->operand[p] == n->operand[from];
    return same_view(&g->views[m->operand[p]], &g->views[n->operand[from]]);
}

static bool node_touches(const mt_graph *g, const graph_node *n, int tensor, bool writes) {
    for (int p = 0; p < n->param_count; p++)
        if (n->signature[p].kind <= TILE_INOUT && g->views[n->operand[p]].tensor == tensor)
            if (writes ? n->signature[p].kind != TILE_IN : n->signature[p].kind != TILE_OUT) return true;
    return false;
}

/* The only node that writes the tensor, or -1. */
static int64_t only_writer(const mt_graph *g, int tensor) {
    int64_t writer = -1;
    for (size_t i = 0; i < g->node_count; i++)
        if (node_touches(g, &g->nodes[i], tensor, true)) {
            if (writer >= 0) return -1;
            writer = (int64_t)i;
        }
    return writer;
}

/* True when every node that reads the tensor applies `program` and reads it through parameter `param`. */
static bool readers_alike(const mt_graph *g, int tensor, const char *program, int param) {
    for (size_t i = 0; i < g->node_count; i++) {
        const graph_node *n = &g->nodes[i];
        if (!node_touches(g, n, tensor, false)) continue;
        if (strcmp(n->program, program) || g->views[n->operand[param]].tensor != tensor) return false;
    }
    return true;
}

/* Nothing from node `first` to node `last` (both excluded) writes what `first` reads. */
static bool reads_stay(const mt_graph *g, size_t first, size_t last) {
    const graph_node *n = &g->nodes[first];
    for (int p = 0; p < n->param_count; p++)
        if (n->signature[p].kind == TILE_IN)
            for (size_t i = first + 1; i < last; i++)
                if (node_touches(g, &g->nodes[i], g->views[n->operand[p]].tensor, true)) return false;
    return true;
}

static bool match_step(const mt_graph *g, match *m, int step, size_t node) {
    const tile_step *s = &m->rule->step[step];
    const graph_node *n = &g->nodes[node];
    if (strcmp(n->program, s->program) || n->file != m->rule->file) return false;
    if (m->matched[step]) return m->node[step] == node;
    m->matched[step] = true;
    m->node[step] = node;
    for (int i = 0, inputs = 0, outputs = 0; i < n->param_count; i++) {
        const bool out = n->signature[i].kind == TILE_OUT;
        if (out ? outputs >= s->output_count : inputs >= s->input_count) return false;
        const char *name = out ? s->output[outputs++] : s->input[inputs++];
        const int p = rule_param(m->rule, name);
        if (p >= 0) {
            if (!bind_param(g, m, p, n, i)) return false;
        } else if (!out) { /* an intermediate: an earlier step makes it */
            const graph_view *v = &g->views[n->operand[i]];
            if (g->tensors[v->tensor].role != MT_TEMP || !graph_view_is_whole(g, v)) return false;
            int maker = -1;
            for (int e = 0; e < step && maker < 0; e++)
                for (int o = 0; o < m->rule->step[e].output_count; o++)
                    if (!strcmp(m->rule->step[e].output[o], name)) maker = e;
            const int64_t writer = only_writer(g, v->tensor);
            if (maker < 0 || writer < 0 || (size_t)writer >= node || !readers_alike(g, v->tensor, n->program, i))
                return false;
            if (!reads_stay(g, (size_t)writer, node) || !match_step(g, m, maker, (size_t)writer)) return false;
        }
    }
    return true;
}

static bool constants_fit(const mt_graph *g, const match *m) {
    tile_constant known[TILE_CONSTANTS];
    const int count = tile_constants(m->rule->file, m->rule->program, known);
    for (int s = 0; s < m->rule->step_count; s++)
        for (int c = 0; c < g->nodes[m->node[s]].constant_count; c++) {
            bool found = false;
            for (int k = 0; k < count; k++) found |= !strcmp(known[k].name, g->nodes[m->node[s]].constants[c].name);
            if (!found) return false;
        }
    return true;
}

/* Turns the last matched node into the fused one. */
static void apply(fuser *f, const match *m) {
    mt_graph *g = f->g;
    const rule *r = m->rule;
    graph_node *last = &g->nodes[m->node[r->step_count - 1]];
    graph_node fused = {.name = last->name, .file = r->file, .program = r->program, .param_count = r->param_count};
    memcpy(fused.signature, r->signature, sizeof fused.signature);
    for (int p = 0; p < TILE_PARAMS; p++) fused.operand[p] = -1;
    for (int p = 0; p < r->param_count; p++) {
        fused.operand[p] = m->operand[p];
        fused.arg[p].i = m->arg[p].i;
    }
    for (int s = 0; s < r->step_count; s++)
        for (int c = 0; c < g->nodes[m->node[s]].constant_count; c++) {
            bool found = false;
            for (int k = 0; k < fused.constant_count; k++)
                found |= !strcmp(fused.constants[k].name, g->nodes[m->node[s]].constants[c].name);
            if (!found) fused.constants[fused.constant_count++] = g->nodes[m->node[s]].constants[c];
        }
    *last = fused;
}

static bool try_rule(fuser *f, const rule *r, size_t node) {
    match m = {.rule = r};
    if (!match_step(f->g, &m, r->step_count - 1, node)) return false;
    for (int s = 0; s < r->step_count; s++)
        if (!m.matched[s]) return false;
    for (int p = 0; p < r->param_count; p++)
        if (!m.bound[p]) return false;
    if (!constants_fit(f->g, &m)) return false;
    apply(f, &m);
    return true;
}

static void run(void *context) {
    fuser *f = context;
    mt_graph *g = f->g;
    const tile_file *library;
    if ((f->status = tile_library(&library, f->error)) != MT_OK) return;
    const size_t programs = tile_file_count(library);
    f->rules = ARENA_ARRAY(g->memory, programs, rule);
    for (size_t i = 0; i < programs; i++) {
        rule *r = &f->rules[f->rule_count];
        r->file = library;
        r->program = tile_file_name(library, i);
        r->step_count = tile_equals(library, r->program, r->step);
        r->param_count = tile_signature(library, r->program, r->signature);
        f->rule_count += r->step_count > 0;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t n = 0; n < g->node_count; n++)
            for (size_t r = 0; r < f->rule_count; r++) changed |= try_rule(f, &f->rules[r], n);
        graph_remove_dead(g);
    }
}

mt_status graph_fuse(mt_graph *g, mt_error *error) {
    fuser f = {.g = g, .error = error, .status = MT_OK};
    if (!arena_protect(g->memory, run, &f)) return error_set(error, MT_E_MEMORY, NULL, "no memory to fuse the graph");
    return f.status;
}
