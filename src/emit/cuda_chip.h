/* The chip, as functions: what only PTX can say. Pasted behind cuda_abi.h and in front of cuda_prelude.h, which builds
 * on it; there is no other inline assembly in device code. The simulator has a file of its own in this one's place
 * (machine/sim/sim_chip.h), with the same functions, and runs all the rest as it is. */
#ifndef CUDA_CHIP_H
#define CUDA_CHIP_H

#define MT_DEVICE static __device__ __forceinline__
#pragma nv_diag_suppress 177 /* no program uses all of these functions */

/* Shared memory: one object of static size, and what the launch gave (aligned to 1024: atoms are swizzled by address).
 */
#define MT_SHARED(type, name) __shared__ type name
#define MT_SHARED_REST(name)  extern __shared__ __align__(1024) char name[]
/* The role goes on with this instruction; it has come to this line of the tile program. For the simulator's reports. */
#define MT_AT_INSTRUCTION(number)
#define MT_AT_LINE(line)

/* ---- barriers and copies in shared memory ---- */

MT_DEVICE uint32_t mt_shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
MT_DEVICE uint64_t mt_time(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* The SM's clock, for traces: its low 32 bits, and all of it. The SM. */
MT_DEVICE uint32_t mt_clock(void) { /* never 0 */
    uint32_t t;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(t)::"memory");
    return t | 1;
}
MT_DEVICE uint64_t mt_long_clock(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
    return t;
}
MT_DEVICE uint32_t mt_sm(void) {
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

MT_DEVICE void mt_mbarrier_init(uint64_t *b, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mt_shared(b)), "r"(arrivals) : "memory");
}
MT_DEVICE void mt_mbarrier_arrive(uint64_t *b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mt_shared(b)) : "memory");
}
MT_DEVICE void mt_mbarrier_expect(uint64_t *b, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mt_shared(b)), "r"(bytes) : "memory");
}
/* Makes fresh mbarriers known to the copy engine. */
MT_DEVICE void mt_mbarrier_publish(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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
    uint32_t done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(mt_shared(b)), "r"(parity)
                 : "memory");
    return done;
}
/* A bulk copy into shared memory; sizes and addresses are multiples of 16. Weights are read once a step: evict first.
 */
MT_DEVICE void mt_bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *full) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(mt_shared(to)),
        "l"(from), "r"(bytes), "r"(mt_shared(full)), "l"(0x12F0000000000000ull)
        : "memory");
}

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
MT_DEVICE void mt_fence(void) { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
MT_DEVICE void mt_add_relaxed(uint32_t *p, uint32_t v) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

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

/* ---- bits, conversions, lanes ---- */

MT_DEVICE float mt_float(uint32_t bits) { return __uint_as_float(bits); }
MT_DEVICE uint32_t mt_bits(float f) { return __float_as_uint(f); }
MT_DEVICE uint64_t mt_bits64(double f) { return (uint64_t)__double_as_longlong(f); }
/* Sums and products that are not to be fused into one operation. */
MT_DEVICE float mt_add_rounded(float a, float b) { return __fadd_rn(a, b); }
MT_DEVICE float mt_mul_rounded(float a, float b) { return __fmul_rn(a, b); }

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
