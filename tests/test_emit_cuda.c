/* The CUDA emitter. Numbers: the emitted code runs on the simulator and is compared with the interpreter, over
 * all cases of test_emit.c and more: products with streamed weights, in all formats and at odd sizes. Code: the
 * library's ops compile with NVRTC for the chips, without spills. The lowered form: loader and consumers walk the same
 * pages; nothing is touched by two threads without a SYNC between. */
int main_of_test_emit(void);
#define main main_of_test_emit
#include "test_emit.c"
#undef main

#include "cuda_harness.h"
#include "machine/cuda/nvrtc.h"
#include "machine/device.h"
#include "monotile/monotile.h"
#include "unit_text.h"

#include <elf.h>

/* ---- cases ---- */

static void add_streamed(void) {
    static const char *const formats[] = {
        "bf16",          "f16",        "q4_0",       "q4_1",        "q5_0",       "q5_1",       "q8_0",
        "q2_k",          "q3_k",       "q4_k",       "q5_k",        "q6_k",       "mxfp4",      "nvfp4",
        "e4m3_block128", "i4_group32", "i4_group64", "i4_group128", "u4_group32", "u4_group64", "u4_group128"};
    static char store[600][200];
    char name[96];
    int used = 0;
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        const tile_format *w = tile_format_find(formats[f]);
        if (!w) continue;
        const int block = w->block > 1 ? w->block : 4, k1 = w->block > 1 ? block * 3 : 100,
                  k2 = w->block > 1 ? (int)align_up(2100, (uint64_t)block) : 2100;
        const struct {
            int m, n, k, bm, bn, bk;
            const char *p;
        } sizes[] = {{1, 64, k2, 1, 32, 1024, "bf16"},
                     {3, 37, k1, 4, 16, 1024, "bf16"},
                     {5, 24, k1, 8, 24, 1024, "f16"},
                     {17, 40, k2, 16, 16, 1024, "bf16"},
                     {2, 13, block, 16, 8, 1024, "bf16"}};
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            if (s > 1 && f > 1 && (f + s) % 3) continue;
            char *constants = store[used++], *tensors = store[used++];
            const int bk = sizes[s].bk % block ? (int)align_up((uint64_t)sizes[s].bk, (uint64_t)block) : sizes[s].bk;
            snprintf(constants, sizeof store[0], "N=%d K=%d BM=%d BN=%d BK=%d W=%s P=%s", sizes[s].n, sizes[s].k,
                     sizes[s].bm, sizes[s].bn, bk, formats[f], sizes[s].p);
            snprintf(tensors, sizeof store[0], "x %d %d; w %d %d; y %d %d", sizes[s].m, sizes[s].k, sizes[s].n,
                     sizes[s].k, sizes[s].m, sizes[s].n);
            snprintf(name, sizeof name, "streamed linear %s %dx%dx%d by %d", formats[f], sizes[s].m, sizes[s].n,
                     sizes[s].k, sizes[s].bm);
            add_case(name, "linear", constants, tensors, 1e-3);
        }
    }
    add_case("scatter long rows",
             "tile t(ids: in i32[M], x: in f32[M, 700], y: out f32[V, 700], z: inout f32[V, 700]) over (r in ceil(M / "
             "4)) { y[ids[r*4 : +4], :] = x[r*4 : +4, :] * 2; z[ids[r*4 : +4], :] += x[r*4 : +4, :] }",
             "", "ids 8 in -2 7; x 8 700; y 6 700; z 6 700", 1e-6);
    add_case("scatter into a cache",
             "tile t(at: in i32[M], x: in f32[M, 3, 64], c: out f16[S, 3, 64]) over (h in 3, r in ceil(M / 16)) { "
             "c[at[r*16 : +16], h, :] = f16(x[r*16 : +16, h, :]) }",
             "", "at 20 in -2 31; x 20 3 64; c 30 3 64", 0);
    add_case("streamed in turns", "linear", "N=40 K=9000 BM=16 BN=16 W=bf16 P=bf16", "x 16 9000; w 40 9000; y 16 40",
             3e-3);
    add_case("streamed in turns, blocks", "linear", "N=40 K=9216 BM=16 BN=16 W=q4_k P=bf16",
             "x 16 9216; w 40 9216; y 16 40", 3e-3);
    add_case("streamed in turns, two products", "norm_swiglu", "N=40 K=9216 BM=16 BN=16 A=bf16 B=bf16 P=bf16",
             "x 13 9216; g 9216; gate 40 9216; up 40 9216; y 13 40", 1e-1)
        ->args[0] = 1e-5;
    add_case("streamed swiglu", "norm_swiglu", "N=40 K=96 BM=1 BN=16 A=q4_1 B=bf16 P=bf16",
             "x 2 96; g 96; gate 40 96; up 40 96; y 2 40", 1e-3)
        ->args[0] = 1e-5;
    add_case("streamed swiglu, many", "norm_swiglu", "N=40 K=1152 BM=8 BN=32 A=f16 B=bf16 P=f16",
             "x 6 1152; g 1152; gate 40 1152; up 40 1152; y 6 40", 2e-3)
        ->args[0] = 1e-5;
    add_case("streamed and plain", "norm_swiglu", "N=40 K=96 BM=4 BN=16 A=f32 B=bf16 P=bf16",
             "x 6 96; g 96; gate 40 96; up 40 96; y 6 40", 1e-3)
        ->args[0] = 1e-5;
    add_case("plain, a long left operand",
             "tile t(x: in bf16[M, 4096], w: in bf16[4096, 64], y: out f32[M, 64]) over (m in ceil(M / 16)) { y[m*16 : "
             "+16, :] = dot(x[m*16 : +16, :], w[:, :]) }",
             "", "x 16 4096; w 4096 64; y 16 64", 5e-2);
    add_case("plain, many columns",
             "tile t(x: in bf16[M, 64], w: in bf16[64, 1024], y: out f32[M, 1024]) over (m in ceil(M / 16)) { y[m*16 : "
             "+16, :] = dot(x[m*16 : +16, :], w[:, :]) }",
             "", "x 16 64; w 64 1024; y 16 1024", 5e-2);
    add_case("streamed add", "linear_add", "N=37 K=576 BM=1 BN=16 W=q8_0 P=bf16", "x 1 576; w 37 576; r 1 37; y 1 37",
             1e-3);
    add_case("streamed bias relu", "linear_bias_relu", "N=37 K=576 BM=4 BN=16 W=bf16 P=bf16 B=f16",
             "x 3 576; w 37 576; b 37; y 3 37", 1e-3);
    add_case("streamed norm bias", "norm_linear_bias", "N=37 K=576 BM=4 BN=64 W=q6_k P=bf16 B=f16",
             "x 3 768; g 768; w 37 768; b 37; y 3 37", 1e-3)
        ->args[0] = 1e-5;
    cases[case_count - 1].constants = "N=37 K=768 BM=4 BN=64 W=q6_k P=bf16 B=f16";
    add_case("streamed rope", "norm_linear_rope", "H=3 D=24 K=72 BM=4 W=f16 P=f16",
             "x 9 72; g 72; w 72 72; angles 9 12 2; y 9 3 24", 2e-3)
        ->args[0] = 1e-5;
    add_case("streamed rope, one", "norm_linear_rope", "H=4 D=64 K=576 BM=1 W=bf16 P=bf16",
             "x 1 576; g 576; w 256 576; angles 1 32 2; y 1 4 64", 1e-3)
        ->args[0] = 1e-5;
    add_case("streamed heads that are no blocks", "norm_linear_rope", "H=3 D=20 K=72 BM=4 W=f16 P=bf16",
             "x 9 72; g 72; w 60 72; angles 9 10 2; y 9 3 20", 2e-3)
        ->args[0] = 1e-5;
    add_case("streamed head norm rope", "norm_linear_norm_rope", "H=3 D=24 K=72 BM=4 W=f16 P=f16",
             "x 9 72; g 72; w 72 72; hg 24; angles 9 12 2; y 9 3 24", 2e-3)
        ->args[0] = 1e-5;
    add_case("streamed head norm rope, one", "norm_linear_norm_rope", "H=4 D=128 K=576 BM=1 W=bf16 P=bf16",
             "x 1 576; g 576; w 512 576; hg 128; angles 1 64 2; y 1 4 128", 2e-3)
        ->args[0] = 1e-5;
    add_case("streamed head norm rope append", "norm_linear_norm_rope_append", "H=2 D=64 K=576 BM=1 W=q8_0 P=bf16",
             "x 1 576; g 576; w 128 576; hg 64; angles 1 32 2; cache 20 2 64", 2e-3)
        ->args[0] = 1e-5;
    cases[case_count - 1].lives[0] = 7;
    add_case("streamed append", "norm_linear_append", "H=2 D=32 K=576 BM=4 W=q4_1 P=bf16",
             "x 5 576; g 576; w 64 576; pos 0; cache 20 2 32", 2e-3)
        ->args[0] = 1e-5;
    cases[case_count - 1].tensors = "x 5 576; g 576; w 64 576; cache 20 2 32";
    cases[case_count - 1].lives[0] = 11;
    add_case("streamed rope append", "norm_linear_rope_append", "H=2 D=64 K=576 BM=1 W=q8_0 P=bf16",
             "x 1 576; g 576; w 128 576; angles 1 32 2; cache 20 2 64", 2e-3)
        ->args[0] = 1e-5;
    cases[case_count - 1].lives[0] = 7;
    add_case("streamed no loop",
             "tile t(x: in f32[M, 96], w: in bf16[N, 96], y: out f32[M, N]) over (n in ceil(N / 16), m in ceil(M / 4)) "
             "{ y[m*4 : +4, n*16 : +16] = dot(bf16(x[m*4 : +4, :]), w[n*16 : +16, :].T) * 2 }",
             "", "x 6 96; w 40 96; y 6 40", 1e-3);
    add_case("streamed in a loop with others",
             "tile t(x: in f32[4, 256], w: in bf16[N, 256], y: out f32[4, N]) over (n in ceil(N / 16)) { acc: f32[4, "
             "16] = 1; for k in 4 { acc = acc * 0.5; acc += dot(bf16(x[:, k*64 : +64] * f32(k + 1)), w[n*16 : +16, "
             "k*64 : +64].T) }; y[:, n*16 : +16] = acc }",
             "", "x 4 256; w 40 256; y 4 40", 1e-3);
    add_case("streamed under a condition",
             "tile t(x: in f32[4, 128], w: in bf16[N, 128], v: in bf16[N, 128], s: arg i32, y: out f32[4, N]) over (n "
             "in ceil(N / 16)) { if n % 2 == s { y[:, n*16 : +16] = dot(bf16(x), w[n*16 : +16, :].T) } else { for i in "
             "n { y[:, n*16 : +16] = dot(bf16(x * f32(i)), v[n*16 : +16, 64 : +64].T[0 : +64, :]) * 0 + dot(bf16(x), "
             "v[n*16 : +16, :].T) } } }",
             "", "x 4 128; w 70 128; v 70 128; y 4 70", 1e-3);
    cases[case_count - 1].source =
        (free(cases[case_count - 1].source),
         strdup("tile t(x: in f32[4, 128], w: in bf16[N, 128], v: in bf16[N, 128], s: arg i32, y: out f32[4, N]) over "
                "(n in ceil(N / 16)) { if n % 2 == s { y[:, n*16 : +16] = dot(bf16(x), w[n*16 : +16, :].T) } else { "
                "for i in n { y[:, n*16 : +16] = dot(bf16(x * f32(i)), v[n*16 : +16, :].T) } } }"));
    add_case(
        "streamed by data",
        "tile t(x: in f32[4, 128], w: in bf16[N, 128], f: in i32[9], y: out f32[4, N]) over (n in ceil(N / 16)) { if "
        "f[n] > 2 { y[:, n*16 : +16] = dot(bf16(x), w[n*16 : +16, :].T) } else { y[:, n*16 : +16] = f32[4, 16](1) } }",
        "", "x 4 128; w 70 128; f 9 in 0 6; y 4 70", 1e-3);
    add_case("streamed, live rows",
             "tile t(n: live i32, x: in f32[n, 128], w: in q8_0[40, 128], y: out f32[n, 40]) over (m in ceil(n / 4), c "
             "in 3) { y[m*4 : +4, c*16 : +16] = dot(bf16(x[m*4 : +4, :]), bf16(f32(w[c*16 : +16, :])).T) }",
             "", "x 12 128; w 40 128; y 12 40", 1e-3)
        ->lives[0] = 5;
    for (int odd = 0; odd < 2; odd++) /* pairs of blocks, or not */
        add_case(
            odd ? "streamed and read, odd" : "streamed and read, in pairs",
            "tile t[K](x: in f32[M, K], w: in q8_0[40, K], y: out f32[M, 40], z: out f32[40, K]) over (m in ceil(M "
            "/ 4), c in 3) { y[m*4 : +4, c*16 : +16] = dot(bf16(x[m*4 : +4, :]), bf16(f32(w[c*16 : +16, :])).T); "
            "z[c*16 : +16, :] = f32(w[c*16 : +16, :]) }",
            odd ? "K=1312" : "K=1344",
            odd ? "x 4 1312; w 40 1312; y 4 40; z 40 1312" : "x 4 1344; w 40 1344; y 4 40; z 40 1344", 1e-3);
    add_case("streamed part of k",
             "tile t(x: in f32[4, 256], w: in f16[N, 256], y: out f32[4, N, 2]) over (n in ceil(N / 8), s in 2) { acc: "
             "f32[4, 8] = 0; for k in 2 { acc += dot(f16(x[:, s*128 + k*64 : +64]), w[n*8 : +8, s*128 + k*64 : +64].T) "
             "}; y[:, n*8 : +8, s] = acc }",
             "", "x 4 256; w 20 256; y 4 20 2", 2e-3);
    add_case("streamed loop from one",
             "tile t(x: in f32[4, 256], w: in f16[N, 256], y: out f32[4, N]) over (n in ceil(N / 8)) { acc: f32[4, 8] "
             "= 3; for k in 1 .. 4 { acc = dot(f16(x[:, k*64 : +64]), f16(f32(w[n*8 : +8, k*64 : +64])).T) + acc }; "
             "y[:, n*8 : +8] = acc }",
             "", "x 4 256; w 20 256; y 4 20", 2e-3);
}

/* Where f32's sums of codes times scales could be worse than weights rounded to f16: all sizes of scales, minimums and
 * activations; a large activation whose weight is zero, next to small ones. */
static void add_extremes(void) {
    static const char *const all[] = {"q4_0", "q4_1", "q5_0", "q5_1",  "q8_0",  "q2_k",        "q3_k",
                                      "q4_k", "q5_k", "q6_k", "mxfp4", "nvfp4", "i4_group128", "u4_group64"},
                             *const fills[] = {"extreme", "outlier"};
    static char store[4 * COUNT_OF(all)][96];
    for (size_t i = 0; i < 2 * COUNT_OF(all); i++) {
        const char *w = all[i / 2], *how = fills[i % 2];
        if (i % 2 && !strstr("q4_0 q8_0 mxfp4 i4_group128 u4_group64", w)) continue; /* a zero is soon found */
        const int m = i % 2 ? 1 : 1 + (int)i / 2 % 4; /* rows are padded: the outliers of the first lie as in w */
        char *constants = store[2 * i], *tensors = store[2 * i + 1], name[96];
        snprintf(constants, sizeof store[0], "N=17 K=768 BM=%d BN=24 BK=256 P=f16 W=%s", m, w);
        snprintf(tensors, sizeof store[0], "x %d 768 %s; w 17 768 %s; y %d 17", m, how, how, m);
        snprintf(name, sizeof name, "dot %s %s", how, w);
        add_case(name, "linear", constants, tensors, 0)->exact = true;
    }
}

/* ---- numbers ---- */

static int cuda_setup(void **state) {
    (void)state;
    if (!cuda_cases_begin()) return -1;
    add_elementwise();
    add_casts();
    add_reductions();
    add_dots();
    add_slices();
    add_shapes();
    add_statements();
    add_packed();
    add_streamed();
    add_extremes();
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
        for (int t = 0; t < cases[i].op->tensor_count; t++) k->op.layout[t] = role_wish(cases[i].op, t);
        text one = {0};
        mt_error error = {0};
        const mt_status status = emit_cuda_one(&one, &k->op, &error);
        text_free(&one);
        if (status == MT_OK)
            cuda_case_count++;
        else if (status != MT_E_UNSUPPORTED && status != MT_E_LIMIT)
            return fprintf(stderr, "%s: %s\n", cases[i].name, error.message), -1;
        else
            fprintf(stderr, "no code: %s: %s\n", cases[i].name, error.message);
    }
    return 0;
}

static void test_numbers(void **state) {
    (void)state;
    int failed = 0;
    if (unit_no_compiler()) skip();
    for (int first = 0; first < cuda_case_count; first += CUDA_CHUNK) {
        const int last = (int)min_i64(first + CUDA_CHUNK, cuda_case_count);
        assert_true(build_chunk(first, last));
        for (int i = first; i < last; i++) {
            char what[1100];
            random_begin(cuda_cases[i].c);
            if (getenv("EMIT_TRACE")) fprintf(stderr, "%s\n", cuda_cases[i].c->name);
            if (check_cuda(&cuda_cases[i], what, sizeof what)) continue;
            failed++;
            print_message("%s: %s\n", cuda_cases[i].c->name, what);
        }
    }
    assert_int_equal(failed, 0);
}

/* ---- code ---- */

/* The largest stack frame of a cubin's functions: what does not fit in registers goes there. -1: not a cubin as
 * expected. */
static int64_t largest_frame(const text *cubin) {
    enum { FRAME_SIZE = 0x11, SIZED = 0x04 }; /* of .nv.info: entries of a format, an attribute and a size or value */
    const uint8_t *data = (const uint8_t *)cubin->data;
    Elf64_Ehdr header;
    int64_t most = -1;
    if (cubin->length < sizeof header) return -1;
    memcpy(&header, data, sizeof header);
    Elf64_Shdr names, section;
    memcpy(&names, data + header.e_shoff + (size_t)header.e_shstrndx * sizeof names, sizeof names);
    for (int i = 0; i < header.e_shnum; i++) {
        memcpy(&section, data + header.e_shoff + (size_t)i * sizeof section, sizeof section);
        if (strcmp((const char *)data + names.sh_offset + section.sh_name, ".nv.info")) continue;
        for (const uint8_t *at = data + section.sh_offset, *end = at + section.sh_size; at + 4 <= end;) {
            const uint16_t size = (uint16_t)(at[2] | at[3] << 8);
            uint32_t frame;
            if (at[0] == SIZED && at[1] == FRAME_SIZE && size >= 8) {
                memcpy(&frame, at + 8, 4);
                most = max_i64(most, frame);
            }
            at += 4 + (at[0] == SIZED ? size : 0);
        }
    }
    return most;
}

/* The library's ops of a model: all that a graph of one could be made of, but those whose name begins with `without`;
 * NULL: those that other units leave out, and all that the library has beside. */
static size_t model_ops(emit_cuda_op *out, const char *w, const char *p, int bm, const char *without) {
    static const char *const programs[] = {"embed K=1536 ROWS=%d W=%s",
                                           "rmsnorm K=1536 ROWS=%d",
                                           "linear N=1000 K=1536 BM=%d BN=32 W=%s P=%s",
                                           "linear_add N=1536 K=4608 BM=%d BN=16 W=%s P=%s",
                                           "linear_bias N=1000 K=1536 BM=%d BN=64 W=%s P=%s",
                                           "linear_bias_relu N=1000 K=1536 BM=%d BN=8 W=%s P=%s",
                                           "norm_linear N=1000 K=1536 BM=%d BN=64 W=%s P=%s",
                                           "norm_linear_bias N=1000 K=1536 BM=%d BN=16 W=%s P=%s",
                                           "norm_swiglu N=4608 K=1536 BM=%d BN=32 A=%s P=%s B=f16",
                                           "norm_linear_rope H=24 D=64 K=1536 BM=%d W=%s P=%s",
                                           "norm_linear_rope_append H=8 D=64 K=1536 BM=%d W=%s P=%s",
                                           "norm_linear_norm_rope H=24 D=128 K=1536 BM=%d W=%s P=%s",
                                           "norm_linear_norm_rope_append H=8 D=128 K=1536 BM=%d W=%s P=%s",
                                           "head_norm H=24 D=128 ROWS=%d",
                                           "rope_half H=24 D=128 ROWS=%d",
                                           "head_norm_rope H=24 D=128 ROWS=%d",
                                           "head_norm_rope_append H=8 D=128 ROWS=%d",
                                           "norm_linear_append H=8 D=64 K=1536 BM=%d W=%s P=%s",
                                           "attention H=24 HK=8 D=64 BM=%d",
                                           "matmul N=1000 K=700 BM=%d P=%3$s",
                                           "add N=1536 ROWS=%d",
                                           "bias N=1536 ROWS=%d",
                                           "relu N=1536 ROWS=%d",
                                           "silu_mul N=1536 ROWS=%d",
                                           "rope H=24 D=64 ROWS=%d",
                                           "append H=8 D=64 ROWS=%d",
                                           "rope_table D2=32 ROWS=%d",
                                           "last_row N=1536",
                                           "swiglu N=4608 K=1536 BM=%d BN=32 A=%s P=%s B=f16",
                                           "attention_part H=24 HK=8 D=64 P=bf16",
                                           "attention_merge H=24 D=64 C=8 BS=128",
                                           "merge_linear_add N=1536 H=24 D=64 C=8 BS=128 W=%s P=%s",
                                           "linear_part N=1000 K=1536 BM=%d BN=64 W=%s P=%s",
                                           "sum_parts N=1536 C=4",
                                           "add_parts N=1536 C=3",
                                           "sample_best N=5000",
                                           "sample_choose ENDS=8 C=5",
                                           "sample_count ",
                                           "sample_cut N=5000",
                                           "sample_first N=5000",
                                           "sample_most N=5000",
                                           "sample_narrow N=5000",
                                           "sample_pick N=5000 ENDS=8",
                                           "sample_share C=5",
                                           "sample_uniform ",
                                           "sample_weigh N=5000"};
    enum { OF_MODELS = 28 };
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(programs); i++) {
        char line[200];
        test_case c = {.source = line};
        if (without ? i >= OF_MODELS || !strncmp(programs[i], without, strlen(without))
                    : i < OF_MODELS && strncmp(programs[i], "norm_linear_norm_rope", 21))
            continue;
        snprintf(line, sizeof line, "%s", programs[i]);
        char *constants = strchr(line, ' ');
        text filled = {0};
        *constants++ = 0;
        for (const char *at = constants; *at; at++) { /* %d, %s, %s: rows, weight, product */
            const bool product = *at == '%' && (at[1] == '3' || (at[1] == 's' && at > constants && at[-2] == 'P'));
            if (*at != '%')
                text_append(&filled, at, 1);
            else if (at[1] == 'd')
                text_printf(&filled, "%d", bm), at++;
            else
                text_string(&filled, product ? p : w), at += at[1] == '3' ? 3 : 1;
        }
        c.constants = filled.length ? filled.data : "";
        assert_true(bind_case(&c));
        out[count] = (emit_cuda_op){.op = c.op};
        for (int t = 0; t < c.op->tensor_count; t++) out[count].layout[t] = role_wish(c.op, t);
        count++;
        text_free(&filled);
    }
    return count;
}

/* One GPU of each kind: what the driver says of it. */
static const struct {
    const char *architecture;
    int major, shared_bytes;
} devices[] = {{.architecture = "sm_80", .major = 8, .shared_bytes = 166912},
               {.architecture = "sm_90a", .major = 9, .shared_bytes = 232448},
               {.architecture = "sm_100a", .major = 10, .shared_bytes = 232448},
               {.architecture = "sm_120", .major = 12, .shared_bytes = 101376}};
static role_chip chip_of(const char *architecture) {
    size_t i = 0;
    while (strcmp(devices[i].architecture, architecture)) i++;
    return role_chip_of(devices[i].major, devices[i].shared_bytes);
}

/* Everything compiles for the chips, warns of nothing, and on Hopper stays in registers. */
static void test_compiles(void **state) {
    (void)state;
    static const struct {
        const char *w, *p;
        int bm;
        const char *architecture;
        const char *without; /* no model has the projections of both llama and qwen3 */
    } units[] = {{"bf16", "bf16", 1, "sm_90a", "norm_linear_norm_rope"},
                 {"f16", "bf16", 16, "sm_90a", "norm_linear_norm_rope"},
                 {"f16", "f16", 4, "sm_90a", "norm_linear_norm_rope"},
                 {"f32", "f32", 4, "sm_90a", "norm_linear_norm_rope"},
                 {"q4_1", "bf16", 1, "sm_90a", "norm_linear_norm_rope"},
                 {"q8_0", "bf16", 4, "sm_90a", "norm_linear_norm_rope"},
                 {"q4_k", "f16", 16, "sm_90a", "norm_linear_norm_rope"},
                 {"q6_k", "bf16", 1, "sm_90a", "norm_linear_norm_rope"},
                 {"q6_k", "f32", 1, "sm_90a", "norm_linear_norm_rope"},
                 {"bf16", "bf16", 1, "sm_90a", "norm_linear_rope"},
                 {"q4_k", "f16", 16, "sm_90a", "norm_linear_rope"},
                 {"bf16", "bf16", 1, "sm_100a", "norm_linear_norm_rope"},
                 {"q4_k", "bf16", 4, "sm_100a", "norm_linear_norm_rope"},
                 {"q4_1", "bf16", 1, "sm_120", "norm_linear_norm_rope"},
                 {"bf16", "bf16", 4, "sm_90a", NULL},
                 {"bf16", "bf16", 4, "sm_80", NULL},
                 {"bf16", "bf16", 1, "sm_80", "norm_linear_norm_rope"},
                 {"q4_1", "bf16", 1, "sm_80", "norm_linear_norm_rope"},
                 {"f16", "f16", 4, "sm_100a", NULL}};
    char folder[TEMPORARY_BYTES];
    int major, minor;
    mt_error error = {0};
    if (cuda_nvrtc_version(&major, &minor, &error) != MT_OK) {
        print_message("skipped: %s\n", error.message);
        skip();
    }
    assert_true(temporary_make(folder));
    setenv("MONOTILE_CACHE", folder, 1);
    for (size_t i = 0; i < COUNT_OF(units); i++)
        for (int variant = 0; variant < (i == 0 ? 3 : 1); variant++) { /* 1: with lines; 2: traced */
            emit_cuda_op ops[64];
            text unit = {0}, cubin = {0}, log = {0};
            const role_chip chip = chip_of(units[i].architecture);
            emit_cuda_info info = {.no_lines = variant != 1, .target = &chip};
            static const char *const options[] = {"--std=c++17", "-default-device", "-DMT_TRACE"};
            const size_t count = model_ops(ops, units[i].w, units[i].p, units[i].bm, units[i].without);
            if (emit_cuda(&unit, ops, count, &info, &error)) fail_msg("%s: %s", error.where, error.message);
            const cuda_unit u = {.name = "program.cu",
                                 .text = unit.data,
                                 .architecture = units[i].architecture,
                                 .options = options,
                                 .option_count = COUNT_OF(options) - (variant != 2)};
            const mt_status status = cuda_compile(&cubin, &log, &u, &error);
            if (status == MT_E_UNSUPPORTED)
                print_message("%s: this NVRTC does not know it\n", units[i].architecture);
            else {
                if (status) fail_msg("%s %s: %s: %s", units[i].w, units[i].p, error.where, error.message);
                if (log.length && strstr(log.data, "warning")) fail_msg("%s %s: %s", units[i].w, units[i].p, log.data);
                const int64_t frame = largest_frame(&cubin);
                /* ptxas for the others, and for ops of no single product, keeps more than fits: not looked into yet. */
                const bool measured = !strcmp(units[i].architecture, "sm_90a") && units[i].without;
                if (frame < 0 || (measured && frame))
                    fail_msg("%s %s, %d rows, %s: a stack frame of %lld bytes", units[i].w, units[i].p, units[i].bm,
                             units[i].architecture, (long long)frame);
            }
            assert_true(info.scratch_bytes % 128 == 0 && info.scratch_bytes <= chip.shared);
            text_free(&unit);
            text_free(&cubin);
            text_free(&log);
        }
    temporary_remove(folder);
}

/* Without wgmma products of many rows have other code, and say why; tiles that have no room then are refused. */
static void test_no_wgmma(void **state) {
    (void)state;
    mt_error error = {0};
    for (size_t d = 0; d < COUNT_OF(devices); d++) {
        const role_chip chip = chip_of(devices[d].architecture);
        const bool hopper = devices[d].major == 9;
        for (int large = 0; large < 2; large++) {
            test_case c = {.source = "linear",
                           .constants = large ? "N=256 K=256 BM=128 BN=256 X=bf16 W=bf16 P=bf16"
                                              : "N=64 K=64 BM=64 BN=64 X=bf16 W=bf16 P=bf16"};
            role_layout layouts[TILE_PARAMS] = {0};
            role_op *r;
            text printed = {0};
            assert_true(bind_case(&c));
            for (int t = 0; t < c.op->tensor_count; t++) layouts[t] = role_wish(c.op, t);
            assert_int_equal(layouts[0], ROLE_MAPPED);
            const mt_status status = role_lower_for(case_memory, &r, c.op, layouts, &chip, &error);
            if ((large && !hopper) || devices[d].major == 12) {
                assert_int_equal(status, MT_E_UNSUPPORTED);
                assert_non_null(strstr(error.message, "which this chip lacks: compile the program for this machine"));
                continue;
            }
            if (status) fail_msg("%s: %s", devices[d].architecture, error.message);
            role_print(&printed, r);
            assert_int_equal(r->wide, hopper);
            assert_int_equal(strstr(printed.data, "no wide product: this chip has no wgmma") != NULL, !hopper);
            assert_true(r->shared_bytes <= chip.shared);
            text_free(&printed);
        }
    }
}

/* What is compiled for a kind of GPU fits it, also at many rows. */
static void test_programs_fit(void **state) {
    (void)state;
    mt_error error = {0};
    mt_model *model;
    assert_int_equal(mt_model_synthesize(&model, "llama-3.2-1b", &error), MT_OK);
    for (size_t d = 0; d < COUNT_OF(devices); d++)
        for (int rows = 1; rows <= 128; rows += 127) {
            const mt_step step = {.rows = rows, .context = 256, .cache = "f16", .products = "bf16"};
            const mt_target for_device = {.machine = "cuda", .architecture = devices[d].architecture, .processors = 64};
            const role_chip chip = chip_of(devices[d].architecture);
            program_binding b;
            role_layout *layouts;
            emit_cuda_op *ops;
            mt_graph *g;
            mt_program *p;
            arena *memory = arena_new();
            assert_int_equal(mt_model_graph(model, &step, &g, &error), MT_OK);
            assert_int_equal(mt_compile(g, &for_device, &p, &error), MT_OK);
            assert_int_equal(program_bind(p, memory, &b, &error), MT_OK);
            assert_int_equal(device_layouts(p, &b, memory, &layouts, &error), MT_OK);
            assert_int_equal(device_ops(p, &b, layouts, memory, &ops, &error), MT_OK);
            for (size_t i = 0; i < p->ops_count; i++) {
                role_op *r;
                if (role_lower_for(memory, &r, ops[i].op, ops[i].layout, &chip, &error))
                    fail_msg("%s, %d rows: %s", devices[d].architecture, rows, error.message);
            }
            arena_free(memory);
            mt_program_destroy(p);
            mt_graph_destroy(g);
        }
    mt_model_close(model);
}

/* Level 2: with copies that count bytes; with wgmma, and register budgets, on Hopper alone. */
static void test_level2(void **state) {
    (void)state;
    static const struct {
        const char *name;
        tile_constant constants[3];
        int count;
        bool wgmma;
    } programs[] = {{"matmul2", {{"N", 256, NULL}, {"K", 192, NULL}}, 2, false},
                    {"silu_mul2", {{"N", 1000, NULL}}, 1, false},
                    {"column_sums2", {{"PARTS", 4, NULL}}, 1, false},
                    {"running2", {{"", 0, NULL}}, 0, false},
                    {"matmul2_wgmma", {{"N", 256, NULL}, {"K", 192, NULL}}, 2, true},
                    {"attention2", {{"H", 4, NULL}, {"HK", 2, NULL}, {"D", 64, NULL}}, 3, false},
                    {"attention2_wgmma", {{"H", 4, NULL}, {"HK", 2, NULL}, {"D", 64, NULL}}, 3, true}};
    static const char *const options[] = {"--std=c++17", "-default-device"};
    static const char budgets[] =
        "tile budgets(x: in f32[M, 64], y: out f32[M]) over (m in ceil(M / 16)) {\n"
        " role consumer (registers = 216) { y[m*16 : +16] = reshape(sum(x[m*16 : +16, :], axis = 1), 16) }\n"
        "}\n";
    text source = {0};
    mt_error error = {0};
    tile_diagnostics diagnostics = {0};
    tile_file *file, *own;
    int major, minor;
    const bool compiles = cuda_nvrtc_version(&major, &minor, NULL) == MT_OK;
    assert_int_equal(file_read(&source, MONOTILE_SOURCE_FOLDER "/examples/level2.tile", 1 << 20, &error), MT_OK);
    assert_int_equal(tile_parse(&file, "level2.tile", source.data, source.length, &diagnostics, &error), MT_OK);
    assert_int_equal(tile_parse(&own, "own.tile", budgets, sizeof budgets - 1, &diagnostics, &error), MT_OK);
    for (size_t d = 0; d < COUNT_OF(devices); d++) {
        const role_chip chip = chip_of(devices[d].architecture);
        emit_cuda_info info = {.no_lines = true, .target = &chip};
        emit_cuda_op ops[COUNT_OF(programs) + 1] = {0};
        text unit = {0}, cubin = {0}, log = {0};
        size_t count = 0;
        for (size_t i = 0; i < COUNT_OF(programs); i++) {
            emit_cuda_op op = {0};
            text one = {0};
            assert_int_equal(tile_bind(case_memory, &op.op, file, programs[i].name, programs[i].constants,
                                       (size_t)programs[i].count, &diagnostics, &error),
                             MT_OK);
            for (int t = 0; t < op.op->tensor_count; t++) op.layout[t] = role_wish(op.op, t), op.aligned[t] = true;
            const mt_status status = emit_cuda(&one, &op, 1, &info, &error);
            text_free(&one);
            if (devices[d].major >= 9 && (devices[d].major == 9 || !programs[i].wgmma)) {
                if (status) fail_msg("%s, %s: %s", programs[i].name, devices[d].architecture, error.message);
                ops[count++] = op;
                continue;
            }
            assert_int_equal(status, MT_E_UNSUPPORTED);
            assert_non_null(
                strstr(error.message, devices[d].major < 9 ? "level 2 on this chip" : "wgmma on this chip"));
        }
        emit_cuda_op *budget = &ops[count];
        text one = {0};
        assert_int_equal(tile_bind(case_memory, &budget->op, own, "budgets", NULL, 0, &diagnostics, &error), MT_OK);
        assert_int_equal(emit_cuda(&one, budget, 1, &info, &error), devices[d].major == 9 ? MT_OK : MT_E_UNSUPPORTED);
        assert_int_equal(devices[d].major == 9 ? info.threads : CUDA_BUDGET_THREADS, CUDA_BUDGET_THREADS);
        if (devices[d].major > 9) assert_non_null(strstr(error.message, "register budgets on this chip"));
        count += devices[d].major == 9;
        text_free(&one);
        if (count && compiles) {
            assert_int_equal(emit_cuda(&unit, ops, count, &info, &error), MT_OK);
            const cuda_unit u = {.name = "program.cu",
                                 .text = unit.data,
                                 .architecture = devices[d].architecture,
                                 .options = options,
                                 .option_count = COUNT_OF(options)};
            const mt_status status = cuda_compile(&cubin, &log, &u, &error);
            if (status && status != MT_E_UNSUPPORTED)
                fail_msg("%s: %s: %s", devices[d].architecture, error.where, error.message);
            if (log.length && strstr(log.data, "warning")) fail_msg("%s: %s", devices[d].architecture, log.data);
        }
        text_free(&unit);
        text_free(&cubin);
        text_free(&log);
    }
    text_free(&source);
    text_free(&diagnostics.text);
    tile_file_free(own);
    tile_file_free(file);
}

/* An error names the op and what it is about; a mistake in the emitted code would name the line of the .tile file. */
static void test_messages(void **state) {
    (void)state;
    test_case c = {.source = "linear", .constants = "N=64 K=64 BM=512 BN=512 BK=64"};
    mt_error error = {0};
    text out = {0};
    emit_cuda_info info = {0};
    assert_true(bind_case(&c));
    const emit_cuda_op op = {.op = c.op};
    assert_int_equal(emit_cuda(&out, &op, 1, &info, &error), MT_E_UNSUPPORTED);
    assert_non_null(strstr(error.message, "linear"));
    assert_non_null(strstr(error.message, "bytes of shared memory"));
    test_case good = {.source = "norm_linear", .constants = "N=64 K=64 BM=1 BN=8 W=bf16 P=bf16"};
    assert_true(bind_case(&good));
    emit_cuda_op twice[2] = {{.op = good.op, .layout = {[2] = ROLE_ATOMS}},
                             {.op = good.op, .layout = {[2] = ROLE_ATOMS}}};
    text a = {0}, b = {0};
    assert_int_equal(emit_cuda(&a, twice, 2, &info, &error), MT_OK);
    assert_int_equal(emit_cuda(&b, twice, 2, &info, &error), MT_OK);
    assert_string_equal(a.data, b.data);
    assert_non_null(strstr(a.data, "#line 8 \"norm_linear.tile\""));
    assert_non_null(strstr(a.data, "\"program.cu\""));
    text_free(&a);
    text_free(&b);
    text_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers),  cmocka_unit_test(test_compiles),
                                       cmocka_unit_test(test_no_wgmma), cmocka_unit_test(test_programs_fit),
                                       cmocka_unit_test(test_level2),   cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, cuda_setup, cuda_cases_end);
}
