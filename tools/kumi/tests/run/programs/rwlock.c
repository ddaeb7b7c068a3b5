/* Reader-writer locks: readers together, writers alone, writers that get in beside readers, errors
 * and limits. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int readers, most_readers, writers, stop;
static long first, second;

static void *reads(void *argument) {
    (void)argument;
    while (!stop) {
        RETURNS(0, pthread_rwlock_rdlock(&lock));
        int now = ++readers;
        int most = most_readers;
        while (now > most && !atomic_compare_exchange_weak(&most_readers, &most, now)) {
        }
        CHECK(writers == 0);
        CHECK(first == second);
        usleep(50);
        readers--;
        RETURNS(0, pthread_rwlock_unlock(&lock));
        usleep(400);
    }
    return NULL;
}

static void *writes(void *argument) {
    (void)argument;
    for (int i = 0; i < 100; i++) {
        RETURNS(0, pthread_rwlock_wrlock(&lock));
        CHECK(++writers == 1 && readers == 0);
        first++;
        if (i % 10 == 0) {
            usleep(100);
        }
        second++;
        writers--;
        RETURNS(0, pthread_rwlock_unlock(&lock));
        sched_yield();
    }
    return NULL;
}

static void *fails_to_read(void *argument) {
    RETURNS(EBUSY, pthread_rwlock_tryrdlock(argument));
    RETURNS(EBUSY, pthread_rwlock_trywrlock(argument));
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 10);
    RETURNS(ETIMEDOUT, pthread_rwlock_timedrdlock(argument, &at));
    CHECK(has_come(CLOCK_REALTIME, at));
    at = in_milliseconds(CLOCK_MONOTONIC, 10);
    RETURNS(ETIMEDOUT, pthread_rwlock_clockrdlock(argument, CLOCK_MONOTONIC, &at));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    at = (struct timespec){0, 1000000000};
    RETURNS(EINVAL, pthread_rwlock_timedrdlock(argument, &at));
    return NULL;
}

static void *fails_to_write(void *argument) {
    RETURNS(0, pthread_rwlock_tryrdlock(argument));
    RETURNS(0, pthread_rwlock_unlock(argument));
    RETURNS(EBUSY, pthread_rwlock_trywrlock(argument));
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 10);
    RETURNS(ETIMEDOUT, pthread_rwlock_timedwrlock(argument, &at));
    at = in_milliseconds(CLOCK_MONOTONIC, 10);
    RETURNS(ETIMEDOUT, pthread_rwlock_clockwrlock(argument, CLOCK_MONOTONIC, &at));
    return NULL;
}

static void *errs(void *argument) {
    (void)argument;
    pthread_rwlock_t own = PTHREAD_RWLOCK_INITIALIZER;
    RETURNS(0, pthread_rwlock_wrlock(&own));
    RETURNS(EDEADLK, pthread_rwlock_wrlock(&own));
    RETURNS(EDEADLK, pthread_rwlock_rdlock(&own));
    join(create(fails_to_read, &own));
    RETURNS(0, pthread_rwlock_unlock(&own));
    RETURNS(0, pthread_rwlock_rdlock(&own));
    RETURNS(0, pthread_rwlock_rdlock(&own));
    join(create(fails_to_write, &own));
    RETURNS(0, pthread_rwlock_unlock(&own));
    RETURNS(0, pthread_rwlock_unlock(&own));
    RETURNS(0, pthread_rwlock_destroy(&own));
    return NULL;
}

int main(void) {
    pthread_t threads[6];
    for (int i = 0; i < 4; i++) {
        threads[i] = create(reads, NULL);
    }
    for (int i = 4; i < 6; i++) {
        threads[i] = create(writes, NULL);
    }
    writes(NULL);
    for (int i = 4; i < 6; i++) {
        join(threads[i]);
    }
    stop = 1;
    for (int i = 0; i < 4; i++) {
        join(threads[i]);
    }
    CHECK(first == 300 && second == 300 && most_readers > 1);
    errs(NULL);
    join(create(errs, NULL));
    return succeed();
}
