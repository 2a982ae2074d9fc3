/* A text file that the build put into the library (cmake/embed.cmake). */
#ifndef BASE_EMBED_H
#define BASE_EMBED_H

#include <stddef.h>

struct embedded_file {
    const char *name; /* without folders: "linear.tile" */
    const char *text; /* NUL-terminated */
    size_t length;
};

#endif
