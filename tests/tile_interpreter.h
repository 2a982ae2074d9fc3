/* A tile op evaluated by walking its tree: slow, plain, and written without a look at the emitter, as its oracle.
 *
 * Every tile is computed as a whole: floats as doubles, rounded to f32 after each f32 operation (as the language says),
 * integers as int64_t, wrapped. Sums and dots are taken in double and rounded once, so results agree with a real
 * machine's up to the order of its sums. Instructions run in the order of their numbers. Memory comes from malloc and
 * is freed at the end. */
#ifndef TILE_INTERPRETER_H
#define TILE_INTERPRETER_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "emit/cpu_abi.h"
#include "tile/tile.h"

typedef union cell {
    double f;
    int64_t i;
} cell;

typedef struct tile { /* the cells are row-major */
    tile_shape shape;
    const tile_format *type;
    int64_t count;
    cell *cells;
} tile;

typedef struct interpreter {
    const tile_op *op;
    const cpu_tensor *tensors;
    const cpu_arg *args;
    const int32_t *lives;
    int64_t index[TILE_AXES];
    int64_t loops[256];
    tile *variables;
    void **blocks; /* of memory */
    size_t block_count;
} interpreter;

static inline void *interpreter_alloc(interpreter *p, size_t size) {
    p->blocks = realloc(p->blocks, (p->block_count + 1) * sizeof *p->blocks);
    if (!p->blocks || !(p->blocks[p->block_count] = calloc(1, size + 1))) abort();
    return p->blocks[p->block_count++];
}

static inline bool cell_is_float(const tile_format *t) {
    return t->scalar.kind == TILE_FLOAT || tile_format_is_block(t);
}

static inline tile tile_new(interpreter *p, const tile_shape *shape, const tile_format *type) {
    tile t = {*shape, type, tile_shape_count(shape), NULL};
    t.cells = interpreter_alloc(p, (size_t)t.count * sizeof *t.cells);
    return t;
}

/* Row-major indices of element i. */
static inline void tile_unravel(const tile_shape *s, int64_t i, int64_t *at) {
    for (int d = s->rank - 1; d >= 0; d--) at[d] = i % s->extent[d], i /= s->extent[d];
}
static inline int64_t tile_ravel(const tile_shape *s, const int64_t *at) {
    int64_t i = 0;
    for (int d = 0; d < s->rank; d++) i = i * s->extent[d] + at[d];
    return i;
}
/* The element of t that broadcasting puts at `at` of a tile of rank `rank`. */
static inline cell tile_broadcast(const tile *t, const int64_t *at, int rank) {
    int64_t own[TILE_RANK];
    for (int d = 0; d < t->shape.rank; d++) own[d] = t->shape.extent[d] == 1 ? 0 : at[d + rank - t->shape.rank];
    return t->cells[tile_ravel(&t->shape, own)];
}

/* ---- numbers ---- */

static inline int64_t wrap_integer(const tile_format *t, int64_t v) {
    if (t->scalar.bits == 32)
        return t->scalar.kind == TILE_INT ? (int64_t)(int32_t)(uint32_t)(uint64_t)v : (int64_t)(uint32_t)(uint64_t)v;
    return v;
}

static inline int64_t floor_quotient(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static inline cell operate_integer(const tile_node *n, int64_t a, int64_t b) {
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    int64_t r = 0;
    switch (n->op) {
    case TILE_NEG:
        r = (int64_t)(0 - x);
        break;
    case TILE_NOT:
        r = !a;
        break;
    case TILE_ABS:
        r = a < 0 ? (int64_t)(0 - x) : a;
        break;
    case TILE_ADD:
        r = (int64_t)(x + y);
        break;
    case TILE_SUB:
        r = (int64_t)(x - y);
        break;
    case TILE_MUL:
        r = (int64_t)(x * y);
        break;
    case TILE_DIV:
        r = floor_quotient(a, b);
        break;
    case TILE_MOD:
        r = b ? (int64_t)(x - (uint64_t)floor_quotient(a, b) * y) : 0;
        break;
    case TILE_CEIL_DIV:
        r = b ? (int64_t)((uint64_t)floor_quotient(a, b) + (b == -1 ? 0 : a % b != 0)) : 0;
        break;
    case TILE_MIN:
        r = a < b ? a : b;
        break;
    case TILE_MAX:
        r = a > b ? a : b;
        break;
    case TILE_AND:
    case TILE_BIT_AND:
        r = a & b;
        break;
    case TILE_OR:
    case TILE_BIT_OR:
        r = a | b;
        break;
    case TILE_BIT_XOR:
        r = a ^ b;
        break;
    case TILE_SHL:
        r = (int64_t)(x << b);
        break;
    case TILE_SHR:
        r = a >> b;
        break;
    case TILE_EQ:
        return (cell){.i = a == b};
    case TILE_NE:
        return (cell){.i = a != b};
    case TILE_LT:
        return (cell){.i = a < b};
    case TILE_LE:
        return (cell){.i = a <= b};
    case TILE_GT:
        return (cell){.i = a > b};
    case TILE_GE:
        return (cell){.i = a >= b};
    default:
        abort();
    }
    return (cell){.i = wrap_integer(n->type, r)};
}

static inline cell operate_float(const tile_node *n, double a, double b) {
    double r = 0;
    switch (n->op) {
    case TILE_NEG:
        r = -a;
        break;
    case TILE_ABS:
        r = fabs(a);
        break;
    case TILE_EXP:
        r = exp(a);
        break;
    case TILE_EXP2:
        r = exp2(a);
        break;
    case TILE_LOG:
        r = log(a);
        break;
    case TILE_LOG2:
        r = log2(a);
        break;
    case TILE_SIN:
        r = sin(a);
        break;
    case TILE_COS:
        r = cos(a);
        break;
    case TILE_TANH:
        r = tanh(a);
        break;
    case TILE_SQRT:
        r = sqrt(a);
        break;
    case TILE_RSQRT:
        r = 1.0 / sqrt(a);
        break;
    case TILE_FLOOR:
        r = floor(a);
        break;
    case TILE_CEIL:
        r = ceil(a);
        break;
    case TILE_ROUND:
        r = rint(a);
        break;
    case TILE_ADD:
        r = a + b;
        break;
    case TILE_SUB:
        r = a - b;
        break;
    case TILE_MUL:
        r = a * b;
        break;
    case TILE_DIV:
        r = a / b;
        break;
    case TILE_MIN:
        r = fmin(a, b);
        break;
    case TILE_MAX:
        r = fmax(a, b);
        break;
    case TILE_EQ:
        return (cell){.i = a == b};
    case TILE_NE:
        return (cell){.i = a != b};
    case TILE_LT:
        return (cell){.i = a < b};
    case TILE_LE:
        return (cell){.i = a <= b};
    case TILE_GT:
        return (cell){.i = a > b};
    case TILE_GE:
        return (cell){.i = a >= b};
    default:
        abort();
    }
    return (cell){.f = n->type->scalar.bits == 32 ? (double)(float)r : r};
}

/* The limits of an integer type; u64 as far as int64_t goes. */
static inline cell cast_cell(cell v, const tile_format *from, const tile_format *to) {
    const tile_scalar t = to->scalar;
    if (cell_is_float(to))
        return (cell){.f = tile_scalar_decode(t, tile_scalar_encode(t, cell_is_float(from) ? v.f : (double)v.i))};
    const int64_t high = t.kind == TILE_BOOL ? 1
                         : t.bits == 64      ? INT64_MAX
                                             : ((int64_t)1 << (t.bits - (t.kind == TILE_INT))) - 1;
    const int64_t low = t.kind == TILE_INT ? -high - 1 : 0;
    if (cell_is_float(from)) {
        const double r = rint(v.f);
        return (cell){.i = isnan(r)      ? 0
                           : r >= 0x1p63 ? high
                           : r < -0x1p63 ? low
                                         : max_i64(low, min_i64(high, (int64_t)r))};
    }
    return (cell){.i = max_i64(low, min_i64(high, v.i))};
}

/* ---- tensors ---- */

typedef struct block_values {
    const uint8_t *block;
    float values[1024];
} block_values; /* the block decoded last */

/* `last` may be NULL where there are no blocks. */
static inline cell load_cell(const tile_format *t, const void *data, int64_t i, block_values *last) {
    if (tile_format_is_block(t)) {
        const uint8_t *block = (const uint8_t *)data + i / t->block * (t->bits / 8);
        if (block != last->block) tile_format_decode(t, block, last->values);
        last->block = block;
        return (cell){.f = (double)last->values[i % t->block]};
    }
    if (t->scalar.bits == 64 && t->scalar.kind != TILE_FLOAT) {
        cell c;
        memcpy(&c.i, (const char *)data + 8 * i, 8);
        return c;
    }
    const double v = tile_format_get(t, data, i);
    return cell_is_float(t) ? (cell){.f = v} : (cell){.i = (int64_t)v};
}

static inline void store_cell(const tile_format *t, void *data, int64_t i, cell c) {
    if (t->scalar.bits == 64 && t->scalar.kind != TILE_FLOAT)
        memcpy((char *)data + 8 * i, &c.i, 8);
    else if (t->bits == 8 && cell_is_float(t) && isinf(c.f))
        ((uint8_t *)data)[i] = c.f > 0 ? 0x7c : 0xfc; /* e5m2's; a cast would saturate */
    else
        tile_format_set(t, data, i, cell_is_float(t) ? c.f : (double)c.i);
}

static inline tile evaluate(interpreter *p, const tile_node *n);
static inline cell evaluate_scalar(interpreter *p, const tile_node *n) { return evaluate(p, n).cells[0]; }

/* Where the elements of a slice are: offsets in elements, -1 for what is out of range. */
static inline int64_t *slice_offsets(interpreter *p, const tile_access *access, const tile_shape *shape) {
    const tile_param *q = &p->op->params[access->param];
    const cpu_tensor *tensor = &p->tensors[q->ordinal];
    const int64_t count = tile_shape_count(shape);
    int64_t *offsets = interpreter_alloc(p, (size_t)count * sizeof *offsets), extent[TILE_RANK], at[TILE_RANK];
    tile starts[TILE_RANK];
    for (int d = 0; d < access->rank; d++) {
        extent[d] = min_i64(tensor->extent[d], evaluate_scalar(p, q->extent[d]).i);
        if (access->item[d].limit) extent[d] = min_i64(extent[d], evaluate_scalar(p, access->item[d].limit).i);
        starts[d] = evaluate(p, access->item[d].start);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = 0;
        bool inside = true;
        tile_unravel(shape, i, at);
        for (int d = 0, t = 0; d < access->rank; d++) {
            int64_t c = starts[d].cells[0].i;
            if (access->item[d].kind == TILE_ITEM_RANGE) c += at[t++];
            if (access->item[d].kind == TILE_ITEM_GATHER) c = starts[d].cells[at[t++]].i;
            inside &= c >= 0 && c < extent[d];
            offset += c * tensor->stride[d];
        }
        offsets[i] = inside ? offset : -1;
    }
    return offsets;
}

/* ---- nodes ---- */

static inline tile evaluate_reduce(interpreter *p, const tile_node *n) {
    const tile a = evaluate(p, n->a);
    tile out = tile_new(p, &n->shape, n->type);
    const bool is_float = cell_is_float(a.type);
    for (int64_t i = 0; i < out.count; i++) {
        int64_t at[TILE_RANK], best = 0;
        bool found = false;
        cell sum = {.i = 0}, most = {.i = 0};
        if (is_float) sum.f = 0;
        tile_unravel(&out.shape, i, at);
        for (int64_t k = 0; k < a.shape.extent[n->index]; k++) {
            at[n->index] = k;
            const cell v = a.cells[tile_ravel(&a.shape, at)];
            if (is_float)
                sum.f += v.f;
            else
                sum.i = (int64_t)((uint64_t)sum.i + (uint64_t)v.i);
            if (is_float && isnan(v.f)) continue;
            const bool less = n->op == TILE_REDUCE_MIN;
            const bool wins =
                !found || (is_float ? (less ? v.f < most.f : v.f > most.f) : (less ? v.i < most.i : v.i > most.i));
            if (wins) most = v, best = k;
            found = true;
        }
        if (!found && is_float) most.f = n->op == TILE_REDUCE_MIN ? (double)INFINITY : -(double)INFINITY;
        if (n->op == TILE_ARGMAX)
            out.cells[i].i = best;
        else if (n->op != TILE_SUM)
            out.cells[i] = most;
        else if (is_float)
            out.cells[i].f = n->type->scalar.bits == 32 ? (double)(float)sum.f : sum.f;
        else
            out.cells[i].i = wrap_integer(n->type, sum.i);
    }
    return out;
}

static inline tile evaluate_dot(interpreter *p, const tile_node *n) {
    const tile a = evaluate(p, n->a), b = evaluate(p, n->b);
    tile out = tile_new(p, &n->shape, n->type);
    const int64_t rows = n->shape.extent[0], columns = n->shape.extent[1], depth = a.shape.extent[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            int64_t whole = 0;
            for (int64_t k = 0; k < depth; k++) {
                if (cell_is_float(a.type))
                    sum += (double)(float)a.cells[i * depth + k].f * (double)(float)b.cells[k * columns + j].f;
                else
                    whole += a.cells[i * depth + k].i * b.cells[k * columns + j].i;
            }
            if (cell_is_float(n->type))
                out.cells[i * columns + j].f = (double)(float)sum;
            else
                out.cells[i * columns + j].i = wrap_integer(n->type, whole);
        }
    return out;
}

static inline cell bits_cell(cell x, const tile_format *to) {
    float f = (float)x.f;
    uint32_t u = (uint32_t)x.i;
    memcpy(cell_is_float(to) ? (void *)&f : (void *)&u, cell_is_float(to) ? (void *)&u : (void *)&f, 4);
    return cell_is_float(to) ? (cell){.f = f} : (cell){.i = u};
}

static inline tile evaluate_each(interpreter *p, const tile_node *n) {
    tile out = tile_new(p, &n->shape, n->type);
    const tile a = evaluate(p, n->a), b = n->b ? evaluate(p, n->b) : a, c = n->c ? evaluate(p, n->c) : a;
    for (int64_t i = 0; i < out.count; i++) {
        int64_t at[TILE_RANK];
        tile_unravel(&out.shape, i, at);
        const cell x = tile_broadcast(&a, at, out.shape.rank);
        if (n->kind == TILE_BROADCAST)
            out.cells[i] = x;
        else if (n->kind == TILE_CAST)
            out.cells[i] = cast_cell(x, n->a->type, n->type);
        else {
            const cell y = tile_broadcast(&b, at, out.shape.rank);
            if (n->kind == TILE_SELECT)
                out.cells[i] = x.i ? y : tile_broadcast(&c, at, out.shape.rank);
            else if (n->op == TILE_BITS)
                out.cells[i] = bits_cell(x, n->type);
            else
                out.cells[i] = cell_is_float(n->a->type) ? operate_float(n, x.f, y.f) : operate_integer(n, x.i, y.i);
        }
    }
    return out;
}

static inline tile evaluate_moved(interpreter *p, const tile_node *n) {
    tile out = tile_new(p, &n->shape, n->type);
    if (n->kind == TILE_CONCAT) {
        int64_t begin = 0;
        for (int k = 0; k < n->count; k++) {
            const tile part = evaluate(p, n->list[k]);
            for (int64_t i = 0; i < part.count; i++) {
                int64_t at[TILE_RANK];
                tile_unravel(&part.shape, i, at);
                at[n->index] += begin;
                out.cells[tile_ravel(&out.shape, at)] = part.cells[i];
            }
            begin += part.shape.extent[n->index];
        }
        return out;
    }
    const tile a = evaluate(p, n->a);
    for (int64_t i = 0; i < out.count; i++) {
        int64_t at[TILE_RANK], from[TILE_RANK];
        tile_unravel(&out.shape, i, at);
        if (n->kind == TILE_RESHAPE) {
            out.cells[i] = a.cells[i];
            continue;
        }
        const int r = a.shape.rank;
        if (n->kind == TILE_TRANSPOSE) {
            for (int d = 0; d < r; d++) from[d] = at[d];
            from[r - 1] = at[r - 2];
            from[r - 2] = at[r - 1];
        } else
            for (int d = 0, t = 0; d < r; d++)
                from[d] =
                    n->access->item[d].start->value.i + (n->access->item[d].kind == TILE_ITEM_POINT ? 0 : at[t++]);
        out.cells[i] = a.cells[tile_ravel(&a.shape, from)];
    }
    return out;
}

static inline tile evaluate(interpreter *p, const tile_node *n) {
    tile out;
    switch (n->kind) {
    case TILE_VAR:
        return p->variables[n->index];
    case TILE_ELEMENTWISE:
    case TILE_SELECT:
    case TILE_CAST:
    case TILE_BROADCAST:
        return evaluate_each(p, n);
    case TILE_REDUCE:
        return evaluate_reduce(p, n);
    case TILE_DOT:
        return evaluate_dot(p, n);
    case TILE_TRANSPOSE:
    case TILE_RESHAPE:
    case TILE_PART:
    case TILE_CONCAT:
        return evaluate_moved(p, n);
    case TILE_LOAD: {
        const int64_t *offsets = slice_offsets(p, n->access, &n->shape);
        const void *data = p->tensors[p->op->params[n->access->param].ordinal].data;
        block_values last = {.block = NULL};
        out = tile_new(p, &n->shape, n->type);
        for (int64_t i = 0; i < out.count; i++)
            if (offsets[i] >= 0)
                out.cells[i] = load_cell(n->type, data, offsets[i], &last);
            else if (cell_is_float(n->type))
                out.cells[i].f = 0;
        return out;
    }
    case TILE_IOTA:
        out = tile_new(p, &n->shape, n->type);
        for (int64_t i = 0; i < out.count; i++) out.cells[i].i = i;
        return out;
    default:
        break;
    }
    out = tile_new(p, &n->shape, n->type);
    switch (n->kind) {
    case TILE_CONST:
        if (cell_is_float(n->type))
            out.cells[0].f = n->value.f;
        else
            out.cells[0].i = n->value.i;
        break;
    case TILE_GRID:
        out.cells[0].i = p->index[n->index];
        break;
    case TILE_LOOP:
        out.cells[0].i = p->loops[n->index];
        break;
    case TILE_EXTENT: {
        const tile_param *q = &p->op->params[p->op->extent_source[n->index].param];
        out.cells[0].i = p->tensors[q->ordinal].extent[p->op->extent_source[n->index].dimension];
        break;
    }
    case TILE_LIVE:
        out.cells[0].i = p->lives[p->op->params[n->index].ordinal];
        break;
    case TILE_ARG:
        if (cell_is_float(n->type))
            out.cells[0].f = (double)p->args[p->op->params[n->index].ordinal].f;
        else
            out.cells[0].i = p->args[p->op->params[n->index].ordinal].i;
        break;
    default:
        abort();
    }
    return out;
}

/* ---- statements ---- */

static inline void execute(interpreter *p, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_ASSIGN) {
            const tile value = evaluate(p, s->value);
            tile copy = tile_new(p, &p->op->variables[s->index].shape, p->op->variables[s->index].type);
            for (int64_t i = 0; i < copy.count; i++) {
                int64_t at[TILE_RANK];
                tile_unravel(&copy.shape, i, at);
                copy.cells[i] = tile_broadcast(&value, at, copy.shape.rank);
            }
            p->variables[s->index] = copy;
        } else if (s->kind == TILE_STORE) {
            const tile_param *q = &p->op->params[s->access->param];
            const int64_t *offsets = slice_offsets(p, s->access, &s->shape);
            void *data = p->tensors[q->ordinal].data;
            const tile value = evaluate(p, s->value);
            for (int64_t i = 0; i < tile_shape_count(&s->shape); i++) {
                int64_t at[TILE_RANK];
                tile_unravel(&s->shape, i, at);
                cell v = tile_broadcast(&value, at, s->shape.rank);
                if (offsets[i] < 0) continue;
                if (s->adds) {
                    const cell old = load_cell(q->type, data, offsets[i], NULL);
                    if (!cell_is_float(q->type))
                        v.i = wrap_integer(q->type, (int64_t)((uint64_t)v.i + (uint64_t)old.i));
                    else
                        v.f = q->type->scalar.bits == 32 ? (double)(float)(v.f + old.f) : v.f + old.f;
                }
                store_cell(q->type, data, offsets[i], v);
            }
        } else if (s->kind == TILE_FOR) {
            const int64_t begin = evaluate_scalar(p, s->begin).i, end = evaluate_scalar(p, s->end).i;
            for (p->loops[s->index] = begin; p->loops[s->index] < end; p->loops[s->index]++) execute(p, s->body);
        } else
            execute(p, evaluate_scalar(p, s->value).i ? s->body : s->otherwise);
    }
}

/* Runs all instructions of the op. */
static inline void tile_interpret(const tile_op *op, const cpu_tensor *tensors, const cpu_arg *args,
                                  const int32_t *lives) {
    interpreter p = {.op = op, .tensors = tensors, .args = args, .lives = lives};
    p.variables = calloc((size_t)op->variable_count + 1, sizeof *p.variables);
    int64_t count[TILE_AXES], total = 1;
    for (int a = 0; a < op->axis_total; a++) total *= count[a] = evaluate_scalar(&p, op->axis_count[a]).i;
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i;
        for (int a = op->axis_total - 1; a >= 0; a--) p.index[a] = rest % count[a], rest /= count[a];
        execute(&p, op->body);
        for (size_t b = 0; b < p.block_count; b++) free(p.blocks[b]);
        p.block_count = 0;
    }
    for (size_t b = 0; b < p.block_count; b++) free(p.blocks[b]);
    free(p.blocks);
    free(p.variables);
}

#endif
