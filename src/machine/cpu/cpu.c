/* The CPU machine and its sessions: opening, loading, binding. cpu_run.c runs, cpu_compile.c compiles. */
#include "machine/cpu/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "monotile/graph.h"

enum { SPIN_NS = 10000 }; /* longer costs more than it saves where others want the processors too */
static const double default_timeout = 10;

/* ---- the machine ---- */

static void machine_close(mt_machine *base) {
    cpu_machine *m = (cpu_machine *)base;
    cpu_machine_stop(m);
    free(m->workers);
    free(m);
}

static mt_status machine_open(mt_machine **out, const char *argument, mt_error *error) {
    long workers = cpu_count();
    char *end = NULL;
    if (*argument) {
        errno = 0;
        workers = strtol(argument, &end, 10);
        if (errno || *end || workers < 1 || workers > CPU_MOST_WORKERS)
            return error_set(error, MT_E_ARGUMENT, argument,
                             "\"cpu:N\" wants a number of workers from 1 to %d, not '%s'", CPU_MOST_WORKERS, argument);
    }
    cpu_machine *m = calloc(1, sizeof *m);
    if (m) m->workers = calloc((size_t)workers, sizeof *m->workers);
    if (!m || !m->workers) {
        free(m);
        return error_set(error, MT_E_MEMORY, NULL, "no memory for a machine");
    }
    m->worker_count = (int)workers;
    m->spin_ns = workers <= cpu_count() ? SPIN_NS : 0; /* who spins takes the time of the one it waits for */
    const mt_status status = cpu_machine_start(m, error);
    *out = &m->base;
    if (status != MT_OK) {
        machine_close(*out);
        *out = NULL;
    }
    return status;
}

static int machine_processors(const mt_machine *m) { return ((const cpu_machine *)m)->worker_count; }

/* ---- memory ---- */

/* Zeroed pages that take no memory until they are touched, and are aligned to far more than PROGRAM_ALIGNMENT. */
static mt_status map_memory(cpu_memory *out, size_t bytes, const char *name, mt_error *error) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return error_set(error, MT_E_MEMORY, name, "no memory for %zu bytes", bytes);
    *out = (cpu_memory){data, bytes, true};
    return MT_OK;
}

static void unmap_memory(cpu_memory *m) {
    if (m->owned) munmap(m->data, m->bytes);
    *m = (cpu_memory){0};
}

/* The alignment that a weight's elements need. Blocks and sub-byte elements are read by bytes. */
static size_t weight_alignment(const tile_format *f) { return f->block == 1 && f->bits > 8 ? (size_t)f->bits / 8 : 1; }

static mt_status session_bind(mt_session *base, const char *name, void *data, size_t bytes, bool weight,
                              mt_error *error) {
    cpu_session *s = (cpu_session *)base;
    const int64_t at = machine_names_bound(&s->names, s->program, name, data, bytes, weight, error);
    if (at < 0) return MT_E_ARGUMENT;
    const program_tensor *t = &s->program->tensors[at];
    const size_t alignment = t->role == MT_WEIGHT ? weight_alignment(s->binding.formats[at]) : PROGRAM_ALIGNMENT;
    if ((uintptr_t)data % alignment)
        return error_set(error, MT_E_ARGUMENT, name, "tensor '%s' must be aligned to %zu bytes", name, alignment);
    unmap_memory(&s->tensors[at]);
    s->tensors[at] = (cpu_memory){data, bytes, false};
    s->stale_tensors = true;
    return MT_OK;
}

static mt_status own_memory(cpu_session *s, size_t tensor, mt_error *error) {
    if (s->tensors[tensor].data) return MT_OK;
    s->stale_tensors = true;
    const program_tensor *t = &s->program->tensors[tensor];
    return map_memory(&s->tensors[tensor], (size_t)t->bytes, program_string(s->program, t->name), error);
}

static mt_status session_memory(mt_session *base, const char *name, void **data, size_t *bytes, mt_error *error) {
    cpu_session *s = (cpu_session *)base;
    const int64_t at = machine_names_own(&s->names, s->program, name, error);
    if (at < 0) return MT_E_ARGUMENT;
    const mt_status status = own_memory(s, (size_t)at, error);
    if (status != MT_OK) return status;
    *data = s->tensors[at].data;
    if (bytes) *bytes = (size_t)s->program->tensors[at].bytes;
    return MT_OK;
}

static mt_status session_live(mt_session *base, const char *name, int32_t value, mt_error *error) {
    cpu_session *s = (cpu_session *)base;
    return machine_names_live(&s->names, s->program, name, value, &s->stale_lives, error);
}

/* ---- loading ---- */

static mt_status out_of_memory(mt_error *error) {
    return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
}

static mt_status load_slots(cpu_session *s, mt_error *error) {
    const mt_program *p = s->program;
    if (p->header->slot_bytes) {
        const mt_status status = map_memory(&s->slots, p->header->slot_bytes, "slots", error);
        if (status != MT_OK) return status;
    }
    for (size_t i = 0; i < p->tensors_count; i++)
        if (p->tensors[i].role == MT_TEMP)
            s->tensors[i] =
                (cpu_memory){(char *)s->slots.data + p->tensors[i].offset, (size_t)p->tensors[i].bytes, false};
    return MT_OK;
}

static mt_status load_nodes(cpu_session *s, mt_error *error) {
    const mt_program *p = s->program;
    s->nodes = ARENA_ARRAY(s->memory, p->nodes_count, cpu_node);
    if (!s->nodes) return out_of_memory(error);
    for (size_t k = 0; k < p->nodes_count; k++) {
        const program_instruction *n = &p->instructions[p->nodes[k].first];
        while (n->opcode == PROGRAM_JOIN) n++; /* the checker has seen one that is no join */
        const tile_op *op = s->binding.ops[n->opcode];
        cpu_node *node = &s->nodes[k];
        *node = (cpu_node){.code = s->entries[n->opcode]->code,
                           .tensor_count = op->tensor_count,
                           .live_count = op->live_count,
                           .operands = n->tensor,
                           .live_indices = n->live};
        node->tensors = ARENA_ARRAY(s->memory, (size_t)op->tensor_count, cpu_tensor);
        if (!node->tensors) return out_of_memory(error);
        memcpy(node->args, n->arg, sizeof node->args); /* an i32, or the bits of an f32 */
        for (int t = 0; t < op->tensor_count; t++) {
            const program_operand *o = &p->operands[n->tensor[t]];
            if (s->binding.views[n->tensor[t]].bits % 8 && o->offset * s->binding.views[n->tensor[t]].bits % 8)
                return error_set(error, MT_E_UNSUPPORTED, program_string(p, p->tensors[o->tensor].name),
                                 "an operand of '%s' begins inside a byte; this machine wants whole bytes", op->name);
        }
    }
    return MT_OK;
}

/* Which worker runs what. Another number of workers than the program was laid out for: fewer take several lists each,
 * merged; more take from the queue, which is right for every program. */
static mt_status load_placement(cpu_session *s, mt_error *error) {
    const mt_program *p = s->program;
    const uint32_t workers = (uint32_t)s->machine->worker_count, processors = p->header->processor_count;
    if (p->header->placement != MT_PLACE_STATIC || workers > processors) return MT_OK;
    s->list = ARENA_ARRAY(s->memory, workers, const uint32_t *);
    s->list_count = ARENA_ARRAY(s->memory, workers, uint32_t);
    if (!s->list || !s->list_count) return out_of_memory(error);
    if (workers == processors) {
        for (uint32_t w = 0; w < workers; w++) {
            s->list[w] = p->order + p->processors[w].first;
            s->list_count[w] = p->processors[w].count;
        }
        return MT_OK;
    }
    uint16_t *owner = ARENA_ARRAY(s->memory, p->instructions_count, uint16_t);
    uint32_t *merged = ARENA_ARRAY(s->memory, p->instructions_count, uint32_t),
             **end = ARENA_ARRAY(s->memory, workers, uint32_t *);
    if (!owner || !merged || !end) return out_of_memory(error);
    for (uint32_t q = 0; q < processors; q++) {
        for (uint32_t k = 0; k < p->processors[q].count; k++)
            owner[p->order[p->processors[q].first + k]] = (uint16_t)(q % workers);
        s->list_count[q % workers] += p->processors[q].count;
    }
    for (uint32_t w = 0; w < workers; merged += s->list_count[w++]) s->list[w] = end[w] = merged;
    for (uint32_t i = 0; i < p->instructions_count; i++) *end[owner[i]]++ = i;
    return MT_OK;
}

/* Every worker gets scratch for the session's largest op. Scratch only grows, and only when no session runs. */
static mt_status load_scratch(cpu_session *s, mt_error *error) {
    cpu_machine *m = s->machine;
    size_t bytes = CPU_LINE;
    for (size_t i = 0; i < s->program->ops_count; i++)
        if (s->entries[i]->scratch > (int64_t)bytes) bytes = align_up((uint64_t)s->entries[i]->scratch, CPU_LINE);
    mt_status status = MT_OK;
    pthread_mutex_lock(&m->turn);
    for (int w = 0; w < m->worker_count && status == MT_OK; w++) {
        if (m->workers[w].scratch_bytes >= bytes) continue;
        free(m->workers[w].scratch);
        m->workers[w].scratch = aligned_alloc(CPU_LINE, bytes);
        m->workers[w].scratch_bytes = m->workers[w].scratch ? bytes : 0;
        if (!m->workers[w].scratch)
            status = error_set(error, MT_E_MEMORY, NULL, "no memory for %zu bytes of scratch", bytes);
    }
    pthread_mutex_unlock(&m->turn);
    return status;
}

static void session_destroy(mt_session *base) {
    cpu_session *s = (cpu_session *)base;
    for (size_t i = 0; i < s->program->tensors_count && s->tensors; i++) unmap_memory(&s->tensors[i]);
    unmap_memory(&s->slots);
    cpu_unload(s->handles, s->program->ops_count);
    free(s->barriers);
    free(s->trace);
    arena_free(s->memory);
    free(s);
}

static mt_status session_create(mt_session **out, mt_machine *m, const mt_program *p, mt_error *error) {
    cpu_session *s = calloc(1, sizeof *s);
    if (!s) return out_of_memory(error);
    s->machine = (cpu_machine *)m;
    s->program = p;
    s->memory = arena_new();
    s->timeout_ns = (uint64_t)(default_timeout * 1e9);
    s->stale_tensors = s->stale_lives = true;
    s->barriers = aligned_alloc(CPU_LINE, (p->barriers_count + 1) * sizeof *s->barriers);
    mt_status status = s->memory && s->barriers ? MT_OK : out_of_memory(error);
    if (status == MT_OK) {
        memset(s->barriers, 0, (p->barriers_count + 1) * sizeof *s->barriers);
        s->handles = ARENA_ARRAY(s->memory, p->ops_count, void *);
        s->entries = ARENA_ARRAY(s->memory, p->ops_count, const cpu_entry *);
        s->tensors = ARENA_ARRAY(s->memory, p->tensors_count, cpu_memory);
        s->stuck = ARENA_ARRAY(s->memory, p->ops_count, const char **);
        if (!s->handles || !s->entries || !s->tensors || !s->stuck) status = out_of_memory(error);
    }
    if (status == MT_OK) status = machine_names_make(&s->names, s->memory, p, error);
    if (status == MT_OK) status = program_bind(p, s->memory, &s->binding, error);
    if (status == MT_OK) status = cpu_compile(s->binding.ops, p->ops_count, s->handles, s->entries, error);
    for (size_t i = 0; status == MT_OK && i < p->ops_count; i++) s->stuck[i] = cpu_stuck(s->handles[i]);
    if (status == MT_OK) status = load_slots(s, error);
    if (status == MT_OK) status = load_nodes(s, error);
    if (status == MT_OK) status = load_placement(s, error);
    if (status == MT_OK) status = load_scratch(s, error);
    *out = &s->base;
    if (status != MT_OK) {
        session_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* ---- running ---- */

static mt_status bind_rest(cpu_session *s, mt_error *error) {
    const mt_program *p = s->program;
    mt_status status = MT_OK;
    for (size_t i = 0; i < p->tensors_count && status == MT_OK; i++) {
        if (s->tensors[i].data) continue;
        status = machine_names_unbound(p, i, error);
        if (status == MT_OK) status = own_memory(s, i, error);
    }
    return status;
}

static void refresh_tensors(cpu_session *s) {
    for (size_t k = 0; k < s->program->nodes_count; k++)
        for (int t = 0; t < s->nodes[k].tensor_count; t++) {
            const program_view *v = &s->binding.views[s->nodes[k].operands[t]];
            const program_operand *o = v->operand;
            cpu_tensor *out = &s->nodes[k].tensors[t];
            *out = (cpu_tensor){.data = (char *)s->tensors[o->tensor].data + o->offset / v->block * v->bits / 8};
            memcpy(out->extent, o->extent, (size_t)o->rank * sizeof *o->extent);
            memcpy(out->stride, o->stride, (size_t)o->rank * sizeof *o->stride);
        }
    s->stale_tensors = false;
}

static void refresh_lives(cpu_session *s) {
    for (size_t k = 0; k < s->program->nodes_count; k++) {
        cpu_node *n = &s->nodes[k];
        for (int l = 0; l < n->live_count; l++) n->lives[l] = s->names.values[n->live_indices[l]];
        for (int t = 0; t < n->tensor_count; t++) {
            const program_operand *o = &s->program->operands[n->operands[t]];
            for (int d = 0; d < o->rank; d++)
                if (o->live[d] >= 0) n->tensors[t].extent[d] = s->names.values[o->live[d]];
        }
    }
    s->stale_lives = false;
}

static mt_status session_run(mt_session *base, mt_error *error) {
    cpu_session *s = (cpu_session *)base;
    if (s->stale_tensors) {
        const mt_status status = bind_rest(s, error);
        if (status != MT_OK) return status;
        refresh_tensors(s);
        s->stale_lives = true; /* extents begin as the operands' room */
    }
    if (s->stale_lives) refresh_lives(s);
    pthread_mutex_lock(&s->machine->turn);
    if (s->trace) memset(s->trace, 0, s->program->instructions_count * sizeof *s->trace);
    s->trace_begin = clock_ns();
    const mt_status status = cpu_run(s, error);
    pthread_mutex_unlock(&s->machine->turn);
    return status;
}

static void session_timeout(mt_session *base, double seconds) {
    ((cpu_session *)base)->timeout_ns = seconds > 0 ? (uint64_t)(seconds < 1e9 ? seconds * 1e9 : 1e18) : 0;
}

static mt_status session_trace(mt_session *base, bool enable, mt_error *error) {
    cpu_session *s = (cpu_session *)base;
    free(s->trace);
    s->trace = enable ? calloc(s->program->instructions_count, sizeof *s->trace) : NULL;
    return enable && !s->trace ? error_set(error, MT_E_MEMORY, NULL, "no memory for a trace") : MT_OK;
}

static mt_status session_trace_read(const mt_session *base, mt_trace_record **out, size_t *count, mt_error *error) {
    const cpu_session *s = (const cpu_session *)base;
    mt_trace_record *records = calloc(s->program->instructions_count, sizeof *records);
    if (!records) return error_set(error, MT_E_MEMORY, NULL, "no memory for a trace");
    const int64_t begin = (int64_t)s->trace_begin;
    for (size_t i = 0; i < s->program->instructions_count; i++) {
        const mt_trace_record *r = &s->trace[i];
        if (!r->arrived) continue; /* the last run stopped before it */
        mt_trace_record *to = &records[(*count)++];
        *to = *r;
        to->received -= begin, to->ready -= begin, to->done -= begin, to->arrived -= begin;
        to->fetched = to->received;
        to->synced = to->done;
    }
    *out = records;
    return MT_OK;
}

const machine_kind machine_cpu = {
    .name = "cpu",
    .open = machine_open,
    .close = machine_close,
    .processors = machine_processors,
    .session_create = session_create,
    .session_destroy = session_destroy,
    .bind = session_bind,
    .memory = session_memory,
    .live = session_live,
    .run = session_run,
    .timeout = session_timeout,
    .trace = session_trace,
    .trace_read = session_trace_read,
};
