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

#endif
