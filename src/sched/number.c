/* Numbers: every node's instructions get consecutive ones, node after node; inside a node in grid order, the first axis
 * the slowest. A large grid of two axes goes in bands of BAND along the first one: those that run at the same time then
 * form a block rather than a line, and what they read of either operand fits into a cache for all. */
#include "sched/sched_internal.h"

enum { BAND = 8 };

void sched_next_index(const graph_node *n, int64_t *index) {
    if (n->op->axis_total != 2 || n->grid[0] < 2 * BAND || n->grid[1] < 2 * BAND) {
        for (int a = n->op->axis_total - 1; a >= 0 && ++index[a] == n->grid[a]; a--) index[a] = 0;
        return;
    }
    const int64_t band = index[0] / BAND * BAND, end = min_i64(band + BAND, n->grid[0]);
    if (++index[0] < end) return;
    index[0] = band;
    if (++index[1] < n->grid[1]) return;
    index[1] = 0;
    index[0] = end < n->grid[0] ? end : 0;
}

void sched_number(sched *s) {
    const mt_graph *g = s->graph;
    s->first = ARENA_ARRAY(s->memory, (size_t)s->node_count + 1, uint32_t);
    s->written = ARENA_ARRAY(s->memory, g->tensor_count, bool);
    for (size_t t = 0; t < g->tensor_count; t++)
        s->written[t] = g->tensors[t].role == MT_TEMP; /* by whoever had its bytes before */
    uint64_t total = 0;
    for (uint32_t n = 0; n < s->node_count; n++) {
        const graph_node *node = &g->nodes[n];
        s->first[n] = (uint32_t)total;
        total += (uint64_t)node->instruction_count;
        if (total > UINT32_MAX / 4) { /* leaves room for joins, and keeps numbers times small factors in 32 bits */
            s->status = error_set(s->error, MT_E_LIMIT, node->name, "the program has more than %u instructions",
                                  UINT32_MAX / 4);
            return;
        }
        for (int p = 0; p < node->op->param_count; p++)
            if (node->op->params[p].kind == TILE_OUT || node->op->params[p].kind == TILE_INOUT)
                s->written[g->views[node->operand[p]].tensor] = true;
    }
    s->first[s->node_count] = s->instruction_count = (uint32_t)total;
}
