/* Which earlier accesses a later one may have to follow. frontier.c has the idea. */
#ifndef PROGRAM_FRONTIER_H
#define PROGRAM_FRONTIER_H

#include "program/order.h"

enum { LAYER_LEVELS = 12 }; /* 8^11 > 2^31 */

/* What a node's instructions touch through one of its operands, in one direction: regions as if the tensor's memory
 * began at byte 0, tensor 0 in all of them. Equal nodes share it. */
typedef struct program_footprint {
    bool writes;
    bool unordered; /* accesses of one node that are need no order among each other: the program's text says so */
    uint32_t count;
    program_region *regions; /* none is empty */
    uint32_t *at;            /* which instruction of the node, joins not counted; ascending */
    /* Once all have been compared with each other: */
    bool compared, apart; /* no two meet */
    bool fills;           /* they fill their hull without live values, exactly, if `volume` is that of the hull */
    int64_t volume;
} program_footprint;

/* Regions of many accesses and the ranks of the barriers that their instructions arrive at. */
typedef struct program_hull {
    program_region region;
    uint32_t low[PROGRAM_ARRIVES],
        high[PROGRAM_ARRIVES]; /* by place among the arrivals; low > high where one has fewer arrivals */
} program_hull;

/* The accesses of one node that a footprint describes. */
typedef struct program_layer {
    program_footprint *footprint;
    program_region hull;    /* in its space, once the layer is built; its tensor always */
    int64_t shift;          /* where the tensor begins there */
    bool fills;             /* writes, and the regions fill their hull without live values, exactly */
    bool meets;             /* two regions were seen to meet */
    uint32_t cursor;        /* the first access that has not been checked */
    uint32_t *instructions; /* of the footprint's regions, ascending */
    uint32_t *order;        /* a permutation of 0 .. count - 1: by the rank of the first arrival */
    program_hull *hulls;    /* level by level: each is of 8 of the level below; the last of all */
    uint32_t level_begin[LAYER_LEVELS], levels;
    int64_t volume;      /* of the regions that are not repetitions of earlier ones, while `fills` may hold */
    uint32_t references; /* segments that list it, and its maker */
} program_layer;

/* Bytes of a space and the layers whose accesses there have not all been replaced. */
typedef struct program_segment {
    int64_t first, last;
    program_layer **layers;
    uint32_t count, capacity;
} program_segment;

/* A tensor's memory, or all slots. Segments are ascending and do not meet. */
typedef struct program_space {
    program_segment *segments;
    size_t count, capacity;
} program_space;

/* An empty footprint for boxes like this one, of so many instructions at most. NULL: no memory. */
program_footprint *program_footprint_new(arena *a, const tile_box *box, uint32_t most);
/* Adds an access; instructions ascend, regions are not empty. */
void program_footprint_add(program_footprint *f, const program_region *r, uint32_t at);
/* A new layer, of a tensor that begins at `shift`; numbers[k] is the node's k-th instruction. NULL: no memory. */
program_layer *program_layer_new(program_footprint *f, uint32_t tensor, int64_t shift, const uint32_t *numbers);
/* Makes the tree. Holds every instruction's access. Layers have at least one access. */
bool program_layer_build(program_layer *l, const mt_program *p, program_order *o);
/* Drops one reference; the last one forgets the accesses. */
void program_layer_release(program_layer *l, program_order *o);

/* Sees that every access of `earlier` by an instruction below that of access `at` of `later` that meets this one within
 * bytes [first, last), where first >= 0, is known to be finished. Returns the instruction of one that is not, or
 * UINT32_MAX. *met is set to the number of earlier accesses met one by one, *equal to how many of them have the same
 * region; both are complete only when no whole part of the tree was known (`one_by_one`). */
uint32_t program_layer_follow(const program_layer *earlier, program_order *o, const program_layer *later, uint32_t at,
                              int64_t first, int64_t last, bool one_by_one, uint32_t *met, uint32_t *equal);

/* The first segment that ends behind `first`. */
size_t program_space_find(const program_space *s, int64_t first);
/* Empties [first, last). */
bool program_space_cover(program_space *s, program_order *o, int64_t first, int64_t last);
/* Removes layers of the tensor whose hulls lie inside `hull`. */
void program_space_cover_hull(program_space *s, program_order *o, const program_region *hull);
/* Adds the layer where its hull lies. */
bool program_space_add(program_space *s, program_layer *l);
void program_space_free(program_space *s, program_order *o);

#endif
