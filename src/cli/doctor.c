/* monotile doctor: whether this computer has all that Monotile needs. The last check compiles a tile program and runs
 * it, in an empty cache, so that the compiler has to work. */
#include "cli.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: monotile doctor\n\n"
    "Looks for the C compiler, the cache folder, the CPU's features and workers, and compiles and runs a small tile\n"
    "program. The exit code is 1 when something is missing.\n";

static bool report(bool good, const char *what, const char *text) {
    printf("%-8s  %-9s  %s\n", good ? "ok" : "MISSING", what, text);
    return good;
}

static bool check_compiler(void) {
    char line[256] = "";
    FILE *f = popen("${CC:-cc} --version 2>/dev/null", "r") /* as the CPU machine finds it */;
    const bool said = f && fgets(line, sizeof line, f);
    while (f && fgetc(f) != EOF) {} /* let it end */
    const bool good = f && pclose(f) == 0 && said;
    line[strcspn(line, "\n")] = 0;
    return report(good, "compiler", good ? line : "`${CC:-cc}` does not run: install gcc or clang");
}

static bool check_cache(void) {
    const char *chosen = getenv("MONOTILE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char path[4096], text[4352];
    if (chosen && *chosen)
        snprintf(path, sizeof path, "%s", chosen);
    else if (xdg && *xdg)
        snprintf(path, sizeof path, "%s/monotile", xdg);
    else if (home && *home)
        snprintf(path, sizeof path, "%s/.cache/monotile", home);
    else
        return report(false, "cache", "no folder: set HOME or MONOTILE_CACHE");
    struct stat st;
    if (stat(path, &st)) {
        snprintf(text, sizeof text, "%s (will be made)", path);
        return report(true, "cache", text);
    }
    const bool good = S_ISDIR(st.st_mode) && !access(path, R_OK | W_OK | X_OK);
    snprintf(text, sizeof text, "%s%s", path, good ? "" : " is no folder that can be written");
    return report(good, "cache", text);
}

/* Names the CPU and those of its features that emitted code is compiled for. */
static void show_cpu(void) {
    static const char *const wanted[] = {"avx",      "avx2",     "fma",         "f16c",        "avx512f",
                                         "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16", "avx512_vnni",
                                         "amx_tile", "amx_bf16", "amx_int8",    "asimd",       "asimdhp",
                                         "asimddp",  "sve",      "i8mm",        "bf16"};
    char *line = NULL, name[128] = "", features[512] = "";
    size_t room = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && getline(&line, &room, f) > 0 && (!name[0] || !features[0])) {
        char *value = strchr(line, ':');
        if (!value) continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        if (!name[0] && !strncmp(line, "model name", 10)) snprintf(name, sizeof name, "%s", value);
        if (features[0] || (strncmp(line, "flags", 5) && strncmp(line, "Features", 8))) continue;
        for (char *word = strtok(value, " "); word; word = strtok(NULL, " "))
            for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
                if (!strcmp(word, wanted[i])) {
                    const size_t used = strlen(features);
                    snprintf(features + used, sizeof features - used, " %s", word);
                }
    }
    if (f) fclose(f);
    free(line);
    char text[sizeof name + sizeof features + 4];
    snprintf(text, sizeof text, "%s%s%s", name[0] ? name : "unknown", features[0] ? ":" : "", features);
    report(true, "cpu", text);
}

/* relu of a few numbers, from a tile program to the result. */
static mt_status run_something(mt_machine *machine, mt_error *error) {
    enum { COUNT = 5 };
    static const int64_t extent[] = {1, COUNT};
    mt_graph *graph = NULL;
    mt_program *program = NULL;
    mt_session *session = NULL;
    mt_tensor x, y;
    void *in, *out;
    size_t bytes;
    mt_status status = mt_graph_create(&graph, error);
    if (status == MT_OK) status = mt_graph_tensor(graph, MT_INPUT, "x", "f32", 2, extent, &x, error);
    if (status == MT_OK) status = mt_graph_tensor(graph, MT_OUTPUT, "y", "f32", 2, extent, &y, error);
    if (status == MT_OK)
        status = mt_graph_node(graph, NULL, "relu", NULL, (mt_operand[]){MT_OPERAND("x", x), MT_OPERAND("y", y)}, 2,
                               NULL, error);
    if (status == MT_OK) status = mt_compile(graph, NULL, &program, error);
    if (status == MT_OK) status = mt_session_create(&session, machine, program, error);
    if (status == MT_OK) status = mt_session_memory(session, "x", &in, &bytes, error);
    if (status == MT_OK) status = mt_session_memory(session, "y", &out, &bytes, error);
    for (int i = 0; status == MT_OK && i < COUNT; i++) ((float *)in)[i] = (float)(i - 2);
    if (status == MT_OK) status = mt_session_run(session, error);
    for (int i = 0; status == MT_OK && i < COUNT; i++)
        if (((float *)out)[i] != (float)(i > 2 ? i - 2 : 0))
            status = cli_error(error, MT_E_INTERNAL, "relu", "the result is wrong");
    mt_session_destroy(session);
    mt_program_destroy(program);
    mt_graph_destroy(graph);
    return status;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static bool check_run(void) {
    const char *temporary = getenv("TMPDIR");
    char folder[4096], text[1408];
    mt_error error;
    mt_machine *machine = NULL;
    snprintf(folder, sizeof folder, "%s/monotile-doctor-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(folder)) return report(false, "run", strerror(errno));
    setenv("MONOTILE_CACHE", folder, 1);
    bool good = mt_machine_open(&machine, "auto", &error) == MT_OK;
    if (good) {
        snprintf(text, sizeof text, "%d on machine %s", mt_machine_processors(machine), mt_machine_name(machine));
        report(true, "workers", text);
        good = run_something(machine, &error) == MT_OK;
    }
    if (good)
        snprintf(text, sizeof text, "a tile program was compiled and gave the right result");
    else
        snprintf(text, sizeof text, "%s: %s", error.where, error.message);
    mt_machine_close(machine);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return report(good, "run", text);
}

int cli_doctor(int argc, char **argv) {
    static const struct option options[] = {CLI_END_OPTIONS};
    const int option = cli_option(argc, argv, ":", options, help);
    if (option == CLI_HELP) return CLI_OK;
    if (option == '?') return CLI_BAD;
    if (optind != argc) return cli_usage(argv[0], "expected no arguments");
    bool good = check_compiler();
    good = check_cache() && good;
    show_cpu();
    good = check_run() && good;
    return good ? CLI_OK : CLI_FAILED;
}
