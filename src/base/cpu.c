#include "base/base.h"

#include <sched.h>

int cpu_count(void) {
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return count > 0 ? count : 1;
}
