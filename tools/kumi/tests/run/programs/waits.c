/* Threads with names, each in another kind of wait, until standard input ends. */
#include "check.h"

#include <linux/futex.h>
#include <semaphore.h>
#include <sys/syscall.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t none;
static unsigned word;

static void called(const char *name) {
    RETURNS(0, pthread_setname_np(pthread_self(), name));
}

static void *on_mutex(void *argument) {
    called("on-mutex");
    pthread_mutex_lock(&held);
    return argument;
}

static void *on_condition(void *argument) {
    called("on-condition");
    pthread_mutex_lock(&lock);
    for (;;) {
        pthread_cond_wait(&changed, &lock);
    }
    return argument;
}

static void *on_rwlock(void *argument) {
    called("on-rwlock");
    pthread_rwlock_rdlock(&written);
    return argument;
}

static void *on_barrier(void *argument) {
    called("on-barrier");
    pthread_barrier_wait(&barrier);
    return argument;
}

static void *on_semaphore(void *argument) {
    called("on-semaphore");
    while (sem_wait(&none) != 0) {
    }
    return argument;
}

static void *on_futex(void *argument) {
    called("on-futex");
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return argument;
}

static void *on_time(void *argument) {
    called("on-time");
    sleep(100000);
    return argument;
}

static void *on_join(void *argument) {
    called("on-join");
    join(*(pthread_t *)argument);
    return NULL;
}

int main(void) {
    RETURNS(0, pthread_barrier_init(&barrier, NULL, 2));
    RETURNS(0, sem_init(&none, 0, 0));
    pthread_mutex_lock(&held);
    pthread_rwlock_wrlock(&written);
    pthread_t first = create(on_mutex, NULL);
    create(on_condition, NULL);
    create(on_rwlock, NULL);
    create(on_barrier, NULL);
    create(on_semaphore, NULL);
    create(on_futex, NULL);
    create(on_time, NULL);
    create(on_join, &first);
    puts("ready");
    fflush(stdout);
    getchar();
    exit(0);
}
