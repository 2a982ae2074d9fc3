/* From bytes to a program. Every byte of a .mono file is hostile until it has passed here: sizes and offsets first,
 * then the hash, then every index of every table, so that whoever reads the program afterwards follows indices without
 * looking. What needs the meaning of ops (operands inside tensors, order) is check.c's. docs/program.md states the
 * rules in the order of this file.
 *
 * The sections lie one behind another in the order of PROGRAM_SECTIONS, each at the next multiple of
 * PROGRAM_ALIGNMENT; the bytes in between are zero. One program thus has one image, and no byte of it is left
 * unchecked. */
#include <stdio.h>
#include <stdlib.h>

#include "monotile/graph.h"
#include "program/program_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a program is used as it lies in the file");
_Static_assert(sizeof(program_header) == 56 + 16 * 11, "the file format fixes the header's size");
_Static_assert(sizeof(program_op) == 40 && sizeof(program_constant) == 16 && sizeof(program_live) == 12,
               "fixed by the file format");
_Static_assert(sizeof(program_tensor) == 88 && sizeof(program_operand) == 112 && sizeof(program_barrier) == 8,
               "fixed by the file format");
_Static_assert(sizeof(program_node) == 16 && sizeof(program_processor) == 8, "fixed by the file format");

enum { MOST_PROCESSORS = 65536, MOST_INSTRUCTIONS = INT32_MAX };

typedef struct reader {
    const mt_program *p;
    const char *name; /* of the file, for messages */
    mt_error *error;
} reader;

#define FAIL(r, ...) error_set((r)->error, MT_E_FORMAT, (r)->name, __VA_ARGS__)

static bool is_zero(const void *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (((const uint8_t *)data)[i]) return false;
    return true;
}

/* Strings are terminated inside their section, whose last byte is NUL (read_tables). */
static bool string_valid(const mt_program *p, uint32_t offset) { return offset < p->strings_count; }
static bool string_given(const mt_program *p, uint32_t offset) { return string_valid(p, offset) && p->strings[offset]; }

static mt_status read_header(reader *r, const uint8_t *data, size_t size) {
    const program_header *h = (const program_header *)data;
    if (size < 12 || memcmp(data, "MONOTILE", 8))
        return FAIL(r, "this is not a program: it does not begin with \"MONOTILE\"");
    if (h->version != PROGRAM_VERSION)
        return error_set(r->error, MT_E_UNSUPPORTED, r->name,
                         "the program has format version %u; this build reads version %d: compile it again", h->version,
                         PROGRAM_VERSION);
    if (size < sizeof *h) return FAIL(r, "the program is cut off inside its header: %zu bytes of %zu", size, sizeof *h);
    if (h->header_bytes != sizeof *h)
        return FAIL(r, "the header says it has %u bytes; it has %zu", h->header_bytes, sizeof *h);
    if (h->file_bytes != size)
        return FAIL(r, "the program should have %llu bytes and has %zu: it is cut off or damaged",
                    (unsigned long long)h->file_bytes, size);
    const hash128 hash = hash_bytes(data + sizeof *h, size - sizeof *h);
    if (hash.low != h->hash[0] || hash.high != h->hash[1]) return FAIL(r, "the program is damaged: its hash is wrong");
    if (h->placement > MT_PLACE_QUEUE) return FAIL(r, "placement %u is unknown", h->placement);
    if (h->processor_count < 1 || h->processor_count > MOST_PROCESSORS)
        return FAIL(r, "the program is for %u processors; 1 to %d are possible", h->processor_count, MOST_PROCESSORS);
    return MT_OK;
}

/* Takes one section: *end is where the one before it ended. */
static mt_status read_section(reader *r, const uint8_t *data, const program_section *s, const char *what,
                              size_t element, uint64_t *end) {
    const uint64_t size = r->p->header->file_bytes, start = align_up(*end, PROGRAM_ALIGNMENT);
    if (s->offset != start)
        return FAIL(r, "section '%s' begins at byte %llu, not %llu", what, (unsigned long long)s->offset,
                    (unsigned long long)start);
    if (start > size || s->count > (size - start) / element)
        return FAIL(r, "section '%s' has %llu elements, which reach past the file's end", what,
                    (unsigned long long)s->count);
    if (s->count > UINT32_MAX - 1)
        return FAIL(r, "section '%s' has %llu elements, which is too many", what, (unsigned long long)s->count);
    if (!is_zero(data + *end, start - *end)) return FAIL(r, "the padding before section '%s' is not zero", what);
    *end = start + s->count * element;
    return MT_OK;
}

static mt_status read_sections(reader *r, mt_program *p, const uint8_t *data) {
    const program_header *h = p->header;
    uint64_t end = sizeof *h;
    mt_status status = MT_OK;
#define X(name, type, what)                                                                                            \
    if (status == MT_OK) status = read_section(r, data, &h->name, #name, sizeof(type), &end);                          \
    if (status != MT_OK) return status;                                                                                \
    p->name = (const type *)(data + h->name.offset);                                                                   \
    p->name##_count = h->name.count;
    PROGRAM_SECTIONS(X)
#undef X
    if (align_up(end, PROGRAM_ALIGNMENT) < h->file_bytes || !is_zero(data + end, h->file_bytes - end))
        return FAIL(r, "there are unknown bytes behind the last section");
    if (!p->strings_count || p->strings[0] || p->strings[p->strings_count - 1])
        return FAIL(r, "the strings do not begin and end with a NUL");
    return MT_OK;
}

static mt_status read_ops(reader *r) {
    const mt_program *p = r->p;
    for (size_t i = 0; i < p->ops_count; i++) {
        const program_op *o = &p->ops[i];
        if (!string_given(p, o->name) || !string_given(p, o->text) || !string_valid(p, o->path))
            return FAIL(r, "op %zu: no name or no text", i);
        if (o->constant > p->constants_count || o->constant_count > p->constants_count - o->constant)
            return FAIL(r, "op %zu: its constants reach past the table", i);
        if (o->reserved) return FAIL(r, "op %zu: a reserved field is not zero", i);
    }
    for (size_t i = 0; i < p->constants_count; i++)
        if (!string_given(p, p->constants[i].name) || !string_valid(p, p->constants[i].type))
            return FAIL(r, "constant %zu: a bad string", i);
    return MT_OK;
}

static bool names_differ(arena *a, map *seen, const char *name) {
    return map_get(seen, name, strlen(name)) < 0 && map_put(a, seen, name, strlen(name), 0);
}

static mt_status read_lives(reader *r, arena *names) {
    const mt_program *p = r->p;
    map seen = {0};
    if (p->lives_count > INT16_MAX)
        return FAIL(r, "there are %zu live values; %d are possible", p->lives_count, INT16_MAX);
    for (size_t i = 0; i < p->lives_count; i++) {
        const program_live *l = &p->lives[i];
        if (!string_given(p, l->name) || !names_differ(names, &seen, program_string(p, l->name)))
            return FAIL(r, "live value %zu: its name is missing or not unique", i);
        if (l->least > l->most)
            return FAIL(r, "live value '%s': its range %d .. %d is empty", program_string(p, l->name), l->least,
                        l->most);
    }
    return MT_OK;
}

static bool lives_valid(const mt_program *p, const int16_t *live) {
    for (int d = 0; d < PROGRAM_RANK; d++)
        if (live[d] < PROGRAM_NONE || (live[d] >= 0 && (size_t)live[d] >= p->lives_count)) return false;
    return true;
}

static mt_status read_tensors(reader *r, arena *names) {
    const mt_program *p = r->p;
    map seen = {0};
    uint64_t slot_end = 0;
    for (size_t i = 0; i < p->tensors_count; i++) {
        const program_tensor *t = &p->tensors[i];
        if (!string_valid(p, t->name) || !string_given(p, t->format) || !string_valid(p, t->format_text))
            return FAIL(r, "tensor %zu: a bad string", i);
        const char *name = program_string(p, t->name);
        if (t->role > MT_TEMP) return FAIL(r, "tensor %zu: role %u is unknown", i, t->role);
        if (t->rank < 1 || t->rank > PROGRAM_RANK) return FAIL(r, "tensor %zu: rank %u", i, t->rank);
        if (!is_zero(t->reserved, sizeof t->reserved) || !is_zero(t->padding, sizeof t->padding))
            return FAIL(r, "tensor %zu: a reserved field is not zero", i);
        if (!lives_valid(p, t->live)) return FAIL(r, "tensor %zu: there is no such live value", i);
        if (t->bytes < 1) return FAIL(r, "tensor %zu: its size is %lld bytes", i, (long long)t->bytes);
        if (t->role != MT_TEMP) {
            if (t->offset != PROGRAM_NONE) return FAIL(r, "tensor %zu: it is bound, so its offset must be -1", i);
            if (!*name || !names_differ(names, &seen, name))
                return FAIL(r, "tensor %zu: its name '%s' is missing or not unique", i, name);
            continue;
        }
        if (t->offset < 0 || t->offset % PROGRAM_ALIGNMENT)
            return FAIL(r, "tensor %zu: offset %lld is no multiple of %d", i, (long long)t->offset, PROGRAM_ALIGNMENT);
        if ((uint64_t)t->offset > p->header->slot_bytes ||
            (uint64_t)t->bytes > p->header->slot_bytes - (uint64_t)t->offset)
            return FAIL(r, "tensor %zu: it reaches past the slots' %llu bytes", i,
                        (unsigned long long)p->header->slot_bytes);
        if ((uint64_t)(t->offset + t->bytes) > slot_end) slot_end = (uint64_t)(t->offset + t->bytes);
    }
    /* The header is outside the hash; this is what keeps a damaged size from becoming a huge allocation. */
    if (p->header->slot_bytes - slot_end >= 4096)
        return FAIL(r, "the slots have %llu bytes, of which only %llu are used",
                    (unsigned long long)p->header->slot_bytes, (unsigned long long)slot_end);
    return MT_OK;
}

static mt_status read_operands(reader *r) {
    const mt_program *p = r->p;
    for (size_t i = 0; i < p->operands_count; i++) {
        const program_operand *o = &p->operands[i];
        if (o->tensor >= p->tensors_count) return FAIL(r, "operand %zu: there is no tensor %u", i, o->tensor);
        if (o->rank < 1 || o->rank > PROGRAM_RANK) return FAIL(r, "operand %zu: rank %u", i, o->rank);
        if (!is_zero(o->reserved, sizeof o->reserved) || !is_zero(o->padding, sizeof o->padding))
            return FAIL(r, "operand %zu: a reserved field is not zero", i);
        if (!lives_valid(p, o->live)) return FAIL(r, "operand %zu: there is no such live value", i);
    }
    return MT_OK;
}

static mt_status read_barriers_and_nodes(reader *r) {
    const mt_program *p = r->p;
    for (size_t i = 0; i < p->barriers_count; i++) {
        if (p->barriers[i].reserved) return FAIL(r, "barrier %zu: a reserved field is not zero", i);
        if (p->barriers[i].arrivals < 1 || p->barriers[i].arrivals > MOST_INSTRUCTIONS)
            return FAIL(r, "barrier %zu: %u arrivals", i, p->barriers[i].arrivals);
    }
    uint64_t end = 0;
    for (size_t i = 0; i < p->nodes_count; i++) {
        const program_node *n = &p->nodes[i];
        if (!string_valid(p, n->name)) return FAIL(r, "node %zu: a bad string", i);
        if (n->op >= p->ops_count) return FAIL(r, "node %zu: there is no op %u", i, n->op);
        if (n->count < 1 || n->first > p->instructions_count || n->count > p->instructions_count - n->first ||
            n->first < end)
            return FAIL(r, "node %zu: its instructions are not behind those of the node before, or there are none", i);
        end = (uint64_t)n->first + n->count;
    }
    return MT_OK;
}

static mt_status read_instruction(reader *r, size_t i) {
    const mt_program *p = r->p;
    const program_instruction *n = &p->instructions[i];
    if (n->wait_count > PROGRAM_WAITS || n->arrive_count > PROGRAM_ARRIVES)
        return FAIL(r, "instruction %zu: %u waits and %u arrivals", i, n->wait_count, n->arrive_count);
    if (n->node >= p->nodes_count) return FAIL(r, "instruction %zu: there is no node %u", i, n->node);
    if (n->opcode == PROGRAM_JOIN) {
        if (!is_zero(n->index, sizeof n->index) || !is_zero(n->tensor, sizeof n->tensor) ||
            !is_zero(n->arg, sizeof n->arg) || !is_zero(n->live, sizeof n->live))
            return FAIL(r, "instruction %zu: a join with operands", i);
    } else {
        const program_node *node = &p->nodes[n->node];
        if (n->opcode != node->op)
            return FAIL(r, "instruction %zu: its opcode is %u, its node's %u", i, n->opcode, node->op);
        if (i < node->first || i - node->first >= node->count)
            return FAIL(r, "instruction %zu: it is not in its node's range", i);
    }
    for (int k = 0; k < PROGRAM_TENSORS; k++)
        if (n->tensor[k] && n->tensor[k] >= p->operands_count)
            return FAIL(r, "instruction %zu: there is no operand %u", i, n->tensor[k]);
    for (int k = 0; k < PROGRAM_LIVES; k++)
        if (n->live[k] && n->live[k] >= p->lives_count)
            return FAIL(r, "instruction %zu: there is no live value %u", i, n->live[k]);
    for (int k = 0; k < PROGRAM_WAITS; k++) {
        if (k >= n->wait_count ? n->wait[k] || n->target[k] : n->wait[k] >= p->barriers_count)
            return FAIL(r, "instruction %zu: wait %d names barrier %u", i, k, n->wait[k]);
        for (int other = 0; other < k && k < n->wait_count; other++)
            if (n->wait[k] == n->wait[other])
                return FAIL(r, "instruction %zu: it waits twice on barrier %u", i, n->wait[k]);
    }
    for (int k = 0; k < PROGRAM_ARRIVES; k++) {
        if (k >= n->arrive_count ? n->arrive[k] : n->arrive[k] >= p->barriers_count)
            return FAIL(r, "instruction %zu: arrival %d names barrier %u", i, k, n->arrive[k]);
        for (int other = 0; other < k && k < n->arrive_count; other++)
            if (n->arrive[k] == n->arrive[other])
                return FAIL(r, "instruction %zu: it arrives twice at barrier %u", i, n->arrive[k]);
    }
    return MT_OK;
}

static mt_status read_placement(reader *r) {
    const mt_program *p = r->p;
    if (p->header->placement == MT_PLACE_QUEUE) {
        if (p->order_count || p->processors_count) return FAIL(r, "a program with a queue has no order of its own");
        return MT_OK;
    }
    if (p->processors_count != p->header->processor_count)
        return FAIL(r, "there are %zu processors, not %u", p->processors_count, p->header->processor_count);
    if (p->order_count != p->instructions_count)
        return FAIL(r, "the order has %zu entries for %zu instructions", p->order_count, p->instructions_count);
    uint64_t end = 0;
    for (size_t i = 0; i < p->processors_count; i++) {
        const program_processor *q = &p->processors[i];
        if (q->first != end || q->count > p->order_count - end)
            return FAIL(r, "processor %zu: its part of the order does not follow the one before", i);
        end += q->count;
    }
    if (end != p->order_count)
        return FAIL(r, "the processors have %llu of the order's %zu entries", (unsigned long long)end, p->order_count);
    for (size_t i = 0; i < p->order_count; i++)
        if (p->order[i] >= p->instructions_count)
            return FAIL(r, "entry %zu of the order: there is no instruction %u", i, p->order[i]);
    return MT_OK;
}

static mt_status read_tables(reader *r) {
    arena *names = arena_new(); /* only for the maps that find equal names */
    if (!names) return error_set(r->error, MT_E_MEMORY, r->name, "no memory to read the program");
    mt_status status = read_ops(r);
    if (status == MT_OK) status = read_lives(r, names);
    if (status == MT_OK) status = read_tensors(r, names);
    if (status == MT_OK) status = read_operands(r);
    if (status == MT_OK) status = read_barriers_and_nodes(r);
    if (status == MT_OK && r->p->instructions_count > MOST_INSTRUCTIONS)
        status = FAIL(r, "there are too many instructions");
    for (size_t i = 0; i < r->p->instructions_count && status == MT_OK; i++) status = read_instruction(r, i);
    if (status == MT_OK) status = read_placement(r);
    arena_free(names);
    return status;
}

mt_status program_decode(mt_program **out, const void *data, size_t size, const char *name, mt_error *error) {
    *out = NULL;
    if ((uintptr_t)data % _Alignof(program_header))
        return error_set(error, MT_E_ARGUMENT, name, "a program in memory must be aligned to 8 bytes");
    mt_program *p = calloc(1, sizeof *p);
    if (!p) return error_set(error, MT_E_MEMORY, name, "no memory for a program");
    reader r = {p, name, error};
    p->header = data;
    mt_status status = read_header(&r, data, size);
    if (status == MT_OK) status = read_sections(&r, p, data);
    if (status == MT_OK) status = read_tables(&r);
    if (status == MT_OK)
        *out = p;
    else
        free(p);
    return status;
}

mt_status program_open_memory(mt_program **out, const void *data, size_t size, const char *name, mt_error *error) {
    mt_status status = program_decode(out, data, size, name, error);
    if (status != MT_OK || (status = program_check(*out, error)) == MT_OK) return status;
    if (error && name) { /* an error in an op's text says where in the text it is */
        const mt_error inner = *error;
        error_set(error, status, name, "%s%s%s", inner.where, inner.where[0] ? ": " : "", inner.message);
    }
    program_free(*out);
    *out = NULL;
    return status;
}

void program_free(mt_program *p) {
    if (!p) return;
    file_map_close(&p->map);
    free(p->owned);
    free(p);
}
