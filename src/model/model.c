/* Opening models: the table of architectures, hyperparameters, weights by name. */
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "llm/tokenizer.h"

static const model_architecture *const architectures[] = {&model_llama, &model_qwen3};

/* ---- hyperparameters ---- */

enum { KEY_BYTES = 256 };

static mt_status full_key(const mt_model *m, const char *name, char key[KEY_BYTES], mt_error *error) {
    if (snprintf(key, KEY_BYTES, "%s.%s", m->architecture->name, name) < KEY_BYTES) return MT_OK;
    return error_set(error, MT_E_INTERNAL, name, "the key is too long");
}

mt_status model_get_i64(const mt_model *m, const char *name, bool required, int64_t *out, mt_error *error) {
    char key[KEY_BYTES];
    bool found;
    const mt_status status = full_key(m, name, key, error);
    return status != MT_OK ? status : gguf_get_i64(m->file, key, out, required ? NULL : &found, error);
}

mt_status model_get_f64(const mt_model *m, const char *name, bool required, double *out, mt_error *error) {
    char key[KEY_BYTES];
    bool found;
    const mt_status status = full_key(m, name, key, error);
    return status != MT_OK ? status : gguf_get_f64(m->file, key, out, required ? NULL : &found, error);
}

mt_status model_get_string(const mt_model *m, const char *name, bool required, gguf_string *out, mt_error *error) {
    char key[KEY_BYTES];
    bool found;
    const mt_status status = full_key(m, name, key, error);
    return status != MT_OK ? status : gguf_get_string(m->file, key, out, required ? NULL : &found, error);
}

/* ---- opening ---- */

static const char *copy_string(arena *a, gguf_string s) { return arena_string(a, s.data, s.length); }

/* The elements of all tensors, and their bytes as stored. */
static double count_parameters(const gguf *f, size_t *bytes) {
    double total = 0;
    size_t count;
    const gguf_tensor *tensors = gguf_tensors(f, &count);
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        double elements = 1;
        for (int d = 0; d < tensors[i].rank; d++) elements *= (double)tensors[i].extent[d];
        total += elements;
        *bytes += tensors[i].bytes;
    }
    return total;
}

struct open_call {
    mt_model *m;
    mt_error *error;
    mt_status status;
};

static void open_body(void *context) {
    struct open_call *c = context;
    mt_model *m = c->m;
    gguf_string architecture = {0}, name = {0};
    bool found;
    if ((c->status = gguf_get_string(m->file, "general.architecture", &architecture, NULL, c->error)) != MT_OK) return;
    for (size_t i = 0; i < COUNT_OF(architectures); i++)
        if (strlen(architectures[i]->name) == architecture.length &&
            !memcmp(architectures[i]->name, architecture.data, architecture.length))
            m->architecture = architectures[i];
    if (!m->architecture) {
        c->status = error_set(c->error, MT_E_UNSUPPORTED, gguf_name(m->file),
                              "architecture '%.*s' has no code yet; this version runs 'llama' and 'qwen3'",
                              (int)min_i64((int64_t)architecture.length, 64), architecture.data);
        return;
    }
    if ((c->status = gguf_get_string(m->file, "general.name", &name, &found, c->error)) != MT_OK) return;
    m->info.architecture = m->architecture->name;
    m->info.name = copy_string(m->memory, name);
    m->info.parameters = count_parameters(m->file, &m->info.weight_bytes);
    c->status = m->architecture->open(m, c->error);
}

mt_status model_open(mt_model **out, gguf *file, synthetic *weights, mt_error *error) {
    *out = NULL;
    arena *memory = arena_new();
    mt_model *m = memory ? ARENA_NEW(memory, mt_model) : NULL;
    model_tokenizer *tokenizer = m ? ARENA_NEW(memory, model_tokenizer) : NULL;
    if (!tokenizer || pthread_mutex_init(&tokenizer->lock, NULL)) {
        error_set(error, MT_E_MEMORY, gguf_name(file), "no memory for a model");
        arena_free(memory);
        gguf_close(file);
        synthetic_free(weights);
        return MT_E_MEMORY;
    }
    *m = (mt_model){.memory = memory, .file = file, .weights = weights, .tokenizer = tokenizer};
    struct open_call call = {m, error, MT_OK};
    if (!arena_protect(memory, open_body, &call))
        call.status = error_set(error, MT_E_MEMORY, gguf_name(file), "no memory for a model");
    if (call.status == MT_OK)
        *out = m;
    else
        mt_model_close(m);
    return call.status;
}

mt_status mt_model_open(mt_model **out, const char *path, mt_error *error) {
    gguf *file;
    *out = NULL;
    const mt_status status = gguf_open(&file, path, error);
    return status == MT_OK ? model_open(out, file, NULL, error) : status;
}

void mt_model_close(mt_model *m) {
    if (!m) return;
    tokenizer_free(m->tokenizer->made);
    pthread_mutex_destroy(&m->tokenizer->lock);
    gguf_close(m->file);
    synthetic_free(m->weights);
    arena_free(m->memory);
}

void mt_model_get_info(const mt_model *m, mt_model_info *out) { *out = m->info; }

/* ---- weights ---- */

static void describe(int rank, const int64_t *extent, char out[128]) {
    size_t used = 0;
    for (int d = 0; d < rank && used < 100; d++)
        used += (size_t)snprintf(out + used, 128 - used, d ? ", %" PRId64 : "%" PRId64, extent[d]);
}

mt_status model_check_tensor(const mt_model *m, const char *name, bool optional, int rank, const int64_t *extent,
                             mt_error *error) {
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    if (!t && optional) return MT_OK;
    if (!t) return error_set(error, MT_E_FORMAT, gguf_name(m->file), "tensor '%s' is missing", name);
    bool same = t->rank == rank;
    for (int d = 0; d < rank && same; d++) same = t->extent[d] == extent[d];
    if (same) return MT_OK;
    char have[128], want[128];
    describe(t->rank, t->extent, have);
    describe(rank, extent, want);
    return error_set(error, MT_E_FORMAT, gguf_name(m->file), "tensor '%s' is [%s]; the metadata asks for [%s]", name,
                     have, want);
}

mt_status model_weight(const mt_model *m, mt_graph *g, const char *name, bool optional, int rank, const int64_t *extent,
                       mt_tensor *out, mt_error *error) {
    *out = -1;
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    const mt_status status = model_check_tensor(m, name, optional, rank, extent, error);
    if (status != MT_OK || !t) return status;
    return mt_graph_tensor(g, MT_WEIGHT, name, t->format->name, rank, extent, out, error);
}

static mt_status check_cache(const char *type, mt_error *error) {
    const tile_format *f = type ? tile_format_find(type) : NULL;
    if (!type || (f && !tile_format_is_block(f) && f->scalar.kind == TILE_FLOAT)) return MT_OK;
    return error_set(error, MT_E_ARGUMENT, NULL,
                     "a key-value cache of '%.64s': its elements are f32, f16, bf16, e4m3, e5m2 or other floats%s",
                     type, f && tile_format_is_block(f) ? "; a format of blocks cannot be written" : "");
}

mt_status mt_model_graph(const mt_model *m, const mt_step *step, mt_graph **out, mt_error *error) {
    *out = NULL;
    mt_status status = check_cache(step->cache, error);
    if (status != MT_OK) return status;
    if (step->rows < 1 || step->rows > 65536)
        return error_set(error, MT_E_ARGUMENT, NULL, "a step takes 1 to 65536 rows, not %d", step->rows);
    if (step->context < step->rows)
        return error_set(error, MT_E_ARGUMENT, NULL, "a context of %d positions has no room for %d rows", step->context,
                         step->rows);
    if (step->sampling && step->rows != 1)
        return error_set(error, MT_E_ARGUMENT, NULL, "a step that samples takes one row, not %d", step->rows);
    mt_graph *g;
    status = mt_graph_create(&g, error);
    if (status != MT_OK) return status;
    status = m->architecture->graph(m, step, g, error);
    if (status == MT_OK)
        *out = g;
    else
        mt_graph_destroy(g);
    return status;
}

mt_status mt_model_bind(const mt_model *m, const mt_program *p, mt_session *s, mt_error *error) {
    mt_status status = MT_OK;
    for (size_t i = 0; i < mt_program_tensor_count(p) && status == MT_OK; i++) {
        mt_tensor_info info;
        if ((status = mt_program_tensor(p, i, &info, error)) != MT_OK || info.role != MT_WEIGHT) continue;
        const void *data = NULL;
        size_t bytes = 0;
        const gguf_tensor *t = gguf_find_tensor(m->file, info.name);
        if (t) data = t->data, bytes = t->bytes;
        for (size_t d = 0; d < m->derived_count && !data; d++)
            if (!strcmp(m->derived[d].name, info.name)) data = m->derived[d].data, bytes = m->derived[d].bytes;
        if (!data)
            status = error_set(error, MT_E_ARGUMENT, info.name,
                               "the model has no tensor of this name: is the program another model's?");
        else if (t && strcmp(t->format->name, info.type))
            status = error_set(error, MT_E_ARGUMENT, info.name, "the program was compiled for %s; the model has %s",
                               info.type, t->format->name);
        else if (bytes != info.bytes)
            status = error_set(error, MT_E_ARGUMENT, info.name, "the program wants %zu bytes; the model has %zu",
                               info.bytes, bytes);
        else
            status = mt_session_bind_weight(s, info.name, data, bytes, error);
    }
    return status;
}

/* ---- text for people ---- */

static void print_value(const gguf_value *v, text *out) {
    int64_t integer;
    double number;
    switch (v->kind) {
    case GGUF_STRING: {
        const size_t shown = v->string.length < 200 ? v->string.length : 200;
        text_string(out, "\"");
        for (size_t i = 0; i < shown; i++) {
            const unsigned char c = (unsigned char)v->string.data[i];
            if (c == '\n')
                text_string(out, "\\n");
            else if (c < 0x20 || c == 0x7f)
                text_printf(out, "\\x%02x", c);
            else
                text_append(out, &c, 1);
        }
        text_string(out, shown < v->string.length ? "\"..." : "\"");
        break;
    }
    case GGUF_ARRAY:
        text_printf(out, "%" PRIu64 " x %s", v->array.count, gguf_kind_name(v->array.kind));
        break;
    case GGUF_BOOL:
        text_string(out, v->u ? "true" : "false");
        break;
    case GGUF_U64:
        text_printf(out, "%" PRIu64, v->u);
        break;
    default:
        if (gguf_value_i64(v, &integer))
            text_printf(out, "%" PRId64, integer);
        else if (gguf_value_f64(v, &number))
            text_printf(out, "%g", number);
    }
}

static void print_file(const gguf *f, text *out) {
    size_t count;
    const gguf_entry *entries = gguf_entries(f, &count);
    if (!gguf_version(f))
        text_string(out, "random weights\n");
    else
        text_printf(out, "GGUF version %u, %u file%s\n", gguf_version(f), gguf_part_count(f),
                    gguf_part_count(f) == 1 ? "" : "s");
    for (size_t i = 0; i < count; i++) {
        text_printf(out, "%s = ", entries[i].key);
        print_value(&entries[i].value, out);
        text_string(out, "\n");
    }
    const gguf_tensor *tensors = gguf_tensors(f, &count);
    size_t bytes;
    const double parameters = count_parameters(f, &bytes);
    text_printf(out, "%zu tensors, %.1f million parameters, %zu bytes\n", count, parameters / 1e6, bytes);
    for (size_t i = 0; i < count; i++) {
        char extents[128];
        describe(tensors[i].rank, tensors[i].extent, extents);
        text_printf(out, "%-32s %-6s [%s]\n", tensors[i].name, tensors[i].format->name, extents);
    }
    if (out->failed) text_free(out);
}

char *mt_model_text(const mt_model *m) {
    text out = {0};
    print_file(m->file, &out);
    return out.data;
}

mt_status mt_model_describe(const char *path, char **out, mt_error *error) {
    gguf *file;
    text shown = {0};
    *out = NULL;
    const mt_status status = gguf_open(&file, path, error);
    if (status != MT_OK) return status;
    print_file(file, &shown);
    gguf_close(file);
    *out = shown.data;
    return *out ? MT_OK : error_set(error, MT_E_MEMORY, path, "no memory for a model's description");
}

/* ---- text of the model ---- */

static tokenizer_text view(gguf_string s) { return (tokenizer_text){s.data, s.length}; }

/* The strings of an array, in *out from the arena. */
static void read_strings(arena *a, const gguf_value *array, const tokenizer_text **out, size_t *count) {
    *count = (size_t)array->array.count;
    tokenizer_text *strings = ARENA_ARRAY(a, *count, tokenizer_text);
    for (size_t i = 0; i < *count; i++) strings[i] = view(gguf_element(array, i).string);
    *out = strings;
}

struct tokenizer_call {
    const mt_model *m;
    arena *memory;
    mt_tokenizer *out;
    mt_error *error;
    mt_status status;
};

static void tokenizer_body(void *context) {
    struct tokenizer_call *c = context;
    const gguf *f = c->m->file;
    tokenizer_config config = {.bos = -1, .eos = -1, .eot = -1, .eom = -1, .unknown = -1, .add_bos = -1, .add_eos = -1};
    gguf_string model = {0}, pre = {0};
    const gguf_value *tokens, *types = NULL, *merges = NULL;
    bool found;
    if ((c->status = gguf_get_string(f, "tokenizer.ggml.model", &model, NULL, c->error)) != MT_OK) return;
    if ((c->status = gguf_get_string(f, "tokenizer.ggml.pre", &pre, &found, c->error)) != MT_OK) return;
    if ((c->status = gguf_get_array(f, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, NULL, c->error)) != MT_OK) return;
    if ((c->status = gguf_get_array(f, "tokenizer.ggml.token_type", GGUF_NONE, &types, &found, c->error)) != MT_OK)
        return;
    if ((c->status = gguf_get_array(f, "tokenizer.ggml.merges", GGUF_STRING, &merges, &found, c->error)) != MT_OK)
        return;
    config.model = view(model);
    config.pre = view(pre);
    read_strings(c->memory, tokens, &config.tokens, &config.token_count);
    if (merges) read_strings(c->memory, merges, &config.merges, &config.merge_count);
    if (types) {
        if (types->array.count != config.token_count) {
            c->status =
                error_set(c->error, MT_E_FORMAT, gguf_name(f), "the file has %zu tokens and %" PRIu64 " token types",
                          config.token_count, types->array.count);
            return;
        }
        int32_t *list = ARENA_ARRAY(c->memory, config.token_count, int32_t);
        for (size_t i = 0; i < config.token_count; i++) {
            const gguf_value element = gguf_element(types, i);
            int64_t type = -1;
            gguf_value_i64(&element, &type);
            list[i] = type >= 0 && type <= INT32_MAX ? (int32_t)type : -1;
        }
        config.types = list;
    }
    const struct {
        const char *key;
        int64_t *out;
    } ids[] = {{"tokenizer.ggml.bos_token_id", &config.bos},
               {"tokenizer.ggml.eos_token_id", &config.eos},
               {"tokenizer.ggml.eot_token_id", &config.eot},
               {"tokenizer.ggml.eom_token_id", &config.eom},
               {"tokenizer.ggml.unknown_token_id", &config.unknown}};
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        if ((c->status = gguf_get_i64(f, ids[i].key, ids[i].out, &found, c->error)) != MT_OK) return;
    bool flag;
    if ((c->status = gguf_get_bool(f, "tokenizer.ggml.add_bos_token", &flag, &found, c->error)) != MT_OK) return;
    if (found) config.add_bos = flag;
    if ((c->status = gguf_get_bool(f, "tokenizer.ggml.add_eos_token", &flag, &found, c->error)) != MT_OK) return;
    if (found) config.add_eos = flag;
    if ((c->status = gguf_get_bool(f, "tokenizer.ggml.add_space_prefix", &config.add_space_prefix, &found, c->error)) !=
        MT_OK)
        return;
    c->status = tokenizer_new(&c->out, &config, c->error);
}

mt_status mt_model_tokenizer(const mt_model *m, mt_tokenizer **out, mt_error *error) {
    struct tokenizer_call call = {.m = m, .error = error, .status = MT_OK};
    *out = NULL;
    if (m->weights)
        return error_set(error, MT_E_ARGUMENT, gguf_name(m->file),
                         "a synthetic model has no tokenizer: give it token ids");
    pthread_mutex_lock(&m->tokenizer->lock);
    if (!m->tokenizer->made) {
        call.memory = arena_new();
        if (!call.memory || !arena_protect(call.memory, tokenizer_body, &call))
            call.status = error_set(error, MT_E_MEMORY, NULL, "no memory for the vocabulary");
        arena_free(call.memory);
        m->tokenizer->made = call.out;
    }
    *out = m->tokenizer->made;
    pthread_mutex_unlock(&m->tokenizer->lock);
    return call.status;
}

mt_status mt_model_template(const mt_model *m, mt_template **out, mt_error *error) {
    gguf_string source = {0};
    bool found;
    *out = NULL;
    const mt_status status = gguf_get_string(m->file, "tokenizer.chat_template", &source, &found, error);
    if (status != MT_OK) return status;
    if (!found)
        return error_set(error, MT_E_ARGUMENT, gguf_name(m->file), "the model has no chat template: give it raw text");
    return mt_template_new(out, source.data, source.length, error);
}
