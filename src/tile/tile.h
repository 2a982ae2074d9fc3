/* The tile language: what its front end (parse, check, bind) gives to everything that reads a tile program.
 *
 *   text ── tile_parse ──► tile_file ── tile_bind (constants) ──► tile_op ──► access summary, emit C, roles, emit CUDA
 *
 * A tile_op is a typed tree with constants folded in. Every tile has a constant shape. Operands of one elementwise node
 * have one type (casts are explicit nodes) and are broadcast numpy-wise: aligned at the right, extents of 1 stretch.
 * The tree may share nodes (a DAG) only through variables; a node has one parent. */
#ifndef TILE_TILE_H
#define TILE_TILE_H

#include "tile/type.h"

enum { TILE_RANK = 5, TILE_PARAMS = 16, TILE_AXES = 5, TILE_CONSTANTS = 32, TILE_EXTENTS = 32 };

typedef struct tile_shape {
    int rank;
    int64_t extent[TILE_RANK];
} tile_shape;

/* Elements of a shape; 1 for rank 0. Shapes of ops are limited to 2^24 elements by the checker. */
int64_t tile_shape_count(const tile_shape *s);

/* Operators: name in text, arity. One table for parser, printer and emitters. */
/* clang-format off */
#define TILE_OPERATORS(X)                                                                                              \
    X(NEG, "-", 1) X(NOT, "not", 1)                                                                                    \
    X(ABS, "abs", 1) X(EXP, "exp", 1) X(EXP2, "exp2", 1) X(LOG, "log", 1) X(LOG2, "log2", 1) X(SIN, "sin", 1)          \
    X(COS, "cos", 1) X(TANH, "tanh", 1) X(SQRT, "sqrt", 1) X(RSQRT, "rsqrt", 1)                                        \
    X(FLOOR, "floor", 1) X(CEIL, "ceil", 1) X(ROUND, "round", 1) X(BITS, "bits", 1)                                    \
    X(ADD, "+", 2) X(SUB, "-", 2) X(MUL, "*", 2) X(DIV, "/", 2) X(MOD, "%", 2) X(CEIL_DIV, "ceil_div", 2)              \
    X(MIN, "min", 2) X(MAX, "max", 2) X(AND, "and", 2) X(OR, "or", 2)                                                  \
    X(BIT_AND, "&", 2) X(BIT_OR, "|", 2) X(BIT_XOR, "^", 2) X(SHL, "<<", 2) X(SHR, ">>", 2)                            \
    X(EQ, "==", 2) X(NE, "!=", 2) X(LT, "<", 2) X(LE, "<=", 2) X(GT, ">", 2) X(GE, ">=", 2)                            \
    X(SUM, "sum", 1) X(REDUCE_MAX, "max", 1) X(REDUCE_MIN, "min", 1) X(ARGMAX, "argmax", 1)
/* clang-format on */

typedef enum tile_operator {
#define X(name, text, arity) TILE_##name,
    TILE_OPERATORS(X)
#undef X
        TILE_OPERATOR_COUNT
} tile_operator;
const char *tile_operator_text(tile_operator o);

typedef enum tile_node_kind {
    /* scalars (rank 0) */
    TILE_CONST,        /* value.i for integers and bool, value.f for floats; `type` says which */
    TILE_GRID,         /* index of grid axis `index`; type i64 */
    TILE_LOOP,         /* variable of loop `index`; i64 */
    TILE_EXTENT,       /* free extent `index`; i64 */
    TILE_LIVE,         /* live parameter `index` (of op->params); i64 */
    TILE_ARG,          /* arg parameter `index`; i64 for integer args, f32 for f32 args */
    TILE_FORMAT_INDEX, /* only in formats: the i of value[i]; i32 */
    TILE_FIELD,        /* only in formats: field `index` at element `a`; i32 or f32 */
    /* tiles of any rank */
    TILE_VAR,         /* the current value of variable `index` */
    TILE_LOAD,        /* the slice `access`; type is the tensor's storage format */
    TILE_ELEMENTWISE, /* `op` on a, or a and b */
    TILE_SELECT,      /* where(a, b, c): a is bool */
    TILE_CAST,        /* a to `type`; from a block format: decode to f32 */
    TILE_REDUCE,    /* `op` (SUM, REDUCE_MAX, REDUCE_MIN, ARGMAX) of a along axis `index`, which stays with extent 1 */
    TILE_DOT,       /* a [m, k] times b [k, n]; f32 or i32 */
    TILE_TRANSPOSE, /* the last two dimensions of a, exchanged */
    TILE_RESHAPE,   /* a in row-major order */
    TILE_BROADCAST, /* a stretched to `shape` */
    TILE_CONCAT,    /* list[0..count) along axis `index` */
    TILE_PART,      /* a part of tile a: starts in value-constant `access` items (RANGE with CONST start, or POINT) */
    TILE_IOTA       /* i32 0, 1, ... along the only axis */
} tile_node_kind;

typedef enum tile_item_kind {
    TILE_ITEM_RANGE, /* `size` elements from scalar `start` */
    TILE_ITEM_POINT, /* one element at scalar `start`; the dimension is dropped */
    TILE_ITEM_GATHER /* the elements at `start`, an i32 tile of rank 1 */
} tile_item_kind;

typedef struct tile_item {
    tile_item_kind kind;
    struct tile_node *start; /* `:` is a RANGE with start 0 and the whole extent */
    int64_t size;            /* RANGE, GATHER: elements; POINT: 1 */
    /* RANGE: a scalar; elements at it and beyond are out of range. NULL: only the extent limits */
    struct tile_node *limit;
} tile_item;

typedef struct tile_access {
    int param; /* index into op->params; -1 in TILE_PART */
    int rank;  /* the tensor's (or the parted tile's) rank: one item each */
    tile_item item[TILE_RANK];
} tile_access;

typedef struct tile_node {
    tile_node_kind kind;
    tile_operator op;
    const tile_format *type; /* a block format only for LOAD, and TRANSPOSE, RESHAPE, PART, VAR of one */
    tile_shape shape;
    struct tile_node *a, *b, *c;
    struct tile_node **list;
    int count;
    int index;
    union {
        int64_t i;
        double f;
    } value;
    tile_access *access;
    int line, column;
} tile_node;

typedef enum tile_statement_kind {
    TILE_ASSIGN,
    TILE_STORE,
    TILE_FOR,
    TILE_IF,
    TILE_ACTION /* only in ops of level 2: explicit.h */
} tile_statement_kind;

typedef struct tile_statement {
    tile_statement_kind kind;
    struct tile_statement *next;
    int line, column;
    int index;           /* ASSIGN: variable; FOR: loop */
    tile_node *value;    /* ASSIGN: has the variable's type and shape. STORE: broadcastable to the slice's shape, of the
                            tensor's type. IF: the condition, a scalar bool */
    bool declares;       /* ASSIGN: this is the variable's first assignment */
    bool adds;           /* STORE: += */
    tile_access *access; /* STORE */
    tile_shape shape;    /* STORE: the slice's shape */
    tile_node *begin, *end;                  /* FOR: scalars, begin .. end */
    bool stream;                             /* FOR */
    struct tile_statement *body, *otherwise; /* FOR, IF; the else branch. ACTION: a role's statements */
    struct level2_action *action;            /* ACTION; `value` is what it reads */
} tile_statement;

typedef enum tile_param_kind { TILE_IN, TILE_OUT, TILE_INOUT, TILE_PARAM_ARG, TILE_PARAM_LIVE } tile_param_kind;

typedef struct tile_param {
    const char *name;
    tile_param_kind kind;
    const tile_format *type;      /* tensors: storage; arg: f32 or i32; live: i32 */
    int rank;                     /* tensors */
    tile_node *extent[TILE_RANK]; /* tensors: CONST, EXTENT, or an expression with LIVE and ARG */
    bool unordered;               /* level 2: instructions of one node that touch it are not ordered by that */
    int ordinal; /* its place among the parameters of its sort: tensors, args, lives are numbered apart */
} tile_param;

typedef struct tile_variable {
    const char *name;
    const tile_format *type;
    tile_shape shape;
    int assignments; /* statements that assign it; 1: it never changes once declared */
    int uses;        /* VAR nodes that read it */
} tile_variable;

typedef struct tile_constant { /* a bound constant: an integer, or a type when `type` is set */
    const char *name;
    int64_t value;
    const tile_format *type;
} tile_constant;

typedef struct tile_op {
    const char *name; /* the tile program's name */
    const char *text; /* the text of this tile program and of the formats it uses: enough to bind it again */
    const char *path; /* the file it came from, for #line and messages */
    tile_constant constants[TILE_CONSTANTS];
    int constant_count; /* in the order of their declaration */
    tile_param params[TILE_PARAMS];
    int param_count, tensor_count, arg_count, live_count;
    const char *extent_names[TILE_EXTENTS];
    int extent_count;
    struct {
        int param, dimension;
    } extent_source[TILE_EXTENTS]; /* where the operand gives the free extent's value */
    const char *axis_names[TILE_AXES];
    tile_node *axis_count[TILE_AXES]; /* scalars without GRID and LOOP */
    int axis_total;
    const char **loop_names;
    int loop_count;
    tile_variable *variables;
    int variable_count;
    tile_statement *body;
    struct tile_level2 *level2; /* explicit.h; NULL: a program of level 1 */
    hash128 hash;               /* of name, text and constants: equal hashes are the same op */
} tile_op;

/* ---- front end ------------------------------------------------------------------------------------------------- */

/* A parsed file: generic tile programs and formats. Immutable once made; may be shared between threads. */
typedef struct tile_file tile_file;

/* What the parser and the checker have to say: several lines, each error as
 *   path:line:column: error: what is wrong, what was expected
 *       the line
 *          ^
 * At most 50 errors; `count` counts all of them. Zero-initialise; free with text_free(&d.text). */
typedef struct tile_diagnostics {
    text text;
    int count;
} tile_diagnostics;

/* Parses a file of tile programs and formats. Formats of the instruction library are known in every file. On
 * MT_E_SYNTAX every error found is in *diagnostics (may be NULL) and the first in *error. `path` is for messages; the
 * text is copied. */
mt_status tile_parse(tile_file **out, const char *path, const char *text, size_t length, tile_diagnostics *diagnostics,
                     mt_error *error);
void tile_file_free(tile_file *f);
/* The embedded instruction library, parsed once per process; never freed. */
mt_status tile_library(const tile_file **out, mt_error *error);

size_t tile_file_count(const tile_file *f);                      /* tile programs */
const char *tile_file_name(const tile_file *f, size_t i);        /* the i-th one's name */
const char *tile_file_doc(const tile_file *f, const char *name); /* the comment above it, "" when none */
size_t tile_file_format_count(const tile_file *f);
const tile_format *tile_file_format(const tile_file *f, size_t i);
/* What a type's name means in a file: a format of its own, or what it means everywhere (tile_format_find). */
const tile_format *tile_file_find_format(const tile_file *f, const char *name);
/* Two formats are the same when they have one name and one declaration, wherever they were read. */
bool tile_format_same(const tile_format *a, const tile_format *b);

/* A parameter of the generic program, before binding: enough to match operands with. */
typedef struct tile_signature_param {
    const char *name;
    tile_param_kind kind;
    const char *type_constant; /* tensors: the type constant that is its type, or NULL */
    const tile_format *type;   /* when type_constant is NULL */
    int rank;
    const char *extent_name[TILE_RANK]; /* a bare name (constant or free extent), or NULL for an expression */
    bool extent_is_constant[TILE_RANK]; /* it is a constant's */
} tile_signature_param;
/* Fills up to TILE_PARAMS parameters; returns their number, or -1 when there is no such program. */
int tile_signature(const tile_file *f, const char *name, tile_signature_param *out);
/* The constants of the generic program with their defaults in order (type NULL and value INT64_MIN where none);
 * returns their number or -1. */
int tile_constants(const tile_file *f, const char *name, tile_constant *out);
bool tile_has_constant(const tile_file *f, const char *program, const char *constant);
/* The constant in front of it that a constant's default names; NULL: none. The string is the file's. */
const char *tile_constant_follows(const tile_file *f, const char *program, const char *constant);
/* A constant's tune choices, the first `room` of them; returns how many were written (0 when it has none), or -1. */
int tile_tune(const tile_file *f, const char *name, const char *constant, int64_t *out, int room);

/* What a fused program stands for: `equals { t = rmsnorm(x, g, eps); y = linear(t, w) }`. Each step applies a program
 * of the library to names that are parameters of this program or results of earlier steps: inputs by position over its
 * in, inout, arg and live parameters, outputs over its out parameters. The fusion pass rewrites by it, and the tests
 * prove it. */
typedef struct tile_step {
    const char *program;
    const char *input[TILE_PARAMS], *output[TILE_PARAMS];
    int input_count, output_count;
} tile_step;
enum { TILE_STEPS = 8 };
/* Fills at most TILE_STEPS steps; returns their number, 0 for a program without `equals`. */
int tile_equals(const tile_file *f, const char *name, tile_step *out);
/* The same the other way round: `splits { ... }` names a composition that computes what this program does in more and
 * smaller instructions, for machines with more processors than this program has instructions. */
int tile_splits(const tile_file *f, const char *name, tile_step *out);

/* Binds constants (by name; the others take their defaults) and checks the whole program: types, shapes, slices,
 * stores. The op lives in `a`; the file may be freed afterwards. Errors: MT_E_ARGUMENT (no such program or constant,
 * one missing), MT_E_SYNTAX with diagnostics as above (a shape that does not fit is reported at its place in the text).
 */
mt_status tile_bind(arena *a, const tile_op **out, const tile_file *f, const char *name, const tile_constant *constants,
                    size_t count, tile_diagnostics *diagnostics, mt_error *error);

/* ---- access summary (access.c) ---------------------------------------------------------------------------------- */

/* What an instance of an op is bound to: everything a count or a box may depend on, except the grid index. */
typedef struct tile_operand {
    int rank;
    int64_t extent[TILE_RANK];
    bool live[TILE_RANK]; /* the extent at run time may be any from 0 to this one */
} tile_operand;

typedef struct tile_instance {
    const tile_op *op;
    tile_operand tensor[TILE_PARAMS]; /* by tensor ordinal */
    union {
        int64_t i;
        float f;
    } arg[TILE_PARAMS]; /* by arg ordinal */
    struct {
        int32_t least, most;
    } live[TILE_PARAMS];               /* by live ordinal: the range the value can take */
    int64_t free_extent[TILE_EXTENTS]; /* set by tile_instance_check, with the next */
    bool free_live[TILE_EXTENTS];      /* it is that at most */
} tile_instance;

/* Checks that operands fit the op's extents (rank, constants, agreement of free extents, room for live maxima, block
 * multiples) and fills free_extent. MT_E_ARGUMENT names the operand and the extents. */
mt_status tile_instance_check(tile_instance *i, mt_error *error);

/* The largest value that an extent or a count can have. False when it does not fit in 64 bits, or uses a free extent
 * that no operand says yet (free_extent is -1). */
bool tile_instance_most(const tile_instance *i, const tile_node *n, int64_t *out);

/* Grid points along each axis, at the live values' maxima; returns their product, or -1 when it exceeds 2^31 - 1. */
int64_t tile_instance_grid(const tile_instance *i, int64_t count[TILE_AXES]);

/* The part of a tensor that one instruction may touch: in each dimension [low, high), clipped to the operand.
 * `offset_live` >= 0 means the interval is relative to that live value (by ordinal): it moves with it. Two intervals
 * with the same offset_live compare exactly; otherwise widen with the live range. */
typedef struct tile_interval {
    int64_t low, high;
    int offset_live;
} tile_interval;
typedef struct tile_box {
    int tensor; /* ordinal */
    bool reads, writes;
    bool unordered; /* no order is wanted with other boxes of this node that are */
    int rank;
    tile_interval dim[TILE_RANK];
} tile_box;

typedef struct tile_summary {
    int box_count;
    tile_box box[2 * TILE_PARAMS]; /* at most one read and one write box per tensor: the hull of all accesses */
    /* In storage bytes, at live maxima: of the boxes, or of all accesses one by one where these are fewer: rows that
     * data chooses have the whole tensor as their box. */
    int64_t bytes_read, bytes_written;
    int64_t flops; /* 2 m n k of every dot, 1 per element of other float operations, at live maxima */
} tile_summary;
/* The summary of one grid point. Indices that come from data give the whole dimension. */
void tile_summarise(const tile_instance *i, const int64_t index[TILE_AXES], tile_summary *out);
/* Makes an interval absolute by widening it with the live value's range and clipping it to [0, extent). */
tile_interval tile_interval_absolute(const tile_instance *i, tile_interval v, int64_t extent);

/* ---- ranges (range.c) ------------------------------------------------------------------------------------------- */

/* The range [low, high] of `op` on integers in a[0]..a[1] and b[0]..b[1], each within +-2^60. False: none is known. */
bool tile_operate_range(tile_operator op, const int64_t a[2], const int64_t b[2], int64_t *low, int64_t *high);

/* ---- printing (print.c) ------------------------------------------------------------------------------------------ */

void tile_print_node(text *out, const tile_op *op, const tile_node *n); /* one line, in the language's syntax */
void tile_print_op(text *out, const tile_op *op);                       /* the bound program, for people */

/* The field layout of a block format, for emitters. */
typedef struct tile_field {
    const char *name;
    const tile_format *type; /* scalar */
    int count;               /* 1 for a scalar field */
    int bit_offset;          /* from the block's start */
} tile_field;
typedef struct tile_format_body {
    tile_field *fields;
    int field_count;
    tile_node *value; /* element TILE_FORMAT_INDEX, as f32; helper functions are inlined */
    const char *text; /* the declaration */
    const char *doc;
} tile_format_body;
/* Decodes a block by walking the tree: slow, for tests, constants and error checks. `out` gets f->block floats. */
void tile_format_decode(const tile_format *f, const void *block, float *out);

#endif
