/* Workers and the protocol by which they run a program.
 *
 * Who runs what. Worker 0 is the thread that called; the others live as long as the machine and park between runs.
 * With static placement each worker has an ascending list of instruction numbers; with the queue it takes the next
 * number. Either way the lowest instruction that has not finished is at the head of some worker's list or held by one,
 * and everything that it waits for has a lower number (program_check), so it can go on: no deadlock, with any number
 * of workers.
 *
 * Barriers. A counter only grows, by one an arrival. In run number e since the counters were cleared (the epoch), a
 * barrier with n arrivals a run is complete when count reaches n * e. Both are 32 bits and wrap around, so they are
 * compared by their difference: complete if (int32_t)(count - n * e) >= 0. That is right because count lies between
 * n * (e - 1) and n * e while run e lasts, and n < 2^31: runs follow each other only when all workers have left, and
 * every barrier is then complete.
 *
 * Hand-off. An arrival is an atomic increment with release order after the instruction's stores; a wait ends with a
 * load with acquire order that sees the last arrival. Increments continue each other's release sequence, so the waiter
 * sees the stores of all who arrived.
 *
 * Sleeping. A wait spins for a short while, then sleeps on its worker's condition variable. The sleeper raises
 * barrier.sleepers, then looks at the counter once more; the one whose arrival completes the barrier raises the
 * counter, then looks at sleepers. Both are sequentially consistent, so one of the two sees the other: no wake-up is
 * lost. The waker takes the lock before it signals, and a sleeper holds it from its last look until it sleeps.
 * Starting and ending a run work in the same way, with `parked` and `caller_sleeps`.
 *
 * Giving up. A wait that lasts longer than the session's timeout writes down who waits for what, sets `stop` and wakes
 * all; everybody leaves at the next wait or instruction. The counters then mean nothing, and the next run clears them
 * first. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "machine/cpu/cpu.h"

enum { PAUSES = 32 }; /* between two looks at the clock */

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool reached(uint32_t count, uint32_t threshold) { return (int32_t)(count - threshold) >= 0; }

/* Waits with m->lock held, at most until clock_ns() is `deadline` (0: for ever). */
static void sleep_until(cpu_machine *m, pthread_cond_t *condition, uint64_t deadline) {
    if (!deadline) {
        pthread_cond_wait(condition, &m->lock);
        return;
    }
    const struct timespec at = {(time_t)(deadline / 1000000000),
                                (long)(deadline % 1000000000)}; /* CLOCK_MONOTONIC, as clock_ns */
    pthread_cond_timedwait(condition, &m->lock, &at);
}

/* With m->lock held, by a worker whose wait has lasted too long. What is reported is the lowest instruction that
 * waits: the others may wait because of it. */
static void give_up(cpu_session *s) {
    cpu_machine *m = s->machine;
    const cpu_worker *lowest = NULL;
    for (int k = 0; k < m->worker_count; k++) {
        const cpu_worker *w = &m->workers[k];
        if (w->sleeps_on != CPU_NONE && (!lowest || w->instruction < lowest->instruction)) lowest = w;
    }
    const uint32_t barrier = lowest->sleeps_on,
                   before = s->program->barriers[barrier].arrivals * (s->epoch - 1); /* of earlier runs */
    s->failure = (cpu_failure){lowest->instruction, barrier, lowest->target,
                               atomic_load(&s->barriers[barrier].count) - before, lowest->number};
    atomic_store(&s->stop, true);
    for (int k = 0; k < m->worker_count; k++) pthread_cond_signal(&m->workers[k].wake);
}

/* False: the run is being stopped. */
static bool wait_slowly(cpu_worker *w, cpu_session *s, uint32_t instruction, uint32_t barrier, uint32_t target) {
    cpu_machine *m = s->machine;
    cpu_barrier *b = &s->barriers[barrier];
    const uint32_t threshold = target * s->epoch;
    const uint64_t begin = clock_ns(), deadline = s->timeout_ns ? begin + s->timeout_ns : 0;
    uint64_t now = begin;
    while (now - begin < m->spin_ns) {
        for (int k = 0; k < PAUSES; k++) {
            if (reached(atomic_load_explicit(&b->count, memory_order_acquire), threshold)) return true;
            pause_briefly();
        }
        if (atomic_load_explicit(&s->stop, memory_order_relaxed)) return false;
        now = clock_ns();
        if (deadline && now >= deadline) break;
    }
    pthread_mutex_lock(&m->lock);
    w->sleeps_on = barrier;
    w->instruction = instruction;
    w->target = target;
    atomic_fetch_add(&b->sleepers, 1);
    bool done;
    while (!(done = reached(atomic_load(&b->count), threshold)) && !atomic_load(&s->stop)) {
        if (deadline && clock_ns() >= deadline)
            give_up(s);
        else
            sleep_until(m, &w->wake, deadline);
    }
    atomic_fetch_sub(&b->sleepers, 1);
    w->sleeps_on = CPU_NONE;
    pthread_mutex_unlock(&m->lock);
    return done;
}

static void wake_sleepers(cpu_machine *m, uint32_t barrier) {
    pthread_mutex_lock(&m->lock);
    for (int w = 0; w < m->worker_count; w++)
        if (m->workers[w].sleeps_on == barrier) pthread_cond_signal(&m->workers[w].wake);
    pthread_mutex_unlock(&m->lock);
}

/* False: the run is being stopped. */
static inline bool run_instruction(cpu_worker *w, cpu_session *s, uint32_t number) {
    const program_instruction *n = &s->program->instructions[number];
    mt_trace_record *trace = s->trace ? &s->trace[number] : NULL;
    if (trace)
        *trace = (mt_trace_record){.instruction = number,
                                   .processor = (uint32_t)w->number,
                                   .received = (int64_t)clock_ns(),
                                   .first_page = -1,
                                   .load_begin = -1,
                                   .load_end = -1};
    for (int k = 0; k < n->wait_count; k++) {
        const uint32_t count = atomic_load_explicit(&s->barriers[n->wait[k]].count, memory_order_acquire);
        if (!reached(count, n->target[k] * s->epoch) && !wait_slowly(w, s, number, n->wait[k], n->target[k]))
            return false;
    }
    if (trace) trace->ready = (int64_t)clock_ns();
    if (n->opcode != PROGRAM_JOIN) {
        const cpu_node *node = &s->nodes[n->node];
        node->code(node->tensors, node->args, node->lives, n->index, w->scratch);
    }
    if (trace) trace->done = (int64_t)clock_ns();
    for (int k = 0; k < n->arrive_count; k++) {
        cpu_barrier *b = &s->barriers[n->arrive[k]];
        const uint32_t count = atomic_fetch_add(&b->count, 1) + 1;
        if (count == s->program->barriers[n->arrive[k]].arrivals * s->epoch && atomic_load(&b->sleepers))
            wake_sleepers(s->machine, n->arrive[k]);
    }
    if (trace) trace->arrived = (int64_t)clock_ns();
    return true;
}

static void take_part(cpu_worker *w, cpu_session *s) {
    if (s->list) {
        const uint32_t *list = s->list[w->number], count = s->list_count[w->number];
        for (uint32_t k = 0; k < count && !atomic_load_explicit(&s->stop, memory_order_relaxed); k++)
            if (!run_instruction(w, s, list[k])) return;
        return;
    }
    const uint32_t count = (uint32_t)s->program->instructions_count; /* below 2^31, so next cannot wrap around */
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        const uint32_t number = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
        if (number >= count || !run_instruction(w, s, number)) return;
    }
}

/* ---- the workers ---- */

/* Parks until the run number is no longer `last`. False: the machine closes. */
static bool wait_for_run(cpu_machine *m, uint32_t last) {
    const uint64_t begin = clock_ns();
    for (uint64_t now = begin; now - begin < m->spin_ns; now = clock_ns()) {
        for (int k = 0; k < PAUSES; k++) {
            if (atomic_load_explicit(&m->run, memory_order_acquire) != last) return true;
            pause_briefly();
        }
    }
    pthread_mutex_lock(&m->lock);
    atomic_fetch_add(&m->parked, 1);
    while (atomic_load(&m->run) == last && !m->quit) pthread_cond_wait(&m->start, &m->lock);
    const bool quit = m->quit;
    atomic_fetch_sub(&m->parked, 1);
    pthread_mutex_unlock(&m->lock);
    return !quit;
}

static void *worker_main(void *argument) {
    cpu_worker *w = argument;
    cpu_machine *m = w->machine;
    for (uint32_t last = 0; wait_for_run(m, last);) {
        last++; /* no run is missed: the next begins when all have left this one */
        take_part(w, m->session);
        if (atomic_fetch_sub(&m->active, 1) == 1 && atomic_load(&m->caller_sleeps)) {
            pthread_mutex_lock(&m->lock);
            pthread_cond_signal(&m->done);
            pthread_mutex_unlock(&m->lock);
        }
    }
    return NULL;
}

mt_status cpu_machine_start(cpu_machine *m, mt_error *error) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&m->turn, NULL);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->start, NULL);
    pthread_cond_init(&m->done, NULL);
    for (int k = 0; k < m->worker_count; k++) {
        m->workers[k] = (cpu_worker){.machine = m, .number = k, .sleeps_on = CPU_NONE};
        pthread_cond_init(&m->workers[k].wake, &monotonic);
    }
    pthread_condattr_destroy(&monotonic);
    for (int k = 1; k < m->worker_count; k++) {
        const int failed = pthread_create(&m->workers[k].thread, NULL, worker_main, &m->workers[k]);
        if (!failed) continue;
        for (int rest = k; rest < m->worker_count; rest++) pthread_cond_destroy(&m->workers[rest].wake);
        m->worker_count = k; /* those that cpu_machine_stop must end */
        errno = failed;
        return error_errno(error, NULL, "cannot start worker %d", k);
    }
    return MT_OK;
}

void cpu_machine_stop(cpu_machine *m) {
    pthread_mutex_lock(&m->lock);
    m->quit = true;
    pthread_cond_broadcast(&m->start);
    pthread_mutex_unlock(&m->lock);
    for (int k = 0; k < m->worker_count; k++) {
        if (k) pthread_join(m->workers[k].thread, NULL);
        pthread_cond_destroy(&m->workers[k].wake);
        free(m->workers[k].scratch);
    }
    pthread_cond_destroy(&m->done);
    pthread_cond_destroy(&m->start);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->turn);
}

static void wait_for_workers(cpu_machine *m) {
    const uint64_t begin = clock_ns();
    for (uint64_t now = begin; now - begin < m->spin_ns; now = clock_ns()) {
        for (int k = 0; k < PAUSES; k++) {
            if (!atomic_load_explicit(&m->active, memory_order_acquire)) return;
            pause_briefly();
        }
    }
    pthread_mutex_lock(&m->lock);
    atomic_store(&m->caller_sleeps, 1);
    while (atomic_load(&m->active)) pthread_cond_wait(&m->done, &m->lock);
    atomic_store(&m->caller_sleeps, 0);
    pthread_mutex_unlock(&m->lock);
}

static mt_status describe_failure(const cpu_session *s, mt_error *error) {
    const cpu_failure *f = &s->failure;
    char name[300];
    program_instruction_name(s->program, f->instruction, name, sizeof name);
    return error_set(error, MT_E_HANG, NULL,
                     "worker %d waited longer than %g seconds: %s waits for %u arrivals at barrier %u, which has %u",
                     f->worker, (double)s->timeout_ns * 1e-9, name, f->expected, f->barrier, f->actual);
}

mt_status cpu_run(cpu_session *s, mt_error *error) {
    cpu_machine *m = s->machine;
    if (s->broken) {
        for (size_t b = 0; b < s->program->barriers_count; b++)
            atomic_store_explicit(&s->barriers[b].count, 0, memory_order_relaxed);
        s->epoch = 0;
        s->broken = false;
    }
    s->epoch++;
    atomic_store_explicit(&s->next, 0, memory_order_relaxed);
    atomic_store_explicit(&s->stop, false, memory_order_relaxed);
    m->session = s;
    atomic_store_explicit(&m->active, m->worker_count - 1, memory_order_relaxed);
    atomic_fetch_add(&m->run, 1); /* publishes all of the above */
    if (atomic_load(&m->parked)) {
        pthread_mutex_lock(&m->lock);
        pthread_cond_broadcast(&m->start);
        pthread_mutex_unlock(&m->lock);
    }
    take_part(&m->workers[0], s);
    wait_for_workers(m);
    for (size_t op = 0; op < s->program->ops_count; op++) {
        const char **stuck = s->stuck[op];
        text all = {0};
        for (int role = 0; stuck && role < CPU_ROLES; stuck[role++] = NULL)
            if (stuck[role]) text_printf(&all, "%s%s", all.length ? "; " : "", stuck[role]);
        if (!all.length) continue;
        s->broken = true;
        const mt_status status = error_set(error, MT_E_HANG, s->entries[op]->name, "no role can go on: %s", all.data);
        text_free(&all);
        return status;
    }
    if (!atomic_load(&s->stop)) return MT_OK;
    s->broken = true;
    return describe_failure(s, error);
}
