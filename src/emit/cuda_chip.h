/* The chip, as functions: what only PTX can say. Pasted behind cuda_abi.h and in front of cuda_prelude.h, which builds
 * on it; there is no other inline assembly in device code. The simulator has a file of its own in this one's place
 * (machine/sim/sim_chip.h), with the same functions, and runs all the rest as it is.
 *
 * Chips. What stands here alone is sm_90a's. wgmma is its alone: elsewhere no op is lowered to it (role_chip). Chips
 * before it (MT_BEFORE_HOPPER: sm_80, ...) have neither a copy engine that counts bytes nor the proxies that come with
 * it, nor tensor maps: there a page is filled by its loader's own asynchronous copies, ops of level 2 have no code, and
 * what only these use must compile, no more. */
#ifndef CUDA_CHIP_H
#define CUDA_CHIP_H

#define MT_DEVICE static __device__ __forceinline__
#pragma nv_diag_suppress 177 /* no program uses all of these functions */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MT_BEFORE_HOPPER
#endif

/* Shared memory: one object of static size, and what the launch gave (aligned to 1024: atoms are swizzled by address).
 */
#define MT_SHARED(type, name) __shared__ type name
#define MT_SHARED_REST(name)  extern __shared__ __align__(1024) char name[]
/* The role goes on with this instruction; it has come to this line of the tile program. For the simulator's reports. */
#define MT_AT_INSTRUCTION(number)
#define MT_AT_LINE(line)
#define MT_AT_PHASE(b, phase)
#define MT_AT_STAMPED(p, how)

/* All threads of a warpgroup: from here on each has N registers; 0: as many as before. A kernel with budgets begins
 * with CUDA_REGISTERS; who wants more waits until others have given them back. */
template <int N> MT_DEVICE void mt_registers(void) {
    if constexpr (N > CUDA_REGISTERS)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
    else if constexpr (N != 0 && N < CUDA_REGISTERS)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- barriers and copies in shared memory ---- */

MT_DEVICE uint32_t mt_shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
/* The same address, kept: else the compiler asks the chip where shared memory begins wherever it needs it, in front of
 * each wait, and waits for the answer. */
template <typename T> MT_DEVICE T *mt_keep_shared(T *p) {
    uint32_t at = mt_shared(p);
    asm volatile("" : "+r"(at));
    T *kept = (T *)__cvta_shared_to_generic(at);
    __builtin_assume(__isShared(kept));
    return kept;
}
MT_DEVICE uint64_t mt_time(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* The SM's clock, for traces: its low 32 bits, and all of it. The SM. */
MT_DEVICE uint32_t mt_clock(void) {
    uint32_t t;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
    return t;
}
MT_DEVICE uint64_t mt_long_clock(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
    return t;
}
/* The thread's number, looked up. */
MT_DEVICE uint32_t mt_thread(void) {
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
MT_DEVICE uint32_t mt_sm(void) {
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

MT_DEVICE void mt_mbarrier_init(uint64_t *b, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mt_shared(b)), "r"(arrivals) : "memory");
}
MT_DEVICE void mt_mbarrier_invalidate(uint64_t *b) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(mt_shared(b)) : "memory");
}
MT_DEVICE void mt_mbarrier_arrive(uint64_t *b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mt_shared(b)) : "memory");
}
/* Arrives, and the phase takes `bytes` more of copies to complete. Of one copy, right behind it; before Hopper it is
 * the copy that arrives. */
MT_DEVICE void mt_mbarrier_expect(uint64_t *b, uint32_t bytes) {
#ifndef MT_BEFORE_HOPPER
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mt_shared(b)), "r"(bytes) : "memory");
#endif
}
/* Makes fresh mbarriers known to the copy engine. */
MT_DEVICE void mt_mbarrier_publish(void) {
#ifdef MT_BEFORE_HOPPER
    __threadfence_block();
#else
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* True when the phase with this parity has completed. */
MT_DEVICE bool mt_mbarrier_test(uint64_t *b, uint32_t parity) {
    uint32_t done;
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(mt_shared(b)), "r"(parity)
                 : "memory");
    return done;
}
/* One try: the hardware may sleep for a while; true when the phase with this parity has completed. */
MT_DEVICE bool mt_mbarrier_try(uint64_t *b, uint32_t parity) {
#ifdef MT_BEFORE_HOPPER
    return mt_mbarrier_test(b, parity);
#else
    uint32_t done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(mt_shared(b)), "r"(parity)
                 : "memory");
    return done;
#endif
}
/* The same, of a thread that does not wait for each of the barrier's phases. */
MT_DEVICE bool mt_mbarrier_await(uint64_t *b, uint32_t parity) { return mt_mbarrier_try(b, parity); }
/* A bulk copy into shared memory; sizes and addresses are multiples of 16. Weights are read once a step: evict first.
 * Before Hopper the thread copies in pieces of 16 bytes. When all that it has begun so far have landed, one arrival is
 * made for it: the one that `full` waits for (.noinc: none is added to those that it was made for), which
 * mt_mbarrier_expect has left to it. So a phase has one copy there. */
MT_DEVICE void mt_bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *full) {
#ifdef MT_BEFORE_HOPPER
    const char *source = (const char *)__cvta_generic_to_global(from);
#pragma unroll 8
    for (uint32_t at = 0; at < bytes; at += 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(mt_shared(to) + at), "l"(source + at)
                     : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(mt_shared(full)) : "memory");
#else
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(mt_shared(to)),
        "l"(from), "r"(bytes), "r"(mt_shared(full)), "l"(0x12F0000000000000ull)
        : "memory");
#endif
}

/* A piece of a mapped operand (cuda_abi.h) into shared memory. It must begin at a multiple of 16 bytes, in memory, too:
 * to anything else the chip says CUDA_ERROR_ILLEGAL_INSTRUCTION, which no manual tells. Of a matrix in rows: from
 * column x of row y; of one in atoms: atom y of 8-row block z and of the 7 blocks behind it (x is 0). */
MT_DEVICE void mt_map_load_rows(void *to, const cuda_map *map, int x, int y, uint64_t *full) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                 "%3}], [%4];" ::"r"(mt_shared(to)),
                 "l"(map), "r"(x), "r"(y), "r"(mt_shared(full))
                 : "memory");
}
MT_DEVICE void mt_map_load_atoms(void *to, const cuda_map *map, int y, int z, uint64_t *full) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                 "%3, %4}], [%5];" ::"r"(mt_shared(to)),
                 "l"(map), "r"(0), "r"(y), "r"(z), "r"(mt_shared(full))
                 : "memory");
}
/* Of a tensor of three dimensions, one row of each of 64 slices: from element x of row y of slice z. */
MT_DEVICE void mt_map_load_slices(void *to, const cuda_map *map, int x, int y, int z, uint64_t *full) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                 "%3, %4}], [%5];" ::"r"(mt_shared(to)),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(mt_shared(full))
                 : "memory");
}
/* Of a weight in bands: the bytes from x on (a multiple of 16) of the 8 rows of a band of 8-row block `block`, and of
 * the 7 blocks behind it. */
MT_DEVICE void mt_map_load_blocks(void *to, const cuda_map *map, int x, int band, int block, uint64_t *full) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                 "%3, %4, %5}], [%6];" ::"r"(mt_shared(to)),
                 "l"(map), "r"(x), "r"(0), "r"(band), "r"(block), "r"(mt_shared(full))
                 : "memory");
}
/* A bulk copy out of shared memory; sizes and addresses are multiples of 16. What this thread has issued becomes a
 * group; until at most so many groups still read shared memory; until all groups are done, and this thread knows what
 * they wrote. */
MT_DEVICE void mt_bulk_store(void *to, const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                 "r"(mt_shared(from)), "r"(bytes)
                 : "memory");
}
MT_DEVICE void mt_bulk_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int GROUPS> MT_DEVICE void mt_bulk_read(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(GROUPS) : "memory");
}
MT_DEVICE void mt_bulk_wait(void) { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* The host has written the map: the copy engine must not use what it may have kept of it. */
MT_DEVICE void mt_fence_map(const cuda_map *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}
/* What this thread knows of device memory holds for copies that it issues behind it: those read through another proxy.
 */
MT_DEVICE void mt_fence_copies(void) {
#ifdef MT_BEFORE_HOPPER
    __threadfence_block();
#else
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/* What this thread has stored in shared memory can be seen by wgmma, once all have met. */
MT_DEVICE void mt_fence_shared(void) {
#ifdef MT_BEFORE_HOPPER
    __threadfence_block();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Brings the 128 bytes there into the L2 cache. */
MT_DEVICE void mt_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* ---- memory ---- */

MT_DEVICE uint32_t mt_load_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
MT_DEVICE uint32_t mt_load_relaxed(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
/* 1, 2 or 4 neighbouring words in device memory, at a multiple of their bytes, each as it is now. */
MT_DEVICE void mt_words_relaxed(uint32_t (&to)[1], const uint32_t *p) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(to[0]) : "l"(p));
}
MT_DEVICE void mt_words_relaxed(uint32_t (&to)[2], const uint32_t *p) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(p));
}
MT_DEVICE void mt_words_relaxed(uint32_t (&to)[4], const uint32_t *p) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(p));
}
/* A word in shared memory that this thread waits for. */
MT_DEVICE uint32_t mt_load_word(const uint32_t *p) { return *(volatile const uint32_t *)p; }
MT_DEVICE void mt_fence(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
MT_DEVICE void mt_add_relaxed(uint32_t *p, uint32_t v) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* The order that a fence gives to what is before it and behind it, for threads of the CTA. */
MT_DEVICE void mt_fence_cta(void) { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
/* Atomics on words of device memory, relaxed, which give what was there before; CTA: for threads of the CTA alone. */
#define MT_ATOMIC(name, what, type)                                                                                    \
    template <bool CTA> MT_DEVICE type mt_atomic_##name(type *p, type v) {                                             \
        type old;                                                                                                      \
        if constexpr (CTA)                                                                                             \
            asm volatile("atom.relaxed.cta.global." what " %0, [%1], %2;"                                              \
                         : "=r"(old)                                                                                   \
                         : "l"(__cvta_generic_to_global(p)), "r"(v)                                                    \
                         : "memory");                                                                                  \
        else                                                                                                           \
            asm volatile("atom.relaxed.gpu.global." what " %0, [%1], %2;"                                              \
                         : "=r"(old)                                                                                   \
                         : "l"(__cvta_generic_to_global(p)), "r"(v)                                                    \
                         : "memory");                                                                                  \
        return old;                                                                                                    \
    }
#define MT_ATOMICS(t, type, ptx)                                                                                       \
    MT_ATOMIC(add_##t, "add." ptx, type)                                                                               \
    MT_ATOMIC(min_##t, "min." ptx, type)                                                                               \
    MT_ATOMIC(max_##t, "max." ptx, type)                                                                               \
    MT_ATOMIC(and_##t, "and.b32", type)                                                                                \
    MT_ATOMIC(or_##t, "or.b32", type)                                                                                  \
    MT_ATOMIC(exchange_##t, "exch.b32", type)
MT_ATOMICS(i32, int32_t, "s32")
MT_ATOMICS(u32, uint32_t, "u32")
#undef MT_ATOMICS
#undef MT_ATOMIC

/* ---- products ---- */

/* mma.m16n8k16, f32 += bf16 x bf16: d 16x8, a 16x16 (row-major), b 16x8 (column-major: k neighbours together). */
MT_DEVICE void mt_mma_bf16(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
MT_DEVICE void mt_mma_f16(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ldmatrix: four matrices of 8 rows of 16 bytes; lane l has the address of row l % 8 of matrix l / 8. Of each the lane
 * gets the word l % 4 of row l / 4; transposed: the 16-bit elements l / 4 of rows 2 (l % 4) and the next. */
MT_DEVICE void mt_matrices(uint32_t (&d)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(mt_shared(row))
                 : "memory");
}
MT_DEVICE void mt_matrices_transposed(uint32_t (&d)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(mt_shared(row))
                 : "memory");
}

/* wgmma.m64nNk16: the four warps of a warpgroup multiply 64 x 16 (left) by 16 x N, both from shared memory, where rows
 * of 128 bytes lie as atoms do (role.h). The sums, N / 2 a thread, are d[AT] and on: of the warp's 16 rows the thread
 * has lane / 4 and, two places on, the one 8 below; of each 8 columns the neighbours 2 * (lane % 4), a group of 8 after
 * the other. Between the fence and the wait no one may touch them. */
MT_DEVICE void mt_wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MT_DEVICE void mt_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until at most so many groups are under way. */
template <int GROUPS> MT_DEVICE void mt_wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}
/* Behind a wait: what is computed from the sums stays behind it. */
template <int R> MT_DEVICE void mt_wgmma_done(float (&d)[R]) {
#pragma unroll
    for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i])::"memory");
}
/* The matrix that begins at p, for wgmma: K-major, 128-byte swizzle, 1024 bytes from 8 rows to the next 8. */
MT_DEVICE uint64_t mt_wgmma_matrix(const void *p) {
    return (uint64_t)(mt_shared(p) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}
/* clang-format off */
#define MT_SUMS_4(i)  "+f"(d[AT + (i)]), "+f"(d[AT + (i) + 1]), "+f"(d[AT + (i) + 2]), "+f"(d[AT + (i) + 3])
#define MT_SUMS_8(i)  MT_SUMS_4(i), MT_SUMS_4((i) + 4)
#define MT_SUMS_OF(i) MT_SUMS_8(i), MT_SUMS_8((i) + 8)
#define MT_SUMS_16    MT_SUMS_OF(0)
#define MT_SUMS_32    MT_SUMS_16, MT_SUMS_OF(16)
#define MT_SUMS_64    MT_SUMS_32, MT_SUMS_OF(32), MT_SUMS_OF(48)
#define MT_SUMS_128   MT_SUMS_64, MT_SUMS_OF(64), MT_SUMS_OF(80), MT_SUMS_OF(96), MT_SUMS_OF(112)
template <bool F16, int N, int AT, int R> MT_DEVICE void mt_wgmma(float (&d)[R], uint64_t left, uint64_t right) {
    static_assert(N == 32 || N == 64 || N == 128 || N == 256, "columns of a wgmma");
    if constexpr (!F16 && N == 32) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
                     "}, %16, %17, 1, 1, 1, 0, 0;"
                     : MT_SUMS_16
                     : "l"(left), "l"(right));
    } else if constexpr (F16 && N == 32) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
                     "}, %16, %17, 1, 1, 1, 0, 0;"
                     : MT_SUMS_16
                     : "l"(left), "l"(right));
    } else if constexpr (!F16 && N == 64) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                     "}, %32, %33, 1, 1, 1, 0, 0;"
                     : MT_SUMS_32
                     : "l"(left), "l"(right));
    } else if constexpr (F16 && N == 64) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                     "}, %32, %33, 1, 1, 1, 0, 0;"
                     : MT_SUMS_32
                     : "l"(left), "l"(right));
    } else if constexpr (!F16 && N == 128) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                     "}, %64, %65, 1, 1, 1, 0, 0;"
                     : MT_SUMS_64
                     : "l"(left), "l"(right));
    } else if constexpr (F16 && N == 128) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                     "}, %64, %65, 1, 1, 1, 0, 0;"
                     : MT_SUMS_64
                     : "l"(left), "l"(right));
    } else if constexpr (!F16 && N == 256) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                     "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                     "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                     "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                     "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                     "}, %128, %129, 1, 1, 1, 0, 0;"
                     : MT_SUMS_128
                     : "l"(left), "l"(right));
    } else if constexpr (F16 && N == 256) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                     "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                     "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                     "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                     "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
                     "}, %128, %129, 1, 1, 1, 0, 0;"
                     : MT_SUMS_128
                     : "l"(left), "l"(right));
    }
}
/* clang-format on */

/* wgmma.m64n64k16 with the left operand in registers, as mma has it (above), and the right one as 16 rows of 64
 * neighbours: rows of 128 bytes, as atoms lie. */
/* clang-format off */
template <bool F16, int AT, int R>
MT_DEVICE void mt_wgmma_tile(float (&d)[R], const uint32_t (&a)[4], uint64_t right) {
    if constexpr (F16) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                     "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                     : MT_SUMS_32
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));
    } else {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                     "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                     : MT_SUMS_32
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));
    }
}
/* clang-format on */

/* ---- bits, conversions, lanes ---- */

MT_DEVICE float mt_float(uint32_t bits) { return __uint_as_float(bits); }
MT_DEVICE uint32_t mt_bits(float f) { return __float_as_uint(f); }
MT_DEVICE uint64_t mt_bits64(double f) { return (uint64_t)__double_as_longlong(f); }
/* Sums and products that are not to be fused into one operation. */
MT_DEVICE float mt_add_rounded(float a, float b) { return __fadd_rn(a, b); }
MT_DEVICE float mt_mul_rounded(float a, float b) { return __fmul_rn(a, b); }

/* Computed here, by all lanes, and not where only some use it: a jump takes longer. */
MT_DEVICE float mt_by_all(float x) {
    asm volatile("" : "+f"(x));
    return x;
}
MT_DEVICE float mt_f32_from_bf16(uint32_t code) { return __uint_as_float(code << 16); }
MT_DEVICE uint32_t mt_bf16_from_f32(float x) {
    uint16_t c;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(c) : "f"(x));
    return c;
}
MT_DEVICE float mt_f32_from_f16(uint32_t code) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)code));
    return x;
}
MT_DEVICE uint32_t mt_f16_from_f32(float x) {
    uint16_t c;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(c) : "f"(x));
    return c;
}
/* 2^x, as the chip has it: within 2 units in the last place; below the normal numbers 0, which spares the three
 * instructions that exp2f has around it. */
MT_DEVICE float mt_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* Two at once; the first one is in the low half. */
MT_DEVICE uint32_t mt_bf16_pair(float a, float b) {
    uint32_t c;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(b), "f"(a));
    return c;
}
MT_DEVICE uint32_t mt_f16_pair(float a, float b) {
    uint32_t c;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(b), "f"(a));
    return c;
}

/* Two f16 at once, each result rounded once. */
MT_DEVICE uint32_t mt_add_f16x2(uint32_t a, uint32_t b) {
    uint32_t c;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
MT_DEVICE uint32_t mt_mul_f16x2(uint32_t a, uint32_t b) {
    uint32_t c;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}
MT_DEVICE uint32_t mt_fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
/* A word's lower or upper half, twice. In one assembler statement, so that it can be part of what reads it. */
MT_DEVICE uint32_t mt_twice(uint32_t word, int upper) {
    uint32_t c;
    if (upper)
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h};}" : "=r"(c) : "r"(word));
    else
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l};}" : "=r"(c) : "r"(word));
    return c;
}
/* Four of the eight bytes of a (0 to 3) and b (4 to 7): those that the selector's digits name, the last one first. */
MT_DEVICE uint32_t mt_bytes(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }
/* Of a power of two. */
MT_DEVICE int mt_log2(int64_t power) { return __ffsll(power) - 1; }

/* A tensor's memory, which the compiler cannot tell from shared memory by itself. */
template <typename T> MT_DEVICE T *mt_global(T *p) {
    __builtin_assume(__isGlobal(p));
    return p;
}

/* The value of the lane whose number differs in these bits. All lanes take part. */
template <typename T> MT_DEVICE T mt_shuffle_xor(T v, int lanes) { return __shfl_xor_sync(0xffffffffu, v, lanes); }

/* The bits of a word in device memory that the mask has take those of the value; no other thread writes them meanwhile.
 */
MT_DEVICE void mt_set_bits(uint32_t *word, uint32_t mask, uint32_t value) {
    atomicAnd(word, ~mask);
    atomicOr(word, value);
}

/* ---- meeting ---- */

/* All consumers meet. Named barriers: the loader and the controller do not take part. */
MT_DEVICE void mt_sync(void) { asm volatile("bar.sync 1, %0;" ::"n"((int)CUDA_CONSUMERS) : "memory"); }
/* The same; all get the same answer: does anyone say yes? */
MT_DEVICE bool mt_sync_any(bool yes) {
    uint32_t any;
    asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 1, %2, p; selp.u32 %0, 1, 0, q;}"
                 : "=r"(any)
                 : "r"((uint32_t)yes), "n"((int)CUDA_CONSUMERS)
                 : "memory");
    return any;
}

#endif
