/* monotile run: a model's answer to a prompt, as it comes. */
#include "cli.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: monotile run MODEL -p TEXT [OPTION...]\n"
    "       monotile run MODEL|--synth NAME --prompt-ids N [OPTION...]\n\n"
    "Streams the model's answer to stdout, then one line of figures to stderr. MODEL is a GGUF file, of a split model "
    "the\n"
    "first part. `-p -` reads the prompt from stdin. Ctrl-C stops the answer.\n\n"
    "  -p, --prompt TEXT   the prompt\n"
    "      --prompt-ids N  a prompt of N random tokens instead (16 with --synth); the answer is printed as "
    "ids\n" CLI_SYNTH_HELP "      --system TEXT   a system message before it\n"
    "      --raw           no chat template: the model goes on with the text\n"
    "  -n, --count N       at most N tokens (512); 0: as many as the context has room for\n"
    "      --context N     positions (what the model was trained for, at most 4096)\n"
    "      --temp T        temperature; 0, the default, takes the likeliest token every time\n"
    "      --top-k K, --top-p P, --min-p P   choose among the likeliest tokens only (0: all, 1: all, 0: all)\n"
    "      --seed S        the same seed gives the same answer (0)\n"
    "      --print-ids     print the tokens' ids instead of their text\n"
    "      --json          print one JSON object at the end: text, ids, prompt_ids, ended_by, figures\n"
    "      --machine NAME  auto, cpu, cpu:N for N workers, cuda:N for a GPU, sim:N for N simulated SMs (auto)\n"
    "      --cache TYPE    element type of the key-value cache: f32, f16, bf16, e4m3, e5m2 (f32; on a GPU f16)\n"
    "      --profile       where the time of the last prompt run and of the last step went, to stderr\n";

typedef struct run_options {
    cli_subject subject;
    const char *system;
    mt_generate_options generate;
    bool raw, print_ids, json, profile;
} run_options;

/* What the answer so far is collected in. */
typedef struct answer {
    bool print_text, print_ids, collect;
    json_t *ids; /* collect */
    FILE *text;  /* collect */
    size_t count;
} answer;

static volatile sig_atomic_t interrupted;
static void interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static int parse(int argc, char **argv, run_options *o) {
    enum { SYSTEM = CLI_LONG, RAW, TEMPERATURE, TOP_K, TOP_P, MIN_P, SEED, PRINT_IDS, JSON, PROFILE };
    static const struct option options[] = {CLI_SUBJECT_OPTIONS,
                                            {"count", required_argument, NULL, 'n'},
                                            {"system", required_argument, NULL, SYSTEM},
                                            {"raw", no_argument, NULL, RAW},
                                            {"temp", required_argument, NULL, TEMPERATURE},
                                            {"top-k", required_argument, NULL, TOP_K},
                                            {"top-p", required_argument, NULL, TOP_P},
                                            {"min-p", required_argument, NULL, MIN_P},
                                            {"seed", required_argument, NULL, SEED},
                                            {"print-ids", no_argument, NULL, PRINT_IDS},
                                            {"json", no_argument, NULL, JSON},
                                            {"profile", no_argument, NULL, PROFILE},
                                            CLI_END_OPTIONS};
    mt_sampler_options *s = &o->generate.sampler;
    int64_t integer = 0;
    double number = 0;
    int option;
    while ((option = cli_option(argc, argv, ":p:n:", options, help)) != -1) {
        bool good = true;
        switch (option) {
        case SYSTEM:
            o->system = optarg;
            break;
        case RAW:
            o->raw = true;
            break;
        case PRINT_IDS:
            o->print_ids = true;
            break;
        case JSON:
            o->json = true;
            break;
        case PROFILE:
            o->profile = true;
            break;
        case 'n':
            good = cli_integer(argv[0], "-n", optarg, 0, INT32_MAX, &integer);
            o->generate.count = (int32_t)integer;
            break;
        case TOP_K:
            good = cli_integer(argv[0], "--top-k", optarg, 0, INT32_MAX, &integer);
            s->top_k = (int32_t)integer;
            break;
        case SEED:
            good = cli_integer(argv[0], "--seed", optarg, 0, INT64_MAX, &integer);
            s->seed = (uint64_t)integer;
            break;
        case TEMPERATURE:
            good = cli_number(argv[0], "--temp", optarg, 0, 1e6, &number);
            s->temperature = (float)number;
            break;
        case TOP_P:
            good = cli_number(argv[0], "--top-p", optarg, 1e-9, 1, &number);
            s->top_p = (float)number;
            break;
        case MIN_P:
            good = cli_number(argv[0], "--min-p", optarg, 0, 1, &number);
            s->min_p = (float)number;
            break;
        case CLI_HELP:
            return CLI_HELP;
        default:
            good = cli_subject_option(argv[0], option, &o->subject);
        }
        if (!good) return CLI_BAD;
    }
    if (o->subject.synth && !o->subject.prompt && !o->subject.prompt_ids) o->subject.prompt_ids = 16;
    if (!o->subject.prompt && !o->subject.prompt_ids) return cli_usage(argv[0], "no prompt: give -p TEXT");
    if (o->subject.prompt && o->subject.prompt_ids) return cli_usage(argv[0], "either -p or --prompt-ids");
    if (o->subject.prompt_ids && (o->raw || o->system))
        return cli_usage(argv[0], "--prompt-ids has no text for --raw or --system");
    if (o->raw && o->system) return cli_usage(argv[0], "--raw has no system message");
    o->print_ids |= o->subject.prompt_ids > 0;
    return CLI_OK;
}

static int take_token(void *context, int32_t id, const char *text, size_t length) {
    answer *a = context;
    if (a->collect) fwrite(text, 1, length, a->text);
    if (a->print_text && length) fwrite(text, 1, length, stdout);
    if (id >= 0) { /* otherwise it is the rest of the text */
        if (a->collect) json_array_append_new(a->ids, json_integer(id));
        if (a->print_ids) printf("%s%d", a->count ? " " : "", (int)id);
        a->count++;
    }
    if (a->print_text || a->print_ids) fflush(stdout);
    return interrupted || ferror(stdout);
}

/* ---- figures ---------------------------------------------------------------------------------------------------- */

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

/* The first token comes with the prompt; each step after it gives one more. */
static double step_rate(const mt_generate_stats *s) {
    return s->tokens > 1 ? rate((double)s->tokens - 1, s->seconds) : 0;
}

static void print_figures(const mt_generate_stats *s, const mt_model_info *info) {
    fprintf(stderr,
            "prompt: %zu tokens, %.1f tokens/s; answer: %zu tokens, %.1f tokens/s; first token after %.3f s; %.1f MB "
            "of weights read per token\n",
            s->prompt_tokens, rate((double)s->prompt_tokens, s->prompt_seconds), s->tokens, step_rate(s),
            s->first_token_seconds, (double)info->step_bytes / 1e6);
}

static json_t *figures(const mt_generate_stats *s, const mt_model_info *info) {
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I}", "prompt_tokens", (json_int_t)s->prompt_tokens, "tokens",
                     (json_int_t)s->tokens, "prompt_tokens_per_second",
                     rate((double)s->prompt_tokens, s->prompt_seconds), "tokens_per_second", step_rate(s),
                     "first_token_seconds", s->first_token_seconds, "weight_bytes_per_token",
                     (json_int_t)info->step_bytes);
}

static int by_op(const void *a, const void *b) {
    return strcmp(((const mt_node_time *)a)->op, ((const mt_node_time *)b)->op);
}
static int by_time(const void *a, const void *b) {
    const double x = ((const mt_node_time *)a)->seconds, y = ((const mt_node_time *)b)->seconds;
    return (x < y) - (x > y);
}

/* The last run of a session, its nodes summed up by op. */
static void print_profile(const char *title, mt_session *s) {
    if (!s) return;
    size_t count = mt_session_node_times(s, NULL, 0), ops = 0;
    mt_node_time *times = calloc(count + 1, sizeof *times);
    if (!times) return;
    count = mt_session_node_times(s, times, count);
    qsort(times, count, sizeof *times, by_op);
    double total = 0;
    for (size_t i = 0; i < count; i++) {
        total += times[i].seconds;
        if (ops && !strcmp(times[ops - 1].op, times[i].op)) {
            times[ops - 1].seconds += times[i].seconds;
            times[ops - 1].instructions += times[i].instructions;
        } else {
            times[ops++] = times[i];
        }
    }
    qsort(times, ops, sizeof *times, by_time);
    fprintf(stderr, "%s: %.3f ms of work\n", title, total * 1e3);
    for (size_t i = 0; i < ops; i++)
        fprintf(stderr, "  %5.1f %%  %9.3f ms  %6u instructions  %s\n", 100 * rate(times[i].seconds, total),
                times[i].seconds * 1e3, times[i].instructions, times[i].op);
    free(times);
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

/* The prompt's tokens. */
static mt_status encode(const run_options *o, const mt_model *m, const mt_tokenizer *t, mt_tokens *out,
                        mt_error *error) {
    char *text = NULL, *chat = NULL;
    size_t length = 0;
    unsigned flags = MT_ENCODE_PARSE_SPECIAL;
    if (o->subject.prompt_ids) return cli_prompt_ids(m, o->subject.prompt_ids, out, error);
    mt_status status = cli_text(o->subject.prompt, &text, &length, error);
    if (o->raw)
        flags |= MT_ENCODE_ADD_SPECIAL;
    else if (status == MT_OK)
        status = cli_chat(m, t, o->system, text, &chat, &length, error);
    if (status == MT_OK) status = mt_tokenizer_encode(t, chat ? chat : text, length, flags, out, error);
    free(text);
    free(chat);
    return status;
}

static json_t *id_array(const mt_tokens *tokens) {
    json_t *ids = json_array();
    for (size_t i = 0; i < tokens->count; i++) json_array_append_new(ids, json_integer(tokens->ids[i]));
    return ids;
}

int cli_run(int argc, char **argv) {
    run_options o = {.subject.machine = "auto", .generate.count = 512};
    mt_sampler_options_default(&o.generate.sampler);
    int code = parse(argc, argv, &o);
    if (code != CLI_OK) return code == CLI_HELP ? CLI_OK : code;

    mt_error error;
    mt_model *model = NULL;
    mt_tokenizer *tokenizer = NULL; /* the model's; none for a prompt of ids */
    mt_machine *machine = NULL;
    mt_engine *engine = NULL;
    mt_tokens prompt = {0};
    mt_generate_stats stats = {0};
    mt_model_info info;
    char *collected = NULL;
    size_t collected_length = 0;
    answer a = {.print_text = !o.json && !o.print_ids, .print_ids = o.print_ids && !o.json, .collect = o.json};
    code = cli_model(argc, argv, o.subject.synth, &model);
    if (code != CLI_OK) return code;
    code = CLI_FAILED;
    if ((!o.subject.prompt_ids && mt_model_tokenizer(model, &tokenizer, &error) != MT_OK) ||
        encode(&o, model, tokenizer, &prompt, &error) != MT_OK ||
        mt_machine_open(&machine, o.subject.machine, &error) != MT_OK) {
        code = cli_fail_input(&error);
        goto cleanup;
    }
    if (o.json && (!(a.ids = json_array()) || !(a.text = open_memstream(&collected, &collected_length)))) {
        fputs("monotile: no memory for the answer\n", stderr);
        goto cleanup;
    }
    if (mt_engine_create(&engine, model, machine, &o.subject.engine, &error) != MT_OK ||
        mt_engine_prepare(engine, &o.generate.sampler, &error) != MT_OK)
        goto failed;
    for (int i = 0; o.profile && i < 2; i++)
        if (mt_engine_session(engine, i) && mt_session_profile(mt_engine_session(engine, i), 1, &error) != MT_OK)
            goto failed;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND},
              NULL); /* a second one kills */
    if (mt_engine_generate(engine, tokenizer, prompt.ids, prompt.count, &o.generate, take_token, &a, &stats, &error) !=
        MT_OK) {
        if (a.count && !o.json) putchar('\n');
        fflush(stdout);
        goto failed;
    }
    mt_model_get_info(model, &info);
    code = CLI_OK;
    if (o.json) {
        fflush(a.text);
        code = cli_print_json(json_pack("{s:o, s:O, s:o, s:o, s:o}", "text", cli_json_text(collected, collected_length),
                                        "ids", a.ids, "prompt_ids", id_array(&prompt), "ended_by",
                                        stats.ended_by < 0 ? json_null() : json_integer(stats.ended_by), "figures",
                                        figures(&stats, &info)));
    } else {
        putchar('\n');
        fflush(stdout);
        print_figures(&stats, &info);
    }
    if (o.profile) {
        print_profile("last run of the prompt", mt_engine_session(engine, 1));
        print_profile("last step", mt_engine_session(engine, 0));
    }
    if (interrupted) code = CLI_INTERRUPTED;
    goto cleanup;
failed:
    code = cli_fail(&error);
cleanup:
    if (a.text) fclose(a.text);
    free(collected);
    json_decref(a.ids);
    mt_engine_destroy(engine);
    mt_machine_close(machine);
    mt_tokens_free(&prompt);
    mt_model_close(model);
    return code;
}
