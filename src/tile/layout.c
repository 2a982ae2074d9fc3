/* Register layouts: making, asking, comparing; see layout.h. Everything is done on the digits: no function enumerates
 * elements, except layout_follows, which proves its answer for all threads. */
#include "tile/layout.h"

/* ---- making ---- */

static layout spread(const tile_shape *shape, bool columns, bool threads) {
    layout l = {.shape = *shape};
    layout_mode *modes = threads ? l.thread : l.local;
    int *count = threads ? &l.thread_modes : &l.local_modes;
    for (int i = 0; i < shape->rank; i++) {
        const int d = columns ? i : shape->rank - 1 - i;
        if (shape->extent[d] > 1) modes[(*count)++] = (layout_mode){d, shape->extent[d], 1};
    }
    return l;
}
layout layout_spatial(const tile_shape *shape, bool columns) { return spread(shape, columns, true); }
layout layout_local(const tile_shape *shape, bool columns) { return spread(shape, columns, false); }

layout layout_replicated(int rank, int64_t threads) {
    layout l = {.shape = {.rank = rank}};
    for (int d = 0; d < rank; d++) l.shape.extent[d] = 1;
    if (threads > 1) l.thread[l.thread_modes++] = (layout_mode){-1, threads, 0};
    return l;
}

static bool append(layout_mode *modes, int *count, const layout_mode *from, int from_count, const tile_shape *inner) {
    if (*count + from_count > LAYOUT_MODES) return false;
    for (int i = 0; i < from_count; i++) {
        layout_mode m = from[i];
        if (m.dimension >= 0) m.step *= inner->extent[m.dimension];
        modes[(*count)++] = m;
    }
    return true;
}

bool layout_compose(layout *out, const layout *outer, const layout *inner) {
    if (outer->shape.rank != inner->shape.rank) return false;
    layout l = *inner;
    if (!append(l.thread, &l.thread_modes, outer->thread, outer->thread_modes, &inner->shape) ||
        !append(l.local, &l.local_modes, outer->local, outer->local_modes, &inner->shape)) {
        const layout a = layout_canonical(outer), b = layout_canonical(inner); /* once more, with as few as possible */
        l = b;
        if (!append(l.thread, &l.thread_modes, a.thread, a.thread_modes, &b.shape) ||
            !append(l.local, &l.local_modes, a.local, a.local_modes, &b.shape))
            return false;
    }
    for (int d = 0; d < inner->shape.rank; d++)
        if (__builtin_mul_overflow(outer->shape.extent[d], inner->shape.extent[d], &l.shape.extent[d])) return false;
    *out = l;
    return true;
}

bool layout_product(layout *out, const layout *factors, int count) {
    layout l = factors[0];
    for (int i = 1; i < count; i++)
        if (!layout_compose(&l, &l, &factors[i])) return false;
    *out = l;
    return true;
}

/* Takes the digits of `inner` off the front of `modes`, splitting a mode where it has to be. */
static bool strip(layout_mode *modes, int *count, const layout_mode *inner, int inner_count) {
    for (int i = 0; i < inner_count; i++) {
        int64_t left = inner[i].extent, step = inner[i].step;
        while (left > 1) {
            layout_mode *m = &modes[0];
            if (!*count || m->dimension != inner[i].dimension || m->step != step) return false;
            const int64_t taken = m->extent < left ? m->extent : left;
            if (left % taken || m->extent % taken) return false;
            left /= taken;
            step *= taken;
            m->extent /= taken;
            m->step *= taken;
            if (m->extent == 1) memmove(modes, modes + 1, (size_t)-- * count * sizeof *modes);
        }
    }
    return true;
}

bool layout_divide(layout *out, const layout *l, const layout *inner) {
    if (l->shape.rank != inner->shape.rank) return false;
    layout q = layout_canonical(l);
    const layout in = layout_canonical(inner);
    for (int d = 0; d < q.shape.rank; d++) {
        if (q.shape.extent[d] % in.shape.extent[d]) return false;
        q.shape.extent[d] /= in.shape.extent[d];
    }
    if (!strip(q.thread, &q.thread_modes, in.thread, in.thread_modes) ||
        !strip(q.local, &q.local_modes, in.local, in.local_modes))
        return false;
    for (int part = 0; part < 2; part++) { /* what is left must move by whole inner tiles */
        layout_mode *modes = part ? q.local : q.thread;
        for (int i = 0; i < (part ? q.local_modes : q.thread_modes); i++) {
            if (modes[i].dimension < 0) continue;
            if (modes[i].step % in.shape.extent[modes[i].dimension]) return false;
            modes[i].step /= in.shape.extent[modes[i].dimension];
        }
    }
    if (!layout_valid(&q)) return false;
    *out = q;
    return true;
}

layout layout_permute(const layout *l, const int *order) {
    layout out = *l;
    for (int d = 0; d < l->shape.rank; d++) {
        out.shape.extent[d] = l->shape.extent[order[d]];
        for (int i = 0; i < l->thread_modes; i++)
            if (l->thread[i].dimension == order[d]) out.thread[i].dimension = d;
        for (int i = 0; i < l->local_modes; i++)
            if (l->local[i].dimension == order[d]) out.local[i].dimension = d;
    }
    return out;
}

/* A mode that moves the row-major number of the element by `step`, as modes of the dimensions of `shape`. */
static bool split(layout_mode *modes, int *count, int64_t extent, int64_t step, const tile_shape *shape) {
    for (int d = shape->rank - 1; d >= 0 && extent > 1; d--) {
        const int64_t have = shape->extent[d];
        if (step >= have) { /* it does not reach into this dimension */
            if (step % have) return false;
            step /= have;
            continue;
        }
        const int64_t room = have / step;
        if (have % step) return false;
        const int64_t taken = extent < room ? extent : room;
        if (extent % taken || *count == LAYOUT_MODES) return false;
        modes[(*count)++] = (layout_mode){d, taken, step};
        extent /= taken;
        if (extent == 1) return true;
        if (taken != room) return false;
        step = 1;
    }
    return extent == 1;
}

bool layout_reshape(layout *out, const layout *l, const tile_shape *shape) {
    layout r = {.shape = *shape};
    if (tile_shape_count(shape) != tile_shape_count(&l->shape)) return false;
    for (int part = 0; part < 2; part++) {
        layout_mode *modes = part ? r.local : r.thread;
        int *count = part ? &r.local_modes : &r.thread_modes;
        for (int i = 0; i < (part ? l->local_modes : l->thread_modes); i++) {
            const layout_mode m = part ? l->local[i] : l->thread[i];
            int64_t step = m.step;
            if (m.dimension < 0) {
                if (*count == LAYOUT_MODES) return false;
                modes[(*count)++] = m;
                continue;
            }
            for (int d = m.dimension + 1; d < l->shape.rank; d++) step *= l->shape.extent[d];
            if (!split(modes, count, m.extent, step, shape)) return false;
        }
    }
    if (!layout_valid(&r)) return false;
    *out = r;
    return true;
}

layout layout_reduce(const layout *l, int dimension) {
    layout out = *l;
    out.shape.extent[dimension] = 1;
    out.local_modes = 0;
    for (int i = 0; i < l->thread_modes; i++)
        if (l->thread[i].dimension == dimension) out.thread[i] = (layout_mode){-1, l->thread[i].extent, 0};
    for (int i = 0; i < l->local_modes; i++)
        if (l->local[i].dimension != dimension) out.local[out.local_modes++] = l->local[i];
    return out;
}

/* ---- asking ---- */

static int64_t product(const layout_mode *modes, int count) {
    int64_t n = 1;
    for (int i = 0; i < count; i++) n *= modes[i].extent;
    return n;
}
int64_t layout_threads(const layout *l) { return product(l->thread, l->thread_modes); }
int64_t layout_locals(const layout *l) { return product(l->local, l->local_modes); }

int64_t layout_replicas(const layout *l) {
    int64_t n = 1;
    for (int i = 0; i < l->thread_modes; i++)
        if (l->thread[i].dimension < 0) n *= l->thread[i].extent;
    return n;
}

static void move(const layout_mode *modes, int count, int64_t number, int64_t *coordinate) {
    for (int i = 0; i < count; i++) {
        if (modes[i].dimension >= 0) coordinate[modes[i].dimension] += number % modes[i].extent * modes[i].step;
        number /= modes[i].extent;
    }
}

void layout_element(const layout *l, int64_t thread, int64_t local, int64_t *coordinate) {
    for (int d = 0; d < l->shape.rank; d++) coordinate[d] = 0;
    move(l->thread, l->thread_modes, thread, coordinate);
    move(l->local, l->local_modes, local, coordinate);
}

static int64_t number_of(const layout_mode *modes, int count, const int64_t *coordinate) {
    int64_t number = 0, place = 1;
    for (int i = 0; i < count; i++) {
        const layout_mode *m = &modes[i];
        if (m->dimension >= 0) number += coordinate[m->dimension] / m->step % m->extent * place;
        place *= m->extent;
    }
    return number;
}

void layout_owner(const layout *l, const int64_t *coordinate, int64_t *thread, int64_t *local) {
    *thread = number_of(l->thread, l->thread_modes, coordinate);
    *local = number_of(l->local, l->local_modes, coordinate);
}

bool layout_holds(const layout *l, int64_t thread, const int64_t *coordinate, int64_t *local) {
    for (int i = 0; i < l->thread_modes; i++) {
        const layout_mode *m = &l->thread[i];
        if (m->dimension >= 0 && coordinate[m->dimension] / m->step % m->extent != thread % m->extent) return false;
        thread /= m->extent;
    }
    *local = number_of(l->local, l->local_modes, coordinate);
    return true;
}

static int merged(layout_mode *modes, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const layout_mode m = modes[i];
        layout_mode *last = kept ? &modes[kept - 1] : NULL;
        if (m.extent == 1) continue;
        if (last && last->dimension == m.dimension && (m.dimension < 0 || m.step == last->step * last->extent))
            last->extent *= m.extent;
        else
            modes[kept++] = m;
    }
    return kept;
}

layout layout_canonical(const layout *l) {
    layout c = *l;
    c.thread_modes = merged(c.thread, l->thread_modes);
    c.local_modes = merged(c.local, l->local_modes);
    return c;
}

static bool same_modes(const layout_mode *a, int a_count, const layout_mode *b, int b_count) {
    if (a_count != b_count) return false;
    for (int i = 0; i < a_count; i++)
        if (a[i].dimension != b[i].dimension || a[i].extent != b[i].extent ||
            (a[i].dimension >= 0 && a[i].step != b[i].step))
            return false;
    return true;
}

bool layout_equal(const layout *a, const layout *b) {
    const layout x = layout_canonical(a), y = layout_canonical(b);
    if (x.shape.rank != y.shape.rank) return false;
    for (int d = 0; d < x.shape.rank; d++)
        if (x.shape.extent[d] != y.shape.extent[d]) return false;
    return same_modes(x.thread, x.thread_modes, y.thread, y.thread_modes) &&
           same_modes(x.local, x.local_modes, y.local, y.local_modes);
}

bool layout_valid(const layout *l) {
    for (int d = 0; d < l->shape.rank; d++) {
        int64_t covered = 1;
        for (bool found = true; found && covered < l->shape.extent[d];) {
            found = false;
            for (int i = 0; i < l->thread_modes + l->local_modes && !found; i++) {
                const layout_mode *m = i < l->thread_modes ? &l->thread[i] : &l->local[i - l->thread_modes];
                if (m->dimension != d || m->step != covered || m->extent < 2) continue;
                covered *= m->extent;
                found = true;
            }
        }
        if (covered != l->shape.extent[d]) return false;
    }
    /* Nothing else moves: the number of pairs is that of elements, times the replicas. */
    return layout_threads(l) * layout_locals(l) == tile_shape_count(&l->shape) * layout_replicas(l);
}

int64_t layout_vector(const layout *l, int dimension) {
    const layout c = layout_canonical(l);
    const bool starts = c.local_modes && c.local[0].dimension == dimension && c.local[0].step == 1;
    return starts ? c.local[0].extent : 1;
}

/* The element of `from` that one of `to` reads. */
static void broadcast_coordinate(const layout *to, const layout *from, const int64_t *at, int64_t *out) {
    for (int d = 0; d < from->shape.rank; d++)
        out[d] = from->shape.extent[d] == 1 ? 0 : at[d + to->shape.rank - from->shape.rank];
}

bool layout_follows(const layout *to, const layout *from, int64_t place[LAYOUT_MODES]) {
    const int64_t threads = layout_threads(to), locals = layout_locals(to);
    int64_t at[TILE_RANK], of[TILE_RANK], local;
    if (layout_threads(from) != threads || from->shape.rank > to->shape.rank) return false;
    int64_t unit = 1;
    for (int k = 0; k < to->local_modes; k++) { /* what the first step of each digit adds for thread 0 */
        place[k] = 0;
        if (to->local[k].extent > 1) {
            layout_element(to, 0, unit, at);
            broadcast_coordinate(to, from, at, of);
            if (!layout_holds(from, 0, of, &place[k])) return false;
        }
        unit *= to->local[k].extent;
    }
    for (int64_t i = 0; i < locals; i++) {
        int64_t expected = 0, rest = i;
        for (int k = 0; k < to->local_modes; k++) {
            expected += rest % to->local[k].extent * place[k];
            rest /= to->local[k].extent;
        }
        for (int64_t t = 0; t < threads; t++) {
            layout_element(to, t, i, at);
            broadcast_coordinate(to, from, at, of);
            if (!layout_holds(from, t, of, &local) || local != expected) return false;
        }
    }
    return true;
}

/* ---- the hardware's ---- */

static layout factor(bool threads, int64_t rows, int64_t columns, bool column_major) {
    const tile_shape s = {2, {rows, columns}};
    return spread(&s, column_major, threads);
}

layout layout_hardware(layout_atom atom) {
    const layout rows = factor(true, 8, 4, false), columns = factor(true, 4, 8, true),
                 pair = factor(false, 1, 2, false), column_pair = factor(false, 2, 1, false),
                 warps = factor(true, 4, 1, false), quarters = factor(false, 2, 2, true);
    const struct {
        int count;
        layout factors[4];
    } all[] = {
        [LAYOUT_MMA_A] = {3, {quarters, rows, pair}},
        [LAYOUT_MMA_B] = {3, {column_pair, columns, column_pair}},
        [LAYOUT_MMA_C] = {3, {column_pair, rows, pair}},
        [LAYOUT_WGMMA_A] = {4, {warps, quarters, rows, pair}},
        [LAYOUT_MATRIX] = {2, {rows, pair}},
        [LAYOUT_MATRIX_TRANSPOSED] = {2, {columns, column_pair}},
    };
    layout l = {0};
    layout_product(&l, all[atom].factors, all[atom].count);
    return l;
}

layout layout_wgmma_accumulator(int64_t n) {
    const layout factors[] = {factor(true, 4, 1, false), factor(false, 1, n / 8, false), layout_hardware(LAYOUT_MMA_C)};
    layout l = {0};
    layout_product(&l, factors, 3);
    return l;
}
