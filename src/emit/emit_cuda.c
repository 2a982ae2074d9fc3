/* The unit: the pasted files in their order, the ops' functions, and the switches over opcodes that the interpreter
 * calls. */
#include "emit/emit_cuda_internal.h"
#include "tile/explicit.h"

#include "base/embed.h"
#include "program/instruction.h"

#include <inttypes.h>

#include "emit/cuda_abi.h"

#include <stdio.h>

extern const struct embedded_file emit_files[], program_files[];

_Static_assert((int)ROLE_WARPS == (int)CUDA_WARPS, "the lowering and the kernel have one shape");
_Static_assert((int)LEVEL2_REGISTERS == (int)CUDA_REGISTERS, "budgets are what the kernel can give");

void cuda_unsupported(cuda_emit *e, int line, const char *what) {
    if (e->unit->status) return;
    char where[256];
    snprintf(where, sizeof where, "%.200s:%d", e->r->source->path, line);
    e->unit->status = error_set(e->unit->error, MT_E_UNSUPPORTED, where, "Op '%s': there is no GPU code for %s.",
                                e->r->source->name, what);
}

static const char *file_text(const struct embedded_file *files, const char *name) {
    for (const struct embedded_file *f = files; f->name; f++)
        if (!strcmp(f->name, name)) return f->text;
    return "";
}

static void print_switch(text *out, const char *role, role_op *const *lowered, char (*names)[320], size_t count,
                         bool loader) {
    text_printf(out, "\nMT_DEVICE void mt_op_%s(mt_context *mt) {\n%s    switch (mt->slot->instruction.opcode) {\n",
                role, loader ? "" : "    mt_forget(mt);\n");
    for (size_t i = 0; i < count; i++) {
        if (!loader || lowered[i]->loader)
            text_printf(out, "    case %zu: %s_%s(mt); break;\n", i, names[i], role);
        else
            text_printf(out, "    case %zu: break; /* %s takes no pages */\n", i, lowered[i]->op.name);
    }
    text_string(out, "    default: mt_refuse(mt);\n    }\n}\n");
}

/* What the controller does for instructions of level 2. */
static void print_controller(text *out, role_op *const *lowered, char (*names)[320], size_t count) {
    text_string(out, "\nMT_DEVICE void mt_op_make(mt_context *mt) {\n    switch (mt->slot->instruction.opcode) {\n");
    for (size_t i = 0; i < count; i++) {
        const tile_level2 *x = lowered[i]->op.level2;
        if (!x || !(x->barrier_count || lowered[i]->storer)) continue;
        text_printf(out, "    case %zu: // %s\n", i, lowered[i]->op.name);
        cuda_level2_make(out, lowered[i]);
    }
    text_string(out, "    }\n}\nMT_DEVICE bool mt_op_stores(uint32_t opcode) {\n    return false");
    for (size_t i = 0; i < count; i++)
        if (lowered[i]->storer) text_printf(out, " || opcode == %zu", i);
    text_string(out,
                ";\n}\nMT_DEVICE void mt_op_store(mt_context *mt) {\n    switch (mt->slot->instruction.opcode) {\n");
    for (size_t i = 0; i < count; i++)
        if (lowered[i]->storer) text_printf(out, "    case %zu: %s_store(mt); break;\n", i, names[i]);
    text_string(out, "    }\n}\n");
}

/* Registers of wide ops' consumers: the sums of 128 rows, and tiles beside them. */
enum { WIDE_REGISTERS = 216 };

/* Register budgets. The warps are those of all ops: consumers, and the loader's warpgroup, get the most that any op
 * asks for. Without budgets each thread has as many registers as the code of all roles needs. */
static mt_status print_budgets(cuda_unit_text *unit, text *out, role_op *const *lowered, size_t count,
                               emit_cuda_info *info) {
    int consumers = 0, others = 0;
    const char *name[2] = {"", ""};
    for (size_t i = 0; i < count; i++) {
        const tile_level2 *x = lowered[i]->op.level2;
        if (lowered[i]->wide && consumers < WIDE_REGISTERS) consumers = WIDE_REGISTERS, name[0] = lowered[i]->op.name;
        if (!x) continue;
        const int *own = x->budget, loads = own[own[LEVEL2_LOADER] ? LEVEL2_LOADER : LEVEL2_STORER];
        if (own[LEVEL2_CONSUMER] > consumers) consumers = own[LEVEL2_CONSUMER], name[0] = lowered[i]->op.name;
        if (loads > others) others = loads, name[1] = lowered[i]->op.name;
    }
    const int wanted[] = {consumers, others};
    const bool given = consumers || others;
    if (given && !explicit_registers(&consumers, &others))
        return unit->status = error_set(unit->error, MT_E_LIMIT, name[0],
                                        "Register budgets: op '%s' wants %d a thread for the consumers, and op '%s' %d "
                                        "for loader and storer; one kernel, whose warps they share, has not so many.",
                                        name[0], wanted[0], name[1], wanted[1]);
    info->threads = given ? CUDA_BUDGET_THREADS : CUDA_THREADS;
    text_printf(out, "\nenum { MT_THREADS = %d, MT_CONSUMER_REGISTERS = %d, MT_OTHER_REGISTERS = %d };\n",
                info->threads, consumers, others);
    return MT_OK;
}

static size_t count_lines(const text *t) {
    size_t lines = 1;
    for (size_t i = 0; i < t->length; i++) lines += t->data[i] == '\n';
    return lines;
}

/* Lowers the ops and writes their functions. */
static mt_status write_ops(cuda_unit_text *unit, text *functions, const emit_cuda_op *ops, size_t count,
                           role_op **lowered, char (*names)[320], emit_cuda_info *info) {
    for (size_t i = 0; i < count && !unit->status; i++) {
        const role_chip *target = info->target;
        unit->status = target ? role_lower_for(unit->memory, &lowered[i], ops[i].op, ops[i].layout, target, unit->error)
                              : role_lower(unit->memory, &lowered[i], ops[i].op, ops[i].layout, unit->error);
        if (unit->status) break;
        if (ops[i].op->tensor_count > CUDA_TENSORS) {
            unit->status = error_set(unit->error, MT_E_LIMIT, ops[i].op->name,
                                     "Op '%s' has %d tensors; the CUDA machine takes %d.", ops[i].op->name,
                                     ops[i].op->tensor_count, CUDA_TENSORS);
            break;
        }
        snprintf(names[i], sizeof names[i], "op%zu_%.256s", i, ops[i].op->name);
        info->scratch_bytes = max_i64(info->scratch_bytes, lowered[i]->shared_bytes);
        info->loader_reads_live |= lowered[i]->loader_reads_live;
    }
    if (unit->status) return unit->status;
    unit->page_bytes = info->page_bytes = role_page_bytes(lowered, count, &info->least_pages);
    for (size_t i = 0; i < count && !unit->status; i++)
        cuda_op_functions(unit, lowered[i], &ops[i], names[i], functions);
    return unit->status;
}

/* By tensor ordinal: bytes of an element of the vectors that the controller brings near, 0 for all else. */
static void print_cold(text *out, const emit_cuda_op *op) {
    int bytes[CUDA_TENSORS] = {0};
    for (int i = 0; i < op->op->param_count; i++) {
        const tile_param *p = &op->op->params[i];
        if (p->kind == TILE_IN && p->rank == 1 && op->cold[p->ordinal] && !tile_format_is_block(p->type))
            bytes[p->ordinal] = p->type->bits / 8;
    }
    for (int t = 0; t < CUDA_TENSORS; t++) text_printf(out, "%s%d", t ? ", " : "{", bytes[t]);
    text_string(out, "}, ");
}

mt_status emit_cuda(text *out, const emit_cuda_op *ops, size_t count, emit_cuda_info *info, mt_error *error) {
    text formats = {0}, functions = {0};
    cuda_unit_text unit = {
        .memory = arena_new(), .formats = &formats, .lines = !info->no_lines, .marks = info->marks, .error = error};
    info->scratch_bytes = 0;
    info->loader_reads_live = false;
    if (!unit.memory) return error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    role_op **lowered = ARENA_ARRAY(unit.memory, count + 1, role_op *);
    char(*names)[320] = arena_array(unit.memory, count + 1, sizeof *names);
    if (!lowered || !names) unit.status = error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    if (!unit.status && !write_ops(&unit, &functions, ops, count, lowered, names, info)) {
        text_string(out, "/* Written by Monotile. */\n#include <stdint.h>\n");
        text_string(out, file_text(program_files, "instruction.h"));
        static const char *const pasted[] = {"cuda_abi.h", "cuda_chip.h", "cuda_prelude.h", "cuda_math.h",
                                             "cuda_stamp.h", "cuda_dot.h", "cuda_wide.h", "cuda_explicit.h"};
        for (size_t i = 0; i < COUNT_OF(pasted); i++)
            text_string(out, info->chip && !strcmp(pasted[i], "cuda_chip.h") ? info->chip
                                                                             : file_text(emit_files, pasted[i]));
        if (formats.length) text_append(out, formats.data, formats.length);
        if (functions.length) text_append(out, functions.data, functions.length);
        if (unit.lines) text_printf(out, "#line %zu \"program.cu\"\n", count_lines(out) + 1);
        print_switch(out, "load", lowered, names, count, true);
        print_switch(out, "run", lowered, names, count, false);
        print_controller(out, lowered, names, count);
        print_budgets(&unit, out, lowered, count, info);
        text_printf(out, "\nenum { MT_OPS = %zu };\nstatic __device__ const int MT_OP_TENSORS[] = {", count);
        for (size_t i = 0; i < count; i++) text_printf(out, "%d, ", ops[i].op->tensor_count);
        text_string(out, "0};\nstatic __device__ const uint8_t MT_OP_COLD[][CUDA_TENSORS] = {");
        for (size_t i = 0; i < count; i++) print_cold(out, &ops[i]);
        text_string(out, "{0}};\n\n");
        text_string(out, file_text(emit_files, "cuda_interpreter.h"));
        if (info->tail) text_string(out, info->tail);
        if (out->failed || formats.failed || functions.failed)
            unit.status = error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    }
    text_free(&formats);
    text_free(&functions);
    arena_free(unit.memory);
    return unit.status;
}

mt_status emit_cuda_one(text *out, const emit_cuda_op *op, mt_error *error) {
    text formats = {0}, functions = {0};
    cuda_unit_text unit = {.memory = arena_new(), .formats = &formats, .error = error};
    emit_cuda_info info = {0};
    role_op *lowered[1];
    char names[1][320];
    if (!unit.memory) return error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    if (!write_ops(&unit, &functions, op, 1, lowered, names, &info)) {
        if (!lowered[0]->wide) lowered[0]->not_wide = role_why_not_wide(unit.memory, op->op);
        role_print(out, lowered[0]);
        text_string(out, "\n/* The helpers mt_... are in src/emit/cuda_prelude.h, cuda_math.h and cuda_dot.h. */\n");
        if (formats.length) text_append(out, formats.data, formats.length);
        if (functions.length) text_append(out, functions.data, functions.length);
        if (out->failed || formats.failed || functions.failed)
            unit.status = error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    }
    text_free(&formats);
    text_free(&functions);
    arena_free(unit.memory);
    return unit.status;
}
