/* What follows from a node's operands: constants by the names in its program's extents and types, free extents, output
 * shapes. */
#include "graph/graph_internal.h"

static const tile_constant *find_constant(const tile_constant *list, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) return &list[i];
    return NULL;
}

mt_status graph_infer_constants(const mt_graph *g, const graph_node *n, tile_constant *out, size_t *count,
                                mt_error *error) {
    *count = 0;
    for (int i = 0; i < n->constant_count; i++) {
        if (find_constant(out, *count, n->constants[i].name))
            return error_set(error, MT_E_ARGUMENT, n->name, "constant '%s' is given twice", n->constants[i].name);
        out[(*count)++] = (tile_constant){n->constants[i].name, n->constants[i].value, n->constants[i].type};
    }
    for (int p = 0; p < n->param_count; p++) {
        const tile_signature_param *param = &n->signature[p];
        if (param->kind > TILE_INOUT || n->operand[p] < 0) continue;
        const graph_view *v = &g->views[n->operand[p]];
        const graph_tensor *t = &g->tensors[v->tensor];
        if (v->rank != param->rank)
            return error_set(error, MT_E_ARGUMENT, n->name, "'%s' of '%s' has %d dimensions; tensor '%s' has %d",
                             param->name, n->program, param->rank, t->name, v->rank);
        const char *name = param->type_constant;
        if (name) {
            const tile_constant *known = find_constant(out, *count, name);
            if (!known)
                out[(*count)++] = (tile_constant){.name = name, .type = t->type};
            else if (known->type != t->type)
                return error_set(error, MT_E_ARGUMENT, n->name, "type %s of '%s' is %s, but tensor '%s' is %s", name,
                                 n->program, known->type ? known->type->name : "an integer", t->name, t->type->name);
        } else if (param->type && param->type != t->type) { /* no such type: binding says so */
            return error_set(error, MT_E_ARGUMENT, n->name, "'%s' of '%s' is %s, but tensor '%s' is %s", param->name,
                             n->program, param->type->name, t->name, t->type->name);
        }
        for (int d = 0; d < param->rank; d++) {
            name = param->extent_name[d];
            if (!param->extent_is_constant[d]) continue;
            if (v->live[d] >= 0)
                return error_set(error, MT_E_ARGUMENT, n->name,
                                 "%s is a constant of '%s', but dimension %d of tensor '%s' is live", name, n->program,
                                 d, t->name);
            const tile_constant *known = find_constant(out, *count, name);
            if (!known)
                out[(*count)++] = (tile_constant){.name = name, .value = v->extent[d]};
            else if (known->type || known->value != v->extent[d])
                return error_set(error, MT_E_ARGUMENT, n->name,
                                 "%s of '%s' is %lld, but dimension %d of tensor '%s' has %lld", name, n->program,
                                 (long long)known->value, d, t->name, (long long)v->extent[d]);
        }
    }
    return MT_OK;
}

/* ---- keys ---- */

void graph_key_add(mt_graph *g, const void *bytes, size_t length) {
    while (g->key_capacity - g->key_length < length) /* arena_grow takes a full array and doubles it */
        g->key = arena_grow(g->memory, g->key, 1, g->key_capacity, &g->key_capacity);
    memcpy(g->key + g->key_length, bytes, length);
    g->key_length += length;
}

static void add_constant(mt_graph *g, const char *name, int64_t value, const tile_format *type) {
    graph_key_add(g, name, strlen(name) + 1);
    graph_key_add(g, &value, sizeof value);
    graph_key_add(g, &type, sizeof type);
}

static void begin_key(mt_graph *g, const tile_file *file, const char *program) {
    g->key_length = 0;
    graph_key_add(g, &file, sizeof file);
    graph_key_add(g, program, strlen(program) + 1);
}

static void add_operand(mt_graph *g, const graph_view *v) {
    const graph_tensor *t = &g->tensors[v->tensor];
    const int place[] = {v->rank, (int)t->role, (int)(v->offset % 8), graph_view_is_whole(g, v)}; /* see choose.c */
    graph_key_add(g, &t->type, sizeof t->type);
    graph_key_add(g, place, sizeof place);
    graph_key_add(g, v->extent, (size_t)v->rank * sizeof *v->extent);
    graph_key_add(g, v->stride, (size_t)v->rank * sizeof *v->stride);
    graph_key_add(g, v->live, (size_t)v->rank * sizeof *v->live);
}

void graph_node_key(mt_graph *g, const graph_node *n) {
    begin_key(g, n->file, n->program);
    for (int c = 0; c < n->constant_count; c++)
        add_constant(g, n->constants[c].name, n->constants[c].value, n->constants[c].type);
    graph_key_add(g, "", 1); /* the end of the names */
    for (int p = 0; p < n->param_count; p++) {
        if (n->signature[p].kind == TILE_PARAM_ARG)
            graph_key_add(g, &n->arg[p], sizeof n->arg[p]);
        else if (n->signature[p].kind == TILE_PARAM_LIVE || n->operand[p] < 0)
            graph_key_add(g, &n->operand[p], sizeof n->operand[p]);
        else
            add_operand(g, &g->views[n->operand[p]]);
    }
}

int64_t graph_key_get(const mt_graph *g, const map *m) { return map_get(m, g->key, g->key_length); }

void graph_key_put(mt_graph *g, map *m, int64_t value) {
    map_put(g->memory, m, arena_string(g->memory, g->key, g->key_length), g->key_length, value);
}

const tile_signature_param *graph_signature(mt_graph *g, const tile_file *file, const char *program, int *count) {
    begin_key(g, file, program);
    int64_t known = graph_key_get(g, &g->signatures);
    if (known < 0) {
        tile_signature_param params[TILE_PARAMS];
        struct graph_signature s = {.count = tile_signature(file, program, params)};
        if (s.count < 0) return NULL;
        s.params = ARENA_ARRAY(g->memory, (size_t)s.count, tile_signature_param);
        for (int i = 0; i < s.count; i++) {
            s.params[i] = params[i];
            s.params[i].type = graph_type(g, params[i].type);
        }
        known = (int64_t)g->signature_count;
        *ARENA_PUSH(g->memory, g->signature_list, g->signature_count, g->signature_capacity) = s;
        graph_key_put(g, &g->signatures, known);
    }
    *count = g->signature_list[known].count;
    return g->signature_list[known].params;
}

/* ---- binding ---- */

enum { MOST_CONSTANTS = TILE_CONSTANTS * 8 }; /* fixed ones, more, and for each parameter its type and extents */
_Static_assert((int)MOST_CONSTANTS >= 2 * TILE_CONSTANTS + TILE_PARAMS * (TILE_RANK + 1), "room for every constant");

static mt_status all_constants(const mt_graph *g, const graph_node *n, const tile_constant *more, size_t more_count,
                               tile_constant *out, size_t *count, mt_error *error) {
    const mt_status status = graph_infer_constants(g, n, out, count, error);
    for (size_t i = 0; status == MT_OK && i < more_count && i < TILE_CONSTANTS; i++)
        if (!find_constant(out, *count, more[i].name)) out[(*count)++] = more[i];
    return status;
}

mt_status graph_bind_node(mt_graph *g, const graph_node *n, const tile_constant *more, size_t more_count,
                          const tile_op **out, mt_error *error) {
    graph_node_key(g, n);
    for (size_t i = 0; i < more_count; i++) add_constant(g, more[i].name, more[i].value, more[i].type);
    int64_t known = graph_key_get(g, &g->bound_nodes);
    if (known >= 0) {
        *out = g->ops[known];
        return MT_OK;
    }
    char *key = arena_string(g->memory, g->key, g->key_length);
    const size_t length = g->key_length;
    tile_constant constants[MOST_CONSTANTS];
    size_t count;
    mt_status status = all_constants(g, n, more, more_count, constants, &count, error);
    if (status != MT_OK) return status;
    begin_key(g, n->file, n->program);
    for (size_t i = 0; i < count; i++) add_constant(g, constants[i].name, constants[i].value, constants[i].type);
    known = graph_key_get(g, &g->bound);
    if (known < 0) {
        status = tile_bind(g->memory, out, n->file, n->program, constants, count, NULL, error);
        if (status != MT_OK) return status;
        known = (int64_t)g->op_count;
        *ARENA_PUSH(g->memory, g->ops, g->op_count, g->op_capacity) = *out;
        graph_key_put(g, &g->bound, known);
    }
    map_put(g->memory, &g->bound_nodes, key, length, known);
    *out = g->ops[known];
    return MT_OK;
}

mt_status graph_try_node(mt_graph *g, const graph_node *n, const tile_constant *more, size_t more_count,
                         const tile_op **out, mt_error *error) {
    tile_constant constants[MOST_CONSTANTS];
    size_t count;
    const mt_status status = all_constants(g, n, more, more_count, constants, &count, error);
    if (status != MT_OK) return status;
    if (g->trial)
        arena_reset(g->trial);
    else if (!(g->trial = arena_new()))
        return error_set(error, MT_E_MEMORY, n->name, "no memory to try an op");
    return tile_bind(g->trial, out, n->file, n->program, constants, count, NULL, error);
}

void graph_node_instance(const mt_graph *g, const graph_node *n, const tile_op *op, tile_instance *out) {
    *out = (tile_instance){.op = op};
    for (int p = 0; p < op->param_count; p++) {
        const tile_param *param = &op->params[p];
        if (param->kind == TILE_PARAM_ARG) {
            if (param->type->scalar.kind == TILE_FLOAT)
                out->arg[param->ordinal].f = n->arg[p].f;
            else
                out->arg[param->ordinal].i = n->arg[p].i;
        } else if (param->kind == TILE_PARAM_LIVE) {
            const graph_live *live = &g->lives[n->operand[p]];
            out->live[param->ordinal].least = live->least;
            out->live[param->ordinal].most = live->most;
        } else if (n->operand[p] >= 0) {
            const graph_view *v = &g->views[n->operand[p]];
            tile_operand *o = &out->tensor[param->ordinal];
            o->rank = v->rank;
            memcpy(o->extent, v->extent, sizeof o->extent);
            for (int d = 0; d < v->rank; d++) o->live[d] = v->live[d] >= 0;
        }
    }
}

void graph_free_extents(tile_instance *i) {
    for (int e = 0; e < i->op->extent_count; e++) {
        const tile_operand *o = &i->tensor[i->op->params[i->op->extent_source[e].param].ordinal];
        i->free_extent[e] = o->rank ? o->extent[i->op->extent_source[e].dimension] : -1; /* -1: no operand yet */
    }
}
