/* Traces of the CUDA machine. A traced session runs code that is compiled with MT_TRACE (emit/cuda_prelude.h says how
 * it notes its steps), so that others pay nothing. Every SM has a clock of its own: two moments of each launch, on that
 * clock and on the device's, tell how it goes. All SMs tick alike, so the rate is that of all of them together. */
#include <stdlib.h>

#include "machine/cuda/cuda.h"
#include "machine/trace.h"

enum { MOST_BYTES = 64 << 20, MOST_RUNS = 256 };

static size_t records_of_run(const cuda_session *s) { return s->program->instructions_count + (size_t)s->grid; }

/* The clocks come first. */
static size_t clocks_bytes(const cuda_session *s) { return align_up((size_t)s->grid * sizeof(cuda_trace_clock), 16); }

mt_status cuda_trace_clear(cuda_session *s, mt_error *error) {
    const size_t runs = s->trace ? s->launch.trace_runs : 0;
    return runs ? cuda_check(cuda_api.cuMemsetD8Async(s->trace, 0,
                                                      clocks_bytes(s) + runs * records_of_run(s) * sizeof(cuda_trace),
                                                      s->stream),
                             s->machine->device.where, error, "cannot clear a trace")
                : MT_OK;
}

static mt_status make_room(cuda_session *s, mt_error *error) {
    const bool is_new = !s->trace;
    const size_t run = records_of_run(s) * sizeof(cuda_trace), clocks = clocks_bytes(s);
    const size_t runs = (size_t)max_i64(1, min_i64((int64_t)(MOST_BYTES / run), MOST_RUNS));
    mt_status status =
        is_new ? cuda_memory_new(&s->trace, clocks + runs * run, "a trace", s->machine->device.where, error) : MT_OK;
    if (status != MT_OK) return status;
    s->launch.trace_clocks = (cuda_trace_clock *)(uintptr_t)s->trace;
    s->launch.trace = (cuda_trace *)(uintptr_t)(s->trace + clocks);
    s->launch.trace_runs = (uint32_t)runs;
    if (is_new) status = cuda_trace_clear(s, error);
    if (status != MT_OK) {
        cuda_memory_free(s->trace);
        s->trace = 0;
    }
    return status;
}

mt_status cuda_session_trace(cuda_session *s, bool enable, mt_error *error) {
    const cuda_session before = *s;
    s->traced = enable;
    s->module = NULL;
    s->traced_runs = 0;
    mt_status status = cuda_session_code(s, error);
    if (status == MT_OK && enable) status = make_room(s, error);
    const cuda_module gone = status == MT_OK ? before.module : s->module;
    if (gone) cuda_api.cuModuleUnload(gone);
    if (status == MT_OK) return MT_OK;
    const cuda_address trace = s->trace;
    *s = before;
    s->trace = trace;
    return status;
}

mt_status cuda_trace_read(const cuda_session *s, mt_trace_record **out, size_t *count, mt_error *error) {
    const char *where = s->machine->device.where;
    const size_t clocks = clocks_bytes(s),
                 records = (size_t)min_i64(s->traced_runs, s->launch.trace_runs) * records_of_run(s);
    if (!records) return MT_OK;
    char *notes = malloc(clocks + records * sizeof(cuda_trace));
    *out = calloc(records, sizeof **out);
    mt_status status = notes && *out ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory for a trace");
    if (status == MT_OK)
        status =
            cuda_check(cuda_api.cuMemcpyDtoHAsync_v2(notes, s->trace, clocks + records * sizeof(cuda_trace), s->stream),
                       where, error, "cannot copy a trace");
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuStreamSynchronize(s->stream), where, error, "cannot copy a trace");
    if (status == MT_OK) {
        cuda_run launch = s->launch;
        launch.runs = s->traced_runs;
        *count = trace_convert((const cuda_trace *)(notes + clocks), (const cuda_trace_clock *)notes, &launch,
                               (uint32_t)s->grid, *out);
    } else {
        free(*out);
        *out = NULL;
    }
    free(notes);
    return status;
}
