/* Traces: what the CPU machine notes of real runs, in every order of workers; the tables, from a trace made by hand;
 * the JSON; times of many clocks, from what a GPU would note, against the times that were meant; what a traced kernel
 * notes on the simulator; records that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/trace.h"
#include "monotile/graph.h"
#include "ok.h"
#include "temporary.h"
#include "temporary.h"

static const char tiles[] =
    "tile affine[R, C](x: in f32[R, C], w: in f32[R, C], y: out f32[R, C]) over (r in R)\n"
    "{ y[r : +1, :] = x[r : +1, :] * 0.5 + w[r : +1, :] }\n"
    "tile mix[R, C](x: in f32[R, C], y: out f32[R, C]) over (r in R)\n"
    "{ y[r : +1, :] = x[r : +1, :] * 0.5 + sum(x, 0) * 0.125 }\n"
    "tile pick[C](t: in f32[S, C], i: in i32[R], y: out f32[R, C]) over (r in R) { y[r, :] = t[i[r], :] }\n";

static mt_tile *file;
static char folder[TEMPORARY_BYTES];

static int set_up(void **state) {
    (void)state;
    mt_error error = {0};
    if (mt_tile_parse(&file, "test.tile", tiles, strlen(tiles), NULL, &error) != MT_OK) fail_msg("%s", error.message);
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}

static int tear_down(void **state) {
    (void)state;
    mt_tile_close(file);
    return temporary_remove(folder);
}

#define REFUSED(code, words, call)                                                                                     \
    do {                                                                                                               \
        mt_error error = {0};                                                                                          \
        assert_int_equal((call), code);                                                                                \
        if (!strstr(error.message, words)) fail_msg("expected '%s', got: %s", words, error.message);                   \
    } while (0)

/* ---- programs ---- */

static mt_tensor tensor(mt_graph *g, mt_role role, const char *name, const char *type, int rank, int64_t rows,
                        int64_t columns) {
    mt_tensor t;
    OK(mt_graph_tensor(g, role, name, type, rank, (int64_t[]){rows, columns}, &t, &error));
    return t;
}

static void node(mt_graph *g, const char *program, const char *name, const mt_operand *operands, size_t count) {
    OK(mt_graph_node(g, file, program, name, operands, count, NULL, &error));
}

/* x through `layers` of affine and mix. */
static mt_program *chain(int layers, int rows, int columns, int processors, mt_placement placement) {
    mt_graph *g;
    mt_program *p;
    OK(mt_graph_create(&g, &error));
    const mt_tensor w = tensor(g, MT_WEIGHT, "w", "f32", 2, rows, columns),
                    y = tensor(g, MT_OUTPUT, "y", "f32", 2, rows, columns);
    mt_tensor x = tensor(g, MT_INPUT, "x", "f32", 2, rows, columns);
    for (int l = 0; l < layers; l++) {
        char name[40];
        const mt_tensor a = tensor(g, MT_TEMP, NULL, "f32", 2, rows, columns),
                        b = l + 1 < layers ? tensor(g, MT_TEMP, NULL, "f32", 2, rows, columns) : y;
        snprintf(name, sizeof name, "blk.%d.up2", l);
        node(g, "affine", name, (mt_operand[]){MT_OPERAND("x", x), MT_OPERAND("w", w), MT_OPERAND("y", a)}, 3);
        snprintf(name, sizeof name, "blk.%d.\"mix\"", l);
        node(g, "mix", name, (mt_operand[]){MT_OPERAND("x", a), MT_OPERAND("y", b)}, 2);
        x = b;
    }
    OK(mt_compile(g, &(mt_target){.processors = processors, .placement = placement, .no_fusion = 1}, &p, &error));
    mt_graph_destroy(g);
    return p;
}

typedef struct loaded {
    mt_machine *machine;
    mt_session *session;
    void *memory; /* of w */
} loaded;

static loaded load(const mt_program *p, const char *machine, size_t bytes) {
    loaded l = {.memory = calloc(1, bytes)};
    void *x;
    OK(mt_machine_open(&l.machine, machine, &error));
    OK(mt_session_create(&l.session, l.machine, p, &error));
    OK(mt_session_bind_weight(l.session, "w", l.memory, bytes, &error));
    OK(mt_session_memory(l.session, "x", &x, &bytes, &error));
    return l;
}

static void unload(loaded *l) {
    mt_session_destroy(l->session);
    mt_machine_close(l->machine);
    free(l->memory);
}

/* ---- the CPU machine ---- */

enum { LAYERS = 6, R = 9, C = 40 };

static bool arrives(const program_instruction *n, uint32_t barrier) {
    for (int k = 0; k < n->arrive_count; k++)
        if (n->arrive[k] == barrier) return true;
    return false;
}

/* Every instruction once, its steps in order, after all that it waits for and after the one before it. */
static void check_records(const mt_program *p, const mt_trace_record *r, size_t count, int workers) {
    int64_t free_at[16] = {0};
    assert_int_equal(count, p->instructions_count);
    for (size_t i = 0; i < count; i++) {
        const program_instruction *n = &p->instructions[i];
        assert_int_equal(r[i].instruction, i);
        assert_int_equal(r[i].run, 0);
        assert_true(r[i].processor < (uint32_t)workers);
        assert_true(r[i].received >= free_at[r[i].processor]);
        assert_true(r[i].received <= r[i].ready && r[i].ready <= r[i].done && r[i].done <= r[i].synced);
        assert_true(r[i].synced <= r[i].arrived);
        assert_true(r[i].first_page == -1 && r[i].load_begin == -1 && !r[i].page_wait && !r[i].pages);
        for (int k = 0; k < n->wait_count; k++)
            for (size_t j = 0; j < i; j++) /* it is ready when they are done; their clock is read a little later */
                if (arrives(&p->instructions[j], n->wait[k])) assert_true(r[j].done <= r[i].ready);
        free_at[r[i].processor] = r[i].arrived;
    }
}

static void test_cpu(void **state) {
    (void)state;
    for (int placement = 0; placement < 2; placement++)
        for (int workers = 1; workers <= 3; workers++) {
            char name[16];
            snprintf(name, sizeof name, "cpu:%d", workers);
            mt_program *p = chain(LAYERS, R, C, 2, (mt_placement)placement);
            loaded l = load(p, name, sizeof(float[R * C]));
            mt_trace_record *r;
            size_t count;
            REFUSED(MT_E_ARGUMENT, "not traced", mt_session_trace_read(l.session, &r, &count, &error));
            OK(mt_session_trace(l.session, 1, &error));
            OK(mt_session_trace_read(l.session, &r, &count, &error)); /* nothing has run */
            assert_int_equal(count, 0);
            free(r);
            for (int run = 0; run < 5; run++) {
                OK(mt_session_run(l.session, &error));
                OK(mt_session_trace_read(l.session, &r, &count, &error));
                check_records(p, r, count, workers);
                free(r);
            }
            OK(mt_session_profile(l.session, 1, &error)); /* both at once, and one after the other */
            OK(mt_session_trace(l.session, 0, &error));
            OK(mt_session_run(l.session, &error));
            mt_node_time times[2 * LAYERS];
            assert_int_equal(mt_session_node_times(l.session, times, 2 * LAYERS), 2 * LAYERS);
            for (int k = 0; k < 2 * LAYERS; k++) assert_true(times[k].seconds > 0 && times[k].instructions == R);
            OK(mt_session_profile(l.session, 0, &error));
            OK(mt_session_run(l.session, &error));
            REFUSED(MT_E_ARGUMENT, "not traced", mt_session_trace_read(l.session, &r, &count, &error));
            unload(&l);
            mt_program_destroy(p);
        }
}

/* ---- text ---- */

/* The number in a column (from 0) of the line that begins with `label`, behind the title `section`. */
static double cell(const char *table, const char *section, const char *label, int column) {
    const char *at = strstr(table, section);
    char start[80];
    snprintf(start, sizeof start, "\n%s ", label);
    at = at ? strstr(at, start) : NULL;
    if (!at) fail_msg("no line '%s' below '%s' in:\n%s", label, section, table);
    at += 1 + 51; /* the label */
    for (;; column--) {
        char *end;
        const double value = strtod(at, &end);
        if (end == at) fail_msg("no column in: %s", at);
        if (!column) return value;
        at = end;
    }
}

static void check_cell(const char *table, const char *section, const char *label, int column, double expected) {
    const double got = cell(table, section, label, column);
    if (got < expected - 0.0051 || got > expected + 0.0051)
        fail_msg("%s, %s, column %d: %g, not %g, in:\n%s", section, label, column, got, expected, table);
}

/* Two instructions of affine, then two of mix that wait for both. */
static const mt_trace_record by_hand[] = {
    {.instruction = 0,
     .processor = 0,
     .pages = 2,
     .fetched = 0,
     .received = 100,
     .ready = 200,
     .first_page = 250,
     .done = 1200,
     .synced = 1300,
     .arrived = 1500,
     .load_begin = 50,
     .load_end = 150,
     .page_wait = 300},
    {.instruction = 1,
     .processor = 1,
     .fetched = 0,
     .received = 100,
     .ready = 200,
     .first_page = -1,
     .done = 2200,
     .synced = 2300,
     .arrived = 2600,
     .load_begin = -1,
     .load_end = -1},
    {.instruction = 2,
     .processor = 0,
     .fetched = 10,
     .received = 1600,
     .ready = 3000,
     .first_page = -1,
     .done = 4000,
     .synced = 4100,
     .arrived = 4400,
     .load_begin = -1,
     .load_end = -1},
    {.instruction = 3,
     .processor = 1,
     .fetched = 10,
     .received = 2700,
     .ready = 3100,
     .first_page = -1,
     .done = 3600,
     .synced = 3600,
     .arrived = 3900,
     .load_begin = -1,
     .load_end = -1},
    {.instruction = 4,
     .processor = 0,
     .fetched = 20,
     .received = 4400,
     .ready = 4500,
     .first_page = -1,
     .done = 4500,
     .synced = 4500,
     .arrived = 4500,
     .load_begin = -1,
     .load_end = -1}, /* an end of the run */
};
enum { BY_HAND = sizeof by_hand / sizeof by_hand[0] };

static void test_text(void **state) {
    (void)state;
    mt_program *p = chain(1, 2, 40, 2, MT_PLACE_STATIC);
    char *report;
    assert_int_equal(p->instructions_count, 4);
    mt_trace_record records[2 * BY_HAND];
    for (int i = 0; i < 2 * BY_HAND; i++) { /* a second run, 1 µs after the first */
        records[i] = by_hand[i % BY_HAND];
        if (i < BY_HAND) continue;
        mt_trace_record *r = &records[i];
        r->run = 1;
        r->fetched += 5400, r->received += 5400, r->ready += 5400, r->done += 5400, r->synced += 5400;
        r->arrived += 5400;
        if (r->first_page >= 0) r->first_page += 5400, r->load_begin += 5400, r->load_end += 5400;
    }
    OK(mt_trace_text(p, records, BY_HAND, 320e6, &report, &error)); /* w has 320 bytes */
    assert_non_null(strstr(report, "1 runs of 4 instructions on 2 processors; a run takes 4.4 µs"));
    assert_non_null(strstr(report, "floor: 0.0 MB of weights at 0.00 TB/s: 1.0 µs, 23 % of the run"));
    assert_null(strstr(report, "clocks of processors"));
    static const char *const up = "blk.*.up2", *const mix = "blk.*.\"mix\"";
    static const struct {
        const char *section, *label;
        double cells[8];
        int count;
    } lines[] = {{"per node", "blk.*.up2", {1, 2, 2.6, 1, 2.6, 2.4, 0, 1}, 8},
                 {"per node", "blk.*.\"mix\"", {1, 2, 1.8, 0, 1.8, 1.4, 0.1, 0.4}, 8},
                 {"per node", "sum", {4.4, 1}, 2},
                 /* wait, issue, pages, compute, sync, publish, 1st page, ahead */
                 {"per instruction", "blk.*.up2", {0.1, 0, 0.15, 1.35, 0.1, 0.25, 0.05, 0.15}, 8},
                 {"per instruction", "blk.*.\"mix\"", {0.9, 0.1, 0, 0.75, 0.05, 0.3}, 6},
                 {"critical path", "blk.*.up2", {0, 0.2, 0, 2, 0.1, 0.3, 2.6}, 7},
                 {"critical path", "blk.*.\"mix\"", {0.4, 0, 0, 1, 0.1, 0.3, 1.8}, 7},
                 {"critical path", "sum", {0.4, 0.2, 0, 3, 0.2, 0.6, 4.4}, 7}};
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        for (int k = 0; k < lines[i].count; k++)
            check_cell(report, lines[i].section, lines[i].label, k, lines[i].cells[k]);
    free(report);
    OK(mt_trace_text(p, records, 2 * BY_HAND, 0, &report, &error)); /* the second begins where the first ends */
    assert_non_null(strstr(report, "2 runs of 4 instructions on 2 processors; a run takes 4.9 µs (4.4 to 5.4)"));
    assert_non_null(strstr(report, "between runs: 1.20 µs"));
    assert_null(strstr(report, "floor:"));
    check_cell(report, "per node", up, 2, 3.1);
    check_cell(report, "critical path", mix, 3, 1);
    check_cell(report, "critical path", "sum", 6, 4.9);
    free(report);
    for (int i = BY_HAND; i < 2 * BY_HAND; i++) records[i].launch = 1; /* on its own: its zero is another */
    OK(mt_trace_text(p, records, 2 * BY_HAND, 0, &report, &error));
    assert_non_null(strstr(report, "a run takes 4.4 µs (4.4 to 4.4)"));
    free(report);
    records[1].arrived = 3050; /* 50 ns after what waited for it was ready */
    OK(mt_trace_text(p, records, BY_HAND, 0, &report, &error));
    assert_non_null(strstr(report, "clocks of processors agree within about 0.05 µs"));
    check_cell(report, "critical path", "sum", 6, 4.4);
    free(report);
    mt_program_destroy(p);
}

/* Weights: a gather reads the rows it chooses, not the table. */
static void test_floor(void **state) {
    (void)state;
    mt_graph *g;
    mt_program *p;
    char *report;
    OK(mt_graph_create(&g, &error));
    const mt_tensor table = tensor(g, MT_WEIGHT, "table", "f32", 2, 1000, 40),
                    ids = tensor(g, MT_INPUT, "ids", "i32", 1, 3, 0), y = tensor(g, MT_OUTPUT, "y", "f32", 2, 3, 40);
    node(g, "pick", "pick", (mt_operand[]){MT_OPERAND("t", table), MT_OPERAND("i", ids), MT_OPERAND("y", y)}, 3);
    OK(mt_compile(g, &(mt_target){.processors = 2}, &p, &error));
    mt_graph_destroy(g);
    OK(mt_trace_text(p, by_hand, 3, 480e6, &report, &error)); /* 3 rows of 160 bytes, and what else the op reads */
    const double floor = cell(report, "per node", "pick", 3);
    assert_true(floor >= 1 && floor < 1.1);
    free(report);
    mt_program_destroy(p);
}

/* ---- JSON ---- */

static void test_json(void **state) {
    (void)state;
    mt_program *p = chain(LAYERS, R, C, 2, MT_PLACE_QUEUE);
    loaded l = load(p, "cpu:2", sizeof(float[R * C]));
    mt_trace_record *r;
    size_t count, waits = 0;
    char *report;
    OK(mt_session_trace(l.session, 1, &error));
    OK(mt_session_run(l.session, &error));
    OK(mt_session_trace_read(l.session, &r, &count, &error));
    OK(mt_trace_json(p, r, count, &report, &error));
    for (size_t i = 0; i < count; i++) waits += p->instructions[i].wait_count > 0;
    json_error_t where;
    json_t *all = json_loads(report, 0, &where), *event;
    if (!all) fail_msg("line %d: %s", where.line, where.text);
    size_t index, slices = 0, begins = 0, ends = 0;
    json_array_foreach(json_object_get(all, "traceEvents"), index, event) {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        const double ts = json_number_value(json_object_get(event, "ts"));
        begins += *kind == 's';
        ends += *kind == 'f';
        json_t *number = json_object_get(json_object_get(event, "args"), "instruction");
        if (*kind != 'X' || !number) continue;
        const mt_trace_record *of = &r[json_integer_value(number)];
        const program_instruction *n = &p->instructions[of->instruction];
        slices++;
        assert_string_equal(json_string_value(json_object_get(event, "name")),
                            program_string(p, p->nodes[n->node].name));
        assert_int_equal(json_integer_value(json_object_get(event, "pid")), of->processor);
        assert_true(ts > (double)of->ready * 1e-3 - 1e-3 && ts < (double)of->ready * 1e-3 + 1e-3);
    }
    assert_int_equal(slices, count);
    assert_int_equal(begins, waits);
    assert_int_equal(ends, waits);
    json_decref(all);
    free(report);
    OK(mt_trace_json(p, r, 0, &report, &error));
    json_decref(all = json_loads(report, 0, &where));
    assert_non_null(all);
    free(report);
    free(r);
    unload(&l);
    mt_program_destroy(p);
}

/* ---- many clocks ---- */

static uint64_t random_state = 1;
static uint64_t random_below(uint64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 32) % n;
}

enum { SMS = 5, INSTRUCTIONS = 7, KEPT = 3, EPOCH = 40 };

typedef struct gpu {
    cuda_trace_clock clocks[SMS];
    cuda_trace notes[KEPT * (INSTRUCTIONS + SMS)];
    mt_trace_record meant[KEPT * (INSTRUCTIONS + SMS)];
    uint64_t zero[SMS]; /* of each SM's clock, at the beginning */
    size_t count;
} gpu;

static const double ghz = 1.755;

static uint64_t clock_of(const gpu *g, uint32_t sm, int64_t time) {
    return g->zero[sm] + (uint64_t)(int64_t)((double)time * ghz);
}
static uint32_t low_of(const gpu *g, uint32_t sm, int64_t time) { return (uint32_t)clock_of(g, sm, time); }

/* What a launch of `runs` notes, of which `done` take place; the clocks wrap 32 bits in the middle. What it does not
 * write is of launches before it. */
static void fake(gpu *g, uint32_t runs, uint32_t done) {
    *g = (gpu){.count = 0};
    for (size_t i = 0; i < COUNT_OF(g->notes); i++)
        g->notes[i] = (cuda_trace){.epoch = (uint32_t)random_below(EPOCH), .fetched = random_below(1000), .pages = 1};
    const uint64_t epoch = 1700000000000000000u;
    for (uint32_t s = 0; s < SMS; s++) {
        g->zero[s] = ((uint64_t)random_below(1000) << 32) - 100000 * (s + 1);
        const int64_t begin = (int64_t)(s * 40), end = 900000000 + (int64_t)random_below(1000);
        g->clocks[s] = (cuda_trace_clock){
            epoch + (uint64_t)begin + 3000, /* the moment is later than the beginning */
            clock_of(g, s, begin + 3000),   epoch + (uint64_t)end, clock_of(g, s, end), s, low_of(g, s, begin)};
    }
    const uint32_t kept = runs < KEPT ? runs : KEPT;
    for (uint32_t run = done > kept ? done - kept : 0; run < done; run++)
        for (uint32_t i = 0; i < INSTRUCTIONS + SMS; i++) {
            const bool end = i >= INSTRUCTIONS;
            const uint32_t sm = end ? i - INSTRUCTIONS : (uint32_t)random_below(SMS);
            int64_t t[10], at = (int64_t)(run * 200000 + i * 20000 + random_below(5000));
            for (int k = 0; k < 10; k++) t[k] = at += (int64_t)random_below(1500) + 2;
            cuda_trace *n = &g->notes[run % KEPT * (INSTRUCTIONS + SMS) + i];
            *n = (cuda_trace){.epoch = EPOCH + run,
                              .processor = sm,
                              .received = low_of(g, sm, t[3]),
                              .ready = low_of(g, sm, t[4]),
                              .first_page = end || i % 4 ? 0 : low_of(g, sm, t[5]),
                              .done = end ? 0 : low_of(g, sm, t[6]),
                              .synced = end ? 0 : low_of(g, sm, t[7]),
                              .arrived = end ? 0 : low_of(g, sm, t[8]),
                              .fetched = clock_of(g, sm, t[0]),
                              .load_begin = low_of(g, sm, t[1]),
                              .load_end = low_of(g, sm, t[2]),
                              .pages = end || i % 2 ? 0 : i + 1,
                              .page_wait = (uint32_t)(77 * ghz),
                              .load_wait = (uint32_t)(99 * ghz)};
            mt_trace_record *r = &g->meant[g->count++];
            *r = (mt_trace_record){.run = run,
                                   .instruction = end ? INSTRUCTIONS : i,
                                   .processor = sm,
                                   .pages = n->pages,
                                   .fetched = t[0],
                                   .received = t[3],
                                   .ready = t[4],
                                   .first_page = !n->pages       ? -1
                                                 : n->first_page ? t[5]
                                                                 : t[4],
                                   .done = end ? t[4] : t[6],
                                   .synced = end ? t[4] : t[7],
                                   .arrived = end ? t[4] : t[8],
                                   .load_begin = n->pages ? t[1] : -1,
                                   .load_end = n->pages ? t[2] : -1,
                                   .page_wait = end ? 0 : 77,
                                   .load_wait = 99};
        }
}

static void check_time(int64_t got, int64_t expected) {
    if (expected < 0 ? got != expected : llabs(got - expected) > 2)
        fail_msg("%lld ns, not %lld", (long long)got, (long long)expected);
}

static void test_clocks(void **state) {
    (void)state;
    static gpu g;
    static mt_trace_record out[KEPT * (INSTRUCTIONS + SMS)];
    static const uint32_t cases[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {8, 8}, {100, 2}, {100, 4}, {100, 50}};
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        const cuda_run launch = {
            .instruction_count = INSTRUCTIONS, .runs = cases[c][0], .trace_runs = KEPT, .epoch = EPOCH};
        fake(&g, cases[c][0], cases[c][1]);
        const size_t count = trace_convert(g.notes, g.clocks, &launch, SMS, out);
        assert_int_equal(count, g.count);
        for (size_t i = 0; i < count; i++) {
            const mt_trace_record *a = &out[i], *b = &g.meant[i];
            assert_int_equal(a->run, b->run);
            assert_int_equal(a->instruction, b->instruction);
            assert_int_equal(a->processor, b->processor);
            assert_int_equal(a->pages, b->pages);
            check_time(a->fetched, b->fetched), check_time(a->received, b->received), check_time(a->ready, b->ready);
            check_time(a->first_page, b->first_page), check_time(a->done, b->done), check_time(a->synced, b->synced);
            check_time(a->arrived, b->arrived), check_time(a->load_begin, b->load_begin);
            check_time(a->load_end, b->load_end), check_time(a->page_wait, b->page_wait), check_time(a->load_wait, 99);
        }
    }
    /* a launch that failed: some SMs wrote no second moment, some records are missing or are nonsense */
    const cuda_run launch = {.instruction_count = INSTRUCTIONS, .runs = 2, .trace_runs = KEPT, .epoch = EPOCH};
    fake(&g, 2, 2);
    g.clocks[1].end_time = g.clocks[2].end_clock = 0;
    g.notes[0].processor = SMS;
    g.notes[1].epoch = 0;
    g.notes[2].epoch = EPOCH + 77;
    size_t left = 0;
    for (size_t i = 0; i < g.count; i++) left += i > 2 && g.meant[i].processor != 1 && g.meant[i].processor != 2;
    assert_int_equal(trace_convert(g.notes, g.clocks, &launch, SMS, out), left);
    memset(g.clocks, 0, sizeof g.clocks);
    assert_int_equal(trace_convert(g.notes, g.clocks, &launch, SMS, out), 0);
}

/* ---- the device's code, on the simulator ---- */

/* Two products with weights that the loader streams. */
static mt_program *streamed(mt_placement placement) {
    mt_graph *g;
    mt_program *p;
    OK(mt_graph_create(&g, &error));
    const mt_tensor x = tensor(g, MT_INPUT, "x", "f32", 2, 2, 256), w = tensor(g, MT_WEIGHT, "w", "bf16", 2, 256, 256),
                    t = tensor(g, MT_TEMP, NULL, "f32", 2, 2, 256), y = tensor(g, MT_OUTPUT, "y", "f32", 2, 2, 256);
    for (int k = 0; k < 2; k++) {
        const mt_operand operands[] = {MT_OPERAND("x", k ? t : x), MT_OPERAND("w", w), MT_OPERAND("y", k ? y : t),
                                       MT_OPERAND_TYPE("P", "bf16")};
        OK(mt_graph_node(g, NULL, "linear", k ? "second" : "first", operands, COUNT_OF(operands), NULL, &error));
    }
    OK(mt_compile(g, &(mt_target){.machine = "cuda", .processors = 3, .placement = placement}, &p, &error));
    mt_graph_destroy(g);
    return p;
}

static void test_sim(void **state) {
    (void)state;
    static const char *const machines[] = {"sim:3", "sim:3,random=1", "sim:3,adversarial=loader-late",
                                           "sim:3,adversarial=copies-late"};
    for (size_t m = 0; m < COUNT_OF(machines); m++) {
        mt_program *p = streamed(m % 2 ? MT_PLACE_QUEUE : MT_PLACE_STATIC);
        loaded l = load(p, machines[m], 256 * 256 * 2);
        mt_error first = {0};
        mt_trace_record *r;
        size_t count;
        int32_t done;
        if (mt_session_trace(l.session, 1, &first) == MT_E_UNSUPPORTED) {
            unload(&l);
            mt_program_destroy(p);
            print_message("skipped: %s\n", first.message);
            skip();
        }
        OK(mt_session_loop(l.session, &(mt_loop){.runs = 3}, &done, &error));
        OK(mt_session_trace_read(l.session, &r, &count, &error));
        assert_int_equal(count, 3 * (p->instructions_count + 3));
        for (size_t i = 0; i < count; i++) {
            const size_t at = i % (p->instructions_count + 3);
            assert_int_equal(r[i].run, i / (p->instructions_count + 3));
            assert_int_equal(r[i].instruction, min_i64((int64_t)at, (int64_t)p->instructions_count));
            assert_true(r[i].fetched <= r[i].received && r[i].received <= r[i].ready && r[i].ready <= r[i].done);
            assert_true(r[i].done <= r[i].synced && r[i].synced <= r[i].arrived);
            if (at >= p->instructions_count) continue;
            assert_true(r[i].pages > 0 && r[i].fetched <= r[i].load_begin && r[i].load_begin <= r[i].load_end);
            assert_true(r[i].ready <= r[i].first_page && r[i].first_page <= r[i].done);
            assert_true(r[i].page_wait <= r[i].done - r[i].ready);
        }
        free(r);
        OK(mt_session_run(l.session, &error)); /* a shorter launch: nothing of the one before is its own */
        OK(mt_session_trace_read(l.session, &r, &count, &error));
        assert_int_equal(count, p->instructions_count + 3);
        for (size_t i = 0; i < count; i++) assert_int_equal(r[i].run, 0);
        free(r);
        OK(mt_session_trace(l.session, 0, &error));
        OK(mt_session_run(l.session, &error));
        unload(&l);
        mt_program_destroy(p);
    }
}

/* ---- records that lie ---- */

static void test_refused(void **state) {
    (void)state;
    mt_program *p = chain(1, 2, 40, 2, MT_PLACE_STATIC);
    char *report;
    mt_trace_record r[BY_HAND];
    REFUSED(MT_E_ARGUMENT, "no records", mt_trace_text(p, NULL, 0, 0, &report, &error));
    for (int kind = 0; kind < 5; kind++) {
        memcpy(r, by_hand, sizeof r);
        const char *words = kind == 0 ? "another program" : kind < 3 ? "out of order" : "impossible";
        if (kind == 0) r[2].instruction = 5;
        if (kind == 1) r[2].instruction = 0;
        if (kind == 2) r[0].run = 1;
        if (kind == 3) r[1].done = INT64_MAX;
        if (kind == 4) r[1].processor = UINT32_MAX;
        REFUSED(MT_E_ARGUMENT, words, mt_trace_text(p, r, BY_HAND, 0, &report, &error));
        REFUSED(MT_E_ARGUMENT, words, mt_trace_json(p, r, BY_HAND, &report, &error));
        assert_null(report);
    }
    for (int round = 0; round < 2000; round++) { /* times without any sense */
        memcpy(r, by_hand, sizeof r);
        for (int k = 0; k < 10; k++) {
            mt_trace_record *one = &r[random_below(BY_HAND)];
            int64_t *times[] = {&one->fetched, &one->received, &one->ready,      &one->first_page, &one->done,
                                &one->synced,  &one->arrived,  &one->load_begin, &one->load_end,   &one->page_wait};
            *times[random_below(COUNT_OF(times))] = (int64_t)random_below(1u << 31) << random_below(16);
            one->processor = (uint32_t)random_below(4);
        }
        OK(mt_trace_text(p, r, BY_HAND, 1, &report, &error));
        free(report);
        OK(mt_trace_json(p, r, BY_HAND, &report, &error));
        json_error_t where;
        json_t *all = json_loads(report, 0, &where);
        if (!all) fail_msg("line %d: %s", where.line, where.text);
        json_decref(all);
        free(report);
    }
    mt_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu),    cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_floor),  cmocka_unit_test(test_json),
                                       cmocka_unit_test(test_clocks), cmocka_unit_test(test_sim),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
