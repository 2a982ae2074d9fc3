/* The persistent kernel, pasted behind the ops' code. One CTA a processor; its warps have roles (cuda_prelude.h says
 * who meets whom). The ops' code gives functions that switch over the opcode: mt_op_load(c), the loader's part: one
 * lane, pages in the order of their use; mt_op_run(c), the consumers' part; for level 2 mt_op_make(c), its barriers,
 * mt_op_stores(opcode), whether there is a storer, and mt_op_store(c), its part, which are the controller's. And
 * MT_OP_TENSORS, a table of each op's operand count; MT_THREADS of a CTA, and the registers of consumers and others, or
 * 0.
 *
 * A run ends for a CTA when its instructions are done. The next run's instructions may start on another CTA before
 * that, but none touches what this run still uses: before its first instruction of a run, a CTA waits until all have
 * finished the one before. The loader does not wait there either: weights for the next run are already on their way.
 *
 * The last CTA to finish a run looks at the stop word, and says to all in one word whether another run follows: nobody
 * else looks, since by then the next run may have written it. When none follows the loader and the controller, which
 * are in the next run already, leave as from a failed wait, but nothing has failed. */

/* Which instruction is the i-th of this CTA in run `run` (0: the first of the launch)? The controller alone asks. */
MT_DEVICE bool mt_fetch(mt_context *c, uint32_t run, uint32_t i, uint32_t *number) {
    const cuda_run *l = c->launch;
    if (!l->next) {
        const cuda_range mine = l->processors[blockIdx.x];
        if (i >= mine.count) return false;
        *number = l->order[mine.first + i];
        return true;
    }
    uint32_t n = 0;
    if (c->lane == 0) n = atomicAdd(&l->next[run], 1u); /* one counter for each run: zeroed before the launch */
    *number = __shfl_sync(0xffffffffu, n, 0);
    return *number < l->instruction_count;
}

enum { MT_END_OF_RUN = 0xfffffffeu };

#ifdef MT_TRACE
/* The controller has got the slot back: writes out what was noted there; what comes next will go to `next`. */
MT_DEVICE void mt_trace_turn(mt_context *c, mt_slot *s, cuda_trace *next) {
    if (s->trace_to && c->lane < (int)(sizeof s->trace / 16))
        ((uint4 *)s->trace_to)[c->lane] = ((const uint4 *)&s->trace)[c->lane];
    __syncwarp();
    if (c->lane == 0) {
        s->trace.epoch = c->epoch;
        s->trace.processor = blockIdx.x;
        s->trace.fetched = mt_long_clock();
        s->trace_to = next;
    }
}
/* Consumers, when all waits are over. */
MT_DEVICE void mt_trace_ready(mt_context *c, uint32_t received) {
    const uint32_t ready = mt_clock();
    if (c->thread == 0) {
        *(uint2 *)&mt_note(c)->received = make_uint2(received, ready);
        c->cta->first_page = c->cta->page_wait = 0;
    }
}
/* Consumers' thread 0, when others can know that the instruction is done. */
MT_DEVICE void mt_trace_arrived(const mt_context *c, uint32_t done, uint32_t synced) {
    *(uint4 *)&mt_note(c)->done = make_uint4(done, synced, mt_clock(), 0);
    *(uint2 *)&mt_note(c)->first_page = make_uint2(c->cta->first_page, c->cta->page_wait);
}
MT_DEVICE cuda_trace *mt_trace_notes(const cuda_run *l, uint32_t run) {
    return l->trace + (size_t)(run % l->trace_runs) * (l->instruction_count + gridDim.x);
}
/* One lane: this moment on both clocks. The device's moves in steps: it is read as one begins. */
MT_DEVICE void mt_trace_moment(uint64_t *time, uint64_t *clock) {
    const uint64_t before = mt_time();
    uint64_t now = before;
    for (int i = 0; i < 4096 && now == before; i++) now = mt_time();
    *clock = mt_long_clock();
    *time = now;
}
/* The controller, once it has filled all slots: nobody waits for it. */
MT_DEVICE void mt_trace_begin(const mt_context *c, uint32_t start) {
    cuda_trace_clock *clock = c->launch->trace_clocks + blockIdx.x;
    if (c->lane == 0) {
        clock->sm = mt_sm();
        clock->start = start;
        mt_trace_moment(&clock->begin_time, &clock->begin_clock);
    }
}
/* The controller leaves: slots from `at` on may still be in use. When it leaves because all do, those that are in use
 * stay so: they are of an instruction that is not done. After a long launch the second moment is taken while the others
 * are at the last instructions, and nobody waits for it; after a short one it is as late as can be. */
MT_DEVICE void mt_trace_end(mt_context *c, uint32_t at, uint32_t parity) {
    cuda_trace_clock *clock = c->launch->trace_clocks + blockIdx.x;
    const bool early = c->lane == 0 && mt_time() - clock->begin_time > 100000;
    if (early) mt_trace_moment(&clock->end_time, &clock->end_clock);
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < CUDA_SLOTS; i++) {
        const bool waited = !mt_stop(c->cta) && mt_watch(c, &c->cta->slot_empty[at], parity);
        const bool empty = waited || mt_mbarrier_test(&c->cta->slot_empty[at], parity);
        if (__all_sync(0xffffffffu, empty)) mt_trace_turn(c, &c->cta->slot[at], 0);
        if (++at == CUDA_SLOTS) at = 0, parity ^= 1;
    }
    if (c->lane == 0 && !early) mt_trace_moment(&clock->end_time, &clock->end_clock);
}
#endif

/* A live value in this run of the launch. Nobody changes anything: each role may be in another run. */
MT_DEVICE int32_t mt_live_now(const mt_context *c, int live, uint32_t run) {
    if (live < 0 || live >= (int)c->launch->live_count) return 0;
    const int32_t first = c->launch->lives[live];
    return run ? (int32_t)((uint32_t)first + run * (uint32_t)c->launch->live_steps[live]) : first;
}

/* Fills a free slot with an instruction and its operands, as they are in this run. */
MT_DEVICE void mt_decode(const mt_context *c, mt_slot *s, uint32_t number, uint32_t run) {
    const uint32_t *from = (const uint32_t *)(c->launch->instructions + number);
    uint32_t *to = (uint32_t *)&s->instruction;
    for (int w = c->lane; w < (int)(sizeof(program_instruction) / 4); w += 32) to[w] = from[w];
    __syncwarp();
    const uint32_t opcode = s->instruction.opcode;
    const int tensors = opcode < MT_OPS ? MT_OP_TENSORS[opcode] : 0; /* a join has none */
    for (int w = c->lane; w < tensors * (int)(sizeof(cuda_tensor) / 8); w += 32) {
        const int t = w / (int)(sizeof(cuda_tensor) / 8), word = w % (int)(sizeof(cuda_tensor) / 8);
        ((uint64_t *)&s->tensor[t])[word] = ((const uint64_t *)(c->launch->operands + s->instruction.tensor[t]))[word];
    }
    __syncwarp();
    /* Vectors of weights, which a consumer needs at once and no cache has: into L2, ahead of all waits. */
    for (int t = 0; t < tensors; t++) {
        const int bytes = MT_OP_COLD[opcode][t] * s->tensor[t].extent[0];
        for (int at = c->lane * 128; at < bytes; at += 32 * 128) mt_prefetch((const char *)s->tensor[t].data + at);
    }
    if (c->lane == 0) s->ends = c->launch->ends[number];
    if (c->epoch & 1)
        for (int t = c->lane; t < tensors; t += 32)
            if (s->tensor[t].stamped) s->tensor[t].data = (char *)s->tensor[t].data + c->launch->stamp_bytes;
    if (c->lane < PROGRAM_LIVES) s->live[c->lane] = mt_live_now(c, s->instruction.live[c->lane], run);
    __syncwarp(); /* extents have been read as they were */
    for (int e = c->lane; e < tensors * PROGRAM_RANK; e += 32) {
        cuda_tensor *t = &s->tensor[e / PROGRAM_RANK];
        if (t->live[e % PROGRAM_RANK] >= 0)
            t->extent[e % PROGRAM_RANK] = mt_live_now(c, t->live[e % PROGRAM_RANK], run);
    }
}

/* The storer of the instruction in that slot, if it has one: a bit for each of the slots whose storers have not run.
 * Before the controller waits for a slot to be free it has run its storer: the instructions behind it are decoded by
 * then, as far as there are slots, and none before it can wait for it. */
MT_DEVICE void mt_run_storer(mt_context *c, uint32_t *storers, uint32_t at) {
    if (!(*storers >> at & 1)) return;
    *storers &= ~(1u << at);
    c->slot = &c->cta->slot[at];
    if (c->lane == 0) {
        MT_AT_INSTRUCTION(c->slot->number);
        mt_op_store(c);
        MT_AT_INSTRUCTION(0xffffffffu);
    }
    c->slot = 0;
    __syncwarp();
}

MT_DEVICE void mt_controller(mt_context *c) {
    uint32_t at = 0, parity = 1, storers = 0;
    MT_TRACED(const uint32_t start = mt_clock();)
    for (uint32_t run = 0; run < c->launch->runs; run++) {
        MT_TRACED(cuda_trace *const notes = mt_trace_notes(c->launch, run);)
        for (uint32_t i = 0;; i++) {
            uint32_t number;
            const bool more = mt_fetch(c, run, i, &number);
            mt_slot *s = &c->cta->slot[at];
            c->slot = 0;
            MT_TRACED(if (!run && (i == CUDA_SLOTS || (i < CUDA_SLOTS && !more))) mt_trace_begin(c, start);)
            mt_run_storer(c, &storers, at);
            if (!mt_watch(c, &c->cta->slot_empty[at], parity)) { /* loader and consumers: mt_done */
                MT_TRACED(mt_trace_end(c, at, parity);)
                return;
            }
            MT_TRACED(mt_trace_turn(c, s, notes + (more ? number : c->launch->instruction_count + blockIdx.x));)
            if (more) mt_decode(c, s, number, run);
            if (c->lane == 0) s->number = more ? number : MT_END_OF_RUN;
            __syncwarp();
            if (more) {
                c->slot = s;
                if (c->lane == 0) mt_op_make(c);
                if (mt_op_stores(s->instruction.opcode)) storers |= 1u << at;
            }
            if (c->lane == 0) mt_mbarrier_arrive(&c->cta->slot_full[at]); /* loader and consumers: mt_next */
            if (++at == CUDA_SLOTS) at = 0, parity ^= 1;
            if (!more) break;
        }
        c->epoch++;
    }
#ifdef MT_TRACE
    for (uint32_t s = 0; s < CUDA_SLOTS; s++) mt_run_storer(c, &storers, (at + s) % CUDA_SLOTS);
    mt_trace_end(c, at, parity);
#else
    for (int s = 0; s < CUDA_SLOTS; s++) { /* keeps watch to the end */
        mt_run_storer(c, &storers, at);
        if (!mt_watch(c, &c->cta->slot_empty[at], parity)) break;
        if (++at == CUDA_SLOTS) at = 0, parity ^= 1;
    }
#endif
}

typedef struct mt_cursor {
    uint32_t at, parity;
} mt_cursor;

/* Loader, consumers: the next slot. False: give up. */
MT_DEVICE bool mt_next(mt_context *c, mt_cursor *k) {
    c->slot = 0;
    if (!mt_wait(c, &c->cta->slot_full[k->at], k->parity, CUDA_SLOT_WAIT)) return false; /* controller */
    c->slot = &c->cta->slot[k->at];
    c->sequence++;
    MT_AT_INSTRUCTION(c->slot->number);
    return true;
}
/* One thread of the role: the slot may be used again. */
MT_DEVICE void mt_done(mt_context *c, mt_cursor *k, bool arrive) {
    if (arrive) mt_mbarrier_arrive(&c->cta->slot_empty[k->at]); /* controller */
    if (++k->at == CUDA_SLOTS) k->at = 0, k->parity ^= 1;
}

MT_DEVICE void mt_loader(mt_context *c) {
    mt_cursor k = {0, 0};
    uint32_t node = 0;
    for (uint32_t run = 0; run < c->launch->runs && !c->stopped;) {
        if (!mt_next(c, &k)) break;
        MT_TRACED(const uint32_t begin = mt_clock(); c->waited = c->filled = 0;)
        if (c->slot->number == MT_END_OF_RUN)
            run++, c->epoch++;
        else if (c->slot->instruction.opcode != PROGRAM_JOIN) {
            c->holds = c->slot->instruction.node != node;
            if (c->holds) c->early = c->launch->stamp_bytes ? 0 : CUDA_EARLY;
            node = c->slot->instruction.node;
            mt_op_load(c);
        }
        MT_TRACED(*(uint4 *)&mt_note(c)->load_begin = make_uint4(begin, mt_clock(), c->waited, c->filled);)
        mt_done(c, &k, true);
    }
    if (c->stopped && mt_stop(c->cta) == MT_TIMED_OUT) { /* the consumers know better what is the matter */
        const uint64_t start = mt_time();
        while (mt_time() - start < 1000000 && !mt_load_relaxed(c->launch->gave_up)) {}
        mt_give_up(c, c->stopped, 0, 0, 0);
    }
    /* Copies that are still under way write to this CTA's memory: stay until they have landed. */
    for (uint32_t back = 1; back <= c->launch->pages; back++) {
        uint32_t parity;
        uint64_t *full = mt_page_before(c, back, &parity);
        while (!mt_mbarrier_await(full, parity)) {}
    }
}

/* Thread 0 of the consumers: this CTA's part of run `run` of the launch is done, and its stores are released. Waits
 * until everyone's is, if another run may follow. */
MT_DEVICE void mt_end_of_run(mt_context *c, uint32_t run) {
    const cuda_run *l = c->launch;
    if (l->runs == 1 && !l->stop_word) {
        mt_add_relaxed(l->finished, 1);
        return;
    }
    const bool known_last = run + 1 == l->runs;
    if (atomicAdd(l->finished, 1u) + 1 == c->epoch * gridDim.x) {
        mt_load_acquire(l->finished); /* what the others did in this run */
        const bool stopped = l->stop_word && mt_load_relaxed(l->stop_word), last = known_last || stopped;
        mt_fence(); /* release: all of that, and that the word has been read */
        atomicExch(l->go, 2 * c->epoch + last);
        *(volatile uint32_t *)&l->done->runs = run + 1; /* to the host, for which nobody here waits */
        *(volatile uint32_t *)&l->done->stopped = stopped;
        if (last && !known_last) mt_set_stop(c->cta, MT_STOPPED);
    } else if (!known_last) {
        mt_wait_word(c, l->go, (uint32_t)CUDA_END_OF_RUN, 2 * c->epoch);
        if (mt_load_relaxed(l->go) == 2 * c->epoch + 1) mt_set_stop(c->cta, MT_STOPPED);
    }
}

/* Consumers, once in a run, before its end: this CTA's part of the stamped data of the run before, which nobody reads
 * any more, and which the next run posts into, gets the stamp again. */
MT_DEVICE void mt_stamp_again(const mt_context *c) {
    const cuda_run *l = c->launch;
    MT_AT_INSTRUCTION(0xffffffffu);
    float *const to = (float *)(l->stamps + (c->epoch & 1 ? 0 : l->stamp_bytes));
    for (uint32_t i = blockIdx.x * CUDA_CONSUMERS + c->thread; i < l->stamp_bytes / 4; i += gridDim.x * CUDA_CONSUMERS)
        mt_stamp(to + i);
}

/* When anyone gives up, all consumers go on to the next meeting point with whatever they have, and leave there
 * together: nobody is left behind at a barrier that the others never reach.
 * Inlined whatever its size: a call makes ptxas run every wgmma of the unit by itself (its message C7510). */
MT_DEVICE void mt_consumer(mt_context *c) {
    mt_cursor k = {0, 0};
    bool released = true;                /* no instruction since the last fence */
    uint32_t known = ~0u, there = 0;     /* the barrier that this thread saw last in this run, and its target */
    uint32_t unknown = 0;                /* thread 0: instructions that have not arrived yet */
    bool stale = c->launch->stamp_bytes; /* mt_stamp_again is to come in this run */
    for (uint32_t run = 0; run < c->launch->runs;) {
        const bool ready = mt_next(c, &k);
        const program_instruction *i = &c->cta->slot[k.at].instruction;
        const bool end = ready && c->slot->number == MT_END_OF_RUN;
        MT_TRACED(const uint32_t received = mt_clock();)
        if (end) {
            if (stale) mt_stamp_again(c); /* it had no instruction */
            stale = c->launch->stamp_bytes;
            /* Every stamp has been issued, also where there was one instruction. */
            if (stale) mt_sync();
            if (c->thread == 0) {
                if (!released || stale) mt_fence();
                mt_end_of_run(c, run);
            }
            released = true;
            known = ~0u;
        } else if (ready && c->thread < i->wait_count &&
                   (i->wait[c->thread] != known || i->target[c->thread] != there)) {
            known = i->wait[c->thread];
            there = i->target[c->thread];
            const uint32_t barrier = known & ~CUDA_HINT;
            mt_wait_word(c, c->launch->counters + barrier, barrier, there * c->epoch, known & CUDA_HINT);
        }
        if (mt_sync_any(!ready || mt_stop(c->cta))) { /* and everyone sees what the waits saw */
            if (c->thread == 0 && c->stopped && mt_stop(c->cta) == MT_TIMED_OUT) mt_give_up(c, c->stopped, 0, 0, 0);
            return;
        }
        MT_TRACED(mt_trace_ready(c, received);)
        if (end) {
            run++;
            c->epoch++;
        } else {
            if (c->thread == 0 && i->arrive_count && !(c->slot->ends & CUDA_QUIET))
                *(volatile uint32_t *)&c->cta->busy = c->sequence; /* mt_hold */
            if (i->opcode != PROGRAM_JOIN) mt_op_run(c);
            MT_TRACED(const uint32_t done = mt_clock();)
            mt_sync(); /* every store of the instruction has been issued */
            MT_TRACED(const uint32_t synced = mt_clock();)
            /* From here on thread 0 alone may look at the slot: it gives it back. */
            if (c->thread == 0 && c->slot->ends & CUDA_GOES_ON) {
                unknown++;
                released = false;
            } else if (c->thread == 0) {
                released = i->arrive_count && !(c->slot->ends & CUDA_QUIET);
                if (released) mt_fence(); /* the barrier above put everyone's stores before it */
                for (int a = 0; a < i->arrive_count; a++)
                    mt_add_relaxed(c->launch->counters + i->arrive[a], 1 + unknown);
                unknown = 0;
                *(volatile uint32_t *)&c->cta->busy = 0;
            }
            MT_TRACED(if (c->thread == 0) mt_trace_arrived(c, done, synced);)
            if (stale) mt_stamp_again(c); /* while it would wait for others */
            stale = false;
        }
        mt_done(c, &k, c->thread == 0);
    }
}

extern "C" __global__ void __launch_bounds__(MT_THREADS, 1) monotile(const __grid_constant__ cuda_run launch) {
    MT_SHARED_REST(dynamic);
    MT_SHARED(mt_cta, cta);
    mt_context c;
    c.launch = &launch;
    c.cta = mt_keep_shared(&cta);
    c.slot = 0;
    c.pages = mt_keep_shared(&dynamic[0]);
    c.scratch = c.pages + (size_t)launch.pages * launch.page_bytes;
    c.page = c.page_phase = c.sequence = 0;
    c.holds = c.seen = false;
    c.early = 0;
    c.epoch = launch.epoch;
    c.thread = (int)threadIdx.x;
    c.warp = c.thread / 32;
    c.lane = c.thread % 32;
    c.role = c.warp < CUDA_WARPS ? CUDA_ROLE_CONSUMER : c.warp == CUDA_LOADER ? CUDA_ROLE_LOADER : CUDA_ROLE_CONTROLLER;
    c.stopped = CUDA_NO_FAILURE;
    if (c.thread == 0) {
        cta.stop = cta.busy = 0;
        MT_TRACED(for (int s = 0; s < CUDA_SLOTS; s++) cta.slot[s].trace_to = 0;)
        for (int s = 0; s < CUDA_SLOTS; s++) cta.slot[s].barriers = 0;
        for (int w = 0; w < CUDA_MAP_WORDS; w++) cta.mapped[w] = 0;
        for (int s = 0; s < CUDA_SLOTS; s++)
            mt_mbarrier_init(&cta.slot_full[s], 1), mt_mbarrier_init(&cta.slot_empty[s], 2);
        for (int p = 0; p < CUDA_MOST_PAGES; p++)
            mt_mbarrier_init(&cta.page_full[p], 1), mt_mbarrier_init(&cta.page_empty[p], CUDA_WARPS);
        mt_mbarrier_publish();
    }
    __syncthreads();
    if (c.role == CUDA_ROLE_CONSUMER) {
        mt_registers<MT_CONSUMER_REGISTERS>();
        mt_consumer(&c);
        return;
    }
    mt_registers<MT_OTHER_REGISTERS>();
    if (c.warp > CUDA_CONTROLLER) return; /* they make the warpgroup whole */
    if (c.role == CUDA_ROLE_CONTROLLER)
        mt_controller(&c);
    else if (c.lane == 0)
        mt_loader(&c);
}
