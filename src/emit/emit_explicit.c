/* Programs of level 2 on a CPU: the roles of an op are coroutines inside one function.
 *
 * Every role has a place where it goes on, a label; a wait whose phase is not over leaves for the next role, and the
 * turn comes back to its label. All that lives across waits is declared in front: scalars, loop variables, the
 * addresses of tiles. What a statement needs for itself lives between its braces, in which nobody waits. Copies are
 * done when they are issued, shared tensors and tiles in registers are arrays in scratch memory, and layouts do not
 * matter.
 *
 * When no role can go on, the op says in mt_cpu_stuck who waits where, and returns; the machine ends the run with it.
 */
#include "emit/emit_internal.h"
#include "tile/explicit.h"

#include <inttypes.h>

typedef struct coroutines {
    emit *e;
    map names;
    const char **shared; /* C names of shared tensors, of barriers */
    const char **barriers;
    const char **views; /* by variable: its C name */
    level2_role_kind role;
    int labels;
    int64_t persistent; /* bytes of scratch memory below which statements take nothing */
} coroutines;

static const char *unique(coroutines *k, const char *name) {
    emit *e = k->e;
    const char *c_name = emit_safe_name(e->memory, name);
    if (map_get(&k->names, c_name, strlen(c_name)) >= 0) c_name = emit_invent(e, name);
    map_put(e->memory, &k->names, c_name, strlen(c_name), 1);
    return c_name;
}

static void note(coroutines *k, const tile_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == TILE_FOR) k->e->loops[s->index] = s;
        if (s->access) k->e->stored[s->access->param] = true;
        note(k, s->body);
        note(k, s->otherwise);
    }
}

/* ---- declarations ---- */

static void declare_variables(coroutines *k) {
    emit *e = k->e;
    const tile_op *op = e->op;
    const tile_level2 *x = op->level2;
    for (int i = 0; i < op->variable_count; i++) {
        emit_variable *v = &e->variables[i];
        const tile_variable *t = &op->variables[i];
        const char *name = unique(k, t->name);
        v->mode = t->shape.rank ? EMIT_ARRAY : EMIT_SCALAR;
        for (int d = 0; d < TILE_RANK; d++) v->limit[d] = (emit_limit){0, 1};
        if (x->registers[i].is_view) {
            emit_print(e, "%s *%s = 0;", emit_c_type(t->type), name);
            v->array = (emit_array){name, t->type, t->shape};
        } else if (t->shape.rank)
            v->array = emit_declare(e, name, t->type, &t->shape);
        else {
            emit_print(e, "%s %s = 0;", emit_c_type(t->type), name);
            v->array = (emit_array){name, t->type, t->shape};
        }
    }
    for (int i = 0; i < op->loop_count; i++) {
        e->loop_names[i] = unique(k, op->loop_names[i]);
        emit_print(e, "int64_t %s = 0, %s_end_ = 0;", e->loop_names[i], e->loop_names[i]);
    }
}

static void declare_shared(coroutines *k) {
    emit *e = k->e;
    const tile_level2 *x = e->op->level2;
    for (int i = 0; i < x->shared_count; i++) {
        const level2_shared *s = &x->shared[i];
        tile_shape all = {.rank = 1, .extent = {tile_shape_count(&s->shape) * s->count}};
        k->shared[i] = emit_declare(e, emit_invent(e, s->name), s->type, &all).name;
    }
    for (int i = 0; i < x->barrier_count; i++) {
        const level2_barrier *b = &x->barriers[i];
        k->barriers[i] = unique(k, b->name);
        emit_print(e, "mt_barrier %s[%" PRId64 "] = {{0, 0}};", k->barriers[i], b->count);
    }
}

/* ---- statements ---- */

static void print_block(coroutines *k, const tile_statement *s);

static const char *barrier_text(coroutines *k, const level2_action *a) {
    emit *e = k->e;
    return arena_printf(e->memory, "%s[%s]", k->barriers[a->barrier], emit_bare(e->memory, emit_scalar(e, a->index)));
}

/* How many arrive in a phase. */
static int arrivals_of(const level2_barrier *b) {
    int n = 0;
    for (int r = 0; r < LEVEL2_ROLES; r++) n += b->arrives[r];
    return n;
}

static void print_action(coroutines *k, const tile_statement *s) {
    emit *e = k->e;
    const level2_action *a = s->action;
    const tile_level2 *x = e->op->level2;
    const char *stage;
    switch (a->kind) {
    case LEVEL2_VIEW:
        stage = emit_bare(e->memory, emit_scalar(e, a->index));
        emit_print(e, "%s = %s + (%s) * %" PRId64 ";", e->variables[a->variable].array.name, k->shared[a->shared],
                   stage, tile_shape_count(&x->shared[a->shared].shape));
        break;
    case LEVEL2_PUT:
    case LEVEL2_COPY:
        emit_assign_variable(e, a->variable, s->value);
        break;
    case LEVEL2_MMA:
    case LEVEL2_WGMMA: /* done at once: level 2 lets nobody read the sums before the group is waited for */
        emit_dot(e, &e->variables[a->variable].array, s->value, e->variables[a->variable].limit);
        break;
    case LEVEL2_ATOMIC:
        if (a->variable >= 0) emit_print(e, "%s = 0;", e->variables[a->variable].array.name);
        emit_store(e, s);
        break;
    case LEVEL2_TAKE: {
        const emit_array *to = &e->variables[a->variable].array;
        tile_node *slice = ARENA_NEW(e->memory, tile_node);
        *slice =
            (tile_node){.kind = TILE_LOAD, .type = to->type, .shape = s->shape, .access = s->access, .line = s->line};
        emit_print(e, "for (uint64_t mt_since = 0;;) {");
        e->indent++;
        emit_assign_variable(e, a->variable, slice);
        emit_print(e, "if (!mt_stamped(%s, %" PRId64 ")) break;", to->name, tile_shape_count(&s->shape));
        emit_print(e, "if (mt_patient(&mt_since)) continue;");
        emit_print(e, "mt_cpu_stuck[%d] = \"role consumer takes stamped data at line %d\";", LEVEL2_CONSUMER, s->line);
        emit_print(e, "return;");
        e->indent--;
        emit_print(e, "}");
        break;
    }
    case LEVEL2_STAMP:
    case LEVEL2_POST:
    case LEVEL2_STORE:
        emit_store(e, s);
        break;
    case LEVEL2_ARRIVE:
    case LEVEL2_EXPECT:
        emit_print(e, "mt_barrier_arrive(&%s, %d);", barrier_text(k, a), arrivals_of(&x->barriers[a->barrier]));
        break;
    case LEVEL2_WAIT:
    case LEVEL2_ROLE:
    case LEVEL2_COMMIT:
    case LEVEL2_WAIT_GROUP:
    case LEVEL2_SYNC: /* the role is one coroutine */
        break;
    }
}

/* A wait stands outside of all braces but those of loops and branches. */
static void print_wait(coroutines *k, const tile_statement *s) {
    emit *e = k->e;
    const level2_action *a = s->action;
    const char *role = explicit_roles[k->role], *label = arena_printf(e->memory, "mt_%s_%d", role, ++k->labels);
    emit_print(e, "%s:", label);
    emit_print(e, "if (!mt_barrier_over(&%s, %s)) {", barrier_text(k, a),
               emit_bare(e->memory, emit_scalar(e, a->phase)));
    emit_print(e, "    mt_at[%d] = \"role %s waits for %s at line %d\";", k->role, role,
               e->op->level2->barriers[a->barrier].name, s->line);
    emit_print(e, "    mt_resume[%d] = &&%s;", k->role, label);
    emit_print(e, "    goto mt_next;");
    emit_print(e, "}");
    emit_print(e, "mt_idle = 0;");
}

static void print_statement(coroutines *k, const tile_statement *s) {
    emit *e = k->e;
    const bool waits = s->kind == TILE_ACTION && s->action->kind == LEVEL2_WAIT;
    emit_comment(e, s, "");
    if (waits) {
        print_wait(k, s);
        return;
    }
    emit_print(e, "{");
    e->indent++;
    if (s->kind == TILE_ACTION)
        print_action(k, s);
    else if (s->kind == TILE_STORE)
        emit_store(e, s);
    else if (e->variables[s->index].mode == EMIT_ARRAY)
        emit_assign_variable(e, s->index, s->value);
    else
        emit_print(e, "%s = %s;", e->variables[s->index].array.name, emit_bare(e->memory, emit_scalar(e, s->value)));
    e->indent--;
    emit_print(e, "}");
}

static void print_for(coroutines *k, const tile_statement *s) {
    emit *e = k->e;
    const char *name = e->loop_names[s->index];
    emit_comment(e, s, "");
    emit_print(e, "{");
    emit_print(e, "    %s = %s;", name, emit_bare(e->memory, emit_scalar(e, s->begin)));
    emit_print(e, "    %s_end_ = %s;", name, emit_bare(e->memory, emit_scalar(e, s->end)));
    emit_print(e, "}");
    emit_print(e, "for (; %s < %s_end_; %s++) {", name, name, name);
    e->indent++;
    print_block(k, s->body);
    e->indent--;
    emit_print(e, "}");
}

static void print_if(coroutines *k, const tile_statement *s) {
    emit *e = k->e;
    emit_comment(e, s, "");
    emit_print(e, "if (%s) {", emit_bare(e->memory, emit_scalar(e, s->value)));
    e->indent++;
    print_block(k, s->body);
    e->indent--;
    if (s->otherwise) emit_print(e, "} else {");
    e->indent++;
    print_block(k, s->otherwise);
    e->indent--;
    emit_print(e, "}");
}

static void print_block(coroutines *k, const tile_statement *s) {
    emit *e = k->e;
    for (; s; s = s->next) {
        e->scratch = k->persistent;
        e->temporary_count = 0;
        if (s->kind == TILE_FOR)
            print_for(k, s);
        else if (s->kind == TILE_IF)
            print_if(k, s);
        else
            print_statement(k, s);
    }
}

void emit_level2(emit *e) {
    const tile_op *op = e->op;
    arena *m = e->memory;
    coroutines k = {.e = e,
                    .shared = ARENA_ARRAY(m, LEVEL2_SHARED, const char *),
                    .barriers = ARENA_ARRAY(m, LEVEL2_BARRIERS, const char *)};
    int roles = 0;
    note(&k, op->body);
    text *const body = e->out;
    e->out = e->header;
    declare_variables(&k);
    declare_shared(&k);
    e->out = body;
    k.persistent = e->scratch;
    for (const tile_statement *s = op->body; s; s = s->next) {
        if (s->kind == TILE_ACTION) continue;
        print_statement(&k, s); /* scalars that all roles share */
        e->scratch = k.persistent;
    }
    emit_print(e, "const char *mt_at[%d] = {0};", LEVEL2_ROLES);
    emit_print(e, "void *mt_resume[%d];", LEVEL2_ROLES);
    for (int r = 0; r < LEVEL2_ROLES; roles += op->level2->has[r++])
        emit_print(e, "mt_resume[%d] = &&mt_%s;", r, op->level2->has[r] ? explicit_roles[r] : "next");
    emit_print(e, "int mt_role = 0, mt_left = %d, mt_idle = 0;", roles);
    emit_print(e, "goto *mt_resume[0];");
    e->indent--;
    emit_print(e, "mt_done: /* this role has come to its end */");
    emit_print(e, "    mt_resume[mt_role] = &&mt_next;");
    emit_print(e, "    mt_at[mt_role] = 0;");
    emit_print(e, "    mt_idle = 0;");
    emit_print(e, "    if (!--mt_left) return;");
    emit_print(e, "mt_next: /* the next role's turn */");
    emit_print(e, "    if (mt_idle++ > %d) {", LEVEL2_ROLES);
    emit_print(e, "        for (int i = 0; i < %d; i++) mt_cpu_stuck[i] = mt_at[i];", LEVEL2_ROLES);
    emit_print(e, "        return;");
    emit_print(e, "    }");
    emit_print(e, "    mt_role = (mt_role + 1) %% %d;", LEVEL2_ROLES);
    emit_print(e, "    goto *mt_resume[mt_role];");
    for (const tile_statement *s = op->body; s; s = s->next) {
        if (s->kind != TILE_ACTION) continue;
        k.role = s->action->role;
        emit_print(e, "mt_%s:;", explicit_roles[k.role]);
        e->indent++;
        print_block(&k, s->body);
        emit_print(e, "goto mt_done;");
        e->indent--;
    }
    e->indent++;
}
