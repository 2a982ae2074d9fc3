/* Making a tokenizer from what a model's file says, and asking it about its tokens. See tokenizer.h for the whole way.
 *
 * The file is not trusted: everything is checked here, so that encoding and decoding check nothing but ids. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "llm/tokenizer.h"

enum { COUNT_LIMIT = 1 << 24, TOKEN_LIMIT = 65535 };

static const char where[] = "tokenizer";

int tokenizer_compare(tokenizer_text a, tokenizer_text b) {
    const int order = memcmp(a.data, b.data, a.length < b.length ? a.length : b.length);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

/* A hostile string made fit to stand in a message: cut, and without control characters. */
typedef struct shown {
    char text[64];
} shown;
static shown show(tokenizer_text t) {
    shown s = {""};
    const size_t n = t.length < sizeof s.text ? t.length : sizeof s.text - 1;
    for (size_t i = 0; i < n; i++) s.text[i] = (unsigned char)t.data[i] < 32 || t.data[i] == 127 ? '?' : t.data[i];
    return s;
}

/* GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the others for the characters from U+0100 on, in
 * order. Bytes of the characters up to U+0143; -1 for those that stand for none. */
typedef struct alphabet {
    int16_t byte[256 + 68];
} alphabet;

static void alphabet_fill(alphabet *a) {
    memset(a, -1, sizeof *a);
    for (int b = 0, next = 256; b < 256; b++) {
        const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        a->byte[printable ? b : next++] = (int16_t)b;
    }
}

/* Writes the bytes that `t` stands for to `out`, which has room for t.length, and their count to *length. Returns false
 * with *valid = true for text outside of the alphabet, with *valid = false for what is no UTF-8. */
static bool alphabet_decode(const alphabet *a, tokenizer_text t, char *out, size_t *length, bool *valid) {
    bool inside = true;
    *length = 0;
    *valid = true;
    for (size_t i = 0; i < t.length;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t n = utf8proc_iterate((const uint8_t *)t.data + i, (utf8proc_ssize_t)(t.length - i), &c);
        if (n <= 0) return *valid = false;
        i += (size_t)n;
        if (c >= (int)COUNT_OF(a->byte) || a->byte[c] < 0)
            inside = false;
        else if (inside)
            out[(*length)++] = (char)a->byte[c];
    }
    return inside;
}

/* Names of control tokens that end a turn, a message or a text. */
static bool names_end(tokenizer_text t) {
    static const char *const names[] = {"<|im_end|>",
                                        "<|eot_id|>",
                                        "<|eom_id|>",
                                        "<|endoftext|>",
                                        "<|end_of_text|>",
                                        "<|end|>",
                                        "<|eot|>",
                                        "<end_of_turn>",
                                        "<|end_of_turn|>",
                                        "<|endofturn|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<｜end▁of▁sentence｜>",
                                        "<end_of_utterance>",
                                        "</s>"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strlen(names[i]) == t.length && !memcmp(names[i], t.data, t.length)) return true;
    return false;
}

/* Tokens: their bytes, kinds, and the map of what BPE may produce. */
static mt_status read_tokens(mt_tokenizer *t, const tokenizer_config *c, const alphabet *a, mt_error *error) {
    t->count = c->token_count;
    t->tokens = ARENA_ARRAY(t->arena, t->count, tokenizer_text);
    t->kinds = ARENA_ARRAY(t->arena, t->count, uint8_t);
    for (size_t i = 0; i < t->count; i++) {
        const tokenizer_text in = c->tokens[i];
        const int32_t type = c->types ? c->types[i] : TOKEN_NORMAL;
        if (in.length > TOKEN_LIMIT)
            return error_set(error, MT_E_LIMIT, where, "Token %zu has %zu bytes; the limit is %d.", i, in.length,
                             TOKEN_LIMIT);
        if (type < TOKEN_UNDEFINED || type > TOKEN_BYTE)
            return error_set(error, MT_E_FORMAT, where, "Token %zu is of type %d; types are 0 to 6.", i, (int)type);
        char *bytes = arena_alloc(t->arena, in.length);
        size_t length;
        bool valid;
        const bool inside = alphabet_decode(a, in, bytes, &length, &valid);
        if (!valid) return error_set(error, MT_E_FORMAT, where, "Token %zu is no UTF-8.", i);
        const bool control = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN, user = type == TOKEN_USER_DEFINED;
        t->kinds[i] = (uint8_t)(control ? KIND_CONTROL : user ? KIND_USER : 0);
        t->special_count += (control || user) && in.length;
        if (control || user || !inside) { /* it stands for itself */
            memcpy(bytes, in.data, length = in.length);
        } else if (length) {
            const int64_t other = map_get(&t->pieces, bytes, length);
            if (other >= 0)
                return error_set(error, MT_E_FORMAT, where, "Tokens %lld and %zu are the same: \"%s\".",
                                 (long long)other, i, show(in).text);
            map_put(t->arena, &t->pieces, bytes, length, (int64_t)i);
        }
        t->tokens[i] = (tokenizer_text){bytes, length};
        if (control && names_end(t->tokens[i])) t->kinds[i] |= KIND_END;
    }
    /* Merges may lead to a user-defined token, where no ordinary one has its bytes. */
    for (size_t i = 0; i < t->count; i++) {
        const tokenizer_text token = t->tokens[i];
        if ((t->kinds[i] & KIND_USER) && token.length && map_get(&t->pieces, token.data, token.length) < 0)
            map_put(t->arena, &t->pieces, token.data, token.length, (int64_t)i);
    }
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        t->bytes[b] = (int32_t)map_get(&t->pieces, &byte, 1);
    }
    return MT_OK;
}

static int compare_special(const void *a, const void *b, void *tokens) {
    return tokenizer_compare(((const tokenizer_text *)tokens)[*(const int32_t *)a],
                             ((const tokenizer_text *)tokens)[*(const int32_t *)b]);
}

static mt_status sort_special(mt_tokenizer *t, mt_error *error) {
    t->special = ARENA_ARRAY(t->arena, t->special_count, int32_t);
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        if ((t->kinds[i] & (KIND_CONTROL | KIND_USER)) && t->tokens[i].length) {
            t->special[n++] = (int32_t)i;
            t->special_first[(unsigned char)t->tokens[i].data[0]] = true;
        }
    qsort_r(t->special, n, sizeof *t->special, compare_special, t->tokens);
    for (size_t i = 1; i < n; i++)
        if (!tokenizer_compare(t->tokens[t->special[i - 1]], t->tokens[t->special[i]]))
            return error_set(error, MT_E_FORMAT, where, "Tokens %d and %d are the same: \"%s\".",
                             (int)t->special[i - 1], (int)t->special[i], show(t->tokens[t->special[i]]).text);
    return MT_OK;
}

static mt_status read_merges(mt_tokenizer *t, const tokenizer_config *c, const alphabet *a, mt_error *error) {
    char *bytes = arena_alloc(t->arena, 2 * TOKEN_LIMIT);
    t->merges = ARENA_ARRAY(t->arena, c->merge_count, tokenizer_merge);
    for (size_t i = 0; i < c->merge_count; i++) {
        const tokenizer_text m = c->merges[i];
        const char *space = m.length > 2 ? memchr(m.data + 1, ' ', m.length - 1) : NULL;
        const tokenizer_text left = {m.data, space ? (size_t)(space - m.data) : 0};
        const tokenizer_text right = {space ? space + 1 : NULL, space ? m.length - left.length - 1 : 0};
        size_t l, r;
        bool valid;
        if (!right.length || left.length > TOKEN_LIMIT || right.length > TOKEN_LIMIT ||
            !alphabet_decode(a, left, bytes, &l, &valid) || !alphabet_decode(a, right, bytes + l, &r, &valid))
            return error_set(error, MT_E_FORMAT, where,
                             "Merge %zu is not two tokens with a space between them: \"%s\".", i, show(m).text);
        const int64_t ids[3] = {map_get(&t->pieces, bytes, l), map_get(&t->pieces, bytes + l, r),
                                map_get(&t->pieces, bytes, l + r)};
        if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
            return error_set(error, MT_E_FORMAT, where,
                             "Merge %zu, \"%s\", needs a token that is not in the vocabulary.", i, show(m).text);
        t->merges[i] = (tokenizer_merge){(int32_t)ids[0], (int32_t)ids[1], (int32_t)ids[2]};
        const char *key = (const char *)&t->merges[i];
        if (map_get(&t->pairs, key, offsetof(tokenizer_merge, result)) >= 0)
            return error_set(error, MT_E_FORMAT, where, "Merge %zu, \"%s\", is there twice.", i, show(m).text);
        map_put(t->arena, &t->pairs, key, offsetof(tokenizer_merge, result), (int64_t)i);
    }
    return MT_OK;
}

static mt_status read_ids(mt_tokenizer *t, const tokenizer_config *c, mt_error *error) {
    static const char *const names[] = {"beginning-of-sequence", "end-of-sequence", "end-of-turn", "end-of-message",
                                        "unknown"};
    const int64_t ids[] = {c->bos, c->eos, c->eot, c->eom, c->unknown};
    for (int i = 0; i < 5; i++) {
        if (ids[i] < -1 || ids[i] >= (int64_t)t->count)
            return error_set(error, MT_E_FORMAT, where, "The %s token has id %lld, but the vocabulary has %zu tokens.",
                             names[i], (long long)ids[i], t->count);
        t->ids[i] = (int32_t)ids[i];
        if (ids[i] >= 0 && (i == MT_TOKEN_EOS || i == MT_TOKEN_EOT || i == MT_TOKEN_EOM)) t->kinds[ids[i]] |= KIND_END;
    }
    if ((c->add_bos == 1 && c->bos < 0) || (c->add_eos == 1 && c->eos < 0))
        return error_set(error, MT_E_FORMAT, where, "The file asks for the %s token in every text, but names none.",
                         names[c->add_bos == 1 && c->bos < 0 ? MT_TOKEN_BOS : MT_TOKEN_EOS]);
    t->add_bos = c->bos >= 0 && (c->add_bos < 0 ? t->pre->add_bos : c->add_bos != 0);
    t->add_eos = c->add_eos == 1;
    t->add_space_prefix = c->add_space_prefix;
    return MT_OK;
}

static mt_status compile_patterns(mt_tokenizer *t, mt_error *error) {
    for (int i = 0; i < TOKENIZER_PATTERNS && t->pre->patterns[i]; i++) {
        int code;
        PCRE2_SIZE offset;
        t->patterns[i] = pcre2_compile((PCRE2_SPTR)t->pre->patterns[i], PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                       &code, &offset, NULL);
        if (!t->patterns[i]) {
            PCRE2_UCHAR message[128] = "";
            pcre2_get_error_message(code, message, sizeof message);
            return error_set(error, MT_E_INTERNAL, where,
                             "PCRE2 refuses pattern %d of pre-tokenizer \"%s\" at %zu: %s.", i, t->pre->names,
                             (size_t)offset, (const char *)message);
        }
        pcre2_jit_compile(t->patterns[i], PCRE2_JIT_COMPLETE); /* where it fails, matching interprets */
        t->pattern_count++;
    }
    return MT_OK;
}

typedef struct building {
    mt_tokenizer *tokenizer;
    const tokenizer_config *config;
    mt_error *error;
    mt_status status;
} building;

static void build(void *context) {
    building *b = context;
    alphabet a;
    alphabet_fill(&a);
    b->status = read_tokens(b->tokenizer, b->config, &a, b->error);
    if (!b->status) b->status = sort_special(b->tokenizer, b->error);
    if (!b->status) b->status = read_merges(b->tokenizer, b->config, &a, b->error);
    if (!b->status) b->status = read_ids(b->tokenizer, b->config, b->error);
}

mt_status tokenizer_new(mt_tokenizer **out, const tokenizer_config *c, mt_error *error) {
    if (c->model.length != 4 || memcmp(c->model.data, "gpt2", 4))
        return error_set(error, MT_E_UNSUPPORTED, where,
                         "The tokenizer model \"%s\" is not supported; supported is byte-level BPE, \"gpt2\".",
                         show(c->model).text);
    const tokenizer_text name = c->pre.length ? c->pre : (tokenizer_text){"default", 7};
    const tokenizer_pre *pre = tokenizer_pre_find(name.data, name.length);
    if (!pre)
        return error_set(error, MT_E_UNSUPPORTED, where, "The pre-tokenizer \"%s\" is not supported.", show(name).text);
    if (!c->token_count) return error_set(error, MT_E_FORMAT, where, "The vocabulary is empty.");
    if (c->token_count > COUNT_LIMIT || c->merge_count > COUNT_LIMIT)
        return error_set(error, MT_E_LIMIT, where, "%zu tokens and %zu merges: the limit is %d of each.",
                         c->token_count, c->merge_count, COUNT_LIMIT);
    arena *a = arena_new();
    mt_tokenizer *t = a ? ARENA_NEW(a, mt_tokenizer) : NULL;
    if (!t) {
        arena_free(a);
        return error_set(error, MT_E_MEMORY, where, "Out of memory.");
    }
    t->arena = a;
    t->pre = pre;
    building b = {t, c, error, MT_OK};
    if (!arena_protect(a, build, &b)) b.status = error_set(error, MT_E_MEMORY, where, "Out of memory.");
    if (!b.status) b.status = compile_patterns(t, error);
    if (b.status)
        tokenizer_free(t);
    else
        *out = t;
    return b.status;
}

void tokenizer_free(mt_tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < t->pattern_count; i++) pcre2_code_free(t->patterns[i]);
    arena_free(t->arena);
}

static bool known(const mt_tokenizer *t, int32_t id) { return id >= 0 && (size_t)id < t->count; }

size_t mt_tokenizer_count(const mt_tokenizer *t) { return t->count; }
bool mt_tokenizer_is_control(const mt_tokenizer *t, int32_t id) {
    return known(t, id) && (t->kinds[id] & KIND_CONTROL);
}
bool mt_tokenizer_is_end(const mt_tokenizer *t, int32_t id) { return known(t, id) && (t->kinds[id] & KIND_END); }

const char *mt_tokenizer_piece(const mt_tokenizer *t, int32_t id, size_t *length) {
    if (!known(t, id)) return NULL;
    *length = t->tokens[id].length;
    return t->tokens[id].data;
}

int32_t mt_tokenizer_special(const mt_tokenizer *t, mt_special which) {
    return (unsigned)which < COUNT_OF(t->ids) ? t->ids[which] : -1;
}

int32_t mt_tokenizer_find(const mt_tokenizer *t, const char *bytes, size_t length) {
    size_t low = 0, high = t->special_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = tokenizer_compare(t->tokens[t->special[middle]], (tokenizer_text){bytes, length});
        if (!order) return t->special[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}
