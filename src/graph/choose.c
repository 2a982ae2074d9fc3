/* Choosing tile sizes for a target from the access summary alone: no knowledge of any operation is here.
 *
 * A program's `tune` clause names the constants that are free and their choices. For each combination the pass binds
 * the op, lays out the grid and estimates the time of the node on P processors: the largest number of instructions one
 * processor gets, times what one instruction costs, which is the larger of its bytes over a processor's bandwidth and
 * its flops over its rate, plus a fixed cost for starting it (graph_costs, one row for each kind of machine). Nodes one
 * after another take their sum and a hand-off for each further one (graph_foresee_stages): fuse.c and split.c compare
 * compositions so.
 * Instruction 0 stands for all. Ties go to the earlier combination.
 *
 * A machine with tensor cores that want many rows (GPUs) has two sets of rates: one for products that the lowering
 * makes wide (tile/role.h) there, with these tile sizes and these operands, and for decoding weights to them, by bytes,
 * whose time comes on top; one for all else, and then larger tiles than its code is made for are taken only when
 * nothing else fits. GPUs differ: by their architecture, which says, too, which tiles have room in their shared memory.
 *
 * Neighbours that read the same first operand and do not wait for each other (the projections of one input) run at the
 * same time: each has a part of the processors, as large as its part of their weights.
 *
 * Requires: operands of every node. Ensures: every tunable constant of every node is fixed. */
#include "graph/graph_internal.h"
#include "tile/role.h"

enum { MOST_COMBINATIONS = 256 };

static const graph_costs costs[] = {
    {.machine = "cpu",
     .bytes_per_second = 12e9,
     .flops_per_second = 60e9,
     .start_seconds = 0.4e-6,
     .most_dot_rows = 64,
     .most_dot_columns = 128},
/* Hand-offs: on an H200 a further node of a few short instructions was measured to make a step some 4 us longer; what
 * its own instructions take to start is in that. FLOP/s: 16 rows are limited by them; prompts of 16 rows in Q4_1, of 64
 * rows in bf16 took 0.31 and 0.34 TFLOP/s of an SM. (Fewer rows are limited by bytes.) */
#define MMA_COSTS                                                                                                      \
    .bytes_per_second = 34e9, .flops_per_second = 0.35e12, .start_seconds = 1.5e-6, .hand_off_seconds = 2.5e-6,        \
    .most_dot_rows = 16, .most_dot_columns = 128, .splits = true
    /* an H200's SM: 4.5 TB/s over 132, and what 8192^3 in bf16 takes (592 TFLOP/s), of which mma.sync with few rows
     * reaches a part. Wide tiles come out of the L2 cache. Decoding is added: 4096^3 in Q4_1 took 90 us a tile of 128 x
     * 256 where the product alone takes 58, in Q8_0 116: 20 GB/s of blocks either way (Q6_K: 11 to 13). */
    {.machine = "cuda",
     .architectures = "90",
     MMA_COSTS,
     .wide_bytes_per_second = 50e9,
     .wide_flops_per_second = 4.8e12,
     .decoded_bytes_per_second = 20e9},
    /* GPUs without wgmma: all products are of few rows */
    {.machine = "cuda", .architectures = "100 101 103 110", .major = 10, .shared_bytes = 232448, MMA_COSTS},
    {.machine = "cuda", .architectures = "80 87", .major = 8, .shared_bytes = 166912, MMA_COSTS},
    {.machine = "cuda", .architectures = "120 121", .major = 12, .shared_bytes = 101376, MMA_COSTS},
    {.machine = "cuda", .architectures = "", .major = 8, .shared_bytes = 101376, MMA_COSTS},
};
#undef MMA_COSTS

/* A number of the list, or any, if the list is empty. */
static bool has_number(const char *list, const char *number, size_t length) {
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && !memcmp(at, number, length)) return true;
    return !*list;
}

const graph_costs *graph_costs_of(const char *machine, const char *architecture) {
    const char *number = architecture && !strncmp(architecture, "sm_", 3) ? architecture + 3 : "90";
    const size_t digits = strspn(number, "0123456789");
    size_t length = strcspn(machine, ":");
    if (length == 3 && !memcmp(machine, "sim", 3)) machine = "cuda", length = 4; /* it runs the GPU's programs */
    for (size_t i = 0; i < COUNT_OF(costs); i++)
        if (strlen(costs[i].machine) == length && !memcmp(costs[i].machine, machine, length) &&
            (!costs[i].architectures || has_number(costs[i].architectures, number, digits)))
            return &costs[i];
    return NULL;
}

/* The most rows, or columns, of a dot in an op. */
static int64_t dot_extent(const tile_node *n, int dimension) {
    if (!n) return 0;
    int64_t most = n->kind == TILE_DOT ? n->shape.extent[dimension] : 0;
    for (const tile_node *const *child = (const tile_node *const[]){n->a, n->b, n->c, NULL}; *child; child++)
        most = max_i64(most, dot_extent(*child, dimension));
    for (int i = 0; i < n->count; i++) most = max_i64(most, dot_extent(n->list[i], dimension));
    return most;
}

static int64_t statement_extent(const tile_statement *s, int dimension) {
    int64_t most = 0;
    for (; s; s = s->next) {
        most = max_i64(most, dot_extent(s->value, dimension));
        most = max_i64(most, statement_extent(s->body, dimension));
        most = max_i64(most, statement_extent(s->otherwise, dimension));
    }
    return most;
}

/* ---- wide products ---- */

/* The operand is a tensor, or a part of one, that the copy engine can read in pieces. */
static bool is_mapped(const graph_view *v) {
    bool good = v->rank >= 2 && v->rank <= 3 && v->offset % 8 == 0 && v->stride[v->rank - 1] == 1;
    for (int d = 0; d < v->rank - 1; d++) good = good && v->stride[d] % 8 == 0;
    return good;
}

/* At least half of every tile that is stored lies in its tensor, in each dimension. */
static bool tiles_are_filled(const mt_graph *g, const graph_node *n, const tile_statement *s) {
    for (; s; s = s->next) {
        for (int d = 0; s->kind == TILE_STORE && d < s->access->rank; d++)
            if (s->access->item[d].size >= 2 * g->views[n->operand[s->access->param]].extent[d] &&
                s->access->item[d].size > 1)
                return false;
        if (!tiles_are_filled(g, n, s->body) || !tiles_are_filled(g, n, s->otherwise)) return false;
    }
    return true;
}

/* An op of the node's is wide with the operands that the node has: enough rows to fill half a tile, weights that can be
 * re-laid. *decoded: bytes of weights that an instruction decodes. */
static bool is_wide(const mt_graph *g, const graph_node *n, const tile_op *op, const graph_target *target,
                    int64_t *decoded) {
    role_wide_needs needs;
    *decoded = 0;
    if (!target->costs->wide_flops_per_second || statement_extent(op->body, 0) < 64 ||
        !tiles_are_filled(g, n, op->body) || !role_has_wide(op, &needs))
        return false;
    bool wide = true;
    for (int p = 0; p < n->param_count && wide; p++) {
        if (needs.mapped[p]) wide = is_mapped(&g->views[n->operand[p]]);
        if (needs.weight[p])
            wide = wide && g->tensors[g->views[n->operand[p]].tensor].role == MT_WEIGHT &&
                   graph_view_is_whole(g, &g->views[n->operand[p]]);
    }
    *decoded = needs.decoded;
    return wide;
}

/* ---- nodes ---- */

/* What becomes of a node with one choice of tile sizes. */
typedef struct outlook {
    int64_t value[TILE_CONSTANTS];
    int64_t instructions;
    double seconds; /* of one of them */
    double penalty; /* a factor on the whole: what has no fast code, or no room */
    bool wide, steady;
} outlook;

typedef struct graph_choices { /* all that fit a node, in the order of the clause */
    const char *constant[TILE_CONSTANTS];
    int constant_count;
    outlook *outlooks;
    size_t count, capacity;
} graph_choices;

/* The bytes of a node's weights. */
double graph_weight_bytes(const mt_graph *g, const graph_node *n) {
    double bytes = 0;
    for (int p = 0; p < n->param_count; p++) {
        if (n->signature[p].kind != TILE_IN) continue;
        const graph_view *v = &g->views[n->operand[p]];
        const graph_tensor *t = &g->tensors[v->tensor];
        if (t->role == MT_WEIGHT)
            bytes +=
                (double)graph_count(v->rank, v->extent) * (double)t->bytes / (double)graph_count(t->rank, t->extent);
    }
    return bytes;
}

static int first_input(const mt_graph *g, const graph_node *n) {
    for (int p = 0; p < n->param_count; p++)
        if (n->signature[p].kind == TILE_IN) return g->views[n->operand[p]].tensor;
    return -1;
}

/* Node b, behind a, reads or writes something that a writes. */
static bool waits_for(const mt_graph *g, const graph_node *b, const graph_node *a) {
    for (int p = 0; p < a->param_count; p++)
        for (int q = 0; q < b->param_count; q++)
            if (a->signature[p].kind <= TILE_INOUT && b->signature[q].kind <= TILE_INOUT &&
                a->signature[p].kind != TILE_IN && g->views[a->operand[p]].tensor == g->views[b->operand[q]].tensor)
                return true;
    return false;
}

int graph_processors_of(const mt_graph *g, size_t n, const graph_target *target) {
    enum { FEW = 16, MOST_BESIDE = 8 };
    const graph_node *nodes = g->nodes;
    const int input = first_input(g, &nodes[n]);
    const double own = graph_weight_bytes(g, &nodes[n]);
    if (target->processors < FEW || input < 0 || own <= 0) return target->processors;
    size_t first = n, end = n + 1;
    while (first > 0 && n - first < MOST_BESIDE && first_input(g, &nodes[first - 1]) == input) first--;
    while (end < g->node_count && end - n < MOST_BESIDE && first_input(g, &nodes[end]) == input) end++;
    double all = own;
    for (size_t i = first; i < end; i++)
        if (i != n && !(i < n ? waits_for(g, &nodes[n], &nodes[i]) : waits_for(g, &nodes[i], &nodes[n])))
            all += graph_weight_bytes(g, &nodes[i]);
    const int share = (int)(target->processors * own / all);
    return share < 1 ? 1 : share;
}

/* The first instruction has the same to do at all live values. */
static bool is_steady(const tile_instance *i) {
    tile_instance least = *i;
    tile_summary a, b;
    const int64_t first[TILE_AXES] = {0};
    for (int l = 0; l < i->op->live_count; l++) least.live[l].most = least.live[l].least;
    tile_summarise(i, first, &a);
    tile_summarise(&least, first, &b);
    return a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written && a.flops == b.flops;
}

/* A wide product's instruction multiplies 64 rows with N columns, those of a warpgroup, and reads both from shared
 * memory: the fewer the columns, the longer each takes. Of a tile of 256 columns, 128 rows: 1. */
static double wide_slowness(const tile_op *op) {
    const double columns = (double)statement_extent(op->body, 1) / (statement_extent(op->body, 0) > 64 ? 1 : 2);
    return (1 + 64 / columns) / (1 + 64 / 256.0);
}

/* The seconds of one instruction. */
static double estimate(const tile_instance *i, const graph_costs *c, bool wide, int64_t decoded) {
    const double bytes_per_second = wide ? c->wide_bytes_per_second : c->bytes_per_second,
                 flops_per_second = wide ? c->wide_flops_per_second / wide_slowness(i->op) : c->flops_per_second;
    tile_summary s;
    const int64_t first[TILE_AXES] = {0};
    tile_summarise(i, first, &s);
    const double bytes = (double)(s.bytes_read + s.bytes_written) / bytes_per_second,
                 flops =
                     (double)s.flops / flops_per_second + (decoded ? (double)decoded / c->decoded_bytes_per_second : 0);
    return (bytes > flops ? bytes : flops) + c->start_seconds;
}

static bool is_fixed(const tile_constant *fixed, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(fixed[i].name, name)) return true;
    return false;
}

/* With these constants. False: they do not fit the node's shapes. */
static bool look(mt_graph *g, const graph_node *n, const graph_target *target, const tile_constant *constants,
                 int count, outlook *out) {
    const graph_costs *costs_of = target->costs;
    const tile_op *op;
    tile_instance instance;
    mt_error ignored;
    int64_t grid[TILE_AXES], decoded;
    if (graph_try_node(g, n, constants, (size_t)count, &op, &ignored) != MT_OK) return false;
    graph_node_instance(g, n, op, &instance);
    if (tile_instance_check(&instance, &ignored) != MT_OK) return false;
    *out = (outlook){.instructions = tile_instance_grid(&instance, grid), .penalty = 1};
    if (out->instructions < 0) return false;
    for (int c = 0; c < count; c++) out->value[c] = constants[c].value;
    out->wide = is_wide(g, n, op, target, &decoded);
    out->steady = is_steady(&instance);
    out->seconds = estimate(&instance, costs_of, out->wide, decoded);
    if (!out->wide && (statement_extent(op->body, 0) > costs_of->most_dot_rows ||
                       statement_extent(op->body, 1) > costs_of->most_dot_columns))
        out->penalty *= 1e6; /* slow */
    const role_chip chip = role_chip_of(costs_of->major, costs_of->shared_bytes);
    if (costs_of->shared_bytes && !role_fits(op, &chip)) out->penalty *= 1e9;
    return true;
}

/* Tries all combinations of a node's tile sizes. */
static mt_status find_choices(mt_graph *g, const graph_node *n, const graph_target *target, graph_choices *out,
                              mt_error *error) {
    tile_constant fixed[TILE_CONSTANTS * 8], known[TILE_CONSTANTS], tried[TILE_CONSTANTS];
    int64_t choices[TILE_CONSTANTS][16];
    int choice_count[TILE_CONSTANTS], at[TILE_CONSTANTS] = {0}, count = 0;
    size_t fixed_count;
    const mt_status status = graph_infer_constants(g, n, fixed, &fixed_count, error);
    if (status != MT_OK) return status;
    const int known_count = tile_constants(n->file, n->program, known);
    for (int k = 0; k < known_count; k++) {
        if (is_fixed(fixed, fixed_count, known[k].name)) continue;
        const int found = tile_tune(n->file, n->program, known[k].name, choices[count], COUNT_OF(choices[0]));
        if (found <= 0) continue;
        choice_count[count] = found;
        tried[count] = (tile_constant){.name = known[k].name};
        out->constant[count++] = known[k].name;
    }
    out->constant_count = count;
    for (int combination = 0, f = 0; f >= 0 && combination < MOST_COMBINATIONS; combination++) {
        outlook o;
        for (f = 0; f < count; f++) tried[f].value = choices[f][at[f]];
        if (look(g, n, target, tried, count, &o)) *ARENA_PUSH(g->memory, out->outlooks, out->count, out->capacity) = o;
        for (f = count - 1; f >= 0 && ++at[f] == choice_count[f]; f--) at[f] = 0;
    }
    return MT_OK;
}

/* The node's choices, which equal nodes share. */
static mt_status choices_of(mt_graph *g, const graph_node *n, const graph_target *target, const graph_choices **out,
                            mt_error *error) {
    graph_node_key(g, n);
    int64_t known = graph_key_get(g, &g->foreseen);
    if (known < 0) {
        char *key = arena_string(g->memory, g->key, g->key_length);
        const size_t length = g->key_length;
        graph_choices found = {0};
        const mt_status status = find_choices(g, n, target, &found, error);
        if (status != MT_OK) return status;
        known = (int64_t)g->choices_count;
        *ARENA_PUSH(g->memory, g->choices, g->choices_count, g->choices_capacity) = found;
        map_put(g->memory, &g->foreseen, key, length, known);
    }
    *out = &g->choices[known];
    return MT_OK;
}

static double seconds_on(const outlook *o, int processors) {
    return (double)ceil_div(o->instructions, processors) * o->seconds * o->penalty;
}

/* NULL: none fits. */
static const outlook *best_of(const graph_choices *c, int processors) {
    const outlook *best = NULL;
    for (size_t i = 0; i < c->count; i++)
        if (!best || seconds_on(&c->outlooks[i], processors) < seconds_on(best, processors)) best = &c->outlooks[i];
    return best;
}

bool graph_foresee(mt_graph *g, const graph_node *n, const graph_target *target, int processors, graph_forecast *out) {
    const graph_choices *choices;
    mt_error ignored;
    const outlook *best = choices_of(g, n, target, &choices, &ignored) == MT_OK ? best_of(choices, processors) : NULL;
    if (best) *out = (graph_forecast){seconds_on(best, processors), best->wide, best->steady};
    return best;
}

bool graph_foresee_stages(mt_graph *g, const graph_stage *stages, size_t count, const graph_target *target,
                          graph_forecast *out) {
    *out = (graph_forecast){.steady = true};
    for (size_t i = 0; i < count; i++) {
        graph_forecast f;
        if (!graph_foresee(g, stages[i].node, target, stages[i].processors, &f)) return false;
        out->seconds += f.seconds + (i ? target->costs->hand_off_seconds : 0);
        out->wide |= f.wide;
        out->steady &= f.steady;
    }
    return true;
}

bool graph_is_wide(mt_graph *g, const graph_node *n, const graph_target *target, int processors) {
    graph_forecast f;
    return target && target->costs->wide_flops_per_second > 0 && graph_foresee(g, n, target, processors, &f) && f.wide;
}

typedef struct choose_call {
    mt_graph *g;
    const graph_target *target;
    mt_error *error;
    mt_status status;
} choose_call;

static void run(void *context) {
    choose_call *c = context;
    mt_graph *g = c->g;
    for (size_t i = 0; i < g->node_count; i++) {
        graph_node *n = &g->nodes[i];
        const graph_choices *choices;
        if ((c->status = choices_of(g, n, c->target, &choices, c->error)) != MT_OK) return;
        const outlook *best = best_of(choices, graph_processors_of(g, i, c->target));
        if (!best && choices->constant_count) {
            c->status = error_set(c->error, MT_E_ARGUMENT, n->name, "none of the tile sizes of '%s' fits its operands",
                                  n->program);
            return;
        }
        for (int k = 0; k < choices->constant_count && n->constant_count < TILE_CONSTANTS; k++)
            graph_add_constant(g->memory, n, (graph_constant){.name = choices->constant[k], .value = best->value[k]});
    }
}

mt_status graph_choose(mt_graph *g, const graph_target *target, mt_error *error) {
    choose_call c = {.g = g, .target = target, .error = error, .status = MT_OK};
    if (!arena_protect(g->memory, run, &c))
        return error_set(error, MT_E_MEMORY, NULL, "no memory to choose tile sizes");
    return c.status;
}
