/* The binder: types and shapes of expressions, folding, what is refused and where, and what makes an op. Every op that is bound
 * here is also checked as a tree by a walker that knows the rules of tile.h on its own, printed, bound again from what was
 * printed, and bound again from its own text. */
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

static bool is(const tile_format *f, const char *name) { return !strcmp(f->name, name); }
static bool is_block(const tile_format *f) { return f->body != NULL; }
static bool is_arithmetic(const tile_format *f) { return is(f, "f32") || is(f, "f64") || is(f, "i32") || is(f, "u32") || is(f, "i64"); }

static void check_node(seen *s, const tile_node *n);

static void check_access(seen *s, const tile_access *a, const tile_shape *shape, const tile_shape *parted) {
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
        if (i->kind == TILE_ITEM_POINT) assert_int_equal(i->size, 1);
        else assert_int_equal(shape->extent[rank++], i->size);
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
static int64_t stretched(const tile_shape *a, const tile_shape *b, int d) {
    const int64_t x = d < a->rank ? a->extent[a->rank - 1 - d] : 1, y = d < b->rank ? b->extent[b->rank - 1 - d] : 1;
    return x == y || y == 1 ? x : x == 1 ? y : -1;
}

static void check_broadcast(const tile_node *n, const tile_node *a, const tile_node *b) {
    assert_int_equal(n->shape.rank, a->shape.rank > b->shape.rank ? a->shape.rank : b->shape.rank);
    for (int d = 0; d < n->shape.rank; d++) assert_int_equal(n->shape.extent[n->shape.rank - 1 - d], stretched(&a->shape, &b->shape, d));
}

static void assert_fits(const tile_shape *small, const tile_shape *wide) {
    assert_true(small->rank <= wide->rank);
    for (int d = 0; d < wide->rank; d++) assert_int_equal(stretched(small, wide, d), wide->extent[wide->rank - 1 - d]);
}

static void assert_same_shape(const tile_shape *a, const tile_shape *b) {
    assert_int_equal(a->rank, b->rank);
    for (int d = 0; d < a->rank; d++) assert_int_equal(a->extent[d], b->extent[d]);
}

static void check_node(seen *s, const tile_node *n) {
    assert_non_null(n);
    assert_non_null(n->type);
    assert_true(tile_format_scalar(n->type->name, strlen(n->type->name)) == n->type || is_block(n->type)); /* no literal types left */
    assert_true(n->shape.rank >= 0 && n->shape.rank <= TILE_RANK && n->line >= 1 && n->column >= 1);
    int64_t count = 1;
    for (int d = 0; d < n->shape.rank; d++) count *= n->shape.extent[d];
    assert_true(count >= 1 && count <= 1 << 24);
    assert_int_equal(tile_shape_count(&n->shape), count);
    if (is_block(n->type))
        assert_true(n->kind == TILE_LOAD || n->kind == TILE_TRANSPOSE || n->kind == TILE_RESHAPE || n->kind == TILE_PART || n->kind == TILE_VAR);
    if (n->a) check_node(s, n->a);
    if (n->b) check_node(s, n->b);
    if (n->c) check_node(s, n->c);
    for (int i = 0; i < n->count; i++) check_node(s, n->list[i]);
    const tile_op *op = s->op;
    switch (n->kind) {
    case TILE_CONST: assert_int_equal(n->shape.rank, 0); break;
    case TILE_GRID: assert_true(is(n->type, "i64") && n->index < op->axis_total); break;
    case TILE_LOOP: assert_true(is(n->type, "i64") && n->index < op->loop_count); break;
    case TILE_EXTENT: assert_true(is(n->type, "i64") && n->index < op->extent_count); break;
    case TILE_LIVE: assert_true(is(n->type, "i64") && op->params[n->index].kind == TILE_PARAM_LIVE); break;
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
        const bool compares = n->op >= TILE_EQ && n->op <= TILE_GE, logical = n->op == TILE_AND || n->op == TILE_OR || n->op == TILE_NOT;
        assert_int_equal(n->b != NULL, n->op >= TILE_ADD);
        if (n->b) {
            assert_ptr_equal(n->a->type, n->b->type);
            check_broadcast(n, n->a, n->b);
        } else {
            assert_same_shape(&n->shape, &n->a->shape);
        }
        if (compares || logical) assert_string_equal(n->type->name, "bool");
        else assert_ptr_equal(n->type, n->a->type);
        assert_true(logical ? is(n->a->type, "bool") : is_arithmetic(n->a->type) || (compares && is(n->a->type, "bool")));
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
        for (int d = 0; d < n->shape.rank; d++) assert_int_equal(n->shape.extent[d], d == n->index ? 1 : n->a->shape.extent[d]);
        assert_true(is_arithmetic(n->a->type));
        if (n->op == TILE_ARGMAX) assert_string_equal(n->type->name, "i32");
        else assert_ptr_equal(n->type, n->a->type);
        break;
    case TILE_DOT:
        assert_true(n->shape.rank == 2 && n->a->shape.rank == 2 && n->b->shape.rank == 2 && n->a->shape.extent[1] == n->b->shape.extent[0]);
        assert_true(n->shape.extent[0] == n->a->shape.extent[0] && n->shape.extent[1] == n->b->shape.extent[1]);
        break;
    case TILE_TRANSPOSE:
        assert_int_equal(n->shape.extent[n->shape.rank - 1], n->a->shape.extent[n->shape.rank - 2]);
        assert_int_equal(n->shape.extent[n->shape.rank - 2], n->a->shape.extent[n->shape.rank - 1]);
        break;
    case TILE_RESHAPE: assert_int_equal(count, tile_shape_count(&n->a->shape)); break;
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
    case TILE_PART: check_access(s, n->access, &n->shape, &n->a->shape); break;
    case TILE_IOTA: assert_true(is(n->type, "i32") && n->shape.rank == 1); break;
    default: fail_msg("kind %d does not belong into a program", n->kind);
    }
}

static void check_statements(seen *s, const tile_statement *st) {
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
            assert_true(is(st->begin->type, "i64") && is(st->end->type, "i64") && st->begin->shape.rank == 0 && st->end->shape.rank == 0);
            check_statements(s, st->body);
            break;
        case TILE_IF:
            check_node(s, st->value);
            assert_true(is(st->value->type, "bool") && st->value->shape.rank == 0);
            check_statements(s, st->body);
            check_statements(s, st->otherwise);
            break;
        }
    }
}

static void check_op(const tile_op *op) {
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

static mt_status bind_text(arena *a, const tile_op **op, const char *source, const tile_constant *constants, size_t count,
                           tile_diagnostics *d, mt_error *e) {
    tile_file *f;
    mt_status status = tile_parse(&f, "t.tile", source, strlen(source), d, e);
    *op = NULL;
    if (status) return status;
    status = tile_bind(a, op, f, tile_file_name(f, 0), constants, count, d, e);
    tile_file_free(f); /* the op must not need it */
    assert_int_equal(status == MT_OK, *op != NULL);
    return status;
}

static char *printed(const tile_op *op) {
    text t = {0};
    tile_print_op(&t, op);
    assert_false(t.failed);
    return t.data;
}

/* Checks an op, and that its text and its printed form mean the same. */
static void check_twice(const tile_op *op) {
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
    if (tile_bind(a, &again, f, op->name, constants, (size_t)op->constant_count, &d, NULL)) fail_msg("%s\n%s", op->text, d.text.data);
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
    "tile t[N = 8, T = bf16, W = q8_0](x: in f32[M, N], h: in T[M, N], ids: in i32[M], w: in W[N, 64], g: inout f32[M, N], "  \
    "gh: inout T[M, N], y: out f32[M, N], yi: out i32[M], u: in u8[M, N], big: in f64[M, N], e: arg f32, n: arg i32, pos: live i32, l: in i64[M], " \
    "s8: in i8[M, N], m3: in f32[M, 4, N]) over (m in M, k in 4) {\n"

static const tile_op *bind_body(arena *a, const char *body) {
    text t = {0};
    text_printf(&t, "%s%s\n}\n", HEAD, body);
    const tile_op *op;
    tile_diagnostics d = {0};
    if (bind_text(a, &op, t.data, NULL, 0, &d, NULL)) fail_msg("%s\n%s", body, d.text.data ? d.text.data : "");
    check_twice(op);
    text_free(&t);
    return op;
}

/* ---- types and shapes ---- */

static void test_types(void **state) {
    (void)state;
    /* the expression, its type and shape, how it is printed (NULL: do not care) */
    static const char *const cases[][3] = {
        {"1", "i64", "1"},
        {"1.5", "f32", "1.5"},
        {"true", "bool", "true"},
        {"N", "i64", "8"},
        {"M", "i64", "M"},
        {"m", "i64", "m"},
        {"pos", "i64", "pos"},
        {"n", "i64", "n"},
        {"e", "f32", "e"},
        {"-inf", "f32", "-inf"},
        {"1 + 2.5", "f32", "3.5"},
        {"1.0 / 3", "f32", "0.333333343"},
        {"x[m, :]", "f32[8]", "x[m, :]"},
        {"x[m]", "f32[8]", "x[m, :]"},
        {"x[m : +4]", "f32[4, 8]", "x[m : +4, :]"},
        {"x[m - 4 : +N / 2, 1]", "f32[4]", "x[m - 4 : +4, 1]"},
        {"x[m : +4 < M - 1]", "f32[4, 8]", "x[m : +4 < M - 1, :]"},
        {"x[m : +4 < ids[0]]", "f32[4, 8]", "x[m : +4 < i64(ids[0]), :]"},
        {"x[m, 3]", "f32", "x[m, 3]"},
        {"w", "q8_0[8, 64]", "w[:, :]"},
        {"w[k : +2]", "q8_0[2, 64]", "w[k : +2, :]"},
        {"w[k, k*32 : +32]", "q8_0[32]", "w[k, k * 32 : +32]"},
        {"w.T", "q8_0[64, 8]", "w[:, :].T"},
        {"f32(w)", "f32[8, 64]", "f32(w[:, :])"},
        {"reshape(w, 4, 2, 64)", "q8_0[4, 2, 64]", NULL},
        {"w[:][0 : +4, 0 : +32]", "q8_0[4, 32]", "w[:, :][0 : +4, 0 : +32]"},
        {"x[ids[m]]", "f32[8]", "x[i64(ids[m]), :]"},
        {"x[ids[m] + 1, 0]", "f32", "x[i64(ids[m] + 1), 0]"},
        {"x[ids[m] * k, 0]", "f32", "x[i64(ids[m] * i32(k)), 0]"},
        {"x[ids[m : +4]]", "f32[4, 8]", "x[ids[m : +4], :]"},
        {"x[ids[m : +4] + m, 0 : +2]", "f32[4, 2]", "x[ids[m : +4] + i32(m), 0 : +2]"},
        {"x[l[m]]", "f32[8]", "x[l[m], :]"},
        {"x[l[m : +3]]", "f32[3, 8]", "x[l[m : +3], :]"},
        {"x[iota(5) * 2 + m]", "f32[5, 8]", "x[iota(5) * 2 + i32(m), :]"},
        {"x[m] * 2", "f32[8]", "x[m, :] * 2.0"},
        {"2 * x[m]", "f32[8]", "2.0 * x[m, :]"},
        {"x[m] / N", "f32[8]", "x[m, :] / 8.0"},
        {"x[m] + e", "f32[8]", "x[m, :] + e"},
        {"x[m : +4] - x[m]", "f32[4, 8]", NULL},
        {"x[m : +4, 0 : +1] - x[m]", "f32[4, 8]", NULL},
        {"m3[m, :, 0 : +1] * m3[0 : +3, 0 : +1, :]", "f32[3, 4, 8]", NULL},
        {"iota(4) + 1", "i32[4]", "iota(4) + 1"},
        {"iota(4) + m", "i32[4]", "iota(4) + i32(m)"},
        {"m + iota(4)", "i32[4]", "i32(m) + iota(4)"},
        {"iota(4) < pos", "bool[4]", "iota(4) < i32(pos)"},
        {"iota(4) % 3 == 0 and true", "bool[4]", NULL},
        {"not (m < 3 or k == 2)", "bool", "not (m < 3 or k == 2)"},
        {"true != (m < 3)", "bool", "true != (m < 3)"},
        {"m / 2 * 2 + m % 2 - -m", "i64", "m / 2 * 2 + m % 2 - -m"},
        {"m - (k - 1) - (m + k)", "i64", "m - (k - 1) - (m + k)"},
        {"(m | k ^ 3) & 1 << k >> 1", "i64", NULL},
        {"u32(m) >> 3", "u32", "u32(m) >> 3"},
        {"-x[m]", "f32[8]", "-x[m, :]"},
        {"abs(x[m]) + exp(-x[m]) * rsqrt(x[m]) / tanh(sin(cos(sqrt(x[m]))))", "f32[8]", NULL},
        {"floor(x[m]) + round(x[m]) - ceil(x[m]) + exp2(x[m]) + log(x[m]) + log2(x[m])", "f32[8]", NULL},
        {"abs(m - 4)", "i64", "abs(m - 4)"},
        {"exp(2.0)", "f32", NULL},
        {"ceil(M / 4)", "i64", "ceil(M / 4)"},
        {"ceil((m + 1) / (k * 2))", "i64", "ceil((m + 1) / (k * 2))"},
        {"ceil(x[m] / 4)", "f32[8]", "ceil(x[m, :] / 4.0)"},
        {"ceil(iota(5) / 4)", "i32[5]", "ceil(iota(5) / 4)"},
        {"min(m, 4) + max(k, M)", "i64", "min(m, 4) + max(k, M)"},
        {"max(x[m], 0)", "f32[8]", "max(x[m, :], 0.0)"},
        {"max(x[m : +4], axis = 1)", "f32[4, 1]", "max(x[m : +4, :], axis = 1)"},
        {"min(x[m : +4], axis = 0)", "f32[1, 8]", NULL},
        {"sum(x[m : +4], 1)", "f32[4, 1]", "sum(x[m : +4, :], axis = 1)"},
        {"sum(iota(7), axis = 0)", "i32[1]", NULL},
        {"argmax(x[m : +4], 1)", "i32[4, 1]", "argmax(x[m : +4, :], axis = 1)"},
        {"where(x[m] < 0, 0, x[m])", "f32[8]", "where(x[m, :] < 0.0, 0.0, x[m, :])"},
        {"where(x[m : +4] < 0, h[m], 0)", "bf16[4, 8]", "where(x[m : +4, :] < 0.0, h[m, :], 0.0)"},
        {"where(m < 3, m, 0)", "i64", "where(m < 3, m, 0)"},
        {"where(m < 3, 1.0, 0)", "f32", "where(m < 3, 1.0, 0.0)"},
        {"where(iota(4) < 3, 1, 0)", "i64[4]", NULL},
        {"where(N > 4, 2, 3)", "i64", "2"},
        {"where(iota(4) < 2, u[m, 0 : +4], 7)", "u8[4]", "where(iota(4) < 2, u[m, 0 : +4], 7)"},
        {"dot(x[m : +4], x[m : +3].T)", "f32[4, 3]", NULL},
        {"dot(h[0 : +4], w)", "f32[4, 64]", NULL},
        {"dot(w, f32(w).T)", "f32[8, 8]", NULL},
        {"dot(u[0 : +4], s8[0 : +3].T)", "i32[4, 3]", NULL},
        {"dot(big[0 : +4], x[0 : +3].T)", "f32[4, 3]", NULL},
        {"iota(4)", "i32[4]", "iota(4)"},
        {"m3[m : +2].T", "f32[2, 8, 4]", NULL},
        {"reshape(x[m : +4], 2, 16)", "f32[2, 16]", "reshape(x[m : +4, :], 2, 16)"},
        {"reshape(e, 1, 1)", "f32[1, 1]", "reshape(e, 1, 1)"},
        {"concat(x[m : +4], x[m : +3], axis = 0)", "f32[7, 8]", "concat(x[m : +4, :], x[m : +3, :], axis = 0)"},
        {"concat(iota(2), iota(3), iota(4), axis = 0)", "i32[9]", NULL},
        {"x[m : +4][1 : +2]", "f32[2, 8]", "x[m : +4, :][1 : +2, :]"},
        {"x[m : +4][:, 7]", "f32[4]", "x[m : +4, :][:, 7]"},
        {"x[m : +4][1][2]", "f32", "x[m : +4, :][1, :][2]"},
        {"(x[m] + 1)[0 : +8]", "f32[8]", "x[m, :] + 1.0"},
        {"(x[m] + 1)[0 : +7]", "f32[7]", "(x[m, :] + 1.0)[0 : +7]"},
        {"f32(m)", "f32", "f32(m)"},
        {"f32(x[m])", "f32[8]", "x[m, :]"},
        {"T(x[m])", "bf16[8]", "bf16(x[m, :])"},
        {"f32(h[m])", "f32[8]", "f32(h[m, :])"},
        {"i32(2.5)", "i32", "i32(2)"},
        {"i32(3.5)", "i32", "i32(4)"},
        {"i32(-2.5)", "i32", "i32(-2)"},
        {"i32(1e20)", "i32", "i32(2147483647)"},
        {"u8(-3.0)", "u8", "u8(0)"},
        {"i8(-1e9)", "i8", "i8(-128)"},
        {"i64(-1e30)", "i64", "(-9223372036854775807 - 1)"},
        {"bool(2)", "bool", "true"},
        {"bool(m)", "bool", "bool(m)"},
        {"f64(1)", "f64", "f64(1.0)"},
        {"e4m3(1000)", "e4m3", "e4m3(448.0)"},
        {"f32(2) * f32(3)", "f32", "f32(2.0) * f32(3.0)"},
        {"f32[2, 3](0)", "f32[2, 3]", "f32[2, 3](0.0)"},
        {"f32[4, 8](x[m])", "f32[4, 8]", "f32[4, 8](x[m, :])"},
        {"f32[8](x[m])", "f32[8]", "x[m, :]"},
        {"T[4, N](x[m])", "bf16[4, 8]", "bf16[4, 8](bf16(x[m, :]))"},
        {"bool[4](true)", "bool[4]", "bool[4](true)"},
        {"i32[4](m)", "i32[4]", "i32[4](i32(m))"},
        {"e5m2(h[m])", "e5m2[8]", NULL},
        {"0.1 * big[m]", "f64[8]", "0.10000000000000001 * big[m, :]"},
        {"0.1 * x[m]", "f32[8]", "0.100000001 * x[m, :]"},
        {"1e30 * x[m]", "f32[8]", "1.00000002e+30 * x[m, :]"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char body[512];
        snprintf(body, sizeof body, "v = %s", cases[i][0]);
        arena *a = arena_new();
        const tile_op *op = bind_body(a, body);
        text t = {0};
        const tile_variable *v = &op->variables[op->variable_count - 1];
        text_string(&t, v->type->name);
        for (int d = 0; d < v->shape.rank; d++) text_printf(&t, "%s%" PRId64, d ? ", " : "[", v->shape.extent[d]);
        if (v->shape.rank) text_string(&t, "]");
        if (strcmp(t.data, cases[i][1])) fail_msg("%s is %s, not %s", cases[i][0], t.data, cases[i][1]);
        t.length = 0;
        tile_print_node(&t, op, op->body->value);
        if (cases[i][2] && strcmp(t.data, cases[i][2])) fail_msg("%s is printed as %s, not %s", cases[i][0], t.data, cases[i][2]);
        text_free(&t);
        arena_free(a);
    }
}

static void test_statements(void **state) {
    (void)state;
    arena *a = arena_new();
    const tile_op *op = bind_body(a, "acc: f32[4, N] = 0\n"
                                     "s: f32 = 1; t: T[N] = h[m]; q: W[8, 64] = w\n"
                                     "for j in stream(ceil(M / 4)) {\n"
                                     "    acc += x[j*4 : +4]\n"
                                     "    acc *= 2; acc -= x[m]\n"
                                     "    inner = j + 1\n"
                                     "    if inner == 3 and k > 0 { s = e } else if pos > 2 { s = 0 } else { s = s * s }\n"
                                     "}\n"
                                     "for j in k .. ids[m] { acc = x[j] }\n"
                                     "for i in 3 { inner = f32(i) * 2.0 > e }\n"
                                     "g[m : +4] = acc; g[m] += 1; g[ids[0 : +4], 0] = s; gh[m, :] = t\n"
                                     "yi[k] = 2; yi[k : +2] = iota(2); y[m] = f32(q[0, 0 : +8])" + 0);
    static const char *const expected[] = {
        "acc: f32[4, 8] = f32[4, 8](0.0)", "s: f32 = 1.0", "t: bf16[8] = h[m, :]", "q: q8_0[8, 64] = w[:, :]", "for j in stream(ceil(M / 4)) {",
        "    acc = acc + x[j * 4 : +4, :]", "    acc = acc * 2.0", "    acc = acc - x[m, :]", "    inner: i64 = j + 1",
        "    if inner == 3 and k > 0 {", "        s = e", "    } else {", "        if pos > 2 {", "            s = 0.0", "        } else {",
        "            s = s * s", "        }", "    }", "}", "for j in k .. i64(ids[m]) {", "    acc = f32[4, 8](x[j, :])", "}"};
    char *shown = printed(op), *line = strstr(shown, "{\n") + 2;
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        char *end = strchr(line, '\n');
        *end = 0;
        assert_string_equal(line + 4, expected[i]);
        line = end + 1;
    }
    free(shown);
    arena_free(a);
}

/* ---- what is refused ---- */

static int failures; /* of refuse; a test asserts none at its end, so that all are seen */

/* Removes the marks '@' from a text and reports it: every mark is where an error is expected, and the messages, in the order
 * of the marks, are those given, each ended by a new line. */
static void refuse_whole(const char *marked, const char *messages, const tile_constant *constants, size_t count) {
    text source = {0}, expected = {0}, found = {0};
    int line = 1, column = 1;
    const char *message = messages;
    for (const char *c = marked; *c; c++) {
        if (*c == '@') {
            const char *end = strchr(message, '\n');
            const int length = end ? (int)(end - message) : (int)strlen(message);
            text_printf(&expected, "t.tile:%d:%d: error: %.*s\n", line, column, length, message);
            message += length + (end != NULL);
            continue;
        }
        text_append(&source, c, 1);
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    assert_int_equal(*message, 0);
    arena *a = arena_new();
    const tile_op *op;
    tile_diagnostics d = {0};
    mt_error e = {0};
    const mt_status status = bind_text(a, &op, source.data, constants, count, &d, &e);
    for (char *at = d.text.data, *end; at && *at; at = end + 1) { /* every first line of three */
        end = strchr(at, '\n');
        if (!strncmp(at, "t.tile:", 7)) text_append(&found, at, (size_t)(end - at) + 1);
    }
    if (status != MT_E_SYNTAX || e.code != MT_E_SYNTAX || !found.data || strcmp(found.data, expected.data) ||
        strncmp(found.data, e.where, strlen(e.where))) {
        print_error("%s\nexpected\n%sfound\n%s\n", marked, expected.data, d.text.data ? d.text.data : "nothing");
        failures++;
    }
    text_free(&source);
    text_free(&expected);
    text_free(&found);
    text_free(&d.text);
    arena_free(a);
}

static void refuse(const char *body, const char *messages) {
    text t = {0};
    text_printf(&t, "%s%s\n}\n", HEAD, body);
    refuse_whole(t.data, messages, NULL, 0);
    text_free(&t);
}

static void test_refused_expressions(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        /* names */
        {"v = @zz + 1", "zz is not known"},
        {"v = @zz + zz\nw2 = zz", "zz is not known"},
        {"if k == 1 { v = @zz }\nq = @zz", "zz is not known\nzz is not known"},
        {"v = @zz(1)", "there is no function or type zz"},
        {"v = @T + 1", "T is a type; a value is expected here"},
        {"v = @bf16", "bf16 is a type; a value is expected here"},
        {"v = @N(1)", "N is a constant and an integer, not a type"},
        {"v = @x(1)", "x is a tensor, not a type"},
        {"if k == 1 { v = 1 }\nq = @v", "v is not known"},
        {"for j in 3 { v = j }\nq = @j", "j is not known"},
        {"v = @y[m]", "y is an output and cannot be read; an inout parameter can"},
        {"v = @y", "y is an output and cannot be read; an inout parameter can"},
        /* operators */
        {"v = h[m] @+ 1", "'+' works on f32, f64, i32, u32 and i64, not on bf16; cast it, as in f32(x)"},
        {"v = u[m] @+ 1", "'+' works on f32, f64, i32, u32 and i64, not on u8; cast it, as in i32(x)"},
        {"v = w @* 2", "'*' works on f32, f64, i32, u32 and i64, not on q8_0; cast it, as in f32(x)"},
        {"v = @exp(h[m])", "exp works on f32 and f64, not on bf16; cast it, as in f32(x)"},
        {"v = @exp(2)", "exp works on f32 and f64, not on an integer literal; cast it, as in f32(x)"},
        {"v = @exp(m)", "exp works on f32 and f64, not on i64; cast it, as in f32(x)"},
        {"v = x[m] @% 2", "'%' works on i32, u32 and i64, not on f32; cast it, as in i32(x)"},
        {"v = x[m] @& 2", "'&' works on i32, u32 and i64, not on f32; cast it, as in i32(x)"},
        {"v = @not x[m]", "'not' works on bool, not on f32; a comparison gives one"},
        {"v = m @and true", "'and' works on bool, not on i64; a comparison gives one"},
        {"v = true @+ 1", "'+' works on f32, f64, i32, u32 and i64, not on bool; cast it, as in i32(x)"},
        {"v = x[m] @+ m", "'+' needs operands of one type, not f32 and i64; cast one, as in f32(x)"},
        {"v = ids[m] @+ u32(m)", "'+' needs operands of one type, not i32 and u32; cast one, as in i32(x)"},
        {"v = l[m : +4] @+ iota(4)", "'+' needs operands of one type, not i64 and i32; cast one, as in i64(x)"},
        {"v = x[m] @< big[m]", "'<' needs operands of one type, not f32 and f64; cast one, as in f32(x)"},
        {"v = iota(4) + @1.5", "1.5 is a float literal, and i32 is expected here"},
        {"v = iota(4) + @3000000000", "3000000000 does not fit in i32"},
        {"v = u32(m) + @-1", "-1 does not fit in u32"},
        {"v = where(k == 1, u[m], @256)", "256 does not fit in u8"},
        {"v = where(k == 1, m < 2, @1)", "a bool is expected here: true, false or a comparison"},
        {"v = x[m : +4] @+ iota(3)[0]", "'+' needs operands of one type, not f32 and i32; cast one, as in f32(x)"},
        {"v = x[m : +4] @+ x[m : +3]", "the shapes [4, 8] and [3, 8] do not fit: aligned at the right, extents must be equal or 1"},
        {"v = x[m : +4] @* f32(iota(4))", "the shapes [4, 8] and [4] do not fit: aligned at the right, extents must be equal or 1"},
        {"v = reshape(iota(65536), 65536, 1) @+ iota(65536)", "a tile of shape [65536, 65536] is too large: at most 16777216 elements"},
        {"v = m + (9223372036854775807 @+ 1)", "the result of this operation does not fit in 64 bits"},
        {"v = i32(2147483647) @+ 1", "the result of this operation does not fit in i32"},
        {"v = u32(1) @- 2", "the result of this operation does not fit in u32"},
        {"v = m / @0", "this is a division by zero"},
        {"v = m % (N @- 8)", "this is a division by zero"},
        {"v = ceil(m / @0)", "this is a division by zero"},
        {"v = iota(4) % @0", "this is a division by zero"},
        {"v = m << @64", "a shift by 64; expected 0 to 63"},
        {"v = iota(4) >> @32", "a shift by 32; expected 0 to 31"},
        {"v = 1 << @-1", "a shift by -1; expected 0 to 63"},
        /* functions */
        {"v = @exp(x[m], 1)", "exp takes 1 argument, not 2"},
        {"v = @where(true, 1)", "where takes 3 arguments, not 2"},
        {"v = @sum(x[m], 0, 1)", "sum takes 1 to 2 arguments, not 3"},
        {"v = @exp(x[m], axis = 0)", "exp takes no axis"},
        {"v = @exp[3](x[m])", "exp takes no shape"},
        {"v = @sum(x[m])", "sum needs one axis, as in sum(x, axis = 1)"},
        {"v = @sum(x[m], 0, axis = 0)", "sum needs one axis, as in sum(x, axis = 1)"},
        {"v = sum(x[m], @1)", "the axis is 1; expected 0 to 0"},
        {"v = sum(x[m], axis = @-1)", "the axis is -1; expected 0 to 0"},
        {"v = sum(x[m], axis = @m)", "the axis must be a constant integer"},
        {"v = @sum(e, axis = 0)", "sum needs a tile with an axis, not a scalar"},
        {"v = @sum(h[m], axis = 0)", "sum works on f32, f64, i32, u32 and i64, not on bf16; cast it, as in f32(x)"},
        {"v = @max(x[m])", "max needs two values, or an axis: max(a, b), max(x, axis = 1)"},
        {"v = @max(x[m], x[m], axis = 0)", "max needs one axis, as in max(x, axis = 1)"},
        {"v = where(x@[m], 1, 2)", "where chooses by a bool, not by f32"},
        {"v = @where(m < 1, x[m], h[m])", "where needs operands of one type, not f32 and bf16; cast one, as in f32(x)"},
        {"v = @where(m < 1, w, w)", "where works on elements, not on the block format q8_0; cast it, as in f32(x)"},
        {"v = @where(iota(3) < 1, x[m], x[m])", "the shapes [3] and [8] do not fit: aligned at the right, extents must be equal or 1"},
        {"v = @dot(x[m : +4], x[m : +4])", "dot needs shapes [m, k] and [k, n], not [4, 8] and [4, 8]"},
        {"v = @dot(x[m], x[m : +4].T)", "dot needs shapes [m, k] and [k, n], not [8] and [8, 4]"},
        {"v = @dot(x[m : +4], u[m : +4].T)", "dot multiplies floats and block formats, or integers of up to 8 bits, not f32 and u8"},
        {"v = @dot(reshape(iota(4), 2, 2), reshape(iota(4), 2, 2))",
         "dot multiplies floats and block formats, or integers of up to 8 bits, not i32 and i32"},
        {"v = iota(@m)", "a tile's extent must be a constant integer"},
        {"v = iota(@0)", "a tile's extent is 0; expected 1 to 16777216"},
        {"v = @reshape(x[m], 3, 3)", "reshape keeps the number of elements: [8] has 8, [3, 3] has 9"},
        {"v = @concat(x[m], x[m])", "concat needs an axis, as in concat(a, b, axis = 1)"},
        {"v = @concat(1, 2, axis = 0)", "concat needs tiles, not scalars"},
        {"v = @concat(w, w, axis = 0)", "concat works on elements, not on block formats; cast them, as in f32(x)"},
        {"v = concat(x[m], @h[m], axis = 0)", "concat along axis 0 needs equal types and equal other extents, not f32[8] and bf16[8]"},
        {"v = concat(m3[m], x[m : +4]@[:, 0 : +7], axis = 0)", "concat along axis 0 needs equal types and equal other extents, not f32[4, 8] and f32[4, 7]"},
        {"v = @W(x[m])", "nothing can be cast to the block format q8_0"},
        {"v = @bf16(w)", "the block format q8_0 can be cast to f32 only: write bf16(f32(x))"},
        {"v = @f32(x[m], x[m])", "a cast takes one value, as in f32(x)"},
        {"v = @f32[2, 3](x[m])", "a value of shape [8] does not fit a tile of shape [2, 3]"},
        {"v = @f32[8, 1](x[m])", "a value of shape [8] does not fit a tile of shape [8, 1]"},
        {"v = f32[@m](0)", "a tile's extent must be a constant integer"},
        {"v = f32[1, 1, 1, 1, 1, @1](0)", "a tile has at most 5 dimensions"},
        {"v = x[m]@.T", ".T needs a tile of two or more dimensions, not one of shape [8]"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        refuse(cases[i][0], cases[i][1]);
    refuse("v = iota(1 @<< 25)", "a tile's extent is 33554432; expected 1 to 16777216");
    refuse("v = m + (N @+ 9223372036854775807)", "the result of this operation does not fit in 64 bits");
    refuse("v = true == @1", "a bool is expected here: true, false or a comparison");
    assert_int_equal(failures, 0);
}

static void test_refused_slices(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"v = @x", "dimension 0 of x has no constant extent; slice it, as in start : +size"},
        {"v = x[@:, 0]", "dimension 0 of x has no constant extent; slice it, as in start : +size"},
        {"v = x[m, 0, @0]", "x has 2 dimensions, and this is one item more"},
        {"v = x[@1.5]", "an index must be a scalar of type i64 or i32, not f32"},
        {"v = x[@e]", "an index must be a scalar of type i64 or i32, not f32"},
        {"v = x[u@[m, 0]]", "an index must be a scalar of type i64 or i32, not u8; cast it, as in i32(x)"},
        {"v = x[@reshape(iota(4), 2, 2)]", "an index must be a scalar or an i32 tile of one dimension, not i32[2, 2]"},
        {"v = x[@f32(iota(4))]", "an index must be a scalar or an i32 tile of one dimension, not f32[4]"},
        {"v = x[@iota(4) : +4]", "a slice's start must be a scalar of type i64 or i32, not i32[4]"},
        {"v = x[m : +@m]", "a slice's size must be a constant integer"},
        {"v = x[m : +@0]", "a slice's size is 0; expected 1 to 16777216"},
        {"v = x[m : +4 < @e]", "a slice's end must be a scalar of type i64 or i32, not f32"},
        /* block formats */
        {"v = w[0, @0]", "q8_0 is stored in blocks of 32; slice its last dimension with start : +size"},
        {"v = w[0, @iota(4)]", "q8_0 is stored in blocks of 32; slice its last dimension with start : +size"},
        {"v = w[0, 0 : +@16]", "q8_0 is stored in blocks of 32; the size of a slice of it must be a multiple, not 16"},
        {"v = w[0, @16 : +32]", "q8_0 is stored in blocks of 32; the slice's start must be a multiple of 32 in a way that can be seen, as in i*32"},
        {"v = w[0, @m : +32]", "q8_0 is stored in blocks of 32; the slice's start must be a multiple of 32 in a way that can be seen, as in i*32"},
        {"v = w[0, 0 : +32 < @k]", "q8_0 is stored in blocks of 32; the slice's end must be a multiple of 32 in a way that can be seen, as in i*32"},
        {"o = m * 32\nif k == 1 { o = 1 }\nv = w[0, @o : +32]",
         "q8_0 is stored in blocks of 32; the slice's start must be a multiple of 32 in a way that can be seen, as in i*32"},
        /* parts of tiles */
        {"a = x[m]; v = a[@m]", "a tile's slice must be a constant integer"},
        {"a = x[m]; v = a[@8]", "a tile's slice is 8; expected 0 to 7"},
        {"a = x[m]; v = a[@-1]", "a tile's slice is -1; expected 0 to 7"},
        {"a = x[m]; v = a[4 : +@8]", "4 : +8 ends beyond the tile's extent 8"},
        {"a = x[m]; v = a[4 : +@9]", "a slice's size is 9; expected 1 to 8"},
        {"a = x[m]; v = a[@iota(2)]", "a tile's slice must be a constant integer"},
        {"a = x[m]; v = a[0 : +4 < @3]", "a part of a tile is wholly in range; only slices of tensors have an end"},
        {"a = x[m]; v = a[0, @0]", "this tile has 1 dimension, and this is one item more"},
        {"a = 1; v = a[@0]", "this tile has 0 dimensions, and this is one item more"},
        {"v = e[@0]", "this tile has 0 dimensions, and this is one item more"},
        {"v = N[@0]", "this tile has 0 dimensions, and this is one item more"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        refuse(cases[i][0], cases[i][1]);
    assert_int_equal(failures, 0);

    /* Starts that are multiples of the block, and can be seen to be. */
    static const char *const good[] = {
        "m * 32", "32 * m + k * 64", "-(m * 32)", "m * 8 * k * 4", "(m * 8 + k * 16) * 4", "m << 5", "(m << 3) * 4", "max(m * 32, k * 96)",
        "where(k == 1, m * 32, 64)", "m * 96 % (k * 32)", "m * 64 & 96", "m & 32", "m & -32", "m * 32 | k * 64", "(m + 1) * 32 - 32", "i32(m * 32) + 32",
        "ids[m] * 32", "abs(m * 32 - k * 64)", "m / 32 * 32", "o", "o * 3 + K2", "K2 - 64", "0", "-64",
    };
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        text t = {0};
        text_printf(&t, "tile t(w: in q8_0[M, K2], ids: in i32[M], y: out f32[M, 32]) over (m in M, k in 4) {\n    o = m * 32\n"
                        "    y[m] = f32(w[m, %s : +32 < %s])\n}\n", good[i], good[i]);
        arena *a = arena_new();
        const tile_op *op;
        tile_diagnostics d = {0};
        if (bind_text(a, &op, t.data, NULL, 0, &d, NULL)) fail_msg("%s", d.text.data);
        check_twice(op);
        text_free(&t);
        arena_free(a);
    }
}

static void test_refused_statements(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        /* names */
        {"@N = 3", "N is a constant and cannot be assigned"},
        {"@M = 3", "M is an extent and cannot be assigned"},
        {"@m = 3", "m is an axis of the grid and cannot be assigned"},
        {"@e = 3.0", "e is an argument and cannot be assigned"},
        {"@pos = 3", "pos is a live value and cannot be assigned"},
        {"@y = 3.0", "y is a tensor and cannot be assigned; store to a slice of it, as in x[:] = y"},
        {"for j in 3 { @j = 1 }", "j is the variable of a loop and cannot be assigned"},
        {"@v += 1", "v is not known; declare it first, as in v = 0.0"},
        {"@f32 = 1", "f32 is a type; choose another name"},
        {"@q4_0: f32 = 1", "q4_0 is a type; choose another name"},
        {"@for m in 3 { v = 1 }", "m is an axis of the grid already; choose another name"},
        {"v = 1\nif k == 1 { @v: f32 = 2 }", "v is a variable already; choose another name"},
        {"v = 1\n@v: f32 = 2", "v is a variable already; choose another name"},
        {"for j in 3 { @for j in 3 { v = j } }", "j is the variable of a loop already; choose another name"},
        /* values of variables */
        {"v = 1\nv = x@[m]", "v is i64, the value is f32; cast it, as in i64(x)"},
        {"v = x[m]\nv = x@[m : +4]", "a value of shape [4, 8] does not fit v of shape [8]"},
        {"v = x[m, 0]\nv += x@[m]", "a value of shape [8] does not fit v of shape []"},
        {"v: f32[3] = x@[m]", "a value of shape [8] does not fit v of shape [3]"},
        {"v: T = @e", "v is bf16, the value is f32; cast it, as in bf16(x)"},
        {"v: i32 = @m", "v is i32, the value is i64; cast it, as in i32(x)"},
        {"v: i32 = @1.5", "1.5 is a float literal, and i32 is expected here"},
        {"v: W[8, 64] = @0", "a literal cannot be of the block format q8_0"},
        {"v: W[8, 64] = @f32(w)", "v is of the block format q8_0, the value is f32"},
        {"v: W[2, 8, 64] = @w", "values of the block format q8_0 cannot be stretched from [8, 64] to [2, 8, 64]; cast them first, as in f32(x)"},
        {"@v: zz = 1", "there is no type zz"},
        {"@v: N = 1", "N is a constant and an integer, not a type"},
        {"v: f32[@m] = 1", "a tile's extent must be a constant integer"},
        {"v = h[m]\n@v += 1", "'+' works on f32, f64, i32, u32 and i64, not on bf16; cast it, as in f32(x)"},
        /* stores */
        {"@x[m] = 1", "x is an input and cannot be written"},
        {"@w[0, 0 : +32] = 1", "w is an input and cannot be written"},
        {"@zz[m] = 1", "zz is not known; a store needs a tensor"},
        {"v = x[m]\n@v[0] = 1", "v is a variable; only slices of tensors can be stored to"},
        {"@e[0] = 1", "e is an argument; only slices of tensors can be stored to"},
        {"@y[m] += 1", "y is an output and cannot be read; += needs an inout parameter"},
        {"@gh[m] += 1", "gh is of a type without arithmetic; += works on f32, f64, i32, u32 and i64"},
        {"y[m] = h@[m]", "y is f32, the value is bf16; cast it, as in f32(x)"},
        {"gh[m] = x@[m]", "gh is bf16, the value is f32; cast it, as in bf16(x)"},
        {"y[m] = @m", "y is f32, the value is i64; cast it, as in f32(x)"},
        {"yi[m] = @m", "yi is i32, the value is i64; cast it, as in i32(x)"},
        {"yi[m] = @1.5", "1.5 is a float literal, and i32 is expected here"},
        {"y[m] = x@[m : +4]", "a value of shape [4, 8] does not fit the slice of shape [8]"},
        {"y[m, 0 : +1] = x@[m]", "a value of shape [8] does not fit the slice of shape [1]"},
        {"y[m : +4] = x@[m : +2]", "a value of shape [2, 8] does not fit the slice of shape [4, 8]"},
        {"y[m, @true] = 1", "an index must be a scalar of type i64 or i32, not bool"},
        /* loops and conditions */
        {"for j in @1.5 { v = j }", "a loop's end must be a scalar of type i64 or i32, not f32"},
        {"for j in @iota(3) { v = j }", "a loop's end must be a scalar of type i64 or i32, not i32[3]"},
        {"if @m { v = 1 }", "the condition must be a scalar bool, not i64"},
        {"if x[m] @> 0 { v = 1 }", "the condition must be a scalar bool, not bool[8]"},
        /* an error does not hide others, and does not make new ones */
        {"v = @zz\nu2 = v + 1\nv = x[m]\nif v > @yy { q = @v2 }\ny[m] = @q",
         "zz is not known\nyy is not known\nv2 is not known\nq is not known"},
        {"for j in @zz { v = j + @yy }\ny[m, @1.5] = h@[m]",
         "zz is not known\nyy is not known\nan index must be a scalar of type i64 or i32, not f32\ny is f32, the value is bf16; cast it, as in f32(x)"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        refuse(cases[i][0], cases[i][1]);
    assert_int_equal(failures, 0);
}

static void test_refused_headers(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"tile t(x: in @zz[4]) over (i in 4) { v = x }", "there is no type zz"},
        {"tile t(x: arg @bf16) over (i in 4) { v = x }", "an arg is f32 or i32; this one is bf16"},
        {"tile t(x: live @f32) over (i in 4) { v = x }", "a live value is i32; this one is f32"},
        {"tile t[N = 4](x: in @N[4]) over (i in 4) { v = x }", "N is a constant and an integer, not a type"},
        {"tile t(x: in f32[@0]) over (i in 4) { v = x }", "this extent is 0; expected 1 to 1099511627776"},
        {"tile t(x: in f32[@-1, 4]) over (i in 4) { v = x }", "this extent is -1; expected 1 to 1099511627776"},
        {"tile t(x: in f32[1 @<< 41]) over (i in 4) { v = x[0] }", "this extent is 2199023255552; expected 1 to 1099511627776"},
        {"tile t(x: in q8_0[@48]) over (i in 4) { v = x }", "q8_0 is stored in blocks of 32, so that its last extent must be a multiple, not 48"},
        {"tile t(x: in f32[4]) over (i in @x[0]) { v = x }",
         "x is a tensor; extents and the grid are computed from constants, extents, args and live values"},
        {"tile t(x: in i32[4]) over (i in @x) { v = x }",
         "x is a tensor; extents and the grid are computed from constants, extents, args and live values"},
        {"tile t(x: in f32[4], e: arg f32) over (i in i32(@e)) { v = x }", "e is an f32; extents and the grid are computed from integers"},
        {"tile t(x: in f32[M]) over (i in @1.5) { v = x[0] }", "the count of a grid axis must be a scalar of type i64 or i32, not f32"},
        {"tile t(x: in f32[M]) over (i in @i32(f32(M))) { v = x[0] }",
         "the count of a grid axis is computed with integers from constants, extents, args and live values only"},
        {"tile t(x: in f32[M]) over (i in iota(4)@[0]) { v = x[0] }",
         "the count of a grid axis is computed with integers from constants, extents, args and live values only"},
        {"tile t(x: in f32[M]) over (i in 4, j in @i) { v = x[0] }", "i is not known"},
        {"tile t(x: in f32[2 * @M]) over (i in 4) { v = x[0] }", "M is not known"},
        {"tile t(x: in f32[M]) over (@M in 4) { v = x[0] }", "M is an extent already; choose another name"},
        {"tile t[A = @B, B = 3](x: in f32[A]) over (i in 4) { v = x[0] }", "B is not known"},
        {"tile t[A = @1.5](x: in f32[A]) over (i in 4) { v = x[0] }", "a constant's default must be a constant integer"},
        {"tile t[A = 1 / @0](x: in f32[A]) over (i in 4) { v = x[0] }", "this is a division by zero"},
        {"tile t[A = 3](x: in f32[A]) over (i in 4) tune { A in 1, @M, @1.5, 2 * A } { v = x[0] }", "M is not known\na choice of tune must be a constant integer"},
        {"tile t[@f32 = 3](x: in bf16[4]) over (i in 4) { v = x[0] }", "f32 is a type; choose another name"},
        {"tile t(@bf16: in f32[4]) over (i in 4) { v = 1 }", "bf16 is a type; choose another name"},
        {"tile t(x: in f32[@f32]) over (i in 4) { v = 1 }", "f32 is a type; a value is expected here"},
        {"tile t(x: in f32[A, B, C, D, E], y: in f32[F, G, H, I, J], z: in f32[K, L, M, N, O], a: in f32[P, Q, R, S, T], b: in f32[U, V, W, X, Y], "
         "c: in f32[A2, B2, C2, D2, E2], d: in f32[F2, G2, @H2]) over (i in 4) { v = 1 }",
         "a program has at most 32 free extents"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) refuse_whole(cases[i][0], cases[i][1], NULL, 0);
    refuse_whole("tile t[W](x: in f32[4]) over (i in 4) { v = @W(x) }", "W is a constant and an integer, not a type",
                 &(tile_constant){"W", 3, NULL}, 1);
    refuse_whole("tile t[N](x: in f32[@N]) over (i in 4) { v = x[0] }", "N is a type; a value is expected here",
                 &(tile_constant){"N", 0, tile_format_find("f32")}, 1);
    assert_int_equal(failures, 0);
}

/* ---- folding ---- */

static int64_t floored(int64_t a, int64_t b) {
    const double q = (double)a / (double)b;
    const int64_t down = (int64_t)q;
    return (double)down > q ? down - 1 : down;
}

static void test_folding(void **state) {
    (void)state;
    /* Every operation on small numbers, each as the extent of a tile, 1000 added to keep it positive. */
    static const char *const operators[] = {"+", "-", "*", "/", "%", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "ceil", "min", "max"};
    for (size_t o = 0; o < COUNT_OF(operators); o++) {
        const char *op = operators[o];
        text body = {0};
        int64_t expected[256];
        int count = 0;
        for (int a = -5; a <= 5; a++)
            for (int b = -5; b <= 5; b += 1 + (b == -1)) {
                if (b == 0) continue;
                int64_t v = 0;
                switch (op[0]) {
                case '+': v = a + b; break;
                case '-': v = a - b; break;
                case '*': v = a * b; break;
                case '/': v = floored(a, b); break;
                case '%': v = a - b * floored(a, b); break;
                case '&': v = a & b; break;
                case '|': v = a | b; break;
                case '^': v = a ^ b; break;
                case '=': v = a == b; break;
                case '!': v = a != b; break;
                case '<': v = op[1] ? a <= b : a < b; break;
                case '>': v = op[1] ? a >= b : a > b; break;
                case 'c': v = -floored(-a, b); break;
                default: v = !strcmp(op, "min") ? (a < b ? a : b) : a > b ? a : b; break;
                }
                text_printf(&body, "v%d = iota(1000 + ", count);
                if (!strcmp(op, "ceil")) text_printf(&body, "ceil(%d / %d))\n", a, b);
                else if (op[0] == 'm') text_printf(&body, "%s(%d, %d))\n", op, a, b);
                else if (strchr("=!<>", op[0])) text_printf(&body, "where(%d %s %d, 1, 0))\n", a, op, b);
                else text_printf(&body, "(%d %s %d))\n", a, op, b);
                expected[count++] = 1000 + v;
            }
        arena *a = arena_new();
        const tile_op *bound = bind_body(a, body.data);
        for (int i = 0; i < count; i++)
            if (bound->variables[i].shape.extent[0] != expected[i]) fail_msg("%s, case %d: %" PRId64, op, i, bound->variables[i].shape.extent[0]);
        arena_free(a);
        text_free(&body);
    }
    static const struct { const char *source; int64_t value; } cases[] = {
        {"1 << 3", 8}, {"-16 >> 2 & 15", 12}, {"abs(-7)", 7}, {"N * 2 - N / 3", 14}, {"where(N == 8 and not (N > 9 or false), 5, 6)", 5},
        {"i32(7) * i32(3)", 21}, {"u32(7) / 2", 3}, {"9223372036854775807 - 9223372036854775800", 7},
        {"max(min(3, 9), 2)", 3}, {"-(-9)", 9}, {"i32(2.5 + 0.6)", 3}, {"i32(1.0 / 3 * 9)", 3}, {"ceil(N / 3)", 3}, {"ceil(-N / 3) + 9", 7},
        {"N % -3 + 9", 8}, {"where(1.5 > 1, 2, 3)", 2}, {"where(true == (N < 3), 2, 3)", 3}, {"(N | 1) ^ 2", 11}, {"2 - -3", 5},
        {"where(-inf < 0, 4, 5)", 4}, {"i64(i32(5))", 5},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char body[256];
        snprintf(body, sizeof body, "v = iota(%s)", cases[i].source);
        arena *a = arena_new();
        const tile_op *op = bind_body(a, body);
        if (op->variables[0].shape.extent[0] != cases[i].value) fail_msg("%s: %" PRId64, cases[i].source, op->variables[0].shape.extent[0]);
        arena_free(a);
    }
}

/* ---- constants, signatures, identity ---- */

static const char sized[] = "// doc\n"
                            "tile scale[N, T = bf16, BM = 16, BN = BM * 2, W = T, Q](x: in T[M, N], w: in W[N], q: in Q[M + 1, 2 * N], n: live i32,\n"
                            "    y: out f32[M, N]) over (i in ceil(M / BM), j in ceil(n / 4))\n"
                            "    tune { BM in 8, 16, BN * 2, 2 * N; N in 4 }\n"
                            "{\n    y[i*BM : +BM] = f32(x[i*BM : +BM]) * f32(w)\n}\n";

static tile_file *parse(const char *source) {
    tile_file *f;
    tile_diagnostics d = {0};
    if (tile_parse(&f, "t.tile", source, strlen(source), &d, NULL)) fail_msg("%s", d.text.data);
    return f;
}

static void test_queries(void **state) {
    (void)state;
    tile_file *f = parse(sized);
    tile_constant k[TILE_CONSTANTS];
    assert_int_equal(tile_constants(f, "zz", k), -1);
    assert_int_equal(tile_constants(f, "scale", k), 6);
    static const char *const names[] = {"N", "T", "BM", "BN", "W", "Q"}, *const types[] = {NULL, "bf16", NULL, NULL, "bf16", NULL};
    static const int64_t values[] = {INT64_MIN, 0, 16, 32, 0, INT64_MIN};
    for (int i = 0; i < 6; i++) {
        assert_string_equal(k[i].name, names[i]);
        assert_int_equal(k[i].value, values[i]);
        assert_true(types[i] ? k[i].type && is(k[i].type, types[i]) : !k[i].type);
    }
    int64_t choices[4] = {-1, -1, -1, -1};
    assert_int_equal(tile_tune(f, "scale", "BM", choices, 2), 3); /* what depends on N is not known */
    assert_true(choices[0] == 8 && choices[1] == 16 && choices[2] == -1);
    assert_int_equal(tile_tune(f, "scale", "BM", choices, 4), 3);
    assert_int_equal(choices[2], 64);
    assert_int_equal(tile_tune(f, "scale", "BN", choices, 4), 0);
    assert_int_equal(tile_tune(f, "zz", "BN", choices, 4), -1);

    tile_signature_param p[TILE_PARAMS];
    assert_int_equal(tile_signature(f, "zz", p), -1);
    assert_int_equal(tile_signature(f, "scale", p), 5);
    assert_string_equal(p[0].name, "x");
    assert_string_equal(p[0].type_constant, "T");
    assert_null(p[0].type);
    assert_int_equal(p[0].rank, 2);
    assert_string_equal(p[0].extent_name[0], "M");
    assert_string_equal(p[0].extent_name[1], "N");
    assert_null(p[2].extent_name[0]);
    assert_int_equal(p[3].kind, TILE_PARAM_LIVE);
    assert_string_equal(p[3].type->name, "i32");
    assert_int_equal(p[4].kind, TILE_OUT);
    assert_string_equal(p[4].type->name, "f32");
    tile_file_free(f);
}

static void test_arguments(void **state) {
    (void)state;
    tile_file *f = parse(sized);
    const tile_format *f16 = tile_format_find("f16"), *q8 = tile_format_find("q8_0");
    static const struct { const char *program; tile_constant constants[4]; size_t count; const char *message; } cases[] = {
        {"zz", {{0}}, 0, "there is no tile program zz in t.tile"},
        {"scale", {{0}}, 0, "tile program scale needs a value for its constant N"},
        {"scale", {{"N", 8, NULL}}, 1, "tile program scale needs a value for its constant Q"},
        {"scale", {{"N", 8, NULL}, {"ZZ", 8, NULL}}, 2, "there is no constant ZZ in tile program scale"},
        {"scale", {{"N", 8, NULL}, {"N", 8, NULL}}, 2, "constant N is given twice"},
        {"scale", {{"N", 8, NULL}, {"Q", 8, NULL}}, 2, "constant Q of tile program scale is a type, but an integer was given"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        arena *a = arena_new();
        const tile_op *op = (const tile_op *)&i;
        mt_error e = {0};
        assert_int_equal(tile_bind(a, &op, f, cases[i].program, cases[i].constants, cases[i].count, NULL, &e), MT_E_ARGUMENT);
        assert_string_equal(e.message, cases[i].message);
        assert_null(op);
        arena_free(a);
    }
    arena *a = arena_new();
    const tile_op *op;
    mt_error e = {0};
    const tile_constant bad[] = {{"N", 64, NULL}, {"Q", 0, q8}, {"BM", 0, f16}};
    assert_int_equal(tile_bind(a, &op, f, "scale", bad, 3, NULL, &e), MT_E_ARGUMENT);
    assert_string_equal(e.message, "constant BM of tile program scale is an integer, but f16 was given");

    const tile_constant good[] = {{"Q", 0, q8}, {"N", 64, NULL}, {"T", 0, f16}, {"BN", 7, NULL}};
    assert_int_equal(tile_bind(a, &op, f, "scale", good, 4, NULL, &e), MT_OK);
    tile_file_free(f);
    check_twice(op);
    assert_string_equal(op->name, "scale");
    assert_string_equal(op->path, "t.tile");
    assert_int_equal(op->constant_count, 6);
    assert_true(op->constants[0].value == 64 && op->constants[1].type == f16 && op->constants[2].value == 16 && op->constants[3].value == 7 &&
                op->constants[4].type == f16 && op->constants[5].type == q8);
    assert_true(op->param_count == 5 && op->tensor_count == 4 && op->live_count == 1 && op->arg_count == 0);
    assert_true(op->params[4].ordinal == 3 && op->params[3].ordinal == 0);
    assert_true(op->extent_count == 1 && op->extent_source[0].param == 0 && op->extent_source[0].dimension == 0);
    assert_string_equal(op->extent_names[0], "M");
    assert_int_equal(op->axis_total, 2);
    assert_string_equal(op->axis_names[1], "j");
    assert_true(strstr(op->text, "format q8_0 {") != NULL && !strstr(op->text, "doc"));
    arena_free(a);
}

static hash128 hash_of(arena *a, const char *source, const char *name, const tile_constant *constants, size_t count) {
    tile_file *f = parse(source);
    const tile_op *op;
    mt_error e = {0};
    if (tile_bind(a, &op, f, name, constants, count, NULL, &e)) fail_msg("%s", e.message);
    tile_file_free(f);
    check_twice(op);
    return op->hash;
}

static void test_identity(void **state) {
    (void)state;
    static const char one[] = "format my_a { block 4; d: f16; q: u4[4]; value[i] = d * q[i] }\n"
                              "format my_b { block 4; d: f16; q: i4[4]; value[i] = d * q[i] }\n"
                              "tile f[N = 4, W = my_a](x: in W[N], y: out f32[N]) over (i in 1) { y[:] = f32(x) }\n";
    static const char two[] = "// another comment, another order\n"
                              "tile g(x: in f32[4]) over (i in 1) { v = x }\n"
                              "format my_b { block 4; d: f16; q: i4[4]; value[i] = d * q[i] }\n"
                              "format my_a { block 4; d: f16; q: u4[4]; value[i] = d * q[i] }\n"
                              "tile f[N = 4, W = my_a](x: in W[N], y: out f32[N]) over (i in 1) { y[:] = f32(x) }\n";
    char changed[sizeof one];
    memcpy(changed, one, sizeof one);
    *strchr(strstr(changed, "q[i]"), 'i') = '0'; /* my_a decodes every element as the first */
    arena *a = arena_new();
    const hash128 h = hash_of(a, one, "f", NULL, 0);
    const hash128 same = hash_of(a, two, "f", NULL, 0);
    assert_true(h.low == same.low && h.high == same.high);
    hash128 others[4];
    others[0] = hash_of(a, changed, "f", NULL, 0);
    others[1] = hash_of(a, one, "f", &(tile_constant){"N", 8, NULL}, 1);
    others[2] = hash_of(a, one, "f", &(tile_constant){"W", 0, tile_format_find("f32")}, 1);
    others[3] = hash_of(a, one, "f", &(tile_constant){"W", 0, tile_format_find("f16")}, 1);
    for (int i = 0; i < 4; i++) {
        assert_false(h.low == others[i].low);
        for (int j = 0; j < i; j++) assert_false(others[j].low == others[i].low);
    }

    /* A type of another file, equal to one of this file's or in conflict with it. */
    tile_file *f = parse(one), *g = parse(changed);
    const tile_op *op;
    mt_error e = {0};
    assert_int_equal(tile_bind(a, &op, f, "f", &(tile_constant){"W", 0, tile_file_format(g, 1)}, 1, NULL, &e), MT_OK);
    tile_file_free(g);
    check_twice(op);
    assert_string_equal(op->params[0].type->name, "my_b");
    tile_file *h2 = parse("format q8_0 { block 4; d: f16; q: i4[4]; value[i] = d * q[i] }\n"
                          "tile f[W = q8_0, V = f32](x: in W[4], y: in V[32]) over (i in 1) { v = x; u = y }\n");
    assert_int_equal(tile_bind(a, &op, h2, "f", NULL, 0, NULL, &e), MT_OK); /* a file's own format comes first */
    assert_int_equal(op->params[0].type->block, 4);
    check_twice(op);
    assert_int_equal(tile_bind(a, &op, h2, "f", &(tile_constant){"V", 0, tile_format_find("q8_0")}, 1, NULL, &e), MT_E_SYNTAX);
    assert_non_null(strstr(e.message, "two different formats are named q8_0; one of them needs another name"));
    tile_file_free(h2);
    tile_file_free(f);
    arena_free(a);
}

/* ---- the library, limits, hostile text ---- */

static void test_library(void **state) {
    (void)state;
    const tile_file *f;
    assert_int_equal(tile_library(&f, NULL), MT_OK);
    assert_true(tile_file_count(f) > 0);
    for (size_t i = 0; i < tile_file_count(f); i++) {
        const char *name = tile_file_name(f, i);
        tile_constant k[TILE_CONSTANTS];
        const int count = tile_constants(f, name, k);
        for (int j = 0; j < count; j++)
            if (!k[j].type && k[j].value == INT64_MIN) k[j].value = 64;
        arena *a = arena_new();
        const tile_op *op;
        tile_diagnostics d = {0};
        mt_error e = {0};
        if (tile_bind(a, &op, f, name, k, (size_t)count, &d, &e)) fail_msg("%s: %s\n%s", name, e.message, d.text.data ? d.text.data : "");
        check_twice(op);
        arena_free(a);
    }
}

static void test_limits(void **state) {
    (void)state;
    text t = {0};
    text_string(&t, "tile t(y: out f32[M]) over (i in M) {\n");
    for (int v = 0; v < 1024; v++) text_printf(&t, "v%d = %s%d\n", v, v % 7 ? "v" : "", v % 7 ? v - 1 : v);
    text_string(&t, "if i < 0 { ");
    const size_t good = t.length;
    text_string(&t, "} }\n");
    arena *a = arena_new();
    const tile_op *op;
    tile_diagnostics d = {0};
    if (bind_text(a, &op, t.data, NULL, 0, &d, NULL)) fail_msg("%s", d.text.data);
    check_twice(op);
    t.length = good;
    text_string(&t, "@q = 1 } }\n");
    refuse_whole(t.data, "a program has at most 1024 variables", NULL, 0);

    t.length = 0;
    text_string(&t, "tile t(y: out f32[M]) over (i in M) {\n");
    for (int v = 0; v < 300; v++) text_printf(&t, "%sfor j in 3 { y[j] = 0 }\n", v < 256 ? "" : "@");
    text_string(&t, "}\n");
    text expected = {0};
    for (int v = 0; v < 44; v++) text_string(&expected, "a program has at most 256 loops\n");
    refuse_whole(t.data, expected.data, NULL, 0);

    for (int length = 150; length <= 20000; length += 19850) { /* a long chain either binds or is refused */
        t.length = 0;
        text_string(&t, "tile t(y: out f32[M]) over (i in M) {\n");
        for (int v = 0; v < length; v++) text_printf(&t, "if i == %d { y[i] = 0 } else ", v);
        text_string(&t, "{ y[i] = 1 } }\n");
        assert_int_equal(bind_text(a, &op, t.data, NULL, 0, NULL, NULL), length == 150 ? MT_OK : MT_E_SYNTAX);
        if (op) check_twice(op);
    }

    t.length = 0; /* variables of variables of variables: a proof must not take 2^1000 steps */
    text_string(&t, "tile t(w: in q8_0[64], y: out f32[32]) over (i in 4) {\nv0 = i * 32\n");
    for (int v = 1; v < 1000; v++) text_printf(&t, "v%d = v%d + v%d\n", v, v - 1, v - 1);
    text_string(&t, "y[:] = f32(w[v999 : +32]) }\n");
    if (bind_text(a, &op, t.data, NULL, 0, &d, NULL)) fail_msg("%s", d.text.data);
    text_free(&t);
    text_free(&expected);
    arena_free(a);
    assert_int_equal(failures, 0);
}

static uint64_t next_random(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

/* Programs of the library with words exchanged: whatever is accepted must be a sound tree. */
static void test_hostile(void **state) {
    (void)state;
    static const char *const words[] = {"m", "x", "w", "0", "1", "N", "K", "T", "(", ")", "[", "]", "+", "*", "/", ",", ":", "f32", "sum", "dot", "where",
                                        "1.5", "iota", "-", "==", ".T", "max", ":+4", "=", "+=", "true", "q8_0", "u4", "pos", "M", "concat", "reshape",
                                        "9223372036854775807", "<", "y", "acc", "axis=1", "%", ">>", "and", "not", "ceil", "<4", "i32", "\n", "k"};
    const tile_file *f;
    assert_int_equal(tile_library(&f, NULL), MT_OK);
    uint64_t random = 88172645463325252u;
    int accepted = 0;
    for (int round = 0; round < 6000; round++) {
        const char *name = tile_file_name(f, next_random(&random) % tile_file_count(f));
        tile_constant k[TILE_CONSTANTS];
        const int count = tile_constants(f, name, k);
        for (int j = 0; j < count; j++)
            if (!k[j].type && k[j].value == INT64_MIN) k[j].value = 32 << next_random(&random) % 2;
        arena *a = arena_new();
        const tile_op *op;
        assert_int_equal(tile_bind(a, &op, f, name, k, (size_t)count, NULL, NULL), MT_OK);
        text t = {0};
        text_string(&t, op->text);
        for (uint64_t changes = 1 + next_random(&random) % 3; changes; changes--) {
            const size_t at = next_random(&random) % t.length;
            size_t end = at + 1;
            while (end < t.length && next_random(&random) % 3) end++;
            text changed = {0};
            text_append(&changed, t.data, at);
            if (next_random(&random) % 4) text_printf(&changed, " %s ", words[next_random(&random) % COUNT_OF(words)]);
            text_append(&changed, t.data + end, t.length - end);
            text_free(&t);
            t = changed;
        }
        tile_file *changed;
        tile_diagnostics d = {0};
        if (!tile_parse(&changed, "t.tile", t.data, t.length, &d, NULL)) {
            if (tile_file_count(changed) && !tile_bind(a, &op, changed, tile_file_name(changed, 0), k, (size_t)count, &d, NULL)) {
                check_twice(op);
                accepted++;
            }
            tile_file_free(changed);
        }
        text_free(&d.text);
        text_free(&t);
        arena_free(a);
    }
    assert_true(accepted > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_refused_expressions),
        cmocka_unit_test(test_refused_slices),
        cmocka_unit_test(test_refused_statements),
        cmocka_unit_test(test_refused_headers),
        cmocka_unit_test(test_folding),
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
