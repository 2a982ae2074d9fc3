/* What every op's device code is written with: the contexts of the roles, pages, waits, and the instructions of the
 * chip as functions. It is pasted behind cuda_abi.h and stands alone: no headers of CUDA's library, no STL.
 *
 * Who meets whom, inside a CTA (mbarriers in shared memory; each comment in the code names the other side):
 *   slot_full[s]   controller ──► loader, consumers: slot s holds a decoded instruction
 *   slot_empty[s]  loader, consumers ──► controller: both are done with it (2 arrivals)
 *   page_full[p]   copy engine ──► consumers: page p has its bytes (1 arrival of the loader, which expects the bytes)
 *   page_empty[p]  consumer warps ──► loader: every consumer warp has read page p (CUDA_WARPS arrivals)
 * Pages form a ring. The loader fills them in the order in which the consumers take them: every consumer warp takes
 * every page, so that no warp can be a whole ring ahead of another and a parity wait cannot pass a phase early.
 *
 * Between CTAs: counters in device memory. The consumers of an instruction wait for its barriers before they touch
 * anything another instruction writes; the loader does not wait, since it only loads what no instruction of the program
 * writes. */
#ifndef CUDA_PRELUDE_H
#define CUDA_PRELUDE_H

#define MT_DEVICE static __device__ __forceinline__
#pragma nv_diag_suppress 177 /* no program uses all of these functions */

/* ---- chip ---- */

MT_DEVICE uint32_t mt_shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
MT_DEVICE uint64_t mt_time(void) {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
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

/* ---- the CTA ---- */

typedef struct mt_slot { /* a decoded instruction in shared memory */
    program_instruction instruction;
    uint32_t number;
    cuda_tensor tensor[CUDA_TENSORS];
} mt_slot;

typedef struct mt_cta { /* static shared memory */
    uint64_t slot_full[CUDA_SLOTS], slot_empty[CUDA_SLOTS];
    uint64_t page_full[CUDA_MOST_PAGES], page_empty[CUDA_MOST_PAGES];
    mt_slot slot[CUDA_SLOTS];
    uint32_t stop; /* set when anyone of this CTA gives up */
} mt_cta;

/* One role's view of the machine. */
typedef struct mt_context {
    const cuda_run *launch;
    mt_cta *cta;
    const mt_slot *slot;       /* the current instruction */
    char *pages, *scratch;     /* dynamic shared memory */
    uint32_t page, page_phase; /* the ring position: index, and the parity of its next full phase */
    uint32_t epoch;
    int role, thread, warp, lane;
    bool stopped; /* a wait gave up: return as soon as possible */
} mt_context;

/* What an op computes from the thread's place is not to be kept from one instruction to the next: the compiler would
 * hoist it, of all ops, out of the loop over instructions, and have no registers left. */
MT_DEVICE void mt_forget(mt_context *c) { asm volatile("" : "+r"(c->thread), "+r"(c->warp), "+r"(c->lane)); }

/* Ends the run: the first to come writes why. It takes values, not the context, so that the context stays in registers.
 */
static __device__ __noinline__ void mt_give_up(cuda_failure *f, uint32_t *stop, uint32_t reason, uint32_t role,
                                               uint32_t instruction, uint32_t barrier, uint32_t expected,
                                               uint32_t actual, uint32_t epoch) {
    *(volatile uint32_t *)stop = 1;
    if (reason != CUDA_NO_FAILURE && atomicExch(&f->claimed, 1u) == 0) {
        f->reason = reason;
        f->processor = blockIdx.x;
        f->role = role;
        f->instruction = instruction;
        f->barrier = barrier;
        f->expected = expected;
        f->actual = actual;
        f->epoch = epoch;
        mt_fence();
    }
}

/* True when a wait that began at `start` should end: somebody stopped, or it took too long. */
MT_DEVICE bool mt_hopeless(mt_context *c, uint64_t start, uint32_t reason, uint32_t barrier, uint32_t expected,
                           uint32_t actual) {
    const bool others = *(volatile uint32_t *)&c->cta->stop || mt_load_relaxed(&c->launch->failure->claimed);
    if (!others && mt_time() - start < c->launch->timeout) return false;
    c->stopped = true;
    mt_give_up(c->launch->failure, &c->cta->stop, others ? (uint32_t)CUDA_NO_FAILURE : reason, (uint32_t)c->role,
               c->slot ? c->slot->number : 0xffffffffu, barrier, expected, actual, c->epoch);
    return true;
}

/* The instruction has an opcode that the program has no op for. */
MT_DEVICE void mt_refuse(mt_context *c) {
    c->stopped = true;
    mt_give_up(c->launch->failure, &c->cta->stop, CUDA_BAD_OPCODE, (uint32_t)c->role, c->slot->number, 0, 0,
               c->slot->instruction.opcode, c->epoch);
}

/* Waits for a phase of an mbarrier. False: give up. */
MT_DEVICE bool mt_wait(mt_context *c, uint64_t *b, uint32_t parity, uint32_t reason) {
    if (mt_mbarrier_try(b, parity)) return true;
    const uint64_t start = mt_time();
    while (!mt_mbarrier_try(b, parity))
        if (mt_hopeless(c, start, reason, 0, 0, 0)) return false;
    return true;
}

/* Waits until a word in device memory has reached the threshold (counters wrap: compare by difference). Polls without
 * order, and takes the order with one last load: an acquiring load empties the L1 cache each time. */
MT_DEVICE void mt_wait_word(mt_context *c, const uint32_t *word, uint32_t barrier, uint32_t threshold) {
    uint32_t seen = mt_load_relaxed(word);
    const uint64_t start = mt_time();
    for (uint32_t tries = 1; (int32_t)(seen - threshold) < 0; tries++) {
        if (tries % 256 == 0 && mt_hopeless(c, start, CUDA_BARRIER_WAIT, barrier, threshold, seen)) return;
        seen = mt_load_relaxed(word);
    }
    mt_load_acquire(word);
}
enum { MT_RUN_BARRIER = 0xffffffffu }; /* stands for the end of a run in failures */

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

/* ---- pages ---- */

MT_DEVICE void mt_page_next(mt_context *c) {
    if (++c->page == c->launch->pages) {
        c->page = 0;
        c->page_phase ^= 1;
    }
}

/* Loader (one lane): the next page, once the consumers have left it. NULL: give up. */
MT_DEVICE char *mt_page_acquire(mt_context *c) {
    if (c->stopped || !mt_wait(c, &c->cta->page_empty[c->page], c->page_phase ^ 1, CUDA_PAGE_WAIT))
        return 0; /* consumers' mt_page_release */
    return c->pages + (size_t)c->page * CUDA_PAGE;
}
/* Loader: fills the acquired page with one copy and moves on. */
MT_DEVICE void mt_page_fill(mt_context *c, char *page, const void *from, uint32_t bytes) {
    uint64_t *full = &c->cta->page_full[c->page]; /* consumers' mt_page_take */
    mt_mbarrier_expect(full, bytes);
    mt_bulk_load(page, from, bytes, full);
    mt_page_next(c);
}

/* Consumers (every thread of every warp): waits for the next page. After a wait that gave up the page's contents are
 * undefined; the code goes on to where all meet. */
MT_DEVICE const char *mt_page_take(mt_context *c) {
    if (!c->stopped) mt_wait(c, &c->cta->page_full[c->page], c->page_phase, CUDA_PAGE_WAIT); /* loader's mt_page_fill */
    return c->pages + (size_t)c->page * CUDA_PAGE;
}
/* Consumers: this warp has read the page. */
MT_DEVICE void mt_page_release(mt_context *c) {
    __syncwarp();
    if (c->lane == 0) mt_mbarrier_arrive(&c->cta->page_empty[c->page]); /* loader's mt_page_acquire */
    mt_page_next(c);
}

/* ---- operands ---- */

MT_DEVICE int32_t mt_live_value(const mt_context *c, int ordinal) {
    return *(volatile const int32_t *)&c->launch->lives[c->slot->instruction.live[ordinal]];
}
/* The current extent of an operand's dimension. */
MT_DEVICE int32_t mt_extent(const mt_context *c, int tensor, int dimension) {
    const cuda_tensor *t = &c->slot->tensor[tensor];
    return t->live[dimension] < 0 ? t->extent[dimension]
                                  : *(volatile const int32_t *)&c->launch->lives[t->live[dimension]];
}
MT_DEVICE float mt_arg_float(const mt_context *c, int ordinal) {
    return __int_as_float(c->slot->instruction.arg[ordinal]);
}

#endif
