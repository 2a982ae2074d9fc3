/* Building a graph: tensors, views, live values, and nodes that apply tile programs.
 *
 *     mt_graph *g;
 *     mt_tensor x, w, y;
 *     mt_graph_create(&g, &error);
 *     mt_graph_tensor(g, MT_INPUT, "x", "f32", 2, (int64_t[]){8, 64}, &x, &error);
 *     mt_graph_tensor(g, MT_WEIGHT, "w", "f32", 2, (int64_t[]){32, 64}, &w, &error);
 *     mt_graph_tensor(g, MT_OUTPUT, "y", "f32", 2, (int64_t[]){8, 32}, &y, &error);
 *     mt_graph_node(g, NULL, "linear", "my.linear",
 *                   (mt_operand[]){MT_OPERAND("x", x), MT_OPERAND("w", w), MT_OPERAND("y", y)}, 3, NULL, &error);
 *
 * Nodes mean what running them one after another, in the order of these calls, means. A graph is not thread-safe;
 * different graphs are independent. Handles (mt_tensor, mt_live) are valid for their graph's life. */
#ifndef MONOTILE_GRAPH_H
#define MONOTILE_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "monotile/error.h"
#include "monotile/tile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mt_graph mt_graph;
typedef int32_t mt_tensor; /* a tensor, or a view of one */
typedef int32_t mt_live;

/* Who owns a tensor's memory and when it is written. */
typedef enum mt_role {
    MT_INPUT,  /* the caller writes it before a run; programs only read it */
    MT_WEIGHT, /* bound once; only read. A machine may keep it in another layout */
    MT_STATE,  /* survives from run to run; read and written; starts as zeros unless the caller binds it */
    MT_OUTPUT, /* written by a run, read by the caller afterwards */
    MT_TEMP    /* exists inside a run; shares memory with others */
} mt_role;

typedef enum mt_placement {
    MT_PLACE_STATIC, /* instruction i belongs to processor i mod P, decided when compiling */
    MT_PLACE_QUEUE   /* the next free processor takes the next instruction */
} mt_placement;

MT_API mt_status mt_graph_create(mt_graph **out, mt_error *error);
MT_API void mt_graph_destroy(mt_graph *g); /* NULL is allowed */

/* Makes a file's declarations known to the graph: its formats can be the types of tensors and type constants, under
 * their names, which go before the library's; and what its programs say with `equals` is used to fuse nodes. (A node
 * names its program's file itself.) MT_E_ARGUMENT: another file declares another format of the same name. The file must
 * outlive the graph. */
MT_API mt_status mt_graph_use(mt_graph *g, const mt_tile *file, mt_error *error);

/* A tensor of 1 to 5 dimensions, row-major, outermost first; every extent at least 1. `type` is a storage type or
 * format ("f32", "bf16", "u4", "q4_1", or one of a file in use); a block format's last extent is a multiple of its
 * block. `name` must be unique; it is how memory is bound later; NULL is allowed for MT_TEMP. */
MT_API mt_status mt_graph_tensor(mt_graph *g, mt_role role, const char *name, const char *type, int rank,
                                 const int64_t *extent, mt_tensor *out, mt_error *error);
/* Declares that dimension `dimension` of the tensor has, at run time, the current value of `live` as its extent (0 ..
 * the extent given). Call it before the tensor is used or viewed. */
MT_API mt_status mt_graph_live_extent(mt_graph *g, mt_tensor t, int dimension, mt_live live, mt_error *error);

/* A live value: a 32-bit integer that the caller sets before a run. Ranges are checked when it is set. */
MT_API mt_status mt_graph_live(mt_graph *g, const char *name, int32_t least, int32_t most, mt_live *out,
                               mt_error *error);

/* Views. They share memory with `t` and may be viewed again. */
MT_API mt_status mt_graph_slice(mt_graph *g, mt_tensor t, int dimension, int64_t begin, int64_t end, mt_tensor *out,
                                mt_error *error);
MT_API mt_status mt_graph_select(mt_graph *g, mt_tensor t, int dimension, int64_t index, mt_tensor *out,
                                 mt_error *error);
MT_API mt_status mt_graph_transpose(mt_graph *g, mt_tensor t, int first, int second, mt_tensor *out, mt_error *error);
/* Splits or merges dimensions that lie together in memory (otherwise MT_E_ARGUMENT: copy first). */
MT_API mt_status mt_graph_reshape(mt_graph *g, mt_tensor t, int rank, const int64_t *extent, mt_tensor *out,
                                  mt_error *error);

/* What a node gives to a parameter or a constant of its tile program, by name. */
typedef struct mt_operand {
    const char *name;
    enum { MT_IS_TENSOR, MT_IS_LIVE, MT_IS_INTEGER, MT_IS_FLOAT, MT_IS_TYPE } kind;
    mt_tensor tensor; /* MT_IS_TENSOR: `in`, `out` or `inout` parameter */
    mt_live live;     /* MT_IS_LIVE: a `live` parameter */
    int64_t integer;  /* MT_IS_INTEGER: an integer constant or an `arg i32` */
    float number;     /* MT_IS_FLOAT: an `arg f32` */
    const char *type; /* MT_IS_TYPE: a type constant, named as in the program's file or as for mt_graph_tensor */
} mt_operand;
#define MT_OPERAND(n, t)         ((mt_operand){.name = (n), .kind = MT_IS_TENSOR, .tensor = (t)})
#define MT_OPERAND_LIVE(n, l)    ((mt_operand){.name = (n), .kind = MT_IS_LIVE, .live = (l)})
#define MT_OPERAND_INTEGER(n, v) ((mt_operand){.name = (n), .kind = MT_IS_INTEGER, .integer = (v)})
#define MT_OPERAND_FLOAT(n, v)   ((mt_operand){.name = (n), .kind = MT_IS_FLOAT, .number = (v)})
#define MT_OPERAND_TYPE(n, t)    ((mt_operand){.name = (n), .kind = MT_IS_TYPE, .type = (t)})

/* Appends a node that applies the tile program `program` of `file` (NULL: the instruction library). Every `in`,
 * `inout`, arg and live parameter must be given. An `out` parameter that is not given gets a new temporary of the shape
 * and type that follow from the others; `outputs`, when not NULL, receives the tensors of all `out` parameters in their
 * order. Constants that follow from operands need not be given; tile sizes are chosen when compiling. `name` is for
 * people and may be NULL. The file must outlive the graph. */
MT_API mt_status mt_graph_node(mt_graph *g, const mt_tile *file, const char *program, const char *name,
                               const mt_operand *operands, size_t count, mt_tensor *outputs, mt_error *error);

/* The graph as text, for people: `free` the string. NULL when memory is out. */
MT_API char *mt_graph_text(const mt_graph *g);

#ifdef __cplusplus
}
#endif
#endif
