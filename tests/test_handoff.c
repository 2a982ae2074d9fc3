/* Hand-offs of stamped data, by programs made for it: on the simulator under all kinds of schedules, many runs in one
 * launch and single ones, the bits are the same, and close to the CPU's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "device_ops.h"
#include "graph_make.h"
#include "machine/sim/sim.h"
#include "temporary.h"
#include "unit_text.h"

static char folder[TEMPORARY_BYTES];

static int set_up(void **state) {
    (void)state;
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}
static int forget(void **state) {
    (void)state;
    forget_tensors(); /* of a test that failed */
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    return temporary_remove(folder);
}

static const char tiles[] =
    "tile feed[N, B = 64](x: in f32[N], y: out f32[N]) over (i in ceil(N / B)) {\n"
    "    y[i*B : +B] = x[i*B : +B] * 2 }\n"
    "tile odd_ends[K](x: in f32[2, K], z: in f32[8, K], g: in f32[K], y: out f32[2, 1], w: out f32[8, 1]) over (i in "
    "1) {\n"
    "    y[:, :] = sum(x[:, :] * g[:], 1)\n"
    "    w[:, :] = sum(z[:, :] * g[:], 1) }\n"
    "tile one_warp[K](z: in f32[8, K], g: in f32[K], w: out f32[8, 1]) over (i in 1) {\n"
    "    s = sum(g[:] * g[:], 0)\n"
    "    w[:, :] = sum(z[:, :] * g[:], 1) * s }\n"
    "tile some_rows[K](x: in f32[3, K], z: in f32[8, K], g: in f32[K], y: out f32[3, K], w: out f32[8, K]) over (i in "
    "1) {\n"
    "    y[:, :] = x[:, :] * g[:]\n"
    "    w[:, :] = z[:, :] * g[:] }\n"
    "tile live_rows[K](x: in f32[8, K], g: in f32[K], pos: live i32, y: out f32[8, K], w: out f32[8, K]) over (i in "
    "1) {\n"
    "    y[0 : +8 < pos - 30, :] = x[:, :] * g[:]\n"
    "    w[:, :] = x[:, :] + g[:] }\n"
    "tile total[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] = x[:] + sum(x[:], 0) }\n"
    "tile nans[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    y[:] = where(x[:] > 0.5, bits(u32[N](4294967295)), where(x[:] < -0.5, x[:] * inf, x[:])) }\n"
    "tile is_nan[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    y[:] = where(x[:] == x[:], where(x[:] == -inf, f32[N](3), x[:]), f32[N](7)) }\n";

static void keep_or_compare(mt_session *s, double tolerance, const char *what) {
    for (int i = 0; i < tensor_count; i++) {
        bound *b = &tensors[i];
        void *memory;
        if (b->role != MT_OUTPUT) continue;
        OK(mt_session_memory(s, b->name, &memory, NULL, &error));
        if (!b->result) {
            b->result = malloc(b->bytes);
            assert_non_null(b->result);
            memcpy(b->result, memory, b->bytes);
        } else if (tolerance == 0) {
            if (memcmp(b->result, memory, b->bytes)) fail_msg("%s: %s (tensor %d) has other bits", what, b->name, i);
        } else {
            double apart = 0, size = 1e-12;
            for (size_t e = 0; e < b->count; e++) {
                const double x = value_of(b, b->result, e), y = value_of(b, memory, e);
                if (isnan(x) && isnan(y)) continue; /* never written */
                apart += (x - y) * (x - y);
                size += y * y;
            }
            if (!(sqrt(apart / size) <= tolerance))
                fail_msg("%s: %s (tensor %d) is %g away from the CPU's", what, b->name, i, sqrt(apart / size));
        }
        memset(memory, 0xff, b->bytes);
    }
}

/* Compiles and runs the graph; `stamped`: how many tensors have to be stamped data; -1: any number. */
static void check_graph(mt_graph *g, const mt_target *target, const char *what, int stamped) {
    mt_program *program;
    mt_machine *cpu, *sim;
    mt_session *reference, *session;
    char name[120];
    OK(mt_compile(g, target, &program, &error));
    snprintf(name, sizeof name, "sim:%d", target->processors);
    OK(mt_machine_open(&cpu, "cpu:1", &error));
    OK(mt_machine_open(&sim, name, &error));
    OK(mt_session_create(&session, sim, program, &error));
    int found = 0;
    for (size_t t = 0; t < program->tensors_count; t++) found += ((sim_session *)session)->handoff.stamped[t];
    if (stamped >= 0 && found != stamped) fail_msg("%s: %d tensors are stamped, not %d", what, found, stamped);
    bind_all(session);
    for (int k = 0; k < SIM_SCHEDULES; k++)
        for (int seed = 0; seed < (k == SIM_RANDOM ? 3 : k == SIM_STARVE_SM || k == SIM_STARVE_WARP ? 2 : 1); seed++) {
            snprintf(name, sizeof name, "%s: %s, seed %d", what, sim_schedule_names[k], seed);
            ((sim_machine *)sim)->schedule = (sim_schedule){(sim_schedule_kind)k, (uint64_t)seed};
            bind_all(session);
            for (int turn = 0; turn < 3; turn++) {
                mt_error error = {0};
                const mt_status status = turn == 1
                                             ? mt_session_run(session, &error)
                                             : mt_session_loop(session, &(mt_loop){.runs = 3 + turn}, NULL, &error);
                if (status != MT_OK) fail_msg("%s, turn %d: %s: %s", name, turn, error.where, error.message);
                keep_or_compare(session, 0, name);
            }
        }
    OK(mt_session_create(&reference, cpu, program, &error));
    bind_all(reference);
    OK(mt_session_run(reference, &error));
    keep_or_compare(reference, 2e-3, what);
    mt_session_destroy(reference);
    mt_session_destroy(session);
    mt_machine_close(sim);
    mt_machine_close(cpu);
    mt_program_destroy(program);
}

/* g is fed, and read in two statements by different threads. */
static void test_kept(void **state) {
    (void)state;
    static const struct {
        const char *program;
        int x, z; /* rows */
        int y, w, columns;
    } all[] = {{"odd_ends", 2, 8, 2, 8, 1},
               {"one_warp", 0, 8, 0, 8, 1},
               {"some_rows", 3, 8, 3, 8, 0},
               {"live_rows", 8, 0, 8, 8, 0}};
    static const int sizes[] = {128, 256, 512, 1024};
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(tiles);
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            const int n = sizes[s], columns = all[i].columns ? all[i].columns : n;
            mt_graph *g = make_graph(file);
            mt_live pos;
            mt_operand operands[8];
            int count = 0;
            char what[100];
            OK(mt_graph_live(g, "pos", 0, 100, &pos, &error));
            const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "v", n, 0);
            mt_tensor fed = OWN_NODE(g, file, "feed", MT_OPERAND("x", x));
            operands[count++] = (mt_operand)MT_OPERAND("g", fed);
            if (all[i].x)
                operands[count++] = (mt_operand)MT_OPERAND("x", add_matrix(g, MT_INPUT, "f32", "x", all[i].x, n));
            if (all[i].z)
                operands[count++] = (mt_operand)MT_OPERAND("z", add_matrix(g, MT_INPUT, "f32", "z", all[i].z, n));
            if (all[i].y)
                operands[count++] =
                    (mt_operand)MT_OPERAND("y", add_matrix(g, MT_OUTPUT, "f32", "y", all[i].y, columns));
            operands[count++] = (mt_operand)MT_OPERAND("w", add_matrix(g, MT_OUTPUT, "f32", "w", all[i].w, columns));
            if (!strcmp(all[i].program, "live_rows")) operands[count++] = (mt_operand)MT_OPERAND_LIVE("pos", pos);
            make_node(g, file, all[i].program, operands, (size_t)count);
            snprintf(what, sizeof what, "%s of %d", all[i].program, n);
            check_graph(g, &(mt_target){.machine = "sim", .processors = 2}, what, 1);
            mt_graph_destroy(g);
            forget_tensors();
        }
    mt_tile_close(file);
}

/* A processor with one instruction in a run, and one with none. */
static void test_one_instruction(void **state) {
    (void)state;
    static const int processors[] = {1, 2, 3, 5};
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(tiles);
    for (size_t i = 0; i < COUNT_OF(processors); i++)
        for (int queue = 0; queue < 2; queue++) {
            mt_graph *g = make_graph(file);
            char what[100];
            const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "x", 1024, 0),
                            y = add_matrix(g, MT_OUTPUT, "f32", "y", 1024, 0);
            const mt_tensor fed = OWN_NODE(g, file, "feed", MT_OPERAND("x", x), MT_OPERAND_INTEGER("B", 1024));
            OWN_NODE(g, file, "total", MT_OPERAND("x", fed), MT_OPERAND("y", y));
            snprintf(what, sizeof what, "%d processors%s", processors[i], queue ? ", a queue" : "");
            check_graph(g,
                        &(mt_target){.machine = "sim",
                                     .processors = processors[i],
                                     .placement = queue ? MT_PLACE_QUEUE : MT_PLACE_STATIC},
                        what, 1);
            mt_graph_destroy(g);
            forget_tensors();
        }
    mt_tile_close(file);
}

/* A product of many rows, whose loader waits for operands, beside stamped data. */
static void test_wide(void **state) {
    (void)state;
    const variant v = {"bf16", 64, 64, 64, 1, 64, 64, 64, "bf16"};
    if (unit_no_compiler()) skip();
    for (size_t i = 0; i < COUNT_OF(wide_ops); i++) {
        mt_graph *g = make_graph(NULL);
        mt_live pos;
        OK(mt_graph_live(g, "pos", 0, 100, &pos, &error));
        add_node(g, wide_ops[i], &v, pos, true);
        check_graph(g, &(mt_target){.machine = "sim", .processors = 2}, wide_ops[i], -1);
        mt_graph_destroy(g);
        forget_tensors();
    }
}

/* NaNs that have the stamp's bits, infinities. */
static void test_nans(void **state) {
    (void)state;
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(tiles);
    for (int n = 60; n < 300; n += 67) {
        mt_graph *g = make_graph(file);
        const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "x", n, 0), y = add_matrix(g, MT_OUTPUT, "f32", "y", n, 0);
        const mt_tensor t = OWN_NODE(g, file, "nans", MT_OPERAND("x", x));
        OWN_NODE(g, file, "is_nan", MT_OPERAND("x", t), MT_OPERAND("y", y));
        check_graph(g, &(mt_target){.machine = "sim", .processors = 2}, "NaNs", 1);
        mt_graph_destroy(g);
        forget_tensors();
    }
    mt_tile_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_kept, forget), cmocka_unit_test_setup(test_one_instruction, forget),
        cmocka_unit_test_setup(test_wide, forget), cmocka_unit_test_setup(test_nans, forget)};
    if (getenv("HANDOFF_TEST")) cmocka_set_test_filter(getenv("HANDOFF_TEST"));
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
