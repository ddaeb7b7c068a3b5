/* connect(2) of TCP: made at once, refused, made after a wait, begun without a wait and finished with
 * one, timed out. */
#include "check.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

static struct sockaddr_in at;

#define CONNECT(fd) connect(fd, (struct sockaddr *)&at, sizeof at)

static int stream(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    return fd;
}

/* A listening socket at `at`. */
static int listener(int backlog) {
    socklen_t length = sizeof at;
    int fd = stream();
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    RETURNS(0, bind(fd, (struct sockaddr *)&at, sizeof at));
    RETURNS(0, listen(fd, backlog));
    RETURNS(0, getsockname(fd, (struct sockaddr *)&at, &length));
    return fd;
}

/* A listening socket whose queue is full: the kernel drops the first packet of the next connection,
 * and its client sends it again a second later. */
static int full_listener(int *queued) {
    int fd = listener(0);
    *queued = stream();
    RETURNS(0, CONNECT(*queued));
    return fd;
}

static void fails(int fd, int error) {
    RETURNS(-1, CONNECT(fd));
    RETURNS(error, errno);
}

static void *connects(void *argument) {
    int fd = (int)(long)argument;
    RETURNS(0, CONNECT(fd));
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    fails(fd, EISCONN);
    return NULL;
}

static void at_once(void) {
    int server = listener(4), fd = stream();
    connects((void *)(long)fd);
    RETURNS(1, write(fd, "x", 1));
    RETURNS(0, close(fd));
    RETURNS(0, close(server));
    fd = stream();
    fails(fd, ECONNREFUSED);
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    RETURNS(0, close(fd));
}

static void after_a_wait(int begin_without) {
    int queued, server = full_listener(&queued), fd = stream();
    if (begin_without) {
        RETURNS(0, fcntl(fd, F_SETFL, O_NONBLOCK));
        fails(fd, EINPROGRESS);
        fails(fd, EALREADY);
        RETURNS(0, fcntl(fd, F_SETFL, 0));
    }
    pthread_t thread = create(connects, (void *)(long)fd);
    usleep(50000);
    int one = accept(server, NULL, NULL), two = accept(server, NULL, NULL);
    CHECK(one >= 0 && two >= 0);
    join(thread);
    RETURNS(2, write(two, "ab", 2));
    char got[4];
    RETURNS(2, read(fd, got, sizeof got));
    int all[] = {queued, server, fd, one, two};
    for (int i = 0; i < 5; i++)
        RETURNS(0, close(all[i]));
}

static void timed_out(void) {
    int queued, server = full_listener(&queued), fd = stream();
    struct timeval limit = {0, 20000};
    RETURNS(0, setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    fails(fd, EINPROGRESS);
    RETURNS(0, close(fd));
    RETURNS(0, close(queued));
    RETURNS(0, close(server));
}

static void *works(void *argument) {
    at_once();
    after_a_wait(0);
    after_a_wait(1);
    timed_out();
    return argument;
}

int main(void) {
    join(create(works, NULL));
    return succeed();
}
