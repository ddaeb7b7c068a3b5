/* Overflows of the stack that the program's own handler catches on an alternate stack: the handler
 * is there before the first thread, or comes later. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>

enum { ROOM = 64 << 10 };

static __thread sigjmp_buf before;
static __thread char *own_stack;
static __thread volatile sig_atomic_t caught;

static void on_overflow(int signal, siginfo_t *info, void *context) {
    (void)context;
    char here;
    CHECK(signal == SIGSEGV && info->si_addr != NULL);
    /* On the stack that the thread has set up. */
    CHECK(&here > own_stack && &here < own_stack + ROOM);
    /* More than a signal's frame fits there. */
    volatile char room[ROOM / 2];
    room[0] = room[sizeof room - 1] = 1;
    caught++;
    siglongjmp(before, room[0]);
}

__attribute__((noinline)) static long overflows(long depth) {
    volatile char frame[512];
    frame[0] = (char)depth;
    return depth < 0 ? 0 : overflows(depth + 1) + frame[0];
}

static void *recovers(void *argument) {
    (void)argument;
    own_stack = malloc(ROOM);
    stack_t stack = {.ss_sp = own_stack, .ss_size = ROOM}, was;
    RETURNS(0, sigaltstack(&stack, &was));
    CHECK(was.ss_flags == SS_DISABLE);
    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(before, 1) == 0) {
            overflows(0);
        }
        CHECK(caught == i + 1);
        usleep(200);
        RETURNS(0, sigaltstack(NULL, &was));
        CHECK(was.ss_sp == own_stack && was.ss_size == ROOM && was.ss_flags == 0);
    }
    stack.ss_flags = SS_DISABLE;
    RETURNS(0, sigaltstack(&stack, NULL));
    free(own_stack);
    return NULL;
}

static void install(void) {
    struct sigaction action = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    RETURNS(0, sigaction(SIGSEGV, &action, NULL));
}

int main(void) {
    pthread_t threads[6];
    for (int round = 0; round < 2; round++) {
        /* Before the runtime starts, and again after it. */
        install();
        for (int i = 0; i < 6; i++) {
            threads[i] = create(recovers, NULL);
        }
        for (int i = 0; i < 6; i++) {
            join(threads[i]);
        }
    }
    return succeed();
}
