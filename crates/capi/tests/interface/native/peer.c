/* One side of a gate in C: `peer serve NAME THREADS`, until standard input ends,
 * `peer call NAME`, or `peer dig THREADS`. The first byte of a request selects the action. */
#include <errno.h>
#include <kumihimo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                                   \
  do {                                                                                                \
    if (!(what)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s does not hold; %s\n", __FILE__, __LINE__, #what, kumi_error_text()); \
      exit(1);                                                                                        \
    }                                                                                                 \
  } while (0)

/* Overflows the stack. */
static unsigned long deep(unsigned long depth) {
  volatile unsigned char room[512];
  room[depth % 512] = (unsigned char)depth;
  return depth == 0 ? 0 : deep(depth + 1) + room[depth % 512];
}

static int handle(const void *request, size_t length, kumi_reply *reply, const kumi_caller *caller, void *arg) {
  const unsigned char *bytes = request;
  char said[64];
  kumi_region *region;
  size_t i, n, sum = 0;
  int error;
  CHECK(strcmp(arg, "the argument") == 0);
  CHECK(caller->size == sizeof *caller && caller->priority < 64 && caller->uid == getuid());
  if (length == 0) return 0;
  switch (bytes[0]) {
  case 'e': /* echo */
    error = kumi_reply_set(reply, bytes, 1);
    return error ? error : kumi_reply_append(reply, bytes + 1, length - 1);
  case 'f': /* fail with a message */
    return kumi_reply_fail(reply, EINVAL, "no such book");
  case 'n': /* fail without a message */
    return ENOENT;
  case 'w': /* caller's pid, and whether it has a deadline */
    snprintf(said, sizeof said, "%u %d", (unsigned)caller->pid, caller->left_ns != UINT64_MAX);
    return kumi_reply_set(reply, said, strlen(said));
  case 's': /* sum of a region, which goes back */
    error = kumi_request_region(reply, 0, &region);
    if (error) return error;
    bytes = kumi_region_data(region, &n);
    for (i = 0; i < n; i++) sum += bytes[i];
    error = kumi_reply_region(reply, region);
    kumi_region_free(region);
    CHECK(kumi_request_region(reply, 1, &region) == ERANGE && region == NULL);
    snprintf(said, sizeof said, "%zu", sum);
    return error ? error : kumi_reply_set(reply, said, strlen(said));
  case 'd': /* overflow the stack */
    return (int)deep(1);
  case 'z': /* block in the kernel */
    usleep(1000);
    return kumi_reply_unwanted(reply) ? ECANCELED : 0;
  default:
    return kumi_reply_fail(reply, 0, "what?");
  }
}

static int serve(const char *name, const char *threads) {
  kumi_options options = KUMI_OPTIONS_INIT;
  kumi_serving *serving, *second;
  char argument[] = "the argument";
  options.threads = (uint32_t)atoi(threads);
  options.in_flight = 64;
  CHECK(kumi_gate_serve(&serving, name, &options, handle, argument) == 0);
  CHECK(kumi_gate_serve(&second, name, &options, handle, argument) == EADDRINUSE && second == NULL);
  puts("serving");
  fflush(stdout);
  while (getchar() != EOF) continue;
  printf("handled %d\n", kumi_serving_handled(serving) > 0);
  CHECK(kumi_serving_close(serving) == 0);
  memset(argument, 0, sizeof argument);
  return 0;
}

static int call(const char *name) {
  static unsigned char large[100000];
  kumi_options options = KUMI_OPTIONS_INIT;
  kumi_bytes reply = KUMI_BYTES_INIT;
  kumi_region *region, *back[4];
  const kumi_region *passed[1];
  kumi_gate *gate;
  size_t n = 4, i;
  void *data;
  CHECK(kumi_version() == KUMI_VERSION);
  CHECK(kumi_gate_connect(&gate, "nobody serves this", NULL) == ENOENT && gate == NULL && *kumi_error_text());
  options.placement = KUMI_SCHEDULED;
  options.priority = 40;
  CHECK(kumi_gate_connect(&gate, name, &options) == 0);
  for (i = 0; i < 1000; i++) {
    char request[32];
    snprintf(request, sizeof request, "e%zu", i);
    CHECK(kumi_gate_call(gate, request, strlen(request), &reply, -1) == 0);
    CHECK(reply.length == strlen(request) && memcmp(reply.data, request, reply.length) == 0);
  }
  memset(large, 7, sizeof large);
  large[0] = 'e';
  CHECK(kumi_gate_call(gate, large, sizeof large, &reply, 30000000000) == 0);
  CHECK(reply.length == sizeof large && memcmp(reply.data, large, sizeof large) == 0);
  CHECK(kumi_gate_call(gate, NULL, 0, &reply, -1) == 0 && reply.length == 0);
  CHECK(kumi_gate_call(gate, "f", 1, &reply, -1) == EINVAL && strstr(kumi_error_text(), "no such book") && reply.length == 0);
  CHECK(kumi_gate_call(gate, "n", 1, NULL, -1) == ENOENT);
  CHECK(kumi_gate_call(gate, "?", 1, NULL, -1) == EREMOTEIO && strstr(kumi_error_text(), "what?"));
  CHECK(kumi_gate_call(gate, "z", 1, NULL, -1) == 0);
  CHECK(kumi_gate_call(gate, "w", 1, &reply, 30000000000) == 0);
  CHECK(strtoul(reply.data, NULL, 10) == (unsigned long)getpid());
  CHECK(kumi_gate_send(gate, "e", 1) == 0);
  CHECK(kumi_region_new(&region, 5000, &data) == 0);
  memset(data, 2, 5000);
  passed[0] = region;
  CHECK(kumi_gate_call_regions(gate, "s", 1, passed, 1, &reply, back, &n, -1) == EINVAL && n == 4);
  CHECK(kumi_region_seal(region) == 0 && kumi_region_seal(region) == 0);
  CHECK(kumi_gate_call_regions(gate, "s", 1, passed, 1, &reply, back, &n, -1) == 0);
  CHECK(reply.length == 5 && memcmp(reply.data, "10000", 5) == 0 && n == 1);
  CHECK(kumi_gate_call_regions(gate, "w", 1, passed, 1, &reply, NULL, NULL, -1) == 0);
  CHECK(((char *)reply.data)[reply.length - 1] == '0');
  CHECK(kumi_gate_call_regions(gate, "w", 1, passed, 1, &reply, NULL, NULL, 30000000000) == 0);
  CHECK(((char *)reply.data)[reply.length - 1] == '1');
  data = (void *)kumi_region_data(back[0], &n);
  CHECK(n == 5000 && memcmp(data, kumi_region_data(region, NULL), n) == 0);
  kumi_region_free(back[0]);
  kumi_region_free(region);
  kumi_bytes_free(&reply);
  CHECK(reply.data == NULL);
  kumi_gate_close(gate);
  puts("all is well");
  return 0;
}

/* Overflows a handler's stack. */
static int dig(const char *threads) {
  kumi_options options = KUMI_OPTIONS_INIT;
  kumi_serving *serving;
  kumi_gate *gate;
  char argument[] = "the argument";
  options.threads = (uint32_t)atoi(threads);
  CHECK(kumi_gate_serve(&serving, "digs", &options, handle, argument) == 0);
  CHECK(kumi_gate_connect(&gate, "digs", NULL) == 0);
  kumi_gate_call(gate, "d", 1, NULL, -1);
  return 3;
}

int main(int count, char **words) {
  if (count == 4 && strcmp(words[1], "serve") == 0) return serve(words[2], words[3]);
  if (count == 3 && strcmp(words[1], "call") == 0) return call(words[2]);
  if (count == 3 && strcmp(words[1], "dig") == 0) return dig(words[2]);
  return 2;
}
