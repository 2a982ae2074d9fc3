/* Units, functions and statements. */
#include "emit/emit_internal.h"
#include "base/embed.h"
#include "tile/explicit.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

/* The texts of cpu_abi.h, cpu_prelude.h and cpu_vector.h, embedded by the build. */
extern const struct embedded_file emit_files[];

/* Nothing may be fused, reassociated or assumed finite: an element must be the same bits in a vector and alone.
 * Integers wrap around; scratch memory holds one type after another. */
const char *const emit_c_flags[] = {"-std=gnu11",
                                    "-O3",
                                    "-march=native",
                                    "-fPIC",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-ffp-contract=off",
                                    "-fwrapv",
                                    "-fno-strict-aliasing",
#if defined __x86_64__
                                    "-mprefer-vector-width=512",
#endif
                                    NULL};

enum { COMMENT = 110 }; /* columns */

void emit_unsupported(emit *e, const tile_node *n, const char *what) {
    if (e->unit->status) return;
    char where[256];
    snprintf(where, sizeof where, "%s:%d:%d", e->op->path ? e->op->path : e->op->name, n->line, n->column);
    e->unit->status = error_set(e->unit->error, MT_E_UNSUPPORTED, where, "the C emitter has no code for %s", what);
}

/* ---- printing ---- */

static void print_indent(emit *e) { text_printf(e->out, "%*s", 4 * e->indent, ""); }

void emit_print(emit *e, const char *format, ...) {
    va_list arguments;
    print_indent(e);
    va_start(arguments, format);
    text_vprintf(e->out, format, arguments);
    va_end(arguments);
    text_string(e->out, "\n");
}

const char *emit_invent(emit *e, const char *base) { return arena_printf(e->memory, "%s_%d", base, ++e->names); }

static bool is_reserved(const char *name) {
    static const char *const words[] = {
        "auto",   "break",    "case",      "char",     "const",   "continue", "default",  "do",       "double",
        "else",   "enum",     "extern",    "float",    "for",     "goto",     "if",       "inline",   "int",
        "long",   "register", "restrict",  "return",   "short",   "signed",   "sizeof",   "static",   "struct",
        "switch", "typedef",  "union",     "unsigned", "void",    "volatile", "while",    "asm",      "typeof",
        "NAN",    "INFINITY", "NULL",      "linux",    "unix",    "i386",     "errno",    "signgam",  "size_t",
        "int8_t", "int16_t",  "int32_t",   "int64_t",  "uint8_t", "uint16_t", "uint32_t", "uint64_t", "DOMAIN",
        "SING",   "OVERFLOW", "UNDERFLOW", "PLOSS",    "TLOSS"};
    static const char *const prefixes[] = {"mt_",  "MT_",   "cpu_",  "INT",      "UINT", "M_",     "FP_",
                                           "HUGE", "MATH_", "SIZE_", "PTRDIFF_", "SIG_", "WCHAR_", "WINT_"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (!strcmp(words[i], name)) return true;
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (!strncmp(prefixes[i], name, strlen(prefixes[i]))) return true;
    /* Names that the emitter makes: i0, t_12. */
    size_t n = strlen(name), digits = 0;
    while (digits < n && isdigit((unsigned char)name[n - 1 - digits])) digits++;
    const char before = n > digits ? name[n - 1 - digits] : 0;
    return name[n - 1] == '_' || (digits && (before == '_' || (before == 'i' && n == digits + 1)));
}

const char *emit_safe_name(arena *a, const char *name) {
    return is_reserved(name) ? arena_printf(a, "%s_", name) : name;
}

/* The statement as a comment. */
void emit_comment(emit *e, const tile_statement *s, const char *note) {
    const tile_op *op = e->op;
    print_indent(e);
    const size_t start = e->out->length;
    text_printf(e->out, "// %d: ", s->line);
    switch (s->kind) {
    case TILE_ASSIGN:
        text_printf(e->out, "%s = ", op->variables[s->index].name);
        tile_print_node(e->out, op, s->value);
        break;
    case TILE_STORE: {
        const tile_node slice = {
            .kind = TILE_LOAD, .type = op->params[s->access->param].type, .access = s->access, .shape = s->shape};
        tile_print_node(e->out, op, &slice);
        text_string(e->out, s->adds ? " += " : " = ");
        tile_print_node(e->out, op, s->value);
        break;
    }
    case TILE_FOR:
        text_printf(e->out, "for %s in ", op->loop_names[s->index]);
        tile_print_node(e->out, op, s->begin);
        text_string(e->out, " .. ");
        tile_print_node(e->out, op, s->end);
        break;
    case TILE_IF:
        text_string(e->out, "if ");
        tile_print_node(e->out, op, s->value);
        break;
    case TILE_ACTION:
        explicit_print_action(e->out, op, s);
        break;
    }
    if (e->out->data && e->out->length > start + COMMENT) {
        e->out->length = start + COMMENT;
        text_string(e->out, " ...");
    }
    text_printf(e->out, "%s\n", note);
}

/* ---- scratch ---- */

const char *emit_scratch(emit *e, const char *c_type, int64_t bytes) {
    const char *p = arena_printf(e->memory, "(%s *)((char *)mt_scratch + %" PRId64 ")", c_type, e->scratch);
    e->scratch += (int64_t)align_up((uint64_t)bytes, 64) + 64; /* room for a vector that begins at the last element */
    if (e->scratch > e->scratch_most) e->scratch_most = e->scratch;
    return p;
}

static int64_t element_size(const tile_format *t) {
    if (tile_format_is_block(t)) return 4;
    return t->scalar.bits > 8 ? t->scalar.bits / 8 : t->scalar.is_unsigned ? 2 : 1;
}

emit_array emit_declare(emit *e, const char *name, const tile_format *type, const tile_shape *shape) {
    const char *c_type = emit_c_type(type);
    emit_print(e, "%s *%s = %s;", c_type, name, emit_scratch(e, c_type, tile_shape_count(shape) * element_size(type)));
    return (emit_array){name, type, *shape};
}

static bool covers(const emit_limit *have, const emit_limit *want, int rank) {
    for (int d = 0; d < rank; d++)
        if (have[d].id != 0 && (have[d].id != want[d].id || have[d].factor != want[d].factor)) return false;
    return true;
}

const emit_array *emit_temporary_of(const emit *e, const tile_node *n, const emit_limit *limits) {
    for (size_t i = e->temporary_count; i-- > 0;)
        if (e->temporaries[i].node == n && covers(e->temporaries[i].limits, limits, n->shape.rank))
            return &e->temporaries[i].array;
    return NULL;
}

void emit_remember(emit *e, const tile_node *n, emit_array array, const emit_limit *limits) {
    emit_temporary *t = ARENA_PUSH(e->memory, e->temporaries, e->temporary_count, e->temporary_capacity);
    *t = (emit_temporary){.node = n, .array = array};
    memcpy(t->limits, limits, sizeof t->limits);
}

/* ---- tiles into arrays ---- */

/* array = n; or, for an operand of a concatenation, the part of array that begins at `first` along `axis`. */
typedef struct assignment {
    const emit_array *array;
    const tile_node *n;
    int axis;
    int64_t first;
} assignment;

static const char *assign_body(emit_nest *x, const emit_index *at, const void *context) {
    const assignment *a = context;
    emit_index below[TILE_RANK], to[TILE_RANK];
    for (int d = 0; d < a->n->shape.rank; d++) {
        below[d] = at[d + x->rank - a->n->shape.rank];
        if (a->n->shape.extent[d] == 1) below[d] = (emit_index){.loop = -1, .text_level = -1};
    }
    emit_value v = emit_element(x, a->n, below);
    if (v.level < x->inner) v = emit_hoist(x, v, emit_c_type(a->n->type), NULL);
    memcpy(to, at, sizeof to);
    to[a->axis].offset += a->first;
    return arena_printf(x->e->memory, "%s = %s;", emit_array_element(x, a->array, to).text,
                        emit_bare(x->e->memory, v.text));
}

void emit_assign(emit *e, const emit_array *array, const tile_node *n, const emit_limit *limits) {
    emit_loop loops[TILE_RANK];
    for (int d = 0; d < array->shape.rank; d++) loops[d] = emit_loop_of(e, array->shape.extent[d], limits[d]);
    const assignment a = {array, n, 0, 0};
    emit_each(e, n, array->shape.rank, loops, true, assign_body, &a);
}

/* Operand by operand, however many there are. */
static void assign_concat(emit *e, const emit_array *array, const tile_node *n, const emit_limit *limits) {
    int64_t first = 0;
    for (int i = 0; i < n->count; i++) {
        const tile_node *part = n->list[i];
        emit_loop loops[TILE_RANK];
        for (int d = 0; d < part->shape.rank; d++)
            loops[d] = emit_loop_of(e, part->shape.extent[d], d == n->index ? (emit_limit){0, 1} : limits[d]);
        const assignment a = {array, part, n->index, first};
        emit_each(e, part, part->shape.rank, loops, true, assign_body, &a);
        first += part->shape.extent[n->index];
    }
}

static void assign_dot(emit *e, const emit_array *array, const tile_node *dot, const emit_limit *limits) {
    const emit_loop rows = emit_loop_of(e, array->shape.extent[0], limits[0]);
    emit_print(e, "__builtin_memset(%s, 0, (size_t)(%s * %" PRId64 ") * sizeof *%s);", array->name, rows.high,
               array->shape.extent[1], array->name);
    emit_dot(e, array, dot, limits);
}

emit_array emit_materialise(emit *e, const tile_node *n, const emit_limit *limits) {
    while (n->kind == TILE_VAR && e->variables[n->index].mode == EMIT_INLINE) n = e->variables[n->index].value;
    if (n->kind == TILE_VAR && e->variables[n->index].mode == EMIT_ARRAY) return e->variables[n->index].array;
    const emit_array *known = emit_temporary_of(e, n, limits);
    if (known) return *known;
    emit_array array;
    if (n->kind == TILE_REDUCE)
        array = emit_reduce(e, n, limits);
    else {
        array = emit_declare(e, emit_invent(e, n->kind == TILE_DOT ? "dot" : "tile"), n->type, &n->shape);
        if (n->kind == TILE_DOT)
            assign_dot(e, &array, n, limits);
        else if (n->kind == TILE_CONCAT)
            assign_concat(e, &array, n, limits);
        else
            emit_assign(e, &array, n, limits);
    }
    emit_remember(e, n, array, limits);
    return array;
}

/* ---- statements ---- */

static bool is_same_shape(const tile_shape *a, const tile_shape *b) {
    return a->rank == b->rank && !memcmp(a->extent, b->extent, (size_t)a->rank * sizeof a->extent[0]);
}

void emit_assign_variable(emit *e, int index, const tile_node *value) {
    const emit_variable *v = &e->variables[index];
    const bool whole = is_same_shape(&value->shape, &v->array.shape);
    if (value->kind == TILE_DOT && whole && !emit_reads(e, value, index)) {
        assign_dot(e, &v->array, value, v->limit);
        return;
    }
    if (value->kind == TILE_ELEMENTWISE && value->op == TILE_ADD && whole &&
        (value->a->kind == TILE_DOT || value->b->kind == TILE_DOT)) {
        const tile_node *dot = value->b->kind == TILE_DOT ? value->b : value->a,
                        *other = dot == value->b ? value->a : value->b;
        if (is_same_shape(&dot->shape, &value->shape) && is_same_shape(&other->shape, &value->shape) &&
            !emit_reads(e, dot, index)) {
            if (other->kind != TILE_VAR || other->index != index) emit_assign_variable(e, index, other);
            emit_dot(e, &v->array, dot, v->limit);
            return;
        }
    }
    if (emit_moves(e, value, index)) emit_materialise(e, value, v->limit);
    emit_assign(e, &v->array, value, v->limit);
}

static void print_assign(emit *e, const tile_statement *s) {
    emit_variable *v = &e->variables[s->index];
    const tile_variable *t = &e->op->variables[s->index];
    const char *name = emit_safe_name(e->memory, t->name);
    emit_comment(e, s, v->mode == EMIT_INLINE ? "  (computed where it is used)" : "");
    if (v->mode == EMIT_INLINE) return;
    if (v->mode == EMIT_SCALAR) {
        const char *value = emit_bare(e->memory, emit_scalar(e, s->value));
        v->array.name = name;
        if (s->declares)
            emit_print(e, "%s%s %s = %s;", t->assignments == 1 ? "const " : "", emit_c_type(t->type), name, value);
        else
            emit_print(e, "%s = %s;", name, value);
        if (s->declares && !t->uses) emit_print(e, "(void)%s;", name);
        return;
    }
    if (s->declares) v->array = emit_declare(e, name, t->type, &t->shape);
    const int64_t mark = e->scratch;
    emit_print(e, "{");
    e->indent++;
    emit_assign_variable(e, s->index, s->value);
    e->indent--;
    emit_print(e, "}");
    e->scratch = mark;
}

static void print_for(emit *e, const tile_statement *s) {
    const char *name = e->loop_names[s->index], *begin, *end;
    emit_comment(e, s, "");
    const int64_t mark = e->scratch;
    emit_print(e, "{");
    e->indent++;
    if (!emit_fused(e, s)) {
        begin = emit_scalar(e, s->begin);
        end = emit_scalar(e, s->end);
        const char *stop = emit_invent(e, "end");
        emit_print(e, "const int64_t %s = %s;", stop, emit_bare(e->memory, end));
        emit_print(e, "for (int64_t %s = %s; %s < %s; %s++) {", name, begin, name, stop, name);
        e->indent++;
        emit_block(e, s->body);
        e->indent--;
        emit_print(e, "}");
    }
    e->indent--;
    emit_print(e, "}");
    e->scratch = mark;
}

static void print_if(emit *e, const tile_statement *s) {
    emit_comment(e, s, "");
    emit_print(e, "if (%s) {", emit_bare(e->memory, emit_scalar(e, s->value)));
    e->indent++;
    emit_block(e, s->body);
    e->indent--;
    if (s->otherwise) {
        emit_print(e, "} else {");
        e->indent++;
        emit_block(e, s->otherwise);
        e->indent--;
    }
    emit_print(e, "}");
}

void emit_block(emit *e, const tile_statement *s) {
    const int64_t mark = e->scratch;
    for (; s; s = s->next) {
        const size_t temporaries = e->temporary_count;
        const int64_t before = e->scratch;
        switch (s->kind) {
        case TILE_ASSIGN:
            print_assign(e, s);
            break;
        case TILE_STORE:
            emit_comment(e, s, "");
            emit_print(e, "{");
            e->indent++;
            emit_store(e, s);
            e->indent--;
            emit_print(e, "}");
            e->scratch = before;
            break;
        case TILE_FOR:
            print_for(e, s);
            break;
        case TILE_IF:
            print_if(e, s);
            break;
        case TILE_ACTION: /* emit_explicit.c */
            break;
        }
        /* A scalar's temporaries have served; an array that was declared stays until the end of the block. */
        if (s->kind == TILE_ASSIGN && e->variables[s->index].mode == EMIT_SCALAR) e->scratch = before;
        e->temporary_count = temporaries;
    }
    e->scratch = mark;
}

/* ---- functions ---- */

static bool has_live(const tile_node *n) {
    return n && (n->kind == TILE_LIVE || has_live(n->a) || has_live(n->b) || has_live(n->c));
}

/* Declares what the body uses of the instruction. */
static void print_head(emit *e, text *out) {
    const tile_op *op = e->op;
    for (int i = 0; i < op->param_count; i++) {
        const tile_param *p = &op->params[i];
        const char *name = emit_safe_name(e->memory, p->name);
        if (!e->used_param[i]) continue;
        if (p->kind == TILE_PARAM_LIVE)
            text_printf(out, "    const int64_t %s = mt_lives[%d];\n", name, p->ordinal);
        else if (p->kind == TILE_PARAM_ARG)
            text_printf(out,
                        p->type->scalar.kind == TILE_FLOAT ? "    const float %s = mt_args[%d].f;\n"
                                                           : "    const int64_t %s = mt_args[%d].i;\n",
                        name, p->ordinal);
        else
            text_printf(out, "    const cpu_tensor *const %s = &mt_tensors[%d];\n", name, p->ordinal);
    }
    for (int i = 0; i < op->extent_count; i++)
        if (e->used_extent[i])
            text_printf(out, "    const int64_t %s = mt_tensors[%d].extent[%d];\n",
                        emit_safe_name(e->memory, op->extent_names[i]), op->params[op->extent_source[i].param].ordinal,
                        op->extent_source[i].dimension);
    for (int i = 0; i < op->axis_total; i++)
        if (e->used_axis[i])
            text_printf(out, "    const int64_t %s = mt_index[%d];\n", emit_safe_name(e->memory, op->axis_names[i]), i);
}

/* What a function is made from; the texts belong to the caller. */
typedef struct function {
    emit_unit *unit;
    const tile_op *op;
    const char *name;
    text *out, *header, *body;
    int64_t scratch;
} function;

static void print_function(void *context) {
    function *f = context;
    const tile_op *op = f->op;
    arena *m = f->unit->memory;
    emit e = {.unit = f->unit, .memory = m, .op = op, .out = f->body, .header = f->header, .indent = 1};
    e.variables = ARENA_ARRAY(m, (size_t)op->variable_count, emit_variable);
    e.loops = ARENA_ARRAY(m, (size_t)op->loop_count, const tile_statement *);
    e.loop_names = ARENA_ARRAY(m, (size_t)op->loop_count, const char *);
    e.stored = ARENA_ARRAY(m, (size_t)op->param_count, bool);
    e.used_extent = ARENA_ARRAY(m, (size_t)op->extent_count, bool);
    for (int i = 0; i < op->loop_count; i++) e.loop_names[i] = emit_safe_name(m, op->loop_names[i]);
    ARENA_PUSH(m, e.limits, e.limit_count, e.limit_capacity); /* number 0 is no limit */
    if (!op->level2) emit_plan(&e);
    for (int i = 0; i < op->axis_total; i++) {
        if (!has_live(op->axis_count[i])) continue;
        e.used_axis[i] = true;
        e.out = f->header;
        emit_print(&e, "if (%s >= %s) return; /* the grid is laid out for the live values' maxima */",
                   emit_safe_name(m, op->axis_names[i]), emit_scalar(&e, op->axis_count[i]));
        e.out = f->body;
    }
    if (op->level2)
        emit_level2(&e);
    else
        emit_block(&e, op->body);
    f->scratch = e.scratch_most;
    text *out = f->out;
    text_printf(out, "\n/* %s[", op->name);
    for (int i = 0; i < op->constant_count; i++) {
        const tile_constant *c = &op->constants[i];
        if (c->type)
            text_printf(out, "%s%s = %s", i ? ", " : "", c->name, c->type->name);
        else
            text_printf(out, "%s%s = %" PRId64, i ? ", " : "", c->name, c->value);
    }
    text_printf(out,
                "] */\nstatic void %s(const cpu_tensor *mt_tensors, const cpu_arg *mt_args, const int32_t *mt_lives,\n",
                f->name);
    text_printf(out, "%*sconst int32_t *mt_index, void *mt_scratch) {\n", (int)strlen(f->name) + 13, "");
    text_printf(out, "    (void)mt_tensors, (void)mt_args, (void)mt_lives, (void)mt_index, (void)mt_scratch;\n");
    print_head(&e, out);
    if (f->header->length) text_append(out, f->header->data, f->header->length);
    if (f->body->length) text_append(out, f->body->data, f->body->length);
    text_string(out, "}\n");
}

/* Adds an op's function to `out`, and what it needs of codecs to the unit. */
static mt_status add_function(emit_unit *unit, const tile_op *op, const char *name, text *out, int64_t *scratch) {
    text header = {0}, body = {0};
    function f = {unit, op, name, out, &header, &body, 0};
    const bool finished = arena_protect(unit->memory, print_function, &f);
    if (!finished || header.failed || body.failed || out->failed || unit->codecs->failed)
        unit->status = error_set(unit->error, MT_E_MEMORY, op->name, "Out of memory while writing C.");
    *scratch = f.scratch;
    text_free(&header);
    text_free(&body);
    return unit->status;
}

static const char *file_text(const char *name) {
    for (const struct embedded_file *f = emit_files; f->name; f++)
        if (!strcmp(f->name, name)) return f->text;
    return "";
}

mt_status emit_c(text *out, const tile_op *const *ops, size_t count, mt_error *error) {
    text codecs = {0}, functions = {0}, table = {0};
    emit_unit unit = {.memory = arena_new(), .codecs = &codecs, .error = error};
    if (!unit.memory) return error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    for (size_t i = 0; i < count && !unit.status; i++) {
        int64_t scratch;
        char name[320];
        snprintf(name, sizeof name, "op%zu_%.256s", i, ops[i]->name);
        if (add_function(&unit, ops[i], name, &functions, &scratch)) break;
        text_printf(&table, "    {%s, %" PRId64 ", \"%s\"},\n", name, scratch, ops[i]->name);
    }
    if (!unit.status) {
        text_string(out, "/* Written by Monotile. */\n");
        text_string(out, file_text("cpu_abi.h"));
        text_string(out, file_text("cpu_prelude.h"));
        text_string(out, file_text("cpu_vector.h"));
        bool level2 = false;
        for (size_t i = 0; i < count; i++) level2 |= ops[i]->level2 != NULL;
        if (level2) text_string(out, file_text("cpu_level2.h"));
        if (codecs.length) text_append(out, codecs.data, codecs.length);
        if (functions.length) text_append(out, functions.data, functions.length);
        text_printf(out, "\nconst cpu_entry mt_cpu_ops[] = {\n%s    {0, 0, 0},\n};\n", table.length ? table.data : "");
        if (out->failed || table.failed) unit.status = error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    }
    text_free(&codecs);
    text_free(&functions);
    text_free(&table);
    arena_free(unit.memory);
    return unit.status;
}

mt_status emit_c_op(text *out, const tile_op *op, mt_error *error) {
    text codecs = {0}, function_text = {0};
    emit_unit unit = {.memory = arena_new(), .codecs = &codecs, .error = error};
    if (!unit.memory) return error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    int64_t scratch;
    if (!add_function(&unit, op, op->name, &function_text, &scratch)) {
        text_printf(out,
                    "/* %" PRId64
                    " bytes of scratch memory. The helpers mt_... are in src/emit/cpu_prelude.h and cpu_vector.h. */\n",
                    scratch);
        if (codecs.length) text_append(out, codecs.data, codecs.length);
        if (function_text.length) text_append(out, function_text.data, function_text.length);
        if (out->failed) unit.status = error_set(error, MT_E_MEMORY, NULL, "Out of memory.");
    }
    text_free(&codecs);
    text_free(&function_text);
    arena_free(unit.memory);
    return unit.status;
}
