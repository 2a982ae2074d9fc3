/* libFuzzer target for .mono files. The input edits a program that was compiled here: every four bytes are a place and
 * the byte to put there. The hash is then put right, so that everything behind it is reached; what is accepted is read
 * as text. Built by `make fuzz`. */
#include <stdio.h>
#include <stdlib.h>

#include "monotile/program.h"
#include "program/program.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tiles[] =
    "tile load[R, C](x: in q4_0[R, C], y: out f32[R, C]) over (r in R)\n"
    "{ y[r : +1, :] = f32(x[r : +1, :]) }\n"
    "tile add[R, C, BC = 16](x: in f32[R, C], z: in f32[R, C], a: arg f32, y: out f32[R, C])\n"
    "    over (r in R, c in ceil(C / BC))\n"
    "{ y[r : +1, c*BC : +BC] = x[r : +1, c*BC : +BC] + z[r : +1, c*BC : +BC] * a }\n"
    "tile gather[R, C](a: in f32[R, C], b: in f32[R, C], c: in f32[R, C], d: in f32[R, C], e: in f32[R, C],\n"
    "     f: in f32[R, C], g: in f32[R, C], h: in f32[R, C], y: inout f32[1, C]) over (r in R)\n"
    "{ y[:, :] += a[r:+1, :] + b[r:+1, :] + c[r:+1, :] + d[r:+1, :] + e[r:+1, :] + f[r:+1, :] + g[r:+1, :] +\n"
    "  h[r:+1, :] }\n"
    "tile put[C](x: in f32[M, C], pos: live i32, y: out f32[S, C]) over (m in M)\n"
    "{ y[pos + m, :] = x[m, :] }\n";

static mt_program *seed;
static uint8_t *edited;

static void need(mt_status status, const mt_error *error) {
    if (status == MT_OK) return;
    fprintf(stderr, "%s: %s\n", error->where, error->message);
    abort();
}

static mt_tensor tensor(mt_graph *g, mt_role role, const char *name, const char *type, int64_t rows, int64_t columns) {
    mt_tensor t;
    mt_error error = {0};
    need(mt_graph_tensor(g, role, name, type, 2, (int64_t[]){rows, columns}, &t, &error), &error);
    return t;
}

#define NODE(program, ...)                                                                                             \
    need(mt_graph_node(g, file, program, program, (mt_operand[]){__VA_ARGS__},                                         \
                       sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand), NULL, &error),                        \
         &error)
#define T(name, t) MT_OPERAND(name, t)

/* A block format, a live position, an ordered sum, joins, slots that are used again, a view. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    mt_tile *file;
    mt_graph *g;
    mt_live pos;
    mt_error error = {0};
    need(mt_tile_parse(&file, "fuzz.tile", tiles, strlen(tiles), NULL, &error), &error);
    need(mt_graph_create(&g, &error), &error);
    need(mt_graph_live(g, "pos", 0, 3, &pos, &error), &error);
    const mt_tensor w = tensor(g, MT_WEIGHT, "w", "q4_0", 3, 32), cache = tensor(g, MT_STATE, "cache", "f32", 6, 32);
    const mt_tensor x = tensor(g, MT_INPUT, "x", "f32", 3, 32), sum = tensor(g, MT_OUTPUT, "sum", "f32", 1, 32);
    mt_tensor part[9], rows;
    for (int k = 0; k < 9; k++) part[k] = tensor(g, MT_TEMP, NULL, "f32", 3, 32);
    NODE("load", T("x", w), T("y", part[0]));
    for (int k = 1; k < 9; k++) NODE("add", T("x", part[0]), T("z", x), MT_OPERAND_FLOAT("a", 2), T("y", part[k]));
    NODE("gather", T("a", part[1]), T("b", part[2]), T("c", part[3]), T("d", part[4]), T("e", part[5]), T("f", part[6]),
         T("g", part[7]), T("h", part[8]), T("y", sum));
    need(mt_graph_slice(g, part[8], 0, 1, 3, &rows, &error), &error);
    NODE("put", T("x", rows), MT_OPERAND_LIVE("pos", pos), T("y", cache));
    need(mt_compile(g, &(mt_target){.processors = 2, .no_fusion = 1}, &seed, &error), &error);
    mt_graph_destroy(g);
    mt_tile_close(file);
    edited = malloc(seed->header->file_bytes);
    return edited ? 0 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const size_t bytes = seed->header->file_bytes;
    memcpy(edited, seed->header, bytes);
    for (size_t i = 0; i + 4 <= size && i < 64; i += 4)
        edited[(data[i] | (size_t)data[i + 1] << 8 | (size_t)data[i + 2] << 16) % bytes] = data[i + 3];
    program_header *h = (program_header *)edited;
    const hash128 hash = hash_bytes(edited + sizeof *h, bytes - sizeof *h);
    h->hash[0] = hash.low;
    h->hash[1] = hash.high;
    mt_program *p;
    mt_error error = {0};
    const mt_status status = program_open_memory(&p, edited, bytes, "fuzz", &error);
    if (status == MT_E_INTERNAL || (status != MT_OK && !error.message[0])) abort();
    if (status != MT_OK) return 0;
    char *out;
    if (mt_program_summary(p, &out, &error) == MT_OK) free(out);
    if (mt_program_disassemble(p, 0, SIZE_MAX, &out, &error) == MT_OK) free(out);
    if (mt_program_inspect(p, size % p->instructions_count, &out, &error) == MT_OK) free(out);
    program_free(p);
    return 0;
}
