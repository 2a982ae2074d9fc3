/* Compiling a graph to a program; programs as files. */
#ifndef MONOTILE_PROGRAM_H
#define MONOTILE_PROGRAM_H

#include "monotile/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mt_program mt_program; /* read-only once made; may be shared between threads */

/* What to compile for. Zero-initialise and set what matters. */
typedef struct mt_target {
    const char *machine; /* the kind of machine whose costs decide tile sizes: "cpu" (also NULL), "cuda" or "sim" (the
                            same as "cuda"); ":N" may follow. Every machine runs every program */
    const char *architecture; /* of a GPU, "sm_80" (mt_machine_architecture): which products of many rows are fast on
                                 it. NULL: sm_90a */
    int processors;           /* how many processors to lay the program out for; 0: the CPUs this process may run on */
    mt_placement placement;
    int no_fusion; /* keep the graph's nodes as they are (to study, and to test fusion) */
    void (*dump)(void *context, const char *pass,
                 const char *graph); /* called with the graph before and after each pass */
    void *dump_context;
} mt_target;

/* Compiles the graph, which is not changed. target may be NULL. The program is the caller's: mt_program_destroy. */
MT_API mt_status mt_compile(const mt_graph *g, const mt_target *target, mt_program **out, mt_error *error);
MT_API void mt_program_destroy(mt_program *p); /* NULL is allowed */

/* A .mono file: written atomically, loaded by mapping it, checked before it is given out. */
MT_API mt_status mt_program_save(const mt_program *p, const char *path, mt_error *error);
MT_API mt_status mt_program_load(mt_program **out, const char *path, mt_error *error);

/* Text for people; the caller frees it with free(). */
MT_API mt_status mt_program_summary(const mt_program *p, char **out, mt_error *error);
MT_API mt_status mt_program_disassemble(const mt_program *p, size_t first, size_t count, char **out, mt_error *error);
/* What one instruction reads, writes, waits for, and why. */
MT_API mt_status mt_program_inspect(const mt_program *p, size_t instruction, char **out, mt_error *error);
MT_API size_t mt_program_instruction_count(const mt_program *p);

/* A tensor that the caller may bind (every role but MT_TEMP). Strings belong to the program. */
typedef struct mt_tensor_info {
    const char *name, *type;
    mt_role role;
    int rank;
    int64_t extent[5];
    size_t bytes;
} mt_tensor_info;
MT_API size_t mt_program_tensor_count(const mt_program *p); /* bindable tensors */
MT_API mt_status mt_program_tensor(const mt_program *p, size_t i, mt_tensor_info *out, mt_error *error);

#ifdef __cplusplus
}
#endif
#endif
