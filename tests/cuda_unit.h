/* A program's CUDA unit without a GPU: its text, and its code for any chip, as the CUDA machine makes them
 * (src/machine/cuda/cuda_load.c). */
#ifndef CUDA_UNIT_H
#define CUDA_UNIT_H

#include "machine/cuda/nvrtc.h"
#include "machine/device.h"

static inline __attribute__((unused)) mt_status cuda_unit_text(const mt_program *p, text *out, mt_error *error) {
    program_binding b;
    emit_cuda_info info = {0};
    role_layout *layouts;
    emit_cuda_op *ops;
    arena *memory = arena_new();
    mt_status status = memory ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory");
    if (status == MT_OK) status = program_bind(p, memory, &b, error);
    if (status == MT_OK) status = device_layouts(p, &b, memory, &layouts, error);
    if (status == MT_OK) status = device_ops(p, &b, layouts, memory, &ops, error);
    device_handoff handoff;
    if (status == MT_OK) status = device_handoff_choose(p, &b, ops, memory, &handoff, error);
    if (status == MT_OK) status = emit_cuda(out, ops, p->ops_count, &info, error);
    arena_free(memory);
    return status;
}

/* Also leaves the code in the cache, where the machine finds it. `cubin` may be NULL. */
static inline __attribute__((unused)) mt_status cuda_unit_compile(const mt_program *p, const char *architecture,
                                                                  bool traced, text *cubin, mt_error *error) {
    static const char *const options[] = {"--std=c++17", "-default-device", "--fmad=true", "-DMT_TRACE"};
    text unit = {0}, own = {0};
    mt_status status = cuda_unit_text(p, &unit, error);
    const cuda_unit u = {.name = "program.cu",
                         .text = unit.data,
                         .architecture = architecture,
                         .options = options,
                         .option_count = COUNT_OF(options) - !traced};
    if (status == MT_OK) status = cuda_compile(cubin ? cubin : &own, NULL, &u, error);
    text_free(&unit);
    text_free(&own);
    return status;
}

#endif
