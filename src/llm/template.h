/* The tree of a chat template, between the parser (template_parse.c) and the interpreter (template.c).
 *
 * A node has one kind and uses the fields that the kind names. Lists (statements, arguments, elements) are linked by
 * `next`. Every node knows where it begins in the source, so that an error can name its line and column. */
#ifndef LLM_TEMPLATE_H
#define LLM_TEMPLATE_H

#include "base/base.h"
#include "monotile/text.h"

typedef enum template_kind {
    /* statements */
    NODE_TEXT,   /* s */
    NODE_PRINT,  /* a */
    NODE_IF,     /* args: its NODE_BRANCHes */
    NODE_BRANCH, /* a: condition, NULL for else; body */
    NODE_FOR, /* args: NODE_NAMEs; a: what it goes over; b: its condition or NULL; body; otherwise: the body of else */
    NODE_SET, /* s: a name, or an attribute of c; a: the value, or NULL for what `body` writes */
    NODE_SCOPE, /* body */
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_STRING,  /* s */
    NODE_INTEGER, /* i */
    NODE_BOOL,    /* i */
    NODE_NONE,
    NODE_NAME,      /* s */
    NODE_LIST,      /* args */
    NODE_DICT,      /* args: key, value, key, ... */
    NODE_ATTRIBUTE, /* a.s */
    NODE_INDEX,     /* a[b] */
    NODE_SLICE,     /* a[b:c:d], each of b, c, d may be NULL */
    NODE_CALL,      /* a(args) */
    NODE_FILTER,    /* a | s(args) */
    NODE_TEST,      /* a is s(args) */
    NODE_NEGATE,    /* a */
    NODE_NOT,
    NODE_AND, /* a, b */
    NODE_OR,
    NODE_CHOOSE, /* a if b else c; c may be NULL */
    NODE_ADD,
    NODE_SUBTRACT,
    NODE_MULTIPLY,
    NODE_DIVIDE,
    NODE_FLOOR_DIVIDE,
    NODE_MODULO,
    NODE_CONCATENATE, /* a, b */
    NODE_EQUAL,
    NODE_NOT_EQUAL,
    NODE_LESS,
    NODE_LESS_EQUAL,
    NODE_GREATER,
    NODE_GREATER_EQUAL,
    NODE_IN,
    NODE_NOT_IN
} template_kind;

typedef struct template_node {
    template_kind kind;
    int depth;     /* of the expression: bounds the interpreter's recursion */
    size_t at;     /* offset in the source */
    const char *s; /* NUL-terminated; texts and string literals may hold NULs too */
    size_t length; /* of s */
    int64_t i;
    const char *keyword; /* of an argument `keyword=value`, or NULL */
    struct template_node *a, *b, *c, *d, *args, *body, *otherwise, *next;
} template_node;

struct mt_template {
    arena *arena;
    const char *source; /* with "\n" for every end of line, and without the last one */
    size_t length;
    template_node *body;
};

/* Parses t->source to t->body. */
mt_status template_parse(mt_template *t, mt_error *error);
/* "chat template:LINE:COLUMN", both from 1, the column in bytes. */
void template_where(const mt_template *t, size_t at, char out[64]);

/* Code points, for both. The first one of a text of n > 0 bytes, and its length; a byte that begins none is one by
 * itself. */
size_t template_character(const char *s, size_t n, int32_t *c);
/* White space as Python's str.isspace knows it. */
bool template_is_space(int32_t c);
/* Bytes of white space at the beginning and at the end. */
size_t template_leading_space(const char *s, size_t n);
size_t template_trailing_space(const char *s, size_t n);

#endif
