/* The first thread waits in pthread_join and has a signal for the process open, with SA_RESTART. It
 * handles the signal also where another kernel thread took it and passed it on. */
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define SIGNALS 3000
#define THREADS 4

static atomic_int handled, is_over;

static void handler(int signal) {
    (void)signal;
    handled++;
}

/* Is in the runtime most of the time, where no handler can run. */
static void *yields(void *argument) {
    while (!is_over) sched_yield();
    return argument;
}

static void *sends(void *argument) {
    for (int sent = 0; sent < SIGNALS; sent++) {
        RETURNS(0, kill(getpid(), SIGUSR1));
        while (handled == sent) sched_yield();
    }
    is_over = 1;
    return argument;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    RETURNS(0, sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[THREADS], sender = create(sends, NULL);
    for (int i = 0; i < THREADS; i++) threads[i] = create(yields, NULL);
    join(sender);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    CHECK(handled == SIGNALS);
    return succeed();
}
