/* Errors, options and texts of the commands. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ----------------------------------------------------------------------------------------------------- */

static int fail(const mt_error *error, int io) {
    if (error->where[0])
        fprintf(stderr, "monotile: %s: %s\n", error->where, error->message);
    else
        fprintf(stderr, "monotile: %s\n", error->message);
    switch (error->code) {
    case MT_E_IO:
        return io;
    case MT_E_FORMAT:
    case MT_E_SYNTAX:
    case MT_E_ARGUMENT:
    case MT_E_UNSUPPORTED:
    case MT_E_LIMIT:
        return CLI_BAD;
    default:
        return CLI_FAILED;
    }
}

int cli_fail(const mt_error *error) { return fail(error, CLI_FAILED); }
int cli_fail_input(const mt_error *error) { return fail(error, CLI_BAD); }

int cli_fail_tile(const mt_error *error, char *diagnostics) {
    if (!diagnostics) return cli_fail_input(error);
    fputs(diagnostics, stderr);
    free(diagnostics);
    return CLI_BAD;
}

int cli_usage(const char *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "monotile: %s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, " (see `monotile %s --help`)\n", command);
    va_end(arguments);
    return CLI_BAD;
}

mt_status cli_error(mt_error *error, mt_status code, const char *where, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error->code = code;
    snprintf(error->where, sizeof error->where, "%s", where ? where : "");
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return code;
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

int cli_option(int argc, char **argv, const char *letters, const struct option *options, const char *help) {
    opterr = 0;
    const int at = optind > 0 ? optind : 1; /* where the option is, for messages; a group of letters keeps optind */
    const int option = getopt_long(argc, argv, letters, options, NULL);
    if (option == CLI_HELP) fputs(help, stdout);
    if (option != '?' && option != ':') return option;
    const char *word = at < argc ? argv[at] : "";
    if (option == ':')
        cli_usage(argv[0], "%s needs a value", argv[optind - 1]);
    else if (optopt > 0 && optopt < CLI_HELP)
        cli_usage(argv[0], "there is no option -%c", optopt);
    else if (optopt)
        cli_usage(argv[0], "%s takes no value", word);
    else
        cli_usage(argv[0], "there is no option %s", argv[optind - 1]);
    return '?';
}

bool cli_integer(const char *command, const char *option, const char *value, int64_t least, int64_t most,
                 int64_t *out) {
    char *end;
    errno = 0;
    const long long n = strtoll(value, &end, 0);
    if (end == value || *end || errno || n < least || n > most) {
        cli_usage(command, "%s takes an integer from %lld to %lld, not '%s'", option, (long long)least, (long long)most,
                  value);
        return false;
    }
    *out = n;
    return true;
}

bool cli_number(const char *command, const char *option, const char *value, double least, double most, double *out) {
    char *end;
    const double n = strtod(value, &end);
    if (end == value || *end || !(n >= least && n <= most)) {
        cli_usage(command, "%s takes a number from %g to %g, not '%s'", option, least, most, value);
        return false;
    }
    *out = n;
    return true;
}

bool cli_subject_option(const char *command, int option, cli_subject *o) {
    int64_t integer;
    switch (option) {
    case CLI_SYNTH:
        o->synth = optarg;
        return true;
    case 'p':
        o->prompt = optarg;
        return true;
    case CLI_MACHINE:
        o->machine = optarg;
        return true;
    case CLI_CACHE:
        o->engine.cache = optarg;
        return true;
    case CLI_PROMPT_IDS:
        if (!cli_integer(command, "--prompt-ids", optarg, 1, 1 << 24, &integer)) return false;
        o->prompt_ids = (int32_t)integer;
        return true;
    case CLI_CONTEXT:
        if (!cli_integer(command, "--context", optarg, 1, INT32_MAX, &integer)) return false;
        o->engine.context = (int32_t)integer;
        return true;
    default:
        return false;
    }
}

/* ---- models ----------------------------------------------------------------------------------------------------- */

int cli_model(int argc, char **argv, const char *synth, mt_model **out) {
    mt_error error;
    *out = NULL;
    if (argc - optind != (synth ? 0 : 1))
        return cli_usage(argv[0], synth ? "--synth stands for the model file: no other" : "expected one model file");
    const mt_status status = synth ? mt_model_synthesize(out, synth, &error) : mt_model_open(out, argv[optind], &error);
    return status == MT_OK ? CLI_OK : cli_fail_input(&error);
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

mt_status cli_text(const char *argument, char **out, size_t *length, mt_error *error) {
    if (strcmp(argument, "-")) {
        *out = strdup(argument);
        *length = strlen(argument);
        return *out ? MT_OK : cli_error(error, MT_E_MEMORY, NULL, "no memory for the text");
    }
    enum { MOST = 1 << 28 };
    FILE *stream = open_memstream(out, length);
    if (!stream) return cli_error(error, MT_E_MEMORY, "stdin", "no memory for the text");
    char chunk[1 << 16];
    size_t total = 0, count;
    while (total <= MOST && (count = fread(chunk, 1, sizeof chunk, stdin)) > 0)
        total += fwrite(chunk, 1, count, stream);
    mt_status status = MT_OK;
    if (ferror(stdin))
        status = cli_error(error, MT_E_IO, "stdin", "cannot read: %s", strerror(errno));
    else if (total > MOST)
        status = cli_error(error, MT_E_LIMIT, "stdin", "the text has more than %d bytes", MOST);
    if (fclose(stream) && status == MT_OK) status = cli_error(error, MT_E_MEMORY, "stdin", "no memory for the text");
    if (status == MT_OK && memchr(*out, 0, *length))
        status = cli_error(error, MT_E_ARGUMENT, "stdin", "the text has a zero byte");
    if (status != MT_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

/* How many bytes at s are one character of UTF-8; 0 when they are none. */
static size_t character(const unsigned char *s, size_t room) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (length < 2) return length;
    if (length > room) return 0;
    uint32_t code = s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    return code >= least[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? length : 0;
}

json_t *cli_json_text(const char *bytes, size_t length) {
    char *fixed = malloc(3 * length + 1);
    if (!fixed) return NULL;
    size_t used = 0;
    for (size_t i = 0; i < length;) {
        const size_t count = character((const unsigned char *)bytes + i, length - i);
        memcpy(fixed + used, count ? bytes + i : "\xef\xbf\xbd", count ? count : 3);
        used += count ? count : 3;
        i += count ? count : 1;
    }
    json_t *text = json_stringn(fixed, used);
    free(fixed);
    return text;
}

int cli_print_json(json_t *value) {
    if (!value || json_dumpf(value, stdout, JSON_COMPACT)) {
        json_decref(value);
        fprintf(stderr, "monotile: cannot write JSON\n");
        return CLI_FAILED;
    }
    json_decref(value);
    putchar('\n');
    return CLI_OK;
}

/* A copy of a special token's text, NULL when the model has none. */
static char *special(const mt_tokenizer *t, mt_special which) {
    size_t length;
    const int32_t id = mt_tokenizer_special(t, which);
    const char *piece = id < 0 ? NULL : mt_tokenizer_piece(t, id, &length);
    return piece ? strndup(piece, length) : NULL;
}

mt_status cli_chat(const mt_model *m, const mt_tokenizer *t, const char *system, const char *prompt, char **out,
                   size_t *length, mt_error *error) {
    mt_template *chat = NULL;
    mt_status status = mt_model_template(m, &chat, error);
    if (status != MT_OK) return status;
    char *bos = special(t, MT_TOKEN_BOS), *eos = special(t, MT_TOKEN_EOS);
    const mt_template_options options = {.add_generation_prompt = true, .bos_token = bos, .eos_token = eos};
    const mt_message messages[] = {{"system", system}, {"user", prompt}};
    status = mt_template_apply(chat, system ? messages : messages + 1, system ? 2 : 1, &options, out, length, error);
    free(bos);
    free(eos);
    mt_template_free(chat);
    return status;
}

mt_status cli_prompt_ids(const mt_model *m, int32_t count, mt_tokens *out, mt_error *error) {
    mt_model_info info;
    mt_model_get_info(m, &info);
    *out = (mt_tokens){.ids = calloc((size_t)count, sizeof *out->ids), .count = (size_t)count};
    if (!out->ids) return cli_error(error, MT_E_MEMORY, NULL, "no memory for %d tokens", count);
    uint64_t state = 1; /* Knuth's linear congruential generator */
    for (int32_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out->ids[i] = (int32_t)((state >> 33) % (uint64_t)info.vocab);
    }
    return MT_OK;
}
