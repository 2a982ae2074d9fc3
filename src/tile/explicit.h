/* Level 2 of the language: programs that say themselves which role does what, what lies in shared memory, which thread
 * holds what, and who waits for whom (docs/level2.md). Such an op has tile_op.level2; its body is declarations, scalars
 * and one ACTION for each role, with the role's statements as its body.
 *
 * Meaning. The roles of an instruction run at the same time; each is a sequence of statements over whole tiles, carried
 * out by all threads of the role together. Roles meet at barriers only. Everything level 1 has is there: expressions,
 * loops, conditions, slices of tensors with their bounds; so boxes, bytes and operations come from the text as they do
 * there (access.c), and the CPU machine runs the roles as coroutines of one worker.
 *
 * A shared tensor is read under a variable of its own for each place in the text that names it: the VIEW in front of
 * the statement says which stage it stands for. */
#ifndef TILE_EXPLICIT_H
#define TILE_EXPLICIT_H

#include "tile/layout.h"

enum {
    LEVEL2_SHARED = 16,
    LEVEL2_BARRIERS = 16,
    LEVEL2_MBARRIERS = 32,
    LEVEL2_WARPS = 8,
    LEVEL2_PAGE = 16384,
    LEVEL2_PAGES = 12,
    LEVEL2_RESIDENT = 98304,
    LEVEL2_LOCALS = 512,
    LEVEL2_REGISTERS = 168 /* of each thread of three warpgroups, when they begin: all that a multiple of 8 can be */
};

typedef enum level2_role_kind { LEVEL2_LOADER, LEVEL2_CONSUMER, LEVEL2_STORER, LEVEL2_ROLES } level2_role_kind;

typedef struct level2_shared {
    const char *name;
    const tile_format *type;
    tile_shape shape;     /* of one stage */
    int64_t count;        /* stages */
    bool pages;           /* each stage is a page, which the loader fills; else resident: the consumers' own */
    layout_shared layout; /* of one stage */
    int line, column;
} level2_shared;

typedef struct level2_barrier {
    const char *name;
    int64_t count;              /* barriers */
    bool arrives[LEVEL2_ROLES]; /* each of these once a phase (on a GPU: each of its warps) */
    int line, column;
} level2_barrier;

typedef enum level2_kind {
    LEVEL2_ROLE,   /* role: the statement's body */
    LEVEL2_VIEW,   /* variable is stage `index` of `shared` from here on, until the next VIEW of the variable */
    LEVEL2_PUT,    /* the view `variable` = value */
    LEVEL2_COPY,   /* the view `variable` = value, a LOAD; done when barrier[index] has its bytes */
    LEVEL2_WAIT,   /* until phase `phase` (0, 1, ...; -1 is over from the beginning) of barrier[index] is over */
    LEVEL2_ARRIVE, /* the role arrives at barrier[index] */
    LEVEL2_EXPECT, /* the same, and the phase takes `bytes` more of copies to complete: those of `copies` behind it */
    LEVEL2_MMA,    /* variable += value, a DOT of 16-bit floats: mma.m16n8k16 */
    LEVEL2_WGMMA,  /* the same on wgmma, from swizzled stages; it is under way until a WAIT_GROUP */
    LEVEL2_STORE,  /* into the slice `access` of a tensor, the view `value`; under way until the role's end */
    LEVEL2_ATOMIC, /* the elements of the slice `access` = what is done with them and `value`; the scalar `variable`, if
                      it is >= 0, is what the only one was before */
    LEVEL2_STAMP,  /* the elements of the slice `access` get a pattern that no result has */
    LEVEL2_POST,   /* the elements of the slice = value, one by one */
    LEVEL2_TAKE, /* variable = value, which is itself: the elements of the slice, when none has the pattern any more */
    LEVEL2_COMMIT,     /* the wgmma or, in a storer, the stores before it become a group */
    LEVEL2_WAIT_GROUP, /* until at most `bytes` groups are under way; of stores, until no more still read stages */
    LEVEL2_SYNC        /* the role's threads meet */
} level2_kind;

typedef enum level2_atomic {
    LEVEL2_ADD,
    LEVEL2_MIN,
    LEVEL2_MAX,
    LEVEL2_AND,
    LEVEL2_OR,
    LEVEL2_EXCHANGE,
    LEVEL2_ATOMICS
} level2_atomic;
typedef enum level2_memory_order {
    LEVEL2_RELAXED,
    LEVEL2_ACQUIRE,
    LEVEL2_RELEASE,
    LEVEL2_ACQ_REL,
    LEVEL2_ORDERS
} level2_memory_order;
typedef enum level2_scope { LEVEL2_CTA, LEVEL2_GPU, LEVEL2_SCOPES } level2_scope;

typedef struct level2_action {
    level2_kind kind;
    level2_role_kind role;
    int variable, shared, barrier;
    const tile_node *index, *phase;
    int64_t bytes;
    int copies;
    const struct level2_action *expect; /* COPY */
    level2_atomic atomic;
    level2_memory_order order; /* ATOMIC: of all that the role did before it, or does behind it */
    level2_scope scope;
} level2_action;

typedef struct level2_register { /* of a variable */
    bool is_view;                /* it stands for a stage of `shared` */
    int shared;
    bool is_tile; /* it lies in registers, as `layout` says */
    layout layout;
    const char *why; /* the layout is this one */
    bool given;      /* by the text */
} level2_register;

typedef struct tile_level2 {
    level2_shared shared[LEVEL2_SHARED];
    level2_barrier barriers[LEVEL2_BARRIERS];
    int shared_count, barrier_count;
    bool has[LEVEL2_ROLES];
    int warps;                /* of the consumers */
    int budget[LEVEL2_ROLES]; /* registers of a thread; 0: none is given */
    int lines[LEVEL2_ROLES];
    level2_register *registers; /* by variable; set when the whole text is known */
} tile_level2;

/* explicit_rules.c: the budgets of the consumers and of the loader's warpgroup (loader, controller, storer), from those
 * that are given, or 0: what one leaves is the other's. False: there are not so many. */
bool explicit_registers(int *consumers, int *others);

/* explicit_lower.c: how many barriers there are before that one; before barrier_count: in all. */
int64_t explicit_barriers(const tile_level2 *x, int barrier);
/* A copy of that slice into that stage can come in pieces of 64 x 64, by tensor map: of a matrix, or
 * of one that is x[:, i, :]. */
bool explicit_in_pieces(const tile_access *access, const level2_shared *to);

/* explicit_rules.c: whether the program has a statement of that kind with a slice of that parameter. */
bool explicit_has(const tile_op *op, level2_kind kind, int param);
/* "loader", ... */
extern const char *const explicit_roles[LEVEL2_ROLES];
extern const char *const explicit_atomics[LEVEL2_ATOMICS]; /* "add", ... */
extern const char *const explicit_orders[LEVEL2_ORDERS], *const explicit_scopes[LEVEL2_SCOPES];

/* explicit_layout.c: the layout in rows over all threads, of what nothing else says anything about. */
layout explicit_spread(const tile_shape *shape, int threads);
/* What the tiles in registers in an expression say about its layout; layouts by variable, NULL: it has none. */
bool explicit_layout_of(const layout *const *layouts, const tile_node *n, layout *out);
/* The layout of a tile whose extents are those of l, or 1, or missing on the left. */
bool explicit_narrowed(const layout *l, const tile_shape *shape, layout *out);
/* Of a left operand in registers with k columns: of mma, for an accumulator of that layout; of wgmma, 128 rows. */
bool explicit_left_operand(const layout *acc, int64_t k, bool wgmma, layout *out);

/* explicit_print.c */
void explicit_print_declarations(text *out, const tile_op *op, int indent);
/* One line without an end, for the ACTION; of a ROLE what stands in front of its body. */
void explicit_print_action(text *out, const tile_op *op, const tile_statement *s);

#endif
