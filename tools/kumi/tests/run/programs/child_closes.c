/* A child that shares the memory of its parent (vfork) closes descriptors on which threads of the
 * parent wait; and a set for select that is only as long as it must be. */
#include "check.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { READERS = 20 };

static int ends[READERS][2];

static void *reads(void *argument) {
    char byte;
    return (void *)read((int)(long)argument, &byte, 1);
}

static void closing_child(void) {
    pthread_t readers[READERS];
    int counter = eventfd(0, 0);
    for (int i = 0; i < READERS; i++) {
        RETURNS(0, i % 2 ? pipe(ends[i]) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
        readers[i] = create(reads, (void *)(long)ends[i][0]);
    }
    usleep(20000);
    pid_t child = vfork();
    if (child == 0) {
        for (int i = 0; i < READERS; i++)
            close(ends[i][0]);
        close(counter);
        _exit(0);
    }
    int status;
    RETURNS(child, waitpid(child, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    usleep(5000);
    for (int i = 0; i < READERS; i++)
        RETURNS(1, write(ends[i][1], "x", 1));
    for (int i = 0; i < READERS; i++)
        RETURNS(1, join(readers[i]));
    RETURNS(0, close(counter));
}

static void *selects(void *argument) {
    /* The last bytes before memory that must not be touched. */
    char *pages = argument;
    fd_set *set = (fd_set *)(pages + 4096 - 2 * sizeof(long));
    int fd = ends[0][0];
    CHECK(fd < 128);
    memset(set, 0, 2 * sizeof(long));
    ((char *)set)[fd / 8] = (char)(1 << fd % 8);
    struct timeval limit = {0, 5000};
    RETURNS(0, select(128, set, NULL, NULL, &limit));
    return NULL;
}

int main(void) {
    closing_child();
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    RETURNS(0, mprotect(pages + 4096, 4096, PROT_NONE));
    join(create(selects, pages));
    return succeed();
}
