/* The ends of a process: by the last thread after pthread_exit in main, in whichever order; by exit
 * in any thread, whose handlers create and join threads; by quick_exit and _exit. */
#include "check.h"

#include <semaphore.h>
#include <sys/wait.h>

static pthread_key_t key;
static sem_t never;
static int way;

static void say(const char *text) {
    CHECK(write(1, text, strlen(text)) == (long)strlen(text));
}

static void key_ends(void *text) {
    say(text);
}

static void *returns(void *argument) {
    return argument;
}

static void at_exit(void) {
    say("H");
    if (way < 3) return;
    CHECK(join(create(returns, &way)) == &way);
    say("J");
}

static void at_quick_exit_too(void) {
    say("Q");
}

static void *ends_later(void *text) {
    usleep(30000);
    pthread_setspecific(key, text);
    return NULL;
}

static void *ends_now(void *text) {
    pthread_setspecific(key, text);
    return NULL;
}

static void *waits(void *argument) {
    while (sem_wait(&never)) ;
    return argument;
}

static void *exits(void *argument) {
    (void)argument;
    if (way == 3) exit(3);
    if (way == 4) quick_exit(4);
    _exit(5);
}

static void child(void) {
    RETURNS(0, pthread_key_create(&key, key_ends));
    RETURNS(0, sem_init(&never, 0, 0));
    atexit(at_exit);
    at_quick_exit(at_quick_exit_too);
    switch (way) {
    case 0: /* the others end last */
        pthread_detach(create(ends_later, "a"));
        pthread_setspecific(key, "m");
        pthread_exit(NULL);
    case 1: /* main ends last */
        join(create(ends_now, "b"));
        pthread_setspecific(key, "m");
        pthread_exit(NULL);
    case 2: /* one that was never created counts for nothing */
        pthread_detach(create(ends_later, "c"));
        usleep(60000);
        pthread_exit(NULL);
    default:
        create(waits, NULL);
        create(exits, NULL);
        for (;;) pause();
    }
}

int main(void) {
    const char *wanted[] = {"maH", "bmH", "cH", "HJ", "Q", ""};
    /* The runtime is there before the children begin: they have to begin without it. */
    join(create(returns, NULL));
    for (way = 0; way < 6; way++) {
        char text[16] = "";
        int ends[2], status;
        RETURNS(0, pipe(ends));
        pid_t pid = fork();
        if (pid == 0) {
            dup2(ends[1], 1);
            close(ends[0]);
            close(ends[1]);
            child();
        }
        close(ends[1]);
        for (long at = 0, got; (got = read(ends[0], text + at, sizeof text - 1 - at)) > 0;) at += got;
        RETURNS(pid, waitpid(pid, &status, 0));
        close(ends[0]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (way < 3 ? 0 : way) || strcmp(text, wanted[way])) {
            printf("way %d: status %#x, %s\n", way, (unsigned)status, text);
            return 1;
        }
    }
    return succeed();
}
