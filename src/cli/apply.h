/* One tile program applied to tensors: what `tile run` runs and `tile show` explains. From the options come the
 * operands; what is not given is taken from what is: an extent or a type by the name that the program has for it. */
#ifndef CLI_APPLY_H
#define CLI_APPLY_H

#include "npy.h"

enum { APPLY_PARAMETERS = 16, APPLY_CONSTANTS = 32 };

/* "NAME=VALUE", as -i, -o, -s, -a, -l and -c take it. */
typedef struct apply_option {
    char letter;
    char name[64];
    const char *value; /* behind the "=" */
} apply_option;

typedef struct apply_options {
    apply_option *items;
    size_t count;
} apply_options;

/* A tensor parameter and what it is bound to. */
typedef struct apply_tensor {
    const mt_parameter *parameter;
    const char *input, *output; /* files, or NULL */
    npy data;                   /* of the input */
    char type[32];              /* "" until it is known */
    int rank;                   /* 0 until the shape is known */
    int64_t extent[NPY_RANK];
} apply_tensor;

typedef struct apply {
    mt_graph *graph;
    const mt_tile *file; /* and the program in it */
    const char *program;
    mt_parameter parameters[APPLY_PARAMETERS];
    apply_tensor tensors[APPLY_PARAMETERS];
    int tensor_count;
    mt_constant constants[APPLY_CONSTANTS]; /* given, and those that follow from the tensors */
    size_t constant_count;
} apply;

/* Appends an option; prints a message and returns false when it is no NAME=VALUE. */
bool apply_option_add(apply_options *o, const char *command, int letter, const char *argument);
/* Parses a constant: an integer, or else a type. */
mt_constant apply_constant(const apply_option *o);
/* Builds the graph. `keep_defaults`: constants keep their defaults; otherwise the compiler chooses tile sizes. On
 * failure nothing has to be freed but by apply_free, which is allowed in any case. */
mt_status apply_build(apply *a, const mt_tile *file, const char *program, const apply_options *o, bool keep_defaults,
                      mt_error *error);
void apply_free(apply *a);

#endif
