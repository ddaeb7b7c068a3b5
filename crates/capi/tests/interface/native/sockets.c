/* TCP sockets: sockets CASE. */
#include "check.h"

#include <arpa/inet.h>
#include <sys/socket.h>

static int listen_anywhere(char *address) {
  struct sockaddr_in bound;
  socklen_t length = sizeof bound;
  int listener;
  RETURNS(0, kumi_tcp_listen(&listener, "127.0.0.1:0"));
  CHECK(getsockname(listener, (struct sockaddr *)&bound, &length) == 0);
  sprintf(address, "127.0.0.1:%d", ntohs(bound.sin_port));
  return listener;
}

static void *echo(void *arg) {
  char data[256];
  int socket = (int)(intptr_t)arg;
  size_t count;
  for (;;) {
    RETURNS(0, kumi_tcp_read(socket, data, sizeof data, &count, LONG));
    if (count == 0) break;
    RETURNS(0, kumi_tcp_write(socket, data, count, NULL, LONG));
  }
  RETURNS(0, kumi_tcp_close(socket));
  return NULL;
}

static void *talk(void *address) {
  char data[16];
  size_t count, got = 0;
  int socket, i;
  RETURNS(0, kumi_tcp_connect(&socket, address, LONG));
  for (i = 0; i < 20; i++) {
    RETURNS(0, kumi_tcp_write(socket, "ping", 4, &count, LONG));
    CHECK(count == 4);
    for (got = 0; got < 4; got += count) {
      RETURNS(0, kumi_tcp_read(socket, data + got, sizeof data - got, &count, LONG));
      CHECK(count > 0);
    }
    CHECK(memcmp(data, "ping", 4) == 0);
  }
  RETURNS(0, kumi_tcp_shutdown(socket, SHUT_WR));
  RETURNS(0, kumi_tcp_read(socket, data, sizeof data, &count, LONG));
  CHECK(count == 0);
  RETURNS(0, kumi_tcp_close(socket));
  return NULL;
}

static void work(void) {
  kumi_thread clients[20], servers[20];
  char address[64];
  int listener = listen_anywhere(address), i, socket;
  for (i = 0; i < 20; i++) clients[i] = start(talk, address);
  for (i = 0; i < 20; i++) {
    RETURNS(0, kumi_tcp_accept(&socket, listener, LONG));
    servers[i] = start(echo, (void *)(intptr_t)socket);
  }
  for (i = 0; i < 20; i++) {
    join(clients[i]);
    join(servers[i]);
  }
  RETURNS(0, kumi_tcp_close(listener));
}

static void *accept_one(void *arg) {
  int socket;
  int failed = kumi_tcp_accept(&socket, (int)(intptr_t)arg, LONG);
  CHECK(failed != 0 && socket == -1);
  return (void *)(intptr_t)failed;
}

static void *read_one(void *arg) {
  char byte;
  size_t count;
  int failed = kumi_tcp_read((int)(intptr_t)arg, &byte, 1, &count, LONG);
  CHECK(failed != 0 && count == 0);
  return (void *)(intptr_t)failed;
}

static void misuse(void) {
  static char large[1 << 20];
  char address[64], byte = 0;
  int socket = 0, other, listener = listen_anywhere(address);
  size_t count = 1, total = 0;
  kumi_thread thread;
  RETURNS(EINVAL, kumi_tcp_listen(NULL, "127.0.0.1:0"));
  RETURNS(EINVAL, kumi_tcp_listen(&socket, NULL));
  CHECK(socket == -1);
  RETURNS(EINVAL, kumi_tcp_listen(&socket, "\xff:1"));
  RETURNS(EINVAL, kumi_tcp_listen(&socket, "no port"));
  RETURNS(EINVAL, kumi_tcp_connect(&socket, "127.0.0.1:70000", LONG));
  RETURNS(EADDRINUSE, kumi_tcp_listen(&socket, address));
  RETURNS(EINVAL, kumi_tcp_accept(NULL, listener, 0));
  RETURNS(EINVAL, kumi_tcp_accept(&socket, listener, -2));
  RETURNS(ETIMEDOUT, kumi_tcp_accept(&socket, listener, 0));
  RETURNS(ETIMEDOUT, kumi_tcp_accept(&socket, listener, MS));
  RETURNS(EBADF, kumi_tcp_accept(&socket, -1, 0));
  RETURNS(EBADF, kumi_tcp_accept(&socket, 0, 0));
  RETURNS(ENOTCONN, kumi_tcp_read(listener, &byte, 1, &count, 0));
  CHECK(count == 0);
  RETURNS(ENOTCONN, kumi_tcp_write(listener, &byte, 1, &count, 0));
  RETURNS(ENOTCONN, kumi_tcp_shutdown(listener, SHUT_RDWR));
  RETURNS(EINVAL, kumi_tcp_connect(NULL, address, 0));
  RETURNS(EINVAL, kumi_tcp_connect(&socket, NULL, 0));
  RETURNS(EINVAL, kumi_tcp_connect(&socket, address, -2));
  RETURNS(0, kumi_tcp_connect(&socket, address, LONG));
  RETURNS(0, kumi_tcp_accept(&other, listener, LONG));
  RETURNS(EINVAL, kumi_tcp_accept(&other, socket, 0));
  CHECK(other == -1);
  RETURNS(EINVAL, kumi_tcp_read(socket, NULL, 1, &count, 0));
  RETURNS(EINVAL, kumi_tcp_read(socket, &byte, 1, NULL, 0));
  RETURNS(EINVAL, kumi_tcp_read(socket, &byte, (size_t)-1, &count, 0));
  RETURNS(EINVAL, kumi_tcp_read(socket, &byte, 1, &count, -2));
  RETURNS(ETIMEDOUT, kumi_tcp_read(socket, &byte, 1, &count, 0));
  RETURNS(ETIMEDOUT, kumi_tcp_read(socket, &byte, 1, &count, MS));
  RETURNS(EINVAL, kumi_tcp_write(socket, NULL, 1, &count, 0));
  RETURNS(EINVAL, kumi_tcp_shutdown(socket, 77));
  /* Nobody reads: some bytes are written before the time is over. */
  for (;;) {
    int failed = kumi_tcp_write(socket, large, sizeof large, &count, 5 * MS);
    total += count;
    if (failed == 0) continue;
    CHECK(failed == ETIMEDOUT && count < sizeof large && total > 0);
    break;
  }

  /* Closed while threads wait. */
  thread = start(accept_one, (void *)(intptr_t)listener);
  RETURNS(0, kumi_sleep(2 * MS));
  RETURNS(0, kumi_tcp_close(listener));
  CHECK((intptr_t)join(thread) == EBADF);
  RETURNS(EBADF, kumi_tcp_close(listener));
  thread = start(read_one, (void *)(intptr_t)socket);
  RETURNS(0, kumi_sleep(2 * MS));
  RETURNS(0, kumi_tcp_close(socket));
  CHECK((intptr_t)join(thread) == EBADF);
  RETURNS(EBADF, kumi_tcp_close(socket));
  RETURNS(EBADF, kumi_tcp_read(socket, &byte, 1, &count, 0));
  RETURNS(EBADF, kumi_tcp_write(socket, &byte, 1, &count, 0));
  RETURNS(EBADF, kumi_tcp_shutdown(socket, SHUT_WR));
  RETURNS(EBADF, kumi_tcp_close(-1));
  RETURNS(ECONNREFUSED, kumi_tcp_connect(&socket, address, LONG));

  listener = listen_anywhere(address);
  thread = start(accept_one, (void *)(intptr_t)listener);
  RETURNS(0, kumi_sleep(MS));
  RETURNS(0, kumi_thread_cancel(thread));
  CHECK((intptr_t)join(thread) == ECANCELED);
  RETURNS(0, kumi_tcp_close(listener));
}

int main(int count, char **arguments) {
  static const struct named_case cases[] = {{"work", work}, {"misuse", misuse}, {NULL, NULL}};
  return run_cases(count, arguments, cases);
}
