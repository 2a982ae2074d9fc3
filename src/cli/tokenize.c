/* monotile tokenize: the tokens of a text. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: monotile tokenize MODEL -p TEXT [--special | --raw | --chat] [--json]\n\n"
    "Prints one line for each token of TEXT: its id and its piece of text. `-p -` reads the text from stdin.\n\n"
    "      --special  control tokens written out in the text, such as <|im_end|>, become those tokens\n"
    "      --raw      the tokens that `run --raw` feeds: --special, and what the model wants around a text\n"
    "      --chat     the tokens that `run` feeds: the model's chat template around the text\n"
    "      --json     one JSON object: ids, pieces\n";

static void print_piece(const char *bytes, size_t length) {
    putchar('"');
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c == '\t')
            fputs("\\t", stdout);
        else if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 32 || c > 126)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    puts("\"");
}

static int print(const mt_tokenizer *t, const mt_tokens *tokens, bool json) {
    json_t *ids = json ? json_array() : NULL, *pieces = json ? json_array() : NULL;
    for (size_t i = 0; i < tokens->count; i++) {
        size_t length = 0;
        const char *piece = mt_tokenizer_piece(t, tokens->ids[i], &length);
        if (json) {
            json_array_append_new(ids, json_integer(tokens->ids[i]));
            json_array_append_new(pieces, cli_json_text(piece, length));
        } else {
            printf("%d\t", (int)tokens->ids[i]);
            print_piece(piece, length);
        }
    }
    return json ? cli_print_json(json_pack("{s:o, s:o}", "ids", ids, "pieces", pieces)) : CLI_OK;
}

int cli_tokenize(int argc, char **argv) {
    enum { SYNTH = CLI_LONG, SPECIAL, RAW, CHAT, JSON };
    static const struct option options[] = {{"prompt", required_argument, NULL, 'p'},
                                            {"synth", required_argument, NULL, SYNTH},
                                            {"special", no_argument, NULL, SPECIAL},
                                            {"raw", no_argument, NULL, RAW},
                                            {"chat", no_argument, NULL, CHAT},
                                            {"json", no_argument, NULL, JSON},
                                            CLI_END_OPTIONS};
    const char *prompt = NULL, *synth = NULL;
    int how = 0, option;
    bool json = false;
    while ((option = cli_option(argc, argv, ":p:", options, help)) != -1) {
        switch (option) {
        case 'p':
            prompt = optarg;
            break;
        case SYNTH:
            synth = optarg;
            break;
        case JSON:
            json = true;
            break;
        case CLI_HELP:
            return CLI_OK;
        case '?':
            return CLI_BAD;
        default:
            if (how && how != option) return cli_usage(argv[0], "only one of --special, --raw and --chat");
            how = option;
        }
    }
    if (!prompt) return cli_usage(argv[0], "no text: give -p TEXT");

    mt_error error;
    mt_model *model = NULL;
    mt_tokenizer *tokenizer = NULL; /* the model's */
    mt_tokens tokens = {0};
    char *text = NULL, *chat = NULL;
    size_t length;
    const unsigned flags = how == RAW ? MT_ENCODE_ADD_SPECIAL | MT_ENCODE_PARSE_SPECIAL
                           : how      ? MT_ENCODE_PARSE_SPECIAL
                                      : 0;
    int code = cli_model(argc, argv, synth, &model);
    if (code != CLI_OK) return code;
    if (cli_text(prompt, &text, &length, &error) != MT_OK || mt_model_tokenizer(model, &tokenizer, &error) != MT_OK ||
        (how == CHAT && cli_chat(model, tokenizer, NULL, text, &chat, &length, &error) != MT_OK) ||
        mt_tokenizer_encode(tokenizer, chat ? chat : text, length, flags, &tokens, &error) != MT_OK)
        code = cli_fail_input(&error);
    else
        code = print(tokenizer, &tokens, json);
    free(text);
    free(chat);
    mt_tokens_free(&tokens);
    mt_model_close(model);
    return code;
}
