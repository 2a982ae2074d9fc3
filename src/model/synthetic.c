/* Synthetic models; synthetic.h says how their weights lie in memory. What is here: the shapes, the list of tensors,
 * the pool and its windows.
 *
 * Scale: the matrices' elements have a deviation of 1 / sqrt(hidden), so that a product of normalised activations has
 * one of about 1, or what the format makes of that; the weights of the norms make up for the difference. The last
 * norm's are larger: logits have a deviation of LOGITS. */
#include "model/synthetic.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/model.h"
#include "model/synthetic_pool.h"

enum { POOL_MOST = 64 << 20 };
static const double LOGITS = 3;

static const synthetic_shape shapes[] = {
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 500000, 1e-5, true},
    {"llama-3-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 500000, 1e-5, false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1000000, 1e-6, true},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1000000, 1e-6, false},
};

struct synthetic {
    arena *memory; /* names and vectors */
    void *windows;
    size_t bytes;            /* of all windows */
    int pool;                /* a file descriptor */
    size_t pool_bytes, unit; /* windows and the pool are multiples of a unit: whole pages and whole blocks */
    double deviation;        /* of the pool's numbers */
    const tile_format *format, *f32;
    gguf_tensor *tensors;
    size_t tensor_count, tensor_capacity;
};

void synthetic_free(synthetic *s) {
    if (!s) return;
    if (s->windows) munmap(s->windows, s->bytes);
    if (s->pool >= 0) close(s->pool);
    arena_free(s->memory);
    free(s);
}

/* ---- tensors ---- */

static gguf_tensor *add(synthetic *s, int64_t layer, const char *name) {
    gguf_tensor *t = ARENA_PUSH(s->memory, s->tensors, s->tensor_count, s->tensor_capacity);
    t->name = layer < 0 ? name : arena_printf(s->memory, "blk.%lld.%s", (long long)layer, name);
    t->name_length = strlen(t->name);
    return t;
}

static void add_matrix(synthetic *s, int64_t layer, const char *name, int64_t rows, int64_t columns) {
    gguf_tensor *t = add(s, layer, name);
    t->format = s->format;
    t->rank = 2;
    t->extent[0] = rows;
    t->extent[1] = columns;
    t->bytes = (size_t)tile_format_bytes(s->format, rows * columns);
}

/* A norm's weights: around `mean`. */
static void add_vector(synthetic *s, int64_t layer, const char *name, int64_t size, double mean) {
    gguf_tensor *t = add(s, layer, name);
    float *data = ARENA_ARRAY(s->memory, (size_t)size, float);
    uint64_t state = hash_u64(t->name, t->name_length);
    for (int64_t i = 0; i < size; i++) data[i] = (float)(mean * (1 + 0.1 * synthetic_normal(&state)));
    t->format = s->f32;
    t->rank = 1;
    t->extent[0] = size;
    t->data = (const uint8_t *)data;
    t->bytes = (size_t)size * sizeof *data;
}

static void add_tensors(synthetic *s, const synthetic_shape *m) {
    const int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    const double one =
        1 / (s->deviation * sqrt((double)m->hidden)); /* what a product's deviation of 1 asks of a norm */
    add_matrix(s, -1, "token_embd.weight", m->vocab, m->hidden);
    for (int64_t layer = 0; layer < m->layers; layer++) {
        add_vector(s, layer, "attn_norm.weight", m->hidden, one);
        add_matrix(s, layer, "attn_q.weight", q, m->hidden);
        add_matrix(s, layer, "attn_k.weight", kv, m->hidden);
        if (!strcmp(m->architecture, "qwen3")) { /* scores have a deviation of about 2 */
            add_vector(s, layer, "attn_q_norm.weight", m->head_dim, sqrt(2));
            add_vector(s, layer, "attn_k_norm.weight", m->head_dim, sqrt(2));
        }
        add_matrix(s, layer, "attn_v.weight", kv, m->hidden);
        add_matrix(s, layer, "attn_output.weight", m->hidden, q);
        add_vector(s, layer, "ffn_norm.weight", m->hidden, one);
        add_matrix(s, layer, "ffn_gate.weight", m->ffn, m->hidden);
        add_matrix(s, layer, "ffn_up.weight", m->ffn, m->hidden);
        add_matrix(s, layer, "ffn_down.weight", m->hidden, m->ffn);
    }
    add_vector(s, -1, "output_norm.weight", m->hidden, LOGITS * one);
    if (!m->tied) add_matrix(s, -1, "output.weight", m->vocab, m->hidden);
}

/* ---- the pool and its windows ---- */

static bool is_prime(size_t n) {
    for (size_t d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return n > 1;
}

/* Makes the pool, large enough for the largest matrix if POOL_MOST allows it. */
static mt_status make_pool(synthetic *s, const synthetic_shape *m, mt_error *error) {
    const size_t block = (size_t)s->format->bits % 8 ? (size_t)s->format->bits : (size_t)s->format->bits / 8;
    s->unit = (size_t)sysconf(_SC_PAGESIZE);
    while (s->unit % block) s->unit += (size_t)sysconf(_SC_PAGESIZE);
    const int64_t rows = max_i64(max_i64(m->vocab, m->ffn), m->heads * m->head_dim),
                  columns = max_i64(max_i64(m->hidden, m->ffn), m->heads * m->head_dim);
    const double most = fmin((double)rows * (double)columns * s->format->bits / s->format->block / 8, POOL_MOST);
    size_t units = (size_t)most / s->unit + 1;
    while (units > 1 && !is_prime(units)) units--;
    s->pool_bytes = units * s->unit;
    s->pool = memfd_create("monotile-weights", MFD_CLOEXEC);
    if (s->pool < 0 || ftruncate(s->pool, (off_t)s->pool_bytes))
        return error_errno(error, m->name, "no memory for %zu bytes of random weights", s->pool_bytes);
    void *memory = mmap(NULL, s->pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->pool, 0);
    if (memory == MAP_FAILED) return error_errno(error, m->name, "cannot map %zu bytes", s->pool_bytes);
    const mt_status status =
        synthetic_fill(s->format, 1 / sqrt((double)m->hidden), memory, s->pool_bytes, &s->deviation, error);
    munmap(memory, s->pool_bytes);
    return status;
}

/* Maps the pool over [to, to + bytes), from a place that the name decides. */
static mt_status map_window(const synthetic *s, const char *name, uint8_t *to, size_t bytes, mt_error *error) {
    size_t from = hash_u64(name, strlen(name)) % (s->pool_bytes / s->unit) * s->unit;
    for (size_t done = 0, piece; done < bytes; done += piece, from = 0) {
        piece = bytes - done < s->pool_bytes - from ? bytes - done : s->pool_bytes - from;
        if (mmap(to + done, piece, PROT_READ, MAP_SHARED | MAP_FIXED, s->pool, (off_t)from) == MAP_FAILED)
            return error_errno(error, name, "cannot map %zu bytes", piece);
    }
    return MT_OK;
}

static mt_status map_windows(synthetic *s, const char *name, mt_error *error) {
    for (size_t i = 0; i < s->tensor_count; i++)
        if (!s->tensors[i].data) s->bytes += align_up(s->tensors[i].bytes, s->unit);
    void *memory = mmap(NULL, s->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return error_errno(error, name, "no addresses for %zu bytes of weights", s->bytes);
    s->windows = memory;
    uint8_t *at = memory;
    for (size_t i = 0; i < s->tensor_count; i++) {
        gguf_tensor *t = &s->tensors[i];
        if (t->data) continue;
        const size_t bytes = align_up(t->bytes, s->unit);
        const mt_status status = map_window(s, t->name, at, bytes, error);
        if (status != MT_OK) return status;
        t->data = at;
        at += bytes;
    }
    return MT_OK;
}

/* ---- the model ---- */

static void add_entry(gguf_entry *entries, size_t *count, const char *key, gguf_value value) {
    entries[(*count)++] = (gguf_entry){key, value};
}

/* The metadata that a file of this shape has. */
static size_t make_entries(arena *a, const synthetic_shape *m, const char *name, gguf_entry entries[16]) {
    const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"block_count", m->layers},
                    {"embedding_length", m->hidden},
                    {"attention.head_count", m->heads},
                    {"attention.head_count_kv", m->kv_heads},
                    {"attention.key_length", m->head_dim},
                    {"attention.value_length", m->head_dim},
                    {"feed_forward_length", m->ffn},
                    {"context_length", m->context}};
    size_t count = 0;
    const gguf_string architecture = {m->architecture, strlen(m->architecture)}, title = {name, strlen(name)};
    add_entry(entries, &count, "general.architecture", (gguf_value){.kind = GGUF_STRING, .string = architecture});
    add_entry(entries, &count, "general.name", (gguf_value){.kind = GGUF_STRING, .string = title});
    for (size_t i = 0; i < COUNT_OF(integers); i++)
        add_entry(entries, &count, arena_printf(a, "%s.%s", m->architecture, integers[i].key),
                  (gguf_value){.kind = GGUF_I64, .i = integers[i].value});
    add_entry(entries, &count, arena_printf(a, "%s.attention.layer_norm_rms_epsilon", m->architecture),
              (gguf_value){.kind = GGUF_F64, .f = m->norm_epsilon});
    add_entry(entries, &count, arena_printf(a, "%s.rope.freq_base", m->architecture),
              (gguf_value){.kind = GGUF_F64, .f = m->rope_base});
    return count;
}

struct making {
    synthetic *s;
    const synthetic_shape *shape;
    const char *format;
    gguf *file;
    mt_error *error;
    mt_status status;
};

static void make(void *context) {
    struct making *c = context;
    synthetic *s = c->s;
    const synthetic_shape *m = c->shape;
    gguf_entry entries[16];
    const int64_t lengths[] = {m->hidden, m->ffn, m->heads * m->head_dim};
    const char *name = arena_printf(s->memory, "synthetic %s:%s", m->name, c->format);
    s->f32 = tile_format_find("f32");
    s->format = tile_format_find(c->format);
    if (!s->format) {
        c->status = error_set(c->error, MT_E_ARGUMENT, m->name, "there is no storage format '%s'", c->format);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        if (tile_format_bytes(s->format, lengths[i]) < 0) {
            c->status =
                error_set(c->error, MT_E_ARGUMENT, m->name, "rows of %lld elements are no whole blocks of format '%s'",
                          (long long)lengths[i], s->format->name);
            return;
        }
    if ((c->status = make_pool(s, m, c->error)) != MT_OK) return;
    add_tensors(s, m);
    if ((c->status = map_windows(s, m->name, c->error)) != MT_OK) return;
    const size_t count = make_entries(s->memory, m, name, entries);
    c->status = gguf_make(&c->file, name, entries, count, s->tensors, s->tensor_count, c->error);
}

mt_status synthetic_model(mt_model **out, const synthetic_shape *shape, const char *format, mt_error *error) {
    *out = NULL;
    struct making c = {.s = calloc(1, sizeof *c.s), .shape = shape, .format = format, .error = error, .status = MT_OK};
    if (c.s) {
        c.s->pool = -1;
        c.s->memory = arena_new();
    }
    if (!c.s || !c.s->memory || !arena_protect(c.s->memory, make, &c))
        c.status = error_set(error, MT_E_MEMORY, shape->name, "no memory for a synthetic model");
    if (c.status == MT_OK) return model_open(out, c.file, c.s, error);
    gguf_close(c.file);
    synthetic_free(c.s);
    return c.status;
}

mt_status mt_model_synthesize(mt_model **out, const char *name, mt_error *error) {
    *out = NULL;
    const size_t length = strcspn(name, ":");
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        if (strlen(shapes[i].name) == length && !memcmp(shapes[i].name, name, length))
            return synthetic_model(out, &shapes[i], name[length] ? name + length + 1 : "bf16", error);
    text known = {0};
    for (size_t i = 0; i < COUNT_OF(shapes); i++) text_printf(&known, "%s%s", i ? ", " : "", shapes[i].name);
    error_set(error, MT_E_ARGUMENT, name,
              "there is no synthetic model of this name; there are %s, each with :FORMAT or not",
              known.failed ? "others" : known.data);
    text_free(&known);
    return MT_E_ARGUMENT;
}
