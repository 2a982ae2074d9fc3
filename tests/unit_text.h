/* What tests of device code on this machine share: whether there is a compiler for it, and seeded bugs, which replace a
 * piece of a unit's text. */
#ifndef UNIT_TEXT_H
#define UNIT_TEXT_H

#include <stdlib.h>

#include "base/base.h"

/* Says so when there is none: the test skips. */
static inline bool unit_no_compiler(void) {
    if (!system("${CXX:-c++} --version > /dev/null 2>&1")) return false;
    print_message("skipped: there is no C++ compiler to run device code with\n");
    return true;
}

/* The first `find` behind `near` becomes `put`. False: there is none. */
static inline bool unit_replace(text *unit, const char *near, const char *find, const char *put) {
    const char *at = strstr(unit->data, near);
    if (at) at = strstr(at, find);
    if (!at) return false;
    text changed = {0};
    text_append(&changed, unit->data, (size_t)(at - unit->data));
    text_string(&changed, put);
    text_string(&changed, at + strlen(find));
    assert_false(changed.failed);
    text_free(unit);
    *unit = changed;
    return true;
}

/* sim_machine.edit with one of these as its context; `done` counts the units that had it. */
typedef struct unit_edit {
    const char *from, *to;
    int done;
} unit_edit;
static inline void unit_edit_apply(text *unit, void *context) {
    unit_edit *e = context;
    e->done += unit_replace(unit, "", e->from, e->to);
}

#endif
