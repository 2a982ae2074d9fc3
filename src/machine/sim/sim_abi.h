/* What simulated device code and the simulator agree on. The simulator includes this file; the code has it pasted in
 * front of sim_chip.h. It stands alone: fixed-width integers only. */
#ifndef SIM_ABI_H
#define SIM_ABI_H

/* Kinds of an access: bits. Relaxed: volatile or atomic; CTA: but only for threads of its CTA. */
enum { SIM_READ, SIM_WRITE = 1, SIM_RELAXED = 2, SIM_CTA = 8 };
enum { SIM_SPACE_SHARED, SIM_SPACE_GLOBAL, SIM_SPACES };
enum { SIM_ADD, SIM_AND, SIM_OR, SIM_EXCHANGE, SIM_MAX, SIM_MIN, SIM_COMPARE_EXCHANGE, SIM_MAX_SIGNED, SIM_MIN_SIGNED };
enum { SIM_SHUFFLE_XOR, SIM_SHUFFLE_INDEX, SIM_SHUFFLE_UP, SIM_SHUFFLE_DOWN, SIM_VOTE }; /* of a warp's lanes */
enum { SIM_STAMPED, SIM_POSTED, SIM_TAKEN };                                             /* cuda_stamp.h's */

/* The chip: what device code asks of it, on behalf of the thread that runs. */
typedef struct sim_calls {
    void (*access)(const void *p, uint32_t bytes, uint32_t kind);
    void (*line)(int line);
    void (*instruction)(uint32_t number);
    void (*stamped)(const uint32_t *p, uint32_t how); /* what has just been done to a word of stamped data */
    void (*phase)(const uint64_t *b, int64_t phase);  /* the thread's next wait there is for this phase, from -1 on */
    uint64_t (*time)(void);
    uint32_t (*cta)(void);
    uint32_t (*ctas)(void);
    uint32_t (*thread)(void);
    void *(*shared)(uint32_t bytes); /* 0: the memory that the launch gave, behind all else */
    void (*mbarrier_init)(uint64_t *b, uint32_t arrivals);
    void (*mbarrier_arrive)(uint64_t *b, uint32_t expected_bytes);
    uint32_t (*mbarrier_try)(uint64_t *b, uint32_t parity);   /* waits a while */
    uint32_t (*mbarrier_await)(uint64_t *b, uint32_t parity); /* the same, not for every phase */
    uint32_t (*mbarrier_test)(uint64_t *b, uint32_t parity);
    void (*bulk_load)(void *to, const void *from, uint32_t bytes, uint64_t *full);
    void (*map_load)(void *to, const void *map, const int32_t at[4], uint64_t *full); /* of a cuda_map */
    void (*bulk_store)(void *to, const void *from, uint32_t bytes);
    void (*bulk_commit)(void);
    void (*bulk_wait)(uint32_t groups, uint32_t reads); /* reads: until they no longer read shared memory */
    uint32_t (*load)(const uint32_t *p, uint32_t acquire);
    /* As many neighbouring words, relaxed, which are stamped data. */
    void (*look)(uint32_t *to, const uint32_t *p, uint32_t count);
    uint32_t (*atomic)(uint32_t *p, uint32_t what, uint32_t value, uint32_t compare, uint32_t cta);
    void (*fence)(void);
    void (*fence_proxy)(uint32_t space); /* between the generic proxy and the async one */
    uint32_t (*barrier)(uint32_t id, uint32_t threads, uint32_t value); /* returns all values or-ed */
    void (*shuffle)(void *value, uint32_t bytes, uint32_t how, uint32_t by, uint32_t mask);
    void (*syncwarp)(uint32_t mask);
    void (*mma)(float *d, const uint32_t *operands, uint32_t f16); /* m16n8k16: a0 a1 a2 a3 b0 b1 */
    /* A warp's rows of a wgmma: d, N / 2 floats, belongs to it until a wait says that it is done. `a` NULL: the left
     * operand is a matrix; else it is these 4 words, and the right one's neighbours are those along n. */
    void (*wgmma)(float *d, const uint32_t *a, uint64_t left, uint64_t right, uint32_t columns, uint32_t f16);
    void (*wgmma_commit)(void);
    void (*wgmma_wait)(uint32_t groups);
    const float *half; /* f16 codes as f32 */
} sim_calls;

/* What the code has for the simulator. */
typedef struct sim_barriers { /* names of mbarriers in the static shared memory */
    const char *name;
    uint32_t offset, count;
} sim_barriers;
typedef struct sim_unit {
    void (*set)(const sim_calls *calls);
    void (*kernel)(const void *launch); /* one thread of it */
    uint32_t static_bytes;
    const sim_barriers *barriers; /* ends with a NULL name */
    /* The slots of instructions in the static shared memory; in each its instruction's number, and its mbarriers. */
    uint32_t slots, slot_count, slot_bytes, slot_number, slot_barriers;
} sim_unit;

#endif
