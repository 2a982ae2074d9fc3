/* Runs a Python oracle for the tests of text, and reads what it wrote: little-endian 32-bit integers, and strings with
 * their length in front. */
#ifndef TEXT_ORACLE_H
#define TEXT_ORACLE_H

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "temporary.h"

extern char **environ;

typedef struct oracle {
    text bytes;
    size_t at;
} oracle;

/* Runs tests/`script` with `argument` and the name of a file to write. Returns false, having said why, when Python or a
 * package of it is missing (exit status 3). */
static bool oracle_run(oracle *o, const char *script, const char *argument) {
    const char *python = getenv("MONOTILE_PYTHON");
    char path[512], file[512];
    snprintf(path, sizeof path, "%s/tests/%s", MONOTILE_SOURCE_FOLDER, script);
    snprintf(file, sizeof file, "%s/monotile-oracle-XXXXXX", temporary_base());
    const int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    if (!python || !*python) python = "python3";
    char *const arguments[] = {(char *)python, path, (char *)argument, file, NULL};
    pid_t child;
    int status = 0;
    const int spawned = posix_spawnp(&child, python, NULL, NULL, arguments, environ);
    if (!spawned) assert_int_equal(waitpid(child, &status, 0), child);
    *o = (oracle){0};
    mt_error error = {0};
    const mt_status read = file_read(&o->bytes, file, 1u << 30, &error);
    unlink(file);
    if (spawned || (WIFEXITED(status) && (WEXITSTATUS(status) == 3 || WEXITSTATUS(status) == 127))) {
        print_message("SKIPPED: %s %s needs Python packages (tests/requirements.txt) that are not there\n", python,
                      script);
        text_free(&o->bytes);
        return false;
    }
    if (status) fail_msg("%s %s failed with status %d", python, script, status);
    if (read) fail_msg("%s", error.message);
    return true;
}

static __attribute__((unused)) uint32_t oracle_u32(oracle *o) {
    uint32_t v;
    assert_true(o->bytes.length - o->at >= sizeof v);
    memcpy(&v, o->bytes.data + o->at, sizeof v);
    o->at += sizeof v;
    return v;
}

static __attribute__((unused)) const char *oracle_string(oracle *o, size_t *length) {
    *length = oracle_u32(o);
    assert_true(o->bytes.length - o->at >= *length);
    o->at += *length;
    return o->bytes.data + o->at - *length;
}

#endif
