/* From a lowered graph to a program: numbers, slots, barriers, placement. Each step is a file and a pass over `sched`.
 *
 *   compile.c  mt_compile: the graph's passes in their order, then sched_build (build.c)
 *   number.c   instructions get consecutive numbers, node after node, grid order inside a node
 *   depend.c   boxes ──► for every instruction the set of earlier instructions it must follow
 *   set.c      sets of instructions and lists of them, each kept once
 *   box.c      what overlaps: classes of equal boxes, a tree over them
 *   prune.c    dependencies that others imply
 *   slot.c     temporaries share memory when their lifetimes allow; reuse adds dependencies
 *   barrier.c  equal dependency sets share a barrier; joins where an instruction would wait for or arrive at too many
 *   emit.c     the program_builder's tables, placement */
#ifndef SCHED_SCHED_H
#define SCHED_SCHED_H

#include "graph/graph.h"
#include "program/program.h"

mt_status sched_build(const mt_graph *lowered, const graph_target *target, mt_program **out, mt_error *error);

#endif
