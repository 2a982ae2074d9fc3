/* monotile: the command line. Finds the command and runs it. */
#include "cli.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"run", cli_run, "answer a prompt with a model"},
    {"tokenize", cli_tokenize, "show the tokens of a text"},
    {"compile", cli_compile, "compile a model's step to a .mono program"},
    {"disasm", cli_disasm, "list a program's instructions"},
    {"inspect", cli_inspect, "describe a model file, a program, or one instruction"},
    {"tile", cli_tile, "check, show, list and run tile programs"},
    {"trace", cli_trace, "see where the time of a model's steps goes"},
    {"doctor", cli_doctor, "see whether this computer has all that Monotile needs"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void help(void) {
    puts("Usage: monotile COMMAND [ARGUMENT...]\n\n"
         "Runs a neural network as one program of tile instructions.\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-10s%s\n", commands[i].name, commands[i].summary);
    puts("\n`monotile COMMAND --help` describes a command; `monotile --version` prints the version.\n"
         "Exit codes: 0, 1 for a run that failed, 2 for bad input or usage, 130 after Ctrl-C.");
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");
    const char *name = argc > 1 ? argv[1] : NULL;
    int code = CLI_BAD;
    if (!name) {
        fputs("monotile: no command (see `monotile --help`)\n", stderr);
    } else if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help();
        code = CLI_OK;
    } else if (!strcmp(name, "--version")) {
        puts("monotile " MONOTILE_VERSION);
        code = CLI_OK;
    } else {
        int i = 0;
        while (i < COMMANDS && strcmp(name, commands[i].name)) i++;
        if (i < COMMANDS)
            code = commands[i].run(argc - 1, argv + 1);
        else
            fprintf(stderr, "monotile: there is no command '%s' (see `monotile --help`)\n", name);
    }
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && code == CLI_OK) { /* an earlier write may have failed, too */
        fprintf(stderr, "monotile: stdout: cannot write%s%s\n", errno ? ": " : " all of it",
                errno ? strerror(errno) : "");
        code = CLI_FAILED;
    }
    return code;
}
