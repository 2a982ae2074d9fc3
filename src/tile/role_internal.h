/* What the parts of the lowering share; see role.h for the way an op takes through them. */
#ifndef TILE_ROLE_INTERNAL_H
#define TILE_ROLE_INTERNAL_H

#include "tile/role.h"

typedef struct role_facts { /* of a variable, while its place is decided */
    int assignments, uses;
    int defined, last_assigned; /* statements */
    int depth, deepest_use;     /* of loops */
    int64_t largest_use;        /* elements of the largest tile it is used in */
    bool reduced;               /* written by REDUCE, DOT or SKINNY */
    bool few;                   /* read by a reduction in which few threads have much to read each */
} role_facts;

typedef struct role_lowering {
    arena *memory;
    role_op *r;
    size_t variable_count, name_capacity, place_capacity;
    role_facts *facts;
    mt_status status;
    mt_error *error;
    int names;
    bool wishes; /* any tensor may lie in any layout */
    bool no_wide;
    role_chip chip;
    bool tiles; /* there are WIDE_TILEs: tiles of their rows are FRAGMENTs */
} role_lowering;

/* role.c */
void role_unsupported(role_lowering *l, int line, const char *what);
int role_new_variable(role_lowering *l, const char *base, const tile_format *type, const tile_shape *shape);
tile_node *role_variable_node(role_lowering *l, int variable);
role_statement *role_new_statement(role_lowering *l, role_kind kind, int line);
/* Numbers statements and counts what is assigned and read where. */
void role_count(role_lowering *l);

/* Trees. */
typedef bool role_test(const role_op *r, const tile_node *n, int with);
/* Whether a node of the tree passes the test, also within FUSED variables. */
bool role_any(const role_op *r, const tile_node *n, role_test *test, int with);
bool role_reads(const role_op *r, const tile_node *n, int variable);
bool role_has_loop(const role_op *r, const tile_node *n, int loop);
/* n reads the variable at other elements than the one that is computed. */
bool role_moves(const role_op *r, const tile_node *n, int variable);
bool role_same_shape(const tile_shape *a, const tile_shape *b);
/* A copy of the tree in which `replace` has taken the place of some nodes: it gives the new node, or NULL for a node
 * that stays. */
typedef tile_node *role_replace(role_lowering *l, const tile_node *n, void *context);
const tile_node *role_rewrite(role_lowering *l, const tile_node *n, role_replace *replace, void *context);
tile_access *role_rewrite_access(role_lowering *l, const tile_access *access, role_replace *replace, void *context);
/* What a FUSED variable (or one that is given one value, before places are known) stands for. */
const tile_node *role_resolved(const role_op *r, const tile_node *n);

/* explicit_lower.c: an op of level 2. */
void explicit_lower(role_lowering *l);
role_layout explicit_wish(const tile_op *op, int tensor); /* role_wish of one */

/* role_chip.c */
extern const role_chip role_hopper;
void role_check_level2(role_lowering *l, const tile_statement *s);
void role_note_missed(role_lowering *l, role_statement *s);

/* role_flatten.c */
role_statement *role_flatten(role_lowering *l, const tile_statement *s);

/* role_mask.c: finds role_statement.whole. Places are known. */
void role_find_whole(role_lowering *l, role_statement *s);

/* role_wide.c; `early` as below */
void role_wide_loops(role_lowering *l, role_statement **at, bool early);
/* role_wide_tile.c: products in loops that do other things as well. */
void role_wide_tiles(role_lowering *l, role_statement **at, bool early);
void role_place_fragments(role_lowering *l); /* behind role_place_variables */
const tile_access *role_plain_slice(const role_op *r, const tile_node *n, const tile_format *type);
/* Whether all that is done with FRAGMENTs can be done there; gives those statements their spread. Places are known. */
bool role_fragments_fit(role_lowering *l, role_statement *s);
bool role_is_fragment(const role_op *r, const tile_node *n, int with);

/* role_dot.c; `early`: a loader can follow the control flow so far */
/* sum = sum + dot, or the other way round. */
bool role_is_sum_of(const role_statement *s, const role_statement *dot);
/* How much the start grows with each turn; -1: not by a constant. */
int64_t role_step_of(const role_op *r, const tile_node *n, int loop);
void role_stream_loops(role_lowering *l, role_statement **at, bool early);
void role_choose_dots(role_lowering *l, role_statement **at, bool early);
/* Gives the left operand of every DOT a buffer; places are known. */
void role_stage(role_lowering *l, role_statement **at);

/* role_place.c */
void role_fold_constants(role_lowering *l, role_statement **at);
void role_reductions(role_lowering *l, role_statement *s);
void role_place_variables(role_lowering *l);
void role_spread_statements(role_lowering *l, role_statement *s);

/* role_sync.c */
/* Places buffers and SYNCs. */
void role_share(role_lowering *l);

#endif
