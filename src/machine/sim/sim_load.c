/* Loading a program: its unit with the simulator's chip, through the host's C++ compiler. */
#include <dlfcn.h>
#include <stdlib.h>

#include "base/embed.h"
#include "machine/compile.h"
#include "machine/sim/sim.h"

extern const struct embedded_file sim_files[];

static const char *file_text(const char *name) {
    for (const struct embedded_file *f = sim_files; f->name; f++)
        if (!strcmp(f->name, name)) return f->text;
    return "";
}

static const sim_unit *unit_of(void *handle) { return dlsym(handle, "mt_sim_unit"); }
static bool object_good(void *handle) {
    const sim_unit *u = unit_of(handle);
    return u && u->kernel && u->set;
}

/* Instrumented as for the thread sanitizer, but with the unit's own callbacks: its library is left out. No contraction:
 * the same bits whatever the compiler makes of the code around. */
static const char *const gcc_flags[] = {"-std=gnu++17",
                                        "-O1",
                                        "-fPIC",
                                        "-shared",
                                        "-nodefaultlibs",
                                        "-Wl,-Bsymbolic", /* its own callbacks, also where a sanitizer's are */
                                        "-fsanitize=thread",
                                        "--param=tsan-distinguish-volatile=1",
                                        "--param=tsan-instrument-func-entry-exit=0",
                                        "-ffp-contract=off",
                                        "-fwrapv",
                                        "-fno-strict-aliasing",
                                        "-fno-exceptions",
                                        "-fno-rtti",
                                        "-fno-builtin-memcpy",
                                        "-w",
                                        "-x",
                                        "c++",
                                        NULL};
static const char *const clang_flags[] = {"-std=gnu++17",
                                          "-O1",
                                          "-fPIC",
                                          "-shared",
                                          "-nodefaultlibs",
                                          "-Wl,-Bsymbolic", /* its own callbacks, also where a sanitizer's are */
                                          "-fsanitize=thread",
                                          "-mllvm",
                                          "-tsan-distinguish-volatile=1",
                                          "-mllvm",
                                          "-tsan-instrument-func-entry-exit=0",
                                          "-ffp-contract=off",
                                          "-fwrapv",
                                          "-fno-strict-aliasing",
                                          "-fno-exceptions",
                                          "-fno-rtti",
                                          "-w",
                                          "-x",
                                          "c++",
                                          NULL};

static void fill_half(float *half) {
    for (uint32_t code = 0; code < 65536; code++) {
        const uint32_t exponent = code >> 10 & 31, mantissa = code & 1023;
        float value = 0;
        uint32_t bits;
        if (exponent == 31)
            bits = 0x7f800000u | mantissa << 13;
        else if (exponent)
            bits = (exponent + 112) << 23 | mantissa << 13;
        else {
            value = (float)mantissa / 16777216.0f;
            memcpy(&bits, &value, 4);
        }
        bits |= code >> 15 << 31;
        memcpy(&half[code], &bits, 4);
    }
}

const sim_calls *sim_calls_ready(void) {
    static float half[65536];
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once);
    if (!sim_chip_calls.half) {
        fill_half(half);
        sim_chip_calls.half = half;
    }
    pthread_mutex_unlock(&once);
    return &sim_chip_calls;
}

bool sim_chip_text(text *out) {
    text_string(out, file_text("sim_abi.h"));
    text_string(out, file_text("sim_chip.h"));
    return !out->failed;
}

const char *sim_tail_text(void) { return file_text("sim_tail.h"); }

mt_status sim_compile(const sim_machine *m, const emit_cuda_op *ops, size_t count, bool traced, emit_cuda_info *info,
                      void **code, mt_error *error) {
    const char *cxx = getenv("CXX");
    const compile_options options = {.language = "C++",
                                     .variable = "CXX",
                                     .program = "c++",
                                     .folder = "sim",
                                     .extension = ".cpp",
                                     .flags = cxx && strstr(cxx, "clang") ? clang_flags : gcc_flags,
                                     .good = object_good};
    text chip = {0};
    compile_unit unit = {.name = "program", .what = "the program"};
    sim_calls_ready();
    if (traced) text_string(&chip, "#define MT_TRACE 1\n");
    mt_status status = sim_chip_text(&chip) ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    *info = (emit_cuda_info){.chip = chip.data, .tail = sim_tail_text(), .marks = true, .no_lines = true};
    if (status == MT_OK) status = emit_cuda(&unit.code, ops, count, info, error);
    info->chip = NULL;
    if (status == MT_OK && m->edit) m->edit(&unit.code, m->edit_context);
    if (status == MT_OK) status = compile_units(&options, &unit, 1, error);
    *code = unit.handle;
    text_free(&chip);
    text_free(&unit.code);
    return status;
}

mt_status sim_session_code(sim_session *s, mt_error *error) {
    const mt_program *p = s->program;
    emit_cuda_op *ops = NULL;
    emit_cuda_info info;
    device_handoff again; /* with other code it is the same, and tables know the first one */
    mt_status status = device_ops(p, &s->binding, s->layouts, s->memory, &ops, error);
    if (status == MT_OK)
        status = device_handoff_choose(p, &s->binding, ops, s->memory, s->code ? &again : &s->handoff, error);
    if (status == MT_OK) status = sim_compile(s->machine, ops, p->ops_count, s->traced, &info, &s->code, error);
    if (status != MT_OK) return status;
    s->unit = unit_of(s->code);
    s->scratch_bytes = info.scratch_bytes;
    s->page_bytes = info.page_bytes;
    s->least_pages = info.least_pages;
    return status;
}

mt_status sim_session_load(sim_session *s, mt_error *error) {
    const mt_status status = device_layouts(s->program, &s->binding, s->memory, &s->layouts, error);
    return status == MT_OK ? sim_session_code(s, error) : status;
}
