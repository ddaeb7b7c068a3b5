// The signal functions of System V and BSD concern the calling thread only: its mask, its waits.
#include <signal.h>
#include <stdatomic.h>
#include "check.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// The function of BSD; <signal.h> gives the name to that of System V.
int sigpause_of_mask(int mask) __asm__("sigpause");

static __thread int own;
static atomic_int handled, is_held, may_end, waits;
static pthread_t holder;

static void handler(int signal) {
    CHECK(own == 42 && signal == SIGUSR1);
    handled++;
}

static int is_blocked(int signal) {
    sigset_t now;
    RETURNS(0, pthread_sigmask(SIG_BLOCK, NULL, &now));
    return sigismember(&now, signal);
}

static int is_pending(int signal) {
    sigset_t now;
    RETURNS(0, sigpending(&now));
    return sigismember(&now, signal);
}

static void *holds(void *unused) {
    (void)unused;
    own = 42;
    CHECK(sigset(SIGUSR1, handler) == SIG_DFL);
    RETURNS(0, pthread_kill(pthread_self(), SIGUSR1));
    CHECK(handled == 1 && !is_blocked(SIGUSR1));

    CHECK(sigset(SIGUSR1, SIG_HOLD) == handler);
    CHECK(is_blocked(SIGUSR1));
    is_held = 1;
    while (!may_end)
        sched_yield();
    RETURNS(0, pthread_kill(pthread_self(), SIGUSR1));
    CHECK(handled == 1 && is_pending(SIGUSR1));
    CHECK(sigset(SIGUSR1, SIG_HOLD) == SIG_HOLD);
    CHECK(sigset(SIGUSR1, handler) == SIG_HOLD);
    CHECK(handled == 2 && !is_blocked(SIGUSR1));

    RETURNS(0, sighold(SIGUSR1));
    waits = 1;
    RETURNS(-1, sigpause(SIGUSR1));
    CHECK(errno == EINTR && handled == 3 && is_blocked(SIGUSR1));
    waits = 2;
    RETURNS(-1, sigpause_of_mask(1 << (SIGUSR2 - 1)));
    CHECK(errno == EINTR && handled == 4 && is_blocked(SIGUSR1));
    RETURNS(0, sigrelse(SIGUSR1));

    RETURNS(0, sigignore(SIGUSR2));
    RETURNS(0, pthread_kill(pthread_self(), SIGUSR2));
    CHECK(sigset(SIGUSR2, SIG_DFL) == SIG_IGN);

    CHECK(sigset(0, handler) == SIG_ERR && errno == EINVAL);
    CHECK(sigset(SIGKILL, handler) == SIG_ERR && errno == EINVAL);
    RETURNS(-1, sigignore(SIGSTOP));
    RETURNS(-1, sighold(_NSIG));
    RETURNS(-1, sigpause(-1));
    return NULL;
}

// Runs on the kernel thread of the other one, if that waits.
static void *looks(void *unused) {
    (void)unused;
    while (!is_held)
        sched_yield();
    CHECK(!is_blocked(SIGUSR1));
    may_end = 1;
    for (int round = 1; round <= 2; round++) {
        while (waits != round)
            sched_yield();
        // It is pending, if the other one does not wait yet.
        RETURNS(0, pthread_kill(holder, SIGUSR1));
    }
    return NULL;
}

int main(void) {
    holder = create(holds, NULL);
    pthread_t other = create(looks, NULL);
    join(holder);
    join(other);
    return succeed();
}
