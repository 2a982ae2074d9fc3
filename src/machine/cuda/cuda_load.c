/* Loading a program: layouts of its weights, code for its ops, tables on the device. */
#include <stdio.h>
#include <stdlib.h>

#include "machine/cuda/cuda.h"
#include "machine/cuda/nvrtc.h"

enum { TABLE_ALIGNMENT = 256, LEAST_PAGES = 3 };

/* A weight has one layout, whoever uses it: what some op wishes for it. Weights that are used through a part of them
 * stay rows. */
static mt_status choose_layouts(cuda_session *s, mt_error *error) {
    const mt_program *p = s->program;
    s->layouts = ARENA_ARRAY(s->memory, p->tensors_count, role_layout);
    bool *whole = ARENA_ARRAY(s->memory, p->tensors_count, bool);
    if (!s->layouts || !whole) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    for (size_t i = 0; i < p->tensors_count; i++) whole[i] = p->tensors[i].role == MT_WEIGHT && p->tensors[i].rank == 2;
    for (size_t i = 0; i < p->operands_count; i++) {
        const program_operand *o = &p->operands[i];
        const program_tensor *t = &p->tensors[o->tensor];
        whole[o->tensor] = whole[o->tensor] && o->rank == 2 && !o->offset && o->extent[0] == t->extent[0] &&
                           o->extent[1] == t->extent[1] && o->stride[0] == t->extent[1];
    }
    for (size_t n = 0; n < p->nodes_count; n++) {
        const program_instruction *i = &p->instructions[p->nodes[n].first];
        if (i->opcode == PROGRAM_JOIN) continue;
        const tile_op *op = s->binding.ops[i->opcode];
        for (int t = 0; t < op->tensor_count; t++) {
            const uint32_t tensor = p->operands[i->tensor[t]].tensor;
            const role_layout wish = whole[tensor] ? role_wish(op, t) : ROLE_ROWS;
            if (wish != ROLE_ROWS) s->layouts[tensor] = wish;
        }
    }
    return MT_OK;
}

/* Every op's operands must agree in layout wherever the op is used: its code is compiled once. */
static mt_status op_layouts(cuda_session *s, emit_cuda_op *ops, mt_error *error) {
    const mt_program *p = s->program;
    bool *seen = ARENA_ARRAY(s->memory, p->ops_count, bool);
    if (!seen) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    for (size_t i = 0; i < p->ops_count; i++) ops[i].op = s->binding.ops[i];
    for (size_t n = 0; n < p->nodes_count; n++) {
        const program_instruction *i = &p->instructions[p->nodes[n].first];
        if (i->opcode == PROGRAM_JOIN) continue;
        emit_cuda_op *o = &ops[i->opcode];
        for (int t = 0; t < o->op->tensor_count; t++) {
            const role_layout layout = s->layouts[p->operands[i->tensor[t]].tensor];
            if (seen[i->opcode] && o->layout[t] != layout)
                return error_set(error, MT_E_UNSUPPORTED, program_string(p, p->nodes[n].name),
                                 "op '%s' is used with a weight in two layouts (whole here, a part there): there is no "
                                 "code for that yet",
                                 o->op->name);
            o->layout[t] = layout;
        }
        seen[i->opcode] = true;
    }
    return MT_OK;
}

static mt_status compile(cuda_session *s, emit_cuda_info *info, mt_error *error) {
    const mt_program *p = s->program;
    const char *where = s->machine->device.where;
    static const char *const options[] = {"--std=c++17", "-default-device", "--fmad=true"};
    emit_cuda_op *ops = ARENA_ARRAY(s->memory, p->ops_count ? p->ops_count : 1, emit_cuda_op);
    if (!ops) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    text source = {0}, cubin = {0};
    mt_status status = op_layouts(s, ops, error);
    if (status == MT_OK) status = emit_cuda(&source, ops, p->ops_count, info, error);
    if (status == MT_OK && getenv("MONOTILE_DUMP_CUDA"))
        file_write_atomic(getenv("MONOTILE_DUMP_CUDA"), source.data, source.length, NULL);
    const cuda_unit unit = {.name = "program.cu",
                            .text = source.data,
                            .architecture = s->machine->device.architecture,
                            .options = options,
                            .option_count = COUNT_OF(options)};
    if (status == MT_OK) status = cuda_compile(&cubin, NULL, &unit, error);
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuModuleLoadDataEx(&s->module, cubin.data, 0, NULL, NULL), where, error,
                            "cannot load the program's code");
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuModuleGetFunction(&s->kernel, s->module, "monotile"), where, error,
                            "the program's code has no kernel");
    text_free(&source);
    text_free(&cubin);
    return status;
}

/* Shared memory: pages as many as fit beside the ops' scratch. Co-residency is checked, not assumed: every CTA of the
 * grid must have an SM. */
static mt_status plan_shared(cuda_session *s, const emit_cuda_info *info, mt_error *error) {
    const cuda_device *d = &s->machine->device;
    int fixed = 0, blocks = 0;
    mt_status status = cuda_check(cuda_api.cuFuncGetAttribute(&fixed, CUDA_FUNCTION_STATIC_SHARED, s->kernel), d->where,
                                  error, "cannot ask for the kernel's shared memory");
    if (status != MT_OK) return status;
    const int64_t room =
        d->shared_bytes - fixed - info->scratch_bytes - 1024; /* 1 KiB is the system's, of each block */
    const int64_t pages = min_i64(room / CUDA_PAGE, CUDA_MOST_PAGES);
    if (pages < LEAST_PAGES)
        return error_set(error, MT_E_LIMIT, d->where,
                         "an op needs %lld bytes of shared memory; beside %d pages of %d bytes there are %lld",
                         (long long)info->scratch_bytes, LEAST_PAGES, CUDA_PAGE,
                         (long long)(d->shared_bytes - fixed - LEAST_PAGES * CUDA_PAGE));
    s->shared_bytes = (unsigned)(pages * CUDA_PAGE + info->scratch_bytes);
    s->launch.pages = (uint32_t)pages;
    s->launch.scratch_bytes = (uint32_t)info->scratch_bytes;
    status = cuda_check(cuda_api.cuFuncSetAttribute(s->kernel, CUDA_FUNCTION_DYNAMIC_SHARED, (int)s->shared_bytes),
                        d->where, error, "cannot give the kernel %u bytes of shared memory", s->shared_bytes);
    if (status == MT_OK)
        status = cuda_check(
            cuda_api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s->kernel, CUDA_THREADS, s->shared_bytes),
            d->where, error, "cannot ask for the kernel's occupancy");
    if (status != MT_OK) return status;
    const uint32_t processors = s->program->header->processor_count;
    const bool queue = s->program->header->placement == MT_PLACE_QUEUE;
    s->grid = queue ? (int)min_i64(processors, (int64_t)blocks * d->sm_count) : (int)processors;
    if (s->grid < 1 || s->grid > blocks * d->sm_count)
        return error_set(error, MT_E_LIMIT, d->where,
                         "the program is laid out for %u processors; %d blocks of it can be resident: compile it for "
                         "at most as many",
                         processors, blocks * d->sm_count);
    return MT_OK;
}

/* Takes `bytes` from a block that is filled up to *end; returns where they begin. */
static size_t place(size_t *end, size_t bytes) {
    const size_t at = align_up(*end, TABLE_ALIGNMENT);
    *end = at + bytes;
    return at;
}

static mt_status make_tables(cuda_session *s, mt_error *error) {
    const mt_program *p = s->program;
    const char *where = s->machine->device.where;
    size_t at = 0;
    const size_t instructions = place(&at, p->instructions_count * sizeof *p->instructions),
                 order = place(&at, p->order_count * sizeof *p->order),
                 processors = place(&at, p->processors_count * sizeof *p->processors);
    s->operands_at = place(&at, p->operands_count * sizeof(cuda_tensor));
    s->lives_at = place(&at, p->lives_count * sizeof(int32_t));
    s->counters_at = place(&at, (p->barriers_count + 2) * sizeof(uint32_t)); /* barriers, finished, next */
    s->counters_bytes = at - s->counters_at;
    mt_status status = cuda_memory_new(&s->tables, at, "a program's tables", where, error);
    if (status == MT_OK && p->header->slot_bytes)
        status = cuda_memory_new(&s->slots, p->header->slot_bytes, "a program's slots", where, error);
    const struct {
        size_t at;
        const void *data;
        size_t bytes;
    } parts[] = {{instructions, p->instructions, p->instructions_count * sizeof *p->instructions},
                 {order, p->order, p->order_count * sizeof *p->order},
                 {processors, p->processors, p->processors_count * sizeof *p->processors}};
    for (size_t i = 0; i < COUNT_OF(parts) && status == MT_OK; i++)
        if (parts[i].bytes)
            status = cuda_check(
                cuda_api.cuMemcpyHtoDAsync_v2(s->tables + parts[i].at, parts[i].data, parts[i].bytes, s->stream), where,
                error, "cannot copy the program's tables");
    void *failure = NULL;
    if (status == MT_OK)
        status =
            cuda_check(cuda_api.cuMemHostAlloc(&failure, sizeof *s->failure, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED),
                       where, error, "no pinned memory");
    s->failure = failure;
    cuda_address mapped = 0;
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuMemHostGetDevicePointer_v2(&mapped, failure, 0), where, error,
                            "cannot map pinned memory");
    if (status == MT_OK) memset(s->failure, 0, sizeof *s->failure);
#define DEVICE(type, offset) ((type)(uintptr_t)(s->tables + (offset)))
    s->launch.instructions = DEVICE(const program_instruction *, instructions);
    s->launch.order = DEVICE(const uint32_t *, order);
    s->launch.processors = DEVICE(const cuda_range *, processors);
    s->launch.operands = DEVICE(const cuda_tensor *, s->operands_at);
    s->launch.lives = DEVICE(int32_t *, s->lives_at);
    s->launch.counters = DEVICE(uint32_t *, s->counters_at);
    s->launch.finished = s->launch.counters + p->barriers_count;
    s->launch.next = p->header->placement == MT_PLACE_QUEUE ? s->launch.finished + 1 : NULL;
#undef DEVICE
    s->launch.failure = (cuda_failure *)(uintptr_t)mapped;
    s->launch.instruction_count = (uint32_t)p->instructions_count;
    return status;
}

mt_status cuda_session_load(cuda_session *s, mt_error *error) {
    emit_cuda_info info = {0};
    mt_status status = choose_layouts(s, error);
    for (size_t i = 0; i < s->program->ops_count && status == MT_OK; i++)
        if (s->binding.ops[i]->tensor_count > CUDA_TENSORS)
            status =
                error_set(error, MT_E_LIMIT, s->binding.ops[i]->name, "an op has %d tensors; the CUDA machine takes %d",
                          s->binding.ops[i]->tensor_count, CUDA_TENSORS);
    if (status == MT_OK) status = compile(s, &info, error);
    if (status == MT_OK) status = plan_shared(s, &info, error);
    if (status == MT_OK) status = make_tables(s, error);
    return status;
}

void cuda_session_unload(cuda_session *s) {
    cuda_memory_free(s->tables);
    cuda_memory_free(s->slots);
    if (s->failure) cuda_api.cuMemFreeHost(s->failure);
    if (s->module) cuda_api.cuModuleUnload(s->module);
}
