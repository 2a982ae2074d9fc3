/* The simulator: a CUDA machine without a GPU that looks for what a GPU would only sometimes show. Private to
 * src/machine/sim (and its tests).
 *
 * It runs the very device code: the unit that the CUDA emitter writes, ops and interpreter, compiled by the host's C++
 * compiler with the chip's functions replaced (sim_chip.h). Every thread of every CTA is a coroutine on one thread of
 * the host (sim_fiber.c); who runs next, and when a copy lands, is up to a schedule (sim_run.c). What threads can see
 * of each other goes through the simulator:
 *   sim_sync.c    mbarriers with their counts, phases and bytes, named barriers, bulk copies, warps' meetings, fences
 *   sim_word.c    words in device memory: atomics, relaxed and acquiring loads, stamped data; how late all are seen
 *   sim_wgmma.c   wgmma: its operands, its groups
 *   sim_shadow.c  every access of memory: is it inside, and is it ordered with the others of the same bytes, also
 *                 where one goes through another proxy?
 *   sim_clock.c   vector clocks, which say what is ordered
 *   sim_report.c  what to say about it
 *
 * A run is a function of the program, its data, the schedule and its seed, so that every finding can be seen again. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <pthread.h>
#include <setjmp.h>

#include "machine/device.h"
#include "machine/names.h"

#include "machine/sim/sim_abi.h"

enum { SIM_ASYNC = 4 }; /* of an access's kind: through the async proxy */
enum {
    SIM_WARPS = CUDA_THREADS / 32,
    SIM_COPIES = 32,        /* copies of an SM that are told apart */
    SIM_STORES = 1024,      /* bulk stores of an SM, under way */
    SIM_WGMMA = 64,         /* of a warp, under way */
    SIM_ENGINE = SIM_WARPS, /* actors of an SM are its warps, its copy engine, whose "lanes" are copies, */
    SIM_TENSOR,             /* what multiplies for wgmma, whose "lanes" are the warps that asked for it, */
    SIM_STORING,            /* and what stores in bulk, whose "lanes" are a group's reads, and its writes */
    SIM_ACTORS,
    SIM_GROUPS = 1024,      /* of wgmmas, that a warp can be behind another */
    SIM_NAMED = 16,         /* named barriers */
    SIM_SHARED = 227 << 10, /* bytes of an SM's shared memory that a CTA can have */
    SIM_MOST = 64,          /* virtual SMs */
    SIM_STACK = 64 << 10,
    SIM_READS = 64,
    SIM_FINDINGS = 32, /* kept in a run */
    SIM_GRAIN = 4      /* bytes of a shadow cell */
};

/* ---- vector clocks ----
 * An actor is a warp (of 32 lanes) or a copy engine; a thread is an actor's lane. Time is one counter for all: a thread
 * takes a new tick when it has made something known to others. What thread t did at tick k is known to whom has a clock
 * with time[t] >= k. Clocks are shared and never changed once made.
 * A clock also has what of this is known to the async proxy (copies, wgmma), in shared and in global memory: what was
 * known at a proxy fence on the way here. PTX: "linked by a proxy fence along the base causality path". */
typedef struct sim_clock {
    uint32_t users;
    struct sim_clock *proxy[SIM_SPACES]; /* these have none themselves; NULL: nothing */
    uint32_t *least;                     /* of each actor's lanes */
    uint32_t time[];
} sim_clock;

/* ---- threads ---- */

typedef enum sim_wait_kind { SIM_NOT, SIM_MBARRIER, SIM_NAMED_BARRIER, SIM_WARP, SIM_WORD } sim_wait_kind;

typedef struct sim_lane {
    void *fiber;          /* its stack pointer while it does not run */
    sim_clock *clock;     /* what it knows, but for itself */
    sim_clock *released;  /* what it knew at its last fence; NULL: none */
    sim_clock *seen;      /* what relaxed loads saw: known with the next fence */
    uint32_t tick;        /* now */
    uint32_t instruction; /* of the program; UINT32_MAX: none */
    int line;             /* of the tile program; 0: the interpreter's */
    bool done, expired;   /* the latter: it has waited long enough to look at something else */
    sim_wait_kind wait;   /* it cannot go on */
    const void *object;   /* the mbarrier, named barrier or word */
    uint32_t parity, phase;
    const uint64_t *exact; /* its next wait at this mbarrier is for that phase: `wanted` */
    int64_t wanted;
    const uint32_t *polled; /* the last thing it did was to load this word, which was `value` */
    uint32_t value;
    bool late; /* and that was the value before the last write */
    struct {
        uintptr_t address;
        uint32_t tick, bytes;
    } read[SIM_READS]; /* a cache: what it has read at a tick */
} sim_lane;

typedef enum sim_meeting {
    SIM_NO_MEETING,
    SIM_MEET_SHUFFLE,
    SIM_MEET_SYNC,
    SIM_MEET_MMA,
    SIM_MEET_WGMMA,
    SIM_MEET_COMMIT,
    SIM_MEET_WAIT
} sim_meeting;

typedef struct sim_wgmma { /* a warp's part of one, under way */
    float *d[32];          /* by lane */
    uint32_t a[32][4];     /* by lane: the left operand, when it is in registers */
    bool registers;
    uint64_t left, right; /* the matrices */
    uint32_t columns, group;
    bool f16;
    sim_clock *clock; /* what is known to whom waits for it */
} sim_wgmma;

typedef struct sim_range { /* what an instruction may touch of a tensor */
    uintptr_t begin, end;
    struct sim_memory *memory;
    bool writes;
} sim_range;

typedef struct sim_warp {
    struct sim_cta *cta;
    int number;               /* in its CTA */
    uint32_t runnable, polls; /* lanes; the latter wait for words */
    sim_lane lane[32];
    sim_meeting meeting; /* of lanes at a shuffle, ...: */
    uint32_t arrived, how, bytes;
    uint64_t value[32];
    uint32_t from[32]; /* shuffles by index: the lane that each wants */
    struct {
        float *d;
        uint32_t operands[6];
    } mma[32];
    sim_wgmma wgmma[SIM_WGMMA]; /* the first wgmma_count, in the order of their issue */
    int wgmma_count;
    uint32_t wgmma_group; /* that is open */
    uint32_t instruction; /* that the ranges are of */
    sim_range range[2 * CUDA_TENSORS];
    int range_count, range_last;
} sim_warp;

/* ---- what threads meet at ---- */

typedef struct sim_mbarrier {
    uint64_t *address;
    uint32_t count, pending;    /* arrivals of a phase, and how many are missing */
    int64_t bytes;              /* expected and not come */
    uint32_t phase;             /* completed phases */
    sim_clock *arrived, *known; /* of this phase's arrivals; of all completed phases */
    uint32_t waited;            /* phases that somebody waited for who does not arrive himself */
    bool takes_bytes;
    int starter;                            /* an actor */
    uint32_t maker_actor, maker_lane, made; /* who made it, at which tick */
    uint32_t instruction;                   /* of level 2, whose barrier it is; UINT32_MAX: the interpreter's */
    bool starts_free;                       /* its first waiter waited for the phase before the first */
    struct {
        uint32_t waited; /* phases it has waited for, that before the first included; 0: it has not waited yet */
        bool arrives;
    } thread[CUDA_THREADS];
} sim_mbarrier;

typedef struct sim_named {
    uint32_t threads, count, value, result, generation;
    uint32_t lanes[SIM_WARPS]; /* that have arrived */
} sim_named;

/* What a cuda_map is here: see device_map. */
typedef struct sim_map {
    const char *data;
    uint64_t extent[4], stride[4];
    uint32_t box[4];
    uint8_t rank, element, swizzle;
} sim_map;
_Static_assert(sizeof(sim_map) <= sizeof(cuda_map), "a map has room");

typedef struct sim_copy {
    char *to;
    const char *from; /* NULL: a piece of a map */
    const sim_map *map;
    int32_t at[4]; /* where the piece begins */
    uint32_t bytes, landed;
    uint64_t *full;
    uint32_t phase;   /* of the mbarrier when it was issued */
    int number;       /* the copy engine's lane */
    sim_clock *clock; /* what is known to whom waits for it */
} sim_copy;

typedef struct sim_store { /* a bulk store */
    char *to;
    const char *from;
    uint32_t bytes, group, thread;
    bool read;                  /* it no longer reads shared memory */
    sim_clock *reads, *written; /* what is known to whom waits for the one, for the other */
} sim_store;

typedef struct sim_cta {
    struct sim_run *run;
    int number;
    sim_warp warp[SIM_WARPS];
    char *shared;
    uint32_t shared_bytes, rest; /* in all; where the memory that the launch gave begins */
    struct sim_cell *cells;
    sim_mbarrier *mbarriers;
    uint32_t mbarrier_count;
    sim_named named[SIM_NAMED];
    sim_copy copies[SIM_COPIES]; /* under way: the first copy_count, in the order of their issue */
    int copy_count, copy_next;
    sim_store stores[SIM_STORES]; /* the first store_count, in the order of their issue */
    int store_count;
    uint32_t store_group;                         /* that is open */
    uint32_t group_tick[SIM_GROUPS], group_count; /* of wgmmas: a group has one tick, whichever warp's it is */
} sim_cta;

/* ---- memory ---- */

/* Who touched some bytes of a cell, at a tick: these lanes of each of these actors of an SM. */
typedef struct sim_record {
    uint32_t tick, lanes; /* lanes 0: nobody */
    uint32_t instruction;
    uint16_t line, actors;
    uint8_t sm, bytes, kind; /* SIM_WRITE, SIM_RELAXED, SIM_ASYNC */
} sim_record;

typedef struct sim_cell {
    sim_record record[2];
    uint32_t more;         /* index of further records, or 0 */
    char older[SIM_GRAIN]; /* device memory: the bytes before the last write */
} sim_cell;

/* Device memory: a tensor, the slots, a table. */
typedef struct sim_memory {
    const char *name;
    char *data;
    size_t bytes;
    bool writes;     /* the kernel may write it */
    bool owned;      /* by the session: to be freed */
    sim_cell *cells; /* of what it writes */
} sim_memory;

/* ---- schedules ---- */

typedef enum sim_schedule_kind {
    SIM_FAIR,
    SIM_RANDOM,
    SIM_LOADER_EARLY,   /* loader and controller run whenever they can, and copies land at once */
    SIM_LOADER_LATE,    /* loader and controller run when nobody else can */
    SIM_STARVE_WARP,    /* one warp of every SM (seed mod 8) runs when nobody else can */
    SIM_STARVE_SM,      /* one SM (seed mod their number) does */
    SIM_COPIES_LATE,    /* copies land when nobody can run */
    SIM_COPIES_REVERSE, /* the same, the last one first */
    SIM_LANES_APART,    /* one lane at a time, the highest first */
    SIM_SCHEDULES
} sim_schedule_kind;
extern const char *const sim_schedule_names[SIM_SCHEDULES];

typedef struct sim_schedule {
    sim_schedule_kind kind;
    uint64_t seed;
} sim_schedule;

/* ---- findings ---- */

typedef enum sim_fault {
    SIM_DEADLOCK,
    SIM_EARLY,    /* a parity wait passes a phase early */
    SIM_PAGE,     /* a page that is not full, or that is filled again */
    SIM_BYTES,    /* they do not add up */
    SIM_RACE,     /* accesses that nothing orders */
    SIM_PROXY,    /* one is the async proxy's, and no proxy fence makes the other known there; or wgmma still reads */
    SIM_OUTSIDE,  /* an access outside of the memory that it may touch */
    SIM_LOST,     /* arrivals that nobody waits for */
    SIM_DIVERGED, /* lanes of a warp that should meet do not */
    SIM_MISUSE,   /* of the chip: alignment, counts */
    SIM_FAULTS
} sim_fault;
extern const char *const sim_fault_names[SIM_FAULTS];

typedef struct sim_finding {
    sim_fault fault;
    char where[256], message[1024];
    uint64_t key; /* two findings with one key are one */
    uint32_t count;
} sim_finding;

/* ---- a run ---- */

typedef struct sim_run {
    struct sim_session *session;
    sim_cta *cta;
    int cta_count;
    cuda_run launch;
    uint32_t actors;
    uint32_t first_tick; /* of this launch */
    uint32_t ticks;      /* they go on from run to run, as the memory's records do */
    uint64_t time, steps;
    sim_schedule schedule;
    uint64_t random;
    sim_warp *warp; /* whose lane runs, */
    sim_lane *lane;
    uint32_t lane_number;
    void *main_fiber;
    char *stacks;
    size_t stack_bytes;
    jmp_buf out;       /* where the scheduler ends a run */
    bool failed, late; /* the latter: writes may be seen late */
    uint64_t expired;  /* `progress` when all waits expired last */
    uint64_t progress; /* the step of the last thing that let somebody go on */
    struct sim_more {
        sim_record record;
        uint32_t next;
    } * more; /* records that have no place in their cells */
    struct sim_shown {
        char *at, now[SIM_GRAIN];
        uint32_t bytes;
    } shown[8]; /* memory that holds older bytes while a lane reads them, and its own */
    int shown_count;
    uint32_t more_count, more_capacity, more_free;
    struct sim_word {
        const uint32_t *address;
        sim_clock *clock,
            *older_clock;           /* what a load that acquires gets to know; with the value before the last write */
        uint32_t older;             /* that value */
        uint32_t actor, lane, tick; /* who made the last write */
        uint32_t looks;             /* that have seen the older value since */
        uint64_t seen;              /* SMs that have seen the newest */
        bool posted, older_posted;  /* stamped data */
    } * words;                      /* open addressing */
    uint32_t word_count, word_capacity;
    struct sim_joined {
        sim_clock *a, *b, *joined;
    } joined[64];          /* a cache */
    sim_memory **memories; /* that the kernel knows, tables first */
    size_t memory_count, table_count;
} sim_run;

/* ---- machine, session ---- */

typedef struct sim_weight { /* re-laid; sessions of a machine share it */
    const void *host;
    size_t host_bytes, bytes;
    role_layout layout;
    char *data;
    int users;
    struct sim_weight *next;
} sim_weight;

typedef struct sim_machine {
    mt_machine base;
    int processors, pages; /* pages 0: as many as fit */
    sim_schedule schedule;
    pthread_mutex_t turn;
    sim_weight *weights;
    /* For tests: changes the unit's text before it is compiled. */
    void (*edit)(text *unit, void *context);
    void *edit_context;
} sim_machine;

typedef struct sim_session {
    mt_session base;
    sim_machine *machine;
    const mt_program *program;
    arena *memory;
    program_binding binding;
    machine_names names;
    role_layout *layouts;
    sim_memory *tensors;         /* by tensor; MT_TEMP: inside the slots */
    sim_memory *turns;           /* by tensor: of stamped data in runs of odd epochs */
    sim_weight **weights;        /* by tensor */
    sim_memory slots, tables[9]; /* sim.c names them */
    sim_memory trace;            /* clocks, then records: see cuda_run */
    device_handoff handoff;
    cuda_tensor *operands;
    cuda_map *maps;
    int32_t *lives; /* values, steps */
    struct sim_words_of_run {
        cuda_failure failure;
        cuda_done done;
        uint32_t gave_up, go, finished;
    } * shared;
    uint32_t *counters, *next;
    sim_run *run;
    bool stale, broken;
    void *code;
    const sim_unit *unit;
    int64_t scratch_bytes, page_bytes, least_pages; /* emit_cuda_info */
    uint32_t epoch;
    bool traced;            /* the code is the one that takes traces */
    cuda_run traced_launch; /* the last one; runs is 0 where there is none */
    uint32_t traced_ctas;
    sim_finding findings[SIM_FINDINGS]; /* of the last run */
    int finding_count;
    uint64_t steps, late; /* of the last run; loads of words that saw an older value */
} sim_session;

/* sim.c */
mt_status sim_memory_new(sim_memory *out, size_t bytes, const char *name, mt_error *error);
mt_status sim_memory_bind(sim_memory *m, void *data, size_t bytes, bool writes, mt_error *error);
void sim_memory_free(sim_memory *m);
/* Needs program, binding, layouts, tensors, code; makes the tables. */
mt_status sim_session_tables(sim_session *s, mt_error *error);
/* `runs` runs in one launch; `steps`: what each adds to the live values. *done: those that are complete. */
mt_status sim_session_launch(sim_session *s, uint32_t runs, const int32_t *steps, const uint32_t *stop_word,
                             int32_t *done, mt_error *error);
/* Lists what the kernel knows in r->memories. */
mt_status sim_find_memories(sim_session *s, sim_run *r, mt_error *error);
/* The words behind "sim:", as at the head of sim.c. */
mt_status sim_schedule_parse(const char *words, sim_machine *m, mt_error *error);

/* sim_load.c: compiles the program's ops; fills session->code, unit, what emit_cuda says of it. */
mt_status sim_session_load(sim_session *s, mt_error *error);
/* A part of it: the code, traced or not. */
mt_status sim_session_code(sim_session *s, mt_error *error);
/* The unit of some ops, loaded; its symbol mt_sim_unit is a sim_unit. */
mt_status sim_compile(const sim_machine *m, const emit_cuda_op *ops, size_t count, bool traced, emit_cuda_info *info,
                      void **code, mt_error *error);
bool sim_chip_text(text *out); /* what takes the place of cuda_chip.h; false: no memory */
const char *sim_tail_text(void);
const sim_calls *sim_calls_ready(void);

/* sim_trace.c */
mt_status sim_session_trace(mt_session *base, bool enable, mt_error *error); /* after a failure it is as it was */
void sim_trace_begin(sim_session *s, cuda_run *launch, int ctas); /* before a launch that is complete but for this */
mt_status sim_trace_read(const mt_session *base, mt_trace_record **out, size_t *count, mt_error *error);

/* sim_run.c: one launch. Findings are in the session after it; MT_OK when there are none. */
mt_status sim_launch(sim_session *s, const cuda_run *launch, int ctas, mt_error *error);
void sim_run_free(sim_run *r);
void sim_progress(sim_run *r);
extern sim_run *sim_now; /* one run at a time in a process */
/* The lane gives up the processor: SIM_NOT: it can go on at once. Returns when it is its turn again. */
void sim_block(sim_wait_kind wait, const void *object);
void sim_wake(sim_warp *w, uint32_t lanes);
uint64_t sim_random(sim_run *r);
/* Ends the run: switches away and does not return, when called by a lane. */
void sim_stop(void);

/* sim_fiber.c */
void *sim_fiber_new(char *stack, size_t bytes, void (*body)(void));
void sim_fiber_switch(void **from, void *to);
void sim_fiber_forget(char *stacks, size_t bytes); /* what was on them is gone */

/* sim_clock.c */
sim_clock *sim_clock_new(const sim_run *r);
sim_clock *sim_clock_keep(sim_clock *c); /* NULL is allowed, also below */
void sim_clock_drop(sim_clock *c);
/* *c becomes what c or other know. */
void sim_clock_join(sim_run *r, sim_clock **c, sim_clock *other);
/* What the lane knows, and what it has done itself, is known to the async proxy; it takes a new tick. */
void sim_clock_fence(sim_run *r, sim_warp *w, uint32_t lane, uint32_t space);
/* The same without what the async proxy knows: another SM's has to be told there. */
sim_clock *sim_clock_bare(const sim_run *r, const sim_clock *c);
/* What the lane knows, itself included; it takes a new tick. The caller's to drop. */
sim_clock *sim_clock_release(sim_run *r, sim_warp *w, uint32_t lane);
/* All these lanes (masks by warp of a CTA) get to know what any of them knows, and take a new tick. */
void sim_clock_meet(sim_run *r, sim_cta *cta, const uint32_t *lanes, sim_clock *others);
bool sim_clock_knows(const sim_clock *c, uint32_t actor, uint32_t lanes, uint32_t tick);
/* For actor's `lane` alone. */
sim_clock *sim_clock_with(const sim_run *r, const sim_clock *c, uint32_t actor, uint32_t lane, uint32_t tick);
void sim_clock_forget(sim_run *r); /* the cache */

/* sim_shadow.c */
void sim_access(const void *p, uint32_t bytes, uint32_t kind); /* the running lane's */
/* The copy engine's: reads `from`, or the map's piece; writes `to`. */
void sim_access_copy(sim_run *r, sim_cta *cta, const sim_copy *copy, uint32_t tick);
/* A bulk store has been issued: its group's lane reads for it, the next one writes. */
void sim_access_store(sim_run *r, sim_cta *cta, const sim_store *s, const sim_clock *known, uint32_t lane,
                      uint32_t tick);
/* A warp's wgmma reads shared memory, at a tick, with what `clock` knows. */
void sim_access_wgmma(sim_run *r, sim_warp *w, const sim_clock *clock, const void *p, uint32_t bytes, uint32_t tick);
/* A row of a map's piece, by its number: where it lies; NULL: out of range. *inside: its elements that are in range,
 * from the first one on. */
const char *sim_map_row(const sim_map *m, const int32_t at[4], uint32_t row, uint32_t *inside);
void sim_shadow_clear(sim_run *r); /* of all memory */
void sim_show_newest(sim_run *r);  /* r->shown: the lane has read them */
sim_memory *sim_find_memory(const void *p);

/* sim_sync.c */
extern sim_calls sim_chip_calls;
void sim_land(sim_run *r, sim_cta *cta, int copy, uint32_t bytes); /* so many of the bytes that have not landed */
void sim_check_end(sim_run *r);
sim_mbarrier *sim_find_mbarrier(sim_cta *cta, const void *address);
void sim_sync_free(sim_run *r);
/* A call of the device code begins. Every one is a place where another may be next. */
void sim_call_begin(void);
/* True for the lane that comes last, all others still waiting: it does what is to be done, then sim_meet_end. */
bool sim_meet(sim_meeting what, uint32_t how, uint32_t bytes, uint32_t mask);
void sim_meet_end(void);

/* sim_word.c: calls of the device code. */
uint32_t sim_call_load(const uint32_t *p, uint32_t acquire);
uint32_t sim_call_atomic(uint32_t *p, uint32_t what, uint32_t value, uint32_t compare, uint32_t cta);
void sim_call_stamped(const uint32_t *p, uint32_t how);
void sim_call_look(uint32_t *to, const uint32_t *p, uint32_t count);
/* The lane is about to write a word of device memory, atomically or by a volatile store. */
void sim_word_written(const void *p);
void sim_words_free(sim_run *r);

/* sim_wgmma.c: calls of the device code. */
void sim_call_wgmma(float *d, const uint32_t *a, uint64_t left, uint64_t right, uint32_t columns, uint32_t f16);
void sim_call_wgmma_commit(void);
void sim_call_wgmma_wait(uint32_t groups);

/* sim_report.c. `fatal`: the run ends here. The message begins behind "fault: ". */
void sim_report(sim_run *r, sim_fault fault, bool fatal, uint64_t key, const char *format, ...) PRINTF_LIKE(5, 6);
/* "SM 0, consumer warp 3, lane 5"; "linear.tile:8, instruction 12 (linear 'q' [0, 0])"; "page 3 + 128". */
typedef struct sim_words {
    char text[320];
} sim_words;
/* Lanes of a warp; UINT32_MAX: the one that runs. At an instruction a controller is its storer. */
sim_words sim_who(const sim_run *r, uint32_t actor, uint32_t lanes);
sim_words sim_who_at(uint32_t actor, uint32_t lanes, uint32_t instruction);
sim_words sim_place(const sim_run *r, uint32_t instruction, int line);
sim_words sim_address(const sim_run *r, const sim_cta *cta, const void *p);
void sim_report_deadlock(sim_run *r);

#endif
