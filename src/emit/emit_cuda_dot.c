/* Products: on the CUDA cores, and on the tensor cores with weights from pages; and the loader's side of those. */
#include "emit/emit_cuda_internal.h"

#include "program/instruction.h"

#include "emit/cuda_abi.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- CUDA cores ---- */

typedef struct plain { /* what the three modes share */
    cuda_emit *e;
    const role_statement *s;
    cuda_nest x;
    int64_t m, n, k, stride; /* stride: of the left operand's rows */
    int vector, lanes;
    int rows; /* of the left operand that a thread takes at once */
    const char *type, *left, *to;
    const char *right; /* the right operand's element */
} plain;

/* Vectors of the right operand that a thread reads before it uses the first of them: a load of device memory takes as
 * long as hundreds of products. */
enum { MOST_AHEAD = 4 };

/* The largest divisor of `count` up to MOST_AHEAD. */
static int ahead_of(int64_t count) {
    int n = MOST_AHEAD;
    while (count % n) n--;
    return n;
}

static plain plain_of(cuda_emit *e, const role_statement *s) {
    const role_op *r = e->r;
    plain p = {.e = e,
               .s = s,
               .m = s->shape.extent[0],
               .n = s->shape.extent[1],
               .vector = s->spread.vector,
               .lanes = s->spread.lanes};
    p.k = s->value->shape.extent[s->transposed ? 1 : 0];
    p.stride = r->variables[s->from].stride;
    p.left = e->names[s->from];
    p.to = e->names[s->to];
    p.type = emit_c_type(r->op.variables[s->to].type);
    return p;
}

/* A loop over the left operand's rows, `rows` at once; nothing when that is all. */
static const char *open_rows(plain *p) {
    if (p->rows >= p->m) return "0";
    const char *first = cuda_name(p->e, "first");
    CUDA_OPEN(p->e, "for (int %s = 0; %s < %" PRId64 "; %s += %d) {", first, first, p->m, first, p->rows);
    return first;
}

/* Row first + i of the left operand; the last one again where there are no more. */
static const char *left_row(const plain *p, const char *first) {
    if (p->rows >= p->m) return "i";
    return arena_printf(p->e->memory, p->m % p->rows ? "mt_min32(%s + i, %" PRId64 ")" : "(%s + i)", first, p->m - 1);
}

/* What the right operand's element is at these indices; what is the same in all threads is printed here. */
static void prepare_right(plain *p, const char *row, const char *column) {
    cuda_emit *e = p->e;
    const tile_node *right = p->s->value;
    const cuda_index at[2] = {{row, LEVEL_ROW, false, 0}, {column, LEVEL_VECTOR, p->vector > 1, 0}};
    p->right = emit_bare(e->memory, emit_cast(e->memory, cuda_element(&p->x, right, at).text, right->type,
                                              e->r->op.variables[p->s->to].type));
}

/* Reads the right operand's vector. */
static void print_right_load(plain *p) {
    cuda_nest_lines(&p->x, LEVEL_ROW);
    cuda_nest_lines(&p->x, LEVEL_VECTOR);
}

/* The right operand's vector as floats (or i32) in w. */
static void print_right(plain *p) {
    cuda_emit *e = p->e;
    cuda_print(e, "%s w[%d];", p->type, p->vector);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int j = 0; j < %d; j++) {", p->vector);
    cuda_nest_lines(&p->x, LEVEL_LANE);
    cuda_print(e, "w[j] = %s;", p->right);
    cuda_close(e);
}

/* sum[i] += left * right along k; then all lanes' sums are one. */
static void print_along_k_of(plain *p, const char *base, const char *n, const char *k, bool some) {
    cuda_emit *e = p->e;
    const int columns = 32 / p->lanes;
    CUDA_OPEN(e, "{");
    const char *first = open_rows(p);
    cuda_print(e, "%s sum[%d] = {0};", p->type, p->rows);
    const bool once = p->k <= p->lanes * p->vector;
    if (!once) {
        CUDA_OPEN(e, "for (int %s = mt->lane %% %d * %d; %s < %" PRId64 "; %s += %d) {", k, p->lanes, p->vector, k,
                  p->k, k, p->lanes * p->vector);
        print_right_load(p);
    }
    if (once && p->k < p->lanes * p->vector) {
        CUDA_OPEN(e, "if (%s < %" PRId64 ") {", k, p->k);
        print_right_load(p);
    }
    print_right(p);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < %d; i++) {", p->rows);
    cuda_print(e, "%s a[%d];", p->type, p->vector);
    cuda_print(e, "mt_take(a, %s + %s * %" PRId64 " + %s);", p->left, left_row(p, first), p->stride, k);
    cuda_print(e, "#pragma unroll");
    cuda_print(e, "for (int j = 0; j < %d; j++) sum[i] += a[j] * w[j];", p->vector);
    cuda_close(e);
    if (!once || p->k < p->lanes * p->vector) cuda_close(e);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < %d; i++) {", p->rows);
    cuda_print(e, "const %s all = mt_join_lanes<%d>(sum[i], MT_SUM);", p->type, p->lanes);
    const char *mine = columns > 1 ? arena_printf(e->memory, "mt->lane %% %d == 0", p->lanes) : "mt->lane == 0";
    if (some) mine = arena_printf(e->memory, "%s && %s + mt->lane / %d < %" PRId64, mine, base, p->lanes, p->n);
    if (p->m % p->rows) mine = arena_printf(e->memory, "%s && %s + i < %" PRId64, mine, first, p->m);
    cuda_print(e, "if (%s) %s[(%s + i) * %" PRId64 " + %s] %s all;", mine, p->to, first, p->n, n,
               p->s->adds ? "+=" : "=");
    cuda_close(e);
    if (p->rows < p->m) cuda_close(e);
    cuda_close(e);
}

static void print_along_k(plain *p) {
    cuda_emit *e = p->e;
    const int columns = 32 / p->lanes, step = columns * ROLE_WARPS;
    const bool some = p->n % columns != 0; /* the last lanes may have no column: they take the last one again */
    const bool once = p->k <= p->lanes * p->vector, whole = p->k == p->lanes * p->vector;
    const int ahead = whole && p->n % step == 0 ? ahead_of(p->n / step) : 1;
    p->rows = (int)min_i64(p->m, 8);
    const char *base = cuda_name(e, "column"), *n[MOST_AHEAD], *k = cuda_name(e, "k");
    plain turn[MOST_AHEAD];
    cuda_print(e, "#pragma unroll 1");
    CUDA_OPEN(e, "for (int %s = mt->warp * %d; %s < %" PRId64 "; %s += %d) {", base, columns, base, p->n, base,
              step * ahead);
    if (once) cuda_print(e, "const int %s = mt->lane %% %d * %d;", k, p->lanes, p->vector);
    for (int t = 0; t < ahead; t++) {
        turn[t] = *p;
        cuda_nest_begin(e, &turn[t].x, p->vector);
        n[t] = columns > 1 || t ? cuda_name(e, "n") : base;
        prepare_right(&turn[t], n[t], k);
        if (columns > 1 && some)
            cuda_print(e, "const int %s = mt_min32(%s + mt->lane / %d, %" PRId64 ");", n[t], base, p->lanes, p->n - 1);
        else if (n[t] != base)
            cuda_print(e, "const int %s = %s + %d + mt->lane / %d;", n[t], base, t * step, p->lanes);
        if (whole) print_right_load(&turn[t]);
    }
    for (int t = 0; t < ahead; t++) {
        print_along_k_of(&turn[t], base, n[t], k, some);
    }
    cuda_close(e);
}

/* sum[i][j] += left * right, for the k at hand. */
static void print_outer(plain *p, const char *first, const char *k) {
    cuda_emit *e = p->e;
    print_right(p);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < %d; i++) {", p->rows);
    cuda_print(e, "const %s a = %s[%s * %" PRId64 " + %s];", p->type, p->left, left_row(p, first), p->stride, k);
    cuda_print(e, "#pragma unroll");
    cuda_print(e, "for (int j = 0; j < %d; j++) sum[i][j] += a * w[j];", p->vector);
    cuda_close(e);
}

static void print_split_k(plain *p) {
    cuda_emit *e = p->e;
    const int at_once = 32 / p->lanes, width = p->lanes * p->vector, step = at_once * ROLE_WARPS;
    const char *base = cuda_name(e, "column"), *n = cuda_name(e, "n"), *k = cuda_name(e, "k");
    p->rows = (int)min_i64(p->m, max_i64(1, 32 / p->vector));
    const bool some = p->n % width != 0;
    const int ahead = p->k % step == 0 ? ahead_of(p->k / step) : 1;
    plain turn[MOST_AHEAD];
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s += %d) {", base, base, p->n, base, width);
    const char *column = arena_printf(e->memory, p->vector > 1 ? "%s + mt->lane %% %d * %d" : "%s + mt->lane %% %d",
                                      base, p->lanes, p->vector);
    if (some)
        cuda_print(e, "const int %s = mt_min32(%s, %" PRId64 ");", n, column, p->n - p->vector);
    else
        cuda_print(e, "const int %s = %s;", n, column);
    const char *first = open_rows(p);
    cuda_print(e, "%s sum[%d][%d] = {{0}};", p->type, p->rows, p->vector);
    cuda_print(e, "#pragma unroll 1");
    CUDA_OPEN(e, "for (int %s = mt->warp * %d + mt->lane / %d; %s < %" PRId64 "; %s += %d) {", k, at_once, p->lanes, k,
              p->k, k, step * ahead);
    const char *at[MOST_AHEAD] = {k};
    for (int t = 0; t < ahead; t++) {
        turn[t] = *p;
        cuda_nest_begin(e, &turn[t].x, p->vector);
        if (t) {
            at[t] = cuda_name(e, "k");
            cuda_print(e, "const int %s = %s + %d;", at[t], k, t * step);
        }
        prepare_right(&turn[t], at[t], n);
        print_right_load(&turn[t]);
    }
    for (int t = 0; t < ahead; t++) {
        CUDA_OPEN(e, "{");
        print_outer(&turn[t], first, at[t]);
        cuda_close(e);
    }
    cuda_close(e);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < %d; i++) {", p->rows);
    cuda_print(e, "#pragma unroll");
    cuda_print(e, "for (int j = 0; j < %d; j++) sum[i][j] = mt_join_groups<%d>(sum[i][j], MT_SUM);", p->vector,
               p->lanes);
    const char *mine = arena_printf(e->memory, "mt->lane < %d", p->lanes);
    if (some) mine = arena_printf(e->memory, "%s && %s < %" PRId64, mine, column, p->n);
    if (p->m % p->rows) mine = arena_printf(e->memory, "%s && %s + i < %" PRId64, mine, first, p->m);
    cuda_print(e, "if (%s) mt_put(%s + (mt->warp * %" PRId64 " + %s + i) * %" PRId64 " + %s, sum[i]);", mine, p->to,
               p->m, first, p->n, n);
    cuda_close(e);
    if (p->rows < p->m) cuda_close(e);
    cuda_close(e);
}

static void print_outputs(plain *p) {
    cuda_emit *e = p->e;
    const int64_t vectors = p->n / p->vector;
    const char *o = cuda_name(e, "o"), *n = cuda_name(e, "n"), *k = cuda_name(e, "k"), *first = cuda_name(e, "first");
    p->rows = (int)min_i64(p->m, 4);
    prepare_right(p, k, n);
    const int64_t groups = ceil_div(p->m, p->rows);
    CUDA_OPEN(e, "for (int %s = mt->thread; %s < %" PRId64 "; %s += %d) {", o, o, groups * vectors, o, ROLE_THREADS);
    cuda_print(e, "const int %s = %s / %" PRId64 " * %d, %s = %s %% %" PRId64 " * %d;", first, o, vectors, p->rows, n,
               o, vectors, p->vector);
    cuda_print(e, "%s sum[%d][%d] = {{0}};", p->type, p->rows, p->vector);
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", k, k, p->k, k);
    print_right_load(p);
    print_outer(p, first, k);
    cuda_close(e);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < %d; i++) {", p->rows);
    if (p->m % p->rows) cuda_print(e, "if (%s + i >= %" PRId64 ") break;", first, p->m);
    cuda_print(e, "#pragma unroll");
    cuda_print(e, "for (int j = 0; j < %d; j++) %s[(%s + i) * %" PRId64 " + %s + j] %s sum[i][j];", p->vector, p->to,
               first, p->n, n, p->s->adds ? "+=" : "=");
    cuda_close(e);
    cuda_close(e);
}

/* ---- tensor cores, the right operand read where it lies ---- */

/* Reads the right operand's vector at (row, k), declared before, as the 16 bytes `to`. */
static void print_right_words(plain *p, const char *to) {
    cuda_emit *e = p->e;
    print_right_load(p);
    cuda_print(e, "uint16_t code[8];");
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int j = 0; j < 8; j++) {");
    cuda_nest_lines(&p->x, LEVEL_LANE);
    cuda_print(e, "code[j] = %s;", p->right);
    cuda_close(e);
    cuda_print(e, "%s = mt_words(code);", to);
}

static const char *product_name(const plain *p) {
    return p->s->value->type->scalar.exponent == 8 ? "MT_BF16" : "MT_F16";
}

/* The element of the right operand itself: a code of the product's type. */
static void prepare_codes(plain *p, const char *row, const char *column) {
    cuda_nest_begin(p->e, &p->x, p->vector = 8);
    const cuda_index at[2] = {{row, LEVEL_ROW, false, 0}, {column, LEVEL_VECTOR, true, 0}};
    p->right = emit_bare(p->e->memory, cuda_element(&p->x, p->s->value, at).text);
}

/* The warps take 16 of `rows` rows of the right operand each, in turns, and so many registers of each thread a turn.
 * Where that is possible, and the op has not taken too many so, they are read in front of the body: 0, or the number of
 * turns. */
static int early_turns(const plain *p, int64_t rows, int64_t registers) {
    enum { MOST_REGISTERS = 48 };
    const int64_t turns = ceil_div(rows, 16 * ROLE_WARPS);
    if (p->e->early_registers + turns * registers > MOST_REGISTERS || !cuda_may_be_early(p->e, p->s->value)) return 0;
    p->e->early_registers += (int)(turns * registers);
    return (int)turns;
}
static void open_turn(cuda_emit *e, const char *turn, int turns, const char *row, const char *end) {
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %d; %s++) {", turn, turn, turns, turn);
    cuda_print(e, "const int %s = mt->warp * 16 + %s * %d;", row, turn, 16 * ROLE_WARPS);
    if (end) cuda_print(e, "if (%s >= %s) break;", row, end);
}

/* Its words of a warp's 16 rows from `row` on. */
static void print_rows_of_right(plain *p, const char *word, const char *row, const char *n, const char *k) {
    cuda_emit *e = p->e;
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < %d; i++) {", (int)(p->k / 32) * 2);
    cuda_print(e, "const int %s = %s + mt->lane / 4 + i %% 2 * 8, %s = (i / 2 * 4 + mt->lane %% 4) * 8;", n, row, k);
    print_right_words(p, arena_printf(e->memory, "%s[i %% 2][i / 2]", word));
    cuda_close(e);
}

/* `tiles` of 8 rows of the left operand, `chunks` of 32 columns. */
static void print_tensor_along_k(plain *p) {
    cuda_emit *e = p->e;
    arena *m = e->memory;
    const int tiles = (int)ceil_div(p->m, 8), chunks = (int)(p->k / 32), early = early_turns(p, p->n, 8 * chunks);
    const char *left = cuda_name(e, "left"), *row = cuda_name(e, "row"), *n = cuda_name(e, "n"), *k = cuda_name(e, "k"),
               *word = cuda_name(e, "word"), *turn = cuda_name(e, "turn"), *all = arena_printf(m, "%" PRId64, p->n);
    if (early) cuda_early_begin(e);
    const char *end = cuda_end_of(e, p->s->value, 0);
    prepare_codes(p, n, k);
    if (early) {
        cuda_print(e, "uint4 %s[%d][2][%d];", word, early, chunks);
        word = arena_printf(m, "%s[%s]", word, turn);
        open_turn(e, turn, early, row, end ? end : all);
        print_rows_of_right(p, word, row, n, k);
        cuda_close(e);
        cuda_early_end(e);
    }
    cuda_print(e, "uint4 %s[%d][%d];", left, tiles, chunks);
    cuda_print(e, "mt_take_left(%s, %s, %" PRId64 ", %" PRId64 ", mt->lane);", left, p->left, p->stride, p->m);
    if (early)
        open_turn(e, turn, early, row, p->n % (16 * ROLE_WARPS) ? all : NULL);
    else
        CUDA_OPEN(e, "for (int %s = mt->warp * 16; %s < %s; %s += %d) {", row, row, all, row, 16 * ROLE_WARPS);
    cuda_print(e, "float sum[%d][4] = {{0}};", tiles);
    if (end) CUDA_OPEN(e, "if (%s < %s) {", row, end);
    if (!early) {
        cuda_print(e, "uint4 %s[2][%d];", word, chunks);
        print_rows_of_right(p, word, row, n, k);
    }
    cuda_print(e, "mt_dot_rows<%s>(sum, %s, %s);", product_name(p), word, left);
    if (end) cuda_close(e);
    cuda_print(e, "mt_leave_rows<%" PRId64 ", %s>(%s + %s, %" PRId64 ", sum, mt->lane);", p->m,
               p->s->adds ? "true" : "false", p->to, row, p->n);
    cuda_close(e);
}

/* Its words of 64 columns, of which `n` is the thread's first, of a warp's 16 rows. */
static void print_columns_of_right(plain *p, const char *word, const char *row, const char *k) {
    cuda_emit *e = p->e;
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int i = 0; i < 4; i++) {");
    cuda_print(e, "const int %s = %s + mt->lane %% 4 * 2 + i %% 2 + i / 2 * 8;", k, row);
    print_right_words(p, arena_printf(e->memory, "%s[i]", word));
    cuda_close(e);
}
static void open_columns(const plain *p, const char *column, const char *n) {
    cuda_emit *e = p->e;
    if (p->n == 64)
        CUDA_OPEN(e, "{ const int %s = 0;", column);
    else
        CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s += 64) {", column, column, p->n, column);
    cuda_print(e, "const int %s = %s + mt->lane / 4 * 8;", n, column);
}

/* 64 columns of the result at a time. */
static void print_tensor_split_k(plain *p) {
    cuda_emit *e = p->e;
    const int tiles = (int)ceil_div(p->m, 8), early = early_turns(p, p->k, p->n / 64 * 16);
    const char *column = cuda_name(e, "column"), *row = cuda_name(e, "row"), *n = cuda_name(e, "n"),
               *k = cuda_name(e, "k"), *word = cuda_name(e, "word"), *turn = cuda_name(e, "turn");
    if (early) cuda_early_begin(e);
    const char *end = cuda_end_of(e, p->s->value, 0);
    if (!end) end = arena_printf(e->memory, "%" PRId64, p->k);
    prepare_codes(p, k, n);
    if (early) {
        cuda_print(e, "uint4 %s[%d][%" PRId64 "][4];", word, early, p->n / 64);
        word = arena_printf(e->memory, "%s[%s][%s / 64]", word, turn, column);
        open_turn(e, turn, early, row, end);
        if (p->n > 64) cuda_print(e, "#pragma unroll");
        open_columns(p, column, n);
        print_columns_of_right(p, word, row, k);
        cuda_close(e);
        cuda_close(e);
        cuda_early_end(e);
        if (p->n > 64) cuda_print(e, "#pragma unroll");
    }
    open_columns(p, column, n);
    cuda_print(e, "float sum[%d][4][4] = {{{0}}};", tiles);
    if (early)
        open_turn(e, turn, early, row, end);
    else {
        CUDA_OPEN(e, "for (int %s = mt->warp * 16; %s < %s; %s += %d) {", row, row, end, row, 16 * ROLE_WARPS);
        cuda_print(e, "uint4 %s[4];", word);
        print_columns_of_right(p, word, row, k);
    }
    cuda_print(e, "mt_dot_columns<%s>(sum, %s, %s + %s, %" PRId64 ", %" PRId64 ", mt->lane);", product_name(p), word,
               p->left, row, p->stride, p->m);
    cuda_close(e);
    cuda_print(e, "mt_leave_columns<%" PRId64 ">(%s + mt->warp * %" PRId64 " + %s, %" PRId64 ", sum, mt->lane);", p->m,
               p->to, p->m * p->n, n, p->n);
    cuda_close(e);
}

void cuda_dot(cuda_emit *e, const role_statement *s) {
    plain p = plain_of(e, s);
    if (s->dot >= ROLE_TENSOR_ALONG_K) {
        s->dot == ROLE_TENSOR_ALONG_K ? print_tensor_along_k(&p) : print_tensor_split_k(&p);
        return;
    }
    cuda_nest_begin(e, &p.x, p.vector);
    if (s->dot == ROLE_ALONG_K)
        print_along_k(&p);
    else if (s->dot == ROLE_SPLIT_K)
        print_split_k(&p);
    else
        print_outputs(&p);
}

/* ---- pages ---- */

typedef struct page_plan {
    const role_pages *pages;
    const tile_format *format;
    bool atoms;
    const char *blocks, *columns;   /* as many as there are: expressions of type int, constants where they are */
    int64_t fixed_columns;          /* 0: not constant */
    int64_t total_columns;          /* of the weight, padded */
    int64_t block_bytes;            /* of 8 rows */
    int64_t page_bytes, last_bytes; /* of a whole page; of the weight's last page in a row */
    int64_t row_pages;              /* in a row of the weight */
    int64_t page_blocks;            /* more than 1: all columns are one page */
} page_plan;

static page_plan plan_of(cuda_emit *e, const role_pages *p) {
    arena *m = e->memory;
    const tile_param *t = &e->r->op.params[p->param];
    page_plan out = {.pages = p,
                     .format = role_banded(m, t->type, p->row_columns),
                     .atoms = e->r->layout[t->ordinal] == ROLE_ATOMS,
                     .total_columns = p->row_columns};
    out.row_pages = ceil_div(p->row_columns, p->page_columns);
    const int64_t last = p->row_columns - (out.row_pages - 1) * p->page_columns;
    out.page_bytes = out.atoms ? p->page_columns * 16 : 8 * role_band_row(t->type, p->page_columns);
    out.last_bytes = out.atoms ? last * 16 : 8 * role_band_row(t->type, last);
    out.block_bytes = (out.row_pages - 1) * out.page_bytes + out.last_bytes;
    out.page_blocks = role_page_blocks(e->r, p, e->unit->page_bytes);
    int64_t low, high;
    const bool inside = p->rows->kind == TILE_CONST && role_range(e->r, p->row, &low, &high) &&
                        high + p->blocks * 8 <= (int64_t)align_up((uint64_t)p->rows->value.i, 8);
    if (inside)
        out.blocks = arena_printf(m, "%" PRId64, p->blocks);
    else {
        out.blocks = cuda_name(e, "blocks");
        cuda_print(e, "const int %s = (int)mt_clamp((%s + 7) / 8 - %s / 8, 0, %" PRId64 ");", out.blocks,
                   cuda_scalar(e, p->rows), cuda_scalar(e, p->row), p->blocks);
    }
    if (p->column->kind == TILE_CONST) {
        out.fixed_columns = max_i64(0, min_i64(p->columns, p->row_columns - p->column->value.i));
        out.columns = arena_printf(m, "%" PRId64, out.fixed_columns);
    } else {
        out.columns = cuda_name(e, "columns");
        cuda_print(e, "const int %s = (int)mt_clamp(%" PRId64 " - %s, 0, %" PRId64 ");", out.columns, p->row_columns,
                   cuda_scalar(e, p->column), p->columns);
    }
    return out;
}

/* The number of pages of a block, and how many columns page p has. */
static const char *page_count(const cuda_emit *e, const page_plan *p) {
    const int64_t each = p->pages->page_columns;
    if (p->fixed_columns) return arena_printf(e->memory, "%" PRId64, ceil_div(p->fixed_columns, each));
    return arena_printf(e->memory, "(%s + %" PRId64 ") / %" PRId64, p->columns, each - 1, each);
}
static const char *columns_of_page(const cuda_emit *e, const page_plan *p, const char *page) {
    const int64_t each = p->pages->page_columns;
    if (p->fixed_columns % each == 0 && p->fixed_columns) return arena_printf(e->memory, "%" PRId64, each);
    if (p->fixed_columns && p->fixed_columns < each) return p->columns;
    return arena_printf(e->memory, "mt_min32(%" PRId64 ", %s - %s * %" PRId64 ")", each, p->columns, page, each);
}

/* The value of `whole` for all of a row's pages but the last, where it is `last`. `page` counts from the slice's first.
 */
static const char *by_page(const cuda_emit *e, const page_plan *p, const char *page, int64_t whole, int64_t last) {
    const tile_node *column = p->pages->column;
    if (whole == last) return arena_printf(e->memory, "%" PRId64, whole);
    if (column->kind == TILE_CONST) {
        const int64_t first = column->value.i / p->pages->page_columns,
                      count = ceil_div(p->fixed_columns, p->pages->page_columns);
        if (first + count < p->row_pages) return arena_printf(e->memory, "%" PRId64, whole);
        if (count == 1) return arena_printf(e->memory, "%" PRId64, last);
        return arena_printf(e->memory, "(%s < %" PRId64 " ? %" PRId64 " : %" PRId64 ")", page, count - 1, whole, last);
    }
    return arena_printf(e->memory, "(%s + %s * %" PRId64 " + %" PRId64 " <= %" PRId64 " ? %" PRId64 " : %" PRId64 ")",
                        cuda_scalar((cuda_emit *)e, column), page, p->pages->page_columns, p->pages->page_columns,
                        p->total_columns, whole, last);
}

/* A block's pages lie one after another: the slice's first one, and from there by whole pages. With atoms a page may
 * begin at any of them. */
void cuda_pages(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const page_plan p = plan_of(e, &s->pages);
    const char *tensor = cuda_tensor_name(e, s->pages.param), *from = cuda_name(e, "from");
    const tile_node *column = s->pages.column;
    const char *offset = "", *flight = p.atoms ? "CUDA_FLIGHT" : "CUDA_BLOCK_FLIGHT";
    if (column->kind != TILE_CONST || column->value.i)
        offset = p.atoms ? arena_printf(m, " + %s / 64 * 1024", cuda_scalar(e, column))
                         : arena_printf(m, " + %s / %" PRId64 " * %" PRId64, cuda_scalar(e, column),
                                        s->pages.page_columns, p.page_bytes);
    cuda_print(e, "const char *const %s = (const char *)%s->data + %s / 8 * %" PRId64 "%s;", from, tensor,
               cuda_scalar(e, s->pages.row), p.block_bytes, offset);
    if (p.page_blocks > 1) {
        const char *pages = cuda_name(e, "pages");
        const int64_t bytes = p.page_blocks * p.block_bytes;
        cuda_print(e, "const int %s = (%s + %" PRId64 ") / %" PRId64 ";", pages, p.blocks, p.page_blocks - 1,
                   p.page_blocks);
        cuda_print(e, "mt_stream(mt, %s, 1, 0, %s, %" PRId64 ", %s * %" PRId64 " - (%s - 1) * %" PRId64 ", %s);", from,
                   pages, bytes, p.blocks, p.block_bytes, pages, bytes, flight);
        return;
    }
    const char *last = arena_printf(m, "(%s - 1)", page_count(e, &p)), *last_bytes;
    last_bytes = p.atoms ? arena_printf(m, "%s * 16", columns_of_page(e, &p, last))
                         : by_page(e, &p, last, p.page_bytes, p.last_bytes);
    cuda_print(e, "mt_stream(mt, %s, %s, %" PRId64 ", %s, %" PRId64 ", %s, %s);", from, p.blocks, p.block_bytes,
               page_count(e, &p), p.page_bytes, last_bytes, flight);
}

/* The number of 8-row blocks in the page that begins with block `block`, of `most` at most. */
static const char *blocks_of_page(const cuda_emit *e, const page_plan *p, const char *block, const char *most) {
    if (!strcmp(p->blocks, most) && p->pages->blocks % p->page_blocks == 0)
        return arena_printf(e->memory, "%" PRId64, p->page_blocks);
    return arena_printf(e->memory, "mt_min32(%" PRId64 ", %s - %s)", p->page_blocks, p->blocks, block);
}

static const char *product_type(const tile_format *f) { return f->scalar.exponent == 8 ? "MT_BF16" : "MT_F16"; }

void cuda_skinny(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const role_op *r = e->r;
    const page_plan p = plan_of(e, &s->pages);
    const int64_t rows = s->shape.extent[0], stride = r->variables[s->from].stride * 2, width = s->pages.blocks * 8;
    const char *row = cuda_name(e, "panel_row"), *block = cuda_name(e, "block"), *page = cuda_name(e, "page"),
               *product = product_type(s->product);
    cuda_print(e, "const char *const %s = mt_panel_row<%" PRId64 ">(%s, %" PRId64 ", mt->lane);", row, rows,
               e->names[s->from], stride);
    const int64_t eights = p.page_blocks;
    const bool single = p.fixed_columns && p.fixed_columns <= s->pages.page_columns;
    const char *columns = columns_of_page(e, &p, page);
    const char *at = arena_printf(m, "%s + %s * %" PRId64, row, page, s->pages.page_columns * 2);
    /* A page has all of its columns, unless it is the weight's last one, or the slice's. */
    const int64_t most = min_i64(s->pages.page_columns, s->pages.columns);
    const int64_t least = min_i64(most, (p.fixed_columns ? p.fixed_columns - 1 : -1) % s->pages.page_columns + 1);
    const char *format = p.atoms ? NULL : cuda_format_of(e->unit, p.format, s->product), *sums = NULL;
    if (format)
        sums = arena_printf(m, "float x[%" PRId64 "][2]; mt_panel_sums<%" PRId64 ", %s, %" PRId64 ">(x, %s, %s, mt);",
                            ceil_div(most, 32 * ROLE_WARPS), rows, format, least, columns, single ? row : at);
    if (sums && single) cuda_print(e, "%s", sums);
    cuda_print(e, "MT_TRACED(if (mt->seen) mt_trace_page(mt);)");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s += %" PRId64 ") {", block, block, s->pages.blocks, block,
              eights);
    cuda_print(e, "float sums[%" PRId64 "][2][4] = {{{0}}};", eights);
    char fixed[32];
    snprintf(fixed, sizeof fixed, "%" PRId64, s->pages.blocks);
    if (strcmp(p.blocks, fixed)) cuda_print(e, "if (%s < %s)", block, p.blocks);
    CUDA_OPEN(e, "for (int %s = 0; %s < %s; %s++) {", page, page, page_count(e, &p), page);
    if (sums && !single) cuda_print(e, "%s", sums);
    if (p.atoms)
        cuda_print(
            e, "mt_dense_page<%" PRId64 ", %s, %s, %" PRId64 ">(mt, sums[0][0], sums[0][1], %s / 64, %s, %" PRId64 ");",
            rows, product, product_type(p.format), least / 64, columns, at, stride);
    else
        cuda_print(e, "mt_block_page<%" PRId64 ", %s, %" PRId64 ">(mt, sums, x, %s, %s, %s, %s, %" PRId64 ");", rows,
                   format, least, blocks_of_page(e, &p, block, fixed), columns,
                   by_page(e, &p, page, p.page_bytes / 8, p.last_bytes / 8), at, stride);
    cuda_close(e);
    if (format) cuda_print(e, "mt_block_sums<%" PRId64 ", %s>(sums);", rows, format);
    for (int64_t i = 0; i < eights; i++) {
        if (i && s->pages.blocks % eights && i >= s->pages.blocks % eights)
            cuda_print(e, "if (%s + %" PRId64 " < %" PRId64 ")", block, i, s->pages.blocks);
        cuda_print(e,
                   "mt_leave<%" PRId64 ">(%s, %" PRId64 ", (%s + %" PRId64 ") * 8, sums[%" PRId64 "][0], sums[%" PRId64
                   "][1], mt, %s);",
                   rows, e->names[s->to], width, block, i, i, i, s->adds ? "true" : "false");
    }
    cuda_close(e);
}
