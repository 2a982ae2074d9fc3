/* From bound tile programs to CUDA C: one translation unit for a program, for NVRTC. The ops are lowered first
 * (tile/role.h). */
#ifndef EMIT_EMIT_CUDA_H
#define EMIT_EMIT_CUDA_H

#include "tile/role.h"

typedef struct emit_cuda_op {
    const tile_op *op;
    role_layout
        layout[TILE_PARAMS];   /* by tensor ordinal: given by the machine: what the operands of this op are bound to */
    bool aligned[TILE_PARAMS]; /* by tensor ordinal: data and all strides are multiples of 16 bytes, wherever used */
    bool cold[TILE_PARAMS];    /* by tensor ordinal: a weight, wherever used: when it is read, no cache has it */
    bool stamped[TILE_PARAMS]; /* by tensor ordinal: stamped data (cuda_stamp.h), wherever used; f32 in ROWS */
} emit_cuda_op;

typedef struct emit_cuda_info {
    const role_chip *target; /* in: the chip to lower for; NULL: sm_90a */
    const char *chip;        /* in: text that takes the place of cuda_chip.h; NULL: that file */
    const char *tail;        /* in: text behind all; may be NULL */
    bool marks;              /* in: statements tell their line when they run: MT_AT_LINE */
    bool no_lines; /* in: no #line directives to the .tile files: messages of the compiler name lines of the unit */
    int64_t scratch_bytes;           /* out: the largest of any op; a multiple of 128 */
    int64_t page_bytes, least_pages; /* out: of the ring: a page's bytes, a multiple of 128; the fewest pages */
    int threads;                     /* out: of a CTA */
    bool loader_reads_live;          /* out: some op's pages depend on live values: see role_op */
} emit_cuda_info;

/* Writes the unit: program/instruction.h, cuda_abi.h, cuda_chip.h, cuda_prelude.h, cuda_math.h, cuda_dot.h, the ops'
 * code, mt_op_load, mt_op_run, the tables MT_OP_..., cuda_interpreter.h. MT_E_UNSUPPORTED names the op and the
 * construct that has no code on this machine. */
mt_status emit_cuda(text *out, const emit_cuda_op *ops, size_t count, emit_cuda_info *info, mt_error *error);
/* The code of one op, for people (`monotile tile show`). */
mt_status emit_cuda_one(text *out, const emit_cuda_op *op, mt_error *error);

#endif
