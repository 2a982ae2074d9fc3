/* Nests of loops over tiles, and indices in them. */
#include "emit/emit_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- indices ---- */

static emit_index constant_index(int64_t value) { return (emit_index){.loop = -1, .text_level = -1, .offset = value}; }

int emit_index_level(const emit_index *at) { return at->text && at->text_level > at->loop ? at->text_level : at->loop; }

const char *emit_index_text(const emit_nest *x, const emit_index *at) {
    arena *m = x->e->memory;
    const char *loop = at->loop >= 0 ? x->loop[at->loop].name : NULL;
    if (!loop && !at->text) return arena_printf(m, "%" PRId64, at->offset);
    const char *sum = loop && at->text ? arena_printf(m, "%s + %s", at->text, loop) : loop ? loop : at->text;
    if (at->offset) sum = arena_printf(m, "%s + %" PRId64, sum, at->offset);
    return sum == loop || sum == at->text ? sum : arena_printf(m, "(%s)", sum);
}

void emit_index_range(const emit_nest *x, const emit_index *at, int64_t extent, int64_t *low, int64_t *high) {
    *low = 0;
    *high = extent - 1;
    if (at->text) return;
    *low = at->offset + (at->loop >= 0 ? x->loop[at->loop].least : 0);
    *high = at->offset + (at->loop >= 0 ? x->loop[at->loop].most - 1 : 0);
}

static const char *plus(arena *m, const char *a, const char *b) { return a ? arena_printf(m, "%s + %s", a, b) : b; }
static const char *times(arena *m, const char *a, int64_t b) {
    return b == 1 ? a : arena_printf(m, "%s * %" PRId64, a, b);
}

emit_value emit_linear(const emit_nest *x, const tile_shape *shape, const emit_index *at) {
    arena *m = x->e->memory;
    const char *sum = NULL;
    int64_t stride = 1, offset = 0, strides[TILE_RANK];
    int level = -1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= shape->extent[d];
    }
    for (int d = 0; d < shape->rank; d++) {
        const emit_index bare = {at[d].loop, at[d].text, at[d].text_level, 0};
        offset += at[d].offset * strides[d];
        if (emit_index_level(&bare) < 0 && !bare.text) continue;
        sum = plus(m, sum, times(m, emit_index_text(x, &bare), strides[d]));
        if (emit_index_level(&bare) > level) level = emit_index_level(&bare);
    }
    if (!sum || offset) sum = plus(m, sum, arena_printf(m, "%" PRId64, offset));
    return (emit_value){sum, level, false};
}

void emit_operand_index(const tile_node *n, int which, const emit_index *at, emit_index *out) {
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
            out[d] = item->kind == TILE_ITEM_POINT ? constant_index(0) : at[t++];
            out[d].offset += item->start->value.i;
        }
        break;
    default: /* elementwise: broadcasting */
        for (int d = 0; d < rank; d++) out[d] = o->shape.extent[d] == 1 ? constant_index(0) : at[d + shift];
    }
}

bool emit_reshape_index(const emit_nest *x, const tile_node *n, const emit_index *at, emit_index *out) {
    arena *m = x->e->memory;
    const tile_shape *from = &n->a->shape, *to = &n->shape;
    int i = from->rank - 1, j = to->rank - 1;
    for (int d = 0; d < from->rank; d++) out[d] = constant_index(0);
    while (i >= 0) { /* groups of dimensions with equal products, as in reshape_limits */
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
        /* The index into the group. */
        emit_index all = constant_index(0);
        int64_t stride = 1;
        for (int d = j; d >= other && d >= 0; d--) {
            const emit_index bare = {at[d].loop, at[d].text, at[d].text_level, 0};
            all.offset += at[d].offset * stride;
            if (to->extent[d] > 1 && (bare.loop >= 0 || bare.text)) {
                if (stride == 1)
                    all.loop = bare.loop, all.text = bare.text, all.text_level = bare.text_level;
                else {
                    const char *term = times(m, emit_index_text(x, &bare), stride);
                    all.text = all.text ? plus(m, term, all.text) : term;
                    const int level = emit_index_level(&bare);
                    if (level > all.text_level) all.text_level = level;
                }
            }
            stride *= to->extent[d];
        }
        /* Text in an index is an operand of what may follow. */
        if (all.text && !emit_is_name(all.text) && emit_bare(m, all.text) == all.text)
            all.text = arena_printf(m, "(%s)", all.text);
        if (wide <= 1)
            out[target] = all;
        else {
            if (emit_index_level(&all) >= 0 && emit_index_level(&all) == x->inner) return false;
            const char *linear = emit_index_text(x, &all);
            stride = 1;
            for (int d = i; d >= first; d--) {
                if (from->extent[d] == 1) continue;
                out[d] = (emit_index){-1, linear, emit_index_level(&all), 0};
                if (stride > 1) out[d].text = arena_printf(m, "%s / %" PRId64, linear, stride);
                stride *= from->extent[d];
                if (d > first) out[d].text = arena_printf(m, "%s %% %" PRId64, out[d].text, from->extent[d]);
                out[d].text = arena_printf(m, "(%s)", out[d].text);
            }
        }
        i = first - 1;
        j = other - 1;
    }
    return true;
}

void emit_index_limits(const emit_nest *x, const tile_shape *shape, const emit_index *at, emit_limit *out) {
    for (int d = 0; d < shape->rank; d++) {
        out[d] = (emit_limit){0, 1};
        if (at[d].loop < 0 || at[d].text || at[d].offset) continue;
        /* A loop may run over more than this tile, which is then an operand of a concatenation. */
        const emit_limit l = x->loop[at[d].loop].limit;
        if (l.id > 0 && x->e->limits[l.id].size * l.factor <= shape->extent[d]) out[d] = l;
    }
}

/* ---- loops ---- */

const char *emit_limit_text(emit *e, emit_limit limit) {
    emit_limit_source *l = &e->limits[limit.id];
    if (!l->name) {
        text *const body = e->out;
        const int indent = e->indent;
        e->out = e->header;
        e->indent = 1;
        tile_access access = {.param = l->param, .rank = l->dimension + 1};
        access.item[l->dimension].limit = (tile_node *)l->limit;
        const char *start = emit_scalar(e, l->start), *extent = emit_extent(e, &access, l->dimension);
        l->name = emit_invent(e, arena_printf(e->memory, "%s_valid", e->op->params[l->param].name));
        emit_print(e, "const int64_t %s = mt_clamp(%s - %s, 0, %" PRId64 ");", l->name, emit_bare(e->memory, extent),
                   start, l->size);
        e->out = body;
        e->indent = indent;
    }
    return limit.factor == 1 ? l->name : arena_printf(e->memory, "%s * %" PRId64, l->name, limit.factor);
}

emit_loop emit_loop_of(emit *e, int64_t extent, emit_limit limit) {
    return (emit_loop){.low = "0",
                       .least = 0,
                       .most = extent,
                       .limit = limit,
                       .high = limit.id > 0 ? emit_limit_text(e, limit) : arena_printf(e->memory, "%" PRId64, extent)};
}

/* True for bounds that are written as the constants they are. */
static bool is_fixed(const emit_loop *l) {
    char low[32], high[32];
    snprintf(low, sizeof low, "%" PRId64, l->least);
    snprintf(high, sizeof high, "%" PRId64, l->most);
    return !strcmp(low, l->low) && !strcmp(high, l->high);
}

void emit_nest_begin(emit *e, emit_nest *x, int rank, const emit_loop *loops, emit_index *at) {
    *x = (emit_nest){.e = e, .rank = rank, .inner = -1};
    for (int d = 0; d < rank; d++) {
        x->loop[d] = loops[d];
        x->last[d] = &x->first[d];
        if (loops[d].most - loops[d].least == 1 && is_fixed(&loops[d]) && !loops[d].is_left) {
            at[d] = constant_index(loops[d].least);
            continue;
        }
        x->loop[d].name = arena_printf(e->memory, "i%d", d);
        at[d] = (emit_index){.loop = d, .text_level = -1};
        x->inner = d;
    }
}

void emit_nest_open(emit_nest *x, int from, int to, bool vectorise) {
    emit *e = x->e;
    for (int d = from; d < to; d++) {
        const emit_loop *l = &x->loop[d];
        if (l->name) {
            if (d == x->inner) emit_print(e, vectorise ? "MT_VECTORISE" : "MT_ROLLED");
            emit_print(e, "for (int64_t %s = %s; %s < %s; %s++) {", l->name, l->low, l->name, l->high, l->name);
            e->indent++;
        }
        for (const emit_line *line = x->first[d]; line; line = line->next) emit_print(e, "%s", line->text);
    }
}

void emit_nest_close(emit_nest *x, int from, int to) {
    for (int d = from; d < to; d++)
        if (x->loop[d].name) {
            x->e->indent--;
            emit_print(x->e, "}");
        }
}

/* ---- pieces ---- */

enum { CUTS = 16 };
typedef struct cuts {
    int64_t at[TILE_RANK][CUTS];
    int count[TILE_RANK];
} cuts;

/* Where concatenations below n change operands, as cuts of the loops. What does not fit in the table is not cut, and is
 * copied. */
static void find_cuts(const emit_nest *x, const tile_node *n, const emit_index *at, cuts *c) {
    const emit *e = x->e;
    if (n->kind == TILE_VAR && e->variables[n->index].mode == EMIT_INLINE) {
        find_cuts(x, e->variables[n->index].value, at, c);
        return;
    }
    emit_index below[TILE_RANK];
    switch (n->kind) {
    case TILE_ELEMENTWISE:
    case TILE_SELECT:
    case TILE_CAST:
    case TILE_BROADCAST:
    case TILE_TRANSPOSE:
    case TILE_PART:
        for (int i = 0; i < 3; i++) {
            const tile_node *o = i == 0 ? n->a : i == 1 ? n->b : n->c;
            if (!o) continue;
            emit_operand_index(n, i, at, below);
            find_cuts(x, o, below, c);
        }
        break;
    case TILE_CONCAT: {
        const emit_index *along = &at[n->index];
        int64_t end = 0;
        for (int i = 0; i < n->count; i++) {
            end += n->list[i]->shape.extent[n->index];
            if (along->loop >= 0 && !along->text && i + 1 < n->count && c->count[along->loop] < CUTS)
                c->at[along->loop][c->count[along->loop]++] = end - along->offset;
            emit_operand_index(n, i, at, below);
            find_cuts(x, n->list[i], below, c);
        }
        break;
    }
    default:
        break;
    }
}

static void sort(int64_t *values, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && values[j - 1] > values[j]; j--) {
            const int64_t t = values[j];
            values[j] = values[j - 1];
            values[j - 1] = t;
        }
}

/* The part of a loop in [least, most). */
static emit_loop piece_of(emit *e, const emit_loop *l, int64_t least, int64_t most) {
    emit_loop p = *l;
    p.least = max_i64(l->least, least);
    p.most = min_i64(l->most, most);
    if (is_fixed(l)) {
        p.low = arena_printf(e->memory, "%" PRId64, p.least);
        p.high = arena_printf(e->memory, "%" PRId64, p.most);
    } else {
        if (p.least > l->least) p.low = arena_printf(e->memory, "mt_max(%s, %" PRId64 ")", l->low, p.least);
        if (p.most < l->most) p.high = arena_printf(e->memory, "mt_min(%s, %" PRId64 ")", l->high, p.most);
    }
    return p;
}

void emit_each(emit *e, const tile_node *value, int rank, const emit_loop *loops, bool vectorise, emit_body *body,
               const void *context) {
    emit_nest x;
    emit_index at[TILE_RANK], below[TILE_RANK];
    cuts c = {.count = {0}};
    emit_nest_begin(e, &x, rank, loops, at);
    if (value) {
        for (int d = 0; d < value->shape.rank; d++) /* the value may be stretched to the loops */
            below[d] = value->shape.extent[d] == 1 ? constant_index(0) : at[d + rank - value->shape.rank];
        find_cuts(&x, value, below, &c);
    }
    int64_t pieces = 1;
    for (int d = 0; d < rank; d++) {
        sort(c.at[d], c.count[d]);
        if (pieces * (c.count[d] + 1) > CUTS) c.count[d] = 0;
        pieces *= c.count[d] + 1;
    }
    for (int64_t piece = 0; piece < pieces; piece++) {
        emit_loop part[TILE_RANK] = {{0}};
        int64_t rest = piece;
        bool empty = false;
        for (int d = rank - 1; d >= 0; d--) {
            const int i = (int)(rest % (c.count[d] + 1));
            rest /= c.count[d] + 1;
            part[d] = c.count[d] ? piece_of(e, &loops[d], i ? c.at[d][i - 1] : INT64_MIN,
                                            i < c.count[d] ? c.at[d][i] : INT64_MAX)
                                 : loops[d];
            empty |= part[d].least >= part[d].most;
        }
        if (empty) continue;
        emit_nest_begin(e, &x, rank, part, at);
        const char *statement = body(&x, at, context);
        emit_nest_open(&x, 0, rank, vectorise);
        emit_print(e, "%s", statement);
        emit_nest_close(&x, 0, rank);
    }
}
