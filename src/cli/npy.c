/* Reading and writing .npy files.
 *
 *     "\x93NUMPY" major minor  header length (u16 in version 1, u32 in 2 and 3)  header  data
 *
 * The header is a Python literal, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, padded with spaces and
 * ended by a line feed. The parser takes such a dict of strings, bools and tuples of integers, with the keys in any
 * order and each once, and nothing else. A file is hostile: the header's length is bounded, the product of the extents
 * is checked, and the data must end where the file does. */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_HEADER = 1 << 16 };

static const struct {
    const char *descr, *type;
    size_t size;
} types[] = {
    {"<f2", "f16", 2}, {"<f4", "f32", 4}, {"<f8", "f64", 8}, {"|i1", "i8", 1},  {"<i2", "i16", 2}, {"<i4", "i32", 4},
    {"<i8", "i64", 8}, {"|u1", "u8", 1},  {"<u2", "u16", 2}, {"<u4", "u32", 4}, {"<u8", "u64", 8}, {"|b1", "bool", 1},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* ---- the header ------------------------------------------------------------------------------------------------- */

typedef struct header {
    const char *at; /* NUL-terminated */
    int type;       /* index into types; -1: not given yet */
    int order;      /* fortran_order; -1: not given yet */
    int rank;       /* -1: not given yet */
    int64_t extent[NPY_RANK];
} header;

static void spaces(header *h) { h->at += strspn(h->at, " \t\r\n"); }

static bool accept(header *h, const char *word) {
    spaces(h);
    const size_t length = strlen(word);
    if (strncmp(h->at, word, length)) return false;
    h->at += length;
    return true;
}

/* A quoted string without escapes. */
static bool quoted(header *h, char out[32]) {
    spaces(h);
    const char quote = *h->at;
    if (quote != '\'' && quote != '"') return false;
    const char *end = strchr(h->at + 1, quote);
    if (!end || end - h->at > 31) return false;
    memcpy(out, h->at + 1, (size_t)(end - h->at - 1));
    out[end - h->at - 1] = 0;
    h->at = end + 1;
    return true;
}

static bool shape(header *h) {
    if (h->rank >= 0 || !accept(h, "(")) return false;
    for (h->rank = 0; !accept(h, ")"); h->rank++) {
        spaces(h);
        if (h->rank == NPY_RANK || *h->at < '0' || *h->at > '9') return false;
        char *end;
        errno = 0;
        h->extent[h->rank] = strtoll(h->at, &end, 10);
        if (errno) return false;
        h->at = end;
        if (!accept(h, ",") && !(spaces(h), *h->at == ')')) return false;
    }
    return true;
}

static mt_status parse(header *h, const char *path, mt_error *error) {
    char key[32], value[32];
    *h = (header){.at = h->at, .type = -1, .order = -1, .rank = -1};
    bool good = accept(h, "{");
    while (good && !accept(h, "}")) {
        good = quoted(h, key) && accept(h, ":");
        if (!good) break;
        if (!strcmp(key, "descr")) {
            good = h->type < 0 && quoted(h, value);
            if (!good) break;
            for (h->type = TYPES - 1; h->type >= 0 && strcmp(value, types[h->type].descr); h->type--) {}
            if (h->type < 0)
                return cli_error(error, MT_E_UNSUPPORTED, path,
                                 "elements of type '%s' are not read; little-endian numbers and bools are", value);
        } else if (!strcmp(key, "fortran_order")) {
            good = h->order < 0;
            h->order = accept(h, "True");
            good = good && (h->order || accept(h, "False"));
        } else {
            good = !strcmp(key, "shape") && shape(h);
        }
        if (good && !accept(h, ",") && !(spaces(h), *h->at == '}')) good = false;
    }
    spaces(h);
    if (!good || *h->at || h->type < 0 || h->order < 0 || h->rank < 0)
        return cli_error(error, MT_E_FORMAT, path,
                         "the header of this .npy file is damaged, or has more than %d dimensions", NPY_RANK);
    if (h->order)
        return cli_error(error, MT_E_UNSUPPORTED, path, "arrays in Fortran order are not read: save a C-order copy");
    return MT_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* Reads what stands before the data and parses it. */
static mt_status read_header(FILE *f, header *h, const char *path, mt_error *error) {
    unsigned char start[12];
    char text[MOST_HEADER + 1];
    if (fread(start, 1, 10, f) != 10 || memcmp(start, "\x93NUMPY", 6))
        return cli_error(error, MT_E_FORMAT, path, "this is no .npy file");
    if (start[6] < 1 || start[6] > 3)
        return cli_error(error, MT_E_UNSUPPORTED, path, "version %d of .npy is unknown", start[6]);
    size_t length = start[8] | (size_t)start[9] << 8;
    if (start[6] > 1) {
        if (fread(start + 10, 1, 2, f) != 2)
            return cli_error(error, MT_E_FORMAT, path, "the file ends inside its header");
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    if (length > MOST_HEADER)
        return cli_error(error, MT_E_LIMIT, path, "the header has %zu bytes, more than %d", length, MOST_HEADER);
    if (fread(text, 1, length, f) != length)
        return cli_error(error, MT_E_FORMAT, path, "the file ends inside its header");
    text[length] = 0;
    h->at = text;
    const mt_status status = strlen(text) == length ? parse(h, path, error)
                                                    : cli_error(error, MT_E_FORMAT, path, "the header has a zero byte");
    h->at = NULL;
    return status;
}

mt_status npy_read(npy *out, const char *path, mt_error *error) {
    header h;
    struct stat st;
    mt_status status = MT_OK;
    *out = (npy){0};
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st))
        status = cli_error(error, MT_E_IO, path, "cannot open: %s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = cli_error(error, MT_E_IO, path, "this is not a regular file");
    else
        status = read_header(f, &h, path, error);
    if (status != MT_OK) goto cleanup;
    out->type = types[h.type].type;
    out->rank = h.rank;
    size_t bytes = types[h.type].size;
    for (int d = 0; d < h.rank; d++) {
        out->extent[d] = h.extent[d];
        if (h.extent[d] < 1) {
            status = cli_error(error, MT_E_UNSUPPORTED, path, "dimension %d is empty", d);
            goto cleanup;
        }
        if (__builtin_mul_overflow(bytes, (size_t)h.extent[d], &bytes)) {
            bytes = SIZE_MAX; /* more than any file has */
            break;
        }
    }
    if (!h.rank) out->extent[out->rank++] = 1;
    const long at = ftell(f);
    if (at < 0 || st.st_size < at || bytes != (size_t)(st.st_size - at)) {
        status = cli_error(error, MT_E_FORMAT, path, "%lld bytes of data do not fit the shape, which needs %zu",
                           (long long)st.st_size - at, bytes);
        goto cleanup;
    }
    out->bytes = bytes;
    out->data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!out->data)
        status = cli_error(error, MT_E_MEMORY, path, "no memory for %zu bytes", bytes);
    else if (fread(out->data, 1, bytes, f) != bytes)
        status = cli_error(error, MT_E_IO, path, "cannot read: %s", strerror(errno));
cleanup:
    if (f) fclose(f);
    if (status != MT_OK) {
        free(out->data);
        *out = (npy){0};
    }
    return status;
}

mt_status npy_write(const char *path, const char *type, int rank, const int64_t *extent, const void *data, size_t bytes,
                    mt_error *error) {
    char text[256], shown[160] = "";
    const int64_t flat = (int64_t)bytes;
    int t = TYPES - 1;
    while (t >= 0 && strcmp(type, types[t].type)) t--;
    if (t < 0) rank = 1, extent = &flat;
    for (int d = 0, used = 0; d < rank && d < NPY_RANK; d++)
        used += snprintf(shown + used, sizeof shown - (size_t)used, "%lld, ", (long long)extent[d]);
    if (rank > 1) shown[strlen(shown) - 2] = 0; /* (3,) but (3, 4) */
    int length = snprintf(text + 10, sizeof text - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                          t < 0 ? "|u1" : types[t].descr, shown);
    while ((10 + length + 1) % 64) text[10 + length++] = ' ';
    text[10 + length++] = '\n';
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)(length & 255);
    text[9] = (char)(length >> 8);
    FILE *f = fopen(path, "wb");
    if (!f) return cli_error(error, MT_E_IO, path, "cannot create: %s", strerror(errno));
    const size_t head = (size_t)length + 10;
    bool good = fwrite(text, 1, head, f) == head && fwrite(data, 1, bytes, f) == bytes;
    if (fclose(f)) good = false;
    return good ? MT_OK : cli_error(error, MT_E_IO, path, "cannot write: %s", strerror(errno));
}
