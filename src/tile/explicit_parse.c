/* The statements of level 2, from their text (docs/level2.md has the grammar). Their first words are no reserved words:
 * `shared`, `barrier`, `unordered`, `reg` and `role` are meant where a name follows, and those of what a role does in
 * front of "(".
 */
#include "tile/parse.h"

/* (expr), behind a word. */
static bool parse_number(parser *p, const char *word, ast_expr **out) {
    parse_advance(p);
    if (!parse_at(p, LEX_PAREN)) {
        parse_unexpected(p, word);
        return false;
    }
    parse_open(p);
    return (*out = parse_expr(p)) && parse_close(p, LEX_PAREN_END, " behind the number");
}

/* [expr], if it is there. */
static bool parse_count(parser *p, ast_level2 *x) {
    if (!parse_at(p, LEX_BRACKET) || !parse_continues(p)) return true;
    parse_open(p);
    return (x->count = parse_expr(p)) && parse_close(p, LEX_BRACKET_END, " behind the number of them");
}

/* : type[extents] */
static bool parse_shape(parser *p, ast_statement *s) {
    if (!parse_expect(p, LEX_COLON, " and a type")) return false;
    if (!(s->type = parse_name(p, "a type"))) return false;
    if (!parse_at(p, LEX_BRACKET) || !parse_continues(p)) return parse_expect(p, LEX_BRACKET, " and the extents");
    parse_open(p);
    return parse_exprs(p, LEX_BRACKET_END, " or ',' in the extents", &s->shape);
}

/* shared name[count]: type[shape] pages|resident swizzle(bytes)|rows(elements) */
static bool parse_shared(parser *p, ast_statement *s) {
    ast_level2 *x = s->level2;
    s->kind = AST_SHARED;
    if (!(s->name = parse_name(p, "a name")) || !parse_count(p, x) || !parse_shape(p, s)) return false;
    while (parse_continues(p) && parse_at(p, LEX_NAME)) {
        if (parse_at_word(p, "pages") || parse_at_word(p, "resident")) {
            x->is_pages = parse_at_word(p, "pages");
            parse_advance(p);
        } else if (parse_at_word(p, "swizzle")) {
            if (!parse_number(p, "'(' and 128, 64 or 32 bytes", &x->swizzle)) return false;
        } else if (parse_at_word(p, "rows")) {
            if (!parse_number(p, "'(' and the elements from one row to the next", &x->rows)) return false;
        } else
            break;
    }
    if (parse_continues(p) && parse_at(p, LEX_NAME)) {
        parse_unexpected(p, "'pages', 'resident', 'swizzle', 'rows' or the end of the statement");
        return false;
    }
    return parse_end(p);
}

/* barrier name[count] (role, role) */
static bool parse_barrier(parser *p, ast_statement *s) {
    s->kind = AST_BARRIER;
    if (!(s->name = parse_name(p, "a name")) || !parse_count(p, s->level2)) return false;
    if (!parse_at(p, LEX_PAREN) || !parse_continues(p)) {
        parse_unexpected(p, "'(' and the roles that arrive, as in (loader)");
        return false;
    }
    parse_open(p);
    return parse_exprs(p, LEX_PAREN_END, " or ',' in the roles", &s->level2->arguments) && parse_end(p);
}

/* unordered name, name */
static bool parse_unordered(parser *p, ast_statement *s) {
    ast_expr **out = &s->level2->arguments;
    s->kind = AST_UNORDERED;
    do {
        ast_expr *n = *out = ARENA_NEW(p->memory, ast_expr);
        n->kind = AST_NAME;
        n->place = p->token.place;
        if (!(n->name = parse_name(p, "the name of a tensor"))) return false;
        out = &n->next;
    } while (parse_continues(p) && parse_accept(p, LEX_COMMA));
    return parse_end(p);
}

/* warps = n, warpgroups = n or registers = n. */
static bool parse_role_number(parser *p, ast_level2 *x) {
    const bool registers = parse_at_word(p, "registers"), groups = parse_at_word(p, "warpgroups");
    if (!registers && !groups && !parse_at_word(p, "warps")) {
        parse_unexpected(p, "'warps', 'warpgroups' or 'registers'");
        return false;
    }
    ast_expr **out = registers ? &x->registers : &x->count;
    x->is_groups |= groups;
    if (*out) {
        parse_unexpected(p, "each number once");
        return false;
    }
    parse_advance(p);
    return parse_expect(p, LEX_ASSIGN, " and a number") && (*out = parse_expr(p));
}

/* role name (warps = n, registers = n) { statements } */
static bool parse_role(parser *p, ast_statement *s) {
    s->kind = AST_ROLE;
    if (!(s->name = parse_name(p, "a name"))) return false;
    if (parse_at(p, LEX_PAREN)) {
        parse_open(p);
        do
            if (!parse_role_number(p, s->level2)) return false;
        while (parse_accept(p, LEX_COMMA));
        if (!parse_close(p, LEX_PAREN_END, " behind the number")) return false;
    }
    return parse_block(p, &s->body);
}

/* reg name: type[shape] in factor(...).factor(...) = value */
static bool parse_register(parser *p, ast_statement *s) {
    s->kind = AST_DECLARE;
    if (!(s->name = parse_name(p, "a name")) || !parse_shape(p, s)) return false;
    if (parse_continues(p) && parse_accept(p, LEX_IN)) {
        ast_expr **out = &s->level2->layout;
        do {
            ast_expr *f = *out = ARENA_NEW(p->memory, ast_expr);
            out = &f->next;
            f->kind = AST_CALL;
            f->place = p->token.place;
            if (!(f->name = parse_name(p, "a layout, as in spatial(8, 4)"))) return false;
            if (!parse_at(p, LEX_PAREN)) return parse_expect(p, LEX_PAREN, " and the layout's extents");
            parse_open(p);
            if (!parse_exprs(p, LEX_PAREN_END, " or ',' in the layout's extents", &f->arguments)) return false;
        } while (parse_continues(p) && parse_accept(p, LEX_DOT));
    }
    return parse_expect(p, LEX_ASSIGN, " and the first value") && (s->value = parse_expr(p)) && parse_end(p);
}

/* name(arguments) */
static bool parse_do(parser *p, ast_statement *s) {
    s->kind = AST_DO;
    s->name = parse_name(p, "a statement");
    parse_open(p);
    if (parse_at(p, LEX_PAREN_END)) return parse_close(p, LEX_PAREN_END, "") && parse_end(p);
    return parse_exprs(p, LEX_PAREN_END, " or ',' in the arguments", &s->level2->arguments) && parse_end(p);
}

bool explicit_parse(parser *p, ast_statement *s, bool *mine) {
    static const struct {
        const char *word;
        bool (*parse)(parser *p, ast_statement *s);
    } words[] = {{"shared", parse_shared},
                 {"barrier", parse_barrier},
                 {"reg", parse_register},
                 {"role", parse_role},
                 {"unordered", parse_unordered}};
    static const char *const actions[] = {
        "wait",  "arrive", "expect",     "copy",       "mma",        "wgmma",      "commit",    "wait_group",
        "sync",  "store",  "atomic_add", "atomic_min", "atomic_max", "atomic_and", "atomic_or", "atomic_exchange",
        "stamp", "post",   "take"};
    lexer ahead = p->lexer;
    const lex_token next = lex_next(&ahead);
    *mine = !next.starts_line && (next.kind == LEX_NAME || next.kind == LEX_PAREN);
    if (!*mine) return false;
    size_t k = 0;
    while (k < COUNT_OF(words) && (next.kind != LEX_NAME || !parse_at_word(p, words[k].word))) k++;
    *mine = k < COUNT_OF(words);
    for (size_t i = 0; i < COUNT_OF(actions) && next.kind == LEX_PAREN; i++) *mine |= parse_at_word(p, actions[i]);
    if (!*mine) return false;
    s->level2 = ARENA_NEW(p->memory, ast_level2);
    if (k == COUNT_OF(words)) return parse_do(p, s);
    parse_advance(p);
    return words[k].parse(p, s);
}
