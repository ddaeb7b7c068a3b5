/* Checks of the test programs, and the choice of a case by the first argument. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <kumihimo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000LL
#define LONG (30000 * MS) /* only a hang exceeds it */

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);           \
      abort();                                                                  \
    }                                                                           \
  } while (0)

/* The call returns this errno, and a message belongs to each failure. */
#define RETURNS(number, call)                                                   \
  do {                                                                          \
    int returned = (call);                                                      \
    if (returned != (number) || (returned != 0 && kumi_error_text()[0] == 0)) { \
      fprintf(stderr, "%s:%d: %s: %d (%s), not %d: %s\n", __FILE__, __LINE__, #call, returned, \
              strerror(returned), (number), kumi_error_text());                 \
      abort();                                                                  \
    }                                                                           \
  } while (0)

struct named_case {
  const char *name;
  void (*run)(void);
};

static kumi_thread start(void *(*routine)(void *), void *arg) {
  kumi_thread thread = 0;
  RETURNS(0, kumi_thread_create(&thread, NULL, routine, arg));
  CHECK(thread != 0);
  return thread;
}

static void *join(kumi_thread thread) {
  void *result = NULL;
  RETURNS(0, kumi_thread_timedjoin(thread, &result, LONG));
  return result;
}

static void *run_case(void *run) {
  (*(void (**)(void))run)();
  CHECK(kumi_thread_is_microprocess());
  return NULL;
}

/* Runs a case on the main thread, before a runtime has started, and on a microprocess. */
static int run_cases(int count, char **arguments, const struct named_case *cases) {
  const struct named_case *one;
  for (one = cases; one->name != NULL; one++) {
    if (count > 1 && strcmp(arguments[1], one->name) == 0) {
      void (*run)(void) = one->run;
      CHECK(!kumi_thread_is_microprocess());
      run();
      CHECK(join(start(run_case, &run)) == NULL);
      printf("all is well\n");
      return 0;
    }
  }
  fprintf(stderr, "no such case\n");
  return 2;
}

#endif
