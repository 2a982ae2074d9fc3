/* Writes GGUF files byte by byte for the tests of their reader, and opens them from memory that ends where they do. */
#ifndef GGUF_WRITER_H
#define GGUF_WRITER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/gguf.h"

/* Writing ---------------------------------------------------------------------------------------------------------- */

/* A file in the making. Tests tell lies by setting the fields or by patching the finished bytes. */
typedef struct writer {
    uint32_t version;
    uint64_t keys, tensors; /* as the header will claim */
    uint64_t alignment;     /* of the data section */
    text entries, descriptions, data;
} writer;

static inline void put(text *t, uint64_t number, size_t size) {
    for (size_t i = 0; i < size; i++) text_append(t, &(uint8_t){i < 8 ? (uint8_t)(number >> (8 * i)) : 0}, 1);
}

static inline void put_string(text *t, const char *s) {
    put(t, strlen(s), 8);
    text_string(t, s);
}

/* A key and its kind; the caller appends the value to w->entries. */
static inline text *put_key(writer *w, const char *key, uint32_t kind) {
    put_string(&w->entries, key);
    put(&w->entries, kind, 4);
    w->keys++;
    return &w->entries;
}

static inline text *put_array(writer *w, const char *key, uint32_t kind, uint64_t count) {
    text *t = put_key(w, key, GGUF_ARRAY);
    put(t, kind, 4);
    put(t, count, 8);
    return t;
}

static inline uint64_t float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline uint64_t double_bits(double f) {
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The description of a tensor; `inner` has `rank` extents, innermost first. */
static inline void put_description(writer *w, const char *name, uint32_t rank, const uint64_t *inner, uint32_t type,
                                   uint64_t offset) {
    put_string(&w->descriptions, name);
    put(&w->descriptions, rank, 4);
    for (uint32_t i = 0; i < rank; i++) put(&w->descriptions, inner[i], 8);
    put(&w->descriptions, type, 4);
    put(&w->descriptions, offset, 8);
    w->tensors++;
}

/* A description, and `bytes` bytes of data for it. */
static inline void put_tensor(writer *w, const char *name, uint32_t rank, const uint64_t *inner, uint32_t type,
                              size_t bytes) {
    while (w->data.length % w->alignment) put(&w->data, 0, 1);
    put_description(w, name, rank, inner, type, w->data.length);
    for (size_t i = 0; i < bytes; i++) put(&w->data, i * 7 + rank, 1);
}

static inline writer writer_new(void) { return (writer){.version = 3, .alignment = 32}; }

/* The whole file. Frees what the writer holds. */
static inline text finish(writer *w) {
    text out = {0};
    text_string(&out, "GGUF");
    put(&out, w->version, 4);
    put(&out, w->tensors, 8);
    put(&out, w->keys, 8);
    text_append(&out, w->entries.data, w->entries.length);
    text_append(&out, w->descriptions.data, w->descriptions.length);
    while (w->data.length && out.length % w->alignment) put(&out, 0, 1);
    text_append(&out, w->data.data, w->data.length);
    text_free(&w->entries);
    text_free(&w->descriptions);
    text_free(&w->data);
    assert_false(out.failed);
    return out;
}

#define EXTENTS(...)                                                                                                   \
    sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]) { __VA_ARGS__ }

/* A file with something of everything. */
static inline text everything(uint32_t version) {
    writer w = writer_new();
    w.version = version;
    put(put_key(&w, "u8", GGUF_U8), 200, 1);
    put(put_key(&w, "i8", GGUF_I8), 0x80, 1);
    put(put_key(&w, "u16", GGUF_U16), 65535, 2);
    put(put_key(&w, "i16", GGUF_I16), 0x8000, 2);
    put(put_key(&w, "u32", GGUF_U32), UINT32_MAX, 4);
    put(put_key(&w, "i32", GGUF_I32), 0x80000000, 4);
    put(put_key(&w, "f32", GGUF_F32), float_bits(-0.1f), 4);
    put(put_key(&w, "bool", GGUF_BOOL), 1, 1);
    put(put_key(&w, "u64", GGUF_U64), UINT64_MAX, 8);
    put(put_key(&w, "i64", GGUF_I64), (uint64_t)INT64_MIN, 8);
    put(put_key(&w, "f64", GGUF_F64), double_bits(1.0 / 3), 8);
    put_string(put_key(&w, "string", GGUF_STRING), "a text");
    text *t = put_array(&w, "strings", GGUF_STRING, 3);
    put_string(t, "one");
    put_string(t, "");
    put_string(t, "three");
    t = put_array(&w, "i16s", GGUF_I16, 3);
    for (int i = -1; i < 2; i++) put(t, (uint64_t)i, 2);
    t = put_array(&w, "bools", GGUF_BOOL, 2);
    put(t, 0x0001, 2);
    put_array(&w, "none", GGUF_F64, 0);
    put_array(&w, "no strings", GGUF_STRING, 0);
    put(put_key(&w, "", GGUF_U8), 1, 1);
    w.alignment = 256;
    put(put_key(&w, "general.alignment", GGUF_U32), 256, 4);
    put_tensor(&w, "matrix", EXTENTS(64, 3), 2, 3 * 36);
    put_tensor(&w, "vector", EXTENTS(5), 0, 20);
    put_tensor(&w, "row", EXTENTS(4, 1), 28, 32);
    put_tensor(&w, "column", EXTENTS(1, 4), 1, 8);
    put_tensor(&w, "cube", EXTENTS(2, 3, 4, 5), 24, 120);
    put_tensor(&w, "scalar", 0, NULL, 30, 2);
    return finish(&w);
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

/* A copy of some bytes that ends where readable memory ends. */
typedef struct guarded {
    uint8_t *pages, *data;
    size_t mapped, size;
} guarded;

static inline guarded guard(const void *bytes, size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = align_up(size, page);
    guarded m = {.mapped = room + page, .size = size};
    m.pages = mmap(NULL, m.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(m.pages, MAP_FAILED);
    assert_int_equal(mprotect(m.pages + room, page, PROT_NONE), 0);
    m.data = m.pages + room - size;
    if (size) memcpy(m.data, bytes, size);
    return m;
}

static inline void unguard(guarded *m) { munmap(m->pages, m->mapped); }

static inline gguf *open_good(const guarded *m) {
    gguf *g;
    mt_error error = {0};
    if (gguf_open_memory(&g, m->data, m->size, "good", &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
    return g;
}

/* These bytes must be refused with this status and a message that holds `part`. Frees them. */
static inline void expect(text bytes, mt_status status, const char *part) {
    guarded m = guard(bytes.data, bytes.length);
    gguf *g;
    mt_error error = {0};
    const mt_status got = gguf_open_memory(&g, m.data, m.size, "bad", &error);
    if (got != status || got != error.code || g || !strstr(error.message, part))
        fail_msg("expected %s \"%s\"; got %s \"%s\"", mt_status_name(status), part, mt_status_name(got), error.message);
    assert_string_equal(error.where, "bad");
    assert_int_equal(gguf_open_memory(&g, m.data, m.size, "bad", NULL), status);
    unguard(&m);
    text_free(&bytes);
}

static inline void patch(text *t, size_t at, uint64_t number, size_t size) {
    for (size_t i = 0; i < size; i++) t->data[at + i] = (char)(number >> (8 * i));
}

#endif
