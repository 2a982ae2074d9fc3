/* Bound programs as text, in the language's own syntax: what is printed can be parsed and bound again and gives the
 * same tree. Constants are in place of their names, types and shapes of variables and the conversions that the binder
 * inserted are spelled out. */
#include "tile/explicit.h"

#include <inttypes.h>
#include <stdio.h>

/* How tightly an expression binds. */
enum {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_BIT_OR,
    LEVEL_BIT_XOR,
    LEVEL_BIT_AND,
    LEVEL_SHIFT,
    LEVEL_ADD,
    LEVEL_MULTIPLY,
    LEVEL_UNARY,
    LEVEL_POSTFIX
};

const char *tile_operator_text(tile_operator o) {
    static const char *const texts[] = {
#define X(name, text, arity) text,
        TILE_OPERATORS(X)
#undef X
    };
    return (unsigned)o < COUNT_OF(texts) ? texts[o] : "?";
}

int64_t tile_shape_count(const tile_shape *s) {
    int64_t count = 1;
    for (int d = 0; d < s->rank; d++) count *= s->extent[d];
    return count;
}

static int level_of(tile_operator o) {
    switch (o) {
    case TILE_OR:
        return LEVEL_OR;
    case TILE_AND:
        return LEVEL_AND;
    case TILE_NOT:
        return LEVEL_NOT;
    case TILE_EQ:
    case TILE_NE:
    case TILE_LT:
    case TILE_LE:
    case TILE_GT:
    case TILE_GE:
        return LEVEL_COMPARE;
    case TILE_BIT_OR:
        return LEVEL_BIT_OR;
    case TILE_BIT_XOR:
        return LEVEL_BIT_XOR;
    case TILE_BIT_AND:
        return LEVEL_BIT_AND;
    case TILE_SHL:
    case TILE_SHR:
        return LEVEL_SHIFT;
    case TILE_ADD:
    case TILE_SUB:
        return LEVEL_ADD;
    case TILE_MUL:
    case TILE_DIV:
    case TILE_MOD:
        return LEVEL_MULTIPLY;
    case TILE_NEG:
        return LEVEL_UNARY;
    default:
        return LEVEL_POSTFIX; /* functions */
    }
}

typedef struct printer {
    text *out;
    const tile_op *op; /* NULL for the value of a format */
} printer;

static void print(const printer *p, const tile_node *n, int level);

static void print_type(const printer *p, const tile_format *type, const tile_shape *shape) {
    text_string(p->out, type->name);
    for (int d = 0; d < shape->rank; d++) text_printf(p->out, "%s%" PRId64, d ? ", " : "[", shape->extent[d]);
    if (shape->rank) text_string(p->out, "]");
}

/* A float so that it reads back as the same number, and as a float. */
static void print_float(const printer *p, double value, int bits) {
    char digits[40];
    snprintf(digits, sizeof digits, bits > 32 ? "%.17g" : "%.9g", value);
    bool plain = true;
    for (char *c = digits; *c; c++) {
        if (!strchr("+-0123456789einfa", *c)) *c = '.'; /* whatever the locale writes there */
        plain &= (*c >= '0' && *c <= '9') || *c == '-';
    }
    text_printf(p->out, "%s%s", strstr(digits, "nan") ? "(inf - inf)" : digits, plain ? ".0" : "");
}

/* A constant; with its type unless `open`, where the other side gives it, or the type is what a literal has alone. */
static void print_constant(const printer *p, const tile_node *n, bool open, int level) {
    const tile_scalar t = n->type->scalar;
    const bool number = t.kind == TILE_FLOAT,
               typed = !open && t.kind != TILE_BOOL && (number ? t.bits != 32 : t.bits != 64 || t.kind == TILE_UINT);
    const bool parens = !typed && level > LEVEL_UNARY && (number ? n->value.f < 0 : n->value.i < 0);
    if (typed) text_printf(p->out, "%s", n->type->name);
    if (typed || parens) text_string(p->out, "(");
    if (t.kind == TILE_BOOL)
        text_string(p->out, n->value.i ? "true" : "false");
    else if (number)
        print_float(p, n->value.f, t.bits);
    else if (n->value.i == INT64_MIN)
        text_printf(p->out, "(%" PRId64 " - 1)", n->value.i + 1);
    else
        text_printf(p->out, "%" PRId64, n->value.i);
    if (typed || parens) text_string(p->out, ")");
}

/* An operand whose type its neighbour (may be NULL) gives, too. */
static void print_operand(const printer *p, const tile_node *n, const tile_node *neighbour, int level) {
    if (n->kind == TILE_CONST)
        print_constant(p, n, neighbour && neighbour->kind != TILE_CONST, level);
    else
        print(p, n, level);
}

/* The same for an operation that would be folded if its operands were literals. */
static void print_computed(const printer *p, const tile_node *n, const tile_node *neighbour, int level) {
    const bool folds = n->kind == TILE_CONST && n->type->scalar.kind == TILE_FLOAT && n->type->bits == 32 &&
                       (!neighbour || neighbour->kind == TILE_CONST);
    if (folds) text_string(p->out, "f32(");
    print_operand(p, n, neighbour, folds ? 0 : level);
    if (folds) text_string(p->out, ")");
}

static void print_elementwise(const printer *p, const tile_node *n, int level) {
    const int own = level_of(n->op), left = own + (own == LEVEL_COMPARE);
    const char *name = tile_operator_text(n->op);
    if (n->op == TILE_CEIL_DIV) {
        text_string(p->out, "ceil(");
        print_computed(p, n->a, n->b, LEVEL_MULTIPLY);
        text_string(p->out, " / ");
        print_computed(p, n->b, n->a, LEVEL_MULTIPLY + 1);
        text_string(p->out, ")");
    } else if (own == LEVEL_POSTFIX) {
        text_printf(p->out, "%s(", name);
        print_computed(p, n->a, n->b, 0);
        if (n->b) text_string(p->out, ", ");
        if (n->b) print_computed(p, n->b, n->a, 0);
        text_string(p->out, ")");
    } else {
        if (own < level) text_string(p->out, "(");
        if (n->b) print_computed(p, n->a, n->b, left);
        text_printf(p->out, n->b ? " %s " : n->op == TILE_NOT ? "%s " : "%s", name);
        if (n->b)
            print_computed(p, n->b, n->a, own + 1);
        else
            print_computed(p, n->a, NULL,
                           own == LEVEL_UNARY ? own + 1 : own); /* - - x would be read as written, but not by people */
        if (own < level) text_string(p->out, ")");
    }
}

/* [items] of a slice of something with these extents (-1: not constant). */
static void print_items(const printer *p, const tile_access *a, const int64_t *extents) {
    for (int d = 0; d < a->rank; d++) {
        const tile_item *i = &a->item[d];
        const bool whole = i->kind == TILE_ITEM_RANGE && !i->limit && i->start->kind == TILE_CONST &&
                           i->start->value.i == 0 && i->size == extents[d];
        text_string(p->out, d ? ", " : "[");
        if (whole) {
            text_string(p->out, ":");
            continue;
        }
        print(p, i->start, 0);
        if (i->kind == TILE_ITEM_RANGE) text_printf(p->out, " : +%" PRId64, i->size);
        if (i->limit) text_string(p->out, " < ");
        if (i->limit) print(p, i->limit, 0);
    }
    text_string(p->out, "]");
}

static void print_access(const printer *p, const tile_access *a) {
    int64_t extents[TILE_RANK];
    const tile_param *q = &p->op->params[a->param];
    for (int d = 0; d < q->rank; d++) extents[d] = q->extent[d]->kind == TILE_CONST ? q->extent[d]->value.i : -1;
    text_string(p->out, q->name);
    print_items(p, a, extents);
}

static void print_call(const printer *p, const char *name, const tile_node *a, const tile_node *b, const tile_node *c) {
    text_printf(p->out, "%s(", name);
    print_operand(p, a, NULL, 0);
    if (b) text_string(p->out, ", ");
    if (b) print_operand(p, b, c, 0);
    if (c) text_string(p->out, ", ");
    if (c) print_operand(p, c, b, 0);
}

static void print(const printer *p, const tile_node *n, int level) {
    const tile_op *op = p->op;
    switch (n->kind) {
    case TILE_CONST:
        print_constant(p, n, false, level);
        break;
    case TILE_GRID:
        text_string(p->out, op->axis_names[n->index]);
        break;
    case TILE_LOOP:
        text_string(p->out, op->loop_names[n->index]);
        break;
    case TILE_EXTENT:
        text_string(p->out, op->extent_names[n->index]);
        break;
    case TILE_LIVE:
    case TILE_ARG:
        text_string(p->out, op->params[n->index].name);
        break;
    case TILE_VAR:
        text_string(p->out, op->variables[n->index].name);
        break;
    case TILE_FORMAT_INDEX:
        text_string(p->out, "i");
        break;
    case TILE_FIELD:
        text_printf(p->out, "field%d", n->index);
        if (n->a) text_string(p->out, "[");
        if (n->a) print(p, n->a, 0);
        if (n->a) text_string(p->out, "]");
        break;
    case TILE_LOAD:
        print_access(p, n->access);
        break;
    case TILE_ELEMENTWISE:
        print_elementwise(p, n, level);
        break;
    case TILE_SELECT:
        print_call(p, "where", n->a, n->b, n->c);
        text_string(p->out, ")");
        break;
    case TILE_CAST:
        print_call(p, n->type->name, n->a, NULL, NULL);
        text_string(p->out, ")");
        break;
    case TILE_REDUCE:
        print_call(p, tile_operator_text(n->op), n->a, NULL, NULL);
        text_printf(p->out, ", axis = %d)", n->index);
        break;
    case TILE_DOT:
        print_call(p, "dot", n->a, n->b, NULL);
        text_string(p->out, ")");
        break;
    case TILE_TRANSPOSE:
        print(p, n->a, LEVEL_POSTFIX);
        text_string(p->out, ".T");
        break;
    case TILE_RESHAPE:
        print_call(p, "reshape", n->a, NULL, NULL);
        for (int d = 0; d < n->shape.rank; d++) text_printf(p->out, ", %" PRId64, n->shape.extent[d]);
        text_string(p->out, ")");
        break;
    case TILE_BROADCAST:
        print_type(p, n->type, &n->shape);
        text_string(p->out, "(");
        if (n->a->kind == TILE_CONST)
            print_constant(p, n->a, n->type->scalar.kind != TILE_BOOL, 0);
        else
            print(p, n->a, 0);
        text_string(p->out, ")");
        break;
    case TILE_CONCAT:
        text_string(p->out, "concat(");
        for (int i = 0; i < n->count; i++) {
            print(p, n->list[i], 0);
            text_string(p->out, ", ");
        }
        text_printf(p->out, "axis = %d)", n->index);
        break;
    case TILE_PART:
        print(p, n->a, LEVEL_POSTFIX);
        print_items(p, n->access, n->a->shape.extent);
        break;
    case TILE_IOTA:
        text_printf(p->out, "iota(%" PRId64 ")", n->shape.extent[0]);
        break;
    }
}

void tile_print_node(text *out, const tile_op *op, const tile_node *n) { print(&(printer){out, op}, n, 0); }

static void print_value(const printer *p, const tile_node *n) {
    if (n->kind == TILE_CONST)
        print_constant(p, n, true, 0);
    else
        print(p, n, 0);
    text_string(p->out, "\n");
}

static void print_block(const printer *p, const tile_statement *s, int depth) {
    text *out = p->out;
    for (; s; s = s->next) {
        text_printf(out, "%*s", 4 * depth, "");
        switch (s->kind) {
        case TILE_ASSIGN: {
            const tile_variable *v = &p->op->variables[s->index];
            text_string(out, v->name);
            if (s->declares) text_string(out, ": ");
            if (s->declares) print_type(p, v->type, &v->shape);
            text_string(out, " = ");
            print_value(p, s->value);
            break;
        }
        case TILE_STORE:
            print_access(p, s->access);
            text_string(out, s->adds ? " += " : " = ");
            print_value(p, s->value);
            break;
        case TILE_FOR:
            text_printf(out, "for %s in %s", p->op->loop_names[s->index], s->stream ? "stream(" : "");
            if (s->begin->kind != TILE_CONST || s->begin->value.i) {
                print(p, s->begin, 0);
                text_string(out, " .. ");
            }
            print(p, s->end, 0);
            text_string(out, s->stream ? ") {\n" : " {\n");
            print_block(p, s->body, depth + 1);
            text_printf(out, "%*s}\n", 4 * depth, "");
            break;
        case TILE_IF:
            text_string(out, "if ");
            print(p, s->value, 0);
            text_string(out, " {\n");
            print_block(p, s->body, depth + 1);
            if (s->otherwise) text_printf(out, "%*s} else {\n", 4 * depth, "");
            if (s->otherwise) print_block(p, s->otherwise, depth + 1);
            text_printf(out, "%*s}\n", 4 * depth, "");
            break;
        case TILE_ACTION:
            explicit_print_action(out, p->op, s);
            text_string(out, s->action->kind == LEVEL2_ROLE ? " {\n" : "\n");
            if (s->action->kind != LEVEL2_ROLE) break;
            print_block(p, s->body, depth + 1);
            text_printf(out, "%*s}\n", 4 * depth, "");
            break;
        }
    }
}

void tile_print_op(text *out, const tile_op *op) {
    static const char *const kinds[] = {[TILE_IN] = "in",
                                        [TILE_OUT] = "out",
                                        [TILE_INOUT] = "inout",
                                        [TILE_PARAM_ARG] = "arg",
                                        [TILE_PARAM_LIVE] = "live"};
    const printer p = {out, op};
    text_printf(out, "tile %s", op->name);
    for (int i = 0; i < op->constant_count; i++) {
        const tile_constant *k = &op->constants[i];
        text_printf(out, "%s%s = ", i ? ", " : "[", k->name);
        if (k->type)
            text_string(out, k->type->name);
        else
            text_printf(out, "%" PRId64, k->value);
    }
    text_string(out, op->constant_count ? "]\n    (" : "\n    (");
    for (int i = 0; i < op->param_count; i++) {
        const tile_param *q = &op->params[i];
        text_printf(out, "%s%s: %s %s", i ? ", " : "", q->name, kinds[q->kind], q->type->name);
        for (int d = 0; d < q->rank; d++) {
            text_string(out, d ? ", " : "[");
            print(&p, q->extent[d], 0);
        }
        if (q->rank) text_string(out, "]");
    }
    text_string(out, ")\n    over (");
    for (int i = 0; i < op->axis_total; i++) {
        text_printf(out, "%s%s in ", i ? ", " : "", op->axis_names[i]);
        print(&p, op->axis_count[i], 0);
    }
    text_string(out, ")\n{\n");
    if (op->level2) explicit_print_declarations(out, op, 4);
    print_block(&p, op->body, 1);
    text_string(out, "}\n");
}
