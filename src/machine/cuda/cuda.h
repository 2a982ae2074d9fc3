/* The CUDA machine: one persistent kernel a program, made from its ops by emit_cuda and NVRTC. Private to
 * src/machine/cuda. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include <pthread.h>

#include "emit/emit_cuda.h"
#include "machine/cuda/driver.h"
#include "machine/names.h"
#include "program/program_internal.h"

#include "emit/cuda_abi.h"

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

typedef struct cuda_machine {
    mt_machine base;
    cuda_device device;
    pthread_mutex_t turn; /* one run, or one change of the lists below, at a time */
    cuda_weight *weights;
    cuda_block *blocks;
} cuda_machine;

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
    machine_names names;
    cuda_memory *tensors; /* by tensor */
    bool stale;           /* the operand table does not show what was bound last */
    bool broken;          /* the last run failed: counters must be cleared */
    cuda_module module;
    cuda_function kernel;
    cuda_stream stream;
    cuda_address tables; /* instructions, order, processors, operands, lives, counters, next, finished: one block */
    cuda_address slots;
    size_t counters_at, counters_bytes, lives_at, operands_at;
    cuda_failure *failure; /* pinned and mapped */
    cuda_run launch;
    int grid;
    unsigned shared_bytes;
    uint32_t epoch; /* runs since the counters were cleared */
    double timeout; /* seconds */
} cuda_session;

/* cuda_weight.c */

/* The weight on the device, re-laid; *out counts one user more. Runs with machine->turn held and the context current.
 */
mt_status cuda_weight_get(cuda_machine *m, const program_tensor *t, const tile_format *format, const char *name,
                          role_layout layout, const void *host, cuda_stream stream, cuda_weight **out, mt_error *error);
void cuda_weight_release(cuda_machine *m, cuda_weight *w);
/* Writes rows [first, last) of a weight [rows, columns] in a layout; first is a multiple of 8. `to` has the layout's
 * bytes of those rows. */
void cuda_weight_lay(role_layout layout, const tile_format *f, int64_t rows, int64_t columns, int64_t first,
                     int64_t last, const void *from, void *to);

/* cuda_load.c: compiles the program's ops and makes the session's tables. */
mt_status cuda_session_load(cuda_session *s, mt_error *error);
void cuda_session_unload(cuda_session *s);

#endif
