/* Reductions. The order of every sum is fixed: see cpu_vector.h for f32 along the last axis; all others are in index
 * order. */
#include "emit/emit_internal.h"

#include <inttypes.h>

enum { FEW = 16 }; /* elements along the last axis that are not worth lanes */

/* What a reduction starts with. */
static const char *identity(const tile_node *n) {
    const tile_scalar t = n->a->type->scalar;
    if (n->op == TILE_SUM) return "0";
    const bool most = n->op != TILE_REDUCE_MIN; /* look for a larger one */
    if (t.kind == TILE_FLOAT) return most ? "-INFINITY" : "INFINITY";
    if (t.kind == TILE_UINT) return most ? "0" : t.bits == 32 ? "UINT32_MAX" : "UINT64_MAX";
    return t.bits == 32 ? (most ? "INT32_MIN" : "INT32_MAX") : (most ? "INT64_MIN" : "INT64_MAX");
}

/* "place = what place and v are together". */
static const char *combined(emit *e, const tile_node *n, const char *place, const char *v) {
    if (n->op == TILE_SUM) return arena_printf(e->memory, "%s += %s;", place, v);
    const tile_node both = {.kind = TILE_ELEMENTWISE,
                            .op = n->op == TILE_REDUCE_MAX ? TILE_MAX : TILE_MIN,
                            .type = n->type,
                            .a = n->a,
                            .b = n->a};
    return arena_printf(e->memory, "%s = %s;", place, emit_operate(e, &both, place, v));
}

static void print_lines(emit_nest *x, int level) {
    for (const emit_line *l = x->first[level]; l; l = l->next) emit_print(x->e, "%s", l->text);
}

/* One turn of the lanes: elements from `first` on, `count` of them, MT_FOLD at most. */
static void lanes_turn(emit_nest *x, const tile_node *n, const char *first, int64_t count, const char *part,
                       const char *value, const char *step) {
    emit *e = x->e;
    const char *lane = emit_invent(e, "lane");
    emit_print(e, "float %s[MT_FOLD];", part);
    emit_print(e, "MT_VECTORISE");
    emit_print(e, "for (int64_t %s = 0; %s < %" PRId64 "; %s++) {", lane, lane, count, lane);
    e->indent++;
    emit_print(e, "const int64_t %s = %s + %s;", x->loop[x->inner].name, first, lane);
    print_lines(x, x->inner);
    emit_print(e, "%s[%s] = %s;", part, lane, value);
    e->indent--;
    emit_print(e, "}");
    if (count < 64)
        emit_print(e, "for (int64_t %s = %" PRId64 "; %s < MT_FOLD; %s++) %s[%s] = %s;", lane, count, lane, lane, part,
                   lane, n->op == TILE_ARGMAX ? "NAN" : identity(n));
    emit_print(e, "%s", step);
}

/* f32, along the last axis. */
static void reduce_lanes(emit_nest *x, const tile_node *n, const emit_array *array, const emit_index *at) {
    static const struct {
        const char *type, *set, *step, *end;
    } names[] = {{"mt_lanes", "mt_lanes_set(&%s, 0.0f);", "mt_lanes_sum(&%s, %s);", "mt_lanes_total(&%s)"},
                 {"mt_lanes", "mt_lanes_set(&%s, -INFINITY);", "mt_lanes_max(&%s, %s);", "mt_lanes_most(&%s)"},
                 {"mt_lanes", "mt_lanes_set(&%s, INFINITY);", "mt_lanes_min(&%s, %s);", "mt_lanes_least(&%s)"},
                 {"mt_argmax", "mt_argmax_set(&%s);", "mt_argmax_add(&%s, %s, (int32_t)%s);", "mt_argmax_index(&%s)"}};
    emit *e = x->e;
    arena *m = e->memory;
    const int which = n->op - TILE_SUM, last = n->index;
    const int64_t count = n->a->shape.extent[last];
    const char *lanes = emit_invent(e, tile_operator_text(n->op)), *part = emit_invent(e, "part"),
               *chunk = emit_invent(e, "chunk");
    emit_value v = emit_element(x, n->a, at);
    if (v.level < x->inner) v = emit_hoist(x, v, "float", NULL);
    emit_index to[TILE_RANK];
    memcpy(to, at, sizeof to);
    to[last] = (emit_index){.loop = -1, .text_level = -1};
    const emit_value place = emit_array_element(x, array, to);
    emit_nest_open(x, 0, last, false);
    emit_print(e, "%s %s;", names[which].type, lanes);
    emit_print(e, names[which].set, lanes);
    if (count >= 64) {
        emit_print(e, "for (int64_t %s = 0; %s < %" PRId64 "; %s += MT_FOLD) {", chunk, chunk, count / 64 * 64, chunk);
        e->indent++;
        lanes_turn(x, n, chunk, 64, part, v.text, arena_printf(m, names[which].step, lanes, part, chunk));
        e->indent--;
        emit_print(e, "}");
    }
    if (count % 64) {
        emit_print(e, "{");
        e->indent++;
        const char *first = arena_printf(m, "%" PRId64, count / 64 * 64);
        lanes_turn(x, n, first, count % 64, part, v.text, arena_printf(m, names[which].step, lanes, part, first));
        e->indent--;
        emit_print(e, "}");
    }
    emit_print(e, "%s = %s;", place.text, arena_printf(m, names[which].end, lanes));
    emit_nest_close(x, 0, last);
}

/* The innermost loop runs along the axis: the result stays in a C variable. */
static void reduce_inner(emit_nest *x, const tile_node *n, const emit_array *array, const emit_index *at) {
    emit *e = x->e;
    const char *type = emit_c_type(n->a->type), *result = emit_invent(e, tile_operator_text(n->op)),
               *best = emit_invent(e, "best");
    const bool argmax = n->op == TILE_ARGMAX;
    emit_index to[TILE_RANK];
    memcpy(to, at, sizeof to);
    to[n->index] = (emit_index){.loop = -1, .text_level = -1};
    emit_value v = emit_element(x, n->a, at);
    if (v.level < x->inner || argmax) v = emit_hoist(x, v, type, NULL);
    emit_nest_open(x, 0, x->inner, false);
    emit_print(e, "%s %s = %s;", type, argmax ? best : result, identity(n));
    if (argmax) emit_print(e, "int32_t %s = -1;", result);
    emit_nest_open(x, x->inner, n->a->shape.rank, false);
    if (argmax) {
        const char *is_number =
            n->a->type->scalar.kind == TILE_FLOAT ? arena_printf(e->memory, "%s == %s", v.text, v.text) : "1";
        emit_print(e, "if (%s > %s || (%s < 0 && %s)) %s = %s, %s = (int32_t)%s;", v.text, best, result, is_number,
                   best, v.text, result, emit_index_text(x, &at[n->index]));
    } else
        emit_print(e, "%s", combined(e, n, result, v.text));
    emit_nest_close(x, x->inner, n->a->shape.rank);
    emit_print(e, argmax ? "%s = mt_max32(%s, 0);" : "%s = %s;", emit_array_element(x, array, to).text, result);
    emit_nest_close(x, 0, x->inner);
}

typedef struct reduction {
    const tile_node *n;
    const emit_array *array, *best;
} reduction;

static const char *place_of(emit_nest *x, const reduction *r, const emit_array *array, const emit_index *at) {
    emit_index to[TILE_RANK];
    memcpy(to, at, sizeof to);
    to[r->n->index] = (emit_index){.loop = -1, .text_level = -1};
    return emit_array_element(x, array, to).text;
}

static const char *set_body(emit_nest *x, const emit_index *at, const void *context) {
    const reduction *r = context;
    const char *place = emit_array_element(x, r->array, at).text;
    if (r->n->op != TILE_ARGMAX) return arena_printf(x->e->memory, "%s = %s;", place, identity(r->n));
    return arena_printf(x->e->memory, "%s = -1, %s = %s;", place, emit_array_element(x, r->best, at).text,
                        identity(r->n));
}

static const char *add_body(emit_nest *x, const emit_index *at, const void *context) {
    const reduction *r = context;
    arena *m = x->e->memory;
    emit_value v = emit_element(x, r->n->a, at);
    const char *place = place_of(x, r, r->array, at), *type = emit_c_type(r->n->a->type);
    if (v.level < x->inner || r->n->op == TILE_ARGMAX) v = emit_hoist(x, v, type, NULL);
    if (r->n->op != TILE_ARGMAX) return combined(x->e, r->n, place, v.text);
    const char *best = place_of(x, r, r->best, at), *wins = emit_invent(x->e, "wins");
    const char *is_number =
        r->n->a->type->scalar.kind == TILE_FLOAT ? arena_printf(m, "(%s == %s)", v.text, v.text) : "1";
    /* A line of its own: it must come after that of v, which may be further out. */
    return arena_printf(
        m, "{ const int %s = (%s > %s) | (%s & (%s < 0)); %s = %s ? %s : %s; %s = %s ? (int32_t)%s : %s; }", wins,
        v.text, best, is_number, place, best, wins, v.text, best, place, wins, emit_index_text(x, &at[r->n->index]),
        place);
}

static const char *end_body(emit_nest *x, const emit_index *at, const void *context) {
    const char *place = emit_array_element(x, ((const reduction *)context)->array, at).text;
    return arena_printf(x->e->memory, "%s = mt_max32(%s, 0);", place, place);
}

emit_array emit_reduce(emit *e, const tile_node *n, const emit_limit *limits) {
    const int rank = n->a->shape.rank, axis = n->index;
    emit_loop loops[TILE_RANK], outer[TILE_RANK];
    for (int d = 0; d < rank; d++) {
        loops[d] = outer[d] = emit_loop_of(e, n->a->shape.extent[d], limits[d]);
        if (d == axis) {
            loops[d] = emit_loop_of(e, n->a->shape.extent[d], (emit_limit){0, 1});
            outer[d] = emit_loop_of(e, 1, (emit_limit){0, 1});
        }
    }
    const emit_array array = emit_declare(e, emit_invent(e, tile_operator_text(n->op)), n->type, &n->shape);
    emit_nest x;
    emit_index at[TILE_RANK];
    emit_nest_begin(e, &x, rank, loops, at);
    if (x.inner == axis && axis == rank - 1 && emit_is_float(n->a->type, 32) && n->a->shape.extent[axis] >= FEW) {
        reduce_lanes(&x, n, &array, at);
        return array;
    }
    if (x.inner == axis) {
        reduce_inner(&x, n, &array, at);
        return array;
    }
    emit_array best = {0};
    if (n->op == TILE_ARGMAX) best = emit_declare(e, emit_invent(e, "best"), n->a->type, &n->shape);
    const reduction r = {n, &array, &best};
    emit_each(e, NULL, rank, outer, true, set_body, &r);
    emit_each(e, NULL, rank, loops, true, add_body, &r);
    if (n->op == TILE_ARGMAX) emit_each(e, NULL, rank, outer, true, end_body, &r);
    return array;
}
