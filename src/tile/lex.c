/* Splits the text of a .tile file into tokens. New lines are no tokens: a token knows whether it starts a line, and the
 * parser knows whether a statement could go on there. */
#include "tile/lex.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* clang-format off */
static const struct { const char *text; size_t length; lex_kind kind; } signs[] = {
#define X(name, text) {text, sizeof text - 1, LEX_##name},
    LEX_SIGNS(X)
}, words[] = {
    LEX_WORDS(X)
#undef X
};

const char *lex_kind_text(lex_kind kind) {
    static const char *const texts[] = {"the end of the file", "?", "a name", "an integer", "a number",
#define X(name, text) text,
        LEX_WORDS(X) LEX_SIGNS(X)
#undef X
    };
    return texts[kind];
}
/* clang-format on */

lexer lex_open(const char *source, size_t length) { return (lexer){.text = source, .length = length, .line = 1}; }

static bool is_digit(int c) { return c >= '0' && c <= '9'; }
static bool is_letter(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/* The byte `ahead` of the position, 0 behind the end. */
static int peek(const lexer *l, size_t ahead) {
    return l->length - l->position > ahead ? (unsigned char)l->text[l->position + ahead] : 0;
}

/* Skips blanks and comments up to the next token; notes in *t the comment block whose last line is the one above it.
 * Stops at a control character inside a comment, too, which the caller reports. */
static void skip_blanks(lexer *l, lex_token *t) {
    bool line_is_blank = l->position == 0; /* so far */
    int doc_line = 0;                      /* the line where the comment block at doc_begin .. doc_end ends */
    for (int c; l->position < l->length; l->position++) {
        c = peek(l, 0);
        if (c == '\n') {
            l->line++;
            l->line_start = l->position + 1;
            line_is_blank = t->starts_line = true;
        } else if (c == '/' && peek(l, 1) == '/') {
            const size_t begin = l->position;
            while (l->position < l->length && ((c = peek(l, 0)) == '\t' || c == '\r' || (c >= ' ' && c != 127)))
                l->position++;
            if (line_is_blank) {
                if (doc_line != l->line - 1) t->doc_begin = begin;
                t->doc_end = l->position;
                doc_line = l->line;
            }
            if (l->position < l->length && c != '\n') break;
            l->position--; /* the loop steps onto the new line again */
        } else if (c != ' ' && c != '\t' && c != '\r') {
            break;
        }
    }
    if (doc_line != l->line - 1) t->doc_begin = t->doc_end = 0;
}

static locale_t c_locale;
static void open_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* strtod with a point as the decimal sign, whatever the process has set. */
static double to_number(const char *digits) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_locale);
    return c_locale ? strtod_l(digits, NULL, c_locale) : strtod(digits, NULL);
}

static void bad(lex_token *t, const char *problem) {
    t->kind = LEX_BAD;
    t->problem = problem;
}

static int digit_value(int c) {
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* 12, 0x1f, 1.5, 1e-5, 1.5e3. A point belongs to the number only when a digit follows: 0..n is a range. */
static void lex_number(lexer *l, lex_token *t) {
    const int base = peek(l, 0) == '0' && (peek(l, 1) | 32) == 'x' && digit_value(peek(l, 2)) < 16 ? 16 : 10;
    if (base == 16) l->position += 2;
    t->kind = LEX_INTEGER;
    bool overflow = false;
    for (int digit; (digit = digit_value(peek(l, 0))) < base; l->position++)
        overflow |= __builtin_mul_overflow(t->integer, base, &t->integer) ||
                    __builtin_add_overflow(t->integer, digit, &t->integer);
    if (base == 10) {
        if (peek(l, 0) == '.' && is_digit(peek(l, 1))) {
            t->kind = LEX_FLOAT;
            for (l->position++; is_digit(peek(l, 0));) l->position++;
        }
        const size_t sign = peek(l, 1) == '+' || peek(l, 1) == '-';
        if ((peek(l, 0) | 32) == 'e' && is_digit(peek(l, 1 + sign))) {
            t->kind = LEX_FLOAT;
            for (l->position += 1 + sign; is_digit(peek(l, 0));) l->position++;
        }
    }
    if (t->kind == LEX_FLOAT) {
        t->number = to_number(l->text + t->begin);
        if (isinf(t->number)) bad(t, "this number is larger than a 64-bit float can be");
    } else if (overflow) {
        bad(t, "this integer does not fit in 64 bits");
    }
    if (is_letter(peek(l, 0))) {
        while (is_letter(peek(l, 0)) || is_digit(peek(l, 0))) l->position++;
        bad(t, "a number is followed by a letter; expected an operator between them");
    }
}

static void lex_name(lexer *l, lex_token *t) {
    while (is_letter(peek(l, 0)) || is_digit(peek(l, 0))) l->position++;
    const size_t length = l->position - t->begin;
    t->kind = LEX_NAME;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (words[i].length == length && !memcmp(words[i].text, l->text + t->begin, length)) t->kind = words[i].kind;
    if (length > LEX_NAME_LIMIT) bad(t, "this name is longer than 128 characters");
}

static void lex_sign(lexer *l, lex_token *t) {
    for (size_t i = 0; i < COUNT_OF(signs); i++)
        if (l->length - l->position >= signs[i].length &&
            !memcmp(signs[i].text, l->text + l->position, signs[i].length)) {
            t->kind = signs[i].kind;
            l->position += signs[i].length;
            return;
        }
    const int c = peek(l, 0);
    if (c >= 128) {
        while (peek(l, 0) >= 128) l->position++;
        bad(t, "characters outside ASCII are allowed in comments only");
    } else {
        l->position++;
        bad(t, c < ' ' || c == 127 ? "control characters are not allowed"
                                   : "this character has no meaning in the tile language");
    }
}

lex_token lex_next(lexer *l) {
    lex_token t = {.starts_line = l->position == 0};
    skip_blanks(l, &t);
    t.begin = l->position;
    t.place = (ast_place){l->line, (int)(l->position - l->line_start) + 1};
    const int c = peek(l, 0);
    if (l->position == l->length)
        t.kind = LEX_END;
    else if (is_digit(c))
        lex_number(l, &t);
    else if (is_letter(c))
        lex_name(l, &t);
    else
        lex_sign(l, &t);
    t.end = l->position;
    return t;
}
