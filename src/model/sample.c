/* The choice of the next token as nodes of a step's graph. Every node but the last works on pieces of the vocabulary,
 * so that no processor reads all of it. */
#include "model/model.h"

enum { PIECES = 128, LEAST_PIECE = 256 }; /* as many pieces as a large GPU has processors, or a few less */

typedef struct sampling {
    mt_graph *g;
    mt_tensor logits, most, place, options, words, stops;
    int64_t piece, pieces;
    mt_error *error;
    mt_status status;
} sampling;

static mt_tensor tensor(sampling *s, mt_role role, const char *name, const char *type, int rank, int64_t rows,
                        int64_t columns) {
    mt_tensor t = -1;
    if (s->status == MT_OK)
        s->status = mt_graph_tensor(s->g, role, name, type, rank, (int64_t[]){rows, columns}, &t, s->error);
    return t;
}

static void node(sampling *s, const char *program, const char *name, const mt_operand *operands, size_t count) {
    if (s->status == MT_OK) s->status = mt_graph_node(s->g, NULL, program, name, operands, count, NULL, s->error);
}
#define NODE(s, program, name, ...)                                                                                    \
    node(s, program, name, (mt_operand[]){__VA_ARGS__}, sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand))

/* The weights that a cut leaves, by pieces and by rows. */
typedef struct weights {
    mt_tensor mass, rows;
} weights;

static weights weigh(sampling *s, mt_tensor cut, bool end) {
    const weights w = {tensor(s, MT_TEMP, NULL, "f64", 1, s->pieces, 0),
                       tensor(s, MT_TEMP, NULL, "f64", 2, s->pieces, s->piece / 32)};
    NODE(s, "sample_weigh", end ? "sample.weigh" : "sample.total", MT_OPERAND("x", s->logits),
         MT_OPERAND("most", s->most), MT_OPERAND("options", s->options), MT_OPERAND("cut", cut),
         MT_OPERAND_INTEGER("end", end), MT_OPERAND("mass", w.mass), MT_OPERAND("rows", w.rows),
         MT_OPERAND_INTEGER("CHUNK", s->piece));
    return w;
}

/* Cuts the tail off: what is in front of the cut comes to `goal`, in tokens or by weight. A key's 32 bits are found 6
 * at a time. */
static mt_tensor cut_off(sampling *s, mt_tensor before, mt_tensor goal, bool by_weight) {
    static const int shifts[] = {26, 20, 14, 8, 2, 0};
    const char *name = by_weight ? "sample.top_p" : "sample.top_k";
    mt_tensor low = -1, part = -1;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        const mt_tensor next_low = tensor(s, MT_TEMP, NULL, "u32", 1, s->pieces, 0),
                        next_part = tensor(s, MT_TEMP, NULL, "f64", 2, 64, s->pieces);
        if (i == 0)
            NODE(s, "sample_first", name, MT_OPERAND("x", s->logits), MT_OPERAND("most", s->most),
                 MT_OPERAND("options", s->options), MT_OPERAND("goal", goal), MT_OPERAND_INTEGER("by", by_weight),
                 MT_OPERAND("low", next_low), MT_OPERAND("part", next_part), MT_OPERAND_INTEGER("CHUNK", s->piece));
        else
            NODE(s, "sample_narrow", name, MT_OPERAND("x", s->logits), MT_OPERAND("most", s->most),
                 MT_OPERAND("options", s->options), MT_OPERAND("goal", goal), MT_OPERAND_INTEGER("by", by_weight),
                 MT_OPERAND_INTEGER("shift", shifts[i]), MT_OPERAND_INTEGER("last", shifts[i - 1]),
                 MT_OPERAND("low", low), MT_OPERAND("part", part), MT_OPERAND("new_low", next_low),
                 MT_OPERAND("new_part", next_part), MT_OPERAND_INTEGER("CHUNK", s->piece));
        low = next_low;
        part = next_part;
    }
    const mt_tensor cut = tensor(s, MT_TEMP, NULL, "i64", 1, 2, 0);
    NODE(s, "sample_cut", name, MT_OPERAND("x", s->logits), MT_OPERAND("most", s->most),
         MT_OPERAND("options", s->options), MT_OPERAND("goal", goal), MT_OPERAND_INTEGER("by", by_weight),
         MT_OPERAND("low", low), MT_OPERAND("part", part), MT_OPERAND("before", before), MT_OPERAND("cut", cut),
         MT_OPERAND_INTEGER("CHUNK", s->piece));
    return cut;
}

static mt_tensor filter(sampling *s, mt_tensor all) {
    const mt_tensor count = tensor(s, MT_TEMP, NULL, "f64", 1, 1, 0), share = tensor(s, MT_TEMP, NULL, "f64", 1, 1, 0);
    NODE(s, "sample_count", "sample.count", MT_OPERAND("options", s->options), MT_OPERAND("words", s->words),
         MT_OPERAND("goal", count));
    const mt_tensor cut = cut_off(s, all, count, false);
    const weights left = weigh(s, cut, false);
    NODE(s, "sample_share", "sample.share", MT_OPERAND("options", s->options), MT_OPERAND("mass", left.mass),
         MT_OPERAND("goal", share));
    return cut_off(s, cut, share, true);
}

mt_status model_sample(mt_graph *g, const mt_step *step, int64_t vocab, mt_tensor logits, mt_live pos, mt_tensor token,
                       mt_error *error) {
    sampling s = {.g = g, .logits = logits, .error = error, .status = MT_OK};
    s.piece = (int64_t)align_up((uint64_t)ceil_div(vocab, PIECES), LEAST_PIECE);
    s.pieces = ceil_div(vocab, s.piece);
    s.options = tensor(&s, MT_INPUT, "sample.options", "f32", 1, 4, 0);
    s.words = tensor(&s, MT_INPUT, "sample.words", "u32", 1, 4, 0);
    s.stops = tensor(&s, MT_INPUT, "sample.stops", "i32", 1, MT_SAMPLE_STOPS, 0);
    s.most = tensor(&s, MT_TEMP, NULL, "f32", 1, s.pieces, 0);
    s.place = tensor(&s, MT_TEMP, NULL, "i32", 1, s.pieces, 0);
    const mt_tensor stop = tensor(&s, MT_STATE, "stop", "i32", 1, 1, 0),
                    tokens = tensor(&s, MT_OUTPUT, "tokens", "i32", 1, step->context + (int64_t)1, 0),
                    all = tensor(&s, MT_STATE, "sample.all", "i64", 1, 2, 0); /* never written: zeros */
    NODE(&s, "sample_most", "sample.most", MT_OPERAND("x", logits), MT_OPERAND("most", s.most),
         MT_OPERAND("place", s.place), MT_OPERAND_INTEGER("CHUNK", s.piece));
    const mt_tensor cut = step->sampling == MT_SAMPLE_FILTERED ? filter(&s, all) : all;
    const weights w = weigh(&s, cut, true);
    NODE(&s, "sample_pick", "sample.pick", MT_OPERAND("x", logits), MT_OPERAND("most", s.most),
         MT_OPERAND("place", s.place), MT_OPERAND("options", s.options), MT_OPERAND("words", s.words),
         MT_OPERAND("stops", s.stops), MT_OPERAND("cut", cut), MT_OPERAND("mass", w.mass), MT_OPERAND("rows", w.rows),
         MT_OPERAND_LIVE("pos", pos), MT_OPERAND("token", token), MT_OPERAND("stop", stop),
         MT_OPERAND("tokens", tokens), MT_OPERAND_INTEGER("CHUNK", s.piece));
    return s.status;
}
