/* Thread-specific data and cleanup handlers: each thread has its own values, destructors run in the
 * thread that ends, in rounds, and handlers run before them, the last one first. */
#include "check.h"

#include <sched.h>

static pthread_key_t plain, chained, late;
static __thread char trail[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int destroyed, rounds;
static char last_trail[64];

static void note(const char *what) {
    strncat(trail, what, sizeof trail - strlen(trail) - 1);
}

static void cleanup(void *argument) {
    note(argument);
}

static void destroy(void *value) {
    CHECK(value == &trail);
    note("d");
    pthread_mutex_lock(&lock);
    destroyed++;
    memcpy(last_trail, trail, sizeof trail);
    pthread_mutex_unlock(&lock);
}

/* A destructor that sets its key again is called again, a limited number of times. */
static void again(void *value) {
    intptr_t left = (intptr_t)value;
    pthread_mutex_lock(&lock);
    rounds++;
    pthread_mutex_unlock(&lock);
    if (left > 1) {
        pthread_setspecific(chained, (void *)(left - 1));
    }
}

static void *ends(void *argument) {
    CHECK(pthread_getspecific(plain) == NULL);
    CHECK(trail[0] == 0);
    pthread_setspecific(plain, &trail);
    pthread_setspecific(chained, (void *)3);
    for (int i = 0; i < 10; i++) {
        sched_yield();
        CHECK(pthread_getspecific(plain) == &trail);
    }
    pthread_cleanup_push(cleanup, "1");
    pthread_cleanup_push(cleanup, "2");
    pthread_cleanup_push(cleanup, "3");
    pthread_cleanup_pop(1);
    if (argument != NULL) {
        pthread_exit(NULL);
    }
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int initialised;

static void initialise(void) {
    usleep(2000);
    initialised++;
}

static void *initialises(void *argument) {
    (void)argument;
    RETURNS(0, pthread_once(&once, initialise));
    CHECK(initialised == 1);
    return NULL;
}

int main(void) {
    RETURNS(0, pthread_key_create(&plain, destroy));
    RETURNS(0, pthread_key_create(&chained, again));
    for (int i = 0; i < 50; i++) {
        join(create(ends, NULL));
        CHECK(strcmp(last_trail, "3d") == 0);
        join(create(ends, (void *)1));
        CHECK(strcmp(last_trail, "321d") == 0);
    }
    CHECK(destroyed == 100 && rounds == 300);

    /* A deleted key has no destructor any more. */
    RETURNS(0, pthread_key_create(&late, destroy));
    RETURNS(0, pthread_key_delete(plain));
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = create(initialises, NULL);
    }
    for (int i = 0; i < 20; i++) {
        join(threads[i]);
    }
    CHECK(initialised == 1);
    return succeed();
}
