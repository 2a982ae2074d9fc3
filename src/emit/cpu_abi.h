/* What compiled code and the CPU machine agree on. This file is included by the machine and is pasted, as it is, at the
 * top of every translation unit that emit_c writes; it must stand alone. */
#ifndef CPU_ABI_H
#define CPU_ABI_H

#include <stdint.h>

/* A tensor operand as an instruction sees it. Strides count elements; the last dimension of a block format is
 * contiguous, and stride[rank - 1] is 1 for every tensor. Sub-byte elements are addressed by bit (element number x
 * bits). */
typedef struct cpu_tensor {
    void *data;        /* element 0 */
    int64_t extent[5]; /* the operand's room; live extents may be smaller */
    int64_t stride[5];
} cpu_tensor;

typedef union cpu_arg {
    int32_t i;
    float f;
} cpu_arg;

/* One instruction: `tensors` by tensor ordinal, `args` by arg ordinal, `lives` by live ordinal (already read), `index`
 * the grid point, `scratch` at least the op's scratch bytes, aligned to 64, contents undefined. */
typedef void cpu_code(const cpu_tensor *tensors, const cpu_arg *args, const int32_t *lives, const int32_t *index,
                      void *scratch);

/* The table a compiled object exports under the name `mt_cpu_ops`, one entry per op in the program's order, ended by
 * code == 0. */
typedef struct cpu_entry {
    cpu_code *code;
    int64_t scratch;
    const char *name;
} cpu_entry;

/* An op of level 2 whose roles all wait writes where into `const char *mt_cpu_stuck[CPU_ROLES]`, which its object
 * exports, and returns. */
enum { CPU_ROLES = 3 };

#endif
