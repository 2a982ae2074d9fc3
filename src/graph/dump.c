/* The graph as text: tensors, live values, nodes in order. */
#include "graph/graph_internal.h"

static const char *const roles[] = {"input", "weight", "state", "output", "temp"};

static void dump_extents(const mt_graph *g, int rank, const int64_t *extent, const int *live, text *out) {
    for (int d = 0; d < rank; d++) {
        if (live[d] >= 0)
            text_printf(out, "%s%s<=%lld", d ? ", " : "[", g->lives[live[d]].name, (long long)extent[d]);
        else
            text_printf(out, "%s%lld", d ? ", " : "[", (long long)extent[d]);
    }
    text_string(out, "]");
}

static void dump_view(const mt_graph *g, const graph_view *v, text *out) {
    const graph_tensor *t = &g->tensors[v->tensor];
    text_string(out, t->name);
    if (graph_view_is_whole(g, v) && v->rank == t->rank) return;
    for (int d = 0; d < t->rank; d++)
        text_printf(out, "%s%lld:%lld", d ? ", " : "{", (long long)v->low[d], (long long)v->high[d]);
    text_string(out, "} as ");
    dump_extents(g, v->rank, v->extent, v->live, out);
}

void graph_dump(const mt_graph *g, text *out) {
    for (size_t i = 0; i < g->live_count; i++)
        text_printf(out, "live %s in %d..%d\n", g->lives[i].name, g->lives[i].least, g->lives[i].most);
    for (size_t i = 0; i < g->tensor_count; i++) {
        const graph_tensor *t = &g->tensors[i];
        text_printf(out, "%s %s: %s", roles[t->role], t->name, t->type->name);
        dump_extents(g, t->rank, t->extent, t->live, out);
        text_string(out, "\n");
    }
    for (size_t i = 0; i < g->node_count; i++) {
        const graph_node *n = &g->nodes[i];
        text_printf(out, "%zu %s = %s", i, n->name, n->program);
        for (int c = 0; c < n->constant_count; c++) {
            text_printf(out, "%s%s=", c ? ", " : "[", n->constants[c].name);
            if (n->constants[c].type)
                text_string(out, n->constants[c].type->name);
            else
                text_printf(out, "%lld", (long long)n->constants[c].value);
        }
        text_string(out, n->constant_count ? "](" : "(");
        for (int p = 0; p < n->param_count; p++) {
            const tile_signature_param *param = &n->signature[p];
            static const char *const kinds[] = {"", "out ", "inout ", "", "live "};
            text_printf(out, "%s%s%s: ", p ? ", " : "", kinds[param->kind], param->name);
            if (param->kind <= TILE_INOUT)
                dump_view(g, &g->views[n->operand[p]], out);
            else if (param->kind == TILE_PARAM_LIVE)
                text_string(out, g->lives[n->operand[p]].name);
            else if (param->type->scalar.kind == TILE_FLOAT)
                text_printf(out, "%g", (double)n->arg[p].f);
            else
                text_printf(out, "%lld", (long long)n->arg[p].i);
        }
        text_string(out, ")\n");
    }
}
