/* The element of a tile as a CUDA expression. */
#include "emit/emit_cuda_internal.h"

#include <inttypes.h>
#include <stdio.h>

enum { LONG_TEXT = 100 }; /* longer expressions get a name of their own */

/* ---- nests ---- */

void cuda_nest_begin(cuda_emit *e, cuda_nest *x, int vector) {
    *x = (cuda_nest){.e = e, .vector = vector};
    for (int i = 0; i < LEVELS; i++) x->last[i] = &x->first[i];
}

void cuda_nest_line(cuda_nest *x, int level, const char *line) {
    if (level <= LEVEL_STATEMENT) {
        cuda_print(x->e, "%s", line);
        return;
    }
    emit_line *l = ARENA_NEW(x->e->memory, emit_line);
    l->text = line;
    *x->last[level] = l;
    x->last[level] = &l->next;
}

void cuda_nest_lines(cuda_nest *x, int level) {
    for (const emit_line *l = x->first[level]; l; l = l->next) cuda_print(x->e, "%s", l->text);
}

const cuda_value *cuda_known_value(const cuda_nest *x, const char *key) {
    for (size_t i = 0; i < x->known_count; i++)
        if (!strcmp(x->known[i].key, key)) return &x->known[i].value;
    return NULL;
}

void cuda_know(cuda_nest *x, const char *key, cuda_value v) {
    *ARENA_PUSH(x->e->memory, x->known, x->known_count, x->known_capacity) = (cuda_known){key, v};
}

cuda_value cuda_hoist(cuda_nest *x, cuda_value v, const char *type, const char *base) {
    if (v.atom || x->guarded) return v;
    arena *m = x->e->memory;
    const char *key = arena_printf(m, "%s %s", type, v.text);
    const cuda_value *known = cuda_known_value(x, key);
    if (known) return *known;
    const char *name = cuda_name(x->e, base ? base : "t");
    const bool pointer = type[strlen(type) - 1] == '*';
    NEST_LINE(x, v.level, pointer ? "%s%s = %s;" : "const %s %s = %s;", type, name, emit_bare(m, v.text));
    const cuda_value out = {name, v.level, true};
    cuda_know(x, key, out);
    return out;
}

/* ---- indices ---- */

cuda_index cuda_index_constant(int64_t value) { return (cuda_index){.offset = value}; }
int cuda_index_level(const cuda_index *i) { return i->lane ? LEVEL_LANE : i->text ? i->level : LEVEL_STATEMENT; }

const char *cuda_index_text(cuda_nest *x, const cuda_index *i) {
    arena *m = x->e->memory;
    if (!i->text && !i->lane) return arena_printf(m, "%" PRId64, i->offset);
    const char *sum = !i->text ? "j" : i->lane ? arena_printf(m, "%s + j", i->text) : i->text;
    if (i->offset)
        sum = arena_printf(m, i->offset < 0 ? "%s - %" PRId64 : "%s + %" PRId64, sum,
                           i->offset < 0 ? -i->offset : i->offset);
    return emit_is_name(sum) || sum == i->text ? sum : arena_printf(m, "(%s)", sum);
}

static const char *plus(arena *m, const char *a, const char *b) { return a ? arena_printf(m, "%s + %s", a, b) : b; }
static const char *times(arena *m, const char *a, int64_t b) {
    return b == 1 ? a : arena_printf(m, "%s * %" PRId64, a, b);
}
static int deeper(int a, int b) { return a > b ? a : b; }

cuda_value cuda_linear(cuda_nest *x, const tile_shape *shape, int64_t stride, const cuda_index *at, bool *aligned) {
    arena *m = x->e->memory;
    const int last = shape->rank - 1;
    const char *sum = NULL;
    int64_t offset = 0, each = 1;
    int level = LEVEL_STATEMENT;
    bool good = last >= 0 && at[last].lane && x->vector > 1 && at[last].offset % x->vector == 0;
    for (int d = last; d >= 0; d--) {
        if (shape->extent[d] == 1) { /* its only element */
            each *= d == last ? stride : 1;
            good &= d < last;
            continue;
        }
        const cuda_index bare = {at[d].text, at[d].level, at[d].lane, 0};
        offset += at[d].offset * each;
        if (d < last) good &= !at[d].lane && each % x->vector == 0;
        if (bare.text || bare.lane) {
            const char *term = times(m, cuda_index_text(x, &bare), each);
            sum = sum ? arena_printf(m, "%s + %s", term, sum) : term;
            level = deeper(level, cuda_index_level(&bare));
        }
        each *= d == last ? stride : shape->extent[d];
    }
    if (aligned) *aligned = good;
    if (!sum || offset) sum = plus(m, sum, arena_printf(m, "%" PRId64, offset));
    return (cuda_value){sum, level, false};
}

/* The index of an operand of a node that moves nothing or moves by constants: not RESHAPE. */
static void operand_index(const tile_node *n, int which, const cuda_index *at, cuda_index *out) {
    const tile_node *o = n->kind == TILE_CONCAT ? n->list[which] : which == 0 ? n->a : which == 1 ? n->b : n->c;
    const int rank = o->shape.rank, shift = n->shape.rank - rank;
    switch (n->kind) {
    case TILE_TRANSPOSE:
        for (int d = 0; d < rank; d++) out[d] = at[d == rank - 1 ? rank - 2 : d == rank - 2 ? rank - 1 : d];
        break;
    case TILE_CONCAT:
        for (int d = 0; d < rank; d++) out[d] = at[d];
        for (int i = 0; i < which; i++) out[n->index].offset -= n->list[i]->shape.extent[n->index];
        break;
    case TILE_PART:
        for (int d = 0, t = 0; d < rank; d++) {
            const tile_item *item = &n->access->item[d];
            out[d] = item->kind == TILE_ITEM_POINT ? cuda_index_constant(0) : at[t++];
            out[d].offset += item->start->value.i;
        }
        break;
    default: /* elementwise: broadcasting */
        for (int d = 0; d < rank; d++) out[d] = o->shape.extent[d] == 1 ? cuda_index_constant(0) : at[d + shift];
    }
}

/* The number of an element within the dimensions [first, last] of a shape. */
static cuda_index number_in(cuda_nest *x, const tile_shape *shape, int first, int last, const cuda_index *at) {
    arena *m = x->e->memory;
    cuda_index all = cuda_index_constant(0);
    int64_t each = 1;
    for (int d = last; d >= first; d--) {
        if (shape->extent[d] > 1) {
            cuda_index bare = {at[d].text, at[d].level, at[d].lane, 0};
            all.offset += at[d].offset * each;
            if (each == 1 && bare.lane) {
                all = (cuda_index){bare.text, bare.level, true, all.offset};
            } else if (bare.text || bare.lane) {
                if (all.lane && each % x->vector)
                    all = (cuda_index){cuda_index_text(x, &(cuda_index){all.text, all.level, true, 0}), LEVEL_LANE,
                                       false, all.offset};
                const char *term = times(m, cuda_index_text(x, &bare), each);
                all.text = all.text ? arena_printf(m, "%s + %s", term, all.text) : term;
                all.level = deeper(all.level, cuda_index_level(&bare));
            }
        }
        each *= shape->extent[d];
    }
    if (all.text && !emit_is_name(all.text)) all.text = arena_printf(m, "(%s)", all.text); /* texts are operands */
    return all;
}

static void reshape_index(cuda_nest *x, const tile_node *n, const cuda_index *at, cuda_index *out) {
    arena *m = x->e->memory;
    const tile_shape *from = &n->a->shape, *to = &n->shape;
    int i = from->rank - 1, j = to->rank - 1;
    for (int d = 0; d < from->rank; d++) out[d] = cuda_index_constant(0);
    while (i >= 0) { /* groups of dimensions with equal products */
        int64_t p = from->extent[i], q = j >= 0 ? to->extent[j] : 1;
        int first = i, other = j, wide = 0, target = i;
        while (p != q) {
            if (p < q)
                p *= from->extent[--first];
            else
                q *= to->extent[--other];
        }
        for (int d = first; d <= i; d++)
            if (from->extent[d] != 1) wide++, target = d;
        const cuda_index all = j >= 0 ? number_in(x, to, other, j, at) : cuda_index_constant(0);
        if (wide <= 1)
            out[target] = all;
        else {
            int64_t each = 1;
            for (int d = i; d >= first; d--) {
                const int64_t extent = from->extent[d];
                if (extent == 1) continue;
                if (!all.text && !all.lane)
                    out[d] = cuda_index_constant(all.offset / each % extent);
                else {
                    const char *t = cuda_index_text(x, &all);
                    if (each > 1) t = arena_printf(m, "%s / %" PRId64, t, each);
                    bool is_first = true; /* the group's slowest dimension needs no remainder */
                    for (int o = first; o < d; o++) is_first &= from->extent[o] == 1;
                    if (!is_first) t = arena_printf(m, "%s %% %" PRId64, t, extent);
                    out[d] = (cuda_index){arena_printf(m, "(%s)", t), cuda_index_level(&all), false, 0};
                    /* A vector stays one where the fastest dimension holds whole vectors. */
                    if (each == 1 && all.lane && extent % x->vector == 0 && all.offset % x->vector == 0) {
                        const cuda_index base = {all.text, all.level, false, all.offset};
                        out[d] = base.text || base.offset
                                     ? (cuda_index){arena_printf(m, "(%s %% %" PRId64 ")", cuda_index_text(x, &base),
                                                                 extent),
                                                    all.level, true, 0}
                                     : all;
                    } else if (all.lane && each % x->vector == 0 && all.offset % x->vector == 0) {
                        const cuda_index base = {all.text, all.level, false, all.offset};
                        const char *b = cuda_index_text(x, &base);
                        out[d] = (cuda_index){
                            arena_printf(m, is_first ? "(%s / %" PRId64 ")" : "(%s / %" PRId64 " %% %" PRId64 ")", b,
                                         each, extent),
                            all.level, false, 0};
                    }
                }
                each *= extent;
            }
        }
        i = first - 1;
        j = other - 1;
    }
}

/* ---- elements ---- */

static cuda_value atom(const char *name) { return (cuda_value){name, LEVEL_STATEMENT, true}; }

/* An operand of an expression of that level: what changes less often is computed further out. */
static const char *operand_text(cuda_nest *x, cuda_value v, int level, const tile_format *type) {
    return v.level < level || strlen(v.text) > LONG_TEXT ? cuda_hoist(x, v, emit_c_type(type), NULL).text : v.text;
}

/* What a stored element is as a value. */
static const char *held(arena *m, const tile_format *t, const char *element) {
    return t->scalar.kind == TILE_BOOL && !tile_format_is_block(t) ? arena_printf(m, "(%s != 0)", element) : element;
}

/* An element of a buffer, or of the sum of parts; `how`: of parts. Vectors are read at once. */
static cuda_value buffer_element(cuda_nest *x, const tile_node *n, const cuda_index *at) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    const role_variable *v = &e->r->variables[n->index];
    const tile_variable *t = &e->r->op.variables[n->index];
    const bool parts = v->place == ROLE_PARTS;
    const int buffer = parts ? v->parts : n->index;
    const tile_shape *own = &e->r->op.variables[buffer].shape;
    const char *name = e->names[buffer], *type = emit_c_type(t->type),
               *how = v->op == TILE_SUM          ? "MT_SUM"
                      : v->op == TILE_REDUCE_MAX ? "MT_LARGEST"
                                                 : "MT_SMALLEST";
    int64_t stride = parts ? 0 : v->stride, apart = 0;
    if (parts) {
        stride = own->rank == 3 ? own->extent[2] : t->shape.rank ? t->shape.extent[t->shape.rank - 1] : 1;
        apart = own->rank == 3 ? own->extent[1] * own->extent[2] : own->extent[1];
    }
    bool aligned;
    const cuda_value i = cuda_linear(x, &t->shape, stride, at, &aligned);
    cuda_index base[TILE_RANK];
    memcpy(base, at, (size_t)t->shape.rank * sizeof *base);
    if (t->shape.rank) base[t->shape.rank - 1].lane = false;
    const cuda_value first = cuda_linear(x, &t->shape, stride, base, NULL);
    if (parts) aligned &= apart % x->vector == 0 && stride % x->vector == 0;
    if (!aligned || first.level > LEVEL_VECTOR || x->guarded) {
        const char *text_of = parts ? arena_printf(m, "mt_parts(%s + %s, %" PRId64 ", %s)", name, i.text, apart, how)
                                    : arena_printf(m, "%s[%s]", name, emit_bare(m, i.text));
        cuda_value out = {held(m, t->type, text_of), i.level, false};
        return parts ? cuda_hoist(x, out, type, t->name) : out;
    }
    const char *key = arena_printf(m, "vector %s %s", e->names[n->index], first.text);
    const cuda_value *known = cuda_known_value(x, key);
    const char *vector = known ? known->text : cuda_name(e, t->name);
    if (!known) {
        NEST_LINE(x, LEVEL_VECTOR, "%s %s[%d];", type, vector, x->vector);
        if (parts)
            NEST_LINE(x, LEVEL_VECTOR, "mt_take_parts(%s, %s + %s, %" PRId64 ", %s);", vector, name, first.text, apart,
                      how);
        else
            NEST_LINE(x, LEVEL_VECTOR, "mt_take(%s, %s + %s);", vector, name, first.text);
        cuda_know(x, key, (cuda_value){vector, LEVEL_LANE, true});
    }
    return (cuda_value){held(m, t->type, arena_printf(m, "%s[j]", vector)), LEVEL_LANE, false};
}

static cuda_value variable(cuda_nest *x, const tile_node *n, const cuda_index *at) {
    cuda_emit *e = x->e;
    const role_variable *v = &e->r->variables[n->index];
    if (v->place == ROLE_SCALAR) return atom(e->names[n->index]);
    if (v->place == ROLE_REGISTER) return cuda_level2_register(x, n);
    if (v->place == ROLE_STAGE) return cuda_level2_stage(x, n, at);
    if (v->place == ROLE_FRAGMENT && n->shape.extent[n->shape.rank - 1] == 1)
        return (cuda_value){arena_printf(e->memory, "%s[%s]", e->names[n->index], x->half), LEVEL_ROW, false};
    if (v->place == ROLE_FRAGMENT) /* the element at hand: role_wide.c has seen to that */
        return (cuda_value){arena_printf(e->memory, "%s[%s * 4 + %s * 2 + j]", e->names[n->index], x->group, x->half),
                            LEVEL_LANE, false};
    if (v->place != ROLE_FUSED) return buffer_element(x, n, at);
    const cuda_value value = cuda_element(x, v->value, at);
    switch (v->value->kind) { /* what only moves elements needs no name */
    case TILE_VAR:
    case TILE_TRANSPOSE:
    case TILE_RESHAPE:
    case TILE_PART:
        return value;
    default:
        return cuda_hoist(x, value, emit_c_type(n->type), e->r->op.variables[n->index].name);
    }
}

/* Of elementwise nodes. */
static cuda_value operate(cuda_nest *x, const tile_node *n, const cuda_index *at) {
    cuda_emit *e = x->e;
    const tile_node *const operands[3] = {n->a, n->b, n->c};
    cuda_value v[3];
    const char *text_of[3] = {NULL};
    int level = LEVEL_STATEMENT;
    for (int i = 0; i < 3 && operands[i]; i++) {
        cuda_index below[TILE_RANK];
        operand_index(n, i, at, below);
        v[i] = cuda_element(x, operands[i], below);
        level = deeper(level, v[i].level);
    }
    for (int i = 0; i < 3 && operands[i]; i++) text_of[i] = operand_text(x, v[i], level, operands[i]->type);
    const char *out = n->kind == TILE_CAST ? emit_cast(e->memory, text_of[0], n->a->type, n->type)
                      : n->kind == TILE_SELECT
                          ? arena_printf(e->memory, "(%s ? %s : %s)", text_of[0], text_of[1], text_of[2])
                          : emit_operate(&e->operators, n, text_of[0], text_of[1]);
    return (cuda_value){out, level, out == text_of[0] && v[0].atom};
}

static cuda_value concatenated(cuda_nest *x, const tile_node *n, const cuda_index *at) {
    arena *m = x->e->memory;
    const cuda_index *along = &at[n->index];
    int64_t begin = 0;
    if (!along->text && !along->lane) {
        for (int i = 0; i < n->count; i++) {
            cuda_index below[TILE_RANK];
            operand_index(n, i, at, below);
            begin += n->list[i]->shape.extent[n->index];
            if (along->offset < begin) return cuda_element(x, n->list[i], below);
        }
    }
    const char *out = NULL, *index = cuda_index_text(x, along);
    int level = cuda_index_level(along);
    int64_t end = n->shape.extent[n->index];
    x->guarded++; /* only the operand that has the element may be read */
    for (int i = n->count - 1; i >= 0; i--) {
        cuda_index below[TILE_RANK];
        operand_index(n, i, at, below);
        const cuda_value v = cuda_element(x, n->list[i], below);
        level = deeper(level, v.level);
        out = out ? arena_printf(m, "(%s < %" PRId64 " ? %s : %s)", index, end, v.text, out) : v.text;
        end -= n->list[i]->shape.extent[n->index];
    }
    x->guarded--;
    return (cuda_value){out, level, false};
}

cuda_value cuda_element(cuda_nest *x, const tile_node *n, const cuda_index *at) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    const tile_op *op = &e->r->op;
    cuda_index below[TILE_RANK];
    switch (n->kind) {
    case TILE_CONST:
        return atom(emit_literal(m, n));
    case TILE_GRID:
        if (cuda_first_use(e, e->axis[n->index]))
            text_printf(e->head, "    const int64_t %s = mt->slot->instruction.index[%d];\n", e->axis[n->index],
                        n->index);
        return atom(e->axis[n->index]);
    case TILE_LOOP:
        return atom(e->loops[n->index]);
    case TILE_EXTENT:
        if (cuda_first_use(e, e->extent[n->index]))
            text_printf(e->head, "    const int64_t %s = mt_extent(mt, %d, %d);\n", e->extent[n->index],
                        op->params[op->extent_source[n->index].param].ordinal, op->extent_source[n->index].dimension);
        return atom(e->extent[n->index]);
    case TILE_LIVE:
    case TILE_ARG:
        if (cuda_first_use(e, e->param[n->index])) {
            const tile_param *p = &op->params[n->index];
            const char *name = e->param[n->index];
            if (n->kind == TILE_LIVE)
                text_printf(e->head, "    const int64_t %s = mt_live_value(mt, %d);\n", name, p->ordinal);
            else if (p->type->scalar.kind == TILE_FLOAT)
                text_printf(e->head, "    const float %s = mt_arg_float(mt, %d);\n", name, p->ordinal);
            else
                text_printf(e->head, "    const int64_t %s = mt->slot->instruction.arg[%d];\n", name, p->ordinal);
        }
        return atom(e->param[n->index]);
    case TILE_VAR:
        return variable(x, n, at);
    case TILE_LOAD:
        return cuda_load(x, n, at);
    case TILE_ELEMENTWISE:
    case TILE_SELECT:
    case TILE_CAST:
        return operate(x, n, at);
    case TILE_TRANSPOSE:
    case TILE_BROADCAST:
    case TILE_PART:
        operand_index(n, 0, at, below);
        return cuda_element(x, n->a, below);
    case TILE_RESHAPE:
        reshape_index(x, n, at, below);
        return cuda_element(x, n->a, below);
    case TILE_CONCAT:
        return concatenated(x, n, at);
    case TILE_IOTA: {
        const char *i = cuda_index_text(x, &at[0]);
        const int level = cuda_index_level(&at[0]);
        const bool constant = !at[0].text && !at[0].lane;
        return (cuda_value){constant ? i : arena_printf(m, "(int32_t)%s", i), level, constant};
    }
    default:
        cuda_unsupported(e, n->line, "this expression");
        return atom("0");
    }
}

const char *cuda_scalar(cuda_emit *e, const tile_node *n) {
    cuda_nest x;
    cuda_nest_begin(e, &x, 1);
    return cuda_element(&x, n, NULL).text;
}
