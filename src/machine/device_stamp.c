/* Hand-offs between nodes: which tensors are stamped data (emit/cuda_stamp.h), and which instructions can then end
 * without a release fence. Such a fence waits for all that its SM is loading, and at the end of a node everyone waits
 * for the slowest; loads held back for its sake are lost time, too.
 *
 * The program orders all conflicting accesses by chains of barriers, and each machine may keep that order by its own
 * means. Here: an instruction that ends quietly arrives at its barriers without order, so that who waits for them knows
 * that it is done, but not that all it wrote can be seen. Stamped data show that by themselves. All other orders need a
 * chain of arrivals that release: they make nodes *loud*. So is a node whose instructions wait for one another.
 *
 * A tensor can be stamped data when
 *   - it is a temporary of at most MOST_BYTES, of f32;
 *   - one node writes it, of level 1, with one store that no condition, loop, data or live value has a part in, and the
 *     boxes of its instructions are the whole tensor, each element once: in every run each element is posted once;
 *   - others only read it, ops of level 1, with plain loads: no copies into pages;
 *   - wherever an op is used, the operand is (its code is compiled once);
 *   - someone gains: a node that reads it and has not to wait for a release in any case.
 * It lies in two places of its own, in turn from run to run.
 *
 * Whoever waits for all of a node, waits for it before any later node; but a chain over other nodes is one only while
 * they are loud. So where node B has to follow A, and others lie on the way, B's instructions wait for A's barrier
 * themselves, if all of A arrives at one and there is room for a wait; else all on the way are loud. Temporaries that
 * shared bytes would be ordered behind each other all along the program: they get places of their own. */
#include "machine/device.h"

#include <stdlib.h>

enum {
    MOST_BYTES = 64 << 10,
    MOST_OWN_BYTES = 64 << 20,
    OWN_ALIGNMENT = 256,
    MOST_NODES = 1 << 13,
    MOST_WORK = 1 << 30
};

typedef struct use {
    uint32_t node, next; /* the tensor's next one, in the nodes' order; NONE: none */
    bool reads, writes;
} use;
enum { NONE = UINT32_MAX };

typedef struct written { /* what is known of an op's last node: equal layers have equal ones */
    tile_instance instance;
    uint32_t count;
    int param;
    bool all;
} written;

typedef struct handoff {
    const mt_program *p;
    const program_binding *b;
    emit_cuda_op *ops;
    arena *memory;
    use *uses;
    uint32_t *first, *last; /* by tensor: of its uses */
    uint32_t *writer;       /* by tensor: the only node that writes it, or NONE */
    bool *stamped, *own;    /* by tensor; own: a place that no other tensor has */
    size_t width;
    uint64_t *loud;   /* nodes, in `width` words */
    uint64_t *before; /* by node, as many words each: the nodes that it waits for, and what they wait for; */
    uint64_t *behind; /* and those that wait for it so */
    struct added_wait {
        uint32_t node, barrier;
    } * added; /* waits beyond the program's */
    size_t added_count, added_capacity;
    program_instruction *instructions;
    written *written; /* by op */
    int64_t work;     /* steps that were taken: programs from outside can be entangled */
    mt_status status;
    mt_error *error;
} handoff;

static const tile_op *op_of(const handoff *h, size_t node) { return h->ops[device_first_of(h->p, node)->opcode].op; }
/* False: it has taken too long, and nothing will be stamped. */
static bool spend(handoff *h, size_t steps) { return (h->work += (int64_t)steps) <= MOST_WORK; }
static bool is_tensor(const tile_param *p) { return p->kind <= TILE_INOUT; }
static uint32_t tensor_of(const handoff *h, size_t node, int ordinal) {
    return h->p->operands[device_first_of(h->p, node)->tensor[ordinal]].tensor;
}

/* ---- what can be stamped ---- */

/* The scalar's value in an instruction. False: it is not the same in every run, or what the access summary says of it
 * is a range: of floats, of what wraps around. */
static bool is_fixed(const tile_instance *i, const int64_t *index, const tile_node *n, int64_t *out) {
    const tile_scalar t = n->type->scalar;
    int64_t a, b = 0, high;
    if (t.kind != TILE_INT || t.bits < 32) return false;
    switch (n->kind) {
    case TILE_CONST:
        *out = n->value.i;
        break;
    case TILE_GRID:
        *out = index[n->index];
        break;
    case TILE_ARG:
        *out = i->arg[i->op->params[n->index].ordinal].i;
        break;
    case TILE_EXTENT:
        *out = i->free_extent[n->index];
        if (i->free_live[n->index]) return false;
        break;
    case TILE_CAST:
        if (!is_fixed(i, index, n->a, out)) return false;
        break;
    case TILE_ELEMENTWISE:
        if (!is_fixed(i, index, n->a, &a) || (n->b && !is_fixed(i, index, n->b, &b))) return false;
        if (!tile_operate_range(n->op, (int64_t[]){a, a}, (int64_t[]){b, b}, out, &high) || *out != high) return false;
        break;
    default:
        return false;
    }
    const int64_t most = t.bits < 64 ? INT32_MAX : (int64_t)1 << 60;
    return *out <= most && *out >= -most;
}

/* Statements that store into the parameter; *store: one of the first level. */
static int stores(const tile_statement *s, int param, int level, const tile_statement **store) {
    int count = 0;
    for (; s; s = s->next) {
        if (s->kind == TILE_STORE && s->access->param == param) {
            count++;
            if (!level && !s->adds) *store = s;
        }
        count += stores(s->body, param, level + 1, store) + stores(s->otherwise, param, level + 1, store);
    }
    return count;
}

/* Counts the elements of a box of the operand that nobody has had. */
static int64_t mark(const program_operand *o, const tile_box *box, uint8_t *had, int64_t elements) {
    int64_t at[PROGRAM_RANK] = {0}, low[PROGRAM_RANK], high[PROGRAM_RANK], marked = 0;
    for (int d = 0; d < o->rank; d++) {
        low[d] = at[d] = max_i64(box->dim[d].low, 0);
        high[d] = min_i64(box->dim[d].high, o->extent[d]);
        if (box->dim[d].offset_live >= 0 || low[d] >= high[d]) return 0;
    }
    for (int d = o->rank; d >= 0;) {
        int64_t element = o->offset;
        for (d = 0; d < o->rank; d++) element += at[d] * o->stride[d];
        if (element < 0 || element >= elements || had[element]) return INT64_MIN / 2;
        had[element] = 1;
        marked++;
        for (d = o->rank - 1; d >= 0 && ++at[d] == high[d]; d--) at[d] = low[d];
    }
    return marked;
}

/* The operand is its tensor of f32, row-major. */
static bool is_whole(const handoff *h, const program_operand *o) {
    int64_t each = 1;
    for (int d = o->rank - 1; d >= 0; d--) {
        if (o->extent[d] != 1 && o->stride[d] != each) return false;
        each *= o->extent[d];
    }
    return !o->offset && each == h->p->tensors[o->tensor].bytes / (int64_t)sizeof(float);
}

/* The instruction carries out the store, in the same place in every run, which its box tells. */
static bool is_fixed_store(const tile_instance *i, const int64_t *index, const tile_statement *store,
                           const program_operand *o) {
    const tile_param *param = &i->op->params[store->access->param];
    int64_t value;
    for (int d = 0; d < o->rank; d++) {
        const tile_item *item = &store->access->item[d];
        if (item->kind == TILE_ITEM_GATHER || o->live[d] >= 0 || !is_fixed(i, index, item->start, &value) ||
            !is_fixed(i, index, param->extent[d], &value) || (item->limit && !is_fixed(i, index, item->limit, &value)))
            return false;
    }
    for (int a = 0; a < i->op->axis_total; a++)
        if (!is_fixed(i, index, i->op->axis_count[a], &value)) return false;
    return true;
}

/* The node's instructions write every element of that operand's tensor, once. */
static bool writes_all(handoff *h, size_t node, int param) {
    const program_node *n = &h->p->nodes[node];
    const program_instruction *first = device_first_of(h->p, node);
    const tile_op *op = op_of(h, node);
    const int ordinal = op->params[param].ordinal;
    const program_operand *o = &h->p->operands[first->tensor[ordinal]];
    const tile_statement *store = NULL;
    written *known = &h->written[first->opcode];
    tile_instance instance;
    memset(&instance, 0, sizeof instance);
    h->status = program_bind_instance(h->p, h->b, first, &instance, h->error);
    if (h->status != MT_OK || !is_whole(h, o)) return false;
    if (known->count == n->count && known->param == param && !memcmp(&known->instance, &instance, sizeof instance))
        return known->all;
    *known = (written){.instance = instance, .count = n->count, .param = param};
    if (stores(op->body, param, 0, &store) != 1 || !store) return false;
    const int64_t elements = h->p->tensors[o->tensor].bytes / (int64_t)sizeof(float);
    uint8_t *had = calloc((size_t)elements + 1, 1);
    if (!had) return false;
    int64_t marked = 0;
    for (uint32_t k = n->first; k < n->first + n->count && marked >= 0; k++) {
        const program_instruction *i = &h->p->instructions[k];
        if (i->opcode == PROGRAM_JOIN) continue;
        int64_t index[TILE_AXES] = {0};
        tile_summary summary;
        for (int a = 0; a < op->axis_total; a++) index[a] = i->index[a];
        if (!is_fixed_store(&instance, index, store, o)) break;
        tile_summarise(&instance, index, &summary);
        for (const tile_box *box = summary.box; box < summary.box + summary.box_count; box++)
            if (box->tensor == ordinal && box->writes) marked += mark(o, box, had, elements);
    }
    free(had);
    known->all = marked == elements;
    return known->all;
}

static void find_uses(handoff *h) {
    uint32_t count = 0;
    for (size_t n = 0; n < h->p->nodes_count; n++) {
        const tile_op *op = op_of(h, n);
        for (int k = 0; k < op->param_count; k++) {
            const tile_param *param = &op->params[k];
            if (!is_tensor(param)) continue;
            const uint32_t t = tensor_of(h, n, param->ordinal), at = count++;
            h->uses[at] = (use){(uint32_t)n, NONE, param->kind != TILE_OUT, param->kind != TILE_IN};
            if (h->first[t] == NONE)
                h->first[t] = at;
            else
                h->uses[h->last[t]].next = at;
            h->last[t] = at;
        }
    }
}

static bool may_be_stamped(handoff *h, uint32_t t) {
    const program_tensor *tensor = &h->p->tensors[t];
    const tile_format *f = h->b->formats[t];
    if (tensor->role != MT_TEMP || tensor->bytes > MOST_BYTES || tile_format_is_block(f) ||
        f->scalar.kind != TILE_FLOAT || f->scalar.bits != 32)
        return false;
    for (uint32_t u = h->first[t]; u != NONE; u = h->uses[u].next) {
        const use *at = &h->uses[u];
        const tile_op *op = op_of(h, at->node);
        if (op->level2 || (at->reads && at->writes) || (at->writes && h->writer[t] != NONE)) return false;
        if (at->writes) h->writer[t] = at->node;
    }
    if (h->writer[t] == NONE || h->writer[t] != h->uses[h->first[t]].node) return false;
    const tile_op *op = op_of(h, h->writer[t]);
    for (int k = 0; k < op->param_count; k++)
        if (op->params[k].kind == TILE_OUT && tensor_of(h, h->writer[t], op->params[k].ordinal) == t)
            return writes_all(h, h->writer[t], k);
    return false;
}

/* Someone who reads the tensor reads nothing that is released as late or later. */
static bool is_gain(handoff *h, uint32_t t) {
    for (uint32_t u = h->first[t]; u != NONE; u = h->uses[u].next) {
        const uint32_t reader = h->uses[u].node;
        const tile_op *op = op_of(h, reader);
        bool waits = !h->uses[u].reads;
        for (int k = 0; k < op->param_count && !waits; k++) {
            if (!is_tensor(&op->params[k])) continue;
            const uint32_t other = tensor_of(h, reader, op->params[k].ordinal);
            for (uint32_t v = h->stamped[other] ? NONE : h->first[other]; v != NONE && spend(h, 1); v = h->uses[v].next)
                waits |= h->uses[v].writes && h->uses[v].node >= h->writer[t] && h->uses[v].node < reader;
        }
        if (!waits) return true;
    }
    return false;
}

/* What is not stamped wherever the op is used, or that nobody gains by, is not: until that holds. */
static void settle(handoff *h) {
    for (bool again = true; again && spend(h, h->p->nodes_count);) {
        again = false;
        for (size_t i = 0; i < h->p->ops_count; i++)
            for (int t = 0; t < h->ops[i].op->tensor_count; t++)
                h->ops[i].stamped[t] = h->ops[i].layout[t] == ROLE_ROWS;
        for (size_t n = 0; n < h->p->nodes_count; n++)
            for (int t = 0; t < op_of(h, n)->tensor_count; t++)
                h->ops[device_first_of(h->p, n)->opcode].stamped[t] &= h->stamped[tensor_of(h, n, t)];
        for (size_t n = 0; n < h->p->nodes_count; n++)
            for (int t = 0; t < op_of(h, n)->tensor_count; t++) {
                const uint32_t tensor = tensor_of(h, n, t);
                if (!h->stamped[tensor] || h->ops[device_first_of(h->p, n)->opcode].stamped[t]) continue;
                h->stamped[tensor] = false;
                again = true;
            }
        for (uint32_t t = 0; t < h->p->tensors_count; t++)
            if (h->stamped[t] && !is_gain(h, t)) h->stamped[t] = false, again = true;
    }
}

/* ---- who is loud ---- */

static void set_loud(handoff *h, size_t node) { h->loud[node / 64] |= (uint64_t)1 << node % 64; }
static bool is_loud(const handoff *h, size_t node) { return h->loud[node / 64] >> node % 64 & 1; }

/* Who waits for whom, also over others. A join is its node's. */
static void find_before(handoff *h) {
    const mt_program *p = h->p;
    const size_t most = p->instructions_count * PROGRAM_ARRIVES;
    uint32_t *head = ARENA_ARRAY(h->memory, p->barriers_count, uint32_t), /* of who arrives, + 1 */
        (*link)[2] = arena_array(h->memory, most + 1, sizeof *link), links = 0;
    for (size_t n = 0; n < p->nodes_count; n++) {
        uint64_t *mine = h->before + n * h->width;
        for (uint32_t k = p->nodes[n].first; k < p->nodes[n].first + p->nodes[n].count; k++) {
            const program_instruction *i = &p->instructions[k];
            for (int w = 0; w < i->wait_count; w++)
                for (uint32_t l = head[i->wait[w]]; l && spend(h, 1); l = link[l - 1][1]) {
                    const uint32_t other = link[l - 1][0];
                    if (other == n || mine[other / 64] >> other % 64 & 1) continue;
                    mine[other / 64] |= (uint64_t)1 << other % 64;
                    for (size_t x = 0; x < h->width; x++) mine[x] |= h->before[other * h->width + x];
                }
            for (int a = 0; a < i->arrive_count; a++) {
                const uint32_t to = i->arrive[a];
                if (head[to] && link[head[to] - 1][0] == n) continue;
                link[links][0] = (uint32_t)n;
                link[links++][1] = head[to];
                head[to] = links;
            }
        }
        for (size_t other = 0; other < n; other++)
            if (mine[other / 64] >> other % 64 & 1) h->behind[other * h->width + n / 64] |= (uint64_t)1 << n % 64;
    }
}

/* Nodes whose instructions wait for one another: what they write overlaps, and lower numbers come first. */
static void find_ordered(handoff *h) {
    const mt_program *p = h->p;
    uint32_t *arrives = ARENA_ARRAY(h->memory, p->barriers_count, uint32_t); /* the last node that does, + 1 */
    for (uint32_t n = 0; n < p->nodes_count; n++) {
        const program_instruction *first = p->instructions + p->nodes[n].first, *end = first + p->nodes[n].count;
        for (const program_instruction *i = first; i < end; i++)
            for (int a = 0; a < i->arrive_count && i->opcode != PROGRAM_JOIN; a++) arrives[i->arrive[a]] = n + 1;
        for (const program_instruction *i = first; i < end; i++)
            for (int w = 0; w < i->wait_count; w++)
                if (arrives[i->wait[w]] == n + 1) set_loud(h, n);
    }
}

/* The barrier that all of a node arrives at, and nobody else; NONE: there is none. */
static uint32_t barrier_of(const handoff *h, size_t node) {
    const mt_program *p = h->p;
    const program_instruction *first = device_first_of(p, node);
    for (int a = 0; a < first->arrive_count; a++) {
        uint32_t arrive = 0, count = 0;
        for (uint32_t k = p->nodes[node].first; k < p->nodes[node].first + p->nodes[node].count; k++) {
            const program_instruction *i = &p->instructions[k];
            if (i->opcode == PROGRAM_JOIN) continue;
            count++;
            for (int b = 0; b < i->arrive_count; b++) arrive += i->arrive[b] == first->arrive[a];
        }
        if (arrive == count && p->barriers[first->arrive[a]].arrivals == count) return first->arrive[a];
    }
    return NONE;
}

static bool waits_for(const program_instruction *i, uint32_t barrier) {
    for (int w = 0; w < i->wait_count; w++)
        if (i->wait[w] == barrier) return true;
    return false;
}

/* All instructions of a node are to wait for all of another. False: one has no room. */
static bool wait_for_all(handoff *h, size_t node, size_t earlier) {
    const uint32_t barrier = barrier_of(h, earlier), first = h->p->nodes[node].first,
                   last = first + h->p->nodes[node].count;
    int more = 1;
    if (barrier == NONE) return false;
    for (size_t w = 0; w < h->added_count; w++) {
        if (h->added[w].node != node) continue;
        if (h->added[w].barrier == barrier) return true;
        more++;
    }
    for (uint32_t k = first; k < last; k++) {
        const program_instruction *i = &h->p->instructions[k];
        if (i->opcode != PROGRAM_JOIN && i->wait_count + more > PROGRAM_WAITS && !waits_for(i, barrier)) return false;
    }
    *ARENA_PUSH(h->memory, h->added, h->added_count, h->added_capacity) = (struct added_wait){(uint32_t)node, barrier};
    return true;
}

/* The program's instructions with these waits. */
static void add_waits(handoff *h) {
    const mt_program *p = h->p;
    h->instructions = ARENA_ARRAY(h->memory, p->instructions_count, program_instruction);
    memcpy(h->instructions, p->instructions, p->instructions_count * sizeof *h->instructions);
    for (size_t w = 0; w < h->added_count; w++) {
        const program_node *n = &p->nodes[h->added[w].node];
        for (uint32_t k = n->first; k < n->first + n->count; k++) {
            program_instruction *i = &h->instructions[k];
            if (i->opcode == PROGRAM_JOIN || waits_for(i, h->added[w].barrier)) continue;
            i->wait[i->wait_count] = h->added[w].barrier;
            i->target[i->wait_count++] = p->barriers[h->added[w].barrier].arrivals;
        }
    }
}

static void order(handoff *h, size_t earlier, size_t later, bool waits) {
    const uint64_t *before = h->before + later * h->width, *behind = h->behind + earlier * h->width;
    uint64_t quiet = 0;
    set_loud(h, earlier);
    if (!spend(h, h->width)) return;
    for (size_t w = 0; w < h->width; w++) quiet |= before[w] & behind[w] & ~h->loud[w]; /* on the way */
    if (!quiet || (waits && wait_for_all(h, later, earlier))) return;
    for (size_t w = 0; w < h->width; w++) h->loud[w] |= before[w] & behind[w];
}

/* The tensors' uses that conflict. Temporaries without a place of their own count as one tensor, which all write. */
static void find_loud(handoff *h) {
    uint32_t *shared = ARENA_ARRAY(h->memory, h->p->nodes_count, uint32_t), shared_count = 0;
    for (size_t n = 0; n < h->p->nodes_count; n++) {
        const tile_op *op = op_of(h, n);
        bool shares = false;
        if (op->level2) set_loud(h, n);
        for (int k = 0; k < op->param_count; k++) {
            if (!is_tensor(&op->params[k])) continue;
            const uint32_t t = tensor_of(h, n, op->params[k].ordinal);
            shares |= h->p->tensors[t].role == MT_TEMP && !h->own[t];
            if (op->params[k].kind == TILE_INOUT) set_loud(h, n); /* its instructions may have an order among them */
        }
        if (!shares) continue;
        for (uint32_t i = 0; i < shared_count; i++) order(h, shared[i], n, false);
        shared[shared_count++] = (uint32_t)n;
    }
    for (size_t t = 0; t < h->p->tensors_count; t++) {
        if (h->stamped[t] || (h->p->tensors[t].role == MT_TEMP && !h->own[t])) continue;
        for (uint32_t u = h->first[t]; u != NONE; u = h->uses[u].next)
            for (uint32_t v = h->uses[u].next; v != NONE && spend(h, 1); v = h->uses[v].next) {
                if (!h->uses[u].writes && !h->uses[v].writes) continue;
                if (h->uses[u].node == h->uses[v].node)
                    set_loud(h, h->uses[u].node);
                else
                    order(h, h->uses[u].node, h->uses[v].node, true);
            }
    }
}

/* ---- the outcome ---- */

static void place(handoff *h, device_handoff *out) {
    const mt_program *p = h->p;
    int64_t at = (int64_t)p->header->slot_bytes, stamps = 0;
    for (size_t t = 0; t < p->tensors_count; t++) {
        const program_tensor *tensor = &p->tensors[t];
        out->offset[t] = tensor->offset;
        if (tensor->role != MT_TEMP || h->stamped[t] || tensor->bytes > MOST_OWN_BYTES - at) continue;
        out->offset[t] = at = (int64_t)align_up((size_t)at, OWN_ALIGNMENT);
        at += tensor->bytes;
        h->own[t] = true;
    }
    out->stamps_at = align_up((size_t)at, OWN_ALIGNMENT);
    for (size_t t = 0; t < p->tensors_count; t++)
        if (h->stamped[t]) {
            out->offset[t] = (int64_t)out->stamps_at + stamps;
            stamps = (int64_t)align_up((size_t)(stamps + p->tensors[t].bytes), OWN_ALIGNMENT);
            h->own[t] = true;
        }
    out->stamp_bytes = (size_t)stamps;
    out->bytes = out->stamps_at + 2 * out->stamp_bytes;
}

/* Nothing is stamped, all ends loudly. */
static void keep_counters(handoff *h, device_handoff *out) {
    for (size_t t = 0; t < h->p->tensors_count; t++) out->offset[t] = h->p->tensors[t].offset, h->stamped[t] = false;
    for (size_t i = 0; i < h->p->ops_count; i++) memset(h->ops[i].stamped, 0, sizeof h->ops[i].stamped);
    memset(h->loud, 0xff, h->width * sizeof *h->loud);
    out->instructions = h->p->instructions;
    out->bytes = out->stamps_at = h->p->header->slot_bytes;
    out->stamp_bytes = 0;
}

static bool same_words(const uint32_t *a, const uint32_t *b, int count) {
    return !memcmp(a, b, (size_t)count * sizeof *a);
}

static void find_ends(const handoff *h, device_handoff *out) {
    const mt_program *p = h->p;
    for (size_t k = 0; k < p->instructions_count; k++) {
        const program_instruction *i = &out->instructions[k];
        out->ends[k] = i->opcode != PROGRAM_JOIN && !is_loud(h, i->node) ? CUDA_QUIET : 0;
    }
    for (size_t q = 0; p->header->placement == MT_PLACE_STATIC && q < p->processors_count; q++)
        for (uint32_t k = 0; k + 1 < p->processors[q].count; k++) {
            const uint32_t *at = p->order + p->processors[q].first + k;
            const program_instruction *i = &out->instructions[at[0]], *next = &out->instructions[at[1]];
            if (i->node == next->node && i->arrive_count && i->wait_count == next->wait_count &&
                i->arrive_count == next->arrive_count && same_words(i->wait, next->wait, i->wait_count) &&
                same_words(i->target, next->target, i->wait_count) &&
                same_words(i->arrive, next->arrive, i->arrive_count))
                out->ends[at[0]] |= CUDA_GOES_ON;
        }
}

/* Marks the waits for barriers at which all arrive quietly. */
static void find_hints(handoff *h, const device_handoff *out) {
    const mt_program *p = h->p;
    bool *loud = ARENA_ARRAY(h->memory, p->barriers_count, bool);
    for (size_t k = 0; k < p->instructions_count; k++)
        for (int a = 0; a < p->instructions[k].arrive_count && !(out->ends[k] & CUDA_QUIET); a++)
            loud[p->instructions[k].arrive[a]] = true;
    for (size_t k = 0; k < p->instructions_count; k++)
        for (int w = 0; w < h->instructions[k].wait_count; w++)
            if (!loud[h->instructions[k].wait[w]]) h->instructions[k].wait[w] |= CUDA_HINT;
}

typedef struct choosing {
    handoff h;
    device_handoff *out;
} choosing;

static void choose(void *context) {
    handoff *h = &((choosing *)context)->h;
    device_handoff *out = ((choosing *)context)->out;
    const mt_program *p = h->p;
    *out = (device_handoff){.ends = ARENA_ARRAY(h->memory, p->instructions_count, uint8_t),
                            .stamped = ARENA_ARRAY(h->memory, p->tensors_count, bool),
                            .offset = ARENA_ARRAY(h->memory, p->tensors_count, int64_t)};
    h->stamped = out->stamped;
    h->own = ARENA_ARRAY(h->memory, p->tensors_count, bool);
    h->written = ARENA_ARRAY(h->memory, p->ops_count, written);
    h->width = (p->nodes_count + 63) / 64;
    h->loud = ARENA_ARRAY(h->memory, h->width, uint64_t);
    bool any = false, quiet = false;
    if (p->nodes_count <= MOST_NODES) {
        h->uses = ARENA_ARRAY(h->memory, p->nodes_count * TILE_PARAMS, use);
        h->first = ARENA_ARRAY(h->memory, p->tensors_count, uint32_t);
        h->last = ARENA_ARRAY(h->memory, p->tensors_count, uint32_t);
        h->writer = ARENA_ARRAY(h->memory, p->tensors_count, uint32_t);
        memset(h->first, 0xff, p->tensors_count * sizeof *h->first);
        memset(h->writer, 0xff, p->tensors_count * sizeof *h->writer);
        find_uses(h);
        for (uint32_t t = 0; t < p->tensors_count && h->status == MT_OK; t++) h->stamped[t] = may_be_stamped(h, t);
        settle(h);
        for (size_t t = 0; t < p->tensors_count; t++) any |= h->stamped[t];
    }
    if (any && h->status == MT_OK && spend(h, 0)) {
        h->before = ARENA_ARRAY(h->memory, p->nodes_count * h->width, uint64_t);
        h->behind = ARENA_ARRAY(h->memory, p->nodes_count * h->width, uint64_t);
        place(h, out);
        find_before(h);
        find_ordered(h);
        find_loud(h);
        for (uint32_t t = 0; t < p->tensors_count; t++) quiet |= h->stamped[t] && !is_loud(h, h->writer[t]);
        quiet &= spend(h, 0);
    }
    if (quiet) {
        add_waits(h);
        out->instructions = h->instructions;
    } else
        keep_counters(h, out);
    find_ends(h, out);
    if (quiet) find_hints(h, out);
}

mt_status device_handoff_choose(const mt_program *p, const program_binding *b, emit_cuda_op *ops, arena *memory,
                                device_handoff *out, mt_error *error) {
    choosing c = {.h = {.p = p, .b = b, .ops = ops, .memory = memory, .status = MT_OK, .error = error}, .out = out};
    if (!arena_protect(memory, choose, &c)) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    return c.h.status;
}
