/* Hand-offs of stamped data, by programs made for it: on the simulator under all kinds of schedules, many runs in one
 * launch and single ones, the bits are the same, and close to the CPU's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "device_ops.h"
#include "graph_make.h"
#include "handoff_graph.h"
#include "handoff_oracle.h"
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
    "tile stop(at: in i32[1], pos: live i32, y: in f32[N], word: out i32[1]) over (i in 1) {\n"
    "    word[:] = where(i32[1](i32(pos)) >= at[:], i32[1](1), i32[1](0)) + i32(y[0 : +1] * 0) }\n"
    "tile nans[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    y[:] = where(x[:] > 0.5, bits(u32[N](4294967295)), where(x[:] < -0.5, x[:] * inf, x[:])) }\n"
    "tile is_nan[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    y[:] = where(x[:] == x[:], where(x[:] == -inf, f32[N](3), x[:]), f32[N](7)) }\n";

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
                poison(session);
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
    static const int sizes[] = {128, 1024};
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

/* Loops that a word ends after any of their runs, and single runs, and loops again; after a failed run all is as at
 * first, whatever that one has left. */
static void test_stop(void **state) {
    (void)state;
    static const char *const machines[] = {"sim:2", "sim:2,random=1", "sim:2,adversarial=starve-warp,seed=2",
                                           "sim:2,adversarial=lanes-apart"};
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(tiles);
    for (int queue = 0; queue < 2; queue++) {
        mt_graph *g = make_graph(file);
        mt_live pos;
        mt_program *program;
        OK(mt_graph_live(g, "pos", 0, 100, &pos, &error));
        const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "x", 1024, 0),
                        y = add_matrix(g, MT_OUTPUT, "f32", "y", 1024, 0),
                        at = make_tensor(g, MT_INPUT, "at", "i32", 1, 0),
                        word = make_tensor(g, MT_STATE, "word", "i32", 1, 0);
        const mt_tensor fed = OWN_NODE(g, file, "feed", MT_OPERAND("x", x), MT_OPERAND_INTEGER("B", 512));
        OWN_NODE(g, file, "total", MT_OPERAND("x", fed), MT_OPERAND("y", y));
        OWN_NODE(g, file, "stop", MT_OPERAND("at", at), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", fed),
                 MT_OPERAND("word", word));
        OK(mt_compile(
            g, &(mt_target){.machine = "sim", .processors = 2, .placement = queue ? MT_PLACE_QUEUE : MT_PLACE_STATIC},
            &program, &error));
        for (size_t m = 0; m < COUNT_OF(machines); m++) {
            mt_machine *sim;
            mt_session *s;
            void *stop_at;
            OK(mt_machine_open(&sim, machines[m], &error));
            OK(mt_session_create(&s, sim, program, &error));
            OK(mt_session_memory(s, "at", &stop_at, NULL, &error));
            assert_true(((sim_session *)s)->handoff.stamp_bytes > 0);
            bind_all(s);
            for (int32_t turn = 0; turn < 5; turn++) {
                const mt_live_step step = {"pos", 0, 1};
                const mt_loop loop = {.runs = 6, .lives = &step, .live_count = 1, .stop = "word"};
                int32_t done = 0;
                *(int32_t *)stop_at = turn;
                if (turn == 1 && m % 2) OK(mt_session_trace(s, 1, &error));
                OK(mt_session_loop(s, &loop, &done, &error));
                assert_int_equal(done, turn + 1);
                keep_or_compare(s, 0, machines[m]);
                poison(s);
                if (turn == 2) {
                    OK(mt_session_run(s, &error));
                    keep_or_compare(s, 0, machines[m]);
                    poison(s);
                }
                if (turn != 3) continue;
                sim_session *failed = (sim_session *)s;
                failed->broken = true;
                memset(failed->slots.data, 0, failed->handoff.bytes);
            }
            mt_session_destroy(s);
            mt_machine_close(sim);
        }
        mt_program_destroy(program);
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

/* The stores of a node overlap: its instructions wait for one another, and what each was behind so are those that
 * come later. */
static void test_overlap(void **state) {
    (void)state;
    static const char source[] =
        "tile feed[N, B = 64](x: in f32[N], y: out f32[N]) over (i in ceil(N / B)) { y[i*B : +B] = x[i*B : +B] * 2 }\n"
        "tile steps[N](x: in f32[N], y: out f32[N]) over (i in ceil(N / 16)) {\n"
        "    y[i*16 - 3 : +19] = x[i*16 - 3 : +19] + sum(x[i*16 : +16], 0) }\n"
        "tile total[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] = x[:] + sum(x[:], 0) }\n";
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(source);
    for (int processors = 2; processors < 6; processors++) {
        mt_graph *g = make_graph(file);
        mt_program *program;
        const mt_target target = {.machine = "sim", .processors = processors, .no_fusion = 1};
        const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "x", 128, 0),
                        y = add_matrix(g, MT_OUTPUT, "f32", "y", 128, 0),
                        u = add_matrix(g, MT_OUTPUT, "f32", "u", 128, 0),
                        z = add_matrix(g, MT_OUTPUT, "f32", "z", 128, 0);
        OWN_NODE(g, file, "feed", MT_OPERAND("x", x), MT_OPERAND("y", u), MT_OPERAND_INTEGER("B", 128));
        const mt_tensor t = OWN_NODE(g, file, "feed", MT_OPERAND("x", x));
        OWN_NODE(g, file, "steps", MT_OPERAND("x", u), MT_OPERAND("y", y));
        OWN_NODE(g, file, "total", MT_OPERAND("x", t), MT_OPERAND("y", z));
        OK(mt_compile(g, &target, &program, &error));
        assert_int_equal(check_program_handoff(program, "stores that overlap", true), 1);
        mt_program_destroy(program);
        check_graph(g, &target, "stores that overlap", 1);
        mt_graph_destroy(g);
        forget_tensors();
    }
    mt_tile_close(file);
}

/* Of a tensor whose equal was written whole, a node writes a part, and another reads all: what it gets is open, but it
 * gets something. */
static void test_part_written(void **state) {
    (void)state;
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(tiles);
    mt_graph *g = make_graph(file);
    const int64_t twice = 256;
    mt_program *program;
    mt_machine *sim;
    mt_session *session;
    mt_tensor part, whole;
    const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "x", 128, 0), y = add_matrix(g, MT_OUTPUT, "f32", "y", 128, 0),
                    z = add_matrix(g, MT_OUTPUT, "f32", "z", 256, 0);
    const mt_tensor t = OWN_NODE(g, file, "feed", MT_OPERAND("x", x));
    OK(mt_graph_tensor(g, MT_TEMP, NULL, "f32", 1, &twice, &whole, &error));
    OK(mt_graph_slice(g, whole, 0, 0, 128, &part, &error));
    OWN_NODE(g, file, "feed", MT_OPERAND("x", x), MT_OPERAND("y", part));
    OWN_NODE(g, file, "total", MT_OPERAND("x", t), MT_OPERAND("y", y));
    OWN_NODE(g, file, "total", MT_OPERAND("x", whole), MT_OPERAND("y", z));
    OK(mt_compile(g, &(mt_target){.machine = "sim", .processors = 2, .no_fusion = 1}, &program, &error));
    OK(mt_machine_open(&sim, "sim:2", &error));
    OK(mt_session_create(&session, sim, program, &error));
    bind_all(session);
    OK(mt_session_run(session, &error));
    mt_session_destroy(session);
    mt_machine_close(sim);
    mt_program_destroy(program);
    mt_graph_destroy(g);
    mt_tile_close(file);
    forget_tensors();
}

/* Writers whose text does not say what they write, or whose loads and stores are odd: not stamped, and who reads the
 * tensor comes to an end. */
static const char partial[] =
    "tile w_float_start[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    y[i32(f32(i32(i)) * 0.5 + 3) : +N] = x[:] }\n"
    "tile w_float_limit[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    y[0 : +N < i32(f32(i32(i)) * 0.5 + 3)] = x[:] }\n"
    "tile w_wraps[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    y[(i32(i) + 2147483647) * (i32(i) + 3) : +N] = x[:] }\n"
    "tile w_live_extent[N](x: in f32[N], pos: live i32, y: out f32[min(pos, N)]) over (i in 1) {\n"
    "    y[0 : +N] = x[:] }\n"
    "tile w_live_limit[N](x: in f32[N], pos: live i32, y: out f32[N]) over (i in 1) { y[0 : +N < pos] = x[:] }\n"
    "tile w_live_start[N](x: in f32[N], pos: live i32, y: out f32[N]) over (i in 1) { y[pos - 40 : +N] = x[:] }\n"
    "tile w_live_grid[N](x: in f32[N], pos: live i32, y: out f32[N]) over (i in min(pos, N)) {\n"
    "    y[i : +1] = x[i : +1] }\n"
    "tile w_data_start[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[i32(x[0] * 5) : +N] = x[:] }\n"
    "tile w_data_if[N](x: in f32[N], y: out f32[N]) over (i in 1) { if x[0] > 2 { y[:] = x[:] } }\n"
    "tile w_loop[N](x: in f32[N], y: out f32[N]) over (i in 1) { for k in N - 1 { y[k : +1] = x[k : +1] } }\n"
    "tile w_gather[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[i32(x[:] * 100)] = x[:] }\n"
    "tile w_hole[N](x: in f32[N], y: out f32[N]) over (i in N - 1) { y[i : +1] = x[i : +1] }\n"
    "tile w_variable[N](x: in f32[N], y: out f32[N]) over (i in 1) {\n"
    "    k = i * 5 + 5\n"
    "    y[k : +N] = x[:] }\n"
    "tile w_arg[N](x: in f32[N], a: arg f32, y: out f32[N]) over (i in 1) { y[i32(a) : +N] = x[:] }\n"
    "tile total[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] = x[:] + sum(x[:], 0) }\n";

static void test_partial(void **state) {
    (void)state;
    static const char *const programs[] = {
        "w_float_start", "w_float_limit", "w_wraps", "w_live_extent", "w_live_limit", "w_live_start", "w_live_grid",
        "w_data_start",  "w_data_if",     "w_loop",  "w_gather",      "w_hole",       "w_variable",   "w_arg"};
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(partial);
    int failed = 0;
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        mt_graph *g = make_graph(file);
        mt_live pos;
        mt_tensor t;
        mt_program *program;
        mt_machine *sim;
        mt_session *s;
        mt_error problem = {0};
        OK(mt_graph_live(g, "pos", 0, 64, &pos, &error));
        const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "x", 64, 0), y = add_matrix(g, MT_OUTPUT, "f32", "y", 64, 0);
        OK(mt_graph_tensor(g, MT_TEMP, NULL, "f32", 1, (int64_t[]){64}, &t, &error));
        mt_operand o[4] = {MT_OPERAND("x", x), MT_OPERAND("y", t)};
        if (!strncmp(programs[i], "w_live", 6)) o[2] = (mt_operand)MT_OPERAND_LIVE("pos", pos);
        if (!strcmp(programs[i], "w_arg")) o[2] = (mt_operand)MT_OPERAND_FLOAT("a", 3);
        make_node(g, file, programs[i], o, 2 + (o[2].name != NULL));
        OWN_NODE(g, file, "total", MT_OPERAND("x", t), MT_OPERAND("y", y));
        OK(mt_compile(g, &(mt_target){.machine = "sim", .processors = 2, .no_fusion = 1}, &program, &error));
        OK(mt_machine_open(&sim, "sim:2", &error));
        OK(mt_session_create(&s, sim, program, &error));
        bind_all(s);
        mt_session_run(s, &problem);
        if (problem.code != MT_OK || ((sim_session *)s)->handoff.stamp_bytes) {
            print_message("%s: %s %.200s\n", programs[i],
                          ((sim_session *)s)->handoff.stamp_bytes ? "it is stamped" : "", problem.message);
            failed++;
        }
        mt_session_destroy(s);
        mt_machine_close(sim);
        mt_program_destroy(program);
        mt_graph_destroy(g);
        forget_tensors();
    }
    mt_tile_close(file);
    assert_int_equal(failed, 0);
}

/* ---- who reads stamped data ---- */

static const char readers[] =
    "tile feed[N](x: in f32[M, N], y: out f32[M, N]) over (m in M) { y[m, :] = x[m, :] * 2 }\n"
    "tile r_gather[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    y[m, :] = t[ids[m], :] + reshape(sum(t[ids[0 : +R], :], 0), N) }\n"
    "tile r_beyond[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    y[m, :] = t[ids[m] - 1, :] + t[m + 1, :] + t[m - 2, :] }\n"
    "tile r_scalars[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    a = t[0, 0]\n"
    "    b = t[m, N - 1]\n"
    "    if a > 0 { y[m, :] = t[m, :] * a } else { y[m, :] = t[m, :] - b } }\n"
    "tile r_bound[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    n = i32(t[0, 0] * 3)\n"
    "    s: f32[1, N] = 0\n"
    "    for k in min(max(n, 0) + 2, R) { s = s + t[k : +1, :] }\n"
    "    y[m : +1, :] = s }\n"
    "tile r_start[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    n = i32(t[m, 0] * 7)\n"
    "    y[m, :] = t[m, n : +N] + t[m, 1 : +N < n + 9] }\n"
    "tile r_parts[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    y[m : +1, :] = concat(t[m : +1, 3 : +N - 3], t[m : +1, 0 : +3], axis = 1) - t[0 : +1, :] }\n"
    "tile r_turned[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in 1) {\n"
    "    v = t[:, :]\n"
    "    y[:, :] = v + max(v.T, 0).T * 0.5 + f32(argmax(v, axis = 1)) }\n"
    "tile r_twice[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in 1) {\n"
    "    a = sum(t[:, :], 1)\n"
    "    b = sum(t[:, :], 0)\n"
    "    y[:, :] = t[:, :] * a + b }\n"
    "tile r_dot[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in 1) {\n"
    "    d = dot(bf16(t[:, :]), bf16(t[:, :]).T)\n"
    "    y[:, :] = dot(d, t[:, :]) }\n"
    "tile r_behind[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N], z: out f32[R, N]) over (m in R) {\n"
    "    z[m, :] = t[m, :]\n"
    "    y[m, :] = t[m, :] * t[0, :] }\n"
    "tile r_some[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    if m % 2 == 0 { y[m, :] = t[m, :] } else { y[m, :] = t[0, :] - reshape(sum(t[m - 1 : +3, :], 0), N) } }\n"
    "tile r_where[N, R](t: in f32[R, N], ids: in i32[R], y: out f32[R, N]) over (m in R) {\n"
    "    y[m, :] = where(t[m, :] > t[0, :], t[m, :], where(t[R - 1, :] > 0, t[0, :], t[m, :])) }\n";

static void test_readers(void **state) {
    (void)state;
    static const char *const programs[] = {"r_gather", "r_beyond", "r_scalars", "r_bound",  "r_start", "r_parts",
                                           "r_turned", "r_twice",  "r_dot",     "r_behind", "r_some",  "r_where"};
    static const int rows[] = {1, 5, 8}, columns[] = {512, 33, 256};
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(readers);
    for (size_t v = 0; v < COUNT_OF(rows); v++) {
        mt_graph *g = make_graph(file);
        const int view = v % 2; /* of columns 1 .. */
        int count = 0;
        for (size_t i = 0; i < COUNT_OF(programs); i++) {
            char name[40];
            snprintf(name, sizeof name, "x%zu", i);
            mt_tensor x = add_matrix(g, MT_INPUT, "f32", name, rows[v], columns[v] + view), t;
            snprintf(name, sizeof name, "ids%zu", i);
            bound *b = &tensors[tensor_count++];
            mt_tensor ids;
            OK(mt_graph_tensor(g, MT_INPUT, name, "i32", 1, (int64_t[]){rows[v]}, &ids, &error));
            *b = (bound){.type = "i32", .role = MT_INPUT, .count = (size_t)rows[v], .bytes = 4 * (size_t)rows[v]};
            snprintf(b->name, sizeof b->name, "%s", name);
            fill(b, rows[v] + 1);
            t = OWN_NODE(g, file, "feed", MT_OPERAND("x", x));
            if (view) OK(mt_graph_slice(g, t, 1, 1, columns[v] + 1, &t, &error));
            mt_operand o[4] = {MT_OPERAND("t", t), MT_OPERAND("ids", ids)};
            snprintf(name, sizeof name, "y%zu", i);
            o[2] = (mt_operand)MT_OPERAND("y", add_matrix(g, MT_OUTPUT, "f32", name, rows[v], columns[v]));
            count = 3;
            if (!strcmp(programs[i], "r_behind")) {
                snprintf(name, sizeof name, "z%zu", i);
                o[count++] = (mt_operand)MT_OPERAND("z", add_matrix(g, MT_OUTPUT, "f32", name, rows[v], columns[v]));
            }
            make_node(g, file, programs[i], o, (size_t)count);
        }
        char what[60];
        snprintf(what, sizeof what, "readers of %d x %d", rows[v], columns[v]);
        check_graph(g, &(mt_target){.machine = "sim", .processors = 3, .no_fusion = 1}, what, (int)COUNT_OF(programs));
        mt_graph_destroy(g);
        forget_tensors();
    }
    mt_tile_close(file);
}

/* ---- random graphs ---- */

static int number_of(const char *variable, int otherwise) {
    return getenv(variable) ? atoi(getenv(variable)) : otherwise;
}

static void test_random_orders(void **state) {
    (void)state;
    static const int processors[] = {1, 2, 3, 7, 40};
    const int first = number_of("HANDOFF_FIRST", 0), count = number_of("HANDOFF_COUNT", 150);
    size_t stamped = 0;
    mt_tile *file = make_tiles(random_tiles);
    for (int seed = first; seed < first + count; seed++) {
        mt_graph *g = random_graph(file, (uint32_t)seed);
        for (int how = 0; how < 4; how++) {
            mt_program *p;
            char what[80];
            const mt_target target = {.machine = "sim",
                                      .processors = processors[(seed + how) % 5],
                                      .no_fusion = how & 1,
                                      .placement = how & 2 ? MT_PLACE_QUEUE : MT_PLACE_STATIC};
            OK(mt_compile(g, &target, &p, &error));
            snprintf(what, sizeof what, "graph %d, %d processors, %d", seed, target.processors, how);
            stamped += check_program_handoff(p, what, false);
            mt_program_destroy(p);
        }
        mt_graph_destroy(g);
        forget_tensors();
    }
    print_message("%zu tensors are stamped\n", stamped);
    mt_tile_close(file);
}

static void zero_states(mt_session *s) {
    for (int i = 0; i < tensor_count; i++) {
        void *zeros = calloc(1, tensors[i].bytes);
        if (tensors[i].role == MT_STATE) OK(mt_session_write(s, tensors[i].name, zeros, tensors[i].bytes, &error));
        free(zeros);
    }
}

/* States are carried from run to run: after three runs in one launch the results are those of the CPU's three. */
static void test_random_runs(void **state) {
    (void)state;
    static const int processors[] = {1, 2, 3, 5};
    static const char *const schedules[] = {"random", "starve-warp", "lanes-apart", "random", "starve-sm"};
    const int first = number_of("HANDOFF_FIRST", 0), count = number_of("HANDOFF_RUNS", 4);
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(random_tiles);
    for (int seed = first; seed < first + count; seed++) {
        mt_graph *g = random_graph(file, (uint32_t)seed);
        const int pos = seed % 5;
        mt_program *program;
        mt_machine *cpu, *sim;
        mt_session *reference, *session;
        char name[80];
        const mt_live_step step = {"pos", pos, 2};
        const mt_loop loop = {.runs = 3, .lives = &step, .live_count = 1};
        const mt_target target = {.machine = "sim",
                                  .processors = processors[seed % 4],
                                  .no_fusion = seed & 1,
                                  .placement = seed / 4 % 2 ? MT_PLACE_QUEUE : MT_PLACE_STATIC};
        OK(mt_compile(g, &target, &program, &error));
        snprintf(name, sizeof name, "sim:%d", target.processors);
        OK(mt_machine_open(&cpu, "cpu:1", &error));
        OK(mt_machine_open(&sim, name, &error));
        OK(mt_session_create(&session, sim, program, &error));
        for (size_t k = 0; k <= COUNT_OF(schedules); k++) {
            int kind = SIM_FAIR;
            while (k && strcmp(sim_schedule_names[kind], schedules[k - 1])) kind++;
            ((sim_machine *)sim)->schedule = (sim_schedule){(sim_schedule_kind)kind, (uint64_t)seed * 7 + k};
            snprintf(name, sizeof name, "graph %d: %s", seed, sim_schedule_names[kind]);
            bind_all(session);
            zero_states(session);
            mt_error error = {0};
            if (mt_session_loop(session, &loop, NULL, &error) != MT_OK)
                fail_msg("%s: %s: %s", name, error.where, error.message);
            keep_or_compare(session, 0, name);
        }
        OK(mt_session_create(&reference, cpu, program, &error));
        bind_all(reference);
        zero_states(reference);
        OK(mt_session_loop(reference, &loop, NULL, &error));
        snprintf(name, sizeof name, "graph %d", seed);
        keep_or_compare(reference, 5e-3, name);
        mt_session_destroy(reference);
        mt_session_destroy(session);
        mt_machine_close(sim);
        mt_machine_close(cpu);
        mt_program_destroy(program);
        mt_graph_destroy(g);
        forget_tensors();
    }
    mt_tile_close(file);
}

/* Programs that the checker would refuse: a run ends, well or with an error. */
static void damage(mt_program *p) {
    program_instruction *i = (program_instruction *)&p->instructions[dice((uint32_t)p->instructions_count)];
    const uint32_t barriers = (uint32_t)p->barriers_count;
    switch (dice(7)) {
    case 0:
        if (i->wait_count) i->wait[dice(i->wait_count)] = dice(barriers);
        break;
    case 1:
        if (i->arrive_count) i->arrive[dice(i->arrive_count)] = dice(barriers);
        break;
    case 2:
        if (i->wait_count) i->target[dice(i->wait_count)] += dice(3) - 1;
        break;
    case 3:
        if (i->wait_count) i->wait_count--;
        break;
    case 4:
        if (i->arrive_count) i->arrive_count--;
        break;
    case 5:
        if (i->opcode != PROGRAM_JOIN && i->index[0]) i->index[0]--;
        break;
    default:
        if (i->wait_count < PROGRAM_WAITS && barriers) {
            i->wait[i->wait_count] = dice(barriers);
            i->target[i->wait_count++] = 1;
        }
    }
}

static void test_damaged(void **state) {
    (void)state;
    const int first = number_of("HANDOFF_FIRST", 0), count = number_of("HANDOFF_DAMAGED", 1);
    int ends[2] = {0};
    if (unit_no_compiler()) skip();
    mt_tile *file = make_tiles(random_tiles);
    for (int seed = first; seed < first + count; seed++) {
        mt_graph *g = random_graph(file, (uint32_t)seed);
        for (int edit = 0; edit < 8; edit++) {
            mt_program *p;
            mt_machine *sim;
            mt_session *s;
            mt_error problem = {0};
            const mt_target target = {.machine = "sim", .processors = 3, .no_fusion = 1};
            OK(mt_compile(g, &target, &p, &error));
            OK(mt_machine_open(&sim, edit % 2 ? "sim:3,random=5" : "sim:3", &error));
            dice_state = (uint32_t)(seed * 100 + edit);
            for (int k = 0; k <= edit % 3; k++) damage(p);
            if (mt_session_create(&s, sim, p, &problem) == MT_OK) {
                bind_all(s);
                for (int run = 0; run < 2; run++) {
                    const mt_status status =
                        run ? mt_session_run(s, &problem) : mt_session_loop(s, &(mt_loop){.runs = 2}, NULL, &problem);
                    assert_true(status == MT_OK || problem.message[0]);
                    ends[status != MT_OK]++;
                }
                mt_session_destroy(s);
            }
            mt_machine_close(sim);
            mt_program_destroy(p);
        }
        mt_graph_destroy(g);
        forget_tensors();
    }
    print_message("%d runs ended well, %d with an error\n", ends[0], ends[1]);
    mt_tile_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_kept, forget),         cmocka_unit_test_setup(test_one_instruction, forget),
        cmocka_unit_test_setup(test_stop, forget),         cmocka_unit_test_setup(test_wide, forget),
        cmocka_unit_test_setup(test_nans, forget),         cmocka_unit_test_setup(test_overlap, forget),
        cmocka_unit_test_setup(test_part_written, forget), cmocka_unit_test_setup(test_partial, forget),
        cmocka_unit_test_setup(test_readers, forget),      cmocka_unit_test_setup(test_random_orders, forget),
        cmocka_unit_test_setup(test_random_runs, forget),  cmocka_unit_test_setup(test_damaged, forget)};
    if (getenv("HANDOFF_TEST")) cmocka_set_test_filter(getenv("HANDOFF_TEST"));
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
