/* Opening the CUDA driver and saying what is wrong with it. */
#include "machine/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OLDEST_DRIVER 12000

cuda_functions cuda_api;

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define CUDA_FUNCTION(name, parameters) {#name, offsetof(cuda_functions, name)},
    CUDA_FUNCTIONS(CUDA_FUNCTION)
#undef CUDA_FUNCTION
};

/* What a person can do about a result; NULL where we know nothing that its name does not say. */
static const char *advice(cuda_result result) {
    switch (result) {
    case 2:
        return "end other programs that use this GPU, or use a smaller model or context";
    case 3:
    case 4:
        return "a process made by fork() after CUDA was started cannot use it";
    case 34:
        return "this is the CUDA toolkit's stub: install the GPU driver and take the stubs out of LD_LIBRARY_PATH";
    case 46:
        return "another process may hold the GPU alone: see `nvidia-smi -q -d COMPUTE`";
    case 101:
        return "`nvidia-smi -L` lists the GPUs";
    case 200: /* an invalid image */
    case 209: /* no binary for this GPU */
    case 218:
    case 222:
        return "the code is for another GPU, or NVRTC is newer than the driver: update the driver, or set "
               "MONOTILE_NVRTC to the NVRTC of the driver's CUDA version";
    case 214:
        return "the GPU's memory reported an error: see `nvidia-smi -q -d ECC`";
    case 304:
    case 800:
        return "check that this user may open /dev/nvidia*; a container needs the GPU passed to it";
    case 700:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
        return "the kernel failed and this process cannot use the GPU any more; please report it";
    case 701:
        return "the kernel wants more registers or shared memory than an SM has";
    case 702:
        return "the GPU drives a display and its kernels' run time is limited";
    case 720:
        return "not all blocks fit on the GPU at once: another program may hold a part of it";
    case 802:
        return "the driver is not ready: a machine with NVSwitch needs the service nvidia-fabricmanager";
    case 803:
        return "the driver's library and its kernel module differ: restart the machine";
    case 804:
        return "the CUDA compatibility package does not support this GPU: take it out of LD_LIBRARY_PATH";
    default:
        return NULL;
    }
}

/* Adds to a NUL-terminated text; what does not fit is dropped. */
static void append(char *out, size_t room, const char *format, ...) PRINTF_LIKE(3, 4);
static void append(char *out, size_t room, const char *format, ...) {
    const size_t used = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + used, room - used, format, arguments);
    va_end(arguments);
}

mt_status cuda_check(cuda_result result, const char *where, mt_error *error, const char *format, ...) {
    if (result == 0) return MT_OK;
    char message[sizeof error->message], *const end = message + sizeof message / 2; /* leave room for the rest */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, (size_t)(end - message), format, arguments);
    va_end(arguments);
    const char *name = NULL, *words = NULL, *hint = advice(result);
    if (cuda_api.cuGetErrorName && cuda_api.cuGetErrorName(result, &name)) name = NULL;
    if (cuda_api.cuGetErrorString && cuda_api.cuGetErrorString(result, &words)) words = NULL;
    if (name)
        append(message, sizeof message, ": %s (%d)", name, result);
    else
        append(message, sizeof message, ": CUDA's error %d", result);
    if (words) append(message, sizeof message, ", \"%s\"", words);
    if (hint) append(message, sizeof message, "; %s", hint);
    return error_set(error, MT_E_IO, where, "%s", message);
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static mt_error refused; /* code MT_OK: the driver is open */
static int driver_version;

/* cuInit answers "no device" for several causes. */
static void explain_no_device(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *control = "/dev/nvidiactl";
    if (visible) {
        error_set(&refused, MT_E_IO, "cuda",
                  "the driver shows no GPU; is CUDA_VISIBLE_DEVICES=\"%s\" meant to hide them?", visible);
    } else if (!access(control, F_OK) && access(control, R_OK | W_OK)) {
        error_set(&refused, MT_E_IO, "cuda", "the driver shows no GPU because this user may not open %s", control);
    } else {
        error_set(&refused, MT_E_IO, "cuda",
                  "there is a CUDA driver but no GPU that it can use: see what `nvidia-smi` lists; a container needs "
                  "the GPU passed to it");
    }
}

static void open_driver(void) {
    const char *const library = "libcuda.so.1";
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* stays open: CUDA cannot be unloaded */
    if (!handle) {
        error_set(&refused, MT_E_IO, "cuda",
                  "there is no CUDA driver here (%s); install NVIDIA's, 525 or newer, or use the machine \"cpu\"",
                  dlerror());
        return;
    }
    const char *missing = NULL;
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (!address && !missing) missing = functions[i].name;
        memcpy((char *)&cuda_api + functions[i].offset, &address, sizeof address);
    }
    if (cuda_api.cuDriverGetVersion) cuda_api.cuDriverGetVersion(&driver_version);
    if (driver_version && driver_version < OLDEST_DRIVER) {
        error_set(&refused, MT_E_IO, "cuda",
                  "the GPU driver is too old: it is made for CUDA %d.%d and Monotile needs 12.0 (driver 525) or newer",
                  driver_version / 1000, driver_version % 1000 / 10);
    } else if (missing) {
        error_set(&refused, MT_E_IO, "cuda", "%s has no function %s; update the GPU driver", library, missing);
    } else {
        const cuda_result result = cuda_api.cuInit(0);
        if (result == CUDA_E_NO_DEVICE)
            explain_no_device();
        else
            cuda_check(result, "cuda", &refused, "the CUDA driver does not start");
    }
}

mt_status cuda_driver_open(mt_error *error) {
    pthread_once(&once, open_driver);
    if (refused.code != MT_OK && error) *error = refused;
    return refused.code;
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

mt_status cuda_device_count(int *count, mt_error *error) {
    *count = 0;
    const mt_status status = cuda_driver_open(error);
    if (status != MT_OK) return status;
    return cuda_check(cuda_api.cuDeviceGetCount(count), "cuda", error, "cannot count the GPUs");
}

mt_status cuda_device_open(cuda_device *d, int ordinal, mt_error *error) {
    *d = (cuda_device){.ordinal = ordinal};
    snprintf(d->where, sizeof d->where, "cuda:%d", ordinal);
    const struct {
        int attribute, *value;
    } attributes[] = {{CUDA_DEVICE_SM_COUNT, &d->sm_count},      {CUDA_DEVICE_CAPABILITY_MAJOR, &d->major},
                      {CUDA_DEVICE_CAPABILITY_MINOR, &d->minor}, {CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN, &d->shared_bytes},
                      {CUDA_DEVICE_L2_BYTES, &d->l2_bytes},      {CUDA_DEVICE_CLOCK_KHZ, &d->clock_khz}};
    int count;
    mt_status status = cuda_device_count(&count, error);
    if (status != MT_OK) goto done;
    if (ordinal < 0 || ordinal >= count) {
        status = error_set(error, MT_E_ARGUMENT, d->where, "no such GPU; the driver shows %d, counted from 0", count);
        goto done;
    }
    d->driver_version = driver_version;
    cuda_result result = cuda_api.cuDeviceGet(&d->handle, ordinal);
    if (!result) result = cuda_api.cuDeviceGetName(d->name, sizeof d->name, d->handle);
    if (!result) result = cuda_api.cuDeviceTotalMem_v2(&d->memory_bytes, d->handle);
    for (size_t i = 0; i < COUNT_OF(attributes) && !result; i++)
        result = cuda_api.cuDeviceGetAttribute(attributes[i].value, attributes[i].attribute, d->handle);
    status = cuda_check(result, d->where, error, "cannot read the GPU's properties");
    if (status != MT_OK) goto done;
    /* From Hopper on, the "a" variant has the instructions that only this generation knows (wgmma, tcgen05). */
    snprintf(d->architecture, sizeof d->architecture, "sm_%d%d%s", d->major, d->minor, d->major >= 9 ? "a" : "");
done:
    if (status != MT_OK) *d = (cuda_device){0};
    return status;
}

mt_status cuda_device_start(cuda_device *d, mt_error *error) {
    const mt_status status =
        cuda_check(cuda_api.cuDevicePrimaryCtxRetain(&d->context, d->handle), d->where, error, "cannot use the GPU");
    if (status != MT_OK) d->context = NULL;
    return status;
}

void cuda_device_close(cuda_device *d) {
    if (d->context) cuda_api.cuDevicePrimaryCtxRelease_v2(d->handle);
    *d = (cuda_device){0};
}

mt_status cuda_device_enter(const cuda_device *d, mt_error *error) {
    return cuda_check(cuda_api.cuCtxPushCurrent_v2(d->context), d->where, error, "cannot make the GPU current");
}

void cuda_device_leave(void) {
    cuda_context left;
    cuda_api.cuCtxPopCurrent_v2(&left);
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

mt_status cuda_memory_new(cuda_address *out, size_t bytes, const char *what, const char *where, mt_error *error) {
    *out = 0;
    const cuda_result result = cuda_api.cuMemAlloc_v2(out, bytes ? bytes : 1);
    if (result != CUDA_E_OUT_OF_MEMORY)
        return cuda_check(result, where, error, "cannot allocate %zu bytes for %s", bytes, what);
    const double mib = 1 << 20;
    size_t unused = 0, total = 0;
    if (cuda_api.cuMemGetInfo_v2(&unused, &total)) unused = total = 0;
    return cuda_check(result, where, error, "cannot allocate %.1f MiB for %s, with %.1f of the GPU's %.1f MiB free",
                      (double)bytes / mib, what, (double)unused / mib, (double)total / mib);
}

void cuda_memory_free(cuda_address address) {
    if (address) cuda_api.cuMemFree_v2(address);
}
