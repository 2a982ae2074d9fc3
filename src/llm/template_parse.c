/* From the text of a chat template to its tree: lexer and recursive descent, after the grammar of Jinja 2.
 *
 * White space around tags goes as in Jinja with trim_blocks and lstrip_blocks: a newline behind a statement or comment
 * is dropped, and so is white space before it, back to the beginning of the line; "-" at either side of a tag drops all
 * white space there, "+" none. Names of filters, tests, methods and functions are not checked here: templates carry
 * branches (for tools, mostly) that a plain conversation never reaches. */
#include <setjmp.h>
#include <stdio.h>
#include <utf8proc.h>

#include "llm/template.h"

enum { NESTING_LIMIT = 200, DEPTH_LIMIT = 400, JOINED_LIMIT = 100 };

typedef enum token_kind { TOKEN_NAME, TOKEN_STRING, TOKEN_INTEGER, TOKEN_SIGN, TOKEN_TAG_END, TOKEN_END } token_kind;

typedef struct parser {
    mt_template *t;
    const char *s;
    size_t length, at;
    char closer;  /* '%' or '}': which tag we are in */
    int brackets; /* open ones in this tag: inside of them "}}" ends no tag */
    int nesting, loops;
    token_kind token;
    size_t token_at;
    text value; /* of a name or string */
    int64_t integer;
    int sign; /* one character, or two: '=' << 8 | '=' */
    jmp_buf trap;
    mt_error *error;
    mt_status status;
} parser;

/* Characters ------------------------------------------------------------------------------------------------------- */

size_t template_character(const char *s, size_t n, int32_t *c) {
    const utf8proc_ssize_t length = utf8proc_iterate((const uint8_t *)s, (utf8proc_ssize_t)n, c);
    if (length > 0) return (size_t)length;
    *c = -1;
    return 1;
}

bool template_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t template_leading_space(const char *s, size_t n) {
    size_t i = 0;
    for (int32_t c; i < n;) {
        const size_t length = template_character(s + i, n - i, &c);
        if (!template_is_space(c)) break;
        i += length;
    }
    return i;
}

size_t template_trailing_space(const char *s, size_t n) {
    size_t end = n;
    while (end) {
        size_t start = end - 1;
        while (start && end - start < 4 && ((unsigned char)s[start] & 0xC0) == 0x80) start--;
        int32_t c;
        if (template_character(s + start, end - start, &c) != end - start || !template_is_space(c)) break;
        end = start;
    }
    return n - end;
}

void template_where(const mt_template *t, size_t at, char out[64]) {
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at && i < t->length; i++)
        if (t->source[i] == '\n') line++, start = i + 1;
    snprintf(out, 64, "chat template:%zu:%zu", line, at - start + 1);
}

/* Lexer ------------------------------------------------------------------------------------------------------------ */

static _Noreturn void PRINTF_LIKE(4, 5) fail(parser *p, size_t at, mt_status status, const char *format, ...) {
    char where[64], message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    template_where(p->t, at, where);
    p->status = error_set(p->error, status, where, "%s", message);
    longjmp(p->trap, 1);
}

static void deeper(parser *p, size_t at) {
    if (++p->nesting > NESTING_LIMIT)
        fail(p, at, MT_E_LIMIT, "The chat template is nested more than %d deep.", NESTING_LIMIT);
}

static bool starts(const parser *p, size_t at, const char *s) {
    const size_t n = strlen(s);
    return p->length - at >= n && !memcmp(p->s + at, s, n);
}

static int hexadecimal(parser *p, int digits) {
    int value = 0;
    for (; digits; digits--, p->at++) {
        const char c = p->at < p->length ? p->s[p->at] : 0;
        const int digit = c >= '0' && c <= '9'                 ? c - '0'
                          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                               : -1;
        if (digit < 0 || value > 0x10FFFF) fail(p, p->token_at, MT_E_FORMAT, "A string has a broken escape.");
        value = value * 16 + digit;
    }
    return value;
}

/* What follows a backslash, as in Python; an unknown escape stands for itself. */
static void lex_escape(parser *p) {
    static const char names[] = "ntr\\'\"abfv\n", meanings[] = "\n\t\r\\'\"\a\b\f\v";
    if (p->at == p->length) return;
    const char c = p->s[p->at++], *known = c ? strchr(names, c) : NULL;
    if (known) {
        text_append(&p->value, &meanings[known - names], c != '\n');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        uint8_t bytes[4];
        const int code = hexadecimal(p, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        const utf8proc_ssize_t n =
            code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : utf8proc_encode_char(code, bytes);
        if (n <= 0) fail(p, p->token_at, MT_E_UNSUPPORTED, "A string has an escape for half a character.");
        text_append(&p->value, bytes, (size_t)n);
    } else if (c == 'N' || (c >= '0' && c <= '7') || (unsigned char)c >= 0x80) {
        fail(p, p->token_at, MT_E_UNSUPPORTED, "A string has the escape \"\\%c\", which is not supported.",
             (unsigned char)c < 0x80 ? c : '?');
    } else {
        text_append(&p->value, (char[]){'\\', c}, 2);
    }
}

static void lex_integer(parser *p) {
    p->token = TOKEN_INTEGER;
    p->integer = 0;
    for (; p->at < p->length && p->s[p->at] >= '0' && p->s[p->at] <= '9'; p->at++)
        if (__builtin_mul_overflow(p->integer, 10, &p->integer) ||
            __builtin_add_overflow(p->integer, p->s[p->at] - '0', &p->integer))
            fail(p, p->token_at, MT_E_LIMIT, "The number is too large.");
    const char c = p->at < p->length ? p->s[p->at] : 0, after = p->at + 1 < p->length ? p->s[p->at + 1] : 0;
    const bool index = p->token_at && p->s[p->token_at - 1] == '.'; /* of x.1.2 */
    if ((c == '.' && after >= '0' && after <= '9' && !index) || (c | 32) == 'e' || (c | 32) == 'x' || c == '_')
        fail(p, p->token_at, MT_E_UNSUPPORTED, "Only decimal integers are supported.");
}

/* The end of the tag, and the white space that goes with it. */
static bool lex_tag_end(parser *p) {
    const char end[] = {p->closer, '}', 0};
    const char sign = p->s[p->at];
    const bool marked = sign == '-' || (sign == '+' && p->closer != '}');
    if (p->brackets || !starts(p, p->at + marked, end)) return false;
    p->at += marked + 2u;
    if (sign == '-')
        p->at += template_leading_space(p->s + p->at, p->length - p->at);
    else if (p->closer != '}' && sign != '+' && starts(p, p->at, "\n"))
        p->at++;
    p->token = TOKEN_TAG_END;
    return true;
}

static void advance(parser *p) {
    static const char *const doubles[] = {"==", "!=", "<=", ">=", "//", "**"};
    p->at += template_leading_space(p->s + p->at, p->length - p->at);
    p->token_at = p->at;
    p->token = TOKEN_END;
    if (p->at == p->length || lex_tag_end(p)) return;
    const char c = p->s[p->at];
    p->value.length = 0;
    text_append(&p->value, "", 0);
    if (((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_') {
        size_t n = 0;
        for (char d; p->at + n < p->length; n++) {
            d = p->s[p->at + n];
            if (!(((d | 32) >= 'a' && (d | 32) <= 'z') || (d >= '0' && d <= '9') || d == '_')) break;
        }
        p->token = TOKEN_NAME;
        text_append(&p->value, p->s + p->at, n);
        p->at += n;
    } else if (c >= '0' && c <= '9') {
        lex_integer(p);
    } else if (c == '"' || c == '\'') {
        p->token = TOKEN_STRING;
        for (p->at++; p->at < p->length && p->s[p->at] != c;) {
            if (p->s[p->at++] == '\\')
                lex_escape(p);
            else
                text_append(&p->value, p->s + p->at - 1, 1);
        }
        if (p->at++ >= p->length) fail(p, p->token_at, MT_E_FORMAT, "The string does not end.");
    } else if ((c && strchr("()[]{}.,:|=<>+-*/%~", c)) || starts(p, p->at, "!=")) {
        p->token = TOKEN_SIGN;
        p->sign = c;
        for (size_t i = 0; i < COUNT_OF(doubles); i++)
            if (starts(p, p->at, doubles[i])) p->sign = c << 8 | doubles[i][1];
        p->at += p->sign > 255 ? 2 : 1;
        p->brackets += strchr("([{", c) ? 1 : strchr(")]}", c) ? -1 : 0;
    } else {
        fail(p, p->at, MT_E_FORMAT, "The character \"%c\" has no place in an expression.",
             (unsigned char)c >= 32 && (unsigned char)c < 127 ? c : '?');
    }
    if (p->value.failed) fail(p, p->at, MT_E_MEMORY, "Out of memory.");
}

static bool is_name(const parser *p, const char *name) {
    return p->token == TOKEN_NAME && !strcmp(p->value.data, name);
}
static bool is_sign(const parser *p, int sign) { return p->token == TOKEN_SIGN && p->sign == sign; }

static _Noreturn void expected(parser *p, const char *what) {
    static const char *const tokens[] = {NULL, "a string",           "a number",
                                         NULL, "the end of the tag", "the end of the template"};
    char sign[3] = {(char)(p->sign > 255 ? p->sign >> 8 : p->sign), (char)(p->sign > 255 ? p->sign & 255 : 0), 0};
    const char *found = p->token == TOKEN_NAME ? p->value.data : p->token == TOKEN_SIGN ? sign : tokens[p->token];
    fail(p, p->token_at, MT_E_FORMAT, "Expected %s, but found %.60s.", what, found);
}

static bool skip_sign(parser *p, int sign) {
    const bool found = is_sign(p, sign);
    if (found) advance(p);
    return found;
}

static bool skip_name(parser *p, const char *name) {
    const bool found = is_name(p, name);
    if (found) advance(p);
    return found;
}

static void expect_sign(parser *p, int sign) {
    const char what[] = {'"', (char)sign, '"', 0};
    if (!skip_sign(p, sign)) expected(p, what);
}

/* Leaves the tag: afterwards `at` is in the text behind it, and the next token is not read. */
static void expect_tag_end(parser *p) {
    if (p->token != TOKEN_TAG_END) expected(p, "the end of the tag");
}

/* Expressions ------------------------------------------------------------------------------------------------------ */

static void deepen(parser *p, template_node *n, const template_node *child) {
    if (child && n->depth <= child->depth) n->depth = child->depth + 1;
    if (n->depth > DEPTH_LIMIT)
        fail(p, n->at, MT_E_LIMIT, "The expression is more than %d operations deep.", DEPTH_LIMIT);
}

static template_node *make(parser *p, template_kind kind, size_t at, template_node *a, template_node *b) {
    template_node *n = ARENA_NEW(p->t->arena, template_node);
    *n = (template_node){.kind = kind, .at = at, .a = a, .b = b};
    deepen(p, n, a);
    deepen(p, n, b);
    return n;
}

/* Takes the token's text. */
static void take_text(parser *p, template_node *n) {
    n->length = p->value.length;
    n->s = arena_string(p->t->arena, p->value.data, p->value.length);
    advance(p);
}

static void take_name(parser *p, template_node *n) {
    if (p->token != TOKEN_NAME) expected(p, "a name");
    take_text(p, n);
}

static template_node *parse_expression(parser *p);
static template_node *parse_unary(parser *p, bool filters);

/* Expressions with commas between them up to the sign `end`, which is taken. Returns whether there was a comma. */
static bool parse_arguments(parser *p, template_node *owner, int end, bool keywords) {
    template_node **last = &owner->args;
    bool comma = false;
    while (!skip_sign(p, end)) {
        template_node *n = parse_expression(p);
        if (keywords && n->kind == NODE_NAME && skip_sign(p, '=')) {
            const char *keyword = n->s;
            n = parse_expression(p);
            n->keyword = keyword;
        }
        deepen(p, owner, n);
        *last = n;
        last = &n->next;
        if (is_sign(p, ','))
            comma = true, advance(p);
        else if (!is_sign(p, end))
            expected(p, "a comma or the closing bracket");
    }
    return comma;
}

static template_node *parse_primary(parser *p) {
    const size_t at = p->token_at;
    template_node *n;
    if (p->token == TOKEN_NAME) {
        static const struct {
            const char *name;
            template_kind kind;
            int64_t i;
        } constants[] = {{"true", NODE_BOOL, 1},  {"True", NODE_BOOL, 1}, {"false", NODE_BOOL, 0},
                         {"False", NODE_BOOL, 0}, {"none", NODE_NONE, 0}, {"None", NODE_NONE, 0}};
        n = make(p, NODE_NAME, at, NULL, NULL);
        take_name(p, n);
        for (size_t i = 0; i < COUNT_OF(constants); i++)
            if (!strcmp(n->s, constants[i].name)) n->kind = constants[i].kind, n->i = constants[i].i;
    } else if (p->token == TOKEN_STRING) {
        n = make(p, NODE_STRING, at, NULL, NULL);
        take_text(p, n);
        for (int count = 1; p->token == TOKEN_STRING; count++) { /* strings side by side are one */
            if (count == JOINED_LIMIT)
                fail(p, at, MT_E_LIMIT, "More than %d strings stand side by side.", JOINED_LIMIT);
            const template_node before = *n;
            char *joined = arena_alloc(p->t->arena, before.length + p->value.length + 1);
            memcpy(joined, before.s, before.length);
            take_text(p, n);
            memcpy(joined + before.length, n->s, n->length);
            n->s = joined;
            n->length += before.length;
        }
    } else if (p->token == TOKEN_INTEGER) {
        n = make(p, NODE_INTEGER, at, NULL, NULL);
        n->i = p->integer;
        advance(p);
    } else if (skip_sign(p, '(')) { /* a tuple is a list here */
        n = make(p, NODE_LIST, at, NULL, NULL);
        if (!parse_arguments(p, n, ')', false) && n->args) n = n->args;
    } else if (skip_sign(p, '[')) {
        n = make(p, NODE_LIST, at, NULL, NULL);
        parse_arguments(p, n, ']', false);
    } else if (skip_sign(p, '{')) {
        n = make(p, NODE_DICT, at, NULL, NULL);
        for (template_node **last = &n->args; !skip_sign(p, '}');) {
            template_node *key = parse_expression(p);
            expect_sign(p, ':');
            key->next = parse_expression(p);
            deepen(p, n, key);
            deepen(p, n, key->next);
            *last = key;
            last = &key->next->next;
            if (!skip_sign(p, ',') && !is_sign(p, '}')) expected(p, "a comma or \"}\"");
        }
    } else {
        expected(p, "an expression");
    }
    return n;
}

static template_node *parse_subscript(parser *p, template_node *of, size_t at) {
    template_node *part[3] = {NULL};
    int colons = 0;
    for (;;) {
        if (skip_sign(p, ':')) {
            if (++colons > 2) expected(p, "\"]\"");
        } else if (is_sign(p, ']')) {
            break;
        } else {
            if (part[colons]) expected(p, "\":\" or \"]\"");
            part[colons] = parse_expression(p);
        }
    }
    if (!colons && !part[0]) expected(p, "an index");
    advance(p);
    template_node *n = make(p, colons ? NODE_SLICE : NODE_INDEX, at, of, part[0]);
    deepen(p, n, n->c = part[1]);
    deepen(p, n, n->d = part[2]);
    return n;
}

static template_node *parse_call(parser *p, template_node *of, size_t at) {
    template_node *n = make(p, NODE_CALL, at, of, NULL);
    parse_arguments(p, n, ')', true);
    return n;
}

static template_node *parse_postfix(parser *p, template_node *n) {
    for (;;) {
        const size_t at = p->token_at;
        if (skip_sign(p, '.')) {
            n = make(p, NODE_ATTRIBUTE, at, n, NULL);
            if (p->token == TOKEN_INTEGER) {
                n->kind = NODE_INDEX;
                n->b = parse_primary(p);
            } else {
                take_name(p, n);
            }
        } else if (skip_sign(p, '[')) {
            n = parse_subscript(p, n, at);
        } else if (skip_sign(p, '(')) {
            n = parse_call(p, n, at);
        } else {
            return n;
        }
    }
}

/* A test's argument may stand without brackets. As in Jinja only three words are known not to begin one. */
static bool at_argument(const parser *p) {
    if (p->token == TOKEN_NAME) return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
    return p->token == TOKEN_STRING || p->token == TOKEN_INTEGER || is_sign(p, '[') || is_sign(p, '{');
}

static template_node *parse_filters(parser *p, template_node *n) {
    for (;;) {
        const size_t at = p->token_at;
        if (skip_sign(p, '|')) {
            n = make(p, NODE_FILTER, at, n, NULL);
            take_name(p, n);
            if (skip_sign(p, '(')) parse_arguments(p, n, ')', true);
        } else if (skip_name(p, "is")) {
            const bool negative = skip_name(p, "not");
            n = make(p, NODE_TEST, at, n, NULL);
            take_name(p, n);
            if (skip_sign(p, '('))
                parse_arguments(p, n, ')', true);
            else if (at_argument(p))
                deepen(p, n, n->args = parse_postfix(p, parse_primary(p)));
            if (negative) n = make(p, NODE_NOT, at, n, NULL);
        } else if (skip_sign(p, '(')) {
            n = parse_call(p, n, at);
        } else {
            return n;
        }
    }
}

static template_node *parse_unary(parser *p, bool filters) {
    const size_t at = p->token_at;
    template_node *n;
    deeper(p, at);
    if (skip_sign(p, '-'))
        n = make(p, NODE_NEGATE, at, parse_unary(p, false), NULL);
    else
        n = parse_primary(p);
    p->nesting--;
    n = parse_postfix(p, n);
    return filters ? parse_filters(p, n) : n;
}

enum { LEVEL_OR, LEVEL_AND, LEVEL_COMPARE, LEVEL_ADD, LEVEL_CONCATENATE, LEVEL_MULTIPLY, LEVEL_UNARY };

/* The operator of this level that comes next; false when there is none. It is not taken. */
static bool operator_at(parser *p, int level, template_kind *kind) {
    static const struct {
        int level;
        const char *name;
        int sign;
        template_kind kind;
    } operators[] = {
        {LEVEL_OR, "or", 0, NODE_OR},
        {LEVEL_AND, "and", 0, NODE_AND},
        {LEVEL_COMPARE, NULL, '=' << 8 | '=', NODE_EQUAL},
        {LEVEL_COMPARE, NULL, '!' << 8 | '=', NODE_NOT_EQUAL},
        {LEVEL_COMPARE, NULL, '<', NODE_LESS},
        {LEVEL_COMPARE, NULL, '<' << 8 | '=', NODE_LESS_EQUAL},
        {LEVEL_COMPARE, NULL, '>', NODE_GREATER},
        {LEVEL_COMPARE, NULL, '>' << 8 | '=', NODE_GREATER_EQUAL},
        {LEVEL_COMPARE, "in", 0, NODE_IN},
        {LEVEL_COMPARE, "not", 0, NODE_NOT_IN},
        {LEVEL_ADD, NULL, '+', NODE_ADD},
        {LEVEL_ADD, NULL, '-', NODE_SUBTRACT},
        {LEVEL_CONCATENATE, NULL, '~', NODE_CONCATENATE},
        {LEVEL_MULTIPLY, NULL, '*', NODE_MULTIPLY},
        {LEVEL_MULTIPLY, NULL, '/', NODE_DIVIDE},
        {LEVEL_MULTIPLY, NULL, '/' << 8 | '/', NODE_FLOOR_DIVIDE},
        {LEVEL_MULTIPLY, NULL, '%', NODE_MODULO},
    };
    for (size_t i = 0; i < COUNT_OF(operators); i++)
        if (operators[i].level == level &&
            (operators[i].name ? is_name(p, operators[i].name) : is_sign(p, operators[i].sign))) {
            *kind = operators[i].kind;
            return true;
        }
    return false;
}

static template_node *parse_binary(parser *p, int level) {
    const size_t start = p->token_at;
    template_kind kind;
    if (level == LEVEL_UNARY) {
        template_node *n = parse_unary(p, true);
        if (is_sign(p, '*' << 8 | '*')) fail(p, p->token_at, MT_E_UNSUPPORTED, "The operator \"**\" is not supported.");
        return n;
    }
    if (level == LEVEL_COMPARE && skip_name(p, "not")) {
        deeper(p, start);
        template_node *n = make(p, NODE_NOT, start, parse_binary(p, level), NULL);
        p->nesting--;
        return n;
    }
    template_node *left = parse_binary(p, level + 1);
    for (int count = 0; operator_at(p, level, &kind); count++) {
        const size_t at = p->token_at;
        if (level == LEVEL_COMPARE && count) fail(p, at, MT_E_UNSUPPORTED, "Comparisons in a chain are not supported.");
        advance(p);
        if (kind == NODE_NOT_IN && !skip_name(p, "in")) expected(p, "\"in\" after \"not\"");
        left = make(p, kind, at, left, parse_binary(p, level + 1));
    }
    return left;
}

static template_node *parse_expression(parser *p) {
    deeper(p, p->token_at);
    template_node *n = parse_binary(p, LEVEL_OR);
    for (size_t at = p->token_at; skip_name(p, "if"); at = p->token_at) {
        n = make(p, NODE_CHOOSE, at, n, parse_binary(p, LEVEL_OR));
        if (skip_name(p, "else")) deepen(p, n, n->c = parse_expression(p));
    }
    p->nesting--;
    return n;
}

/* Statements ------------------------------------------------------------------------------------------------------- */

/* Statements up to one of the words in `ends`, whose tag has been entered: it is the current token, its tag not yet
 * left. Without `ends`, up to the end of the template. */
static template_node *parse_body(parser *p, const char *const *ends);

static template_node *parse_if(parser *p, size_t at) {
    static const char *const more[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    template_node *n = make(p, NODE_IF, at, NULL, NULL), **next = &n->args;
    bool condition = true;
    do {
        template_node *branch = *next = make(p, NODE_BRANCH, at, condition ? parse_binary(p, LEVEL_OR) : NULL, NULL);
        expect_tag_end(p);
        branch->body = parse_body(p, condition ? more : last);
        next = &branch->next;
        condition = is_name(p, "elif");
    } while (skip_name(p, "elif") || skip_name(p, "else"));
    advance(p); /* endif */
    return n;
}

static template_node *parse_for(parser *p, size_t at) {
    static const char *const ends[] = {"else", "endfor", NULL};
    template_node *n = make(p, NODE_FOR, at, NULL, NULL), **next = &n->args;
    const bool bracket = skip_sign(p, '(');
    do {
        *next = make(p, NODE_NAME, p->token_at, NULL, NULL);
        take_name(p, *next);
        next = &(*next)->next;
    } while (skip_sign(p, ','));
    if (bracket) expect_sign(p, ')');
    if (!skip_name(p, "in")) expected(p, "\"in\"");
    n->a = parse_binary(p, LEVEL_OR);
    if (skip_name(p, "if")) n->b = parse_expression(p);
    if (is_name(p, "recursive")) fail(p, p->token_at, MT_E_UNSUPPORTED, "Recursive loops are not supported.");
    expect_tag_end(p);
    p->loops++;
    n->body = parse_body(p, ends);
    p->loops--;
    if (skip_name(p, "else")) {
        expect_tag_end(p);
        n->otherwise = parse_body(p, ends + 1);
    }
    advance(p); /* endfor */
    return n;
}

static template_node *parse_set(parser *p, size_t at) {
    static const char *const ends[] = {"endset", NULL};
    template_node *n = make(p, NODE_SET, at, NULL, NULL);
    take_name(p, n);
    if (is_sign(p, '.')) {
        template_node *owner = make(p, NODE_NAME, p->token_at, NULL, NULL);
        owner->s = n->s;
        owner->length = n->length;
        n->c = owner;
        advance(p);
        take_name(p, n);
    }
    if (skip_sign(p, '=')) {
        n->a = parse_expression(p);
        if (is_sign(p, ',')) fail(p, p->token_at, MT_E_UNSUPPORTED, "A tuple without brackets is not supported.");
        return n;
    }
    if (is_sign(p, ',')) fail(p, p->token_at, MT_E_UNSUPPORTED, "Setting several names at once is not supported.");
    if (is_sign(p, '|')) fail(p, p->token_at, MT_E_UNSUPPORTED, "A filter on a block of set is not supported.");
    expect_tag_end(p);
    const int loops = p->loops;
    p->loops = 0; /* break and continue cannot leave it */
    n->body = parse_body(p, ends);
    p->loops = loops;
    advance(p);
    return n;
}

/* The current token is the statement's word. Returns with its last tag left. */
static template_node *parse_statement(parser *p) {
    static const char *const generation[] = {"endgeneration", NULL}, *const misplaced[] = {"elif", "else", "endif",
                                                                                           "endfor", "endset"};
    const size_t at = p->token_at;
    template_node *n = NULL;
    deeper(p, at);
    if (p->token != TOKEN_NAME) expected(p, "a statement");
    for (size_t i = 0; i < COUNT_OF(misplaced); i++)
        if (is_name(p, misplaced[i])) fail(p, at, MT_E_FORMAT, "\"%s\" has no beginning.", misplaced[i]);
    if (skip_name(p, "if")) {
        n = parse_if(p, at);
    } else if (skip_name(p, "for")) {
        n = parse_for(p, at);
    } else if (skip_name(p, "set")) {
        n = parse_set(p, at);
    } else if (skip_name(p, "generation")) { /* marks the assistant's part for training */
        n = make(p, NODE_SCOPE, at, NULL, NULL);
        expect_tag_end(p);
        n->body = parse_body(p, generation);
        advance(p);
    } else if (is_name(p, "break") || is_name(p, "continue")) {
        if (!p->loops) fail(p, at, MT_E_FORMAT, "\"%s\" stands outside of a loop.", p->value.data);
        n = make(p, is_name(p, "break") ? NODE_BREAK : NODE_CONTINUE, at, NULL, NULL);
        advance(p);
    } else {
        fail(p, at, MT_E_UNSUPPORTED, "The statement \"%.60s\" is not supported.", p->value.data);
    }
    expect_tag_end(p);
    p->nesting--;
    return n;
}

/* Text up to the next tag, whose opening is taken; *tag is '{', '%', '#', or 0 at the end. */
static template_node *parse_text(parser *p, char *tag) {
    const size_t start = p->at;
    size_t end = start;
    *tag = 0;
    while (end < p->length && !(starts(p, end, "{{") || starts(p, end, "{%") || starts(p, end, "{#"))) end++;
    size_t length = end - start;
    p->at = end;
    if (end < p->length) {
        *tag = p->s[end + 1];
        p->at += 2;
        const char sign = p->at < p->length ? p->s[p->at] : 0;
        p->at += sign == '-' || sign == '+';
        if (sign == '-') {
            length -= template_trailing_space(p->s + start, length);
        } else if (sign != '+' && *tag != '{') {
            size_t line = length;
            while (line && p->s[start + line - 1] != '\n') line--;
            const bool whole = line || !start || p->s[start - 1] == '\n'; /* the line begins in this text */
            if (whole && template_leading_space(p->s + start + line, length - line) == length - line) length = line;
        }
    }
    if (!length) return NULL;
    template_node *n = make(p, NODE_TEXT, start, NULL, NULL);
    n->s = arena_string(p->t->arena, p->s + start, length);
    n->length = length;
    return n;
}

static void skip_comment(parser *p, size_t start) {
    size_t end = p->at;
    while (end < p->length && !starts(p, end, "#}")) end++;
    if (end == p->length) fail(p, start, MT_E_FORMAT, "The comment does not end.");
    const char sign = end > p->at ? p->s[end - 1] : 0;
    p->at = end + 2;
    if (sign == '-')
        p->at += template_leading_space(p->s + p->at, p->length - p->at);
    else if (sign != '+' && starts(p, p->at, "\n"))
        p->at++;
}

static template_node *parse_body(parser *p, const char *const *ends) {
    template_node *first = NULL, **last = &first;
    for (;;) {
        char tag;
        template_node *n = parse_text(p, &tag);
        const size_t start = p->at;
        if (n) *last = n, last = &n->next;
        if (tag == '#') {
            skip_comment(p, start);
            continue;
        }
        if (!tag) {
            if (ends) fail(p, p->length, MT_E_FORMAT, "The template ends before \"%s\".", ends[0]);
            return first;
        }
        p->closer = tag == '{' ? '}' : '%';
        p->brackets = 0;
        advance(p);
        if (tag == '{') {
            const size_t at = p->token_at;
            n = make(p, NODE_PRINT, at, parse_expression(p), NULL);
            expect_tag_end(p);
        } else {
            for (const char *const *end = ends; end && *end; end++)
                if (is_name(p, *end)) return first;
            n = parse_statement(p);
        }
        *last = n;
        last = &n->next;
    }
}

static void parse(void *context) {
    parser *p = context;
    if (!setjmp(p->trap)) p->t->body = parse_body(p, NULL);
}

mt_status template_parse(mt_template *t, mt_error *error) {
    parser p = {.t = t, .s = t->source, .length = t->length, .error = error};
    if (!arena_protect(t->arena, parse, &p))
        p.status = error_set(error, MT_E_MEMORY, "chat template", "Out of memory.");
    text_free(&p.value);
    return p.status;
}
