/* The choice of the next token as nodes of a step's graph. Most nodes work on pieces of the vocabulary, so that no
 * processor reads all of it. What takes time is one node's waiting for another:
 *   PLAIN     most, pick
 *   FEW       best, choose
 *   NUCLEUS   best, choose; then the search for top-p (7), weigh, pick, which do nothing when `choose` could choose
 *   FILTERED  most, the search for top-k (7), total, share, the search for top-p (7), weigh, pick */
#include "model/model.h"

enum { PIECES = 128, LEAST_PIECE = 256 }; /* as many pieces as a large GPU has processors, or a few less */

typedef struct sampling {
    mt_graph *g;
    mt_tensor logits, options, words, stops, uniform, token, stop, tokens;
    mt_tensor most, place, mass, whole, done; /* whole: the cut that cuts nothing */
    mt_live pos;
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

/* The weights that a cut leaves, by pieces. */
static mt_tensor weigh(sampling *s, mt_tensor cut, bool end) {
    const mt_tensor mass = tensor(s, MT_TEMP, NULL, "f64", 1, s->pieces, 0);
    NODE(s, "sample_weigh", end ? "sample.weigh" : "sample.total", MT_OPERAND("x", s->logits),
         MT_OPERAND("most", s->most), MT_OPERAND("options", s->options), MT_OPERAND("cut", cut),
         MT_OPERAND("done", s->done), MT_OPERAND_INTEGER("end", end), MT_OPERAND("mass", mass),
         MT_OPERAND_INTEGER("CHUNK", s->piece));
    return mass;
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

static mt_tensor filter(sampling *s) {
    const mt_tensor count = tensor(s, MT_TEMP, NULL, "f64", 1, 1, 0), share = tensor(s, MT_TEMP, NULL, "f64", 1, 1, 0);
    NODE(s, "sample_count", "sample.count", MT_OPERAND("options", s->options), MT_OPERAND("words", s->words),
         MT_OPERAND("goal", count));
    const mt_tensor cut = cut_off(s, s->whole, count, false);
    const mt_tensor left = weigh(s, cut, false);
    NODE(s, "sample_share", "sample.share", MT_OPERAND("options", s->options), MT_OPERAND("mass", left),
         MT_OPERAND("goal", share));
    return cut_off(s, cut, share, true);
}

/* Chooses among the most likely ones. Returns the goal of a search for top-p, and sets s->done. */
static mt_tensor few(sampling *s) {
    const mt_tensor best = tensor(s, MT_TEMP, NULL, "i64", 1, s->pieces * MT_SAMPLE_MOST, 0),
                    heads = tensor(s, MT_TEMP, NULL, "u32", 2, s->pieces, MT_SAMPLE_MOST / 4),
                    mass = tensor(s, MT_TEMP, NULL, "f64", 1, s->pieces, 0),
                    goal = tensor(s, MT_TEMP, NULL, "f64", 1, 1, 0);
    s->done = tensor(s, MT_TEMP, NULL, "i32", 1, 1, 0);
    NODE(s, "sample_best", "sample.best", MT_OPERAND("x", s->logits), MT_OPERAND("options", s->options),
         MT_OPERAND("words", s->words), MT_OPERAND("best", best), MT_OPERAND("heads", heads), MT_OPERAND("mass", mass),
         MT_OPERAND_INTEGER("CHUNK", s->piece));
    NODE(s, "sample_choose", "sample.choose", MT_OPERAND("best", best), MT_OPERAND("heads", heads),
         MT_OPERAND("mass", mass), MT_OPERAND("options", s->options), MT_OPERAND("words", s->words),
         MT_OPERAND("stops", s->stops), MT_OPERAND("u", s->uniform), MT_OPERAND_LIVE("pos", s->pos),
         MT_OPERAND("token", s->token), MT_OPERAND("stop", s->stop), MT_OPERAND("tokens", s->tokens),
         MT_OPERAND("goal", goal), MT_OPERAND("done", s->done));
    return goal;
}

static void most(sampling *s) {
    s->most = tensor(s, MT_TEMP, NULL, "f32", 1, s->pieces, 0);
    s->place = tensor(s, MT_TEMP, NULL, "i32", 1, s->pieces, 0);
    s->mass = tensor(s, MT_TEMP, NULL, "f64", 1, s->pieces, 0);
    NODE(s, "sample_most", "sample.most", MT_OPERAND("x", s->logits), MT_OPERAND("options", s->options),
         MT_OPERAND("most", s->most), MT_OPERAND("place", s->place), MT_OPERAND("mass", s->mass),
         MT_OPERAND_INTEGER("CHUNK", s->piece));
}

static void pick(sampling *s, mt_tensor cut, mt_tensor mass) {
    NODE(s, "sample_pick", "sample.pick", MT_OPERAND("x", s->logits), MT_OPERAND("most", s->most),
         MT_OPERAND("place", s->place), MT_OPERAND("options", s->options), MT_OPERAND("stops", s->stops),
         MT_OPERAND("cut", cut), MT_OPERAND("mass", mass), MT_OPERAND("done", s->done),
         MT_OPERAND_INTEGER("own", mass == s->mass), MT_OPERAND("u", s->uniform), MT_OPERAND_LIVE("pos", s->pos),
         MT_OPERAND("token", s->token), MT_OPERAND("stop", s->stop), MT_OPERAND("tokens", s->tokens),
         MT_OPERAND_INTEGER("CHUNK", s->piece));
}

mt_status model_sample(mt_graph *g, const mt_step *step, int64_t vocab, mt_tensor logits, mt_live pos, mt_tensor token,
                       mt_error *error) {
    sampling s = {.g = g, .logits = logits, .pos = pos, .token = token, .error = error, .status = MT_OK};
    s.piece = (int64_t)align_up((uint64_t)ceil_div(vocab, PIECES), LEAST_PIECE);
    s.pieces = ceil_div(vocab, s.piece);
    s.options = tensor(&s, MT_INPUT, "sample.options", "f32", 1, 4, 0);
    s.words = tensor(&s, MT_INPUT, "sample.words", "u32", 1, 4, 0);
    s.stops = tensor(&s, MT_INPUT, "sample.stops", "i32", 1, MT_SAMPLE_STOPS, 0);
    s.stop = tensor(&s, MT_STATE, "stop", "i32", 1, 1, 0);
    s.tokens = tensor(&s, MT_OUTPUT, "tokens", "i32", 1, step->context + (int64_t)1, 0);
    s.uniform = tensor(&s, MT_TEMP, NULL, "f64", 1, 1, 0);
    NODE(&s, "sample_uniform", "sample.uniform", MT_OPERAND("words", s.words), MT_OPERAND_LIVE("pos", pos),
         MT_OPERAND("u", s.uniform));
    mt_tensor goal = -1;
    if (step->sampling == MT_SAMPLE_FEW || step->sampling == MT_SAMPLE_NUCLEUS)
        goal = few(&s);
    else
        s.done = tensor(&s, MT_STATE, "sample.done", "i32", 1, 1, 0); /* never written: zero */
    if (step->sampling == MT_SAMPLE_FEW) return s.status;
    s.whole = tensor(&s, MT_STATE, "sample.whole", "i64", 1, 2, 0); /* never written: zeros */
    most(&s);
    if (step->sampling == MT_SAMPLE_PLAIN) {
        pick(&s, s.whole, s.mass);
    } else {
        const mt_tensor cut = goal >= 0 ? cut_off(&s, s.whole, goal, true) : filter(&s);
        pick(&s, cut, weigh(&s, cut, true));
    }
    return s.status;
}
