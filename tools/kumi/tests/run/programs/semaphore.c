/* Semaphores: handed around a ring, limits, errors, destruction right after the wait, and one that
 * two processes share. */
#include "check.h"

#include <semaphore.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { RING = 10, ROUNDS = 200 };

static sem_t ring[RING];

static void *passes_on(void *argument) {
    long own = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        RETURNS(0, sem_wait(&ring[own]));
        RETURNS(0, sem_post(&ring[(own + 1) % RING]));
    }
    return NULL;
}

static void *errs(void *argument) {
    (void)argument;
    sem_t own;
    RETURNS(0, sem_init(&own, 0, 1));
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 600000);
    RETURNS(0, sem_timedwait(&own, &at));
    at = (struct timespec){0, 1000000000};
    RETURNS(-1, sem_timedwait(&own, &at));
    CHECK(errno == EINVAL);
    RETURNS(-1, sem_trywait(&own));
    CHECK(errno == EAGAIN);
    at = in_milliseconds(CLOCK_REALTIME, 10);
    RETURNS(-1, sem_timedwait(&own, &at));
    CHECK(errno == ETIMEDOUT && has_come(CLOCK_REALTIME, at));
    at = in_milliseconds(CLOCK_MONOTONIC, 10);
    RETURNS(-1, sem_clockwait(&own, CLOCK_MONOTONIC, &at));
    CHECK(errno == ETIMEDOUT && has_come(CLOCK_MONOTONIC, at));
    int value = -1;
    RETURNS(0, sem_getvalue(&own, &value));
    CHECK(value == 0);
    errno = 77;
    RETURNS(0, sem_post(&own));
    RETURNS(0, sem_wait(&own));
    CHECK(errno == 77);
    RETURNS(0, sem_destroy(&own));
    return NULL;
}

static void *posts(void *argument) {
    RETURNS(0, sem_post(argument));
    return NULL;
}

static void *waits_for_process(void *argument) {
    sem_t *pair = argument;
    for (int i = 0; i < 20; i++) {
        RETURNS(0, sem_post(&pair[0]));
        RETURNS(0, sem_wait(&pair[1]));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[RING];
    for (long i = 0; i < RING; i++) {
        RETURNS(0, sem_init(&ring[i], 0, 0));
    }
    for (long i = 0; i < RING; i++) {
        threads[i] = create(passes_on, (void *)i);
    }
    RETURNS(0, sem_post(&ring[0]));
    for (int i = 0; i < RING; i++) {
        join(threads[i]);
    }
    errs(NULL);
    join(create(errs, NULL));

    for (int i = 0; i < 100; i++) {
        sem_t once;
        RETURNS(0, sem_init(&once, 0, 0));
        pthread_t thread = create(posts, &once);
        RETURNS(0, sem_wait(&once));
        RETURNS(0, sem_destroy(&once));
        memset(&once, 0xff, sizeof once);
        join(thread);
    }

    sem_t *pair = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(pair != MAP_FAILED);
    RETURNS(0, sem_init(&pair[0], 1, 0));
    RETURNS(0, sem_init(&pair[1], 1, 0));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 20; i++) {
            sem_wait(&pair[0]);
            sem_post(&pair[1]);
        }
        _exit(0);
    }
    join(create(waits_for_process, pair));
    int status;
    RETURNS(child, waitpid(child, &status, 0));
    CHECK(status == 0);
    return succeed();
}
