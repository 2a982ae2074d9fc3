/* Memory that is freed all at once.
 *
 * An arena is a list of chunks, filled from the front. A request that does not fit opens a new chunk, of twice the size
 * of the last one up to LARGEST, so that an arena for little costs little. Failure has two faces: inside arena_protect
 * it jumps back there, outside it returns NULL; `trap` tells which. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

enum { SMALLEST = 4 * 1024, LARGEST = 64 * 1024, ALIGNMENT = 16 };

struct chunk {
    struct chunk *next;
    size_t used, size; /* bytes of `memory` */
    _Alignas(ALIGNMENT) char memory[];
};

struct arena {
    struct chunk *chunks; /* the newest first */
    jmp_buf *trap;        /* where the innermost arena_protect waits, or NULL */
};

arena *arena_new(void) { return calloc(1, sizeof(arena)); }

void arena_free(arena *a) {
    if (!a) return;
    for (struct chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(a);
}

void arena_reset(arena *a) {
    struct chunk *kept = a->chunks;
    if (!kept) return;
    for (struct chunk *c = kept->next, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    memset(kept->memory, 0, kept->used);
    kept->used = 0;
    kept->next = NULL;
}

static void *out_of_memory(arena *a) {
    if (a->trap) longjmp(*a->trap, 1);
    return NULL;
}

void *arena_alloc(arena *a, size_t size) {
    if (size > SIZE_MAX / 2) return out_of_memory(a);
    size = align_up(size ? size : 1, ALIGNMENT);
    if (!a->chunks || a->chunks->size - a->chunks->used < size) {
        const size_t last = a->chunks ? a->chunks->size : SMALLEST / 2, usual = last < LARGEST / 2 ? 2 * last : LARGEST,
                     room = size > usual ? size : usual;
        struct chunk *c = calloc(1, sizeof *c + room);
        if (!c) return out_of_memory(a);
        c->size = room;
        c->next = a->chunks;
        a->chunks = c;
    }
    void *p = a->chunks->memory + a->chunks->used;
    a->chunks->used += size;
    return p;
}

void *arena_array(arena *a, size_t count, size_t size) {
    if (size && count > SIZE_MAX / 2 / size) return out_of_memory(a);
    return arena_alloc(a, count * size);
}

char *arena_string(arena *a, const char *bytes, size_t length) {
    char *copy = arena_alloc(a, length + 1);
    if (copy && length) memcpy(copy, bytes, length);
    return copy;
}

char *arena_printf(arena *a, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *out = length < 0 ? NULL : arena_alloc(a, (size_t)length + 1);
    if (out) vsnprintf(out, (size_t)length + 1, format, again);
    va_end(again);
    return out;
}

bool arena_protect(arena *a, void (*body)(void *), void *context) {
    jmp_buf here, *const outer = a->trap;
    if (setjmp(here)) {
        a->trap = outer;
        return false;
    }
    a->trap = &here;
    body(context);
    a->trap = outer;
    return true;
}

void *arena_grow(arena *a, void *items, size_t size, size_t count, size_t *capacity) {
    if (count < *capacity) return items;
    const size_t factor = *capacity * size >= LARGEST ? 4 : 2, /* what is large costs memory only where it is touched */
        wanted = *capacity ? *capacity * factor : 8;
    void *grown = arena_array(a, wanted, size);
    if (!grown) return NULL;
    if (count) memcpy(grown, items, count * size);
    *capacity = wanted;
    return grown;
}
