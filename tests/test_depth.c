/* A model's code does not grow with its depth: the CUDA unit of 64 layers is that of 4, byte by byte, for the steps of
 * one token and of prompts. (So are its code and the time to compile it.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "cuda_unit.h"
#include "monotile/model.h"
#include "ok.h"
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
} made;

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
