/* From ops to code in this process: emitted C, compiled by the host's compiler, op by op (machine/compile.c): the time
 * for all falls with the processors, equal ops share an object, and changing one op compiles one. */
#include <dlfcn.h>
#include <stdlib.h>

#include "emit/emit.h"
#include "machine/compile.h"
#include "machine/cpu/cpu.h"

enum { MOST_FLAGS = 32 };

static const cpu_entry *entry_of(void *handle) { return dlsym(handle, "mt_cpu_ops"); }

static bool object_good(void *handle) {
    const cpu_entry *table = entry_of(handle);
    return table && table[0].code && !table[1].code && table[0].scratch >= 0;
}

mt_status cpu_compile(const tile_op *const *ops, size_t count, void **handles, const cpu_entry **entries,
                      mt_error *error) {
    const char *flags[MOST_FLAGS + 1] = {"-O3", "-march=native", "-fPIC", "-shared", "-x", "c"};
    size_t flag_count = 6;
    for (size_t k = 0; emit_c_flags[k] && flag_count < MOST_FLAGS; k++) flags[flag_count++] = emit_c_flags[k];
    const compile_options options = {.language = "C",
                                     .variable = "CC",
                                     .program = "cc",
                                     .folder = "cpu",
                                     .extension = ".c",
                                     .flags = flags,
                                     .good = object_good};
    arena *memory = arena_new();
    compile_unit *units = memory ? ARENA_ARRAY(memory, count, compile_unit) : NULL;
    mt_status status = units ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory to compile ops");
    for (size_t i = 0; i < count && status == MT_OK; i++) {
        units[i].name = ops[i]->name;
        units[i].what = arena_printf(memory, "op '%s'", ops[i]->name);
        status = units[i].what ? emit_c(&units[i].code, &ops[i], 1, error)
                               : error_set(error, MT_E_MEMORY, NULL, "no memory to compile ops");
    }
    if (status == MT_OK) status = compile_units(&options, units, count, error);
    for (size_t i = 0; i < count && units; i++) {
        text_free(&units[i].code);
        handles[i] = units[i].handle;
        entries[i] = handles[i] ? entry_of(handles[i]) : NULL;
    }
    arena_free(memory);
    return status;
}

const char **cpu_stuck(void *handle) { return dlsym(handle, "mt_cpu_stuck"); }

void cpu_unload(void **handles, size_t count) {
    for (size_t i = 0; i < count && handles; i++)
        if (handles[i]) dlclose(handles[i]);
}
