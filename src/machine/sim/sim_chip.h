/* The chip, simulated: takes the place of cuda_chip.h in a unit that the host's C++ compiler makes, and gives the rest
 * of the unit what of CUDA C it needs besides. Everything that threads could see of each other is a call into the
 * simulator (sim_abi.h); what concerns one thread alone is computed here.
 *
 * The unit is compiled with the thread sanitizer's instrumentation, but it has its own callbacks (at the end): every
 * memory access of device code is shown to the simulator. The functions of this file are not instrumented. */
#ifndef SIM_CHIP_H
#define SIM_CHIP_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#define MT_BARE   __attribute__((no_sanitize("thread"), unused))
#define MT_DEVICE static inline __attribute__((unused))
#define MT_CHIP   static MT_BARE

static const sim_calls *mt_calls;

/* ---- CUDA C ---- */

#undef __noinline__
#define __noinline__
#define __forceinline__ inline
#define __device__
#define __global__ __attribute__((visibility("hidden")))
#define __launch_bounds__(...)
#define __grid_constant__
#define __isGlobal(p) true
#undef __builtin_assume
#define __builtin_assume(x) ((void)0)

typedef struct {
    uint32_t x, y;
} __attribute__((aligned(8))) uint2;
typedef struct {
    uint32_t x, y, z, w;
} __attribute__((aligned(16))) uint4;
typedef struct {
    float x, y;
} __attribute__((aligned(8))) float2;
typedef struct {
    float x, y, z, w;
} __attribute__((aligned(16))) float4;
/* (Shown: what they make may be a place in memory.) */
MT_DEVICE uint2 make_uint2(uint32_t x, uint32_t y) {
    uint2 v = {x, y};
    return v;
}
MT_DEVICE uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    uint4 v = {x, y, z, w};
    return v;
}
typedef struct {
    uint32_t x;
} mt_index;
MT_CHIP mt_index mt_block_index(void) {
    mt_index i = {mt_calls->cta()};
    return i;
}
MT_CHIP mt_index mt_block_count(void) {
    mt_index i = {mt_calls->ctas()};
    return i;
}
MT_CHIP mt_index mt_thread_index(void) {
    mt_index i = {mt_calls->thread()};
    return i;
}
#define blockIdx  mt_block_index()
#define gridDim   mt_block_count()
#define threadIdx mt_thread_index()

MT_CHIP void __syncthreads(void) { mt_calls->barrier(0, CUDA_THREADS, 0); }
MT_CHIP void __syncwarp(uint32_t mask = 0xffffffffu) { mt_calls->syncwarp(mask); }
#define MT_SHUFFLE(name, how)                                                                                          \
    template <typename T> MT_CHIP T name(uint32_t mask, T v, uint32_t by) {                                            \
        mt_calls->shuffle(&v, sizeof v, how, by, mask);                                                                \
        return v;                                                                                                      \
    }
MT_SHUFFLE(__shfl_sync, SIM_SHUFFLE_INDEX)
MT_SHUFFLE(__shfl_xor_sync, SIM_SHUFFLE_XOR)
MT_SHUFFLE(__shfl_up_sync, SIM_SHUFFLE_UP)
MT_SHUFFLE(__shfl_down_sync, SIM_SHUFFLE_DOWN)
#undef MT_SHUFFLE
MT_CHIP uint32_t __ballot_sync(uint32_t mask, bool yes) {
    uint32_t v = yes;
    mt_calls->shuffle(&v, sizeof v, SIM_VOTE, 0, mask);
    return v;
}
MT_CHIP bool __any_sync(uint32_t mask, bool yes) { return __ballot_sync(mask, yes) != 0; }
MT_CHIP bool __all_sync(uint32_t mask, bool yes) { return __ballot_sync(mask, !yes) == 0; }

MT_CHIP uint32_t atomicAdd(uint32_t *p, uint32_t v) { return mt_calls->atomic(p, SIM_ADD, v, 0, 0); }
MT_CHIP uint32_t atomicAnd(uint32_t *p, uint32_t v) { return mt_calls->atomic(p, SIM_AND, v, 0, 0); }
MT_CHIP uint32_t atomicOr(uint32_t *p, uint32_t v) { return mt_calls->atomic(p, SIM_OR, v, 0, 0); }
MT_CHIP uint32_t atomicExch(uint32_t *p, uint32_t v) { return mt_calls->atomic(p, SIM_EXCHANGE, v, 0, 0); }
MT_CHIP uint32_t atomicMax(uint32_t *p, uint32_t v) { return mt_calls->atomic(p, SIM_MAX, v, 0, 0); }
MT_CHIP uint32_t atomicMin(uint32_t *p, uint32_t v) { return mt_calls->atomic(p, SIM_MIN, v, 0, 0); }
MT_CHIP uint32_t atomicCAS(uint32_t *p, uint32_t expected, uint32_t v) {
    return mt_calls->atomic(p, SIM_COMPARE_EXCHANGE, v, expected, 0);
}

MT_CHIP int __popc(uint32_t x) { return __builtin_popcount(x); }
MT_CHIP int __clz(int x) { return x ? __builtin_clz((uint32_t)x) : 32; }
MT_CHIP int __ffs(int x) { return __builtin_ffs(x); }
MT_CHIP uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
MT_CHIP float __uint_as_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
MT_CHIP float __int_as_float(int32_t bits) { return __uint_as_float((uint32_t)bits); }
MT_CHIP uint32_t __float_as_uint(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}
MT_CHIP int32_t __float_as_int(float f) { return (int32_t)__float_as_uint(f); }
MT_CHIP long long clock64(void) { return (long long)mt_calls->time(); }
MT_CHIP uint32_t clock(void) { return (uint32_t)mt_calls->time(); }

/* ---- cuda_chip.h's functions ---- */

#define MT_SHARED(type, name)     type &name = *(type *)mt_shared_memory(sizeof(type))
#define MT_SHARED_REST(name)      char *const name = (char *)mt_shared_memory(0)
#define MT_AT_INSTRUCTION(number) mt_at_instruction(number)
#define MT_AT_LINE(line)          mt_at_line(line)
#define MT_AT_PHASE(b, phase)     mt_at_phase(b, phase)
#define MT_AT_STAMPED(p, how)     mt_at_stamped(p, how)
MT_CHIP void *mt_shared_memory(size_t bytes) { return mt_calls->shared((uint32_t)bytes); }
template <typename T> MT_CHIP T *mt_keep_shared(T *p) { return p; }
MT_CHIP void mt_at_instruction(uint32_t number) { mt_calls->instruction(number); }
MT_CHIP void mt_at_line(int line) { mt_calls->line(line); }
MT_CHIP void mt_at_stamped(const float *p, int how) { mt_calls->stamped((const uint32_t *)p, (uint32_t)how); }
MT_CHIP void mt_at_phase(const uint64_t *b, int64_t phase) { mt_calls->phase(b, phase); }

template <int N> MT_CHIP void mt_registers(void) {
    static_assert(N == 0 || (N % 8 == 0 && N >= 24 && N <= 240), "a register budget");
}
MT_CHIP uint64_t mt_time(void) { return mt_calls->time(); }
MT_CHIP uint32_t mt_clock(void) { return (uint32_t)mt_calls->time(); }
MT_CHIP uint64_t mt_long_clock(void) { return mt_calls->time(); }
MT_CHIP uint32_t mt_thread(void) { return threadIdx.x; }
MT_CHIP uint32_t mt_sm(void) { return mt_calls->cta(); }
MT_CHIP void mt_mbarrier_init(uint64_t *b, uint32_t arrivals) { mt_calls->mbarrier_init(b, arrivals); }
MT_CHIP void mt_mbarrier_invalidate(uint64_t *b) { (void)b; } /* the next init makes another of it */
MT_CHIP void mt_mbarrier_arrive(uint64_t *b) { mt_calls->mbarrier_arrive(b, 0); }
MT_CHIP void mt_mbarrier_expect(uint64_t *b, uint32_t bytes) { mt_calls->mbarrier_arrive(b, bytes); }
MT_CHIP void mt_mbarrier_publish(void) { mt_calls->fence_proxy(SIM_SPACE_SHARED); }
MT_CHIP bool mt_mbarrier_test(uint64_t *b, uint32_t parity) { return mt_calls->mbarrier_test(b, parity); }
MT_CHIP bool mt_mbarrier_await(uint64_t *b, uint32_t parity) { return mt_calls->mbarrier_await(b, parity); }
MT_CHIP bool mt_mbarrier_try(uint64_t *b, uint32_t parity) { return mt_calls->mbarrier_try(b, parity); }
MT_CHIP void mt_bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *full) {
    mt_calls->bulk_load(to, from, bytes, full);
}
MT_CHIP void mt_map_load_rows(void *to, const cuda_map *map, int x, int y, uint64_t *full) {
    const int32_t at[4] = {x, y};
    mt_calls->map_load(to, map, at, full);
}
MT_CHIP void mt_map_load_atoms(void *to, const cuda_map *map, int y, int z, uint64_t *full) {
    const int32_t at[4] = {0, y, z};
    mt_calls->map_load(to, map, at, full);
}
MT_CHIP void mt_map_load_slices(void *to, const cuda_map *map, int x, int y, int z, uint64_t *full) {
    const int32_t at[4] = {x, y, z};
    mt_calls->map_load(to, map, at, full);
}
MT_CHIP void mt_map_load_blocks(void *to, const cuda_map *map, int x, int band, int block, uint64_t *full) {
    const int32_t at[4] = {x, 0, band, block};
    mt_calls->map_load(to, map, at, full);
}
MT_CHIP void mt_bulk_store(void *to, const void *from, uint32_t bytes) { mt_calls->bulk_store(to, from, bytes); }
MT_CHIP void mt_bulk_commit(void) { mt_calls->bulk_commit(); }
template <int GROUPS> MT_CHIP void mt_bulk_read(void) { mt_calls->bulk_wait(GROUPS, 1); }
MT_CHIP void mt_bulk_wait(void) { mt_calls->bulk_wait(0, 0); }
MT_CHIP void mt_fence_map(const cuda_map *map) { (void)map; }
MT_CHIP void mt_fence_copies(void) { mt_calls->fence_proxy(SIM_SPACE_GLOBAL); }
MT_CHIP void mt_fence_shared(void) { mt_calls->fence_proxy(SIM_SPACE_SHARED); }
MT_CHIP void mt_prefetch(const void *p) { (void)p; }
MT_CHIP uint32_t mt_load_acquire(const uint32_t *p) { return mt_calls->load(p, 1); }
MT_CHIP uint32_t mt_load_relaxed(const uint32_t *p) { return mt_calls->load(p, 0); }
template <int N> MT_CHIP void mt_words_relaxed(uint32_t (&to)[N], const uint32_t *p) { mt_calls->look(to, p, N); }
MT_CHIP uint32_t mt_load_word(const uint32_t *p) { return mt_calls->load(p, 0); }
MT_CHIP void mt_fence(void) { mt_calls->fence(); }
MT_CHIP void mt_add_relaxed(uint32_t *p, uint32_t v) { mt_calls->atomic(p, SIM_ADD, v, 0, 0); }

MT_CHIP void mt_fence_cta(void) { mt_calls->fence(); }
#define MT_ATOMIC(name, what, type)                                                                                    \
    template <bool CTA> MT_CHIP type mt_atomic_##name(type *p, type v) {                                               \
        return (type)mt_calls->atomic((uint32_t *)p, what, (uint32_t)v, 0, CTA);                                       \
    }
#define MT_ATOMICS(t, type, max, min)                                                                                  \
    MT_ATOMIC(add_##t, SIM_ADD, type)                                                                                  \
    MT_ATOMIC(max_##t, max, type)                                                                                      \
    MT_ATOMIC(min_##t, min, type)                                                                                      \
    MT_ATOMIC(and_##t, SIM_AND, type)                                                                                  \
    MT_ATOMIC(or_##t, SIM_OR, type)                                                                                    \
    MT_ATOMIC(exchange_##t, SIM_EXCHANGE, type)
MT_ATOMICS(u32, uint32_t, SIM_MAX, SIM_MIN)
MT_ATOMICS(i32, int32_t, SIM_MAX_SIGNED, SIM_MIN_SIGNED)
#undef MT_ATOMICS
#undef MT_ATOMIC

MT_CHIP void mt_mma_bf16(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    const uint32_t all[6] = {a0, a1, a2, a3, b0, b1};
    mt_calls->mma(d, all, 0);
}
MT_CHIP void mt_mma_f16(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    const uint32_t all[6] = {a0, a1, a2, a3, b0, b1};
    mt_calls->mma(d, all, 1);
}

/* The rows are read by code of the unit: every access is shown. */
MT_DEVICE void mt_matrices(uint32_t (&d)[4], const void *row) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < 4; i++)
        d[i] = ((const uint32_t *)__shfl_sync(0xffffffffu, row, i * 8 + lane / 4))[lane % 4];
}
MT_DEVICE void mt_matrices_transposed(uint32_t (&d)[4], const void *row) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = 0; i < 4; i++) {
        const uint16_t *first = (const uint16_t *)__shfl_sync(0xffffffffu, row, i * 8 + lane % 4 * 2),
                       *second = (const uint16_t *)__shfl_sync(0xffffffffu, row, i * 8 + lane % 4 * 2 + 1);
        d[i] = first[lane / 4] | (uint32_t)second[lane / 4] << 16;
    }
}

MT_CHIP void mt_wgmma_fence(void) {}
MT_CHIP void mt_wgmma_commit(void) { mt_calls->wgmma_commit(); }
template <int GROUPS> MT_CHIP void mt_wgmma_wait(void) { mt_calls->wgmma_wait(GROUPS); }
template <int R> MT_CHIP void mt_wgmma_done(float (&d)[R]) { (void)d; }
MT_CHIP uint64_t mt_wgmma_matrix(const void *p) {
    const uint32_t at = (uint32_t)((const char *)p - (const char *)mt_calls->shared(1));
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}
template <bool F16, int N, int AT, int R> MT_CHIP void mt_wgmma(float (&d)[R], uint64_t left, uint64_t right) {
    static_assert(AT + N / 2 <= R, "sums of a wgmma");
    mt_calls->wgmma(d + AT, NULL, left, right, N, F16);
}
template <bool F16, int AT, int R> MT_CHIP void mt_wgmma_tile(float (&d)[R], const uint32_t (&a)[4], uint64_t right) {
    static_assert(AT + 32 <= R, "sums of a wgmma");
    mt_calls->wgmma(d + AT, a, 0, right, 64, F16);
}

MT_CHIP float mt_float(uint32_t bits) { return __uint_as_float(bits); }
MT_CHIP uint32_t mt_bits(float f) { return __float_as_uint(f); }
MT_CHIP uint64_t mt_bits64(double f) {
    uint64_t bits;
    memcpy(&bits, &f, 8);
    return bits;
}
MT_CHIP float mt_add_rounded(float a, float b) { return a + b; } /* the unit is compiled without contraction */
MT_CHIP float mt_mul_rounded(float a, float b) { return a * b; }
MT_CHIP float mt_f32_from_bf16(uint32_t code) { return mt_float(code << 16); }
MT_CHIP uint32_t mt_bf16_from_f32(float x) {
    const uint32_t bits = mt_bits(x);
    return x != x ? 0x7fffu : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
MT_CHIP float mt_by_all(float x) { return x; }
MT_CHIP float mt_f32_from_f16(uint32_t code) { return mt_calls->half[code & 0xffff]; }
/* To nearest, ties to even. Below the normal numbers the float's own addition rounds: 0.5 has the spacing of the
 * subnormal ones, 2^-24, as its last bit. */
MT_CHIP uint32_t mt_f16_from_f32(float x) {
    const uint32_t sign = mt_bits(x) >> 16 & 0x8000, bits = mt_bits(x) & 0x7fffffffu;
    if (bits > 0x7f800000u) return 0x7fff;
    if (bits >= 0x477ff000u) return sign | 0x7c00;
    if (bits < 0x38800000u) return sign | (mt_bits(mt_float(bits) + 0.5f) - 0x3f000000u);
    return sign | (bits + 0xfff + (bits >> 13 & 1) - 0x38000000u) >> 13;
}
MT_CHIP float mt_exp2(float x) {
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
}
MT_CHIP uint32_t mt_bf16_pair(float a, float b) { return mt_bf16_from_f32(a) | mt_bf16_from_f32(b) << 16; }
MT_CHIP uint32_t mt_f16_pair(float a, float b) { return mt_f16_from_f32(a) | mt_f16_from_f32(b) << 16; }

/* a + b as f32, rounded to odd: rounded again, to f16, it is as if rounded once. */
MT_CHIP float mt_odd_sum(double a, double b) {
    const double s = a + b, t = s - a, lost = (a - (s - t)) + (b - t);
    const float f = (float)s;
    const double rest = (s - (double)f) + lost;
    if (rest != rest || rest == 0 || mt_bits(f) & 1) return f;
    return mt_float(mt_bits(f) + ((rest > 0) == (f > 0) ? 1u : ~0u));
}
MT_CHIP uint32_t mt_fma_f16(uint32_t a, uint32_t b, uint32_t c) {
    const double product = (double)mt_f32_from_f16(a & 0xffff) * (double)mt_f32_from_f16(b & 0xffff);
    return mt_f16_from_f32(mt_odd_sum(product, (double)mt_f32_from_f16(c & 0xffff)));
}
MT_CHIP uint32_t mt_fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
    return mt_fma_f16(a, b, c) | mt_fma_f16(a >> 16, b >> 16, c >> 16) << 16;
}
MT_CHIP uint32_t mt_add_f16x2(uint32_t a, uint32_t b) { return mt_fma_f16x2(a, 0x3c003c00u, b); }
MT_CHIP uint32_t mt_mul_f16x2(uint32_t a, uint32_t b) { return mt_fma_f16x2(a, b, 0x80008000u); }
MT_CHIP uint32_t mt_twice(uint32_t word, int upper) { return (upper ? word >> 16 : word & 0xffff) * 0x10001u; }
MT_CHIP uint32_t mt_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t all = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(all >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}

template <typename T> MT_CHIP T *mt_global(T *p) { return p; }
MT_CHIP int mt_log2(int64_t power) { return __builtin_ctzll((uint64_t)power); }

template <typename T> MT_CHIP T mt_shuffle_xor(T v, int lanes) {
    return __shfl_xor_sync(0xffffffffu, v, (uint32_t)lanes);
}
MT_CHIP void mt_set_bits(uint32_t *word, uint32_t mask, uint32_t value) {
    atomicAnd(word, ~mask);
    atomicOr(word, value);
}
MT_CHIP void mt_sync(void) { mt_calls->barrier(1, CUDA_CONSUMERS, 0); }
MT_CHIP bool mt_sync_any(bool yes) { return mt_calls->barrier(1, CUDA_CONSUMERS, yes) != 0; }

/* ---- the instrumentation's callbacks ---- */

#define MT_CALLBACK extern "C" __attribute__((no_sanitize("thread"), visibility("hidden"))) void
#define MT_CALLBACKS(size)                                                                                             \
    MT_CALLBACK __tsan_read##size(void *p) { mt_calls->access(p, size, SIM_READ); }                                    \
    MT_CALLBACK __tsan_write##size(void *p) { mt_calls->access(p, size, SIM_WRITE); }                                  \
    MT_CALLBACK __tsan_unaligned_read##size(void *p) { mt_calls->access(p, size, SIM_READ); }                          \
    MT_CALLBACK __tsan_unaligned_write##size(void *p) { mt_calls->access(p, size, SIM_WRITE); }                        \
    MT_CALLBACK __tsan_volatile_read##size(void *p) { mt_calls->access(p, size, SIM_READ | SIM_RELAXED); }             \
    MT_CALLBACK __tsan_volatile_write##size(void *p) { mt_calls->access(p, size, SIM_WRITE | SIM_RELAXED); }           \
    MT_CALLBACK __tsan_unaligned_volatile_read##size(void *p) { mt_calls->access(p, size, SIM_READ | SIM_RELAXED); }   \
    MT_CALLBACK __tsan_unaligned_volatile_write##size(void *p) { mt_calls->access(p, size, SIM_WRITE | SIM_RELAXED); }
MT_CALLBACKS(1)
MT_CALLBACKS(2)
MT_CALLBACKS(4)
MT_CALLBACKS(8)
MT_CALLBACKS(16)
#undef MT_CALLBACKS
MT_CALLBACK __tsan_read_range(void *p, long n) { mt_calls->access(p, (uint32_t)n, SIM_READ); }
MT_CALLBACK __tsan_write_range(void *p, long n) { mt_calls->access(p, (uint32_t)n, SIM_WRITE); }
MT_CALLBACK __tsan_vptr_update(void *p, void *v) { (void)p, (void)v; }
MT_CALLBACK __tsan_vptr_read(void *p) { (void)p; }
MT_CALLBACK __tsan_func_entry(void *p) { (void)p; }
MT_CALLBACK __tsan_func_exit(void *p) { (void)p; }
MT_CALLBACK __tsan_init(void) {}

#endif
