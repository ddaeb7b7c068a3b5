/* Threads that come back from a block in the kernel, and then wait for a socket: by `kumi run`, as
 * microprocesses, and not in the kernel. */
#include "check.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { THREADS = 40 };

static int gate[2], pairs[THREADS][2];
static atomic_int returned;

static void *blocks_and_waits(void *argument) {
    long own = (long)argument;
    char byte;
    for (int round = 0; round < 3; round++) {
        /* By the instruction: not replaced. */
        long got;
        __asm__ volatile("syscall"
                         : "=a"(got)
                         : "a"(SYS_read), "D"(gate[0]), "S"(&byte), "d"(1)
                         : "rcx", "r11", "memory");
        CHECK(got == 1);
        returned++;
        RETURNS(1, recv(pairs[own][0], &byte, 1, 0));
    }
    return NULL;
}

/* The kernel threads in ppoll(2): those that wait for a descriptor by themselves. */
static int polling(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300];
        long number = -1;
        snprintf(path, sizeof path, "/proc/self/task/%s/syscall", task->d_name);
        FILE *call = fopen(path, "r");
        if (call && fscanf(call, "%ld", &number) == 1 && number == SYS_ppoll) count++;
        if (call) fclose(call);
    }
    closedir(tasks);
    return count;
}

int main(void) {
    pthread_t threads[THREADS];
    RETURNS(0, pipe(gate));
    for (long i = 0; i < THREADS; i++) {
        RETURNS(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]));
        threads[i] = create(blocks_and_waits, (void *)i);
    }
    for (int round = 0; round < 3; round++) {
        usleep(20000);
        for (int i = 0; i < THREADS; i++) RETURNS(1, write(gate[1], "x", 1));
        /* Before they have returned, none is in poll(2) yet. */
        while (returned < (round + 1) * THREADS) usleep(1000);
        usleep(20000);
        /* The runtime has some of its own. */
        while (getenv("KUMIHIMO_RUN") && polling() > 4) usleep(1000);
        for (int i = 0; i < THREADS; i++) RETURNS(1, send(pairs[i][1], "x", 1, 0));
    }
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    return succeed();
}
