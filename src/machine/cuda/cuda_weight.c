/* Weights on the device: copied once for a machine, re-laid on the way. The host re-lays a piece into one of two pinned
 * buffers while the copy of the other is under way. tile/role.h defines the layouts. */
#include <stdlib.h>

#include "machine/cuda/cuda.h"

enum { PIECE = 8 << 20 };

static mt_status copy(const char *name, cuda_address to, const void *from, size_t bytes, cuda_stream stream,
                      mt_error *error) {
    return cuda_check(cuda_api.cuMemcpyHtoDAsync_v2(to, from, bytes, stream), name, error,
                      "cannot copy a weight to the device");
}

void cuda_staging_free(cuda_staging *s) {
    for (int i = 0; i < 2; i++) {
        if (s->copied[i]) cuda_api.cuEventDestroy_v2(s->copied[i]);
        if (s->memory[i]) cuda_api.cuMemFreeHost(s->memory[i]);
    }
    *s = (cuda_staging){0};
}

/* Makes room for pieces of so many bytes. */
static mt_status stage(cuda_staging *s, size_t bytes, const char *name, mt_error *error) {
    if (bytes <= s->bytes) return MT_OK;
    cuda_staging_free(s);
    mt_status status = MT_OK;
    for (int i = 0; i < 2 && status == MT_OK; i++) {
        status = cuda_check(cuda_api.cuMemHostAlloc(&s->memory[i], bytes, CUDA_HOST_PORTABLE), name, error,
                            "no pinned memory for %zu bytes", bytes);
        if (status == MT_OK)
            status = cuda_check(cuda_api.cuEventCreate(&s->copied[i], CUDA_EVENT_NO_TIMING), name, error,
                                "cannot make an event");
    }
    if (status == MT_OK)
        s->bytes = bytes;
    else
        cuda_staging_free(s);
    return status;
}

static mt_status upload(cuda_staging *staging, const tile_format *f, int64_t rows, int64_t columns, role_layout layout,
                        const char *name, const void *host, size_t bytes, cuda_address device, cuda_stream stream,
                        mt_error *error) {
    const int64_t eight = layout == ROLE_ROWS ? 0 : role_layout_bytes(layout, f, 8, columns),
                  padded = (rows + 7) / 8 * 8;
    const size_t piece = layout == ROLE_ROWS || eight < PIECE ? PIECE : (size_t)eight;
    mt_status status = stage(staging, piece, name, error);
    const int64_t step = layout == ROLE_ROWS ? 0 : (int64_t)(piece / (size_t)eight) * 8;
    size_t done = 0;
    for (int64_t row = 0, turn = 0; status == MT_OK && (layout == ROLE_ROWS ? done < bytes : row < padded); turn ^= 1) {
        status = cuda_check(cuda_api.cuEventSynchronize(staging->copied[turn]), name, error, "cannot wait for a copy");
        if (status != MT_OK) break;
        size_t now;
        if (layout == ROLE_ROWS) {
            now = bytes - done < piece ? bytes - done : piece;
            memcpy(staging->memory[turn], (const uint8_t *)host + done, now);
        } else {
            const int64_t last = min_i64(row + step, padded);
            device_weight_lay(layout, f, rows, columns, row, last, host, staging->memory[turn]);
            now = (size_t)((last - row) / 8 * eight);
            row = last;
        }
        status = copy(name, device + done, staging->memory[turn], now, stream, error);
        if (status == MT_OK)
            status = cuda_check(cuda_api.cuEventRecord(staging->copied[turn], stream), name, error,
                                "cannot record an event");
        done += now;
    }
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuStreamSynchronize(stream), name, error, "cannot copy a weight to the device");
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
    mt_status status = cuda_memory_new(&w->device, device_bytes(t, format, layout), name, m->device.where, error);
    if (status == MT_OK)
        status =
            upload(&m->staging, format, rows, columns, layout, name, host, (size_t)t->bytes, w->device, stream, error);
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
