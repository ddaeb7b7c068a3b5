/* Checks for the programs of tools/kumi/tests/run. A program prints one line: `ok`, or the first
 * check that failed. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                 \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Checks that a call returns `wanted`, and prints what it returned instead. */
#define RETURNS(wanted, call)                                                                      \
    do {                                                                                           \
        long returned = (long)(call);                                                              \
        if (returned != (long)(wanted)) {                                                          \
            printf("%s:%d: %s returned %ld, errno %d\n", __FILE__, __LINE__, #call, returned,      \
                   errno);                                                                         \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static inline int succeed(void) {
    puts("ok");
    return 0;
}

/* The time on `clock`, `milliseconds` from now. */
static inline struct timespec in_milliseconds(clockid_t clock, long milliseconds) {
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_sec += milliseconds / 1000;
    at.tv_nsec += milliseconds % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

static inline int is_before(struct timespec a, struct timespec b) {
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

/* Whether the time on `clock` has come. */
static inline int has_come(clockid_t clock, struct timespec at) {
    struct timespec now;
    clock_gettime(clock, &now);
    return !is_before(now, at);
}

/* Creates a thread with default attributes. */
static inline pthread_t create(void *(*routine)(void *), void *argument) {
    pthread_t thread;
    RETURNS(0, pthread_create(&thread, NULL, routine, argument));
    return thread;
}

/* Joins the thread and returns its value. */
static inline void *join(pthread_t thread) {
    void *value = NULL;
    RETURNS(0, pthread_join(thread, &value));
    return value;
}

#endif
