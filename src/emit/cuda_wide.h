/* Products of many rows on wgmma: tiles of 64 or 128 rows by 64, 128 or 256 columns, whose sums stay in the registers
 * of the two warpgroups until the tile's elements are computed from them and stored. Pasted behind cuda_dot.h.
 *
 * A step is 64 columns of k: one page with the left operand's rows, then pages with at most 128 rows of a weight each.
 * All lie as atoms do. With 128 rows each warpgroup has 64 of them, and all columns; with 64 rows it has its half of
 * the columns of every page. A thread's sums are `float sums[ROWS * COLUMNS / 256]`: groups of 4, each for 8 columns:
 * two neighbours of row lane / 4 of its warp's 16, and two of the row 8 below.
 *
 * A step's products are under way while the next step's are issued; only when they are done are its pages free. That
 * takes a ring of two steps; in a shorter one each step is waited for.
 *
 * Weights of a block format come in pages of packed rows (role_decoded in tile/role.h). While wgmma multiplies a step,
 * the consumers decode rows of the next chunk, each warp every eighth 8 rows, with the decoders that products of few
 * rows have (cuda_dot.h), into a tile that lies as atoms do. At the end of a chunk all meet, behind a fence that makes
 * plain stores visible to wgmma (PTX ISA: the async proxy). What may be written again then: a chunk is decoded to where
 * nobody multiplies any more: with two chunks in the tile, the last step of one is waited for before all meet; with
 * three, the step before it.
 *
 * The loader. Weights are there before the launch, but the left operand is what other instructions write: its copies
 * may be issued only when the instruction's barriers are satisfied. So the loader waits for them, too: for the very
 * words that the consumers wait for.
 *   - It cannot deadlock. Instructions of a CTA are in an order in which everything that one waits for comes before it,
 *     and the loader fills pages in that order: when it waits at instruction i, all pages of earlier instructions have
 *     been issued. Of all instructions that are not done, the first one in the program's numbering waits for nothing,
 *     its pages come, and it ends.
 *   - Memory. Another SM's consumers wrote with plain stores (the generic proxy), met, and one of them made a release:
 *     fence and relaxed add. The loader's acquire puts these stores before it; the copy engine reads through the async
 *     proxy, which causality order does not reach by itself: a proxy fence is needed somewhere between, and it stands
 *     behind the acquire, in the thread that issues the copies (PTX ISA, "Proxy-preserved base causality order": linked
 *     by a proxy fence along the way). The other way round, a store that overwrites the operand waits for consumers
 * that have seen the copy's bytes counted by the mbarrier: the reading has been done.
 *   - A launch of many runs. Which run the words count for is in their thresholds. What an instruction without a wait
 *     reads may still be written by the run before: so the loader waits until all have finished that one, as the
 *     consumers do, before its first such copy. */
#ifndef CUDA_WIDE_H
#define CUDA_WIDE_H

enum { MT_PIECE = 8192 }; /* bytes of 64 rows and 64 columns */

/* ---- loader ---- */

/* Until the instruction's operands may be read by copies. False: give up. */
MT_DEVICE bool mt_operands_ready(mt_context *mt) {
    const cuda_run *l = mt->launch;
    const program_instruction *i = &mt->slot->instruction;
    if (mt->epoch != l->epoch) mt_wait_word(mt, l->go, (uint32_t)CUDA_END_OF_RUN, 2 * (mt->epoch - 1));
    for (int w = 0; w < i->wait_count && !mt->stopped; w++) {
        const uint32_t barrier = i->wait[w] & ~CUDA_HINT;
        mt_wait_word(mt, l->counters + barrier, barrier, i->target[w] * mt->epoch, i->wait[w] & CUDA_HINT);
    }
    mt_fence_copies();
    return !mt->stopped;
}

MT_DEVICE const cuda_map *mt_map(const mt_context *mt, int tensor) {
    return mt->launch->maps + CUDA_MAPS * mt->slot->instruction.tensor[tensor];
}
/* The operand's maps may be used: once a launch that is not known yet (the CUDA guide wants it of maps in device
 * memory). */
MT_DEVICE void mt_map_ready(const mt_context *mt, int tensor) {
    const uint32_t operand = mt->slot->instruction.tensor[tensor], word = operand / 32;
    const bool kept = word < CUDA_MAP_WORDS;
    if (kept && mt->cta->mapped[word] >> operand % 32 & 1) return;
    for (int i = 0; i < CUDA_MAPS; i++) mt_fence_map(mt_map(mt, tensor) + i);
    if (kept) mt->cta->mapped[word] |= 1u << operand % 32; /* nobody but the loader looks */
}

/* The next page: `pieces` times 64 rows, from row `row` on, of the columns from 64 * step. ATOMS: of a weight. False:
 * give up. */
template <bool ATOMS> MT_DEVICE bool mt_wide_page(mt_context *mt, const cuda_map *map, int step, int row, int pieces) {
    char *page = mt_page_acquire(mt);
    if (!page) return false;
    uint64_t *full = mt_page_expect(mt, (uint32_t)(pieces * MT_PIECE));
    for (int i = 0; i < pieces; i++)
        if (ATOMS)
            mt_map_load_atoms(page + i * MT_PIECE, map, step, row / 8 + i * 8, full);
        else
            mt_map_load_rows(page + i * MT_PIECE, map, step * 64, row + i * 64, full);
    mt_page_next(mt);
    return true;
}

/* The next page: 64 columns, from x on, of rows z .. z + 64 * pieces - 1 of a matrix, or of rows y of these slices. */
template <int RANK> MT_DEVICE bool mt_slice_page(mt_context *mt, const cuda_map *map, int x, int y, int z, int pieces) {
    char *page = mt_page_acquire(mt);
    if (!page) return false;
    uint64_t *full = mt_page_expect(mt, (uint32_t)(pieces * MT_PIECE));
    for (int i = 0; i < pieces; i++)
        if (RANK == 3)
            mt_map_load_slices(page + i * MT_PIECE, map, x, y, z + i * 64, full);
        else
            mt_map_load_rows(page + i * MT_PIECE, map, x, z + i * 64, full);
    mt_page_next(mt);
    return true;
}

/* A weight in blocks: its maps, and the first row of a tile. */
typedef struct mt_weight {
    const cuda_map *maps;
    int first;
} mt_weight;
/* The next page: rows of a chunk of weights in blocks, from row `at` of both products' rows on, PIECES times 64.
 * Product a has COLUMNS rows, the others are b's. `map`: the one for band `band`; the copy begins at byte x of a row
 * there, a multiple of 16. */
template <int PIECES, int ROW, int COLUMNS>
MT_DEVICE bool mt_packed_page(mt_context *mt, mt_weight a, mt_weight b, int map, int x, int band, int at) {
    enum { BYTES = 64 * ROW };
    char *page = mt_page_acquire(mt);
    if (!page) return false;
    uint64_t *full = mt_page_expect(mt, PIECES * BYTES);
#pragma unroll 1
    for (int i = 0; i < PIECES; i++) {
        const int row = at + i * 64;
        const bool second = row >= COLUMNS;
        mt_map_load_blocks(page + i * BYTES, (second ? b.maps : a.maps) + map, x, band,
                           ((second ? b.first - COLUMNS : a.first) + row) / 8, full);
    }
    mt_page_next(mt);
    return true;
}

/* ---- consumers ---- */

/* The next page's matrix, from this warpgroup's part on, which is `part` bytes behind the other's. */
MT_DEVICE uint64_t mt_wide_take(mt_context *mt, int part) {
    const char *page = mt_page_take(mt);
    mt_page_next(mt);
    return mt_wgmma_matrix(page + mt->warp / 4 * part);
}
/* This warp has read `pages` pages, from that one of the ring on. */
MT_DEVICE void mt_wide_release(mt_context *mt, uint32_t page, int pages) {
    __syncwarp();
    for (int i = 0; i < pages; i++) {
        if (mt->lane == 0) mt_mbarrier_arrive(&mt->cta->page_empty[page]); /* loader's mt_page_acquire */
        if (++page == mt->launch->pages) page = 0;
    }
}
/* At the end of a step whose left operand is in `page`. `later`: its products may stay under way; those of the step
 * before are done. `before`: the page of these, or MT_NONE. */
enum { MT_NONE = CUDA_MOST_PAGES };
MT_DEVICE void mt_wide_done(mt_context *mt, bool later, uint32_t page, uint32_t &before) {
    later ? mt_wgmma_wait<1>() : mt_wgmma_wait<0>();
    if (before != MT_NONE) mt_wide_release(mt, before, 1);
    if (!later) mt_wide_release(mt, page, 1);
    before = later ? page : (uint32_t)MT_NONE;
}
/* sums[AT ...] += left · right: 64 columns of k. */
template <bool F16, int N, int AT, int R> MT_DEVICE void mt_wide_step(float (&sums)[R], uint64_t left, uint64_t right) {
#pragma unroll
    for (int k = 0; k < 4; k++) mt_wgmma<F16, N, AT>(sums, left + k * 2, right + k * 2);
}

/* Takes the next page, PIECES times 64 rows of CHUNK columns in blocks, ROW bytes apart and `skip` bytes behind where
 * the copy began, decodes the first `columns` of them (the others are zeros) into `tile`: from its row there on, of
 * ROWS rows, 64 columns of all after each other. A warp has the 8 rows of each piece that are its own; lane l of them
 * the row l / 4, the even ones first: so the two halves of a warp, whose 8 bytes a lane are stored one after the other,
 * reach all banks. */
template <typename FORMAT, int CHUNK, int ROW, int PIECES, int ROWS>
MT_DEVICE void mt_decode_page(mt_context *mt, char *tile, int skip, int columns) {
    enum { SLICES = FORMAT::BLOCK / 32 };
    const char *page = mt_page_take(mt);
    mt_forget(mt); /* no registers for these places while wgmma has most of them */
    const int r = mt->lane / 4 % 4 * 2 + mt->lane / 16, q = mt->lane % 4, row = mt->warp * 8 + r;
    const uint8_t *from = (const uint8_t *)page + row * ROW + skip;
    char *to = tile + row * 128 + q % 2 * 8;
    const int chunk = (q / 2 ^ r) << 4;
#pragma unroll 1
    for (int i = 0; i < PIECES; i++)
#pragma unroll
        for (int s = 0; s < CHUNK / 32; s++) {
            uint32_t w[4] = {0, 0, 0, 0}; /* 4 columns from 4 q on, and 4 from 16 + 4 q on */
            if (s * 32 < columns) FORMAT::slice(w, from + i * 64 * ROW + s / SLICES * FORMAT::BYTES, s % SLICES, q);
            char *at = to + s / 2 * ROWS * 128 + i * MT_PIECE;
            *(uint2 *)(at + (chunk ^ s % 2 * 64)) = make_uint2(w[0], w[1]);
            *(uint2 *)(at + (chunk ^ s % 2 * 64 ^ 32)) = make_uint2(w[2], w[3]);
        }
    mt_page_release(mt, false);
}

/* The row of a thread's upper (half 0) or lower elements in the tile, and the first column of a group. */
template <int ROWS> MT_DEVICE int mt_wide_row(const mt_context *mt, int half) {
    return (ROWS == 128 ? mt->warp : mt->warp % 4) * 16 + mt->lane / 4 + half * 8;
}
template <int ROWS, int COLUMNS> MT_DEVICE int mt_wide_column(const mt_context *mt, int group) {
    enum { PAGE = COLUMNS < 128 ? COLUMNS : 128, PART = ROWS == 128 ? PAGE : PAGE / 2, GROUPS = PART / 8 };
    return group / GROUPS * PAGE + (ROWS == 128 ? 0 : mt->warp / 4 * PART) + group % GROUPS * 8 + mt->lane % 4 * 2;
}

/* ---- tiles ---- */

/* Where element (row, k) lies in a tile that lies as atoms do: 64 columns of all rows, then the next 64. */
template <typename T> MT_DEVICE T *mt_atoms_place(T *tile, int row, int k, int rows) {
    return (T *)((char *)tile + ((k >> 6) * rows + row) * 128 + (((k >> 3 & 7) ^ (row & 7)) << 4) + (k & 7) * 2);
}
/* This warpgroup's 64 rows of 64 columns of such a tile of 128 rows. */
MT_DEVICE uint64_t mt_tile_matrix(const mt_context *mt, const void *tile, int columns) {
    return mt_wgmma_matrix((const char *)tile + (columns * 2 + mt->warp / 4) * MT_PIECE);
}
/* A taken page's rows from `there` on become zeros. All consumers; then mt_fence_shared and mt_sync. */
MT_DEVICE void mt_page_clear(const mt_context *mt, const char *page, int there, int rows) {
    for (int i = there * 8 + mt->thread; i < rows * 8; i += CUDA_CONSUMERS)
        *(uint4 *)((char *)page + i * 16) = make_uint4(0, 0, 0, 0);
}
/* sums[AT ...] += tile · page: 16 * STEPS rows of 64 columns. */
template <bool F16, int STEPS, int AT, int R>
MT_DEVICE void mt_tile_step(float (&sums)[R], const uint32_t (&tile)[STEPS][4], uint64_t right) {
#pragma unroll
    for (int k = 0; k < STEPS; k++) mt_wgmma_tile<F16, AT>(sums, tile[k], right + k * 128);
}

#endif
