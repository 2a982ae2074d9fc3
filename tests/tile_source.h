/* Parsing the sources of the tests of the tile language. */
#ifndef TILE_SOURCE_H
#define TILE_SOURCE_H

#include <stdlib.h>

#include "tile/tile.h"

/* The header of a program whose statements are tested: they begin on line 2. */
#define HEAD "tile t(x: inout f32[M]) over (i in M) {\n"

/* Parses a copy without a NUL behind it, so that the sanitizer sees every byte too far. */
static inline mt_status parse(tile_file **f, const char *source, size_t length, tile_diagnostics *d, mt_error *e) {
    char *exact = malloc(length ? length : 1);
    assert_non_null(exact);
    if (length) memcpy(exact, source, length);
    const mt_status status = tile_parse(f, "t.tile", exact, length, d, e);
    free(exact);
    assert_true((status == MT_OK) == (*f != NULL));
    return status;
}

static inline tile_file *parse_good(const char *source) {
    tile_file *f;
    tile_diagnostics d = {0};
    if (parse(&f, source, strlen(source), &d, NULL)) fail_msg("%s\n%s", source, d.text.data);
    assert_int_equal(d.count, 0);
    return f;
}

#endif
