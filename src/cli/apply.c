/* Building a graph of one node from command-line options. */
#include "apply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool apply_option_add(apply_options *o, const char *command, int letter, const char *argument) {
    apply_option option = {.letter = (char)letter};
    const char *equals = strchr(argument, '=');
    if (!equals || equals == argument || (size_t)(equals - argument) >= sizeof option.name) {
        cli_usage(command, "-%c takes NAME=VALUE, not '%s'", letter, argument);
        return false;
    }
    memcpy(option.name, argument, (size_t)(equals - argument));
    option.value = equals + 1;
    apply_option *items = realloc(o->items, (o->count + 1) * sizeof *items);
    if (!items) {
        fputs("monotile: no memory for the options\n", stderr);
        return false;
    }
    o->items = items;
    o->items[o->count++] = option;
    return true;
}

static const apply_option *find(const apply_options *o, char letter, const char *name) {
    for (size_t i = 0; i < o->count; i++)
        if (o->items[i].letter == letter && !strcmp(o->items[i].name, name)) return &o->items[i];
    return NULL;
}

static bool integer(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 0);
    return end != text && !*end && !errno;
}

mt_constant apply_constant(const apply_option *o) {
    mt_constant c = {.name = o->name};
    if (!integer(o->value, &c.value)) c.type = o->value;
    return c;
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

/* "4x64:q4_1", where either half may be missing. */
static mt_status take_shape(apply_tensor *t, const apply_option *o, mt_error *error) {
    const char *at = o->value;
    bool good = true;
    if (*at != ':') {
        t->rank = 0;
        do {
            char *end;
            errno = 0;
            const int64_t extent = strtoll(at, &end, 10);
            good = end != at && !errno && t->rank < NPY_RANK;
            if (good) t->extent[t->rank++] = extent;
            at = end;
        } while (good && *at++ == 'x');
        at -= good; /* back to what is no x */
    }
    if (!good || (*at && (*at != ':' || strlen(at + 1) >= sizeof t->type)))
        return cli_error(error, MT_E_ARGUMENT, o->name, "'%s' is no shape: expected extents and a type, as in 4x64:f16",
                         o->value);
    if (*at) strcpy(t->type, at + 1);
    return MT_OK;
}

static const mt_constant *constant(const apply *a, const char *name) {
    for (size_t i = 0; i < a->constant_count; i++)
        if (!strcmp(a->constants[i].name, name)) return &a->constants[i];
    return NULL;
}

/* The extent that the program calls `name`; 0 when it does not follow. */
static int64_t find_extent(const apply *a, const char *name) {
    const mt_constant *c = constant(a, name);
    if (c && !c->type) return c->value;
    for (int i = 0; i < a->tensor_count; i++)
        for (int d = 0; d < a->tensors[i].rank; d++)
            if (a->tensors[i].parameter->extent[d] && !strcmp(a->tensors[i].parameter->extent[d], name))
                return a->tensors[i].extent[d];
    return 0;
}

/* The type that the program calls `name`: a constant's, another tensor's, or the default. */
static const char *find_type(const apply *a, const char *name, const mt_constant *defaults, size_t default_count) {
    const mt_constant *c = constant(a, name);
    if (c && c->type) return c->type;
    for (int i = 0; i < a->tensor_count; i++)
        if (a->tensors[i].type[0] && !strcmp(a->tensors[i].parameter->type, name)) return a->tensors[i].type;
    for (size_t i = 0; i < default_count; i++)
        if (defaults[i].type && !strcmp(defaults[i].name, name)) {
            const char *other = mt_tile_constant_follows(a->file, a->program, name); /* one in front of it: this ends */
            return other ? find_type(a, other, defaults, default_count) : defaults[i].type;
        }
    return name; /* no constant: the type itself */
}

/* What the options and files say of a tensor. */
static mt_status take_tensor(apply_tensor *t, const apply_options *o, mt_error *error) {
    const char *name = t->parameter->name;
    const apply_option *input = find(o, 'i', name), *output = find(o, 'o', name), *shape = find(o, 's', name);
    if (output && t->parameter->kind == MT_PARAMETER_IN)
        return cli_error(error, MT_E_ARGUMENT, name, "this parameter is only read: -o needs one that is written");
    t->output = output ? output->value : NULL;
    if (input) {
        t->input = input->value;
        const mt_status status = npy_read(&t->data, input->value, error);
        if (status != MT_OK) return status;
        t->rank = t->data.rank;
        memcpy(t->extent, t->data.extent, sizeof t->extent);
        strcpy(t->type, t->data.type);
    }
    const mt_status status = shape ? take_shape(t, shape, error) : MT_OK;
    if (status == MT_OK && t->rank && t->rank != t->parameter->rank)
        return cli_error(error, MT_E_ARGUMENT, name, "the tensor has %d dimensions; the program's has %d", t->rank,
                         t->parameter->rank);
    return status;
}

/* What follows for a tensor from the others. */
static mt_status infer_tensor(apply *a, apply_tensor *t, const mt_constant *defaults, size_t default_count,
                              mt_error *error) {
    const mt_parameter *p = t->parameter;
    if (!t->type[0]) snprintf(t->type, sizeof t->type, "%s", find_type(a, p->type, defaults, default_count));
    if (t->rank) return MT_OK;
    if (p->kind == MT_PARAMETER_IN)
        return cli_error(error, MT_E_ARGUMENT, p->name,
                         "this input is not given: -i %s=FILE.npy gives an array, -s %s=SHAPE what `show` needs",
                         p->name, p->name);
    for (int d = 0; d < p->rank; d++) {
        t->extent[d] = p->extent[d] ? find_extent(a, p->extent[d]) : 0;
        if (t->extent[d] < 1)
            return cli_error(error, MT_E_ARGUMENT, p->name,
                             "its extent %d does not follow from the others: give -s %s=SHAPE", d, p->name);
    }
    t->rank = p->rank;
    return MT_OK;
}

/* ---- the node --------------------------------------------------------------------------------------------------- */

static mt_status add_tensor(apply *a, const apply_tensor *t, mt_operand *out, mt_error *error) {
    const mt_role role = t->parameter->kind == MT_PARAMETER_IN                 ? MT_INPUT
                         : t->parameter->kind == MT_PARAMETER_OUT && !t->input ? MT_OUTPUT
                                                                               : MT_STATE;
    *out = (mt_operand){.name = t->parameter->name, .kind = MT_IS_TENSOR};
    return mt_graph_tensor(a->graph, role, t->parameter->name, t->type, t->rank, t->extent, &out->tensor, error);
}

/* An arg or a live value. Its range is just its value, so that grids and boxes are exact. */
static mt_status add_scalar(apply *a, const mt_parameter *p, const apply_options *o, mt_operand *out, mt_error *error) {
    const bool live = p->kind == MT_PARAMETER_LIVE;
    const apply_option *option = find(o, live ? 'l' : 'a', p->name);
    char *end;
    int64_t value;
    if (!option)
        return cli_error(error, MT_E_ARGUMENT, p->name, "this %s is not given: give -%c %s=VALUE",
                         live ? "live value" : "arg", live ? 'l' : 'a', p->name);
    *out = (mt_operand){.name = p->name};
    if (!live && p->type[0] == 'f') {
        out->kind = MT_IS_FLOAT;
        out->number = strtof(option->value, &end);
        return *option->value && !*end ? MT_OK
                                       : cli_error(error, MT_E_ARGUMENT, p->name, "'%s' is no number", option->value);
    }
    if (!integer(option->value, &value) || value < INT32_MIN || value > INT32_MAX)
        return cli_error(error, MT_E_ARGUMENT, p->name, "'%s' is no 32-bit integer", option->value);
    out->kind = live ? MT_IS_LIVE : MT_IS_INTEGER;
    out->integer = value;
    return live ? mt_graph_live(a->graph, p->name, (int32_t)value, (int32_t)value, &out->live, error) : MT_OK;
}

/* Constants that were not given and follow from the tensors. */
static void infer_constants(apply *a, const mt_constant *defaults, size_t count) {
    for (size_t i = 0; i < count; i++) {
        mt_constant c = {.name = defaults[i].name, .value = find_extent(a, defaults[i].name)};
        for (int t = 0; t < a->tensor_count; t++)
            if (!strcmp(a->tensors[t].parameter->type, c.name)) c.type = a->tensors[t].type;
        if ((c.value || c.type) && !constant(a, c.name) && a->constant_count < APPLY_CONSTANTS)
            a->constants[a->constant_count++] = c;
    }
}

/* Every option must name a parameter of its kind. */
static mt_status check_names(const apply *a, size_t count, const apply_options *o, mt_error *error) {
    for (size_t i = 0; i < o->count; i++) {
        const apply_option *option = &o->items[i];
        if (option->letter == 'c') continue;
        size_t p = 0;
        while (p < count && strcmp(a->parameters[p].name, option->name)) p++;
        const mt_parameter_kind kind = p < count ? a->parameters[p].kind : MT_PARAMETER_ARG;
        const char letter = option->letter;
        if (p == count || (letter == 'a' && kind != MT_PARAMETER_ARG) || (letter == 'l' && kind != MT_PARAMETER_LIVE) ||
            (strchr("ios", letter) && kind > MT_PARAMETER_INOUT))
            return cli_error(error, MT_E_ARGUMENT, option->name, "-%c: the program has no such %s", letter,
                             letter == 'a'   ? "arg"
                             : letter == 'l' ? "live value"
                                             : "tensor");
        if (find(o, letter, option->name) != option)
            return cli_error(error, MT_E_ARGUMENT, option->name, "-%c is given twice", letter);
    }
    return MT_OK;
}

mt_status apply_build(apply *a, const mt_tile *file, const char *program, const apply_options *o, bool keep_defaults,
                      mt_error *error) {
    mt_constant defaults[APPLY_CONSTANTS];
    mt_operand operands[APPLY_PARAMETERS + 2 * APPLY_CONSTANTS];
    size_t operand_count = 0;
    a->file = file;
    a->program = program;
    const size_t count = mt_tile_parameters(file, program, a->parameters, APPLY_PARAMETERS);
    const size_t default_count = mt_tile_constants(file, program, defaults, APPLY_CONSTANTS);
    if (!count) return cli_error(error, MT_E_ARGUMENT, program, "there is no tile program of this name");
    mt_status status = check_names(a, count, o, error);
    for (size_t i = 0; status == MT_OK && i < o->count; i++) {
        if (o->items[i].letter != 'c') continue;
        if (a->constant_count == APPLY_CONSTANTS)
            return cli_error(error, MT_E_LIMIT, program, "more than %d constants", APPLY_CONSTANTS);
        const mt_constant c = a->constants[a->constant_count++] = apply_constant(&o->items[i]);
        operands[operand_count++] = c.type ? MT_OPERAND_TYPE(c.name, c.type) : MT_OPERAND_INTEGER(c.name, c.value);
    }
    for (size_t i = 0; status == MT_OK && keep_defaults && i < default_count; i++)
        if (!defaults[i].type && defaults[i].value != INT64_MIN && !constant(a, defaults[i].name))
            operands[operand_count++] = MT_OPERAND_INTEGER(defaults[i].name, defaults[i].value);
    for (size_t i = 0; status == MT_OK && i < count; i++) {
        if (a->parameters[i].kind > MT_PARAMETER_INOUT) continue;
        apply_tensor *t = &a->tensors[a->tensor_count++];
        t->parameter = &a->parameters[i];
        status = take_tensor(t, o, error);
    }
    for (int i = 0; status == MT_OK && i < a->tensor_count; i++)
        status = infer_tensor(a, &a->tensors[i], defaults, default_count, error);
    if (status == MT_OK) status = mt_graph_create(&a->graph, error);
    if (status == MT_OK) status = mt_graph_use(a->graph, file, error);
    for (int i = 0; status == MT_OK && i < a->tensor_count; i++)
        status = add_tensor(a, &a->tensors[i], &operands[operand_count++], error);
    for (size_t i = 0; status == MT_OK && i < count; i++)
        if (a->parameters[i].kind > MT_PARAMETER_INOUT)
            status = add_scalar(a, &a->parameters[i], o, &operands[operand_count++], error);
    if (status == MT_OK) status = mt_graph_node(a->graph, file, program, program, operands, operand_count, NULL, error);
    if (status == MT_OK) infer_constants(a, defaults, default_count);
    return status;
}

void apply_free(apply *a) {
    mt_graph_destroy(a->graph);
    for (int i = 0; i < a->tensor_count; i++) free(a->tensors[i].data.data);
}
