/* Products of few rows on the tensor cores, with weights from pages. Pasted behind cuda_math.h.
 *
 * m16n8k16 multiplies 16 x 16 by 16 x 8. Lane l has the row l / 4 of 8 weight rows and, with q = l % 4, of a run of
 * columns those of its quarter: which ones is free, as long as both operands agree, so it takes neighbours.
 *   atoms: of 64 columns the 16 from 16 q on: chunks 2q and 2q + 1 of its row
 *   bands: of 32 columns 4 from 4 q on (the low half) and 4 from 16 + 4 q on (the high half)
 * More than 4 rows of the batch (one row is repeated): they are the 16 x 16 operand, the weights the 16 x 8 one, and
 * each half takes an mma.
 * At most 4: the weights are the 16 x 16 operand, the low halves as its first 8 rows, the high halves as the last 8; of
 * the 8 columns, 2j has row j of the batch for the low halves and 2j + 1 for the high ones. One mma takes both halves;
 * the two of its four quadrants that mean something lie in the same lane, q = j: elements 0 and 3 of its fragment.
 *
 * Every warp takes every eighth atom, or slice of 32 columns, of a page, and keeps sums in two fragments, so that two
 * mma are under way. */
#ifndef CUDA_DOT_H
#define CUDA_DOT_H

enum { MT_BF16, MT_F16 };

template <int TYPE> MT_DEVICE uint32_t mt_pair(float a, float b) {
    return TYPE == MT_BF16 ? mt_bf16_pair(a, b) : mt_f16_pair(a, b);
}
template <int TYPE> MT_DEVICE float mt_half_of(uint32_t code) {
    return TYPE == MT_BF16 ? mt_f32_from_bf16(code & 0xffff) : mt_f32_from_f16(code & 0xffff);
}
/* Two elements of the weight's type as two of the product's. */
template <int FROM, int TO> MT_DEVICE uint32_t mt_as(uint32_t two) {
    return FROM == TO ? two : mt_pair<TO>(mt_half_of<FROM>(two), mt_half_of<FROM>(two >> 16));
}
template <int TYPE>
MT_DEVICE void mt_mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    if (TYPE == MT_BF16)
        mt_mma_bf16(d, a0, a1, a2, a3, b0, b1);
    else
        mt_mma_f16(d, a0, a1, a2, a3, b0, b1);
}

/* Where a lane begins to read the panel. With more than 4 rows: row l / 4, and with more than 8 also the one 8 below;
 * with at most 4: row l / 8. What is beyond the last row is not used. */
template <int ROWS> MT_DEVICE const char *mt_panel_row(const void *panel, int stride, int lane) {
    const int row = ROWS > 4 ? lane / 4 : lane / 8;
    return (const char *)panel + (ROWS == 1 ? 0 : row < ROWS ? row : ROWS - 1) * stride;
}
template <int ROWS> MT_DEVICE int mt_panel_below(int stride, int lane) {
    return (lane / 4 + 8 < ROWS ? 8 : 0) * (ROWS > 8 ? stride : 0);
}

/* A page of `atoms` atoms, from LEAST to 16. `row`: mt_panel_row at the page's first column. With at most 4 rows the
 * low half of a chunk is its pairs 0 and 2, the high one 1 and 3: so a chunk as it was loaded is an operand. */
template <int ROWS, int TYPE, int WEIGHT, int LEAST>
MT_DEVICE void mt_dense_page(mt_context *mt, float (&even)[4], float (&odd)[4], int atoms, const char *row,
                             int stride) {
    const char *page = mt_page_take(mt);
    const bool seen = mt_page_look(mt);
    const int r = mt->lane / 4, q = mt->lane % 4;
    uint4 w[4], v[4]; /* weights; rows of the panel (at most 4: x, y its pairs) */
    const int below = mt_panel_below<ROWS>(stride, mt->lane);
#pragma unroll
    for (int i = 0; i < 4; i++) { /* atom i / 2 of this warp, chunk 2q + i % 2 */
        const int atom = mt->warp + i / 2 * CUDA_WARPS, chunk = 2 * q + i % 2;
        if ((i / 2 + 1) * CUDA_WARPS <= LEAST || atom < atoms) {
            const char *from = row + atom * 128 + chunk * 16;
            w[i] = *(const uint4 *)(page + atom * 1024 + r * 128 + ((chunk ^ r) << 4));
            if (ROWS <= 4) {
                v[i].x = *(const uint32_t *)(from + r % 2 * 4);
                v[i].y = *(const uint32_t *)(from + r % 2 * 4 + 8);
            } else if (ROWS <= 8)
                v[i] = *(const uint4 *)from;
        }
    }
    mt_page_release(mt, seen);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if ((i / 2 + 1) * CUDA_WARPS > LEAST && mt->warp + i / 2 * CUDA_WARPS >= atoms) continue;
        const uint32_t b[4] = {mt_as<WEIGHT, TYPE>(w[i].x), mt_as<WEIGHT, TYPE>(w[i].y), mt_as<WEIGHT, TYPE>(w[i].z),
                               mt_as<WEIGHT, TYPE>(w[i].w)};
        if (ROWS <= 4)
            mt_mma<TYPE>(i % 2 ? odd : even, b[0], b[1], b[2], b[3], v[i].x, v[i].y);
        else {
            uint4 x = make_uint4(0, 0, 0, 0);
            if (ROWS > 8) { /* the panel stays: not all of it in registers at once */
                const char *from = row + (mt->warp + i / 2 * CUDA_WARPS) * 128 + (2 * q + i % 2) * 16;
                v[i] = *(const uint4 *)from;
                x = *(const uint4 *)(from + below);
            }
            mt_mma<TYPE>(even, v[i].x, x.x, v[i].y, x.y, b[0], b[1]);
            mt_mma<TYPE>(odd, v[i].z, x.z, v[i].w, x.w, b[2], b[3]);
        }
    }
}

/* ---- weights in blocks ----
 *
 * FORMAT has the sizes of a block and its decoder: the 8 elements of lane q of slice `slice` of a block, as pairs of
 * the product's type. Where it also gives codes and scales apart (emit_cuda_format.c), a product of at most 4 rows
 * multiplies the codes, half a slice at a time, and what comes out by the half's scale, in f32: that is fewer
 * instructions, and nothing is rounded to f16. The offset is multiplied by the sum of the panel's elements there: what
 * a product with ones gives. So roundings are those of f32, of scale * code * x and offset * x each. All is 2^-POWER of
 * what it stands for, until the sums leave the registers.
 *
 * With an offset, an infinite element of the panel (of f16: of activations beyond 65504) makes NaN of every sum that it
 * is in, where (scale * code + offset) * x can be an infinity: 0 * x for a code of 0, or two infinities of different
 * signs. The sign is in the elements, which nobody has here; to make them when a sum of the panel's is not finite would
 * take a test a slice, in loops whose instructions are what they take, and a second decoder in the code of each. So a
 * row that has overflowed says so by NaN. Without an offset both ways give the same. */

template <typename FORMAT, int ROWS> MT_DEVICE constexpr bool mt_apart() { return ROWS <= 4 && FORMAT::APART; }

/* Sums of the panel's elements of this warp's slices: of each half; x[i][0] of both where FORMAT has one scale for
 * these. Of `columns` columns from `row` on. */
template <int ROWS, typename FORMAT, int LEAST, int N>
MT_DEVICE void mt_panel_sums(float (&x)[N][2], int columns, const char *row, const mt_context *mt) {
    if constexpr (mt_apart<FORMAT, ROWS>())
        if constexpr (FORMAT::OFFSET) {
            const uint32_t one =
                FORMAT::POWER > 14 ? 0x00010001u << (24 - FORMAT::POWER) : 0x04000400u * (15 - FORMAT::POWER);
#pragma unroll
            for (int i = 0; i < N; i++)
                if ((i + 1) * CUDA_WARPS * 32 <= LEAST || mt->warp + i * CUDA_WARPS < columns / 32) {
                    const uint2 v = *(const uint2 *)(row + (mt->warp + i * CUDA_WARPS) * 64 + mt->lane / 4 % 2 * 32 +
                                                     mt->lane % 4 * 8);
                    float d[4] = {0, 0, 0, 0};
                    mt_mma<FORMAT::PRODUCT>(d, one, one, one, one, v.x, v.y);
                    x[i][0] = FORMAT::SAME ? d[0] + d[1] : d[0];
                    x[i][1] = d[1];
                }
        }
}

/* Slice warp + i * CUDA_WARPS of 8 rows: `row` is the lane's place in the panel, `blocks` its row in the page. */
template <int ROWS, typename FORMAT>
MT_DEVICE void mt_slice(float (&even)[4], float (&odd)[4], int i, const char *row, int below, const uint8_t *blocks,
                        const float (&x)[2], const mt_context *mt) {
    enum { SLICES = FORMAT::BLOCK / 32, TYPE = FORMAT::PRODUCT, WHOLE = CUDA_WARPS % SLICES == 0 };
    const int q = mt->lane % 4, s = mt->warp + i * CUDA_WARPS;
    const int block = WHOLE ? mt->warp / SLICES + i * (CUDA_WARPS / SLICES) : s / SLICES,
              slice = WHOLE ? mt->warp % SLICES : s % SLICES;
    uint32_t w[4]; /* the low half's pairs, then the high half's */
    if constexpr (mt_apart<FORMAT, ROWS>()) {
        float scale[2], offset[2], d[4] = {0, 0, 0, 0};
        FORMAT::apart(w, scale, offset, blocks + block * FORMAT::BYTES, slice, q);
        const uint2 v = *(const uint2 *)(row + s * 64 + mt->lane / 4 % 2 * 32 + q * 8);
        mt_mma<TYPE>(d, w[0], w[2], w[1], w[3], v.x, v.y);
        float *sum = i % 2 ? odd : even;
        const float high = FORMAT::HIGHER < 0 ? 1.0f / (1 << (FORMAT::HIGHER < 0 ? -FORMAT::HIGHER : 0))
                                              : (float)(1 << (FORMAT::HIGHER < 0 ? 0 : FORMAT::HIGHER));
        const float product[2] = {FORMAT::SAME ? d[0] + d[3] * high : d[0], d[3] * high};
#pragma unroll
        for (int half = 0; half < (FORMAT::SAME ? 1 : 2); half++) {
            sum[0] += scale[half] * product[half];
            if (FORMAT::OFFSET) sum[0] += offset[half] * x[half];
        }
        return;
    }
    FORMAT::slice(w, blocks + block * FORMAT::BYTES, slice, q);
    if (ROWS <= 4) {
        const uint2 v = *(const uint2 *)(row + s * 64 + mt->lane / 4 % 2 * 32 + q * 8);
        mt_mma<TYPE>(i % 2 ? odd : even, w[0], w[2], w[1], w[3], v.x, v.y);
    }
#pragma unroll
    for (int half = 0; half < (ROWS > 4 ? 2 : 0); half++) {
        const uint2 v = *(const uint2 *)(row + s * 64 + half * 32 + q * 8);
        uint2 y = make_uint2(0, 0);
        if (ROWS > 8) y = *(const uint2 *)(row + below + s * 64 + half * 32 + q * 8);
        mt_mma<TYPE>(half ? odd : even, v.x, y.x, v.y, y.y, w[half * 2], w[half * 2 + 1]);
    }
}

/* A page of EIGHTS times 8 rows, `bytes` apart, of blocks: `columns` of them, from LEAST on, at most N slices of a
 * warp. All of these are one straight run of code, so that their loads and decodings overlap, and the panel is read
 * once. The last page may have fewer rows, `eights`: in the place of the others the last of them are taken again, and
 * given up. */
template <int ROWS, typename FORMAT, int LEAST, int N, int EIGHTS>
MT_DEVICE void mt_block_page(mt_context *mt, float (&sums)[EIGHTS][2][4], const float (&x)[N][2], int eights,
                             int columns, int bytes, const char *row, int stride) {
    const char *page = mt_page_take(mt);
    const bool seen = mt_page_look(mt);
    const int below = mt_panel_below<ROWS>(stride, mt->lane);
    const uint8_t *blocks = (const uint8_t *)page + mt->lane / 4 * bytes;
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((i + 1) * CUDA_WARPS * 32 <= LEAST || mt->warp + i * CUDA_WARPS < columns / 32)
#pragma unroll
            for (int e = 0; e < EIGHTS; e++)
                mt_slice<ROWS, FORMAT>(sums[e][0], sums[e][1], i, row, below,
                                       blocks + (e < eights ? e : eights - 1) * 8 * bytes, x[i], mt);
    mt_page_release(mt, seen);
#pragma unroll
    for (int e = 0; e < EIGHTS; e++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (e >= eights) sums[e][j / 4][j % 4] = 0;
}
/* Behind the last page: the sums are what they stand for. */
template <int ROWS, typename FORMAT, int EIGHTS> MT_DEVICE void mt_block_sums(float (&sums)[EIGHTS][2][4]) {
    if constexpr (mt_apart<FORMAT, ROWS>())
#pragma unroll
        for (int e = 0; e < EIGHTS; e++) {
            sums[e][0][0] = (sums[e][0][0] + sums[e][1][0]) * (float)(1 << FORMAT::POWER);
            sums[e][0][3] = sums[e][1][0] = sums[e][1][3] = -0.0f; /* nothing to add */
        }
}

/* What this warp has of an 8-row block goes to its rows [ROWS, stride] of the parts: columns `at` .. at + 7. */
template <int ROWS>
MT_DEVICE void mt_leave(float *parts, int stride, int at, const float (&even)[4], const float (&odd)[4],
                        const mt_context *mt, bool adds) {
    const int r = mt->lane / 4, q = mt->lane % 4;
    if (ROWS <= 4) {
        float *to = parts + (mt->warp * ROWS + q) * stride + at + r;
        const float a = mt_by_all((even[0] + even[3]) + (odd[0] + odd[3]));
        if (q < ROWS) *to = adds ? *to + a : a;
    }
#pragma unroll
    for (int half = 0; half < (ROWS > 8 ? 2 : ROWS > 4 ? 1 : 0); half++) {
        if (r + 8 * half >= ROWS) continue;
        float *to = parts + (mt->warp * ROWS + r + 8 * half) * stride + at + 2 * q;
        const float a = even[2 * half] + odd[2 * half], b = even[2 * half + 1] + odd[2 * half + 1];
        to[0] = adds ? to[0] + a : a;
        to[1] = adds ? to[1] + b : b;
    }
}

/* ---- a right operand that is read where it lies ----
 *
 * It is the 16 x 16 operand, the left one (at most 8 rows a tile) the 16 x 8 one. As above, the order of k within a
 * step is free as long as both agree, and so is the order of the result's columns: a lane reads vectors of 8
 * neighbours. */

MT_DEVICE uint4 mt_words(const uint16_t (&code)[8]) {
    return make_uint4(code[0] | (uint32_t)code[1] << 16, code[2] | (uint32_t)code[3] << 16,
                      code[4] | (uint32_t)code[5] << 16, code[6] | (uint32_t)code[7] << 16);
}

/* Along k: lane l has of 32 columns of k the 8 from 8 (l % 4) on, of row l / 4. What is beyond the last row is not
 * used.
 */
template <int TILES, int CHUNKS>
MT_DEVICE void mt_take_left(uint4 (&to)[TILES][CHUNKS], const uint16_t *panel, int stride, int rows, int lane) {
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            to[t][c] = *(const uint4 *)(panel + mt_min32(t * 8 + lane / 4, rows - 1) * stride + c * 32 + lane % 4 * 8);
}
/* word[0]: of row l / 4 of 16; word[1]: of the row 8 below. */
template <int TYPE, int TILES, int CHUNKS>
MT_DEVICE void mt_dot_rows(float (&sum)[TILES][4], const uint4 (&word)[2][CHUNKS], const uint4 (&left)[TILES][CHUNKS]) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            mt_mma<TYPE>(sum[t], word[0][c].x, word[1][c].x, word[0][c].y, word[1][c].y, left[t][c].x, left[t][c].y);
            mt_mma<TYPE>(sum[t], word[0][c].z, word[1][c].z, word[0][c].w, word[1][c].w, left[t][c].z, left[t][c].w);
        }
}
/* To 16 columns of a buffer [ROWS, stride]. */
template <int ROWS, bool ADDS, int TILES>
MT_DEVICE void mt_leave_rows(float *to, int stride, const float (&sum)[TILES][4], int lane) {
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = t * 8 + lane % 4 * 2 + i % 2;
            float *at = to + row * stride + lane / 4 + i / 2 * 8;
            if (row < ROWS) *at = ADDS ? *at + sum[t][i] : sum[t][i];
        }
}

/* Along n: of 16 steps of k lane l has 2 (l % 4), the one after it, and the two 8 after those (word[0] to word[3]),
 * each with 8 columns, from 8 (l / 4) on. Row l / 4 of the 16 x 16 operand's half i is such a lane's column 2 i (and 2
 * i + 1 as the row 8 below). `left`: the panel at the first of the steps. */
template <int TYPE, int TILES>
MT_DEVICE void mt_dot_columns(float (&sum)[TILES][4][4], const uint4 (&word)[4], const uint16_t *left, int stride,
                              int rows, int lane) {
    uint32_t b[TILES][2];
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            b[t][half] =
                *(const uint32_t *)(left + mt_min32(t * 8 + lane / 4, rows - 1) * stride + lane % 4 * 2 + half * 8);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t w[4];
#pragma unroll
        for (int s = 0; s < 4; s++) w[s] = i == 0 ? word[s].x : i == 1 ? word[s].y : i == 2 ? word[s].z : word[s].w;
        const uint32_t a0 = mt_bytes(w[0], w[1], 0x5410), a1 = mt_bytes(w[0], w[1], 0x7632),
                       a2 = mt_bytes(w[2], w[3], 0x5410), a3 = mt_bytes(w[2], w[3], 0x7632);
#pragma unroll
        for (int t = 0; t < TILES; t++) mt_mma<TYPE>(sum[t][i], a0, a1, a2, a3, b[t][0], b[t][1]);
    }
}
/* To this warp's part [ROWS, stride], at the lane's first column. */
template <int ROWS, int TILES>
MT_DEVICE void mt_leave_columns(float *to, int stride, const float (&sum)[TILES][4][4], int lane) {
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = t * 8 + lane % 4 * 2 + r;
            if (row >= ROWS) continue;
            float *at = to + row * stride; /* of 8 columns */
            const float columns[8] = {sum[t][0][r], sum[t][0][2 + r], sum[t][1][r], sum[t][1][2 + r],
                                      sum[t][2][r], sum[t][2][2 + r], sum[t][3][r], sum[t][3][2 + r]};
            mt_put(at, columns);
        }
}

#endif
