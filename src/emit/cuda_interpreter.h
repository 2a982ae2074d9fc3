/* The persistent kernel, pasted behind the ops' code. One CTA a processor; its warps have roles (cuda_prelude.h says
 * who meets whom). The ops' code gives two functions that switch over the opcode: mt_op_load(c)  the loader's part: one
 * lane, pages in the order of their use mt_op_run(c)   the consumers' part and MT_OP_TENSORS, a table of each op's
 * operand count.
 *
 * A run ends for a CTA when its instructions are done. The next run's instructions may start on another CTA before
 * that, but none touches what this run still uses: before its first instruction of a run, a CTA waits until all have
 * finished the one before. The loader does not wait there either: weights for the next run are already on their way. */

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

static __device__ void mt_controller(mt_context *c) {
    uint32_t at = 0, parity = 1;
    for (uint32_t run = 0; run < c->launch->runs; run++)
        for (uint32_t i = 0;; i++) {
            uint32_t number;
            const bool more = mt_fetch(c, run, i, &number);
            mt_slot *s = &c->cta->slot[at];
            c->slot = 0;
            if (!mt_wait(c, &c->cta->slot_empty[at], parity, CUDA_SLOT_WAIT))
                return; /* loader and consumers: mt_done */
            if (more) {
                const uint32_t *from = (const uint32_t *)(c->launch->instructions + number);
                uint32_t *to = (uint32_t *)&s->instruction;
                for (int w = c->lane; w < (int)(sizeof(program_instruction) / 4); w += 32) to[w] = from[w];
                __syncwarp();
                const uint32_t opcode = s->instruction.opcode;
                const int tensors = opcode == PROGRAM_JOIN ? 0 : MT_OP_TENSORS[opcode];
                for (int w = c->lane; w < tensors * (int)(sizeof(cuda_tensor) / 8); w += 32) {
                    const int t = w / (int)(sizeof(cuda_tensor) / 8), word = w % (int)(sizeof(cuda_tensor) / 8);
                    ((uint64_t *)&s->tensor[t])[word] =
                        ((const uint64_t *)(c->launch->operands + s->instruction.tensor[t]))[word];
                }
            }
            if (c->lane == 0) s->number = more ? number : MT_END_OF_RUN;
            __syncwarp();
            if (c->lane == 0) mt_mbarrier_arrive(&c->cta->slot_full[at]); /* loader and consumers: mt_next */
            if (++at == CUDA_SLOTS) at = 0, parity ^= 1;
            if (!more) break;
        }
}

typedef struct mt_cursor {
    uint32_t at, parity;
} mt_cursor;

/* Loader, consumers: the next slot. False: give up. */
MT_DEVICE bool mt_next(mt_context *c, mt_cursor *k) {
    c->slot = 0;
    if (!mt_wait(c, &c->cta->slot_full[k->at], k->parity, CUDA_SLOT_WAIT)) return false; /* controller */
    c->slot = &c->cta->slot[k->at];
    return true;
}
/* One thread of the role: the slot may be used again. */
MT_DEVICE void mt_done(mt_context *c, mt_cursor *k, bool arrive) {
    if (arrive) mt_mbarrier_arrive(&c->cta->slot_empty[k->at]); /* controller */
    if (++k->at == CUDA_SLOTS) k->at = 0, k->parity ^= 1;
}

static __device__ void mt_loader(mt_context *c) {
    mt_cursor k = {0, 0};
    bool wrapped = false; /* the ring has been filled once */
    for (uint32_t run = 0; run < c->launch->runs && !c->stopped;) {
        if (!mt_next(c, &k)) break;
        const uint32_t before = c->page;
        if (c->slot->number == MT_END_OF_RUN)
            run++;
        else if (c->slot->instruction.opcode != PROGRAM_JOIN)
            mt_op_load(c);
        wrapped |= c->page < before || c->page_phase;
        mt_done(c, &k, true);
    }
    if (!c->stopped) return;
    /* Copies that are still under way write to this CTA's memory: stay until the last fill of every page has landed. */
    for (uint32_t p = 0; p < c->launch->pages; p++)
        if (p < c->page || wrapped)
            while (!mt_mbarrier_try(&c->cta->page_full[p], p < c->page ? c->page_phase : c->page_phase ^ 1)) {}
}

/* When anyone gives up, all consumers go on to the next meeting point with whatever they have, and leave there
 * together: nobody is left behind at a barrier that the others never reach. */
static __device__ void mt_consumer(mt_context *c) {
    mt_cursor k = {0, 0};
    for (uint32_t run = 0; run < c->launch->runs;) {
        const bool ready = mt_next(c, &k);
        const program_instruction *i = &c->cta->slot[k.at].instruction;
        const bool end = ready && c->slot->number == MT_END_OF_RUN;
        if (end) {
            /* This CTA's part of the run is done (its arrivals carried the release); go on when everyone's is. */
            if (c->thread == 0) {
                mt_add_relaxed(c->launch->finished, 1);
                if (run + 1 < c->launch->runs)
                    mt_wait_word(c, c->launch->finished, MT_RUN_BARRIER, c->epoch * gridDim.x);
            }
        } else if (ready && c->thread < i->wait_count) {
            mt_wait_word(c, c->launch->counters + i->wait[c->thread], i->wait[c->thread],
                         i->target[c->thread] * c->epoch);
        }
        if (mt_sync_any(!ready || *(volatile uint32_t *)&c->cta->stop))
            return; /* and everyone sees what the waits saw */
        if (end) {
            run++;
            c->epoch++;
        } else {
            if (i->opcode != PROGRAM_JOIN) mt_op_run(c);
            mt_sync(); /* every store of the instruction has been issued */
            if (c->thread == 0 && i->arrive_count) {
                mt_fence(); /* release: the barrier above put everyone's stores before it */
                for (int a = 0; a < i->arrive_count; a++) mt_add_relaxed(c->launch->counters + i->arrive[a], 1);
            }
        }
        mt_done(c, &k, c->thread == 0);
    }
}

extern "C" __global__ void __launch_bounds__(CUDA_THREADS, 1) monotile(const __grid_constant__ cuda_run launch) {
    extern __shared__ __align__(1024) char dynamic[];
    __shared__ mt_cta cta;
    mt_context c;
    c.launch = &launch;
    c.cta = &cta;
    c.slot = 0;
    c.pages = dynamic; /* 1024: the atoms of weights are swizzled by address */
    c.scratch = dynamic + (size_t)launch.pages * CUDA_PAGE;
    c.page = c.page_phase = 0;
    c.epoch = launch.epoch;
    c.thread = (int)threadIdx.x;
    c.warp = c.thread / 32;
    c.lane = c.thread % 32;
    c.role = c.warp < CUDA_WARPS ? CUDA_ROLE_CONSUMER : c.warp == CUDA_LOADER ? CUDA_ROLE_LOADER : CUDA_ROLE_CONTROLLER;
    c.stopped = false;
    if (c.thread == 0) {
        cta.stop = 0;
        for (int s = 0; s < CUDA_SLOTS; s++)
            mt_mbarrier_init(&cta.slot_full[s], 1), mt_mbarrier_init(&cta.slot_empty[s], 2);
        for (int p = 0; p < CUDA_MOST_PAGES; p++)
            mt_mbarrier_init(&cta.page_full[p], 1), mt_mbarrier_init(&cta.page_empty[p], CUDA_WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (c.role == CUDA_ROLE_CONSUMER)
        mt_consumer(&c);
    else if (c.role == CUDA_ROLE_CONTROLLER)
        mt_controller(&c);
    else if (c.lane == 0)
        mt_loader(&c);
}
