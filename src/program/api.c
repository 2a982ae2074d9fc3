/* The public face of programs: files, and text for people. mt_compile is the schedule's. */
#include <stdlib.h>

#include "monotile/program.h"
#include "program/program.h"

void mt_program_destroy(mt_program *p) { program_free(p); }

mt_status mt_program_save(const mt_program *p, const char *path, mt_error *error) {
    return file_write_atomic(path, p->header, p->header->file_bytes, error);
}

mt_status mt_program_load(mt_program **out, const char *path, mt_error *error) {
    *out = NULL;
    file_map file;
    mt_status status = file_map_open(&file, path, error);
    if (status != MT_OK) return status;
    if (!file.size)
        status = error_set(error, MT_E_FORMAT, path, "the file is empty");
    else
        status = program_open_memory(out, file.data, file.size, path, error);
    if (status == MT_OK)
        (*out)->map = file;
    else
        file_map_close(&file);
    return status;
}

/* Hands a finished text to the caller. */
static mt_status give(text *t, char **out, mt_status status, mt_error *error) {
    if (status == MT_OK) text_append(t, "", 0); /* an empty text is "", not NULL */
    if (status == MT_OK && t->failed) status = error_set(error, MT_E_MEMORY, NULL, "no memory for a text");
    if (status == MT_OK)
        *out = t->data;
    else
        text_free(t);
    return status;
}

mt_status mt_program_summary(const mt_program *p, char **out, mt_error *error) {
    text t = {0};
    *out = NULL;
    program_summary(p, &t);
    return give(&t, out, MT_OK, error);
}

mt_status mt_program_disassemble(const mt_program *p, size_t first, size_t count, char **out, mt_error *error) {
    text t = {0};
    *out = NULL;
    if (first > p->instructions_count)
        return error_set(error, MT_E_ARGUMENT, NULL, "there is no instruction %zu; the program has %zu", first,
                         p->instructions_count);
    program_disassemble(p, first, count, &t);
    return give(&t, out, MT_OK, error);
}

mt_status mt_program_inspect(const mt_program *p, size_t instruction, char **out, mt_error *error) {
    text t = {0};
    *out = NULL;
    return give(&t, out, program_inspect(p, instruction, &t, error), error);
}

size_t mt_program_instruction_count(const mt_program *p) { return p->instructions_count; }

size_t mt_program_tensor_count(const mt_program *p) {
    size_t count = 0;
    for (size_t i = 0; i < p->tensors_count; i++) count += p->tensors[i].role != MT_TEMP;
    return count;
}

mt_status mt_program_tensor(const mt_program *p, size_t i, mt_tensor_info *out, mt_error *error) {
    size_t left = i;
    for (size_t k = 0; k < p->tensors_count; k++) {
        const program_tensor *t = &p->tensors[k];
        if (t->role == MT_TEMP || left--) continue;
        *out = (mt_tensor_info){.name = program_string(p, t->name),
                                .type = program_string(p, t->format),
                                .role = (mt_role)t->role,
                                .rank = t->rank,
                                .bytes = (size_t)t->bytes};
        memcpy(out->extent, t->extent, sizeof out->extent);
        return MT_OK;
    }
    return error_set(error, MT_E_ARGUMENT, NULL, "there is no tensor %zu; the program has %zu that can be bound", i,
                     i - left);
}
