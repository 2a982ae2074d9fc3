/* The first step of the lowering: statements whose values have no REDUCE and no DOT in them. Those become statements of
 * their own in front, innermost first, with a variable each. An assignment that reads the variable itself at other
 * elements goes through a new one. */
#include "tile/role_internal.h"

typedef struct flattener {
    role_lowering *l;
    role_statement **last; /* where the next statement goes */
    int line;
} flattener;

static role_statement *append(flattener *f, role_kind kind) {
    role_statement *s = role_new_statement(f->l, kind, f->line);
    *f->last = s;
    f->last = &s->next;
    return s;
}

/* The node's operands have been flattened already. */
static tile_node *extract(role_lowering *l, const tile_node *n, void *context) {
    flattener *f = context;
    if (n->kind != TILE_REDUCE && n->kind != TILE_DOT) return NULL;
    const bool reduce = n->kind == TILE_REDUCE;
    role_statement *s = append(f, reduce ? ROLE_REDUCE : ROLE_DOT);
    s->shape = n->shape;
    s->to = role_new_variable(l, reduce ? tile_operator_text(n->op) : "dot", n->type, &n->shape);
    if (reduce) {
        s->op = n->op;
        s->axis = n->index;
        s->value = n->a;
    } else {
        s->left = n->a;
        s->value = n->b;
    }
    return role_variable_node(l, s->to);
}

static const tile_node *flat(flattener *f, const tile_node *n) { return role_rewrite(f->l, n, extract, f); }

static void flatten_block(flattener *f, const tile_statement *s);

static role_statement *flatten_body(role_lowering *l, const tile_statement *s) {
    role_statement *first = NULL;
    flattener f = {l, &first, 0};
    flatten_block(&f, s);
    return first;
}

static void flatten_assign(flattener *f, const tile_statement *s) {
    role_lowering *l = f->l;
    const tile_variable *v = &l->r->op.variables[s->index];
    const bool scalar = v->shape.rank == 0;
    const tile_node *value = flat(f, s->value);
    if (scalar) l->r->variables[s->index].place = ROLE_SCALAR;
    if (!scalar && role_moves(l->r, value, s->index)) {
        const tile_format *type = value->type;
        role_statement *copy = append(f, ROLE_EACH);
        copy->to = role_new_variable(l, l->r->op.variables[s->index].name, type, &value->shape);
        copy->value = value;
        copy->declares = true;
        value = role_variable_node(l, copy->to);
        l->r->variables[copy->to].why = "its elements are needed at other places of the variable they go to";
    }
    role_statement *to = append(f, scalar ? ROLE_ASSIGN : ROLE_EACH);
    to->to = s->index;
    to->value = value;
    to->declares = s->declares;
}

/* The value reads the tensor that is stored to. */
static bool reads_tensor(const role_op *r, const tile_node *n, int param) {
    return (void)r, n->kind == TILE_LOAD && n->access->param == param;
}

/* The node, or, when it reads the tensor that is about to be written, a variable that it is computed into. */
static const tile_node *set_aside(flattener *f, const tile_node *n, int param, const char *name) {
    role_lowering *l = f->l;
    if (!n || !role_any(l->r, n, reads_tensor, param)) return n;
    const bool scalar = n->shape.rank == 0;
    role_statement *copy = append(f, scalar ? ROLE_ASSIGN : ROLE_EACH);
    copy->to = role_new_variable(l, name, n->type, &n->shape);
    copy->value = n;
    copy->declares = true;
    if (scalar) l->r->variables[copy->to].place = ROLE_SCALAR;
    l->r->variables[copy->to].why = "it reads the tensor that is stored to";
    return role_variable_node(l, copy->to);
}

static void flatten_store(flattener *f, const tile_statement *s) {
    role_lowering *l = f->l;
    const tile_node *value = set_aside(f, flat(f, s->value), s->access->param, "value");
    tile_access *access = ARENA_NEW(l->memory, tile_access);
    *access = *role_rewrite_access(l, s->access, extract, f);
    for (int d = 0; d < access->rank; d++) {
        tile_item *item = &access->item[d];
        item->start = (tile_node *)set_aside(f, item->start, access->param, "start");
        item->limit = (tile_node *)set_aside(f, item->limit, access->param, "limit");
    }
    role_statement *to = append(f, ROLE_STORE);
    to->value = value;
    to->access = access;
    to->shape = s->shape;
    to->adds = s->adds;
}

static void flatten_block(flattener *f, const tile_statement *s) {
    for (; s; s = s->next) {
        f->line = s->line;
        switch (s->kind) {
        case TILE_ASSIGN:
            flatten_assign(f, s);
            break;
        case TILE_STORE:
            flatten_store(f, s);
            break;
        case TILE_FOR: {
            const tile_node *begin = flat(f, s->begin), *end = flat(f, s->end);
            role_statement *loop = append(f, ROLE_FOR);
            loop->index = s->index;
            loop->begin = begin;
            loop->end = end;
            loop->body = flatten_body(f->l, s->body);
            break;
        }
        case TILE_IF: {
            const tile_node *condition = flat(f, s->value);
            role_statement *branch = append(f, ROLE_IF);
            branch->value = condition;
            branch->body = flatten_body(f->l, s->body);
            branch->otherwise = flatten_body(f->l, s->otherwise);
            break;
        }
        case TILE_ACTION: /* level 2: explicit_lower.c */
            break;
        }
    }
}

role_statement *role_flatten(role_lowering *l, const tile_statement *s) { return flatten_body(l, s); }
