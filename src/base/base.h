/* What everything else stands on: errors, memory, text, hashes, files. Functions are listed under the file that holds
 * them. Nothing here knows about tiles. */
#ifndef BASE_H
#define BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "monotile/error.h"

#define COUNT_OF(a)       (sizeof(a) / sizeof((a)[0]))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
/* ceil(a / b) for a >= 0, b > 0, without overflow. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
/* Division towards minus infinity; b is not 0, and not -1 when a is INT64_MIN. */
static inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t floor_mod(int64_t a, int64_t b) { return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); }
static inline uint64_t align_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

/* error.c ---------------------------------------------------------------------------------------------------------- */

/* Fills *error (when not NULL) and returns `code`, so that a failing function can end with `return error_set(...)`.
 * `where` may be NULL. Messages longer than the record are cut. */
mt_status error_set(mt_error *error, mt_status code, const char *where, const char *format, ...) PRINTF_LIKE(4, 5);
/* The same with errno's text appended: "cannot open: No such file or directory". */
mt_status error_errno(mt_error *error, const char *where, const char *format, ...) PRINTF_LIKE(3, 4);

/* arena.c ----------------------------------------------------------------------------------------------------------
 * An arena hands out memory that is freed all at once. Passes over programs allocate from one and need not check: when
 * memory runs out inside arena_protect, control returns there. Nothing but arena memory may be owned by the frames in
 * between (no FILE, no malloc, no lock). Outside of arena_protect a failed allocation returns NULL. */
typedef struct arena arena;

arena *arena_new(void);    /* NULL when memory is out */
void arena_free(arena *a); /* NULL is allowed */
/* Takes back all that was handed out, for the arena to be used again. */
void arena_reset(arena *a);
/* Zeroed memory, aligned to 16 bytes. size 0 gives a valid pointer. */
void *arena_alloc(arena *a, size_t size);
/* An array of `count` zeroed elements; the product is checked. */
void *arena_array(arena *a, size_t count, size_t size);
char *arena_string(arena *a, const char *bytes, size_t length); /* a NUL-terminated copy */
char *arena_printf(arena *a, const char *format, ...) PRINTF_LIKE(2, 3);
/* Calls body(context). Returns false when an allocation from `a` failed inside. Calls may nest. */
bool arena_protect(arena *a, void (*body)(void *), void *context);
#define ARENA_NEW(a, type)          ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, count, type) ((type *)arena_array((a), (count), sizeof(type)))
/* Makes room for one more element in an arena-held array {pointer, count, capacity}; the old array stays behind. */
#define ARENA_PUSH(a, items, count, capacity)                                                                          \
    ((items) = arena_grow((a), (items), sizeof(*(items)), (count), &(capacity)), &(items)[(count)++])
void *arena_grow(arena *a, void *items, size_t size, size_t count, size_t *capacity);

/* text.c -----------------------------------------------------------------------------------------------------------
 * A growable byte string, always NUL-terminated when `data` is set. A failed allocation sets `failed` and drops what
 * follows, so that a writer checks once at the end. Zero-initialise; free with text_free. */
typedef struct text {
    char *data;
    size_t length, capacity;
    bool failed;
} text;

void text_append(text *t, const void *bytes, size_t length);
void text_string(text *t, const char *s);
void text_printf(text *t, const char *format, ...) PRINTF_LIKE(2, 3);
void text_vprintf(text *t, const char *format, va_list arguments);
void text_free(text *t);

/* hash.c ----------------------------------------------------------------------------------------------------------- */

typedef struct hash128 {
    uint64_t low, high;
} hash128; /* XXH3, 128 bits */
hash128 hash_bytes(const void *data, size_t size);
uint64_t hash_u64(const void *data, size_t size);
/* 32 lower-case hex digits and a NUL. */
void hash_hex(hash128 h, char out[33]);

/* A map from byte strings to non-negative integers (names to indices). Keys are not copied. Zero-initialise; the
 * table lives in the arena. */
typedef struct map {
    struct map_entry {
        const char *key;
        size_t length;
        int64_t value;
    } * entries; /* open addressing, key NULL = free */
    size_t count, capacity;
} map;
int64_t map_get(const map *m, const char *key, size_t length); /* -1 when absent */
/* Sets key to value; an existing key is overwritten. Returns false when memory is out (outside arena_protect). */
bool map_put(arena *a, map *m, const char *key, size_t length, int64_t value);

/* file.c ----------------------------------------------------------------------------------------------------------- */

/* A read-only mapping of a whole regular file. size 0 has data == NULL. */
typedef struct file_map {
    const uint8_t *data;
    size_t size;
} file_map;
/* Fails with MT_E_IO for what cannot be opened and for what is not a regular file (a directory, a pipe). */
mt_status file_map_open(file_map *m, const char *path, mt_error *error);
void file_map_close(file_map *m);
/* Reads a whole file into `out` (appended). `limit` bounds its size. */
mt_status file_read(text *out, const char *path, size_t limit, mt_error *error);
/* Writes through a temporary file in the same folder and a rename, so that readers see all of it or nothing. */
mt_status file_write_atomic(const char *path, const void *data, size_t size, mt_error *error);
/* $MONOTILE_CACHE, or $XDG_CACHE_HOME/monotile, or ~/.cache/monotile; made, with mode 0700, when it is missing. */
mt_status file_cache_folder(text *out, mt_error *error);
/* Makes a folder and its parents. */
mt_status file_make_folders(const char *path, mt_error *error);

/* cpu.c ------------------------------------------------------------------------------------------------------------ */

int cpu_count(void); /* processors that this process may run on; at least 1 */

/* clock.c ---------------------------------------------------------------------------------------------------------- */

uint64_t clock_ns(void); /* monotonic */

#endif
