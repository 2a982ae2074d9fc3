/* A program run by tile_interpreter.h, instruction after instruction in the order of their numbers: the reference in
 * float64 for machines, independent of schedules, roles and emitted code. Plain memory, a block a tensor. */
#ifndef PROGRAM_INTERPRETER_H
#define PROGRAM_INTERPRETER_H

#include "program/program_internal.h"
#include "tile_interpreter.h"

/* `memory` by tensor: what its bytes are before the run, and become. NULL for temporaries; `lives` by live value. */
static inline mt_status program_interpret(const mt_program *p, void *const *memory, const int32_t *lives,
                                          mt_error *error) {
    program_binding b;
    arena *a = arena_new();
    void **slots = calloc(p->tensors_count + 1, sizeof *slots);
    if (!a || !slots) abort();
    const mt_status status = program_bind(p, a, &b, error);
    for (size_t i = 0; i < p->tensors_count; i++)
        if (!memory[i] && !(slots[i] = calloc(1, (size_t)p->tensors[i].bytes + 1))) abort();
    for (size_t i = 0; i < p->instructions_count && status == MT_OK; i++) {
        const program_instruction *n = &p->instructions[i];
        if (n->opcode == PROGRAM_JOIN) continue;
        const tile_op *op = b.ops[n->opcode];
        cpu_tensor tensors[TILE_PARAMS] = {{0}};
        cpu_arg args[PROGRAM_ARGS];
        int32_t values[PROGRAM_LIVES] = {0};
        memcpy(args, n->arg, sizeof args);
        for (int l = 0; l < op->live_count; l++) values[l] = lives[n->live[l]];
        for (int t = 0; t < op->tensor_count; t++) {
            const program_operand *o = &p->operands[n->tensor[t]];
            const program_view *v = &b.views[n->tensor[t]];
            char *base = memory[o->tensor] ? memory[o->tensor] : slots[o->tensor];
            tensors[t].data = base + o->offset / v->block * v->bits / 8;
            for (int d = 0; d < o->rank; d++) {
                tensors[t].extent[d] = o->live[d] < 0 ? o->extent[d] : lives[o->live[d]];
                tensors[t].stride[d] = o->stride[d];
            }
        }
        interpreter run = {.op = op, .tensors = tensors, .args = args, .lives = values};
        run.variables = calloc((size_t)op->variable_count + 1, sizeof *run.variables);
        if (!run.variables) abort();
        for (int x = 0; x < op->axis_total; x++) run.index[x] = n->index[x];
        execute(&run, op->body);
        for (size_t k = 0; k < run.block_count; k++) free(run.blocks[k]);
        free(run.blocks);
        free(run.variables);
    }
    for (size_t i = 0; i < p->tensors_count; i++) free(slots[i]);
    free(slots);
    arena_free(a);
    return status;
}

#endif
