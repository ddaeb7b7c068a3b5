/* Joins with a limit: a thread that has not ended stays joinable. */
#include "check.h"

#include <sched.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *argument) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return argument;
}

static void *joins(void *argument) {
    (void)argument;
    char place;
    void *value = NULL;
    pthread_mutex_lock(&lock);
    pthread_t thread = create(waits, &place);
    RETURNS(EBUSY, pthread_tryjoin_np(thread, &value));
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 20);
    RETURNS(ETIMEDOUT, pthread_timedjoin_np(thread, &value, &at));
    CHECK(has_come(CLOCK_REALTIME, at));
    at = in_milliseconds(CLOCK_MONOTONIC, 20);
    RETURNS(ETIMEDOUT, pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &at));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    /* Long past. */
    at = (struct timespec){0, 0};
    RETURNS(ETIMEDOUT, pthread_timedjoin_np(thread, &value, &at));
    CHECK(value == NULL);
    pthread_mutex_unlock(&lock);
    at = in_milliseconds(CLOCK_REALTIME, 600000);
    RETURNS(0, pthread_timedjoin_np(thread, &value, &at));
    CHECK(value == &place);

    thread = create(waits, &place);
    at = in_milliseconds(CLOCK_MONOTONIC, 600000);
    RETURNS(0, pthread_clockjoin_np(thread, &value, CLOCK_MONOTONIC, &at));
    thread = create(waits, &place);
    RETURNS(0, pthread_timedjoin_np(thread, &value, NULL));
    thread = create(waits, &place);
    int result;
    while ((result = pthread_tryjoin_np(thread, &value)) == EBUSY) {
        sched_yield();
    }
    CHECK(result == 0 && value == &place);
    return NULL;
}

int main(void) {
    /* By the first thread, and by another one. */
    joins(NULL);
    join(create(joins, NULL));
    return succeed();
}
