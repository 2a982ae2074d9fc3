/* CUDA C to machine code, by NVIDIA's compiler library NVRTC, which is opened at run time, and through a cache on disk.
 * Needs no GPU and no driver. All functions may be called from several threads at once. */
#ifndef MACHINE_CUDA_NVRTC_H
#define MACHINE_CUDA_NVRTC_H

#include "base/base.h"

typedef struct cuda_header {
    const char *name, *text;
} cuda_header;

/* What is compiled. NVRTC has no standard headers and finds only these headers, by the very name that #include has.
 * A small <stdint.h> of ours (int8_t...uint64_t, intptr_t, uintptr_t; 64 bits are `long long`) is always there,
 * unless `headers` has one. Options are nvcc's ("--std=c++17", "-DROWS=4"), without the architecture. An option must
 * not bring in files (-I): the cache would not notice when they change. */
typedef struct cuda_unit {
    const char *name; /* names the text in messages: "program.cu" */
    const char *text;
    const char *architecture; /* "sm_90a", as in cuda_device; always a real one, not "compute_90" */
    const cuda_header *headers;
    size_t header_count;
    const char *const *options;
    size_t option_count;
} cuda_unit;

/* Replaces *cubin by the machine code (free it with text_free), from the cache when it is there. The compiler's log,
 * with its warnings, is appended to *log unless that is NULL; code from the cache has none. A refused text gives
 * MT_E_COMPILE: the message holds the log's first errors, `where` the first one's "file:line" (a #line counts). A
 * missing NVRTC gives MT_E_COMPILE too, and an architecture that it does not know MT_E_UNSUPPORTED. A cache that
 * cannot be read or written costs time, but is no failure. */
mt_status cuda_compile(text *cubin, text *log, const cuda_unit *unit, mt_error *error);

/* Opens NVRTC, once in a process, and tells its version; it is at least 12.0. It is looked for in MONOTILE_NVRTC
 * (the library or its folder, such as nvidia/cu13/lib of NVIDIA's Python packages) and nowhere else when that is
 * set; else in the loader's search path, in lib64 of CUDA_HOME and CUDA_PATH, and in /usr/local/cuda/lib64. */
mt_status cuda_nvrtc_version(int *major, int *minor, mt_error *error);

/* How many times this process has called the compiler: what the cache gave is not counted. */
uint64_t cuda_compile_count(void);

#endif
