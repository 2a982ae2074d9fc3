/* Access summaries against an oracle that runs the program at a grid point with every value that the live parameters
 * can take (access_oracle.h). Where indices do not come from data the boxes must be the hull of what was touched, no
 * element more; always they must contain it. */
#include "access_oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- comparing ---- */

enum {
    DATA = 1,
    FLOPS_AT_MOST = 2
}; /* indices come from data: contained, not equal. Loops whose length depends on others' */

static const tile_box *box_of(const tile_summary *s, int tensor, bool writes) {
    const tile_box *found = NULL;
    for (int b = 0; b < s->box_count; b++) {
        assert_true(s->box[b].reads != s->box[b].writes);
        if (s->box[b].tensor != tensor || s->box[b].writes != writes) continue;
        assert_null(found);
        found = &s->box[b];
    }
    return found;
}

/* Adds what one run touched to the union of all, relative to live values where the box is. */
static void unite(hull *all, const hull *h, const tile_box *box, const int64_t *live, int rank, const char *what) {
    if (!h->any) return;
    if (!box) fail_msg("%s: touched, but there is no box", what);
    for (int d = 0; d < rank; d++) {
        const int64_t offset = box->dim[d].offset_live < 0 ? 0 : live[box->dim[d].offset_live];
        const int64_t low = h->low[d] - offset, high = h->high[d] - offset;
        if (low < box->dim[d].low || high > box->dim[d].high)
            fail_msg("%s, dimension %d: touched [%" PRId64 ", %" PRId64 "), the box is [%" PRId64 ", %" PRId64
                     ") + live %d",
                     what, d, low, high, box->dim[d].low, box->dim[d].high, box->dim[d].offset_live);
        if (!all->any || low < all->low[d]) all->low[d] = low;
        if (!all->any || high > all->high[d]) all->high[d] = high;
    }
    all->any = true;
}

static void compare(const hull *all, const tile_box *box, int rank, const char *what) {
    if (!all->any) {
        if (box) fail_msg("%s: never touched, but there is a box", what);
        return;
    }
    for (int d = 0; d < rank; d++)
        if (all->low[d] != box->dim[d].low || all->high[d] != box->dim[d].high)
            fail_msg("%s, dimension %d: touched [%" PRId64 ", %" PRId64 "), the box is [%" PRId64 ", %" PRId64
                     ") + live %d",
                     what, d, all->low[d], all->high[d], box->dim[d].low, box->dim[d].high, box->dim[d].offset_live);
}

/* Compares the summary of a grid point with what all runs of it touch. */
static void check_point(const tile_instance *i, const int64_t *index, int flags, const char *name) {
    const tile_op *op = i->op;
    tile_summary summary;
    memset(&summary, 0xa5, sizeof summary); /* nothing may be read from it */
    tile_summarise(i, index, &summary);
    hull reads[TILE_PARAMS] = {{0}}, writes[TILE_PARAMS] = {{0}};
    int64_t live[TILE_PARAMS], flops = 0;
    char what[256];
    for (int k = 0; k < op->live_count; k++) live[k] = i->live[k].least;
    do {
        for (uint64_t seed = 1; seed <= (flags & DATA ? 3 : 1); seed++) {
            world w = {.memory = arena_new(), .instance = i, .op = op, .index = index, .seed = seed};
            memcpy(w.live, live, sizeof w.live[0] * (size_t)op->live_count);
            run(&w, op->body);
            for (int p = 0; p < op->param_count; p++) {
                if (!op->params[p].rank) continue;
                const int t = op->params[p].ordinal, rank = op->params[p].rank;
                snprintf(what, sizeof what, "%s at %d, %d, %d: reads of %s", name, (int)index[0], (int)index[1],
                         (int)index[2], op->params[p].name);
                unite(&reads[t], &w.reads[t], box_of(&summary, t, false), live, rank, what);
                snprintf(what, sizeof what, "%s at %d, %d, %d: writes of %s", name, (int)index[0], (int)index[1],
                         (int)index[2], op->params[p].name);
                unite(&writes[t], &w.writes[t], box_of(&summary, t, true), live, rank, what);
            }
            flops = max_i64(flops, w.flops);
            arena_free(w.memory);
        }
    } while (next_live(i, live));
    int64_t bits[2] = {0, 0};
    for (int b = 0; b < summary.box_count; b++) {
        const tile_box *box = &summary.box[b];
        const tile_operand *t = &i->tensor[box->tensor];
        const tile_param *p = op->params;
        while (!p->rank || p->ordinal != box->tensor) p++;
        assert_int_equal(box->rank, t->rank);
        int64_t elements = 1;
        for (int d = 0; d < box->rank; d++) {
            tile_interval v = box->dim[d];
            assert_true(v.low < v.high);
            const tile_interval whole = tile_interval_absolute(i, v, t->extent[d]);
            assert_true(whole.offset_live == -1 && 0 <= whole.low && whole.low <= whole.high &&
                        whole.high <= t->extent[d]);
            if (v.offset_live < 0) assert_true(v.low == whole.low && v.high == whole.high);
            int64_t inside = 0; /* where the live value is at its maximum */
            for (int64_t x = v.low; x < v.high; x++) {
                const int64_t at = x + (v.offset_live < 0 ? 0 : i->live[v.offset_live].most);
                inside += at >= 0 && at < t->extent[d];
            }
            elements *= inside;
        }
        assert_int_equal(elements % p->type->block, 0);
        bits[box->writes] += (elements / p->type->block * p->type->bits + 7) / 8;
    }
    assert_int_equal(summary.bytes_read, bits[0]);
    assert_int_equal(summary.bytes_written, bits[1]);
    if (flags & (DATA | FLOPS_AT_MOST))
        assert_true(flops <= summary.flops);
    else if (flops != summary.flops)
        fail_msg("%s: %" PRId64 " operations, summary says %" PRId64, name, flops, summary.flops);
    if (flags & DATA) return;
    for (int p = 0; p < op->param_count; p++) {
        if (!op->params[p].rank) continue;
        const int t = op->params[p].ordinal, rank = op->params[p].rank;
        snprintf(what, sizeof what, "%s at %d, %d, %d: %s", name, (int)index[0], (int)index[1], (int)index[2],
                 op->params[p].name);
        compare(&reads[t], box_of(&summary, t, false), rank, what);
        compare(&writes[t], box_of(&summary, t, true), rank, what);
    }
}

static void check_instance(const tile_instance *i, int flags, const char *name) {
    int64_t count[TILE_AXES], index[TILE_AXES] = {0};
    const int64_t total = tile_instance_grid(i, count);
    assert_true(total >= 0);
    int64_t product = 1;
    for (int k = 0; k < TILE_AXES; k++) product *= count[k];
    assert_int_equal(product, total);
    for (int64_t n = 0; n < total; n++) {
        int64_t rest = n;
        for (int k = TILE_AXES - 1; k >= 0; k--) {
            index[k] = rest % count[k];
            rest /= count[k];
        }
        check_point(i, index, flags, name);
    }
}

static const tile_op *bind(arena *a, const char *text_of_program) {
    tile_file *f;
    const tile_op *op = NULL;
    tile_diagnostics d = {0};
    mt_error e = {0};
    if (tile_parse(&f, "t.tile", text_of_program, strlen(text_of_program), &d, &e) ||
        tile_bind(a, &op, f, tile_file_name(f, 0), NULL, 0, &d, &e))
        fail_msg("%s\n%s", text_of_program, d.text.data ? d.text.data : e.message);
    tile_file_free(f);
    return op;
}

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
            bool data = false;
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
        static const char *const one[] = {"abs(", "-(", "i64(i32(", "i64(u8(", "i64(bool("};
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

/* ---- instances ---- */

static void test_refused_instances(void **state) {
    (void)state;
    arena *a = arena_new();
    const tile_op *op = bind(a, "tile t[N = 8](x: in f32[M, N], y: out bf16[M + 1, 2 * n], w: in q8_0[K, L],\n"
                                "    c: in f32[pos + 3, M], u: in u4[U], n: arg i32, pos: live i32)\n"
                                "over (i in M) { y[i, 0] = 0 }");
    const tile_instance good = {.op = op,
                                .tensor = {{2, {5, 8}}, {2, {6, 6}}, {2, {3, 64}}, {2, {12, 5}}, {1, {77}}},
                                .arg = {{.i = 3}},
                                .live = {{0, 9}}};
    tile_instance i = good;
    mt_error e = {0};
    assert_int_equal(tile_instance_check(&i, &e), MT_OK);
    assert_true(i.free_extent[0] == 5 && i.free_extent[1] == 3 && i.free_extent[2] == 64 && i.free_extent[3] == 77);
#define REFUSED(change, expected)                                                                                      \
    do {                                                                                                               \
        i = good;                                                                                                      \
        change;                                                                                                        \
        assert_int_equal(tile_instance_check(&i, &e), MT_E_ARGUMENT);                                                  \
        assert_string_equal(e.message, expected);                                                                      \
    } while (0)
    REFUSED(i.tensor[0].rank = 3, "operand x of t has 3 dimensions; expected 2");
    REFUSED(i.tensor[0].rank = 1000000, "operand x of t has 1000000 dimensions; expected 2");
    REFUSED(i.tensor[0].extent[1] = 9, "operand x of t is f32[5, 9], but its dimension 1 must be 8");
    REFUSED(i.tensor[0].extent[0] = 4, "operand y of t is bf16[6, 6], but its dimension 0 must be M + 1 = 5");
    REFUSED(i.tensor[1].extent[1] = 7, "operand y of t is bf16[6, 7], but its dimension 1 must be 2 * n = 6");
    REFUSED(i.tensor[3].extent[1] = 7, "operand c of t is f32[12, 7], but its dimension 1 must be M = 5");
    REFUSED(i.tensor[3].extent[0] = 11,
            "operand c of t is f32[11, 5], but its dimension 0 must have room for pos + 3 = 12 at most");
    REFUSED(i.tensor[2].extent[1] = 65,
            "operand w of t is q8_0[3, 65], but its last extent must be a multiple of the format's block");
    REFUSED(i.tensor[4].extent[0] = -1, "operand u of t is u4[-1], but an extent must be between 0 and 2^40");
    REFUSED(i.tensor[4].extent[0] = ((int64_t)1 << 40) + 1,
            "operand u of t is u4[1099511627777], but an extent must be between 0 and 2^40");
    REFUSED((i.tensor[2].extent[0] = (int64_t)1 << 40, i.tensor[2].extent[1] = (int64_t)1 << 40),
            "operand w of t is q8_0[1099511627776, 1099511627776], but that is too large");
    REFUSED(i.arg[0].i = (int64_t)1 << 40, "argument n of t is 1099511627776, which does not fit in i32");
    REFUSED(i.live[0].least = 10, "live value pos of t has an empty range: 10 to 9");
#undef REFUSED
    i = good;
    i.tensor[3].extent[0] = 4000; /* more room than needed, and none */
    assert_int_equal(tile_instance_check(&i, &e), MT_OK);
    i.tensor[2].extent[0] = i.tensor[2].extent[1] = i.tensor[4].extent[0] = 0;
    assert_int_equal(tile_instance_check(&i, &e), MT_OK);
    op = bind(
        a, "tile t(x: in f32[M], y: out f32[M * M * M * M], z: in f32[M / n], n: arg i32) over (i in M) { y[i] = 0 }");
    i = (tile_instance){.op = op, .tensor = {{1, {(int64_t)1 << 20}}, {1, {9}}, {1, {9}}}, .arg = {{.i = 1}}};
    assert_int_equal(tile_instance_check(&i, &e), MT_E_ARGUMENT);
    assert_string_equal(
        e.message,
        "operand y of t is f32[9], but its dimension 0 must be M * M * M * M, which does not fit in 64 bits");
    i = (tile_instance){.op = op, .tensor = {{1, {2}}, {1, {16}}, {1, {9}}}, .arg = {{.i = 0}}};
    assert_int_equal(tile_instance_check(&i, &e), MT_E_ARGUMENT);
    assert_string_equal(e.message,
                        "operand z of t is f32[9], but its dimension 0 must be M / n, which does not fit in 64 bits");
    arena_free(a);
}

static void test_grids(void **state) {
    (void)state;
    static const struct {
        const char *axes;
        int64_t count[3], total;
    } cases[] = {
        {"i in ceil(M / 4)", {3, 1, 1}, 3},
        {"i in M - 20, j in M", {0, 9, 1}, 0},
        {"i in ceil(pos / 16), j in min(pos, 3), k in 2", {7, 3, 2}, 42},
        {"i in 60 - pos", {50, 1, 1}, 50},
        {"i in 2147483647", {2147483647, 1, 1}, 2147483647},
        {"i in 2147483647, j in 2", {2147483647, 2, 1}, -1},
        {"i in 1 << 40, j in 1 << 40, k in 1 << 40", {(int64_t)1 << 40, (int64_t)1 << 40, (int64_t)1 << 40}, -1},
        {"i in 1 << 40, j in 1 << 40, k in M - 9", {(int64_t)1 << 40, (int64_t)1 << 40, 0}, 0},
        {"i in where(M > 8, 5, 6)", {5, 1, 1}, 5},
        {"i in n * n", {49, 1, 1}, 49},
        {"i in M * (1 << 62)", {0, 0, 0}, -1},
        {"i in pos * (1 << 62)", {0, 0, 0}, -1},
        {"i in 7 / (n + 7)", {0, 0, 0}, -1},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        char source[512];
        snprintf(source, sizeof source,
                 "tile t(x: in f32[M], y: out f32[M], pos: live i32, n: arg i32) over (%s) { y[i] = x[0] }",
                 cases[k].axes);
        arena *a = arena_new();
        const tile_op *op = bind(a, source);
        tile_instance i = {.op = op, .tensor = {{1, {9}}, {1, {9}}}, .arg = {{.i = -7}}, .live = {{10, 100}}};
        assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
        int64_t count[TILE_AXES];
        assert_int_equal(tile_instance_grid(&i, count), cases[k].total);
        if (cases[k].count[0] || cases[k].count[1])
            for (int d = 0; d < TILE_AXES; d++) assert_int_equal(count[d], d < 3 ? cases[k].count[d] : 1);
        arena_free(a);
    }
}

/* Numbers near the ends of 64 bits: indices that could wrap around give the whole dimension, and nothing overflows
 * here. */
static void test_overflow(void **state) {
    (void)state;
    static const struct {
        const char *statement;
        int64_t low, high;
    } cases[] = {
        {"v = x[i + 9223372036854775807]", 0, 9},
        {"v = x[i * 4611686018427387904 * 4]", 0, 9},
        {"v = x[pos * 9223372036854775807]", 0, 9},
        {"v = x[pos + 9223372036854775807]", 0, 9},
        {"v = x[pos - 9223372036854775807 - 10 : +4]", 0, 9},
        {"v = x[9223372036854775806 - pos : +16777216]", 0, 9},
        {"v = x[(i + 9223372036854775807) / -1 : +1]", 0, 9},
        {"v = x[i << 63]", 0, 9},
        {"v = x[abs(-9223372036854775807 - i)]", 0, 9},
        {"v = x[i / (i - 1)]", 0, 9},
        {"v = x[i % (i - 1)]", 0, 9},
        {"v = x[i - 9223372036854775807 : +4]", 0, 0},
        {"v = x[9223372036854775800 : +4]", 0, 0},
        {"for j in 9223372036854775807 { v = x[j] }", 0, 9},
        {"for j in -9223372036854775807 .. 9223372036854775807 { v = x[j - 1] }", 0, 9},
        {"for j in 9223372036854775807 { for k in 9223372036854775807 { v = exp(x[max(j, k) : +2]) } }", 0, 9},
        {"v = x[i32(i * 4294967296 + 2)]", 0, 9},
        {"v = x[i32(i) * 2147483647 * 2]", 0, 9},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        char source[512];
        snprintf(source, sizeof source, "tile t(x: in f32[M], y: out f32[M], pos: live i32) over (i in 4) { %s }",
                 cases[k].statement);
        arena *a = arena_new();
        const tile_op *op = bind(a, source);
        tile_instance i = {.op = op, .tensor = {{1, {9}}, {1, {9}}}, .live = {{-2147483647 - 1, 2147483647}}};
        assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
        tile_summary s;
        tile_summarise(&i, (int64_t[TILE_AXES]){1}, &s);
        const tile_interval v =
            s.box_count ? tile_interval_absolute(&i, s.box[0].dim[0], 9) : (tile_interval){0, 0, -1};
        if (v.low != cases[k].low || v.high != cases[k].high)
            fail_msg("%s: [%" PRId64 ", %" PRId64 ")", cases[k].statement, v.low, v.high);
        assert_true(s.flops >= 0 && s.bytes_read >= 0 && s.bytes_read <= 36);
        arena_free(a);
    }
}

static void test_intervals(void **state) {
    (void)state;
    const tile_instance i = {.live = {{3, 8}, {-5, 2}}};
    static const struct {
        tile_interval v;
        int64_t extent, low, high;
    } cases[] = {
        {{2, 5, -1}, 9, 2, 5}, {{-2, 5, -1}, 9, 0, 5}, {{2, 50, -1}, 9, 2, 9},
        {{0, 1, 0}, 9, 3, 9},  {{0, 1, 0}, 8, 3, 8},   {{-4, -1, 0}, 20, 0, 7},
        {{0, 3, 1}, 20, 0, 5}, {{1, 2, 1}, 20, 0, 4},  {{INT64_MIN, INT64_MAX, -1}, 9, 0, 9},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        const tile_interval v = tile_interval_absolute(&i, cases[k].v, cases[k].extent);
        assert_true(v.low == cases[k].low && v.high == cases[k].high && v.offset_live == -1);
    }
    const tile_interval v = tile_interval_absolute(&i, (tile_interval){20, 30, -1}, 9);
    assert_true(v.low >= v.high && v.offset_live == -1);
}

/* What the schedule builds on, spelled out. */
static void test_relative_boxes(void **state) {
    (void)state;
    arena *a = arena_new();
    const tile_op *op = bind(
        a, "tile t(x: in f32[M, 4], k: out f16[S, 4], pos: live i32) over (r in M) { k[1 * pos / 1 + r] = f16(x[r]) }");
    tile_instance i = {.op = op, .tensor = {{2, {6, 4}}, {2, {100, 4}}}, .live = {{0, 99}}};
    assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
    tile_summary s;
    tile_summarise(&i, (int64_t[TILE_AXES]){2}, &s);
    const tile_box *box = box_of(&s, 1, true);
    assert_true(box->dim[0].low == 2 && box->dim[0].high == 3 && box->dim[0].offset_live == 0);
    assert_true(box->dim[1].low == 0 && box->dim[1].high == 4 && box->dim[1].offset_live == -1);
    assert_int_equal(s.bytes_read, 16);
    assert_int_equal(s.bytes_written, 0); /* at the maximum the row is out of range */
    i.live[0].most = 94;
    tile_summarise(&i, (int64_t[TILE_AXES]){2}, &s);
    assert_int_equal(s.bytes_written, 8);

    op = bind(a, "tile split(x: in f32[M, 64], y: inout f32[M]) over (m in ceil(M / 4), k in 4) {\n"
                 "    v = reshape(sum(x[m*4 : +4, k*16 : +16], 1), 4)\n"
                 "    if k == 0 { y[m*4 : +4] = v } else { y[m*4 : +4] += v }\n}");
    i = (tile_instance){.op = op, .tensor = {{2, {10, 64}}, {1, {10}}}};
    assert_int_equal(tile_instance_check(&i, NULL), MT_OK);
    for (int64_t k = 0; k < 4; k++) {
        tile_summarise(&i, (int64_t[TILE_AXES]){2, k}, &s);
        assert_int_equal(box_of(&s, 1, false) != NULL, k > 0); /* the first of a sum reads nothing */
        assert_true(box_of(&s, 1, true)->dim[0].low == 8 && box_of(&s, 1, true)->dim[0].high == 10);
        assert_int_equal(s.flops, 64 + (k > 0 ? 4 : 0));
        assert_int_equal(s.bytes_read, 2 * 16 * 4 + (k > 0 ? 8 : 0));
    }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),        cmocka_unit_test(test_library),
        cmocka_unit_test(test_random_programs), cmocka_unit_test(test_refused_instances),
        cmocka_unit_test(test_grids),           cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_intervals),       cmocka_unit_test(test_relative_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
