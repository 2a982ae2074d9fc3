/* The instruction library: the .tile files of src/ops, embedded by the build. The last entry has name NULL. */
#ifndef TILE_LIBRARY_H
#define TILE_LIBRARY_H

#include <stddef.h>

struct library_file {
    const char *name; /* "linear.tile" */
    const char *text; /* NUL-terminated */
    size_t length;
};
extern const struct library_file library_files[];
extern const unsigned library_file_count;

#endif
