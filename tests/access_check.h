/* Compares access summaries with an oracle that runs the program at a grid point with every value that the live
 * parameters can take (access_oracle.h). */
#ifndef ACCESS_CHECK_H
#define ACCESS_CHECK_H

#include "access_oracle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    DATA = 1,
    FLOPS_AT_MOST = 2
}; /* indices come from data: contained, not equal. Loops whose length depends on others' */

static inline const tile_box *box_of(const tile_summary *s, int tensor, bool writes) {
    const tile_box *found = NULL;
    for (int b = 0; b < s->box_count; b++) {
        assert_true(s->box[b].reads != s->box[b].writes);
        if (s->box[b].tensor != tensor || s->box[b].writes != writes) continue;
        assert_null(found);
        found = &s->box[b];
    }
    return found;
}

/* Adds what one run touched to the union of all, relative to live values where the box is. */
static inline void unite(hull *all, const hull *h, const tile_box *box, const int64_t *live, int rank,
                         const char *what) {
    if (!h->any) return;
    if (!box) fail_msg("%s: touched, but there is no box", what);
    for (int d = 0; d < rank; d++) {
        const int64_t offset = box->dim[d].offset_live < 0 ? 0 : live[box->dim[d].offset_live];
        const int64_t low = h->low[d] - offset, high = h->high[d] - offset;
        if (low < box->dim[d].low || high > box->dim[d].high)
            fail_msg("%s, dimension %d: touched [%" PRId64 ", %" PRId64 "), the box is [%" PRId64 ", %" PRId64
                     ") + live %d",
                     what, d, low, high, box->dim[d].low, box->dim[d].high, box->dim[d].offset_live);
        if (!all->any || low < all->low[d]) all->low[d] = low;
        if (!all->any || high > all->high[d]) all->high[d] = high;
    }
    all->any = true;
}

static inline void compare(const hull *all, const tile_box *box, int rank, const char *what) {
    if (!all->any) {
        if (box) fail_msg("%s: never touched, but there is a box", what);
        return;
    }
    for (int d = 0; d < rank; d++)
        if (all->low[d] != box->dim[d].low || all->high[d] != box->dim[d].high)
            fail_msg("%s, dimension %d: touched [%" PRId64 ", %" PRId64 "), the box is [%" PRId64 ", %" PRId64
                     ") + live %d",
                     what, d, all->low[d], all->high[d], box->dim[d].low, box->dim[d].high, box->dim[d].offset_live);
}

/* Bytes of the different elements that a run touched: blocks of a block format. */
static inline int64_t touched_bytes(const world *w, int writes) {
    int64_t bytes = 0;
    for (int p = 0; p < w->op->param_count; p++) {
        const tile_param *param = &w->op->params[p];
        if (!param->rank) continue;
        const hull *h = writes ? &w->writes[param->ordinal] : &w->reads[param->ordinal];
        int64_t blocks = 0, last = -1;
        for (int64_t e = 0; h->any && e < h->element_count; e++) {
            if (!h->elements[e] || e / param->type->block == last) continue;
            last = e / param->type->block;
            blocks++;
        }
        bytes += (blocks * param->type->bits + 7) / 8;
    }
    return bytes;
}

/* Compares the summary of a grid point with what all runs of it touch. */
static inline void check_point(const tile_instance *i, const int64_t *index, int flags, const char *name) {
    const tile_op *op = i->op;
    tile_summary summary;
    memset(&summary, 0xa5, sizeof summary); /* nothing may be read from it */
    tile_summarise(i, index, &summary);
    hull reads[TILE_PARAMS] = {{0}}, writes[TILE_PARAMS] = {{0}};
    int64_t live[TILE_PARAMS], flops = 0, touched[2] = {0, 0};
    char what[256];
    for (int k = 0; k < op->live_count; k++) live[k] = i->live[k].least;
    do {
        bool at_most = true; /* what the bytes are meant for */
        for (int k = 0; k < op->live_count; k++) at_most &= live[k] == i->live[k].most;
        for (uint64_t seed = 1; seed <= (flags & DATA ? 3 : 1); seed++) {
            world w = {.memory = arena_new(), .instance = i, .op = op, .index = index, .seed = seed};
            memcpy(w.live, live, sizeof w.live[0] * (size_t)op->live_count);
            run(&w, op->body);
            for (int p = 0; p < op->param_count; p++) {
                if (!op->params[p].rank) continue;
                const int t = op->params[p].ordinal, rank = op->params[p].rank;
                snprintf(what, sizeof what, "%s at %d, %d, %d: reads of %s", name, (int)index[0], (int)index[1],
                         (int)index[2], op->params[p].name);
                unite(&reads[t], &w.reads[t], box_of(&summary, t, false), live, rank, what);
                snprintf(what, sizeof what, "%s at %d, %d, %d: writes of %s", name, (int)index[0], (int)index[1],
                         (int)index[2], op->params[p].name);
                unite(&writes[t], &w.writes[t], box_of(&summary, t, true), live, rank, what);
            }
            flops = max_i64(flops, w.flops);
            for (int k = 0; k < 2 && at_most; k++) touched[k] = max_i64(touched[k], touched_bytes(&w, k));
            arena_free(w.memory);
        }
    } while (next_live(i, live));
    int64_t bits[2] = {0, 0};
    for (int b = 0; b < summary.box_count; b++) {
        const tile_box *box = &summary.box[b];
        const tile_operand *t = &i->tensor[box->tensor];
        const tile_param *p = op->params;
        while (!p->rank || p->ordinal != box->tensor) p++;
        assert_int_equal(box->rank, t->rank);
        int64_t elements = 1;
        for (int d = 0; d < box->rank; d++) {
            tile_interval v = box->dim[d];
            assert_true(v.low < v.high);
            const tile_interval whole = tile_interval_absolute(i, v, t->extent[d]);
            assert_true(whole.offset_live == -1 && 0 <= whole.low && whole.low <= whole.high &&
                        whole.high <= t->extent[d]);
            if (v.offset_live < 0) assert_true(v.low == whole.low && v.high == whole.high);
            int64_t inside = 0; /* where the live value is at its maximum */
            for (int64_t x = v.low; x < v.high; x++) {
                const int64_t at = x + (v.offset_live < 0 ? 0 : i->live[v.offset_live].most);
                inside += at >= 0 && at < t->extent[d];
            }
            elements *= inside;
        }
        assert_int_equal(elements % p->type->block, 0);
        bits[box->writes] += (elements / p->type->block * p->type->bits + 7) / 8;
    }
    assert_in_range(summary.bytes_read, touched[0], bits[0]);
    assert_in_range(summary.bytes_written, touched[1], bits[1]);
    if (flags & (DATA | FLOPS_AT_MOST))
        assert_true(flops <= summary.flops);
    else if (flops != summary.flops)
        fail_msg("%s: %" PRId64 " operations, summary says %" PRId64, name, flops, summary.flops);
    if (flags & DATA) return;
    for (int p = 0; p < op->param_count; p++) {
        if (!op->params[p].rank) continue;
        const int t = op->params[p].ordinal, rank = op->params[p].rank;
        snprintf(what, sizeof what, "%s at %d, %d, %d: %s", name, (int)index[0], (int)index[1], (int)index[2],
                 op->params[p].name);
        compare(&reads[t], box_of(&summary, t, false), rank, what);
        compare(&writes[t], box_of(&summary, t, true), rank, what);
    }
}

static inline void check_instance(const tile_instance *i, int flags, const char *name) {
    int64_t count[TILE_AXES], index[TILE_AXES] = {0};
    const int64_t total = tile_instance_grid(i, count);
    assert_true(total >= 0);
    int64_t product = 1;
    for (int k = 0; k < TILE_AXES; k++) product *= count[k];
    assert_int_equal(product, total);
    for (int64_t n = 0; n < total; n++) {
        int64_t rest = n;
        for (int k = TILE_AXES - 1; k >= 0; k--) {
            index[k] = rest % count[k];
            rest /= count[k];
        }
        check_point(i, index, flags, name);
    }
}

static inline const tile_op *bind(arena *a, const char *text_of_program) {
    tile_file *f;
    const tile_op *op = NULL;
    tile_diagnostics d = {0};
    mt_error e = {0};
    if (tile_parse(&f, "t.tile", text_of_program, strlen(text_of_program), &d, &e) ||
        tile_bind(a, &op, f, tile_file_name(f, 0), NULL, 0, &d, &e))
        fail_msg("%s\n%s", text_of_program, d.text.data ? d.text.data : e.message);
    tile_file_free(f);
    return op;
}

#endif
