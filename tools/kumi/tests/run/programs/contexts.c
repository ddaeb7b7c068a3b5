/* Contexts of the program's own inside threads: makecontext(3) stacks that wait, and longjmp. */
#include "check.h"

#include <sched.h>
#include <setjmp.h>
#include <ucontext.h>

enum { SWITCHES = 50 };

static __thread ucontext_t outer, inner;
static __thread int steps;

static void runs(void) {
    for (;;) {
        steps++;
        usleep(30);
        swapcontext(&inner, &outer);
    }
}

static void *switches(void *argument) {
    size_t size = 64 << 10;
    char *stack = malloc(size);
    CHECK(stack != NULL);
    RETURNS(0, getcontext(&inner));
    inner.uc_stack.ss_sp = stack;
    inner.uc_stack.ss_size = size;
    inner.uc_link = &outer;
    makecontext(&inner, runs, 0);
    for (int i = 1; i <= SWITCHES; i++) {
        RETURNS(0, swapcontext(&outer, &inner));
        CHECK(steps == i);
        sched_yield();
    }
    free(stack);
    jmp_buf back;
    volatile int jumps = 0;
    int came = setjmp(back);
    CHECK(came == jumps);
    if (jumps < 5) {
        usleep(20);
        jumps++;
        longjmp(back, jumps);
    }
    return argument;
}

int main(void) {
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = create(switches, NULL);
    }
    for (int i = 0; i < 10; i++) {
        join(threads[i]);
    }
    return succeed();
}
