/* The decoder that llama and qwen3 share; decoder.h has what differs. Each layer is
 *     x = x + attention(rope(norm(x) Wq), cache(rope(norm(x) Wk)), cache(norm(x) Wv)) Wo
 *     x = x + (silu(norm(x) Wgate) · norm(x) Wup) Wdown
 * Stretched rotary frequencies as a tensor of divisors, linear scaling, which divides positions: both go into one
 * derived tensor, `rope.frequencies`. */
#include "model/decoder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static mt_status unsupported(const mt_model *m, const char *what, mt_error *error) {
    return error_set(error, MT_E_UNSUPPORTED, gguf_name(m->file), "%s: there is no code for it yet", what);
}

/* frequency[i] = base^(-2i / D) / divisor[i] / scale. Llama (Touvron et al. 2023) after Su et al., "RoFormer", 2021. */
static mt_status make_frequencies(mt_model *m, const decoder_style *style, mt_error *error) {
    const int64_t half = m->info.head_dim / 2;
    double base = 10000, scale = 1;
    gguf_string kind = {0};
    mt_status status = model_get_f64(m, "rope.freq_base", false, &base, error);
    if (status == MT_OK) status = model_get_string(m, "rope.scaling.type", false, &kind, error);
    if (status == MT_OK)
        status = model_get_f64(m, "rope.scale_linear", false, &scale, error); /* the name in older files */
    if (status == MT_OK) status = model_get_f64(m, "rope.scaling.factor", false, &scale, error);
    if (status != MT_OK) return status;
    const bool linear = kind.length == 6 && !memcmp(kind.data, "linear", 6),
               none = kind.length == 4 && !memcmp(kind.data, "none", 4);
    if (kind.length && !linear && !none) {
        char what[128];
        snprintf(what, sizeof what, "rope scaling of type '%.*s'", (int)min_i64((int64_t)kind.length, 64), kind.data);
        return unsupported(m, what, error);
    }
    if (none) scale = 1;
    if (!(base > 0) || !isfinite(base) || !(scale > 0) || !isfinite(scale))
        return error_set(error, MT_E_FORMAT, gguf_name(m->file), "the rotary base %g or scale %g is no positive number",
                         base, scale);
    const gguf_tensor *divisors = style->divisors ? gguf_find_tensor(m->file, "rope_freqs.weight") : NULL;
    if (divisors && (status = model_check_tensor(m, "rope_freqs.weight", false, 1, &half, error)) != MT_OK)
        return status;
    if (divisors && strcmp(divisors->format->name, "f32"))
        return unsupported(m, "a tensor 'rope_freqs.weight' that is not f32", error);
    float *frequencies = ARENA_ARRAY(m->memory, (size_t)half, float);
    for (int64_t i = 0; i < half; i++) {
        const double divisor = divisors ? tile_format_get(divisors->format, divisors->data, i) : 1;
        frequencies[i] = (float)(pow(base, -2.0 * (double)i / (double)m->info.head_dim) / divisor / scale);
    }
    *ARENA_PUSH(m->memory, m->derived, m->derived_count, m->derived_capacity) =
        (model_derived){"rope.frequencies", frequencies, (size_t)half * sizeof *frequencies};
    return MT_OK;
}

enum { NAME_BYTES = 128 };
static const char *layer_name(char name[NAME_BYTES], int64_t layer, const char *part) {
    snprintf(name, NAME_BYTES, "blk.%lld.%.64s", (long long)layer, part);
    return name;
}

static bool is_layer_part(const decoder_style *style, const char *part) {
    static const char *const norms[] = {"attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"};
    static const char *const products[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                           "ffn_gate", "ffn_up", "ffn_down"};
    const size_t stem = strcspn(part, ".");
    const bool is_weight = !strcmp(part + stem, ".weight"), is_bias = !strcmp(part + stem, ".bias");
    for (size_t i = 0; i < (style->head_norms ? 4 : 2); i++)
        if (is_weight && strlen(norms[i]) == stem && !memcmp(norms[i], part, stem)) return true;
    for (size_t i = 0; i < COUNT_OF(products); i++)
        if ((is_weight || (is_bias && style->biases)) && strlen(products[i]) == stem &&
            !memcmp(products[i], part, stem))
            return true;
    return false;
}

/* A tensor that no step would read, or a scale that no step would apply, belongs to a variant that has no code: its
 * answers would be wrong. */
static mt_status check_all_is_known(const mt_model *m, const decoder_style *style, mt_error *error) {
    static const char *const whole[] = {"token_embd.weight", "output_norm.weight", "output.weight",
                                        "rope_freqs.weight"};
    const size_t whole_count = style->divisors ? 4 : 3;
    static const char *const scales[] = {"attention.clamp_kqv", "attention.scale", "embedding_scale", "residual_scale",
                                         "logit_scale"};
    char what[NAME_BYTES];
    size_t count;
    const gguf_tensor *tensors = gguf_tensors(m->file, &count);
    for (size_t t = 0; t < count; t++) {
        int64_t layer = -1;
        int stem = 0;
        bool known = sscanf(tensors[t].name, "blk.%5" SCNd64 ".%n", &layer, &stem) == 1 && stem && layer >= 0 &&
                     layer < m->info.layers && is_layer_part(style, tensors[t].name + stem) &&
                     !strcmp(tensors[t].name, layer_name(what, layer, tensors[t].name + stem));
        for (size_t i = 0; i < whole_count; i++) known |= !strcmp(tensors[t].name, whole[i]);
        if (known) continue;
        snprintf(what, sizeof what, "a tensor '%.80s' in a model of this architecture", tensors[t].name);
        return unsupported(m, what, error);
    }
    for (size_t i = 0; i < COUNT_OF(scales); i++) {
        double scale = 0;
        const mt_status status = model_get_f64(m, scales[i], false, &scale, error);
        if (status != MT_OK) return status;
        if (scale == 0) continue;
        snprintf(what, sizeof what, "'%s.%s'", m->architecture->name, scales[i]);
        return unsupported(m, what, error);
    }
    return MT_OK;
}

mt_status decoder_open(mt_model *m, const decoder_style *style, mt_error *error) {
    mt_model_info *i = &m->info;
    int64_t experts = 0, key_length = 0, value_length = 0, rope = 0, window = 0;
    mt_status status = model_get_i64(m, "block_count", true, &i->layers, error);
    if (status == MT_OK) status = model_get_i64(m, "embedding_length", true, &i->hidden, error);
    if (status == MT_OK) status = model_get_i64(m, "attention.head_count", true, &i->heads, error);
    i->kv_heads = i->heads;
    if (status == MT_OK) status = model_get_i64(m, "attention.head_count_kv", false, &i->kv_heads, error);
    if (status == MT_OK) status = model_get_i64(m, "feed_forward_length", true, &i->ffn, error);
    if (status == MT_OK) status = model_get_i64(m, "context_length", true, &i->context, error);
    if (status == MT_OK) status = model_get_f64(m, "attention.layer_norm_rms_epsilon", true, &m->norm_epsilon, error);
    if (status == MT_OK) status = model_get_i64(m, "expert_count", false, &experts, error);
    if (status == MT_OK) status = model_get_i64(m, "attention.key_length", false, &key_length, error);
    if (status == MT_OK) status = model_get_i64(m, "attention.value_length", false, &value_length, error);
    if (status == MT_OK) status = model_get_i64(m, "rope.dimension_count", false, &rope, error);
    if (status == MT_OK) status = model_get_i64(m, "attention.sliding_window", false, &window, error);
    if (status != MT_OK) return status;
    if (i->layers < 1 || i->layers > 4096 || i->hidden < 1 || i->hidden > 1 << 20 || i->heads < 1 || i->heads > 65536 ||
        i->kv_heads < 1 || i->heads % i->kv_heads || i->ffn < 1 || i->ffn > 1 << 24 || i->context < 1)
        return error_set(
            error, MT_E_FORMAT, gguf_name(m->file),
            "the hyperparameters make no model: %lld layers, hidden %lld, %lld heads, %lld key-value heads, ffn %lld",
            (long long)i->layers, (long long)i->hidden, (long long)i->heads, (long long)i->kv_heads, (long long)i->ffn);
    if (!key_length && i->hidden % i->heads)
        return error_set(error, MT_E_FORMAT, gguf_name(m->file), "hidden %lld is no multiple of %lld heads",
                         (long long)i->hidden, (long long)i->heads);
    i->head_dim = key_length ? key_length : i->hidden / i->heads;
    if (i->head_dim < 2 || i->head_dim > 4096 || i->head_dim % 2)
        return error_set(error, MT_E_FORMAT, gguf_name(m->file), "a head of %lld elements", (long long)i->head_dim);
    if (!(m->norm_epsilon >= 0) || m->norm_epsilon > 1)
        return error_set(error, MT_E_FORMAT, gguf_name(m->file), "a norm epsilon of %g", m->norm_epsilon);
    if (experts) return unsupported(m, "a mixture of experts", error);
    if (value_length && value_length != i->head_dim) return unsupported(m, "values of another length than keys", error);
    if (rope && rope != i->head_dim) return unsupported(m, "rotary embedding of a part of each head", error);
    if (window && window < i->context) return unsupported(m, "sliding-window attention", error);
    if ((status = check_all_is_known(m, style, error)) != MT_OK) return status;
    const gguf_tensor *table = gguf_find_tensor(m->file, "token_embd.weight");
    if (!table || table->rank != 2)
        return error_set(error, MT_E_FORMAT, gguf_name(m->file), "tensor 'token_embd.weight' is missing or no matrix");
    i->vocab = table->extent[0];
    m->output = gguf_find_tensor(m->file, "output.weight") ? "output.weight" : "token_embd.weight";
    i->step_bytes = i->weight_bytes - (strcmp(m->output, "token_embd.weight") ? table->bytes : 0);
    return make_frequencies(m, style, error);
}

/* ---- the graph ---- */

typedef struct builder {
    const mt_model *m;
    const decoder_style *style;
    mt_graph *g;
    const mt_model_info *i;
    mt_live pos;
    mt_tensor angles;
    int32_t rows;
    const char *products;
    mt_error *error;
    mt_status status; /* the first failure; everything after it does nothing */
} builder;

static mt_tensor weight(builder *b, const char *name, bool optional, int rank, const int64_t *extent) {
    mt_tensor t = -1;
    if (b->status == MT_OK) b->status = model_weight(b->m, b->g, name, optional, rank, extent, &t, b->error);
    return t;
}

static mt_tensor layer_weight(builder *b, int64_t layer, const char *part, bool optional, int rank, int64_t rows,
                              int64_t columns) {
    char name[NAME_BYTES];
    return weight(b, layer_name(name, layer, part), optional, rank,
                  rank == 2 ? (int64_t[]){rows, columns} : (int64_t[]){rows});
}

/* Appends a node with one output, which is returned. */
static mt_tensor node(builder *b, const char *program, int64_t layer, const char *part, const mt_operand *operands,
                      size_t count) {
    mt_tensor out = -1;
    char name[NAME_BYTES];
    if (layer >= 0)
        layer_name(name, layer, part);
    else
        snprintf(name, sizeof name, "%s", part);
    if (b->status == MT_OK) b->status = mt_graph_node(b->g, NULL, program, name, operands, count, &out, b->error);
    return out;
}
#define NODE(b, program, layer, part, ...)                                                                             \
    node(b, program, layer, part, (mt_operand[]){__VA_ARGS__}, sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand))

static mt_tensor reshape(builder *b, mt_tensor t, int rank, const int64_t *extent) {
    mt_tensor out = -1;
    if (b->status == MT_OK) b->status = mt_graph_reshape(b->g, t, rank, extent, &out, b->error);
    return out;
}

static mt_tensor norm(builder *b, int64_t layer, const char *part, mt_tensor x) {
    const mt_tensor g =
        layer >= 0 ? layer_weight(b, layer, part, false, 1, b->i->hidden, 0) : weight(b, part, false, 1, &b->i->hidden);
    return NODE(b, "rmsnorm", layer, part, MT_OPERAND("x", x), MT_OPERAND("g", g),
                MT_OPERAND_FLOAT("eps", (float)b->m->norm_epsilon));
}

/* What the products with a weight are rounded to. */
static const char *product_type(const builder *b, const char *weight) {
    if (strcmp(b->products, "half")) return b->products;
    const gguf_tensor *t = gguf_find_tensor(b->m->file, weight);
    return t && !strcmp(t->format->name, "bf16") ? "bf16" : "f16";
}

/* What attention rounds queries and weights to: what its cache holds, unless products are exact. */
static const char *attention_type(const builder *b, const mt_step *step) {
    const bool half = step->cache && (!strcmp(step->cache, "f16") || !strcmp(step->cache, "bf16"));
    return strcmp(b->products, "f32") && half ? step->cache : "f32";
}

/* x · wᵀ (+ bias) as heads [rows, heads, head_dim] (heads > 0) or as rows. */
static mt_tensor project(builder *b, int64_t layer, const char *part, mt_tensor x, int64_t rows, int64_t columns,
                         int64_t heads) {
    char name[NAME_BYTES], full[NAME_BYTES];
    snprintf(name, sizeof name, "%s.weight", part);
    const char *product = product_type(b, layer_name(full, layer, name));
    const mt_tensor w = layer_weight(b, layer, name, false, 2, rows, columns);
    snprintf(name, sizeof name, "%s.bias", part);
    const mt_tensor bias = layer_weight(b, layer, name, true, 1, rows, 0);
    mt_tensor y = NODE(b, "linear", layer, part, MT_OPERAND("x", x), MT_OPERAND("w", w), MT_OPERAND_TYPE("P", product));
    if (bias >= 0) y = NODE(b, "bias", layer, name, MT_OPERAND("x", y), MT_OPERAND("b", bias));
    return heads ? reshape(b, y, 3, (int64_t[]){b->rows, heads, b->i->head_dim}) : y;
}

/* A norm of each query or key head. */
static mt_tensor head_norm(builder *b, int64_t layer, const char *part, mt_tensor heads) {
    const mt_tensor g = layer_weight(b, layer, part, false, 1, b->i->head_dim, 0);
    return NODE(b, "head_norm", layer, part, MT_OPERAND("x", heads), MT_OPERAND("g", g),
                MT_OPERAND_FLOAT("eps", (float)b->m->norm_epsilon));
}

static void append(builder *b, int64_t layer, const char *part, mt_tensor heads, mt_tensor cache) {
    NODE(b, "append", layer, part, MT_OPERAND("x", heads), MT_OPERAND_LIVE("pos", b->pos), MT_OPERAND("cache", cache));
}

static mt_tensor cache(builder *b, const mt_step *step, int64_t layer, char kind) {
    mt_tensor t = -1;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "cache.%c.%lld", kind, (long long)layer);
    if (b->status == MT_OK)
        b->status = mt_graph_tensor(b->g, MT_STATE, name, step->cache ? step->cache : "f32", 3,
                                    (int64_t[]){step->context, b->i->kv_heads, b->i->head_dim}, &t, b->error);
    return t;
}

static mt_tensor attention(builder *b, const mt_step *step, int64_t layer, mt_tensor x) {
    const mt_model_info *i = b->i;
    const mt_tensor t = norm(b, layer, "attn_norm.weight", x);
    const mt_tensor keys = cache(b, step, layer, 'k'), values = cache(b, step, layer, 'v');
    mt_tensor q = project(b, layer, "attn_q", t, i->heads * i->head_dim, i->hidden, i->heads);
    mt_tensor k = project(b, layer, "attn_k", t, i->kv_heads * i->head_dim, i->hidden, i->kv_heads);
    const mt_tensor v = project(b, layer, "attn_v", t, i->kv_heads * i->head_dim, i->hidden, i->kv_heads);
    if (b->style->head_norms) { /* all three products come before what may have to wait for a whole head */
        append(b, layer, "append_v", v, values);
        q = head_norm(b, layer, "attn_q_norm.weight", q);
        k = head_norm(b, layer, "attn_k_norm.weight", k);
    }
    q = NODE(b, b->style->rope, layer, "rope_q", MT_OPERAND("x", q), MT_OPERAND("angles", b->angles));
    k = NODE(b, b->style->rope, layer, "rope_k", MT_OPERAND("x", k), MT_OPERAND("angles", b->angles));
    append(b, layer, "append_k", k, keys);
    if (!b->style->head_norms) append(b, layer, "append_v", v, values);
    const mt_tensor y =
        NODE(b, "attention", layer, "attention", MT_OPERAND("q", q), MT_OPERAND("kc", keys), MT_OPERAND("vc", values),
             MT_OPERAND_LIVE("pos", b->pos), MT_OPERAND_FLOAT("scale", (float)(1 / sqrt((double)i->head_dim))),
             MT_OPERAND_TYPE("P", attention_type(b, step)));
    const mt_tensor rows = reshape(b, y, 2, (int64_t[]){b->rows, i->heads * i->head_dim});
    const mt_tensor o = project(b, layer, "attn_output", rows, i->hidden, i->heads * i->head_dim, 0);
    return NODE(b, "add", layer, "attn_add", MT_OPERAND("a", o), MT_OPERAND("b", x));
}

static mt_tensor feed_forward(builder *b, int64_t layer, mt_tensor x) {
    const mt_tensor t = norm(b, layer, "ffn_norm.weight", x);
    const mt_tensor gate = project(b, layer, "ffn_gate", t, b->i->ffn, b->i->hidden, 0);
    const mt_tensor up = project(b, layer, "ffn_up", t, b->i->ffn, b->i->hidden, 0);
    const mt_tensor h = NODE(b, "silu_mul", layer, "ffn_act", MT_OPERAND("a", gate), MT_OPERAND("b", up));
    const mt_tensor y = project(b, layer, "ffn_down", h, b->i->hidden, b->i->ffn, 0);
    return NODE(b, "add", layer, "ffn_add", MT_OPERAND("a", y), MT_OPERAND("b", x));
}

mt_status decoder_graph(const mt_model *m, const decoder_style *style, const mt_step *step, mt_graph *g,
                        mt_error *error) {
    builder b = {.m = m,
                 .style = style,
                 .g = g,
                 .i = &m->info,
                 .rows = step->rows,
                 .products = step->products ? step->products : "f32",
                 .error = error,
                 .status = MT_OK};
    const mt_model_info *i = b.i;
    const int64_t rows[1] = {step->rows}, half[1] = {i->head_dim / 2};
    mt_tensor ids, frequencies, x, logits = -1;
    mt_live live = -1;
    b.status = mt_graph_live(g, "pos", 0, step->context - 1, &b.pos, error);
    if (b.status == MT_OK && step->rows > 1) b.status = mt_graph_live(g, "rows", 1, step->rows, &live, error);
    if (b.status == MT_OK)
        b.status = mt_graph_tensor(g, step->sampling ? MT_STATE : MT_INPUT, "ids", "i32", 1, rows, &ids, error);
    if (b.status == MT_OK && live >= 0) b.status = mt_graph_live_extent(g, ids, 0, live, error);
    if (b.status == MT_OK)
        b.status = mt_graph_tensor(g, MT_WEIGHT, "rope.frequencies", "f32", 1, half, &frequencies, error);
    if (b.status == MT_OK)
        b.status = mt_graph_tensor(g, MT_TEMP, NULL, "f32", 3, (int64_t[]){step->rows, half[0], 2}, &b.angles, error);
    if (b.status == MT_OK && live >= 0) b.status = mt_graph_live_extent(g, b.angles, 0, live, error);
    if (b.status != MT_OK) return b.status;
    NODE(&b, "rope_table", -1, "rope_table", MT_OPERAND("freq", frequencies), MT_OPERAND_LIVE("pos", b.pos),
         MT_OPERAND("angles", b.angles));
    const mt_tensor table = weight(&b, "token_embd.weight", false, 2, (int64_t[]){i->vocab, i->hidden});
    x = NODE(&b, "embed", -1, "token_embd", MT_OPERAND("ids", ids), MT_OPERAND("w", table),
             MT_OPERAND_TYPE("T", "f32"));
    for (int64_t layer = 0; layer < i->layers; layer++) x = feed_forward(&b, layer, attention(&b, step, layer, x));
    const bool all = step->all_logits || step->rows == 1;
    if (!all) x = NODE(&b, "last_row", -1, "last_row", MT_OPERAND("x", x));
    const mt_tensor w = strcmp(m->output, "token_embd.weight")
                            ? weight(&b, m->output, false, 2, (int64_t[]){i->vocab, i->hidden})
                            : table;
    if (b.status == MT_OK)
        b.status = mt_graph_tensor(g, step->sampling ? MT_STATE : MT_OUTPUT, "logits", "f32", 2,
                                   (int64_t[]){all ? step->rows : 1, i->vocab}, &logits, error);
    if (b.status == MT_OK && all && live >= 0) b.status = mt_graph_live_extent(g, logits, 0, live, error);
    const mt_tensor t = norm(&b, -1, "output_norm.weight", x);
    NODE(&b, "linear", -1, "output", MT_OPERAND("x", t), MT_OPERAND("w", w), MT_OPERAND("y", logits),
         MT_OPERAND_TYPE("P", product_type(&b, m->output)));
    if (b.status == MT_OK && step->sampling) b.status = model_sample(g, step, i->vocab, logits, b.pos, ids, error);
    return b.status;
}
