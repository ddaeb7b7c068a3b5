/* Classes, priorities and processors of threads, of the caller and of others. */
#include "check.h"

#include <sched.h>
#include <semaphore.h>

static sem_t *asked, *done;

static void has(pthread_t thread, int wanted, int priority) {
    int policy = -1;
    struct sched_param parameters = {-1};
    RETURNS(0, pthread_getschedparam(thread, &policy, &parameters));
    RETURNS(wanted, policy);
    RETURNS(priority, parameters.sched_priority);
}

static void *inherits(void *wanted) {
    has(pthread_self(), (int)(intptr_t)wanted, 0);
    RETURNS((intptr_t)wanted, sched_getscheduler(0));
    return NULL;
}

static void *changes_itself(void *nothing) {
    struct sched_param none = {0}, high = {1};
    has(pthread_self(), SCHED_OTHER, 0);
    RETURNS(0, pthread_setschedparam(pthread_self(), SCHED_OTHER, &none));
    RETURNS(EINVAL, pthread_setschedparam(pthread_self(), SCHED_OTHER, &high));
    RETURNS(EINVAL, pthread_setschedparam(pthread_self(), 77, &none));
    RETURNS(0, pthread_setschedprio(pthread_self(), 0));
    RETURNS(EINVAL, pthread_setschedprio(pthread_self(), 1));
    RETURNS(0, pthread_setschedparam(pthread_self(), SCHED_BATCH, &none));
    has(pthread_self(), SCHED_BATCH, 0);
    RETURNS(SCHED_BATCH, sched_getscheduler(0));
    join(create(inherits, (void *)SCHED_BATCH));
    RETURNS(0, pthread_setschedparam(pthread_self(), SCHED_OTHER, &none));
    has(pthread_self(), SCHED_OTHER, 0);
    join(create(inherits, (void *)SCHED_OTHER));
    return nothing;
}

static void *is_changed(void *nothing) {
    RETURNS(0, sem_post(done));
    RETURNS(0, sem_wait(asked));
    has(pthread_self(), SCHED_BATCH, 0);
    RETURNS(SCHED_BATCH, sched_getscheduler(0));
    cpu_set_t set;
    RETURNS(0, pthread_getaffinity_np(pthread_self(), sizeof set, &set));
    CHECK(CPU_ISSET(0, &set));
    RETURNS(1, CPU_COUNT(&set));
    RETURNS(0, sched_getcpu());
    return nothing;
}

int main(void) {
    sem_t both[2];
    asked = &both[0], done = &both[1];
    RETURNS(0, sem_init(asked, 0, 0));
    RETURNS(0, sem_init(done, 0, 0));
    struct sched_param none = {0};

    join(create(changes_itself, NULL));

    pthread_t other = create(is_changed, NULL);
    RETURNS(0, sem_wait(done));
    has(other, SCHED_OTHER, 0);
    RETURNS(EINVAL, pthread_setschedparam(other, SCHED_FIFO, &none));
    RETURNS(0, pthread_setschedparam(other, SCHED_BATCH, &none));
    has(other, SCHED_BATCH, 0);
    cpu_set_t set;
    CPU_ZERO(&set);
    RETURNS(EINVAL, pthread_setaffinity_np(other, sizeof set, &set));
    CPU_SET(0, &set);
    RETURNS(0, pthread_setaffinity_np(other, sizeof set, &set));
    cpu_set_t back;
    RETURNS(0, pthread_getaffinity_np(other, sizeof back, &back));
    CHECK(CPU_EQUAL(&set, &back));
    RETURNS(0, sem_post(asked));
    join(other);

    /* A class of the first thread, which is a kernel thread, is inherited. */
    RETURNS(0, pthread_setschedparam(pthread_self(), SCHED_BATCH, &none));
    join(create(inherits, (void *)SCHED_BATCH));
    RETURNS(0, pthread_setschedparam(pthread_self(), SCHED_OTHER, &none));
    join(create(inherits, (void *)SCHED_OTHER));
    return succeed();
}
