/* What `monotile tile show` says of a lowered op besides its statements: pages, shared memory, and layouts as pictures.
 * A layout that several statements have is shown once. */
#include "tile/explicit.h"
#include "tile/role.h"

#include <inttypes.h>
#include <stdio.h>

enum { SHOWN = 32, SM_BYTES = 232448 }; /* layouts of one op; shared memory that a CTA of sm_90 can have */

typedef struct shown {
    text *out;
    const role_op *r;
    layout layouts[SHOWN];
    int count, numbers[ROLE_SYNC + 1]; /* layouts; the statement of each kind whose fragments were shown */
} shown;

static layout pair(bool threads, int64_t rows, int64_t columns, bool column_major) {
    const tile_shape s = {2, {rows, columns}};
    return threads ? layout_spatial(&s, column_major) : layout_local(&s, column_major);
}

/* Title, product, picture; of one that was shown before only the title and where it was. */
static void show(shown *x, const layout *l, const tile_shape *part, const char *title) {
    text_printf(x->out, "\n%s: ", title);
    layout_print(x->out, l);
    text_string(x->out, "\n");
    for (int i = 0; i < x->count; i++)
        if (layout_equal(&x->layouts[i], l)) {
            text_string(x->out, "       as above\n");
            return;
        }
    if (x->count < SHOWN) x->layouts[x->count++] = *l;
    layout_picture(x->out, l, part);
}

/* A FRAGMENT, as emit/cuda_wide.h has it: of 128 rows each warpgroup has 64 and all columns, of 64 rows each has its
 * half of every 128 columns. */
static bool fragment_layout(const role_spread *s, layout *out) {
    const int64_t page = min_i64(s->columns, ROLE_WIDE_PAGE), pages = s->columns / page;
    const layout c = layout_hardware(LAYOUT_MMA_C),
                 whole[] = {pair(true, 8, 1, false), pair(false, 1, s->columns / 8, false), c},
                 halves[] = {pair(false, 1, pages, false), pair(true, 1, 2, false), pair(true, 4, 1, false),
                             pair(false, 1, page / 16, false), c};
    if (s->columns % 16 || (s->rows != 64 && s->rows != 128)) return false;
    return s->rows == 128 ? layout_product(out, whole, 3) : layout_product(out, halves, 5);
}

/* What role.h says of a spread, as a layout. Its tile may be larger than what is there. */
static bool spread_layout(const role_spread *s, layout *out) {
    if (s->registers) {
        *out = *s->registers;
        return true;
    }
    if (s->fragment) return fragment_layout(s, out);
    const int64_t below = ROLE_THREADS / s->lanes;
    const layout factors[] = {
        pair(false, ceil_div(s->rows, below), ceil_div(s->columns, (int64_t)s->lanes * s->vector), false),
        pair(true, below, s->lanes, false), pair(false, 1, s->vector, false)};
    return s->lanes > 0 && s->vector > 0 && layout_product(out, factors, 3);
}

static void show_spread(shown *x, const role_statement *s) {
    layout l;
    if (!spread_layout(&s->spread, &l)) return;
    const tile_shape part = {2, {s->spread.rows, s->spread.columns}};
    char title[160];
    snprintf(title, sizeof title, "line %d, %.60s %s[%" PRId64 ", %" PRId64 "]", s->line,
             s->kind == ROLE_STORE ? x->r->op.params[s->access->param].name : x->r->op.variables[s->to].name,
             s->kind == ROLE_STORE ? "stored as " : "", part.extent[0], part.extent[1]);
    show(x, &l, &part, title);
}

/* Of the product that cuda_dot.h makes: what a lane has of the weights, and of the sums. */
static void show_skinny(shown *x, const role_statement *s) {
    if (x->numbers[ROLE_SKINNY]++) return;
    const bool atoms = x->r->layout[x->r->op.params[s->pages.param].ordinal] == ROLE_ATOMS;
    const layout factors[] = {pair(false, 1, 2, false), pair(true, 8, 4, false), pair(false, 1, 4, false)};
    layout weights, sums;
    if (atoms) {
        const layout run = pair(false, 1, 16, false);
        layout_compose(&weights, &factors[1], &run);
    } else
        layout_product(&weights, factors, 3);
    show(x, &weights, NULL,
         atoms ? "weights, an atom of 8 rows x 64 columns of a warp" : "weights, 8 rows x 32 columns of a warp");
    sums = s->shape.extent[0] > 4 ? layout_hardware(LAYOUT_MMA_C) : pair(true, 4, 8, true);
    show(x, &sums, NULL, "sums, rows of the batch x 8 rows of the weight, of a warp");
    if (!atoms) return;
    layout_shared atom;
    if (!layout_swizzled(&atom, &(tile_shape){2, {8, 64}}, 2, 128)) return;
    text_string(x->out, "\nan atom in its page: ");
    layout_print_shared(x->out, &atom);
    text_string(x->out, "\n");
    layout_picture_shared(x->out, &atom);
}

static void show_statements(shown *x, const role_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == ROLE_STORE || (s->kind == ROLE_EACH && (x->r->variables[s->to].place == ROLE_BUFFER ||
                                                               x->r->variables[s->to].place == ROLE_FRAGMENT)))
            show_spread(x, s);
        if (s->kind == ROLE_SKINNY) show_skinny(x, s);
        show_statements(x, s->body);
        show_statements(x, s->otherwise);
    }
}

static void print_plan(text *out, const role_op *r, const role_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == ROLE_PAGES) {
            const role_pages *p = &s->pages;
            const tile_param *q = &r->op.params[p->param];
            const int64_t columns = min_i64(p->page_columns, p->columns),
                          bytes = role_layout_bytes(r->layout[q->ordinal], q->type, 8 * p->page_blocks, columns);
            text_printf(out,
                        "pages %d: %s, up to %" PRId64 " times %" PRId64 " rows x %" PRId64 " pages of up to %" PRId64
                        " bytes\n",
                        p->number, q->name, ceil_div(p->blocks, p->page_blocks), 8 * p->page_blocks,
                        ceil_div(p->columns, columns), bytes);
        }
        if (s->kind == ROLE_WIDE_PAGES)
            text_printf(out,
                        "pages of a step of %d columns: %d of %s, %d rows; %" PRId64 " of each weight, up to %d rows\n",
                        ROLE_WIDE_K, 1, r->op.params[s->wide.left].name, (int)s->wide.rows,
                        ceil_div(s->wide.columns, ROLE_WIDE_PAGE), ROLE_WIDE_PAGE);
        print_plan(out, r, s->body);
        print_plan(out, r, s->otherwise);
    }
}

/* Level 2: tiles in registers, and stages. */
static void show_level2(shown *x) {
    const role_op *r = x->r;
    char title[160];
    for (int v = 0; v < r->op.variable_count; v++) {
        if (r->variables[v].place != ROLE_REGISTER) continue;
        snprintf(title, sizeof title, "%.60s, in registers", r->op.variables[v].name);
        show(x, r->variables[v].layout, NULL, title);
    }
    for (int i = 0; i < r->op.level2->shared_count; i++) {
        const level2_shared *s = &r->op.level2->shared[i];
        text_printf(x->out, "\n%s, a stage of %" PRId64 ": ", s->name, s->count);
        layout_print_shared(x->out, &s->layout);
        text_string(x->out, "\n");
        layout_picture_shared(x->out, &s->layout);
    }
}

void layout_print_role(text *out, const role_op *r) {
    shown x = {.out = out, .r = r};
    role_op *const alone[] = {(role_op *)r};
    int64_t least;
    if (r->op.level2) {
        text_printf(out, "pages: an instruction has %d of the ring from its beginning to its end\n", r->borrowed);
        show_level2(&x);
    }
    print_plan(out, r, r->loader);
    text_printf(out,
                "budget: %" PRId64
                " bytes of buffers; of the %d that a CTA of sm_90 can have, the rest goes to the ring "
                "of pages, %" PRId64 " bytes each\n",
                r->shared_bytes, SM_BYTES, role_page_bytes(alone, 1, &least));
    show_statements(&x, r->consumer);
}
