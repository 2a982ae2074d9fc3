/* Views: slices, selections, transposes and reshapes as ranges on a tensor. A view keeps strides for the machine (where
 * the element is) and, for the schedule, which tensor dimension each of its dimensions walks and the range it stays in.
 */
#include "graph/graph_internal.h"

struct view_call {
    mt_graph *g;
    graph_view v;
    mt_tensor out;
};
static void add_view(void *context) {
    struct view_call *c = context;
    c->out = graph_add_view(c->g, c->v);
}

static mt_status finish(mt_graph *g, const graph_view *v, mt_tensor *out, mt_error *error) {
    struct view_call call = {.g = g, .v = *v};
    if (!arena_protect(g->memory, add_view, &call)) return error_set(error, MT_E_MEMORY, NULL, "no memory for a view");
    *out = call.out;
    return MT_OK;
}

/* Copies view t to *v and checks the dimension. */
static mt_status begin(const mt_graph *g, mt_tensor t, int dimension, graph_view *v, const graph_tensor **tensor,
                       mt_error *error) {
    if (!graph_tensor_valid(g, t)) return error_set(error, MT_E_ARGUMENT, NULL, "there is no tensor %d", t);
    *v = g->views[t];
    *tensor = &g->tensors[v->tensor];
    if (dimension < 0 || dimension >= v->rank)
        return error_set(error, MT_E_ARGUMENT, (*tensor)->name, "dimension %d is not one of the view's %d", dimension,
                         v->rank);
    return MT_OK;
}

/* Cuts dimension d to [first, end) in the strides and in the tensor's range. */
static mt_status cut(graph_view *v, const graph_tensor *t, int d, int64_t first, int64_t end, mt_error *error) {
    if (first < 0 || first >= end || end > v->extent[d])
        return error_set(error, MT_E_ARGUMENT, t->name,
                         "[%lld, %lld) is not a range of dimension %d, whose extent is %lld", (long long)first,
                         (long long)end, d, (long long)v->extent[d]);
    if (v->live[d] >= 0) return error_set(error, MT_E_ARGUMENT, t->name, "dimension %d is live; it cannot be cut", d);
    if (t->type->block > 1 && v->stride[d] == 1 && (first % t->type->block || end % t->type->block))
        return error_set(error, MT_E_ARGUMENT, t->name, "[%lld, %lld) cuts a block of %d elements of %s",
                         (long long)first, (long long)end, t->type->block, t->type->name);
    v->offset += first * v->stride[d];
    v->extent[d] = end - first;
    if (v->base[d] >= 0) {
        v->high[v->base[d]] = v->low[v->base[d]] + end;
        v->low[v->base[d]] += first;
    }
    return MT_OK;
}

mt_status mt_graph_slice(mt_graph *g, mt_tensor t, int dimension, int64_t first, int64_t end, mt_tensor *out,
                         mt_error *error) {
    graph_view v;
    const graph_tensor *tensor;
    *out = -1;
    mt_status status = begin(g, t, dimension, &v, &tensor, error);
    if (status == MT_OK) status = cut(&v, tensor, dimension, first, end, error);
    return status == MT_OK ? finish(g, &v, out, error) : status;
}

static void remove_dimension(graph_view *v, int d) {
    for (int i = d; i + 1 < v->rank; i++) {
        v->extent[i] = v->extent[i + 1];
        v->stride[i] = v->stride[i + 1];
        v->live[i] = v->live[i + 1];
        v->base[i] = v->base[i + 1];
    }
    v->rank--;
}

mt_status mt_graph_select(mt_graph *g, mt_tensor t, int dimension, int64_t index, mt_tensor *out, mt_error *error) {
    graph_view v;
    const graph_tensor *tensor;
    *out = -1;
    mt_status status = begin(g, t, dimension, &v, &tensor, error);
    if (status != MT_OK) return status;
    if (v.rank == 1)
        return error_set(error, MT_E_ARGUMENT, tensor->name, "a view keeps at least one dimension: slice instead");
    const int last = dimension == v.rank - 1 ? v.rank - 2 : v.rank - 1; /* what will be the last dimension */
    if (v.stride[last] != 1 && v.extent[last] > 1)
        return error_set(error, MT_E_UNSUPPORTED, tensor->name,
                         "selecting in the contiguous dimension leaves strided elements; machines read rows");
    if (index < 0 || index >= v.extent[dimension])
        return error_set(error, MT_E_ARGUMENT, tensor->name, "index %lld is not in dimension %d, whose extent is %lld",
                         (long long)index, dimension, (long long)v.extent[dimension]);
    if ((status = cut(&v, tensor, dimension, index, index + 1, error)) != MT_OK) return status;
    remove_dimension(&v, dimension);
    v.stride[v.rank - 1] = 1; /* it is, or there is one element */
    return finish(g, &v, out, error);
}

#define SWAP(type, a, b)                                                                                               \
    do {                                                                                                               \
        const type kept = (a);                                                                                         \
        (a) = (b);                                                                                                     \
        (b) = kept;                                                                                                    \
    } while (0)

mt_status mt_graph_transpose(mt_graph *g, mt_tensor t, int first, int second, mt_tensor *out, mt_error *error) {
    graph_view v;
    const graph_tensor *tensor;
    *out = -1;
    mt_status status = begin(g, t, first, &v, &tensor, error);
    if (status == MT_OK) status = begin(g, t, second, &v, &tensor, error);
    if (status != MT_OK) return status;
    SWAP(int64_t, v.extent[first], v.extent[second]);
    SWAP(int64_t, v.stride[first], v.stride[second]);
    SWAP(int, v.live[first], v.live[second]);
    SWAP(int, v.base[first], v.base[second]);
    if (v.stride[v.rank - 1] != 1)
        return error_set(
            error, MT_E_UNSUPPORTED, tensor->name,
            "the last dimension of a view must be contiguous; machines read rows: copy with a tile program");
    return finish(g, &v, out, error);
}

/* Walks old and new extents from the right in groups of equal products. A group of one old and one new dimension keeps
 * its base; inside a group that splits or merges, the old dimensions must lie together in memory, and the schedule sees
 * the group's whole range. Extents of 1 that only one side has come and go outside of groups. */
mt_status mt_graph_reshape(mt_graph *g, mt_tensor t, int rank, const int64_t *extent, mt_tensor *out, mt_error *error) {
    graph_view v;
    const graph_tensor *tensor;
    *out = -1;
    const mt_status status = begin(g, t, 0, &v, &tensor, error);
    if (status != MT_OK) return status;
    if (rank < 1 || rank > TILE_RANK)
        return error_set(error, MT_E_ARGUMENT, tensor->name, "a view has 1 to %d dimensions, not %d", TILE_RANK, rank);
    if (graph_count(rank, extent) != graph_count(v.rank, v.extent))
        return error_set(error, MT_E_ARGUMENT, tensor->name, "the new shape has another number of elements");
    graph_view n = v;
    n.rank = rank;
    int old = v.rank - 1, new = rank - 1;
    while (new >= 0 || old >= 0) {
        const bool old_one = old >= 0 && v.extent[old] == 1, new_one = new >= 0 && extent[new] == 1;
        if (old_one && !new_one) {
            old--;
            continue;
        }
        if (new_one && !old_one) {
            n.extent[new] = 1, n.stride[new] = new + 1 < rank ? n.stride[new + 1] * n.extent[new + 1] : 1,
            n.live[new] = -1, n.base[new] = -1;
            new --;
            continue;
        }
        const int old_last = old, new_last = new;
        int64_t have = old >= 0 ? v.extent[old] : 1, want = new >= 0 ? extent[new] : 1;
        while (have != want) {
            if (have < want)
                have *= v.extent[--old];
            else
                want *= extent[--new];
        }
        if (old_last >= 0 && new_last >= 0 && old == old_last && new == new_last) {
            n.extent[new] = v.extent[old], n.stride[new] = v.stride[old], n.live[new] = v.live[old],
            n.base[new] = v.base[old];
            old--, new --;
            continue;
        }
        for (int d = old; d <= old_last && d >= 0; d++) {
            if (v.live[d] >= 0 && v.extent[d] > 1)
                return error_set(error, MT_E_ARGUMENT, tensor->name, "live dimension %d cannot be split or merged", d);
            if (d < old_last && v.extent[d] > 1 && v.stride[d] != v.stride[d + 1] * v.extent[d + 1])
                return error_set(error, MT_E_ARGUMENT, tensor->name,
                                 "dimensions %d and %d do not lie together in memory: copy first", d, d + 1);
        }
        int64_t stride = old_last >= 0 ? v.stride[old_last] : 1;
        for (int d = new_last; d >= new &&d >= 0; d--) {
            n.extent[d] = extent[d], n.stride[d] = stride, n.live[d] = -1, n.base[d] = -1;
            stride *= extent[d];
        }
        old--, new --;
    }
    if (tensor->type->block > 1 && n.extent[n.rank - 1] % tensor->type->block)
        return error_set(error, MT_E_ARGUMENT, tensor->name, "the new shape cuts a block of %d elements of %s",
                         tensor->type->block, tensor->type->name);
    return finish(g, &n, out, error);
}

void graph_view_box(const mt_graph *g, const graph_view *v, const tile_interval *box, int64_t *low, int64_t *high) {
    const int rank = g->tensors[v->tensor].rank;
    for (int d = 0; d < rank; d++) low[d] = v->low[d], high[d] = v->high[d];
    for (int d = 0; d < v->rank; d++)
        if (v->base[d] >= 0) {
            low[v->base[d]] = v->low[v->base[d]] + box[d].low;
            high[v->base[d]] = v->low[v->base[d]] + box[d].high;
        }
}

bool graph_view_is_whole(const mt_graph *g, const graph_view *v) {
    int64_t stride = 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (v->stride[d] != stride && v->extent[d] > 1) return false;
        stride *= v->extent[d];
    }
    const graph_tensor *t = &g->tensors[v->tensor];
    return v->offset == 0 && stride == graph_count(t->rank, t->extent);
}
