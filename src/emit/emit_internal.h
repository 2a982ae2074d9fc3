/* What the parts of the emitter share.
 *
 *   emit_c.c       the unit, functions, statements, loops
 *   emit_plan.c    what is decided before a function is written: which variables are arrays, how much of each is needed
 *   emit_type.c    C types, literals, casts, operators
 *   emit_expr.c    an element of a tile as a C expression
 *   emit_nest.c    nests of loops over tiles, and indices in them
 *   emit_load.c    elements and rows of tensors; stores
 *   emit_reduce.c  reductions
 *   emit_dot.c     dot
 *   emit_format.c  decoders of storage formats
 *
 * The heart is emit_element: the value of a node at an index, as a C expression. Elementwise nodes become operators,
 * nodes that move elements change the index, so a statement is one nest of loops however large its tree. Each
 * expression has a level, the deepest loop whose variable it depends on; what lies above the innermost loop is computed
 * there, once. Reductions and dots become arrays in scratch memory before the nest that uses them.
 *
 * Everything is allocated in one arena; text goes to growable strings that outlive a failure. The first unsupported
 * construct is noted in the emit and the walk goes on with a placeholder; the result is thrown away. */
#ifndef EMIT_INTERNAL_H
#define EMIT_INTERNAL_H

#include "emit/emit.h"
#include "tile/format.h"

/* A limit: only the first `factor` * n elements of a dimension are needed, n being how much of a stored slice is in
 * range. id 0: all are. */
typedef struct emit_limit {
    int id; /* index into emit.limits, from 1; 0: none; -1: nothing is known yet (only while planning) */
    int64_t factor;
} emit_limit;

typedef struct emit_limit_source { /* what a limit's n comes from */
    const tile_node *start, *limit, *extent;
    int64_t size;
    int param, dimension;
    const char *name; /* of the C variable, once it has been declared */
} emit_limit_source;

/* A tile in scratch memory: dense, row-major. */
typedef struct emit_array {
    const char *name;
    const tile_format *type;
    tile_shape shape;
} emit_array;

typedef enum emit_mode { EMIT_SCALAR, EMIT_INLINE, EMIT_ARRAY } emit_mode;

typedef struct emit_variable {
    emit_mode mode;
    const tile_node *value;     /* of its first assignment */
    int defined, last_assigned; /* numbers of statements */
    int depth;                  /* of loops around its first assignment */
    int deepest_use;
    int64_t largest_use;         /* elements of the largest tile it is used in */
    emit_limit limit[TILE_RANK]; /* of the elements that anyone reads */
    emit_array array;            /* EMIT_ARRAY; EMIT_SCALAR has only the name */
} emit_variable;

typedef struct emit_codec {              /* a format of which the unit needs the decoder */
    const tile_format *format, *rounded; /* rounded: what its values are rounded to, or NULL */
    const char *name;
    struct emit_codec *next;
} emit_codec;

typedef struct emit_unit {
    arena *memory;
    text *codecs; /* their text */
    emit_codec *list;
    mt_status status;
    mt_error *error;
} emit_unit;

typedef struct emit_temporary { /* a node that was computed into an array */
    const tile_node *node;
    emit_array array;
    emit_limit limits[TILE_RANK]; /* as far as these reach */
} emit_temporary;

typedef struct emit {
    emit_unit *unit;
    arena *memory;
    const tile_op *op;
    text *out, *header; /* the body, and the declarations in front of it */
    int indent;
    int names;                     /* counts invented names */
    int64_t scratch, scratch_most; /* bytes */
    emit_variable *variables;
    const tile_statement **loops;
    const char **loop_names;
    bool *stored; /* by parameter: some statement writes to it */
    bool *used_extent, used_param[TILE_PARAMS], used_axis[TILE_AXES];
    bool declared_extent[TILE_PARAMS][TILE_RANK];
    emit_limit_source *limits;
    size_t limit_count, limit_capacity;
    emit_temporary *temporaries;
    size_t temporary_count, temporary_capacity;
} emit;

/* A C expression. level: the deepest loop of the nest that it depends on, -1 when none. atom: a name or a literal. */
typedef struct emit_value {
    const char *text;
    int level;
    bool atom;
} emit_value;

/* An index: loop variable (loop >= 0) + text (unless NULL) + offset. `level` is the deepest loop in all of it. */
typedef struct emit_index {
    int loop;
    const char *text;
    int text_level;
    int64_t offset;
} emit_index;

typedef struct emit_loop { /* for (name = low; name < high; name++) */
    const char *name;      /* NULL: one iteration, with index `least` */
    const char *low, *high;
    int64_t least, most; /* [low, high) lies in [least, most), constants */
    emit_limit limit;    /* the one that bounds it, if any */
    bool is_left;        /* its body may say continue: it is a loop even for one iteration */
} emit_loop;

typedef struct emit_line {
    const char *text;
    struct emit_line *next;
} emit_line;

typedef struct emit_hoisted {
    const char *key;
    emit_value value;
} emit_hoisted; /* what has a name already */

typedef struct emit_nest {
    emit *e;
    int rank;
    int inner; /* the innermost real loop, -1 when there is none */
    emit_loop loop[TILE_RANK];
    emit_line *first[TILE_RANK], **last[TILE_RANK]; /* lines at the start of each loop's body */
    emit_hoisted *known;
    size_t known_count, known_capacity;
} emit_nest;

/* emit_c.c -----------------------------------------------------------------------------------------------------------
 */

void emit_unsupported(emit *e, const tile_node *n, const char *what);
void emit_print(emit *e, const char *format, ...) PRINTF_LIKE(2, 3); /* one line of the body, indented */
const char *emit_invent(emit *e, const char *base);                  /* a new name */
const char *emit_safe_name(arena *a, const char *name);              /* a name from the program that C can have */
/* `bytes` of scratch memory; the text of a pointer of that C type to it. */
const char *emit_scratch(emit *e, const char *c_type, int64_t bytes);
/* Declares an array in scratch memory. */
emit_array emit_declare(emit *e, const char *name, const tile_format *type, const tile_shape *shape);
/* The array that n was computed into, as far as the limits reach, or NULL. Temporaries live as long as the statement.
 */
const emit_array *emit_temporary_of(const emit *e, const tile_node *n, const emit_limit *limits);
void emit_remember(emit *e, const tile_node *n, emit_array array, const emit_limit *limits);
/* array = n, in the first elements that the limits leave. */
void emit_assign(emit *e, const emit_array *array, const tile_node *n, const emit_limit *limits);
/* The array that holds n: computes it into a temporary when it is none. */
emit_array emit_materialise(emit *e, const tile_node *n, const emit_limit *limits);
void emit_block(emit *e, const tile_statement *s);
/* A variable that is an array = value. */
void emit_assign_variable(emit *e, int index, const tile_node *value);
void emit_comment(emit *e, const tile_statement *s, const char *note); /* the statement */

/* emit_explicit.c: the body of an op of level 2. */
void emit_level2(emit *e);

/* emit_plan.c --------------------------------------------------------------------------------------------------------
 */

void emit_plan(emit *e);
bool emit_same(const tile_node *a, const tile_node *b); /* the same expression */
/* The limits of a node's operand from the node's own: which: 0, 1, 2 for a, b, c, or the index in list. */
void emit_operand_limits(const tile_node *n, int which, const emit_limit *limits, emit_limit *out);
/* The range of an integer scalar, if it is known. */
bool emit_range(const emit *e, const tile_node *n, int64_t *low, int64_t *high);
/* n reads variable v (through inlined variables, too). */
bool emit_reads(const emit *e, const tile_node *n, int variable);
bool emit_has_loop(const emit *e, const tile_node *n, int loop);
bool emit_has_concat(const emit *e, const tile_node *n);
bool emit_loads(const emit *e, const tile_node *n, int param); /* n reads the tensor */
/* n reads v at other elements than the one that is computed, or after some have been written. */
bool emit_moves(const emit *e, const tile_node *n, int variable);
int emit_limit_of(emit *e, const tile_access *access,
                  int dimension); /* its id, 0 when it cannot be computed in front */

/* emit_type.c --------------------------------------------------------------------------------------------------------
 */

const char *emit_c_type(const tile_format *t);
const char *emit_literal(arena *a, const tile_node *n);
const char *emit_cast(arena *a, const char *value, const tile_format *from, const tile_format *to);
const char *emit_operate(emit *e, const tile_node *n, const char *a, const char *b);
bool emit_is_float(const tile_format *t, int bits);
bool emit_is_name(const char *expression);               /* a name or an integer */
const char *emit_bare(arena *a, const char *expression); /* without parentheses around all of it */

/* emit_expr.c --------------------------------------------------------------------------------------------------------
 */

emit_value emit_element(emit_nest *x, const tile_node *n, const emit_index *at);
/* A scalar, computed where the body is now. */
const char *emit_scalar(emit *e, const tile_node *n);
/* The value as an atom: declared at the start of the loop that is its level. `base` NULL: a new name. */
emit_value emit_hoist(emit_nest *x, emit_value v, const char *c_type, const char *base);
/* What was remembered under a key, or NULL. */
const emit_value *emit_known(const emit_nest *x, const char *key);
void emit_know(emit_nest *x, const char *key, emit_value v);
/* A line at the start of the body of loop `level`; -1: here. */
void emit_nest_line(emit_nest *x, int level, const char *format, ...) PRINTF_LIKE(3, 4);
emit_value emit_array_element(emit_nest *x, const emit_array *array, const emit_index *at);

/* emit_nest.c --------------------------------------------------------------------------------------------------------
 */

int emit_index_level(const emit_index *at);
const char *emit_index_text(const emit_nest *x, const emit_index *at);
/* The index lies in [*low, *high], given that it is below `extent`. */
void emit_index_range(const emit_nest *x, const emit_index *at, int64_t extent, int64_t *low, int64_t *high);
/* The index into a dense tile of that shape. */
emit_value emit_linear(const emit_nest *x, const tile_shape *shape, const emit_index *at);
/* The index of an operand (numbered as in emit_operand_limits) of a node that moves nothing or moves by constants: not
 * RESHAPE. */
void emit_operand_index(const tile_node *n, int which, const emit_index *at, emit_index *out);
/* The same for RESHAPE. False when that takes a division of something that depends on the innermost loop. */
bool emit_reshape_index(const emit_nest *x, const tile_node *n, const emit_index *at, emit_index *out);
/* The limits of a tile that is read at these indices. */
void emit_index_limits(const emit_nest *x, const tile_shape *shape, const emit_index *at, emit_limit *out);

void emit_nest_begin(emit *e, emit_nest *x, int rank, const emit_loop *loops, emit_index *at);
/* Opens the loops from .. to - 1, with the lines of their bodies. */
void emit_nest_open(emit_nest *x, int from, int to, bool vectorise);
void emit_nest_close(emit_nest *x, int from, int to);
emit_loop emit_loop_of(emit *e, int64_t extent, emit_limit limit);
const char *emit_limit_text(emit *e, emit_limit limit);
/* Runs `body` for each piece of the loops: concatenations make pieces, within which each element comes from one
 * operand. `body` gives the statement of the innermost loop. */
typedef const char *emit_body(emit_nest *x, const emit_index *at, const void *context);
void emit_each(emit *e, const tile_node *value, int rank, const emit_loop *loops, bool vectorise, emit_body *body,
               const void *context);

/* emit_load.c --------------------------------------------------------------------------------------------------------
 */

emit_value emit_load(emit_nest *x, const tile_node *n, const emit_index *at);
/* The current extent of a tensor's dimension, cut off by the item's limit. */
const char *emit_extent(emit *e, const tile_access *access, int dimension);
void emit_store(emit *e, const tile_statement *s);
/* Declares a slice of two dimensions as an mt_slice: its rows are the tensor's dimension `row`, its columns the last
 * one; all other items are points. `rows` and `columns` take the place of the items' sizes. Returns its C name. */
const char *emit_slice(emit *e, const tile_access *access, int row, int64_t rows, int64_t columns);

/* emit_reduce.c, emit_dot.c
 * -------------------------------------------------------------------------------------------- */

emit_array emit_reduce(emit *e, const tile_node *n, const emit_limit *limits);
/* array += dot n. */
void emit_dot(emit *e, const emit_array *array, const tile_node *n, const emit_limit *limits);
/* A loop that is nothing but sums of dots over consecutive columns: one dot each over all of them. False: it is not
 * one. */
bool emit_fused(emit *e, const tile_statement *s);

/* emit_format.c ------------------------------------------------------------------------------------------------------
 */

/* The C name of the mt_codec of a format, which is added to the unit; `rounded` NULL, or a float that its values are
 * rounded to. */
const char *emit_codec_of(emit *e, const tile_format *f, const tile_format *rounded);
/* The product is exact in f32, so that it may be fused with a sum. */
bool emit_is_exact_product(const tile_format *f, const tile_node *n);
int emit_integer_bits(const tile_format *f, const tile_node *n); /* its magnitude fits in so many */
bool emit_has_field(const tile_node *n);
format_value emit_known_value(const tile_node *n, int i); /* of a node without fields, for element i */

#endif
