/* What the tests of level 2's programs share: arrays, a graph of nodes on one machine, and a program's results on the
 * CPU against double and on the simulator under several schedules, whose bits must be the same. Include cmocka before.
 *
 * LEVEL2_ONLY: this test alone. LEVEL2_MACHINE: all programs run there alone, against double, ten times with the same
 * bits: "cuda:0", for one. */
#ifndef LEVEL2_SUPPORT_H
#define LEVEL2_SUPPORT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/sim/sim.h"
#include "monotile/monotile.h"
#include "temporary.h"
#include "unit_text.h"

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        mt_error error_ = {0};                                                                                         \
        const mt_status status_ = (call);                                                                              \
        if (status_ != MT_OK) fail_msg("%s: %s: %s", mt_status_name(status_), error_.where, error_.message);           \
    } while (0)

typedef struct array {
    const char *name, *type;
    mt_role role;
    int rank;
    int64_t extent[3];
    void *data;
    size_t count;
} array;

static uint32_t seed = 1;
static inline float random_number(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (1 << 23) - 1;
}
static inline uint16_t bf16_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline double value_of(const array *a, size_t i) {
    return tile_format_get(tile_format_find(a->type), a->data, (int64_t)i);
}
static inline size_t bytes_of(const array *a) {
    return (size_t)tile_format_bytes(tile_format_find(a->type), (int64_t)a->count);
}

static inline void make(array *a) {
    const tile_format *t = tile_format_find(a->type);
    a->count = 1;
    for (int d = 0; d < a->rank; d++) a->count *= (size_t)a->extent[d];
    a->data = aligned_alloc(64, (a->count * 4 + 127) / 64 * 64);
    for (size_t i = 0; i < a->count; i++)
        tile_format_set(t, a->data, (int64_t)i,
                        a->role == MT_OUTPUT ? NAN
                        : t->scalar.kind == TILE_INT
                            ? floor(random_number() * 5 + 4) /* row numbers, some out of range */
                            : random_number());
}

typedef struct node {
    const char *program;     /* of the file; '*' in front: of the library */
    const char *operands[8]; /* names of arrays, as "parameter=array"; else a number, an integer, a type */
} node;

/* A bug of the device code: the first `find` behind `near` in the unit that is simulated becomes `put`. */
typedef struct bug {
    const char *near, *find, *put;
} bug;
static const bug *seeded;

static inline void edit_unit(text *unit, void *context) {
    const bug *b = context;
    if (!unit_replace(unit, b->near, b->find, b->put)) fail_msg("the unit has no '%s' behind '%s'", b->find, b->near);
}

/* Builds, compiles and runs it twice; the outputs are in their arrays. The error is the caller's, if it wants it. */
static inline mt_status run(const char *machine_name, const mt_tile *file, const node *nodes, int node_count,
                            array *arrays, int array_count, mt_error *error) {
    mt_graph *g = NULL;
    mt_machine *m = NULL;
    mt_program *p = NULL;
    mt_session *s = NULL;
    mt_tensor tensors[16];
    mt_status status = mt_graph_create(&g, error);
    if (status == MT_OK) status = mt_graph_use(g, file, error);
    for (int i = 0; i < array_count && status == MT_OK; i++)
        status = mt_graph_tensor(g, arrays[i].role, arrays[i].name, arrays[i].type, arrays[i].rank, arrays[i].extent,
                                 &tensors[i], error);
    for (int n = 0; n < node_count && status == MT_OK; n++) {
        mt_operand operands[8];
        size_t count = 0;
        char names[8][32];
        for (; count < 8 && nodes[n].operands[count]; count++) {
            const char *o = nodes[n].operands[count], *value = strchr(o, '=') + 1;
            snprintf(names[count], sizeof names[0], "%.*s", (int)(value - o - 1), o);
            int i = 0;
            while (i < array_count && strcmp(arrays[i].name, value)) i++;
            operands[count] = i < array_count      ? MT_OPERAND(names[count], tensors[i])
                              : *value >= 'a'      ? MT_OPERAND_TYPE(names[count], value)
                              : strchr(value, '.') ? MT_OPERAND_FLOAT(names[count], (float)atof(value))
                                                   : MT_OPERAND_INTEGER(names[count], atoll(value));
        }
        const bool library = *nodes[n].program == '*';
        status =
            mt_graph_node(g, library ? NULL : file, nodes[n].program + library, NULL, operands, count, NULL, error);
    }
    if (status == MT_OK) status = mt_machine_open(&m, machine_name, error);
    if (status == MT_OK && seeded) {
        ((sim_machine *)m)->edit = edit_unit;
        ((sim_machine *)m)->edit_context = (void *)seeded;
    }
    if (status == MT_OK) status = mt_compile(g, &(mt_target){.processors = mt_machine_processors(m)}, &p, error);
    if (status == MT_OK) status = mt_session_create(&s, m, p, error);
    for (int i = 0; i < array_count && status == MT_OK; i++)
        if (arrays[i].role != MT_TEMP)
            status = arrays[i].role == MT_WEIGHT
                         ? mt_session_bind_weight(s, arrays[i].name, arrays[i].data, bytes_of(&arrays[i]), error)
                         : mt_session_bind(s, arrays[i].name, arrays[i].data, bytes_of(&arrays[i]), error);
    for (int turn = 0; turn < 2 && status == MT_OK; turn++) status = mt_session_run(s, error);
    mt_session_destroy(s);
    mt_program_destroy(p);
    mt_machine_close(m);
    mt_graph_destroy(g);
    return status;
}

static const char *const schedules[] = {"sim:1",
                                        "sim:2,random=1",
                                        "sim:3,random=2",
                                        "sim:1,adversarial=loader-late,seed=1",
                                        "sim:2,adversarial=loader-early,seed=2",
                                        "sim:1,adversarial=copies-late",
                                        "sim:1,adversarial=copies-reverse",
                                        "sim:1,adversarial=starve-warp,seed=3",
                                        "sim:1,adversarial=lanes-apart"};

/* The CPU against what the caller expects, in double; the simulator against the CPU, and itself bit by bit. */
static inline void check(const mt_tile *file, const node *nodes, int node_count, array *arrays, int array_count,
                         double (*expected)(const array *arrays, const int64_t *at), double tolerance,
                         size_t schedule_count) {
    array *y = &arrays[array_count - 1];
    for (int i = 0; i < array_count; i++) make(&arrays[i]);
    const char *only = getenv("LEVEL2_MACHINE");
    void *begin = malloc(bytes_of(y)); /* of a state; NaN of an output */
    memcpy(begin, y->data, bytes_of(y));
    OK(run(only ? only : "cpu:2", file, nodes, node_count, arrays, array_count, &error_));
    int64_t at[3] = {0};
    for (size_t i = 0; i < y->count && expected; i++) {
        const double want = expected(arrays, at), got = value_of(y, i);
        if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
            fail_msg("%s, element %zu: %g, expected %g", nodes[0].program, i, got, want);
        for (int d = y->rank - 1; d >= 0 && ++at[d] == y->extent[d]; d--) at[d] = 0;
    }
    void *cpu = malloc(bytes_of(y)), *first = malloc(bytes_of(y));
    memcpy(cpu, y->data, bytes_of(y));
    for (size_t k = 0; k < (only ? 3 : schedule_count); k++) {
        memcpy(y->data, begin, bytes_of(y));
        OK(run(only ? only : schedules[k], file, nodes, node_count, arrays, array_count, &error_));
        if (!k) memcpy(first, y->data, bytes_of(y));
        if (memcmp(first, y->data, bytes_of(y)))
            fail_msg("%s: other bits on %s", nodes[0].program, only ? only : schedules[k]);
    }
    for (size_t i = 0; i < y->count && schedule_count; i++) {
        array other = *y;
        other.data = cpu;
        if (!(fabs(value_of(y, i) - value_of(&other, i)) <= 2 * tolerance * (1 + fabs(value_of(y, i)))))
            fail_msg("%s, element %zu: simulator %g, CPU %g", nodes[0].program, i, value_of(y, i), value_of(&other, i));
    }
    free(begin);
    free(cpu);
    free(first);
    for (int i = 0; i < array_count; i++) free(arrays[i].data);
}

static inline double linear(const array *a, const int64_t *at) {
    double sum = 0;
    const size_t k = (size_t)a[0].extent[1];
    for (size_t i = 0; i < k; i++)
        sum += value_of(&a[0], (size_t)at[0] * k + i) * value_of(&a[1], (size_t)at[1] * k + i);
    return sum;
}

static inline mt_tile *open_examples(void) {
    mt_tile *file;
    OK(mt_tile_open(&file, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", NULL, &error_));
    return file;
}

static inline void replace(text *out, const char *source, const char *piece, const char *by) {
    text_string(out, source);
    assert_true(unit_replace(out, "", piece, by));
}

/* A text with a piece of it replaced. */
static inline mt_tile *edited(const char *source, const char *piece, const char *by) {
    text t = {0};
    mt_tile *file;
    replace(&t, source, piece, by);
    OK(mt_tile_parse(&file, "broken.tile", t.data, t.length, NULL, &error_));
    text_free(&t);
    return file;
}

/* examples/level2.tile with a piece of its text replaced. */
static inline mt_tile *broken(const char *piece, const char *by) {
    text whole = {0};
    OK(file_read(&whole, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", 1 << 20, &error_));
    mt_tile *file = edited(whole.data, piece, by);
    text_free(&whole);
    return file;
}

/* A copy that the consumers only watch, into one of several heads; a storer without a loader, of a tile of one
 * dimension. */
static const char storing[] =
    "tile into[D = 40](x: in f32[M, D], h: arg i32, y: inout f32[M, H, D]) over (m in ceil(M / 32)) {\n"
    " shared a[2]: f32[16, D] pages\n"
    " barrier full[2] (loader)\n"
    " role loader { for i in 2 { expect(full[i], 16*D*4); copy(a[i], x[m*32 + i*16 : +16, :], full[i]) } }\n"
    " role storer { for i in 2 { wait(full[i], 0); store(y[m*32 + i*16 : +16, h, :], a[i]); commit() }; wait_group(1) "
    "}\n"
    " role consumer {}\n"
    "}\n"
    "tile twice(x: in bf16[M, 16], y: out bf16[M, 16]) over (m in ceil(M / 8)) {\n"
    " shared c: bf16[8, 16]\n"
    " barrier made (consumer)\n"
    " role consumer { c = bf16(f32(x[m*8 : +8, :]) * 2.0); arrive(made) }\n"
    " role storer { wait(made, 0); store(y[m*8 : +8, :], c) }\n"
    "}\n"
    "tile sums(x: in f32[64, N], y: out f32[N]) over (n in ceil(N / 64)) {\n"
    " shared c: f32[64]\n"
    " barrier made (consumer)\n"
    " role consumer { c = reshape(sum(x[:, n*64 : +64], axis = 0), 64); arrive(made) }\n"
    " role storer { wait(made, 0); store(y[n*64 : +64], c) }\n"
    "}\n";

#endif
