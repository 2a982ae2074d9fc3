/* Elements of tensors: loads, stores, and the loops over rows and vectors that stores and buffers share.
 *
 * What an element's address and its being in range need is split by level: the slice's start once a statement, the row
 * once a row; the vector is read as a whole where its elements are neighbours. Plain loads are enough for what other
 * instructions wrote: the instruction's waits ended with an acquire. Stamped data are waited for as they are read. */
#include "emit/emit_cuda_internal.h"

#include <inttypes.h>

static int deeper(int a, int b) { return a > b ? a : b; }

/* ---- tensors ---- */

const char *cuda_tensor_name(cuda_emit *e, int param) {
    if (cuda_first_use(e, e->param[param]))
        text_printf(e->head, "    const cuda_tensor *const %s = &mt->slot->tensor[%d];\n", e->param[param],
                    e->r->op.params[param].ordinal);
    return e->param[param];
}

const char *cuda_extent(cuda_emit *e, int param, int d) {
    const tile_node *extent = e->r->op.params[param].extent[d];
    if (extent->kind == TILE_CONST || extent->kind == TILE_EXTENT) return cuda_scalar(e, extent);
    if (!e->extents[param][d]) {
        const char *value = cuda_scalar(e, extent);
        e->extents[param][d] = cuda_name(e, arena_printf(e->memory, "%s_extent_%d", e->r->op.params[param].name, d));
        text_printf(e->head, "    const int64_t %s = mt_min(%s->extent[%d], %s);\n", e->extents[param][d],
                    cuda_tensor_name(e, param), d, value);
    }
    return e->extents[param][d];
}

static const char *extent_of(cuda_emit *e, const tile_access *access, int d) {
    const char *extent = cuda_extent(e, access->param, d);
    const tile_node *limit = access->item[d].limit;
    return limit ? arena_printf(e->memory, "mt_min(%s, %s)", extent, emit_bare(e->memory, cuda_scalar(e, limit)))
                 : extent;
}

static bool is_packed(const tile_format *t) { return !tile_format_is_block(t) && t->scalar.bits < 8; }
static bool is_e8m0(const tile_format *t) {
    return !tile_format_is_block(t) && t->scalar.kind == TILE_FLOAT && t->scalar.is_unsigned;
}
static const char *memory_type(const tile_format *t) {
    return is_e8m0(t) || tile_format_is_block(t) ? "uint8_t" : emit_c_type(t);
}

/* Beyond a slice's limit it is zero, and so is what it is a factor of. (0 * infinity would not be: what is left out of
 * a slice takes no part in sums of products, docs/language.md.) */
const char *cuda_end_of(cuda_emit *e, const tile_node *n, int axis) {
    if (axis < 0 || axis >= n->shape.rank || n->shape.extent[axis] == 1) return NULL;
    if (n->kind == TILE_VAR && e->r->variables[n->index].place == ROLE_FUSED)
        return cuda_end_of(e, e->r->variables[n->index].value, axis);
    if (n->kind == TILE_CAST) return cuda_end_of(e, n->a, axis);
    if (n->kind == TILE_ELEMENTWISE && n->op == TILE_MUL) {
        const char *end = cuda_end_of(e, n->a, axis - n->shape.rank + n->a->shape.rank);
        return end ? end : cuda_end_of(e, n->b, axis - n->shape.rank + n->b->shape.rank);
    }
    if (n->kind != TILE_LOAD) return NULL;
    const tile_access *access = n->access;
    int d = 0;
    for (int t = 0; d < access->rank; d++)
        if (access->item[d].kind != TILE_ITEM_POINT && t++ == axis) break;
    const tile_item *item = &access->item[d];
    if (d == access->rank || item->kind != TILE_ITEM_RANGE || !item->limit) return NULL;
    const char *name = cuda_name(e, "end");
    cuda_print(e, "const int %s = (int)mt_clamp(%s - %s, 0, %" PRId64 ");", name, extent_of(e, access, d),
               cuda_scalar(e, item->start), item->size);
    return name;
}

/* ---- coordinates ---- */

/* A grid's axis that runs over this extent: an instruction beyond it has returned. */
static bool is_guarded(const role_op *r, const tile_node *start, const tile_node *extent) {
    if (start->kind != TILE_GRID || extent->kind != TILE_EXTENT) return false;
    const tile_node *count = r->op.axis_count[start->index];
    return count->kind == TILE_EXTENT && count->index == extent->index;
}

/* The index of a slice in one dimension of its tensor: start + at. */
typedef struct coordinate {
    const char *start; /* NULL: 0; an atom */
    int start_level;
    cuda_index at;
    bool proven;       /* in range */
    bool not_negative; /* the start is not */
    const char *part;  /* RANGE, not proven: the mt_part of the indices that are in range */
    const char *valid; /* POINT, GATHER, not proven: the condition */
    int level;
} coordinate;

static coordinate coordinate_of(cuda_nest *x, const tile_access *access, int d, const cuda_index *at) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    const tile_item *item = &access->item[d];
    const tile_node *extent = e->r->op.params[access->param].extent[d];
    const char *base = e->r->op.params[access->param].name;
    coordinate c = {.at = cuda_index_constant(0)};
    int64_t low, high;
    if (item->kind == TILE_ITEM_GATHER) {
        cuda_value id = cuda_element(x, item->start, at);
        if (!id.atom)
            id = cuda_hoist(x, (cuda_value){arena_printf(m, "(int64_t)%s", id.text), id.level, false}, "int64_t", "id");
        c.start = id.text;
        c.start_level = c.level = id.level;
        c.valid = arena_printf(m, "mt_in(%s, %s)", id.text, extent_of(e, access, d));
        return c;
    }
    if (item->kind == TILE_ITEM_RANGE) c.at = *at;
    c.level = cuda_index_level(&c.at);
    const bool known = role_range(e->r, item->start, &low, &high);
    c.not_negative = known && low >= 0;
    if (item->start->kind != TILE_CONST || item->start->value.i != 0) {
        const char *text_of = cuda_scalar(e, item->start);
        const int guarded = x->guarded;
        x->guarded = 0; /* starts are scalars: they can be computed in front */
        c.start = cuda_hoist(x, (cuda_value){text_of, LEVEL_STATEMENT, emit_is_name(text_of)}, "int64_t", base).text;
        x->guarded = guarded;
    }
    c.proven = known && low >= 0 && !item->limit && extent->kind == TILE_CONST && high + item->size <= extent->value.i;
    const int64_t size = item->kind == TILE_ITEM_RANGE ? item->size : 1;
    c.proven |= size == 1 && !item->limit && is_guarded(e->r, item->start, extent);
    if (c.proven) return c;
    const char *start = c.start ? c.start : "0", *limit = emit_bare(m, extent_of(e, access, d));
    if (item->kind == TILE_ITEM_POINT)
        c.valid = arena_printf(m, "mt_in(%s, %s)", start, limit);
    else {
        const char *text_of = arena_printf(m, "mt_part_of(%s, %s, %" PRId64 ")", start, limit, item->size);
        const int guarded = x->guarded;
        x->guarded = 0;
        c.part = cuda_hoist(x, (cuda_value){text_of, LEVEL_STATEMENT, false}, "mt_part", base).text;
        x->guarded = guarded;
    }
    return c;
}

/* The condition that a coordinate is in range; NULL when it surely is. */
static const char *check_of(cuda_nest *x, const coordinate *c) {
    arena *m = x->e->memory;
    if (c->proven) return NULL;
    if (!c->part) return c->valid;
    const char *i = emit_bare(m, cuda_index_text(x, &c->at));
    return c->not_negative ? arena_printf(m, "%s < %s.high", i, c->part)
                           : arena_printf(m, "mt_within(%s, %s)", i, c->part);
}

static const char * and (arena * m, const char *a, const char *b) {
    return !a ? b : !b ? a : arena_printf(m, "%s && %s", a, b);
}
static const char *plus(arena *m, const char *a, const char *b) {
    return !a ? b : !b ? a : arena_printf(m, "%s + %s", a, b);
}

/* What coordinates times strides of this level add to the address; of the first `count` of `rank` dimensions. NULL:
 * nothing. */
static const char *offset_of(cuda_nest *x, const char *tensor, const coordinate *c, int rank, int count, int level) {
    arena *m = x->e->memory;
    const char *sum = NULL;
    for (int d = 0; d < count; d++) {
        const char *stride = d == rank - 1 ? NULL : arena_printf(m, "mt_stride(%s, %d)", tensor, d);
        if (c[d].start && c[d].start_level == level)
            sum = plus(m, sum, stride ? arena_printf(m, "%s * %s", c[d].start, stride) : c[d].start);
        if ((c[d].at.text || c[d].at.lane || c[d].at.offset) && cuda_index_level(&c[d].at) == level) {
            const char *i = cuda_index_text(x, &c[d].at);
            sum = plus(m, sum, stride ? arena_printf(m, "%s * %s", i, stride) : i);
        }
    }
    return sum;
}

static const char *offset_at(cuda_nest *x, const char *tensor, const coordinate *c, int rank, int level) {
    return offset_of(x, tensor, c, rank, rank, level);
}

/* A pointer to the tensor's element whose coordinates are those of levels up to ROW: the rest is added to it. Not for
 * packed elements. */
static const char *row_pointer(cuda_nest *x, int param, const char *type, bool constant, const coordinate *c,
                               int rank) {
    arena *m = x->e->memory;
    const char *tensor = cuda_tensor_name(x->e, param), *name = x->e->r->op.params[param].name;
    const char *head = offset_at(x, tensor, c, rank, LEVEL_STATEMENT), *row = offset_at(x, tensor, c, rank, LEVEL_ROW);
    const char *pointer = arena_printf(m, "%s%s *", constant ? "const " : "", type);
    const int guarded = x->guarded;
    x->guarded = 0; /* addresses are only computed */
    const char *base =
        arena_printf(m, "mt_global((%s)%s->data)%s%s", pointer, tensor, head ? " + " : "", head ? head : "");
    cuda_value p = cuda_hoist(x, (cuda_value){base, LEVEL_STATEMENT, false}, pointer, name);
    x->guarded = guarded;
    if (!row) return p.text;
    if (guarded) return arena_printf(m, "(%s + %s)", p.text, row);
    return cuda_hoist(x, (cuda_value){arena_printf(m, "%s + %s", p.text, row), LEVEL_ROW, false}, pointer, name).text;
}

/* ---- loads ---- */

static const char *held(arena *m, const tile_format *t, const char *element) {
    if (t->scalar.kind == TILE_BOOL) return arena_printf(m, "(%s != 0)", element);
    if (is_packed(t) && t->scalar.kind == TILE_INT)
        return arena_printf(m, "(int8_t)mt_sign(%s, %d)", element, t->scalar.bits);
    return element;
}

/* The value of one element of a block format, or of a weight that does not lie in rows. */
static const char *special_element(cuda_nest *x, const tile_node *n, const coordinate *c, int *level) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    const tile_param *p = &e->r->op.params[n->access->param];
    const role_layout layout = e->r->layout[p->ordinal];
    const char *tensor = cuda_tensor_name(e, n->access->param), *coordinates[TILE_RANK], *offset = NULL;
    for (int d = 0; d < p->rank; d++) {
        const char *i = c[d].at.text || c[d].at.lane || c[d].at.offset ? cuda_index_text(x, &c[d].at) : NULL;
        coordinates[d] = c[d].start && i ? arena_printf(m, "(%s + %s)", c[d].start, i)
                         : c[d].start    ? c[d].start
                         : i             ? i
                                         : "0";
        *level = deeper(*level, c[d].level);
        offset = plus(m, offset,
                      d == p->rank - 1 ? coordinates[d]
                                       : arena_printf(m, "%s * mt_stride(%s, %d)", coordinates[d], tensor, d));
    }
    const char *k = coordinates[p->rank - 1];
    if (layout == ROLE_ATOMS)
        return arena_printf(m, "mt_atom_element(%s->data, %s, %s, %" PRId64 ")", tensor, coordinates[0], k,
                            ceil_div(p->extent[1]->value.i, 64));
    const tile_format *f = layout == ROLE_BANDS ? role_banded(m, n->type, p->extent[1]->value.i) : n->type;
    const char *format = cuda_format_of(e->unit, f, NULL);
    const int block = f->block, bytes = f->bits / 8;
    if (layout == ROLE_BANDS) {
        const int64_t columns = p->extent[1]->value.i, band = role_band(n->type, columns),
                      bands = ceil_div(columns, band), rest = columns - (bands - 1) * band;
        return arena_printf(m,
                            "%s::value(mt_band_block(%s->data, %s, %s, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                            ", %d, %d), (int)(%s %% %d))",
                            format, tensor, coordinates[0], emit_bare(m, k), band, bands, role_band_row(n->type, band),
                            role_band_row(n->type, rest), block, bytes, k, block);
    }
    return arena_printf(m, "%s::value((const uint8_t *)%s->data + (%s) / %d * %d, (int)(%s %% %d))", format, tensor,
                        offset, block, bytes, k, block);
}

static bool is_stamped(const cuda_emit *e, int param) {
    return e->stamped && e->stamped[e->r->op.params[param].ordinal];
}

/* A vector whose first column is `along` lies at a multiple of its bytes, or of 16. */
static bool is_aligned(const cuda_nest *x, const tile_access *access, const cuda_index *along) {
    const role_op *r = x->e->r;
    const tile_param *p = &r->op.params[access->param];
    const int64_t bytes = p->type->scalar.bits / 8, whole = min_i64(16, x->vector * bytes);
    return x->e->aligned && x->e->aligned[p->ordinal] &&
           role_divisor(r, access->item[access->rank - 1].start) * bytes % whole == 0 &&
           along->offset * bytes % whole == 0;
}

/* A vector of weights of which each thread reads one piece, the same for any instruction: it is read at the very
 * beginning, while the first of what other instructions wrote is on its way, and not after it. */
static bool is_early(const cuda_nest *x, const tile_access *access, const cuda_index *along) {
    const tile_param *p = &x->e->r->op.params[access->param];
    const tile_node *start = access->item[0].start;
    return x->once && along->text && !strcmp(along->text, x->once) && !along->offset && access->rank == 1 &&
           p->kind == TILE_IN && x->e->cold[p->ordinal] && start->kind == TILE_CONST && start->value.i == 0;
}

cuda_value cuda_load(cuda_nest *x, const tile_node *n, const cuda_index *at) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    const tile_access *access = n->access;
    const tile_format *t = n->type;
    const int last = access->rank - 1;
    coordinate c[TILE_RANK] = {{0}};
    const char *rows_valid = NULL; /* of all dimensions but the last */
    int others = LEVEL_STATEMENT, i = 0;
    for (int d = 0; d <= last; d++) {
        c[d] = coordinate_of(x, access, d, access->item[d].kind == TILE_ITEM_POINT ? NULL : &at[i]);
        i += access->item[d].kind != TILE_ITEM_POINT;
        if (d == last) break;
        others = deeper(others, c[d].level);
        rows_valid = and(m, rows_valid, check_of(x, &c[d]));
    }
    const role_layout layout = e->r->layout[e->r->op.params[access->param].ordinal];
    const char *zero = is_e8m0(t) ? "256" : "0", *valid = and(m, rows_valid, check_of(x, &c[last]));
    int level = deeper(others, c[last].level);
    if (tile_format_is_block(t) || layout != ROLE_ROWS) {
        const char *element = special_element(x, n, c, &level);
        return (cuda_value){
            valid ? arena_printf(m, "(%s ? %s : %s)", valid, element, tile_format_is_block(t) ? "0.0f" : zero)
                  : element,
            level, false};
    }
    const char *tensor = cuda_tensor_name(e, access->param), *type = memory_type(t);
    if (is_packed(t)) {
        const char *offset = NULL;
        for (int l = LEVEL_STATEMENT; l < LEVELS; l++)
            offset = plus(m, offset, offset_at(x, tensor, c, access->rank, l));
        const char *element =
            arena_printf(m, "mt_get_bits(%s->data, %s, %d)", tensor, offset ? offset : "0", t->scalar.bits);
        return (cuda_value){held(m, t, valid ? arena_printf(m, "(%s ? %s : 0)", valid, element) : element), level,
                            false};
    }
    const char *pointer = row_pointer(x, access->param, type, true, c, access->rank), *rest = NULL;
    const cuda_index *along = &c[last].at;
    const bool stamped = is_stamped(e, access->param), aligned = is_aligned(x, access, along);
    const bool neighbours = x->vector > 1 && (!stamped || (aligned && !valid)) && along->lane &&
                            along->level <= LEVEL_VECTOR && others <= LEVEL_VECTOR && !x->guarded && !is_e8m0(t) &&
                            access->item[last].kind == TILE_ITEM_RANGE;
    if (neighbours) {
        const cuda_index base = {along->text, along->level, false, along->offset};
        const char *first = cuda_index_text(x, &base), *from = arena_printf(m, "%s + %s", pointer, first),
                   *apart = offset_of(x, tensor, c, access->rank, last, LEVEL_VECTOR);
        if (apart) from = arena_printf(m, "%s + %s", from, apart);
        const char *key = arena_printf(m, "load %s %s", from, valid ? valid : "");
        const cuda_value *known = cuda_known_value(x, key);
        const char *vector = known ? known->text : cuda_name(e, e->r->op.params[access->param].name);
        if (!known) {
            if (is_early(x, access, along) && aligned && !valid) {
                text_printf(e->head, "    %s %s[%d];\n    mt_take(%s, mt_global((const %s *)%s->data) + %s);\n", type,
                            vector, x->vector, vector, type, tensor, x->once_begin);
                cuda_know(x, key, (cuda_value){vector, LEVEL_LANE, true});
                return (cuda_value){held(m, t, arena_printf(m, "%s[j]", vector)), LEVEL_LANE, false};
            }
            const char *looked = stamped && !apart && x->ahead.count && along->text == x->ahead.k
                                     ? cuda_look_ahead(x, n, at, vector, from)
                                     : NULL;
            if (looked) {
                cuda_know(x, key, (cuda_value){looked, LEVEL_LANE, true});
                return (cuda_value){held(m, t, arena_printf(m, "%s[j]", looked)), LEVEL_LANE, false};
            }
            NEST_LINE(x, LEVEL_VECTOR, "%s %s[%d];", type, vector, x->vector);
            if (stamped)
                NEST_LINE(x, LEVEL_VECTOR, "mt_take_posted(mt, %s, %s);", vector, from);
            else if (!valid)
                NEST_LINE(x, LEVEL_VECTOR, aligned ? "mt_take(%s, %s);" : "mt_load(%s, %s);", vector, from);
            else if (c[last].proven)
                NEST_LINE(x, LEVEL_VECTOR, "mt_load_if<%s>(%s, %s, %s);", aligned ? "true" : "false", vector, from,
                          rows_valid);
            else {
                const char *low =
                    c[last].proven || c[last].not_negative ? "0" : arena_printf(m, "%s.low - %s", c[last].part, first);
                const char *high = c[last].proven ? arena_printf(m, "%d", x->vector)
                                                  : arena_printf(m, "%s.high - %s", c[last].part, first);
                if (rows_valid) high = arena_printf(m, "%s ? %s : 0", rows_valid, high);
                NEST_LINE(x, LEVEL_VECTOR, "mt_load(%s, %s, %s, %s, (%s)0);", vector, from, low, high, type);
            }
            cuda_know(x, key, (cuda_value){vector, LEVEL_LANE, true});
        }
        return (cuda_value){held(m, t, arena_printf(m, "%s[j]", vector)), LEVEL_LANE, false};
    }
    for (int l = LEVEL_VECTOR; l < LEVELS; l++) rest = plus(m, rest, offset_at(x, tensor, c, access->rank, l));
    x->place = rest ? arena_printf(m, "%s + %s", pointer, rest) : pointer;
    const char *alone = x->alone && !valid ? cuda_load_alone(x, n, at, type, stamped) : NULL;
    if (alone) return (cuda_value){held(m, t, alone), level, false};
    const char *element = stamped ? arena_printf(m, "mt_take_posted(mt, %s)", x->place)
                                  : arena_printf(m, "%s[%s]", pointer, rest ? emit_bare(m, rest) : "0");
    return (cuda_value){held(m, t, valid ? arena_printf(m, "(%s ? %s : %s)", valid, element, zero) : element), level,
                        false};
}

/* ---- rows ---- */

/* A power of two, of threads: thread / n and thread % n. */
static const char *group_of(arena *m, int n) {
    return n == ROLE_THREADS ? "0" : n == 1 ? "mt->thread" : arena_printf(m, "mt->thread / %d", n);
}
static const char *within_of(arena *m, int n) {
    return n == ROLE_THREADS ? "mt->thread" : n == 1 ? "0" : arena_printf(m, "mt->thread %% %d", n);
}

cuda_rows cuda_rows_of(cuda_emit *e, const role_spread *s) {
    cuda_rows r = {.row = cuda_index_constant(0), .column = cuda_index_constant(0)};
    if (s->rows > 1) r.row = (cuda_index){cuda_name(e, "row"), LEVEL_ROW, false, 0};
    if (s->columns > s->vector) r.column = (cuda_index){cuda_name(e, "k"), LEVEL_VECTOR, false, 0};
    r.column.lane = s->vector > 1;
    return r;
}

static int64_t step_of(const role_spread *s, const cuda_rows *rows) {
    return (rows->row.text ? (int64_t)s->lanes : ROLE_THREADS) * s->vector;
}
static const char *begin_of(cuda_emit *e, const role_spread *s, const cuda_rows *rows) {
    const char *first = rows->row.text ? within_of(e->memory, s->lanes) : "mt->thread";
    return s->vector == 1 || !strcmp(first, "0") ? first : arena_printf(e->memory, "%s * %d", first, s->vector);
}
const char *cuda_rows_once(cuda_emit *e, const role_spread *s, const cuda_rows *rows) {
    return s->columns == step_of(s, rows) ? begin_of(e, s, rows) : NULL;
}

void cuda_rows_expect(cuda_nest *x, const role_spread *s, const cuda_rows *rows, bool some) {
    const char *k = rows->column.text;
    if (!k || s->fragment || s->registers) return;
    const bool all = !some && (!rows->row.text || s->rows >= ROLE_THREADS / s->lanes);
    if (s->columns >= step_of(s, rows))
        cuda_expect_steps(x, k, begin_of(x->e, s, rows), s->columns, step_of(s, rows), all);
    if (s->columns > step_of(s, rows) || rows->row.text || s->vector > 1) return;
    x->alone = k;
    x->alone_count = s->columns;
}

void cuda_rows_open(cuda_nest *x, const role_spread *s, const cuda_rows *rows, const char *condition) {
    cuda_emit *e = x->e;
    if (s->fragment) {
        cuda_fragment_open(x, s, rows, condition);
        return;
    }
    if (s->registers) {
        cuda_level2_open(x, s, rows, condition);
        return;
    }
    arena *m = e->memory;
    const int64_t at_once = ROLE_THREADS / s->lanes, step = step_of(s, rows);
    const char *row = rows->row.text, *k = rows->column.text;
    if (!row) { /* the threads beyond its lanes have none */
        if (!k && s->lanes < ROLE_THREADS)
            cuda_print(e, "if (mt->thread < %d) {", s->lanes);
        else
            cuda_print(e, "{");
    } else if (s->rows == at_once)
        cuda_print(e, "{ const int %s = %s;", row, group_of(m, s->lanes));
    else if (s->rows < at_once) /* an if: compilers unroll loops that they cannot see the end of */
        cuda_print(e, "if (const int %s = %s; %s < %" PRId64 ") {", row, group_of(m, s->lanes), row, s->rows);
    else
        cuda_print(e, "for (int %s = %s; %s < %" PRId64 "; %s += %" PRId64 ") {", row, group_of(m, s->lanes), row,
                   s->rows, row, at_once);
    e->indent++;
    cuda_nest_lines(x, LEVEL_ROW);
    if (condition) {
        cuda_print(e, "if (%s) {", condition);
        e->indent++;
    }
    if (k) {
        const char *begin = begin_of(e, s, rows);
        if (s->columns == step) {
            cuda_print_looks(x);
            cuda_print(e, "{ const int %s = %s;", k, begin);
        } else if (s->columns < step)
            cuda_print(e, "if (const int %s = %s; %s < %" PRId64 ") {", k, begin, k, s->columns);
        else
            cuda_open_steps(x, k, begin, s->columns, step);
        if (s->columns <= step) e->indent++;
    }
    cuda_nest_lines(x, LEVEL_VECTOR);
}

void cuda_rows_close(cuda_emit *e, const role_spread *s, const char *condition) {
    for (int depth = 1 + (s->columns > s->vector) + (condition != NULL); depth > 0; depth--) {
        e->indent--;
        cuda_print(e, "}");
    }
}

void cuda_unravel(cuda_nest *x, const tile_shape *shape, const cuda_index *row, const cuda_index *column,
                  cuda_index *at) {
    arena *m = x->e->memory;
    int64_t each = 1;
    if (!shape->rank) return;
    at[shape->rank - 1] = *column;
    for (int d = shape->rank - 2; d >= 0; d--) {
        const int64_t extent = shape->extent[d];
        bool slowest = true;
        for (int o = 0; o < d; o++) slowest &= shape->extent[o] == 1;
        if (extent == 1 || !row->text)
            at[d] = cuda_index_constant(extent == 1 ? 0 : row->offset / each % extent);
        else {
            const char *t = each == 1 ? row->text : arena_printf(m, "%s / %" PRId64, row->text, each);
            if (!slowest) t = arena_printf(m, "%s %% %" PRId64, t, extent);
            at[d] = *row;
            if (t != row->text)
                at[d].text =
                    cuda_hoist(x, (cuda_value){arena_printf(m, "(%s)", t), row->level, false}, "int", "index").text;
        }
        each *= extent;
    }
}

/* ---- stores ---- */

void cuda_store(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const tile_access *access = s->access;
    const tile_format *t = e->r->op.params[access->param].type;
    const int last = access->rank - 1;
    if (tile_format_is_block(t)) {
        cuda_unsupported(e, s->line, arena_printf(m, "stores of %s", t->name));
        return;
    }
    cuda_nest x;
    cuda_index at[TILE_RANK], below[TILE_RANK];
    coordinate c[TILE_RANK];
    tile_shape shape = s->shape;                /* what is spread */
    const bool single = s->kind == ROLE_ACTION; /* elements one by one */
    if (!single) role_scattered(s, &shape);
    cuda_nest_begin(e, &x, s->spread.vector);
    const cuda_rows rows = cuda_rows_of(e, &s->spread);
    cuda_level2_walk(&x, &s->spread);
    if (s->spread.fragment) x.group = cuda_name(e, "group"), x.half = cuda_name(e, "half");
    cuda_unravel(&x, &shape, &rows.row, &rows.column, at);
    for (int d = 0; d < shape.rank; d++)
        if (shape.extent[d] != s->shape.extent[d])
            at[d] = (cuda_index){cuda_name(e, "scattered"), LEVEL_VECTOR, false, 0};
    const char *rows_valid = NULL, *valid = NULL; /* once a row; for each vector */
    int i = 0;
    for (int d = 0; d <= last; d++) {
        c[d] = coordinate_of(&x, access, d, access->item[d].kind == TILE_ITEM_POINT ? NULL : &at[i]);
        i += access->item[d].kind != TILE_ITEM_POINT;
        if (d < last && c[d].level <= LEVEL_ROW)
            rows_valid = and(m, rows_valid, check_of(&x, &c[d]));
        else if (d < last)
            valid = and(m, valid, check_of(&x, &c[d]));
    }
    if (!single) cuda_rows_expect(&x, &s->spread, &rows, rows_valid != NULL);
    const tile_node *n = s->value;
    for (int d = 0; d < n->shape.rank; d++)
        below[d] = n->shape.extent[d] == 1 ? cuda_index_constant(0) : at[d + s->shape.rank - n->shape.rank];
    const char *type = memory_type(t), *tensor = cuda_tensor_name(e, access->param),
               *pointer = is_packed(t) ? NULL : row_pointer(&x, access->param, type, false, c, access->rank),
               *rest = NULL;
    const cuda_value v = cuda_element(&x, n, below);
    const char *value = is_e8m0(t) ? arena_printf(m, "(uint8_t)%s", v.text) : emit_bare(m, v.text);
    const bool stamped = is_stamped(e, access->param);
    /* a vector is stored at once */
    const bool whole = s->spread.vector > 1 && !s->adds && !single && (!stamped || c[last].proven);
    emit_line *const lines = x.first[LEVEL_VECTOR];
    x.first[LEVEL_VECTOR] = NULL;
    cuda_rows_open(&x, &s->spread, &rows, rows_valid);
    int depth = 0;
    for (int d = 0; d < shape.rank; d++) {
        if (shape.extent[d] == s->shape.extent[d]) continue;
        cuda_print(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", at[d].text, at[d].text, s->shape.extent[d],
                   at[d].text);
        e->indent++;
        depth++;
    }
    x.first[LEVEL_VECTOR] = lines;
    cuda_nest_lines(&x, LEVEL_VECTOR);
    if (!whole) valid = and(m, valid, check_of(&x, &c[last]));
    if (whole) {
        const char *first = rows.column.text ? rows.column.text : "0", *out = cuda_name(e, "values"),
                   *start = plus(m, first, offset_of(&x, tensor, c, access->rank, last, LEVEL_VECTOR));
        cuda_print(e, "%s %s[%d];", type, out, s->spread.vector);
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int j = 0; j < %d; j++) {", s->spread.vector);
        e->indent++;
        cuda_nest_lines(&x, LEVEL_LANE);
        cuda_print(e, "%s[j] = %s;", out, value);
        e->indent--;
        cuda_print(e, "}");
        if (valid) cuda_print(e, "if (%s)", valid);
        if (stamped)
            cuda_print(e, "mt_post(%s + %s, %s);", pointer, start, out);
        else if (c[last].proven && is_aligned(&x, access, &at[shape.rank - 1]))
            cuda_print(e, "mt_put(%s + %s, %s);", pointer, start, out);
        else if (c[last].proven)
            cuda_print(e, "mt_store(%s + %s, %s, 0, %d);", pointer, start, out, s->spread.vector);
        else
            cuda_print(e, "mt_store(%s + %s, %s, %s, %s.high - %s);", pointer, start, out,
                       c[last].not_negative ? "0" : arena_printf(m, "%s.low - %s", c[last].part, first), c[last].part,
                       first);
    } else {
        for (int l = is_packed(t) ? LEVEL_STATEMENT : LEVEL_VECTOR; l < LEVELS; l++)
            rest = plus(m, rest, offset_at(&x, tensor, c, access->rank, l));
        if (s->spread.vector > 1) {
            cuda_print(e, "#pragma unroll");
            cuda_print(e, "for (int j = 0; j < %d; j++) {", s->spread.vector);
            e->indent++;
            depth++;
        }
        cuda_nest_lines(&x, LEVEL_LANE);
        if (valid) cuda_print(e, "if (%s)", valid);
        if (is_packed(t))
            cuda_print(e, "mt_put_bits(%s->data, %s, %d, (uint32_t)%s);", tensor, rest ? rest : "0", t->bits, v.text);
        else if (stamped)
            cuda_print(e, "mt_post(%s%s%s, %s);", pointer, rest ? " + " : "", rest ? rest : "", value);
        else if (single)
            cuda_level2_shared_element(e, s, arena_printf(m, "%s + %s", pointer, rest ? rest : "0"), value);
        else
            cuda_print(e, "%s[%s] %s %s;", pointer, rest ? emit_bare(m, rest) : "0", s->adds ? "+=" : "=", value);
    }
    for (; depth > 0; depth--) {
        e->indent--;
        cuda_print(e, "}");
    }
    cuda_rows_close(e, &s->spread, rows_valid);
}
