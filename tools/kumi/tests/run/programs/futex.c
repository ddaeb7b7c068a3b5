/* futex(2) through syscall(2): waits, wake-ups, bit sets, requeues, limits and errors. */
#include "check.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static long futex(atomic_uint *word, int operation, unsigned value, const void *time,
                  atomic_uint *other, unsigned bits) {
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, time, other, bits);
}

static atomic_uint word, other, inside, outside;

struct Wait {
    atomic_uint *word;
    unsigned bits;
};

static void *waits(void *argument) {
    struct Wait *wait = argument;
    inside++;
    if (wait->bits == 0) {
        RETURNS(0, futex(wait->word, FUTEX_WAIT, 0, NULL, NULL, 0));
    } else {
        RETURNS(0, futex(wait->word, FUTEX_WAIT_BITSET, 0, NULL, NULL, wait->bits));
    }
    outside++;
    return NULL;
}

/* Wakes by `operation` until `wanted` waiters have been reached: a thread that is about to wait is
 * not there yet. */
static void wake(int operation, unsigned bits, unsigned wanted) {
    long woken = 0;
    while (woken < (long)wanted) {
        long more = futex(&word, operation, wanted - woken, NULL, NULL, bits);
        CHECK(more >= 0);
        woken += more;
        sched_yield();
    }
    CHECK(woken == (long)wanted);
}

static void wakes_all_kinds(void) {
    struct Wait any = {&word, 0}, one = {&word, 1}, two = {&word, 2};
    pthread_t threads[9];
    for (int i = 0; i < 3; i++) {
        threads[i] = create(waits, &any);
        threads[3 + i] = create(waits, &one);
        threads[6 + i] = create(waits, &two);
    }
    while (inside < 9) {
        sched_yield();
    }
    /* Only waiters whose bits are among those. The ones without a set have all bits. */
    wake(FUTEX_WAKE_BITSET, 4, 3);
    for (int i = 0; i < 3; i++) {
        join(threads[i]);
    }
    RETURNS(0, futex(&word, FUTEX_WAKE_BITSET, 100, NULL, NULL, 4));
    CHECK(outside == 3);
    wake(FUTEX_WAKE_BITSET, 1, 3);
    for (int i = 3; i < 6; i++) {
        join(threads[i]);
    }
    wake(FUTEX_WAKE, 0, 3);
    for (int i = 6; i < 9; i++) {
        join(threads[i]);
    }
    RETURNS(0, futex(&word, FUTEX_WAKE, 100, NULL, NULL, 0));
    inside = outside = 0;
}

static void requeues(void) {
    struct Wait any = {&word, 0};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        threads[i] = create(waits, &any);
    }
    RETURNS(-1, futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &other, 5));
    CHECK(errno == EAGAIN);
    /* One is woken, and the others wait at the other word from then on. */
    long reached = 0;
    while (reached < 6) {
        long more = futex(&word, FUTEX_CMP_REQUEUE, reached == 0, (void *)100, &other, 0);
        CHECK(more >= 0);
        reached += more;
        sched_yield();
    }
    CHECK(reached == 6);
    while (outside < 1) {
        sched_yield();
    }
    RETURNS(0, futex(&word, FUTEX_WAKE, 100, NULL, NULL, 0));
    CHECK(outside == 1);
    RETURNS(2, futex(&other, FUTEX_WAKE, 2, NULL, NULL, 0));
    RETURNS(3, futex(&other, FUTEX_WAKE, 100, NULL, NULL, 0));
    for (int i = 0; i < 6; i++) {
        join(threads[i]);
    }
    inside = outside = 0;
}

static void wakes_at_two(void) {
    struct Wait here = {&word, 0}, there = {&other, 0};
    pthread_t one = create(waits, &here), two = create(waits, &there);
    long woken = 0;
    while (woken < 2) {
        /* Adds 0 to the other word, and wakes there if it was 0. */
        long more = futex(&word, FUTEX_WAKE_OP, 1, (void *)1, &other,
                          FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0));
        CHECK(more >= 0);
        woken = outside;
        sched_yield();
    }
    join(one);
    join(two);
    inside = outside = 0;
}

static void *times_out(void *argument) {
    (void)argument;
    atomic_uint own = 0;
    struct timespec time = {0, 5000000};
    struct timespec end = in_milliseconds(CLOCK_MONOTONIC, 5);
    RETURNS(-1, futex(&own, FUTEX_WAIT, 0, &time, NULL, 0));
    CHECK(errno == ETIMEDOUT && has_come(CLOCK_MONOTONIC, end));
    time = in_milliseconds(CLOCK_MONOTONIC, 5);
    RETURNS(-1, futex(&own, FUTEX_WAIT_BITSET, 0, &time, NULL, 1));
    CHECK(errno == ETIMEDOUT && has_come(CLOCK_MONOTONIC, time));
    time = in_milliseconds(CLOCK_REALTIME, 5);
    RETURNS(-1, futex(&own, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &time, NULL, 1));
    CHECK(errno == ETIMEDOUT && has_come(CLOCK_REALTIME, time));
    RETURNS(-1, futex(&own, FUTEX_WAIT, 1, NULL, NULL, 0));
    CHECK(errno == EAGAIN);
    time = (struct timespec){0, 1000000000};
    RETURNS(-1, futex(&own, FUTEX_WAIT, 0, &time, NULL, 0));
    CHECK(errno == EINVAL);
    time = (struct timespec){-1, 0};
    RETURNS(-1, futex(&own, FUTEX_WAIT, 0, &time, NULL, 0));
    CHECK(errno == EINVAL);
    RETURNS(-1, futex(&own, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0));
    CHECK(errno == EINVAL);
    RETURNS(-1, futex((void *)((char *)&own + 1), FUTEX_WAIT, 0, NULL, NULL, 0));
    CHECK(errno == EINVAL);
    return NULL;
}

int main(void) {
    join(create(times_out, NULL));
    times_out(NULL);
    wakes_all_kinds();
    requeues();
    wakes_at_two();
    return succeed();
}
