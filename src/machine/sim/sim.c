/* The simulator as a machine: options, sessions, memory. "sim", "sim:N" for N virtual SMs, and, behind commas,
 *   fair                 everybody in turns (the default)
 *   random=SEED          whoever the seed says; copies land at any time, in pieces, in any order
 *   adversarial=NAME     loader-early, loader-late, starve-warp, starve-sm, copies-late, copies-reverse, lanes-apart
 *   seed=N               which warp or SM is starved
 *   pages=N              pages of an SM (as many as fit)
 * Runs of one process take turns. */
#include "machine/sim/sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LEAST_PAGES = 3, ALIGNMENT = 256, MOST_RUNS = 1 << 16 };

/* ---- the machine ---- */

static bool number(const char *digits, size_t length, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < length; i++) {
        if (digits[i] < '0' || digits[i] > '9' || *out > UINT64_MAX / 10 - 1) return false;
        *out = *out * 10 + (uint64_t)(digits[i] - '0');
    }
    return length > 0;
}

/* One word between commas. */
static bool option(sim_machine *m, const char *word, size_t length) {
    const char *equals = memchr(word, '=', length);
    const size_t key = equals ? (size_t)(equals - word) : length, rest = equals ? length - key - 1 : 0;
    const char *value = equals ? equals + 1 : "";
    uint64_t n;
#define IS(name) (key == strlen(name) && !memcmp(word, name, key))
    if (!equals && number(word, length, &n)) {
        m->processors = (int)min_i64((int64_t)n, SIM_MOST + 1);
        return n >= 1 && n <= SIM_MOST;
    }
    if (IS("fair") && !equals) {
        m->schedule.kind = SIM_FAIR;
    } else if (IS("random") && number(value, rest, &n)) {
        m->schedule = (sim_schedule){SIM_RANDOM, n};
    } else if (IS("seed") && number(value, rest, &n)) {
        m->schedule.seed = n;
    } else if (IS("pages") && number(value, rest, &n) && n >= LEAST_PAGES && n <= CUDA_MOST_PAGES) {
        m->pages = (int)n;
    } else if (IS("adversarial")) {
        int k = SIM_RANDOM + 1;
        while (k < SIM_SCHEDULES &&
               (strlen(sim_schedule_names[k]) != rest || memcmp(sim_schedule_names[k], value, rest)))
            k++;
        m->schedule.kind = (sim_schedule_kind)k;
        return k < SIM_SCHEDULES;
    } else {
        return false;
    }
#undef IS
    return true;
}

mt_status sim_schedule_parse(const char *words, sim_machine *m, mt_error *error) {
    for (const char *word = words; *word;) {
        const size_t length = strcspn(word, ",");
        if (!option(m, word, length))
            return error_set(
                error, MT_E_ARGUMENT, words,
                "\"sim:\" takes a number of SMs from 1 to %d, fair, random=SEED, adversarial=NAME (loader-early, "
                "loader-late, starve-warp, starve-sm, copies-late, copies-reverse, lanes-apart), seed=N, "
                "pages=N (%d to %d), with commas between; not '%.*s'",
                SIM_MOST, LEAST_PAGES, CUDA_MOST_PAGES, (int)length, word);
        word += length;
        word += *word == ',';
    }
    return MT_OK;
}

static void machine_close(mt_machine *base) {
    sim_machine *m = (sim_machine *)base;
    pthread_mutex_destroy(&m->turn);
    free(m);
}

static mt_status machine_open(mt_machine **out, const char *argument, mt_error *error) {
    sim_machine *m = calloc(1, sizeof *m);
    if (!m) return error_set(error, MT_E_MEMORY, NULL, "no memory for a machine");
    m->processors = 4;
    const mt_status status = sim_schedule_parse(argument, m, error);
    if (status != MT_OK) {
        free(m);
        return status;
    }
    pthread_mutex_init(&m->turn, NULL);
    *out = &m->base;
    return MT_OK;
}

static int machine_processors(const mt_machine *m) { return ((const sim_machine *)m)->processors; }

/* ---- memory ---- */

static void cells_free(sim_memory *m) {
    if (m->cells) munmap(m->cells, (m->bytes / SIM_GRAIN + 1) * sizeof(sim_cell));
    m->cells = NULL;
}

/* A shadow that takes memory where it is touched. */
static mt_status cells_new(sim_memory *m, mt_error *error) {
    void *p = mmap(NULL, (m->bytes / SIM_GRAIN + 1) * sizeof(sim_cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return error_set(error, MT_E_MEMORY, m->name, "no memory for the shadow of %zu bytes", m->bytes);
    m->cells = p;
    m->writes = true;
    return MT_OK;
}

mt_status sim_memory_bind(sim_memory *m, void *data, size_t bytes, bool writes, mt_error *error) {
    *m = (sim_memory){.name = m->name, .data = data, .bytes = bytes};
    return writes ? cells_new(m, error) : MT_OK;
}

void sim_memory_free(sim_memory *m) {
    cells_free(m);
    if (m->owned) free(m->data);
    *m = (sim_memory){.name = m->name};
}

mt_status sim_memory_new(sim_memory *out, size_t bytes, const char *name, mt_error *error) {
    void *data;
    if (posix_memalign(&data, ALIGNMENT, align_up(bytes + 1, ALIGNMENT)))
        return error_set(error, MT_E_MEMORY, name, "no memory for %zu bytes", bytes);
    memset(data, 0, bytes);
    *out = (sim_memory){.name = name, .data = data, .bytes = bytes, .owned = true};
    const mt_status status = cells_new(out, error);
    if (status != MT_OK) sim_memory_free(out);
    return status;
}

static void weight_release(sim_machine *m, sim_weight *w) {
    if (!w || --w->users) return;
    for (sim_weight **at = &m->weights; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    free(w->data);
    free(w);
}

static mt_status weight_get(sim_machine *m, const program_tensor *t, const tile_format *format, const char *name,
                            role_layout layout, const void *host, sim_weight **out, mt_error *error) {
    for (sim_weight *w = m->weights; w; w = w->next)
        if (w->host == host && w->host_bytes == (size_t)t->bytes && w->layout == layout) {
            w->users++;
            *out = w;
            return MT_OK;
        }
    sim_weight *w = calloc(1, sizeof *w);
    void *data = NULL;
    const size_t bytes = device_bytes(t, format, layout);
    if (!w || posix_memalign(&data, 1024, align_up(bytes, 1024))) {
        free(w);
        return error_set(error, MT_E_MEMORY, name, "no memory for a weight of %zu bytes", bytes);
    }
    *w = (sim_weight){host, (size_t)t->bytes, bytes, layout, data, 1, m->weights};
    if (layout == ROLE_ROWS)
        memcpy(data, host, bytes);
    else
        device_weight_lay(layout, format, t->extent[0], t->extent[1], 0, (t->extent[0] + 7) / 8 * 8, host, data);
    *out = m->weights = w;
    return MT_OK;
}

static void tensor_release(sim_session *s, size_t at) {
    if (s->weights[at]) {
        weight_release(s->machine, s->weights[at]);
        s->weights[at] = NULL;
    }
    if (s->program->tensors[at].role == MT_TEMP) return; /* the slots' */
    sim_memory_free(&s->tensors[at]);
}

static mt_status own_memory(sim_session *s, size_t at, mt_error *error) {
    if (s->tensors[at].data) return MT_OK;
    s->stale = true;
    return sim_memory_new(&s->tensors[at], (size_t)s->program->tensors[at].bytes, s->tensors[at].name, error);
}

static mt_status bind_now(sim_session *s, size_t at, void *data, mt_error *error) {
    const program_tensor *t = &s->program->tensors[at];
    sim_memory *m = &s->tensors[at];
    tensor_release(s, at);
    s->stale = true;
    if (t->role == MT_WEIGHT) {
        const mt_status status =
            weight_get(s->machine, t, s->binding.formats[at], m->name, s->layouts[at], data, &s->weights[at], error);
        if (status != MT_OK) return status;
        m->data = s->weights[at]->data;
        m->bytes = s->weights[at]->bytes;
        return MT_OK;
    }
    return sim_memory_bind(m, data, (size_t)t->bytes, t->role != MT_INPUT, error);
}

static mt_status session_bind(mt_session *base, const char *name, void *data, size_t bytes, bool weight,
                              mt_error *error) {
    sim_session *s = (sim_session *)base;
    const int64_t at = machine_names_bound(&s->names, s->program, name, data, bytes, weight, error);
    if (at < 0) return MT_E_ARGUMENT;
    const program_tensor *t = &s->program->tensors[at];
    if (t->role != MT_WEIGHT && (uintptr_t)data % PROGRAM_ALIGNMENT)
        return error_set(error, MT_E_ARGUMENT, name, "tensor '%s' must be aligned to %d bytes", name,
                         PROGRAM_ALIGNMENT);
    pthread_mutex_lock(&s->machine->turn);
    const mt_status status = bind_now(s, (size_t)at, data, error);
    pthread_mutex_unlock(&s->machine->turn);
    return status;
}

static mt_status session_memory(mt_session *base, const char *name, void **data, size_t *bytes, mt_error *error) {
    sim_session *s = (sim_session *)base;
    const int64_t at = machine_names_own(&s->names, s->program, name, error);
    if (at < 0) return MT_E_ARGUMENT;
    const mt_status status = own_memory(s, (size_t)at, error);
    if (status != MT_OK) return status;
    *data = s->tensors[at].data;
    if (bytes) *bytes = (size_t)s->program->tensors[at].bytes;
    return MT_OK;
}

static mt_status session_live(mt_session *base, const char *name, int32_t value, mt_error *error) {
    sim_session *s = (sim_session *)base;
    return machine_names_live(&s->names, s->program, name, value, NULL, error);
}

/* ---- loading ---- */

/* Tables of the kernel's. */
enum {
    TABLE_INSTRUCTIONS,
    TABLE_ORDER,
    TABLE_PROCESSORS,
    TABLE_ENDS,
    TABLE_OPERANDS,
    TABLE_MAPS,
    TABLE_LIVES,
    TABLE_SHARED,
    TABLE_COUNTERS,
    TABLES
};

mt_status sim_session_tables(sim_session *s, mt_error *error) {
    const mt_program *p = s->program;
    const struct {
        const char *name;
        const void *data;
        size_t bytes;
    } given[] = {{"the instructions", s->handoff.instructions, p->instructions_count * sizeof *p->instructions},
                 {"the order of instructions", p->order, p->order_count * sizeof *p->order},
                 {"the table of processors", p->processors, p->processors_count * sizeof *p->processors},
                 {"how instructions end", s->handoff.ends, p->instructions_count}};
    for (size_t i = 0; i < COUNT_OF(given); i++)
        s->tables[i] = (sim_memory){.name = given[i].name, .data = (char *)given[i].data, .bytes = given[i].bytes};
    s->operands = ARENA_ARRAY(s->memory, p->operands_count, cuda_tensor);
    s->maps = ARENA_ARRAY(s->memory, CUDA_MAPS * p->operands_count, cuda_map);
    s->lives = ARENA_ARRAY(s->memory, 2 * p->lives_count, int32_t);
    if (!s->operands || !s->maps || !s->lives) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    s->tables[TABLE_OPERANDS] = (sim_memory){
        .name = "the table of operands", .data = (char *)s->operands, .bytes = p->operands_count * sizeof *s->operands};
    s->tables[TABLE_MAPS] = (sim_memory){.name = "the maps of operands",
                                         .data = (char *)s->maps,
                                         .bytes = CUDA_MAPS * p->operands_count * sizeof *s->maps};
    s->tables[TABLE_LIVES] =
        (sim_memory){.name = "live values", .data = (char *)s->lives, .bytes = 2 * p->lives_count * sizeof *s->lives};
    mt_status status = sim_memory_new(&s->tables[TABLE_SHARED], sizeof *s->shared, "the words of a run", error);
    if (status == MT_OK)
        status = sim_memory_new(&s->tables[TABLE_COUNTERS], (p->barriers_count + MOST_RUNS) * sizeof(uint32_t),
                                "the counters of barriers", error);
    if (status == MT_OK && s->handoff.bytes) status = sim_memory_new(&s->slots, s->handoff.bytes, "temporaries", error);
    if (status != MT_OK) return status;
    s->slots.writes = true; /* the interpreter stamps; an instruction has its operands alone */
    s->shared = (struct sim_words_of_run *)s->tables[TABLE_SHARED].data;
    s->counters = (uint32_t *)s->tables[TABLE_COUNTERS].data;
    s->next = s->counters + p->barriers_count;
    for (size_t i = 0; i < p->tensors_count; i++) {
        const program_tensor *t = &p->tensors[i];
        s->tensors[i].name = program_string(p, t->name);
        if (t->role != MT_TEMP) continue;
        if (!*s->tensors[i].name) s->tensors[i].name = "a temporary";
        s->tensors[i].data = s->slots.data + s->handoff.offset[i];
        s->tensors[i].bytes = (size_t)t->bytes;
        s->tensors[i].cells = s->slots.cells + s->handoff.offset[i] / SIM_GRAIN;
        s->tensors[i].writes = true;
        if (!s->handoff.stamped[i]) continue;
        s->turns[i] = s->tensors[i];
        s->turns[i].data += s->handoff.stamp_bytes;
        s->turns[i].cells += s->handoff.stamp_bytes / SIM_GRAIN;
    }
    return MT_OK;
}

mt_status sim_find_memories(sim_session *s, sim_run *r, mt_error *error) {
    const mt_program *p = s->program;
    if (!r->memories) r->memories = calloc(TABLES + 2 + p->tensors_count, sizeof *r->memories);
    if (!r->memories) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    r->memory_count = 0;
    for (int i = 0; i < TABLES; i++) r->memories[r->memory_count++] = &s->tables[i];
    r->memories[r->memory_count++] = &s->trace;
    r->table_count = r->memory_count;
    r->memories[r->memory_count++] = &s->slots;
    for (size_t i = 0; i < p->tensors_count; i++) r->memories[r->memory_count++] = &s->tensors[i];
    return MT_OK;
}

static void session_destroy(mt_session *base) {
    sim_session *s = (sim_session *)base;
    pthread_mutex_lock(&s->machine->turn);
    for (size_t i = 0; s->weights && i < s->program->tensors_count; i++) tensor_release(s, i);
    pthread_mutex_unlock(&s->machine->turn);
    for (int i = TABLE_SHARED; i < TABLES; i++) sim_memory_free(&s->tables[i]);
    sim_memory_free(&s->slots);
    sim_memory_free(&s->trace);
    sim_run_free(s->run);
    if (s->code) dlclose(s->code);
    arena_free(s->memory);
    free(s);
}

static mt_status session_create(mt_session **out, mt_machine *base, const mt_program *p, mt_error *error) {
    sim_session *s = calloc(1, sizeof *s);
    if (!s) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    s->machine = (sim_machine *)base;
    s->program = p;
    s->stale = s->broken = true;
    s->memory = arena_new();
    if (s->memory) {
        s->tensors = ARENA_ARRAY(s->memory, p->tensors_count, sim_memory);
        s->turns = ARENA_ARRAY(s->memory, p->tensors_count, sim_memory);
        s->weights = ARENA_ARRAY(s->memory, p->tensors_count, sim_weight *);
    }
    mt_status status = s->tensors && s->turns && s->weights
                           ? machine_names_make(&s->names, s->memory, p, error)
                           : error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    if (status == MT_OK) status = program_bind(p, s->memory, &s->binding, error);
    if (status == MT_OK) status = sim_session_load(s, error);
    if (status == MT_OK) status = sim_session_tables(s, error);
    *out = &s->base;
    if (status != MT_OK) {
        session_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* ---- running ---- */

static mt_status refresh(sim_session *s, mt_error *error) {
    const mt_program *p = s->program;
    for (size_t i = 0; i < p->tensors_count; i++) {
        if (s->tensors[i].data) continue;
        mt_status status = machine_names_unbound(p, i, error);
        if (status == MT_OK) status = own_memory(s, i, error);
        if (status != MT_OK) return status;
    }
    uintptr_t *addresses = calloc(p->tensors_count + 1, sizeof *addresses);
    if (!addresses) return error_set(error, MT_E_MEMORY, NULL, "no memory for operands");
    for (size_t i = 0; i < p->tensors_count; i++) addresses[i] = (uintptr_t)s->tensors[i].data;
    const mt_status status = device_operands(p, &s->binding, addresses, &s->handoff, s->operands, error);
    for (size_t i = 0; i < CUDA_MAPS * p->operands_count && status == MT_OK; i++) {
        const device_map m = device_map_of(p, &s->binding, s->layouts, i / CUDA_MAPS, (int)(i % CUDA_MAPS));
        sim_map out = {.data = (char *)s->operands[i / CUDA_MAPS].data + m.offset,
                       .rank = (uint8_t)m.rank,
                       .element = (uint8_t)m.element,
                       .swizzle = m.swizzle};
        memcpy(out.extent, m.extent, sizeof out.extent);
        memcpy(out.stride, m.stride, sizeof out.stride);
        memcpy(out.box, m.box, sizeof out.box);
        memcpy(&s->maps[i], &out, sizeof out);
    }
    free(addresses);
    s->stale = status != MT_OK;
    return status;
}

/* As many pages as fit beside the ops' shared memory. */
static mt_status plan(sim_session *s, cuda_run *launch, int *ctas, mt_error *error) {
    const mt_program *p = s->program;
    const int64_t room = SIM_SHARED - (int64_t)align_up(s->unit->static_bytes, 1024) - s->scratch_bytes - 1024;
    const int64_t pages = min_i64(room / s->page_bytes, s->machine->pages ? s->machine->pages : CUDA_MOST_PAGES);
    if (pages < s->least_pages)
        return error_set(error, MT_E_LIMIT, NULL,
                         "an op needs %lld bytes of shared memory; beside them there are %lld pages",
                         (long long)s->scratch_bytes, (long long)pages);
    const mt_status room_for_level2 = device_pages(p, &s->binding, pages, error);
    if (room_for_level2 != MT_OK) return room_for_level2;
    const bool queue = p->header->placement == MT_PLACE_QUEUE;
    const int most = s->machine->processors, wanted = (int)p->header->processor_count;
    if (!queue && wanted > most)
        return error_set(
            error, MT_E_LIMIT, NULL,
            "the program is laid out for %d processors; this machine has %d: compile it for at most as many", wanted,
            most);
    *ctas = wanted < most ? wanted : most;
    *launch = (cuda_run){.instructions = s->handoff.instructions,
                         .order = p->order,
                         .processors = (const cuda_range *)p->processors,
                         .ends = s->handoff.ends,
                         .stamps = s->slots.data + s->handoff.stamps_at,
                         .stamp_bytes = (uint32_t)s->handoff.stamp_bytes,
                         .operands = s->operands,
                         .maps = s->maps,
                         .lives = s->lives,
                         .live_steps = s->lives + p->lives_count,
                         .counters = s->counters,
                         .next = queue ? s->next : NULL,
                         .finished = &s->shared->finished,
                         .go = &s->shared->go,
                         .done = &s->shared->done,
                         .failure = &s->shared->failure,
                         .gave_up = &s->shared->gave_up,
                         .timeout = UINT64_MAX / 2, /* nobody waits for long who can go on: the rest is a deadlock */
                         .instruction_count = (uint32_t)p->instructions_count,
                         .live_count = (uint32_t)p->lives_count,
                         .pages = (uint32_t)pages,
                         .page_bytes = (uint32_t)s->page_bytes,
                         .scratch_bytes = (uint32_t)s->scratch_bytes};
    return MT_OK;
}

/* The first finding as an error; how many more there are. */
static mt_status describe(const sim_session *s, mt_error *error) {
    if (!s->finding_count) return MT_OK;
    text all = {0};
    for (int i = 0; i < s->finding_count; i++)
        text_printf(&all, "%s (%u times): %s\n", sim_fault_names[s->findings[i].fault], s->findings[i].count,
                    s->findings[i].message);
    if (getenv("MONOTILE_SIM_FINDINGS") && !all.failed) /* all of them, into a file */
        file_write_atomic(getenv("MONOTILE_SIM_FINDINGS"), all.data, all.length, NULL);
    text_free(&all);
    const sim_finding *f = &s->findings[0];
    char more[64] = "";
    if (s->finding_count > 1) snprintf(more, sizeof more, " (and %d more findings)", s->finding_count - 1);
    return error_set(error, f->fault == SIM_DEADLOCK ? MT_E_HANG : MT_E_INTERNAL, NULL, "%s: %s%s",
                     sim_fault_names[f->fault], f->message, more);
}

/* `runs` runs in one launch. *done: those that are complete. */
mt_status sim_session_launch(sim_session *s, uint32_t runs, const int32_t *steps, const uint32_t *stop_word,
                             int32_t *done, mt_error *error) {
    const mt_program *p = s->program;
    cuda_run l;
    int ctas = 0;
    mt_status status = s->stale ? refresh(s, error) : MT_OK;
    if (status == MT_OK) status = plan(s, &l, &ctas, error);
    if (status != MT_OK) return status;
    if (s->broken) {
        memset(s->counters, 0, p->barriers_count * sizeof *s->counters);
        memset(s->shared, 0, sizeof *s->shared);
        if (s->handoff.stamp_bytes) memset(s->slots.data + s->handoff.stamps_at, 0xff, 2 * s->handoff.stamp_bytes);
        s->epoch = 0;
    }
    memset(s->next, 0, runs * sizeof *s->next);
    for (size_t i = 0; i < p->lives_count; i++) {
        s->lives[i] = s->names.values[i];
        s->lives[p->lives_count + i] = steps ? steps[i] : 0;
    }
    s->shared->done = (cuda_done){0, 0};
    l.runs = runs;
    l.epoch = s->epoch + 1;
    l.stop_word = stop_word;
    sim_trace_begin(s, &l, ctas);
    status = sim_launch(s, &l, ctas, error);
    if (status == MT_OK) status = describe(s, error);
    if (status == MT_OK && s->shared->failure.claimed)
        status = error_set(error, MT_E_HANG, NULL, "the kernel gave up for reason %u", s->shared->failure.reason);
    *done = (int32_t)(runs > 1 || stop_word ? s->shared->done.runs : status == MT_OK);
    s->epoch += (uint32_t)*done;
    for (size_t b = 0; b < p->barriers_count && status == MT_OK; b++)
        if (s->counters[b] != p->barriers[b].arrivals * s->epoch)
            status = error_set(error, MT_E_INTERNAL, NULL, "lost arrivals: barrier %zu has %u after %u runs of %u each",
                               b, s->counters[b], s->epoch, p->barriers[b].arrivals);
    s->broken = status != MT_OK;
    return status;
}

static mt_status session_run(mt_session *base, mt_error *error) {
    sim_session *s = (sim_session *)base;
    int32_t done;
    pthread_mutex_lock(&s->machine->turn);
    const mt_status status = sim_session_launch(s, 1, NULL, NULL, &done, error);
    pthread_mutex_unlock(&s->machine->turn);
    return status;
}

static mt_status session_loop(mt_session *base, const mt_loop *loop, int64_t stop, int32_t *done, mt_error *error) {
    sim_session *s = (sim_session *)base;
    int32_t *steps = calloc(s->program->lives_count + 1, sizeof *steps);
    mt_status status = steps ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory for a loop");
    for (size_t i = 0; i < loop->live_count && status == MT_OK; i++)
        steps[map_get(&s->names.lives, loop->lives[i].name, strlen(loop->lives[i].name))] = loop->lives[i].step;
    const int32_t most = loop->poll ? 4 : 64;
    if (status == MT_OK && stop >= 0) status = own_memory(s, (size_t)stop, error);
    for (bool end = false; status == MT_OK && !end && *done < loop->runs;) {
        const int32_t runs = loop->runs - *done < most ? loop->runs - *done : most;
        int32_t now = 0;
        for (size_t i = 0; i < loop->live_count && status == MT_OK; i++)
            status = machine_names_live(&s->names, s->program, loop->lives[i].name,
                                        loop->lives[i].first + *done * loop->lives[i].step, NULL, error);
        pthread_mutex_lock(&s->machine->turn);
        if (status == MT_OK)
            status = sim_session_launch(s, (uint32_t)runs, steps,
                                        stop < 0 ? NULL : (const uint32_t *)s->tensors[stop].data, &now, error);
        pthread_mutex_unlock(&s->machine->turn);
        *done += now;
        end = now < runs || s->shared->done.stopped || (loop->poll && loop->poll(loop->context));
    }
    for (size_t i = 0; i < loop->live_count && *done; i++)
        machine_names_live(&s->names, s->program, loop->lives[i].name,
                           loop->lives[i].first + (*done - 1) * loop->lives[i].step, NULL, NULL);
    free(steps);
    return status;
}

static void session_timeout(mt_session *base, double seconds) { (void)base, (void)seconds; }

const machine_kind machine_sim = {
    .name = "sim",
    .open = machine_open,
    .close = machine_close,
    .processors = machine_processors,
    .session_create = session_create,
    .session_destroy = session_destroy,
    .bind = session_bind,
    .memory = session_memory,
    .live = session_live,
    .run = session_run,
    .loop = session_loop,
    .timeout = session_timeout,
    .trace = sim_session_trace,
    .trace_read = sim_trace_read,
};
