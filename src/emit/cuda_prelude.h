/* What every op's device code is written with: the contexts of the roles, pages and waits. It is pasted behind
 * cuda_chip.h and stands on that alone: no headers of CUDA's library, no STL.
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

/* What only a traced kernel has: code that is compiled with MT_TRACE. Without it nothing is left of this. A role keeps
 * what it notes in registers (of waits for pages, where there are none, in the CTA's words) and leaves it in the slot,
 * in shared memory, with the fewest stores, those of thread 0 when others know already that the instruction is done.
 * The controller, which gets the slot back from all, writes it out: nobody's fences have more to do. Nothing is noted
 * for a page that is there when it is wanted: loops over pages are short, and a warp's issue slots are what they take.
 */
#ifdef MT_TRACE
#define MT_TRACED(...) __VA_ARGS__
#else
#define MT_TRACED(...)
#endif

/* ---- the CTA ---- */

typedef struct mt_slot { /* a decoded instruction in shared memory */
    program_instruction instruction;
    uint32_t number;
    uint8_t ends;                     /* cuda_run's, of the instruction */
    int32_t live[PROGRAM_LIVES];      /* by live ordinal: its value in this run */
    cuda_tensor tensor[CUDA_TENSORS]; /* `extent` is the current one */
    uint64_t barrier[CUDA_BARRIERS];  /* level 2: cuda_explicit.h */
    uint32_t barriers;                /* that were made */
    uint32_t first, before;           /* level 2: its first page's place in the ring; what an atomic found */
    MT_TRACED(cuda_trace trace;)
    MT_TRACED(cuda_trace *trace_to;) /* where that will go; 0: the slot has not been used */
} mt_slot;

typedef struct mt_cta { /* static shared memory */
    uint64_t slot_full[CUDA_SLOTS], slot_empty[CUDA_SLOTS];
    uint64_t page_full[CUDA_MOST_PAGES], page_empty[CUDA_MOST_PAGES];
    mt_slot slot[CUDA_SLOTS];
    uint32_t
        busy; /* the consumers are at an instruction whose end others wait for: its sequence number. 0: they are not */
    uint32_t mapped[CUDA_MAP_WORDS]; /* cuda_wide.h */
    uint32_t stop;                   /* set when anyone of this CTA gives up */
    /* Consumers' thread 0, in cuda_trace's words: loops over pages have no registers to keep these, or a slot, in. */
    MT_TRACED(uint32_t first_page, page_wait;)
} mt_cta;

/* One role's view of the machine. */
typedef struct mt_context {
    const cuda_run *launch;
    mt_cta *cta;
    const mt_slot *slot;       /* the current instruction */
    char *pages, *scratch;     /* dynamic shared memory */
    uint32_t page, page_phase; /* the ring position: index, and the parity of its next full phase */
    bool seen;                 /* consumers: that page is full, as this thread has seen (mt_page_look) */
    uint32_t epoch;            /* of this role's run */
    uint32_t sequence;         /* loader, consumers: number of the current instruction of this CTA; from 1 */
    bool holds;                /* loader: mt_hold comes before the instruction's pages, */
    int early;                 /* but for so many more bytes */
    int role, thread, warp, lane;
    uint32_t stopped;                   /* cuda_reason: the wait that gave up. Return as soon as possible */
    MT_TRACED(uint32_t waited, filled;) /* loader: for pages, clocks; pages of the instruction */
} mt_context;

/* What an op computes from the thread's place is not to be kept from one instruction to the next: the compiler would
 * hoist it, of all ops, out of the loop over instructions, and have no registers left. That a warp's lanes are of one
 * warp it would not know: branches on that need no way back together. */
MT_DEVICE void mt_forget(mt_context *c) {
    asm volatile("" : "+r"(c->thread), "+r"(c->warp), "+r"(c->lane));
    c->warp = __shfl_sync(0xffffffffu, c->warp, 0);
}

/* ---- waits ----
 *
 * Waits for pages and slots stand in the code of every op, and the instruction cache is small: they poll, and look at
 * nothing but the CTA's `stop`. The controller, which waits for a free slot whenever the others are busy, looks at the
 * clock and at other CTAs for all of them. When it has waited too long it sets `stop` to MT_TIMED_OUT, and every role
 * that waits then says what it waits for; the first one's words count. */
enum { MT_STOPPED = 1, MT_TIMED_OUT = 2 };

MT_DEVICE uint32_t mt_stop(const mt_cta *cta) { return *(volatile const uint32_t *)&cta->stop; }
MT_DEVICE void mt_set_stop(mt_cta *cta, uint32_t stop) { *(volatile uint32_t *)&cta->stop = stop; }

/* Ends the run for all: the first to come writes why. */
MT_DEVICE void mt_give_up(mt_context *c, uint32_t reason, uint32_t barrier, uint32_t expected, uint32_t actual) {
    if (atomicExch(c->launch->gave_up, 1u) == 0) {
        cuda_failure *f = c->launch->failure;
        f->reason = reason;
        f->processor = blockIdx.x;
        f->role = (uint32_t)c->role;
        f->instruction = c->slot ? c->slot->number : 0xffffffffu;
        f->barrier = barrier;
        f->expected = expected;
        f->actual = actual;
        f->epoch = c->epoch;
        f->claimed = 1;
        mt_fence();
    }
}

/* The instruction has an opcode that the program has no op for. */
MT_DEVICE void mt_refuse(mt_context *c) {
    c->stopped = CUDA_BAD_OPCODE;
    mt_set_stop(c->cta, MT_STOPPED);
    mt_give_up(c, CUDA_BAD_OPCODE, 0, 0, c->slot->instruction.opcode);
}

/* Waits for a phase of an mbarrier. False: give up. */
MT_DEVICE bool mt_wait(mt_context *c, uint64_t *b, uint32_t parity, uint32_t reason) {
    while (!mt_mbarrier_try(b, parity))
        if (mt_stop(c->cta)) {
            c->stopped = reason;
            return false;
        }
    return true;
}
/* The controller's way to wait. */
MT_DEVICE bool mt_watch(mt_context *c, uint64_t *b, uint32_t parity) {
    const uint64_t start = mt_time();
    while (!mt_mbarrier_try(b, parity)) {
        const bool late = mt_time() - start >= c->launch->timeout;
        if (mt_load_relaxed(c->launch->gave_up))
            mt_set_stop(c->cta, MT_STOPPED);
        else if (late)
            mt_set_stop(c->cta, MT_TIMED_OUT);
        if (mt_stop(c->cta)) return false;
    }
    return true;
}

#ifdef MT_TRACE
MT_DEVICE cuda_trace *mt_note(const mt_context *c) { return (cuda_trace *)&c->slot->trace; }
/* Consumers have a page. Of pages that were waited for, and in front of loops over pages. */
MT_DEVICE void mt_trace_page(const mt_context *c) {
    if (mt_thread() == 0 && !c->cta->first_page) c->cta->first_page = mt_clock();
}
#endif

/* Waits for a page to be full or, the loader, to be free. False: give up. */
template <bool LOADER = false> MT_DEVICE bool mt_wait_page(mt_context *c, uint64_t *b, uint32_t parity) {
#ifdef MT_TRACE
    if (mt_mbarrier_test(b, parity)) return true;
    const uint32_t from = mt_clock();
    const bool good = mt_wait(c, b, parity, CUDA_PAGE_WAIT);
    if (LOADER)
        c->waited += mt_clock() - from;
    else if (mt_thread() == 0)
        c->cta->page_wait += mt_clock() - from;
    return good;
#else
    return mt_wait(c, b, parity, CUDA_PAGE_WAIT);
#endif
}

/* Waits until a word in device memory has reached the threshold (counters wrap: compare by difference). Polls without
 * order, and takes the order with one last load: an acquiring load empties the L1 cache each time. Not of a hint. */
MT_DEVICE void mt_wait_word(mt_context *c, const uint32_t *word, uint32_t barrier, uint32_t threshold,
                            bool hint = false) {
    uint32_t seen;
    while ((int32_t)((seen = mt_load_relaxed(word)) - threshold) < 0) {
        const uint32_t stop = mt_stop(c->cta);
        if (stop == MT_TIMED_OUT) mt_give_up(c, CUDA_BARRIER_WAIT, barrier, threshold, seen);
        if (stop) {
            c->stopped = CUDA_BARRIER_WAIT;
            return;
        }
    }
    if (!hint) mt_load_acquire(word);
}

/* ---- pages ---- */

MT_DEVICE void mt_page_next(mt_context *c) {
    if (++c->page == c->launch->pages) {
        c->page = 0;
        c->page_phase ^= 1;
    }
    c->seen = false;
}

/* A release fence waits for the loads that its SM has under way, which can be all of the ring: microseconds, and at the
 * end of a node everyone waits for the slowest. So the loader starts little for the next node while the consumers are
 * at the last one's instruction: what lands before they come to its end. Once that is known to others, the ring fills
 * while they wait. False: give up. */
MT_DEVICE bool mt_hold(mt_context *c) {
    uint32_t busy;
    while ((busy = mt_load_word(&c->cta->busy)) && busy != c->sequence) /* mt_consumer */
        if (mt_stop(c->cta)) {
            c->stopped = CUDA_PAGE_WAIT;
            return false;
        }
    return true;
}

/* Loader: the mbarrier of the page `back` pages before the next one, and the parity of its phase. */
MT_DEVICE uint64_t *mt_page_before(const mt_context *c, uint32_t back, uint32_t *parity) {
    const bool before = c->page < back; /* in the ring's turn before this one */
    *parity = c->page_phase ^ before;
    return &c->cta->page_full[before ? c->page + c->launch->pages - back : c->page - back];
}

/* Loader (one lane): the next page, once the consumers have left it; it has to be filled. NULL: give up. */
MT_DEVICE char *mt_page_acquire(mt_context *c) {
    uint64_t *empty = &c->cta->page_empty[c->page]; /* consumers' mt_page_release */
    if (c->stopped || !mt_wait_page<true>(c, empty, c->page_phase ^ 1)) return 0;
    return c->pages + (size_t)c->page * c->launch->page_bytes;
}
/* Loader: fills the acquired page with one copy and moves on. */
MT_DEVICE void mt_page_fill(mt_context *c, char *page, const void *from, uint32_t bytes) {
    uint64_t *full = &c->cta->page_full[c->page]; /* consumers' mt_page_take */
    mt_mbarrier_expect(full, bytes);
    mt_bulk_load(page, from, bytes, full);
    MT_TRACED(c->filled++;)
    mt_page_next(c);
}
/* Loader: a slice of a weight that is read once: `blocks` times `pages` pages, each with one copy of page_bytes, the
 * last of a block with one of last_bytes. Memory is busy with flight_bytes of each SM under way; more only make a
 * queue, in which whatever a consumer asks for, and a fence, waits. So a copy begins when the one that many bytes
 * before it has landed. */
MT_DEVICE void mt_stream(mt_context *c, const char *from, int blocks, int64_t block_bytes, int pages,
                         uint32_t page_bytes, uint32_t last_bytes, uint32_t flight_bytes) {
    const uint32_t wanted = (flight_bytes + page_bytes - 1) / page_bytes,
                   flight = wanted < c->launch->pages ? wanted : c->launch->pages;
#pragma unroll 1
    for (int block = 0; block < blocks; block++, from += block_bytes)
#pragma unroll 1
        for (int page = 0; page < pages; page++) {
            char *to = mt_page_acquire(c);
            if (!to) return;
            if (c->holds) {
                if (c->early <= 0 && !mt_hold(c)) return;
                c->early -= (int)page_bytes;
            }
            uint32_t parity;
            uint64_t *before = mt_page_before(c, flight, &parity);
            while (!mt_mbarrier_await(before, parity)) /* the copy engine */
                if (mt_stop(c->cta)) {
                    c->stopped = CUDA_PAGE_WAIT;
                    return;
                }
            mt_page_fill(c, to, from + (size_t)page * page_bytes, page + 1 < pages ? page_bytes : last_bytes);
        }
}

/* Loader: the acquired page is filled with copies of so many bytes together, which complete the returned barrier; then
 * mt_page_next. */
MT_DEVICE uint64_t *mt_page_expect(mt_context *c, uint32_t bytes) {
    uint64_t *full = &c->cta->page_full[c->page]; /* consumers' mt_page_take */
    mt_mbarrier_expect(full, bytes);
    MT_TRACED(c->filled++;)
    return full;
}

/* Consumers (every thread of every warp): waits for the next page. After a wait that gave up the page's contents are
 * undefined; the code goes on to where all meet. */
MT_DEVICE const char *mt_page_take(mt_context *c) {
    if (!c->seen) mt_wait_page(c, &c->cta->page_full[c->page], c->page_phase); /* loader's mt_page_fill */
    MT_TRACED(if (!c->seen) mt_trace_page(c);)
    return c->pages + (size_t)c->page * c->launch->page_bytes;
}
/* Consumers: whether the page behind the one that was taken is full, too. Asked ahead, since a wait takes long even
 * when there is nothing to wait for. */
MT_DEVICE bool mt_page_look(const mt_context *c) {
    const bool turns = c->page + 1 == c->launch->pages;
    return mt_mbarrier_test(&c->cta->page_full[turns ? 0 : c->page + 1], c->page_phase ^ turns);
}
/* Consumers: this warp has read the page. `seen`: the next one is full. */
MT_DEVICE void mt_page_release(mt_context *c, bool seen) {
    __syncwarp();
    if (c->lane == 0) mt_mbarrier_arrive(&c->cta->page_empty[c->page]); /* loader's mt_page_acquire */
    mt_page_next(c);
    c->seen = seen;
}

/* ---- operands ---- */

/* A live value, and the extent of an operand's dimension, in the instruction's run. The controller looked them up: they
 * lie in device memory, and a consumer's wait ends with an empty L1 cache. */
MT_DEVICE int32_t mt_live_value(const mt_context *c, int ordinal) { return c->slot->live[ordinal]; }
MT_DEVICE int32_t mt_extent(const mt_context *c, int tensor, int dimension) {
    return c->slot->tensor[tensor].extent[dimension];
}
/* As 64 bits: an index of 32 bits times a stride is one instruction, and no product overflows. */
MT_DEVICE int64_t mt_stride(const cuda_tensor *t, int dimension) { return t->stride[dimension]; }
MT_DEVICE float mt_arg_float(const mt_context *c, int ordinal) {
    return __int_as_float(c->slot->instruction.arg[ordinal]);
}

#endif
