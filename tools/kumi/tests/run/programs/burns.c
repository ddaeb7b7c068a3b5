/* A thread that computes in one function, for two seconds of its CPU time. */
#include "check.h"

#include <time.h>

static volatile unsigned long sum;

__attribute__((noinline)) void burns_here(void) {
    for (int i = 0; i < 1000000; i++) {
        sum = sum * 31 + (unsigned long)i;
    }
}

static void *burns(void *argument) {
    (void)argument;
    struct timespec used;
    do {
        burns_here();
        RETURNS(0, clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used));
    } while (used.tv_sec < 2);
    return NULL;
}

int main(void) {
    join(create(burns, NULL));
    return succeed();
}
