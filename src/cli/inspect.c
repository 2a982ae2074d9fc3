/* monotile inspect: what is in a model file or a program. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "Usage: monotile inspect FILE|--synth NAME [--instruction I]\n\n"
                           "A GGUF file: its metadata and tensors. A .mono program: a summary, or what instruction I "
                           "reads, writes and waits for,\n"
                           "and why.\n\n" CLI_SYNTH_HELP "      --instruction I  one instruction of a program\n";

static int inspect_synthetic(int argc, char **argv, const char *synth) {
    mt_model *model;
    const int code = cli_model(argc, argv, synth, &model);
    if (code != CLI_OK) return code;
    char *text = mt_model_text(model);
    if (text)
        fputs(text, stdout);
    else
        fputs("monotile: no memory for the model's description\n", stderr);
    free(text);
    mt_model_close(model);
    return text ? CLI_OK : CLI_FAILED;
}

/* A model file's contents are shown whether it can be run or not; what keeps it from running follows them. */
static int inspect_model(const char *path) {
    mt_error error;
    mt_model *model = NULL;
    char *text;
    if (mt_model_describe(path, &text, &error) != MT_OK) return cli_fail_input(&error);
    fputs(text, stdout);
    free(text);
    if (mt_model_open(&model, path, &error) != MT_OK) {
        if (error.code != MT_E_UNSUPPORTED) return cli_fail_input(&error);
        printf("note: this model cannot be run: %s\n", error.message);
    }
    mt_model_close(model);
    return CLI_OK;
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
    enum { INSTRUCTION = CLI_LONG, SYNTH };
    static const struct option options[] = {{"instruction", required_argument, NULL, INSTRUCTION},
                                            {"synth", required_argument, NULL, SYNTH},
                                            CLI_END_OPTIONS};
    const char *synth = NULL;
    int64_t instruction = -1;
    int option;
    while ((option = cli_option(argc, argv, ":", options, help)) != -1) {
        if (option == CLI_HELP) return CLI_OK;
        if (option == SYNTH)
            synth = optarg;
        else if (option == '?' || !cli_integer(argv[0], "--instruction", optarg, 0, INT64_MAX, &instruction))
            return CLI_BAD;
    }
    if (!synth && argc - optind != 1) return cli_usage(argv[0], "expected one file");
    if (!synth && is_program(argv[optind])) return inspect_program(argv[optind], instruction);
    if (instruction >= 0)
        return cli_usage(argv[0], "%s is no program: --instruction needs one", synth ? synth : argv[optind]);
    return synth ? inspect_synthetic(argc, argv, synth) : inspect_model(argv[optind]);
}
