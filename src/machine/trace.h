/* Traces between machines and reports: why every instruction began when it did; times of a device's clocks. */
#ifndef MACHINE_TRACE_H
#define MACHINE_TRACE_H

#include "machine/machine.h"
#include "program/program_internal.h"

#include "emit/cuda_abi.h"

/* What an instruction waited for last. */
typedef struct trace_cause {
    int64_t producer; /* index of the record whose arrival came last of those it waits for; -1: it waits for none */
    int64_t before;   /* index of the record before it on its processor, in its run; -1: it is the first */
} trace_cause;

/* Fills causes[i] for records[i]. Records are sorted: by launch, run, instruction. */
mt_status trace_causes(const mt_program *p, const mt_trace_record *records, size_t count, trace_cause *causes,
                       mt_error *error);
/* Checks that the records can be of this program, and are sorted. */
mt_status trace_check(const mt_program *p, const mt_trace_record *records, size_t count, mt_error *error);
/* The records of one run: the first behind records[first] that belongs to another. */
size_t trace_run_end(const mt_trace_record *records, size_t count, size_t first);

/* From what a kernel noted to records; returns their number. `out` has room for every note of the runs that are kept:
 * the last `trace_runs` of the launch's. */
size_t trace_convert(const cuda_trace *notes, const cuda_trace_clock *clocks, const cuda_run *launch, uint32_t grid,
                     mt_trace_record *out);

#endif
