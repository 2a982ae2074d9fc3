/* For tests of graphs: files of tile programs, graphs and tensors in one line each. What fails ends the test. Include
 * cmocka before. */
#ifndef GRAPH_MAKE_H
#define GRAPH_MAKE_H

#include <string.h>

#include "monotile/graph.h"

static inline mt_tile *make_tiles(const char *source) {
    mt_error error = {0};
    char *diagnostics;
    mt_tile *file;
    if (mt_tile_parse(&file, "own.tile", source, strlen(source), &diagnostics, &error) != MT_OK)
        fail_msg("%s", diagnostics ? diagnostics : error.message);
    return file;
}

/* `used` may be NULL. */
static inline mt_graph *make_graph(const mt_tile *used) {
    mt_error error = {0};
    mt_graph *g;
    assert_int_equal(mt_graph_create(&g, &error), MT_OK);
    if (used) assert_int_equal(mt_graph_use(g, used, &error), MT_OK);
    return g;
}

/* A tensor of one dimension when `columns` is 0. */
static inline mt_tensor make_tensor(mt_graph *g, mt_role role, const char *name, const char *type, int64_t rows,
                                    int64_t columns) {
    mt_error error = {0};
    mt_tensor out;
    const int64_t extent[] = {rows, columns};
    if (mt_graph_tensor(g, role, name, type, columns ? 2 : 1, extent, &out, &error) != MT_OK)
        fail_msg("%s: %s", error.where, error.message);
    return out;
}

/* Adds a node; returns its first output. */
static inline mt_tensor make_node(mt_graph *g, const mt_tile *file, const char *program, const mt_operand *operands,
                                  size_t count) {
    mt_error error = {0};
    mt_tensor out[16];
    if (mt_graph_node(g, file, program, NULL, operands, count, out, &error) != MT_OK)
        fail_msg("%s: %s: %s", program, error.where, error.message);
    return out[0];
}
#define OWN_NODE(g, file, program, ...)                                                                                \
    make_node((g), (file), (program), (mt_operand[]){__VA_ARGS__},                                                     \
              sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand))
#define NODE(g, program, ...) OWN_NODE(g, NULL, program, __VA_ARGS__)

#endif
