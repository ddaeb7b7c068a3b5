/* Threads, mutexes, condition variables, storage and sleeps of C11. */
#include "check.h"

#include <limits.h>
#include <threads.h>

static mtx_t lock;
static cnd_t changed;
static tss_t key;
static thread_local int own;
static int turn, destroyed, called;
static once_flag once = ONCE_FLAG_INIT;

static void destroy(void *value) {
    (void)value;
    mtx_lock(&lock);
    destroyed++;
    mtx_unlock(&lock);
}

static void call(void) {
    called++;
}

static int takes_turns(void *argument) {
    int number = (int)(intptr_t)argument;
    call_once(&once, call);
    CHECK(own == 0);
    own = number;
    CHECK(tss_set(key, &own) == thrd_success);
    for (int i = 0; i < 100; i++) {
        CHECK(mtx_lock(&lock) == thrd_success);
        while (turn != number) {
            CHECK(cnd_wait(&changed, &lock) == thrd_success);
        }
        turn = (number + 1) % 3;
        CHECK(cnd_broadcast(&changed) == thrd_success);
        CHECK(mtx_unlock(&lock) == thrd_success);
        thrd_yield();
    }
    CHECK(own == number && tss_get(key) == &own);
    if (number == 1) {
        thrd_exit(INT_MIN);
    }
    return -number;
}

static int fails(void *argument) {
    (void)argument;
    CHECK(mtx_trylock(&lock) == thrd_busy);
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 5);
    CHECK(mtx_timedlock(&lock, &at) == thrd_timedout);
    return thrd_equal(thrd_current(), thrd_current());
}

static int waits(void *argument) {
    (void)argument;
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 5);
    CHECK(mtx_lock(&lock) == thrd_success);
    CHECK(cnd_timedwait(&changed, &lock, &at) == thrd_timedout);
    CHECK(mtx_unlock(&lock) == thrd_success);
    struct timespec time = {0, 200000};
    CHECK(thrd_sleep(&time, NULL) == 0);
    time.tv_nsec = -1;
    CHECK(thrd_sleep(&time, NULL) < -1);
    return 5;
}

static int ends(void *argument) {
    return argument != NULL;
}

int main(void) {
    CHECK(mtx_init(&lock, mtx_timed) == thrd_success);
    CHECK(cnd_init(&changed) == thrd_success);
    CHECK(tss_create(&key, destroy) == thrd_success);
    thrd_t threads[3], thread;
    for (int i = 0; i < 3; i++) {
        CHECK(thrd_create(&threads[i], takes_turns, (void *)(intptr_t)i) == thrd_success);
    }
    int results[3];
    for (int i = 0; i < 3; i++) {
        CHECK(thrd_join(threads[i], &results[i]) == thrd_success);
    }
    CHECK(results[0] == 0 && results[1] == INT_MIN && results[2] == -2);
    CHECK(destroyed == 3 && called == 1);
    int result;
    mtx_lock(&lock);
    CHECK(thrd_create(&thread, fails, NULL) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success && result != 0);
    mtx_unlock(&lock);
    CHECK(thrd_create(&thread, waits, NULL) == thrd_success);
    CHECK(thrd_join(thread, &result) == thrd_success && result == 5);
    CHECK(thrd_create(&thread, ends, NULL) == thrd_success);
    CHECK(thrd_detach(thread) == thrd_success);
    cnd_destroy(&changed);
    mtx_t nested;
    CHECK(mtx_init(&nested, mtx_plain | mtx_recursive) == thrd_success);
    CHECK(mtx_lock(&nested) == thrd_success && mtx_lock(&nested) == thrd_success);
    CHECK(mtx_unlock(&nested) == thrd_success && mtx_unlock(&nested) == thrd_success);
    mtx_destroy(&nested);
    return succeed();
}
