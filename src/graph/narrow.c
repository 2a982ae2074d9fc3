/* Narrowing: temporaries between nodes lie in the type that their readers round them to anyway.
 *
 * A program whose products are of a 16-bit type says so: dot(P(f32(x[...])), ...). Where x is an f32 temporary and
 * every reader rounds it to the same P, the writer can round it as well, once: f32 values rounded to P are the same
 * bits, whoever does it. The wide strategy (tile/role.h) wants its left operand so, in memory; the pass changes a
 * temporary's type where that makes the products of at least one reader wide, as a whole or in the parts that
 * graph_split would make of it, and leaves it where it would not.
 *
 * Safe when every load of the tensor, in every reader, is rounded to P before anything else is done with it, and every
 * store, in every writer, is of an f32 value. Both are read off the bound programs.
 *
 * Requires: a checked graph. Ensures: an equivalent graph, to the bit. */
#include "graph/graph_internal.h"
#include "tile/role.h"

typedef struct narrower {
    mt_graph *g;
    const graph_target *target;
    size_t *first_use; /* by tensor: where its uses begin in `uses`; those of the next tensor end them */
    struct narrow_use {
        size_t node;
        int param;
    } * uses;  /* in the order of nodes */
    bool wide; /* graph_gets_wide's answer */
} narrower;

/* Which nodes touch a tensor, through which parameters. */
static void find_uses(narrower *w) {
    const mt_graph *g = w->g;
    w->first_use = ARENA_ARRAY(g->memory, g->tensor_count + 2, size_t);
    for (int fill = 0; fill < 2; fill++) { /* counts each tensor's uses two places on, then fills them in */
        for (size_t i = 0; i < g->node_count; i++)
            for (int p = 0; p < g->nodes[i].param_count; p++) {
                if (g->nodes[i].signature[p].kind > TILE_INOUT) continue;
                size_t *at = &w->first_use[g->views[g->nodes[i].operand[p]].tensor + (fill ? 1 : 2)];
                if (fill) w->uses[*at] = (struct narrow_use){i, p};
                ++*at;
            }
        if (fill) break;
        for (size_t t = 0; t < g->tensor_count; t++) w->first_use[t + 2] += w->first_use[t + 1];
        w->uses = ARENA_ARRAY(g->memory, w->first_use[g->tensor_count + 1], struct narrow_use);
    }
}

/* Every load of the parameter in the tree is rounded to *to, which is set by the first. */
static bool is_rounded(const tile_node *n, int param, const tile_format **to) {
    const tile_format *f32 = tile_format_scalar("f32", 3), *first = NULL; /* the innermost cast to another type */
    if (!n) return true;
    const tile_node *x = n;
    while (x->kind == TILE_CAST) {
        if (x->type != f32) first = x->type;
        x = x->a;
    }
    if (x->kind == TILE_LOAD && x->access->param == param) {
        if (!first || !tile_format_is_16_bit_float(first) || (*to && *to != first)) return false;
        *to = first;
    }
    for (int i = 0; i < role_operand_count(x); i++)
        if (!is_rounded(role_operand(x, i), param, to)) return false;
    return true;
}

static bool statements_round(const tile_statement *s, int param, const tile_format **to) {
    for (; s; s = s->next) {
        if (!is_rounded(s->value, param, to) || !is_rounded(s->begin, param, to) || !is_rounded(s->end, param, to))
            return false;
        for (int d = 0; s->access && d < s->access->rank; d++)
            if (!is_rounded(s->access->item[d].start, param, to) || !is_rounded(s->access->item[d].limit, param, to))
                return false;
        if (!statements_round(s->body, param, to) || !statements_round(s->otherwise, param, to)) return false;
    }
    return true;
}

/* Every store to the parameter, which is of a 16-bit type, rounds an f32 value. */
static bool stores_f32(const tile_statement *s, int param) {
    for (; s; s = s->next) {
        const bool here = s->access && s->access->param == param;
        if (here && (s->kind != TILE_STORE || s->adds || s->value->kind != TILE_CAST ||
                     s->value->a->type != tile_format_scalar("f32", 3)))
            return false;
        if (!stores_f32(s->body, param) || !stores_f32(s->otherwise, param)) return false;
    }
    return true;
}

/* The node's products will be wide: as a whole, or in parts. */
static bool gets_wide(narrower *w, size_t n) {
    mt_graph *g = w->g;
    return graph_is_wide(g, &g->nodes[n], w->target, graph_processors_of(g, n, w->target)) ||
           graph_is_wide_in_parts(g, n, w->target);
}

/* The nodes that touch the tensor still bind, its writers store f32 values to it, and some reader is wide. */
static bool is_good(narrower *w, int tensor) {
    mt_graph *g = w->g;
    bool wide = false;
    for (size_t u = w->first_use[tensor]; u < w->first_use[tensor + 1]; u++) {
        const size_t i = w->uses[u].node;
        const graph_node *n = &g->nodes[i];
        const int p = w->uses[u].param;
        const tile_op *op;
        mt_error ignored;
        if (graph_bind_node(g, n, NULL, 0, &op, &ignored) != MT_OK) return false;
        if (n->signature[p].kind == TILE_OUT && !stores_f32(op->body, p)) return false;
        wide = wide || (n->signature[p].kind == TILE_IN && gets_wide(w, i)); /* (a trial may move n) */
    }
    return wide;
}

/* What all readers of the tensor round it to; NULL: nothing, or not the same. */
static const tile_format *rounded_type(narrower *w, int tensor) {
    mt_graph *g = w->g;
    const tile_format *to = NULL;
    for (size_t u = w->first_use[tensor]; u < w->first_use[tensor + 1]; u++) {
        const graph_node *n = &g->nodes[w->uses[u].node];
        const int p = w->uses[u].param;
        const tile_op *op;
        mt_error ignored;
        if (n->signature[p].kind == TILE_INOUT || !n->signature[p].type_constant) return NULL;
        if (n->signature[p].kind == TILE_IN &&
            (graph_bind_node(g, n, NULL, 0, &op, &ignored) != MT_OK || !statements_round(op->body, p, &to)))
            return NULL;
    }
    return to;
}

static void run(void *context) {
    narrower *w = context;
    mt_graph *g = w->g;
    find_uses(w);
    const size_t count = g->tensor_count; /* trials add some */
    for (size_t t = 0; t < count; t++) {
        const graph_tensor before = g->tensors[t];
        if (before.role != MT_TEMP || before.type != graph_type(g, tile_format_scalar("f32", 3))) continue;
        const tile_format *type = rounded_type(w, (int)t);
        if (!type) continue;
        g->tensors[t].type = graph_type(g, type);
        g->tensors[t].bytes /= 2;
        if (!is_good(w, (int)t)) g->tensors[t] = before;
    }
}

mt_status graph_narrow(mt_graph *g, const graph_target *target, mt_error *error) {
    narrower w = {.g = g, .target = target};
    if (!arena_protect(g->memory, run, &w)) return error_set(error, MT_E_MEMORY, NULL, "no memory to narrow tensors");
    return MT_OK;
}

static void look(void *context) {
    narrower *w = context;
    run(w);
    for (size_t i = 0; i < w->g->node_count && !w->wide; i++) w->wide = gets_wide(w, i);
}

bool graph_gets_wide(const mt_graph *g, const graph_target *target) {
    narrower w = {.target = target};
    mt_error ignored;
    if (!target->costs->wide_flops_per_second || graph_clone(g, &w.g, &ignored) != MT_OK) return false;
    (void)arena_protect(w.g->memory, look, &w);
    mt_graph_destroy(w.g);
    return w.wide;
}
