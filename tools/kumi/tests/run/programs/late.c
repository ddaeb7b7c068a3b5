/* A library with thread-local variables, loaded by a thread while others live: each thread has its
 * own copy, those included that existed before. */
#include "check.h"

#include <dlfcn.h>

enum { THREADS = 10 };

static pthread_barrier_t loaded;
static int (*count)(void);

static void *counts(void *argument) {
    pthread_barrier_wait(&loaded);
    for (int i = 1; i <= 20; i++) {
        RETURNS(40 + i, count());
        usleep(50);
    }
    return argument;
}

static void *loads(void *argument) {
    void *library = dlopen("./late.so", RTLD_NOW);
    if (library == NULL) {
        puts(dlerror());
        exit(1);
    }
    count = (int (*)(void))dlsym(library, "late_count");
    CHECK(count != NULL);
    pthread_barrier_wait(&loaded);
    RETURNS(41, count());
    return argument;
}

int main(void) {
    pthread_t threads[THREADS];
    RETURNS(0, pthread_barrier_init(&loaded, NULL, THREADS + 1));
    for (int i = 0; i < THREADS; i++) {
        threads[i] = create(counts, NULL);
    }
    join(create(loads, NULL));
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
    }
    /* Threads that are created afterwards, on memory of those that have ended. */
    RETURNS(0, pthread_barrier_init(&loaded, NULL, 1));
    for (int i = 0; i < THREADS; i++) {
        join(create(counts, NULL));
    }
    return succeed();
}
