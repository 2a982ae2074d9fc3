/* Barriers of ops of level 2 on a CPU, where all roles are coroutines of one worker. Pasted behind cpu_vector.h into a
 * unit that has such an op. */
#ifndef CPU_LEVEL2_H
#define CPU_LEVEL2_H

/* When no role of an op could go on: where each waited. The machine looks at it after a run. */
const char *mt_cpu_stuck[CPU_ROLES];

typedef struct mt_barrier {
    int64_t phase; /* how many are over */
    int arrived;   /* in the one at hand */
} mt_barrier;

MT_FN void mt_barrier_arrive(mt_barrier *b, int arrivals) {
    if (++b->arrived < arrivals) return;
    b->arrived = 0;
    b->phase++;
}
MT_FN int mt_barrier_over(const mt_barrier *b, int64_t phase) { return b->phase > phase; }

/* Stamped data: floats that hold a pattern which no result has until one is posted. A NaN that has it is posted as
 * another. */
#include <sched.h>
#include <time.h>
#define MT_STAMP 0xffffffffu
MT_FN void mt_stamp(float *p) { __atomic_store_n((uint32_t *)p, MT_STAMP, __ATOMIC_RELAXED); }
MT_FN void mt_post(float *p, float v) {
    const uint32_t bits = mt_bits(v);
    __atomic_store_n((uint32_t *)p, bits == MT_STAMP ? 0x7fffffffu : bits, __ATOMIC_RELAXED);
}
/* Whether one of them has not been posted when they were copied here; then they will be copied again. */
MT_FN int mt_stamped(const float *p, int64_t count) {
    int64_t i = 0;
    while (i < count && mt_bits(p[i]) != MT_STAMP) i++;
    __asm__ volatile("" ::: "memory");
    return i < count;
}
/* Lets others run; 0 after 10 seconds. */
MT_FN int mt_patient(uint64_t *since) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (!*since) *since = now;
    sched_yield();
    return now - *since < 10000000000u;
}

/* Atomics, which give what was there before. */
#define MT_ATOMIC(name, type, now)                                                                                     \
    MT_FN type mt_atomic_##name(type *p, type v, int order) {                                                          \
        type old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                               \
        while (!__atomic_compare_exchange_n(p, &old, now, 0, order, __ATOMIC_RELAXED)) {}                              \
        return old;                                                                                                    \
    }
#define MT_ATOMICS(t, type)                                                                                            \
    MT_ATOMIC(add_##t, type, (type)((uint32_t)old + (uint32_t)v))                                                      \
    MT_ATOMIC(min_##t, type, old < v ? old : v)                                                                        \
    MT_ATOMIC(max_##t, type, old > v ? old : v)                                                                        \
    MT_ATOMIC(and_##t, type, old &v)                                                                                   \
    MT_ATOMIC(or_##t, type, old | v)                                                                                   \
    MT_ATOMIC(exchange_##t, type, v)
MT_ATOMICS(i32, int32_t)
MT_ATOMICS(u32, uint32_t)

#endif
