/* Words in device memory that threads meet at, by loads and atomics that order nothing by themselves, by loads that
 * acquire, and by volatile stores: counters, flags, stamped data.
 *
 * Late. A write is seen at once by its own SM. Whoever else looks sees what was there before, three times of four,
 * until his SM has seen it once, or LOOKS looks have not: so polls end, and two words may be seen to change in either
 * order. (Under the fair schedule all see all at once.) A thread that knows of the write, by its clock, sees it.
 * Atomics find and change the newest value, whatever loads see. There is one older value: what an SM sees never goes
 * back, since before a write it saw at most what was there then. A load that sees the older value gets to know what was
 * released up to that.
 *
 * What is written in the ordinary way is seen late, too, where nothing orders the read behind it: sim_shadow.c. */
#include "machine/sim/sim.h"

#include <stdlib.h>

enum { LOOKS = 32 };
static const uint32_t stamp = 0xffffffffu; /* cuda_stamp.h's */

static struct sim_word *find_word(sim_run *r, const uint32_t *p) {
    if (2 * (r->word_count + 1) > r->word_capacity) {
        const uint32_t capacity = r->word_capacity ? r->word_capacity * 2 : 256;
        struct sim_word *old = r->words, *grown = calloc(capacity, sizeof *grown);
        if (!grown) sim_report(r, SIM_MISUSE, true, 0, "no memory for words");
        const uint32_t old_capacity = r->word_capacity;
        r->words = grown;
        r->word_capacity = capacity;
        r->word_count = 0;
        for (uint32_t i = 0; i < old_capacity; i++)
            if (old[i].address) *find_word(r, old[i].address) = old[i];
        free(old);
    }
    uint32_t at = (uint32_t)(((uintptr_t)p >> 2) * 2654435761u) % r->word_capacity;
    while (r->words[at].address && r->words[at].address != p) at = (at + 1) % r->word_capacity;
    if (!r->words[at].address) {
        r->words[at].address = p;
        r->words[at].seen = UINT64_MAX;
        r->word_count++;
    }
    return &r->words[at];
}

/* Whether the lane, which looks at the word now, sees its older value. */
static bool is_late(sim_run *r, struct sim_word *w) {
    const uint64_t sm = (uint64_t)1 << r->warp->cta->number;
    if (w->seen & sm) return false;
    if (w->looks < LOOKS && sim_random(r) & 3 && !sim_clock_knows(r->lane->clock, w->actor, 1u << w->lane, w->tick)) {
        w->looks++;
        return true;
    }
    w->seen |= sm;
    return false;
}

/* Whoever waits for the word looks again. */
static void wake_pollers(sim_run *r, const void *p) {
    for (int c = 0; c < r->cta_count; c++)
        for (int w = 0; w < SIM_WARPS; w++) {
            sim_warp *warp = &r->cta[c].warp[w];
            if (warp->polls)
                for (uint32_t lane = 0; lane < 32; lane++)
                    if (warp->lane[lane].wait == SIM_WORD && warp->lane[lane].object == p) sim_wake(warp, 1u << lane);
        }
}

void sim_word_written(const void *p) {
    sim_run *r = sim_now;
    wake_pollers(r, p);
    if (!r->late) return;
    struct sim_word *w = find_word(r, p);
    sim_clock_drop(w->older_clock);
    w->older_clock = sim_clock_keep(w->clock);
    memcpy(&w->older, p, sizeof w->older);
    w->older_posted = w->posted;
    w->actor = (uint32_t)(r->warp->cta->number * SIM_ACTORS + r->warp->number);
    w->lane = r->lane_number;
    w->tick = r->lane->tick;
    w->seen = (uint64_t)1 << r->warp->cta->number;
    w->looks = 0;
}

uint32_t sim_call_load(const uint32_t *p, uint32_t acquire) {
    sim_run *r = sim_now;
    sim_lane *l = r->lane;
    const bool again = !acquire && l->polled == p;
    const uint32_t before = l->value;
    sim_call_begin();
    for (;;) {
        struct sim_word *w = find_word(r, p);
        l->late = r->late && is_late(r, w);
        l->value = l->late ? w->older : *p;
        r->session->late += l->late;
        if (!again || l->value != before || l->expired) break;
        sim_block(l->late ? SIM_NOT : SIM_WORD, p);
    }
    l->expired = false;
    sim_access(p, 4, SIM_READ | SIM_RELAXED);
    const struct sim_word *w = find_word(r, p);
    sim_clock_join(r, acquire ? &l->clock : &l->seen, l->late ? w->older_clock : w->clock);
    l->polled = acquire ? NULL : p;
    return l->value;
}

uint32_t sim_call_atomic(uint32_t *p, uint32_t what, uint32_t value, uint32_t compare, uint32_t cta) {
    sim_run *r = sim_now;
    sim_call_begin();
    sim_access(p, 4, SIM_WRITE | SIM_RELAXED | (cta ? SIM_CTA : 0));
    sim_lane *l = r->lane;
    const uint32_t old = *p;
    const uint32_t now = what == SIM_ADD          ? old + value
                         : what == SIM_AND        ? (old & value)
                         : what == SIM_OR         ? (old | value)
                         : what == SIM_EXCHANGE   ? value
                         : what == SIM_MAX        ? (old > value ? old : value)
                         : what == SIM_MIN        ? (old < value ? old : value)
                         : what == SIM_MAX_SIGNED ? ((int32_t)old > (int32_t)value ? old : value)
                         : what == SIM_MIN_SIGNED ? ((int32_t)old < (int32_t)value ? old : value)
                         : old == compare         ? value
                                                  : old;
    *p = now;
    struct sim_word *word = find_word(r, p);
    sim_clock_join(r, &l->seen, word->clock);
    sim_clock_join(r, &word->clock, l->released);
    if (now != old) sim_progress(r);
    wake_pollers(r, p);
    return old;
}

void sim_call_stamped(const uint32_t *p, uint32_t how) {
    sim_run *r = sim_now;
    sim_lane *l = r->lane;
    struct sim_word *w = find_word(r, p);
    if (how != SIM_TAKEN) {
        w->posted = how == SIM_POSTED;
        return;
    }
    l->polled = NULL; /* who takes it once more does not wait for another value */
    if (l->value == stamp || (l->late ? w->older_posted : w->posted)) return; /* the former gives up */
    sim_report(
        r, SIM_RACE, false, (uint64_t)l->line << 32 ^ 1,
        "%s takes %s, which nobody has posted in this launch, and gets what was there before: it is to be stamped "
        "first, and whoever stamps it to be waited for (%s)",
        sim_who(r, UINT32_MAX, 0).text, sim_address(r, r->warp->cta, p).text,
        sim_place(r, l->instruction, l->line).text);
}

static uint32_t take(const uint32_t *p) {
    const uint32_t value = sim_call_load(p, 0);
    sim_call_stamped(p, SIM_TAKEN);
    return value;
}

/* Whoever looks again waits for the first word that he has missed. */
void sim_call_look(uint32_t *to, const uint32_t *p, uint32_t count) {
    sim_lane *l = sim_now->lane;
    const uint32_t *missed = l->value == stamp && l->polled >= p && l->polled < p + count ? l->polled : NULL;
    if (missed) to[missed - p] = take(missed);
    for (uint32_t i = 0; i < count; i++)
        if (p + i != missed) to[i] = take(p + i);
    l->polled = NULL;
    for (uint32_t i = count; i-- > 0;)
        if (to[i] == stamp) l->polled = p + i, l->value = stamp;
}

void sim_words_free(sim_run *r) {
    for (uint32_t i = 0; i < r->word_capacity; i++) {
        sim_clock_drop(r->words[i].clock);
        sim_clock_drop(r->words[i].older_clock);
    }
    free(r->words);
    r->words = NULL;
    r->word_count = r->word_capacity = 0;
}
