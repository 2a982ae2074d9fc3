/* Wide products: loops that become one WIDE, and what may be done with its sums.
 *
 * A loop is taken when it is nothing but sums of products (over constant turns: of all columns, or of a part of them
 * that begins with a step, and with a chunk of decoded columns) and
 *   - each product is left · rightᵀ with a tile of 64 or 128 rows and 64, 128 or 256 columns, all of one shape;
 *   - the left operand is one slice of one tensor that the program only reads, that is MAPPED and lies in the products'
 *     type, so that rounding it to that type (P(f32(x[...]))) changes nothing;
 *   - the right operands are slices of weights, from a multiple of 8 rows on, in ATOMS of the products' type, or in
 *     BANDS of one block format, whose values are rounded to the products' type and whose blocks a chunk can have;
 *   - the sums fit into ROLE_WIDE_SUMS registers of each consumer, and a step into ROLE_WIDE_MOST pages;
 *   - a loader can know where the slices begin.
 * Columns beyond the tensors' last one are zeros on both sides.
 *
 * The sums' elements lie in registers, in an order that is the chip's. What follows may read them element by element,
 * where it stores a tile of the same shape; if anything else is done with them (a reduction, elements at other places),
 * the op is lowered without WIDE. */
#include "tile/role_internal.h"

#include <stdio.h>

typedef struct wide_product {
    role_statement *dot, *sum;
    const tile_access *left, *right;
    const tile_format *format; /* of a weight in BANDS; NULL: it lies in ATOMS */
    const tile_node *column;   /* the first one; NULL: 0 */
} wide_product;

/* The slice that a tile of a 16-bit type is, when all that is done to it is rounding to the type it has. */
const tile_access *role_plain_slice(const role_op *r, const tile_node *n, const tile_format *type) {
    const tile_format *f32 = tile_format_scalar("f32", 3);
    const tile_node *x = role_resolved(r, n);
    while (x->kind == TILE_CAST && (x->type == type || x->type == f32)) x = role_resolved(r, x->a);
    return x->kind == TILE_LOAD && x->type == type && x->shape.rank == 2 ? x->access : NULL;
}

/* The slice of a weight in ATOMS or BANDS whose values, rounded to the type, are the tile. */
static const tile_access *weight_slice(const role_op *r, const tile_node *n, const tile_format *type,
                                       const tile_format **format) {
    const tile_format *f32 = tile_format_scalar("f32", 3);
    const tile_access *plain = role_plain_slice(r, n, type);
    const tile_node *x = role_resolved(r, n);
    while (x->kind == TILE_CAST && (x->type == type || x->type == f32)) x = role_resolved(r, x->a);
    *format = NULL;
    if (!plain && x->kind == TILE_LOAD && x->shape.rank == 2 && tile_format_is_block(x->type)) *format = x->type;
    const tile_access *a = *format ? x->access : plain;
    const tile_param *w = a ? &r->op.params[a->param] : NULL;
    return w && w->kind == TILE_IN && r->layout[w->ordinal] == (*format ? ROLE_BANDS : ROLE_ATOMS) ? a : NULL;
}

int64_t role_decoded_columns(const tile_format *f) {
    enum { SLICE = 32, LONGEST = 256 };
    return f->block % SLICE || LONGEST % f->block ? 0 : max_i64(f->block, ROLE_WIDE_K);
}

int64_t role_decoded_row(const tile_format *f) {
    const int64_t columns = role_decoded_columns(f), bytes = columns ? tile_format_bytes(f, columns) : 0;
    if (!bytes) return 0;
    const int64_t grain = min_i64(bytes & -bytes, 16), row = (int64_t)align_up((uint64_t)(16 - grain + bytes), 16) | 16;
    return row <= ROLE_WIDE_BOX ? row : 0;
}

/* How so many rows of a format, of all products together, are decoded. Returns why they cannot be, or NULL. */
static const char *plan_decoding(const tile_format *f, int64_t rows, int64_t shared, role_decoded *out) {
    enum { THREE = 96 << 10, TWO = 128 << 10 };
    const int64_t columns = role_decoded_columns(f), steps = columns / ROLE_WIDE_K, row_bytes = role_decoded_row(f),
                  tile = rows * columns * 2;
    if (!columns) return "a block has not 32, 64, 128 or 256 elements";
    if (!row_bytes) return "a row of whole blocks is longer than what a copy takes";
    *out = (role_decoded){.format = f, .tile = -1, .columns = columns, .row_bytes = row_bytes, .rows = rows};
    out->buffers = steps == 1 && 3 * tile <= min_i64(THREE, shared) ? 3 : 2;
    if (out->buffers * tile > min_i64(TWO, shared)) return "so many decoded rows have no room in shared memory";
    out->step_rows = ceil_div(rows / ROLE_WIDE_PIECE, steps) * ROLE_WIDE_PIECE;
    out->page_rows = ROLE_WIDE_PIECE;
    while (out->step_rows % (2 * out->page_rows) == 0 && 2 * out->page_rows * row_bytes <= ROLE_PAGE)
        out->page_rows *= 2;
    return out->step_rows / out->page_rows >= ROLE_WIDE_MOST ? "a step's rows have no room in its pages" : NULL;
}

static tile_node *put_begin(role_lowering *l, const tile_node *n, void *context) {
    const role_statement *loop = context;
    return (void)l, n->kind == TILE_LOOP && n->index == loop->index ? (tile_node *)loop->begin : NULL;
}

static bool same_start(const tile_node *a, const tile_node *b) {
    if (a == b) return true;
    if (!a || !b || a->kind != b->kind || a->op != b->op || a->index != b->index || a->type != b->type) return false;
    if (a->kind == TILE_CONST) return a->value.i == b->value.i;
    if (a->kind == TILE_ELEMENTWISE) return same_start(a->a, b->a) && same_start(a->b, b->b);
    return a->kind == TILE_GRID || a->kind == TILE_LOOP || a->kind == TILE_VAR;
}

/* The slice walks the tensor's columns piece by piece, in rows that a loader can know: all columns, or whole steps from
 * *column on, which is a multiple of `grain` and surely one of the columns. */
static bool walks_columns(role_lowering *l, const role_statement *loop, const tile_access *a, int64_t grain,
                          const tile_node **column) {
    int64_t low, high;
    const role_op *r = l->r;
    const tile_item *rows = &a->item[0], *columns = &a->item[1];
    const tile_node *extent = r->op.params[a->param].extent[1];
    for (int d = 0; d < 2; d++)
        if (a->rank != 2 || a->item[d].kind != TILE_ITEM_RANGE || a->item[d].limit) return false;
    if (extent->kind != TILE_CONST || role_step_of(r, columns->start, loop->index) != columns->size ||
        role_has_loop(r, rows->start, loop->index) || !role_is_early(r, rows->start) ||
        !role_range(r, rows->start, &low, &high) || low < 0)
        return false;
    const int64_t walked = (loop->end->value.i - loop->begin->value.i) * columns->size;
    const tile_node *first = role_rewrite(l, columns->start, put_begin, (void *)loop);
    if (!role_range(r, first, &low, &high) || low < 0) return false;
    *column = high == 0 && walked >= extent->value.i ? NULL : first;
    return !*column || (high < extent->value.i && role_is_early(r, first) && role_divisor(r, first) % grain == 0 &&
                        walked % ROLE_WIDE_K == 0);
}

/* Says why the product is not wide; for products of few rows nobody asks. */
static bool refuse(role_lowering *l, int line, const char *format, ...) PRINTF_LIKE(3, 4);
static bool refuse(role_lowering *l, int line, const char *format, ...) {
    char why[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    l->r->not_wide = arena_printf(l->memory, "line %d: %s", line, why);
    return false;
}

/* False: the product cannot be wide. */
static bool find_product(role_lowering *l, const role_statement *loop, role_statement *dot, wide_product *out) {
    const role_op *r = l->r;
    const int64_t rows = dot->shape.extent[0], columns = dot->shape.extent[1];
    const tile_format *type = dot->left->type;
    const tile_node *right = role_resolved(r, dot->value);
    if ((rows != 64 && rows != 128) || !tile_format_is_16_bit_float(type) || right->kind != TILE_TRANSPOSE ||
        right->shape.rank != 2 || right->type != type)
        return false;
    *out = (wide_product){
        dot,         dot->next, role_plain_slice(r, dot->left, type), weight_slice(r, right->a, type, &out->format),
        out->format, NULL};
    if (!out->right) return false;
    if (columns != 64 && columns != 128 && columns != 256)
        return refuse(l, dot->line, "tiles of wgmma have 64, 128 or 256 columns, not %lld", (long long)columns);
    if (!out->left)
        return refuse(l, dot->line, "the left operand is no slice of a tensor of %s, which wgmma could read",
                      type->name);
    const tile_param *x = &r->op.params[out->left->param], *w = &r->op.params[out->right->param];
    if (x->kind != TILE_IN) return refuse(l, dot->line, "the left operand, %s, is written here", x->name);
    if (!r->mapped[x->ordinal]) return refuse(l, dot->line, "the left operand, %s, has no tensor map", x->name);
    const int64_t grain = out->format ? role_decoded_columns(out->format) : ROLE_WIDE_K;
    const tile_node *column;
    if (!walks_columns(l, loop, out->left, ROLE_WIDE_K, &out->column) ||
        !walks_columns(l, loop, out->right, grain ? grain : 1, &column) || !same_start(out->column, column) ||
        out->left->item[1].size != out->right->item[1].size || x->extent[1]->value.i != w->extent[1]->value.i)
        return refuse(l, dot->line,
                      "the loop does not take all columns of both operands, or whole steps of the same ones, in rows "
                      "that a loader can know");
    if (x->extent[1]->value.i % 8)
        return refuse(l, dot->line, "rows of %lld elements are no multiple of 16 bytes",
                      (long long)x->extent[1]->value.i);
    return role_divisor(r, out->right->item[0].start) % 8 == 0 ||
           refuse(l, dot->line, "the right operand does not begin at a multiple of 8 rows");
}

/* The products of a loop, and how their weights are decoded; 0: it is something else. */
static int find_products(role_lowering *l, const role_statement *loop, wide_product *out, role_decoded *decoded) {
    const role_op *r = l->r;
    int count = 0;
    if (loop->begin->kind != TILE_CONST || loop->end->kind != TILE_CONST ||
        loop->end->value.i <= loop->begin->value.i || loop->end->value.i - loop->begin->value.i > 1 << 20)
        return 0;
    for (role_statement *s = loop->body; s; s = s->next) {
        if (s->kind == ROLE_EACH && s->declares && r->variables[s->to].value) continue;
        if (s->kind != ROLE_DOT || !s->next || !role_is_sum_of(s->next, s) || count == ROLE_WIDE_PRODUCTS ||
            !find_product(l, loop, s, &out[count]))
            return 0;
        const wide_product *p = &out[count++];
        if (p->left->param != out->left->param || !same_start(p->left->item[0].start, out->left->item[0].start) ||
            !role_same_shape(&p->dot->shape, &out->dot->shape) || p->dot->left->type != out->dot->left->type ||
            p->format != out->format || !same_start(p->column, out->column) ||
            p->left->item[1].size != out->left->item[1].size)
            return refuse(l, s->line,
                          "products of a loop have one left operand, one shape, one walk, and weights of one format");
        for (const role_statement *o = loop->body; o; o = o->next) /* nothing else is added, no operand reads a sum */
            if (o != p->sum &&
                (o->to == p->sum->to || role_reads(r, o->value, p->sum->to) || role_reads(r, o->left, p->sum->to)))
                return 0;
        s = s->next;
    }
    *decoded = (role_decoded){.format = NULL};
    if (!count) return 0;
    const int64_t columns = out->dot->shape.extent[1], rows = out->dot->shape.extent[0];
    if (count * rows * columns > (int64_t)ROLE_WIDE_SUMS * ROLE_THREADS)
        return refuse(l, loop->line, "so many sums have no room in registers: %d x %lld x %lld", count, (long long)rows,
                      (long long)columns);
    if (!out->format && 1 + count * ceil_div(columns, ROLE_WIDE_PAGE) > ROLE_WIDE_MOST)
        return refuse(l, loop->line, "a step's rows have no room in its pages");
    if (!out->format) return count;
    const char *why = plan_decoding(out->format, count * columns, l->chip.shared, decoded);
    if (why) l->r->not_wide = arena_printf(l->memory, "weights in %s: %s", out->format->name, why);
    return why ? 0 : count;
}

/* The buffer for decoded weights. */
static int new_tile(role_lowering *l, const role_decoded *d, const tile_format *type) {
    const int v = role_new_variable(l, "decoded", type, &(tile_shape){2, {d->rows, d->buffers * d->columns}});
    l->r->variables[v].atoms = true;
    l->r->variables[v].why = arena_printf(l->memory, "weights, decoded for wgmma: %d chunks of %lld columns",
                                          d->buffers, (long long)d->columns);
    return v;
}

/* Puts a WIDE and the sums into the loop's place. Returns where it goes on; NULL: nothing was done. */
static role_statement **wide_loop(role_lowering *l, role_statement **at) {
    role_statement *loop = *at;
    wide_product p[ROLE_WIDE_PRODUCTS];
    role_decoded decoded;
    const int count = find_products(l, loop, p, &decoded);
    if (!count) return NULL;
    role_statement *s = role_new_statement(l, ROLE_WIDE, p[0].dot->line);
    s->product = p[0].dot->left->type;
    s->shape = p[0].dot->shape;
    s->why = decoded.format ? "many rows, the left operand in memory in the products' type, a block format's weights"
                            : "many rows, operands in memory in the products' type";
    if (decoded.format) decoded.tile = new_tile(l, &decoded, s->product);
    const int64_t last = ceil_div(l->r->op.params[p[0].left->param].extent[1]->value.i, ROLE_WIDE_K),
                  walked = (loop->end->value.i - loop->begin->value.i) * p[0].left->item[1].size / ROLE_WIDE_K;
    s->wide = (role_wide){.rows = s->shape.extent[0],
                          .columns = s->shape.extent[1],
                          .steps = p[0].column ? min_i64(walked, last) : last,
                          .column = p[0].column,
                          .last_step = last,
                          .left = p[0].left->param,
                          .row = p[0].left->item[0].start,
                          .count = count,
                          .decoded = decoded};
    *at = s;
    at = &s->next;
    for (int i = 0; i < count; i++) {
        const int to = p[i].dot->to;
        s->wide.product[i] = (struct role_wide_product){to, p[i].right->param, p[i].right->item[0].start};
        l->r->variables[to].place = ROLE_FRAGMENT;
        l->r->variables[to].why = "the tensor cores leave it there";
        *at = p[i].sum;
        at = &p[i].sum->next;
    }
    *at = loop->next;
    return at;
}

void role_wide_loops(role_lowering *l, role_statement **at, bool early) {
    while (*at) {
        role_statement *s = *at, **next = s->kind == ROLE_FOR && early ? wide_loop(l, at) : NULL;
        if (next) {
            at = next;
            continue;
        }
        const bool inner = early && (s->kind != ROLE_IF || role_is_early(l->r, s->value)) &&
                           (s->kind != ROLE_FOR || (role_is_early(l->r, s->begin) && role_is_early(l->r, s->end)));
        role_wide_loops(l, &s->body, inner);
        role_wide_loops(l, &s->otherwise, inner);
        at = &s->next;
    }
}

/* ---- what is done with the sums ---- */

bool role_is_fragment(const role_op *r, const tile_node *n, int with) {
    return (void)with, n->kind == TILE_VAR && r->variables[n->index].place == ROLE_FRAGMENT;
}

/* Rows and columns of a tile, all dimensions but the last together. */
static void matrix_of(const tile_shape *s, int64_t *rows, int64_t *columns) {
    *columns = s->rank ? s->extent[s->rank - 1] : 1;
    *rows = tile_shape_count(s) / *columns;
}

/* Every FRAGMENT in the tree is read at the element that is computed, in a tile of so many rows and columns, or, when
 * it has but one column, at its row. */
static bool stays(const role_op *r, const tile_node *n, int64_t rows, int64_t columns) {
    if (!role_any(r, n, role_is_fragment, 0)) return true;
    int64_t own_rows, own_columns;
    matrix_of(&n->shape, &own_rows, &own_columns);
    if (own_rows != rows || (own_columns != columns && own_columns != 1)) return false;
    if (n->kind == TILE_VAR)
        return r->variables[n->index].place == ROLE_FRAGMENT ||
               (r->variables[n->index].place == ROLE_FUSED &&
                stays(r, r->variables[n->index].value, own_rows, own_columns));
    if (n->kind != TILE_ELEMENTWISE && n->kind != TILE_SELECT && n->kind != TILE_CAST && n->kind != TILE_RESHAPE &&
        n->kind != TILE_BROADCAST)
        return false;
    for (int i = 0; i < role_operand_count(n); i++) {
        const tile_node *o = role_operand(n, i);
        if (o && !stays(r, o, own_rows, own_columns)) return false;
    }
    return true;
}

static role_spread fragment_spread(int64_t rows, int64_t columns) {
    return (role_spread){.rows = rows, .columns = columns, .vector = columns > 1 ? 2 : 1, .fragment = true};
}

static bool store_fits(const role_op *r, role_statement *s) {
    const tile_access *a = s->access;
    const tile_format *type = r->op.params[a->param].type;
    tile_shape shape = s->shape;
    int64_t rows, columns;
    if (shape.rank < 2 || role_scattered(s, &shape) || s->adds || a->item[a->rank - 1].kind != TILE_ITEM_RANGE ||
        type->bits < 8 || tile_format_is_block(type))
        return false;
    for (int d = 0; d < a->rank; d++)
        if (role_any(r, a->item[d].start, role_is_fragment, 0) ||
            (a->item[d].limit && role_any(r, a->item[d].limit, role_is_fragment, 0)))
            return false;
    matrix_of(&shape, &rows, &columns);
    s->spread = fragment_spread(rows, columns);
    return (rows == 64 || rows == 128) && columns % 64 == 0 && columns <= 256 && stays(r, s->value, rows, columns);
}

/* An EACH or REDUCE into a FRAGMENT. */
static bool tile_fits(const role_op *r, role_statement *s) {
    int64_t rows, columns;
    const bool reduce = s->kind == ROLE_REDUCE;
    if (reduce && (s->op == TILE_ARGMAX || s->value->shape.rank != 2 || s->axis != 1)) return false;
    matrix_of(reduce ? &s->value->shape : &r->op.variables[s->to].shape, &rows, &columns);
    s->spread = fragment_spread(rows, columns);
    if (reduce) s->reduce = ROLE_QUAD;
    return rows == 128 && (columns == 1 || (columns % 64 == 0 && columns <= 256)) && !(reduce && columns == 1) &&
           s->value->shape.rank <= 2 && stays(r, s->value, rows, columns);
}

bool role_fragments_fit(role_lowering *l, role_statement *s) {
    const role_op *r = l->r;
    for (; s; s = s->next) {
        const tile_node *const read[] = {s->value, s->left, s->begin, s->end};
        bool reads = false;
        for (size_t i = 0; i < COUNT_OF(read); i++) reads |= role_any(r, read[i], role_is_fragment, 0);
        for (int d = 0; s->access && d < s->access->rank; d++)
            reads |= role_any(r, s->access->item[d].start, role_is_fragment, 0);
        const bool writes = s->to >= 0 && r->variables[s->to].place == ROLE_FRAGMENT;
        bool fits = !reads && !writes;
        if (s->kind == ROLE_EACH && r->variables[s->to].place == ROLE_FUSED)
            fits = true;
        else if (s->kind == ROLE_STORE && reads)
            fits = store_fits(r, s);
        else if ((s->kind == ROLE_EACH || s->kind == ROLE_REDUCE) && writes)
            fits = tile_fits(r, s);
        else if (s->kind == ROLE_WIDE_TILE) {
            s->spread = fragment_spread(128, s->slice.rows);
            fits = writes && (s->slice.transposed || stays(r, s->left, 128, s->slice.rows));
        }
        if (!fits)
            return refuse(l, s->line,
                          "the sums lie in registers, and this is not done there: of them only elements at their own "
                          "places are read, and only the sum or maximum of a row of 128 rows is found");
        if (!role_fragments_fit(l, s->body) || !role_fragments_fit(l, s->otherwise)) return false;
    }
    return true;
}
