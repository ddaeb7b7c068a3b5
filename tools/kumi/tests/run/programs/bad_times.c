/* A time or a clock that is none is refused, also by an object that is free. */
#include "check.h"

#include <semaphore.h>

static void *asks(void *argument) {
    (void)argument;
    struct timespec bad = {0, 1000000000}, good = in_milliseconds(CLOCK_REALTIME, 60000);
    clockid_t none = 12345;
    sem_t semaphore;
    RETURNS(0, sem_init(&semaphore, 0, 1));
    RETURNS(-1, sem_timedwait(&semaphore, &bad));
    CHECK(errno == EINVAL);
    RETURNS(-1, sem_clockwait(&semaphore, none, &good));
    CHECK(errno == EINVAL);
    RETURNS(0, sem_trywait(&semaphore));
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    RETURNS(EINVAL, pthread_rwlock_timedrdlock(&lock, &bad));
    RETURNS(EINVAL, pthread_rwlock_timedwrlock(&lock, &bad));
    RETURNS(EINVAL, pthread_rwlock_clockrdlock(&lock, none, &good));
    RETURNS(EINVAL, pthread_rwlock_clockwrlock(&lock, none, &good));
    RETURNS(0, pthread_rwlock_trywrlock(&lock));
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    RETURNS(EINVAL, pthread_mutex_clocklock(&mutex, none, &good));
    RETURNS(0, pthread_mutex_trylock(&mutex));
    RETURNS(EINVAL, pthread_mutex_timedlock(&mutex, &bad));
    return NULL;
}

int main(void) {
    join(create(asks, NULL));
    return succeed();
}
