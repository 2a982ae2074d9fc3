/* Splitting: a node that leaves processors idle becomes the composition that its program names in `splits { ... }`,
 * whose first step has more instructions.
 *
 * The free constants of the composition (its `tune` choices, such as the positions of a part) have to be the same in
 * all its steps, since they decide the shapes between them. Two kinds of nodes are split:
 *   - FEW: whatever its tiles, the node's instructions keep less than half of the processors busy (attention over a
 *     long cache, while decoding). The choice taken is the first, in the order of the clause, whose largest step needs
 *     no more than one instruction of each processor; where none does, the last. Programs whose splits take one row at
 *     a time do not pay with many rows: a composition is not taken when it has more than MOST_WAVES instructions for
 *     each processor. Nor where it is estimated to take longer; but how long an instruction takes whose work depends on
 *     live values is not known;
 *   - WIDE: the first step's products are wide (tile/role.h). Wide tiles are few where they are large, and slow where
 *     they are small: they read more. In parts of the reduction large tiles are many. What that costs is the parts,
 *     written and read again, and one more hand-off; both are in the estimate that choose.c has of nodes. The choice
 *     taken is the one whose steps together take the least time, and only when they take less than the node. A node
 *     whose neighbours run beside it (the projections of one input) is left alone: the steps behind the first would
 *     stand between them.
 *
 * Requires: a checked graph, after fusion. Ensures: an equivalent graph, nodes in a valid order, sums in an order that
 * the program states; what the new steps can be fused with is fused by another run of graph_fuse. */
#include "graph/graph_internal.h"

enum { MOST_WAVES = 4 };

typedef struct splitter {
    mt_graph *g;
    const graph_target *target;
    mt_error *error;
    mt_status status;
    graph_node node; /* the one that is split */
    tile_step step[TILE_STEPS];
    int step_count;
} splitter;

typedef struct named { /* a tensor between the steps */
    const char *name;
    mt_tensor tensor;
} named;

static int find_param(const graph_node *n, const char *name) {
    for (int p = 0; p < n->param_count; p++)
        if (!strcmp(n->signature[p].name, name)) return p;
    return -1;
}

/* What a name of a step stands for: an operand of the node, or a tensor that an earlier step made. */
static bool operand_of(const splitter *s, const char *param, const char *name, const named *made, int made_count,
                       mt_operand *out) {
    const int p = find_param(&s->node, name);
    if (p < 0) {
        for (int i = 0; i < made_count; i++)
            if (!strcmp(made[i].name, name)) {
                *out = MT_OPERAND(param, made[i].tensor);
                return true;
            }
        return false;
    }
    const tile_signature_param *q = &s->node.signature[p];
    if (q->kind <= TILE_INOUT)
        *out = MT_OPERAND(param, s->node.operand[p]);
    else if (q->kind == TILE_PARAM_LIVE)
        *out = MT_OPERAND_LIVE(param, s->node.operand[p]);
    else if (q->type && q->type->scalar.kind == TILE_FLOAT)
        *out = MT_OPERAND_FLOAT(param, s->node.arg[p].f);
    else
        *out = MT_OPERAND_INTEGER(param, s->node.arg[p].i);
    return true;
}

/* Appends one step as a node. `made` grows by its outputs. */
static mt_status append_step(splitter *s, const tile_step *step, const tile_constant *choice, named *made,
                             int *made_count) {
    const tile_file *file = s->node.file;
    mt_operand operands[TILE_PARAMS + TILE_CONSTANTS + 1];
    mt_tensor outputs[TILE_PARAMS];
    const char *unknown[TILE_PARAMS];
    int unknown_at[TILE_PARAMS], unknown_count = 0, inputs = 0, outs = 0, params = 0;
    size_t count = 0;
    const tile_signature_param *signature = graph_signature(s->g, file, step->program, &params);
    for (int p = 0; p < params; p++) {
        const bool out = signature[p].kind == TILE_OUT;
        if (out ? outs >= step->output_count : inputs >= step->input_count) break;
        const char *name = out ? step->output[outs++] : step->input[inputs++];
        if (operand_of(s, signature[p].name, name, made, *made_count, &operands[count])) {
            count++;
        } else if (out) {
            unknown[unknown_count] = name;
            unknown_at[unknown_count++] = outs - 1;
        }
    }
    if (!signature || inputs != step->input_count || outs != step->output_count)
        return error_set(s->error, MT_E_ARGUMENT, s->node.name, "the steps that '%s' splits into do not fit '%s'",
                         s->node.program, step->program);
    for (int c = 0; c < s->node.constant_count; c++) {
        const graph_constant *k = &s->node.constants[c];
        if (!tile_has_constant(file, step->program, k->name)) continue;
        operands[count++] = k->type ? MT_OPERAND_TYPE(k->name, k->type->name) : MT_OPERAND_INTEGER(k->name, k->value);
    }
    if (choice && tile_has_constant(file, step->program, choice->name))
        operands[count++] = MT_OPERAND_INTEGER(choice->name, choice->value);
    const mt_status status =
        mt_graph_node(s->g, (const mt_tile *)file, step->program, s->node.name, operands, count, outputs, s->error);
    if (status == MT_OK)
        for (int i = 0; i < unknown_count; i++) made[(*made_count)++] = (named){unknown[i], outputs[unknown_at[i]]};
    return status;
}

static mt_status append_steps(splitter *s, const tile_constant *choice) {
    named made[TILE_STEPS * TILE_PARAMS];
    int made_count = 0;
    mt_status status = MT_OK;
    for (int i = 0; i < s->step_count && status == MT_OK; i++)
        status = append_step(s, &s->step[i], choice, made, &made_count);
    return status;
}

/* The instructions of a node's op; -1 when its operands do not fit. */
static int64_t instructions(const mt_graph *g, const graph_node *n, const tile_op *op) {
    tile_instance instance;
    int64_t grid[TILE_AXES];
    graph_node_instance(g, n, op, &instance);
    return tile_instance_check(&instance, NULL) == MT_OK ? tile_instance_grid(&instance, grid) : -1;
}

/* With default constants; -1 when it does not bind so. */
static int64_t default_instructions(mt_graph *g, const graph_node *n) {
    const tile_op *op;
    return graph_bind_node(g, n, NULL, 0, &op, NULL) == MT_OK ? instructions(g, n, op) : -1;
}

/* The most instructions that some tile sizes give the node. */
static int64_t most_instructions(mt_graph *g, const graph_node *n) {
    tile_constant known[TILE_CONSTANTS];
    int64_t choices[16], most = default_instructions(g, n);
    const int count = tile_constants(n->file, n->program, known);
    for (int k = 0; k < count; k++) {
        const int found = tile_tune(n->file, n->program, known[k].name, choices, COUNT_OF(choices));
        for (int c = 0; c < found; c++) {
            const tile_constant choice = {.name = known[k].name, .value = choices[c]};
            const tile_op *op;
            if (graph_try_node(g, n, &choice, 1, &op, NULL) == MT_OK) most = max_i64(most, instructions(g, n, op));
        }
    }
    return most;
}

/* The free constant of the composition, and its choices; their number is 1 where there is none. */
static int find_choices(const splitter *s, tile_constant *constant, int64_t choices[16]) {
    const char *program = s->step[0].program;
    tile_constant known[TILE_CONSTANTS];
    const int count = tile_constants(s->node.file, program, known);
    *constant = (tile_constant){0};
    for (int k = 0; k < count; k++) {
        const int found = tile_tune(s->node.file, program, known[k].name, choices, 16);
        if (found <= 0) continue;
        *constant = known[k];
        return found;
    }
    return 1;
}

/* What the nodes behind the first `before` are estimated to take, one after another; -1: not known. */
static double seconds_of(const splitter *s, size_t before) {
    graph_stage stages[TILE_STEPS];
    graph_forecast all;
    const size_t count = s->g->node_count - before;
    for (size_t n = 0; n < count; n++) stages[n] = (graph_stage){&s->g->nodes[before + n], s->target->processors};
    return graph_foresee_stages(s->g, stages, count, s->target, &all) ? all.seconds : -1;
}

bool graph_has_few(mt_graph *g, const graph_node *n, const graph_target *target) {
    graph_node_key(g, n);
    int64_t most = graph_key_get(g, &g->instruction_counts);
    if (most < 0) {
        most = max_i64(most_instructions(g, n), 0);
        graph_node_key(g, n);
        graph_key_put(g, &g->instruction_counts, most);
    }
    return 2 * most <= target->processors;
}

static mt_status split_few(splitter *s, bool *taken) {
    mt_graph *g = s->g;
    tile_constant choice;
    int64_t choices[16] = {0};
    const int choice_count = find_choices(s, &choice, choices);
    const size_t before = g->node_count;
    for (int c = 0; c < choice_count; c++) {
        choice.value = choices[c];
        g->node_count = before; /* the last try's nodes go; its temporaries are never written and get no slot */
        const mt_status status = append_steps(s, choice.name ? &choice : NULL);
        if (status != MT_OK) return status;
        int64_t largest = 0;
        for (size_t n = before; n < g->node_count; n++)
            largest = max_i64(largest, default_instructions(g, &g->nodes[n]));
        *taken = largest <= (int64_t)MOST_WAVES * s->target->processors;
        if (largest <= s->target->processors) break;
    }
    graph_forecast f;
    const bool foreseen = graph_foresee(g, &s->node, s->target, s->target->processors, &f);
    if (!foreseen || f.steady) {
        const double whole = foreseen ? f.seconds : -1, steps = seconds_of(s, before);
        *taken = *taken && steps >= 0 && (whole < 0 || steps < whole);
    }
    if (!*taken) g->node_count = before;
    return MT_OK;
}

/* The choice that takes the least time, with wide products; false: none takes less than the node as it is. */
static bool find_parts(splitter *s, tile_constant *choice) {
    mt_graph *g = s->g;
    mt_error *const error = s->error, ignored;
    int64_t choices[16] = {0};
    const int choice_count = find_choices(s, choice, choices);
    const size_t before = g->node_count;
    graph_forecast whole;
    double least = graph_foresee(g, &s->node, s->target, s->target->processors, &whole) ? whole.seconds : -1;
    bool found = false;
    s->error = &ignored; /* a choice may not fit a shape */
    for (int c = 0; c < choice_count; c++) {
        const tile_constant one = {.name = choice->name, .value = choices[c]};
        const bool wide = append_steps(s, one.name ? &one : NULL) == MT_OK &&
                          graph_is_wide(g, &g->nodes[before], s->target, s->target->processors);
        const double seconds = wide ? seconds_of(s, before) : -1;
        if (seconds >= 0 && seconds < least) {
            least = seconds;
            *choice = one;
            found = true;
        }
        g->node_count = before;
    }
    s->error = error;
    return found;
}

/* Splits the node if it pays; false: keep it. */
static mt_status try_split(splitter *s, bool alone, bool *taken) {
    *taken = false;
    s->step_count = tile_splits(s->node.file, s->node.program, s->step);
    if (!s->step_count) return MT_OK;
    if (graph_has_few(s->g, &s->node, s->target)) return split_few(s, taken);
    tile_constant choice;
    *taken = alone && s->target->costs->wide_flops_per_second > 0 && find_parts(s, &choice);
    return *taken ? append_steps(s, choice.name ? &choice : NULL) : MT_OK;
}

bool graph_is_wide_in_parts(mt_graph *g, size_t n, const graph_target *target) {
    mt_error ignored;
    tile_constant choice;
    splitter s = {.g = g, .target = target, .error = &ignored, .node = g->nodes[n]};
    if (!target->costs->splits || !target->costs->wide_flops_per_second) return false;
    s.step_count = tile_splits(s.node.file, s.node.program, s.step);
    if (!s.step_count || graph_processors_of(g, n, target) != target->processors) return false;
    graph_node_key(g, &s.node);
    int64_t known = graph_key_get(g, &g->in_parts);
    if (known < 0) {
        known = !graph_has_few(g, &s.node, target) && find_parts(&s, &choice);
        graph_node_key(g, &s.node);
        graph_key_put(g, &g->in_parts, known);
    }
    return known > 0;
}

static void run(void *context) {
    splitter *s = context;
    mt_graph *g = s->g;
    bool *alone = ARENA_ARRAY(g->memory, g->node_count, bool);
    graph_node *old = ARENA_ARRAY(g->memory, g->node_count, graph_node);
    const size_t count = g->node_count;
    for (size_t n = 0; n < count; n++) {
        old[n] = g->nodes[n];
        alone[n] = graph_processors_of(g, n, s->target) == s->target->processors;
    }
    g->node_count = 0;
    for (size_t n = 0; n < count && s->status == MT_OK; n++) {
        bool taken;
        s->node = old[n];
        s->status = try_split(s, alone[n], &taken);
        if (s->status == MT_OK && !taken) *ARENA_PUSH(g->memory, g->nodes, g->node_count, g->node_capacity) = s->node;
    }
}

mt_status graph_split(mt_graph *g, const graph_target *target, mt_error *error) {
    splitter s = {.g = g, .target = target, .error = error, .status = MT_OK};
    if (!arena_protect(g->memory, run, &s))
        return error_set(error, MT_E_MEMORY, NULL, "no memory to split the graph's nodes");
    return s.status;
}
