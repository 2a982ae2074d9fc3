/* For tests of bound programs: a walker that knows the rules of tile.h on its own and checks an op as a tree, and ways
 * to bind a text. Every op that is bound here is also printed, bound again from what was printed, and bound again from
 * its own text. */
#ifndef BOUND_OP_H
#define BOUND_OP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tile/tile.h"

/* ---- the walker ---- */

typedef struct seen {
    const tile_op *op;
    int uses[2048], assignments[2048];
    bool declared[2048];
} seen;

static inline bool is(const tile_format *f, const char *name) { return !strcmp(f->name, name); }
static inline bool is_block(const tile_format *f) { return f->body != NULL; }
static inline bool is_arithmetic(const tile_format *f) {
    return is(f, "f32") || is(f, "f64") || is(f, "i32") || is(f, "u32") || is(f, "i64");
}

static inline void check_node(seen *s, const tile_node *n);

static inline void check_access(seen *s, const tile_access *a, const tile_shape *shape, const tile_shape *parted) {
    int rank = 0;
    for (int d = 0; d < a->rank; d++) {
        const tile_item *i = &a->item[d];
        check_node(s, i->start);
        assert_true(i->size >= 1);
        if (i->limit) {
            check_node(s, i->limit);
            assert_int_equal(i->kind, TILE_ITEM_RANGE);
            assert_true(is(i->limit->type, "i64") && i->limit->shape.rank == 0);
        }
        if (i->kind == TILE_ITEM_GATHER) {
            assert_null(parted);
            assert_int_equal(i->start->shape.rank, 1);
            assert_int_equal(i->start->shape.extent[0], i->size);
        } else {
            assert_true(is(i->start->type, "i64") && i->start->shape.rank == 0);
        }
        if (parted) {
            assert_int_equal(i->start->kind, TILE_CONST);
            assert_true(i->start->value.i >= 0 && i->start->value.i + i->size <= parted->extent[d]);
        }
        if (i->kind == TILE_ITEM_POINT)
            assert_int_equal(i->size, 1);
        else
            assert_int_equal(shape->extent[rank++], i->size);
    }
    assert_int_equal(rank, shape->rank);
    if (parted) {
        assert_int_equal(a->param, -1);
        assert_int_equal(a->rank, parted->rank);
        return;
    }
    const tile_param *p = &s->op->params[a->param];
    assert_int_equal(a->rank, p->rank);
    if (is_block(p->type)) assert_int_equal(a->item[a->rank - 1].size % p->type->block, 0);
}

/* The extent that operands of shapes a and b have d places from the right, or -1. */
static inline int64_t stretched(const tile_shape *a, const tile_shape *b, int d) {
    const int64_t x = d < a->rank ? a->extent[a->rank - 1 - d] : 1, y = d < b->rank ? b->extent[b->rank - 1 - d] : 1;
    return x == y || y == 1 ? x : x == 1 ? y : -1;
}

static inline void check_broadcast(const tile_node *n, const tile_node *a, const tile_node *b) {
    assert_int_equal(n->shape.rank, a->shape.rank > b->shape.rank ? a->shape.rank : b->shape.rank);
    for (int d = 0; d < n->shape.rank; d++)
        assert_int_equal(n->shape.extent[n->shape.rank - 1 - d], stretched(&a->shape, &b->shape, d));
}

static inline void assert_fits(const tile_shape *small, const tile_shape *wide) {
    assert_true(small->rank <= wide->rank);
    for (int d = 0; d < wide->rank; d++) assert_int_equal(stretched(small, wide, d), wide->extent[wide->rank - 1 - d]);
}

static inline void assert_same_shape(const tile_shape *a, const tile_shape *b) {
    assert_int_equal(a->rank, b->rank);
    for (int d = 0; d < a->rank; d++) assert_int_equal(a->extent[d], b->extent[d]);
}

static inline void check_node(seen *s, const tile_node *n) {
    assert_non_null(n);
    assert_non_null(n->type);
    assert_true(tile_format_scalar(n->type->name, strlen(n->type->name)) == n->type ||
                is_block(n->type)); /* no literal types left */
    assert_true(n->shape.rank >= 0 && n->shape.rank <= TILE_RANK && n->line >= 1 && n->column >= 1);
    int64_t count = 1;
    for (int d = 0; d < n->shape.rank; d++) count *= n->shape.extent[d];
    assert_true(count >= 1 && count <= 1 << 24);
    assert_int_equal(tile_shape_count(&n->shape), count);
    if (is_block(n->type))
        assert_true(n->kind == TILE_LOAD || n->kind == TILE_TRANSPOSE || n->kind == TILE_RESHAPE ||
                    n->kind == TILE_PART || n->kind == TILE_VAR);
    if (n->a) check_node(s, n->a);
    if (n->b) check_node(s, n->b);
    if (n->c) check_node(s, n->c);
    for (int i = 0; i < n->count; i++) check_node(s, n->list[i]);
    const tile_op *op = s->op;
    switch (n->kind) {
    case TILE_CONST:
        assert_int_equal(n->shape.rank, 0);
        break;
    case TILE_GRID:
        assert_true(is(n->type, "i64") && n->index < op->axis_total);
        break;
    case TILE_LOOP:
        assert_true(is(n->type, "i64") && n->index < op->loop_count);
        break;
    case TILE_EXTENT:
        assert_true(is(n->type, "i64") && n->index < op->extent_count);
        break;
    case TILE_LIVE:
        assert_true(is(n->type, "i64") && op->params[n->index].kind == TILE_PARAM_LIVE);
        break;
    case TILE_ARG:
        assert_int_equal(op->params[n->index].kind, TILE_PARAM_ARG);
        assert_string_equal(n->type->name, is(op->params[n->index].type, "f32") ? "f32" : "i64");
        break;
    case TILE_VAR:
        assert_true(n->index < op->variable_count && s->declared[n->index]);
        assert_ptr_equal(n->type, op->variables[n->index].type);
        assert_same_shape(&n->shape, &op->variables[n->index].shape);
        s->uses[n->index]++;
        break;
    case TILE_LOAD:
        assert_ptr_equal(n->type, op->params[n->access->param].type);
        assert_int_not_equal(op->params[n->access->param].kind, TILE_OUT);
        check_access(s, n->access, &n->shape, NULL);
        break;
    case TILE_ELEMENTWISE: {
        const bool compares = n->op >= TILE_EQ && n->op <= TILE_GE,
                   logical = n->op == TILE_AND || n->op == TILE_OR || n->op == TILE_NOT;
        assert_int_equal(n->b != NULL, n->op >= TILE_ADD);
        if (n->b) {
            assert_ptr_equal(n->a->type, n->b->type);
            check_broadcast(n, n->a, n->b);
        } else {
            assert_same_shape(&n->shape, &n->a->shape);
        }
        if (n->op == TILE_BITS) {
            assert_string_equal(n->type->name, is(n->a->type, "f32") ? "u32" : "f32");
            assert_true(is(n->a->type, "f32") || is(n->a->type, "u32"));
            break;
        }
        if (compares || logical)
            assert_string_equal(n->type->name, "bool");
        else
            assert_ptr_equal(n->type, n->a->type);
        assert_true(logical ? is(n->a->type, "bool")
                            : is_arithmetic(n->a->type) || (compares && is(n->a->type, "bool")));
        break;
    }
    case TILE_SELECT:
        assert_string_equal(n->a->type->name, "bool");
        assert_true(n->type == n->b->type && n->type == n->c->type);
        for (int d = 0; d < n->shape.rank; d++) {
            const int64_t x = stretched(&n->b->shape, &n->c->shape, d);
            const tile_shape one = {1, {x}};
            const int64_t y = d < n->a->shape.rank ? n->a->shape.extent[n->a->shape.rank - 1 - d] : 1;
            assert_int_equal(n->shape.extent[n->shape.rank - 1 - d], stretched(&one, &(tile_shape){1, {y}}, 0));
        }
        break;
    case TILE_CAST:
        assert_ptr_not_equal(n->type, n->a->type);
        assert_same_shape(&n->shape, &n->a->shape);
        if (is_block(n->a->type)) assert_string_equal(n->type->name, "f32");
        break;
    case TILE_REDUCE:
        for (int d = 0; d < n->shape.rank; d++)
            assert_int_equal(n->shape.extent[d], d == n->index ? 1 : n->a->shape.extent[d]);
        assert_true(is_arithmetic(n->a->type));
        if (n->op == TILE_ARGMAX)
            assert_string_equal(n->type->name, "i32");
        else
            assert_ptr_equal(n->type, n->a->type);
        break;
    case TILE_DOT:
        assert_true(n->shape.rank == 2 && n->a->shape.rank == 2 && n->b->shape.rank == 2 &&
                    n->a->shape.extent[1] == n->b->shape.extent[0]);
        assert_true(n->shape.extent[0] == n->a->shape.extent[0] && n->shape.extent[1] == n->b->shape.extent[1]);
        break;
    case TILE_TRANSPOSE:
        assert_int_equal(n->shape.extent[n->shape.rank - 1], n->a->shape.extent[n->shape.rank - 2]);
        assert_int_equal(n->shape.extent[n->shape.rank - 2], n->a->shape.extent[n->shape.rank - 1]);
        break;
    case TILE_RESHAPE:
        assert_int_equal(count, tile_shape_count(&n->a->shape));
        break;
    case TILE_BROADCAST:
        assert_ptr_equal(n->type, n->a->type);
        assert_fits(&n->a->shape, &n->shape);
        break;
    case TILE_CONCAT: {
        int64_t sum = 0;
        for (int i = 0; i < n->count; i++) sum += n->list[i]->shape.extent[n->index];
        assert_int_equal(sum, n->shape.extent[n->index]);
        break;
    }
    case TILE_PART:
        check_access(s, n->access, &n->shape, &n->a->shape);
        break;
    case TILE_IOTA:
        assert_true(is(n->type, "i32") && n->shape.rank == 1);
        break;
    default:
        fail_msg("kind %d does not belong into a program", n->kind);
    }
}

static inline void check_statements(seen *s, const tile_statement *st) {
    for (; st; st = st->next) {
        switch (st->kind) {
        case TILE_ASSIGN: {
            check_node(s, st->value);
            const tile_variable *v = &s->op->variables[st->index];
            assert_int_equal(st->declares, !s->declared[st->index]);
            s->declared[st->index] = true;
            s->assignments[st->index]++;
            assert_ptr_equal(v->type, st->value->type);
            assert_same_shape(&v->shape, &st->value->shape);
            break;
        }
        case TILE_STORE: {
            const tile_param *p = &s->op->params[st->access->param];
            check_node(s, st->value);
            check_access(s, st->access, &st->shape, NULL);
            assert_ptr_equal(st->value->type, p->type);
            assert_fits(&st->value->shape, &st->shape);
            assert_true(st->adds ? p->kind == TILE_INOUT : p->kind == TILE_INOUT || p->kind == TILE_OUT);
            break;
        }
        case TILE_FOR:
            check_node(s, st->begin);
            check_node(s, st->end);
            assert_true(is(st->begin->type, "i64") && is(st->end->type, "i64") && st->begin->shape.rank == 0 &&
                        st->end->shape.rank == 0);
            check_statements(s, st->body);
            break;
        case TILE_IF:
            check_node(s, st->value);
            assert_true(is(st->value->type, "bool") && st->value->shape.rank == 0);
            check_statements(s, st->body);
            check_statements(s, st->otherwise);
            break;
        case TILE_ACTION: /* level 2: test_level2.c */
            check_statements(s, st->body);
            break;
        }
    }
}

static inline void check_op(const tile_op *op) {
    seen *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->op = op;
    for (int i = 0; i < op->param_count; i++)
        for (int d = 0; d < op->params[i].rank; d++) check_node(s, op->params[i].extent[d]);
    for (int i = 0; i < op->axis_total; i++) check_node(s, op->axis_count[i]);
    check_statements(s, op->body);
    for (int i = 0; i < op->variable_count; i++) {
        assert_int_equal(s->uses[i], op->variables[i].uses);
        assert_int_equal(s->assignments[i], op->variables[i].assignments);
    }
    free(s);
}

/* ---- binding, and binding again ---- */

static inline mt_status bind_text(arena *a, const tile_op **op, const char *source, const tile_constant *constants,
                                  size_t count, tile_diagnostics *d, mt_error *e) {
    tile_file *f;
    mt_status status = tile_parse(&f, "t.tile", source, strlen(source), d, e);
    *op = NULL;
    if (status) return status;
    status = tile_bind(a, op, f, tile_file_name(f, 0), constants, count, d, e);
    tile_file_free(f); /* the op must not need it */
    assert_int_equal(status == MT_OK, *op != NULL);
    return status;
}

static inline char *printed(const tile_op *op) {
    text t = {0};
    tile_print_op(&t, op);
    assert_false(t.failed);
    return t.data;
}

/* Checks an op, and that its text and its printed form mean the same. */
static inline void check_twice(const tile_op *op) {
    check_op(op);
    arena *a = arena_new();
    const tile_op *again;
    tile_diagnostics d = {0};
    char *shown = printed(op);

    /* Its own text, with its constants; types by name, as a stored program has them. */
    tile_file *f;
    if (tile_parse(&f, "again.tile", op->text, strlen(op->text), &d, NULL)) fail_msg("%s\n%s", op->text, d.text.data);
    tile_constant constants[TILE_CONSTANTS];
    for (int i = 0; i < op->constant_count; i++) {
        constants[i] = op->constants[i];
        for (size_t k = 0; k < tile_file_format_count(f) && constants[i].type; k++)
            if (is(tile_file_format(f, k), constants[i].type->name)) constants[i].type = tile_file_format(f, k);
    }
    if (tile_bind(a, &again, f, op->name, constants, (size_t)op->constant_count, &d, NULL))
        fail_msg("%s\n%s", op->text, d.text.data);
    assert_true(op->hash.low == again->hash.low && op->hash.high == again->hash.high);
    assert_string_equal(op->text, again->text);
    char *shown_again = printed(again);
    assert_string_equal(shown, shown_again);
    free(shown_again);
    tile_file_free(f);

    /* What is printed, behind the formats it uses. */
    text t = {0};
    const char *program = strncmp(op->text, "tile ", 5) ? strstr(op->text, "\ntile ") : op->text;
    text_append(&t, op->text, (size_t)(program - op->text));
    text_printf(&t, "\n%s", shown);
    if (bind_text(a, &again, t.data, NULL, 0, &d, NULL)) fail_msg("%s\n%s", shown, d.text.data);
    check_op(again);
    shown_again = printed(again);
    assert_string_equal(shown, shown_again);
    free(shown_again);
    text_free(&t);
    free(shown);
    arena_free(a);
}

#define HEAD                                                                                                           \
    "tile t[N = 8, T = bf16, W = q8_0](x: in f32[M, N], h: in T[M, N], ids: in i32[M], w: in W[N, 64], "               \
    "g: inout f32[M, N], gh: inout T[M, N], y: out f32[M, N], yi: out i32[M], u: in u8[M, N], big: in f64[M, N], "     \
    "e: arg f32, n: arg i32, pos: live i32, l: in i64[M], s8: in i8[M, N], m3: in f32[M, 4, N]) "                      \
    "over (m in M, k in 4) {\n"

static inline const tile_op *bind_body(arena *a, const char *body) {
    text t = {0};
    text_printf(&t, "%s%s\n}\n", HEAD, body);
    const tile_op *op;
    tile_diagnostics d = {0};
    if (bind_text(a, &op, t.data, NULL, 0, &d, NULL)) fail_msg("%s\n%s", body, d.text.data ? d.text.data : "");
    check_twice(op);
    text_free(&t);
    return op;
}

#endif
