/* Growable byte strings. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

/* Makes room for `more` bytes and a NUL. */
static bool reserve(text *t, size_t more) {
    if (t->failed) return false;
    if (more < SIZE_MAX / 4 && t->length < SIZE_MAX / 4) {
        const size_t needed = t->length + more + 1;
        if (needed <= t->capacity) return true;
        size_t capacity = t->capacity ? t->capacity : 256;
        while (capacity < needed) capacity *= 2;
        char *data = realloc(t->data, capacity);
        if (data) {
            t->data = data;
            t->capacity = capacity;
            return true;
        }
    }
    t->failed = true;
    return false;
}

void text_append(text *t, const void *bytes, size_t length) {
    if (!reserve(t, length)) return;
    if (length) memcpy(t->data + t->length, bytes, length);
    t->length += length;
    t->data[t->length] = 0;
}

void text_string(text *t, const char *s) { text_append(t, s, strlen(s)); }

void text_vprintf(text *t, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    if (length >= 0 && reserve(t, (size_t)length)) {
        vsnprintf(t->data + t->length, (size_t)length + 1, format, again);
        t->length += (size_t)length;
    } else {
        t->failed = true;
    }
    va_end(again);
}

void text_printf(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    text_vprintf(t, format, arguments);
    va_end(arguments);
}

void text_free(text *t) {
    free(t->data);
    *t = (text){0};
}
