/* Which compositions are fused, by estimate: whole models as they are compiled for a machine, and results that are the
 * same either way. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "model/synthetic.h"
#include "monotile/machine.h"
#include "monotile/model.h"
#include "ok.h"

static const synthetic_shape qwen3_8b = {"q8", "qwen3", 2, 4096, 32, 8, 128, 12288, 64, 300, 1e6, 1e-6, false},
                             llama_1b = {"l1", "llama", 2, 2048, 32, 8, 64, 8192, 64, 300, 5e5, 1e-5, true},
                             llama_8b = {"l8", "llama", 2, 4096, 32, 8, 128, 14336, 64, 300, 5e5, 1e-5, false},
                             narrow = {"narrow", "qwen3", 2, 128, 4, 2, 64, 256, 64, 300, 1e6, 1e-6, true},
                             some = {"some", "qwen3", 2, 2048, 4, 2, 128, 384, 517, 300, 1e6, 1e-6, true};

/* The programs of the first layer's nodes up to attention, in their order. */
static void look(void *context, const char *pass, const char *graph) {
    char *out = context;
    if (strcmp(pass, "lower")) return;
    *out = 0;
    for (const char *at = graph; (at = strstr(at, " = ")); at++) {
        const size_t length = strcspn(at += 3, "[(");
        if (!strncmp(at, "attention", 9)) break;
        if (strncmp(at, "rope_table", length) && strncmp(at, "embed", length))
            snprintf(out + strlen(out), 500 - strlen(out), "%s%.*s", *out ? " " : "", (int)length, at);
    }
}

static mt_program *compile(const mt_model *m, const char *machine, int processors, int rows, const char *products,
                           int no_fusion, char programs[500]) {
    const mt_step step = {.rows = rows, .context = 300, .cache = "f32", .products = products, .all_logits = true};
    const mt_target target = {
        .machine = machine, .processors = processors, .no_fusion = no_fusion, .dump = look, .dump_context = programs};
    mt_graph *g;
    mt_program *p;
    OK(mt_model_graph(m, &step, &g, &error));
    OK(mt_compile(g, &target, &p, &error));
    mt_graph_destroy(g);
    return p;
}

#define APART "norm_linear norm_linear norm_linear_append head_norm_rope head_norm_rope_append"
#define FUSED "norm_linear_append norm_linear_norm_rope norm_linear_norm_rope_append"
#define WIDE  "rmsnorm linear linear linear append head_norm_rope head_norm_rope_append"
#define LLAMA "norm_linear_rope norm_linear_rope_append norm_linear_append"

static void fused_where_it_pays(void **state) {
    (void)state;
    static const struct {
        const synthetic_shape *shape;
        const char *machine;
        int processors, rows;
        const char *programs;
    } cases[] = {
        {&qwen3_8b, "cuda", 132, 1, APART}, /* 32 heads, then 8, of 1 MB each */
        {&qwen3_8b, "cuda", 66, 1, FUSED},
        /* beside k and v there are hardly more processors than heads */ {&qwen3_8b, "cuda", 16, 1, FUSED}, /* nobody is
                                                                                                               idle */
        {&qwen3_8b, "cuda", 132, 16, FUSED}, /* with a row an instruction there are enough */
        {&qwen3_8b, "cuda", 132, 128, WIDE}, /* the products are wide, with a norm apart */
        {&qwen3_8b, "cpu", 132, 1, FUSED},   /* results must not depend on the number of workers */
        {&narrow, "cuda", 132, 1, FUSED},    /* a hand-off takes longer than a head's product */
        {&llama_1b, "cuda", 132, 1, LLAMA},  /* tiles of columns are enough */
        {&llama_1b, "cuda", 132, 16, LLAMA},
        {&llama_8b, "cuda", 132, 1, LLAMA},
        {&llama_8b, "cuda", 132, 16, LLAMA},
        {&some, "cuda", 132, 1, APART},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        mt_model *m;
        char programs[500];
        OK(synthetic_model(&m, cases[i].shape, "bf16", &error));
        mt_program_destroy(compile(m, cases[i].machine, cases[i].processors, cases[i].rows, "bf16", false, programs));
        if (strcmp(programs, cases[i].programs))
            fail_msg("%s on %s:%d, %d rows: %s", cases[i].shape->name, cases[i].machine, cases[i].processors,
                     cases[i].rows, programs);
        mt_model_close(m);
    }
}

/* The logits of three rows at a time, or of one, all on the CPU machine. */
static float *logits_of(const mt_model *m, mt_machine *machine, mt_program *p, int rows, size_t *count) {
    static const int32_t ids[] = {3, 141, 59, 26, 5, 35};
    mt_session *s;
    void *memory;
    size_t bytes;
    OK(mt_session_create(&s, machine, p, &error));
    OK(mt_model_bind(m, p, s, &error));
    float *all = NULL;
    *count = 0;
    for (int pos = 0; pos + rows <= (int)COUNT_OF(ids); pos += rows) {
        OK(mt_session_memory(s, "ids", &memory, &bytes, &error));
        memcpy(memory, ids + pos, (size_t)rows * sizeof *ids);
        OK(mt_session_live(s, "pos", pos, &error));
        OK(mt_session_run(s, &error));
        OK(mt_session_memory(s, "logits", &memory, &bytes, &error));
        all = realloc(all, *count * sizeof *all + bytes);
        assert_non_null(all);
        memcpy(all + *count, memory, bytes);
        *count += bytes / sizeof *all;
    }
    mt_session_destroy(s);
    mt_program_destroy(p);
    return all;
}

/* Apart for 132 processors, fused for a CPU, and with no node fused at all. */
static void logits_stay(void **state) {
    (void)state;
    static const char *const formats[] = {"bf16", "q8_0"};
    mt_machine *machine;
    OK(mt_machine_open(&machine, "cpu:2", &error));
    for (size_t f = 0; f < COUNT_OF(formats); f++)
        for (int rows = 1; rows <= 3; rows += 2) {
            mt_model *m;
            char programs[500];
            size_t count, same;
            OK(synthetic_model(&m, &some, formats[f], &error));
            float *plain = logits_of(m, machine, compile(m, "cpu", 2, rows, "f32", true, programs), rows, &count);
            for (int apart = 0; apart < 2; apart++) {
                mt_program *p = compile(m, apart ? "cuda" : "cpu", apart ? 132 : 2, rows, "f32", false, programs);
                assert_string_equal(programs, apart ? APART : FUSED);
                float *logits = logits_of(m, machine, p, rows, &same);
                double worst = 0, norm = 0;
                assert_int_equal(count, same);
                for (size_t i = 0; i < count; i++) {
                    worst += pow((double)logits[i] - plain[i], 2);
                    norm += pow(plain[i], 2);
                }
                print_message("%s, %d rows, %s: relative difference %.2g\n", formats[f], rows,
                              apart ? "apart" : "fused", sqrt(worst / norm));
                if (!(sqrt(worst) <= 2e-6 * sqrt(norm)) || !(norm > 0))
                    fail_msg("%s, %d rows, %s: relative difference %g", formats[f], rows, programs, sqrt(worst / norm));
                free(logits);
            }
            free(plain);
            mt_model_close(m);
        }
    mt_machine_close(machine);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fused_where_it_pays), cmocka_unit_test(logits_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
