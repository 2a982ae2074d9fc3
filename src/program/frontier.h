/* Which earlier accesses a later one may have to follow. frontier.c has the idea. */
#ifndef PROGRAM_FRONTIER_H
#define PROGRAM_FRONTIER_H

#include "program/order.h"

enum { LAYER_LEVELS = 12 }; /* 8^11 > 2^31 */

/* Regions of many accesses and the ranks of the barriers that their instructions arrive at. */
typedef struct program_hull {
    program_region region;
    uint32_t low[PROGRAM_ARRIVES],
        high[PROGRAM_ARRIVES]; /* by place among the arrivals; low > high where one has fewer arrivals */
} program_hull;

/* All accesses of one node through one of its operands, in one direction. */
typedef struct program_layer {
    bool unordered;     /* accesses of one node that are need no order among each other: the program's text says so */
    bool writes, fills; /* fills: writes, and the regions fill their hull without live values, exactly */
    uint32_t count, capacity;
    uint32_t cursor;         /* the first access that has not been checked */
    program_region *regions; /* of instructions[k], ascending */
    uint32_t *instructions;
    uint32_t *order;     /* a permutation of 0 .. count - 1: by the rank of the first arrival */
    program_hull *hulls; /* level by level: each is of 8 of the level below; the last of all */
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

/* A new layer. NULL: no memory. */
program_layer *program_layer_new(bool writes);
/* Adds an access; instructions ascend, regions are not empty. */
bool program_layer_add(program_layer *l, const program_region *r, uint32_t instruction);
/* Makes the tree. Holds every instruction's access. Layers have at least one access. */
bool program_layer_build(program_layer *l, const mt_program *p, program_order *o);
const program_region *program_layer_hull(const program_layer *l);
/* Drops one reference; the last one forgets the accesses. */
void program_layer_release(program_layer *l, program_order *o);

/* Sees that every access of `earlier` by an instruction below `instruction` that meets `region` within bytes [first,
 * last) is known to be finished. Returns the instruction of one that is not, or UINT32_MAX. *met is set to the number
 * of earlier accesses met one by one, *equal to how many of them have the same region; both are complete only when no
 * whole part of the tree was known (`one_by_one`). */
uint32_t program_layer_follow(const program_layer *earlier, program_order *o, uint32_t instruction,
                              const program_region *region, int64_t first, int64_t last, bool one_by_one, uint32_t *met,
                              uint32_t *equal);

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
