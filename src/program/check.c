/* The static checker. It proves, from the program alone, that any machine that runs instructions as soon as their
 * barriers allow - in any order, at the same time, on any number of processors - ends, and computes what running them
 * one after another computes.
 *
 *   1. Meaning: ops are bound again from their texts, operands lie inside tensors, a node's instructions are one
 *      instance of its op and cover its grid, each point once (bind.c, check_node).
 *   2. Waits: every barrier gets its arrivals, all from instructions below every waiter (order.c). So whatever runs,
 *      the lowest instruction that has not run can.
 *   3. Placement: every processor's list ascends and the lists hold every instruction once. With 2, nothing deadlocks.
 *   4. Order: of two accesses that may touch the same memory, one of which writes, the later one's instruction starts
 *      only when the earlier one's has finished, by a chain of barriers. Boxes come from the access summary of each
 *      instruction, computed again. Which pairs must be compared is frontier.c's idea, what is known to be finished
 *      order.c's; together the work is near linear in practice, and bounded by a budget always. Only accesses within
 *      a node that its program calls unordered (level 2) are the author's business.
 *
 * Nothing here shares code with the schedule, except the access summary, which is the tile program's meaning. */
#include <stdlib.h>

#include "monotile/graph.h"
#include "program/frontier.h"

/* A later layer of the node and one that it may meet in bytes [first, last), of an earlier node or of this one. */
typedef struct layer_pair {
    program_layer *later, *earlier;
    int64_t first, last;
    bool own; /* both are of this node */
} layer_pair;

/* Nodes with one key touch the same elements, but of other tensors. */
typedef struct pattern_key {
    tile_instance instance;
    uint16_t live[PROGRAM_LIVES];
    struct {
        bool written;            /* neither an input nor a weight, which nothing writes; only then the others are set */
        program_operand operand; /* tensor 0 */
        uint32_t format, format_text;
        int64_t extent[PROGRAM_RANK], bytes;
    } tensor[PROGRAM_TENSORS]; /* by ordinal */
} pattern_key;

/* What the instructions of a node touch. Layers of a model are equal: it is found for one of them. */
typedef struct pattern {
    uint32_t *points; /* their grid points, first axis slowest, by number */
    uint32_t count;
    program_footprint *footprints[TILE_PARAMS][2]; /* by tensor ordinal and direction; NULL: none */
} pattern;

typedef struct checker {
    const mt_program *p;
    mt_error *error;
    arena *memory;
    program_binding binding;
    program_order *order;
    program_space *spaces; /* 0: the slots; 1 + tensor: a bound tensor */
    uint32_t *last_node;   /* by tensor: the last node that has it as an operand */
    uint64_t *seen;
    size_t seen_words; /* bits: grid points of the node */
    map pattern_keys;  /* by pattern_key: index into patterns */
    pattern **patterns;
    size_t pattern_count, pattern_capacity;

    /* the node that is being checked */
    pattern_key key;
    uint32_t *numbers, *points; /* of its instructions, joins not counted */
    size_t number_capacity;
    int64_t grid[TILE_AXES];
    bool in_grid_order;                     /* numbers ascend with the grid, first axis slowest */
    program_layer *active[2 * TILE_PARAMS]; /* its layers */
    int active_count;
    layer_pair *pairs;
    size_t pair_count, pair_capacity;
} checker;

static mt_status out_of_memory(checker *c) {
    if (c->order && program_order_is_spent(c->order))
        return error_set(c->error, MT_E_LIMIT, NULL,
                         "the program's accesses are too entangled to be checked in reasonable time");
    return error_set(c->error, MT_E_MEMORY, NULL, "no memory to check a program");
}

static mt_status fail(checker *c, size_t instruction, const char *what) {
    char name[300];
    program_instruction_name(c->p, instruction, name, sizeof name);
    return error_set(c->error, MT_E_FORMAT, NULL, "%s: %s", name, what);
}

static mt_status check_placement(checker *c) {
    const mt_program *p = c->p;
    if (p->header->placement == MT_PLACE_QUEUE) return MT_OK;
    uint64_t *placed = arena_array(c->memory, p->instructions_count / 64 + 1, sizeof *placed);
    if (!placed) return out_of_memory(c);
    for (size_t q = 0; q < p->processors_count; q++) {
        const uint32_t *list = p->order + p->processors[q].first;
        for (uint32_t k = 0; k < p->processors[q].count; k++) {
            if (k && list[k] <= list[k - 1])
                return error_set(c->error, MT_E_FORMAT, NULL,
                                 "processor %zu runs instruction %u before %u: its order must ascend", q, list[k - 1],
                                 list[k]);
            if (placed[list[k] / 64] >> list[k] % 64 & 1) return fail(c, list[k], "it is placed on two processors");
            placed[list[k] / 64] |= 1ull << list[k] % 64;
        }
    }
    return MT_OK; /* as many entries as instructions, no one twice: complete */
}

static program_space *space_of(checker *c, uint32_t tensor) {
    return &c->spaces[c->p->tensors[tensor].role == MT_TEMP ? 0 : 1 + tensor];
}

/* ---- a node's instructions ---- */

static mt_status check_grid_point(checker *c, const program_instruction *first, size_t i, int64_t *before) {
    const program_instruction *n = &c->p->instructions[i];
    const tile_op *op = c->key.instance.op;
    if (memcmp(n->tensor, first->tensor, sizeof n->tensor) || memcmp(n->arg, first->arg, sizeof n->arg) ||
        memcmp(n->live, first->live, sizeof n->live))
        return fail(c, i, "its operands differ from those of its node's first instruction");
    int64_t point = 0;
    for (int a = 0; a < PROGRAM_AXES; a++) {
        if (n->index[a] < 0 || (a < op->axis_total ? n->index[a] >= c->grid[a] : n->index[a] != 0))
            return fail(c, i, "it is outside its op's grid");
        if (a < op->axis_total) point = point * c->grid[a] + n->index[a];
    }
    if (c->seen[point / 64] >> point % 64 & 1) return fail(c, i, "its grid point is in the program twice");
    c->seen[point / 64] |= 1ull << point % 64;
    if (point < *before) c->in_grid_order = false;
    *before = point;
    return MT_OK;
}

/* ---- what they touch ---- */

/* Adds what the node's k-th instruction touches. */
static bool add_accesses(checker *c, pattern *out, uint32_t k) {
    const program_instruction *n = &c->p->instructions[c->numbers[k]];
    tile_summary s;
    int64_t index[TILE_AXES];
    for (int a = 0; a < TILE_AXES; a++) index[a] = n->index[a];
    tile_summarise(&c->key.instance, index, &s);
    for (int b = 0; b < s.box_count; b++) {
        const tile_box *box = &s.box[b];
        const program_view *v = &c->binding.views[n->tensor[box->tensor]];
        if (!c->key.tensor[box->tensor].written) continue;
        program_region r;
        program_view_region(v, &c->key.instance, n, box, &r);
        if (r.first >= r.last) continue;
        program_footprint **f = &out->footprints[box->tensor][box->writes];
        if (!*f && !(*f = program_footprint_new(c->memory, box, out->count))) return false;
        const int64_t begin = v->tensor->role == MT_TEMP ? v->tensor->offset : 0;
        r.tensor = 0;
        r.first -= begin;
        r.last -= begin;
        program_footprint_add(*f, &r, k);
    }
    return true;
}

static pattern *make_pattern(checker *c, uint32_t count) {
    pattern *out = ARENA_NEW(c->memory, pattern);
    if (!out || !(out->points = ARENA_ARRAY(c->memory, count, uint32_t))) return NULL;
    memcpy(out->points, c->points, count * sizeof *c->points);
    out->count = count;
    for (uint32_t k = 0; k < count; k++)
        if (!add_accesses(c, out, k)) return NULL;
    return out;
}

static void make_key(checker *c, const program_instruction *n) {
    memset(c->key.tensor, 0, sizeof c->key.tensor);
    memcpy(c->key.live, n->live, sizeof c->key.live);
    for (int k = 0; k < c->key.instance.op->tensor_count; k++) {
        const program_view *v = &c->binding.views[n->tensor[k]];
        if (v->tensor->role == MT_INPUT || v->tensor->role == MT_WEIGHT) continue;
        c->key.tensor[k].written = true;
        c->key.tensor[k].operand = *v->operand;
        c->key.tensor[k].operand.tensor = 0;
        c->key.tensor[k].format = v->tensor->format;
        c->key.tensor[k].format_text = v->tensor->format_text;
        c->key.tensor[k].bytes = v->tensor->bytes;
        memcpy(c->key.tensor[k].extent, v->tensor->extent, sizeof v->tensor->extent);
    }
}

/* The pattern of the node, whose numbers and points are set; NULL: no memory. */
static pattern *find_pattern(checker *c, uint32_t count) {
    make_key(c, &c->p->instructions[c->numbers[0]]);
    const int64_t known = map_get(&c->pattern_keys, (const char *)&c->key, sizeof c->key);
    if (known >= 0 && c->patterns[known]->count == count &&
        !memcmp(c->patterns[known]->points, c->points, count * sizeof *c->points))
        return c->patterns[known];
    pattern *out = make_pattern(c, count);
    if (known >= 0 || !out) return out;
    pattern_key *key = ARENA_NEW(c->memory, pattern_key);
    pattern **all = arena_grow(c->memory, c->patterns, sizeof *all, c->pattern_count, &c->pattern_capacity);
    if (!key || !all) return NULL;
    memcpy(key, &c->key, sizeof *key);
    c->patterns = all;
    c->patterns[c->pattern_count] = out;
    return map_put(c->memory, &c->pattern_keys, (const char *)key, sizeof *key, (int64_t)c->pattern_count++) ? out
                                                                                                             : NULL;
}

static mt_status make_layers(checker *c, uint32_t count) {
    const pattern *p = find_pattern(c, count);
    const program_instruction *n = &c->p->instructions[c->numbers[0]];
    if (!p) return out_of_memory(c);
    for (int k = 0; k < c->key.instance.op->tensor_count; k++)
        for (int w = 0; w < 2; w++) {
            if (!p->footprints[k][w]) continue;
            const uint32_t tensor = c->p->operands[n->tensor[k]].tensor;
            const program_tensor *t = &c->p->tensors[tensor];
            program_layer *l =
                program_layer_new(p->footprints[k][w], tensor, t->role == MT_TEMP ? t->offset : 0, c->numbers);
            if (!l) return out_of_memory(c);
            c->active[c->active_count++] = l;
        }
    return MT_OK;
}

static mt_status collect_node(checker *c, const program_node *node) {
    const mt_program *p = c->p;
    size_t i = node->first, end = i + node->count, first = end;
    int64_t count = 0, before = -1, expected = 0;
    c->in_grid_order = true;
    mt_status status = MT_OK;
    if (node->count > c->number_capacity) {
        c->number_capacity = node->count;
        c->numbers = ARENA_ARRAY(c->memory, node->count, uint32_t);
        c->points = ARENA_ARRAY(c->memory, node->count, uint32_t);
        if (!c->numbers || !c->points) return out_of_memory(c);
    }
    for (; i < end && status == MT_OK; i++) {
        if (p->instructions[i].opcode == PROGRAM_JOIN) continue;
        if (first == end) {
            first = i;
            status = program_bind_instance(p, &c->binding, &p->instructions[i], &c->key.instance, c->error);
            if (status != MT_OK) return status;
            expected = tile_instance_grid(&c->key.instance, c->grid);
            if (expected < 0 || expected > node->count)
                return error_set(c->error, MT_E_FORMAT, program_string(p, node->name),
                                 "node '%s' has %u instructions; its grid has %lld points",
                                 program_string(p, node->name), node->count, (long long)expected);
            const size_t words = (size_t)expected / 64 + 1;
            if (words > c->seen_words && !(c->seen = arena_array(c->memory, c->seen_words = words, sizeof *c->seen)))
                return out_of_memory(c);
            memset(c->seen, 0, words * sizeof *c->seen);
        }
        status = check_grid_point(c, &p->instructions[first], i, &before);
        c->numbers[count] = (uint32_t)i;
        c->points[count++] = (uint32_t)before;
    }
    if (status == MT_OK && (first == end || count != expected))
        status = error_set(c->error, MT_E_FORMAT, program_string(p, node->name),
                           "node '%s' has %lld instructions; its grid has %lld points", program_string(p, node->name),
                           (long long)count, (long long)expected);
    return status == MT_OK ? make_layers(c, (uint32_t)count) : status;
}

/* ---- pairs of layers ---- */

static bool add_pair(checker *c, program_layer *later, program_layer *earlier, int64_t first, int64_t last, bool own) {
    if (!later->footprint->writes && !earlier->footprint->writes) return true;
    if (!program_regions_meet(&later->hull, &earlier->hull, first, last)) return true;
    for (size_t k = c->pair_count; k-- > 0 && c->pairs[k].later == later;)
        if (c->pairs[k].earlier == earlier && c->pairs[k].last == first) { /* the next segment of the same layer */
            c->pairs[k].last = last;
            return true;
        }
    layer_pair *pairs = arena_grow(c->memory, c->pairs, sizeof *c->pairs, c->pair_count, &c->pair_capacity);
    if (!pairs) return false;
    c->pairs = pairs;
    c->pairs[c->pair_count++] = (layer_pair){later, earlier, first, last, own};
    return true;
}

static bool pair_layer(checker *c, program_layer *later) {
    const program_region *hull = &later->hull;
    const program_space *s = space_of(c, hull->tensor);
    for (size_t i = program_space_find(s, hull->first); i < s->count && s->segments[i].first < hull->last; i++) {
        const program_segment *g = &s->segments[i];
        if (!program_order_spend(c->order, 1 + g->count)) return false;
        for (uint32_t k = 0; k < g->count; k++)
            if (!add_pair(c, later, g->layers[k], g->first, g->last, false)) return false;
    }
    for (int k = 0; k < c->active_count; k++) { /* also itself */
        program_layer *l = c->active[k];
        if (later->footprint->unordered && l->footprint->unordered) continue;
        if (later == l && l->footprint->apart) continue; /* as was found for an equal node */
        if (space_of(c, l->hull.tensor) == s && !add_pair(c, later, l, 0, INT64_MAX, true)) return false;
    }
    return true;
}

static void print_access(const mt_program *p, const program_layer *l, uint32_t at, text *out) {
    program_region r = l->footprint->regions[at];
    r.tensor = l->hull.tensor;
    program_region_print(p, &r, out);
}

static mt_status unordered(checker *c, const layer_pair *pair, uint32_t at, uint32_t earlier) {
    const mt_program *p = c->p;
    char name[2][300];
    text region[2] = {{0}, {0}};
    const uint32_t later = pair->later->instructions[at];
    program_instruction_name(p, later, name[0], sizeof name[0]);
    program_instruction_name(p, earlier, name[1], sizeof name[1]);
    print_access(p, pair->later, at, &region[0]);
    for (uint32_t k = 0; k < pair->earlier->footprint->count; k++)
        if (pair->earlier->instructions[k] == earlier) print_access(p, pair->earlier, k, &region[1]);
    error_set(c->error, MT_E_FORMAT, program_string(p, p->tensors[pair->later->hull.tensor].name),
              "%s %s %s without waiting for %s, which %s %s", name[0],
              pair->later->footprint->writes ? "writes" : "reads", region[0].data ? region[0].data : "", name[1],
              pair->earlier->footprint->writes ? "writes" : "reads", region[1].data ? region[1].data : "");
    text_free(&region[0]);
    text_free(&region[1]);
    return MT_E_FORMAT;
}

/* Grows what the layer's regions are known to fill. One that repeats earlier ones (an ordered sum) adds nothing. */
static void add_volume(program_layer *l, const program_region *r, uint32_t met, uint32_t equal) {
    int64_t volume = 1;
    for (int k = 0; k < r->rank; k++) {
        volume *= r->high[k] - r->low[k];
        if (r->live[k] >= 0) l->fills = false; /* where it is differs from run to run */
    }
    l->meets |= met > 0;
    if (met != equal) l->fills = false;        /* regions overlap otherwise */
    if (!met && l->fills) l->volume += volume; /* disjoint so far: the sum is at most the tensor */
}

/* Compares one instruction's access in a pair with the earlier layer. */
static mt_status check_pair(checker *c, const layer_pair *pair, uint32_t i) {
    program_layer *later = pair->later;
    const bool self = later == pair->earlier;
    uint32_t met, equal;
    const uint32_t earlier = program_layer_follow(pair->earlier, c->order, later, later->cursor, pair->first,
                                                  pair->last, self || (pair->own && !c->in_grid_order), &met, &equal);
    if (!program_order_spend(c->order, 1) || program_order_is_spent(c->order)) return out_of_memory(c);
    if (earlier != UINT32_MAX) return unordered(c, pair, later->cursor, earlier);
    if (pair->own && met && !c->in_grid_order)
        return fail(c, i, "it touches what others of its node touch, but the node is not numbered in grid order");
    if (self) add_volume(later, &later->footprint->regions[later->cursor], met, equal);
    return MT_OK;
}

static mt_status check_instruction(checker *c, uint32_t i) {
    if (!program_order_enter(c->order, i)) return out_of_memory(c);
    for (size_t k = 0; k < c->pair_count; k++) {
        const program_layer *l = c->pairs[k].later;
        if (l->cursor == l->footprint->count || l->instructions[l->cursor] != i) continue; /* it has no access there */
        const mt_status status = check_pair(c, &c->pairs[k], i);
        if (status != MT_OK) return status;
    }
    for (int k = 0; k < c->active_count; k++) {
        program_layer *l = c->active[k];
        l->cursor += l->cursor < l->footprint->count && l->instructions[l->cursor] == i;
    }
    return program_order_leave(c->order, i) ? MT_OK : out_of_memory(c);
}

/* Whether accesses of a layer meet, and what they fill, is known for all that have its footprint. */
static void settle(program_layer *l) {
    program_footprint *f = l->footprint;
    if (!f->compared) {
        f->compared = true;
        f->apart = !l->meets;
        f->fills = l->fills;
        f->volume = l->volume;
    }
    l->fills = f->fills;
    l->volume = f->volume;
}

/* The node's layers take the place of what they fill, and join what they do not. */
static mt_status replace(checker *c, uint32_t node) {
    const mt_program *p = c->p;
    for (int k = 0; k < c->active_count; k++) {
        program_layer *l = c->active[k];
        const program_region *hull = &l->hull;
        settle(l);
        int64_t volume = 1;
        for (int d = 0; d < hull->rank; d++) volume *= hull->high[d] - hull->low[d];
        if (!l->fills || volume != l->volume || hull->rows_share) continue;
        if (tile_format_bytes(c->binding.formats[hull->tensor], volume) == hull->last - hull->first) {
            if (!program_space_cover(space_of(c, hull->tensor), c->order, hull->first, hull->last))
                return out_of_memory(c);
        } else {
            program_space_cover_hull(space_of(c, hull->tensor), c->order, hull);
        }
    }
    for (int k = 0; k < c->active_count; k++) {
        const uint32_t tensor = c->active[k]->hull.tensor;
        if (!program_space_add(space_of(c, tensor), c->active[k])) return out_of_memory(c);
    }
    for (int k = 0; k < c->active_count; k++) {
        const uint32_t tensor = c->active[k]->hull.tensor;
        const program_tensor *t = &p->tensors[tensor];
        if (t->role != MT_TEMP && c->last_node[tensor] == node && /* nobody will ask about it again */
            !program_space_cover(space_of(c, tensor), c->order, 0, t->bytes))
            return out_of_memory(c);
    }
    for (int k = 0; k < c->active_count; k++) program_layer_release(c->active[k], c->order);
    c->active_count = 0;
    return MT_OK;
}

static mt_status check_node(checker *c, uint32_t node) {
    const program_node *n = &c->p->nodes[node];
    mt_status status = collect_node(c, n);
    for (int k = 0; k < c->active_count && status == MT_OK; k++)
        if (!program_layer_build(c->active[k], c->p, c->order)) status = out_of_memory(c);
    c->pair_count = 0;
    for (int k = 0; k < c->active_count && status == MT_OK; k++)
        if (!pair_layer(c, c->active[k])) status = out_of_memory(c);
    for (uint32_t i = n->first; i < n->first + n->count && status == MT_OK; i++) status = check_instruction(c, i);
    return status == MT_OK ? replace(c, node) : status;
}

static mt_status check_order(checker *c) {
    const mt_program *p = c->p;
    c->spaces = arena_array(c->memory, p->tensors_count + 1, sizeof *c->spaces);
    c->last_node = arena_array(c->memory, p->tensors_count, sizeof *c->last_node);
    if (!c->spaces || !c->last_node) return out_of_memory(c);
    for (uint32_t node = 0; node < p->nodes_count; node++) {
        const program_instruction *n = &p->instructions[p->nodes[node].first];
        const program_instruction *end = n + p->nodes[node].count;
        while (n < end && n->opcode == PROGRAM_JOIN) n++;
        for (int k = 0; n < end && k < c->binding.ops[n->opcode]->tensor_count; k++)
            if (n->tensor[k] < p->operands_count) c->last_node[p->operands[n->tensor[k]].tensor] = node;
    }
    mt_status status = MT_OK;
    uint32_t i = 0;
    for (uint32_t node = 0; node < p->nodes_count && status == MT_OK; node++) {
        for (; i < p->nodes[node].first && status == MT_OK; i++)
            status = check_instruction(c, i); /* joins: read_instruction sees to it */
        if (status == MT_OK) status = check_node(c, node);
        i = p->nodes[node].first + p->nodes[node].count;
    }
    for (; i < p->instructions_count && status == MT_OK; i++) status = check_instruction(c, i);
    return status;
}

mt_status program_check(const mt_program *p, mt_error *error) {
    checker c = {.p = p, .error = error, .memory = arena_new()};
    mt_status status = c.memory ? program_bind(p, c.memory, &c.binding, error) : out_of_memory(&c);
    if (status == MT_OK) status = check_placement(&c);
    if (status == MT_OK) status = program_order_new(&c.order, p, error);
    if (status == MT_OK) status = check_order(&c);
    for (int k = 0; k < c.active_count; k++) program_layer_release(c.active[k], c.order);
    for (size_t k = 0; k <= p->tensors_count && c.spaces; k++) program_space_free(&c.spaces[k], c.order);
    program_order_free(c.order);
    arena_free(c.memory);
    return status;
}
