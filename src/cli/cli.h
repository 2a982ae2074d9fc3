/* What the commands of `monotile` share. A command is a file with one function; all that it knows of Monotile is in
 * include/monotile. Errors go to stderr as "monotile: where: message". */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "monotile/monotile.h"

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,       /* a run that failed: memory, the compiler, the system, a hang */
    CLI_BAD = 2,          /* bad input or usage */
    CLI_INTERRUPTED = 130 /* stopped by Ctrl-C */
};

/* The commands: argv[0] is the command's name. They return the exit code. */
int cli_run(int argc, char **argv);
int cli_tokenize(int argc, char **argv);
int cli_compile(int argc, char **argv);
int cli_disasm(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_tile(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_doctor(int argc, char **argv);

/* support.c: errors ------------------------------------------------------------------------------------------------ */

/* Prints an error and returns the exit code that it means. `input`: it came from opening something that the user named,
 * so that a refusal of the system is bad input. */
int cli_fail(const mt_error *error);
int cli_fail_input(const mt_error *error);
/* The same for a .tile file; the diagnostics, which may be NULL, are printed instead of the error and freed. */
int cli_fail_tile(const mt_error *error, char *diagnostics);
/* "monotile: COMMAND: message" and where help is. Returns CLI_BAD. */
int cli_usage(const char *command, const char *format, ...) PRINTF_LIKE(2, 3);
/* Fills an error record, for code that fails like the library. `where` may be NULL. */
mt_status cli_error(mt_error *error, mt_status code, const char *where, const char *format, ...) PRINTF_LIKE(4, 5);

/* support.c: options ---------------------------------------------------------------------------------------------- */

/* Values of long options: --help, those that commands share, and the first of a command's own. */
enum { CLI_HELP = 256, CLI_SYNTH, CLI_PROMPT_IDS, CLI_CONTEXT, CLI_MACHINE, CLI_CACHE, CLI_LONG };

/* getopt_long with our messages: the option's value, -1 at the end, '?' after a message. Options that want help print
 * it and return CLI_HELP. `options` must end with CLI_END_OPTIONS. */
int cli_option(int argc, char **argv, const char *letters, const struct option *options, const char *help);
#define CLI_END_OPTIONS                                                                                                \
    {"help", no_argument, NULL, CLI_HELP}, { 0 }
/* Parses a number from least to most; on failure prints a message that names the option, and returns false. */
bool cli_integer(const char *command, const char *option, const char *value, int64_t least, int64_t most, int64_t *out);
bool cli_number(const char *command, const char *option, const char *value, double least, double most, double *out);

/* support.c: models ----------------------------------------------------------------------------------------------- */

/* MODEL, or --synth NAME, of a command line whose options are read: exactly one of the two. Returns the exit code,
 * having said what is wrong. A `model` to close in any case. */
int cli_model(int argc, char **argv, const char *synth, mt_model **out);
/* The prompt of --prompt-ids: random ids, the same every time. mt_tokens_free. */
mt_status cli_prompt_ids(const mt_model *m, int32_t count, mt_tokens *out, mt_error *error);
#define CLI_SYNTH_HELP                                                                                                 \
    "      --synth NAME    instead of MODEL: random weights in the shape of llama-3.2-1b, llama-3-8b, qwen3-0.6b or\n" \
    "                      qwen3-8b; with :FORMAT for their storage format (bf16)\n"

/* The options of commands that let a model go on with a prompt. */
typedef struct cli_subject {
    const char *synth, *prompt, *machine;
    int32_t prompt_ids; /* 0: the prompt is a text */
    mt_engine_options engine;
} cli_subject;
#define CLI_SUBJECT_OPTIONS                                                                                            \
    {"synth", required_argument, NULL, CLI_SYNTH}, {"prompt", required_argument, NULL, 'p'},                           \
        {"prompt-ids", required_argument, NULL, CLI_PROMPT_IDS}, {"context", required_argument, NULL, CLI_CONTEXT},    \
        {"machine", required_argument, NULL, CLI_MACHINE}, {                                                           \
        "cache", required_argument, NULL, CLI_CACHE                                                                    \
    }
/* Takes one of these that cli_option has found. False, after a message: it is bad, or cli_option said so. */
bool cli_subject_option(const char *command, int option, cli_subject *o);

/* support.c: texts ------------------------------------------------------------------------------------------------ */

/* A text argument: itself, or all of stdin for "-". The caller frees it. */
mt_status cli_text(const char *argument, char **out, size_t *length, mt_error *error);
/* A JSON string of bytes; those that are no UTF-8 become U+FFFD. */
json_t *cli_json_text(const char *bytes, size_t length);
/* Prints a JSON value and a line feed to stdout, and releases it. Returns the exit code. */
int cli_print_json(json_t *value);
/* The chat prompt of one turn: the model's template around `prompt`, with a system message unless `system` is NULL. The
 * caller frees the text. */
mt_status cli_chat(const mt_model *m, const mt_tokenizer *t, const char *system, const char *prompt, char **out,
                   size_t *length, mt_error *error);

#endif
