/* NVRTC, its cache, and the CUDA driver's door. NVRTC needs no GPU: what it makes is checked here everywhere (and
 * run where there is a GPU). Without libnvrtc those tests are skipped. What happens once in a process is tested in
 * forked children; those tests come first, while this process has opened neither library. The driver's error
 * messages are tested against a libcuda.so.1 of our own. */
#include "machine/cuda/driver.h"
#include "machine/cuda/nvrtc.h"
#include "temporary.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[TEMPORARY_BYTES]; /* everything that the tests write */

static int make_folder(void **state) {
    (void)state;
    return temporary_make(folder) ? setenv("MONOTILE_CACHE", folder, 1) : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return temporary_remove(folder);
}

/* Children ---------------------------------------------------------------------------------------------------------
 * A body runs in a process of its own and ends it with 0, or with 77 for "skip". */

enum { SKIP = 77 };

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define CHECK_SAYS(e, part)                                                                                            \
    do {                                                                                                               \
        if (!strstr((e).message, (part))) {                                                                            \
            fprintf(stderr, "%s:%d: \"%s\" is not in: %s\n", __FILE__, __LINE__, (part), (e).message);                 \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static pid_t start(int (*body)(void)) {
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) _exit(body());
    assert_true(pid > 0);
    return pid;
}

static int wait_for(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void in_child(int (*body)(void)) { assert_int_equal(wait_for(start(body)), 0); }

/* Units ------------------------------------------------------------------------------------------------------------ */

static const cuda_header double_header = {"prelude/double.h",
                                          "#include <stdint.h>\n"
                                          "static __device__ uint32_t twice(uint32_t x) { return 2 * x; }\n"};
static const char *const double_options[] = {"--std=c++17", "-DBONUS=1"};
static const cuda_unit double_unit = {
    .name = "double.cu",
    .text = "#include \"prelude/double.h\"\n"
            "extern \"C\" __global__ void run(uint32_t *x) { x[threadIdx.x] = twice(x[threadIdx.x]) + BONUS; }\n",
    .architecture = "sm_90a",
    .headers = &double_header,
    .header_count = 1,
    .options = double_options,
    .option_count = 2,
};

/* The unit with a line of its own, so that it is in no cache yet. */
static cuda_unit fresh_unit(char *room, size_t size, const char *mark) {
    cuda_unit u = double_unit;
    snprintf(room, size, "// %s\n%s", mark, double_unit.text);
    u.text = room;
    return u;
}

static bool is_cubin(const text *t) { return t->length > 64 && !memcmp(t->data, "\177ELF", 4); }

static void need_nvrtc(void) {
    mt_error e = {0};
    int major, minor;
    if (cuda_nvrtc_version(&major, &minor, &e) == MT_OK) return;
    static bool said;
    if (!said) print_message("skipped, NVRTC cannot be opened: %s\n", e.message);
    said = true;
    skip();
}

/* The one file in <cache>/cuda; fails when there are more or fewer. */
static void only_cache_file(char *path, size_t size) {
    char cache[256];
    snprintf(cache, sizeof cache, "%s/cuda", getenv("MONOTILE_CACHE"));
    DIR *d = opendir(cache);
    assert_non_null(d);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(d));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, size, "%s/%s", cache, entry->d_name);
        found++;
    }
    closedir(d);
    assert_int_equal(found, 1);
}

/* Gives the test a cache of its own. */
static void own_cache(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    setenv("MONOTILE_CACHE", path, 1);
}

/* Opening NVRTC ---------------------------------------------------------------------------------------------------- */

static int missing_nvrtc(void) {
    setenv("MONOTILE_NVRTC", "/nonexistent/nvrtc", 1);
    mt_error e = {0};
    int major = -1, minor = -1;
    CHECK(cuda_nvrtc_version(&major, &minor, &e) == MT_E_COMPILE);
    CHECK(e.code == MT_E_COMPILE && major == 0 && minor == 0);
    CHECK_SAYS(e, "MONOTILE_NVRTC is \"/nonexistent/nvrtc\"");
    CHECK(cuda_nvrtc_version(&major, &minor, NULL) == MT_E_COMPILE); /* and so it stays */
    unsetenv("MONOTILE_NVRTC");
    text cubin = {0};
    CHECK(cuda_compile(&cubin, NULL, &double_unit, &e) == MT_E_COMPILE);
    CHECK(!cubin.data);
    return 0;
}

static int not_nvrtc(void) { /* a library, but not this one */
    setenv("MONOTILE_NVRTC", "libc.so.6", 1);
    mt_error e = {0};
    int major, minor;
    CHECK(cuda_nvrtc_version(&major, &minor, &e) == MT_E_COMPILE);
    CHECK_SAYS(e, "libc.so.6");
    return 0;
}

static void test_missing(void **state) {
    (void)state;
    in_child(missing_nvrtc);
    in_child(not_nvrtc);
}

static int gate[2]; /* a pipe; children start when the parent closes it */

static int compile_both(void) {
    close(gate[1]);
    char c;
    if (read(gate[0], &c, 1) != 0) return 1;
    int major, minor;
    if (cuda_nvrtc_version(&major, &minor, NULL) != MT_OK) return SKIP;
    text cubin = {0};
    mt_error e = {0};
    CHECK(cuda_compile(&cubin, NULL, &double_unit, &e) == MT_OK);
    CHECK(is_cubin(&cubin));
    char path[256];
    snprintf(path, sizeof path, "%s/result-%ld", folder, (long)getpid());
    CHECK(file_write_atomic(path, cubin.data, cubin.length, NULL) == MT_OK);
    return 0;
}

/* Two processes compile one unit at once; both get its code, and one whole file is left behind. */
static void test_two_processes(void **state) {
    (void)state;
    own_cache("two");
    pid_t children[2];
    text results[3] = {{0}};
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < 2; i++) children[i] = start(compile_both);
    close(gate[0]);
    close(gate[1]);
    const int first = wait_for(children[0]), second = wait_for(children[1]);
    if (first == SKIP && second == SKIP) need_nvrtc();
    assert_int_equal(first, 0);
    assert_int_equal(second, 0);
    for (int i = 0; i < 2; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/result-%ld", folder, (long)children[i]);
        assert_int_equal(file_read(&results[i], path, 1 << 24, NULL), MT_OK);
    }
    char path[512];
    only_cache_file(path, sizeof path);
    assert_int_equal(cuda_compile(&results[2], NULL, &double_unit, NULL), MT_OK);
    assert_int_equal(cuda_compile_count(), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(results[i].length, results[2].length);
        assert_memory_equal(results[i].data, results[2].data, results[2].length);
    }
    for (int i = 0; i < 3; i++) text_free(&results[i]);
}

static void test_version(void **state) {
    (void)state;
    need_nvrtc();
    int major, minor;
    assert_int_equal(cuda_nvrtc_version(&major, &minor, NULL), MT_OK);
    assert_true(major >= 12 && minor >= 0);
}

/* Compiling -------------------------------------------------------------------------------------------------------- */

static void test_architectures(void **state) {
    (void)state;
    need_nvrtc();
    own_cache("architectures");
    static const char *const names[] = {"sm_80", "sm_90a", "sm_100a", "sm_120a"};
    text cubins[COUNT_OF(names)] = {{0}};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        cuda_unit u = double_unit;
        u.architecture = names[i];
        mt_error e = {0};
        const mt_status status = cuda_compile(&cubins[i], NULL, &u, &e);
        if (status == MT_E_UNSUPPORTED && i >= 2) { /* NVRTC before 12.8 */
            assert_non_null(strstr(e.message, names[i]));
            continue;
        }
        if (status != MT_OK) fail_msg("%s: %s", e.where, e.message);
        assert_true(is_cubin(&cubins[i]));
        for (size_t j = 0; j < i; j++)
            if (cubins[j].length == cubins[i].length)
                assert_memory_not_equal(cubins[i].data, cubins[j].data, cubins[i].length);
    }
    for (size_t i = 0; i < COUNT_OF(names); i++) text_free(&cubins[i]);
}

static void test_bad_architectures(void **state) {
    (void)state;
    need_nvrtc();
    static const char *const names[] = {"",       "sm_",     "sm_9",       "90a",   "compute_90",
                                        "sm_90b", "sm_9000", "sm_90a --x", "sm_-90"};
    text cubin = {0};
    mt_error e = {0};
    cuda_unit u = double_unit;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        u.architecture = names[i];
        assert_int_equal(cuda_compile(&cubin, NULL, &u, &e), MT_E_ARGUMENT);
    }
    u.architecture = "sm_999";
    assert_int_equal(cuda_compile(&cubin, NULL, &u, &e), MT_E_UNSUPPORTED);
    assert_non_null(strstr(e.message, "does not know sm_999"));
    assert_non_null(strstr(e.message, "sm_90"));
    assert_null(cubin.data);
}

static void expect_refusal(const char *code, const char *option, const char *where, const char *says) {
    const char *const options[] = {option};
    const cuda_unit u = {
        .name = "unit.cu", .text = code, .architecture = "sm_90a", .options = options, .option_count = !!option};
    text cubin = {0}, log = {0};
    mt_error e = {0};
    for (int i = 0; i < 2; i++) { /* failures are not cached */
        const uint64_t before = cuda_compile_count();
        assert_int_equal(cuda_compile(&cubin, &log, &u, &e), MT_E_COMPILE);
        assert_int_equal(cuda_compile_count(), before + 1);
    }
    assert_string_equal(e.where, where);
    if (!strstr(e.message, says)) fail_msg("\"%s\" is not in: %s", says, e.message);
    assert_true(log.length > 0);
    assert_null(cubin.data);
    text_free(&log);
}

static void test_refusals(void **state) {
    (void)state;
    need_nvrtc();
    own_cache("refusals");
#define KERNEL "extern \"C\" __global__ void f(int *x) "
    expect_refusal(KERNEL "{\n  x[0] = y;\n}\n", NULL, "unit.cu:2", "identifier \"y\" is undefined");
    expect_refusal(KERNEL "{\n  int warned;\n#line 41 \"ops/linear.tile\"\n  x[0] = y;\n}\n", NULL,
                   "ops/linear.tile:41", "identifier \"y\" is undefined");
    expect_refusal("#include \"nowhere.h\"\n", NULL, "unit.cu:1", "nowhere.h");
    expect_refusal(KERNEL "{ asm volatile(\"nonsense.b32 %0;\" ::\"r\"(x[0])); }\n", NULL, "unit.cu", "nonsense");
    expect_refusal(KERNEL "{}\n", "--no-such-option", "unit.cu", "no-such-option");
    /* More errors than a message holds: it ends with a whole line. */
    text code = {0};
    mt_error e = {0};
    text_string(&code, KERNEL "{\n");
    for (int i = 0; i < 200; i++) text_printf(&code, "  x[%d] = missing_name_%d;\n", i, i);
    text_string(&code, "}\n");
    expect_refusal(code.data, NULL, "unit.cu:2", "missing_name_0");
    text cubin = {0};
    const cuda_unit u = {.name = "unit.cu", .text = code.data, .architecture = "sm_90a"};
    assert_int_equal(cuda_compile(&cubin, NULL, &u, &e), MT_E_COMPILE);
    assert_true(strlen(e.message) < sizeof e.message - 1);
    text_free(&code);
    /* One line that is too long for a message. */
    text_string(&code, KERNEL "{ x[0] = ");
    for (int i = 0; i < 500; i++) text_string(&code, "missing_");
    text_string(&code, "; }\n");
    expect_refusal(code.data, NULL, "unit.cu:1", "identifier \"missing_");
    text_free(&code);
}

static void test_warnings(void **state) {
    (void)state;
    need_nvrtc();
    own_cache("warnings");
    const cuda_unit u = {.name = "unit.cu",
                         .architecture = "sm_90a",
                         .text = "extern \"C\" __global__ void f(int *x) { int forgotten = 3; x[0] = 1; }\n"};
    text cubin = {0}, log = {0};
    assert_int_equal(cuda_compile(&cubin, &log, &u, NULL), MT_OK);
    assert_non_null(strstr(log.data, "forgotten"));
    text_free(&cubin);
    text_free(&log);
}

/* A caller's own <stdint.h> takes the place of ours. */
static void test_own_stdint(void **state) {
    (void)state;
    need_nvrtc();
    own_cache("stdint");
    const cuda_header own = {"stdint.h", "typedef unsigned my_word;\n"};
    const cuda_unit u = {.name = "unit.cu",
                         .architecture = "sm_90a",
                         .headers = &own,
                         .header_count = 1,
                         .text = "#include <stdint.h>\nextern \"C\" __global__ void f(my_word *x) { x[0] = 1; }\n"};
    text cubin = {0};
    assert_int_equal(cuda_compile(&cubin, NULL, &u, NULL), MT_OK);
    text_free(&cubin);
}

/* The cache -------------------------------------------------------------------------------------------------------- */

static void test_cache(void **state) {
    (void)state;
    need_nvrtc();
    own_cache("cache");
    text first = {0}, second = {0};
    mt_error e = {0};
    uint64_t count = cuda_compile_count();
    assert_int_equal(cuda_compile(&first, NULL, &double_unit, &e), MT_OK);
    assert_int_equal(cuda_compile_count(), ++count);
    assert_int_equal(cuda_compile(&second, NULL, &double_unit, &e), MT_OK);
    assert_int_equal(cuda_compile_count(), count);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);

    /* Whatever the code depends on is a part of the key. */
    const cuda_header other_header = {"prelude/double.h",
                                      "#include <stdint.h>\n"
                                      "static __device__ uint32_t twice(uint32_t x) { return x; }\n"};
    const char *const other_options[] = {"--std=c++17", "-DBONUS=2"};
    cuda_unit variants[4] = {double_unit, double_unit, double_unit, double_unit};
    char room[512];
    variants[0].headers = &other_header;
    variants[1].options = other_options;
    variants[2].architecture = "sm_80";
    variants[3] = fresh_unit(room, sizeof room, "other text");
    for (size_t i = 0; i < COUNT_OF(variants); i++) {
        assert_int_equal(cuda_compile(&second, NULL, &variants[i], &e), MT_OK);
        assert_int_equal(cuda_compile_count(), ++count);
    }
    assert_int_equal(cuda_compile(&second, NULL, &double_unit, &e), MT_OK);
    assert_int_equal(cuda_compile_count(), count);
    text_free(&first);
    text_free(&second);
}

static void test_damaged_cache(void **state) {
    (void)state;
    need_nvrtc();
    own_cache("damaged");
    text good = {0}, file = {0}, again = {0};
    char path[512];
    assert_int_equal(cuda_compile(&good, NULL, &double_unit, NULL), MT_OK);
    only_cache_file(path, sizeof path);
    assert_int_equal(file_read(&file, path, 1 << 24, NULL), MT_OK);
    assert_true(file.length > good.length);
    const size_t lengths[] = {0, 1, 55, 56, good.length, file.length - 1};
    const size_t flips[] = {0, good.length / 2, good.length, good.length + 16, good.length + 24, file.length - 1};
    for (size_t i = 0; i < COUNT_OF(lengths) + COUNT_OF(flips) + 1; i++) {
        text damaged = {0};
        text_append(&damaged, file.data, file.length);
        size_t length = damaged.length;
        if (i < COUNT_OF(lengths))
            length = lengths[i];
        else if (i < COUNT_OF(lengths) + COUNT_OF(flips))
            damaged.data[flips[i - COUNT_OF(lengths)]] ^= 4;
        else
            text_append(&damaged, "x", 1), length++;
        assert_int_equal(file_write_atomic(path, damaged.data, length, NULL), MT_OK);
        text_free(&damaged);
        const uint64_t count = cuda_compile_count();
        assert_int_equal(cuda_compile(&again, NULL, &double_unit, NULL), MT_OK);
        assert_int_equal(cuda_compile_count(), count + 1);
        assert_int_equal(again.length, good.length);
        assert_int_equal(cuda_compile(&again, NULL, &double_unit, NULL), MT_OK); /* and the file is whole again */
        assert_int_equal(cuda_compile_count(), count + 1);
        assert_memory_equal(again.data, good.data, good.length);
    }
    /* Another unit's file under this unit's name. */
    char room[512];
    const cuda_unit other = fresh_unit(room, sizeof room, "another unit");
    assert_int_equal(remove(path), 0);
    assert_int_equal(cuda_compile(&again, NULL, &other, NULL), MT_OK);
    char other_path[512];
    only_cache_file(other_path, sizeof other_path);
    assert_int_equal(rename(other_path, path), 0);
    const uint64_t count = cuda_compile_count();
    assert_int_equal(cuda_compile(&again, NULL, &double_unit, NULL), MT_OK);
    assert_int_equal(cuda_compile_count(), count + 1);
    /* A folder in its place: there is no cache then, but there is code. */
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(cuda_compile(&again, NULL, &double_unit, NULL), MT_OK);
    assert_int_equal(again.length, good.length);
    text_free(&good);
    text_free(&file);
    text_free(&again);
}

static void test_no_cache(void **state) {
    (void)state;
    need_nvrtc();
    setenv("MONOTILE_CACHE", "/dev/null/no-folder", 1);
    text cubin = {0};
    assert_int_equal(cuda_compile(&cubin, NULL, &double_unit, NULL), MT_OK);
    assert_true(is_cubin(&cubin));
    text_free(&cubin);
}

static void *compile_some(void *number) {
    const int n = *(const int *)number;
    mt_status status = MT_OK;
    text cubin = {0};
    for (int i = 0; i < 4 && status == MT_OK; i++) { /* some units are every thread's, some its own */
        char room[512], mark[32];
        snprintf(mark, sizeof mark, "thread %d", i % 2 ? n : i);
        const cuda_unit u = fresh_unit(room, sizeof room, mark);
        status = cuda_compile(&cubin, NULL, &u, NULL);
        if (status == MT_OK && !is_cubin(&cubin)) status = MT_E_INTERNAL;
    }
    text_free(&cubin);
    return status == MT_OK ? NULL : number;
}

static void test_threads(void **state) {
    (void)state;
    need_nvrtc();
    own_cache("threads");
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, compile_some, &numbers[i]), 0);
    }
    int failures = 0;
    for (int i = 0; i < THREADS; i++) { /* no thread may outlive the test, whatever it finds */
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        failures += failed != NULL;
    }
    assert_int_equal(failures, 0);
}

/* The driver ------------------------------------------------------------------------------------------------------- */

/* A libcuda.so.1 that does nothing but answer as the environment says. Once it is loaded, the loader takes it for
 * that name. */
static void make_fake_driver(char *path, size_t size) {
    static const char code[] =
        "#include <stdlib.h>\n"
        "#include <string.h>\n"
        "static int number(const char *name, int otherwise) {\n"
        "    const char *s = getenv(name);\n"
        "    return s ? atoi(s) : otherwise;\n"
        "}\n"
        "int cuInit(unsigned f) { return number(\"FAKE_INIT\", 0); }\n"
        "int cuDriverGetVersion(int *v) { *v = number(\"FAKE_VERSION\", 13000); return 0; }\n"
        "int cuDeviceGetCount(int *n) { *n = 2; return 0; }\n"
        "int cuDeviceGet(int *d, int i) { *d = i; return 0; }\n"
        "int cuDeviceGetName(char *s, int n, int d) { strcpy(s, \"fake\"); return 0; }\n"
        "int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 8u << 20; return 0; }\n"
        "int cuDeviceGetAttribute(int *v, int a, int d) {\n"
        "    *v = a == 75 ? number(\"FAKE_MAJOR\", 9) : a == 76 ? 0 : a;\n"
        "    return 0;\n"
        "}\n"
        "int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)16; return number(\"FAKE_RETAIN\", 0); }\n"
        "int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }\n"
        "int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 1u << 20; *t = 8u << 20; return 0; }\n"
        "int cuMemAlloc_v2(unsigned long long *p, size_t n) { if (n > 8u << 20) return 2; *p = 4096; return 0; }\n"
        "int cuGetErrorName(int r, const char **s) { *s = r == 2 ? \"CUDA_ERROR_OUT_OF_MEMORY\" : 0; return r != 2; }\n"
        "int cuGetErrorString(int r, const char **s) { *s = r == 2 ? \"out of memory\" : 0; return r != 2; }\n";
    text source = {0}, command = {0};
    text_string(&source, code);
#define ADD(name, parameters)                                                                                          \
    if (!strstr(code, "int " #name "(")) text_string(&source, "int " #name "(void) { return 0; }\n");
    CUDA_FUNCTIONS(ADD)
#undef ADD
    char file[256];
    snprintf(file, sizeof file, "%s/fake.c", folder);
    snprintf(path, size, "%s/libcuda.so.1", folder);
    const char *compiler = getenv("CC");
    text_printf(&command, "%s -w -shared -fPIC -Wl,-soname,libcuda.so.1 -o '%s' '%s'",
                compiler && *compiler ? compiler : "cc", path, file);
    assert_int_equal(file_write_atomic(file, source.data, source.length, NULL), MT_OK);
    assert_int_equal(system(command.data), 0);
    text_free(&source);
    text_free(&command);
}

static char fake_driver[256];

static void open_fake(mt_status expected, const char *says) {
    CHECK(dlopen(fake_driver, RTLD_NOW | RTLD_LOCAL));
    mt_error e = {0};
    int count;
    CHECK(cuda_driver_open(&e) == expected);
    CHECK(e.code == expected);
    CHECK_SAYS(e, says);
    CHECK(cuda_device_count(&count, NULL) == expected);
}

static int fake_works(void) {
    open_fake(MT_OK, "");
    mt_error e = {0};
    cuda_device d;
    CHECK(cuda_device_open(&d, 2, &e) == MT_E_ARGUMENT);
    CHECK_SAYS(e, "shows 2");
    CHECK(!strcmp(e.where, "cuda:2"));
    CHECK(cuda_device_open(&d, -1, &e) == MT_E_ARGUMENT && !d.context);
    CHECK(cuda_device_open(&d, 1, &e) == MT_OK);
    CHECK(d.ordinal == 1 && d.handle == 1 && d.sm_count == 16 && d.shared_bytes == 97 && d.l2_bytes == 38);
    CHECK(d.clock_khz == 13 && d.memory_bytes == 8u << 20 && d.driver_version == 13000 && !d.context);
    CHECK(cuda_device_start(&d, &e) == MT_OK && d.context);
    CHECK(!strcmp(d.name, "fake") && !strcmp(d.architecture, "sm_90a") && !strcmp(d.where, "cuda:1"));
    CHECK(cuda_device_enter(&d, &e) == MT_OK);
    cuda_address address;
    CHECK(cuda_memory_new(&address, 0, "nothing", d.where, &e) == MT_OK && address);
    cuda_memory_free(address);
    CHECK(cuda_memory_new(&address, 64u << 20, "the weights", d.where, &e) == MT_E_IO && !address);
    CHECK_SAYS(e, "cannot allocate 64.0 MiB for the weights, with 1.0 of the GPU's 8.0 MiB free");
    CHECK_SAYS(e, "CUDA_ERROR_OUT_OF_MEMORY (2), \"out of memory\"; end other programs");
    cuda_memory_free(0);
    cuda_device_leave();
    cuda_device_close(&d);
    cuda_device_close(&d);
    setenv("FAKE_MAJOR", "8", 1);
    CHECK(cuda_device_open(&d, 0, &e) == MT_OK && !strcmp(d.architecture, "sm_80"));
    cuda_device_close(&d);
    setenv("FAKE_RETAIN", "46", 1);
    CHECK(cuda_device_open(&d, 0, &e) == MT_OK && cuda_device_start(&d, &e) == MT_E_IO && !d.context);
    CHECK_SAYS(e, "cannot use the GPU: CUDA's error 46; another process");
    /* A message longer than the record is cut and keeps CUDA's words. */
    char words[2000];
    memset(words, 'w', sizeof words);
    words[sizeof words - 1] = 0;
    CHECK(cuda_check(2, NULL, &e, "%s", words) == MT_E_IO);
    CHECK_SAYS(e, "www: CUDA_ERROR_OUT_OF_MEMORY (2), ");
    CHECK(cuda_check(2, NULL, NULL, "no record") == MT_E_IO && cuda_check(0, NULL, &e, "fine") == MT_OK);
    return 0;
}

static int fake_is_old(void) {
    setenv("FAKE_VERSION", "11040", 1);
    open_fake(MT_E_IO, "too old: it is made for CUDA 11.4");
    return 0;
}

static int fake_hides_devices(void) {
    setenv("FAKE_INIT", "100", 1);
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    open_fake(MT_E_IO, "CUDA_VISIBLE_DEVICES=\"-1\"");
    return 0;
}

static int fake_has_no_device(void) {
    setenv("FAKE_INIT", "100", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    open_fake(MT_E_IO, "GPU");
    return 0;
}

static int fake_does_not_start(void) {
    setenv("FAKE_INIT", "803", 1);
    open_fake(MT_E_IO, "the CUDA driver does not start: CUDA's error 803; the driver's library and its kernel module");
    return 0;
}

static int empty_driver(void) { /* an older libcuda lacks functions */
    open_fake(MT_E_IO, "has no function cuGetErrorName");
    return 0;
}

static void test_fake_driver(void **state) {
    (void)state;
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) skip(); /* compute-sanitizer brings the real one */
    make_fake_driver(fake_driver, sizeof fake_driver);
    in_child(fake_works);
    in_child(fake_is_old);
    in_child(fake_hides_devices);
    in_child(fake_has_no_device);
    in_child(fake_does_not_start);
    char command[400];
    const char *compiler = getenv("CC");
    snprintf(command, sizeof command, "echo 'int nothing;' | %s -x c -shared -fPIC -Wl,-soname,libcuda.so.1 -o '%s' -",
             compiler && *compiler ? compiler : "cc", fake_driver);
    assert_int_equal(system(command), 0);
    in_child(empty_driver);
}

/* The real driver: a clear refusal, or, where there is a GPU, the unit's kernel doubles numbers on it. */
static void test_device(void **state) {
    (void)state;
    own_cache("device");
    mt_error e = {0};
    cuda_device d;
    const mt_status opened = cuda_device_open(&d, 0, &e);
    if (opened != MT_OK) {
        assert_int_equal(opened, MT_E_IO);
        assert_string_equal(e.where, "cuda");
        assert_true(strlen(e.message) > 20);
        assert_null(d.context);
        print_message("no GPU here: %s\n", e.message);
        return;
    }
    print_message("%s: %s, %s, %d SMs at %d kHz, bytes: shared %d, L2 %d, memory %zu, driver %d\n", d.where, d.name,
                  d.architecture, d.sm_count, d.clock_khz, d.shared_bytes, d.l2_bytes, d.memory_bytes,
                  d.driver_version);
    need_nvrtc();
    cuda_unit u = double_unit;
    u.architecture = d.architecture;
    text cubin = {0};
    if (cuda_compile(&cubin, NULL, &u, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);
    if (cuda_device_enter(&d, &e) != MT_OK) fail_msg("%s: %s", e.where, e.message);

#define RUN(call)                                                                                                      \
    if (cuda_check(cuda_api.call, d.where, &e, "%s", #call) != MT_OK) fail_msg("%s: %s", e.where, e.message)
    cuda_module module;
    cuda_function function;
    cuda_stream stream;
    cuda_event begin, end;
    cuda_address numbers, host_address;
    void *host;
    int registers, dynamic, blocks;
    float milliseconds;
    RUN(cuModuleLoadDataEx(&module, cubin.data, 0, NULL, NULL));
    RUN(cuModuleGetFunction(&function, module, "run"));
    RUN(cuFuncGetAttribute(&registers, CUDA_FUNCTION_REGISTERS, function));
    RUN(cuFuncSetAttribute(function, CUDA_FUNCTION_DYNAMIC_SHARED, d.shared_bytes));
    RUN(cuFuncGetAttribute(&dynamic, CUDA_FUNCTION_DYNAMIC_SHARED, function));
    RUN(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 64, (size_t)d.shared_bytes));
    assert_true(registers > 0 && dynamic == d.shared_bytes && blocks == 1);
    RUN(cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING));
    RUN(cuEventCreate(&begin, 0));
    RUN(cuEventCreate(&end, CUDA_EVENT_BLOCKING));
    RUN(cuMemHostAlloc(&host, 4096, CUDA_HOST_MAPPED));
    RUN(cuMemHostGetDevicePointer_v2(&host_address, host, 0));
    if (cuda_memory_new(&numbers, 4096, "numbers", d.where, &e) != MT_OK) fail_msg("%s", e.message);
    uint32_t *const words = host;
    for (uint32_t i = 0; i < 64; i++) words[i] = i * 7;
    void *parameters[] = {&numbers};
    cuda_launch_attribute attribute = {.id = CUDA_LAUNCH_COOPERATIVE, .value.cooperative = 1};
    const cuda_launch_config launch = {.grid_x = 1,
                                       .grid_y = 1,
                                       .grid_z = 1,
                                       .block_x = 64,
                                       .block_y = 1,
                                       .block_z = 1,
                                       .dynamic_shared = (unsigned)d.shared_bytes,
                                       .stream = stream,
                                       .attributes = &attribute,
                                       .attribute_count = 1};
    RUN(cuMemcpyHtoDAsync_v2(numbers, words, 256, stream));
    RUN(cuEventRecord(begin, stream));
    RUN(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, parameters, NULL));
    RUN(cuLaunchKernelEx(&launch, function, parameters, NULL));
    RUN(cuEventRecord(end, stream));
    RUN(cuMemcpyDtoHAsync_v2(words, numbers, 256, stream));
    RUN(cuEventSynchronize(end));
    RUN(cuStreamSynchronize(stream));
    RUN(cuStreamQuery(stream));
    RUN(cuEventElapsedTime(&milliseconds, begin, end));
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(words[i], 4 * 7 * i + 3);
    if (d.major >= 9) {
        cuda_tensor_map tensor;
        const uint64_t extents[] = {64, 8}, strides[] = {128};
        const uint32_t box[] = {64, 8}, steps[] = {1, 1};
        RUN(cuTensorMapEncodeTiled(&tensor, CUDA_TENSOR_BF16, 2, (void *)(uintptr_t)numbers, extents, strides, box,
                                   steps, CUDA_TENSOR_INTERLEAVE_NONE, CUDA_TENSOR_SWIZZLE_128, CUDA_TENSOR_L2_128,
                                   CUDA_TENSOR_FILL_ZERO));
    }
    cuda_address too_much;
    assert_int_equal(cuda_memory_new(&too_much, (size_t)1 << 46, "a test", d.where, &e), MT_E_IO);
    print_message("%s: %s\n", e.where, e.message);
    assert_non_null(strstr(e.message, "CUDA_ERROR_OUT_OF_MEMORY"));
    const cuda_result result = cuda_api.cuModuleGetFunction(&function, module, "nothing");
    assert_int_equal(cuda_check(result, d.where, &e, "no kernel"), MT_E_IO);
    print_message("%s: %s\n", e.where, e.message);
    cuda_memory_free(numbers);
    RUN(cuMemFreeHost(host));
    RUN(cuEventDestroy_v2(begin));
    RUN(cuEventDestroy_v2(end));
    RUN(cuStreamDestroy_v2(stream));
    RUN(cuModuleUnload(module));
#undef RUN
    cuda_device_leave();
    cuda_device_close(&d);
    text_free(&cubin);
}

/* Our declarations against NVIDIA's, when the header is in the include path. */
#if __has_include(<cuda.h>)
#include <cuda.h>
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CUDA_E_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_E_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CUDA_E_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_DEVICE_CLOCK_KHZ, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME(CUDA_DEVICE_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CUDA_DEVICE_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(CUDA_DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CUDA_DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CUDA_DEVICE_SHARED_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CUDA_FUNCTION_MAX_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CUDA_FUNCTION_STATIC_SHARED, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(CUDA_FUNCTION_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(CUDA_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(CUDA_FUNCTION_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CUDA_FUNCTION_CARVEOUT, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC);
SAME(CUDA_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(CUDA_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(CUDA_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(CUDA_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(CUDA_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(CUDA_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CUDA_TENSOR_U8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(CUDA_TENSOR_I64, CU_TENSOR_MAP_DATA_TYPE_INT64);
SAME(CUDA_TENSOR_F16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(CUDA_TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(CUDA_TENSOR_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(CUDA_TENSOR_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(CUDA_TENSOR_L2_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(CUDA_TENSOR_FILL_NAN, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
SAME(sizeof(cuda_address), sizeof(CUdeviceptr));
SAME(sizeof(cuda_tensor_map), sizeof(CUtensorMap));
SAME(sizeof(cuda_launch_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(cuda_launch_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(offsetof(cuda_launch_attribute, value.cluster), offsetof(CUlaunchAttribute, value.clusterDim));
SAME(sizeof(cuda_launch_config), sizeof(CUlaunchConfig));
SAME(offsetof(cuda_launch_config, dynamic_shared), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(cuda_launch_config, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(cuda_launch_config, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(cuda_launch_config, attribute_count), offsetof(CUlaunchConfig, numAttrs));
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing), /* these need a process that has opened nothing yet */
        cmocka_unit_test(test_two_processes), cmocka_unit_test(test_fake_driver),       cmocka_unit_test(test_version),
        cmocka_unit_test(test_architectures), cmocka_unit_test(test_bad_architectures), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_warnings),      cmocka_unit_test(test_own_stdint),        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_damaged_cache), cmocka_unit_test(test_no_cache),          cmocka_unit_test(test_threads),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
