/* Lowering: the steps in their order, and what they share: trees, facts about scalars, layouts of weights. */
#include "tile/role_internal.h"

#include <stdio.h>

/* ---- layouts ---- */

enum { SLICE = 32, BAND_GRAIN = SLICE * ROLE_WARPS }; /* a warp takes 32 columns at a time */

int64_t role_band_row(const tile_format *f, int64_t columns) {
    return (int64_t)(align_up((uint64_t)tile_format_bytes(f, columns), 16) | 16);
}

int64_t role_band(const tile_format *f, int64_t columns) {
    const int64_t grain = BAND_GRAIN % f->block == 0 ? BAND_GRAIN : f->block;
    int64_t most = ROLE_LONG_PAGE / 8 / tile_format_bytes(f, grain) * grain;
    while (most > 0 && 8 * role_band_row(f, most) > ROLE_LONG_PAGE) most -= grain;
    if (most <= 0) most = f->block;
    const int64_t bands = ceil_div(columns, most);
    return bands <= 1 ? columns : min_i64(most, (int64_t)align_up((uint64_t)ceil_div(columns, bands), (uint64_t)grain));
}

int64_t role_layout_bytes(role_layout layout, const tile_format *f, int64_t rows, int64_t columns) {
    const int64_t blocks = ceil_div(rows, 8);
    if (layout == ROLE_ROWS || layout == ROLE_MAPPED) return tile_format_bytes(f, rows * columns);
    if (layout == ROLE_ATOMS) return blocks * ceil_div(columns, 64) * 1024;
    const int64_t band = role_band(f, columns), whole = columns / band;
    return blocks * 8 * (whole * role_band_row(f, band) + (columns % band ? role_band_row(f, columns % band) : 0));
}

int64_t role_page_block(const role_op *r, const role_pages *p) {
    const tile_param *t = &r->op.params[p->param];
    const int64_t columns = min_i64(p->page_columns, p->row_columns);
    return r->layout[t->ordinal] == ROLE_ATOMS ? columns * 16 : 8 * role_band_row(t->type, columns);
}

int64_t role_page_blocks(const role_op *r, const role_pages *p, int64_t page_bytes) {
    return max_i64(1, min_i64(p->page_blocks, page_bytes / role_page_block(r, p)));
}

/* The longest page with one block, and with as many as there are to be. */
static void note_page_bytes(const role_op *r, const role_statement *s, int64_t *one, int64_t *many) {
    for (; s; s = s->next) {
        if (s->kind == ROLE_PAGES) {
            const int64_t block = role_page_block(r, &s->pages);
            *one = max_i64(*one, block);
            *many = max_i64(*many, block * s->pages.page_blocks);
        }
        note_page_bytes(r, s->body, one, many);
        note_page_bytes(r, s->otherwise, one, many);
    }
}

int64_t role_page_bytes(role_op *const *ops, size_t count, int64_t *least) {
    int64_t one = ROLE_PAGE, many = ROLE_PAGE;
    bool atoms = false;
    for (size_t i = 0; i < count; i++) {
        atoms |= ops[i]->wide || ops[i]->op.level2;
        note_page_bytes(ops[i], ops[i]->loader, &one, &many);
    }
    *least = atoms ? ROLE_LEAST_PAGES : ROLE_LEAST_PAGES * ROLE_PAGE / ROLE_LONG_PAGE;
    return (int64_t)(atoms ? align_up((uint64_t)one, ROLE_PAGE_GRAIN) : align_up((uint64_t)many, 128));
}

static bool has_dot(const tile_node *n) {
    if (!n) return false;
    if (n->kind == TILE_DOT || has_dot(n->a) || has_dot(n->b) || has_dot(n->c)) return true;
    for (int i = 0; i < n->count; i++)
        if (has_dot(n->list[i])) return true;
    return false;
}
static bool statements_have_dot(const tile_statement *s) {
    for (; s; s = s->next)
        if (has_dot(s->value) || statements_have_dot(s->body) || statements_have_dot(s->otherwise)) return true;
    return false;
}

static bool takes_pages(const role_statement *s, int param) {
    for (; s; s = s->next) {
        if ((s->kind == ROLE_PAGES && s->pages.param == param) || takes_pages(s->body, param) ||
            takes_pages(s->otherwise, param))
            return true;
        for (int i = 0; s->kind == ROLE_WIDE_PAGES && i < s->wide.count; i++)
            if (s->wide.product[i].param == param) return true;
    }
    return false;
}
/* Adds what wide products need. */
static void note_needs(const role_statement *s, role_wide_needs *out) {
    for (; s; s = s->next) {
        if (s->kind == ROLE_WIDE_PAGES) out->mapped[s->wide.left] = true;
        for (int i = 0; s->kind == ROLE_WIDE_PAGES && i < s->wide.count; i++)
            out->weight[s->wide.product[i].param] = true;
        if (s->kind == ROLE_WIDE_PAGES && s->wide.decoded.format)
            out->decoded += s->wide.decoded.rows * s->wide.steps * ROLE_WIDE_K *
                            tile_format_bytes(s->wide.decoded.format, s->wide.decoded.columns) /
                            s->wide.decoded.columns;
        if (s->kind == ROLE_WIDE_TILE_PAGES) out->mapped[s->slice.param] = true;
        note_needs(s->body, out);
        note_needs(s->otherwise, out);
    }
}

static mt_status lower_with(arena *a, role_op **out, const tile_op *source, const role_layout *layout, bool wishes,
                            const role_chip *chip, mt_error *error);

/* Lowers an op with the layouts that it may wish for. False: it cannot be; *r has what became of it, or is NULL. */
static bool lower_wishing(arena *memory, const tile_op *op, const role_chip *chip, role_layout layout[TILE_PARAMS],
                          role_op **r) {
    for (int i = 0; i < op->param_count; i++) { /* weights that share a loop are wished for together */
        const tile_param *p = &op->params[i];
        if (p->kind > TILE_INOUT) continue;
        layout[p->ordinal] = p->kind != TILE_IN || p->rank != 2                                 ? ROLE_ROWS
                             : tile_format_is_block(p->type)                                    ? ROLE_BANDS
                             : p->type->scalar.kind == TILE_FLOAT && p->type->scalar.bits == 16 ? ROLE_ATOMS
                                                                                                : ROLE_ROWS;
    }
    return lower_with(memory, r, op, layout, true, chip, NULL) == MT_OK;
}

role_layout role_wish(const tile_op *op, int tensor) {
    role_layout layout[TILE_PARAMS], wish = ROLE_ROWS;
    if (op->level2) return explicit_wish(op, tensor);
    if (!statements_have_dot(op->body)) return ROLE_ROWS;
    arena *memory = arena_new();
    role_op *r = NULL;
    const bool good = memory && lower_wishing(memory, op, &role_hopper, layout, &r);
    role_wide_needs needs = {0};
    if (good) note_needs(r->loader, &needs);
    for (int i = 0; good && i < op->param_count; i++) {
        if (op->params[i].kind > TILE_INOUT || op->params[i].ordinal != tensor) continue;
        if (needs.mapped[i])
            wish = ROLE_MAPPED;
        else if (takes_pages(r->loader, i))
            wish = layout[tensor];
    }
    arena_free(memory);
    return wish;
}

bool role_fits(const tile_op *op, const role_chip *chip) {
    role_layout layout[TILE_PARAMS];
    arena *memory = arena_new();
    role_op *r;
    const bool fits = memory && lower_wishing(memory, op, chip, layout, &r);
    arena_free(memory);
    return fits;
}

bool role_has_wide(const tile_op *op, role_wide_needs *out) {
    role_layout layout[TILE_PARAMS];
    *out = (role_wide_needs){0};
    if (!statements_have_dot(op->body)) return false;
    arena *memory = arena_new();
    role_op *r = NULL;
    const bool wide = memory && lower_wishing(memory, op, &role_hopper, layout, &r) && r->wide;
    if (wide) note_needs(r->loader, out);
    arena_free(memory);
    return wide;
}

const char *role_why_not_wide(arena *a, const tile_op *op) {
    role_layout layout[TILE_PARAMS];
    if (op->level2 || !statements_have_dot(op->body)) return NULL;
    role_op *r = NULL;
    return (lower_wishing(a, op, &role_hopper, layout, &r) && r->wide) || !r ? NULL : r->not_wide;
}

/* ---- trees ---- */

enum { OPERANDS = 3 };

int role_operand_count(const tile_node *n) { return OPERANDS + n->count + (n->access ? 2 * n->access->rank : 0); }

const tile_node *role_operand(const tile_node *n, int i) {
    if (i < OPERANDS) return i == 0 ? n->a : i == 1 ? n->b : n->c;
    i -= OPERANDS;
    if (i < n->count) return n->list[i];
    i -= n->count;
    const tile_item *item = &n->access->item[i / 2];
    return i % 2 ? item->limit : item->start;
}

bool role_any(const role_op *r, const tile_node *n, role_test *test, int with) {
    if (!n) return false;
    if (test(r, n, with)) return true;
    for (int i = 0; i < role_operand_count(n); i++)
        if (role_any(r, role_operand(n, i), test, with)) return true;
    return n->kind == TILE_VAR && r->variables[n->index].place == ROLE_FUSED &&
           role_any(r, r->variables[n->index].value, test, with);
}

static bool is_variable(const role_op *r, const tile_node *n, int with) {
    return (void)r, n->kind == TILE_VAR && n->index == with;
}
static bool is_loop(const role_op *r, const tile_node *n, int with) {
    return (void)r, n->kind == TILE_LOOP && n->index == with;
}
static bool is_late(const role_op *r, const tile_node *n, int with) {
    (void)with;
    if (n->kind == TILE_VAR)
        return n->shape.rank || !r->variables[n->index].value || !role_is_early(r, r->variables[n->index].value);
    return n->shape.rank || n->kind == TILE_LOAD || n->kind == TILE_REDUCE || n->kind == TILE_DOT ||
           n->kind == TILE_PART || n->kind == TILE_RESHAPE;
}
static bool is_live(const role_op *r, const tile_node *n, int with) {
    (void)with;
    if (n->kind == TILE_VAR && !n->shape.rank)
        return r->variables[n->index].value && role_any(r, r->variables[n->index].value, is_live, 0);
    return n->kind == TILE_LIVE || n->kind == TILE_EXTENT;
}

bool role_reads(const role_op *r, const tile_node *n, int variable) { return role_any(r, n, is_variable, variable); }
bool role_has_loop(const role_op *r, const tile_node *n, int loop) { return role_any(r, n, is_loop, loop); }
bool role_is_early(const role_op *r, const tile_node *n) { return !role_any(r, n, is_late, 0); }

bool role_same_shape(const tile_shape *a, const tile_shape *b) {
    return a->rank == b->rank && !memcmp(a->extent, b->extent, (size_t)a->rank * sizeof a->extent[0]);
}

static bool moves(const role_op *r, const tile_node *n, int variable, bool moved) {
    if (!n) return false;
    if (n->kind == TILE_VAR) {
        if (n->index == variable) return moved;
        return r->variables[n->index].place == ROLE_FUSED && moves(r, r->variables[n->index].value, variable, moved);
    }
    moved |= n->kind != TILE_ELEMENTWISE && n->kind != TILE_SELECT && n->kind != TILE_CAST;
    for (int i = 0; i < role_operand_count(n); i++) {
        const tile_node *o = role_operand(n, i);
        if (o && moves(r, o, variable, moved || i >= OPERANDS || !role_same_shape(&o->shape, &n->shape))) return true;
    }
    return false;
}
bool role_moves(const role_op *r, const tile_node *n, int variable) {
    return moves(r, n, variable, !role_same_shape(&n->shape, &r->op.variables[variable].shape));
}

tile_access *role_rewrite_access(role_lowering *l, const tile_access *access, role_replace *replace, void *context) {
    if (!access) return NULL;
    tile_access *copy = NULL;
    for (int d = 0; d < access->rank; d++) {
        const tile_item *item = &access->item[d];
        const tile_node *start = role_rewrite(l, item->start, replace, context),
                        *limit = role_rewrite(l, item->limit, replace, context);
        if (start == item->start && limit == item->limit) continue;
        if (!copy) {
            copy = ARENA_NEW(l->memory, tile_access);
            *copy = *access;
        }
        copy->item[d].start = (tile_node *)start;
        copy->item[d].limit = (tile_node *)limit;
    }
    return copy ? copy : (tile_access *)access;
}

const tile_node *role_rewrite(role_lowering *l, const tile_node *n, role_replace *replace, void *context) {
    if (!n) return NULL;
    tile_node changed = *n;
    bool same = true;
    changed.a = (tile_node *)role_rewrite(l, n->a, replace, context);
    changed.b = (tile_node *)role_rewrite(l, n->b, replace, context);
    changed.c = (tile_node *)role_rewrite(l, n->c, replace, context);
    changed.access = role_rewrite_access(l, n->access, replace, context);
    same = changed.a == n->a && changed.b == n->b && changed.c == n->c && changed.access == n->access;
    for (int i = 0; i < n->count; i++) {
        tile_node *o = (tile_node *)role_rewrite(l, n->list[i], replace, context);
        if (o == changed.list[i]) continue;
        if (changed.list == n->list) {
            changed.list = ARENA_ARRAY(l->memory, (size_t)n->count, tile_node *);
            memcpy(changed.list, n->list, (size_t)n->count * sizeof *n->list);
        }
        changed.list[i] = o;
        same = false;
    }
    const tile_node *out = n;
    if (!same) {
        tile_node *copy = ARENA_NEW(l->memory, tile_node);
        *copy = changed;
        out = copy;
    }
    const tile_node *other = replace(l, out, context);
    return other ? other : out;
}

const tile_node *role_resolved(const role_op *r, const tile_node *n) {
    while (n->kind == TILE_VAR && r->variables[n->index].value &&
           role_same_shape(&r->variables[n->index].value->shape, &n->shape) &&
           r->variables[n->index].place <= ROLE_FUSED)
        n = r->variables[n->index].value;
    return n;
}

/* ---- scalars ---- */

bool role_range(const role_op *r, const tile_node *n, int64_t *low, int64_t *high) {
    const int64_t limit = (int64_t)1 << 60;
    int64_t a[2], b[2];
    if (!n || n->shape.rank || n->type->scalar.kind == TILE_FLOAT) return false;
    switch (n->kind) {
    case TILE_CONST:
        *low = *high = n->value.i;
        break;
    case TILE_GRID:
        *low = 0;
        if (!role_range(r, r->op.axis_count[n->index], &a[0], high) || *high > INT32_MAX)
            *high = INT32_MAX;
        else
            --*high;
        break;
    case TILE_LOOP:
        if (!role_range(r, r->loops[n->index]->begin, low, &a[1]) ||
            !role_range(r, r->loops[n->index]->end, &b[0], high))
            return false;
        *high = max_i64(*low, *high - 1);
        break;
    case TILE_EXTENT:
        *low = 0, *high = INT32_MAX;
        break;
    case TILE_LIVE:
    case TILE_ARG:
        *low = INT32_MIN, *high = INT32_MAX;
        break;
    case TILE_VAR:
        return r->variables[n->index].value && role_range(r, r->variables[n->index].value, low, high);
    case TILE_CAST:
        if (n->type->scalar.kind != TILE_INT || n->type->scalar.bits < 32 || !role_range(r, n->a, low, high))
            return false;
        return n->type->scalar.bits == 64 || (*low >= INT32_MIN && *high <= INT32_MAX);
    case TILE_ELEMENTWISE:
        if (n->type->scalar.kind != TILE_INT || !n->b || !role_range(r, n->a, &a[0], &a[1]) ||
            !role_range(r, n->b, &b[0], &b[1]))
            return false;
        if (!tile_operate_range(n->op, a, b, low, high)) return false;
        break;
    default:
        return false;
    }
    if (n->type->scalar.bits == 32 && (*low < INT32_MIN || *high > INT32_MAX)) return false; /* it may wrap */
    return *low > -limit && *high < limit && *low <= *high;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t role_divisor(const role_op *r, const tile_node *n) {
    int64_t a, b, product;
    if (n->kind == TILE_CONST) return n->value.i == INT64_MIN ? 1 : n->value.i < 0 ? -n->value.i : n->value.i;
    if (n->kind == TILE_VAR) return r->variables[n->index].value ? role_divisor(r, r->variables[n->index].value) : 1;
    if (n->kind == TILE_CAST && n->type->scalar.bits == 64 && n->type->scalar.kind == TILE_INT)
        return role_divisor(r, n->a);
    if (n->kind != TILE_ELEMENTWISE || n->type->scalar.bits != 64 || n->type->scalar.kind != TILE_INT || !n->b)
        return 1;
    a = role_divisor(r, n->a);
    b = role_divisor(r, n->b);
    switch (n->op) {
    case TILE_ADD:
    case TILE_SUB:
    case TILE_MIN:
    case TILE_MAX:
        return common_divisor(a, b);
    case TILE_MUL:
        return __builtin_mul_overflow(a, b, &product) || product > (int64_t)1 << 40 ? max_i64(a, b) : product;
    default:
        return 1;
    }
}

/* ---- variables and statements ---- */

void role_unsupported(role_lowering *l, int line, const char *what) {
    if (l->status) return;
    char where[256];
    snprintf(where, sizeof where, "%.200s:%d", l->r->source->path, line);
    l->status =
        error_set(l->error, MT_E_UNSUPPORTED, where, "Op '%s': there is no GPU code for %s.", l->r->source->name, what);
}

int role_new_variable(role_lowering *l, const char *base, const tile_format *type, const tile_shape *shape) {
    tile_op *op = &l->r->op;
    size_t count = l->variable_count;
    tile_variable *t = ARENA_PUSH(l->memory, op->variables, count, l->name_capacity);
    count = l->variable_count;
    role_variable *v = ARENA_PUSH(l->memory, l->r->variables, count, l->place_capacity);
    *t = (tile_variable){
        .name = arena_printf(l->memory, "%s_%d", base, ++l->names), .type = type, .shape = *shape, .assignments = 1};
    *v = (role_variable){.place = ROLE_BUFFER, .parts = -1};
    l->variable_count = count;
    op->variable_count = (int)count;
    return (int)count - 1;
}

tile_node *role_variable_node(role_lowering *l, int variable) {
    tile_node *n = ARENA_NEW(l->memory, tile_node);
    const tile_variable *v = &l->r->op.variables[variable];
    *n = (tile_node){.kind = TILE_VAR, .type = v->type, .shape = v->shape, .index = variable};
    return n;
}

role_statement *role_new_statement(role_lowering *l, role_kind kind, int line) {
    role_statement *s = ARENA_NEW(l->memory, role_statement);
    *s = (role_statement){.kind = kind, .line = line, .to = -1, .from = -1};
    return s;
}

/* ---- counting ---- */

typedef struct counter {
    role_lowering *l;
    int number, depth;
    bool few;
} counter;

static bool has_few(const role_statement *s) {
    return s->kind == ROLE_REDUCE && s->reduce == ROLE_SERIAL &&
           tile_shape_count(&s->value->shape) < ROLE_THREADS * s->value->shape.extent[s->axis];
}

static void note_uses(const counter *c, const tile_node *n, int64_t largest) {
    if (!n) return;
    const int64_t size = max_i64(largest, tile_shape_count(&n->shape));
    if (n->kind == TILE_VAR) {
        role_facts *f = &c->l->facts[n->index];
        f->uses++;
        f->few |= c->few;
        f->deepest_use = (int)max_i64(f->deepest_use, c->depth);
        f->largest_use = max_i64(f->largest_use, size);
    }
    for (int i = 0; i < role_operand_count(n); i++)
        note_uses(c, role_operand(n, i), i < OPERANDS + n->count ? size : 1);
}

static void note_written(const counter *c, const role_statement *s, int variable) {
    role_facts *f = &c->l->facts[variable];
    f->assignments++;
    f->defined = f->last_assigned = s->number;
    f->depth = c->depth;
    f->reduced = true;
}

static void count_statements(counter *c, role_statement *s) {
    for (; s; s = s->next) {
        s->number = ++c->number;
        c->few = has_few(s);
        note_uses(c, s->value,
                  s->kind == ROLE_STORE ? tile_shape_count(&s->shape)
                  : s->to >= 0          ? tile_shape_count(&c->l->r->op.variables[s->to].shape)
                                        : 1);
        c->few = false;
        note_uses(c, s->left, 1);
        note_uses(c, s->begin, 1);
        note_uses(c, s->end, 1);
        for (int i = 0; s->access && i < s->access->rank; i++)
            note_uses(c, s->access->item[i].start, 1), note_uses(c, s->access->item[i].limit, 1);
        if (s->to >= 0) {
            role_facts *f = &c->l->facts[s->to];
            role_variable *v = &c->l->r->variables[s->to];
            if (!f->assignments++) {
                f->defined = s->number;
                f->depth = c->depth;
                f->deepest_use = (int)max_i64(f->deepest_use, c->depth);
                v->value = s->kind == ROLE_EACH || s->kind == ROLE_ASSIGN ? s->value : NULL;
            } else
                v->value = NULL;
            f->last_assigned = s->number;
            f->reduced |= s->kind == ROLE_REDUCE || s->kind == ROLE_DOT || s->kind == ROLE_SKINNY;
        }
        if (s->kind == ROLE_WIDE_TILE) c->l->facts[s->to].reduced = true;
        for (int i = 0; s->kind == ROLE_WIDE && i < s->wide.count; i++) note_written(c, s, s->wide.product[i].to);
        if (s->kind == ROLE_WIDE && s->wide.decoded.format) note_written(c, s, s->wide.decoded.tile);
        c->depth += s->kind == ROLE_FOR;
        count_statements(c, s->body);
        count_statements(c, s->otherwise);
        c->depth -= s->kind == ROLE_FOR;
    }
}

void role_count(role_lowering *l) {
    counter c = {.l = l};
    l->facts = ARENA_ARRAY(l->memory, l->variable_count + 1, role_facts);
    for (size_t i = 0; i < l->variable_count; i++) l->r->variables[i].value = NULL;
    count_statements(&c, l->r->consumer);
}

/* ---- the loader ---- */

/* The tree with scalars' values in place of their names: a loader has no ASSIGN. */
static tile_node *known_scalar(role_lowering *l, const tile_node *n, void *context) {
    if (n->kind != TILE_VAR || !l->r->variables[n->index].value) return NULL;
    return (tile_node *)role_rewrite(l, l->r->variables[n->index].value, known_scalar, context);
}

/* The statements of a list that make pages, for the loader. */
static role_statement *loader_of(role_lowering *l, const role_statement *s) {
    role_statement *first = NULL, **last = &first;
    for (; s; s = s->next) {
        role_statement *body = loader_of(l, s->body), *otherwise = loader_of(l, s->otherwise);
        if (s->kind != ROLE_SKINNY && s->kind != ROLE_WIDE && s->kind != ROLE_WIDE_TILE && !body && !otherwise)
            continue;
        role_statement *copy = ARENA_NEW(l->memory, role_statement);
        *copy = *s;
        copy->next = NULL;
        copy->body = body;
        copy->otherwise = otherwise;
        copy->to = copy->from = -1;
        copy->value = role_rewrite(l, s->value, known_scalar, NULL);
        copy->begin = role_rewrite(l, s->begin, known_scalar, NULL);
        copy->end = role_rewrite(l, s->end, known_scalar, NULL);
        const tile_node *const facts[] = {copy->value, copy->begin, copy->end};
        for (size_t i = 0; i < COUNT_OF(facts); i++) l->r->loader_reads_live |= role_any(l->r, facts[i], is_live, 0);
        if (s->kind == ROLE_SKINNY) {
            copy->kind = ROLE_PAGES;
            copy->pages.row = role_rewrite(l, s->pages.row, known_scalar, NULL);
            copy->pages.column = role_rewrite(l, s->pages.column, known_scalar, NULL);
            l->r->loader_reads_live |=
                role_any(l->r, copy->pages.row, is_live, 0) || role_any(l->r, copy->pages.column, is_live, 0);
            l->r->page_count++;
        }
        if (s->kind == ROLE_WIDE_TILE) {
            copy->kind = ROLE_WIDE_TILE_PAGES;
            copy->slice.access = role_rewrite_access(l, s->slice.access, known_scalar, NULL);
            copy->left = NULL;
            for (int d = 0; d < copy->slice.access->rank; d++)
                l->r->loader_reads_live |= role_any(l->r, copy->slice.access->item[d].start, is_live, 0);
            l->r->page_count++;
            l->r->wide = true;
        }
        if (s->kind == ROLE_WIDE) {
            copy->kind = ROLE_WIDE_PAGES;
            copy->wide.row = role_rewrite(l, s->wide.row, known_scalar, NULL);
            l->r->loader_reads_live |= role_any(l->r, copy->wide.row, is_live, 0);
            for (int i = 0; i < s->wide.count; i++) {
                const tile_node *row = role_rewrite(l, s->wide.product[i].row, known_scalar, NULL);
                copy->wide.product[i].row = row;
                l->r->loader_reads_live |= role_any(l->r, row, is_live, 0);
            }
            l->r->page_count++;
            l->r->wide = true;
        }
        *last = copy;
        last = &copy->next;
    }
    return first;
}

/* ---- the steps ---- */

static void note_source(role_op *r, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_FOR) r->loops[s->index] = s;
        if (s->access) r->stored[s->access->param] = true;
        note_source(r, s->body);
        note_source(r, s->otherwise);
    }
}

static void lower(void *context) {
    role_lowering *l = context;
    role_op *r = l->r;
    const tile_op *source = r->source;
    r->op = *source;
    r->op.variables = ARENA_ARRAY(l->memory, (size_t)source->variable_count + 1, tile_variable);
    if (source->variable_count)
        memcpy(r->op.variables, source->variables, (size_t)source->variable_count * sizeof *source->variables);
    r->variables = ARENA_ARRAY(l->memory, (size_t)source->variable_count + 1, role_variable);
    r->loops = ARENA_ARRAY(l->memory, (size_t)source->loop_count + 1, const tile_statement *);
    l->variable_count = (size_t)source->variable_count;
    l->name_capacity = l->place_capacity = (size_t)source->variable_count + 1;
    note_source(r, source->body);
    if (source->level2) {
        role_check_level2(l, source->body);
        if (!l->status) explicit_lower(l);
        return;
    }
    r->consumer = role_flatten(l, source->body);
    role_count(l);
    if (!l->no_wide) role_wide_loops(l, &r->consumer, true);
    if (!l->no_wide) role_wide_tiles(l, &r->consumer, true);
    role_stream_loops(l, &r->consumer, true);
    role_fold_constants(l, &r->consumer);
    role_count(l);
    role_reductions(l, r->consumer);
    role_choose_dots(l, &r->consumer, true);
    role_count(l);
    role_place_variables(l);
    if (l->tiles) role_place_fragments(l);
    role_stage(l, &r->consumer);
    role_count(l);
    if (l->tiles) role_find_whole(l, r->consumer);
    for (int a = 0; a < source->axis_total; a++) r->loader_reads_live |= role_any(r, source->axis_count[a], is_live, 0);
    r->loader = loader_of(l, r->consumer);
    r->loader_reads_live &= r->page_count > 0;
    role_spread_statements(l, r->consumer);
    if (!l->no_wide && !role_fragments_fit(l, r->consumer)) {
        l->status = MT_E_UNSUPPORTED;
        return;
    }
    if (r->missed) role_note_missed(l, r->consumer);
    role_share(l);
}

/* First with wide products; when what is done with their sums cannot be done in registers, once more without. For a
 * chip without wgmma the first turn only tells whether there would be any. */
static mt_status lower_with(arena *a, role_op **out, const tile_op *source, const role_layout *layout, bool wishes,
                            const role_chip *chip, mt_error *error) {
    role_lowering l = {0};
    bool missed = false;
    const char *not_wide = NULL;
    *out = NULL;
    for (int turn = 0; turn < 2; turn++) {
        const bool trial = turn == 0 && !chip->wgmma && !source->level2;
        l = (role_lowering){.memory = a,
                            .error = turn || source->level2 ? error : NULL,
                            .wishes = wishes,
                            .no_wide = turn,
                            .chip = trial ? role_hopper : *chip};
        if (!(l.r = ARENA_NEW(a, role_op))) return error_set(error, MT_E_MEMORY, source->name, "Out of memory.");
        l.r->source = source;
        l.r->missed = missed;
        for (int i = 0; i < TILE_PARAMS; i++) {
            l.r->mapped[i] = wishes || layout[i] == ROLE_MAPPED;
            l.r->layout[i] = layout[i] == ROLE_MAPPED ? ROLE_ROWS : layout[i];
        }
        if (!arena_protect(a, lower, &l))
            return error_set(error, MT_E_MEMORY, source->name, "Out of memory while lowering.");
        missed = trial && !l.status && l.r->wide;
        if (trial) l.r->not_wide = NULL;
        if (!l.r->not_wide) l.r->not_wide = not_wide; /* the first turn knew it */
        not_wide = l.r->not_wide;
        if (source->level2 || (!l.status && !trial)) break;
    }
    *out = l.r;
    const char *why = l.status && error && chip->wgmma ? role_why_not_wide(a, source) : NULL;
    const size_t length = why ? strlen(error->message) : 0;
    if (why) snprintf(error->message + length, sizeof error->message - length, " It is not wide: %s.", why);
    return l.status;
}

mt_status role_lower_for(arena *a, role_op **out, const tile_op *source, const role_layout *layout,
                         const role_chip *chip, mt_error *error) {
    return lower_with(a, out, source, layout, false, chip, error);
}
mt_status role_lower(arena *a, role_op **out, const tile_op *source, const role_layout *layout, mt_error *error) {
    return role_lower_for(a, out, source, layout, &role_hopper, error);
}
