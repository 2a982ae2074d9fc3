/* Tile programs: parse, check, describe, emit, and run one on plain arrays. docs/language.md is the language. */
#ifndef MONOTILE_TILE_H
#define MONOTILE_TILE_H

#include <stddef.h>
#include <stdint.h>

#include "monotile/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mt_tile mt_tile; /* a parsed file; immutable, may be shared between threads */

/* Parses and syntax-checks a .tile text. On MT_E_SYNTAX the error holds the first diagnostic and *diagnostics (when not
 * NULL) all of them, to be freed by the caller with free(). */
MT_API mt_status mt_tile_parse(mt_tile **out, const char *path, const char *text, size_t length, char **diagnostics,
                               mt_error *error);
/* The same for a file. */
MT_API mt_status mt_tile_open(mt_tile **out, const char *path, char **diagnostics, mt_error *error);
MT_API void mt_tile_close(mt_tile *t); /* NULL is allowed; the library's file is not closed */
/* The instruction library that is part of Monotile. */
MT_API mt_status mt_tile_library(const mt_tile **out, mt_error *error);

MT_API size_t mt_tile_count(const mt_tile *t); /* tile programs in the file */
MT_API const char *mt_tile_name(const mt_tile *t, size_t i);
MT_API const char *mt_tile_doc(const mt_tile *t, const char *name); /* the comment above it; "" when none */
MT_API size_t mt_tile_format_count(const mt_tile *t);
MT_API const char *mt_tile_format_name(const mt_tile *t, size_t i);

/* A constant to bind: an integer, or a type when `type` is not NULL. */
typedef struct mt_constant {
    const char *name;
    int64_t value;
    const char *type;
} mt_constant;

/* A parameter of a tile program, before constants are bound. Strings belong to the file. */
typedef enum mt_parameter_kind {
    MT_PARAMETER_IN,
    MT_PARAMETER_OUT,
    MT_PARAMETER_INOUT, /* tensors */
    MT_PARAMETER_ARG,
    MT_PARAMETER_LIVE
} mt_parameter_kind;
typedef struct mt_parameter {
    const char *name;
    mt_parameter_kind kind;
    const char *type;      /* a type's name, or that of the type constant which stands for it */
    int rank;              /* of a tensor; 0 for arg and live */
    const char *extent[5]; /* the constant or the free extent that a dimension has, NULL for an expression */
} mt_parameter;
/* The parameters in their order, and the constants with their defaults (value INT64_MIN and type NULL where there is
 * none). At most `room` are written; the result is their number, 0 when there is no such program. */
MT_API size_t mt_tile_parameters(const mt_tile *t, const char *name, mt_parameter *out, size_t room);
MT_API size_t mt_tile_constants(const mt_tile *t, const char *name, mt_constant *out, size_t room);
/* The other constant that a constant's default names, as in `X = f32, T = X`: where X is given, T follows. NULL: none.
 */
MT_API const char *mt_tile_constant_follows(const mt_tile *t, const char *name, const char *constant);

/* Binds constants and checks the whole program. The result strings are the caller's, to be freed with free(); each may
 * be NULL if unwanted: `bound` the program with its constants, `code` the C that the CPU machine compiles. */
MT_API mt_status mt_tile_check(const mt_tile *t, const char *name, const mt_constant *constants, size_t count,
                               char **bound, char **code, char **diagnostics, mt_error *error);

/* What a GPU makes of the program: the lowered form (roles, where every variable lives and why, pages, shared memory),
 * weights in the layouts it would like; with `code` also the CUDA C. The text is the caller's, to be freed with free().
 * MT_E_UNSUPPORTED names what has no code there. */
MT_API mt_status mt_tile_lower(const mt_tile *t, const char *name, const mt_constant *constants, size_t count, int code,
                               char **out, char **diagnostics, mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
