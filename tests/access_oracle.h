/* Runs a tile program for its indices alone: a small interpreter executes the integer arithmetic of an op at a grid
 * point, with given live values, and notes every element that is touched. What is in memory is made up from a seed; so
 * are comparisons of floats. It shares no code with what it checks; it knows only tile.h. */
#ifndef ACCESS_ORACLE_H
#define ACCESS_ORACLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tile/tile.h"

typedef struct hull { /* of the elements touched: in each dimension [low, high) */
    bool any;
    int64_t low[TILE_RANK], high[TILE_RANK];
    bool *elements; /* of one run: which were touched, in row-major order */
    int64_t element_count;
} hull;

typedef struct world {
    arena *memory;
    const tile_instance *instance;
    const tile_op *op;
    const int64_t *index;
    int64_t live[TILE_PARAMS];
    uint64_t seed; /* of what is in memory */
    int64_t loops[64];
    int64_t *variables[64];
    hull reads[TILE_PARAMS], writes[TILE_PARAMS];
    int64_t flops;
} world;

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

static inline bool is_float(const tile_format *t) { return t->body || t->scalar.kind == TILE_FLOAT; }

/* value in type t: what two's complement machines do. */
static inline int64_t wrap(int64_t value, const tile_format *t) {
    const int bits = t->scalar.bits;
    if (t->scalar.kind == TILE_BOOL) return value != 0;
    if (bits == 64) return value;
    const uint64_t low = (uint64_t)value & ((1ull << bits) - 1);
    if (t->scalar.kind == TILE_UINT || !(low >> (bits - 1))) return (int64_t)low;
    return (int64_t)(low - (1ull << bits));
}

/* value cast to type t: saturated. */
static inline int64_t saturate(int64_t value, const tile_format *t) {
    const bool is_signed = t->scalar.kind == TILE_INT;
    const int bits = t->scalar.kind == TILE_BOOL ? 1 : t->scalar.bits;
    const int64_t most = bits == 64 ? INT64_MAX : (int64_t)((1ull << (bits - is_signed)) - 1);
    const int64_t least = is_signed ? -most - 1 : 0;
    return value < least ? least : value > most ? most : value;
}

static inline int64_t down(int64_t a, int64_t b) {
    if (b == 0 || (b == -1 && a == INT64_MIN)) return 0; /* no program may rely on it */
    int64_t q = a / b;
    while (q * b != a && ((a < 0) != (b < 0))) return q - 1;
    return q;
}

static inline int64_t compute(tile_operator op, int64_t a, int64_t b, int bits) {
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case TILE_NEG:
        return (int64_t)(0 - x);
    case TILE_NOT:
        return !a;
    case TILE_ABS:
        return a < 0 ? (int64_t)(0 - x) : a;
    case TILE_ADD:
        return (int64_t)(x + y);
    case TILE_SUB:
        return (int64_t)(x - y);
    case TILE_MUL:
        return (int64_t)(x * y);
    case TILE_DIV:
        return down(a, b);
    case TILE_MOD:
        return (int64_t)(x - (uint64_t)down(a, b) * y);
    case TILE_CEIL_DIV:
        return (int64_t)(0 - (uint64_t)down((int64_t)(0 - x), b));
    case TILE_MIN:
        return a < b ? a : b;
    case TILE_MAX:
        return a > b ? a : b;
    case TILE_AND:
        return a && b;
    case TILE_OR:
        return a || b;
    case TILE_BIT_AND:
        return a & b;
    case TILE_BIT_OR:
        return a | b;
    case TILE_BIT_XOR:
        return a ^ b;
    case TILE_SHL:
        return b < 0 || b >= bits ? 0 : (int64_t)(x << b);
    case TILE_SHR:
        return b < 0 || b >= bits ? 0 : a >> b;
    case TILE_EQ:
        return a == b;
    case TILE_NE:
        return a != b;
    case TILE_LT:
        return a < b;
    case TILE_LE:
        return a <= b;
    case TILE_GT:
        return a > b;
    case TILE_GE:
        return a >= b;
    default:
        fail_msg("operator %d", op);
        return 0;
    }
}

static inline int64_t *eval(world *w, const tile_node *n);

static inline int64_t scalar(world *w, const tile_node *n) { return eval(w, n)[0]; }

/* The element of a tile of shape `from` that is used for element i of shape `to`. */
static inline int64_t source(const tile_shape *from, const tile_shape *to, int64_t i) {
    int64_t out = 0, stride = 1;
    for (int d = 0; d < to->rank; d++) {
        const int64_t at = i % to->extent[to->rank - 1 - d];
        i /= to->extent[to->rank - 1 - d];
        if (d >= from->rank) continue;
        const int64_t extent = from->extent[from->rank - 1 - d];
        if (extent > 1) out += at * stride;
        stride *= extent;
    }
    return out;
}

/* Notes in h what a slice touches, and loads it when `loaded` is not NULL. */
static inline void touch(world *w, const tile_access *a, hull *h, int64_t **loaded, const tile_shape *shape) {
    const tile_param *p = &w->op->params[a->param];
    const tile_operand *t = &w->instance->tensor[p->ordinal];
    int64_t *starts[TILE_RANK], end[TILE_RANK];
    for (int d = 0; d < a->rank; d++) {
        starts[d] = eval(w, a->item[d].start);
        end[d] = t->extent[d];
        const int64_t now = scalar(w, p->extent[d]); /* less than the room where it uses live values */
        if (now < end[d]) end[d] = now;
        if (a->item[d].limit) {
            const int64_t limit = scalar(w, a->item[d].limit);
            if (limit < end[d]) end[d] = limit;
        }
    }
    const int64_t count = tile_shape_count(shape);
    if (loaded) *loaded = ARENA_ARRAY(w->memory, (size_t)count, int64_t);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at[TILE_RANK], flat = 0;
        bool inside = true;
        for (int d = a->rank - 1, s = shape->rank - 1; d >= 0; d--) {
            const tile_item *item = &a->item[d];
            const int64_t k = item->kind == TILE_ITEM_POINT ? 0 : rest % shape->extent[s];
            if (item->kind != TILE_ITEM_POINT) rest /= shape->extent[s--];
            at[d] = item->kind == TILE_ITEM_GATHER ? starts[d][k] : (int64_t)((uint64_t)starts[d][0] + (uint64_t)k);
            inside &= at[d] >= 0 && at[d] < end[d];
        }
        for (int d = 0; d < a->rank && inside; d++) flat = flat * t->extent[d] + at[d];
        const int64_t value = (int64_t)(mix(w->seed ^ mix((uint64_t)flat + 977 * (uint64_t)a->param)) % 23) - 4;
        if (inside && loaded) (*loaded)[i] = wrap(p->type->scalar.kind == TILE_BOOL ? value & 1 : value, p->type);
        for (int d = 0; d < a->rank && inside; d++) {
            if (!h->any || at[d] < h->low[d]) h->low[d] = at[d];
            if (!h->any || at[d] >= h->high[d]) h->high[d] = at[d] + 1;
        }
        if (inside && !h->any) {
            h->element_count = 1;
            for (int d = 0; d < a->rank; d++) h->element_count *= t->extent[d];
            h->elements = ARENA_ARRAY(w->memory, (size_t)h->element_count, bool);
        }
        if (inside) h->elements[flat] = true;
        h->any |= inside;
    }
}

static inline int64_t reduce(tile_operator op, int64_t a, int64_t b) {
    return op == TILE_SUM          ? (int64_t)((uint64_t)a + (uint64_t)b)
           : op == TILE_REDUCE_MAX ? (a > b ? a : b)
           : a < b                 ? a
                                   : b;
}

static inline int64_t *eval(world *w, const tile_node *n) {
    const int64_t count = tile_shape_count(&n->shape);
    int64_t *a = n->a ? eval(w, n->a) : NULL, *b = n->b ? eval(w, n->b) : NULL, *c = n->c ? eval(w, n->c) : NULL;
    int64_t *out = ARENA_ARRAY(w->memory, (size_t)count, int64_t);
    const bool float_operands = n->a && is_float(n->a->type);
    switch (n->kind) {
    case TILE_CONST:
        out[0] = is_float(n->type) ? 0 : n->value.i;
        break;
    case TILE_GRID:
        out[0] = w->index[n->index];
        break;
    case TILE_LOOP:
        out[0] = w->loops[n->index];
        break;
    case TILE_EXTENT:
        out[0] = w->instance->tensor[w->op->params[w->op->extent_source[n->index].param].ordinal]
                     .extent[w->op->extent_source[n->index].dimension];
        break;
    case TILE_LIVE:
        out[0] = w->live[w->op->params[n->index].ordinal];
        break;
    case TILE_ARG:
        out[0] = is_float(n->type) ? 0 : w->instance->arg[w->op->params[n->index].ordinal].i;
        break;
    case TILE_VAR:
        memcpy(out, w->variables[n->index], (size_t)count * sizeof *out);
        break;
    case TILE_LOAD:
        touch(w, n->access, &w->reads[w->op->params[n->access->param].ordinal], &out, &n->shape);
        break;
    case TILE_ELEMENTWISE:
        for (int64_t i = 0; i < count; i++) {
            if (float_operands)
                out[i] = !is_float(n->type) &&
                         mix(w->seed + (uint64_t)i + (uint64_t)n->line * 31 + (uint64_t)n->column) % 2; /* some bool */
            else if (is_float(n->type)) /* bits(x) of an integer: floats are all 0 here */
                out[i] = 0;
            else
                out[i] = wrap(compute(n->op, a[source(&n->a->shape, &n->shape, i)],
                                      b ? b[source(&n->b->shape, &n->shape, i)] : 0, n->type->bits),
                              n->type);
        }
        if (float_operands) w->flops += count;
        break;
    case TILE_SELECT:
        for (int64_t i = 0; i < count; i++)
            out[i] = a[source(&n->a->shape, &n->shape, i)] ? b[source(&n->b->shape, &n->shape, i)]
                                                           : c[source(&n->c->shape, &n->shape, i)];
        break;
    case TILE_CAST:
        for (int64_t i = 0; i < count; i++)
            out[i] = is_float(n->type)
                         ? 0
                         : saturate(float_operands ? (int64_t)(mix(w->seed + (uint64_t)i) % 9) : a[i], n->type);
        break;
    case TILE_REDUCE: {
        int64_t inner = 1, extent = n->a->shape.extent[n->index];
        for (int d = n->index + 1; d < n->shape.rank; d++) inner *= n->shape.extent[d];
        for (int64_t i = 0; i < count; i++) {
            const int64_t first = i / inner * inner * extent + i % inner;
            int64_t value = a[first], place = 0;
            for (int64_t k = 1; k < extent; k++) {
                const int64_t x = a[first + k * inner];
                if (n->op == TILE_ARGMAX && x > value) value = x, place = k;
                if (n->op != TILE_ARGMAX) value = reduce(n->op, value, x);
            }
            out[i] = wrap(n->op == TILE_ARGMAX ? place : value, n->type);
        }
        if (float_operands) w->flops += tile_shape_count(&n->a->shape);
        break;
    }
    case TILE_DOT:
        w->flops += 2 * n->shape.extent[0] * n->shape.extent[1] * n->a->shape.extent[1];
        break;
    case TILE_TRANSPOSE: {
        const int64_t rows = n->shape.extent[n->shape.rank - 2], columns = n->shape.extent[n->shape.rank - 1];
        for (int64_t i = 0; i < count; i++)
            out[i] = a[i / (rows * columns) * rows * columns + i % columns * rows + i / columns % rows];
        break;
    }
    case TILE_RESHAPE:
        memcpy(out, a, (size_t)count * sizeof *out);
        break;
    case TILE_BROADCAST:
        for (int64_t i = 0; i < count; i++) out[i] = a[source(&n->a->shape, &n->shape, i)];
        break;
    case TILE_CONCAT: {
        int64_t inner = 1, offset = 0;
        for (int d = n->index + 1; d < n->shape.rank; d++) inner *= n->shape.extent[d];
        for (int k = 0; k < n->count; k++) {
            const int64_t row = n->list[k]->shape.extent[n->index] * inner, *from = eval(w, n->list[k]);
            for (int64_t i = 0; i < tile_shape_count(&n->list[k]->shape); i++)
                out[i / row * n->shape.extent[n->index] * inner + offset + i % row] = from[i];
            offset += row;
        }
        break;
    }
    case TILE_PART:
        for (int64_t i = 0; i < count; i++) {
            int64_t rest = i, from = 0, stride = 1;
            for (int d = n->access->rank - 1, s = n->shape.rank - 1; d >= 0; d--) {
                const tile_item *item = &n->access->item[d];
                int64_t at = item->start->value.i;
                if (item->kind != TILE_ITEM_POINT) {
                    at += rest % n->shape.extent[s];
                    rest /= n->shape.extent[s--];
                }
                from += at * stride;
                stride *= n->a->shape.extent[d];
            }
            out[i] = a[from];
        }
        break;
    case TILE_IOTA:
        for (int64_t i = 0; i < count; i++) out[i] = i;
        break;
    default:
        fail_msg("node kind %d", n->kind);
    }
    return out;
}

static inline void run(world *w, const tile_statement *s) {
    for (; s; s = s->next) {
        switch (s->kind) {
        case TILE_ASSIGN:
            w->variables[s->index] = eval(w, s->value);
            break;
        case TILE_STORE: {
            const int ordinal = w->op->params[s->access->param].ordinal;
            eval(w, s->value);
            if (s->adds) touch(w, s->access, &w->reads[ordinal], NULL, &s->shape);
            touch(w, s->access, &w->writes[ordinal], NULL, &s->shape);
            if (s->adds && is_float(s->value->type)) w->flops += tile_shape_count(&s->shape);
            break;
        }
        case TILE_FOR: {
            const int64_t end = scalar(w, s->end);
            for (int64_t k = scalar(w, s->begin); k < end; k++) {
                w->loops[s->index] = k;
                run(w, s->body);
            }
            break;
        }
        case TILE_IF:
            run(w, scalar(w, s->value) ? s->body : s->otherwise);
            break;
        case TILE_ACTION: /* level 2 */
            if (s->value) eval(w, s->value);
            run(w, s->body);
            break;
        }
    }
}

/* Steps live to the next combination of values; false after the last. */
static inline bool next_live(const tile_instance *i, int64_t *live) {
    for (int k = 0; k < i->op->live_count; k++) {
        if (live[k] < i->live[k].most) {
            live[k]++;
            return true;
        }
        live[k] = i->live[k].least;
    }
    return false;
}

/* Operands that fit an op whose free extents have the given values; extents with live values get room and some more. */
static inline tile_instance instance_of(const tile_op *op, const int64_t *extents, const int64_t *args,
                                        const int32_t (*lives)[2]) {
    tile_instance i = {.op = op};
    for (int k = 0; k < op->arg_count; k++) i.arg[k].i = args[k];
    for (int k = 0; k < op->live_count; k++) {
        i.live[k].least = lives[k][0];
        i.live[k].most = lives[k][1];
    }
    /* Extents are evaluated by the oracle; the operands that give free extents come first. */
    for (int e = 0; e < op->extent_count; e++)
        i.tensor[op->params[op->extent_source[e].param].ordinal].extent[op->extent_source[e].dimension] = extents[e];
    for (int p = 0; p < op->param_count; p++) {
        const tile_param *q = &op->params[p];
        if (!q->rank) continue;
        i.tensor[q->ordinal].rank = q->rank;
        for (int d = 0; d < q->rank; d++) {
            world w = {.memory = arena_new(), .instance = &i, .op = op};
            int64_t live[TILE_PARAMS], most = 0;
            for (int k = 0; k < op->live_count; k++) live[k] = i.live[k].least;
            do {
                memcpy(w.live, live, sizeof live[0] * (size_t)op->live_count);
                most = max_i64(most, scalar(&w, q->extent[d]));
            } while (next_live(&i, live));
            i.tensor[q->ordinal].extent[d] = most;
            arena_free(w.memory);
        }
    }
    mt_error e = {0};
    if (tile_instance_check(&i, &e)) fail_msg("%s", e.message);
    for (int k = 0; k < op->extent_count; k++) assert_int_equal(i.free_extent[k], extents[k]);
    return i;
}

#endif
