/* Weights on the device: copied once for a machine, re-laid on the way. The host re-lays a piece into one of two pinned
 * buffers while the copy of the other is under way. tile/role.h defines the layouts. */
#include <stdlib.h>

#include "machine/cuda/cuda.h"

enum { PIECE = 32 << 20 };

/* 16-bit elements, 8 rows x 64 columns an atom, chunks of 16 bytes swizzled by the row. */
static void lay_atoms(int64_t rows, int64_t columns, int64_t first, int64_t last, const uint8_t *from, uint8_t *to) {
    const int64_t atoms = ceil_div(columns, 64);
    for (int64_t n = first; n < last; n++) {
        uint8_t *block = to + (n - first) / 8 * atoms * 1024 + n % 8 * 128;
        const uint8_t *row = from + n * columns * 2;
        for (int64_t k = 0; k < atoms * 64; k += 8) {
            uint8_t *chunk = block + k / 64 * 1024 + ((k % 64 / 8) ^ (n % 8)) * 16;
            const int64_t have = n < rows ? min_i64(max_i64(columns - k, 0), 8) : 0;
            if (have) memcpy(chunk, row + k * 2, (size_t)have * 2);
            if (have < 8) memset(chunk + have * 2, 0, (size_t)(8 - have) * 2);
        }
    }
}

static void lay_bands(const tile_format *f, int64_t rows, int64_t columns, int64_t first, int64_t last,
                      const uint8_t *from, uint8_t *to) {
    const int64_t band = role_band(f, columns), bands = ceil_div(columns, band),
                  row_bytes = tile_format_bytes(f, columns);
    for (int64_t n = first; n < last; n += 8)
        for (int64_t b = 0; b < bands; b++) {
            const int64_t wide = tile_format_bytes(f, min_i64(band, columns - b * band)),
                          offset = tile_format_bytes(f, b * band);
            for (int64_t r = 0; r < 8; r++, to += wide) {
                if (n + r < rows)
                    memcpy(to, from + (n + r) * row_bytes + offset, (size_t)wide);
                else
                    memset(to, 0, (size_t)wide);
            }
            const int64_t padding = (int64_t)align_up((uint64_t)(8 * wide), 16) - 8 * wide;
            memset(to, 0, (size_t)padding);
            to += padding;
        }
}

void cuda_weight_lay(role_layout layout, const tile_format *f, int64_t rows, int64_t columns, int64_t first,
                     int64_t last, const void *from, void *to) {
    if (layout == ROLE_ATOMS)
        lay_atoms(rows, columns, first, last, from, to);
    else
        lay_bands(f, rows, columns, first, last, from, to);
}

static mt_status copy(const char *name, cuda_address to, const void *from, size_t bytes, cuda_stream stream,
                      mt_error *error) {
    return cuda_check(cuda_api.cuMemcpyHtoDAsync_v2(to, from, bytes, stream), name, error,
                      "cannot copy a weight to the device");
}

static mt_status upload(const tile_format *f, int64_t rows, int64_t columns, role_layout layout, const char *name,
                        const void *host, size_t bytes, cuda_address device, cuda_stream stream, mt_error *error) {
    void *pinned[2] = {NULL, NULL};
    cuda_event copied[2] = {NULL, NULL};
    const int64_t eight = layout == ROLE_ROWS ? 0 : role_layout_bytes(layout, f, 8, columns),
                  padded = (rows + 7) / 8 * 8;
    const size_t piece = layout == ROLE_ROWS || eight < PIECE ? PIECE : (size_t)eight;
    mt_status status = MT_OK;
    for (int i = 0; i < 2 && status == MT_OK; i++) {
        status = cuda_check(cuda_api.cuMemHostAlloc(&pinned[i], piece, CUDA_HOST_PORTABLE), name, error,
                            "no pinned memory for %zu bytes", piece);
        if (status == MT_OK)
            status = cuda_check(cuda_api.cuEventCreate(&copied[i], CUDA_EVENT_NO_TIMING), name, error,
                                "cannot make an event");
    }
    const int64_t step = layout == ROLE_ROWS ? 0 : (int64_t)(piece / (size_t)eight) * 8;
    size_t done = 0;
    for (int64_t row = 0, turn = 0; status == MT_OK && (layout == ROLE_ROWS ? done < bytes : row < padded); turn ^= 1) {
        status = cuda_check(cuda_api.cuEventSynchronize(copied[turn]), name, error, "cannot wait for a copy");
        if (status != MT_OK) break;
        size_t now;
        if (layout == ROLE_ROWS) {
            now = bytes - done < piece ? bytes - done : piece;
            memcpy(pinned[turn], (const uint8_t *)host + done, now);
        } else {
            const int64_t last = min_i64(row + step, padded);
            cuda_weight_lay(layout, f, rows, columns, row, last, host, pinned[turn]);
            now = (size_t)((last - row) / 8 * eight);
            row = last;
        }
        status = copy(name, device + done, pinned[turn], now, stream, error);
        if (status == MT_OK)
            status = cuda_check(cuda_api.cuEventRecord(copied[turn], stream), name, error, "cannot record an event");
        done += now;
    }
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuStreamSynchronize(stream), name, error, "cannot copy a weight to the device");
    for (int i = 0; i < 2; i++) {
        if (copied[i]) cuda_api.cuEventDestroy_v2(copied[i]);
        if (pinned[i]) cuda_api.cuMemFreeHost(pinned[i]);
    }
    return status;
}

mt_status cuda_weight_get(cuda_machine *m, const program_tensor *t, const tile_format *format, const char *name,
                          role_layout layout, const void *host, cuda_stream stream, cuda_weight **out,
                          mt_error *error) {
    for (cuda_weight *w = m->weights; w; w = w->next)
        if (w->host == host && w->bytes == (size_t)t->bytes && w->layout == layout) {
            w->users++;
            *out = w;
            return MT_OK;
        }
    cuda_weight *w = calloc(1, sizeof *w);
    if (!w) return error_set(error, MT_E_MEMORY, name, "no memory for a weight");
    *w = (cuda_weight){.host = host, .bytes = (size_t)t->bytes, .layout = layout, .users = 1};
    const int64_t rows = t->extent[0], columns = t->rank == 2 ? t->extent[1] : 1;
    const int64_t bytes = layout == ROLE_ROWS ? t->bytes : role_layout_bytes(layout, format, rows, columns);
    mt_status status = cuda_memory_new(&w->device, (size_t)bytes, name, m->device.where, error);
    if (status == MT_OK)
        status = upload(format, rows, columns, layout, name, host, (size_t)t->bytes, w->device, stream, error);
    if (status != MT_OK) {
        cuda_memory_free(w->device);
        free(w);
        return status;
    }
    w->next = m->weights;
    m->weights = w;
    *out = w;
    return MT_OK;
}

void cuda_weight_release(cuda_machine *m, cuda_weight *w) {
    if (!w || --w->users) return;
    for (cuda_weight **at = &m->weights; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    cuda_memory_free(w->device);
    free(w);
}
