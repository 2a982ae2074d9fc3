/* What every instruction must follow: all earlier instructions that touch the same elements, where one of the two
 * writes.
 *
 * Nodes are taken in order. For every class of boxes of a node, the history of its tensor is asked for overlapping
 * boxes, the latest node first; what those nodes' waits already guarantee is passed over (prune.c). An instruction's
 * list is what its classes found. Instructions of one node that conflict run in the order of their numbers; so sums
 * over a grid axis are ordered.
 *
 * History. A group stays in its tensor's history until a later node's writes cover its hull without a gap: whoever
 * overlaps it after that also overlaps one of those writes, which itself follows what it overlaps in the covered group.
 */
#include "sched/sched_internal.h"

enum { MOST_KEPT_HITS = 64 };

#define PRUNED 0x80000000u /* marks lists that are final; ids stay below */

static const int64_t *class_bounds(const sched_group *g, uint32_t c) { return g->bounds + (size_t)c * 2 * g->rank; }

/* Drops those of a finished node's instructions that others of them wait for inside the node; returns how many are
 * left. */
static size_t reduce(sched *s, uint32_t node, uint32_t *numbers, size_t count) {
    if (!s->ordered[node]) return count;
    s->mark_stamp++;
    for (size_t i = 0; i < count; i++) {
        uint32_t length, range_count;
        const uint32_t *sets = sched_list_sets(s, s->list_of[numbers[i]], &length);
        if (!length || s->sets[sets[0]].node != node) continue;
        const sched_range *r = sched_set_ranges(s, sets[0], &range_count);
        for (uint32_t j = 0; j < range_count; j++)
            for (uint32_t m = r[j].begin; m < r[j].end; m++) s->mark[m] = s->mark_stamp;
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (s->mark[numbers[i]] != s->mark_stamp) numbers[kept++] = numbers[i];
    return kept;
}

/* The key of what two groups' classes meet. */
static uint32_t meeting_of(sched *s, const sched_group *h, const sched_group *g) {
    const sched_group *const pair[] = {h->like, g->like};
    uint32_t words[2 * sizeof(void *) / sizeof(uint32_t)];
    memcpy(words, pair, sizeof pair);
    size_t known = s->meeting_keys.count;
    const uint32_t id = sched_words_intern(s->memory, &s->meeting_keys, words, COUNT_OF(words));
    if (id == known)
        *ARENA_PUSH(s->memory, s->meetings, known, s->meeting_capacity) =
            ARENA_ARRAY(s->memory, h->class_count, uint32_t *);
    return id;
}

/* Fills s->hits with the classes of g that class c, whose box is in g's terms, of another group meets. */
static void meet(sched *s, uint32_t meeting, uint32_t c, sched_group *g, const int64_t *box) {
    uint32_t **known = &s->meetings[meeting][c];
    if (!*known) {
        sched_query(s, g, box);
        if (s->hits.count > MOST_KEPT_HITS) return;
        *known = ARENA_ARRAY(s->memory, s->hits.count + 1, uint32_t);
        **known = (uint32_t)s->hits.count;
        if (s->hits.count) memcpy(*known + 1, s->hits.data, s->hits.count * sizeof *s->hits.data);
        return;
    }
    s->hits.count = 0;
    for (uint32_t k = 1; k <= **known; k++) sched_u32s_push(s->memory, &s->hits, (*known)[k]);
}

/* The instructions of the classes in s->hits, as a set. */
static uint32_t hit_set(sched *s, const sched_group *g) {
    if (s->hits.count == g->class_count) return g->all;
    s->numbers.count = 0;
    for (size_t h = 0; h < s->hits.count; h++)
        for (uint32_t m = g->member_begin[s->hits.data[h]]; m < g->member_begin[s->hits.data[h] + 1]; m++)
            sched_u32s_push(s->memory, &s->numbers, s->first[g->node] + g->members[m]);
    return sched_set_numbers(s, g->node, s->numbers.data, reduce(s, g->node, s->numbers.data, s->numbers.count));
}

/* The list of each class of a group: what its box meets in the history, and what used its bytes before. */
static uint32_t *class_lists(sched *s, const sched_group *h) {
    uint32_t *lists = ARENA_ARRAY(s->memory, h->class_count, uint32_t);
    const sched_history *history = &s->history[h->tensor];
    const sched_u32s *slot = &s->slot_sets[h->tensor];
    sched_bounds box;
    s->candidates.count = s->meeting_ids.count = 0; /* groups that conflict with this one at all, the latest first */
    for (size_t i = history->count; i-- > 0;) {
        const sched_group *g = history->groups[i];
        if (!h->writes && !g->writes) continue;
        sched_translate(s, h, h->hull, g, box);
        if (!sched_overlap(h->rank, box, g->hull)) continue;
        sched_u32s_push(s->memory, &s->candidates, (uint32_t)i);
        sched_u32s_push(s->memory, &s->meeting_ids, meeting_of(s, h, g));
    }
    for (uint32_t c = 0; c < h->class_count; c++) {
        memset(s->done, 0, s->width * sizeof *s->done);
        s->kept.count = 0;
        for (size_t k = 0; k < s->candidates.count; k++) {
            sched_group *g = history->groups[s->candidates.data[k]];
            if (sched_bit(s->done, g->node)) continue;
            sched_translate(s, h, class_bounds(h, c), g, box);
            if (!sched_overlap(h->rank, box, g->hull)) continue;
            uint32_t set = g->all;
            if (!sched_inside(h->rank, g->hull, box)) {
                meet(s, s->meeting_ids.data[k], c, g, box);
                if (!s->hits.count) continue;
                set = hit_set(s, g);
            }
            sched_u32s_push(s->memory, &s->kept, set);
            sched_know(s, s->done, set);
        }
        for (size_t k = 0; k < slot->count; k++) {
            if (sched_bit(s->done, s->sets[slot->data[k]].node)) continue;
            sched_u32s_push(s->memory, &s->kept, slot->data[k]);
            sched_know(s, s->done, slot->data[k]);
        }
        lists[c] = sched_list_of(s, s->kept.data, s->kept.count);
    }
    return lists;
}

/* ---- inside a node ---- */

static uint32_t first_from(const sched_group *g, uint32_t c,
                           uint32_t index) { /* the place of the first member >= index */
    uint32_t begin = g->member_begin[c], end = g->member_begin[c + 1];
    while (begin < end) {
        const uint32_t middle = begin + (end - begin) / 2;
        if (g->members[middle] < index)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Appends index << 32 | earlier index to s->inner: enough pairs that their closure orders all conflicts of two groups
 * of one node. The members of a class that writes are a chain. So a member of such a class needs, of another class,
 * only what lies between itself and the member before it; and of a class that writes, only the last. */
static void inner_pairs(sched *s, sched_group *h, sched_group *g) {
    sched_bounds box;
    for (uint32_t c = 0; c < h->class_count; c++) {
        sched_translate(s, h, class_bounds(h, c), g, box);
        sched_query(s, g, box);
        if (h == g && s->hits.count > 1) h->tiles = false;
        if (h == g && s->hits.count == 1 && h->member_begin[c + 1] - h->member_begin[c] == 1) continue;
        for (size_t k = 0; k < s->hits.count; k++) {
            const uint32_t other = s->hits.data[k];
            for (uint32_t m = h->member_begin[c]; m < h->member_begin[c + 1]; m++) {
                const uint32_t index = h->members[m];
                const uint32_t from = h->writes && m > h->member_begin[c] ? h->members[m - 1] : 0;
                uint32_t begin = first_from(g, other, from);
                const uint32_t end = first_from(g, other, index);
                if (g->writes && begin < end) begin = end - 1;
                for (; begin < end; begin++)
                    sched_u64s_push(s->memory, &s->inner, (uint64_t)index << 32 | g->members[begin]);
            }
        }
    }
}

static void find_order_inside(sched *s, uint32_t count) {
    for (int a = 0; a < s->group_count; a++)
        for (int b = 0; b < s->group_count; b++) {
            sched_group *h = s->groups[a], *g = s->groups[b];
            if (h->tensor != g->tensor || (!h->writes && !g->writes) || (h->unordered && g->unordered)) continue;
            inner_pairs(s, h, g);
            if (s->inner.count > 32 * (uint64_t)count + 4096) { /* nearly all conflict with all: one after another */
                s->inner.count = 0;
                for (uint32_t i = 1; i < count; i++) sched_u64s_push(s->memory, &s->inner, (uint64_t)i << 32 | (i - 1));
                for (int k = 0; k < s->group_count; k++) s->groups[k]->tiles = false;
                return;
            }
        }
    sched_sort_u64(s->inner.data, s->inner.count);
}

/* Leaves in s->inner, sorted, what instructions of the node wait for inside it, by their indices in it. */
static void order_inside(sched *s, uint32_t n) {
    sched_pattern *p = s->pattern;
    s->inner.count = 0;
    if (p->ordered) {
        for (size_t i = 0; i < p->inner_count; i++) sched_u64s_push(s->memory, &s->inner, p->inner[i]);
        return;
    }
    find_order_inside(s, s->first[n + 1] - s->first[n]);
    p->ordered = true;
    p->inner = ARENA_ARRAY(s->memory, s->inner.count, uint64_t);
    p->inner_count = s->inner.count;
    if (s->inner.count) memcpy(p->inner, s->inner.data, s->inner.count * sizeof *p->inner);
    for (int k = 0; k < p->count; k++) p->part[k].group->tiles = s->groups[k]->tiles;
}

/* ---- lists of instructions ---- */

static void extend(sched *s, uint32_t list) { /* appends the list's sets to s->kept */
    uint32_t count;
    const uint32_t *sets = sched_list_sets(s, list, &count);
    for (uint32_t k = 0; k < count; k++) sched_u32s_push(s->memory, &s->kept, sets[k]);
}

/* Puts into s->numbers what the i-th instruction waits for inside the node, but for what others of these wait for.
 * s->candidates has, by instruction, where its pairs begin. */
static void inner_numbers(sched *s, uint32_t n, uint32_t i) {
    const uint32_t *begin = s->candidates.data;
    s->numbers.count = 0;
    s->mark_stamp++;
    for (uint32_t k = begin[i]; k < begin[i + 1]; k++) {
        const uint32_t earlier = (uint32_t)s->inner.data[k];
        for (uint32_t j = begin[earlier]; j < begin[earlier + 1]; j++)
            s->mark[(uint32_t)s->inner.data[j]] = s->mark_stamp;
    }
    for (uint32_t k = begin[i]; k < begin[i + 1]; k++) {
        const uint32_t earlier = (uint32_t)s->inner.data[k];
        if (s->mark[earlier] != s->mark_stamp && (k == begin[i] || s->inner.data[k] != s->inner.data[k - 1]))
            sched_u32s_push(s->memory, &s->numbers, s->first[n] + earlier);
    }
}

/* Instructions whose classes have the same lists share a key. s->keys gets the keys, key_of each instruction's.
 *
 * A key is: the set inside the node; in bits, the groups whose list is finished anyway, because an instruction of that
 * set waits for the same one; the lists. */
static void find_keys(sched *s, uint32_t n, uint32_t **lists, uint32_t *key_of) {
    const uint32_t count = s->first[n + 1] - s->first[n];
    size_t inner = 0;
    s->candidates.count = 0;
    for (uint32_t i = 0; i <= count; i++) {
        while (inner < s->inner.count && s->inner.data[inner] >> 32 < i) inner++;
        sched_u32s_push(s->memory, &s->candidates, (uint32_t)inner);
    }
    sched_words_reset(s->memory, &s->keys, 64);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key[SCHED_NODE_GROUPS + 2] = {SCHED_NO_ID};
        inner_numbers(s, n, i);
        if (s->numbers.count) key[0] = sched_set_numbers(s, n, s->numbers.data, s->numbers.count);
        for (int k = 0; k < s->group_count; k++) {
            const uint32_t *class_of = s->class_of[k];
            if (class_of[i] == SCHED_NO_ID) continue;
            key[k + 2] = lists[k][class_of[i]];
            for (size_t j = 0; j < s->numbers.count; j++) {
                const uint32_t c = class_of[s->numbers.data[j] - s->first[n]];
                if (c != SCHED_NO_ID && lists[k][c] == key[k + 2]) key[1] |= (uint32_t)1 << k;
            }
        }
        key_of[i] = sched_words_intern(s->memory, &s->keys, key, (size_t)s->group_count + 2);
    }
}

/* Puts into s->kept what a key stands for; the known groups' lists only when `all`. */
static void open_key(sched *s, uint32_t k, bool all) {
    uint32_t length;
    const uint32_t *key = sched_words_at(&s->keys, k, &length);
    s->kept.count = 0;
    if (key[0] != SCHED_NO_ID) sched_u32s_push(s->memory, &s->kept, key[0]);
    for (uint32_t g = 2; g < length; g++)
        if (all || !(key[1] >> (g - 2) & 1)) extend(s, key[g]);
}

static void make_lists(sched *s, uint32_t n) {
    const uint32_t count = s->first[n + 1] - s->first[n];
    uint32_t *lists[SCHED_NODE_GROUPS];
    if (count > s->key_capacity) s->key_of = ARENA_ARRAY(s->memory, s->key_capacity = count + count / 2, uint32_t);
    for (int g = 0; g < s->group_count; g++) lists[g] = class_lists(s, s->groups[g]);
    order_inside(s, n);
    find_keys(s, n, lists, s->key_of);

    s->raw_lists.count = 0;
    for (uint32_t k = 0; k < s->keys.count; k++) {
        open_key(s, k, true);
        sched_u32s_push(s->memory, &s->raw_lists, sched_list_of(s, s->kept.data, s->kept.count));
    }
    sched_summarise_node(s, n, s->raw_lists.data, s->raw_lists.count);

    /* New temporaries know now what has finished before this node. All its instructions follow what used their bytes.
     */
    s->candidates.count = 0;
    sched_slot_node(s, n, &s->candidates);
    for (size_t k = 0; k < s->candidates.count; k++) {
        sched_know(s, s->before + n * s->width, s->candidates.data[k]);
        sched_know(s, s->finished + n * s->width, s->candidates.data[k]);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t k = s->key_of[i];
        if (!(s->raw_lists.data[k] & PRUNED)) { /* its first instruction: those before it have their lists */
            open_key(s, k, false);
            for (size_t c = 0; c < s->candidates.count; c++)
                sched_u32s_push(s->memory, &s->kept, s->candidates.data[c]);
            s->raw_lists.data[k] = sched_prune(s, sched_list_of(s, s->kept.data, s->kept.count)) | PRUNED;
        }
        s->list_of[s->first[n] + i] = s->raw_lists.data[k] & ~PRUNED;
    }
}

/* The node is done: where its instructions are ordered among themselves, waiting for the last ones is waiting for all.
 */
static void find_last(sched *s, uint32_t n) {
    s->ordered[n] = s->inner.count > 0;
    if (!s->ordered[n]) return;
    s->numbers.count = 0;
    for (uint32_t i = s->first[n]; i < s->first[n + 1]; i++) sched_u32s_push(s->memory, &s->numbers, i);
    s->whole[n] = sched_set_numbers(s, n, s->numbers.data, reduce(s, n, s->numbers.data, s->numbers.count));
    s->sets[s->whole[n]].whole = true;
    for (int k = 0; k < s->group_count; k++) {
        sched_group *g = s->groups[k];
        s->numbers.count = 0;
        for (uint32_t m = 0; m < g->member_begin[g->class_count]; m++)
            sched_u32s_push(s->memory, &s->numbers, s->first[n] + g->members[m]);
        g->all = sched_set_numbers(s, n, s->numbers.data, reduce(s, n, s->numbers.data, s->numbers.count));
    }
}

static void remember(sched *s, sched_group *g) {
    sched_history *h = &s->history[g->tensor];
    if (g->tiles) {
        size_t kept = 0;
        for (size_t i = 0; i < h->count; i++) {
            sched_bounds box;
            sched_translate(s, h->groups[i], h->groups[i]->hull, g, box);
            if (h->groups[i]->node == g->node || !sched_inside(g->rank, box, g->hull)) h->groups[kept++] = h->groups[i];
        }
        h->count = kept;
    }
    *ARENA_PUSH(s->memory, h->groups, h->count, h->capacity) = g;
}

void sched_depend(sched *s) {
    const size_t tensors = s->graph->tensor_count;
    s->history = ARENA_ARRAY(s->memory, tensors, sched_history);
    s->list_of = ARENA_ARRAY(s->memory, s->instruction_count, uint32_t);
    s->whole = ARENA_ARRAY(s->memory, s->node_count, uint32_t);
    memset(s->whole, 0xff, s->node_count * sizeof *s->whole);
    s->width = ((size_t)s->node_count + 63) / 64;
    s->before = ARENA_ARRAY(s->memory, s->node_count * s->width, uint64_t);
    s->finished = ARENA_ARRAY(s->memory, s->node_count * s->width, uint64_t);
    s->done = ARENA_ARRAY(s->memory, s->width, uint64_t);
    s->ordered = ARENA_ARRAY(s->memory, s->node_count, bool);
    s->mark = ARENA_ARRAY(s->memory, s->instruction_count, uint32_t);
    sched_list_of(s, NULL, 0); /* list 0 is the empty one */
    for (uint32_t n = 0; n < s->node_count && s->status == MT_OK; n++) {
        if (s->first[n] == s->first[n + 1]) continue;
        sched_collect(s, n);
        make_lists(s, n);
        find_last(s, n);
        for (int g = 0; g < s->group_count; g++) remember(s, s->groups[g]);
    }
}
