/* dot: its operands are brought into the shapes that the prelude's kernels take, and loops that are nothing but sums of
 * dots over consecutive columns become one dot over all of them.
 *
 * A becomes a tile of floats whose rows are padded with zeros to MT_CHUNK. B = w.T, with w a slice of a tensor in any
 * format of whole bytes, or B = such a slice itself, is read where it lies (mt_slice); every other B becomes a tile of
 * floats first. */
#include "emit/emit_internal.h"

#include <inttypes.h>

enum {
    CHUNK = 32,
    DOT_DEPTH = 1024,
    DOT_ROWS = 8, /* MT_CHUNK, MT_DEPTH, MT_ROWS of cpu_vector.h */
    LEFTS = 16    /* left operands of a loop that are remembered */
};
#define PANEL_LIMIT ((int64_t)64 << 20) /* bytes: larger left operands are not gathered for a whole loop */

/* What an inlined variable stands for. */
static const tile_node *resolved(const emit *e, const tile_node *n) {
    while (n->kind == TILE_VAR && e->variables[n->index].mode == EMIT_INLINE) n = e->variables[n->index].value;
    return n;
}

/* A right operand that a kernel can read where it lies. */
typedef struct direct {
    const tile_node *load;      /* NULL: it is none */
    int row;                    /* the dimension of its rows; its columns are the last one */
    const tile_format *rounded; /* the type its elements are rounded to on the way, or NULL */
} direct;

/* A load, or one that is cast: to f32, which decoding does anyway, and from there to a smaller float. */
static direct direct_load(const emit *e, const tile_node *n) {
    const direct none = {NULL, -1, NULL};
    direct d = none;
    n = resolved(e, n);
    if (n->kind == TILE_CAST && n->type->scalar.kind == TILE_FLOAT && n->type->scalar.bits <= 16) {
        d.rounded = n->type;
        n = resolved(e, n->a);
        if (n->kind != TILE_CAST || !emit_is_float(n->type, 32)) return none;
    }
    if (n->kind == TILE_CAST && emit_is_float(n->type, 32)) n = resolved(e, n->a);
    if (n->kind != TILE_LOAD || n->type->scalar.kind == TILE_BOOL) return none;
    if (!tile_format_is_block(n->type) && n->type->scalar.bits < 8) return none;
    if (n->type == d.rounded) d.rounded = NULL;
    const int last = n->access->rank - 1;
    for (int i = 0; i < last; i++) {
        if (n->access->item[i].kind == TILE_ITEM_POINT) continue;
        if (n->access->item[i].kind != TILE_ITEM_RANGE || d.row >= 0) return none;
        d.row = i;
    }
    if (d.row < 0 || n->access->item[last].kind != TILE_ITEM_RANGE) return none;
    d.load = n;
    return d;
}

/* ---- operands as tiles of one type ---- */

typedef struct pack {
    const tile_node *n;
    const tile_format *type;
    const char *to; /* to[i * stride + j + offset] */
    int64_t stride;
    const char *offset; /* NULL: none */
    bool transposed;    /* to[i][j] = n[j][i] */
} pack;

static const char *pack_body(emit_nest *x, const emit_index *at, const void *context) {
    const pack *p = context;
    arena *m = x->e->memory;
    const emit_index from[2] = {at[p->transposed], at[!p->transposed]};
    const emit_value v = emit_element(x, p->n, from);
    const tile_shape shape = {2, {1, p->stride}};
    const emit_value to = emit_linear(x, &shape, at);
    return arena_printf(m, "%s[%s%s%s] = %s;", p->to, to.text, p->offset ? " + " : "", p->offset ? p->offset : "",
                        emit_bare(m, emit_cast(m, v.text, p->n->type, p->type)));
}

static const char *count_text(emit *e, int64_t extent, emit_limit limit) { return emit_loop_of(e, extent, limit).high; }

/* The left operand as rows of floats; *stride is set. */
static const char *left_rows(emit *e, const tile_node *n, emit_limit rows, int64_t *stride) {
    const tile_format *f32 = tile_format_scalar("f32", 3);
    const int64_t m = n->shape.extent[0], k = n->shape.extent[1];
    const tile_node *source = resolved(e, n);
    *stride = (int64_t)align_up((uint64_t)k, CHUNK);
    if (source->kind == TILE_VAR && e->variables[source->index].mode == EMIT_ARRAY && source->type == f32 &&
        k == *stride)
        return e->variables[source->index].array.name;
    const emit_array a = emit_declare(e, emit_invent(e, "left"), f32, &(tile_shape){2, {m, *stride}});
    const emit_loop loops[2] = {emit_loop_of(e, m, rows), emit_loop_of(e, k, (emit_limit){0, 1})};
    const pack p = {.n = n, .type = f32, .to = a.name, .stride = *stride};
    emit_each(e, n, 2, loops, true, pack_body, &p);
    if (k < *stride)
        emit_print(e, "mt_pad(%s, %s, %" PRId64 ", %" PRId64 ");", a.name, count_text(e, m, rows), k, *stride);
    return a.name;
}

/* Any right operand as an mt_slice: a tensor's own memory or a tile of floats. */
static const char *right_slice(emit *e, const tile_node *n, const char **codec) {
    const tile_format *f32 = tile_format_scalar("f32", 3);
    const direct d = direct_load(e, n);
    const tile_node *source = resolved(e, n);
    const int64_t rows = n->shape.extent[0], columns = n->shape.extent[1];
    if (d.load) {
        *codec = emit_codec_of(e, d.load->type, d.rounded);
        return emit_slice(e, d.load->access, d.row, rows, columns);
    }
    *codec = emit_codec_of(e, f32, NULL);
    const char *array;
    if (source->kind == TILE_VAR && e->variables[source->index].mode == EMIT_ARRAY && source->type == f32)
        array = e->variables[source->index].array.name;
    else {
        const emit_array b = emit_declare(e, emit_invent(e, "right"), f32, &n->shape);
        const emit_loop loops[2] = {emit_loop_of(e, rows, (emit_limit){0, 1}),
                                    emit_loop_of(e, columns, (emit_limit){0, 1})};
        const pack p = {.n = n, .type = f32, .to = b.name, .stride = columns};
        emit_each(e, n, 2, loops, true, pack_body, &p);
        array = b.name;
    }
    const char *name = emit_invent(e, "slice");
    emit_print(e,
               "const mt_slice %s = mt_slice_of(%s, 1, 0, %" PRId64 ", (mt_part){0, %" PRId64 "}, (mt_part){0, %" PRId64
               "});",
               name, array, columns, rows, columns);
    return name;
}

/* ---- the dot itself ---- */

static void call_nt(emit *e, const emit_array *array, const emit_limit *limits, const char *a, int64_t a_stride,
                    const char *slice, const char *codec, int64_t k) {
    const int64_t m = array->shape.extent[0], n = array->shape.extent[1];
    const int64_t floats = DOT_ROWS * DOT_DEPTH + (k > DOT_DEPTH ? m * DOT_ROWS * 16 : 0); /* MT_DOT_NT_SCRATCH */
    emit_print(e, "mt_dot_nt(%s, %" PRId64 ", %s, %s, %" PRId64 ", &%s, %s, &%s, %s);", array->name, n,
               count_text(e, m, limits[0]), a, a_stride, slice, count_text(e, n, limits[1]), codec,
               emit_scratch(e, "float", floats * 4));
}

static void call_nn(emit *e, const emit_array *array, const emit_limit *limits, const char *a, int64_t a_stride,
                    const char *slice, const char *codec) {
    const int64_t m = array->shape.extent[0], n = array->shape.extent[1];
    const int64_t wide = (int64_t)align_up((uint64_t)n, CHUNK),
                  floats = (wide > 1024 ? 8 : 8192 / wide) * wide; /* MT_DOT_NN_SCRATCH */
    emit_print(e, "mt_dot_nn(%s, %" PRId64 ", %s, %s, %" PRId64 ", &%s, %" PRId64 ", %s, &%s, %s);", array->name, n,
               count_text(e, m, limits[0]), a, a_stride, slice, n, count_text(e, n, limits[1]), codec,
               emit_scratch(e, "float", floats * 4));
}

static void dot_integers(emit *e, const emit_array *array, const tile_node *n, const emit_limit *limits) {
    const tile_format *i16 = tile_format_scalar("i16", 3);
    const int64_t m = n->shape.extent[0], columns = n->shape.extent[1], k = n->a->shape.extent[1];
    const emit_array a = emit_declare(e, emit_invent(e, "left"), i16, &n->a->shape);
    const emit_array b = emit_declare(e, emit_invent(e, "right"), i16, &(tile_shape){2, {columns, k}});
    const emit_loop inner = emit_loop_of(e, k, (emit_limit){0, 1});
    const pack left = {.n = n->a, .type = i16, .to = a.name, .stride = k};
    emit_each(e, n->a, 2, (emit_loop[]){emit_loop_of(e, m, limits[0]), inner}, true, pack_body, &left);
    const tile_node *source = resolved(e, n->b);
    const bool is_transposed = source->kind == TILE_TRANSPOSE;
    const pack right = {
        .n = is_transposed ? source->a : n->b, .type = i16, .to = b.name, .stride = k, .transposed = !is_transposed};
    emit_each(e, is_transposed ? source->a : NULL, 2, (emit_loop[]){emit_loop_of(e, columns, limits[1]), inner}, true,
              pack_body, &right);
    emit_print(e, "mt_dot_i16(%s, %" PRId64 ", %s, %s, %" PRId64 ", %s, %s);", array->name, columns,
               count_text(e, m, limits[0]), count_text(e, columns, limits[1]), k, a.name, b.name);
}

void emit_dot(emit *e, const emit_array *array, const tile_node *n, const emit_limit *limits) {
    if (!emit_is_float(n->type, 32)) {
        dot_integers(e, array, n, limits);
        return;
    }
    int64_t stride;
    const char *a = left_rows(e, n->a, limits[0], &stride), *codec;
    const tile_node *b = resolved(e, n->b);
    if (b->kind == TILE_TRANSPOSE) {
        const char *slice = right_slice(e, b->a, &codec);
        call_nt(e, array, limits, a, stride, slice, codec, n->a->shape.extent[1]);
    } else {
        const char *slice = right_slice(e, b, &codec);
        call_nn(e, array, limits, a, stride, slice, codec);
    }
}

/* ---- loops ---- */

/* acc = acc + dot(a, b), or the other way round: the dot. */
static const tile_node *sum_of_dot(const tile_statement *s) {
    const tile_node *v = s->value;
    if (s->kind != TILE_ASSIGN || s->declares || v->kind != TILE_ELEMENTWISE || v->op != TILE_ADD ||
        !emit_is_float(v->type, 32))
        return NULL;
    const tile_node *acc = v->a->kind == TILE_VAR ? v->a : v->b, *dot = acc == v->a ? v->b : v->a;
    return acc->kind == TILE_VAR && acc->index == s->index && dot->kind == TILE_DOT &&
                   !memcmp(&acc->shape, &dot->shape, sizeof acc->shape)
               ? dot
               : NULL;
}

/* B as a load; *transposed tells w.T. */
static direct walked_load(const emit *e, const tile_node *dot, bool *transposed) {
    const tile_node *b = resolved(e, dot->b);
    *transposed = b->kind == TILE_TRANSPOSE;
    return direct_load(e, *transposed ? b->a : b);
}

/* start is loop * size. */
static bool advances(const tile_node *start, int loop, int64_t size) {
    if (start->kind == TILE_LOOP) return start->index == loop && size == 1;
    if (start->kind != TILE_ELEMENTWISE || start->op != TILE_MUL) return false;
    const tile_node *variable = start->a->kind == TILE_LOOP ? start->a : start->b,
                    *factor = variable == start->a ? start->b : start->a;
    return variable->kind == TILE_LOOP && variable->index == loop && factor->kind == TILE_CONST &&
           factor->value.i == size;
}

/* The variable is the whole left operand of dots of the loop, and read nowhere else. */
static bool is_left_only(const emit *e, const tile_statement *body, int variable) {
    for (const tile_statement *s = body; s; s = s->next) {
        const tile_node *dot = sum_of_dot(s);
        if (!dot && s->index == variable) continue; /* its own declaration */
        if (!dot ? emit_reads(e, s->value, variable) : emit_reads(e, dot->b, variable)) return false;
        if (dot && emit_reads(e, dot->a, variable) && dot->a->kind != TILE_VAR) return false;
    }
    return true;
}

static bool can_fuse(const emit *e, const tile_statement *loop) {
    const tile_node *begin = loop->begin, *end = loop->end;
    if (begin->kind != TILE_CONST || end->kind != TILE_CONST || begin->value.i < 0 || end->value.i <= begin->value.i)
        return false;
    bool found = false;
    for (const tile_statement *s = loop->body; s; s = s->next) {
        const tile_node *dot = sum_of_dot(s);
        if (!dot) { /* else only tiles for the left */
            if (s->kind != TILE_ASSIGN || !s->declares || e->op->variables[s->index].assignments != 1) return false;
            const emit_mode mode = e->variables[s->index].mode;
            if (mode == EMIT_SCALAR || (mode == EMIT_ARRAY && !is_left_only(e, loop->body, s->index))) return false;
            continue;
        }
        bool transposed;
        const direct b = walked_load(e, dot, &transposed);
        if (!b.load || e->variables[s->index].mode != EMIT_ARRAY) return false;
        const tile_access *access = b.load->access;
        const int along = transposed ? access->rank - 1 : b.row;
        const int64_t k = access->item[along].size, total = (end->value.i - begin->value.i);
        if (total > PANEL_LIMIT / (k * 4 * (dot->shape.extent[0] + 1)) ||
            !advances(access->item[along].start, loop->index, k))
            return false;
        for (int d = 0; d < access->rank; d++) {
            const tile_item *item = &access->item[d];
            if ((d != along && emit_has_loop(e, item->start, loop->index)) ||
                (item->limit && emit_has_loop(e, item->limit, loop->index)))
                return false;
        }
        /* No sum is read by an operand, none is added to twice. */
        for (const tile_statement *o = loop->body; o; o = o->next) {
            if (emit_reads(e, dot->a, o->index) && sum_of_dot(o)) return false;
            if (emit_reads(e, dot->b, o->index)) return false;
            if (o != s && o->index == s->index) return false;
        }
        found = true;
    }
    for (const tile_statement *s = loop->body; s; s = s->next) /* and none by the tiles for the left */
        for (const tile_statement *o = loop->body; o && !sum_of_dot(s); o = o->next)
            if ((sum_of_dot(o) || e->variables[o->index].mode == EMIT_ARRAY) && emit_reads(e, s->value, o->index))
                return false;
    return found;
}

/* The left operand of all turns side by side, `valid` columns. */
static const char *left_of_loop(emit *e, const tile_statement *loop, const tile_node *n, emit_limit rows, int64_t valid,
                                int64_t stride) {
    const tile_format *f32 = tile_format_scalar("f32", 3);
    const int64_t k = n->shape.extent[1], turns = loop->end->value.i - loop->begin->value.i;
    const emit_array a = emit_declare(e, emit_invent(e, "left"), f32, &(tile_shape){2, {n->shape.extent[0], stride}});
    const char *name = e->loop_names[loop->index];
    emit_loop loops[2] = {emit_loop_of(e, n->shape.extent[0], rows),
                          emit_loop_of(e, turns == 1 ? min_i64(k, valid) : k, (emit_limit){0, 1})};
    pack p = {.n = n, .type = f32, .to = a.name, .stride = stride};
    emit_print(e, "for (int64_t %s = %" PRId64 "; %s < %" PRId64 "; %s++) {", name, loop->begin->value.i, name,
               loop->end->value.i, name);
    e->indent++;
    if (turns > 1) {
        p.offset = emit_invent(e, "column");
        emit_print(e, "const int64_t %s = (%s - %" PRId64 ") * %" PRId64 ";", p.offset, name, loop->begin->value.i, k);
        if (valid < turns * k) {
            loops[1].high = emit_invent(e, "columns");
            emit_print(e, "const int64_t %s = mt_min(%" PRId64 ", %" PRId64 " - %s);", loops[1].high, k, valid,
                       p.offset);
        }
    }
    emit_each(e, n, 2, loops, true, pack_body, &p);
    e->indent--;
    emit_print(e, "}");
    if (valid < stride)
        emit_print(e, "mt_pad(%s, %s, %" PRId64 ", %" PRId64 ");", a.name, count_text(e, n->shape.extent[0], rows),
                   valid, stride);
    return a.name;
}

static bool is_declared_in(const tile_statement *s, int variable) {
    for (; s; s = s->next)
        if (s->kind == TILE_ASSIGN && s->declares && s->index == variable) return true;
    return false;
}

bool emit_fused(emit *e, const tile_statement *loop) {
    if (!can_fuse(e, loop)) return false;
    const char *lefts[LEFTS];
    emit_limit rows_of[LEFTS];
    int64_t valid_of[LEFTS];
    int variables[LEFTS], count = 0;
    const int64_t begin = loop->begin->value.i, turns = loop->end->value.i - begin;
    for (const tile_statement *s = loop->body; s; s = s->next) {
        const tile_node *dot = sum_of_dot(s);
        if (!dot) continue;
        bool transposed;
        const emit_array *array = &e->variables[s->index].array;
        const emit_limit *limits = e->variables[s->index].limit;
        const direct b = walked_load(e, dot, &transposed);
        const tile_access *access = b.load->access;
        const int last = access->rank - 1, along = transposed ? last : b.row;
        const int64_t k = access->item[along].size, total = turns * k;
        const tile_node *extent = e->op->params[access->param].extent[along];
        const int64_t valid =
            extent->kind == TILE_CONST ? max_i64(0, min_i64(total, extent->value.i - begin * k)) : total;
        const int64_t stride = max_i64(CHUNK, (int64_t)align_up((uint64_t)valid, CHUNK));
        /* A left operand that is a variable of the loop is gathered once for all its dots. */
        const tile_node *a = dot->a;
        const emit_limit rows = limits[0];
        const char *left = NULL;
        const bool is_local = a->kind == TILE_VAR && is_declared_in(loop->body, a->index);
        for (int i = 0; i < count && is_local; i++)
            if (variables[i] == a->index && rows_of[i].id == rows.id && rows_of[i].factor == rows.factor &&
                valid_of[i] == valid)
                left = lefts[i];
        if (!left) left = left_of_loop(e, loop, is_local ? e->variables[a->index].value : a, rows, valid, stride);
        if (is_local && count < LEFTS) {
            variables[count] = a->index;
            rows_of[count] = rows;
            valid_of[count] = valid;
            lefts[count++] = left;
        }
        emit_print(e, "{");
        e->indent++;
        emit_print(e, "const int64_t %s = %" PRId64 ";", e->loop_names[loop->index], begin);
        const int64_t rows_of_b = transposed ? access->item[b.row].size : total,
                      columns_of_b = transposed ? total : access->item[last].size;
        const char *slice = emit_slice(e, access, b.row, rows_of_b, columns_of_b),
                   *codec = emit_codec_of(e, b.load->type, b.rounded);
        if (transposed)
            call_nt(e, array, limits, left, stride, slice, codec, valid);
        else
            call_nn(e, array, limits, left, stride, slice, codec);
        e->indent--;
        emit_print(e, "}");
    }
    return true;
}
