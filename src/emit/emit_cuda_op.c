/* An op's functions: what its consumers, its loader and its storer do, statement by statement as the lowering has them.
 */
#include "emit/emit_cuda_internal.h"
#include "tile/explicit.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- text ---- */

static void print_indent(cuda_emit *e) {
    for (int i = 0; i < e->indent; i++) text_string(e->out, "    ");
}

void cuda_print(cuda_emit *e, const char *format, ...) {
    va_list arguments;
    if (*format != '#') print_indent(e);
    va_start(arguments, format);
    text_vprintf(e->out, format, arguments);
    va_end(arguments);
    text_string(e->out, "\n");
}

/* Words that a variable cannot be called: of C++ and of what is pasted in front. */
static bool is_taken(const char *name) {
    static const char *const words[] = {
        "alignas",  "alignof", "and",     "asm",       "auto",     "bool",     "break",     "case",      "catch",
        "char",     "class",   "const",   "constexpr", "continue", "decltype", "default",   "delete",    "do",
        "double",   "else",    "enum",    "explicit",  "export",   "extern",   "false",     "float",     "for",
        "friend",   "goto",    "if",      "inline",    "int",      "long",     "mutable",   "namespace", "new",
        "noexcept", "not",     "nullptr", "operator",  "or",       "private",  "protected", "public",    "register",
        "restrict", "return",  "short",   "signed",    "sizeof",   "static",   "struct",    "switch",    "template",
        "this",     "throw",   "true",    "try",       "typedef",  "typeid",   "typename",  "union",     "unsigned",
        "using",    "virtual", "void",    "volatile",  "wchar_t",  "while",    "xor",       "i",         "j",
        "w",        "a",       "sum",     "all",       "even",     "odd",      "out",       "abs",       "ceil",
        "exp",      "exp2",    "fabs",    "floor",     "fma",      "log",      "log2",      "max",       "min",
        "rint",     "sqrt",    "tanh",    "blockDim",  "blockIdx", "gridDim",  "threadIdx", "warpSize",  "NAN",
        "INFINITY", "X",       "size_t"};
    static const char *const prefixes[] = {"mt",  "MT_",  "cuda_", "CUDA_", "program_", "PROGRAM_",
                                           "INT", "UINT", "int",   "uint",  "__"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (!strcmp(words[i], name)) return true;
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        if (!strncmp(prefixes[i], name, strlen(prefixes[i]))) return true;
    return false;
}

static const char *new_name(cuda_emit *e, const char *base, int64_t declared) {
    const char *first = is_taken(base) ? arena_printf(e->memory, "%s_", base) : base, *name = first;
    if (is_taken(first)) name = first = arena_printf(e->memory, "v_%s", base); /* a prefix */
    for (int i = 2; map_get(&e->used, name, strlen(name)) >= 0; i++) name = arena_printf(e->memory, "%s_%d", first, i);
    map_put(e->memory, &e->used, name, strlen(name), declared);
    return name;
}
void cuda_open(cuda_emit *e, const char *line) {
    cuda_print(e, "%s", line);
    e->indent++;
}
void cuda_close(cuda_emit *e) {
    e->indent--;
    cuda_print(e, "}");
}

const char *cuda_name(cuda_emit *e, const char *base) { return new_name(e, base, 1); }
bool cuda_first_use(cuda_emit *e, const char *name) {
    if (map_get(&e->used, name, strlen(name))) return false;
    map_put(e->memory, &e->used, name, strlen(name), 1);
    return true;
}

/* What the program has names for keeps them; what is invented comes behind. */
static void reserve_names(cuda_emit *e) {
    const tile_op *op = &e->r->op;
    for (int i = 0; i < op->param_count; i++) e->param[i] = new_name(e, op->params[i].name, 0);
    for (int i = 0; i < op->axis_total; i++) e->axis[i] = new_name(e, op->axis_names[i], 0);
    for (int i = 0; i < op->extent_count; i++) e->extent[i] = new_name(e, op->extent_names[i], 0);
    for (int i = 0; i < op->variable_count; i++)
        if (e->r->variables[i].place != ROLE_FUSED) e->names[i] = new_name(e, op->variables[i].name, 0);
}

static void print_line(cuda_emit *e, int line) {
    if (!e->unit->lines || line <= 0 || line == e->line) return;
    e->line = line;
    text_printf(e->out, "#line %d \"", line);
    for (const char *c = e->r->source->path; *c; c++)
        if (isprint((unsigned char)*c) && *c != '"' && *c != '\\') text_append(e->out, c, 1);
    text_string(e->out, "\"\n");
}

/* The statement as a comment; newlines cannot be in it. */
static void print_comment(cuda_emit *e, const role_statement *s) {
    const tile_op *op = &e->r->op;
    print_line(e, s->line);
    print_indent(e);
    text_string(e->out, "// ");
    switch (s->kind) {
    case ROLE_STORE: {
        const tile_node slice = {.kind = TILE_LOAD, .access = (tile_access *)s->access};
        tile_print_node(e->out, op, &slice);
        text_string(e->out, s->adds ? " += " : " = ");
        tile_print_node(e->out, op, s->value);
        break;
    }
    case ROLE_REDUCE:
        text_printf(e->out, "%s = %s(", op->variables[s->to].name, tile_operator_text(s->op));
        tile_print_node(e->out, op, s->value);
        text_printf(e->out, ", axis = %d)", s->axis);
        break;
    case ROLE_DOT:
        text_printf(e->out, "%s %s dot(%s, ", op->variables[s->to].name, s->adds ? "+=" : "=",
                    op->variables[s->from].name);
        tile_print_node(e->out, op, s->value);
        text_string(e->out, s->transposed ? ".T)" : ")");
        break;
    case ROLE_SKINNY:
        text_printf(e->out, "%s %s dot(%s, pages %d)", op->variables[s->to].name, s->adds ? "+=" : "=",
                    op->variables[s->from].name, s->pages.number);
        break;
    case ROLE_WIDE_TILE:
        text_printf(e->out, "%s %s wide dot(", op->variables[s->to].name, s->adds ? "+=" : "=");
        if (s->left) tile_print_node(e->out, op, s->left);
        text_printf(e->out, "%s, %s)", s->left ? "" : op->variables[s->from].name, op->params[s->slice.param].name);
        break;
    case ROLE_WIDE:
        for (int i = 0; i < s->wide.count; i++)
            text_printf(e->out, "%s%s", i ? ", " : "", op->variables[s->wide.product[i].to].name);
        text_printf(e->out, " = wide dot(%s)", op->params[s->wide.left].name);
        break;
    default:
        text_printf(e->out, "%s = ", op->variables[s->to].name);
        tile_print_node(e->out, op, s->value);
        if (e->r->variables[s->to].place == ROLE_FUSED) text_string(e->out, "  (computed where it is read)");
    }
    text_string(e->out, "\n");
}

/* ---- buffers ---- */

/* The value's indices from those of what it is stretched to. */
static void stretched(const tile_node *n, const tile_shape *to, const cuda_index *at, cuda_index *out) {
    for (int d = 0; d < n->shape.rank; d++)
        out[d] = n->shape.extent[d] == 1 ? cuda_index_constant(0) : at[d + to->rank - n->shape.rank];
}

/* A tile that lies as atoms do is large, and its tensor's bytes come from far away: a thread reads its rows, several
 * at once, before it writes the first. */
static bool print_atoms(cuda_emit *e, const role_statement *s) {
    enum { MOST_AHEAD = 8 };
    arena *m = e->memory;
    const tile_variable *t = &e->r->op.variables[s->to];
    const role_spread *spread = &s->spread;
    const int64_t at_once = ROLE_THREADS / spread->lanes;
    if (!e->r->variables[s->to].atoms || spread->vector < 2 || spread->rows % at_once) return false;
    int ahead = (int)min_i64(spread->rows / at_once, MOST_AHEAD);
    while (spread->rows / at_once % ahead) ahead--;
    cuda_nest x[MOST_AHEAD];
    cuda_rows rows[MOST_AHEAD] = {cuda_rows_of(e, spread)};
    const char *value[MOST_AHEAD], *begin = cuda_rows_once(e, spread, &rows[0]);
    if (!rows[0].row.text || !begin) return false;
    for (int i = 0; i < ahead; i++) {
        cuda_index at[TILE_RANK], below[TILE_RANK];
        cuda_nest_begin(e, &x[i], spread->vector);
        if (i) rows[i] = (cuda_rows){{cuda_name(e, "row"), LEVEL_ROW, false, 0}, rows[0].column};
        x[i].once_begin = begin;
        x[i].once = rows[i].column.text;
        cuda_unravel(&x[i], &t->shape, &rows[i].row, &rows[i].column, at);
        stretched(s->value, &t->shape, at, below);
        value[i] = emit_bare(m, cuda_element(&x[i], s->value, below).text);
    }
    const char *row = rows[0].row.text, *k = rows[0].column.text, *values = cuda_name(e, "values");
    cuda_print(e, "#pragma unroll 1");
    CUDA_OPEN(e, "for (int %s = mt->thread / %d; %s < %" PRId64 "; %s += %" PRId64 ") {", row, spread->lanes, row,
              spread->rows, row, at_once * ahead);
    cuda_print(e, "const int %s = %s;", k, begin);
    for (int i = 0; i < ahead; i++) {
        if (i) cuda_print(e, "const int %s = %s + %" PRId64 ";", rows[i].row.text, row, i * at_once);
        cuda_nest_lines(&x[i], LEVEL_ROW);
        cuda_nest_lines(&x[i], LEVEL_VECTOR);
    }
    cuda_print(e, "%s %s[%d];", emit_c_type(t->type), values, spread->vector);
    for (int i = 0; i < ahead; i++) {
        cuda_print(e, "#pragma unroll");
        CUDA_OPEN(e, "for (int j = 0; j < %d; j++) {", spread->vector);
        cuda_nest_lines(&x[i], LEVEL_LANE);
        cuda_print(e, "%s[j] = %s;", values, value[i]);
        cuda_close(e);
        cuda_print(e, "mt_put(mt_atoms_place(%s, %s, %s, %" PRId64 "), %s);", e->names[s->to], rows[i].row.text, k,
                   t->shape.extent[0], values);
    }
    cuda_close(e);
    cuda_print(e, "mt_fence_shared();");
    return true;
}

static void print_each(cuda_emit *e, const role_statement *s) {
    if (print_atoms(e, s)) return;
    arena *m = e->memory;
    const role_variable *v = &e->r->variables[s->to];
    const tile_variable *t = &e->r->op.variables[s->to];
    cuda_nest x;
    cuda_index at[TILE_RANK], below[TILE_RANK];
    cuda_nest_begin(e, &x, s->spread.vector);
    cuda_level2_walk(&x, &s->spread);
    const cuda_rows rows = cuda_rows_of(e, &s->spread);
    const int64_t columns = s->value->shape.rank ? s->value->shape.extent[s->value->shape.rank - 1] : 1;
    const bool padded = columns > 1 && columns < s->spread.columns; /* a panel's last columns are zeros */
    if (rows.column.text && !padded) {
        x.once_begin = cuda_rows_once(e, &s->spread, &rows);
        x.once = x.once_begin ? rows.column.text : NULL;
        cuda_rows_expect(&x, &s->spread, &rows, false);
    }
    cuda_unravel(&x, &t->shape, &rows.row, &rows.column, at);
    stretched(s->value, &t->shape, at, below);
    const cuda_value value = cuda_element(&x, s->value, below);
    cuda_index base[TILE_RANK];
    memcpy(base, at, sizeof base);
    base[t->shape.rank - 1].lane = false;
    const char *to = v->atoms ? arena_printf(m, "mt_atoms_place(%s, %s, %s, %" PRId64 ")", e->names[s->to],
                                             cuda_index_text(&x, &base[0]), cuda_index_text(&x, &base[1]),
                                             t->shape.extent[0])
                              : arena_printf(m, "%s + %s", e->names[s->to],
                                             cuda_linear(&x, &t->shape, v->stride, base, NULL).text),
               *type = emit_c_type(t->type);
    const char *values = cuda_name(e, "values");
    emit_line *const lines = x.first[LEVEL_VECTOR];
    if (padded) x.first[LEVEL_VECTOR] = NULL;
    cuda_rows_open(&x, &s->spread, &rows, NULL);
    if (padded || s->spread.vector > 1)
        cuda_print(e, padded ? "%s %s[%d] = {0};" : "%s %s[%d];", type, values, s->spread.vector);
    if (padded) {
        x.first[LEVEL_VECTOR] = lines;
        cuda_print(e, "if (%s < %" PRId64 ") {", rows.column.text, columns);
        e->indent++;
        cuda_nest_lines(&x, LEVEL_VECTOR);
    }
    if (s->spread.vector > 1) {
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int j = 0; j < %d; j++) {", s->spread.vector);
        e->indent++;
    }
    cuda_nest_lines(&x, LEVEL_LANE);
    if (padded || s->spread.vector > 1)
        cuda_print(e, "%s[%s] = %s;", values, s->spread.vector > 1 ? "j" : "0", emit_bare(m, value.text));
    else
        cuda_print(e, "%s[%s] = %s;", e->names[s->to], cuda_linear(&x, &t->shape, v->stride, at, NULL).text,
                   emit_bare(m, value.text));
    for (int depth = (s->spread.vector > 1) + padded; depth > 0; depth--) {
        e->indent--;
        cuda_print(e, "}");
    }
    if (padded || s->spread.vector > 1) cuda_print(e, "mt_put(%s, %s);", to, values);
    cuda_rows_close(e, &s->spread, NULL);
    if (v->atoms) cuda_print(e, "mt_fence_shared();");
}

/* ---- reductions ---- */

static const char *joined(const role_statement *s) {
    return s->op == TILE_SUM ? "MT_SUM" : s->op == TILE_REDUCE_MAX ? "MT_LARGEST" : "MT_SMALLEST";
}

/* What a reduction of nothing gives. */
const char *cuda_neutral(const tile_format *t, tile_operator op) {
    if (op == TILE_SUM) return "0";
    const bool least = op == TILE_REDUCE_MIN;
    if (t->scalar.kind == TILE_FLOAT) return least ? "INFINITY" : "-INFINITY";
    if (t->scalar.kind == TILE_UINT) return least ? (t->scalar.bits == 64 ? "UINT64_MAX" : "0xffffffffu") : "0";
    return t->scalar.bits == 64 ? (least ? "INT64_MAX" : "INT64_MIN") : least ? "INT32_MAX" : "INT32_MIN";
}

/* A reduction along an axis that is not the last one: a thread has `vector` neighbouring results, and reads several
 * steps of the axis before it adds them. */
static bool print_reduce_columns(cuda_emit *e, const role_statement *s) {
    enum { MOST_AHEAD = 8 };
    arena *m = e->memory;
    const tile_shape *shape = &s->value->shape;
    const int last = shape->rank - 1;
    const int64_t length = shape->extent[s->axis], results = tile_shape_count(shape) / length;
    if (s->reduce != ROLE_SERIAL || s->op == TILE_ARGMAX || s->axis == last) return false;
    int vector = 8, ahead = (int)min_i64(length, MOST_AHEAD);
    while (vector > 1 && (shape->extent[last] % vector || results < (int64_t)vector * ROLE_THREADS)) vector /= 2;
    while (length % ahead) ahead--;
    const char *type = emit_c_type(s->value->type), *to = e->names[s->to], *item = cuda_name(e, "item"),
               *base = cuda_name(e, "k"), *joined_name = cuda_name(e, "joined");
    cuda_nest x[MOST_AHEAD];
    cuda_value v[MOST_AHEAD];
    const char *end = s->op == TILE_SUM ? cuda_end_of(e, s->value, s->axis) : NULL;
    if (!end) end = arena_printf(m, "%" PRId64, length);
    if (results <= (int64_t)vector * ROLE_THREADS)
        cuda_print(e, "if (const int %s = mt->thread * %d; %s < %" PRId64 ") {", item, vector, item, results);
    else
        cuda_print(e, "for (int %s = mt->thread * %d; %s < %" PRId64 "; %s += %d) {", item, vector, item, results, item,
                   vector * ROLE_THREADS);
    e->indent++;
    cuda_index at[TILE_RANK];
    int64_t each = 1;
    for (int d = last; d >= 0; d--) {
        const int64_t extent = shape->extent[d];
        at[d] = cuda_index_constant(0);
        if (d == s->axis || extent == 1) continue;
        const char *t = each > 1 ? arena_printf(m, "%s / %" PRId64, item, each) : item;
        if (each * extent < results) t = arena_printf(m, "%s %% %" PRId64, t, extent);
        if (t != item) {
            const char *name = cuda_name(e, "index");
            cuda_print(e, "const int %s = %s;", name, t);
            t = name;
        }
        at[d] = (cuda_index){t, LEVEL_VECTOR, d == last && vector > 1, 0};
        each *= extent;
    }
    cuda_print(e, "%s %s[%d];", type, joined_name, vector);
    cuda_print(e, "for (int j = 0; j < %d; j++) %s[j] = %s;", vector, joined_name, cuda_neutral(s->value->type, s->op));
    cuda_print(e, "for (int %s = 0; %s < %s; %s += %d) {", base, base, end, base, ahead);
    e->indent++;
    for (int t = 0; t < ahead; t++) {
        const char *k = t ? cuda_name(e, "k") : base;
        if (t) cuda_print(e, "const int %s = %s + %d;", k, base, t);
        cuda_nest_begin(e, &x[t], vector);
        at[s->axis] = (cuda_index){k, LEVEL_VECTOR, false, 0};
        v[t] = cuda_element(&x[t], s->value, at);
        cuda_nest_lines(&x[t], LEVEL_ROW);
        cuda_nest_lines(&x[t], LEVEL_VECTOR);
    }
    for (int t = 0; t < ahead; t++) {
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int j = 0; j < %d; j++) {", vector);
        e->indent++;
        cuda_nest_lines(&x[t], LEVEL_LANE);
        cuda_print(e, "%s[j] = mt_join(%s[j], %s, %s);", joined_name, joined_name, emit_bare(m, v[t].text), joined(s));
        e->indent--;
        cuda_print(e, "}");
    }
    e->indent--;
    cuda_print(e, "}");
    cuda_print(e, "mt_put(%s + %s, %s);", to, item, joined_name);
    e->indent--;
    cuda_print(e, "}");
    return true;
}

static void print_reduce(cuda_emit *e, const role_statement *s) {
    if (print_reduce_columns(e, s)) return;
    arena *m = e->memory;
    const tile_shape *shape = &s->value->shape;
    const int64_t length = shape->extent[s->axis], results = tile_shape_count(shape) / length;
    const bool best = s->op == TILE_ARGMAX;
    const int vector = s->spread.vector;
    const char *type = emit_c_type(s->value->type), *to = e->names[s->to];
    cuda_nest x;
    cuda_index at[TILE_RANK];
    cuda_nest_begin(e, &x, vector);
    const char *i = results > 1 ? cuda_name(e, "item") : NULL, *k = cuda_name(e, "k"),
               *sum = cuda_name(e, best ? "best" : "joined");
    const cuda_index result = {i, LEVEL_ROW, false, 0};
    int64_t each = 1;
    for (int d = shape->rank - 1; d >= 0; d--) { /* the result's number in the dimensions that are left */
        const int64_t extent = shape->extent[d];
        if (d == s->axis) {
            at[d] = (cuda_index){k, LEVEL_VECTOR, vector > 1, 0};
            continue;
        }
        at[d] = cuda_index_constant(0);
        if (extent > 1) {
            const char *t = each > 1 ? arena_printf(m, "%s / %" PRId64, i, each) : i;
            if (each * extent < results) t = arena_printf(m, "%s %% %" PRId64, t, extent);
            at[d] = result;
            if (t != i)
                at[d].text =
                    cuda_hoist(&x, (cuda_value){arena_printf(m, "(%s)", t), LEVEL_ROW, false}, "int", "index").text;
        }
        each *= extent;
    }
    const char *first[] = {"mt->thread", "mt->warp", "0"}, *begin[] = {"0", "mt->lane", "mt->thread"};
    const int step[] = {ROLE_THREADS, ROLE_WARPS, 1}, threads[] = {1, 32, ROLE_THREADS};
    const char *start = vector > 1 ? arena_printf(m, "%s * %d", begin[s->reduce], vector) : begin[s->reduce];
    cuda_expect_steps(&x, k, start, length, threads[s->reduce] * vector, results >= step[s->reduce]);
    const cuda_value v = cuda_element(&x, s->value, at);
    if (i && results <= step[s->reduce])
        cuda_print(e, "if (const int %s = %s; %s < %" PRId64 ") {", i, first[s->reduce], i, results);
    else if (i)
        cuda_print(e, "for (int %s = %s; %s < %" PRId64 "; %s += %d) {", i, first[s->reduce], i, results, i,
                   step[s->reduce]);
    else if (s->reduce == ROLE_ALL)
        cuda_print(e, "{");
    else
        cuda_print(e, "if (%s == 0) {", first[s->reduce]);
    e->indent++;
    cuda_nest_lines(&x, LEVEL_ROW);
    if (best)
        cuda_print(e, "mt_best<%s> %s = {0, -1};", type, sum);
    else
        cuda_print(e, "%s %s = %s;", type, sum, cuda_neutral(s->value->type, s->op));
    cuda_open_steps(&x, k, start, length, threads[s->reduce] * vector);
    cuda_nest_lines(&x, LEVEL_VECTOR);
    if (vector > 1) {
        cuda_print(e, "#pragma unroll");
        cuda_print(e, "for (int j = 0; j < %d; j++) {", vector);
        e->indent++;
    }
    cuda_nest_lines(&x, LEVEL_LANE);
    const char *index = vector > 1 ? arena_printf(m, "%s + j", k) : k;
    if (best)
        cuda_print(e, "mt_best_of(%s, (%s)%s, %s);", sum, type, v.text, index);
    else
        cuda_print(e, "%s = mt_join(%s, %s, %s);", sum, sum, emit_bare(m, v.text), joined(s));
    for (int depth = 0; depth < 1 + (vector > 1); depth++) {
        e->indent--;
        cuda_print(e, "}");
    }
    const char *number = i ? i : "0";
    if (s->reduce != ROLE_SERIAL) {
        if (best)
            cuda_print(e, "%s = mt_best_lane(%s);", sum, sum);
        else
            cuda_print(e, "%s = mt_join_lanes<32>(%s, %s);", sum, sum, joined(s));
    }
    const char *value = best ? arena_printf(m, "%s.index < 0 ? 0 : %s.index", sum, sum) : sum;
    if (s->reduce == ROLE_ALL)
        cuda_print(e, "if (mt->lane == 0) %s[mt->warp * %" PRId64 " + %s] = %s;", to, results, number, value);
    else
        cuda_print(e, "%s%s[%s] = %s;", s->reduce == ROLE_WARP ? "if (mt->lane == 0) " : "", to, number, value);
    e->indent--;
    cuda_print(e, "}");
}

/* ---- statements ---- */

static void print_block(cuda_emit *e, const role_statement *s);

static void print_assign(cuda_emit *e, const role_statement *s) {
    const tile_variable *t = &e->r->op.variables[s->to];
    const char *value = emit_bare(e->memory, cuda_scalar(e, s->value));
    if (!s->declares) {
        cuda_print(e, "%s = %s;", e->names[s->to], value);
        return;
    }
    cuda_print(e, "%s%s %s = %s;", t->assignments == 1 ? "const " : "", emit_c_type(t->type), e->names[s->to], value);
}

static void print_for(cuda_emit *e, const role_statement *s) {
    arena *m = e->memory;
    print_line(e, s->line);
    const char *begin = emit_bare(m, cuda_scalar(e, s->begin)), *end = emit_bare(m, cuda_scalar(e, s->end)),
               *name = e->loops[s->index] = cuda_name(e, e->r->op.loop_names[s->index]);
    const char *stop = emit_is_name(end) ? end : cuda_name(e, "end");
    if (stop != end) cuda_print(e, "const int64_t %s = %s;", stop, end);
    cuda_print(e, "for (int64_t %s = %s; %s < %s; %s++) {", name, begin, name, stop, name);
    e->indent++, e->depth++;
    print_block(e, s->body);
    e->indent--, e->depth--;
    cuda_print(e, "}");
}

static void print_if(cuda_emit *e, const role_statement *s) {
    print_line(e, s->line);
    cuda_print(e, "if (%s) {", emit_bare(e->memory, cuda_scalar(e, s->value)));
    e->indent++, e->depth++;
    print_block(e, s->body);
    e->indent--;
    if (s->otherwise) {
        cuda_print(e, "} else {");
        e->indent++;
        print_block(e, s->otherwise);
        e->indent--;
    }
    e->depth--;
    cuda_print(e, "}");
}

static void print_statement(cuda_emit *e, const role_statement *s) {
    if (e->unit->marks && s->line > 0) cuda_print(e, "MT_AT_LINE(%d);", s->line);
    e->stored |= s->kind == ROLE_ACTION;
    if (s->kind == ROLE_FOR || s->kind == ROLE_IF) {
        s->kind == ROLE_FOR ? print_for(e, s) : print_if(e, s);
        return;
    }
    if (s->kind == ROLE_SYNC) {
        cuda_print(e, "mt_sync();");
        return;
    }
    if (s->kind == ROLE_PAGES) {
        print_line(e, s->line);
        cuda_print(e, "{ // pages %d of %s", s->pages.number, e->r->op.params[s->pages.param].name);
        e->indent++;
        cuda_pages(e, s);
        e->indent--;
        cuda_print(e, "}");
        return;
    }
    if (s->kind == ROLE_WIDE_PAGES || s->kind == ROLE_WIDE_TILE_PAGES) {
        print_line(e, s->line);
        cuda_print(e, "{ // pages of a wide product");
        e->indent++;
        s->kind == ROLE_WIDE_PAGES ? cuda_wide_pages(e, s) : cuda_wide_tile_pages(e, s);
        e->indent--;
        cuda_print(e, "}");
        return;
    }
    if (s->kind == ROLE_ACTION) {
        print_line(e, s->line);
        cuda_level2_action(e, s);
        return;
    }
    print_comment(e, s);
    if (s->kind == ROLE_WIDE) { /* what it declares is read behind it */
        cuda_wide(e, s);
        return;
    }
    if (s->kind == ROLE_ASSIGN) {
        print_assign(e, s);
        return;
    }
    const role_place place =
        s->kind == ROLE_EACH || s->kind == ROLE_REDUCE ? e->r->variables[s->to].place : ROLE_BUFFER;
    if (place == ROLE_REGISTER) {
        s->kind == ROLE_EACH ? cuda_level2_each(e, s) : cuda_level2_reduce(e, s);
        return;
    }
    if (s->kind == ROLE_EACH && place != ROLE_BUFFER && place != ROLE_FRAGMENT) return;
    cuda_print(e, "{");
    e->indent++;
    switch (s->kind) {
    case ROLE_EACH:
        place == ROLE_FRAGMENT ? cuda_fragment_each(e, s) : print_each(e, s);
        break;
    case ROLE_WIDE_TILE:
        cuda_wide_tile(e, s);
        break;
    case ROLE_STORE:
        cuda_store(e, s);
        e->stored = true;
        break;
    case ROLE_REDUCE:
        place == ROLE_FRAGMENT ? cuda_fragment_reduce(e, s) : print_reduce(e, s);
        break;
    case ROLE_DOT:
        cuda_dot(e, s);
        break;
    default:
        cuda_skinny(e, s);
    }
    e->indent--;
    cuda_print(e, "}");
}

static void print_block(cuda_emit *e, const role_statement *s) {
    for (; s; s = s->next) print_statement(e, s);
}

/* ---- functions ---- */

/* An instruction beyond the current grid does nothing: the grid is laid out for the largest extents and live values. */
static void print_guards(cuda_emit *e) {
    const tile_op *op = &e->r->op;
    for (int i = 0; i < op->axis_total; i++) {
        if (op->axis_count[i]->kind == TILE_CONST) continue;
        const tile_node axis = {.kind = TILE_GRID, .type = op->axis_count[i]->type, .index = i};
        const char *name = cuda_scalar(e, &axis), *count = emit_bare(e->memory, cuda_scalar(e, op->axis_count[i]));
        text_printf(e->head, "    if (%s >= %s) return;\n", name, count);
    }
}

static void print_buffers(cuda_emit *e) {
    for (int i = 0; i < e->r->op.variable_count; i++) {
        const role_variable *v = &e->r->variables[i];
        const tile_variable *t = &e->r->op.variables[i];
        if (v->place == ROLE_FRAGMENT)
            text_printf(e->head, "    %s %s[%" PRId64 "]; // %s[%" PRId64 ", %" PRId64 "] in fragments\n",
                        emit_c_type(t->type), e->names[i],
                        t->shape.extent[1] == 1 ? 2 : t->shape.extent[0] * t->shape.extent[1] / ROLE_THREADS,
                        t->type->name, t->shape.extent[0], t->shape.extent[1]);
        if (v->place != ROLE_BUFFER || !v->first) continue;
        const char *type = emit_c_type(t->type);
        text_printf(e->head, "    %s *const %s = (%s *)(mt->scratch + %" PRId64 "); // %s[", type, e->names[i], type,
                    v->offset, t->type->name);
        for (int d = 0; d < t->shape.rank; d++) text_printf(e->head, "%s%" PRId64, d ? ", " : "", t->shape.extent[d]);
        text_string(e->head, "]\n");
    }
}

typedef struct one_function {
    cuda_unit_text *unit;
    const role_op *r;
    const emit_cuda_op *op;
    const char *name;
    text *out, *head, *early, *body;
    level2_role_kind role;
} one_function;

static void print_function(void *context) {
    one_function *f = context;
    const tile_op *op = &f->r->op;
    arena *m = f->unit->memory;
    cuda_emit e = {.unit = f->unit,
                   .memory = m,
                   .r = f->r,
                   .aligned = f->op->aligned,
                   .cold = f->op->cold,
                   .stamped = f->op->stamped,
                   .out = f->body,
                   .head = f->head,
                   .early = f->early,
                   .indent = 1};
    e.names = ARENA_ARRAY(m, (size_t)op->variable_count + 1, const char *);
    e.loops = ARENA_ARRAY(m, (size_t)op->loop_count + 1, const char *);
    e.operators = (emit){.memory = m,
                         .op = op,
                         .variables = ARENA_ARRAY(m, (size_t)op->variable_count + 1, emit_variable),
                         .loops = f->r->loops};
    for (int i = 0; i < op->variable_count; i++) e.operators.variables[i].value = f->r->variables[i].value;
    reserve_names(&e);
    print_guards(&e);
    const bool loader = f->role == LEVEL2_LOADER;
    const role_statement *const body[] = {f->r->loader, f->r->consumer, f->r->storer};
    if (f->role == LEVEL2_CONSUMER) print_buffers(&e);
    if (op->level2) cuda_level2_begin(&e, f->role);
    if (loader && f->r->wide) cuda_wide_ready(&e);
    print_block(&e, body[f->role]);
    if (op->level2) cuda_level2_end(&e, f->role);
    bool takes = false;
    for (int t = 0; t < op->tensor_count; t++) takes |= f->op->stamped[t];
    if (takes && f->role == LEVEL2_CONSUMER) cuda_print(&e, "mt_taken(mt);");
    text_printf(f->out, "static __device__ __forceinline__ void %s(mt_context *mt) {\n", f->name);
    if (f->head->length) text_append(f->out, f->head->data, f->head->length);
    if (f->early->length) text_append(f->out, f->early->data, f->early->length);
    if (f->body->length) text_append(f->out, f->body->data, f->body->length);
    text_string(f->out, "}\n");
}

void cuda_op_functions(cuda_unit_text *unit, const role_op *r, const emit_cuda_op *op, const char *name, text *out) {
    text_printf(out, "\n/* %s[", r->op.name);
    for (int i = 0; i < r->op.constant_count; i++) {
        const tile_constant *c = &r->op.constants[i];
        if (c->type)
            text_printf(out, "%s%s = %s", i ? ", " : "", c->name, c->type->name);
        else
            text_printf(out, "%s%s = %" PRId64, i ? ", " : "", c->name, c->value);
    }
    text_string(out, "] */\n");
    static const char *const names[] = {"load", "run", "store"};
    for (int role = 0; role < LEVEL2_ROLES && !unit->status; role++) {
        if ((role == LEVEL2_LOADER && !r->loader) || (role == LEVEL2_STORER && !r->storer)) continue;
        text head = {0}, early = {0}, body = {0};
        char full[400];
        snprintf(full, sizeof full, "%.300s_%s", name, names[role]);
        one_function f = {unit, r, op, full, out, &head, &early, &body, (level2_role_kind)role};
        if (!arena_protect(unit->memory, print_function, &f) || head.failed || early.failed || body.failed ||
            out->failed)
            unit->status = error_set(unit->error, MT_E_MEMORY, r->op.name, "Out of memory while writing CUDA C.");
        text_free(&head);
        text_free(&early);
        text_free(&body);
    }
}
