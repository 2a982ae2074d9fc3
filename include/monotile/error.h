/* Status codes and the error record that every fallible call of Monotile fills.
 *
 * The library never exits, prints or aborts because of its input. A function that can fail returns an mt_status and
 * takes an `mt_error *` last, which may be NULL. On MT_OK the record is left as it was. */
#ifndef MONOTILE_ERROR_H
#define MONOTILE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#define MT_API __attribute__((visibility("default")))

typedef enum mt_status {
    MT_OK = 0,
    MT_E_MEMORY,      /* an allocation failed */
    MT_E_IO,          /* the system refused a file, a mapping, a thread or a process */
    MT_E_FORMAT,      /* a file is damaged: GGUF, .mono, .npy, JSON */
    MT_E_SYNTAX,      /* a .tile program has errors; the message holds the first, with its caret */
    MT_E_ARGUMENT,    /* the caller passed something that does not fit: a shape, a name, a value out of range */
    MT_E_UNSUPPORTED, /* valid, but this version has no code for it; the message names what is missing */
    MT_E_LIMIT,       /* valid, but larger than a documented limit */
    MT_E_COMPILE,     /* the host's C compiler is missing or refused emitted code */
    MT_E_HANG,        /* a wait of a running program did not end; the message names instruction and barrier */
    MT_E_INTERNAL     /* a broken invariant of ours: please report it */
} mt_status;

/* What went wrong and where. `message` is one complete sentence or a compiler diagnostic of several lines, fit to be
 * shown to a person; `where` names a file, "file:line:column", a tensor or an instruction, and may be empty. */
typedef struct mt_error {
    mt_status code;
    char where[256];
    char message[1024];
} mt_error;

/* A short name of the status: "MT_E_IO". Static storage. */
MT_API const char *mt_status_name(mt_status status);

#ifdef __cplusplus
}
#endif
#endif
