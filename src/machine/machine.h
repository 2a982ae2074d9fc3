/* The machines' common face: a table of functions per kind of machine behind mt_machine and mt_session. */
#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H

#include "monotile/machine.h"
#include "program/program.h"

typedef struct machine_kind {
    const char *name; /* "cpu": the part of a machine's name before ':' */
    mt_status (*open)(mt_machine **out, const char *argument, mt_error *error); /* argument: behind ':' or "" */
    void (*close)(mt_machine *m);
    int (*processors)(const mt_machine *m);
    const char *(*architecture)(const mt_machine *m); /* NULL: nothing that a compilation asks for */
    mt_status (*session_create)(mt_session **out, mt_machine *m, const mt_program *p, mt_error *error);
    void (*session_destroy)(mt_session *s);
    mt_status (*bind)(mt_session *s, const char *name, void *data, size_t bytes, bool weight, mt_error *error);
    mt_status (*memory)(mt_session *s, const char *name, void **data, size_t *bytes, mt_error *error);
    mt_status (*live)(mt_session *s, const char *name, int32_t value, mt_error *error);
    mt_status (*run)(mt_session *s, mt_error *error);
    /* Many runs; `loop` has been checked against the program, stop is the tensor's number or -1. NULL: machine.c runs
     * once and again. */
    mt_status (*loop)(mt_session *s, const mt_loop *loop, int64_t stop, int32_t *done, mt_error *error);
    /* Between a tensor and the host. NULL: its memory is the host's. */
    mt_status (*copy)(mt_session *s, const char *name, void *data, size_t bytes, bool write, mt_error *error);
    void (*timeout)(mt_session *s, double seconds);
    /* NULL, both: this machine takes no traces. `records` are malloced; they may be none. */
    mt_status (*trace)(mt_session *s, bool enable, mt_error *error);
    mt_status (*trace_read)(const mt_session *s, mt_trace_record **records, size_t *count, mt_error *error);
} machine_kind;

/* A live value in run r of a loop, which has been checked: it fits, and so must what is in between. */
static inline int32_t machine_live_at(const mt_live_step *s, int32_t r) {
    return (int32_t)(s->first + (int64_t)r * s->step);
}

/* Every machine and session struct begins with these. */
struct mt_machine {
    const machine_kind *kind;
    char name[32];
};
struct mt_session {
    const machine_kind *kind;
    const mt_program *made_from; /* set by mt_session_create */
    bool traced, profiled;       /* trace.c: the machine traces when one of them is set */
};

extern const machine_kind machine_cpu, machine_cuda, machine_sim;

#endif
