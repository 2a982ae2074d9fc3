/* Vector clocks. They are made, then never changed, and shared by all who know the same: after a barrier of a CTA its
 * threads have one. The cost of a wait is then mostly that of finding that the result is known already: joins are
 * cached. */
#include "machine/sim/sim.h"

#include <stdlib.h>

static size_t lanes_of(const sim_run *r) { return (size_t)r->actors * 32; }

static sim_clock *allocate(const sim_run *r) {
    sim_clock *c = malloc(sizeof *c + (lanes_of(r) + r->actors) * sizeof(uint32_t));
    if (!c) {
        sim_report(sim_now, SIM_MISUSE, true, 0, "no memory for the clocks of %u actors", r->actors);
        return NULL; /* not reached */
    }
    c->users = 1;
    memset(c->proxy, 0, sizeof c->proxy);
    c->least = c->time + lanes_of(r);
    return c;
}

static void find_least(const sim_run *r, sim_clock *c) {
    for (uint32_t a = 0; a < r->actors; a++) {
        uint32_t least = UINT32_MAX;
        for (int l = 0; l < 32; l++)
            least = c->time[a * 32 + (uint32_t)l] < least ? c->time[a * 32 + (uint32_t)l] : least;
        c->least[a] = least;
    }
}

/* Knows all that happened so far, and so does the async proxy: a launch has begun. */
sim_clock *sim_clock_new(const sim_run *r) {
    sim_clock *c = allocate(r);
    for (size_t i = 0; i < lanes_of(r); i++) c->time[i] = r->ticks;
    find_least(r, c);
    sim_clock *known = sim_clock_bare(r, c);
    for (int s = 0; s < SIM_SPACES; s++) c->proxy[s] = sim_clock_keep(known);
    sim_clock_drop(known);
    return c;
}

sim_clock *sim_clock_keep(sim_clock *c) {
    if (c) c->users++;
    return c;
}

void sim_clock_drop(sim_clock *c) {
    if (!c || --c->users) return;
    for (int s = 0; s < SIM_SPACES; s++) sim_clock_drop(c->proxy[s]); /* one deep */
    free(c);
}

sim_clock *sim_clock_bare(const sim_run *r, const sim_clock *c) {
    sim_clock *out = allocate(r);
    memcpy(out->time, c->time, (lanes_of(r) + r->actors) * sizeof(uint32_t));
    return out;
}

static sim_clock *copy(const sim_run *r, const sim_clock *c) {
    sim_clock *out = sim_clock_bare(r, c);
    for (int s = 0; s < SIM_SPACES; s++) out->proxy[s] = sim_clock_keep(c->proxy[s]);
    return out;
}

static void set(sim_clock *c, uint32_t actor, uint32_t lane, uint32_t tick) {
    c->time[actor * 32 + lane] = tick;
    uint32_t least = UINT32_MAX;
    for (uint32_t l = 0; l < 32; l++) least = c->time[actor * 32 + l] < least ? c->time[actor * 32 + l] : least;
    c->least[actor] = least;
}

sim_clock *sim_clock_with(const sim_run *r, const sim_clock *c, uint32_t actor, uint32_t lane, uint32_t tick) {
    sim_clock *out = copy(r, c);
    set(out, actor, lane, tick);
    return out;
}

static sim_clock *join(sim_run *r, const sim_clock *a, const sim_clock *b) {
    sim_clock *out = allocate(r);
    for (int s = 0; s < SIM_SPACES; s++) {
        out->proxy[s] = sim_clock_keep(a->proxy[s]);
        sim_clock_join(r, &out->proxy[s], b->proxy[s]);
    }
    const size_t n = lanes_of(r);
    for (size_t i = 0; i < n; i++) out->time[i] = a->time[i] > b->time[i] ? a->time[i] : b->time[i];
    find_least(r, out);
    return out;
}

void sim_clock_join(sim_run *r, sim_clock **c, sim_clock *other) {
    if (!other || *c == other) return;
    if (!*c) {
        *c = sim_clock_keep(other);
        return;
    }
    const size_t at = (((uintptr_t)*c >> 4) * 31 + ((uintptr_t)other >> 4)) % COUNT_OF(r->joined);
    struct sim_joined *j = &r->joined[at];
    if (j->a != *c || j->b != other) {
        sim_clock *joined = join(r, *c, other);
        sim_clock_drop(j->a);
        sim_clock_drop(j->b);
        sim_clock_drop(j->joined);
        *j = (struct sim_joined){sim_clock_keep(*c), sim_clock_keep(other), joined};
    }
    sim_clock_drop(*c);
    *c = sim_clock_keep(j->joined);
}

void sim_clock_forget(sim_run *r) {
    for (size_t i = 0; i < COUNT_OF(r->joined); i++) {
        sim_clock_drop(r->joined[i].a);
        sim_clock_drop(r->joined[i].b);
        sim_clock_drop(r->joined[i].joined);
        r->joined[i] = (struct sim_joined){NULL, NULL, NULL};
    }
}

static uint32_t actor_of(const sim_warp *w) { return (uint32_t)(w->cta->number * SIM_ACTORS + w->number); }

sim_clock *sim_clock_release(sim_run *r, sim_warp *w, uint32_t lane) {
    sim_lane *l = &w->lane[lane];
    sim_clock *c = sim_clock_with(r, l->clock, actor_of(w), lane, l->tick);
    l->tick = ++r->ticks;
    return c;
}

void sim_clock_fence(sim_run *r, sim_warp *w, uint32_t lane, uint32_t space) {
    sim_lane *l = &w->lane[lane];
    sim_clock *all = sim_clock_bare(r, l->clock), *now = copy(r, l->clock);
    set(all, actor_of(w), lane, l->tick);
    l->tick = ++r->ticks;
    sim_clock_drop(now->proxy[space]);
    now->proxy[space] = all;
    sim_clock_drop(l->clock);
    l->clock = now;
}

void sim_clock_meet(sim_run *r, sim_cta *cta, const uint32_t *lanes, sim_clock *others) {
    sim_clock *all = sim_clock_keep(others);
    for (int w = 0; w < SIM_WARPS; w++)
        for (uint32_t left = lanes[w]; left; left &= left - 1)
            sim_clock_join(r, &all, cta->warp[w].lane[__builtin_ctz(left)].clock);
    sim_clock *known = copy(r, all);
    sim_clock_drop(all);
    const uint32_t tick = ++r->ticks;
    for (int w = 0; w < SIM_WARPS; w++) {
        if (!lanes[w]) continue;
        const uint32_t actor = actor_of(&cta->warp[w]);
        for (uint32_t left = lanes[w]; left; left &= left - 1) {
            sim_lane *l = &cta->warp[w].lane[__builtin_ctz(left)];
            known->time[actor * 32 + (uint32_t)__builtin_ctz(left)] = l->tick;
            sim_clock_drop(l->clock);
            l->clock = sim_clock_keep(known);
            l->tick = tick;
        }
    }
    find_least(r, known);
    sim_clock_drop(known);
}

bool sim_clock_knows(const sim_clock *c, uint32_t actor, uint32_t lanes, uint32_t tick) {
    if (c->least[actor] >= tick) return true;
    for (; lanes; lanes &= lanes - 1)
        if (c->time[actor * 32 + (uint32_t)__builtin_ctz(lanes)] < tick) return false;
    return true;
}
