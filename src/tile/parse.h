/* The parser's state, and what its two halves share: parse.c has declarations and statements, expression.c tokens,
 * errors and expressions. */
#ifndef TILE_PARSE_H
#define TILE_PARSE_H

#include "tile/lex.h"

enum { PARSE_DEPTH_LIMIT = 200 };

typedef struct parser {
    arena *memory;
    ast_reporter *report;
    const char *text;
    const tile_file *file;
    lexer lexer;
    lex_token token, previous; /* previous.kind is LEX_END before the first */
    int brackets;              /* how many ( and [ are open; headers count as one */
    size_t start;              /* where the statement, member or declaration begins */
    int depth;                 /* of nesting */
    int height;                /* of the expression that was parsed last */
    ast_place last_error;
    map names; /* of tiles and formats, to their lines */
    int declarations;
    int64_t budget;
} parser;

/* Reports an error, unless there was one at this very place. */
void parse_fail(parser *p, ast_place at, const char *format, ...) PRINTF_LIKE(3, 4);
/* Reports the current token as a surprise. A line or a file that ends too early is reported where it ends. */
void parse_unexpected(parser *p, const char *expected);

void parse_advance(parser *p);
bool parse_accept(parser *p, lex_kind kind);
/* Fails with "expected '<kind>'<where>". */
bool parse_expect(parser *p, lex_kind kind, const char *where);
const char *parse_name(parser *p, const char *what);
static inline bool parse_at(const parser *p, lex_kind kind) { return p->token.kind == kind; }
bool parse_at_word(const parser *p, const char *word);
/* Whether an expression may go on with this token: not on the next line, unless brackets are open. */
static inline bool parse_continues(const parser *p) { return p->brackets > 0 || !p->token.starts_line; }

/* Opens one level of nesting; false when there are too many. parse_leave closes it. */
bool parse_enter(parser *p);
void parse_leave(parser *p);
void parse_open(parser *p); /* "(" or "[" */
bool parse_close(parser *p, lex_kind kind, const char *where);

/* A block of statements in braces; the end of a statement. */
bool parse_block(parser *p, ast_statement **out);
bool parse_end(parser *p);

/* explicit_parse.c: a statement of level 2. *mine: it is one, and the result says whether it was whole. */
bool explicit_parse(parser *p, ast_statement *s, bool *mine);

ast_expr *parse_expr(parser *p);
/* a, b, ... up to the closing bracket, as a list through `next`. The opening bracket is behind. */
bool parse_exprs(parser *p, lex_kind closing, const char *where, ast_expr **out);
/* The items of a slice and its closing bracket. */
bool parse_items(parser *p, ast_item **out);

#endif
