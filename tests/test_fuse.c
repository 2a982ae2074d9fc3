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
#include "graph_make.h"
#include "monotile/machine.h"

/* 0: the test has none; such a constant has a default that follows from others. */
static int64_t size_of_name(const char *name) {
    static const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"M", 5}, {"N", 37}, {"K", 72}, {"H", 3}, {"D", 10}, {"S", 19}, {"C", 3}, {"BS", 8}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (!strcmp(name, sizes[i].name)) return sizes[i].size;
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
        if (!all[i].type && all[i].value == INT64_MIN && size_of_name(all[i].name))
            needed[count++] = (tile_constant){all[i].name, size_of_name(all[i].name), NULL};
    if (tile_bind(a, &s->op, library, program, needed, count, NULL, &error) != MT_OK)
        fail_msg("%s: %s", program, error.message);
    s->instance.op = s->op;
    for (int e = 0; e < s->op->extent_count; e++)
        if (!(s->instance.free_extent[e] = size_of_name(s->op->extent_names[e])))
            fail_msg("the test has no size for extent '%s'", s->op->extent_names[e]);
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
        for (int d = 0; d < param->rank; d++)
            assert_true(tile_instance_most(&s->instance, param->extent[d], &extent[d]));
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

/* Adds the constants without a default that no operand tells. */
static void add_untold(const tile_file *library, const char *program, bool has_outputs, mt_operand *operands,
                       size_t *count) {
    tile_signature_param signature[TILE_PARAMS];
    tile_constant known[TILE_CONSTANTS];
    const int params = tile_signature(library, program, signature);
    const int total = tile_constants(library, program, known);
    for (int k = 0; k < total; k++) {
        bool told = known[k].type || known[k].value != INT64_MIN || !size_of_name(known[k].name);
        for (int p = 0; p < params; p++)
            for (int d = 0; d < signature[p].rank && signature[p].kind <= TILE_INOUT; d++)
                told |= (has_outputs || signature[p].kind != TILE_OUT) && signature[p].extent_name[d] &&
                        !strcmp(signature[p].extent_name[d], known[k].name);
        if (!told) operands[(*count)++] = MT_OPERAND_INTEGER(known[k].name, size_of_name(known[k].name));
    }
}

static void add_fused(const subject *s, stage *at) {
    mt_operand operands[TILE_PARAMS + TILE_CONSTANTS];
    size_t count = 0;
    mt_error error = {0};
    for (int p = 0; p < s->op->param_count; p++) operands[count++] = operand(s, at, p, s->op->params[p].name);
    add_untold(s->library, s->program, true, operands, &count);
    if (mt_graph_node(at->g, NULL, s->program, NULL, operands, count, NULL, &error) != MT_OK)
        fail_msg("%s: %s: %s", s->program, error.where, error.message);
}

/* Views tensor t with the rank that a step's parameter wants: [M, H * D] as [M, H, D], or the other way round. */
static mt_tensor with_rank(mt_graph *g, mt_tensor t, int rank) {
    mt_error error = {0};
    const graph_view *v = &g->views[t];
    if (v->rank == rank) return t;
    mt_tensor out;
    assert_true(rank + v->rank == 5);
    const int64_t split[] = {v->extent[0], size_of_name("H"), size_of_name("D")};
    const int64_t merged[] = {v->extent[0], v->extent[1] * v->extent[2]};
    assert_int_equal(mt_graph_reshape(g, t, rank, rank == 3 ? split : merged, &out, &error), MT_OK);
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
        add_untold(s->library, step->program, !unnamed, operands, &count);
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
    assert_int_equal(graph_fuse(copy, NULL, &error), MT_OK);
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

/* ---- what must not be fused ---- */

#define EPS MT_OPERAND_FLOAT("eps", 1e-5f)

static void fuse_leaves(mt_graph *g, size_t nodes) {
    mt_error error = {0};
    assert_int_equal(graph_fuse(g, NULL, &error), MT_OK);
    if (g->node_count != nodes) fail_msg("expected %zu nodes:\n%s", nodes, mt_graph_text(g));
    mt_graph_destroy(g);
}

/* The intermediate is read by another program too: nothing may be fused away. */
static void results_that_others_need_stay(void **state) {
    (void)state;
    mt_graph *g = make_graph(NULL);
    const mt_tensor x = make_tensor(g, MT_INPUT, "x", "f32", 3, 16), w = make_tensor(g, MT_WEIGHT, "w", "f32", 8, 16),
                    r = make_tensor(g, MT_INPUT, "r", "f32", 3, 8), y = make_tensor(g, MT_OUTPUT, "y", "f32", 3, 8),
                    z = make_tensor(g, MT_OUTPUT, "z", "f32", 3, 8);
    const mt_tensor t = NODE(g, "linear", MT_OPERAND("x", x), MT_OPERAND("w", w));
    NODE(g, "add", MT_OPERAND("a", t), MT_OPERAND("b", r), MT_OPERAND("y", y));
    NODE(g, "relu", MT_OPERAND("x", t), MT_OPERAND("y", z));
    fuse_leaves(g, 3);
}

/* Between the norm and the linear layer, or by the linear layer itself, the norm's input is overwritten: the read must
 * not move down. */
static void reads_do_not_move_past_writes(void **state) {
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        mt_graph *g = make_graph(NULL);
        const mt_tensor x = make_tensor(g, MT_STATE, "x", "f32", 3, 16),
                        other = make_tensor(g, MT_INPUT, "other", "f32", 3, 16),
                        w = make_tensor(g, MT_WEIGHT, "w", "f32", 16, 16),
                        gain = make_tensor(g, MT_WEIGHT, "g", "f32", 16, 0),
                        y = make_tensor(g, MT_OUTPUT, "y", "f32", 3, 16);
        const mt_tensor t = NODE(g, "rmsnorm", MT_OPERAND("x", x), MT_OPERAND("g", gain), EPS);
        if (!in_place) NODE(g, "relu", MT_OPERAND("x", other), MT_OPERAND("y", x));
        NODE(g, "linear", MT_OPERAND("x", t), MT_OPERAND("w", w), MT_OPERAND("y", in_place ? x : y));
        fuse_leaves(g, in_place ? 2 : 3);
    }
}

/* The temporary is written in two pieces, or only a piece of it is read. */
static void parts_stay(void **state) {
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        mt_error error = {0};
        mt_graph *g = make_graph(NULL);
        const mt_tensor x = make_tensor(g, MT_INPUT, "x", "f32", 4, 16),
                        w = make_tensor(g, MT_WEIGHT, "w", "f32", 8, 16),
                        r = make_tensor(g, MT_INPUT, "r", "f32", 2, 8), y = make_tensor(g, MT_OUTPUT, "y", "f32", 2, 8),
                        t = make_tensor(g, MT_TEMP, NULL, "f32", 4, 8);
        mt_tensor part;
        assert_int_equal(mt_graph_slice(g, t, 0, 0, 2, &part, &error), MT_OK);
        if (variant) {
            NODE(g, "linear", MT_OPERAND("x", x), MT_OPERAND("w", w), MT_OPERAND("y", t));
            NODE(g, "add", MT_OPERAND("a", part), MT_OPERAND("b", r), MT_OPERAND("y", y));
        } else {
            mt_tensor half, rest;
            assert_int_equal(mt_graph_slice(g, x, 0, 0, 2, &half, &error), MT_OK);
            assert_int_equal(mt_graph_slice(g, t, 0, 2, 4, &rest, &error), MT_OK);
            const mt_tensor bias = make_tensor(g, MT_WEIGHT, "bias", "f32", 8, 0),
                            all = make_tensor(g, MT_OUTPUT, "all", "f32", 4, 8);
            NODE(g, "linear", MT_OPERAND("x", half), MT_OPERAND("w", w), MT_OPERAND("y", part));
            NODE(g, "linear", MT_OPERAND("x", half), MT_OPERAND("w", w), MT_OPERAND("y", rest));
            NODE(g, "bias", MT_OPERAND("x", t), MT_OPERAND("b", bias), MT_OPERAND("y", all));
        }
        fuse_leaves(g, variant ? 2 : 3);
    }
}

/* ---- rules of the user's own ---- */

static const char *const own_rules =
    "tile twice[N](x: in f32[M, N], y: out f32[M, N]) over (i in M) { y[i] = x[i] + x[i] }\n"
    "tile twice_relu[N](x: in f32[M, N], y: out f32[M, N]) over (i in M)\n"
    "    equals { t = twice(x); y = relu(t) } { y[i] = max(x[i] + x[i], 0) }\n"
    "tile deep[N](x: in f32[M, N], y: out f32[M, N]) over (i in M)\n"
    "    equals { t = twice(x); u = twice(t); y = twice(u) } { y[i] = x[i] * 8 }\n";

static void own_rules_fuse(void **state) {
    (void)state;
    mt_tile *file = make_tiles(own_rules);
    for (int variant = 0; variant < 4; variant++) {
        mt_error error = {0};
        mt_graph *g = make_graph(NULL);
        const mt_tensor x = make_tensor(g, MT_STATE, "x", "f32", 3, 16),
                        y = make_tensor(g, MT_OUTPUT, "y", "f32", 3, 16);
        if (variant) assert_int_equal(mt_graph_use(g, file, &error), MT_OK);
        if (variant < 2) { /* a step of the file itself, and one of the library */
            const mt_tensor t = OWN_NODE(g, file, "twice", MT_OPERAND("x", x));
            NODE(g, "relu", MT_OPERAND("x", t), MT_OPERAND("y", y));
            fuse_leaves(g, variant ? 1 : 2);
        } else { /* x is overwritten behind the second of three steps */
            const mt_tensor t = OWN_NODE(g, file, "twice", MT_OPERAND("x", x)),
                            u = OWN_NODE(g, file, "twice", MT_OPERAND("x", t));
            if (variant == 3) NODE(g, "relu", MT_OPERAND("x", y), MT_OPERAND("y", x));
            OWN_NODE(g, file, "twice", MT_OPERAND("x", u), MT_OPERAND("y", y));
            fuse_leaves(g, variant == 3 ? 4 : 1);
        }
    }
    mt_tile_close(file);
}

/* Rules that contradict their programs, or each other, change nothing or end. */
static void bad_rules_are_harmless(void **state) {
    (void)state;
    static const char *const programs =
        "tile one[N](x: in f32[M, N], s: arg f32, y: out f32[M, N]) over (i in M) { y[i] = x[i] * s }\n"
        "tile two[N](x: in f32[M, N], k: arg i32, p: live i32, y: out f32[M, N]) over (i in M) { y[i] = x[i] }\n";
    static const struct {
        const char *rule;
        size_t nodes;
    } cases[] = {
        /* an arg as a live value, a tensor or an integer; a live value as an arg */
        {"tile f[N](x: in f32[M, N], s: live i32, k: arg i32, p: live i32, y: out f32[M, N]) over (i in M)", 2},
        {"tile f[N](x: in f32[M, N], s: in f32[M, N], k: arg i32, p: live i32, y: out f32[M, N]) over (i in M)", 2},
        {"tile f[N](x: in f32[M, N], s: arg i32, k: arg i32, p: live i32, y: out f32[M, N]) over (i in M)", 2},
        {"tile f[N](x: in f32[M, N], s: arg f32, k: arg i32, p: arg i32, y: out f32[M, N]) over (i in M)", 2},
        /* another rank, type or direction */
        {"tile f[N](x: in f32[M], s: arg f32, k: arg i32, p: live i32, y: out f32[M, N]) over (i in M)", 2},
        {"tile f[N](x: in f16[M, N], s: arg f32, k: arg i32, p: live i32, y: out f32[M, N]) over (i in M)", 2},
        {"tile f[N](x: inout f32[M, N], s: arg f32, k: arg i32, p: live i32, y: out f32[M, N]) over (i in M)", 2},
        {"tile f[N](x: in f32[M, N], s: arg f32, k: arg i32, p: live i32, y: inout f32[M, N]) over (i in M)", 2},
        /* a parameter that no step has */
        {"tile f[N](x: in f32[M, N], z: in f32[M, N], s: arg f32, k: arg i32, p: live i32, y: out f32[M, N])\n"
         "    over (i in M)",
         2},
        {"tile f[N](x: in f32[M, N], s: arg f32, k: arg i32, p: live i32, y: out f32[M, N]) over (i in M)", 1},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        char source[2048];
        mt_error error = {0};
        snprintf(source, sizeof source, "%s%s\n    equals { t = one(x, s); y = two(t, k, p) } { y[0] = 0 }\n", programs,
                 cases[k].rule);
        mt_tile *file = make_tiles(source);
        mt_graph *g = make_graph(NULL);
        const mt_tensor x = make_tensor(g, MT_INPUT, "x", "f32", 3, 16),
                        y = make_tensor(g, MT_OUTPUT, "y", "f32", 3, 16);
        mt_live p;
        assert_int_equal(mt_graph_live(g, "p", 0, 3, &p, &error), MT_OK);
        assert_int_equal(mt_graph_use(g, file, &error), MT_OK);
        const mt_tensor t = OWN_NODE(g, file, "one", MT_OPERAND("x", x), MT_OPERAND_FLOAT("s", 2));
        OWN_NODE(g, file, "two", MT_OPERAND("x", t), MT_OPERAND_INTEGER("k", 2), MT_OPERAND_LIVE("p", p),
                 MT_OPERAND("y", y));
        fuse_leaves(g, cases[k].nodes);
        mt_tile_close(file);
    }
    mt_error error = {0};
    mt_tile *file =
        make_tiles("tile a(x: in f32[M], y: out f32[M]) over (i in M) equals { y = b(x) } { y[i] = x[i] }\n"
                   "tile b(x: in f32[M], y: out f32[M]) over (i in M) equals { y = a(x) } { y[i] = x[i] }\n"
                   "tile c(x: in f32[M], y: out f32[M]) over (i in M) equals { y = c(x) } { y[i] = x[i] }\n");
    mt_graph *g = make_graph(NULL);
    const mt_tensor x = make_tensor(g, MT_INPUT, "x", "f32", 3, 0), y = make_tensor(g, MT_OUTPUT, "y", "f32", 3, 0);
    assert_int_equal(mt_graph_use(g, file, &error), MT_OK);
    OWN_NODE(g, file, "c", MT_OPERAND("x", OWN_NODE(g, file, "a", MT_OPERAND("x", x))), MT_OPERAND("y", y));
    fuse_leaves(g, 2);
    mt_tile_close(file);
}

/* ---- work ---- */

/* `layers` times a norm that `wide` projections read, an activation of one and a residual; one table, `r`, is read by
 * all of them, and one state is written by all. Returns what fusing them took. */
static size_t work_of(int layers, int wide, size_t *nodes) {
    mt_error error = {0};
    mt_graph *g = make_graph(NULL);
    const mt_tensor w = make_tensor(g, MT_WEIGHT, "w", "f32", 16, 16),
                    gain = make_tensor(g, MT_WEIGHT, "g", "f32", 16, 0),
                    ids = make_tensor(g, MT_INPUT, "ids", "f32", 3, 16),
                    last = make_tensor(g, MT_STATE, "last", "f32", 3, 16);
    const mt_tensor r = NODE(g, "relu", MT_OPERAND("x", ids));
    mt_tensor x = r;
    for (int layer = 0; layer < layers; layer++) {
        const mt_tensor t = NODE(g, "rmsnorm", MT_OPERAND("x", x), MT_OPERAND("g", gain), EPS);
        mt_tensor sum = r;
        for (int k = 0; k < wide; k++) {
            const mt_tensor y = NODE(g, "linear", MT_OPERAND("x", t), MT_OPERAND("w", w));
            sum = NODE(g, "silu_mul", MT_OPERAND("a", y), MT_OPERAND("b", sum));
        }
        NODE(g, "relu", MT_OPERAND("x", sum), MT_OPERAND("y", last));
        x = NODE(g, "add", MT_OPERAND("a", NODE(g, "linear", MT_OPERAND("x", sum), MT_OPERAND("w", w))),
                 MT_OPERAND("b", x));
    }
    assert_int_equal(graph_fuse(g, NULL, &error), MT_OK);
    *nodes = g->node_count;
    const size_t work = g->fuse_work;
    mt_graph_destroy(g);
    return work;
}

/* The pass looks at each node a bounded number of times, however deep the graph and however many read one tensor. */
static void work_is_linear(void **state) {
    (void)state;
    size_t nodes;
    const size_t some = work_of(500, 1, &nodes);
    const size_t deep = work_of(4000, 1, &nodes);
    assert_in_range(nodes, 1,
                    4 * 4000); /* the norms and the residuals are fused; the last state is written each time */
    assert_in_range(deep, 1, some * 8 + some / 4);
    const size_t few = work_of(1, 500, &nodes);
    const size_t many = work_of(1, 4000, &nodes);
    assert_in_range(nodes, 1, 2 * 4000 + 3);
    assert_in_range(many, 1, few * 8 + few / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_programs_equal_their_compositions),
        cmocka_unit_test(results_that_others_need_stay),
        cmocka_unit_test(reads_do_not_move_past_writes),
        cmocka_unit_test(parts_stay),
        cmocka_unit_test(own_rules_fuse),
        cmocka_unit_test(bad_rules_are_harmless),
        cmocka_unit_test(work_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
