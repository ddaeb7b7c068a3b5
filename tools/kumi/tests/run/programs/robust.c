/* Robust mutexes: the end of a thread that holds them, by return, exit or cancellation, and the end of
 * a whole process by SIGKILL, tell the next owner. */
#include "check.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct shared {
    pthread_mutex_t mutex;
    atomic_int held;
};

static struct shared *shared;
static pthread_mutex_t own;

static void *holds(void *how) {
    RETURNS(0, pthread_mutex_lock(&own));
    if ((long)how == 1) pthread_exit(NULL);
    if ((long)how == 2) for (;;) usleep(1000);
    return NULL;
}

static void *takes(void *mutex) {
    RETURNS(EOWNERDEAD, pthread_mutex_lock(mutex));
    RETURNS(0, pthread_mutex_consistent(mutex));
    RETURNS(0, pthread_mutex_unlock(mutex));
    RETURNS(0, pthread_mutex_lock(mutex));
    RETURNS(0, pthread_mutex_unlock(mutex));
    return NULL;
}

static void *holds_shared(void *argument) {
    (void)argument;
    RETURNS(0, pthread_mutex_lock(&shared->mutex));
    shared->held = 1;
    for (;;) pause();
}

int main(int count, char **words) {
    pthread_mutexattr_t kind;
    RETURNS(0, pthread_mutexattr_init(&kind));
    RETURNS(0, pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST));
    if (count > 1) {
        /* The process that is killed; its memory is at descriptor 3. */
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
        CHECK(shared != MAP_FAILED);
        join(create(holds_shared, NULL));
    }
    for (long how = 0; how < 3; how++) {
        RETURNS(0, pthread_mutex_init(&own, &kind));
        pthread_t thread = create(holds, (void *)how);
        if (how == 2) {
            usleep(5000);
            RETURNS(0, pthread_cancel(thread));
        }
        CHECK(join(thread) == (how == 2 ? PTHREAD_CANCELED : NULL));
        join(create(takes, &own));
    }

    char name[] = "/tmp/robust-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, sizeof *shared) == 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    RETURNS(0, pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED));
    RETURNS(0, pthread_mutex_init(&shared->mutex, &kind));
    pid_t pid = fork();
    if (pid == 0) {
        if (file != 3) dup2(file, 3);
        execl(words[0], words[0], "held", NULL);
        _exit(127);
    }
    while (!shared->held) usleep(1000);
    RETURNS(EBUSY, pthread_mutex_trylock(&shared->mutex));
    RETURNS(0, kill(pid, SIGKILL));
    int status;
    RETURNS(pid, waitpid(pid, &status, 0));
    CHECK(WIFSIGNALED(status));
    join(create(takes, &shared->mutex));
    return succeed();
}
