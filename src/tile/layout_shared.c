/* Layouts of shared memory: where an element lies, and what its banks say to a warp that reads; see layout.h. */
#include "tile/layout.h"

layout_shared layout_rows(const tile_shape *shape, int element, int64_t row) {
    layout_shared s = {.shape = *shape, .element = element};
    int64_t stride = element;
    for (int d = shape->rank - 1; d >= 0; d--) {
        s.mode[s.mode_count++] = (layout_shared_mode){d, shape->extent[d], stride};
        stride = d == shape->rank - 1 && row ? row : stride * shape->extent[d];
    }
    return s;
}

bool layout_swizzled(layout_shared *out, const tile_shape *shape, int element, int width) {
    const int64_t columns = width / element;
    if (shape->rank != 2 || shape->extent[0] % 8 || shape->extent[1] % columns) return false;
    *out = (layout_shared){.shape = *shape,
                           .element = element,
                           .mode_count = 3,
                           .mode = {{1, columns, element},
                                    {1, shape->extent[1] / columns, shape->extent[0] * width},
                                    {0, shape->extent[0], width}},
                           .swizzle = width == 128  ? 3
                                      : width == 64 ? 2
                                                    : 1};
    return true;
}

int64_t layout_shared_bytes(const layout_shared *s) {
    int64_t bytes = s->element;
    for (int i = 0; i < s->mode_count; i++) bytes += (s->mode[i].extent - 1) * s->mode[i].stride;
    return bytes;
}

int64_t layout_shared_place(const layout_shared *s, const int64_t *coordinate) {
    int64_t rest[TILE_RANK], byte = 0;
    for (int d = 0; d < s->shape.rank; d++) rest[d] = coordinate[d];
    for (int i = 0; i < s->mode_count; i++) {
        const layout_shared_mode *m = &s->mode[i];
        byte += rest[m->dimension] % m->extent * m->stride;
        rest[m->dimension] /= m->extent;
    }
    return byte ^ ((byte >> 7 & (((int64_t)1 << s->swizzle) - 1)) << 4);
}

int64_t layout_shared_vector(const layout_shared *s) {
    int64_t run = 1;
    for (int i = 0; i < s->mode_count; i++)
        if (s->mode[i].dimension == s->shape.rank - 1) {
            if (s->mode[i].stride != s->element) return 1;
            run = s->mode[i].extent;
            break;
        }
    int64_t vector = 16 / s->element;
    while (vector > 1 && run % vector) vector /= 2;
    for (int i = 0; i < s->mode_count; i++) /* all other steps must keep vectors aligned */
        while (vector > 1 && s->mode[i].stride != s->element && s->mode[i].stride % (vector * s->element)) vector /= 2;
    return vector;
}

/* Words that lanes [first, first + lanes) need, at most of one bank. */
static int worst_bank(const int64_t *address, int first, int lanes, int bytes) {
    int64_t words[32 * 4];
    int count = 0, worst = 1, in_bank[32] = {0};
    for (int l = first; l < first + lanes; l++)
        for (int b = 0; b < bytes; b += 4) {
            const int64_t word = (address[l] + b) / 4;
            int k = 0;
            while (k < count && words[k] != word) k++;
            if (k < count) continue;
            words[count++] = word;
            const int have = ++in_bank[word % 32];
            if (have > worst) worst = have;
        }
    return worst;
}

int layout_wavefronts(const int64_t *address, int lanes, int bytes) {
    const int at_once = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
    int sum = 0;
    for (int first = 0; first < lanes; first += at_once)
        sum += worst_bank(address, first, lanes - first < at_once ? lanes - first : at_once, bytes);
    return sum;
}

int layout_conflicts(const layout_shared *s, const layout *l, int vector, int *least) {
    const int64_t locals = layout_locals(l), threads = layout_threads(l);
    const int lanes = threads < 32 ? (int)threads : 32, bytes = vector * s->element;
    int sum = 0;
    *least = 0;
    for (int64_t i = 0; i < locals; i += vector) {
        int64_t address[32], at[TILE_RANK];
        for (int t = 0; t < lanes; t++) {
            layout_element(l, t, i, at);
            address[t] = layout_shared_place(s, at);
        }
        sum += layout_wavefronts(address, lanes, bytes);
        *least += bytes >= 16 ? (lanes + 7) / 8 : bytes == 8 ? (lanes + 15) / 16 : 1;
    }
    return sum;
}
