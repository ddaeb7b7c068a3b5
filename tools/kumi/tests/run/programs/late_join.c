/* Joins threads that have detached themselves and ended, as stunnel does when it is stopped. */
#include "check.h"

#include <stdatomic.h>

static atomic_int ended;

static void *detaches_itself(void *argument) {
    CHECK(pthread_detach(pthread_self()) == 0);
    atomic_fetch_add(&ended, 1);
    return argument;
}

int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        threads[i] = create(detaches_itself, NULL);
    }
    while (atomic_load(&ended) < 3) {
        usleep(1000);
    }
    usleep(50000);
    for (int i = 0; i < 3; i++) {
        RETURNS(EINVAL, pthread_join(threads[i], NULL));
    }
    return succeed();
}
