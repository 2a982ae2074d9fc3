/* Names and statements.
 *
 * A name is known from its declaration to the end of its block and hides no other, so that one table serves all scopes:
 * the symbols of a block are taken out of it when the block ends. A statement with an error is left out of the block;
 * the op is not given to anyone then, but all statements are looked at. */
#include "tile/check.h"

/* ---- names ---- */

const check_symbol *check_find(const check *c, const char *name) {
    const int64_t i = map_get(&c->names, name, strlen(name));
    return i < 0 ? NULL : &c->symbols[i];
}

const char *check_symbol_text(const check *c, const check_symbol *s) {
    static const char *const params[] = {[TILE_IN] = "a tensor",
                                         [TILE_OUT] = "a tensor",
                                         [TILE_INOUT] = "a tensor",
                                         [TILE_PARAM_ARG] = "an argument",
                                         [TILE_PARAM_LIVE] = "a live value"};
    switch (s->kind) {
    case SYMBOL_CONSTANT:
        return "a constant";
    case SYMBOL_PARAM:
        return params[c->op->params[s->index].kind];
    case SYMBOL_EXTENT:
        return "an extent";
    case SYMBOL_AXIS:
        return "an axis of the grid";
    case SYMBOL_LOOP:
        return "the variable of a loop";
    case SYMBOL_SHARED:
        return "a shared tensor";
    case SYMBOL_BARRIER:
        return "a barrier";
    default:
        return "a variable";
    }
}

bool check_declare(check *c, ast_place at, const char *name, check_symbol_kind kind, int index) {
    const int64_t old = map_get(&c->names, name, strlen(name));
    if (old >= 0 && c->symbols[old].kind != SYMBOL_BROKEN) {
        REPORT(c, at, "%s is %s already; choose another name", name, check_symbol_text(c, &c->symbols[old]));
        return false;
    }
    if (old < 0 && kind != SYMBOL_BROKEN && tile_file_find_format(c->file, name)) {
        REPORT(c, at, "%s is a type; choose another name", name);
        return false;
    }
    if (old >= 0) {
        c->symbols[old] = (check_symbol){name, kind, index};
        return true;
    }
    map_put(c->memory, &c->names, name, strlen(name), (int64_t)c->symbol_count);
    *ARENA_PUSH(c->memory, c->symbols, c->symbol_count, c->symbol_capacity) = (check_symbol){name, kind, index};
    return true;
}

/* Ends the scope that began when there were `count` symbols. */
static void close_scope(check *c, size_t count) {
    while (c->symbol_count > count) {
        const char *name = c->symbols[--c->symbol_count].name;
        map_put(c->memory, &c->names, name, strlen(name), -1);
    }
}

const tile_format *check_own_format(check *c, const tile_format *f) {
    if (!f || !tile_format_is_block(f)) return f;
    for (size_t i = 0; i < c->format_count; i++) {
        const tile_format *own = c->formats[i];
        if (strcmp(own->name, f->name)) continue;
        if (own == f || !strcmp(own->body->text, f->body->text)) return own;
        REPORT(c, c->tile->place, "two different formats are named %s; one of them needs another name", f->name);
        return own;
    }
    return *ARENA_PUSH(c->memory, c->formats, c->format_count, c->format_capacity) = ast_copy_format(c->memory, f);
}

const tile_format *check_type(check *c, ast_place at, const char *name) {
    const check_symbol *s = check_find(c, name);
    if (s && s->kind == SYMBOL_BROKEN) return NULL;
    if (s && s->kind == SYMBOL_CONSTANT && c->op->constants[s->index].type) return c->op->constants[s->index].type;
    const tile_format *f = s ? NULL : check_own_format(c, tile_file_find_format(c->file, name));
    if (s)
        REPORT(c, at, "%s is %s%s, not a type", name, check_symbol_text(c, s),
               s->kind == SYMBOL_CONSTANT ? " and an integer" : "");
    else if (!f)
        REPORT(c, at, "there is no type %s", name);
    return f;
}

/* ---- statements ---- */

static tile_statement *new_statement(check *c, const ast_statement *from, tile_statement_kind kind) {
    tile_statement *s = ARENA_NEW(c->memory, tile_statement);
    s->kind = kind;
    s->line = from->place.line;
    s->column = from->place.column;
    return s;
}

/* The value as one of that type, a literal converted; NULL after an error. */
static tile_node *expect_type(check *c, const ast_expr *e, tile_node *value, const tile_format *type,
                              const char *whose) {
    if (!value || !check_adapt(c, value, type)) return NULL;
    if (value->type == type) return value;
    if (tile_format_is_block(type))
        REPORT(c, e->place, "%s is of the block format %s, the value is %s", whose, type->name, value->type->name);
    else
        REPORT(c, e->place, "%s is %s, the value is %s; cast it, as in %s(x)", whose, type->name, value->type->name,
               type->name);
    return NULL;
}

/* The first assignment of a variable, whose value is checked; NULL marks the name as broken. */
static tile_statement *declare(check *c, const ast_statement *from, tile_node *value) {
    tile_op *op = c->op;
    if (value && op->variable_count == TILE_VARIABLES) {
        REPORT(c, from->place, "a program has at most %d variables", TILE_VARIABLES);
        value = NULL;
    }
    if (!check_declare(c, from->place, from->name, value ? SYMBOL_VARIABLE : SYMBOL_BROKEN, op->variable_count) ||
        !value)
        return NULL;
    size_t count = (size_t)op->variable_count, definitions = count;
    *ARENA_PUSH(c->memory, c->definitions, definitions, c->definition_capacity) = value;
    *ARENA_PUSH(c->memory, op->variables, count, c->variable_capacity) =
        (tile_variable){arena_string(c->memory, from->name, strlen(from->name)), value->type, value->shape, 1, 0};
    tile_statement *s = new_statement(c, from, TILE_ASSIGN);
    s->index = op->variable_count++;
    s->declares = true;
    s->value = value;
    return s;
}

/* An assignment to a variable that is there; `name = value` and `name += value`. */
static tile_statement *assign(check *c, const ast_statement *from, const check_symbol *symbol, tile_node *value) {
    const int index = symbol->index; /* the symbol may move */
    tile_variable *v = &c->op->variables[index];
    if (from->kind == AST_UPDATE) {
        tile_node *old = check_node(c, from->place, TILE_VAR, v->type, &v->shape);
        old->index = index;
        v->uses++;
        value = check_operator(c, from->place, from->op, old, value);
    }
    value = expect_type(c, from->value, value, v->type, v->name);
    if (value) value = check_stretch(c, from->value->place, value, &v->shape, v->name);
    if (!value) return NULL;
    v->assignments++;
    tile_statement *s = new_statement(c, from, TILE_ASSIGN);
    s->index = index;
    s->value = value;
    return s;
}

static tile_statement *check_assign(check *c, const ast_statement *from) {
    const check_symbol *named = check_find(c, from->name);
    if (named && named->kind == SYMBOL_SHARED) return explicit_put(c, from, named->index, NULL);
    tile_node *value = check_open(c, from->value);
    const check_symbol *s = check_find(c, from->name);
    if (!s && from->kind == AST_ASSIGN) return declare(c, from, check_settle(c, value));
    if (!s) {
        REPORT(c, from->place, "%s is not known; declare it first, as in %s = 0.0", from->name, from->name);
        check_declare(c, from->place, from->name, SYMBOL_BROKEN, 0);
        return NULL;
    }
    if (s->kind == SYMBOL_BROKEN) return NULL;
    if (s->kind == SYMBOL_VARIABLE) return assign(c, from, s, value);
    const bool tensor = s->kind == SYMBOL_PARAM && c->op->params[s->index].rank;
    REPORT(c, from->place, "%s is %s and cannot be assigned%s", from->name, check_symbol_text(c, s),
           tensor ? "; store to a slice of it, as in x[:] = y" : "");
    return NULL;
}

/* name: type[shape] = value */
static tile_statement *check_declaration(check *c, const ast_statement *from) {
    tile_shape shape;
    const tile_format *type = check_type(c, from->place, from->type);
    const bool shaped = check_shape(c, from->place, from->shape, &shape);
    tile_node *value = check_open(c, from->value);
    if (!type || !shaped) return declare(c, from, NULL);
    value = expect_type(c, from->value, value, type, from->name);
    if (value) value = check_stretch(c, from->value->place, value, &shape, from->name);
    tile_statement *s = declare(c, from, value);
    if (s && from->level2) explicit_layout_given(c, from, s->index);
    return s;
}

static tile_statement *check_store(check *c, const ast_statement *from) {
    const check_symbol *s = check_find(c, from->name);
    if (s && s->kind == SYMBOL_SHARED) return explicit_put(c, from, s->index, from->items);
    const tile_param *p =
        s && s->kind == SYMBOL_PARAM && c->op->params[s->index].rank ? &c->op->params[s->index] : NULL;
    const int index = s ? s->index : 0;
    const bool adds = from->op == TILE_ADD;
    tile_statement *out = new_statement(c, from, TILE_STORE);
    bool good = p != NULL && p->type; /* the tensor can be stored to */
    if (!s)
        REPORT(c, from->place, "%s is not known; a store needs a tensor", from->name);
    else if (!p && s->kind != SYMBOL_BROKEN)
        REPORT(c, from->place, "%s is %s; only slices of tensors can be stored to", from->name,
               check_symbol_text(c, s));
    if (good) {
        const char *problem = p->kind == TILE_IN              ? "an input and cannot be written"
                              : tile_format_is_block(p->type) ? "stored in blocks, which cannot be written"
                              : adds && p->kind == TILE_OUT
                                  ? "an output and cannot be read; += needs an inout parameter"
                              : adds && !check_is_arithmetic(c, p->type)
                                  ? "of a type without arithmetic; += works on f32, f64, i32, u32 and i64"
                                  : NULL;
        if (problem) REPORT(c, from->place, "%s is %s", p->name, problem);
        good = !problem;
    }
    if (p) out->access = check_access(c, from->place, index, from->items, &out->shape);
    tile_node *value = check_open(c, from->value);
    if (good) value = expect_type(c, from->value, value, p->type, p->name);
    if (!good || !out->access || !value) return NULL;
    tile_shape wide;
    if (!check_broadcast(&value->shape, &out->shape, &wide) || !check_same_shape(&wide, &out->shape)) {
        REPORT(c, from->value->place, "a value of shape %s does not fit the slice of shape %s",
               check_shape_text(c, &value->shape), check_shape_text(c, &out->shape));
        return NULL;
    }
    out->adds = adds;
    out->value = value;
    return out;
}

static tile_statement *check_for(check *c, const ast_statement *from) {
    tile_op *op = c->op;
    tile_statement *s = new_statement(c, from, TILE_FOR);
    s->begin = from->begin ? check_index(c, from->begin, "a loop's first value")
                           : check_settle(c, check_literal_integer(c, from->place, 0));
    s->end = check_index(c, from->end, "a loop's end");
    s->stream = from->stream;
    s->index = op->loop_count;
    const size_t scope = c->symbol_count;
    bool good = check_declare(c, from->place, from->name, SYMBOL_LOOP, op->loop_count);
    if (op->loop_count == TILE_LOOPS) {
        REPORT(c, from->place, "a program has at most %d loops", TILE_LOOPS);
        good = false;
    } else {
        size_t count = (size_t)op->loop_count++;
        *ARENA_PUSH(c->memory, op->loop_names, count, c->loop_capacity) =
            arena_string(c->memory, from->name, strlen(from->name));
    }
    s->body = check_block(c, from->body);
    close_scope(c, scope);
    return good && s->begin && s->end ? s : NULL;
}

static tile_statement *check_if(check *c, const ast_statement *from) {
    tile_statement *s = new_statement(c, from, TILE_IF);
    s->value = check_value(c, from->value);
    if (s->value && (s->value->type != c->boolean || s->value->shape.rank)) {
        REPORT(c, from->value->place, "the condition must be a scalar bool, not %s%s", s->value->type->name,
               s->value->shape.rank ? check_shape_text(c, &s->value->shape) : "");
        s->value = NULL;
    }
    s->body = check_block(c, from->body);
    s->otherwise = check_block(c, from->otherwise);
    return s->value ? s : NULL;
}

static tile_statement *check_statement(check *c, const ast_statement *s) {
    switch (s->kind) {
    case AST_ASSIGN:
    case AST_UPDATE:
        return check_assign(c, s);
    case AST_DECLARE:
        return check_declaration(c, s);
    case AST_STORE:
        return check_store(c, s);
    case AST_FOR:
        return check_for(c, s);
    case AST_IF:
        return check_if(c, s);
    case AST_SHARED:
    case AST_UNORDERED:
    case AST_BARRIER:
    case AST_ROLE:
    case AST_DO:
        return explicit_check(c, s);
    }
    return NULL;
}

tile_statement *check_block(check *c, const ast_statement *first) {
    const size_t scope = c->symbol_count;
    tile_statement *block = NULL, **out = &block, *const outer = c->pending;
    c->depth++;
    for (const ast_statement *s = first; s; s = s->next) {
        c->pending = NULL;
        tile_statement *checked = check_statement(c, s);
        for (*out = c->pending; *out; out = &(*out)->next) {}
        if ((*out = checked)) out = &checked->next;
    }
    c->depth--;
    c->pending = outer;
    close_scope(c, scope);
    return block;
}
