/* Files of the user's own in a graph: their formats as types of tensors and constants, their programs as nodes, run on
 * the CPU machine against a decoder that is written here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "graph/graph.h"
#include "graph_make.h"
#include "monotile/machine.h"

/* Eight elements in seven bytes: a scale, and five bits each. */
#define FIVE "format five { block 8; d: f16; q: u5[8]; value[i] = d * (q[i] - 16) }\n"

enum { ROWS = 5, COLUMNS = 24, BLOCK = 8, BLOCK_BYTES = 7, WEIGHT_BYTES = ROWS * COLUMNS / BLOCK * BLOCK_BYTES };

static uint32_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

/* Random blocks of `five` whose scales are normal numbers, and what they stand for. */
static void make_weights(uint8_t bytes[WEIGHT_BYTES], double values[ROWS * COLUMNS]) {
    uint64_t state = 11;
    for (int b = 0; b < ROWS * COLUMNS / BLOCK; b++) {
        uint8_t *block = bytes + b * BLOCK_BYTES;
        for (int k = 2; k < BLOCK_BYTES; k++) block[k] = (uint8_t)draw(&state);
        const uint32_t mantissa = draw(&state) % 1024, exponent = 8 + draw(&state) % 8, sign = draw(&state) % 2;
        const uint32_t code = sign << 15 | exponent << 10 | mantissa;
        block[0] = (uint8_t)code;
        block[1] = (uint8_t)(code >> 8);
        const double scale = (sign ? -1 : 1) * ldexp(1 + mantissa / 1024.0, (int)exponent - 15);
        for (int i = 0; i < BLOCK; i++) {
            int q = 0;
            for (int bit = 0; bit < 5; bit++) q |= (block[2 + (5 * i + bit) / 8] >> (5 * i + bit) % 8 & 1) << bit;
            values[b * BLOCK + i] = scale * (q - 16);
        }
    }
}

/* Compiles the graph, gives it and the file up, and runs the program: the output "y" of ROWS x `columns` floats. */
static void run(mt_graph *g, mt_tile *file, const uint8_t *w, float *x, size_t x_bytes, float *y, size_t y_bytes) {
    mt_error error = {0};
    mt_program *program = NULL;
    mt_machine *machine = NULL;
    mt_session *session = NULL;
    if (mt_compile(g, &(mt_target){.processors = 2}, &program, &error) != MT_OK) fail_msg("%s", error.message);
    mt_graph_destroy(g);
    mt_tile_close(file);
    assert_int_equal(mt_machine_open(&machine, "cpu:2", &error), MT_OK);
    if (mt_session_create(&session, machine, program, &error) != MT_OK ||
        mt_session_bind_weight(session, "w", w, WEIGHT_BYTES, &error) != MT_OK ||
        (x && mt_session_bind(session, "x", x, x_bytes, &error) != MT_OK) ||
        mt_session_bind(session, "y", y, y_bytes, &error) != MT_OK || mt_session_run(session, &error) != MT_OK)
        fail_msg("%s: %s", error.where, error.message);
    mt_session_destroy(session);
    mt_machine_close(machine);
    mt_program_destroy(program);
}

/* A node of a program of the file, whose type constant takes its value from the tensor, from the builder, or is written
 * as the type itself; and the decoded values as they are. */
static void own_format_decodes(void **state) {
    (void)state;
    static const char *const programs[] = {
        FIVE "tile plain[N, W](w: in W[M, N], y: out f32[M, N]) over (r in M) { y[r, :] = f32(w[r, :]) }",
        FIVE "tile plain[N, W = q8_0](w: in W[M, N], y: out f32[M, N]) over (r in M) { y[r, :] = f32(w[r, :]) }",
        FIVE "tile plain[N](w: in five[M, N], y: out f32[M, N]) over (r in M) { y[r, :] = f32(w[r, :]) }",
        FIVE "tile plain[N, W = five](w: in W[M, N], y: out f32[M, N]) over (r in M) { y[r, :] = f32(w[r, :]) }",
    };
    static uint8_t bytes[WEIGHT_BYTES];
    static double expected[ROWS * COLUMNS];
    static _Alignas(64) float got[ROWS * COLUMNS];
    make_weights(bytes, expected);
    for (size_t k = 0; k < COUNT_OF(programs); k++) {
        mt_tile *file = make_tiles(programs[k]);
        mt_graph *g = make_graph(file);
        const mt_tensor w = make_tensor(g, MT_WEIGHT, "w", "five", ROWS, COLUMNS),
                        y = make_tensor(g, MT_OUTPUT, "y", "f32", ROWS, COLUMNS);
        assert_int_equal(g->tensors[g->views[w].tensor].bytes, WEIGHT_BYTES);
        const mt_operand operands[] = {MT_OPERAND("w", w), MT_OPERAND("y", y), MT_OPERAND_TYPE("W", "five")};
        make_node(g, file, "plain", operands, k == 1 ? 3 : 2);
        memset(got, 0xff, sizeof got);
        run(g, file, bytes, NULL, 0, got, sizeof got);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            if (got[i] != expected[i]) fail_msg("program %zu, element %d: %g, expected %g", k, i, got[i], expected[i]);
    }
}

/* The library's programs take it as they take any format. */
static void own_format_in_the_library(void **state) {
    (void)state;
    enum { TOKENS = 3 };
    static uint8_t bytes[WEIGHT_BYTES];
    static double values[ROWS * COLUMNS];
    static _Alignas(64) float x[TOKENS * COLUMNS], y[TOKENS * ROWS];
    uint64_t random = 5;
    make_weights(bytes, values);
    for (int i = 0; i < TOKENS * COLUMNS; i++) x[i] = (float)((int)(draw(&random) % 2001) - 1000) / 1000;
    mt_tile *file = make_tiles(FIVE);
    mt_graph *g = make_graph(file);
    const mt_operand operands[] = {MT_OPERAND("x", make_tensor(g, MT_INPUT, "x", "f32", TOKENS, COLUMNS)),
                                   MT_OPERAND("w", make_tensor(g, MT_WEIGHT, "w", "five", ROWS, COLUMNS)),
                                   MT_OPERAND("y", make_tensor(g, MT_OUTPUT, "y", "f32", TOKENS, ROWS))};
    make_node(g, NULL, "linear", operands, 3);
    run(g, file, bytes, x, sizeof x, y, sizeof y);
    for (int m = 0; m < TOKENS; m++)
        for (int n = 0; n < ROWS; n++) {
            double sum = 0, size = 0;
            for (int k = 0; k < COLUMNS; k++) {
                sum += x[m * COLUMNS + k] * values[n * COLUMNS + k];
                size += fabs(x[m * COLUMNS + k] * values[n * COLUMNS + k]);
            }
            if (!(fabs(y[m * ROWS + n] - sum) <= 1e-5 * size))
                fail_msg("%d, %d: %g, expected %g", m, n, y[m * ROWS + n], sum);
        }
}

/* Whichever file a declaration comes from, it is one type to the graph. */
static void one_type_from_many_places(void **state) {
    (void)state;
    mt_error error = {0};
    mt_tile *first =
        make_tiles(FIVE "tile see[N](w: in five[M, N], y: out f32[M, N]) over (r in M) { y[r, :] = f32(w[r, :]) }");
    mt_tile *second = make_tiles(FIVE "tile add_to[N, W = five](w: in W[M, N], x: in f32[M, N], y: out f32[M, N])\n"
                                      "over (r in M) { y[r, :] = x[r, :] + f32(w[r, :]) }");
    mt_graph *g = make_graph(first);
    assert_int_equal(mt_graph_use(g, second, &error), MT_OK); /* the same declaration */
    assert_int_equal(mt_graph_use(g, second, &error), MT_OK);
    const mt_tile *library;
    assert_int_equal(mt_tile_library(&library, &error), MT_OK);
    assert_int_equal(mt_graph_use(g, library, &error), MT_OK);
    assert_int_equal(g->file_count, 2);
    const mt_tensor w = make_tensor(g, MT_WEIGHT, "w", "five", ROWS, COLUMNS),
                    y = make_tensor(g, MT_OUTPUT, "y", "f32", ROWS, COLUMNS);
    const mt_tensor seen = OWN_NODE(g, first, "see", MT_OPERAND("w", w));
    OWN_NODE(g, second, "add_to", MT_OPERAND("w", w), MT_OPERAND("x", seen), MT_OPERAND("y", y),
             MT_OPERAND_TYPE("W", "five"));
    assert_int_equal(g->format_count, 1);
    static uint8_t bytes[WEIGHT_BYTES];
    static double expected[ROWS * COLUMNS];
    static _Alignas(64) float got[ROWS * COLUMNS];
    make_weights(bytes, expected);
    run(g, second, bytes, NULL, 0, got, sizeof got);
    mt_tile_close(first);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if (got[i] != 2 * expected[i]) fail_msg("element %d: %g, expected %g", i, got[i], 2 * expected[i]);
}

/* What a name means: the file's own format goes before the library's, in that graph only. */
static void names(void **state) {
    (void)state;
    mt_error error = {0};
    mt_tensor out;
    const int64_t extent[] = {2, 32}, short_extent[] = {2, 3};
    mt_tile *file = make_tiles("format q4_1 { block 1; x: u8; value[i] = x }\n" FIVE
                               "tile strange[N](w: in nothing[M, N], y: out f32[M, N]) over (r in M) { y[r, :] = 0 }");
    mt_graph *g = make_graph(NULL);
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "a", "five", 2, extent, &out, &error), MT_E_ARGUMENT);
    assert_string_equal(error.message, "there is no type or format named 'five'");
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "a", "q4_1", 2, short_extent, &out, &error), MT_E_ARGUMENT);
    assert_int_equal(mt_graph_use(g, file, &error), MT_OK);
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "a", "five", 2, short_extent, &out, &error), MT_E_ARGUMENT);
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "a", "five", 2, extent, &out, &error), MT_OK);
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "b", "q4_1", 2, short_extent, &out, &error), MT_OK);
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "c", "q4_0", 2, extent, &out, &error), MT_OK);
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "d", "six", 2, extent, &out, &error), MT_E_ARGUMENT);
    mt_tile *other =
        make_tiles("format six { block 1; q: u8; value[i] = q }\nformat five { block 1; q: i8; value[i] = q }");
    assert_int_equal(mt_graph_use(g, other, &error), MT_E_ARGUMENT); /* and nothing of it is known */
    assert_string_equal(error.where, "five");
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "d", "six", 2, extent, &out, &error), MT_E_ARGUMENT);
    /* a type that does not exist is an error of the program's, with its place */
    mt_graph_tensor(g, MT_INPUT, "e", "f32", 2, extent, &out, &error);
    assert_int_equal(mt_graph_node(g, file, "strange", NULL, (mt_operand[]){MT_OPERAND("w", out)}, 1, NULL, &error),
                     MT_E_SYNTAX);
    assert_non_null(strstr(error.message, "nothing"));
    mt_tile_close(other);
    mt_graph_destroy(g);
    mt_tile_close(file);
}

/* More choices than the compiler looks at: the first ones count. */
static void many_choices(void **state) {
    (void)state;
    char source[512];
    size_t used =
        (size_t)snprintf(source, sizeof source,
                         "tile inc[N, B = 1](x: in f32[M, N], y: out f32[M, N]) over (r in ceil(M / B)) tune { B in 1");
    for (int i = 2; i < 60; i++) used += (size_t)snprintf(source + used, sizeof source - used, ", %d", i);
    snprintf(source + used, sizeof source - used, " } { y[r*B : +B, :] = x[r*B : +B, :] + 1 }");
    mt_error error = {0};
    mt_tile *file = make_tiles(source);
    mt_graph *g = make_graph(file);
    const mt_operand operands[] = {MT_OPERAND("x", make_tensor(g, MT_INPUT, "x", "f32", 64, 4)),
                                   MT_OPERAND("y", make_tensor(g, MT_OUTPUT, "y", "f32", 64, 4))};
    make_node(g, file, "inc", operands, 2);
    mt_program *program;
    if (mt_compile(g, &(mt_target){.processors = 1}, &program, &error) != MT_OK) fail_msg("%s", error.message);
    assert_int_equal(mt_program_instruction_count(program), 4); /* of 16 rows: as few as can be */
    mt_program_destroy(program);
    mt_graph_destroy(g);
    mt_tile_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_format_decodes),
        cmocka_unit_test(own_format_in_the_library),
        cmocka_unit_test(one_type_from_many_places),
        cmocka_unit_test(names),
        cmocka_unit_test(many_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
