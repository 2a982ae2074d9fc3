/* The CUDA machine and its sessions: opening, binding, running.
 *
 * A machine is open when its GPU's properties are known. Its context, which takes longer, is made by a thread of its
 * own, and waited for where it is first needed: programs are compiled meanwhile. So a GPU that refuses a context says
 * so when the first session is made.
 *
 * Inputs and outputs of a session's own are pinned host memory that the kernel reads and writes through the bus: they
 * are small, and the host needs no copies. States live in device memory; their address is handed out only to be bound
 * to another session of the same machine. Memory that the caller binds is copied around every run. */
#include "machine/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- the machine ---- */

static void *start_device(void *context) {
    cuda_machine *m = context;
    m->started = cuda_device_start(&m->device, &m->refused);
    return NULL;
}

/* Makes the device current, once it has started. One thread at a time. */
static mt_status enter_device(cuda_machine *m, mt_error *error) {
    if (m->starting) pthread_join(m->starter, NULL);
    m->starting = false;
    if (m->started == MT_OK) return cuda_device_enter(&m->device, error);
    if (error) *error = m->refused;
    return m->started;
}

static void machine_close(mt_machine *base) {
    cuda_machine *m = (cuda_machine *)base;
    mt_error ignored;
    if (enter_device(m, &ignored) == MT_OK) {
        cuda_staging_free(&m->staging);
        cuda_device_leave();
    }
    cuda_device_close(&m->device);
    pthread_mutex_destroy(&m->turn);
    free(m);
}

static mt_status machine_open(mt_machine **out, const char *argument, mt_error *error) {
    char *end = NULL;
    const long ordinal = *argument ? strtol(argument, &end, 10) : 0;
    if (ordinal < 0 || ordinal > 255 || (end && *end))
        return error_set(error, MT_E_ARGUMENT, argument, "\"cuda:N\" wants a device's number, not '%s'", argument);
    cuda_machine *m = calloc(1, sizeof *m);
    if (!m) return error_set(error, MT_E_MEMORY, NULL, "no memory for a machine");
    const mt_status status = cuda_device_open(&m->device, (int)ordinal, error);
    if (status != MT_OK) {
        free(m);
        return status;
    }
    pthread_mutex_init(&m->turn, NULL);
    m->starting = !pthread_create(&m->starter, NULL, start_device, m);
    if (!m->starting) start_device(m);
    *out = &m->base;
    return MT_OK;
}

static int machine_processors(const mt_machine *m) { return ((const cuda_machine *)m)->device.sm_count; }
static const char *machine_architecture(const mt_machine *m) { return ((const cuda_machine *)m)->device.architecture; }

/* Takes the machine's turn with its device current. */
static mt_status enter(cuda_machine *m, mt_error *error) {
    pthread_mutex_lock(&m->turn);
    const mt_status status = enter_device(m, error);
    if (status != MT_OK) pthread_mutex_unlock(&m->turn);
    return status;
}

static void leave(cuda_machine *m) {
    cuda_device_leave();
    pthread_mutex_unlock(&m->turn);
}

/* ---- memory ---- */

static void release(cuda_session *s, cuda_memory *t) {
    cuda_weight_release(s->machine, t->weight);
    if (t->owned_device) {
        for (cuda_block **at = &s->machine->blocks; *at; at = &(*at)->next)
            if ((*at)->device == t->device) {
                cuda_block *gone = *at;
                *at = gone->next;
                free(gone);
                break;
            }
        cuda_memory_free(t->device);
    }
    if (t->owned_host) cuda_api.cuMemFreeHost(t->host);
    *t = (cuda_memory){0};
}

/* Device memory of the session's own, zeroed and listed. */
static mt_status own_device(cuda_session *s, size_t bytes, const char *name, cuda_memory *out, mt_error *error) {
    cuda_block *block = calloc(1, sizeof *block);
    if (!block) return error_set(error, MT_E_MEMORY, name, "no memory for a tensor");
    mt_status status = cuda_memory_new(&block->device, bytes, name, s->machine->device.where, error);
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuMemsetD8Async(block->device, 0, bytes, s->stream), name, error,
                            "cannot clear a tensor");
    if (status != MT_OK) {
        cuda_memory_free(block->device);
        free(block);
        return status;
    }
    block->bytes = bytes;
    block->next = s->machine->blocks;
    s->machine->blocks = block;
    out->device = block->device;
    out->owned_device = true;
    return MT_OK;
}

static mt_status own_memory(cuda_session *s, size_t tensor, mt_error *error) {
    const program_tensor *t = &s->program->tensors[tensor];
    const char *name = program_string(s->program, t->name);
    cuda_memory *m = &s->tensors[tensor];
    if (m->device) return MT_OK;
    s->stale = true;
    if (t->role == MT_STATE) return own_device(s, (size_t)t->bytes, name, m, error);
    mt_status status =
        cuda_check(cuda_api.cuMemHostAlloc(&m->host, (size_t)t->bytes, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED), name,
                   error, "no pinned memory for %lld bytes", (long long)t->bytes);
    if (status != MT_OK) return status;
    m->owned_host = true;
    memset(m->host, 0, (size_t)t->bytes);
    return cuda_check(cuda_api.cuMemHostGetDevicePointer_v2(&m->device, m->host, 0), name, error,
                      "cannot map pinned memory");
}

static mt_status bind_now(cuda_session *s, size_t at, void *data, mt_error *error) {
    const program_tensor *t = &s->program->tensors[at];
    const char *name = program_string(s->program, t->name);
    cuda_memory *m = &s->tensors[at];
    release(s, m);
    s->stale = true;
    if (t->role == MT_WEIGHT) {
        const mt_status status = cuda_weight_get(s->machine, t, s->binding.formats[at], name, s->layouts[at], data,
                                                 s->stream, &m->weight, error);
        if (status == MT_OK) m->device = m->weight->device;
        return status;
    }
    for (const cuda_block *b = s->machine->blocks; b; b = b->next)
        if (b->device == (cuda_address)(uintptr_t)data) { /* another session's state */
            if (b->bytes < (size_t)t->bytes)
                return error_set(error, MT_E_ARGUMENT, name, "the state that is bound has %zu bytes; %lld are needed",
                                 b->bytes, (long long)t->bytes);
            m->device = b->device;
            return MT_OK;
        }
    const mt_status status = own_device(s, (size_t)t->bytes, name, m, error);
    m->host = data;
    m->copied = true;
    return status;
}

static mt_status session_bind(mt_session *base, const char *name, void *data, size_t bytes, bool weight,
                              mt_error *error) {
    cuda_session *s = (cuda_session *)base;
    const int64_t at = machine_names_bound(&s->names, s->program, name, data, bytes, weight, error);
    if (at < 0) return MT_E_ARGUMENT;
    mt_status status = enter(s->machine, error);
    if (status != MT_OK) return status;
    status = bind_now(s, (size_t)at, data, error);
    leave(s->machine);
    return status;
}

static mt_status session_memory(mt_session *base, const char *name, void **data, size_t *bytes, mt_error *error) {
    cuda_session *s = (cuda_session *)base;
    const int64_t at = machine_names_own(&s->names, s->program, name, error);
    if (at < 0) return MT_E_ARGUMENT;
    const program_tensor *t = &s->program->tensors[at];
    mt_status status = enter(s->machine, error);
    if (status != MT_OK) return status;
    status = own_memory(s, (size_t)at, error);
    leave(s->machine);
    if (status != MT_OK) return status;
    *data = s->tensors[at].host ? s->tensors[at].host : (void *)(uintptr_t)s->tensors[at].device;
    if (bytes) *bytes = (size_t)t->bytes;
    return MT_OK;
}

static mt_status session_live(mt_session *base, const char *name, int32_t value, mt_error *error) {
    cuda_session *s = (cuda_session *)base;
    return machine_names_live(&s->names, s->program, name, value, NULL, error);
}

/* ---- loading ---- */

static void session_destroy(mt_session *base) {
    cuda_session *s = (cuda_session *)base;
    if (enter(s->machine, NULL) == MT_OK) {
        if (s->stream) cuda_api.cuStreamSynchronize(s->stream);
        for (size_t i = 0; s->tensors && i < s->program->tensors_count; i++) release(s, &s->tensors[i]);
        cuda_session_unload(s);
        if (s->stream) cuda_api.cuStreamDestroy_v2(s->stream);
        leave(s->machine);
    }
    arena_free(s->memory);
    free(s);
}

static mt_status session_create(mt_session **out, mt_machine *base, const mt_program *p, mt_error *error) {
    cuda_session *s = calloc(1, sizeof *s);
    if (!s) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    s->machine = (cuda_machine *)base;
    s->program = p;
    s->timeout = 10;
    s->stale = s->broken = true;
    s->memory = arena_new();
    if (s->memory) s->tensors = ARENA_ARRAY(s->memory, p->tensors_count, cuda_memory);
    mt_status status = s->tensors ? machine_names_make(&s->names, s->memory, p, error)
                                  : error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    if (status == MT_OK) status = program_bind(p, s->memory, &s->binding, error);
    if (status == MT_OK && (status = enter(s->machine, error)) == MT_OK) {
        status = cuda_check(cuda_api.cuStreamCreate(&s->stream, CUDA_STREAM_NON_BLOCKING), s->machine->device.where,
                            error, "cannot make a stream");
        if (status == MT_OK) status = cuda_session_load(s, error);
        leave(s->machine);
    }
    *out = &s->base;
    if (status != MT_OK) {
        session_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* ---- running ---- */

static mt_status refresh(cuda_session *s, mt_error *error) {
    const mt_program *p = s->program;
    for (size_t i = 0; i < p->tensors_count; i++) {
        const program_tensor *t = &p->tensors[i];
        if (t->role == MT_TEMP) s->tensors[i].device = s->slots + (cuda_address)s->handoff.offset[i];
        if (s->tensors[i].device) continue;
        mt_status status = machine_names_unbound(p, i, error);
        if (status == MT_OK) status = own_memory(s, i, error);
        if (status != MT_OK) return status;
    }
    cuda_tensor *table = calloc(p->operands_count + 1, sizeof *table);
    uintptr_t *addresses = calloc(p->tensors_count + 1, sizeof *addresses);
    cuda_tensor_map *maps =
        aligned_alloc(_Alignof(cuda_tensor_map), (CUDA_MAPS * p->operands_count + 1) * sizeof *maps);
    mt_status status =
        table && addresses && maps ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory for operands");
    for (size_t i = 0; i < p->tensors_count && status == MT_OK; i++) addresses[i] = (uintptr_t)s->tensors[i].device;
    if (status == MT_OK) status = device_operands(p, &s->binding, addresses, &s->handoff, table, error);
    if (status == MT_OK && p->operands_count)
        status = cuda_check(cuda_api.cuMemcpyHtoDAsync_v2(s->tables + s->operands_at, table,
                                                          p->operands_count * sizeof *table, s->stream),
                            s->machine->device.where, error, "cannot copy operands");
    if (status == MT_OK) status = cuda_maps_make(s, table, maps, error);
    if (status == MT_OK && p->operands_count)
        status = cuda_check(cuda_api.cuMemcpyHtoDAsync_v2(s->tables + s->maps_at, maps,
                                                          CUDA_MAPS * p->operands_count * sizeof *maps, s->stream),
                            s->machine->device.where, error, "cannot copy maps");
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuStreamSynchronize(s->stream), s->machine->device.where, error,
                            "cannot copy operands");
    free(table);
    free(addresses);
    free(maps);
    s->stale = status != MT_OK;
    return status;
}

static mt_status describe_failure(const cuda_session *s, mt_error *error) {
    static const char *const roles[] = {"consumers", "loader", "controller"};
    const cuda_failure *f = s->failure;
    const char *role = f->role < COUNT_OF(roles) ? roles[f->role] : "?";
    char name[160] = "no instruction";
    if (f->instruction < s->program->instructions_count)
        program_instruction_name(s->program, f->instruction, name, sizeof name);
    switch (f->reason) {
    case CUDA_BARRIER_WAIT:
        if (f->barrier == (uint32_t)CUDA_END_OF_RUN)
            return error_set(error, MT_E_HANG, name, "SM %u, %s: waited %g s for the others to finish run %u",
                             f->processor, role, s->timeout, f->epoch);
        return error_set(error, MT_E_HANG, name,
                         "SM %u, %s: waited %g s at barrier %u for %u arrivals; there were %u (run %u)", f->processor,
                         role, s->timeout, f->barrier, f->expected, f->actual, f->epoch);
    case CUDA_PAGE_WAIT:
        return error_set(error, MT_E_HANG, name, "SM %u, %s: waited %g s for a page (run %u)", f->processor, role,
                         s->timeout, f->epoch);
    case CUDA_SLOT_WAIT:
        return error_set(error, MT_E_HANG, name, "SM %u, %s: waited %g s for an instruction slot (run %u)",
                         f->processor, role, s->timeout, f->epoch);
    case CUDA_STAMP_WAIT:
        return error_set(error, MT_E_HANG, name, "SM %u, %s: waited %g s for stamped data that nobody posted (run %u)",
                         f->processor, role, s->timeout, f->epoch);
    case CUDA_BAD_OPCODE:
        return error_set(error, MT_E_FORMAT, name, "SM %u, %s: no op has the opcode %u (run %u)", f->processor, role,
                         f->actual, f->epoch);
    default:
        return error_set(error, MT_E_HANG, name, "SM %u, %s: gave up for reason %u (run %u)", f->processor, role,
                         f->reason, f->epoch);
    }
}

/* Copies the caller's memory to the device before a run, or back behind it. */
static mt_status copy_bound(cuda_session *s, bool back, mt_error *error) {
    mt_status status = MT_OK;
    for (size_t i = 0; i < s->program->tensors_count && status == MT_OK; i++) {
        const program_tensor *t = &s->program->tensors[i];
        const cuda_memory *m = &s->tensors[i];
        if (!m->copied || t->role == (back ? MT_INPUT : MT_OUTPUT)) continue;
        status = cuda_check(back ? cuda_api.cuMemcpyDtoHAsync_v2(m->host, m->device, (size_t)t->bytes, s->stream)
                                 : cuda_api.cuMemcpyHtoDAsync_v2(m->device, m->host, (size_t)t->bytes, s->stream),
                            program_string(s->program, t->name), error, "cannot copy a tensor");
    }
    return status;
}

/* What comes before the first launch: tables, counters after a failure, the caller's memory. */
static mt_status prepare(cuda_session *s, mt_error *error) {
    const char *where = s->machine->device.where;
    mt_status status = s->stale ? refresh(s, error) : MT_OK;
    if (status == MT_OK && s->broken) {
        status = cuda_check(cuda_api.cuMemsetD8Async(s->tables + s->counters_at, 0, s->counters_bytes, s->stream),
                            where, error, "cannot clear counters");
        if (status == MT_OK && s->handoff.stamp_bytes)
            status = cuda_check(
                cuda_api.cuMemsetD8Async(s->slots + s->handoff.stamps_at, 0xff, 2 * s->handoff.stamp_bytes, s->stream),
                where, error, "cannot stamp temporaries");
        if (status == MT_OK) status = cuda_trace_clear(s, error);
        memset(s->failure, 0, sizeof *s->failure);
        s->epoch = 0;
        s->broken = status != MT_OK;
    }
    s->launch.timeout = s->timeout > 0 ? (uint64_t)(s->timeout < 1e9 ? s->timeout * 1e9 : 1e18) : UINT64_MAX / 2;
    return status == MT_OK ? copy_bound(s, false, error) : status;
}

/* Starts runs from the live values that are set; `steps`, by live value, is what each further run adds. */
static mt_status launch(cuda_session *s, int32_t runs, const int32_t *steps, mt_error *error) {
    const char *where = s->machine->device.where;
    const size_t bytes = s->program->lives_count * sizeof(int32_t);
    mt_status status = MT_OK;
    if (runs < 1) return error_set(error, MT_E_ARGUMENT, where, "a launch of %d runs", runs);
    if (s->launch.next)
        status = cuda_check(cuda_api.cuMemsetD8Async((cuda_address)(uintptr_t)s->launch.next, 0,
                                                     (size_t)runs * sizeof(uint32_t), s->stream),
                            where, error, "cannot clear counters");
    if (status == MT_OK && bytes)
        status = cuda_check(cuda_api.cuMemcpyHtoDAsync_v2(s->tables + s->lives_at, s->names.values, bytes, s->stream),
                            where, error, "cannot copy live values");
    if (status == MT_OK && bytes && runs > 1)
        status = cuda_check(cuda_api.cuMemcpyHtoDAsync_v2(s->tables + s->lives_at + bytes, steps, bytes, s->stream),
                            where, error, "cannot copy live values");
    if (status != MT_OK) return status;
    s->launch.epoch = s->epoch + 1;
    s->launch.runs = (uint32_t)runs;
    *s->done = (cuda_done){0, 0};
    s->traced_runs = s->traced ? s->launch.runs : 0;
    void *parameters[] = {&s->launch};
    return cuda_check(cuda_api.cuLaunchKernel(s->kernel, (unsigned)s->grid, 1, 1, s->threads, 1, 1, s->shared_bytes,
                                              s->stream, parameters, NULL),
                      where, error, "cannot launch the program");
}

static bool runs_are_counted(const cuda_run *l) { return l->runs > 1 || l->stop_word; } /* as mt_end_of_run has it */

/* Waits for what was launched. *done: the runs that are complete. */
static mt_status finish(cuda_session *s, int32_t *done, mt_error *error) {
    mt_status status = cuda_check(cuda_api.cuStreamSynchronize(s->stream), s->machine->device.where, error,
                                  "the program failed on the device");
    if (status == MT_OK && *(volatile uint32_t *)&s->failure->claimed) status = describe_failure(s, error);
    const bool counted = runs_are_counted(&s->launch);
    *done = (int32_t)(counted ? *(volatile uint32_t *)&s->done->runs : status == MT_OK);
    s->epoch += (uint32_t)*done;
    s->broken = status != MT_OK;
    return status;
}

static mt_status session_run(mt_session *base, mt_error *error) {
    cuda_session *s = (cuda_session *)base;
    int32_t done;
    mt_status status = enter(s->machine, error);
    if (status != MT_OK) return status;
    status = prepare(s, error);
    if (status == MT_OK) status = launch(s, 1, NULL, error);
    if (status == MT_OK) status = copy_bound(s, true, error);
    if (status == MT_OK) status = finish(s, &done, error);
    leave(s->machine);
    return status;
}

/* ---- many runs ---- */

/* Lets the caller look while the launch lasts. True: it wants the loop to end. */
static bool poll_launch(const cuda_session *s, const mt_loop *loop) {
    const struct timespec pause = {0, 50000};
    bool end = false;
    while (!end && cuda_api.cuStreamQuery(s->stream) == CUDA_E_NOT_READY) {
        end = loop->poll(loop->context);
        if (!end) nanosleep(&pause, NULL);
    }
    return end;
}

static mt_status run_loop(cuda_session *s, const mt_loop *loop, const int32_t *steps, int32_t *done, mt_error *error) {
    int64_t most = loop->poll ? CUDA_FIRST_RUNS : CUDA_LOOP_RUNS;
    mt_status status = prepare(s, error);
    for (bool end = false; status == MT_OK && !end && *done < loop->runs;) {
        const int32_t runs = (int32_t)min_i64(loop->runs - *done, most);
        int32_t now = 0;
        for (size_t i = 0; i < loop->live_count && status == MT_OK; i++)
            status = machine_names_live(&s->names, s->program, loop->lives[i].name,
                                        machine_live_at(&loop->lives[i], *done), NULL, error);
        const uint64_t begin = clock_ns();
        if (status == MT_OK) status = launch(s, runs, steps, error);
        if (status != MT_OK) break;
        if (loop->poll) end = poll_launch(s, loop);
        status = finish(s, &now, error);
        *done += now;
        if (loop->poll) most = cuda_next_runs(now, clock_ns() - begin);
        if (loop->poll && !end) end = loop->poll(loop->context); /* what came last */
        end |= now < runs || s->done->stopped;
    }
    for (size_t i = 0; i < loop->live_count && *done; i++)
        machine_names_live(&s->names, s->program, loop->lives[i].name, machine_live_at(&loop->lives[i], *done - 1),
                           NULL, NULL);
    if (status == MT_OK) status = copy_bound(s, true, error);
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuStreamSynchronize(s->stream), s->machine->device.where, error,
                            "cannot copy a tensor");
    return status;
}

static mt_status session_loop(mt_session *base, const mt_loop *loop, int64_t stop, int32_t *done, mt_error *error) {
    cuda_session *s = (cuda_session *)base;
    int32_t *steps = calloc(s->program->lives_count + 1, sizeof *steps);
    if (!steps) return error_set(error, MT_E_MEMORY, NULL, "no memory for a loop");
    for (size_t i = 0; i < loop->live_count; i++) {
        const char *name = loop->lives[i].name;
        steps[map_get(&s->names.lives, name, strlen(name))] = loop->lives[i].step;
    }
    mt_status status = enter(s->machine, error);
    if (status == MT_OK) {
        if (stop >= 0) status = own_memory(s, (size_t)stop, error);
        s->launch.stop_word = stop < 0 ? NULL : (const uint32_t *)(uintptr_t)s->tensors[stop].device;
        if (status == MT_OK) status = run_loop(s, loop, steps, done, error);
        s->launch.stop_word = NULL;
        leave(s->machine);
    }
    free(steps);
    return status;
}

static mt_status session_copy(mt_session *base, const char *name, void *data, size_t bytes, bool write,
                              mt_error *error) {
    cuda_session *s = (cuda_session *)base;
    const int64_t at = machine_names_tensor(&s->names, name, error);
    if (at < 0) return MT_E_ARGUMENT;
    const program_tensor *t = &s->program->tensors[at];
    if (t->role == MT_WEIGHT) return error_set(error, MT_E_ARGUMENT, name, "weight '%s' is the caller's", name);
    if (bytes > (size_t)t->bytes)
        return error_set(error, MT_E_ARGUMENT, name, "tensor '%s' has %lld bytes, not %zu", name, (long long)t->bytes,
                         bytes);
    mt_status status = enter(s->machine, error);
    if (status != MT_OK) return status;
    status = own_memory(s, (size_t)at, error);
    const cuda_memory *m = &s->tensors[at];
    if (status == MT_OK && m->host) {
        memcpy(write ? m->host : data, write ? data : m->host, bytes);
    } else if (status == MT_OK) {
        status = cuda_check(write ? cuda_api.cuMemcpyHtoDAsync_v2(m->device, data, bytes, s->stream)
                                  : cuda_api.cuMemcpyDtoHAsync_v2(data, m->device, bytes, s->stream),
                            name, error, "cannot copy a tensor");
        if (status == MT_OK)
            status = cuda_check(cuda_api.cuStreamSynchronize(s->stream), name, error, "cannot copy a tensor");
    }
    leave(s->machine);
    return status;
}

static void session_timeout(mt_session *base, double seconds) { ((cuda_session *)base)->timeout = seconds; }

static mt_status session_trace(mt_session *base, bool enable, mt_error *error) {
    cuda_session *s = (cuda_session *)base;
    mt_status status = enter(s->machine, error);
    if (status != MT_OK) return status;
    status = cuda_session_trace(s, enable, error);
    leave(s->machine);
    return status;
}

static mt_status session_trace_read(const mt_session *base, mt_trace_record **out, size_t *count, mt_error *error) {
    const cuda_session *s = (const cuda_session *)base;
    mt_status status = enter(s->machine, error);
    if (status != MT_OK) return status;
    status = cuda_trace_read(s, out, count, error);
    leave(s->machine);
    return status;
}

const machine_kind machine_cuda = {
    .name = "cuda",
    .open = machine_open,
    .close = machine_close,
    .processors = machine_processors,
    .architecture = machine_architecture,
    .session_create = session_create,
    .session_destroy = session_destroy,
    .bind = session_bind,
    .memory = session_memory,
    .live = session_live,
    .run = session_run,
    .loop = session_loop,
    .copy = session_copy,
    .timeout = session_timeout,
    .trace = session_trace,
    .trace_read = session_trace_read,
};
