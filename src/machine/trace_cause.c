/* Why instructions began when they did. */
#include "machine/trace.h"

#include <stdlib.h>

#define MOST_TIME (INT64_C(1) << 50) /* 13 days: sums and differences of times are far from overflow */

static bool possible(int64_t nanoseconds) { return nanoseconds > -MOST_TIME && nanoseconds < MOST_TIME; }

mt_status trace_check(const mt_program *p, const mt_trace_record *records, size_t count, mt_error *error) {
    for (size_t i = 0; i < count; i++) {
        const mt_trace_record *r = &records[i], *last = i ? &records[i - 1] : r;
        if (r->instruction > p->instructions_count)
            return error_set(error, MT_E_ARGUMENT, NULL,
                             "record %zu is of instruction %u; the program has %zu: it is another program's", i,
                             r->instruction, p->instructions_count);
        if (r->launch < last->launch ||
            (r->launch == last->launch &&
             (r->run < last->run || (r->run == last->run && r->instruction < last->instruction))))
            return error_set(error, MT_E_ARGUMENT, NULL, "record %zu is out of order: by launch, run, instruction", i);
        if (r->processor > UINT16_MAX || !possible(r->fetched) || !possible(r->received) || !possible(r->ready) ||
            !possible(r->first_page) || !possible(r->done) || !possible(r->synced) || !possible(r->arrived) ||
            !possible(r->load_begin) || !possible(r->load_end) || !possible(r->page_wait) || !possible(r->load_wait))
            return error_set(error, MT_E_ARGUMENT, NULL, "record %zu has an impossible time or processor", i);
    }
    return MT_OK;
}

size_t trace_run_end(const mt_trace_record *records, size_t count, size_t first) {
    size_t i = first;
    while (i < count && records[i].launch == records[first].launch && records[i].run == records[first].run) i++;
    return i;
}

mt_status trace_causes(const mt_program *p, const mt_trace_record *records, size_t count, trace_cause *causes,
                       mt_error *error) {
    int64_t most = 0;
    for (size_t i = 0; i < count; i++) most = max_i64(most, records[i].processor);
    int64_t *last = malloc((p->barriers_count + 1) * sizeof *last); /* by barrier: the record that arrived last */
    int64_t *before = malloc(((size_t)most + 1) * sizeof *before);  /* by processor */
    if (!last || !before) {
        free(last);
        free(before);
        return error_set(error, MT_E_MEMORY, NULL, "no memory for a trace");
    }
    for (size_t first = 0, end; first < count; first = end) {
        end = trace_run_end(records, count, first);
        for (size_t b = 0; b < p->barriers_count; b++) last[b] = -1;
        for (int64_t k = 0; k <= most; k++) before[k] = -1;
        for (size_t i = first; i < end; i++) { /* arrivals at a barrier have lower numbers than waits for it */
            const mt_trace_record *r = &records[i];
            causes[i] = (trace_cause){-1, before[r->processor]};
            before[r->processor] = (int64_t)i;
            if (r->instruction == p->instructions_count) continue;
            const program_instruction *n = &p->instructions[r->instruction];
            for (int k = 0; k < n->wait_count; k++) {
                const int64_t candidate = last[n->wait[k]], now = causes[i].producer;
                if (candidate >= 0 && (now < 0 || records[candidate].arrived > records[now].arrived))
                    causes[i].producer = candidate;
            }
            for (int k = 0; k < n->arrive_count; k++) {
                int64_t *at = &last[n->arrive[k]];
                if (*at < 0 || r->arrived >= records[*at].arrived) *at = (int64_t)i;
            }
        }
    }
    free(last);
    free(before);
    return MT_OK;
}
