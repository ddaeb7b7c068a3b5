/* Waits for pipes and eventfds, and for one of several descriptors: poll, select, epoll; and a
 * program that closes every descriptor that it has not opened. */
#include "check.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

enum { THREADS = 24, ROUNDS = 30 };

static int ends[THREADS][2], never;

static void look(int how, int fd) {
    if (how == 1) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        FD_SET(never, &set);
        int most = fd > never ? fd : never;
        RETURNS(1, select(most + 1, &set, NULL, NULL, NULL));
        CHECK(FD_ISSET(fd, &set) && !FD_ISSET(never, &set));
    } else if (how == 2) {
        struct pollfd both[3] = {{never, POLLIN, 0}, {fd, POLLIN, 0}, {-1, POLLIN, 0}};
        RETURNS(1, poll(both, 3, -1));
        CHECK(both[0].revents == 0 && both[1].revents == POLLIN && both[2].revents == 0);
    } else if (how == 3) {
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        RETURNS(0, epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
        RETURNS(1, epoll_wait(set, &event, 1, -1));
        CHECK(event.data.fd == fd);
        RETURNS(0, close(set));
    }
}

static void *reads(void *argument) {
    long own = (long)argument;
    char byte;
    for (int i = 0; i < ROUNDS; i++) {
        look(own % 4, ends[own][0]);
        RETURNS(1, read(ends[own][0], &byte, 1));
    }
    return NULL;
}

static void *writes(void *argument) {
    long own = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        usleep(300);
        RETURNS(1, write(ends[own][1], "x", 1));
    }
    return NULL;
}

static void *times_out(void *argument) {
    (void)argument;
    struct timespec at = in_milliseconds(CLOCK_MONOTONIC, 15), limit = {0, 15000000};
    struct pollfd both[2] = {{never, POLLIN, 0}, {ends[0][0], POLLIN, 0}};
    RETURNS(0, poll(both, 2, 15));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    at = in_milliseconds(CLOCK_MONOTONIC, 15);
    RETURNS(0, ppoll(both, 1, &limit, NULL));
    CHECK(has_come(CLOCK_MONOTONIC, at));
    at = in_milliseconds(CLOCK_MONOTONIC, 15);
    struct timeval left = {0, 15000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(never, &set);
    RETURNS(0, select(never + 1, &set, NULL, NULL, &left));
    CHECK(has_come(CLOCK_MONOTONIC, at) && !FD_ISSET(never, &set));
    uint64_t count = 3;
    RETURNS(8, write(never, &count, 8));
    RETURNS(8, read(never, &count, 8));
    CHECK(count == 3);
    return NULL;
}

int main(void) {
    pthread_t threads[2 * THREADS];
    never = eventfd(0, 0);
    for (long i = 0; i < THREADS; i++) {
        RETURNS(0, i % 2 ? pipe(ends[i]) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
        threads[i] = create(reads, (void *)i);
    }
    for (long i = 0; i < THREADS; i++)
        threads[THREADS + i] = create(writes, (void *)i);
    for (int i = 0; i < 2 * THREADS; i++)
        join(threads[i]);
    join(create(times_out, NULL));
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    never = eventfd(0, 0);
    RETURNS(0, pipe(ends[0]));
    join(create(times_out, NULL));
    return succeed();
}
