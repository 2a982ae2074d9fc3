/* Runs emitted code and the interpreter on the same data and compares.
 *
 * The programs of all cases are emitted into one unit, which is compiled once, without a warning; a smaller unit, of
 * the cases where the machine's vectors show, is compiled for other targets, too. Tensors end where unreadable memory
 * begins, so that an access too far crashes; their rows are padded, outputs hold random bytes, scratch memory holds
 * NaN. */
#ifndef EMIT_HARNESS_H
#define EMIT_HARNESS_H

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emit/emit.h"
#include "temporary.h"
#include "tile_interpreter.h"

enum { CASES = 4000, CASE_TENSORS = TILE_PARAMS };

/* What a tensor is filled with. */
typedef enum fill {
    FILL_NUMBERS, /* numbers about 1, integers over their range */
    FILL_RANGE,   /* numbers in [low, high] */
    FILL_WHOLE,   /* integers in [low, high], whatever the type */
    FILL_CODES,   /* 0, 1, 2, ... */
    FILL_BITS,    /* any bits */
    FILL_SPECIAL, /* numbers of all sizes, infinities, NaN */
    FILL_EXTREME, /* f16's largest and smallest numbers, few others; scales of blocks, and codes that are all the same
                   */
    FILL_OUTLIER  /* one of 32 is far larger than the others; in blocks it is zero, where there is one */
} fill;

typedef struct test_case {
    char name[96];
    char *source;          /* owned */
    const char *constants; /* "N=8 T=bf16" */
    const char *tensors;   /* "x 4 8; ids 6 in -2 9; y 4 8": in the order of the parameters, with how it is filled */
    char *own_tensors;     /* the same when it is to be freed, else NULL */
    int32_t lives[4];
    double args[4];
    double tolerance; /* relative, absolute below 1; 0: the same bits (NaN is NaN) */
    bool exact;       /* a `linear`; a GPU does not round its weights to the products' type */
    const tile_op *op;
    int entry;       /* the op's number in the large unit; cases may share one */
    int small_entry; /* and in the small one; -1: it is not there */
} test_case;

static test_case cases[CASES];
static int case_count;
static arena *case_memory;

/* ---- random data: xorshift, the same on every run ---- */

static uint64_t random_state = 88172645463325252u;
static inline uint64_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 0x2545f4914f6cdd1du;
}
/* A case's data depend on its name, not on its place among the others. */
static inline void random_begin(const test_case *c) {
    random_state = 88172645463325252u;
    for (const char *s = c->name; *s; s++) random_state = (random_state ^ (uint8_t)*s) * 0x100000001b3u;
    random_state |= 1; /* never 0 */
}
static inline double random_number(void) { return (double)(random_bits() >> 11) * 0x1p-53; }

static inline double random_special(void) {
    switch (random_bits() % 12) {
    case 0:
        return (double)NAN;
    case 1:
        return (double)INFINITY;
    case 2:
        return -(double)INFINITY;
    case 3:
        return 0;
    case 4:
        return -0.0;
    case 5:
        return ldexp(random_number() - 0.5, (int)(random_bits() % 300) - 150);
    case 6:
        return (random_number() - 0.5) * 1e10;
    case 7:
        return rint((random_number() - 0.5) * 600) + 0.5;
    default:
        return (random_number() - 0.5) * 8;
    }
}

/* ---- tensors ---- */

typedef struct test_tensor {
    const tile_param *param;
    cpu_tensor view;
    uint8_t *memory; /* bytes in front of the data, then the data, then a page that cannot be touched */
    size_t size, before, mapped;
    uint8_t *base;
} test_tensor;

enum { BEFORE = 256 };

static inline void tensor_map(test_tensor *t, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = align_up(bytes + BEFORE, page);
    t->mapped = body + page;
    t->base = mmap(NULL, t->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t->base == MAP_FAILED || mprotect(t->base + body, page, PROT_NONE)) abort();
    t->size = bytes + BEFORE;
    t->memory = t->base + body - t->size;
    t->view.data = t->memory + BEFORE;
}

static inline void fill_block(const tile_format *f, uint8_t *block) {
    for (int b = 0; b < f->bits / 8; b++) block[b] = (uint8_t)random_bits();
    for (int i = 0; i < f->body->field_count; i++) { /* scales are small numbers */
        const tile_field *field = &f->body->fields[i];
        const tile_scalar t = field->type->scalar;
        if (t.kind != TILE_FLOAT || t.bits < 8) continue;
        for (int e = 0; e < field->count; e++) {
            const uint64_t code =
                t.is_unsigned ? 122 + random_bits() % 6 : tile_scalar_encode(t, (random_number() - 0.3) * 0.1);
            memcpy(block + (field->bit_offset + e * t.bits) / 8, &code, t.bits / 8);
        }
    }
}

static inline double random_extreme(void) {
    const double sign = random_bits() % 2 ? 1 : -1;
    switch (random_bits() % 4) {
    case 0:
        return sign * 65504;
    case 1:
        return sign * 0x1p-24 * (double)(random_bits() % 5);
    case 2:
        return sign * random_number() * 65504;
    default:
        return sign * random_number();
    }
}

static inline void fill_extreme(const tile_format *f, uint8_t *block) {
    static const uint8_t all[] = {0, 0xff, 0x88, 0x80, 0x77, 0x7f};
    const uint64_t how = random_bits() % 8;
    for (int b = 0; b < f->bits / 8; b++) block[b] = how < COUNT_OF(all) ? all[how] : (uint8_t)random_bits();
    for (int i = 0; i < f->body->field_count; i++) {
        const tile_field *field = &f->body->fields[i];
        const tile_scalar t = field->type->scalar;
        if (t.kind != TILE_FLOAT || t.bits < 8) continue;
        for (int e = 0; e < field->count; e++) {
            const double v = random_bits() % 256 ? random_extreme() : random_special();
            const uint64_t code = t.is_unsigned ? 100 + random_bits() % 50 : tile_scalar_encode(t, v);
            memcpy(block + (field->bit_offset + e * t.bits) / 8, &code, t.bits / 8);
        }
    }
}

static inline void fill_outlier(const tile_format *f, uint8_t *block) {
    float values[1024];
    fill_block(f, block);
    for (int i = 0; i < f->block; i += 32)
        for (int b = 0; b < f->bits / 8; b++) {
            const uint8_t old = block[b];
            for (int to = 0; to < 256; to++) {
                block[b] = (uint8_t)to;
                tile_format_decode(f, block, values);
                int zeros = 0, numbers = 0;
                for (int e = 0; e < f->block; e++) zeros += values[e] == 0, numbers += isfinite(values[e]) != 0;
                if (values[i] == 0 && zeros < f->block / 2 && numbers == f->block) break;
            }
            if (values[i] == 0) break;
            block[b] = old;
        }
}

static inline cell random_cell(const tile_format *f, fill how, int64_t low, int64_t high, int64_t i) {
    const tile_scalar t = f->scalar;
    if (how == FILL_WHOLE && cell_is_float(f))
        return (cell){.f = (double)(low + (int64_t)(random_bits() % (uint64_t)(high - low + 1)))};
    if (how == FILL_RANGE || how == FILL_WHOLE)
        return cell_is_float(f) ? (cell){.f = (double)low + random_number() * (double)(high - low)}
                                : (cell){.i = low + (int64_t)(random_bits() % (uint64_t)(high - low + 1))};
    if (how == FILL_OUTLIER) return (cell){.f = i % 32 ? random_number() - 0.5 : 65504};
    if (how == FILL_EXTREME) return (cell){.f = random_extreme()};
    if (t.kind == TILE_FLOAT) return (cell){.f = how == FILL_SPECIAL ? random_special() : (random_number() - 0.5) * 4};
    if (t.kind == TILE_BOOL) return (cell){.i = (int64_t)(random_bits() & 1)};
    if (t.bits == 64) return (cell){.i = (int64_t)random_bits() >> (random_bits() % 60)};
    return (cell){
        .i = (int64_t)tile_scalar_decode(t, t.bits == 32 ? random_bits() >> (random_bits() % 30) : random_bits())};
}

static inline void tensor_fill(test_tensor *t, fill how, int64_t low, int64_t high) {
    const tile_format *f = t->param->type;
    for (size_t b = 0; b < t->size; b++) t->memory[b] = (uint8_t)random_bits();
    if (t->param->kind == TILE_OUT) return;
    uint8_t *data = t->view.data;
    if (tile_format_is_block(f)) {
        for (size_t b = 0; b + (size_t)f->bits / 8 <= t->size - BEFORE; b += (size_t)f->bits / 8)
            (how == FILL_EXTREME ? fill_extreme : how == FILL_OUTLIER ? fill_outlier : fill_block)(f, data + b);
        return;
    }
    const int64_t count = (int64_t)(t->size - BEFORE) * 8 / f->bits;
    for (int64_t i = 0; i < count; i++) {
        if (how == FILL_BITS) continue;
        if (how != FILL_CODES)
            store_cell(f, data, i, random_cell(f, how, low, high, i));
        else if (f->bits < 8) {
            const double v = tile_scalar_decode(f->scalar, (uint64_t)i);
            tile_format_set(f, data, i, v);
            if (f->scalar.kind == TILE_FLOAT && v == 0 && i >> (f->bits - 1) & 1) tile_format_set(f, data, i, -0.0);
        } else
            memcpy(data + i * (f->bits / 8), &i, (size_t)f->bits / 8);
    }
}

/* Makes the tensors of a case from its text. */
static inline int tensors_make(const test_case *c, test_tensor *tensors) {
    char *copy = strdup(c->tensors), *save = NULL;
    int count = 0;
    for (char *one = strtok_r(copy, ";", &save); one; one = strtok_r(NULL, ";", &save)) {
        test_tensor *t = &tensors[count];
        char *inner = NULL, *word = strtok_r(one, " ", &inner);
        memset(t, 0, sizeof *t);
        for (int i = 0; i < c->op->param_count; i++)
            if (c->op->params[i].rank && c->op->params[i].ordinal == count) t->param = &c->op->params[i];
        if (!t->param || strcmp(t->param->name, word)) abort();
        fill how = FILL_NUMBERS;
        int64_t low = 0, high = 0;
        int rank = 0;
        while ((word = strtok_r(NULL, " ", &inner))) {
            if (!strcmp(word, "codes"))
                how = FILL_CODES;
            else if (!strcmp(word, "bits"))
                how = FILL_BITS;
            else if (!strcmp(word, "special"))
                how = FILL_SPECIAL;
            else if (!strcmp(word, "extreme"))
                how = FILL_EXTREME;
            else if (!strcmp(word, "outlier"))
                how = FILL_OUTLIER;
            else if (!strcmp(word, "in") || !strcmp(word, "whole")) {
                how = *word == 'i' ? FILL_RANGE : FILL_WHOLE;
                low = atoll(strtok_r(NULL, " ", &inner));
                high = atoll(strtok_r(NULL, " ", &inner));
            } else
                t->view.extent[rank++] = atoll(word);
        }
        if (rank != t->param->rank) abort();
        const int block = t->param->type->block;
        int64_t stride = 1, elements = 1;
        for (int d = rank - 1; d >= 0; d--) { /* rows are padded */
            t->view.stride[d] = stride;
            elements += (t->view.extent[d] - 1) * stride;
            stride *= t->view.extent[d];
            if (d == rank - 1) stride += how == FILL_CODES ? 0 : block > 1 ? block : 3;
        }
        elements = ceil_div(elements, block) * block;
        tensor_map(t, (size_t)tile_format_bytes(t->param->type, elements));
        tensor_fill(t, how, low, high);
        count++;
    }
    free(copy);
    return count;
}

static inline void tensor_copy(test_tensor *to, const test_tensor *from) {
    *to = *from;
    tensor_map(to, from->size - BEFORE);
    memcpy(to->memory, from->memory, from->size);
}

static inline void tensors_free(test_tensor *t, int count) {
    for (int i = 0; i < count; i++) munmap(t[i].base, t[i].mapped);
}

/* ---- building ---- */

static inline test_case *add_case(const char *name, const char *source, const char *constants, const char *tensors,
                                  double tolerance) {
    if (case_count == CASES) {
        fprintf(stderr, "more than %d cases\n", CASES);
        abort();
    }
    test_case *c = &cases[case_count++];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->source = strdup(source);
    c->constants = constants;
    c->tensors = tensors;
    c->tolerance = tolerance;
    return c;
}

/* The first word of the case's name is one of the words. */
static inline bool starts_with(const test_case *c, const char *words) {
    char first[32];
    sscanf(c->name, "%31s", first);
    const char *found = strstr(words, first);
    return found && (found == words || found[-1] == ' ') && (found[strlen(first)] == ' ' || !found[strlen(first)]);
}

/* Binds a case's program, or one of the library when the source is a bare name. */
static inline bool bind_case(test_case *c) {
    mt_error error = {0};
    tile_diagnostics d = {0};
    tile_file *own = NULL;
    const tile_file *file;
    const bool named = !strchr(c->source, '{');
    if (named ? tile_library(&file, &error) : tile_parse(&own, c->name, c->source, strlen(c->source), &d, &error)) {
        fprintf(stderr, "%s: %s\n%s\n", c->name, error.message, d.text.data ? d.text.data : "");
        return false;
    }
    if (!named) file = own;
    tile_constant constants[16];
    size_t count = 0;
    char *copy = strdup(c->constants), *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        *value++ = 0;
        const bool number = *value >= '0' && *value <= '9';
        constants[count++] = (tile_constant){word, number ? atoll(value) : 0, number ? NULL : tile_format_find(value)};
    }
    const char *program = named ? c->source : tile_file_name(file, tile_file_count(file) - 1);
    const mt_status status = tile_bind(case_memory, &c->op, file, program, constants, count, &d, &error);
    if (status) fprintf(stderr, "%s: %s\n%s\n", c->name, error.message, d.text.data ? d.text.data : "");
    free(copy);
    text_free(&d.text);
    tile_file_free(own);
    return status == MT_OK;
}

typedef struct target {
    const char *compiler, *flags;
    bool small; /* the small unit */
    void *object;
    const cpu_entry *entries;
} target;

/* Starts the compiler; returns its process, or -1. */
static inline pid_t start_compiler(const target *t, const char *source, const char *object) {
    char command[4096];
    int n = snprintf(command, sizeof command, "exec %s", t->compiler);
    for (int i = 0; emit_c_flags[i]; i++)
        n += snprintf(command + n, sizeof command - (size_t)n, " %s", emit_c_flags[i]);
    snprintf(command + n, sizeof command - (size_t)n, " %s -Wall -Werror -shared -o %s %s -lm", t->flags, object,
             source);
    const pid_t process = fork();
    if (process == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return process;
}

/* Compiles the units for all targets, two at a time. */
static inline bool compile_targets(target *targets, int count, const char *folder, const char *const units[2]) {
    pid_t running[16];
    char object[512];
    bool good = true;
    for (int i = 0; i < count + 2; i++) {
        int status;
        if (i >= 2 && (running[i - 2] < 0 || waitpid(running[i - 2], &status, 0) < 0 || status)) good = false;
        if (i >= count) continue;
        snprintf(object, sizeof object, "%s/%d.so", folder, i);
        running[i] = start_compiler(&targets[i], units[targets[i].small], object);
    }
    for (int i = 0; i < count; i++) {
        snprintf(object, sizeof object, "%s/%d.so", folder, i);
        if (good) targets[i].object = dlopen(object, RTLD_NOW | RTLD_LOCAL);
        unlink(object);
        targets[i].entries = targets[i].object ? dlsym(targets[i].object, "mt_cpu_ops") : NULL;
        good &= targets[i].entries != NULL;
    }
    return good;
}

static inline bool write_unit(const char *path, const tile_op *const *ops, int count, const char *keep) {
    text source = {0};
    mt_error error = {0};
    bool good =
        !emit_c(&source, ops, (size_t)count, &error) && !file_write_atomic(path, source.data, source.length, &error);
    if (!good) fprintf(stderr, "%s: %s\n", error.where, error.message);
    if (good && keep) file_write_atomic(keep, source.data, source.length, NULL);
    text_free(&source);
    return good;
}

/* Binds and compiles all cases; those whose names begin with one of the words are in the small unit. */
static inline bool build_cases(target *targets, int target_count, const char *small_words) {
    static const tile_op *ops[CASES], *small[CASES];
    int count = 0, small_count = 0;
    char folder[TEMPORARY_BYTES], large_path[512], small_path[512];
    case_memory = arena_new();
    bool good = case_memory && temporary_make(folder);
    for (int i = 0; i < case_count && good; i++) {
        test_case *c = &cases[i], *same = NULL;
        for (int j = 0; j < i && !same; j++)
            if (!strcmp(cases[j].source, c->source) && !strcmp(cases[j].constants, c->constants)) same = &cases[j];
        if (same)
            c->op = same->op, c->entry = same->entry, c->small_entry = same->small_entry;
        else if (bind_case(c)) {
            ops[c->entry = count++] = c->op;
            c->small_entry = starts_with(c, small_words) ? small_count++ : -1;
            if (c->small_entry >= 0) small[c->small_entry] = c->op;
        } else
            good = false;
    }
    snprintf(large_path, sizeof large_path, "%s/large.c", folder);
    snprintf(small_path, sizeof small_path, "%s/small.c", folder);
    good = good && write_unit(large_path, ops, count, getenv("EMIT_KEEP")) &&
           write_unit(small_path, small, small_count, NULL);
    good = good && compile_targets(targets, target_count, folder, (const char *const[]){large_path, small_path});
    unlink(large_path);
    unlink(small_path);
    rmdir(folder);
    return good;
}

static inline void free_cases(target *targets, int target_count) {
    for (int i = 0; i < case_count; i++) free(cases[i].source), free(cases[i].own_tensors);
    for (int i = 0; i < target_count; i++)
        if (targets[i].object) dlclose(targets[i].object);
    arena_free(case_memory);
}

/* ---- running ---- */

static inline void views_of(const test_tensor *t, int count, cpu_tensor *out) {
    for (int i = 0; i < count; i++) out[i] = t[i].view;
}

static inline const cpu_entry *entry_of(const test_case *c, const target *t) {
    const int entry = t->small ? c->small_entry : c->entry;
    return entry < 0 ? NULL : &t->entries[entry];
}

static inline void arguments_of(const test_case *c, cpu_arg *args) {
    for (int i = 0; i < c->op->param_count; i++) {
        const tile_param *q = &c->op->params[i];
        if (q->kind != TILE_PARAM_ARG) continue;
        if (q->type->scalar.kind == TILE_FLOAT)
            args[q->ordinal].f = (float)c->args[q->ordinal];
        else
            args[q->ordinal].i = (int32_t)c->args[q->ordinal];
    }
}

/* Runs the grid at the live values, and a step more where they decide, to see the guard. */
static inline void run_views(const test_case *c, const target *t, const cpu_tensor *views) {
    const cpu_entry *entry = entry_of(c, t);
    cpu_arg args[TILE_PARAMS];
    arguments_of(c, args);
    interpreter p = {.op = c->op, .tensors = views, .args = args, .lives = c->lives};
    int64_t grid[TILE_AXES], total = 1;
    for (int a = 0; a < c->op->axis_total; a++) {
        grid[a] = evaluate_scalar(&p, c->op->axis_count[a]).i;
        if (c->op->live_count && c->op->axis_count[a]->kind != TILE_CONST) grid[a]++;
        total *= grid[a];
    }
    for (size_t b = 0; b < p.block_count; b++) free(p.blocks[b]);
    free(p.blocks);
    test_tensor scratch = {0};
    const size_t bytes = align_up((uint64_t)entry->scratch, 64);
    tensor_map(&scratch, bytes);
    for (int64_t i = 0; i < total; i++) {
        int32_t index[TILE_AXES];
        int64_t rest = i;
        for (int a = c->op->axis_total - 1; a >= 0; a--) index[a] = (int32_t)(rest % grid[a]), rest /= grid[a];
        memset(scratch.view.data, 0xff, bytes);
        entry->code(views, args, c->lives, index, scratch.view.data);
    }
    tensors_free(&scratch, 1);
}

static inline void run_code(const test_case *c, const target *t, const test_tensor *tensors, int count) {
    cpu_tensor views[CASE_TENSORS];
    views_of(tensors, count, views);
    run_views(c, t, views);
}

static inline void run_interpreter(const test_case *c, const test_tensor *tensors, int count) {
    cpu_tensor views[CASE_TENSORS];
    cpu_arg args[TILE_PARAMS];
    views_of(tensors, count, views);
    arguments_of(c, args);
    tile_interpret(c->op, views, args, c->lives);
}

static inline bool is_close(double a, double b, double tolerance) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (a == b) return tolerance > 0 || signbit(a) == signbit(b);
    return fabs(a - b) <= tolerance * fmax(1, fmin(fabs(a), fabs(b)));
}

/* The first difference between two copies of a tensor; false when there is none. */
static inline bool differs(const test_tensor *a, const test_tensor *b, double tolerance, char *what, size_t size) {
    const tile_format *f = a->param->type;
    for (int i = 0; i < BEFORE; i++)
        if (a->memory[i] != b->memory[i])
            return snprintf(what, size, "%s: a byte %d in front of it", a->param->name, BEFORE - i), true;
    if (tile_format_is_block(f)) return memcmp(a->memory, b->memory, a->size) != 0;
    if (f->scalar.kind == TILE_FLOAT && f->bits < 32 && tolerance > 0)
        tolerance = fmax(tolerance, ldexp(1.01, -f->scalar.mantissa));
    const int64_t count = (int64_t)(a->size - BEFORE) * 8 / f->bits;
    for (int64_t i = 0; i < count; i++) {
        const cell x = load_cell(f, a->view.data, i, NULL), y = load_cell(f, b->view.data, i, NULL);
        const bool same = cell_is_float(f) ? is_close(x.f, y.f, tolerance) : x.i == y.i;
        if (same) continue;
        if (cell_is_float(f))
            snprintf(what, size, "%s, element %lld: %.9g, expected %.9g", a->param->name, (long long)i, x.f, y.f);
        else
            snprintf(what, size, "%s, element %lld: %lld, expected %lld", a->param->name, (long long)i, (long long)x.i,
                     (long long)y.i);
        return true;
    }
    return false;
}

/* Runs a case on a target and compares; twice, the second time for the same bits. */
static inline bool check_case(const test_case *c, const target *t, char *what, size_t size) {
    test_tensor tensors[CASE_TENSORS], copies[CASE_TENSORS], again[CASE_TENSORS];
    const int count = tensors_make(c, tensors);
    for (int i = 0; i < count; i++) tensor_copy(&copies[i], &tensors[i]), tensor_copy(&again[i], &tensors[i]);
    run_interpreter(c, tensors, count);
    run_code(c, t, copies, count);
    run_code(c, t, again, count);
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        good = !differs(&copies[i], &tensors[i], c->tolerance, what, size);
        if (good && memcmp(copies[i].memory, again[i].memory, copies[i].size)) {
            snprintf(what, size, "%s differs between two runs", copies[i].param->name);
            good = false;
        }
    }
    tensors_free(tensors, count);
    tensors_free(copies, count);
    tensors_free(again, count);
    return good;
}

#endif
