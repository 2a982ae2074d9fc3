/* monotile trace: where a step's time goes, as tables and as a file for a trace viewer. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: monotile trace MODEL|--synth NAME [OPTION...]\n\n"
    "Runs a model with time stamps at every instruction and prints where the time of a step went: node by node, equal\n"
    "layers taken together; for an average instruction; and along the critical path. MODEL is a GGUF "
    "file.\n\n" CLI_SYNTH_HELP "  -p, --prompt TEXT   what the steps follow; `-p -` reads it from stdin\n"
    "      --prompt-ids N  a prompt of N arbitrary tokens instead (16)\n"
    "  -n, --count N       steps to trace (8)\n"
    "      --loop          all steps in one call, as `monotile run` makes them; else one by one\n"
    "      --prompt-run    trace the prompt's last run instead of steps\n"
    "  -o FILE             write the last two runs as JSON for a trace viewer (ui.perfetto.dev, chrome://tracing)\n"
    "      --bandwidth G   GB/s of memory, to compare the weights with (4500 on a GPU; 0: do not)\n"
    "      --context N     positions (what the model was trained for, at most 4096)\n"
    "      --machine NAME  auto, cpu, cpu:N for N workers, cuda:N for a GPU, sim:N for N simulated SMs (auto)\n"
    "      --cache TYPE    element type of the key-value cache: f32, f16, bf16, e4m3, e5m2\n";

enum { WARM_STEPS = 2, MOST_STEPS = 4096, FILE_RUNS = 2 };

typedef struct trace_options {
    cli_subject subject;
    const char *file;
    int32_t steps;
    double bandwidth; /* GB/s; below 0: what fits the machine */
    bool loop, prompt_run;
} trace_options;

typedef struct records {
    mt_trace_record *data;
    size_t count;
} records;

static int parse(int argc, char **argv, trace_options *o) {
    enum { LOOP = CLI_LONG, PROMPT_RUN, BANDWIDTH };
    static const struct option options[] = {CLI_SUBJECT_OPTIONS,
                                            {"count", required_argument, NULL, 'n'},
                                            {"loop", no_argument, NULL, LOOP},
                                            {"prompt-run", no_argument, NULL, PROMPT_RUN},
                                            {"bandwidth", required_argument, NULL, BANDWIDTH},
                                            CLI_END_OPTIONS};
    int64_t integer = 0;
    int option;
    while ((option = cli_option(argc, argv, ":p:n:o:", options, help)) != -1) {
        bool good = true;
        switch (option) {
        case 'o':
            o->file = optarg;
            break;
        case LOOP:
            o->loop = true;
            break;
        case PROMPT_RUN:
            o->prompt_run = true;
            break;
        case BANDWIDTH:
            good = cli_number(argv[0], "--bandwidth", optarg, 0, 1e9, &o->bandwidth);
            break;
        case 'n':
            good = cli_integer(argv[0], "-n", optarg, 1, MOST_STEPS, &integer);
            o->steps = (int32_t)integer;
            break;
        case CLI_HELP:
            return CLI_HELP;
        default:
            good = cli_subject_option(argv[0], option, &o->subject);
        }
        if (!good) return CLI_BAD;
    }
    if (o->subject.prompt && o->subject.prompt_ids) return cli_usage(argv[0], "either -p or --prompt-ids");
    if (o->loop && o->prompt_run) return cli_usage(argv[0], "either --loop or --prompt-run");
    if (!o->subject.prompt && !o->subject.prompt_ids) o->subject.prompt_ids = 16;
    return CLI_OK;
}

/* The prompt's tokens. */
static mt_status encode(const trace_options *o, const mt_model *m, mt_tokens *out, mt_error *error) {
    char *text = NULL;
    size_t length = 0;
    mt_tokenizer *tokenizer = NULL;
    if (o->subject.prompt) {
        mt_status status = mt_model_tokenizer(m, &tokenizer, error);
        if (status == MT_OK) status = cli_text(o->subject.prompt, &text, &length, error);
        if (status == MT_OK) status = mt_tokenizer_encode(tokenizer, text, length, MT_ENCODE_ADD_SPECIAL, out, error);
        free(text);
        return status;
    }
    return cli_prompt_ids(m, o->subject.prompt_ids, out, error);
}

/* Appends what the session's last call left. */
static mt_status collect(mt_session *s, uint32_t launch, records *to, mt_error *error) {
    records now = {0};
    mt_status status = mt_session_trace_read(s, &now.data, &now.count, error);
    mt_trace_record *grown = NULL;
    if (status == MT_OK && now.count) {
        grown = realloc(to->data, (to->count + now.count) * sizeof *grown);
        if (!grown) status = cli_error(error, MT_E_MEMORY, NULL, "no memory for the trace");
    }
    if (grown) {
        to->data = grown;
        for (size_t i = 0; i < now.count; i++) {
            grown[to->count] = now.data[i];
            grown[to->count++].launch = launch;
        }
    }
    free(now.data);
    return status;
}

/* Steps one by one, each with the likeliest token; the first ones only warm up. */
static mt_status trace_steps(mt_engine *e, mt_session *s, int32_t steps, int64_t vocab, records *to, mt_error *error) {
    mt_sampler_options greedy;
    mt_sampler *sampler = NULL;
    mt_sampler_options_default(&greedy);
    mt_status status = mt_sampler_new(&sampler, &greedy, error);
    for (int32_t i = -WARM_STEPS; i < steps && status == MT_OK; i++) {
        int32_t id;
        status = mt_sampler_sample(sampler, mt_engine_logits(e), (size_t)vocab, &id, error);
        if (status == MT_OK) status = mt_engine_feed(e, &id, 1, NULL, error);
        if (status == MT_OK && i >= 0) status = collect(s, (uint32_t)i, to, error);
    }
    mt_sampler_free(sampler);
    return status;
}

/* The engine's own way of making many tokens. */
static mt_status trace_loop(mt_engine *e, mt_session *s, int32_t steps, records *to, mt_error *error) {
    mt_generate_options generate = {.count = steps + WARM_STEPS, .ignore_end = true};
    mt_sampler_options_default(&generate.sampler);
    mt_status status = mt_engine_generate(e, NULL, NULL, 0, &generate, NULL, NULL, NULL, error);
    return status == MT_OK ? collect(s, 0, to, error) : status;
}

static mt_status run(const trace_options *o, mt_engine *e, const mt_tokens *prompt, int64_t vocab, records *to,
                     mt_error *error) {
    mt_session *s = mt_engine_session(e, o->prompt_run);
    mt_status status = s ? MT_OK : cli_error(error, MT_E_ARGUMENT, NULL, "this context has no program for prompts");
    if (status == MT_OK && o->prompt_run) status = mt_session_trace(s, 1, error);
    if (status == MT_OK) status = mt_engine_feed(e, prompt->ids, prompt->count, NULL, error);
    if (status != MT_OK) return status;
    if (o->prompt_run) return collect(s, 0, to, error);
    status = mt_session_trace(s, 1, error);
    if (status != MT_OK) return status;
    return o->loop ? trace_loop(e, s, o->steps, to, error) : trace_steps(e, s, o->steps, vocab, to, error);
}

/* The last runs as JSON. */
static int write_file(const char *path, const mt_program *p, const records *all, mt_error *error) {
    char *json = NULL;
    size_t first = all->count, runs = 0;
    for (; first; first--) {
        const mt_trace_record *r = &all->data[first - 1];
        if (first < all->count && r->launch == r[1].launch && r->run == r[1].run) continue;
        if (++runs > FILE_RUNS) break;
    }
    if (mt_trace_json(p, all->data + first, all->count - first, &json, error) != MT_OK) return cli_fail(error);
    FILE *f = fopen(path, "we");
    const bool good = f && fputs(json, f) >= 0;
    free(json);
    if (f && !fclose(f) && good) return CLI_OK;
    cli_error(error, MT_E_IO, path, "cannot write: %s", strerror(errno));
    return cli_fail_input(error);
}

int cli_trace(int argc, char **argv) {
    trace_options o = {.subject.machine = "auto", .steps = 8, .bandwidth = -1};
    int code = parse(argc, argv, &o);
    if (code != CLI_OK) return code == CLI_HELP ? CLI_OK : code;

    mt_error error;
    mt_model *model = NULL;
    mt_machine *machine = NULL;
    mt_engine *engine = NULL;
    mt_tokens prompt = {0};
    mt_model_info info;
    records trace = {0};
    char *text = NULL;
    code = cli_model(argc, argv, o.subject.synth, &model);
    if (code != CLI_OK) return code;
    code = CLI_FAILED;
    if (encode(&o, model, &prompt, &error) != MT_OK || mt_machine_open(&machine, o.subject.machine, &error) != MT_OK) {
        code = cli_fail_input(&error);
        goto cleanup;
    }
    mt_model_get_info(model, &info);
    if (o.bandwidth < 0) o.bandwidth = strncmp(mt_machine_name(machine), "cuda", 4) ? 0 : 4500;
    if (mt_engine_create(&engine, model, machine, &o.subject.engine, &error) != MT_OK ||
        run(&o, engine, &prompt, info.vocab, &trace, &error) != MT_OK)
        goto failed;
    const mt_program *program = mt_engine_program(engine, o.prompt_run);
    if (mt_trace_text(program, trace.data, trace.count, o.bandwidth * 1e9, &text, &error) != MT_OK) goto failed;
    fputs(text, stdout);
    code = CLI_OK;
    if (o.file) code = write_file(o.file, program, &trace, &error);
    goto cleanup;
failed:
    code = cli_fail(&error);
cleanup:
    free(text);
    free(trace.data);
    mt_engine_destroy(engine);
    mt_machine_close(machine);
    mt_tokens_free(&prompt);
    mt_model_close(model);
    return code;
}
