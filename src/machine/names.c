#include "machine/names.h"

static bool put(arena *memory, map *m, const char *name, size_t index) {
    return map_put(memory, m, name, strlen(name), (int64_t)index);
}

mt_status machine_names_make(machine_names *n, arena *memory, const mt_program *p, mt_error *error) {
    *n = (machine_names){.values = ARENA_ARRAY(memory, p->lives_count, int32_t)};
    bool good = n->values != NULL;
    for (size_t i = 0; i < p->tensors_count && good; i++)
        if (p->tensors[i].role != MT_TEMP) good = put(memory, &n->tensors, program_string(p, p->tensors[i].name), i);
    for (size_t i = 0; i < p->lives_count && good; i++) {
        good = put(memory, &n->lives, program_string(p, p->lives[i].name), i);
        n->values[i] = p->lives[i].least;
    }
    return good ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
}

int64_t machine_names_tensor(const machine_names *n, const char *name, mt_error *error) {
    const int64_t at = map_get(&n->tensors, name, strlen(name));
    if (at < 0) error_set(error, MT_E_ARGUMENT, name, "the program has no tensor '%s' that can be bound", name);
    return at;
}

int64_t machine_names_bound(const machine_names *n, const mt_program *p, const char *name, const void *data,
                            size_t bytes, bool weight, mt_error *error) {
    const int64_t at = machine_names_tensor(n, name, error);
    if (at < 0) return -1;
    const program_tensor *t = &p->tensors[at];
    if (weight && t->role != MT_WEIGHT)
        error_set(error, MT_E_ARGUMENT, name, "tensor '%s' is no weight: bind memory that may be written", name);
    else if (!data || bytes < (size_t)t->bytes)
        error_set(error, MT_E_ARGUMENT, name, "tensor '%s' needs %lld bytes; %zu are bound", name, (long long)t->bytes,
                  data ? bytes : 0);
    else
        return at;
    return -1;
}

int64_t machine_names_own(const machine_names *n, const mt_program *p, const char *name, mt_error *error) {
    const int64_t at = machine_names_tensor(n, name, error);
    if (at < 0 || p->tensors[at].role != MT_WEIGHT) return at;
    error_set(error, MT_E_ARGUMENT, name, "weight '%s' is the caller's: there is no memory to hand out", name);
    return -1;
}

mt_status machine_names_unbound(const mt_program *p, size_t tensor, mt_error *error) {
    const program_tensor *t = &p->tensors[tensor];
    if (t->role != MT_INPUT && t->role != MT_WEIGHT) return MT_OK;
    const char *name = program_string(p, t->name);
    return error_set(error, MT_E_ARGUMENT, name, "%s '%s' is not bound", t->role == MT_INPUT ? "input" : "weight",
                     name);
}

mt_status machine_names_live(machine_names *n, const mt_program *p, const char *name, int32_t value, bool *changed,
                             mt_error *error) {
    const int64_t at = map_get(&n->lives, name, strlen(name));
    if (at < 0) return error_set(error, MT_E_ARGUMENT, name, "the program has no live value '%s'", name);
    const program_live *l = &p->lives[at];
    if (value < l->least || value > l->most)
        return error_set(error, MT_E_ARGUMENT, name, "live value '%s' is %d; its range is %d .. %d", name, value,
                         l->least, l->most);
    if (changed) *changed = *changed || n->values[at] != value;
    n->values[at] = value;
    return MT_OK;
}
