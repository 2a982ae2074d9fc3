/* What threads meet at: mbarriers, named barriers, copies, warps, fences; sim_word.c has words in device memory. Each
 * call of the device code is made by the lane that runs (sim_now->lane); it may give way to others inside.
 *
 * Order: an mbarrier's phase makes known what its arrivals knew (release, acquire: the instructions' default), a copy
 * what was known when it was issued, and what it did; a named barrier and syncwarp all of all. Shuffles, votes and mma
 * order nothing. Relaxed operations on words order nothing by themselves: a fence before a relaxed write and an
 * acquiring load, or a fence behind a relaxed load, do. What a proxy fence makes known to copies and wgmma goes the
 * same ways, but not to another SM. */
#include "machine/sim/sim.h"

#include <stdlib.h>

static sim_warp *this_warp(void) { return sim_now->warp; }
static sim_lane *this_lane(void) { return sim_now->lane; }
static sim_cta *this_cta(void) { return sim_now->warp->cta; }
static uint32_t this_thread(void) { return (uint32_t)sim_now->warp->number * 32 + sim_now->lane_number; }

void sim_call_begin(void) {
    sim_lane *l = this_lane();
    l->polled = NULL;
    if (sim_now->shown_count) sim_show_newest(sim_now);
    if (sim_now->schedule.kind == SIM_RANDOM && !(sim_random(sim_now) & 15)) sim_block(SIM_NOT, NULL);
}

static bool in_shared(const sim_cta *cta, const void *p, uint32_t bytes) {
    const uintptr_t at = (uintptr_t)p - (uintptr_t)cta->shared;
    return at < cta->shared_bytes && bytes <= cta->shared_bytes - at;
}

/* ---- where ---- */

static void call_line(int line) { this_lane()->line = line; }
static void call_instruction(uint32_t number) {
    this_lane()->instruction = number;
    this_lane()->line = 0;
}
static uint64_t call_time(void) {
    sim_now->time += 100;
    sim_block(SIM_NOT, NULL);
    return sim_now->time;
}
static uint32_t call_cta(void) { return (uint32_t)this_cta()->number; }
static uint32_t call_ctas(void) { return (uint32_t)sim_now->cta_count; }
static void *call_shared(uint32_t bytes) {
    sim_cta *cta = this_cta();
    (void)bytes;
    return bytes ? cta->shared : cta->shared + cta->rest;
}

/* ---- mbarriers ---- */

sim_mbarrier *sim_find_mbarrier(sim_cta *cta, const void *address) {
    for (uint32_t i = 0; i < cta->mbarrier_count; i++)
        if (cta->mbarriers[i].address == address) return &cta->mbarriers[i];
    return NULL;
}

static sim_mbarrier *mbarrier(uint64_t *b) {
    sim_cta *cta = this_cta();
    const size_t at = (size_t)((char *)b - cta->shared) / 8; /* they come first in shared memory, mostly in a row */
    if (at < cta->mbarrier_count && cta->mbarriers[at].address == b) return &cta->mbarriers[at];
    sim_mbarrier *m = sim_find_mbarrier(cta, b);
    if (!m)
        sim_report(sim_now, SIM_MISUSE, true, (uintptr_t)b, "%s uses %s as an mbarrier, which was never made one",
                   sim_who(sim_now, UINT32_MAX, 0).text, sim_address(sim_now, cta, b).text);
    return m;
}

/* Nobody will come to the mbarrier any more. When a stop word ended the loop, roles that had run ahead left at once:
 * their arrivals are owed by design. Copies are not: the loader waits for them. */
static void check_settled(sim_run *r, const sim_cta *cta, const sim_mbarrier *m) {
    const cuda_run *l = &r->launch;
    const bool early = l->stop_word && l->done->runs < l->runs && !r->lane;
    const bool lost = !early && (m->pending != m->count || m->phase > m->waited + m->starts_free);
    if (!m->bytes && !lost) return;
    const sim_words name = sim_address(r, cta, m->address);
    const uint64_t key = (uintptr_t)m->address ^ (uint64_t)m->instruction << 48;
    if (m->bytes)
        sim_report(r, SIM_BYTES, false, key, "SM %d, %s ends with %lld bytes that were %s", cta->number, name.text,
                   (long long)(m->bytes < 0 ? -m->bytes : m->bytes),
                   m->bytes < 0 ? "copied but not expected" : "expected but not copied");
    if (m->pending != m->count && !early)
        sim_report(r, SIM_LOST, false, key,
                   "SM %d, %s ends with %u of %u arrivals in phase %u, which nobody can wait for", cta->number,
                   name.text, m->count - m->pending, m->count, m->phase);
    if (m->phase > m->waited + m->starts_free && !early)
        sim_report(r, SIM_LOST, false, key + 1, "SM %d, %s ends after %u phases; %u of them were waited for",
                   cta->number, name.text, m->phase, m->waited);
}

/* The instruction whose barrier it will be: those of level 2 lie in its slot. */
static uint32_t owner(const sim_cta *cta, const uint64_t *b) {
    const sim_unit *unit = sim_now->session->unit;
    const size_t at = (size_t)((const char *)b - cta->shared) - unit->slots;
    uint32_t number = UINT32_MAX;
    if (at < (size_t)unit->slot_count * unit->slot_bytes)
        memcpy(&number, cta->shared + unit->slots + at / unit->slot_bytes * unit->slot_bytes + unit->slot_number,
               sizeof number);
    return number;
}

static void call_mbarrier_init(uint64_t *b, uint32_t arrivals) {
    sim_cta *cta = this_cta();
    if (!in_shared(cta, b, 8) || (uintptr_t)b % 8 || !arrivals || arrivals >= 1 << 20)
        sim_report(sim_now, SIM_MISUSE, true, 0, "an mbarrier at %p for %u arrivals", (void *)b, arrivals);
    sim_access(b, 8, SIM_WRITE);
    sim_mbarrier *m = sim_find_mbarrier(cta, b);
    if (!m) {
        sim_mbarrier *grown = realloc(cta->mbarriers, (cta->mbarrier_count + 1) * sizeof *grown);
        if (!grown) sim_report(sim_now, SIM_MISUSE, true, 0, "no memory for an mbarrier");
        cta->mbarriers = grown;
        m = &grown[cta->mbarrier_count++];
    } else { /* another one was here before: level 2 makes its own for each instruction */
        check_settled(sim_now, cta, m);
        sim_clock_drop(m->known);
        sim_clock_drop(m->arrived);
    }
    *m = (sim_mbarrier){.address = b,
                        .count = arrivals,
                        .pending = arrivals,
                        .maker_actor = (uint32_t)(cta->number * SIM_ACTORS + this_warp()->number),
                        .maker_lane = sim_now->lane_number,
                        .made = this_lane()->tick,
                        .instruction = owner(cta, b)};
}

/* The phase is complete when all arrivals and all expected bytes have come. */
static void complete(sim_run *r, sim_cta *cta, sim_mbarrier *m) {
    if (m->pending || m->bytes) return;
    m->phase++;
    m->pending = m->count;
    sim_clock_join(r, &m->known, m->arrived);
    sim_clock_drop(m->arrived);
    m->arrived = NULL;
    sim_progress(r);
    for (int w = 0; w < SIM_WARPS; w++)
        for (uint32_t lane = 0; lane < 32; lane++) {
            const sim_lane *l = &cta->warp[w].lane[lane];
            if (l->wait == SIM_MBARRIER && l->object == m->address) sim_wake(&cta->warp[w], 1u << lane);
        }
}

static void report_early(const sim_mbarrier *m, int who) {
    sim_report(
        sim_now, SIM_EARLY, false, (uintptr_t)m->address,
        "%s did not wait at %s, with the parity of the phase before the first: it passed a phase early, before any "
        "bytes had come",
        sim_who(sim_now, (uint32_t)who, UINT32_MAX).text, sim_address(sim_now, this_cta(), m->address).text);
}

static void call_mbarrier_arrive(uint64_t *b, uint32_t expected_bytes) {
    sim_call_begin();
    sim_mbarrier *m = mbarrier(b);
    if (!m->pending) /* all have come, but bytes are missing */
        sim_report(sim_now, SIM_MISUSE, true, (uintptr_t)b,
                   "%s arrives at %s, whose %u arrivals of phase %u have all come",
                   sim_who(sim_now, UINT32_MAX, 0).text, sim_address(sim_now, this_cta(), b).text, m->count, m->phase);
    sim_clock *known = sim_clock_release(sim_now, this_warp(), sim_now->lane_number);
    sim_clock_join(sim_now, &m->arrived, known);
    sim_clock_drop(known);
    m->thread[this_thread()].arrives = true;
    if (expected_bytes && m->starts_free) report_early(m, m->starter);
    m->takes_bytes |= expected_bytes != 0;
    m->bytes += expected_bytes;
    m->pending--;
    complete(sim_now, this_cta(), m);
}

static bool is_complete(const sim_mbarrier *m, uint32_t parity) { return (m->phase & 1) != (parity & 1); }

/* A wait of level 2 says which phase it is for; the chip sees one bit of it. That is enough for the phase at hand, and
 * for all before it but those of the same parity. */
static void call_phase(const uint64_t *b, int64_t phase) {
    sim_lane *l = this_lane();
    const sim_mbarrier *m = mbarrier((uint64_t *)b);
    l->exact = b;
    l->wanted = max_i64(phase, -1);
    const bool ahead = phase > m->phase;
    if (!ahead && (phase == m->phase || is_complete(m, (uint32_t)phase & 1))) return;
    sim_report(sim_now, ahead ? SIM_EARLY : SIM_DEADLOCK, false, (uintptr_t)b ^ (uintptr_t)l->line << 48,
               ahead
                   ? "%s waits at %s for phase %lld when phase %u is at hand: it sees one bit of the phase, and passes "
                     "too early (%s)"
                   : "%s waits at %s for phase %lld when phase %u is at hand: it sees one bit of the phase, and waits "
                     "for one that may never end (%s)",
               sim_who(sim_now, UINT32_MAX, 0).text, sim_address(sim_now, this_cta(), b).text, (long long)phase,
               m->phase, sim_place(sim_now, l->instruction, l->line).text);
}

/* `every`: the thread waits for every phase. */
static void passed(sim_mbarrier *m, uint32_t parity, bool every) {
    const uint32_t t = this_thread(), before = m->thread[t].waited, first = m->phase;
    const bool exact = this_lane()->exact == m->address;
    uint32_t waited = before + 1;
    this_lane()->exact = NULL;
    if (exact)
        waited = (uint32_t)(this_lane()->wanted + 2);
    else if (!before || !every)
        waited = first + 1;
    else if ((before & 1) == (parity & 1)) { /* the parity of the last of them */
        sim_report(
            sim_now, SIM_EARLY, false, (uintptr_t)m->address ^ this_warp()->instruction,
            "%s waits at %s for parity %u a second time in a row and passes a phase early: %u are complete, and it "
            "should have waited for %u (%s)",
            sim_who(sim_now, UINT32_MAX, 0).text, sim_address(sim_now, this_cta(), m->address).text, parity, first,
            before, sim_place(sim_now, this_lane()->instruction, this_lane()->line).text);
        waited = before;
    }
    if (exact) {
        m->starts_free |= this_lane()->wanted < 0;
    } else if (every && !before &&
               !first) { /* fine for one that says what is free, not for one that says what has come */
        m->starts_free = true;
        m->starter = sim_now->warp->cta->number * SIM_ACTORS + sim_now->warp->number;
        if (m->takes_bytes && !m->thread[t].arrives) report_early(m, m->starter);
    }
    m->thread[t].waited = waited;
    /* Phases are counted with the one before the first: after phase n there are n + 2. */
    if (!m->thread[t].arrives && waited > m->waited + 1) m->waited = waited - 1;
    sim_clock_join(sim_now, &this_lane()->clock, m->known);
}

static uint32_t wait_for(uint64_t *b, uint32_t parity, bool every) {
    sim_call_begin();
    sim_mbarrier *m = mbarrier(b);
    this_lane()->parity = parity;
    this_lane()->phase = m->phase;
    while (!is_complete(m, parity)) {
        sim_block(SIM_MBARRIER, b);
        if (this_lane()->expired) return this_lane()->expired = false;
        m = mbarrier(b);
    }
    passed(m, parity, every);
    return true;
}
static uint32_t call_mbarrier_try(uint64_t *b, uint32_t parity) { return wait_for(b, parity, true); }
static uint32_t call_mbarrier_await(uint64_t *b, uint32_t parity) { return wait_for(b, parity, false); }

static uint32_t call_mbarrier_test(uint64_t *b, uint32_t parity) {
    sim_call_begin();
    sim_mbarrier *m = mbarrier(b);
    if (!is_complete(m, parity)) return false;
    passed(m, parity, true);
    return true;
}

/* ---- copies ---- */

/* A copy begins; c says what it copies. */
static void begin_copy(sim_copy c) {
    sim_cta *cta = this_cta();
    while (cta->copy_count == SIM_COPIES) sim_land(sim_now, cta, 0, UINT32_MAX);
    const uint32_t tick = ++sim_now->ticks, engine = (uint32_t)(cta->number * SIM_ACTORS + SIM_ENGINE);
    sim_copy *to = &cta->copies[cta->copy_count++];
    const sim_mbarrier *m = mbarrier(c.full);
    const sim_clock *async = this_lane()->clock->proxy[SIM_SPACE_SHARED];
    if (!async || !sim_clock_knows(async, m->maker_actor, 1u << m->maker_lane, m->made))
        sim_report(
            sim_now, SIM_PROXY, false, (uintptr_t)m->address,
            "a copy for %s is to arrive at %s: no fence makes known to the async proxy that %s made it an mbarrier",
            sim_place(sim_now, this_lane()->instruction, this_lane()->line).text,
            sim_address(sim_now, cta, m->address).text, sim_who(sim_now, m->maker_actor, 1u << m->maker_lane).text);
    c.phase = m->phase;
    c.number = cta->copy_next;
    *to = c;
    cta->copy_next = (cta->copy_next + 1) % SIM_COPIES;
    sim_access_copy(sim_now, cta, to, tick);
    sim_clock *known = sim_clock_release(sim_now, this_warp(), sim_now->lane_number);
    to->clock = sim_clock_with(sim_now, known, engine, (uint32_t)to->number, tick);
    sim_clock_drop(known);
    memset(to->to, 0xff, to->bytes); /* nobody may look before they have landed */
}

static void call_bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *full) {
    sim_call_begin();
    sim_cta *cta = this_cta();
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16 || !bytes)
        sim_report(sim_now, SIM_MISUSE, true, 0,
                   "%s issues a bulk copy of %u bytes from %p to %p: all must be multiples "
                   "of 16, and not 0 (%s)",
                   sim_who(sim_now, UINT32_MAX, 0).text, bytes, from, to,
                   sim_place(sim_now, this_lane()->instruction, this_lane()->line).text);
    if (!in_shared(cta, to, bytes))
        sim_report(sim_now, SIM_OUTSIDE, true, 0,
                   "%s issues a bulk copy of %u bytes to %s, which is not all shared memory",
                   sim_who(sim_now, UINT32_MAX, 0).text, bytes, sim_address(sim_now, cta, to).text);
    begin_copy((sim_copy){.to = to, .from = from, .bytes = bytes, .full = full});
}

static void call_map_load(void *to, const void *from, const int32_t at[4], uint64_t *full) {
    sim_call_begin();
    const sim_map *m = from;
    sim_access(from, sizeof *m, SIM_READ);
    uint32_t bytes = m->rank ? m->element : 0;
    for (int d = 0; d < m->rank; d++) bytes *= m->box[d];
    const bool misplaced = (uintptr_t)to % (m->swizzle ? 1024 : 128);
    if (!m->rank || misplaced || (int64_t)at[0] * m->element % 16) /* base and strides are multiples of 16 */
        sim_report(sim_now, SIM_MISUSE, true, 0, "%s issues a copy %s (%s)", sim_who(sim_now, UINT32_MAX, 0).text,
                   !m->rank    ? "of an operand without a map"
                   : misplaced ? "of a map's piece to an address that is not aligned for it"
                               : "of a map's piece that does not begin at a multiple of 16 bytes",
                   sim_place(sim_now, this_lane()->instruction, this_lane()->line).text);
    if (!in_shared(this_cta(), to, bytes))
        sim_report(sim_now, SIM_OUTSIDE, true, 0,
                   "%s issues a copy of a map's piece of %u bytes to %s, which is not all shared memory",
                   sim_who(sim_now, UINT32_MAX, 0).text, bytes, sim_address(sim_now, this_cta(), to).text);
    begin_copy((sim_copy){.to = to, .map = m, .at = {at[0], at[1], at[2], at[3]}, .bytes = bytes, .full = full});
}

/* Bytes [first, last) of a map's piece, as they lie in shared memory. */
static void land_piece(const sim_copy *c, uint32_t first, uint32_t last) {
    const sim_map *m = c->map;
    const uint32_t row_bytes = m->box[0] * m->element;
    for (uint32_t at = first; at < last;) {
        uint32_t source = at, inside, n = 16 - at % 16; /* within a chunk */
        n = n < last - at ? n : last - at;
        if (m->swizzle) source ^= (at / 128 % 8) << 4;
        const char *row = sim_map_row(m, c->at, source / row_bytes, &inside);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t k = source % row_bytes + i;
            c->to[at + i] = row && k < inside * m->element ? row[k] : 0;
        }
        at += n;
    }
}

void sim_land(sim_run *r, sim_cta *cta, int copy, uint32_t bytes) {
    sim_copy *c = &cta->copies[copy];
    sim_mbarrier *m = sim_find_mbarrier(cta, c->full);
    bytes = bytes < c->bytes - c->landed ? bytes : c->bytes - c->landed;
    if (c->map)
        land_piece(c, c->landed, c->landed + bytes);
    else
        memcpy(c->to + c->landed, c->from + c->landed, bytes);
    c->landed += bytes;
    m->bytes -= bytes;
    sim_progress(r);
    if (c->landed == c->bytes) {
        if (c->phase != m->phase)
            sim_report(
                r, SIM_BYTES, true, (uintptr_t)c->full,
                "a copy of %u bytes to %s lands when phase %u of %s, that it belongs to, is complete without it: "
                "fewer bytes were expected than are copied",
                c->bytes, sim_address(r, cta, c->to).text, c->phase, sim_address(r, cta, c->full).text);
        sim_clock_join(r, &m->arrived, c->clock);
        sim_clock_drop(c->clock);
        cta->copy_count--;
        memmove(c, c + 1, (size_t)(cta->copy_count - copy) * sizeof *c);
    }
    complete(r, cta, m);
}

/* ---- bulk stores ----
 * As wgmma: a store is done when a wait says so, and no sooner. Then it reads, and what it has read it writes; whether
 * it may is looked at when it is issued. One thread of an SM issues them: groups are its own. */

static void call_bulk_store(void *to, const void *from, uint32_t bytes) {
    sim_call_begin();
    sim_cta *cta = this_cta();
    sim_store *s = &cta->stores[cta->store_count];
    const bool good = !((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16 || !bytes);
    if (!good || !in_shared(cta, from, bytes) || cta->store_count == SIM_STORES ||
        (cta->store_count && cta->stores[0].thread != this_thread()))
        sim_report(sim_now, SIM_MISUSE, true, 0, "%s issues a bulk store of %u bytes from %s to %p that %s (%s)",
                   sim_who(sim_now, UINT32_MAX, 0).text, bytes, sim_address(sim_now, cta, from).text, to,
                   !good                            ? "has no multiples of 16, or of 0 bytes"
                   : !in_shared(cta, from, bytes)   ? "is not all shared memory"
                   : cta->store_count == SIM_STORES ? "is one too many under way"
                                                    : "another thread has some under way beside",
                   sim_place(sim_now, this_lane()->instruction, this_lane()->line).text);
    *s = (sim_store){.to = to, .from = from, .bytes = bytes, .group = cta->store_group, .thread = this_thread()};
    sim_clock *known = sim_clock_release(sim_now, this_warp(), sim_now->lane_number);
    const uint32_t tick = ++sim_now->ticks, storing = (uint32_t)(cta->number * SIM_ACTORS + SIM_STORING),
                   lane =
                       cta->store_group % 16 * 2; /* groups end in their order: those before need none of their own */
    sim_access_store(sim_now, cta, s, known, lane, tick);
    s->reads = sim_clock_with(sim_now, known, storing, lane, tick);
    s->written = sim_clock_with(sim_now, s->reads, storing, lane + 1, tick);
    sim_clock_drop(known);
    cta->store_count++;
}

static void call_bulk_commit(void) {
    sim_call_begin();
    this_cta()->store_group++;
}

static void call_bulk_wait(uint32_t groups, uint32_t reads) {
    sim_call_begin();
    sim_cta *cta = this_cta();
    int done = 0;
    for (; done < cta->store_count && cta->stores[done].group + groups < cta->store_group; done++) {
        sim_store *s = &cta->stores[done];
        if (!s->read) memcpy(s->to, s->from, s->bytes);
        s->read = true;
        sim_clock_join(sim_now, &this_lane()->clock, reads ? s->reads : s->written);
    }
    for (int i = 0; i < done && !reads; i++) {
        sim_clock_drop(cta->stores[i].reads);
        sim_clock_drop(cta->stores[i].written);
    }
    if (reads) return;
    cta->store_count -= done;
    memmove(cta->stores, cta->stores + done, (size_t)cta->store_count * sizeof *cta->stores);
}

/* ---- named barriers ---- */

static uint32_t call_barrier(uint32_t id, uint32_t threads, uint32_t value) {
    sim_call_begin();
    sim_cta *cta = this_cta();
    sim_named *b = &cta->named[id % SIM_NAMED];
    if (id >= SIM_NAMED || threads % 32 || !threads || (b->count && b->threads != threads))
        sim_report(sim_now, SIM_MISUSE, true, 0, "%s comes to named barrier %u of %u threads; others wait there for %u",
                   sim_who(sim_now, UINT32_MAX, 0).text, id, threads, b->threads);
    b->threads = threads;
    b->value |= value;
    b->lanes[this_warp()->number] |= 1u << sim_now->lane_number;
    if (++b->count < threads) {
        const uint32_t generation = b->generation;
        while (b->generation == generation) sim_block(SIM_NAMED_BARRIER, b);
        return b->result;
    }
    sim_clock_meet(sim_now, cta, b->lanes, NULL);
    b->result = b->value;
    b->value = b->count = 0;
    b->generation++;
    sim_progress(sim_now);
    for (int w = 0; w < SIM_WARPS; w++) {
        const uint32_t self = &cta->warp[w] == this_warp() ? 1u << sim_now->lane_number : 0;
        sim_wake(&cta->warp[w], b->lanes[w] & ~self);
        b->lanes[w] = 0;
    }
    return b->result;
}

/* ---- warps ---- */

static const char *const meetings[] = {"",      "a shuffle or vote", "syncwarp",    "mma",
                                       "wgmma", "wgmma's commit",    "wgmma's wait"};

bool sim_meet(sim_meeting what, uint32_t how, uint32_t bytes, uint32_t mask) {
    sim_warp *w = this_warp();
    if (mask != 0xffffffffu)
        sim_report(sim_now, SIM_MISUSE, true, mask, "%s of the lanes %08x: the simulator has only whole warps",
                   meetings[what], mask);
    if (!w->arrived)
        w->meeting = what, w->how = how, w->bytes = bytes;
    else if (w->meeting != what || w->how != how || w->bytes != bytes)
        sim_report(sim_now, SIM_DIVERGED, true, 0, "%s comes to %s when others of its warp (lanes %08x) are at %s (%s)",
                   sim_who(sim_now, UINT32_MAX, 0).text, meetings[what], w->arrived, meetings[w->meeting],
                   sim_place(sim_now, this_lane()->instruction, this_lane()->line).text);
    w->arrived |= 1u << sim_now->lane_number;
    if (w->arrived == 0xffffffffu) return true;
    sim_block(SIM_WARP, w);
    return false;
}

void sim_meet_end(void) {
    sim_warp *w = this_warp();
    w->meeting = SIM_NO_MEETING;
    w->arrived = 0;
    sim_progress(sim_now);
    sim_wake(w, ~(1u << sim_now->lane_number));
}

static void call_syncwarp(uint32_t mask) {
    sim_call_begin();
    if (!sim_meet(SIM_MEET_SYNC, 0, 0, mask)) return;
    uint32_t lanes[SIM_WARPS] = {0};
    lanes[this_warp()->number] = 0xffffffffu;
    sim_clock_meet(sim_now, this_cta(), lanes, NULL);
    sim_meet_end();
}

static void call_shuffle(void *value, uint32_t bytes, uint32_t how, uint32_t by, uint32_t mask) {
    sim_call_begin();
    sim_warp *w = this_warp();
    const uint32_t lane = sim_now->lane_number;
    w->value[lane] = 0;
    memcpy(&w->value[lane], value, bytes);
    w->from[lane] = by;
    if (sim_meet(SIM_MEET_SHUFFLE, how << 8 | (how == SIM_SHUFFLE_INDEX ? 0 : by), bytes, mask)) {
        uint64_t out[32];
        uint32_t votes = 0;
        for (uint32_t l = 0; l < 32; l++) votes |= (uint32_t)(w->value[l] != 0) << l;
        for (uint32_t l = 0; l < 32; l++) {
            const uint32_t from = how == SIM_SHUFFLE_XOR     ? l ^ by
                                  : how == SIM_SHUFFLE_INDEX ? w->from[l] % 32
                                  : how == SIM_SHUFFLE_UP    ? l - by
                                                             : l + by;
            out[l] = how == SIM_VOTE ? votes : w->value[from < 32 ? from : l];
        }
        memcpy(w->value, out, sizeof out);
        sim_meet_end();
    }
    memcpy(value, &w->value[lane], bytes);
}

static void multiply(sim_warp *w, bool f16) {
    const float *half = sim_chip_calls.half;
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 6; i++) {
            const uint32_t two = w->mma[lane].operands[i];
            float low, high;
            if (f16) {
                low = half[two & 0xffff], high = half[two >> 16];
            } else {
                const uint32_t bits[2] = {two << 16, two & 0xffff0000u};
                memcpy(&low, &bits[0], 4);
                memcpy(&high, &bits[1], 4);
            }
            const int k = 2 * (lane % 4) + (i < 4 ? i / 2 : i - 4) * 8;
            if (i < 4)
                a[lane / 4 + i % 2 * 8][k] = low, a[lane / 4 + i % 2 * 8][k + 1] = high;
            else
                b[k][lane / 4] = low, b[k + 1][lane / 4] = high;
        }
    for (int row = 0; row < 16; row++) {
        double sum[8] = {0};
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++) sum[n] += (double)a[row][k] * (double)b[k][n];
        for (int n = 0; n < 8; n++) {
            float *d = &w->mma[row % 8 * 4 + n / 2].d[row / 8 * 2 + n % 2];
            *d = (float)(*d + sum[n]);
        }
    }
}

static void call_mma(float *d, const uint32_t *operands, uint32_t f16) {
    sim_call_begin();
    sim_warp *w = this_warp();
    w->mma[sim_now->lane_number].d = d;
    memcpy(w->mma[sim_now->lane_number].operands, operands, sizeof w->mma[0].operands);
    if (!sim_meet(SIM_MEET_MMA, f16, 0, 0xffffffffu)) return;
    multiply(w, f16);
    sim_meet_end();
}

/* ---- fences ---- */

static void call_fence(void) {
    sim_call_begin();
    sim_lane *l = this_lane();
    sim_clock_join(sim_now, &l->clock, l->seen);
    sim_clock *known = sim_clock_release(sim_now, this_warp(), sim_now->lane_number);
    sim_clock_drop(l->released);
    l->released = sim_clock_bare(sim_now, known);
    sim_clock_drop(known);
}

static void call_fence_proxy(uint32_t space) {
    sim_call_begin();
    sim_clock_fence(sim_now, this_warp(), sim_now->lane_number, space);
}

/* ---- the end ---- */

void sim_check_end(sim_run *r) {
    for (int c = 0; c < r->cta_count; c++) {
        sim_cta *cta = &r->cta[c];
        for (uint32_t i = 0; i < cta->mbarrier_count; i++) check_settled(r, cta, &cta->mbarriers[i]);
        if (cta->copy_count)
            sim_report(r, SIM_BYTES, false, (uintptr_t)cta, "SM %d ends with %d copies under way", c, cta->copy_count);
        if (cta->store_count)
            sim_report(r, SIM_BYTES, false, (uintptr_t)cta, "SM %d ends with %d bulk stores under way", c,
                       cta->store_count);
    }
}

void sim_sync_free(sim_run *r) {
    for (int c = 0; c < r->cta_count; c++) {
        sim_cta *cta = &r->cta[c];
        for (uint32_t i = 0; i < cta->mbarrier_count; i++) {
            sim_clock_drop(cta->mbarriers[i].arrived);
            sim_clock_drop(cta->mbarriers[i].known);
        }
        for (int i = 0; i < cta->copy_count; i++) sim_clock_drop(cta->copies[i].clock);
        for (int i = 0; i < cta->store_count; i++) {
            sim_clock_drop(cta->stores[i].reads);
            sim_clock_drop(cta->stores[i].written);
        }
        for (int w = 0; w < SIM_WARPS; w++) {
            for (int i = 0; i < cta->warp[w].wgmma_count; i++) sim_clock_drop(cta->warp[w].wgmma[i].clock);
            cta->warp[w].wgmma_count = 0;
        }
        free(cta->mbarriers);
        cta->mbarriers = NULL;
        cta->mbarrier_count = 0;
        cta->copy_count = cta->copy_next = 0;
        cta->store_count = 0;
        cta->store_group = 0;
        cta->group_count = 0;
        memset(cta->named, 0, sizeof cta->named);
    }
    sim_words_free(r);
}

sim_calls sim_chip_calls = {
    .access = sim_access,
    .line = call_line,
    .instruction = call_instruction,
    .phase = call_phase,
    .time = call_time,
    .cta = call_cta,
    .ctas = call_ctas,
    .thread = this_thread,
    .shared = call_shared,
    .mbarrier_init = call_mbarrier_init,
    .mbarrier_arrive = call_mbarrier_arrive,
    .mbarrier_try = call_mbarrier_try,
    .mbarrier_await = call_mbarrier_await,
    .mbarrier_test = call_mbarrier_test,
    .bulk_load = call_bulk_load,
    .map_load = call_map_load,
    .bulk_store = call_bulk_store,
    .bulk_commit = call_bulk_commit,
    .bulk_wait = call_bulk_wait,
    .load = sim_call_load,
    .look = sim_call_look,
    .atomic = sim_call_atomic,
    .stamped = sim_call_stamped,
    .fence = call_fence,
    .fence_proxy = call_fence_proxy,
    .barrier = call_barrier,
    .shuffle = call_shuffle,
    .syncwarp = call_syncwarp,
    .mma = call_mma,
    .wgmma = sim_call_wgmma,
    .wgmma_commit = sim_call_wgmma_commit,
    .wgmma_wait = sim_call_wgmma_wait,
};
