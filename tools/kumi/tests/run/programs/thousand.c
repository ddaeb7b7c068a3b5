/* A thousand threads that live at once, meet, and work under one lock. */
#include "check.h"

enum { THREADS = 1000 };

static pthread_barrier_t met;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *works(void *argument) {
    char *memory = malloc(100);
    memset(memory, 1, 100);
    pthread_barrier_wait(&met);
    for (int i = 0; i < 3; i++) {
        pthread_mutex_lock(&lock);
        sum += (long)argument;
        pthread_mutex_unlock(&lock);
        usleep(100);
    }
    free(memory);
    return argument;
}

int main(void) {
    static pthread_t threads[THREADS];
    RETURNS(0, pthread_barrier_init(&met, NULL, THREADS + 1));
    for (long i = 0; i < THREADS; i++) {
        threads[i] = create(works, (void *)i);
    }
    pthread_barrier_wait(&met);
    for (long i = 0; i < THREADS; i++) {
        CHECK(join(threads[i]) == (void *)i);
    }
    CHECK(sum == 3L * THREADS * (THREADS - 1) / 2);
    return succeed();
}
