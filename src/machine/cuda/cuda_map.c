/* Tensor maps: how the copy engine reads an operand in pieces. device.c says which operands have one, and of what
 * shape; the driver encodes it. Chips before Hopper have no such engine: their ops were lowered without. */
#include "machine/cuda/cuda.h"

_Static_assert(sizeof(cuda_map) == sizeof(cuda_tensor_map) && _Alignof(cuda_map) >= 64, "the kernel's is the driver's");

mt_status cuda_maps_make(const cuda_session *s, const cuda_tensor *operands, cuda_tensor_map *out, mt_error *error) {
    static const uint32_t steps[4] = {1, 1, 1, 1};
    const mt_program *p = s->program;
    for (size_t i = 0; i < CUDA_MAPS * p->operands_count; i++) {
        const size_t operand = i / CUDA_MAPS;
        device_map m = device_map_of(p, &s->binding, s->layouts, operand, (int)(i % CUDA_MAPS));
        memset(&out[i], 0, sizeof out[i]);
        if (!m.rank || s->machine->device.major < 9) continue;
        const mt_status status = cuda_check(
            cuda_api.cuTensorMapEncodeTiled(&out[i],
                                            m.element == 4   ? CUDA_TENSOR_U32
                                            : m.element == 2 ? CUDA_TENSOR_U16
                                                             : CUDA_TENSOR_U8,
                                            (uint32_t)m.rank, (char *)operands[operand].data + m.offset, m.extent,
                                            m.stride + 1, m.box, steps, CUDA_TENSOR_INTERLEAVE_NONE,
                                            m.swizzle ? CUDA_TENSOR_SWIZZLE_128 : CUDA_TENSOR_SWIZZLE_NONE,
                                            CUDA_TENSOR_L2_256, CUDA_TENSOR_FILL_ZERO),
            program_string(p, p->tensors[p->operands[operand].tensor].name), error,
            "cannot make a tensor map of [%llu, %llu]", (unsigned long long)m.extent[1],
            (unsigned long long)m.extent[0]);
        if (status != MT_OK) return status;
    }
    return MT_OK;
}
