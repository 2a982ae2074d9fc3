/* What the files of src/graph share. */
#ifndef GRAPH_GRAPH_INTERNAL_H
#define GRAPH_GRAPH_INTERNAL_H

#include <stdio.h>

#include "graph/graph.h"

#define GRAPH_MOST_ELEMENTS ((int64_t)1 << 48)
enum { GRAPH_MOST_LIVES = 1024 };

/* graph.c: these allocate from the graph's arena and run inside arena_protect. */
bool graph_tensor_valid(const mt_graph *g, mt_tensor t);
mt_tensor graph_add_view(mt_graph *g, graph_view v);
mt_tensor graph_add_tensor(mt_graph *g, graph_tensor t);
int64_t graph_count(int rank, const int64_t *extent); /* the product, or -1: an extent below 1, or too many */
/* The graph's own pointer for a type: the same one for the same type, whichever file or op it comes from. */
const tile_format *graph_type(mt_graph *g, const tile_format *f);

/* Gives the node one more constant; it has room for TILE_CONSTANTS. */
void graph_add_constant(arena *a, graph_node *n, graph_constant c);
/* The parameters of a file's program, with the graph's own types; the same array for the same program. NULL: there is
 * no such program. */
const tile_signature_param *graph_signature(mt_graph *g, const tile_file *file, const char *program, int *count);

/* lower.c: drops nodes whose results nothing reads. */
void graph_remove_dead(mt_graph *g);

/* infer.c: constants and instances of a node. */

/* Collects the constants that the node's operands and builder determine: fixed ones first, then what follows from
 * extents and types. Returns their number; MT_E_ARGUMENT where two operands disagree. */
mt_status graph_infer_constants(const mt_graph *g, const graph_node *n, tile_constant *out, size_t *count,
                                mt_error *error);
/* Writes to g->key what a node's op, its instance and what is foreseen of it depend on: all but names and where exactly
 * operands lie. What is found out about a node is kept by its key, so that a model's equal layers cost as much as one.
 */
void graph_node_key(mt_graph *g, const graph_node *n);
/* Appends to the key. */
void graph_key_add(mt_graph *g, const void *bytes, size_t length);
int64_t graph_key_get(const mt_graph *g, const map *m);
void graph_key_put(mt_graph *g, map *m, int64_t value);
/* Binds the node's program with the inferred constants and `more` (tile sizes), defaults for the rest. Equal ops are
 * bound once and live in the graph. */
mt_status graph_bind_node(mt_graph *g, const graph_node *n, const tile_constant *more, size_t more_count,
                          const tile_op **out, mt_error *error);
/* The same for an op that is good until the next call. */
mt_status graph_try_node(mt_graph *g, const graph_node *n, const tile_constant *more, size_t more_count,
                         const tile_op **out, mt_error *error);
/* The instance of a node whose operands are set (outputs that are not set yet have rank 0). */
void graph_node_instance(const mt_graph *g, const graph_node *n, const tile_op *op, tile_instance *out);
/* Sets free extents from the operands that are set, without checks; the others become -1. */
void graph_free_extents(tile_instance *i);

#endif
