/* Arrays as .npy files. */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include "cli.h"

enum { NPY_RANK = 5 };

typedef struct npy {
    const char *type;         /* the element type's name: "f32", "u8"; static storage */
    int rank;                 /* 1 to 5; a file without dimensions is read as [1] */
    int64_t extent[NPY_RANK]; /* each at least 1 */
    void *data;               /* row-major, aligned to 64 bytes; free() it */
    size_t bytes;
} npy;

/* Reads a file of version 1, 2 or 3 whose elements are little-endian numbers or bools in C order. MT_E_FORMAT: it is
 * damaged; MT_E_UNSUPPORTED: another kind of array. */
mt_status npy_read(npy *out, const char *path, mt_error *error);
/* Writes an array. A type that .npy does not have (bf16, u4, q4_1) is written as its bytes, one dimension of u8. */
mt_status npy_write(const char *path, const char *type, int rank, const int64_t *extent, const void *data, size_t bytes,
                    mt_error *error);

#endif
