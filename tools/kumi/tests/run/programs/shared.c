/* Objects that two processes share, with several threads of each: a mutex, a reader-writer lock
 * (whose owners must not be taken for each other), a condition variable and a barrier. */
#include "check.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { THREADS = 3, ROUNDS = 30 };

struct Shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_rwlock_t table;
    pthread_barrier_t met;
    long count, first, second;
    int turn;
};

static struct Shared *shared;
static int side;

static void *works(void *argument) {
    pthread_barrier_wait(&shared->met);
    for (int i = 0; i < ROUNDS; i++) {
        RETURNS(0, pthread_mutex_lock(&shared->lock));
        shared->count++;
        RETURNS(0, pthread_mutex_unlock(&shared->lock));
        RETURNS(0, pthread_rwlock_wrlock(&shared->table));
        shared->first++;
        if (i % 10 == 0) {
            usleep(200);
        }
        shared->second++;
        RETURNS(0, pthread_rwlock_unlock(&shared->table));
        RETURNS(0, pthread_rwlock_rdlock(&shared->table));
        CHECK(shared->first == shared->second);
        RETURNS(0, pthread_rwlock_unlock(&shared->table));
    }
    return argument;
}

static void *takes_turns(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        RETURNS(0, pthread_mutex_lock(&shared->lock));
        while (shared->turn != side) {
            RETURNS(0, pthread_cond_wait(&shared->changed, &shared->lock));
        }
        shared->turn = 1 - side;
        RETURNS(0, pthread_cond_broadcast(&shared->changed));
        RETURNS(0, pthread_mutex_unlock(&shared->lock));
    }
    return argument;
}

static void runs(void) {
    pthread_t threads[THREADS], turns;
    for (int i = 0; i < THREADS; i++) {
        threads[i] = create(works, NULL);
    }
    turns = create(takes_turns, NULL);
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
    }
    join(turns);
}

int main(int count, char **arguments) {
    (void)count;
    if (arguments[1] != NULL) {
        /* The other process, executed: it has a runtime of its own. */
        side = 1;
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(arguments[1]), 0);
        CHECK(shared != MAP_FAILED);
        runs();
        return 0;
    }
    int file = memfd_create("shared", 0);
    CHECK(file >= 0 && ftruncate(file, sizeof *shared) == 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_settype(&mutex, PTHREAD_MUTEX_ERRORCHECK);
    RETURNS(0, pthread_mutex_init(&shared->lock, &mutex));
    pthread_condattr_t condition;
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    RETURNS(0, pthread_cond_init(&shared->changed, &condition));
    pthread_rwlockattr_t table;
    pthread_rwlockattr_init(&table);
    pthread_rwlockattr_setpshared(&table, PTHREAD_PROCESS_SHARED);
    RETURNS(0, pthread_rwlock_init(&shared->table, &table));
    pthread_barrierattr_t met;
    pthread_barrierattr_init(&met);
    pthread_barrierattr_setpshared(&met, PTHREAD_PROCESS_SHARED);
    RETURNS(0, pthread_barrier_init(&shared->met, &met, 2 * THREADS));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", file);
        execl("/proc/self/exe", arguments[0], number, (char *)NULL);
        _exit(1);
    }
    runs();
    int status;
    RETURNS(child, waitpid(child, &status, 0));
    CHECK(status == 0);
    CHECK(shared->count == 2 * THREADS * ROUNDS && shared->second == 2 * THREADS * ROUNDS);
    return succeed();
}
