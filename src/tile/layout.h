/* Layouts: which thread holds which element of a tile, and where in shared memory an element lies.
 *
 * A register layout maps (thread, local index) to an element. Both numbers are read digit by digit, the first mode's
 * digit changing fastest, and every digit moves the element along one dimension by the mode's step:
 *     coordinate[d] = sum of digit x step over the modes of dimension d
 * Modes of threads may be replicated instead: threads that differ only there hold the same elements. The steps of one
 * dimension, sorted, are 1, e1, e1 e2, ... (each the product of the extents before): so every element is held, each
 * (thread, local) pair holds one, and no two pairs do except by replication. What the functions make is always so.
 *
 * One atom says how a warp holds the accumulator of mma.m16n8k16,
 *     local(2, 1) . spatial(8, 4) . local(1, 2)
 * the right factor being the inner one: two neighbours in a thread, 8 x 4 threads of these, twice below each other. */
#ifndef TILE_LAYOUT_H
#define TILE_LAYOUT_H

#include "tile/tile.h"

enum { LAYOUT_MODES = 16 };

typedef struct layout_mode {
    int dimension; /* -1: replicated */
    int64_t extent, step;
} layout_mode;

typedef struct layout {
    tile_shape shape;
    int thread_modes, local_modes;
    layout_mode thread[LAYOUT_MODES], local[LAYOUT_MODES]; /* the fastest digit first */
} layout;

/* ---- making ---- */

/* An element each: shape [e0, ...] of threads (or of locals), the last dimension fastest; `columns`: the first one. */
layout layout_spatial(const tile_shape *shape, bool columns);
layout layout_local(const tile_shape *shape, bool columns);
/* One element of that rank, held by `threads` threads. */
layout layout_replicated(int rank, int64_t threads);
/* Every element of `outer` is an `inner`. False: the ranks differ, or there are too many modes. */
bool layout_compose(layout *out, const layout *outer, const layout *inner);
/* layout_compose of one after the other, from the left; false as there. */
bool layout_product(layout *out, const layout *factors, int count);
/* q, such that l = q . inner, if there is one. */
bool layout_divide(layout *out, const layout *l, const layout *inner);

/* Dimension d of the result is order[d] of l. */
layout layout_permute(const layout *l, const int *order);
/* The same elements in row-major order in another shape. False: a mode does not fit into its dimensions. */
bool layout_reshape(layout *out, const layout *l, const tile_shape *shape);
/* What is left when dimension d has become one element that all who had a part of it hold: of a reduction's result. */
layout layout_reduce(const layout *l, int dimension);

/* ---- asking ---- */

int64_t layout_threads(const layout *l);
int64_t layout_locals(const layout *l);
int64_t layout_replicas(const layout *l); /* threads that hold the same element */

/* The element that a thread holds under a local index. */
void layout_element(const layout *l, int64_t thread, int64_t local, int64_t *coordinate);
/* The first thread (all its replicated digits 0) that holds the element, and its local index. */
void layout_owner(const layout *l, const int64_t *coordinate, int64_t *thread, int64_t *local);
/* Whether that thread holds the element; then the local index. */
bool layout_holds(const layout *l, int64_t thread, const int64_t *coordinate, int64_t *local);

/* The form in which modes of extent 1 are gone and neighbours that continue each other are one: two layouts are the
 * same function if and only if their canonical forms are equal. */
layout layout_canonical(const layout *l);
bool layout_equal(const layout *a, const layout *b);
/* Whether the modes are what the comment at the top demands. */
bool layout_valid(const layout *l);

/* Elements next to each other along `dimension` under local indices 0, 1, ...: at most so many. */
int64_t layout_vector(const layout *l, int dimension);

/* How a thread finds elements of `from` for each of its elements of `to`, whose shape from's broadcasts to: if every
 * thread holds them itself, at a local index that depends on its local index in `to` alone, place[k] is what each step
 * of to's local mode k adds to it. False: elements have to change threads. */
bool layout_follows(const layout *to, const layout *from, int64_t place[LAYOUT_MODES]);

/* ---- the hardware's ---- */

typedef enum layout_atom {
    LAYOUT_MMA_A,            /* mma.m16n8k16 with 16-bit types: 16 x 16 */
    LAYOUT_MMA_B,            /* 16 (k) x 8 */
    LAYOUT_MMA_C,            /* 16 x 8; also the result */
    LAYOUT_WGMMA_A,          /* wgmma's A from registers: 64 x 16, of 128 threads */
    LAYOUT_MATRIX,           /* ldmatrix: 8 x 8 of 16 bits; .x2 and .x4 are locals of these in the addresses' order */
    LAYOUT_MATRIX_TRANSPOSED /* ldmatrix.trans: what lies in shared memory as 8 rows */
} layout_atom;
layout layout_hardware(layout_atom atom);
/* wgmma.m64nNk16's accumulator: 64 x n, n a multiple of 8, of 128 threads. */
layout layout_wgmma_accumulator(int64_t n);

/* ---- shared memory ---- */

/* Where an element lies: the byte is the sum of digit x stride over the modes of every dimension (the digits of a
 * coordinate, fastest first), then the swizzle: bits [4, 4 + bits) are xor-ed with the bits 3 above them. So the
 * 16-byte chunks of 8 rows of 128, 64 or 32 bytes change places: bits is 3, 2 or 1; 0 for none. */
typedef struct layout_shared_mode {
    int dimension;
    int64_t extent, stride; /* bytes */
} layout_shared_mode;
typedef struct layout_shared {
    tile_shape shape;
    int element; /* bytes */
    int mode_count;
    layout_shared_mode mode[LAYOUT_MODES]; /* of each dimension the fastest digit first */
    int swizzle;                           /* bits */
} layout_shared;

/* Rows of the last dimension one after the other, `row` bytes apart (0: without a gap). */
layout_shared layout_rows(const tile_shape *shape, int element, int64_t row);
/* [rows, columns] in panels of `width` bytes of columns (128, 64, 32), swizzled, panel after panel: what wgmma and
 * tensor-map copies call the 128-, 64- or 32-byte swizzle. False: the columns do not fill whole panels, or the rows are
 * no multiple of 8. */
bool layout_swizzled(layout_shared *out, const tile_shape *shape, int element, int width);
int64_t layout_shared_bytes(const layout_shared *s);
int64_t layout_shared_place(const layout_shared *s, const int64_t *coordinate); /* the element's byte */
/* Elements next to each other along the last dimension that surely lie next to each other, for starts that are
 * multiples of them: a power of two, at most 16 bytes. */
int64_t layout_shared_vector(const layout_shared *s);

/* How often the banks have to be read for one access of a warp: `bytes` (4, 8, 16) at `address` of each lane. Without
 * conflicts it is 1 for 4 bytes, 2 for 8 and 4 for 16. Lanes that read the same word share it. */
int layout_wavefronts(const int64_t *address, int lanes, int bytes);
/* The same for a warp that reads its elements of `l`: what all its loads of `vector` elements need together, and in
 * *least what they would need without conflicts. */
int layout_conflicts(const layout_shared *s, const layout *l, int vector, int *least);

/* ---- text ---- */

/* As a product where it is one: local(2, 1).spatial(8, 4).local(1, 2). Else its modes. */
void layout_print(text *out, const layout *l);
void layout_print_shared(text *out, const layout_shared *s);
/* A picture for people: the thread (and local index) at each element; the first rows and columns of what is large. Of
 * rank 2; others are shown as what their last dimension and all others together are. `part`: only so many rows and
 * columns are there; NULL: all. */
void layout_picture(text *out, const layout *l, const tile_shape *part);
/* Which 16-byte chunk of its row lies at each place of the first rows. */
void layout_picture_shared(text *out, const layout_shared *s);

/* layout_role.c: of a lowered op, for people: the page plan, the budget of shared memory, and how the elements of its
 * tiles lie in threads and pages. */
struct role_op;
void layout_print_role(text *out, const struct role_op *r);

#endif
