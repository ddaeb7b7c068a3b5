/* Forty threads at once in calls that the C library passes to the kernel: a message queue, a System
 * V semaphore, a lock of a file, a pipe. Others go on meanwhile, and end the waits. */
#include "check.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

enum { EACH = 10 };

static int queue, semaphore, pipes[2];
static char path[] = "/tmp/kumi-run-blocked-XXXXXX";
static atomic_int ended, ticks, stop;

struct Message {
    long type;
    char text[8];
};

static void *receives(void *argument) {
    (void)argument;
    struct Message message;
    RETURNS(sizeof message.text, msgrcv(queue, &message, sizeof message.text, 1, 0));
    ended++;
    return NULL;
}

static void *takes(void *argument) {
    (void)argument;
    struct sembuf take = {0, -1, 0};
    RETURNS(0, semop(semaphore, &take, 1));
    ended++;
    return NULL;
}

static void *locks(void *argument) {
    (void)argument;
    int file = open(path, O_RDWR | O_CLOEXEC);
    CHECK(file >= 0);
    RETURNS(0, flock(file, LOCK_EX));
    ended++;
    RETURNS(0, close(file));
    return NULL;
}

static void *reads(void *argument) {
    (void)argument;
    char byte;
    RETURNS(1, read(pipes[0], &byte, 1));
    ended++;
    return NULL;
}

static void *goes_on(void *argument) {
    (void)argument;
    while (!stop) {
        ticks++;
        usleep(1000);
    }
    return NULL;
}

int main(void) {
    queue = msgget(IPC_PRIVATE, 0600);
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    CHECK(queue >= 0 && semaphore >= 0 && pipe(pipes) == 0);
    int file = mkstemp(path);
    CHECK(file >= 0 && flock(file, LOCK_EX) == 0);
    pthread_t threads[4][EACH], other;
    for (int i = 0; i < EACH; i++) {
        threads[0][i] = create(receives, NULL);
        threads[1][i] = create(takes, NULL);
        threads[2][i] = create(locks, NULL);
        threads[3][i] = create(reads, NULL);
    }
    other = create(goes_on, NULL);
    while (ticks < 50) {
        usleep(1000);
    }
    CHECK(ended == 0);
    struct Message message = {1, "text"};
    struct sembuf give = {0, EACH, 0};
    for (int i = 0; i < EACH; i++) {
        RETURNS(0, msgsnd(queue, &message, sizeof message.text, 0));
        RETURNS(1, write(pipes[1], "x", 1));
    }
    RETURNS(0, semop(semaphore, &give, 1));
    RETURNS(0, close(file));
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < EACH; i++) {
            join(threads[kind][i]);
        }
    }
    stop = 1;
    join(other);
    CHECK(ended == 4 * EACH);
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphore, 0, IPC_RMID);
    unlink(path);
    return succeed();
}
