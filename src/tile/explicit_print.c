/* Statements of level 2 as text, for people. */
#include "tile/explicit.h"

#include <inttypes.h>

static void print_type(text *out, const tile_format *type, const tile_shape *s) {
    text_string(out, type->name);
    for (int d = 0; d < s->rank; d++) text_printf(out, "%s%" PRId64, d ? ", " : "[", s->extent[d]);
    if (s->rank) text_string(out, "]");
}

void explicit_print_declarations(text *out, const tile_op *op, int indent) {
    const tile_level2 *x = op->level2;
    bool unordered = false;
    for (int i = 0; i < op->param_count; i++) {
        if (!op->params[i].unordered) continue;
        if (!unordered) text_printf(out, "%*sunordered ", indent, "");
        text_printf(out, "%s%s", unordered ? ", " : "", op->params[i].name);
        unordered = true;
    }
    if (unordered) text_string(out, "\n");
    for (int i = 0; i < x->shared_count; i++) {
        const level2_shared *s = &x->shared[i];
        text_printf(out, "%*sshared %s", indent, "", s->name);
        if (s->count > 1) text_printf(out, "[%" PRId64 "]", s->count);
        text_string(out, ": ");
        print_type(out, s->type, &s->shape);
        text_string(out, s->pages ? " pages" : " resident");
        if (s->layout.swizzle) text_printf(out, " swizzle(%d)", 16 << s->layout.swizzle);
        if (!s->layout.swizzle && s->shape.rank > 1)
            text_printf(out, " rows(%" PRId64 ")", s->layout.mode[1].stride / s->layout.element);
        text_string(out, "\n");
    }
    for (int i = 0; i < x->barrier_count; i++) {
        const level2_barrier *b = &x->barriers[i];
        text_printf(out, "%*sbarrier %s", indent, "", b->name);
        if (b->count > 1) text_printf(out, "[%" PRId64 "]", b->count);
        const char *separator = " (";
        for (int r = 0; r < LEVEL2_ROLES; r++) {
            if (!b->arrives[r]) continue;
            text_printf(out, "%s%s", separator, explicit_roles[r]);
            separator = ", ";
        }
        text_string(out, ")\n");
    }
}

static void print_barrier(text *out, const tile_op *op, const level2_action *a) {
    const level2_barrier *b = &op->level2->barriers[a->barrier];
    text_string(out, b->name);
    if (b->count == 1) return;
    text_string(out, "[");
    tile_print_node(out, op, a->index);
    text_string(out, "]");
}

void explicit_print_action(text *out, const tile_op *op, const tile_statement *s) {
    const level2_action *a = s->action;
    const char *name = a->variable >= 0 ? op->variables[a->variable].name : "";
    switch (a->kind) {
    case LEVEL2_ROLE:
        text_printf(out, "role %s", explicit_roles[a->role]);
        if (a->role == LEVEL2_CONSUMER) text_printf(out, " (warps = %d", op->level2->warps);
        if (op->level2->budget[a->role])
            text_printf(out, "%sregisters = %d", a->role == LEVEL2_CONSUMER ? ", " : " (", op->level2->budget[a->role]);
        if (a->role == LEVEL2_CONSUMER || op->level2->budget[a->role]) text_string(out, ")");
        break;
    case LEVEL2_VIEW:
        text_printf(out, "// %s is %s[", name, name);
        tile_print_node(out, op, a->index);
        text_string(out, "]");
        break;
    case LEVEL2_PUT:
        text_printf(out, "%s = ", name);
        tile_print_node(out, op, s->value);
        break;
    case LEVEL2_COPY:
        text_printf(out, "copy(%s, ", name);
        tile_print_node(out, op, s->value);
        text_string(out, ", ");
        print_barrier(out, op, a);
        text_string(out, ")");
        break;
    case LEVEL2_WAIT:
        text_string(out, "wait(");
        print_barrier(out, op, a);
        text_string(out, ", ");
        tile_print_node(out, op, a->phase);
        text_string(out, ")");
        break;
    case LEVEL2_ARRIVE:
    case LEVEL2_EXPECT:
        text_string(out, a->kind == LEVEL2_ARRIVE ? "arrive(" : "expect(");
        print_barrier(out, op, a);
        if (a->kind == LEVEL2_EXPECT) text_printf(out, ", %" PRId64, a->bytes);
        text_string(out, ")");
        break;
    case LEVEL2_MMA:
    case LEVEL2_WGMMA:
        text_printf(out, "%s(%s, ", a->kind == LEVEL2_MMA ? "mma" : "wgmma", name);
        tile_print_node(out, op, s->value->a);
        text_string(out, ", ");
        tile_print_node(out, op, s->value->b);
        text_string(out, ")");
        break;
    case LEVEL2_STORE: {
        const tile_node slice = {.kind = TILE_LOAD, .access = s->access, .shape = s->shape};
        text_string(out, "store(");
        tile_print_node(out, op, &slice);
        text_printf(out, ", %s)", name);
        break;
    }
    case LEVEL2_ATOMIC: {
        const tile_node slice = {.kind = TILE_LOAD, .access = s->access, .shape = s->shape};
        text_printf(out, "atomic_%s(", explicit_atomics[a->atomic]);
        tile_print_node(out, op, &slice);
        text_string(out, ", ");
        tile_print_node(out, op, s->value);
        text_printf(out, ", %s, %s", explicit_orders[a->order], explicit_scopes[a->scope]);
        text_printf(out, "%s%s)", *name ? ", " : "", name);
        break;
    }
    case LEVEL2_STAMP:
    case LEVEL2_POST:
    case LEVEL2_TAKE: {
        const tile_node slice = {.kind = TILE_LOAD, .access = s->access, .shape = s->shape};
        text_string(out, a->kind == LEVEL2_STAMP ? "stamp(" : a->kind == LEVEL2_POST ? "post(" : "take(");
        if (a->kind == LEVEL2_TAKE) text_printf(out, "%s, ", name);
        tile_print_node(out, op, &slice);
        if (a->kind == LEVEL2_POST) text_string(out, ", ");
        if (a->kind == LEVEL2_POST) tile_print_node(out, op, s->value);
        text_string(out, ")");
        break;
    }
    case LEVEL2_COMMIT:
        text_string(out, "commit()");
        break;
    case LEVEL2_WAIT_GROUP:
        text_printf(out, "wait_group(%" PRId64 ")", a->bytes);
        break;
    case LEVEL2_SYNC:
        text_string(out, "sync()");
        break;
    }
}
