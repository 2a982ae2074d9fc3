/* Products of few rows on the tensor cores, with weights from pages. Pasted behind cuda_math.h.
 *
 * m16n8k16 with the activations as the 16 x 16 operand (rows of the batch; one row is repeated) and 8 weight rows as
 * the 16 x 8 operand. Lane l has weight row l / 4 and, with q = l % 4, of 16 columns the ones that mma calls 2q,
 * 2q + 1, 2q + 8, 2q + 9. Which columns of the weight those are is free, as long as both operands agree: so a lane
 * takes neighbours.
 *   atoms: of 64 columns the 16 from 16 q on: chunks 2q and 2q + 1 of its row, two mma each
 *   bands: of 32 columns 4 from 4 q on and 4 from 16 + 4 q on: one mma each
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

/* The panel's rows that a lane reads: row l / 4, and with more than 8 rows also the one 8 below. What is beyond the
 * last row is not used. */
template <int ROWS> MT_DEVICE const char *mt_panel_row(const void *panel, int stride, int lane) {
    const int row = lane / 4;
    return (const char *)panel + (ROWS == 1 ? 0 : row < ROWS ? row : ROWS - 1) * stride;
}
template <int ROWS> MT_DEVICE int mt_panel_below(int stride, int lane) {
    return (lane / 4 + 8 < ROWS ? 8 : 0) * (ROWS > 8 ? stride : 0);
}

/* A page of `atoms` <= 16 atoms. `row`: mt_panel_row at the page's first column. */
template <int ROWS, int TYPE, int WEIGHT>
MT_DEVICE void mt_dense_page(mt_context *mt, float (&even)[4], float (&odd)[4], int atoms, const char *row,
                             int stride) {
    const char *page = mt_page_take(mt);
    const int r = mt->lane / 4, q = mt->lane % 4;
    uint4 w[4], v[4], u[4]; /* weights; rows of the panel; rows 8 below */
    const int below = mt_panel_below<ROWS>(stride, mt->lane);
#pragma unroll
    for (int i = 0; i < 4; i++) { /* atom i / 2 of this warp, chunk 2q + i % 2 */
        const int atom = mt->warp + i / 2 * CUDA_WARPS, chunk = 2 * q + i % 2;
        if (atom < atoms) {
            w[i] = *(const uint4 *)(page + atom * 1024 + r * 128 + ((chunk ^ r) << 4));
            v[i] = *(const uint4 *)(row + atom * 128 + chunk * 16);
            if (ROWS > 8) u[i] = *(const uint4 *)(row + below + atom * 128 + chunk * 16);
        }
    }
    mt_page_release(mt);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (mt->warp + i / 2 * CUDA_WARPS >= atoms) continue;
        const uint4 x = ROWS == 1 ? v[i] : ROWS > 8 ? u[i] : make_uint4(0, 0, 0, 0);
        mt_mma<TYPE>(even, v[i].x, x.x, v[i].y, x.y, mt_as<WEIGHT, TYPE>(w[i].x), mt_as<WEIGHT, TYPE>(w[i].y));
        mt_mma<TYPE>(odd, v[i].z, x.z, v[i].w, x.w, mt_as<WEIGHT, TYPE>(w[i].z), mt_as<WEIGHT, TYPE>(w[i].w));
    }
}

/* A page of 8 rows of `bytes` bytes of blocks, `columns` of them. FORMAT has the sizes of a block and its decoder: the
 * 8 elements of lane q of slice `slice` of a block. */
template <int ROWS, int TYPE, typename FORMAT>
MT_DEVICE void mt_block_page(mt_context *mt, float (&even)[4], float (&odd)[4], int columns, int bytes, const char *row,
                             int stride) {
    const char *page = mt_page_take(mt);
    const int q = mt->lane % 4, below = mt_panel_below<ROWS>(stride, mt->lane);
    const uint8_t *blocks = (const uint8_t *)page + mt->lane / 4 * bytes;
    enum { SLICES = FORMAT::BLOCK / 32 };
#pragma unroll 2
    for (int s = mt->warp; s < columns / 32; s += CUDA_WARPS) {
        float e[8];
        FORMAT::slice(e, blocks + s / SLICES * FORMAT::BYTES, s % SLICES, q);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint2 v = *(const uint2 *)(row + s * 64 + half * 32 + q * 8);
            uint2 x = v;
            if (ROWS > 8)
                x = *(const uint2 *)(row + below + s * 64 + half * 32 + q * 8);
            else if (ROWS > 1)
                x = make_uint2(0, 0);
            mt_mma<TYPE>(half ? odd : even, v.x, x.x, v.y, x.y, mt_pair<TYPE>(e[half * 4], e[half * 4 + 1]),
                         mt_pair<TYPE>(e[half * 4 + 2], e[half * 4 + 3]));
        }
    }
    mt_page_release(mt);
}

/* What this warp has of an 8-row block goes to its rows [ROWS, stride] of the parts: columns `at` .. at + 7. */
template <int ROWS>
MT_DEVICE void mt_leave(float *parts, int stride, int at, const float (&even)[4], const float (&odd)[4],
                        const mt_context *mt, bool adds) {
    const int r = mt->lane / 4, q = mt->lane % 4;
    float *to = parts + (mt->warp * ROWS + r) * stride + at + 2 * q;
#pragma unroll
    for (int half = 0; half < (ROWS > 8 ? 2 : 1); half++, to += 8 * stride) {
        if (r + 8 * half >= ROWS) continue;
        const float a = even[2 * half] + odd[2 * half], b = even[2 * half + 1] + odd[2 * half + 1];
        to[0] = adds ? to[0] + a : a;
        to[1] = adds ? to[1] + b : b;
    }
}

#endif
