/* What the passes of the schedule share.
 *
 * Instructions are known by their *number*: consecutive, node after node, grid order inside a node. Joins are placed
 * later, in front of the instruction that needs them; final numbers count them too (emit.c).
 *
 * A *set* is some instructions of one node, a *list* is sets of different nodes, the latest node first: what an
 * instruction waits for. Both are interned, so that equal ones are one id and can share barriers. */
#ifndef SCHED_SCHED_INTERNAL_H
#define SCHED_SCHED_INTERNAL_H

#include "sched/sched.h"

enum { SCHED_NONE = -1, SCHED_SLOT_ALIGNMENT = 128, SCHED_NODE_GROUPS = 2 * TILE_PARAMS };
#define SCHED_NO_ID UINT32_MAX

/* Strings of 32-bit words, interned: equal strings have one id, ids count up from 0. */
typedef struct sched_words {
    uint32_t *words;
    size_t word_count, word_capacity;
    struct sched_item {
        size_t begin;
        uint32_t length, hash;
    } * items;
    size_t count, capacity;
    uint32_t *slots; /* open addressing: id + 1, or 0 */
    size_t slot_count, slot_capacity;
} sched_words;

typedef struct sched_range {
    uint32_t begin, end;
} sched_range; /* numbers, half-open */

typedef struct sched_set {
    uint32_t node, count; /* instructions */
    bool whole;           /* who waits for it waits for all instructions of the node */
    uint32_t stamp;       /* the last node that looked at it, + 1 (prune.c) */
    uint32_t users;       /* distinct lists of instructions that hold it (barrier.c) */
    uint32_t barrier;     /* or SCHED_NO_ID (barrier.c) */
    bool direct;          /* its members arrive at its barrier themselves (barrier.c) */
} sched_set;

/* A box on a tensor: rank pairs {low, high}. */
typedef int64_t sched_bounds[2 * TILE_RANK];

/* All accesses of one node to one tensor through one operand in one way. Instructions with equal boxes form a class.
 * In a dimension with live >= 0 all boxes are relative to that live value. */
typedef struct sched_group {
    uint32_t node;
    int tensor, rank;
    bool writes;
    bool unordered;      /* its instructions, and those of others of this node that are, need no order */
    bool tiles;          /* writes; the classes are disjoint and fill the hull exactly */
    int live[TILE_RANK]; /* index into the graph's live values, or -1 */
    uint32_t class_count;
    int64_t *bounds;        /* 2 * rank numbers a class */
    uint32_t *member_begin; /* class_count + 1 places in members */
    uint32_t *members;      /* instructions by their index in the node, ascending inside a class */
    uint32_t all;           /* the set of all members */
    sched_bounds hull;
    struct sched_group *like; /* the first group with these classes, which has the tree for all of them */
    uint32_t *order;          /* the tree over classes, made when first needed (box.c) */
    int64_t *tree;
} sched_group;

/* The groups of a node, from which those of equal nodes are made. */
typedef struct sched_pattern {
    int count;
    struct {
        sched_group *group;
        int param;
        uint32_t *class_of; /* by index in the node: the class, or SCHED_NO_ID */
    } part[SCHED_NODE_GROUPS];
    bool ordered; /* depend.c has found the order inside a node, in pairs, and which groups tile */
    uint64_t *inner;
    size_t inner_count;
} sched_pattern;

typedef struct sched_history { /* the groups on a tensor that later accesses may have to follow, oldest first */
    sched_group **groups;
    size_t count, capacity;
} sched_history;

typedef struct sched_join {
    uint32_t next; /* the number of the instruction that it stands in front of */
    uint32_t wait_count, wait[PROGRAM_WAITS];
    uint32_t arrive;
} sched_join;

typedef struct sched_waits {
    uint32_t count, barrier[PROGRAM_WAITS];
} sched_waits;

/* Slot bytes and their latest tensor. */
typedef struct sched_segment {
    int64_t begin, end;
    int tensor;
} sched_segment;

typedef struct sched_u32s {
    uint32_t *data;
    size_t count, capacity;
} sched_u32s;
typedef struct sched_u64s {
    uint64_t *data;
    size_t count, capacity;
} sched_u64s;

typedef struct sched {
    arena *memory;
    const mt_graph *graph;
    const graph_target *target;
    mt_error *error;
    mt_status status; /* what a pass that had to stop says; MT_OK otherwise */

    /* number.c */
    uint32_t node_count, instruction_count;
    uint32_t *first; /* node_count + 1 numbers */
    bool *written;   /* by tensor: something writes its memory. Others need no order */

    /* set.c */
    sched_words set_words, list_words;
    sched_set *sets;
    size_t set_capacity;
    uint32_t *whole; /* by node: its whole set, or SCHED_NO_ID until it is asked for */

    /* depend.c */
    sched_history *history;                 /* by tensor */
    uint32_t *list_of;                      /* by number: the list that the instruction waits for */
    bool *ordered;                          /* by node: some of its instructions wait for others of it */
    uint32_t *mark, mark_stamp;             /* by number */
    sched_group *groups[SCHED_NODE_GROUPS]; /* of the current node */
    const uint32_t *class_of[SCHED_NODE_GROUPS];
    int group_count;
    sched_pattern *pattern;
    sched_words pattern_keys;
    sched_pattern **patterns; /* by key */
    size_t pattern_capacity;

    sched_words meeting_keys; /* of two groups (`like`) */
    /* By key, by class of the one: the classes of the other that it meets, behind their count; NULL until that is asked
     * for, and where they are many. Groups with the same classes meet alike. */
    uint32_t ***meetings;
    size_t meeting_capacity;

    /* prune.c: a row of `width` words for each node */
    size_t width;
    uint64_t *before, *finished;
    uint64_t *done; /* scratch: what the sets kept so far know */
    uint32_t *list_mark, list_stamp;
    size_t list_mark_capacity; /* by list: seen by the search with that stamp */

    /* slot.c */
    int *first_use, *last_use;    /* by tensor: nodes; SCHED_NONE when nothing uses it */
    uint32_t *user_begin, *users; /* by tensor: the nodes that use it, ascending */
    uint32_t *new_begin, *news;   /* by node: the temporaries that it is the first to use, the largest first */
    sched_segment *segments;
    size_t segment_count, segment_capacity;
    int64_t *offset;                /* by tensor, -1 without a slot */
    sched_u32s *slot_sets;          /* by tensor: whole sets that its accesses must follow: they had its bytes before */
    int64_t slot_bytes, slot_least; /* of the memory; of the temporaries that live at one time, at most */

    /* barrier.c */
    uint32_t *arrivals;
    size_t barrier_count, barrier_capacity; /* by barrier */
    uint8_t *arrive_count;                  /* by number */
    uint32_t *arrive;                       /* PROGRAM_ARRIVES for each number */
    sched_waits *waits;                     /* by list */
    sched_join *joins;
    size_t join_count, join_capacity;

    /* scratch, reused */
    sched_words classes, keys;
    sched_u32s hits, numbers, words, kept, queue, candidates, meeting_ids, raw_lists;
    sched_u64s pairs, inner;
    uint32_t *key_of;
    size_t key_capacity;
    int64_t *raw;
    size_t raw_capacity;
} sched;

/* number.c: from one instruction of a node to the next: its grid index. */
void sched_next_index(const graph_node *n, int64_t *index);

/* All of these allocate from s->memory inside arena_protect. */

void sched_number(sched *s);  /* requires a lowered graph; ensures first, written */
void sched_depend(sched *s);  /* requires sched_number, sched_slot_begin; ensures list_of, offsets of temporaries */
void sched_barrier(sched *s); /* requires sched_depend; ensures arrivals, arrive, waits, joins */
void sched_emit(sched *s, program_builder *b); /* requires all of these */

/* set.c */
void sched_words_reset(arena *a, sched_words *w, size_t expected);
uint32_t sched_words_intern(arena *a, sched_words *w, const uint32_t *words, size_t length);
static inline const uint32_t *sched_words_at(const sched_words *w, uint32_t id, uint32_t *length) {
    *length = w->items[id].length;
    return w->words + w->items[id].begin;
}
/* Ranges must be ascending, apart and not empty, inside the node. The result may move s->sets. */
uint32_t sched_set_of(sched *s, uint32_t node, const sched_range *ranges, size_t count);
uint32_t sched_set_whole(sched *s, uint32_t node);
/* Sorts the numbers; count >= 1. */
uint32_t sched_set_numbers(sched *s, uint32_t node, uint32_t *numbers, size_t count);
uint32_t sched_set_union(sched *s, uint32_t a, uint32_t b);
/* The ranges lie in s->set_words: they move when a set is made. */
static inline const sched_range *sched_set_ranges(const sched *s, uint32_t set, uint32_t *count) {
    const uint32_t *words = sched_words_at(&s->set_words, set, count);
    *count = (*count - 1) / 2;
    return (const sched_range *)(words + 1);
}
bool sched_set_contains(const sched *s, uint32_t outer, uint32_t inner); /* of one node */
/* Sorts the sets by node, the latest first, and joins those of one node. */
uint32_t sched_list_of(sched *s, uint32_t *sets, size_t count);
static inline const uint32_t *sched_list_sets(const sched *s, uint32_t list, uint32_t *count) {
    return sched_words_at(&s->list_words, list, count);
}
void sched_u32s_push(arena *a, sched_u32s *v, uint32_t value);
void sched_u64s_push(arena *a, sched_u64s *v, uint64_t value);
void sched_sort_u32(uint32_t *data, size_t count);
void sched_sort_u64(uint64_t *data, size_t count);

/* box.c */
void sched_collect(sched *s, uint32_t node); /* ensures groups, class_of, group_count */
/* The box of `from`'s class (or hull) as it must be compared with boxes of `to`. */
void sched_translate(const sched *s, const sched_group *from, const int64_t *bounds, const sched_group *to,
                     sched_bounds out);
bool sched_overlap(int rank, const int64_t *a, const int64_t *b);
bool sched_inside(int rank, const int64_t *inner, const int64_t *outer);
/* Fills s->hits with the classes of g that overlap the translated box. */
void sched_query(sched *s, sched_group *g, const int64_t *box);

/* prune.c */
static inline bool sched_bit(const uint64_t *row, uint32_t i) { return row[i / 64] >> (i % 64) & 1; }
/* Adds to `done` what an instruction that waits for the set knows to be finished. */
void sched_know(const sched *s, uint64_t *done, uint32_t set);
/* Sets before and finished of the node from the lists (before pruning) of its instructions. */
void sched_summarise_node(sched *s, uint32_t node, const uint32_t *lists, size_t count);
/* The list without sets that its other sets imply. */
uint32_t sched_prune(sched *s, uint32_t list);

/* slot.c */
void sched_slot_begin(sched *s);
/* Gives slots to the temporaries that the node is the first to use; appends to *sets what its accesses must follow. */
void sched_slot_node(sched *s, uint32_t node, sched_u32s *sets);

#endif
