/* Text to token ids.
 *
 * Special tokens are found first: at every byte that begins one, by narrowing the sorted list of them byte by byte. The
 * text between them goes through the pre-tokenizer's patterns, each applied to the pieces of the one before, by
 * recursion, so that no list of pieces is kept. PCRE2 wants UTF-8: runs of bytes that are none are pieces by
 * themselves.
 *
 * BPE takes the strongest merge of two neighbours, the leftmost among equals, until none is left. Symbols form a linked
 * list, possible merges a heap of (strength, position); a merge that is overtaken by another stays in the heap and is
 * recognised, when its turn comes, by neighbours that are no longer its own. So a piece of n bytes takes O(n log n).
 *
 * A byte without a token (vocabularies made from text may lack bytes that UTF-8 never uses, and some control
 * characters) is left out before merging, as the tokenizers of Hugging Face do, and counted. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "llm/tokenizer.h"

enum { TEXT_LIMIT = 1 << 28 };

static const char where[] = "tokenizer";

typedef struct symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t previous, next;
} symbol;

typedef struct encoder {
    const mt_tokenizer *t;
    pcre2_match_data *match;
    mt_tokens tokens; /* what this call found */
    symbol *symbols;
    uint64_t *heap; /* merge << 32 | position of its left symbol: the smallest is the next to do */
    size_t symbol_capacity, heap_count, heap_capacity;
    mt_error *error;
    mt_status status; /* the first failure; nothing is done after it */
} encoder;

/* The array with room for `wanted` elements; NULL, with the status set and the array as it was, when memory is out. */
static void *reserve(encoder *e, void *items, size_t size, size_t wanted, size_t *capacity) {
    if (wanted <= *capacity) return items;
    size_t grown = *capacity ? *capacity : 64;
    while (grown < wanted) grown *= 2;
    void *larger = realloc(items, grown * size);
    if (larger)
        *capacity = grown;
    else
        e->status = error_set(e->error, MT_E_MEMORY, where, "Out of memory.");
    return larger;
}

static void push_token(encoder *e, int32_t id) {
    mt_tokens *t = &e->tokens;
    int32_t *ids = e->status ? NULL : reserve(e, t->ids, sizeof *ids, t->count + 1, &t->capacity);
    if (!ids) return;
    t->ids = ids;
    t->ids[t->count++] = id;
}

static void push_merge(encoder *e, int32_t left) {
    const int32_t right = left < 0 ? -1 : e->symbols[left].next;
    if (right < 0) return;
    const int32_t pair[2] = {e->symbols[left].id, e->symbols[right].id};
    const int64_t merge = map_get(&e->t->pairs, (const char *)pair, sizeof pair);
    if (merge < 0) return;
    uint64_t *heap = reserve(e, e->heap, sizeof *heap, e->heap_count + 1, &e->heap_capacity);
    if (!heap) return;
    e->heap = heap;
    const uint64_t entry = (uint64_t)merge << 32 | (uint32_t)left;
    size_t at = e->heap_count++;
    for (size_t parent; at && entry < heap[parent = (at - 1) / 2]; at = parent) heap[at] = heap[parent];
    heap[at] = entry;
}

static uint64_t pop_merge(encoder *e) {
    uint64_t *heap = e->heap;
    const uint64_t top = heap[0], last = heap[--e->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < e->heap_count; at = child) {
        if (child + 1 < e->heap_count && heap[child + 1] < heap[child]) child++;
        if (last <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static void encode_piece(encoder *e, const char *bytes, size_t length) {
    const mt_tokenizer *t = e->t;
    if (t->pre->whole_pieces) {
        const int64_t id = map_get(&t->pieces, bytes, length);
        if (id >= 0) {
            push_token(e, (int32_t)id);
            return;
        }
    }
    symbol *s = reserve(e, e->symbols, sizeof *s, length, &e->symbol_capacity);
    if (!s) return;
    e->symbols = s;
    int32_t count = 0;
    for (size_t i = 0; i < length; i++) {
        const int32_t id = t->bytes[(unsigned char)bytes[i]];
        if (id < 0)
            e->tokens.dropped++;
        else
            s[count] = (symbol){id, count - 1, count + 1}, count++;
    }
    if (!count) return;
    s[count - 1].next = -1;
    e->heap_count = 0;
    for (int32_t i = 0; i < count; i++) push_merge(e, i);
    while (e->heap_count && !e->status) {
        const uint64_t entry = pop_merge(e);
        const tokenizer_merge *m = &t->merges[entry >> 32];
        const int32_t left = (int32_t)(uint32_t)entry, right = s[left].next;
        if (s[left].id != m->left || right < 0 || s[right].id != m->right) continue;
        s[left].id = m->result;
        s[left].next = s[right].next;
        s[right].id = -1;
        if (s[left].next >= 0) s[s[left].next].previous = left;
        push_merge(e, s[left].previous);
        push_merge(e, left);
    }
    for (int32_t i = 0; i >= 0; i = s[i].next) push_token(e, s[i].id);
}

/* Cuts valid UTF-8 by the patterns from `level` on, and encodes the pieces. */
static void encode_pieces(encoder *e, int level, const char *bytes, size_t length) {
    if (level == e->t->pattern_count) {
        encode_piece(e, bytes, length);
        return;
    }
    pcre2_code *pattern = e->t->patterns[level];
    size_t done = 0; /* up to here the text is encoded */
    while (done < length && !e->status) {
        int found = pcre2_match(pattern, (PCRE2_SPTR)bytes, length, done, PCRE2_NO_UTF_CHECK, e->match, NULL);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT || found == PCRE2_ERROR_MATCHLIMIT)
            found = pcre2_match(pattern, (PCRE2_SPTR)bytes, length, done, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, e->match,
                                NULL);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
            PCRE2_UCHAR reason[128] = "";
            pcre2_get_error_message(found, reason, sizeof reason);
            e->status = error_set(e->error, found == PCRE2_ERROR_NOMEMORY ? MT_E_MEMORY : MT_E_LIMIT, where,
                                  "The pre-tokenizer's patterns fail on this text: %s.", (const char *)reason);
            return;
        }
        size_t start = length, end = length;
        if (found > 0) {
            const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(e->match);
            start = bounds[0];
            end = bounds[1];
        }
        if (start >= end) start = end = length; /* no match: the rest is one piece */
        if (start > done) encode_pieces(e, level + 1, bytes + done, start - done);
        if (end > start) encode_pieces(e, level + 1, bytes + start, end - start);
        done = end;
    }
}

/* Text without special tokens: runs of valid UTF-8, and runs of other bytes. */
static void encode_section(encoder *e, const char *bytes, size_t length) {
    char *spaced = NULL;
    if (e->t->add_space_prefix && length && bytes[0] != ' ') {
        if (!(spaced = malloc(length + 1))) {
            e->status = error_set(e->error, MT_E_MEMORY, where, "Out of memory.");
            return;
        }
        spaced[0] = ' ';
        memcpy(spaced + 1, bytes, length++);
        bytes = spaced;
    }
    for (size_t start = 0, end = 0; start < length && !e->status; start = end) {
        bool valid = true;
        while (end < length) {
            utf8proc_int32_t c;
            const utf8proc_ssize_t n =
                utf8proc_iterate((const uint8_t *)bytes + end, (utf8proc_ssize_t)(length - end), &c);
            if (end == start) valid = n > 0;
            if (valid != (n > 0)) break;
            end += n > 0 ? (size_t)n : 1;
        }
        if (valid)
            encode_pieces(e, 0, bytes + start, end - start);
        else
            encode_piece(e, bytes + start, end - start);
    }
    free(spaced);
}

/* The longest special token of these kinds at the beginning of `bytes`, or -1. */
static int32_t special_at(const mt_tokenizer *t, const char *bytes, size_t length, int kinds) {
    size_t low = 0, high = t->special_count; /* tokens that begin with the first `depth` bytes */
    int32_t best = -1;
    for (size_t depth = 0; low < high; depth++) {
        if (t->tokens[t->special[low]].length == depth) { /* sorted: the shortest is first */
            if (t->kinds[t->special[low]] & kinds) best = t->special[low];
            low++;
        }
        if (depth == length) break;
        const unsigned char byte = (unsigned char)bytes[depth];
        for (int side = 0; side < 2; side++) { /* the first token above byte - 1, then the first above byte */
            size_t from = low, to = high;
            while (from < to) {
                const size_t middle = from + (to - from) / 2;
                if ((unsigned char)t->tokens[t->special[middle]].data[depth] + !side > byte)
                    to = middle;
                else
                    from = middle + 1;
            }
            if (side)
                high = from;
            else
                low = from;
        }
    }
    return best;
}

static void encode_text(encoder *e, const char *bytes, size_t length, unsigned flags) {
    const mt_tokenizer *t = e->t;
    const int kinds = flags & MT_ENCODE_PARSE_SPECIAL ? KIND_CONTROL | KIND_USER : KIND_USER;
    size_t start = 0;
    if ((flags & MT_ENCODE_ADD_SPECIAL) && t->add_bos) push_token(e, t->ids[MT_TOKEN_BOS]);
    for (size_t i = 0; i < length && !e->status;) {
        const int32_t id = t->special_first[(unsigned char)bytes[i]] ? special_at(t, bytes + i, length - i, kinds) : -1;
        if (id < 0) {
            i++;
            continue;
        }
        encode_section(e, bytes + start, i - start);
        push_token(e, id);
        start = i += t->tokens[id].length;
    }
    encode_section(e, bytes + start, length - start);
    if ((flags & MT_ENCODE_ADD_SPECIAL) && t->add_eos) push_token(e, t->ids[MT_TOKEN_EOS]);
}

mt_status mt_tokenizer_encode(const mt_tokenizer *t, const char *bytes, size_t length, unsigned flags, mt_tokens *out,
                              mt_error *error) {
    if (length > TEXT_LIMIT)
        return error_set(error, MT_E_LIMIT, where, "The text has %zu bytes; the limit is %d.", length, TEXT_LIMIT);
    encoder e = {.t = t, .error = error, .match = pcre2_match_data_create(1, NULL)};
    if (!e.match)
        e.status = error_set(error, MT_E_MEMORY, where, "Out of memory.");
    else
        encode_text(&e, length ? bytes : "", length, flags);
    const mt_tokens found = e.tokens;
    int32_t *ids = NULL;
    if (!e.status && found.count) ids = reserve(&e, out->ids, sizeof *ids, out->count + found.count, &out->capacity);
    if (ids) {
        memcpy(ids + out->count, found.ids, found.count * sizeof *ids);
        out->ids = ids;
        out->count += found.count;
    }
    if (!e.status) out->dropped += found.dropped;
    free(found.ids);
    free(e.symbols);
    free(e.heap);
    pcre2_match_data_free(e.match);
    return e.status;
}

void mt_tokens_free(mt_tokens *tokens) {
    free(tokens->ids);
    *tokens = (mt_tokens){0};
}
