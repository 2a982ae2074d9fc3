/* Bytes of buffers, and where consumers must meet.
 *
 * Buffers. A buffer lives from the first statement that touches it to the last, and on to the next SYNC, so that no
 * SYNC is needed only because its bytes are used again; one that is touched within a loop and outside of it lives
 * through all of the loop. It gets the lowest place where nothing lies that lives at the same time. The SYNCs that this
 * goes by are those of buffers that share nothing.
 *
 * Meeting. Walking the statements, the pass keeps what has been touched since the last SYNC. A statement that touches
 * the same bytes (or the same tensor), one of the two writing, gets a SYNC in front, unless both touch a buffer element
 * by element under the same spread: then each thread meets only itself. A loop's body is walked again with what its end
 * leaves behind. */
#include "tile/role_internal.h"

/* ---- what a statement touches ---- */

typedef struct touches {
    const role_op *r;
    role_access *out;
    int count;               /* -1: there are too many */
    const tile_shape *shape; /* of what is computed; elements read there are the thread's own. NULL: none is */
} touches;

static void add_touch(touches *t, int variable, int param, bool writes, bool own) {
    for (int i = 0; i < t->count; i++) {
        role_access *a = &t->out[i];
        if (a->variable != variable || a->param != param || a->writes != writes) continue;
        a->own &= own;
        return;
    }
    if (t->count == ROLE_ACCESSES) t->count = -1;
    if (t->count >= 0) t->out[t->count++] = (role_access){variable, param, writes, own};
}

static void touch(touches *t, const tile_node *n, bool own) {
    if (!n) return;
    own &= t->shape && role_same_shape(&n->shape, t->shape);
    if (n->kind == TILE_VAR) {
        const role_variable *v = &t->r->variables[n->index];
        if (v->place == ROLE_BUFFER) add_touch(t, n->index, -1, false, own);
        if (v->place == ROLE_PARTS) add_touch(t, v->parts, -1, false, false);
        if (v->place == ROLE_FUSED) touch(t, v->value, own);
        return;
    }
    if (n->kind == TILE_LOAD && t->r->stored[n->access->param]) add_touch(t, -1, n->access->param, false, false);
    own &= n->kind == TILE_ELEMENTWISE || n->kind == TILE_SELECT || n->kind == TILE_CAST;
    for (int i = 0; i < role_operand_count(n); i++) touch(t, role_operand(n, i), own);
}

int role_accesses(const role_op *r, const role_statement *s, role_access *out) {
    touches t = {r, out, 0, NULL};
    if (s->kind == ROLE_EACH && r->variables[s->to].place != ROLE_BUFFER && r->variables[s->to].place != ROLE_FRAGMENT)
        return 0; /* nothing is computed here */
    if (s->kind == ROLE_EACH) t.shape = &r->op.variables[s->to].shape;
    if (s->kind == ROLE_STORE) t.shape = &s->shape;
    touch(&t, s->value, true);
    t.shape = NULL;
    touch(&t, s->left, false);
    touch(&t, s->begin, false);
    touch(&t, s->end, false);
    for (int i = 0; s->access && i < s->access->rank; i++)
        touch(&t, s->access->item[i].start, false), touch(&t, s->access->item[i].limit, false);
    if (s->from >= 0) add_touch(&t, s->from, -1, false, false);
    if (s->kind == ROLE_STORE) add_touch(&t, -1, s->access->param, true, false);
    if (s->kind == ROLE_WIDE && s->wide.decoded.format) add_touch(&t, s->wide.decoded.tile, -1, true, false);
    if (s->to >= 0 && r->variables[s->to].place == ROLE_BUFFER) {
        if (s->adds) add_touch(&t, s->to, -1, false, false);
        add_touch(&t, s->to, -1, true, s->kind == ROLE_EACH);
    }
    return t.count;
}

/* ---- bytes ---- */

static int64_t element_bytes(const tile_format *t) {
    if (tile_format_is_block(t)) return 4;                               /* decoded */
    if (t->scalar.kind == TILE_FLOAT && t->scalar.is_unsigned) return 2; /* e8m0 and a zero that it does not have */
    return t->scalar.bits > 8 ? t->scalar.bits / 8 : 1;
}

static void live_at(role_op *r, int variable, int number) {
    role_variable *v = &r->variables[variable];
    if (!v->first) v->first = number;
    v->first = (int)min_i64(v->first, number);
    v->last = (int)max_i64(v->last, number);
}

static void keep_accesses(role_lowering *l, role_statement *s) {
    role_access touched[ROLE_ACCESSES];
    const int count = role_accesses(l->r, s, touched);
    if (count < 0) {
        role_unsupported(l, s->line, "a statement that reads so many tiles");
        return;
    }
    role_access *kept = ARENA_ARRAY(l->memory, (size_t)count, role_access);
    if (count) memcpy(kept, touched, (size_t)count * sizeof *kept);
    s->touched = kept;
    s->touched_count = count;
}

/* Numbers statements and notes between which of them each buffer is touched. */
static void number_statements(role_lowering *l, role_statement *s, int *number) {
    for (; s; s = s->next) {
        s->number = ++*number;
        if (!s->touched) keep_accesses(l, s);
        for (int i = 0; i < s->touched_count; i++)
            if (s->touched[i].variable >= 0) live_at(l->r, s->touched[i].variable, s->number);
        number_statements(l, s->body, number);
        number_statements(l, s->otherwise, number);
    }
}

/* The number of the first SYNC behind `number`; `end` when there is none. */
static int next_sync(const role_statement *s, int number, int end) {
    for (; s; s = s->next) {
        if (s->kind == ROLE_SYNC && s->number > number) end = (int)min_i64(end, s->number);
        end = next_sync(s->body, number, end);
        end = next_sync(s->otherwise, number, end);
    }
    return end;
}

static int last_number(const role_statement *s) {
    int last = 0;
    for (; s; s = s->next)
        last = (int)max_i64(last, max_i64(s->number, max_i64(last_number(s->body), last_number(s->otherwise))));
    return last;
}

/* Inner loops first: what an inner loop has stretched may reach out of an outer one. */
static bool stretch(role_op *r, const role_statement *s) {
    bool changed = false;
    for (; s; s = s->next) {
        changed |= stretch(r, s->body);
        changed |= stretch(r, s->otherwise);
        if (s->kind != ROLE_FOR) continue;
        const int begin = s->number, end = last_number(s->body);
        for (int i = 0; i < r->op.variable_count; i++) {
            role_variable *v = &r->variables[i];
            const bool meets = v->first && v->first <= end && v->last >= begin,
                       inside = v->first > begin && v->last <= end;
            if (!meets || inside || (v->first <= begin && v->last >= end)) continue;
            v->first = (int)min_i64(v->first, begin);
            v->last = (int)max_i64(v->last, end);
            changed = true;
        }
    }
    return changed;
}

/* ---- meeting ---- */

typedef struct pending { /* touched since the last SYNC */
    role_access access;
    role_spread spread;
} pending;

typedef struct pendings {
    pending *items;
    size_t count, capacity;
} pendings;

static bool same_spread(const role_spread *a, const role_spread *b) {
    return a->rows == b->rows && a->columns == b->columns && a->vector == b->vector && a->lanes == b->lanes;
}

static bool same_access(const role_access *a, const role_access *b) {
    return a->variable == b->variable && a->param == b->param && a->writes == b->writes && a->own == b->own;
}

static bool conflict(const role_op *r, const pending *a, const pending *b) {
    const role_access *x = &a->access, *y = &b->access;
    if (!x->writes && !y->writes) return false;
    if (x->param >= 0 || y->param >= 0) return x->param == y->param;
    if (x->variable == y->variable) return !(x->own && y->own && same_spread(&a->spread, &b->spread));
    const role_variable *v = &r->variables[x->variable], *w = &r->variables[y->variable];
    return v->offset < w->offset + w->bytes && w->offset < v->offset + v->bytes;
}

static void add_pending(role_lowering *l, pendings *p, const pending *one) {
    for (size_t i = 0; i < p->count; i++)
        if (same_access(&p->items[i].access, &one->access) && same_spread(&p->items[i].spread, &one->spread)) return;
    *ARENA_PUSH(l->memory, p->items, p->count, p->capacity) = *one;
}

static void add_all(role_lowering *l, pendings *to, const pendings *from) {
    for (size_t i = 0; i < from->count; i++) add_pending(l, to, &from->items[i]);
}

static bool conflicts(const role_op *r, const pendings *p, const role_statement *s) {
    for (int i = 0; i < s->touched_count; i++) {
        const pending one = {s->touched[i], s->spread};
        for (size_t j = 0; j < p->count; j++)
            if (conflict(r, &p->items[j], &one)) return true;
    }
    return false;
}

static bool surely_runs(const role_op *r, const role_statement *loop) {
    int64_t begin[2], end[2];
    return role_range(r, loop->begin, &begin[0], &begin[1]) && role_range(r, loop->end, &end[0], &end[1]) &&
           begin[1] < end[0];
}

/* Whether what p has is met by a statement of the list before a SYNC there is passed. *passed: one surely is. */
static bool is_met(const role_op *r, const pendings *p, const role_statement *s, bool *passed) {
    for (; s && !*passed; s = s->next) {
        bool then = false, otherwise = false;
        if (s->kind == ROLE_SYNC)
            *passed = true;
        else if (conflicts(r, p, s) || is_met(r, p, s->body, &then) || is_met(r, p, s->otherwise, &otherwise))
            return true;
        else
            *passed = then && (s->kind == ROLE_IF ? otherwise : surely_runs(r, s));
    }
    return false;
}

static void add_sync(role_lowering *l, role_statement **at, pendings *p) {
    role_statement *sync = role_new_statement(l, ROLE_SYNC, (*at)->line);
    sync->next = *at;
    *at = sync;
    p->count = 0;
}

static void meet(role_lowering *l, role_statement **at, pendings *p) {
    for (; *at; at = &(*at)->next) {
        role_statement *s = *at;
        if (s->kind == ROLE_SYNC) {
            p->count = 0;
            continue;
        }
        pendings inside = {0};
        bool passed = false;
        if (s->kind == ROLE_FOR) { /* first what its turns need among themselves */
            meet(l, &s->body, &inside);
            meet(l, &s->body, &inside);
        }
        /* What a loop meets from before it is met before it, once. */
        if (conflicts(l->r, p, s) || (s->kind == ROLE_FOR && is_met(l->r, p, s->body, &passed))) {
            add_sync(l, at, p);
            at = &(*at)->next;
        }
        for (int i = 0; i < s->touched_count; i++) add_pending(l, p, &(pending){s->touched[i], s->spread});
        if (s->kind == ROLE_FOR && passed && surely_runs(l->r, s)) p->count = 0;
        add_all(l, p, &inside);
        if (s->kind == ROLE_IF) {
            pendings then = {0}, otherwise = {0};
            add_all(l, &then, p);
            add_all(l, &otherwise, p);
            meet(l, &s->body, &then);
            meet(l, &s->otherwise, &otherwise);
            *p = (pendings){0};
            add_all(l, p, &then);
            add_all(l, p, &otherwise);
        }
    }
}

/* ---- places ---- */

static bool is_placed(const role_variable *v) { return v->place == ROLE_BUFFER && v->first; }

static void pack(role_op *r, int statements) {
    r->shared_bytes = 0;
    for (int number = 1; number <= statements; number++)
        for (int i = 0; i < r->op.variable_count; i++) {
            role_variable *v = &r->variables[i];
            if (!is_placed(v) || v->first != number) continue;
            bool moved = true;
            for (v->offset = 0; moved;) {
                moved = false;
                for (int j = 0; j < r->op.variable_count; j++) {
                    const role_variable *o = &r->variables[j];
                    if (!is_placed(o) || o->first > v->first || (o->first == v->first && j >= i) || o->last < v->first)
                        continue;
                    if (v->offset >= o->offset + o->bytes || v->offset + v->bytes <= o->offset) continue;
                    v->offset = (int64_t)align_up((uint64_t)(o->offset + o->bytes), v->atoms ? 1024 : 128);
                    moved = true;
                }
            }
            r->shared_bytes = max_i64(r->shared_bytes, (int64_t)align_up((uint64_t)(v->offset + v->bytes), 128));
        }
}

static int measure(role_lowering *l, bool to_sync) {
    role_op *r = l->r;
    int number = 0;
    for (int i = 0; i < r->op.variable_count; i++) r->variables[i].first = r->variables[i].last = 0;
    number_statements(l, r->consumer, &number);
    for (int i = 0; i < r->op.variable_count && to_sync; i++)
        if (r->variables[i].first) r->variables[i].last = next_sync(r->consumer, r->variables[i].last, number);
    while (stretch(r, r->consumer)) {}
    return number;
}

void role_share(role_lowering *l) {
    role_op *r = l->r;
    pendings none = {0}, again = {0};
    measure(l, false);
    int64_t end = 0;
    for (int i = 0; i < r->op.variable_count; i++) {
        role_variable *v = &r->variables[i];
        const tile_variable *t = &r->op.variables[i];
        if (!is_placed(v)) continue;
        const int64_t columns = t->shape.extent[t->shape.rank - 1];
        v->stride = columns + (v->panel && t->shape.extent[0] > 1 ? v->stride : 0);
        v->bytes = tile_shape_count(&t->shape) / columns * v->stride * element_bytes(t->type);
        v->offset = end;
        end += v->bytes;
    }
    meet(l, &r->consumer, &none);
    pack(r, measure(l, true));
    if (r->shared_bytes > l->chip.shared) pack(r, measure(l, false));
    meet(l, &r->consumer, &again);
    if (r->shared_bytes > l->chip.shared)
        role_unsupported(l, r->source->body ? r->source->body->line : 0,
                         arena_printf(l->memory, "tiles of together %lld bytes of shared memory; there are %lld%s",
                                      (long long)r->shared_bytes, (long long)l->chip.shared,
                                      r->missed ? " (its tiles were chosen for wgmma, which this chip lacks: compile "
                                                  "the program for this machine)"
                                      : l->chip.shared < ROLE_SHARED ? " (compile the program for this machine)"
                                                                     : ""));
}
