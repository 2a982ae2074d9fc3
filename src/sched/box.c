/* Boxes: what the instructions of a node touch, on the dimensions of the tensors themselves, and which boxes overlap.
 *
 * sched_collect asks the access summary of every instruction and groups the answers by operand and direction; equal
 * boxes are one class, so that a row that a thousand instructions read is looked up once.
 *
 * Classes of a group are found through a tree of bounding boxes over a permutation of them: each level halves its part
 * of the permutation along the dimension in which the boxes are the most spread. Tiles of a grid do not overlap, so a
 * query visits little more than what it finds. Small groups do without.
 *
 * Live values. A box [pos, pos + 1) moves with `pos`. As long as all boxes of a group move with the same value in a
 * dimension they are kept relative to it, and two such groups compare exactly. Otherwise the one that moves covers its
 * value's whole range. */
#include "sched/sched_internal.h"

enum { LEAF = 4, NO_TREE = 16 };

static void *scratch(arena *a, void *data, size_t size, size_t count, size_t *capacity) {
    if (count <= *capacity) return data;
    *capacity = count + count / 2;
    return arena_array(a, *capacity, size);
}

/* ---- from an operand to its tensor ---- */

/* Where the view mixes dimensions (a reshape), the elements' places say more than the view's range. Written in the
 * digits of the tensor's dimensions, the first and the last element of the box bound all of it: where their leading
 * digits agree, all elements have them; the next digit lies between theirs; those behind it may be anything. */
static void narrow_mixed(const graph_tensor *t, const graph_view *v, const tile_interval *box, int64_t *low,
                         int64_t *high) {
    bool mapped[TILE_RANK] = {false};
    bool mixed = false;
    int64_t begin = v->offset, last = v->offset;
    for (int d = 0; d < v->rank; d++) {
        if (v->base[d] >= 0)
            mapped[v->base[d]] = true;
        else
            mixed = true;
        begin += box[d].low * v->stride[d];
        last += (box[d].high - 1) * v->stride[d];
    }
    if (!mixed) return;
    int64_t stride[TILE_RANK], step = 1;
    for (int d = t->rank - 1; d >= 0; d--) stride[d] = step, step *= t->extent[d];
    for (int d = 0; d < t->rank; d++) {
        if (mapped[d]) continue;
        const int64_t first_digit = begin / stride[d] % t->extent[d], last_digit = last / stride[d] % t->extent[d];
        if (first_digit > last_digit) return; /* cannot be: an unmapped digit never carries out of the view */
        low[d] = max_i64(low[d], first_digit);
        high[d] = min_i64(high[d], last_digit + 1);
        if (first_digit != last_digit) return;
    }
}

/* Elements of a row that share memory: a block, or those in a byte. */
static int64_t grain(const graph_tensor *t) {
    if (t->type->block > 1) return t->type->block;
    int64_t elements = 1;
    while (elements * t->type->bits % 8) elements *= 2;
    return elements;
}

/* Where rows begin inside bytes, only bytes tell accesses apart. */
static bool rows_share(const graph_tensor *t) {
    const int64_t row = t->extent[t->rank - 1];
    bool several = false;
    for (int d = 0; d < t->rank - 1; d++) several |= t->extent[d] > 1;
    return several && row % grain(t);
}

static int box_rank(const graph_tensor *t) { return rows_share(t) ? 1 : t->rank; }

/* The box on the tensor as low, high pairs; live[d] >= 0 where it is relative to a live value. False when it is empty.
 */
static bool tensor_box(const sched *s, const graph_node *node, int param, const tile_box *box, int64_t *out,
                       int *live) {
    const graph_view *v = &s->graph->views[node->operand[param]];
    const graph_tensor *t = &s->graph->tensors[v->tensor];
    const int64_t shared = grain(t);
    const int row = t->rank - 1;
    tile_interval absolute[TILE_RANK];
    int64_t low[TILE_RANK], high[TILE_RANK];
    for (int d = 0; d < box->rank; d++) {
        absolute[d] = tile_interval_absolute(node->instance, box->dim[d], v->extent[d]);
        if (absolute[d].low >= absolute[d].high) return false;
    }
    graph_view_box(s->graph, v, absolute, low, high);
    narrow_mixed(t, v, absolute, low, high);
    if (rows_share(t)) {
        int64_t first = 0, last = 0, stride = 1; /* elements */
        for (int d = row; d >= 0; stride *= t->extent[d--]) first += low[d] * stride, last += (high[d] - 1) * stride;
        out[0] = first / shared * shared;
        out[1] = (int64_t)align_up((uint64_t)last + 1, (uint64_t)shared);
        live[0] = SCHED_NONE;
        return true;
    }
    low[row] -= low[row] % shared;
    high[row] = (int64_t)align_up((uint64_t)high[row], (uint64_t)shared);
    for (int d = 0; d < t->rank; d++) out[2 * d] = low[d], out[2 * d + 1] = high[d], live[d] = SCHED_NONE;
    for (int d = 0; d < box->rank; d++) {
        const int b = v->base[d];
        if (box->dim[d].offset_live < 0 || b < 0 || v->extent[d] == 1) continue;
        for (int p = 0; p < node->op->param_count; p++)
            if (node->op->params[p].kind == TILE_PARAM_LIVE && node->op->params[p].ordinal == box->dim[d].offset_live)
                live[b] = node->operand[p];
        out[2 * b] = v->low[b] + box->dim[d].low;
        out[2 * b + 1] = v->low[b] + box->dim[d].high;
        if (b == row) out[2 * b] -= shared - 1, out[2 * b + 1] += shared - 1;
    }
    return true;
}

static void widen(const sched *s, int live, int64_t *interval) {
    if (live < 0) return;
    interval[0] += s->graph->lives[live].least;
    interval[1] += s->graph->lives[live].most;
}

/* ---- groups ---- */

typedef struct raw_group { /* a group while its boxes come in; they are at raw + index * 2 * rank */
    int param, rank;
    int live[TILE_RANK];
    int64_t *raw;
    uint32_t *class_of;
    uint32_t used;
    bool unordered;
} raw_group;

/* A live value that not all boxes share is given up: the boxes so far are widened. */
static void store_box(const sched *s, raw_group *r, uint32_t index, int64_t *box, const int *live) {
    for (int d = 0; d < r->rank; d++) {
        if (!r->used) r->live[d] = live[d];
        if (live[d] == r->live[d]) continue;
        for (uint32_t i = 0; i <= index && r->live[d] >= 0; i++)
            if (r->class_of[i] != SCHED_NO_ID) widen(s, r->live[d], r->raw + (size_t)i * 2 * r->rank + 2 * d);
        r->live[d] = SCHED_NONE;
        widen(s, live[d], box + 2 * d);
    }
    int64_t *stored = r->raw + (size_t)index * 2 * r->rank;
    if (r->class_of[index] == SCHED_NO_ID) {
        r->class_of[index] = 0;
        r->used++;
        memcpy(stored, box, 2 * (size_t)r->rank * sizeof *box);
    } else { /* a second box of this kind: their hull */
        for (int d = 0; d < r->rank; d++) {
            stored[2 * d] = min_i64(stored[2 * d], box[2 * d]);
            stored[2 * d + 1] = max_i64(stored[2 * d + 1], box[2 * d + 1]);
        }
    }
}

static int64_t volume(int rank, const int64_t *bounds) {
    int64_t v = 1;
    for (int d = 0; d < rank; d++) v *= bounds[2 * d + 1] - bounds[2 * d];
    return v;
}

/* The classes of boxes that came in. */
static sched_group *make_classes(sched *s, raw_group *r, uint32_t count, bool writes) {
    const size_t words = 4 * (size_t)r->rank; /* of 32 bits */
    sched_group *g = ARENA_NEW(s->memory, sched_group);
    *g = (sched_group){.like = g, .rank = r->rank, .writes = writes};
    memcpy(g->live, r->live, sizeof g->live);
    sched_words_reset(s->memory, &s->classes, r->used);
    for (uint32_t i = 0; i < count; i++)
        if (r->class_of[i] != SCHED_NO_ID)
            r->class_of[i] =
                sched_words_intern(s->memory, &s->classes, (uint32_t *)(r->raw + (size_t)i * 2 * r->rank), words);
    g->class_count = (uint32_t)s->classes.count;
    g->bounds = ARENA_ARRAY(s->memory, g->class_count * 2 * (size_t)r->rank, int64_t);
    memcpy(g->bounds, s->classes.words, g->class_count * 2 * (size_t)r->rank * sizeof(int64_t));
    /* members, by counting */
    g->member_begin = ARENA_ARRAY(s->memory, (size_t)g->class_count + 1, uint32_t);
    g->members = ARENA_ARRAY(s->memory, r->used, uint32_t);
    for (uint32_t i = 0; i < count; i++)
        if (r->class_of[i] != SCHED_NO_ID) g->member_begin[r->class_of[i] + 1]++;
    for (uint32_t c = 0; c < g->class_count; c++) g->member_begin[c + 1] += g->member_begin[c];
    for (uint32_t i = count; i-- > 0;)
        if (r->class_of[i] != SCHED_NO_ID) g->members[--g->member_begin[r->class_of[i] + 1]] = i;
    for (uint32_t c = 0; c < g->class_count; c++) g->member_begin[c] = g->member_begin[c + 1];
    g->member_begin[g->class_count] = r->used;
    /* the hull, and whether the classes' volumes add up to it; depend.c finds out whether they overlap */
    int64_t sum = 0;
    g->tiles = writes;
    for (int d = 0; d < r->rank; d++) g->tiles &= g->live[d] < 0;
    memcpy(g->hull, g->bounds, 2 * (size_t)r->rank * sizeof(int64_t));
    for (uint32_t c = 0; c < g->class_count; c++) {
        const int64_t *b = g->bounds + c * 2 * (size_t)r->rank;
        for (int d = 0; d < r->rank; d++) {
            g->hull[2 * d] = min_i64(g->hull[2 * d], b[2 * d]);
            g->hull[2 * d + 1] = max_i64(g->hull[2 * d + 1], b[2 * d + 1]);
        }
        g->tiles = g->tiles && !__builtin_add_overflow(sum, volume(r->rank, b), &sum);
    }
    g->tiles = g->tiles && sum == volume(r->rank, g->hull) && !r->unordered;
    g->unordered = r->unordered;
    return g;
}

static sched_pattern *make_pattern(sched *s, uint32_t n) {
    const graph_node *node = &s->graph->nodes[n];
    const uint32_t count = s->first[n + 1] - s->first[n];
    raw_group raw[SCHED_NODE_GROUPS] = {{.param = SCHED_NONE}}; /* 2 * ordinal + writes */
    size_t room = 0;
    for (int k = 1; k < SCHED_NODE_GROUPS; k++) raw[k].param = SCHED_NONE;
    for (int p = 0; p < node->op->param_count; p++) {
        const tile_param *param = &node->op->params[p];
        if (param->kind > TILE_INOUT) continue;
        const int tensor = s->graph->views[node->operand[p]].tensor;
        if (!s->written[tensor]) continue;
        for (int w = 0; w < 2; w++)
            raw[2 * param->ordinal + w] = (raw_group){.param = p, .rank = box_rank(&s->graph->tensors[tensor])};
        room += 4 * (size_t)s->graph->tensors[tensor].rank * count;
    }
    s->raw = scratch(s->memory, s->raw, sizeof *s->raw, room, &s->raw_capacity);
    int64_t *next = s->raw;
    for (int k = 0; k < SCHED_NODE_GROUPS; k++) {
        if (raw[k].param == SCHED_NONE) continue;
        raw[k].class_of = ARENA_ARRAY(s->memory, count, uint32_t);
        memset(raw[k].class_of, 0xff, count * sizeof(uint32_t));
        raw[k].raw = next;
        next += 2 * (size_t)raw[k].rank * count;
    }
    int64_t index[TILE_AXES] = {0};
    for (uint32_t i = 0; i < count; i++) {
        tile_summary summary;
        tile_summarise(node->instance, index, &summary);
        for (int b = 0; b < summary.box_count; b++) {
            const tile_box *box = &summary.box[b];
            raw_group *r = &raw[2 * box->tensor + box->writes];
            int64_t bounds[2 * TILE_RANK];
            int live[TILE_RANK];
            if (r->param != SCHED_NONE && (box->reads || box->writes) &&
                tensor_box(s, node, r->param, box, bounds, live)) {
                r->unordered = box->unordered;
                store_box(s, r, i, bounds, live);
            }
        }
        sched_next_index(node, index);
    }
    sched_pattern *out = ARENA_NEW(s->memory, sched_pattern);
    for (int k = 0; k < SCHED_NODE_GROUPS; k++) {
        if (raw[k].param == SCHED_NONE || !raw[k].used) continue;
        out->part[out->count].group = make_classes(s, &raw[k], count, k & 1);
        out->part[out->count].param = raw[k].param;
        out->part[out->count++].class_of = raw[k].class_of;
    }
    return out;
}

/* ---- equal nodes ---- */

static void push_bytes(sched *s, const void *data, size_t size) {
    for (size_t i = 0; i < size / sizeof(uint32_t); i++) {
        uint32_t word;
        memcpy(&word, (const char *)data + i * sizeof word, sizeof word);
        sched_u32s_push(s->memory, &s->words, word);
    }
}

/* The pattern of a node: of the first one whose op, instance and places of its operands in their tensors are the same,
 * and which of its operands are of one tensor.
 * Layers of a model are equal, so that boxes are computed for one of them. */
static sched_pattern *pattern_of(sched *s, uint32_t n) {
    const graph_node *node = &s->graph->nodes[n];
    s->words.count = 0;
    push_bytes(s, &node->instance, sizeof node->instance);
    for (int p = 0; p < node->op->param_count; p++) {
        push_bytes(s, &node->operand[p], node->op->params[p].kind == TILE_PARAM_LIVE ? sizeof node->operand[p] : 0);
        if (node->op->params[p].kind > TILE_INOUT) continue;
        const graph_view *v = &s->graph->views[node->operand[p]];
        const graph_tensor *t = &s->graph->tensors[v->tensor];
        const uint32_t written = s->written[v->tensor];
        uint32_t first = 0; /* operand of that tensor */
        while (node->op->params[first].kind > TILE_INOUT || s->graph->views[node->operand[first]].tensor != v->tensor)
            first++;
        push_bytes(s, &written, sizeof written);
        push_bytes(s, &first, sizeof first);
        if (!written) continue;
        push_bytes(s, &t->type, sizeof t->type);
        push_bytes(s, &t->rank, sizeof t->rank);
        push_bytes(s, t->extent, sizeof t->extent);
        push_bytes(s, &v->rank, sizeof v->rank);
        push_bytes(s, v->extent, sizeof v->extent);
        push_bytes(s, v->stride, sizeof v->stride);
        push_bytes(s, &v->offset, sizeof v->offset);
        push_bytes(s, v->base, sizeof v->base);
        push_bytes(s, v->low, sizeof v->low);
        push_bytes(s, v->high, sizeof v->high);
    }
    size_t known = s->pattern_keys.count;
    const uint32_t id = sched_words_intern(s->memory, &s->pattern_keys, s->words.data, s->words.count);
    if (id == known) *ARENA_PUSH(s->memory, s->patterns, known, s->pattern_capacity) = make_pattern(s, n);
    return s->patterns[id];
}

void sched_collect(sched *s, uint32_t n) {
    const graph_node *node = &s->graph->nodes[n];
    const sched_pattern *pattern = s->pattern = pattern_of(s, n);
    const uint32_t count = s->first[n + 1] - s->first[n];
    s->group_count = pattern->count;
    for (int k = 0; k < pattern->count; k++) {
        sched_group *g = s->groups[k] = ARENA_NEW(s->memory, sched_group);
        *g = *pattern->part[k].group;
        g->node = n;
        g->tensor = s->graph->views[node->operand[pattern->part[k].param]].tensor;
        s->class_of[k] = pattern->part[k].class_of;
        s->numbers.count = 0;
        for (uint32_t i = 0; i < count; i++)
            if (s->class_of[k][i] != SCHED_NO_ID) sched_u32s_push(s->memory, &s->numbers, s->first[n] + i);
        g->all = sched_set_numbers(s, n, s->numbers.data, s->numbers.count);
    }
}

/* ---- overlap ---- */

void sched_translate(const sched *s, const sched_group *from, const int64_t *bounds, const sched_group *to,
                     sched_bounds out) {
    memcpy(out, bounds, 2 * (size_t)from->rank * sizeof *bounds);
    for (int d = 0; d < from->rank; d++) {
        if (from->live[d] == to->live[d]) continue;
        widen(s, from->live[d], out + 2 * d);
        if (to->live[d] >= 0) { /* [a + v, b + v) meets [low, high) for some v: a < high - least and b > low - most */
            out[2 * d] -= s->graph->lives[to->live[d]].most;
            out[2 * d + 1] -= s->graph->lives[to->live[d]].least;
        }
    }
}

bool sched_overlap(int rank, const int64_t *a, const int64_t *b) {
    for (int d = 0; d < rank; d++)
        if (a[2 * d] >= b[2 * d + 1] || b[2 * d] >= a[2 * d + 1]) return false;
    return true;
}

bool sched_inside(int rank, const int64_t *inner, const int64_t *outer) {
    for (int d = 0; d < rank; d++)
        if (inner[2 * d] < outer[2 * d] || inner[2 * d + 1] > outer[2 * d + 1]) return false;
    return true;
}

static const int64_t *class_bounds(const sched_group *g, uint32_t c) { return g->bounds + (size_t)c * 2 * g->rank; }

/* Puts the `middle` smallest lows of order[0..count) in front (Hoare's selection). */
static void halve(const sched_group *g, uint32_t *order, size_t count, size_t middle, int d) {
    size_t begin = 0, end = count;
    while (end - begin > 1) {
        const int64_t pivot = class_bounds(g, order[begin + (end - begin) / 2])[2 * d];
        size_t i = begin, j = end - 1;
        for (;;) {
            while (class_bounds(g, order[i])[2 * d] < pivot) i++;
            while (class_bounds(g, order[j])[2 * d] > pivot) j--;
            if (i >= j) break;
            const uint32_t kept = order[i];
            order[i++] = order[j], order[j--] = kept;
        }
        const size_t split = j + 1; /* order[begin, split) <= pivot <= order[split, end) */
        if (split == end) return;   /* only when the pivot is the largest and alone at the end */
        if (middle < split)
            end = split;
        else
            begin = split;
    }
}

/* Node `at` bounds order[begin, end); its halves are nodes 2 at + 1 and 2 at + 2. */
static void build_tree(sched_group *g, size_t at, size_t begin, size_t end) {
    int64_t *hull = g->tree + at * 2 * (size_t)g->rank;
    int64_t last_low[TILE_RANK];
    double size[TILE_RANK] = {0};
    for (size_t i = begin; i < end; i++) {
        const int64_t *b = class_bounds(g, g->order[i]);
        for (int d = 0; d < g->rank; d++) {
            hull[2 * d] = i == begin ? b[2 * d] : min_i64(hull[2 * d], b[2 * d]);
            hull[2 * d + 1] = i == begin ? b[2 * d + 1] : max_i64(hull[2 * d + 1], b[2 * d + 1]);
            last_low[d] = i == begin ? b[2 * d] : max_i64(last_low[d], b[2 * d]);
            size[d] += (double)(b[2 * d + 1] - b[2 * d]);
        }
    }
    if (end - begin <= LEAF) return;
    int widest = 0;
    double most = -1;
    for (int d = 0; d < g->rank; d++) {
        const double spread =
            (double)(last_low[d] - hull[2 * d]) * (double)(end - begin) / size[d]; /* in boxes of mean size */
        if (spread > most) most = spread, widest = d;
    }
    const size_t middle = begin + (end - begin) / 2;
    halve(g, g->order + begin, end - begin, middle - begin, widest);
    build_tree(g, 2 * at + 1, begin, middle);
    build_tree(g, 2 * at + 2, middle, end);
}

static void search(sched *s, const sched_group *g, const int64_t *box, size_t at, size_t begin, size_t end) {
    const int64_t *hull = g->tree + at * 2 * (size_t)g->rank;
    if (!sched_overlap(g->rank, box, hull)) return;
    if (end - begin <= LEAF || sched_inside(g->rank, hull, box)) {
        for (size_t i = begin; i < end; i++)
            if (sched_overlap(g->rank, box, class_bounds(g, g->order[i])))
                sched_u32s_push(s->memory, &s->hits, g->order[i]);
        return;
    }
    const size_t middle = begin + (end - begin) / 2;
    search(s, g, box, 2 * at + 1, begin, middle);
    search(s, g, box, 2 * at + 2, middle, end);
}

void sched_query(sched *s, sched_group *g, const int64_t *box) {
    s->hits.count = 0;
    if (!sched_overlap(g->rank, box, g->hull)) return;
    if (g->class_count <= NO_TREE) {
        for (uint32_t c = 0; c < g->class_count; c++)
            if (sched_overlap(g->rank, box, class_bounds(g, c))) sched_u32s_push(s->memory, &s->hits, c);
        return;
    }
    g = g->like;
    if (!g->order) {
        size_t nodes = 1;
        for (size_t part = g->class_count; part > LEAF; part = (part + 1) / 2) nodes = 2 * nodes + 1;
        g->order = ARENA_ARRAY(s->memory, g->class_count, uint32_t);
        g->tree = ARENA_ARRAY(s->memory, nodes * 2 * (size_t)g->rank, int64_t);
        for (uint32_t c = 0; c < g->class_count; c++) g->order[c] = c;
        build_tree(g, 0, 0, g->class_count);
    }
    search(s, g, box, 0, 0, g->class_count);
}
