/* Threads with names that hold and want locks, until standard input ends: a chain of three, a
 * deadlock of two, one of a thread with itself, a readers-writer lock, and locks that record no
 * holder. */
#include "check.h"

#include <linux/futex.h>
#include <semaphore.h>
#include <sys/syscall.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t c = PTHREAD_MUTEX_INITIALIZER, d = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t of_main = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t of_twice = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t taken;
static sem_t none;
static unsigned word;

static void called(const char *name) {
    RETURNS(0, pthread_setname_np(pthread_self(), name));
}

/* Waits until every thread has its first lock. */
static void meet(void) {
    pthread_barrier_wait(&taken);
}

static void *last(void *argument) {
    called("last");
    pthread_mutex_lock(&a);
    meet();
    sem_wait(&none);
    return argument;
}

static void *middle(void *argument) {
    called("middle");
    pthread_mutex_lock(&b);
    meet();
    pthread_mutex_lock(&a);
    return argument;
}

static void *first(void *argument) {
    called("first");
    meet();
    pthread_mutex_lock(&b);
    return argument;
}

static void *one(void *argument) {
    called("one");
    pthread_mutex_lock(&c);
    meet();
    pthread_mutex_lock(&d);
    return argument;
}

static void *two(void *argument) {
    called("two");
    pthread_mutex_lock(&d);
    meet();
    pthread_mutex_lock(&c);
    return argument;
}

static void *writer(void *argument) {
    called("writer");
    pthread_rwlock_wrlock(&rwlock);
    meet();
    sem_wait(&none);
    return argument;
}

static void *reader(void *argument) {
    called("reader");
    meet();
    pthread_rwlock_rdlock(&rwlock);
    return argument;
}

static void *behind_main(void *argument) {
    called("behind-main");
    meet();
    pthread_mutex_lock(&of_main);
    return argument;
}

static void *twice(void *argument) {
    called("twice");
    pthread_mutex_lock(&of_twice);
    meet();
    pthread_mutex_lock(&of_twice);
    return argument;
}

static void *on_futex(void *argument) {
    called("on-futex");
    meet();
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return argument;
}

int main(void) {
    void *(*const all[])(void *) = {last,   middle, first,       one,     two,
                                    writer, reader, behind_main, twice,   on_futex};
    enum { COUNT = sizeof all / sizeof *all };
    RETURNS(0, pthread_barrier_init(&taken, NULL, COUNT + 1));
    RETURNS(0, sem_init(&none, 0, 0));
    RETURNS(0, pthread_mutex_lock(&of_main));
    for (int i = 0; i < COUNT; i++) {
        pthread_t thread;
        RETURNS(0, pthread_create(&thread, NULL, all[i], NULL));
    }
    meet();
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    _exit(0);
}
