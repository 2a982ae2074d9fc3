/* The instruction library: the .tile files of src/ops, embedded by the build. The last entry has name NULL. */
#ifndef TILE_LIBRARY_H
#define TILE_LIBRARY_H

#include "base/embed.h"

extern const struct embedded_file library_files[];
extern const unsigned library_file_count;

#endif
