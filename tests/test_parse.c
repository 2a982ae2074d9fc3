/* The parser on what is right: text becomes the tree it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tile/ast.h"
#include "tile_source.h"

static char *read_file(const char *path) {
    char full[1024];
    snprintf(full, sizeof full, "%s/%s", MONOTILE_SOURCE_FOLDER, path);
    text t = {0};
    mt_error e = {0};
    if (file_read(&t, full, 1 << 20, &e)) fail_msg("%s: %s", full, e.message);
    return t.data;
}

/* ---- trees ------------------------------------------------------------------------------------------------------ */

static void print_expr(text *out, const ast_expr *e);

static void print_exprs(text *out, const ast_expr *e) {
    for (; e; e = e->next) {
        print_expr(out, e);
        if (e->next) text_string(out, ", ");
    }
}

static void print_items(text *out, const ast_item *i) {
    text_string(out, "[");
    for (; i; i = i->next) {
        if (i->start)
            print_expr(out, i->start);
        else
            text_string(out, ":");
        if (i->size) {
            text_string(out, ":+");
            print_expr(out, i->size);
        }
        if (i->limit) {
            text_string(out, "<");
            print_expr(out, i->limit);
        }
        if (i->next) text_string(out, ", ");
    }
    text_string(out, "]");
}

static void print_expr(text *out, const ast_expr *e) {
    switch (e->kind) {
    case AST_INTEGER:
        text_printf(out, "%" PRId64, e->integer);
        break;
    case AST_FLOAT:
        text_printf(out, "%gf", e->number);
        break;
    case AST_BOOL:
        text_string(out, e->integer ? "true" : "false");
        break;
    case AST_NAME:
        text_string(out, e->name);
        break;
    case AST_UNARY:
    case AST_BINARY:
        text_printf(out, "(%s ", tile_operator_text(e->op));
        print_expr(out, e->a);
        if (e->kind == AST_BINARY) {
            text_string(out, " ");
            print_expr(out, e->b);
        }
        text_string(out, ")");
        break;
    case AST_CALL:
        text_string(out, e->name);
        if (e->shape) {
            text_string(out, "[");
            print_exprs(out, e->shape);
            text_string(out, "]");
        }
        text_string(out, "(");
        print_exprs(out, e->arguments);
        if (e->axis) {
            text_string(out, "; axis ");
            print_expr(out, e->axis);
        }
        text_string(out, ")");
        break;
    case AST_SLICE:
        print_expr(out, e->a);
        print_items(out, e->items);
        break;
    case AST_TRANSPOSE:
        print_expr(out, e->a);
        text_string(out, ".T");
        break;
    }
}

static void print_statements(text *out, const ast_statement *s) {
    static const char *const kinds[] = {"assign", "declare", "update", "store", "for", "if"};
    for (; s; s = s->next) {
        text_printf(out, "%s", kinds[s->kind]);
        if (s->name) text_printf(out, " %s", s->name);
        if (s->type) text_printf(out, ": %s", s->type);
        if (s->shape) {
            text_string(out, "[");
            print_exprs(out, s->shape);
            text_string(out, "]");
        }
        if (s->items) print_items(out, s->items);
        if (s->op != TILE_OPERATOR_COUNT) text_printf(out, " %s=", tile_operator_text(s->op));
        if (s->stream) text_string(out, " stream");
        if (s->begin) {
            text_string(out, " from ");
            print_expr(out, s->begin);
        }
        if (s->end) {
            text_string(out, " to ");
            print_expr(out, s->end);
        }
        if (s->value) {
            text_string(out, " ");
            print_expr(out, s->value);
        }
        if (s->kind == AST_FOR || s->kind == AST_IF) {
            text_string(out, " {");
            print_statements(out, s->body);
            text_string(out, "}");
        }
        if (s->otherwise) {
            text_string(out, " else {");
            print_statements(out, s->otherwise);
            text_string(out, "}");
        }
        if (s->next) text_string(out, "; ");
    }
}

static void check_statements(const char *source, const char *expected) {
    char whole[2048];
    snprintf(whole, sizeof whole, HEAD "%s\n}", source);
    tile_file *f = parse_good(whole);
    text out = {0};
    text_string(&out, "");
    print_statements(&out, f->tiles->body);
    assert_string_equal(out.data, expected);
    text_free(&out);
    tile_file_free(f);
}

static void test_expressions(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"1 + 2 * 3 - 4", "(- (+ 1 (* 2 3)) 4)"},
        {"a - b - c", "(- (- a b) c)"},
        {"a / b % c * d", "(* (% (/ a b) c) d)"},
        {"-a * b", "(* (- a) b)"},
        {"a * -b", "(* a (- b))"},
        {"--a", "(- (- a))"},
        {"-x[0].T", "(- x[0].T)"},
        {"a << 2 + b", "(<< a (+ 2 b))"},
        {"a >> 6 << 4", "(<< (>> a 6) 4)"},
        {"a | b ^ c & d << 1", "(| a (^ b (& c (<< d 1))))"},
        {"a & b == c | d", "(== (& a b) (| c d))"},
        {"a < b and b <= c or not d", "(or (and (< a b) (<= b c)) (not d))"},
        {"not a == b and not not c", "(and (not (== a b)) (not (not c)))"},
        {"a and b and c or d or e", "(or (or (and (and a b) c) d) e)"},
        {"(a or b) and (not c)", "(and (or a b) (not c))"},
        {"a != b", "(!= a b)"},
        {"a >= b", "(>= a b)"},
        {"a > b", "(> a b)"},
        {"12 + 0x1F + 0XaB", "(+ (+ 12 31) 171)"},
        {"0x7fffffffffffffff", "9223372036854775807"},
        {"1.5 + 1e-5 + 2.5E3 + 1e2 + 0.25e+1", "(+ (+ (+ (+ 1.5f 1e-05f) 2500f) 100f) 2.5f)"},
        {"-inf + inf", "(+ (- inff) inff)"},
        {"where(true, false, a)", "where(true, false, a)"},
        {"sum(x * x, 1)", "sum((* x x), 1)"},
        {"max(x, axis = 1) + max(x, y)", "(+ max(x; axis 1) max(x, y))"},
        {"concat(a, b, axis = 0)", "concat(a, b; axis 0)"},
        {"axis + f(axis, axis == 1)", "(+ axis f(axis, (== axis 1)))"},
        {"f32[2, 3](x)", "f32[2, 3](x)"},
        {"bf16[N](f32(x[0 : +4]))", "bf16[N](f32(x[0:+4]))"},
        {"x[r*R : +R, :, i, rows]", "x[(* r R):+R, :, i, rows]"},
        {"x[a : +4 < b + 1, -1]", "x[a:+4<(+ b 1), (- 1)]"},
        {"x[(a < b)]", "x[(< a b)]"},
        {"table[b, j][0].T[1].T.T", "table[b, j][0].T[1].T.T"},
        {"dot(x[m*BM : +BM], w[:, 0 : +4].T)", "dot(x[(* m BM):+BM], w[:, 0:+4].T)"},
        {"out + live + stream + arg + block + value + T", "(+ (+ (+ (+ (+ (+ out live) stream) arg) block) value) T)"},
        {"(a\n+ b)", "(+ a b)"},
        {"a +\n b", "(+ a b)"},
        {"a + // comment\n\n  // another\n b", "(+ a b)"},
        {"f(a\n,\nb\n)", "f(a, b)"},
        {"(x\n[0]\n.T)", "x[0].T"},
        {"\n a", "a"},
        {"a\r", "a"},
        {"\ta\t+\tb", "(+ a b)"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char source[256], expected[256];
        snprintf(source, sizeof source, "v = %s", cases[i][0]);
        snprintf(expected, sizeof expected, "assign v %s", cases[i][1]);
        check_statements(source, expected);
    }
}

static void test_statements(void **state) {
    (void)state;
    check_statements("", "");
    check_statements("a = 1; b = 2;; c = 3;\n\n;d = 4", "assign a 1; assign b 2; assign c 3; assign d 4");
    check_statements("acc: f32[BM, BN + 1] = 0; s: i32 = 1", "declare acc: f32[BM, (+ BN 1)] 0; declare s: i32 1");
    check_statements("a += 1; a -= 2; a *= 3", "update a += 1; update a -= 2; update a *= 3");
    check_statements("y[0 : +4, :] = v; y[i] += 1", "store y[0:+4, :] v; store y[i] += 1");
    check_statements("for k in n { a = k }", "for k to n {assign a k}");
    check_statements("for k in 2 .. n + 1 { }", "for k from 2 to (+ n 1) {}");
    check_statements("for k in 0..n {}", "for k from 0 to n {}");
    check_statements("for k in stream(ceil(K / BK)) { a += 1 }", "for k stream to ceil((/ K BK)) {update a += 1}");
    check_statements("for k in stream(a .. b) {}", "for k stream from a to b {}");
    check_statements("if a < b { c = 1 }", "if (< a b) {assign c 1}");
    check_statements("if a { c = 1 } else { c = 2 }", "if a {assign c 1} else {assign c 2}");
    check_statements("if a\n{\nc = 1\n}\nelse if b { c = 2 }\nelse { c = 3 }\nd = 4",
                     "if a {assign c 1} else {if b {assign c 2} else {assign c 3}}; assign d 4");
    check_statements("for i in 2 { for j in 3 { if a { b = 1; c = 2 } } }",
                     "for i to 2 {for j to 3 {if a {assign b 1; assign c 2}}}");
    check_statements("x = a\ny = b", "assign x a; assign y b");
    check_statements("v = 3 // a comment; w = 4", "assign v 3");
}

static void test_header(void **state) {
    (void)state;
    tile_file *f = parse_good("// one\n\n//   two\n//three é\n"
                              "tile linear[N, BM = 16, T = bf16,\n  R = N / 2]\n(x: in T[M, N * 2], p: live i32, e: "
                              "arg f32, y: out T[M], z: inout q4_1[1])\n"
                              "over (n in ceil(N / BM),\n m in M)\n tune { BM in 8, 16,\n 32\n N in 1; R in N }\n "
                              "equals { a, b = f(x, y); c = g(a)\n }\n{\n}\n");
    const ast_tile *t = f->tiles;
    assert_string_equal(t->name, "linear");
    assert_string_equal(t->doc, "  two\nthree é");
    assert_ptr_equal(t->source, f);
    assert_int_equal(t->place.line, 5);
    assert_int_equal(t->place.column, 6);
    assert_memory_equal(f->text + t->begin, "tile linear", 11);
    assert_memory_equal(f->text + t->end - 3, "{\n}", 3);

    const ast_constant *c = t->constants;
    assert_true(!strcmp(c->name, "N") && !c->value && c->choices && !c->choices->next);
    c = c->next;
    assert_true(!strcmp(c->name, "BM") && c->value->integer == 16 && c->choices->next->next->integer == 32 &&
                !c->choices->next->next->next);
    c = c->next;
    assert_true(!strcmp(c->name, "T") && c->value->kind == AST_NAME && !c->choices);
    c = c->next;
    assert_true(!strcmp(c->name, "R") && c->value->op == TILE_DIV && c->place.line == 6 && c->place.column == 3 &&
                !c->next);

    static const struct {
        const char *name, *type;
        tile_param_kind kind;
        int rank;
    } params[] = {{"x", "T", TILE_IN, 2},
                  {"p", "i32", TILE_PARAM_LIVE, 0},
                  {"e", "f32", TILE_PARAM_ARG, 0},
                  {"y", "T", TILE_OUT, 1},
                  {"z", "q4_1", TILE_INOUT, 1}};
    const ast_param *p = t->params;
    for (size_t i = 0; i < COUNT_OF(params); i++, p = p->next) {
        int rank = 0;
        for (const ast_expr *e = p->extents; e; e = e->next) rank++;
        assert_true(!strcmp(p->name, params[i].name) && !strcmp(p->type, params[i].type) && p->kind == params[i].kind &&
                    rank == params[i].rank);
    }
    assert_null(p);
    assert_true(!strcmp(t->axes->name, "n") && !strcmp(t->axes->next->name, "m") && !t->axes->next->next);

    tile_step steps[TILE_STEPS];
    assert_int_equal(tile_equals(f, "linear", steps), 2);
    assert_int_equal(tile_equals(f, "other", steps), 0);
    assert_true(steps[0].output_count == 2 && !strcmp(steps[0].output[1], "b") && !strcmp(steps[0].program, "f") &&
                steps[0].input_count == 2);
    assert_true(steps[1].output_count == 1 && !strcmp(steps[1].program, "g") && !strcmp(steps[1].input[0], "a"));
    tile_file_free(f);
}

static void test_documentation(void **state) {
    (void)state;
    tile_file *f =
        parse_good("// far\n\ntile a(x: in f32[M]) over (i in 1) {} // behind\ntile b(x: in f32[M]) over (i in 1) {}\n"
                   "\t//tight\n\t///  three\r\n\ttile c(x: in f32[M]) over (i in 1) {} // not\n// yes\n//\n// "
                   "and\ntile d(x: in f32[M]) over (i in 1) {}\n"
                   "// f\nformat f { block 1; x: u8; value[i] = x }");
    assert_int_equal(tile_file_count(f), 4);
    assert_string_equal(tile_file_name(f, 0), "a");
    assert_string_equal(tile_file_name(f, 3), "d");
    assert_null(tile_file_name(f, 4));
    assert_string_equal(tile_file_doc(f, "a"), "");
    assert_string_equal(tile_file_doc(f, "b"), "");
    assert_string_equal(tile_file_doc(f, "c"), "tight\n three");
    assert_string_equal(tile_file_doc(f, "d"), "yes\n\nand");
    assert_string_equal(tile_file_doc(f, "none"), "");
    assert_int_equal(tile_file_format_count(f), 1);
    assert_string_equal(tile_file_format(f, 0)->name, "f");
    assert_string_equal(tile_file_format(f, 0)->body->doc, "f");
    assert_string_equal(tile_file_format(f, 0)->body->text, "format f { block 1; x: u8; value[i] = x }");
    assert_null(tile_file_format(f, 1));
    tile_file_free(f);
}

/* ---- examples --------------------------------------------------------------------------------------------------- */

/* The indented blocks of the language's reference that declare something whole. */
static void test_reference(void **state) {
    (void)state;
    char *docs = read_file("docs/language.md");
    int found = 0;
    text block = {0};
    for (const char *line = docs; *line;) {
        const char *end = strchr(line, '\n');
        const size_t length = end ? (size_t)(end - line) + 1 : strlen(line);
        const bool indented = !strncmp(line, "    ", 4);
        if (indented) text_append(&block, line + 4, length - 4);
        line += length;
        if (!indented || !*line) {
            const char *b = block.data ? block.data : "";
            if ((!strncmp(b, "//", 2) || !strncmp(b, "tile ", 5) || !strncmp(b, "format ", 7)) && !strstr(b, "...")) {
                tile_file_free(parse_good(b));
                found++;
            }
            block.length = 0;
            if (block.data) *block.data = 0;
        }
    }
    text_free(&block);
    free(docs);
    assert_true(found >= 2);
}

static void test_design(void **state) {
    (void)state;
    tile_file *f = parse_good("// y = x · wᵀ; w in any storage format, dense or quantised\n"
                              "tile linear[N, K, BM = 16, BN = 64, BK = 256, T = bf16, W = bf16]\n"
                              "    (x: in T[M, K], w: in W[N, K], y: out T[M, N])\n"
                              "    over (n in ceil(N / BN), m in ceil(M / BM))\n"
                              "    tune { BM in 8, 16, 64, 128; BN in 64, 128, 256; BK in 64, 128, 256 }\n"
                              "{\n"
                              "    acc: f32[BM, BN] = 0\n"
                              "    for k in stream(ceil(K / BK)) {\n"
                              "        acc += dot(x[m*BM : +BM, k*BK : +BK], w[n*BN : +BN, k*BK : +BK].T)\n"
                              "    }\n"
                              "    y[m*BM : +BM, n*BN : +BN] = T(acc)\n"
                              "}\n"
                              "format q4_1 { block 32; d: f16; m: f16; q: u4[32]; value[i] = d * q[i] + m }\n"
                              "format q8_0 { block 32; d: f16; q: i8[32]; value[i] = d * q[i] }\n");
    assert_int_equal(tile_file_count(f), 1);
    assert_int_equal(tile_file_format_count(f), 2);
    tile_file_free(f);
}

static void test_library(void **state) {
    (void)state;
    const tile_file *f, *again;
    mt_error e = {0};
    if (tile_library(&f, &e)) fail_msg("%s: %s", e.where, e.message);
    assert_int_equal(tile_library(&again, NULL), MT_OK);
    assert_ptr_equal(f, again);
    assert_true(tile_file_count(f) > 0 && tile_file_format_count(f) > 0);
    for (const ast_tile *t = f->tiles; t; t = t->next) {
        if (!*t->doc) fail_msg("%s has no documentation", t->name);
        assert_memory_equal(t->source->text + t->begin, "tile ", 5);
        for (const ast_tile *u = t->next; u; u = u->next)
            if (!strcmp(t->name, u->name)) fail_msg("%s is in %s and in %s", t->name, t->source->path, u->source->path);
    }
    for (size_t i = 0; i < tile_file_format_count(f); i++) {
        const tile_format *format = tile_file_format(f, i);
        if (!*format->body->doc) fail_msg("%s has no documentation", format->name);
        assert_ptr_equal(tile_format_find(format->name), format); /* no other has its name */
        assert_ptr_equal(tile_file_find_format(f, format->name), format);
    }
    assert_null(tile_format_find("q4_9"));
    assert_string_equal(tile_format_find("e4m3")->name, "e4m3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expressions),   cmocka_unit_test(test_statements), cmocka_unit_test(test_header),
        cmocka_unit_test(test_documentation), cmocka_unit_test(test_reference),  cmocka_unit_test(test_design),
        cmocka_unit_test(test_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
