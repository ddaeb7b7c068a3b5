/* A lock that prefers writers: a writer gets it although readers overlap without a gap. */
#include "check.h"

#include <stdatomic.h>

enum { READERS = 4, BEFORE = 50 };

static pthread_rwlock_t lock;
static atomic_int has_written, readings;

static void *reads(void *argument) {
    (void)argument;
    while (!has_written) {
        RETURNS(0, pthread_rwlock_rdlock(&lock));
        readings++;
        usleep(200);
        RETURNS(0, pthread_rwlock_unlock(&lock));
    }
    return NULL;
}

static void *writes(void *argument) {
    (void)argument;
    struct timespec past = {0, 0};
    /* Without a reader at this moment it succeeds. */
    int at_once = pthread_rwlock_timedwrlock(&lock, &past);
    CHECK(at_once == ETIMEDOUT || at_once == 0);
    if (at_once == 0)
        RETURNS(0, pthread_rwlock_unlock(&lock));
    RETURNS(0, pthread_rwlock_wrlock(&lock));
    has_written = 1;
    RETURNS(0, pthread_rwlock_unlock(&lock));
    return NULL;
}

int main(void) {
    pthread_rwlockattr_t attributes;
    RETURNS(0, pthread_rwlockattr_init(&attributes));
    int kind = PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
    RETURNS(0, pthread_rwlockattr_setkind_np(&attributes, kind));
    RETURNS(0, pthread_rwlock_init(&lock, &attributes));
    pthread_t readers[READERS];
    for (int i = 0; i < READERS; i++)
        readers[i] = create(reads, NULL);
    while (readings < BEFORE)
        usleep(100);
    join(create(writes, NULL));
    for (int i = 0; i < READERS; i++)
        join(readers[i]);
    return succeed();
}
