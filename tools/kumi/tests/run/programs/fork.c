/* fork(2) in a thread: the child has that thread only, and may create others; and a program that a
 * thread executes in a child. */
#include "check.h"

#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *returns(void *argument) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    free(malloc(1000));
    return argument;
}

static void *forks(void *argument) {
    char place;
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(join(create(returns, &place)) == &place);
            usleep(100);
            if (i == 4) {
                execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
            }
            _exit(7);
        }
        int status = 0;
        RETURNS(child, waitpid(child, &status, 0));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(join(create(returns, &place)) == &place);
    }
    return argument;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = create(forks, NULL);
    }
    for (int i = 0; i < 4; i++) {
        join(threads[i]);
    }
    forks(NULL);
    CHECK(system("exit 3") >> 8 == 3);
    return succeed();
}
