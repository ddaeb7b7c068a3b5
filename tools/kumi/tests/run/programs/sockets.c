/* Sockets: flags of the open file, time-outs, long transfers, vectors, a shutdown and a close beside
 * a waiting thread, a number that is used again. */
#include "check.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { LONG = 4 << 20, CLIENTS = 40, ROUNDS = 50 };

static int pair[2];

static void *echoes(void *argument) {
    int fd = (int)(long)argument;
    char bytes[64];
    ssize_t n;
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        RETURNS(n, write(fd, bytes, n));
    RETURNS(0, n);
    RETURNS(0, close(fd));
    return NULL;
}

static void *accepts(void *argument) {
    pthread_t threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        int fd = accept((int)(long)argument, NULL, NULL);
        CHECK(fd >= 0);
        CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
        threads[i] = create(echoes, (void *)(long)fd);
    }
    for (int i = 0; i < CLIENTS; i++)
        join(threads[i]);
    return NULL;
}

static void *asks(void *argument) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    RETURNS(0, connect(fd, argument, sizeof(struct sockaddr_in)));
    for (int i = 0; i < ROUNDS; i++) {
        char sent[8], got[8];
        snprintf(sent, sizeof sent, "%7d", i);
        struct iovec parts[2] = {{sent, 3}, {sent + 3, 5}};
        RETURNS(8, writev(fd, parts, 2));
        RETURNS(8, recv(fd, got, 8, MSG_WAITALL));
        CHECK(memcmp(sent, got, 8) == 0);
    }
    RETURNS(0, close(fd));
    return NULL;
}

static void many_connections(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    RETURNS(0, bind(fd, (struct sockaddr *)&at, sizeof at));
    RETURNS(0, listen(fd, CLIENTS));
    RETURNS(0, getsockname(fd, (struct sockaddr *)&at, &length));
    pthread_t server = create(accepts, (void *)(long)fd), clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = create(asks, &at);
    for (int i = 0; i < CLIENTS; i++)
        join(clients[i]);
    join(server);
    RETURNS(0, close(fd));
}

static void *sends_much(void *argument) {
    char *bytes = argument;
    RETURNS(LONG, write(pair[0], bytes, LONG));
    struct iovec parts[2] = {{bytes, LONG / 2}, {bytes + LONG / 2, LONG / 2}};
    RETURNS(LONG, writev(pair[0], parts, 2));
    return NULL;
}

static void *receives_much(void *argument) {
    static char got[LONG];
    for (int round = 0; round < 2; round++) {
        for (long at = 0; at < LONG;) {
            ssize_t n = read(pair[1], got + at, LONG - at);
            CHECK(n > 0);
            at += n;
        }
        CHECK(memcmp(got, argument, LONG) == 0);
    }
    return NULL;
}

static void long_transfers(void) {
    char *bytes = malloc(LONG);
    for (int i = 0; i < LONG; i++)
        bytes[i] = (char)(i * 7 + i / 1000);
    pthread_t writer = create(sends_much, bytes), reader = create(receives_much, bytes);
    join(writer);
    join(reader);
    free(bytes);
}

static void *flags_and_limits(void *argument) {
    (void)argument;
    char byte;
    /* The flag belongs to the open file: a duplicate has it. */
    int twin = dup(pair[1]);
    RETURNS(0, fcntl(twin, F_SETFL, O_NONBLOCK));
    RETURNS(-1, read(pair[1], &byte, 1));
    CHECK(errno == EAGAIN);
    RETURNS(0, fcntl(pair[1], F_SETFL, 0));
    struct timeval limit = {0, 20000};
    RETURNS(0, setsockopt(twin, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    struct timespec at = in_milliseconds(CLOCK_MONOTONIC, 20);
    RETURNS(-1, recv(pair[1], &byte, 1, 0));
    CHECK(errno == EAGAIN && has_come(CLOCK_MONOTONIC, at));
    limit.tv_usec = 0;
    RETURNS(0, setsockopt(twin, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    RETURNS(0, close(twin));
    return NULL;
}

static void *reads_to_the_end(void *argument) {
    char byte;
    return (void *)read((int)(long)argument, &byte, 1);
}

/* Returns whether the number of a closed socket became that of another one. A kernel thread of the
   runtime that begins in between may have taken the number. */
static int ends(void) {
    int own[2], next[2];
    RETURNS(0, socketpair(AF_UNIX, SOCK_STREAM, 0, own));
    pthread_t reader = create(reads_to_the_end, (void *)(long)own[0]);
    usleep(5000);
    RETURNS(0, shutdown(own[0], SHUT_RDWR));
    RETURNS(0, join(reader));
    RETURNS(0, close(own[0]));
    RETURNS(0, socketpair(AF_UNIX, SOCK_STREAM, 0, next));
    int is_same = next[0] == own[0];
    reader = create(reads_to_the_end, (void *)(long)next[0]);
    usleep(5000);
    RETURNS(1, write(next[1], "x", 1));
    RETURNS(1, join(reader));
    RETURNS(0, close(own[1]));
    RETURNS(0, close(next[0]));
    RETURNS(0, close(next[1]));
    return is_same;
}

int main(void) {
    RETURNS(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    many_connections();
    long_transfers();
    join(create(flags_and_limits, NULL));
    int rounds = 0;
    while (!ends()) {
        rounds++;
        CHECK(rounds < 100);
    }
    return succeed();
}
