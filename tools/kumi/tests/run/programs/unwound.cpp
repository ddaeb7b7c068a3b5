/* A cancelled thread unwinds: destructors of C++ objects run, in the order of the frames, and code
 * that catches everything passes it on. */
#include "check.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <semaphore.h>

static sem_t never;
static std::mutex mutex;
static std::condition_variable condition;
static std::atomic<int> begun, caught;

struct Object {
    char name;
    char *log;
    Object(char name, char *log) : name(name), log(log) {}
    ~Object() {
        size_t length = strlen(log);
        log[length] = name;
    }
};

__attribute__((noinline)) static void inner(char *log, long how) {
    Object object('c', log);
    begun = 1;
    if (how == 0) {
        while (sem_wait(&never)) {}
    } else if (how == 1) {
        for (;;) usleep(1000000);
    } else {
        pthread_exit((void *)77);
    }
}

__attribute__((noinline)) static void middle(char *log, long how) {
    Object object('b', log);
    try {
        inner(log, how);
    } catch (...) {
        caught++;
        throw;
    }
}

struct Task {
    char log[16];
    long how;
};

static void *body(void *argument) {
    Task *task = static_cast<Task *>(argument);
    Object object('a', task->log);
    middle(task->log, task->how);
    return nullptr;
}

int main() {
    RETURNS(0, sem_init(&never, 0, 0));
    for (long how = 0; how < 3; how++) {
        Task task = {"", how};
        begun = 0;
        caught = 0;
        pthread_t thread = create(body, &task);
        while (!begun) usleep(100);
        usleep(1000);
        if (how < 2) RETURNS(0, pthread_cancel(thread));
        void *value = join(thread);
        CHECK(value == (how < 2 ? PTHREAD_CANCELED : (void *)77));
        CHECK(strcmp(task.log, "cba") == 0 && caught == 1);
    }
    return succeed();
}
