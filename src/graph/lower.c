/* The last passes before the schedule: dead nodes away, ops bound, instances checked, grids laid out; and the copy of a
 * graph that they work on. */
#include "graph/graph_internal.h"
#include "tile/explicit.h"

static void copy_map(arena *a, const map *from, map *to) {
    *to = *from;
    to->entries = ARENA_ARRAY(a, from->capacity, struct map_entry);
    if (from->capacity) memcpy(to->entries, from->entries, from->capacity * sizeof *from->entries);
}

struct clone_call {
    const mt_graph *g;
    mt_graph *copy;
};
static void copy_graph(void *context) {
    struct clone_call *c = context;
    const mt_graph *g = c->g;
    mt_graph *n = c->copy;
#define COPY(items, count, capacity)                                                                                   \
    n->items = arena_array(n->memory, g->count, sizeof *g->items);                                                     \
    if (g->count) memcpy(n->items, g->items, g->count * sizeof *g->items);                                             \
    n->count = n->capacity = g->count
    COPY(tensors, tensor_count, tensor_capacity);
    COPY(views, view_count, view_capacity);
    COPY(lives, live_count, live_capacity);
    COPY(nodes, node_count, node_capacity);
    COPY(files, file_count, file_capacity);
    COPY(formats, format_count, format_capacity);
    COPY(signature_list, signature_count, signature_capacity);
    COPY(ops, op_count, op_capacity);
#undef COPY
    copy_map(n->memory, &g->signatures, &n->signatures);
    copy_map(n->memory, &g->bound, &n->bound);
    copy_map(n->memory, &g->bound_nodes, &n->bound_nodes);
    for (size_t i = 0; i < n->tensor_count; i++)
        map_put(n->memory, &n->tensor_names, n->tensors[i].name, strlen(n->tensors[i].name), (int64_t)i);
    n->unnamed = g->unnamed;
}

mt_status graph_clone(const mt_graph *g, mt_graph **out, mt_error *error) {
    mt_status status = mt_graph_create(out, error);
    if (status != MT_OK) return status;
    struct clone_call call = {g, *out};
    if (arena_protect((*out)->memory, copy_graph, &call)) return MT_OK;
    mt_graph_destroy(*out);
    *out = NULL;
    return error_set(error, MT_E_MEMORY, NULL, "no memory for a copy of the graph");
}

/* A node lives when it writes something that outlives the run, or a temporary that a living node reads. Going
 * backwards, one pass decides. */
void graph_remove_dead(mt_graph *g) {
    bool *needed = ARENA_ARRAY(g->memory, g->tensor_count, bool);
    bool *lives = ARENA_ARRAY(g->memory, g->node_count, bool);
    for (size_t t = 0; t < g->tensor_count; t++) needed[t] = g->tensors[t].role != MT_TEMP;
    for (size_t i = g->node_count; i-- > 0;) {
        const graph_node *n = &g->nodes[i];
        for (int p = 0; p < n->param_count; p++)
            if (n->signature[p].kind == TILE_OUT || n->signature[p].kind == TILE_INOUT)
                lives[i] |= needed[g->views[n->operand[p]].tensor];
        for (int p = 0; p < n->param_count && lives[i]; p++)
            if (n->signature[p].kind == TILE_IN || n->signature[p].kind == TILE_INOUT)
                needed[g->views[n->operand[p]].tensor] = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < g->node_count; i++)
        if (lives[i]) g->nodes[kept++] = g->nodes[i];
    g->node_count = kept;
}

/* Whoever takes stamped data (docs/level2.md) waits until it is posted; data that was not stamped before look as if it
 * had been. So a node in front has to stamp, or, of what outlives a run, any other for the next one; and a node in
 * front, or the one itself, to post. */
static mt_status check_stamps(const mt_graph *g, mt_error *error) {
    bool *stamped = ARENA_ARRAY(g->memory, g->tensor_count + 1, bool),
         *posted = ARENA_ARRAY(g->memory, g->tensor_count + 1, bool);
    for (int turn = 0; turn < 2; turn++) /* first what outlives a run */
        for (size_t i = 0; i < g->node_count; i++) {
            const graph_node *n = &g->nodes[i];
            for (int p = 0; n->op->level2 && p < n->param_count; p++) {
                if (n->signature[p].kind != TILE_INOUT) continue;
                const int tensor = g->views[n->operand[p]].tensor;
                stamped[tensor] |= (turn || g->tensors[tensor].role != MT_TEMP) && explicit_has(n->op, LEVEL2_STAMP, p);
                posted[tensor] |= turn && explicit_has(n->op, LEVEL2_POST, p);
                if (!turn || (stamped[tensor] && posted[tensor]) || !explicit_has(n->op, LEVEL2_TAKE, p)) continue;
                return error_set(error, MT_E_ARGUMENT, n->name,
                                 "'%s' takes what is posted in '%s', and no node in front %s", n->program,
                                 g->tensors[tensor].name,
                                 posted[tensor] ? "stamps it: it would take what was there before"
                                                : "posts it: it would wait for ever");
            }
        }
    return MT_OK;
}

struct lower_call {
    mt_graph *g;
    mt_error *error;
    mt_status status;
};
static void lower(void *context) {
    struct lower_call *c = context;
    mt_graph *g = c->g;
    graph_remove_dead(g);
    map lowered = {0}; /* by a node's key: the first node that has it */
    for (size_t i = 0; i < g->node_count; i++) {
        graph_node *n = &g->nodes[i];
        graph_node_key(g, n);
        const int64_t equal = graph_key_get(g, &lowered);
        if (equal >= 0) {
            const graph_node *like = &g->nodes[equal];
            n->op = like->op;
            n->instance = like->instance;
            n->instruction_count = like->instruction_count;
            memcpy(n->grid, like->grid, sizeof n->grid);
            continue;
        }
        graph_key_put(g, &lowered, (int64_t)i);
        if ((c->status = graph_bind_node(g, n, NULL, 0, &n->op, c->error)) != MT_OK) return;
        tile_instance *instance = ARENA_NEW(g->memory, tile_instance);
        graph_node_instance(g, n, n->op, instance);
        n->instance = instance;
        c->status = tile_instance_check(instance, c->error);
        if (c->status == MT_OK && (n->instruction_count = tile_instance_grid(instance, n->grid)) < 0)
            c->status =
                error_set(c->error, MT_E_LIMIT, n->name, "op '%s' has more than 2^31 - 1 instructions", n->program);
        if (c->status != MT_OK) {
            if (c->error) snprintf(c->error->where, sizeof c->error->where, "%s", n->name);
            return;
        }
    }
    c->status = check_stamps(g, c->error);
}

mt_status graph_lower(mt_graph *g, mt_error *error) {
    struct lower_call call = {g, error, MT_OK};
    if (!arena_protect(g->memory, lower, &call))
        return error_set(error, MT_E_MEMORY, NULL, "no memory to lower the graph");
    return call.status;
}
