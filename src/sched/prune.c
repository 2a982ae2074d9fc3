/* What need not be waited for, because other waits imply it.
 *
 * For every node two rows of bits over the nodes before it:
 *   before(N)    nodes all of whose instructions are finished before any instruction of N starts,
 *   finished(N)  nodes all of whose instructions are finished when all instructions of N are; N among them.
 * Both are sound, not complete. They follow from the lists of N's instructions before pruning, which hold by
 * construction:
 *   - an instruction that waits for all of B knows finished(B); one that waits for a part of B knows before(B);
 *   - before(N) is what all instructions of N know;
 *   - finished(N) is what any instruction of N knows, and finished(B) of every B whose instructions are all waited for
 * by some instruction of N, no matter by which. Where B's own instructions wait for each other, its last ones are
 * enough.
 *
 * A set is dropped from a list when, going from the latest node to the earliest,
 *   1. its node is in what the sets kept so far know, or
 *   2. following the kept sets' instructions and the lists that they wait for themselves, a bounded number of steps,
 * meets all of it. By induction over numbers, what is dropped is still ordered through barriers: a dropped set lies
 * behind a kept one. */
#include "sched/sched_internal.h"

enum { MOST_LISTS = 128, MOST_LOOKS = 4096, TARGETS = 64 };

static void add_row(uint64_t *to, const uint64_t *from, size_t width) {
    for (size_t i = 0; i < width; i++) to[i] |= from[i];
}

void sched_know(const sched *s, uint64_t *done, uint32_t set) {
    const sched_set *e = &s->sets[set];
    add_row(done, (e->whole ? s->finished : s->before) + e->node * s->width, s->width);
}

void sched_summarise_node(sched *s, uint32_t node, const uint32_t *lists, size_t count) {
    uint64_t *before = s->before + node * s->width, *finished = s->finished + node * s->width;
    uint64_t *done = s->done;
    memset(before, count ? 0xff : 0, s->width * sizeof *before);
    s->pairs.count = 0; /* begin and end of the parts of nodes that instructions of this one wait for */
    for (size_t i = 0; i < count; i++) {
        uint32_t set_count;
        const uint32_t *sets = sched_list_sets(s, lists[i], &set_count);
        memset(done, 0, s->width * sizeof *done);
        for (uint32_t k = 0; k < set_count; k++) {
            sched_set *e = &s->sets[sets[k]];
            if (e->node == node) continue; /* those instructions' own lists are here too */
            sched_know(s, done, sets[k]);
            if (e->whole || e->stamp == node + 1) continue;
            e->stamp = node + 1;
            uint32_t range_count;
            const sched_range *r = sched_set_ranges(s, sets[k], &range_count);
            for (uint32_t j = 0; j < range_count; j++)
                sched_u64s_push(s->memory, &s->pairs, (uint64_t)r[j].begin << 32 | r[j].end);
        }
        for (size_t w = 0; w < s->width; w++) before[w] &= done[w];
        add_row(finished, done, s->width);
    }
    sched_sort_u64(s->pairs.data, s->pairs.count);
    for (size_t i = 0; i < s->pairs.count;) {
        uint32_t of = 0, range_count,
                 j = 0; /* the node whose parts are walked; the range of its whole set that may have a gap */
        for (uint32_t end = s->node_count; end - of > 1;) {
            const uint32_t middle = of + (end - of) / 2;
            if (s->first[middle] <= s->pairs.data[i] >> 32)
                of = middle;
            else
                end = middle;
        }
        const sched_range *r = sched_set_ranges(s, sched_set_whole(s, of), &range_count);
        uint32_t reached = r[0].begin;
        for (; i < s->pairs.count && s->pairs.data[i] >> 32 < s->first[of + 1]; i++)
            while (j < range_count && s->pairs.data[i] >> 32 <= reached && (uint32_t)s->pairs.data[i] > reached) {
                if ((uint32_t)s->pairs.data[i] < r[j].end)
                    reached = (uint32_t)s->pairs.data[i];
                else if (++j < range_count)
                    reached = r[j].begin;
            }
        if (j == range_count) add_row(finished, s->finished + of * s->width, s->width);
    }
    finished[node / 64] |= (uint64_t)1 << (node % 64);
}

/* ---- rule 2: a search, the nearest lists first ---- */

typedef struct proof {
    sched *s;
    uint32_t set;              /* to be met */
    uint32_t targets[TARGETS]; /* its instructions, when they are few enough to be met one by one */
    uint64_t missing;
    uint32_t looks; /* instructions that may still be looked at */
} proof;

/* Puts the lists of the set's instructions into the queue, each once. */
static void enqueue(proof *p, uint32_t set) {
    sched *s = p->s;
    uint32_t count;
    const sched_range *r = sched_set_ranges(s, set, &count);
    for (uint32_t j = 0; j < count; j++)
        for (uint32_t m = r[j].begin; m < r[j].end && s->queue.count < MOST_LISTS && p->looks; m++, p->looks--) {
            if (s->list_mark[s->list_of[m]] == s->list_stamp) continue;
            s->list_mark[s->list_of[m]] = s->list_stamp;
            sched_u32s_push(s->memory, &s->queue, s->list_of[m]);
        }
}

/* Strikes what `set` has of the wanted set. True when nothing is missing. */
static bool strike(proof *p, uint32_t set) {
    const sched *s = p->s;
    const uint32_t wanted = s->sets[p->set].count;
    if (sched_set_contains(s, set, p->set)) return true;
    if (!p->missing) return false; /* too many to be told apart */
    uint32_t count, t = 0;
    const sched_range *r = sched_set_ranges(s, set, &count);
    for (uint32_t j = 0; j < count; j++) {
        while (t < wanted && p->targets[t] < r[j].begin) t++;
        for (; t < wanted && p->targets[t] < r[j].end; t++) p->missing &= ~((uint64_t)1 << t);
    }
    return !p->missing;
}

static bool implied(sched *s, const uint32_t *kept, size_t kept_count, uint32_t set) {
    const sched_set *wanted = &s->sets[set];
    proof p = {.s = s, .set = set, .looks = MOST_LOOKS};
    if (wanted->count <= TARGETS) {
        uint32_t count, t = 0;
        const sched_range *r = sched_set_ranges(s, set, &count);
        for (uint32_t j = 0; j < count; j++)
            for (uint32_t m = r[j].begin; m < r[j].end; m++) p.targets[t++] = m;
        p.missing = UINT64_MAX >> (64 - t);
    }
    s->queue.count = 0;
    s->list_stamp++;
    if (s->list_mark_capacity < s->list_words.count)
        s->list_mark = ARENA_ARRAY(s->memory, s->list_mark_capacity = 2 * s->list_words.count, uint32_t);
    for (size_t k = 0; k < kept_count; k++) enqueue(&p, kept[k]);
    for (size_t q = 0; q < s->queue.count; q++) {
        uint32_t count;
        const uint32_t *sets = sched_list_sets(s, s->queue.data[q], &count);
        for (uint32_t k = 0; k < count && s->sets[sets[k]].node >= wanted->node; k++) {
            const sched_set *e = &s->sets[sets[k]];
            if (e->node == wanted->node) {
                if (strike(&p, sets[k])) return true;
                if (!s->ordered[e->node]) continue; /* its instructions may wait for wanted ones */
            } else if (sched_bit((e->whole ? s->finished : s->before) + e->node * s->width, wanted->node))
                return true;
            enqueue(&p, sets[k]);
        }
    }
    return false;
}

uint32_t sched_prune(sched *s, uint32_t list) {
    uint32_t count;
    const uint32_t *sets = sched_list_sets(s, list, &count);
    uint64_t *done = s->done;
    memset(done, 0, s->width * sizeof *done);
    s->kept.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sched_bit(done, s->sets[sets[i]].node)) continue;
        if (s->kept.count && implied(s, s->kept.data, s->kept.count, sets[i])) continue;
        sched_u32s_push(s->memory, &s->kept, sets[i]);
        sched_know(s, done, sets[i]);
    }
    return sched_list_of(s, s->kept.data, s->kept.count);
}
