/* What the parts of the CUDA emitter share.
 *
 *   emit_cuda.c            the unit: dispatch, tables, the pasted files
 *   emit_cuda_op.c         an op's functions, one a role: statements, loops, names
 *   emit_cuda_explicit.c   ops of level 2
 *   emit_cuda_copy.c       their copies and bulk stores
 *   emit_cuda_dot.c        products, and their pages
 *   emit_cuda_wide.c       products on wgmma, their pages, and walks over their sums
 *   emit_cuda_expression.c an element of a tile as an expression
 *   emit_cuda_load.c       elements of tensors, stores
 *   emit_cuda_ahead.c      loads in front of where they are used
 *   emit_cuda_format.c     decoders of block formats
 *
 * A statement over tiles is a nest of four levels: the statement itself (what is the same in all threads), a row, a
 * vector of neighbouring columns, a lane of that vector. Each expression has the deepest level that it depends on; what
 * lies above the lane is named and computed there, once. Types, literals, casts and operators are those of the C
 * emitter (emit_type.c), under the same names in cuda_math.h. */
#ifndef EMIT_CUDA_INTERNAL_H
#define EMIT_CUDA_INTERNAL_H

#include "emit/emit_cuda.h"
#include "emit/emit_internal.h"

typedef struct cuda_format {
    const tile_format *format, *product;
    const char *name;
    struct cuda_format *next;
} cuda_format;

typedef struct cuda_unit_text { /* what the ops of a unit share */
    arena *memory;
    text *formats;
    cuda_format *list;
    bool lines;         /* write #line */
    bool marks;         /* write MT_AT_LINE */
    int64_t page_bytes; /* of the unit's ring */
    mt_status status;
    mt_error *error;
} cuda_unit_text;

enum { MOST_KEPT = 12 };
typedef struct cuda_emit { /* one function of an op */
    cuda_unit_text *unit;
    arena *memory;
    const role_op *r;
    const bool *aligned, *cold, *stamped; /* by tensor ordinal: see emit_cuda_op */
    emit operators;                       /* for emit_operate */
    text *out, *head, *early;             /* the body; declarations in front of it; loads between the two */
    int indent, line;
    int early_registers; /* of each thread, for loads in front of the body */
    int depth;           /* of loops and conditions around the statement at hand */
    struct {
        const char *key, *name;
        bool settled;  /* each thread has waited for it */
    } kept[MOST_KEPT]; /* what each thread has in registers, from the front of the body on */
    int kept_count;
    bool stored;        /* a store stands in front of it, or a statement of level 2 */
    const char **names; /* C names: of variables, */
    const char **loops; /* loops */
    map used;           /* names in this function: 0: not declared yet, 1 */
    const char *param[TILE_PARAMS], *extent[TILE_EXTENTS], *axis[TILE_AXES];
    const char *extents[TILE_PARAMS][TILE_RANK];
} cuda_emit;

typedef enum cuda_level { LEVEL_STATEMENT, LEVEL_ROW, LEVEL_VECTOR, LEVEL_LANE, LEVELS } cuda_level;

typedef struct cuda_value {
    const char *text;
    int level;
    bool atom;
} cuda_value;

/* An index: text (NULL: nothing) + the lane (if it has one) + offset. `level` is the text's. */
typedef struct cuda_index {
    const char *text;
    int level;
    bool lane;
    int64_t offset;
} cuda_index;

typedef struct cuda_known {
    const char *key;
    cuda_value value;
} cuda_known;

enum { MOST_LOOKS = 4 };
typedef struct cuda_nest {
    cuda_emit *e;
    int vector;                    /* lanes of a vector */
    int guarded;                   /* within a condition: nothing may be read in front */
    const char *once, *once_begin; /* a column that each thread has one of, and what it is; NULL */
    struct { /* a loop over a thread's places k = begin + i * step, for count of i; its loads can be in front of it */
        const char *k, *begin, *i;
        int64_t step, count;              /* 0: there is no such loop */
        const char *look[2 * MOST_LOOKS]; /* a declaration, and what is done in each step */
        int looks;
        bool all; /* every thread takes part */
        bool used;
    } ahead;
    const char *alone;         /* a column that each thread has at most one of: its number, if it is less than */
    int64_t alone_count;       /* this. What the statement loads then, one by one, can be loaded in front of the body */
    const char *place;         /* out: of the last element loaded */
    const role_spread *spread; /* level 2: a walk over the elements of a layout; `local`: the name of the local index */
    const char *local;
    const char *group, *half; /* a walk over fragments: names of the group and half that the elements are of */
    emit_line *first[LEVELS], **last[LEVELS]; /* lines at the start of each level */
    cuda_known *known;
    size_t known_count, known_capacity;
} cuda_nest;

/* emit_cuda.c */
void cuda_unsupported(cuda_emit *e, int line, const char *what);

/* emit_cuda_op.c */
void cuda_op_functions(cuda_unit_text *unit, const role_op *r, const emit_cuda_op *op, const char *name, text *out);
void cuda_print(cuda_emit *e, const char *format, ...) PRINTF_LIKE(2, 3); /* an indented line */
void cuda_open(cuda_emit *e, const char *line);                           /* one that opens a block */
void cuda_close(cuda_emit *e);
#define CUDA_OPEN(e, ...) cuda_open((e), arena_printf((e)->memory, __VA_ARGS__))
const char *cuda_neutral(const tile_format *t, tile_operator op); /* what a reduction of nothing gives */
const char *cuda_name(cuda_emit *e, const char *base);            /* a name that is not used yet */
/* The names of parameters, extents and axes are declared, in front of the body, when they are first used: true, once,
 * for each. */
bool cuda_first_use(cuda_emit *e, const char *name);

/* emit_cuda_expression.c */
void cuda_nest_begin(cuda_emit *e, cuda_nest *x, int vector);
void cuda_nest_line(cuda_nest *x, int level, const char *line);
#define NEST_LINE(x, level, ...) cuda_nest_line((x), (level), arena_printf((x)->e->memory, __VA_ARGS__))
void cuda_nest_lines(cuda_nest *x, int level); /* prints the lines of a level */
cuda_value cuda_element(cuda_nest *x, const tile_node *n, const cuda_index *at);
/* Of a scalar, where the body is now. */
const char *cuda_scalar(cuda_emit *e, const tile_node *n);
const char *cuda_index_text(cuda_nest *x, const cuda_index *i);
int cuda_index_level(const cuda_index *i);
cuda_index cuda_index_constant(int64_t value);
/* The value under a name, declared at its level; atoms stay. `base` NULL: some name. */
cuda_value cuda_hoist(cuda_nest *x, cuda_value v, const char *type, const char *base);
const cuda_value *cuda_known_value(const cuda_nest *x, const char *key);
void cuda_know(cuda_nest *x, const char *key, cuda_value v);
/* The linear index into a buffer whose rows are `stride` elements apart. *aligned: it is a multiple of the vector, and
 * neighbouring lanes are neighbours. */
cuda_value cuda_linear(cuda_nest *x, const tile_shape *shape, int64_t stride, const cuda_index *at, bool *aligned);

/* emit_cuda_load.c */
cuda_value cuda_load(cuda_nest *x, const tile_node *n, const cuda_index *at);
void cuda_store(cuda_emit *e, const role_statement *s);
/* A loop over rows and, within, over vectors, as s->spread says; `body` prints what is done for a vector. `condition`
 * NULL or of level ROW. */
typedef struct cuda_rows {
    cuda_index row, column;
} cuda_rows;
cuda_rows cuda_rows_of(cuda_emit *e, const role_spread *s);
/* What the column begins with, where a thread has only one vector of columns; else NULL. */
const char *cuda_rows_once(cuda_emit *e, const role_spread *s, const cuda_rows *rows);
/* The same of a walk over rows and columns, before its elements are asked for; some rows may be left out. */
void cuda_rows_expect(cuda_nest *x, const role_spread *s, const cuda_rows *rows, bool some);
void cuda_rows_open(cuda_nest *x, const role_spread *s, const cuda_rows *rows, const char *condition);
void cuda_rows_close(cuda_emit *e, const role_spread *s, const char *condition);
/* Indices of a tile's dimensions from the number of its row and its column. */
void cuda_unravel(cuda_nest *x, const tile_shape *shape, const cuda_index *row, const cuda_index *column,
                  cuda_index *at);
const char *cuda_extent(cuda_emit *e, int param, int dimension); /* now, in front of the body */
const char *cuda_tensor_name(cuda_emit *e, int param);
/* How far along an axis a tile may be other than zero, as a slice in it has a limit there: the name of an int that is
 * printed here. NULL: all the way. */
const char *cuda_end_of(cuda_emit *e, const tile_node *n, int axis);

/* emit_cuda_ahead.c */
/* What is printed between the two goes in front of the body: loads that nothing of the body is needed for, so that all
 * of them are on their way together. cuda_may_be_early: that holds for every load of the tile, here. Nothing is loaded
 * in front of a store: an operand that is read and one that is written can be one tensor. */
bool cuda_may_be_early(const cuda_emit *e, const tile_node *n);
void cuda_early_begin(cuda_emit *e);
void cuda_early_end(cuda_emit *e);
/* Opens a thread's loop over its places k = begin, begin + step, ... of `length`, where `begin` < step. If they are
 * few, all threads have as many, and vectors are read, it is unrolled, so that the loads are on their way together. */
void cuda_open_steps(const cuda_nest *x, const char *k, const char *begin, int64_t length, int64_t step);
/* Before the elements of such a loop are asked for: what it will be. Loads of stamped data are then done in two parts:
 * in front of the loop each thread looks at all it will need, within it waits for what has not been posted. `all`:
 * every thread takes part. */
void cuda_expect_steps(cuda_nest *x, const char *k, const char *begin, int64_t length, int64_t step, bool all);
void cuda_print_looks(const cuda_nest *x); /* of a walk that is no loop */
/* A vector of stamped data in such a loop: its name; NULL: too many. `vector` is a name for it, `from` where it lies.
 */
const char *cuda_look_ahead(cuda_nest *x, const tile_node *n, const cuda_index *at, const char *vector,
                            const char *from);
/* An element that each thread has at most one of, at x->place, if that is known without the body: its value. NULL: it
 * is not. */
const char *cuda_load_alone(cuda_nest *x, const tile_node *n, const cuda_index *at, const char *type, bool stamped);

/* emit_cuda_dot.c */
void cuda_dot(cuda_emit *e, const role_statement *s);
void cuda_skinny(cuda_emit *e, const role_statement *s);
void cuda_pages(cuda_emit *e, const role_statement *s);

/* emit_cuda_wide.c */
void cuda_wide(cuda_emit *e, const role_statement *s);
void cuda_wide_pages(cuda_emit *e, const role_statement *s);
void cuda_wide_ready(cuda_emit *e); /* in front of a loader's pages */
void cuda_wide_tile(cuda_emit *e, const role_statement *s);
void cuda_wide_tile_pages(cuda_emit *e, const role_statement *s);
void cuda_fragment_each(cuda_emit *e, const role_statement *s); /* EACH, REDUCE into a FRAGMENT */
void cuda_fragment_reduce(cuda_emit *e, const role_statement *s);
/* cuda_rows_open and cuda_rows_close for elements that lie as a FRAGMENT. */
void cuda_fragment_open(cuda_nest *x, const role_spread *s, const cuda_rows *rows, const char *condition);

/* emit_cuda_explicit.c: ops of level 2 */
/* A case of the controller's switch: makes the barriers of an instruction. */
void cuda_level2_make(text *out, const role_op *r);
void cuda_level2_begin(cuda_emit *e, int role); /* a level2_role_kind */
void cuda_level2_end(cuda_emit *e, int role);
void cuda_level2_action(cuda_emit *e, const role_statement *s);
void cuda_level2_each(cuda_emit *e, const role_statement *s);   /* into a REGISTER */
void cuda_level2_reduce(cuda_emit *e, const role_statement *s); /* into a REGISTER */
/* An element of a REGISTER in the walk at hand; of a STAGE. */
cuda_value cuda_level2_register(cuda_nest *x, const tile_node *n);
cuda_value cuda_level2_stage(cuda_nest *x, const tile_node *n, const cuda_index *at);
/* cuda_rows_open for a walk over a layout; of replicas only the first takes part. */
void cuda_level2_open(cuda_nest *x, const role_spread *s, const cuda_rows *rows, const char *condition);
/* The walk is over that layout, if it is over one. */
void cuda_level2_walk(cuda_nest *x, const role_spread *s);

struct layout_shared; /* tile/layout.h */
struct level2_action; /* tile/explicit.h */
/* An element of an ATOMIC, a STAMP, a POST or a TAKE. */
void cuda_level2_shared_element(cuda_emit *e, const role_statement *s, const char *place, const char *value);
/* The byte of an element in a stage; NULL: the coordinate is 0. */
const char *cuda_level2_place(arena *m, const struct layout_shared *s, const char *const *coordinate);
const struct level2_shared *cuda_level2_shared(const cuda_emit *e, int variable); /* that the view is a stage of */
const char *cuda_level2_barrier(cuda_emit *e, const struct level2_action *a);     /* its number in the instruction */

/* emit_cuda_copy.c */
void cuda_level2_expect(cuda_emit *e, const role_statement *s);
void cuda_level2_copy(cuda_emit *e, const role_statement *s);
void cuda_level2_store(cuda_emit *e, const role_statement *s);

/* emit_cuda_format.c: the struct of a block format with its sizes and a decoder, added to the unit: of one element; or,
 * for products of a 16-bit type, of the pairs that cuda_dot.h takes. */
const char *cuda_format_of(cuda_unit_text *u, const tile_format *f, const tile_format *product);

#endif
