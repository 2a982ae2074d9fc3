/* Layouts as text and as pictures, for people. */
#include "tile/layout.h"

#include <inttypes.h>
#include <stdio.h>

enum { ROWS = 16, GROUPS = 8 }; /* of a picture */

/* ---- as a product ---- */

typedef struct factor {
    bool threads, columns;
    int64_t replicated; /* 0: a spread */
    int64_t extent[TILE_RANK];
} factor;

/* The modes from the front of the list that make one factor around a tile of extents `inner`: one of each dimension at
 * most, each stepping by a whole inner tile, all in row-major or all in column-major order. */
static int take(const layout_mode *modes, int count, const int64_t *inner, int rank, factor *out) {
    int taken = 0, direction = 0;
    for (int d = 0; d < rank; d++) out->extent[d] = 1;
    for (; taken < count; taken++) {
        const layout_mode *m = &modes[taken];
        if (m->dimension < 0 || m->step != inner[m->dimension] || out->extent[m->dimension] > 1) break;
        const int way = taken ? (m->dimension > modes[taken - 1].dimension ? 1 : -1) : 0;
        if (direction && way != direction) break;
        if (way) direction = way;
        out->extent[m->dimension] = m->extent;
    }
    out->columns = direction > 0;
    return taken;
}

/* The factors from the inside out; 0 when it is no product. */
static int factors_of(const layout *l, factor *out, int room) {
    const layout c = layout_canonical(l);
    int64_t inner[TILE_RANK];
    int t = 0, k = 0, count = 0;
    for (int d = 0; d < c.shape.rank; d++) inner[d] = 1;
    while (t < c.thread_modes || k < c.local_modes) {
        if (count == room) return 0;
        factor *f = &out[count++];
        *f = (factor){0};
        int taken = take(c.local + k, c.local_modes - k, inner, c.shape.rank, f);
        k += taken;
        if (!taken && t < c.thread_modes) {
            f->threads = true;
            if (c.thread[t].dimension < 0) {
                f->replicated = c.thread[t++].extent;
                continue;
            }
            taken = take(c.thread + t, c.thread_modes - t, inner, c.shape.rank, f);
            t += taken;
        }
        if (!taken) return 0;
        for (int d = 0; d < c.shape.rank; d++) inner[d] *= f->extent[d];
    }
    return count;
}

static void print_modes(text *out, const char *what, const layout_mode *modes, int count) {
    text_string(out, what);
    for (int i = 0; i < count; i++) {
        if (modes[i].dimension < 0)
            text_printf(out, "%s%" PRId64 " replicas", i ? ", " : " ", modes[i].extent);
        else
            text_printf(out, "%s%" PRId64 " along %d by %" PRId64, i ? ", " : " ", modes[i].extent, modes[i].dimension,
                        modes[i].step);
    }
}

void layout_print(text *out, const layout *l) {
    factor factors[2 * LAYOUT_MODES];
    const int count = factors_of(l, factors, (int)COUNT_OF(factors));
    if (!count && tile_shape_count(&l->shape) * layout_threads(l) > 1) {
        print_modes(out, "threads", l->thread, l->thread_modes);
        print_modes(out, "; locals", l->local, l->local_modes);
        return;
    }
    if (!count) text_string(out, "one element");
    for (int i = count - 1; i >= 0; i--) {
        const factor *f = &factors[i];
        if (f->replicated)
            text_printf(out, "replicated(%" PRId64 ")", f->replicated);
        else {
            text_printf(out, "%s%s(", f->columns ? "column_" : "", f->threads ? "spatial" : "local");
            for (int d = 0; d < l->shape.rank; d++) text_printf(out, "%s%" PRId64, d ? ", " : "", f->extent[d]);
            text_string(out, ")");
        }
        if (i) text_string(out, ".");
    }
}

/* ---- as a picture ---- */

/* All dimensions but the last as rows. */
static bool as_rows(layout *out, const layout *l) {
    tile_shape s = {2, {1, 1}};
    if (l->shape.rank) s.extent[1] = l->shape.extent[l->shape.rank - 1];
    s.extent[0] = tile_shape_count(&l->shape) / s.extent[1];
    return layout_reshape(out, l, &s);
}

static void print_line(text *out, const layout *l, int64_t row, int64_t all, int64_t vector, bool locals) {
    text_printf(out, "%6" PRId64 " ", row);
    for (int64_t g = 0; g < all; g++) {
        if (g == GROUPS && all > GROUPS + 1) {
            text_string(out, "  ...");
            g = all - 1;
        }
        int64_t at[2] = {row, g * vector}, thread, local;
        char cell[64];
        layout_owner(l, at, &thread, &local);
        const int length = snprintf(cell, sizeof cell, "t%" PRId64, thread);
        if (locals) snprintf(cell + length, sizeof cell - (size_t)length, ".%" PRId64, local);
        text_printf(out, " %8s", cell);
    }
    text_string(out, "\n");
}

void layout_picture(text *out, const layout *l, const tile_shape *part) {
    layout p;
    if (!as_rows(&p, l)) return;
    const int64_t rows = part ? part->extent[0] : p.shape.extent[0],
                  columns = part ? part->extent[1] : p.shape.extent[1], vector = layout_vector(&p, 1),
                  all = ceil_div(columns, vector), replicas = layout_replicas(&p), locals = layout_locals(&p);
    text_string(out, "       ");
    for (int64_t g = 0; g < all; g++) {
        if (g == GROUPS && all > GROUPS + 1) {
            text_string(out, "  ...");
            g = all - 1;
        }
        char cell[64];
        if (vector > 1)
            snprintf(cell, sizeof cell, "%" PRId64 "-%" PRId64, g * vector, g * vector + vector - 1);
        else
            snprintf(cell, sizeof cell, "%" PRId64, g);
        text_printf(out, " %8s", cell);
    }
    text_string(out, "\n");
    for (int64_t r = 0; r < rows; r++) {
        if (r == ROWS && rows > ROWS + 1) {
            text_string(out, "   ...\n");
            r = rows - 1;
        }
        print_line(out, &p, r, all, vector, locals > vector);
    }
    text_printf(out, "       thread%s at its element%s; %" PRId64 " threads, %" PRId64 " each",
                locals > vector ? ".local index" : "", vector > 1 ? "s" : "", layout_threads(&p), locals);
    if (replicas > 1) text_printf(out, ", held %" PRId64 " times: the first is shown", replicas);
    text_string(out, "\n");
}

void layout_print_shared(text *out, const layout_shared *s) {
    for (int i = s->mode_count - 1; i >= 0; i--)
        text_printf(out, "%s%" PRId64 " along %d every %" PRId64 " bytes", i == s->mode_count - 1 ? "" : ", ",
                    s->mode[i].extent, s->mode[i].dimension, s->mode[i].stride);
    if (s->swizzle) text_printf(out, "; %d-byte swizzle", 16 << s->swizzle);
}

void layout_picture_shared(text *out, const layout_shared *s) {
    if (s->shape.rank != 2) return;
    const int64_t chunk = 16 / s->element, rows = min_i64(s->shape.extent[0], 8),
                  chunks = min_i64(s->shape.extent[1] / chunk, 8);
    text_string(out, "  byte ");
    for (int64_t c = 0; c < 8; c++) text_printf(out, " %8" PRId64, 16 * c);
    text_string(out, "\n");
    for (int64_t line = 0; line < 8; line++) { /* lines of 128 bytes: all banks once */
        text_printf(out, "%6" PRId64 " ", line * 128);
        for (int64_t place = 0; place < 8; place++) {
            char cell[64] = ".";
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < chunks; c++)
                    if (layout_shared_place(s, (int64_t[]){r, c * chunk}) == line * 128 + place * 16)
                        snprintf(cell, sizeof cell, "r%" PRId64 " c%" PRId64, r, c * chunk);
            text_printf(out, " %8s", cell);
        }
        text_string(out, "\n");
    }
    text_string(out, "       row and first column of each 16 bytes; a line is all 32 banks\n");
}
