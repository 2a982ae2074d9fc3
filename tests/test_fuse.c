/* Every fused program of the library against the composition that its `equals` states: the same random inputs through
 * one node and through the steps, on the CPU machine; and the fusion pass must turn the steps into that one node.
 * Nothing here knows any operation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "graph/graph_internal.h"
#include "monotile/machine.h"

static int64_t size_of_name(const char *name) {
    static const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"M", 5}, {"N", 37}, {"K", 72}, {"H", 3}, {"D", 10}, {"S", 19}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (!strcmp(name, sizes[i].name)) return sizes[i].size;
    fail_msg("the test has no size for extent '%s'", name);
    return 0;
}

typedef struct subject { /* a fused program with shapes chosen */
    const tile_file *library;
    const char *program;
    const tile_op *op;
    tile_instance instance;
    tile_step steps[TILE_STEPS];
    int step_count;
} subject;

static void prepare(subject *s, arena *a, const tile_file *library, const char *program) {
    mt_error error = {0};
    tile_constant all[TILE_CONSTANTS], needed[TILE_CONSTANTS];
    size_t count = 0;
    *s = (subject){.library = library, .program = program};
    s->step_count = tile_equals(library, program, s->steps);
    const int total = tile_constants(library, program, all);
    for (int i = 0; i < total; i++)
        if (!all[i].type && all[i].value == INT64_MIN)
            needed[count++] = (tile_constant){all[i].name, size_of_name(all[i].name), NULL};
    if (tile_bind(a, &s->op, library, program, needed, count, NULL, &error) != MT_OK)
        fail_msg("%s: %s", program, error.message);
    s->instance.op = s->op;
    for (int e = 0; e < s->op->extent_count; e++) s->instance.free_extent[e] = size_of_name(s->op->extent_names[e]);
}

/* A graph with the subject's parameters as tensors; nodes are added by the caller. */
typedef struct stage {
    mt_graph *g;
    mt_tensor tensor[TILE_PARAMS];
    mt_live live;
} stage;

static void make_stage(const subject *s, stage *out) {
    mt_error error = {0};
    assert_int_equal(mt_graph_create(&out->g, &error), MT_OK);
    assert_int_equal(mt_graph_live(out->g, "pos", 0, 9, &out->live, &error), MT_OK);
    for (int p = 0; p < s->op->param_count; p++) {
        const tile_param *param = &s->op->params[p];
        if (param->kind > TILE_INOUT) continue;
        int64_t extent[TILE_RANK];
        for (int d = 0; d < param->rank; d++) assert_true(graph_scalar(&s->instance, param->extent[d], &extent[d]));
        const mt_role role = param->kind == TILE_IN ? MT_INPUT : param->kind == TILE_OUT ? MT_OUTPUT : MT_STATE;
        if (mt_graph_tensor(out->g, role, param->name, param->type->name, param->rank, extent, &out->tensor[p],
                            &error) != MT_OK)
            fail_msg("%s %s: %s", s->program, param->name, error.message);
    }
}

static int param_of(const subject *s, const char *name) {
    for (int p = 0; p < s->op->param_count; p++)
        if (!strcmp(s->op->params[p].name, name)) return p;
    return -1;
}

static mt_operand operand(const subject *s, const stage *at, int p, const char *name) {
    const tile_param *param = &s->op->params[p];
    if (param->kind == TILE_PARAM_LIVE) return MT_OPERAND_LIVE(name, at->live);
    if (param->kind == TILE_PARAM_ARG) return MT_OPERAND_FLOAT(name, 0.0125f);
    return MT_OPERAND(name, at->tensor[p]);
}

static void add_fused(const subject *s, stage *at) {
    mt_operand operands[TILE_PARAMS];
    mt_error error = {0};
    for (int p = 0; p < s->op->param_count; p++) operands[p] = operand(s, at, p, s->op->params[p].name);
    if (mt_graph_node(at->g, NULL, s->program, NULL, operands, (size_t)s->op->param_count, NULL, &error) != MT_OK)
        fail_msg("%s: %s: %s", s->program, error.where, error.message);
}

/* Views tensor t with the rank that a step's parameter wants: [M, H * D] as [M, H, D]. */
static mt_tensor with_rank(mt_graph *g, mt_tensor t, int rank) {
    mt_error error = {0};
    if (g->views[t].rank == rank) return t;
    mt_tensor out;
    assert_int_equal(rank, 3);
    assert_int_equal(mt_graph_reshape(g, t, 3, (int64_t[]){g->views[t].extent[0], size_of_name("H"), size_of_name("D")},
                                      &out, &error),
                     MT_OK);
    return out;
}

static void add_steps(const subject *s, stage *at) {
    struct {
        const char *name;
        mt_tensor tensor;
    } made[TILE_STEPS];
    size_t made_count = 0;
    for (int i = 0; i < s->step_count; i++) {
        const tile_step *step = &s->steps[i];
        tile_signature_param signature[TILE_PARAMS];
        mt_operand operands[TILE_PARAMS + TILE_CONSTANTS];
        size_t count = 0;
        const int params = tile_signature(s->library, step->program, signature);
        int in = 0, out = 0;
        const char *unnamed = NULL;
        for (int p = 0; p < params; p++) {
            const char *name = signature[p].kind == TILE_OUT ? step->output[out++] : step->input[in++];
            const int param = param_of(s, name);
            mt_tensor t = -1;
            for (size_t m = 0; m < made_count; m++)
                if (!strcmp(made[m].name, name)) t = made[m].tensor;
            if (param >= 0)
                operands[count++] = operand(s, at, param, signature[p].name);
            else if (signature[p].kind == TILE_OUT)
                unnamed = name;
            else
                operands[count++] = MT_OPERAND(signature[p].name, with_rank(at->g, t, signature[p].rank));
        }
        assert_int_equal(in, step->input_count);
        assert_int_equal(out, step->output_count);
        mt_tensor result = -1;
        mt_error error = {0};
        if (unnamed) { /* constants that only the missing output would tell */
            tile_constant known[TILE_CONSTANTS];
            const int total = tile_constants(s->library, step->program, known);
            for (int k = 0; k < total; k++) {
                bool told = known[k].type || known[k].value != INT64_MIN;
                for (int p = 0; p < params; p++)
                    for (int d = 0; d < signature[p].rank && signature[p].kind <= TILE_INOUT; d++)
                        told |= signature[p].kind != TILE_OUT && signature[p].extent_name[d] &&
                                !strcmp(signature[p].extent_name[d], known[k].name);
                if (!told) operands[count++] = MT_OPERAND_INTEGER(known[k].name, size_of_name(known[k].name));
            }
        }
        if (mt_graph_node(at->g, NULL, step->program, NULL, operands, count, &result, &error) != MT_OK)
            fail_msg("%s, step %d: %s: %s", s->program, i, error.where, error.message);
        if (unnamed) made[made_count].name = unnamed, made[made_count++].tensor = result;
    }
}

static double noise(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (1 << 23) - 1;
}

/* Runs the stage's graph on fresh random inputs (the same for the same seed) and returns its outputs one after another.
 */
static double *run(const subject *s, const stage *at, int no_fusion, size_t *total) {
    mt_error error = {0};
    mt_machine *machine;
    mt_program *program;
    mt_session *session;
    const mt_target target = {.processors = 2, .no_fusion = no_fusion};
    if (mt_compile(at->g, &target, &program, &error) != MT_OK)
        fail_msg("%s: %s: %s", s->program, error.where, error.message);
    assert_int_equal(mt_machine_open(&machine, "cpu:2", &error), MT_OK);
    if (mt_session_create(&session, machine, program, &error) != MT_OK)
        fail_msg("%s: %s: %s", s->program, error.where, error.message);
    uint64_t state = 7;
    for (int p = 0; p < s->op->param_count; p++) {
        const tile_param *param = &s->op->params[p];
        void *memory;
        size_t bytes;
        if (param->kind > TILE_INOUT || mt_session_memory(session, param->name, &memory, &bytes, &error) != MT_OK)
            continue;
        if (param->kind == TILE_OUT &&
            param->type->scalar.bits == 32) { /* poisoned, except caches, which keep what is not written */
            memset(memory, 0xff, bytes);
            continue;
        }
        for (size_t i = 0; i < bytes * 8 / (size_t)param->type->bits; i++)
            tile_format_set(param->type, memory, (int64_t)i, noise(&state));
    }
    mt_session_live(session, "pos", 4, &error);
    if (mt_session_run(session, &error) != MT_OK) fail_msg("%s: %s: %s", s->program, error.where, error.message);
    double *values = calloc(1 << 16, sizeof *values);
    *total = 0;
    for (int p = 0; p < s->op->param_count; p++) {
        const tile_param *param = &s->op->params[p];
        void *memory;
        size_t bytes;
        if (param->kind != TILE_OUT && param->kind != TILE_INOUT) continue;
        assert_int_equal(mt_session_memory(session, param->name, &memory, &bytes, &error), MT_OK);
        for (size_t i = 0; i < bytes * 8 / (size_t)param->type->bits; i++)
            values[(*total)++] = tile_format_get(param->type, memory, (int64_t)i);
    }
    mt_session_destroy(session);
    mt_program_destroy(program);
    mt_machine_close(machine);
    return values;
}

static void check_program(const tile_file *library, const char *program) {
    subject s;
    arena *a = arena_new();
    stage fused, steps;
    mt_error error = {0};
    prepare(&s, a, library, program);
    make_stage(&s, &fused);
    make_stage(&s, &steps);
    add_fused(&s, &fused);
    add_steps(&s, &steps);

    mt_graph *copy;
    assert_int_equal(graph_clone(steps.g, &copy, &error), MT_OK);
    assert_int_equal(graph_fuse(copy, &error), MT_OK);
    if (copy->node_count != 1 || strcmp(copy->nodes[0].program, program))
        fail_msg("%s: fusion left %zu nodes, the last is %s", program, copy->node_count,
                 copy->nodes[copy->node_count - 1].program);
    mt_graph_destroy(copy);

    size_t count, same;
    double *got = run(&s, &fused, 0, &count), *expected = run(&s, &steps, 1, &same);
    assert_int_equal(count, same);
    double worst = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(got[i]) || !isfinite(expected[i]))
            fail_msg("%s: element %zu is %g, expected %g", program, i, got[i], expected[i]);
        worst += (got[i] - expected[i]) * (got[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    if (!(sqrt(worst) <= 1e-5 * sqrt(norm))) fail_msg("%s: relative difference %g", program, sqrt(worst / norm));
    free(got);
    free(expected);
    mt_graph_destroy(fused.g);
    mt_graph_destroy(steps.g);
    arena_free(a);
}

static void fused_programs_equal_their_compositions(void **state) {
    (void)state;
    const tile_file *library;
    mt_error error = {0};
    if (tile_library(&library, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
    tile_step steps[TILE_STEPS];
    int checked = 0;
    for (size_t i = 0; i < tile_file_count(library); i++)
        if (tile_equals(library, tile_file_name(library, i), steps) > 0) {
            check_program(library, tile_file_name(library, i));
            checked++;
        }
    assert_true(checked >= 8);
}

/* The intermediate is an output too: nothing may be fused away. */
static void results_that_others_need_stay(void **state) {
    (void)state;
    mt_error error = {0};
    mt_graph *g;
    mt_tensor x, w, r, t, y, z;
    assert_int_equal(mt_graph_create(&g, &error), MT_OK);
    mt_graph_tensor(g, MT_INPUT, "x", "f32", 2, (int64_t[]){3, 16}, &x, &error);
    mt_graph_tensor(g, MT_WEIGHT, "w", "f32", 2, (int64_t[]){8, 16}, &w, &error);
    mt_graph_tensor(g, MT_INPUT, "r", "f32", 2, (int64_t[]){3, 8}, &r, &error);
    mt_graph_tensor(g, MT_OUTPUT, "y", "f32", 2, (int64_t[]){3, 8}, &y, &error);
    mt_graph_tensor(g, MT_OUTPUT, "z", "f32", 2, (int64_t[]){3, 8}, &z, &error);
    assert_int_equal(
        mt_graph_node(g, NULL, "linear", NULL, (mt_operand[]){MT_OPERAND("x", x), MT_OPERAND("w", w)}, 2, &t, &error),
        MT_OK);
    assert_int_equal(mt_graph_node(g, NULL, "add", NULL,
                                   (mt_operand[]){MT_OPERAND("a", t), MT_OPERAND("b", r), MT_OPERAND("y", y)}, 3, NULL,
                                   &error),
                     MT_OK);
    assert_int_equal(
        mt_graph_node(g, NULL, "relu", NULL, (mt_operand[]){MT_OPERAND("x", t), MT_OPERAND("y", z)}, 2, NULL, &error),
        MT_OK);
    assert_int_equal(graph_fuse(g, &error), MT_OK);
    assert_int_equal(g->node_count, 3);
    mt_graph_destroy(g);
}

/* Between the norm and the linear layer something overwrites the norm's input: the read must not move down. */
static void reads_do_not_move_past_writes(void **state) {
    (void)state;
    mt_error error = {0};
    mt_graph *g;
    mt_tensor x, w, gain, other, t, y;
    assert_int_equal(mt_graph_create(&g, &error), MT_OK);
    mt_graph_tensor(g, MT_STATE, "x", "f32", 2, (int64_t[]){3, 16}, &x, &error);
    mt_graph_tensor(g, MT_INPUT, "other", "f32", 2, (int64_t[]){3, 16}, &other, &error);
    mt_graph_tensor(g, MT_WEIGHT, "w", "f32", 2, (int64_t[]){8, 16}, &w, &error);
    mt_graph_tensor(g, MT_WEIGHT, "g", "f32", 1, (int64_t[]){16}, &gain, &error);
    mt_graph_tensor(g, MT_OUTPUT, "y", "f32", 2, (int64_t[]){3, 8}, &y, &error);
    assert_int_equal(
        mt_graph_node(g, NULL, "rmsnorm", NULL,
                      (mt_operand[]){MT_OPERAND("x", x), MT_OPERAND("g", gain), MT_OPERAND_FLOAT("eps", 1e-5f)}, 3, &t,
                      &error),
        MT_OK);
    assert_int_equal(mt_graph_node(g, NULL, "relu", NULL, (mt_operand[]){MT_OPERAND("x", other), MT_OPERAND("y", x)}, 2,
                                   NULL, &error),
                     MT_OK);
    assert_int_equal(mt_graph_node(g, NULL, "linear", NULL,
                                   (mt_operand[]){MT_OPERAND("x", t), MT_OPERAND("w", w), MT_OPERAND("y", y)}, 3, NULL,
                                   &error),
                     MT_OK);
    assert_int_equal(graph_fuse(g, &error), MT_OK);
    assert_int_equal(g->node_count, 3);
    mt_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_programs_equal_their_compositions),
        cmocka_unit_test(results_that_others_need_stay),
        cmocka_unit_test(reads_do_not_move_past_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
