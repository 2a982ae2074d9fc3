/* What the CUDA machine's host side and its kernel agree on. The host includes this file; device code has it pasted in
 * front, behind program/instruction.h. It must stand alone: fixed-width integers only, the same layout on both sides.
 */
#ifndef CUDA_ABI_H
#define CUDA_ABI_H

enum {
    CUDA_WARPS = 8, /* consumer warps: two warpgroups */
    CUDA_CONSUMERS = CUDA_WARPS * 32,
    CUDA_LOADER = CUDA_WARPS,         /* the warp after them loads pages */
    CUDA_CONTROLLER = CUDA_WARPS + 1, /* and the next one fetches instructions */
    CUDA_THREADS = CUDA_CONSUMERS + 64,
    CUDA_SLOTS = 4,    /* instructions decoded ahead, at most */
    CUDA_PAGE = 16384, /* bytes of a page */
    CUDA_MOST_PAGES = 12,
    CUDA_TENSORS = 16 /* operands of an instruction on this machine */
};

/* An operand as the device sees it: strides in elements. `live` >= 0 names the live value that is the current extent.
 */
typedef struct cuda_tensor {
    void *data;
    int64_t stride[5];
    int32_t extent[5];
    int16_t live[5];
    int16_t rank;
} cuda_tensor;

/* Where and why a run ended early. Written once, by the first that gives up. */
typedef struct cuda_failure {
    uint32_t claimed; /* 0: nothing happened */
    uint32_t reason;  /* cuda_reason */
    uint32_t processor, role, instruction;
    uint32_t barrier, expected, actual; /* of a barrier wait */
    uint32_t epoch;
} cuda_failure;

typedef enum cuda_reason {
    CUDA_NO_FAILURE,
    CUDA_BARRIER_WAIT,
    CUDA_PAGE_WAIT,
    CUDA_SLOT_WAIT,
    CUDA_BAD_OPCODE
} cuda_reason;
typedef enum cuda_role { CUDA_ROLE_CONSUMER, CUDA_ROLE_LOADER, CUDA_ROLE_CONTROLLER } cuda_role;

typedef struct cuda_range {
    uint32_t first, count;
} cuda_range; /* program_processor */

/* The kernel's only parameter. */
typedef struct cuda_run {
    const program_instruction *instructions;
    const uint32_t *order;        /* instruction numbers, processor after processor */
    const cuda_range *processors; /* gridDim.x of them */
    const cuda_tensor *operands;
    int32_t *lives;
    uint32_t *counters; /* barriers; they only grow */
    uint32_t *next;     /* queue placement: the next number, one counter for all runs; NULL: static */
    uint32_t *finished; /* processors that finished a run, over all epochs */
    cuda_failure *failure;
    uint64_t timeout; /* of one wait, in nanoseconds */
    uint32_t instruction_count;
    uint32_t epoch; /* of the first run of this launch; from 1 */
    uint32_t runs;
    uint32_t pages;         /* pages in dynamic shared memory */
    uint32_t scratch_bytes; /* of ops, behind the pages; a multiple of 128 */
} cuda_run;

#endif
