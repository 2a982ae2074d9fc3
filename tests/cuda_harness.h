/* Builds cases (emit_harness.h) as CUDA C that runs on the CPU (cuda_shim.h), and runs them. */
#ifndef CUDA_HARNESS_H
#define CUDA_HARNESS_H

#include "base/embed.h"
#include "emit/emit_cuda.h"
#include "emit_harness.h"
#include "program/instruction.h"

#include "emit/cuda_abi.h"

extern const struct embedded_file emit_files[];

enum { CUDA_CHUNK = 60 }; /* ops in a unit */

typedef const char *shim_function(const program_instruction *instruction, const cuda_tensor *tensors, int tensor_count,
                                  int32_t *lives, size_t scratch_bytes, uint64_t seed, uint64_t *page_bytes);

typedef struct cuda_case {
    const test_case *c;
    emit_cuda_op op;
    shim_function *run;
    int opcode;
    int64_t scratch;
} cuda_case;

static cuda_case cuda_cases[CASES];
static int cuda_case_count;

static inline const char *pasted_text(const char *name) {
    for (const struct embedded_file *f = emit_files; f->name; f++)
        if (!strcmp(f->name, name)) return f->text;
    abort();
}

/* The unit's text with what belongs to the chip taken out. */
static inline bool shim_text(text *out, const char *unit) {
    const char *chip = pasted_text("cuda_chip.h"), *prelude = pasted_text("cuda_prelude.h"),
               *rest = pasted_text("cuda_interpreter.h");
    const char *at = strstr(unit, chip), *end = strstr(unit, rest);
    if (!at || !end) return false;
    text_append(out, unit, (size_t)(at - unit));
    text_printf(out, "#include \"%s/tests/cuda_shim.h\"\n", MONOTILE_SOURCE_FOLDER);
    at += strlen(chip) + strlen(prelude);
    text_append(out, at, (size_t)(end - at));
    return !out->failed;
}

static inline void *compile_shim(const char *unit) {
    char folder[TEMPORARY_BYTES], source[256], object[256], command[1024];
    text shim = {0};
    mt_error error = {0};
    void *library = NULL;
    if (!temporary_make(folder) || !shim_text(&shim, unit)) return NULL;
    snprintf(source, sizeof source, "%s/unit.cpp", folder);
    snprintf(object, sizeof object, "%s/unit.so", folder);
    /* no contraction: the same numbers as the interpreter's where no sum is taken */
    snprintf(command, sizeof command,
             "g++ -std=gnu++17 -O1 -fwrapv -ffp-contract=off -fno-strict-aliasing -Wall -Wno-unknown-pragmas "
             "-Wno-unused -Wno-parentheses -Wno-tautological-compare -Werror -shared -fPIC -o %s %s -lm",
             object, source);
    if (file_write_atomic(source, shim.data, shim.length, &error) == MT_OK) {
        if (getenv("CUDA_KEEP")) file_write_atomic(getenv("CUDA_KEEP"), shim.data, shim.length, NULL);
        if (system(command))
            fprintf(stderr, "%s\n", command);
        else
            library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    }
    unlink(source);
    unlink(object);
    rmdir(folder);
    text_free(&shim);
    return library;
}

/* ---- weights ---- */

/* A weight of the case, in the layout: by the formula in role.h, element by element. */
static inline void lay_weight(const test_tensor *from, role_layout layout, test_tensor *to) {
    const tile_format *f = from->param->type;
    const int64_t rows = from->view.extent[0], columns = from->view.extent[1], stride = from->view.stride[0];
    *to = *from;
    tensor_map(to, (size_t)role_layout_bytes(layout, f, rows, columns));
    memset(to->memory, 0, to->size);
    uint8_t *data = to->view.data;
    const uint8_t *source = from->view.data;
    const int64_t band = layout == ROLE_BANDS ? role_band(f, columns) : 0, bands = band ? ceil_div(columns, band) : 0;
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < columns; k += f->block) {
            int64_t at;
            if (layout == ROLE_ATOMS)
                at = ((n / 8) * ceil_div(columns, 64) + k / 64) * 1024 + (n % 8) * 128 + ((k % 64 / 8) ^ (n % 8)) * 16 +
                     (k % 8) * 2;
            else {
                const int64_t b = k / band, wide = tile_format_bytes(f, b == bands - 1 ? columns - b * band : band);
                at = n / 8 * (role_layout_bytes(layout, f, 8, columns)) +
                     b * (int64_t)align_up((uint64_t)(8 * tile_format_bytes(f, band)), 16) + n % 8 * wide +
                     tile_format_bytes(f, k % band);
            }
            const size_t bytes = (size_t)f->bits / 8;
            if (at < 0 || (size_t)at + bytes > to->size - BEFORE) abort();
            memcpy(data + at, source + (n * stride + k) / f->block * (int64_t)bytes, bytes);
        }
}

/* ---- running ---- */

/* Runs the grid, and a step more where live values decide. NULL, or what went wrong. */
static inline const char *run_cuda(const cuda_case *k, const test_tensor *tensors, int count, uint64_t seed) {
    const test_case *c = k->c;
    const tile_op *op = c->op;
    cpu_tensor views[CASE_TENSORS];
    cpu_arg args[TILE_PARAMS] = {{0}};
    cuda_tensor device[CUDA_TENSORS] = {{0}};
    test_tensor laid[CASE_TENSORS];
    int32_t lives[4];
    program_instruction instruction = {.opcode = (uint16_t)k->opcode};
    const char *failure = NULL;
    memcpy(lives, c->lives, sizeof lives);
    for (int i = 0; i < count; i++) views[i] = tensors[i].view;
    arguments_of(c, args);
    interpreter p = {.op = op, .tensors = views, .args = args, .lives = c->lives};
    int64_t grid[TILE_AXES], total = 1;
    for (int a = 0; a < op->axis_total; a++) {
        grid[a] = evaluate_scalar(&p, op->axis_count[a]).i;
        if (op->axis_count[a]->kind != TILE_CONST) grid[a]++;
        total *= grid[a];
    }
    for (size_t b = 0; b < p.block_count; b++) free(p.blocks[b]);
    free(p.blocks);
    for (int i = 0; i < count; i++) {
        laid[i] = tensors[i];
        if (k->op.layout[i] != ROLE_ROWS) lay_weight(&tensors[i], k->op.layout[i], &laid[i]);
        device[i].data = laid[i].view.data;
        device[i].rank = (int16_t)tensors[i].param->rank;
        for (int d = 0; d < tensors[i].param->rank; d++) {
            device[i].stride[d] = views[i].stride[d];
            device[i].extent[d] = (int32_t)views[i].extent[d];
            device[i].live[d] = -1;
        }
    }
    for (int i = 0; i < op->arg_count && i < PROGRAM_ARGS; i++) {
        for (int q = 0; q < op->param_count; q++)
            if (op->params[q].kind == TILE_PARAM_ARG && op->params[q].ordinal == i) {
                if (op->params[q].type->scalar.kind == TILE_FLOAT)
                    memcpy(&instruction.arg[i], &args[i].f, 4);
                else
                    instruction.arg[i] = (int32_t)args[i].i;
            }
    }
    for (int i = 0; i < PROGRAM_LIVES; i++) instruction.live[i] = (uint16_t)i;
    for (int64_t i = 0; i < total && !failure; i++) {
        int64_t rest = i;
        uint64_t page_bytes;
        for (int a = op->axis_total - 1; a >= 0; a--) instruction.index[a] = (int32_t)(rest % grid[a]), rest /= grid[a];
        failure =
            k->run(&instruction, device, op->tensor_count, lives, (size_t)k->scratch, seed + (uint64_t)i, &page_bytes);
    }
    for (int i = 0; i < count; i++)
        if (k->op.layout[i] != ROLE_ROWS) tensors_free(&laid[i], 1);
    return failure;
}

/* Runs a case and compares; twice, in another order of threads, for the same bits. */
static inline bool check_cuda(const cuda_case *k, char *what, size_t size) {
    test_tensor tensors[CASE_TENSORS], copies[CASE_TENSORS], again[CASE_TENSORS];
    const int count = tensors_make(k->c, tensors);
    for (int i = 0; i < count; i++) tensor_copy(&copies[i], &tensors[i]), tensor_copy(&again[i], &tensors[i]);
    run_interpreter(k->c, tensors, count);
    const char *failure = run_cuda(k, copies, count, 1);
    if (!failure) failure = run_cuda(k, again, count, 977);
    bool good = !failure;
    if (failure) snprintf(what, size, "%s", failure);
    for (int i = 0; i < count && good; i++) {
        good = !differs(&copies[i], &tensors[i], k->c->tolerance, what, size);
        if (good && memcmp(copies[i].memory, again[i].memory, copies[i].size)) {
            snprintf(what, size, "%s differs between two orders of threads", copies[i].param->name);
            good = false;
        }
    }
    tensors_free(tensors, count);
    tensors_free(copies, count);
    tensors_free(again, count);
    return good;
}

/* Emits and compiles cuda_cases[first, last). */
static inline bool build_chunk(int first, int last) {
    static emit_cuda_op ops[CASES];
    text unit = {0};
    mt_error error = {0};
    emit_cuda_info info = {.no_lines = true};
    for (int i = first; i < last; i++) ops[i - first] = cuda_cases[i].op;
    if (emit_cuda(&unit, ops, (size_t)(last - first), &info, &error)) {
        fprintf(stderr, "%s: %s\n", error.where, error.message);
        return false;
    }
    void *library = compile_shim(unit.data);
    text_free(&unit);
    if (!library) return false;
    for (int i = first; i < last; i++) {
        *(void **)&cuda_cases[i].run = dlsym(library, "shim_run");
        cuda_cases[i].opcode = i - first;
        cuda_cases[i].scratch = info.scratch_bytes;
    }
    return true;
}

#endif
