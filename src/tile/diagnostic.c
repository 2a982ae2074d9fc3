/* Reports errors in a text: the place, what is wrong, the line and a caret under the place. */
#include "tile/ast.h"

#include <stdio.h>

enum { SHOWN_ERRORS = 50, SHOWN_BEFORE = 80, SHOWN_BYTES = 120 };

static bool continues_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; } /* UTF-8 */

/* Appends the line of `at` and a line with the caret. Of a long line only the part around the caret is shown. Control
 * characters, which a terminal might obey, are shown as '?'; the caret's line repeats tabs and counts characters. */
static void append_line(text *out, const ast_reporter *r, ast_place at) {
    size_t start = 0;
    for (int line = 1; line < at.line; line++) {
        const char *end = start < r->length ? memchr(r->text + start, '\n', r->length - start) : NULL;
        if (!end) break;
        start = (size_t)(end - r->text) + 1;
    }
    const char *end = start < r->length ? memchr(r->text + start, '\n', r->length - start) : NULL;
    size_t length = (end ? (size_t)(end - r->text) : r->length) - start;
    if (length && r->text[start + length - 1] == '\r') length--;
    const size_t caret = (size_t)max_i64(0, min_i64(at.column - 1, (int64_t)length));

    size_t first = caret > SHOWN_BEFORE ? caret - SHOWN_BEFORE : 0;
    size_t last = length - first > SHOWN_BYTES ? first + SHOWN_BYTES : length;
    for (int i = 0; i < 3; i++) { /* whole characters; none is longer than four bytes */
        if (first && first < caret && continues_character(r->text[start + first])) first++;
        if (last < length && continues_character(r->text[start + last])) last++;
    }

    text_string(out, first ? "    ..." : "    ");
    for (size_t i = first; i < last; i++) {
        const char c = r->text[start + i];
        text_append(out, (c >= 0 && c < ' ' && c != '\t') || c == 127 ? "?" : &c, 1);
    }
    text_string(out, last < length ? "...\n" : "\n");
    text_string(out, first ? "       " : "    ");
    for (size_t i = first; i < caret; i++) {
        const char c = r->text[start + i];
        if (!continues_character(c)) text_append(out, c == '\t' ? "\t" : " ", 1);
    }
    text_string(out, "^");
}

void ast_report(ast_reporter *r, ast_place at, const char *format, ...) {
    const bool is_first = r->count++ == 0;
    tile_diagnostics *d = r->diagnostics;
    const int before = d ? d->count++ : SHOWN_ERRORS;
    if (before == SHOWN_ERRORS && d)
        text_printf(&d->text, "%s: more errors follow; the first %d are shown\n", r->path, SHOWN_ERRORS);
    if (!is_first && before >= SHOWN_ERRORS) return;

    text one = {0}; /* what is wrong, the line, the caret */
    va_list arguments;
    va_start(arguments, format);
    text_vprintf(&one, format, arguments);
    va_end(arguments);
    text_string(&one, "\n");
    append_line(&one, r, at);
    if (before < SHOWN_ERRORS) {
        text_printf(&d->text, "%s:%d:%d: error: ", r->path, at.line, at.column);
        if (one.failed)
            d->text.failed = true;
        else
            text_append(&d->text, one.data, one.length);
        text_string(&d->text, "\n");
    }
    if (is_first && r->first) {
        char where[sizeof r->first->where];
        snprintf(where, sizeof where, "%.200s:%d:%d", r->path, at.line, at.column);
        error_set(r->first, MT_E_SYNTAX, where, "%s", one.failed ? "out of memory for the message" : one.data);
    }
    text_free(&one);
}
