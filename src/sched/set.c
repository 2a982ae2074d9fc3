/* Sets of instructions and lists of sets, interned; the small containers of the schedule. */
#include "sched/sched_internal.h"

#include <stdlib.h>

void sched_u32s_push(arena *a, sched_u32s *v, uint32_t value) {
    *ARENA_PUSH(a, v->data, v->count, v->capacity) = value;
}
void sched_u64s_push(arena *a, sched_u64s *v, uint64_t value) {
    *ARENA_PUSH(a, v->data, v->count, v->capacity) = value;
}

static int compare_u32(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}
static int compare_u64(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
/* Most of what is sorted here is sorted already. */
void sched_sort_u32(uint32_t *data, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (data[i - 1] > data[i]) {
            qsort(data, count, sizeof *data, compare_u32);
            return;
        }
}
void sched_sort_u64(uint64_t *data, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (data[i - 1] > data[i]) {
            qsort(data, count, sizeof *data, compare_u64);
            return;
        }
}

/* ---- interned strings of words ---- */

/* Empties the table and makes it large enough that it need not grow for `expected` strings. */
void sched_words_reset(arena *a, sched_words *w, size_t expected) {
    w->count = w->word_count = 0;
    w->slot_count = 64;
    while (w->slot_count < 2 * expected) w->slot_count *= 2;
    if (w->slot_count <= w->slot_capacity) {
        memset(w->slots, 0, w->slot_count * sizeof *w->slots);
    } else {
        w->slots = ARENA_ARRAY(a, w->slot_count, uint32_t);
        w->slot_capacity = w->slot_count;
    }
}

static void rehash(arena *a, sched_words *w) {
    w->slot_capacity = w->slot_count = w->slot_count ? 2 * w->slot_count : 64;
    w->slots = ARENA_ARRAY(a, w->slot_count, uint32_t);
    for (size_t id = 0; id < w->count; id++) {
        size_t at = w->items[id].hash & (w->slot_count - 1);
        while (w->slots[at]) at = (at + 1) & (w->slot_count - 1);
        w->slots[at] = (uint32_t)id + 1;
    }
}

uint32_t sched_words_intern(arena *a, sched_words *w, const uint32_t *words, size_t length) {
    if (2 * (w->count + 1) > w->slot_count) rehash(a, w);
    const uint32_t hash = (uint32_t)hash_u64(words, length * sizeof *words);
    size_t at = hash & (w->slot_count - 1);
    for (; w->slots[at]; at = (at + 1) & (w->slot_count - 1)) {
        const struct sched_item *i = &w->items[w->slots[at] - 1];
        if (i->hash == hash && i->length == length &&
            (!length || !memcmp(w->words + i->begin, words, length * sizeof *words)))
            return w->slots[at] - 1;
    }
    while (!w->words || w->word_count + length > w->word_capacity) {
        const size_t capacity = w->word_capacity; /* arena_grow copies a full array into one of twice its size */
        w->words = arena_grow(a, w->words, sizeof *w->words, capacity, &w->word_capacity);
    }
    if (length) memcpy(w->words + w->word_count, words, length * sizeof *words);
    *ARENA_PUSH(a, w->items, w->count, w->capacity) = (struct sched_item){w->word_count, (uint32_t)length, hash};
    w->word_count += length;
    w->slots[at] = (uint32_t)w->count;
    return (uint32_t)w->count - 1;
}

/* ---- sets ---- */

/* s->words holds the node and its ranges. */
static uint32_t intern_set(sched *s) {
    const size_t known = s->set_words.count;
    const uint32_t id = sched_words_intern(s->memory, &s->set_words, s->words.data, s->words.count);
    if (id < known) return id;
    const uint32_t node = s->words.data[0];
    sched_set set = {.node = node, .barrier = SCHED_NO_ID};
    for (size_t i = 1; i < s->words.count; i += 2) set.count += s->words.data[i + 1] - s->words.data[i];
    set.whole = set.count == s->first[node + 1] - s->first[node];
    size_t count = known;
    *ARENA_PUSH(s->memory, s->sets, count, s->set_capacity) = set;
    return id;
}

static void push_range(sched *s, uint32_t begin, uint32_t end) {
    sched_u32s *w = &s->words;
    if (w->count > 1 && w->data[w->count - 1] >= begin) {
        if (end > w->data[w->count - 1]) w->data[w->count - 1] = end;
        return;
    }
    sched_u32s_push(s->memory, w, begin);
    sched_u32s_push(s->memory, w, end);
}

uint32_t sched_set_of(sched *s, uint32_t node, const sched_range *ranges, size_t count) {
    s->words.count = 0;
    sched_u32s_push(s->memory, &s->words, node);
    for (size_t i = 0; i < count; i++) push_range(s, ranges[i].begin, ranges[i].end);
    return intern_set(s);
}

uint32_t sched_set_whole(sched *s, uint32_t node) {
    if (s->whole[node] == SCHED_NO_ID) {
        const sched_range range = {s->first[node], s->first[node + 1]};
        s->whole[node] = sched_set_of(s, node, &range, 1);
    }
    return s->whole[node];
}

uint32_t sched_set_numbers(sched *s, uint32_t node, uint32_t *numbers, size_t count) {
    sched_sort_u32(numbers, count);
    s->words.count = 0;
    sched_u32s_push(s->memory, &s->words, node);
    for (size_t i = 0; i < count; i++) push_range(s, numbers[i], numbers[i] + 1);
    return intern_set(s);
}

uint32_t sched_set_union(sched *s, uint32_t a, uint32_t b) {
    if (a == b || s->sets[a].whole) return a;
    if (s->sets[b].whole) return b;
    uint32_t count_a, count_b, i = 0, j = 0;
    const sched_range *ra = sched_set_ranges(s, a, &count_a), *rb = sched_set_ranges(s, b, &count_b);
    s->words.count = 0;
    sched_u32s_push(s->memory, &s->words, s->sets[a].node);
    while (i < count_a || j < count_b) {
        const bool take_a = j == count_b || (i < count_a && ra[i].begin <= rb[j].begin);
        const sched_range r = take_a ? ra[i++] : rb[j++];
        push_range(s, r.begin, r.end);
    }
    return intern_set(s);
}

bool sched_set_contains(const sched *s, uint32_t outer, uint32_t inner) {
    if (outer == inner || s->sets[outer].whole) return true;
    uint32_t count_o, count_i, o = 0;
    const sched_range *ro = sched_set_ranges(s, outer, &count_o), *ri = sched_set_ranges(s, inner, &count_i);
    for (uint32_t i = 0; i < count_i; i++) {
        while (o < count_o && ro[o].end < ri[i].end) o++;
        if (o == count_o || ro[o].begin > ri[i].begin) return false;
    }
    return true;
}

/* ---- lists ---- */

uint32_t sched_list_of(sched *s, uint32_t *sets, size_t count) {
    bool sorted = true;
    for (size_t i = 1; i < count; i++) sorted &= s->sets[sets[i - 1]].node > s->sets[sets[i]].node;
    if (sorted) return sched_words_intern(s->memory, &s->list_words, sets, count);
    s->pairs.count = 0;
    for (size_t i = 0; i < count; i++)
        sched_u64s_push(s->memory, &s->pairs, (uint64_t)(UINT32_MAX - s->sets[sets[i]].node) << 32 | sets[i]);
    sched_sort_u64(s->pairs.data, s->pairs.count);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t set = (uint32_t)s->pairs.data[i];
        if (kept && s->sets[sets[kept - 1]].node == s->sets[set].node)
            sets[kept - 1] = sched_set_union(s, sets[kept - 1], set);
        else
            sets[kept++] = set;
    }
    return sched_words_intern(s->memory, &s->list_words, sets, kept);
}
