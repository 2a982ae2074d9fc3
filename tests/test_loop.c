/* Many runs of a program, one after another: live values, states, the word that ends a loop, polling; reading and
 * writing memory. On the CPU machine, and on the simulator, where all runs are one launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/base.h"
#include "graph_make.h"
#include "machine/cuda/cuda.h"
#include "monotile/machine.h"
#include "ok.h"
#include "temporary.h"

enum { ROOM = 3000, PARTS = 5 };
/* Each run puts the sum of all parts' counters into the list at pos, and raises every counter. */
static const char tiles[] =
    "tile raise(by: live i32, n: inout i32[P]) over (i in P) { n[i : +1] += i32[1](i32(by)) }\n"
    "tile note[P](n: in i32[P], pos: live i32, stop_at: in i32[1], list: out i32[S], stop: out i32[1]) over (i in 1)\n"
    "{ total = sum(n[:], 0); list[pos : +1] = total; stop[:] = where(total >= stop_at[:], total, 0) }\n";

static char folder[TEMPORARY_BYTES];
static mt_tile *file;

static int set_up(void **state) {
    (void)state;
    file = make_tiles(tiles);
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}

static int tear_down(void **state) {
    (void)state;
    mt_tile_close(file);
    return temporary_remove(folder);
}

#define REFUSED(words, call)                                                                                           \
    do {                                                                                                               \
        mt_error error = {0};                                                                                          \
        assert_int_equal((call), MT_E_ARGUMENT);                                                                       \
        if (!strstr(error.message, words)) fail_msg("expected '%s', got: %s", words, error.message);                   \
    } while (0)

typedef struct stage {
    mt_machine *machine;
    mt_program *program;
    mt_session *session;
    int32_t *stop_at, *list;
} stage;

static void open_stage(stage *s, const char *machine, mt_placement placement) {
    mt_graph *g = make_graph(NULL);
    mt_live pos, by;
    OK(mt_graph_live(g, "pos", 0, ROOM - 1, &pos, &error));
    OK(mt_graph_live(g, "by", -100, 10000, &by, &error));
    const mt_tensor n = make_tensor(g, MT_STATE, "n", "i32", PARTS, 0),
                    stop_at = make_tensor(g, MT_INPUT, "stop_at", "i32", 1, 0),
                    list = make_tensor(g, MT_OUTPUT, "list", "i32", ROOM, 0),
                    stop = make_tensor(g, MT_STATE, "stop", "i32", 1, 0);
    make_tensor(g, MT_STATE, "real", "f32", 1, 0);
    OK(mt_graph_node(g, file, "note", NULL,
                     (mt_operand[]){MT_OPERAND("n", n), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("stop_at", stop_at),
                                    MT_OPERAND("list", list), MT_OPERAND("stop", stop)},
                     5, NULL, &error));
    OK(mt_graph_node(g, file, "raise", NULL, (mt_operand[]){MT_OPERAND_LIVE("by", by), MT_OPERAND("n", n)}, 2, NULL,
                     &error));
    size_t bytes;
    void *memory;
    const mt_target target = {.processors = 3, .placement = placement};
    OK(mt_machine_open(&s->machine, machine, &error));
    OK(mt_compile(g, &target, &s->program, &error));
    OK(mt_session_create(&s->session, s->machine, s->program, &error));
    OK(mt_session_memory(s->session, "stop_at", &memory, &bytes, &error));
    s->stop_at = memory;
    OK(mt_session_memory(s->session, "list", &memory, &bytes, &error));
    s->list = memory;
    *s->stop_at = INT32_MAX;
    mt_graph_destroy(g);
}

static void close_stage(stage *s) {
    mt_session_destroy(s->session);
    mt_program_destroy(s->program);
    mt_machine_close(s->machine);
}

/* After r runs from zero, where run k adds first + k * step to each of the parts. */
static int32_t total(int32_t first, int32_t step, int32_t r) { return PARTS * (r * first + step * (r * (r - 1) / 2)); }

typedef struct watch {
    const stage *s;
    int32_t calls, end_after;
} watch;
static int look(void *context) {
    watch *w = context;
    return ++w->calls == w->end_after;
}

static void loop_on(const char *machine, mt_placement placement, int32_t many) {
    stage s;
    int32_t done = -1, counters[PARTS], word = 0;
    open_stage(&s, machine, placement);
    /* all live values move; the second loop goes on where the first ended */
    const mt_live_step lives[] = {{"pos", 2, 1}, {"by", 7, 3}};
    const mt_loop loop = {.runs = many, .lives = lives, .live_count = 2, .stop = "stop"};
    memset(s.list, 255, ROOM * sizeof *s.list);
    OK(mt_session_loop(s.session, &loop, &done, &error));
    assert_int_equal(done, many);
    for (int32_t r = 0; r < many; r++) assert_int_equal(s.list[2 + r], total(7, 3, r));
    assert_int_equal(s.list[1], -1);
    assert_int_equal(s.list[2 + many], -1);
    OK(mt_session_read(s.session, "n", counters, sizeof counters, &error));
    for (int p = 0; p < PARTS; p++) assert_int_equal(counters[p], total(7, 3, many) / PARTS);
    /* live values are left as in the last run */
    OK(mt_session_run(s.session, &error));
    OK(mt_session_read(s.session, "n", counters, sizeof counters, &error));
    assert_int_equal(counters[0], total(7, 3, many) / PARTS + 7 + 3 * (many - 1));
    assert_int_equal(s.list[1 + many], total(7, 3, many));
    /* the word ends a loop early, in any of its runs; a loop of one run, too */
    const int32_t step = many / 8 + 1;
    for (int32_t at = 1; at < many; at += step) {
        memset(counters, 0, sizeof counters);
        OK(mt_session_write(s.session, "n", counters, sizeof counters, &error));
        OK(mt_session_write(s.session, "stop", &word, sizeof word, &error));
        *s.stop_at = total(7, 3, at);
        OK(mt_session_loop(s.session, &loop, &done, &error));
        assert_int_equal(done, at + 1);
        OK(mt_session_read(s.session, "n", counters, sizeof counters, &error));
        assert_int_equal(counters[PARTS - 1], total(7, 3, at + 1) / PARTS);
        int32_t got;
        OK(mt_session_read(s.session, "stop", &got, sizeof got, &error));
        assert_int_equal(got, total(7, 3, at));
    }
    close_stage(&s);
}

static void test_cpu(void **state) {
    (void)state;
    loop_on("cpu:1", MT_PLACE_STATIC, 40);
    loop_on("cpu:2", MT_PLACE_STATIC, 1);
    loop_on("cpu:2", MT_PLACE_QUEUE, 40);
}

static void test_sim(void **state) {
    (void)state;
    loop_on("sim:3", MT_PLACE_STATIC, 6);
    loop_on("sim:3", MT_PLACE_QUEUE, 6);
    loop_on("sim:3", MT_PLACE_STATIC, 1);
}

static void test_poll(void **state) {
    (void)state;
    stage s;
    int32_t done;
    open_stage(&s, "cpu:2", MT_PLACE_STATIC);
    const mt_live_step lives[] = {{"pos", 0, 2}, {"by", 1, 0}};
    watch w = {.s = &s, .end_after = 4};
    const mt_loop loop = {.runs = 100, .lives = lives, .live_count = 2, .poll = look, .context = &w};
    OK(mt_session_loop(s.session, &loop, &done, &error));
    assert_int_equal(done, 4);
    assert_int_equal(w.calls, 4);
    assert_int_equal(s.list[6], 3 * PARTS);
    close_stage(&s);
}

static void test_refused(void **state) {
    (void)state;
    stage s;
    int32_t done = 7, counters[PARTS + 1];
    open_stage(&s, "cpu:2", MT_PLACE_STATIC);
    const mt_live_step good = {"by", 1, 1}, low = {"by", -100, -1}, high = {"by", 9998, 1}, wide = {"by", 0, INT32_MAX},
                       none = {"size", 1, 1}, below = {"pos", -1, 1};
    mt_loop loop = {.runs = 3, .lives = &good, .live_count = 1};
    OK(mt_session_loop(s.session, &loop, NULL, &error));
    loop.runs = 0;
    REFUSED("a loop of 0 runs", mt_session_loop(s.session, &loop, &done, &error));
    assert_int_equal(done, 0);
    loop.runs = 4;
    loop.lives = &high;
    REFUSED("9998 to 10001", mt_session_loop(s.session, &loop, &done, &error));
    loop.lives = &low;
    REFUSED("-100 to -103", mt_session_loop(s.session, &loop, &done, &error));
    loop.lives = &wide;
    REFUSED("6442450941", mt_session_loop(s.session, &loop, &done, &error));
    loop.lives = &below;
    REFUSED("range is 0", mt_session_loop(s.session, &loop, &done, &error));
    loop.lives = &none;
    REFUSED("no live value 'size'", mt_session_loop(s.session, &loop, &done, &error));
    loop.lives = &good;
    loop.stop = "list";
    REFUSED("no state 'list'", mt_session_loop(s.session, &loop, &done, &error));
    loop.stop = "halt";
    REFUSED("no state 'halt'", mt_session_loop(s.session, &loop, &done, &error));
    loop.stop = "real";
    REFUSED("not f32", mt_session_loop(s.session, &loop, &done, &error));
    OK(mt_session_read(s.session, "n", counters, PARTS * sizeof *counters, &error));
    for (int p = 0; p < PARTS; p++) assert_int_equal(counters[p], 1 + 2 + 3); /* nothing of all this ran */
    REFUSED("bytes, not", mt_session_read(s.session, "n", counters, sizeof counters, &error));
    REFUSED("no tensor 'm'", mt_session_write(s.session, "m", counters, 4, &error));
    close_stage(&s);
}

/* 119 runs in 99 ms: times the length of a launch in nanoseconds that does not fit 32 bits. It came out negative, and
 * the kernel was asked for four billion runs. */
static void test_next_runs(void **state) {
    (void)state;
    assert_int_equal(cuda_next_runs(119, 98770000), 1 + 11900000000 / 98770001);
    assert_int_equal(cuda_next_runs(16, 13280000), 1 + 1600000000 / 13280001);
    assert_int_equal(cuda_next_runs(0, 0), 1);
    assert_int_equal(cuda_next_runs(4096, 1), CUDA_LOOP_RUNS);
    assert_int_equal(cuda_next_runs(INT32_MAX, UINT64_C(3600000000000)), CUDA_LOOP_RUNS);
    assert_int_equal(cuda_next_runs(4096, UINT64_C(3600000000000)), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_sim),
                                       cmocka_unit_test(test_poll), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_next_runs)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
