/* The binder: types and shapes of expressions, statements, folding, constants, what makes two ops the same, the
 * library, limits and hostile text. test_bind_errors.c has what is refused. */
#include "bound_op.h"

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
        {"bool(-2)", "bool", "false"},
        {"bool(0.5)", "bool", "false"},
        {"bool(0.6)", "bool", "true"},
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
        {"T(f32(h[m]))", "bf16[8]", "h[m, :]"},                /* nothing was lost on the way */
        {"f64(f32(big[m]))", "f64[8]", "f64(f32(big[m, :]))"}, /* bits were */
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
        if (cases[i][2] && strcmp(t.data, cases[i][2]))
            fail_msg("%s is printed as %s, not %s", cases[i][0], t.data, cases[i][2]);
        text_free(&t);
        arena_free(a);
    }
}

static void test_statements(void **state) {
    (void)state;
    arena *a = arena_new();
    const tile_op *op =
        bind_body(a, "acc: f32[4, N] = 0\n"
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
                     "yi[k] = 2; yi[k : +2] = iota(2); y[m] = f32(q[0, 0 : +8])");
    static const char *const expected[] = {"acc: f32[4, 8] = f32[4, 8](0.0)",
                                           "s: f32 = 1.0",
                                           "t: bf16[8] = h[m, :]",
                                           "q: q8_0[8, 64] = w[:, :]",
                                           "for j in stream(ceil(M / 4)) {",
                                           "    acc = acc + x[j * 4 : +4, :]",
                                           "    acc = acc * 2.0",
                                           "    acc = acc - x[m, :]",
                                           "    inner: i64 = j + 1",
                                           "    if inner == 3 and k > 0 {",
                                           "        s = e",
                                           "    } else {",
                                           "        if pos > 2 {",
                                           "            s = 0.0",
                                           "        } else {",
                                           "            s = s * s",
                                           "        }",
                                           "    }",
                                           "}",
                                           "for j in k .. i64(ids[m]) {",
                                           "    acc = f32[4, 8](x[j, :])",
                                           "}"};
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

/* ---- folding ---- */

static int64_t floored(int64_t a, int64_t b) {
    const double q = (double)a / (double)b;
    const int64_t down = (int64_t)q;
    return (double)down > q ? down - 1 : down;
}

static void test_folding(void **state) {
    (void)state;
    /* Every operation on small numbers, each as the extent of a tile, 1000 added to keep it positive. */
    static const char *const operators[] = {
        "+", "-", "*", "/", "%", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "ceil", "min", "max"};
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
                case '+':
                    v = a + b;
                    break;
                case '-':
                    v = a - b;
                    break;
                case '*':
                    v = a * b;
                    break;
                case '/':
                    v = floored(a, b);
                    break;
                case '%':
                    v = a - b * floored(a, b);
                    break;
                case '&':
                    v = a & b;
                    break;
                case '|':
                    v = a | b;
                    break;
                case '^':
                    v = a ^ b;
                    break;
                case '=':
                    v = a == b;
                    break;
                case '!':
                    v = a != b;
                    break;
                case '<':
                    v = op[1] ? a <= b : a < b;
                    break;
                case '>':
                    v = op[1] ? a >= b : a > b;
                    break;
                case 'c':
                    v = -floored(-a, b);
                    break;
                default:
                    v = !strcmp(op, "min") ? (a < b ? a : b) : a > b ? a : b;
                    break;
                }
                text_printf(&body, "v%d = iota(1000 + ", count);
                if (!strcmp(op, "ceil"))
                    text_printf(&body, "ceil(%d / %d))\n", a, b);
                else if (op[0] == 'm')
                    text_printf(&body, "%s(%d, %d))\n", op, a, b);
                else if (strchr("=!<>", op[0]))
                    text_printf(&body, "where(%d %s %d, 1, 0))\n", a, op, b);
                else
                    text_printf(&body, "(%d %s %d))\n", a, op, b);
                expected[count++] = 1000 + v;
            }
        arena *a = arena_new();
        const tile_op *bound = bind_body(a, body.data);
        for (int i = 0; i < count; i++)
            if (bound->variables[i].shape.extent[0] != expected[i])
                fail_msg("%s, case %d: %" PRId64, op, i, bound->variables[i].shape.extent[0]);
        arena_free(a);
        text_free(&body);
    }
    static const struct {
        const char *source;
        int64_t value;
    } cases[] = {
        {"1 << 3", 8},
        {"-16 >> 2 & 15", 12},
        {"abs(-7)", 7},
        {"N * 2 - N / 3", 14},
        {"where(N == 8 and not (N > 9 or false), 5, 6)", 5},
        {"i32(7) * i32(3)", 21},
        {"u32(7) / 2", 3},
        {"9223372036854775807 - 9223372036854775800", 7},
        {"max(min(3, 9), 2)", 3},
        {"-(-9)", 9},
        {"i32(2.5 + 0.6)", 3},
        {"i32(1.0 / 3 * 9)", 3},
        {"ceil(N / 3)", 3},
        {"ceil(-N / 3) + 9", 7},
        {"N % -3 + 9", 8},
        {"where(1.5 > 1, 2, 3)", 2},
        {"where(true == (N < 3), 2, 3)", 3},
        {"(N | 1) ^ 2", 11},
        {"2 - -3", 5},
        {"where(-inf < 0, 4, 5)", 4},
        {"i64(i32(5))", 5},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char body[256];
        snprintf(body, sizeof body, "v = iota(%s)", cases[i].source);
        arena *a = arena_new();
        const tile_op *op = bind_body(a, body);
        if (op->variables[0].shape.extent[0] != cases[i].value)
            fail_msg("%s: %" PRId64, cases[i].source, op->variables[0].shape.extent[0]);
        arena_free(a);
    }
}

/* ---- constants, signatures, identity ---- */

static const char sized[] = "// doc\n"
                            "tile scale[N, T = bf16, BM = 16, BN = BM * 2, W = T, Q](x: in T[M, N], w: in W[N],\n"
                            "    q: in Q[M + 1, 2 * N], n: live i32,\n"
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
    static const char *const names[] = {"N", "T", "BM", "BN", "W", "Q"}, *const types[] = {NULL, "bf16", NULL,
                                                                                           NULL, "bf16", NULL};
    static const int64_t values[] = {INT64_MIN, 0, 16, 32, 0, INT64_MIN};
    for (int i = 0; i < 6; i++) {
        assert_string_equal(k[i].name, names[i]);
        assert_int_equal(k[i].value, values[i]);
        assert_true(types[i] ? k[i].type && is(k[i].type, types[i]) : !k[i].type);
    }
    int64_t choices[4] = {-1, -1, -1, -1};
    assert_int_equal(tile_tune(f, "scale", "BM", choices, 2), 2); /* what depends on N is not known */
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
    static const struct {
        const char *program;
        tile_constant constants[4];
        size_t count;
        const char *message;
    } cases[] = {
        {"zz", {{0}}, 0, "there is no tile program zz in t.tile"},
        {"scale", {{0}}, 0, "tile program scale needs a value for its constant N"},
        {"scale", {{"N", 8, NULL}}, 1, "tile program scale needs a value for its constant Q"},
        {"scale", {{"N", 8, NULL}, {"ZZ", 8, NULL}}, 2, "there is no constant ZZ in tile program scale"},
        {"scale", {{"N", 8, NULL}, {"N", 8, NULL}}, 2, "constant N is given twice"},
        {"scale",
         {{"N", 8, NULL}, {"Q", 8, NULL}},
         2,
         "constant Q of tile program scale is a type, but an integer was given"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        arena *a = arena_new();
        const tile_op *op = (const tile_op *)&i;
        mt_error e = {0};
        assert_int_equal(tile_bind(a, &op, f, cases[i].program, cases[i].constants, cases[i].count, NULL, &e),
                         MT_E_ARGUMENT);
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
    assert_true(op->constants[0].value == 64 && op->constants[1].type == f16 && op->constants[2].value == 16 &&
                op->constants[3].value == 7 && op->constants[4].type == f16 && op->constants[5].type == q8);
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
    assert_int_equal(tile_bind(a, &op, h2, "f", &(tile_constant){"V", 0, tile_format_find("q8_0")}, 1, NULL, &e),
                     MT_E_SYNTAX);
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
        if (tile_bind(a, &op, f, name, k, (size_t)count, &d, &e))
            fail_msg("%s: %s\n%s", name, e.message, d.text.data ? d.text.data : "");
        check_twice(op);
        arena_free(a);
    }
}

static void test_limits(void **state) {
    (void)state;
    text t = {0};
    text_string(&t, "tile t(y: out f32[M]) over (i in M) {\n");
    for (int v = 0; v < 1024; v++) text_printf(&t, "v%d = %s%d\n", v, v % 7 ? "v" : "", v % 7 ? v - 1 : v);
    text_string(&t, "}\n");
    arena *a = arena_new();
    const tile_op *op;
    tile_diagnostics d = {0};
    if (bind_text(a, &op, t.data, NULL, 0, &d, NULL)) fail_msg("%s", d.text.data);
    check_twice(op);
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
    arena_free(a);
}

static uint64_t next_random(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    return *x ^= *x << 17;
}

/* Programs of the library with words exchanged: whatever is accepted must be a sound tree. */
static void test_hostile(void **state) {
    (void)state;
    static const char *const words[] = {"m",       "x",
                                        "w",       "0",
                                        "1",       "N",
                                        "K",       "T",
                                        "(",       ")",
                                        "[",       "]",
                                        "+",       "*",
                                        "/",       ",",
                                        ":",       "f32",
                                        "sum",     "dot",
                                        "where",   "1.5",
                                        "iota",    "-",
                                        "==",      ".T",
                                        "max",     ":+4",
                                        "=",       "+=",
                                        "true",    "q8_0",
                                        "u4",      "pos",
                                        "M",       "concat",
                                        "reshape", "9223372036854775807",
                                        "<",       "y",
                                        "acc",     "axis=1",
                                        "%",       ">>",
                                        "and",     "not",
                                        "ceil",    "<4",
                                        "i32",     "\n",
                                        "k"};
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
            if (tile_file_count(changed) &&
                !tile_bind(a, &op, changed, tile_file_name(changed, 0), k, (size_t)count, &d, NULL)) {
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
        cmocka_unit_test(test_types),   cmocka_unit_test(test_statements), cmocka_unit_test(test_folding),
        cmocka_unit_test(test_queries), cmocka_unit_test(test_arguments),  cmocka_unit_test(test_identity),
        cmocka_unit_test(test_library), cmocka_unit_test(test_limits),     cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
