/* The lowered op, for people. */
#include "tile/explicit.h"
#include "tile/role_internal.h"

#include <inttypes.h>

static const char *variable_name(const role_op *r, int v) { return r->op.variables[v].name; }

static void print_shape(text *out, const tile_format *type, const tile_shape *s) {
    text_string(out, type->name);
    for (int d = 0; d < s->rank; d++) text_printf(out, "%s%" PRId64, d ? ", " : "[", s->extent[d]);
    if (s->rank) text_string(out, "]");
}

static void print_slice(text *out, const role_op *r, const tile_access *access) {
    const tile_node load = {.kind = TILE_LOAD, .access = (tile_access *)access};
    tile_print_node(out, &r->op, &load);
}

static void print_pages(text *out, const role_op *r, const role_pages *p) {
    text_printf(out, "%s[", r->op.params[p->param].name);
    tile_print_node(out, &r->op, p->row);
    text_printf(out, " : +%" PRId64 ", ", p->blocks * 8);
    tile_print_node(out, &r->op, p->column);
    text_printf(out, " : +%" PRId64 "], pages of %" PRId64 " rows x %" PRId64 " columns", p->columns,
                8 * p->page_blocks, min_i64(p->page_columns, p->columns));
}

static void print_wide(text *out, const role_op *r, const role_wide *w) {
    for (int i = -1; i < w->count; i++) { /* the left operand, then the weights */
        text_printf(out, "%s%s[", i < 0 ? "" : ", ", r->op.params[i < 0 ? w->left : w->product[i].param].name);
        tile_print_node(out, &r->op, i < 0 ? w->row : w->product[i].row);
        text_printf(out, " : +%" PRId64 ", ", i < 0 ? w->rows : w->columns);
        if (w->column) tile_print_node(out, &r->op, w->column);
        if (w->column)
            text_printf(out, " : +%" PRId64 "]", w->steps * ROLE_WIDE_K);
        else
            text_printf(out, ":]");
    }
    text_printf(out, ", %" PRId64 " steps of %d columns", w->steps, ROLE_WIDE_K);
    const role_decoded *d = &w->decoded;
    if (d->format)
        text_printf(out,
                    ", %s decoded in chunks of %" PRId64 " columns, %" PRId64 " rows a step, pages of %" PRId64
                    " rows of %" PRId64 " bytes",
                    d->format->name, d->columns, d->step_rows, d->page_rows, d->row_bytes);
}

static void print_spread(text *out, const role_spread *s) {
    if (s->registers) {
        text_printf(out, "  // %" PRId64 " x %" PRId64 " in registers, %d at once", s->rows, s->columns, s->vector);
        return;
    }
    if (s->fragment) {
        text_printf(out, "  // %" PRId64 " x %" PRId64 " in fragments", s->rows, s->columns);
        return;
    }
    text_printf(out, "  // %" PRId64 " x %" PRId64 ": %d threads a row, %d elements each", s->rows, s->columns,
                s->lanes, s->vector);
}

static void print_statements(text *out, const role_op *r, const role_statement *s, int depth) {
    static const char *const reduce[] = {"a thread an element", "a warp an element", "all warps an element",
                                         "four lanes an element"};
    static const char *const dots[] = {"plain, lanes along k", "plain, lanes along n, warps along k",
                                       "plain, threads over outputs", "tensor cores, warps along n",
                                       "tensor cores, warps along k"};
    for (; s; s = s->next) {
        text_printf(out, "%*s", 4 * depth, "");
        switch (s->kind) {
        case ROLE_EACH:
        case ROLE_ASSIGN:
            text_printf(out, "%s = ", variable_name(r, s->to));
            tile_print_node(out, &r->op, s->value);
            if (r->variables[s->to].place == ROLE_FUSED)
                text_string(out, "  // fused");
            else if (s->kind == ROLE_EACH)
                print_spread(out, &s->spread);
            if (s->whole) {
                text_string(out, "; no mask where ");
                tile_print_node(out, &r->op, s->whole);
            }
            break;
        case ROLE_STORE:
            print_slice(out, r, s->access);
            text_string(out, s->adds ? " += " : " = ");
            tile_print_node(out, &r->op, s->value);
            print_spread(out, &s->spread);
            break;
        case ROLE_REDUCE:
            text_printf(out, "%s = %s(", variable_name(r, s->to), tile_operator_text(s->op));
            tile_print_node(out, &r->op, s->value);
            text_printf(out, ", axis = %d)  // %s", s->axis, reduce[s->reduce]);
            break;
        case ROLE_DOT:
            text_printf(out, "%s %s dot(%s, ", variable_name(r, s->to), s->adds ? "+=" : "=",
                        variable_name(r, s->from));
            tile_print_node(out, &r->op, s->value);
            text_printf(out, "%s)  // %s", s->transposed ? ".T" : "", dots[s->dot]);
            if (s->why) text_printf(out, ": %s", s->why);
            break;
        case ROLE_SKINNY:
            text_printf(out, "%s %s skinny dot(%s, pages %d: ", variable_name(r, s->to), s->adds ? "+=" : "=",
                        variable_name(r, s->from), s->pages.number);
            print_pages(out, r, &s->pages);
            text_printf(out, ")  // %s x %s: %s", s->product->name, s->product->name, s->why);
            break;
        case ROLE_WIDE:
            for (int i = 0; i < s->wide.count; i++)
                text_printf(out, "%s%s", i ? ", " : "", variable_name(r, s->wide.product[i].to));
            text_string(out, " = wide dot(");
            print_wide(out, r, &s->wide);
            text_printf(out, ")  // %s x %s: %s", s->product->name, s->product->name, s->why);
            break;
        case ROLE_WIDE_PAGES:
            text_string(out, "pages when the operands are ready: ");
            print_wide(out, r, &s->wide);
            break;
        case ROLE_ACTION: {
            const tile_statement action = {.kind = TILE_ACTION,
                                           .value = (tile_node *)s->value,
                                           .access = (tile_access *)s->access,
                                           .shape = s->shape,
                                           .action = (level2_action *)s->action};
            explicit_print_action(out, &r->op, &action);
            break;
        }
        case ROLE_WIDE_TILE:
        case ROLE_WIDE_TILE_PAGES:
            if (s->kind == ROLE_WIDE_TILE_PAGES)
                text_string(out, "pages when the operands are ready: ");
            else
                text_printf(out, "%s %s wide dot(", variable_name(r, s->to), s->adds ? "+=" : "=");
            if (s->kind == ROLE_WIDE_TILE && s->from >= 0)
                text_printf(out, "%s, ", variable_name(r, s->from));
            else if (s->kind == ROLE_WIDE_TILE) {
                tile_print_node(out, &r->op, s->left);
                text_string(out, ", ");
            }
            print_slice(out, r, s->slice.access);
            if (s->kind == ROLE_WIDE_TILE)
                text_printf(out, "%s)  // %s x %s: %s", s->slice.transposed ? ".T" : "", s->product->name,
                            s->product->name, s->why);
            break;
        case ROLE_SYNC:
            text_string(out, "sync");
            break;
        case ROLE_PAGES:
            text_printf(out, "pages %d: ", s->pages.number);
            print_pages(out, r, &s->pages);
            break;
        case ROLE_FOR:
            text_printf(out, "for %s in ", r->op.loop_names[s->index]);
            tile_print_node(out, &r->op, s->begin);
            text_string(out, " .. ");
            tile_print_node(out, &r->op, s->end);
            text_string(out, " {\n");
            print_statements(out, r, s->body, depth + 1);
            text_printf(out, "%*s}", 4 * depth, "");
            break;
        case ROLE_IF:
            text_string(out, "if ");
            tile_print_node(out, &r->op, s->value);
            text_string(out, " {\n");
            print_statements(out, r, s->body, depth + 1);
            if (s->otherwise) text_printf(out, "%*s} else {\n", 4 * depth, "");
            if (s->otherwise) print_statements(out, r, s->otherwise, depth + 1);
            text_printf(out, "%*s}", 4 * depth, "");
            break;
        }
        text_string(out, "\n");
    }
}

void role_print(text *out, const role_op *r) {
    static const char *const layouts[] = {"rows", "atoms", "bands", "mapped"};
    text_printf(out, "op %s\n", r->op.name);
    for (int i = 0; i < r->op.param_count; i++)
        if (r->op.params[i].kind <= TILE_INOUT && r->layout[r->op.params[i].ordinal] != ROLE_ROWS)
            text_printf(out, "layout %s: %s\n", r->op.params[i].name, layouts[r->layout[r->op.params[i].ordinal]]);
        else if (r->op.params[i].kind <= TILE_INOUT && r->mapped[r->op.params[i].ordinal])
            text_printf(out, "layout %s: rows, mapped\n", r->op.params[i].name);
    for (int i = 0; i < r->op.variable_count; i++) {
        const role_variable *v = &r->variables[i];
        if (v->place == ROLE_BUFFER && !v->first) continue;
        text_printf(out, "var %s: ", variable_name(r, i));
        print_shape(out, r->op.variables[i].type, &r->op.variables[i].shape);
        switch (v->place) {
        case ROLE_SCALAR:
            text_string(out, "  scalar");
            break;
        case ROLE_FUSED:
            text_string(out, "  fused");
            break;
        case ROLE_REGISTER:
            text_string(out, "  registers, ");
            layout_print(out, v->layout);
            break;
        case ROLE_STAGE:
            text_printf(out, "  a stage of %s", r->op.level2->shared[v->shared].name);
            break;
        case ROLE_FRAGMENT:
            text_string(out, "  fragment");
            break;
        case ROLE_PARTS:
            text_printf(out, "  parts of %s", variable_name(r, v->parts));
            break;
        case ROLE_BUFFER:
            text_printf(out, "  buffer %" PRId64 " .. %" PRId64, v->offset, v->offset + v->bytes);
            if (v->stride != r->op.variables[i].shape.extent[r->op.variables[i].shape.rank - 1])
                text_printf(out, ", rows of %" PRId64, v->stride);
            break;
        }
        text_printf(out, "%s%s\n", v->why ? "  // " : "", v->why ? v->why : "");
    }
    text_printf(out, "shared: %" PRId64 " bytes\n", r->shared_bytes);
    if (r->not_wide) text_printf(out, "not wide: %s\n", r->not_wide);
    text_string(out, "loader {\n");
    print_statements(out, r, r->loader, 1);
    text_string(out, "}\nconsumers {\n");
    print_statements(out, r, r->consumer, 1);
    if (r->storer) {
        text_string(out, "}\nstorer { // one thread of the controller's warp\n");
        print_statements(out, r, r->storer, 1);
    }
    text_string(out, "}\n");
}
