/* What emitted code is written in, part two: vectors, sums in lanes, and dot.
 *
 * Order of sums. A sum along the last axis is taken in 64 lanes, element i in lane i % 64, the lanes then folded in
 * half until one is left. dot with rows of weights (C[m, n] += sum over k of A[m, k] B[n, k]) has MT_LANES lanes along
 * k, each a chain of fused multiply-adds in the order of k, folded in half at the end; that holds for one row of A and
 * for many, whatever path is taken, so a row's result does not depend on its company. dot with B[k, n] continues C by
 * one chain in the order of k. */
#ifndef CPU_VECTOR_H
#define CPU_VECTOR_H

#if defined __x86_64__ && defined __AVX512F__ && defined __AVX512BW__ && defined __AVX512DQ__
#define MT_LANES   16
#define MT_M(name) _mm512_##name
#elif defined __x86_64__ && defined __AVX2__
#define MT_LANES   8
#define MT_M(name) _mm256_##name
#else
#define MT_LANES 4
#endif

typedef float mt_vec __attribute__((vector_size(4 * MT_LANES)));
typedef int32_t mt_ivec __attribute__((vector_size(4 * MT_LANES)));
typedef uint32_t mt_uvec __attribute__((vector_size(4 * MT_LANES)));

MT_INLINE mt_vec mt_load(const float *p) {
    mt_vec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
MT_INLINE void mt_store(float *p, mt_vec v) { __builtin_memcpy(p, &v, sizeof v); }
MT_INLINE mt_vec mt_splat(float x) { return x - (mt_vec){0}; }
MT_INLINE mt_vec mt_to_float(mt_ivec v) { return __builtin_convertvector(v, mt_vec); }
/* Lanes of a where the mask has all bits set, of b where it has none. */
MT_INLINE mt_vec mt_select(mt_ivec mask, mt_vec a, mt_vec b) {
    return (mt_vec)((mask & (mt_ivec)a) | (~mask & (mt_ivec)b));
}
MT_INLINE mt_ivec mt_iselect(mt_ivec mask, mt_ivec a, mt_ivec b) { return (mask & a) | (~mask & b); }

MT_INLINE mt_vec mt_vfma(mt_vec a, mt_vec b, mt_vec c) {
#if MT_LANES == 16
    return (mt_vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif MT_LANES == 8 && defined __FMA__
    return (mt_vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    mt_vec v = {0};
    for (int l = 0; l < MT_LANES; l++) v[l] = mt_fma(a[l], b[l], c[l]);
    return v;
#endif
}

/* MT_LANES integers from memory, widened. */
MT_INLINE mt_ivec mt_load_u8(const uint8_t *p) {
#if MT_LANES == 16
    return (mt_ivec)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif MT_LANES == 8
    return (mt_ivec)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
    mt_ivec v = {0};
    for (int l = 0; l < MT_LANES; l++) v[l] = p[l];
    return v;
#endif
}
MT_INLINE mt_ivec mt_load_i8(const uint8_t *p) {
#if MT_LANES == 16
    return (mt_ivec)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif MT_LANES == 8
    return (mt_ivec)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
    mt_ivec v = {0};
    for (int l = 0; l < MT_LANES; l++) v[l] = (int8_t)p[l];
    return v;
#endif
}
MT_INLINE mt_ivec mt_load_u16(const uint8_t *p) {
#if MT_LANES == 16
    return (mt_ivec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
#elif MT_LANES == 8
    return (mt_ivec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
#else
    mt_ivec v = {0};
    for (int l = 0; l < MT_LANES; l++) v[l] = mt_get16(p + 2 * l);
    return v;
#endif
}
/* l, l + 1, ... */
MT_INLINE mt_ivec mt_lane(int l) {
    mt_ivec v = {0};
    for (int i = 0; i < MT_LANES; i++) v[i] = l + i;
    return v;
}
/* Lanes l and on of sixteen elements of `bits` < 8 bits that follow each other from p on. */
MT_INLINE mt_ivec mt_load_bits(const uint8_t *p, int bits, int l) {
    const mt_ivec lane = mt_lane(l), zero = {0};
    mt_ivec word, shift;
    if (bits <= 2) {
        word = zero + (int32_t)(bits == 1 ? mt_get16(p) : mt_get32(p));
        shift = lane * bits;
    } else {
        const uint64_t low = mt_get_bytes(p, bits), high = mt_get_bytes(p + bits, bits); /* eight elements each */
        if (bits <= 4) {
            word = mt_iselect((mt_ivec)(lane < 8), zero + (int32_t)low, zero + (int32_t)high);
            shift = (lane & 7) * bits;
        } else {
            const mt_ivec a = mt_iselect((mt_ivec)(lane < 4), zero + (int32_t)low, zero + (int32_t)(low >> 4 * bits));
            const mt_ivec b =
                mt_iselect((mt_ivec)(lane < 12), zero + (int32_t)high, zero + (int32_t)(high >> 4 * bits));
            word = mt_iselect((mt_ivec)(lane < 8), a, b);
            shift = (lane & 3) * bits;
        }
    }
    return (mt_ivec)((mt_uvec)word >> (mt_uvec)shift) & ((1 << bits) - 1);
}
/* Lanes l and on of sixteen: eight bytes from p, and eight from q. */
MT_INLINE mt_ivec mt_load_halves(const uint8_t *p, const uint8_t *q, int l) {
#if MT_LANES == 16
    (void)l;
    return (mt_ivec)_mm512_cvtepu8_epi32(
        _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)p), _mm_loadl_epi64((const __m128i *)q)));
#else
    return mt_load_u8(l < 8 ? p + l : q + l - 8);
#endif
}
MT_INLINE mt_ivec mt_halves(int a, int b, int l) {
    return mt_iselect((mt_ivec)(mt_lane(l) < 8), (mt_ivec){0} + a, (mt_ivec){0} + b);
}
MT_INLINE mt_ivec mt_load_i16(const uint8_t *p) { return (mt_load_u16(p) ^ 0x8000) - 0x8000; }
MT_INLINE mt_ivec mt_load_i32(const void *p) {
    mt_ivec v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
MT_INLINE mt_vec mt_load_bf16(const uint8_t *p) { return (mt_vec)(mt_load_u16(p) << 16); }
MT_INLINE mt_vec mt_load_f16(const uint8_t *p) {
#if MT_LANES == 16
    return (mt_vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif MT_LANES == 8 && defined __F16C__
    return (mt_vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    mt_vec v = {0};
    for (int l = 0; l < MT_LANES; l++) v[l] = mt_f32_from_f16(mt_get16(p + 2 * l));
    return v;
#endif
}
MT_INLINE float mt_get_f16(const uint8_t *p) {
#if defined __F16C__
    return _cvtsh_ss(mt_get16(p));
#else
    return mt_f32_from_f16(mt_get16(p));
#endif
}

/* mt_f32_from_float for MT_LANES codes. */
MT_INLINE mt_vec mt_vfloat(mt_ivec code, int exponent, int mantissa, int special) {
    const int bias = exponent == 8 ? 127 : (1 << (exponent - 1)) - 1, all = (1 << (exponent + mantissa)) - 1;
    const mt_ivec magnitude = code & all;
    const mt_ivec normal = (magnitude << (23 - mantissa)) + ((127 - bias) << 23);
    const mt_vec subnormal = mt_to_float(magnitude) * mt_float((uint32_t)(128 - bias - mantissa) << 23);
    mt_ivec bits = mt_iselect((mt_ivec)(magnitude < 1 << mantissa), (mt_ivec)subnormal, normal);
    if (special == MT_IEEE)
        bits =
            mt_iselect((mt_ivec)(magnitude > all - (1 << mantissa)), 0x7f800000 | magnitude << (23 - mantissa), bits);
    if (special == MT_NAN) bits = mt_iselect((mt_ivec)(magnitude == all), (mt_ivec){0} + 0x7fc00000, bits);
    return (mt_vec)(bits | (code >> (exponent + mantissa) & 1) << 31);
}

/* ---- sums ----------------------------------------------------------------------------------------------------------
 */

#define MT_FOLD 64 /* lanes of a sum along the last axis */
typedef struct mt_lanes {
    mt_vec v[MT_FOLD / MT_LANES];
} mt_lanes;

/* The four last folds, and the others before them, in halves: lane l and lane l + half. */
MT_FN float mt_fold(mt_vec v) {
    float x[MT_LANES];
    __builtin_memcpy(x, &v, sizeof v);
    for (int half = MT_LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) x[l] += x[l + half];
    return x[0];
}
MT_INLINE void mt_lanes_set(mt_lanes *s, float x) {
    for (int i = 0; i < MT_FOLD / MT_LANES; i++) s->v[i] = mt_splat(x);
}
MT_INLINE void mt_lanes_sum(mt_lanes *s, const float part[MT_FOLD]) {
    for (int i = 0; i < MT_FOLD / MT_LANES; i++) s->v[i] += mt_load(part + i * MT_LANES);
}
/* NaN never wins. */
MT_INLINE void mt_lanes_max(mt_lanes *s, const float part[MT_FOLD]) {
    for (int i = 0; i < MT_FOLD / MT_LANES; i++) {
        const mt_vec x = mt_load(part + i * MT_LANES);
#if MT_LANES > 4
        s->v[i] = (mt_vec)MT_M(max_ps)(x, s->v[i]);
#else
        s->v[i] = mt_select((mt_ivec)(x > s->v[i]), x, s->v[i]);
#endif
    }
}
MT_INLINE void mt_lanes_min(mt_lanes *s, const float part[MT_FOLD]) {
    for (int i = 0; i < MT_FOLD / MT_LANES; i++) {
        const mt_vec x = mt_load(part + i * MT_LANES);
#if MT_LANES > 4
        s->v[i] = (mt_vec)MT_M(min_ps)(x, s->v[i]);
#else
        s->v[i] = mt_select((mt_ivec)(x < s->v[i]), x, s->v[i]);
#endif
    }
}
MT_FN float mt_lanes_total(const mt_lanes *s) {
    mt_lanes t = *s;
    for (int half = MT_FOLD / MT_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) t.v[i] += t.v[i + half];
    return mt_fold(t.v[0]);
}
MT_FN float mt_lanes_most(const mt_lanes *s) {
    float most = -INFINITY;
    for (int i = 0; i < MT_FOLD; i++) most = mt_max_f32(s->v[i / MT_LANES][i % MT_LANES], most);
    return most;
}
MT_FN float mt_lanes_least(const mt_lanes *s) {
    float least = INFINITY;
    for (int i = 0; i < MT_FOLD; i++) least = mt_min_f32(s->v[i / MT_LANES][i % MT_LANES], least);
    return least;
}

/* The index of the largest number, the lowest where there are several; 0 where there is none. */
typedef struct mt_argmax {
    mt_vec most[MT_FOLD / MT_LANES];
    mt_ivec at[MT_FOLD / MT_LANES];
} mt_argmax;
MT_INLINE void mt_argmax_set(mt_argmax *s) {
    for (int i = 0; i < MT_FOLD / MT_LANES; i++) s->most[i] = mt_splat(-INFINITY), s->at[i] = (mt_ivec){0} - 1;
}
MT_INLINE void mt_argmax_add(mt_argmax *s, const float part[MT_FOLD], int32_t first) {
    for (int i = 0; i < MT_FOLD / MT_LANES; i++) {
        const mt_vec x = mt_load(part + i * MT_LANES);
        const mt_ivec wins = (mt_ivec)(x > s->most[i]) | ((mt_ivec)(x == x) & (s->at[i] < 0));
        s->most[i] = mt_select(wins, x, s->most[i]);
        s->at[i] = mt_iselect(wins, (mt_ivec){0} + first, s->at[i]);
    }
}
MT_FN int32_t mt_argmax_index(const mt_argmax *s) {
    float most = -INFINITY;
    int32_t best = -1;
    for (int i = 0; i < MT_FOLD; i++) {
        const float x = s->most[i / MT_LANES][i % MT_LANES];
        const int32_t at = s->at[i / MT_LANES][i % MT_LANES] + i;
        if (s->at[i / MT_LANES][i % MT_LANES] < 0) continue;
        if (best < 0 || x > most || (x == most && at < best)) most = x, best = at;
    }
    return best < 0 ? 0 : best;
}

/* ---- dot ------------------------------------------------------------------------------------------------------------
 * B is a slice of a tensor in its storage format, or a tile of floats. Its rows are decoded into panels of floats that
 * stay in the first cache, where all rows of A use them; with a single row of A they are decoded into registers. A is a
 * tile of floats with rows of `a_stride`, zero up to a multiple of MT_CHUNK behind the last column. */

enum { MT_CHUNK = 32, MT_ROWS = 8, MT_DEPTH = 1024 }; /* elements; rows and columns of a panel of B */

typedef struct mt_slice {
    const uint8_t *data;
    int64_t first, stride;     /* elements: to the slice's first, from row to row */
    int64_t row_low, row_high; /* what is in range */
    int64_t column_low, column_high;
} mt_slice;

/* How rows of a format are decoded. */
typedef struct mt_codec {
    /* Elements [from, to) of a row whose element 0 is element `first` of data, as floats to out[0]; zeros beyond the
     * range [low, high). */
    void (*span)(const uint8_t *data, int64_t first, int64_t from, int64_t to, int64_t low, int64_t high, float *out);
    /* The dots of a and four rows, over the columns [low, high). NULL for formats whose blocks are no multiple of 16.
     */
    void (*four)(float sum[4], const float *a, const uint8_t *const row[4], int64_t low, int64_t high);
    int block, bytes; /* a row's address is data + element / block * bytes */
} mt_codec;

/* A row of a block format; see mt_row. */
MT_FN const float *mt_row_blocks(const void *data, const mt_codec *codec, int64_t offset, int valid, int64_t start,
                                 int64_t extent, int64_t count, float *copy) {
    const mt_part p = mt_part_of(valid, start, extent, count);
    codec->span((const uint8_t *)data, offset + start, 0, count, p.low, p.high, copy);
    return copy;
}

MT_FN mt_slice mt_slice_of(const void *data, int valid, int64_t first, int64_t stride, mt_part rows, mt_part columns) {
    if (!valid || columns.low >= columns.high) rows.high = rows.low;
    return (mt_slice){(const uint8_t *)data, first, stride, rows.low, rows.high, columns.low, columns.high};
}

/* What codecs are made of: a decoder turns a block, or MT_CHUNK elements, into floats. */
typedef void mt_decoder(const uint8_t *restrict p, float *restrict out);

/* The span of a format of blocks; w has room for one. */
MT_INLINE void mt_span_blocks(mt_decoder *decode, int block, int bytes, float *w, const uint8_t *data, int64_t first,
                              int64_t from, int64_t to, int64_t low, int64_t high, float *out) {
    const int64_t begin = mt_clamp(low, from, to), end = mt_clamp(high, begin, to);
    for (int64_t k = from; k < begin; k++) out[k - from] = 0.0f;
    for (int64_t k = begin; k < end;) {
        const int64_t skipped = (first + k) % block, count = mt_min(block - skipped, end - k);
        const uint8_t *p = data + (first + k) / block * bytes;
        if (count == block)
            decode(p, out + (k - from));
        else {
            decode(p, w);
            __builtin_memcpy(out + (k - from), w + skipped, (size_t)count * sizeof(float));
        }
        k += count;
    }
    for (int64_t k = end; k < to; k++) out[k - from] = 0.0f;
}
/* The span of a type whose elements take `size` bytes. */
MT_INLINE void mt_span_elements(mt_decoder *decode, int size, const uint8_t *data, int64_t first, int64_t from,
                                int64_t to, int64_t low, int64_t high, float *out) {
    const int64_t begin = mt_clamp(low, from, to), end = mt_clamp(high, begin, to);
    const uint8_t *p = data + first * size;
    int64_t k = begin;
    for (int64_t i = from; i < begin; i++) out[i - from] = 0.0f;
    for (; k + MT_CHUNK <= end; k += MT_CHUNK) decode(p + k * size, out + (k - from));
    if (k < end) {
        uint8_t rest[MT_CHUNK * 8] = {0};
        float w[MT_CHUNK];
        __builtin_memcpy(rest, p + k * size, (size_t)((end - k) * size));
        decode(rest, w);
        __builtin_memcpy(out + (k - from), w, (size_t)(end - k) * sizeof(float));
    }
    for (int64_t i = end; i < to; i++) out[i - from] = 0.0f;
}

/* One chunk of four rows, decoded to w, times a. */
MT_INLINE void mt_four_step(mt_vec lanes[4], const float *a, float w[4][MT_CHUNK]) {
    for (int l = 0; l < MT_CHUNK; l += MT_LANES) {
        const mt_vec x = mt_load(a + l);
        for (int r = 0; r < 4; r++) lanes[r] = mt_vfma(x, mt_load(w[r] + l), lanes[r]);
    }
}
MT_INLINE void mt_four_elements(mt_decoder *decode, int size, mt_vec lanes[4], const float *a,
                                const uint8_t *const row[4], int64_t low, int64_t high) {
    for (int64_t k = low / MT_CHUNK * MT_CHUNK; k < high; k += MT_CHUNK) {
        if (k >= low && k + MT_CHUNK <= high) {
            float w[4][MT_CHUNK];
            for (int r = 0; r < 4; r++) decode(row[r] + k * size, w[r]);
            mt_four_step(lanes, a + k, w);
        } else {
            float w[4][MT_CHUNK];
            for (int r = 0; r < 4; r++) mt_span_elements(decode, size, row[r], 0, k, k + MT_CHUNK, low, high, w[r]);
            mt_four_step(lanes, a + k, w);
        }
    }
}

/* Folds four vectors as mt_fold does each. */
MT_FN void mt_fold4(const mt_vec v[4], float out[4]) {
#if MT_LANES == 16
    __m256 h[4];
    for (int r = 0; r < 4; r++)
        h[r] = _mm256_add_ps(_mm512_castps512_ps256((__m512)v[r]), _mm512_extractf32x8_ps((__m512)v[r], 1));
#elif MT_LANES == 8
    __m256 h[4];
    for (int r = 0; r < 4; r++) h[r] = (__m256)v[r];
#endif
#if MT_LANES > 4
    __m128 q[4];
    for (int r = 0; r < 4; r++) q[r] = _mm_add_ps(_mm256_castps256_ps128(h[r]), _mm256_extractf128_ps(h[r], 1));
    _MM_TRANSPOSE4_PS(q[0], q[1], q[2], q[3]);
    _mm_storeu_ps(out, _mm_add_ps(_mm_add_ps(q[0], q[2]), _mm_add_ps(q[1], q[3])));
#else
    for (int r = 0; r < 4; r++) out[r] = mt_fold(v[r]);
#endif
}

/* M rows of A times four rows of a panel, `depth` columns (a multiple of MT_CHUNK); the lanes come from and go to
 * lane[m][4], unless this is the first or the last part of the columns. */
MT_INLINE void mt_tile_nt(float *c, int64_t c_stride, int columns, const float *a, int64_t a_stride, const float *panel,
                          int64_t depth, mt_vec *lanes, int first, int last, int M) {
    mt_vec sum[4][4];
    for (int i = 0; i < M; i++)
        for (int r = 0; r < 4; r++) sum[i][r] = first ? (mt_vec){0} : lanes[(i * MT_ROWS) + r];
    for (int64_t k = 0; k < depth; k += MT_LANES) {
        mt_vec b[4];
        for (int r = 0; r < 4; r++) b[r] = mt_load(panel + r * MT_DEPTH + k);
        for (int i = 0; i < M; i++) {
            const mt_vec x = mt_load(a + i * a_stride + k);
            for (int r = 0; r < 4; r++) sum[i][r] = mt_vfma(x, b[r], sum[i][r]);
        }
    }
    for (int i = 0; i < M; i++) {
        float total[4];
        if (last) {
            mt_fold4(sum[i], total);
            for (int r = 0; r < columns; r++) c[i * c_stride + r] += total[r];
        } else
            for (int r = 0; r < 4; r++) lanes[i * MT_ROWS + r] = sum[i][r];
    }
}

/* Zeros in the columns from .. stride - 1 of each row. */
MT_FN void mt_pad(float *a, int64_t rows, int64_t from, int64_t stride) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = from; j < stride; j++) a[i * stride + j] = 0.0f;
}

/* Scratch that mt_dot_nt takes, in floats. */
#define MT_DOT_NT_SCRATCH(m, k) (MT_ROWS * MT_DEPTH + ((k) > MT_DEPTH ? (m)*MT_ROWS * 16 : 0))

static __attribute__((unused, noinline)) void mt_dot_nt_many(float *c, int64_t c_stride, int64_t m, const float *a,
                                                             int64_t a_stride, const mt_slice *b, int64_t n,
                                                             const mt_codec *codec, float *scratch) {
    float *panel = scratch;
    mt_vec *lanes = (mt_vec *)(scratch + MT_ROWS * MT_DEPTH);
    const int64_t low = b->column_low / MT_CHUNK * MT_CHUNK;
    for (int64_t row = b->row_low; row < n; row += MT_ROWS) {
        const int rows = (int)mt_min(MT_ROWS, n - row);
        for (int64_t k = low; k < b->column_high; k += MT_DEPTH) {
            const int64_t depth = mt_min(MT_DEPTH, (b->column_high - k + MT_CHUNK - 1) / MT_CHUNK * MT_CHUNK);
            const int first = k == low, last = k + MT_DEPTH >= b->column_high;
            for (int r = 0; r < rows; r++)
                codec->span(b->data, b->first + (row + r) * b->stride, k, k + depth, b->column_low, b->column_high,
                            panel + r * MT_DEPTH);
            for (int r = rows; r & 3; r++) __builtin_memset(panel + r * MT_DEPTH, 0, (size_t)depth * sizeof(float));
            for (int64_t i = 0, step; i < m; i += step) {
                step = m - i >= 4 ? 4 : m - i >= 2 ? 2 : 1;
                for (int r = 0; r < rows; r += 4) {
                    float *to = c + i * c_stride + row + r;
                    const float *x = a + i * a_stride + k, *y = panel + r * MT_DEPTH;
                    mt_vec *kept = lanes + i * MT_ROWS + r;
                    const int columns = rows - r < 4 ? rows - r : 4;
                    if (step == 4)
                        mt_tile_nt(to, c_stride, columns, x, a_stride, y, depth, kept, first, last, 4);
                    else if (step == 2)
                        mt_tile_nt(to, c_stride, columns, x, a_stride, y, depth, kept, first, last, 2);
                    else
                        mt_tile_nt(to, c_stride, columns, x, a_stride, y, depth, kept, first, last, 1);
                }
            }
        }
    }
}

/* c[m, n] += a[m, k] . b[n, k]: the first m rows and n columns of c. */
MT_FN void mt_dot_nt(float *c, int64_t c_stride, int64_t m, const float *a, int64_t a_stride, const mt_slice *b,
                     int64_t n, const mt_codec *codec, float *scratch) {
    if (n > b->row_high) n = b->row_high;
    if (m != 1 || !codec->four) {
        mt_dot_nt_many(c, c_stride, m, a, a_stride, b, n, codec, scratch);
        return;
    }
    for (int64_t row = b->row_low; row < n; row += 4) {
        const uint8_t *rows[4];
        float sum[4] = {0};
        for (int r = 0; r < 4; r++) /* beyond the last row, the last row again */
            rows[r] = b->data + (b->first + mt_min(row + r, n - 1) * b->stride) / codec->block * codec->bytes;
        codec->four(sum, a, rows, b->column_low, b->column_high);
        for (int r = 0; r < mt_min(4, n - row); r++) c[row + r] += sum[r];
    }
}

/* V vectors of columns of M rows of C, over `depth` rows of the panel. The last vector has `columns` columns. */
MT_INLINE void mt_tile_nn(float *c, int64_t c_stride, int columns, const float *a, int64_t a_stride, const float *panel,
                          int64_t b_stride, int64_t depth, int M, int V) {
    mt_vec sum[4][4];
    float edge[4][MT_LANES] = {{0}};
    for (int i = 0; i < M; i++) {
        for (int v = 0; v < V - 1; v++) sum[i][v] = mt_load(c + i * c_stride + v * MT_LANES);
        for (int l = 0; l < columns; l++) edge[i][l] = c[i * c_stride + (V - 1) * MT_LANES + l];
        sum[i][V - 1] = mt_load(edge[i]);
    }
    for (int64_t k = 0; k < depth; k++) {
        mt_vec b[4];
        for (int v = 0; v < V; v++) b[v] = mt_load(panel + k * b_stride + v * MT_LANES);
        for (int i = 0; i < M; i++) {
            const mt_vec x = mt_splat(a[i * a_stride + k]);
            for (int v = 0; v < V; v++) sum[i][v] = mt_vfma(x, b[v], sum[i][v]);
        }
    }
    for (int i = 0; i < M; i++) {
        for (int v = 0; v < V - 1; v++) mt_store(c + i * c_stride + v * MT_LANES, sum[i][v]);
        mt_store(edge[i], sum[i][V - 1]);
        for (int l = 0; l < columns; l++) c[i * c_stride + (V - 1) * MT_LANES + l] = edge[i][l];
    }
}

/* Columns of a panel for n columns of B, and rows of it. */
#define MT_DOT_NN_COLUMNS(n) (((n) + MT_CHUNK - 1) / MT_CHUNK * MT_CHUNK)
#define MT_DOT_NN_DEPTH(n)   (MT_DOT_NN_COLUMNS(n) > 1024 ? 8 : 8192 / MT_DOT_NN_COLUMNS(n))
#define MT_DOT_NN_SCRATCH(n) (MT_DOT_NN_DEPTH(n) * MT_DOT_NN_COLUMNS(n))

/* c[m, n] += a[m, k] . b[k, n]: the first m rows and `columns` of the n columns of c. */
static __attribute__((unused, noinline)) void mt_dot_nn(float *c, int64_t c_stride, int64_t m, const float *a,
                                                        int64_t a_stride, const mt_slice *b, int64_t n, int64_t columns,
                                                        const mt_codec *codec, float *scratch) {
    const int64_t b_stride = MT_DOT_NN_COLUMNS(n), panel_depth = MT_DOT_NN_DEPTH(n);
    columns = mt_min(columns, b->column_high);
    const int64_t from = b->column_low / MT_CHUNK * MT_CHUNK, width = MT_DOT_NN_COLUMNS(columns - from);
    for (int64_t k = b->row_low; k < b->row_high; k += panel_depth) {
        const int64_t depth = mt_min(panel_depth, b->row_high - k);
        for (int64_t r = 0; r < depth; r++)
            codec->span(b->data, b->first + (k + r) * b->stride, from, from + width, b->column_low, b->column_high,
                        scratch + r * b_stride);
        for (int64_t i = 0; i < m; i += 4) {
            const int64_t rows = mt_min(4, m - i);
            for (int64_t j = from; j < columns;) {
                float *to = c + i * c_stride + j;
                const float *x = a + i * a_stride + k, *y = scratch + (j - from);
                const int wide = columns - j >= 4 * MT_LANES;
                const int last = wide ? MT_LANES : (int)mt_min(MT_LANES, columns - j);
                if (wide && rows == 4)
                    mt_tile_nn(to, c_stride, last, x, a_stride, y, b_stride, depth, 4, 4);
                else
                    for (int64_t r = 0; r < rows; r++) {
                        if (wide)
                            mt_tile_nn(to + r * c_stride, c_stride, last, x + r * a_stride, a_stride, y, b_stride,
                                       depth, 1, 4);
                        else
                            mt_tile_nn(to + r * c_stride, c_stride, last, x + r * a_stride, a_stride, y, b_stride,
                                       depth, 1, 1);
                    }
                j += wide ? 4 * MT_LANES : MT_LANES;
            }
        }
    }
}

/* c[m, n] += a[m, k] . b[n, k] for integers of up to 9 bits; sums of integers need no order. */
MT_FN void mt_dot_i16(int32_t *c, int64_t c_stride, int64_t m, int64_t n, int64_t k, const int16_t *a,
                      const int16_t *b) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int32_t sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * b[j * k + l];
            c[i * c_stride + j] += sum;
        }
}

#endif
