/* Tensors: elements and rows of loads, and stores.
 *
 * A load inside a nest of loops is read through a pointer to a row wherever only the position within the row depends on
 * the innermost loop. The prelude's mt_row checks the row as a whole: it gives the tensor's own memory when everything
 * that is needed is there, else a copy padded with zeros, so that the loop itself checks nothing. Rows of block formats
 * and of sub-byte elements are always copies: decoded floats, or one code a byte. Other loads check each element. */
#include "emit/emit_internal.h"
#include "tile/explicit.h"

#include <inttypes.h>

static int max_level(int a, int b) { return a > b ? a : b; }

/* The pointer to a tensor's description. */
static const char *tensor_name(emit *e, int param) {
    e->used_param[param] = true;
    return emit_safe_name(e->memory, e->op->params[param].name);
}

/* The extent that a parameter declares, at the live values of now. */
static const char *declared_extent(emit *e, int param, int d) {
    const tile_node *extent = e->op->params[param].extent[d];
    if (extent->kind == TILE_CONST || extent->kind == TILE_EXTENT) return emit_scalar(e, extent);
    const char *tensor = tensor_name(e, param), *name = arena_printf(e->memory, "%s_extent_%d", tensor, d);
    if (!e->declared_extent[param][d]) {
        e->declared_extent[param][d] = true;
        text *const body = e->out;
        const int indent = e->indent;
        e->out = e->header;
        e->indent = 1;
        emit_print(e, "const int64_t %s = mt_min(%s->extent[%d], %s);", name, tensor, d, emit_scalar(e, extent));
        e->out = body;
        e->indent = indent;
    }
    return name;
}

const char *emit_extent(emit *e, const tile_access *access, int d) {
    const char *extent = declared_extent(e, access->param, d);
    const tile_node *limit = access->item[d].limit;
    return limit ? arena_printf(e->memory, "mt_min(%s, %s)", extent, emit_scalar(e, limit)) : extent;
}

/* The index of a slice in one dimension of its tensor. */
typedef struct coordinate {
    const tile_access *access;
    int dimension;
    const char *start; /* NULL: 0 */
    bool proven;       /* in range */
    emit_index at;     /* within the item */
    int level;
} coordinate;

static const char *scalar_atom(emit_nest *x, const char *value, int param) {
    const emit_value v = {value, -1, emit_is_name(value)};
    return emit_hoist(x, v, "int64_t", emit_safe_name(x->e->memory, x->e->op->params[param].name)).text;
}

static coordinate coordinate_of(emit_nest *x, const tile_access *access, int d, const emit_index *at) {
    emit *e = x->e;
    const tile_item *item = &access->item[d];
    const tile_node *extent = e->op->params[access->param].extent[d];
    coordinate c = {.access = access, .dimension = d, .at = {.loop = -1, .text_level = -1}, .level = -1};
    if (item->kind == TILE_ITEM_GATHER) {
        emit_value id = emit_element(x, item->start, at);
        if (!id.atom)
            id = emit_hoist(x, (emit_value){arena_printf(e->memory, "(int64_t)%s", id.text), id.level, false},
                            "int64_t", "id");
        c.start = id.text;
        c.level = id.level;
        return c;
    }
    if (item->kind == TILE_ITEM_RANGE) c.at = *at;
    c.level = emit_index_level(&c.at);
    if (item->start->kind != TILE_CONST || item->start->value.i != 0) c.start = emit_scalar(e, item->start);
    int64_t low, high, first, last;
    emit_index_range(x, &c.at, item->size, &first, &last);
    c.proven = !item->limit && extent->kind == TILE_CONST && emit_range(e, item->start, &low, &high) &&
               low + first >= 0 && high + last < extent->value.i;
    return c;
}

static const char *extent_of(emit_nest *x, const coordinate *c) {
    return scalar_atom(x, emit_extent(x->e, c->access, c->dimension), c->access->param);
}

/* Where the item begins, as a name or a literal. */
static const char *start_of(emit_nest *x, const coordinate *c) {
    return c->start ? scalar_atom(x, c->start, c->access->param) : "0";
}

static bool is_zero(const coordinate *c) { return !c->start && c->at.loop < 0 && !c->at.text && !c->at.offset; }

static const char *coordinate_text(emit_nest *x, const coordinate *c) {
    const bool bare = c->at.loop < 0 && !c->at.text && !c->at.offset;
    if (!c->start) return emit_index_text(x, &c->at);
    return bare ? start_of(x, c)
                : arena_printf(x->e->memory, "(%s + %s)", start_of(x, c),
                               emit_bare(x->e->memory, emit_index_text(x, &c->at)));
}

/* The sum of coordinates times strides over dimensions [0, count), "0" when there is none. */
static const char *offset_text(emit_nest *x, const char *tensor, const coordinate *c, int count) {
    const char *sum = NULL;
    for (int d = 0; d < count; d++) {
        if (is_zero(&c[d])) continue;
        const char *term = arena_printf(x->e->memory, "%s * %s->stride[%d]", coordinate_text(x, &c[d]), tensor, d);
        sum = sum ? arena_printf(x->e->memory, "%s + %s", sum, term) : term;
    }
    return sum ? sum : "0";
}

/* The condition that all of the coordinates [0, count) are in range; NULL when they surely are. */
static const char *check_text(emit_nest *x, const coordinate *c, int count) {
    const char *all = NULL;
    for (int d = 0; d < count; d++) {
        if (c[d].proven) continue;
        const char *one = arena_printf(x->e->memory, "mt_in(%s, %s)",
                                       emit_bare(x->e->memory, coordinate_text(x, &c[d])), extent_of(x, &c[d]));
        all = all ? arena_printf(x->e->memory, "%s & %s", all, one) : one;
    }
    return all;
}

static bool is_packed(const tile_format *t) { return !tile_format_is_block(t) && t->scalar.bits < 8; }
static bool is_e8m0(const tile_format *t) {
    return t->scalar.kind == TILE_FLOAT && t->scalar.is_unsigned && !tile_format_is_block(t);
}
/* How an element lies in memory; e8m0 is held in 16 bits, for it has no code that is zero. */
static const char *memory_type(const tile_format *t) { return is_e8m0(t) ? "uint8_t" : emit_c_type(t); }

/* A pointer to the row; its element 0 is that of the item. */
static emit_value row_of(emit_nest *x, const tile_node *n, const coordinate *c, int level) {
    emit *e = x->e;
    arena *m = e->memory;
    const tile_format *t = n->type;
    const int last = n->access->rank - 1;
    const coordinate *along = &c[last];
    const char *tensor = tensor_name(e, n->access->param), *offset = offset_text(x, tensor, c, last),
               *valid = check_text(x, c, last);
    const char *type = memory_type(t), *start = start_of(x, along), *name;
    /* As many elements as the loop takes. */
    const bool affine = along->at.loop >= 0 && !along->at.text;
    const emit_loop *loop = affine ? &x->loop[along->at.loop] : NULL;
    const int64_t most = affine ? loop->most + along->at.offset : n->access->item[last].size;
    const char *count = affine && along->at.offset == 0 ? loop->high : arena_printf(m, "%" PRId64, most);
    const bool direct = !valid && along->proven && !is_packed(t) && !tile_format_is_block(t);
    const char *key = arena_printf(m, "row %p %s %s %s %s", (const void *)n, offset, start, valid ? valid : "", count);
    const emit_value *known = emit_known(x, key);
    if (known) return *known;
    name = emit_invent(e, tensor);
    if (direct) {
        const char *shift = strcmp(offset, "0") ? arena_printf(m, " + %s", offset) : "";
        if (along->start) shift = arena_printf(m, "%s + %s", shift, start);
        emit_nest_line(x, level, "const %s *%s = (const %s *)%s->data%s;", type, name, type, tensor, shift);
    } else {
        if (!valid) valid = "1";
        const char *extent = extent_of(x, along);
        if (is_packed(t)) {
            const char *copy = emit_scratch(e, "uint8_t", most);
            emit_nest_line(x, level, "const uint8_t *%s = mt_row_bits(%s->data, %d, %s, %s, %s, %s, %s, %s);", name,
                           tensor, t->scalar.bits, offset, valid, start, extent, count, copy);
        } else if (tile_format_is_block(t)) {
            const char *copy = emit_scratch(e, "float", most * 4);
            emit_nest_line(x, level, "const float *%s = mt_row_blocks(%s->data, &%s, %s, %s, %s, %s, %s, %s);", name,
                           tensor, emit_codec_of(e, t, NULL), offset, valid, start, extent, count, copy);
        } else {
            const char *copy = emit_scratch(e, type, most * t->scalar.bits / 8);
            emit_nest_line(x, level, "const %s *%s = mt_row(%s->data, sizeof(%s), %s, %s, %s, %s, %s, %s);", type, name,
                           tensor, type, offset, valid, start, extent, count, copy);
        }
    }
    const emit_value row = {name, level, true};
    emit_know(x, key, row);
    return row;
}

/* What a stored element is as a value. */
static const char *held(arena *m, const tile_format *t, const char *element) {
    if (t->scalar.kind == TILE_BOOL) return arena_printf(m, "(%s != 0)", element);
    if (is_packed(t) && t->scalar.kind == TILE_INT)
        return arena_printf(m, "(int8_t)mt_sign(%s, %d)", element, t->scalar.bits);
    return element;
}

/* The position within the row depends on a deeper loop than the row. (An indirect index depends on no deeper loop than
 * its position.) */
static bool is_row(const tile_access *access, const emit_index *at) {
    int others = -1, level = -1;
    for (int d = 0, i = 0; d < access->rank; d++) {
        level = access->item[d].kind == TILE_ITEM_POINT ? -1 : emit_index_level(&at[i++]);
        if (d < access->rank - 1) others = max_level(others, level);
    }
    return access->item[access->rank - 1].kind == TILE_ITEM_RANGE && level > others;
}

emit_value emit_load(emit_nest *x, const tile_node *n, const emit_index *at) {
    emit *e = x->e;
    arena *m = e->memory;
    const tile_access *access = n->access;
    const tile_format *t = n->type;
    const int last = access->rank - 1;
    coordinate c[TILE_RANK];
    int others = -1, i = 0;
    bool proven = true;
    if (tile_format_is_block(t) && !is_row(access, at)) { /* decode the slice as a whole first */
        emit_limit limits[TILE_RANK];
        emit_index_limits(x, &n->shape, at, limits);
        const emit_array array = emit_materialise(e, n, limits);
        return emit_array_element(x, &array, at);
    }
    for (int d = 0; d <= last; d++) {
        c[d] = coordinate_of(x, access, d, access->item[d].kind == TILE_ITEM_POINT ? NULL : &at[i]);
        i += access->item[d].kind != TILE_ITEM_POINT;
        if (d < last) others = max_level(others, c[d].level);
        proven &= c[d].proven;
    }
    if (is_row(access, at) && (proven || !is_e8m0(t))) {
        const emit_value row = row_of(x, n, c, others);
        const char *element = arena_printf(m, "%s[%s]", row.text, emit_bare(m, emit_index_text(x, &c[last].at)));
        return (emit_value){held(m, t, element), c[last].level, false};
    }
    const char *tensor = tensor_name(e, access->param), *check = check_text(x, c, last + 1);
    const char *offset = offset_text(x, tensor, c, last);
    if (!is_zero(&c[last]) || !strcmp(offset, "0"))
        offset = strcmp(offset, "0") ? arena_printf(m, "%s + %s", offset, coordinate_text(x, &c[last]))
                                     : coordinate_text(x, &c[last]);
    const char *element = is_packed(t)
                              ? arena_printf(m, "mt_get_bits(%s->data, %s, %d)", tensor, offset, t->scalar.bits)
                              : arena_printf(m, "((const %s *)%s->data)[%s]", memory_type(t), tensor, offset);
    if (check) element = arena_printf(m, "(%s ? %s : %s)", check, element, is_e8m0(t) ? "256" : "0");
    return (emit_value){held(m, t, element), max_level(others, c[last].level), false};
}

/* ---- slices for dot ---- */

const char *emit_slice(emit *e, const tile_access *access, int row, int64_t rows, int64_t columns) {
    arena *m = e->memory;
    emit_nest x = {.e = e, .inner = -1};
    const int last = access->rank - 1;
    const emit_index zero = {.loop = -1, .text_level = -1};
    const char *tensor = tensor_name(e, access->param), *name = emit_invent(e, tensor), *valid = NULL;
    coordinate c[TILE_RANK];
    for (int d = 0; d <= last; d++) {
        c[d] = coordinate_of(&x, access, d, &zero);
        if (d == row || d == last || c[d].proven) continue;
        const char *check = check_text(&x, &c[d], 1);
        valid = valid ? arena_printf(m, "%s & %s", valid, check) : check;
    }
    const char *part[2];
    for (int i = 0; i < 2; i++) {
        const int d = i ? last : row;
        const char *start = start_of(&x, &c[d]), *extent = extent_of(&x, &c[d]);
        part[i] = arena_printf(m, "mt_part_of(1, %s, %s, %" PRId64 ")", start, extent, i ? columns : rows);
    }
    const char *first = offset_text(&x, tensor, c, last);
    if (c[last].start) first = arena_printf(m, "%s + %s", first, start_of(&x, &c[last]));
    emit_print(e, "const mt_slice %s = mt_slice_of(%s->data, %s, %s, %s->stride[%d],", name, tensor,
               valid ? valid : "1", first, tensor, row);
    emit_print(e, "                                %s, %s);", part[0], part[1]);
    return name;
}

/* ---- stores ---- */

typedef struct store {
    const tile_statement *s;
    const tile_node *value;
} store;

/* What level 2 does to elements that others may be at, too (cpu_level2.h). */
static const char *shared_text(emit *e, const level2_action *a, const tile_format *t, const char *place,
                               const char *value) {
    if (a->kind == LEVEL2_STAMP) return arena_printf(e->memory, "mt_stamp(&%s);", place);
    if (a->kind == LEVEL2_POST) return arena_printf(e->memory, "mt_post(&%s, %s);", place, value);
    static const char *const orders[] = {"RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL"};
    return arena_printf(e->memory, "%s%smt_atomic_%s_%s(&%s, %s, __ATOMIC_%s);",
                        a->variable >= 0 ? e->variables[a->variable].array.name : "", a->variable >= 0 ? " = " : "",
                        explicit_atomics[a->atomic], t->name, place, value, orders[a->order]);
}

static const char *store_body(emit_nest *x, const emit_index *at, const void *context) {
    emit *e = x->e;
    arena *m = e->memory;
    const store *s = context;
    const tile_access *access = s->s->access;
    const tile_node *n = s->value;
    const tile_format *t = e->op->params[access->param].type;
    const int last = access->rank - 1;
    coordinate c[TILE_RANK];
    int others = -1, i = 0;
    for (int d = 0; d <= last; d++) {
        const tile_item *item = &access->item[d];
        c[d] = coordinate_of(x, access, d, item->kind == TILE_ITEM_POINT ? NULL : &at[i]);
        /* In its own loop, which the index need not depend on: y[i32[4](2), :] = ... */
        if (item->kind == TILE_ITEM_GATHER)
            emit_nest_line(x, max_level(c[d].level, at[i].loop), "if (!mt_in(%s, %s)) continue;", start_of(x, &c[d]),
                           extent_of(x, &c[d]));
        i += item->kind != TILE_ITEM_POINT;
        if (d < last) others = max_level(others, c[d].level);
    }
    emit_index below[TILE_RANK];
    for (int d = 0; d < n->shape.rank; d++) {
        below[d] = at[d + x->rank - n->shape.rank];
        if (n->shape.extent[d] == 1) below[d] = (emit_index){.loop = -1, .text_level = -1};
    }
    emit_value v = emit_element(x, n, below);
    if (v.level < x->inner || strlen(v.text) > 100) v = emit_hoist(x, v, emit_c_type(n->type), NULL);
    const char *tensor = tensor_name(e, access->param), *offset = offset_text(x, tensor, c, last), *place;
    if (is_packed(t)) {
        const char *index =
            is_zero(&c[last]) ? offset : arena_printf(m, "%s + %s", offset, coordinate_text(x, &c[last]));
        return arena_printf(m, "mt_put_bits(%s->data, %s, %d, (uint32_t)%s);", tensor, index, t->scalar.bits, v.text);
    }
    const char *type = memory_type(t);
    if (others < c[last].level) {
        const char *start = c[last].start && access->item[last].kind != TILE_ITEM_GATHER
                                ? arena_printf(m, " + %s", start_of(x, &c[last]))
                                : "";
        const char *name = emit_invent(e, tensor);
        emit_nest_line(x, others, "%s *%s = (%s *)%s->data + %s%s;", type, name, type, tensor, offset, start);
        place = arena_printf(m, "%s[%s]", name,
                             access->item[last].kind == TILE_ITEM_GATHER ? start_of(x, &c[last])
                                                                         : emit_index_text(x, &c[last].at));
    } else
        place = arena_printf(m, "((%s *)%s->data)[%s + %s]", type, tensor, offset, coordinate_text(x, &c[last]));
    if (s->s->action && s->s->action->kind != LEVEL2_STORE)
        return shared_text(e, s->s->action, t, place, emit_bare(m, v.text));
    return arena_printf(m, "%s %s %s;", place, s->s->adds ? "+=" : "=", emit_bare(m, v.text));
}

/* An access computes where it is from the tensor. */
static bool is_placed_by(const emit *e, const tile_access *access, int param) {
    for (int d = 0; d < access->rank; d++)
        if (emit_loads(e, access->item[d].start, param) || emit_loads(e, access->item[d].limit, param)) return true;
    return false;
}

/* The value reads the tensor that is stored to, at other elements than those that are written with it, or after some
 * have been written. pieces: there may be several nests, one behind the other (emit_each). */
static bool overlaps(const emit *e, const tile_node *n, const tile_access *access, bool same_place, bool pieces) {
    if (!n) return false;
    if (n->kind == TILE_LOAD && is_placed_by(e, n->access, access->param)) return true;
    if (n->kind == TILE_LOAD && n->access->param == access->param) {
        bool same = same_place;
        for (int d = 0; d < access->rank && same; d++) {
            const tile_item *a = &access->item[d], *b = &n->access->item[d];
            same = a->kind == b->kind && a->kind != TILE_ITEM_GATHER && a->size == b->size &&
                   emit_same(a->start, b->start) && emit_same(a->limit, b->limit);
        }
        return !same;
    }
    if (n->kind == TILE_REDUCE || n->kind == TILE_DOT) /* complete before its nest stores anything */
        return pieces && emit_loads(e, n, access->param);
    same_place &= n->kind == TILE_ELEMENTWISE || n->kind == TILE_SELECT || n->kind == TILE_CAST;
    const tile_node *const operands[3] = {n->a, n->b, n->c};
    for (int i = 0; i < 3; i++)
        if (operands[i] && overlaps(e, operands[i], access,
                                    same_place && !memcmp(&operands[i]->shape, &n->shape, sizeof n->shape), pieces))
            return true;
    for (int i = 0; i < n->count; i++)
        if (overlaps(e, n->list[i], access, false, pieces)) return true;
    return false;
}

void emit_store(emit *e, const tile_statement *s) {
    arena *m = e->memory;
    const tile_access *access = s->access;
    emit_nest x = {.e = e, .inner = -1};
    emit_loop loops[TILE_RANK];
    const char *valid = NULL;
    bool scatters = false; /* the innermost loop may write to one place twice */
    int rank = 0;
    for (int d = 0; d < access->rank; d++) {
        const tile_item *item = &access->item[d];
        const emit_index zero = {.loop = -1, .text_level = -1};
        if (item->kind == TILE_ITEM_POINT) {
            const coordinate c = coordinate_of(&x, access, d, &zero);
            const char *check = check_text(&x, &c, 1);
            if (check) valid = valid ? arena_printf(m, "%s & %s", valid, check) : check;
            continue;
        }
        loops[rank] = emit_loop_of(e, item->size, (emit_limit){0, 1});
        if (item->size > 1) scatters = item->kind == TILE_ITEM_GATHER;
        loops[rank].is_left = item->kind == TILE_ITEM_GATHER;
        if (item->kind == TILE_ITEM_RANGE) {
            const tile_node *extent = e->op->params[access->param].extent[d];
            const int limit = emit_limit_of(e, access, d);
            int64_t low, high;
            const bool starts_in = emit_range(e, item->start, &low, &high) && low >= 0;
            const bool fits =
                starts_in && !item->limit && extent->kind == TILE_CONST && high + item->size <= extent->value.i;
            if (limit && starts_in)
                loops[rank] = emit_loop_of(e, item->size, (emit_limit){limit, 1});
            else if (!fits) {
                const char *part = emit_invent(e, "part");
                emit_print(e, "const mt_part %s = mt_part_of(1, %s, %s, %" PRId64 ");", part,
                           emit_bare(m, emit_scalar(e, item->start)), emit_extent(e, access, d), item->size);
                loops[rank].low = arena_printf(m, "%s.low", part);
                loops[rank].high = arena_printf(m, "%s.high", part);
                loops[rank].limit = (emit_limit){limit, 1};
            }
        }
        rank++;
    }
    store context = {s, s->value};
    /* What reads the tensor is computed before anything is written: the value and indirect indices as tiles; what else
     * places the slice, in front of the nest, which is then one. */
    const bool placed = is_placed_by(e, access, access->param),
               same = !memcmp(&s->value->shape, &s->shape, sizeof s->shape),
               whole = placed || overlaps(e, s->value, access, same, emit_has_concat(e, s->value));
    emit_limit all[TILE_RANK];
    for (int d = 0; d < TILE_RANK; d++) all[d] = (emit_limit){0, 1};
    if (whole) emit_remember(e, s->value, emit_materialise(e, s->value, all), all);
    for (int d = 0; d < access->rank && placed; d++)
        if (access->item[d].kind == TILE_ITEM_GATHER)
            emit_remember(e, access->item[d].start, emit_materialise(e, access->item[d].start, all), all);
    if (valid) {
        emit_print(e, "if (%s) {", valid);
        e->indent++;
    }
    emit_each(e, whole ? NULL : s->value, rank, loops, !scatters && !is_packed(e->op->params[access->param].type),
              store_body, &context);
    if (valid) {
        e->indent--;
        emit_print(e, "}");
    }
}
