/* Level 2, when all of a program is read: every stage is in range, every copy's bytes are expected, every arrival is
 * one that its barrier counts and somebody waits for, every role does what it may. */
#include "tile/check.h"
#include "tile/explicit.h"

#include <inttypes.h>

const char *const explicit_roles[LEVEL2_ROLES] = {"loader", "consumer", "storer"};

const char *const explicit_atomics[LEVEL2_ATOMICS] = {"add", "min", "max", "and", "or", "exchange"};
const char *const explicit_orders[LEVEL2_ORDERS] = {"relaxed", "acquire", "release", "acq_rel"};
const char *const explicit_scopes[LEVEL2_SCOPES] = {"cta", "gpu"};

static bool has(const tile_statement *s, level2_kind kind, int param) {
    for (; s; s = s->next)
        if ((s->kind == TILE_ACTION && s->action->kind == kind && s->access && s->access->param == param) ||
            has(s->body, kind, param) || has(s->otherwise, kind, param))
            return true;
    return false;
}
bool explicit_has(const tile_op *op, level2_kind kind, int param) { return has(op->body, kind, param); }

static ast_place place_of(const tile_statement *s) { return (ast_place){s->line, s->column}; }

/* ---- ranges ---- */

typedef struct loops {
    const tile_statement **statement;
} loops;

static void find_loops(loops *l, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_FOR) l->statement[s->index] = s;
        find_loops(l, s->body);
        find_loops(l, s->otherwise);
    }
}

typedef struct range {
    bool known;
    int64_t low, high;
} range;

/* The range of an index, as far as the text alone says it; of the variables before the one at hand it is known. */
static range range_of(const loops *l, const range *variables, const tile_node *n) {
    range out = {0};
    switch (n->kind) {
    case TILE_CONST:
        return (range){true, n->value.i, n->value.i};
    case TILE_LOOP: {
        const range begin = range_of(l, variables, l->statement[n->index]->begin),
                    end = range_of(l, variables, l->statement[n->index]->end);
        return (range){begin.known && end.known && end.high > begin.low, begin.low, end.high - (end.high > begin.low)};
    }
    case TILE_VAR:
        return variables[n->index];
    case TILE_CAST:
        return n->a->type->scalar.kind == TILE_INT ? range_of(l, variables, n->a) : out;
    case TILE_ELEMENTWISE: {
        if (n->op == TILE_MOD && n->b->kind == TILE_CONST && n->b->value.i > 0)
            return (range){true, 0, n->b->value.i - 1};
        if (!n->b) return out;
        const range a = range_of(l, variables, n->a), b = range_of(l, variables, n->b);
        out.known =
            a.known && b.known &&
            tile_operate_range(n->op, (int64_t[]){a.low, a.high}, (int64_t[]){b.low, b.high}, &out.low, &out.high);
        return out;
    }
    default:
        return out;
    }
}

static void check_stages(check *c) {
    const tile_op *op = c->op;
    loops l = {ARENA_ARRAY(c->memory, (size_t)op->loop_count + 1, const tile_statement *)};
    range *variables = ARENA_ARRAY(c->memory, (size_t)op->variable_count + 1, range);
    find_loops(&l, op->body);
    for (int i = 0; i < op->variable_count; i++) /* a declaration uses variables before it only */
        if (op->variables[i].assignments == 1 && !op->variables[i].shape.rank && c->definitions[i] &&
            op->variables[i].type->scalar.kind == TILE_INT)
            variables[i] = range_of(&l, variables, c->definitions[i]);
    for (size_t i = 0; i < c->stage_count; i++) {
        const check_stage *s = &c->stages[i];
        const range r = range_of(&l, variables, s->value);
        if (r.known && r.low >= 0 && r.high < s->count) continue;
        REPORT(c, s->place,
               "there are %" PRId64 " of %s; that this is one of 0 to %" PRId64 " must be seen, as in i %% %" PRId64,
               s->count, s->name, s->count - 1, s->count);
    }
}

/* ---- who does what ---- */

typedef struct rules {
    check *c;
    tile_level2 *x;
    level2_role_kind role;
    bool *under_way; /* by variable: wgmma may be writing it */
    bool arrives[LEVEL2_BARRIERS][LEVEL2_ROLES], waited[LEVEL2_BARRIERS], filled[LEVEL2_SHARED], stored[LEVEL2_SHARED];
} rules;

static bool loads(const tile_node *n) {
    if (!n) return false;
    if (n->kind == TILE_LOAD) return true;
    for (int i = 0; i < n->count; i++)
        if (loads(n->list[i])) return true;
    return loads(n->a) || loads(n->b) || loads(n->c);
}

static bool same(const tile_node *a, const tile_node *b) {
    if (!a || !b) return a == b;
    if (a->kind != b->kind || a->op != b->op || a->index != b->index || a->type != b->type) return false;
    if (a->kind == TILE_CONST) return a->value.i == b->value.i;
    const bool scalar = a->kind == TILE_ELEMENTWISE || a->kind == TILE_SELECT || a->kind == TILE_CAST;
    const bool leaf = a->kind == TILE_VAR || a->kind == TILE_GRID || a->kind == TILE_LOOP || a->kind == TILE_EXTENT ||
                      a->kind == TILE_LIVE || a->kind == TILE_ARG;
    return leaf || (scalar && same(a->a, b->a) && same(a->b, b->b) && same(a->c, b->c));
}

/* The copies behind an expect, up to the next statement that is no copy: they bring the bytes it says. */
static void check_bytes(rules *r, tile_statement *expect) {
    int64_t bytes = 0;
    for (tile_statement *s = expect->next; s; s = s->next) {
        if (s->kind != TILE_ACTION || (s->action->kind != LEVEL2_COPY && s->action->kind != LEVEL2_VIEW)) break;
        level2_action *a = s->action;
        if (a->kind == LEVEL2_VIEW || a->barrier != expect->action->barrier || !same(a->index, expect->action->index))
            continue;
        const level2_shared *t = &r->x->shared[a->shared];
        bytes += tile_shape_count(&t->shape) * t->layout.element;
        a->expect = expect->action;
        expect->action->copies++;
    }
    if (bytes != expect->action->bytes)
        REPORT(r->c, place_of(expect), "%s expects %" PRId64 " bytes, the copies behind it bring %" PRId64,
               r->x->barriers[expect->action->barrier].name, expect->action->bytes, bytes);
}

static void check_scalar(rules *r, const tile_statement *s, const tile_node *n) {
    if (r->role != LEVEL2_CONSUMER && loads(n))
        REPORT(r->c, place_of(s),
               "the %s computes with indices, extents, args and live values only, not with "
               "elements of tensors",
               explicit_roles[r->role]);
}

static bool is_view(const check *c, int variable) {
    for (size_t i = 0; i < c->view_count; i++)
        if (c->views[i].variable == variable) return true;
    return false;
}

/* Nobody touches what wgmma may be writing, or reading in registers. */
static void check_under_way(rules *r, const tile_statement *s, const tile_node *n) {
    if (!n) return;
    if (n->kind == TILE_VAR && r->under_way[n->index])
        REPORT(r->c, place_of(s), "wgmma may still be at work on %s; wait_group(0) stands in front",
               r->c->op->variables[n->index].name);
    check_under_way(r, s, n->a);
    check_under_way(r, s, n->b);
    check_under_way(r, s, n->c);
    for (int i = 0; i < n->count; i++) check_under_way(r, s, n->list[i]);
}

static void check_slice(rules *r, const tile_statement *s, const tile_access *access) {
    for (int d = 0; d < access->rank; d++) {
        check_scalar(r, s, access->item[d].start);
        check_scalar(r, s, access->item[d].limit);
    }
}

static void check_action(rules *r, tile_statement *s) {
    level2_action *a = s->action;
    check_scalar(r, s, a->index);
    check_scalar(r, s, a->phase);
    if (a->kind == LEVEL2_WAIT && a->phase->kind == TILE_CONST && a->phase->value.i < -1)
        REPORT(r->c, place_of(s),
               "phases are counted from 0 on, and -1 is over from the beginning; there is no %" PRId64,
               a->phase->value.i);
    switch (a->kind) {
    case LEVEL2_EXPECT:
        check_bytes(r, s);
        r->arrives[a->barrier][r->role] = true;
        break;
    case LEVEL2_ARRIVE:
        r->arrives[a->barrier][r->role] = true;
        break;
    case LEVEL2_WAIT:
        r->waited[a->barrier] = true;
        break;
    case LEVEL2_COPY:
        r->filled[a->shared] = true;
        if (!a->expect)
            REPORT(r->c, place_of(s),
                   "nobody expects these bytes: an expect for the same barrier stands in front of "
                   "its copies");
        check_slice(r, s, s->value->access);
        break;
    case LEVEL2_STORE:
        r->stored[a->shared] = true;
        check_slice(r, s, s->access);
        break;
    case LEVEL2_WGMMA:
        r->under_way[a->variable] = true;
        if (s->value->a->kind == TILE_VAR && !is_view(r->c, s->value->a->index))
            r->under_way[s->value->a->index] = true;
        break;
    case LEVEL2_WAIT_GROUP: /* of a storer nothing is in registers */
        for (int v = 0; v < r->c->op->variable_count && !a->bytes; v++) r->under_way[v] = false;
        break;
    default:
        break;
    }
    if ((a->kind == LEVEL2_EXPECT || a->kind == LEVEL2_ARRIVE) && !r->x->barriers[a->barrier].arrives[r->role])
        REPORT(r->c, place_of(s), "%s is declared on line %d without this role among those that arrive",
               r->x->barriers[a->barrier].name, r->x->barriers[a->barrier].line);
}

static void check_statements(rules *r, tile_statement *s) {
    for (; s; s = s->next) {
        check_under_way(r, s, s->value);
        if (s->kind == TILE_ASSIGN && r->under_way[s->index])
            check_under_way(r, s, &(tile_node){.kind = TILE_VAR, .index = s->index});
        switch (s->kind) {
        case TILE_ASSIGN:
            check_scalar(r, s, s->value);
            if (r->role != LEVEL2_CONSUMER && s->value->shape.rank)
                REPORT(r->c, place_of(s), "the %s has scalars only; tiles are the consumers'", explicit_roles[r->role]);
            break;
        case TILE_STORE:
            if (r->role == LEVEL2_LOADER) REPORT(r->c, place_of(s), "the loader stores nothing");
            if (r->role == LEVEL2_STORER)
                REPORT(r->c, place_of(s), "the storer stores stages, as in store(y[i : +n, :], c[s])");
            break;
        case TILE_FOR:
            check_scalar(r, s, s->begin);
            check_scalar(r, s, s->end);
            break;
        case TILE_IF:
            check_scalar(r, s, s->value);
            break;
        case TILE_ACTION:
            check_action(r, s);
            break;
        }
        check_statements(r, s->body);
        check_statements(r, s->otherwise);
    }
}

/* A warpgroup has one number of registers for all its threads: the consumers are two, and loader, controller and storer
 * are of a third, with a warp that does nothing. */
bool explicit_registers(int *consumers, int *others) {
    const int all = 3 * LEVEL2_REGISTERS;
    if (!*others) *others = *consumers ? (all - 2 * *consumers) / 8 * 8 : LEVEL2_REGISTERS;
    if (*others > 240) *others = 240;
    if (!*consumers) *consumers = (all - *others) / 2 / 8 * 8;
    if (*consumers > 240) *consumers = 240;
    return *others >= 24 && *consumers >= 24 && 2 * *consumers + *others <= all;
}

static void check_registers(rules *r, const tile_statement *s) {
    const int *given = r->x->budget, loader = given[LEVEL2_LOADER], storer = given[LEVEL2_STORER];
    int consumers = given[LEVEL2_CONSUMER], others = loader ? loader : storer;
    if (loader && storer && loader != storer)
        REPORT(r->c, place_of(s),
               "loader and storer are of one warpgroup, which has one number of registers: not %d and %d", loader,
               storer);
    else if ((consumers || others) && !explicit_registers(&consumers, &others))
        REPORT(
            r->c, place_of(s),
            "two warpgroups of consumers with %d registers a thread, and one of loader, storer and controller with %d: "
            "that is more than %d registers",
            consumers, others, 3 * 128 * LEVEL2_REGISTERS);
}

static void check_arrivals(rules *r) {
    if (r->x->barrier_count && !r->x->has[LEVEL2_LOADER] && !r->x->has[LEVEL2_STORER])
        REPORT(r->c, ((ast_place){r->x->barriers[0].line, r->x->barriers[0].column}),
               "barriers are for two roles; there is only one. The consumers' threads meet at sync()");
    for (int i = 0; i < r->x->barrier_count; i++) {
        const level2_barrier *b = &r->x->barriers[i];
        if (!r->waited[i]) REPORT(r->c, ((ast_place){b->line, b->column}), "nobody waits for %s", b->name);
        for (int k = 0; k < LEVEL2_ROLES; k++)
            if (b->arrives[k] && !r->arrives[i][k])
                REPORT(r->c, ((ast_place){b->line, b->column}), "the %s is to arrive at %s, and never does",
                       explicit_roles[k], b->name);
    }
    int64_t pages = 0, resident = 0;
    for (int i = 0; i < r->x->shared_count; i++) {
        const level2_shared *s = &r->x->shared[i];
        if (s->pages && !r->filled[i]) REPORT(r->c, ((ast_place){s->line, s->column}), "no copy fills %s", s->name);
        if (s->pages)
            pages += s->count;
        else
            resident += s->count * layout_shared_bytes(&s->layout);
        if (pages > LEVEL2_PAGES || resident > LEVEL2_RESIDENT) {
            REPORT(r->c, ((ast_place){s->line, s->column}),
                   "that is too much shared memory: %" PRId64 " pages of at most %d, and %" PRId64
                   " resident bytes of at most %d",
                   pages, LEVEL2_PAGES, resident, LEVEL2_RESIDENT);
            break;
        }
    }
}

void explicit_finish(check *c) {
    rules r = {.c = c, .x = c->op->level2};
    const tile_statement *last_role = NULL;
    int last = 0;
    if (!r.x->has[LEVEL2_CONSUMER]) REPORT(c, c->tile->place, "a program of level 2 has a role consumer");
    r.under_way = ARENA_ARRAY(c->memory, (size_t)c->op->variable_count + 1, bool);
    check_stages(c);
    for (tile_statement *s = c->op->body; s; s = s->next) {
        if (s->kind == TILE_ACTION && s->action->kind == LEVEL2_ROLE) {
            r.role = s->action->role;
            check_statements(&r, s->body);
            if (r.x->lines[r.role] > last) last = r.x->lines[r.role], last_role = s;
        } else if (s->kind != TILE_ASSIGN || s->value->shape.rank || loads(s->value) ||
                   c->op->variables[s->index].assignments > 1)
            REPORT(c, place_of(s),
                   "outside of roles there are declarations, and scalars that never change and are "
                   "computed without tensors");
    }
    check_arrivals(&r);
    if (last_role) check_registers(&r, last_role);
    bool pages = false;
    for (int i = 0; i < r.x->shared_count; i++) pages |= r.x->shared[i].pages;
    if (!c->report.count && r.x->has[LEVEL2_LOADER] && !pages)
        REPORT(c, c->tile->place, "a loader fills pages; this program has none");
    bool stores = false;
    for (int i = 0; i < r.x->shared_count; i++) stores |= r.stored[i];
    if (!c->report.count && r.x->has[LEVEL2_STORER] && !stores)
        REPORT(c, c->tile->place, "a storer stores stages; this one does not");
    if (!c->report.count) explicit_layouts(c);
}
