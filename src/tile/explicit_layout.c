/* Which thread holds which element of the tiles in registers: from the most constrained instruction outwards.
 *
 *   1. What the text gives is as given.
 *   2. A product fixes its accumulator, and a left operand in registers.
 *   3. Until nothing changes: a tile gets the layout of what is assigned to it, what is assigned from it, or what it
 *      meets in an expression; a reduction's result that of its operand without the axis, and what is stretched to meet
 *      a tile that of the tile without the stretched dimensions.
 *   4. The rest is spread in rows over all threads.
 * Where a statement still meets a tile in another layout, the lowering converts it through shared memory
 * (explicit_lower.c).
 */
#include "tile/check.h"
#include "tile/explicit.h"

#include <inttypes.h>

enum { MOST_ROUNDS = 64 };

typedef struct inference {
    check *c;
    tile_op *op;
    level2_register *registers;
    const layout **layouts; /* by variable; NULL: not known yet, or none */
    int threads;
    bool changed;
} inference;

static bool known(const inference *f, int v) { return f->registers[v].is_tile; }

static void set(inference *f, int v, const layout *l, const char *why) {
    level2_register *r = &f->registers[v];
    if (r->is_tile || r->is_view || !f->op->variables[v].shape.rank) return;
    r->is_tile = true;
    r->layout = layout_canonical(l);
    r->why = why;
    f->layouts[v] = &r->layout;
    f->changed = true;
}

bool explicit_narrowed(const layout *l, const tile_shape *shape, layout *out) {
    if (shape->rank > l->shape.rank) return false;
    layout r = *l;
    for (int d = 0; d < l->shape.rank; d++) {
        const int own = d - (l->shape.rank - shape->rank);
        if (own >= 0 && shape->extent[own] == l->shape.extent[d]) continue;
        if (own >= 0 && shape->extent[own] != 1) return false;
        r = layout_reduce(&r, d);
    }
    return shape->rank == l->shape.rank ? (*out = r, true) : layout_reshape(out, &r, shape);
}

static bool same_shape(const tile_shape *a, const tile_shape *b) {
    return a->rank == b->rank && !memcmp(a->extent, b->extent, (size_t)a->rank * sizeof a->extent[0]);
}

bool explicit_layout_of(const layout *const *layouts, const tile_node *n, layout *out) {
    layout a;
    switch (n->kind) {
    case TILE_VAR:
        if (!layouts[n->index]) return false;
        *out = *layouts[n->index];
        return true;
    case TILE_CAST:
        return explicit_layout_of(layouts, n->a, out);
    case TILE_ELEMENTWISE:
    case TILE_SELECT: {
        const tile_node *const operands[] = {n->a, n->b, n->c};
        for (int i = 0; i < 3; i++)
            if (operands[i] && same_shape(&operands[i]->shape, &n->shape) &&
                explicit_layout_of(layouts, operands[i], out))
                return true;
        return false;
    }
    case TILE_REDUCE:
        if (!explicit_layout_of(layouts, n->a, &a)) return false;
        *out = layout_reduce(&a, n->index);
        return true;
    default:
        return false;
    }
}

static bool layout_of(const inference *f, const tile_node *n, layout *out) {
    return explicit_layout_of(f->layouts, n, out);
}

/* Tells an expression that is computed in layout l, or NULL: in whatever its tiles say. */
static void tell(inference *f, const tile_node *n, const layout *l) {
    layout own, part;
    if (!n || !n->shape.rank) return;
    if (!l && layout_of(f, n, &own)) l = &own;
    switch (n->kind) {
    case TILE_VAR:
        if (l) set(f, n->index, l, "of what it meets");
        return;
    case TILE_CAST:
        tell(f, n->a, l);
        return;
    case TILE_BROADCAST:
    case TILE_ELEMENTWISE:
    case TILE_SELECT: {
        const tile_node *const operands[] = {n->a, n->b, n->c};
        for (int i = 0; i < 3; i++)
            if (operands[i]) tell(f, operands[i], l && explicit_narrowed(l, &operands[i]->shape, &part) ? &part : NULL);
        return;
    }
    case TILE_REDUCE:
        tell(f, n->a, NULL);
        return;
    default:
        return;
    }
}

/* ---- products ---- */

static layout factor(bool threads, int64_t rows, int64_t columns) {
    const tile_shape s = {2, {rows, columns}};
    return threads ? layout_spatial(&s, false) : layout_local(&s, false);
}

/* The accumulator's tiles of 16 x 8 over the warps: as many warps as possible below each other, so that a row is as few
 * warps' as can be. */
static bool accumulator(int64_t m, int64_t n, int64_t warps, layout *out) {
    int64_t below = warps;
    while (below > 1 && (m / 16 % below || warps % below)) below--;
    const int64_t beside = warps / below;
    if (n / 8 % beside) return false;
    const layout factors[] = {factor(false, m / 16 / below, n / 8 / beside), factor(true, below, beside),
                              layout_hardware(LAYOUT_MMA_C)};
    return layout_product(out, factors, 3);
}

bool explicit_left_operand(const layout *acc, int64_t k, bool wgmma, layout *out) {
    layout q;
    const layout c = layout_hardware(LAYOUT_MMA_C), a = layout_hardware(LAYOUT_MMA_A), along = factor(false, 1, k / 16);
    if (wgmma) {
        const layout factors[] = {factor(true, 2, 1), along, layout_hardware(LAYOUT_WGMMA_A)};
        return layout_product(out, factors, 3);
    }
    if (!layout_divide(&q, acc, &c)) return false;
    q = layout_reduce(&q, 1);
    return layout_compose(&q, &along, &q) && layout_compose(out, &q, &a);
}

/* One warpgroup below the other or, of 64 rows, beside it. */
static void fix_wgmma(inference *f, const tile_statement *s, int v, const tile_shape *shape) {
    const bool below = shape->extent[0] == 128;
    const layout factors[] = {factor(true, below ? 2 : 1, below ? 1 : 2),
                              layout_wgmma_accumulator(shape->extent[1] / (below ? 1 : 2))};
    layout l;
    const tile_node *a = s->value->a;
    if (a->kind == TILE_VAR && !f->registers[a->index].is_view &&
        explicit_left_operand(NULL, a->shape.extent[1], true, &l))
        set(f, a->index, &l, "a left operand of wgmma");
    if (!layout_product(&l, factors, 2)) return;
    set(f, v, &l, "an accumulator of wgmma");
    if (!layout_equal(&f->registers[v].layout, &l))
        REPORT(f->c, ((ast_place){s->line, s->column}),
               "%s cannot be an accumulator of wgmma: it has another layout already (%s)", f->op->variables[v].name,
               f->registers[v].why);
}

static void fix_products(inference *f, const tile_statement *s) {
    for (; s; s = s->next) {
        fix_products(f, s->body);
        fix_products(f, s->otherwise);
        if (s->kind != TILE_ACTION || (s->action->kind != LEVEL2_MMA && s->action->kind != LEVEL2_WGMMA)) continue;
        const int v = s->action->variable;
        const tile_shape *shape = &f->op->variables[v].shape;
        if (s->action->kind == LEVEL2_WGMMA) {
            fix_wgmma(f, s, v, shape);
            continue;
        }
        const layout c = layout_hardware(LAYOUT_MMA_C);
        layout l, q;
        if (!known(f, v)) {
            if (!accumulator(shape->extent[0], shape->extent[1], f->threads / 32, &l)) {
                REPORT(f->c, ((ast_place){s->line, s->column}),
                       "the products of 16 x 8 that make [%" PRId64 ", %" PRId64 "] cannot be divided among %d warps "
                       "evenly; give %s a layout, or another shape",
                       shape->extent[0], shape->extent[1], f->threads / 32, f->op->variables[v].name);
                continue;
            }
            set(f, v, &l, "an accumulator of mma.m16n8k16");
        }
        if (!layout_divide(&q, &f->registers[v].layout, &c) || layout_threads(&q) * 32 != f->threads) {
            REPORT(f->c, ((ast_place){s->line, s->column}),
                   "%s cannot be an accumulator of mma: its layout must end in local(2, 1).spatial(8, 4).local(1, 2), "
                   "which is what mma.m16n8k16 leaves in a warp",
                   f->op->variables[v].name);
            continue;
        }
        const tile_node *a = s->value->a;
        if (a->kind == TILE_VAR && !f->registers[a->index].is_view &&
            explicit_left_operand(&f->registers[v].layout, a->shape.extent[1], false, &l))
            set(f, a->index, &l, "a left operand of mma.m16n8k16");
    }
}

/* ---- the rest ---- */

static void propagate(inference *f, const tile_statement *s) {
    for (; s; s = s->next) {
        layout l;
        if (s->kind == TILE_ASSIGN && s->value->shape.rank) {
            if (!known(f, s->index) && layout_of(f, s->value, &l) &&
                same_shape(&l.shape, &f->op->variables[s->index].shape))
                set(f, s->index, &l, "of what it is computed from");
            tell(f, s->value, known(f, s->index) ? &f->registers[s->index].layout : NULL);
        } else if (s->kind == TILE_STORE ||
                   (s->kind == TILE_ACTION && (s->action->kind == LEVEL2_PUT || s->action->kind == LEVEL2_ATOMIC ||
                                               s->action->kind == LEVEL2_POST)))
            tell(f, s->value, NULL);
        propagate(f, s->body);
        propagate(f, s->otherwise);
    }
}

static int64_t power_in(int64_t n, int64_t most) { /* the largest power of two in n, up to most */
    int64_t p = 1;
    while (p < most && n % (2 * p) == 0) p *= 2;
    return p;
}

layout explicit_spread(const tile_shape *shape, int threads) {
    const int64_t columns = shape->rank ? shape->extent[shape->rank - 1] : 1, rows = tile_shape_count(shape) / columns,
                  vector = power_in(columns, 4), beside = power_in(columns / vector, threads),
                  below = power_in(rows, threads / beside);
    const layout factors[] = {factor(false, rows / below, columns / beside / vector), factor(true, below, beside),
                              layout_replicated(2, threads / below / beside), factor(false, 1, vector)};
    layout l, out;
    if (!layout_product(&l, factors, 4) || !layout_reshape(&out, &l, shape)) {
        /* every thread has all of it */
        const layout all[] = {layout_local(shape, false), layout_replicated(shape->rank, threads)};
        layout_product(&out, all, 2);
    }
    return out;
}

/* A tile in registers is no more than a thread could hold. */
static void check_room(inference *f, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_ASSIGN && s->declares && known(f, s->index) &&
            layout_locals(&f->registers[s->index].layout) > LEVEL2_LOCALS)
            REPORT(f->c, ((ast_place){s->line, s->column}),
                   "%s has %" PRId64 " elements a thread; a tile in registers has at most %d",
                   f->op->variables[s->index].name, layout_locals(&f->registers[s->index].layout), LEVEL2_LOCALS);
        check_room(f, s->body);
        check_room(f, s->otherwise);
    }
}

void explicit_layouts(check *c) {
    inference f = {.c = c, .op = c->op, .threads = 32 * LEVEL2_WARPS};
    f.registers = f.op->level2->registers = ARENA_ARRAY(c->memory, (size_t)f.op->variable_count + 1, level2_register);
    f.layouts = ARENA_ARRAY(c->memory, (size_t)f.op->variable_count + 1, const layout *);
    for (size_t i = 0; i < c->view_count; i++) {
        f.registers[c->views[i].variable].is_view = true;
        f.registers[c->views[i].variable].shared = c->views[i].shared;
    }
    for (size_t i = 0; i < c->given_count; i++) {
        set(&f, c->givens[i].variable, &c->givens[i].layout, "given");
        f.registers[c->givens[i].variable].given = true;
    }
    fix_products(&f, f.op->body);
    int rounds = 0;
    do {
        f.changed = false;
        propagate(&f, f.op->body);
        /* Then one more that nothing says anything about; after many rounds all of them. */
        const bool all = ++rounds > MOST_ROUNDS;
        for (int v = 0; v < f.op->variable_count && (all || !f.changed); v++) {
            const layout l = explicit_spread(&f.op->variables[v].shape, f.threads);
            set(&f, v, &l, "spread in rows");
        }
    } while (f.changed && rounds <= MOST_ROUNDS);
    check_room(&f, f.op->body);
}
