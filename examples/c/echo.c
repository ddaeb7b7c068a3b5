/* An echo server with one thread for each connection, and its clients: echo [CLIENTS]. */
#include <arpa/inet.h>
#include <kumihimo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t LIMIT = 30 * INT64_C(1000000000); /* 30 s */
static char address[32];

static void *serve(void *arg) {
  int socket = (int)(intptr_t)arg;
  char data[4096];
  size_t count;
  while (kumi_tcp_read(socket, data, sizeof data, &count, LIMIT) == 0 && count > 0) {
    if (kumi_tcp_write(socket, data, count, NULL, LIMIT) != 0) break;
  }
  kumi_tcp_close(socket);
  return NULL;
}

static void *call(void *arg) {
  char data[6];
  size_t count = 0, got = 0;
  int socket;
  if (kumi_tcp_connect(&socket, address, LIMIT) != 0) return NULL;
  if (kumi_tcp_write(socket, "hello", 5, NULL, LIMIT) == 0) {
    while (got < 5 && kumi_tcp_read(socket, data + got, 5 - got, &count, LIMIT) == 0 && count > 0) {
      got += count;
    }
  }
  kumi_tcp_close(socket);
  return got == 5 && memcmp(data, "hello", 5) == 0 ? arg : NULL;
}

int main(int argc, char **argv) {
  const int clients = argc > 1 ? atoi(argv[1]) : 1000;
  kumi_thread_options detached = KUMI_THREAD_OPTIONS_INIT;
  kumi_thread *callers = calloc((size_t)clients, sizeof *callers), server;
  struct sockaddr_in bound;
  socklen_t length = sizeof bound;
  int listener, socket, i, right = 0;
  detached.flags = KUMI_THREAD_DETACHED;
  if (callers == NULL || kumi_tcp_listen(&listener, "127.0.0.1:0") != 0) {
    fprintf(stderr, "%s\n", kumi_error_text());
    return 1;
  }
  getsockname(listener, (struct sockaddr *)&bound, &length);
  snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(bound.sin_port));
  for (i = 0; i < clients; i++) kumi_thread_create(&callers[i], NULL, call, callers);
  for (i = 0; i < clients; i++) {
    if (kumi_tcp_accept(&socket, listener, LIMIT) != 0) return 1;
    kumi_thread_create(&server, &detached, serve, (void *)(intptr_t)socket);
  }
  for (i = 0; i < clients; i++) {
    void *result;
    kumi_thread_join(callers[i], &result);
    right += result != NULL;
  }
  free(callers);
  printf("%d of %d replies\n", right, clients);
  return kumi_tcp_close(listener);
}
