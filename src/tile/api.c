/* The public face of tile programs (monotile/tile.h): an mt_tile is a tile_file. */
#include <limits.h>
#include <stdlib.h>

#include "emit/emit.h"
#include "emit/emit_cuda.h"
#include "monotile/tile.h"
#include "tile/ast.h"
#include "tile/layout.h"

enum { MOST_TEXT = 1 << 20 }; /* bytes of a .tile file that are read; tile_parse takes no more */

static const tile_file *as_file(const mt_tile *t) { return (const tile_file *)t; }

/* Gives the diagnostics' text to the caller, or frees it when there is none or the caller does not want it. */
static void hand_out(tile_diagnostics *d, char **out) {
    if (out && d->count) {
        *out = d->text.data;
        d->text = (text){0};
    }
    text_free(&d->text);
}

mt_status mt_tile_parse(mt_tile **out, const char *path, const char *source, size_t length, char **diagnostics,
                        mt_error *error) {
    *out = NULL;
    if (diagnostics) *diagnostics = NULL;
    tile_file *file = NULL;
    tile_diagnostics found = {0};
    const mt_status status = tile_parse(&file, path, source, length, &found, error);
    if (status == MT_OK) *out = (mt_tile *)file;
    hand_out(&found, diagnostics);
    return status;
}

mt_status mt_tile_open(mt_tile **out, const char *path, char **diagnostics, mt_error *error) {
    *out = NULL;
    if (diagnostics) *diagnostics = NULL;
    text source = {0};
    mt_status status = file_read(&source, path, MOST_TEXT, error);
    if (status == MT_OK)
        status = mt_tile_parse(out, path, source.data ? source.data : "", source.length, diagnostics, error);
    text_free(&source);
    return status;
}

mt_status mt_tile_library(const mt_tile **out, mt_error *error) {
    *out = NULL;
    const tile_file *file = NULL;
    const mt_status status = tile_library(&file, error);
    if (status == MT_OK) *out = (const mt_tile *)file;
    return status;
}

void mt_tile_close(mt_tile *t) {
    const tile_file *library = NULL;
    if (!t || (tile_library(&library, NULL) == MT_OK && as_file(t) == library)) return;
    tile_file_free((tile_file *)t);
}

size_t mt_tile_count(const mt_tile *t) { return tile_file_count(as_file(t)); }

const char *mt_tile_name(const mt_tile *t, size_t i) {
    return i < mt_tile_count(t) ? tile_file_name(as_file(t), i) : NULL;
}

const char *mt_tile_doc(const mt_tile *t, const char *name) {
    const char *doc = tile_file_doc(as_file(t), name);
    return doc ? doc : "";
}

size_t mt_tile_format_count(const mt_tile *t) { return tile_file_format_count(as_file(t)); }

const char *mt_tile_format_name(const mt_tile *t, size_t i) {
    return i < mt_tile_format_count(t) ? tile_file_format(as_file(t), i)->name : NULL;
}

size_t mt_tile_parameters(const mt_tile *t, const char *name, mt_parameter *out, size_t room) {
    static const mt_parameter_kind kinds[] = {[TILE_IN] = MT_PARAMETER_IN,
                                              [TILE_OUT] = MT_PARAMETER_OUT,
                                              [TILE_INOUT] = MT_PARAMETER_INOUT,
                                              [TILE_PARAM_ARG] = MT_PARAMETER_ARG,
                                              [TILE_PARAM_LIVE] = MT_PARAMETER_LIVE};
    tile_signature_param params[TILE_PARAMS];
    const int count = tile_signature(as_file(t), name, params);
    for (int i = 0; i < count && (size_t)i < room; i++) {
        const tile_signature_param *p = &params[i];
        out[i] = (mt_parameter){.name = p->name, .kind = kinds[p->kind], .rank = p->kind <= TILE_INOUT ? p->rank : 0};
        out[i].type = p->type_constant ? p->type_constant : p->type ? p->type->name : "";
        for (int d = 0; d < out[i].rank; d++) out[i].extent[d] = p->extent_name[d];
    }
    return count > 0 ? (size_t)count : 0;
}

size_t mt_tile_constants(const mt_tile *t, const char *name, mt_constant *out, size_t room) {
    tile_constant constants[TILE_CONSTANTS];
    const int count = tile_constants(as_file(t), name, constants);
    for (int i = 0; i < count && (size_t)i < room; i++)
        out[i] =
            (mt_constant){constants[i].name, constants[i].value, constants[i].type ? constants[i].type->name : NULL};
    return count > 0 ? (size_t)count : 0;
}

const char *mt_tile_constant_follows(const mt_tile *t, const char *name, const char *constant) {
    return tile_constant_follows(as_file(t), name, constant);
}

/* Moves the text to the caller; false when memory ran out. */
static bool give(text *t, char **out) {
    if (t->failed || !t->data) return false;
    *out = t->data;
    *t = (text){0};
    return true;
}

/* Binds the constants that the caller gives by name. */
static mt_status bind_given(arena *memory, const mt_tile *t, const char *name, const mt_constant *constants,
                            size_t count, const tile_op **op, tile_diagnostics *found, mt_error *error) {
    tile_constant given[TILE_CONSTANTS];
    if (count > TILE_CONSTANTS)
        return error_set(error, MT_E_LIMIT, name, "a tile program has at most %d constants", TILE_CONSTANTS);
    for (size_t i = 0; i < count; i++) {
        given[i] = (tile_constant){.name = constants[i].name, .value = constants[i].value};
        if (constants[i].type && !(given[i].type = tile_file_find_format(as_file(t), constants[i].type)))
            return error_set(error, MT_E_ARGUMENT, constants[i].name, "there is no type or format named '%s'",
                             constants[i].type);
    }
    return tile_bind(memory, op, as_file(t), name, given, count, found, error);
}

mt_status mt_tile_check(const mt_tile *t, const char *name, const mt_constant *constants, size_t count, char **bound,
                        char **code, char **diagnostics, mt_error *error) {
    if (bound) *bound = NULL;
    if (code) *code = NULL;
    if (diagnostics) *diagnostics = NULL;
    arena *memory = arena_new();
    if (!memory) return error_set(error, MT_E_MEMORY, name, "no memory to check a tile program");
    const tile_op *op = NULL;
    tile_diagnostics found = {0};
    text shown = {0}, emitted = {0};
    mt_status status = bind_given(memory, t, name, constants, count, &op, &found, error);
    if (status == MT_OK && bound) {
        tile_print_op(&shown, op);
        if (!give(&shown, bound)) status = error_set(error, MT_E_MEMORY, name, "no memory for the program's text");
    }
    if (status == MT_OK && code && (status = emit_c_op(&emitted, op, error)) == MT_OK && !give(&emitted, code))
        status = error_set(error, MT_E_MEMORY, name, "no memory for the program's code");
    if (status != MT_OK && bound) {
        free(*bound);
        *bound = NULL;
    }
    text_free(&shown);
    text_free(&emitted);
    hand_out(&found, diagnostics);
    arena_free(memory);
    return status;
}

mt_status mt_tile_lower(const mt_tile *t, const char *name, const mt_constant *constants, size_t count, int code,
                        char **out, char **diagnostics, mt_error *error) {
    *out = NULL;
    if (diagnostics) *diagnostics = NULL;
    arena *memory = arena_new();
    if (!memory) return error_set(error, MT_E_MEMORY, name, "no memory to lower a tile program");
    emit_cuda_op op = {0};
    role_op *lowered;
    tile_diagnostics found = {0};
    text shown = {0};
    mt_status status = bind_given(memory, t, name, constants, count, &op.op, &found, error);
    for (int i = 0; status == MT_OK && i < op.op->tensor_count; i++) op.layout[i] = role_wish(op.op, i);
    if (status == MT_OK && code) {
        status = emit_cuda_one(&shown, &op, error);
    } else if (status == MT_OK && (status = role_lower(memory, &lowered, op.op, op.layout, error)) == MT_OK) {
        if (!lowered->wide) lowered->not_wide = role_why_not_wide(memory, op.op);
        role_print(&shown, lowered);
        layout_print_role(&shown, lowered);
    }
    if (status == MT_OK && !give(&shown, out)) status = error_set(error, MT_E_MEMORY, name, "no memory for the text");
    text_free(&shown);
    hand_out(&found, diagnostics);
    arena_free(memory);
    return status;
}
