/* monotile tile: tile programs. Each verb of the command is a function. */
#include "apply.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: monotile tile check FILE [PROGRAM] [-c NAME=VALUE...]\n"
    "       monotile tile show FILE PROGRAM [-c NAME=VALUE...] [-s NAME=SHAPE...] [-a NAME=VALUE...] [-l "
    "NAME=VALUE...] [--code]\n"
    "       monotile tile run FILE PROGRAM -i NAME=FILE.npy... -o NAME=FILE.npy... [-s, -a, -l, -c ...] [--machine "
    "NAME]\n"
    "       monotile tile list [FILE]\n"
    "       monotile tile doc [FILE] PROGRAM\n\n"
    "FILE is a .tile file, or `library` for the instruction library. docs/language.md describes the language.\n\n"
    "check  parses a file; checks a program, or every program whose constants all have a value\n"
    "show   the program with its constants bound; with the operands' shapes also what its first instruction reads and\n"
    "       writes; with --code the C that the CPU runs; with\n"
    "       --machine cuda what each role of an SM does, where it keeps what and why, and with --code the CUDA C\n"
    "run    applies a program to arrays. An output's shape and type follow from the inputs where the program names "
    "them so;\n"
    "       otherwise say them with -s. A tensor that is given with -i and with -o is read and written\n"
    "list   the programs and formats of a file (of the library)\n"
    "doc    a program's parameters and the comment above it\n\n"
    "  -i NAME=FILE.npy  the parameter's array          -a NAME=VALUE  an arg, a number\n"
    "  -o NAME=FILE.npy  where an output goes           -l NAME=VALUE  a live value\n"
    "  -s NAME=SHAPE     extents and type: 4x64:f16, 4x64 or :f16. A type that .npy does not have is stored as bytes "
    "(u1)\n"
    "  -c NAME=VALUE     a constant: an integer or a type\n"
    "      --machine NAME  auto, cpu, cpu:N for N workers, cuda:N for a GPU, sim:N for N simulated SMs (auto)\n"
    "      --code          show: the emitted code\n";

typedef struct tile_command {
    apply_options options; /* -i, -o, -s, -a, -l, -c */
    const char *machine;
    bool code;
    const mt_tile *file;
    mt_tile *opened; /* the same when it is not the library */
    const char *path, *program;
} tile_command;

/* ---- check and show --------------------------------------------------------------------------------------------- */

/* The -c options; returns their number. */
static size_t given_constants(const tile_command *t, mt_constant out[APPLY_CONSTANTS]) {
    size_t count = 0;
    for (size_t i = 0; i < t->options.count && count < APPLY_CONSTANTS; i++)
        if (t->options.items[i].letter == 'c') out[count++] = apply_constant(&t->options.items[i]);
    return count;
}

static int check_one(const tile_command *t, const char *program, const mt_constant *constants, size_t count) {
    mt_error error;
    char *diagnostics;
    if (mt_tile_check(t->file, program, constants, count, NULL, NULL, &diagnostics, &error) != MT_OK)
        return cli_fail_tile(&error, diagnostics);
    printf("%s: ok\n", program);
    return CLI_OK;
}

/* All programs of a file, with their own constants' values and those given that they have. */
static int check_all(const tile_command *t) {
    mt_constant given[APPLY_CONSTANTS], declared[APPLY_CONSTANTS], used[APPLY_CONSTANTS];
    const size_t given_count = given_constants(t, given);
    int code = CLI_OK;
    for (size_t i = 0; i < mt_tile_count(t->file); i++) {
        const char *program = mt_tile_name(t->file, i), *missing = NULL;
        size_t declared_count = mt_tile_constants(t->file, program, declared, APPLY_CONSTANTS), used_count = 0;
        for (size_t c = 0; c < declared_count; c++) {
            size_t g = 0;
            while (g < given_count && strcmp(given[g].name, declared[c].name)) g++;
            if (g < given_count)
                used[used_count++] = given[g];
            else if (!declared[c].type && declared[c].value == INT64_MIN && !missing)
                missing = declared[c].name;
        }
        if (missing)
            printf("%s: parsed; give -c %s=VALUE to check it\n", program, missing);
        else if (check_one(t, program, used, used_count) != CLI_OK)
            code = CLI_BAD;
    }
    for (size_t i = 0; i < mt_tile_format_count(t->file); i++)
        printf("format %s: ok\n", mt_tile_format_name(t->file, i));
    return code;
}

static int check(const tile_command *t) {
    mt_constant constants[APPLY_CONSTANTS];
    return t->program ? check_one(t, t->program, constants, given_constants(t, constants)) : check_all(t);
}

/* What the first instruction reads and writes, when the options say what the program is applied to. */
static int show_access(mt_graph *graph) {
    mt_error error;
    mt_program *program = NULL;
    char *text = NULL;
    int code = CLI_OK;
    const mt_target target = {.no_fusion = 1};
    if (mt_compile(graph, &target, &program, &error) != MT_OK || mt_program_inspect(program, 0, &text, &error) != MT_OK)
        code = cli_fail(&error);
    else
        printf("\n// the first instruction, of %zu:\n%s", mt_program_instruction_count(program), text);
    free(text);
    mt_program_destroy(program);
    return code;
}

static int show(const tile_command *t) {
    mt_error error;
    apply a = {0};
    char *bound = NULL, *code_text = NULL, *diagnostics = NULL;
    bool applied = false;
    int code = CLI_OK;
    for (size_t i = 0; i < t->options.count; i++) applied |= t->options.items[i].letter != 'c';
    if (!applied)
        a.constant_count = given_constants(t, a.constants);
    else if (apply_build(&a, t->file, t->program, &t->options, true, &error) != MT_OK)
        code = cli_fail_input(&error);
    const bool gpu = !strncmp(t->machine, "cuda", 4) || !strncmp(t->machine, "sim", 3);
    if (code == CLI_OK && mt_tile_check(t->file, t->program, a.constants, a.constant_count, &bound,
                                        t->code && !gpu ? &code_text : NULL, &diagnostics, &error) != MT_OK)
        code = cli_fail_tile(&error, diagnostics);
    if (code == CLI_OK && gpu &&
        mt_tile_lower(t->file, t->program, a.constants, a.constant_count, t->code, &code_text, &diagnostics, &error) !=
            MT_OK)
        code = cli_fail_tile(&error, diagnostics);
    if (code == CLI_OK) fputs(bound, stdout);
    if (code == CLI_OK && applied) code = show_access(a.graph);
    if (code == CLI_OK && code_text) printf("\n%s", code_text);
    free(bound);
    free(code_text);
    apply_free(&a);
    return code;
}

/* ---- run -------------------------------------------------------------------------------------------------------- */

/* Binds a tensor's array. A tensor's bytes are the array's; its type may be one that .npy has no name for. */
static mt_status bind_input(mt_session *s, const mt_program *p, const apply_tensor *t, mt_error *error) {
    mt_tensor_info info;
    for (size_t i = 0; i < mt_program_tensor_count(p); i++) {
        const mt_status status = mt_program_tensor(p, i, &info, error);
        if (status != MT_OK) return status;
        if (strcmp(info.name, t->parameter->name)) continue;
        if (info.bytes != t->data.bytes)
            return cli_error(error, MT_E_ARGUMENT, t->input, "the array has %zu bytes; '%s' needs %zu", t->data.bytes,
                             info.name, info.bytes);
        return mt_session_bind(s, info.name, t->data.data, t->data.bytes, error);
    }
    return MT_OK; /* nothing reads it */
}

static mt_status write_output(mt_session *s, const apply_tensor *t, mt_error *error) {
    void *data;
    size_t bytes;
    const mt_status status = mt_session_memory(s, t->parameter->name, &data, &bytes, error);
    return status == MT_OK ? npy_write(t->output, t->type, t->rank, t->extent, data, bytes, error) : status;
}

static int run(const tile_command *t) {
    mt_error error;
    apply a = {0};
    mt_machine *machine = NULL;
    mt_program *program = NULL;
    mt_session *session = NULL;
    int code = CLI_OK;
    if (apply_build(&a, t->file, t->program, &t->options, false, &error) != MT_OK ||
        mt_machine_open(&machine, t->machine, &error) != MT_OK) {
        code = cli_fail_input(&error);
        goto cleanup;
    }
    const mt_target target = {.processors = mt_machine_processors(machine)};
    mt_status status = mt_compile(a.graph, &target, &program, &error);
    if (status == MT_OK) status = mt_session_create(&session, machine, program, &error);
    for (int i = 0; status == MT_OK && i < a.tensor_count; i++)
        if (a.tensors[i].input) status = bind_input(session, program, &a.tensors[i], &error);
    if (status == MT_OK) status = mt_session_run(session, &error);
    for (int i = 0; status == MT_OK && i < a.tensor_count; i++)
        if (a.tensors[i].output) status = write_output(session, &a.tensors[i], &error);
    if (status != MT_OK) code = cli_fail(&error);
cleanup:
    mt_session_destroy(session);
    mt_program_destroy(program);
    mt_machine_close(machine);
    apply_free(&a);
    return code;
}

/* ---- list and doc ----------------------------------------------------------------------------------------------- */

static int list(const tile_command *t) {
    for (size_t i = 0; i < mt_tile_count(t->file); i++) {
        const char *name = mt_tile_name(t->file, i), *doc = mt_tile_doc(t->file, name);
        printf("%-28s %.*s\n", name, (int)strcspn(doc, "\n"), doc);
    }
    if (mt_tile_format_count(t->file)) fputs("formats:", stdout);
    for (size_t i = 0; i < mt_tile_format_count(t->file); i++) printf(" %s", mt_tile_format_name(t->file, i));
    if (mt_tile_format_count(t->file)) putchar('\n');
    return CLI_OK;
}

static int doc(const tile_command *t) {
    static const char *const kinds[] = {"in ", "out ", "inout ", "arg ", "live "};
    mt_parameter parameters[APPLY_PARAMETERS];
    mt_constant constants[APPLY_CONSTANTS];
    const size_t count = mt_tile_parameters(t->file, t->program, parameters, APPLY_PARAMETERS);
    const size_t constant_count = mt_tile_constants(t->file, t->program, constants, APPLY_CONSTANTS);
    if (!count) return fprintf(stderr, "monotile: %s: there is no tile program '%s'\n", t->path, t->program), CLI_BAD;
    printf("tile %s", t->program);
    for (size_t i = 0; i < constant_count; i++) {
        printf("%s%s", i ? ", " : "[", constants[i].name);
        if (constants[i].type)
            printf(" = %s", constants[i].type);
        else if (constants[i].value != INT64_MIN)
            printf(" = %lld", (long long)constants[i].value);
    }
    puts(constant_count ? "]" : "");
    for (size_t i = 0; i < count; i++) {
        const mt_parameter *p = &parameters[i];
        printf("    %s: %s%s", p->name, kinds[p->kind], p->type);
        for (int d = 0; d < p->rank; d++) printf("%s%s", d ? ", " : "[", p->extent[d] ? p->extent[d] : "...");
        puts(p->rank ? "]" : "");
    }
    const char *text = mt_tile_doc(t->file, t->program);
    if (*text) printf("\n%s%s", text, text[strlen(text) - 1] == '\n' ? "" : "\n");
    return CLI_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

static const struct verb {
    const char *name;
    int (*run)(const tile_command *t);
    const char *letters; /* of the NAME=VALUE options it takes */
    int least, most;     /* FILE and PROGRAM */
} verbs[] = {
    {"check", check, "c", 1, 2}, {"show", show, "csal", 2, 2}, {"run", run, "iosalc", 2, 2},
    {"list", list, "", 0, 1},    {"doc", doc, "", 1, 2},
};

/* Opens the file; returns the exit code. */
static int open_file(tile_command *t) {
    mt_error error;
    char *diagnostics = NULL;
    if (!strcmp(t->path, "library")) return mt_tile_library(&t->file, &error) == MT_OK ? CLI_OK : cli_fail(&error);
    if (mt_tile_open(&t->opened, t->path, &diagnostics, &error) != MT_OK) return cli_fail_tile(&error, diagnostics);
    t->file = t->opened;
    return CLI_OK;
}

int cli_tile(int argc, char **argv) {
    enum { MACHINE = CLI_LONG, CODE };
    static const struct option options[] = {
        {"machine", required_argument, NULL, MACHINE}, {"code", no_argument, NULL, CODE}, CLI_END_OPTIONS};
    tile_command t = {.machine = "auto", .path = "library"};
    const struct verb *v = verbs, *end = verbs + sizeof verbs / sizeof verbs[0];
    int code = CLI_BAD, option;
    if (argc > 1 && !strcmp(argv[1], "--help")) return fputs(help, stdout), CLI_OK;
    if (argc < 2) return cli_usage("tile", "expected check, show, run, list or doc");
    while (v < end && strcmp(v->name, argv[1])) v++;
    if (v == end) return cli_usage("tile", "there is nothing to do called '%s'", argv[1]);
    argc--;
    argv++;
    argv[0] = "tile";
    while ((option = cli_option(argc, argv, ":i:o:s:a:l:c:", options, help)) != -1) {
        if (option == CLI_HELP) code = CLI_OK;
        if (option == CLI_HELP || option == '?') goto cleanup;
        if (option == MACHINE)
            t.machine = optarg;
        else if (option == CODE)
            t.code = true;
        else if (!strchr(v->letters, option)) {
            cli_usage("tile", "%s takes no -%c", v->name, option);
            goto cleanup;
        } else if (!apply_option_add(&t.options, "tile", option, optarg))
            goto cleanup;
    }
    const int count = argc - optind;
    if (count < v->least || count > v->most) {
        cli_usage("tile", "%s takes %s", v->name,
                  v->least == 2   ? "FILE PROGRAM"
                  : v->run == doc ? "[FILE] PROGRAM"
                  : v->least      ? "FILE [PROGRAM]"
                                  : "[FILE]");
        goto cleanup;
    }
    if (v->run == doc) {
        if (count == 2) t.path = argv[optind];
        t.program = argv[argc - 1];
    } else {
        if (count > 0) t.path = argv[optind];
        if (count > 1) t.program = argv[optind + 1];
    }
    code = open_file(&t);
    if (code == CLI_OK) code = v->run(&t);
cleanup:
    mt_tile_close(t.opened);
    free(t.options.items);
    return code;
}
