/* monotile inspect: what is in a model file or a program. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "Usage: monotile inspect FILE [--instruction I]\n\n"
                           "A GGUF file: its metadata and tensors. A .mono program: a summary, or what instruction I "
                           "reads, writes and waits for,\n"
                           "and why.\n\n"
                           "      --instruction I  one instruction of a program\n";

static int inspect_model(const char *path) {
    mt_error error;
    mt_model *model = NULL;
    if (mt_model_open(&model, path, &error) != MT_OK) return cli_fail_input(&error);
    char *text = mt_model_text(model);
    if (text)
        fputs(text, stdout);
    else
        fputs("monotile: no memory for the model's description\n", stderr);
    free(text);
    mt_model_close(model);
    return text ? CLI_OK : CLI_FAILED;
}

static int inspect_program(const char *path, int64_t instruction) {
    mt_error error;
    mt_program *program = NULL;
    char *text = NULL;
    int code = CLI_OK;
    if (mt_program_load(&program, path, &error) != MT_OK) return cli_fail_input(&error);
    if ((instruction < 0 ? mt_program_summary(program, &text, &error)
                         : mt_program_inspect(program, (size_t)instruction, &text, &error)) != MT_OK)
        code = cli_fail(&error);
    else
        fputs(text, stdout);
    free(text);
    mt_program_destroy(program);
    return code;
}

/* Whether the file begins like a program. What cannot be read is left to the one who opens it next. */
static bool is_program(const char *path) {
    char magic[8] = "";
    FILE *f = fopen(path, "rb");
    const bool is = f && fread(magic, 1, sizeof magic, f) == sizeof magic && !memcmp(magic, "MONOTILE", sizeof magic);
    if (f) fclose(f);
    return is;
}

int cli_inspect(int argc, char **argv) {
    enum { INSTRUCTION = CLI_LONG };
    static const struct option options[] = {{"instruction", required_argument, NULL, INSTRUCTION}, CLI_END_OPTIONS};
    int64_t instruction = -1;
    int option;
    while ((option = cli_option(argc, argv, ":", options, help)) != -1) {
        if (option == CLI_HELP) return CLI_OK;
        if (option == '?' || !cli_integer(argv[0], "--instruction", optarg, 0, INT64_MAX, &instruction)) return CLI_BAD;
    }
    if (argc - optind != 1) return cli_usage(argv[0], "expected one file");
    if (is_program(argv[optind])) return inspect_program(argv[optind], instruction);
    if (instruction >= 0) return cli_usage(argv[0], "%s is no program: --instruction needs one", argv[optind]);
    return inspect_model(argv[optind]);
}
