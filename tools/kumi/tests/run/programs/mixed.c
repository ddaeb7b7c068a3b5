/* Kernel threads, by the processors in their attributes, and ordinary threads on the same objects. */
#include "check.h"

#include <sched.h>
#include <semaphore.h>

enum { THREADS = 8, ROUNDS = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static sem_t units;
static long count, turn, written;

static void *works(void *argument) {
    long own = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        RETURNS(0, pthread_mutex_lock(&lock));
        while (turn != own) {
            RETURNS(0, pthread_cond_wait(&changed, &lock));
        }
        turn = (own + 1) % THREADS;
        count++;
        RETURNS(0, pthread_cond_broadcast(&changed));
        RETURNS(0, pthread_mutex_unlock(&lock));
        RETURNS(0, pthread_rwlock_wrlock(&table));
        written++;
        RETURNS(0, pthread_rwlock_unlock(&table));
        RETURNS(0, pthread_rwlock_rdlock(&table));
        if (i % 20 == 0) {
            usleep(100);
        }
        RETURNS(0, pthread_rwlock_unlock(&table));
        RETURNS(0, sem_wait(&units));
        if (i % 20 == 10) {
            usleep(100);
        }
        RETURNS(0, sem_post(&units));
    }
    return NULL;
}

int main(void) {
    RETURNS(0, sem_init(&units, 0, 2));
    /* All that the process may use: the attribute alone makes the difference. */
    cpu_set_t processors;
    RETURNS(0, sched_getaffinity(0, sizeof processors, &processors));
    pthread_attr_t attributes;
    RETURNS(0, pthread_attr_init(&attributes));
    RETURNS(0, pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors));
    pthread_t threads[THREADS];
    for (long i = 1; i < THREADS; i++) {
        pthread_attr_t *own = i % 2 == 1 ? &attributes : NULL;
        RETURNS(0, pthread_create(&threads[i], own, works, (void *)i));
    }
    works(NULL);
    for (int i = 1; i < THREADS; i++) {
        join(threads[i]);
    }
    CHECK(count == THREADS * ROUNDS && written == count);
    return succeed();
}
