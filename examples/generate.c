/* The smallest text generator: a model goes on with a text.
 *
 *     example_generate MODEL.gguf "Once upon a time" [COUNT] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monotile/monotile.h"

static int print(void *context, int32_t id, const char *text, size_t length) {
    (void)context, (void)id;
    fwrite(text, 1, length, stdout);
    fflush(stdout);
    return 0; /* go on */
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL.gguf PROMPT [COUNT]\n", argv[0]);
        return 2;
    }
    mt_error error;
    mt_model *model = NULL;
    mt_tokenizer *tokenizer = NULL; /* the model's */
    mt_machine *machine = NULL;
    mt_engine *engine = NULL;
    mt_tokens prompt = {0};
    mt_generate_options options = {.count = argc > 3 ? atoi(argv[3]) : 64};
    mt_sampler_options_default(&options.sampler);

    mt_status status = mt_model_open(&model, argv[1], &error);
    if (status == MT_OK) status = mt_model_tokenizer(model, &tokenizer, &error);
    if (status == MT_OK)
        status = mt_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), MT_ENCODE_ADD_SPECIAL, &prompt, &error);
    if (status == MT_OK) status = mt_machine_open(&machine, "auto", &error);
    if (status == MT_OK) status = mt_engine_create(&engine, model, machine, NULL, &error);
    if (status == MT_OK)
        status = mt_engine_generate(engine, tokenizer, prompt.ids, prompt.count, &options, print, NULL, NULL, &error);
    if (status == MT_OK)
        putchar('\n');
    else
        fprintf(stderr, "%s: %s\n", error.where, error.message);

    mt_engine_destroy(engine);
    mt_machine_close(machine);
    mt_tokens_free(&prompt);
    mt_model_close(model);
    return status == MT_OK ? 0 : 1;
}
