/* From what a traced kernel noted to records. Every SM has a clock of its own: two moments of each launch, on that
 * clock and on the device's, tell how it goes. All SMs tick alike, so the rate is that of all of them together. */
#include "machine/trace.h"

typedef struct timing {
    const cuda_trace_clock *clocks;
    double rate;     /* clocks in a nanosecond */
    uint64_t origin; /* on the device's clock */
} timing;

static bool complete(const cuda_trace_clock *c) {
    return c->begin_time && c->end_time > c->begin_time && c->end_clock > c->begin_clock;
}

/* Both moments of a processor count alike: the one in the middle of them is surest. */
static int64_t time_of(const timing *t, uint32_t processor, uint64_t clock) {
    const cuda_trace_clock *c = &t->clocks[processor];
    const double from_begin = (double)(int64_t)(clock - c->begin_clock) / t->rate,
                 from_end = (double)(int64_t)(clock - c->end_clock) / t->rate;
    const double begin = (double)(int64_t)(c->begin_time - t->origin), end = (double)(int64_t)(c->end_time - t->origin);
    return (int64_t)((begin + from_begin + end + from_end) / 2);
}

/* A note's low 32 bits of a clock, behind the long one. */
static int64_t step_of(const timing *t, const cuda_trace *note, uint32_t low) {
    return time_of(t, note->processor, note->fetched + (uint32_t)(low - (uint32_t)note->fetched));
}

size_t trace_convert(const cuda_trace *notes, const cuda_trace_clock *clocks, const cuda_run *launch, uint32_t grid,
                     mt_trace_record *out) {
    timing t = {.clocks = clocks, .origin = UINT64_MAX};
    double ticks = 0, nanoseconds = 0;
    for (uint32_t p = 0; p < grid; p++) {
        if (!complete(&clocks[p])) continue;
        ticks += (double)(clocks[p].end_clock - clocks[p].begin_clock);
        nanoseconds += (double)(clocks[p].end_time - clocks[p].begin_time);
    }
    if (!(nanoseconds > 0)) return 0;
    t.rate = ticks / nanoseconds;
    for (uint32_t p = 0; p < grid; p++) { /* the first to begin; nothing is noted before */
        if (!complete(&clocks[p])) continue;
        const double before = (double)((uint32_t)clocks[p].begin_clock - clocks[p].start) / t.rate;
        const uint64_t begin = clocks[p].begin_time - (uint64_t)before;
        if (begin < t.origin) t.origin = begin;
    }
    const uint32_t kept = launch->runs < launch->trace_runs ? launch->runs : launch->trace_runs;
    const size_t in_run = (size_t)launch->instruction_count + grid;
    size_t count = 0;
    uint32_t runs = 0;                           /* that took place: a loop can end early */
    for (size_t i = 0; i < kept * in_run; i++) { /* other notes are of launches before: they are not cleared */
        const uint32_t run = notes[i].epoch - launch->epoch;
        if (notes[i].epoch && run < launch->runs && run >= runs) runs = run + 1;
    }
    for (uint32_t run = runs > kept ? runs - kept : 0; run < runs; run++)
        for (size_t i = 0; i < in_run; i++) {
            const cuda_trace *n = &notes[run % launch->trace_runs * in_run + i];
            if (n->epoch != launch->epoch + run || n->processor >= grid || !complete(&clocks[n->processor])) continue;
            const bool end = i >= launch->instruction_count;
            mt_trace_record *r = &out[count++];
            *r = (mt_trace_record){.run = run,
                                   .instruction = end ? launch->instruction_count : (uint32_t)i,
                                   .processor = n->processor,
                                   .pages = n->pages,
                                   .fetched = time_of(&t, n->processor, n->fetched),
                                   .received = step_of(&t, n, n->received),
                                   .ready = step_of(&t, n, n->ready),
                                   .first_page =
                                       !n->pages ? -1 : step_of(&t, n, n->first_page ? n->first_page : n->ready),
                                   .done = step_of(&t, n, n->done),
                                   .synced = step_of(&t, n, n->synced),
                                   .arrived = step_of(&t, n, n->arrived),
                                   .load_begin = n->pages ? step_of(&t, n, n->load_begin) : -1,
                                   .load_end = n->pages ? step_of(&t, n, n->load_end) : -1,
                                   .page_wait = end ? 0 : (int64_t)(n->page_wait / t.rate),
                                   .load_wait = (int64_t)(n->load_wait / t.rate)};
            if (end) r->done = r->synced = r->arrived = r->ready;
        }
    return count;
}
