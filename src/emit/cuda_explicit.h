/* What ops of level 2 (docs/level2.md) are written with. Pasted behind cuda_wide.h.
 *
 * Pages. An instruction of level 2 borrows its pages from the ring, as many as it has stages in pages, from its
 * beginning to its end: the loader takes them in the ring's order, as any other page, and hands them to the consumers
 * at once, with nothing in them (page_full has one arrival and no bytes). When they have been handed over, the
 * instruction's own barriers say what is in them. At the end the consumers release them as any other page, and the
 * loader may be ahead in the next instruction with the rest of the ring.
 *
 * Barriers lie in the instruction's slot. The controller makes them before it hands over the slot, so that all roles
 * see them; those that the slot's last user left are taken down by then: a slot comes around when loader and consumers
 * are both done with it.
 *
 * The storer is the controller's first lane: an instruction's storer begins when no other instruction can be decoded
 * (mt_controller), and then waits as the controller does, with an eye on the clock. At the instruction's end the
 * consumers wait until all is stored, on the last of its barriers.
 *
 * When the loader gives up it stays until its copies have landed, for they write into this CTA's memory. */
#ifndef CUDA_EXPLICIT_H
#define CUDA_EXPLICIT_H

MT_DEVICE uint64_t *mt_barrier(const mt_context *mt, int64_t number) { return (uint64_t *)mt->slot->barrier + number; }
/* Controller: the slot's barriers are taken down; then `count` from `first` on, for so many arrivals a phase. */
MT_DEVICE void mt_barriers_clear(const mt_context *mt) {
    mt_slot *s = (mt_slot *)mt->slot;
    for (uint32_t i = 0; i < s->barriers; i++) mt_mbarrier_invalidate(&s->barrier[i]);
    s->barriers = 0;
}
MT_DEVICE void mt_barriers_make(const mt_context *mt, int count, uint32_t arrivals) {
    mt_slot *s = (mt_slot *)mt->slot;
    for (int i = 0; i < count; i++) mt_mbarrier_init(&s->barrier[s->barriers++], arrivals);
}

/* Waits until a phase is over: -1, 0, 1, ... False: give up. */
MT_DEVICE bool mt_phase_over(mt_context *mt, int64_t barrier, int64_t phase) {
    MT_AT_PHASE(mt_barrier(mt, barrier), phase);
    return !mt->stopped && mt_wait(mt, mt_barrier(mt, barrier), (uint32_t)(phase & 1), CUDA_PAGE_WAIT);
}
/* Storer: the same. */
MT_DEVICE bool mt_phase_watched(mt_context *mt, int64_t barrier, int64_t phase) {
    MT_AT_PHASE(mt_barrier(mt, barrier), phase);
    return mt_watch(mt, mt_barrier(mt, barrier), (uint32_t)(phase & 1));
}
/* Consumers: this warp arrives. */
MT_DEVICE void mt_warp_arrives(const mt_context *mt, int64_t barrier) {
    __syncwarp();
    if (mt->lane == 0) mt_mbarrier_arrive(mt_barrier(mt, barrier));
}

/* Loader: takes pages and hands them over. The first one's place in the ring. */
MT_DEVICE uint32_t mt_borrow(mt_context *mt, int pages) {
    const uint32_t first = mt->page;
    ((mt_slot *)mt->slot)->first = first; /* the storer, behind a barrier at which the loader arrives */
    for (int i = 0; i < pages; i++) {
        if (!mt_page_acquire(mt)) break;
        mt_mbarrier_arrive(&mt->cta->page_full[mt->page]);
        mt_page_next(mt);
    }
    return first;
}
/* Consumers: wait until they have them. */
MT_DEVICE uint32_t mt_borrowed(mt_context *mt, int pages) {
    uint32_t page = mt->page, phase = mt->page_phase;
    for (int i = 0; i < pages; i++) {
        if (i || !mt->seen) mt_wait_page(mt, &mt->cta->page_full[page], phase);
        if (++page == mt->launch->pages) page = 0, phase ^= 1;
    }
    return mt->page;
}
MT_DEVICE void mt_give_back(mt_context *mt, int pages) {
    for (int i = 0; i < pages; i++) mt_page_release(mt, false);
}
MT_DEVICE char *mt_borrowed_page(const mt_context *mt, uint32_t first, int64_t number) {
    uint32_t page = first + (uint32_t)number;
    if (page >= mt->launch->pages) page -= mt->launch->pages;
    return mt->pages + (size_t)page * mt->launch->page_bytes;
}

/* Loader, when it gives up: `issued` has a bit for each of the `count` barriers from `first` on that flips with each
 * expect. Until all that was issued has landed: no one else arrives at such a barrier. */
MT_DEVICE void mt_landed(const mt_context *mt, uint32_t issued, int first, int count) {
    for (int i = first; i < first + count; i++)
        while (!mt_mbarrier_try(mt_barrier(mt, i), (issued >> i & 1) ^ 1)) {}
}

/* The 16-byte chunks of 8 rows of 128 (BITS 3), 64 or 32 bytes change places. */
template <int BITS> MT_DEVICE uint32_t mt_swizzled(uint32_t byte) {
    return byte ^ ((byte >> 7 & ((1u << BITS) - 1)) << 4);
}

/* Element i of a tile of 16-bit elements in registers. */
template <int N> MT_DEVICE uint16_t mt_half_at(const uint32_t (&words)[N], int i) {
    return (uint16_t)(words[i / 2] >> i % 2 * 16);
}
template <int N> MT_DEVICE void mt_put_half(uint32_t (&words)[N], int i, uint16_t v) {
    words[i / 2] = i % 2 ? (words[i / 2] & 0xffffu) | (uint32_t)v << 16 : (words[i / 2] & 0xffff0000u) | v;
}

/* ---- copies of rows ----
 * A slice of at most two dimensions of a tensor: so many rows and columns of it lie inside. */
typedef struct mt_rows {
    const char *from; /* row 0, column 0; it may lie outside */
    int64_t stride;   /* bytes */
    mt_part row, column;
} mt_rows;

/* What the copy engine brings of them: whole chunks of 16 bytes of rows that lie inside from their beginning on, if all
 * is ALIGNED. All else is written here. BYTES: of an element; `row`: from one row to the next, in shared memory. */
template <bool ALIGNED, int BYTES> MT_DEVICE int mt_rows_bytes(const mt_rows &r) {
    return ALIGNED && r.column.low == 0 ? r.column.high * BYTES / 16 * 16 : 0;
}
template <bool ALIGNED, int ROWS, int COLUMNS, int BYTES>
MT_DEVICE uint32_t mt_rows_begin(char *to, int row, const mt_rows &r) {
    const int bytes = mt_rows_bytes<ALIGNED, BYTES>(r);
    uint32_t all = 0;
    bool wrote = false;
    for (int i = 0; i < ROWS; i++) {
        const bool inside = mt_within(i, r.row);
        wrote |= !inside || bytes < COLUMNS * BYTES;
        for (int at = inside ? bytes : 0; at < COLUMNS * BYTES; at++)
            to[i * row + at] = inside && mt_within(at / BYTES, r.column) ? r.from[i * r.stride + at] : 0;
        all += inside ? (uint32_t)bytes : 0;
    }
    if (wrote) mt_fence_shared(); /* wgmma reads it, and a later copy overwrites it, through another proxy */
    return all;
}
template <bool ALIGNED, int BYTES> MT_DEVICE void mt_rows_copy(char *to, int row, const mt_rows &r, uint64_t *full) {
    const int bytes = mt_rows_bytes<ALIGNED, BYTES>(r);
    for (int i = r.row.low; i < r.row.high && bytes; i++)
        mt_bulk_load(to + i * row, r.from + i * r.stride, (uint32_t)bytes, full);
}

/* Storer: the slice is filled from a stage, as much as possible by the copy engine, row by row. */
template <bool ALIGNED, int COLUMNS, int BYTES>
MT_DEVICE void mt_rows_store(const char *from, int row, const mt_rows &r) {
    const int bytes = mt_rows_bytes<ALIGNED, BYTES>(r);
    mt_fence_copies(); /* what the instruction has waited for is overwritten through another proxy */
    for (int i = r.row.low; i < r.row.high; i++) {
        char *to = (char *)r.from + i * r.stride;
        if (bytes) mt_bulk_store(to, from + i * row, (uint32_t)bytes);
        for (int at = bytes; at < COLUMNS * BYTES; at++)
            if (mt_within(at / BYTES, r.column)) to[at] = from[i * row + at];
    }
}
/* Storer, at its end, and when it gives up: nothing reads this CTA's memory any more, and the consumers know what was
 * stored. */
MT_DEVICE void mt_stored(const mt_context *mt, int64_t barrier) {
    mt_bulk_commit();
    mt_bulk_wait();
    mt_mbarrier_arrive(mt_barrier(mt, barrier)); /* consumers, at the instruction's end */
}

#endif
