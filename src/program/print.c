/* Programs as text for people. What an instruction touches is computed from its op, as the checker does it; why it
 * waits, by comparing it with those that arrive at its barriers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "monotile/graph.h"
#include "program/program_internal.h"

enum { REASONS = 4 }; /* conflicts shown for a wait */

static const char *const roles[] = {"input", "weight", "state", "output", "temporary"};

static const char *tensor_name(const mt_program *p, uint32_t tensor) {
    return program_string(p, p->tensors[tensor].name);
}

static void print_shape(text *out, int rank, const int64_t *extent) {
    for (int d = 0; d < rank; d++) text_printf(out, "%s%" PRId64, d ? ", " : "[", extent[d]);
    text_string(out, "]");
}

static void print_bytes(text *out, double bytes) {
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 1e4 && unit < 4) bytes /= 1000, unit++;
    text_printf(out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void print_constants(const mt_program *p, const program_op *o, text *out) {
    for (uint32_t k = 0; k < o->constant_count; k++) {
        const program_constant *c = &p->constants[o->constant + k];
        text_printf(out, "%s%s = ", k ? ", " : "[", program_string(p, c->name));
        if (c->type)
            text_string(out, program_string(p, c->type));
        else
            text_printf(out, "%" PRId64, c->value);
    }
    if (o->constant_count) text_string(out, "]");
}

void program_summary(const mt_program *p, text *out) {
    const program_header *h = p->header;
    size_t joins = 0, waits = 0, arrivals = 0, *uses = calloc(p->ops_count + 1, sizeof *uses);
    if (!uses) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < p->instructions_count; i++) {
        const program_instruction *n = &p->instructions[i];
        if (n->opcode == PROGRAM_JOIN)
            joins++;
        else
            uses[n->opcode]++;
        waits += n->wait_count;
        arrivals += n->arrive_count;
    }
    text_printf(out, "program of %zu instructions (%zu joins) in %zu nodes for %u processors, placement %s; ",
                p->instructions_count, joins, p->nodes_count, h->processor_count,
                h->placement == MT_PLACE_QUEUE ? "queue" : "static");
    print_bytes(out, (double)h->file_bytes);
    text_printf(out, "\nbarriers: %zu, %zu arrivals, %zu waits\nmemory:\n", p->barriers_count, arrivals, waits);
    for (int role = 0; role <= MT_TEMP; role++) {
        size_t count = 0;
        double bytes = 0;
        for (size_t i = 0; i < p->tensors_count; i++)
            if (p->tensors[i].role == role) count++, bytes += (double)p->tensors[i].bytes;
        if (!count) continue;
        text_printf(out, "  %-9s %5zu tensors, ", roles[role], count);
        print_bytes(out, bytes);
        if (role == MT_TEMP) {
            text_string(out, ", in slots of ");
            print_bytes(out, (double)h->slot_bytes);
        }
        text_string(out, "\n");
    }
    if (p->lives_count) text_string(out, "live values:\n");
    for (size_t i = 0; i < p->lives_count; i++)
        text_printf(out, "  %s in %d .. %d\n", program_string(p, p->lives[i].name), p->lives[i].least,
                    p->lives[i].most);
    text_string(out, "ops:\n");
    for (size_t i = 0; i < p->ops_count; i++) {
        text_printf(out, "  %3zu %7zu x %s", i, uses[i], program_string(p, p->ops[i].name));
        print_constants(p, &p->ops[i], out);
        text_string(out, "\n");
    }
    free(uses);
}

/* "x = t3", or with the view where it is not the whole tensor: "x = kc + 4096 [64, 3, 64]". */
static void print_operand(const mt_program *p, const char *name, uint32_t operand, text *out) {
    const program_operand *o = &p->operands[operand];
    const program_tensor *t = &p->tensors[o->tensor];
    text_printf(out, "%s = ", name);
    if (*tensor_name(p, o->tensor))
        text_string(out, tensor_name(p, o->tensor));
    else
        text_printf(out, "tensor %u", o->tensor);
    if (o->offset) text_printf(out, " + %" PRId64, o->offset);
    if (o->rank == t->rank && !memcmp(o->extent, t->extent, (size_t)t->rank * sizeof *t->extent)) return;
    text_string(out, " ");
    print_shape(out, o->rank, o->extent);
}

static void print_param(const mt_program *p, const tile_param *param, const program_instruction *n, text *out) {
    if (param->kind <= TILE_INOUT) {
        print_operand(p, param->name, n->tensor[param->ordinal], out);
    } else if (param->kind == TILE_PARAM_LIVE) {
        text_printf(out, "%s = live %s", param->name, program_string(p, p->lives[n->live[param->ordinal]].name));
    } else if (param->type->scalar.kind == TILE_FLOAT) {
        float value;
        memcpy(&value, &n->arg[param->ordinal], sizeof value);
        text_printf(out, "%s = %g", param->name, (double)value);
    } else {
        text_printf(out, "%s = %d", param->name, n->arg[param->ordinal]);
    }
}

static void print_index(const tile_op *op, const program_instruction *n, bool names, text *out) {
    for (int a = 0; a < op->axis_total; a++) {
        text_string(out, a ? ", " : "[");
        if (names) text_printf(out, "%s = ", op->axis_names[a]);
        text_printf(out, "%d", n->index[a]);
    }
    text_string(out, "]");
}

void program_disassemble(const mt_program *p, size_t first, size_t count, text *out) {
    arena *a = arena_new();
    const tile_op **ops;
    if (!a || program_bind_ops(p, a, &ops, NULL) != MT_OK)
        out->failed = true; /* a checked program's ops bind, given memory */
    for (size_t i = first; i < p->instructions_count && i - first < count && !out->failed; i++) {
        const program_instruction *n = &p->instructions[i];
        text_printf(out, "%7zu  ", i);
        if (n->opcode == PROGRAM_JOIN) {
            text_string(out, "join");
        } else {
            const tile_op *op = ops[n->opcode];
            text_printf(out, "%s ", op->name);
            print_index(op, n, false, out);
            for (int k = 0; k < op->param_count; k++) {
                text_string(out, k ? ", " : "  ");
                print_param(p, &op->params[k], n, out);
            }
        }
        for (int k = 0; k < n->wait_count; k++)
            text_printf(out, "%s%u:%u", k ? ", " : "  | wait ", n->wait[k], n->target[k]);
        for (int k = 0; k < n->arrive_count; k++) text_printf(out, "%s%u", k ? ", " : "  | arrive ", n->arrive[k]);
        text_string(out, "\n");
    }
    arena_free(a);
}

/* ---- inspect ---- */

typedef struct access_list { /* what one instruction touches */
    int count;
    program_region region[2 * TILE_PARAMS];
    bool writes[2 * TILE_PARAMS];
} access_list;

typedef struct inspector {
    const mt_program *p;
    program_binding binding;
    text *out;
    mt_error *error;
    size_t instruction;
    access_list mine;
    bool *visited;       /* by barrier: joins behind joins are followed once */
    size_t met, reasons; /* of the current wait */
} inspector;

static mt_status summarise(inspector *s, size_t instruction, tile_instance *instance, tile_summary *summary) {
    const program_instruction *n = &s->p->instructions[instruction];
    const mt_status status = program_bind_instance(s->p, &s->binding, n, instance, s->error);
    if (status != MT_OK) return status;
    int64_t index[TILE_AXES];
    for (int a = 0; a < TILE_AXES; a++) index[a] = n->index[a];
    tile_summarise(instance, index, summary);
    return MT_OK;
}

static mt_status list_accesses(inspector *s, size_t instruction, access_list *out) {
    const program_instruction *n = &s->p->instructions[instruction];
    tile_instance instance;
    tile_summary summary;
    out->count = 0;
    if (n->opcode == PROGRAM_JOIN) return MT_OK;
    const mt_status status = summarise(s, instruction, &instance, &summary);
    for (int k = 0; k < summary.box_count && status == MT_OK; k++) {
        program_view_region(&s->binding.views[n->tensor[summary.box[k].tensor]], &instance, n, &summary.box[k],
                            &out->region[k]);
        out->writes[k] = summary.box[k].writes;
        out->count++;
    }
    return status;
}

static mt_status inspect_op(inspector *s) {
    const mt_program *p = s->p;
    const program_instruction *n = &p->instructions[s->instruction];
    text *out = s->out;
    text_printf(out, "instruction %zu of node '%s'", s->instruction, program_string(p, p->nodes[n->node].name));
    if (n->opcode == PROGRAM_JOIN) {
        text_string(out, ": a join; it only waits and arrives\n");
        return MT_OK;
    }
    const tile_op *op = s->binding.ops[n->opcode];
    tile_instance instance;
    tile_summary summary;
    const mt_status status = summarise(s, s->instruction, &instance, &summary);
    if (status != MT_OK) return status;
    text_printf(out, "\nop %u: %s", n->opcode, op->name);
    print_constants(p, &p->ops[n->opcode], out);
    text_string(out, "\ngrid point ");
    print_index(op, n, true, out);
    text_string(out, "\noperands:\n");
    for (int k = 0; k < op->param_count; k++) {
        const tile_param *param = &op->params[k];
        text_string(out, "  ");
        print_param(p, param, n, out);
        if (param->kind <= TILE_INOUT) {
            const program_tensor *t = &p->tensors[p->operands[n->tensor[param->ordinal]].tensor];
            text_printf(out, ": %s, %s ", roles[t->role], program_string(p, t->format));
            print_shape(out, t->rank, t->extent);
            if (t->role == MT_TEMP) text_printf(out, " at slot byte %" PRId64, t->offset);
        }
        text_string(out, "\n");
    }
    text_string(out, "touches:\n");
    for (int k = 0; k < s->mine.count; k++) {
        text_string(out, s->mine.writes[k] ? summary.box[k].reads ? "  reads and writes " : "  writes " : "  reads ");
        program_region_print(p, &s->mine.region[k], out);
        text_string(out, "\n");
    }
    text_printf(out, "%" PRId64 " bytes read, %" PRId64 " bytes written, %" PRId64 " flops\n", summary.bytes_read,
                summary.bytes_written, summary.flops);
    return MT_OK;
}

/* Prints instruction numbers as ranges, by node: "  12-20 (linear 'blk.0.q')". SIZE_MAX ends the last one. */
typedef struct run {
    size_t first, last;
    bool open;
} run;
static void print_run(const inspector *s, run *r, size_t instruction) {
    const program_instruction *all = s->p->instructions;
    if (r->open && instruction == r->last + 1 && all[instruction].node == all[r->first].node &&
        all[instruction].opcode == all[r->first].opcode) {
        r->last = instruction;
        return;
    }
    if (r->open) {
        const program_instruction *n = &all[r->first];
        text_printf(s->out, r->first == r->last ? "    %zu" : "    %zu-%zu", r->first, r->last);
        text_printf(s->out, " (%s '%s')\n",
                    n->opcode == PROGRAM_JOIN ? "join for" : program_string(s->p, s->p->ops[n->opcode].name),
                    program_string(s->p, s->p->nodes[n->node].name));
    }
    *r = (run){instruction, instruction, instruction != SIZE_MAX};
}

static bool has(const uint32_t *list, int count, uint32_t value) {
    for (int k = 0; k < count; k++)
        if (list[k] == value) return true;
    return false;
}

/* Compares this instruction with one that arrives at a barrier it waits on. */
static mt_status explain(inspector *s, size_t earlier) {
    access_list theirs;
    const mt_status status = list_accesses(s, earlier, &theirs);
    for (int k = 0; k < s->mine.count && status == MT_OK; k++)
        for (int e = 0; e < theirs.count; e++) {
            if ((!s->mine.writes[k] && !theirs.writes[e]) ||
                !program_regions_meet(&s->mine.region[k], &theirs.region[e], INT64_MIN, INT64_MAX))
                continue;
            if (s->mine.region[k].tensor != theirs.region[e].tensor &&
                s->p->tensors[s->mine.region[k].tensor].role != MT_TEMP)
                continue;
            if (s->mine.region[k].tensor != theirs.region[e].tensor &&
                s->p->tensors[theirs.region[e].tensor].role != MT_TEMP)
                continue;
            s->met++;
            if (s->reasons++ >= REASONS) continue;
            text_printf(s->out, "    because this %s ", s->mine.writes[k] ? "writes" : "reads");
            program_region_print(s->p, &s->mine.region[k], s->out);
            text_printf(s->out, ", and %zu %s ", earlier, theirs.writes[e] ? "writes" : "reads");
            program_region_print(s->p, &theirs.region[e], s->out);
            if (s->mine.region[k].tensor != theirs.region[e].tensor) text_string(s->out, " in the same slot");
            text_string(s->out, "\n");
        }
    return status;
}

/* All that arrives at a barrier; joins stand for what they wait on, so those barriers are looked at too. */
static mt_status explain_barrier(inspector *s, uint32_t barrier) {
    const mt_program *p = s->p;
    memset(s->visited, 0, p->barriers_count * sizeof *s->visited);
    s->visited[barrier] = true;
    mt_status status = MT_OK;
    for (size_t i = s->instruction; i-- > 0 && status == MT_OK;) { /* downwards: a join comes before what it waits on */
        const program_instruction *n = &p->instructions[i];
        bool arrives = false;
        for (int k = 0; k < n->arrive_count; k++) arrives = arrives || s->visited[n->arrive[k]];
        if (!arrives) continue;
        if (n->opcode != PROGRAM_JOIN) status = explain(s, i);
        for (int k = 0; k < n->wait_count && n->opcode == PROGRAM_JOIN; k++) s->visited[n->wait[k]] = true;
    }
    return status;
}

static mt_status inspect_waits(inspector *s) {
    const mt_program *p = s->p;
    const program_instruction *n = &p->instructions[s->instruction];
    if (!n->wait_count) text_string(s->out, "waits on nothing\n");
    for (int k = 0; k < n->wait_count; k++) {
        text_printf(s->out, "waits on barrier %u until %u have arrived:\n", n->wait[k], n->target[k]);
        run r = {0};
        for (size_t i = 0; i < s->instruction; i++)
            if (has(p->instructions[i].arrive, p->instructions[i].arrive_count, n->wait[k])) print_run(s, &r, i);
        print_run(s, &r, SIZE_MAX);
        s->met = s->reasons = 0;
        const mt_status status = n->opcode == PROGRAM_JOIN ? MT_OK : explain_barrier(s, n->wait[k]);
        if (status != MT_OK) return status;
        if (s->met > REASONS) text_printf(s->out, "    and %zu more such conflicts\n", s->met - REASONS);
        if (!s->met && n->opcode != PROGRAM_JOIN)
            text_string(s->out,
                        "    no access of these meets one of this instruction: it shares the wait with others\n");
    }
    return MT_OK;
}

static void inspect_arrivals(inspector *s) {
    const mt_program *p = s->p;
    const program_instruction *n = &p->instructions[s->instruction];
    if (!n->arrive_count) text_string(s->out, "arrives nowhere\n");
    for (int k = 0; k < n->arrive_count; k++) {
        text_printf(s->out, "arrives at barrier %u (%u arrivals), on which wait:\n", n->arrive[k],
                    p->barriers[n->arrive[k]].arrivals);
        run r = {0};
        for (size_t i = s->instruction; i < p->instructions_count; i++)
            if (has(p->instructions[i].wait, p->instructions[i].wait_count, n->arrive[k])) print_run(s, &r, i);
        if (!r.open) text_string(s->out, "    nobody\n");
        print_run(s, &r, SIZE_MAX);
    }
}

mt_status program_inspect(const mt_program *p, size_t instruction, text *out, mt_error *error) {
    if (instruction >= p->instructions_count)
        return error_set(error, MT_E_ARGUMENT, NULL, "there is no instruction %zu; the program has %zu", instruction,
                         p->instructions_count);
    inspector s = {.p = p, .out = out, .error = error, .instruction = instruction};
    arena *a = arena_new();
    mt_status status = a && (s.visited = arena_array(a, p->barriers_count, sizeof *s.visited))
                           ? MT_OK
                           : error_set(error, MT_E_MEMORY, NULL, "no memory to inspect a program");
    if (status == MT_OK) status = program_bind(p, a, &s.binding, error);
    if (status == MT_OK) status = list_accesses(&s, instruction, &s.mine);
    if (status == MT_OK) status = inspect_op(&s);
    if (status == MT_OK) status = inspect_waits(&s);
    if (status == MT_OK) inspect_arrivals(&s);
    arena_free(a);
    return status;
}
