/* Barriers: one serial thread a round, no thread a round ahead, and destruction by the first thread
 * that returns from the last round. */
#include "check.h"

#include <stdatomic.h>

enum { THREADS = 12, ROUNDS = 100 };

static pthread_barrier_t barrier;
static atomic_int arrived[ROUNDS], serial[ROUNDS];

static void *goes_round(void *argument) {
    (void)argument;
    for (int round = 0; round < ROUNDS; round++) {
        arrived[round]++;
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        CHECK(arrived[round] == THREADS);
        serial[round] += result != 0;
    }
    return NULL;
}

struct Last {
    pthread_barrier_t barrier;
};

static void *meets(void *argument) {
    struct Last *last = argument;
    if (pthread_barrier_wait(&last->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        RETURNS(0, pthread_barrier_destroy(&last->barrier));
        memset(&last->barrier, 0x5a, sizeof last->barrier);
    }
    return NULL;
}

int main(void) {
    RETURNS(EINVAL, pthread_barrier_init(&barrier, NULL, 0));
    RETURNS(0, pthread_barrier_init(&barrier, NULL, THREADS));
    pthread_t threads[THREADS];
    for (int i = 1; i < THREADS; i++) {
        threads[i] = create(goes_round, NULL);
    }
    goes_round(NULL);
    for (int i = 1; i < THREADS; i++) {
        join(threads[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(serial[round] == 1);
    }
    RETURNS(0, pthread_barrier_destroy(&barrier));
    for (int round = 0; round < 50; round++) {
        struct Last last;
        RETURNS(0, pthread_barrier_init(&last.barrier, NULL, 5));
        for (int i = 0; i < 5; i++) {
            threads[i] = create(meets, &last);
        }
        for (int i = 0; i < 5; i++) {
            join(threads[i]);
        }
    }
    RETURNS(0, pthread_barrier_init(&barrier, NULL, 1));
    RETURNS(PTHREAD_BARRIER_SERIAL_THREAD, pthread_barrier_wait(&barrier));
    return succeed();
}
