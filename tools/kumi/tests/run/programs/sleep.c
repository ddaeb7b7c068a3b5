/* Sleeps: never too short, however short or late they are; errors; times beyond 64 bits of
 * nanoseconds. */
#include "check.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>

static void *sleeps(void *argument) {
    (void)argument;
    const long lengths[] = {0, 1, 1000, 100000, 999999, 1500000};
    for (int i = 0; i < 6; i++) {
        struct timespec begun, end, length = {0, lengths[i]};
        clock_gettime(CLOCK_MONOTONIC, &begun);
        RETURNS(0, nanosleep(&length, NULL));
        clock_gettime(CLOCK_MONOTONIC, &end);
        long took = (end.tv_sec - begun.tv_sec) * 1000000000 + end.tv_nsec - begun.tv_nsec;
        CHECK(took >= lengths[i]);
        RETURNS(0, clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL));
    }
    struct timespec at = in_milliseconds(CLOCK_MONOTONIC, 5);
    RETURNS(0, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    at = in_milliseconds(CLOCK_REALTIME, 5);
    RETURNS(0, clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL));
    CHECK(has_come(CLOCK_REALTIME, at));
    /* Long past. */
    RETURNS(0, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &(struct timespec){0, 1}, NULL));
    RETURNS(0, usleep(300));
    RETURNS(0, sleep(0));

    errno = 0;
    RETURNS(-1, nanosleep(&(struct timespec){0, 1000000000}, NULL));
    CHECK(errno == EINVAL);
    RETURNS(-1, nanosleep(&(struct timespec){-1, 0}, NULL));
    CHECK(errno == EINVAL);
    errno = 0;
    RETURNS(EINVAL, clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, -1}, NULL));
    RETURNS(EINVAL, clock_nanosleep(12345, 0, &(struct timespec){0, 1}, NULL));
    CHECK(errno == 0);
    return NULL;
}

static atomic_int asleep;

/* Waits on far deadlines, which nobody waits for: the process ends meanwhile. */
static void *sleeps_for_ever(void *argument) {
    struct timespec far = {argument == NULL ? 4000000000 : LONG_MAX, 999999999};
    asleep++;
    nanosleep(&far, NULL);
    CHECK(!"the sleep ended");
    return NULL;
}

static void *waits_for_ever(void *argument) {
    struct timespec far = {argument == NULL ? 90000000000 : LONG_MAX, 999999999};
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    asleep++;
    pthread_cond_timedwait(&changed, &lock, &far);
    CHECK(!"the wait ended");
    return NULL;
}

int main(void) {
    sleeps(NULL);
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = create(sleeps, NULL);
    }
    for (int i = 0; i < 20; i++) {
        join(threads[i]);
    }
    for (intptr_t far = 0; far < 2; far++) {
        create(sleeps_for_ever, (void *)far);
        create(waits_for_ever, (void *)far);
    }
    while (asleep < 4) {
        sched_yield();
    }
    usleep(20000);
    return succeed();
}
