/* Masks that mask nothing. A causal product's where(key <= query, score, -inf) says something about few of its tiles:
 * most lie on one side of the diagonal. For an EACH of FRAGMENTs that is where(c, a, b), with c a comparison of 32-bit
 * integers, this finds a condition on scalars under which c holds for all elements, from the least and the most that
 * either side can be; then the statement is a alone (role_statement.whole), and often nothing at all: it is in the
 * registers already.
 *
 * Bounds are computed in 64 bits, where sums of 32-bit numbers never wrap. Those of the tile may: so the condition asks
 * as well that neither side's bounds are outside of 32 bits. (What wraps on the way and comes back is right; but not
 * through a division: what is divided must be known not to wrap.) */
#include "tile/role_internal.h"

static tile_node *new_node(role_lowering *l, tile_node_kind kind, const tile_format *type, int line) {
    tile_node *n = ARENA_NEW(l->memory, tile_node);
    *n = (tile_node){.kind = kind, .type = type, .line = line};
    return n;
}
static tile_node *number(role_lowering *l, int64_t value, int line) {
    tile_node *n = new_node(l, TILE_CONST, tile_format_scalar("i64", 3), line);
    n->value.i = value;
    return n;
}
static tile_node *operate(role_lowering *l, tile_operator op, const tile_format *type, const tile_node *a,
                          const tile_node *b) {
    tile_node *n = new_node(l, TILE_ELEMENTWISE, type, a->line);
    n->op = op;
    n->a = (tile_node *)a;
    n->b = (tile_node *)b;
    return n;
}

static bool is_any_loop(const role_op *r, const tile_node *n, int with) {
    return (void)r, (void)with, n->kind == TILE_LOOP;
}

/* The least, or the most, of a tile; NULL: it does not follow from how the tile is computed. `earlier`: it was computed
 * earlier, and only what never changes may be asked again. */
static const tile_node *bound_of(role_lowering *l, const tile_node *n, bool most, bool earlier) {
    const role_op *r = l->r;
    const tile_format *wide = tile_format_scalar("i64", 3);
    if (n->type->scalar.kind != TILE_INT || n->type->scalar.bits != 32 || tile_format_is_block(n->type)) return NULL;
    if (!n->shape.rank) {
        if (earlier && (!role_is_early(r, n) || role_any(r, n, is_any_loop, 0))) return NULL;
        tile_node *cast = new_node(l, TILE_CAST, wide, n->line);
        cast->a = (tile_node *)n;
        return n->kind == TILE_CONST ? number(l, n->value.i, n->line) : cast;
    }
    const role_variable *v = n->kind == TILE_VAR ? &r->variables[n->index] : NULL;
    const tile_node *a, *b;
    int64_t low, high;
    switch (n->kind) {
    case TILE_IOTA:
        return number(l, most ? n->shape.extent[0] - 1 : 0, n->line);
    case TILE_BROADCAST:
    case TILE_RESHAPE:
    case TILE_TRANSPOSE:
        return bound_of(l, n->a, most, earlier);
    case TILE_VAR:
        return v->value ? bound_of(l, v->value, most, earlier || v->place != ROLE_FUSED) : NULL;
    case TILE_ELEMENTWISE:
        if (n->op == TILE_DIV) {
            a = n->b->kind == TILE_CONST && n->b->value.i > 0 ? bound_of(l, n->a, most, earlier) : NULL;
            b = a ? bound_of(l, n->a, !most, earlier) : NULL;
            for (int i = 0; b && i < 2; i++)
                if (!role_range(r, i ? b : a, &low, &high) || low < INT32_MIN || high > INT32_MAX) b = NULL;
            return b ? operate(l, TILE_DIV, wide, a, number(l, n->b->value.i, n->line)) : NULL;
        }
        if (n->op != TILE_ADD && n->op != TILE_SUB) return NULL;
        a = bound_of(l, n->a, most, earlier);
        b = a ? bound_of(l, n->b, n->op == TILE_ADD ? most : !most, earlier) : NULL;
        if (!b || (b->kind == TILE_CONST && !b->value.i)) return b ? a : NULL;
        if (a->kind == TILE_CONST && b->kind == TILE_CONST) /* C would add the literals in 32 bits */
            return number(l, n->op == TILE_ADD ? a->value.i + b->value.i : a->value.i - b->value.i, n->line);
        return operate(l, n->op, wide, a, b);
    default:
        return NULL;
    }
}

/* A scalar that is true only when the comparison holds for all elements; NULL: none is known. */
static const tile_node *holds(role_lowering *l, const tile_node *n) {
    const tile_format *is = n->type;
    const bool above = n->op == TILE_GT || n->op == TILE_GE;
    if (n->kind != TILE_ELEMENTWISE || (n->op != TILE_LT && n->op != TILE_LE && !above)) return NULL;
    const tile_node *bound[2][2]; /* what is to be less, and the other: the least, and the most */
    for (int i = 0; i < 4; i++)
        if (!(bound[i / 2][i % 2] = bound_of(l, (i / 2 == 1) == above ? n->a : n->b, i % 2, false))) return NULL;
    const tile_operator less = n->op == TILE_LT || n->op == TILE_GT ? TILE_LT : TILE_LE;
    return operate(l, TILE_AND, is, operate(l, less, is, bound[0][1], bound[1][0]),
                   operate(l, TILE_AND, is, operate(l, TILE_GE, is, bound[0][0], number(l, INT32_MIN, n->line)),
                           operate(l, TILE_LE, is, bound[1][1], number(l, INT32_MAX, n->line))));
}

void role_find_whole(role_lowering *l, role_statement *s) {
    for (; s; s = s->next) {
        role_find_whole(l, s->body);
        role_find_whole(l, s->otherwise);
        if (s->kind == ROLE_EACH && l->r->variables[s->to].place == ROLE_FRAGMENT && s->value->kind == TILE_SELECT)
            s->whole = holds(l, role_resolved(l->r, s->value->a));
    }
}
