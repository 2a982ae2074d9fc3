/* One launch: threads, and who of them is next.
 *
 * A lane runs until it cannot go on, or gives way at a call of the chip. The scheduler then takes a warp that has lanes
 * which can run, and runs all of them once (or some, as the schedule wants). Copies land between turns. When nobody can
 * run, no copy is under way and somebody is not done, it is a deadlock.
 *
 * Schedules but the random one are a preference: warps that are favoured run first, in turns; then copies land; then
 * the others run. */
#include "machine/sim/sim.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { STALLED = 20 * 1000 * 1000 }; /* steps without progress are a livelock */

sim_run *sim_now;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

const char *const sim_schedule_names[SIM_SCHEDULES] = {"fair",        "random",         "loader-early",
                                                       "loader-late", "starve-warp",    "starve-sm",
                                                       "copies-late", "copies-reverse", "lanes-apart"};

uint64_t sim_random(sim_run *r) {
    r->random ^= r->random << 13;
    r->random ^= r->random >> 7;
    r->random ^= r->random << 17;
    return r->random * 0x2545f4914f6cdd1dull >> 16;
}

void sim_progress(sim_run *r) { r->progress = r->steps; }

/* ---- lanes ---- */

void sim_block(sim_wait_kind wait, const void *object) {
    sim_run *r = sim_now;
    sim_warp *w = r->warp;
    sim_lane *l = r->lane;
    const uint32_t bit = 1u << r->lane_number;
    l->wait = wait;
    l->object = object;
    if (wait != SIM_NOT) w->runnable &= ~bit;
    if (wait == SIM_WORD) w->polls |= bit;
    sim_fiber_switch(&l->fiber, r->main_fiber);
}

void sim_wake(sim_warp *w, uint32_t lanes) {
    for (uint32_t left = lanes & ~w->runnable; left; left &= left - 1) {
        sim_lane *l = &w->lane[__builtin_ctz(left)];
        if (!l->done) l->wait = SIM_NOT, w->runnable |= left & -left;
    }
    w->polls &= ~lanes;
}

void sim_stop(void) {
    sim_run *r = sim_now;
    r->failed = true;
    if (!r->lane) longjmp(r->out, 1);
    sim_fiber_switch(&r->lane->fiber, r->main_fiber);
}

static void body(void) {
    sim_run *r = sim_now;
    r->session->unit->kernel(&r->launch);
    r->warp->runnable &= ~(1u << r->lane_number);
    r->lane->done = true;
    sim_progress(r);
    sim_fiber_switch(&r->lane->fiber, r->main_fiber);
}

static void resume(sim_run *r, sim_warp *w, uint32_t lane) {
    r->warp = w;
    r->lane = &w->lane[lane];
    r->lane_number = lane;
    r->steps++;
    sim_fiber_switch(&r->main_fiber, r->lane->fiber);
    sim_show_newest(r);
    r->lane = NULL;
    if (r->failed) longjmp(r->out, 1);
}

/* ---- who is next ---- */

static bool favoured(const sim_run *r, const sim_warp *w) {
    const bool loads = w->number >= CUDA_WARPS; /* loader, controller */
    switch (r->schedule.kind) {
    case SIM_LOADER_EARLY:
        return loads;
    case SIM_LOADER_LATE:
        return !loads;
    case SIM_STARVE_WARP:
        return w->number != (int)(r->schedule.seed % CUDA_WARPS);
    case SIM_STARVE_SM:
        return w->cta->number != (int)(r->schedule.seed % (uint64_t)r->cta_count);
    default:
        return true;
    }
}

/* The next warp in turn that can run. */
static sim_warp *next_warp(sim_run *r, uint32_t *at, bool any) {
    const uint32_t count = (uint32_t)r->cta_count * SIM_WARPS;
    for (uint32_t i = 0; i < count; i++) {
        if (++*at >= count) *at = 0;
        sim_warp *w = &r->cta[*at / SIM_WARPS].warp[*at % SIM_WARPS];
        if (w->runnable && (any || favoured(r, w))) return w;
    }
    return NULL;
}

static void run_warp(sim_run *r, sim_warp *w) {
    uint32_t lanes = w->runnable;
    bool down = false;
    if (r->schedule.kind == SIM_RANDOM) {
        const uint64_t dice = sim_random(r);
        if ((dice & 3) == 0 && lanes & (uint32_t)(dice >> 8)) lanes &= (uint32_t)(dice >> 8);
        down = dice & 4;
    } else if (r->schedule.kind == SIM_LANES_APART) {
        lanes = 1u << (31 - __builtin_clz(lanes));
    }
    while (lanes) {
        const uint32_t lane = (uint32_t)(down ? 31 - __builtin_clz(lanes) : __builtin_ctz(lanes));
        lanes &= ~(1u << lane);
        if (w->runnable & 1u << lane) resume(r, w, lane);
    }
}

/* Lands a copy; false: there is none. */
static bool land(sim_run *r, uint32_t *turn) {
    for (int i = 0; i < r->cta_count; i++) {
        sim_cta *cta = &r->cta[++*turn % (uint32_t)r->cta_count];
        if (!cta->copy_count) continue;
        int copy = r->schedule.kind == SIM_COPIES_REVERSE ? cta->copy_count - 1 : 0;
        uint32_t bytes = UINT32_MAX;
        if (r->schedule.kind == SIM_RANDOM) {
            copy = (int)(sim_random(r) % (uint64_t)cta->copy_count);
            if (sim_random(r) & 1) bytes = 16 * (uint32_t)(1 + sim_random(r) % (cta->copies[copy].bytes / 16));
        }
        sim_land(r, cta, copy, bytes);
        return true;
    }
    return false;
}

/* Words may have been written by plain stores: whoever waits for one that has changed can go on. */
static bool words_changed(sim_run *r) {
    bool any = false;
    for (int c = 0; c < r->cta_count; c++)
        for (int w = 0; w < SIM_WARPS; w++) {
            sim_warp *warp = &r->cta[c].warp[w];
            for (uint32_t left = warp->polls; left; left &= left - 1) {
                const sim_lane *l = &warp->lane[__builtin_ctz(left)];
                if (*(const uint32_t *)l->object == l->value) continue;
                sim_wake(warp, left & -left);
                any = true;
            }
        }
    return any;
}

/* Waits end after a while, on a GPU too: whoever waits looks whether the run is to end. Once, until somebody gets on.
 */
static bool expire(sim_run *r) {
    if (r->expired == r->progress) return false;
    r->expired = r->progress;
    for (int c = 0; c < r->cta_count; c++)
        for (int w = 0; w < SIM_WARPS; w++)
            for (uint32_t l = 0; l < 32; l++) {
                sim_lane *lane = &r->cta[c].warp[w].lane[l];
                if (lane->done || (lane->wait != SIM_MBARRIER && lane->wait != SIM_WORD)) continue;
                lane->expired = true;
                sim_wake(&r->cta[c].warp[w], 1u << l);
            }
    return true;
}

static bool all_done(const sim_run *r) {
    for (int c = 0; c < r->cta_count; c++)
        for (int w = 0; w < SIM_WARPS; w++)
            for (int l = 0; l < 32; l++)
                if (!r->cta[c].warp[w].lane[l].done) return false;
    return true;
}

static void schedule(sim_run *r) {
    uint32_t at = 0, turn = 0;
    const bool eager = r->schedule.kind == SIM_FAIR || r->schedule.kind == SIM_LANES_APART;
    for (;;) {
        if (r->steps - r->progress > STALLED) {
            sim_report_deadlock(r);
            return;
        }
        if (r->schedule.kind == SIM_RANDOM) {
            at = (uint32_t)sim_random(r) % ((uint32_t)r->cta_count * SIM_WARPS);
            if (!(sim_random(r) & 7) && land(r, &turn)) continue;
        }
        const uint32_t before = at;
        sim_warp *w = next_warp(r, &at, false);
        if (w && eager && at <= before) land(r, &turn); /* once a round */
        if (w) {
            run_warp(r, w);
            continue;
        }
        if (land(r, &turn)) continue;
        w = next_warp(r, &at, true);
        if (w) {
            run_warp(r, w);
            continue;
        }
        if (all_done(r)) return;
        if (words_changed(r) || expire(r)) continue;
        sim_report_deadlock(r);
        return;
    }
}

/* ---- a launch ---- */

void sim_run_free(sim_run *r) {
    if (!r) return;
    for (int c = 0; c < r->cta_count; c++) {
        free(r->cta[c].shared);
        if (r->cta[c].cells) munmap(r->cta[c].cells, SIM_SHARED / SIM_GRAIN * sizeof(sim_cell));
    }
    if (r->stacks) munmap(r->stacks, r->stack_bytes);
    free(r->cta);
    free(r->more);
    free(r->memories);
    free(r);
}

static void *map_pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static sim_run *run_new(sim_session *s, int ctas) {
    sim_run *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->session = s;
    r->cta_count = ctas;
    r->actors = (uint32_t)ctas * SIM_ACTORS;
    r->stack_bytes = (size_t)ctas * CUDA_THREADS * SIM_STACK;
    r->cta = calloc((size_t)ctas, sizeof *r->cta);
    r->stacks = map_pages(r->stack_bytes);
    bool good = r->cta && r->stacks;
    for (int c = 0; c < ctas && good; c++) {
        r->cta[c].cells = map_pages(SIM_SHARED / SIM_GRAIN * sizeof(sim_cell));
        good = !posix_memalign((void **)&r->cta[c].shared, 1024, SIM_SHARED) && r->cta[c].cells;
    }
    if (good) return r;
    sim_run_free(r);
    return NULL;
}

static void prepare(sim_run *r, const cuda_run *launch) {
    sim_session *s = r->session;
    r->launch = *launch;
    r->schedule = s->machine->schedule;
    r->random = r->schedule.seed * 0x9e3779b97f4a7c15ull + 0x1234567;
    r->time = r->steps = r->progress = 0;
    r->expired = UINT64_MAX;
    r->failed = false;
    r->late = r->schedule.kind != SIM_FAIR;
    s->late = 0;
    r->lane = NULL;
    if (r->ticks > UINT32_MAX / 2) {
        r->ticks = 0;
        sim_shadow_clear(r);
    }
    sim_clock *known = sim_clock_new(r);
    r->first_tick = ++r->ticks;
    for (int c = 0; c < r->cta_count; c++) {
        sim_cta *cta = &r->cta[c];
        cta->run = r;
        cta->number = c;
        cta->rest = (uint32_t)align_up(s->unit->static_bytes, 1024);
        cta->shared_bytes = cta->rest + launch->pages * launch->page_bytes + launch->scratch_bytes;
        memset(cta->shared, 0xff, cta->shared_bytes);
        for (int w = 0; w < SIM_WARPS; w++) {
            sim_warp *warp = &cta->warp[w];
            *warp = (sim_warp){.cta = cta, .number = w, .runnable = UINT32_MAX, .instruction = UINT32_MAX};
            for (int l = 0; l < 32; l++) {
                char *stack = r->stacks + (size_t)((c * SIM_WARPS + w) * 32 + l) * SIM_STACK;
                warp->lane[l] = (sim_lane){.fiber = sim_fiber_new(stack, SIM_STACK, body),
                                           .clock = sim_clock_keep(known),
                                           .tick = r->ticks,
                                           .instruction = UINT32_MAX};
            }
        }
    }
    sim_clock_drop(known);
}

static void finish(sim_run *r) {
    for (int c = 0; c < r->cta_count; c++)
        for (int w = 0; w < SIM_WARPS; w++)
            for (int l = 0; l < 32; l++) {
                sim_lane *lane = &r->cta[c].warp[w].lane[l];
                sim_clock_drop(lane->clock);
                sim_clock_drop(lane->released);
                sim_clock_drop(lane->seen);
                lane->clock = lane->released = lane->seen = NULL;
            }
    sim_sync_free(r);
    sim_clock_forget(r);
    if (r->failed) sim_fiber_forget(r->stacks, r->stack_bytes);
}

mt_status sim_launch(sim_session *s, const cuda_run *launch, int ctas, mt_error *error) {
    s->finding_count = 0;
    if (!s->run && !(s->run = run_new(s, ctas)))
        return error_set(error, MT_E_MEMORY, NULL, "no memory for %d virtual SMs", ctas);
    sim_run *r = s->run;
    mt_status status = sim_find_memories(s, r, error);
    if (status != MT_OK) return status;
    pthread_mutex_lock(&one_at_a_time);
    sim_now = r;
    if (!setjmp(r->out)) {
        prepare(r, launch);
        s->unit->set(&sim_chip_calls);
        schedule(r);
        if (!r->failed) sim_check_end(r);
    }
    r->lane = NULL;
    finish(r);
    s->steps = r->steps;
    sim_now = NULL;
    pthread_mutex_unlock(&one_at_a_time);
    return MT_OK;
}
