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
    CUDA_BUDGET_THREADS = CUDA_CONSUMERS + 128, /* with register budgets, which whole warpgroups have */
    CUDA_REGISTERS = 168,                       /* of each of these, at first */
    CUDA_SLOTS = 4,                             /* instructions decoded ahead, at most */
    CUDA_MOST_PAGES = 12,
    CUDA_FLIGHT = 48 << 10,       /* bytes of streamed weights that an SM has under way, at most, */
    CUDA_BLOCK_FLIGHT = 32 << 10, /* and in blocks, which its consumers take more slowly */
    CUDA_EARLY = 48 << 10,        /* of the next node's, while the consumers come to the end of the last one: mt_hold */
    CUDA_BARRIERS = 33,           /* of an instruction of level 2: 32 of its own, and that all is stored */
    CUDA_MAPS = 2,                /* of an operand */
    CUDA_MAP_WORDS = 64,          /* operands whose maps a loader remembers, 32 a word */
    CUDA_TENSORS = 16             /* operands of an instruction on this machine */
};

/* An operand as the device sees it: strides in elements. `live` >= 0 names the live value that is the current extent.
 */
typedef struct cuda_tensor {
    void *data;
    int32_t stride[5]; /* elements */
    int32_t extent[5];
    int16_t live[5];
    int16_t rank;
    int32_t stamped; /* `data` is where it lies in runs of even epochs; in others stamp_bytes of cuda_run behind that */
} cuda_tensor;

/* How the copy engine reads an operand piece by piece: the chip's tensor map. A piece is 64 rows x 64 columns of 16
 * bits (8 KB) and lands as atoms do (tile/role.h): 8 rows x 128 bytes after each other, 16-byte chunks swizzled. Of a
 * weight in bands it is 64 rows of a chunk's blocks, row after row (role_decoded); the second map is the last band's.
 * What lies outside of the operand is zeros. */
typedef struct cuda_map {
    uint64_t words[16];
} __attribute__((aligned(128))) cuda_map;

/* Where and why a run ended early. Written once, by the first that gives up. */
typedef struct cuda_failure {
    uint32_t claimed; /* 0: nothing happened */
    uint32_t reason;  /* cuda_reason */
    uint32_t processor, role, instruction;
    uint32_t barrier, expected, actual; /* of a barrier wait */
    uint32_t epoch;
} cuda_failure;

/* How an instruction ends. GOES_ON: its processor's next one is of the same node, and waits for and arrives at the same
 * barriers. That can begin at once, and nobody gains by knowing of this one first: the last of them arrives for all.
 * QUIET: what it wrote is stamped data, or nobody in this run reads it: who waits for its arrival takes that as a hint,
 * and it needs no release fence. */
enum { CUDA_GOES_ON = 1, CUDA_QUIET = 2 };
/* Set in an instruction's `wait`: all who arrive at that barrier do so quietly. There is nothing to acquire. */
#define CUDA_HINT 0x80000000u

enum { CUDA_END_OF_RUN = -1 }; /* as a failure's barrier: waited for the other processors to end a run */

/* What a launch of more than one run, or with a stop word, tells the host at the end of each run. */
typedef struct cuda_done {
    uint32_t runs;    /* that are complete */
    uint32_t stopped; /* the stop word was set */
} cuda_done;

typedef enum cuda_reason {
    CUDA_NO_FAILURE,
    CUDA_BARRIER_WAIT,
    CUDA_PAGE_WAIT,
    CUDA_SLOT_WAIT,
    CUDA_STAMP_WAIT,
    CUDA_BAD_OPCODE
} cuda_reason;
typedef enum cuda_role { CUDA_ROLE_CONSUMER, CUDA_ROLE_LOADER, CUDA_ROLE_CONTROLLER } cuda_role;

typedef struct cuda_range {
    uint32_t first, count;
} cuda_range; /* program_processor */

/* What a traced kernel notes of one instruction, or of an SM's end of a run: the SM's clock at each step, the low 32
 * bits of it except `fetched`, which is before all others. The consumers' steps are those of their thread 0. Each row
 * is what one role knows at one time: it writes it at once. An end of a run has no row of consumers but `received` and
 * `ready`. */
typedef struct cuda_trace {
    uint32_t epoch; /* of the run: records of launches before this one have lower ones; 0: nothing is noted here */
    uint32_t processor;
    uint64_t fetched;                                /* controller: the slot is free and will be filled */
    uint32_t received, ready, first_page, page_wait; /* consumers: the slot holds it; waits over; the first page taken,
                                                        0: not noted; clocks spent waiting for pages */
    uint32_t done, synced, arrived, reserved;        /* computed; all consumers have; others can know */
    uint32_t load_begin, load_end, load_wait, pages; /* loader; clocks spent waiting for free pages; those filled */
} __attribute__((aligned(16))) cuda_trace;

/* Two moments of an SM on both clocks, near the beginning and the end of a launch. */
typedef struct cuda_trace_clock {
    uint64_t begin_time, begin_clock, end_time, end_clock; /* nanoseconds of the device; the SM's clocks */
    uint32_t sm, start;                                    /* low bits of the SM's clock when the launch began */
} cuda_trace_clock;

/* The kernel's only parameter. */
typedef struct cuda_run {
    const program_instruction *instructions;
    const uint32_t *order;        /* instruction numbers, processor after processor */
    const cuda_range *processors; /* gridDim.x of them */
    const uint8_t *ends;          /* by instruction: CUDA_GOES_ON, CUDA_QUIET */
    const cuda_tensor *operands;
    const cuda_map *maps;      /* CUDA_MAPS an operand; only those that the copy engine can read in pieces are filled */
    const int32_t *lives;      /* of the first run */
    const int32_t *live_steps; /* what every further run adds; only read then */
    uint32_t *counters;        /* barriers; they only grow */
    uint32_t *next;            /* queue placement: the next number, one counter for all runs; NULL: static */
    uint32_t *finished;        /* processors that finished a run, over all epochs */
    const uint32_t *stop_word; /* a run that leaves it other than 0 is the last; NULL: none */
    /* Only used when runs > 1 or there is a stop word. */
    uint32_t *go;          /* 2 x epoch when all may leave the run of that epoch, + 1 when no other follows */
    cuda_done *done;       /* host memory */
    cuda_failure *failure; /* in the host's memory: only written, by the first that gives up */
    uint32_t *gave_up;     /* in device memory: what everybody polls. 0, or 1: somebody gave up */
    uint64_t timeout;      /* of one wait, in nanoseconds */
    char *stamps;          /* the stamped data of even epochs; then those of odd ones */
    uint32_t stamp_bytes;  /* of either */
    uint32_t instruction_count;
    uint32_t live_count;
    uint32_t epoch; /* of the first run of this launch; from 1 */
    uint32_t runs;
    uint32_t pages;         /* pages in dynamic shared memory, */
    uint32_t page_bytes;    /* and of each */
    uint32_t scratch_bytes; /* of ops, behind the pages; a multiple of 128 */
    /* Of a kernel that is compiled with MT_TRACE: records of the last trace_runs runs, a run's instructions and then
     * its ends, one a processor; and a clock for each processor. */
    cuda_trace *trace;
    cuda_trace_clock *trace_clocks;
    uint32_t trace_runs;
} cuda_run;

#endif
