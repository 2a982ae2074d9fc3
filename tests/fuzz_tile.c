/* libFuzzer target for .tile files: parses, decodes a block of every format, and binds and prints every program.
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc -D_GNU_SOURCE tests/fuzz_tile.c src/tile/X.c
 * src/base/X.c build/ops_text.c -lxxhash -lm -o fuzz_tile && ./fuzz_tile -max_len=4096 corpus src/ops (X: all files,
 * src/tile/api.c left out). */
#include <stdio.h>
#include <stdlib.h>

#include "tile/tile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const tile_format *f, int byte) {
    void *block = malloc((size_t)f->bits / 8);
    float *values = malloc((size_t)f->block * sizeof(float));
    if (block && values) {
        memset(block, byte, (size_t)f->bits / 8);
        tile_format_decode(f, block, values);
    }
    free(block);
    free(values);
}

/* Constants without a default get one: small integers in turn. */
static void bind(const tile_file *f, const char *name) {
    tile_constant all[TILE_CONSTANTS], given[TILE_CONSTANTS];
    const int count = tile_constants(f, name, all);
    size_t used = 0;
    for (int i = 0; i < count; i++)
        if (!all[i].type && all[i].value == INT64_MIN)
            given[used++] = (tile_constant){.name = all[i].name, .value = 32 << i % 3};
    arena *memory = arena_new();
    if (!memory) return;
    const tile_op *op;
    tile_diagnostics d = {0};
    mt_error error = {0};
    const mt_status status = tile_bind(memory, &op, f, name, given, used, &d, &error);
    if (status == MT_E_INTERNAL || (status == MT_E_SYNTAX) != (d.count > 0)) abort();
    if (!status) {
        text out = {0};
        tile_print_op(&out, op);
        text_free(&out);
    }
    text_free(&d.text);
    arena_free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tile_file *f;
    tile_diagnostics d = {0};
    mt_error error = {0};
    const mt_status status = tile_parse(&f, "fuzz.tile", (const char *)data, size, &d, &error);
    if ((status == MT_OK) != (d.count == 0) || (status && !error.message[0])) abort();
    text_free(&d.text);
    if (status) return 0;
    for (size_t i = 0; i < tile_file_format_count(f); i++) {
        decode(tile_file_format(f, i), 0);
        decode(tile_file_format(f, i), 0x5a);
        decode(tile_file_format(f, i), 0xff);
    }
    for (size_t i = 0; i < tile_file_count(f); i++) bind(f, tile_file_name(f, i));
    tile_file_free(f);
    return 0;
}
