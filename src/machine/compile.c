/* From emitted text to code in this process: the host's compiler, a shared object for each text, a cache of them.
 *
 * An object's name in the cache is a hash of everything that decides its bytes: the emitted text (which holds the op's
 * text and constants), the compiler's arguments, the compiler itself (path, size, time of change, what --version says)
 * and the processor it compiles for (-march=native). Equal texts thus share an object, across programs and processes;
 * what is found needs no check but that it is whole.
 *
 * An object is whole if and only if it ends in a trailer that holds the hash of all bytes before it. The trailer is
 * written last, into a temporary file that is then renamed: readers see no object or all of it, two processes that
 * compile the same text each rename an equal one, and an object that a full disk or a crash cut off is compiled again.
 * The emitted text is kept beside the object, for people.
 *
 * Texts are compiled one by one, as many at a time as there are processors. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine/compile.h"

enum { MOST_WORDS = 64, MOST_JOBS = 64, MOST_LOG = 64 * 1024, MOST_OBJECT = 256 * 1024 * 1024, LOG_LINES = 8 };

extern char **environ;

typedef struct trailer { /* the last bytes of an object in the cache */
    char magic[16];
    uint64_t hash[2]; /* of all bytes before the trailer */
} trailer;
static const char trailer_magic[16] = "monotile object";

typedef struct compiler {
    const compile_options *options;
    text words; /* its name and first arguments, separated by NULs */
    char *word[MOST_WORDS];
    int word_count;
    text folder; /* of the cache */
    text key;    /* what, besides the emitted text, decides an object's bytes */
} compiler;

static mt_status out_of_memory(mt_error *error) {
    return error_set(error, MT_E_MEMORY, NULL, "no memory to compile code");
}

/* ---- running the compiler ---- */

/* Starts argv with its output and errors in the file `log`, and no input. */
static mt_status spawn(pid_t *out, const compiler *c, char *const *argv, const char *log, mt_error *error) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const int failed = posix_spawnp(out, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (!failed) return MT_OK;
    return error_set(error, MT_E_COMPILE, argv[0], "cannot start the %s compiler '%s': %s; set %s, or install one",
                     c->options->language, argv[0], strerror(failed), c->options->variable);
}

/* True when the process ended well. Where the caller's process ignores SIGCHLD its status is lost; the output then has
 * to speak. */
static bool finished_well(pid_t pid) {
    int status = 0;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
    return got < 0 ? errno == ECHILD : WIFEXITED(status) && !WEXITSTATUS(status);
}

/* The path of a program, as posix_spawnp finds it. */
static bool find_program(const char *name, text *out) {
    const char *path = strchr(name, '/') ? "" : getenv("PATH");
    for (const char *part = path ? path : "/bin:/usr/bin";;) {
        const char *end = strchrnul(part, ':');
        out->length = 0;
        text_append(out, part, (size_t)(end - part));
        if (end > part) text_string(out, "/");
        text_string(out, name);
        struct stat s;
        if (!out->failed && !stat(out->data, &s) && S_ISREG(s.st_mode) && !access(out->data, X_OK)) return true;
        if (!*end) return false;
        part = end + 1;
    }
}

/* ---- what decides an object's bytes ---- */

/* What `cc --version` says. Asked once for a path, size and time of change; then it is in the cache. */
static mt_status compiler_version(compiler *c, const char *path, mt_error *error) {
    struct stat s;
    char *real = realpath(path, NULL);
    if (!real || stat(real, &s)) {
        const mt_status missing = error_errno(error, path, "cannot find the %s compiler", c->options->language);
        free(real);
        return missing;
    }
    text identity = {0}, name = {0}, version = {0};
    text_printf(&identity, "%s %lld %lld.%09ld", real, (long long)s.st_size, (long long)s.st_mtim.tv_sec,
                s.st_mtim.tv_nsec);
    free(real);
    char hex[33];
    hash_hex(hash_bytes(identity.data ? identity.data : "", identity.length), hex);
    text_printf(&name, "%s/%s.version", c->folder.data, hex);
    mt_status status = identity.failed || name.failed ? out_of_memory(error) : MT_OK;
    if (status == MT_OK && file_read(&version, name.data, MOST_LOG, NULL) != MT_OK) {
        char *argv[MOST_WORDS + 2] = {0};
        memcpy(argv, c->word, (size_t)c->word_count * sizeof *argv);
        argv[c->word_count] = (char *)"--version";
        text log = {0};
        pid_t pid;
        text_printf(&log, "%s.%ld", name.data, (long)getpid());
        version.length = 0;
        status = log.failed ? out_of_memory(error) : spawn(&pid, c, argv, log.data, error);
        if (status == MT_OK && !finished_well(pid))
            status = error_set(error, MT_E_COMPILE, c->word[0], "'%s --version' fails: is %s a %s compiler?",
                               c->word[0], c->options->variable, c->options->language);
        if (status == MT_OK) status = file_read(&version, log.data, MOST_LOG, error);
        if (status == MT_OK)
            file_write_atomic(name.data, version.data ? version.data : "", version.length, NULL); /* only saves time */
        if (log.data) unlink(log.data);
        text_free(&log);
    }
    text_printf(&c->key, "%s\n%s\n", identity.data, version.data ? version.data : "");
    text_free(&identity);
    text_free(&name);
    text_free(&version);
    return status;
}

/* The lines that tell processors apart, from the first entry of /proc/cpuinfo. Where there is none, the machine's name
 * must do. */
static void processor_identity(text *out) {
    static const char *const names[] = {
        "vendor_id",        "cpu family",  "model",    "stepping",     "flags",    "CPU implementer",
        "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features", "isa"};
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[8192];
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        const char *colon = strchr(line, ':');
        for (size_t k = 0; colon && k < COUNT_OF(names); k++)
            if (!strncmp(line, names[k], strlen(names[k]))) {
                text_string(out, line);
                break;
            }
    }
    if (f) fclose(f);
}

static mt_status compiler_open(compiler *c, mt_error *error) {
    const char *cc = getenv(c->options->variable);
    if (!cc || !cc[strspn(cc, " ")]) cc = c->options->program;
    text_string(&c->words, cc);
    if (c->words.failed) return out_of_memory(error);
    for (char *at = c->words.data, *save; (at = strtok_r(at, " ", &save)); at = NULL) {
        if (c->word_count == MOST_WORDS / 2)
            return error_set(error, MT_E_ARGUMENT, cc, "%s has more than %d words", c->options->variable,
                             MOST_WORDS / 2);
        c->word[c->word_count++] = at;
    }
    mt_status status = file_cache_folder(&c->folder, error);
    if (status != MT_OK) return status;
    text_printf(&c->folder, "/%s", c->options->folder);
    text path = {0};
    if (c->folder.failed) status = out_of_memory(error);
    if (status == MT_OK) status = file_make_folders(c->folder.data, error);
    if (status == MT_OK && !find_program(c->word[0], &path))
        status = path.failed ? out_of_memory(error)
                             : error_set(error, MT_E_COMPILE, c->word[0],
                                         "there is no %s compiler '%s'; set %s, or install one", c->options->language,
                                         c->word[0], c->options->variable);
    if (status == MT_OK) status = compiler_version(c, path.data, error);
    text_free(&path);
    for (int k = 1; k < c->word_count; k++) text_printf(&c->key, "%s ", c->word[k]);
    for (size_t k = 0; c->options->flags[k]; k++) text_printf(&c->key, "%s ", c->options->flags[k]);
    text_string(&c->key, "\n");
    processor_identity(&c->key);
    return status == MT_OK && c->key.failed ? out_of_memory(error) : status;
}

static void compiler_close(compiler *c) {
    text_free(&c->words);
    text_free(&c->folder);
    text_free(&c->key);
}

/* ---- objects ---- */

static bool object_whole(const char *path) {
    file_map m;
    trailer t;
    if (file_map_open(&m, path, NULL) != MT_OK) return false;
    bool whole = m.size > sizeof t;
    if (whole) {
        const size_t size = m.size - sizeof t;
        memcpy(&t, m.data + size, sizeof t);
        const hash128 hash = hash_bytes(m.data, size);
        whole = !memcmp(t.magic, trailer_magic, sizeof t.magic) && hash.low == t.hash[0] && hash.high == t.hash[1];
    }
    file_map_close(&m);
    return whole;
}

/* False, with *handle NULL, when the object is missing, damaged, or not what it should be. */
static bool object_load(const compile_options *o, const char *path, void **handle) {
    *handle = object_whole(path) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (*handle && o->good(*handle)) return true;
    if (*handle) dlclose(*handle);
    *handle = NULL;
    return false;
}

/* Puts the compiler's output into the cache. */
static mt_status object_store(const char *compiled, const char *path, mt_error *error) {
    text object = {0};
    mt_status status = file_read(&object, compiled, MOST_OBJECT, error);
    if (status == MT_OK && object.length) {
        const hash128 hash = hash_bytes(object.data, object.length);
        trailer t = {.hash = {hash.low, hash.high}};
        memcpy(t.magic, trailer_magic, sizeof t.magic);
        text_append(&object, &t, sizeof t);
        status = object.failed ? out_of_memory(error) : file_write_atomic(path, object.data, object.length, error);
    } else if (status == MT_OK) {
        status = error_set(error, MT_E_COMPILE, path, "the compiler wrote an empty file");
    }
    text_free(&object);
    return status;
}

/* One text on its way through the compiler. */
typedef struct job {
    compile_unit *unit;
    text path;                /* the object in the cache */
    text source, object, log; /* temporary files */
    pid_t pid;
    bool running;
} job;

static mt_status job_begin(job *j, const compiler *c, mt_error *error) {
    text_printf(&j->source, "%s/XXXXXX", c->folder.data);
    if (j->source.failed) return out_of_memory(error);
    const int fd = mkostemp(j->source.data, O_CLOEXEC);
    if (fd < 0) {
        j->source.length = 0; /* nothing to remove */
        return error_errno(error, c->folder.data, "cannot create a file in the cache");
    }
    close(fd);
    text_printf(&j->object, "%s.so", j->source.data);
    text_printf(&j->log, "%s.log", j->source.data);
    if (j->object.failed || j->log.failed) return out_of_memory(error);
    mt_status status = file_write_atomic(j->source.data, j->unit->code.data, j->unit->code.length, error);
    if (status != MT_OK) return status;
    char *argv[MOST_WORDS + MOST_WORDS] = {0};
    size_t n = 0;
    for (int k = 0; k < c->word_count; k++) argv[n++] = c->word[k];
    for (size_t k = 0; c->options->flags[k] && k < MOST_WORDS / 2; k++) argv[n++] = (char *)c->options->flags[k];
    argv[n++] = (char *)"-o";
    argv[n++] = j->object.data;
    argv[n++] = j->source.data;
    argv[n++] = (char *)"-lm";
    status = spawn(&j->pid, c, argv, j->log.data, error);
    j->running = status == MT_OK;
    return status;
}

/* The first lines of what the compiler said. */
static mt_status compiler_refused(const job *j, const compiler *c, mt_error *error) {
    text log = {0};
    (void)file_read(&log, j->log.data, MOST_LOG, NULL);
    int lines = 0;
    for (size_t i = 0; i < log.length && lines < LOG_LINES; i++)
        if (log.data[i] == '\n' && ++lines == LOG_LINES) log.data[i] = 0;
    error_set(error, MT_E_COMPILE, j->unit->name, "%s refuses the code of %s:\n%s", c->word[0], j->unit->what,
              log.length ? log.data : "(it says nothing)");
    text_free(&log);
    return MT_E_COMPILE;
}

static mt_status job_end(job *j, const compiler *c, mt_error *error) {
    const bool well = finished_well(j->pid);
    j->running = false;
    if (!well || access(j->object.data, R_OK)) return compiler_refused(j, c, error);
    mt_status status = object_store(j->object.data, j->path.data, error);
    if (status == MT_OK && !object_load(c->options, j->path.data, &j->unit->handle)) {
        const char *why = dlerror();
        status = error_set(error, MT_E_COMPILE, j->unit->name, "the code of %s cannot be loaded: %s", j->unit->what,
                           why ? why : "the object is not what was compiled");
    }
    j->path.length -= 3; /* ".so" */
    j->path.data[j->path.length] = 0;
    text_string(&j->path, c->options->extension);
    if (status == MT_OK && !j->path.failed && !rename(j->source.data, j->path.data)) j->source.length = 0;
    return status;
}

static void job_close(job *j) {
    if (j->running) finished_well(j->pid);
    if (j->source.length) unlink(j->source.data);
    if (j->object.length) unlink(j->object.data);
    if (j->log.length) unlink(j->log.data);
    text_free(&j->path);
    text_free(&j->source);
    text_free(&j->object);
    text_free(&j->log);
}

/* Looks for the text's object. */
static mt_status job_open(job *j, const compiler *c, compile_unit *unit, mt_error *error) {
    *j = (job){.unit = unit};
    text all = {0};
    text_append(&all, c->key.data, c->key.length);
    text_append(&all, unit->code.data, unit->code.length);
    char hex[33];
    hash_hex(hash_bytes(all.data ? all.data : "", all.length), hex);
    text_printf(&j->path, "%s/%s.so", c->folder.data, hex);
    const bool failed = all.failed || unit->code.failed || j->path.failed;
    text_free(&all);
    if (failed) return out_of_memory(error);
    (void)object_load(c->options, j->path.data, &unit->handle);
    return MT_OK;
}

mt_status compile_units(const compile_options *o, compile_unit *units, size_t count, mt_error *error) {
    compiler c = {.options = o};
    job jobs[MOST_JOBS];
    size_t at[MOST_JOBS];
    const size_t most = (size_t)min_i64(cpu_count(), MOST_JOBS);
    bool used[MOST_JOBS] = {false};
    mt_status status = compiler_open(&c, error);
    for (size_t i = 0; i < count && status == MT_OK; i++) {
        job j;
        status = job_open(&j, &c, &units[i], error);
        if (status != MT_OK || units[i].handle) {
            job_close(&j);
            continue;
        }
        size_t place = 0;
        while (place < most && used[place]) place++;
        if (place == most) { /* all busy: the oldest has to end */
            for (size_t k = place = 0; k < most; k++)
                if (at[k] < at[place]) place = k;
            status = job_end(&jobs[place], &c, error);
            job_close(&jobs[place]);
        }
        jobs[place] = j;
        at[place] = i;
        used[place] = true;
        if (status == MT_OK) status = job_begin(&jobs[place], &c, error);
    }
    for (size_t k = 0; k < most; k++) {
        if (!used[k]) continue;
        if (status == MT_OK) status = job_end(&jobs[k], &c, error);
        job_close(&jobs[k]);
    }
    compiler_close(&c);
    return status;
}
