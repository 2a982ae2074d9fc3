/* Accesses that later ones may have to follow, and how they are found without looking at all of them.
 *
 * Layers. What a node's instructions do through one operand is a layer: one region an instruction, under a tree of
 * hulls, eight at a time. The leaves are sorted by the barrier that their instructions arrive at first. A later access
 * descends where hulls meet it and stops where it knows all barriers of a part to be complete; so a reader of what a
 * thousand instructions wrote looks at one hull. Only at a leaf are two accesses compared as such.
 *
 * Segments. A space's bytes are cut into segments, each with the layers that touched it and still matter. When a later
 * layer of writes fills a range of bytes, the layers before it no longer matter there: whoever meets one of them meets
 * one of the new writes at the same byte too, which has been checked against both. A layer that no segment lists is
 * gone, and its instructions' barriers need not be told apart any more (order.c). Where a layer's hull is not a range
 * of bytes (some columns of a tensor), it replaces layers of the same tensor that lie inside its hull. */
#include <stdlib.h>

#include "program/frontier.h"

enum { FANOUT = 8 };

/* ---- layers ---- */

program_footprint *program_footprint_new(arena *a, const tile_box *box, uint32_t most) {
    program_footprint *f = ARENA_NEW(a, program_footprint);
    if (!f) return NULL;
    *f = (program_footprint){.writes = box->writes,
                             .unordered = box->unordered,
                             .regions = ARENA_ARRAY(a, most, program_region),
                             .at = ARENA_ARRAY(a, most, uint32_t)};
    return f->regions && f->at ? f : NULL;
}

void program_footprint_add(program_footprint *f, const program_region *r, uint32_t at) {
    f->regions[f->count] = *r;
    f->at[f->count++] = at;
}

program_layer *program_layer_new(program_footprint *f, uint32_t tensor, int64_t shift, const uint32_t *numbers) {
    program_layer *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    *l = (program_layer){.footprint = f, .shift = shift, .fills = f->writes, .references = 1};
    l->hull.tensor = tensor;
    l->instructions = malloc(f->count * sizeof *l->instructions);
    if (!l->instructions) {
        free(l);
        return NULL;
    }
    for (uint32_t i = 0; i < f->count; i++) l->instructions[i] = numbers[f->at[i]];
    return l;
}

static void join_hulls(program_hull *a, const program_hull *b) {
    program_region_join(&a->region, &b->region);
    for (int k = 0; k < PROGRAM_ARRIVES; k++) {
        if (a->low[k] > a->high[k]) continue;
        if (b->low[k] > b->high[k]) {
            a->low[k] = 1, a->high[k] = 0;
            continue;
        }
        if (b->low[k] < a->low[k]) a->low[k] = b->low[k];
        if (b->high[k] > a->high[k]) a->high[k] = b->high[k];
    }
}

static program_hull leaf_hull(const program_layer *l, const mt_program *p, const program_order *o, uint32_t at) {
    const program_instruction *n = &p->instructions[l->instructions[at]];
    program_hull h = {.region = l->footprint->regions[at]};
    for (int k = 0; k < PROGRAM_ARRIVES; k++) {
        h.low[k] = k < n->arrive_count ? program_order_rank(o, n->arrive[k]) : 1;
        h.high[k] = k < n->arrive_count ? h.low[k] : 0;
    }
    return h;
}

static int compare_u64(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool sort_leaves(program_layer *l, const mt_program *p, const program_order *o) {
    l->order = malloc(l->footprint->count * sizeof *l->order);
    uint64_t *keys = malloc(l->footprint->count * sizeof *keys); /* rank, then place */
    bool sorted = true;
    for (uint32_t i = 0; i < l->footprint->count && keys; i++) {
        const program_instruction *n = &p->instructions[l->instructions[i]];
        keys[i] = (uint64_t)(n->arrive_count ? program_order_rank(o, n->arrive[0]) : UINT32_MAX) << 32 | i;
        sorted = sorted && (!i || keys[i] > keys[i - 1]);
    }
    if (!sorted && keys) qsort(keys, l->footprint->count, sizeof *keys, compare_u64);
    for (uint32_t i = 0; i < l->footprint->count && keys && l->order; i++) l->order[i] = (uint32_t)keys[i];
    free(keys);
    return keys && l->order;
}

bool program_layer_build(program_layer *l, const mt_program *p, program_order *o) {
    for (uint32_t i = 0; i < l->footprint->count; i++) program_order_hold(o, l->instructions[i]);
    if (!sort_leaves(l, p, o)) return false;
    uint32_t total = 0;
    for (uint32_t count = l->footprint->count;;) {
        count = (uint32_t)ceil_div(count, FANOUT);
        l->level_begin[l->levels++] = total;
        total += count;
        if (count == 1) break;
    }
    if (!(l->hulls = malloc(total * sizeof *l->hulls))) return false;
    for (uint32_t i = 0; i < l->footprint->count; i++) {
        const program_hull leaf = leaf_hull(l, p, o, l->order[i]);
        if (i % FANOUT)
            join_hulls(&l->hulls[i / FANOUT], &leaf);
        else
            l->hulls[i / FANOUT] = leaf;
    }
    for (uint32_t level = 1; level < l->levels; level++) {
        const program_hull *below = &l->hulls[l->level_begin[level - 1]];
        const uint32_t count = l->level_begin[level] - l->level_begin[level - 1];
        for (uint32_t i = 0; i < count; i++) {
            program_hull *h = &l->hulls[l->level_begin[level] + i / FANOUT];
            if (i % FANOUT)
                join_hulls(h, &below[i]);
            else
                *h = below[i];
        }
    }
    const uint32_t tensor = l->hull.tensor;
    l->hull = l->hulls[l->level_begin[l->levels - 1]].region;
    l->hull.tensor = tensor;
    l->hull.first += l->shift;
    l->hull.last += l->shift;
    return true;
}

void program_layer_release(program_layer *l, program_order *o) {
    if (!l || --l->references) return;
    for (uint32_t i = 0; i < l->footprint->count && l->order; i++) program_order_forget(o, l->instructions[i]);
    free(l->instructions);
    free(l->order);
    free(l->hulls);
    free(l);
}

typedef struct search {
    const program_layer *layer;
    program_order *order;
    uint32_t instruction;
    const program_region *region; /* of another footprint, in whose bytes first and last are */
    int64_t move;                 /* from the layer's footprint to that one */
    bool one_tensor;
    int64_t first, last;
    bool one_by_one;
    uint32_t met, equal, unordered;
} search;

static bool meets(const search *s, const program_region *r) {
    return program_regions_meet_moved(r, s->move, s->region, s->one_tensor, s->first, s->last);
}

static bool same_region(const program_region *a, const program_region *b) {
    const size_t size = (size_t)a->rank * sizeof(int64_t);
    return !memcmp(a->low, b->low, size) && !memcmp(a->high, b->high, size);
}

static bool leaf_follows(search *s, uint32_t at) {
    const uint32_t leaf = s->layer->order[at], earlier = s->layer->instructions[leaf];
    const program_region *region = &s->layer->footprint->regions[leaf];
    if (earlier >= s->instruction || !meets(s, region)) return true;
    s->met++;
    s->equal += same_region(region, s->region);
    if (program_order_knows(s->order, earlier)) return true;
    s->unordered = earlier;
    return false;
}

/* Part `at` of a level; its children are FANOUT parts of the level below, or leaves. */
static bool part_follows(search *s, uint32_t level, uint32_t at) {
    const program_layer *l = s->layer;
    const program_hull *h = &l->hulls[l->level_begin[level] + at];
    if (!meets(s, &h->region)) return true;
    for (int k = 0; k < PROGRAM_ARRIVES && !s->one_by_one && h->low[k] <= h->high[k]; k++)
        if (program_order_knows_ranks(s->order, h->low[k], h->high[k])) return true;
    if (!program_order_spend(s->order, FANOUT)) return true; /* the caller sees that it is spent */
    const uint32_t below = level ? l->level_begin[level] - l->level_begin[level - 1] : l->footprint->count,
                   begin = at * FANOUT;
    for (uint32_t i = begin; i < below && i < begin + FANOUT; i++)
        if (!(level ? part_follows(s, level - 1, i) : leaf_follows(s, i))) return false;
    return true;
}

uint32_t program_layer_follow(const program_layer *earlier, program_order *o, const program_layer *later, uint32_t at,
                              int64_t first, int64_t last, bool one_by_one, uint32_t *met, uint32_t *equal) {
    search s = {.layer = earlier,
                .order = o,
                .instruction = later->instructions[at],
                .region = &later->footprint->regions[at],
                .move = earlier->shift - later->shift,
                .one_tensor = earlier->hull.tensor == later->hull.tensor,
                .first = first - later->shift,
                .last = last - later->shift,
                .one_by_one = one_by_one,
                .unordered = UINT32_MAX};
    part_follows(&s, earlier->levels - 1, 0);
    *met = s.met;
    *equal = s.equal;
    return s.unordered;
}

/* ---- segments ---- */

size_t program_space_find(const program_space *s, int64_t first) {
    size_t low = 0, high = s->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->segments[middle].last > first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool insert(program_space *s, size_t at, program_segment new) {
    if (s->count == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 4;
        program_segment *segments = realloc(s->segments, capacity * sizeof *segments);
        if (!segments) return false;
        s->segments = segments;
        s->capacity = capacity;
    }
    memmove(&s->segments[at + 1], &s->segments[at], (s->count - at) * sizeof *s->segments);
    s->segments[at] = new;
    s->count++;
    return true;
}

/* Cuts the segment that has `at` inside, if there is one. */
static bool split(program_space *s, int64_t at) {
    const size_t i = program_space_find(s, at);
    if (i == s->count || s->segments[i].first >= at) return true;
    program_segment right = s->segments[i];
    right.first = at;
    right.capacity = right.count;
    right.layers = malloc((right.count + 1) * sizeof *right.layers);
    if (!right.layers) return false;
    if (right.count) memcpy(right.layers, s->segments[i].layers, right.count * sizeof *right.layers);
    if (!insert(s, i + 1, right)) {
        free(right.layers);
        return false;
    }
    for (uint32_t k = 0; k < right.count; k++) right.layers[k]->references++;
    s->segments[i].last = at;
    return true;
}

static void empty(program_segment *g, program_order *o) {
    for (uint32_t k = 0; k < g->count; k++) program_layer_release(g->layers[k], o);
    free(g->layers);
    g->layers = NULL;
    g->count = g->capacity = 0;
}

bool program_space_cover(program_space *s, program_order *o, int64_t first, int64_t last) {
    if (!split(s, first) || !split(s, last)) return false;
    const size_t begin = program_space_find(s, first);
    size_t end = begin;
    for (; end < s->count && s->segments[end].first < last; end++) empty(&s->segments[end], o);
    if (end == begin) return true;
    memmove(&s->segments[begin], &s->segments[end], (s->count - end) * sizeof *s->segments);
    s->count -= end - begin;
    return true;
}

static bool inside(const program_region *inner, const program_region *outer) {
    if (inner->tensor != outer->tensor || inner->rows_share) return false;
    for (int k = 0; k < inner->rank; k++)
        if (inner->low[k] < outer->low[k] || inner->high[k] > outer->high[k]) return false;
    return true;
}

void program_space_cover_hull(program_space *s, program_order *o, const program_region *hull) {
    for (size_t i = program_space_find(s, hull->first); i < s->count && s->segments[i].first < hull->last; i++) {
        program_segment *g = &s->segments[i];
        uint32_t kept = 0;
        for (uint32_t k = 0; k < g->count; k++) {
            if (inside(&g->layers[k]->hull, hull))
                program_layer_release(g->layers[k], o);
            else
                g->layers[kept++] = g->layers[k];
        }
        g->count = kept;
    }
}

static bool list(program_segment *g, program_layer *l) {
    if (g->count == g->capacity) {
        const uint32_t capacity = g->capacity ? 2 * g->capacity : 4;
        program_layer **layers = realloc(g->layers, capacity * sizeof *layers);
        if (!layers) return false;
        g->layers = layers;
        g->capacity = capacity;
    }
    g->layers[g->count++] = l;
    l->references++;
    return true;
}

bool program_space_add(program_space *s, program_layer *l) {
    const program_region *hull = &l->hull;
    if (!split(s, hull->first) || !split(s, hull->last)) return false;
    size_t i = program_space_find(s, hull->first);
    for (int64_t at = hull->first; at < hull->last; i++) {
        const int64_t next = i < s->count ? min_i64(s->segments[i].first, hull->last) : hull->last;
        if (at < next && !insert(s, i, (program_segment){.first = at, .last = next}))
            return false; /* nothing was here */
        if (!list(&s->segments[i], l)) return false;
        at = s->segments[i].last;
    }
    return true;
}

void program_space_free(program_space *s, program_order *o) {
    for (size_t i = 0; i < s->count; i++) empty(&s->segments[i], o);
    free(s->segments);
    *s = (program_space){0};
}
