/* The program's tables from what the passes before found, with the final numbers: joins counted, each in front of the
 * instruction that needs it first, and of that one's node.
 *
 * Placement. Static: instructions are dealt to the processors in turn, node after node without a new start, so that
 * each node goes on where the last one ended. A join belongs to the processor of the instruction behind it, which would
 * have to wait anyway. Queue: the program holds no order. */
#include "sched/sched_internal.h"

static void limit(sched *s, const char *where, const char *what, size_t most) {
    s->status = error_set(s->error, MT_E_LIMIT, where, "a program has room for %zu %s", most, what);
}

static void emit_lives(sched *s, program_builder *b) {
    const mt_graph *g = s->graph;
    if (g->live_count > INT16_MAX) return limit(s, NULL, "live values", INT16_MAX);
    b->lives = ARENA_ARRAY(b->memory, g->live_count, program_live);
    b->lives_count = b->lives_capacity = g->live_count;
    for (size_t i = 0; i < g->live_count; i++)
        b->lives[i] = (program_live){program_intern(b, g->lives[i].name), g->lives[i].least, g->lives[i].most};
}

/* Temporaries that nothing uses do not exist; all other tensors can be bound, used or not. */
static void emit_tensors(sched *s, program_builder *b, uint32_t *tensor_at) {
    const mt_graph *g = s->graph;
    b->tensors = ARENA_ARRAY(b->memory, g->tensor_count, program_tensor);
    b->tensors_capacity = g->tensor_count;
    for (size_t i = 0; i < g->tensor_count; i++) {
        const graph_tensor *t = &g->tensors[i];
        if (t->role == MT_TEMP && s->offset[i] < 0) continue;
        tensor_at[i] = (uint32_t)b->tensors_count;
        program_tensor *out = &b->tensors[b->tensors_count++];
        out->name = program_intern(b, t->name);
        out->format = program_intern(b, t->type->name);
        out->format_text = tile_format_is_block(t->type) ? program_intern(b, t->type->body->text) : 0;
        out->role = (uint8_t)t->role;
        out->rank = (uint8_t)t->rank;
        out->bytes = t->bytes;
        out->offset = s->offset[i];
        for (int d = 0; d < PROGRAM_RANK; d++) {
            out->extent[d] = d < t->rank ? t->extent[d] : 0;
            out->live[d] = (int16_t)(d < t->rank ? t->live[d] : PROGRAM_NONE);
        }
    }
}

static uint32_t emit_op(sched *s, program_builder *b, map *known, const tile_op *op) {
    const int64_t found = map_get(known, (const char *)&op->hash, sizeof op->hash);
    if (found >= 0) return (uint32_t)found;
    if (b->ops_count >= PROGRAM_JOIN) {
        limit(s, op->name, "ops", PROGRAM_JOIN);
        return 0;
    }
    program_op *out = ARENA_PUSH(b->memory, b->ops, b->ops_count, b->ops_capacity);
    *out = (program_op){program_intern(b, op->name),  program_intern(b, op->text),  program_intern(b, op->path),
                        (uint32_t)b->constants_count, (uint32_t)op->constant_count, 0,
                        {op->hash.low, op->hash.high}};
    for (int i = 0; i < op->constant_count; i++)
        *ARENA_PUSH(b->memory, b->constants, b->constants_count, b->constants_capacity) =
            (program_constant){program_intern(b, op->constants[i].name),
                               op->constants[i].type ? program_intern(b, op->constants[i].type->name) : 0,
                               op->constants[i].type ? 0 : op->constants[i].value};
    map_put(b->memory, known, (const char *)&op->hash, sizeof op->hash, (int64_t)b->ops_count - 1);
    return (uint32_t)b->ops_count - 1;
}

static uint32_t emit_operand(program_builder *b, sched_words *known, const graph_view *v, uint32_t tensor) {
    program_operand o = {.tensor = tensor, .rank = (uint8_t)v->rank, .offset = v->offset};
    for (int d = 0; d < PROGRAM_RANK; d++) {
        o.extent[d] = d < v->rank ? v->extent[d] : 0;
        o.stride[d] = d < v->rank ? v->stride[d] : 0;
        o.live[d] = (int16_t)(d < v->rank ? v->live[d] : PROGRAM_NONE);
    }
    _Static_assert(sizeof o % sizeof(uint32_t) == 0, "operands are interned as words");
    const uint32_t id = sched_words_intern(b->memory, known, (const uint32_t *)&o, sizeof o / sizeof(uint32_t));
    if (id == b->operands_count) *ARENA_PUSH(b->memory, b->operands, b->operands_count, b->operands_capacity) = o;
    return id;
}

/* What all instructions of node n, the table's node `at`, have in common. */
static program_instruction node_instruction(sched *s, program_builder *b, uint32_t n, uint32_t at, uint32_t opcode,
                                            sched_words *operands, const uint32_t *tensor_at) {
    const graph_node *node = &s->graph->nodes[n];
    program_instruction out = {.opcode = (uint16_t)opcode, .node = at};
    for (int p = 0; p < node->op->param_count; p++) {
        const tile_param *param = &node->op->params[p];
        switch (param->kind) {
        case TILE_PARAM_ARG:
            if (param->ordinal >= PROGRAM_ARGS)
                limit(s, node->name, "args in an instruction", PROGRAM_ARGS);
            else if (param->type->scalar.kind == TILE_FLOAT)
                memcpy(&out.arg[param->ordinal], &node->instance->arg[param->ordinal].f, sizeof(float));
            else if (node->instance->arg[param->ordinal].i != (int32_t)node->instance->arg[param->ordinal].i)
                s->status = error_set(s->error, MT_E_ARGUMENT, node->name, "%s = %lld is no i32", param->name,
                                      (long long)node->instance->arg[param->ordinal].i);
            else
                out.arg[param->ordinal] = (int32_t)node->instance->arg[param->ordinal].i;
            break;
        case TILE_PARAM_LIVE:
            if (param->ordinal >= PROGRAM_LIVES)
                limit(s, node->name, "live values in an instruction", PROGRAM_LIVES);
            else
                out.live[param->ordinal] = (uint16_t)node->operand[p];
            break;
        default: {
            const graph_view *v = &s->graph->views[node->operand[p]];
            out.tensor[param->ordinal] = emit_operand(b, operands, v, tensor_at[v->tensor]);
        }
        }
    }
    return out;
}

static void set_waits(const sched *s, program_instruction *i, const uint32_t *barriers, uint32_t count) {
    i->wait_count = (uint8_t)count;
    for (uint32_t k = 0; k < count; k++) i->wait[k] = barriers[k], i->target[k] = s->arrivals[barriers[k]];
}

/* Everything but the instructions themselves; what those of each node have in common. */
static program_instruction *emit_nodes(sched *s, program_builder *b, const uint32_t *tensor_at) {
    const size_t total = s->instruction_count + s->join_count;
    program_instruction *common = ARENA_ARRAY(s->memory, s->node_count, program_instruction);
    map ops = {0};
    sched_words operands = {0};
    size_t join = 0;
    if (total > INT32_MAX) {
        limit(s, NULL, "instructions", INT32_MAX);
        return NULL;
    }
    b->nodes = ARENA_ARRAY(b->memory, s->node_count, program_node);
    b->nodes_capacity = s->node_count;
    for (uint32_t n = 0; n < s->node_count && s->status == MT_OK; n++) {
        if (s->first[n] == s->first[n + 1]) continue; /* an empty grid */
        const graph_node *node = &s->graph->nodes[n];
        const uint32_t opcode = emit_op(s, b, &ops, node->op), at = (uint32_t)b->nodes_count++;
        common[n] = node_instruction(s, b, n, at, opcode, &operands, tensor_at);
        b->nodes[at] = (program_node){program_intern(b, node->name), opcode, s->first[n] + (uint32_t)join, 0};
        while (join < s->join_count && s->joins[join].next < s->first[n + 1]) join++;
        b->nodes[at].count = s->first[n + 1] + (uint32_t)join - b->nodes[at].first;
    }
    b->barriers = ARENA_ARRAY(b->memory, s->barrier_count, program_barrier);
    b->barriers_count = b->barriers_capacity = s->barrier_count;
    for (size_t i = 0; i < s->barrier_count; i++) b->barriers[i].arrivals = s->arrivals[i];
    b->instructions_count = total;
    if (s->target->placement == MT_PLACE_STATIC) {
        b->order_count = total;
        b->processors_count = (size_t)s->target->processors;
    }
    return common;
}

static void emit_instructions(sched *s, program_builder *b, const program_instruction *common) {
    program_instruction *out = b->instructions;
    size_t join = 0;
    for (uint32_t n = 0; n < s->node_count; n++) {
        const graph_node *node = &s->graph->nodes[n];
        int64_t index[TILE_AXES] = {0};
        for (uint32_t i = s->first[n]; i < s->first[n + 1]; i++, out++) {
            for (; join < s->join_count && s->joins[join].next == i; join++, out++) {
                *out = (program_instruction){.opcode = PROGRAM_JOIN,
                                             .node = common[n].node,
                                             .arrive_count = 1,
                                             .arrive = {s->joins[join].arrive}};
                set_waits(s, out, s->joins[join].wait, s->joins[join].wait_count);
            }
            *out = common[n];
            for (int a = 0; a < node->op->axis_total; a++) out->index[a] = (int32_t)index[a];
            set_waits(s, out, s->waits[s->list_of[i]].barrier, s->waits[s->list_of[i]].count);
            out->arrive_count = s->arrive_count[i];
            memcpy(out->arrive, s->arrive + (size_t)i * PROGRAM_ARRIVES, s->arrive_count[i] * sizeof *out->arrive);
            sched_next_index(node, index);
        }
    }
}

static void emit_order(sched *s, program_builder *b) {
    const uint32_t processors = (uint32_t)s->target->processors;
    const uint32_t total = (uint32_t)b->instructions_count;
    if (s->target->placement != MT_PLACE_STATIC) return;
    uint32_t *place = ARENA_ARRAY(b->memory, total, uint32_t);
    uint32_t *next = ARENA_ARRAY(b->memory, processors, uint32_t);
    memset(b->processors, 0, processors * sizeof *b->processors);
    for (uint32_t i = 0, turn = 0; i < total; i++) {
        place[i] = turn;
        b->processors[turn].count++;
        if (b->instructions[i].opcode != PROGRAM_JOIN) turn = (turn + 1) % processors;
    }
    for (uint32_t p = 1; p < processors; p++)
        next[p] = b->processors[p].first = b->processors[p - 1].first + b->processors[p - 1].count;
    for (uint32_t i = 0; i < total; i++) b->order[next[place[i]]++] = i;
}

void sched_emit(sched *s, program_builder *b) {
    uint32_t *tensor_at = ARENA_ARRAY(s->memory, s->graph->tensor_count, uint32_t);
    *b = (program_builder){.memory = s->memory,
                           .placement = s->target->placement,
                           .processor_count = (uint32_t)s->target->processors,
                           .slot_bytes = (uint64_t)s->slot_bytes};
    program_intern(b, "");
    emit_lives(s, b);
    if (s->status == MT_OK) emit_tensors(s, b, tensor_at);
    const program_instruction *common = s->status == MT_OK ? emit_nodes(s, b, tensor_at) : NULL;
    if (s->status == MT_OK) s->status = program_lay_out(b, s->error);
    if (s->status != MT_OK) return;
    emit_instructions(s, b, common);
    emit_order(s, b);
}
