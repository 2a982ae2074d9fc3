/* Where variables are kept, how reductions are done, how elements are spread. */
#include "tile/role_internal.h"

/* ---- sums that begin at a constant ---- */

static const tile_node *constant_of(const tile_node *n) {
    while (n->kind == TILE_BROADCAST) n = n->a;
    return n->kind == TILE_CONST ? n : NULL;
}

static bool reads_deep(const role_op *r, const role_statement *s, int variable) {
    if (role_reads(r, s->value, variable) || role_reads(r, s->left, variable) || role_reads(r, s->begin, variable) ||
        role_reads(r, s->end, variable))
        return true;
    for (int i = 0; s->access && i < s->access->rank; i++)
        if (role_reads(r, s->access->item[i].start, variable) || role_reads(r, s->access->item[i].limit, variable))
            return true;
    for (int i = 0; i < 2; i++)
        for (const role_statement *b = i ? s->otherwise : s->body; b; b = b->next)
            if (reads_deep(r, b, variable)) return true;
    return false;
}

/* `sum = 0 ... sum = sum + x`, with nothing between that reads it, is `sum = x`: an accumulator whose loop has become
 * one product. */
static void fold_block(role_lowering *l, role_statement **at) {
    for (; *at; at = &(*at)->next) {
        role_statement *s = *at;
        fold_block(l, &s->body);
        fold_block(l, &s->otherwise);
        if (s->kind != ROLE_EACH || !s->declares || !constant_of(s->value) || l->facts[s->to].assignments != 2)
            continue;
        role_statement *sum = s->next;
        while (sum && sum->to != s->to && !reads_deep(l->r, sum, s->to)) sum = sum->next;
        if (!sum || sum->kind != ROLE_EACH || sum->to != s->to || sum->value->kind != TILE_ELEMENTWISE ||
            sum->value->op != TILE_ADD)
            continue;
        const tile_node *a = sum->value->a, *b = sum->value->b, *own = a->kind == TILE_VAR && a->index == s->to ? a : b,
                        *other = own == a ? b : a;
        if (own->kind != TILE_VAR || own->index != s->to || role_reads(l->r, other, s->to) ||
            !role_same_shape(&other->shape, &sum->value->shape))
            continue;
        const tile_node *start = constant_of(s->value);
        const bool zero = start->type->scalar.kind == TILE_FLOAT ? start->value.f == 0 : start->value.i == 0;
        tile_node *copy = ARENA_NEW(l->memory, tile_node);
        *copy = *sum->value;
        copy->a = (tile_node *)start;
        copy->b = (tile_node *)other;
        sum->value = zero ? other : copy;
        sum->declares = true;
        *at = s->next;
        fold_block(l, at);
        return;
    }
}

void role_fold_constants(role_lowering *l, role_statement **at) {
    role_count(l);
    fold_block(l, at);
}

/* ---- reductions ---- */

/* A larger tile than FEW_BYTES is read twice rather than kept: it would take the pages' room, or have none. */
enum { SHORT_AXIS = 32, LONG_AXIS = 512, FEW_BYTES = 16 << 10 };

void role_reductions(role_lowering *l, role_statement *s) {
    for (; s; s = s->next) {
        role_reductions(l, s->body);
        role_reductions(l, s->otherwise);
        if (s->kind != ROLE_REDUCE) continue;
        const tile_shape *shape = &s->value->shape;
        const int64_t length = shape->extent[s->axis], results = tile_shape_count(shape) / length;
        bool last = true; /* neighbours along the axis are neighbours in memory */
        for (int d = s->axis + 1; d < shape->rank; d++) last &= shape->extent[d] == 1;
        const bool coalesced = last && s->axis == shape->rank - 1;
        s->spread.vector = coalesced && length % 4 == 0 && length >= 128 ? 4 : 1;
        if (last && results < ROLE_WARPS && length >= LONG_AXIS && s->op != TILE_ARGMAX) {
            s->reduce = ROLE_ALL;
            if (s->spread.vector == 4 && length % (8 * ROLE_THREADS) == 0) s->spread.vector = 8; /* as a panel's */
            const int parts = role_new_variable(l, "parts", s->value->type, &(tile_shape){2, {ROLE_WARPS, results}});
            role_variable *v = &l->r->variables[s->to];
            v->place = ROLE_PARTS;
            v->parts = parts;
            v->op = s->op;
            v->why = "all warps' parts together";
            l->r->variables[parts].why = "what each warp leaves";
            s->to = parts;
        } else
            s->reduce = (last && length >= SHORT_AXIS) || results < SHORT_AXIS ? ROLE_WARP : ROLE_SERIAL;
    }
}

/* ---- places ---- */

static bool is_stored_load(const role_op *r, const tile_node *n, int with) {
    return (void)with, n->kind == TILE_LOAD && r->stored[n->access->param];
}
static bool is_load(const role_op *r, const tile_node *n, int with) {
    return (void)r, (void)with, n->kind == TILE_LOAD;
}
static bool is_concat(const role_op *r, const tile_node *n, int with) {
    return (void)r, (void)with, n->kind == TILE_CONCAT;
}

static bool changes_later(const role_lowering *l, const tile_node *n, int number) {
    if (!n) return false;
    const role_variable *v = n->kind == TILE_VAR ? &l->r->variables[n->index] : NULL;
    if (v && l->facts[n->index].last_assigned >= number) return true;
    if (v && v->place == ROLE_FUSED && changes_later(l, v->value, number)) return true;
    for (int i = 0; i < role_operand_count(n); i++)
        if (changes_later(l, role_operand(n, i), number)) return true;
    return false;
}

/* What computing an element takes, in rough operations; moves, casts and loads are free. */
static int cost_of(const role_op *r, const tile_node *n) {
    if (!n || n->shape.rank == 0) return 0;
    int cost = 0;
    if (n->kind == TILE_ELEMENTWISE)
        cost = (n->op >= TILE_EXP && n->op <= TILE_RSQRT) || n->op == TILE_DIV || n->op == TILE_MOD ? 100 : 1;
    if (n->kind == TILE_SELECT) cost = 1;
    if (n->kind == TILE_CAST && tile_format_is_block(n->a->type)) cost = 50;
    if (n->kind == TILE_VAR && r->variables[n->index].place == ROLE_FUSED)
        cost = cost_of(r, r->variables[n->index].value);
    if (n->kind == TILE_VAR && r->variables[n->index].place == ROLE_PARTS) cost = ROLE_WARPS;
    for (int i = 0; i < role_operand_count(n) && cost < 1000; i++) cost += cost_of(r, role_operand(n, i));
    return cost;
}

static void place(role_lowering *l, int i) {
    role_variable *v = &l->r->variables[i];
    const tile_variable *t = &l->r->op.variables[i];
    const role_facts *f = &l->facts[i];
    v->place = ROLE_BUFFER;
    if (f->assignments != 1 || !v->value)
        v->why = "it changes";
    else if (role_any(l->r, v->value, is_stored_load, 0))
        v->why = "it reads what the program writes";
    else if (changes_later(l, v->value, f->defined))
        v->why = "what it is computed from changes";
    else {
        const int cost = cost_of(l->r, v->value);
        const bool deeper = f->deepest_use > f->depth, small = tile_shape_count(&t->shape) <= 2 && !deeper;
        if (deeper && (cost || role_any(l->r, v->value, is_load, 0)))
            v->why = "it is read in a loop";
        else if (f->uses > 1 && f->few && tile_format_bytes(t->type, tile_shape_count(&t->shape)) <= FEW_BYTES &&
                 role_any(l->r, v->value, is_load, 0))
            v->why = "few threads would read much of it each";
        else if (f->uses > 1 && role_any(l->r, v->value, is_concat, 0))
            v->why = "it is put together and read more than once";
        else if (f->largest_use > tile_shape_count(&t->shape) && cost > 4 && !small)
            v->why = "each element is read for many";
        else if (f->uses > 1 && cost > 4 && !small)
            v->why = "it is dear and read more than once";
        else {
            v->place = ROLE_FUSED;
            v->why = f->uses == 0   ? "nobody reads it"
                     : cost == 0    ? "it costs nothing"
                     : f->uses == 1 ? "it is read once"
                                    : "it is cheap";
        }
    }
}

void role_place_variables(role_lowering *l) {
    for (int i = 0; i < l->r->source->variable_count; i++)
        if (l->r->variables[i].place != ROLE_SCALAR || l->r->op.variables[i].shape.rank) place(l, i);
}

/* ---- spreading ---- */

static int64_t power_of_two(int64_t n) { /* not below n */
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static role_spread spread_of(const tile_shape *s, int64_t value_columns, bool contiguous, bool narrow) {
    role_spread out = {.rows = 1, .columns = s->rank ? s->extent[s->rank - 1] : 1, .vector = 1};
    for (int d = 0; d < s->rank - 1; d++) out.rows *= s->extent[d];
    const int most = narrow && out.rows * out.columns >= 8 * ROLE_THREADS ? 8 : 4;
    while (contiguous && out.vector < most && out.columns % (2 * out.vector) == 0 &&
           value_columns % (2 * out.vector) == 0 && out.rows * out.columns > out.vector * ROLE_THREADS)
        out.vector *= 2;
    out.lanes = (int)min_i64(ROLE_THREADS, power_of_two(out.columns / out.vector));
    return out;
}

static void spread_dot(const role_op *r, role_statement *s) {
    const tile_node *right = s->value;
    int bits = 32;
    for (const tile_node *n = role_resolved(r, right); n;
         n = n->kind == TILE_CAST || n->kind == TILE_VAR || n->kind == TILE_PART ? n->a : NULL) {
        if (n->kind == TILE_LOAD && !tile_format_is_block(n->type)) bits = n->type->bits;
    }
    const int64_t along = right->shape.extent[1]; /* k of [n, k], n of [k, n] */
    const int most = bits <= 16 && s->dot != ROLE_OUTPUTS ? 8 : 4;
    s->spread.vector = 1;
    while (s->spread.vector < most && along % (2 * s->spread.vector) == 0) s->spread.vector *= 2;
    s->spread.lanes = (int)min_i64(32, power_of_two(along / s->spread.vector));
}

bool role_scattered(const role_statement *s, tile_shape *shape) {
    bool any = false;
    for (int d = 0, t = 0; d < s->access->rank; d++) {
        if (s->access->item[d].kind == TILE_ITEM_GATHER && shape->extent[t] > 1) {
            shape->extent[t] = 1;
            any = true;
        }
        t += s->access->item[d].kind != TILE_ITEM_POINT;
    }
    return any;
}

void role_spread_statements(role_lowering *l, role_statement *s) {
    const role_op *r = l->r;
    for (; s; s = s->next) {
        role_spread_statements(l, s->body);
        role_spread_statements(l, s->otherwise);
        if (s->kind == ROLE_DOT) spread_dot(r, s);
        if (s->kind == ROLE_EACH && r->variables[s->to].place == ROLE_BUFFER) {
            const tile_shape *shape = &r->op.variables[s->to].shape;
            const int rank = s->value->shape.rank;
            const int64_t columns = rank && s->value->shape.extent[rank - 1] != 1 ? s->value->shape.extent[rank - 1]
                                                                                  : shape->extent[shape->rank - 1];
            s->spread = spread_of(shape, columns, true, r->op.variables[s->to].type->bits <= 16);
        }
        if (s->kind == ROLE_STORE) {
            const tile_access *a = s->access;
            const tile_format *f = r->op.params[a->param].type;
            const bool contiguous =
                a->item[a->rank - 1].kind == TILE_ITEM_RANGE && f->bits >= 8 && !tile_format_is_block(f);
            tile_shape shape = s->shape;
            role_scattered(s, &shape);
            s->spread = spread_of(&shape, shape.rank ? shape.extent[shape.rank - 1] : 1, contiguous, f->bits <= 16);
        }
    }
}
