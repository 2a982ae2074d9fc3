/* Copies of level 2 in CUDA C: the loader's, of slices into stages, and the storer's, of stages into slices.
 * cuda_explicit.h has the device's side. */
#include "emit/emit_cuda_internal.h"
#include "tile/explicit.h"

#include <inttypes.h>

static const char *plus(arena *m, const char *a, const char *b) {
    return !a ? b : !b ? a : arena_printf(m, "%s + %s", a, b);
}

typedef enum copy_way { COPY_ATOMS, COPY_MAPPED, COPY_ROWS, COPY_ELEMENTS } copy_way;

static int ranges_of(const tile_access *access, int *dimension) {
    int count = 0;
    for (int d = 0; d < access->rank; d++)
        if (access->item[d].kind == TILE_ITEM_RANGE && count < 2) dimension[count++] = d;
    return count;
}

/* How the bytes of a copy come: in pieces by tensor map, where the stage is one that wgmma reads and the operand has a
 * map; row by row, where rows lie whole in the stage; else element by element. */
static copy_way way_of(cuda_emit *e, const role_statement *s) {
    const tile_access *access = s->value->access;
    const tile_param *p = &e->r->op.params[access->param];
    const level2_shared *to = cuda_level2_shared(e, s->action->variable);
    const bool pieces = explicit_in_pieces(access, to);
    if (e->r->layout[p->ordinal] == ROLE_ATOMS) {
        const bool whole = pieces && p->rank == 2 && role_divisor(e->r, access->item[0].start) % 8 == 0 &&
                           role_divisor(e->r, access->item[1].start) % 64 == 0;
        if (!whole)
            cuda_unsupported(e, s->line,
                             "a copy of a weight that is no whole pieces: 64 rows from a multiple of 8 and 64 columns "
                             "from a multiple of 64, into a stage with swizzle(128)");
        return COPY_ATOMS;
    }
    if (pieces && e->r->mapped[p->ordinal]) return COPY_MAPPED;
    return to->layout.swizzle ? COPY_ELEMENTS : COPY_ROWS;
}

static int64_t bytes_of(const level2_shared *s) { return tile_shape_count(&s->shape) * s->layout.element; }

/* The slice as an mt_rows; its name. */
static const char *print_rows(cuda_emit *e, const tile_access *access, int64_t *rows, int64_t *columns) {
    arena *m = e->memory;
    const int bytes = e->r->op.params[access->param].type->scalar.bits / 8;
    int dimension[2];
    const int count = ranges_of(access, dimension), last = access->rank - 1;
    const char *tensor = cuda_tensor_name(e, access->param), *offset = NULL, *name = cuda_name(e, "slice"),
               *inside = NULL, *part[2] = {NULL};
    for (int d = 0; d < access->rank; d++) {
        const char *start = emit_bare(m, cuda_scalar(e, access->item[d].start)),
                   *extent = cuda_extent(e, access->param, d);
        if (access->item[d].limit)
            extent = arena_printf(m, "mt_min(%s, %s)", extent, emit_bare(m, cuda_scalar(e, access->item[d].limit)));
        offset = plus(m, offset,
                      d == last ? arena_printf(m, "(%s)", start)
                                : arena_printf(m, "(%s) * mt_stride(%s, %d)", start, tensor, d));
        if (access->item[d].kind == TILE_ITEM_POINT) {
            const char *here = arena_printf(m, "mt_in(%s, %s)", start, extent);
            inside = inside ? arena_printf(m, "%s && %s", inside, here) : here;
        } else {
            const int which = count == 1 ? 1 : d == dimension[1];
            part[which] = arena_printf(m, "mt_part_of(%s, %s, %" PRId64 ")", start, extent, access->item[d].size);
        }
    }
    *rows = count == 2 ? access->item[dimension[0]].size : 1;
    *columns = access->item[last].size;
    cuda_print(e, "mt_rows %s = {(const char *)%s->data + (%s) * %d, %s * %d, %s, %s};", name, tensor, offset, bytes,
               count == 2 ? arena_printf(m, "mt_stride(%s, %d)", tensor, dimension[0]) : "0", bytes,
               count == 2 ? part[0] : "{0, 1}", part[1]);
    if (inside) cuda_print(e, "if (!(%s)) %s.row.high = 0;", inside, name);
    return name;
}

static bool is_aligned(const cuda_emit *e, const tile_access *access) {
    const int bytes = e->r->op.params[access->param].type->scalar.bits / 8;
    return e->aligned && e->aligned[e->r->op.params[access->param].ordinal] &&
           role_divisor(e->r, access->item[access->rank - 1].start) * bytes % 16 == 0;
}

/* The bytes from one row to the next. */
static int64_t row_bytes(const layout_shared *s) { return s->shape.rank > 1 ? s->mode[1].stride : 0; }

/* In front of an expect: what the loader writes itself; the bytes that copies bring. */
static const char *begin_copy(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const level2_shared *to = cuda_level2_shared(e, s->action->variable);
    const char *name = e->names[s->action->variable], *type = emit_c_type(to->type);
    const int bytes = to->layout.element;
    const copy_way way = way_of(e, s);
    int64_t rows, columns;
    if (way <= COPY_MAPPED) return arena_printf(m, "%" PRId64, bytes_of(to));
    const char *slice = print_rows(e, s->value->access, &rows, &columns);
    if (way == COPY_ROWS)
        return arena_printf(m, "mt_rows_begin<%s, %" PRId64 ", %" PRId64 ", %d>(%s, %" PRId64 ", %s)",
                            is_aligned(e, s->value->access) ? "true" : "false", rows, columns, bytes, name,
                            row_bytes(&to->layout), slice);
    const char *row = cuda_name(e, "row"),
               *column = cuda_name(e, "column"), *const coordinate[2] = {to->shape.rank == 2 ? row : column, column};
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", row, row, rows, row);
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", column, column, columns, column);
    cuda_print(e,
               "*(%s *)(%s + %s) = mt_within(%s, %s.row) && mt_within(%s, %s.column) ? ((const %s *)(%s.from + %s * "
               "%s.stride))[%s] : 0;",
               type, name, cuda_level2_place(m, &to->layout, coordinate), row, slice, column, slice, type, slice, row,
               slice, column);
    cuda_close(e);
    cuda_close(e);
    cuda_print(e, "mt_fence_shared(); // wgmma reads it, and a later copy overwrites it, through another proxy");
    return "0";
}

void cuda_level2_expect(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const char *bytes = NULL, *number = cuda_name(e, "barrier");
    int left = s->action->copies;
    /* The stages are named before anything is written to them. */
    for (const role_statement *c = s->next; c && left; c = c->next) {
        if (c->action->kind == LEVEL2_VIEW) cuda_level2_action(e, c);
        left -= c->action->kind == LEVEL2_COPY && c->action->expect == s->action;
    }
    left = s->action->copies;
    for (const role_statement *c = s->next; c && left; c = c->next)
        if (c->action->kind == LEVEL2_COPY && c->action->expect == s->action) {
            bytes = plus(m, bytes, begin_copy(e, c));
            left--;
        }
    CUDA_OPEN(e, "{");
    cuda_print(e, "const int %s = (int)(%s);", number, cuda_level2_barrier(e, s->action));
    cuda_print(e, "mt_mbarrier_expect(mt_barrier(mt, %s), %s);", number, bytes ? bytes : "0");
    cuda_print(e, "mt_issued ^= 1u << %s;", number);
    cuda_close(e);
}

void cuda_level2_copy(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    const level2_shared *to = cuda_level2_shared(e, s->action->variable);
    const tile_access *access = s->value->access;
    const char *name = e->names[s->action->variable], *full = cuda_name(e, "full");
    const copy_way way = way_of(e, s);
    if (way == COPY_ELEMENTS) return;
    int64_t rows, columns;
    CUDA_OPEN(e, "{");
    cuda_print(e, "uint64_t *const %s = mt_barrier(mt, %s);", full, cuda_level2_barrier(e, s->action));
    if (way == COPY_ROWS) {
        const char *slice = print_rows(e, access, &rows, &columns);
        cuda_print(e, "mt_rows_copy<%s, %d>(%s, %" PRId64 ", %s, %s);", is_aligned(e, access) ? "true" : "false",
                   to->layout.element, name, row_bytes(&to->layout), slice, full);
    } else {
        const char *from = cuda_name(e, "map"), *row = cuda_name(e, "row"), *column = cuda_name(e, "column"),
                   *slice = access->rank == 3 ? cuda_name(e, "slice") : NULL;
        const tile_node *const start[] = {access->item[0].start, access->item[access->rank - 1].start};
        cuda_print(e, "const cuda_map *const %s = mt_map(mt, %d);", from, e->r->op.params[access->param].ordinal);
        cuda_print(e, "const int %s = (int)(%s), %s = (int)(%s);", row, emit_bare(m, cuda_scalar(e, start[0])), column,
                   emit_bare(m, cuda_scalar(e, start[1])));
        if (slice)
            cuda_print(e, "const int %s = (int)(%s);", slice, emit_bare(m, cuda_scalar(e, access->item[1].start)));
        for (int64_t c = 0; c < to->shape.extent[1]; c += 64)
            for (int64_t r = 0; r < to->shape.extent[0]; r += 64) {
                const int64_t at = c * to->shape.extent[0] * 2 + r * 128;
                if (way == COPY_ATOMS)
                    cuda_print(e,
                               "mt_map_load_atoms(%s + %" PRId64 ", %s, (%s + %" PRId64 ") / 64, (%s + %" PRId64
                               ") / 8, %s);",
                               name, at, from, column, c, row, r, full);
                else if (slice)
                    cuda_print(e,
                               "mt_map_load_slices(%s + %" PRId64 ", %s, %s + %" PRId64 ", %s, %s + %" PRId64 ", %s);",
                               name, at, from, column, c, slice, row, r, full);
                else
                    cuda_print(e, "mt_map_load_rows(%s + %" PRId64 ", %s, %s + %" PRId64 ", %s + %" PRId64 ", %s);",
                               name, at, from, column, c, row, r, full);
            }
    }
    cuda_close(e);
}

void cuda_level2_store(cuda_emit *e, const role_statement *s) {
    const layout_shared *from = &cuda_level2_shared(e, s->action->variable)->layout;
    int64_t rows, columns;
    CUDA_OPEN(e, "{");
    const char *slice = print_rows(e, s->access, &rows, &columns);
    cuda_print(e, "mt_rows_store<%s, %" PRId64 ", %d>(%s, %" PRId64 ", %s);",
               is_aligned(e, s->access) ? "true" : "false", columns, from->element, e->names[s->action->variable],
               row_bytes(from), slice);
    cuda_close(e);
}
