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

mt_status graph_bind_node(mt_graph *g, const graph_node *n, const tile_constant *more, size_t more_count,
                          const tile_op **out, mt_error *error) {
    tile_constant constants[TILE_CONSTANTS * 8]; /* fixed ones, and for each parameter its type and extents, at most */
    _Static_assert(COUNT_OF(constants) >= 2 * TILE_CONSTANTS + TILE_PARAMS * (TILE_RANK + 1),
                   "room for every constant");
    size_t count;
    mt_status status = graph_infer_constants(g, n, constants, &count, error);
    if (status != MT_OK) return status;
    for (size_t i = 0; i < more_count && i < TILE_CONSTANTS; i++)
        if (!find_constant(constants, count, more[i].name)) constants[count++] = more[i];
    text key = {0};
    text_printf(&key, "%p %s", (const void *)n->file, n->program);
    for (size_t i = 0; i < count; i++)
        text_printf(&key, " %s=%lld/%p", constants[i].name, (long long)constants[i].value,
                    (const void *)constants[i].type);
    if (key.failed) return error_set(error, MT_E_MEMORY, n->name, "no memory for an op's key");
    const int64_t known = map_get(&g->bound, key.data, key.length);
    if (known >= 0) {
        *out = g->ops[known];
    } else if ((status = tile_bind(g->memory, out, n->file, n->program, constants, count, NULL, error)) == MT_OK) {
        map_put(g->memory, &g->bound, arena_string(g->memory, key.data, key.length), key.length, (int64_t)g->op_count);
        *ARENA_PUSH(g->memory, g->ops, g->op_count, g->op_capacity) = *out;
    }
    text_free(&key);
    return status;
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
