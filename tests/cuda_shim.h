/* Runs the emitted device code on the CPU: this file takes the place of cuda_prelude.h in a unit that g++ compiles, and
 * of the interpreter.
 *
 * The 256 consumers of a CTA and its loader are coroutines on one thread. They change places wherever the chip's
 * threads could wait for each other (bar.sync, shuffles, mma, pages), in an order that a seed decides, so that a
 * missing SYNC shows as a wrong number. Shared memory holds NaN before an instruction, pages hold NaN before they are
 * filled and after they were read. A bulk copy lands only when somebody waits for it. What cannot go on ends the run
 * with a message. Nothing of the chip's numbers is modelled but formats: sums of an mma are taken in double. */
#ifndef CUDA_SHIM_H
#define CUDA_SHIM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __forceinline__ inline
#define __noinline__
#define MT_DEVICE static inline __attribute__((unused))

typedef struct {
    uint32_t x, y;
} __attribute__((aligned(8))) uint2;
typedef struct {
    uint32_t x, y, z, w;
} __attribute__((aligned(16))) uint4;
static inline uint2 make_uint2(uint32_t x, uint32_t y) {
    uint2 v = {x, y};
    return v;
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    uint4 v = {x, y, z, w};
    return v;
}

/* ---- coroutines ---- */

enum { SHIM_THREADS = CUDA_CONSUMERS + 1, SHIM_STACK = 256 << 10, SHIM_RING = 3 };

static struct shim_thread {
    void *stack_pointer;
    ucontext_t context;
    bool done;
    char *stack;
} shim_threads[SHIM_THREADS];
static void *shim_main_pointer;
static ucontext_t shim_main;
static int shim_current;
static uint64_t shim_progress; /* grows with everything that may let another go on */
static const char *shim_error;
static uint64_t shim_random = 1;

static inline uint64_t shim_next_random(void) {
    shim_random ^= shim_random << 13;
    shim_random ^= shim_random >> 7;
    shim_random ^= shim_random << 17;
    return shim_random;
}

#if defined __x86_64__
extern "C" void shim_switch(void **from, void *to);
__asm__(".text\n.globl shim_switch\n.hidden shim_switch\nshim_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static inline void shim_yield(void) { shim_switch(&shim_threads[shim_current].stack_pointer, shim_main_pointer); }
static inline void shim_resume(int t) {
    shim_current = t;
    shim_switch(&shim_main_pointer, shim_threads[t].stack_pointer);
}
static inline void shim_prepare(int t, void (*body)(void)) {
    void **top = (void **)(shim_threads[t].stack + SHIM_STACK - 64);
    *--top = NULL; /* keeps the stack aligned as after a call */
    *--top = (void *)body;
    for (int i = 0; i < 6; i++) *--top = NULL;
    shim_threads[t].stack_pointer = top;
}
#else
static inline void shim_yield(void) { swapcontext(&shim_threads[shim_current].context, &shim_main); }
static inline void shim_resume(int t) {
    shim_current = t;
    swapcontext(&shim_main, &shim_threads[t].context);
}
static inline void shim_prepare(int t, void (*body)(void)) {
    getcontext(&shim_threads[t].context);
    shim_threads[t].context.uc_stack.ss_sp = shim_threads[t].stack;
    shim_threads[t].context.uc_stack.ss_size = SHIM_STACK;
    makecontext(&shim_threads[t].context, body, 0);
}
#endif

/* ---- bits, conversions ---- */

MT_DEVICE float mt_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
MT_DEVICE uint32_t mt_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}
MT_DEVICE uint64_t mt_bits64(double f) {
    uint64_t bits;
    memcpy(&bits, &f, 8);
    return bits;
}
MT_DEVICE float mt_add_rounded(float a, float b) {
    volatile float c = a + b;
    return c;
}
MT_DEVICE float mt_mul_rounded(float a, float b) {
    volatile float c = a * b;
    return c;
}
MT_DEVICE float mt_f32_from_bf16(uint32_t code) { return mt_float(code << 16); }
MT_DEVICE uint32_t mt_bf16_from_f32(float x) {
    const uint32_t bits = mt_bits(x);
    return x != x ? 0x7fffu : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
MT_DEVICE float mt_f32_from_f16(uint32_t code) {
    _Float16 h;
    const uint16_t c = (uint16_t)code;
    memcpy(&h, &c, 2);
    return (float)h;
}
MT_DEVICE uint32_t mt_f16_from_f32(float x) {
    const _Float16 h = (_Float16)x;
    uint16_t c;
    memcpy(&c, &h, 2);
    return c;
}
MT_DEVICE uint32_t mt_bf16_pair(float a, float b) { return mt_bf16_from_f32(a) | mt_bf16_from_f32(b) << 16; }
MT_DEVICE uint32_t mt_f16_pair(float a, float b) { return mt_f16_from_f32(a) | mt_f16_from_f32(b) << 16; }

template <typename T> MT_DEVICE T *mt_global(T *p) { return p; }
MT_DEVICE void mt_set_bits(uint32_t *word, uint32_t mask, uint32_t value) { *word = (*word & ~mask) | value; }

/* ---- the CTA ---- */

typedef struct mt_slot {
    program_instruction instruction;
    uint32_t number;
    cuda_tensor tensor[CUDA_TENSORS];
} mt_slot;

typedef struct mt_context {
    const cuda_run *launch;
    const mt_slot *slot;
    char *scratch;
    int thread, warp, lane;
    uint64_t page; /* pages taken, or filled, so far */
} mt_context;

static struct shim_cta {
    cuda_run launch;
    mt_slot slot;
    mt_context context[SHIM_THREADS];
    int waiting, generation; /* of mt_sync */
    int warp_waiting[CUDA_WARPS], warp_generation[CUDA_WARPS];
    uint32_t exchange[CUDA_WARPS][32][6];
    char *pages;
    uint64_t filled, landed, released[CUDA_WARPS]; /* pages, counted; those filled but not landed are under way */
    struct {
        const void *from;
        uint32_t bytes;
    } copy[SHIM_RING];
    uint64_t page_bytes; /* of all copies */
    uint32_t stray;
} shim;

MT_DEVICE void mt_forget(mt_context *c) { (void)c; }

static inline void shim_fail(const char *what) {
    if (!shim_error) shim_error = what;
}

static inline void shim_warp_meet(int warp) {
    const int generation = shim.warp_generation[warp];
    if (++shim.warp_waiting[warp] == 32) {
        shim.warp_waiting[warp] = 0;
        shim.warp_generation[warp]++;
        shim_progress++;
        return;
    }
    while (shim.warp_generation[warp] == generation && !shim_error) shim_yield();
}

MT_DEVICE void mt_sync(void) {
    const int generation = shim.generation;
    if (++shim.waiting == CUDA_CONSUMERS) {
        shim.waiting = 0;
        shim.generation++;
        shim_progress++;
        return;
    }
    while (shim.generation == generation && !shim_error) shim_yield();
}

template <typename T> MT_DEVICE T mt_shuffle_xor(T v, int lanes) {
    const int warp = shim_current / 32, lane = shim_current % 32;
    memcpy(shim.exchange[warp][lane], &v, sizeof v);
    shim_warp_meet(warp);
    T other;
    memcpy(&other, shim.exchange[warp][lane ^ lanes], sizeof other);
    shim_warp_meet(warp);
    return other;
}

static inline void shim_mma(float *d, const uint32_t (&own)[6], float (*value)(uint32_t)) {
    const int warp = shim_current / 32, lane = shim_current % 32, g = lane / 4, q = lane % 4;
    memcpy(shim.exchange[warp][lane], own, sizeof own);
    shim_warp_meet(warp);
    for (int i = 0; i < 4; i++) {
        const int row = g + i / 2 * 8, column = 2 * q + i % 2;
        double sum = d[i];
        for (int k = 0; k < 16; k++) {
            const int holder = k % 8 / 2, high = k / 8, shift = k % 2 * 16;
            const uint32_t a = shim.exchange[warp][row % 8 * 4 + holder][high * 2 + row / 8],
                           b = shim.exchange[warp][column * 4 + holder][4 + high];
            sum += (double)value(a >> shift & 0xffff) * (double)value(b >> shift & 0xffff);
        }
        d[i] = (float)sum;
    }
    shim_warp_meet(warp);
}
MT_DEVICE void mt_mma_bf16(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    shim_mma(d, {a0, a1, a2, a3, b0, b1}, mt_f32_from_bf16);
}
MT_DEVICE void mt_mma_f16(float *d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    shim_mma(d, {a0, a1, a2, a3, b0, b1}, mt_f32_from_f16);
}

/* ---- pages ---- */

static inline void shim_land(void) { /* the next copy */
    const uint64_t p = shim.landed % SHIM_RING;
    memcpy(shim.pages + p * CUDA_PAGE, shim.copy[p].from, shim.copy[p].bytes);
    shim.landed++;
    shim_progress++;
}
static inline uint64_t shim_released(void) {
    uint64_t least = ~(uint64_t)0;
    for (int w = 0; w < CUDA_WARPS; w++) least = shim.released[w] < least ? shim.released[w] : least;
    return least;
}

MT_DEVICE char *mt_page_acquire(mt_context *c) {
    while (c->page >= shim_released() + SHIM_RING && !shim_error) shim_yield();
    return shim_error ? NULL : shim.pages + c->page % SHIM_RING * CUDA_PAGE;
}
MT_DEVICE void mt_page_fill(mt_context *c, char *page, const void *from, uint32_t bytes) {
    if ((uintptr_t)from % 16 || bytes % 16 || bytes == 0 || bytes > CUDA_PAGE)
        shim_fail("a bulk copy is not aligned, is empty or is larger than a page");
    memset(page, 0xff, CUDA_PAGE);
    shim.copy[c->page % SHIM_RING].from = from;
    shim.copy[c->page % SHIM_RING].bytes = bytes;
    shim.page_bytes += bytes;
    shim.filled = ++c->page;
    shim_progress++;
}
MT_DEVICE const char *mt_page_take(mt_context *c) {
    while (shim.landed <= c->page && !shim_error) {
        if (shim.filled > shim.landed)
            shim_land();
        else
            shim_yield();
    }
    return shim.pages + c->page % SHIM_RING * CUDA_PAGE;
}
MT_DEVICE void mt_page_release(mt_context *c) {
    shim_warp_meet(c->warp);
    if (c->lane == 0) {
        shim.released[c->warp]++;
        if (shim_released() > c->page) memset(shim.pages + c->page % SHIM_RING * CUDA_PAGE, 0xff, CUDA_PAGE);
        shim_progress++;
    }
    c->page++;
}

/* ---- operands ---- */

MT_DEVICE int32_t mt_live_value(const mt_context *c, int ordinal) {
    return c->launch->lives[c->slot->instruction.live[ordinal]];
}
MT_DEVICE int32_t mt_extent(const mt_context *c, int tensor, int dimension) {
    const cuda_tensor *t = &c->slot->tensor[tensor];
    return t->live[dimension] < 0 ? t->extent[dimension] : c->launch->lives[t->live[dimension]];
}
MT_DEVICE float mt_arg_float(const mt_context *c, int ordinal) {
    return mt_float((uint32_t)c->slot->instruction.arg[ordinal]);
}
MT_DEVICE void mt_refuse(mt_context *c) { (void)c, shim_fail("there is no such opcode"); }

/* ---- running ---- */

static void mt_op_load(mt_context *mt);
static void mt_op_run(mt_context *mt);

static void shim_body(void) {
    mt_context *c = &shim.context[shim_current];
    if (shim_current == CUDA_CONSUMERS)
        mt_op_load(c);
    else
        mt_op_run(c);
    shim_threads[shim_current].done = true;
    shim_progress++;
    for (;;) shim_yield();
}

/* Runs one instruction; returns NULL, or what went wrong. *page_bytes: what the loader copied. */
extern "C" const char *shim_run(const program_instruction *instruction, const cuda_tensor *tensors, int tensor_count,
                                int32_t *lives, size_t scratch_bytes, uint64_t seed, uint64_t *page_bytes) {
    static char *scratch;
    enum { EDGE = 256 };
    for (int t = 0; t < SHIM_THREADS && !shim_threads[t].stack; t++) shim_threads[t].stack = (char *)malloc(SHIM_STACK);
    if (!shim.pages && posix_memalign((void **)&shim.pages, 1024, SHIM_RING * CUDA_PAGE)) abort();
    if (posix_memalign((void **)&scratch, 1024, scratch_bytes + EDGE)) abort();
    memset(scratch, 0xff, scratch_bytes + EDGE);
    memset(shim.pages, 0xff, SHIM_RING * CUDA_PAGE);
    char *const pages = shim.pages;
    memset(&shim, 0, sizeof shim);
    shim.pages = pages;
    shim.launch.lives = lives;
    shim.slot.instruction = *instruction;
    memcpy(shim.slot.tensor, tensors, (size_t)tensor_count * sizeof *tensors);
    shim_error = NULL;
    shim_random = seed * 2 + 1;
    for (int t = 0; t < SHIM_THREADS; t++) {
        mt_context c = {&shim.launch, &shim.slot, scratch, t, t / 32, t % 32, 0};
        shim.context[t] = c;
        shim_threads[t].done = false;
        shim_prepare(t, shim_body);
    }
    for (int left = SHIM_THREADS; left > 0 && !shim_error;) {
        const uint64_t before = shim_progress;
        const int first = (int)(shim_next_random() % SHIM_THREADS),
                  step = shim_next_random() % 2 ? 1 : SHIM_THREADS - 1;
        left = 0;
        for (int i = 0, t = first; i < SHIM_THREADS; i++, t = (t + step) % SHIM_THREADS) {
            if (shim_threads[t].done) continue;
            shim_resume(t);
            left += !shim_threads[t].done;
        }
        if (left && before == shim_progress) shim_fail("nobody can go on");
    }
    uint64_t filled = shim.context[CUDA_CONSUMERS].page;
    for (int t = 0; t < CUDA_CONSUMERS && !shim_error; t++)
        if (shim.context[t].page != filled) shim_fail("loader and consumers differ in pages");
    for (int i = 0; i < EDGE && !shim_error; i++)
        if (scratch[scratch_bytes + (size_t)i] != (char)0xff) shim_fail("a write behind the scratch memory");
    *page_bytes = shim.page_bytes;
    free(scratch);
    return shim_error;
}

#endif
