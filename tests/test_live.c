/* Live extents: what an instruction may touch when a free extent changes from run to run. x[M - 1] is row 4 of 5 in one
 * run and row 0 in another: the schedule must order the reader behind the writers of all rows. (It once ordered it
 * behind the last row's writer only.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "monotile/machine.h"
#include "tile/tile.h"

static void any_row_may_be_the_last(void **state) {
    (void)state;
    mt_error error = {0};
    const tile_file *library;
    const tile_op *op;
    arena *a = arena_new();
    assert_int_equal(tile_library(&library, &error), MT_OK);
    assert_int_equal(tile_bind(a, &op, library, "last_row", &(tile_constant){"N", 7, NULL}, 1, NULL, &error), MT_OK);
    for (int live = 0; live < 2; live++) {
        tile_instance i = {.op = op,
                           .tensor = {{.rank = 2, .extent = {5, 7}, .live = {live}}, {.rank = 2, .extent = {1, 7}}}};
        tile_summary s;
        assert_int_equal(tile_instance_check(&i, &error), MT_OK);
        tile_summarise(&i, (int64_t[TILE_AXES]){0}, &s);
        for (int b = 0; b < s.box_count; b++)
            if (s.box[b].tensor == 0) {
                assert_true(s.box[b].reads);
                assert_int_equal(s.box[b].dim[0].low, live ? 0 : 4);
                assert_int_equal(s.box[b].dim[0].high, 5);
            }
    }
    arena_free(a);
}

/* Rows 1 to 5 of x doubled, one instruction a row, then the last one taken; with more workers than the machine has
 * cores. */
static void the_last_row_waits_for_its_writer(void **state) {
    (void)state;
    mt_error error = {0};
    mt_graph *g;
    mt_live rows;
    mt_tensor x, t, y;
    mt_program *program;
    mt_machine *machine;
    mt_session *session;
    void *in, *out;
    size_t bytes;
    assert_int_equal(mt_graph_create(&g, &error), MT_OK);
    assert_int_equal(mt_graph_live(g, "rows", 1, 5, &rows, &error), MT_OK);
    assert_int_equal(mt_graph_tensor(g, MT_INPUT, "x", "f32", 2, (int64_t[]){5, 4001}, &x, &error), MT_OK);
    assert_int_equal(mt_graph_live_extent(g, x, 0, rows, &error), MT_OK);
    assert_int_equal(mt_graph_tensor(g, MT_OUTPUT, "y", "f32", 2, (int64_t[]){1, 4001}, &y, &error), MT_OK);
    assert_int_equal(
        mt_graph_node(g, NULL, "add", NULL,
                      (mt_operand[]){MT_OPERAND("a", x), MT_OPERAND("b", x), MT_OPERAND_INTEGER("ROWS", 1)}, 3, &t,
                      &error),
        MT_OK);
    assert_int_equal(mt_graph_node(g, NULL, "last_row", NULL, (mt_operand[]){MT_OPERAND("x", t), MT_OPERAND("y", y)}, 2,
                                   NULL, &error),
                     MT_OK);
    assert_int_equal(mt_compile(g, &(mt_target){.processors = 6}, &program, &error), MT_OK);
    assert_int_equal(mt_machine_open(&machine, "cpu:6", &error), MT_OK);
    assert_int_equal(mt_session_create(&session, machine, program, &error), MT_OK);
    assert_int_equal(mt_session_memory(session, "x", &in, &bytes, &error), MT_OK);
    assert_int_equal(mt_session_memory(session, "y", &out, &bytes, &error), MT_OK);
    for (int run = 0; run < 400; run++) {
        const int count = 1 + run % 5;
        for (int i = 0; i < 5 * 4001; i++) ((float *)in)[i] = (float)(run * 7 + i % 1000);
        memset(out, 0xff, bytes);
        assert_int_equal(mt_session_live(session, "rows", count, &error), MT_OK);
        assert_int_equal(mt_session_run(session, &error), MT_OK);
        for (int i = 0; i < 4001; i++)
            if (((float *)out)[i] != 2 * ((float *)in)[(count - 1) * 4001 + i])
                fail_msg("run %d, element %d: %g", run, i, (double)((float *)out)[i]);
    }
    mt_session_destroy(session);
    mt_machine_close(machine);
    mt_program_destroy(program);
    mt_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_row_may_be_the_last),
                                       cmocka_unit_test(the_last_row_waits_for_its_writer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
