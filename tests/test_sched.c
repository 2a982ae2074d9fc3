/* The schedule against a brute-force reading of the programs it makes.
 *
 * The oracle knows nothing of boxes on tensors, sets or slots: from the program's tables it writes down, for concrete
 * live values, every byte that every instruction may touch, and the order that all pairs of accesses to one byte need.
 * Reachability through barriers is a bit matrix over all instructions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "monotile/program.h"
#include "program/program.h"
#include "tile/tile.h"

static const char tiles[] =
    "tile fill[R, C, BR = 2, BC = 4](y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = f32[BR, BC](1) }\n"
    "tile copy[R, C, BR = 2, BC = 4](x: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = x[r*BR : +BR, c*BC : +BC] }\n"
    "tile add2[R, C, BR = 2, BC = 4](x: in f32[R, C], z: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR), c in "
    "ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = x[r*BR : +BR, c*BC : +BC] + z[r*BR : +BR, c*BC : +BC] }\n"
    "tile bump[R, C, BR = 2, BC = 4](y: inout f32[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] += f32[BR, BC](1) }\n"
    "tile total[R, C, M, N, BR = 2, BC = 4](x: in f32[M, N], y: out f32[R, C]) over (r in ceil(R / BR), c in ceil(C / "
    "BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = f32[BR, BC](1) * sum(sum(x, 1), 0) }\n"
    "tile stencil[R, C, BR = 2](x: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR))\n"
    "{ y[r*BR : +BR, :] = x[r*BR - 1 : +BR, :] + x[r*BR + 1 : +BR, :] }\n"
    "tile prefix[R, C](x: in f32[R, C], y: out f32[R, C]) over (r in R)\n"
    "{ acc: f32[1, C] = 0\n for j in r + 1 { acc += x[j : +1, :] }\n y[r : +1, :] = acc }\n"
    "tile split[R, K, BR = 2, BK = 4](x: in f32[R, K], y: inout f32[R, 1]) over (r in ceil(R / BR), k in ceil(K / "
    "BK))\n"
    "{ y[r*BR : +BR, :] += sum(x[r*BR : +BR, k*BK : +BK], 1) }\n"
    "tile columns[R, C, W](x: in f32[R, C], y: out f32[C]) over (c in C)\n"
    "{ y[c : +1] = reshape(sum(sum(x[:, c : +W], 1), 0), 1) }\n"
    "tile put[C](x: in f32[M, C], pos: live i32, y: out f32[S, C]) over (m in M)\n"
    "{ y[pos + m, :] = x[m, :] }\n"
    "tile take[C](x: in f32[S, C], pos: live i32, y: out f32[M, C]) over (m in M)\n"
    "{ y[m, :] = x[pos + m, :] }\n"
    "tile nibbles[R, C, BR = 1, BC = 3](x: in f32[R, C], y: out u4[R, C]) over (r in ceil(R / BR), c in ceil(C / BC))\n"
    "{ y[r*BR : +BR, c*BC : +BC] = u4(i32(x[r*BR : +BR, c*BC : +BC])) }\n"
    "tile wide[R, C, BR = 2](a: in f32[R, C], b: in f32[R, C], c: in f32[R, C], d: in f32[R, C], e: in f32[R, C], f: "
    "in f32[R, C],\n"
    "     g: in f32[R, C], h: in f32[R, C], i: in f32[R, C], y: out f32[R, C]) over (r in ceil(R / BR))\n"
    "{ y[r*BR : +BR, :] = a[r*BR : +BR, :] + b[r*BR : +BR, :] + c[r*BR : +BR, :] + d[r*BR : +BR, :] + e[r*BR : +BR, :] "
    "+\n"
    "  f[r*BR : +BR, :] + g[r*BR : +BR, :] + h[r*BR : +BR, :] + i[r*BR : +BR, :] }\n"
    "tile many[C](x: in f32[C], a: arg f32, b: arg f32, c: arg f32, d: arg f32, e: arg f32, y: out f32[C]) over (i in "
    "1)\n"
    "{ y[:] = x[:] * a + b + c + d + e }\n";

static mt_tile *file;

static int open_tiles(void **state) {
    (void)state;
    char *diagnostics = NULL;
    mt_error error = {0};
    if (mt_tile_parse(&file, "test.tile", tiles, strlen(tiles), &diagnostics, &error) != MT_OK)
        fail_msg("%s", diagnostics);
    free(diagnostics);
    return 0;
}

static int close_tiles(void **state) {
    (void)state;
    mt_tile_close(file);
    return 0;
}

/* ---- the oracle ---- */

typedef struct oracle {
    const mt_program *p;
    size_t n, width; /* instructions; words of a row */
    uint64_t *have;  /* row i: instructions finished before i starts, by barriers */
    uint64_t *need;  /* row i: those that must be, closed; joins are in no row */
    size_t waits, redundant, joins;
} oracle;

static void or_row(uint64_t *to, const uint64_t *from, size_t width) {
    for (size_t w = 0; w < width; w++) to[w] |= from[w];
}
static bool has(const uint64_t *row, size_t i) { return row[i / 64] >> (i % 64) & 1; }
static void set(uint64_t *row, size_t i) { row[i / 64] |= (uint64_t)1 << (i % 64); }

/* Rows of barriers hold the arrivals and all that they follow. */
static void close_barriers(oracle *o) {
    const mt_program *p = o->p;
    uint64_t *rows = calloc(p->barriers_count + 1, o->width * sizeof *rows),
             *other = calloc(1, o->width * sizeof *other);
    uint32_t *arrived = calloc(p->barriers_count + 1, sizeof *arrived);
    for (size_t i = 0; i < o->n; i++) {
        const program_instruction *in = &p->instructions[i];
        uint64_t *row = o->have + i * o->width;
        o->joins += in->opcode == PROGRAM_JOIN;
        for (int k = 0; k < in->wait_count; k++) {
            assert_int_equal(arrived[in->wait[k]], in->target[k]); /* all arrivals have lower numbers */
            or_row(row, rows + in->wait[k] * o->width, o->width);
        }
        for (int k = 0; k < in->wait_count; k++) { /* is the wait implied by the others? */
            memset(other, 0, o->width * sizeof *other);
            for (int j = 0; j < in->wait_count; j++)
                if (j != k) or_row(other, rows + in->wait[j] * o->width, o->width);
            bool implied = true;
            for (size_t w = 0; w < o->width && implied; w++) implied = !(rows[in->wait[k] * o->width + w] & ~other[w]);
            o->waits++;
            o->redundant += implied;
        }
        for (int k = 0; k < in->arrive_count; k++) {
            or_row(rows + in->arrive[k] * o->width, row, o->width);
            set(rows + in->arrive[k] * o->width, i);
            arrived[in->arrive[k]]++;
        }
    }
    for (size_t b = 0; b < p->barriers_count; b++) assert_int_equal(arrived[b], p->barriers[b].arrivals);
    free(rows);
    free(other);
    free(arrived);
}

typedef struct touched {
    size_t count, capacity;
    uint32_t *who;
} touched;
typedef struct memory { /* of one byte */
    int64_t writer;
    touched readers; /* since the last write */
} memory;

static void must_follow(oracle *o, size_t i, int64_t earlier) {
    if (earlier < 0 || (size_t)earlier == i) return;
    or_row(o->need + i * o->width, o->need + (size_t)earlier * o->width, o->width);
    set(o->need + i * o->width, (size_t)earlier);
    if (!has(o->have + i * o->width, (size_t)earlier))
        fail_msg("instruction %zu (node %s) does not wait for %lld (node %s)", i,
                 program_string(o->p, o->p->nodes[o->p->instructions[i].node].name), (long long)earlier,
                 program_string(o->p, o->p->nodes[o->p->instructions[earlier].node].name));
}

static void touch(oracle *o, memory *m, size_t i, bool writes, bool check) {
    if (check) {
        must_follow(o, i, m->writer);
        for (size_t k = 0; writes && k < m->readers.count; k++) must_follow(o, i, m->readers.who[k]);
    } else if (writes) {
        m->writer = (int64_t)i;
        m->readers.count = 0;
    } else {
        if (m->readers.count == m->readers.capacity) {
            m->readers.capacity = m->readers.capacity ? 2 * m->readers.capacity : 4;
            m->readers.who = realloc(m->readers.who, m->readers.capacity * sizeof(uint32_t));
        }
        m->readers.who[m->readers.count++] = (uint32_t)i;
    }
}

/* Every byte of a box, at live values that are all at the same place of their ranges: least, middle, most. */
static void walk(oracle *o, memory *bytes, const size_t *base, size_t i, const tile_box *box, int place, bool check) {
    const mt_program *p = o->p;
    const program_instruction *in = &p->instructions[i];
    const program_operand *v = &p->operands[in->tensor[box->tensor]];
    const program_tensor *t = &p->tensors[v->tensor];
    const tile_format *f = tile_format_find(program_string(p, t->format));
    int64_t low[TILE_RANK], high[TILE_RANK], at[TILE_RANK];
    assert_int_equal(f->block, 1);
    for (int d = 0; d < box->rank; d++) {
        int64_t shift = 0;
        if (box->dim[d].offset_live >= 0) {
            const program_live *l = &p->lives[in->live[box->dim[d].offset_live]];
            shift = place == 0 ? l->least : place == 1 ? l->most : (l->least + l->most) / 2;
        }
        at[d] = low[d] = max_i64(0, box->dim[d].low + shift);
        high[d] = min_i64(v->extent[d], box->dim[d].high + shift);
        if (low[d] >= high[d]) return;
    }
    for (;;) {
        int64_t element = v->offset;
        for (int d = 0; d < box->rank; d++) element += at[d] * v->stride[d];
        for (int64_t byte = element * f->bits / 8; byte <= (element * f->bits + f->bits - 1) / 8; byte++) {
            assert_true(byte >= 0 && byte < t->bytes);
            touch(o, &bytes[base[v->tensor] + (size_t)byte], i, box->writes, check);
        }
        int d = box->rank - 1;
        while (d >= 0 && ++at[d] == high[d]) at[d] = low[d], d--;
        if (d < 0) return;
    }
}

static void find_needs(oracle *o, int place) {
    const mt_program *p = o->p;
    arena *a = arena_new();
    const tile_op **ops;
    mt_error error = {0};
    size_t total = p->header->slot_bytes, *base = calloc(p->tensors_count + 1, sizeof *base);
    for (size_t t = 0; t < p->tensors_count; t++) {
        base[t] = p->tensors[t].role == MT_TEMP ? (size_t)p->tensors[t].offset : total;
        if (p->tensors[t].role != MT_TEMP) total += (size_t)p->tensors[t].bytes;
    }
    memory *bytes = calloc(total + 1, sizeof *bytes);
    for (size_t b = 0; b < total; b++) bytes[b].writer = -1;
    assert_int_equal(program_bind_ops(p, a, &ops, &error), MT_OK);
    for (size_t i = 0; i < o->n; i++) {
        const program_instruction *in = &p->instructions[i];
        if (in->opcode == PROGRAM_JOIN) continue;
        tile_instance instance;
        tile_summary s;
        int64_t index[TILE_AXES];
        for (int k = 0; k < TILE_AXES; k++) index[k] = in->index[k];
        assert_int_equal(program_instance(p, ops[in->opcode], in, &instance, &error), MT_OK);
        tile_summarise(&instance, index, &s);
        for (int check = 1; check >= 0; check--)
            for (int b = 0; b < s.box_count; b++) walk(o, bytes, base, i, &s.box[b], place, check);
    }
    for (size_t b = 0; b < total; b++) free(bytes[b].readers.who);
    free(bytes);
    free(base);
    arena_free(a);
}

/* Tensors that share bytes are not used at the same time: the last node of one is before the first of the other. */
static void check_slots(const mt_program *p) {
    uint32_t *first = malloc((p->tensors_count + 1) * sizeof *first),
             *last = calloc(p->tensors_count + 1, sizeof *last);
    memset(first, 0xff, (p->tensors_count + 1) * sizeof *first);
    for (size_t i = 0; i < p->instructions_count; i++) {
        const program_instruction *in = &p->instructions[i];
        for (int k = 0; in->opcode != PROGRAM_JOIN && k < PROGRAM_TENSORS; k++) {
            if (k && !in->tensor[k]) continue; /* not used, or operand 0 again */
            const uint32_t t = p->operands[in->tensor[k]].tensor;
            if (first[t] == UINT32_MAX) first[t] = in->node;
            last[t] = in->node;
        }
    }
    for (size_t a = 0; a < p->tensors_count; a++)
        for (size_t b = 0; b < a; b++) {
            const program_tensor *x = &p->tensors[a], *y = &p->tensors[b];
            if (x->role != MT_TEMP || y->role != MT_TEMP || x->offset >= y->offset + y->bytes ||
                y->offset >= x->offset + x->bytes)
                continue;
            assert_true(last[a] < first[b] || last[b] < first[a]);
        }
    free(first);
    free(last);
}

static oracle oracle_check(const mt_program *p) {
    oracle o = {.p = p, .n = p->instructions_count, .width = (p->instructions_count + 63) / 64};
    o.have = calloc(o.n + 1, o.width * sizeof *o.have);
    o.need = calloc(o.n + 1, o.width * sizeof *o.need);
    close_barriers(&o);
    check_slots(p);
    for (int place = 0; place < 3; place++) find_needs(&o, place);
    if (p->header->placement == MT_PLACE_STATIC) {
        bool *seen = calloc(o.n, sizeof *seen);
        for (size_t q = 0; q < p->processors_count; q++)
            for (uint32_t k = 0; k < p->processors[q].count; k++) {
                const uint32_t *list = p->order + p->processors[q].first;
                assert_true(list[k] < o.n && !seen[list[k]] && (!k || list[k] > list[k - 1]));
                seen[list[k]] = true;
            }
        for (size_t i = 0; i < o.n; i++) assert_true(seen[i]);
        free(seen);
    }
    return o;
}

/* Nothing waits for more than it must: the order by barriers is the closure of the conflicts. */
static void assert_exact(const oracle *o) {
    for (size_t i = 0; i < o->n; i++)
        for (size_t j = 0; j < i && o->p->instructions[i].opcode != PROGRAM_JOIN; j++)
            if (o->p->instructions[j].opcode != PROGRAM_JOIN &&
                has(o->have + i * o->width, j) != has(o->need + i * o->width, j))
                fail_msg("instruction %zu waits for %zu without need", i, j);
}

static void oracle_free(oracle *o) {
    free(o->have);
    free(o->need);
}

/* ---- building ---- */

static void check_status(mt_status status, const mt_error *error) {
    if (status != MT_OK) fail_msg("%s: %s: %s", mt_status_name(status), error->where, error->message);
}

static mt_graph *new_graph(void) {
    mt_graph *g;
    mt_error error = {0};
    check_status(mt_graph_create(&g, &error), &error);
    return g;
}

static mt_tensor tensor(mt_graph *g, mt_role role, const char *type, int rank, int64_t a, int64_t b, int64_t c) {
    static int names;
    char name[32];
    mt_tensor t;
    mt_error error = {0};
    snprintf(name, sizeof name, "n%d", names++);
    check_status(mt_graph_tensor(g, role, name, type, rank, (int64_t[]){a, b, c}, &t, &error), &error);
    return t;
}

static mt_tensor slice(mt_graph *g, mt_tensor t, int dimension, int64_t begin, int64_t end) {
    mt_tensor out;
    mt_error error = {0};
    check_status(mt_graph_slice(g, t, dimension, begin, end, &out, &error), &error);
    return out;
}

static mt_tensor choose(mt_graph *g, mt_tensor t, int dimension, int64_t index) {
    mt_tensor out;
    mt_error error = {0};
    check_status(mt_graph_select(g, t, dimension, index, &out, &error), &error);
    return out;
}

static mt_tensor shape(mt_graph *g, mt_tensor t, int rank, int64_t a, int64_t b, int64_t c) {
    mt_tensor out;
    mt_error error = {0};
    check_status(mt_graph_reshape(g, t, rank, (int64_t[]){a, b, c}, &out, &error), &error);
    return out;
}

static void node(mt_graph *g, const char *program, const mt_operand *operands, size_t count) {
    mt_error error = {0};
    check_status(mt_graph_node(g, file, program, NULL, operands, count, NULL, &error), &error);
}
#define NODE(g, program, ...)                                                                                          \
    node(g, program, (mt_operand[]){__VA_ARGS__}, sizeof((mt_operand[]){__VA_ARGS__}) / sizeof(mt_operand))
#define T(n, t) MT_OPERAND(n, t)
#define I(n, v) MT_OPERAND_INTEGER(n, v)

static mt_program *compile(const mt_graph *g, int processors, mt_placement placement) {
    mt_program *p;
    mt_error error = {0};
    check_status(
        mt_compile(g, &(mt_target){.processors = processors, .placement = placement, .no_fusion = 1}, &p, &error),
        &error);
    return p;
}

/* Compiles for 1, 2 and 7 processors and both placements, checks all, and gives the last one's figures; the program
 * must be freed. */
static oracle compile_all(mt_graph *g) {
    const int processors[] = {1, 2, 7};
    oracle o = {0};
    for (int k = 0; k < 6; k++) {
        if (o.p) {
            oracle_free(&o);
            program_free((mt_program *)o.p);
        }
        o = oracle_check(compile(g, processors[k / 2], k % 2 ? MT_PLACE_STATIC : MT_PLACE_QUEUE));
    }
    mt_graph_destroy(g);
    return o;
}

static void finish(oracle *o) {
    program_free((mt_program *)o->p);
    oracle_free(o);
}

/* ---- graphs by hand ---- */

static void test_chain(void **state) { /* every node reads all of the one before */
    (void)state;
    enum { LAYERS = 12, M = 5, K = 72 };
    mt_graph *g = new_graph();
    mt_error error = {0};
    mt_tensor x = tensor(g, MT_INPUT, "f32", 2, M, K, 0);
    for (int l = 0; l < LAYERS; l++) {
        mt_tensor w = tensor(g, MT_WEIGHT, "f32", 2, K, K, 0),
                  y = tensor(g, l + 1 < LAYERS ? MT_TEMP : MT_OUTPUT, "f32", 2, M, K, 0);
        check_status(mt_graph_node(g, NULL, "linear", NULL,
                                   (mt_operand[]){T("x", x), T("w", w), T("y", y), I("BN", 16), I("BM", 16)}, 5, NULL,
                                   &error),
                     &error);
        x = y;
    }
    oracle o = compile_all(g);
    assert_int_equal(o.n, LAYERS * 5);
    assert_int_equal(o.joins, 0);
    assert_int_equal(o.redundant, 0);
    assert_int_equal(o.waits, (LAYERS - 1) * 5); /* one each; buffers change hands without waits of their own */
    assert_int_equal(o.p->barriers_count, LAYERS - 1);
    assert_int_equal(o.p->ops_count, 1);
    assert_in_range(o.p->header->slot_bytes, 2 * M * K * 4, 2 * (M * K * 4 + 128));
    finish(&o);
}

static void test_residual(void **state) { /* y = x + f(x), tile by tile, over and over */
    (void)state;
    enum { LAYERS = 10, R = 8, C = 16 };
    mt_graph *g = new_graph();
    mt_tensor x = tensor(g, MT_TEMP, "f32", 2, R, C, 0);
    NODE(g, "fill", T("y", x));
    for (int l = 0; l < LAYERS; l++) {
        mt_tensor s = tensor(g, MT_TEMP, "f32", 2, R, C, 0), f = tensor(g, MT_TEMP, "f32", 2, R, C, 0);
        mt_tensor y = tensor(g, l + 1 < LAYERS ? MT_TEMP : MT_OUTPUT, "f32", 2, R, C, 0);
        NODE(g, "total", T("x", x), T("y", s));
        NODE(g, "copy", T("x", s), T("y", f));
        NODE(g, "add2", T("x", x), T("z", f), T("y", y));
        x = y;
    }
    oracle o = compile_all(g);
    assert_int_equal(o.joins, 0);
    assert_int_equal(o.redundant, 0);
    assert_int_equal(o.waits, (o.n - 16)); /* reuse waits for nothing that is not waited for anyway */
    assert_true(o.p->header->slot_bytes <= 4 * R * C * 4);
    finish(&o);
}

static void test_heads(void **state) { /* heads do not wait for each other */
    (void)state;
    enum { H = 7, R = 6, C = 8 };
    mt_graph *g = new_graph();
    mt_tensor q = tensor(g, MT_TEMP, "f32", 3, H, R, C), k = tensor(g, MT_TEMP, "f32", 3, H, R, C),
              y = tensor(g, MT_TEMP, "f32", 3, H, R, C);
    mt_tensor out = tensor(g, MT_OUTPUT, "f32", 2, R, C, 0);
    NODE(g, "fill", T("y", shape(g, q, 2, H * R, C, 0)), I("BR", R));
    NODE(g, "fill", T("y", shape(g, k, 2, H * R, C, 0)), I("BR", R));
    for (int h = 0; h < H; h++)
        NODE(g, "add2", T("x", choose(g, q, 0, h)), T("z", choose(g, k, 0, h)), T("y", choose(g, y, 0, h)), I("BR", R),
             I("BC", C));
    NODE(g, "total", T("x", shape(g, y, 2, H * R, C, 0)), T("y", out), I("BR", R), I("BC", C));
    oracle o = compile_all(g);
    assert_exact(&o);
    assert_int_equal(o.redundant, 0);
    for (size_t i = 0, head = 0; i < o.n; i++) {
        const program_instruction *in = &o.p->instructions[i];
        if (in->opcode == PROGRAM_JOIN || in->node < 2 || in->node >= 2 + H) continue;
        assert_int_equal(in->wait_count, 2);
        assert_int_equal(in->target[0], 2);
        for (size_t j = 0; j < 4 * H; j++) assert_int_equal(has(o.have + i * o.width, j), j % (2 * H) / 2 == head);
        head++;
    }
    finish(&o);
}

static void test_split(void **state) { /* sums over a grid axis run in its order, and only those */
    (void)state;
    enum { R = 7, K = 30 };
    mt_graph *g = new_graph();
    mt_tensor x = tensor(g, MT_INPUT, "f32", 2, R, K, 0), y = tensor(g, MT_STATE, "f32", 2, R, 1, 0);
    NODE(g, "split", T("x", x), T("y", y));
    NODE(g, "split", T("x", x), T("y", y), I("BK", 3));
    oracle o = compile_all(g);
    assert_exact(&o);
    assert_int_equal(o.redundant, 0);
    for (size_t i = 0; i < 4 * 8; i++) {
        const program_instruction *in = &o.p->instructions[i];
        assert_int_equal(in->wait_count, in->index[1] > 0);
    }
    finish(&o);
}

static void test_live(void **state) { /* rows of a cache at a live position */
    (void)state;
    enum { S = 32, M = 6, C = 4 };
    mt_graph *g = new_graph();
    mt_live pos, other;
    mt_error error = {0};
    check_status(mt_graph_live(g, "pos", 0, S - M, &pos, &error), &error);
    check_status(mt_graph_live(g, "other", 0, S - M, &other, &error), &error);
    mt_tensor x = tensor(g, MT_INPUT, "f32", 2, M, C, 0), cache = tensor(g, MT_STATE, "f32", 2, S, C, 0);
    mt_tensor a = tensor(g, MT_OUTPUT, "f32", 2, M, C, 0), b = tensor(g, MT_OUTPUT, "f32", 2, M, C, 0);
    NODE(g, "put", T("x", x), MT_OPERAND_LIVE("pos", pos), T("y", cache));
    NODE(g, "take", T("x", cache), MT_OPERAND_LIVE("pos", pos), T("y", a));
    NODE(g, "take", T("x", cache), MT_OPERAND_LIVE("pos", other), T("y", b));
    NODE(g, "put", T("x", x), MT_OPERAND_LIVE("pos", pos), T("y", slice(g, cache, 0, 0, S)));
    oracle o = compile_all(g);
    assert_int_equal(o.redundant, 0);
    for (size_t i = 0; i < 3 * M; i++) {
        const program_instruction *in = &o.p->instructions[i];
        assert_int_equal(in->wait_count, in->node > 0);
        if (in->node) assert_int_equal(in->target[0], in->node == 1 ? 1 : M); /* its own row; any row */
    }
    finish(&o);
}

static void test_many_waits(void **state) {
    (void)state;
    enum { N = 9, R = 12, C = 4 };
    const char *names[N] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    mt_graph *g = new_graph();
    mt_operand operands[N + 1];
    for (int k = 0; k < N; k++) {
        mt_tensor t = tensor(g, MT_TEMP, "f32", 2, R, C, 0);
        NODE(g, "fill", T("y", t), I("BR", 3));
        operands[k] = T(names[k], t);
    }
    operands[N] = T("y", tensor(g, MT_OUTPUT, "f32", 2, R, C, 0));
    node(g, "wide", operands, N + 1);
    oracle o = compile_all(g);
    assert_exact(&o);
    assert_true(o.joins > 0);
    finish(&o);
}

static void test_many_arrivals(void **state) { /* row r is in all prefixes from r on */
    (void)state;
    enum { R = 150, C = 4 };
    mt_graph *g = new_graph();
    mt_tensor x = tensor(g, MT_STATE, "f32", 2, R, C, 0), y = tensor(g, MT_STATE, "f32", 2, R, C, 0),
              z = tensor(g, MT_OUTPUT, "f32", 2, R, C, 0);
    NODE(g, "fill", T("y", x), I("BR", 1));
    NODE(g, "prefix", T("x", x), T("y", y));
    NODE(g, "total", T("x", x), T("y", z));
    oracle o = compile_all(g);
    assert_exact(&o);
    assert_in_range(o.joins, 1, 8 * R);
    finish(&o);
}

static void
test_scattered(void **state) { /* columns of what was written element by element, in windows of many widths */
    (void)state;
    enum { R = 60, C = 11 };
    mt_graph *g = new_graph();
    mt_tensor x = tensor(g, MT_STATE, "f32", 2, R, C, 0);
    NODE(g, "fill", T("y", x), I("BR", 1), I("BC", 1));
    for (int w = 1; w < 10; w++)
        NODE(g, "columns", T("x", x), T("y", tensor(g, MT_OUTPUT, "f32", 1, C, 0, 0)), I("W", w));
    oracle o = compile_all(g);
    assert_true(o.joins < 400);
    finish(&o);
}

static void test_views(void **state) { /* one tensor under many shapes, written and read in parts */
    (void)state;
    mt_graph *g = new_graph();
    mt_tensor x = tensor(g, MT_STATE, "f32", 3, 6, 4, 8), y = tensor(g, MT_STATE, "f32", 2, 6, 32, 0),
              z = tensor(g, MT_OUTPUT, "f32", 2, 24, 8, 0);
    NODE(g, "fill", T("y", shape(g, x, 2, 6, 32, 0)), I("BR", 1), I("BC", 16)); /* two heads an instruction */
    NODE(g, "copy", T("x", shape(g, x, 2, 6, 32, 0)), T("y", y), I("BR", 1), I("BC", 8));
    NODE(g, "copy", T("x", shape(g, y, 2, 24, 8, 0)), T("y", z), I("BR", 4), I("BC", 8));
    oracle o = compile_all(g);
    assert_exact(&o);
    assert_int_equal(o.redundant, 0);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(o.p->instructions[i].wait_count, 0); /* the writers do not wait for each other */
    finish(&o);
}

static void test_shared_bytes(void **state) { /* instructions whose elements share a byte conflict */
    (void)state;
    mt_graph *g = new_graph();
    mt_tensor x = tensor(g, MT_INPUT, "f32", 2, 4, 9, 0), even = tensor(g, MT_STATE, "u4", 2, 4, 10, 0),
              odd = tensor(g, MT_STATE, "u4", 2, 4, 9, 0);
    NODE(g, "nibbles", T("x", x), T("y", slice(g, even, 1, 0, 9)));
    NODE(g, "nibbles", T("x", x), T("y", odd));
    oracle o = compile_all(g);
    assert_true(o.waits > 0);
    finish(&o);
}

static void test_limits(void **state) {
    (void)state;
    mt_graph *g = new_graph();
    mt_error error = {0};
    mt_program *p = NULL;
    mt_operand operands[] = {T("x", tensor(g, MT_INPUT, "f32", 1, 8, 0, 0)),
                             T("y", tensor(g, MT_OUTPUT, "f32", 1, 8, 0, 0)),
                             MT_OPERAND_FLOAT("a", 1),
                             MT_OPERAND_FLOAT("b", 1),
                             MT_OPERAND_FLOAT("c", 1),
                             MT_OPERAND_FLOAT("d", 1),
                             MT_OPERAND_FLOAT("e", 1)};
    node(g, "many", operands, 7);
    assert_int_equal(mt_compile(g, NULL, &p, &error), MT_E_LIMIT);
    assert_null(p);
    mt_graph_destroy(g);
    g = new_graph(); /* nothing to do */
    tensor(g, MT_INPUT, "f32", 1, 8, 0, 0);
    oracle o = compile_all(g);
    assert_int_equal(o.n, 0);
    assert_int_equal(o.p->tensors_count, 1);
    finish(&o);
}

/* ---- random graphs ---- */

static uint64_t random_state;
static uint32_t roll(uint32_t sides) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % sides;
}

enum { R = 6, C = 8, BASES = 14 };

/* A view of R x C elements of some tensor: the tensors have room for several, and views overlap. */
static mt_tensor random_view(mt_graph *g, const mt_tensor *bases, const int *kinds) {
    const uint32_t b = roll(BASES);
    const mt_tensor t = bases[b];
    uint32_t at;
    switch (kinds[b]) {
    case 0:
        return t; /* [R, C] */
    case 1:
        at = roll(R + 1);
        return slice(g, t, 0, at, at + R); /* [2R, C] */
    case 2:
        at = roll(C + 1);
        return slice(g, t, 1, at, at + C); /* [R, 2C] */
    case 3:
        return choose(g, t, 0, roll(3)); /* [3, R, C] */
    case 4:
        return choose(g, t, 1, roll(3)); /* [R, 3, C] */
    case 5:
        return shape(g, t, 2, R, C, 0); /* [R C] */
    case 6:
        return shape(g, t, 2, R, C, 0); /* [R C / 12, 12] */
    default:
        at = roll(4);
        return shape(g, slice(g, t, 0, at, at + R), 2, R, C, 0); /* [R + 3, C / 4, 4] */
    }
}

static mt_tensor random_base(mt_graph *g, int kind, mt_role role) {
    switch (kind) {
    case 0:
        return tensor(g, role, "f32", 2, R, C, 0);
    case 1:
        return tensor(g, role, "f32", 2, 2 * R, C, 0);
    case 2:
        return tensor(g, role, "f32", 2, R, 2 * C, 0);
    case 3:
        return tensor(g, role, "f32", 3, 3, R, C);
    case 4:
        return tensor(g, role, "f32", 3, R, 3, C);
    case 5:
        return tensor(g, role, "f32", 1, R * C, 0, 0);
    case 6:
        return tensor(g, role, "f32", 2, R * C / 12, 12, 0);
    default:
        return tensor(g, role, "f32", 3, R + 3, C / 4, 4);
    }
}

static void test_random(void **state) {
    (void)state;
    size_t waits = 0, redundant = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        random_state = seed * 77777;
        mt_graph *g = new_graph();
        mt_tensor bases[BASES];
        int kinds[BASES];
        const bool bound = seed % 3 == 0; /* no slots, no mixed dimensions: the order must be exact */
        for (int b = 0; b < BASES; b++)
            bases[b] = random_base(g, kinds[b] = (int)roll(bound ? 5 : 8), bound || b % 4 == 3 ? MT_STATE : MT_TEMP);
        const uint32_t nodes = 10 + roll(30);
        for (uint32_t n = 0; n < nodes; n++) {
            const mt_tensor x = random_view(g, bases, kinds), y = random_view(g, bases, kinds),
                            z = random_view(g, bases, kinds);
            const int64_t br = 1 + roll(R), bc = 1 + roll(C);
            if (!bound && roll(3) == 0) { /* a tensor ends, another takes its place */
                const uint32_t b = roll(BASES);
                bases[b] = random_base(g, kinds[b], MT_TEMP);
            }
            switch (roll(7)) {
            case 0:
                NODE(g, "fill", T("y", y), I("BR", br), I("BC", bc));
                break;
            case 1:
                NODE(g, "copy", T("x", x), T("y", y), I("BR", br), I("BC", bc));
                break;
            case 2:
                NODE(g, "add2", T("x", x), T("z", z), T("y", y), I("BR", br), I("BC", bc));
                break;
            case 3:
                NODE(g, "bump", T("y", y), I("BR", br), I("BC", bc));
                break;
            case 4:
                NODE(g, "total", T("x", x), T("y", y), I("BR", br), I("BC", bc));
                break;
            case 5:
                NODE(g, "stencil", T("x", x), T("y", y), I("BR", br));
                break;
            default:
                NODE(g, "prefix", T("x", x), T("y", y));
                break;
            }
        }
        NODE(g, "copy", T("x", random_view(g, bases, kinds)), T("y", tensor(g, MT_OUTPUT, "f32", 2, R, C, 0)));
        oracle o = compile_all(g);
        if (bound) assert_exact(&o);
        waits += o.waits;
        redundant += o.redundant;
        finish(&o);
    }
    assert_true(redundant < waits / 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),         cmocka_unit_test(test_residual),  cmocka_unit_test(test_heads),
        cmocka_unit_test(test_split),         cmocka_unit_test(test_live),      cmocka_unit_test(test_many_waits),
        cmocka_unit_test(test_many_arrivals), cmocka_unit_test(test_scattered), cmocka_unit_test(test_views),
        cmocka_unit_test(test_shared_bytes),  cmocka_unit_test(test_limits),    cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, open_tiles, close_tiles);
}
