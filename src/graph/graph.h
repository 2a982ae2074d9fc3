/* The graph: tensors, views of them, and nodes that apply tile programs, in program order. A node reads and writes
 * memory as if the nodes ran one after another; the schedule finds from boxes what may run at the same time.
 *
 *   build (mt_graph_*) ──► passes: fuse, choose ──► lowered graph: every node has an op and a checked instance
 *
 * Views never copy: a view is a tensor, an absolute range on it, and how the view's dimensions walk it. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "monotile/graph.h"
#include "tile/tile.h"

typedef struct graph_tensor {
    const char *name;        /* unique; "t12" for unnamed temporaries */
    const tile_format *type; /* from graph_type, as all types in a graph: equal ones are one pointer */
    int rank;
    int64_t extent[TILE_RANK]; /* the room; row-major, packed */
    int live[TILE_RANK];       /* index of the live value that is the current extent (extent is its maximum), or -1 */
    mt_role role;
    int64_t bytes;
} graph_tensor;

/* A view: element (i0, i1, ...) is the tensor's element offset + sum(i * stride). */
typedef struct graph_view {
    int tensor;
    int rank;
    int64_t extent[TILE_RANK];
    int64_t stride[TILE_RANK];
    int64_t offset;
    int live[TILE_RANK]; /* as in graph_tensor */
    /* The tensor's dimension that this one walks with step 1, or -1 when it is none of them alone. */
    int base[TILE_RANK];
    /* The absolute half-open range on the tensor, one interval per tensor dimension. */
    int64_t low[TILE_RANK], high[TILE_RANK];
} graph_view;

typedef struct graph_live {
    const char *name;
    int32_t least, most;
} graph_live;

typedef struct graph_constant { /* a constant that the builder of the node fixed */
    const char *name;
    int64_t value;
    const tile_format *type; /* set: a type constant */
} graph_constant;

typedef struct graph_node {
    const char *name;                /* for people: "linear.17" or what the builder gave ("blk.3.ffn_down") */
    const tile_file *file;           /* where `program` is found */
    const char *program;             /* the tile program's name */
    const graph_constant *constants; /* graph_add_constant */
    int constant_count;
    const tile_signature_param *signature; /* of the program; the graph's own (graph_signature) */
    int param_count;
    int operand[TILE_PARAMS]; /* by parameter: tensors index graph->views, lives graph->lives; args have -1 */
    union {
        int64_t i;
        float f;
    } arg[TILE_PARAMS]; /* by parameter */
    /* set by lowering (graph_lower); nodes that are equal but for where their operands lie have one instance */
    const tile_op *op;
    const tile_instance *instance;
    int64_t grid[TILE_AXES], instruction_count;
} graph_node;

struct mt_graph {
    arena *memory;
    graph_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    graph_view *views;
    size_t view_count, view_capacity; /* an mt_tensor is an index here */
    graph_live *lives;
    size_t live_count, live_capacity;
    graph_node *nodes;
    size_t node_count, node_capacity;
    const tile_file **files; /* in use */
    size_t file_count, file_capacity;
    const tile_format **formats; /* the block formats in the graph; equal ones once */
    size_t format_count, format_capacity;
    map tensor_names, live_names;
    int unnamed;    /* counter for names */
    map signatures; /* by file and program: index into */
    struct graph_signature {
        tile_signature_param *params;
        int count;
    } * signature_list;
    size_t signature_count, signature_capacity;
    map bound, bound_nodes; /* ops by program and constants, and by a node's key and constants: index into */
    const tile_op **ops;
    size_t op_count, op_capacity;
    arena *trial; /* where ops live that are bound only to be looked at (graph_try_node) */
    map foreseen; /* tile sizes by a node's key, with what is foreseen of each (choose.c): index into */
    struct graph_choices *choices;
    size_t choices_count, choices_capacity;
    map instruction_counts; /* by a node's key: the most instructions that tile sizes give it (split.c) */
    map in_parts;           /* by a node's key: what graph_is_wide_in_parts said */
    char *key;              /* scratch of graph_node_key */
    size_t key_length, key_capacity;
    size_t fuse_work; /* what graph_fuse looked at, one by one: tests hold it linear in the nodes */
};

/* What a machine's processor can do, in round numbers: only ratios matter. */
typedef struct graph_costs {
    const char *machine;
    const char *architectures; /* of GPUs: their numbers; "": all others. NULL: no GPU */
    int major, shared_bytes;   /* of GPUs: see role_chip_of. 0: everything fits that is chosen */
    double bytes_per_second;   /* of one processor, streaming */
    double flops_per_second;   /* of one processor, decoding weights as it goes */
    double start_seconds;      /* waits, arrivals, prologue of an instruction */
    double hand_off_seconds;   /* until all that wait for a node's instructions are told; beside start_seconds */
    int64_t most_dot_rows, most_dot_columns; /* larger dots have no fast code there, but for wide ones (tile/role.h): */
    double wide_bytes_per_second, wide_flops_per_second; /* of one processor; 0: it has none */
    double decoded_bytes_per_second;                     /* of weights in blocks that are decoded for wide products */
    bool splits; /* nodes with too few instructions are split: results then depend on the processors' number */
} graph_costs;
/* choose.c: by a machine's name, "cuda:0" or "cuda", and a GPU's architecture (NULL: sm_90a); NULL when there is none.
 */
const graph_costs *graph_costs_of(const char *machine, const char *architecture);

/* The target of a compilation. */
typedef struct graph_target {
    const struct graph_costs *costs;
    int processors; /* workers or SMs the program is laid out for; >= 1 */
    mt_placement placement;
} graph_target;

/* lower.c: a copy whose nodes, views and tensors may be changed; strings and files stay the original's, which must live
 * on. */
mt_status graph_clone(const mt_graph *g, mt_graph **out, mt_error *error);

/* view.c ---------------------------------------------------------------------------------------------------------- */
/* The box of an operand (in its view's coordinates, absolute) as a range on the base tensor. low and high have one
 * interval per dimension of the tensor. Conservative where the view mixes dimensions. */
void graph_view_box(const mt_graph *g, const graph_view *v, const tile_interval *box, int64_t *low, int64_t *high);
/* True when the view covers its tensor in row-major order, from offset 0. */
bool graph_view_is_whole(const mt_graph *g, const graph_view *v);

/* choose.c: what would become of the node on the target, with the tile sizes that would be chosen, on so many of its
 * processors. Allocates from the graph's arena, and remembers: a graph has one target. False: no tile sizes fit. */
typedef struct graph_forecast {
    double seconds;
    bool wide;   /* its products */
    bool steady; /* what its instructions have to do does not depend on live values: `seconds` holds for all of them */
} graph_forecast;
bool graph_foresee(mt_graph *g, const graph_node *n, const graph_target *target, int processors, graph_forecast *out);
/* The same of several nodes, one after another, each further one with a hand-off. False: no tile sizes fit one. */
typedef struct graph_stage {
    const graph_node *node;
    int processors;
} graph_stage;
bool graph_foresee_stages(mt_graph *g, const graph_stage *stages, size_t count, const graph_target *target,
                          graph_forecast *out);
bool graph_is_wide(mt_graph *g, const graph_node *n, const graph_target *target, int processors);
/* The processors that the n-th node has while its neighbours that read the same run beside it. */
int graph_processors_of(const mt_graph *g, size_t n, const graph_target *target);
double graph_weight_bytes(const mt_graph *g, const graph_node *n);

/* fuse.c: requires a checked graph; ensures an equivalent one with fewer nodes. Rewrites by the `equals` rules of the
 * library and of the files in use: where a fused program says which composition it stands for and that composition is
 * in the graph, the nodes become one. Wide products stay wide, and what would have too few instructions for the target
 * stays apart where that is estimated to take less; target NULL: all that matches becomes one. */
mt_status graph_fuse(mt_graph *g, const graph_target *target, mt_error *error);

/* narrow.c: requires a checked graph; ensures an equivalent one, to the bit: temporaries that all readers round to a
 * 16-bit type lie in that type where this makes a product wide. */
mt_status graph_narrow(mt_graph *g, const graph_target *target, mt_error *error);
/* Whether some product of the graph, which stays as it is, would be wide on the target. */
bool graph_gets_wide(const mt_graph *g, const graph_target *target);

/* split.c: whatever its tiles, the node leaves at least half of the target's processors idle. */
bool graph_has_few(mt_graph *g, const graph_node *n, const graph_target *target);
/* Whether graph_split would take the n-th node apart into wide products. Inside arena_protect, as all that allocates.
 */
bool graph_is_wide_in_parts(mt_graph *g, size_t n, const graph_target *target);
/* Requires a checked graph; ensures an equivalent one. Nodes with too few instructions for the target, and
 * wide ones with too few tiles, become what their program `splits` into; fuse again behind it. */
mt_status graph_split(mt_graph *g, const graph_target *target, mt_error *error);

/* choose.c: requires every node's program and operands; ensures that every integer constant is set: those that the
 * builder fixed, those that follow from operands, and tile sizes chosen for the target. */
mt_status graph_choose(mt_graph *g, const graph_target *target, mt_error *error);

/* lower.c: requires graph_choose; binds ops (equal ones once), checks instances, lays out grids. Removes nodes whose
 * results nothing reads. */
mt_status graph_lower(mt_graph *g, mt_error *error);

/* dump.c: the graph as text, one line per tensor and node, before or after any pass. */
void graph_dump(const mt_graph *g, text *out);

#endif
