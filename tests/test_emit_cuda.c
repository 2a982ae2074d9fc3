/* The CUDA emitter. Numbers: the emitted code runs on the CPU (cuda_shim.h) and is compared with the interpreter, over all cases of test_emit.c and more:
 * products with streamed weights, in all formats and at odd sizes. Code: the library's ops compile with NVRTC for the chips, without spills. The
 * lowered form: loader and consumers walk the same pages; nothing is touched by two threads without a SYNC between. */
int main_of_test_emit(void);
#define main main_of_test_emit
#include "test_emit.c"
#undef main

#include "cuda_harness.h"

/* ---- cases ---- */

static void add_streamed(void) {
    static const char *const formats[] = {"bf16", "f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "mxfp4", "nvfp4",
                                          "e4m3_block128", "i4_group32", "i4_group64", "i4_group128", "u4_group32", "u4_group64", "u4_group128"};
    static char store[600][200];
    char name[96];
    int used = 0;
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        const tile_format *w = tile_format_find(formats[f]);
        if (!w) continue;
        const int block = w->block > 1 ? w->block : 4, k1 = w->block > 1 ? block * 3 : 100, k2 = w->block > 1 ? (int)align_up(2100, (uint64_t)block) : 2100;
        const struct { int m, n, k, bm, bn, bk; const char *p; } sizes[] = {
            {1, 64, k2, 1, 32, 1024, "bf16"}, {3, 37, k1, 4, 16, 1024, "bf16"}, {5, 24, k1, 8, 24, 1024, "f16"}, {17, 40, k2, 16, 16, 1024, "bf16"}, {2, 13, block, 16, 8, 1024, "bf16"}};
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            if (s > 1 && f > 1 && (f + s) % 3) continue;
            char *constants = store[used++], *tensors = store[used++];
            const int bk = sizes[s].bk % block ? (int)align_up((uint64_t)sizes[s].bk, (uint64_t)block) : sizes[s].bk;
            snprintf(constants, sizeof store[0], "N=%d K=%d BM=%d BN=%d BK=%d W=%s P=%s", sizes[s].n, sizes[s].k, sizes[s].bm, sizes[s].bn, bk, formats[f], sizes[s].p);
            snprintf(tensors, sizeof store[0], "x %d %d; w %d %d; y %d %d", sizes[s].m, sizes[s].k, sizes[s].n, sizes[s].k, sizes[s].m, sizes[s].n);
            snprintf(name, sizeof name, "streamed linear %s %dx%dx%d by %d", formats[f], sizes[s].m, sizes[s].n, sizes[s].k, sizes[s].bm);
            add_case(name, "linear", constants, tensors, 1e-3);
        }
    }
    add_case("streamed in turns", "linear", "N=40 K=9000 BM=16 BN=16 W=bf16 P=bf16", "x 16 9000; w 40 9000; y 16 40", 3e-3);
    add_case("streamed in turns, blocks", "linear", "N=40 K=9216 BM=16 BN=16 W=q4_k P=bf16", "x 16 9216; w 40 9216; y 16 40", 3e-3);
    add_case("streamed in turns, two products", "norm_swiglu", "N=40 K=9216 BM=16 BN=16 A=bf16 B=bf16 P=bf16", "x 13 9216; g 9216; gate 40 9216; up 40 9216; y 13 40", 1e-1)->args[0] = 1e-5;
    add_case("streamed swiglu", "norm_swiglu", "N=40 K=96 BM=1 BN=16 A=q4_1 B=bf16 P=bf16", "x 2 96; g 96; gate 40 96; up 40 96; y 2 40", 1e-3)->args[0] = 1e-5;
    add_case("streamed swiglu, many", "norm_swiglu", "N=40 K=1152 BM=8 BN=32 A=f16 B=bf16 P=f16", "x 6 1152; g 1152; gate 40 1152; up 40 1152; y 6 40", 2e-3)->args[0] = 1e-5;
    add_case("streamed and plain", "norm_swiglu", "N=40 K=96 BM=4 BN=16 A=f32 B=bf16 P=bf16", "x 6 96; g 96; gate 40 96; up 40 96; y 6 40", 1e-3)->args[0] = 1e-5;
    add_case("streamed add", "linear_add", "N=37 K=576 BM=1 BN=16 W=q8_0 P=bf16", "x 1 576; w 37 576; r 1 37; y 1 37", 1e-3);
    add_case("streamed bias relu", "linear_bias_relu", "N=37 K=576 BM=4 BN=16 W=bf16 P=bf16 B=f16", "x 3 576; w 37 576; b 37; y 3 37", 1e-3);
    add_case("streamed norm bias", "norm_linear_bias", "N=37 K=576 BM=4 BN=64 W=q6_k P=bf16 B=f16", "x 3 768; g 768; w 37 768; b 37; y 3 37", 1e-3)->args[0] = 1e-5;
    cases[case_count - 1].constants = "N=37 K=768 BM=4 BN=64 W=q6_k P=bf16 B=f16";
    add_case("streamed rope", "norm_linear_rope", "H=3 D=24 K=72 BM=4 W=f16 P=f16", "x 9 72; g 72; w 72 72; angles 9 12 2; y 9 3 24", 2e-3)->args[0] = 1e-5;
    add_case("streamed rope, one", "norm_linear_rope", "H=4 D=64 K=576 BM=1 W=bf16 P=bf16", "x 1 576; g 576; w 256 576; angles 1 32 2; y 1 4 64", 1e-3)->args[0] = 1e-5;
    add_case("streamed heads that are no blocks", "norm_linear_rope", "H=3 D=20 K=72 BM=4 W=f16 P=bf16", "x 9 72; g 72; w 60 72; angles 9 10 2; y 9 3 20", 2e-3)->args[0] = 1e-5;
    add_case("streamed append", "norm_linear_append", "H=2 D=32 K=576 BM=4 W=q4_1 P=bf16", "x 5 576; g 576; w 64 576; pos 0; cache 20 2 32", 2e-3)->args[0] = 1e-5;
    cases[case_count - 1].tensors = "x 5 576; g 576; w 64 576; cache 20 2 32";
    cases[case_count - 1].lives[0] = 11;
    add_case("streamed rope append", "norm_linear_rope_append", "H=2 D=64 K=576 BM=1 W=q8_0 P=bf16", "x 1 576; g 576; w 128 576; angles 1 32 2; cache 20 2 64", 2e-3)->args[0] = 1e-5;
    cases[case_count - 1].lives[0] = 7;
    add_case("streamed no loop", "tile t(x: in f32[M, 96], w: in bf16[N, 96], y: out f32[M, N]) over (n in ceil(N / 16), m in ceil(M / 4)) { y[m*4 : +4, n*16 : +16] = dot(bf16(x[m*4 : +4, :]), w[n*16 : +16, :].T) * 2 }", "", "x 6 96; w 40 96; y 6 40", 1e-3);
    add_case("streamed in a loop with others", "tile t(x: in f32[4, 256], w: in bf16[N, 256], y: out f32[4, N]) over (n in ceil(N / 16)) { acc: f32[4, 16] = 1; for k in 4 { acc = acc * 0.5; acc += dot(bf16(x[:, k*64 : +64] * f32(k + 1)), w[n*16 : +16, k*64 : +64].T) }; y[:, n*16 : +16] = acc }", "", "x 4 256; w 40 256; y 4 40", 1e-3);
    add_case("streamed under a condition", "tile t(x: in f32[4, 128], w: in bf16[N, 128], v: in bf16[N, 128], s: arg i32, y: out f32[4, N]) over (n in ceil(N / 16)) { if n % 2 == s { y[:, n*16 : +16] = dot(bf16(x), w[n*16 : +16, :].T) } else { for i in n { y[:, n*16 : +16] = dot(bf16(x * f32(i)), v[n*16 : +16, 64 : +64].T[0 : +64, :]) * 0 + dot(bf16(x), v[n*16 : +16, :].T) } } }", "",
             "x 4 128; w 70 128; v 70 128; y 4 70", 1e-3);
    cases[case_count - 1].source = (free(cases[case_count - 1].source), strdup("tile t(x: in f32[4, 128], w: in bf16[N, 128], v: in bf16[N, 128], s: arg i32, y: out f32[4, N]) over (n in ceil(N / 16)) { if n % 2 == s { y[:, n*16 : +16] = dot(bf16(x), w[n*16 : +16, :].T) } else { for i in n { y[:, n*16 : +16] = dot(bf16(x * f32(i)), v[n*16 : +16, :].T) } } }"));
    add_case("streamed by data", "tile t(x: in f32[4, 128], w: in bf16[N, 128], f: in i32[9], y: out f32[4, N]) over (n in ceil(N / 16)) { if f[n] > 2 { y[:, n*16 : +16] = dot(bf16(x), w[n*16 : +16, :].T) } else { y[:, n*16 : +16] = f32[4, 16](1) } }", "", "x 4 128; w 70 128; f 9 in 0 6; y 4 70", 1e-3);
    add_case("streamed, live rows", "tile t(n: live i32, x: in f32[n, 128], w: in q8_0[40, 128], y: out f32[n, 40]) over (m in ceil(n / 4), c in 3) { y[m*4 : +4, c*16 : +16] = dot(bf16(x[m*4 : +4, :]), bf16(f32(w[c*16 : +16, :])).T) }", "", "x 12 128; w 40 128; y 12 40", 1e-3)->lives[0] = 5;
    add_case("streamed part of k", "tile t(x: in f32[4, 256], w: in f16[N, 256], y: out f32[4, N, 2]) over (n in ceil(N / 8), s in 2) { acc: f32[4, 8] = 0; for k in 2 { acc += dot(f16(x[:, s*128 + k*64 : +64]), w[n*8 : +8, s*128 + k*64 : +64].T) }; y[:, n*8 : +8, s] = acc }", "", "x 4 256; w 20 256; y 4 20 2", 2e-3);
    add_case("streamed loop from one", "tile t(x: in f32[4, 256], w: in f16[N, 256], y: out f32[4, N]) over (n in ceil(N / 8)) { acc: f32[4, 8] = 3; for k in 1 .. 4 { acc = dot(f16(x[:, k*64 : +64]), f16(f32(w[n*8 : +8, k*64 : +64])).T) + acc }; y[:, n*8 : +8] = acc }", "", "x 4 256; w 20 256; y 4 20", 2e-3);
}

/* ---- numbers ---- */

static int streamed_count;

static int cuda_setup(void **state) {
    (void)state;
    add_elementwise();
    add_casts();
    add_reductions();
    add_dots();
    add_slices();
    add_shapes();
    add_statements();
    add_packed();
    add_streamed();
    int first = 1, count = 40;
    if (getenv("EMIT_SEEDS")) sscanf(getenv("EMIT_SEEDS"), "%d,%d", &first, &count);
    for (int i = 0; i < count; i++) add_random((uint64_t)(first + i));
    case_memory = arena_new();
    if (!case_memory) return -1;
    const char *only = getenv("EMIT_ONLY");
    for (int i = 0; i < case_count; i++) {
        if (only && !strstr(cases[i].name, only)) continue;
        if (!bind_case(&cases[i])) return -1;
        cuda_case *k = &cuda_cases[cuda_case_count];
        *k = (cuda_case){.c = &cases[i], .op = {.op = cases[i].op}};
        for (int t = 0; t < cases[i].op->tensor_count; t++) {
            k->op.layout[t] = emit_cuda_wish(cases[i].op, t);
            streamed_count += k->op.layout[t] != ROLE_ROWS;
        }
        text one = {0};
        mt_error error = {0};
        const mt_status status = emit_cuda_one(&one, &k->op, &error);
        text_free(&one);
        if (status == MT_OK) cuda_case_count++;
        else if (status != MT_E_UNSUPPORTED && status != MT_E_LIMIT) return fprintf(stderr, "%s: %s\n", cases[i].name, error.message), -1;
        else fprintf(stderr, "no code: %s: %s\n", cases[i].name, error.message);
    }
    return 0;
}

static int cuda_teardown(void **state) {
    (void)state;
    for (int i = 0; i < case_count; i++) free(cases[i].source);
    arena_free(case_memory);
    return 0;
}

static void test_numbers(void **state) {
    (void)state;
    int failed = 0;
    for (int first = 0; first < cuda_case_count; first += CUDA_CHUNK) {
        const int last = (int)min_i64(first + CUDA_CHUNK, cuda_case_count);
        assert_true(build_chunk(first, last));
        for (int i = first; i < last; i++) {
            char what[256];
            random_state = 88172645463325252u + (uint64_t)i * 977;
            if (getenv("EMIT_TRACE")) fprintf(stderr, "%s\n", cuda_cases[i].c->name);
            if (check_cuda(&cuda_cases[i], what, sizeof what)) continue;
            failed++;
            print_message("%s: %s\n", cuda_cases[i].c->name, what);
        }
    }
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, cuda_setup, cuda_teardown);
}
