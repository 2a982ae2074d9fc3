/* Ops of level 2 in CUDA C: what roles do to barriers, pages and registers. cuda_explicit.h has the device's side.
 *
 * A tile in registers is an array of the thread's elements in the order of their local indices. A statement over tiles
 * is one unrolled loop over the local indices of its layout; row and column of the element are sums of digits of the
 * thread and of the index, so that all of the index is gone when the compiler has unrolled it. Where the layout has
 * neighbours along the last dimension in one thread, the loop takes `vector` of them at once, as the emitter's other
 * loops do. */
#include "emit/emit_cuda_internal.h"
#include "tile/explicit.h"

#include <inttypes.h>

static const char *plus(arena *m, const char *a, const char *b) {
    return !a ? b : !b ? a : arena_printf(m, "%s + %s", a, b);
}

/* number / unit % extent * step; `whole`: it is the last digit, and needs no remainder. */
static const char *digit(arena *m, const char *number, int64_t unit, int64_t extent, int64_t step, bool whole) {
    const char *t = unit == 1 ? number : arena_printf(m, "%s / %" PRId64, number, unit);
    if (!whole) t = arena_printf(m, "%s %% %" PRId64, t, extent);
    return step == 1 ? t : arena_printf(m, "%s * %" PRId64, t, step);
}

/* ---- walks ---- */

void cuda_level2_walk(cuda_nest *x, const role_spread *s) {
    if (!s->registers) return;
    x->spread = s;
    x->local = cuda_name(x->e, "local");
}

/* What the digits of a number add to a dimension; NULL: nothing. The first `skipped` modes are left out. */
static const char *digits_of(arena *m, const layout_mode *modes, int count, int skipped, int dimension,
                             const char *number) {
    const char *sum = NULL;
    int64_t unit = 1;
    for (int k = 0; k < count; unit *= modes[k++].extent)
        if (k >= skipped && modes[k].dimension == dimension)
            sum = plus(m, sum, digit(m, number, unit, modes[k].extent, modes[k].step, k == count - 1));
    return sum;
}

/* The thread's number among the consumers, as text: lane and warp apart, where a mode lies in one of them. */
static const char *thread_digits(arena *m, const layout *l, int dimension) {
    const char *sum = NULL;
    int64_t unit = 1;
    for (int k = 0; k < l->thread_modes; unit *= l->thread[k++].extent) {
        const layout_mode *t = &l->thread[k];
        if (t->dimension != dimension) continue;
        const int64_t end = unit * t->extent;
        const bool lanes = end <= 32, warps = unit % 32 == 0;
        const char *number = lanes ? "mt->lane" : warps ? "mt->warp" : "mt->thread";
        sum = plus(m, sum,
                   digit(m, number, warps && !lanes ? unit / 32 : unit, t->extent, dimension < 0 ? 1 : t->step,
                         end == (lanes ? 32 : ROLE_THREADS)));
    }
    return sum;
}

/* A layout as rows and columns: all dimensions but the last together. */
static bool rows_of(const layout *l, int64_t rows, int64_t columns, layout *out) {
    const tile_shape s = {2, {rows, columns}};
    return layout_reshape(out, l, &s);
}

static void open_walk(cuda_nest *x, const role_spread *s, const cuda_rows *rows, const char *condition, bool once) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    layout l;
    if (!rows_of(s->registers, s->rows, s->columns, &l)) {
        cuda_unsupported(e, 0, "a layout that is not one of rows and columns");
        return;
    }
    const int skipped = s->vector > 1;
    const char *replica = once && layout_replicas(&l) > 1 ? thread_digits(m, &l, -1) : NULL;
    cuda_print(e, layout_locals(&l) > LEVEL2_LOCALS ? "#pragma unroll 1" : "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s += %d) {", x->local, x->local, layout_locals(&l), x->local,
              s->vector);
    if (replica) cuda_print(e, "if (%s) break; // others hold the same", replica);
    const cuda_index *const both[] = {&rows->row, &rows->column};
    for (int d = 0; d < 2; d++) {
        const char *value =
            plus(m, thread_digits(m, &l, d), digits_of(m, l.local, l.local_modes, skipped, d, x->local));
        if (d && both[d]->text) CUDA_OPEN(e, "{");
        if (both[d]->text) cuda_print(e, "const int %s = %s;", both[d]->text, value ? value : "0");
        cuda_nest_lines(x, d ? LEVEL_VECTOR : LEVEL_ROW);
        if (!d && condition) CUDA_OPEN(e, "if (%s) {", condition);
    }
}

void cuda_level2_open(cuda_nest *x, const role_spread *s, const cuda_rows *rows, const char *condition) {
    open_walk(x, s, rows, condition, !s->everyone);
}

/* ---- elements ---- */

static bool is_packed(const tile_format *t) { return !strcmp(emit_c_type(t), "uint16_t"); }

cuda_value cuda_level2_register(cuda_nest *x, const tile_node *n) {
    arena *m = x->e->memory;
    const char *name = x->e->names[n->index], *sum = NULL;
    int64_t place[LAYOUT_MODES], unit = 1;
    const layout *to = x->spread ? x->spread->registers : NULL;
    if (!to || !layout_follows(to, x->e->r->variables[n->index].layout, place)) {
        cuda_unsupported(x->e, n->line, "a tile in registers here");
        return (cuda_value){"0", LEVEL_STATEMENT, true};
    }
    const bool lanes = x->vector > 1;
    for (int k = 0; k < to->local_modes; unit *= to->local[k++].extent)
        if (place[k] && (k || !lanes))
            sum = plus(m, sum, digit(m, x->local, unit, to->local[k].extent, place[k], k == to->local_modes - 1));
    const bool by_lane = lanes && place[0];
    if (by_lane) sum = plus(m, sum, place[0] == 1 ? "j" : arena_printf(m, "j * %" PRId64, place[0]));
    /* A name in front of the loop over j would hold a copy: every use is written out. */
    const char *element = is_packed(n->type) ? arena_printf(m, "mt_half_at(%s, %s)", name, sum ? sum : "0")
                                             : arena_printf(m, "%s[%s]", name, sum ? sum : "0");
    return (cuda_value){element, by_lane ? LEVEL_LANE : LEVEL_VECTOR, true};
}

/* The byte of an element in a stage. */
const char *cuda_level2_place(arena *m, const layout_shared *s, const char *const *coordinate) {
    const char *sum = NULL;
    int64_t unit[TILE_RANK];
    for (int d = 0; d < s->shape.rank; d++) unit[d] = 1;
    for (int k = 0; k < s->mode_count; k++) {
        const layout_shared_mode *c = &s->mode[k];
        const int d = c->dimension;
        if (c->extent > 1 && coordinate[d])
            sum =
                plus(m, sum,
                     digit(m, coordinate[d], unit[d], c->extent, c->stride, unit[d] * c->extent == s->shape.extent[d]));
        unit[d] *= c->extent;
    }
    if (!sum) sum = "0";
    return s->swizzle ? arena_printf(m, "mt_swizzled<%d>(%s)", s->swizzle, sum) : sum;
}

static const char *stage_place(cuda_nest *x, const layout_shared *s, const cuda_index *at, int *level) {
    const char *coordinate[TILE_RANK];
    for (int d = 0; d < s->shape.rank; d++) {
        const bool zero = !at[d].text && !at[d].lane && !at[d].offset;
        coordinate[d] = zero ? NULL : cuda_index_text(x, &at[d]);
        if (cuda_index_level(&at[d]) > *level) *level = cuda_index_level(&at[d]);
    }
    return cuda_level2_place(x->e->memory, s, coordinate);
}

const level2_shared *cuda_level2_shared(const cuda_emit *e, int variable) {
    return &e->r->op.level2->shared[e->r->variables[variable].shared];
}

cuda_value cuda_level2_stage(cuda_nest *x, const tile_node *n, const cuda_index *at) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    const layout_shared *s = &cuda_level2_shared(e, n->index)->layout;
    const char *name = e->names[n->index], *type = emit_c_type(n->type);
    const int last = s->shape.rank - 1;
    int level = LEVEL_STATEMENT;
    if (x->vector > 1 && at[last].lane && !x->guarded && at[last].offset % x->vector == 0 &&
        layout_shared_vector(s) % x->vector == 0) {
        cuda_index base[TILE_RANK];
        memcpy(base, at, (size_t)s->shape.rank * sizeof *base);
        base[last].lane = false;
        const char *place = stage_place(x, s, base, &level);
        const char *key = arena_printf(m, "stage %s %s", name, place);
        const cuda_value *known = level <= LEVEL_VECTOR ? cuda_known_value(x, key) : NULL;
        const char *vector = known ? known->text : cuda_name(e, e->r->op.variables[n->index].name);
        if (!known && level <= LEVEL_VECTOR) {
            NEST_LINE(x, LEVEL_VECTOR, "%s %s[%d];", type, vector, x->vector);
            NEST_LINE(x, LEVEL_VECTOR, "mt_take(%s, (const %s *)(%s + %s));", vector, type, name, place);
            cuda_know(x, key, (cuda_value){vector, LEVEL_LANE, true});
        }
        if (level <= LEVEL_VECTOR) return (cuda_value){arena_printf(m, "%s[j]", vector), LEVEL_LANE, false};
        level = LEVEL_STATEMENT;
    }
    const char *place = stage_place(x, s, at, &level);
    return (cuda_value){arena_printf(m, "*(const %s *)(%s + %s)", type, name, place), level, false};
}

/* ---- statements over tiles ---- */

/* Indices of the value from those of the tile that it is stretched to. */
static void stretched(const tile_node *n, const tile_shape *to, const cuda_index *at, cuda_index *out) {
    for (int d = 0; d < n->shape.rank; d++)
        out[d] = n->shape.extent[d] == 1 ? cuda_index_constant(0) : at[d + to->rank - n->shape.rank];
}

/* Opens the walk and the loop over lanes, and gives the element's value there. */
static const char *open_elements(cuda_emit *e, cuda_nest *x, const role_spread *s, const tile_node *value,
                                 const tile_shape *shape, cuda_index *at, cuda_rows *rows, bool once) {
    cuda_index below[TILE_RANK];
    cuda_nest_begin(e, x, s->vector);
    cuda_level2_walk(x, s);
    *rows = cuda_rows_of(e, s);
    cuda_unravel(x, shape, &rows->row, &rows->column, at);
    stretched(value, shape, at, below);
    const cuda_value v = cuda_element(x, value, below);
    open_walk(x, s, rows, NULL, once);
    if (s->vector > 1) {
        cuda_print(e, "#pragma unroll");
        CUDA_OPEN(e, "for (int j = 0; j < %d; j++) {", s->vector);
    }
    cuda_nest_lines(x, LEVEL_LANE);
    return emit_bare(e->memory, v.text);
}

static const char *own_index(const cuda_nest *x) {
    return x->vector > 1 ? arena_printf(x->e->memory, "%s + j", x->local) : x->local;
}

void cuda_level2_each(cuda_emit *e, const role_statement *s) {
    cuda_nest x;
    cuda_rows rows;
    cuda_index at[TILE_RANK];
    const tile_variable *t = &e->r->op.variables[s->to];
    const char *value = open_elements(e, &x, &s->spread, s->value, &t->shape, at, &rows, false);
    cuda_print(e, is_packed(t->type) ? "mt_put_half(%s, %s, %s);" : "%s[%s] = %s;", e->names[s->to], own_index(&x),
               value);
    if (s->spread.vector > 1) cuda_close(e);
    cuda_rows_close(e, &s->spread, NULL);
}

static const char *joined(tile_operator op) {
    return op == TILE_SUM ? "MT_SUM" : op == TILE_REDUCE_MAX ? "MT_LARGEST" : "MT_SMALLEST";
}

/* Own elements in the order of their local indices, then the lanes that share the axis. */
void cuda_level2_reduce(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const layout *l = s->spread.registers, *result = e->r->variables[s->to].layout;
    const int64_t results = layout_locals(result);
    const tile_format *t = s->value->type;
    const char *to = e->names[s->to], *least = cuda_neutral(t, s->op), *i = cuda_name(e, "i");
    int64_t place[LAYOUT_MODES], unit = 1;
    cuda_nest x;
    cuda_rows rows;
    cuda_index at[TILE_RANK];
    cuda_print(e, "#pragma unroll");
    cuda_print(e, "for (int %s = 0; %s < %" PRId64 "; %s++) %s[%s] = %s;", i, i, results, i, to, i, least);
    if (!layout_follows(l, result, place)) {
        cuda_unsupported(e, s->line, "this reduction");
        return;
    }
    const char *value = open_elements(e, &x, &s->spread, s->value, &s->value->shape, at, &rows, false), *sum = NULL;
    for (int k = 0; k < l->local_modes; unit *= l->local[k++].extent) {
        if (!place[k]) continue;
        const bool lane = k == 0 && s->spread.vector > 1;
        sum = plus(m, sum,
                   digit(m, lane ? "j" : x.local, unit, l->local[k].extent, place[k], lane || k == l->local_modes - 1));
    }
    if (!sum) sum = "0";
    cuda_print(e, "%s[%s] = mt_join(%s[%s], %s, %s);", to, sum, to, sum, value, joined(s->op));
    if (s->spread.vector > 1) cuda_close(e);
    cuda_rows_close(e, &s->spread, NULL);
    unit = 1;
    for (int k = 0; k < l->thread_modes; unit *= l->thread[k++].extent) {
        if (l->thread[k].dimension != s->axis) continue;
        for (int64_t bit = unit; bit < unit * l->thread[k].extent; bit *= 2) {
            cuda_print(e, "#pragma unroll");
            cuda_print(e,
                       "for (int %s = 0; %s < %" PRId64
                       "; %s++) %s[%s] = mt_join(%s[%s], mt_shuffle_xor(%s[%s], %" PRId64 "), %s);",
                       i, i, results, i, to, i, to, i, to, i, bit, joined(s->op));
        }
    }
}

/* The storer stores stages of that shared tensor. */
static bool is_stored(const role_statement *s, int shared) {
    for (; s; s = s->next)
        if ((s->action && s->action->kind == LEVEL2_STORE && s->action->shared == shared) ||
            is_stored(s->body, shared) || is_stored(s->otherwise, shared))
            return true;
    return false;
}

static void put(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const int v = s->action->variable;
    const level2_shared *to = cuda_level2_shared(e, v);
    const char *name = e->names[v], *type = emit_c_type(to->type);
    cuda_nest x;
    cuda_rows rows;
    cuda_index at[TILE_RANK], below[TILE_RANK];
    const role_spread *spread = &s->spread;
    const bool vector = spread->vector > 1 && layout_shared_vector(&to->layout) % spread->vector == 0;
    int level = LEVEL_STATEMENT;
    cuda_nest_begin(e, &x, spread->vector);
    cuda_level2_walk(&x, spread);
    rows = cuda_rows_of(e, spread);
    cuda_unravel(&x, &to->shape, &rows.row, &rows.column, at);
    stretched(s->value, &to->shape, at, below);
    const cuda_value value = cuda_element(&x, s->value, below);
    const char *values = cuda_name(e, "values");
    open_walk(&x, spread, &rows, NULL, true);
    if (vector) cuda_print(e, "%s %s[%d];", type, values, spread->vector);
    if (spread->vector > 1) {
        cuda_print(e, "#pragma unroll");
        CUDA_OPEN(e, "for (int j = 0; j < %d; j++) {", spread->vector);
    }
    cuda_nest_lines(&x, LEVEL_LANE);
    if (vector)
        cuda_print(e, "%s[j] = %s;", values, emit_bare(m, value.text));
    else
        cuda_print(e, "*(%s *)(%s + %s) = %s;", type, name, stage_place(&x, &to->layout, at, &level),
                   emit_bare(m, value.text));
    if (spread->vector > 1) cuda_close(e);
    if (vector) {
        at[to->shape.rank - 1].lane = false;
        cuda_print(e, "mt_put((%s *)(%s + %s), %s);", type, name, stage_place(&x, &to->layout, at, &level), values);
    }
    cuda_rows_close(e, spread, NULL);
    if (to->layout.swizzle || is_stored(e->r->storer, s->action->shared))
        cuda_print(e, "mt_fence_shared(); // wgmma and bulk stores read through another proxy");
}

/* ---- products ---- */

static const char *f16_of(const tile_format *t) { return t->scalar.exponent == 8 ? "false" : "true"; }

/* The product of the extents of an accumulator's local modes along a dimension. */
static int64_t blocks_along(const layout *q, int dimension) {
    int64_t n = 1;
    for (int k = 0; k < q->local_modes; k++)
        if (q->local[k].dimension == dimension) n *= q->local[k].extent;
    return n;
}
/* Block `number` along a dimension: what it adds to the block's coordinate, or, `places`, to the local index. */
static const char *block_text(arena *m, const layout *q, int dimension, const char *number, bool places) {
    const char *sum = NULL;
    int64_t unit = 1, place = 1;
    const int64_t all = blocks_along(q, dimension);
    for (int k = 0; k < q->local_modes; place *= q->local[k++].extent) {
        const layout_mode *l = &q->local[k];
        if (l->dimension != dimension) continue;
        sum = plus(m, sum, digit(m, number, unit, l->extent, places ? place : l->step, unit * l->extent == all));
        unit *= l->extent;
    }
    return sum;
}

/* The coordinates of the row of 16 bytes that a lane gives to mt_matrices. */
static void print_matrices(cuda_emit *e, const char *to, int variable, bool transposed, const char *row,
                           const char *column) {
    const level2_shared *s = cuda_level2_shared(e, variable);
    const char *coordinate[] = {row, column};
    cuda_print(e, "mt_matrices%s(%s, %s + %s);", transposed ? "_transposed" : "", to, e->names[variable],
               cuda_level2_place(e->memory, &s->layout, coordinate));
}

static void mma(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const tile_node *dot = s->value, *a = dot->a->kind == TILE_TRANSPOSE ? dot->a->a : dot->a,
                    *b = dot->b->kind == TILE_TRANSPOSE ? dot->b->a : dot->b;
    const bool a_turned = dot->a != a, b_turned = dot->b != b,
               a_held = e->r->variables[a->index].place == ROLE_REGISTER;
    const int acc = s->action->variable;
    const layout c = layout_hardware(LAYOUT_MMA_C);
    layout q;
    if (!layout_divide(&q, e->r->variables[acc].layout, &c)) {
        cuda_unsupported(e, s->line, "this accumulator");
        return;
    }
    const int64_t below = blocks_along(&q, 0), beside = blocks_along(&q, 1), steps = dot->a->shape.extent[1] / 16;
    const char *k = cuda_name(e, "k"), *i = cuda_name(e, "row"), *j = cuda_name(e, "column"),
               *left = cuda_name(e, "left"), *right = cuda_name(e, "right"), *two = cuda_name(e, "two");
    /* q's threads are warps: its modes as if the warp were the thread. */
    const char *warp_row = digits_of(m, q.thread, q.thread_modes, 0, 0, "mt->warp"),
               *warp_column = digits_of(m, q.thread, q.thread_modes, 0, 1, "mt->warp");
    const char *row = plus(m, warp_row, block_text(m, &q, 0, i, false)),
               *column_number = arena_printf(
                   m, beside % 2 ? "mt_min(%s + mt->lane / 16, %" PRId64 ")" : "(%s + mt->lane / 16)", j, beside - 1),
               *column = plus(m, warp_column, beside > 1 ? block_text(m, &q, 1, column_number, false) : NULL);
    row = row ? arena_printf(m, "(%s) * 16", row) : "0";
    column = column ? arena_printf(m, "(%s) * 8", column) : "0";
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s += 16) {", k, k, steps * 16, k);
    cuda_print(e, "uint32_t %s[%" PRId64 "][4], %s[%" PRId64 "][2];", left, below, right, beside + beside % 2);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", i, i, below, i);
    if (a_held) {
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int i = 0; i < 4; i++) %s[%s][i] = %s[(%s / 16 * %" PRId64 " + %s) * 4 + i];", left, i,
                   e->names[a->index], k, below, i);
    } else if (a_turned)
        print_matrices(e, arena_printf(m, "%s[%s]", left, i), a->index, true,
                       arena_printf(m, "(%s + mt->lane / 16 * 8 + mt->lane %% 8)", k),
                       arena_printf(m, "(%s + mt->lane / 8 %% 2 * 8)", row));
    else
        print_matrices(e, arena_printf(m, "%s[%s]", left, i), a->index, false,
                       arena_printf(m, "(%s + mt->lane %% 16)", row), arena_printf(m, "(%s + mt->lane / 16 * 8)", k));
    cuda_close(e);
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s += 2) {", j, j, beside, j);
    cuda_print(e, "uint32_t %s[4];", two);
    if (b_turned)
        print_matrices(e, two, b->index, false, arena_printf(m, "(%s + mt->lane %% 8)", column),
                       arena_printf(m, "(%s + mt->lane / 8 %% 2 * 8)", k));
    else
        print_matrices(e, two, b->index, true, arena_printf(m, "(%s + mt->lane %% 16)", k),
                       arena_printf(m, "(%s)", column));
    cuda_print(e, "%s[%s][0] = %s[0], %s[%s][1] = %s[1], %s[%s + 1][0] = %s[2], %s[%s + 1][1] = %s[3];", right, j, two,
               right, j, two, right, j, two, right, j, two);
    cuda_close(e);
    const char *at = plus(m, block_text(m, &q, 0, i, true), block_text(m, &q, 1, j, true));
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", i, i, below, i);
    cuda_print(e, "#pragma unroll");
    cuda_print(e,
               "for (int %s = 0; %s < %" PRId64 "; %s++) mt_mma_%s(%s + (%s) * 4, %s[%s][0], %s[%s][1], %s[%s][2], "
               "%s[%s][3], %s[%s][0], %s[%s][1]);",
               j, j, beside, j, dot->a->type->scalar.exponent == 8 ? "bf16" : "f16", e->names[acc], at ? at : "0", left,
               i, left, i, left, i, left, i, right, j, right, j);
    cuda_close(e);
    cuda_close(e);
}

/* The left operand in registers; the right one's rows are k, of 64 columns a panel. A group of wgmma must not be given
 * registers that are written meanwhile: the words are those of the tile. */
static void wgmma_held(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const tile_node *a = s->value->a, *b = s->value->b;
    const int64_t k = a->shape.extent[1], columns = b->shape.extent[1];
    const char *i = cuda_name(e, "k"), *left = cuda_name(e, "left"), *word = arena_printf(m, "%s / 4", i);
    cuda_print(e, "mt_wgmma_fence();");
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s += 16) {", i, i, k, i);
    cuda_print(e, "const uint32_t %s[4] = {%s[%s], %s[%s + 1], %s[%s + 2], %s[%s + 3]};", left, e->names[a->index],
               word, e->names[a->index], word, e->names[a->index], word, e->names[a->index], word);
    for (int64_t n = 0; n < columns; n += 64)
        cuda_print(e, "mt_wgmma_tile<%s, %" PRId64 ">(%s, %s, mt_wgmma_matrix(%s + %" PRId64 ") + %s * 8);",
                   f16_of(a->type), n / 2, e->names[s->action->variable], left, e->names[b->index], n / 64 * k * 128,
                   i);
    cuda_close(e);
}

/* Of 128 rows a warpgroup has 64, of 64 rows all; then half the columns. Panels of 64 columns of k lie after each
 * other, rows of 128 bytes. */
static void wgmma(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const tile_node *dot = s->value, *a = dot->a, *b = dot->b->a;
    if (e->r->variables[a->index].place == ROLE_REGISTER) {
        wgmma_held(e, s);
        return;
    }
    const int64_t rows = a->shape.extent[0], columns = b->shape.extent[0], k = a->shape.extent[1],
                  own = rows == 128 ? columns : columns / 2, at_once = min_i64(own, 128);
    const char *i = cuda_name(e, "k"), *acc = e->names[s->action->variable];
    cuda_print(e, "mt_wgmma_fence();");
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", i, i, k / 16, i);
    const char *left = arena_printf(m, "%s + %s / 4 * %" PRId64 "%s", e->names[a->index], i, rows * 128,
                                    rows == 128 ? " + mt->warp / 4 * MT_PIECE" : "");
    for (int64_t n = 0; n < own; n += at_once) {
        const char *right =
            arena_printf(m, "%s + %s / 4 * %" PRId64 " + %" PRId64, e->names[b->index], i, columns * 128, n * 128);
        if (rows == 64) right = arena_printf(m, "%s + mt->warp / 4 * %" PRId64, right, own * 128);
        cuda_print(e,
                   "mt_wgmma<%s, %" PRId64 ", %" PRId64
                   ">(%s, mt_wgmma_matrix(%s) + %s %% 4 * 2, mt_wgmma_matrix(%s) + "
                   "%s %% 4 * 2);",
                   f16_of(a->type), at_once, n / 2, acc, left, i, right, i);
    }
    cuda_close(e);
}

/* ---- barriers ---- */

const char *cuda_level2_barrier(cuda_emit *e, const level2_action *a) {
    const int64_t base = explicit_barriers(e->r->op.level2, a->barrier);
    const char *index = cuda_scalar(e, a->index);
    return base ? arena_printf(e->memory, "%" PRId64 " + %s", base, index) : emit_bare(e->memory, index);
}

static bool expects(const role_statement *s, int barrier) {
    for (; s; s = s->next)
        if ((s->action && s->action->kind == LEVEL2_EXPECT && s->action->barrier == barrier) ||
            expects(s->body, barrier) || expects(s->otherwise, barrier))
            return true;
    return false;
}

/* The number of the barrier at which the storer arrives when all is stored. */
static int all_stored(const cuda_emit *e) {
    return (int)explicit_barriers(e->r->op.level2, e->r->op.level2->barrier_count);
}

/* What a loader or a storer does when it gives up. */
static void print_leave(cuda_emit *e, level2_role_kind role) {
    const tile_level2 *x = e->r->op.level2;
    for (int i = 0; i < x->barrier_count; i++)
        if (role == LEVEL2_LOADER && expects(e->r->loader, i))
            cuda_print(e, "    mt_landed(mt, mt_issued, %d, %d);", (int)explicit_barriers(x, i),
                       (int)x->barriers[i].count);
    if (role == LEVEL2_STORER) cuda_print(e, "    mt_stored(mt, %d);", all_stored(e));
    cuda_print(e, "    return;");
}

/* ---- what others may be at, too ---- */

void cuda_level2_shared_element(cuda_emit *e, const role_statement *s, const char *place, const char *value) {
    const level2_action *a = s->action;
    if (a->kind == LEVEL2_TAKE)
        cuda_print(e, "%s = mt_take_posted(mt, %s);", value, place);
    else if (a->kind == LEVEL2_POST)
        cuda_print(e, "mt_post(%s, %s);", place, value);
    else if (a->kind == LEVEL2_STAMP)
        cuda_print(e, "mt_stamp(%s);", place);
    if (a->kind != LEVEL2_ATOMIC) return;
    cuda_print(e, "%smt_atomic_%s_%s<%s>(%s, %s);",
               a->variable >= 0 ? "((mt_slot *)mt->slot)->before = (uint32_t)" : "", explicit_atomics[a->atomic],
               e->r->op.params[s->access->param].type->name, a->scope == LEVEL2_CTA ? "true" : "false", place, value);
}

/* The role's threads have met before a release, and meet behind an acquire, which one of them carries out for all. */
static void atomic(cuda_emit *e, const role_statement *s) {
    const level2_action *a = s->action;
    const char *fence = a->scope == LEVEL2_CTA ? "mt_fence_cta();" : "mt_fence();";
    const bool acquires = a->order == LEVEL2_ACQUIRE || a->order == LEVEL2_ACQ_REL;
    if (a->order == LEVEL2_RELEASE || a->order == LEVEL2_ACQ_REL) {
        cuda_print(e, "mt_sync();");
        cuda_print(e, "%s", fence);
    }
    if (a->variable >= 0) cuda_print(e, "if (mt->thread == 0) ((mt_slot *)mt->slot)->before = 0;");
    CUDA_OPEN(e, "{");
    cuda_store(e, s);
    cuda_close(e);
    if (acquires) cuda_print(e, "%s", fence);
    if (a->variable < 0) return;
    cuda_print(e, "mt_sync();");
    cuda_print(e, "%s = (%s)mt->slot->before;", e->names[a->variable],
               emit_c_type(e->r->op.variables[a->variable].type));
    cuda_print(e, "mt_sync(); // the next one may be written");
}

/* ---- actions ---- */

static void print_text(cuda_emit *e, const role_statement *s) {
    text t = {0};
    const tile_statement action = {.kind = TILE_ACTION,
                                   .value = (tile_node *)s->value,
                                   .access = (tile_access *)s->access,
                                   .shape = s->shape,
                                   .action = (level2_action *)s->action};
    explicit_print_action(&t, &e->r->op, &action);
    if (t.data) cuda_print(e, "// %s", t.data[0] == '/' ? t.data + 3 : t.data);
    text_free(&t);
}

void cuda_level2_action(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const level2_action *a = s->action;
    const level2_role_kind role = a->role;
    print_text(e, s);
    switch (a->kind) {
    case LEVEL2_VIEW: {
        const level2_shared *t = &e->r->op.level2->shared[a->shared];
        const char *index = cuda_scalar(e, a->index), *name = e->names[a->variable];
        const int64_t base = e->r->shared_offset[a->shared];
        if (t->pages)
            cuda_print(e, "%s = mt_borrowed_page(mt, %s, %" PRId64 " + %s);", name,
                       role == LEVEL2_STORER ? "mt->slot->first" : "mt_first", base, index);
        else
            cuda_print(e, "%s = mt->scratch + %" PRId64 " + %s * %" PRId64 ";", name, base, index,
                       (int64_t)align_up((uint64_t)layout_shared_bytes(&t->layout), 1024));
        break;
    }
    case LEVEL2_PUT:
        CUDA_OPEN(e, "{");
        put(e, s);
        cuda_close(e);
        break;
    case LEVEL2_COPY:
        cuda_level2_copy(e, s);
        break;
    case LEVEL2_WAIT:
        if (role == LEVEL2_CONSUMER) {
            cuda_print(e, "mt_phase_over(mt, %s, %s);", cuda_level2_barrier(e, a),
                       emit_bare(m, cuda_scalar(e, a->phase)));
            break;
        }
        CUDA_OPEN(e, "if (!mt_phase_%s(mt, %s, %s)) {", role == LEVEL2_LOADER ? "over" : "watched",
                  cuda_level2_barrier(e, a), emit_bare(m, cuda_scalar(e, a->phase)));
        e->indent--;
        print_leave(e, role);
        cuda_print(e, "}");
        break;
    case LEVEL2_ARRIVE:
        if (role != LEVEL2_CONSUMER)
            cuda_print(e, "mt_mbarrier_arrive(mt_barrier(mt, %s));", cuda_level2_barrier(e, a));
        else
            cuda_print(e, "mt_warp_arrives(mt, %s);", cuda_level2_barrier(e, a));
        break;
    case LEVEL2_EXPECT:
        cuda_level2_expect(e, s);
        break;
    case LEVEL2_MMA:
        mma(e, s);
        break;
    case LEVEL2_WGMMA:
        CUDA_OPEN(e, "{");
        wgmma(e, s);
        cuda_close(e);
        break;
    case LEVEL2_TAKE: {
        const char *i = cuda_name(e, "i");
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int %s = 0; %s < %" PRId64 "; %s++) %s[%s] = 0; // outside", i, i,
                   layout_locals(e->r->variables[a->variable].layout), i, e->names[a->variable], i);
    } /* fall through */
    case LEVEL2_STAMP:
    case LEVEL2_POST:
        CUDA_OPEN(e, "{");
        cuda_store(e, s);
        cuda_close(e);
        if (a->kind == LEVEL2_TAKE) cuda_print(e, "mt_taken(mt);");
        break;
    case LEVEL2_ATOMIC:
        atomic(e, s);
        break;
    case LEVEL2_STORE:
        cuda_level2_store(e, s);
        break;
    case LEVEL2_COMMIT:
        cuda_print(e, role == LEVEL2_STORER ? "mt_bulk_commit();" : "mt_wgmma_commit();");
        break;
    case LEVEL2_WAIT_GROUP:
        if (role == LEVEL2_STORER) {
            cuda_print(e, "mt_bulk_read<%d>();", (int)a->bytes);
            break;
        }
        cuda_print(e, "mt_wgmma_wait<%d>();", (int)a->bytes);
        for (int v = 0; v < e->r->op.variable_count && !a->bytes; v++)
            if (e->r->variables[v].place == ROLE_REGISTER && e->r->variables[v].wgmma)
                cuda_print(e, "mt_wgmma_done(%s);", e->names[v]);
        break;
    case LEVEL2_SYNC:
        cuda_print(e, "mt_sync();");
        break;
    case LEVEL2_ROLE:
        break;
    }
}

/* ---- an op's functions ---- */

static bool names_stage(const role_statement *s, int variable) {
    for (; s; s = s->next)
        if ((s->action && s->action->kind == LEVEL2_VIEW && s->action->variable == variable) ||
            names_stage(s->body, variable) || names_stage(s->otherwise, variable))
            return true;
    return false;
}

void cuda_level2_make(text *out, const role_op *r) {
    const tile_level2 *x = r->op.level2;
    text_string(out, "        mt_barriers_clear(mt);\n");
    for (int i = 0; i < x->barrier_count; i++) {
        const bool *arrives = x->barriers[i].arrives;
        text_printf(out, "        mt_barriers_make(mt, %d, %d); // %s\n", (int)x->barriers[i].count,
                    arrives[LEVEL2_LOADER] + arrives[LEVEL2_STORER] + arrives[LEVEL2_CONSUMER] * x->warps,
                    x->barriers[i].name);
    }
    if (r->storer) text_string(out, "        mt_barriers_make(mt, 1, 1); // all is stored\n");
    text_string(out, "        mt_mbarrier_publish();\n        break;\n");
}

void cuda_level2_begin(cuda_emit *e, int role) {
    const role_op *r = e->r;
    const role_statement *const all[] = {r->loader, r->consumer, r->storer};
    for (int v = 0; v < r->op.variable_count; v++) {
        const tile_variable *t = &r->op.variables[v];
        if (r->variables[v].place == ROLE_STAGE && names_stage(all[role], v))
            text_printf(e->head, "    char *%s; // a stage of %s\n", e->names[v], t->name);
        if (r->variables[v].place != ROLE_REGISTER || role != LEVEL2_CONSUMER) continue;
        const int64_t locals = layout_locals(r->variables[v].layout);
        if (is_packed(t->type))
            text_printf(e->head, "    uint32_t %s[%" PRId64 "] = {}; // %s\n", e->names[v], ceil_div(locals, 2),
                        t->type->name);
        else
            text_printf(e->head, "    %s %s[%" PRId64 "];\n", emit_c_type(t->type), e->names[v], locals);
    }
    if (role == LEVEL2_CONSUMER && r->loader)
        cuda_print(e, "const uint32_t mt_first = mt_borrowed(mt, %d);", r->borrowed);
    if (role != LEVEL2_LOADER) return;
    cuda_print(e, "const uint32_t mt_first = mt_borrow(mt, %d);", r->borrowed);
    cuda_print(e, "uint32_t mt_issued = 0;");
    cuda_print(e, "if (mt->stopped || !mt_operands_ready(mt)) return;");
}

void cuda_level2_end(cuda_emit *e, int role) {
    if (role == LEVEL2_STORER) cuda_print(e, "mt_stored(mt, %d);", all_stored(e));
    if (role != LEVEL2_CONSUMER) return;
    if (e->r->storer) cuda_print(e, "mt_phase_over(mt, %d, 0); // all is stored", all_stored(e));
    if (!e->r->loader) return;
    cuda_print(e, "(void)mt_first;");
    cuda_print(e, "mt_give_back(mt, %d);", e->r->borrowed);
}
