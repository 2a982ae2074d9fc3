/* A model's code does not grow with its depth: the CUDA unit of 64 layers is that of 4, byte by byte, for the steps of
 * one token and of prompts. (So are its code and the time to compile it.) Nor does what the compiler finds out about
 * its nodes: it does so once for all that are equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "cuda_unit.h"
#include "graph/graph_internal.h"
#include "monotile/model.h"
#include "ok.h"
#include "sched/sched_internal.h"
#include "temporary.h"

static char folder[TEMPORARY_BYTES];

static int set_up(void **state) {
    (void)state;
    return temporary_make(folder) ? 0 : -1;
}
static int tear_down(void **state) {
    (void)state;
    return temporary_remove(folder);
}

typedef struct made {
    text unit;
    size_t ops, nodes;
    size_t bound, chosen, patterns, meetings; /* ops, nodes' tile sizes, nodes' boxes, pairs of them */
} made;

static void depend(void *context) {
    sched *s = context;
    sched_number(s);
    sched_slot_begin(s);
    sched_depend(s);
}

/* Counts what is found out one by one, as mt_compile does it. */
static void count_work(const mt_graph *g, made *m) {
    const graph_target target = {graph_costs_of("cuda", NULL), 132, MT_PLACE_STATIC};
    mt_graph *copy;
    OK(graph_clone(g, &copy, &error));
    OK(graph_narrow(copy, &target, &error));
    OK(graph_fuse(copy, &target, &error));
    OK(graph_split(copy, &target, &error));
    OK(graph_fuse(copy, &target, &error));
    OK(graph_choose(copy, &target, &error));
    OK(graph_lower(copy, &error));
    sched s = {.memory = arena_new(),
               .graph = copy,
               .target = &target,
               .status = MT_OK,
               .node_count = (uint32_t)copy->node_count};
    assert_true(arena_protect(s.memory, depend, &s));
    assert_int_equal(s.status, MT_OK);
    m->bound = copy->op_count;
    m->chosen = copy->choices_count;
    m->patterns = s.pattern_keys.count;
    m->meetings = s.meeting_keys.count;
    arena_free(s.memory);
    mt_graph_destroy(copy);
}

static made unit_of(const char *arch, int layers, const mt_step *step, mt_placement placement) {
    char path[200], command[800];
    const char *python = getenv("MONOTILE_PYTHON");
    mt_model *model;
    mt_graph *g;
    mt_program *p;
    made m = {.unit = {0}};
    snprintf(path, sizeof path, "%s/%s-%d.gguf", folder, arch, layers);
    snprintf(
        command, sizeof command,
        "test -f %s || %s %s/tests/make_model.py %s --arch %s --layers %d --hidden 64 --heads 2 --kv-heads 1 --ffn 96 "
        "--vocab 300 --type q4_1 > /dev/null 2>&1",
        path, python ? python : "python3", MONOTILE_SOURCE_FOLDER, path, arch, layers);
    if (system(command)) {
        print_message("skipped: make_model.py needs Python with gguf\n");
        skip();
    }
    OK(mt_model_open(&model, path, &error));
    OK(mt_model_graph(model, step, &g, &error));
    OK(mt_compile(g, &(mt_target){.machine = "cuda", .processors = 132, .placement = placement}, &p, &error));
    OK(cuda_unit_text(p, &m.unit, &error));
    m.ops = p->ops_count;
    m.nodes = p->nodes_count;
    count_work(g, &m);
    mt_program_destroy(p);
    mt_graph_destroy(g);
    mt_model_close(model);
    return m;
}

static void test_depth(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen3"};
    static const mt_step steps[] = {
        {.rows = 1, .context = 256, .cache = "f16", .products = "half"},
        {.rows = 64, .context = 256, .cache = "f16", .products = "half"},
        {.rows = 1, .context = 256, .cache = "f16", .products = "bf16", .sampling = MT_SAMPLE_PLAIN}};
    for (size_t a = 0; a < COUNT_OF(archs); a++)
        for (size_t s = 0; s < COUNT_OF(steps); s++) {
            made few = unit_of(archs[a], 4, &steps[s], (mt_placement)(s == 2)),
                 many = unit_of(archs[a], 64, &steps[s], (mt_placement)(s == 2));
            assert_true(many.nodes > 8 * few.nodes);
            assert_int_equal(few.ops, many.ops);
            assert_true(few.bound && few.chosen && few.patterns && few.meetings);
            assert_int_equal(few.bound, many.bound);
            assert_int_equal(few.chosen, many.chosen);
            assert_int_equal(few.patterns, many.patterns);
            assert_int_equal(few.meetings, many.meetings);
            assert_true(few.unit.length > 1000);
            assert_string_equal(few.unit.data, many.unit.data);
            text_free(&few.unit);
            text_free(&many.unit);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_depth)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
