/* The parser's tokens, errors and expressions; parse.c has the design. */
#include "tile/parse.h"

#include <math.h>
#include <stdio.h>

/* ---- tokens and errors ----------------------------------------------------------------------------------------- */

void parse_fail(parser *p, ast_place at, const char *format, ...) {
    if (at.line == p->last_error.line && at.column == p->last_error.column) return;
    p->last_error = at;
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    ast_report(p->report, at, "%s", message);
}

void parse_advance(parser *p) {
    p->previous = p->token;
    p->token = lex_next(&p->lexer);
}

bool parse_at_word(const parser *p, const char *word) {
    const size_t length = strlen(word);
    return parse_at(p, LEX_NAME) && p->token.end - p->token.begin == length &&
           !memcmp(p->text + p->token.begin, word, length);
}

bool parse_accept(parser *p, lex_kind kind) {
    if (!parse_at(p, kind)) return false;
    parse_advance(p);
    return true;
}

void parse_unexpected(parser *p, const char *expected) {
    const lex_token *t = &p->token, *before = &p->previous;
    const bool ends = before->kind != LEX_END && (t->kind == LEX_END || (t->begin != p->start && !parse_continues(p)));
    const ast_place end = {before->place.line, before->place.column + (int)(before->end - before->begin)};
    if (ends || t->kind == LEX_END)
        parse_fail(p, ends ? end : t->place, "expected %s, found the end of the %s", expected,
                   t->kind == LEX_END ? "file" : "line");
    else if (t->kind == LEX_BAD)
        parse_fail(p, t->place, "%s", t->problem);
    else
        parse_fail(p, t->place, "expected %s, found '%.*s'", expected, (int)min_i64((int64_t)(t->end - t->begin), 40),
                   p->text + t->begin);
}

bool parse_expect(parser *p, lex_kind kind, const char *where) {
    if (parse_accept(p, kind)) return true;
    char expected[128];
    snprintf(expected, sizeof expected, "'%s'%s", lex_kind_text(kind), where);
    parse_unexpected(p, expected);
    return false;
}

const char *parse_name(parser *p, const char *what) {
    if (!parse_at(p, LEX_NAME)) {
        parse_unexpected(p, what);
        return NULL;
    }
    const char *name = arena_string(p->memory, p->text + p->token.begin, p->token.end - p->token.begin);
    parse_advance(p);
    return name;
}

bool parse_enter(parser *p) {
    if (p->depth < PARSE_DEPTH_LIMIT) {
        p->depth++;
        return true;
    }
    parse_fail(p, p->token.place, "nested deeper than %d levels", PARSE_DEPTH_LIMIT);
    return false;
}
void parse_leave(parser *p) { p->depth--; }

void parse_open(parser *p) {
    p->brackets++;
    parse_advance(p);
}

bool parse_close(parser *p, lex_kind kind, const char *where) {
    if (!parse_expect(p, kind, where)) return false;
    p->brackets--; /* the token behind was read already, but nobody has asked yet whether it continues */
    return true;
}

/* ---- expressions ------------------------------------------------------------------------------------------------ */

static ast_expr *new_expr(parser *p, ast_kind kind, ast_place place) {
    ast_expr *e = ARENA_NEW(p->memory, ast_expr);
    e->kind = kind;
    e->place = place;
    e->op = TILE_OPERATOR_COUNT;
    return e;
}

/* Sets the height of an expression whose highest part has height `below`. */
static ast_expr *with_height(parser *p, ast_expr *e, int below) {
    p->height = below + 1;
    if (p->height <= PARSE_DEPTH_LIMIT) return e;
    parse_fail(p, e->place, "this expression has more than %d operations one upon another; give parts of it names",
               PARSE_DEPTH_LIMIT);
    return NULL;
}

enum {
    LEVEL_OR = 1,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_BIT_OR,
    LEVEL_BIT_XOR,
    LEVEL_BIT_AND,
    LEVEL_SHIFT,
    LEVEL_ADD,
    LEVEL_MULTIPLY
};

static ast_expr *parse_binary(parser *p, int level);

static int taller(const parser *p, int height) { return height > p->height ? height : p->height; }

bool parse_exprs(parser *p, lex_kind closing, const char *where, ast_expr **out) {
    int height = 0;
    do {
        if (!(*out = parse_expr(p))) return false;
        height = taller(p, height);
        out = &(*out)->next;
    } while (parse_accept(p, LEX_COMMA));
    p->height = height;
    return parse_close(p, closing, where);
}

bool parse_items(parser *p, ast_item **out) {
    int height = 0;
    do {
        ast_item *item = *out = ARENA_NEW(p->memory, ast_item);
        out = &item->next;
        item->place = p->token.place;
        if (parse_accept(p, LEX_COLON)) continue;
        if (!(item->start = parse_expr(p))) return false;
        height = taller(p, height);
        if (!parse_accept(p, LEX_COLON)) continue;
        if (!parse_expect(p, LEX_PLUS, " and a size behind ':', as in start : +size")) return false;
        if (!(item->size = parse_binary(p, LEVEL_COMPARE + 1))) return false;
        height = taller(p, height);
        if (!parse_accept(p, LEX_LESS)) continue;
        if (!(item->limit = parse_binary(p, LEVEL_COMPARE + 1))) return false;
        height = taller(p, height);
    } while (parse_accept(p, LEX_COMMA));
    p->height = height;
    return parse_close(p, LEX_BRACKET_END, " or ',' in the slice");
}

/* The arguments of a call, behind "(". */
static bool parse_arguments(parser *p, ast_expr *call) {
    ast_expr **out = &call->arguments;
    int height = 0;
    do {
        if (parse_at_word(p, "axis")) {
            lexer ahead = p->lexer;
            if (lex_next(&ahead).kind == LEX_ASSIGN) {
                if (call->axis) {
                    parse_fail(p, p->token.place, "the axis was given already");
                    return false;
                }
                parse_advance(p);
                parse_advance(p);
                if (!(call->axis = parse_expr(p))) return false;
                height = taller(p, height);
                continue;
            }
        }
        if (!(*out = parse_expr(p))) return false;
        height = taller(p, height);
        out = &(*out)->next;
    } while (parse_accept(p, LEX_COMMA));
    p->height = height;
    return parse_close(p, LEX_PAREN_END, " or ',' in the arguments");
}

/* Behind "name[items]": the arguments of a broadcast f32[2, 3](x), whose extents were read as items. */
static bool items_to_shape(parser *p, const ast_item *items, ast_expr **out) {
    for (const ast_item *i = items; i; i = i->next) {
        if (!i->start || i->size) {
            parse_fail(p, i->place, "expected an extent: what is called is a type with a shape, as in f32[2, 3](x)");
            return false;
        }
        *out = i->start;
        out = &i->start->next;
    }
    return true;
}

static ast_expr *parse_primary(parser *p) {
    const lex_token t = p->token;
    ast_expr *e = NULL;
    p->height = 0;
    switch (t.kind) {
    case LEX_INTEGER:
        e = new_expr(p, AST_INTEGER, t.place);
        e->integer = t.integer;
        break;
    case LEX_FLOAT:
    case LEX_INF:
        e = new_expr(p, AST_FLOAT, t.place);
        e->number = t.kind == LEX_INF ? INFINITY : t.number;
        break;
    case LEX_TRUE:
    case LEX_FALSE:
        e = new_expr(p, AST_BOOL, t.place);
        e->integer = t.kind == LEX_TRUE;
        break;
    case LEX_NAME:
        e = new_expr(p, AST_NAME, t.place);
        e->name = parse_name(p, "");
        return with_height(p, e, 0);
    case LEX_PAREN:
        parse_open(p);
        e = parse_expr(p);
        return e && parse_close(p, LEX_PAREN_END, "") ? e : NULL;
    default:
        parse_unexpected(p, "an expression");
        return NULL;
    }
    parse_advance(p);
    return with_height(p, e, 0);
}

/* A primary and the calls, slices and transposes behind it. */
static ast_expr *parse_postfix(parser *p) {
    ast_expr *e = parse_primary(p);
    int height = p->height;
    while (e && parse_continues(p)) {
        ast_expr *outer;
        const ast_place place = p->token.place;
        if (parse_at(p, LEX_PAREN) && (e->kind == AST_NAME || (e->kind == AST_SLICE && e->a->kind == AST_NAME))) {
            const ast_expr *name = e->kind == AST_NAME ? e : e->a;
            outer = new_expr(p, AST_CALL, name->place);
            outer->name = name->name;
            if (e->kind == AST_SLICE && !items_to_shape(p, e->items, &outer->shape)) return NULL;
            parse_open(p);
            if (!parse_arguments(p, outer)) return NULL;
        } else if (parse_at(p, LEX_BRACKET)) {
            outer = new_expr(p, AST_SLICE, place);
            outer->a = e;
            parse_open(p);
            if (!parse_items(p, &outer->items)) return NULL;
        } else if (parse_accept(p, LEX_DOT)) {
            p->height = height;
            if (!parse_at_word(p, "T")) {
                parse_unexpected(p, "'T' (x.T is the transpose of x)");
                return NULL;
            }
            parse_advance(p);
            outer = new_expr(p, AST_TRANSPOSE, place);
            outer->a = e;
        } else {
            break;
        }
        e = with_height(p, outer, taller(p, height));
        height = p->height;
    }
    p->height = height;
    return e;
}

static ast_expr *parse_unary(parser *p) {
    if (!parse_enter(p)) return NULL;
    const ast_place place = p->token.place;
    ast_expr *e = NULL;
    if (parse_at(p, LEX_NOT)) {
        parse_fail(p, place, "expected an expression, found 'not', which binds loosely: write (not ...)");
    } else if (parse_accept(p, LEX_MINUS)) {
        ast_expr *a = parse_unary(p);
        if (a) {
            e = new_expr(p, AST_UNARY, place);
            e->op = TILE_NEG;
            e->a = a;
            e = with_height(p, e, p->height);
        }
    } else {
        e = parse_postfix(p);
    }
    parse_leave(p);
    return e;
}

typedef struct binary {
    int level;
    tile_operator op;
} binary;

static binary binary_of(lex_kind kind) { /* level 0: none */
    switch (kind) {
    case LEX_OR:
        return (binary){LEVEL_OR, TILE_OR};
    case LEX_AND:
        return (binary){LEVEL_AND, TILE_AND};
    case LEX_EQUAL:
        return (binary){LEVEL_COMPARE, TILE_EQ};
    case LEX_UNEQUAL:
        return (binary){LEVEL_COMPARE, TILE_NE};
    case LEX_LESS:
        return (binary){LEVEL_COMPARE, TILE_LT};
    case LEX_LESS_EQUAL:
        return (binary){LEVEL_COMPARE, TILE_LE};
    case LEX_GREATER:
        return (binary){LEVEL_COMPARE, TILE_GT};
    case LEX_GREATER_EQUAL:
        return (binary){LEVEL_COMPARE, TILE_GE};
    case LEX_BAR:
        return (binary){LEVEL_BIT_OR, TILE_BIT_OR};
    case LEX_CARET:
        return (binary){LEVEL_BIT_XOR, TILE_BIT_XOR};
    case LEX_AMPERSAND:
        return (binary){LEVEL_BIT_AND, TILE_BIT_AND};
    case LEX_SHIFT_LEFT:
        return (binary){LEVEL_SHIFT, TILE_SHL};
    case LEX_SHIFT_RIGHT:
        return (binary){LEVEL_SHIFT, TILE_SHR};
    case LEX_PLUS:
        return (binary){LEVEL_ADD, TILE_ADD};
    case LEX_MINUS:
        return (binary){LEVEL_ADD, TILE_SUB};
    case LEX_STAR:
        return (binary){LEVEL_MULTIPLY, TILE_MUL};
    case LEX_SLASH:
        return (binary){LEVEL_MULTIPLY, TILE_DIV};
    case LEX_PERCENT:
        return (binary){LEVEL_MULTIPLY, TILE_MOD};
    default:
        return (binary){0};
    }
}

/* An expression of operators that bind at least as tightly as `level`. */
static ast_expr *parse_binary(parser *p, int level) {
    ast_expr *left;
    const lex_token first = p->token;
    if (level <= LEVEL_NOT && parse_at(p, LEX_NOT)) {
        if (!parse_enter(p)) return NULL;
        parse_advance(p);
        ast_expr *a = parse_binary(p, LEVEL_NOT);
        parse_leave(p);
        if (!a) return NULL;
        left = new_expr(p, AST_UNARY, first.place);
        left->op = TILE_NOT;
        left->a = a;
        left = with_height(p, left, p->height);
    } else {
        left = parse_unary(p);
    }
    while (left && parse_continues(p)) {
        const binary b = binary_of(p->token.kind);
        if (!b.level || b.level < level) break;
        const int height = p->height;
        ast_expr *e = new_expr(p, AST_BINARY, p->token.place);
        e->op = b.op;
        e->a = left;
        parse_advance(p);
        if (!(e->b = parse_binary(p, b.level + 1))) return NULL;
        left = with_height(p, e, taller(p, height));
        if (b.level == LEVEL_COMPARE && parse_continues(p) && binary_of(p->token.kind).level == LEVEL_COMPARE) {
            parse_fail(p, p->token.place, "comparisons are not chained; join two of them with 'and'");
            return NULL;
        }
    }
    return left;
}

ast_expr *parse_expr(parser *p) { return parse_binary(p, LEVEL_OR); }
