/* Mutexes of each kind: counts under contention, errors, limits. */
#include "check.h"

static pthread_mutex_t kinds[6];
static long counts[6];

static void make(pthread_mutex_t *mutex, int type, int robust, int protocol, int shared) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    RETURNS(0, pthread_mutexattr_settype(&attributes, type));
    RETURNS(0, pthread_mutexattr_setrobust(&attributes, robust));
    RETURNS(0, pthread_mutexattr_setprotocol(&attributes, protocol));
    RETURNS(0, pthread_mutexattr_setpshared(&attributes, shared));
    RETURNS(0, pthread_mutex_init(mutex, &attributes));
}

static void *counts_up(void *argument) {
    (void)argument;
    for (int i = 0; i < 300; i++) {
        for (int kind = 0; kind < 6; kind++) {
            RETURNS(0, pthread_mutex_lock(&kinds[kind]));
            long seen = counts[kind];
            if (i % 50 == kind) {
                usleep(20);
            }
            counts[kind] = seen + 1;
            RETURNS(0, pthread_mutex_unlock(&kinds[kind]));
        }
    }
    return NULL;
}

static void *fails_in_time(void *argument) {
    pthread_mutex_t *mutex = argument;
    RETURNS(EBUSY, pthread_mutex_trylock(mutex));
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 10);
    RETURNS(ETIMEDOUT, pthread_mutex_timedlock(mutex, &at));
    CHECK(has_come(CLOCK_REALTIME, at));
    at = in_milliseconds(CLOCK_MONOTONIC, 10);
    RETURNS(ETIMEDOUT, pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &at));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    at = (struct timespec){0, 1000000000};
    RETURNS(EINVAL, pthread_mutex_timedlock(mutex, &at));
    at = (struct timespec){0, -1};
    RETURNS(EINVAL, pthread_mutex_timedlock(mutex, &at));
    at = (struct timespec){-5, 0};
    RETURNS(ETIMEDOUT, pthread_mutex_timedlock(mutex, &at));
    return NULL;
}

static void *checks_errors(void *argument) {
    pthread_mutex_t mutex;
    (void)argument;
    make(&mutex, PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0);
    RETURNS(EPERM, pthread_mutex_unlock(&mutex));
    RETURNS(0, pthread_mutex_lock(&mutex));
    RETURNS(EDEADLK, pthread_mutex_lock(&mutex));
    join(create(fails_in_time, &mutex));
    RETURNS(0, pthread_mutex_unlock(&mutex));
    RETURNS(0, pthread_mutex_destroy(&mutex));

    make(&mutex, PTHREAD_MUTEX_RECURSIVE, 0, 0, 0);
    RETURNS(0, pthread_mutex_lock(&mutex));
    RETURNS(0, pthread_mutex_lock(&mutex));
    RETURNS(0, pthread_mutex_trylock(&mutex));
    RETURNS(0, pthread_mutex_unlock(&mutex));
    join(create(fails_in_time, &mutex));
    RETURNS(0, pthread_mutex_unlock(&mutex));
    join(create(fails_in_time, &mutex));
    RETURNS(0, pthread_mutex_unlock(&mutex));
    RETURNS(EPERM, pthread_mutex_unlock(&mutex));

    make(&mutex, PTHREAD_MUTEX_NORMAL, 0, 0, 0);
    struct timespec invalid = {0, 1000000000};
    /* A free mutex is locked whatever the limit is. */
    RETURNS(0, pthread_mutex_timedlock(&mutex, &invalid));
    join(create(fails_in_time, &mutex));
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 5);
    RETURNS(ETIMEDOUT, pthread_mutex_timedlock(&mutex, &at));
    RETURNS(0, pthread_mutex_unlock(&mutex));
    return NULL;
}

int main(void) {
    make(&kinds[0], PTHREAD_MUTEX_NORMAL, 0, 0, 0);
    make(&kinds[1], PTHREAD_MUTEX_RECURSIVE, 0, 0, 0);
    make(&kinds[2], PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0);
    make(&kinds[3], PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0);
    make(&kinds[4], PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, 0, PTHREAD_PROCESS_SHARED);
    make(&kinds[5], PTHREAD_MUTEX_NORMAL, 0, PTHREAD_PRIO_INHERIT, 0);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        threads[i] = create(counts_up, NULL);
    }
    counts_up(NULL);
    for (int i = 0; i < 8; i++) {
        join(threads[i]);
    }
    for (int kind = 0; kind < 6; kind++) {
        CHECK(counts[kind] == 9 * 300);
    }
    checks_errors(NULL);
    join(create(checks_errors, NULL));
    return succeed();
}
