/* The schedule from end to end: the passes of sched.h, in their order. */
#include <stdlib.h>

#include "sched/sched_internal.h"

typedef struct build_call {
    sched s;
    program_builder *b;
} build_call;

static void build(void *context) {
    build_call *c = context;
    sched *s = &c->s;
    sched_number(s);
    if (s->status == MT_OK) sched_slot_begin(s);
    if (s->status == MT_OK) sched_depend(s);
    if (s->status == MT_OK) sched_barrier(s);
    if (s->status == MT_OK) sched_emit(s, c->b);
}

mt_status sched_build(const mt_graph *lowered, const graph_target *target, mt_program **out, mt_error *error) {
    *out = NULL;
    if (target->processors < 1) return error_set(error, MT_E_ARGUMENT, NULL, "a target has at least one processor");
    if (lowered->node_count > INT32_MAX)
        return error_set(error, MT_E_LIMIT, NULL, "a graph has at most %d nodes", INT32_MAX);
    arena *memory = arena_new();
    build_call *c = memory ? ARENA_NEW(memory, build_call) : NULL;
    program_builder b = {0};
    mt_status status = MT_OK;
    if (!c) {
        status = error_set(error, MT_E_MEMORY, NULL, "no memory for the schedule");
        goto cleanup;
    }
    c->b = &b;
    c->s = (sched){.memory = memory,
                   .graph = lowered,
                   .target = target,
                   .error = error,
                   .node_count = (uint32_t)lowered->node_count};
    if (!arena_protect(memory, build, c))
        status = error_set(error, MT_E_MEMORY, NULL, "no memory for the schedule");
    else
        status = c->s.status;
cleanup:
    arena_free(memory); /* first: checking a program takes much memory, too */
    if (status == MT_OK) return program_finish(&b, out, error);
    free(b.bytes);
    return status;
}
