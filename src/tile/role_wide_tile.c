/* Wide products in a loop that does other things as well: attention over blocks of a cache, for one. Each is a
 * WIDE_TILE: its right operand is a slice of a tensor, in pages; its left operand a tile of 128 rows,
 *   - that stays the same in all turns (tile · sliceᵀ): it is put into a buffer in front of the loop, as atoms; or
 *   - that is computed in the turn (tile · slice): it goes from the registers where it is computed into the product.
 * What lies around them, running maxima and sums, stays in registers: every tile of these rows is a FRAGMENT. A thread
 * has two of its warp's 16 rows; the four lanes of a row have its columns.
 *
 * `acc = x + tile · slice` becomes `acc = x`, and a product that adds to it.
 *
 * A loop is taken when a loader can follow it and all of its products are of these kinds; if something else in the op
 * cannot be done with FRAGMENTs (role_fragments_fit), the op is lowered without. */
#include "tile/role_internal.h"

enum { ROWS = 128 };

/* The slice is whole rows of a mapped tensor, where a loader can know them. */
static bool find_slice(const role_lowering *l, const tile_node *n, const tile_format *type, role_wide_slice *out) {
    const role_op *r = l->r;
    const tile_access *a = role_plain_slice(r, n, type);
    if (!a || a->rank < 2 || a->rank > 3) return false;
    const tile_param *p = &r->op.params[a->param];
    const tile_item *last = &a->item[a->rank - 1];
    const tile_node *extent = p->extent[a->rank - 1];
    int64_t low, high;
    if (p->kind != TILE_IN || !r->mapped[p->ordinal] || last->kind != TILE_ITEM_RANGE || last->limit ||
        !role_range(r, last->start, &low, &high) || low || high || extent->kind != TILE_CONST ||
        extent->value.i != last->size || last->size % 64 || last->size > 64 * ROLE_LEAST_PAGES) /* it is held at once */
        return false;
    if (a->item[0].kind != TILE_ITEM_RANGE || (a->item[0].size != 64 && a->item[0].size != 128)) return false;
    for (int d = 0; d < a->rank - 1; d++) /* (out of range are zeros, wherever it may be) */
        if ((d && (a->item[d].kind != TILE_ITEM_POINT || p->extent[d]->kind != TILE_CONST)) ||
            !role_is_early(r, a->item[d].start))
            return false;
    *out = (role_wide_slice){.param = a->param, .access = a, .rows = a->item[0].size, .columns = last->size};
    return true;
}

/* Some statement of the loop assigns what the node reads, or its variable is in it. */
static bool changes_in(const role_op *r, const tile_node *n, const role_statement *loop) {
    if (role_has_loop(r, n, loop->index)) return true;
    for (const role_statement *s = loop->body; s; s = s->next)
        if (s->to >= 0 && role_reads(r, n, s->to)) return true;
    return false;
}

static bool find_product(const role_lowering *l, const role_statement *loop, const role_statement *dot,
                         role_wide_slice *out) {
    const role_op *r = l->r;
    const tile_format *type = dot->left->type;
    const tile_node *right = role_resolved(r, dot->value);
    if (dot->shape.extent[0] != ROWS || !tile_format_is_16_bit_float(type) || right->type != type) return false;
    const bool transposed = right->kind == TILE_TRANSPOSE;
    if (!find_slice(l, transposed ? right->a : right, type, out)) return false;
    out->transposed = transposed;
    const int64_t sums = dot->shape.extent[1];
    if (sums * ROWS > (int64_t)ROLE_WIDE_SUMS * ROLE_THREADS) return false;
    return transposed ? !changes_in(r, dot->left, loop) && out->columns == dot->left->shape.extent[1]
                      : out->rows == dot->left->shape.extent[1];
}

/* All products of the loop are to be had so; there is one at least. */
static bool is_taken(const role_lowering *l, const role_statement *loop) {
    int count = 0;
    role_wide_slice unused;
    for (const role_statement *s = loop->body; s; s = s->next) {
        if (s->body || s->kind == ROLE_FOR || s->kind == ROLE_IF) return false;
        if (s->kind != ROLE_DOT) continue;
        if (!find_product(l, loop, s, &unused)) return false;
        count++;
    }
    return count > 0;
}

/* A tile in front of the loop, as atoms. */
static role_statement *panel_of(role_lowering *l, const role_statement *dot, int *variable) {
    const tile_node *left = dot->left;
    *variable = role_new_variable(l, "panel", left->type, &left->shape);
    l->r->variables[*variable].atoms = true;
    l->r->variables[*variable].why = "the left operand, for wgmma";
    role_statement *s = role_new_statement(l, ROLE_EACH, dot->line);
    s->to = *variable;
    s->value = left;
    s->declares = true;
    return s;
}

/* `s` is acc = x + dot, or the other way round, and x is no constant: gives x. */
static const tile_node *rest_of_sum(const role_op *r, const role_statement *s, const role_statement *dot) {
    const tile_node *v = s ? s->value : NULL;
    if (!s || s->kind != ROLE_EACH || s->declares || v->kind != TILE_ELEMENTWISE || v->op != TILE_ADD) return NULL;
    const tile_node *own = v->b->kind == TILE_VAR && v->b->index == dot->to ? v->b : v->a,
                    *x = own == v->b ? v->a : v->b;
    if (own->kind != TILE_VAR || own->index != dot->to || role_reads(r, x, dot->to) ||
        !role_same_shape(&x->shape, &own->shape) || role_reads(r, dot->left, s->to) || x->type != own->type)
        return NULL;
    return x;
}

static void take(role_lowering *l, role_statement **at) {
    role_statement *loop = *at;
    for (role_statement **s = &loop->body; *s; s = &(*s)->next) {
        role_statement *dot = *s;
        role_wide_slice slice;
        if (dot->kind != ROLE_DOT || !find_product(l, loop, dot, &slice)) continue;
        dot->kind = ROLE_WIDE_TILE;
        dot->slice = slice;
        dot->product = dot->left->type;
        dot->value = NULL;
        dot->why =
            slice.transposed ? "a tile that stays, and a slice in pages" : "a tile in registers, and a slice in pages";
        l->r->variables[dot->to].place = ROLE_FRAGMENT;
        if (slice.transposed) {
            role_statement *panel = panel_of(l, dot, &dot->from);
            dot->left = NULL;
            panel->next = *at;
            *at = panel;
            at = &panel->next;
            continue;
        }
        role_statement *sum = dot->next;
        const tile_node *x = rest_of_sum(l->r, sum, dot);
        if (!x) continue;
        dot->next = sum->next; /* acc = x comes first, and the product adds to it */
        dot->to = sum->to;
        dot->adds = true;
        sum->value = x;
        sum->next = dot;
        *s = sum;
        s = &sum->next;
    }
    l->tiles = true;
}

void role_wide_tiles(role_lowering *l, role_statement **at, bool early) {
    for (; *at; at = &(*at)->next) {
        role_statement *s = *at;
        if (s->kind == ROLE_FOR && early && role_is_early(l->r, s->begin) && role_is_early(l->r, s->end) &&
            is_taken(l, s)) {
            take(l, at);
            while (*at != s) at = &(*at)->next;
            continue;
        }
        const bool inner = early && (s->kind != ROLE_IF || role_is_early(l->r, s->value)) &&
                           (s->kind != ROLE_FOR || (role_is_early(l->r, s->begin) && role_is_early(l->r, s->end)));
        role_wide_tiles(l, &s->body, inner);
        role_wide_tiles(l, &s->otherwise, inner);
    }
}

/* Computed, not only moved, from what lies in registers: it is kept there when it is read more than once. */
static bool is_worth_keeping(const role_lowering *l, size_t i) {
    const role_variable *v = &l->r->variables[i];
    return v->place == ROLE_FUSED && l->facts[i].uses > 1 && v->value->kind != TILE_VAR &&
           v->value->kind != TILE_CAST && l->r->op.variables[i].shape.extent[1] > 1 &&
           role_any(l->r, v->value, role_is_fragment, 0);
}

void role_place_fragments(role_lowering *l) {
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < l->variable_count; i++) {
            role_variable *v = &l->r->variables[i];
            const tile_variable *t = &l->r->op.variables[i];
            if (v->atoms || v->panel || t->shape.rank != 2 || t->shape.extent[0] != ROWS ||
                tile_format_is_block(t->type) || t->type->scalar.bits != 32 ||
                !(turn ? is_worth_keeping(l, i) : v->place == ROLE_BUFFER))
                continue;
            v->place = ROLE_FRAGMENT;
            if (turn || !v->why) v->why = "a tile of the tensor cores' rows";
        }
}
