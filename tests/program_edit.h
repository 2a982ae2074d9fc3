/* For tests of programs: small graphs, and compiled programs that can be edited in place. */
#ifndef PROGRAM_EDIT_H
#define PROGRAM_EDIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "monotile/program.h"
#include "program/program_internal.h"

static const char tiles[] =
    "tile fill[R, C, BR = 2, BC = 4](y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = f32[BR, BC](1) }\n"
    "tile copy[R, C, BR = 2, BC = 4](x: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = x[r*BR : +BR, c*BC : +BC] }\n"
    "tile scale[R, C, BR = 2](x: in f32[R, C], a: arg f32, y: out f32[R, C]) over (r in ceil(R / BR))\n"
    "{ y[r*BR : +BR, :] = x[r*BR : +BR, :] * a }\n"
    "tile add[R, C, BR = 2, BC = 4](x: in f32[R, C], z: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR), c in "
    "ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = x[r*BR : +BR, c*BC : +BC] + z[r*BR : +BR, c*BC : +BC] }\n"
    "tile total[R, C, M, N, BR = 2, BC = 4](x: in f32[M, N], y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / "
    "BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = f32[BR, BC](1) * sum(sum(x, 1), 0) }\n"
    "tile stencil[R, C, BR = 2](x: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR))\n"
    "{ y[r*BR : +BR, :] = x[r*BR - 1 : +BR, :] + x[r*BR + 1 : +BR, :] }\n"
    "tile split[R, K, BR = 2, BK = 2](x: in f32[R, K], y: inout f32[R, 1]) over (r in ceil(R / BR), k in ceil(K / "
    "BK))\n"
    "{ y[r*BR : +BR, :] += sum(x[r*BR : +BR, k*BK : +BK], 1) }\n"
    "tile put[C](x: in f32[M, C], pos: live i32, y: out f32[S, C]) over (m in M)\n"
    "{ y[pos + m, :] = x[m, :] }\n"
    "tile take[C](x: in f32[S, C], pos: live i32, y: out f32[M, C]) over (m in M)\n"
    "{ y[m, :] = x[pos + m, :] }\n"
    "tile nibbles[R, C, BR = 1, BC = 3](x: in f32[R, C], y: out u4[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = u4(i32(x[r*BR : +BR, c*BC : +BC])) }\n";

static mt_tile *file;

static void open_tiles(void) {
    char *diagnostics = NULL;
    mt_error error = {0};
    if (mt_tile_parse(&file, "test.tile", tiles, strlen(tiles), &diagnostics, &error) != MT_OK)
        fail_msg("%s", diagnostics);
    free(diagnostics);
}

static void check_status(mt_status status, const mt_error *error) {
    if (status != MT_OK) fail_msg("%s: %s: %s", mt_status_name(status), error->where, error->message);
}

static uint64_t random_state;
static uint32_t draw(uint32_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

/* ---- graphs ---- */

static mt_tensor tensor(mt_graph *g, mt_role role, const char *name, const char *type, int64_t rows, int64_t columns) {
    mt_tensor t;
    mt_error error = {0};
    check_status(mt_graph_tensor(g, role, name, type, 2, (int64_t[]){rows, columns}, &t, &error), &error);
    return t;
}

static void node(mt_graph *g, const char *program, const char *name, const mt_operand *operands, size_t count) {
    mt_error error = {0};
    check_status(mt_graph_node(g, file, program, name, operands, count, NULL, &error), &error);
}
#define NODE(g, program, name, ...)                                                                                    \
    node(g, program, name, (mt_operand[]){__VA_ARGS__}, sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand))

static mt_program *compile(mt_graph *g, int processors, mt_placement placement) {
    mt_program *p;
    mt_error error = {0};
    check_status(
        mt_compile(g, &(mt_target){.processors = processors, .placement = placement, .no_fusion = 1}, &p, &error),
        &error);
    mt_graph_destroy(g);
    return p;
}

/* ---- copies that can be edited ---- */

typedef struct copy {
    uint8_t *bytes;
    size_t size;
    program_header *header;
    mt_program *p; /* into bytes: tables may be written through the casts below */
} copy;
#define TABLE(c, name, type) ((type *)(c)->p->name)

static copy copy_of(const mt_program *p) {
    copy c = {.size = p->header->file_bytes};
    mt_error error = {0};
    c.bytes = malloc(c.size);
    memcpy(c.bytes, p->header, c.size);
    c.header = (program_header *)c.bytes;
    check_status(program_decode(&c.p, c.bytes, c.size, "copy", &error), &error);
    return c;
}

static void copy_free(copy *c) {
    program_free(c->p);
    free(c->bytes);
}

static void remove_wait(program_instruction *n, int k) {
    n->wait_count--;
    for (int j = k; j < n->wait_count; j++) n->wait[j] = n->wait[j + 1], n->target[j] = n->target[j + 1];
    n->wait[n->wait_count] = n->target[n->wait_count] = 0;
}

static void remove_arrival(program_instruction *n, int k) {
    n->arrive_count--;
    for (int j = k; j < n->arrive_count; j++) n->arrive[j] = n->arrive[j + 1];
    n->arrive[n->arrive_count] = 0;
}

#endif
