/* Messages: several short ones at once, a look that leaves one there, a receiver that is full, calls
 * that the file does not take, a limit that an earlier program has set. */
#include "check.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { MESSAGES = 200 };

static int ends[2];

/* Reads with a buffer that is larger than each message, so that every read is short. */
static void *reads(void *argument) {
    int fd = (int)(long)argument;
    char bytes[64];
    for (int i = 0; i < MESSAGES; i++) {
        RETURNS(4, recv(fd, bytes, sizeof bytes, MSG_PEEK));
        RETURNS(4, recv(fd, bytes, sizeof bytes, 0));
    }
    return NULL;
}

static void short_messages(int kind) {
    RETURNS(0, socketpair(AF_UNIX, kind, 0, ends));
    pthread_t reader = create(reads, (void *)(long)ends[0]);
    usleep(2000);
    for (int i = 0; i < MESSAGES; i++) {
        RETURNS(4, send(ends[1], "abcd", 4, 0));
        if (i % 3 == 0)
            usleep(300);
    }
    join(reader);
    close(ends[0]);
    close(ends[1]);
}

static struct sockaddr_un name;

static void *sends(void *argument) {
    (void)argument;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    for (int i = 0; i < MESSAGES; i++)
        RETURNS(4, sendto(fd, "abcd", 4, 0, (struct sockaddr *)&name, sizeof name));
    RETURNS(0, close(fd));
    return NULL;
}

static void full_receiver(void) {
    name.sun_family = AF_UNIX;
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "messages-%d", getpid());
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    RETURNS(0, bind(fd, (struct sockaddr *)&name, sizeof name));
    pthread_t sender = create(sends, NULL);
    usleep(5000);
    char bytes[64];
    for (int i = 0; i < MESSAGES; i++)
        RETURNS(4, recv(fd, bytes, sizeof bytes, 0));
    join(sender);
    RETURNS(0, close(fd));
}

static void *refused(void *argument) {
    (void)argument;
    char bytes[8];
    int udp = socket(AF_INET, SOCK_DGRAM, 0), counter = eventfd(0, 0), both[2];
    RETURNS(-1, accept(udp, NULL, NULL));
    CHECK(errno == EOPNOTSUPP);
    RETURNS(-1, read(counter, bytes, 4));
    CHECK(errno == EINVAL);
    RETURNS(0, pipe(both));
    RETURNS(-1, read(both[1], bytes, 1));
    CHECK(errno == EBADF);
    RETURNS(-1, write(both[0], bytes, 1));
    CHECK(errno == EBADF);
    RETURNS(0, fcntl(both[0], F_SETFL, O_NONBLOCK));
    RETURNS(-1, read(both[0], bytes, 1));
    CHECK(errno == EAGAIN);
    return NULL;
}

/* The limit on the socket was set before this program was executed. */
static void *has_a_limit(void *argument) {
    char byte;
    struct timespec at = in_milliseconds(CLOCK_MONOTONIC, 20);
    RETURNS(-1, recv((int)(long)argument, &byte, 1, 0));
    CHECK(errno == EAGAIN && has_come(CLOCK_MONOTONIC, at));
    return NULL;
}

int main(int count, char **words) {
    if (count > 1) {
        join(create(has_a_limit, (void *)atol(words[1])));
        short_messages(SOCK_DGRAM);
        short_messages(SOCK_SEQPACKET);
        full_receiver();
        join(create(refused, NULL));
        return succeed();
    }
    struct timeval limit = {0, 20000};
    RETURNS(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    RETURNS(0, setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    char number[16];
    snprintf(number, sizeof number, "%d", ends[0]);
    execl("/proc/self/exe", words[0], number, NULL);
    return 1;
}
