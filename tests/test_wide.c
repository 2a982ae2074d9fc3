/* Wide products: what becomes one, and why the rest does not; their numbers on the simulator against the interpreter,
 * at odd sizes; the code compiles for Hopper, stays in registers, and ptxas sees no reason to serialise it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_harness.h"
#include "machine/cuda/nvrtc.h"
#include "unit_text.h"

static const char *keep(const char *format, ...) PRINTF_LIKE(1, 2);
static const char *keep(const char *format, ...) {
    static char store[400][700];
    static int used;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(store[used], sizeof store[0], format, arguments);
    va_end(arguments);
    return store[used++];
}

static void add_cases(void) {
    static const struct {
        int m, n, k, bm, bn, bk;
        const char *p;
    } sizes[] = {{64, 64, 64, 64, 64, 64, "bf16"},      {65, 200, 200, 64, 64, 1024, "f16"},
                 {1, 8, 8, 64, 128, 64, "bf16"},        {130, 72, 520, 128, 64, 256, "f16"},
                 {127, 300, 136, 128, 128, 64, "bf16"}, {70, 130, 72, 64, 256, 64, "bf16"},
                 {129, 257, 328, 128, 256, 128, "bf16"}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int m = sizes[i].m, n = sizes[i].n, k = sizes[i].k;
        add_case(keep("wide linear %dx%dx%d by %dx%d", m, n, k, sizes[i].bm, sizes[i].bn), "linear",
                 keep("N=%d K=%d BM=%d BN=%d BK=%d X=%s W=%s P=%s", n, k, sizes[i].bm, sizes[i].bn, sizes[i].bk,
                      sizes[i].p, sizes[i].p, sizes[i].p),
                 keep("x %d %d; w %d %d; y %d %d", m, k, n, k, m, n), 1e-2);
    }
    static const struct {
        int m, n, k, parts, bm, bn;
        const char *p;
    } split[] = {{70, 130, 600, 2, 64, 128, "bf16"}, /* the last part: two steps, the second not whole */
                 {129, 72, 1000, 4, 128, 64, "f16"},
                 {5, 257, 776, 2, 64, 256, "bf16"},
                 {130, 260, 520, 16, 128, 256, "f16"}, /* more parts than pieces of columns */
                 {64, 64, 200, 2, 64, 64, "bf16"}};    /* one part */
    for (size_t i = 0; i < COUNT_OF(split); i++) {
        const int m = split[i].m, n = split[i].n, k = split[i].k, pieces = (k + 255) / 256,
                  columns = (pieces + split[i].parts - 1) / split[i].parts * 256;
        add_case(keep("wide linear in parts %dx%dx%d by %dx%d", m, n, k, split[i].bm, split[i].bn), "linear_part",
                 keep("N=%d K=%d PARTS=%d BM=%d BN=%d X=%s W=%s P=%s", n, k, split[i].parts, split[i].bm, split[i].bn,
                      split[i].p, split[i].p, split[i].p),
                 keep("x %d %d; w %d %d; part %d %d %d", m, k, n, k, (k + columns - 1) / columns, m, n), 1e-2);
    }
    add_case("wide two products, the columns' second half",
             "tile t(x: in bf16[M, 200], a: in bf16[N, 200], b: in bf16[N, 200], y: out f32[M, N]) over (n in ceil(N / "
             "64), m in ceil(M / 64)) { p: f32[64, 64] = 0; q: f32[64, 64] = 0; for k in stream(1..4) { t = x[m*64 : "
             "+64, 64 + k*64 : +64]; p += dot(t, a[n*64 : +64, 64 + k*64 : +64].T); q += dot(t, b[n*64 : +64, 64 + "
             "k*64 : +64].T) }; y[m*64 : +64, n*64 : +64] = p - q }",
             "", "x 140 200; a 70 200; b 70 200; y 140 70", 1e-3);
    add_case("wide two products",
             "tile t(x: in bf16[M, 136], a: in bf16[N, 136], b: in bf16[N, 136], r: in f32[M, N], g: in f16[N], y: out "
             "f32[M, N]) over (n in ceil(N / 128), m in ceil(M / 128)) { p: f32[128, 128] = 0; q: f32[128, 128] = 0; "
             "for k in stream(ceil(136 / 64)) { t = x[m*128 : +128, k*64 : +64]; p += dot(t, a[n*128 : +128, k*64 : "
             "+64].T); q += dot(t, b[n*128 : +128, k*64 : +64].T) }; y[m*128 : +128, n*128 : +128] = p / (1 + exp(-p)) "
             "* q + r[m*128 : +128, n*128 : +128] * f32(g[n*128 : +128]) }",
             "", "x 140 136; a 150 136; b 150 136; r 140 150; g 150; y 140 150", 1e-3);
    add_case("wide into a cache, and a copy",
             "tile t(pos: live i32, x: in f16[M, 64], w: in f16[192, 64], c: out f16[S, 3, 64], y: out bf16[M, 192]) "
             "over (h in 3, m in ceil(M / 64)) { p: f32[64, 64] = 0; for k in stream(1) { p += dot(x[m*64 : +64, k*64 "
             ": +64], w[h*64 : +64, k*64 : +64].T) }; c[pos + m*64 : +64 < pos + M, h, :] = f16(p * 2); y[m*64 : +64, "
             "h*64 : +64] = bf16(where(p > 0, p, 0)) }",
             "", "x 70 64; w 192 64; c 100 3 64; y 70 192", 1e-2)
        ->lives[0] = 7;
    add_case("wide, live rows",
             "tile t(n: live i32, x: in bf16[n, 64], w: in bf16[64, 64], y: out f32[n, 64]) over (m in ceil(n / 64)) { "
             "p: f32[64, 64] = 0; for k in stream(1) { p += dot(x[m*64 : +64, k*64 : +64], w[0 : +64, k*64 : +64].T) "
             "}; y[m*64 : +64, :] = p }",
             "", "x 150 64; w 64 64; y 150 64", 1e-3)
        ->lives[0] = 90;
}

/* Weights of block formats: chunks of 64, 128 and 256 columns; a last chunk that is not whole; several bands, the last
 * one narrower; rows at the end; two products. */
static void add_packed(void) {
    static const struct {
        const char *w;
        int m, n, k, bm, bn;
        const char *p;
    } sizes[] = {{"q4_1", 64, 64, 64, 64, 64, "f16"},
                 {"q8_0", 130, 300, 96, 128, 256, "f16"},
                 {"q8_0", 20, 70, 3616, 64, 64, "bf16"},
                 {"q4_0", 65, 130, 352, 64, 128, "f16"},
                 {"q4_1", 129, 257, 320, 128, 256, "f16"},
                 {"q5_1", 63, 200, 224, 64, 256, "bf16"},
                 {"q4_1", 127, 65, 192, 128, 64, "bf16"},
                 {"q4_k", 70, 130, 512, 64, 128, "f16"},
                 {"q6_k", 130, 130, 768, 128, 128, "f16"},
                 {"q3_k", 3, 60, 256, 128, 64, "bf16"},
                 {"i4_group128", 66, 256, 384, 64, 256, "f16"},
                 {"u4_group64", 66, 130, 192, 128, 128, "f16"},
                 {"e4m3_block128", 65, 140, 256, 128, 128, "bf16"},
                 {"mxfp4", 30, 72, 160, 64, 128, "f16"}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int m = sizes[i].m, n = sizes[i].n, k = sizes[i].k;
        add_case(keep("packed linear %s %dx%dx%d by %dx%d", sizes[i].w, m, n, k, sizes[i].bm, sizes[i].bn), "linear",
                 keep("N=%d K=%d BM=%d BN=%d BK=256 X=%s T=f32 W=%s P=%s", n, k, sizes[i].bm, sizes[i].bn, sizes[i].p,
                      sizes[i].w, sizes[i].p),
                 keep("x %d %d; w %d %d; y %d %d", m, k, n, k, m, n), 5e-4);
    }
    static const struct {
        const char *w;
        int m, n, k, parts, bm, bn;
        const char *p;
    } split[] = {{"q8_0", 66, 130, 608, 2, 64, 128, "f16"},     {"q4_1", 129, 257, 1056, 3, 128, 256, "f16"},
                 {"q4_k", 70, 130, 1536, 3, 64, 128, "f16"},    {"q6_k", 130, 72, 1792, 4, 128, 64, "bf16"},
                 {"i4_group128", 3, 70, 896, 2, 64, 64, "f16"}, {"q8_0", 20, 70, 3616, 8, 128, 64, "bf16"}};
    for (size_t i = 0; i < COUNT_OF(split); i++) {
        const int m = split[i].m, n = split[i].n, k = split[i].k, pieces = (k + 255) / 256,
                  columns = (pieces + split[i].parts - 1) / split[i].parts * 256;
        add_case(keep("packed linear in parts %s %dx%dx%d by %dx%d", split[i].w, m, n, k, split[i].bm, split[i].bn),
                 "linear_part",
                 keep("N=%d K=%d PARTS=%d BM=%d BN=%d X=%s W=%s P=%s", n, k, split[i].parts, split[i].bm, split[i].bn,
                      split[i].p, split[i].w, split[i].p),
                 keep("x %d %d; w %d %d; part %d %d %d", m, k, n, k, (k + columns - 1) / columns, m, n), 5e-4);
    }
    add_case("packed swiglu", "swiglu", "N=150 K=288 BM=64 BN=128 BK=1024 X=f16 T=f16 A=q4_1 B=q4_1 P=f16",
             "x 70 288; gate 150 288; up 150 288; y 70 150", 1e-2);
    add_case("packed swiglu, long blocks", "swiglu", "N=70 K=512 BM=128 BN=64 BK=1024 X=f16 T=f16 A=q4_k B=q4_k P=f16",
             "x 130 512; gate 70 512; up 70 512; y 130 70", 1e-2);
    add_case("packed linear_add", "linear_add", "N=72 K=160 BM=64 BN=64 X=f16 T=f32 W=q8_0 P=f16",
             "x 65 160; w 72 160; r 65 72; y 65 72", 5e-4);
}

/* What lies beyond a live extent counts as zero, whatever the map says. */
static void add_live(void) {
    add_case("wide, live rows, into a longer tensor",
             "tile t(n: live i32, x: in bf16[n, 64], w: in bf16[64, 64], y: out f32[R, 64]) over (m in ceil(R / 64)) { "
             "p: f32[64, 64] = 0; for k in stream(1) { p += dot(x[m*64 : +64, k*64 : +64], w[0 : +64, k*64 : +64].T) "
             "}; y[m*64 : +64, :] = p + 1 }",
             "", "x 150 64; w 64 64; y 150 64", 1e-3)
        ->lives[0] = 90;
}

static void add_attention(void) {
    add_case("wide attention", "attention", "H=8 HK=2 D=64 BM=32 C=f16 P=f16",
             "q 70 8 64; kc 150 2 64; vc 150 2 64; y 70 8 64", 5e-3)
        ->lives[0] = 37;
    cases[case_count - 1].args[0] = 0.125;
    add_case("wide attention, long heads", "attention", "H=2 HK=2 D=128 BM=128 C=bf16 P=bf16",
             "q 130 2 128; kc 200 2 128; vc 200 2 128; y 130 2 128", 3e-2)
        ->lives[0] = 0;
    cases[case_count - 1].args[0] = 0.1;
    add_case("wide attention, heads of as many pages as every SM has", "attention",
             "H=2 HK=1 D=192 BM=64 C=bf16 P=bf16", "q 70 2 192; kc 150 1 192; vc 150 1 192; y 70 2 192", 3e-2)
        ->lives[0] = 65;
    cases[case_count - 1].args[0] = 0.05;
    add_case("wide attention, long blocks", "attention", "H=4 HK=2 D=64 BM=64 BS=128 C=f16 P=f16",
             "q 65 4 64; kc 300 2 64; vc 300 2 64; y 65 4 64", 5e-3)
        ->lives[0] = 211;
    cases[case_count - 1].args[0] = 0.125;
}

static void add_live_attention(void) {
    add_case(
        "wide attention, a live extent",
        "tile t(n: live i32, q: in f32[M, 64], kc: in f16[n, 64], vc: in f16[n, 64], y: out f32[M, 64]) over (m in "
        "ceil(M / 128)) { queries = f16(q[m*128 : +128, :]); most: f32[128, 1] = 0; acc: f32[128, 64] = 0; for j in "
        "stream(ceil(n / 64)) { s = dot(queries, kc[j*64 : +64, :].T); most = max(most, max(s, axis = 1)); acc = "
        "acc + dot(f16(1 + s * 0.1), vc[j*64 : +64, :]) }; y[m*128 : +128, :] = acc + most }",
        "", "q 130 64; kc 150 64; vc 150 64; y 130 64", 1e-2)
        ->lives[0] = 90;
}

/* Where the sums in a condition wrap, no bound of them says anything: in a dividend, in sums of constants. */
static void add_masks(void) {
    static const char *const conditions[] = {"(keys + 2147483500) / 2 > at", "at + 2147483500 >= keys - 64",
                                             "at + 2147483600 - n + n >= keys", "keys / 2 <= at + n"};
    for (size_t i = 0; i < COUNT_OF(conditions); i++)
        add_case(keep("wide attention, where %s", conditions[i]),
                 keep("tile t(n: live i32, q: in f16[M, 64], kc: in f16[S, 64], vc: in f16[S, 64], y: out f32[M, 64]) "
                      "over (m in ceil(M / 128)) { most: f32[128, 1] = -5; acc: f32[128, 64] = 0; at = "
                      "reshape(iota(128), 128, 1); for j in stream(ceil(S / 64)) { keys = j*64 + iota(64); s = "
                      "where(%s, dot(q[m*128 : +128, :], kc[j*64 : +64, :].T), 0.5); most = max(most, max(s, axis = "
                      "1)); acc = acc + dot(f16(s), vc[j*64 : +64, :]) }; y[m*128 : +128, :] = acc + most }",
                      conditions[i]),
                 "", "q 140 64; kc 200 64; vc 200 64; y 140 64", 1e-2)
            ->lives[0] = 100;
}

static bool is_named(const cuda_case *k, const char *beginning) {
    return !strncmp(k->c->name, beginning, strlen(beginning));
}

static int set_up(void **state) {
    (void)state;
    if (!cuda_cases_begin()) return -1;
    add_cases();
    add_packed();
    add_live();
    add_attention();
    add_live_attention();
    add_masks();
    case_memory = arena_new();
    for (int i = 0; i < case_count; i++) {
        if (!bind_case(&cases[i])) return -1;
        cuda_case *k = &cuda_cases[cuda_case_count++];
        *k = (cuda_case){.c = &cases[i], .op = {.op = cases[i].op}};
        for (int t = 0; t < cases[i].op->tensor_count; t++) k->op.layout[t] = role_wish(cases[i].op, t);
    }
    return case_memory ? 0 : -1;
}

/* ---- the lowered form ---- */

/* All pages of a slice are held at once: a long head's would be more than an SM may have. */
static void test_long_heads(void **state) {
    (void)state;
    test_case c = {.source = "attention", .constants = "H=4 HK=1 D=256 BM=32 C=bf16 P=bf16"};
    role_wide_needs w;
    assert_true(bind_case(&c));
    assert_false(role_has_wide(c.op, &w));
}

static bool is_wide(const char *source, const char *constants) {
    test_case c = {.source = (char *)source, .constants = constants};
    role_wide_needs w;
    if (!bind_case(&c)) fail_msg("%s: does not bind", source);
    const bool wide = role_has_wide(c.op, &w);
    if (wide) assert_true(w.mapped[0] && w.weight[1] && !w.weight[0] && !w.mapped[1]);
    return wide;
}

/* `tile show` says why not. */
static void is_not_wide(const char *source, const char *constants, const char *why) {
    test_case c = {.source = (char *)source, .constants = constants};
    if (is_wide(source, constants) || !bind_case(&c)) fail_msg("%s, %s: is wide", source, constants);
    emit_cuda_op op = {.op = c.op};
    text shown = {0};
    mt_error error = {0};
    for (int i = 0; i < c.op->tensor_count; i++) op.layout[i] = role_wish(c.op, i);
    const bool good = emit_cuda_one(&shown, &op, &error) == MT_OK; /* or it cannot be lowered at all */
    const char *line = strstr(good ? shown.data : error.message, "not wide: ");
    if (why ? !line || !strstr(line, why) : line != NULL)
        fail_msg("%s, %s: %.200s; expected %s", source, constants, line ? line : "no reason", why ? why : "none");
    text_free(&shown);
}

static void test_lowering(void **state) {
    (void)state;
    for (int i = 0; i < cuda_case_count; i++) {
        role_op *r;
        text t = {0};
        mt_error error = {0};
        const bool tiles = starts_with(cuda_cases[i].c, "wide") && strstr(cuda_cases[i].c->name, "attention");
        if (tiles) {
            assert_int_equal(cuda_cases[i].op.layout[0], ROLE_ROWS);
            assert_int_equal(cuda_cases[i].op.layout[1], ROLE_MAPPED);
            assert_int_equal(cuda_cases[i].op.layout[2], ROLE_MAPPED);
            assert_int_equal(role_lower(case_memory, &r, cuda_cases[i].c->op, cuda_cases[i].op.layout, &error), MT_OK);
            role_print(&t, r);
            if (getenv("WIDE_PRINT")) fprintf(stderr, "%s", t.data);
            assert_true(r->wide && r->page_count == 2 && strstr(t.data, "four lanes an element"));
            if (!strcmp(cuda_cases[i].op.op->name, "attention"))
                assert_non_null(strstr(t.data, "in fragments; no mask where "));
            text_free(&t);
            continue;
        }
        const bool packed = starts_with(cuda_cases[i].c, "packed");
        assert_int_equal(cuda_cases[i].op.layout[0], ROLE_MAPPED);
        assert_int_equal(cuda_cases[i].op.layout[1], packed ? ROLE_BANDS : ROLE_ATOMS);
        assert_int_equal(role_lower(case_memory, &r, cuda_cases[i].c->op, cuda_cases[i].op.layout, &error), MT_OK);
        assert_true(r->wide && r->page_count == 1 && !r->shared_bytes == !packed);
        role_print(&t, r);
        if (getenv("WIDE_PRINT")) fprintf(stderr, "%s", t.data);
        assert_true(!strstr(t.data, " decoded in chunks of ") == !packed);
        assert_null(strstr(t.data, "not wide"));
        assert_non_null(strstr(t.data, "= wide dot(x["));
        assert_non_null(strstr(t.data, "pages when the operands are ready"));
        text_free(&t);
        role_layout plain[TILE_PARAMS] = {ROLE_ROWS}; /* an operand that the chip cannot map, a weight in rows */
        for (int which = 0; which < 2; which++) {
            memcpy(plain, cuda_cases[i].op.layout, sizeof plain);
            plain[which] = ROLE_ROWS;
            if (role_lower(case_memory, &r, cuda_cases[i].c->op, plain, &error) == MT_OK) assert_false(r->wide);
        }
    }
    assert_true(is_wide("linear", "N=512 K=512 BM=64 BN=64 X=bf16 W=bf16 P=bf16"));
    is_not_wide("linear", "N=512 K=512 BM=16 BN=64 X=bf16 W=bf16 P=bf16", NULL); /* few rows */
    is_not_wide("linear", "N=512 K=512 BM=64 BN=32 X=bf16 W=bf16 P=bf16", "64, 128 or 256 columns, not 32");
    is_not_wide("linear", "N=512 K=512 BM=64 BN=64 X=f32 W=bf16 P=bf16",
                "the left operand is no slice of a tensor of bf16");
    assert_false(is_wide("linear", "N=512 K=512 BM=64 BN=64 X=bf16 W=f16 P=bf16")); /* w is to be rounded */
    assert_true(is_wide("linear", "N=512 K=512 BM=64 BN=64 X=bf16 W=q8_0 P=bf16"));
    assert_true(is_wide("linear", "N=512 K=512 BM=128 BN=128 X=f16 W=q6_k P=f16"));
    is_not_wide("linear", "N=512 K=512 BM=128 BN=256 X=f16 W=q6_k P=f16",
                "weights in q6_k: so many decoded rows have no room in shared memory");
    is_not_wide("linear", "N=512 K=500 BM=64 BN=64 X=bf16 W=bf16 P=bf16",
                "rows of 500 elements are no multiple of 16 bytes");
    is_not_wide("norm_linear", "N=512 K=512 BM=64 BN=64 T=bf16 W=bf16 P=bf16", "the left operand is no slice");
    static const char *const others[] = {
        /* a reduction of the sums; elements at other places; more sums than registers; two left operands */
        "tile t(x: in bf16[M, 64], w: in bf16[N, 64], y: out f32[M, 1]) over (m in ceil(M / 64)) { p: f32[64, 64] = 0; "
        "for k in stream(1) { p += dot(x[m*64 : +64, k*64 : +64], w[0 : +64, k*64 : +64].T) }; y[m*64 : +64, :] = "
        "sum(p, 1) }",
        "tile t(x: in bf16[M, 64], w: in bf16[N, 64], y: out f32[N, M]) over (m in ceil(M / 64)) { p: f32[64, 64] = 0; "
        "for k in stream(1) { p += dot(x[m*64 : +64, k*64 : +64], w[0 : +64, k*64 : +64].T) }; y[0 : +64, m*64 : +64] "
        "= p.T }",
        "tile t(x: in bf16[M, 64], w: in bf16[N, 64], v: in bf16[N, 64], y: out f32[M, N]) over (m in ceil(M / 128)) { "
        "p: f32[128, 256] = 0; q: f32[128, 256] = 0; for k in stream(1) { p += dot(x[m*128 : +128, k*64 : +64], w[0 : "
        "+256, k*64 : +64].T); q += dot(x[m*128 : +128, k*64 : +64], v[0 : +256, k*64 : +64].T) }; y[m*128 : +128, 0 : "
        "+256] = p + q }",
        "tile t(x: in bf16[M, 64], z: in bf16[M, 64], w: in bf16[N, 64], y: out f32[M, N]) over (m in ceil(M / 64)) { "
        "p: f32[64, 64] = 0; q: f32[64, 64] = 0; for k in stream(1) { p += dot(x[m*64 : +64, k*64 : +64], w[0 : +64, "
        "k*64 : +64].T); q += dot(z[m*64 : +64, k*64 : +64], w[0 : +64, k*64 : +64].T) }; y[m*64 : +64, 0 : +64] = p + "
        "q }"};
    static const char *const whys[] = {"line 1: the sums lie in registers, and this is not done there",
                                       "line 1: the sums lie in registers",
                                       "so many sums have no room in registers: 2 x 128 x 256", "one left operand"};
    for (size_t i = 0; i < COUNT_OF(others); i++) is_not_wide(others[i], "", whys[i]);
}

/* ---- numbers ---- */

static void test_numbers(void **state) {
    (void)state;
    int failed = 0;
    if (unit_no_compiler()) skip();
    assert_true(build_chunk(0, cuda_case_count));
    for (int i = 0; i < cuda_case_count; i++) {
        char what[1100];
        random_begin(cuda_cases[i].c);
        if (check_cuda(&cuda_cases[i], what, sizeof what)) continue;
        failed++;
        print_message("%s: %s\n", cuda_cases[i].c->name, what);
    }
    assert_int_equal(failed, 0);
}

/* ---- seeded bugs: what must hold when weights are decoded beside products ---- */

static void test_bugs(void **state) {
    (void)state;
    static const struct {
        const char *one, *from, *to, *found;
    } bugs[] = {
        /* products begin before all have decoded */
        {"packed linear q4_1 127", "mt_sync();\n            buffer = next;", "buffer = next;", "race"},
        {"packed linear q4_1 127", "mt_sync();\n        const bool deep", "const bool deep", "race"},
        /* a chunk is decoded to where another one is multiplied; its page is given back */
        {"packed linear q4_1 127", "buffer < 16384 ? buffer + 8192 : 0", "buffer", "proxy"},
        {"packed linear q6_k", "mt_wgmma_wait<1>() : mt_wgmma_wait<0>()", "mt_wgmma_wait<1>() : mt_wgmma_wait<1>()",
         "page"},
        /* wgmma does not know what plain stores wrote */
        {"packed linear q4_1 127", "mt_fence_shared();\n            mt_sync();", "mt_sync();", "proxy"},
        {"packed linear q4_1 127", "mt_fence_shared();\n        mt_sync();", "mt_sync();", "proxy"},
        /* the copy engine does not take what begins anywhere */
        {"packed linear q4_1 127", " & ~15;", ";", "misuse"},
        {"packed linear q6_k", " & ~15;", ";", "misuse"},
        /* a page of packed rows is not given back, or has other bytes */
        {"packed linear q4_1 127", "mt_packed_page<1, 48, 64>", "mt_packed_page<1, 80, 64>", "deadlock"},
    };
    for (size_t i = 0; i < COUNT_OF(bugs); i++) {
        unit_edit e = {bugs[i].from, bugs[i].to, 0};
        char what[1100];
        int at = 0;
        while (!is_named(&cuda_cases[at], bugs[i].one)) at++;
        cuda_sim()->edit = unit_edit_apply;
        cuda_sim()->edit_context = &e;
        const bool built = build_chunk(at, at + 1);
        cuda_sim()->edit = NULL;
        assert_true(built);
        if (!e.done) fail_msg("the code has no '%s'", bugs[i].from);
        random_begin(cuda_cases[at].c);
        test_tensor tensors[CASE_TENSORS];
        const int count = tensors_make(cuda_cases[at].c, tensors);
        const bool ran = run_cuda(&cuda_cases[at], tensors, count, 5, what, sizeof what);
        tensors_free(tensors, count);
        if (ran || strncmp(what, bugs[i].found, strlen(bugs[i].found)))
            fail_msg("with %s: %s, expected %s", bugs[i].to, ran ? "it runs" : what, bugs[i].found);
    }
}

/* ---- code ---- */

/* All cases but those with packed weights; or, of these, one of each kind of chunk and one of two products. */
static void check_compiles(bool packed, bool traced) {
    static const char *const some[] = {
        "packed linear q4_1 129",     "packed linear q8_0 20", "packed linear q6_k",
        "packed linear i4_group128",  "packed swiglu",         "packed linear in parts q8_0 66",
        "packed linear in parts q4_k"};
    emit_cuda_op ops[CUDA_CHUNK];
    size_t count = 0;
    text unit = {0}, cubin = {0}, log = {0};
    mt_error error = {0};
    emit_cuda_info info = {.no_lines = true};
    static const char *const options[] = {"--std=c++17", "-default-device", "-DMT_TRACE"};
    for (int i = 0; i < cuda_case_count; i++) {
        bool taken = !packed && !starts_with(cuda_cases[i].c, "packed");
        for (size_t s = 0; packed && s < COUNT_OF(some); s++) taken |= is_named(&cuda_cases[i], some[s]);
        if (taken) ops[count++] = cuda_cases[i].op;
    }
    assert_int_equal(emit_cuda(&unit, ops, count, &info, &error), MT_OK);
    const cuda_unit u = {.name = "program.cu",
                         .text = unit.data,
                         .architecture = "sm_90a",
                         .options = options,
                         .option_count = COUNT_OF(options) - !traced};
    if (getenv("WIDE_DUMP")) file_write_atomic(getenv("WIDE_DUMP"), unit.data, unit.length, NULL);
    if (cuda_compile(&cubin, &log, &u, &error)) fail_msg("%s: %s", error.where, error.message);
    if (log.length && (strstr(log.data, "warning") || strstr(log.data, "serialized"))) fail_msg("%s", log.data);
    text_free(&unit);
    text_free(&cubin);
    text_free(&log);
}

static void test_compiles(void **state) {
    (void)state;
    int major, minor;
    mt_error error = {0};
    if (cuda_nvrtc_version(&major, &minor, &error) != MT_OK) {
        print_message("skipped: %s\n", error.message);
        skip();
    }
    check_compiles(false, false);
    check_compiles(false, true);
    check_compiles(true, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lowering), cmocka_unit_test(test_long_heads),
                                       cmocka_unit_test(test_numbers), cmocka_unit_test(test_bugs),
                                       cmocka_unit_test(test_compiles)};
    if (getenv("WIDE_TEST")) cmocka_set_test_filter(getenv("WIDE_TEST"));
    return cmocka_run_group_tests(tests, set_up, cuda_cases_end);
}
