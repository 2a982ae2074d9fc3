/* What an instruction touches: the boxes of tensors it may read and write, its bytes, its operations.
 *
 * The program is walked once with a range for every integer in it: [low, high], both included, either absolute or, with
 * live >= 0, relative to that live value, as in pos + [0, 3]. Grid indices, extents and arguments are known, a loop's
 * variable has the range of the loop. A sum of one live value and anything absolute stays relative; every other use of
 * a live value takes the range of what it can be. So the low and high end of an affine index in which each loop
 * variable stands once are exact; where they are not, the range is too large, never too small. What comes from data has
 * the range of its type. Arithmetic that could leave 64 bits gives every integer, since machines would wrap around
 * there. A free extent that is live is any from 0 to its most: x[M - 1] can be any row.
 *
 * A branch whose condition is decided here is taken or left out (the first instruction of an ordered sum writes, the
 * others add); a loop that cannot run is left out. A variable that is assigned again in a branch or a loop that may or
 * may not run can have both values; one that changes in a loop can have any from the loop's beginning on.
 *
 * The bytes of a tensor are those of its box, or of all accesses one after another where these are fewer: rows that
 * data chooses have the whole tensor as their box, and only so many of them are read.
 *
 * tile_summarise is called for every instruction of a schedule, and so allocates nothing. */
#include "tile/check.h"
#include "tile/explicit.h"

#include <inttypes.h>

typedef struct range {
    int64_t low, high; /* both included */
    int live;          /* ordinal of the live value to add, or -1 */
} range;

static const range everything = {INT64_MIN, INT64_MAX, -1};

typedef struct walk {
    const tile_instance *instance;
    const tile_op *op;
    const int64_t *index; /* of the grid; NULL for extents and counts */
    tile_summary *out;
    const tile_param *params[2 * TILE_PARAMS];   /* of out's boxes */
    int64_t bits[2 * TILE_PARAMS];               /* of all accesses to each box */
    int reads[TILE_PARAMS], writes[TILE_PARAMS]; /* by tensor ordinal: its box in out, or -1 */
    int64_t times;                               /* how often the statement at hand runs, at most */
    int level;                                   /* loops and undecided branches around it */
    bool changes;                                /* some integer variable is assigned more than once */
    range loops[TILE_LOOPS];
    range variables[TILE_VARIABLES];
    int levels[TILE_VARIABLES]; /* where each was declared */
} walk;

/* ---- ranges ---- */

static range exactly(int64_t value) { return (range){value, value, -1}; }
static bool is_exact(range r) { return r.low == r.high && r.live < 0; }
static bool is_one(range r) { return is_exact(r) && r.low == 1; }
static bool is_everything(range r) { return r.low == INT64_MIN && r.high == INT64_MAX; }

static range absolute(const tile_instance *i, range r) {
    if (r.live < 0) return r;
    range out = {.live = -1};
    const bool overflow = __builtin_add_overflow(r.low, (int64_t)i->live[r.live].least, &out.low) ||
                          __builtin_add_overflow(r.high, (int64_t)i->live[r.live].most, &out.high);
    return overflow ? everything : out;
}

/* Makes both relative to the same live value, or to none. */
static void align(const tile_instance *i, range *a, range *b) {
    if (a->live == b->live) return;
    *a = absolute(i, *a);
    *b = absolute(i, *b);
}

static range hull(const tile_instance *i, range a, range b) {
    align(i, &a, &b);
    return (range){min_i64(a.low, b.low), max_i64(a.high, b.high), a.live};
}

static range range_of_type(const tile_format *t) {
    const int bits = t->scalar.bits;
    if (t->scalar.kind == TILE_BOOL) return (range){0, 1, -1};
    if (t->scalar.kind == TILE_UINT && bits == 64) return (range){0, INT64_MAX, -1}; /* as it is cast to i64 */
    if (t->scalar.kind == TILE_FLOAT || bits == 64) return everything;
    if (t->scalar.kind == TILE_UINT) return (range){0, ((int64_t)1 << bits) - 1, -1};
    return (range){-((int64_t)1 << (bits - 1)), ((int64_t)1 << (bits - 1)) - 1, -1};
}

/* r as a value of type t: where it would wrap around, any value. */
static range fit(const tile_instance *i, range r, const tile_format *t) {
    const range all = range_of_type(t), value = absolute(i, r);
    return value.low < all.low || value.high > all.high || is_everything(value) ? all : r;
}

/* r cast to type t: casts saturate. */
static range saturated(const tile_instance *i, range r, const tile_format *t) {
    const range all = range_of_type(t), value = absolute(i, r);
    if (value.low >= all.low && value.high <= all.high) return r;
    return (range){max_i64(min_i64(value.low, all.high), all.low), max_i64(min_i64(value.high, all.high), all.low), -1};
}

/* The range of an operation that is monotone in each operand over the whole of the other's range. */
static range corners(tile_operator op, range a, range b) {
    range out = {INT64_MAX, INT64_MIN, -1};
    const int64_t x[2] = {a.low, a.high}, y[2] = {b.low, b.high};
    for (int p = 0; p <= (a.low != a.high); p++)
        for (int q = 0; q <= (b.low != b.high); q++) {
            int64_t value;
            if (!check_compute(op, x[p], y[q], &value)) return everything;
            out.low = min_i64(out.low, value);
            out.high = max_i64(out.high, value);
        }
    return out;
}

static range modulo(range a, range b) {
    if (b.low <= 0 && b.high >= 0) return everything;
    if (b.low < 0) return b.low == INT64_MIN ? everything : (range){b.low + 1, 0, -1};
    if (a.low >= 0 && a.high < b.low) return a;
    if (b.low == b.high && floor_div(a.low, b.low) == floor_div(a.high, b.low))
        return (range){floor_mod(a.low, b.low), floor_mod(a.high, b.low), -1};
    return (range){0, b.high - 1, -1};
}

static range bitwise(tile_operator op, range a, range b) {
    if (is_exact(a) && is_exact(b)) return corners(op, a, b);
    if (op == TILE_BIT_AND) {
        if (a.low < 0 && b.low < 0) return everything;
        return (range){0, a.low < 0 ? b.high : b.low < 0 ? a.high : min_i64(a.high, b.high), -1};
    }
    if (a.low < 0 || b.low < 0) return everything;
    const int64_t most = max_i64(a.high, b.high);
    const int64_t ones = most ? (int64_t)(UINT64_MAX >> __builtin_clzll((uint64_t)most)) : 0;
    return (range){op == TILE_BIT_OR ? max_i64(a.low, b.low) : 0, ones, -1};
}

static range add(const tile_instance *i, range a, range b) {
    if (a.live >= 0 && b.live >= 0) b = absolute(i, b);
    range out = {.live = a.live >= 0 ? a.live : b.live};
    const bool overflow =
        __builtin_add_overflow(a.low, b.low, &out.low) || __builtin_add_overflow(a.high, b.high, &out.high);
    return overflow || is_everything(absolute(i, out)) ? everything : out;
}

static range subtract(const tile_instance *i, range a, range b) {
    const bool cancels = a.live == b.live;
    if (!cancels) b = absolute(i, b);
    range out = {.live = cancels ? -1 : a.live};
    const bool overflow =
        __builtin_sub_overflow(a.low, b.high, &out.low) || __builtin_sub_overflow(a.high, b.low, &out.high);
    return overflow || is_everything(absolute(i, out)) ? everything : out;
}

static range negated(range r) { return (range){!r.high, !r.low, -1}; }

static range compare(tile_operator op, range a, range b) {
    switch (op) {
    case TILE_EQ:
        return (range){a.low == a.high && b.low == b.high && a.low == b.low, a.low <= b.high && b.low <= a.high, -1};
    case TILE_LT:
        return (range){a.high < b.low, a.low < b.high, -1};
    case TILE_LE:
        return (range){a.high <= b.low, a.low <= b.high, -1};
    case TILE_NE:
        return negated(compare(TILE_EQ, a, b));
    case TILE_GE:
        return negated(compare(TILE_LT, a, b));
    default:
        return negated(compare(TILE_LE, a, b)); /* GT */
    }
}

static range operate(const tile_instance *i, tile_operator op, range a, range b, int bits) {
    switch (op) {
    case TILE_ADD:
        return add(i, a, b);
    case TILE_SUB:
        return subtract(i, a, b);
    case TILE_MIN:
        align(i, &a, &b);
        return (range){min_i64(a.low, b.low), min_i64(a.high, b.high), a.live};
    case TILE_MAX:
        align(i, &a, &b);
        return (range){max_i64(a.low, b.low), max_i64(a.high, b.high), a.live};
    case TILE_EQ:
    case TILE_NE:
    case TILE_LT:
    case TILE_LE:
    case TILE_GT:
    case TILE_GE:
        align(i, &a, &b);
        return compare(op, a, b);
    default:
        break;
    }
    if (is_one(b) && (op == TILE_MUL || op == TILE_DIV || op == TILE_CEIL_DIV)) return a;
    if (is_one(a) && op == TILE_MUL) return b;
    a = absolute(i, a);
    b = absolute(i, b);
    switch (op) {
    case TILE_NEG:
        return subtract(i, exactly(0), a);
    case TILE_ABS: {
        const range minus = subtract(i, exactly(0), a);
        if (a.low >= 0) return a;
        return a.high <= 0 || is_everything(minus) ? minus : (range){0, max_i64(a.high, minus.high), -1};
    }
    case TILE_NOT:
        return negated(a);
    case TILE_AND:
        return (range){a.low && b.low, a.high && b.high, -1};
    case TILE_OR:
        return (range){a.low || b.low, a.high || b.high, -1};
    case TILE_MUL:
        return corners(op, a, b);
    case TILE_DIV:
    case TILE_CEIL_DIV:
        return b.low <= 0 && b.high >= 0 ? everything : corners(op, a, b);
    case TILE_SHL:
    case TILE_SHR:
        return b.low < 0 || b.high >= bits ? everything : corners(op, a, b);
    case TILE_MOD:
        return modulo(a, b);
    case TILE_BIT_AND:
    case TILE_BIT_OR:
    case TILE_BIT_XOR:
        return bitwise(op, a, b);
    default:
        return everything;
    }
}

static bool is_float(const tile_format *t) { return t->scalar.kind == TILE_FLOAT; }

/* The range of a scalar, or of all elements of a tile. */
static range evaluate(const walk *w, const tile_node *n) {
    const tile_instance *i = w->instance;
    const range all = range_of_type(n->type);
    if (is_float(n->type)) return all;
    switch (n->kind) {
    case TILE_CONST:
        return exactly(n->value.i);
    case TILE_GRID:
        return exactly(w->index[n->index]);
    case TILE_LOOP:
        return w->loops[n->index];
    case TILE_EXTENT: /* in an extent or a count: what there must be room for */
        return (range){w->index && i->free_live[n->index] ? 0 : i->free_extent[n->index], i->free_extent[n->index], -1};
    case TILE_ARG:
        return exactly(i->arg[w->op->params[n->index].ordinal].i);
    case TILE_LIVE: {
        const int live = w->op->params[n->index].ordinal;
        return i->live[live].least == i->live[live].most ? exactly(i->live[live].least) : (range){0, 0, live};
    }
    case TILE_VAR:
        return w->variables[n->index];
    case TILE_ELEMENTWISE: {
        if (is_float(n->a->type)) return all; /* a comparison */
        const range a = evaluate(w, n->a), b = n->b ? evaluate(w, n->b) : exactly(0);
        return fit(i, operate(i, n->op, a, b, n->type->bits), n->type);
    }
    case TILE_SELECT: {
        const range condition = evaluate(w, n->a);
        if (is_exact(condition)) return evaluate(w, condition.low ? n->b : n->c);
        return hull(i, evaluate(w, n->b), evaluate(w, n->c));
    }
    case TILE_CAST:
        return is_float(n->a->type) ? all : saturated(i, evaluate(w, n->a), n->type);
    case TILE_REDUCE:
        if (n->op == TILE_ARGMAX) return (range){0, n->a->shape.extent[n->index] - 1, -1};
        return n->op == TILE_SUM ? all : evaluate(w, n->a);
    case TILE_TRANSPOSE:
    case TILE_RESHAPE:
    case TILE_BROADCAST:
    case TILE_PART:
        return evaluate(w, n->a);
    case TILE_CONCAT: {
        range r = evaluate(w, n->list[0]);
        for (int k = 1; k < n->count; k++) r = hull(i, r, evaluate(w, n->list[k]));
        return r;
    }
    case TILE_IOTA:
        return (range){0, n->shape.extent[0] - 1, -1};
    default:
        return all;
    }
}

static int64_t multiply(int64_t a, int64_t b) { /* of numbers that are not negative */
    int64_t out;
    return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

static void saturating_add(int64_t *sum, int64_t more) {
    if (__builtin_add_overflow(*sum, more, sum)) *sum = INT64_MAX;
}

/* ---- boxes ---- */

tile_interval tile_interval_absolute(const tile_instance *i, tile_interval v, int64_t extent) {
    if (v.offset_live >= 0) {
        v.low +=
            i->live[v.offset_live].least; /* no overflow: the ends of a relative interval are between -2^31 and 2^41 */
        v.high += i->live[v.offset_live].most;
    }
    v.low = max_i64(v.low, 0);
    v.high = min_i64(v.high, extent);
    if (v.high < v.low) v.high = v.low;
    v.offset_live = -1;
    return v;
}

/* Cuts v at `limit`: elements there and beyond are out of range. */
static void cut(const tile_instance *i, tile_interval *v, range limit) {
    if (limit.live == v->offset_live) {
        v->high = min_i64(v->high, limit.high);
        return;
    }
    limit = absolute(i, limit);
    int64_t high = limit.high;
    if (v->offset_live >= 0 && __builtin_sub_overflow(high, (int64_t)i->live[v->offset_live].least, &high)) return;
    v->high = min_i64(v->high, high);
}

/* The interval of a dimension that an item touches; an empty one when it is out of range. */
static tile_interval touched(const walk *w, const tile_item *item, const tile_node *extent, int64_t room) {
    const tile_instance *i = w->instance;
    range r = evaluate(w, item->start);
    const int64_t size = item->kind == TILE_ITEM_RANGE ? item->size : 1;
    tile_interval v = {r.low, r.high, r.live};
    int64_t end;
    if (__builtin_add_overflow(r.high, size, &v.high) || __builtin_add_overflow(absolute(i, r).high, size, &end))
        v = (tile_interval){INT64_MIN, INT64_MAX, -1};
    if (item->limit) cut(i, &v, evaluate(w, item->limit));
    if (extent->kind != TILE_CONST && extent->kind != TILE_EXTENT) cut(i, &v, evaluate(w, extent));
    v.low = max_i64(v.low, v.offset_live < 0 ? 0 : -(int64_t)i->live[v.offset_live].most);
    v.high = min_i64(v.high, v.offset_live < 0 ? room : room - i->live[v.offset_live].least);
    return v;
}

static tile_interval join(const tile_instance *i, tile_interval a, tile_interval b, int64_t room) {
    if (a.offset_live != b.offset_live) {
        a = tile_interval_absolute(i, a, room);
        b = tile_interval_absolute(i, b, room);
    }
    return (tile_interval){min_i64(a.low, b.low), max_i64(a.high, b.high), a.offset_live};
}

/* The elements of [v.low, v.high) inside the tensor where the live values are at their maxima. */
static int64_t length_of(const tile_instance *i, tile_interval v, int64_t extent) {
    const int64_t offset = v.offset_live < 0 ? 0 : i->live[v.offset_live].most;
    return max_i64(0, min_i64(v.high + offset, extent) - max_i64(v.low + offset, 0));
}

/* Storage bits of `length` elements of dimension d, on top of `bits` for all dimensions before. */
static int64_t widen(int64_t bits, const tile_param *p, int d, int64_t length) {
    return multiply(bits, d == p->rank - 1 ? ceil_div(length, p->type->block) * p->type->bits : length);
}

/* Storage bits of a box. */
static int64_t box_bits(const tile_instance *i, const tile_box *box, const tile_param *p) {
    int64_t bits = 1;
    for (int d = 0; d < box->rank; d++)
        bits = widen(bits, p, d, length_of(i, box->dim[d], i->tensor[box->tensor].extent[d]));
    return bits;
}

/* Adds an access to the box of its tensor. */
static void touch(walk *w, const tile_access *a, bool writes) {
    const tile_param *p = &w->op->params[a->param];
    const tile_operand *operand = &w->instance->tensor[p->ordinal];
    tile_interval dim[TILE_RANK];
    int64_t bits = w->times;
    for (int d = 0; d < a->rank; d++) {
        dim[d] = touched(w, &a->item[d], p->extent[d], operand->extent[d]);
        if (dim[d].low >= dim[d].high) return;
        bits = widen(bits, p, d, min_i64(a->item[d].size, length_of(w->instance, dim[d], operand->extent[d])));
    }
    int *known = writes ? &w->writes[p->ordinal] : &w->reads[p->ordinal];
    const bool fresh = *known < 0;
    if (fresh) *known = w->out->box_count++;
    tile_box *box = &w->out->box[*known];
    if (fresh) {
        w->params[*known] = p;
        w->bits[*known] = 0;
        box->tensor = p->ordinal;
        box->reads = !writes;
        box->writes = writes;
        box->unordered = p->unordered;
        box->rank = a->rank;
    }
    saturating_add(&w->bits[*known], bits);
    for (int d = 0; d < a->rank; d++)
        box->dim[d] = fresh ? dim[d] : join(w->instance, box->dim[d], dim[d], operand->extent[d]);
}

/* ---- the walk ---- */

static void add_flops(walk *w, int64_t operations) { saturating_add(&w->out->flops, multiply(w->times, operations)); }

static void visit(walk *w, const tile_node *n);

static void visit_access(walk *w, const tile_access *a, bool writes) {
    if (a->param >= 0) touch(w, a, writes);
    for (int d = 0; d < a->rank; d++) { /* indices can be loads */
        visit(w, a->item[d].start);
        if (a->item[d].limit) visit(w, a->item[d].limit);
    }
}

/* Notes the loads and operations of an expression. */
static void visit(walk *w, const tile_node *n) {
    if (n->access) visit_access(w, n->access, false);
    if (n->a) visit(w, n->a);
    if (n->b) visit(w, n->b);
    if (n->c) visit(w, n->c);
    for (int k = 0; k < n->count; k++) visit(w, n->list[k]);
    if (n->kind == TILE_DOT)
        add_flops(w, 2 * multiply(tile_shape_count(&n->a->shape), n->b->shape.extent[1]));
    else if (n->kind == TILE_ELEMENTWISE && is_float(n->a->type))
        add_flops(w, tile_shape_count(&n->shape));
    else if (n->kind == TILE_REDUCE && is_float(n->a->type))
        add_flops(w, tile_shape_count(&n->a->shape));
}

/* Forgets the variables that a loop's body assigns and does not declare; what it declares is set before it is used. */
static void forget(walk *w, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_ASSIGN && !s->declares)
            w->variables[s->index] = range_of_type(w->op->variables[s->index].type);
        if (s->kind == TILE_ACTION && s->action->kind == LEVEL2_ATOMIC && s->action->variable >= 0)
            w->variables[s->action->variable] = range_of_type(w->op->variables[s->action->variable].type);
        forget(w, s->body);
        forget(w, s->otherwise);
    }
}

static void walk_block(walk *w, const tile_statement *s);

static void walk_assign(walk *w, const tile_statement *s) {
    visit(w, s->value);
    if (is_float(s->value->type)) return;
    const range value = evaluate(w, s->value);
    range *v = &w->variables[s->index];
    if (s->declares) w->levels[s->index] = w->level;
    *v = w->levels[s->index] == w->level ? value : hull(w->instance, *v, value);
}

static void walk_for(walk *w, const tile_statement *s) {
    visit(w, s->begin);
    visit(w, s->end);
    range begin = evaluate(w, s->begin), end = evaluate(w, s->end);
    align(w->instance, &begin, &end);
    if (end.high <= begin.low) return;
    int64_t trips;
    if (__builtin_sub_overflow(end.high, begin.low, &trips)) trips = INT64_MAX;
    const int64_t times = w->times;
    w->times = multiply(times, trips);
    w->loops[s->index] = (range){begin.low, end.high - 1, begin.live};
    w->level++;
    if (w->changes) forget(w, s->body);
    walk_block(w, s->body);
    w->level--;
    w->times = times;
}

static void walk_if(walk *w, const tile_statement *s) {
    visit(w, s->value);
    const range condition = evaluate(w, s->value);
    if (is_exact(condition)) {
        walk_block(w, condition.low ? s->body : s->otherwise);
        return;
    }
    const int64_t before = w->out->flops;
    w->level++;
    walk_block(w, s->body);
    const int64_t after = w->out->flops;
    w->out->flops = before;
    walk_block(w, s->otherwise);
    w->out->flops = max_i64(w->out->flops, after);
    w->level--;
}

static void walk_block(walk *w, const tile_statement *s) {
    for (; s; s = s->next) {
        switch (s->kind) {
        case TILE_ASSIGN:
            walk_assign(w, s);
            break;
        case TILE_FOR:
            walk_for(w, s);
            break;
        case TILE_IF:
            walk_if(w, s);
            break;
        case TILE_STORE:
            visit(w, s->value);
            if (s->adds) touch(w, s->access, false);
            visit_access(w, s->access, true);
            if (s->adds && is_float(s->value->type)) add_flops(w, tile_shape_count(&s->shape));
            break;
        case TILE_ACTION: /* level 2: of a role its statements; of others what they read */
            if (s->value) visit(w, s->value);
            if (s->action->kind == LEVEL2_ATOMIC) {
                touch(w, s->access, false);
                if (s->action->variable >= 0)
                    w->variables[s->action->variable] = range_of_type(w->op->variables[s->action->variable].type);
            }
            if (s->access) visit_access(w, s->access, s->action->kind != LEVEL2_TAKE);
            if (s->action->kind == LEVEL2_VIEW)
                w->variables[s->action->variable] = range_of_type(w->op->variables[s->action->variable].type);
            walk_block(w, s->body);
            break;
        }
    }
}

void tile_summarise(const tile_instance *i, const int64_t index[TILE_AXES], tile_summary *out) {
    const tile_op *op = i->op;
    walk w; /* large, and set where it is used */
    w.instance = i;
    w.op = op;
    w.index = index;
    w.out = out;
    w.times = 1;
    w.level = 0;
    w.changes = false;
    for (int t = 0; t < op->tensor_count; t++) w.reads[t] = w.writes[t] = -1;
    for (int v = 0; v < op->variable_count; v++)
        w.changes |= op->variables[v].assignments > 1 && !is_float(op->variables[v].type);
    out->box_count = 0;
    out->bytes_read = out->bytes_written = out->flops = 0;
    walk_block(&w, op->body);
    for (int b = 0; b < out->box_count; b++) {
        const tile_box *box = &out->box[b];
        const int64_t bits = min_i64(w.bits[b], box_bits(i, box, w.params[b]));
        *(box->writes ? &out->bytes_written : &out->bytes_read) += ceil_div(bits, 8);
    }
}

/* ---- instances ---- */

static bool depends_on_live(const tile_node *n) {
    return n && (n->kind == TILE_LIVE || depends_on_live(n->a) || depends_on_live(n->b) || depends_on_live(n->c));
}

/* It uses a free extent that no operand says yet. */
static bool is_open(const tile_instance *i, const tile_node *n) {
    return n && ((n->kind == TILE_EXTENT && i->free_extent[n->index] < 0) || is_open(i, n->a) || is_open(i, n->b) ||
                 is_open(i, n->c));
}

bool tile_instance_most(const tile_instance *i, const tile_node *n, int64_t *out) {
    if (is_open(i, n)) return false;
    walk w;
    w.instance = i;
    w.op = i->op;
    w.index = NULL;
    const range r = absolute(i, evaluate(&w, n));
    *out = r.high;
    return !is_everything(r) && (r.low == r.high || depends_on_live(n));
}

/* "operand x is bf16[4, 64], but ..." */
static mt_status refuse(const tile_instance *i, const tile_param *p, mt_error *error, const char *why) {
    const tile_operand *t = &i->tensor[p->ordinal];
    text shown = {0};
    for (int d = 0; d < t->rank && d < TILE_RANK; d++) text_printf(&shown, "%s%" PRId64, d ? ", " : "", t->extent[d]);
    const mt_status status = error_set(error, MT_E_ARGUMENT, i->op->name, "operand %s of %s is %s[%s], but %s", p->name,
                                       i->op->name, p->type->name, shown.data ? shown.data : "", why);
    text_free(&shown);
    return status;
}

static mt_status check_extent(const tile_instance *i, const tile_param *p, int d, mt_error *error) {
    const int64_t extent = i->tensor[p->ordinal].extent[d];
    const tile_node *n = p->extent[d];
    const bool room = depends_on_live(n);
    int64_t wanted = 0;
    const bool known = tile_instance_most(i, n, &wanted);
    if (known && (room ? wanted <= extent : wanted == extent)) return MT_OK;
    text why = {0};
    text_printf(&why, "its dimension %d must %s ", d, room ? "have room for" : "be");
    tile_print_node(&why, i->op, n);
    if (!known)
        text_string(&why, ", which does not fit in 64 bits");
    else if (n->kind != TILE_CONST)
        text_printf(&why, " = %" PRId64 "%s", wanted, room ? " at most" : "");
    const mt_status status = refuse(i, p, error, why.data ? why.data : "it does not fit");
    text_free(&why);
    return status;
}

static mt_status check_operand(const tile_instance *i, const tile_param *p, mt_error *error) {
    const tile_operand *t = &i->tensor[p->ordinal];
    if (t->rank != p->rank)
        return error_set(error, MT_E_ARGUMENT, i->op->name, "operand %s of %s has %d dimensions; expected %d", p->name,
                         i->op->name, t->rank, p->rank);
    int64_t bits = p->type->bits;
    for (int d = 0; d < p->rank; d++) {
        if (t->extent[d] < 0 || t->extent[d] > TILE_EXTENT_LIMIT)
            return refuse(i, p, error, "an extent must be between 0 and 2^40");
        if (t->extent[d] && (__builtin_mul_overflow(bits, t->extent[d], &bits) || bits > INT64_MAX / 2))
            return refuse(i, p, error, "that is too large");
    }
    if (t->extent[p->rank - 1] % p->type->block)
        return refuse(i, p, error, "its last extent must be a multiple of the format's block");
    return MT_OK;
}

mt_status tile_instance_check(tile_instance *i, mt_error *error) {
    const tile_op *op = i->op;
    mt_status status = MT_OK;
    for (int k = 0; k < op->param_count && !status; k++) {
        const tile_param *p = &op->params[k];
        if (p->kind == TILE_PARAM_LIVE && i->live[p->ordinal].least > i->live[p->ordinal].most)
            status = error_set(error, MT_E_ARGUMENT, op->name, "live value %s of %s has an empty range: %d to %d",
                               p->name, op->name, (int)i->live[p->ordinal].least, (int)i->live[p->ordinal].most);
        else if (p->kind == TILE_PARAM_ARG && !is_float(p->type) &&
                 (i->arg[p->ordinal].i < INT32_MIN || i->arg[p->ordinal].i > INT32_MAX))
            status =
                error_set(error, MT_E_ARGUMENT, op->name, "argument %s of %s is %" PRId64 ", which does not fit in i32",
                          p->name, op->name, i->arg[p->ordinal].i);
        else if (p->rank)
            status = check_operand(i, p, error);
    }
    if (status) return status;
    for (int k = 0; k < op->extent_count; k++) {
        const tile_operand *source = &i->tensor[op->params[op->extent_source[k].param].ordinal];
        i->free_extent[k] = source->extent[op->extent_source[k].dimension];
        i->free_live[k] = source->live[op->extent_source[k].dimension];
    }
    for (int k = 0; k < op->param_count && !status; k++)
        for (int d = 0; d < op->params[k].rank && !status; d++) status = check_extent(i, &op->params[k], d, error);
    return status;
}

int64_t tile_instance_grid(const tile_instance *i, int64_t count[TILE_AXES]) {
    int64_t product = 1;
    bool fits = true, empty = false;
    for (int k = 0; k < TILE_AXES; k++) {
        count[k] = 1;
        if (k >= i->op->axis_total) continue;
        fits &= tile_instance_most(i, i->op->axis_count[k], &count[k]);
        count[k] = max_i64(count[k], 0);
        empty |= count[k] == 0;
        product = multiply(product, count[k]);
    }
    return !fits ? -1 : empty ? 0 : product <= INT32_MAX ? product : -1;
}
