/* Barriers: every set that is waited for becomes one, shared by all who wait for it; its instructions arrive at it.
 *
 * An instruction has room for PROGRAM_WAITS waits and PROGRAM_ARRIVES arrivals. Where that is not enough, joins stand
 * between: instructions that only wait and arrive. A join is made when the first instruction that needs it is reached,
 * and stands in front of that one; what it waits for comes from lower numbers, so final numbers stay a linear
 * extension.
 *
 *   Too many waits: the barriers are taken six at a time, oldest first, and each six become the barrier of a join.
 * Equal sixes share it.
 *
 *   Too many arrivals (a node's instructions are in more sets than six): as many sets as fit stay direct, the whole
 * node first, then those with the most users. The others are cut into *atoms*, the runs of instructions between any two
 * of their ends; an instruction is in one atom at most. Over the atoms stands a tree of joins, six to one, made as far
 * as it is used; a set is the barriers of the tree's largest parts inside it: few, since sets are few ranges. A set
 * that is scattered over too many parts waits for its whole node instead, which is later but never wrong. */
#include "sched/sched_internal.h"

#include <stdlib.h>

enum { FAN = PROGRAM_WAITS, LEVELS = 13 /* 6^12 > 2^31 */, MOST_PARTS = 48 };

typedef struct cut_node { /* the atoms of a node that has sets which are not direct */
    uint32_t *cuts;       /* ascending numbers: atom k is [cuts[k], cuts[k + 1]) */
    uint32_t cut_count;
    uint32_t *level[LEVELS]; /* barriers, or SCHED_NO_ID; level 0 are the atoms */
} cut_node;

typedef struct barriers { /* what only this pass needs */
    sched *s;
    cut_node **cut; /* by node, or NULL */
    sched_words sixes;
    uint32_t *six_barrier;
    size_t six_capacity;
    sched_u32s list; /* barriers that an instruction waits for */
} barriers;

static uint32_t new_barrier(sched *s, uint32_t count) {
    *ARENA_PUSH(s->memory, s->arrivals, s->barrier_count, s->barrier_capacity) = count;
    return (uint32_t)s->barrier_count - 1;
}

static void arrive(sched *s, uint32_t begin, uint32_t end, uint32_t barrier) {
    for (uint32_t i = begin; i < end; i++) s->arrive[(size_t)i * PROGRAM_ARRIVES + s->arrive_count[i]++] = barrier;
}

static uint32_t new_join(sched *s, uint32_t next, const uint32_t *waits, size_t count) {
    sched_join j = {.next = next, .wait_count = (uint32_t)count};
    memcpy(j.wait, waits, count * sizeof *waits);
    j.arrive = new_barrier(s, 1);
    *ARENA_PUSH(s->memory, s->joins, s->join_count, s->join_capacity) = j;
    return j.arrive;
}

/* ---- which sets are direct ---- */

static int by_use(const void *a, const void *b, void *context) {
    const sched_set *sets = context, *x = &sets[*(const uint32_t *)a], *y = &sets[*(const uint32_t *)b];
    if (x->whole != y->whole) return x->whole ? -1 : 1;
    if (x->users != y->users) return x->users > y->users ? -1 : 1;
    return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}

/* Adds the set to the counts of its instructions; false, and nothing added, when one of them has `room` already. */
static bool count_members(sched *s, uint32_t set, uint32_t *used, uint32_t room) {
    uint32_t count;
    const sched_range *r = sched_set_ranges(s, set, &count);
    for (uint32_t j = 0; j < count; j++)
        for (uint32_t i = r[j].begin; i < r[j].end; i++)
            if (used[i] >= room) return false;
    for (uint32_t j = 0; j < count; j++)
        for (uint32_t i = r[j].begin; i < r[j].end; i++) used[i]++;
    return true;
}

static cut_node *cut(sched *s, const uint32_t *sets, size_t count) {
    cut_node *c = ARENA_NEW(s->memory, cut_node);
    s->numbers.count = 0;
    for (size_t k = 0; k < count; k++) {
        uint32_t range_count;
        const sched_range *r = sched_set_ranges(s, sets[k], &range_count);
        for (uint32_t j = 0; j < range_count; j++) {
            sched_u32s_push(s->memory, &s->numbers, r[j].begin);
            sched_u32s_push(s->memory, &s->numbers, r[j].end);
        }
    }
    sched_sort_u32(s->numbers.data, s->numbers.count);
    c->cuts = ARENA_ARRAY(s->memory, s->numbers.count, uint32_t);
    for (size_t i = 0; i < s->numbers.count; i++)
        if (!i || s->numbers.data[i] != s->numbers.data[i - 1]) c->cuts[c->cut_count++] = s->numbers.data[i];
    uint32_t parts = c->cut_count - 1;
    for (int l = 0; l < LEVELS && (!l || parts > 1); l++) {
        if (l) parts = (parts + FAN - 1) / FAN;
        c->level[l] = ARENA_ARRAY(s->memory, parts, uint32_t);
        memset(c->level[l], 0xff, parts * sizeof(uint32_t));
    }
    return c;
}

/* Decides for the sets of one node. */
static void choose_direct(barriers *b, uint32_t node, uint32_t *sets, size_t count, uint32_t *used) {
    sched *s = b->s;
    bool all = true;
    for (size_t k = 0; k < count && all; k++) all = count_members(s, sets[k], used, PROGRAM_ARRIVES);
    if (all) {
        for (size_t k = 0; k < count; k++) s->sets[sets[k]].direct = true;
        return;
    }
    memset(used + s->first[node], 0, (s->first[node + 1] - s->first[node]) * sizeof *used);
    qsort_r(sets, count, sizeof *sets, by_use, s->sets);
    size_t others = 0;
    const uint32_t whole = sched_set_whole(s, node); /* keeps its place: a scattered set may fall back on it */
    count_members(s, whole, used, PROGRAM_ARRIVES);
    s->sets[whole].direct = true;
    for (size_t k = 0; k < count; k++) {
        if (sets[k] == whole) continue;
        s->sets[sets[k]].direct = count_members(s, sets[k], used, PROGRAM_ARRIVES - 1); /* one place for the atom */
        if (!s->sets[sets[k]].direct) sets[others++] = sets[k];
    }
    if (others) b->cut[node] = cut(s, sets, others);
}

static void find_sets(barriers *b) {
    sched *s = b->s;
    bool *seen = ARENA_ARRAY(s->memory, s->list_words.count, bool);
    for (uint32_t i = 0; i < s->instruction_count; i++) {
        if (seen[s->list_of[i]]) continue;
        seen[s->list_of[i]] = true;
        uint32_t count;
        const uint32_t *sets = sched_list_sets(s, s->list_of[i], &count);
        for (uint32_t k = 0; k < count; k++) s->sets[sets[k]].users++;
    }
    uint32_t *used = ARENA_ARRAY(s->memory, s->instruction_count, uint32_t);
    s->pairs.count = 0;
    for (uint32_t id = 0; id < s->set_words.count; id++)
        if (s->sets[id].users) sched_u64s_push(s->memory, &s->pairs, (uint64_t)s->sets[id].node << 32 | id);
    sched_sort_u64(s->pairs.data, s->pairs.count);
    for (size_t i = 0, end; i < s->pairs.count; i = end) {
        const uint32_t node = (uint32_t)(s->pairs.data[i] >> 32);
        s->kept.count = 0;
        for (end = i; end < s->pairs.count && s->pairs.data[end] >> 32 == node; end++)
            sched_u32s_push(s->memory, &s->kept, (uint32_t)s->pairs.data[end]);
        choose_direct(b, node, s->kept.data, s->kept.count, used);
    }
}

/* ---- the barriers of a set ---- */

static uint32_t direct_barrier(sched *s, uint32_t set) {
    if (s->sets[set].barrier == SCHED_NO_ID) {
        uint32_t count;
        const sched_range *r = sched_set_ranges(s, set, &count);
        s->sets[set].barrier = new_barrier(s, s->sets[set].count);
        for (uint32_t j = 0; j < count; j++) arrive(s, r[j].begin, r[j].end, s->sets[set].barrier);
    }
    return s->sets[set].barrier;
}

/* The barrier of part k of level l, made with all it needs in front of instruction `next`. */
static uint32_t part_barrier(sched *s, cut_node *c, int l, uint32_t k, uint32_t next) {
    if (c->level[l][k] != SCHED_NO_ID) return c->level[l][k];
    if (!l) {
        c->level[0][k] = new_barrier(s, c->cuts[k + 1] - c->cuts[k]);
        arrive(s, c->cuts[k], c->cuts[k + 1], c->level[0][k]);
        return c->level[0][k];
    }
    uint32_t parts = c->cut_count - 1, waits[FAN], count = 0;
    for (int i = 1; i < l; i++) parts = (parts + FAN - 1) / FAN;
    for (uint32_t child = k * FAN; child < parts && child < (k + 1) * FAN; child++)
        waits[count++] = part_barrier(s, c, l - 1, child, next);
    return c->level[l][k] = new_join(s, next, waits, count);
}

static uint32_t cut_at(const cut_node *c, uint32_t number) { /* the atom that begins there */
    uint32_t begin = 0, end = c->cut_count - 1;
    while (begin < end) {
        const uint32_t middle = begin + (end - begin) / 2;
        if (c->cuts[middle] < number)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Walks the largest parts inside atoms [begin, end) of a set; returns their number, and appends their barriers when
 * `list` is set. */
static uint32_t parts_of(sched *s, cut_node *c, uint32_t begin, uint32_t end, uint32_t next, sched_u32s *list) {
    const uint32_t atoms = c->cut_count - 1;
    uint32_t found = 0;
    while (begin < end) {
        int l = 0;
        uint64_t size = 1; /* a part at the right edge may have fewer atoms: no larger one where that has no more */
        while (l + 1 < LEVELS && c->level[l + 1] && begin % (size * FAN) == 0 && begin + size < atoms &&
               min_i64((int64_t)(begin + size * FAN), atoms) <= end)
            l++, size *= FAN;
        if (list) sched_u32s_push(s->memory, list, part_barrier(s, c, l, (uint32_t)(begin / size), next));
        found++;
        begin = (uint32_t)min_i64((int64_t)(begin + size), atoms);
    }
    return found;
}

static void append_barriers(barriers *b, uint32_t set, uint32_t next) {
    sched *s = b->s;
    const sched_set *e = &s->sets[set];
    if (e->direct) {
        sched_u32s_push(s->memory, &b->list, direct_barrier(s, set));
        return;
    }
    cut_node *c = b->cut[e->node];
    uint32_t count, parts = 0;
    const sched_range *r = sched_set_ranges(s, set, &count);
    for (uint32_t j = 0; j < count; j++)
        parts += parts_of(s, c, cut_at(c, r[j].begin), cut_at(c, r[j].end), next, NULL);
    if (parts > MOST_PARTS && s->first[e->node + 1] <= next) {
        sched_u32s_push(s->memory, &b->list, direct_barrier(s, sched_set_whole(s, e->node)));
        return;
    }
    for (uint32_t j = 0; j < count; j++) parts_of(s, c, cut_at(c, r[j].begin), cut_at(c, r[j].end), next, &b->list);
}

/* ---- waits ---- */

static uint32_t join_six(barriers *b, const uint32_t *six, size_t count, uint32_t next) {
    sched *s = b->s;
    size_t known = b->sixes.count;
    const uint32_t id = sched_words_intern(s->memory, &b->sixes, six, count);
    if (id == known) *ARENA_PUSH(s->memory, b->six_barrier, known, b->six_capacity) = new_join(s, next, six, count);
    return b->six_barrier[id];
}

static void make_waits(barriers *b, uint32_t list, uint32_t next) {
    sched *s = b->s;
    uint32_t count;
    const uint32_t *sets = sched_list_sets(s, list, &count);
    b->list.count = 0;
    for (uint32_t k = count; k-- > 0;) append_barriers(b, sets[k], next); /* the earliest node first */
    sched_u32s *w = &b->list;
    while (w->count > PROGRAM_WAITS) {
        sched_sort_u32(w->data, w->count);
        size_t kept = 0, i = 0;
        while (i < w->count) {
            /* n barriers become n - 5 by each full six: no more than needed */
            const size_t excess = kept + (w->count - i) > PROGRAM_WAITS ? kept + (w->count - i) - PROGRAM_WAITS : 0;
            const size_t take =
                excess ? (size_t)min_i64(min_i64(FAN, (int64_t)excess + 1), (int64_t)(w->count - i)) : 1;
            const uint32_t barrier = take > 1 ? join_six(b, w->data + i, take, next) : w->data[i];
            w->data[kept++] = barrier;
            i += take;
        }
        w->count = kept;
    }
    s->waits[list].count = (uint32_t)w->count;
    for (size_t k = 0; k < w->count; k++) s->waits[list].barrier[k] = w->data[k];
}

void sched_barrier(sched *s) {
    barriers b = {.s = s};
    b.cut = ARENA_ARRAY(s->memory, s->node_count, cut_node *);
    s->arrive_count = ARENA_ARRAY(s->memory, s->instruction_count, uint8_t);
    s->arrive = ARENA_ARRAY(s->memory, (size_t)s->instruction_count * PROGRAM_ARRIVES, uint32_t);
    find_sets(&b);
    s->waits = ARENA_ARRAY(s->memory, s->list_words.count, sched_waits);
    bool *made = ARENA_ARRAY(s->memory, s->list_words.count, bool);
    for (uint32_t i = 0; i < s->instruction_count; i++) {
        if (made[s->list_of[i]]) continue;
        made[s->list_of[i]] = true;
        make_waits(&b, s->list_of[i], i);
    }
}
