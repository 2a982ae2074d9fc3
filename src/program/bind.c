/* Gives a program's tables their meaning again: ops from their texts and constants, storage formats from their
 * declarations, operands as views of tensors, nodes as instances of ops. Nothing that scheduling knew is taken over;
 * an op whose hash differs from the compiler's is refused, since its code would not be what was scheduled. */
#include <stdio.h>

#include "monotile/graph.h"
#include "program/program_internal.h"

enum { MOST_ELEMENTS_LOG2 = 48 };

static mt_status out_of_memory(mt_error *error) {
    return error_set(error, MT_E_MEMORY, NULL, "no memory to bind a program");
}

static mt_status bind_op(const mt_program *p, arena *a, const tile_file *file, const program_op *o, const tile_op **out,
                         mt_error *error) {
    const char *name = program_string(p, o->name);
    tile_constant constants[TILE_CONSTANTS];
    if (o->constant_count > TILE_CONSTANTS)
        return error_set(error, MT_E_FORMAT, name, "op '%s' has %u constants; %d are possible", name, o->constant_count,
                         TILE_CONSTANTS);
    for (uint32_t k = 0; k < o->constant_count; k++) {
        const program_constant *c = &p->constants[o->constant + k];
        constants[k] = (tile_constant){.name = program_string(p, c->name), .value = c->value};
        if (!c->type) continue;
        constants[k].type = tile_file_find_format(file, program_string(p, c->type));
        if (!constants[k].type)
            return error_set(error, MT_E_FORMAT, name, "op '%s': there is no type '%s'", name,
                             program_string(p, c->type));
    }
    const mt_status status = tile_bind(a, out, file, name, constants, o->constant_count, NULL, error);
    if (status != MT_OK) return status;
    if ((*out)->hash.low != o->hash[0] || (*out)->hash.high != o->hash[1])
        return error_set(error, MT_E_FORMAT, name,
                         "op '%s' is not the one that the program was compiled with: compile it again", name);
    if ((*out)->tensor_count > PROGRAM_TENSORS || (*out)->arg_count > PROGRAM_ARGS ||
        (*out)->live_count > PROGRAM_LIVES)
        return error_set(error, MT_E_LIMIT, name,
                         "op '%s' has more operands than an instruction holds: %d tensors, %d args, %d live values",
                         name, PROGRAM_TENSORS, PROGRAM_ARGS, PROGRAM_LIVES);
    return MT_OK;
}

/* Ops with one text (the same tile program, other constants) share its parse. */
mt_status program_bind_ops(const mt_program *p, arena *a, const tile_op ***out, mt_error *error) {
    map parsed = {0};
    tile_file **files = ARENA_ARRAY(a, p->ops_count, tile_file *);
    const tile_op **ops = ARENA_ARRAY(a, p->ops_count, const tile_op *);
    mt_status status = files && ops ? MT_OK : out_of_memory(error);
    for (size_t i = 0; i < p->ops_count && status == MT_OK; i++) {
        const program_op *o = &p->ops[i];
        const char *source = program_string(p, o->text), *key = (const char *)&o->text;
        int64_t file = map_get(&parsed, key, sizeof o->text);
        if (file < 0) {
            status = tile_parse(&files[i], program_string(p, o->path), source, strlen(source), NULL, error);
            if (status != MT_OK)
                files[i] = NULL;
            else if (!map_put(a, &parsed, key, sizeof o->text, file = (int64_t)i))
                status = out_of_memory(error);
        }
        if (status == MT_OK) status = bind_op(p, a, files[file], o, &ops[i], error);
    }
    for (size_t i = 0; i < p->ops_count && files; i++)
        if (files[i]) tile_file_free(files[i]);
    *out = ops;
    return status;
}

/* Where the fields lie: a machine may lay them in another way. */
static mt_status copy_fields(arena *a, const tile_format_body *from, tile_format_body *to, mt_error *error) {
    to->fields = ARENA_ARRAY(a, (size_t)from->field_count + 1, tile_field);
    if (!to->fields) return out_of_memory(error);
    to->field_count = from->field_count;
    for (int i = 0; i < from->field_count; i++) {
        to->fields[i] = from->fields[i];
        to->fields[i].name = ""; /* the file's */
    }
    return MT_OK;
}

/* What is kept of a declared format: enough for sizes, to see that two are the same, and to lay blocks apart. */
static mt_status bind_format(const mt_program *p, arena *a, const program_tensor *t, const tile_format **out,
                             mt_error *error) {
    const char *name = program_string(p, t->format), *source = program_string(p, t->format_text);
    if (!*source) {
        *out = tile_format_scalar(name, strlen(name));
        return *out ? MT_OK : error_set(error, MT_E_FORMAT, name, "there is no type '%s'", name);
    }
    tile_file *file;
    mt_status status = tile_parse(&file, name, source, strlen(source), NULL, error);
    if (status != MT_OK) return status;
    const tile_format *found = tile_file_find_format(file, name);
    tile_format *copy = ARENA_NEW(a, tile_format);
    tile_format_body *body = ARENA_NEW(a, tile_format_body);
    if (!copy || !body)
        status = out_of_memory(error);
    else if (!found || !found->body || tile_file_format_count(file) != 1)
        status = error_set(error, MT_E_FORMAT, name, "the text of format '%s' does not declare it", name);
    else {
        *copy = (tile_format){name, found->scalar, found->block, found->bits, body};
        body->text = source;
        status = copy_fields(a, found->body, body, error);
        *out = copy;
    }
    tile_file_free(file);
    return status;
}

static mt_status check_tensor(const mt_program *p, const program_tensor *t, const tile_format *f, mt_error *error) {
    const char *name = program_string(p, t->name);
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) {
        if (t->extent[d] < 1 || t->extent[d] > ((int64_t)1 << MOST_ELEMENTS_LOG2) / count)
            return error_set(error, MT_E_FORMAT, name, "tensor '%s' has extent %lld in dimension %d", name,
                             (long long)t->extent[d], d);
        count *= t->extent[d];
        if (t->live[d] >= 0 && (p->lives[t->live[d]].least < 0 || p->lives[t->live[d]].most > t->extent[d]))
            return error_set(error, MT_E_FORMAT, name,
                             "tensor '%s': live value '%s' can leave the range 0 .. %lld of dimension %d", name,
                             program_string(p, p->lives[t->live[d]].name), (long long)t->extent[d], d);
    }
    if (t->extent[t->rank - 1] % f->block)
        return error_set(error, MT_E_FORMAT, name, "tensor '%s' has rows that are no multiple of %s's block of %d",
                         name, f->name, f->block);
    const int64_t bytes = tile_format_bytes(f, count);
    if (bytes != t->bytes)
        return error_set(error, MT_E_FORMAT, name, "tensor '%s' has %lld bytes; its shape and type need %lld", name,
                         (long long)t->bytes, (long long)bytes);
    return MT_OK;
}

static mt_status bind_tensors(const mt_program *p, arena *a, program_binding *b, mt_error *error) {
    b->formats = ARENA_ARRAY(a, p->tensors_count, const tile_format *);
    b->views = ARENA_ARRAY(a, p->operands_count, program_view);
    if (!b->formats || !b->views) return out_of_memory(error);
    map known = {0}; /* (name, text) -> the first tensor that has it */
    for (size_t i = 0; i < p->tensors_count; i++) {
        const program_tensor *t = &p->tensors[i];
        _Static_assert(offsetof(program_tensor, format_text) == offsetof(program_tensor, format) + 4,
                       "the key is both fields");
        const int64_t before = map_get(&known, (const char *)&t->format, 8);
        mt_status status = MT_OK;
        if (before >= 0)
            b->formats[i] = b->formats[before];
        else if (!map_put(a, &known, (const char *)&t->format, 8, (int64_t)i))
            status = out_of_memory(error);
        else
            status = bind_format(p, a, t, &b->formats[i], error);
        if (status == MT_OK) status = check_tensor(p, t, b->formats[i], error);
        if (status != MT_OK) return status;
    }
    for (size_t i = 0; i < p->operands_count; i++) {
        const program_operand *o = &p->operands[i];
        const mt_status status = program_view_make(p, o, b->formats[o->tensor], &b->views[i], error);
        if (status != MT_OK) return status;
    }
    return MT_OK;
}

mt_status program_bind(const mt_program *p, arena *a, program_binding *out, mt_error *error) {
    *out = (program_binding){0};
    const mt_status status = program_bind_ops(p, a, &out->ops, error);
    return status == MT_OK ? bind_tensors(p, a, out, error) : status;
}

mt_status program_instance(const mt_program *p, const tile_op *op, const program_instruction *n, tile_instance *out,
                           mt_error *error) {
    *out = (tile_instance){.op = op};
    for (int k = 0; k < op->param_count; k++) {
        const tile_param *param = &op->params[k];
        const int at = param->ordinal;
        if (param->kind == TILE_PARAM_ARG) {
            if (param->type->scalar.kind == TILE_FLOAT)
                memcpy(&out->arg[at].f, &n->arg[at], sizeof out->arg[at].f);
            else
                out->arg[at].i = n->arg[at];
        } else if (param->kind == TILE_PARAM_LIVE) {
            if (n->live[at] >= p->lives_count)
                return error_set(error, MT_E_FORMAT, op->name, "'%s' of '%s' has no live value", param->name, op->name);
            out->live[at].least = p->lives[n->live[at]].least;
            out->live[at].most = p->lives[n->live[at]].most;
        } else {
            if (n->tensor[at] >= p->operands_count)
                return error_set(error, MT_E_FORMAT, op->name, "'%s' of '%s' has no operand", param->name, op->name);
            const program_operand *o = &p->operands[n->tensor[at]];
            out->tensor[at].rank = o->rank;
            memcpy(out->tensor[at].extent, o->extent, sizeof out->tensor[at].extent);
            for (int d = 0; d < o->rank && d < TILE_RANK; d++) out->tensor[at].live[d] = o->live[d] >= 0;
        }
    }
    return tile_instance_check(out, error);
}

mt_status program_bind_instance(const mt_program *p, const program_binding *b, const program_instruction *n,
                                tile_instance *out, mt_error *error) {
    const tile_op *op = b->ops[n->opcode];
    const mt_status status = program_instance(p, op, n, out, error);
    if (status != MT_OK) return status;
    for (int k = 0; k < op->param_count; k++) {
        const tile_param *param = &op->params[k];
        if (param->kind > TILE_INOUT) continue;
        const uint32_t tensor = p->operands[n->tensor[param->ordinal]].tensor;
        const program_tensor *t = &p->tensors[tensor];
        if (!tile_format_same(param->type, b->formats[tensor]))
            return error_set(error, MT_E_FORMAT, op->name, "'%s' of '%s' is %s, but tensor '%s' is %s", param->name,
                             op->name, param->type->name, program_string(p, t->name), b->formats[tensor]->name);
        if (param->kind != TILE_IN && (t->role == MT_INPUT || t->role == MT_WEIGHT))
            return error_set(error, MT_E_FORMAT, op->name,
                             "'%s' of '%s' is written, but tensor '%s' is an input or a weight", param->name, op->name,
                             program_string(p, t->name));
    }
    for (int k = op->tensor_count; k < PROGRAM_TENSORS; k++)
        if (n->tensor[k])
            return error_set(error, MT_E_FORMAT, op->name, "an instruction has more operands than '%s'", op->name);
    for (int k = op->axis_total; k < PROGRAM_AXES; k++)
        if (n->index[k])
            return error_set(error, MT_E_FORMAT, op->name, "an instruction has more indices than '%s' has axes",
                             op->name);
    return MT_OK;
}

/* Messages name instructions of programs in which anything may be wrong. */
void program_instruction_name(const mt_program *p, size_t instruction, char *out, size_t size) {
    const program_instruction *n = &p->instructions[instruction];
    const char *node = n->node < p->nodes_count ? program_string(p, p->nodes[n->node].name) : "?",
               *op = n->opcode < p->ops_count ? program_string(p, p->ops[n->opcode].name) : "?";
    const int32_t *i = n->index;
    if (n->opcode == PROGRAM_JOIN)
        snprintf(out, size, "instruction %zu (join for '%s')", instruction, node);
    else
        snprintf(out, size, "instruction %zu (%s '%s' [%d, %d, %d, %d, %d])", instruction, op, node, i[0], i[1], i[2],
                 i[3], i[4]);
}
