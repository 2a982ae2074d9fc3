/* The CUDA machine on a GPU, through the interface that everyone uses; without a GPU all of it is skipped.
 *
 * Ops: every op of the library, for every storage format, at the sizes around its tiles, against tile_interpreter.h in
 * float64; outputs begin as NaN; CUDA_REPEATS (100) runs give the same bits. Each op's error is printed: the largest
 * relative l2 distance of an output. The watchdog: damaged programs, forced past the checks, end with a message that
 * says where; the next program runs.
 *
 * CUDA_SMALL: few small cases, for compute-sanitizer. CUDA_ONLY: ops that begin so. CUDA_TEST: tests of that name ("*"
 * stands for anything). CUDA_MACHINE: "cuda:0", or "sim:2", "cpu:2" to try the test itself. CUDA_TIMEOUT: seconds,
 * where all is slow. CUDA_CODE=I/N: only compiles the I-th part of N into the cache, for sm_90a; that needs NVRTC and
 * no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda_unit.h"
#include "program_interpreter.h"

#include "device_ops.h"

static mt_machine *machine;
static const char *machine_name;
static mt_error no_machine;
static bool small, code_only;
static int repeats = 100, part, parts = 1, unit_number;
static double patience; /* seconds of the watchdog for good programs; 0: as the machine has it */

static int set_up(void **state) {
    (void)state;
    machine_name = getenv("CUDA_MACHINE") ? getenv("CUDA_MACHINE") : "cuda:0";
    small = getenv("CUDA_SMALL");
    if (small) repeats = 2;
    if (getenv("CUDA_REPEATS")) repeats = atoi(getenv("CUDA_REPEATS"));
    if (getenv("CUDA_TIMEOUT")) patience = atof(getenv("CUDA_TIMEOUT"));
    code_only = getenv("CUDA_CODE") && sscanf(getenv("CUDA_CODE"), "%d/%d", &part, &parts) == 2;
    if (!code_only && mt_machine_open(&machine, machine_name, &no_machine) != MT_OK) machine = NULL;
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    mt_machine_close(machine);
    return 0;
}

static bool on_cuda(void) { return !strncmp(machine_name, "cuda", 4); }

static void need_machine(void) {
    if (machine || code_only) return;
    print_message("skipped: no GPU: %s\n", no_machine.message);
    skip();
}

/* ---- ops ---- */

enum { NAMES = 64 };
typedef struct op_error {
    char name[48];
    double worst;
    int outputs;
} op_error;
static op_error op_errors[NAMES];
static op_error worst_error;        /* since the last line about it */
static char tensor_op[TENSORS][48]; /* by tensor: the op that writes it */

static void note_error(const char *name, double apart) {
    op_error *e = op_errors;
    while (*e->name && strcmp(e->name, name) && e < op_errors + NAMES - 1) e++;
    snprintf(e->name, sizeof e->name, "%.47s", name);
    e->worst = fmax(e->worst, apart);
    e->outputs++;
    if (!worst_error.outputs++ || apart > worst_error.worst) {
        worst_error.worst = apart;
        memcpy(worst_error.name, e->name, sizeof e->name);
    }
}

/* How much the reference's weights are rounded, where the machine multiplies codes and rounds none (cuda_dot.h: f16, at
 * most 4 rows): half a bit of f16. test_cuda_format has the bounds of that against sums of the weights as they are
 * declared. */
static double weight_rounding;
static double rounding_of(const variant *v) {
    const bool blocks = tile_format_is_block(tile_format_find(v->weight));
    return blocks && v->product && !strcmp(v->product, "f16") && v->bm > 0 && v->bm <= 4 ? 0x1p-11 : 0;
}

/* What an output may be away. Sums in another order and the chip's functions are some 1e-7 apart; and where that turns
 * the rounding of an operand (a normalised one: the others' are given) or of a result to 16 bits, a bit of those. */
static double tolerance_of(const char *op, const char *type) {
    if (!strcmp(type, "i32")) return 0;
    if (strncmp(op, "norm_", 5) && !strcmp(type, "f32") && weight_rounding > 0) return weight_rounding;
    return !strncmp(op, "norm_", 5) ? 4e-3 : strcmp(type, "f32") ? 2e-3 : !strncmp(op, "attention", 9) ? 1e-3 : 1e-4;
}

/* Interprets the program on the same data; results become those that others are compared with. */
static void interpret(const mt_program *p) {
    void **memory = calloc(p->tensors_count + 1, sizeof *memory);
    int32_t lives[16] = {0};
    assert_non_null(memory);
    assert_true(p->lives_count <= COUNT_OF(lives));
    for (size_t l = 0; l < p->lives_count; l++) {
        lives[l] = p->lives[l].least;
        if (!strcmp(program_string(p, p->lives[l].name), "pos")) lives[l] = POSITION;
    }
    for (size_t t = 0; t < p->tensors_count; t++)
        for (int i = 0; i < tensor_count; i++)
            if (!strcmp(program_string(p, p->tensors[t].name), tensors[i].name)) {
                if (tensors[i].role == MT_OUTPUT) {
                    tensors[i].result = malloc(tensors[i].bytes);
                    assert_non_null(tensors[i].result);
                    memset(tensors[i].result, 0xff, tensors[i].bytes);
                }
                memory[t] = tensors[i].role == MT_OUTPUT ? tensors[i].result : tensors[i].data;
            }
    OK(program_interpret(p, memory, lives, &error));
    free(memory);
}

/* Compares the session's outputs with the reference. Returns how many are wrong. */
static int compare_outputs(mt_session *s, const char *what) {
    int wrong = 0;
    for (int i = 0; i < tensor_count; i++) {
        const bound *b = &tensors[i];
        void *memory;
        if (b->role != MT_OUTPUT) continue;
        OK(mt_session_memory(s, b->name, &memory, NULL, &error));
        double apart = 0, size = 1e-30;
        size_t nans = 0, first = 0;
        for (size_t e = 0; e < b->count; e++) {
            const double expected = value_of(b, b->result, e), got = value_of(b, memory, e);
            if (isnan(expected) && isnan(got)) continue; /* nobody's element: as it was */
            if (isnan(got) != isnan(expected) && !nans++) first = e;
            if (isnan(got) || isnan(expected)) continue;
            apart += (got - expected) * (got - expected);
            size += expected * expected;
        }
        const double distance = nans ? (double)INFINITY : sqrt(apart / size);
        note_error(tensor_op[i], distance);
        if (distance <= tolerance_of(tensor_op[i], b->type)) continue;
        wrong++;
        if (nans)
            print_message("%s: %s, %s: %zu elements are NaN that should not be, or the other way; the first is %zu\n",
                          what, tensor_op[i], b->name, nans, first);
        else
            print_message("%s: %s, %s: %g away from the reference\n", what, tensor_op[i], b->name, distance);
    }
    return wrong;
}

/* Keeps the session's outputs, or compares with those that were kept. */
static int same_bits(mt_session *s, void **kept, const char *what) {
    for (int i = 0; i < tensor_count; i++) {
        const bound *b = &tensors[i];
        void *memory;
        if (b->role != MT_OUTPUT) continue;
        OK(mt_session_memory(s, b->name, &memory, NULL, &error));
        if (!kept[i]) {
            kept[i] = malloc(b->bytes);
            assert_non_null(kept[i]);
            memcpy(kept[i], memory, b->bytes);
        } else if (memcmp(kept[i], memory, b->bytes)) {
            print_message("%s: %s, %s: other bits in another run\n", what, tensor_op[i], b->name);
            return 1;
        }
    }
    return 0;
}

static bool has_weight(const char *spec) { return strstr(spec, " W "); }

/* Of the ops: with weights alone; instead of them those of many rows; all, with activations that are stamped data. */
enum { ALL, WEIGHTS, WIDE, FED };

/* These ops at the sizes of a variant, in one program. Returns how many outputs were wrong. */
static int check_variant(const variant *v, int which, mt_placement placement) {
    char what[160];
    mt_graph *g;
    mt_program *p;
    mt_session *s;
    mt_live pos;
    int wrong = 0, nodes = 0;
    if (code_only && unit_number++ % parts != part) return 0;
    weight_rounding = rounding_of(v);
    snprintf(what, sizeof what, "%s, products %s, %lld rows by %d, N %lld by %d, K %lld, %lld heads of %lld", v->weight,
             v->product ? v->product : "bf16", (long long)v->m, v->bm, (long long)v->n, v->bn, (long long)v->k,
             (long long)v->h, (long long)v->d);
    OK(mt_graph_create(&g, &error));
    OK(mt_graph_live(g, "pos", 0, POSITION, &pos, &error));
    for (size_t i = 0; i < (which == WIDE ? COUNT_OF(wide_ops) : COUNT_OF(ops)); i++) {
        const int before = tensor_count;
        const char *op = which == WIDE ? wide_ops[i] : ops[i];
        if (getenv("CUDA_ONLY") && strncmp(op, getenv("CUDA_ONLY"), strlen(getenv("CUDA_ONLY")))) continue;
        if ((which == WEIGHTS && !has_weight(op)) || (which == WIDE && !strncmp(op, "swiglu", 6) &&
                                                      v->bn > (tile_format_find(v->weight)->block > 128 ? 64 : 128)))
            continue;
        add_node(g, op, v, pos, which == FED);
        for (int t = before; t < tensor_count; t++)
            snprintf(tensor_op[t], sizeof tensor_op[t], "%.*s", (int)strcspn(op, ";"), op);
        nodes++;
    }
    const int processors = machine && on_cuda() ? mt_machine_processors(machine) : on_cuda() ? 132 : 2;
    const mt_target target = {.machine = "cuda", .processors = processors, .placement = placement, .no_fusion = 1};
    if (nodes) OK(mt_compile(g, &target, &p, &error));
    if (nodes && code_only)
        OK(cuda_unit_compile(p, "sm_90a", false, NULL, &error));
    else if (nodes) {
        void **kept = calloc(TENSORS, sizeof *kept);
        assert_non_null(kept);
        OK(mt_session_create(&s, machine, p, &error));
        if (patience > 0) mt_session_timeout(s, patience);
        bind_all(s);
        interpret(p);
        for (int r = 0; r < repeats && !wrong; r++) {
            poison(s);
            mt_error error = {0};
            if (mt_session_run(s, &error) != MT_OK) {
                print_message("%s: %s: %s\n", what, error.where, error.message);
                wrong++;
            } else {
                if (r == 0) wrong += compare_outputs(s, what);
                wrong += same_bits(s, kept, what);
            }
        }
        mt_session_destroy(s);
        for (int i = 0; i < TENSORS; i++) free(kept[i]);
        free(kept);
    }
    if (nodes) mt_program_destroy(p);
    mt_graph_destroy(g);
    forget_tensors();
    return wrong;
}

static void print_errors(const char *title) {
    print_message("%s: largest relative l2 error of an output, by op (%d runs each)\n", title, repeats);
    for (const op_error *e = op_errors; e < op_errors + NAMES && *e->name; e++)
        print_message("    %-32s %.1e   %d outputs\n", e->name, e->worst, e->outputs);
    memset(op_errors, 0, sizeof op_errors);
    worst_error = (op_error){.outputs = 0};
}

/* Dense weights: the sizes around tiles of 1, 4 and 16 rows, of 16 and 64 columns, of 64 along K. */
static void test_dense(void **state) {
    (void)state;
    static const variant all[] = {
        {"bf16", 1, 1, 1, 1, 2, 1, 16, NULL},        {"bf16", 1, 63, 576, 2, 64, 1, 64, NULL},
        {"f16", 3, 15, 63, 1, 24, 4, 16, NULL},      {"bf16", 4, 16, 64, 2, 32, 4, 16, NULL},
        {"f16", 5, 17, 65, 2, 18, 4, 16, "f16"},     {"bf16", 15, 65, 128, 2, 64, 16, 64, NULL},
        {"f16", 16, 64, 1024, 1, 128, 16, 64, NULL}, {"bf16", 17, 33, 1025, 2, 16, 16, 32, NULL},
        {"f32", 3, 9, 33, 1, 6, 4, 8, NULL},         {"f32", 1, 40, 100, 2, 64, 1, 16, "f32"},
        {"bf16", 1, 260, 2112, 3, 128, 1, 128, NULL}};
    int wrong = 0;
    need_machine();
    for (size_t i = 0; i < (small ? 4 : COUNT_OF(all)); i++)
        wrong += check_variant(&all[i], ALL, i % 4 == 3 ? MT_PLACE_QUEUE : MT_PLACE_STATIC);
    print_errors("dense weights");
    assert_int_equal(wrong, 0);
}

/* Activations as another node leaves them: stamped data, where they can be; what is in front of a loop, and kept. */
static void test_fed(void **state) {
    (void)state;
    static const variant all[] = {{"bf16", 1, 33, 2048, 2, 64, 1, 16, NULL}, {"q4_1", 1, 64, 8192, 1, 128, 1, 16, NULL},
                                  {"f16", 5, 17, 65, 2, 18, 4, 16, "f16"},   {"bf16", 1, 48, 4096, 1, 96, 1, 16, NULL},
                                  {"q8_0", 3, 40, 1088, 2, 32, 4, 8, NULL},  {"bf16", 1, 40, 14336, 2, 64, 1, 8, NULL}};
    int wrong = 0;
    need_machine();
    for (size_t i = 0; i < (small ? 3 : COUNT_OF(all)); i++)
        wrong += check_variant(&all[i], FED, i % 4 == 3 ? MT_PLACE_QUEUE : MT_PLACE_STATIC);
    print_errors("stamped activations");
    assert_int_equal(wrong, 0);
}

/* A prompt's rows, with the tiles that the compiler chooses, as models have them. */
static void test_chosen(void **state) {
    (void)state;
    static const variant all[] = {{"bf16", 1, 1000, 576, 3, 64, -1, -1, NULL},
                                  {"bf16", 63, 130, 512, 2, 64, -1, -1, NULL},
                                  {"f16", 64, 128, 576, 1, 64, -1, -1, "f16"},
                                  {"bf16", 65, 200, 1024, 2, 128, -1, -1, NULL},
                                  {"bf16", 130, 256, 320, 1, 64, -1, -1, NULL}};
    int wrong = 0;
    need_machine();
    if (small) skip();
    for (size_t i = 0; i < COUNT_OF(all); i++) wrong += check_variant(&all[i], ALL, MT_PLACE_STATIC);
    print_errors("tiles as chosen");
    assert_int_equal(wrong, 0);
}

static const char *const formats[] = {"q4_0",       "q4_1",       "q5_0",        "q5_1",         "q8_0",
                                      "q2_k",       "q3_k",       "q4_k",        "q5_k",         "q6_k",
                                      "mxfp4",      "nvfp4",      "i4_group32",  "i4_group64",   "i4_group128",
                                      "u4_group32", "u4_group64", "u4_group128", "e4m3_block128"};

/* Every format that packs numbers: decoding and a few rows, a block and more along K. */
static void test_formats(void **state) {
    (void)state;
    int wrong = 0;
    need_machine();
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        const int block = tile_format_find(formats[f])->block;
        const variant one = {formats[f], 1, 17, block * 3, 1, block, 1, 16, NULL};
        const variant some = {formats[f], 5, 37, block > 200 ? 2304 : 1152, 1, block, 4, 16, f % 2 ? "f16" : NULL};
        if (small && f != 1 && f != 4 && f != 9) continue;
        wrong += check_variant(&one, WEIGHTS, MT_PLACE_STATIC);
        if (!small) wrong += check_variant(&some, WEIGHTS, MT_PLACE_STATIC);
        print_message("weights in %-14s %.1e, of %d outputs the worst (%s)\n", formats[f], worst_error.worst,
                      worst_error.outputs, worst_error.name);
        worst_error = (op_error){.outputs = 0};
    }
    print_errors("packed weights");
    assert_int_equal(wrong, 0);
}

/* The same, and dense weights, with many rows: tiles of 64 and 128 rows, of 64 to 256 columns, none of them whole at
 * the end, and a band and more along K. CUDA_FORMAT: that one alone. */
static void test_wide(void **state) {
    (void)state;
    static const struct {
        int m, n, bm, bn;
    } tiles[] = {{66, 70, 64, 64}, {130, 135, 128, 128}, {65, 130, 64, 128}, {129, 260, 128, 256}};
    int wrong = 0;
    need_machine();
    for (size_t f = 0; f < COUNT_OF(formats) + 2; f++) {
        const char *format = f < COUNT_OF(formats) ? formats[f] : f == COUNT_OF(formats) ? "f16" : "bf16";
        const int64_t block = tile_format_find(format)->block;
        if (small && f != 1 && f != 4 && f != 9) continue;
        if (getenv("CUDA_FORMAT") && strcmp(format, getenv("CUDA_FORMAT"))) continue;
        for (size_t t = f % 2; t < COUNT_OF(tiles); t += 2) {
            const variant v = {format,
                               tiles[t].m,
                               tiles[t].n,
                               t < 2 ? 2048 + 4 * max_i64(block, 8) : 3 * max_i64(block, 32),
                               1,
                               32,
                               tiles[t].bm,
                               block > 128 ? (int)min_i64(tiles[t].bn, 128) : tiles[t].bn,
                               strcmp(format, "bf16") ? "f16" : "bf16"};
            if (small && t > 1) continue;
            wrong += check_variant(&v, WIDE, MT_PLACE_STATIC);
        }
        print_message("many rows, weights in %-14s %.1e, of %d outputs the worst (%s)\n", format, worst_error.worst,
                      worst_error.outputs, worst_error.name);
        worst_error = (op_error){.outputs = 0};
    }
    print_errors("many rows");
    assert_int_equal(wrong, 0);
}

/* ---- the watchdog ---- */

static mt_program *compile_two_layers(mt_placement placement) {
    mt_program *p;
    mt_graph *g = two_layers(true);
    for (int i = 0; i < tensor_count; i++) snprintf(tensor_op[i], sizeof tensor_op[i], "two layers");
    OK(mt_compile(g, &(mt_target){.machine = "cuda", .processors = 2, .placement = placement}, &p, &error));
    mt_graph_destroy(g);
    return p;
}

/* Runs a good program on the machine, and its bits are those of the reference. */
static void run_good(const char *after) {
    forget_tensors();
    mt_program *p = compile_two_layers(MT_PLACE_STATIC);
    mt_session *s;
    OK(mt_session_create(&s, machine, p, &error));
    if (patience > 0) mt_session_timeout(s, patience);
    bind_all(s);
    interpret(p);
    for (int r = 0; r < 3; r++) {
        mt_error error = {0};
        poison(s);
        if (mt_session_run(s, &error) != MT_OK) fail_msg("after %s: %s: %s", after, error.where, error.message);
        assert_int_equal(compare_outputs(s, after), 0);
    }
    mt_session_destroy(s);
    mt_program_destroy(p);
    forget_tensors();
}

/* The processor whose part of the order has instruction i. */
static int processor_of(const mt_program *p, uint32_t i) {
    for (size_t q = 0; q < p->processors_count; q++)
        for (uint32_t k = 0; k < p->processors[q].count; k++)
            if (p->order[p->processors[q].first + k] == i) return (int)q;
    return -1;
}

/* An instruction of the second layer: the last. */
static program_instruction *last_of(mt_program *p) {
    return (program_instruction *)&p->instructions[p->instructions_count - 1];
}
static void raise_target(mt_program *p) { last_of(p)->target[0]++; }
static void break_opcode(mt_program *p) { last_of(p)->opcode = 7; }
static void break_opcode_far(mt_program *p) { last_of(p)->opcode = 0xfff0; }
static void drop_arrival(mt_program *p) { ((program_instruction *)p->instructions)[1].arrive_count = 0; }

typedef struct damage {
    const char *name;
    void (*edit)(mt_program *p);
    mt_placement placement;
    int32_t runs; /* 1: mt_session_run; more: a loop */
    mt_status status;
    bool any_waiter;   /* which of the second layer's instructions gives up first is open */
    const char *words; /* of the message, with %d for the processor; behind it %u: expected, actual arrivals */
} damage;

static const damage damages[] = {
    {"a target that is never reached", raise_target, MT_PLACE_STATIC, 1, MT_E_HANG, false,
     "consumers: waited 1 s at barrier"},
    {"the same, in a loop of runs", raise_target, MT_PLACE_STATIC, 5, MT_E_HANG, false,
     "consumers: waited 1 s at barrier"},
    {"an arrival that is missing", drop_arrival, MT_PLACE_STATIC, 1, MT_E_HANG, true,
     "consumers: waited 1 s at barrier"},
    {"an arrival that is missing, in a queue", drop_arrival, MT_PLACE_QUEUE, 1, MT_E_HANG, true,
     "consumers: waited 1 s at barrier"},
    {"an opcode that is none", break_opcode, MT_PLACE_STATIC, 1, MT_E_FORMAT, false, "no op has the opcode 7"},
    {"an opcode far off", break_opcode_far, MT_PLACE_STATIC, 1, MT_E_FORMAT, false, "no op has the opcode 65520"}};

static void check_damage(const damage *d) {
    mt_program *p = compile_two_layers(d->placement);
    mt_session *s;
    mt_error problem = {0};
    d->edit(p);
    const program_instruction *last = last_of(p);
    const uint32_t number = (uint32_t)p->instructions_count - 1;
    OK(mt_session_create(&s, machine, p, &error));
    mt_session_timeout(s, 1);
    bind_all(s);
    const uint64_t begin = clock_ns();
    const mt_status status =
        d->runs == 1 ? mt_session_run(s, &problem) : mt_session_loop(s, &(mt_loop){.runs = d->runs}, NULL, &problem);
    const double seconds = (double)(clock_ns() - begin) * 1e-9;
    print_message("%s: %.2f s: %s: %s\n", d->name, seconds, problem.where, problem.message);
    assert_int_equal(status, d->status);
    assert_true(seconds < 2 || patience > 0);
    if (on_cuda()) {
        char name[160], expected[160];
        unsigned processor = 0, instruction = 0, barrier, wanted, there;
        const char *at = strstr(problem.message, "at barrier");
        program_instruction_name(p, number, name, sizeof name);
        if (d->runs > 1 && strstr(problem.message, "for the others to finish run 1")) goto done; /* who waits for it */
        assert_non_null(strstr(problem.message, d->words));
        assert_int_equal(sscanf(problem.where, "instruction %u", &instruction), 1);
        assert_int_equal(sscanf(problem.message, "SM %u", &processor), 1);
        if (!d->any_waiter) assert_string_equal(problem.where, name);
        if (d->placement == MT_PLACE_STATIC) assert_int_equal(processor, processor_of(p, instruction));
        assert_int_equal(p->instructions[instruction].node, last->node);
        if (at) {
            const uint32_t target = p->instructions[instruction].target[0];
            snprintf(expected, sizeof expected, "at barrier %u for %u arrivals; there were %u (run 1)",
                     p->instructions[instruction].wait[0], target, target - 1);
            assert_int_equal(sscanf(at, "at barrier %u for %u arrivals; there were %u", &barrier, &wanted, &there), 3);
            assert_non_null(strstr(problem.message, expected));
        }
    }
done:
    mt_session_destroy(s);
    mt_program_destroy(p);
    forget_tensors();
}

static void test_watchdog(void **state) {
    (void)state;
    if (code_only) {
        for (int queue = 0; queue < 2; queue++) {
            mt_program *p = compile_two_layers(queue ? MT_PLACE_QUEUE : MT_PLACE_STATIC);
            OK(cuda_unit_compile(p, "sm_90a", false, NULL, &error));
            mt_program_destroy(p);
            forget_tensors();
        }
        return;
    }
    need_machine();
    if (!strncmp(machine_name, "cpu", 3)) skip();
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        if (!on_cuda() && damages[i].status != MT_E_HANG) continue; /* the others trust the opcodes that were checked */
        check_damage(&damages[i]);
        run_good(damages[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense),  cmocka_unit_test(test_fed),
                                       cmocka_unit_test(test_chosen), cmocka_unit_test(test_formats),
                                       cmocka_unit_test(test_wide),   cmocka_unit_test(test_watchdog)};
    if (getenv("CUDA_TEST")) cmocka_set_test_filter(getenv("CUDA_TEST"));
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
