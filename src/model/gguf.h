/* Reading GGUF model files: versions 2 and 3, little endian, whole or split (name-00001-of-0000N.gguf).
 *
 * gguf_open maps the file, and for the first part of a split model its siblings too, and checks everything before it
 * returns: counts, lengths, types, offsets, that names are unique and that every tensor lies inside its file. What it
 * hands out points into the mapping and lives until gguf_close. An open file never changes: any number of threads may
 * read it.
 *
 * Limits: 65,536 keys and 262,144 tensors (MT_E_LIMIT); names of up to 65,535 bytes, without control characters, so
 * that they can be printed. Arrays of arrays are MT_E_UNSUPPORTED. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include "tile/type.h"

typedef struct gguf gguf;

/* A value's kind, with the numbers of the file format. */
typedef enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_NONE /* no value; also "any kind" for gguf_get_array */
} gguf_kind;

/* Bytes in the mapping, not NUL-terminated; nothing says that they are UTF-8. */
typedef struct gguf_string {
    const char *data;
    size_t length;
} gguf_string;

typedef struct gguf_array {
    gguf_kind kind; /* of the elements: any but GGUF_ARRAY */
    uint64_t count;
    const uint8_t *data;         /* the elements as they lie in the file */
    const uint8_t *const *items; /* GGUF_STRING: where each element's length lies; NULL for other kinds */
} gguf_array;

typedef struct gguf_value {
    gguf_kind kind;
    union {
        uint64_t u; /* U8, U16, U32, U64; BOOL is 0 or 1 */
        int64_t i;  /* I8, I16, I32, I64 */
        double f;   /* F32, F64 */
        gguf_string string;
        gguf_array array;
    };
} gguf_value;

typedef struct gguf_entry {
    const char *key; /* NUL-terminated */
    gguf_value value;
} gguf_entry;

typedef struct gguf_tensor {
    const char *name; /* NUL-terminated */
    size_t name_length;
    const tile_format *format;
    int rank;          /* 1 to 4 */
    int64_t extent[4]; /* outermost first; the last one is a multiple of the format's block */
    const uint8_t *data;
    size_t bytes;
    uint64_t offset; /* where `data` lies in its file, and which part of a split model that is, from 0: for people */
    uint32_t part;
} gguf_tensor;

/* Opens a file. MT_E_FORMAT: it is damaged or no GGUF file; MT_E_IO: the system refuses it, or a sibling of it is
 * missing; MT_E_UNSUPPORTED: a version, byte order or element type that this program does not know; MT_E_ARGUMENT: a
 * later part of a split model. */
mt_status gguf_open(gguf **out, const char *path, mt_error *error);
/* The same from memory, which must outlive *out; `name` stands in messages. Tensors are as aligned as `data` is. Parts
 * of split models are MT_E_UNSUPPORTED. */
mt_status gguf_open_memory(gguf **out, const void *data, size_t size, const char *name, mt_error *error);
/* A model that never was a file: keys and tensors as given, names unique. All that they point to must outlive *out. */
mt_status gguf_make(gguf **out, const char *name, const gguf_entry *entries, size_t entry_count,
                    const gguf_tensor *tensors, size_t tensor_count, mt_error *error);
void gguf_close(gguf *g); /* NULL is allowed */

const char *gguf_name(const gguf *g);    /* the path or name it was opened with */
uint32_t gguf_version(const gguf *g);    /* 0: gguf_make made it */
uint32_t gguf_part_count(const gguf *g); /* files; 1 for a model that is not split */

/* All key-values, of a split model those of its first part, and all tensors, in the order of the file. */
const gguf_entry *gguf_entries(const gguf *g, size_t *count);
const gguf_tensor *gguf_tensors(const gguf *g, size_t *count);

const gguf_value *gguf_find(const gguf *g, const char *key);          /* NULL when absent */
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name); /* NULL when absent */

/* Element `i` of an array, in constant time. GGUF_NONE when `array` is no array or i is not below its count. */
gguf_value gguf_element(const gguf_value *array, uint64_t i);
/* A number, when it is an integer in the range of int64_t, or any number. False and *out untouched when not. */
bool gguf_value_i64(const gguf_value *v, int64_t *out);
bool gguf_value_f64(const gguf_value *v, double *out);
const char *gguf_kind_name(gguf_kind kind); /* "u8", "string" */

/* Typed access. A value of another kind or out of range is MT_E_FORMAT with a message that names the key. An absent key
 * leaves *out as it was, so that it may hold a default, and *found tells; where `found` is NULL the key must be there,
 * and MT_E_FORMAT says that it is missing. Integers of every width and sign will do for u32 and i64, and every number
 * for f64. */
mt_status gguf_get_u32(const gguf *g, const char *key, uint32_t *out, bool *found, mt_error *error);
mt_status gguf_get_i64(const gguf *g, const char *key, int64_t *out, bool *found, mt_error *error);
mt_status gguf_get_f64(const gguf *g, const char *key, double *out, bool *found, mt_error *error);
mt_status gguf_get_bool(const gguf *g, const char *key, bool *out, bool *found, mt_error *error);
mt_status gguf_get_string(const gguf *g, const char *key, gguf_string *out, bool *found, mt_error *error);
/* An array with elements of this kind (GGUF_NONE: of any), for gguf_element. */
mt_status gguf_get_array(const gguf *g, const char *key, gguf_kind kind, const gguf_value **out, bool *found,
                         mt_error *error);

#endif
