/* The first thread leaves. A signal for the process then finds a thread that waits, and the last thread
 * to end ends the process with 0, after its own destructors. */
#include "check.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

static pthread_key_t key;
static sem_t never;
static atomic_int handled, has_ended;

static void handler(int signal) {
    (void)signal;
    handled++;
}

static void key_ends(void *value) {
    CHECK(value == &key);
    has_ended = 1;
}

static void at_exit(void) {
    CHECK(has_ended && handled == 1);
    succeed();
}

static void *ends_last(void *argument) {
    (void)argument;
    RETURNS(0, pthread_setspecific(key, &key));
    RETURNS(-1, sem_wait(&never));
    CHECK(errno == EINTR);
    return NULL;
}

/* Has the signal blocked. */
static void *sends(void *argument) {
    sigset_t set;
    (void)argument;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    RETURNS(0, pthread_sigmask(SIG_BLOCK, &set, NULL));
    usleep(20000);
    RETURNS(0, kill(getpid(), SIGUSR1));
    return NULL;
}

static void *returns(void *argument) {
    return argument;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    RETURNS(0, sigaction(SIGUSR1, &action, NULL));
    RETURNS(0, pthread_key_create(&key, key_ends));
    RETURNS(0, sem_init(&never, 0, 0));
    RETURNS(0, atexit(at_exit));
    for (int i = 0; i < 10; i++) pthread_detach(create(returns, NULL));
    pthread_detach(create(ends_last, NULL));
    pthread_detach(create(sends, NULL));
    pthread_exit(NULL);
}
