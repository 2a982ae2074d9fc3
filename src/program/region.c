/* Boxes on operands as regions of tensors and of memory, to tell whether two accesses meet.
 *
 * An operand is a strided view; tile programs give boxes in the view's coordinates. A stride, written in the mixed
 * radix of the tensor's own strides, says how far a step along the view's dimension moves along each of the tensor's.
 * A box is then an interval in each tensor dimension; one that runs past its extent carries into the dimension before,
 * as digits do, and becomes the whole extent unless all of it carries alike. Regions are thus exact for slices,
 * selections, transposes and split dimensions, and for merged ones as far as whole rows; elsewhere they are too large,
 * never too small.
 *
 * Elements that share memory (a block, or sub-byte elements in one byte) are one: regions are widened to them. */
#include <inttypes.h>
#include <stdio.h>

#include "monotile/graph.h"
#include "program/program_internal.h"

static int greatest_divisor(int a, int b) { return b ? greatest_divisor(b, a % b) : a; }

mt_status program_view_make(const mt_program *p, const program_operand *o, const tile_format *format, program_view *out,
                            mt_error *error) {
    const program_tensor *t = &p->tensors[o->tensor];
    const char *name = program_string(p, t->name);
    const long long number = (long long)(o - p->operands);
    program_view v = {.operand = o, .tensor = t, .block = format->block, .bits = format->bits};
    v.grain = v.block > 1 ? v.block : 8 / greatest_divisor(8, v.bits);
    int64_t elements = 1;
    for (int d = t->rank - 1; d >= 0; d--) {
        v.tensor_stride[d] = elements;
        elements *= t->extent[d]; /* bounded by the check of tensors */
    }
    v.rows_share = t->extent[t->rank - 1] % v.grain != 0 && elements > t->extent[t->rank - 1];
    int64_t last = o->offset;
    bool inside = o->offset >= 0 && o->offset < elements;
    for (int d = 0; d < o->rank; d++) {
        int64_t reach;
        inside = inside && o->extent[d] >= 1 && o->stride[d] >= 0 &&
                 !__builtin_mul_overflow(o->extent[d] - 1, o->stride[d], &reach) &&
                 !__builtin_add_overflow(last, reach, &last) && last < elements;
    }
    if (!inside)
        return error_set(error, MT_E_FORMAT, name, "operand %lld reaches outside its tensor '%s'", number, name);
    if (o->extent[o->rank - 1] > 1 && o->stride[o->rank - 1] != 1)
        return error_set(error, MT_E_FORMAT, name,
                         "operand %lld of tensor '%s' is not contiguous in its last dimension", number, name);
    bool whole_blocks = o->offset % v.block == 0 && o->extent[o->rank - 1] % v.block == 0;
    for (int d = 0; d < o->rank - 1; d++)
        whole_blocks = whole_blocks && (o->extent[d] == 1 || o->stride[d] % v.block == 0);
    if (!whole_blocks)
        return error_set(error, MT_E_FORMAT, name, "operand %lld of tensor '%s' cuts blocks of %d elements", number,
                         name, v.block);
    for (int d = 0; d < o->rank; d++)
        if (o->live[d] >= 0 && (p->lives[o->live[d]].least < 0 || p->lives[o->live[d]].most > o->extent[d]))
            return error_set(
                error, MT_E_FORMAT, name,
                "operand %lld of tensor '%s': live value '%s' can leave the range 0 .. %lld of dimension %d", number,
                name, program_string(p, p->lives[o->live[d]].name), (long long)o->extent[d], d);

    int64_t rest = o->offset;
    for (int k = 0; k < t->rank; k++) {
        v.origin[k] = rest / v.tensor_stride[k];
        rest %= v.tensor_stride[k];
    }
    for (int d = 0; d < o->rank; d++) {
        rest = o->extent[d] > 1 ? o->stride[d] : 0;
        for (int k = 0; k < t->rank && rest; k++) {
            const int64_t count = t->extent[k] > 1 ? rest / v.tensor_stride[k] : 0;
            if (!count) continue;
            rest -= count * v.tensor_stride[k];
            struct program_step *new = &v.step[v.step_count++];
            *new = (struct program_step){(uint8_t)d, (uint8_t)k, count == 1, count};
            for (struct program_step *old = v.step; old < new; old++)
                if (old->to == k) old->alone = new->alone = false;
        }
    }
    *out = v;
    return MT_OK;
}

static int64_t bytes_before(const program_view *v, int64_t element) {
    return v->block > 1 ? element / v->block * (v->bits / 8) : element / 8 * v->bits + element % 8 * v->bits / 8;
}

void program_view_region(const program_view *v, const tile_instance *i, const program_instruction *n,
                         const tile_box *box, program_region *r) {
    const program_tensor *t = v->tensor;
    r->tensor = v->operand->tensor;
    r->rank = t->rank;
    r->rows_share = v->rows_share;
    r->first = r->last = 0;
    tile_interval whole[PROGRAM_RANK];
    for (int d = 0; d < v->operand->rank; d++) {
        whole[d] = tile_interval_absolute(i, box->dim[d], v->operand->extent[d]);
        if (whole[d].low >= whole[d].high) return; /* empty */
    }
    for (int k = 0; k < t->rank; k++) {
        r->low[k] = r->high[k] = v->origin[k]; /* both inclusive up to the carries */
        r->live[k] = -1;
        r->shift_low[k] = r->shift_high[k] = 0;
    }
    for (const struct program_step *s = v->step; s < v->step + v->step_count; s++) {
        r->low[s->to] += s->count * whole[s->from].low;
        r->high[s->to] += s->count * (whole[s->from].high - 1);
        const tile_interval *relative = &box->dim[s->from];
        if (!s->alone || relative->offset_live < 0) continue;
        r->live[s->to] = (int16_t)n->live[relative->offset_live];
        r->shift_low[s->to] = v->origin[s->to] + relative->low;
        r->shift_high[s->to] = v->origin[s->to] + relative->high;
    }
    int64_t low = 0, high = 0; /* element numbers, inclusive */
    for (int k = t->rank - 1; k >= 0; k--) {
        if (r->high[k] >= t->extent[k]) {
            const int64_t carry_low = r->low[k] / t->extent[k], carry_high = r->high[k] / t->extent[k];
            const bool alike = carry_low == carry_high;
            r->low[k] = alike ? r->low[k] % t->extent[k] : 0;
            r->high[k] = alike ? r->high[k] % t->extent[k] : t->extent[k] - 1;
            r->live[k] = -1;
            if (k)
                r->low[k - 1] += carry_low, r->high[k - 1] += carry_high,
                    r->live[k - 1] = -1; /* the first cannot carry: the operand is inside */
        }
        low += r->low[k] * v->tensor_stride[k];
        high += r->high[k] * v->tensor_stride[k];
        r->high[k]++;
    }
    const int row = t->rank - 1;
    if (v->grain > 1) {
        r->low[row] -= r->low[row] % v->grain;
        r->high[row] = (int64_t)align_up((uint64_t)r->high[row], (uint64_t)v->grain);
        r->shift_low[row] -= v->grain - 1;
        r->shift_high[row] += v->grain - 1;
        low -= low % v->grain;
        high = (int64_t)align_up((uint64_t)high + 1, (uint64_t)v->grain) - 1;
    }
    const int64_t base = t->role == MT_TEMP ? t->offset : 0;
    r->first = base + bytes_before(v, low);
    r->last = base + min_i64(bytes_before(v, high + 1), t->bytes);
}

void program_region_join(program_region *a, const program_region *b) {
    if (b->first >= b->last) return;
    if (a->first >= a->last) {
        *a = *b;
        return;
    }
    for (int k = 0; k < a->rank; k++) {
        a->low[k] = min_i64(a->low[k], b->low[k]);
        a->high[k] = max_i64(a->high[k], b->high[k]);
        if (a->live[k] != b->live[k]) a->live[k] = -1;
        a->shift_low[k] = min_i64(a->shift_low[k], b->shift_low[k]);
        a->shift_high[k] = max_i64(a->shift_high[k], b->shift_high[k]);
    }
    a->first = min_i64(a->first, b->first);
    a->last = max_i64(a->last, b->last);
}

void program_region_print(const mt_program *p, const program_region *r, text *out) {
    const char *name = program_string(p, p->tensors[r->tensor].name);
    if (*name)
        text_string(out, name);
    else
        text_printf(out, "tensor %u", r->tensor);
    if (r->first >= r->last) {
        text_string(out, "[nothing]");
        return;
    }
    for (int k = 0; k < r->rank; k++) {
        text_string(out, k ? ", " : "[");
        if (r->live[k] < 0) {
            text_printf(out, "%" PRId64 ":%" PRId64, r->low[k], r->high[k]);
        } else {
            const char *live = program_string(p, p->lives[r->live[k]].name);
            text_printf(out, "%s + %" PRId64 ":%s + %" PRId64, live, r->shift_low[k], live, r->shift_high[k]);
        }
    }
    text_string(out, "]");
}
