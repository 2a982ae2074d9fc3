/* What the files of src/program share: ops and operands with their meaning, boxes as regions of memory. */
#ifndef PROGRAM_PROGRAM_INTERNAL_H
#define PROGRAM_PROGRAM_INTERNAL_H

#include "program/program.h"
#include "tile/tile.h"

/* decode.c: program_open_memory without program_check. */
mt_status program_decode(mt_program **out, const void *data, size_t size, const char *name, mt_error *error);

/* region.c -------------------------------------------------------------------------------------------------------- */

/* An operand and the way from its elements to its tensor's: a step along one of the operand's dimensions is some steps
 * along one or more of the tensor's (one along one, where a dimension of the view is one of the tensor). */
typedef struct program_view {
    const program_operand *operand;
    const program_tensor *tensor;
    int64_t tensor_stride[PROGRAM_RANK];
    int64_t origin[PROGRAM_RANK]; /* the tensor's coordinates of the operand's element 0 */
    struct program_step {
        uint8_t from, to;
        bool alone;
        int64_t count;
    } step[PROGRAM_RANK * PROGRAM_RANK]; /* a step along `from` is
`count` along `to`. alone: count is 1, and no other step leads to `to` */
    int step_count;
    int block, bits; /* of the format: elements in a block, its bits */
    int grain;       /* elements of a row that share memory: a block, or those in a byte */
    bool rows_share; /* neighbouring rows share bytes: only bytes tell accesses apart */
} program_view;

/* The part of a tensor, and of memory, that one access may touch. Each dimension is absolute, [low, high), and where
 * live[t] >= 0 also relative to that live value, [live + shift_low, live + shift_high): two intervals that move with
 * one live value compare exactly. Empty regions have first == last. */
typedef struct program_region {
    uint32_t tensor;
    uint8_t rank;
    bool rows_share;
    int16_t live[PROGRAM_RANK];
    int64_t low[PROGRAM_RANK], high[PROGRAM_RANK];
    int64_t shift_low[PROGRAM_RANK], shift_high[PROGRAM_RANK];
    int64_t first, last; /* bytes: of the slots for MT_TEMP, else of the tensor */
} program_region;

/* Checks that the operand lies inside its tensor. `t` must have passed program_check_tensor. */
mt_status program_view_make(const mt_program *p, const program_operand *o, const tile_format *format, program_view *out,
                            mt_error *error);
/* Where a box of an instruction lies. */
void program_view_region(const program_view *v, const tile_instance *i, const program_instruction *n,
                         const tile_box *box, program_region *out);
/* True when both, in one space, may touch the same memory within bytes [first, last). Of two regions in one tensor more
 * is known than their bytes. `a` lies that many bytes further on than it says. */
static inline bool program_regions_meet_moved(const program_region *a, int64_t move, const program_region *b,
                                              bool one_tensor, int64_t first, int64_t last) {
    if (max_i64(first, max_i64(a->first + move, b->first)) >= min_i64(last, min_i64(a->last + move, b->last)))
        return false;
    if (!one_tensor || a->rows_share) return true;
    for (int k = 0; k < a->rank; k++) {
        if (a->low[k] >= b->high[k] || b->low[k] >= a->high[k]) return false;
        if (a->live[k] >= 0 && a->live[k] == b->live[k] &&
            (a->shift_low[k] >= b->shift_high[k] || b->shift_low[k] >= a->shift_high[k]))
            return false;
    }
    return true;
}
static inline bool program_regions_meet(const program_region *a, const program_region *b, int64_t first, int64_t last) {
    return program_regions_meet_moved(a, 0, b, a->tensor == b->tensor, first, last);
}
/* Makes *a the smallest region that holds both; either may be empty. Both lie in one tensor. */
void program_region_join(program_region *a, const program_region *b);
/* "kc[0:64, 3:4, 0:64]"; a dimension that moves with a live value is written "pos + 0:pos + 1". */
void program_region_print(const mt_program *p, const program_region *r, text *out);

/* bind.c ---------------------------------------------------------------------------------------------------------- */

/* A program's tables with their meaning; lives in an arena. */
typedef struct program_binding {
    const tile_op **ops;
    const tile_format **formats; /* by tensor. Of a block format only name, block, bits, body->text are set */
    program_view *views;         /* by operand */
} program_binding;

/* Binds the ops again from their texts, finds formats, checks tensors (sizes) and operands (inside their tensors). */
mt_status program_bind(const mt_program *p, arena *a, program_binding *out, mt_error *error);
/* The instance of an instruction, checked, also that operands have the formats that the op wants and the roles that it
 * may write. */
mt_status program_bind_instance(const mt_program *p, const program_binding *b, const program_instruction *n,
                                tile_instance *out, mt_error *error);
/* "instruction 12 (linear 'blk.0.q' [3, 0])". */
void program_instruction_name(const mt_program *p, size_t instruction, char *out, size_t size);

#endif
