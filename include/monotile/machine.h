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

/* Opens a machine: "cpu" (one worker for each CPU of this process), "cpu:N" (N workers), "auto". */
MT_API mt_status mt_machine_open(mt_machine **out, const char *name, mt_error *error);
MT_API void mt_machine_close(mt_machine *m); /* after its sessions; NULL is allowed */
MT_API const char *mt_machine_name(const mt_machine *m);
MT_API int mt_machine_processors(const mt_machine *m);

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
/* Bounds every wait inside a run; 0 turns the watchdog off. The default is 10 seconds. */
MT_API void mt_session_timeout(mt_session *s, double seconds);

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
