/* Weights in BANDS whose blocks have 32 elements and no multiple of 4 bytes: two blocks lie together, field by field:
 * both blocks' first field, then both blocks' second one, ... So what a lane reads of a field with an element for each
 * of the block's lies at multiples of 4 bytes (of 2, where the fields before take an odd number), and is one load where
 * a block of 34 bytes, say, takes two. The bytes are as many as before, and everything but the decoders can go on
 * counting them by blocks: a pair is 64 columns, and all that is cut out of a weight begins with a multiple of these.
 *
 * For the decoders such a pair is a block of a format that is made here: fields twice as long, and an element of the
 * second block takes its indices so much further. */
#include "tile/role_internal.h"

enum { SINGLE = 32 };

bool role_is_paired(const tile_format *f, int64_t columns) {
    if (!tile_format_is_block(f) || f->block != SINGLE || f->bits / 8 % 4 == 0 || columns % (2 * SINGLE)) return false;
    for (int i = 0; i < f->body->field_count; i++) {
        const tile_field *field = &f->body->fields[i];
        if (field->bit_offset % 8 || field->count * field->type->scalar.bits % 8) return false;
    }
    return true;
}

static tile_node *node_of(arena *memory, tile_node_kind kind, const tile_format *type) {
    tile_node *n = ARENA_NEW(memory, tile_node);
    *n = (tile_node){.kind = kind, .type = type, .op = TILE_OPERATOR_COUNT};
    return n;
}

static tile_node *by_constant(arena *memory, tile_operator op, tile_node *a, int64_t by) {
    tile_node *n = node_of(memory, TILE_ELEMENTWISE, a->type);
    n->op = op;
    n->a = a;
    n->b = node_of(memory, TILE_CONST, a->type);
    n->b->value.i = by;
    return n;
}

static tile_node *paired(arena *memory, const tile_format *f, const tile_node *n) {
    const tile_format *i32 = tile_format_scalar("i32", 3);
    if (!n) return NULL;
    tile_node *copy = ARENA_NEW(memory, tile_node);
    *copy = *n;
    if (n->kind == TILE_FORMAT_INDEX) return by_constant(memory, TILE_MOD, copy, SINGLE);
    copy->a = paired(memory, f, n->a);
    copy->b = paired(memory, f, n->b);
    copy->c = paired(memory, f, n->c);
    if (n->kind != TILE_FIELD) return copy;
    tile_node *second = by_constant(memory, TILE_DIV, node_of(memory, TILE_FORMAT_INDEX, i32), SINGLE);
    tile_node *further = by_constant(memory, TILE_MUL, second, f->body->fields[n->index].count);
    const bool at_zero = !copy->a || (copy->a->kind == TILE_CONST && !copy->a->value.i);
    tile_node *sum = at_zero ? further : node_of(memory, TILE_ELEMENTWISE, i32);
    if (!at_zero) sum->op = TILE_ADD, sum->a = copy->a, sum->b = further;
    copy->a = sum;
    return copy;
}

const tile_format *role_banded(arena *memory, const tile_format *f, int64_t columns) {
    if (!role_is_paired(f, columns)) return f;
    tile_format *out = ARENA_NEW(memory, tile_format);
    tile_format_body *body = ARENA_NEW(memory, tile_format_body);
    *out = *f;
    *body = *f->body;
    out->name = arena_printf(memory, "%s_pair", f->name);
    out->block *= 2;
    out->bits *= 2;
    out->body = body;
    body->fields = ARENA_ARRAY(memory, (size_t)body->field_count, tile_field);
    for (int i = 0; i < body->field_count; i++) {
        body->fields[i] = f->body->fields[i];
        body->fields[i].count *= 2;
        body->fields[i].bit_offset *= 2;
    }
    body->value = paired(memory, f, f->body->value);
    return out;
}

void role_lay_pairs(const tile_format *f, const uint8_t *from, int64_t pairs, uint8_t *to) {
    const int64_t bytes = f->bits / 8;
    for (int64_t i = 0; i < pairs; i++, from += 2 * bytes)
        for (int field = 0; field < f->body->field_count; field++) {
            const tile_field *of = &f->body->fields[field];
            const int64_t at = of->bit_offset / 8, size = of->count * of->type->scalar.bits / 8;
            for (int64_t b = 0; b < 2; b++, to += size) memcpy(to, from + b * bytes + at, (size_t)size);
        }
}
