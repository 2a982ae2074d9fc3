/* Layouts of weights, ops with their layouts, the table of operands: the same for every machine that runs lowered ops.
 */
#include "machine/device.h"

/* One of a node's instructions that is no join: the checker has seen one. */
const program_instruction *device_first_of(const mt_program *p, size_t node) {
    const program_instruction *i = &p->instructions[p->nodes[node].first];
    while (i->opcode == PROGRAM_JOIN) i++;
    return i;
}

mt_status device_layouts(const mt_program *p, const program_binding *b, arena *memory, role_layout **out,
                         mt_error *error) {
    role_layout *layouts = ARENA_ARRAY(memory, p->tensors_count, role_layout);
    bool *whole = ARENA_ARRAY(memory, p->tensors_count, bool);
    if (!layouts || !whole) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    for (size_t i = 0; i < p->tensors_count; i++) whole[i] = p->tensors[i].role == MT_WEIGHT && p->tensors[i].rank == 2;
    for (size_t i = 0; i < p->operands_count; i++) {
        const program_operand *o = &p->operands[i];
        const program_tensor *t = &p->tensors[o->tensor];
        whole[o->tensor] = whole[o->tensor] && o->rank == 2 && !o->offset && o->extent[0] == t->extent[0] &&
                           o->extent[1] == t->extent[1] && o->stride[0] == t->extent[1];
    }
    for (size_t n = 0; n < p->nodes_count; n++) {
        const program_instruction *i = device_first_of(p, n);
        const tile_op *op = b->ops[i->opcode];
        for (int t = 0; t < op->tensor_count; t++) {
            const uint32_t tensor = p->operands[i->tensor[t]].tensor;
            const role_layout wish = whole[tensor] ? role_wish(op, t) : ROLE_ROWS;
            if (wish != ROLE_ROWS && wish != ROLE_MAPPED) layouts[tensor] = wish;
        }
    }
    *out = layouts;
    return MT_OK;
}

/* The operand's address (of a tensor at a multiple of 16) and its strides are multiples of 16 bytes. */
static bool is_aligned(const mt_program *p, const program_binding *b, uint32_t operand) {
    const program_operand *o = &p->operands[operand];
    const tile_format *f = b->formats[o->tensor];
    if (tile_format_is_block(f) || f->scalar.bits < 8) return false;
    const int64_t elements = 128 / f->scalar.bits;
    bool aligned = o->offset % elements == 0 && o->stride[o->rank - 1] == 1;
    for (int d = 0; d < o->rank - 1; d++) aligned = aligned && o->stride[d] % elements == 0;
    return aligned;
}

mt_status device_ops(const mt_program *p, const program_binding *b, const role_layout *layouts, arena *memory,
                     emit_cuda_op **out, mt_error *error) {
    emit_cuda_op *ops = ARENA_ARRAY(memory, p->ops_count, emit_cuda_op);
    bool *seen = ARENA_ARRAY(memory, p->ops_count, bool);
    if (!seen || !ops) return error_set(error, MT_E_MEMORY, NULL, "no memory for a session");
    for (size_t i = 0; i < p->ops_count; i++) {
        ops[i].op = b->ops[i];
        if (ops[i].op->tensor_count > CUDA_TENSORS)
            return error_set(error, MT_E_LIMIT, ops[i].op->name, "an op has %d tensors; this machine takes %d",
                             ops[i].op->tensor_count, CUDA_TENSORS);
    }
    for (size_t n = 0; n < p->nodes_count; n++) {
        const program_instruction *i = device_first_of(p, n);
        emit_cuda_op *o = &ops[i->opcode];
        for (int t = 0; t < o->op->tensor_count; t++) {
            const role_layout layout = layouts[p->operands[i->tensor[t]].tensor];
            if (seen[i->opcode] && o->layout[t] != layout)
                return error_set(error, MT_E_UNSUPPORTED, program_string(p, p->nodes[n].name),
                                 "op '%s' is used with a weight in two layouts (whole here, a part there): there is no "
                                 "code for that yet",
                                 o->op->name);
            o->layout[t] = layout;
            o->cold[t] =
                (o->cold[t] || !seen[i->opcode]) && p->tensors[p->operands[i->tensor[t]].tensor].role == MT_WEIGHT;
            o->aligned[t] = (o->aligned[t] || !seen[i->opcode]) && is_aligned(p, b, i->tensor[t]);
        }
        seen[i->opcode] = true;
    }
    for (size_t i = 0; i < p->ops_count; i++) /* what wide products may read in pieces */
        for (int t = 0; t < ops[i].op->tensor_count; t++)
            if (ops[i].layout[t] == ROLE_ROWS && ops[i].aligned[t] && role_wish(ops[i].op, t) == ROLE_MAPPED)
                ops[i].layout[t] = ROLE_MAPPED;
    *out = ops;
    return MT_OK;
}

mt_status device_pages(const mt_program *p, const program_binding *b, int64_t pages, mt_error *error) {
    for (size_t i = 0; i < p->ops_count; i++)
        if (role_borrowed_pages(b->ops[i]) > pages)
            return error_set(error, MT_E_LIMIT, b->ops[i]->name,
                             "op '%s' holds %lld pages at once; here there are %lld, beside the ops' shared memory",
                             b->ops[i]->name, (long long)role_borrowed_pages(b->ops[i]), (long long)pages);
    return MT_OK;
}

mt_status device_operands(const mt_program *p, const program_binding *b, const uintptr_t *addresses,
                          const device_handoff *handoff, cuda_tensor *table, mt_error *error) {
    for (size_t i = 0; i < p->operands_count; i++) {
        const program_operand *o = &p->operands[i];
        const program_view *v = &b->views[i];
        cuda_tensor *t = &table[i];
        t->data = (void *)(addresses[o->tensor] + (uintptr_t)(o->offset / v->block * v->bits / 8));
        t->rank = o->rank;
        t->stamped = handoff->stamped[o->tensor];
        for (int d = 0; d < o->rank; d++) {
            if (o->extent[d] > INT32_MAX)
                return error_set(error, MT_E_LIMIT, program_string(p, p->tensors[o->tensor].name), "an extent of %lld",
                                 (long long)o->extent[d]);
            const bool fits = o->stride[d] <= INT32_MAX && o->stride[d] >= INT32_MIN;
            if (!fits && o->extent[d] > 1)
                return error_set(error, MT_E_LIMIT, program_string(p, p->tensors[o->tensor].name),
                                 "elements of dimension %d lie %lld apart: code for GPUs takes up to 2^31", d,
                                 (long long)o->stride[d]);
            t->extent[d] = (int32_t)o->extent[d];
            t->stride[d] = fits ? (int32_t)o->stride[d] : 0; /* of one element: it is times 0 */
            t->live[d] = o->live[d];
        }
        for (int d = o->rank; d < 5; d++) t->live[d] = -1;
    }
    return MT_OK;
}

/* Whole bands, or the last one. */
static device_map band_map(const tile_format *f, int64_t rows, int64_t columns, bool last) {
    const int64_t band = role_band(f, columns), bands = ceil_div(columns, band), wide = columns - (bands - 1) * band,
                  row = role_band_row(f, band), all = role_layout_bytes(ROLE_BANDS, f, 8, columns),
                  row_bytes = role_decoded_row(f), own = last ? role_band_row(f, wide) : row;
    const int64_t count = last ? 1 : columns / band;
    if (!row_bytes || !count) return (device_map){0};
    return (device_map){.rank = 4,
                        .element = 1,
                        .offset = (size_t)(last ? (bands - 1) * 8 * row : 0),
                        .extent = {(uint64_t)own, 8, (uint64_t)count, (uint64_t)ceil_div(rows, 8)},
                        .stride = {1, (uint64_t)own, (uint64_t)(8 * row), (uint64_t)all},
                        .box = {(uint32_t)row_bytes, 8, 1, 8}};
}

device_map device_map_of(const mt_program *p, const program_binding *b, const role_layout *layouts, size_t operand,
                         int which) {
    const program_operand *o = &p->operands[operand];
    const program_view *v = &b->views[operand];
    if (layouts[o->tensor] == ROLE_BANDS)
        return o->rank == 2 ? band_map(b->formats[o->tensor], o->extent[0], o->extent[1], which) : (device_map){0};
    if (which || o->rank < 2 || o->rank > 3 || v->block != 1 || v->bits != 16) return (device_map){0};
    const uint64_t rows = (uint64_t)o->extent[0], columns = (uint64_t)o->extent[1], atoms = (columns + 63) / 64;
    if (layouts[o->tensor] == ROLE_ATOMS)
        return (device_map){.rank = 3,
                            .element = 4,
                            .extent = {256, atoms, (rows + 7) / 8},
                            .stride = {4, 1024, atoms * 1024},
                            .box = {256, 1, 8}};
    if (layouts[o->tensor] != ROLE_ROWS || o->offset % 8 || o->stride[o->rank - 1] != 1) return (device_map){0};
    for (int d = 0; d < o->rank - 1; d++)
        if (o->stride[d] % 8) return (device_map){0};
    if (o->rank == 3)
        return (device_map){.rank = 3,
                            .element = 2,
                            .swizzle = true,
                            .extent = {(uint64_t)o->extent[2], columns, rows},
                            .stride = {2, (uint64_t)o->stride[1] * 2, (uint64_t)o->stride[0] * 2},
                            .box = {64, 1, 64}};
    return (device_map){.rank = 2,
                        .element = 2,
                        .swizzle = true,
                        .extent = {columns, rows},
                        .stride = {2, (uint64_t)o->stride[0] * 2},
                        .box = {64, 64}};
}

size_t device_bytes(const program_tensor *t, const tile_format *f, role_layout layout) {
    return (size_t)(layout == ROLE_ROWS ? t->bytes : role_layout_bytes(layout, f, t->extent[0], t->extent[1]));
}

/* ---- weights ---- */

/* 16-bit elements, 8 rows x 64 columns an atom, chunks of 16 bytes swizzled by the row. */
static void lay_atoms(int64_t rows, int64_t columns, int64_t first, int64_t last, const uint8_t *from, uint8_t *to) {
    const int64_t atoms = ceil_div(columns, 64);
    for (int64_t n = first; n < last; n++) {
        uint8_t *block = to + (n - first) / 8 * atoms * 1024 + n % 8 * 128;
        const uint8_t *row = from + n * columns * 2;
        for (int64_t k = 0; k < atoms * 64; k += 8) {
            uint8_t *chunk = block + k / 64 * 1024 + ((k % 64 / 8) ^ (n % 8)) * 16;
            const int64_t have = n < rows ? min_i64(max_i64(columns - k, 0), 8) : 0;
            if (have) memcpy(chunk, row + k * 2, (size_t)have * 2);
            if (have < 8) memset(chunk + have * 2, 0, (size_t)(8 - have) * 2);
        }
    }
}

static void lay_bands(const tile_format *f, int64_t rows, int64_t columns, int64_t first, int64_t last,
                      const uint8_t *from, uint8_t *to) {
    const int64_t band = role_band(f, columns), bands = ceil_div(columns, band),
                  row_bytes = tile_format_bytes(f, columns);
    const bool paired = role_is_paired(f, columns);
    for (int64_t n = first; n < last; n += 8)
        for (int64_t b = 0; b < bands; b++) {
            const int64_t wide = min_i64(band, columns - b * band), bytes = tile_format_bytes(f, wide),
                          padded = role_band_row(f, wide);
            for (int64_t r = 0; r < 8; r++, to += padded) {
                const int64_t have = n + r < rows ? bytes : 0;
                const uint8_t *blocks = from + (n + r) * row_bytes + tile_format_bytes(f, b * band);
                if (have && paired)
                    role_lay_pairs(f, blocks, wide / (2 * f->block), to);
                else if (have)
                    memcpy(to, blocks, (size_t)have);
                memset(to + have, 0, (size_t)(padded - have));
            }
        }
}

void device_weight_lay(role_layout layout, const tile_format *f, int64_t rows, int64_t columns, int64_t first,
                       int64_t last, const void *from, void *to) {
    if (layout == ROLE_ATOMS)
        lay_atoms(rows, columns, first, last, from, to);
    else
        lay_bands(f, rows, columns, first, last, from, to);
}
