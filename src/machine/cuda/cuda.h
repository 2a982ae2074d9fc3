/* The CUDA machine: one persistent kernel a program, made from its ops by emit_cuda and NVRTC. Private to
 * src/machine/cuda. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include <pthread.h>

#include "machine/cuda/driver.h"
#include "machine/device.h"
#include "machine/names.h"

/* A weight on the device. Sessions of one machine that bind the same host memory in the same layout share it. */
typedef struct cuda_weight {
    const void *host;
    size_t bytes; /* of the host's */
    role_layout layout;
    cuda_address device;
    int users;
    struct cuda_weight *next;
} cuda_weight;

/* Device memory that a session has handed out for a state, so that another session can be bound to it. */
typedef struct cuda_block {
    cuda_address device;
    size_t bytes;
    struct cuda_block *next;
} cuda_block;

/* Two pinned buffers that weights go through, made when the first one comes: pinning memory takes as long as filling
 * it.
 */
typedef struct cuda_staging {
    void *memory[2];
    cuda_event copied[2]; /* the copy from it is done */
    size_t bytes;         /* of each */
} cuda_staging;

typedef struct cuda_machine {
    mt_machine base;
    cuda_device device;
    pthread_t starter; /* makes the device's context, while its user compiles; read with `turn` held: */
    bool starting;
    mt_status started;
    mt_error refused;     /* when it is not MT_OK */
    pthread_mutex_t turn; /* one run, or one change of the lists below, at a time */
    cuda_weight *weights;
    cuda_block *blocks;
    cuda_staging staging;
} cuda_machine;

enum { CUDA_LOOP_RUNS = 4096 }; /* of one launch, at most */
/* A loop that its caller may end: the first launch, and about how long the others last. */
enum { CUDA_FIRST_RUNS = 16, CUDA_POLLED_NS = 100000000 };
/* The runs of the next launch, when `runs` took that long. */
static inline int64_t cuda_next_runs(int32_t runs, uint64_t nanoseconds) {
    return min_i64(CUDA_LOOP_RUNS, 1 + (int64_t)runs * CUDA_POLLED_NS / ((int64_t)nanoseconds + 1));
}

/* Where a tensor's memory is. */
typedef struct cuda_memory {
    cuda_address device; /* 0: not bound yet */
    void *host; /* pinned and mapped: inputs and outputs of the session's own; or the caller's, copied around a run */
    bool owned_device, owned_host, copied;
    cuda_weight *weight;
} cuda_memory;

typedef struct cuda_session {
    mt_session base;
    cuda_machine *machine;
    const mt_program *program;
    arena *memory;
    program_binding binding;
    role_layout *layouts; /* by tensor: of weights */
    device_handoff handoff;
    machine_names names;
    cuda_memory *tensors; /* by tensor */
    bool stale;           /* the operand table does not show what was bound last */
    bool broken;          /* the last run failed: counters must be cleared */
    cuda_module module;
    cuda_function kernel;
    cuda_stream stream;
    cuda_address tables; /* instructions, order, processors, operands, lives, counters, next, finished: one block */
    cuda_address slots;
    size_t counters_at, counters_bytes, lives_at, operands_at, maps_at;
    cuda_failure *failure; /* pinned and mapped */
    cuda_done *done;       /* behind it */
    cuda_run launch;
    int grid;
    unsigned shared_bytes, threads;
    uint32_t epoch;       /* runs since the counters were cleared */
    double timeout;       /* seconds */
    bool traced;          /* the code is the one that takes traces */
    cuda_address trace;   /* clocks of processors, then records: see cuda_run; 0: none yet */
    uint32_t traced_runs; /* of the last launch */
} cuda_session;

/* cuda_weight.c */

/* The weight on the device, re-laid; *out counts one user more. Runs with machine->turn held and the context current.
 */
mt_status cuda_weight_get(cuda_machine *m, const program_tensor *t, const tile_format *format, const char *name,
                          role_layout layout, const void *host, cuda_stream stream, cuda_weight **out, mt_error *error);
void cuda_weight_release(cuda_machine *m, cuda_weight *w);
void cuda_staging_free(cuda_staging *s);
/* cuda_map.c: the maps of a program's operands, from the addresses in their table. */
mt_status cuda_maps_make(const cuda_session *s, const cuda_tensor *operands, cuda_tensor_map *out, mt_error *error);
/* cuda_load.c: compiles the program's ops and makes the session's tables. */
mt_status cuda_session_load(cuda_session *s, mt_error *error);
void cuda_session_unload(cuda_session *s);
/* A part of loading: the kernel, traced or not, and its shared memory. */
mt_status cuda_session_code(cuda_session *s, mt_error *error);

/* cuda_trace.c: with machine->turn held and the context current. */

/* Changes the session's code. After a failure it is what it was. */
mt_status cuda_session_trace(cuda_session *s, bool enable, mt_error *error);
/* Makes the records empty, if there are any: before epochs begin again. Else a launch's are told from those before it
 * by their epochs, and nothing has to be cleared. */
mt_status cuda_trace_clear(cuda_session *s, mt_error *error);
mt_status cuda_trace_read(const cuda_session *s, mt_trace_record **out, size_t *count, mt_error *error);

#endif
