/* Traces of the simulator: its kernel is compiled with MT_TRACE, as a GPU's is (emit/cuda_prelude.h), and notes the
 * steps of virtual SMs. Their clocks say in which order things happened, and nothing of how long they would take. */
#include <dlfcn.h>
#include <stdlib.h>

#include "machine/sim/sim.h"
#include "machine/trace.h"

enum { KEPT = 64 }; /* runs: as many as a launch of session_loop has */

static size_t clocks_bytes(const sim_session *s) {
    return align_up((size_t)s->machine->processors * sizeof(cuda_trace_clock), sizeof(cuda_trace));
}
static size_t records_of_run(const sim_session *s) {
    return s->program->instructions_count + (size_t)s->machine->processors;
}

mt_status sim_session_trace(mt_session *base, bool enable, mt_error *error) {
    sim_session *s = (sim_session *)base;
    const sim_session before = *s;
    s->traced = enable;
    s->traced_launch = (cuda_run){.runs = 0};
    mt_status status = sim_session_code(s, error);
    if (status == MT_OK && enable && !s->trace.data)
        status = sim_memory_new(&s->trace, clocks_bytes(s) + KEPT * records_of_run(s) * sizeof(cuda_trace), "the trace",
                                error);
    void *gone = status == MT_OK ? before.code : s->code == before.code ? NULL : s->code;
    if (status != MT_OK) *s = before;
    if (gone) dlclose(gone);
    return status;
}

void sim_trace_begin(sim_session *s, cuda_run *launch, int ctas) {
    if (!s->traced) return;
    if (s->broken) memset(s->trace.data, 0, s->trace.bytes); /* epochs begin again */
    launch->trace_clocks = (cuda_trace_clock *)s->trace.data;
    launch->trace = (cuda_trace *)(s->trace.data + clocks_bytes(s));
    launch->trace_runs = KEPT;
    s->traced_launch = *launch;
    s->traced_ctas = (uint32_t)ctas;
}

mt_status sim_trace_read(const mt_session *base, mt_trace_record **out, size_t *count, mt_error *error) {
    const sim_session *s = (const sim_session *)base;
    const cuda_run *l = &s->traced_launch;
    const size_t most = (size_t)min_i64(l->runs, KEPT) * records_of_run(s);
    if (!most) return MT_OK;
    *out = calloc(most, sizeof **out);
    if (!*out) return error_set(error, MT_E_MEMORY, NULL, "no memory for a trace");
    *count = trace_convert(l->trace, l->trace_clocks, l, s->traced_ctas, *out);
    return MT_OK;
}
