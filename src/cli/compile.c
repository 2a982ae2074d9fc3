/* monotile compile: a model's step as a .mono program. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: monotile compile MODEL|--synth NAME -o FILE.mono [OPTION...]\n\n"
    "Compiles the program of one step of a model.\n\n" CLI_SYNTH_HELP
    "  -o, --output FILE      where the program goes\n"
    "      --rows N           tokens of a prompt that a step takes at most (1: the step of generation)\n"
    "      --context N        positions of the key-value cache (what the model was trained for, at most 4096)\n"
    "      --cache TYPE       element type of the key-value cache: f32, f16, bf16, e4m3, e5m2 (f32)\n"
    "      --processors P     processors to lay the program out for (the CPUs of this process)\n"
    "      --placement KIND   static: decided now; queue: the next free processor takes the next instruction (static)\n"
    "      --no-fusion        keep the graph's nodes as they are\n"
    "      --dump PASS        print the graph behind a pass to stdout: before, fuse, choose, lower, or all\n";

/* What --dump asked for. */
typedef struct dump {
    const char *pass;
    bool found;
} dump;

static void print_graph(void *context, const char *pass, const char *graph) {
    dump *d = context;
    const bool all = !strcmp(d->pass, "all");
    if (!all && strcmp(d->pass, pass)) return;
    d->found = true;
    if (all) printf("==== %s\n", pass);
    fputs(graph, stdout);
}

int cli_compile(int argc, char **argv) {
    enum { SYNTH = CLI_LONG, ROWS, CONTEXT, CACHE, PROCESSORS, PLACEMENT, NO_FUSION, DUMP };
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},          {"synth", required_argument, NULL, SYNTH},
        {"rows", required_argument, NULL, ROWS},           {"context", required_argument, NULL, CONTEXT},
        {"cache", required_argument, NULL, CACHE},         {"processors", required_argument, NULL, PROCESSORS},
        {"placement", required_argument, NULL, PLACEMENT}, {"no-fusion", no_argument, NULL, NO_FUSION},
        {"dump", required_argument, NULL, DUMP},           CLI_END_OPTIONS};
    const char *output = NULL, *synth = NULL;
    mt_step step = {.rows = 1};
    mt_target target = {0};
    dump dumping = {0};
    int64_t number = 0;
    int option;
    while ((option = cli_option(argc, argv, ":o:", options, help)) != -1) {
        bool good = true;
        switch (option) {
        case 'o':
            output = optarg;
            break;
        case SYNTH:
            synth = optarg;
            break;
        case ROWS:
            good = cli_integer(argv[0], "--rows", optarg, 1, 1 << 20, &number);
            step.rows = (int32_t)number;
            break;
        case CONTEXT:
            good = cli_integer(argv[0], "--context", optarg, 1, INT32_MAX, &number);
            step.context = (int32_t)number;
            break;
        case CACHE:
            step.cache = optarg;
            break;
        case PROCESSORS:
            good = cli_integer(argv[0], "--processors", optarg, 1, 4096, &number);
            target.processors = (int)number;
            break;
        case PLACEMENT:
            good = !strcmp(optarg, "static") || !strcmp(optarg, "queue");
            if (!good) cli_usage(argv[0], "--placement takes static or queue, not '%s'", optarg);
            target.placement = strcmp(optarg, "queue") ? MT_PLACE_STATIC : MT_PLACE_QUEUE;
            break;
        case NO_FUSION:
            target.no_fusion = 1;
            break;
        case DUMP:
            dumping.pass = optarg;
            break;
        case CLI_HELP:
            return CLI_OK;
        default:
            good = false;
        }
        if (!good) return CLI_BAD;
    }
    if (!output && !dumping.pass) return cli_usage(argv[0], "no output: give -o FILE.mono");
    if (dumping.pass) {
        target.dump = print_graph;
        target.dump_context = &dumping;
    }

    mt_error error;
    mt_model *model = NULL;
    mt_graph *graph = NULL;
    mt_program *program = NULL;
    int code = cli_model(argc, argv, synth, &model);
    if (code != CLI_OK) goto cleanup;
    if (!step.context) {
        mt_model_info info;
        mt_model_get_info(model, &info);
        step.context = (int32_t)(info.context < 4096 ? info.context : 4096);
    }
    if (mt_model_graph(model, &step, &graph, &error) != MT_OK ||
        mt_compile(graph, &target, &program, &error) != MT_OK ||
        (output && mt_program_save(program, output, &error) != MT_OK))
        code = cli_fail(&error);
    else if (dumping.pass && !dumping.found)
        code = cli_usage(argv[0], "no pass '%s' ran", dumping.pass);
    else if (output)
        fprintf(stderr, "%s: %zu instructions\n", output, mt_program_instruction_count(program));
cleanup:
    mt_program_destroy(program);
    mt_graph_destroy(graph);
    mt_model_close(model);
    return code;
}
