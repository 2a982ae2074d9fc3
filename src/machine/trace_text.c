/* A trace as text: where a step's time went. Three views of the same records, in the program's order of nodes, equal
 * layers taken together, mean over runs:
 *   nodes          how far each node's last arrival moves the end of the step; these add up to the step
 *   instructions   what an instruction of the node spends its time on, mean over all of them
 *   critical path  walked back from the step's last arrival: an instruction that became ready began when the last of
 *                  those it waits for arrived, or, if that was later, when its processor was done with the one before
 */
#include "machine/trace.h"

#include <stdio.h>
#include <stdlib.h>

/* What times are put down to, of an instruction and of the critical path. */
enum { WAIT, ISSUE, PAGES, COMPUTE, SYNC, PUBLISH, PARTS };
static const char *const part_names[] = {"wait", "issue", "pages", "compute", "sync", "publish"};

/* Nodes that are alike: one line of a table. Sums are nanoseconds, over runs. */
typedef struct row {
    const char *name, *op;
    uint32_t nodes;                    /* in a run */
    uint64_t instructions, seen, load; /* records; of them, those with pages */
    double bytes;                      /* of weights, in a run */
    double step, wall, ready_skew, done_skew;
    double part[PARTS], first_page, ahead; /* of instructions */
    double path[PARTS];
} row;

/* One node in one run. */
typedef struct span {
    int64_t first_ready, last_ready, first_done, last_done, last_arrived; /* first_ready < 0: no record */
} span;

typedef struct report {
    const mt_program *p;
    const mt_trace_record *records;
    size_t count;
    arena *memory;
    trace_cause *causes;
    row *rows;
    size_t row_count;
    uint32_t *row_of; /* by node */
    span *spans;      /* by node */
    size_t runs;
    uint32_t processors;
    double step, shortest, longest; /* a step's time: sum, and bounds */
    double end_wait, next_run;      /* at ends of runs: mean wait; until the next run's first is ready: sum */
    size_t ends, nexts;
    int64_t last; /* arrival of the run before */
    int64_t skew; /* how much later than its consequence an arrival was seen: clocks do not agree better */
} report;

/* ---- rows ---- */

/* A node's name without the number of its layer: "blk.*.attention". */
static const char *fold(arena *a, const char *name) {
    char *out = arena_string(a, name, strlen(name)), *to = out;
    for (const char *at = name; out && *at;) {
        const size_t length = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (length && digits == length)
            *to++ = '*';
        else
            memmove(to, at, length), to += length;
        at += length;
        if (*at) *to++ = *at++;
    }
    if (out) *to = 0;
    return out;
}

static mt_status make_rows(report *r, mt_error *error) {
    const mt_program *p = r->p;
    map rows = {0};
    r->rows = ARENA_ARRAY(r->memory, p->nodes_count, row);
    r->row_of = ARENA_ARRAY(r->memory, p->nodes_count, uint32_t);
    r->spans = ARENA_ARRAY(r->memory, p->nodes_count, span);
    bool good = r->rows && r->row_of && r->spans;
    for (size_t k = 0; k < p->nodes_count && good; k++) {
        const char *name = fold(r->memory, program_string(p, p->nodes[k].name));
        const char *key = name ? arena_printf(r->memory, "%u %s", p->nodes[k].op, name) : NULL;
        if (!(good = key != NULL)) break;
        int64_t at = map_get(&rows, key, strlen(key));
        if (at < 0) {
            at = (int64_t)r->row_count++;
            r->rows[at].name = name;
            r->rows[at].op = program_string(p, p->ops[p->nodes[k].op].name);
            good = map_put(r->memory, &rows, key, strlen(key), at);
        }
        r->row_of[k] = (uint32_t)at;
        r->rows[at].nodes++;
        r->rows[at].instructions += p->nodes[k].count;
    }
    return good ? MT_OK : error_set(error, MT_E_MEMORY, NULL, "no memory for a report");
}

/* Bytes of weights that a node reads: what its instructions touch, but no weight more than once. */
static mt_status count_bytes(report *r, mt_error *error) {
    const mt_program *p = r->p;
    program_binding binding;
    mt_status status = program_bind(p, r->memory, &binding, error);
    for (size_t k = 0; k < p->nodes_count && status == MT_OK; k++) {
        double touched = 0, whole = 0;
        bool first = true;
        for (uint32_t i = p->nodes[k].first; i < p->nodes[k].first + p->nodes[k].count; i++) {
            const program_instruction *n = &p->instructions[i];
            tile_instance instance;
            tile_summary summary;
            int64_t index[TILE_AXES] = {0}, weights = 0;
            if (n->opcode == PROGRAM_JOIN) continue;
            status = program_bind_instance(p, &binding, n, &instance, error);
            if (status != MT_OK) break;
            for (int a = 0; a < PROGRAM_AXES; a++) index[a] = n->index[a];
            tile_summarise(&instance, index, &summary);
            for (int b = 0; b < summary.box_count; b++) {
                const tile_box *box = &summary.box[b];
                const program_operand *o = &p->operands[n->tensor[box->tensor]];
                const program_view *v = &binding.views[n->tensor[box->tensor]];
                if (!box->reads || p->tensors[o->tensor].role != MT_WEIGHT) continue;
                int64_t part = 1, all = 1;
                for (int d = 0; d < box->rank; d++) {
                    const tile_interval at = tile_interval_absolute(&instance, box->dim[d], o->extent[d]);
                    part *= max_i64(at.high - at.low, 0);
                    all *= o->extent[d];
                }
                weights += (int64_t)((double)part * v->bits / v->block / 8);
                if (first) whole += (double)all * v->bits / v->block / 8;
            }
            touched += (double)min_i64(weights, summary.bytes_read);
            first = false;
        }
        r->rows[r->row_of[k]].bytes += touched < whole ? touched : whole;
    }
    return status;
}

/* ---- sums ---- */

static void take_instruction(report *r, size_t i) {
    const mt_trace_record *t = &r->records[i];
    const program_instruction *n = &r->p->instructions[t->instruction];
    row *to = &r->rows[r->row_of[n->node]];
    span *s = &r->spans[n->node];
    const trace_cause *c = &r->causes[i];
    if (c->producer >= 0) r->skew = max_i64(r->skew, r->records[c->producer].arrived - t->ready);
    if (s->first_ready < 0) *s = (span){t->ready, t->ready, t->done, t->done, t->arrived};
    s->first_ready = min_i64(s->first_ready, t->ready);
    s->last_ready = max_i64(s->last_ready, t->ready);
    s->first_done = min_i64(s->first_done, t->done);
    s->last_done = max_i64(s->last_done, t->done);
    s->last_arrived = max_i64(s->last_arrived, t->arrived);
    to->seen++;
    to->part[WAIT] += (double)(t->ready - t->received);
    if (c->before >= 0) to->part[ISSUE] += (double)(t->received - r->records[c->before].arrived);
    to->part[PAGES] += (double)t->page_wait;
    to->part[COMPUTE] += (double)(t->done - t->ready - t->page_wait);
    to->part[SYNC] += (double)(t->synced - t->done);
    to->part[PUBLISH] += (double)(t->arrived - t->synced);
    if (t->first_page >= 0 && t->load_begin >= 0) {
        to->load++;
        to->first_page += (double)(t->first_page - t->ready);
        to->ahead += (double)(t->ready - t->load_begin);
    }
}

/* Back from record `at`, the last of its run, which began at `begin`. */
static void walk_path(report *r, int64_t at, int64_t begin) {
    while (at >= 0) {
        const mt_trace_record *t = &r->records[at];
        const trace_cause *c = &r->causes[at];
        double *path = r->rows[r->row_of[r->p->instructions[t->instruction].node]].path;
        const int64_t produced = c->producer < 0 ? INT64_MIN : r->records[c->producer].arrived,
                      before = c->before < 0 ? INT64_MIN : r->records[c->before].arrived;
        const bool waited = produced >= before && c->producer >= 0;
        path[PUBLISH] += (double)(t->arrived - t->synced);
        path[SYNC] += (double)(t->synced - t->done);
        path[COMPUTE] += (double)(t->done - t->ready - t->page_wait);
        path[PAGES] += (double)t->page_wait;
        path[waited ? WAIT : ISSUE] += (double)(t->ready - (waited ? produced : c->before >= 0 ? before : begin));
        at = waited ? c->producer : c->before; /* both have lower numbers */
    }
}

static void take_run(report *r, size_t first, size_t end) {
    const mt_program *p = r->p;
    const mt_trace_record *records = r->records;
    const bool follows =
        first && records[first - 1].launch == records[first].launch && records[first - 1].run + 1 == records[first].run;
    int64_t begin = INT64_MAX, ready = INT64_MAX, frontier, last = -1;
    for (size_t k = 0; k < p->nodes_count; k++) r->spans[k].first_ready = -1;
    for (size_t i = first; i < end; i++) {
        const mt_trace_record *t = &records[i];
        r->processors = (uint32_t)max_i64(r->processors, (int64_t)t->processor + 1);
        if (t->instruction == p->instructions_count) {
            r->end_wait += (double)(t->ready - t->received);
            r->ends++;
            continue;
        }
        begin = min_i64(begin, t->fetched);
        ready = min_i64(ready, t->ready);
        if (last < 0 || t->arrived > records[last].arrived) last = (int64_t)i;
        take_instruction(r, i);
    }
    if (last < 0) return;
    if (follows) {
        begin = r->last;
        r->next_run += (double)(ready - r->last);
        r->nexts++;
    }
    const double step = (double)(records[last].arrived - begin);
    r->last = records[last].arrived;
    r->shortest = r->runs && r->shortest < step ? r->shortest : step;
    r->longest = r->longest > step ? r->longest : step;
    r->step += step;
    r->runs++;
    frontier = begin;
    for (size_t k = 0; k < p->nodes_count; k++) {
        const span *s = &r->spans[k];
        row *to = &r->rows[r->row_of[k]];
        if (s->first_ready < 0) continue;
        to->step += (double)max_i64(s->last_arrived - frontier, 0);
        frontier = max_i64(frontier, s->last_arrived);
        to->wall += (double)(s->last_arrived - s->first_ready);
        to->ready_skew += (double)(s->last_ready - s->first_ready);
        to->done_skew += (double)(s->last_done - s->first_done);
    }
    walk_path(r, last, begin);
}

/* ---- the text ---- */

static double micro(double nanoseconds, double count) { return count > 0 ? nanoseconds / count * 1e-3 : 0; }

static void print_summary(const report *r, double rate, text *out) {
    const double runs = (double)r->runs, step = micro(r->step, runs), busy = runs * r->processors;
    double bytes = 0, part[PARTS] = {0}, rest = 1;
    for (size_t i = 0; i < r->row_count; i++) {
        bytes += r->rows[i].bytes;
        for (int k = 0; k < PARTS; k++) part[k] += r->rows[i].part[k];
    }
    text_printf(out, "%zu runs of %zu instructions on %u processors; a run takes %.1f µs (%.1f to %.1f)\n", r->runs,
                r->p->instructions_count, r->processors, step, r->shortest * 1e-3, r->longest * 1e-3);
    if (rate > 0)
        text_printf(out, "floor: %.1f MB of weights at %.2f TB/s: %.1f µs, %.0f %% of the run\n", bytes * 1e-6,
                    rate * 1e-12, bytes / rate * 1e6, step > 0 ? 100 * bytes / rate * 1e6 / step : 0);
    text_string(out, "a processor's time, on average:");
    for (int k = 0; k < PARTS; k++) {
        const double share = step > 0 ? micro(part[k], busy) / step : 0;
        text_printf(out, " %s %.1f µs (%.1f %%),", part_names[k], micro(part[k], busy), 100 * share);
        rest -= share;
    }
    text_printf(out, " no work %.1f %%\n", 100 * rest);
    if (r->nexts)
        text_printf(out, "between runs: %.2f µs from the last arrival to the first ready\n",
                    micro(r->next_run, (double)r->nexts));
    if (r->skew > 0) text_printf(out, "clocks of processors agree within about %.2f µs\n", (double)r->skew * 1e-3);
}

static void print_label(const row *w, text *out) { text_printf(out, "%-26.26s %-24.24s", w->name, w->op); }

static void print_nodes(const report *r, double rate, text *out) {
    const double runs = (double)r->runs;
    double step = 0, floor = 0;
    text_printf(out,
                "\nper node, µs      %*s step: of the run, all nodes of the line   wall: first ready to last arrived\n"
                "%-51s %5s %6s %8s %8s %8s %8s %8s %8s\n",
                34, "", "", "nodes", "instr", "step", "floor", "a node", "wall", "skew:rdy", "done");
    for (size_t i = 0; i < r->row_count; i++) {
        const row *w = &r->rows[i];
        const double nodes = runs * w->nodes, least = rate > 0 ? w->bytes / rate * 1e6 : 0;
        print_label(w, out);
        text_printf(out, " %5u %6.0f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f\n", w->nodes,
                    (double)w->instructions / w->nodes, micro(w->step, runs), least, micro(w->step, nodes),
                    micro(w->wall, nodes), micro(w->ready_skew, nodes), micro(w->done_skew, nodes));
        step += micro(w->step, runs);
        floor += least;
    }
    text_printf(out, "%-51s %5s %6s %8.2f %8.2f\n", "sum", "", "", step, floor);
}

static void print_instructions(const report *r, text *out) {
    text_printf(out, "\nper instruction, mean µs\n%-51s", "");
    for (int k = 0; k < PARTS; k++) text_printf(out, " %8s", part_names[k]);
    text_printf(out, " %8s %8s\n", "1st page", "ahead");
    for (size_t i = 0; i < r->row_count; i++) {
        const row *w = &r->rows[i];
        print_label(w, out);
        for (int k = 0; k < PARTS; k++) text_printf(out, " %8.2f", micro(w->part[k], (double)w->seen));
        if (w->load)
            text_printf(out, " %8.2f %8.2f", micro(w->first_page, (double)w->load), micro(w->ahead, (double)w->load));
        text_string(out, "\n");
    }
    text_string(out, "wait: received to ready; issue: from the one before on this processor; pages: within ready to "
                     "done; compute: the\nrest of it; sync: until all threads are done; publish: until others can "
                     "know; 1st page: from ready; ahead: loader before ready\n");
}

static void print_path(const report *r, text *out) {
    const double runs = (double)r->runs;
    double sum[PARTS] = {0}, all = 0;
    text_printf(out, "\non the critical path, µs of a run (wait: from the last arrival to ready)\n%-51s", "");
    for (int k = 0; k < PARTS; k++) text_printf(out, " %8s", part_names[k]);
    text_printf(out, " %8s\n", "sum");
    for (size_t i = 0; i <= r->row_count; i++) {
        const row *w = i < r->row_count ? &r->rows[i] : NULL;
        double line = 0;
        if (w)
            print_label(w, out);
        else
            text_printf(out, "%-51s", "sum");
        for (int k = 0; k < PARTS; k++) {
            const double part = w ? micro(w->path[k], runs) : sum[k];
            text_printf(out, " %8.2f", part);
            sum[k] += w ? part : 0;
            line += part;
        }
        text_printf(out, " %8.2f\n", w ? line : all);
        all += line;
    }
}

mt_status mt_trace_text(const mt_program *p, const mt_trace_record *records, size_t count, double bytes_per_second,
                        char **out, mt_error *error) {
    text t = {0};
    report r = {.p = p, .records = records, .count = count, .memory = arena_new()};
    *out = NULL;
    mt_status status = trace_check(p, records, count, error);
    if (status == MT_OK && !count) status = error_set(error, MT_E_ARGUMENT, NULL, "the trace has no records");
    if (status == MT_OK && r.memory) r.causes = ARENA_ARRAY(r.memory, count, trace_cause);
    if (status == MT_OK && !r.causes) status = error_set(error, MT_E_MEMORY, NULL, "no memory for a report");
    if (status == MT_OK) status = make_rows(&r, error);
    if (status == MT_OK) status = count_bytes(&r, error);
    if (status == MT_OK) status = trace_causes(p, records, count, r.causes, error);
    for (size_t first = 0, end; first < count && status == MT_OK; first = end) {
        end = trace_run_end(records, count, first);
        take_run(&r, first, end);
    }
    if (status == MT_OK) {
        print_summary(&r, bytes_per_second, &t);
        print_nodes(&r, bytes_per_second, &t);
        print_instructions(&r, &t);
        print_path(&r, &t);
        if (t.failed) status = error_set(error, MT_E_MEMORY, NULL, "no memory for a report");
    }
    if (status == MT_OK)
        *out = t.data;
    else
        text_free(&t);
    arena_free(r.memory);
    return status;
}
