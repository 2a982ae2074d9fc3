/* What the machines that run lowered ops have in common (cuda, sim): how weights lie, and the table of operands. */
#ifndef MACHINE_DEVICE_H
#define MACHINE_DEVICE_H

#include "emit/emit_cuda.h"
#include "machine/machine.h"
#include "program/program_internal.h"

#include "emit/cuda_abi.h"

/* The layout of every tensor, by its number. A weight has one layout, whoever uses it: what some op wishes for it.
 * Weights that are used through a part of them stay rows. */
mt_status device_layouts(const mt_program *p, const program_binding *b, arena *memory, role_layout **out,
                         mt_error *error);
/* The program's ops as the emitter wants them. An op's operands must agree in layout wherever it is used: its code is
 * compiled once. */
mt_status device_ops(const mt_program *p, const program_binding *b, const role_layout *layouts, arena *memory,
                     emit_cuda_op **out, mt_error *error);
/* One of a node's instructions that is no join: the checker has seen one. */
const program_instruction *device_first_of(const mt_program *p, size_t node);
/* device_stamp.c: hand-offs between nodes. */
typedef struct device_handoff {
    const program_instruction *instructions; /* the program's, some with one more wait */
    uint8_t *ends;                           /* by instruction: cuda_run's */
    bool *stamped;                           /* by tensor: it is stamped data */
    int64_t *offset;                         /* by tensor: where a temporary lies in the session's memory */
    size_t bytes;                            /* of that memory */
    size_t stamps_at, stamp_bytes;           /* in it: the stamped data, two times so many bytes */
} device_handoff;
/* Chooses, and sets `stamped` of the ops. */
mt_status device_handoff_choose(const mt_program *p, const program_binding *b, emit_cuda_op *ops, arena *memory,
                                device_handoff *out, mt_error *error);

/* MT_OK if the ring of pages is long enough for ops of level 2, which borrow pages from it. */
mt_status device_pages(const mt_program *p, const program_binding *b, int64_t pages, mt_error *error);
/* Fills the table of operands from the tensors' addresses on the device, by tensor. */
mt_status device_operands(const mt_program *p, const program_binding *b, const uintptr_t *addresses,
                          const device_handoff *handoff, cuda_tensor *table, mt_error *error);

/* Bytes of a tensor in a layout. */
size_t device_bytes(const program_tensor *t, const tile_format *f, role_layout layout);
/* Writes rows [first, last) of a weight [rows, columns] in ATOMS or BANDS (tile/role.h); first is a multiple of 8. `to`
 * has the layout's bytes of those rows. */
void device_weight_lay(role_layout layout, const tile_format *f, int64_t rows, int64_t columns, int64_t first,
                       int64_t last, const void *from, void *to);

/* How the copy engine reads an operand in pieces (cuda_map in emit/cuda_abi.h): of a matrix in rows, 16-bit elements
 * and pieces of 64 x 64, to be swizzled; of a tensor of three dimensions the same of one row of each slice; of a weight
 * in atoms, 32-bit words [8-row block][atom][256] and pieces of 8 x 1 x 256; of one in bands, bytes [8-row block][band]
 * [8][of a row] and pieces of 8 x 1 x 8 x a chunk's (role_decoded). Innermost first; strides in bytes. rank 0: it
 * cannot be read so. An operand has two maps: the second one is of a weight's last band, whose rows may be shorter. */
typedef struct device_map {
    int rank, element; /* bytes of an element */
    bool swizzle;
    size_t offset; /* bytes from the operand's beginning */
    uint64_t extent[4], stride[4];
    uint32_t box[4];
} device_map;
device_map device_map_of(const mt_program *p, const program_binding *b, const role_layout *layouts, size_t operand,
                         int which);

#endif
