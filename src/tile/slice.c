/* Slices: of tensors (loads and stores) and of tiles (parts).
 *
 * A block format stores its last dimension in whole blocks, so a slice there must begin and end between blocks. That
 * its start is a multiple of the block is proved from its expression: divisor() finds how much of the block's size
 * surely divides it. The proof may look through a variable that is assigned once, which is known when the whole program
 * has been read; so these checks wait until then. */
#include "tile/check.h"

#include <inttypes.h>

/* What tells a tile from a tensor when it is sliced. */
typedef struct sliced {
    const char *name;
    int rank;
    const tile_format *type;
    tile_node *const *extent; /* of a tensor */
    const tile_shape *shape;  /* of a tile */
} sliced;

static tile_item whole(check *c, ast_place at, int64_t extent) {
    return (tile_item){
        .kind = TILE_ITEM_RANGE, .start = check_settle(c, check_literal_integer(c, at, 0)), .size = extent};
}

/* `:`, or an item left out. */
static bool whole_item(check *c, ast_place at, const sliced *s, int d, tile_item *out) {
    int64_t extent = s->shape ? s->shape->extent[d] : 0;
    if (!s->shape) {
        const tile_node *n = s->extent[d];
        if (!n) return false; /* its error was reported */
        if (n->kind != TILE_CONST) {
            REPORT(c, at, "dimension %d of %s has no constant extent; slice it, as in start : +size", d, s->name);
            return false;
        }
        extent = n->value.i;
        if (extent < 1 || extent > TILE_ELEMENT_LIMIT) {
            REPORT(c, at, "dimension %d of %s is too large for a tile: %" PRId64 " elements", d, s->name, extent);
            return false;
        }
    }
    *out = whole(c, at, extent);
    return true;
}

/* Notes that n has to be a multiple of the block. */
static void align(check *c, const tile_node *n, const sliced *s, const char *what, ast_place at) {
    *ARENA_PUSH(c->memory, c->alignments, c->alignment_count, c->alignment_capacity) =
        (check_alignment){n, s->type, what, at};
}

/* start : +size, start : +size < limit */
static bool range_item(check *c, const sliced *s, int block, const ast_item *item, tile_item *out) {
    *out = (tile_item){.kind = TILE_ITEM_RANGE, .start = check_index(c, item->start, "a slice's start")};
    const bool good = !item->limit || (out->limit = check_index(c, item->limit, "a slice's end"));
    if (!check_constant(c, item->size, "a slice's size", 1, TILE_ELEMENT_LIMIT, &out->size) || !out->start || !good)
        return false;
    if (block == 1) return true;
    if (out->size % block) {
        REPORT(c, item->size->place,
               "%s is stored in blocks of %d; the size of a slice of it must be a multiple, not %" PRId64,
               s->type->name, block, out->size);
        return false;
    }
    align(c, out->start, s, "start", item->start->place);
    if (out->limit) align(c, out->limit, s, "end", item->limit->place);
    return true;
}

/* One item of a slice of a tensor. */
static bool tensor_item(check *c, const sliced *s, int d, const ast_item *item, tile_item *out) {
    const int block = d == s->rank - 1 ? s->type->block : 1;
    if (item->size) return range_item(c, s, block, item, out);
    tile_node *start = check_value(c, item->start);
    if (!start) return false;
    const bool gather = start->shape.rank == 1 && (start->type == c->i32 || start->type == c->i64);
    if (block > 1) {
        REPORT(c, item->place, "%s is stored in blocks of %d; slice its last dimension with start : +size",
               s->type->name, block);
        return false;
    }
    if (gather) {
        *out = (tile_item){.kind = TILE_ITEM_GATHER, .start = start, .size = start->shape.extent[0]};
        return true;
    }
    if (start->shape.rank) {
        REPORT(c, item->place, "an index must be a scalar or an i32 or i64 tile of one dimension, not %s%s",
               start->type->name, check_shape_text(c, &start->shape));
        return false;
    }
    start = check_to_index(c, item->start->place, start, "an index");
    *out = (tile_item){.kind = TILE_ITEM_POINT, .start = start, .size = 1};
    return start != NULL;
}

/* One item of a slice of a tile: everything constant and in range. */
static bool tile_item_of(check *c, const sliced *s, int d, const ast_item *item, tile_item *out) {
    const int64_t extent = s->shape->extent[d];
    int64_t start, size = 1;
    const bool good = check_constant(c, item->start, "a tile's slice", 0, extent - 1, &start);
    if (item->size && !check_constant(c, item->size, "a slice's size", 1, extent, &size)) return false;
    if (!good) return false;
    if (start + size > extent) {
        REPORT(c, item->size->place, "%" PRId64 " : +%" PRId64 " ends beyond the tile's extent %" PRId64, start, size,
               extent);
        return false;
    }
    if (item->limit) {
        REPORT(c, item->limit->place, "a part of a tile is wholly in range; only slices of tensors have an end");
        return false;
    }
    *out = (tile_item){.kind = item->size ? TILE_ITEM_RANGE : TILE_ITEM_POINT,
                       .start = check_settle(c, check_literal_integer(c, item->start->place, start)),
                       .size = size};
    return true;
}

static tile_access *slice_items(check *c, ast_place at, const sliced *s, const ast_item *items, tile_shape *shape) {
    tile_access *a = ARENA_NEW(c->memory, tile_access);
    bool good = true;
    a->param = -1;
    a->rank = s->rank;
    *shape = (tile_shape){0};
    const ast_item *item = items;
    for (int d = 0; d < s->rank; d++) {
        tile_item *out = &a->item[d];
        if (!item || !item->start)
            good &= whole_item(c, item ? item->place : at, s, d, out);
        else
            good &= s->shape ? tile_item_of(c, s, d, item, out) : tensor_item(c, s, d, item, out);
        if (good && out->kind != TILE_ITEM_POINT) shape->extent[shape->rank++] = out->size;
        if (item) item = item->next;
    }
    if (item) {
        REPORT(c, item->place, "%s has %d dimension%s, and this is one item more", s->name, s->rank,
               s->rank == 1 ? "" : "s");
        return NULL;
    }
    return good && check_size(c, at, shape) ? a : NULL;
}

tile_access *check_access(check *c, ast_place at, int param, const ast_item *items, tile_shape *shape) {
    const tile_param *p = &c->op->params[param];
    if (!p->type) return NULL; /* its error was reported */
    const sliced s = {p->name, p->rank, p->type, p->extent, NULL};
    tile_access *a = slice_items(c, at, &s, items, shape);
    if (a) a->param = param;
    return a;
}

tile_node *check_load(check *c, ast_place at, int param, const ast_item *items) {
    const tile_param *p = &c->op->params[param];
    if (c->in_header) {
        REPORT(c, at, "%s is a tensor; extents and the grid are computed from constants, extents, args and live values",
               p->name);
        return NULL;
    }
    if (p->kind == TILE_OUT) {
        REPORT(c, at, "%s is an output and cannot be read; an inout parameter can", p->name);
        return NULL;
    }
    tile_shape shape;
    tile_access *a = check_access(c, at, param, items, &shape);
    if (!a) return NULL;
    tile_node *n = check_node(c, at, TILE_LOAD, p->type, &shape);
    n->access = a;
    return n;
}

tile_node *check_part(check *c, ast_place at, tile_node *of, const ast_item *items) {
    if (!of) return NULL;
    const sliced s = {"this tile", of->shape.rank, of->type, NULL, &of->shape};
    tile_shape shape;
    tile_access *a = slice_items(c, at, &s, items, &shape);
    if (!a) return NULL;
    if (check_same_shape(&shape, &of->shape)) return of;
    tile_node *n = check_node(c, at, TILE_PART, of->type, &shape);
    n->a = of;
    n->access = a;
    return n;
}

/* ---- alignment ---- */

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t power_of_two_in(int64_t n) { return n & -n; }

typedef struct proof {
    const check *c;
    int64_t block;
    int64_t *variables; /* what divides each */
} proof;

/* A divisor of the block's size that surely divides the scalar n. */
static int64_t divisor(const proof *p, const tile_node *n);

static int64_t elementwise_divisor(const proof *p, const tile_node *n) {
    const int64_t a = divisor(p, n->a), b = n->b ? divisor(p, n->b) : p->block;
    switch (n->op) {
    case TILE_NEG:
    case TILE_ABS:
    case TILE_ADD:
    case TILE_SUB:
    case TILE_MIN:
    case TILE_MAX:
    case TILE_MOD:
        return gcd(a, b);
    case TILE_MUL:
        return gcd(a * b, p->block);
    case TILE_SHL: /* by at least 0, and by exactly a constant */
        return n->b->kind == TILE_CONST ? gcd(a * gcd(p->block, (int64_t)1 << min_i64(n->b->value.i, 32)), p->block)
                                        : a;
    case TILE_BIT_AND:
        return max_i64(power_of_two_in(a), power_of_two_in(b));
    case TILE_BIT_OR:
    case TILE_BIT_XOR:
        return min_i64(power_of_two_in(a), power_of_two_in(b));
    default:
        return 1;
    }
}

static int64_t divisor(const proof *p, const tile_node *n) {
    int64_t found = 1;
    switch (n->kind) {
    case TILE_CONST:
        return gcd(p->block, n->value.i % p->block < 0 ? -(n->value.i % p->block) : n->value.i % p->block);
    case TILE_ELEMENTWISE:
        found = elementwise_divisor(p, n);
        break;
    case TILE_SELECT:
        found = gcd(divisor(p, n->b), divisor(p, n->c));
        break;
    case TILE_CAST:
        found = n->a->type->scalar.kind == TILE_INT ? divisor(p, n->a) : 1;
        break;
    case TILE_VAR:
        found = p->variables[n->index];
        break;
    case TILE_EXTENT: /* of the last dimension of a tensor of blocks? The operand is checked. */
        for (int i = 0; i < p->c->op->param_count; i++) {
            const tile_param *q = &p->c->op->params[i];
            const tile_node *last = q->rank ? q->extent[q->rank - 1] : NULL;
            if (last && last->kind == TILE_EXTENT && last->index == n->index && q->type)
                found = max_i64(found, gcd(q->type->block, p->block));
        }
        break;
    default:
        break;
    }
    /* Where 32 bits could wrap around, only factors of two survive. */
    return n->type->scalar.bits < 64 ? power_of_two_in(found) : found;
}

/* Starts a proof for another block. A variable's declaration uses only variables before it. */
static void open_proof(proof *p, int64_t block) {
    const tile_op *op = p->c->op;
    p->block = block;
    if (!p->variables) p->variables = ARENA_ARRAY(p->c->memory, (size_t)op->variable_count, int64_t);
    for (int i = 0; i < op->variable_count; i++) {
        const tile_variable *v = &op->variables[i];
        const bool known = v->assignments == 1 && v->shape.rank == 0 && v->type->scalar.kind == TILE_INT;
        p->variables[i] = known ? divisor(p, p->c->definitions[i]) : 1;
    }
}

void check_alignments(check *c) {
    proof p = {.c = c};
    for (size_t i = 0; i < c->alignment_count; i++) {
        const check_alignment *a = &c->alignments[i];
        const int block = a->type->block;
        if (p.block != block) open_proof(&p, block);
        if (divisor(&p, a->value) == block) continue;
        REPORT(c, a->place,
               "%s is stored in blocks of %d; the slice's %s must be a multiple of %d that can be seen, as in i*%d",
               a->type->name, block, a->what, block, block);
    }
}
