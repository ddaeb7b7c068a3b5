/* Spin locks whose holder sleeps: more threads spin than there are processors, and the holder still
 * gets on. */
#include "check.h"

static pthread_spinlock_t lock;
static long count;

static void *counts_up(void *argument) {
    (void)argument;
    for (int i = 0; i < 30; i++) {
        RETURNS(0, pthread_spin_lock(&lock));
        long seen = count;
        if (i % 10 == 0) {
            usleep(500);
        }
        count = seen + 1;
        RETURNS(0, pthread_spin_unlock(&lock));
    }
    return NULL;
}

int main(void) {
    RETURNS(0, pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    pthread_t threads[12];
    for (int i = 0; i < 12; i++) {
        threads[i] = create(counts_up, NULL);
    }
    for (int i = 0; i < 12; i++) {
        join(threads[i]);
    }
    CHECK(count == 12 * 30);
    RETURNS(0, pthread_spin_lock(&lock));
    RETURNS(EBUSY, pthread_spin_trylock(&lock));
    RETURNS(0, pthread_spin_unlock(&lock));
    RETURNS(0, pthread_spin_destroy(&lock));
    return succeed();
}
