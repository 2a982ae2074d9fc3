/* From tables to the bytes of a program file: sections one after another, each at a multiple of PROGRAM_ALIGNMENT, a
 * header in front, a hash over all behind it. The finished bytes are opened like a file's. */
#include "program/program.h"

#include <stdlib.h>

static void append_string(program_builder *b, const char *s, size_t length) {
    while (b->strings_capacity - b->strings_count < length + 1) /* arena_grow takes a full array and doubles it */
        b->strings = arena_grow(b->memory, b->strings, 1, b->strings_capacity, &b->strings_capacity);
    memcpy(b->strings + b->strings_count, s, length + 1);
    b->strings_count += length + 1;
}

/* Runs inside arena_protect, as all that fills a builder does. */
uint32_t program_intern(program_builder *b, const char *s) {
    const size_t length = s ? strlen(s) : 0;
    if (!b->strings_count) append_string(b, "", 0);
    if (!length) return 0;
    const int64_t found = map_get(&b->interned, s, length);
    if (found >= 0) return (uint32_t)found;
    const size_t offset = b->strings_count;
    append_string(b, s, length);
    map_put(b->memory, &b->interned, arena_string(b->memory, s, length), length,
            (int64_t)offset); /* the section itself may move */
    return (uint32_t)offset;
}

mt_status program_lay_out(program_builder *b, mt_error *error) {
    static char empty[1];
    if (!b->strings_count) b->strings = empty, b->strings_count = 1;
    b->header = (program_header){.magic = "MONOTILE",
                                 .version = PROGRAM_VERSION,
                                 .header_bytes = sizeof b->header,
                                 .placement = b->placement,
                                 .processor_count = b->processor_count,
                                 .slot_bytes = b->slot_bytes};
    uint64_t end = sizeof b->header;
    if (b->strings_count > UINT32_MAX)
        return error_set(error, MT_E_LIMIT, NULL, "the program's texts have more than 2^32 bytes");
#define X(name, type, what)                                                                                            \
    end = align_up(end, PROGRAM_ALIGNMENT);                                                                            \
    b->header.name = (program_section){end, b->name##_count};                                                          \
    end += b->name##_count * sizeof(type);
    PROGRAM_SECTIONS(X)
#undef X
    end = align_up(end, PROGRAM_ALIGNMENT);
    b->header.file_bytes = end;
    uint8_t *bytes = b->bytes = aligned_alloc(PROGRAM_ALIGNMENT, end);
    if (!bytes)
        return error_set(error, MT_E_MEMORY, NULL, "no memory for a program of %llu bytes", (unsigned long long)end);
    uint64_t written = sizeof b->header; /* what lies between sections is zero */
#define X(name, type, what)                                                                                            \
    memset(bytes + written, 0, b->header.name.offset - written);                                                       \
    if (b->name)                                                                                                       \
        memcpy(bytes + b->header.name.offset, b->name, b->name##_count * sizeof(type));                                \
    else                                                                                                               \
        b->name = (type *)(void *)(bytes + b->header.name.offset);                                                     \
    written = b->header.name.offset + b->name##_count * sizeof(type);
    PROGRAM_SECTIONS(X)
#undef X
    memset(bytes + written, 0, end - written);
    return MT_OK;
}

mt_status program_finish(program_builder *b, mt_program **out, mt_error *error) {
    uint8_t *bytes = b->bytes;
    const uint64_t end = b->header.file_bytes;
    const hash128 hash = hash_bytes(bytes + sizeof b->header, end - sizeof b->header);
    b->header.hash[0] = hash.low;
    b->header.hash[1] = hash.high;
    memcpy(bytes, &b->header, sizeof b->header);
    const mt_status status = program_open_memory(out, bytes, end, "the program just built", error);
    if (status == MT_OK)
        (*out)->owned = bytes;
    else
        free(bytes);
    b->bytes = NULL;
    return status;
}
