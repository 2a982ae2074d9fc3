/* Traces and profiles of sessions, for every machine: switching them on and off, reading them. */
#include <stdlib.h>

#include "machine/machine.h"

static mt_status turn(mt_session *s, bool traced, bool profiled, mt_error *error) {
    const bool before = s->traced || s->profiled, after = traced || profiled;
    mt_status status = MT_OK;
    if (after && !s->kind->trace)
        return error_set(error, MT_E_UNSUPPORTED, s->kind->name, "the machine '%s' takes no traces", s->kind->name);
    if (before != after) status = s->kind->trace(s, after, error);
    if (status != MT_OK) return status;
    s->traced = traced;
    s->profiled = profiled;
    return MT_OK;
}

mt_status mt_session_trace(mt_session *s, int enable, mt_error *error) { return turn(s, enable, s->profiled, error); }
mt_status mt_session_profile(mt_session *s, int enable, mt_error *error) { return turn(s, s->traced, enable, error); }

mt_status mt_session_trace_read(mt_session *s, mt_trace_record **out, size_t *count, mt_error *error) {
    *out = NULL;
    *count = 0;
    if (!s->traced && !s->profiled)
        return error_set(error, MT_E_ARGUMENT, NULL, "the session is not traced: mt_session_trace comes first");
    return s->kind->trace_read(s, out, count, error);
}

size_t mt_session_node_times(const mt_session *s, mt_node_time *out, size_t room) {
    const mt_program *p = s->made_from;
    mt_trace_record *records = NULL;
    size_t count = 0;
    if (room && (s->traced || s->profiled)) s->kind->trace_read(s, &records, &count, NULL);
    const uint32_t last = count ? records[count - 1].run : 0;
    for (size_t k = 0; k < p->nodes_count && k < room; k++)
        out[k] = (mt_node_time){program_string(p, p->nodes[k].name), program_string(p, p->ops[p->nodes[k].op].name),
                                p->nodes[k].count, 0};
    for (size_t i = 0; i < count; i++) {
        const mt_trace_record *r = &records[i];
        if (r->run != last || r->instruction >= p->instructions_count) continue;
        const program_instruction *n = &p->instructions[r->instruction];
        if (n->opcode != PROGRAM_JOIN && n->node < room) out[n->node].seconds += (double)(r->done - r->ready) * 1e-9;
    }
    free(records);
    return p->nodes_count;
}
