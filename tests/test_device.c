/* What the machines that run lowered ops derive from a program: which instructions arrive together, strides that fit
 * their code, and loads that stand in front of a body. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_unit.h"
#include "handoff_oracle.h"
#include "monotile/model.h"
#include "ok.h"

/* A token of a model of real size on a GPU of that many processors. */
static mt_program *compile_step(int processors, mt_placement placement) {
    mt_model *model;
    mt_graph *g;
    mt_program *p;
    OK(mt_model_synthesize(&model, "llama-3.2-1b", &error));
    OK(mt_model_graph(model, &(mt_step){.rows = 1, .context = 512, .cache = "f16", .products = "bf16"}, &g, &error));
    OK(mt_compile(g, &(mt_target){.machine = "cuda", .processors = processors, .placement = placement}, &p, &error));
    mt_graph_destroy(g);
    mt_model_close(model);
    return p;
}

/* Whoever goes on starts nothing that could have to wait, and every barrier gets the arrivals that its waiters expect.
 */
static void test_goes_on(void **state) {
    (void)state;
    static const int processors[] = {1, 7, 132};
    for (size_t n = 0; n < COUNT_OF(processors); n++) {
        mt_program *p = compile_step(processors[n], MT_PLACE_STATIC);
        arena *memory = arena_new();
        const device_handoff handoff = handoff_of(p, memory);
        uint32_t *arrived = calloc(p->barriers_count + 1, sizeof *arrived);
        size_t together = 0;
        for (size_t q = 0; q < p->processors_count; q++) {
            uint32_t before = 0; /* instructions that have not arrived */
            for (uint32_t k = 0; k < p->processors[q].count; k++) {
                const uint32_t number = p->order[p->processors[q].first + k];
                const program_instruction *i = &handoff.instructions[number];
                if (handoff.ends[number] & CUDA_GOES_ON) {
                    assert_true(k + 1 < p->processors[q].count);
                    const program_instruction *next = &handoff.instructions[p->order[p->processors[q].first + k + 1]];
                    assert_int_equal(i->node, next->node);
                    assert_int_equal(i->wait_count, next->wait_count);
                    assert_memory_equal(i->wait, next->wait, i->wait_count * sizeof *i->wait);
                    assert_memory_equal(i->target, next->target, i->wait_count * sizeof *i->target);
                    before++, together++;
                    continue;
                }
                for (int a = 0; a < i->arrive_count; a++) arrived[i->arrive[a]] += 1 + before;
                if (i->arrive_count) before = 0;
            }
            assert_int_equal(before, 0);
        }
        for (size_t b = 0; b < p->barriers_count; b++) assert_int_equal(arrived[b], p->barriers[b].arrivals);
        /* On 132 processors no node but the output layer, which nobody waits for, has more instructions than they are.
         */
        assert_int_equal(together > 0, processors[n] < 132);
        free(arrived);
        arena_free(memory);
        mt_program_destroy(p);
    }
    mt_program *p = compile_step(7, MT_PLACE_QUEUE);
    arena *memory = arena_new();
    const device_handoff handoff = handoff_of(p, memory);
    for (size_t i = 0; i < p->instructions_count; i++) assert_false(handoff.ends[i] & CUDA_GOES_ON);
    arena_free(memory);
    mt_program_destroy(p);
}

/* ---- hand-offs ---- */

static void check_handoff(const char *name, int rows, int processors, bool stamps) {
    mt_model *model;
    mt_graph *g;
    mt_program *p;
    OK(mt_model_synthesize(&model, name, &error));
    OK(mt_model_graph(model, &(mt_step){.rows = rows, .context = 256, .cache = "f16", .products = "bf16"}, &g, &error));
    OK(mt_compile(g, &(mt_target){.machine = "cuda", .processors = processors}, &p, &error));
    mt_graph_destroy(g);
    mt_model_close(model);
    char what[80];
    snprintf(what, sizeof what, "%s, %d rows", name, rows);
    check_program_handoff(p, what, stamps);
    mt_program_destroy(p);
}
static void test_handoff(void **state) {
    (void)state;
    check_handoff("llama-3.2-1b", 1, 132, true);
    check_handoff("qwen3-0.6b", 1, 132, true);
    check_handoff("qwen3-0.6b", 1, 6, true);
    check_handoff("llama-3.2-1b", 2, 20, true);
    check_handoff("llama-3.2-1b", 128, 132, false);
}

static void test_strides(void **state) {
    (void)state;
    mt_program *p = compile_step(7, MT_PLACE_STATIC);
    arena *memory = arena_new();
    program_binding binding;
    OK(program_bind(p, memory, &binding, &error));
    const device_handoff handoff = handoff_of(p, memory);
    uintptr_t *addresses = calloc(p->tensors_count, sizeof *addresses);
    cuda_tensor *table = calloc(p->operands_count, sizeof *table);
    OK(device_operands(p, &binding, addresses, &handoff, table, &error));
    program_operand *o = (program_operand *)&p->operands[0];
    assert_true(o->rank > 0);
    static const int64_t fit[] = {INT32_MAX, INT32_MIN},
                         unfit[] = {(int64_t)INT32_MAX + 1, (int64_t)INT32_MIN - 1, INT64_MIN};
    for (size_t i = 0; i < COUNT_OF(fit); i++) {
        o->stride[0] = fit[i];
        OK(device_operands(p, &binding, addresses, &handoff, table, &error));
        assert_int_equal(table[0].stride[0], fit[i]);
    }
    const int64_t extent = o->extent[0];
    for (size_t i = 0; i < COUNT_OF(unfit); i++) {
        mt_error refused = {0};
        o->stride[0] = unfit[i];
        o->extent[0] = 1; /* nobody takes a step */
        OK(device_operands(p, &binding, addresses, &handoff, table, &error));
        o->extent[0] = extent > 1 ? extent : 2;
        assert_int_equal(device_operands(p, &binding, addresses, &handoff, table, &refused), MT_E_LIMIT);
        assert_non_null(strstr(refused.message, "apart"));
    }
    free(addresses);
    free(table);
    arena_free(memory);
    mt_program_destroy(p);
}

/* Keys and values of a part of attention are asked for before the first meeting of the threads, with the queries. */
static void test_early_loads(void **state) {
    (void)state;
    mt_program *p = compile_step(132, MT_PLACE_STATIC);
    text unit = {0};
    OK(cuda_unit_text(p, &unit, &error));
    const char *run = strstr(unit.data, "_attention_part_run(mt_context *mt) {");
    assert_non_null(run);
    const char *meeting = strstr(run, "mt_sync();");
    static const char *const loads[] = {"mt_load_if<true>(kc", "mt_load_if<true>(vc"};
    for (size_t i = 0; i < COUNT_OF(loads); i++) {
        const char *load = strstr(run, loads[i]);
        assert_non_null(load);
        assert_true(load < meeting);
    }
    text_free(&unit);
    mt_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goes_on), cmocka_unit_test(test_handoff),
                                       cmocka_unit_test(test_strides), cmocka_unit_test(test_early_loads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
