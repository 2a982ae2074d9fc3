/* Reading GGUF model files; gguf.h says what the rest of the program may rely on.
 *
 * The file, all of it little endian:
 *     header      "GGUF", u32 version, u64 tensors, u64 key-values
 *     key-values  string key, u32 kind, value        a string is u64 length and bytes; an array is u32 kind, u64 count
 *     tensors     string name, u32 rank, u64 extents (innermost first), u32 element type, u64 offset
 *     data        from the next multiple of general.alignment (32 when absent); offsets count from here
 *
 * A `reader` walks over these bytes. Every read goes through `take`, which checks what is left in the file and keeps
 * the first failure in reader.status; after a failure reads give zeros, so that one check at the end of a step
 * suffices. Memory is bounded by the file: a count is compared with the bytes that are left before anything is
 * allocated for it. All of it lives in one arena and opening runs inside arena_protect, so that allocations are not
 * checked one by one.
 *
 * A split model has its key-values in the first part; every part says in split.no, split.count and split.tensors.count
 * which one it is, how many there are, and how many tensors all of them hold. */
#include "model/gguf.h"

#include <inttypes.h>
#include <stdio.h>

enum { KEY_LIMIT = 65536, TENSOR_LIMIT = 262144, NAME_LIMIT = 65535, RANK_LIMIT = 4 };
/* The least that a key-value and a tensor's description take in a file. */
enum { KEY_BYTES = 8 + 4 + 1, TENSOR_BYTES = 8 + 4 + 4 + 8 };
/* Kernels read a tensor's numbers in place: below 8 an f64 could be misaligned. The upper end is a sanity check. */
enum { ALIGNMENT_DEFAULT = 32, ALIGNMENT_LEAST = 8, ALIGNMENT_MOST = 1 << 20 };

#define SHOWN ".80s" /* names in messages: a long one must not push the reason out of the record */

struct part {
    const char *name; /* path, for messages */
    file_map file;
    uint32_t version;
    gguf_entry *entries;
    size_t entry_count, entry_capacity;
    map keys; /* key to index of `entries` */
};

struct gguf {
    arena *memory;
    struct part *parts;
    uint32_t part_count;
    bool borrowed; /* the bytes belong to the caller of gguf_open_memory */
    gguf_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    map names; /* tensor name to index of `tensors` */
};

static const struct {
    const char *name;
    uint8_t size; /* bytes of a number; 0 for what has no fixed size */
} kinds[] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},     [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_U64] = {"u64", 8},       [GGUF_I64] = {"i64", 8},     [GGUF_F64] = {"f64", 8}, [GGUF_STRING] = {"string", 0},
    [GGUF_NONE] = {"no value", 0}, [GGUF_ARRAY] = {"array", 0},
};

/* Element types by their number in the file. A name that tile_format_find knows can be read; the others are here so
 * that a message can name them. */
static const char *const types[] = {
    /*  0 */ "f32",      "f16",      "q4_0",    "q4_1",  "q4_2",       "q4_3",       "q5_0",       "q5_1",
    /*  8 */ "q8_0",     "q8_1",     "q2_k",    "q3_k",  "q4_k",       "q5_k",       "q6_k",       "q8_k",
    /* 16 */ "iq2_xxs",  "iq2_xs",   "iq3_xxs", "iq1_s", "iq4_nl",     "iq3_s",      "iq2_s",      "iq4_xs",
    /* 24 */ "i8",       "i16",      "i32",     "i64",   "f64",        "iq1_m",      "bf16",       "q4_0_4_4",
    /* 32 */ "q4_0_4_8", "q4_0_8_8", "tq1_0",   "tq2_0", "iq4_nl_4_4", "iq4_nl_4_8", "iq4_nl_8_8", "mxfp4",
    /* 40 */ "nvfp4",    "q1_0",
};

const char *gguf_kind_name(gguf_kind kind) {
    return (unsigned)kind < COUNT_OF(kinds) ? kinds[kind].name : "an unknown kind";
}

/* Values ----------------------------------------------------------------------------------------------------------- */

static uint64_t load(const uint8_t *p, size_t size) {
    uint64_t n = 0;
    for (size_t i = 0; i < size; i++) n |= (uint64_t)p[i] << (8 * i);
    return n;
}

/* The number of this kind at p. */
static gguf_value load_number(gguf_kind kind, const uint8_t *p) {
    gguf_value v = {.kind = kind, .u = load(p, kinds[kind].size)};
    if (kind == GGUF_I8)
        v.i = (int8_t)v.u;
    else if (kind == GGUF_I16)
        v.i = (int16_t)v.u;
    else if (kind == GGUF_I32)
        v.i = (int32_t)v.u;
    else if (kind == GGUF_F32) {
        const uint32_t bits = (uint32_t)v.u;
        float f;
        memcpy(&f, &bits, sizeof f);
        v.f = f;
    } /* U*, BOOL, I64 and F64 are their bits */
    return v;
}

gguf_value gguf_element(const gguf_value *array, uint64_t i) {
    if (array->kind != GGUF_ARRAY || i >= array->array.count) return (gguf_value){.kind = GGUF_NONE};
    const gguf_kind kind = array->array.kind;
    if (kind != GGUF_STRING) return load_number(kind, array->array.data + i * kinds[kind].size);
    const uint8_t *p = array->array.items[i];
    return (gguf_value){.kind = kind, .string = {(const char *)p + 8, (size_t)load(p, 8)}};
}

bool gguf_value_i64(const gguf_value *v, int64_t *out) {
    switch (v->kind) {
    case GGUF_U64:
        if (v->u > INT64_MAX) return false;
        /* fall through */
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
        *out = (int64_t)v->u;
        return true;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        *out = v->i;
        return true;
    default:
        return false;
    }
}

bool gguf_value_f64(const gguf_value *v, double *out) {
    int64_t n;
    if (v->kind == GGUF_F32 || v->kind == GGUF_F64)
        *out = v->f;
    else if (v->kind == GGUF_U64)
        *out = (double)v->u;
    else if (gguf_value_i64(v, &n))
        *out = (double)n;
    else
        return false;
    return true;
}

/* Looking up ------------------------------------------------------------------------------------------------------- */

const char *gguf_name(const gguf *g) { return g->parts[0].name; }
uint32_t gguf_version(const gguf *g) { return g->parts[0].version; }
uint32_t gguf_part_count(const gguf *g) { return g->part_count; }

const gguf_entry *gguf_entries(const gguf *g, size_t *count) {
    *count = g->parts[0].entry_count;
    return g->parts[0].entries;
}

const gguf_tensor *gguf_tensors(const gguf *g, size_t *count) {
    *count = g->tensor_count;
    return g->tensors;
}

static const gguf_value *find(const struct part *p, const char *key) {
    const int64_t i = map_get(&p->keys, key, strlen(key));
    return i < 0 ? NULL : &p->entries[i].value;
}

const gguf_value *gguf_find(const gguf *g, const char *key) { return find(&g->parts[0], key); }

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name) {
    const int64_t i = map_get(&g->names, name, strlen(name));
    return i < 0 ? NULL : &g->tensors[i];
}

/* What all getters do about a key that is not there: *v is then NULL, and it is an error when `found` is. */
static mt_status look_up(const struct part *p, const char *key, const gguf_value **v, bool *found, mt_error *error) {
    *v = find(p, key);
    if (found)
        *found = *v != NULL;
    else if (!*v)
        return error_set(error, MT_E_FORMAT, p->name, "the key '%" SHOWN "' is missing", key);
    return MT_OK;
}

static mt_status wrong_kind(const struct part *p, const char *key, const gguf_value *v, const char *wanted,
                            mt_error *error) {
    const bool array = v->kind == GGUF_ARRAY;
    return error_set(error, MT_E_FORMAT, p->name, "the key '%" SHOWN "' must hold %s, but it holds %s%s", key, wanted,
                     array ? "an array of " : "", gguf_kind_name(array ? v->array.kind : v->kind));
}

static mt_status get_integer(const struct part *p, const char *key, int64_t least, int64_t most, int64_t *out,
                             bool *found, mt_error *error) {
    const gguf_value *v;
    int64_t n;
    const mt_status status = look_up(p, key, &v, found, error);
    if (status != MT_OK || !v) return status;
    if (!gguf_value_i64(v, &n)) {
        if (v->kind != GGUF_U64) return wrong_kind(p, key, v, "an integer", error);
        return error_set(error, MT_E_FORMAT, p->name,
                         "the key '%" SHOWN "' holds %" PRIu64 ", too large a number for it", key, v->u);
    }
    if (n < least || n > most)
        return error_set(error, MT_E_FORMAT, p->name,
                         "the key '%" SHOWN "' holds %" PRId64 "; it must be from %" PRId64 " to %" PRId64, key, n,
                         least, most);
    *out = n;
    return MT_OK;
}

mt_status gguf_get_u32(const gguf *g, const char *key, uint32_t *out, bool *found, mt_error *error) {
    int64_t n = -1; /* stays when the key is absent */
    const mt_status status = get_integer(&g->parts[0], key, 0, UINT32_MAX, &n, found, error);
    if (n >= 0) *out = (uint32_t)n;
    return status;
}

mt_status gguf_get_i64(const gguf *g, const char *key, int64_t *out, bool *found, mt_error *error) {
    return get_integer(&g->parts[0], key, INT64_MIN, INT64_MAX, out, found, error);
}

mt_status gguf_get_f64(const gguf *g, const char *key, double *out, bool *found, mt_error *error) {
    const gguf_value *v;
    const mt_status status = look_up(&g->parts[0], key, &v, found, error);
    if (status != MT_OK || !v) return status;
    return gguf_value_f64(v, out) ? MT_OK : wrong_kind(&g->parts[0], key, v, "a number", error);
}

mt_status gguf_get_bool(const gguf *g, const char *key, bool *out, bool *found, mt_error *error) {
    const gguf_value *v;
    const mt_status status = look_up(&g->parts[0], key, &v, found, error);
    if (status != MT_OK || !v) return status;
    if (v->kind != GGUF_BOOL) return wrong_kind(&g->parts[0], key, v, "a bool", error);
    *out = v->u != 0;
    return MT_OK;
}

mt_status gguf_get_string(const gguf *g, const char *key, gguf_string *out, bool *found, mt_error *error) {
    const gguf_value *v;
    const mt_status status = look_up(&g->parts[0], key, &v, found, error);
    if (status != MT_OK || !v) return status;
    if (v->kind != GGUF_STRING) return wrong_kind(&g->parts[0], key, v, "a string", error);
    *out = v->string;
    return MT_OK;
}

mt_status gguf_get_array(const gguf *g, const char *key, gguf_kind kind, const gguf_value **out, bool *found,
                         mt_error *error) {
    const gguf_value *v;
    const mt_status status = look_up(&g->parts[0], key, &v, found, error);
    if (status != MT_OK || !v) return status;
    if (v->kind != GGUF_ARRAY || (kind != GGUF_NONE && v->array.kind != kind)) {
        char wanted[48] = "an array";
        if (kind != GGUF_NONE) snprintf(wanted, sizeof wanted, "an array of %s", gguf_kind_name(kind));
        return wrong_kind(&g->parts[0], key, v, wanted, error);
    }
    *out = v;
    return MT_OK;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

struct reader {
    gguf *g;
    struct part *part;
    const uint8_t *data;
    size_t size, at;
    mt_error *error;
    mt_status status; /* of the first failure */
    char place[128];  /* what is being read, for messages: "key-value 3 of 35", "the value of 'general.name'" */
};

#define FAIL(r, code, ...) ((r)->status = error_set((r)->error, (code), (r)->part->name, __VA_ARGS__))

/* The next `size` bytes, or NULL with the status set. */
static const uint8_t *take(struct reader *r, uint64_t size) {
    if (r->status != MT_OK) return NULL;
    if (size > r->size - r->at) {
        FAIL(r, MT_E_FORMAT, "the file ends inside %s: %" PRIu64 " bytes are needed at offset %zu, but it has only %zu",
             r->place, size, r->at, r->size);
        return NULL;
    }
    const uint8_t *p = r->data + r->at;
    r->at += (size_t)size;
    return p;
}

static uint64_t take_number(struct reader *r, size_t size) {
    const uint8_t *p = take(r, size);
    return p ? load(p, size) : 0;
}

static gguf_string take_string(struct reader *r) {
    const uint64_t length = take_number(r, 8);
    const uint8_t *p = take(r, length);
    return p ? (gguf_string){(const char *)p, (size_t)length} : (gguf_string){"", 0};
}

/* Is there room in the file for this many things of at least `size` bytes? Sets the status when there is not. */
static bool room(struct reader *r, uint64_t count, size_t size, const char *things) {
    if (r->status != MT_OK) return false;
    const size_t left = r->size - r->at;
    if (count <= left / size) return true;
    FAIL(r, MT_E_FORMAT, "%s claims %" PRIu64 " %s, but the %zu bytes that follow cannot hold them", r->place, count,
         things, left);
    return false;
}

/* A key or a tensor's name: a copy, NUL-terminated. */
static const char *take_name(struct reader *r, size_t *length) {
    const gguf_string s = take_string(r);
    *length = s.length;
    if (s.length > NAME_LIMIT)
        FAIL(r, MT_E_LIMIT, "the name of %s has %zu bytes; at most %d are read", r->place, s.length, NAME_LIMIT);
    for (size_t i = 0; i < s.length && r->status == MT_OK; i++)
        if ((uint8_t)s.data[i] < 0x20 || s.data[i] == 0x7f)
            FAIL(r, MT_E_FORMAT, "the name of %s has a control character (byte 0x%02x)", r->place, (uint8_t)s.data[i]);
    return r->status == MT_OK ? arena_string(r->g->memory, s.data, s.length) : "";
}

static gguf_value take_number_value(struct reader *r, gguf_kind kind) {
    const uint8_t *p = take(r, kinds[kind].size);
    if (!p) return (gguf_value){.kind = GGUF_NONE};
    if (kind == GGUF_BOOL && *p > 1) FAIL(r, MT_E_FORMAT, "%s is a bool, but its byte is %u", r->place, *p);
    return load_number(kind, p);
}

static gguf_value take_array(struct reader *r) {
    const uint64_t kind = take_number(r, 4), count = take_number(r, 8);
    gguf_value v = {.kind = GGUF_ARRAY, .array = {.kind = (gguf_kind)kind, .count = count, .data = r->data + r->at}};
    if (r->status != MT_OK) return v;
    if (kind == GGUF_ARRAY) {
        FAIL(r, MT_E_UNSUPPORTED, "%s is an array of arrays, which is not supported", r->place);
    } else if (kind >= GGUF_NONE) {
        FAIL(r, MT_E_FORMAT, "%s is an array of the unknown kind %" PRIu64, r->place, kind);
    } else if (kind == GGUF_STRING) {
        if (!room(r, count, 8, "strings")) return v;
        const uint8_t **items = ARENA_ARRAY(r->g->memory, (size_t)count, const uint8_t *);
        for (uint64_t i = 0; i < count && r->status == MT_OK; i++) {
            items[i] = r->data + r->at;
            take_string(r);
        }
        v.array.items = items;
    } else if (room(r, count, kinds[kind].size, "elements")) {
        take(r, count * kinds[kind].size);
        for (uint64_t i = 0; kind == GGUF_BOOL && i < count && r->status == MT_OK; i++)
            if (v.array.data[i] > 1)
                FAIL(r, MT_E_FORMAT, "%s is an array of bool, but one byte is %u", r->place, v.array.data[i]);
    }
    return v;
}

static gguf_value take_value(struct reader *r) {
    const uint64_t kind = take_number(r, 4);
    if (r->status != MT_OK) return (gguf_value){.kind = GGUF_NONE};
    if (kind == GGUF_ARRAY) return take_array(r);
    if (kind == GGUF_STRING) return (gguf_value){.kind = GGUF_STRING, .string = take_string(r)};
    if (kind < GGUF_NONE) return take_number_value(r, (gguf_kind)kind);
    FAIL(r, MT_E_FORMAT, "%s is of the unknown kind %" PRIu64, r->place, kind);
    return (gguf_value){.kind = GGUF_NONE};
}

/* Checks magic and version and reads the two counts. */
static void read_header(struct reader *r, uint64_t *tensors, uint64_t *keys) {
    snprintf(r->place, sizeof r->place, "the header");
    if (!r->size) FAIL(r, MT_E_FORMAT, "the file is empty");
    const uint8_t *magic = take(r, 4);
    if (!magic) return;
    if (!memcmp(magic, "FUGG", 4)) {
        FAIL(r, MT_E_UNSUPPORTED, "this is a big-endian GGUF file; only little-endian ones are read");
    } else if (memcmp(magic, "GGUF", 4)) {
        FAIL(r, MT_E_FORMAT, "this is not a GGUF file: it begins with the bytes %02x %02x %02x %02x, not with \"GGUF\"",
             magic[0], magic[1], magic[2], magic[3]);
    }
    const uint32_t version = r->part->version = (uint32_t)take_number(r, 4);
    if (r->status != MT_OK) return;
    if (version && !(version & 0xffff)) { /* as Python's writer marks them: the magic as always, the numbers swapped */
        FAIL(r, MT_E_UNSUPPORTED, "this is a big-endian GGUF file; only little-endian ones are read");
    } else if (version != 2 && version != 3) {
        FAIL(r, MT_E_UNSUPPORTED, "this is GGUF version %u; versions 2 and 3 are read", version);
    }
    *tensors = take_number(r, 8);
    *keys = take_number(r, 8);
    if (!room(r, *tensors, TENSOR_BYTES, "tensors") || !room(r, *keys, KEY_BYTES, "key-values")) return;
    if (*keys > KEY_LIMIT)
        FAIL(r, MT_E_LIMIT, "the file has %" PRIu64 " keys; at most %d are read", *keys, KEY_LIMIT);
    else if (*tensors > TENSOR_LIMIT)
        FAIL(r, MT_E_LIMIT, "the file has %" PRIu64 " tensors; at most %d are read", *tensors, TENSOR_LIMIT);
}

static void read_entries(struct reader *r, uint64_t count) {
    struct part *p = r->part;
    arena *a = r->g->memory;
    for (uint64_t i = 0; i < count && r->status == MT_OK; i++) {
        size_t length;
        snprintf(r->place, sizeof r->place, "key-value %" PRIu64 " of %" PRIu64, i + 1, count);
        const char *key = take_name(r, &length);
        if (r->status != MT_OK) return;
        if (map_get(&p->keys, key, length) >= 0) {
            FAIL(r, MT_E_FORMAT, "the key '%" SHOWN "' stands in the file twice", key);
            return;
        }
        snprintf(r->place, sizeof r->place, "the value of '%" SHOWN "'", key);
        const gguf_value value = take_value(r);
        map_put(a, &p->keys, key, length, (int64_t)p->entry_count);
        *ARENA_PUSH(a, p->entries, p->entry_count, p->entry_capacity) = (gguf_entry){key, value};
    }
}

/* Rank and extents of a tensor; the file has the innermost first. Returns the number of elements. */
static int64_t read_extents(struct reader *r, gguf_tensor *t) {
    const uint64_t rank = take_number(r, 4);
    if (rank > RANK_LIMIT)
        FAIL(r, MT_E_LIMIT, "%s has %" PRIu64 " dimensions; at most %d are read", r->place, rank, RANK_LIMIT);
    int64_t inner[RANK_LIMIT] = {1, 1, 1, 1}, elements = 1;
    for (uint64_t i = 0; i < rank && r->status == MT_OK; i++) {
        const uint64_t n = take_number(r, 8);
        if (r->status != MT_OK) break;
        if (n == 0)
            FAIL(r, MT_E_FORMAT, "%s has a dimension of 0 elements", r->place);
        else if (n > INT64_MAX || __builtin_mul_overflow(elements, (int64_t)n, &elements))
            FAIL(r, MT_E_FORMAT, "%s has more elements than a 64-bit number can count", r->place);
        else
            inner[i] = (int64_t)n;
    }
    t->rank = RANK_LIMIT;
    while (t->rank > 1 && inner[t->rank - 1] == 1) t->rank--;
    for (int i = 0; i < t->rank; i++) t->extent[i] = inner[t->rank - 1 - i];
    return elements;
}

/* One tensor's description. `offset` counts from the start of the data until place_tensors makes it final. */
static void read_tensor(struct reader *r, gguf_tensor *t) {
    t->name = take_name(r, &t->name_length);
    if (r->status != MT_OK) return;
    snprintf(r->place, sizeof r->place, "the tensor '%" SHOWN "'", t->name);
    const int64_t elements = read_extents(r, t);
    const uint64_t type = take_number(r, 4);
    t->offset = take_number(r, 8);
    t->part = (uint32_t)(r->part - r->g->parts);
    if (r->status != MT_OK) return;
    const char *name = type < COUNT_OF(types) ? types[type] : NULL;
    t->format = name ? tile_format_find(name) : NULL;
    if (!name) {
        FAIL(r, MT_E_UNSUPPORTED, "%s has the unknown element type %" PRIu64, r->place, type);
    } else if (!t->format) {
        FAIL(r, MT_E_UNSUPPORTED, "%s has the element type %s, which is not supported yet", r->place, name);
    } else if (t->extent[t->rank - 1] % t->format->block) {
        FAIL(r, MT_E_FORMAT, "%s has rows of %" PRId64 " elements, but %s stores blocks of %d", r->place,
             t->extent[t->rank - 1], name, t->format->block);
    } else {
        const int64_t bytes = tile_format_bytes(t->format, elements);
        if (bytes < 0)
            FAIL(r, MT_E_FORMAT, "%s has more bytes than a 64-bit number can count", r->place);
        else
            t->bytes = (size_t)bytes;
    }
}

static void read_tensors(struct reader *r, uint64_t count) {
    gguf *g = r->g;
    for (uint64_t i = 0; i < count && r->status == MT_OK; i++) {
        snprintf(r->place, sizeof r->place, "tensor %" PRIu64 " of %" PRIu64, i + 1, count);
        gguf_tensor t = {0};
        read_tensor(r, &t);
        if (r->status != MT_OK) return;
        if (map_get(&g->names, t.name, t.name_length) >= 0) {
            FAIL(r, MT_E_FORMAT, "%s is defined twice", r->place);
            return;
        }
        map_put(g->memory, &g->names, t.name, t.name_length, (int64_t)g->tensor_count);
        *ARENA_PUSH(g->memory, g->tensors, g->tensor_count, g->tensor_capacity) = t;
    }
}

/* Gives the tensors from `first` on their place in the file, the reader standing behind the last description. */
static void place_tensors(struct reader *r, size_t first) {
    const char *const key = "general.alignment";
    int64_t alignment = ALIGNMENT_DEFAULT;
    bool found;
    if (r->status != MT_OK) return;
    r->status = get_integer(r->part, key, ALIGNMENT_LEAST, ALIGNMENT_MOST, &alignment, &found, r->error);
    if (r->status == MT_OK && (alignment & (alignment - 1)))
        FAIL(r, MT_E_FORMAT, "the key '%s' holds %" PRId64 ", which is not a power of two", key, alignment);
    const uint64_t start = align_up(r->at, (uint64_t)alignment), size = r->size > start ? r->size - start : 0;
    for (size_t i = first; i < r->g->tensor_count && r->status == MT_OK; i++) {
        gguf_tensor *t = &r->g->tensors[i];
        if (t->offset % (uint64_t)alignment) {
            FAIL(r, MT_E_FORMAT,
                 "the tensor '%" SHOWN "' is at offset %" PRIu64 ", no multiple of the alignment %" PRId64, t->name,
                 t->offset, alignment);
        } else if (t->offset > size || t->bytes > size - t->offset) {
            FAIL(r, MT_E_FORMAT,
                 "the tensor '%" SHOWN "' needs %zu bytes at offset %" PRIu64 " of the data, but the file has "
                 "only %" PRIu64 " bytes of data: it is truncated or damaged",
                 t->name, t->bytes, t->offset, size);
        } else {
            t->offset += start;
            t->data = r->data + t->offset;
        }
    }
}

static mt_status read_part(gguf *g, struct part *p, mt_error *error) {
    struct reader r = {.g = g, .part = p, .data = p->file.data, .size = p->file.size, .error = error};
    const size_t first = g->tensor_count;
    uint64_t tensors = 0, keys = 0;
    read_header(&r, &tensors, &keys);
    read_entries(&r, keys);
    read_tensors(&r, tensors);
    place_tensors(&r, first);
    return r.status;
}

/* Split models ----------------------------------------------------------------------------------------------------- */

/* Opens and reads the siblings of the first part, `count` files in all, and makes room for them in g->parts. */
static mt_status read_siblings(gguf *g, uint32_t count, mt_error *error) {
    struct part *const first = &g->parts[0];
    int64_t total, number;
    char ending[32];
    mt_status status = get_integer(first, "split.tensors.count", 0, INT64_MAX, &total, NULL, error);
    if (status != MT_OK) return status;
    const size_t length = strlen(first->name);
    const size_t tail = (size_t)snprintf(ending, sizeof ending, "-%05u-of-%05u.gguf", 1, count);
    if (length < tail || strcmp(first->name + length - tail, ending))
        return error_set(error, MT_E_FORMAT, first->name,
                         "this is the first part of %u, but its name does not end in "
                         "'%s', so that the others cannot be found",
                         count, ending);
    struct part *parts = ARENA_ARRAY(g->memory, count, struct part);
    parts[0] = *first;
    g->parts = parts;
    while (g->part_count < count) {
        struct part *p = &parts[g->part_count];
        p->name = arena_printf(g->memory, "%.*s-%05u-of-%05u.gguf", (int)(length - tail), parts[0].name,
                               g->part_count + 1, count);
        status = file_map_open(&p->file, p->name, error);
        if (status != MT_OK) return status;
        g->part_count++; /* from here on gguf_close unmaps it */
        if ((status = read_part(g, p, error)) != MT_OK ||
            (status = get_integer(p, "split.no", 0, UINT16_MAX, &number, NULL, error)) != MT_OK)
            return status;
        if (number != (int64_t)g->part_count - 1)
            return error_set(error, MT_E_FORMAT, p->name,
                             "this must be part %u of %u, but it says that it is part %" PRId64, g->part_count, count,
                             number + 1);
        if ((status = get_integer(p, "split.count", count, count, &number, NULL, error)) != MT_OK ||
            (status = get_integer(p, "split.tensors.count", total, total, &number, NULL, error)) != MT_OK)
            return status;
    }
    if ((uint64_t)total != g->tensor_count)
        return error_set(error, MT_E_FORMAT, first->name,
                         "the %u parts hold %zu tensors, but split.tensors.count is %" PRId64, count, g->tensor_count,
                         total);
    return MT_OK;
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

/* Reads the first part, which is mapped, and what it asks for. */
static mt_status read_all(gguf *g, mt_error *error) {
    struct part *first = &g->parts[0];
    int64_t number = 0, count = 0; /* a merged model may say that it has 0 parts */
    bool found;
    mt_status status = read_part(g, first, error);
    if (status == MT_OK) status = get_integer(first, "split.no", 0, UINT16_MAX, &number, &found, error);
    if (status == MT_OK) status = get_integer(first, "split.count", 0, UINT16_MAX, &count, &found, error);
    if (status != MT_OK) return status;
    if (number > 0 && number >= count)
        return error_set(error, MT_E_FORMAT, first->name, "the file says that it is part %" PRId64 " of %" PRId64,
                         number + 1, count);
    if (number > 0)
        return error_set(error, MT_E_ARGUMENT, first->name,
                         "this is part %" PRId64 " of a split model: open its first part, "
                         "the file whose name ends in '-00001-of-%05" PRId64 ".gguf'",
                         number + 1, count);
    if (count > 1 && g->borrowed)
        return error_set(error, MT_E_UNSUPPORTED, first->name,
                         "this is one of %" PRId64 " parts of a split model, which can "
                         "only be opened as files",
                         count);
    return count > 1 ? read_siblings(g, (uint32_t)count, error) : MT_OK;
}

struct opening {
    gguf *g;
    mt_error *error;
    mt_status status;
};

static void run_opening(void *context) {
    struct opening *o = context;
    o->status = read_all(o->g, o->error);
}

/* `file` becomes the new object's, also when this fails; with `borrowed` its bytes stay the caller's. */
static mt_status open_mapped(gguf **out, file_map file, bool borrowed, const char *name, mt_error *error) {
    arena *a = arena_new();
    gguf *g = a ? ARENA_NEW(a, gguf) : NULL;
    struct part *first = g ? ARENA_NEW(a, struct part) : NULL;
    if (!first || !(first->name = arena_string(a, name, strlen(name)))) {
        if (!borrowed) file_map_close(&file);
        arena_free(a);
        return error_set(error, MT_E_MEMORY, name, "no memory to open the file");
    }
    first->file = file;
    *g = (gguf){.memory = a, .parts = first, .part_count = 1, .borrowed = borrowed};
    struct opening o = {g, error, MT_OK};
    if (!arena_protect(a, run_opening, &o))
        o.status = error_set(error, MT_E_MEMORY, name, "no memory to open the file");
    if (o.status == MT_OK)
        *out = g;
    else
        gguf_close(g);
    return o.status;
}

mt_status gguf_open(gguf **out, const char *path, mt_error *error) {
    file_map file;
    *out = NULL;
    const mt_status status = file_map_open(&file, path, error);
    return status == MT_OK ? open_mapped(out, file, false, path, error) : status;
}

mt_status gguf_open_memory(gguf **out, const void *data, size_t size, const char *name, mt_error *error) {
    *out = NULL;
    return open_mapped(out, (file_map){data, size}, true, name, error);
}

struct making {
    gguf *g;
    const gguf_entry *entries;
    const gguf_tensor *tensors;
    size_t entry_count, tensor_count;
};

static void run_making(void *context) {
    const struct making *c = context;
    gguf *g = c->g;
    struct part *p = &g->parts[0];
    for (size_t i = 0; i < c->entry_count; i++) {
        map_put(g->memory, &p->keys, c->entries[i].key, strlen(c->entries[i].key), (int64_t)i);
        *ARENA_PUSH(g->memory, p->entries, p->entry_count, p->entry_capacity) = c->entries[i];
    }
    for (size_t i = 0; i < c->tensor_count; i++) {
        map_put(g->memory, &g->names, c->tensors[i].name, c->tensors[i].name_length, (int64_t)i);
        *ARENA_PUSH(g->memory, g->tensors, g->tensor_count, g->tensor_capacity) = c->tensors[i];
    }
}

mt_status gguf_make(gguf **out, const char *name, const gguf_entry *entries, size_t entry_count,
                    const gguf_tensor *tensors, size_t tensor_count, mt_error *error) {
    arena *a = arena_new();
    gguf *g = a ? ARENA_NEW(a, gguf) : NULL;
    struct part *first = g ? ARENA_NEW(a, struct part) : NULL;
    *out = NULL;
    if (first) {
        *first = (struct part){.name = name};
        *g = (gguf){.memory = a, .parts = first, .part_count = 1, .borrowed = true};
    }
    struct making c = {g, entries, tensors, entry_count, tensor_count};
    if (!first || !arena_protect(a, run_making, &c)) {
        arena_free(a);
        return error_set(error, MT_E_MEMORY, name, "no memory for a model");
    }
    *out = g;
    return MT_OK;
}

void gguf_close(gguf *g) {
    if (!g) return;
    for (uint32_t i = 0; i < g->part_count && !g->borrowed; i++) file_map_close(&g->parts[i].file);
    arena_free(g->memory);
}
