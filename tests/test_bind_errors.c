/* What the binder refuses: every error with its place and its words, and that one neither hides others nor makes new
 * ones. */
#include "bound_op.h"

/* ---- what is refused ---- */

static int failures; /* of refuse; a test asserts none at its end, so that all are seen */

/* Removes the marks '@' from a text and reports it: every mark is where an error is expected, and the messages, in the
 * order of the marks, are those given, each ended by a new line. */
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
        {"v = @bits(h[m])", "bits works on f32 and u32, not on bf16; cast it, as in bits(f32(x))"},
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
        {"v = x[m : +4] @+ x[m : +3]",
         "the shapes [4, 8] and [3, 8] do not fit: aligned at the right, extents must be equal or 1"},
        {"v = x[m : +4] @* f32(iota(4))",
         "the shapes [4, 8] and [4] do not fit: aligned at the right, extents must be equal or 1"},
        {"v = reshape(iota(65536), 65536, 1) @+ iota(65536)",
         "a tile of shape [65536, 65536] is too large: at most 16777216 elements"},
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
        {"v = @where(iota(3) < 1, x[m], x[m])",
         "the shapes [3] and [8] do not fit: aligned at the right, extents must be equal or 1"},
        {"v = @dot(x[m : +4], x[m : +4])", "dot needs shapes [m, k] and [k, n], not [4, 8] and [4, 8]"},
        {"v = @dot(x[m], x[m : +4].T)", "dot needs shapes [m, k] and [k, n], not [8] and [8, 4]"},
        {"v = @dot(x[m : +4], u[m : +4].T)",
         "dot multiplies floats and block formats, or integers of up to 8 bits, not f32 and u8"},
        {"v = @dot(reshape(iota(4), 2, 2), reshape(iota(4), 2, 2))",
         "dot multiplies floats and block formats, or integers of up to 8 bits, not i32 and i32"},
        {"v = iota(@m)", "a tile's extent must be a constant integer"},
        {"v = iota(@0)", "a tile's extent is 0; expected 1 to 16777216"},
        {"v = @reshape(x[m], 3, 3)", "reshape keeps the number of elements: [8] has 8, [3, 3] has 9"},
        {"v = @concat(x[m], x[m])", "concat needs an axis, as in concat(a, b, axis = 1)"},
        {"v = @concat(1, 2, axis = 0)", "concat needs tiles, not scalars"},
        {"v = @concat(w, w, axis = 0)", "concat works on elements, not on block formats; cast them, as in f32(x)"},
        {"v = concat(x[m], @h[m], axis = 0)",
         "concat along axis 0 needs equal types and equal other extents, not f32[8] and bf16[8]"},
        {"v = concat(m3[m], x[m : +4]@[:, 0 : +7], axis = 0)",
         "concat along axis 0 needs equal types and equal other extents, not f32[4, 8] and f32[4, 7]"},
        {"v = @W(x[m])", "nothing can be cast to the block format q8_0"},
        {"v = @bf16(w)", "the block format q8_0 can be cast to f32 only: write bf16(f32(x))"},
        {"v = @f32(x[m], x[m])", "a cast takes one value, as in f32(x)"},
        {"v = @f32[2, 3](x[m])", "a value of shape [8] does not fit a tile of shape [2, 3]"},
        {"v = @f32[8, 1](x[m])", "a value of shape [8] does not fit a tile of shape [8, 1]"},
        {"v = f32[@m](0)", "a tile's extent must be a constant integer"},
        {"v = f32[1, 1, 1, 1, 1, @1](0)", "a tile has at most 5 dimensions"},
        {"v = x[m]@.T", ".T needs a tile of two or more dimensions, not one of shape [8]"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) refuse(cases[i][0], cases[i][1]);
    refuse("v = u8(@300)", "300 does not fit in u8");
    refuse("v = @reshape(x[m], 8, 1, 1, 1, 1, 1)", "reshape takes 2 to 6 arguments, not 7");
    refuse("v = concat(x[m : +4], m3[m], x[0 : +4]@[0 : +3], axis = 1)",
           "concat along axis 1 needs equal types and equal other extents, not f32[4, 8] and f32[3, 8]");
    refuse("v = u64(@1e19)", "1e+19 is too large for a constant: at most 2^63 - 1");
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
        {"v = x[@reshape(iota(4), 2, 2)]",
         "an index must be a scalar or an i32 or i64 tile of one dimension, not i32[2, 2]"},
        {"v = x[@f32(iota(4))]", "an index must be a scalar or an i32 or i64 tile of one dimension, not f32[4]"},
        {"v = x[@iota(4) : +4]", "a slice's start must be a scalar of type i64 or i32, not i32[4]"},
        {"v = x[m : +@m]", "a slice's size must be a constant integer"},
        {"v = x[m : +@0]", "a slice's size is 0; expected 1 to 16777216"},
        {"v = x[m : +4 < @e]", "a slice's end must be a scalar of type i64 or i32, not f32"},
        /* block formats */
        {"v = w[0, @0]", "q8_0 is stored in blocks of 32; slice its last dimension with start : +size"},
        {"v = w[0, @iota(4)]", "q8_0 is stored in blocks of 32; slice its last dimension with start : +size"},
        {"v = w[0, 0 : +@16]", "q8_0 is stored in blocks of 32; the size of a slice of it must be a multiple, not 16"},
        {"v = w[0, @16 : +32]",
         "q8_0 is stored in blocks of 32; the slice's start must be a multiple of 32 that can be seen, as in i*32"},
        {"v = w[0, @m : +32]",
         "q8_0 is stored in blocks of 32; the slice's start must be a multiple of 32 that can be seen, as in i*32"},
        {"v = w[0, 0 : +32 < @k]",
         "q8_0 is stored in blocks of 32; the slice's end must be a multiple of 32 that can be seen, as in i*32"},
        {"o = m * 32\nif k == 1 { o = 1 }\nv = w[0, @o : +32]",
         "q8_0 is stored in blocks of 32; the slice's start must be a multiple of 32 that can be seen, as in i*32"},
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
    for (size_t i = 0; i < COUNT_OF(cases); i++) refuse(cases[i][0], cases[i][1]);
    refuse("v = x[m, 0][@0]", "this tile has 0 dimensions, and this is one item more");
    refuse("v = x[x@[0, 0]]", "an index must be a scalar of type i64 or i32, not f32");
    refuse("v = @x[m : +16777216]", "a tile of shape [16777216, 8] is too large: at most 16777216 elements");
    assert_int_equal(failures, 0);

    /* Starts that are multiples of the block, and can be seen to be. */
    static const char *const good[] = {
        "m * 32",
        "32 * m + k * 64",
        "-(m * 32)",
        "m * 8 * k * 4",
        "(m * 8 + k * 16) * 4",
        "m << 5",
        "(m << 3) * 4",
        "max(m * 32, k * 96)",
        "where(k == 1, m * 32, 64)",
        "m * 96 % (k * 32)",
        "m * 64 & 96",
        "m & 32",
        "m & -32",
        "m * 32 | k * 64",
        "(m + 1) * 32 - 32",
        "i32(m * 32) + 32",
        "ids[m] * 32",
        "abs(m * 32 - k * 64)",
        "m / 32 * 32",
        "o",
        "o * 3 + K2",
        "K2 - 64",
        "0",
        "-64",
    };
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        text t = {0};
        text_printf(
            &t,
            "tile t(w: in q8_0[M, K2], ids: in i32[M], y: out f32[M, 32]) over (m in M, k in 4) {\n    o = m * 32\n"
            "    y[m] = f32(w[m, %s : +32 < %s])\n}\n",
            good[i], good[i]);
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
        {"v: W[2, 8, 64] = @w", "values of the block format q8_0 cannot be stretched from [8, 64] to [2, 8, 64]; "
                                "cast them first, as in f32(x)"},
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
         "zz is not known\nyy is not known\nan index must be a scalar of type i64 or i32, not f32\n"
         "y is f32, the value is bf16; cast it, as in f32(x)"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) refuse(cases[i][0], cases[i][1]);
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
        {"tile t(x: in f32[1 @<< 41]) over (i in 4) { v = x[0] }",
         "this extent is 2199023255552; expected 1 to 1099511627776"},
        {"tile t(x: in q8_0[@48]) over (i in 4) { v = x }",
         "q8_0 is stored in blocks of 32, so that its last extent must be a multiple, not 48"},
        {"tile t(x: in f32[4]) over (i in @x[0]) { v = x }",
         "x is a tensor; extents and the grid are computed from constants, extents, args and live values"},
        {"tile t(x: in i32[4]) over (i in @x) { v = x }",
         "x is a tensor; extents and the grid are computed from constants, extents, args and live values"},
        {"tile t(x: in f32[4], e: arg f32) over (i in i32(@e)) { v = x }",
         "e is an f32; extents and the grid are computed from integers"},
        {"tile t(x: in f32[M]) over (i in @1.5) { v = x[0] }",
         "the count of a grid axis must be a scalar of type i64 or i32, not f32"},
        {"tile t(x: in f32[M]) over (i in @i32(f32(M))) { v = x[0] }",
         "the count of a grid axis is computed with integers from constants, extents, args and live values only"},
        {"tile t(x: in f32[M]) over (i in iota(4)@[0]) { v = x[0] }",
         "the count of a grid axis is computed with integers from constants, extents, args and live values only"},
        {"tile t(x: in f32[M]) over (i in 4, j in @i) { v = x[0] }", "i is not known"},
        {"tile t(x: in f32[2 * @M]) over (i in 4) { v = x[0] }", "M is not known"},
        {"tile t(x: in f32[M]) over (@M in 4) { v = x[0] }", "M is an extent already; choose another name"},
        {"tile t[A = @B, B = 3](x: in f32[A]) over (i in 4) { v = x[0] }", "B is not known"},
        {"tile t[A = @1.5](x: in f32[A]) over (i in 4) { v = x[0] }",
         "a constant's default must be a constant integer"},
        {"tile t[A = 1 / @0](x: in f32[A]) over (i in 4) { v = x[0] }", "this is a division by zero"},
        {"tile t[A = 3](x: in f32[A]) over (i in 4) tune { A in 1, @M, @1.5, 2 * A } { v = x[0] }",
         "M is not known\na choice of tune must be a constant integer"},
        {"tile t[@f32 = 3](x: in bf16[4]) over (i in 4) { v = x[0] }", "f32 is a type; choose another name"},
        {"tile t(@bf16: in f32[4]) over (i in 4) { v = 1 }", "bf16 is a type; choose another name"},
        {"tile t(x: in f32[@f32]) over (i in 4) { v = 1 }", "f32 is a type; a value is expected here"},
        {"tile t(x: in f32[A, B, C, D, E], y: in f32[F, G, H, I, J], z: in f32[K, L, M, N, O], "
         "a: in f32[P, Q, R, S, T], b: in f32[U, V, W, X, Y], "
         "c: in f32[A2, B2, C2, D2, E2], d: in f32[F2, G2, @H2]) over (i in 4) { v = 1 }",
         "a program has at most 32 free extents"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) refuse_whole(cases[i][0], cases[i][1], NULL, 0);
    refuse_whole("tile t[W](x: in f32[4]) over (i in 4) { v = @W(x) }", "W is a constant and an integer, not a type",
                 &(tile_constant){"W", 3, NULL}, 1);
    refuse_whole("tile t[N](x: in f32[@N]) over (i in 4) { v = x[0] }", "N is a type; a value is expected here",
                 &(tile_constant){"N", 0, tile_format_find("f32")}, 1);
    refuse_whole("tile t[@f32, W = f32](x: in W[4]) over (i in 4) { v = x }", "f32 is a type; choose another name",
                 (tile_constant[]){{"f32", 3, NULL}, {"W", 3, NULL}}, 2);
    assert_int_equal(failures, 0);
}

static void test_refused_limits(void **state) {
    (void)state;
    text t = {0}, expected = {0};
    text_string(&t, "tile t(y: out f32[M]) over (i in M) {\n");
    for (int v = 0; v < 1024; v++) text_printf(&t, "v%d = i\n", v);
    text_string(&t, "if i < 0 { @q = 1 } }\n");
    refuse_whole(t.data, "a program has at most 1024 variables", NULL, 0);

    t.length = 0;
    text_string(&t, "tile t(y: out f32[M]) over (i in M) {\n");
    for (int v = 0; v < 300; v++) text_printf(&t, "%sfor j in 3 { y[j] = 0 }\n", v < 256 ? "" : "@");
    text_string(&t, "}\n");
    for (int v = 0; v < 44; v++) text_string(&expected, "a program has at most 256 loops\n");
    refuse_whole(t.data, expected.data, NULL, 0);
    text_free(&t);
    text_free(&expected);
    assert_int_equal(failures, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_expressions), cmocka_unit_test(test_refused_slices),
        cmocka_unit_test(test_refused_statements),  cmocka_unit_test(test_refused_headers),
        cmocka_unit_test(test_refused_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
