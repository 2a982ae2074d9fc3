/* What is decided before a function is written.
 *
 * Variables. A scalar is a C variable. A tile that is assigned once and costs little to compute again, or is used once,
 * is computed where it is used (EMIT_INLINE), so that it melts into the loops of its users; it must read nothing that
 * changes between its definition and its uses. All others are arrays in scratch memory.
 *
 * Limits. A store writes only what is in range of its tensor, and that is often far less than the tile: one row of
 * sixteen when a model takes one token. The limits of stores flow backwards through the program to the variables: which
 * leading part of each dimension does anyone read? Loops and dots compute no more than that. A dimension's limit is one
 * of: nothing known yet, limit number i times a factor, all; where two uses disagree it is all. This is a fixed point
 * over a lattice of height 3. */
#include "emit/emit_internal.h"

static const emit_limit NO_LIMIT = {0, 1};

bool emit_same(const tile_node *a, const tile_node *b) {
    if (a == b) return true;
    if (!a || !b || a->kind != b->kind || a->op != b->op || a->type != b->type || a->index != b->index) return false;
    if (a->shape.rank || b->shape.rank || a->access || a->list) return false; /* scalars only, and no loads */
    if (a->kind == TILE_CONST)
        return a->type->scalar.kind == TILE_FLOAT ? a->value.f == b->value.f : a->value.i == b->value.i;
    return emit_same(a->a, b->a) && emit_same(a->b, b->b) && emit_same(a->c, b->c);
}

/* ---- walking ---- */

enum { OPERANDS = 3 };

static const tile_node *operand(const tile_node *n, int i) {
    return i < OPERANDS ? (i == 0 ? n->a : i == 1 ? n->b : n->c) : n->list[i - OPERANDS];
}
static int operand_count(const tile_node *n) { return OPERANDS + n->count; }

/* The scalars and tiles in an access. */
static const tile_node *access_operand(const tile_access *access, int i) {
    if (!access || i >= 2 * access->rank) return NULL;
    const tile_item *item = &access->item[i / 2];
    return i % 2 ? item->limit : item->start;
}

typedef bool node_test(const emit *e, const tile_node *n, int with);

/* Whether any node of the tree passes the test, looking through inlined variables. */
static bool any(const emit *e, const tile_node *n, node_test *test, int with) {
    if (!n) return false;
    if (test(e, n, with)) return true;
    for (int i = 0; i < operand_count(n); i++)
        if (any(e, operand(n, i), test, with)) return true;
    for (int i = 0; n->access && i < 2 * n->access->rank; i++)
        if (any(e, access_operand(n->access, i), test, with)) return true;
    return n->kind == TILE_VAR && e->variables[n->index].mode == EMIT_INLINE &&
           any(e, e->variables[n->index].value, test, with);
}

static bool is_variable(const emit *e, const tile_node *n, int with) {
    return (void)e, n->kind == TILE_VAR && n->index == with;
}
static bool is_loop(const emit *e, const tile_node *n, int with) {
    return (void)e, n->kind == TILE_LOOP && n->index == with;
}
static bool is_sum(const emit *e, const tile_node *n, int with) {
    return (void)e, (void)with, n->kind == TILE_REDUCE || n->kind == TILE_DOT;
}
static bool is_concat(const emit *e, const tile_node *n, int with) {
    return (void)e, (void)with, n->kind == TILE_CONCAT;
}
static bool is_stored_load(const emit *e, const tile_node *n, int with) {
    return (void)with, n->kind == TILE_LOAD && e->stored[n->access->param];
}
static bool is_load_of(const emit *e, const tile_node *n, int with) {
    return (void)e, n->kind == TILE_LOAD && n->access->param == with;
}
/* A variable that is assigned after statement number `with`. */
static bool is_changed_later(const emit *e, const tile_node *n, int with) {
    return n->kind == TILE_VAR && e->variables[n->index].last_assigned >= with;
}
/* What an instruction does not know before its body runs. */
static bool is_inner(const emit *e, const tile_node *n, int with) {
    return (void)e, (void)with,
           n->shape.rank > 0 || n->kind == TILE_VAR || n->kind == TILE_LOOP || n->kind == TILE_LOAD;
}

bool emit_reads(const emit *e, const tile_node *n, int variable) { return any(e, n, is_variable, variable); }
bool emit_has_loop(const emit *e, const tile_node *n, int loop) { return any(e, n, is_loop, loop); }
bool emit_has_concat(const emit *e, const tile_node *n) { return any(e, n, is_concat, 0); }
bool emit_loads(const emit *e, const tile_node *n, int param) { return any(e, n, is_load_of, param); }

/* pieces: there may be several nests, one behind the other (emit_each). */
static bool moves(const emit *e, const tile_node *n, int variable, bool moved, bool pieces) {
    if (!n) return false;
    if (is_sum(e, n, 0)) return pieces && emit_reads(e, n, variable); /* complete before its nest writes anything */
    if (n->kind == TILE_VAR) {
        if (n->index == variable) return moved;
        return e->variables[n->index].mode == EMIT_INLINE &&
               moves(e, e->variables[n->index].value, variable, moved, pieces);
    }
    moved |= n->kind != TILE_ELEMENTWISE && n->kind != TILE_SELECT && n->kind != TILE_CAST;
    for (int i = 0; i < operand_count(n); i++) {
        const tile_node *o = operand(n, i);
        if (o && moves(e, o, variable, moved || memcmp(&o->shape, &n->shape, sizeof o->shape), pieces)) return true;
    }
    for (int i = 0; n->access && i < 2 * n->access->rank; i++)
        if (moves(e, access_operand(n->access, i), variable, true, pieces)) return true;
    return false;
}
bool emit_moves(const emit *e, const tile_node *n, int variable) {
    return moves(e, n, variable, false, emit_has_concat(e, n));
}

/* ---- ranges of scalars ---- */

bool emit_range(const emit *e, const tile_node *n, int64_t *low, int64_t *high) {
    const int64_t limit = (int64_t)1 << 60;
    int64_t a[2], b[2];
    if (!n || n->shape.rank || n->type->scalar.kind == TILE_FLOAT) return false;
    switch (n->kind) {
    case TILE_CONST:
        *low = *high = n->value.i;
        break;
    case TILE_GRID:
        *low = 0;
        if (!emit_range(e, e->op->axis_count[n->index], &a[0], high))
            *high = INT32_MAX;
        else
            --*high;
        break;
    case TILE_LOOP:
        if (!emit_range(e, e->loops[n->index]->begin, low, &a[1]) ||
            !emit_range(e, e->loops[n->index]->end, &b[0], high))
            return false;
        --*high;
        break;
    case TILE_EXTENT:
        *low = 0, *high = (int64_t)1 << 40;
        break;
    case TILE_LIVE:
    case TILE_ARG:
        *low = INT32_MIN, *high = INT32_MAX;
        break;
    case TILE_VAR:
        if (e->op->variables[n->index].assignments != 1) return false;
        return emit_range(e, e->variables[n->index].value, low, high);
    case TILE_CAST:
        if (n->type->scalar.kind != TILE_INT || n->type->scalar.bits < 32 || !emit_range(e, n->a, low, high))
            return false;
        return n->type->scalar.bits == 64 || (*low >= INT32_MIN && *high <= INT32_MAX);
    case TILE_ELEMENTWISE:
        if (n->type->scalar.kind != TILE_INT || !n->b || !emit_range(e, n->a, &a[0], &a[1]) ||
            !emit_range(e, n->b, &b[0], &b[1]))
            return false;
        if (!tile_operate_range(n->op, a, b, low, high)) return false;
        break;
    default:
        return false;
    }
    if (n->type->scalar.bits == 32 && (*low < INT32_MIN || *high > INT32_MAX)) return false; /* it may wrap */
    return *low > -limit && *high < limit && *low <= *high;
}

/* ---- limits ---- */

int emit_limit_of(emit *e, const tile_access *access, int dimension) {
    const tile_item *item = &access->item[dimension];
    const tile_node *extent = e->op->params[access->param].extent[dimension];
    if (item->kind != TILE_ITEM_RANGE || any(e, item->start, is_inner, 0) ||
        (item->limit && any(e, item->limit, is_inner, 0)))
        return 0;
    int64_t low, high;
    if (!item->limit && extent->kind == TILE_CONST && emit_range(e, item->start, &low, &high) &&
        high + item->size <= extent->value.i)
        return 0;
    for (size_t i = 1; i < e->limit_count; i++) {
        const emit_limit_source *l = &e->limits[i];
        if (l->size == item->size && emit_same(l->start, item->start) && emit_same(l->limit, item->limit) &&
            emit_same(l->extent, extent) &&
            (extent->kind == TILE_CONST || extent->kind == TILE_EXTENT ||
             (l->param == access->param && l->dimension == dimension)))
            return (int)i;
    }
    *ARENA_PUSH(e->memory, e->limits, e->limit_count, e->limit_capacity) =
        (emit_limit_source){item->start, item->limit, extent, item->size, access->param, dimension, NULL};
    return (int)e->limit_count - 1;
}

/* The limits of the operand of a reshape: dimensions are matched in groups of equal products. Within a group only a
 * limit of the slowest dimension, with all of the faster ones, is still one on the other side. */
static void reshape_limits(const tile_shape *from, const tile_shape *to, const emit_limit *limits, emit_limit *out) {
    int i = from->rank - 1, j = to->rank - 1;
    while (i >= 0) { /* `from` is the operand's shape */
        int64_t p = from->extent[i], q = j >= 0 ? to->extent[j] : 1;
        int first = i, other = j; /* the group is first..i and other..j */
        while (p != q) {
            if (p < q && first > 0)
                p *= from->extent[--first];
            else if (q < p && other > 0)
                q *= to->extent[--other];
            else
                break;
        }
        int lead = other; /* the slowest dimension of the group that is not 1 */
        while (lead >= 0 && lead < j && to->extent[lead] == 1) lead++;
        bool whole = p == q && lead >= 0;
        for (int d = lead + 1; d <= j && whole; d++) whole = limits[d].id == 0 || to->extent[d] == 1;
        int target = first;
        while (target < i && from->extent[target] == 1) target++;
        for (int d = first; d <= i; d++) out[d] = NO_LIMIT;
        if (whole && limits[lead].id > 0) {
            int64_t below = 1, behind = 1;
            for (int d = lead + 1; d <= j; d++) below *= to->extent[d];
            for (int d = target + 1; d <= i; d++) behind *= from->extent[d];
            if (limits[lead].factor * below % behind == 0)
                out[target] = (emit_limit){limits[lead].id, limits[lead].factor * below / behind};
        } else if (whole && limits[lead].id < 0)
            for (int d = first; d <= i; d++) out[d] = limits[lead];
        i = first - 1;
        j = other - 1;
    }
}

void emit_operand_limits(const tile_node *n, int which, const emit_limit *limits, emit_limit *out) {
    const tile_node *o = n->kind == TILE_CONCAT ? n->list[which] : which == 0 ? n->a : which == 1 ? n->b : n->c;
    const int rank = o->shape.rank, shift = n->shape.rank - rank;
    for (int d = 0; d < rank; d++) out[d] = NO_LIMIT;
    switch (n->kind) {
    case TILE_ELEMENTWISE:
    case TILE_SELECT:
    case TILE_CAST:
    case TILE_BROADCAST:
        for (int d = 0; d < rank; d++)
            if (o->shape.extent[d] == n->shape.extent[d + shift]) out[d] = limits[d + shift];
        break;
    case TILE_REDUCE:
        for (int d = 0; d < rank; d++)
            if (d != n->index) out[d] = limits[d];
        break;
    case TILE_DOT:
        if (which == 0)
            out[0] = limits[0];
        else
            out[1] = limits[1];
        break;
    case TILE_TRANSPOSE:
        for (int d = 0; d < rank; d++) out[d] = limits[d == rank - 1 ? rank - 2 : d == rank - 2 ? rank - 1 : d];
        break;
    case TILE_CONCAT:
        for (int d = 0; d < rank; d++)
            if (d != n->index) out[d] = limits[d];
        break;
    case TILE_PART:
        for (int d = 0, t = 0; d < rank; d++) {
            if (n->access->item[d].kind == TILE_ITEM_POINT) continue;
            if (n->access->item[d].size == o->shape.extent[d]) out[d] = limits[t];
            t++;
        }
        break;
    case TILE_RESHAPE:
        reshape_limits(&o->shape, &n->shape, limits, out);
        break;
    default:
        break;
    }
}

/* ---- facts ---- */

typedef struct facts {
    emit *e;
    int number; /* of statements, from 1 */
    int depth;
    bool changed; /* a limit has */
} facts;

static void note_uses(const facts *f, const tile_node *n, int64_t largest) {
    if (!n) return;
    const int64_t count = tile_shape_count(&n->shape);
    if (n->kind == TILE_VAR) {
        emit_variable *v = &f->e->variables[n->index];
        if (f->depth > v->deepest_use) v->deepest_use = f->depth;
        v->largest_use = max_i64(v->largest_use, max_i64(largest, count));
    }
    const bool fresh = n->kind == TILE_REDUCE || n->kind == TILE_DOT;
    for (int i = 0; i < operand_count(n); i++) {
        const tile_node *o = operand(n, i);
        if (o) note_uses(f, o, fresh ? tile_shape_count(&o->shape) : max_i64(largest, count));
    }
    for (int i = 0; n->access && i < 2 * n->access->rank; i++) note_uses(f, access_operand(n->access, i), 1);
}

static void note_statements(facts *f, const tile_statement *s) {
    for (; s; s = s->next) {
        const int number = ++f->number;
        if (s->kind == TILE_ASSIGN) {
            emit_variable *v = &f->e->variables[s->index];
            if (!v->defined) {
                v->defined = number;
                v->depth = v->deepest_use = f->depth;
                v->value = s->value;
            }
            v->last_assigned = number;
        }
        if (s->kind == TILE_STORE) {
            f->e->stored[s->access->param] = true;
            for (int i = 0; i < 2 * s->access->rank; i++) note_uses(f, access_operand(s->access, i), 1);
        }
        if (s->kind == TILE_FOR) f->e->loops[s->index] = s;
        note_uses(f, s->value, s->kind == TILE_STORE ? tile_shape_count(&s->shape) : 1);
        note_uses(f, s->begin, 1);
        note_uses(f, s->end, 1);
        f->depth += s->kind == TILE_FOR;
        note_statements(f, s->body);
        note_statements(f, s->otherwise);
        f->depth -= s->kind == TILE_FOR;
    }
}

/* What computing an element of n takes, in rough operations; moves and conversions are free. */
static int cost_of(const emit *e, const tile_node *n) {
    if (!n || n->shape.rank == 0) return 0;
    int cost = 0;
    if (n->kind == TILE_ELEMENTWISE)
        cost = (n->op >= TILE_EXP && n->op <= TILE_RSQRT) || n->op == TILE_DIV || n->op == TILE_MOD ? 100 : 1;
    if (n->kind == TILE_SELECT) cost = 1;
    if (n->kind == TILE_VAR && e->variables[n->index].mode == EMIT_INLINE)
        cost = cost_of(e, e->variables[n->index].value);
    for (int i = 0; i < operand_count(n) && cost < 1000; i++) cost += cost_of(e, operand(n, i));
    return cost;
}

static emit_mode mode_of(const emit *e, int i) {
    const emit_variable *v = &e->variables[i];
    const tile_variable *t = &e->op->variables[i];
    if (t->shape.rank == 0 && !tile_format_is_block(t->type)) return EMIT_SCALAR;
    if (t->assignments != 1 || any(e, v->value, is_sum, 0) || any(e, v->value, is_stored_load, 0) ||
        any(e, v->value, is_changed_later, v->defined))
        return EMIT_ARRAY;
    const int cost = cost_of(e, v->value);
    if (t->uses > 1 && any(e, v->value, is_concat, 0)) return EMIT_ARRAY;
    if (cost == 0) return EMIT_INLINE;
    if (v->deepest_use > v->depth || v->largest_use > tile_shape_count(&t->shape)) return EMIT_ARRAY;
    return t->uses <= 1 || cost <= 4 ? EMIT_INLINE : EMIT_ARRAY;
}

/* ---- what is needed ---- */

static void need(facts *f, const tile_node *n, const emit_limit *limits);

static void need_all(facts *f, const tile_node *n) {
    emit_limit all[TILE_RANK];
    for (int d = 0; d < TILE_RANK; d++) all[d] = NO_LIMIT;
    if (n) need(f, n, all);
}

static void need_access(facts *f, const tile_access *access) {
    for (int i = 0; access && i < 2 * access->rank; i++) need_all(f, access_operand(access, i));
}

static void need_variable(facts *f, int index, const emit_limit *limits) {
    emit_variable *v = &f->e->variables[index];
    if (v->mode == EMIT_INLINE) {
        need(f, v->value, limits);
        return;
    }
    for (int d = 0; d < f->e->op->variables[index].shape.rank; d++) {
        emit_limit *now = &v->limit[d];
        if (limits[d].id < 0 || now->id == 0 || (now->id == limits[d].id && now->factor == limits[d].factor)) continue;
        *now = now->id < 0 ? limits[d] : NO_LIMIT;
        f->changed = true;
    }
}

static void need(facts *f, const tile_node *n, const emit_limit *limits) {
    if (n->kind == TILE_VAR) need_variable(f, n->index, limits);
    need_access(f, n->access);
    for (int i = 0; i < operand_count(n); i++) {
        emit_limit below[TILE_RANK];
        const tile_node *o = operand(n, i);
        if (!o) continue;
        emit_operand_limits(n, n->kind == TILE_CONCAT ? i - OPERANDS : i, limits, below);
        need(f, o, below);
    }
}

static void need_statements(facts *f, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_ASSIGN) {
            if (f->e->variables[s->index].mode == EMIT_ARRAY) need(f, s->value, f->e->variables[s->index].limit);
            if (f->e->variables[s->index].mode == EMIT_SCALAR) need_all(f, s->value);
        } else if (s->kind == TILE_STORE) {
            emit_limit limits[TILE_RANK], below[TILE_RANK];
            const tile_node *v = s->value;
            int t = 0;
            for (int d = 0; d < s->access->rank; d++)
                if (s->access->item[d].kind != TILE_ITEM_POINT)
                    limits[t++] = (emit_limit){emit_limit_of(f->e, s->access, d), 1};
            for (int d = 0; d < v->shape.rank; d++) {
                const int to = d + s->shape.rank - v->shape.rank;
                below[d] = v->shape.extent[d] == s->shape.extent[to] ? limits[to] : NO_LIMIT;
            }
            need(f, v, below);
            need_access(f, s->access);
        } else {
            need_all(f, s->value);
            need_all(f, s->begin);
            need_all(f, s->end);
        }
        need_statements(f, s->body);
        need_statements(f, s->otherwise);
    }
}

void emit_plan(emit *e) {
    facts f = {.e = e};
    note_statements(&f, e->op->body);
    for (int i = 0; i < e->op->variable_count; i++) e->variables[i].mode = EMIT_ARRAY; /* until it is decided */
    for (int i = 0; i < e->op->variable_count; i++) {
        emit_variable *v = &e->variables[i];
        v->mode = mode_of(e, i);
        for (int d = 0; d < TILE_RANK; d++) v->limit[d] = (emit_limit){-1, 1};
    }
    do {
        f.changed = false;
        need_statements(&f, e->op->body);
    } while (f.changed);
    for (int i = 0; i < e->op->variable_count; i++)
        for (int d = 0; d < TILE_RANK; d++)
            if (e->variables[i].limit[d].id < 0) e->variables[i].limit[d] = NO_LIMIT; /* nobody reads it */
}
