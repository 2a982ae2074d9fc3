/* Computes the elements of a block by walking the format's value. Every operation is one f32 or i32 operation, in the
 * order written; nothing is fused, so the result is the same bits everywhere. */
#include "tile/format.h"

#include <math.h>

static format_value operate_i32(tile_operator op, int32_t a, int32_t b) {
    const uint32_t ua = (uint32_t)a, ub = (uint32_t)b;
    switch (op) {
    case TILE_NEG:
        return (format_value){.i = (int32_t)(0 - ua)};
    case TILE_NOT:
        return (format_value){.i = !a};
    case TILE_ABS:
        return (format_value){.i = a < 0 ? (int32_t)(0 - ua) : a};
    case TILE_ADD:
        return (format_value){.i = (int32_t)(ua + ub)};
    case TILE_SUB:
        return (format_value){.i = (int32_t)(ua - ub)};
    case TILE_MUL:
        return (format_value){.i = (int32_t)(ua * ub)};
    case TILE_DIV:
        return (format_value){.i = (int32_t)floor_div(a, b)};
    case TILE_MOD:
        return (format_value){.i = (int32_t)floor_mod(a, b)};
    case TILE_CEIL_DIV:
        return (format_value){.i = (int32_t)(floor_div(a, b) + (a % b != 0))};
    case TILE_MIN:
        return (format_value){.i = a < b ? a : b};
    case TILE_MAX:
        return (format_value){.i = a > b ? a : b};
    case TILE_AND:
    case TILE_BIT_AND:
        return (format_value){.i = a & b};
    case TILE_OR:
    case TILE_BIT_OR:
        return (format_value){.i = a | b};
    case TILE_BIT_XOR:
        return (format_value){.i = a ^ b};
    case TILE_SHL:
        return (format_value){.i = (int32_t)(ua << b)};
    case TILE_SHR:
        return (format_value){.i = a >> b};
    case TILE_EQ:
        return (format_value){.i = a == b};
    case TILE_NE:
        return (format_value){.i = a != b};
    case TILE_LT:
        return (format_value){.i = a < b};
    case TILE_LE:
        return (format_value){.i = a <= b};
    case TILE_GT:
        return (format_value){.i = a > b};
    case TILE_GE:
        return (format_value){.i = a >= b};
    default:
        return (format_value){.i = 0};
    }
}

static format_value operate_f32(tile_operator op, float a, float b) {
    volatile float product; /* kept apart from a sum that may follow, so that no compiler fuses the two */
    switch (op) {
    case TILE_NEG:
        return (format_value){.f = -a};
    case TILE_ABS:
        return (format_value){.f = fabsf(a)};
    case TILE_SQRT:
        return (format_value){.f = sqrtf(a)};
    case TILE_FLOOR:
        return (format_value){.f = floorf(a)};
    case TILE_CEIL:
        return (format_value){.f = ceilf(a)};
    case TILE_ROUND:
        return (format_value){.f = rintf(a)};
    case TILE_ADD:
        return (format_value){.f = a + b};
    case TILE_SUB:
        return (format_value){.f = a - b};
    case TILE_MUL:
        return product = a * b, (format_value){.f = product};
    case TILE_DIV:
        return (format_value){.f = a / b};
    case TILE_MIN:
        return (format_value){.f = fminf(a, b)};
    case TILE_MAX:
        return (format_value){.f = fmaxf(a, b)};
    case TILE_EQ:
        return (format_value){.i = a == b};
    case TILE_NE:
        return (format_value){.i = a != b};
    case TILE_LT:
        return (format_value){.i = a < b};
    case TILE_LE:
        return (format_value){.i = a <= b};
    case TILE_GT:
        return (format_value){.i = a > b};
    case TILE_GE:
        return (format_value){.i = a >= b};
    default:
        return (format_value){.f = NAN};
    }
}

static bool is_float(const tile_node *n) { return n->type->scalar.kind == TILE_FLOAT; }

format_value format_operate(const tile_node *n, format_value a, format_value b) {
    return is_float(n->a) ? operate_f32(n->op, a.f, b.f) : operate_i32(n->op, a.i, b.i);
}

format_value format_cast(const tile_node *n, format_value a) {
    if (is_float(n) == is_float(n->a)) return a;
    if (is_float(n)) return (format_value){.f = (float)a.i};
    return (format_value){.i = (int32_t)(uint32_t)tile_scalar_encode(n->type->scalar, a.f)};
}

typedef struct walk { /* where the walk is */
    const tile_format *format;
    const uint8_t *block;
    int index;
} walk;

/* An element of a field, of up to 32 bits, at any bit of the block. */
static format_value load(const walk *w, const tile_node *n, int32_t element) {
    const tile_field *field = &w->format->body->fields[n->index];
    const tile_scalar t = field->type->scalar;
    const int first = field->bit_offset + element * t.bits, last = first + t.bits - 1;
    uint64_t word = 0;
    for (int byte = last / 8; byte >= first / 8; byte--) word = word << 8 | w->block[byte];
    word >>= first % 8;
    if (is_float(n)) return (format_value){.f = (float)tile_scalar_decode(t, word)};
    return (format_value){.i = (int32_t)(int64_t)tile_scalar_decode(t, word)};
}

static format_value evaluate(const walk *w, const tile_node *n) {
    switch (n->kind) {
    case TILE_CONST:
        return is_float(n) ? (format_value){.f = (float)n->value.f} : (format_value){.i = (int32_t)n->value.i};
    case TILE_FORMAT_INDEX:
        return (format_value){.i = w->index};
    case TILE_FIELD:
        return load(w, n, evaluate(w, n->a).i);
    case TILE_CAST:
        return format_cast(n, evaluate(w, n->a));
    case TILE_SELECT:
        return evaluate(w, evaluate(w, n->a).i ? n->b : n->c);
    case TILE_ELEMENTWISE: {
        const format_value a = evaluate(w, n->a);
        return format_operate(n, a, n->b ? evaluate(w, n->b) : a);
    }
    default:
        return (format_value){.i = 0}; /* formats have no other nodes */
    }
}

void tile_format_decode(const tile_format *f, const void *block, float *out) {
    walk w = {.format = f, .block = block};
    for (; w.index < f->block; w.index++) out[w.index] = evaluate(&w, f->body->value).f;
}
