/* The element of a tile as a C expression. */
#include "emit/emit_internal.h"

#include <inttypes.h>
#include <stdio.h>

enum { LONG_TEXT = 100 }; /* longer expressions get a name of their own */

void emit_nest_line(emit_nest *x, int level, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *line = arena_alloc(x->e->memory, (size_t)length + 1);
    vsnprintf(line, (size_t)length + 1, format, again);
    va_end(again);
    if (level < 0) {
        emit_print(x->e, "%s", line);
        return;
    }
    emit_line *l = ARENA_NEW(x->e->memory, emit_line);
    l->text = line;
    *x->last[level] = l;
    x->last[level] = &l->next;
}

const emit_value *emit_known(const emit_nest *x, const char *key) {
    for (size_t i = 0; i < x->known_count; i++)
        if (!strcmp(x->known[i].key, key)) return &x->known[i].value;
    return NULL;
}

void emit_know(emit_nest *x, const char *key, emit_value v) {
    *ARENA_PUSH(x->e->memory, x->known, x->known_count, x->known_capacity) = (emit_hoisted){key, v};
}

emit_value emit_hoist(emit_nest *x, emit_value v, const char *c_type, const char *base) {
    emit *e = x->e;
    if (v.atom) return v;
    const char *key = arena_printf(e->memory, "%s %s", c_type, v.text);
    const emit_value *known = emit_known(x, key);
    if (known) return *known;
    /* What is declared at the level of a loop may have its own name there; in front of the nest there may be others. */
    const char *name = base && v.level >= 0 && !emit_known(x, base) ? base : emit_invent(e, base ? base : "t");
    if (base) emit_know(x, base, v);
    emit_nest_line(x, v.level, "const %s %s = %s;", c_type, name, emit_bare(e->memory, v.text));
    const emit_value named = {name, v.level, true};
    emit_know(x, key, named);
    return named;
}

static int max_level(int a, int b) { return a > b ? a : b; }

/* An operand of an expression of that level: what changes less often is computed further out. */
static const char *operand_text(emit_nest *x, emit_value v, int level, const tile_format *type) {
    return v.level < level || strlen(v.text) > LONG_TEXT ? emit_hoist(x, v, emit_c_type(type), NULL).text : v.text;
}

static emit_value atom(const char *name) { return (emit_value){name, -1, true}; }

emit_value emit_array_element(emit_nest *x, const emit_array *array, const emit_index *at) {
    const emit_value i = emit_linear(x, &array->shape, at);
    return (emit_value){arena_printf(x->e->memory, "%s[%s]", array->name, emit_bare(x->e->memory, i.text)), i.level,
                        false};
}

static emit_value variable(emit_nest *x, const tile_node *n, const emit_index *at) {
    emit *e = x->e;
    const emit_variable *v = &e->variables[n->index];
    if (v->mode == EMIT_SCALAR) return atom(v->array.name);
    if (v->mode == EMIT_ARRAY) return emit_array_element(x, &v->array, at);
    const emit_value value = emit_element(x, v->value, at);
    switch (v->value->kind) { /* what only moves elements needs no name */
    case TILE_VAR:
    case TILE_TRANSPOSE:
    case TILE_RESHAPE:
    case TILE_PART:
        return value;
    default:
        return emit_hoist(x, value, emit_c_type(n->type), emit_safe_name(e->memory, e->op->variables[n->index].name));
    }
}

/* Of elementwise nodes. */
static emit_value operate(emit_nest *x, const tile_node *n, const emit_index *at) {
    emit *e = x->e;
    const tile_node *const operands[3] = {n->a, n->b, n->c};
    emit_value v[3];
    const char *text_of[3] = {NULL};
    int level = -1;
    for (int i = 0; i < 3 && operands[i]; i++) {
        emit_index below[TILE_RANK];
        emit_operand_index(n, i, at, below);
        v[i] = emit_element(x, operands[i], below);
        level = max_level(level, v[i].level);
    }
    for (int i = 0; i < 3 && operands[i]; i++) text_of[i] = operand_text(x, v[i], level, operands[i]->type);
    const char *out = n->kind == TILE_CAST ? emit_cast(e->memory, text_of[0], n->a->type, n->type)
                      : n->kind == TILE_SELECT
                          ? arena_printf(e->memory, "(%s ? %s : %s)", text_of[0], text_of[1], text_of[2])
                          : emit_operate(e, n, text_of[0], text_of[1]);
    return (emit_value){out, level, out == text_of[0] && v[0].atom};
}

static emit_value moved(emit_nest *x, const tile_node *n, const emit_index *at) {
    emit_index below[TILE_RANK];
    emit_operand_index(n, 0, at, below);
    return emit_element(x, n->a, below);
}

/* An element of a node that is computed as a whole before the nest. */
static emit_value of_array(emit_nest *x, const tile_node *n, const emit_index *at) {
    emit_limit limits[TILE_RANK];
    emit_index_limits(x, &n->shape, at, limits);
    const emit_array array = emit_materialise(x->e, n, limits);
    return emit_array_element(x, &array, at);
}

static bool is_dense(const emit *e, const tile_node *n) {
    return (n->kind == TILE_VAR && e->variables[n->index].mode == EMIT_ARRAY) || n->kind == TILE_REDUCE ||
           n->kind == TILE_DOT;
}

static emit_value reshaped(emit_nest *x, const tile_node *n, const emit_index *at) {
    emit *e = x->e;
    emit_limit limits[TILE_RANK], below[TILE_RANK];
    emit_index_limits(x, &n->shape, at, limits);
    const tile_node *from = n;
    do { /* down to what is not a reshape */
        emit_operand_limits(from, 0, limits, below);
        memcpy(limits, below, sizeof limits);
        from = from->a;
        while (from->kind == TILE_VAR && e->variables[from->index].mode == EMIT_INLINE)
            from = e->variables[from->index].value;
    } while (from->kind == TILE_RESHAPE);
    emit_index index[TILE_RANK];
    const bool dense = is_dense(e, from) || emit_temporary_of(e, from, limits);
    if (!dense && emit_reshape_index(x, n, at, index)) return emit_element(x, n->a, index);
    const emit_array array = emit_materialise(e, from, limits);
    const emit_value i = emit_linear(x, &n->shape, at);
    return (emit_value){arena_printf(e->memory, "%s[%s]", array.name, emit_bare(e->memory, i.text)), i.level, false};
}

static emit_value concatenated(emit_nest *x, const tile_node *n, const emit_index *at) {
    const emit_index *along = &at[n->index];
    int64_t low, high, begin = 0;
    emit_index_range(x, along, n->shape.extent[n->index], &low, &high);
    for (int i = 0; i < n->count; i++) {
        const int64_t end = begin + n->list[i]->shape.extent[n->index];
        if (low >= begin && high < end && !along->text) {
            emit_index below[TILE_RANK];
            emit_operand_index(n, i, at, below);
            return emit_element(x, n->list[i], below);
        }
        begin = end;
    }
    return of_array(x, n, at);
}

emit_value emit_element(emit_nest *x, const tile_node *n, const emit_index *at) {
    emit *e = x->e;
    arena *m = e->memory;
    if (n->shape.rank) {
        emit_limit limits[TILE_RANK];
        emit_index_limits(x, &n->shape, at, limits);
        const emit_array *temporary = emit_temporary_of(e, n, limits);
        if (temporary) return emit_array_element(x, temporary, at);
    }
    switch (n->kind) {
    case TILE_CONST:
        return atom(emit_literal(m, n));
    case TILE_GRID:
        e->used_axis[n->index] = true;
        return atom(emit_safe_name(m, e->op->axis_names[n->index]));
    case TILE_LOOP:
        return atom(e->loop_names[n->index]);
    case TILE_EXTENT:
        e->used_extent[n->index] = true;
        return atom(emit_safe_name(m, e->op->extent_names[n->index]));
    case TILE_LIVE:
    case TILE_ARG:
        e->used_param[n->index] = true;
        return atom(emit_safe_name(m, e->op->params[n->index].name));
    case TILE_VAR:
        return variable(x, n, at);
    case TILE_LOAD:
        return emit_load(x, n, at);
    case TILE_ELEMENTWISE:
    case TILE_SELECT:
    case TILE_CAST:
        return operate(x, n, at);
    case TILE_REDUCE:
    case TILE_DOT:
        return of_array(x, n, at);
    case TILE_TRANSPOSE:
    case TILE_BROADCAST:
    case TILE_PART:
        return moved(x, n, at);
    case TILE_RESHAPE:
        return reshaped(x, n, at);
    case TILE_CONCAT:
        return concatenated(x, n, at);
    case TILE_IOTA: {
        const char *i = emit_index_text(x, &at[0]);
        const int level = emit_index_level(&at[0]);
        return (emit_value){level < 0 && !at[0].text ? i : arena_printf(m, "(int32_t)%s", i), level,
                            level < 0 && !at[0].text};
    }
    default:
        emit_unsupported(e, n, "this expression");
        return atom("0");
    }
}

const char *emit_scalar(emit *e, const tile_node *n) {
    emit_nest x = {.e = e, .inner = -1};
    return emit_element(&x, n, NULL).text;
}
