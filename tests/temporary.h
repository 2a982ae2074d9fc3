/* A folder of a test's own, below $TMPDIR. */
#ifndef TEMPORARY_H
#define TEMPORARY_H

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEMPORARY_BYTES = 160 }; /* of a folder's path */

static inline const char *temporary_base(void) {
    const char *base = getenv("TMPDIR");
    return base && *base ? base : "/tmp";
}

/* Makes the folder. False: the system refuses it, or the path is too long. */
static inline bool temporary_make(char folder[TEMPORARY_BYTES]) {
    const int length = snprintf(folder, TEMPORARY_BYTES, "%s/monotile-test-XXXXXX", temporary_base());
    return length < TEMPORARY_BYTES && mkdtemp(folder);
}

static inline int temporary_remove_entry(const char *path, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(path);
}

/* Removes it with all that is in it. 0: done. */
static inline int temporary_remove(const char *folder) {
    return nftw(folder, temporary_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
