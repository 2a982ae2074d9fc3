/* Loading a program: layouts of its weights, code for its ops, tables on the device. */
#include <stdio.h>
#include <stdlib.h>

#include "machine/cuda/cuda.h"
#include "machine/cuda/nvrtc.h"

enum { TABLE_ALIGNMENT = 256, SPARE_SHARED = 1 << 10 /* pages begin at a multiple of this */ };

static mt_status compile(cuda_session *s, emit_cuda_info *info, mt_error *error) {
    const mt_program *p = s->program;
    const char *where = s->machine->device.where;
    static const char *const options[] = {"--std=c++17", "-default-device", "--fmad=true", "-DMT_TRACE"};
    emit_cuda_op *ops = NULL;
    text source = {0}, cubin = {0};
    mt_status status = device_ops(p, &s->binding, s->layouts, s->memory, &ops, error);
    if (status == MT_OK) status = device_handoff_choose(p, &s->binding, ops, s->memory, &s->handoff, error);
    if (status == MT_OK) status = emit_cuda(&source, ops, p->ops_count, info, error);
    if (status == MT_OK && getenv("MONOTILE_DUMP_CUDA"))
        file_write_atomic(getenv("MONOTILE_DUMP_CUDA"), source.data, source.length, NULL);
    const cuda_unit unit = {.name = "program.cu",
                            .text = source.data,
                            .architecture = s->machine->device.architecture,
                            .options = options,
                            .option_count = COUNT_OF(options) - !s->traced};
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
    const int64_t room = d->shared_bytes - fixed - info->scratch_bytes - SPARE_SHARED;
    const int64_t pages = min_i64(room / info->page_bytes, CUDA_MOST_PAGES);
    if (pages < info->least_pages)
        return error_set(error, MT_E_LIMIT, d->where,
                         "an op needs %lld bytes of shared memory; beside %lld pages of %lld bytes there are %lld",
                         (long long)info->scratch_bytes, (long long)info->least_pages, (long long)info->page_bytes,
                         (long long)(d->shared_bytes - fixed - SPARE_SHARED - info->least_pages * info->page_bytes));
    status = device_pages(s->program, &s->binding, pages, error);
    if (status != MT_OK) return status;
    s->shared_bytes = (unsigned)(pages * info->page_bytes + info->scratch_bytes);
    s->threads = (unsigned)info->threads;
    s->launch.pages = (uint32_t)pages;
    s->launch.page_bytes = (uint32_t)info->page_bytes;
    s->launch.scratch_bytes = (uint32_t)info->scratch_bytes;
    status = cuda_check(cuda_api.cuFuncSetAttribute(s->kernel, CUDA_FUNCTION_DYNAMIC_SHARED, (int)s->shared_bytes),
                        d->where, error, "cannot give the kernel %u bytes of shared memory", s->shared_bytes);
    if (status == MT_OK)
        status = cuda_check(
            cuda_api.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, s->kernel, info->threads, s->shared_bytes),
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
                 processors = place(&at, p->processors_count * sizeof *p->processors),
                 ends = place(&at, p->instructions_count);
    s->operands_at = place(&at, p->operands_count * sizeof(cuda_tensor));
    s->maps_at = place(&at, CUDA_MAPS * p->operands_count * sizeof(cuda_map));
    s->lives_at = place(&at, 2 * p->lives_count * sizeof(int32_t));          /* values, steps */
    s->counters_at = place(&at, (p->barriers_count + 2) * sizeof(uint32_t)); /* barriers, finished, gave up */
    const size_t go = place(&at, sizeof(uint32_t)),                          /* which many poll */
        next = place(&at, p->header->placement == MT_PLACE_QUEUE ? CUDA_LOOP_RUNS * sizeof(uint32_t) : 0);
    s->counters_bytes = at - s->counters_at;
    mt_status status = cuda_memory_new(&s->tables, at, "a program's tables", where, error);
    if (status == MT_OK && s->handoff.bytes)
        status = cuda_memory_new(&s->slots, s->handoff.bytes, "a program's temporaries", where, error);
    const struct {
        size_t at;
        const void *data;
        size_t bytes;
    } parts[] = {{instructions, s->handoff.instructions, p->instructions_count * sizeof *p->instructions},
                 {order, p->order, p->order_count * sizeof *p->order},
                 {processors, p->processors, p->processors_count * sizeof *p->processors},
                 {ends, s->handoff.ends, p->instructions_count}};
    for (size_t i = 0; i < COUNT_OF(parts) && status == MT_OK; i++)
        if (parts[i].bytes)
            status = cuda_check(
                cuda_api.cuMemcpyHtoDAsync_v2(s->tables + parts[i].at, parts[i].data, parts[i].bytes, s->stream), where,
                error, "cannot copy the program's tables");
    const size_t pinned = sizeof *s->failure + sizeof *s->done;
    void *failure = NULL;
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuMemHostAlloc(&failure, pinned, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED), where,
                            error, "no pinned memory");
    s->failure = failure;
    cuda_address mapped = 0;
    if (status == MT_OK)
        status = cuda_check(cuda_api.cuMemHostGetDevicePointer_v2(&mapped, failure, 0), where, error,
                            "cannot map pinned memory");
    if (status == MT_OK) memset(s->failure, 0, pinned);
#define DEVICE(type, offset) ((type)(uintptr_t)(s->tables + (offset)))
    s->launch.instructions = DEVICE(const program_instruction *, instructions);
    s->launch.order = DEVICE(const uint32_t *, order);
    s->launch.processors = DEVICE(const cuda_range *, processors);
    s->launch.ends = DEVICE(const uint8_t *, ends);
    s->launch.operands = DEVICE(const cuda_tensor *, s->operands_at);
    s->launch.maps = DEVICE(const cuda_map *, s->maps_at);
    s->launch.lives = DEVICE(const int32_t *, s->lives_at);
    s->launch.live_steps = s->launch.lives + p->lives_count;
    s->launch.counters = DEVICE(uint32_t *, s->counters_at);
    s->launch.finished = s->launch.counters + p->barriers_count;
    s->launch.gave_up = s->launch.finished + 1;
    s->launch.go = DEVICE(uint32_t *, go);
    s->launch.next = p->header->placement == MT_PLACE_QUEUE ? DEVICE(uint32_t *, next) : NULL;
#undef DEVICE
    s->launch.failure = (cuda_failure *)(uintptr_t)mapped;
    s->launch.done = (cuda_done *)(s->launch.failure + 1);
    s->done = status == MT_OK ? (cuda_done *)(s->failure + 1) : NULL;
    s->launch.stamps = (char *)(uintptr_t)(s->slots + s->handoff.stamps_at);
    s->launch.stamp_bytes = (uint32_t)s->handoff.stamp_bytes;
    s->launch.instruction_count = (uint32_t)p->instructions_count;
    s->launch.live_count = (uint32_t)p->lives_count;
    return status;
}

mt_status cuda_session_code(cuda_session *s, mt_error *error) {
    const role_chip chip = role_chip_of(s->machine->device.major, s->machine->device.shared_bytes);
    emit_cuda_info info = {.target = &chip};
    const mt_status status = compile(s, &info, error);
    return status == MT_OK ? plan_shared(s, &info, error) : status;
}

mt_status cuda_session_load(cuda_session *s, mt_error *error) {
    mt_status status = device_layouts(s->program, &s->binding, s->memory, &s->layouts, error);
    if (status == MT_OK) status = cuda_session_code(s, error);
    if (status == MT_OK) status = make_tables(s, error);
    return status;
}

void cuda_session_unload(cuda_session *s) {
    cuda_memory_free(s->tables);
    cuda_memory_free(s->slots);
    cuda_memory_free(s->trace);
    if (s->failure) cuda_api.cuMemFreeHost(s->failure);
    if (s->module) cuda_api.cuModuleUnload(s->module);
}
