/* What the machines that run lowered ops derive from a program: which instructions arrive together, strides that fit
 * their code, and loads that stand in front of a body. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cuda_unit.h"
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

/* What the machines choose for the program's hand-offs. */
static device_handoff handoff_of(const mt_program *p, arena *memory) {
    program_binding binding;
    role_layout *layouts;
    emit_cuda_op *ops;
    device_handoff out;
    OK(program_bind(p, memory, &binding, &error));
    OK(device_layouts(p, &binding, memory, &layouts, &error));
    OK(device_ops(p, &binding, layouts, memory, &ops, &error));
    OK(device_handoff_choose(p, &binding, ops, memory, &out, &error));
    return out;
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

/* ---- hand-offs ----
 * What an instruction is behind, worked out anew: who waits for a barrier, and not just for a hint, is behind all who
 * arrive there, and all that they are behind; and behind what its processor has done. */

static bool is_behind(const uint64_t *known, size_t width, size_t i, size_t other) {
    return known[i * width + other / 64] >> other % 64 & 1;
}

static uint64_t *find_known(const mt_program *p, const device_handoff *h, size_t width) {
    uint64_t *known = calloc(p->instructions_count * width, sizeof *known),
             *arrived = calloc(p->barriers_count * width, sizeof *arrived);
    uint32_t *before = malloc(p->instructions_count * sizeof *before); /* on its processor */
    assert_true(known && arrived && before);
    memset(before, 0xff, p->instructions_count * sizeof *before);
    for (size_t q = 0; q < p->processors_count; q++)
        for (uint32_t k = 1; k < p->processors[q].count; k++)
            before[p->order[p->processors[q].first + k]] = p->order[p->processors[q].first + k - 1];
    for (size_t k = 0; k < p->instructions_count; k++) {
        const program_instruction *i = &h->instructions[k];
        uint64_t *mine = known + k * width;
        if (before[k] != UINT32_MAX) {
            for (size_t x = 0; x < width; x++) mine[x] |= known[before[k] * width + x];
            mine[before[k] / 64] |= (uint64_t)1 << before[k] % 64;
        }
        for (int w = 0; w < i->wait_count; w++) {
            const uint32_t barrier = i->wait[w] & ~CUDA_HINT;
            assert_true(barrier < p->barriers_count);
            assert_int_equal(i->target[w], p->barriers[barrier].arrivals);
            for (size_t x = 0; x < width && !(i->wait[w] & CUDA_HINT); x++) mine[x] |= arrived[barrier * width + x];
        }
        for (int a = 0; a < i->arrive_count && !(h->ends[k] & CUDA_QUIET); a++) {
            uint64_t *all = arrived + i->arrive[a] * width;
            for (size_t x = 0; x < width; x++) all[x] |= mine[x];
            all[k / 64] |= (uint64_t)1 << k % 64;
        }
    }
    free(arrived);
    free(before);
    return known;
}

/* The tensors share bytes: of the temporaries' memory, or as one tensor. */
static bool meet(const mt_program *p, const device_handoff *h, uint32_t a, uint32_t b) {
    if (a == b) return true;
    if (p->tensors[a].role != MT_TEMP || p->tensors[b].role != MT_TEMP) return false;
    return h->offset[a] < h->offset[b] + p->tensors[b].bytes && h->offset[b] < h->offset[a] + p->tensors[a].bytes;
}

typedef struct touch {
    program_region region;
    bool writes;
} touch;

static int touches_of(const mt_program *p, const program_binding *b, uint32_t number, touch *out) {
    const program_instruction *i = &p->instructions[number];
    tile_instance instance;
    tile_summary summary;
    int64_t index[TILE_AXES] = {0};
    OK(program_bind_instance(p, b, i, &instance, &error));
    for (int a = 0; a < b->ops[i->opcode]->axis_total; a++) index[a] = i->index[a];
    tile_summarise(&instance, index, &summary);
    for (int k = 0; k < summary.box_count; k++) {
        const tile_box *box = &summary.box[k];
        program_view_region(&b->views[i->tensor[box->tensor]], &instance, i, box, &out[k].region);
        out[k].writes = box->writes;
    }
    return summary.box_count;
}

static bool conflict(const mt_program *p, const device_handoff *h, const touch *a, const touch *b) {
    const uint32_t t = a->region.tensor, u = b->region.tensor;
    if (h->stamped[t] || !(a->writes || b->writes) || !meet(p, h, t, u)) return false;
    return t != u || program_regions_meet(&a->region, &b->region, INT64_MIN, INT64_MAX);
}

/* Of every two instructions of different nodes that touch the same memory, one of them writing, one is behind the
 * other, but for what is stamped. */
static void check_handoff(const char *name, int rows, int processors, bool stamps) {
    mt_model *model;
    mt_graph *g;
    mt_program *p;
    OK(mt_model_synthesize(&model, name, &error));
    OK(mt_model_graph(model, &(mt_step){.rows = rows, .context = 256, .cache = "f16", .products = "bf16"}, &g, &error));
    OK(mt_compile(g, &(mt_target){.machine = "cuda", .processors = processors}, &p, &error));
    mt_graph_destroy(g);
    mt_model_close(model);
    arena *memory = arena_new();
    const device_handoff h = handoff_of(p, memory);
    program_binding binding;
    OK(program_bind(p, memory, &binding, &error));
    const size_t width = (p->instructions_count + 63) / 64;
    uint64_t *known = find_known(p, &h, width);
    size_t quiet = 0, stamped = 0;
    for (size_t k = 0; k < p->instructions_count; k++) quiet += (h.ends[k] & CUDA_QUIET) != 0;
    for (size_t t = 0; t < p->tensors_count; t++) {
        const int64_t end = h.offset[t] + p->tensors[t].bytes;
        if (p->tensors[t].role == MT_TEMP) assert_true(h.offset[t] >= 0 && end <= (int64_t)h.bytes);
        if (!h.stamped[t]) continue;
        stamped++;
        assert_int_equal(p->tensors[t].role, MT_TEMP);
        assert_true(h.offset[t] >= (int64_t)h.stamps_at && end <= (int64_t)(h.stamps_at + h.stamp_bytes));
        for (size_t u = 0; u < p->tensors_count; u++)
            assert_false(u != t && p->tensors[u].role == MT_TEMP && meet(p, &h, (uint32_t)t, (uint32_t)u));
    }
    assert_true(!stamps || (quiet > 0 && stamped > 0));
    enum { MOST = 2 * TILE_PARAMS };
    touch *touches = calloc(p->instructions_count * MOST, sizeof *touches);
    int *counts = calloc(p->instructions_count, sizeof *counts);
    assert_true(touches && counts);
    for (uint32_t i = 0; i < p->instructions_count; i++)
        if (p->instructions[i].opcode != PROGRAM_JOIN) counts[i] = touches_of(p, &binding, i, touches + i * MOST);
    for (uint32_t j = 0; j < p->instructions_count; j++)
        for (uint32_t i = 0; i < j; i++) {
            bool conflicts = false;
            if (p->instructions[i].node == p->instructions[j].node || is_behind(known, width, j, i)) continue;
            for (int x = 0; x < counts[i]; x++)
                for (int y = 0; y < counts[j]; y++)
                    conflicts |= conflict(p, &h, &touches[i * MOST + (size_t)x], &touches[j * MOST + (size_t)y]);
            if (conflicts)
                fail_msg("%s, %d rows: nothing orders instruction %u (%s) behind %u (%s)", name, rows, j,
                         program_string(p, p->nodes[p->instructions[j].node].name), i,
                         program_string(p, p->nodes[p->instructions[i].node].name));
        }
    free(touches);
    free(counts);
    free(known);
    arena_free(memory);
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
    for (size_t i = 0; i < COUNT_OF(unfit); i++) {
        mt_error error = {0};
        o->stride[0] = unfit[i];
        assert_int_equal(device_operands(p, &binding, addresses, &handoff, table, &error), MT_E_LIMIT);
        assert_non_null(strstr(error.message, "apart"));
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
