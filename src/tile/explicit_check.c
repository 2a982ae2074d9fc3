/* The statements of level 2, checked. What a statement says by itself is judged where it stands; what depends on others
 * (is every stage in range, do bytes and arrivals add up, who may do what) when all is read: explicit_finish. */
#include "tile/check.h"
#include "tile/explicit.h"

#include <inttypes.h>

static tile_level2 *level2_of(check *c) {
    if (!c->op->level2) c->op->level2 = ARENA_NEW(c->memory, tile_level2);
    return c->op->level2;
}

static tile_statement *new_action(check *c, ast_place at, level2_kind kind) {
    tile_statement *s = ARENA_NEW(c->memory, tile_statement);
    s->kind = TILE_ACTION;
    s->line = at.line;
    s->column = at.column;
    s->action = ARENA_NEW(c->memory, level2_action);
    *s->action =
        (level2_action){.kind = kind, .role = (level2_role_kind)c->role, .variable = -1, .shared = -1, .barrier = -1};
    return s;
}

static int element_bytes(const tile_format *t) { return t->scalar.bits / 8; }

/* ---- declarations ---- */

static bool at_top(check *c, const ast_statement *s, const char *what) {
    if (c->depth == 1 && c->role < 0) return true;
    REPORT(c, s->place, "%s stands outside of roles, loops and conditions", what);
    return false;
}

static bool count_of(check *c, const ast_statement *s, int64_t most, int64_t *out) {
    *out = 1;
    return !s->level2->count || check_constant(c, s->level2->count, "the number of them", 1, most, out);
}

static void check_shared(check *c, const ast_statement *s) {
    tile_level2 *x = level2_of(c);
    const ast_level2 *a = s->level2;
    level2_shared n = {.name = arena_string(c->memory, s->name, strlen(s->name)),
                       .pages = a->is_pages,
                       .line = s->place.line,
                       .column = s->place.column};
    int64_t row = 0, width = 0;
    bool good = at_top(c, s, "a shared tensor");
    n.type = check_type(c, s->place, s->type);
    good = check_shape(c, s->place, s->shape, &n.shape) && count_of(c, s, LEVEL2_PAGE, &n.count) && n.type && good;
    if (good && (tile_format_is_block(n.type) || n.type->scalar.bits < 8)) {
        REPORT(c, s->place, "shared tensors have elements of 8 to 64 bits, not %s", n.type->name);
        good = false;
    }
    if (a->rows) good = check_constant(c, a->rows, "the length of a row", 1, TILE_ELEMENT_LIMIT, &row) && good;
    if (a->swizzle) good = check_constant(c, a->swizzle, "a swizzle", 32, 128, &width) && good;
    if (good && a->rows && a->swizzle) {
        REPORT(c, a->swizzle->place, "a swizzled tile has no gaps between rows; give rows or swizzle");
        good = false;
    }
    const int element = good ? element_bytes(n.type) : 1;
    if (good && row && (row < n.shape.extent[n.shape.rank - 1] || row * element % 16 || n.shape.rank < 2)) {
        REPORT(c, a->rows->place,
               "rows are at least as long as the last extent, a multiple of 16 bytes, and of a tile of 2 dimensions or "
               "more");
        good = false;
    }
    if (good && a->swizzle && width != 128 && width != 64 && width != 32) {
        REPORT(c, a->swizzle->place, "a swizzle is 128, 64 or 32 bytes wide, not %" PRId64, width);
        good = false;
    }
    if (good && !width) n.layout = layout_rows(&n.shape, element, row * element);
    if (good && width && !layout_swizzled(&n.layout, &n.shape, element, (int)width)) {
        REPORT(c, a->swizzle->place,
               "a swizzled tile has 2 dimensions, a multiple of 8 rows and rows of whole %" PRId64
               " bytes, not %s of %s",
               width, check_shape_text(c, &n.shape), n.type->name);
        good = false;
    }
    if (good && n.pages && layout_shared_bytes(&n.layout) > LEVEL2_PAGE) {
        REPORT(c, s->place, "a stage of a tensor in pages has up to %d bytes, this one has %" PRId64, LEVEL2_PAGE,
               layout_shared_bytes(&n.layout));
        good = false;
    }
    if (good && x->shared_count == LEVEL2_SHARED) {
        REPORT(c, s->place, "a program has at most %d shared tensors", LEVEL2_SHARED);
        good = false;
    }
    if (!check_declare(c, s->place, s->name, good ? SYMBOL_SHARED : SYMBOL_BROKEN, x->shared_count) || !good) return;
    x->shared[x->shared_count++] = n;
}

static int role_named(const char *name) {
    int r = 0;
    while (r < LEVEL2_ROLES && strcmp(explicit_roles[r], name)) r++;
    return r;
}

static void check_barrier(check *c, const ast_statement *s) {
    tile_level2 *x = level2_of(c);
    level2_barrier n = {
        .name = arena_string(c->memory, s->name, strlen(s->name)), .line = s->place.line, .column = s->place.column};
    bool good = at_top(c, s, "a barrier");
    good = count_of(c, s, LEVEL2_MBARRIERS, &n.count) && good;
    for (const ast_expr *e = s->level2->arguments; e; e = e->next) {
        const int r = e->kind == AST_NAME ? role_named(e->name) : LEVEL2_ROLES;
        if (r < LEVEL2_ROLES && !n.arrives[r]) {
            n.arrives[r] = true;
            continue;
        }
        REPORT(c, e->place, "expected the roles that arrive, each once: loader, consumer, storer");
        good = false;
    }
    int64_t all = n.count;
    for (int i = 0; i < x->barrier_count; i++) all += x->barriers[i].count;
    if (good && (x->barrier_count == LEVEL2_BARRIERS || all > LEVEL2_MBARRIERS)) {
        REPORT(c, s->place, "a program has at most %d barriers, those of arrays counted one by one", LEVEL2_MBARRIERS);
        good = false;
    }
    if (!check_declare(c, s->place, s->name, good ? SYMBOL_BARRIER : SYMBOL_BROKEN, x->barrier_count) || !good) return;
    x->barriers[x->barrier_count++] = n;
}

static void check_unordered(check *c, const ast_statement *s) {
    level2_of(c);
    if (!at_top(c, s, "what is unordered")) return;
    for (const ast_expr *e = s->level2->arguments; e; e = e->next) {
        const check_symbol *symbol = check_find(c, e->name);
        if (symbol && symbol->kind == SYMBOL_BROKEN) continue;
        tile_param *p = symbol && symbol->kind == SYMBOL_PARAM ? &c->op->params[symbol->index] : NULL;
        if (!p || !p->rank)
            REPORT(c, e->place, "%s is no tensor; an unordered one is touched by several instructions at a time",
                   e->name);
        else if (p->kind == TILE_IN)
            REPORT(c, e->place, "%s is only read: there is nothing to order", e->name);
        else
            p->unordered = true;
    }
}

static tile_statement *check_role(check *c, const ast_statement *s) {
    tile_level2 *x = level2_of(c);
    const int r = role_named(s->name);
    int64_t warps = r == LEVEL2_CONSUMER ? LEVEL2_WARPS : 1;
    if (!at_top(c, s, "a role")) return NULL;
    if (r == LEVEL2_ROLES) {
        REPORT(c, s->place, "the roles are loader, consumer and storer");
        return NULL;
    }
    if (x->has[r]) {
        REPORT(c, s->place, "role %s stands here for the second time; the first is on line %d", s->name, x->lines[r]);
        return NULL;
    }
    const ast_expr *count = s->level2->count;
    const int64_t wanted = s->level2->is_groups ? warps / 4 : warps;
    if (count && check_constant(c, count, "the number of warps", 1, 64, &warps) && warps != wanted) {
        if (r == LEVEL2_CONSUMER)
            REPORT(c, count->place, "the consumers are %d warps, 2 warpgroups", LEVEL2_WARPS);
        else
            REPORT(c, count->place, "the %s is one warp", s->name);
    }
    int64_t registers = 0;
    const ast_expr *budget = s->level2->registers;
    if (budget && check_constant(c, budget, "a register budget", 24, 240, &registers) && registers % 8) {
        REPORT(c, budget->place, "a register budget is a multiple of 8, from 24 to 240, not %" PRId64, registers);
        registers = 0;
    }
    x->budget[r] = (int)registers;
    x->has[r] = true;
    x->lines[r] = s->place.line;
    x->warps = LEVEL2_WARPS;
    c->role = r;
    tile_statement *out = new_action(c, s->place, LEVEL2_ROLE);
    out->body = check_block(c, s->body);
    c->role = -1;
    return out;
}

/* ---- stages ---- */

/* The index of one of `count`: the only item or, of a shared tensor, the first. NULL after an error. */
static const tile_node *stage_of(check *c, ast_place at, const char *name, int64_t count, bool counted,
                                 const ast_item *items) {
    if (!counted) return check_settle(c, check_literal_integer(c, at, 0));
    if (!items || !items->start || items->size) {
        REPORT(c, at, "there are %" PRId64 " of %s; say which, as in %s[s]", count, name, name);
        return NULL;
    }
    const tile_node *n = check_index(c, items->start, "the number of a stage");
    if (n)
        *ARENA_PUSH(c->memory, c->stages, c->stage_count, c->stage_capacity) =
            (check_stage){n, count, name, items->start->place};
    return n;
}

static int new_view(check *c, int shared) {
    tile_op *op = c->op;
    const level2_shared *s = &op->level2->shared[shared];
    size_t count = (size_t)op->variable_count, definitions = count;
    *ARENA_PUSH(c->memory, c->definitions, definitions, c->definition_capacity) = NULL;
    *ARENA_PUSH(c->memory, op->variables, count, c->variable_capacity) =
        (tile_variable){s->name, s->type, s->shape, 1, 1};
    *ARENA_PUSH(c->memory, c->views, c->view_count, c->view_capacity) = (check_view){op->variable_count, shared};
    return op->variable_count++;
}

/* The view of a place of the text that names a stage; its VIEW goes in front of the statement at hand. -1: an error. */
static int view_of(check *c, ast_place at, int shared, const ast_item *items, const ast_item **rest) {
    const level2_shared *s = &c->op->level2->shared[shared];
    const bool counted = s->count > 1;
    const tile_node *index = stage_of(c, at, s->name, s->count, counted, items);
    *rest = counted && items ? items->next : items;
    if (!index) return -1;
    if (c->op->variable_count == TILE_VARIABLES) {
        REPORT(c, at, "a program has at most %d variables", TILE_VARIABLES);
        return -1;
    }
    tile_statement *view = new_action(c, at, LEVEL2_VIEW);
    view->action->variable = new_view(c, shared);
    view->action->shared = shared;
    view->action->index = index;
    view->next = c->pending;
    c->pending = view;
    return view->action->variable;
}

tile_node *explicit_view(check *c, ast_place at, int shared, const ast_item *items) {
    const ast_item *rest;
    const level2_shared *s = &c->op->level2->shared[shared];
    if (c->role != LEVEL2_CONSUMER) {
        REPORT(c, at, "%s is a shared tensor; only the consumers read those", s->name);
        return NULL;
    }
    const int v = view_of(c, at, shared, items, &rest);
    if (v < 0) return NULL;
    tile_node *n = check_node(c, at, TILE_VAR, s->type, &c->op->variables[v].shape);
    n->index = v;
    return rest ? check_part(c, at, n, rest) : n;
}

tile_statement *explicit_put(check *c, const ast_statement *from, int shared, const ast_item *items) {
    const ast_item *rest;
    const level2_shared *s = &c->op->level2->shared[shared];
    tile_node *value = check_open(c, from->value);
    if (c->role != LEVEL2_CONSUMER || s->pages) {
        REPORT(c, from->place,
               s->pages ? "%s lies in pages, which the loader's copies fill; what consumers write is resident"
                        : "%s is a shared tensor; only the consumers write resident ones",
               s->name);
        return NULL;
    }
    if (from->kind == AST_UPDATE || from->op != TILE_OPERATOR_COUNT) {
        REPORT(c, from->place, "a shared tensor is written with '='");
        return NULL;
    }
    const int v = view_of(c, from->place, shared, items, &rest);
    if (v < 0 || !value) return NULL;
    if (rest) {
        REPORT(c, rest->place, "a shared tensor is written a whole stage at a time");
        return NULL;
    }
    if (!check_adapt(c, value, s->type)) return NULL;
    if (value->type != s->type) {
        REPORT(c, from->value->place, "%s is %s, the value is %s; cast it, as in %s(x)", s->name, s->type->name,
               value->type->name, s->type->name);
        return NULL;
    }
    value = check_stretch(c, from->value->place, value, &s->shape, s->name);
    tile_statement *out = new_action(c, from->place, LEVEL2_PUT);
    out->action->variable = v;
    out->action->shared = shared;
    out->value = value;
    return value ? out : NULL;
}

/* ---- layouts ---- */

static bool layout_factor(check *c, const ast_expr *f, const tile_shape *shape, layout *out) {
    static const struct {
        const char *name;
        bool threads, columns;
    } kinds[] = {{"spatial", true, false},
                 {"local", false, false},
                 {"column_spatial", true, true},
                 {"column_local", false, true}};
    tile_shape s;
    if (!check_shape(c, f->place, f->arguments, &s)) return false;
    if (!strcmp(f->name, "replicated") && s.rank == 1) {
        *out = layout_replicated(shape->rank, s.extent[0]);
        return true;
    }
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        if (strcmp(kinds[k].name, f->name)) continue;
        if (s.rank != shape->rank) {
            REPORT(c, f->place, "%s has %d extents, the tile has %d dimensions", f->name, s.rank, shape->rank);
            return false;
        }
        *out = kinds[k].threads ? layout_spatial(&s, kinds[k].columns) : layout_local(&s, kinds[k].columns);
        return true;
    }
    REPORT(c, f->place,
           "a layout is made of local(...), spatial(...), column_local(...), column_spatial(...) and replicated(n)");
    return false;
}

void explicit_layout_given(check *c, const ast_statement *from, int variable) {
    const tile_shape *shape = &c->op->variables[variable].shape;
    if (c->role != LEVEL2_CONSUMER) {
        REPORT(c, from->place, "tiles in registers are the consumers'");
        return;
    }
    if (!from->level2->layout) return;
    layout all, f;
    bool first = true;
    for (const ast_expr *e = from->level2->layout; e; e = e->next, first = false) {
        if (!layout_factor(c, e, shape, &f)) return;
        if (first)
            all = f;
        else if (!layout_compose(&all, &all, &f)) {
            REPORT(c, e->place, "this layout has more than %d modes", LAYOUT_MODES);
            return;
        }
    }
    if (!check_same_shape(&all.shape, shape))
        REPORT(c, from->level2->layout->place, "the layout is of a tile %s, this one is %s",
               check_shape_text(c, &all.shape), check_shape_text(c, shape));
    else if (layout_threads(&all) != 32 * LEVEL2_WARPS)
        REPORT(c, from->level2->layout->place,
               "the layout has %" PRId64 " threads, the consumers %d; replicated(n) makes up for the rest",
               layout_threads(&all), 32 * LEVEL2_WARPS);
    else
        *ARENA_PUSH(c->memory, c->givens, c->given_count, c->given_capacity) = (check_given_layout){variable, all};
}

/* ---- what roles do ---- */

static int barrier_of(check *c, const ast_expr *e, const tile_node **index) {
    const ast_expr *name = e->kind == AST_SLICE ? e->a : e;
    const check_symbol *s = name->kind == AST_NAME ? check_find(c, name->name) : NULL;
    if (s && s->kind == SYMBOL_BROKEN) return -1;
    if (!s || s->kind != SYMBOL_BARRIER) {
        REPORT(c, e->place, "expected a barrier, as in full[s]");
        return -1;
    }
    const level2_barrier *b = &c->op->level2->barriers[s->index];
    const int number = s->index;
    const ast_item *items = e->kind == AST_SLICE ? e->items : NULL;
    if (items && (items->next || b->count == 1)) {
        REPORT(c, e->place, b->count == 1 ? "there is only one %s" : "%s has one index", b->name);
        return -1;
    }
    *index = stage_of(c, e->place, b->name, b->count, b->count > 1, items);
    return *index ? number : -1;
}

static const tile_node *phase_of(check *c, const ast_expr *e) { return check_index(c, e, "a phase"); }

static tile_statement *check_copy(check *c, const ast_statement *from, const ast_expr *to, const ast_expr *what,
                                  const ast_expr *barrier) {
    const ast_expr *name = to->kind == AST_SLICE ? to->a : to;
    const check_symbol *symbol = name->kind == AST_NAME ? check_find(c, name->name) : NULL;
    if (symbol && symbol->kind == SYMBOL_BROKEN) return NULL;
    if (!symbol || symbol->kind != SYMBOL_SHARED) {
        REPORT(c, to->place, "a copy goes into a shared tensor, as in copy(a[s], x[i : +n, :], full[s])");
        return NULL;
    }
    const int shared = symbol->index;
    const level2_shared *s = &c->op->level2->shared[shared];
    const ast_item *rest;
    tile_statement *out = new_action(c, from->place, LEVEL2_COPY);
    level2_action *a = out->action;
    a->shared = shared;
    a->variable = view_of(c, to->place, shared, to->kind == AST_SLICE ? to->items : NULL, &rest);
    out->value = check_value(c, what);
    a->barrier = barrier_of(c, barrier, &a->index);
    if (a->variable < 0 || !out->value || a->barrier < 0) return NULL;
    if (rest || !s->pages) {
        REPORT(c, to->place, rest ? "a copy fills a whole stage" : "a copy goes into pages; %s is resident", s->name);
        return NULL;
    }
    const tile_access *access = out->value->access;
    bool sliced = out->value->kind == TILE_LOAD;
    for (int d = 0; sliced && d < access->rank; d++) sliced = access->item[d].kind != TILE_ITEM_GATHER;
    if (!sliced || access->item[access->rank - 1].kind != TILE_ITEM_RANGE) {
        REPORT(c, what->place, "a copy takes a slice of a tensor whose last item is a range");
        return NULL;
    }
    if (out->value->type != s->type || !check_same_shape(&out->value->shape, &s->shape)) {
        REPORT(c, what->place, "%s is %s%s, the slice is %s%s", s->name, s->type->name, check_shape_text(c, &s->shape),
               out->value->type->name, check_shape_text(c, &out->value->shape));
        return NULL;
    }
    return out;
}

/* The slice of a tensor that an action writes: into s. `form`: how it is written. False: an error. */
static bool written_slice(check *c, tile_statement *s, const ast_expr *to, const char *form) {
    const ast_expr *name = to->kind == AST_SLICE ? to->a : to;
    const check_symbol *symbol = name->kind == AST_NAME ? check_find(c, name->name) : NULL;
    if (symbol && symbol->kind == SYMBOL_BROKEN) return false;
    const tile_param *p = symbol && symbol->kind == SYMBOL_PARAM && c->op->params[symbol->index].rank
                              ? &c->op->params[symbol->index]
                              : NULL;
    if (!p || to->kind != AST_SLICE) {
        REPORT(c, to->place, "expected a slice of a tensor, as in %s", form);
        return false;
    }
    if (p->kind == TILE_IN || (p->type && tile_format_is_block(p->type))) {
        REPORT(c, to->place, "%s is %s and cannot be written", p->name,
               p->kind == TILE_IN ? "an input" : "stored in blocks");
        return false;
    }
    s->access = check_access(c, to->place, symbol->index, to->items, &s->shape);
    return s->access && p->type;
}

static tile_statement *check_bulk_store(check *c, const ast_statement *from, const ast_expr *to, const ast_expr *what) {
    const ast_expr *name = what->kind == AST_SLICE ? what->a : what;
    const check_symbol *symbol = name->kind == AST_NAME ? check_find(c, name->name) : NULL;
    tile_statement *out = new_action(c, from->place, LEVEL2_STORE);
    if (!written_slice(c, out, to, "store(y[i : +n, :], c[s])")) return NULL;
    if (symbol && symbol->kind == SYMBOL_BROKEN) return NULL;
    if (!symbol || symbol->kind != SYMBOL_SHARED) {
        REPORT(c, what->place, "a store takes a stage of a shared tensor, as in store(y[i : +n, :], c[s])");
        return NULL;
    }
    const level2_shared *s = &c->op->level2->shared[symbol->index];
    const tile_param *p = &c->op->params[out->access->param];
    const ast_item *rest;
    out->action->shared = symbol->index;
    out->action->variable = view_of(c, what->place, symbol->index, what->kind == AST_SLICE ? what->items : NULL, &rest);
    if (out->action->variable < 0) return NULL;
    if (rest || s->layout.swizzle) {
        REPORT(c, what->place, rest ? "a store takes a whole stage" : "a store takes stages in rows; %s is swizzled",
               s->name);
        return NULL;
    }
    bool sliced = out->shape.rank >= 1 && out->shape.rank <= 2;
    for (int d = 0; d < out->access->rank; d++) sliced = sliced && out->access->item[d].kind != TILE_ITEM_GATHER;
    if (!sliced || out->access->item[out->access->rank - 1].kind != TILE_ITEM_RANGE) {
        REPORT(c, to->place, "a store fills a slice of one or two dimensions whose last item is a range");
        return NULL;
    }
    if (p->type != s->type || !check_same_shape(&out->shape, &s->shape)) {
        REPORT(c, what->place, "%s is %s%s, the slice is %s%s", s->name, s->type->name, check_shape_text(c, &s->shape),
               p->type->name, check_shape_text(c, &out->shape));
        return NULL;
    }
    out->value = check_node(c, what->place, TILE_VAR, s->type, &s->shape);
    out->value->index = out->action->variable;
    return out;
}

/* The variable under an operand of a product: itself, or transposed. NULL: it is something else. */
static const tile_node *operand_of(const tile_node *n) {
    if (n->kind == TILE_TRANSPOSE) n = n->a;
    return n->kind == TILE_VAR ? n : NULL;
}

/* The stage that a view stands for; NULL: it is none. */
static const level2_shared *stage_under(const check *c, const tile_node *n) {
    for (size_t i = 0; n && i < c->view_count; i++)
        if (c->views[i].variable == n->index) return &c->op->level2->shared[c->views[i].shared];
    return NULL;
}

static bool types_fit(check *c, const ast_statement *from, const tile_node *n) {
    const tile_format *t = n->a->type;
    if (t == n->b->type && t->scalar.bits == 16 && t->scalar.kind == TILE_FLOAT) return true;
    REPORT(c, from->place, "%s multiplies two tiles of bf16 or of f16, not %s and %s", from->name, t->name,
           n->b->type->name);
    return false;
}

static bool mma_fits(check *c, const ast_statement *from, const tile_node *n) {
    const tile_node *a = operand_of(n->a), *b = operand_of(n->b);
    const int64_t m = n->shape.extent[0], k = n->a->shape.extent[1], width = n->shape.extent[1];
    const ast_expr *left = from->level2->arguments->next, *right = left->next;
    if (!types_fit(c, from, n)) return false;
    if (m % 16 || width % 8 || k % 16)
        REPORT(c, from->place,
               "mma.m16n8k16 makes products of 16 x 8 over 16: [%" PRId64 ", %" PRId64 "] over %" PRId64
               " is no multiple",
               m, width, k);
    else if (!a || (!stage_under(c, a) && n->a->kind == TILE_TRANSPOSE))
        REPORT(c, left->place,
               "mma's left operand is a tile in registers, or a stage of a shared tensor or its transpose");
    else if (!b || !stage_under(c, b))
        REPORT(c, right->place, "mma's right operand is a stage of a shared tensor, or its transpose");
    else
        return true;
    return false;
}

/* From shared memory, left [m, k] and right [n, k] transposed; or left 128 rows in registers and right [k, n]. */
static bool wgmma_fits(check *c, const ast_statement *from, const tile_node *n) {
    const bool turned = n->b->kind == TILE_TRANSPOSE, held = n->a->kind == TILE_VAR && !stage_under(c, n->a);
    const level2_shared *a = n->a->kind == TILE_VAR ? stage_under(c, n->a) : NULL,
                        *b = operand_of(n->b) ? stage_under(c, operand_of(n->b)) : NULL;
    const int64_t m = n->shape.extent[0], all = n->shape.extent[1], width = all / (m == 64 ? 2 : 1),
                  k = n->a->shape.extent[1];
    const ast_expr *left = from->level2->arguments->next, *right = left->next;
    if (!types_fit(c, from, n)) return false;
    if (!held && (!a || a->layout.swizzle != 3))
        REPORT(c, left->place,
               "wgmma's left operand is a tile in registers, or a stage [m, k] of a shared tensor with swizzle(128)");
    else if (!b || b->layout.swizzle != 3 || turned == held)
        REPORT(c, right->place,
               held ? "with a left operand in registers wgmma's right one is a stage [k, n] of a shared tensor with "
                      "swizzle(128)"
                    : "wgmma's right operand is the transpose of a stage [n, k] of a shared tensor with swizzle(128)");
    else if (held && (m != 128 || all % 64 || all > 256 || k % 16))
        REPORT(
            c, from->place,
            "with a left operand in registers the two warpgroups make [128, n] with 64, 128, 192 or 256 columns over a "
            "multiple of 16; this is [%" PRId64 ", %" PRId64 "] over %" PRId64,
            m, all, k);
    else if (!held && ((m != 64 && m != 128) || (width != 32 && width != 64 && width != 128 && width != 256) ||
                       k % 64 || (m == 64 && width == 256)))
        REPORT(
            c, from->place,
            "the two warpgroups make [64, n] with 64, 128 or 256 columns, or [128, n] with 32, 64, 128 or 256, over a "
            "multiple of 64; this is [%" PRId64 ", %" PRId64 "] over %" PRId64,
            m, all, k);
    else
        return true;
    return false;
}

/* mma or wgmma. */
static tile_statement *check_mma(check *c, const ast_statement *from, bool is_wide) {
    const ast_expr *to = from->level2->arguments, *left = to->next;
    const check_symbol *symbol = to->kind == AST_NAME ? check_find(c, to->name) : NULL;
    if (symbol && symbol->kind == SYMBOL_BROKEN) return NULL;
    if (!symbol || symbol->kind != SYMBOL_VARIABLE) {
        REPORT(c, to->place, "%s adds to a tile in registers, as in mma(acc, a[s], b[s].T)", from->name);
        return NULL;
    }
    const int v = symbol->index;
    const ast_expr dot = {.kind = AST_CALL, .place = from->place, .name = "dot", .arguments = (ast_expr *)left};
    tile_node *n = check_value(c, &dot);
    if (!n) return NULL;
    const tile_variable *acc = &c->op->variables[v];
    if (acc->type != c->f32 || !check_same_shape(&acc->shape, &n->shape)) {
        REPORT(c, to->place, "the product is f32%s, %s is %s%s", check_shape_text(c, &n->shape), acc->name,
               acc->type->name, check_shape_text(c, &acc->shape));
        return NULL;
    }
    if (is_wide ? !wgmma_fits(c, from, n) : !mma_fits(c, from, n)) return NULL;
    c->op->variables[v].assignments++;
    tile_statement *out = new_action(c, from->place, is_wide ? LEVEL2_WGMMA : LEVEL2_MMA);
    out->action->variable = v;
    out->value = n;
    return out;
}

/* Which of the words the expression is; `count`: none. */
static int word_of(const ast_expr *e, const char *const *words, int count) {
    int i = 0;
    while (i < count && (e->kind != AST_NAME || strcmp(words[i], e->name))) i++;
    return i;
}

/* atomic_add(slice, value, order, scope) or, of one element, (slice, value, order, scope, before). */
static tile_statement *check_atomic(check *c, const ast_statement *from) {
    const ast_expr *to = from->level2->arguments, *what = to->next, *order = what->next, *scope = order->next,
                   *before = scope->next;
    tile_statement *out = new_action(c, from->place, LEVEL2_ATOMIC);
    level2_action *a = out->action;
    while (strcmp(explicit_atomics[a->atomic], from->name + strlen("atomic_"))) a->atomic++; /* the parser's word */
    bool good = written_slice(c, out, to, "atomic_add(y[i : +n], v, relaxed, gpu)");
    tile_node *value = check_open(c, what);
    if ((a->order = (level2_memory_order)word_of(order, explicit_orders, LEVEL2_ORDERS)) == LEVEL2_ORDERS) {
        REPORT(c, order->place, "expected an order: relaxed, acquire, release or acq_rel");
        good = false;
    }
    if ((a->scope = (level2_scope)word_of(scope, explicit_scopes, LEVEL2_SCOPES)) == LEVEL2_SCOPES) {
        REPORT(c, scope->place, "expected a scope: cta, which is this instruction, or gpu");
        good = false;
    }
    if (!good || !value) return NULL;
    const tile_param *p = &c->op->params[out->access->param];
    if (p->kind != TILE_INOUT) {
        REPORT(c, to->place, "%s is an output and cannot be read; atomics need an inout parameter", p->name);
        return NULL;
    }
    if (strcmp(p->type->name, "i32") && strcmp(p->type->name, "u32")) {
        REPORT(
            c, to->place,
            "%s is %s; atomics are of i32 and u32: what floats add up to depends on who comes first, and results are "
            "the same bits every time",
            p->name, p->type->name);
        return NULL;
    }
    if (!check_adapt(c, value, p->type)) return NULL;
    if (value->type != p->type) {
        REPORT(c, what->place, "%s is %s, the value is %s; cast it, as in %s(x)", p->name, p->type->name,
               value->type->name, p->type->name);
        return NULL;
    }
    if (!(out->value = check_stretch(c, what->place, value, &out->shape, p->name))) return NULL;
    const bool acquires = a->order == LEVEL2_ACQUIRE || a->order == LEVEL2_ACQ_REL;
    if (!before && acquires) {
        REPORT(c, order->place, "%s is about what was there before: a fifth argument, a scalar, takes it", order->name);
        return NULL;
    }
    if (!before) return out;
    const check_symbol *symbol = before->kind == AST_NAME ? check_find(c, before->name) : NULL;
    if (symbol && symbol->kind == SYMBOL_BROKEN) return NULL;
    const tile_variable *v = symbol && symbol->kind == SYMBOL_VARIABLE ? &c->op->variables[symbol->index] : NULL;
    if (!v || v->shape.rank || v->type != p->type) {
        REPORT(c, before->place, "what was there before goes into a variable, a scalar of %s", p->type->name);
        return NULL;
    }
    if (tile_shape_count(&out->shape) != 1) {
        REPORT(c, to->place, "what was there before is known of one element, not of %s",
               check_shape_text(c, &out->shape));
        return NULL;
    }
    a->variable = symbol->index;
    c->op->variables[symbol->index].assignments++;
    return out;
}

/* stamp(slice), post(slice, value), take(variable, slice). */
static tile_statement *check_stamped(check *c, const ast_statement *from, level2_kind kind) {
    const ast_expr *first = from->level2->arguments, *to = kind == LEVEL2_TAKE ? first->next : first;
    tile_statement *out = new_action(c, from->place, kind);
    if (!written_slice(c, out, to, kind == LEVEL2_TAKE ? "take(v, t[i, :])" : "post(t[i, :], v)")) return NULL;
    const tile_param *p = &c->op->params[out->access->param];
    if (p->type != c->f32 || p->kind != TILE_INOUT) {
        REPORT(c, to->place, "stamped data are f32, in an inout tensor, not %s", p->type->name);
        return NULL;
    }
    if (kind == LEVEL2_STAMP)
        return (out->value = check_node(c, from->place, TILE_CONST, c->f32, &(tile_shape){0})) ? out : NULL;
    if (kind == LEVEL2_POST) {
        tile_node *value = check_open(c, first->next);
        if (!value || !check_adapt(c, value, c->f32)) return NULL;
        if (value->type != c->f32) {
            REPORT(c, first->next->place, "%s is f32, the value is %s; cast it, as in f32(x)", p->name,
                   value->type->name);
            return NULL;
        }
        return (out->value = check_stretch(c, first->next->place, value, &out->shape, p->name)) ? out : NULL;
    }
    const check_symbol *symbol = first->kind == AST_NAME ? check_find(c, first->name) : NULL;
    if (symbol && symbol->kind == SYMBOL_BROKEN) return NULL;
    if (!out->shape.rank) {
        REPORT(c, to->place, "take takes a tile; one element is one of these: %s[i : +1]", p->name);
        return NULL;
    }
    if (!symbol || symbol->kind != SYMBOL_VARIABLE || c->op->variables[symbol->index].type != c->f32 ||
        !check_same_shape(&c->op->variables[symbol->index].shape, &out->shape)) {
        REPORT(c, first->place, "what is taken goes into a tile in registers that is f32%s",
               check_shape_text(c, &out->shape));
        return NULL;
    }
    out->action->variable = symbol->index;
    c->op->variables[symbol->index].assignments++;
    out->value = check_node(c, first->place, TILE_VAR, c->f32, &out->shape);
    out->value->index = symbol->index;
    return out;
}

static tile_statement *check_do(check *c, const ast_statement *from) {
    enum { LOADER = 1 << LEVEL2_LOADER, CONSUMER = 1 << LEVEL2_CONSUMER, STORER = 1 << LEVEL2_STORER };
    static const struct {
        const char *name, *form;
        int arguments, roles; /* a bit for each who does it */
        const char *whose;
    } all[] = {{"wait", "wait(barrier, phase)", 2, LOADER | CONSUMER | STORER, ""},
               {"arrive", "arrive(barrier)", 1, LOADER | CONSUMER | STORER, ""},
               {"expect", "expect(barrier, bytes)", 2, LOADER, "loader"},
               {"copy", "copy(stage, slice, barrier)", 3, LOADER, "loader"},
               {"mma", "mma(acc, a, b)", 3, CONSUMER, "consumer"},
               {"wgmma", "wgmma(acc, a, b)", 3, CONSUMER, "consumer"},
               {"commit", "commit()", 0, CONSUMER | STORER, "consumer or the storer"},
               {"wait_group", "wait_group(n)", 1, CONSUMER | STORER, "consumer or the storer"},
               {"sync", "sync()", 0, CONSUMER, "consumer"},
               {"store", "store(slice, stage)", 2, STORER, "storer"},
               {"stamp", "stamp(slice)", 1, CONSUMER, "consumer"},
               {"post", "post(slice, value)", 2, CONSUMER, "consumer"},
               {"take", "take(variable, slice)", 2, CONSUMER, "consumer"},
               {"atomic", "(slice, value, order, scope), and a variable for what was there before, or none", 4,
                CONSUMER, "consumer"}};
    enum { WAIT, ARRIVE, EXPECT, COPY, MMA, WGMMA, COMMIT, WAIT_GROUP, SYNC, STORE, STAMP, POST, TAKE, ATOMIC };
    const ast_expr *e[3] = {0};
    int count = 0;
    size_t k = 0;
    for (const ast_expr *a = from->level2->arguments; a; a = a->next, count++)
        if (count < 3) e[count] = a;
    while (k < ATOMIC && strcmp(all[k].name, from->name)) k++; /* the parser takes no other */
    if (c->role < 0) {
        REPORT(c, from->place, "%s stands in a role", from->name);
        return NULL;
    }
    if (!(all[k].roles >> c->role & 1)) {
        REPORT(c, from->place, "%s is what the %s does, not the %s", from->name, all[k].whose, explicit_roles[c->role]);
        return NULL;
    }
    if (count != all[k].arguments && (k != ATOMIC || count != 5)) {
        REPORT(c, from->place, "expected %s%s", k == ATOMIC ? from->name : "", all[k].form);
        return NULL;
    }
    if (k == COPY) return check_copy(c, from, e[0], e[1], e[2]);
    if (k == ATOMIC) return check_atomic(c, from);
    if (k == STAMP || k == POST || k == TAKE)
        return check_stamped(c, from, k == STAMP ? LEVEL2_STAMP : k == POST ? LEVEL2_POST : LEVEL2_TAKE);
    if (k == STORE) return check_bulk_store(c, from, e[0], e[1]);
    if (k == MMA || k == WGMMA) return check_mma(c, from, k == WGMMA);
    static const level2_kind kinds[] = {
        [WAIT] = LEVEL2_WAIT,     [ARRIVE] = LEVEL2_ARRIVE,         [EXPECT] = LEVEL2_EXPECT,
        [COMMIT] = LEVEL2_COMMIT, [WAIT_GROUP] = LEVEL2_WAIT_GROUP, [SYNC] = LEVEL2_SYNC};
    tile_statement *s = new_action(c, from->place, kinds[k]);
    level2_action *a = s->action;
    if (k == SYNC || k == COMMIT) return s;
    if (k == WAIT_GROUP) return check_constant(c, e[0], "the number of groups", 0, 7, &a->bytes) ? s : NULL;
    a->barrier = barrier_of(c, e[0], &a->index);
    bool good = a->barrier >= 0;
    if (k == WAIT) good = (a->phase = phase_of(c, e[1])) && good;
    if (k == EXPECT) good = check_constant(c, e[1], "the number of bytes", 1, (1 << 20) - 1, &a->bytes) && good;
    return good ? s : NULL;
}

tile_statement *explicit_check(check *c, const ast_statement *from) {
    switch (from->kind) {
    case AST_SHARED:
        check_shared(c, from);
        return NULL;
    case AST_BARRIER:
        check_barrier(c, from);
        return NULL;
    case AST_UNORDERED:
        check_unordered(c, from);
        return NULL;
    case AST_ROLE:
        return check_role(c, from);
    default:
        level2_of(c);
        return check_do(c, from);
    }
}
