/* Condition variables: limits on both clocks, signals that reach one waiter each, and memory that is
 * used again right after a broadcast. */
#include "check.h"

#include <sched.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *times_out(void *argument) {
    (void)argument;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    RETURNS(0, pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    pthread_cond_t real = PTHREAD_COND_INITIALIZER, monotonic;
    RETURNS(0, pthread_cond_init(&monotonic, &attributes));
    pthread_mutex_lock(&lock);
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 10);
    RETURNS(ETIMEDOUT, pthread_cond_timedwait(&real, &lock, &at));
    CHECK(has_come(CLOCK_REALTIME, at));
    at = in_milliseconds(CLOCK_MONOTONIC, 10);
    RETURNS(ETIMEDOUT, pthread_cond_timedwait(&monotonic, &lock, &at));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    /* The clock of the call, and not that of the variable. */
    at = in_milliseconds(CLOCK_MONOTONIC, 10);
    RETURNS(ETIMEDOUT, pthread_cond_clockwait(&real, &lock, CLOCK_MONOTONIC, &at));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    at = in_milliseconds(CLOCK_REALTIME, 10);
    RETURNS(ETIMEDOUT, pthread_cond_clockwait(&monotonic, &lock, CLOCK_REALTIME, &at));
    CHECK(has_come(CLOCK_REALTIME, at));
    at = (struct timespec){1, 1000000000};
    RETURNS(EINVAL, pthread_cond_timedwait(&real, &lock, &at));
    at = (struct timespec){1, 0};
    RETURNS(EINVAL, pthread_cond_clockwait(&real, &lock, CLOCK_PROCESS_CPUTIME_ID, &at));
    RETURNS(ETIMEDOUT, pthread_cond_timedwait(&real, &lock, &at));
    pthread_mutex_unlock(&lock);
    RETURNS(0, pthread_cond_destroy(&real));
    RETURNS(0, pthread_cond_destroy(&monotonic));
    return NULL;
}

/* Tokens that waiters take. */
static pthread_cond_t token = PTHREAD_COND_INITIALIZER;
static int tokens, taken, waiting;

static void *takes(void *argument) {
    long wanted = (long)argument;
    pthread_mutex_lock(&lock);
    for (long i = 0; i < wanted; i++) {
        waiting++;
        while (tokens == 0) {
            struct timespec far = in_milliseconds(CLOCK_REALTIME, 3600000);
            if (i % 2 == 0) {
                RETURNS(0, pthread_cond_wait(&token, &lock));
            } else {
                RETURNS(0, pthread_cond_timedwait(&token, &lock, &far));
            }
        }
        waiting--;
        tokens--;
        taken++;
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* A variable with its mutex in memory that is unmapped once the waiters are out. */
struct Shared {
    pthread_mutex_t lock;
    pthread_cond_t changed, gone;
    int inside, is_set;
};

static void *waits(void *argument) {
    struct Shared *shared = argument;
    pthread_mutex_lock(&shared->lock);
    shared->inside++;
    pthread_cond_signal(&shared->gone);
    while (!shared->is_set) {
        pthread_cond_wait(&shared->changed, &shared->lock);
    }
    shared->inside--;
    pthread_cond_signal(&shared->gone);
    pthread_mutex_unlock(&shared->lock);
    return NULL;
}

static void *destroys(void *argument) {
    (void)argument;
    for (int round = 0; round < 30; round++) {
        struct Shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
        pthread_mutex_init(&shared->lock, NULL);
        pthread_cond_init(&shared->changed, NULL);
        pthread_cond_init(&shared->gone, NULL);
        pthread_t threads[5];
        for (int i = 0; i < 5; i++) {
            threads[i] = create(waits, shared);
        }
        pthread_mutex_lock(&shared->lock);
        while (shared->inside < 5) {
            pthread_cond_wait(&shared->gone, &shared->lock);
        }
        shared->is_set = 1;
        pthread_cond_broadcast(&shared->changed);
        /* POSIX allows it at once: no thread is blocked on the variable any more. */
        RETURNS(0, pthread_cond_destroy(&shared->changed));
        memset(&shared->changed, 0xa5, sizeof shared->changed);
        while (shared->inside > 0) {
            pthread_cond_wait(&shared->gone, &shared->lock);
        }
        pthread_mutex_unlock(&shared->lock);
        for (int i = 0; i < 5; i++) {
            join(threads[i]);
        }
        for (size_t i = 0; i < sizeof shared->changed; i++) {
            CHECK(((unsigned char *)&shared->changed)[i] == 0xa5);
        }
        RETURNS(0, munmap(shared, 4096));
    }
    return NULL;
}

int main(void) {
    times_out(NULL);
    join(create(times_out, NULL));
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = create(takes, (void *)50);
    }
    for (int given = 0; given < 500;) {
        pthread_mutex_lock(&lock);
        if (waiting > 0) {
            tokens++;
            given++;
            pthread_cond_signal(&token);
        }
        pthread_mutex_unlock(&lock);
        sched_yield();
    }
    for (int i = 0; i < 10; i++) {
        join(threads[i]);
    }
    CHECK(taken == 500 && tokens == 0);
    destroys(NULL);
    join(create(destroys, NULL));
    return succeed();
}
