/* Every access of memory: whether it lies in what it may touch, and whether it is ordered with the accesses of the same
 * bytes that it conflicts with.
 *
 * A cell of the shadow stands for SIM_GRAIN bytes and has records of who touched which of them when. An access that is
 * not ordered behind a conflicting record is a race; then it joins the records, and takes the place of those that it is
 * ordered behind and that say no more than it does: whoever comes later and is ordered behind this access is ordered
 * behind those, too. So a cell has few records: mostly one, of the lanes of a warp, in a write's place and a read's.
 *
 * Copies and wgmma go through the async proxy, where what is written in the ordinary way, through the generic one, is
 * known only behind a proxy fence: on the way from the write to the access, and in the access's own CTA. The other way
 * round none is needed: whoever has waited for a copy or a wgmma is behind it for both (PTX: completion is followed by
 * an implicit proxy fence). An ordinary read that a copy's write overwrites has had its value when it is ordered
 * before.
 *
 * What nothing orders may also be seen late: a read of device memory that is a race with an ordinary write of another
 * SM gets, under all schedules but the fair one, the bytes that were there before (under a random one, every second
 * time). So a missing fence is not just reported; the run goes on with the wrong bits that a GPU could show. The bytes
 * lie in memory until the lane has read them: until anything else is called. What is ordered is never seen late.
 *
 * Memory of a run is the operands of the instruction, byte by byte as its views have them, besides tables that all may
 * read. Stacks are nobody's business but their lane's. Read-only memory has no shadow. */
#include "machine/sim/sim.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef struct access {
    sim_cta *cta;
    uint32_t actor; /* of the SM */
    uint32_t lane, tick, instruction;
    uint16_t line;
    uint8_t kind, space;
    const sim_clock *clock;
    const char *address; /* for messages */
    bool page;           /* a copy must have been here in this launch */
    bool late;           /* out: it may not see what another SM wrote */
} access;

/* ---- races ---- */

static const char *verb(uint8_t kind) { return kind & SIM_WRITE ? "writes" : "reads"; }

static void report_race(sim_run *r, const access *a, const sim_record *other) {
    const uint32_t other_actor = (uint32_t)__builtin_ctz(other->actors);
    const bool engine = a->actor == SIM_ENGINE, other_engine = other_actor == SIM_ENGINE;
    const uint32_t op = a->instruction < r->session->program->instructions_count
                            ? r->session->program->instructions[a->instruction].opcode
                            : 0xffffu;
    const uint64_t key = (uint64_t)op << 48 ^ (uint64_t)a->line << 32 ^ (uint64_t)other->line << 16 ^
                         (uint64_t)a->kind << 8 ^ other->kind ^ (uint64_t)engine << 15 ^ (uint64_t)other_engine << 14;
    const sim_words who = sim_who_at((uint32_t)a->cta->number * SIM_ACTORS + a->actor, 1u << a->lane, a->instruction),
                    whom = sim_who_at(other->sm * (uint32_t)SIM_ACTORS + other_actor, other->lanes, other->instruction),
                    where = sim_address(r, a->cta, a->address), here = sim_place(r, a->instruction, a->line),
                    there = sim_place(r, other->instruction, other->line);
    if (a->actor == SIM_STORING)
        sim_report(r, SIM_RACE, false, key, "a bulk store %s %s for %s, and nothing orders this with what %s %s at %s",
                   verb(a->kind), where.text, here.text, whom.text, other->kind & SIM_WRITE ? "wrote" : "read",
                   there.text);
    else if (other_actor == SIM_STORING)
        sim_report(r, other->kind & SIM_WRITE ? SIM_RACE : SIM_PROXY, false, key,
                   "%s %s %s at %s, which a bulk store may still %s (%s): it was not waited for", who.text,
                   verb(a->kind), where.text, here.text, other->kind & SIM_WRITE ? "write" : "read", there.text);
    else if (engine && a->kind & SIM_WRITE)
        sim_report(
            r, SIM_PAGE, false, key,
            "%s is filled again while it may still be in use: the copy for %s is not ordered behind what %s did there "
            "(%s, %s)",
            where.text, here.text, whom.text, verb(other->kind), there.text);
    else if (engine)
        sim_report(r, SIM_RACE, false, key,
                   "a copy reads %s for %s, and nothing orders this with what %s wrote at %s: the loader has to wait",
                   where.text, here.text, whom.text, there.text);
    else if (other_engine && other->kind & SIM_WRITE)
        sim_report(
            r, SIM_PAGE, false, key,
            "%s %s %s, where nothing orders it behind the copy that fills it: it is not full, or was filled again "
            "(%s; the copy is for %s)",
            who.text, verb(a->kind), where.text, here.text, there.text);
    else if (other_actor == SIM_TENSOR)
        sim_report(r, SIM_PROXY, false, key, "%s writes %s at %s, which %s may still read (%s): it was not waited for",
                   who.text, where.text, here.text, whom.text, there.text);
    else
        sim_report(r, SIM_RACE, false, key, "%s %s %s at %s, and nothing orders this with what %s %s at %s", who.text,
                   verb(a->kind), where.text, here.text, whom.text, other->kind & SIM_WRITE ? "wrote" : "read",
                   there.text);
}

static void report_proxy(sim_run *r, const access *a, const sim_record *other) {
    const uint32_t by = (uint32_t)__builtin_ctz(other->actors);
    const uint64_t key = (uint64_t)a->line << 32 ^ (uint64_t)other->line << 16 ^ (uint64_t)a->kind << 8 ^ a->actor;
    sim_report(
        r, SIM_PROXY, false, key,
        "%s %s %s for %s, where %s wrote in the ordinary way at %s: no fence makes this known to the async proxy",
        sim_who_at((uint32_t)a->cta->number * SIM_ACTORS + a->actor, 1u << a->lane, a->instruction).text, verb(a->kind),
        sim_address(r, a->cta, a->address).text, sim_place(r, a->instruction, a->line).text,
        sim_who_at(other->sm * (uint32_t)SIM_ACTORS + by, other->lanes, other->instruction).text,
        sim_place(r, other->instruction, other->line).text);
}

/* ---- cells ---- */

static uint32_t more_new(sim_run *r) {
    if (r->more_free) {
        const uint32_t at = r->more_free;
        r->more_free = r->more[at].next;
        return at;
    }
    if (r->more_count + 1 >= r->more_capacity) {
        const uint32_t capacity = r->more_capacity ? r->more_capacity * 2 : 1024;
        struct sim_more *grown = realloc(r->more, capacity * sizeof *grown);
        if (!grown) sim_report(r, SIM_MISUSE, true, 0, "no memory for records of accesses");
        r->more = grown;
        r->more_capacity = capacity;
    }
    return ++r->more_count; /* 0 is none */
}

/* Whether all that the record tells of is ordered before the access, or is the access's own thread. */
static bool is_ordered(const access *a, const sim_record *other) {
    for (uint32_t left = other->actors; left; left &= left - 1) {
        const uint32_t actor = (uint32_t)__builtin_ctz(left);
        const uint32_t self = actor == a->actor && other->sm == a->cta->number ? 1u << a->lane : 0;
        if (other->lanes & ~self &&
            !sim_clock_knows(a->clock, other->sm * (uint32_t)SIM_ACTORS + actor, other->lanes & ~self, other->tick))
            return false;
    }
    return true;
}

/* Whether the ordinary write that the record tells of is known to the async proxy. */
static bool is_fenced(const access *a, const sim_record *other) {
    const sim_clock *known = a->clock->proxy[a->space];
    for (uint32_t left = other->actors; left; left &= left - 1)
        if (!known || !sim_clock_knows(known, other->sm * (uint32_t)SIM_ACTORS + (uint32_t)__builtin_ctz(left),
                                       other->lanes, other->tick))
            return false;
    return true;
}

/* False: the record has nothing left to say. */
static bool look(sim_run *r, access *a, sim_record *other, uint8_t bytes, bool *reported) {
    if (!(other->bytes & bytes)) return true;
    const bool ordered = is_ordered(a, other);
    const bool apart =
        (a->kind | other->kind) & SIM_CTA && a->cta->number != other->sm; /* each other's scope lacks them */
    const bool race =
        !ordered && (a->kind | other->kind) & SIM_WRITE && (apart || !(a->kind & other->kind & SIM_RELAXED));
    a->late |= race && (other->kind & (SIM_WRITE | SIM_ASYNC)) == SIM_WRITE && a->cta->number != other->sm;
    if (race && !*reported) {
        *reported = true;
        report_race(r, a, other);
    }
    if (a->kind & SIM_ASYNC && (other->kind & (SIM_WRITE | SIM_ASYNC)) == SIM_WRITE && ordered && !*reported &&
        !is_fenced(a, other)) {
        *reported = true;
        report_proxy(r, a, other);
    }
    const bool covered = !(other->bytes & ~bytes) && (a->kind & SIM_WRITE || !(other->kind & SIM_WRITE)) &&
                         (!(a->kind & SIM_RELAXED) || other->kind & SIM_RELAXED);
    return !covered || !(ordered || *reported);
}

static bool alike(const sim_record *a, const sim_record *b) {
    return a->tick == b->tick && a->sm == b->sm && a->bytes == b->bytes && a->kind == b->kind &&
           a->instruction == b->instruction && a->line == b->line;
}

/* Makes one record of two, when that says the same. */
static bool merge(sim_record *to, const sim_record *from) {
    if (!to->lanes || !alike(to, from)) return false;
    if (to->lanes == from->lanes)
        to->actors |= from->actors;
    else if (to->actors == from->actors)
        to->lanes |= from->lanes;
    else
        return false;
    return true;
}

/* Puts a record into the cell; merged ones may merge again. */
static void put(sim_run *r, sim_cell *cell, sim_record mine) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < 2 && !again; i++) {
            sim_record *other = &cell->record[i];
            if (!merge(other, &mine)) continue;
            mine = *other;
            other->lanes = 0;
            again = true;
        }
        for (uint32_t *link = &cell->more; *link && !again; link = &r->more[*link].next) {
            struct sim_more *other = &r->more[*link];
            if (!merge(&other->record, &mine)) continue;
            const uint32_t gone = *link;
            mine = other->record;
            *link = other->next;
            other->next = r->more_free;
            r->more_free = gone;
            again = true;
            break;
        }
    }
    for (int i = 0; i < 2; i++)
        if (!cell->record[i].lanes) {
            cell->record[i] = mine;
            return;
        }
    const uint32_t at = more_new(r);
    r->more[at].record = mine;
    r->more[at].next = cell->more;
    cell->more = at;
}

/* This lane has read these bytes at this tick: whoever wrote them since would have taken that record away. */
static bool known_read(const sim_run *r, const access *a, const sim_cell *cell, uint8_t bytes) {
    const uint32_t lane = 1u << a->lane, actor = 1u << a->actor;
#define KNOWN(other)                                                                                                   \
    ((other)->lanes & lane && (other)->tick == a->tick && (other)->actors & actor && (other)->sm == a->cta->number &&  \
     (other)->kind == a->kind && !(bytes & ~(other)->bytes))
    if (KNOWN(&cell->record[0]) || KNOWN(&cell->record[1])) return true;
    for (uint32_t at = cell->more; at; at = r->more[at].next)
        if (KNOWN(&r->more[at].record)) return true;
#undef KNOWN
    return false;
}

/* Whether anyone in this launch has written, or is writing, these bytes: a copy, or a loader of level 2. */
static bool has_come(const sim_run *r, const sim_cell *cell, uint8_t bytes) {
    uint8_t written = 0;
#define COME(other)                                                                                                    \
    if ((other)->lanes && (other)->kind & SIM_WRITE && (other)->tick > r->first_tick) written |= (other)->bytes
    COME(&cell->record[0]);
    COME(&cell->record[1]);
    for (uint32_t at = cell->more; at; at = r->more[at].next) COME(&r->more[at].record);
#undef COME
    return !(bytes & ~written);
}

/* ---- what is seen late ---- */

/* The bytes that a write is about to replace, if its thread did not write them just before. */
static void keep_older(const access *a, sim_cell *cell, uint8_t bytes) {
    for (int i = 0; i < 2; i++) {
        const sim_record *mine = &cell->record[i];
        if (mine->kind & SIM_WRITE && mine->tick == a->tick && mine->lanes & 1u << a->lane && mine->bytes == bytes)
            return;
    }
    memcpy(cell->older + __builtin_ctz(bytes), a->address, (size_t)__builtin_popcount(bytes));
}

static void show_older(sim_run *r, const access *a, const sim_cell *cell, uint8_t bytes) {
    if (r->shown_count == COUNT_OF(r->shown) || (r->schedule.kind == SIM_RANDOM && sim_random(r) & 1)) return;
    struct sim_shown *s = &r->shown[r->shown_count++];
    s->at = (char *)a->address;
    s->bytes = (uint32_t)__builtin_popcount(bytes);
    memcpy(s->now, s->at, s->bytes);
    memcpy(s->at, cell->older + __builtin_ctz(bytes), s->bytes);
}

void sim_show_newest(sim_run *r) {
    while (r->shown_count) {
        const struct sim_shown *s = &r->shown[--r->shown_count];
        memcpy(s->at, s->now, s->bytes);
    }
}

/* ---- an access ---- */

static void touch(sim_run *r, access *a, sim_cell *cell, uint8_t bytes) {
    if (!(a->kind & SIM_WRITE) && known_read(r, a, cell, bytes)) return;
    const bool late = r->late && a->space == SIM_SPACE_GLOBAL;
    bool reported = false;
    a->late = false;
    if (late && a->kind & SIM_WRITE) keep_older(a, cell, bytes);
    if (a->page && !(a->kind & SIM_WRITE) && !has_come(r, cell, bytes))
        sim_report(r, SIM_PAGE, false, (uint64_t)a->line << 32 | a->actor,
                   "%s reads %s before anything was copied there (%s)",
                   sim_who_at((uint32_t)a->cta->number * SIM_ACTORS + a->actor, 1u << a->lane, a->instruction).text,
                   sim_address(r, a->cta, a->address).text, sim_place(r, a->instruction, a->line).text);
    for (int i = 0; i < 2; i++)
        if (cell->record[i].lanes && !look(r, a, &cell->record[i], bytes, &reported)) cell->record[i].lanes = 0;
    for (uint32_t *link = &cell->more; *link;) {
        struct sim_more *m = &r->more[*link];
        if (look(r, a, &m->record, bytes, &reported)) {
            link = &m->next;
            continue;
        }
        const uint32_t gone = *link;
        *link = m->next;
        m->next = r->more_free;
        r->more_free = gone;
    }
    if (late && a->late && a->kind == SIM_READ && a->actor < SIM_WARPS) show_older(r, a, cell, bytes);
    put(r, cell,
        (sim_record){.tick = a->tick,
                     .lanes = 1u << a->lane,
                     .instruction = a->instruction,
                     .line = a->line,
                     .actors = (uint16_t)(1u << a->actor),
                     .sm = (uint8_t)a->cta->number,
                     .bytes = bytes,
                     .kind = a->kind});
}

static void touch_all(sim_run *r, access *a, sim_cell *cells, size_t offset, size_t bytes) {
    const char *first = a->address;
    for (size_t at = offset, end = offset + bytes; at < end;) {
        const size_t in = at % SIM_GRAIN, n = SIM_GRAIN - in < end - at ? SIM_GRAIN - in : end - at;
        a->address = first + (at - offset);
        touch(r, a, &cells[at / SIM_GRAIN], (uint8_t)((((1u << n) - 1) << in)));
        at += n;
    }
}

/* ---- what may be touched ---- */

sim_memory *sim_find_memory(const void *p) {
    const sim_run *r = sim_now;
    for (size_t i = 0; i < r->memory_count; i++)
        if ((uintptr_t)p - (uintptr_t)r->memories[i]->data < r->memories[i]->bytes) return r->memories[i];
    return NULL;
}

/* What the instruction may touch: its operands, as their views have them. */
static void find_ranges(sim_run *r, sim_warp *w, uint32_t number) {
    sim_session *s = r->session;
    const mt_program *p = s->program;
    w->instruction = number;
    w->range_count = w->range_last = 0;
    if (number >= p->instructions_count || p->instructions[number].opcode == PROGRAM_JOIN) return;
    const program_instruction *i = &p->instructions[number];
    const tile_op *op = s->binding.ops[i->opcode];
    for (int k = 0; k < op->param_count; k++) {
        const tile_param *param = &op->params[k];
        if (param->kind > TILE_INOUT) continue;
        const program_operand *o = &p->operands[i->tensor[param->ordinal]];
        const program_view *v = &s->binding.views[i->tensor[param->ordinal]];
        sim_memory *m = &s->tensors[o->tensor];
        int64_t last = o->offset;
        for (int d = 0; d < o->rank; d++) last += (o->extent[d] - 1) * o->stride[d];
        sim_range *range = &w->range[w->range_count++];
        *range = (sim_range){.memory = m, .writes = param->kind != TILE_IN};
        range->begin = (uintptr_t)m->data;
        range->end = range->begin + m->bytes;
        if (s->layouts[o->tensor] == ROLE_ROWS) {
            range->end = range->begin + (uintptr_t)(((last / v->block + 1) * v->bits + 7) / 8);
            range->begin += (uintptr_t)(o->offset / v->block * v->bits / 8);
        }
        if (!s->handoff.stamped[o->tensor]) continue;
        sim_range *const other = &w->range[w->range_count++]; /* where it lies in the other runs */
        *other = *range;
        other->memory = &s->turns[o->tensor];
        other->begin += s->handoff.stamp_bytes;
        other->end += s->handoff.stamp_bytes;
    }
}

static bool inside(uintptr_t p, uint32_t bytes, uintptr_t begin, uintptr_t end, uint32_t kind) {
    if (kind & SIM_RELAXED)
        begin &= ~(uintptr_t)3, end = (end + 3) & ~(uintptr_t)3; /* atomics on words: of packed elements */
    return p >= begin && p < end && bytes <= end - p;
}

/* The memory, when the access is allowed; else NULL. */
static sim_memory *allowed(sim_run *r, sim_warp *w, sim_lane *l, uintptr_t p, uint32_t bytes, uint32_t kind) {
    if (w->instruction != l->instruction) find_ranges(r, w, l->instruction);
    for (int i = 0, at = w->range_last; i < w->range_count; i++, at = at + 1 < w->range_count ? at + 1 : 0) {
        const sim_range *range = &w->range[at];
        if (!inside(p, bytes, range->begin, range->end, kind) || (kind & SIM_WRITE && !range->writes)) continue;
        w->range_last = at;
        return range->memory;
    }
    const size_t known = w->range_count ? r->table_count : r->memory_count;
    for (size_t i = 0; i < known; i++) {
        sim_memory *m = r->memories[i];
        if (inside(p, bytes, (uintptr_t)m->data, (uintptr_t)m->data + m->bytes, kind))
            return kind & SIM_WRITE && !m->writes ? NULL : m;
    }
    return NULL;
}

static void report_outside(sim_run *r, const sim_warp *w, const sim_lane *l, const void *p, uint32_t bytes,
                           uint32_t kind) {
    const uint64_t key = (uint64_t)l->line << 32 ^ kind ^
                         (uint64_t)(l->instruction < r->session->program->instructions_count
                                        ? r->session->program->instructions[l->instruction].opcode
                                        : 0)
                             << 8;
    sim_report(r, SIM_OUTSIDE, true, key, "%s %s %u bytes at %s, where it has no business (%s)",
               sim_who(r, UINT32_MAX, 0).text, verb((uint8_t)kind), bytes, sim_address(r, w->cta, p).text,
               sim_place(r, l->instruction, l->line).text);
}

/* ---- accesses ---- */

void sim_access(const void *p, uint32_t bytes, uint32_t kind) {
    sim_run *r = sim_now;
    if (r->shown_count) sim_show_newest(r);
    if ((uintptr_t)p - (uintptr_t)r->stacks < r->stack_bytes) return;
    if (!(kind & SIM_WRITE) && (uintptr_t)p - (uintptr_t)&r->launch < sizeof r->launch)
        return; /* the kernel's parameter */
    sim_warp *w = r->warp;
    sim_lane *l = r->lane;
    sim_cta *cta = w->cta;
    const size_t place = ((uintptr_t)p >> 2 ^ (uintptr_t)p >> 9) % SIM_READS;
    if (kind == SIM_READ) {
        if (l->read[place].address == (uintptr_t)p && l->read[place].tick == l->tick && l->read[place].bytes >= bytes)
            return;
        l->read[place].address = (uintptr_t)p;
        l->read[place].tick = l->tick;
        l->read[place].bytes = bytes;
    }
    access a = {.cta = cta,
                .actor = (uint32_t)w->number,
                .lane = r->lane_number,
                .tick = l->tick,
                .instruction = l->instruction,
                .line = (uint16_t)l->line,
                .kind = (uint8_t)kind,
                .clock = l->clock,
                .address = p};
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)cta->shared;
    if (offset < cta->shared_bytes) {
        if (bytes > cta->shared_bytes - offset) report_outside(r, w, l, p, bytes, kind);
        a.page = offset - cta->rest < r->launch.pages * (uintptr_t)r->launch.page_bytes;
        touch_all(r, &a, cta->cells, offset, bytes);
        return;
    }
    sim_memory *m = allowed(r, w, l, (uintptr_t)p, bytes, kind);
    if (!m) {
        Dl_info info, unit;
        if (!(kind & SIM_WRITE) && dladdr(p, &info) && dladdr((const void *)r->session->unit, &unit) &&
            info.dli_fbase == unit.dli_fbase)
            return; /* a constant of the unit */
        report_outside(r, w, l, p, bytes, kind);
        return;
    }
    a.space = SIM_SPACE_GLOBAL;
    if (m->cells) touch_all(r, &a, m->cells, (size_t)((const char *)p - m->data), bytes);
    if (kind & SIM_WRITE && kind & SIM_RELAXED && bytes == 4) sim_word_written(p);
}

/* The copy engine reads or writes memory on behalf of an access. False: it may not. */
static bool engine_touches(sim_run *r, access *a, const char *from, uint32_t bytes) {
    const sim_lane *l = r->lane;
    sim_memory *m = allowed(r, r->warp, r->lane, (uintptr_t)from, bytes, a->kind & SIM_WRITE);
    if (!m) {
        sim_report(r, SIM_OUTSIDE, true, 0, "%s issues a copy of %u bytes %s %s, where it has no business (%s)",
                   sim_who(r, UINT32_MAX, 0).text, bytes, a->kind & SIM_WRITE ? "to" : "from",
                   sim_address(r, a->cta, from).text, sim_place(r, l->instruction, l->line).text);
        return false;
    }
    a->address = from;
    a->space = SIM_SPACE_GLOBAL;
    if (m->cells) touch_all(r, a, m->cells, (size_t)(from - m->data), bytes);
    return true;
}

const char *sim_map_row(const sim_map *m, const int32_t at[4], uint32_t row, uint32_t *inside) {
    int64_t index[4] = {at[0]};
    for (int d = 1; d < m->rank; row /= m->box[d++]) index[d] = at[d] + (int64_t)(row % m->box[d]);
    *inside = 0;
    for (int d = 0; d < m->rank; d++)
        if (index[d] < 0 || (uint64_t)index[d] >= m->extent[d]) return NULL;
    const uint64_t left = m->extent[0] - (uint64_t)index[0];
    *inside = left < m->box[0] ? (uint32_t)left : m->box[0];
    const char *p = m->data;
    for (int d = 0; d < m->rank; d++) p += (uint64_t)index[d] * m->stride[d];
    return p;
}

void sim_access_copy(sim_run *r, sim_cta *cta, const sim_copy *c, uint32_t tick) {
    const sim_lane *l = r->lane;
    access a = {.cta = cta,
                .actor = SIM_ENGINE,
                .lane = (uint32_t)c->number,
                .tick = tick,
                .instruction = l->instruction,
                .line = (uint16_t)l->line,
                .kind = SIM_READ | SIM_ASYNC};
    sim_clock *clock = sim_clock_release(r, r->warp, r->lane_number);
    a.clock = clock;
    bool good = true;
    if (c->from) good = engine_touches(r, &a, c->from, c->bytes);
    for (uint32_t row = 0; c->map && good && row < c->bytes / (c->map->box[0] * c->map->element); row++) {
        uint32_t inside;
        const char *from = sim_map_row(c->map, c->at, row, &inside);
        if (from) good = engine_touches(r, &a, from, inside * c->map->element);
    }
    if (good) {
        a.kind = SIM_WRITE | SIM_ASYNC;
        a.space = SIM_SPACE_SHARED;
        a.address = c->to;
        touch_all(r, &a, cta->cells, (size_t)(c->to - cta->shared), c->bytes);
    }
    sim_clock_drop(clock);
}

void sim_access_store(sim_run *r, sim_cta *cta, const sim_store *s, const sim_clock *known, uint32_t lane,
                      uint32_t tick) {
    const size_t offset = (size_t)(s->from - cta->shared);
    access a = {.cta = cta,
                .actor = SIM_STORING,
                .lane = lane,
                .tick = tick,
                .instruction = r->lane->instruction,
                .line = (uint16_t)r->lane->line,
                .kind = SIM_READ | SIM_ASYNC,
                .clock = known,
                .address = s->from,
                .page = offset - cta->rest < r->launch.pages * (size_t)r->launch.page_bytes};
    touch_all(r, &a, cta->cells, offset, s->bytes);
    a.lane = lane + 1;
    a.kind = SIM_WRITE | SIM_ASYNC;
    a.page = false;
    engine_touches(r, &a, s->to, s->bytes);
}

void sim_access_wgmma(sim_run *r, sim_warp *w, const sim_clock *clock, const void *p, uint32_t bytes, uint32_t tick) {
    const size_t offset = (size_t)((const char *)p - w->cta->shared);
    access a = {.cta = w->cta,
                .actor = SIM_TENSOR,
                .lane = (uint32_t)w->number,
                .tick = tick,
                .instruction = r->lane->instruction,
                .line = (uint16_t)r->lane->line,
                .kind = SIM_READ | SIM_ASYNC,
                .clock = clock,
                .address = p,
                .page = offset - w->cta->rest < r->launch.pages * (size_t)r->launch.page_bytes};
    if (offset >= w->cta->shared_bytes || bytes > w->cta->shared_bytes - offset)
        report_outside(r, w, r->lane, p, bytes, SIM_READ);
    touch_all(r, &a, w->cta->cells, offset, bytes);
}

void sim_shadow_clear(sim_run *r) {
    for (size_t i = 0; i < r->memory_count; i++)
        if (r->memories[i]->cells)
            memset(r->memories[i]->cells, 0, (r->memories[i]->bytes / SIM_GRAIN + 1) * sizeof(sim_cell));
    for (int c = 0; c < r->cta_count; c++) memset(r->cta[c].cells, 0, SIM_SHARED / SIM_GRAIN * sizeof(sim_cell));
    r->more_count = r->more_free = 0;
}
