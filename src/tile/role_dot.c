/* Strategies for products; see the head of role.h. */
#include "tile/role_internal.h"

#include <inttypes.h>

enum {
    PANEL_BYTES = 112 << 10, /* of one panel; a longer one is written in turns */
    LEFT_BYTES = 48 << 10,   /* of the left operand of a DOT; a longer one is taken in parts of k */
    PARTS_BYTES = 32 << 10,  /* of the parts of a SPLIT_K */
    DOTS = 8                 /* products in a stream loop */
};

/* ---- streamed weights ---- */

/* A right operand whose weight the loader can stream. */
typedef struct weight {
    const tile_access *access;
    const tile_format *format; /* of the weight */
    const tile_format *product;
    role_layout layout;
    int64_t rows, columns; /* of the slice */
    int64_t row_columns;   /* K of the weight */
} weight;

/* Fills *out, or says why the product of these operands is not streamed. Where the slice begins is checked by the
 * callers. */
static const char *find_weight(const role_lowering *l, const tile_node *left, const tile_node *right, weight *out) {
    const role_op *r = l->r;
    const tile_node *x = role_resolved(r, right);
    if (!tile_format_is_16_bit_float(left->type)) return "its operands are not of a 16-bit float type";
    if (left->shape.extent[0] > ROLE_SKINNY_ROWS) return "it has more than 16 rows";
    if (x->kind != TILE_TRANSPOSE || x->shape.rank != 2)
        return "its right operand is not the transpose of a weight's slice";
    x = role_resolved(r, x->a);
    out->product = left->type;
    if (x->type != out->product) return "its operands are of two types";
    const tile_format *f32 = tile_format_scalar("f32", 3);
    while (x->kind == TILE_CAST && (x->type == out->product || x->type == f32)) x = role_resolved(r, x->a);
    if (x->kind != TILE_LOAD || x->access->rank != 2 || x->shape.rank != 2)
        return "its right operand is not the transpose of a weight's slice";
    const tile_access *a = x->access;
    const tile_param *p = &r->op.params[a->param];
    out->access = a;
    out->format = x->type;
    out->layout = r->layout[p->ordinal];
    if (p->kind != TILE_IN) return "its right operand is written by the program";
    if (out->layout == ROLE_ROWS) return "its weight lies in rows";
    if (out->layout == ROLE_ATOMS ? !tile_format_is_16_bit_float(x->type)
                                  : !tile_format_is_block(x->type) || x->type->block % 32)
        return "its weight's format is not streamed";
    for (int d = 0; d < 2; d++)
        if (a->item[d].kind != TILE_ITEM_RANGE || a->item[d].limit) return "its weight's slice is no rectangle";
    if (p->extent[1]->kind != TILE_CONST || (p->extent[0]->kind != TILE_CONST && p->extent[0]->kind != TILE_EXTENT))
        return "its weight's extents are not constant";
    out->rows = a->item[0].size;
    out->columns = a->item[1].size;
    out->row_columns = p->extent[1]->value.i;
    return NULL;
}

/* A multiple of n that is not negative and that a loader can know. */
static bool begins_at(const role_lowering *l, const tile_node *start, int64_t n) {
    int64_t low, high;
    return role_is_early(l->r, start) && role_divisor(l->r, start) % n == 0 && role_range(l->r, start, &low, &high) &&
           low >= 0;
}

/* A weight's columns [column, column + columns) are whole pages, or reach to its end. */
static bool are_pages(const role_lowering *l, const weight *w, const tile_node *column, int64_t columns) {
    const int64_t grain = w->layout == ROLE_ATOMS ? 64 : role_band(w->format, w->row_columns);
    const bool reaches_end = column->kind == TILE_CONST && column->value.i + columns >= w->row_columns;
    return begins_at(l, column, grain) && (columns % grain == 0 || reaches_end);
}

/* Columns that a panel for these columns of a weight has: whole atoms, padded with zeros. */
static int64_t panel_columns(const weight *w, int64_t columns) {
    return w->layout == ROLE_ATOMS ? (int64_t)align_up((uint64_t)columns, 64) : columns;
}

/* `padding`, in elements, spreads rows over the banks as a warp reads them (emit/cuda_dot.h). */
static int new_panel(role_lowering *l, const tile_format *type, int64_t rows, int64_t columns, int64_t padding) {
    const int v = role_new_variable(l, "panel", type, &(tile_shape){2, {rows, columns}});
    l->r->variables[v].panel = true;
    l->r->variables[v].stride = padding;
    l->r->variables[v].why = "the left operand, for the tensor cores";
    return v;
}

static int new_weight_panel(role_lowering *l, const weight *w, int64_t rows, int64_t columns) {
    const int64_t padding = w->layout == ROLE_ATOMS ? 8 : rows > 4 ? 16 : 32;
    return new_panel(l, w->product, rows, panel_columns(w, columns), padding);
}

/* The buffer for the parts of a product [m, n], and the product's variable as their sum. */
static int new_parts(role_lowering *l, int variable, const tile_format *type, int64_t m, int64_t n, tile_operator op) {
    const int v = role_new_variable(l, "parts", type, &(tile_shape){3, {ROLE_WARPS, m, n}});
    l->r->variables[v].why = "what each warp leaves";
    l->r->variables[variable].place = ROLE_PARTS;
    l->r->variables[variable].parts = v;
    l->r->variables[variable].op = op;
    l->r->variables[variable].why = "the sum of all warps' parts";
    return v;
}

/* Blocks in a page, where all columns of one are a page: a warp takes a page's slices in one straight run of code, no
 * longer than MOST_SLICES. The pages of a slice of `blocks` are as equal as can be. */
static int64_t blocks_of_page(const weight *w, const tile_node *column, int64_t columns, int64_t blocks) {
    enum { MOST_SLICES = 16 };
    if (w->layout != ROLE_BANDS || column->kind != TILE_CONST || column->value.i || columns < w->row_columns ||
        role_band(w->format, w->row_columns) < w->row_columns)
        return 1;
    const int64_t most = min_i64(ROLE_LONG_PAGE / (8 * role_band_row(w->format, w->row_columns)),
                                 MOST_SLICES / ceil_div(w->row_columns, 32 * ROLE_WARPS));
    return most < 2 ? 1 : ceil_div(blocks, ceil_div(blocks, most));
}

/* A SKINNY in the place of a DOT. */
static void make_skinny(role_lowering *l, role_statement *dot, const weight *w, int panel, const tile_node *row,
                        const tile_node *column, int64_t columns) {
    const int64_t blocks = ceil_div(w->rows, 8),
                  band = w->layout == ROLE_BANDS ? role_band(w->format, w->row_columns) : 0;
    dot->kind = ROLE_SKINNY;
    dot->product = w->product;
    dot->from = panel;
    dot->left = dot->value = NULL;
    dot->to = new_parts(l, dot->to, tile_format_scalar("f32", 3), dot->shape.extent[0], blocks * 8, TILE_SUM);
    dot->pages = (role_pages){.number = ++l->names,
                              .param = w->access->param,
                              .row = row,
                              .column = column,
                              .blocks = blocks,
                              .columns = panel_columns(w, columns),
                              .page_columns = w->layout == ROLE_ATOMS ? ROLE_PAGE / 16 : band,
                              .page_blocks = blocks_of_page(w, column, columns, blocks),
                              .row_columns = w->layout == ROLE_ATOMS ? (int64_t)align_up((uint64_t)w->row_columns, 64)
                                                                     : w->row_columns,
                              .rows = l->r->op.params[w->access->param].extent[0]};
    dot->why = w->layout == ROLE_ATOMS ? "a dense weight from pages"
                                       : "a block format's weight from pages, decoded in registers";
}

/* ---- stream loops ---- */

typedef struct widening { /* of what a loop takes piece by piece: the last dimension's pieces side by side */
    role_lowering *l;
    const role_statement *loop;
    int64_t piece, whole;   /* elements of a turn; wanted */
    const tile_node *begin; /* takes the loop variable's place */
    const tile_node *shift; /* a scalar that is added to starts; NULL */
} widening;

static tile_node *put_begin(role_lowering *l, const tile_node *n, void *context) {
    const widening *w = context;
    return (void)l, n->kind == TILE_LOOP && n->index == w->loop->index ? (tile_node *)w->begin : NULL;
}

static tile_node *binary(role_lowering *l, tile_operator op, const tile_node *a, const tile_node *b) {
    tile_node *n = ARENA_NEW(l->memory, tile_node);
    *n = (tile_node){.kind = TILE_ELEMENTWISE, .op = op, .type = a->type, .a = (tile_node *)a, .b = (tile_node *)b};
    return n;
}
static tile_node *constant(role_lowering *l, int64_t value) {
    tile_node *n = ARENA_NEW(l->memory, tile_node);
    *n = (tile_node){.kind = TILE_CONST, .type = tile_format_scalar("i64", 3), .value = {.i = value}};
    return n;
}

int64_t role_step_of(const role_op *r, const tile_node *n, int loop) {
    if (!role_has_loop(r, n, loop)) return 0;
    if (n->kind == TILE_LOOP) return 1;
    if (n->kind != TILE_ELEMENTWISE || !n->b) return -1;
    const int64_t a = role_step_of(r, n->a, loop), b = role_step_of(r, n->b, loop);
    if (a < 0 || b < 0) return -1;
    if (n->op == TILE_ADD) return a + b;
    if (n->op == TILE_MUL && n->b->kind == TILE_CONST && n->b->value.i >= 0 && n->b->value.i < 1 << 24)
        return a * n->b->value.i;
    if (n->op == TILE_MUL && n->a->kind == TILE_CONST && n->a->value.i >= 0 && n->a->value.i < 1 << 24)
        return b * n->a->value.i;
    return -1;
}

static const tile_node *widened_start(widening *w, const tile_node *start) {
    const tile_node *begin = role_rewrite(w->l, start, put_begin, w);
    if (w->begin->kind == TILE_CONST && start->kind != TILE_LOOP) { /* 0 * n and the like */
        int64_t low, high;
        if (role_range(w->l->r, begin, &low, &high) && low == high) begin = constant(w->l, low);
    }
    if (!w->shift) return begin;
    return begin->kind == TILE_CONST && begin->value.i == 0 ? w->shift : binary(w->l, TILE_ADD, begin, w->shift);
}

static const tile_node *widen(widening *w, const tile_node *n);

/* An operand of something that is widened: what has no such columns must be the same in every turn. */
static const tile_node *widen_operand(widening *w, const tile_node *n) {
    if (!n) return NULL;
    if (n->shape.rank && n->shape.extent[n->shape.rank - 1] == w->piece && w->piece > 1) return widen(w, n);
    return role_has_loop(w->l->r, n, w->loop->index) ? NULL : n;
}

static const tile_node *widen_load(widening *w, const tile_node *n) {
    const tile_access *a = n->access;
    int last = -1;
    for (int d = 0; d < a->rank; d++)
        if (a->item[d].kind != TILE_ITEM_POINT) last = d;
    for (int d = 0; d < a->rank; d++) {
        const tile_item *item = &a->item[d];
        if (item->limit && role_has_loop(w->l->r, item->limit, w->loop->index)) return NULL;
        if (d != last && role_has_loop(w->l->r, item->start, w->loop->index)) return NULL;
    }
    if (last < 0 || a->item[last].kind != TILE_ITEM_RANGE ||
        role_step_of(w->l->r, a->item[last].start, w->loop->index) != w->piece)
        return NULL;
    tile_access *access = ARENA_NEW(w->l->memory, tile_access);
    *access = *a;
    access->item[last].start = (tile_node *)widened_start(w, a->item[last].start);
    access->item[last].size = w->whole;
    tile_node *copy = ARENA_NEW(w->l->memory, tile_node);
    *copy = *n;
    copy->access = access;
    copy->shape.extent[n->shape.rank - 1] = w->whole;
    return copy;
}

/* n with all columns instead of one turn's; NULL when that cannot be said. */
static const tile_node *widen(widening *w, const tile_node *n) {
    tile_node copy = *n;
    switch (n->kind) {
    case TILE_VAR: {
        const tile_node *value = role_resolved(w->l->r, n);
        return value != n ? widen(w, value) : NULL;
    }
    case TILE_LOAD:
        return widen_load(w, n);
    case TILE_ELEMENTWISE:
    case TILE_SELECT:
    case TILE_CAST:
    case TILE_BROADCAST:
        copy.a = (tile_node *)widen_operand(w, n->a);
        copy.b = (tile_node *)widen_operand(w, n->b);
        copy.c = (tile_node *)widen_operand(w, n->c);
        if (!copy.a || (n->b && !copy.b) || (n->c && !copy.c)) return NULL;
        copy.shape.extent[n->shape.rank - 1] = w->whole;
        tile_node *out = ARENA_NEW(w->l->memory, tile_node);
        *out = copy;
        return out;
    default:
        return NULL;
    }
}

typedef struct product { /* in a stream loop: sum = sum + dot */
    role_statement *dot, *sum;
    weight w;
    int panel; /* whose panel it uses: an earlier product's number, or its own */
} product;

bool role_is_sum_of(const role_statement *s, const role_statement *dot) {
    const tile_node *v = s->value;
    if (s->kind != ROLE_EACH || s->declares || v->kind != TILE_ELEMENTWISE || v->op != TILE_ADD) return false;
    const tile_node *sum = v->a->kind == TILE_VAR && v->a->index == s->to ? v->a : v->b,
                    *other = sum == v->a ? v->b : v->a;
    return sum->kind == TILE_VAR && sum->index == s->to && other->kind == TILE_VAR && other->index == dot->to &&
           role_same_shape(&sum->shape, &other->shape);
}

static bool is_streamed(const role_lowering *l, const role_statement *loop, const role_statement *dot, weight *w) {
    if (find_weight(l, dot->left, dot->value, w)) return false;
    const tile_access *a = w->access;
    return !role_has_loop(l->r, a->item[0].start, loop->index) && begins_at(l, a->item[0].start, 8) &&
           role_step_of(l->r, a->item[1].start, loop->index) == w->columns;
}

/* The streamed products of a loop that is nothing but sums of products, and tiles for their left operands; 0: there are
 * none, or it is something else. */
static int find_products(role_lowering *l, role_statement *loop, product *out) {
    const role_op *r = l->r;
    const tile_node *begin = loop->begin, *end = loop->end;
    int count = 0;
    if (begin->kind != TILE_CONST || end->kind != TILE_CONST || end->value.i <= begin->value.i ||
        end->value.i - begin->value.i > 1 << 20)
        return 0;
    for (role_statement *s = loop->body; s; s = s->next) {
        if (s->kind == ROLE_EACH && s->declares && r->variables[s->to].value) continue;
        if (s->kind != ROLE_DOT || !s->next || !role_is_sum_of(s->next, s)) return 0;
        const int sum = s->next->to; /* no operand reads it, nothing else is added to it */
        for (const role_statement *o = loop->body; o; o = o->next) {
            if (o->kind == ROLE_DOT && (role_reads(r, o->left, sum) || role_reads(r, o->value, sum))) return 0;
            if (o->kind == ROLE_EACH && o->declares && role_reads(r, o->value, sum)) return 0;
            if (o->kind == ROLE_EACH && o != s->next && o->to == sum) return 0;
        }
        weight w;
        if (count < DOTS && is_streamed(l, loop, s, &w)) {
            out[count] = (product){s, s->next, w, count};
            count++;
        }
        s = s->next;
    }
    return count;
}

/* Columns of a panel that is written at once, with so many bytes for it. */
static int64_t turn_columns(const weight *w, int64_t rows, int64_t columns, int64_t room) {
    const int64_t grain = w->layout == ROLE_ATOMS ? ROLE_PAGE / 16 : role_band(w->format, w->row_columns),
                  most = min_i64(room, PANEL_BYTES) / (2 * rows);
    return panel_columns(w, columns) <= most ? columns : most / grain * grain;
}

static role_statement *new_loop(role_lowering *l, int line, int64_t turns) {
    tile_op *op = &l->r->op;
    const int index = op->loop_count++;
    const char **names = ARENA_ARRAY(l->memory, (size_t)op->loop_count, const char *);
    const tile_statement **loops = ARENA_ARRAY(l->memory, (size_t)op->loop_count + 1, const tile_statement *);
    if (index) {
        memcpy(names, op->loop_names, (size_t)index * sizeof *names);
        memcpy(loops, l->r->loops, (size_t)index * sizeof *loops);
    }
    tile_statement *s = ARENA_NEW(l->memory, tile_statement);
    *s = (tile_statement){
        .kind = TILE_FOR, .line = line, .index = index, .begin = constant(l, 0), .end = constant(l, turns)};
    names[index] = arena_printf(l->memory, "turn_%d", ++l->names);
    loops[index] = s;
    op->loop_names = names;
    l->r->loops = loops;
    role_statement *loop = role_new_statement(l, ROLE_FOR, line);
    loop->index = index;
    loop->begin = s->begin;
    loop->end = s->end;
    return loop;
}

static role_statement *panel_statement(role_lowering *l, int panel, const tile_node *value, int line) {
    role_statement *s = role_new_statement(l, ROLE_EACH, line);
    s->to = panel;
    s->value = value;
    s->declares = true;
    return s;
}

/* Takes products out of the loop's body; what is left of it is for other products. */
static void leave_others(role_statement *loop, const product *p, int count) {
    for (role_statement **at = &loop->body; *at;) {
        bool taken = false;
        for (int i = 0; i < count; i++) taken |= *at == p[i].dot || *at == p[i].sum;
        if (taken)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}
static bool has_dot(const role_statement *s) {
    while (s && s->kind != ROLE_DOT) s = s->next;
    return s != NULL;
}

/* Puts panels, products and sums in front of the loop; a loop that has nothing left goes away. Returns where it goes
 * on, NULL: nothing was done. */
static role_statement **stream_loop(role_lowering *l, role_statement **at) {
    product p[DOTS];
    role_statement *loop = *at;
    const int count = find_products(l, loop, p);
    const int64_t turns = loop->end->value.i - loop->begin->value.i;
    widening w = {.l = l, .loop = loop, .begin = loop->begin};
    const tile_node *lefts[DOTS], *row[DOTS], *column[DOTS];
    if (!count) return NULL;
    int64_t columns = 0, taken = 0, room = l->chip.shared - (16 << 10), panel_rows = 0;
    for (int i = 0; i < count; i++) { /* all take the same columns, so that they can share turns */
        const int64_t rows = p[i].dot->shape.extent[0];
        w.piece = p[i].w.columns;
        row[i] = p[i].w.access->item[0].start;
        column[i] = widened_start(&w, p[i].w.access->item[1].start);
        int64_t all = turns * w.piece;
        if (column[i]->kind == TILE_CONST) all = min_i64(all, p[i].w.row_columns - column[i]->value.i);
        if (all <= 0 || !are_pages(l, &p[i].w, column[i], all) || (i && (all != columns || w.piece != p[0].w.columns)))
            return NULL;
        columns = all;
        room -= ROLE_WARPS * rows * ceil_div(p[i].w.rows, 8) * 8 * 4;
        for (int j = 0; j < i && p[i].panel == i; j++)
            if (role_resolved(l->r, p[j].dot->left) == role_resolved(l->r, p[i].dot->left) &&
                panel_columns(&p[j].w, all) == panel_columns(&p[i].w, all) &&
                (rows == 1 || p[j].w.layout == p[i].w.layout))
                p[i].panel = p[j].panel;
        if (p[i].panel == i) panel_rows += rows;
    }
    for (int i = 0; i < count; i++) {
        const int64_t most = room <= 0 ? 0 : turn_columns(&p[i].w, panel_rows, columns, room);
        taken = i ? min_i64(taken, most) : most;
        if (taken <= 0 || (i && taken != columns && (p[i].w.layout != p[0].w.layout || p[i].w.format != p[0].w.format)))
            return NULL;
    }
    role_statement *turn = taken < columns ? new_loop(l, loop->line, ceil_div(columns, taken)) : NULL;
    w.whole = taken;
    if (turn) {
        tile_node *index = ARENA_NEW(l->memory, tile_node);
        *index = (tile_node){.kind = TILE_LOOP, .type = tile_format_scalar("i64", 3), .index = turn->index};
        w.shift = binary(l, TILE_MUL, index, constant(l, taken));
    }
    for (int i = 0; i < count; i++)
        if (!(lefts[i] = widen(&w, p[i].dot->left))) return NULL;
    leave_others(loop, p, count);
    role_statement *const after = has_dot(loop->body) ? loop : loop->next, **last = at,
                          **inner = turn ? &turn->body : NULL;
    if (turn)
        for (int i = 0; i < count; i++) { /* the parts begin at zero */
            tile_node *zero = ARENA_NEW(l->memory, tile_node);
            *zero = (tile_node){.kind = TILE_CONST, .type = tile_format_scalar("f32", 3)};
            *last = panel_statement(l, -1, zero, loop->line);
            p[i].dot->next = *last; /* whose variable comes with the product */
            last = &(*last)->next;
        }
    if (turn)
        *last = turn;
    else
        inner = last;
    int panels[DOTS];
    for (int i = 0; i < count; i++)
        if (p[i].panel == i) {
            panels[i] = new_weight_panel(l, &p[i].w, p[i].dot->shape.extent[0], taken);
            *inner = panel_statement(l, panels[i], lefts[i], p[i].dot->line);
            inner = &(*inner)->next;
        }
    for (int i = 0; i < count; i++) {
        make_skinny(l, p[i].dot, &p[i].w, panels[p[i].panel], row[i],
                    turn ? widened_start(&w, p[i].w.access->item[1].start) : column[i], taken);
        p[i].dot->adds = turn != NULL;
        if (turn) p[i].dot->next->to = p[i].dot->to;
        *inner = p[i].dot;
        inner = &p[i].dot->next;
    }
    *inner = NULL;
    last = turn ? &turn->next : inner;
    for (int i = 0; i < count; i++) {
        *last = p[i].sum;
        last = &p[i].sum->next;
    }
    *last = after;
    return after == loop ? &loop->next : last;
}

void role_stream_loops(role_lowering *l, role_statement **at, bool early) {
    while (*at) {
        role_statement *s = *at, **next = s->kind == ROLE_FOR && early ? stream_loop(l, at) : NULL;
        if (next) {
            at = next;
            continue;
        }
        const bool inner = early && (s->kind != ROLE_IF || role_is_early(l->r, s->value)) &&
                           (s->kind != ROLE_FOR || (role_is_early(l->r, s->begin) && role_is_early(l->r, s->end)));
        role_stream_loops(l, &s->body, inner);
        role_stream_loops(l, &s->otherwise, inner);
        at = &s->next;
    }
}

/* ---- single products ---- */

static bool stream_dot(role_lowering *l, role_statement **at) {
    role_statement *dot = *at;
    weight w;
    dot->why = find_weight(l, dot->left, dot->value, &w);
    if (dot->why) return false;
    const tile_node *row = w.access->item[0].start, *column = w.access->item[1].start;
    int64_t columns = w.columns;
    if (column->kind == TILE_CONST) columns = min_i64(columns, w.row_columns - column->value.i);
    dot->why = "its weight's slice does not begin and end at whole pages, at places that a loader can know";
    if (columns <= 0 || !begins_at(l, row, 8) || !are_pages(l, &w, column, columns)) return false;
    dot->why = "its left operand has more columns than a panel, and it is in no loop that could take them in turns";
    if (panel_columns(&w, columns) * dot->left->shape.extent[0] * 2 > PANEL_BYTES) return false;
    const tile_node *left = dot->left;
    if (columns < left->shape.extent[1]) { /* beyond the weight's last column is nothing */
        tile_access *access = ARENA_NEW(l->memory, tile_access);
        *access =
            (tile_access){.param = -1,
                          .rank = 2,
                          .item = {{.kind = TILE_ITEM_RANGE, .start = constant(l, 0), .size = left->shape.extent[0]},
                                   {.kind = TILE_ITEM_RANGE, .start = constant(l, 0), .size = columns}}};
        tile_node *part = ARENA_NEW(l->memory, tile_node);
        *part = (tile_node){.kind = TILE_PART,
                            .type = left->type,
                            .shape = {2, {left->shape.extent[0], columns}},
                            .a = (tile_node *)left,
                            .access = access};
        left = part;
    }
    const int panel = new_weight_panel(l, &w, left->shape.extent[0], columns);
    role_statement *each = panel_statement(l, panel, left, dot->line);
    make_skinny(l, dot, &w, panel, row, column, columns);
    each->next = dot;
    *at = each;
    return true;
}

/* A product of few rows with something that is read where it lies, in whole fragments of mma.m16n8k16. */
static bool fits_tensor_cores(const role_statement *s, const tile_node *right) {
    const int64_t m = s->shape.extent[0], n = s->shape.extent[1], k = s->left->shape.extent[1];
    const int64_t bytes = m * (k + 8) * 2 + (s->transposed ? 0 : ROLE_WARPS * m * n * 4); /* panel and parts */
    if (!tile_format_is_16_bit_float(s->left->type) || right->type != s->left->type || m > ROLE_SKINNY_ROWS ||
        bytes > PANEL_BYTES)
        return false;
    return s->transposed ? n % 16 == 0 && k % 32 == 0 && k <= 256 : n % 64 == 0 && k % 16 == 0;
}

static void plain_dot(role_lowering *l, role_statement *s) {
    const tile_node *right = role_resolved(l->r, s->value);
    const int64_t m = s->shape.extent[0], n = s->shape.extent[1];
    if (right->kind == TILE_TRANSPOSE) {
        s->transposed = true;
        s->value = right->a;
        s->dot = fits_tensor_cores(s, right) ? ROLE_TENSOR_ALONG_K : ROLE_ALONG_K;
    } else if (fits_tensor_cores(s, right)) {
        s->dot = ROLE_TENSOR_SPLIT_K;
        s->to = new_parts(l, s->to, l->r->op.variables[s->to].type, m, n, TILE_SUM);
    } else {
        const bool many = ceil_div(m, 4) * n >= 4 * ROLE_THREADS || m * n * 4 * ROLE_WARPS > PARTS_BYTES ||
                          s->left->shape.extent[1] < ROLE_WARPS;
        s->dot = many || s->left->shape.extent[1] * m * 4 > LEFT_BYTES ? ROLE_OUTPUTS : ROLE_SPLIT_K;
        if (s->dot == ROLE_SPLIT_K) s->to = new_parts(l, s->to, l->r->op.variables[s->to].type, m, n, TILE_SUM);
    }
}

void role_choose_dots(role_lowering *l, role_statement **at, bool early) {
    for (; *at; at = &(*at)->next) {
        role_statement *s = *at;
        if (s->kind == ROLE_DOT) {
            if (!early) s->why = "a loader cannot follow the conditions around it";
            if (early && stream_dot(l, at))
                at = &(*at)->next;
            else
                plain_dot(l, s);
        }
        const bool inner = early && (s->kind != ROLE_IF || role_is_early(l->r, s->value)) &&
                           (s->kind != ROLE_FOR || (role_is_early(l->r, s->begin) && role_is_early(l->r, s->end)));
        role_choose_dots(l, &s->body, inner);
        role_choose_dots(l, &s->otherwise, inner);
    }
}

/* ---- left operands ---- */

static const tile_node *columns_of(role_lowering *l, const tile_node *n, int dimension, int64_t first, int64_t count) {
    if (first == 0 && count == n->shape.extent[dimension]) return n;
    tile_access *access = ARENA_NEW(l->memory, tile_access);
    tile_node *part = ARENA_NEW(l->memory, tile_node);
    *access = (tile_access){.param = -1, .rank = 2};
    *part = (tile_node){.kind = TILE_PART, .type = n->type, .shape = n->shape, .a = (tile_node *)n, .access = access};
    part->shape.extent[dimension] = count;
    for (int d = 0; d < 2; d++)
        access->item[d] = (tile_item){
            .kind = TILE_ITEM_RANGE, .start = constant(l, d == dimension ? first : 0), .size = part->shape.extent[d]};
    return part;
}

static const tile_node *as_type(role_lowering *l, const tile_node *n, const tile_format *type) {
    if (n->type == type) return n;
    tile_node *cast = ARENA_NEW(l->memory, tile_node);
    *cast = (tile_node){
        .kind = TILE_CAST, .type = type, .shape = n->shape, .a = (tile_node *)n, .line = n->line, .column = n->column};
    return cast;
}

/* Puts EACH statements in front of the DOT, and more DOTs behind it where k is taken in parts. Returns where the next
 * statement is. */
static role_statement **stage_dot(role_lowering *l, role_statement **at) {
    role_statement *dot = *at, *const after = dot->next;
    const tile_format *type = l->r->op.variables[dot->to].type; /* what is summed */
    const tile_node *left = role_resolved(l->r, dot->left), *right = dot->value;
    if (dot->dot >= ROLE_TENSOR_ALONG_K) {
        const int panel = new_panel(l, left->type, left->shape.extent[0], left->shape.extent[1], 8);
        role_statement *each = panel_statement(l, panel, dot->left, dot->line);
        dot->from = panel;
        dot->left = NULL;
        each->next = dot;
        *at = each;
        return &dot->next;
    }
    if (left->kind == TILE_VAR && l->r->variables[left->index].place == ROLE_BUFFER && left->type == type) {
        dot->from = left->index;
        dot->left = NULL;
        return &dot->next;
    }
    const int64_t m = left->shape.extent[0], k = left->shape.extent[1],
                  most = max_i64(64, LEFT_BYTES / (4 * m) / 64 * 64);
    const int64_t step = k * m * 4 <= LEFT_BYTES || dot->dot == ROLE_SPLIT_K ? k : most;
    for (int64_t first = 0; first < k; first += step) {
        const int64_t count = min_i64(step, k - first);
        const int buffer = role_new_variable(l, "left", type, &(tile_shape){2, {m, count}});
        l->r->variables[buffer].why = "the left operand";
        role_statement *each =
            panel_statement(l, buffer, as_type(l, columns_of(l, dot->left, 1, first, count), type), dot->line);
        role_statement *part = ARENA_NEW(l->memory, role_statement);
        *part = *dot;
        part->left = NULL;
        part->from = buffer;
        part->adds = first > 0;
        part->value = columns_of(l, right, dot->transposed ? 1 : 0, first, count);
        each->next = part;
        *at = each;
        at = &part->next;
    }
    *at = after;
    return at;
}

void role_stage(role_lowering *l, role_statement **at) {
    while (*at) {
        role_statement *s = *at;
        if (s->kind == ROLE_DOT) {
            at = stage_dot(l, at);
            continue;
        }
        role_stage(l, &s->body);
        role_stage(l, &s->otherwise);
        at = &s->next;
    }
}
