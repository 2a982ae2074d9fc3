/* Proves that decoding a format reads nothing outside of its fields.
 *
 * The value is evaluated for every element with an interval in the place of every integer: the element's index is
 * known, a field can hold whatever its type can. `where` follows the side its condition chooses, and both where that is
 * unknown. What depends on the index alone stays exact. Floats have no intervals: they are only walked through. */
#include "tile/format.h"

#include <stdio.h>

typedef struct interval {
    int64_t low, high;
} interval;

enum { REPORTED_LIMIT = 8 };

typedef struct proof {
    ast_reporter *report;
    const tile_format *format;
    int element;
    ast_place reported[REPORTED_LIMIT]; /* each place is reported for the first element where it fails */
    int reported_count;
} proof;

static const interval everything = {INT32_MIN, INT32_MAX};

static bool is_one(interval v) { return v.low == v.high; }
static interval hull(interval a, interval b) { return (interval){min_i64(a.low, b.low), max_i64(a.high, b.high)}; }
/* Integers wrap: a result that may not fit can be anything. */
static interval wrapped(interval v) { return v.low < INT32_MIN || v.high > INT32_MAX ? everything : v; }

static bool is_news(proof *p, const tile_node *n) {
    for (int i = 0; i < p->reported_count; i++)
        if (p->reported[i].line == n->line && p->reported[i].column == n->column) return false;
    if (p->reported_count == REPORTED_LIMIT) return false;
    p->reported[p->reported_count++] = (ast_place){n->line, n->column};
    return true;
}

/* Reports that `what` is v where it should be from low to high. */
static void complain(proof *p, const tile_node *n, const char *what, interval v, int64_t low, int64_t high) {
    if (!is_news(p, n)) return;
    char value[64];
    if (is_one(v))
        snprintf(value, sizeof value, "is %lld", (long long)v.low);
    else
        snprintf(value, sizeof value, "can be %lld to %lld", (long long)v.low, (long long)v.high);
    ast_report(p->report, (ast_place){n->line, n->column}, "%s %s for element %d, expected %lld to %lld", what, value,
               p->element, (long long)low, (long long)high);
}

static interval field_range(tile_scalar t) {
    if (t.kind == TILE_BOOL) return (interval){0, 1};
    if (t.bits == 32 || t.kind == TILE_FLOAT) return everything;
    return t.kind == TILE_UINT ? (interval){0, ((int64_t)1 << t.bits) - 1}
                               : (interval){-((int64_t)1 << (t.bits - 1)), ((int64_t)1 << (t.bits - 1)) - 1};
}

/* The smallest 2^k - 1 that is at least v. */
static int64_t ones(int64_t v) {
    int64_t mask = 0;
    while (mask < v) mask = mask * 2 + 1;
    return mask;
}

static int64_t corner(tile_operator op, int64_t a, int64_t b) {
    switch (op) {
    case TILE_MUL:
        return a * b;
    case TILE_SHL:
        return a * ((int64_t)1 << b);
    case TILE_SHR:
        return a >> b;
    case TILE_DIV:
        return floor_div(a, b);
    default:
        return -floor_div(-a, b); /* CEIL_DIV */
    }
}

/* Operations that are monotonic in each operand while the other is fixed. */
static interval corners(tile_operator op, interval a, interval b) {
    const int64_t v[4] = {corner(op, a.low, b.low), corner(op, a.low, b.high), corner(op, a.high, b.low),
                          corner(op, a.high, b.high)};
    interval out = {v[0], v[0]};
    for (int i = 1; i < 4; i++) out = hull(out, (interval){v[i], v[i]});
    return wrapped(out);
}

static interval modulo(interval a, interval b) {
    if (b.low > 0) return a.low >= 0 && a.high < b.low ? a : (interval){0, b.high - 1};
    return (interval){b.low + 1, 0};
}

static interval bits(tile_operator op, interval a, interval b) {
    if (op == TILE_BIT_AND && (a.low >= 0 || b.low >= 0))
        return (interval){0, a.low < 0 ? b.high : b.low < 0 ? a.high : min_i64(a.high, b.high)};
    if (a.low < 0 || b.low < 0) return everything;
    return (interval){op == TILE_BIT_OR ? max_i64(a.low, b.low) : 0, ones(max_i64(a.high, b.high))};
}

/* True, false or either. */
static interval less(interval a, interval b) { return (interval){a.high < b.low, a.low < b.high}; }
static interval negated(interval v) { return (interval){!v.high, !v.low}; }
static interval equal(interval a, interval b) {
    return (interval){is_one(a) && is_one(b) && a.low == b.low, a.low <= b.high && b.low <= a.high};
}

static interval operate(proof *p, const tile_node *n, interval a, interval b) {
    switch (n->op) {
    case TILE_NEG:
        return wrapped((interval){-a.high, -a.low});
    case TILE_NOT:
        return negated(a);
    case TILE_ABS:
        return wrapped((interval){a.low > 0 ? a.low : a.high < 0 ? -a.high : 0, max_i64(-a.low, a.high)});
    case TILE_ADD:
        return wrapped((interval){a.low + b.low, a.high + b.high});
    case TILE_SUB:
        return wrapped((interval){a.low - b.high, a.high - b.low});
    case TILE_MUL:
        return corners(n->op, a, b);
    case TILE_DIV:
    case TILE_MOD:
    case TILE_CEIL_DIV:
        if (b.low <= 0 && b.high >= 0) {
            if (is_news(p, n))
                ast_report(p->report, (ast_place){n->line, n->column}, "the divisor %s zero for element %d",
                           is_one(b) ? "is" : "can be", p->element);
            return everything;
        }
        if (a.low == INT32_MIN && b.low <= -1 && b.high >= -1 && is_news(p, n))
            ast_report(p->report, (ast_place){n->line, n->column}, "the quotient -2^31 / -1 does not fit in i32");
        return n->op == TILE_MOD ? modulo(a, b) : corners(n->op, a, b);
    case TILE_SHL:
    case TILE_SHR:
        if (b.low < 0 || b.high > 31) {
            complain(p, n, "the shift", b, 0, 31);
            return everything;
        }
        return corners(n->op, a, b);
    case TILE_MIN:
        return (interval){min_i64(a.low, b.low), min_i64(a.high, b.high)};
    case TILE_MAX:
        return (interval){max_i64(a.low, b.low), max_i64(a.high, b.high)};
    case TILE_AND:
        return (interval){a.low & b.low, a.high & b.high};
    case TILE_OR:
        return (interval){a.low | b.low, a.high | b.high};
    case TILE_BIT_AND:
    case TILE_BIT_OR:
    case TILE_BIT_XOR:
        if (is_one(a) && is_one(b)) {
            const int32_t exact =
                format_operate(n, (format_value){.i = (int32_t)a.low}, (format_value){.i = (int32_t)b.low}).i;
            return (interval){exact, exact};
        }
        return bits(n->op, a, b);
    case TILE_EQ:
        return equal(a, b);
    case TILE_NE:
        return negated(equal(a, b));
    case TILE_LT:
        return less(a, b);
    case TILE_GT:
        return less(b, a);
    case TILE_LE:
        return negated(less(b, a));
    case TILE_GE:
        return negated(less(a, b));
    default:
        return everything;
    }
}

static interval walk(proof *p, const tile_node *n) {
    switch (n->kind) {
    case TILE_CONST:
        return n->type->scalar.kind == TILE_FLOAT ? everything : (interval){n->value.i, n->value.i};
    case TILE_FORMAT_INDEX:
        return (interval){p->element, p->element};
    case TILE_FIELD: {
        const tile_field *field = &p->format->body->fields[n->index];
        const interval v = walk(p, n->a);
        if (v.low < 0 || v.high >= field->count) {
            char what[160];
            snprintf(what, sizeof what, "the index of '%s'", field->name);
            complain(p, n, what, v, 0, field->count - 1);
        }
        return field_range(field->type->scalar);
    }
    case TILE_SELECT: {
        const interval c = walk(p, n->a);
        if (is_one(c)) return walk(p, c.low ? n->b : n->c);
        const interval b = walk(p, n->b);
        return hull(b, walk(p, n->c));
    }
    case TILE_CAST: {
        const interval v = walk(p, n->a);
        return n->type->scalar.kind == TILE_FLOAT || n->a->type->scalar.kind == TILE_FLOAT ? everything : v;
    }
    default: {
        const interval a = walk(p, n->a), b = n->b ? walk(p, n->b) : a;
        if (n->a->type->scalar.kind != TILE_FLOAT) return operate(p, n, a, b);
        return n->type->scalar.kind == TILE_BOOL ? (interval){0, 1} : everything;
    }
    }
}

bool format_prove(ast_reporter *report, const tile_format *f) {
    proof p = {.report = report, .format = f};
    for (; p.element < f->block; p.element++) walk(&p, f->body->value);
    return p.reported_count == 0;
}
