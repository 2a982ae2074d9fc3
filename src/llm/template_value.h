/* The values that a chat template computes with, and the run that owns them: between the interpreter (template.c) and
 * what it knows to do with values (template_value.c).
 *
 * Values are small and immutable, except for namespaces. All memory of a run is in one arena. An error anywhere ends
 * the run by a jump to its beginning, so that nothing but the arena and `out` may own memory. */
#ifndef LLM_TEMPLATE_VALUE_H
#define LLM_TEMPLATE_VALUE_H

#include <setjmp.h>

#include "llm/template.h"

enum { STEP_LIMIT = 20000000, BYTE_LIMIT = 1 << 28, DEPTH_LIMIT = 100 };

typedef enum value_kind { UNDEFINED, NONE, BOOL, INTEGER, STRING, LIST, DICT, NAMESPACE, FUNCTION, ABSENT } value_kind;
extern const char *const value_kind_names[]; /* "a string", ... */

typedef struct value {
    value_kind kind;
    size_t count; /* bytes of a string, elements of a list */
    union {
        int64_t i;                 /* BOOL, INTEGER */
        const char *s;             /* STRING; FUNCTION: its name */
        const struct value *items; /* LIST; also for tuples */
        struct dict *dict;         /* DICT, NAMESPACE */
    };
} value;

typedef struct pair {
    value key, value; /* keys are strings */
} pair;

typedef struct dict { /* in the order of insertion; small, so searched from the front */
    pair *pairs;
    size_t count, capacity;
} dict;

typedef struct scope {
    struct scope *outer;
    dict names;
} scope;

typedef struct run {
    const mt_template *t;
    arena *arena;
    text out;
    scope *scope;        /* the innermost */
    size_t steps, bytes; /* taken so far */
    jmp_buf trap;
    mt_error *error;
    mt_status status;
    const mt_message *messages; /* what mt_template_apply was given */
    size_t count;
    const mt_template_options *options;
} run;

static inline value string_of(const char *s, size_t n) { return (value){STRING, n, {.s = s}}; }
static inline value c_string(const char *s) { return string_of(s, strlen(s)); }
static inline value integer(int64_t i) { return (value){INTEGER, 0, {.i = i}}; }
static inline value boolean(bool b) { return (value){BOOL, 0, {.i = b}}; }
static inline value list_of(const value *items, size_t count) { return (value){LIST, count, {.items = items}}; }
static inline value nothing(value_kind kind) { return (value){kind, 0, {0}}; }
static inline bool is_number(value v) { return v.kind == INTEGER || v.kind == BOOL; }

/* `n` is where in the template it happens. */
_Noreturn void run_fail(run *r, const template_node *n, mt_status status, const char *format, ...) PRINTF_LIKE(4, 5);
/* Counts one step, and one for every 256 bytes looked at, up to STEP_LIMIT. */
void run_step(run *r, const template_node *n, size_t bytes);
void *run_alloc(run *r, const template_node *n, size_t size);         /* zeroed; counts, up to BYTE_LIMIT */
value run_take_written(run *r, const template_node *n, size_t start); /* what `out` holds from `start` on leaves it */

value *dict_find(const dict *d, value key); /* NULL when absent */
void dict_put(run *r, const template_node *n, dict *d, value key, value v);
value *value_items(run *r, const template_node *n, size_t count); /* room for a list's elements */

value value_text(run *r, const template_node *n, value v); /* str(v) */
bool value_truth(value v);
size_t value_offset(value s, int64_t *count); /* bytes of the first *count characters; *count becomes what there are */
int64_t value_length(run *r, const template_node *n, value v);
value value_elements(run *r, const template_node *n, value v); /* what a loop over v goes through, as a list */
bool value_equal(run *r, const template_node *n, value a, value b, int depth);
int value_compare(run *r, const template_node *n, value a, value b); /* below, at, above zero */
bool value_contains(run *r, const template_node *n, value part, value whole);

/* A filter or a method. `arguments` are as many as `names` (with a space between two) has words, those not given
 * ABSENT. */
typedef struct value_operation {
    value (*apply)(run *r, const template_node *n, value self, const value *arguments);
    const char *names;
    int required; /* so many of them must be given */
} value_operation;

const value_operation *value_filter(const char *name); /* NULL for an unknown name */
const value_operation *value_method(value_kind kind, const char *name);

#endif
