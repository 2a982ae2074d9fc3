/* Loads in front of where they are used, so that all of a thread's are on their way together: a load of what another SM
 * wrote takes as long as hundreds of products, longer when memory is busy. In front of the body goes what is known
 * without it: vectors of weights, tiles of products (emit_cuda_dot.c), an element that a thread has only one of.
 * Stamped data are looked at there, too, and are waited for where they are used; each thread keeps them, so that a
 * second walk over the same does not read them again: they are in no cache. */
#include "emit/emit_cuda_internal.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_STEPS = 4, MOST_LOOK_STEPS = 8, MOST_LOOK_FLOATS = 64 };

/* ---- in front of the body ---- */

bool cuda_may_be_early(const cuda_emit *e, const tile_node *n) {
    if (!n) return true;
    if (e->depth || e->stored || n->kind == TILE_LOOP || n->kind == TILE_CONCAT) return false;
    if (n->kind == TILE_VAR) {
        const role_variable *v = &e->r->variables[n->index];
        return v->place == ROLE_FUSED && cuda_may_be_early(e, v->value);
    }
    for (int d = 0; n->access && d < n->access->rank; d++) {
        const tile_item *item = &n->access->item[d];
        if (!cuda_may_be_early(e, item->start) || !cuda_may_be_early(e, item->limit)) return false;
    }
    if (n->kind == TILE_LOAD && e->r->op.params[n->access->param].kind != TILE_IN) return false;
    return cuda_may_be_early(e, n->a) && cuda_may_be_early(e, n->b) && cuda_may_be_early(e, n->c);
}

static void exchange(cuda_emit *e) {
    text *const other = e->early;
    e->early = e->out;
    e->out = other;
}
void cuda_early_begin(cuda_emit *e) {
    exchange(e);
    e->indent--;
}
void cuda_early_end(cuda_emit *e) {
    exchange(e);
    e->indent++;
}

/* ---- what is kept ---- */

/* Its number; -1: it is not. */
static int kept(const cuda_emit *e, const char *key) {
    for (int k = 0; k < e->kept_count; k++)
        if (!strcmp(e->kept[k].key, key)) return k;
    return -1;
}
static int keep(cuda_emit *e, const char *key, const char *name) {
    e->kept[e->kept_count].key = key;
    e->kept[e->kept_count].name = name;
    return e->kept_count++;
}

/* ---- vectors that a thread walks over in steps ---- */

void cuda_expect_steps(cuda_nest *x, const char *k, const char *begin, int64_t length, int64_t step, bool all) {
    if (length % step || length / step > MOST_LOOK_STEPS) return;
    x->ahead.all = all;
    x->ahead.k = k;
    x->ahead.begin = begin;
    x->ahead.i = length == step ? "0" : cuda_name(x->e, "step");
    x->ahead.step = step;
    x->ahead.count = length / step;
}

static void open_steps(cuda_emit *e, const char *i, int64_t count, const char *k, const char *begin, int64_t step) {
    if (count == 1) {
        CUDA_OPEN(e, "{");
        cuda_print(e, "const int %s = %s;", k, begin);
        return;
    }
    cuda_print(e, "#pragma unroll");
    CUDA_OPEN(e, "for (int %s = 0; %s < %" PRId64 "; %s++) {", i, i, count, i);
    cuda_print(e, "const int %s = %s + %s * %" PRId64 ";", k, begin, i, step);
}

void cuda_print_looks(const cuda_nest *x) {
    cuda_emit *e = x->e;
    if (!x->ahead.looks) return;
    for (int l = 0; l < x->ahead.looks; l++) cuda_print(e, "%s", x->ahead.look[2 * l]);
    open_steps(e, x->ahead.i, x->ahead.count, x->ahead.k, x->ahead.begin, x->ahead.step);
    for (int l = 0; l < x->ahead.looks; l++) cuda_print(e, "%s", x->ahead.look[2 * l + 1]);
    cuda_close(e);
}

void cuda_open_steps(const cuda_nest *x, const char *k, const char *begin, int64_t length, int64_t step) {
    cuda_emit *e = x->e;
    cuda_print_looks(x);
    const bool few = length % step == 0 && length / step <= MOST_STEPS && x->first[LEVEL_VECTOR];
    if (!few && !x->ahead.used) {
        CUDA_OPEN(e, "for (int %s = %s; %s < %" PRId64 "; %s += %" PRId64 ") {", k, begin, k, length, k, step);
        return;
    }
    open_steps(e, x->ahead.count ? x->ahead.i : cuda_name(e, "step"), length / step, k, begin, step);
}

/* What tells such walks apart: the slice, of one row, and which thread has what. NULL: it is of several rows. */
static const char *walk_key(const cuda_nest *x, const tile_node *n, const cuda_index *at) {
    arena *m = x->e->memory;
    const char *key = arena_printf(m, "%d: %s + %" PRId64 " * %" PRId64 ", %d", n->access->param, x->ahead.begin,
                                   x->ahead.step, x->ahead.count, x->vector);
    for (int d = 0; d < n->access->rank; d++)
        key = arena_printf(m, "%s, %s", key, cuda_scalar(x->e, n->access->item[d].start));
    for (int d = 0; d < n->shape.rank; d++) {
        if (d < n->shape.rank - 1 && at[d].text) return NULL;
        key = arena_printf(m, "%s + %" PRId64, key, at[d].offset);
    }
    return key;
}

const char *cuda_look_ahead(cuda_nest *x, const tile_node *n, const cuda_index *at, const char *vector,
                            const char *from) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    const int64_t floats = x->ahead.count * x->vector;
    const char *key = cuda_may_be_early(e, n) ? walk_key(x, n, at) : NULL;
    int known = key ? kept(e, key) : -1;
    const char *name = arena_printf(m, "%s[%s]", known >= 0 ? e->kept[known].name : vector, x->ahead.i),
               *declaration = arena_printf(m, "float %s[%" PRId64 "][%d];", vector, x->ahead.count, x->vector);
    if (known < 0 && key && e->kept_count < MOST_KEPT && e->early_registers + floats <= MOST_LOOK_FLOATS) {
        cuda_nest front;
        cuda_index index[TILE_RANK];
        memcpy(index, at, sizeof(cuda_index) * (size_t)n->shape.rank);
        index[n->shape.rank - 1].lane = false;
        cuda_early_begin(e);
        cuda_nest_begin(e, &front, 1);
        cuda_load(&front, n, index);
        cuda_print(e, "%s", declaration);
        open_steps(e, x->ahead.i, x->ahead.count, x->ahead.k, x->ahead.begin, x->ahead.step);
        cuda_print(e, "mt_look(%s, %s);", name, front.place);
        cuda_close(e);
        cuda_early_end(e);
        e->early_registers += (int)floats;
        known = keep(e, key, vector);
    } else if (known < 0) {
        if (x->ahead.looks == MOST_LOOKS) return NULL;
        x->ahead.look[2 * x->ahead.looks] = declaration;
        x->ahead.look[2 * x->ahead.looks++ + 1] = arena_printf(m, "mt_look(%s, %s);", name, from);
    }
    if (known < 0 || !e->kept[known].settled) NEST_LINE(x, LEVEL_VECTOR, "mt_settle(mt, %s, %s);", name, from);
    if (known >= 0) e->kept[known].settled |= x->ahead.all;
    x->ahead.used = true;
    return name;
}

/* ---- an element that each thread has at most one of ---- */

/* The text with x->alone, its only name, as what that is in front of the body. NULL: it has others. */
static const char *alone_text(const cuda_nest *x, const char *from) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_", digits[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    const size_t length = strlen(x->alone);
    const char *out = "";
    for (const char *at = from; *at;) {
        const size_t other = strcspn(at, letters);
        out = arena_printf(x->e->memory, "%s%.*s", out, (int)other, at);
        at += other;
        if (!*at) break;
        const size_t name = strspn(at, digits);
        if (name != length || memcmp(at, x->alone, length)) return NULL;
        out = arena_printf(x->e->memory, "%smt->thread", out);
        at += name;
    }
    return out;
}

/* The largest value of such a text, which is x->alone, or that divided by or modulo a number. -1: it is not. */
static int64_t alone_most(const cuda_nest *x, const char *of) {
    const char *at = of + strspn(of, "(");
    const size_t length = strlen(x->alone);
    char *end;
    if (strncmp(at, x->alone, length)) return -1;
    at += length;
    if (strspn(at, ")") == strlen(at)) return x->alone_count - 1;
    const char operation = at[0] == ' ' ? at[1] : 0;
    if ((operation != '/' && operation != '%') || at[2] != ' ') return -1;
    const int64_t by = strtoll(at + 3, &end, 10);
    if (by <= 0 || strspn(end, ")") != strlen(end)) return -1;
    return operation == '/' ? (x->alone_count - 1) / by : min_i64(by, x->alone_count) - 1;
}

const char *cuda_load_alone(cuda_nest *x, const tile_node *n, const cuda_index *at, const char *type, bool stamped) {
    cuda_emit *e = x->e;
    arena *m = e->memory;
    cuda_index index[TILE_RANK];
    bool moves = false;
    const char *key = arena_printf(m, "%p of %" PRId64, (const void *)n->access, x->alone_count);
    if (!cuda_may_be_early(e, n)) return NULL;
    for (int d = 0; d < n->shape.rank; d++) {
        index[d] = at[d];
        if (at[d].lane) return NULL;
        const int64_t most = at[d].text ? alone_most(x, at[d].text) : 0;
        /* In a branch that not all threads take the index may be any: here it has to be good for all of them. */
        if (x->guarded && (most < 0 || most >= n->shape.extent[d] || at[d].offset)) return NULL;
        if (at[d].text) {
            index[d].text = alone_text(x, at[d].text);
            if (!index[d].text) return NULL;
            index[d].level = LEVEL_STATEMENT;
            moves = true;
        }
        key = arena_printf(m, "%s, %s + %" PRId64, key, at[d].text ? index[d].text : "0", at[d].offset);
    }
    const int known = kept(e, key);
    const char *name = known >= 0 ? e->kept[known].name : NULL;
    if (!moves || (!name && e->kept_count == MOST_KEPT)) return NULL;
    if (!name) {
        cuda_nest front;
        const char *condition =
            x->alone_count < ROLE_THREADS ? arena_printf(m, "if (mt->thread < %" PRId64 ") ", x->alone_count) : "";
        name = cuda_name(e, e->r->op.params[n->access->param].name);
        keep(e, key, name);
        cuda_early_begin(e);
        cuda_nest_begin(e, &front, 1);
        cuda_load(&front, n, index);
        cuda_print(e, stamped ? "%s %s[1];" : "%s %s = 0;", type, name);
        cuda_print(e, stamped ? "%smt_look(%s, %s);" : "%s%s = *(%s);", condition, name, front.place);
        cuda_early_end(e);
    }
    return stamped ? arena_printf(m, "mt_settled(mt, %s, %s)", name, x->place) : name;
}
