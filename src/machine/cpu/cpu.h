/* The CPU machine: worker threads that run a program's instructions with code compiled from its ops. Private to
 * src/machine/cpu. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include <pthread.h>
#include <stdatomic.h>

#include "emit/cpu_abi.h"
#include "machine/names.h"
#include "program/program_internal.h"

enum { CPU_LINE = 64, CPU_MOST_WORKERS = 1024 };
#define CPU_NONE UINT32_MAX

/* A barrier's counter, alone in its cache line. */
typedef struct cpu_barrier {
    _Alignas(CPU_LINE) _Atomic uint32_t count; /* arrivals since the counters were last cleared, modulo 2^32 */
    _Atomic uint32_t sleepers;                 /* workers that sleep until it is complete */
} cpu_barrier;

typedef struct cpu_worker {
    struct cpu_machine *machine;
    int number;
    pthread_t thread;             /* not for worker 0, which is whoever runs the session */
    pthread_cond_t wake;          /* with machine->lock */
    uint32_t sleeps_on;           /* the barrier, or CPU_NONE; under machine->lock, as the next two: */
    uint32_t instruction, target; /* that waits there, for how many arrivals */
    void *scratch;
    size_t scratch_bytes;
} cpu_worker;

typedef struct cpu_machine {
    mt_machine base;
    int worker_count;
    cpu_worker *workers;
    uint64_t spin_ns;            /* how long a wait spins before it sleeps */
    pthread_mutex_t turn;        /* held by the session that runs, or that changes the workers */
    struct cpu_session *session; /* that runs; written before `run` is raised */
    _Atomic uint32_t run;        /* number of the run; raised to start the workers */
    _Atomic int parked;          /* workers that sleep between runs */
    _Atomic int active;          /* workers 1 and on that have not left the run */
    _Atomic int caller_sleeps;   /* worker 0 sleeps until active is 0 */
    bool quit;                   /* under lock */
    pthread_mutex_t lock;        /* for everybody who sleeps */
    pthread_cond_t start, done;
} cpu_machine;

/* What all instructions of a node share. */
typedef struct cpu_node {
    cpu_code *code;
    cpu_tensor *tensors; /* by ordinal */
    int tensor_count, live_count;
    const uint32_t *operands;     /* by ordinal: index into the program's operands */
    const uint16_t *live_indices; /* by ordinal: index into the program's lives */
    cpu_arg args[PROGRAM_ARGS];
    int32_t lives[PROGRAM_LIVES];
} cpu_node;

typedef struct cpu_memory {
    void *data; /* NULL: not bound yet */
    size_t bytes;
    bool owned; /* by the session; to be unmapped */
} cpu_memory;

typedef struct cpu_failure { /* the wait that did not end */
    uint32_t instruction, barrier, expected, actual;
    int worker;
} cpu_failure;

typedef struct cpu_session {
    mt_session base;
    cpu_machine *machine;
    const mt_program *program;
    arena *memory;
    program_binding binding;
    void **handles;            /* of the compiled objects, by op */
    const cpu_entry **entries; /* by op */
    const char ***stuck;       /* by op: mt_cpu_stuck, NULL for most */
    machine_names names;
    cpu_memory *tensors; /* by tensor; MT_TEMP: inside the slots */
    cpu_memory slots;
    cpu_node *nodes;
    bool stale_tensors, stale_lives; /* the nodes' tables do not show what was bound or set last */

    /* placement: worker w takes list[w], or the next number from the queue when list is NULL */
    const uint32_t **list;
    uint32_t *list_count;
    _Atomic uint32_t next;

    cpu_barrier *barriers;
    uint32_t epoch;      /* runs since the counters were last cleared, modulo 2^32 */
    bool broken;         /* the last run stopped: counters must be cleared */
    uint64_t timeout_ns; /* 0: none */
    _Atomic bool stop;   /* a worker has given up; all leave */
    cpu_failure failure; /* written by the worker that sets stop, under machine->lock */

    mt_trace_record *trace; /* by instruction; NULL: this session is not traced. Times are clock_ns's in it */
    uint64_t trace_begin;   /* of the last run */
} cpu_session;

/* cpu_run.c: starts the workers, runs the session's program once, returns when all have left. machine->turn is held. */
mt_status cpu_machine_start(cpu_machine *m, mt_error *error);
void cpu_machine_stop(cpu_machine *m);
mt_status cpu_run(cpu_session *s, mt_error *error);

/* cpu_compile.c: the code of every op, from the cache or by the host's C compiler. handles[i] is set where an object
 * is open, also on failure; cpu_unload closes them. */
mt_status cpu_compile(const tile_op *const *ops, size_t count, void **handles, const cpu_entry **entries,
                      mt_error *error);
const char **cpu_stuck(void *handle);          /* cpu_abi.h; NULL: the object has no op of level 2 */
void cpu_unload(void **handles, size_t count); /* handles may be NULL */

#endif
