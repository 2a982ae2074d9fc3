/* From a generic tile program and values for its constants to an op: constants, parameters, extents, the grid, then the
 * statements (check.c), then what identifies the op: the text from which it can be bound again, and its hash.
 *
 * The header is read in the order in which its names can depend on each other: constants, the names and types of
 * parameters, bare names that are free extents, the other extents, the grid. What is wrong with the values a caller
 * gives is MT_E_ARGUMENT and ends the work; what is wrong in the text is reported with its place, and the work goes
 * on. */
#include "tile/check.h"

#include <inttypes.h>

static const ast_tile *find_tile(const tile_file *f, const char *name) {
    const ast_tile *t = f->tiles;
    while (t && strcmp(t->name, name)) t = t->next;
    return t;
}

static void open_check(check *c, arena *memory, const tile_file *f, const ast_tile *tile, tile_diagnostics *diagnostics,
                       mt_error *error) {
    *c = (check){.memory = memory, .file = f, .tile = tile, .in_header = true, .role = -1};
    c->report = (ast_reporter){.path = tile->source->path,
                               .text = tile->source->text,
                               .length = tile->source->length,
                               .diagnostics = diagnostics,
                               .first = error};
    c->f32 = tile_format_scalar("f32", 3);
    c->i32 = tile_format_scalar("i32", 3);
    c->i64 = tile_format_scalar("i64", 3);
    c->boolean = tile_format_scalar("bool", 4);
}

/* ---- constants ---- */

/* Whether e names a type: a type constant before it, or a format. */
static const tile_format *type_default(const check *c, const ast_expr *e) {
    if (e->kind != AST_NAME) return NULL;
    const check_symbol *s = check_find(c, e->name);
    return !s                           ? tile_file_find_format(c->file, e->name)
           : s->kind == SYMBOL_CONSTANT ? c->op->constants[s->index].type
                                        : NULL;
}

static const ast_constant *find_constant(const ast_tile *tile, const char *name) {
    const ast_constant *k = tile ? tile->constants : NULL;
    while (k && strcmp(k->name, name)) k = k->next;
    return k;
}

bool tile_has_constant(const tile_file *f, const char *program, const char *constant) {
    return find_constant(find_tile(f, program), constant) != NULL;
}

const char *tile_constant_follows(const tile_file *f, const char *program, const char *constant) {
    const ast_tile *tile = find_tile(f, program);
    const ast_constant *k = find_constant(tile, constant);
    if (!k || !k->value || k->value->kind != AST_NAME) return NULL;
    for (const ast_constant *other = tile->constants; other != k; other = other->next)
        if (!strcmp(other->name, k->value->name)) return other->name;
    return NULL;
}

/* Adds a constant, from `given` or by its default. Without either its value is INT64_MIN, and its uses are silent. */
static void add_constant(check *c, const ast_constant *from, const tile_constant *given) {
    tile_constant *out = &c->op->constants[c->op->constant_count];
    *out = (tile_constant){arena_string(c->memory, from->name, strlen(from->name)), INT64_MIN, NULL};
    bool known = false;
    if (given) {
        out->type = given->type;
        out->value = given->type ? 0 : given->value;
        known = true;
    } else if (from->value && (out->type = type_default(c, from->value))) {
        out->value = 0;
        known = true;
    } else if (from->value) {
        known = check_constant(c, from->value, "a constant's default", INT64_MIN + 1, INT64_MAX, &out->value);
    }
    check_declare(c, from->place, from->name, known ? SYMBOL_CONSTANT : SYMBOL_BROKEN, c->op->constant_count++);
}

typedef struct query { /* tile_constants, tile_tune */
    check c;
    const char *tuned; /* the constant whose choices are asked for, or NULL */
    tile_constant *constants;
    int64_t *choices;
    int room, count;
} query;

static void run_query(void *context) {
    query *q = context;
    check *c = &q->c;
    c->op = ARENA_NEW(c->memory, tile_op);
    q->count = 0;
    for (const ast_constant *k = c->tile->constants; k; k = k->next) {
        add_constant(c, k, NULL);
        if (q->constants) {
            q->constants[q->count] = c->op->constants[q->count];
            q->constants[q->count++].name = k->name;
        }
    }
    for (const ast_constant *k = c->tile->constants; k && q->tuned; k = k->next) {
        if (strcmp(k->name, q->tuned)) continue;
        for (const ast_expr *e = k->choices; e; e = e->next) {
            int64_t value;
            if (check_constant(c, e, "a choice", INT64_MIN + 1, INT64_MAX, &value) && q->count < q->room)
                q->choices[q->count++] = value;
        }
    }
}

static int ask(query *q, const tile_file *f, const char *name) {
    const ast_tile *tile = find_tile(f, name);
    arena *memory = tile ? arena_new() : NULL;
    if (!memory) return -1;
    open_check(&q->c, memory, f, tile, NULL, NULL);
    const bool good = arena_protect(memory, run_query, q);
    arena_free(memory);
    return good ? q->count : -1;
}

int tile_constants(const tile_file *f, const char *name, tile_constant *out) {
    return ask(&(query){.constants = out}, f, name);
}

int tile_tune(const tile_file *f, const char *name, const char *constant, int64_t *out, int room) {
    return ask(&(query){.tuned = constant, .choices = out, .room = room}, f, name);
}

int tile_signature(const tile_file *f, const char *name, tile_signature_param *out) {
    const ast_tile *tile = find_tile(f, name);
    if (!tile) return -1;
    int count = 0;
    for (const ast_param *p = tile->params; p; p = p->next) {
        tile_signature_param *s = &out[count++];
        *s = (tile_signature_param){.name = p->name, .kind = p->kind};
        const ast_constant *type = find_constant(tile, p->type);
        if (type)
            s->type_constant = type->name;
        else
            s->type = tile_file_find_format(f, p->type);
        for (const ast_expr *e = p->extents; e; e = e->next, s->rank++) {
            s->extent_name[s->rank] = e->kind == AST_NAME ? e->name : NULL;
            s->extent_is_constant[s->rank] = e->kind == AST_NAME && find_constant(tile, e->name);
        }
    }
    return count;
}

/* ---- the header ---- */

static void add_param(check *c, const ast_param *from) {
    static const char *const sorts[] = {
        [TILE_PARAM_ARG] = "an arg is f32 or i32", [TILE_PARAM_LIVE] = "a live value is i32"};
    tile_op *op = c->op;
    const int index = op->param_count++;
    tile_param *p = &op->params[index];
    p->name = arena_string(c->memory, from->name, strlen(from->name));
    p->kind = from->kind;
    const bool scalar = p->kind == TILE_PARAM_ARG || p->kind == TILE_PARAM_LIVE;
    p->ordinal = p->kind == TILE_PARAM_ARG    ? op->arg_count++
                 : p->kind == TILE_PARAM_LIVE ? op->live_count++
                                              : op->tensor_count++;
    p->type = check_type(c, from->type_place, from->type);
    bool good = p->type != NULL;
    if (good && scalar && p->type != c->i32 && (p->type != c->f32 || p->kind == TILE_PARAM_LIVE)) {
        REPORT(c, from->type_place, "%s; this one is %s", sorts[p->kind], p->type->name);
        good = false;
    }
    for (const ast_expr *e = from->extents; e && !scalar; e = e->next) p->rank++;
    check_declare(c, from->place, from->name, good ? SYMBOL_PARAM : SYMBOL_BROKEN, index);
}

/* Bare names that are nothing else are free extents. */
static void add_free_extents(check *c) {
    tile_op *op = c->op;
    int param = 0;
    for (const ast_param *p = c->tile->params; p; p = p->next, param++) {
        int dimension = 0;
        for (const ast_expr *e = p->extents; e; e = e->next, dimension++) {
            if (e->kind != AST_NAME || check_find(c, e->name) || tile_file_find_format(c->file, e->name)) continue;
            if (op->extent_count == TILE_EXTENTS) {
                REPORT(c, e->place, "a program has at most %d free extents", TILE_EXTENTS);
                check_declare(c, e->place, e->name, SYMBOL_BROKEN, 0);
                continue;
            }
            const int index = op->extent_count++;
            op->extent_names[index] = arena_string(c->memory, e->name, strlen(e->name));
            op->extent_source[index].param = param;
            op->extent_source[index].dimension = dimension;
            check_declare(c, e->place, e->name, SYMBOL_EXTENT, index);
        }
    }
}

/* Whether n is made of integers that are known before an instruction runs. */
static bool is_header_scalar(const tile_node *n) {
    if (!n) return true;
    const bool leaf = n->kind == TILE_CONST || n->kind == TILE_EXTENT || n->kind == TILE_ARG || n->kind == TILE_LIVE;
    const bool inner = n->kind == TILE_ELEMENTWISE || n->kind == TILE_SELECT || n->kind == TILE_CAST;
    return (leaf || inner) && n->shape.rank == 0 && n->type->scalar.kind != TILE_FLOAT && is_header_scalar(n->a) &&
           is_header_scalar(n->b) && is_header_scalar(n->c);
}

static tile_node *header_scalar(check *c, const ast_expr *e, const char *what) {
    tile_node *n = check_index(c, e, what);
    if (!n) return NULL;
    if (is_header_scalar(n)) return n;
    REPORT(c, e->place, "%s is computed with integers from constants, extents, args and live values only", what);
    return NULL;
}

static void add_extents(check *c, const ast_param *from, tile_param *p) {
    int d = 0;
    for (const ast_expr *e = from->extents; e; e = e->next, d++) {
        tile_node *n = p->extent[d] = header_scalar(c, e, "an extent");
        if (!n || n->kind != TILE_CONST) continue;
        const int64_t extent = n->value.i;
        const int block = p->type && !e->next ? p->type->block : 1;
        if (extent < 1 || extent > TILE_EXTENT_LIMIT)
            REPORT(c, e->place, "this extent is %" PRId64 "; expected 1 to %" PRId64, extent, TILE_EXTENT_LIMIT);
        else if (extent % block)
            REPORT(c, e->place,
                   "%s is stored in blocks of %d, so that its last extent must be a multiple, not %" PRId64,
                   p->type->name, block, extent);
        else
            continue;
        p->extent[d] = NULL;
    }
}

static void add_axes(check *c) {
    tile_op *op = c->op;
    for (const ast_axis *x = c->tile->axes; x; x = x->next) {
        op->axis_names[op->axis_total] = arena_string(c->memory, x->name, strlen(x->name));
        op->axis_count[op->axis_total++] = header_scalar(c, x->count, "the count of a grid axis");
    }
    int index = 0;
    for (const ast_axis *x = c->tile->axes; x; x = x->next) check_declare(c, x->place, x->name, SYMBOL_AXIS, index++);
}

static void check_choices(check *c) {
    for (const ast_constant *k = c->tile->constants; k; k = k->next)
        for (const ast_expr *e = k->choices; e; e = e->next) {
            int64_t unused;
            check_constant(c, e, "a choice of tune", INT64_MIN + 1, INT64_MAX, &unused);
        }
}

/* ---- binding ---- */

typedef struct binding {
    check c;
    const tile_constant *given;
    size_t given_count;
    mt_error *error;
    mt_status status;
    text key; /* what the hash is of; it belongs to tile_bind */
} binding;

static const tile_constant *find_given(const binding *b, const char *name) {
    for (size_t i = 0; i < b->given_count; i++)
        if (!strcmp(b->given[i].name, name)) return &b->given[i];
    return NULL;
}

/* Whether every given constant is one of the program's, once, and of the right sort, and none is missing. */
static mt_status check_given(const binding *b) {
    const ast_tile *tile = b->c.tile;
    for (size_t i = 0; i < b->given_count; i++) {
        const ast_constant *k = find_constant(tile, b->given[i].name);
        if (!k)
            return error_set(b->error, MT_E_ARGUMENT, tile->name, "there is no constant %s in tile program %s",
                             b->given[i].name, tile->name);
        if (find_given(b, k->name) != &b->given[i])
            return error_set(b->error, MT_E_ARGUMENT, tile->name, "constant %s is given twice", k->name);
    }
    for (const ast_constant *k = tile->constants; k; k = k->next)
        if (!k->value && !find_given(b, k->name))
            return error_set(b->error, MT_E_ARGUMENT, tile->name, "tile program %s needs a value for its constant %s",
                             tile->name, k->name);
    return MT_OK;
}

/* A constant is a type where its default is one, or where a parameter's type is its name. */
static bool is_type_constant(const check *c, const ast_constant *k) {
    if (k->value) return type_default(c, k->value) != NULL;
    for (const ast_param *p = c->tile->params; p; p = p->next)
        if (!strcmp(p->type, k->name)) return true;
    return false;
}

static mt_status bind_constants(binding *b) {
    check *c = &b->c;
    for (const ast_constant *k = c->tile->constants; k; k = k->next) {
        const tile_constant *given = find_given(b, k->name);
        const bool type = is_type_constant(c, k);
        const bool mistaken = given && (given->type ? k->value && !type : type);
        if (mistaken && c->report.count) return MT_E_SYNTAX; /* which may be why */
        if (mistaken)
            return error_set(b->error, MT_E_ARGUMENT, c->tile->name,
                             "constant %s of tile program %s is %s, but %s was given", k->name, c->tile->name,
                             type ? "a type" : "an integer", given->type ? given->type->name : "an integer");
        if (k->value)
            check_own_format(c, type_default(c, k->value)); /* the op's text has to name what the default names */
        add_constant(c, k, given);
        tile_constant *out = &c->op->constants[c->op->constant_count - 1];
        out->type = check_own_format(c, out->type);
    }
    return MT_OK;
}

/* The text from which the op can be bound again, and the hash of it with the constants. */
static void identify(binding *b) {
    check *c = &b->c;
    tile_op *op = c->op;
    text *key = &b->key;
    for (size_t i = 0; i < c->format_count; i++) text_printf(key, "%s\n\n", c->formats[i]->body->text);
    text_append(key, c->tile->source->text + c->tile->begin, c->tile->end - c->tile->begin);
    text_string(key, "\n");
    if (key->failed) return;
    op->text = arena_string(c->memory, key->data, key->length);
    text_append(key, "", 1); /* a NUL, which no text of a program has */
    text_append(key, op->name, strlen(op->name) + 1);
    for (int i = 0; i < op->constant_count; i++) {
        const tile_constant *k = &op->constants[i];
        if (k->type)
            text_printf(key, "%s = %s\n", k->name, k->type->name);
        else
            text_printf(key, "%s = %" PRId64 "\n", k->name, k->value);
    }
    if (!key->failed) op->hash = hash_bytes(key->data, key->length);
}

static void run_binding(void *context) {
    binding *b = context;
    check *c = &b->c;
    tile_op *op = c->op = ARENA_NEW(c->memory, tile_op);
    op->name = arena_string(c->memory, c->tile->name, strlen(c->tile->name));
    op->path = arena_string(c->memory, c->report.path, strlen(c->report.path));
    if ((b->status = bind_constants(b))) return;
    check_choices(c);
    for (const ast_param *p = c->tile->params; p; p = p->next) add_param(c, p);
    add_free_extents(c);
    int param = 0;
    for (const ast_param *p = c->tile->params; p; p = p->next) add_extents(c, p, &op->params[param++]);
    add_axes(c);
    c->in_header = false;
    op->body = check_block(c, c->tile->body);
    check_alignments(c);
    if (op->level2 && !c->report.count) explicit_finish(c);
    if (c->report.count)
        b->status = MT_E_SYNTAX;
    else
        identify(b);
    if (b->key.failed) b->status = error_set(b->error, MT_E_MEMORY, op->name, "out of memory");
}

mt_status tile_bind(arena *a, const tile_op **out, const tile_file *f, const char *name, const tile_constant *constants,
                    size_t count, tile_diagnostics *diagnostics, mt_error *error) {
    *out = NULL;
    const ast_tile *tile = find_tile(f, name);
    if (!tile) return error_set(error, MT_E_ARGUMENT, f->path, "there is no tile program %s in %s", name, f->path);
    binding b = {.given = constants, .given_count = count, .error = error};
    open_check(&b.c, a, f, tile, diagnostics, error);
    mt_status status = check_given(&b);
    if (status) return status;
    status = arena_protect(a, run_binding, &b) ? b.status : error_set(error, MT_E_MEMORY, name, "out of memory");
    text_free(&b.key);
    if (!status) *out = b.c.op;
    return status;
}
