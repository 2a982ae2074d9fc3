/* The parser on what is wrong: every error is reported at its place, and hostile text does no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "tile_source.h"

/* ---- errors ----------------------------------------------------------------------------------------------------- */

/* clang-format off */
struct wrong { const char *source; int line, column; const char *message; };

/* In the body of a tile program; the line is that of the file. */
static const struct wrong wrong_statements[] = {
    {"v = ", 2, 4, "expected an expression, found the end of the line"},
    {"v = 1 +", 2, 8, "expected an expression, found the end of the line"},
    {"v = (1 + 2", 3, 1, "expected ')', found '}'"},
    {"v = [1]", 2, 5, "expected an expression, found '['"},
    {"v = x[0", 3, 1, "expected ']' or ',' in the slice, found '}'"},
    {"v = x[]", 2, 7, "expected an expression, found ']'"},
    {"v = x[0 : 4]", 2, 11, "expected '+' and a size behind ':', as in start : +size, found '4'"},
    {"v = x[0 : + ]", 2, 13, "expected an expression, found ']'"},
    {"v = x[0 : +4 <]", 2, 15, "expected an expression, found ']'"},
    {"v = x[:, 0 : +4 < 3 < 2]", 2, 21, "expected ']' or ',' in the slice, found '<'"},
    {"v = f(", 3, 1, "expected an expression, found '}'"},
    {"v = f()", 2, 7, "expected an expression, found ')'"},
    {"v = f(1,)", 2, 9, "expected an expression, found ')'"},
    {"v = f(1 2)", 2, 9, "expected ')' or ',' in the arguments, found '2'"},
    {"v = sum(x, axis = 1, axis = 2)", 2, 22, "the axis was given already"},
    {"v = sum(x, dim = 1)", 2, 16, "expected ')' or ',' in the arguments, found '='"},
    {"v = f32[2, :](x)", 2, 12, "expected an extent: what is called is a type with a shape, as in f32[2, 3](x)"},
    {"v = f32[0 : +2](x)", 2, 9, "expected an extent: what is called is a type with a shape, as in f32[2, 3](x)"},
    {"v = x.t", 2, 7, "expected 'T' (x.T is the transpose of x), found 't'"},
    {"v = x.", 2, 7, "expected 'T' (x.T is the transpose of x), found the end of the line"},
    {"v = 1 2", 2, 7, "expected an operator or the end of the statement (a new line or ';'), found '2'"},
    {"v = a < b < c", 2, 11, "comparisons are not chained; join two of them with 'and'"},
    {"v = a == b != c", 2, 12, "comparisons are not chained; join two of them with 'and'"},
    {"v = a + not b", 2, 9, "expected an expression, found 'not', which binds loosely: write (not ...)"},
    {"v = - not b", 2, 7, "expected an expression, found 'not', which binds loosely: write (not ...)"},
    {"v = 3x", 2, 5, "a number is followed by a letter; expected an operator between them"},
    {"v = 0x", 2, 5, "a number is followed by a letter; expected an operator between them"},
    {"v = 0xg", 2, 5, "a number is followed by a letter; expected an operator between them"},
    {"v = 0xfffffffffffffffff", 2, 5, "this integer does not fit in 64 bits"},
    {"v = 9223372036854775808", 2, 5, "this integer does not fit in 64 bits"},
    {"v = 1e999", 2, 5, "this number is larger than a 64-bit float can be"},
    {"v = 1.", 2, 7, "expected 'T' (x.T is the transpose of x), found the end of the line"},
    {"v = .5", 2, 5, "expected an expression, found '.'"},
    {"v = a && b", 2, 8, "expected an expression, found '&'"},
    {"v = !a", 2, 5, "this character has no meaning in the tile language"},
    {"v = a ? b : c", 2, 7, "this character has no meaning in the tile language"},
    {"v = \"text\"", 2, 5, "this character has no meaning in the tile language"},
    {"v = 'c'", 2, 5, "this character has no meaning in the tile language"},
    {"v = \303\244", 2, 5, "characters outside ASCII are allowed in comments only"},
    {"v = a # b", 2, 7, "this character has no meaning in the tile language"},
    {"v == 1", 2, 3, "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found '=='"},
    {"v", 2, 2, "expected '=' behind the name, found the end of the line"},
    {"v: ", 2, 3, "expected a type, found the end of the line"},
    {"v: f32[2] ", 2, 10, "expected '=' and the first value, found the end of the line"},
    {"v: f32[] = 0", 2, 8, "expected an expression, found ']'"},
    {"v: f32[2 = 0", 2, 10, "expected ']' or ',' in the shape, found '='"},
    {"v: f32[2] += 1", 2, 11, "expected '=' and the first value, found '+='"},
    {"v -= ", 2, 5, "expected an expression, found the end of the line"},
    {"v /= 2", 2, 3, "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found '/'"},
    {"x[0] -= 1", 2, 6, "expected '=' or '+=' behind a slice of a tensor"},
    {"x[0] *= 1", 2, 6, "expected '=' or '+=' behind a slice of a tensor"},
    {"x[0]", 2, 5, "expected '=' or '+=' behind the slice, found the end of the line"},
    {"x[0] == 1", 2, 6, "expected '=' or '+=' behind the slice, found '=='"},
    {"x[0 = 1", 2, 5, "expected ']' or ',' in the slice, found '='"},
    {"1 = v", 2, 1, "expected a statement, found '1'"},
    {"(v) = 1", 2, 1, "expected a statement, found '('"},
    {"x.T = 1", 2, 2, "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found '.'"},
    {"f(v)", 2, 2, "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found '('"},
    {"f32(v) = 2", 2, 4, "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found '('"},
    {"for", 2, 4, "expected the name of the loop's variable, found the end of the line"},
    {"for 3 in 4 {}", 2, 5, "expected the name of the loop's variable, found '3'"},
    {"for k 4 {}", 2, 7, "expected 'in' behind the loop's variable, found '4'"},
    {"for k in {}", 2, 10, "expected an expression, found '{'"},
    {"for k in 3", 2, 11, "expected '{', found the end of the line"},
    {"for k in 3 ... 4 {}", 2, 14, "expected an expression, found '.'"},
    {"for k in 1 .. {}", 2, 15, "expected an expression, found '{'"},
    {"for k in stream 3 {}", 2, 17, "expected '(' behind 'stream', found '3'"},
    {"for k in stream(3 {}", 2, 19, "expected ')' behind the range, found '{'"},
    {"for k in stream(3) v = 1", 2, 20, "expected '{', found 'v'"},
    {"for for in 3 {}", 2, 5, "expected the name of the loop's variable, found 'for'"},
    {"if {}", 2, 4, "expected an expression, found '{'"},
    {"if a v = 1", 2, 6, "expected '{', found 'v'"},
    {"if a { v = 1 } else v = 2", 2, 21, "expected '{', found 'v'"},
    {"else {}", 2, 1, "expected a statement, found 'else'"},
    {"if a {} else if {}", 2, 17, "expected an expression, found '{'"},
    {")", 2, 1, "expected a statement, found ')'"},
    {"]", 2, 1, "expected a statement, found ']'"},
    {":", 2, 1, "expected a statement, found ':'"},
    {"in = 3", 2, 1, "expected a statement, found 'in'"},
    {"tune = 3", 2, 1, "expected a statement, found 'tune'"},
    {"not = 3", 2, 1, "expected a statement, found 'not'"},
    {"return v", 2, 8, "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found 'v'"},
    {"while v < 3 { v = 1 }", 2, 7, "expected '=', ':', '[', '+=', '-=' or '*=' behind the name, found 'v'"},
    {"v = tile", 2, 5, "expected an expression, found 'tile'"},
    {"v = a.b.c", 2, 7, "expected 'T' (x.T is the transpose of x), found 'b'"},
    {"v = x[tile]", 2, 7, "expected an expression, found 'tile'"},
    {"v = 1; ; w = ]", 2, 14, "expected an expression, found ']'"},
};

/* Whole files. */
static const struct wrong wrong_files[] = {
    {"x", 1, 1, "expected 'tile' or 'format', found 'x'"},
    {"tile", 1, 5, "expected the name of the tile program, found the end of the file"},
    {"tile 3", 1, 6, "expected the name of the tile program, found '3'"},
    {"tile t", 1, 7, "expected '(' and the parameters, found the end of the file"},
    {"tile t[", 1, 8, "expected the name of a constant, found the end of the file"},
    {"tile t[N](", 1, 11, "expected the name of a parameter, found the end of the file"},
    {"tile t[N = ](x: in f32[N]) over (i in 1) {}", 1, 12, "expected an expression, found ']'"},
    {"tile t[3](x: in f32[N]) over (i in 1) {}", 1, 8, "expected the name of a constant, found '3'"},
    {"tile t() over (i in 1) {}", 1, 8, "expected the name of a parameter, found ')'"},
    {"tile t(x) over (i in 1) {}", 1, 9, "expected ':' behind the parameter's name, found ')'"},
    {"tile t(x: f32[M]) over (i in 1) {}", 1, 11, "expected 'in', 'out', 'inout', 'arg' or 'live', found 'f32'"},
    {"tile t(x: in) over (i in 1) {}", 1, 13, "expected a type, found ')'"},
    {"tile t(x: in f32) over (i in 1) {}", 1, 17, "expected '[' and the tensor's extents, found ')'"},
    {"tile t(x: in f32[]) over (i in 1) {}", 1, 18, "expected an expression, found ']'"},
    {"tile t(x: in f32[:]) over (i in 1) {}", 1, 18, "expected an expression, found ':'"},
    {"tile t(x: in f32[1, 2, 3, 4, 5, 6]) over (i in 1) {}", 1, 17, "a tensor has up to 5 dimensions, this one has 6"},
    {"tile t(x: arg f32[3]) over (i in 1) {}", 1, 18, "expected ')' or ',' in the parameters, found '['"},
    {"tile t(x: in f32[M]) {}", 1, 22, "expected 'over' and the grid's axes, as in over (i in n), found '{'"},
    {"tile t(x: in f32[M]) over {}", 1, 27, "expected '(' and the grid's axes, found '{'"},
    {"tile t(x: in f32[M]) over () {}", 1, 28, "expected the name of a grid axis, found ')'"},
    {"tile t(x: in f32[M]) over (i) {}", 1, 29, "expected 'in' behind the name of the axis, found ')'"},
    {"tile t(x: in f32[M]) over (i in) {}", 1, 32, "expected an expression, found ')'"},
    {"tile t(x: in f32[M]) over (i in 1)", 1, 35,
     "expected '{' and the program's statements, found the end of the file"},
    {"tile t(x: in f32[M]) over (i in 1) {", 1, 37, "expected '}' for the '{' of line 1, found the end of the file"},
    {"tile t(x: in f32[M]) over (i in 1) {}}", 1, 38, "expected 'tile' or 'format', found '}'"},
    {"tile t(x: in f32[M]) over (i in 1) {} x", 1, 39, "expected 'tile' or 'format', found 'x'"},
    {"tile t(x: in f32[M], x: out f32[M]) over (i in 1) {}", 1, 22,
     "'x' is declared twice; the other one is on line 1"},
    {"tile t[N](N: in f32[M]) over (i in 1) {}", 1, 11, "'N' is declared twice; the other one is on line 1"},
    {"tile t(x: in f32[M]) over (x in 1) {}", 1, 28, "'x' is declared twice; the other one is on line 1"},
    {"tile t(x: in f32[M]) over (i in 1, i in 2) {}", 1, 36, "'i' is declared twice; the other one is on line 1"},
    {"tile t[N, N](x: in f32[M]) over (i in 1) {}", 1, 11, "'N' is declared twice; the other one is on line 1"},
    {"tile t(x: in f32[M]) over (i in 1) {}\ntile t(x: in f32[M]) over (i in 1) {}", 2, 6,
     "'t' is declared twice; the other one is on line 1"},
    {"tile t(x: in f32[M]) over (i in 1) {}\nformat t { block 1; x: u8; value[i] = x }", 2, 8,
     "'t' is declared twice; the other one is on line 1"},
    {"tile t[N](x: in f32[M]) over (i in 1) tune {N} {}", 1, 46, "expected 'in' and the values to try, found '}'"},
    {"tile t[N](x: in f32[M]) over (i in 1) tune {M in 1} {}", 1, 45, "'M' is no constant of this tile program"},
    {"tile t[N](x: in f32[M]) over (i in 1) tune {N in 1; N in 2} {}", 1, 53, "the choices for 'N' were given already"},
    {"tile t[N](x: in f32[M]) over (i in 1) tune {N in 1, } {}", 1, 53, "expected an expression, found '}'"},
    {"tile t[N](x: in f32[M]) over (i in 1) tune N in 1 {}", 1, 44, "expected '{' behind 'tune', found 'N'"},
    {"tile t[N](x: in f32[M]) over (i in 1) tune {N in 1", 1, 51,
     "expected '}' behind the last of them, found the end of the file"},
    {"tile t(x: in f32[M]) over (a in 1, b in 1, c in 1, d in 1, e in 1, f in 1) {}", 1, 68, "a grid has up to 5 axes"},
    {"tile t(x: in f32[M]) over (i in 1) equals { y = } {}", 1, 49, "expected the name of a tile program, found '}'"},
    {"tile t(x: in f32[M]) over (i in 1) equals { y } {}", 1, 47, "expected '=' or ',' behind the name, found '}'"},
    {"tile t(x: in f32[M]) over (i in 1) equals { y = f(x + 1) } {}", 1, 53,
     "expected ')' or ',' in the operands, found '+'"},
    {"tile t(x: in f32[M]) over (i in 1) equals { y = f() } {}", 1, 51, "expected the name of an operand, found ')'"},
    {"format", 1, 7, "expected the name of the format, found the end of the file"},
    {"format f", 1, 9, "expected '{' and the format's fields, found the end of the file"},
    {"format f {", 1, 11, "expected '}' behind the format, found the end of the file"},
    {"format f { block }", 1, 18, "expected the number of elements in a block, found '}'"},
    {"format f { block 0; x: u8; value[i] = x }", 1, 18, "a block has 1 to 1024 elements, found 0"},
    {"format f { block 1025; x: u8; value[i] = x }", 1, 18, "a block has 1 to 1024 elements, found 1025"},
    {"format f { block 1; block 2; x: u8; value[i] = x }", 1, 21, "the block's size was given already"},
    {"format f { x: u8; value[i] = x }", 1, 8, "expected the size of a block in format 'f', as in block 32"},
    {"format f32 { block 1; x: u8; value[i] = x }", 1, 8, "'f32' is the name of a scalar type"},
    {"format f { block 1; x u8; value[i] = x }", 1, 23,
     "expected ':' and a type, or '[' and the names of indices, found 'u8'"},
    {"format f { block 1; x: ; value[i] = x }", 1, 24, "expected a type, found ';'"},
    {"format f { block 1; x: u8[N]; value[i] = x }", 1, 27, "expected the number of elements, found 'N'"},
    {"format f { block 1; x: u8[4; value[i] = x }", 1, 28, "expected ']' behind the number of elements, found ';'"},
    {"format f { block 1; x: u8; value = x }", 1, 34,
     "expected ':' and a type, or '[' and the names of indices, found '='"},
    {"format f { block 1; x: u8; value[] = x }", 1, 34, "expected the name of an index, found ']'"},
    {"format f { block 1; x: u8; value[3] = x }", 1, 34, "expected the name of an index, found '3'"},
    {"format f { block 1; x: u8; value[i] x }", 1, 37, "expected '=' and an expression, found 'x'"},
    {"format f { block 1; x: u8; value[i] = }", 1, 39, "expected an expression, found '}'"},
    {"format f { block 1; x: u8; value[i] = x", 1, 40, "expected '}' behind the format, found the end of the file"},
    {"format f { block 1 x: u8; value[i] = x }", 1, 20,
     "expected an operator or the end of the statement (a new line or ';'), found 'x'"},
    {"tile t(x: in f32[M]) over (i in 1) { v = 1\nformat f { block 1; x: u8; value[i] = x }", 1, 43,
     "expected '}' for the '{' of line 1, found the end of the line"},
};

/* clang-format on */

static void check_wrong(const struct wrong *w, const char *before, const char *after) {
    char source[1024], expected[512];
    snprintf(source, sizeof source, "%s%s%s", before, w->source, after);
    tile_file *f;
    tile_diagnostics d = {0};
    mt_error e = {0};
    if (parse(&f, source, strlen(source), &d, &e) != MT_E_SYNTAX) fail_msg("accepted: %s", source);
    snprintf(expected, sizeof expected, "t.tile:%d:%d: error: %s\n", w->line, w->column, w->message);
    if (strncmp(d.text.data, expected, strlen(expected)) || d.count != 1)
        fail_msg("%s\nexpected %s\nfound %s", source, expected, d.text.data);
    snprintf(expected, sizeof expected, "t.tile:%d:%d", w->line, w->column);
    assert_string_equal(e.where, expected);
    assert_memory_equal(e.message, w->message, strlen(w->message));
    text_free(&d.text);
    assert_int_equal(parse(&f, source, strlen(source), NULL, NULL), MT_E_SYNTAX);
}

static void test_wrong(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong_statements); i++) check_wrong(&wrong_statements[i], HEAD, "\n}\n");
    for (size_t i = 0; i < COUNT_OF(wrong_files); i++) check_wrong(&wrong_files[i], "", "");
}

/* Ten errors of all kinds, among good lines, are reported at ten places. */
static void test_ten_errors(void **state) {
    (void)state;
    static const char source[] = "tile a[N, N](x: in f32[M], y f32[M], z: out f32[M]) over (i in M)\n"
                                 "{\n"
                                 "    v = x[0 : 4]\n"
                                 "    good = f(1)\n"
                                 "    w = (1 + 2\n"
                                 "    good = f(\n"
                                 "        2)\n"
                                 "    for k stream(3) {\n"
                                 "        if v { a = $ } else { b = 1 }\n"
                                 "        c = concat(a b,\n"
                                 "            axis = 1)\n"
                                 "    }\n"
                                 "    z[0] = 1 2\n"
                                 "}\n"
                                 "format f { block 32; q: u4[32]; value[i] = q[i] + r }\n"
                                 "tile b(x: in f32[M]) over (i in M) { v = }\n";
    static const int places[][2] = {{1, 11}, {1, 30},  {3, 15},  {6, 5},   {8, 11},
                                    {9, 20}, {10, 22}, {13, 14}, {15, 51}, {16, 42}};
    tile_file *f;
    tile_diagnostics d = {0};
    assert_int_equal(parse(&f, source, strlen(source), &d, NULL), MT_E_SYNTAX);
    if (d.count != (int)COUNT_OF(places)) fail_msg("%d errors:\n%s", d.count, d.text.data);
    const char *at = d.text.data;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        char place[64];
        snprintf(place, sizeof place, "t.tile:%d:%d: error: ", places[i][0], places[i][1]);
        const char *found = strstr(at, place);
        if (!found) fail_msg("not reported: %s\n%s", place, d.text.data);
        at = found + 1;
    }
    text_free(&d.text);
}

static void check_diagnostics(const char *source, const char *expected) {
    tile_file *f;
    tile_diagnostics d = {0};
    assert_int_equal(parse(&f, source, strlen(source), &d, NULL), MT_E_SYNTAX);
    assert_string_equal(d.text.data, expected);
    text_free(&d.text);
}

static void test_carets(void **state) {
    (void)state;
    check_diagnostics("tile t(x: y f32[M]) over (i in 1) {}",
                      "t.tile:1:11: error: expected 'in', 'out', 'inout', 'arg' or 'live', found 'y'\n"
                      "    tile t(x: y f32[M]) over (i in 1) {}\n"
                      "              ^\n");
    check_diagnostics(HEAD "\tv\t= $ // µ\r\n}",
                      "t.tile:2:6: error: this character has no meaning in the tile language\n"
                      "    \tv\t= $ // µ\n"
                      "    \t \t  ^\n");
    check_diagnostics("// µµ\nx // µ",
                      "t.tile:2:1: error: expected 'tile' or 'format', found 'x'\n    x // µ\n    ^\n");
    check_diagnostics(
        HEAD "v = µµ $\n}",
        "t.tile:2:5: error: characters outside ASCII are allowed in comments only\n    v = µµ $\n        ^\n");
    check_diagnostics("x \x1b[31m", "t.tile:1:1: error: expected 'tile' or 'format', found 'x'\n    x ?[31m\n    ^\n");
    /* of a long line a part is shown */
    char source[600], expected[600], filler[301];
    memset(filler, 'a', sizeof filler - 1);
    filler[sizeof filler - 1] = 0;
    memset(filler + 100, ' ', 100);
    snprintf(source, sizeof source, HEAD "%.100s = $%s\n}", filler, filler);
    snprintf(expected, sizeof expected,
             "t.tile:2:104: error: this character has no meaning in the tile language\n    ...%.77s = $%.39s...\n      "
             " %80s^\n",
             filler, filler, "");
    check_diagnostics(source, expected);
}

static void test_fifty_errors(void **state) {
    (void)state;
    text source = {0};
    text_string(&source, HEAD);
    for (int i = 0; i < 1000; i++) text_string(&source, "v = )\n");
    text_string(&source, "}\n");
    tile_file *f;
    tile_diagnostics d = {0};
    assert_int_equal(parse(&f, source.data, source.length, &d, NULL), MT_E_SYNTAX);
    assert_int_equal(d.count, 1000);
    int shown = 0;
    for (const char *at = d.text.data; (at = strstr(at, ": error: ")); at++) shown++;
    assert_int_equal(shown, 50);
    assert_non_null(strstr(d.text.data, "t.tile:51:5: error: "));
    assert_null(strstr(d.text.data, "t.tile:52:5: error: "));
    assert_non_null(strstr(d.text.data, "\nt.tile: more errors follow; the first 50 are shown\n"));
    text_free(&d.text);
    text_free(&source);
}

/* ---- hostile text ----------------------------------------------------------------------------------------------- */

static void repeat(text *out, const char *before, const char *unit, int count, const char *after) {
    out->length = 0;
    text_string(out, before);
    for (int i = 0; i < count; i++) text_string(out, unit);
    text_string(out, after);
    assert_false(out->failed);
}

/* Nesting beyond the limit is an error, however it comes about; what is just allowed is not. */
static void test_depth(void **state) {
    (void)state;
    static const struct {
        const char *before, *unit, *after;
        int allowed;
    } cases[] = {
        {"v = ", "(", "", 0},        {"v = ", "-", "1", 198},    {"v = ", "not ", "a", 198},
        {"v = ", "f(", "", 0},       {"v = a", "[a", "", 0},     {"v = a", ".T", "", 199},
        {"v = a", "[0]", "", 199},   {"v = a", " + a", "", 199}, {"v = a", " + (a", "", 0},
        {"", "for k in 2 {", "", 0}, {"", "{", "", 0},           {"", "if a {} else ", "{}", 198},
        {"", "if a {", "", 0},       {"v: f32[", "a[", "", 0},   {"y[", "f(", "", 0},
        {"v = f32", "[3](", "", 0},
    };
    text source = {0};
    tile_file *f;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (int count = 100; count <= 100000; count *= 10) {
            char before[256];
            snprintf(before, sizeof before, HEAD "%s", cases[i].before);
            repeat(&source, before, cases[i].unit, (int)min_i64(count, 900000 / (int64_t)strlen(cases[i].unit)),
                   cases[i].after);
            tile_diagnostics d = {0};
            mt_error e = {0};
            assert_int_equal(parse(&f, source.data, source.length, &d, &e), MT_E_SYNTAX);
            text_free(&d.text);
        }
        char before[256], after[256];
        if (!cases[i].allowed) continue;
        snprintf(before, sizeof before, HEAD "%s", cases[i].before);
        snprintf(after, sizeof after, "%s\n}", cases[i].after);
        repeat(&source, before, cases[i].unit, cases[i].allowed, after);
        tile_file_free(parse_good(source.data));
        repeat(&source, before, cases[i].unit, cases[i].allowed + 2, after);
        assert_int_equal(parse(&f, source.data, source.length, NULL, NULL), MT_E_SYNTAX);
    }
    repeat(&source, HEAD "v = f(a", ", a", 100000, ")\n}"); /* long is not deep */
    tile_file_free(parse_good(source.data));
    text_free(&source);
}

static void test_limits(void **state) {
    (void)state;
    text source = {0};
    tile_file *f;
    mt_error e = {0};
    repeat(&source, "", " ", 1 << 20, "");
    tile_file_free(parse_good(source.data));
    text_string(&source, " ");
    assert_int_equal(parse(&f, source.data, source.length, NULL, &e), MT_E_LIMIT);
    for (int n = 128; n <= 129; n++) {
        repeat(&source, HEAD, "x", n, " = 1\n}");
        assert_int_equal(parse(&f, source.data, source.length, NULL, NULL), n == 128 ? MT_OK : MT_E_SYNTAX);
        tile_file_free(f);
    }
    text_free(&source);
    for (int n = 16; n <= 17; n++) {
        text_string(&source, "tile t(");
        for (int i = 0; i < n; i++) text_printf(&source, "%sp%d: in f32[M]", i ? ", " : "", i);
        text_string(&source, ") over (i in 1) {}");
        assert_int_equal(parse(&f, source.data, source.length, NULL, NULL), n == 16 ? MT_OK : MT_E_SYNTAX);
        tile_file_free(f);
        text_free(&source);
        text_string(&source, "tile t[");
        for (int i = 0; i < 2 * n; i++) text_printf(&source, "%sp%d", i ? ", " : "", i);
        text_string(&source, "](x: in f32[M]) over (i in 1) {}");
        assert_int_equal(parse(&f, source.data, source.length, NULL, NULL), n == 16 ? MT_OK : MT_E_SYNTAX);
        tile_file_free(f);
        text_free(&source);
    }
    for (int n = 4096; n <= 4097; n++) {
        for (int i = 0; i < n; i++) text_printf(&source, "tile t%d(x: in f32[M]) over (i in 1) {}\n", i);
        assert_int_equal(parse(&f, source.data, source.length, NULL, NULL), n == 4096 ? MT_OK : MT_E_SYNTAX);
        tile_file_free(f);
        text_free(&source);
    }
}

/* Every byte value, in code and in a comment. */
static void test_bytes(void **state) {
    (void)state;
    for (int c = 0; c < 256; c++) {
        tile_file *f;
        char code[] = HEAD "v = a ? b\n}", comment[] = HEAD "// a ? b\n}";
        *strchr(code, '?') = (char)c;
        *strchr(comment, '?') = (char)c;
        const bool blank = c == ' ' || c == '\t' || c == '\r', sign = c && strchr("+-*/%&|^<>", c);
        assert_int_equal(parse(&f, code, sizeof code - 1, NULL, NULL), sign ? MT_OK : MT_E_SYNTAX);
        tile_file_free(f);
        const bool good_comment = blank || (c >= ' ' && c != 127);
        assert_int_equal(parse(&f, comment, sizeof comment - 1, NULL, NULL), good_comment ? MT_OK : MT_E_SYNTAX);
        tile_file_free(f);
    }
}

static uint64_t random_next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void parse_any(const char *source, size_t length) {
    tile_file *f;
    tile_diagnostics d = {0};
    mt_error e = {0};
    const mt_status status = parse(&f, source, length, &d, &e);
    assert_true((status == MT_OK && d.count == 0) ||
                (status == MT_E_SYNTAX && d.count > 0 && e.where[0] && e.message[0]));
    tile_file_free(f);
    text_free(&d.text);
}

static const char sample[] = "// a sample\n"
                             "tile t[N, K = 0x10, B = 3, T = bf16](x: in T[M, K], w: in W[N, K], p: live i32, y: inout "
                             "T[M, N]) over (n in ceil(N / B), m in M)\n"
                             "    tune { B in 8, 16; K in 1 } equals { a = f(x); y = g(a, w) }\n{\n"
                             "    acc: f32[B, N] = 1.5e-3\n"
                             "    for k in stream(0 .. K) { acc += dot(x[m : +B < p, :], w[n*B : +B].T); if not k < 3 "
                             "and true { acc *= -2 } else if k == 1 {} else { acc -= 1 } }\n"
                             "    y[:, n] += f32[2, 3](sum(acc, axis = 1) | 3 ^ 4 & 5 << 6)\n}\n"
                             "format f { block 8; d: f16; s: u2[8]; h[a, b] = where(a > 2, s[a] * 3, b / 7 - i32(d)); "
                             "value[i] = d * h[i, 7 - i] + s[i] % 3 }\n";

static void test_truncated(void **state) {
    (void)state;
    tile_file_free(parse_good(sample));
    for (size_t length = 0; length < sizeof sample; length++) parse_any(sample, length);
    for (size_t begin = 0; begin < sizeof sample; begin++) parse_any(sample + begin, sizeof sample - 1 - begin);
}

/* Bytes and pieces changed, removed, repeated and exchanged at random. */
static void test_mutations(void **state) {
    (void)state;
    static const char *const pieces[] = {
        "(",      ")",    "[",    "]",    "{",      "}",      ";",           "\n",           ",",
        ":",      "=",    "+=",   "..",   ".T",     "tile ",  "format ",     "for ",         "if ",
        "else ",  "not ", "over", "tune", "equals", "block ", "value[i] = ", "999999999999", "0",
        "-1",     "1e30", "// ",  "\xff", "\r",     "in ",    "axis = ",     "where(",       " / 0",
        "stream("};
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 20000; round++) {
        char source[2 * sizeof sample];
        size_t length = sizeof sample - 1;
        memcpy(source, sample, length);
        for (int edits = 1 + (int)(random_next(&seed) % 6); edits; edits--) {
            const size_t at = random_next(&seed) % length, size = random_next(&seed) % 12 % (length - at);
            const char *piece = pieces[random_next(&seed) % COUNT_OF(pieces)];
            switch (random_next(&seed) % 4) {
            case 0:
                source[at] = (char)random_next(&seed);
                break;
            case 1: /* removed */
                memmove(source + at, source + at + size, length - at - size);
                length -= size;
                break;
            case 2: /* repeated */
                memmove(source + at + size, source + at, length - at);
                length += size;
                break;
            default:
                memmove(source + at + strlen(piece), source + at, length - at);
                memcpy(source + at, piece, strlen(piece));
                length += strlen(piece);
            }
        }
        parse_any(source, length);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong),        cmocka_unit_test(test_ten_errors), cmocka_unit_test(test_carets),
        cmocka_unit_test(test_fifty_errors), cmocka_unit_test(test_depth),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_truncated),  cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
