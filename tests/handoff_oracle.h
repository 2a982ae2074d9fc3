/* What a program's hand-offs have to be, for tests: of every two instructions that conflict, one is behind the other,
 * but for stamped data; worked out anew, instruction by instruction. Include cmocka before. */
#ifndef HANDOFF_ORACLE_H
#define HANDOFF_ORACLE_H

#include <stdlib.h>
#include <string.h>

#include "machine/device.h"
#include "ok.h"

/* What the machines choose for the program's hand-offs. */
static device_handoff handoff_of(const mt_program *p, arena *memory) {
    program_binding binding;
    role_layout *layouts;
    emit_cuda_op *lowered;
    device_handoff out;
    OK(program_bind(p, memory, &binding, &error));
    OK(device_layouts(p, &binding, memory, &layouts, &error));
    OK(device_ops(p, &binding, layouts, memory, &lowered, &error));
    OK(device_handoff_choose(p, &binding, lowered, memory, &out, &error));
    return out;
}

/* What an instruction is behind, worked out anew: who waits for a barrier, and not just for a hint, is behind all who
 * arrive there, and all that they are behind; and behind what its processor has done. */

static bool is_behind(const uint64_t *known, size_t width, size_t i, size_t other) {
    return known[i * width + other / 64] >> other % 64 & 1;
}

static uint64_t *find_known(const mt_program *p, const device_handoff *h, size_t width) {
    uint64_t *known = calloc(p->instructions_count * width, sizeof *known),
             *arrived = calloc(p->barriers_count * width, sizeof *arrived);
    uint32_t *before = malloc(p->instructions_count * sizeof *before); /* on its processor */
    assert_true(known && arrived && before);
    memset(before, 0xff, p->instructions_count * sizeof *before);
    for (size_t q = 0; q < p->processors_count; q++)
        for (uint32_t k = 1; k < p->processors[q].count; k++)
            before[p->order[p->processors[q].first + k]] = p->order[p->processors[q].first + k - 1];
    for (size_t k = 0; k < p->instructions_count; k++) {
        const program_instruction *i = &h->instructions[k];
        uint64_t *mine = known + k * width;
        if (before[k] != UINT32_MAX) {
            for (size_t x = 0; x < width; x++) mine[x] |= known[before[k] * width + x];
            mine[before[k] / 64] |= (uint64_t)1 << before[k] % 64;
        }
        for (int w = 0; w < i->wait_count; w++) {
            const uint32_t barrier = i->wait[w] & ~CUDA_HINT;
            assert_true(barrier < p->barriers_count);
            assert_int_equal(i->target[w], p->barriers[barrier].arrivals);
            for (size_t x = 0; x < width && !(i->wait[w] & CUDA_HINT); x++) mine[x] |= arrived[barrier * width + x];
        }
        for (int a = 0; a < i->arrive_count && !(h->ends[k] & CUDA_QUIET); a++) {
            uint64_t *all = arrived + i->arrive[a] * width;
            for (size_t x = 0; x < width; x++) all[x] |= mine[x];
            all[k / 64] |= (uint64_t)1 << k % 64;
        }
    }
    free(arrived);
    free(before);
    return known;
}

/* The tensors share bytes: of the temporaries' memory, or as one tensor. */
static bool meet(const mt_program *p, const device_handoff *h, uint32_t a, uint32_t b) {
    if (a == b) return true;
    if (p->tensors[a].role != MT_TEMP || p->tensors[b].role != MT_TEMP) return false;
    return h->offset[a] < h->offset[b] + p->tensors[b].bytes && h->offset[b] < h->offset[a] + p->tensors[a].bytes;
}

typedef struct touch {
    program_region region;
    bool writes;
} touch;

static int touches_of(const mt_program *p, const program_binding *b, uint32_t number, touch *out) {
    const program_instruction *i = &p->instructions[number];
    tile_instance instance;
    tile_summary summary;
    int64_t index[TILE_AXES] = {0};
    OK(program_bind_instance(p, b, i, &instance, &error));
    for (int a = 0; a < b->ops[i->opcode]->axis_total; a++) index[a] = i->index[a];
    tile_summarise(&instance, index, &summary);
    for (int k = 0; k < summary.box_count; k++) {
        const tile_box *box = &summary.box[k];
        program_view_region(&b->views[i->tensor[box->tensor]], &instance, i, box, &out[k].region);
        out[k].writes = box->writes;
    }
    return summary.box_count;
}

static bool conflict(const mt_program *p, const device_handoff *h, const touch *a, const touch *b) {
    const uint32_t t = a->region.tensor, u = b->region.tensor;
    if (h->stamped[t] || !(a->writes || b->writes) || !meet(p, h, t, u)) return false;
    return t != u || program_regions_meet(&a->region, &b->region, INT64_MIN, INT64_MAX);
}

/* Of every two instructions that touch the same memory, one of them writing, one is behind the other, but for what is
 * stamped. Returns how many tensors are. `stamps`: some have to be. */
static size_t check_program_handoff(const mt_program *p, const char *what, bool stamps) {
    arena *memory = arena_new();
    const device_handoff h = handoff_of(p, memory);
    program_binding binding;
    OK(program_bind(p, memory, &binding, &error));
    const size_t width = (p->instructions_count + 63) / 64;
    uint64_t *known = find_known(p, &h, width);
    size_t quiet = 0, stamped = 0;
    for (size_t k = 0; k < p->instructions_count; k++) quiet += (h.ends[k] & CUDA_QUIET) != 0;
    for (size_t t = 0; t < p->tensors_count; t++) {
        const int64_t end = h.offset[t] + p->tensors[t].bytes;
        if (p->tensors[t].role == MT_TEMP) assert_true(h.offset[t] >= 0 && end <= (int64_t)h.bytes);
        if (!h.stamped[t]) continue;
        stamped++;
        assert_int_equal(p->tensors[t].role, MT_TEMP);
        assert_true(h.offset[t] >= (int64_t)h.stamps_at && end <= (int64_t)(h.stamps_at + h.stamp_bytes));
        for (size_t u = 0; u < p->tensors_count; u++)
            assert_false(u != t && p->tensors[u].role == MT_TEMP && meet(p, &h, (uint32_t)t, (uint32_t)u));
    }
    assert_true(!stamps || (quiet > 0 && stamped > 0));
    enum { MOST = 2 * TILE_PARAMS };
    touch *touches = calloc(p->instructions_count * MOST, sizeof *touches);
    int *counts = calloc(p->instructions_count, sizeof *counts);
    assert_true(touches && counts);
    for (uint32_t i = 0; i < p->instructions_count; i++)
        if (p->instructions[i].opcode != PROGRAM_JOIN) counts[i] = touches_of(p, &binding, i, touches + i * MOST);
    for (uint32_t j = 0; j < p->instructions_count; j++)
        for (uint32_t i = 0; i < j; i++) {
            bool conflicts = false;
            if (is_behind(known, width, j, i)) continue;
            if (p->instructions[i].node == p->instructions[j].node &&
                binding.ops[device_first_of(p, p->instructions[i].node)->opcode]->level2)
                continue;
            for (int x = 0; x < counts[i]; x++)
                for (int y = 0; y < counts[j]; y++)
                    conflicts |= conflict(p, &h, &touches[i * MOST + (size_t)x], &touches[j * MOST + (size_t)y]);
            if (conflicts)
                fail_msg("%s: nothing orders instruction %u (%s) behind %u (%s)", what, j,
                         program_string(p, p->nodes[p->instructions[j].node].name), i,
                         program_string(p, p->nodes[p->instructions[i].node].name));
        }
    free(touches);
    free(counts);
    free(known);
    arena_free(memory);
    return stamped;
}

#endif
