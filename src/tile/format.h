/* Block formats as written, and what makes formats of them. Private to the front end. */
#ifndef TILE_FORMAT_H
#define TILE_FORMAT_H

#include "tile/ast.h"

typedef struct format_index { /* an index name of a helper function or of value */
    const char *name;
    ast_place place;
    struct format_index *next;
} format_index;

typedef struct format_member { /* name: type, name: type[count], or name[j, k] = expr */
    const char *name, *type;   /* type: NULL for functions */
    ast_place place, type_place;
    int64_t count; /* -1 for a scalar field */
    ast_place count_place;
    format_index *indices;
    ast_expr *value;
    struct format_member *next;
} format_member;

typedef struct format_declaration {
    const char *name, *doc, *text;
    ast_place place, end_place; /* of the name, of the closing brace */
    int64_t block;              /* 0 when it is missing */
    ast_place block_place;
    format_member *members; /* in the order of the text; value is the last function */
} format_declaration;

enum {
    FORMAT_BLOCK_LIMIT = 1024, /* elements in a block */
    FORMAT_FIELD_LIMIT = 64,
    FORMAT_COUNT_LIMIT = 65536, /* elements in a field */
    FORMAT_NODE_LIMIT = 2048,   /* nodes that a format takes, functions inlined */
    FORMAT_BUDGET = 1 << 15     /* and all formats of a file */
};

/* Checks and types a declaration. NULL after errors were reported. `budget` bounds the nodes that the formats of one
 * file expand to; what this one takes is subtracted. Runs inside arena_protect. */
tile_format *format_build(arena *memory, ast_reporter *report, const format_declaration *d, int64_t *budget);

/* prove.c: reports every place of the value where an index can leave its field, a divisor can be zero or a shift can be
 * too wide, for any element and whatever the fields hold. */
bool format_prove(ast_reporter *report, const tile_format *f);

/* decode.c: i for i32 and bool, f for f32. */
typedef union format_value {
    int32_t i;
    float f;
} format_value;
/* The result of an ELEMENTWISE node whose operands have these values; b is ignored by unary operators. The caller made
 * sure that no divisor is zero, that no quotient overflows and that shifts are by 0 to 31. Integers wrap. */
format_value format_operate(const tile_node *n, format_value a, format_value b);
format_value format_cast(const tile_node *n, format_value a); /* of a CAST node */

#endif
