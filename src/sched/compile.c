/* mt_compile: the passes in their order, over a copy of the graph. */
#include "graph/graph_internal.h"

#include <stdlib.h>

#include "monotile/program.h"
#include "sched/sched.h"

static mt_status dump(const mt_target *t, const mt_graph *g, const char *pass, mt_error *error) {
    if (!t->dump) return MT_OK;
    char *graph = mt_graph_text(g);
    if (!graph) return error_set(error, MT_E_MEMORY, NULL, "no memory to dump the graph");
    t->dump(t->dump_context, pass, graph);
    free(graph);
    return MT_OK;
}

mt_status mt_compile(const mt_graph *g, const mt_target *target, mt_program **out, mt_error *error) {
    static const mt_target plain;
    const mt_target *t = target ? target : &plain;
    const char *machine = t->machine ? t->machine : "cpu";
    const graph_target for_passes = {graph_costs_of(machine, t->architecture),
                                     t->processors > 0 ? t->processors : cpu_count(), t->placement};
    *out = NULL;
    if (!for_passes.costs)
        return error_set(error, MT_E_ARGUMENT, NULL, "there is no kind of machine '%s' to compile for", machine);
    if (t->processors < 0 || t->processors > 4096)
        return error_set(error, MT_E_ARGUMENT, NULL, "a target has 1 to 4096 processors, not %d", t->processors);
    if ((unsigned)t->placement > MT_PLACE_QUEUE)
        return error_set(error, MT_E_ARGUMENT, NULL, "%d is not a placement", (int)t->placement);
    mt_graph *copy;
    mt_status status = graph_clone(g, &copy, error);
    if (status != MT_OK) return status;
    status = dump(t, copy, "before", error);
    const bool narrow = !t->no_fusion && for_passes.costs->wide_flops_per_second > 0;
    if (status == MT_OK && narrow) status = graph_narrow(copy, &for_passes, error);
    if (status == MT_OK && narrow) status = dump(t, copy, "narrow", error);
    if (status == MT_OK && !t->no_fusion) status = graph_fuse(copy, &for_passes, error);
    if (status == MT_OK && !t->no_fusion) status = dump(t, copy, "fuse", error);
    const bool split = !t->no_fusion && for_passes.costs->splits;
    if (status == MT_OK && split) status = graph_split(copy, &for_passes, error);
    if (status == MT_OK && split) status = dump(t, copy, "split", error);
    if (status == MT_OK && split) status = graph_fuse(copy, &for_passes, error);
    if (status == MT_OK && split) status = dump(t, copy, "fuse-split", error);
    if (status == MT_OK) status = graph_choose(copy, &for_passes, error);
    if (status == MT_OK) status = dump(t, copy, "choose", error);
    if (status == MT_OK) status = graph_lower(copy, error);
    if (status == MT_OK) status = dump(t, copy, "lower", error);
    if (status == MT_OK) status = sched_build(copy, &for_passes, out, error);
    mt_graph_destroy(copy);
    return status;
}
