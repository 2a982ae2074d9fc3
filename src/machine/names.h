/* The names by which callers reach a session: a program's tensors that can be bound, and its live values. */
#ifndef MACHINE_NAMES_H
#define MACHINE_NAMES_H

#include "machine/machine.h"

typedef struct machine_names {
    map tensors, lives; /* names to indices of the program's tables */
    int32_t *values;    /* of the live values; they start at their least */
} machine_names;

/* Everything lives in `memory`; names are the program's. MT_E_MEMORY. */
mt_status machine_names_make(machine_names *n, arena *memory, const mt_program *p, mt_error *error);
/* The tensor of that name; -1, with *error filled, when there is none that can be bound. */
int64_t machine_names_tensor(const machine_names *n, const char *name, mt_error *error);
/* The tensor that may be bound to this memory, as mt_session_bind and, with `weight`, mt_session_bind_weight want it
 * (but for the alignment, which is the machine's); -1, with *error filled. */
int64_t machine_names_bound(const machine_names *n, const mt_program *p, const char *name, const void *data,
                            size_t bytes, bool weight, mt_error *error);
/* The tensor whose memory a session can hand out; -1, with *error filled. */
int64_t machine_names_own(const machine_names *n, const mt_program *p, const char *name, mt_error *error);
/* A tensor without memory, when a run begins: may the session give it some? MT_E_ARGUMENT: the caller has to bind it.
 */
mt_status machine_names_unbound(const mt_program *p, size_t tensor, mt_error *error);
/* Sets a live value after checking its name and range. *changed, when not NULL, becomes true when it had another value.
 */
mt_status machine_names_live(machine_names *n, const mt_program *p, const char *name, int32_t value, bool *changed,
                             mt_error *error);

#endif
