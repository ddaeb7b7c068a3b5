/* Handlers of fork(2) lock a mutex that other threads use, as those of an allocator do. They are
 * registered before the first thread exists. */
#include "check.h"

#include <stdatomic.h>
#include <sys/wait.h>

#define FORKS 300
#define THREADS 4

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_over;

static void locks_it(void) {
    RETURNS(0, pthread_mutex_lock(&mutex));
}

static void unlocks_it(void) {
    RETURNS(0, pthread_mutex_unlock(&mutex));
}

/* Waits with the mutex held now and then. */
static void *uses(void *argument) {
    for (unsigned n = 0; !is_over; n++) {
        locks_it();
        if (n % 4 == 0) usleep(100);
        unlocks_it();
        usleep(100);
    }
    return argument;
}

static void *nothing(void *argument) {
    return argument;
}

/* The creation of a thread allocates in the runtime. */
static void *creates(void *argument) {
    while (!is_over) {
        for (int i = 0; i < 8; i++) join(create(nothing, NULL));
        usleep(100);
    }
    return argument;
}

static void *forks(void *argument) {
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(3);
        int status;
        RETURNS(child, waitpid(child, &status, 0));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    is_over = 1;
    return argument;
}

int main(void) {
    RETURNS(0, pthread_atfork(locks_it, unlocks_it, unlocks_it));
    pthread_t threads[THREADS], creator = create(creates, NULL), forker = create(forks, NULL);
    for (int i = 0; i < THREADS; i++) threads[i] = create(uses, NULL);
    join(forker);
    join(creator);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    return succeed();
}
