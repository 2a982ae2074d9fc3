/* A libFuzzer target for the GGUF reader: opens the input, then touches everything that gguf.h lets a caller see. It
 * aborts when something lies outside of the input or contradicts itself. Not part of the build; test_gguf.c includes it
 * for its own mutations. To fuzz:
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -std=c11 -D_GNU_SOURCE -Iinclude -Isrc tests/fuzz_gguf.c
 *         with the library's sources and libraries */
#include "model/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

/* Is this range inside of the input? */
static void require_inside(const void *p, size_t length, const uint8_t *data, size_t size) {
    const uintptr_t at = (uintptr_t)p - (uintptr_t)data;
    require((uintptr_t)p >= (uintptr_t)data && at <= size && length <= size - at);
}

static void visit_value(const gguf_value *v, const uint8_t *data, size_t size) {
    int64_t integer;
    double number;
    gguf_value_i64(v, &integer);
    gguf_value_f64(v, &number);
    require(v->kind < GGUF_NONE);
    if (v->kind == GGUF_STRING) require_inside(v->string.data, v->string.length, data, size);
    if (v->kind != GGUF_ARRAY) return;
    require(v->array.kind < GGUF_NONE && v->array.kind != GGUF_ARRAY && v->array.count <= size);
    for (uint64_t i = 0; i < v->array.count; i++) {
        const gguf_value element = gguf_element(v, i);
        require(element.kind == v->array.kind);
        visit_value(&element, data, size);
    }
    require(gguf_element(v, v->array.count).kind == GGUF_NONE && gguf_element(v, UINT64_MAX).kind == GGUF_NONE);
}

static void visit_key(const gguf *g, const gguf_entry *e, const uint8_t *data, size_t size) {
    uint32_t u;
    int64_t i;
    double f;
    bool b, found = false;
    gguf_string s;
    const gguf_value *array;
    mt_error error;
    require(gguf_find(g, e->key) == &e->value);
    gguf_get_u32(g, e->key, &u, &found, &error);
    require(found);
    gguf_get_i64(g, e->key, &i, NULL, &error);
    gguf_get_f64(g, e->key, &f, NULL, &error);
    gguf_get_bool(g, e->key, &b, NULL, &error);
    gguf_get_string(g, e->key, &s, NULL, &error);
    gguf_get_array(g, e->key, GGUF_STRING, &array, NULL, &error);
    visit_value(&e->value, data, size);
}

static void visit_tensor(const gguf *g, const gguf_tensor *t, const uint8_t *data, size_t size) {
    require(gguf_find_tensor(g, t->name) == t && strlen(t->name) == t->name_length);
    require(t->rank >= 1 && t->rank <= 4 && t->extent[t->rank - 1] % t->format->block == 0);
    int64_t elements = 1;
    for (int d = 0; d < t->rank; d++) {
        require(t->extent[d] > 0 && elements <= INT64_MAX / t->extent[d]);
        elements *= t->extent[d];
    }
    require(tile_format_bytes(t->format, elements) == (int64_t)t->bytes && t->data == data + t->offset && t->part == 0);
    require_inside(t->data, t->bytes, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gguf *g;
    mt_error error = {0};
    const mt_status status = gguf_open_memory(&g, data, size, "input", &error);
    if (status != MT_OK) {
        require(!g && error.code == status && error.message[0]);
        require(status == MT_E_FORMAT || status == MT_E_UNSUPPORTED || status == MT_E_LIMIT || status == MT_E_ARGUMENT);
        return 0;
    }
    size_t count;
    const gguf_entry *entries = gguf_entries(g, &count);
    for (size_t i = 0; i < count; i++) visit_key(g, &entries[i], data, size);
    const gguf_tensor *tensors = gguf_tensors(g, &count);
    for (size_t i = 0; i < count; i++) visit_tensor(g, &tensors[i], data, size);
    gguf_close(g);
    return 0;
}
