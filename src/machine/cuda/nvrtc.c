/* NVRTC by dlopen, and the cache of what it made.
 *
 * A cache file is <cache folder>/cuda/<key>.cubin: the machine code and a trailer (struct trailer) that shows
 * whether it is whole. The key is a hash over everything that the code depends on, so a file never becomes stale; a
 * file that does not match its trailer is made again. Files appear by rename: processes that compile the same unit
 * at once only waste time. */
#include "machine/cuda/nvrtc.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CACHE_VERSION "monotile cubin 1"
#define CACHE_LIMIT   ((size_t)1 << 30) /* more than any unit's code: what a damaged cache may make us read */
#define OLDEST_MAJOR  12

typedef struct nvrtc_program_object *nvrtc_program;
enum { NVRTC_OUT_OF_MEMORY = 1, NVRTC_COMPILATION = 6 };

#define NVRTC_FUNCTIONS(F)                                                                                             \
    F(const char *, nvrtcGetErrorString, (int result))                                                                 \
    F(int, nvrtcVersion, (int *major, int *minor))                                                                     \
    F(int, nvrtcGetNumSupportedArchs, (int *count))                                                                    \
    F(int, nvrtcGetSupportedArchs, (int *numbers))                                                                     \
    F(int, nvrtcCreateProgram,                                                                                         \
      (nvrtc_program * program, const char *text, const char *name, int header_count, const char *const *header_texts, \
       const char *const *header_names))                                                                               \
    F(int, nvrtcDestroyProgram, (nvrtc_program * program))                                                             \
    F(int, nvrtcCompileProgram, (nvrtc_program program, int option_count, const char *const *options))                 \
    F(int, nvrtcGetProgramLogSize, (nvrtc_program program, size_t * size))                                             \
    F(int, nvrtcGetProgramLog, (nvrtc_program program, char *log))                                                     \
    F(int, nvrtcGetCUBINSize, (nvrtc_program program, size_t * size))                                                  \
    F(int, nvrtcGetCUBIN, (nvrtc_program program, char *cubin))

typedef struct nvrtc_functions {
#define NVRTC_FUNCTION(type, name, parameters) type(*name) parameters;
    NVRTC_FUNCTIONS(NVRTC_FUNCTION)
#undef NVRTC_FUNCTION
} nvrtc_functions;

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define NVRTC_FUNCTION(type, name, parameters) {#name, offsetof(nvrtc_functions, name)},
    NVRTC_FUNCTIONS(NVRTC_FUNCTION)
#undef NVRTC_FUNCTION
};

/* Opening: all of this is written under pthread_once and constant from then on. ------------------------------------ */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static mt_error refused; /* code MT_OK: NVRTC is open */
static nvrtc_functions api;
static int version_major, version_minor;
static int64_t library_size; /* tells a library's patch releases apart: its version has only two numbers */
static int known[64];        /* the architectures' numbers */
static int known_count;

/* Opens one library, by a path or by a name that the loader looks up. */
static bool open_library(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return false;
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (!address) goto unfit;
        memcpy((char *)&api + functions[i].offset, &address, sizeof address);
    }
    if (api.nvrtcVersion(&version_major, &version_minor) || version_major < OLDEST_MAJOR) goto unfit;
    if (api.nvrtcGetNumSupportedArchs(&known_count) || known_count < 0 || known_count > (int)COUNT_OF(known) ||
        api.nvrtcGetSupportedArchs(known))
        goto unfit;
    /* NVRTC opens its builtins by name when it first needs them. That would fail where both lie outside the loader's
     * search path, but not once the library of that name is loaded. */
    void *version_address;
    memcpy(&version_address, &api.nvrtcVersion, sizeof version_address);
    Dl_info info;
    struct stat file;
    const char *slash;
    if (dladdr(version_address, &info) && !stat(info.dli_fname, &file) && (slash = strrchr(info.dli_fname, '/'))) {
        library_size = file.st_size;
        text builtins = {0};
        text_printf(&builtins, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - info.dli_fname), info.dli_fname,
                    version_major, version_minor);
        if (!builtins.failed) dlopen(builtins.data, RTLD_NOW | RTLD_LOCAL);
        text_free(&builtins);
    }
    return true; /* and stays open */
unfit:
    dlclose(handle);
    return false;
}

/* Opens the newest NVRTC in folder/below; folder NULL means the loader's search path. */
static bool open_in(const char *folder, const char *below) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    bool found = false;
    for (size_t i = 0; i < COUNT_OF(names) && !found; i++) {
        text path = {0};
        text_printf(&path, "%s%s%s", folder ? folder : "", below, names[i]);
        found = !path.failed && open_library(path.data);
        text_free(&path);
    }
    return found;
}

static void open_nvrtc(void) {
    const char *chosen = getenv("MONOTILE_NVRTC"), *home = getenv("CUDA_HOME"), *path = getenv("CUDA_PATH");
    if (chosen && *chosen) {
        if (!open_library(chosen) && !open_in(chosen, "/"))
            error_set(&refused, MT_E_COMPILE, "nvrtc",
                      "MONOTILE_NVRTC is \"%s\", but this is neither an NVRTC library of CUDA 12 or newer nor a folder "
                      "with libnvrtc.so.13 or libnvrtc.so.12",
                      chosen);
    } else if (!open_in(NULL, "") && !(home && *home && open_in(home, "/lib64/")) &&
               !(path && *path && open_in(path, "/lib64/")) && !open_in("/usr/local/cuda", "/lib64/")) {
        error_set(&refused, MT_E_COMPILE, "nvrtc",
                  "NVIDIA's compiler library libnvrtc.so.13 (or .12) is missing: it is neither in the loader's search "
                  "path nor in lib64 of CUDA_HOME, CUDA_PATH or /usr/local/cuda; install the CUDA toolkit, or the "
                  "Python package nvidia-cuda-nvrtc and set MONOTILE_NVRTC to the folder with its library");
    }
}

static mt_status open_once(mt_error *error) {
    pthread_once(&once, open_nvrtc);
    if (refused.code != MT_OK && error) *error = refused;
    return refused.code;
}

mt_status cuda_nvrtc_version(int *major, int *minor, mt_error *error) {
    const mt_status status = open_once(error);
    *major = status == MT_OK ? version_major : 0;
    *minor = status == MT_OK ? version_minor : 0;
    return status;
}

/* The types that NVIDIA's own headers declare under NVRTC, so that both can be used together. size_t is built in. */
static const cuda_header stdint_header = {"stdint.h", "#ifndef MONOTILE_STDINT_H\n"
                                                      "#define MONOTILE_STDINT_H\n"
                                                      "typedef signed char int8_t;\n"
                                                      "typedef short int16_t;\n"
                                                      "typedef int int32_t;\n"
                                                      "typedef long long int64_t;\n"
                                                      "typedef unsigned char uint8_t;\n"
                                                      "typedef unsigned short uint16_t;\n"
                                                      "typedef unsigned int uint32_t;\n"
                                                      "typedef unsigned long long uint64_t;\n"
                                                      "typedef long long intptr_t;\n"
                                                      "typedef unsigned long long uintptr_t;\n"
                                                      "#endif\n"};

/* The cache -------------------------------------------------------------------------------------------------------- */

typedef struct trailer {
    char version[16]; /* CACHE_VERSION, without its NUL */
    uint64_t size;    /* of the machine code in front */
    hash128 content, key;
} trailer;

static trailer trailer_of(const void *cubin, size_t size, hash128 key) {
    trailer t = {.size = size, .content = hash_bytes(cubin, size), .key = key};
    memcpy(t.version, CACHE_VERSION, sizeof t.version);
    return t;
}

/* Lengths in front, so that no two lists of strings give the same bytes. */
static void add_string(text *t, const char *s) {
    const uint64_t length = s ? strlen(s) : UINT64_MAX;
    text_append(t, &length, sizeof length);
    if (s) text_string(t, s);
}

static mt_status unit_key(hash128 *key, const cuda_unit *u, mt_error *error) {
    text t = {0};
    const int64_t numbers[] = {version_major, version_minor, library_size, (int64_t)u->header_count,
                               (int64_t)u->option_count};
    text_append(&t, numbers, sizeof numbers);
    add_string(&t, CACHE_VERSION);
    add_string(&t, stdint_header.text);
    add_string(&t, getenv("NVRTC_PREPEND_FLAGS")); /* NVRTC heeds them */
    add_string(&t, getenv("NVRTC_APPEND_FLAGS"));
    add_string(&t, u->architecture);
    for (size_t i = 0; i < u->option_count; i++) add_string(&t, u->options[i]);
    for (size_t i = 0; i < u->header_count; i++) {
        add_string(&t, u->headers[i].name);
        add_string(&t, u->headers[i].text);
    }
    add_string(&t, u->name);
    add_string(&t, u->text);
    const mt_status status = t.failed ? error_set(error, MT_E_MEMORY, u->name, "no memory to look up the code") : MT_OK;
    if (status == MT_OK) *key = hash_bytes(t.data, t.length);
    text_free(&t);
    return status;
}

/* The path of a key's file; empty when there is no usable cache folder. */
static void cache_path(text *path, hash128 key) {
    char hex[33];
    hash_hex(key, hex);
    bool usable = file_cache_folder(path, NULL) == MT_OK;
    if (usable) {
        text_string(path, "/cuda");
        usable = !path->failed && file_make_folders(path->data, NULL) == MT_OK;
        text_printf(path, "/%s.cubin", hex);
    }
    if (!usable || path->failed) text_free(path);
}

/* Cuts a file's bytes down to the code if they are whole and the key's. */
static bool cut_trailer(text *file, hash128 key) {
    if (file->length <= sizeof(trailer)) return false;
    const size_t size = file->length - sizeof(trailer);
    const trailer expected = trailer_of(file->data, size, key);
    if (memcmp(file->data + size, &expected, sizeof expected)) return false;
    file->length = size;
    file->data[size] = 0;
    return true;
}

/* Compiling -------------------------------------------------------------------------------------------------------- */

static atomic_ullong compile_count;

uint64_t cuda_compile_count(void) { return atomic_load(&compile_count); }

static mt_status check_architecture(const cuda_unit *u, mt_error *error) {
    const char *digits = strncmp(u->architecture, "sm_", 3) ? "" : u->architecture + 3;
    const size_t count = strspn(digits, "0123456789");
    const char *suffix = digits + count;
    if (count < 2 || count > 3 || (*suffix && strcmp(suffix, "a") && strcmp(suffix, "f")))
        return error_set(error, MT_E_ARGUMENT, u->name, "\"%s\" is no GPU architecture like sm_90a", u->architecture);
    for (int i = 0; i < known_count; i++)
        if (known[i] == atoi(digits)) return MT_OK;
    text list = {0};
    for (int i = 0; i < known_count; i++) text_printf(&list, "%ssm_%d", i ? ", " : "", known[i]);
    error_set(error, MT_E_UNSUPPORTED, u->name,
              "NVRTC %d.%d does not know %s, only %s; MONOTILE_NVRTC can name another NVRTC", version_major,
              version_minor, u->architecture, list.length ? list.data : "nothing");
    text_free(&list);
    return MT_E_UNSUPPORTED;
}

/* A line of the log that reports an error: "name(12): error: ...", "name(1): catastrophic error: ...", "nvrtc:
 * error: ...", "ptxas error   : ...", "ptxas application ptx input, line 27; error   : ...", "ptxas fatal   : ...". */
static bool is_error(const char *line, size_t length) {
    static const char *const signs[] = {": error", ": catastrophic error", "error   :", "ptxas fatal"};
    for (size_t i = 0; i < COUNT_OF(signs); i++)
        if (memmem(line, length, signs[i], strlen(signs[i]))) return true;
    return false;
}

/* The message of a refused unit: the log from its first error on, as many whole lines as fit. */
static mt_status report(const char *log, const cuda_unit *u, int result, mt_error *error) {
    const char *first = log;
    while (*first) {
        const size_t length = strcspn(first, "\n");
        if (is_error(first, length)) break;
        first += length + (first[length] == '\n');
    }
    if (!*first) first = log;

    char where[sizeof error->where];
    snprintf(where, sizeof where, "%s", u->name);
    const size_t open = strcspn(first, "(\n"); /* behind the file's name */
    const size_t digits = first[open] == '(' ? strspn(first + open + 1, "0123456789") : 0;
    if (digits && first[open + 1 + digits] == ')')
        snprintf(where, sizeof where, "%.*s:%.*s", (int)open, first, (int)digits, first + open + 1);

    size_t length = strlen(first);
    const size_t room = sizeof error->message - 128; /* the sentence in front takes less */
    while (length > room) {                          /* drop the last line, or what is too much of the only one */
        const char *line = memrchr(first, '\n', length - 1);
        length = line ? (size_t)(line - first) : room;
    }
    while (length && isspace((unsigned char)first[length - 1])) length--;
    const mt_status code = result == NVRTC_OUT_OF_MEMORY ? MT_E_MEMORY : MT_E_COMPILE;
    if (result == NVRTC_COMPILATION && length)
        return error_set(error, code, where, "NVRTC %d.%d refused the code for %s:\n%.*s", version_major, version_minor,
                         u->architecture, (int)length, first);
    return error_set(error, code, where, "NVRTC %d.%d failed for %s with %s\n%.*s", version_major, version_minor,
                     u->architecture, api.nvrtcGetErrorString(result), (int)length, first);
}

/* Compiles; *file becomes what a cache file holds: the code and its trailer. */
static mt_status compile(text *file, text *log, const cuda_unit *u, hash128 key, mt_error *error) {
    nvrtc_program program = NULL;
    char *words = NULL;
    size_t size = 0;
    int result;
    mt_status status = MT_OK;
    text architecture = {0};
    text_printf(&architecture, "--gpu-architecture=%s", u->architecture);
    const char **lists = calloc(u->option_count + 2 + 2 * (u->header_count + 1), sizeof *lists);
    if (!lists || architecture.failed) goto no_memory;
    const char **options = lists, **texts = options + u->option_count + 2, **names = texts + u->header_count + 1;
    int option_count = 0, header_count = 0;
    options[option_count++] = architecture.data;
    /* NVRTC's own cache (since 12.9) would only store everything twice. */
    if (version_major > 12 || version_minor >= 9) options[option_count++] = "--no-cache";
    for (size_t i = 0; i < u->option_count; i++) options[option_count++] = u->options[i];
    bool has_stdint = false;
    for (size_t i = 0; i < u->header_count; i++) {
        names[header_count] = u->headers[i].name;
        texts[header_count++] = u->headers[i].text;
        has_stdint |= !strcmp(u->headers[i].name, stdint_header.name);
    }
    if (!has_stdint) {
        names[header_count] = stdint_header.name;
        texts[header_count++] = stdint_header.text;
    }

    atomic_fetch_add(&compile_count, 1);
    result = api.nvrtcCreateProgram(&program, u->text, u->name, header_count, texts, names);
    if (result) {
        status = report("", u, result, error);
        goto done;
    }
    result = api.nvrtcCompileProgram(program, option_count, options);
    if (api.nvrtcGetProgramLogSize(program, &size)) size = 0; /* counts a NUL */
    words = calloc(1, size + 1);
    if (!words) goto no_memory;
    if (size && api.nvrtcGetProgramLog(program, words)) words[0] = 0;
    if (log) text_string(log, words);
    if (result) {
        status = report(words, u, result, error);
        goto done;
    }

    result = api.nvrtcGetCUBINSize(program, &size);
    if (result || size == 0 || size > CACHE_LIMIT - sizeof(trailer)) {
        status = error_set(error, MT_E_COMPILE, u->name, "NVRTC made %zu bytes of code for %s", size, u->architecture);
        goto done;
    }
    file->data = malloc(size + sizeof(trailer));
    if (!file->data) goto no_memory;
    file->length = file->capacity = size + sizeof(trailer);
    result = api.nvrtcGetCUBIN(program, file->data);
    if (result) {
        status = report(words, u, result, error);
        goto done;
    }
    const trailer end = trailer_of(file->data, size, key);
    memcpy(file->data + size, &end, sizeof end);
    goto done;
no_memory:
    status = error_set(error, MT_E_MEMORY, u->name, "no memory to compile the code");
done:
    if (program) api.nvrtcDestroyProgram(&program);
    if (status != MT_OK) text_free(file);
    text_free(&architecture);
    free(words);
    free(lists);
    return status;
}

mt_status cuda_compile(text *cubin, text *log, const cuda_unit *u, mt_error *error) {
    text path = {0};
    hash128 key;
    text_free(cubin);
    mt_status status = open_once(error);
    if (status == MT_OK) status = check_architecture(u, error);
    if (status == MT_OK) status = unit_key(&key, u, error);
    if (status != MT_OK) return status;
    cache_path(&path, key);
    if (path.length && file_read(cubin, path.data, CACHE_LIMIT, NULL) == MT_OK && cut_trailer(cubin, key)) goto done;
    text_free(cubin);
    status = compile(cubin, log, u, key, error);
    if (status != MT_OK) goto done;
    if (path.length) file_write_atomic(path.data, cubin->data, cubin->length, NULL);
    cut_trailer(cubin, key); /* of what was just made */
done:
    text_free(&path);
    return status;
}
