/* The CPU machine: the same bits with any number of workers, memory and live values, the cache of compiled ops, and
 * programs that hang. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine/cpu/cpu.h"
#include "temporary.h"

static const char tiles[] = "tile affine[R, C, BR = 1](x: in f32[R, C], w: in f32[R, C], a: arg f32, y: out f32[R, C]) "
                            "over (r in ceil(R / BR))\n"
                            "{ y[r*BR : +BR, :] = x[r*BR : +BR, :] * a + w[r*BR : +BR, :] }\n"
                            "tile mix[R, C](x: in f32[R, C], y: out f32[R, C]) over (r in R)\n"
                            "{ y[r : +1, :] = x[r : +1, :] * 0.5 + sum(x, 0) * 0.125 }\n"
                            "tile accumulate[C](x: in f32[R, C], y: inout f32[1, C]) over (r in R)\n"
                            "{ y[:, :] += x[r : +1, :] }\n"
                            "tile put[C](x: in f32[M, C], pos: live i32, y: out f32[S, C]) over (m in M)\n"
                            "{ y[pos + m, :] = x[m, :] }\n"
                            "tile take[C](x: in f32[S, C], pos: live i32, y: out f32[M, C]) over (m in M)\n"
                            "{ y[m, :] = x[pos + m, :] }\n"
                            "tile prefix[C](x: in f32[N, C], y: out f32[1, C]) over (i in 1)\n"
                            "{ acc: f32[1, C] = 0\n for j in N { acc += x[j : +1, :] }\n y[:, :] = acc }\n"
                            "tile bump[C](by: arg i32, y: inout f32[C]) over (i in 1)\n"
                            "{ y[:] += f32[C](f32(by)) }\n";

static mt_tile *file;
static char folder[TEMPORARY_BYTES];

static int set_up(void **state) {
    (void)state;
    char *diagnostics = NULL;
    mt_error error = {0};
    if (mt_tile_parse(&file, "test.tile", tiles, strlen(tiles), &diagnostics, &error) != MT_OK)
        fail_msg("%s", diagnostics);
    free(diagnostics);
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}

static int tear_down(void **state) {
    (void)state;
    mt_tile_close(file);
    return temporary_remove(folder);
}

static void check_status(mt_status status, const mt_error *error) {
    if (status != MT_OK) fail_msg("%s: %s: %s", mt_status_name(status), error->where, error->message);
}
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        mt_error error = {0};                                                                                          \
        const mt_status status_ = (call);                                                                              \
        check_status(status_, &error);                                                                                 \
    } while (0)
#define REFUSED(code, words, call)                                                                                     \
    do {                                                                                                               \
        mt_error error = {0};                                                                                          \
        assert_int_equal((call), code);                                                                                \
        if (!strstr(error.message, words)) fail_msg("expected '%s', got: %s", words, error.message);                   \
    } while (0)

/* ---- programs ---- */

static mt_graph *new_graph(void) {
    mt_graph *g;
    OK(mt_graph_create(&g, &error));
    return g;
}

static mt_tensor tensor(mt_graph *g, mt_role role, const char *name, int rank, int64_t rows, int64_t columns) {
    mt_tensor t;
    OK(mt_graph_tensor(g, role, name, "f32", rank, (int64_t[]){rows, columns}, &t, &error));
    return t;
}

#define NODE(g, program, ...)                                                                                          \
    OK(mt_graph_node(g, file, program, program, (mt_operand[]){__VA_ARGS__},                                           \
                     sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand), NULL, &error))
#define T(n, t) MT_OPERAND(n, t)

static mt_program *compile(mt_graph *g, int processors, mt_placement placement) {
    mt_program *p;
    OK(mt_compile(g, &(mt_target){.processors = processors, .placement = placement, .no_fusion = 1}, &p, &error));
    mt_graph_destroy(g);
    return p;
}

enum { LAYERS = 12, R = 9, C = 40 };

/* y = a chain of row by row and all to all steps over x; total = the ordered sum of y's rows, kept from run to run. */
static mt_program *chain_program(int processors, mt_placement placement) {
    mt_graph *g = new_graph();
    const mt_tensor w = tensor(g, MT_WEIGHT, "w", 2, R, C), y = tensor(g, MT_OUTPUT, "y", 2, R, C),
                    total = tensor(g, MT_STATE, "total", 2, 1, C);
    mt_tensor x = tensor(g, MT_INPUT, "x", 2, R, C);
    for (int l = 0; l < LAYERS; l++) {
        const mt_tensor a = tensor(g, MT_TEMP, NULL, 2, R, C),
                        b = l + 1 < LAYERS ? tensor(g, MT_TEMP, NULL, 2, R, C) : y;
        NODE(g, "affine", T("x", x), T("w", w), MT_OPERAND_FLOAT("a", 0.75f), T("y", a), MT_OPERAND_INTEGER("BR", 2));
        NODE(g, "mix", T("x", a), T("y", b));
        x = b;
    }
    NODE(g, "accumulate", T("x", y), T("y", total));
    return compile(g, processors, placement);
}

static void fill(float *x, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) x[i] = (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
}

static void chain_reference(const float *x, const float *w, double *y) {
    double now[R * C];
    for (int i = 0; i < R * C; i++) now[i] = x[i];
    for (int l = 0; l < LAYERS; l++) {
        double sums[C] = {0};
        for (int i = 0; i < R * C; i++) now[i] = now[i] * 0.75 + w[i], sums[i % C] += now[i];
        for (int i = 0; i < R * C; i++) now[i] = now[i] * 0.5 + sums[i % C] * 0.125;
    }
    memcpy(y, now, sizeof now);
}

static mt_machine *machine(const char *name) {
    mt_machine *m;
    OK(mt_machine_open(&m, name, &error));
    return m;
}

static mt_session *session(mt_machine *m, const mt_program *p) {
    mt_session *s;
    OK(mt_session_create(&s, m, p, &error));
    return s;
}

static float *memory(mt_session *s, const char *name) {
    void *data;
    size_t bytes;
    OK(mt_session_memory(s, name, &data, &bytes, &error));
    return data;
}

/* ---- tests ---- */

static void test_open(void **state) {
    (void)state;
    mt_machine *m = machine("cpu");
    const int all = mt_machine_processors(m);
    assert_true(all >= 1);
    mt_machine_close(m);
    m = machine("auto");
    assert_int_equal(mt_machine_processors(m), all);
    mt_machine_close(m);
    m = machine("cpu:3");
    assert_int_equal(mt_machine_processors(m), 3);
    assert_string_equal(mt_machine_name(m), "cpu:3");
    mt_machine_close(m);
    mt_machine_close(NULL);
    REFUSED(MT_E_ARGUMENT, "a number of workers from 1", mt_machine_open(&m, "cpu:0", &error));
    REFUSED(MT_E_ARGUMENT, "a number of workers from 1", mt_machine_open(&m, "cpu:x", &error));
    REFUSED(MT_E_ARGUMENT, "a number of workers from 1", mt_machine_open(&m, "cpu:99999999999999999999", &error));
    REFUSED(MT_E_ARGUMENT, "no machine 'cp'", mt_machine_open(&m, "cp", &error));
    REFUSED(MT_E_ARGUMENT, "no machine 'cpux'", mt_machine_open(&m, "cpux", &error));
    assert_null(m);
}

static void test_same_bits(void **state) {
    (void)state;
    static float x[R * C] __attribute__((aligned(64))), w[R * C], first[R * C], first_total[C];
    double expected[R * C];
    fill(x, R * C, 1), fill(w, R * C, 2);
    chain_reference(x, w, expected);
    const char *const machines[] = {"cpu:1", "cpu:2", "cpu:7"};
    int round = 0;
    for (int processors = 1; processors <= 7; processors += 3)
        for (int placement = 0; placement < 2; placement++) {
            mt_program *p = chain_program(processors, (mt_placement)placement);
            for (int k = 0; k < 3; k++, round++) {
                mt_machine *m = machine(machines[k]);
                mt_session *s = session(m, p);
                OK(mt_session_bind(s, "x", x, sizeof x, &error));
                OK(mt_session_bind_weight(s, "w", w, sizeof w, &error));
                float *y = memory(s, "y"), *total = memory(s, "total");
                enum { RUNS = 20 };
                for (int run = 0; run < RUNS; run++) {
                    memset(y, 0xff, sizeof first);
                    OK(mt_session_run(s, &error));
                    if (!round && !run) memcpy(first, y, sizeof first);
                    assert_memory_equal(y, first, sizeof first);
                }
                if (!round) memcpy(first_total, total, sizeof first_total);
                assert_memory_equal(total, first_total,
                                    sizeof first_total); /* a state: the sum over all runs, in order */
                for (int i = 0; i < R * C; i++) assert_true(fabs(y[i] - expected[i]) < 1e-5 * (1 + fabs(expected[i])));
                for (int c = 0; c < C; c++) {
                    double sum = 0;
                    for (int r = 0; r < R; r++) sum += RUNS * expected[r * C + c];
                    assert_true(fabs(total[c] - sum) < 1e-4 * (1 + fabs(sum)));
                }
                mt_session_destroy(s);
                mt_machine_close(m);
            }
            mt_program_destroy(p);
        }
    mt_session_destroy(NULL);
}

static void test_binding(void **state) {
    (void)state;
    mt_program *p = chain_program(2, MT_PLACE_STATIC);
    mt_machine *m = machine("cpu:2");
    mt_session *s = session(m, p);
    static float x[R * C + 16] __attribute__((aligned(64))), w[R * C + 1], y[R * C] __attribute__((aligned(64))),
        own[R * C];
    fill(x, R * C, 3), fill(w, R * C + 1, 4);
    void *data;
    REFUSED(MT_E_ARGUMENT, "' is not bound", mt_session_run(s, &error));
    REFUSED(MT_E_ARGUMENT, "no tensor 'z'", mt_session_bind(s, "z", x, sizeof x, &error));
    REFUSED(MT_E_ARGUMENT, "needs 1440 bytes; 1439 are bound", mt_session_bind(s, "x", x, R * C * 4 - 1, &error));
    REFUSED(MT_E_ARGUMENT, "needs 1440 bytes; 0 are bound", mt_session_bind(s, "x", NULL, R * C * 4, &error));
    REFUSED(MT_E_ARGUMENT, "aligned to 64 bytes", mt_session_bind(s, "x", x + 1, R * C * 4, &error));
    REFUSED(MT_E_ARGUMENT, "is no weight", mt_session_bind_weight(s, "x", x, R * C * 4, &error));
    REFUSED(MT_E_ARGUMENT, "aligned to 4 bytes", mt_session_bind_weight(s, "w", (char *)w + 1, R * C * 4, &error));
    REFUSED(MT_E_ARGUMENT, "there is no memory to hand out", mt_session_memory(s, "w", &data, NULL, &error));
    OK(mt_session_bind(s, "x", x, sizeof x, &error));
    REFUSED(MT_E_ARGUMENT, "weight 'w' is not bound", mt_session_run(s, &error));
    OK(mt_session_bind_weight(s, "w", w + 1, R * C * 4, &error)); /* any alignment of f32 */
    OK(mt_session_run(s, &error));
    memcpy(own, memory(s, "y"), sizeof own); /* the session's own memory */
    OK(mt_session_bind(s, "y", y, sizeof y, &error));
    OK(mt_session_run(s, &error));
    assert_memory_equal(y, own, sizeof own);
    assert_ptr_equal(memory(s, "y"), y);
    float *const input = memory(s, "x");
    assert_ptr_equal(input, x);
    OK(mt_session_bind_weight(s, "w", w, sizeof w, &error)); /* bound again */
    OK(mt_session_run(s, &error));
    assert_memory_not_equal(y, own, sizeof own);
    mt_session_destroy(s);
    mt_machine_close(m);
    mt_program_destroy(p);
}

static void test_live(void **state) {
    (void)state;
    enum { S = 10, M = 3, W = 5 };
    mt_graph *g = new_graph();
    mt_live pos, rows;
    OK(mt_graph_live(g, "pos", 0, S - M, &pos, &error));
    OK(mt_graph_live(g, "rows", 0, S, &rows, &error));
    const mt_tensor x = tensor(g, MT_INPUT, "x", 2, M, W), cache = tensor(g, MT_STATE, "cache", 2, S, W),
                    back = tensor(g, MT_OUTPUT, "back", 2, M, W);
    const mt_tensor list = tensor(g, MT_INPUT, "list", 2, S, W), sum = tensor(g, MT_OUTPUT, "sum", 2, 1, W),
                    count = tensor(g, MT_STATE, "count", 1, 4, 0);
    OK(mt_graph_live_extent(g, list, 0, rows, &error));
    NODE(g, "put", T("x", x), MT_OPERAND_LIVE("pos", pos), T("y", cache));
    NODE(g, "take", T("x", cache), MT_OPERAND_LIVE("pos", pos), T("y", back));
    NODE(g, "prefix", T("x", list), T("y", sum));
    NODE(g, "bump", MT_OPERAND_INTEGER("by", 3), T("y", count));
    mt_program *p = compile(g, 2, MT_PLACE_QUEUE);
    mt_machine *m = machine("cpu:2");
    mt_session *s = session(m, p);
    float *in = memory(s, "x"), *all = memory(s, "list"), *kept = memory(s, "cache");
    REFUSED(MT_E_ARGUMENT, "no live value 'position'", mt_session_live(s, "position", 1, &error));
    REFUSED(MT_E_ARGUMENT, "is 8; its range is 0 .. 7", mt_session_live(s, "pos", S - M + 1, &error));
    REFUSED(MT_E_ARGUMENT, "is -1; its range is 0 .. 7", mt_session_live(s, "pos", -1, &error));
    float expected[S * W] = {0};
    fill(all, S * W, 9);
    for (int run = 0; run < 6; run++) {
        const int at = run * 5 % (S - M + 1), n = run * 3 % (S + 1);
        if (run) OK(mt_session_live(s, "pos", at, &error)); /* the first run takes the least values */
        if (run) OK(mt_session_live(s, "rows", n, &error));
        fill(in, M * W, 20 + (uint32_t)run);
        memcpy(expected + at * W, in, M * W * sizeof(float));
        OK(mt_session_run(s, &error));
        assert_memory_equal(kept, expected, sizeof expected);
        assert_memory_equal(memory(s, "back"), in, M * W * sizeof(float));
        for (int c = 0; c < W; c++) {
            float total = 0;
            for (int r = 0; r < n; r++) total += all[r * W + c];
            assert_true(fabsf(memory(s, "sum")[c] - total) < 1e-5f);
        }
        for (int c = 0; c < 4; c++) assert_true(memory(s, "count")[c] == 3 * (float)(run + 1));
    }
    mt_session *other = session(m, p); /* its own state */
    OK(mt_session_bind(other, "x", in, M * W * 4, &error));
    OK(mt_session_bind(other, "list", all, S * W * 4, &error));
    OK(mt_session_run(other, &error));
    assert_true(memory(other, "count")[0] == 3 && memory(s, "count")[0] == 18);
    assert_memory_equal(memory(other, "cache"), in, M * W * sizeof(float));
    mt_session_destroy(other);
    mt_session_destroy(s);
    mt_machine_close(m);
    mt_program_destroy(p);
}

/* A state far larger than memory: only what is used may be touched. */
static void test_large_state(void **state) {
    (void)state;
    const int32_t most = 1 << 30;
    mt_graph *g = new_graph();
    mt_live pos;
    OK(mt_graph_live(g, "pos", 0, most, &pos, &error));
    const mt_tensor x = tensor(g, MT_INPUT, "x", 2, 1, 16),
                    cache = tensor(g, MT_STATE, "cache", 2, (int64_t)most + 1, 16);
    NODE(g, "put", T("x", x), MT_OPERAND_LIVE("pos", pos), T("y", cache));
    mt_program *p = compile(g, 1, MT_PLACE_STATIC);
    mt_machine *m = machine("cpu:1");
    mt_session *s = session(m, p);
    mt_error large = {0};
    void *data;
    float *in = memory(s, "x");
    if (mt_session_memory(s, "cache", &data, NULL, &large) ==
        MT_OK) { /* refused where the system limits address space */
        fill(in, 16, 5);
        OK(mt_session_live(s, "pos", most, &error));
        OK(mt_session_run(s, &error));
        assert_memory_equal((float *)data + (int64_t)most * 16, in, 64);
    } else {
        assert_int_equal(large.code, MT_E_MEMORY);
    }
    mt_session_destroy(s);
    mt_machine_close(m);
    mt_program_destroy(p);
}

typedef struct runner {
    mt_machine *m;
    const mt_program *p;
    const float *w;
    uint32_t seed;
    pthread_t thread;
} runner;

static void *run_session(void *argument) {
    runner *r = argument;
    mt_session *s = session(r->m, r->p);
    OK(mt_session_bind_weight(s, "w", r->w, R * C * 4, &error));
    double expected[R * C];
    for (uint32_t run = 0; run < 30; run++) {
        fill(memory(s, "x"), R * C, r->seed + run);
        OK(mt_session_run(s, &error));
        chain_reference(memory(s, "x"), r->w, expected);
        const float *y = memory(s, "y");
        for (int i = 0; i < R * C; i++) assert_true(fabs(y[i] - expected[i]) < 1e-5 * (1 + fabs(expected[i])));
    }
    mt_session_destroy(s);
    return NULL;
}

static void
test_turns(void **state) { /* sessions of one machine in several threads, and another machine at the same time */
    (void)state;
    static float w[R * C];
    fill(w, R * C, 6);
    mt_program *p = chain_program(2, MT_PLACE_STATIC);
    mt_machine *m[2] = {machine("cpu:2"), machine("cpu:3")};
    runner runners[4];
    for (int k = 0; k < 4; k++) {
        runners[k] = (runner){m[k == 3], p, w, 100 * (uint32_t)k, 0};
        assert_int_equal(pthread_create(&runners[k].thread, NULL, run_session, &runners[k]), 0);
    }
    for (int k = 0; k < 4; k++) pthread_join(runners[k].thread, NULL);
    mt_machine_close(m[0]), mt_machine_close(m[1]);
    mt_program_destroy(p);
}

/* Counters and epochs are 32 bits: runs go on where they wrap around. */
static void test_wrap(void **state) {
    (void)state;
    static float w[R * C];
    mt_program *p = chain_program(2, MT_PLACE_STATIC);
    mt_machine *m = machine("cpu:2");
    mt_session *s = session(m, p);
    fill(w, R * C, 7);
    OK(mt_session_bind_weight(s, "w", w, sizeof w, &error));
    fill(memory(s, "x"), R * C, 8);
    OK(mt_session_run(s, &error));
    float first[R * C];
    memcpy(first, memory(s, "y"), sizeof first);
    for (uint32_t epoch = UINT32_MAX - 2, k = 0; k < 2; k++, epoch = INT32_MAX - 2) {
        cpu_session *inside = (cpu_session *)s;
        inside->epoch = epoch;
        for (size_t b = 0; b < p->barriers_count; b++)
            atomic_store(&inside->barriers[b].count, epoch * p->barriers[b].arrivals);
        for (int run = 0; run < 6; run++) {
            memset(memory(s, "y"), 0, sizeof first);
            OK(mt_session_run(s, &error));
            assert_memory_equal(memory(s, "y"), first, sizeof first);
        }
    }
    mt_session_destroy(s);
    mt_machine_close(m);
    mt_program_destroy(p);
}

/* A barrier that never gets all its arrivals. No checked program has one; this one goes around the checker. */
static void test_hang(void **state) {
    (void)state;
    static float w[R * C];
    mt_program *good = chain_program(2, MT_PLACE_STATIC), *p;
    const size_t size = good->header->file_bytes;
    uint8_t *bytes = malloc(size);
    memcpy(bytes, good->header, size);
    OK(program_decode(&p, bytes, size, "broken", &error));
    size_t victim = p->instructions_count / 2;
    while (!p->instructions[victim].wait_count) victim++;
    uint32_t *target = (uint32_t *)&p->instructions[victim].target[0];
    const char *const machines[] = {"cpu:1", "cpu:2", "cpu:7"};
    for (int k = 0; k < 3; k++) {
        mt_machine *m = machine(machines[k]);
        mt_session *s = session(m, p);
        fill(w, R * C, 11);
        OK(mt_session_bind_weight(s, "w", w, sizeof w, &error));
        fill(memory(s, "x"), R * C, 12);
        OK(mt_session_run(s, &error));
        float first[R * C];
        memcpy(first, memory(s, "y"), sizeof first);
        mt_session_timeout(s, 0.2);
        for (int run = 0; run < 3; run++) {
            ++*target;
            char words[64];
            snprintf(words, sizeof words, "waits for %u arrivals at barrier %u, which has %u", *target,
                     p->instructions[victim].wait[0], *target - 1);
            const uint64_t begin = clock_ns();
            REFUSED(MT_E_HANG, words, mt_session_run(s, &error));
            assert_true(clock_ns() - begin < 5000000000u); /* it ended; how soon depends on the machine */
            snprintf(words, sizeof words, ": instruction %zu (", victim);
            REFUSED(MT_E_HANG, words, mt_session_run(s, &error)); /* again, from cleared counters */
            --*target;
            OK(mt_session_run(s, &error)); /* afresh */
            assert_memory_equal(memory(s, "y"), first, sizeof first);
        }
        mt_session_timeout(s, 0);
        OK(mt_session_run(s, &error));
        mt_session_destroy(s);
        mt_machine_close(m);
    }
    program_free(p);
    free(bytes);
    mt_program_destroy(good);
}

static void test_profile(void **state) {
    (void)state;
    static float w[R * C];
    mt_program *p = chain_program(2, MT_PLACE_QUEUE);
    mt_machine *m = machine("cpu:2");
    mt_session *s = session(m, p);
    OK(mt_session_bind_weight(s, "w", w, sizeof w, &error));
    memory(s, "x");
    mt_node_time times[2 * LAYERS + 1];
    assert_int_equal(mt_session_node_times(s, times, 0), 2 * LAYERS + 1);
    OK(mt_session_profile(s, 1, &error));
    for (int run = 0; run < 2; run++) {
        OK(mt_session_run(s, &error));
        assert_int_equal(mt_session_node_times(s, times, COUNT_OF(times)), COUNT_OF(times));
        uint32_t instructions = 0;
        for (size_t k = 0; k < COUNT_OF(times); k++) {
            assert_true(times[k].seconds > 0 && times[k].seconds < 10);
            assert_string_equal(times[k].op, times[k].name);
            instructions += times[k].instructions;
        }
        assert_int_equal(instructions, p->instructions_count);
    }
    OK(mt_session_profile(s, 0, &error));
    OK(mt_session_run(s, &error));
    mt_session_destroy(s);
    mt_machine_close(m);
    mt_program_destroy(p);
}

/* ---- the compiler and its cache ---- */

typedef struct cached {
    char path[8][512];
    size_t count;
} cached;

static cached cached_objects(const char *cache) {
    cached out = {.count = 0};
    char path[256];
    snprintf(path, sizeof path, "%s/cpu", cache);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t length = strlen(e->d_name);
        if (length > 3 && !strcmp(e->d_name + length - 3, ".so")) {
            assert_true(out.count < 8);
            snprintf(out.path[out.count++], sizeof out.path[0], "%s/%s", path, e->d_name);
        }
    }
    if (d) closedir(d);
    return out;
}

static size_t files_in(const char *cache) {
    char path[256];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/cpu", cache);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) count += e->d_name[0] != '.';
    if (d) closedir(d);
    return count;
}

static void run_once(const mt_program *p) {
    static float w[R * C];
    mt_machine *m = machine("cpu:1");
    mt_session *s = session(m, p);
    OK(mt_session_bind_weight(s, "w", w, sizeof w, &error));
    fill(memory(s, "x"), R * C, 1);
    OK(mt_session_run(s, &error));
    mt_session_destroy(s);
    mt_machine_close(m);
}

static void test_cache(void **state) {
    (void)state;
    char cache[200];
    snprintf(cache, sizeof cache, "%s/own", folder);
    setenv("MONOTILE_CACHE", cache, 1);
    mt_program *p = chain_program(1, MT_PLACE_STATIC);
    run_once(p);
    const cached objects = cached_objects(cache);
    assert_int_equal(objects.count, 3);           /* affine, mix, accumulate */
    assert_int_equal(files_in(cache), 3 + 3 + 1); /* their texts; the compiler's version; nothing temporary */
    struct stat before, after;
    assert_int_equal(stat(objects.path[0], &before), 0);
    run_once(p);
    assert_int_equal(stat(objects.path[0], &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* found, not made again */

    for (int damage = 0; damage < 5; damage++) {
        text object = {0};
        OK(file_read(&object, objects.path[0], 1 << 24, &error));
        if (damage == 0)
            object.length = 0;
        else if (damage == 1)
            object.length /= 2;
        else if (damage == 2)
            object.data[object.length / 3] ^= 4;
        else if (damage == 3)
            object.length--;
        else
            memset(object.data, 0, object.length);
        OK(file_write_atomic(objects.path[0], object.data, object.length, &error));
        text_free(&object);
        run_once(p); /* made again */
        OK(file_read(&object, objects.path[0], 1 << 24, &error));
        assert_true(object.length > 1000);
        text_free(&object);
        assert_int_equal(files_in(cache), 3 + 3 + 1);
    }
    mt_program_destroy(p);
    setenv("MONOTILE_CACHE", folder, 1);
}

static void test_compiler(void **state) {
    (void)state;
    char cache[200];
    snprintf(cache, sizeof cache, "%s/compiler", folder);
    setenv("MONOTILE_CACHE", cache, 1);
    const char *const kept = getenv("CC");
    char *const cc = kept ? strdup(kept) : NULL;
    mt_program *p = chain_program(1, MT_PLACE_STATIC);
    mt_machine *m = machine("cpu:1");
    mt_session *s;
    setenv("CC", "no-such-compiler", 1);
    REFUSED(MT_E_COMPILE, "there is no C compiler 'no-such-compiler'", mt_session_create(&s, m, p, &error));
    assert_null(s);
    setenv("CC", "false", 1);
    REFUSED(MT_E_COMPILE, "is CC a C compiler?", mt_session_create(&s, m, p, &error));
    setenv("CC", "cc -include no-such-header.h", 1); /* an argument in CC; and the compiler's own words */
    REFUSED(MT_E_COMPILE, "no-such-header.h", mt_session_create(&s, m, p, &error));
    setenv("CC", "cc -g0", 1);
    s = session(m, p);
    mt_session_destroy(s);
    assert_int_equal(cached_objects(cache).count, 3);
    unsetenv("CC");
    s = session(m, p);
    mt_session_destroy(s);
    assert_int_equal(cached_objects(cache).count, 6); /* other arguments, other objects */
    if (cc) setenv("CC", cc, 1);
    free(cc);
    setenv("MONOTILE_CACHE", folder, 1);
    mt_machine_close(m);
    mt_program_destroy(p);
}

static void test_processes(void **state) { /* several fill one empty cache at once */
    (void)state;
    char cache[200];
    snprintf(cache, sizeof cache, "%s/shared", folder);
    setenv("MONOTILE_CACHE", cache, 1);
    mt_program *p = chain_program(1, MT_PLACE_STATIC);
    pid_t children[3];
    for (int k = 0; k < 3; k++) {
        children[k] = fork();
        if (!children[k]) {
            mt_machine *m;
            mt_session *s;
            mt_error error = {0};
            const bool fine =
                mt_machine_open(&m, "cpu:1", &error) == MT_OK && mt_session_create(&s, m, p, &error) == MT_OK;
            _exit(fine ? 0 : 1);
        }
    }
    for (int k = 0; k < 3; k++) {
        int status;
        assert_int_equal(waitpid(children[k], &status, 0), children[k]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(cached_objects(cache).count, 3);
    run_once(p);
    mt_program_destroy(p);
    setenv("MONOTILE_CACHE", folder, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), cmocka_unit_test(test_open),  cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_binding),   cmocka_unit_test(test_live),  cmocka_unit_test(test_large_state),
        cmocka_unit_test(test_turns),     cmocka_unit_test(test_wrap),  cmocka_unit_test(test_hang),
        cmocka_unit_test(test_profile),   cmocka_unit_test(test_cache), cmocka_unit_test(test_compiler),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
