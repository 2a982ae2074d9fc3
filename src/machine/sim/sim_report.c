/* Findings: what a run found, in words. Each has a key, so that a thing that happens a thousand times is told once. */
#include "machine/sim/sim.h"
#include "tile/explicit.h"

#include <stdio.h>

const char *const sim_fault_names[SIM_FAULTS] = {"deadlock", "early wait", "page",          "bytes",    "race",
                                                 "proxy",    "outside",    "lost arrivals", "diverged", "misuse"};

/* A controller that is at an instruction is its storer. */
static const char *role_name(int warp, uint32_t instruction) {
    if (warp == CUDA_CONTROLLER && instruction != UINT32_MAX) return "storer";
    return warp < CUDA_WARPS ? "consumer" : warp == CUDA_LOADER ? "loader" : "controller";
}

sim_words sim_who(const sim_run *r, uint32_t actor, uint32_t lanes) {
    const sim_warp *w = r->warp;
    if (actor != UINT32_MAX) return sim_who_at(actor, lanes, UINT32_MAX);
    return sim_who_at((uint32_t)(w->cta->number * SIM_ACTORS + w->number), 1u << r->lane_number, r->lane->instruction);
}

sim_words sim_who_at(uint32_t actor, uint32_t lanes, uint32_t instruction) {
    sim_words out;
    const int warp = (int)(actor % SIM_ACTORS), sm = (int)(actor / SIM_ACTORS);
    const char *role = role_name(warp, instruction);
    if (warp == SIM_ENGINE)
        snprintf(out.text, sizeof out.text, "SM %d, a copy", sm);
    else if (warp == SIM_STORING)
        snprintf(out.text, sizeof out.text, "SM %d, a bulk store", sm);
    else if (warp == SIM_TENSOR)
        snprintf(out.text, sizeof out.text, "SM %d, a wgmma of consumer warp %d", sm, __builtin_ctz(lanes));
    else if (lanes == UINT32_MAX || warp == CUDA_LOADER)
        snprintf(out.text, sizeof out.text, warp < CUDA_WARPS ? "SM %d, %s warp %d" : "SM %d, %s", sm, role, warp);
    else if (!(lanes & (lanes - 1)))
        snprintf(out.text, sizeof out.text, "SM %d, %s warp %d lane %d", sm, role, warp, __builtin_ctz(lanes));
    else
        snprintf(out.text, sizeof out.text, "SM %d, %s warp %d lanes %#x", sm, role, warp, lanes);
    return out;
}

sim_words sim_place(const sim_run *r, uint32_t instruction, int line) {
    const sim_session *s = r->session;
    sim_words out = {"the interpreter"};
    if (instruction >= s->program->instructions_count) return out;
    char name[160];
    program_instruction_name(s->program, instruction, name, sizeof name);
    const uint16_t opcode = s->program->instructions[instruction].opcode;
    if (opcode == PROGRAM_JOIN || !line)
        snprintf(out.text, sizeof out.text, "the interpreter at %s", name);
    else
        snprintf(out.text, sizeof out.text, "%.120s:%d, %s", s->binding.ops[opcode]->path, line, name);
    return out;
}

/* The name of a level-2 program's barrier at that place of the static shared memory; false: it is none. */
static bool name_barrier(const sim_run *r, const sim_cta *cta, size_t at, sim_words *out) {
    const sim_session *s = r->session;
    const sim_unit *unit = s->unit;
    const sim_mbarrier *m = sim_find_mbarrier((sim_cta *)cta, cta->shared + at);
    if (!m || m->instruction >= s->program->instructions_count) return false;
    const uint16_t opcode = s->program->instructions[m->instruction].opcode;
    const tile_op *op = opcode == PROGRAM_JOIN ? NULL : s->binding.ops[opcode];
    if (!op || !op->level2) return false;
    int64_t number = (int64_t)((at - unit->slots) % unit->slot_bytes - unit->slot_barriers) / 8;
    for (int i = 0; i < op->level2->barrier_count; number -= op->level2->barriers[i++].count) {
        const level2_barrier *b = &op->level2->barriers[i];
        if (number >= b->count) continue;
        if (b->count > 1)
            snprintf(out->text, sizeof out->text, "%.120s[%d] of %.120s", b->name, (int)number, op->name);
        else
            snprintf(out->text, sizeof out->text, "%.120s of %.120s", b->name, op->name);
        return true;
    }
    snprintf(out->text, sizeof out->text, "the end of the storer of %.120s", op->name);
    return true;
}

sim_words sim_address(const sim_run *r, const sim_cta *cta, const void *p) {
    sim_words out;
    const uintptr_t at = (uintptr_t)p - (uintptr_t)cta->shared;
    if (at < cta->shared_bytes) {
        const sim_barriers *b = r->session->unit->barriers;
        for (; b->name; b++)
            if (at >= b->offset && at < b->offset + b->count * 8) break;
        const size_t pages = r->launch.pages * (size_t)r->launch.page_bytes;
        if (at < cta->rest && name_barrier(r, cta, at, &out)) return out;
        if (at < cta->rest && b->name)
            snprintf(out.text, sizeof out.text, "%s[%zu]", b->name, (at - b->offset) / 8);
        else if (at < cta->rest)
            snprintf(out.text, sizeof out.text, "the CTA's shared memory + %zu", (size_t)at);
        else if (at - cta->rest < pages)
            snprintf(out.text, sizeof out.text, "page %zu + %zu", (at - cta->rest) / r->launch.page_bytes,
                     (at - cta->rest) % r->launch.page_bytes);
        else
            snprintf(out.text, sizeof out.text, "the op's shared memory + %zu", (size_t)(at - cta->rest - pages));
        return out;
    }
    for (size_t i = r->memory_count; i-- > 0;) {
        const sim_memory *m = r->memories[i];
        if ((uintptr_t)p - (uintptr_t)m->data < m->bytes) {
            snprintf(out.text, sizeof out.text, "%.200s + %zu", m->name, (size_t)((const char *)p - m->data));
            return out;
        }
    }
    uintptr_t nearest = 4096; /* just outside of something? */
    snprintf(out.text, sizeof out.text, "%p", p);
    for (size_t i = 0; i < r->memory_count; i++) {
        const sim_memory *m = r->memories[i];
        const uintptr_t behind = (uintptr_t)p - ((uintptr_t)m->data + m->bytes),
                        before = (uintptr_t)m->data - (uintptr_t)p;
        if (behind < nearest) {
            nearest = behind;
            snprintf(out.text, sizeof out.text, "%zu bytes behind %.200s", (size_t)behind, m->name);
        } else if (before < nearest) {
            nearest = before;
            snprintf(out.text, sizeof out.text, "%zu bytes before %.200s", (size_t)before, m->name);
        }
    }
    return out;
}

void sim_report(sim_run *r, sim_fault fault, bool fatal, uint64_t key, const char *format, ...) {
    sim_session *s = r->session;
    sim_finding *f = s->findings, *end = f + s->finding_count;
    while (f < end && (f->fault != fault || f->key != key)) f++;
    if (f < end)
        f->count++;
    else if (s->finding_count < SIM_FINDINGS) {
        va_list arguments;
        *f = (sim_finding){.fault = fault, .key = key, .count = 1};
        va_start(arguments, format);
        vsnprintf(f->message, sizeof f->message, format, arguments);
        va_end(arguments);
        s->finding_count++;
    }
    if (fatal) sim_stop();
}

/* ---- deadlocks ---- */

typedef struct listing {
    const sim_run *r;
    const sim_cta *cta;
    char *text;
    size_t size, length;
    int waits;
} listing;

static void add(listing *l, const char *format, ...) PRINTF_LIKE(2, 3);
static void add(listing *l, const char *format, ...) {
    va_list arguments;
    if (l->length + 1 >= l->size) return;
    va_start(arguments, format);
    const int n = vsnprintf(l->text + l->length, l->size - l->length, format, arguments);
    va_end(arguments);
    l->length += n > 0 ? (size_t)n : 0;
    if (l->length >= l->size) l->length = l->size - 1;
}

static void add_wait(listing *l, const sim_warp *w, const sim_lane *lane) {
    const sim_words object = sim_address(l->r, l->cta, lane->object);
    switch (lane->wait) {
    case SIM_MBARRIER: {
        const sim_mbarrier *m = sim_find_mbarrier((sim_cta *)l->cta, lane->object);
        add(l, "%s, phase %u: %u of %u arrivals", object.text, m->phase, m->count - m->pending, m->count);
        if (m->bytes > 0) add(l, ", %lld bytes expected that nobody copies", (long long)m->bytes);
        if (m->bytes < 0) add(l, ", %lld bytes more than expected", (long long)-m->bytes);
        break;
    }
    case SIM_NAMED_BARRIER: {
        const sim_named *b = lane->object;
        add(l, "named barrier %d: %u of %u threads", (int)(b - l->cta->named), b->count, b->threads);
        break;
    }
    case SIM_WARP:
        add(l, "its warp: lanes %#x have come", w->arrived);
        break;
    case SIM_WORD: {
        const sim_session *s = l->r->session;
        const uint32_t *word = lane->object;
        const size_t at = (size_t)(word - s->counters);
        if (at < s->program->barriers_count) {
            uint32_t target = 0;
            if (lane->instruction < s->program->instructions_count) {
                const program_instruction *i = &s->handoff.instructions[lane->instruction];
                for (int k = 0; k < i->wait_count; k++)
                    if ((i->wait[k] & ~CUDA_HINT) == at) target = i->target[k];
            }
            add(l, "barrier %zu: %u arrivals, %u in every run are wanted (run %u)", at, *word, target,
                l->r->launch.epoch);
        } else {
            add(l, "%s, which is %u", object.text, *word);
            if (*word == UINT32_MAX) add(l, ": it is stamped, and nobody posts it");
        }
        break;
    }
    default:
        add(l, "nothing, and gets nowhere");
    }
}

/* Who waits for what: a line for each wait of a warp, and equal warps of a CTA together. */
void sim_report_deadlock(sim_run *r) {
    char lines[900];
    listing l = {.r = r, .text = lines, .size = sizeof lines};
    for (int c = 0; c < r->cta_count; c++)
        for (int w = 0; w < SIM_WARPS; w++) {
            const sim_warp *warp = &r->cta[c].warp[w];
            l.cta = &r->cta[c];
            uint32_t left = 0;
            for (int i = 0; i < 32; i++) left |= (uint32_t)!warp->lane[i].done << i;
            while (left) {
                const sim_lane *first = &warp->lane[__builtin_ctz(left)];
                uint32_t same = 0;
                for (uint32_t i = 0; i < 32; i++)
                    if (left & 1u << i && warp->lane[i].wait == first->wait && warp->lane[i].object == first->object)
                        same |= 1u << i;
                left &= ~same;
                bool told = false; /* of an earlier warp of this CTA */
                for (int v = 0; v < w && w < CUDA_WARPS; v++)
                    for (int i = 0; i < 32; i++)
                        told |= !r->cta[c].warp[v].lane[i].done && r->cta[c].warp[v].lane[i].wait == first->wait &&
                                r->cta[c].warp[v].lane[i].object == first->object;
                if (told) continue;
                add(&l, "\n  %s at %s waits for ",
                    sim_who_at((uint32_t)(c * SIM_ACTORS + w), same, first->instruction).text,
                    sim_place(r, first->instruction, first->line).text);
                add_wait(&l, warp, first);
            }
        }
    sim_report(r, SIM_DEADLOCK, false, 0, "nobody can go on:%s", lines);
    r->failed = true;
}
