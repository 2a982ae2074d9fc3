/* From emitted text to code in this process, through the host's compiler and a cache: compile.c. */
#ifndef MACHINE_COMPILE_H
#define MACHINE_COMPILE_H

#include "base/base.h"

typedef struct compile_options {
    const char *language;           /* for messages: "C" */
    const char *variable, *program; /* the environment's name for the compiler, and what is taken where it is not set */
    const char *folder, *extension; /* in the cache; ".c" */
    const char *const *flags;       /* at most 32, then NULL */
    bool (*good)(void *handle);     /* whether a loaded object is what it should be */
} compile_options;

typedef struct compile_unit {
    const char *name, *what; /* for messages: "linear", "op 'linear'" */
    text code;
    void *handle; /* out: of dlopen */
} compile_unit;

/* Finds or makes the objects of all units and loads them. After a failure some may have been loaded. */
mt_status compile_units(const compile_options *o, compile_unit *units, size_t count, mt_error *error);

#endif
