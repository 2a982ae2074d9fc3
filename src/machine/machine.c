/* The public face of machines: finds the kind that a name begins with and calls through its table. */
#include "machine/machine.h"

#include <stdio.h>

static const machine_kind *const kinds[] = {&machine_cpu, &machine_cuda}; /* "auto" is the first that opens */

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
                           "there is no machine '%s'; there are \"cpu\", \"cpu:N\", \"cuda:N\" and \"auto\"", name);
}

void mt_machine_close(mt_machine *m) {
    if (m) m->kind->close(m);
}

const char *mt_machine_name(const mt_machine *m) { return m->name; }
int mt_machine_processors(const mt_machine *m) { return m->kind->processors(m); }

mt_status mt_session_create(mt_session **out, mt_machine *m, const mt_program *p, mt_error *error) {
    *out = NULL;
    const mt_status status = m->kind->session_create(out, m, p, error);
    if (status == MT_OK) (*out)->kind = m->kind;
    return status;
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
void mt_session_timeout(mt_session *s, double seconds) { s->kind->timeout(s, seconds); }
mt_status mt_session_profile(mt_session *s, int enable, mt_error *error) { return s->kind->profile(s, enable, error); }
size_t mt_session_node_times(const mt_session *s, mt_node_time *out, size_t room) {
    return s->kind->node_times(s, out, room);
}
