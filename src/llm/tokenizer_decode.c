/* Token ids to text: all at once as bytes, or one by one as valid UTF-8. */
#include <stdlib.h>

#include "llm/tokenizer.h"

static const char where[] = "tokenizer";

struct mt_detokenizer {
    const mt_tokenizer *tokenizer;
    unsigned flags;
    unsigned char held[4]; /* the beginning of a character, at most three bytes */
    int held_count;
    text out;
};

/* The bytes that `id` adds to a text. */
static mt_status bytes_of(const mt_tokenizer *t, int32_t id, unsigned flags, tokenizer_text *bytes, mt_error *error) {
    if (id < 0 || (size_t)id >= t->count)
        return error_set(error, MT_E_ARGUMENT, where, "Token id %d is outside of the vocabulary of %zu tokens.",
                         (int)id, t->count);
    *bytes = t->tokens[id];
    if ((t->kinds[id] & KIND_CONTROL) && !(flags & MT_DECODE_CONTROL)) bytes->length = 0;
    return MT_OK;
}

mt_status mt_tokenizer_decode(const mt_tokenizer *t, const int32_t *ids, size_t count, unsigned flags, char **out,
                              size_t *length, mt_error *error) {
    text buffer = {0};
    mt_status status = MT_OK;
    text_append(&buffer, "", 0); /* so that there is a string even of no tokens */
    for (size_t i = 0; i < count && !status; i++) {
        tokenizer_text bytes = {0};
        status = bytes_of(t, ids[i], flags, &bytes, error);
        text_append(&buffer, bytes.data, bytes.length);
    }
    if (!status && buffer.failed) status = error_set(error, MT_E_MEMORY, where, "Out of memory.");
    if (status) {
        text_free(&buffer);
        return status;
    }
    *out = buffer.data;
    if (length) *length = buffer.length;
    return MT_OK;
}

mt_status mt_detokenizer_new(mt_detokenizer **out, const mt_tokenizer *t, unsigned flags, mt_error *error) {
    mt_detokenizer *d = calloc(1, sizeof *d);
    if (!d) return error_set(error, MT_E_MEMORY, where, "Out of memory.");
    d->tokenizer = t;
    d->flags = flags;
    *out = d;
    return MT_OK;
}

void mt_detokenizer_free(mt_detokenizer *d) {
    if (!d) return;
    text_free(&d->out);
    free(d);
}

/* Bytes of the character that begins so; 0 when none does. */
static int character_length(unsigned char first) {
    return first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
}

/* Whether `byte` may follow what is held. The second byte decides about overlong forms, surrogates, the last plane. */
static bool continues(const mt_detokenizer *d, unsigned char byte) {
    const unsigned char first = d->held[0];
    unsigned char low = 0x80, high = 0xBF;
    if (d->held_count == 1) {
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED) high = 0x9F;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
    }
    return byte >= low && byte <= high;
}

static void drop_held(mt_detokenizer *d) {
    if (d->held_count) text_string(&d->out, "\xEF\xBF\xBD");
    d->held_count = 0;
}

static void add_byte(mt_detokenizer *d, unsigned char byte) {
    if (d->held_count && !continues(d, byte)) drop_held(d);
    d->held[d->held_count++] = byte;
    const int length = character_length(d->held[0]);
    if (!length) drop_held(d);
    if (d->held_count == length) {
        text_append(&d->out, d->held, (size_t)length);
        d->held_count = 0;
    }
}

static mt_status give_out(mt_detokenizer *d, const char **out, size_t *length, mt_error *error) {
    text_append(&d->out, "", 0);
    if (d->out.failed) {
        text_free(&d->out);
        return error_set(error, MT_E_MEMORY, where, "Out of memory.");
    }
    *out = d->out.data;
    *length = d->out.length;
    return MT_OK;
}

mt_status mt_detokenizer_push(mt_detokenizer *d, int32_t id, const char **out, size_t *length, mt_error *error) {
    tokenizer_text bytes = {0};
    const mt_status status = bytes_of(d->tokenizer, id, d->flags, &bytes, error);
    if (status) return status;
    d->out.length = 0;
    for (size_t i = 0; i < bytes.length; i++) add_byte(d, (unsigned char)bytes.data[i]);
    return give_out(d, out, length, error);
}

mt_status mt_detokenizer_flush(mt_detokenizer *d, const char **out, size_t *length, mt_error *error) {
    d->out.length = 0;
    drop_held(d);
    return give_out(d, out, length, error);
}
