// Threads that wait for a set of descriptors of their own, often enough and with nobody else that
// `kumi run` lets them do so in the kernel: timers, handlers, cancellation and a set that two threads
// share work there as elsewhere. With an argument: echoes until its standard input ends, fast first.
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "check.h"

enum { ROUNDS = 500, LIMIT = 30 };

static __thread int own, interrupted;
static atomic_int handled, has_cleaned;
static int set, pair[2];

static void handler(int signal) {
    CHECK(own == 42 && signal == SIGUSR1);
    handled++;
    CHECK(write(pair[1], "h", 1) == 1);
}

static void cleanup(void *argument) {
    CHECK(argument == &set && own == 42);
    has_cleaned = 1;
}

// Echoes bytes: 'e' is one to echo, 't' tells to wait for nothing for a while, 'q' to return.
static void *echoes(void *unused) {
    (void)unused;
    own = 42;
    pthread_cleanup_push(cleanup, &set);
    for (int over = 0; !over;) {
        struct epoll_event event;
        char byte;
        int ready = epoll_wait(set, &event, 1, -1);
        if (ready < 0) {
            CHECK(errno == EINTR && handled > interrupted++);
            continue;
        }
        CHECK(ready == 1 && event.events == EPOLLIN && event.data.fd == pair[1]);
        if (recv(pair[1], &byte, 1, MSG_DONTWAIT) != 1) {
            // Another thread of the same set had it.
            CHECK(errno == EAGAIN);
            continue;
        }
        if (byte == 't') {
            struct timespec limit = in_milliseconds(CLOCK_MONOTONIC, LIMIT);
            RETURNS(0, epoll_wait(set, &event, 1, LIMIT));
            CHECK(has_come(CLOCK_MONOTONIC, limit));
        }
        over = byte == 'q';
        RETURNS(1, write(pair[1], &byte, 1));
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void expect(char wanted) {
    char byte;
    RETURNS(1, read(pair[0], &byte, 1));
    CHECK(byte == wanted);
}

static void ask(char byte) {
    RETURNS(1, write(pair[0], &byte, 1));
    expect(byte);
}

static void ask_often(void) {
    for (int i = 0; i < ROUNDS; i++)
        ask('e');
}

// Until standard input has a byte. Then waits for its end.
static void ask_until_told(void) {
    struct pollfd told = {.fd = 0, .events = POLLIN};
    char byte;
    while (poll(&told, 1, 0) == 0)
        ask('e');
    RETURNS(1, read(0, &byte, 1));
    puts("idle");
    fflush(stdout);
    RETURNS(0, read(0, &byte, 1));
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct epoll_event event = {.events = EPOLLIN};
    (void)arguments;
    RETURNS(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    RETURNS(0, sigaction(SIGUSR1, &action, NULL));
    set = epoll_create1(0);
    event.data.fd = pair[1];
    RETURNS(0, epoll_ctl(set, EPOLL_CTL_ADD, pair[1], &event));

    pthread_t thread = create(echoes, NULL);
    pthread_setname_np(thread, "loop");
    if (count > 1) {
        ask_until_told();
        ask('q');
        join(thread);
        return succeed();
    }
    for (int round = 0; round < 3; round++) {
        ask_often();
        ask('t');
        ask_often();
        // No wait of epoll restarts (signal(7)). It may have come before the wait.
        RETURNS(0, pthread_kill(thread, SIGUSR1));
        expect('h');
        CHECK(handled == round + 1);
        // It idles, and goes on.
        usleep(150000);
    }
    ask_often();
    pthread_t other = create(echoes, NULL);
    ask_often();
    ask('q');
    ask_often();
    ask('q');
    join(thread);
    join(other);
    CHECK(!has_cleaned);

    thread = create(echoes, NULL);
    ask_often();
    RETURNS(0, pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED && has_cleaned);
    return succeed();
}
