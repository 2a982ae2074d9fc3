/* An op of level 2 as a lowered op (role.h): its text says most of that already. What is left to do:
 *
 *   - reductions within expressions become statements of their own,
 *   - a statement over tiles gets the layout that its elements are walked in: that of the tile it writes or, of a
 * store, that of what it reads,
 *   - where it meets a tile in another layout, or reads one at other elements than its own, the tile goes through
 * shared memory: a buffer is written in the tile's layout, all consumers meet, and the statement reads the buffer.
 *
 * Resident tensors lie one after the other in the op's shared memory, then these buffers. */
#include "tile/explicit.h"
#include "tile/role_internal.h"

typedef struct explicit_lowering {
    role_lowering *l;
    role_op *r;
    const tile_level2 *x;
    const layout **layouts; /* by variable: of tiles in registers */
    size_t layout_capacity;
    role_statement **last; /* where the next statement goes */
    int64_t place;         /* in the op's shared memory, for the next buffer of the statement at hand */
    int64_t resident;      /* where buffers begin: those of one statement take the place of another's */
    int line;
} explicit_lowering;

static role_statement *append(explicit_lowering *f, role_kind kind) {
    role_statement *s = *f->last = role_new_statement(f->l, kind, f->line);
    f->last = &s->next;
    return s;
}

static const layout *keep(explicit_lowering *f, const layout *l) {
    layout *out = ARENA_NEW(f->l->memory, layout);
    *out = *l;
    return out;
}

/* A variable of the lowering's own. */
static int new_variable(explicit_lowering *f, const char *base, const tile_format *type, const tile_shape *shape,
                        const layout *l) {
    const int v = role_new_variable(f->l, base, type, shape);
    const layout **grown = ARENA_ARRAY(f->l->memory, (size_t)v + 1, const layout *);
    memcpy(grown, f->layouts, (size_t)v * sizeof *grown);
    f->layouts = grown;
    f->layouts[v] = l;
    f->r->variables[v].place = l ? ROLE_REGISTER : ROLE_BUFFER;
    f->r->variables[v].layout = l;
    return v;
}

/* Bytes of the op's shared memory for a variable. */
static void place_buffer(explicit_lowering *f, int v) {
    role_variable *b = &f->r->variables[v];
    const tile_variable *t = &f->r->op.variables[v];
    const int64_t columns = t->shape.rank ? t->shape.extent[t->shape.rank - 1] : 1,
                  element = max_i64(t->type->scalar.bits, 8) / 8,
                  pad = columns > 1 ? 16 / min_i64(element, 16) : 0; /* rows do not begin in one bank */
    b->stride = columns + pad;
    b->bytes = tile_shape_count(&t->shape) / columns * b->stride * element;
    b->offset = f->place;
    b->first = b->last = 1;
    f->place += (int64_t)align_up((uint64_t)b->bytes, 128);
    f->r->shared_bytes = max_i64(f->r->shared_bytes, f->place);
}

/* The walk over the elements of a tile of that shape, in layout l: vectors of neighbours are split off. */
static role_spread spread_of(explicit_lowering *f, const layout *l, const tile_shape *shape) {
    layout c = layout_canonical(l);
    const int last = shape->rank - 1;
    int64_t vector = 1;
    if (last >= 0)
        while (vector < 4 && layout_vector(&c, last) % (2 * vector) == 0) vector *= 2;
    if (vector > 1 && c.local[0].extent > vector && c.local_modes < LAYOUT_MODES) {
        memmove(c.local + 1, c.local, (size_t)c.local_modes++ * sizeof *c.local);
        c.local[0].extent = vector;
        c.local[1].extent /= vector;
        c.local[1].step *= vector;
    } else if (vector > 1 && c.local[0].extent > vector)
        vector = 1;
    const int64_t columns = shape->rank ? shape->extent[last] : 1;
    return (role_spread){.rows = tile_shape_count(shape) / columns,
                         .columns = columns,
                         .vector = (int)vector,
                         .lanes = 1,
                         .registers = keep(f, &c)};
}

/* ---- expressions ---- */

static void write_each(explicit_lowering *f, int v, const tile_node *value, const layout *l) {
    role_statement *s = append(f, ROLE_EACH);
    s->to = v;
    s->value = value;
    s->declares = true;
    s->spread = spread_of(f, l, &f->r->op.variables[v].shape);
}

/* The tile through shared memory: what reads the result can do so at any element. */
static tile_node *spill(explicit_lowering *f, int v) {
    const tile_variable t = f->r->op.variables[v];
    const layout *l = f->layouts[v];
    const int b = new_variable(f, t.name, t.type, &t.shape, NULL);
    f->r->variables[b].why = arena_printf(f->l->memory, "%s is met in another layout here: it changes threads", t.name);
    place_buffer(f, b);
    append(f, ROLE_SYNC); /* the buffer may still be read from the last time around */
    write_each(f, b, role_variable_node(f->l, v), l);
    append(f, ROLE_SYNC);
    return role_variable_node(f->l, b);
}

typedef struct walk {
    explicit_lowering *f;
    const layout *at; /* the layout that the expression is computed in; NULL: elements move, or it is a scalar */
} walk;

static const tile_node *fit(walk w, const tile_node *n);

static tile_access *fit_access(explicit_lowering *f, const tile_access *access) {
    if (!access) return NULL;
    tile_access *copy = ARENA_NEW(f->l->memory, tile_access);
    *copy = *access;
    for (int d = 0; d < access->rank; d++) {
        const walk w = {f, NULL};
        if (copy->item[d].start) copy->item[d].start = (tile_node *)fit(w, copy->item[d].start);
        if (copy->item[d].limit) copy->item[d].limit = (tile_node *)fit(w, copy->item[d].limit);
    }
    return copy;
}

static const layout *layout_or_spread(explicit_lowering *f, const tile_node *n) {
    layout l;
    if (!explicit_layout_of(f->layouts, n, &l)) l = explicit_spread(&n->shape, 32 * f->x->warps);
    return keep(f, &l);
}

/* Whether all threads that share a row along the dimension are of one warp. */
static bool in_one_warp(const layout *l, int dimension) {
    int64_t place = 1;
    for (int i = 0; i < l->thread_modes; place *= l->thread[i++].extent)
        if (l->thread[i].dimension == dimension && place * l->thread[i].extent > 32) return false;
    return true;
}

/* A layout in which they are: up to 32 lanes along it, everything else over the rest of the threads. */
static bool along_lanes(explicit_lowering *f, const tile_shape *shape, int dimension, layout *out) {
    tile_shape rest = *shape, lanes = {.rank = shape->rank}, locals = lanes;
    int64_t p = 1;
    while (p < 32 && shape->extent[dimension] % (2 * p) == 0) p *= 2;
    for (int d = 0; d < shape->rank; d++) lanes.extent[d] = locals.extent[d] = 1;
    rest.extent[dimension] = 1;
    lanes.extent[dimension] = p;
    locals.extent[dimension] = shape->extent[dimension] / p;
    const layout factors[] = {layout_local(&locals, false), explicit_spread(&rest, (int)(32 * f->x->warps / p)),
                              layout_spatial(&lanes, false)};
    return layout_product(out, factors, 3);
}

/* max(...) along an axis as a statement; the result's variable. */
static int reduced(explicit_lowering *f, const tile_node *n) {
    const layout *l = layout_or_spread(f, n->a);
    layout other;
    if (!in_one_warp(l, n->index) && along_lanes(f, &n->a->shape, n->index, &other)) l = keep(f, &other);
    const tile_node *of = fit((walk){f, l}, n->a);
    const layout result = layout_reduce(l, n->index);
    const int v = new_variable(f, tile_operator_text(n->op), n->type, &n->shape, keep(f, &result));
    if (n->op == TILE_ARGMAX) role_unsupported(f->l, n->line, "argmax of a tile in registers");
    role_statement *s = append(f, ROLE_REDUCE);
    s->to = v;
    s->op = n->op;
    s->axis = n->index;
    s->value = of;
    s->shape = n->shape;
    s->spread = spread_of(f, l, &n->a->shape);
    return v;
}

/* The expression with reductions as variables, and tiles that do not lie where they are read in buffers. */
static const tile_node *fit(walk w, const tile_node *n) {
    explicit_lowering *f = w.f;
    layout part;
    int64_t place[LAYOUT_MODES];
    if (!n) return NULL;
    if (n->kind == TILE_REDUCE) {
        const tile_node *v = role_variable_node(f->l, reduced(f, n));
        return fit(w, v);
    }
    if (n->kind == TILE_VAR) {
        const layout *own = f->layouts[n->index];
        if (!own) return n;
        if (w.at && layout_locals(w.at) <= LEVEL2_LOCALS && layout_follows(w.at, own, place)) return n;
        return spill(f, n->index);
    }
    const bool keeps =
        n->kind == TILE_ELEMENTWISE || n->kind == TILE_SELECT || n->kind == TILE_CAST || n->kind == TILE_BROADCAST;
    const tile_node *const operands[] = {n->a, n->b, n->c};
    const tile_node *fitted[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        if (!operands[i]) continue;
        const bool known =
            keeps && w.at && operands[i]->shape.rank && explicit_narrowed(w.at, &operands[i]->shape, &part);
        fitted[i] = fit((walk){f, known ? keep(f, &part) : NULL}, operands[i]);
    }
    tile_node *out = ARENA_NEW(f->l->memory, tile_node);
    *out = *n;
    out->a = (tile_node *)fitted[0];
    out->b = (tile_node *)fitted[1];
    out->c = (tile_node *)fitted[2];
    if (n->access) out->access = fit_access(f, n->access);
    if (n->count) out->list = ARENA_ARRAY(f->l->memory, (size_t)n->count, tile_node *);
    for (int i = 0; i < n->count; i++) out->list[i] = (tile_node *)fit((walk){f, NULL}, n->list[i]);
    return out;
}

/* ---- statements ---- */

static role_statement *lower_block(explicit_lowering *f, const tile_statement *s);

static void lower_assign(explicit_lowering *f, const tile_statement *s) {
    const tile_shape *shape = &f->r->op.variables[s->index].shape;
    if (!shape->rank) {
        const tile_node *value = fit((walk){f, NULL}, s->value);
        role_statement *to = append(f, ROLE_ASSIGN);
        to->to = s->index;
        to->value = value;
        to->declares = s->declares;
        return;
    }
    const layout *l = f->layouts[s->index];
    const tile_node *value = fit((walk){f, l}, s->value);
    write_each(f, s->index, value, l);
}

static void lower_store(explicit_lowering *f, const tile_statement *s) {
    layout l;
    if (!explicit_layout_of(f->layouts, s->value, &l) || !role_same_shape(&l.shape, &s->shape))
        l = explicit_spread(&s->shape, 32 * f->x->warps);
    const layout *at = keep(f, &l);
    const tile_node *value = fit((walk){f, at}, s->value);
    tile_access *access = fit_access(f, s->access);
    role_statement *to = append(f, ROLE_STORE);
    to->value = value;
    to->access = access;
    to->shape = s->shape;
    to->adds = s->adds;
    to->spread = spread_of(f, at, &s->shape);
    tile_shape plain;
    if (role_scattered(to, &plain)) role_unsupported(f->l, s->line, "level 2's stores to rows that data chooses");
}

/* The left operand in registers, as the accumulator wants it. */
static const tile_node *left_of(explicit_lowering *f, const layout *acc, const tile_node *a, bool wgmma) {
    layout wanted;
    int64_t place[LAYOUT_MODES];
    if (a->kind != TILE_VAR || !f->layouts[a->index]) return a;
    if (!explicit_left_operand(acc, a->shape.extent[1], wgmma, &wanted)) return a;
    if (layout_equal(&wanted, f->layouts[a->index])) return a;
    const layout *l = keep(f, &wanted);
    const int v = new_variable(f, f->r->op.variables[a->index].name, a->type, &a->shape, l);
    f->r->variables[v].why = wgmma ? "a left operand of wgmma" : "a left operand of mma.m16n8k16";
    const tile_node *from =
        layout_follows(l, f->layouts[a->index], place) ? role_variable_node(f->l, a->index) : spill(f, a->index);
    write_each(f, v, from, l);
    return role_variable_node(f->l, v);
}

static void lower_action(explicit_lowering *f, const tile_statement *s) {
    const level2_action *a = s->action;
    const tile_node *value = s->value;
    role_spread spread = {0};
    if (a->kind == LEVEL2_TAKE) {
        spread = spread_of(f, f->layouts[a->variable], &s->shape);
        spread.everyone = true;
    } else if (a->kind == LEVEL2_PUT || a->kind == LEVEL2_ATOMIC || a->kind == LEVEL2_POST || a->kind == LEVEL2_STAMP) {
        layout l;
        const tile_shape *shape = a->kind == LEVEL2_PUT ? &f->x->shared[a->shared].shape : &s->shape;
        if (!explicit_layout_of(f->layouts, s->value, &l) || !role_same_shape(&l.shape, shape))
            l = explicit_spread(shape, 32 * f->x->warps);
        const layout *at = keep(f, &l);
        value = fit((walk){f, at}, value);
        spread = spread_of(f, at, shape);
    } else if (a->kind == LEVEL2_MMA || a->kind == LEVEL2_WGMMA) {
        tile_node *dot = ARENA_NEW(f->l->memory, tile_node);
        *dot = *value;
        dot->a = (tile_node *)left_of(f, f->layouts[a->variable], value->a, a->kind == LEVEL2_WGMMA);
        value = dot;
    }
    if (a->kind == LEVEL2_WGMMA) f->r->variables[a->variable].wgmma = true;
    tile_access *access = fit_access(f, s->access);
    role_statement *to = append(f, ROLE_ACTION);
    to->action = a;
    to->value = value;
    to->access = access;
    to->shape = s->shape;
    to->spread = spread;
}

static void lower_statement(explicit_lowering *f, const tile_statement *s) {
    f->line = s->line;
    f->place = f->resident;
    switch (s->kind) {
    case TILE_ASSIGN:
        lower_assign(f, s);
        break;
    case TILE_STORE:
        lower_store(f, s);
        break;
    case TILE_FOR: {
        const tile_node *begin = fit((walk){f, NULL}, s->begin), *end = fit((walk){f, NULL}, s->end);
        role_statement *loop = append(f, ROLE_FOR);
        loop->index = s->index;
        loop->begin = begin;
        loop->end = end;
        loop->body = lower_block(f, s->body);
        break;
    }
    case TILE_IF: {
        const tile_node *condition = fit((walk){f, NULL}, s->value);
        role_statement *branch = append(f, ROLE_IF);
        branch->value = condition;
        branch->body = lower_block(f, s->body);
        branch->otherwise = lower_block(f, s->otherwise);
        break;
    }
    case TILE_ACTION:
        lower_action(f, s);
        break;
    }
}

static role_statement *lower_block(explicit_lowering *f, const tile_statement *s) {
    role_statement *first = NULL, **const outer = f->last;
    f->last = &first;
    for (; s; s = s->next) lower_statement(f, s);
    f->last = outer;
    return first;
}

/* ---- the op ---- */

static void number(role_statement *s, int *n) {
    for (; s; s = s->next) {
        s->number = ++*n;
        number(s->body, n);
        number(s->otherwise, n);
    }
}

static bool is_live(const role_op *r, const tile_node *n, int with) {
    (void)r;
    (void)with;
    return n->kind == TILE_LIVE || n->kind == TILE_EXTENT;
}

static void note_live(role_op *r, const role_statement *s) {
    for (; s; s = s->next) {
        const tile_node *const facts[] = {s->value, s->begin, s->end, s->action ? s->action->index : NULL,
                                          s->action ? s->action->phase : NULL};
        for (size_t i = 0; i < COUNT_OF(facts); i++) r->loader_reads_live |= role_any(r, facts[i], is_live, 0);
        note_live(r, s->body);
        note_live(r, s->otherwise);
    }
}

/* What a scalar that is assigned once stands for. */
static void note_values(role_op *r, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_ASSIGN && s->declares && r->source->variables[s->index].assignments == 1 &&
            !s->value->shape.rank)
            r->variables[s->index].value = s->value;
        note_values(r, s->body);
        note_values(r, s->otherwise);
    }
}

void explicit_lower(role_lowering *l) {
    role_op *r = l->r;
    const tile_op *source = r->source;
    explicit_lowering f = {.l = l, .r = r, .x = source->level2};
    f.layouts = ARENA_ARRAY(l->memory, (size_t)source->variable_count + 1, const layout *);
    note_values(r, source->body);
    for (int v = 0; v < source->variable_count; v++) {
        const level2_register *x = &f.x->registers[v];
        role_variable *to = &r->variables[v];
        to->place = x->is_view ? ROLE_STAGE : x->is_tile ? ROLE_REGISTER : ROLE_SCALAR;
        to->shared = x->shared;
        to->why = x->why;
        if (x->is_tile) to->layout = f.layouts[v] = &x->layout;
    }
    r->shared_offset = ARENA_ARRAY(l->memory, LEVEL2_SHARED, int64_t);
    for (int i = 0; i < f.x->shared_count; i++) {
        const level2_shared *s = &f.x->shared[i];
        r->shared_offset[i] = s->pages ? r->borrowed : r->shared_bytes;
        if (s->pages)
            r->borrowed += (int)s->count;
        else
            r->shared_bytes += s->count * (int64_t)align_up((uint64_t)layout_shared_bytes(&s->layout), 1024);
    }
    f.resident = r->shared_bytes;
    role_statement *roles[LEVEL2_ROLES] = {NULL};
    for (int role = 0; role < LEVEL2_ROLES; role++) {
        f.last = &roles[role];
        for (const tile_statement *s = source->body; s; s = s->next)
            if (s->kind == TILE_ASSIGN) lower_statement(&f, s);
        for (const tile_statement *s = source->body; s; s = s->next)
            if (s->kind == TILE_ACTION && s->action->role == (level2_role_kind)role) *f.last = lower_block(&f, s->body);
    }
    r->loader = f.x->has[LEVEL2_LOADER] ? roles[LEVEL2_LOADER] : NULL;
    r->consumer = roles[LEVEL2_CONSUMER];
    r->storer = f.x->has[LEVEL2_STORER] ? roles[LEVEL2_STORER] : NULL;
    int n = 0;
    number(r->consumer, &n);
    number(r->loader, &n);
    number(r->storer, &n);
    note_live(r, r->loader);
    for (int a = 0; a < source->axis_total; a++) r->loader_reads_live |= role_any(r, source->axis_count[a], is_live, 0);
    r->loader_reads_live = r->loader_reads_live && r->loader;
    if (r->shared_bytes > LEVEL2_RESIDENT)
        role_unsupported(l, f.line, "so much shared memory: resident tensors, and buffers for what changes its layout");
}

int64_t explicit_barriers(const tile_level2 *x, int barrier) {
    int64_t before = 0;
    for (int i = 0; i < barrier; i++) before += x->barriers[i].count;
    return before;
}

bool explicit_in_pieces(const tile_access *access, const level2_shared *to) {
    const int last = access->rank - 1;
    const bool matrix = last == 1 || (last == 2 && access->item[1].kind == TILE_ITEM_POINT);
    for (int d = 0; d <= last; d++)
        if (access->item[d].limit || (d != 1 && access->item[d].kind != TILE_ITEM_RANGE)) return false;
    return matrix && access->item[last].kind == TILE_ITEM_RANGE && to->layout.swizzle == 3 &&
           to->type->scalar.bits == 16 && to->shape.extent[0] % 64 == 0 && to->shape.extent[1] % 64 == 0;
}

/* MAPPED for what is copied into stages as wgmma reads them: these come in pieces. */
static bool comes_in_pieces(const tile_op *op, const tile_statement *s, int tensor) {
    for (; s; s = s->next) {
        if (comes_in_pieces(op, s->body, tensor) || comes_in_pieces(op, s->otherwise, tensor)) return true;
        if (s->kind != TILE_ACTION || s->action->kind != LEVEL2_COPY) continue;
        const tile_param *p = &op->params[s->value->access->param];
        if (p->ordinal == tensor && p->kind <= TILE_INOUT &&
            explicit_in_pieces(s->value->access, &op->level2->shared[s->action->shared]))
            return true;
    }
    return false;
}
role_layout explicit_wish(const tile_op *op, int tensor) {
    return comes_in_pieces(op, op->body, tensor) ? ROLE_MAPPED : ROLE_ROWS;
}

int64_t role_borrowed_pages(const tile_op *op) {
    int64_t pages = 0;
    for (int i = 0; op->level2 && i < op->level2->shared_count; i++)
        if (op->level2->shared[i].pages) pages += op->level2->shared[i].count;
    return pages;
}
