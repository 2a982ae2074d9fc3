/* A trace as JSON for viewers (ui.perfetto.dev, chrome://tracing), in Chrome's trace event format: a process for each
 * processor, with a thread for its consumers and one for its loader; an arrow to every instruction that waited, from
 * the last arrival that it waited for. Calls follow each other with a gap that means nothing: each has its own zero. */
#include "machine/trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

enum { CONSUMERS, LOADER, GAP_NS = 10000 };

typedef struct writer {
    const mt_program *p;
    text *out;
    int64_t base; /* of the present call */
    bool comma;
} writer;

/* A name as JSON. */
static char *quote(arena *a, const char *name) {
    json_t *value = json_string(name); /* NULL when it is not UTF-8 */
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    char *out = quoted ? arena_string(a, quoted, strlen(quoted)) : arena_string(a, "\"?\"", 3);
    free(quoted);
    json_decref(value);
    return out;
}

static void begin_event(writer *w, const char *kind, uint32_t processor, int thread) {
    text_printf(w->out, "%s\n{\"ph\":\"%s\",\"pid\":%u,\"tid\":%d", w->comma ? "," : "", kind, processor, thread);
    w->comma = true;
}

static void print_time(writer *w, const char *key, int64_t nanoseconds) {
    text_printf(w->out, ",\"%s\":%s%" PRId64 ".%03d", key, nanoseconds < 0 ? "-" : "",
                (int64_t)(llabs(nanoseconds) / 1000), (int)(llabs(nanoseconds) % 1000));
}

/* A slice without its arguments and its end. */
static void begin_slice(writer *w, const mt_trace_record *r, int thread, const char *quoted, int64_t from, int64_t to) {
    begin_event(w, "X", r->processor, thread);
    text_printf(w->out, ",\"name\":%s", quoted);
    print_time(w, "ts", w->base + from);
    print_time(w, "dur", max_i64(to - from, 0));
}

static void print_record(writer *w, const mt_trace_record *r, const char *name, const char *op) {
    const mt_program *p = w->p;
    if (r->ready > r->received) {
        begin_slice(w, r, CONSUMERS, "\"wait\"", r->received, r->ready);
        text_string(w->out, "}");
    }
    if (r->instruction == p->instructions_count) return;
    const program_instruction *n = &p->instructions[r->instruction];
    begin_slice(w, r, CONSUMERS, name, r->ready, r->done);
    text_printf(w->out, ",\"args\":{\"op\":%s,\"instruction\":%u,\"run\":%u,\"index\":\"%d %d %d %d %d\",\"pages\":%u",
                op, r->instruction, r->run, n->index[0], n->index[1], n->index[2], n->index[3], n->index[4], r->pages);
    text_printf(w->out, ",\"page_wait_ns\":%" PRId64 "}}", r->page_wait);
    if (r->arrived > r->done) {
        begin_slice(w, r, CONSUMERS, "\"publish\"", r->done, r->arrived);
        text_string(w->out, "}");
    }
    if (r->load_begin >= 0) {
        begin_slice(w, r, LOADER, name, r->load_begin, r->load_end);
        text_printf(w->out, ",\"args\":{\"instruction\":%u,\"pages\":%u,\"wait_ns\":%" PRId64 "}}", r->instruction,
                    r->pages, r->load_wait);
    }
}

static void print_arrow(writer *w, const mt_trace_record *from, const mt_trace_record *to, size_t id) {
    begin_event(w, "s", from->processor, CONSUMERS);
    text_printf(w->out, ",\"name\":\"arrival\",\"cat\":\"arrival\",\"id\":%zu", id);
    print_time(w, "ts", w->base + from->done + (from->arrived - from->done) / 2); /* inside the slice that ends there */
    text_string(w->out, "}");
    begin_event(w, "f", to->processor, CONSUMERS);
    text_printf(w->out, ",\"name\":\"arrival\",\"cat\":\"arrival\",\"bp\":\"e\",\"id\":%zu", id);
    print_time(w, "ts", w->base + to->ready);
    text_string(w->out, "}");
}

static void print_processors(writer *w, const mt_trace_record *records, size_t count) {
    static const char *const threads[] = {"consumers", "loader"};
    uint32_t most = 0;
    bool loads = false;
    for (size_t i = 0; i < count; i++) {
        most = records[i].processor > most ? records[i].processor : most;
        loads |= records[i].load_begin >= 0;
    }
    for (uint32_t k = 0; k <= most && count; k++) {
        begin_event(w, "M", k, 0);
        text_printf(w->out, ",\"name\":\"process_name\",\"args\":{\"name\":\"processor %u\"}}", k);
        begin_event(w, "M", k, 0);
        text_printf(w->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%u}}", k);
        for (int t = CONSUMERS; t <= (loads ? LOADER : CONSUMERS); t++) {
            begin_event(w, "M", k, t);
            text_printf(w->out, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", threads[t]);
        }
    }
}

mt_status mt_trace_json(const mt_program *p, const mt_trace_record *records, size_t count, char **out,
                        mt_error *error) {
    text t = {0};
    writer w = {.p = p, .out = &t};
    arena *memory = arena_new();
    *out = NULL;
    mt_status status = trace_check(p, records, count, error);
    trace_cause *causes = memory ? ARENA_ARRAY(memory, count, trace_cause) : NULL;
    char **names = memory ? ARENA_ARRAY(memory, p->nodes_count, char *) : NULL;
    char **ops = memory ? ARENA_ARRAY(memory, p->nodes_count, char *) : NULL;
    bool good = causes && names && ops;
    for (size_t k = 0; k < p->nodes_count && good; k++) {
        names[k] = quote(memory, program_string(p, p->nodes[k].name));
        ops[k] = quote(memory, program_string(p, p->ops[p->nodes[k].op].name));
        good = names[k] && ops[k];
    }
    if (status == MT_OK && !good) status = error_set(error, MT_E_MEMORY, NULL, "no memory for a trace");
    if (status == MT_OK) status = trace_causes(p, records, count, causes, error);
    if (status == MT_OK) {
        int64_t end = 0; /* of all so far, with the base */
        text_string(&t, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        print_processors(&w, records, count);
        for (size_t i = 0; i < count; i++) {
            const mt_trace_record *r = &records[i];
            const uint32_t node = r->instruction < p->instructions_count ? p->instructions[r->instruction].node : 0;
            if (i && r->launch != records[i - 1].launch) w.base = end + GAP_NS;
            print_record(&w, r, names[node], ops[node]);
            if (causes[i].producer >= 0) print_arrow(&w, &records[causes[i].producer], r, i);
            end = max_i64(end, w.base + max_i64(r->arrived, r->ready));
        }
        text_string(&t, "\n]}\n");
        if (t.failed) status = error_set(error, MT_E_MEMORY, NULL, "no memory for a trace");
    }
    if (status == MT_OK)
        *out = t.data;
    else
        text_free(&t);
    arena_free(memory);
    return status;
}
