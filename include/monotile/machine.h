/* Machines run programs. A machine is a set of processors; a session is a program loaded on a machine with its memory
 * bound. */
#ifndef MONOTILE_MACHINE_H
#define MONOTILE_MACHINE_H

#include "monotile/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mt_machine mt_machine; /* thread-safe */
typedef struct mt_session mt_session; /* one thread at a time; sessions of one machine take turns by themselves */

/* Opens a machine: "cpu" (one worker for each CPU of this process), "cpu:N" (N workers), "cuda:N" (a GPU), "sim:N" (N
 * virtual SMs, for finding what is wrong with a program: see docs/architecture.md), "auto": a GPU that the driver shows,
 * or else the CPU. A GPU's context is made while the caller goes on: one that refuses it says so when a session is made.
 */
MT_API mt_status mt_machine_open(mt_machine **out, const char *name, mt_error *error);
MT_API void mt_machine_close(mt_machine *m); /* after its sessions; NULL is allowed */
MT_API const char *mt_machine_name(const mt_machine *m);
MT_API int mt_machine_processors(const mt_machine *m);
MT_API const char *mt_machine_architecture(const mt_machine *m); /* of a GPU: "sm_90a". NULL: there is none to know */

/* Loads a program: compiles its ops (or finds them in the cache) and allocates run memory. The program must outlive the
 * session. */
MT_API mt_status mt_session_create(mt_session **out, mt_machine *m, const mt_program *p, mt_error *error);
MT_API void mt_session_destroy(mt_session *s); /* NULL is allowed */

/* Binds a tensor to the caller's memory: `bytes` at least the tensor's (row-major, packed), aligned to 64 except
 * weights (any alignment that their elements need). The memory stays the caller's, must live while it is bound, and
 * must not be touched during a run. Tensors never bound: MT_WEIGHT and MT_INPUT make mt_session_run fail; MT_STATE and
 * MT_OUTPUT get memory from the session, zeroed. */
MT_API mt_status mt_session_bind(mt_session *s, const char *name, void *data, size_t bytes, mt_error *error);
/* A weight's memory is never written. */
MT_API mt_status mt_session_bind_weight(mt_session *s, const char *name, const void *data, size_t bytes,
                                        mt_error *error);
/* The memory that a tensor is bound to (allocated now if need be), for inputs, outputs and state that the session owns.
 */
MT_API mt_status mt_session_memory(mt_session *s, const char *name, void **data, size_t *bytes, mt_error *error);

/* Sets a live value; its range is checked. Values stay until they are set again; they start at their least. */
MT_API mt_status mt_session_live(mt_session *s, const char *name, int32_t value, mt_error *error);

/* Runs the program once. MT_E_HANG: a wait did not end within the time limit; the session's next run starts afresh. */
MT_API mt_status mt_session_run(mt_session *s, mt_error *error);

/* What changes a live value from run to run: it is first + r * step in run r (from 0). */
typedef struct mt_live_step {
    const char *name;
    int32_t first, step;
} mt_live_step;

/* Many runs, one after another. What a run leaves in states, the next one finds there. */
typedef struct mt_loop {
    int32_t runs; /* at most; at least 1 */
    const mt_live_step *lives;
    size_t live_count;
    const char *stop; /* a state of type i32: the loop ends after a run that leaves its first element other than 0.
                         The loop does not clear it. NULL: none */
    int (*poll)(void *context); /* called again and again while the loop lasts, by the thread that called; the loop ends
                                   soon after a run when it returns other than 0. It may read outputs that the session
                                   owns (elements that are being written have their old or their new value), and must
                                   not use the session. NULL: none */
    void *context;
} mt_loop;
/* Runs the program many times: inside one launch where the machine can (a GPU), without the host between two runs. All
 * live values are checked before the first run, for all runs; afterwards they are those of the last run that was done.
 * *done, when not NULL, receives the number of runs, also on failure (then those known to be complete). */
MT_API mt_status mt_session_loop(mt_session *s, const mt_loop *loop, int32_t *done, mt_error *error);

/* Copies a tensor's first `bytes` bytes, wherever the machine keeps them: states, inputs, outputs that the session
 * owns. */
MT_API mt_status mt_session_read(mt_session *s, const char *name, void *data, size_t bytes, mt_error *error);
MT_API mt_status mt_session_write(mt_session *s, const char *name, const void *data, size_t bytes, mt_error *error);

/* Bounds every wait inside a run; 0 turns the watchdog off. The default is 10 seconds. */
MT_API void mt_session_timeout(mt_session *s, double seconds);

/* ---- where the time goes ---- */

/* What happened to one instruction in one run of a traced session. Times are nanoseconds from the beginning of the last
 * mt_session_run or mt_session_loop; -1 where there is no such thing (an op without pages, a machine without a loader).
 * On a GPU the consumers' times are those of one thread of them. */
typedef struct mt_trace_record {
    uint32_t launch;      /* 0; for those who put several calls' records together */
    uint32_t run;         /* of that call, from 0 */
    uint32_t instruction; /* mt_program_instruction_count: the end of a processor's part of the run */
    uint32_t processor;
    uint32_t pages;                /* loaded for it */
    int64_t fetched;               /* its slot was free */
    int64_t received;              /* whoever computes had finished the one before, and has it */
    int64_t ready;                 /* all its barriers are satisfied; of an end: all processors have come to it */
    int64_t first_page;            /* the first page was there */
    int64_t done, synced, arrived; /* computed; by all threads; those who wait for it can know */
    int64_t load_begin, load_end;  /* the loader's part */
    int64_t page_wait, load_wait;  /* between ready and done: waiting for pages; loader: for free pages */
} mt_trace_record;

/* Traces the runs that follow. Off by default; costs nothing when off. A machine may compile its code anew. */
MT_API mt_status mt_session_trace(mt_session *s, int enable, mt_error *error);
/* The records of the last call of mt_session_run or mt_session_loop, of a loop those of its last runs; by run, then by
 * number. (Ends of runs are a GPU's, and missing for the last run of a loop that its stop word ended.) The caller frees
 * them with free(). */
MT_API mt_status mt_session_trace_read(mt_session *s, mt_trace_record **out, size_t *count, mt_error *error);

/* Where a step's time went, as text: for every node, equal layers taken together, mean over runs. `bytes_per_second`,
 * when not 0, is what memory gives: weights are compared with it. The caller frees the text with free(). */
MT_API mt_status mt_trace_text(const mt_program *p, const mt_trace_record *records, size_t count,
                               double bytes_per_second, char **out, mt_error *error);
/* The records as JSON for trace viewers (ui.perfetto.dev, chrome://tracing): a track for each processor and role, an
 * arrow to every instruction that waited. The caller frees the text with free(). */
MT_API mt_status mt_trace_json(const mt_program *p, const mt_trace_record *records, size_t count, char **out,
                               mt_error *error);

/* Figures of the last run, per node: how long its instructions took, summed over processors. Off by default. */
typedef struct mt_node_time {
    const char *name, *op;
    uint32_t instructions;
    double seconds;
} mt_node_time;
MT_API mt_status mt_session_profile(mt_session *s, int enable, mt_error *error);
MT_API size_t mt_session_node_times(const mt_session *s, mt_node_time *out,
                                    size_t room); /* returns the number of nodes */

#ifdef __cplusplus
}
#endif
#endif
