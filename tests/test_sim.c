/* The simulator: the library's ops at the sizes around their tiles, under schedules of all kinds, give one result,
 * which is the CPU's; and what is wrong with a program or with the device code is found and named. The bugs are seeded:
 * the unit's text, or the program, is changed before it runs.
 *
 * SIM_SEEDS random seeds are tried (3; bench/sim.sh tries 50). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device_ops.h"
#include "machine/sim/sim.h"
#include "monotile/llm.h"
#include "temporary.h"
#include "unit_text.h"

static char folder[TEMPORARY_BYTES];

static int set_up(void **state) {
    (void)state;
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}
static int tear_down(void **state) {
    (void)state;
    return getenv("SIM_KEEP") ? 0 : temporary_remove(folder);
}

static void run_well(sim_session *s, const char *what) {
    mt_error error = {0};
    if (mt_session_run(&s->base, &error) != MT_OK) fail_msg("%s: %s: %s", what, error.where, error.message);
}

static int seeds(void) { return getenv("SIM_SEEDS") ? atoi(getenv("SIM_SEEDS")) : 3; }

static sim_machine *machine_of(mt_machine *m) { return (sim_machine *)m; }

/* The graph under all schedules, on two machines' sizes. */
static void check_graph(mt_graph *g, int processors) {
    mt_program *program;
    mt_machine *cpu, *sim;
    mt_session *reference, *session;
    char name[64];
    const mt_target target = {.machine = "sim", .processors = processors, .no_fusion = 1};
    OK(mt_compile(g, &target, &program, &error));
    snprintf(name, sizeof name, "sim:%d", processors);
    OK(mt_machine_open(&cpu, "cpu:2", &error));
    OK(mt_machine_open(&sim, name, &error));
    OK(mt_session_create(&session, sim, program, &error));
    bind_all(session);
    for (int k = 0; k < SIM_SCHEDULES; k++)
        for (int seed = 0; seed < (k == SIM_RANDOM                              ? seeds()
                                   : k == SIM_STARVE_SM || k == SIM_STARVE_WARP ? 2
                                                                                : 1);
             seed++) {
            snprintf(name, sizeof name, "%s, seed %d", sim_schedule_names[k], seed);
            machine_of(sim)->schedule = (sim_schedule){(sim_schedule_kind)k, (uint64_t)seed};
            machine_of(sim)->pages = k == SIM_RANDOM && seed % 2 ? 3 : 0;
            if (getenv("SIM_TRACE")) fprintf(stderr, "%s\n", name);
            bind_all(session);
            run_well((sim_session *)session, name);
            keep_or_compare(session, 0, name);
        }
    OK(mt_session_create(&reference, cpu, program, &error));
    bind_all(reference);
    OK(mt_session_run(reference, &error));
    keep_or_compare(reference, 2e-3, "against the CPU");
    mt_session_destroy(reference);
    mt_session_destroy(session);
    mt_machine_close(sim);
    mt_machine_close(cpu);
    mt_program_destroy(program);
}

static void check_ops(const variant *variants, size_t count, int processors, bool fed) {
    mt_graph *g;
    mt_live pos;
    OK(mt_graph_create(&g, &error));
    OK(mt_graph_live(g, "pos", 0, POSITION, &pos, &error));
    for (size_t v = 0; v < count; v++)
        for (size_t i = 0; i < COUNT_OF(ops); i++) {
            if (getenv("SIM_ONLY") && strncmp(ops[i], getenv("SIM_ONLY"), strlen(getenv("SIM_ONLY")))) continue;
            add_node(g, ops[i], &variants[v], pos, fed);
        }
    check_graph(g, processors);
    mt_graph_destroy(g);
    forget_tensors();
}

/* Tiles are 4 rows, 16 columns, 1024 (BK's default) along K; blocks of attention 16 positions. */
static void test_ops_dense(void **state) {
    (void)state;
    static const variant variants[] = {VARIANT("bf16", 1, 1, 1, 1, 2), VARIANT("f16", 3, 15, 63, 1, 24),
                                       VARIANT("bf16", 4, 16, 64, 2, 32), VARIANT("f16", 5, 17, 65, 2, 18),
                                       VARIANT("bf16", 2, 9, 96, 1, 8)};
    if (unit_no_compiler()) skip();
    check_ops(variants, COUNT_OF(variants), 4, false);
}
static void test_ops_blocks(void **state) {
    (void)state;
    static const variant variants[] = {VARIANT("q8_0", 1, 17, 32, 1, 16), VARIANT("q4_1", 5, 15, 96, 1, 8),
                                       VARIANT("f32", 3, 9, 33, 1, 6)};
    if (unit_no_compiler()) skip();
    check_ops(variants, COUNT_OF(variants), 3, false);
}
/* More columns than BK, and more pages than the ring has. */
static void test_ops_long(void **state) {
    (void)state;
    static const variant variants[] = {VARIANT("bf16", 1, 33, 1025, 2, 16), VARIANT("q8_0", 4, 40, 2112, 1, 16)};
    if (unit_no_compiler()) skip();
    check_ops(variants, COUNT_OF(variants), 2, false);
}

/* Activations as another node leaves them: stamped data, where they can be. */
static void test_ops_fed(void **state) {
    (void)state;
    static const variant variants[] = {VARIANT("bf16", 1, 33, 1025, 2, 16), VARIANT("q8_0", 1, 40, 2048, 1, 64),
                                       VARIANT("f16", 5, 17, 65, 2, 18), VARIANT("q4_1", 1, 16, 96, 1, 8)};
    if (unit_no_compiler()) skip();
    check_ops(variants, COUNT_OF(variants), 3, true);
}

/* Every program of the library is above; test_model runs the steps of sampling. */
static void test_complete(void **state) {
    (void)state;
    const char *path = MONOTILE_SOURCE_FOLDER "/src/ops";
    DIR *d = opendir(path);
    int missing = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        const size_t length = strcspn(e->d_name, ".");
        bool found = length == 0 || !strncmp(e->d_name, "formats", 7) || !strncmp(e->d_name, "sample_", 7);
        for (size_t i = 0; i < COUNT_OF(ops) && !found; i++)
            found = !strncmp(ops[i], e->d_name, length) && ops[i][length] == ';';
        if (!found) print_message("no size of %s is simulated: add a line to `ops`\n", e->d_name);
        missing += !found;
    }
    closedir(d);
    assert_int_equal(missing, 0);
}

/* ---- seeded bugs ---- */

typedef struct bug {
    const char *name;
    const char *near, *find, *put; /* in the unit: the first `find` behind `near` becomes `put` */
    void (*program)(mt_program *p);
    const char *schedule; /* NULL: "sim:2" */
    sim_fault fault;
    const char *words[4]; /* of the message */
} bug;

static void edit_unit(text *unit, void *context) {
    const bug *b = context;
    if (!unit_replace(unit, b->near, b->find, b->put))
        fail_msg("%s: the unit has no '%s' behind '%s'", b->name, b->find, b->near);
}

/* The session's last launch found it: the fault, in these words. */
static bool is_found(const mt_session *s, const bug *b) {
    const sim_session *run = (const sim_session *)s;
    bool found = false;
    for (int f = 0; f < run->finding_count && !found; f++) {
        found = run->findings[f].fault == b->fault;
        for (size_t w = 0; w < COUNT_OF(b->words) && b->words[w] && found; w++)
            found = strstr(run->findings[f].message, b->words[w]);
    }
    return found;
}

/* The instructions of the second layer do not wait. */
static void drop_wait(mt_program *p) {
    for (size_t i = 0; i < p->instructions_count; i++) ((program_instruction *)p->instructions)[i].wait_count = 0;
}
/* One instruction arrives nowhere. */
static void drop_arrival(mt_program *p) { ((program_instruction *)p->instructions)[1].arrive_count = 0; }
static const bug bugs[] = {
    {.name = "a sync is missing",
     .near = "op0_norm_linear_run",
     .find = "mt_sync();",
     .put = ";",
     .fault = SIM_RACE,
     .words = {"norm_linear.tile:", "nothing orders this", "consumer warp", "instruction"}},
    {.name = "a sync is missing after a meeting of all",
     .near = "MT_DEVICE void mt_consumer",
     .find = "mt_sync(); /*",
     .put = "; /*",
     .fault = SIM_RACE,
     .words = {"consumer"}},
    {.name = "a warp does not release its pages",
     .near = "void mt_page_release",
     .find = "c->lane == 0",
     .put = "c->lane == 0 && c->warp != 3",
     .schedule = "sim:2,pages=3",
     .fault = SIM_DEADLOCK,
     .words = {"loader", "page_empty[", "7 of 8 arrivals", "first"}},
    {.name = "an arrival less for a page",
     .near = "extern \"C\" __global__",
     .find = "mt_mbarrier_init(&cta.page_empty[p], CUDA_WARPS)",
     .put = "mt_mbarrier_init(&cta.page_empty[p], CUDA_WARPS - 1)",
     .schedule = "sim:2,pages=3,adversarial=starve-warp",
     .fault = SIM_PAGE,
     .words = {"page ", "filled again", "consumer warp"}},
    {.name = "an arrival more for a page",
     .near = "extern \"C\" __global__",
     .find = "mt_mbarrier_init(&cta.page_empty[p], CUDA_WARPS)",
     .put = "mt_mbarrier_init(&cta.page_empty[p], CUDA_WARPS + 1)",
     .schedule = "sim:2,pages=3",
     .fault = SIM_DEADLOCK,
     .words = {"page_empty[", "8 of 9 arrivals"}},
    {.name = "too many bytes expected",
     .near = "void mt_page_fill",
     .find = "mt_mbarrier_expect(full, bytes)",
     .put = "mt_mbarrier_expect(full, bytes + 16)",
     .fault = SIM_DEADLOCK,
     .words = {"page_full[", "16 bytes expected that nobody copies", "consumer"}},
    {.name = "too few bytes expected",
     .near = "void mt_page_fill",
     .find = "mt_mbarrier_expect(full, bytes)",
     .put = "mt_mbarrier_expect(full, bytes - 16)",
     .fault = SIM_DEADLOCK,
     .words = {"page_full[", "16 bytes more than expected"}},
    {.name = "pages are taken with the wrong parity",
     .near = "MT_DEVICE const char *mt_page_take",
     .find = "c->page_phase)",
     .put = "c->page_phase ^ 1)",
     .schedule = "sim:2,adversarial=loader-late",
     .fault = SIM_PAGE,
     .words = {"reads page 0", "before anything was copied", "norm_linear.tile:"}},
    {.name = "pages are not waited for",
     .near = "MT_DEVICE const char *mt_page_take",
     .find = "if (!c->seen)",
     .put = "if (c->warp != 5 && !c->seen)",
     .schedule = "sim:2,adversarial=copies-late",
     .fault = SIM_PAGE,
     .words = {"consumer warp 5", "reads page ", "not full", "norm_linear.tile:"}},
    {.name = "the parity is not turned",
     .near = "MT_DEVICE void mt_page_next",
     .find = "c->page_phase ^= 1;",
     .put = ";",
     .schedule = "sim:2,pages=3",
     .fault = SIM_EARLY,
     .words = {"page_", "passes a phase early"}},
    {.name = "lanes read a page that is released",
     .near = "MT_DEVICE void mt_page_release",
     .find = "__syncwarp();",
     .put = "",
     .schedule = "sim:2,pages=3,adversarial=lanes-apart",
     .fault = SIM_PAGE,
     .words = {"filled again", "consumer warp"}},
    {.name = "the fence is missing",
     .near = "MT_DEVICE void mt_consumer",
     .find = "if (released) mt_fence();",
     .put = ";",
     .fault = SIM_RACE,
     .words = {"linear.tile:", "'second'", "'first'", "nothing orders this"}},
    {.name = "the acquire is missing",
     .near = "MT_DEVICE void mt_wait_word",
     .find = "mt_load_acquire(word);",
     .put = ";",
     .fault = SIM_RACE,
     .words = {"linear.tile:", "'second'", "'first'"}},
    {.name = "a wait is dropped from the program",
     .program = drop_wait,
     .schedule = "sim:2,adversarial=starve-sm",
     .fault = SIM_RACE,
     .words = {"linear.tile:", "'second'", "'first'"}},
    {.name = "an arrival is dropped from the program",
     .program = drop_arrival,
     .fault = SIM_DEADLOCK,
     .words = {"barrier 0", "arrivals", "are wanted", "'second'"}},
    {.name = "an arrival is dropped",
     .near = "MT_DEVICE void mt_consumer",
     .find = "for (int a = 0; a < i->arrive_count",
     .put = "for (int a = blockIdx.x == 1; a < i->arrive_count",
     .fault = SIM_DEADLOCK,
     .words = {"barrier 0", "are wanted"}},
    {.name = "the slot is looked at after it was given back",
     .near = "MT_DEVICE void mt_consumer",
     .find = "if (c->thread == 0 && c->slot->ends & CUDA_GOES_ON)",
     .put = "if (*(const volatile uint8_t *)&i->arrive_count && c->thread == 0 && c->slot->ends & CUDA_GOES_ON)",
     .schedule = "sim:1",
     .fault = SIM_RACE,
     .words = {"controller", "the CTA's shared memory"}},
    {.name = "lanes go different ways",
     .near = "MT_DEVICE void mt_page_release",
     .find = "__syncwarp();",
     .put = "if (c->lane != 7) __syncwarp(); else __shfl_xor_sync(0xffffffffu, 1u, 1);",
     .fault = SIM_DIVERGED,
     .words = {"syncwarp", "shuffle"}},
    {.name = "a store beyond the tensor",
     .near = "// y[m * 4 : +4, n * 8 : +8] = acc",
     .find = ".high) {",
     .put = ".high + 1) {",
     .fault = SIM_OUTSIDE,
     .words = {"writes", "behind y", "has no business", "linear.tile:"}},
    {.name = "a copy to nowhere",
     .near = "void mt_page_fill",
     .find = "mt_bulk_load(page, from, bytes, full)",
     .put = "mt_bulk_load(page, from, bytes + 16384 * 14, full)",
     .fault = SIM_OUTSIDE,
     .words = {"bulk copy"}},
};

static void test_bugs(void **state) {
    (void)state;
    if (unit_no_compiler()) skip();
    mt_graph *g = two_layers(true);
    int failed = 0;
    for (size_t i = 0; i < COUNT_OF(bugs); i++) {
        const bug *b = &bugs[i];
        mt_program *program;
        mt_machine *m;
        mt_session *s = NULL;
        mt_error problem = {0};
        if (getenv("SIM_ONLY") && !strstr(b->name, getenv("SIM_ONLY"))) continue;
        OK(mt_compile(g, &(mt_target){.machine = "sim", .processors = b->schedule && b->schedule[4] == '1' ? 1 : 2},
                      &program, &error));
        if (b->program) b->program(program);
        OK(mt_machine_open(&m, b->schedule ? b->schedule : "sim:2", &error));
        if (b->find) machine_of(m)->edit = edit_unit, machine_of(m)->edit_context = (void *)b;
        OK(mt_session_create(&s, m, program, &error));
        bind_all(s);
        const mt_status status = mt_session_run(s, &problem);
        const bool found = is_found(s, b);
        if (status == MT_OK || !found) {
            print_message("not found: %s; found: %s\n", b->name, status == MT_OK ? "nothing" : problem.message);
            failed++;
        } else if (getenv("SIM_TRACE")) {
            print_message("%s: %s\n", b->name, problem.message);
        }
        mt_session_destroy(s);
        mt_machine_close(m);
        mt_program_destroy(program);
    }
    assert_int_equal(failed, 0);
    mt_graph_destroy(g);
    forget_tensors();
}

/* The same of stamped data, in three launches: each place is posted into in the first and the third. */
static const bug stamp_bugs[] = {{.name = "a result is not posted",
                                  .near = "op0_norm_linear_run",
                                  .find = "mt_post(",
                                  .put = "if (mt->thread != 5) mt_post(",
                                  .fault = SIM_DEADLOCK,
                                  .words = {"linear.tile:", "'second'", "it is stamped, and nobody posts it"}},
                                 {.name = "nothing is stamped again",
                                  .near = "MT_DEVICE void mt_stamp_again",
                                  .find = "mt_stamp(to + i);",
                                  .put = ";",
                                  .schedule = "sim:2,random=1",
                                  .fault = SIM_RACE,
                                  .words = {"takes", "which nobody has posted in this launch", "'second'"}},
                                 {.name = "a part is stamped again in the place that is in use",
                                  .near = "MT_DEVICE void mt_stamp_again",
                                  .find = "c->epoch & 1 ?",
                                  .put = "!(c->epoch & 1) ?",
                                  .fault = SIM_DEADLOCK,
                                  .words = {"it is stamped, and nobody posts it"}},
                                 {.name = "a quiet arrival is taken for a release",
                                  .near = "MT_DEVICE bool mt_stays",
                                  .find = "return !mt->stopped;",
                                  .put = "return false;",
                                  .schedule = "sim:2,random=1",
                                  .fault = SIM_FAULTS, /* nothing but wrong bits */
                                  .words = {NULL}}};

static void test_stamp_bugs(void **state) {
    (void)state;
    if (unit_no_compiler()) skip();
    mt_graph *g = two_layers(false);
    mt_program *program;
    int failed = 0;
    OK(mt_compile(g, &(mt_target){.machine = "sim", .processors = 2}, &program, &error));
    for (size_t i = 0; i <= COUNT_OF(stamp_bugs); i++) { /* at last none */
        const bug *b = i < COUNT_OF(stamp_bugs) ? &stamp_bugs[i] : NULL;
        mt_machine *m;
        mt_session *s = NULL;
        mt_error problem = {0};
        OK(mt_machine_open(&m, b && b->schedule ? b->schedule : "sim:2", &error));
        if (b) machine_of(m)->edit = edit_unit, machine_of(m)->edit_context = (void *)b;
        OK(mt_session_create(&s, m, program, &error));
        assert_true(((sim_session *)s)->handoff.stamp_bytes > 0);
        bind_all(s);
        bool found = false, same = true;
        for (int run = 0; run < 3 && !found && problem.code == MT_OK; run++) {
            mt_session_run(s, &problem);
            found = b && is_found(s, b);
            for (int t = 0; t < tensor_count && problem.code == MT_OK; t++) {
                void *memory;
                if (tensors[t].role != MT_OUTPUT) continue;
                OK(mt_session_memory(s, tensors[t].name, &memory, NULL, &error));
                for (size_t e = 0; e < tensors[t].count; e++) same &= isfinite(((const float *)memory)[e]);
            }
        }
        if (b && b->fault == SIM_FAULTS) found = !same;
        if (b ? !found : problem.code != MT_OK || !same) {
            print_message("%s: found: %s\n", b ? b->name : "no bug",
                          problem.code == MT_OK ? "nothing" : problem.message);
            failed++;
        }
        mt_session_destroy(s);
        mt_machine_close(m);
    }
    assert_int_equal(failed, 0);
    mt_program_destroy(program);
    mt_graph_destroy(g);
    forget_tensors();
}

/* What nothing orders is seen late: the bits are wrong, and not just by the clocks' word. What is ordered never is, and
 * who polls sees in the end what he waits for. */
static void test_late(void **state) {
    (void)state;
    if (unit_no_compiler()) skip();
    static const char *const missing[] = {NULL, "the fence is missing", "the acquire is missing"};
    static const char *const machines[] = {"sim:2",
                                           "sim:2,random=1",
                                           "sim:2,random=2",
                                           "sim:2,adversarial=loader-early",
                                           "sim:2,adversarial=starve-sm,seed=1",
                                           "sim:2,adversarial=lanes-apart"};
    mt_graph *g = two_layers(true);
    mt_program *program;
    uint64_t late = 0;
    OK(mt_compile(g, &(mt_target){.machine = "sim", .processors = 2}, &program, &error));
    for (size_t k = 0; k < COUNT_OF(missing); k++)
        for (size_t i = 0; i < COUNT_OF(machines); i++) {
            mt_machine *m;
            mt_session *s;
            mt_error problem = {0};
            size_t b = 0;
            OK(mt_machine_open(&m, machines[i], &error));
            while (missing[k] && strcmp(bugs[b].name, missing[k])) b++;
            if (missing[k]) machine_of(m)->edit = edit_unit, machine_of(m)->edit_context = (void *)&bugs[b];
            OK(mt_session_create(&s, m, program, &error));
            bind_all(s);
            const mt_status status = mt_session_run(s, &problem);
            const sim_session *run = (const sim_session *)s;
            if (!missing[k]) {
                if (status != MT_OK) fail_msg("%s: %s", machines[i], problem.message);
                assert_true(i || run->late == 0);
                late += run->late;
                keep_or_compare(s, 0, machines[i]);
            } else {
                assert_non_null(strstr(problem.message, "race"));
                bool same = true;
                for (int t = 0; t < tensor_count; t++) {
                    void *memory;
                    if (tensors[t].role != MT_OUTPUT) continue;
                    OK(mt_session_memory(s, tensors[t].name, &memory, NULL, &error));
                    same &= !memcmp(tensors[t].result, memory, tensors[t].bytes);
                }
                if (same != !i) fail_msg("%s, %s: the bits are %s", missing[k], machines[i], same ? "right" : "wrong");
            }
            mt_session_destroy(s);
            mt_machine_close(m);
        }
    assert_true(late > 0);
    mt_program_destroy(program);
    mt_graph_destroy(g);
    forget_tensors();
}

/* A seed gives the same run each time, another seed another one; a session goes on after a finding. */
static void test_replay(void **state) {
    (void)state;
    if (unit_no_compiler()) skip();
    mt_graph *g = two_layers(true);
    mt_program *program;
    mt_machine *m;
    mt_session *s;
    uint64_t steps[3];
    OK(mt_compile(g, &(mt_target){.machine = "sim:2", .processors = 2}, &program, &error));
    OK(mt_machine_open(&m, "sim:2,random=5", &error));
    OK(mt_session_create(&s, m, program, &error));
    bind_all(s);
    for (int i = 0; i < 3; i++) {
        machine_of(m)->schedule.seed = i < 2 ? 5 : 6;
        run_well((sim_session *)s, "replay");
        keep_or_compare(s, 0, "replay");
        steps[i] = ((sim_session *)s)->steps;
    }
    assert_int_equal(steps[0], steps[1]);
    assert_true(steps[0] != steps[2]);
    mt_session_destroy(s);
    mt_machine_close(m);
    mt_program_destroy(program);
    mt_graph_destroy(g);
    forget_tensors();
}

typedef struct tokens {
    int32_t id[16];
    int count;
} tokens;
static int take_token(void *context, int32_t id, const char *words, size_t length) {
    tokens *t = context;
    (void)words, (void)length;
    if (id >= 0 && t->count < 16) t->id[t->count++] = id;
    return 0;
}

/* A made model, its prompt in one chunk and then token by token: the CPU's logits, and one set of bits. */
static void test_model(void **state) {
    (void)state;
    static const int32_t ids[] = {5, 17, 250, 3, 99};
    enum { COUNT = COUNT_OF(ids) };
    char command[600], path[200];
    const char *python = getenv("MONOTILE_PYTHON");
    if (unit_no_compiler()) skip();
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    snprintf(
        command, sizeof command,
        "%s %s/tests/make_model.py %s --hidden 64 --heads 2 --kv-heads 1 --ffn 96 --vocab 300 --layers 2 --type q8_0 "
        "> /dev/null 2>&1",
        python ? python : "python3", MONOTILE_SOURCE_FOLDER, path);
    if (system(command)) {
        print_message("skipped: make_model.py needs Python with gguf\n");
        skip();
    }
    static const char *const machines[] = {"cpu:1", "sim:3", "sim:2,random=3,pages=3", "sim:4,adversarial=loader-late",
                                           "sim:2,adversarial=copies-reverse"};
    const mt_engine_options options = {.context = 32, .rows = 3, .all_logits = 1, .cache = "f16", .products = "bf16"};
    float *first[2] = {NULL, NULL}; /* the CPU's, the first simulator's */
    tokens chosen = {{0}, 0};
    mt_model *model;
    OK(mt_model_open(&model, path, &error));
    for (size_t m = 0; m < COUNT_OF(machines); m++) {
        mt_machine *machine;
        mt_engine *engine;
        OK(mt_machine_open(&machine, machines[m], &error));
        OK(mt_engine_create(&engine, model, machine, &options, &error));
        float *logits = malloc((COUNT + 2) * 300 * sizeof *logits);
        assert_non_null(logits);
        OK(mt_engine_feed(engine, ids, COUNT, logits, &error));
        for (int i = 0; i < 2; i++) OK(mt_engine_feed(engine, ids + i, 1, logits + (COUNT + i) * 300, &error));
        /* the steps of sampling, on the device */
        mt_generate_options sampled = {.count = 6, .ignore_end = 1};
        sampled.sampler =
            (mt_sampler_options){.temperature = 0.9f, .top_p = 0.9f, .min_p = 0.01f, .top_k = 40, .seed = 7};
        tokens now = {{0}, 0};
        OK(mt_engine_rewind(engine, 0, &error));
        OK(mt_engine_generate(engine, NULL, ids, COUNT, &sampled, take_token, &now, NULL, &error));
        if (m == 1) chosen = now;
        assert_int_equal(now.count, 6);
        if (m > 0) assert_memory_equal(now.id, chosen.id, sizeof now.id);
        float **kept = &first[m > 0];
        double apart = 0, size = 0;
        for (int i = 0; i < (COUNT + 2) * 300; i++) {
            apart += m == 1 ? ((double)logits[i] - (double)first[0][i]) * ((double)logits[i] - (double)first[0][i]) : 0;
            size += (double)logits[i] * (double)logits[i];
        }
        if (!(sqrt(apart / size) < 1e-2)) fail_msg("%s is %g away from the CPU", machines[m], sqrt(apart / size));
        if (*kept && memcmp(*kept, logits, (COUNT + 2) * 300 * sizeof *logits))
            fail_msg("%s has other bits", machines[m]);
        if (*kept)
            free(logits);
        else
            *kept = logits;
        mt_engine_destroy(engine);
        mt_machine_close(machine);
    }
    free(first[0]);
    free(first[1]);
    mt_model_close(model);
}

static void test_names(void **state) {
    (void)state;
    static const char *const bad[] = {"sim:0",      "sim:65",        "sim:2,random", "sim:2,adversarial=nobody",
                                      "sim:2;fair", "sim:2,pages=1", "sim:x",        "sim:2,random=1x"};
    mt_machine *m;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        mt_error error = {0};
        assert_int_equal(mt_machine_open(&m, bad[i], &error), MT_E_ARGUMENT);
        assert_non_null(strstr(error.message, "adversarial="));
    }
    OK(mt_machine_open(&m, "sim:3,adversarial=starve-sm,seed=2,pages=4", &error));
    assert_int_equal(mt_machine_processors(m), 3);
    assert_int_equal(machine_of(m)->schedule.kind, SIM_STARVE_SM);
    assert_int_equal(machine_of(m)->schedule.seed, 2);
    assert_int_equal(machine_of(m)->pages, 4);
    mt_machine_close(m);
}

/* An instruction reads, in the order of its statements, what it has stored: an operand that is read and one that is
 * written are one tensor. */
static void test_one_tensor(void **state) {
    (void)state;
    static const char source[] = "tile t(q: in f16[4, 64], kc: in f16[64, 64], x: in f32[64, 64], kw: out f16[64, 64], "
                                 "y: out f32[4, 64]) over (i in 1) { kw[:, :] = f16(x[:, :]); y[:] = dot(q[:, :], "
                                 "kc[:, :].T) }";
    static const char *const machines[] = {"cpu:1", "sim:1", "sim:1,adversarial=starve-warp"};
    const int64_t few[2] = {4, 64}, many[2] = {64, 64};
    mt_tile *file;
    mt_graph *g;
    mt_program *program;
    mt_tensor q, cache, x, y;
    char *diagnostics;
    if (unit_no_compiler()) skip();
    OK(mt_tile_parse(&file, "t.tile", source, sizeof source - 1, &diagnostics, &error));
    OK(mt_graph_create(&g, &error));
    OK(mt_graph_tensor(g, MT_INPUT, "q", "f16", 2, few, &q, &error));
    OK(mt_graph_tensor(g, MT_INPUT, "x", "f32", 2, many, &x, &error));
    OK(mt_graph_tensor(g, MT_STATE, "cache", "f16", 2, many, &cache, &error));
    OK(mt_graph_tensor(g, MT_OUTPUT, "y", "f32", 2, few, &y, &error));
    OK(mt_graph_node(g, file, "t", "node",
                     (mt_operand[]){MT_OPERAND("q", q), MT_OPERAND("kc", cache), MT_OPERAND("x", x),
                                    MT_OPERAND("kw", cache), MT_OPERAND("y", y)},
                     5, NULL, &error));
    OK(mt_compile(g, &(mt_target){.machine = "sim", .processors = 1}, &program, &error));
    for (size_t i = 0; i < COUNT_OF(machines); i++) {
        mt_machine *m;
        mt_session *s;
        void *memory;
        size_t bytes;
        OK(mt_machine_open(&m, machines[i], &error));
        OK(mt_session_create(&s, m, program, &error));
        OK(mt_session_memory(s, "q", &memory, &bytes, &error));
        for (size_t e = 0; e < bytes / 2; e++) ((uint16_t *)memory)[e] = 0x3c00;
        OK(mt_session_memory(s, "cache", &memory, &bytes, &error));
        memset(memory, 0, bytes);
        OK(mt_session_memory(s, "x", &memory, &bytes, &error));
        for (size_t e = 0; e < bytes / 4; e++) ((float *)memory)[e] = (float)(e / 64);
        run_well((sim_session *)s, machines[i]);
        OK(mt_session_memory(s, "y", &memory, &bytes, &error));
        for (size_t e = 0; e < bytes / 4; e++) assert_true(((const float *)memory)[e] == (float)(e % 64 * 64));
        mt_session_destroy(s);
        mt_machine_close(m);
    }
    mt_program_destroy(program);
    mt_graph_destroy(g);
    mt_tile_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_complete),   cmocka_unit_test(test_replay),
        cmocka_unit_test(test_bugs),      cmocka_unit_test(test_stamp_bugs), cmocka_unit_test(test_late),
        cmocka_unit_test(test_ops_dense), cmocka_unit_test(test_ops_blocks), cmocka_unit_test(test_ops_long),
        cmocka_unit_test(test_ops_fed),   cmocka_unit_test(test_model),      cmocka_unit_test(test_one_tensor)};
    if (getenv("SIM_TEST")) cmocka_set_test_filter(getenv("SIM_TEST"));
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
