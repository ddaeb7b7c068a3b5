/* Signals that come as fast as their handlers run: each handler has its sender send the next one.
 * The frames of handlers must not pile up on the stack of the thread. */
#include "check.h"

#include <semaphore.h>
#include <signal.h>

#define SIGNALS 400
/* Two handlers, one in the other, with room for the largest frame of a processor. */
#define ROOM (32 << 10)

static sem_t handled[2];
static volatile int has_ended;
static volatile uintptr_t highest, lowest = UINTPTR_MAX;

static void on_signal(int signal) {
    char here;
    uintptr_t at = (uintptr_t)&here;
    highest = at > highest ? at : highest;
    lowest = at < lowest ? at : lowest;
    sem_post(&handled[signal == SIGUSR2]);
}

static void *compute(void *nothing) {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    RETURNS(0, pthread_sigmask(SIG_UNBLOCK, &both, NULL));
    while (!has_ended) {
        getppid();
    }
    return nothing;
}

static void *send_all(void *which) {
    int is_second = (int)(intptr_t)which;
    for (int i = 0; i < SIGNALS; i++) {
        RETURNS(0, kill(getpid(), is_second ? SIGUSR2 : SIGUSR1));
        RETURNS(0, sem_wait(&handled[is_second]));
    }
    return NULL;
}

int main(void) {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    RETURNS(0, pthread_sigmask(SIG_BLOCK, &both, NULL));
    struct sigaction action = {.sa_handler = on_signal};
    RETURNS(0, sigaction(SIGUSR1, &action, NULL));
    RETURNS(0, sigaction(SIGUSR2, &action, NULL));
    for (int i = 0; i < 2; i++) {
        RETURNS(0, sem_init(&handled[i], 0, 0));
    }
    pthread_t computes = create(compute, NULL);
    pthread_t first = create(send_all, (void *)0), second = create(send_all, (void *)1);
    join(first);
    join(second);
    has_ended = 1;
    join(computes);
    CHECK(highest >= lowest && highest - lowest < ROOM);
    return succeed();
}
