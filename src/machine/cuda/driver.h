/* The CUDA driver API, opened at run time: the same binary works where there is no NVIDIA driver, and the build needs
 * no CUDA headers. What is declared here follows NVIDIA's documented ABI; only what Monotile uses is declared. */
#ifndef MACHINE_CUDA_DRIVER_H
#define MACHINE_CUDA_DRIVER_H

#include "base/base.h"

typedef int cuda_result;                 /* 0: success */
typedef unsigned long long cuda_address; /* an address in device memory */
typedef struct cuda_context_object *cuda_context;
typedef struct cuda_stream_object *cuda_stream; /* NULL: the context's default stream */
typedef struct cuda_event_object *cuda_event;
typedef struct cuda_module_object *cuda_module;
typedef struct cuda_function_object *cuda_function;

/* The results that Monotile looks at; cuda_check explains more of them. */
enum { CUDA_E_OUT_OF_MEMORY = 2, CUDA_E_NO_DEVICE = 100, CUDA_E_NOT_READY = 600 };

/* For cuDeviceGetAttribute. */
enum {
    CUDA_DEVICE_CLOCK_KHZ = 13,
    CUDA_DEVICE_SM_COUNT = 16,
    CUDA_DEVICE_L2_BYTES = 38,
    CUDA_DEVICE_CAPABILITY_MAJOR = 75,
    CUDA_DEVICE_CAPABILITY_MINOR = 76,
    CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN = 97
};

/* For cuFuncGetAttribute; DYNAMIC_SHARED and CARVEOUT may be set as well. */
enum {
    CUDA_FUNCTION_MAX_THREADS = 0,
    CUDA_FUNCTION_STATIC_SHARED = 1,
    CUDA_FUNCTION_LOCAL_BYTES = 3, /* a thread's; not 0 when registers were spilled */
    CUDA_FUNCTION_REGISTERS = 4,
    CUDA_FUNCTION_DYNAMIC_SHARED = 8, /* how much a launch may ask for; above 48 KiB only after it is set */
    CUDA_FUNCTION_CARVEOUT = 9
};

enum { CUDA_STREAM_NON_BLOCKING = 1 };                         /* for cuStreamCreate */
enum { CUDA_EVENT_BLOCKING = 1, CUDA_EVENT_NO_TIMING = 2 };    /* for cuEventCreate */
enum { CUDA_HOST_PORTABLE = 1, CUDA_HOST_MAPPED = 2 };         /* for cuMemHostAlloc */
enum { CUDA_JIT_ERROR_LOG = 5, CUDA_JIT_ERROR_LOG_BYTES = 6 }; /* for cuModuleLoadDataEx */

enum { CUDA_LAUNCH_COOPERATIVE = 2, CUDA_LAUNCH_CLUSTER = 4 };
typedef struct cuda_launch_attribute {
    int id;
    union { /* the ABI's size and alignment: 64 bytes, 8 */
        uint64_t words[8];
        int cooperative;
        struct {
            unsigned x, y, z;
        } cluster;
    } value;
} cuda_launch_attribute;

typedef struct cuda_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
    unsigned dynamic_shared;
    cuda_stream stream;
    cuda_launch_attribute *attributes;
    unsigned attribute_count;
} cuda_launch_config;

/* A tensor map, made by cuTensorMapEncodeTiled and passed by value as a __grid_constant__ parameter (or copied to
 * device memory at an address that is a multiple of 64). Extents and strides are innermost first; strides are bytes,
 * without the innermost one. */
typedef struct cuda_tensor_map {
    _Alignas(128) uint64_t words[16];
} cuda_tensor_map;
enum cuda_tensor_type {
    CUDA_TENSOR_U8,
    CUDA_TENSOR_U16,
    CUDA_TENSOR_U32,
    CUDA_TENSOR_I32,
    CUDA_TENSOR_U64,
    CUDA_TENSOR_I64,
    CUDA_TENSOR_F16,
    CUDA_TENSOR_F32,
    CUDA_TENSOR_F64,
    CUDA_TENSOR_BF16
};
enum { CUDA_TENSOR_INTERLEAVE_NONE };
enum cuda_tensor_swizzle {
    CUDA_TENSOR_SWIZZLE_NONE,
    CUDA_TENSOR_SWIZZLE_32,
    CUDA_TENSOR_SWIZZLE_64,
    CUDA_TENSOR_SWIZZLE_128
};
enum cuda_tensor_promotion { CUDA_TENSOR_L2_NONE, CUDA_TENSOR_L2_64, CUDA_TENSOR_L2_128, CUDA_TENSOR_L2_256 };
enum cuda_tensor_fill { CUDA_TENSOR_FILL_ZERO, CUDA_TENSOR_FILL_NAN };

/* Every function that is used, under the name by which the driver exports it (which is not always the documentation's:
 * "_v2" is part of the binary interface). All are there since CUDA 12.0, which is the oldest driver Monotile takes. */
#define CUDA_FUNCTIONS(F)                                                                                              \
    F(cuGetErrorName, (cuda_result result, const char **name))                                                         \
    F(cuGetErrorString, (cuda_result result, const char **text))                                                       \
    F(cuInit, (unsigned flags))                                                                                        \
    F(cuDriverGetVersion, (int *version))                                                                              \
    F(cuDeviceGetCount, (int *count))                                                                                  \
    F(cuDeviceGet, (int *device, int ordinal))                                                                         \
    F(cuDeviceGetName, (char *name, int room, int device))                                                             \
    F(cuDeviceGetAttribute, (int *value, int attribute, int device))                                                   \
    F(cuDeviceTotalMem_v2, (size_t * bytes, int device))                                                               \
    F(cuDevicePrimaryCtxRetain, (cuda_context * context, int device))                                                  \
    F(cuDevicePrimaryCtxRelease_v2, (int device))                                                                      \
    F(cuCtxSetCurrent, (cuda_context context))                                                                         \
    F(cuCtxPushCurrent_v2, (cuda_context context))                                                                     \
    F(cuCtxPopCurrent_v2, (cuda_context * context))                                                                    \
    F(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total))                                                          \
    F(cuMemAlloc_v2, (cuda_address * address, size_t bytes))                                                           \
    F(cuMemFree_v2, (cuda_address address))                                                                            \
    F(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                                                   \
    F(cuMemFreeHost, (void *memory))                                                                                   \
    F(cuMemHostGetDevicePointer_v2, (cuda_address * address, void *memory, unsigned flags))                            \
    F(cuMemcpyHtoDAsync_v2, (cuda_address to, const void *from, size_t bytes, cuda_stream stream))                     \
    F(cuMemcpyDtoHAsync_v2, (void *to, cuda_address from, size_t bytes, cuda_stream stream))                           \
    F(cuMemsetD8Async, (cuda_address to, unsigned char value, size_t count, cuda_stream stream))                       \
    F(cuModuleLoadDataEx, (cuda_module * module, const void *image, unsigned count, int *options, void **values))      \
    F(cuModuleUnload, (cuda_module module))                                                                            \
    F(cuModuleGetFunction, (cuda_function * function, cuda_module module, const char *name))                           \
    F(cuModuleGetGlobal_v2, (cuda_address * address, size_t * bytes, cuda_module module, const char *name))            \
    F(cuFuncGetAttribute, (int *value, int attribute, cuda_function function))                                         \
    F(cuFuncSetAttribute, (cuda_function function, int attribute, int value))                                          \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, cuda_function f, int threads, size_t dynamic_shared)) \
    F(cuLaunchKernel,                                                                                                  \
      (cuda_function f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,         \
       unsigned block_z, unsigned dynamic_shared, cuda_stream stream, void **parameters, void **extra))                \
    F(cuLaunchKernelEx, (const cuda_launch_config *launch, cuda_function f, void **parameters, void **extra))          \
    F(cuStreamCreate, (cuda_stream * stream, unsigned flags))                                                          \
    F(cuStreamQuery, (cuda_stream stream))                                                                             \
    F(cuStreamSynchronize, (cuda_stream stream))                                                                       \
    F(cuStreamDestroy_v2, (cuda_stream stream))                                                                        \
    F(cuEventCreate, (cuda_event * event, unsigned flags))                                                             \
    F(cuEventRecord, (cuda_event event, cuda_stream stream))                                                           \
    F(cuEventSynchronize, (cuda_event event))                                                                          \
    F(cuEventElapsedTime, (float *milliseconds, cuda_event start, cuda_event end))                                     \
    F(cuEventDestroy_v2, (cuda_event event))                                                                           \
    F(cuTensorMapEncodeTiled, (cuda_tensor_map * map, int type, uint32_t rank, void *address, const uint64_t *extents, \
                               const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,          \
                               int interleave, int swizzle, int promotion, int fill))

typedef struct cuda_functions {
#define CUDA_FUNCTION(name, parameters) cuda_result(*name) parameters;
    CUDA_FUNCTIONS(CUDA_FUNCTION)
#undef CUDA_FUNCTION
} cuda_functions;

/* Filled by a cuda_driver_open that succeeded, and constant from then on. */
extern cuda_functions cuda_api;

/* Opens and initialises the driver, once in a process; later calls repeat the first one's answer. */
mt_status cuda_driver_open(mt_error *error);

/* MT_OK for success, else MT_E_IO with what was tried (the format), CUDA's name and words for the result, and what
 * to do about it where that is known: `return cuda_check(cuda_api.cuEventRecord(e, s), where, error, "cannot take
 * the time")`. */
mt_status cuda_check(cuda_result result, const char *where, mt_error *error, const char *format, ...) PRINTF_LIKE(4, 5);

typedef struct cuda_device {
    int ordinal, handle;
    char where[24]; /* "cuda:0", for error messages */
    char name[128];
    char architecture[16]; /* what code for it is compiled for: "sm_90a" */
    int major, minor;      /* the compute capability */
    int sm_count;
    int shared_bytes; /* the most shared memory a block may ask for */
    int l2_bytes;
    int clock_khz;
    int driver_version; /* 1000 * major + 10 * minor */
    size_t memory_bytes;
    cuda_context context; /* the device's primary context, retained */
} cuda_device;

mt_status cuda_device_count(int *count, mt_error *error);
/* Fills *d, but for the context. On failure *d is zeroed. */
mt_status cuda_device_open(cuda_device *d, int ordinal, mt_error *error);
/* Retains the primary context, which takes a fraction of a second; does not make it current. */
mt_status cuda_device_start(cuda_device *d, mt_error *error);
void cuda_device_close(cuda_device *d); /* a zeroed device is allowed */
/* Between the two, this thread uses the device; the caller's own current context comes back with the second. */
mt_status cuda_device_enter(const cuda_device *d, mt_error *error);
void cuda_device_leave(void);

/* Device memory in the current context, aligned to 256, not cleared. The message of a failure says what the memory was
 * for, how much was asked for and how much was free. 0 bytes give a valid address. */
mt_status cuda_memory_new(cuda_address *out, size_t bytes, const char *what, const char *where, mt_error *error);
void cuda_memory_free(cuda_address address); /* 0 is allowed */

#endif
