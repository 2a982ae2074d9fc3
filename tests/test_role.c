/* The lowered form. Three things are checked by code of this file's own, for many ops: loader and consumers walk the
 * same pages, at every grid point; what two threads may touch is kept apart by a SYNC; and no SYNC could be left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "emit_harness.h"
#include "tile/role.h"

/* ---- ops ---- */

typedef struct lowered {
    const test_case *c;
    role_op *r;
} lowered;
static lowered ops[CASES];
static int op_count;

static const char *keep(const char *format, ...) PRINTF_LIKE(1, 2);
static const char *keep(const char *format, ...) {
    static char store[2000][160];
    static int used;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(store[used], sizeof store[0], format, arguments);
    va_end(arguments);
    return store[used++];
}

static void add_ops(void) {
    static const char *const weights[] = {"bf16", "f16", "f32", "q4_1", "q8_0", "q4_k", "q6_k", "nvfp4"},
                             *const products[] = {"bf16", "f16", "f32"};
    for (size_t w = 0; w < COUNT_OF(weights); w++)
        for (size_t p = 0; p < COUNT_OF(products); p++)
            for (int bm = 1; bm <= 16; bm += bm == 1 ? 3 : 12) {
                const int k = w > 2 ? 1536 : 1500, wide = 7 * k;
                const char *W = weights[w], *P = products[p];
                add_case("linear", "linear", keep("N=100 K=%d BM=%d BN=32 W=%s P=%s", k, bm, W, P),
                         keep("x 20 %d; w 100 %d; y 20 100", k, k), 0);
                add_case("linear, long rows", "linear_add", keep("N=100 K=%d BM=%d BN=16 W=%s P=%s", wide, bm, W, P),
                         keep("x 20 %d; w 100 %d; r 20 100; y 20 100", wide, wide), 0);
                add_case("norm_swiglu", "norm_swiglu", keep("N=100 K=%d BM=%d BN=32 A=%s B=bf16 P=%s", k, bm, W, P),
                         keep("x 20 %d; g %d; gate 100 %d; up 100 %d; y 20 100", k, k, k, k), 0);
                add_case("norm_linear_rope", "norm_linear_rope", keep("H=3 D=32 K=%d BM=%d W=%s P=%s", k, bm, W, P),
                         keep("x 20 %d; g %d; w 96 %d; angles 20 16 2; y 20 3 32", k, k, k), 0);
                add_case("norm_linear_rope_append", "norm_linear_rope_append",
                         keep("H=3 D=32 K=%d BM=%d W=%s P=%s", k, bm, W, P),
                         keep("x 20 %d; g %d; w 96 %d; angles 20 16 2; cache 40 3 32", k, k, k), 0);
            }
    for (int bm = 1; bm <= 16; bm *= 4) {
        add_case("attention", "attention", keep("H=6 HK=2 D=64 BM=%d", bm),
                 "q 20 6 64; kc 200 2 64; vc 200 2 64; y 20 6 64", 0)
            ->lives[0] = 100;
        add_case("attention, wide heads", "attention", keep("H=4 HK=4 D=256 BM=%d BS=32", bm),
                 "q 20 4 256; kc 200 4 256; vc 200 4 256; y 20 4 256", 0)
            ->lives[0] = 100;
        add_case("matmul", "matmul", keep("N=100 K=700 BM=%d BN=64", bm), "x 20 700; w 700 100; y 20 100", 0);
    }
    add_case("rmsnorm", "rmsnorm", "K=3000 ROWS=4", "x 9 3000; g 3000; y 9 3000", 0);
    add_case("rmsnorm", "rmsnorm", "K=3000 ROWS=16", "x 9 3000; g 3000; y 9 3000", 0);
    add_case("rope_table", "rope_table", "D2=32 ROWS=16", "freq 32; angles 20 32 2", 0);
    add_case("embed", "embed", "K=512 W=q6_k", "ids 9 in 0 9; w 20 512; y 9 512", 0);
    add_case("loop and branches",
             "tile t(x: in f32[4, 128], w: in bf16[N, 128], v: in bf16[N, 128], s: arg i32, n: live i32, y: inout "
             "f32[4, N]) over (c in ceil(N / 16)) {\n"
             " a: f32[4, 16] = 0; k = n * 2\n for i in k { if i % 2 == s { a += dot(bf16(x * f32(i)), w[c*16 : +16, "
             ":].T) } else { a = a * 0.5 }; b = exp(a); a = a + sum(b, 1) }\n"
             " if c > 2 { y[:, c*16 : +16] += a } else { for j in 3 { a = dot(bf16(x + f32(j)), v[c*16 : +16, :].T) + "
             "sum(a, 0) }; y[:, c*16 : +16] = a }\n z = y[:, 0 : +4]; y[:, 0 : +4] = z.T + a[:, 0 : +4] }",
             "", "x 4 128; w 70 128; v 70 128; y 4 70", 0)
        ->lives[0] = 2;
    cases[case_count - 1].tolerance = 0;
}

static int setup(void **state) {
    (void)state;
    add_ops();
    case_memory = arena_new();
    for (int i = 0; i < case_count; i++) {
        role_layout layout[TILE_PARAMS] = {ROLE_ROWS};
        mt_error error = {0};
        if (!bind_case(&cases[i])) return -1;
        for (int t = 0; t < cases[i].op->tensor_count; t++) layout[t] = role_wish(cases[i].op, t);
        ops[op_count].c = &cases[i];
        if (role_lower(case_memory, &ops[op_count].r, cases[i].op, layout, &error))
            return fprintf(stderr, "%s %s: %s\n", cases[i].name, cases[i].constants, error.message), -1;
        op_count++;
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int i = 0; i < case_count; i++) free(cases[i].source);
    arena_free(case_memory);
    return 0;
}

/* ---- pages ---- */

typedef struct page {
    int param;
    int64_t block, column, columns, bytes;
} page;
enum { PAGES = 20000 };

typedef struct walker {
    interpreter p;
    const role_op *r;
    page pages[PAGES];
    int count;
    tile scalars[1024];
} walker;

static bool has_pages(const role_statement *s) {
    for (; s; s = s->next)
        if (s->kind == ROLE_PAGES || s->kind == ROLE_SKINNY || has_pages(s->body) || has_pages(s->otherwise))
            return true;
    return false;
}

static bool depends_on_tiles(const tile_node *n) {
    return n && (n->shape.rank || n->kind == TILE_PART || n->kind == TILE_RESHAPE || depends_on_tiles(n->a) ||
                 depends_on_tiles(n->b) || depends_on_tiles(n->c));
}

static void walk_pages(walker *w, const role_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == ROLE_ASSIGN && !depends_on_tiles(s->value)) {
            const tile v = evaluate(&w->p, s->value);
            w->p.variables[s->to] = v;
        }
        if ((s->kind == ROLE_FOR || s->kind == ROLE_IF) && !has_pages(s->body) && !has_pages(s->otherwise)) continue;
        if (s->kind == ROLE_FOR) {
            const int64_t begin = evaluate_scalar(&w->p, s->begin).i, end = evaluate_scalar(&w->p, s->end).i;
            for (w->p.loops[s->index] = begin; w->p.loops[s->index] < end; w->p.loops[s->index]++)
                walk_pages(w, s->body);
        }
        if (s->kind == ROLE_IF) walk_pages(w, evaluate_scalar(&w->p, s->value).i ? s->body : s->otherwise);
        if (s->kind != ROLE_PAGES && s->kind != ROLE_SKINNY) continue;
        const role_pages *g = &s->pages;
        const tile_param *t = &w->r->op.params[g->param];
        const bool atoms = w->r->layout[t->ordinal] == ROLE_ATOMS;
        const int64_t row = evaluate_scalar(&w->p, g->row).i, column = evaluate_scalar(&w->p, g->column).i,
                      rows = evaluate_scalar(&w->p, g->rows).i;
        assert_true(row >= 0 && row % 8 == 0 && column >= 0 && column % (atoms ? 64 : g->page_columns) == 0);
        for (int64_t b = 0; b < g->blocks && row / 8 + b < ceil_div(rows, 8); b++)
            for (int64_t k = column; k < column + g->columns && k < g->row_columns; k += g->page_columns) {
                const int64_t columns = min_i64(g->page_columns, min_i64(column + g->columns, g->row_columns) - k);
                const int64_t wide = min_i64(g->page_columns, g->row_columns - k),
                              bytes = atoms ? columns / 64 * 1024 : 8 * role_band_row(t->type, wide);
                assert_true(w->count < PAGES);
                assert_true(bytes > 0 && bytes * g->page_blocks <= ROLE_LONG_PAGE && bytes % 16 == 0 &&
                            (!atoms || columns % 64 == 0));
                w->pages[w->count++] = (page){g->param, row / 8 + b, k, columns, bytes};
            }
    }
}

static void test_pages(void **state) {
    (void)state;
    static walker loader, consumer;
    int streamed = 0;
    for (int i = 0; i < op_count; i++) {
        const test_case *c = ops[i].c;
        const role_op *r = ops[i].r;
        test_tensor tensors[CASE_TENSORS];
        cpu_tensor views[CASE_TENSORS];
        cpu_arg args[TILE_PARAMS];
        const int count = tensors_make(c, tensors);
        views_of(tensors, count, views);
        arguments_of(c, args);
        streamed += r->loader != NULL;
        loader.p = consumer.p = (interpreter){.op = &r->op, .tensors = views, .args = args, .lives = c->lives};
        loader.r = consumer.r = r;
        loader.p.variables = loader.scalars;
        consumer.p.variables = consumer.scalars;
        int64_t grid[TILE_AXES], total = 1, bytes = 0;
        for (int a = 0; a < r->op.axis_total; a++) total *= grid[a] = evaluate_scalar(&loader.p, r->op.axis_count[a]).i;
        for (int64_t g = 0; g < total; g++) {
            int64_t rest = g;
            for (int a = r->op.axis_total - 1; a >= 0; a--)
                loader.p.index[a] = consumer.p.index[a] = rest % grid[a], rest /= grid[a];
            loader.count = consumer.count = 0;
            walk_pages(&loader, r->loader);
            walk_pages(&consumer, r->consumer);
            assert_int_equal(loader.count, consumer.count);
            assert_memory_equal(loader.pages, consumer.pages, (size_t)loader.count * sizeof(page));
            for (int k = 0; k < loader.count; k++) bytes += loader.pages[k].bytes;
        }
        if (starts_with(c, "linear") &&
            r->loader) { /* every instruction of a column of tiles takes the weight's rows once */
            const tile_param *w = &r->op.params[1];
            assert_int_equal(bytes, grid[1] * role_layout_bytes(r->layout[1], w->type, 100, w->extent[1]->value.i));
        }
        for (int k = 0; k < 2; k++) {
            interpreter *p = k ? &consumer.p : &loader.p;
            for (size_t b = 0; b < p->block_count; b++) free(p->blocks[b]);
            free(p->blocks);
        }
        tensors_free(tensors, count);
    }
    assert_true(streamed > op_count / 4);
}

/* ---- meeting ---- */

/* What was touched since the last SYNC: bytes of buffers, or a tensor. `by`: the thread that has element e of a tile
 * under a spread has it in every statement with that spread, so such touches are told apart by variable and spread
 * alone. */
typedef struct touched {
    int64_t low, high;
    int param;
    bool writes, by_element;
    int variable;
    role_spread spread;
} touched;
typedef struct race {
    const role_op *r;
    touched items[4000];
    int count;
    bool found;
} race;

static bool races(const touched *a, const touched *b) {
    if (!a->writes && !b->writes) return false;
    if (a->param >= 0 || b->param >= 0) return a->param == b->param;
    if (a->high <= b->low || b->high <= a->low) return false;
    const bool same_threads = a->by_element && b->by_element && a->variable == b->variable &&
                              a->spread.rows == b->spread.rows && a->spread.columns == b->spread.columns &&
                              a->spread.vector == b->spread.vector && a->spread.lanes == b->spread.lanes;
    return !same_threads;
}

static void touch(race *x, const touched *t, int since) {
    for (int i = 0; i < since; i++)
        if (races(&x->items[i], t)) x->found = true;
    assert_true(x->count < (int)COUNT_OF(x->items));
    x->items[x->count++] = *t;
}

static void touch_buffer(race *x, int variable, bool writes, bool by_element, const role_spread *spread, int since) {
    const role_variable *v = &x->r->variables[variable];
    touch(x, &(touched){v->offset, v->offset + v->bytes, -1, writes, by_element, variable, *spread}, since);
}

/* `shape`: of the tile that is computed element by element, NULL below anything that moves elements. */
static void touch_reads(race *x, const tile_node *n, const tile_shape *shape, const role_spread *spread, int since) {
    if (!n) return;
    const role_op *r = x->r;
    if (shape && (n->shape.rank != shape->rank ||
                  memcmp(n->shape.extent, shape->extent, (size_t)shape->rank * sizeof shape->extent[0])))
        shape = NULL;
    if (n->kind == TILE_VAR) {
        const role_variable *v = &r->variables[n->index];
        if (v->place == ROLE_BUFFER) touch_buffer(x, n->index, false, shape != NULL, spread, since);
        if (v->place == ROLE_PARTS) touch_buffer(x, v->parts, false, false, spread, since);
        if (v->place == ROLE_FUSED) touch_reads(x, v->value, shape, spread, since);
    }
    if (n->kind == TILE_LOAD)
        for (int i = 0; i < r->op.param_count; i++)
            if (i == n->access->param && r->op.params[i].kind != TILE_IN)
                touch(x, &(touched){.param = i, .variable = -1}, since);
    if (n->kind != TILE_ELEMENTWISE && n->kind != TILE_SELECT && n->kind != TILE_CAST) shape = NULL;
    touch_reads(x, n->a, shape, spread, since);
    touch_reads(x, n->b, shape, spread, since);
    touch_reads(x, n->c, shape, spread, since);
    for (int i = 0; i < n->count; i++) touch_reads(x, n->list[i], NULL, spread, since);
    for (int d = 0; n->access && d < n->access->rank; d++) {
        touch_reads(x, n->access->item[d].start, NULL, spread, since);
        touch_reads(x, n->access->item[d].limit, NULL, spread, since);
    }
}

/* Loops take two turns, or none where they might; conditions go both ways. From there on, what either way has left
 * behind counts. */
static void walk_race(race *x, const role_statement *s, const role_statement *without) {
    for (; s; s = s->next) {
        const int since = x->count;
        if (s == without) continue;
        if (s->kind == ROLE_SYNC) x->count = 0;
        if (s->kind == ROLE_FOR || s->kind == ROLE_IF) {
            static race saved[8];
            static int depth;
            const bool loop = s->kind == ROLE_FOR, runs = loop && s->begin->kind == TILE_CONST &&
                                                          s->end->kind == TILE_CONST &&
                                                          s->begin->value.i < s->end->value.i;
            assert_true(depth < 4);
            race *before = &saved[2 * depth], *then = &saved[2 * depth + 1];
            depth++;
            touch_reads(x, s->begin, NULL, &s->spread, since);
            touch_reads(x, s->end, NULL, &s->spread, since);
            touch_reads(x, s->value, NULL, &s->spread, since);
            *before = *x;
            walk_race(x, s->body, without);
            if (loop) walk_race(x, s->body, without);
            *then = *x;
            *x = *before;
            x->found |= then->found;
            walk_race(x, s->otherwise, without);
            if (runs) x->count = 0;
            for (int i = 0; i < then->count; i++) x->items[x->count++] = then->items[i];
            depth--;
            continue;
        }
        if (s->kind == ROLE_EACH && x->r->variables[s->to].place != ROLE_BUFFER) continue;
        const tile_shape *shape = s->kind == ROLE_EACH    ? &x->r->op.variables[s->to].shape
                                  : s->kind == ROLE_STORE ? &s->shape
                                                          : NULL;
        touch_reads(x, s->value, shape, &s->spread, since);
        for (int d = 0; s->access && d < s->access->rank; d++) {
            touch_reads(x, s->access->item[d].start, NULL, &s->spread, since);
            touch_reads(x, s->access->item[d].limit, NULL, &s->spread, since);
        }
        if (s->from >= 0) touch_buffer(x, s->from, false, false, &s->spread, since);
        if (s->kind == ROLE_STORE)
            touch(x, &(touched){.param = s->access->param, .writes = true, .variable = -1}, since);
        if (s->to >= 0 && x->r->variables[s->to].place == ROLE_BUFFER)
            touch_buffer(x, s->to, true, s->kind == ROLE_EACH, &s->spread, since);
    }
}

static bool is_racy(const role_op *r, const role_statement *without) {
    static race x;
    x.r = r;
    x.count = 0;
    x.found = false;
    walk_race(&x, r->consumer, without);
    return x.found;
}

static void check_needed(const role_op *r, const role_statement *s, const test_case *c, int *syncs) {
    for (; s; s = s->next) {
        check_needed(r, s->body, c, syncs);
        check_needed(r, s->otherwise, c, syncs);
        if (s->kind != ROLE_SYNC) continue;
        ++*syncs;
        if (!is_racy(r, s)) fail_msg("%s %s: a SYNC at line %d could be left out", c->name, c->constants, s->line);
    }
}

static void test_syncs(void **state) {
    (void)state;
    int syncs = 0;
    for (int i = 0; i < op_count; i++) {
        if (is_racy(ops[i].r, NULL)) fail_msg("%s %s: a SYNC is missing", ops[i].c->name, ops[i].c->constants);
        check_needed(ops[i].r, ops[i].r->consumer, ops[i].c, &syncs);
    }
    print_message("%d ops, %d SYNCs\n", op_count, syncs);
}

/* ---- budget, places, text ---- */

static void test_buffers(void **state) {
    (void)state;
    for (int i = 0; i < op_count; i++) {
        const role_op *r = ops[i].r;
        assert_true(r->shared_bytes <= ROLE_SHARED && r->shared_bytes % 128 == 0);
        for (int a = 0; a < r->op.variable_count; a++) {
            const role_variable *v = &r->variables[a];
            if (v->place != ROLE_BUFFER || !v->first) continue;
            assert_true(v->offset >= 0 && v->offset % 16 == 0 && v->offset + v->bytes <= r->shared_bytes &&
                        v->last >= v->first);
            for (int b = 0; b < a; b++) {
                const role_variable *o = &r->variables[b];
                if (o->place == ROLE_BUFFER && o->first && o->first <= v->last && v->first <= o->last)
                    assert_true(o->offset + o->bytes <= v->offset || v->offset + v->bytes <= o->offset);
            }
        }
        text t = {0};
        role_print(&t, r);
        assert_non_null(strstr(t.data, "consumers {"));
        assert_true(!r->loader == !strstr(t.data, "    pages "));
        text_free(&t);
    }
}

/* Whatever pages a unit has, there is room for the fewest beside the largest buffers and what the kernel has. */
static void test_room(void **state) {
    (void)state;
    static const struct {
        int major, bytes;
    } chips[] = {{8, 166912}, {8, 101376}, {9, 232448}, {10, 232448}, {12, 101376}, {8, 0}};
    for (size_t i = 0; i < COUNT_OF(chips); i++) {
        const role_chip chip = role_chip_of(chips[i].major, chips[i].bytes);
        const int64_t two = ROLE_LEAST_PAGES * ROLE_PAGE / ROLE_LONG_PAGE * ROLE_LONG_PAGE,
                      three = ROLE_LEAST_PAGES * (int64_t)align_up(ROLE_LONG_PAGE, 1024);
        assert_in_range(chip.shared, 0, ROLE_SHARED);
        if (chips[i].bytes)
            assert_true(chip.shared + (chip.wgmma ? three : two) + ROLE_KERNEL_SHARED <= chips[i].bytes);
        if (chip.wgmma) assert_int_equal(chip.shared, ROLE_SHARED); /* what role_lower counts on */
    }
}

/* A weight is streamed exactly where the head of role.h says. */
static void test_strategies(void **state) {
    (void)state;
    for (int i = 0; i < op_count; i++) {
        const test_case *c = ops[i].c;
        if (strcmp(c->source, "linear")) continue;
        const bool dense = strstr(c->constants, "W=bf16") || strstr(c->constants, "W=f16"),
                   wide = strstr(c->constants, "W=f32") != NULL;
        const bool half = strstr(c->constants, "P=bf16") || strstr(c->constants, "P=f16");
        assert_int_equal(ops[i].r->layout[1], !half || wide ? ROLE_ROWS : dense ? ROLE_ATOMS : ROLE_BANDS);
        assert_int_equal(ops[i].r->page_count > 0, half && !wide);
    }
}

/* What few threads would read much of is kept where that is small, and never instead of having code at all. */
static void test_kept(void **state) {
    (void)state;
    static const struct {
        const char *source, *constants;
        int64_t least, most; /* bytes of buffers */
    } all[] = {
        {"tile t(x: in f16[M, 64], y: out f32[64], z: out f32[64]) over (i in 1) { v = f32(x[0 : +4096, :]); y[:] = "
         "reshape(sum(v * v, axis = 0), 64); z[:] = reshape(max(v, axis = 0), 64) }",
         "", 0, 1024},
        {"merge_linear_add", "N=4096 H=32 D=64 C=1024 BS=128 W=f16 P=f16", 1024 * 32 * 4, ROLE_SHARED},
        {"merge_linear_add", "N=4096 H=32 D=64 C=128 BS=128 W=f16 P=f16", 2 * 128 * 32 * 4, ROLE_SHARED}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        test_case c = {.source = (char *)all[i].source, .constants = all[i].constants};
        role_layout layout[TILE_PARAMS] = {ROLE_ROWS};
        mt_error error = {0};
        role_op *r;
        assert_true(bind_case(&c));
        for (int t = 0; t < c.op->tensor_count; t++) layout[t] = role_wish(c.op, t);
        if (role_lower(case_memory, &r, c.op, layout, &error)) fail_msg("%zu: %s", i, error.message);
        assert_in_range(r->shared_bytes, all[i].least, all[i].most);
    }
}

static void test_layouts(void **state) {
    (void)state;
    static const char *const formats[] = {"q4_0", "q4_1",  "q8_0",        "q4_k",
                                          "q6_k", "nvfp4", "i4_group128", "e4m3_block128"};
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        const tile_format *t = tile_format_find(formats[f]);
        for (int64_t k = t->block; k < 40000; k = k * 3 / 2 / t->block * t->block + t->block) {
            const int64_t band = role_band(t, k);
            assert_true(band > 0 && band <= k && band % t->block == 0 && 8 * role_band_row(t, band) <= ROLE_LONG_PAGE);
            assert_true(role_band_row(t, band) % 32 == 16);
            const int64_t bytes = role_layout_bytes(ROLE_BANDS, t, 21, k), plain = tile_format_bytes(t, 24 * k);
            assert_true(bytes >= plain && bytes < plain + 24 * 32 * ceil_div(k, band));
        }
    }
    assert_int_equal(role_layout_bytes(ROLE_ATOMS, tile_format_find("bf16"), 9, 65), 2 * 2 * 1024);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pages),      cmocka_unit_test(test_syncs),
                                       cmocka_unit_test(test_buffers),    cmocka_unit_test(test_room),
                                       cmocka_unit_test(test_strategies), cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_layouts)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
