/* CPU clocks: the calling thread's counts what it computes and not what others do; that of another
 * thread exists while it lives. */
#include "check.h"

#include <stdatomic.h>
#include <sys/resource.h>

static atomic_int stop, has_begun;

static long used(clockid_t clock) {
    struct timespec now;
    RETURNS(0, clock_gettime(clock, &now));
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *computes(void *argument) {
    (void)argument;
    used(CLOCK_THREAD_CPUTIME_ID);
    has_begun = 1;
    while (!stop) {
        for (volatile int i = 0; i < 100000; i++) {
        }
        usleep(10);
    }
    return NULL;
}

static void *measures(void *argument) {
    (void)argument;
    long begun = used(CLOCK_THREAD_CPUTIME_ID);
    while (used(CLOCK_THREAD_CPUTIME_ID) - begun < 3000000) {
    }
    clockid_t own;
    RETURNS(0, pthread_getcpuclockid(pthread_self(), &own));
    CHECK(used(own) >= begun + 3000000);
    struct rusage usage;
    RETURNS(0, getrusage(RUSAGE_THREAD, &usage));
    CHECK(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec > 0 ||
          usage.ru_utime.tv_usec + usage.ru_stime.tv_usec >= 2000);
    /* The process has used at least as much. */
    CHECK(used(CLOCK_PROCESS_CPUTIME_ID) >= 3000000);
    return NULL;
}

int main(void) {
    pthread_t thread = create(computes, NULL);
    join(create(measures, NULL));
    while (!has_begun) {
        usleep(100);
    }
    clockid_t clock;
    RETURNS(0, pthread_getcpuclockid(thread, &clock));
    long before = used(clock);
    while (used(clock) - before < 1000000) {
        usleep(500);
    }
    stop = 1;
    join(thread);
    RETURNS(-1, clock_gettime(12345, &(struct timespec){0, 0}));
    CHECK(errno == EINVAL);
    return succeed();
}
