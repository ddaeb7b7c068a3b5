/* Names and numbers of threads: own to each, stable across waits, and of all threads that live
 * different. */
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { THREADS = 30 };

static pthread_barrier_t met;
static pid_t numbers[THREADS + 1];

static void *is_named(void *argument) {
    int own = (int)(intptr_t)argument;
    char name[16], wanted[16];
    snprintf(wanted, sizeof wanted, "thread-%d", own);
    RETURNS(0, pthread_setname_np(pthread_self(), wanted));
    pid_t number = gettid();
    numbers[own] = number;
    CHECK(number > 0);
    pthread_barrier_wait(&met);
    for (int i = 0; i < 5; i++) {
        usleep(100);
        sched_yield();
        RETURNS(0, pthread_getname_np(pthread_self(), name, sizeof name));
        CHECK(strcmp(name, wanted) == 0);
        RETURNS(0, prctl(PR_GET_NAME, name));
        CHECK(strcmp(name, wanted) == 0);
        CHECK(gettid() == number && syscall(SYS_gettid) == number);
    }
    RETURNS(0, pthread_kill(pthread_self(), 0));
    pthread_barrier_wait(&met);
    /* The first thread looks at all of them here. */
    pthread_barrier_wait(&met);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    char name[16], wanted[16];
    RETURNS(0, pthread_barrier_init(&met, NULL, THREADS + 1));
    for (int i = 0; i < THREADS; i++) {
        threads[i] = create(is_named, (void *)(intptr_t)i);
    }
    numbers[THREADS] = gettid();
    CHECK(numbers[THREADS] == getpid());
    pthread_barrier_wait(&met);
    pthread_barrier_wait(&met);
    for (int i = 0; i <= THREADS; i++) {
        for (int j = 0; j < i; j++) {
            CHECK(numbers[i] != numbers[j]);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        snprintf(wanted, sizeof wanted, "thread-%d", i);
        RETURNS(0, pthread_getname_np(threads[i], name, sizeof name));
        CHECK(strcmp(name, wanted) == 0);
        RETURNS(0, pthread_kill(threads[i], 0));
    }
    RETURNS(0, pthread_setname_np(threads[0], "renamed"));
    RETURNS(0, pthread_getname_np(threads[0], name, sizeof name));
    CHECK(strcmp(name, "renamed") == 0);
    RETURNS(ERANGE, pthread_setname_np(threads[0], "much longer than it may be"));
    RETURNS(ERANGE, pthread_getname_np(threads[0], name, 3));
    RETURNS(0, pthread_setname_np(threads[0], "thread-0"));
    pthread_barrier_wait(&met);
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
    }
    return succeed();
}
