/* From bound tile programs to CUDA C: one translation unit for a program, for NVRTC. */
#ifndef EMIT_EMIT_CUDA_H
#define EMIT_EMIT_CUDA_H

#include "tile/tile.h"

/* How a tensor operand lies in device memory.
 * ROWS:  as on the host: row-major, packed, strides in the operand table.
 * ATOMS: a 2-d weight [N, K] of a 16-bit dense type, re-laid once: atoms of 8 rows x 64 columns (128 bytes a row), the 16-byte chunks of row r
 *        at places chunk ^ (r % 8); the atoms of an 8-row block one after another along K, block after block. N and K are padded
 *        with zeros to multiples of 8 and 64. Element (n, k) lies at byte
 *            ((n / 8) * ceil(K / 64) + k / 64) * 1024 + (n % 8) * 128 + ((k % 64 / 8) ^ (n % 8)) * 16 + (k % 8) * 2
 * BANDS: a 2-d weight of a block format: the blocks of 8 rows x `band` columns together, row after row, band after band along K, 8-row block after
 *        8-row block; each band padded to a multiple of 16 bytes. emit_cuda_band says how many columns a band has. */
typedef enum emit_layout { EMIT_ROWS, EMIT_ATOMS, EMIT_BANDS } emit_layout;

/* Columns in a band of a format, for a row of K elements: as many as fit a page; a multiple of the block. */
int64_t emit_cuda_band(const tile_format *f, int64_t columns);
/* Bytes of a weight [rows, columns] in a layout, padding included. */
int64_t emit_cuda_bytes(emit_layout layout, const tile_format *f, int64_t rows, int64_t columns);

typedef struct emit_cuda_op {
    const tile_op *op;
    emit_layout layout[TILE_PARAMS]; /* by tensor ordinal: given by the machine: what the operands of this op are bound to */
} emit_cuda_op;

typedef struct emit_cuda_info {
    int64_t scratch_bytes; /* the largest of any op; a multiple of 128 */
} emit_cuda_info;

/* The layout that a weight should have, looking at all ops that use it: a machine asks for each weight operand. It is ATOMS or BANDS for 2-d weights
 * that some op multiplies by (dot), else ROWS. */
emit_layout emit_cuda_wish(const tile_op *op, int tensor);

/* Writes the unit: program/instruction.h, cuda_abi.h, cuda_prelude.h, the ops' code, mt_op_load, mt_op_run, MT_OP_TENSORS, cuda_interpreter.h. MT_E_UNSUPPORTED
 * names the op and the construct that has no code on this machine. */
mt_status emit_cuda(text *out, const emit_cuda_op *ops, size_t count, emit_cuda_info *info, mt_error *error);

#endif
