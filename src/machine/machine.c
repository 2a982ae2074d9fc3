/* The public face of machines: finds the kind that a name begins with and calls through its table. */
#include "machine/machine.h"

#include <stdio.h>

static const machine_kind *const kinds[] = {&machine_cpu, &machine_cuda,
                                            &machine_sim}; /* "auto" is the first that opens */

mt_status mt_machine_open(mt_machine **out, const char *name, mt_error *error) {
    *out = NULL;
    const char *colon = strchr(name, ':');
    const size_t length = colon ? (size_t)(colon - name) : strlen(name);
    const bool any = !strcmp(name, "auto");
    mt_status status = MT_E_ARGUMENT;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        const machine_kind *k = kinds[i];
        if (!any && (strlen(k->name) != length || memcmp(k->name, name, length))) continue;
        status = k->open(out, colon ? colon + 1 : "", error);
        if (status == MT_OK) {
            (*out)->kind = k;
            snprintf((*out)->name, sizeof(*out)->name, "%s:%d", k->name, k->processors(*out));
        }
        if (status == MT_OK || !any) return status;
    }
    return any ? status
               : error_set(error, MT_E_ARGUMENT, name,
                           "there is no machine '%s'; there are \"cpu\", \"cpu:N\", \"cuda:N\", \"sim:N\" and \"auto\"",
                           name);
}

void mt_machine_close(mt_machine *m) {
    if (m) m->kind->close(m);
}

const char *mt_machine_name(const mt_machine *m) { return m->name; }
int mt_machine_processors(const mt_machine *m) { return m->kind->processors(m); }
const char *mt_machine_architecture(const mt_machine *m) {
    return m->kind->architecture ? m->kind->architecture(m) : NULL;
}

mt_status mt_session_create(mt_session **out, mt_machine *m, const mt_program *p, mt_error *error) {
    *out = NULL;
    const mt_status status = m->kind->session_create(out, m, p, error);
    if (status != MT_OK) return status;
    (*out)->kind = m->kind;
    (*out)->made_from = p;
    return MT_OK;
}

void mt_session_destroy(mt_session *s) {
    if (s) s->kind->session_destroy(s);
}

mt_status mt_session_bind(mt_session *s, const char *name, void *data, size_t bytes, mt_error *error) {
    return s->kind->bind(s, name, data, bytes, false, error);
}

mt_status mt_session_bind_weight(mt_session *s, const char *name, const void *data, size_t bytes, mt_error *error) {
    return s->kind->bind(s, name, (void *)data, bytes, true,
                         error); /* the checker proved that nothing writes a weight */
}

mt_status mt_session_memory(mt_session *s, const char *name, void **data, size_t *bytes, mt_error *error) {
    return s->kind->memory(s, name, data, bytes, error);
}

mt_status mt_session_live(mt_session *s, const char *name, int32_t value, mt_error *error) {
    return s->kind->live(s, name, value, error);
}
mt_status mt_session_run(mt_session *s, mt_error *error) { return s->kind->run(s, error); }

/* The number of the state that ends a loop; -1 for none. */
static mt_status find_stop(const mt_program *p, const char *name, int64_t *out, mt_error *error) {
    *out = -1;
    for (size_t i = 0; name && i < p->tensors_count; i++) {
        const program_tensor *t = &p->tensors[i];
        if (t->role != MT_STATE || strcmp(program_string(p, t->name), name)) continue;
        if (strcmp(program_string(p, t->format), "i32"))
            return error_set(error, MT_E_ARGUMENT, name, "what ends a loop must have the type i32, not %s",
                             program_string(p, t->format));
        *out = (int64_t)i;
    }
    return !name || *out >= 0 ? MT_OK : error_set(error, MT_E_ARGUMENT, name, "the program has no state '%s'", name);
}

/* Every value of every run lies between that of the first and that of the last. */
static mt_status check_lives(const mt_program *p, const mt_loop *loop, mt_error *error) {
    for (size_t i = 0; i < loop->live_count; i++) {
        const mt_live_step *s = &loop->lives[i];
        const program_live *l = NULL;
        for (size_t k = 0; k < p->lives_count && !l; k++)
            if (!strcmp(program_string(p, p->lives[k].name), s->name)) l = &p->lives[k];
        if (!l) return error_set(error, MT_E_ARGUMENT, s->name, "the program has no live value '%s'", s->name);
        const int64_t last = s->first + (int64_t)(loop->runs - 1) * s->step;
        if (s->first < l->least || s->first > l->most || last < l->least || last > l->most)
            return error_set(error, MT_E_ARGUMENT, s->name,
                             "live value '%s' goes from %d to %lld; its range is %d .. %d", s->name, s->first,
                             (long long)last, l->least, l->most);
    }
    return MT_OK;
}

/* For machines without a loop of their own. */
static mt_status run_again(mt_session *s, const mt_loop *loop, int32_t *done, mt_error *error) {
    int32_t word = 0;
    mt_status status = MT_OK;
    for (int32_t r = 0; r < loop->runs && status == MT_OK; r++) {
        for (size_t i = 0; i < loop->live_count && status == MT_OK; i++)
            status = mt_session_live(s, loop->lives[i].name, machine_live_at(&loop->lives[i], r), error);
        if (status == MT_OK) status = mt_session_run(s, error);
        if (status != MT_OK) break;
        *done = r + 1;
        if (loop->stop) status = mt_session_read(s, loop->stop, &word, sizeof word, error);
        if ((loop->poll && loop->poll(loop->context)) || word) break;
    }
    return status;
}

mt_status mt_session_loop(mt_session *s, const mt_loop *loop, int32_t *done, mt_error *error) {
    int64_t stop;
    int32_t count = 0;
    if (done) *done = 0;
    if (loop->runs < 1) return error_set(error, MT_E_ARGUMENT, NULL, "a loop of %d runs", loop->runs);
    mt_status status = find_stop(s->made_from, loop->stop, &stop, error);
    if (status == MT_OK) status = check_lives(s->made_from, loop, error);
    if (status != MT_OK) return status;
    status = s->kind->loop ? s->kind->loop(s, loop, stop, &count, error) : run_again(s, loop, &count, error);
    if (done) *done = count;
    return status;
}

static mt_status copy(mt_session *s, const char *name, void *data, size_t bytes, bool write, mt_error *error) {
    void *memory;
    size_t room;
    if (s->kind->copy) return s->kind->copy(s, name, data, bytes, write, error);
    const mt_status status = s->kind->memory(s, name, &memory, &room, error);
    if (status != MT_OK) return status;
    if (bytes > room)
        return error_set(error, MT_E_ARGUMENT, name, "tensor '%s' has %zu bytes, not %zu", name, room, bytes);
    memcpy(write ? memory : data, write ? data : memory, bytes);
    return MT_OK;
}

mt_status mt_session_read(mt_session *s, const char *name, void *data, size_t bytes, mt_error *error) {
    return copy(s, name, data, bytes, false, error);
}
mt_status mt_session_write(mt_session *s, const char *name, const void *data, size_t bytes, mt_error *error) {
    return copy(s, name, (void *)data, bytes, true, error);
}
void mt_session_timeout(mt_session *s, double seconds) { s->kind->timeout(s, seconds); }
