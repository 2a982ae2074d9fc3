/* From the text of a .tile file to its syntax tree (docs/language.md), by recursive descent.
 *
 * A function that parses something returns NULL or false after reporting what it expected; its callers pass that on up
 * to the next point of recovery: an element of a bracketed list in a header, a statement, a declaration. There the
 * parser skips to where the next one begins. Two errors are never reported at one place.
 *
 * New lines are no tokens. Where a statement could end, outside of brackets, an infix or postfix operator on a new line
 * does not continue the expression (see continues); everywhere else new lines are blanks.
 *
 * Hostile text: parsing recurses once for each level of nesting, which is limited; so is the height of a tree that
 * grows without nesting (a + a + ...), for the sake of those who walk it. Every token is looked at a bounded number of
 * times. */
#include "tile/format.h"
#include "tile/parse.h"

#include <stdio.h>

enum { TEXT_LIMIT = 1 << 20, DECLARATION_LIMIT = 4096 };

/* ---- statements ------------------------------------------------------------------------------------------------- */

/* A declaration begins here, whatever is open. */
static bool at_declaration(const parser *p) {
    return parse_at(p, LEX_END) || ((parse_at(p, LEX_TILE) || parse_at(p, LEX_FORMAT)) && p->token.starts_line);
}

bool parse_end(parser *p) {
    if (parse_accept(p, LEX_SEMICOLON) || parse_at(p, LEX_BRACE_END) || parse_at(p, LEX_END) || p->token.starts_line)
        return true;
    parse_unexpected(p, "an operator or the end of the statement (a new line or ';')");
    return false;
}

/* name = ..., name: type[...] = ..., name += ..., name[...] = ... */
static bool parse_assignment(parser *p, ast_statement *s) {
    s->kind = AST_ASSIGN;
    s->name = parse_name(p, "a statement");
    if (!s->name) return false;
    if (!parse_continues(p)) {
        parse_unexpected(p, "'=' behind the name");
        return false;
    }
    const bool store = parse_at(p, LEX_BRACKET);
    if (store) {
        s->kind = AST_STORE;
        parse_open(p);
        if (!parse_items(p, &s->items)) return false;
    } else if (parse_accept(p, LEX_COLON)) {
        s->kind = AST_DECLARE;
        if (!(s->type = parse_name(p, "a type"))) return false;
        if (parse_at(p, LEX_BRACKET)) {
            parse_open(p);
            if (!parse_exprs(p, LEX_BRACKET_END, " or ',' in the shape", &s->shape)) return false;
        }
    }
    const lex_kind sign = parse_continues(p) ? p->token.kind : LEX_END;
    if (s->kind != AST_DECLARE && (sign == LEX_ADD_TO || sign == LEX_SUBTRACT_FROM || sign == LEX_MULTIPLY_BY)) {
        s->op = sign == LEX_ADD_TO ? TILE_ADD : sign == LEX_SUBTRACT_FROM ? TILE_SUB : TILE_MUL;
        if (store && s->op != TILE_ADD) {
            parse_fail(p, p->token.place, "expected '=' or '+=' behind a slice of a tensor");
            return false;
        }
        if (!store) s->kind = AST_UPDATE;
    } else if (sign != LEX_ASSIGN) {
        parse_unexpected(p, s->kind == AST_ASSIGN ? "'=', ':', '[', '+=', '-=' or '*=' behind the name"
                            : store               ? "'=' or '+=' behind the slice"
                                                  : "'=' and the first value");
        return false;
    }
    parse_advance(p);
    return (s->value = parse_expr(p)) && parse_end(p);
}

static bool parse_for(parser *p, ast_statement *s) {
    parse_advance(p);
    s->kind = AST_FOR;
    if (!(s->name = parse_name(p, "the name of the loop's variable"))) return false;
    if (!parse_expect(p, LEX_IN, " behind the loop's variable")) return false;
    if (parse_at_word(p, "stream")) {
        s->stream = true;
        parse_advance(p);
        if (!parse_at(p, LEX_PAREN)) return parse_expect(p, LEX_PAREN, " behind 'stream'");
        parse_open(p);
    }
    if (!(s->end = parse_expr(p))) return false;
    if (parse_accept(p, LEX_RANGE)) {
        s->begin = s->end;
        if (!(s->end = parse_expr(p))) return false;
    }
    if (s->stream && !parse_close(p, LEX_PAREN_END, " behind the range")) return false;
    return parse_block(p, &s->body);
}

static ast_statement *new_statement(parser *p) {
    ast_statement *s = ARENA_NEW(p->memory, ast_statement);
    s->place = p->token.place;
    s->op = TILE_OPERATOR_COUNT;
    return s;
}

/* else if makes a chain of statements, each the only one in the other's else branch, and so one level deeper. */
static bool parse_if(parser *p, ast_statement *s) {
    const int depth = p->depth;
    bool good = false;
    while (true) {
        parse_advance(p);
        s->kind = AST_IF;
        if (!(s->value = parse_expr(p)) || !parse_block(p, &s->body)) break;
        if ((good = !parse_accept(p, LEX_ELSE))) break;
        if (!parse_at(p, LEX_IF)) {
            good = parse_block(p, &s->otherwise);
            break;
        }
        if (!parse_enter(p)) break;
        s = s->otherwise = new_statement(p);
    }
    p->depth = depth;
    return good;
}

static bool parse_statement(parser *p, ast_statement *s) {
    switch (p->token.kind) {
    case LEX_FOR:
        return parse_for(p, s);
    case LEX_IF:
        return parse_if(p, s);
    case LEX_NAME: {
        bool is_level2;
        const bool whole = explicit_parse(p, s, &is_level2);
        return is_level2 ? whole : parse_assignment(p, s);
    }
    default:
        parse_unexpected(p, "a statement");
        return false;
    }
}

/* Skips what is between a pair of braces, without recursion. */
static void skip_block(parser *p) {
    int open = 0;
    do {
        open += parse_at(p, LEX_BRACE) - parse_at(p, LEX_BRACE_END);
        parse_advance(p);
    } while (open > 0 && !at_declaration(p));
}

/* After an error in the statement that began with `first`: skips to where the next begins. Inside brackets that
 * are still open a new line counts only when it is not indented deeper than the statement: it may be a continuation.
 * Stops at braces, too. */
static void recover(parser *p, const lex_token *first) {
    if (p->token.begin == first->begin && !at_declaration(p) && !parse_at(p, LEX_BRACE) && !parse_at(p, LEX_BRACE_END))
        parse_advance(p);
    for (; !at_declaration(p) && !parse_at(p, LEX_BRACE) && !parse_at(p, LEX_BRACE_END); parse_advance(p)) {
        if (p->token.starts_line && (p->brackets <= 0 || p->token.place.column <= first->place.column)) break;
        if (parse_at(p, LEX_PAREN) || parse_at(p, LEX_BRACKET)) p->brackets++;
        if (parse_at(p, LEX_PAREN_END) || parse_at(p, LEX_BRACKET_END)) p->brackets--;
        if (parse_accept(p, LEX_SEMICOLON)) break;
    }
    p->brackets = 0;
}

/* { statements }. Errors in statements are dealt with here: false means that the block itself is not whole. */
bool parse_block(parser *p, ast_statement **out) {
    const int line = p->token.place.line, outer = p->brackets;
    if (!parse_at(p, LEX_BRACE)) return parse_expect(p, LEX_BRACE, "");
    if (!parse_enter(p)) return false;
    p->brackets = 0;
    parse_advance(p);
    bool whole = false;
    while (!(whole = parse_accept(p, LEX_BRACE_END)) && !at_declaration(p)) {
        if (parse_accept(p, LEX_SEMICOLON)) continue;
        const lex_token first = p->token;
        p->start = first.begin;
        ast_statement *s = new_statement(p);
        if (parse_statement(p, s)) {
            *out = s;
            out = &s->next;
            continue;
        }
        recover(p, &first);
        if (!parse_at(p, LEX_BRACE)) continue;
        do { /* the blocks of a statement whose beginning is wrong */
            if (p->depth == PARSE_DEPTH_LIMIT)
                skip_block(p);
            else
                parse_block(p, &s->body);
        } while (parse_at(p, LEX_BRACE) || (parse_accept(p, LEX_ELSE) && parse_at(p, LEX_BRACE)));
    }
    if (!whole) {
        char expected[64];
        snprintf(expected, sizeof expected, "'}' for the '{' of line %d", line);
        parse_unexpected(p, expected);
    }
    p->brackets = outer;
    parse_leave(p);
    return whole;
}

/* ---- tile programs ---------------------------------------------------------------------------------------------- */

/* Reports a name that the declaration, or the file, has already. */
static bool declare(parser *p, map *names, const char *name, ast_place place) {
    const int64_t line = map_get(names, name, strlen(name));
    if (line >= 0)
        parse_fail(p, place, "'%s' is declared twice; the other one is on line %d", name, (int)line);
    else
        map_put(p->memory, names, name, strlen(name), place.line);
    return line < 0;
}

typedef struct header { /* where the elements of a tile's header go */
    ast_tile *tile;
    map names; /* of constants, parameters, axes */
    ast_constant **constants;
    ast_param **params;
    ast_axis **axes;
    ast_step **steps;
    int constant_count, param_count, axis_count, step_count;
} header;

static bool parse_constant(parser *p, header *h) {
    ast_constant *c = ARENA_NEW(p->memory, ast_constant);
    c->place = p->token.place;
    if (!(c->name = parse_name(p, "the name of a constant"))) return false;
    declare(p, &h->names, c->name, c->place);
    if (++h->constant_count > TILE_CONSTANTS)
        parse_fail(p, c->place, "a tile program has up to %d constants", TILE_CONSTANTS);
    *h->constants = c;
    h->constants = &c->next;
    return !parse_accept(p, LEX_ASSIGN) || (c->value = parse_expr(p));
}

static bool parse_param(parser *p, header *h) {
    static const struct {
        const char *word;
        tile_param_kind kind;
    } kinds[] = {{"out", TILE_OUT}, {"inout", TILE_INOUT}, {"arg", TILE_PARAM_ARG}, {"live", TILE_PARAM_LIVE}};
    ast_param *q = ARENA_NEW(p->memory, ast_param);
    q->place = p->token.place;
    if (!(q->name = parse_name(p, "the name of a parameter"))) return false;
    declare(p, &h->names, q->name, q->place);
    if (++h->param_count > TILE_PARAMS) parse_fail(p, q->place, "a tile program has up to %d parameters", TILE_PARAMS);
    *h->params = q;
    h->params = &q->next;
    if (!parse_expect(p, LEX_COLON, " behind the parameter's name")) return false;
    size_t k = 0;
    while (k < COUNT_OF(kinds) && !parse_at_word(p, kinds[k].word)) k++;
    if (k == COUNT_OF(kinds) && !parse_at(p, LEX_IN)) {
        parse_unexpected(p, "'in', 'out', 'inout', 'arg' or 'live'");
        return false;
    }
    q->kind = parse_at(p, LEX_IN) ? TILE_IN : kinds[k].kind;
    parse_advance(p);
    q->type_place = p->token.place;
    if (!(q->type = parse_name(p, "a type"))) return false;
    if (q->kind == TILE_PARAM_ARG || q->kind == TILE_PARAM_LIVE) return true;
    if (!parse_at(p, LEX_BRACKET)) return parse_expect(p, LEX_BRACKET, " and the tensor's extents");
    const ast_place bracket = p->token.place;
    int rank = 0;
    parse_open(p);
    if (!parse_exprs(p, LEX_BRACKET_END, " or ',' in the extents", &q->extents)) return false;
    for (const ast_expr *e = q->extents; e; e = e->next) rank++;
    if (rank > TILE_RANK) parse_fail(p, bracket, "a tensor has up to %d dimensions, this one has %d", TILE_RANK, rank);
    return true;
}

static bool parse_axis(parser *p, header *h) {
    ast_axis *x = ARENA_NEW(p->memory, ast_axis);
    x->place = p->token.place;
    if (!(x->name = parse_name(p, "the name of a grid axis"))) return false;
    declare(p, &h->names, x->name, x->place);
    if (++h->axis_count > TILE_AXES) parse_fail(p, x->place, "a grid has up to %d axes", TILE_AXES);
    *h->axes = x;
    h->axes = &x->next;
    return parse_expect(p, LEX_IN, " behind the name of the axis") && (x->count = parse_expr(p));
}

/* One choice of tune: name in expr, expr, ... */
static bool parse_choice(parser *p, header *h) {
    const ast_place place = p->token.place;
    const char *name = parse_name(p, "the name of a constant");
    if (!name) return false;
    ast_constant *c = h->tile->constants;
    while (c && strcmp(c->name, name)) c = c->next;
    if (!c)
        parse_fail(p, place, "'%s' is no constant of this tile program", name);
    else if (c->choices)
        parse_fail(p, place, "the choices for '%s' were given already", name);
    if (!parse_expect(p, LEX_IN, " and the values to try")) return false;
    ast_expr *choices = NULL, **out = &choices;
    do {
        if (!(*out = parse_expr(p))) return false;
        out = &(*out)->next;
    } while (parse_accept(p, LEX_COMMA));
    if (c && !c->choices) c->choices = choices;
    return parse_end(p);
}

/* The elements of a bracketed list of a header. After an error goes on with the next element; stops in front of a
 * brace. */
static bool parse_list(parser *p, lex_kind closing, const char *where, bool (*element)(parser *, header *), header *h) {
    parse_advance(p);
    bool whole = true;
    const int outer = p->brackets;
    while (true) {
        bool good = element(p, h);
        if (good && !parse_at(p, LEX_COMMA) && !parse_at(p, closing)) good = parse_expect(p, closing, where);
        if (!good) {
            whole = false;
            while (!at_declaration(p) && !parse_at(p, LEX_BRACE) && !parse_at(p, LEX_BRACE_END) &&
                   !parse_at(p, LEX_OVER)) {
                if (p->brackets == outer && (parse_at(p, LEX_COMMA) || parse_at(p, closing))) break;
                if (parse_at(p, LEX_PAREN) || parse_at(p, LEX_BRACKET)) p->brackets++;
                if ((parse_at(p, LEX_PAREN_END) || parse_at(p, LEX_BRACKET_END)) && p->brackets > outer) p->brackets--;
                parse_advance(p);
            }
            p->brackets = outer;
        }
        if (parse_accept(p, closing)) return whole;
        if (!parse_accept(p, LEX_COMMA)) return false;
    }
}

/* a, b, ... as the names of a step's operands. */
static bool parse_names(parser *p, const char **names, int *count, const char *what) {
    do {
        if (*count == TILE_PARAMS) {
            parse_fail(p, p->token.place, "a step has up to %d operands on a side", TILE_PARAMS);
            return false;
        }
        if (!(names[*count] = parse_name(p, what))) return false;
        ++*count;
    } while (parse_accept(p, LEX_COMMA));
    return true;
}

/* One step of equals or splits: a, b = program(x, y) */
static bool parse_step(parser *p, header *h) {
    ast_step *s = ARENA_NEW(p->memory, ast_step);
    s->place = p->token.place;
    if (++h->step_count > TILE_STEPS) parse_fail(p, s->place, "a composition has up to %d steps", TILE_STEPS);
    *h->steps = s;
    h->steps = &s->next;
    if (!parse_names(p, s->step.output, &s->step.output_count, "the name of a result")) return false;
    if (!parse_expect(p, LEX_ASSIGN, " or ',' behind the name")) return false;
    if (!(s->step.program = parse_name(p, "the name of a tile program"))) return false;
    if (!parse_at(p, LEX_PAREN)) return parse_expect(p, LEX_PAREN, " and the operands");
    parse_open(p);
    return parse_names(p, s->step.input, &s->step.input_count, "the name of an operand") &&
           parse_close(p, LEX_PAREN_END, " or ',' in the operands") && parse_end(p);
}

/* tune, equals or splits: { elements that end like statements }. */
static void parse_clause(parser *p, const char *word, bool (*element)(parser *, header *), header *h) {
    parse_advance(p);
    if (!parse_at(p, LEX_BRACE)) {
        char where[32];
        snprintf(where, sizeof where, " behind '%s'", word);
        parse_expect(p, LEX_BRACE, where);
        return;
    }
    p->brackets = 0;
    parse_advance(p);
    while (!parse_at(p, LEX_BRACE_END) && !at_declaration(p)) {
        if (parse_accept(p, LEX_SEMICOLON)) continue;
        const lex_token first = p->token;
        p->start = first.begin;
        if (element(p, h)) continue;
        recover(p, &first);
        if (parse_at(p, LEX_BRACE)) skip_block(p);
    }
    p->brackets = 1;
    parse_expect(p, LEX_BRACE_END, " behind the last of them");
}

static char *parse_doc(parser *p, const lex_token *t) {
    char *doc = arena_alloc(p->memory, t->doc_end - t->doc_begin + 1), *out = doc;
    for (size_t i = t->doc_begin; i < t->doc_end;) { /* each round one line */
        while (i < t->doc_end && (p->text[i] == ' ' || p->text[i] == '\t')) i++;
        while (i < t->doc_end && p->text[i] == '/') i++;
        if (i < t->doc_end && p->text[i] == ' ') i++;
        while (i < t->doc_end && p->text[i] != '\n') {
            if (p->text[i] != '\r') *out++ = p->text[i];
            i++;
        }
        if (i++ < t->doc_end) *out++ = '\n';
    }
    *out = 0;
    return doc;
}

static void parse_tile(parser *p, ast_tile *tile) {
    header h = {.tile = tile,
                .constants = &tile->constants,
                .params = &tile->params,
                .axes = &tile->axes,
                .steps = &tile->equals};
    tile->doc = parse_doc(p, &p->token);
    tile->begin = p->token.begin;
    tile->source = p->file;
    p->brackets = 1; /* a header may be broken into lines anywhere */
    parse_advance(p);
    tile->place = p->token.place;
    if ((tile->name = parse_name(p, "the name of the tile program"))) declare(p, &p->names, tile->name, tile->place);
    if (parse_at(p, LEX_BRACKET)) parse_list(p, LEX_BRACKET_END, " or ',' in the constants", parse_constant, &h);
    bool sound = tile->name; /* of several parts that are missing only the first is reported */
    if (parse_at(p, LEX_PAREN))
        parse_list(p, LEX_PAREN_END, " or ',' in the parameters", parse_param, &h);
    else
        sound = sound && parse_expect(p, LEX_PAREN, " and the parameters");
    if (sound && !parse_at(p, LEX_OVER))
        sound = (parse_unexpected(p, "'over' and the grid's axes, as in over (i in n)"), false);
    while (!parse_at(p, LEX_OVER) && !parse_at(p, LEX_TUNE) && !parse_at(p, LEX_BRACE) && !at_declaration(p))
        parse_advance(p);
    if (parse_accept(p, LEX_OVER)) {
        if (parse_at(p, LEX_PAREN))
            parse_list(p, LEX_PAREN_END, " or ',' in the axes", parse_axis, &h);
        else
            sound = sound && parse_expect(p, LEX_PAREN, " and the grid's axes");
    }
    ast_step **equals = &tile->equals, **splits = &tile->splits; /* where their next steps go */
    while (parse_at(p, LEX_TUNE) || parse_at_word(p, "equals") || parse_at_word(p, "splits")) {
        if (parse_at(p, LEX_TUNE)) {
            parse_clause(p, "tune", parse_choice, &h);
            continue;
        }
        const bool is_splits = parse_at_word(p, "splits");
        ast_step ***end = is_splits ? &splits : &equals;
        h.steps = *end;
        h.step_count = 0;
        for (const ast_step *s = is_splits ? tile->splits : tile->equals; s; s = s->next) h.step_count++;
        parse_clause(p, is_splits ? "splits" : "equals", parse_step, &h);
        *end = h.steps;
    }
    if (sound && !parse_at(p, LEX_BRACE)) parse_unexpected(p, "'{' and the program's statements");
    while (!parse_at(p, LEX_BRACE) && !at_declaration(p)) parse_advance(p);
    if (parse_at(p, LEX_BRACE)) parse_block(p, &tile->body);
    p->brackets = 0;
    tile->end = p->previous.end;
}

/* ---- formats ---------------------------------------------------------------------------------------------------- */

static bool parse_integer(parser *p, const char *what, int64_t *out) {
    if (!parse_at(p, LEX_INTEGER)) {
        parse_unexpected(p, what);
        return false;
    }
    *out = p->token.integer;
    parse_advance(p);
    return true;
}

/* name: type[count] or name[j, k] = expr */
static bool parse_member(parser *p, format_member *m) {
    m->place = p->token.place;
    m->count = -1;
    if (!(m->name = parse_name(p, "'block', a field, a function or value[i]"))) return false;
    if (parse_accept(p, LEX_COLON)) {
        m->type_place = p->token.place;
        if (!(m->type = parse_name(p, "a type"))) return false;
        if (!parse_at(p, LEX_BRACKET) || !parse_continues(p)) return parse_end(p);
        parse_open(p);
        m->count_place = p->token.place;
        return parse_integer(p, "the number of elements", &m->count) &&
               parse_close(p, LEX_BRACKET_END, " behind the number of elements") && parse_end(p);
    }
    if (!parse_at(p, LEX_BRACKET) || !parse_continues(p)) {
        parse_unexpected(p, "':' and a type, or '[' and the names of indices");
        return false;
    }
    parse_open(p);
    format_index **out = &m->indices;
    do {
        format_index *i = *out = ARENA_NEW(p->memory, format_index);
        out = &i->next;
        i->place = p->token.place;
        if (!(i->name = parse_name(p, "the name of an index"))) return false;
    } while (parse_accept(p, LEX_COMMA));
    return parse_close(p, LEX_BRACKET_END, " or ',' in the indices") &&
           parse_expect(p, LEX_ASSIGN, " and an expression") && (m->value = parse_expr(p)) && parse_end(p);
}

static bool parse_block_size(parser *p, format_declaration *d) {
    parse_advance(p);
    if (d->block_place.line) parse_fail(p, p->previous.place, "the block's size was given already");
    d->block_place = p->token.place;
    return parse_integer(p, "the number of elements in a block", &d->block) && parse_end(p);
}

static bool parse_members(parser *p, format_declaration *d) {
    bool good = true;
    format_member **out = &d->members;
    while (!parse_at(p, LEX_BRACE_END) && !at_declaration(p)) {
        if (parse_accept(p, LEX_SEMICOLON)) continue;
        const lex_token first = p->token;
        p->start = first.begin;
        lexer ahead = p->lexer;
        const bool is_block = parse_at_word(p, "block") && lex_next(&ahead).kind != LEX_COLON;
        format_member *m = ARENA_NEW(p->memory, format_member);
        if (is_block ? parse_block_size(p, d) : parse_member(p, m)) {
            if (is_block) continue;
            *out = m;
            out = &m->next;
            continue;
        }
        good = false;
        recover(p, &first);
        if (parse_at(p, LEX_BRACE)) skip_block(p);
    }
    d->end_place = p->token.place;
    return parse_expect(p, LEX_BRACE_END, " behind the format") && good;
}

static void parse_format(parser *p, ast_format *f) {
    format_declaration d = {.doc = parse_doc(p, &p->token)};
    f->begin = p->token.begin;
    p->brackets = 1;
    parse_advance(p);
    d.place = p->token.place;
    d.name = parse_name(p, "the name of the format");
    bool good = d.name && declare(p, &p->names, d.name, d.place);
    if (d.name && tile_format_scalar(d.name, strlen(d.name))) {
        parse_fail(p, d.place, "'%s' is the name of a scalar type", d.name);
        good = false;
    }
    if (!parse_at(p, LEX_BRACE)) good = (parse_unexpected(p, "'{' and the format's fields"), false);
    while (!parse_at(p, LEX_BRACE) && !at_declaration(p)) parse_advance(p);
    p->brackets = 0;
    if (parse_accept(p, LEX_BRACE)) good = parse_members(p, &d) && good;
    f->end = p->previous.end;
    d.text = arena_string(p->memory, p->text + f->begin, f->end - f->begin);
    if (good) f->format = format_build(p->memory, p->report, &d, &p->budget);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

typedef struct job {
    tile_file *file;
    const char *path, *text;
    size_t length;
    ast_reporter report;
} job;

static void parse_file(void *context) {
    job *j = context;
    tile_file *f = j->file;
    f->path = arena_string(f->memory, j->path, strlen(j->path));
    f->text = arena_string(f->memory, j->text, j->length);
    f->length = j->length;
    parser p = {.memory = f->memory, .report = &j->report, .text = f->text, .file = f, .budget = FORMAT_BUDGET};
    p.lexer = lex_open(f->text, f->length);
    p.token = lex_next(&p.lexer);
    ast_tile **tiles = &f->tiles;
    ast_format **formats = &f->formats;
    while (!parse_at(&p, LEX_END)) {
        if ((parse_at(&p, LEX_TILE) || parse_at(&p, LEX_FORMAT)) && ++p.declarations > DECLARATION_LIMIT) {
            parse_fail(&p, p.token.place, "a file holds up to %d tile programs and formats", DECLARATION_LIMIT);
            break;
        }
        if (parse_at(&p, LEX_TILE)) {
            ast_tile *tile = *tiles = ARENA_NEW(f->memory, ast_tile);
            tiles = &tile->next;
            parse_tile(&p, tile);
        } else if (parse_at(&p, LEX_FORMAT)) {
            ast_format *format = *formats = ARENA_NEW(f->memory, ast_format);
            formats = &format->next;
            parse_format(&p, format);
        } else {
            p.start = p.token.begin;
            parse_unexpected(&p, "'tile' or 'format'");
            do parse_advance(&p);
            while (!at_declaration(&p));
        }
    }
}

mt_status tile_parse(tile_file **out, const char *path, const char *source, size_t length,
                     tile_diagnostics *diagnostics, mt_error *error) {
    *out = NULL;
    if (length > TEXT_LIMIT)
        return error_set(error, MT_E_LIMIT, path, "a tile file holds up to %d bytes, this one has %zu", TEXT_LIMIT,
                         length);
    arena *memory = arena_new();
    tile_file *file = memory ? ARENA_NEW(memory, tile_file) : NULL;
    if (!file) {
        arena_free(memory);
        return error_set(error, MT_E_MEMORY, path, "out of memory");
    }
    file->memory = memory;
    job j = {.file = file,
             .path = path,
             .text = source,
             .length = length,
             .report = {.path = path, .text = source, .length = length, .diagnostics = diagnostics, .first = error}};
    mt_status status = MT_OK;
    if (!arena_protect(memory, parse_file, &j))
        status = error_set(error, MT_E_MEMORY, path, "out of memory");
    else if (j.report.count)
        status = MT_E_SYNTAX;
    if (status)
        arena_free(memory);
    else
        *out = file;
    return status;
}

void tile_file_free(tile_file *f) {
    if (f) arena_free(f->memory);
}
