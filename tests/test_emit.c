/* The emitter: compiled code against the interpreter (tile_interpreter.h), over the cases of emit_cases.h and random
 * programs; and against itself: rows and chunks of rows have the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "emit_cases.h"
#include "emit_random.h"
#include "emit/emit_internal.h"

/* The machine's own target; the others show the narrower and the portable paths of the prelude. */
static target targets[] = {
    {"cc", "", false, NULL, NULL},
    {"cc", "-O1 -march=x86-64", true, NULL, NULL},
    {"cc", "-O1 -march=haswell", true, NULL, NULL},
    {"clang", "-O1", false, NULL, NULL},
};
static int target_count = COUNT_OF(targets);
static const char SMALL[] = "dot packed reduce gather group softmax library names e8m0 rows function random";

/* ---- tests that compare emitted code with itself ---- */

static test_case *case_named(const char *name) {
    for (int i = 0; i < case_count; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    fail_msg("no case %s", name);
    return NULL;
}

static const char *const ROW_FORMATS[] = {"f32", "f16", "bf16", "e4m3", "q4_1", "q5_0", "q6_k", "mxfp4"};

static void add_rows(void) {
    static char constants[2 * COUNT_OF(ROW_FORMATS)][80], tensors[COUNT_OF(ROW_FORMATS)][80];
    char name[96];
    for (size_t i = 0; i < COUNT_OF(ROW_FORMATS); i++) {
        /* blocks of 256 need a longer row than others; 1280 columns are more than one panel */
        snprintf(tensors[i], sizeof tensors[0], "x 64 1280; w 37 1280; y 64 37");
        for (int many = 0; many < 2; many++) {
            snprintf(constants[2 * i + (size_t)many], sizeof constants[0], "N=37 K=1280 BM=%d BN=%d BK=512 W=%s",
                     many ? 64 : 1, many ? 16 : 8, ROW_FORMATS[i]);
            snprintf(name, sizeof name, "rows %s %s", many ? "many" : "one", ROW_FORMATS[i]);
            add_case(name, "linear", constants[2 * i + (size_t)many], tensors[i], 1e-3);
        }
    }
    add_case("rows attention many", "attention", "H=4 HK=2 D=32 BM=16",
             "q 23 4 32; kc 100 2 32; vc 100 2 32; y 23 4 32", 1e-3)
        ->args[0] = 0.2;
    add_case("rows attention one", "attention", "H=4 HK=2 D=32 BM=1", "q 23 4 32; kc 100 2 32; vc 100 2 32; y 23 4 32",
             1e-3)
        ->args[0] = 0.2;
}

/* A row's result has the same bits alone and among 64, and with other tile sizes. */
static void test_rows(void **state) {
    (void)state;
    for (size_t f = 0; f < COUNT_OF(ROW_FORMATS); f++)
        for (int t = 0; t < target_count; t++) {
            char name[96];
            test_tensor tensors[CASE_TENSORS];
            cpu_tensor views[CASE_TENSORS];
            snprintf(name, sizeof name, "rows many %s", ROW_FORMATS[f]);
            const test_case *many = case_named(name);
            snprintf(name, sizeof name, "rows one %s", ROW_FORMATS[f]);
            const test_case *one = case_named(name);
            const int count = tensors_make(many, tensors);
            run_code(many, &targets[t], tensors, count);
            for (int64_t rows = 1; rows < 6; rows++) /* alone, or a few of them */
                for (int64_t i = 0; i + rows <= 64; i += 7) {
                    float y[6 * 37];
                    views_of(tensors, count, views);
                    views[0].data = (float *)views[0].data + i * views[0].stride[0];
                    views[0].extent[0] = views[2].extent[0] = rows;
                    views[2].data = y;
                    views[2].stride[0] = 37;
                    run_views(rows == 1 ? one : many, &targets[t], views);
                    for (int64_t r = 0; r < rows; r++)
                        assert_memory_equal(y + r * 37,
                                            (float *)tensors[2].view.data + (i + r) * tensors[2].view.stride[0],
                                            37 * sizeof(float));
                }
            tensors_free(tensors, count);
        }
}

/* Tokens give the same bits fed at once, in chunks and one by one. */
static void test_chunks(void **state) {
    (void)state;
    for (int t = 0; t < target_count; t++) {
        test_tensor tensors[CASE_TENSORS];
        cpu_tensor views[CASE_TENSORS];
        test_case *many = case_named("rows attention many"), *one = case_named("rows attention one");
        const int count = tensors_make(many, tensors);
        many->lives[0] = 61;
        run_code(many, &targets[t], tensors, count);
        for (int64_t rows = 1; rows < 12; rows += 3)
            for (int64_t i = 0; i + rows <= 23; i += rows) {
                float y[12][4][32];
                test_case *c = rows == 1 ? one : many;
                views_of(tensors, count, views);
                views[0].data = (float *)views[0].data + i * views[0].stride[0];
                views[0].extent[0] = views[3].extent[0] = rows;
                views[3] = (cpu_tensor){y, {rows, 4, 32}, {128, 32, 1}};
                c->lives[0] = 61 + (int32_t)i;
                run_views(c, &targets[t], views);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t h = 0; h < 4; h++)
                        assert_memory_equal(y[r][h],
                                            (float *)tensors[3].view.data + (i + r) * tensors[3].view.stride[0] +
                                                h * tensors[3].view.stride[1],
                                            sizeof y[0][0]);
            }
        tensors_free(tensors, count);
    }
}

/* A reshape keeps the order of the elements, so what a reshape of a reshape gives can be said without an interpreter.
 */
static void test_reshape(void **state) {
    (void)state;
    const test_case *c = case_named("reshape twice");
    for (int t = 0; t < target_count; t++) {
        test_tensor tensors[CASE_TENSORS];
        if (!entry_of(c, &targets[t])) continue;
        const int count = tensors_make(c, tensors);
        run_code(c, &targets[t], tensors, count);
        const cpu_tensor *y = &tensors[2].view, *w = &tensors[3].view;
        for (int i = 0; i < 128; i++) {
            const int row = i / 16 - 1, column = i % 16 - 2; /* of x, whose elements are numbered */
            const bool inside = row >= 0 && row < 7 && column >= 0 && column < 15;
            for (int j = 0; j < 8; j++)
                assert_int_equal(((int32_t *)y->data)[i / 32 * y->stride[0] + i % 32 * y->stride[1] + j],
                                 (inside ? row * 15 + column : 0) + j);
        }
        for (int i = 0; i < 33; i++)
            for (int j = 0; j < 2; j++)
                assert_int_equal(((int32_t *)w->data)[i * w->stride[0] + j], (1 + i / 3) * 5 + 2 + i % 3 + j);
        tensors_free(tensors, count);
    }
}

static void add_functions(void) {
    char source[256], name[96];
    for (size_t i = 3; i < COUNT_OF(F32_UNARY); i++) {
        const bool periodic = strstr(F32_UNARY[i], "sin") || strstr(F32_UNARY[i], "cos");
        snprintf(source, sizeof source,
                 "tile t(x: in f32[M], y: out f32[M]) over (r in ceil(M / 1000)) { v = x[r*1000 : +1000]; y[r*1000 : "
                 "+1000] = %s }",
                 F32_UNARY[i]);
        snprintf(name, sizeof name, "function %s", F32_UNARY[i]);
        add_case(name, source, "", periodic ? "x 300000 in -100000 100000; y 300000" : "x 300000 bits; y 300000", 0);
        snprintf(name, sizeof name, "function near zero %s", F32_UNARY[i]);
        add_case(name, source, "", "x 300000 in -7 7; y 300000", 0);
    }
}

/* Functions of f32 are within two units in the last place of the true value (the interpreter's is rounded once). */
static void test_functions(void **state) {
    (void)state;
    for (int i = 0; i < case_count; i++)
        for (int t = 0; t < target_count && starts_with(&cases[i], "function"); t++) {
            test_tensor tensors[CASE_TENSORS], expected;
            if (!entry_of(&cases[i], &targets[t])) continue;
            const int count = tensors_make(&cases[i], tensors);
            run_code(&cases[i], &targets[t], tensors, count);
            tensor_copy(&expected, &tensors[1]);
            const test_tensor reference[2] = {tensors[0], expected};
            run_interpreter(&cases[i], reference, 2);
            for (int64_t k = 0; k < 300000; k++) {
                const float x = ((float *)tensors[0].view.data)[k], y = ((float *)tensors[1].view.data)[k],
                            z = ((float *)expected.view.data)[k];
                if (isnan(y) && isnan(z)) continue;
                const float unit = fmaxf(nextafterf(fabsf(z), INFINITY) - fabsf(z), 0x1p-149f);
                if (!(y == z || fabsf(y - z) <= 2 * unit))
                    fail_msg("%s (%s %s) of %a: %a, expected %a", cases[i].name, targets[t].compiler, targets[t].flags,
                             (double)x, (double)y, (double)z);
            }
            tensors_free(tensors, count);
            tensors_free(&expected, 1);
        }
}

/* Equal ops give equal text, and the text for people has the function in it. */
static void test_text(void **state) {
    (void)state;
    const tile_op *op = case_named("library attention")->op;
    text a = {0}, b = {0}, c = {0};
    assert_int_equal(emit_c(&a, &op, 1, NULL), MT_OK);
    assert_int_equal(emit_c(&b, &op, 1, NULL), MT_OK);
    assert_int_equal(emit_c_op(&c, op, NULL), MT_OK);
    assert_string_equal(a.data, b.data);
    assert_non_null(strstr(c.data, "static void attention("));
    assert_non_null(strstr(c.data, "products = dot(queries, f32(kc[j * 64 : +64 < pos + M, h, :]).T)"));
    text_free(&a);
    text_free(&b);
    text_free(&c);
    assert_int_equal(emit_c(&a, NULL, 0, NULL), MT_OK);
    assert_non_null(strstr(a.data, "mt_cpu_ops"));
    text_free(&a);
}

static int setup(void **state) {
    (void)state;
    add_elementwise();
    add_casts();
    add_packed();
    add_reductions();
    add_dots();
    add_slices();
    add_shapes();
    add_statements();
    add_rows();
    add_functions();
    /* More seeds look further: EMIT_SEEDS=first,count. */
    int first = 1, count = 60;
    if (getenv("EMIT_SEEDS")) sscanf(getenv("EMIT_SEEDS"), "%d,%d", &first, &count);
    for (int i = 0; i < count; i++) add_random((uint64_t)(first + i));
#if !defined __x86_64__
    target_count = 1;
#endif
    if (target_count > 1 && system("clang --version > /dev/null 2>&1")) target_count--;
    if (getenv("EMIT_TARGETS")) target_count = atoi(getenv("EMIT_TARGETS"));
    return build_cases(targets, target_count, SMALL) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    free_cases(targets, target_count);
    return 0;
}

/* All cases whose names begin with one of the words. */
static void check_group(const char *words) {
    int failed = 0, run = 0;
    for (int i = 0; i < case_count; i++) {
        if (!starts_with(&cases[i], words)) continue;
        for (int t = 0; t < target_count; t++) {
            char what[256];
            if (!entry_of(&cases[i], &targets[t])) continue;
            random_begin(&cases[i]);
            if (getenv("EMIT_TRACE"))
                fprintf(stderr, "%s (%s %s)\n", cases[i].name, targets[t].compiler, targets[t].flags);
            run++;
            if (check_case(&cases[i], &targets[t], what, sizeof what)) continue;
            failed++;
            print_message("%s (%s %s): %s\n", cases[i].name, targets[t].compiler, targets[t].flags, what);
        }
    }
    assert_true(run > 0);
    assert_int_equal(failed, 0);
}

static void test_elementwise(void **state) { (void)state, check_group("elementwise"); }
static void test_casts(void **state) { (void)state, check_group("cast"); }
static void test_packed(void **state) { (void)state, check_group("packed"); }
static void test_reductions(void **state) { (void)state, check_group("reduce"); }
static void test_dots(void **state) { (void)state, check_group("dot"); }
static void test_slices(void **state) { (void)state, check_group("slice gather live inout store five"); }
static void test_shapes(void **state) { (void)state, check_group("reshape transpose concat parts iota causal"); }
static void test_random(void **state) { (void)state, check_group("random"); }
static void test_statements(void **state) {
    (void)state, check_group("if for variables names e8m0 group softmax layer library");
}

/* What stands side by side in i64 is computed so, though short literals are ints in C. */
static void test_literals(void **state) {
    (void)state;
    arena *memory = arena_new();
    assert_non_null(memory);
    emit e = {.memory = memory};
    const tile_format *i64 = tile_format_find("i64"), *i32 = tile_format_find("i32");
    tile_node a = {.kind = TILE_CONST, .type = i64, .value.i = 65536},
              b = {.kind = TILE_CONST, .type = i64, .value.i = -65536}, v = {.kind = TILE_VAR, .type = i64},
              c = {.kind = TILE_CONST, .type = i32, .value.i = 7};
    const struct {
        tile_node n;
        const char *text;
    } all[] = {{{.op = TILE_MUL, .type = i64, .a = &a, .b = &b}, "((int64_t)65536 * (-65536))"},
               {{.op = TILE_ADD, .type = i64, .a = &a, .b = &v}, "(65536 + v)"},
               {{.op = TILE_ADD, .type = i64, .a = &v, .b = &a}, "(v + 65536)"},
               {{.op = TILE_SHL, .type = i64, .a = &a, .b = &v}, "mt_shl64((int64_t)65536, v)"},
               {{.op = TILE_ADD, .type = i32, .a = &c, .b = &c}, "(7 + 7)"}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const tile_node *x = all[i].n.a, *y = all[i].n.b;
        assert_string_equal(emit_operate(&e, &all[i].n, x == &v ? "v" : emit_literal(memory, x),
                                         y == &v ? "v" : emit_literal(memory, y)),
                            all[i].text);
    }
    arena_free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literals),  cmocka_unit_test(test_elementwise), cmocka_unit_test(test_casts),
        cmocka_unit_test(test_packed),    cmocka_unit_test(test_reductions),  cmocka_unit_test(test_dots),
        cmocka_unit_test(test_slices),    cmocka_unit_test(test_shapes),      cmocka_unit_test(test_statements),
        cmocka_unit_test(test_reshape),   cmocka_unit_test(test_rows),        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_functions), cmocka_unit_test(test_text),        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
