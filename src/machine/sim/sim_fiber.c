/* Coroutines: a stack each, and a switch that saves what a call must preserve. Where there is no assembly for the
 * processor, ucontext does it. */
#include "machine/sim/sim.h"

#include <stdlib.h>
#include <ucontext.h>

#if defined __SANITIZE_ADDRESS__
void __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
#elif defined __has_feature
#if __has_feature(address_sanitizer)
void __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* The address sanitizer marks parts of frames; coroutines that never returned have left their marks. */
void sim_fiber_forget(char *stacks, size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(stacks, bytes);
#else
    (void)stacks, (void)bytes;
#endif
}

#if defined __x86_64__
void sim_fiber_jump(void **from, void *to);
__asm__(".text\n.p2align 4\n.globl sim_fiber_jump\n.hidden sim_fiber_jump\n.type sim_fiber_jump, @function\n"
        "sim_fiber_jump:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size sim_fiber_jump, . - sim_fiber_jump\n");

void sim_fiber_switch(void **from, void *to) { sim_fiber_jump(from, to); }

void *sim_fiber_new(char *stack, size_t bytes, void (*body)(void)) {
    void **top = (void **)(stack + bytes - 64);
    *--top = NULL; /* the stack is aligned as behind a call */
    memcpy(--top, &body, sizeof body);
    for (int i = 0; i < 6; i++) *--top = NULL;
    return top;
}
#else
/* The fiber is a ucontext at the stack's low end; a pointer to it stands for the stack pointer. */
static ucontext_t main_context;

void sim_fiber_switch(void **from, void *to) {
    if (!*from) *from = &main_context;
    swapcontext(*from, to);
}

void *sim_fiber_new(char *stack, size_t bytes, void (*body)(void)) {
    ucontext_t *c = (ucontext_t *)stack;
    const size_t used = align_up(sizeof *c, 64);
    getcontext(c);
    c->uc_stack.ss_sp = stack + used;
    c->uc_stack.ss_size = bytes - used;
    c->uc_link = NULL;
    makecontext(c, body, 0);
    return c;
}
#endif
