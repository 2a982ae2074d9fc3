/* Tokens of the tile language. */
#ifndef TILE_LEX_H
#define TILE_LEX_H

#include "tile/ast.h"

/* clang-format off */
/* Reserved words. What else the grammar names (out, live, stream, block, ...) is a word only where the grammar asks for
 * it. */
#define LEX_WORDS(X)                                                                                                   \
    X(TILE, "tile") X(FORMAT, "format") X(OVER, "over") X(TUNE, "tune") X(IN, "in") X(FOR, "for") X(IF, "if")          \
    X(ELSE, "else") X(AND, "and") X(OR, "or") X(NOT, "not") X(TRUE, "true") X(FALSE, "false") X(INF, "inf")

/* Of two signs that begin alike the longer stands first. */
#define LEX_SIGNS(X)                                                                                                   \
    X(RANGE, "..") X(ADD_TO, "+=") X(SUBTRACT_FROM, "-=") X(MULTIPLY_BY, "*=") X(EQUAL, "==") X(UNEQUAL, "!=")         \
    X(SHIFT_LEFT, "<<") X(SHIFT_RIGHT, ">>") X(LESS_EQUAL, "<=") X(GREATER_EQUAL, ">=") X(LESS, "<") X(GREATER, ">")   \
    X(PLUS, "+") X(MINUS, "-") X(STAR, "*") X(SLASH, "/") X(PERCENT, "%") X(AMPERSAND, "&") X(BAR, "|") X(CARET, "^")  \
    X(ASSIGN, "=") X(COLON, ":") X(COMMA, ",") X(SEMICOLON, ";") X(DOT, ".") X(PAREN, "(") X(PAREN_END, ")")           \
    X(BRACKET, "[") X(BRACKET_END, "]") X(BRACE, "{") X(BRACE_END, "}")
/* clang-format on */

typedef enum lex_kind {
    LEX_END, /* of the text */
    LEX_BAD, /* no token: `problem` says why */
    LEX_NAME,
    LEX_INTEGER,
    LEX_FLOAT,
#define X(name, text) LEX_##name,
    LEX_WORDS(X) LEX_SIGNS(X)
#undef X
} lex_kind;

typedef struct lex_token {
    lex_kind kind;
    ast_place place;
    size_t begin, end;         /* bytes of the text */
    bool starts_line;          /* nothing but blanks and comments between the line's beginning and this token */
    size_t doc_begin, doc_end; /* the comment block directly above; empty when there is none */
    int64_t integer;
    double number;
    const char *problem;
} lex_token;

/* A position in a text. May be copied to look ahead. */
typedef struct lexer {
    const char *text; /* followed by a NUL */
    size_t length, position, line_start;
    int line;
} lexer;

lexer lex_open(const char *source, size_t length);
lex_token lex_next(lexer *l);
const char *lex_kind_text(lex_kind kind); /* "tile", "+=", "a name" */

enum { LEX_NAME_LIMIT = 128 }; /* bytes in a name */

#endif
