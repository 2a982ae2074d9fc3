/* What the parts of the binder share. bind.c binds constants and the header (parameters, extents, the grid) and puts
 * the op together; check.c types statements; typing.c types expressions; slice.c types slices; fold.c computes with
 * constants.
 *
 * An error is reported once, where it is: the function that meets it reports it and returns NULL (or false), and NULL
 * goes up without further words. A name whose declaration failed is known as SYMBOL_BROKEN, whose uses are silent, too.
 *
 * All of this recurses over the tree it reads and the tree it builds; the parser bounds their height
 * (PARSE_DEPTH_LIMIT). */
#ifndef TILE_CHECK_H
#define TILE_CHECK_H

#include "tile/ast.h"
#include "tile/layout.h"

enum {
    TILE_VARIABLES = 1024, /* of one op; the access summary keeps what it knows of each on its stack */
    TILE_LOOPS = 256
};
#define TILE_ELEMENT_LIMIT ((int64_t)1 << 24) /* of one tile */
#define TILE_EXTENT_LIMIT  ((int64_t)1 << 40) /* of one dimension of a tensor */

typedef enum check_symbol_kind {
    SYMBOL_BROKEN,   /* its declaration has an error, or it is unknown and that was said */
    SYMBOL_CONSTANT, /* index into op->constants */
    SYMBOL_PARAM,    /* index into op->params */
    SYMBOL_EXTENT,
    SYMBOL_AXIS,
    SYMBOL_LOOP,
    SYMBOL_VARIABLE,
    SYMBOL_SHARED, /* index into op->level2->shared */
    SYMBOL_BARRIER
} check_symbol_kind;

typedef struct check_symbol {
    const char *name;
    check_symbol_kind kind;
    int index;
} check_symbol;

typedef struct check_alignment { /* "value is a multiple of type's block": decided when all is read */
    const tile_node *value;
    const tile_format *type;
    const char *what; /* value is the slice's "start" or "end" */
    ast_place place;
} check_alignment;

/* What level 2 (explicit.h) has to be told when all is read. */
typedef struct check_stage { /* "value is from 0 to count - 1" */
    const tile_node *value;
    int64_t count;
    const char *name;
    ast_place place;
} check_stage;
typedef struct check_view {
    int variable, shared;
} check_view;
typedef struct check_given_layout {
    int variable;
    layout layout;
} check_given_layout;

typedef struct check {
    arena *memory; /* the op's; all work happens inside arena_protect */
    const tile_file *file;
    const ast_tile *tile;
    tile_op *op;
    ast_reporter report;
    map names; /* of the symbols in scope; the value -1 is that of a name whose scope has ended */
    check_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    size_t variable_capacity, loop_capacity;
    tile_node **definitions; /* of each variable: the value of its declaration */
    size_t definition_capacity;
    check_alignment *alignments;
    size_t alignment_count, alignment_capacity;
    const tile_format **formats; /* block formats used: the op's own copies */
    size_t format_count, format_capacity;
    bool in_header;          /* extents and axis counts: integers known before an instruction runs */
    int role, depth;         /* level 2: the role at hand, or -1; blocks around the statement at hand */
    tile_statement *pending; /* what goes in front of it */
    check_stage *stages;
    size_t stage_count, stage_capacity;
    check_view *views;
    size_t view_count, view_capacity;
    check_given_layout *givens;
    size_t given_count, given_capacity;
    const tile_format *f32, *i32, *i64, *boolean;
} check;

#define REPORT(c, place, ...) ast_report(&(c)->report, (place), __VA_ARGS__)

/* check.c: names and statements ---------------------------------------------------------------------------------- */

/* The symbol of a name in scope, or NULL. */
const check_symbol *check_find(const check *c, const char *name);
/* Adds a name to the scope. A name that is in scope already, or is a type, is an error; it returns false then. */
bool check_declare(check *c, ast_place at, const char *name, check_symbol_kind kind, int index);
const char *check_symbol_text(const check *c, const check_symbol *s); /* "a constant", "a loop's variable", ... */
/* The type of that name: a type constant or a format. Reports and returns NULL when it is none. */
const tile_format *check_type(check *c, ast_place at, const char *name);
/* The op's copy of a format; a block format is a part of the op's text from then on. */
const tile_format *check_own_format(check *c, const tile_format *f);
/* Statements of a block in a scope of their own. */
tile_statement *check_block(check *c, const ast_statement *first);

/* typing.c: expressions ------------------------------------------------------------------------------------------ */

/* A typed expression, or NULL after an error. It may be a literal (fold.c). */
tile_node *check_open(check *c, const ast_expr *e);
/* The same with a type of its own: a literal alone becomes an i64 or an f32. */
tile_node *check_value(check *c, const ast_expr *e);
/* A scalar index, i64. `what` names it in messages: "an index". */
tile_node *check_index(check *c, const ast_expr *e, const char *what);
/* The same for a checked value. */
tile_node *check_to_index(check *c, ast_place at, tile_node *n, const char *what);
/* A constant integer from least to most. */
bool check_constant(check *c, const ast_expr *e, const char *what, int64_t least, int64_t most, int64_t *out);
/* The extents of a tile from constant expressions. */
bool check_shape(check *c, ast_place at, const ast_expr *extents, tile_shape *out);
/* `op` on checked operands (b NULL for unary ones); a or b NULL gives NULL. */
tile_node *check_operator(check *c, ast_place at, tile_operator op, tile_node *a, tile_node *b);
/* f32, f64, i32, u32, i64. */
bool check_is_arithmetic(const check *c, const tile_format *t);
tile_node *check_node(check *c, ast_place at, tile_node_kind kind, const tile_format *type, const tile_shape *shape);
/* Stretches n to `shape`, which it must fit. NULL after an error; `what` says whose shape that is. */
tile_node *check_stretch(check *c, ast_place at, tile_node *n, const tile_shape *shape, const char *what);
/* The shape two shapes broadcast to. */
bool check_broadcast(const tile_shape *a, const tile_shape *b, tile_shape *out);
/* Reports a shape with too many elements for a tile. */
bool check_size(check *c, ast_place at, const tile_shape *s);
bool check_same_shape(const tile_shape *a, const tile_shape *b);
const char *check_shape_text(const check *c, const tile_shape *s); /* "[4, 8]" */

/* slice.c: slices ------------------------------------------------------------------------------------------------ */

/* The tensor `param` sliced by items; NULL items take the whole. Returns NULL after an error. */
tile_access *check_access(check *c, ast_place at, int param, const ast_item *items, tile_shape *shape);
tile_node *check_load(check *c, ast_place at, int param, const ast_item *items);
/* A part of the tile `of`. */
tile_node *check_part(check *c, ast_place at, tile_node *of, const ast_item *items);
/* Settles c->alignments. */
void check_alignments(check *c);

/* fold.c: constants ---------------------------------------------------------------------------------------------- */

/* The types of literals and integer constants until they meet another type. No node of a finished op has them. */
extern const tile_format check_integer, check_number;
bool check_is_literal(const tile_node *n);
tile_node *check_literal_integer(check *c, ast_place at, int64_t value);
/* Gives a literal that type. Reports and returns false when it does not fit; true for what is no literal. */
bool check_adapt(check *c, tile_node *n, const tile_format *type);
/* i64 or f32 for a literal that has met no type. */
tile_node *check_settle(check *c, tile_node *n);
/* The constant that `op` makes of constants, as a node; NULL when it has to be computed at run time. Integer overflow
 * and a division by zero are reported, and *failed is set. */
tile_node *check_fold(check *c, ast_place at, tile_operator op, const tile_node *a, const tile_node *b, bool *failed);
/* The constant n as a `type`; NULL when it is to be converted at run time or, for a literal, after an error. */
tile_node *check_fold_cast(check *c, const tile_node *n, const tile_format *type);

/* An operation on integers or bools. False when the result does not fit in 64 bits, or op is not one of theirs. No
 * divisor may be 0; shift counts are 0 to 63. */
bool check_compute(tile_operator op, int64_t a, int64_t b, int64_t *out);

/* explicit_*.c: level 2 ---------------------------------------------------------------------------------------------
 */

tile_statement *explicit_check(check *c, const ast_statement *from); /* SHARED, BARRIER, ROLE, DO */
/* The variable that stands for a stage of shared tensor `shared` in the statement at hand, or a part of it. */
tile_node *explicit_view(check *c, ast_place at, int shared, const ast_item *items);
/* shared[items] = value */
tile_statement *explicit_put(check *c, const ast_statement *from, int shared, const ast_item *items);
/* The layout that the text gives a variable, which was declared just now. */
void explicit_layout_given(check *c, const ast_statement *from, int variable);
/* explicit_rules.c: what can only be judged when all is read: stages, arrivals, bytes, layouts. */
void explicit_finish(check *c);
/* explicit_layout.c: gives every tile in registers its layout. */
void explicit_layouts(check *c);

static inline ast_place check_place(const tile_node *n) { return (ast_place){n->line, n->column}; }

#endif
