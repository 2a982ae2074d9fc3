/* Access summaries against an oracle that runs the program at a grid point with every value that the live parameters
 * can take (access_oracle.h). Where indices do not come from data the boxes must be the hull of what was touched, no
 * element more; always they must contain it. */
#include "access_check.h"

/* ---- programs ---- */

static void test_programs(void **state) {
    (void)state;
    static const struct {
        const char *source;
        int64_t extents[4], args[2];
        int32_t lives[2][2];
        int flags;
    } cases[] = {
        {"tile linear[N = 51, K = 100, BM = 16, BN = 13, BK = 32](x: in bf16[M, K], w: in f32[N, K],\n"
         "    y: out bf16[M, N])\n"
         "over (n in ceil(N / BN), m in ceil(M / BM)) {\n"
         "acc: f32[BM, BN] = 0\n"
         "for k in stream(ceil(K / BK)) { acc += dot(x[m*BM : +BM, k*BK : +BK], w[n*BN : +BN, k*BK : +BK].T) }\n"
         "y[m*BM : +BM, n*BN : +BN] = bf16(acc) }",
         .extents = {37}},
        {"tile blocks[K = 96, BK = 32](x: in f32[M, K], w: in q4_0[7, K], y: out f32[M, 7])\n"
         "over (m in M, k in ceil(K / BK)) {\n"
         "y[m] = reshape(dot(x[m : +1, k*BK : +BK], w[:, k*BK : +BK].T), 7) }",
         .extents = {3}},
        {"tile window(x: in f32[M], y: out f32[M])\n"
         "over (i in M + 2) { y[i - 1] = x[i - 3] + sum(x[i - 2 : +5], 0)[0] + x[3 - i*2] }",
         .extents = {9}},
        {"tile ends(x: in f32[M], y: out f32[M])\n"
         "over (i in 4) { y[i*3 : +3] = x[i*3 - 4 : +3]; y[100 : +3] = 1; y[-3 : +3] = x[M - 1] }",
         .extents = {11}},
        {"tile split(x: in f32[M, 64], y: inout f32[M]) over (m in ceil(M / 4), k in 4) {\n"
         "v = reshape(sum(x[m*4 : +4, k*16 : +16], 1), 4)\n"
         "if k == 0 { y[m*4 : +4] = v } else { y[m*4 : +4] += v } }",
         .extents = {10}},
        {"tile nested(x: in f32[20, M], y: out f32[20, M]) over (i in 3) {\n"
         "for j in 4 { for k in 1 .. 3 { y[i*4 + j, k*3 : +2] = x[j*5 + 2 - i, M - k*2 : +1] } } }",
         .extents = {13}},
        {"tile names(x: in f32[M], y: out f32[M]) over (i in 6) {\n"
         "start = i * 4; size = 3; if i % 2 == 0 { start = start + 1 } else if i > 4 { start = 0; start = 2 }\n"
         "shift = start + size; y[start : +2] = x[shift : +2]\n"
         "for j in 2 { inner = shift + j; inner = inner * 2; y[inner] = x[inner - 1] } }",
         .extents = {40}},
        {"tile arithmetic(x: in f32[M, M], y: out f32[M, M], n: arg i32) over (i in 12) {\n"
         "for j in 5 { y[i / 3 + j, (j + i) % 7] = x[max(i - 4, 2) + min(j, n), abs(i - 6)]\n"
         "y[i << 1, i >> 1] = x[(i & 3) + (i | 1), i ^ 5]; "
         "y[ceil(i / 4), -i + 12] = x[ceil((j + 1) / 2), where(i > 5, j, 9)] } }",
         .extents = {31}, .args = {3}},
        {"tile where_j(x: in f32[M], y: out f32[M])\n"
         "over (i in 3) {\n"
         "for j in 6 { y[where(i == 1, j, 3 * j + 1)] = x[max(j - 2, i)]; "
         "y[i32(j) * i32(2)] = 0 } }",
         .extents = {31}},
        {"tile args(x: in f32[M, 3], y: out f32[n + 2, 3], n: arg i32, e: arg f32)\n"
         "over (i in n / 2) { y[i*2 : +2] = x[i + n - 5 : +2] * e; y[n] = x[0]; y[n + 1, :] = 0 }",
         .extents = {9}, .args = {7, 0}},
        {"tile empty(x: in f32[M], y: out f32[M])\n"
         "over (i in 5) {\n"
         "for j in 3 .. i { y[j] = x[j] }\nif M > 100 { y[0] = 1 }\n"
         "if not (M > 3) or i == 7 { y[1] = 1 } }",
         .extents = {6}},
        {"tile append(x: in f32[M, 2], pos: live i32, cache: out f16[S, 2]) over (r in ceil(M / 3)) {\n"
         "cache[pos + r*3 : +3 < pos + M] = f16(x[r*3 : +3]) }",
         .extents = {7, 40}, .lives = {{0, 33}}},
        {"tile append_late(x: in f32[M, 2], pos: live i32, cache: out f16[S, 2]) over (r in ceil(M / 3)) {\n"
         "cache[pos + r*3 : +3 < pos + M] = f16(x[r*3 : +3]) }",
         .extents = {7, 40}, .lives = {{30, 39}}},
        {"tile live_rows(x: in f32[pos + 2, 3], y: out f32[pos, 3], pos: live i32) over (r in ceil(pos / 4)) {\n"
         "y[r*4 : +4] = x[r*4 + 1 : +4] }",
         .lives = {{0, 13}}},
        {"tile live_end(x: in f32[pos + 1, 3], y: out f32[pos + 4], pos: live i32) over (r in 2) {\n"
         "y[pos + r*2 : +3] = sum(x[pos : +4], 0)[0, 0]; "
         "y[pos - 1 : +2 < pos + 1] = x[pos - r*2 : +2, 0] }",
         .lives = {{1, 9}}},
        {"tile fixed(x: in f32[M], y: out f32[M], pos: live i32)\n"
         "over (r in 2) { if pos == 5 { y[pos + r] = x[pos * 2 - r] } }",
         .extents = {20}, .lives = {{5, 5}}},
        {"tile attend(kc: in f32[S, 4], y: out f32[M, 4], pos: live i32) over (m in M) {\n"
         "for j in stream(ceil((pos + m + 1) / 8)) { y[m] = sum(kc[j*8 : +8 < pos + M], 0)[0] } }",
         .extents = {50, 3}, .lives = {{0, 40}}},
        {"tile relative_loop(x: in f32[S], y: out f32[S], pos: live i32)\n"
         "over (i in 2) { for j in pos - 1 .. pos + 3 { y[j + i] = x[j - 2] } }",
         .extents = {30}, .lives = {{4, 20}}},
        {"tile lives(x: in f32[S, S], y: out f32[S, S], a: live i32, b: live i32) over (i in 2) {\n"
         "y[a + i, b] = x[a + b, 2 * a + i]; y[b + 3, a - a + i] = x[a + 1, 20 - a]; "
         "y[min(a, a + i - 1), max(b, 3)] = x[a*1 + 2, b / 1] }",
         .extents = {24}, .lives = {{2, 6}, {1, 5}}, .flags = 0},
        {"tile gathered(x: in f32[M, 2], y: out f32[M, 2])\n"
         "over (i in 3) { y[iota(4) * 2 + i] = x[concat(iota(2) + i * 4, iota(3) + 1, axis = 0)[1 : +4]]\n"
         "t = reshape(iota(6), 2, 3).T; y[reshape(t, 6) + i] = x[reshape(max(t, axis = 0), 2)[1] + i]; "
         "y[i32[3](i)] = 0\n"
         "y[0 : +4, argmax(t, axis = 0)[0, 0]] = x[where(iota(4) < 2, 1, 5), 1] }",
         .extents = {14}, .flags = DATA},
        {"tile gathered_exactly(x: in f32[M, 2], y: out f32[M, 2])\n"
         "over (i in 3) { y[iota(4) * 2 + i] = x[concat(iota(2) + i * 4, iota(2) + 1, axis = 0)] }",
         .extents = {14}},
        {"tile scattered(ids: in i32[M], x: in f32[M, 5], y: inout f32[M, 5]) over (i in ceil(M / 4)) {\n"
         "v = ids[i*4 : +4]; y[v] = x[v + 1]; y[ids[i], 1] += 2; "
         "for j in ids[0] { y[j, ids[ids[j]] : +2] = x[ids[j] * 3, 0 : +2] } }",
         .extents = {18}, .flags = DATA},
        {"tile by_data(c: in bool[M], e: arg f32, x: in f32[M], y: inout f32[M]) over (i in 4) {\n"
         "at = i * 3; if c[i] { at = i; y[i] = x[i + 5] } else { y[i + 1] += x[i + 2] }\n"
         "y[at] = 1; if e > 1.5 { y[7] = 2 }\nfor j in 3 { y[at] = 3; at = at + 2; "
         "y[at + 1] = 4 } }",
         .extents = {18}, .args = {0}, .flags = DATA},
        {"tile by_data_once(c: in bool[M], x: in f32[M], y: out f32[M]) over (i in 3) {\n"
         "at = i * 3; if c[i] { at = i * 3 + 4 }\ny[at] = 1\nto = 11; if i == 1 { to = 13; to = 12 }\n"
         "y[to] = x[to - 1] }",
         .extents = {18}, .flags = DATA},
        {"tile changes(x: in f32[M], y: out f32[M]) over (i in 3) {\n"
         "a = 0; b = 0; for j in 3 { y[a] = x[b]; if j > 0 { a = a + 2 } else { a = a + 1 }; "
         "for k in 2 { b = b + 3 } } }",
         .extents = {30}, .flags = DATA},
        {"tile else_changes(x: in f32[M], y: out f32[M])\n"
         "over (i in 3) { a = 0; for j in 3 { y[a] = x[j]; if j > 5 { y[0] = 1 } else { a = a + 9 } } }",
         .extents = {30}, .flags = DATA},
        {"tile reduced(ids: in u4[M], y: out f32[M])\n"
         "over (i in 3) { v = i32(ids[i : +4]); y[sum(v, axis = 0)[0]] = 1; y[max(v, axis = 0)[0] + 14] = 1 }",
         .extents = {70}, .flags = DATA},
        {"tile argmax_place(y: out f32[M])\n"
         "over (i in 1) { y[argmax(iota(3) - 9, axis = 0)[0]] = 1 }",
         .extents = {9}, .flags = DATA},
        {"tile by_one(x: in f32[M], y: out f32[M], pos: live i32)\n"
         "over (i in 3) { y[pos * 1 + i] = x[1 * (pos / 1)]; y[ceil(pos / 1)] = 0 }",
         .extents = {20}, .lives = {{2, 9}}},
        {"tile from_live(x: in f32[M], y: out f32[M], pos: live i32)\n"
         "over (i in 3) { for j in pos - 1 .. 15 { y[j] = 1 }\nfor j in 2 .. pos { y[j] = x[j] } }",
         .extents = {20}, .lives = {{2, 9}}},
        {"tile casts(x: in f32[M], y: out f32[M], pos: live i32) over (i in 5) {\n"
         "y[i64(u64(i - 3))] = x[i32(i8(i * 100 - 200)) + 100]; y[i64(bool(i - 2)) + 5] = x[i64(u2(pos)) + 1]\n"
         "if bool(i - 3) { y[12] = 1 } else { y[13] = 1 }\nif bool(i32(pos) - 9) { y[14] = 1 }\n"
         "y[i64(u4(pos - 4)) + 16] = x[i64(u3(i32(i) - 2)) + 8] }",
         .extents = {260}, .lives = {{2, 9}}},
        {"tile either(y: out f32[M], pos: live i32)\n"
         "over (i in 3) { if i == 1 or pos > 3 { y[0] = 1 } else { y[1] = 1 } }",
         .extents = {20}, .lives = {{2, 9}}},
        {"tile both(y: out f32[M], pos: live i32)\n"
         "over (i in 3) { if i > 0 and pos < 5 { y[5] = 0 } else { y[6] = 1 } }",
         .extents = {20}, .lives = {{2, 9}}},
        {"tile one_value(y: out f32[M], pos: live i32)\n"
         "over (i in 3) {\n"
         "y[8] = 0; if i32(pos) == 5 { y[2] = 1 }\nif pos == 12 { y[0] = 1 } }",
         .extents = {20}, .lives = {{2, 9}}},
        {"tile small_types(x: in u4[M, 6], z: in i1[M, 10], y: out e4m3[M, 3])\n"
         "over (i in M) { y[i] = e4m3(x[i, 1 : +3]) ; v = z[i] }",
         .extents = {5}},
        {"tile inner_bounds(x: in f32[M], y: out f32[M])\n"
         "over (i in 4) {\n"
         "for j in 4 { for k in j .. j + 2 { y[k + i] = exp(x[k]) } } }",
         .extents = {12}, .flags = FLOPS_AT_MOST},
        {"tile deep(x: in f32[M, 3, 4, 2, 5], y: out f32[M])\n"
         "over (i in 2, j in 3) { y[i] = sum(x[i : +2, j, 1 : +2, :, 4], 0)[0, 0, 1] }",
         .extents = {3}},
        {"tile grid5(x: in f32[M], y: out f32[M])\n"
         "over (a in 2, b in 1, c in 2, d in 1, e in 2) { y[a*4 + c*2 + e] = x[b + d + e] }",
         .extents = {9}},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        arena *a = arena_new();
        const tile_op *op = bind(a, cases[k].source);
        const tile_instance i = instance_of(op, cases[k].extents, cases[k].args, cases[k].lives);
        check_instance(&i, cases[k].flags, op->name);
        arena_free(a);
    }
}

/* ---- the library ---- */

/* Every program of the library, with small constants: its boxes are exact but for what comes from data. */
/* Conditions of the library's programs come from data, which the oracle makes up. */
static bool has_condition(const tile_statement *s) {
    for (; s; s = s->next)
        if (s->kind == TILE_IF || has_condition(s->body)) return true;
    return false;
}

static void test_library(void **state) {
    (void)state;
    const tile_file *f;
    assert_int_equal(tile_library(&f, NULL), MT_OK);
    for (size_t p = 0; p < tile_file_count(f); p++) {
        const char *name = tile_file_name(f, p);
        tile_constant k[TILE_CONSTANTS];
        const int count = tile_constants(f, name, k);
        for (int variant = 0; variant < 2; variant++) {
            for (int c = 0; c < count; c++) {
                if (k[c].type) continue;
                const bool block = !strcmp(k[c].name, "BM") || !strcmp(k[c].name, "BN") || !strcmp(k[c].name, "BK") ||
                                   !strcmp(k[c].name, "BS") || !strcmp(k[c].name, "ROWS");
                if (block)
                    k[c].value = variant ? 4 : 2;
                else if (k[c].value == INT64_MIN)
                    k[c].value = !strcmp(k[c].name, "H") ? 4 : !strcmp(k[c].name, "HK") ? 2 : variant ? 6 : 10;
            }
            arena *a = arena_new();
            const tile_op *op;
            tile_diagnostics d = {0};
            mt_error e = {0};
            tile_constant given[TILE_CONSTANTS];
            size_t given_count = 0;
            for (int c = 0; c < count; c++)
                if (k[c].type || strcmp(k[c].name, "G")) given[given_count++] = k[c]; /* G = H / HK follows */
            if (tile_bind(a, &op, f, name, given, given_count, &d, &e))
                fail_msg("%s: %s\n%s", name, e.message, d.text.data ? d.text.data : "");
            int64_t extents[TILE_EXTENTS], args[TILE_PARAMS] = {0};
            for (int x = 0; x < op->extent_count; x++)
                extents[x] = !strcmp(op->extent_names[x], "S") ? 23 : 5 + variant;
            static const int32_t lives[4][2] = {{0, 13}, {0, 3}, {0, 3}, {0, 3}};
            const tile_instance i = instance_of(op, extents, args, lives);
            bool data = has_condition(op->body);
            for (int q = 0; q < op->param_count; q++)
                data |= op->params[q].rank && !strcmp(op->params[q].type->name, "i32");
            check_instance(&i, data ? DATA : 0, name);
            arena_free(a);
        }
    }
}

/* ---- random programs ---- */

typedef struct writer {
    text out;
    uint64_t random;
    int loops, variables, statements;
} writer;

static int pick(writer *w, int n) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (int)(w->random >> 20 & 0x7fffffff) % n;
}

static void write_expr(writer *w, int depth) {
    static const char *const leaves[] = {"i", "h", "n", "p", "q", "M", "i", "p", "2", "3"};
    static const char *const infix[] = {" + ", " + ", " - ", " * ", " / ", " % ", " & ", " | ", " ^ "};
    text *t = &w->out;
    const int kind = depth ? pick(w, 20) : pick(w, 8);
    if (kind < 4) {
        text_string(t, leaves[pick(w, COUNT_OF(leaves))]);
    } else if (kind == 4) {
        text_printf(t, "%d", pick(w, 14) - 4);
    } else if (kind == 5) {
        if (w->loops)
            text_printf(t, "j%d", pick(w, w->loops));
        else
            text_string(t, "i");
    } else if (kind == 6) {
        if (w->variables)
            text_printf(t, "v%d", pick(w, w->variables));
        else
            text_string(t, "p");
    } else if (kind == 7) {
        if (pick(w, 3))
            text_string(t, "h");
        else if (depth) {
            text_string(t, "i64(ids[");
            write_expr(w, depth - 1);
            text_string(t, "])");
        } else
            text_string(t, "i64(ids[i])");
    } else if (kind < 15) {
        text_string(t, "(");
        write_expr(w, depth - 1);
        text_string(t, infix[pick(w, COUNT_OF(infix))]);
        write_expr(w, depth - 1);
        text_string(t, ")");
    } else if (kind < 18) {
        static const char *const two[] = {"min", "max", "ceil", "where", "where"};
        const int f = pick(w, COUNT_OF(two));
        text_printf(t, "%s(", two[f]);
        write_expr(w, depth - 1);
        if (f >= 3) {
            static const char *const comparisons[] = {" == ", " != ", " < ", " <= ", " > ", " >= "};
            text_string(t, comparisons[pick(w, 6)]);
            write_expr(w, depth - 1);
            text_string(t, ", ");
            write_expr(w, depth - 1);
        }
        text_string(t, f == 2 ? " / " : ", ");
        write_expr(w, depth - 1);
        text_string(t, ")");
    } else if (kind == 18) {
        static const char *const one[] = {"abs(", "-(", "i64(i32(", "i64(u8(", "i64(bool(", "i64(i3(", "i64(u64("};
        const int f = pick(w, COUNT_OF(one));
        text_string(t, one[f]);
        write_expr(w, depth - 1);
        text_string(t, f < 2 ? ")" : "))");
    } else {
        text_string(t, "(");
        write_expr(w, depth - 1);
        text_printf(t, " %s %d)", pick(w, 2) ? "<<" : ">>", pick(w, 4));
    }
}

static void write_condition(writer *w) {
    if (pick(w, 4) == 0) text_string(&w->out, pick(w, 2) ? "not " : "e > 0.5 or ");
    text_string(&w->out, "(");
    write_expr(w, 2);
    text_string(&w->out, pick(w, 2) ? " < " : " == ");
    write_expr(w, 1);
    text_string(&w->out, pick(w, 4) ? ")" : " and i != 1)");
}

/* [items] of a tensor of two dimensions that take two elements each; in half of the cases with a limit. */
static void write_items(writer *w) {
    text *t = &w->out;
    text_string(t, "[");
    for (int d = 0; d < 2; d++) {
        if (d) text_string(t, ", ");
        if (pick(w, 8) == 0) {
            text_string(t, "i32(");
            write_expr(w, 1);
            text_printf(t, ") + iota(2) * %d", pick(w, 3));
            continue;
        }
        write_expr(w, 3);
        text_string(t, " : +2");
        if (pick(w, 3)) continue;
        text_string(t, " < ");
        write_expr(w, 2);
    }
    text_string(t, "]");
}

static void write_block(writer *w, int depth) {
    text *t = &w->out;
    const int variables = w->variables, loops = w->loops;
    for (int n = 1 + pick(w, 4); n && w->statements < 14; n--) {
        w->statements++;
        const int kind = pick(w, 10);
        if (kind < 2) {
            text_printf(t, "v%d = i64(", w->variables);
            write_expr(w, 3);
            text_string(t, ")\n");
            w->variables++;
        } else if (kind == 2 && w->variables) {
            text_printf(t, "v%d = i64(", pick(w, w->variables));
            write_expr(w, 2);
            text_string(t, ")\n");
        } else if (kind < 5 && depth) {
            text_string(t, "if ");
            write_condition(w);
            text_string(t, " {\n");
            write_block(w, depth - 1);
            if (pick(w, 2)) {
                text_string(t, "} else {\n");
                write_block(w, depth - 1);
            }
            text_string(t, "}\n");
        } else if (kind < 7 && depth) {
            text_printf(t, "for j%d in ", w->loops);
            if (pick(w, 2)) { /* relative to a live value, perhaps */
                text_string(t, pick(w, 2) ? "p - 1 .. p + " : "i .. i + ");
                text_printf(t, "%d {\n", pick(w, 4));
            } else {
                write_expr(w, 1);
                text_string(t, " % 4 .. ");
                write_expr(w, 1);
                text_string(t, " % 5 {\n");
            }
            w->loops++;
            write_block(w, depth - 1);
            w->loops--;
            text_string(t, "}\n");
        } else {
            text_string(t, "y");
            write_items(w);
            text_string(t, pick(w, 3) ? " = x" : " += x");
            write_items(w);
            text_string(t, "\n");
        }
    }
    w->variables = variables;
    w->loops = loops;
}

static void test_random_programs(void **state) {
    (void)state;
    int bound = 0;
    writer w = {.random = 0x9e3779b97f4a7c15u};
    for (int round = 0; round < 1500; round++) {
        w.out.length = 0;
        w.statements = 0;
        text_string(
            &w.out,
            "tile t(x: in f32[M, p + 5], y: inout f32[M, 9], ids: in i32[M], n: arg i32, e: arg f32, p: live i32,\n"
            "    q: live i32)\n"
            "    over (i in 3, h in 2) {\n");
        write_block(&w, 3);
        text_string(&w.out, "}\n");
        tile_file *f;
        tile_diagnostics d = {0};
        if (tile_parse(&f, "t.tile", w.out.data, w.out.length, &d, NULL)) fail_msg("%s\n%s", w.out.data, d.text.data);
        arena *a = arena_new();
        const tile_op *op;
        const mt_status status =
            tile_bind(a, &op, f, "t", NULL, 0, &d, NULL); /* divisions by 0 and the like are refused */
        if (status == MT_OK) {
            bound++;
            static const int32_t lives[2][2] = {{0, 4}, {3, 5}};
            const tile_instance i = instance_of(op, (int64_t[]){7 + round % 5}, (int64_t[]){round % 7 - 2, 0}, lives);
            for (int64_t x = 0; x < 3; x++) check_point(&i, (int64_t[TILE_AXES]){x, round % 2}, DATA, w.out.data);
        }
        text_free(&d.text);
        arena_free(a);
        tile_file_free(f);
    }
    text_free(&w.out);
    assert_true(bound > 1000);
}

/* An extent that is live may be any from 0 to its most when an instruction runs, wherever the program uses it: the
 * boxes hold what is touched with each, and not more where it stands alone. */
static void test_live_extents(void **state) {
    (void)state;
    static const struct {
        const char *source;
        bool exact;
    } cases[] = {
        {"tile last(x: in f32[M, 3], y: out f32[1, 3]) over (i in 1) { y[0, :] = x[M - 1, :] }", true},
        {"tile back(x: in f32[M, 3], y: out f32[M]) over (i in 4) { y[M - i - 1] = x[M - 2 - i, 1] }", true},
        {"tile ends(x: in f32[M, 3], y: out f32[M]) over (i in 3) { y[i*4 : +4 < M - 1] = x[M - 4 : +4, i] }", true},
        {"tile loop(x: in f32[M, 3], y: out f32[M]) over (i in 2) { for j in M / 2 { y[j + i] = x[2*j, 0] } }", false},
        {"tile from(x: in f32[M, 3], y: out f32[M]) over (i in 2) { for j in M - 3 .. M { y[j] = x[j - i, 0] } }",
         false},
        {"tile test(x: in f32[M, 3], y: out f32[M]) over (i in 2) { if M > 4 { y[i] = x[4, 0] } else { y[8] = 1 } }",
         false},
        {"tile two(x: in f32[M, 3], z: in f32[K], y: out f32[M]) over (i in 2) { y[i + M - K] = x[K - 1, i] + z[M] }",
         false},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        arena *a = arena_new();
        const tile_op *op = bind(a, cases[k].source);
        enum { MOST = 9 };
        tile_instance all = instance_of(op, (int64_t[]){MOST, MOST}, (int64_t[]){0}, NULL);
        for (int p = 0; p < op->tensor_count; p++)
            for (int d = 0; d < all.tensor[p].rank; d++) all.tensor[p].live[d] = all.tensor[p].extent[d] == MOST;
        assert_int_equal(tile_instance_check(&all, NULL), MT_OK);
        int64_t count[TILE_AXES];
        assert_true(tile_instance_grid(&all, count) > 0);
        for (int64_t x = 0; x < count[0]; x++) {
            const int64_t index[TILE_AXES] = {x};
            tile_summary summary;
            tile_summarise(&all, index, &summary);
            hull reads[TILE_PARAMS] = {{0}}, writes[TILE_PARAMS] = {{0}};
            for (int64_t m = 0; m <= MOST; m++)
                for (int64_t n = 0; n <= MOST; n++) {
                    const tile_instance now = instance_of(op, (int64_t[]){m, n}, (int64_t[]){0}, NULL);
                    world w = {.memory = arena_new(), .instance = &now, .op = op, .index = index};
                    run(&w, op->body);
                    for (int t = 0; t < op->tensor_count; t++) {
                        const int rank = all.tensor[t].rank;
                        unite(&reads[t], &w.reads[t], box_of(&summary, t, false), NULL, rank, op->name);
                        unite(&writes[t], &w.writes[t], box_of(&summary, t, true), NULL, rank, op->name);
                    }
                    arena_free(w.memory);
                }
            for (int t = 0; t < op->tensor_count && cases[k].exact; t++) {
                compare(&reads[t], box_of(&summary, t, false), all.tensor[t].rank, op->name);
                compare(&writes[t], box_of(&summary, t, true), all.tensor[t].rank, op->name);
            }
        }
        arena_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_live_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
