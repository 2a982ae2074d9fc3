/* monotile disasm: a program's instructions, one a line. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>

static const char help[] = "Usage: monotile disasm FILE.mono [--from I] [--count N]\n\n"
                           "Lists a program's instructions: what each does, waits for and arrives at.\n\n"
                           "      --from I   begin with instruction I (0)\n"
                           "      --count N  at most N instructions (all)\n";

int cli_disasm(int argc, char **argv) {
    enum { FROM = CLI_LONG, COUNT, CHUNK = 4096 };
    static const struct option options[] = {
        {"from", required_argument, NULL, FROM}, {"count", required_argument, NULL, COUNT}, CLI_END_OPTIONS};
    int64_t from = 0, count = INT64_MAX;
    int option;
    while ((option = cli_option(argc, argv, ":", options, help)) != -1) {
        if (option == CLI_HELP) return CLI_OK;
        if (option == '?' || (option == FROM && !cli_integer(argv[0], "--from", optarg, 0, INT64_MAX, &from)) ||
            (option == COUNT && !cli_integer(argv[0], "--count", optarg, 0, INT64_MAX, &count)))
            return CLI_BAD;
    }
    if (argc - optind != 1) return cli_usage(argv[0], "expected one program file");

    mt_error error;
    mt_program *program = NULL;
    if (mt_program_load(&program, argv[optind], &error) != MT_OK) return cli_fail_input(&error);
    const size_t total = mt_program_instruction_count(program);
    int code = CLI_OK;
    if ((uint64_t)from > total)
        code = cli_usage(argv[0], "--from %lld: the program has %zu instructions", (long long)from, total);
    for (size_t i = (size_t)from; code == CLI_OK && i < total && count > 0;) {
        size_t now = total - i < CHUNK ? total - i : CHUNK;
        if ((uint64_t)count < now) now = (size_t)count;
        char *text = NULL;
        if (mt_program_disassemble(program, i, now, &text, &error) != MT_OK)
            code = cli_fail(&error);
        else
            fputs(text, stdout);
        free(text);
        i += now;
        count -= (int64_t)now;
    }
    mt_program_destroy(program);
    return code;
}
