/* Products on wgmma: what the consumers do, the loader's pages, and the walk over the sums in registers. cuda_wide.h
 * has the device's side and says what lies where. */
#include "emit/emit_cuda_internal.h"

#include <inttypes.h>

static int64_t pages_of(const role_wide *w) { return ceil_div(w->columns, ROLE_WIDE_PAGE); } /* of a weight, a step */
static int64_t page_rows(const role_wide *w) { return min_i64(w->columns, ROLE_WIDE_PAGE); }

static const char *row_of(cuda_emit *e, const tile_node *row, int64_t more) {
    const char *text_of = emit_bare(e->memory, cuda_scalar(e, row));
    return more ? arena_printf(e->memory, "(int)(%s) + %" PRId64, text_of, more)
                : arena_printf(e->memory, "(int)(%s)", text_of);
}

static void print_page(cuda_emit *e, bool atoms, const char *from, const char *step, const char *row, int64_t rows) {
    cuda_print(e, "if (!mt_wide_page<%s>(mt, %s, %s, %s, %" PRId64 ")) return;", atoms ? "true" : "false", from, step,
               row, rows / 64);
}

/* The numbers of the first step and of the one behind the last; declared, where they are not constant. */
typedef struct wide_span {
    const char *begin, *end;
    bool fixed;
} wide_span;

static wide_span print_span(cuda_emit *e, const role_wide *w) {
    int64_t low, high;
    arena *m = e->memory;
    if (!w->column) return (wide_span){"0", arena_printf(m, "%" PRId64, w->steps), true};
    const wide_span s = {cuda_name(e, "begin"), cuda_name(e, "end"), false};
    const bool cut = !role_range(e->r, w->column, &low, &high) || high / ROLE_WIDE_K + w->steps > w->last_step;
    cuda_print(e, "const int %s = (int)(%s) / %d;", s.begin, emit_bare(m, cuda_scalar(e, w->column)), ROLE_WIDE_K);
    const char *end = arena_printf(m, "%s + %" PRId64, s.begin, w->steps);
    if (cut) end = arena_printf(m, "(int)mt_min(%s, %" PRId64 ")", end, w->last_step);
    cuda_print(e, "const int %s = %s;", s.end, end);
    return s;
}

static void open_steps(cuda_emit *e, const char *step, const wide_span *s) {
    cuda_print(e, "#pragma unroll 1");
    CUDA_OPEN(e, "for (int %s = %s; %s < %s; %s++) {", step, s->begin, step, s->end, step);
}

static void note_maps(const cuda_emit *e, const role_statement *s, bool *used) {
    const tile_param *params = e->r->op.params;
    for (; s; s = s->next) {
        if (s->kind == ROLE_WIDE_PAGES) used[params[s->wide.left].ordinal] = true;
        for (int i = 0; s->kind == ROLE_WIDE_PAGES && i < s->wide.count; i++)
            used[params[s->wide.product[i].param].ordinal] = true;
        if (s->kind == ROLE_WIDE_TILE_PAGES) used[params[s->slice.param].ordinal] = true;
        note_maps(e, s->body, used);
        note_maps(e, s->otherwise, used);
    }
}

/* Pages of weights come first: they wait for nobody. */
static bool begins_with_weights(const cuda_emit *e, const role_statement *s) {
    return s == e->r->loader && s->kind == ROLE_WIDE_PAGES && s->wide.decoded.format;
}

void cuda_wide_ready(cuda_emit *e) {
    bool used[TILE_PARAMS] = {false};
    note_maps(e, e->r->loader, used);
    for (int t = 0; t < TILE_PARAMS; t++)
        if (used[t]) cuda_print(e, "mt_map_ready(mt, %d);", t);
    if (!begins_with_weights(e, e->r->loader)) cuda_print(e, "if (!mt_operands_ready(mt)) return;");
}

/* ---- weights in blocks ---- */

static int64_t chunk_steps(const role_decoded *d) { return d->columns / ROLE_WIDE_K; }
static int64_t chunk_turns(const role_decoded *d) { return d->rows / d->step_rows; } /* steps that decode */
static int64_t step_pages(const role_decoded *d) { return d->step_rows / d->page_rows; }

/* Opens a loop over the pages of rows [first, first + rows) of a chunk; gives the name of a page's first row. */
static const char *open_pages(cuda_emit *e, const role_decoded *d, const char *first, int64_t rows) {
    const char *at = cuda_name(e, "at");
    cuda_print(e, "#pragma unroll 1");
    CUDA_OPEN(e, "for (int %s = %s; %s < %s + %" PRId64 "; %s += %" PRId64 ") {", at, first, at, first, rows, at,
              d->page_rows);
    return at;
}

static int64_t weight_columns(const cuda_emit *e, const role_wide *w) {
    return e->r->op.params[w->product[0].param].extent[1]->value.i;
}

/* The byte of a band's row that the chunk begins with. */
static const char *chunk_begin(const cuda_emit *e, const role_wide *w, const char *chunk) {
    const role_decoded *d = &w->decoded;
    const int64_t columns = weight_columns(e, w), band = role_band(d->format, columns),
                  bytes = tile_format_bytes(d->format, d->columns);
    return band >= columns ? arena_printf(e->memory, "%s * %" PRId64, chunk, bytes)
                           : arena_printf(e->memory, "%s %% %" PRId64 " * %" PRId64, chunk, band / d->columns, bytes);
}

/* The loader's pages of rows of a chunk. The whole bands have one map, a narrower last band the other. */
static void print_block_pages(cuda_emit *e, const role_wide *w, const char *const weight[2], const char *chunk,
                              const char *first, int64_t rows) {
    arena *m = e->memory;
    const role_decoded *d = &w->decoded;
    const int64_t columns = weight_columns(e, w), band = role_band(d->format, columns), bands = ceil_div(columns, band);
    const char *x = cuda_name(e, "x"), *which = "0", *number = "0";
    cuda_print(e, "const int %s = %s & ~15;", x, chunk_begin(e, w, chunk));
    if (bands > 1) {
        number = cuda_name(e, "band");
        cuda_print(e, "const int %s = %s / %" PRId64 ";", number, chunk, band / d->columns);
        if (columns % band) {
            which = arena_printf(m, "%s == %" PRId64, number, bands - 1);
            number = arena_printf(m, "%s %% %" PRId64, number, bands - 1);
        }
    }
    const char *at = open_pages(e, d, first, rows);
    cuda_print(e, "if (!mt_packed_page<%" PRId64 ", %" PRId64 ", %" PRId64 ">(mt, %s, %s, %s, %s, %s, %s)) return;",
               d->page_rows / ROLE_WIDE_PIECE, d->row_bytes, w->columns, weight[0], weight[1], which, x, number, at);
    cuda_close(e);
}

/* The consumers' part of the same: to where `tile` is. */
static void print_decode(cuda_emit *e, const role_statement *s, const char *tile, const char *chunk, const char *first,
                         int64_t rows) {
    arena *m = e->memory;
    const role_decoded *d = &s->wide.decoded;
    const int64_t columns = weight_columns(e, &s->wide);
    const bool aligned = !strcmp(chunk, "0") || tile_format_bytes(d->format, d->columns) % 16 == 0;
    const char *skip = aligned ? "0" : arena_printf(m, "%s & 15", chunk_begin(e, &s->wide, chunk));
    const char *there = columns % d->columns == 0
                            ? arena_printf(m, "%" PRId64, d->columns)
                            : arena_printf(m, "%" PRId64 " - %s * %" PRId64, columns, chunk, d->columns);
    const char *at = open_pages(e, d, first, rows);
    cuda_print(e, "mt_decode_page<%s, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ">(mt, %s + %s * 128, %s, %s);",
               cuda_format_of(e->unit, role_banded(m, d->format, columns), s->product), d->columns, d->row_bytes,
               d->page_rows / ROLE_WIDE_PIECE, d->rows, tile, at, skip, there);
    cuda_close(e);
}

/* The number of the chunk that a span begins with, and of the one behind its last. */
static const char *first_chunk(cuda_emit *e, const role_wide *w, const wide_span *s) {
    const int64_t steps = chunk_steps(&w->decoded);
    return s->fixed || steps == 1 ? s->begin : arena_printf(e->memory, "%s / %" PRId64, s->begin, steps);
}
static const char *end_chunk(cuda_emit *e, const role_wide *w, const wide_span *s) {
    const int64_t steps = chunk_steps(&w->decoded);
    if (s->fixed) return arena_printf(e->memory, "%" PRId64, ceil_div(w->steps, steps));
    return steps == 1 ? s->end : arena_printf(e->memory, "(%s + %" PRId64 ") / %" PRId64, s->end, steps - 1, steps);
}

/* In a step: the part of the next chunk that is its turn. Opens a block. */
static const char *open_turn(cuda_emit *e, const role_wide *w, const wide_span *span, const char *step,
                             const char **chunk) {
    arena *m = e->memory;
    const role_decoded *d = &w->decoded;
    const int64_t steps = chunk_steps(d), turns = chunk_turns(d);
    const char *turn = NULL, *more = "";
    *chunk = cuda_name(e, "chunk");
    if (steps == 1)
        cuda_print(e, "const int %s = %s + 1;", *chunk, step);
    else {
        turn = cuda_name(e, "turn");
        cuda_print(e, "const int %s = (%s + %" PRId64 ") / %" PRId64 ", %s = (%s + %" PRId64 ") %% %" PRId64 ";",
                   *chunk, step, steps, steps, turn, step, steps, steps);
        if (turns < steps) more = arena_printf(m, " && %s < %" PRId64, turn, turns);
    }
    CUDA_OPEN(e, "if (%s < %s%s) {", *chunk, end_chunk(e, w, span), more);
    return turn ? arena_printf(m, "%s * %" PRId64, turn, d->step_rows) : "0";
}

static void decoded_pages(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const role_wide *w = &s->wide;
    const role_decoded *d = &w->decoded;
    const tile_param *params = e->r->op.params;
    const char *step = cuda_name(e, "step"), *left = cuda_name(e, "left"), *row = cuda_name(e, "first"), *weight[2],
               *chunk;
    cuda_print(e, "const cuda_map *const %s = mt_map(mt, %d);", left, params[w->left].ordinal);
    cuda_print(e, "const int %s = %s;", row, row_of(e, w->row, 0));
    for (int i = 0; i < 2; i++) {
        const struct role_wide_product *p = &w->product[i < w->count ? i : 0];
        weight[i] = i < w->count ? cuda_name(e, "weight") : weight[0];
        if (i < w->count)
            cuda_print(e, "const mt_weight %s = {mt_map(mt, %d), %s};", weight[i], params[p->param].ordinal,
                       row_of(e, p->row, 0));
    }
    const int64_t steps = chunk_steps(d);
    const bool first_of_all = begins_with_weights(e, s);
    const wide_span span = print_span(e, w);
    if (first_of_all) cuda_print(e, "if (mt->holds && !mt_hold(mt)) return;");
    cuda_print(e, "#pragma unroll 1");
    CUDA_OPEN(e, "for (int %s = %s-%" PRId64 "; %s < %s; %s++) { // up to %s: the first chunk", step,
              span.fixed ? "" : arena_printf(m, "%s ", span.begin), steps, step, span.end, step, span.begin);
    if (first_of_all) cuda_print(e, "if (%s == %s && !mt_operands_ready(mt)) return;", step, span.begin);
    cuda_print(e, "if (%s >= %s)", step, span.begin);
    print_page(e, false, left, step, row, w->rows);
    const char *at = open_turn(e, w, &span, step, &chunk);
    print_block_pages(e, w, weight, chunk, at, d->step_rows);
    cuda_close(e);
    cuda_close(e);
}

static void decoded_products(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const role_wide *w = &s->wide;
    const role_decoded *d = &w->decoded;
    const int64_t steps = chunk_steps(d), all = 1 + step_pages(d), bytes = d->rows * d->columns * 2,
                  wide = w->rows == 128 && w->count == 1 ? w->columns : page_rows(w), /* one wgmma's, or two's */
        columns = w->rows == 128 ? wide : wide / 2;                                   /* of a warpgroup */
    const char *f16 = s->product->scalar.exponent == 8 ? "false" : "true", *step = cuda_name(e, "step"),
               *page = cuda_name(e, "page"), *before = cuda_name(e, "before"), *left = cuda_name(e, "left"),
               *deep = cuda_name(e, "deep"), *tile = cuda_name(e, "tile"), *buffer = cuda_name(e, "buffer"),
               *next = cuda_name(e, "next"), *right = cuda_name(e, "right"), *chunk;
    cuda_print(e, "char *const %s = (char *)%s;", tile, e->names[d->tile]);
    const wide_span span = print_span(e, w);
    print_decode(e, s, tile, first_chunk(e, w, &span), "0", d->rows);
    cuda_print(e, "mt_fence_shared();");
    cuda_print(e, "mt_sync();");
    cuda_print(e, "const bool %s = mt->launch->pages >= %" PRId64 "; // room for two steps", deep, 2 * all);
    cuda_print(e, "uint32_t %s = MT_NONE; // the left operand's page whose products may be under way", before);
    cuda_print(e, "int %s = 0; // where the chunk lies that is multiplied", buffer);
    open_steps(e, step, &span);
    cuda_print(e, "const uint32_t %s = mt->page;", page);
    cuda_print(e, "const uint64_t %s = mt_wide_take(mt, %s);", left, w->rows == 128 ? "MT_PIECE" : "0");
    cuda_print(e, "const char *const %s = %s + %s%s%s;", right, tile, buffer,
               steps > 1 ? arena_printf(m, " + %s %% %" PRId64 " * %" PRId64, step, steps, d->rows * 128) : "",
               w->rows == 128 ? "" : arena_printf(m, " + mt->warp / 4 * %" PRId64, columns * 128));
    cuda_print(e, "mt_wgmma_fence();");
    for (int i = 0; i < w->count; i++)
        for (int64_t p = 0; p < w->columns / wide; p++)
            cuda_print(e, "mt_wide_step<%s, %" PRId64 ", %" PRId64 ">(%s, %s, mt_wgmma_matrix(%s + %" PRId64 "));", f16,
                       columns, p * columns / 2, e->names[w->product[i].to], left, right,
                       (i * w->columns + p * wide) * 128);
    cuda_print(e, "mt_wgmma_commit();");
    cuda_print(e, "const int %s = %s < %" PRId64 " ? %s + %" PRId64 " : 0;", next, buffer, (d->buffers - 1) * bytes,
               buffer, bytes);
    const char *at = open_turn(e, w, &span, step, &chunk);
    print_decode(e, s, arena_printf(m, "%s + %s", tile, next), chunk, at, d->step_rows);
    cuda_close(e);
    const char *last = steps > 1 ? arena_printf(m, "%s %% %" PRId64 " == %" PRId64, step, steps, steps - 1) : NULL;
    const char *later = d->buffers > 2 ? deep : last ? arena_printf(m, "%s && !(%s)", deep, last) : "false";
    cuda_print(e, "mt_wide_done(mt, %s, %s, %s);", later, page, before);
    if (last) CUDA_OPEN(e, "if (%s) {", last);
    cuda_print(e, "mt_fence_shared();");
    cuda_print(e, "mt_sync();");
    cuda_print(e, "%s = %s;", buffer, next);
    if (last) cuda_close(e);
    cuda_close(e);
    cuda_print(e, "mt_wgmma_wait<0>();");
    cuda_print(e, "if (%s != MT_NONE) mt_wide_release(mt, %s, 1);", before, before);
}

void cuda_wide_pages(cuda_emit *e, const role_statement *s) {
    const role_wide *w = &s->wide;
    if (w->decoded.format) {
        decoded_pages(e, s);
        return;
    }
    const tile_param *params = e->r->op.params;
    const char *step = cuda_name(e, "step"), *left = cuda_name(e, "left"), *row = cuda_name(e, "first"),
               *weight[ROLE_WIDE_PRODUCTS], *first[ROLE_WIDE_PRODUCTS];
    cuda_print(e, "const cuda_map *const %s = mt_map(mt, %d);", left, params[w->left].ordinal);
    cuda_print(e, "const int %s = %s;", row, row_of(e, w->row, 0));
    for (int i = 0; i < w->count; i++) {
        weight[i] = cuda_name(e, "weight");
        first[i] = cuda_name(e, "first");
        cuda_print(e, "const cuda_map *const %s = mt_map(mt, %d);", weight[i], params[w->product[i].param].ordinal);
        cuda_print(e, "const int %s = %s;", first[i], row_of(e, w->product[i].row, 0));
    }
    const wide_span span = print_span(e, w);
    open_steps(e, step, &span);
    print_page(e, false, left, step, row, w->rows);
    for (int i = 0; i < w->count; i++)
        for (int64_t p = 0; p < pages_of(w); p++)
            print_page(e, true, weight[i], step,
                       p ? arena_printf(e->memory, "%s + %" PRId64, first[i], p * ROLE_WIDE_PAGE) : first[i],
                       page_rows(w));
    cuda_close(e);
}

static void dense_products(cuda_emit *e, const role_statement *s) {
    const role_wide *w = &s->wide;
    const int64_t pages = pages_of(w), all = 1 + w->count * pages,
                  columns = w->rows == 128 ? page_rows(w) : page_rows(w) / 2; /* of a warpgroup in a page */
    const char *f16 = s->product->scalar.exponent == 8 ? "false" : "true", *step = cuda_name(e, "step"),
               *page = cuda_name(e, "page"), *before = cuda_name(e, "before"), *left = cuda_name(e, "left"),
               *deep = cuda_name(e, "deep");
    cuda_print(e, "const bool %s = mt->launch->pages >= %" PRId64 "; // room for two steps", deep, 2 * all);
    cuda_print(e, "uint32_t %s = mt->page;", before);
    const wide_span span = print_span(e, w);
    open_steps(e, step, &span);
    cuda_print(e, "const uint32_t %s = mt->page;", page);
    cuda_print(e, "const uint64_t %s = mt_wide_take(mt, %s);", left, w->rows == 128 ? "MT_PIECE" : "0");
    const char *right[ROLE_WIDE_MOST];
    for (int i = 0, at = 0; i < w->count; i++)
        for (int64_t p = 0; p < pages; p++, at++) {
            right[at] = cuda_name(e, "right");
            cuda_print(e, "const uint64_t %s = mt_wide_take(mt, %" PRId64 ");", right[at],
                       w->rows == 128 ? 0 : columns * 128);
        }
    cuda_print(e, "mt_wgmma_fence();");
    for (int i = 0, at = 0; i < w->count; i++)
        for (int64_t p = 0; p < pages; p++, at++)
            cuda_print(e, "mt_wide_step<%s, %" PRId64 ", %" PRId64 ">(%s, %s, %s);", f16, columns, p * columns / 2,
                       e->names[w->product[i].to], left, right[at]);
    cuda_print(e, "mt_wgmma_commit();");
    CUDA_OPEN(e, "if (%s) {", deep);
    cuda_print(e, "mt_wgmma_wait<1>();");
    cuda_print(e, "if (%s > %s) mt_wide_release(mt, %s, %" PRId64 ");", step, span.begin, before, all);
    e->indent--;
    CUDA_OPEN(e, "} else {");
    cuda_print(e, "mt_wgmma_wait<0>();");
    cuda_print(e, "mt_wide_release(mt, %s, %" PRId64 ");", page, all);
    cuda_close(e);
    cuda_print(e, "%s = %s;", before, page);
    cuda_close(e);
    cuda_print(e, "mt_wgmma_wait<0>();");
    cuda_print(e, "if (%s) mt_wide_release(mt, %s, %" PRId64 ");", deep, before, all);
}

/* The sums are arrays of the function's own, declared where the statement is. */
void cuda_wide(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const role_wide *w = &s->wide;
    const int64_t sums = w->rows * w->columns / ROLE_THREADS;
    for (int i = 0; i < w->count; i++) {
        const char *name = e->names[w->product[i].to];
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int i = 0; i < %" PRId64 "; i++) %s[i] = 0;", sums, name);
    }
    CUDA_OPEN(e, "{");
    w->decoded.format ? decoded_products(e, s) : dense_products(e, s);
    cuda_close(e);
    for (int i = 0; i < w->count; i++) cuda_print(e, "mt_wgmma_done(%s);", e->names[w->product[i].to]);
    if (e->r->op.params[w->left].extent[0]->kind == TILE_CONST) return;
    /* The map has the operand's whole extent; beyond the current one are zeros. */
    const char *there = cuda_name(e, "there");
    cuda_print(e, "const int %s = (int)mt_clamp(%s - %s, 0, %" PRId64 ");", there, cuda_extent(e, w->left, 0),
               emit_bare(m, cuda_scalar(e, w->row)), w->rows);
    CUDA_OPEN(e, "if (%s < %" PRId64 ") {", there, w->rows);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < %" PRId64 "; i++) {", sums);
    CUDA_OPEN(e, "if (mt_wide_row<%" PRId64 ">(mt, i / 2 %% 2) >= %s) {", w->rows, there);
    for (int i = 0; i < w->count; i++) cuda_print(e, "%s[i] = 0;", e->names[w->product[i].to]);
    cuda_close(e);
    cuda_close(e);
    cuda_close(e);
}

/* ---- tiles in registers ---- */

static const char *type_name(const tile_format *f) { return f->scalar.exponent == 8 ? "MT_BF16" : "MT_F16"; }

/* A nest over a FRAGMENT of the statement's spread, and the names of its rows and columns. */
static cuda_rows fragment_nest(cuda_emit *e, cuda_nest *x, const role_spread *s) {
    cuda_nest_begin(e, x, s->vector);
    x->group = cuda_name(e, "group");
    x->half = cuda_name(e, "half");
    cuda_rows rows = {{cuda_name(e, "row"), LEVEL_ROW, false, 0}, cuda_index_constant(0)};
    if (s->columns > 1) rows.column = (cuda_index){cuda_name(e, "k"), LEVEL_VECTOR, true, 0};
    return rows;
}

static cuda_value fragment_value(cuda_nest *x, const tile_node *n, const cuda_rows *rows) {
    const cuda_index at[2] = {rows->row, rows->column};
    cuda_index below[TILE_RANK];
    for (int d = 0; d < n->shape.rank; d++)
        below[d] = n->shape.extent[d] == 1 ? cuda_index_constant(0) : at[d + 2 - n->shape.rank];
    return cuda_element(x, n, below);
}

static void open_halves(cuda_nest *x, const role_spread *s, const cuda_rows *rows) {
    cuda_emit *e = x->e;
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < 2; %s++) {", x->half, x->half, x->half);
    cuda_print(e, "const int %s = mt_wide_row<%" PRId64 ">(mt, %s);", rows->row.text, s->rows, x->half);
    cuda_nest_lines(x, LEVEL_ROW);
}

static void open_groups(cuda_nest *x, const role_spread *s, const cuda_rows *rows) {
    cuda_emit *e = x->e;
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", x->group, x->group,
              s->rows * s->columns / ROLE_THREADS / 4, x->group);
    cuda_print(e, "const int %s = mt_wide_column<%" PRId64 ", %" PRId64 ">(mt, %s);", rows->column.text, s->rows,
               s->columns, x->group);
    cuda_nest_lines(x, LEVEL_VECTOR);
}

void cuda_fragment_open(cuda_nest *x, const role_spread *s, const cuda_rows *rows, const char *condition) {
    open_halves(x, s, rows);
    if (condition) CUDA_OPEN(x->e, "if (%s) {", condition);
    open_groups(x, s, rows);
}

static void open_lanes(cuda_nest *x) {
    cuda_print(x->e, "#pragma unroll");
    CUDA_OPEN(x->e, "for (int j = 0; j < %d; j++) {", x->vector);
    cuda_nest_lines(x, LEVEL_LANE);
}

static void print_each(cuda_emit *e, const role_statement *s, const tile_node *of) {
    cuda_nest x;
    const cuda_rows rows = fragment_nest(e, &x, &s->spread);
    const char *name = e->names[s->to], *value = emit_bare(e->memory, fragment_value(&x, of, &rows).text);
    open_halves(&x, &s->spread, &rows);
    if (s->spread.columns > 1) {
        open_groups(&x, &s->spread, &rows);
        open_lanes(&x);
        cuda_print(e, "%s[%s * 4 + %s * 2 + j] = %s;", name, x.group, x.half, value);
        cuda_close(e);
        cuda_close(e);
    } else
        cuda_print(e, "%s[%s] = %s;", name, x.half, value);
    cuda_close(e);
}

/* A mask costs only the tiles that it crosses. */
void cuda_fragment_each(cuda_emit *e, const role_statement *s) {
    if (s->whole) {
        CUDA_OPEN(e, "if (%s) {", emit_bare(e->memory, cuda_scalar(e, s->whole)));
        print_each(e, s, s->value->b);
        e->indent--;
        CUDA_OPEN(e, "} else {");
    }
    print_each(e, s, s->value);
    if (s->whole) cuda_close(e);
}

/* The four lanes of a row, each of its columns. */
void cuda_fragment_reduce(cuda_emit *e, const role_statement *s) {
    cuda_nest x;
    const cuda_rows rows = fragment_nest(e, &x, &s->spread);
    const char *name = e->names[s->to], *joined = cuda_name(e, "joined"),
               *how = s->op == TILE_SUM          ? "MT_SUM"
                      : s->op == TILE_REDUCE_MAX ? "MT_LARGEST"
                                                 : "MT_SMALLEST",
               *value = emit_bare(e->memory, fragment_value(&x, s->value, &rows).text);
    open_halves(&x, &s->spread, &rows);
    const char *neutral = cuda_neutral(s->value->type, s->op);
    cuda_print(e, "%s %s[2] = {%s, %s}; // two sums wait for one another half as long", emit_c_type(s->value->type),
               joined, neutral, neutral);
    open_groups(&x, &s->spread, &rows);
    open_lanes(&x);
    cuda_print(e, "%s[j] = mt_join(%s[j], %s, %s);", joined, joined, value, how);
    cuda_close(e);
    cuda_close(e);
    cuda_print(e, "%s[%s] = mt_join_lanes<4>(mt_join(%s[0], %s[1], %s), %s);", name, x.half, joined, joined, how, how);
    cuda_close(e);
}

/* The left operand's words: of 16 columns of k, two neighbours of each half, and those 8 further on. */
static const char *print_tile(cuda_emit *e, const role_statement *s) {
    cuda_nest x;
    const role_spread spread = {.rows = 128, .columns = s->slice.rows, .vector = 2, .fragment = true};
    const tile_node *left = s->left;
    const cuda_rows rows = fragment_nest(e, &x, &spread);
    const bool pairs = left->kind == TILE_CAST && left->a->type == tile_format_scalar("f32", 3);
    const char *tile = cuda_name(e, "tile"), *values = cuda_name(e, "values"),
               *value = emit_bare(e->memory, fragment_value(&x, pairs ? left->a : left, &rows).text);
    cuda_print(e, "uint32_t %s[%" PRId64 "][4];", tile, s->slice.rows / 16);
    cuda_fragment_open(&x, &spread, &rows, NULL);
    cuda_print(e, "%s %s[2];", pairs ? "float" : "uint32_t", values);
    open_lanes(&x);
    cuda_print(e, "%s[j] = %s;", values, value);
    cuda_close(e);
    const char *to = arena_printf(e->memory, "%s[%s / 2][%s %% 2 * 2 + %s]", tile, x.group, x.group, x.half);
    if (pairs)
        cuda_print(e, "%s = mt_pair<%s>(%s[0], %s[1]);", to, type_name(s->product), values, values);
    else
        cuda_print(e, "%s = %s[0] | %s[1] << 16;", to, values, values);
    cuda_close(e);
    cuda_close(e);
    return tile;
}

void cuda_wide_tile(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const role_wide_slice *w = &s->slice;
    const int64_t pages = w->columns / 64;
    const char *f16 = s->product->scalar.exponent == 8 ? "false" : "true", *name = e->names[s->to],
               *first = cuda_name(e, "page"), *taken[ROLE_LEAST_PAGES];
    const tile_item *rows = &w->access->item[0];
    const char *tile = w->transposed ? NULL : print_tile(e, s);
    cuda_print(e, "const uint32_t %s = mt->page;", first);
    for (int64_t p = 0; p < pages; p++) {
        taken[p] = cuda_name(e, "slice");
        cuda_print(e, "const char *const %s = mt_page_take(mt);", taken[p]);
        cuda_print(e, "mt_page_next(mt);");
    }
    const bool fixed = e->r->op.params[w->param].extent[0]->kind == TILE_CONST; /* else it may be a live value */
    const char *limit = rows->limit ? cuda_scalar(e, rows->limit) : NULL,
               *extent = fixed ? NULL : cuda_extent(e, w->param, 0);
    if (limit && extent) limit = arena_printf(m, "mt_min(%s, %s)", extent, emit_bare(m, limit));
    if (!limit) limit = extent;
    if (limit) {
        const char *there = cuda_name(e, "there");
        cuda_print(e, "const int %s = (int)mt_clamp(%s - %s, 0, %" PRId64 ");", there, limit,
                   cuda_scalar(e, rows->start), w->rows);
        CUDA_OPEN(e, "if (%s < %" PRId64 ") { // beyond the limit are zeros", there, w->rows);
        for (int64_t p = 0; p < pages; p++)
            cuda_print(e, "mt_page_clear(mt, %s, %s, %" PRId64 ");", taken[p], there, w->rows);
        cuda_print(e, "mt_fence_shared();");
        cuda_print(e, "mt_sync();");
        cuda_close(e);
    }
    if (!s->adds) {
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int i = 0; i < %" PRId64 "; i++) %s[i] = 0;",
                   (w->transposed ? w->rows : w->columns) * 128 / ROLE_THREADS, name);
    }
    cuda_print(e, "mt_wgmma_fence();");
    for (int64_t p = 0; p < pages; p++)
        if (w->transposed)
            cuda_print(
                e, "mt_wide_step<%s, %" PRId64 ", 0>(%s, mt_tile_matrix(mt, %s, %" PRId64 "), mt_wgmma_matrix(%s));",
                f16, w->rows, name, e->names[s->from], p, taken[p]);
        else
            cuda_print(e, "mt_tile_step<%s, %" PRId64 ", %" PRId64 ">(%s, %s, mt_wgmma_matrix(%s));", f16, w->rows / 16,
                       p * 32, name, tile, taken[p]);
    cuda_print(e, "mt_wgmma_commit();");
    cuda_print(e, "mt_wgmma_wait<0>();");
    cuda_print(e, "mt_wide_release(mt, %s, %" PRId64 ");", first, pages);
    cuda_print(e, "mt_wgmma_done(%s);", name);
}

void cuda_wide_tile_pages(cuda_emit *e, const role_statement *s) {
    const role_wide_slice *w = &s->slice;
    const tile_access *a = w->access;
    const char *from = cuda_name(e, "slices"), *z = cuda_name(e, "first"), *y = "0";
    cuda_print(e, "const cuda_map *const %s = mt_map(mt, %d);", from, e->r->op.params[w->param].ordinal);
    cuda_print(e, "const int %s = %s;", z, row_of(e, a->item[0].start, 0));
    if (a->rank == 3) {
        y = cuda_name(e, "at");
        cuda_print(e, "const int %s = %s;", y, row_of(e, a->item[1].start, 0));
    }
    for (int64_t x = 0; x < w->columns; x += 64)
        cuda_print(e, "if (!mt_slice_page<%d>(mt, %s, %" PRId64 ", %s, %s, %" PRId64 ")) return;", a->rank, from, x, y,
                   z, w->rows / 64);
}
