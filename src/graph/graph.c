/* Building graphs: tensors, live values and nodes. A node is checked when it is added: its program is bound with the
 * constants known so far and defaults for the rest, so that a wrong shape is reported where it was written, and the
 * shapes of new outputs follow. */
#include "graph/graph_internal.h"

#include <limits.h>
#include <stdlib.h>

mt_status mt_graph_create(mt_graph **out, mt_error *error) {
    *out = NULL;
    arena *memory = arena_new();
    mt_graph *g = memory ? ARENA_NEW(memory, mt_graph) : NULL;
    if (!g) {
        arena_free(memory);
        return error_set(error, MT_E_MEMORY, NULL, "no memory for a graph");
    }
    g->memory = memory;
    *out = g;
    return MT_OK;
}

void mt_graph_destroy(mt_graph *g) {
    if (!g) return;
    arena_free(g->trial);
    arena_free(g->memory);
}

bool graph_tensor_valid(const mt_graph *g, mt_tensor t) { return t >= 0 && (size_t)t < g->view_count; }

mt_tensor graph_add_view(mt_graph *g, graph_view v) {
    *ARENA_PUSH(g->memory, g->views, g->view_count, g->view_capacity) = v;
    return (mt_tensor)(g->view_count - 1);
}

mt_tensor graph_add_tensor(mt_graph *g, graph_tensor t) {
    if (!t.name) t.name = arena_printf(g->memory, "t%d", g->unnamed++);
    t.bytes = tile_format_bytes(t.type, graph_count(t.rank, t.extent));
    graph_view v = {.tensor = (int)g->tensor_count, .rank = t.rank};
    int64_t stride = 1;
    for (int d = t.rank - 1; d >= 0; d--) {
        v.extent[d] = v.high[d] = t.extent[d];
        v.stride[d] = stride;
        v.base[d] = d;
        v.live[d] = t.live[d];
        stride *= t.extent[d];
    }
    map_put(g->memory, &g->tensor_names, t.name, strlen(t.name), (int64_t)g->tensor_count);
    *ARENA_PUSH(g->memory, g->tensors, g->tensor_count, g->tensor_capacity) = t;
    return graph_add_view(g, v);
}

int64_t graph_count(int rank, const int64_t *extent) {
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        if (extent[d] < 1 || __builtin_mul_overflow(count, extent[d], &count) || count > GRAPH_MOST_ELEMENTS) return -1;
    return count;
}

/* ---- types ---- */

const tile_format *graph_type(mt_graph *g, const tile_format *f) {
    if (!f || !tile_format_is_block(f)) return f;
    for (size_t i = 0; i < g->format_count; i++)
        if (tile_format_same(g->formats[i], f)) return g->formats[i];
    return *ARENA_PUSH(g->memory, g->formats, g->format_count, g->format_capacity) = f;
}

/* A type by name: of the given file, if any, then of those in use, then of the library. NULL: there is none. */
static const tile_format *find_type(const mt_graph *g, const tile_file *file, const char *name) {
    const tile_format *everywhere = tile_format_find(name), *found = file ? tile_file_find_format(file, name) : NULL;
    for (size_t i = 0; i < g->file_count && (!found || found == everywhere); i++)
        found = tile_file_find_format(g->files[i], name);
    return found ? found : everywhere;
}

struct use_call {
    mt_graph *g;
    const tile_file *file;
};
static void add_file(void *context) {
    struct use_call *c = context;
    *ARENA_PUSH(c->g->memory, c->g->files, c->g->file_count, c->g->file_capacity) = c->file;
}

mt_status mt_graph_use(mt_graph *g, const mt_tile *file, mt_error *error) {
    struct use_call call = {g, (const tile_file *)file};
    const tile_file *library;
    const mt_status status = tile_library(&library, error);
    if (status != MT_OK || call.file == library) return status; /* it is always in use */
    for (size_t i = 0; i < g->file_count; i++)
        if (g->files[i] == call.file) return MT_OK;
    for (size_t i = 0; i < tile_file_format_count(call.file); i++) {
        const tile_format *f = tile_file_format(call.file, i), *known = find_type(g, NULL, f->name);
        if (known && known != tile_format_find(f->name) && !tile_format_same(known, f))
            return error_set(error, MT_E_ARGUMENT, f->name, "another file declares another format of this name");
    }
    return arena_protect(g->memory, add_file, &call)
               ? MT_OK
               : error_set(error, MT_E_MEMORY, NULL, "no memory for another file of a graph");
}

/* ---- tensors and live values ---- */

struct tensor_call {
    mt_graph *g;
    graph_tensor t;
    mt_tensor out;
};
static void add_tensor(void *context) {
    struct tensor_call *c = context;
    if (c->t.name) c->t.name = arena_string(c->g->memory, c->t.name, strlen(c->t.name));
    c->t.type = graph_type(c->g, c->t.type);
    c->out = graph_add_tensor(c->g, c->t);
}

mt_status mt_graph_tensor(mt_graph *g, mt_role role, const char *name, const char *type, int rank,
                          const int64_t *extent, mt_tensor *out, mt_error *error) {
    *out = -1;
    const char *shown = name ? name : "a temporary";
    const tile_format *format = find_type(g, NULL, type);
    if (!format) return error_set(error, MT_E_ARGUMENT, shown, "there is no type or format named '%s'", type);
    if ((unsigned)role > MT_TEMP)
        return error_set(error, MT_E_ARGUMENT, shown, "%d is not a role of a tensor", (int)role);
    if (!name && role != MT_TEMP)
        return error_set(error, MT_E_ARGUMENT, shown, "a tensor that is not MT_TEMP needs a name");
    if (rank < 1 || rank > TILE_RANK)
        return error_set(error, MT_E_ARGUMENT, shown, "a tensor has 1 to %d dimensions, not %d", TILE_RANK, rank);
    struct tensor_call call = {.g = g, .t = {.name = name, .type = format, .rank = rank, .role = role}};
    for (int d = 0; d < rank; d++) {
        if (extent[d] < 1)
            return error_set(error, MT_E_ARGUMENT, shown, "extent %d is %lld; it must be at least 1", d,
                             (long long)extent[d]);
        call.t.extent[d] = extent[d];
        call.t.live[d] = -1;
    }
    const int64_t count = graph_count(rank, extent);
    if (count < 0) return error_set(error, MT_E_LIMIT, shown, "the tensor has more than 2^48 elements");
    if (extent[rank - 1] % format->block)
        return error_set(error, MT_E_ARGUMENT, shown,
                         "the last extent of a %s tensor must be a multiple of %d, not %lld", type, format->block,
                         (long long)extent[rank - 1]);
    if (name && map_get(&g->tensor_names, name, strlen(name)) >= 0)
        return error_set(error, MT_E_ARGUMENT, name, "there is a tensor of this name already");
    if (!arena_protect(g->memory, add_tensor, &call))
        return error_set(error, MT_E_MEMORY, shown, "no memory for a tensor");
    *out = call.out;
    return MT_OK;
}

struct live_call {
    mt_graph *g;
    graph_live live;
};
static void add_live(void *context) {
    struct live_call *c = context;
    c->live.name = arena_string(c->g->memory, c->live.name, strlen(c->live.name));
    map_put(c->g->memory, &c->g->live_names, c->live.name, strlen(c->live.name), (int64_t)c->g->live_count);
    *ARENA_PUSH(c->g->memory, c->g->lives, c->g->live_count, c->g->live_capacity) = c->live;
}

mt_status mt_graph_live(mt_graph *g, const char *name, int32_t least, int32_t most, mt_live *out, mt_error *error) {
    *out = -1;
    if (least > most)
        return error_set(error, MT_E_ARGUMENT, name, "the least value %d is above the most, %d", least, most);
    if (map_get(&g->live_names, name, strlen(name)) >= 0)
        return error_set(error, MT_E_ARGUMENT, name, "there is a live value of this name already");
    if (g->live_count >= GRAPH_MOST_LIVES)
        return error_set(error, MT_E_LIMIT, name, "a graph has at most %d live values", GRAPH_MOST_LIVES);
    struct live_call call = {g, {name, least, most}};
    if (!arena_protect(g->memory, add_live, &call))
        return error_set(error, MT_E_MEMORY, name, "no memory for a live value");
    *out = (mt_live)(g->live_count - 1);
    return MT_OK;
}

mt_status mt_graph_live_extent(mt_graph *g, mt_tensor t, int dimension, mt_live live, mt_error *error) {
    if (!graph_tensor_valid(g, t)) return error_set(error, MT_E_ARGUMENT, NULL, "there is no tensor %d", t);
    graph_view *v = &g->views[t];
    graph_tensor *tensor = &g->tensors[v->tensor];
    if (dimension < 0 || dimension >= v->rank || v->rank != tensor->rank)
        return error_set(error, MT_E_ARGUMENT, tensor->name, "dimension %d is not one of the tensor's %d", dimension,
                         tensor->rank);
    if (live < 0 || (size_t)live >= g->live_count)
        return error_set(error, MT_E_ARGUMENT, tensor->name, "there is no live value %d", live);
    if (g->lives[live].least < 0 || g->lives[live].most > tensor->extent[dimension])
        return error_set(error, MT_E_ARGUMENT, tensor->name, "live value '%s' goes from %d to %d; the extent is %lld",
                         g->lives[live].name, g->lives[live].least, g->lives[live].most,
                         (long long)tensor->extent[dimension]);
    if (tensor->type->block > 1 && dimension == tensor->rank - 1)
        return error_set(error, MT_E_ARGUMENT, tensor->name, "the last dimension of a block format cannot be live");
    tensor->live[dimension] = v->live[dimension] = live;
    return MT_OK;
}

/* ---- nodes ---- */

static int find_param(const graph_node *n, const char *name) {
    for (int i = 0; i < n->param_count; i++)
        if (!strcmp(n->signature[i].name, name)) return i;
    return -1;
}

static bool is_tensor_param(const tile_signature_param *p) { return p->kind <= TILE_INOUT; }

void graph_add_constant(arena *a, graph_node *n, graph_constant c) {
    graph_constant *all = ARENA_ARRAY(a, (size_t)n->constant_count + 1, graph_constant);
    if (n->constant_count) memcpy(all, n->constants, (size_t)n->constant_count * sizeof *all);
    all[n->constant_count++] = c;
    n->constants = all;
}

/* Puts one mt_operand where it belongs in the node. */
static mt_status take_operand(mt_graph *g, graph_node *n, const mt_operand *o, bool *given, mt_error *error) {
    const int p = find_param(n, o->name);
    const tile_signature_param *param = p < 0 ? NULL : &n->signature[p];
    if (param && given[p]) return error_set(error, MT_E_ARGUMENT, n->name, "'%s' is given twice", o->name);
    if (param) given[p] = true;
    if (!param) { /* a constant of the program */
        if (o->kind != MT_IS_INTEGER && o->kind != MT_IS_TYPE)
            return error_set(error, MT_E_ARGUMENT, n->name, "tile program '%s' has no parameter '%s'", n->program,
                             o->name);
        if (n->constant_count == TILE_CONSTANTS)
            return error_set(error, MT_E_LIMIT, n->name, "more than %d constants", TILE_CONSTANTS);
        graph_constant c = {.name = arena_string(g->memory, o->name, strlen(o->name)), .value = o->integer};
        if (o->kind == MT_IS_TYPE && !(c.type = graph_type(g, find_type(g, n->file, o->type))))
            return error_set(error, MT_E_ARGUMENT, n->name, "there is no type or format named '%s'", o->type);
        graph_add_constant(g->memory, n, c);
        return MT_OK;
    }
    if (is_tensor_param(param)) {
        if (o->kind != MT_IS_TENSOR)
            return error_set(error, MT_E_ARGUMENT, n->name, "'%s' of '%s' is a tensor", o->name, n->program);
        if (!graph_tensor_valid(g, o->tensor))
            return error_set(error, MT_E_ARGUMENT, n->name, "operand '%s': there is no tensor %d", o->name, o->tensor);
        const graph_tensor *t = &g->tensors[g->views[o->tensor].tensor];
        if (param->kind != TILE_IN && (t->role == MT_INPUT || t->role == MT_WEIGHT))
            return error_set(error, MT_E_ARGUMENT, n->name,
                             "'%s' is written by '%s', but tensor '%s' is only read by programs", o->name, n->program,
                             t->name);
        n->operand[p] = o->tensor;
    } else if (param->kind == TILE_PARAM_LIVE) {
        if (o->kind != MT_IS_LIVE)
            return error_set(error, MT_E_ARGUMENT, n->name, "'%s' of '%s' is a live value", o->name, n->program);
        if (o->live < 0 || (size_t)o->live >= g->live_count)
            return error_set(error, MT_E_ARGUMENT, n->name, "operand '%s': there is no live value %d", o->name,
                             o->live);
        n->operand[p] = o->live;
    } else if (param->type && param->type->scalar.kind == TILE_FLOAT) {
        if (o->kind != MT_IS_FLOAT)
            return error_set(error, MT_E_ARGUMENT, n->name, "'%s' of '%s' is a float", o->name, n->program);
        n->arg[p].f = o->number;
    } else {
        if (o->kind != MT_IS_INTEGER || o->integer < INT32_MIN || o->integer > INT32_MAX)
            return error_set(error, MT_E_ARGUMENT, n->name, "'%s' of '%s' is a 32-bit integer", o->name, n->program);
        n->arg[p].i = o->integer;
    }
    return MT_OK;
}

/* A new temporary for out parameter p, whose extents the bound op tells. */
static mt_status make_output(mt_graph *g, graph_node *n, const tile_op *op, const tile_instance *instance, int p,
                             mt_error *error) {
    const tile_param *param = &op->params[p];
    graph_tensor t = {.type = graph_type(g, param->type), .rank = param->rank, .role = MT_TEMP};
    for (int d = 0; d < param->rank; d++) {
        const tile_node *e = param->extent[d];
        if (!tile_instance_most(instance, e, &t.extent[d]) || t.extent[d] < 1)
            return error_set(error, MT_E_ARGUMENT, n->name,
                             "extent %d of output '%s' does not follow from the operands: give the tensor", d,
                             param->name);
        t.live[d] = -1;
        if (e->kind == TILE_EXTENT) {
            const int source = op->extent_source[e->index].param;
            t.live[d] = g->views[n->operand[source]].live[op->extent_source[e->index].dimension];
        } else if (e->kind == TILE_LIVE) {
            t.live[d] = n->operand[e->index];
        }
    }
    if (graph_count(t.rank, t.extent) < 0 || t.extent[t.rank - 1] % t.type->block)
        return error_set(error, MT_E_LIMIT, n->name,
                         "output '%s' would have more than 2^48 elements or parts of a block", param->name);
    n->operand[p] = graph_add_tensor(g, t);
    return MT_OK;
}

struct node_call {
    mt_graph *g;
    const mt_operand *operands;
    size_t count;
    graph_node node;
    mt_tensor *outputs;
    mt_error *error;
    mt_status status;
};

static void add_node(void *context) {
    struct node_call *c = context;
    mt_graph *g = c->g;
    graph_node *n = &c->node;
    mt_error *error = c->error;
    n->program = arena_string(g->memory, n->program, strlen(n->program));
    n->name = n->name ? arena_string(g->memory, n->name, strlen(n->name))
                      : arena_printf(g->memory, "%s.%zu", n->program, g->node_count);
    n->signature = graph_signature(g, n->file, n->program, &n->param_count);
    if (!n->signature) {
        c->status = error_set(error, MT_E_ARGUMENT, n->name, "there is no tile program '%s'", n->program);
        return;
    }
    for (int i = 0; i < TILE_PARAMS; i++) n->operand[i] = -1;
    bool given[TILE_PARAMS] = {false};
    for (size_t i = 0; i < c->count; i++)
        if ((c->status = take_operand(g, n, &c->operands[i], given, error)) != MT_OK) return;
    for (int i = 0; i < n->param_count; i++)
        if (!given[i] && n->signature[i].kind != TILE_OUT) {
            c->status = error_set(error, MT_E_ARGUMENT, n->name, "parameter '%s' of tile program '%s' is not given",
                                  n->signature[i].name, n->program);
            return;
        }
    const tile_op *op;
    if ((c->status = graph_bind_node(g, n, NULL, 0, &op, error)) != MT_OK) return;
    tile_instance instance;
    graph_node_instance(g, n, op, &instance);
    graph_free_extents(&instance);
    for (int i = 0; i < n->param_count; i++)
        if (n->signature[i].kind == TILE_OUT && !given[i])
            if ((c->status = make_output(g, n, op, &instance, i, error)) != MT_OK) return;
    graph_node_instance(g, n, op, &instance);
    if ((c->status = tile_instance_check(&instance, error)) != MT_OK) {
        if (error) snprintf(error->where, sizeof error->where, "%s", n->name);
        return;
    }
    for (int i = 0, o = 0; i < n->param_count; i++)
        if (c->outputs && n->signature[i].kind == TILE_OUT) c->outputs[o++] = n->operand[i];
    *ARENA_PUSH(g->memory, g->nodes, g->node_count, g->node_capacity) = *n;
}

mt_status mt_graph_node(mt_graph *g, const mt_tile *file, const char *program, const char *name,
                        const mt_operand *operands, size_t count, mt_tensor *outputs, mt_error *error) {
    struct node_call call = {
        .g = g, .operands = operands, .count = count, .outputs = outputs, .error = error, .status = MT_OK};
    call.node.name = name;
    call.node.program = program;
    if (file) {
        call.node.file = (const tile_file *)file;
    } else {
        const mt_status status = tile_library(&call.node.file, error);
        if (status != MT_OK) return status;
    }
    if (!arena_protect(g->memory, add_node, &call)) return error_set(error, MT_E_MEMORY, name, "no memory for a node");
    return call.status;
}

char *mt_graph_text(const mt_graph *g) {
    text out = {0};
    graph_dump(g, &out);
    if (out.failed) text_free(&out);
    return out.data;
}
