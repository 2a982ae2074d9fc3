/* The cases of test_emit.c, by what they are about: operators, casts, packed elements, reductions, dots, slices,
 * shapes, statements. */
#ifndef EMIT_CASES_H
#define EMIT_CASES_H

#include "emit_harness.h"

static const char *const F32_UNARY[] = {"-v",     "abs(v)",  "exp(v)",  "exp2(v)",  "log(v)",   "log2(v)", "sin(v)",
                                        "cos(v)", "tanh(v)", "sqrt(v)", "rsqrt(v)", "floor(v)", "ceil(v)", "round(v)"};

static inline void add_elementwise(void) {
    static const char *const float_binary[] = {"a + b", "a - b", "a * b", "a / b", "min(a, b)", "max(a, b)"};
    static const char *const int_binary[] = {"a + b",       "a - b",         "a * b",        "a / b", "a % b",
                                             "ceil(a / b)", "min(a, b)",     "max(a, b)",    "a & b", "a | b",
                                             "a ^ b",       "a << (b & 31)", "a >> (b & 31)"};
    static const char *const compare[] = {"==", "!=", "<", "<=", ">", ">="};
    static const char *const ints[] = {"i32", "u32", "i64"}, *const all[] = {"f32", "f64", "i32", "u32", "i64"};
    char source[1024], name[96];
    for (size_t i = 0; i < COUNT_OF(F32_UNARY); i++)
        for (int wide = 0; wide < 2; wide++) {
            const char *type = wide ? "f64" : "f32";
            snprintf(source, sizeof source,
                     "tile t(x: in %s[M, 21], y: out %s[M, 21]) over (r in ceil(M / 2)) { v = x[r*2 : +2, :]; y[r*2 : "
                     "+2, :] = %s }",
                     type, type, F32_UNARY[i]);
            snprintf(name, sizeof name, "elementwise %s %s", type, F32_UNARY[i]);
            add_case(name, source, "", "x 5 21; y 5 21", 1e-6);
            snprintf(name, sizeof name, "elementwise special %s %s", type, F32_UNARY[i]);
            if (!strstr(F32_UNARY[i], "sin") && !strstr(F32_UNARY[i], "cos"))
                add_case(name, source, "", "x 50 21 special; y 50 21", 1e-6);
        }
    for (size_t i = 0; i < COUNT_OF(float_binary); i++)
        for (int wide = 0; wide < 2; wide++) {
            const char *type = wide ? "f64" : "f32";
            snprintf(source, sizeof source,
                     "tile t(x: in %s[M, 9], z: in %s[M, 9], y: out %s[M, 9]) over (r in ceil(M / 2)) { a = x[r*2 : "
                     "+2, :]; b = z[r*2 : +2, :]; y[r*2 : +2, :] = %s }",
                     type, type, type, float_binary[i]);
            snprintf(name, sizeof name, "elementwise %s %s", type, float_binary[i]);
            add_case(name, source, "", "x 50 9 special; z 50 9 special; y 50 9", 1e-9);
        }
    for (size_t i = 0; i < COUNT_OF(int_binary); i++)
        for (size_t t = 0; t < COUNT_OF(ints); t++) {
            snprintf(source, sizeof source,
                     "tile t(x: in %s[M, 9], z: in %s[M, 9], y: out %s[M, 9]) over (r in ceil(M / 2)) { a = x[r*2 : "
                     "+2, :]; b = z[r*2 : +2, :]; y[r*2 : +2, :] = %s }",
                     ints[t], ints[t], ints[t], int_binary[i]);
            snprintf(name, sizeof name, "elementwise %s %s", ints[t], int_binary[i]);
            add_case(name, source, "", "x 50 9; z 50 9; y 50 9", 0);
            /* by constants, which are compiled in another way */
            if (i < 6 || i > 10) {
                const char *op = int_binary[i];
                char constant[64];
                snprintf(constant, sizeof constant,
                         i == 5    ? "ceil(a / 7)"
                         : i == 11 ? "a << 5"
                         : i == 12 ? "a >> 5"
                                   : "a %c 7",
                         op[2]);
                snprintf(source, sizeof source,
                         "tile t(x: in %s[M, 9], y: out %s[M, 9]) over (r in ceil(M / 2)) { a = x[r*2 : +2, :]; y[r*2 "
                         ": +2, :] = %s }",
                         ints[t], ints[t], constant);
                snprintf(name, sizeof name, "elementwise constant %s %s", ints[t], constant);
                add_case(name, source, "", "x 50 9; y 50 9", 0);
            }
        }
    for (size_t i = 0; i < COUNT_OF(compare); i++)
        for (size_t t = 0; t < COUNT_OF(all); t++) {
            snprintf(source, sizeof source,
                     "tile t(x: in %s[M, 19], z: in %s[M, 19], y: out %s[M, 19], q: out bool[M, 19]) over (r in ceil(M "
                     "/ 2)) {\n"
                     " a = x[r*2 : +2, :]; b = z[r*2 : +2, :]; c = a %s b or not (a < a)\n y[r*2 : +2, :] = where(a %s "
                     "b, a, b); q[r*2 : +2, :] = c and a %s b }",
                     all[t], all[t], all[t], compare[i], compare[i], compare[i]);
            snprintf(name, sizeof name, "elementwise compare %s %s", all[t], compare[i]);
            add_case(name, source, "",
                     t < 2 ? "x 20 19 special; z 20 19 in -1 1; y 20 19; q 20 19"
                           : "x 20 19 in 0 3; z 20 19 in 0 3; y 20 19; q 20 19",
                     0);
        }
    for (size_t t = 2; t < COUNT_OF(all); t++) {
        snprintf(
            source, sizeof source,
            "tile t(x: in %s[M, 9], y: out %s[M, 9]) over (r in M) { v = x[r : +1, :]; y[r : +1, :] = abs(v) - (-v) }",
            all[t], all[t]);
        add_case("elementwise abs", source, "", "x 50 9; y 50 9", 0);
    }
    add_case("elementwise broadcast",
             "tile t(a: in f32[4, 1], b: in f32[9], c: in f32[2, 1, 9], s: arg f32, y: out f32[2, 4, 9]) over (i in 1) "
             "{ y[:] = a * b + c * s - b }",
             "", "a 4 1; b 9; c 2 1 9; y 2 4 9", 1e-6)
        ->args[0] = 0.37;
    add_case("elementwise broadcast stretched",
             "tile t(b: in f32[9], y: out f32[3, 4, 9], z: out f32[3, 4, 9]) over (i in 1) { y[:] = b; z[:] = f32[3, "
             "4, 9](2.5) }",
             "", "b 9; y 3 4 9; z 3 4 9", 0);
    add_case("elementwise integers args",
             "tile t(x: in i32[M], n: arg i32, k: arg f32, y: out f32[M]) over (i in ceil(M / 4)) { y[i*4 : +4] = "
             "f32(x[i*4 : +4] + n) * k }",
             "", "x 10 in -9 9; y 10", 1e-6)
        ->args[0] = -3;
    cases[case_count - 1].args[1] = 0.25;
    add_case("elementwise bool",
             "tile t(x: in bool[M, 7], z: in bool[M, 7], y: out bool[M, 7]) over (i in M) { a = x[i, :]; b = z[i, :]; "
             "y[i, :] = (a or b) and not (a == b) }",
             "", "x 9 7; z 9 7; y 9 7", 0);
    add_case(
        "elementwise bits",
        "tile t(x: in f32[M, 7], u: in u32[M, 7], y: out u32[M, 7], z: out f32[M, 7], w: out f32[M, 7]) over (i in M) "
        "{ b = bits(x[i, :]); y[i, :] = b; z[i, :] = bits(u[i, :]); w[i, :] = bits(b & 0x7fffffff) }",
        "", "x 50 7 special; u 50 7; y 50 7; z 50 7; w 50 7", 0);
}

static inline void add_casts(void) {
    static const char *const small[] = {"bool", "i1",   "u1",   "i2",   "u2",   "i3",   "u3",   "i4",   "u4",   "i5",
                                        "u5",   "i6",   "u6",   "i7",   "u7",   "i8",   "u8",   "e1m1", "e2m0", "e1m2",
                                        "e2m1", "e3m0", "e1m3", "e2m2", "e3m1", "e4m0", "e1m4", "e2m3", "e3m2", "e4m1",
                                        "e5m0", "e1m5", "e2m4", "e3m3", "e4m2", "e5m1", "e6m0", "e1m6", "e2m5", "e3m4",
                                        "e4m3", "e5m2", "e6m1", "e7m0", "e8m0", "f16",  "bf16", "i16",  "u16"};
    char source[1024], name[96];
    for (size_t i = 0; i < COUNT_OF(small); i++) {
        const char *t = small[i];
        const bool is_bool = i == 0;
        snprintf(source, sizeof source,
                 "tile t(x: in %s[M], y: out f32[M], z: out f64[M], k: out %s[M]) over (r in ceil(M / 64)) { v = "
                 "x[r*64 : +64]; y[r*64 : +64] = f32(v); z[r*64 : +64] = f64(v); k[r*64 : +64] = v }",
                 t, t);
        snprintf(name, sizeof name, "cast every code of %s", t);
        const bool wide = !strcmp(t, "f16") || !strcmp(t, "bf16") || !strcmp(t, "i16") || !strcmp(t, "u16");
        add_case(name, source, "",
                 is_bool ? "x 2 codes; y 2 codes; z 2; k 2"
                 : wide  ? "x 65536 codes; y 65536 codes; z 65536; k 65536"
                         : "x 256 codes; y 256; z 256; k 256",
                 0);
        snprintf(source, sizeof source,
                 "tile t(x: in f32[M], d: in f64[M], i: in i32[M], n: in i64[M], y: out %s[M], z: out %s[M], k: out "
                 "%s[M], l: out %s[M]) over (r in ceil(M / 64)) {\n"
                 " y[r*64 : +64] = %s(x[r*64 : +64]); z[r*64 : +64] = %s(d[r*64 : +64]); k[r*64 : +64] = %s(i[r*64 : "
                 "+64]); l[r*64 : +64] = %s(n[r*64 : +64]) }",
                 t, t, t, t, t, t, t, t);
        snprintf(name, sizeof name, "cast to %s", t);
        add_case(name, source, "",
                 "x 2000 special; d 2000 special; i 2000 in -300 300; n 2000; y 2000; z 2000; k 2000; l 2000", 0);
        snprintf(name, sizeof name, "cast to %s any bits", t);
        add_case(name, source, "", "x 6000 bits; d 6000 bits; i 6000; n 6000; y 6000; z 6000; k 6000; l 6000", 0);
    }
    /* halfway between two codes, and next to it: f32 numbers with few bits */
    for (size_t i = 1; i < COUNT_OF(small); i++) {
        snprintf(
            source, sizeof source,
            "tile t(x: in bf16[M], y: out %s[M]) over (r in ceil(M / 64)) { y[r*64 : +64] = %s(f32(x[r*64 : +64])) }",
            small[i], small[i]);
        snprintf(name, sizeof name, "cast every bf16 to %s", small[i]);
        add_case(name, source, "", "x 65536 codes; y 65536", 0);
    }
    static const char *const wide[] = {"i32", "u32", "i64", "f32", "f64"};
    for (size_t i = 0; i < COUNT_OF(wide); i++) {
        const char *t = wide[i];
        snprintf(source, sizeof source,
                 "tile t(x: in f32[M], d: in f64[M], i: in i32[M], n: in i64[M], u: in u32[M], y: out %s[M, 5]) over "
                 "(r in ceil(M / 64)) {\n"
                 " y[r*64 : +64, 0] = %s(x[r*64 : +64]); y[r*64 : +64, 1] = %s(d[r*64 : +64]); y[r*64 : +64, 2] = "
                 "%s(i[r*64 : +64]); y[r*64 : +64, 3] = %s(n[r*64 : +64]); y[r*64 : +64, 4] = %s(u[r*64 : +64]) }",
                 t, t, t, t, t, t);
        snprintf(name, sizeof name, "cast to %s", t);
        add_case(name, source, "", "x 2000 special; d 2000 special; i 2000; n 2000; u 2000; y 2000 5", 0);
    }
    add_case("cast between small types",
             "tile t(x: in e4m3[M, 9], k: in i5[M, 9], y: out bf16[M, 9], z: out i3[M, 9], w: out u4[M, 9]) over (r in "
             "M) { y[r, :] = bf16(x[r, :]); z[r, :] = i3(k[r, :]); w[r, :] = u4(x[r, :]) }",
             "", "x 30 9; k 30 9; y 30 9; z 30 9; w 30 9", 0);
}

static inline void add_packed(void) {
    static const char *const types[] = {"i1",   "u1", "i2", "u3",   "i3", "u4", "i4",
                                        "e2m1", "u5", "i5", "e3m2", "u6", "i7", "u7"};
    char source[1024], name[96];
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        snprintf(source, sizeof source,
                 "tile t(x: in %s[M, N], s: arg i32, y: out %s[M, 13], z: out f32[M, 21], c: out %s[21, M]) over (r in "
                 "M) {\n"
                 " y[r, :] = x[r, s : +13]; v = f32(x[r : +1, s - 3 : +21]); z[r, :] = v[0, :]; c[:, r] = x[r, s - 3 : "
                 "+21] }",
                 types[i], types[i], types[i]);
        snprintf(name, sizeof name, "packed %s", types[i]);
        add_case(name, source, "", "x 7 29; y 7 13; z 7 21; c 21 7", 0)->args[0] = (double)(i % 5) - 1;
    }
    add_case("packed in steps of eight",
             "tile t(x: in u4[M, 64], y: out u4[M, 64], z: out i8[M, 64]) over (r in M) { y[r, :] = x[r, :]; z[r, :] = "
             "i8(x[r, :]) }",
             "", "x 8 64; y 8 64; z 8 64", 0);
    add_case("packed scatter",
             "tile t(x: in u3[M], ids: in i32[M], y: out u3[N]) over (r in 1) { y[ids[0 : +9]] = x[0 : +9] }", "",
             "x 9; ids 9 in -3 20; y 15", 0);
}

static inline void add_reductions(void) {
    static const char *const types[] = {"f32", "f64", "i32", "u32", "i64"}, *const names[] = {"sum", "max", "min",
                                                                                              "argmax"};
    static const struct {
        const char *shape, *constants;
    } shapes[] = {{"x 3 5 7", "A=3 B=5 C=7"},       {"x 2 17 64", "A=2 B=17 C=64"}, {"x 1 3 200", "A=1 B=3 C=200"},
                  {"x 16 16 16", "A=16 B=16 C=16"}, {"x 4 1 1", "A=4 B=1 C=1"},     {"x 1 1 65", "A=1 B=1 C=65"}};
    char source[1024], name[96];
    static char tensors[400][96];
    int used = 0;
    for (size_t t = 0; t < COUNT_OF(types); t++)
        for (size_t i = 0; i < COUNT_OF(names); i++)
            for (size_t s = 0; s < COUNT_OF(shapes); s++)
                for (int axis = 0; axis < 3; axis++) {
                    if (t > 0 && s > 1) continue;
                    const char *out = i == 3 ? "i32" : types[t];
                    int extent[3];
                    sscanf(shapes[s].shape, "x %d %d %d", &extent[0], &extent[1], &extent[2]);
                    extent[axis] = 1;
                    snprintf(source, sizeof source,
                             "tile t[A, B, C](x: in %s[A, B, C], y: out %s[%s, %s, %s]) over (i in 1) { y[:] = %s(x, "
                             "axis = %d) }",
                             types[t], out, axis == 0 ? "1" : "A", axis == 1 ? "1" : "B", axis == 2 ? "1" : "C",
                             names[i], axis);
                    snprintf(name, sizeof name, "reduce %s %s %s axis %d", names[i], types[t], shapes[s].constants,
                             axis);
                    snprintf(tensors[used], sizeof tensors[0], "%s%s; y %d %d %d", shapes[s].shape,
                             t < 2 && i > 0     ? " special"
                             : t >= 2 && i == 3 ? " in 0 4"
                                                : "",
                             extent[0], extent[1], extent[2]);
                    add_case(name, source, shapes[s].constants, tensors[used++], i == 0 && t == 0 ? 1e-5 : 1e-12);
                }
    add_case(
        "reduce expression",
        "tile t(x: in bf16[M, 40], y: out f32[M, 1], z: out f32[1, 40], k: out f32[M, 40]) over (r in ceil(M / 8)) {\n "
        "v = f32(x[r*8 : +8, :])\n m = max(v, axis = 1)\n e = exp(v - m)\n"
        " y[r*8 : +8, :] = sum(e * 2, axis = 1) + m\n z[:] = sum(v * v, axis = 0)\n k[r*8 : +8, :] = e / sum(e, 1) }",
        "", "x 8 40; y 8 1; z 1 40; k 8 40", 1e-5);
    add_case("reduce of reduce",
             "tile t(x: in f32[6, 20], y: out f32[1, 1], i: out i32[1, 1]) over (r in 1) { y[:] = sum(sum(x * x, 1), "
             "0); i[:] = max(argmax(x, axis = 1), axis = 0) }",
             "", "x 6 20; y 1 1; i 1 1", 1e-5);
    add_case("reduce concat",
             "tile t(x: in f32[6, 20], z: in f32[6, 7], y: out f32[6, 1], w: out f32[1, 27]) over (r in 1) { c = "
             "concat(x, z, axis = 1); y[:] = sum(c * c, 1); w[:] = max(concat(x, z, axis = 1), axis = 0) }",
             "", "x 6 20; z 6 7; y 6 1; w 1 27", 1e-5);
    add_case("reduce ties",
             "tile t(x: in f32[8, 100], y: out i32[8, 1], z: out i32[1, 100]) over (r in 1) { v = round(x); y[:] = "
             "argmax(v, axis = 1); z[:] = argmax(v, axis = 0) }",
             "", "x 8 100; y 8 1; z 1 100", 0);
}

/* Weights as rows, in every format, for sizes around the kernels' steps. */
static inline void add_dots(void) {
    static const char *const formats[] = {"f32",  "f16",  "bf16", "f64",  "e4m3",  "e5m2",  "e3m4",     "e8m0",
                                          "e2m1", "e3m2", "q4_0", "q4_1", "q5_0",  "q5_1",  "q8_0",     "q2_k",
                                          "q3_k", "q4_k", "q5_k", "q6_k", "mxfp4", "nvfp4", "f8_block", "i4_group"};
    static char store[400][160];
    char name[96];
    int used = 0;
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        const tile_format *w = tile_format_find(formats[f]);
        if (!w) continue;
        const int sizes[][4] = {{1, 9, 37, 64}, {5, 6, 70, 32}, {17, 13, 100, 1024}};
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            const int m = sizes[s][0], n = sizes[s][1],
                      k = w->block > 1 ? w->block * (s == 1   ? 3
                                                     : s == 0 ? 1
                                                              : 5)
                                       : sizes[s][2],
                      bk = w->block > 1 ? w->block * (s == 1 ? 2 : 4) : sizes[s][3];
            char *constants = store[used++], *tensors = store[used++];
            snprintf(constants, sizeof store[0], "N=%d K=%d BM=4 BN=8 BK=%d W=%s", n, k, bk, formats[f]);
            snprintf(tensors, sizeof store[0], "x %d %d; w %d %d%s; y %d %d", m, k, n, k,
                     !strcmp(formats[f], "e8m0") ? " in 0 2" : "", m, n);
            snprintf(name, sizeof name, "dot linear %s %dx%dx%d", formats[f], m, n, k);
            add_case(name, "linear", constants, tensors, 5e-4);
            if (w->block == 1) {
                char *t = store[used++];
                snprintf(t, sizeof store[0], "x %d %d; w %d %d; y %d %d", m, k, k, n, m, n);
                snprintf(name, sizeof name, "dot matmul %s %dx%dx%d", formats[f], m, n, k);
                if (w->scalar.is_unsigned) continue;
                add_case(name, "matmul", constants, t, 1e-4);
            }
        }
    }
    for (int m = 1; m <= 17; m++) {
        char *tensors = store[used++];
        snprintf(tensors, sizeof store[0], "x %d 96; w 33 96; y %d 33", m, m);
        snprintf(name, sizeof name, "dot rows %d", m);
        add_case(name, "linear", "N=33 K=96 BM=17 BN=16 W=q8_0", tensors, 1e-4);
    }
    static const char *const rounded[] = {"f32", "bf16", "f16", "q4_1", "q6_k", "e4m3"};
    for (size_t i = 0; i < COUNT_OF(rounded); i++) {
        char *constants = store[used++];
        snprintf(constants, sizeof store[0], "N=9 K=512 BM=4 BN=8 BK=256 P=%s W=%s", i % 2 ? "bf16" : "f16",
                 rounded[i]);
        const bool exact = !strcmp(rounded[i], "q6_k"); /* with few rows in f16 */
        snprintf(name, sizeof name, "dot rounded %s", rounded[i]);
        add_case(name, "linear", constants, "x 5 512; w 9 512; y 5 9", 5e-4)->exact = exact;
        snprintf(name, sizeof name, "dot rounded one row %s", rounded[i]);
        add_case(name, "linear", constants, "x 1 512; w 9 512; y 1 9", 5e-4)->exact = exact;
    }
    static const char *const apart[] = {"q4_0", "q4_1", "q5_1",  "q8_0",  "q2_k",
                                        "q3_k", "q4_k", "mxfp4", "nvfp4", "u4_group64"};
    for (size_t i = 0; i < COUNT_OF(apart); i++) {
        char *constants = store[used++], *tensors = store[used++];
        const int m = 1 + (int)i % 4; /* rows; several 8-row blocks in a page, the last one with fewer */
        snprintf(constants, sizeof store[0], "N=41 K=768 BM=%d BN=24 BK=256 P=f16 W=%s", m, apart[i]);
        snprintf(tensors, sizeof store[0], "x %d 768; w 41 768; y %d 41", m, m);
        snprintf(name, sizeof name, "dot apart %s", apart[i]);
        add_case(name, "linear", constants, tensors, 5e-4)->exact = true;
    }
    add_case("dot rounded nn", "matmul", "N=40 K=50 BM=4 BN=40 BK=32 P=bf16 W=f32", "x 5 50; w 50 40; y 5 40", 5e-4);
    add_case("dot deep", "linear", "N=12 K=2500 BM=8 BN=8 BK=512 W=f16", "x 6 2500; w 12 2500; y 6 12", 1e-3);
    add_case("dot deep one row", "linear", "N=12 K=2500 BM=1 BN=8 BK=4096 W=bf16", "x 1 2500; w 12 2500; y 1 12", 1e-3);
    add_case("dot deep nn", "matmul", "N=150 K=700 BM=8 BN=150 BK=512 W=f16", "x 6 700; w 700 150; y 6 150", 1e-3);
    add_case("dot wide nn", "matmul", "N=1500 K=40 BM=5 BN=1500 BK=64 W=f32", "x 5 40; w 40 1500; y 5 1500", 1e-4);
    add_case("dot small types",
             "tile t(a: in e4m3[M, 40], b: in bf16[N, 40], y: out f32[M, N]) over (m in ceil(M / 3), n in ceil(N / 5)) "
             "{ y[m*3 : +3, n*5 : +5] = dot(a[m*3 : +3, :], b[n*5 : +5, :].T) }",
             "", "a 7 40; b 11 40; y 7 11", 1e-4);
    add_case("dot of expressions",
             "tile t(a: in f32[M, 24], b: in f32[24, N], y: out f32[M, N]) over (m in ceil(M / 3), n in ceil(N / 5)) { "
             "y[m*3 : +3, n*5 : +5] = dot(exp(a[m*3 : +3, :]), abs(b[:, n*5 : +5])) * 0.5 }",
             "", "a 7 24; b 24 11; y 7 11", 1e-4);
    add_case("dot of dots",
             "tile t(a: in f32[6, 24], b: in f32[24, 9], c: in f32[9, 24], y: out f32[6, 24]) over (m in 1) { y[:] = "
             "dot(dot(a, b), c) + dot(dot(a, b), c) * 2 + a }",
             "", "a 6 24; b 24 9; c 9 24; y 6 24", 1e-4);
    add_case("dot transposed both",
             "tile t(a: in f32[24, 6], b: in f32[9, 24], y: out f32[6, 9]) over (m in 1) { y[:] = dot(a.T, b.T) }", "",
             "a 24 6; b 9 24; y 6 9", 1e-4);
    add_case("dot updates",
             "tile t(a: in f32[6, 24], b: in f32[24, 24], y: out f32[6, 24]) over (m in 1) { v = a[:, :]; for i in 3 { "
             "v = v * 0.5 + dot(v, b) * 0.1; v += dot(a, b); v = dot(v, b) * 0.1 }; y[:] = v }",
             "", "a 6 24; b 24 24; y 6 24", 1e-4);
    add_case("dot itself",
             "tile t(a: in f32[8, 8], y: out f32[8, 8]) over (m in 1) { v = a * 1; for i in 3 { v = dot(v, v) * 0.3 }; "
             "for i in 2 { v = dot(v, v.T) }; y[:] = v }",
             "", "a 8 8; y 8 8", 1e-4);
    add_case("dot gathered rows",
             "tile t(ids: in i32[7], a: in f32[7, 32], w: in q8_0[N, 32], y: out f32[7, 7]) over (m in 1) { y[:] = "
             "dot(a, f32(w[ids, :]).T) }",
             "", "ids 7 in -2 12; a 7 32; w 10 32; y 7 7", 1e-4);
    add_case("dot shifted",
             "tile t(s: arg i32, a: in f32[4, 32], w: in bf16[N, K], y: out f32[4, 12], z: out f32[4, 32]) over (m in "
             "1) { y[:] = dot(a, w[s : +12, s : +32].T); z[:] = dot(a[:, 0 : +12], w[s : +12, s : +32]) }",
             "", "a 4 32; w 9 50; y 4 12; z 4 32", 1e-4)
        ->args[0] = -5;
    add_case("dot shifted far", cases[case_count - 1].source, "", "a 4 32; w 9 50; y 4 12; z 4 32", 1e-4)->args[0] = 30;
    add_case("dot one row shifted",
             "tile t(s: arg i32, a: in f32[1, 64], w: in f16[N, K], y: out f32[1, 12]) over (m in 1) { y[:] = dot(a, "
             "w[s : +12, s : +64].T) }",
             "", "a 1 64; w 9 50; y 1 12", 1e-4)
        ->args[0] = -5;
    add_case("dot integers",
             "tile t(a: in i8[M, 40], b: in u8[N, 40], c: in i4[40, N], y: out i32[M, N], z: out i32[M, N]) over (m in "
             "ceil(M / 3), n in ceil(N / 5)) {\n v = a[m*3 : +3, :]\n y[m*3 : +3, n*5 : +5] = dot(v, b[n*5 : +5, "
             ":].T); z[m*3 : +3, n*5 : +5] = dot(v, c[:, n*5 : +5]) + dot(v, b[n*5 : +5, :].T) }",
             "", "a 7 40; b 11 40; c 40 11; y 7 11; z 7 11", 0);
    add_case("dot accumulates integers",
             "tile t(a: in i8[M, K], b: in i8[N, K], y: out i32[M, N]) over (m in ceil(M / 3)) { acc: i32[3, 11] = 0; "
             "for k in stream(ceil(K / 16)) { acc += dot(a[m*3 : +3, k*16 : +16], b[0 : +11, k*16 : +16].T) }; y[m*3 : "
             "+3, 0 : +11] = acc }",
             "", "a 7 40; b 11 40; y 7 11", 0);
    add_case("dot two sums in a loop", "norm_swiglu", "N=40 K=96 BM=4 BN=16 BK=32 A=q4_1 B=f16",
             "x 6 96; g 96; gate 40 96; up 40 96; y 6 40", 1e-4)
        ->args[0] = 1e-5;
    add_case("dot loop from one",
             "tile t(a: in f32[4, 128], b: in f32[8, 128], y: out f32[4, 8]) over (m in 1) { acc: f32[4, 8] = 1; for k "
             "in 1 .. 4 { acc = dot(a[:, k*32 : +32], b[:, k*32 : +32].T) + acc }; y[:] = acc }",
             "", "a 4 128; b 8 128; y 4 8", 1e-4);
    add_case("dot loop with other statements",
             "tile t(a: in f32[4, 128], b: in f32[8, 128], y: out f32[4, 8]) over (m in 1) { acc: f32[4, 8] = 1; for k "
             "in 4 { acc += dot(a[:, k*32 : +32], b[:, k*32 : +32].T); acc = acc * 0.5 }; y[:] = acc }",
             "", "a 4 128; b 8 128; y 4 8", 1e-4);
    add_case("dot loop reading the sum",
             "tile t(a: in f32[4, 32], b: in f32[4, 128], y: out f32[4, 4]) over (m in 1) { acc: f32[4, 4] = 1; for k "
             "in 4 { acc += dot(a * sum(acc, 1), b[:, k*32 : +32].T) * 1 }; for k in 4 { acc += dot(a * sum(acc, 1) * "
             "0.01, b[:, k*32 : +32].T) }; y[:] = acc }",
             "", "a 4 32; b 4 128; y 4 4", 1e-3);
    add_case("dot split k",
             "tile t(a: in f32[5, K], b: in f32[6, K], y: inout f32[5, 6]) over (s in ceil(K / 24)) { y[:, :] += "
             "dot(a[:, s*24 : +24], b[:, s*24 : +24].T) }",
             "", "a 5 100; b 6 100; y 5 6", 1e-4);
    add_case("dot block variable",
             "tile t(a: in f32[5, 64], w: in q4_1[6, 64], y: out f32[5, 6], z: out f32[6, 64]) over (s in 1) { v = w; "
             "y[:] = dot(a, v.T); z[:] = f32(v[:, 32 : +32].T[0 : +32, :].T[0, 0]) + f32(v) }",
             "", "a 5 64; w 6 64; y 5 6; z 6 64", 1e-4);
    add_case("dot block as it is",
             "tile t(a: in f32[5, 6], w: in q4_1[6, 64], y: out f32[5, 64]) over (s in 1) { y[:] = dot(a, w) }", "",
             "a 5 6; w 6 64; y 5 64", 1e-4);
    add_case("dot block k",
             "tile t(a: in f32[5, 6], w: in q6_k[6, 512], y: out f32[5, 256]) over (s in 1) { y[:] = dot(a, w[:, 256 : "
             "+256]) }",
             "", "a 5 6; w 6 512; y 5 256", 1e-4);
}

static inline void add_slices(void) {
    add_case("slice negative start",
             "tile t(x: in f32[M, N], s: arg i32, y: out f32[M, 9]) over (r in M) { y[r, :] = x[r + s, s : +9] + 1 }",
             "", "x 6 14; y 6 9", 0)
        ->args[0] = -2;
    add_case("slice beyond the end", cases[case_count - 1].source, "", "x 6 14; y 6 9", 0)->args[0] = 8;
    add_case("slice far away", cases[case_count - 1].source, "", "x 6 14; y 6 9", 0)->args[0] = 2e9;
    add_case("slice far below", cases[case_count - 1].source, "", "x 6 14; y 6 9", 0)->args[0] = -2e9;
    add_case("slice stores shifted",
             "tile t(x: in f32[5, 9], s: arg i32, y: out f32[M, N]) over (r in 1) { y[s : +5, s - 1 : +9] = x }", "",
             "x 5 9; y 7 8", 0)
        ->args[0] = -2;
    add_case("slice stores beyond", cases[case_count - 1].source, "", "x 5 9; y 7 8", 0)->args[0] = 4;
    add_case("slice stores at a point",
             "tile t(x: in f32[9], s: arg i32, y: out f32[M, 9]) over (r in M) { y[r + s, :] = x * f32(r) }", "",
             "x 9; y 4 9", 0)
        ->args[0] = 2;
    add_case("slice limits",
             "tile t(x: in f32[M, N], s: arg i32, y: out f32[M, 16]) over (r in ceil(M / 4)) { y[r*4 : +4 < s, 0 : +16 "
             "< s + 1] = x[r*4 : +4 < s - 1, 0 : +16 < s] + 1 }",
             "", "x 10 16; y 10 16", 0)
        ->args[0] = 6;
    add_case("slice point in the middle",
             "tile t(x: in bf16[M, H, N], h: arg i32, y: out f32[M, N]) over (r in ceil(M / 3)) { y[r*3 : +3, 0 : +11] "
             "= f32(x[r*3 : +3, h, 0 : +11]) }",
             "", "x 7 3 11; y 7 11", 0)
        ->args[0] = 2;
    add_case("slice point out of range", cases[case_count - 1].source, "", "x 7 3 11; y 7 11", 0)->args[0] = 3;
    add_case("slice last points",
             "tile t(x: in f32[M, N, 2], y: out f32[M, N, 2]) over (r in ceil(M / 3)) { a = x[r*3 : +3, 0 : +8, 0]; b "
             "= x[r*3 : +3, 0 : +8, 1]; y[r*3 : +3, 0 : +8, 1] = a * b; y[r*3 : +3, 0 : +8, 0] = a - b }",
             "", "x 7 6 2; y 7 6 2", 0);
    add_case("slice from data",
             "tile t(x: in f32[P, 4, N], table: in i32[B, J], y: out f32[B, J, 4, 6]) over (b in B, j in J) { y[b, j, "
             ":, :] = x[table[b, j], :, 0 : +6] }",
             "", "x 5 4 6; table 3 4 in -1 6; y 3 4 4 6", 0);
    add_case("gather rows",
             "tile t(ids: in i32[M], w: in bf16[V, 12], y: out f32[M, 12]) over (r in ceil(M / 4)) { y[r*4 : +4, :] = "
             "f32(w[ids[r*4 : +4], :]) }",
             "", "ids 10 in -3 12; w 9 12; y 10 12", 0);
    add_case("gather rows of blocks", "embed", "K=96 W=q4_1", "ids 7 in -2 9; w 8 96; y 7 96", 1e-6);
    add_case("gather rows of k blocks", "embed", "K=512 ROWS=4 W=q6_k T=bf16", "ids 7 in -2 9; w 8 512; y 7 512", 1e-6);
    add_case("gather columns",
             "tile t(ids: in i32[11], w: in f32[V, N], k: in u3[V, N], y: out f32[V, 11], z: out u3[V, 11]) over (r in "
             "ceil(V / 2)) { y[r*2 : +2, :] = w[r*2 : +2, ids]; z[r*2 : +2, :] = k[r*2 : +2, ids] }",
             "", "ids 11 in -2 9; w 5 8; k 5 8; y 5 11; z 5 11", 0);
    add_case(
        "gather both",
        "tile t(a: in i32[3], b: in i64[4], w: in f32[V, N], y: out f32[3, 4]) over (r in 1) { y[:] = w[a, b] * 2 }",
        "", "a 3 in -1 6; b 4 in -1 8; w 5 8; y 3 4", 0);
    add_case("gather stores rows",
             "tile t(ids: in i32[M], x: in f32[M, 9], y: out f32[V, 9], z: inout f32[V, 9]) over (r in ceil(M / 4)) { "
             "y[ids[r*4 : +4], :] = x[r*4 : +4, :]; z[ids[r*4 : +4], :] += x[r*4 : +4, :] }",
             "", "ids 8 in -2 7; x 8 9; y 6 9; z 6 9", 1e-6);
    add_case("gather stores columns",
             "tile t(ids: in i32[9], x: in f32[M, 9], y: inout f32[M, V]) over (r in ceil(M / 4)) { y[r*4 : +4, ids] "
             "+= x[r*4 : +4, :] }",
             "", "ids 9 in -2 7; x 8 9; y 8 6", 1e-6);
    /* indices that do not depend on their own loop, and loops of one turn: a piece of a concatenation */
    add_case("gather stores at one place",
             "tile t(s: arg i32, x: in f32[1, 9], a: in f32[4, 9], y: inout f32[6, 9], z: inout f32[6, 9], w: inout "
             "f32[6, 9]) over (r in 2) { y[i32[4](2), :] += a; y[i32[1](6), :] = x; z[i32[1](s), i32[1](5)] = x[:, 1 : "
             "+1] * 2; w[iota(5) * 2 % 7 - 1, :] += concat(x, a, axis = 0); w[iota(5) * 2 % 7 - 1, iota(3)] += "
             "concat(x[:, 0 : +3], a[:, 4 : +3], axis = 0) }",
             "", "x 1 9; a 4 9; y 6 9; z 6 9; w 6 9", 1e-6)
        ->args[0] = 3;
    add_case("gather one row",
             "tile t(ids: in i32[1], x: in f32[1, 9], y: out f32[V, 9]) over (r in 1) { y[ids, :] = x + 1 }", "",
             "ids 1 in 9 9; x 1 9; y 6 9", 0);
    add_case("gather computed",
             "tile t(x: in f32[N, 6], y: out f32[8, 6]) over (r in 1) { y[:] = x[7 - iota(8) * 2, :] }", "",
             "x 6 6; y 8 6", 0);
    add_case("live extent",
             "tile t(n: live i32, x: in f32[n, 9], y: out f32[n + 1, 9]) over (r in ceil((n + 1) / 4)) { y[r*4 : +4, "
             ":] = x[r*4 : +4, :] + 1 }",
             "", "x 12 9; y 13 9", 0)
        ->lives[0] = 6;
    add_case("live extent zero", cases[case_count - 1].source, "", "x 12 9; y 13 9", 0)->lives[0] = 0;
    add_case("live extent full", cases[case_count - 1].source, "", "x 12 9; y 13 9", 0)->lives[0] = 12;
    add_case("live start", "append", "H=2 D=10 ROWS=4", "x 5 2 10; cache 16 2 10", 1e-3)->lives[0] = 7;
    add_case("live start negative", "append", "H=2 D=10 ROWS=4", "x 5 2 10; cache 16 2 10", 1e-3)->lives[0] = -3;
    add_case("live start highest", "append", "H=2 D=10 ROWS=4", "x 5 2 10; cache 16 2 10", 1e-3)->lives[0] = INT32_MAX;
    add_case("live start lowest", "append", "H=2 D=10 ROWS=4", "x 5 2 10; cache 16 2 10", 1e-3)->lives[0] = INT32_MIN;
    add_case("live last row",
             "tile t(n: live i32, x: in f32[n, 9], y: out f32[1, 9]) over (i in 1) { y[0, :] = x[n - 1, :] }", "",
             "x 12 9; y 1 9", 0)
        ->lives[0] = 5;
    add_case("inout in place",
             "tile t(y: inout f32[M, 9]) over (r in ceil(M / 4)) { y[r*4 : +4, :] = y[r*4 : +4, :] * 2 + 1 }", "",
             "y 10 9", 0);
    add_case("inout overlapping",
             "tile t(y: inout f32[M, 9]) over (r in 1) { y[0 : +5, :] = y[1 : +5, :] + 1; v = y[0 : +5, 0 : +5]; y[0 : "
             "+5, 0 : +5] = v.T; y[0 : +5, 0 : +5] = y[0 : +5, 0 : +5].T }",
             "", "y 6 9", 0);
    add_case("inout sums over the grid",
             "tile t(x: in f32[M, 9], y: inout f32[1, 9], n: inout i32[1, 1]) over (r in M) { y[:, :] += x[r : +1, :]; "
             "n[0, 0] += 1 }",
             "", "x 10 9; y 1 9; n 1 1 in 0 5", 1e-5);
    add_case("inout then read",
             "tile t(x: in f32[4, 9], y: inout f32[4, 9], z: out f32[4, 9]) over (r in 1) { v = y[:, :]; y[:, :] = x; "
             "w = y[:, :]; y[:, :] = x * 3; z[:, :] = v + w }",
             "", "x 4 9; y 4 9; z 4 9", 0);
    /* Sums, indices and starts are read before anything is stored, in whatever order it is: concatenations are stored
     * in pieces. */
    add_case("inout sums behind a concat",
             "tile t(x: in f32[5, 4], a: in f32[5, 5], u: in f32[9, 5], y: inout f32[5, 9], z: inout f32[5, 9], w: out "
             "f32[5, 9]) over (r in 1) { v = z * 2; v = concat(x, a + max(v, axis = 1), axis = 1); v = concat(x, "
             "dot(v, u), axis = 1); w[:, :] = v; y[:, :] = concat(x, a + sum(y[:, :], axis = 1), axis = 1); z[:, :] = "
             "concat(x, a + dot(z[:, :], u), axis = 1) }",
             "", "x 5 4; a 5 5; u 9 5; y 5 9; z 5 9; w 5 9", 1e-4);
    add_case("inout by its own indices",
             "tile t(x: in i32[6, 4], a: in i32[12], y: inout i32[12], z: inout i32[12], w: inout i32[4, 12]) over (r "
             "in 1) { y[y[0 : +12]] = a; z[z[3] : +4] = x[z[0 : +4], 0] + 5; w[:, w[0, :]] = reshape(a, 1, 12) + 1 }",
             "", "x 6 4; a 12 in 0 9; y 12 in -2 13; z 12 in 0 6; w 4 12 in -2 13", 0);
    add_case("inout by its own starts",
             "tile t(a: in i32[12], y: inout i32[2, 12], z: inout i32[2, 12], w: inout i32[12], v: inout i32[2, 12]) "
             "over (r in 1) { y[y[0, 5], y[1, 2] : +10] = concat(a[0 : +3], a[2 : +7], axis = 0); z[z[0, 1], :] = z[1, "
             "3] + a; w[w[5] : +4 < w[2]] = max(w[:], axis = 0) + iota(4); v[:, :] = v[1, 3]; v[0, v[0, :]] += "
             "concat(a[0 : +2], v[1, 2 : +10], axis = 0) }",
             "", "a 12 in 0 9; y 2 12 in 0 1; z 2 12 in 0 1; w 12 in 0 9; v 2 12 in 0 9", 0);
    add_case("store scalar",
             "tile t(x: in f32[4], y: out f32[4, 6]) over (r in 4) { y[r, :] = x[r]; y[r, 2] = x[r] * 2 }", "",
             "x 4; y 4 6", 0);
    add_case("five dimensions",
             "tile t(x: in f32[2, A, 3, B, 5], y: out f32[A, B, 2, 3, 5]) over (a in A, b in B) { y[a, b, :, :, :] = "
             "x[:, a, :, b, :] * 2 }",
             "", "x 2 3 3 4 5; y 3 4 2 3 5", 0);
    add_case(
        "five dimensions at once",
        "tile t(x: in f32[2, 3, 4, 2, 5], y: out f32[2, 3, 4, 5, 2]) over (a in 1) { y[:] = x.T + sum(x.T, axis = 2) }",
        "", "x 2 3 4 2 5; y 2 3 4 5 2", 1e-5);
}

static inline void add_shapes(void) {
    add_case("reshape",
             "tile t(x: in f32[6, 8], y: out f32[6, 2, 4], z: out f32[48], w: out f32[3, 16], v: out f32[2, 3, 8], u: "
             "out f32[6, 8]) over (i in 1) {\n y[:] = reshape(x, 6, 2, 4); z[:] = reshape(x, 48) * 2; w[:] = reshape(x "
             "+ 1, 3, 16); v[:] = reshape(x, 2, 3, 8)\n u[:] = reshape(reshape(exp(x), 4, 12), 6, 8) }",
             "", "x 6 8; y 6 2 4; z 48; w 3 16; v 2 3 8; u 6 8", 1e-6);
    add_case("reshape variables",
             "tile t(x: in bf16[6, 8], y: out f32[6, 2, 4], z: out f32[48], w: out f32[8, 6]) over (i in 1) { v = "
             "exp(f32(x)); y[:] = reshape(v, 6, 2, 4) + reshape(v, 6, 2, 4); z[:] = reshape(v.T, 48); w[:] = "
             "reshape(v, 8, 6) * 2 }",
             "", "x 6 8; y 6 2 4; z 48; w 8 6", 1e-5);
    add_case("reshape odd groups",
             "tile t(x: in f32[1, 6, 1, 10], y: out f32[4, 1, 15], z: out f32[2, 2, 3, 5]) over (i in 1) { y[:] = "
             "reshape(x, 4, 1, 15); z[:] = reshape(x * 2, 2, 2, 3, 5) + 1 }",
             "", "x 1 6 1 10; y 4 1 15; z 2 2 3 5", 0);
    /* Indices that are divided twice; what they reach is checked (y) or known to be there (w). */
    add_case("reshape twice",
             "tile t(x: in i32[7, 15], z: in i32[13, 5], y: out i32[4, 32, 8], w: out i32[33, 2]) over (i in 1) { y[:] "
             "= reshape(reshape(x[-1 : +8, -2 : +16], 16, 8, 1), 4, 32, 1) + iota(8); w[:] = reshape(reshape(z[1 : "
             "+11, 2 : +3], 3, 1, 11), 33, 1) + iota(2) }",
             "", "x 7 15 codes; z 13 5 codes; y 4 32 8; w 33 2", 0);
    add_case("reshape of blocks",
             "tile t(x: in q8_0[4, 64], y: out f32[4, 8, 8], z: out f32[64, 4], w: out f32[8, 32]) over (i in 1) { "
             "y[:] = reshape(f32(x), 4, 8, 8); z[:] = f32(x).T; w[:] = f32(reshape(x, 8, 32)) }",
             "", "x 4 64; y 4 8 8; z 64 4; w 8 32", 1e-6);
    add_case("transpose",
             "tile t(x: in f32[6, 9], y: out f32[9, 6], z: out f32[9, 6], k: in u3[6, 9], w: out u3[9, 6]) over (i in "
             "1) { y[:] = x.T; v = exp(x); z[:] = v.T + x.T; w[:] = k.T }",
             "", "x 6 9; y 9 6; z 9 6; k 6 9; w 9 6", 1e-6);
    add_case("transpose itself",
             "tile t(x: in f32[7, 7], y: out f32[7, 7]) over (i in 1) { v = x * 1; v = v.T; v = v + v.T * 2; v = v * "
             "sum(v, 0); v = v - v[0 : +1, :]; y[:] = v }",
             "", "x 7 7; y 7 7", 1e-5);
    add_case("concat",
             "tile t(x: in f32[5, 4], z: in f32[5, 9], y: out f32[5, 17], w: out f32[10, 4]) over (i in 1) { y[:] = "
             "concat(x, z, x, axis = 1) * 2; w[:] = concat(x, x + 1, axis = 0) }",
             "", "x 5 4; z 5 9; y 5 17; w 10 4", 0);
    add_case("concat nested",
             "tile t(x: in f32[4, 4], y: out f32[8, 12], z: out f32[12, 8]) over (i in 1) { c = concat(concat(x, x * "
             "2, axis = 0), concat(x * 3, x * 4, axis = 0), concat(x, x, axis = 0), axis = 1); y[:] = c + 1; z[:] = "
             "concat(concat(x, x * 2, axis = 1), concat(x * 3, x * 4, axis = 1), concat(x, x, axis = 1), axis = 0) }",
             "", "x 4 4; y 8 12; z 12 8", 0);
    add_case("concat parts",
             "tile t(x: in f32[4, 64], y: out f32[4, 64], z: out f32[4, 6]) over (i in 1) { a = x[:, 0 : +32]; b = "
             "x[:, 32 : +32]; y[:] = concat(a * 2 - b, a + b, axis = 1); z[:] = concat(a, b, axis = 1)[:, 29 : +6] }",
             "", "x 4 64; y 4 64; z 4 6", 0);
    add_case("concat interleaved",
             "tile t(x: in f32[4, 8], y: out f32[4, 16], z: out f32[8, 8]) over (i in 1) { a = reshape(x, 4, 8, 1); "
             "y[:] = reshape(concat(a, a * 2, axis = 2), 4, 16); z[:] = reshape(concat(reshape(x, 4, 1, 8), "
             "reshape(-x, 4, 1, 8), axis = 1), 8, 8) }",
             "", "x 4 8; y 4 16; z 8 8", 0);
    add_case("concat bits",
             "tile t(x: in u3[5, 4], z: in u3[5, 9], y: out u3[5, 13]) over (i in 1) { y[:] = concat(x, z, axis = 1) }",
             "", "x 5 4; z 5 9; y 5 13", 0);
    add_case("concat many",
             "tile t(x: in f32[2, 2], y: out f32[2, 40]) over (i in 1) { y[:] = concat(x, x, x, x, x, x, x, x, x, x, "
             "x, x, x, x, x, x, x, x, x, x * 2, axis = 1) + 1 }",
             "", "x 2 2; y 2 40", 0);
    add_case("parts",
             "tile t(x: in f32[6, 5, 9], y: out f32[3, 4], z: out f32[5]) over (i in 1) { v = exp(x); y[:] = v[2 : +3, "
             "1, 3 : +4]; z[:] = v[5, :, 8] + v[0, :, 0] }",
             "", "x 6 5 9; y 3 4; z 5", 1e-6);
    add_case("iota",
             "tile t(y: out i32[4, 70], z: out f32[70]) over (i in 1) { y[:] = reshape(iota(4), 4, 1) * 100 + "
             "iota(70); z[:] = f32(iota(70)) * 0.5 }",
             "", "y 4 70; z 70", 0);
    add_case("causal mask",
             "tile t(x: in f32[M, 70], s: arg i32, y: out f32[M, 70]) over (r in ceil(M / 8)) { i = r*8 + "
             "reshape(iota(8), 8, 1) + s; y[r*8 : +8, :] = where(iota(70) <= i, x[r*8 : +8, :], -inf) }",
             "", "x 20 70; y 20 70", 0)
        ->args[0] = 3;
}

static inline void add_statements(void) {
    add_case("if",
             "tile t(x: in f32[M, 9], n: arg i32, y: out f32[M, 9]) over (r in M) { v = x[r, :]; w = v; if r < n { w = "
             "v * 2 } else if r == n { w = v + 1 } else { w = -v; if r % 2 == 0 { w = w - 3 } }; y[r, :] = w }",
             "", "x 7 9; y 7 9", 0)
        ->args[0] = 3;
    add_case("if by data",
             "tile t(x: in f32[M, 9], f: in i32[M], y: out f32[M, 9]) over (r in M) { if f[r] > 2 and f[r] != 7 { y[r, "
             ":] = x[r, :] } else { y[r, :] = sum(x[r : +1, :], 1)[0, 0] } }",
             "", "x 7 9; f 7 in 0 8; y 7 9", 1e-6);
    add_case("for",
             "tile t(x: in f32[M, 9], y: out f32[1, 9]) over (r in 1) { s: f32[1, 9] = 0; for i in M { s += x[i : +1, "
             ":] }; for j in 2 .. 5 { for k in j { s = s + f32(k) * 0.5 - f32(j) } }; y[:] = s }",
             "", "x 7 9; y 1 9", 1e-5);
    add_case("for scalars",
             "tile t(x: in f32[M, 9], y: out f32[M, 2]) over (r in M) { a = 0.0; n = 0; for i in 9 { a += x[r, i] * "
             "x[r, i]; if x[r, i] > 0 { n += 1 } }; m = sqrt(a); y[r, 0] = m; y[r, 1] = f32(n) }",
             "", "x 7 9; y 7 2", 1e-5);
    add_case("for by data",
             "tile t(x: in f32[M, 9], f: in i32[M], y: out f32[M, 9]) over (r in M) { v: f32[9] = 0; for i in f[r] { v "
             "+= x[r, :] * f32(i + 1) }; y[r, :] = v }",
             "", "x 7 9; f 7 in -1 4; y 7 9", 1e-5);
    add_case("variables used in loops",
             "tile t(x: in bf16[M, 9], y: out f32[M, 9]) over (r in M) { v = f32(x[r : +1, :]); e = exp(v); s: f32[1, "
             "9] = 0; for i in 3 { s += e * v; t = s.T; s = s + t[0 : +1, :] * 0.1 }; y[r, :] = s[0, :] }",
             "", "x 7 9; y 7 9", 1e-4);
    add_case("variables assigned later",
             "tile t(x: in f32[4, 9], y: out f32[4, 9]) over (r in 1) { a = x * 2; b = a + 1; c = a[:, 0 : +4]; a = a "
             "* 3; y[:] = b + a; y[:, 0 : +4] = c * 10 }",
             "", "x 4 9; y 4 9", 1e-6);
    add_case("variables of storage types",
             "tile t(x: in bf16[4, 9], k: in i4[4, 9], s: in e8m0[4, 9], y: out bf16[9, 4], z: out i4[4, 9], w: out "
             "e8m0[4, 9]) over (r in 1) { a = x; b = k; c = s; for i in 2 { a = where(i32[4, 9](b) > i, a, bf16(1)) ; "
             "b = where(f32(a) > 0, b, i4(2)); c = where(f32(a) > 0, c, e8m0(4)) }; y[:] = a.T; z[:] = b; w[:] = c }",
             "", "x 4 9; k 4 9; s 4 9 in 1 9; y 9 4; z 4 9; w 4 9", 0);
    add_case("names of C",
             "tile t(int: in f32[4, 9], for_: in f32[9], index: out f32[4, 9], i0: arg f32, NAN: arg i32) over (double "
             "in 4) { float = int[double, :]; mt_row = float + for_; t_1 = exp(mt_row) * i0; while = sum(reshape(t_1, "
             "1, 9), 1); index[double, :] = t_1 / while[0, 0] + f32(NAN) }",
             "", "int 4 9; for_ 9; index 4 9", 1e-5)
        ->args[0] = 2;
    add_case("e8m0 out of range",
             "tile t(s: in e8m0[M, 9], y: out f32[M, 12], z: out f32[12]) over (r in M) { y[r, :] = f32(s[r, -1 : "
             "+12]); z[:] = f32(s[M, 0 : +12]) }",
             "", "s 4 9 in 1 9; y 4 12; z 12", 0);
    add_case("group scales",
             "tile t[N, K](q: in u4[N, K], s: in f16[N, K / 32], z: in f16[N, K / 32], x: in f32[M, K], y: out f32[M, "
             "N]) over (n in ceil(N / 8)) {\n w = (reshape(f32(q[n*8 : +8, :]), 8, K / 32, 32) - reshape(f32(z[n*8 : "
             "+8, :]), 8, K / 32, 1)) * reshape(f32(s[n*8 : +8, :]), 8, K / 32, 1)\n y[0 : +5, n*8 : +8] = dot(x[0 : "
             "+5, :], reshape(w, 8, K).T) }",
             "N=20 K=128", "q 20 128; s 20 4; z 20 4; x 4 128; y 4 20", 1e-4);
    add_case("softmax",
             "tile t(x: in f32[M, 100], y: out f32[M, 100]) over (r in ceil(M / 4)) { v = x[r*4 : +4, :]; e = exp(v - "
             "max(v, axis = 1)); y[r*4 : +4, :] = e / sum(e, axis = 1) }",
             "", "x 9 100; y 9 100", 1e-5);
    add_case(
        "layer norm",
        "tile t(x: in bf16[M, 50], g: in f32[50], y: out bf16[M, 50]) over (r in ceil(M / 4)) { v = f32(x[r*4 : +4, "
        ":]); m = sum(v, 1) / 50; d = v - m; y[r*4 : +4, :] = bf16(d * rsqrt(sum(d * d, 1) / 50 + 1e-5) * g) }",
        "", "x 9 50; g 50; y 9 50", 1e-4);
    add_case("library rmsnorm", "rmsnorm", "K=72 T=bf16 G=f32", "x 9 72; g 72; y 9 72", 1e-4)->args[0] = 1e-5;
    add_case("library silu_mul", "silu_mul", "N=72", "a 9 72; b 9 72; y 9 72", 1e-5);
    add_case("library rope", "rope", "H=3 D=24 ROWS=4", "x 9 3 24; angles 9 12 2; y 9 3 24", 1e-5);
    add_case("library rope_table", "rope_table", "D2=12 ROWS=4", "freq 12 in 0 1; angles 9 12 2", 1e-5)->lives[0] =
        1000;
    add_case("library norm_linear_rope", "norm_linear_rope", "H=3 D=24 K=72 BM=4 W=f16",
             "x 9 72; g 72; w 72 72; angles 9 12 2; y 9 3 24", 1e-4)
        ->args[0] = 1e-5;
    add_case("library norm_linear_rope_append", "norm_linear_rope_append", "H=3 D=24 K=96 BM=4 W=q4_1",
             "x 5 96; g 96; w 72 96; angles 5 12 2; cache 20 3 24", 1e-3)
        ->args[0] = 1e-5;
    cases[case_count - 1].lives[0] = 11;
    add_case("library head_norm", "head_norm", "H=3 D=24 ROWS=4", "x 9 3 24; g 24; y 9 3 24", 1e-5)->args[0] = 1e-5;
    add_case("library rope_half", "rope_half", "H=3 D=24 ROWS=4", "x 9 3 24; angles 9 12 2; y 9 3 24", 1e-5);
    add_case("library head_norm_rope", "head_norm_rope", "H=3 D=24 ROWS=4", "x 9 3 24; g 24; angles 9 12 2; y 9 3 24",
             1e-5)
        ->args[0] = 1e-5;
    add_case("library head_norm_rope, one", "head_norm_rope", "H=4 D=128", "x 1 4 128; g 128; angles 1 64 2; y 1 4 128",
             1e-5)
        ->args[0] = 1e-5;
    add_case("library head_norm_rope_append", "head_norm_rope_append", "H=3 D=24 ROWS=4",
             "x 5 3 24; g 24; angles 5 12 2; cache 20 3 24", 1e-3)
        ->args[0] = 1e-5;
    cases[case_count - 1].lives[0] = 11;
    add_case("library norm_linear_norm_rope", "norm_linear_norm_rope", "H=3 D=24 K=72 BM=4 W=f16",
             "x 9 72; g 72; w 72 72; hg 24; angles 9 12 2; y 9 3 24", 1e-4)
        ->args[0] = 1e-5;
    add_case("library norm_linear_norm_rope_append", "norm_linear_norm_rope_append", "H=3 D=24 K=96 BM=4 W=q4_1",
             "x 5 96; g 96; w 72 96; hg 24; angles 5 12 2; cache 20 3 24", 1e-3)
        ->args[0] = 1e-5;
    cases[case_count - 1].lives[0] = 11;
    add_case("library attention", "attention", "H=6 HK=2 D=24 BM=4", "q 7 6 24; kc 150 2 24; vc 150 2 24; y 7 6 24",
             1e-3)
        ->args[0] = 0.2;
    cases[case_count - 1].lives[0] = 100;
    add_case("library attention first token", "attention", "H=6 HK=2 D=24 BM=1",
             "q 1 6 24; kc 150 2 24; vc 150 2 24; y 1 6 24", 1e-3)
        ->args[0] = 0.2;
}

#endif
