/* Slots: temporaries share memory when one is dead before the next is used.
 *
 * A temporary lives from the first node that uses it to the last. When a node is reached, its new temporaries get bytes
 * that no living one has, the largest first. The memory is a row of segments, each with the tensor that had it last.
 * Taking over bytes means waiting for every node that used that tensor; it, in turn, waited for whoever had the bytes
 * before, so the latest is enough.
 *
 * Among the places that do not make the memory much larger than it must be, the one is taken with the fewest waits that
 * are not implied already (prune.c), after those with a wait for a node just before: a buffer whose readers are known
 * to be finished costs nothing, one whose readers were long ago little. Then the tightest fit. */
#include "sched/sched_internal.h"

#include <stdlib.h>

enum { NEAR = 2 }; /* nodes */

static void find_users(sched *s) {
    const mt_graph *g = s->graph;
    const size_t tensors = g->tensor_count;
    s->first_use = ARENA_ARRAY(s->memory, tensors, int);
    s->last_use = ARENA_ARRAY(s->memory, tensors, int);
    s->user_begin = ARENA_ARRAY(s->memory, tensors + 1, uint32_t);
    for (size_t t = 0; t < tensors; t++) s->first_use[t] = s->last_use[t] = SCHED_NONE;
    for (int pass = 0; pass < 2; pass++) { /* counts, then places */
        uint32_t *next = NULL;
        if (pass) {
            for (size_t t = 0; t < tensors; t++) s->user_begin[t + 1] += s->user_begin[t];
            s->users = ARENA_ARRAY(s->memory, s->user_begin[tensors], uint32_t);
            next = ARENA_ARRAY(s->memory, tensors, uint32_t);
            for (size_t t = 0; t < tensors; t++) s->last_use[t] = SCHED_NONE;
        }
        for (uint32_t n = 0; n < s->node_count; n++) {
            if (s->first[n] == s->first[n + 1]) continue;
            for (int p = 0; p < g->nodes[n].op->param_count; p++) {
                if (g->nodes[n].op->params[p].kind > TILE_INOUT) continue;
                const int t = g->views[g->nodes[n].operand[p]].tensor;
                if (s->last_use[t] == (int)n) continue;
                if (s->first_use[t] == SCHED_NONE) s->first_use[t] = (int)n;
                s->last_use[t] = (int)n;
                if (pass)
                    s->users[s->user_begin[t] + next[t]++] = n;
                else
                    s->user_begin[t + 1]++;
            }
        }
    }
}

typedef struct sized {
    int64_t bytes;
    uint32_t tensor;
} sized;
static int larger_first(const void *a, const void *b) {
    const sized *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int64_t slot_size(const sched *s, uint32_t tensor) {
    return (int64_t)align_up((uint64_t)max_i64(s->graph->tensors[tensor].bytes, 1), SCHED_SLOT_ALIGNMENT);
}

void sched_slot_begin(sched *s) {
    const mt_graph *g = s->graph;
    const size_t tensors = g->tensor_count;
    find_users(s);
    s->offset = ARENA_ARRAY(s->memory, tensors, int64_t);
    s->slot_sets = ARENA_ARRAY(s->memory, tensors, sched_u32s);
    s->new_begin = ARENA_ARRAY(s->memory, (size_t)s->node_count + 1, uint32_t);
    s->news = ARENA_ARRAY(s->memory, tensors, uint32_t);
    sized *order = ARENA_ARRAY(s->memory, tensors, sized);
    int64_t *change = ARENA_ARRAY(s->memory, (size_t)s->node_count + 1, int64_t); /* of the living bytes, by node */
    size_t count = 0;
    int64_t total = 0;
    for (size_t t = 0; t < tensors; t++) {
        s->offset[t] = -1;
        if (g->tensors[t].role != MT_TEMP || s->first_use[t] == SCHED_NONE) continue;
        if (g->tensors[t].bytes < 0 || g->tensors[t].bytes > INT64_MAX / 8 ||
            __builtin_add_overflow(total, slot_size(s, (uint32_t)t), &total) || total > INT64_MAX / 8) {
            s->status =
                error_set(s->error, MT_E_LIMIT, g->tensors[t].name, "the temporaries have more than 2^60 bytes");
            return;
        }
        order[count++] = (sized){slot_size(s, (uint32_t)t), (uint32_t)t};
        s->new_begin[s->first_use[t] + 1]++;
        change[s->first_use[t]] += slot_size(s, (uint32_t)t);
        change[s->last_use[t] + 1] -= slot_size(s, (uint32_t)t);
    }
    qsort(order, count, sizeof *order, larger_first);
    uint32_t *next = ARENA_ARRAY(s->memory, (size_t)s->node_count + 1, uint32_t);
    for (uint32_t n = 0; n < s->node_count; n++) next[n + 1] = s->new_begin[n + 1] += s->new_begin[n];
    for (size_t i = 0; i < count; i++) s->news[next[s->first_use[order[i].tensor]]++] = order[i].tensor;
    int64_t living = 0, most = 0;
    for (uint32_t n = 0; n < s->node_count; n++) most = max_i64(most, living += change[n]);
    s->slot_least = most;
}

/* ---- choosing a place ---- */

typedef struct place {
    int64_t begin;
    int64_t end;    /* of the memory with it */
    bool soon;      /* one of the nodes to wait for is so near that it may still be running */
    uint32_t waits; /* nodes to wait for that are not known to be finished */
    int64_t spare;  /* what it leaves of its gap */
} place;

static bool alive(const sched *s, int tensor, uint32_t node) { return s->last_use[tensor] >= (int)node; }

static void add_waits(const sched *s, int tensor, uint32_t node, place *p) {
    for (uint32_t u = s->user_begin[tensor]; u < s->user_begin[tensor + 1]; u++)
        if (!sched_bit(s->before + node * s->width, s->users[u])) {
            p->waits++;
            p->soon |= s->users[u] + NEAR >= node;
        }
}

/* Memory is worth saving from twice of what must be on; up to that it is spent to run freely, and up to a quarter more
 * to wait less. */
static bool better(const sched *s, const place *a, const place *b) {
    const int64_t many = 2 * s->slot_least, some = s->slot_least + s->slot_least / 4;
    if (max_i64(a->end, many) != max_i64(b->end, many)) return a->end < b->end;
    if (a->soon != b->soon) return b->soon;
    if (max_i64(a->end, some) != max_i64(b->end, some)) return a->end < b->end;
    if (a->waits != b->waits) return a->waits < b->waits;
    if (a->spare != b->spare) return a->spare < b->spare;
    return a->begin < b->begin;
}

/* What it means to begin at `begin` in the gap of segments [first, last), which ends at `end`; INT64_MAX behind the
 * last segment. */
static place judge(const sched *s, uint32_t node, size_t first, size_t last, int64_t begin, int64_t end, int64_t size) {
    const int64_t gap_begin = first < last ? s->segments[first].begin : s->slot_bytes;
    const int64_t growth = begin + size - s->slot_bytes;
    place p = {.begin = begin, .end = max_i64(s->slot_bytes, begin + size)};
    p.spare = growth > 0 ? growth : min_i64(end, s->slot_bytes) - gap_begin - size;
    for (size_t k = first; k < last; k++)
        if (s->segments[k].begin < begin + size && begin < s->segments[k].end)
            add_waits(s, s->segments[k].tensor, node, &p);
    return p;
}

/* Tries, in every gap, each segment's begin and the place that ends where the gap ends. */
static place choose(const sched *s, uint32_t node, int64_t size) {
    place best = {.end = INT64_MAX};
    for (size_t first = 0; first <= s->segment_count; first++) {
        if (first < s->segment_count && alive(s, s->segments[first].tensor, node)) continue;
        size_t last = first;
        while (last < s->segment_count && !alive(s, s->segments[last].tensor, node)) last++;
        const bool open = last == s->segment_count; /* memory has no end */
        const int64_t end = open ? INT64_MAX : s->segments[last - 1].end;
        for (size_t i = first; i <= last; i++) {
            if (i == last && !open && end - size < s->segments[first].begin) break;
            const int64_t begin = i < last ? s->segments[i].begin : open ? s->slot_bytes : end - size;
            if (end - size < begin) continue;
            const place p = judge(s, node, first, last, begin, end, size);
            if (better(s, &p, &best)) best = p;
        }
        first = last;
    }
    return best;
}

/* Gives [begin, begin + size) to the tensor; s->numbers gets the nodes that had parts of it. */
static void take(sched *s, int tensor, int64_t begin, int64_t size) {
    const int64_t end = begin + size;
    const size_t old_count = s->segment_count;
    sched_segment *old = ARENA_ARRAY(s->memory, old_count, sched_segment);
    if (old_count) memcpy(old, s->segments, old_count * sizeof *old);
    s->segment_count = 0;
    s->numbers.count = 0;
    bool placed = false;
#define KEEP(b, e, t)                                                                                                  \
    *ARENA_PUSH(s->memory, s->segments, s->segment_count, s->segment_capacity) = (sched_segment) { b, e, t }
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].begin < begin) KEEP(old[i].begin, min_i64(old[i].end, begin), old[i].tensor);
        if (!placed && old[i].end > begin) {
            KEEP(begin, end, tensor);
            placed = true;
        }
        if (old[i].end > end) KEEP(max_i64(old[i].begin, end), old[i].end, old[i].tensor);
        if (old[i].begin < end && begin < old[i].end)
            for (uint32_t u = s->user_begin[old[i].tensor]; u < s->user_begin[old[i].tensor + 1]; u++)
                sched_u32s_push(s->memory, &s->numbers, s->users[u]);
    }
    if (!placed) KEEP(begin, end, tensor);
#undef KEEP
    s->slot_bytes = max_i64(s->slot_bytes, end);
    s->offset[tensor] = begin;
}

void sched_slot_node(sched *s, uint32_t node, sched_u32s *sets) {
    for (uint32_t i = s->new_begin[node]; i < s->new_begin[node + 1]; i++) {
        const int tensor = (int)s->news[i];
        const int64_t size = slot_size(s, (uint32_t)tensor);
        take(s, tensor, choose(s, node, size).begin, size);
        /* of the nodes that had the bytes, those that are not finished anyway when later ones are */
        sched_u32s *mine = &s->slot_sets[tensor];
        sched_sort_u32(s->numbers.data, s->numbers.count);
        memset(s->done, 0, s->width * sizeof *s->done);
        for (size_t k = s->numbers.count; k-- > 0;) {
            if (sched_bit(s->done, s->numbers.data[k])) continue;
            const uint32_t set = sched_set_whole(s, s->numbers.data[k]);
            sched_know(s, s->done, set);
            sched_u32s_push(s->memory, mine, set);
            sched_u32s_push(s->memory, sets, set);
        }
    }
}
