/* The syntax tree of a .tile file: what was written, before constants are bound. Private to the front end (lex.c,
 * parse.c, format.c, bind.c). Every node knows its place in the text. */
#ifndef TILE_AST_H
#define TILE_AST_H

#include "tile/tile.h"

typedef struct ast_place {
    int line, column;
} ast_place; /* from 1; column counts bytes */

typedef enum ast_kind {
    AST_INTEGER, /* integer */
    AST_FLOAT,   /* number */
    AST_BOOL,    /* integer 0 or 1 */
    AST_NAME,    /* name */
    AST_UNARY,   /* op, a */
    AST_BINARY,  /* op, a, b */
    AST_CALL,  /* name (a function or a type), shape (for `f32[2, 3](x)`: list of extents), arguments, axis (or NULL) */
    AST_SLICE, /* a [ items ] */
    AST_TRANSPOSE /* a.T */
} ast_kind;

typedef struct ast_expr ast_expr;

typedef struct ast_item { /* one item of a slice */
    ast_expr *start;      /* NULL for `:` */
    ast_expr *size;       /* of `start : +size`, else NULL */
    ast_expr *limit;      /* of `start : +size < limit`, else NULL */
    struct ast_item *next;
    ast_place place;
} ast_item;

struct ast_expr {
    ast_kind kind;
    ast_place place; /* of the operator, the name or the literal */
    tile_operator op;
    int64_t integer;
    double number;
    const char *name;
    ast_expr *a, *b;
    ast_expr *arguments; /* CALL: a list through `next` */
    ast_expr *shape;     /* CALL: a list through `next`, or NULL */
    ast_expr *axis;      /* CALL: the `axis =` argument */
    ast_item *items;     /* SLICE */
    ast_expr *next;
};

typedef enum ast_statement_kind {
    AST_ASSIGN,
    AST_DECLARE,
    AST_UPDATE,
    AST_STORE,
    AST_FOR,
    AST_IF,
    /* level 2 */
    AST_SHARED,    /* name, count, type, shape, is_pages, swizzle, rows */
    AST_UNORDERED, /* arguments: the names of tensors */
    AST_BARRIER,   /* name, count, arguments: the names of roles */
    AST_ROLE,      /* name, count: of warps or, if is_groups, of warpgroups; registers; body */
    AST_DO         /* name(arguments) */
} ast_statement_kind;

typedef struct ast_level2 { /* what only statements of level 2 have */
    ast_expr *count;        /* NULL: one */
    ast_expr *arguments;    /* a list */
    ast_expr *layout;       /* DECLARE with `reg`: factors from the left, or NULL */
    ast_expr *swizzle, *rows;
    ast_expr *registers; /* ROLE: a thread's, or NULL */
    bool is_pages, is_groups;
} ast_level2;

typedef struct ast_statement {
    ast_statement_kind kind;
    ast_place place;
    const char *name;      /* ASSIGN, DECLARE, UPDATE: the variable; STORE: the tensor; FOR: the loop variable */
    const char *type;      /* DECLARE */
    ast_expr *shape;       /* DECLARE: extents, or NULL for a scalar */
    tile_operator op;      /* UPDATE: ADD, SUB, MUL; STORE: ADD when `+=`, else TILE_OPERATOR_COUNT */
    ast_item *items;       /* STORE */
    ast_expr *value;       /* the right side, or the condition of IF */
    ast_expr *begin, *end; /* FOR; begin NULL for 0 */
    bool stream;           /* FOR */
    ast_level2 *level2;    /* SHARED, BARRIER, UNORDERED, ROLE, DO; DECLARE behind `reg` */
    struct ast_statement *body, *otherwise, *next;
} ast_statement;

typedef struct ast_constant {
    const char *name;
    ast_expr *value; /* the default or NULL; a NAME that is a type makes it a type constant */
    ast_place place;
    ast_expr *choices; /* from tune, a list, or NULL */
    struct ast_constant *next;
} ast_constant;

typedef struct ast_param {
    const char *name, *type;
    tile_param_kind kind;
    ast_expr *extents; /* tensors: a list */
    ast_place place, type_place;
    struct ast_param *next;
} ast_param;

typedef struct ast_axis {
    const char *name;
    ast_expr *count;
    ast_place place;
    struct ast_axis *next;
} ast_axis;

typedef struct ast_step { /* one line of `equals { ... }` or `splits { ... }` */
    tile_step step;       /* at most TILE_PARAMS names a side */
    ast_place place;
    struct ast_step *next;
} ast_step;

typedef struct ast_tile {
    const char *name, *doc;
    ast_place place;
    size_t begin, end; /* bytes of the file's text, doc comment excluded */
    ast_constant *constants;
    ast_param *params;
    ast_axis *axes;
    ast_step *equals, *splits;
    ast_statement *body;
    const struct tile_file *source; /* whose text it stands in: tile_library joins the tiles of several files */
    struct ast_tile *next;
} ast_tile;

typedef struct ast_format {
    tile_format *format; /* complete: format.c checks and types formats while parsing */
    size_t begin, end;
    struct ast_format *next;
} ast_format;

struct tile_file {
    arena *memory; /* owns everything below */
    const char *path, *text;
    size_t length;
    ast_tile *tiles; /* in the order of the text */
    ast_format *formats;
};

/* diagnostic.c: reports one error with its line and caret; keeps the first in *first. */
typedef struct ast_reporter {
    const char *path, *text;
    size_t length;
    tile_diagnostics *diagnostics; /* may be NULL */
    mt_error *first;               /* may be NULL */
    int count;
} ast_reporter;
void ast_report(ast_reporter *r, ast_place at, const char *format, ...) PRINTF_LIKE(3, 4);

/* A copy of a block format that outlives its file. Scalar types and library formats live forever: they are their own
 * copy. */
const tile_format *ast_copy_format(arena *a, const tile_format *f);

#endif
