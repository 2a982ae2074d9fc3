/* Graphs of the library's ops for the tests of machines that run lowered ops (test_sim.c, test_cuda.c): one table of
 * ops, whose nodes stand alone, at the sizes of a variant; their tensors, filled at random. Include
 * cmocka before. */
#ifndef DEVICE_OPS_H
#define DEVICE_OPS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "monotile/machine.h"
#include "ok.h"
#include "tile/tile.h"

/* ---- graphs of ops ---- */

/* A node: "program; constants; tensors". Tensors are "name type extents", outputs begin with '>', weights with '*'.
 * Extents are numbers or letters; W stands for a weight's type, P for that of products. */
static const char *const ops[] = {
    "linear; BM=4 BN=16; x f32 M K, *w W N K, >y f32 M N",
    "linear_add; BM=4 BN=16; x f32 M K, *w W N K, r f32 M N, >y f32 M N",
    "linear_bias; BM=4 BN=16; x f32 M K, *w W N K, b f32 N, >y f32 M N",
    "linear_bias_relu; BM=4 BN=16; x f32 M K, *w W N K, b f32 N, >y f32 M N",
    "norm_linear; BM=4 BN=16; x f32 M K, g f32 K, *w W N K, >y f32 M N",
    "norm_linear_bias; BM=4 BN=16; x f32 M K, g f32 K, *w W N K, b f32 N, >y f32 M N",
    "swiglu; BM=4 BN=16; x f32 M K, *gate W N K, *up W N K, >y f32 M N",
    "norm_swiglu; BM=4 BN=16; x f32 M K, *g f32 K, *gate W N K, *up W N K, >y f32 M N",
    "norm_linear_rope; BM=4; x f32 M K, g f32 K, *w W Q K, angles f32 M R 2, >y f32 M H D",
    "norm_linear_append; BM=4; x f32 M K, g f32 K, *w W Q K, >cache f16 S H D",
    "norm_linear_rope_append; BM=4; x f32 M K, g f32 K, *w W Q K, angles f32 M R 2, >cache f16 S H D",
    "norm_linear_norm_rope; BM=4; x f32 M K, g f32 K, *w W Q K, hg f32 D, angles f32 M R 2, >y f32 M H D",
    "norm_linear_norm_rope_append; BM=4; x f32 M K, g f32 K, *w W Q K, hg f32 D, angles f32 M R 2, >cache f16 S H D",
    "matmul; BM=4 BN=16 BK=64; x f32 M K, *w V K N, >y f32 M N",
    "embed; ROWS=4; ids i32 M, *w W N K, >y f32 M K",
    "rmsnorm; ROWS=4; x f32 M K, g f32 K, >y f32 M K",
    "head_norm; ROWS=4; x f32 M H D, g f32 D, >y f32 M H D",
    "head_norm_rope; ROWS=4; x f32 M H D, g f32 D, angles f32 M R 2, >y f32 M H D",
    "head_norm_rope_append; ROWS=4; x f32 M H D, g f32 D, angles f32 M R 2, >cache f16 S H D",
    "rope; ROWS=4; x f32 M H D, angles f32 M R 2, >y f32 M H D",
    "rope_half; ROWS=4; x f32 M H D, angles f32 M R 2, >y f32 M H D",
    "rope_table; ROWS=4; freq f32 R, >angles f32 M R 2",
    "append; ROWS=4; x f32 M H D, >cache f16 S H D",
    "add; ROWS=4; a f32 M N, b f32 M N, >y f32 M N",
    "bias; ROWS=4; x f32 M N, b f32 N, >y f32 M N",
    "relu; ROWS=4; x f32 M N, >y f32 M N",
    "silu_mul; ROWS=4; a f32 M N, b f32 M N, >y f32 M N",
    "last_row; ; x f32 M N, >y f32 1 N",
    "attention; BM=4 BS=16; q f32 M A D, kc f16 S H D, vc f16 S H D, >y f32 M A D",
    ("attention_part; BS=64; q f32 M A D, kc f16 S H D, vc f16 S H D, >part f32 M C A D, "
     ">level f32 M C A"),
    "attention_merge; BS=64; part f32 M C A D, level f32 M C A, >y f32 M A D",
    ("merge_linear_add; BS=64 BN=16; part f32 M C A D, level f32 M C A, *w W N B, r f32 M N, "
     ">y f32 M N"),
    "linear_part; PARTS=2 BM=4 BN=16; x f32 M K, *w W N K, >part f32 U M N",
    "sum_parts; ROWS=4; part f32 U M N, >y f32 M N",
    "add_parts; ROWS=4; part f32 U M N, r f32 M N, >y f32 M N",
};

/* Products of many rows, whose left operand lies in their type. */
static __attribute__((unused)) const char *const wide_ops[] = {
    "linear; BM=64 BN=64; x P M K, *w W N K, >y f32 M N",
    "linear_add; BM=64 BN=64; x P M K, *w W N K, r f32 M N, >y f32 M N",
    "swiglu; BM=64 BN=64; x P M K, *gate W N K, *up W N K, >y f32 M N",
    "linear_part; PARTS=2 BM=64 BN=64; x P M K, *w W N K, >part f32 U M N",
};

typedef struct variant {
    const char *weight;
    int64_t m, n, k, h, d;
    int bm, bn;          /* in the place of BM and ROWS, and of BN; 0: as in the table; -1: as the compiler chooses */
    const char *product; /* what products are rounded to; NULL: bf16 */
} variant;
#define VARIANT(weight_, m_, n_, k_, h_, d_)                                                                           \
    { .weight = weight_, .m = m_, .n = n_, .k = k_, .h = h_, .d = d_ }
enum { POSITION = 33, TENSORS = 4096 };

/* Positions of a cache: those before, the new ones, and some that nobody writes. */
static int64_t cache_extent(const variant *v) { return max_i64(70, POSITION + v->m + 5); }

static int64_t extent(const variant *v, const char *word) {
    switch (*word) {
    case 'M':
        return v->m;
    case 'N':
        return v->n;
    case 'K':
        return v->k;
    case 'H':
        return v->h;
    case 'A':
        return v->h * 2;
    case 'B':
        return v->h * 2 * v->d;
    case 'D':
        return v->d;
    case 'R':
        return v->d / 2;
    case 'Q':
        return v->h * v->d;
    case 'S':
        return cache_extent(v);
    case 'C':
        return ceil_div(cache_extent(v), 64);
    case 'U': /* parts of K, two or one, of a multiple of 256 columns */
        return ceil_div(v->k, ceil_div(v->k, 512) * 256);
    default:
        return strtoll(word, NULL, 10);
    }
}

typedef struct bound {
    char name[64];
    const char *type;
    mt_role role;
    size_t count, bytes;
    void *data;   /* of inputs and weights */
    void *result; /* of outputs: the first machine's */
} bound;

static bound tensors[TENSORS];
static int tensor_count;
static uint32_t op_random = 1;

static float random_float(void) {
    op_random = op_random * 1664525u + 1013904223u;
    return (float)(op_random >> 8) / (1 << 23) - 1;
}

/* Numbers in -1 .. 1, row numbers below `rows`. In blocks any codes; scales are small numbers of both signs,
 * zero points among the codes. */
static void fill(bound *b, int64_t rows) {
    const tile_format *f = tile_format_find(b->type);
    uint8_t *bytes = b->data = aligned_alloc(64, align_up(b->bytes + 1, 64));
    assert_non_null(bytes);
    for (size_t i = 0; i < b->bytes; i++) bytes[i] = (uint8_t)(random_float() * 128 + 128);
    if (!tile_format_is_block(f)) {
        for (size_t i = 0; i < b->count; i++)
            tile_format_set(f, bytes, (int64_t)i,
                            f->scalar.kind == TILE_FLOAT ? (double)random_float()
                                                         : floor((double)(random_float() + 1) * 0.5 * (double)rows));
        return;
    }
    const size_t block = (size_t)f->bits / 8;
    for (size_t at = 0; at + block <= b->bytes; at += block)
        for (int i = 0; i < f->body->field_count; i++) {
            const tile_field *field = &f->body->fields[i];
            const tile_scalar t = field->type->scalar;
            if (t.kind == TILE_UINT && t.bits == 8 && field->count == 1)
                bytes[at + (size_t)field->bit_offset / 8] %= 16;
            if (t.kind != TILE_FLOAT || t.bits < 8) continue;
            for (int e = 0; e < field->count; e++) {
                const double scale = t.is_unsigned ? exp2(floor((double)random_float() * 3) - 4)
                                                   : (double)(random_float() - 0.2f) * (t.bits == 8 ? 0.3 : 0.03);
                const uint64_t code = tile_scalar_encode(t, scale);
                memcpy(bytes + at + (size_t)(field->bit_offset + e * t.bits) / 8, &code, (size_t)t.bits / 8);
            }
        }
}

/* Adds a node and its tensors. `fed`: inputs of f32 come from a node in front, as twice the input: they are
 * temporaries, and so stamped data where they can be. */
static void add_node(mt_graph *g, const char *spec, const variant *v, mt_live pos, bool fed) {
    mt_operand operands[32];
    char words[64][32];
    int count = 0, used = 0;
    char line[400], *save, *save2;
    snprintf(line, sizeof line, "%s", spec);
    char *program = strtok_r(line, ";", &save), *constants = strtok_r(NULL, ";", &save),
         *list = strtok_r(NULL, ";", &save);
    for (char *c = strtok_r(constants, " ", &save2); c; c = strtok_r(NULL, " ", &save2)) {
        char *equals = strchr(c, '=');
        snprintf(words[used], sizeof words[0], "%.*s", (int)(equals - c), c);
        const bool rows = !strcmp(words[used], "BM") || !strcmp(words[used], "ROWS"),
                   columns = !strcmp(words[used], "BN");
        const int given = rows ? v->bm : columns ? v->bn : 0;
        if (given >= 0)
            operands[count++] = MT_OPERAND_INTEGER(words[used++], given ? given : strtoll(equals + 1, NULL, 10));
    }
    const bool product = strchr(list, '*') && strncmp(program, "embed", 5);
    if (product) operands[count++] = MT_OPERAND_TYPE("P", v->product ? v->product : "bf16");
    if (strstr(program, "norm"))
        operands[count++] = ((mt_operand){.name = "eps", .kind = MT_IS_FLOAT, .number = 1e-5f});
    if (!strcmp(program, "attention") || !strcmp(program, "attention_part"))
        operands[count++] = ((mt_operand){.name = "scale", .kind = MT_IS_FLOAT, .number = 0.2f});
    if (strstr(program, "append") || strstr(program, "attention") || strstr(program, "merge") ||
        !strcmp(program, "rope_table"))
        operands[count++] = MT_OPERAND_LIVE("pos", pos);
    for (char *t = strtok_r(list, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        bound *b = &tensors[tensor_count];
        char *name = strtok_r(t, " ", &save2), *type = strtok_r(NULL, " ", &save2);
        int64_t extents[5];
        int rank = 0;
        for (char *e; (e = strtok_r(NULL, " ", &save2));) extents[rank++] = extent(v, e);
        b->role = *name == '>' ? MT_OUTPUT : *name == '*' ? MT_WEIGHT : MT_INPUT;
        name += b->role != MT_INPUT;
        b->type = !strcmp(type, "W")     ? v->weight
                  : !strcmp(type, "V")   ? (tile_format_is_block(tile_format_find(v->weight)) ? "f32" : v->weight)
                  : !strcmp(type, "P")   ? (v->product ? v->product : "bf16")
                  : !strcmp(type, "f16") ? "f16"
                  : !strcmp(type, "i32") ? "i32"
                                         : "f32";
        snprintf(b->name, sizeof b->name, "v%d", tensor_count);
        if (extents[rank - 1] % tile_format_find(b->type)->block) b->type = "f32";
        const tile_format *f = tile_format_find(b->type);
        b->count = 1;
        for (int d = 0; d < rank; d++) b->count *= (size_t)extents[d];
        b->bytes = b->count / (size_t)f->block * (size_t)f->bits / 8;
        mt_tensor tensor;
        OK(mt_graph_tensor(g, b->role, b->name, b->type, rank, extents, &tensor, &error));
        snprintf(words[used], sizeof words[0], "%s", name);
        if (fed && b->role == MT_INPUT && rank > 1 && !strcmp(b->type, "f32")) {
            const int64_t rows = (int64_t)b->count / extents[rank - 1];
            OK(mt_graph_reshape(g, tensor, 2, (int64_t[]){rows, extents[rank - 1]}, &tensor, &error));
            OK(mt_graph_node(g, NULL, "add", "feed", (mt_operand[]){MT_OPERAND("a", tensor), MT_OPERAND("b", tensor)},
                             2, &tensor, &error));
            OK(mt_graph_reshape(g, tensor, rank, extents, &tensor, &error));
        }
        operands[count++] = MT_OPERAND(words[used++], tensor);
        if (b->role != MT_OUTPUT) fill(b, v->n);
        tensor_count++;
    }
    mt_error error = {0};
    const mt_status status = mt_graph_node(g, NULL, program, program, operands, (size_t)count, NULL, &error);
    if (status != MT_OK) fail_msg("%s: %s: %s", program, error.where, error.message);
}

/* A matrix, or with no columns a vector. */
static mt_tensor add_matrix(mt_graph *g, mt_role role, const char *type, const char *name, int64_t rows,
                            int64_t columns) {
    bound *b = &tensors[tensor_count++];
    mt_tensor t;
    OK(mt_graph_tensor(g, role, name, type, columns ? 2 : 1, (int64_t[]){rows, columns}, &t, &error));
    *b = (bound){.type = type, .role = role, .count = (size_t)(rows * (columns ? columns : 1))};
    snprintf(b->name, sizeof b->name, "%s", name);
    b->bytes = b->count * (strcmp(type, "f32") ? 2 : 4);
    if (role != MT_OUTPUT) fill(b, 1);
    return t;
}

/* Two layers, for two SMs: what the first writes, all instructions of the second read. Nine pages an instruction. What
 * is handed over is stamped data, or, `released`, an output of the program, which cannot be. */
static __attribute__((unused)) mt_graph *two_layers(bool released) {
    mt_graph *g;
    mt_tensor t;
    OK(mt_graph_create(&g, &error));
    const mt_tensor x = add_matrix(g, MT_INPUT, "f32", "x", 2, 1100);
    const mt_tensor g1 = add_matrix(g, MT_INPUT, "f32", "g", 1100, 0);
    const mt_tensor w1 = add_matrix(g, MT_WEIGHT, "bf16", "w1", 72, 1100);
    const mt_tensor w2 = add_matrix(g, MT_WEIGHT, "bf16", "w2", 40, 72);
    const mt_tensor y = add_matrix(g, MT_OUTPUT, "f32", "y", 2, 40);
    mt_operand first[] = {MT_OPERAND("x", x),           MT_OPERAND("g", g1),
                          MT_OPERAND("w", w1),          MT_OPERAND_FLOAT("eps", 1e-5f),
                          MT_OPERAND_TYPE("P", "bf16"), MT_OPERAND_INTEGER("BM", 4),
                          MT_OPERAND_INTEGER("BN", 24), {0}};
    if (released) {
        t = add_matrix(g, MT_OUTPUT, "f32", "t", 2, 72);
        first[7] = (mt_operand)MT_OPERAND("y", t);
    }
    OK(mt_graph_node(g, NULL, "norm_linear", "first", first, 7 + released, released ? NULL : &t, &error));
    OK(mt_graph_node(g, NULL, "linear", "second",
                     (mt_operand[]){MT_OPERAND("x", t), MT_OPERAND("w", w2), MT_OPERAND("y", y),
                                    MT_OPERAND_TYPE("P", "bf16"), MT_OPERAND_INTEGER("BM", 4),
                                    MT_OPERAND_INTEGER("BN", 8)},
                     6, NULL, &error));
    return g;
}

static void forget_tensors(void) {
    for (int i = 0; i < tensor_count; i++) {
        free(tensors[i].data);
        free(tensors[i].result);
    }
    memset(tensors, 0, sizeof tensors);
    tensor_count = 0;
}

static void bind_all(mt_session *s) {
    for (int i = 0; i < tensor_count; i++) {
        const bound *b = &tensors[i];
        if (b->role == MT_WEIGHT)
            OK(mt_session_bind_weight(s, b->name, b->data, b->bytes, &error));
        else if (b->role == MT_INPUT)
            OK(mt_session_bind(s, b->name, b->data, b->bytes, &error));
        else {
            void *memory;
            OK(mt_session_memory(s, b->name, &memory, NULL, &error));
            memset(memory, 0xff, b->bytes);
        }
    }
    mt_error ignored;
    (void)mt_session_live(s, "pos", POSITION, &ignored); /* not every graph has it */
}

static double value_of(const bound *b, const void *data, size_t i) {
    return tile_format_get(tile_format_find(b->type), data, (int64_t)i);
}

/* Compares with the results that are kept; keeps them when there are none. Tolerance 0: the same bits. */
static __attribute__((unused)) void keep_or_compare(mt_session *s, double tolerance, const char *what) {
    for (int i = 0; i < tensor_count; i++) {
        bound *b = &tensors[i];
        void *memory;
        if (b->role != MT_OUTPUT) continue;
        OK(mt_session_memory(s, b->name, &memory, NULL, &error));
        if (!b->result) {
            b->result = malloc(b->bytes);
            assert_non_null(b->result);
            memcpy(b->result, memory, b->bytes);
        } else if (tolerance == 0) {
            if (memcmp(b->result, memory, b->bytes)) fail_msg("%s: %s (tensor %d) has other bits", what, b->name, i);
        } else {
            double apart = 0, size = 1e-12;
            for (size_t e = 0; e < b->count; e++) {
                const double x = value_of(b, b->result, e), y = value_of(b, memory, e);
                if (isnan(x) && isnan(y)) continue; /* never written */
                apart += (x - y) * (x - y);
                size += y * y;
            }
            if (!(sqrt(apart / size) <= tolerance))
                fail_msg("%s: %s (tensor %d) is %g away from the CPU's", what, b->name, i, sqrt(apart / size));
        }
    }
}

/* The outputs' memories as they are to begin: codes that are NaN. */
static __attribute__((unused)) void poison(mt_session *s) {
    for (int i = 0; i < tensor_count; i++)
        if (tensors[i].role == MT_OUTPUT) {
            void *memory;
            OK(mt_session_memory(s, tensors[i].name, &memory, NULL, &error));
            memset(memory, 0xff, tensors[i].bytes);
        }
}

#endif
