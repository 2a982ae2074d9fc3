/* The order that barriers make, exactly and in little memory.
 *
 * An instruction i is finished before j starts if and only if i arrives at a barrier that is known to be complete when
 * j starts. Known to be complete are the barriers that j waits on, and all that was known to those who arrived there:
 *
 *     known(j)    = union of done(b) over the barriers b that j waits on
 *     done(b)     = { b } and known(a) of every instruction a that arrives at b
 *
 * Arrivals have lower numbers than waiters, so one pass in ascending order computes both. The order that a processor's
 * list adds is not used: a program must also be right on a machine with other processors.
 *
 * The sets are sorted lists of intervals of ranks (barriers in the order of their first arrival). They stay short
 * because a barrier that nobody will ask about any more - every access of every instruction that arrives there has
 * been replaced by later ones - may be in a set or not: gaps that hold only such barriers are closed, intervals of
 * only such barriers dropped. What is left to tell apart are the barriers at the program's working edge. A set is made
 * when the first instruction arrives and freed after the last one has waited.
 *
 * All of this is exact. Its cost is not bounded by the program's size alone, so every step is paid from a budget far
 * above what real programs need, and the sets' memory too; a file made to be slow ends in MT_E_LIMIT. */
#include <stdlib.h>

#include "program/order.h"

enum {
    STEPS_PER_INSTRUCTION = 8192,
    STEPS_AT_LEAST = 1 << 24,
    INTERVALS_PER_INSTRUCTION = 256,
    INTERVALS_AT_LEAST = 1 << 20
};

typedef struct interval {
    uint32_t first, last;
} interval; /* ranks, half-open */
typedef struct rank_set {
    interval *items;
    uint32_t count, capacity;
} rank_set;

typedef struct barrier_state {
    uint32_t rank;
    uint32_t pending; /* arrivals of instructions that may still be asked about, or have not left */
    uint32_t waiters; /* waits to come */
    uint32_t merged;  /* the id of the knowledge that was last put into `done` */
    rank_set done;    /* without the barrier itself */
} barrier_state;

struct program_order {
    const mt_program *p;
    barrier_state *barriers;
    uint32_t *
        alive; /* by rank: itself, or a higher rank on the way to the next that may be asked about; count + 1 entries */
    uint8_t *held; /* by instruction: accesses that may be asked about */
    rank_set known, scratch;
    uint32_t known_id;
    const program_instruction *entered;
    uint64_t steps;     /* left */
    uint64_t intervals; /* left, of those that sets may have room for */
};

static uint32_t next_alive(program_order *o, uint32_t rank) {
    while (o->alive[rank] != rank) rank = o->alive[rank] = o->alive[o->alive[rank]];
    return rank;
}

bool program_order_spend(program_order *o, uint64_t steps) {
    if (steps > o->steps) {
        o->steps = 0;
        return false;
    }
    o->steps -= steps;
    return true;
}

bool program_order_is_spent(const program_order *o) { return !o->steps; }

/* Appends an interval whose first is not below those before it. The set has room. */
static void append(program_order *o, rank_set *s, interval v) {
    v.first = next_alive(o, v.first);
    if (v.first >= v.last) return;
    interval *end = s->count ? &s->items[s->count - 1] : NULL;
    if (end && next_alive(o, end->last) >= v.first) {
        if (v.last > end->last) end->last = v.last;
    } else {
        s->items[s->count++] = v;
    }
}

/* *a becomes the union of a and b. */
static bool merge(program_order *o, rank_set *a, const rank_set *b) {
    if (!b->count) return true;
    const uint32_t room = a->count + b->count;
    rank_set *out = &o->scratch;
    if (room > out->capacity) {
        interval *items = realloc(out->items, 2 * (size_t)room * sizeof *items);
        if (!items) return false;
        out->items = items;
        out->capacity = 2 * room;
    }
    out->count = 0;
    for (uint32_t i = 0, k = 0; i < a->count || k < b->count;) {
        if (k == b->count || (i < a->count && a->items[i].first <= b->items[k].first))
            append(o, out, a->items[i++]);
        else
            append(o, out, b->items[k++]);
    }
    if (out->count > a->capacity) {
        if (out->count - a->capacity > o->intervals) {
            o->steps = 0;
            return false;
        }
        o->intervals -= out->count - a->capacity;
        interval *items = realloc(a->items, (size_t)out->count * sizeof *items);
        if (!items) return false;
        a->items = items;
        a->capacity = out->count;
    }
    if (out->count) memcpy(a->items, out->items, out->count * sizeof *a->items);
    a->count = out->count;
    return program_order_spend(o, room);
}

static bool same_waits(const program_instruction *a, const program_instruction *b) {
    return a->wait_count == b->wait_count && !memcmp(a->wait, b->wait, a->wait_count * sizeof *a->wait);
}

bool program_order_enter(program_order *o, uint32_t instruction) {
    const program_instruction *n = &o->p->instructions[instruction];
    if (!o->entered || !same_waits(o->entered, n)) {
        o->known.count = 0;
        o->known_id++;
        for (int k = 0; k < n->wait_count; k++) {
            const barrier_state *b = &o->barriers[n->wait[k]];
            interval self = {b->rank, b->rank + 1};
            if (!merge(o, &o->known, &b->done) || !merge(o, &o->known, &(rank_set){&self, 1, 1})) return false;
        }
    }
    o->entered = n;
    for (int k = 0; k < n->wait_count; k++) {
        barrier_state *b = &o->barriers[n->wait[k]];
        if (--b->waiters) continue;
        o->intervals += b->done.capacity;
        free(b->done.items);
        b->done = (rank_set){0};
    }
    return true;
}

static void release(program_order *o, uint32_t instruction) {
    const program_instruction *n = &o->p->instructions[instruction];
    for (int k = 0; k < n->arrive_count; k++) {
        barrier_state *b = &o->barriers[n->arrive[k]];
        if (!--b->pending) o->alive[b->rank] = b->rank + 1;
    }
}

bool program_order_leave(program_order *o, uint32_t instruction) {
    const program_instruction *n = &o->p->instructions[instruction];
    for (int k = 0; k < n->arrive_count; k++) {
        barrier_state *b = &o->barriers[n->arrive[k]];
        if (!b->waiters || b->merged == o->known_id) continue;
        if (!merge(o, &b->done, &o->known)) return false;
        b->merged = o->known_id;
    }
    if (!o->held[instruction]) release(o, instruction);
    return true;
}

void program_order_hold(program_order *o, uint32_t instruction) { o->held[instruction]++; }

void program_order_forget(program_order *o, uint32_t instruction) {
    if (!--o->held[instruction]) release(o, instruction);
}

/* The interval that holds the rank, or NULL. */
static const interval *find(const rank_set *s, uint32_t rank) {
    uint32_t low = 0, high = s->count; /* the first interval that begins behind rank */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (s->items[middle].first <= rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low && s->items[low - 1].last > rank ? &s->items[low - 1] : NULL;
}

bool program_order_knows(program_order *o, uint32_t earlier) {
    const program_instruction *n = &o->p->instructions[earlier];
    for (int k = 0; k < n->arrive_count; k++)
        if (find(&o->known, o->barriers[n->arrive[k]].rank)) return true;
    return false;
}

uint32_t program_order_rank(const program_order *o, uint32_t barrier) { return o->barriers[barrier].rank; }

bool program_order_knows_ranks(program_order *o, uint32_t low, uint32_t high) {
    const interval *i = find(&o->known, next_alive(o, low));
    return i && (i->last > high || next_alive(o, i->last) > high);
}

static mt_status check_waits(program_order *o, mt_error *error) {
    const mt_program *p = o->p;
    char name[300];
    uint32_t ranks = 0;
    for (size_t b = 0; b < p->barriers_count; b++) o->barriers[b].rank = UINT32_MAX;
    for (size_t i = 0; i < p->instructions_count; i++) {
        const program_instruction *n = &p->instructions[i];
        for (int k = 0; k < n->arrive_count; k++) {
            barrier_state *b = &o->barriers[n->arrive[k]];
            if (b->rank == UINT32_MAX) b->rank = ranks++;
            b->pending++;
        }
        for (int k = 0; k < n->wait_count; k++) {
            if (n->target[k] != p->barriers[n->wait[k]].arrivals) {
                program_instruction_name(p, i, name, sizeof name);
                return error_set(error, MT_E_FORMAT, NULL, "%s waits for %u arrivals at barrier %u, which has %u", name,
                                 n->target[k], n->wait[k], p->barriers[n->wait[k]].arrivals);
            }
            o->barriers[n->wait[k]].waiters++;
        }
    }
    for (size_t b = 0; b < p->barriers_count; b++)
        if (o->barriers[b].pending != p->barriers[b].arrivals)
            return error_set(error, MT_E_FORMAT, NULL,
                             "barrier %zu should have %u arrivals; %u instructions arrive there", b,
                             p->barriers[b].arrivals, o->barriers[b].pending);
    for (size_t i = 0; i < p->instructions_count; i++) { /* `merged` counts the arrivals so far */
        const program_instruction *n = &p->instructions[i];
        for (int k = 0; k < n->wait_count; k++) {
            if (o->barriers[n->wait[k]].merged == p->barriers[n->wait[k]].arrivals) continue;
            program_instruction_name(p, i, name, sizeof name);
            return error_set(error, MT_E_FORMAT, NULL,
                             "%s waits on barrier %u, at which it or a later instruction arrives: it may never start",
                             name, n->wait[k]);
        }
        for (int k = 0; k < n->arrive_count; k++) o->barriers[n->arrive[k]].merged++;
    }
    return MT_OK;
}

mt_status program_order_new(program_order **out, const mt_program *p, mt_error *error) {
    program_order *o = *out = calloc(1, sizeof *o);
    if (!o) return error_set(error, MT_E_MEMORY, NULL, "no memory to check a program");
    o->p = p;
    o->barriers = calloc(p->barriers_count + 1, sizeof *o->barriers);
    o->alive = calloc(p->barriers_count + 1, sizeof *o->alive);
    o->held = calloc(p->instructions_count + 1, sizeof *o->held);
    mt_status status = o->barriers && o->alive && o->held
                           ? MT_OK
                           : error_set(error, MT_E_MEMORY, NULL, "no memory to check a program");
    if (status == MT_OK) status = check_waits(o, error);
    if (status != MT_OK) {
        program_order_free(o);
        *out = NULL;
        return status;
    }
    for (size_t b = 0; b <= p->barriers_count; b++) o->alive[b] = (uint32_t)b;
    for (size_t b = 0; b < p->barriers_count; b++) o->barriers[b].merged = 0; /* ids begin at 1 */
    o->steps = STEPS_AT_LEAST + (uint64_t)STEPS_PER_INSTRUCTION * p->instructions_count;
    o->intervals = INTERVALS_AT_LEAST + (uint64_t)INTERVALS_PER_INSTRUCTION * p->instructions_count;
    return MT_OK;
}

void program_order_free(program_order *o) {
    if (!o) return;
    for (size_t b = 0; b < o->p->barriers_count && o->barriers; b++) free(o->barriers[b].done.items);
    free(o->known.items);
    free(o->scratch.items);
    free(o->barriers);
    free(o->alive);
    free(o->held);
    free(o);
}
