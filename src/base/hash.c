/* Hashes (XXH3, by the xxhash library) and a map from names to indices. */
#include "base/base.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

hash128 hash_bytes(const void *data, size_t size) {
    const XXH128_hash_t h = XXH3_128bits(data, size);
    return (hash128){h.low64, h.high64};
}

uint64_t hash_u64(const void *data, size_t size) { return XXH3_64bits(data, size); }

void hash_hex(hash128 h, char out[33]) {
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}

/* Maps hash with a seed of the process, so that a hostile file cannot choose names that collide. */
static pthread_once_t seed_once = PTHREAD_ONCE_INIT;
static uint64_t seed;
static void draw_seed(void) {
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = clock_ns();
}

static struct map_entry *find(const map *m, const char *key, size_t length) {
    pthread_once(&seed_once, draw_seed);
    for (size_t i = XXH3_64bits_withSeed(key, length, seed) & (m->capacity - 1);; i = (i + 1) & (m->capacity - 1)) {
        struct map_entry *e = &m->entries[i];
        if (!e->key || (e->length == length && !memcmp(e->key, key, length))) return e;
    }
}

int64_t map_get(const map *m, const char *key, size_t length) {
    if (!m->capacity) return -1;
    const struct map_entry *e = find(m, key, length);
    return e->key ? e->value : -1;
}

bool map_put(arena *a, map *m, const char *key, size_t length, int64_t value) {
    if (2 * (m->count + 1) > m->capacity) { /* at most half full */
        map larger = {.count = m->count, .capacity = m->capacity ? m->capacity * 2 : 32};
        larger.entries = ARENA_ARRAY(a, larger.capacity, struct map_entry);
        if (!larger.entries) return false;
        for (size_t i = 0; i < m->capacity; i++)
            if (m->entries[i].key) *find(&larger, m->entries[i].key, m->entries[i].length) = m->entries[i];
        *m = larger;
    }
    struct map_entry *e = find(m, key, length);
    if (!e->key) m->count++;
    *e = (struct map_entry){key, length, value};
    return true;
}
