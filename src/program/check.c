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

/* Nodes with one key touch the same elements of their operands. */
typedef struct boxes_key {
    tile_instance instance;
    bool written[TILE_PARAMS]; /* by tensor ordinal: neither an input nor a weight, which nothing writes */
} boxes_key;

/* What they touch of what is written, by grid point, first axis slowest. */
typedef struct node_boxes {
    uint32_t *begin; /* a place in boxes for each point, and the end */
    tile_box *boxes;
    size_t count, capacity;
} node_boxes;

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
    map known_boxes;   /* by boxes_key: index into all_boxes */
    const node_boxes **all_boxes;
    size_t boxes_count, boxes_capacity;

    /* the node that is being checked */
    boxes_key key;
    const node_boxes *boxes;
    int64_t grid[TILE_AXES];
    bool in_grid_order;                    /* numbers ascend with the grid, first axis slowest */
    program_layer *layers[TILE_PARAMS][2]; /* by tensor ordinal and direction */
    program_layer *active[2 * TILE_PARAMS];
    int active_count; /* those there are */
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

static bool add_boxes(checker *c, node_boxes *b, const int64_t *index) {
    tile_summary s;
    tile_summarise(&c->key.instance, index, &s);
    for (int k = 0; k < s.box_count; k++) {
        if (!c->key.written[s.box[k].tensor]) continue;
        tile_box *boxes = arena_grow(c->memory, b->boxes, sizeof *b->boxes, b->count, &b->capacity);
        if (!boxes) return false;
        b->boxes = boxes;
        b->boxes[b->count++] = s.box[k];
    }
    return true;
}

/* The boxes of a node with that many grid points; NULL: no memory. */
static const node_boxes *make_boxes(checker *c, int64_t points) {
    int64_t index[TILE_AXES] = {0};
    node_boxes *b = ARENA_NEW(c->memory, node_boxes);
    if (!b || !(b->begin = ARENA_ARRAY(c->memory, (size_t)points + 1, uint32_t))) return NULL;
    for (int64_t point = 0; point < points; point++) {
        b->begin[point] = (uint32_t)b->count;
        if (!add_boxes(c, b, index)) return NULL;
        for (int a = c->key.instance.op->axis_total - 1; a >= 0 && ++index[a] == c->grid[a]; a--) index[a] = 0;
    }
    b->begin[points] = (uint32_t)b->count;
    return b;
}

/* Layers of a model are equal: boxes are computed for one of them. */
static bool find_boxes(checker *c, const program_instruction *first, int64_t points) {
    for (int k = 0; k < TILE_PARAMS; k++) {
        const bool tensor = k < c->key.instance.op->tensor_count;
        const int role = tensor ? c->binding.views[first->tensor[k]].tensor->role : MT_INPUT;
        c->key.written[k] = role != MT_INPUT && role != MT_WEIGHT;
    }
    const int64_t known = map_get(&c->known_boxes, (const char *)&c->key, sizeof c->key);
    if (known >= 0) {
        c->boxes = c->all_boxes[known];
        return true;
    }
    boxes_key *key = ARENA_NEW(c->memory, boxes_key);
    const node_boxes **all =
        arena_grow(c->memory, c->all_boxes, sizeof *c->all_boxes, c->boxes_count, &c->boxes_capacity);
    if (all) c->all_boxes = all;
    if (!key || !all || !(c->boxes = make_boxes(c, points))) return false;
    memcpy(key, &c->key, sizeof *key);
    c->all_boxes[c->boxes_count] = c->boxes;
    return map_put(c->memory, &c->known_boxes, (const char *)key, sizeof *key, (int64_t)c->boxes_count++);
}

/* Puts the instruction's boxes into the node's layers. */
static mt_status collect(checker *c, size_t i, int64_t point) {
    const program_instruction *n = &c->p->instructions[i];
    for (uint32_t k = c->boxes->begin[point]; k < c->boxes->begin[point + 1]; k++) {
        const tile_box *box = &c->boxes->boxes[k];
        const program_view *v = &c->binding.views[n->tensor[box->tensor]];
        program_region r;
        program_view_region(v, &c->key.instance, n, box, &r);
        if (r.first >= r.last) continue;
        program_layer **l = &c->layers[box->tensor][box->writes];
        if (!*l) {
            if (!(*l = program_layer_new(box->writes))) return out_of_memory(c);
            (*l)->unordered = box->unordered;
            c->active[c->active_count++] = *l;
        }
        if (!program_layer_add(*l, &r, (uint32_t)i)) return out_of_memory(c);
    }
    return MT_OK;
}

static mt_status collect_node(checker *c, const program_node *node) {
    const mt_program *p = c->p;
    size_t i = node->first, end = i + node->count, first = end;
    int64_t count = 0, before = -1, expected = 0;
    c->in_grid_order = true;
    mt_status status = MT_OK;
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
            if (!find_boxes(c, &p->instructions[i], expected)) return out_of_memory(c);
        }
        count++;
        status = check_grid_point(c, &p->instructions[first], i, &before);
        if (status == MT_OK) status = collect(c, i, before);
    }
    if (status == MT_OK && (first == end || count != expected))
        status = error_set(c->error, MT_E_FORMAT, program_string(p, node->name),
                           "node '%s' has %lld instructions; its grid has %lld points", program_string(p, node->name),
                           (long long)count, (long long)expected);
    return status;
}

/* ---- pairs of layers ---- */

static bool add_pair(checker *c, program_layer *later, program_layer *earlier, int64_t first, int64_t last, bool own) {
    if (!later->writes && !earlier->writes) return true;
    if (!program_regions_meet(program_layer_hull(later), program_layer_hull(earlier), first, last)) return true;
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
    const program_region *hull = program_layer_hull(later);
    const program_space *s = space_of(c, hull->tensor);
    for (size_t i = program_space_find(s, hull->first); i < s->count && s->segments[i].first < hull->last; i++) {
        const program_segment *g = &s->segments[i];
        if (!program_order_spend(c->order, 1 + g->count)) return false;
        for (uint32_t k = 0; k < g->count; k++)
            if (!add_pair(c, later, g->layers[k], g->first, g->last, false)) return false;
    }
    for (int k = 0; k < c->active_count; k++) { /* also itself */
        program_layer *l = c->active[k];
        if (later->unordered && l->unordered) continue;
        if (space_of(c, program_layer_hull(l)->tensor) == s && !add_pair(c, later, l, INT64_MIN, INT64_MAX, true))
            return false;
    }
    return true;
}

static mt_status unordered(checker *c, const layer_pair *pair, uint32_t at, uint32_t earlier) {
    const mt_program *p = c->p;
    char name[2][300];
    text region[2] = {{0}, {0}};
    const uint32_t later = pair->later->instructions[at];
    program_instruction_name(p, later, name[0], sizeof name[0]);
    program_instruction_name(p, earlier, name[1], sizeof name[1]);
    program_region_print(p, &pair->later->regions[at], &region[0]);
    for (uint32_t k = 0; k < pair->earlier->count; k++)
        if (pair->earlier->instructions[k] == earlier) program_region_print(p, &pair->earlier->regions[k], &region[1]);
    const uint32_t tensor = pair->later->regions[at].tensor;
    error_set(c->error, MT_E_FORMAT, program_string(p, p->tensors[tensor].name),
              "%s %s %s without waiting for %s, which %s %s", name[0], pair->later->writes ? "writes" : "reads",
              region[0].data ? region[0].data : "", name[1], pair->earlier->writes ? "writes" : "reads",
              region[1].data ? region[1].data : "");
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
    if (met != equal) l->fills = false;        /* regions overlap otherwise */
    if (!met && l->fills) l->volume += volume; /* disjoint so far: the sum is at most the tensor */
}

/* Compares one instruction's access in a pair with the earlier layer. */
static mt_status check_pair(checker *c, const layer_pair *pair, uint32_t i) {
    program_layer *later = pair->later;
    const program_region *region = &later->regions[later->cursor];
    const bool self = later == pair->earlier;
    uint32_t met, equal;
    const uint32_t earlier = program_layer_follow(pair->earlier, c->order, i, region, pair->first, pair->last,
                                                  self || (pair->own && !c->in_grid_order), &met, &equal);
    if (!program_order_spend(c->order, 1) || program_order_is_spent(c->order)) return out_of_memory(c);
    if (earlier != UINT32_MAX) return unordered(c, pair, later->cursor, earlier);
    if (pair->own && met && !c->in_grid_order)
        return fail(c, i, "it touches what others of its node touch, but the node is not numbered in grid order");
    if (self) add_volume(later, region, met, equal);
    return MT_OK;
}

static mt_status check_instruction(checker *c, uint32_t i) {
    if (!program_order_enter(c->order, i)) return out_of_memory(c);
    for (size_t k = 0; k < c->pair_count; k++) {
        const program_layer *l = c->pairs[k].later;
        if (l->cursor == l->count || l->instructions[l->cursor] != i) continue; /* it has no access there */
        const mt_status status = check_pair(c, &c->pairs[k], i);
        if (status != MT_OK) return status;
    }
    for (int k = 0; k < c->active_count; k++) {
        program_layer *l = c->active[k];
        l->cursor += l->cursor < l->count && l->instructions[l->cursor] == i;
    }
    return program_order_leave(c->order, i) ? MT_OK : out_of_memory(c);
}

/* The node's layers take the place of what they fill, and join what they do not. */
static mt_status replace(checker *c, uint32_t node) {
    const mt_program *p = c->p;
    for (int k = 0; k < c->active_count; k++) {
        const program_layer *l = c->active[k];
        const program_region *hull = program_layer_hull(l);
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
        const uint32_t tensor = program_layer_hull(c->active[k])->tensor;
        if (!program_space_add(space_of(c, tensor), c->active[k])) return out_of_memory(c);
    }
    for (int k = 0; k < c->active_count; k++) {
        const uint32_t tensor = program_layer_hull(c->active[k])->tensor;
        const program_tensor *t = &p->tensors[tensor];
        if (t->role != MT_TEMP && c->last_node[tensor] == node && /* nobody will ask about it again */
            !program_space_cover(space_of(c, tensor), c->order, 0, t->bytes))
            return out_of_memory(c);
    }
    for (int k = 0; k < c->active_count; k++) program_layer_release(c->active[k], c->order);
    c->active_count = 0;
    memset(c->layers, 0, sizeof c->layers);
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
