/* What is known to be finished when an instruction starts. order.c has the idea. */
#ifndef PROGRAM_ORDER_H
#define PROGRAM_ORDER_H

#include "program/program_internal.h"

typedef struct program_order program_order;

/* Checks that every wait can be satisfied: barriers get the arrivals they say, waiters wait for all of them, and every
 * arrival has a lower number than every waiter. */
mt_status program_order_new(program_order **out, const mt_program *p, mt_error *error);
void program_order_free(program_order *o);

/* Instructions enter and leave in ascending order. Between the two, `knows` answers for the one that entered. False:
 * no memory, or program_order_spend has nothing left. */
bool program_order_enter(program_order *o, uint32_t instruction);
bool program_order_leave(program_order *o, uint32_t instruction);
/* True when `earlier` is finished before the instruction that entered starts. */
bool program_order_knows(program_order *o, uint32_t earlier);

/* Ranks number barriers by their first arrival, so that barriers completed together lie together. */
uint32_t program_order_rank(const program_order *o, uint32_t barrier);
/* True when all barriers with ranks low .. high (both included) are known to be complete. */
bool program_order_knows_ranks(program_order *o, uint32_t low, uint32_t high);

/* `accesses` more accesses of an instruction may be asked about; forget takes one back. An instruction without any is
 * never asked about again. Hold before it leaves. */
void program_order_hold(program_order *o, uint32_t instruction);
void program_order_forget(program_order *o, uint32_t instruction);

/* The checker's work is bounded: every step of a search is paid for. False when the program's budget is used up. */
bool program_order_spend(program_order *o, uint64_t steps);
bool program_order_is_spent(const program_order *o);

#endif
