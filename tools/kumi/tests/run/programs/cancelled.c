/* Cancellation: each waiting call is a cancellation point, locks are not; states and types; cleanup
 * handlers in reverse order, with the mutex of a condition wait held. */
#include "check.h"

#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

static int pair[2], ends[2], set, listener;
static sem_t never;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static pthread_t sleeper;
static atomic_int begun, is_over, key_ended;
static __thread int order;
static int seen_order;

static void first_pushed(void *argument) {
    (void)argument;
    seen_order = order * 10 + 1;
}

static void last_pushed(void *with_mutex) {
    order = order * 10 + 2;
    if (with_mutex) {
        CHECK(pthread_mutex_trylock(with_mutex) == EBUSY);
        RETURNS(0, pthread_mutex_unlock(with_mutex));
    }
    /* A wait of a handler is not cancelled once more. */
    usleep(100);
}

static void key_ends(void *value) {
    CHECK(value == &key);
    key_ended++;
}

static void *sleeps(void *argument) {
    (void)argument;
    while (!is_over) usleep(1000);
    return NULL;
}

enum { CALLS = 22 };

static void wait_in(long call) {
    char byte;
    struct pollfd one = {ends[0], POLLIN, 0}, two[2] = {{ends[0], POLLIN, 0}, {pair[0], POLLIN, 0}};
    struct epoll_event event;
    struct timespec at = in_milliseconds(CLOCK_REALTIME, 60000), far = {60, 0};
    fd_set reads;
    sigset_t none;
    int signal;
    FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
    sigemptyset(&none);
    switch (call) {
    case 0: read(pair[0], &byte, 1); break;
    case 1: recv(pair[0], &byte, 1, 0); break;
    case 2: read(ends[0], &byte, 1); break;
    case 3: accept(listener, NULL, NULL); break;
    case 4: sem_wait(&never); break;
    case 5: sem_timedwait(&never, &at); break;
    case 6: poll(&one, 1, -1); break;
    case 7: poll(two, 2, 60000); break;
    case 8: select(ends[0] + 1, &reads, NULL, NULL, NULL); break;
    case 9: epoll_wait(set, &event, 1, -1); break;
    case 10: nanosleep(&far, NULL); break;
    case 11: clock_nanosleep(CLOCK_MONOTONIC, 0, &far, NULL); break;
    case 12: usleep(60000000); break;
    case 13: sleep(60); break;
    case 14: pause(); break;
    case 15: sigsuspend(&none); break;
    case 16: pthread_join(sleeper, NULL); break;
    case 17: sigaddset(&none, SIGUSR2); sigwait(&none, &signal); break;
    case 18: pthread_cond_wait(&condition, &mutex); break;
    case 19: pthread_cond_timedwait(&condition, &mutex, &at); break;
    case 20: for (;;) pthread_testcancel();
    case 21:
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
        for (volatile long i = 0;; i++) ;
    }
}

static void *body(void *call) {
    int has_mutex = (long)call == 18 || (long)call == 19;
    RETURNS(0, pthread_setspecific(key, &key));
    if (has_mutex) pthread_mutex_lock(&mutex);
    pthread_cleanup_push(first_pushed, NULL);
    pthread_cleanup_push(last_pushed, has_mutex ? &mutex : NULL);
    begun = 1;
    for (;;) wait_in((long)call);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Not cancelled while that is disabled, nor in a lock. */
static void *defers(void *argument) {
    (void)argument;
    int before;
    RETURNS(0, pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
    CHECK(before == PTHREAD_CANCEL_ENABLE);
    begun = 1;
    while (!is_over) usleep(200);
    pthread_testcancel();
    RETURNS(0, pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before));
    RETURNS(0, pthread_mutex_lock(&other));
    RETURNS(0, pthread_mutex_unlock(&other));
    order = 1;
    pthread_cleanup_push(first_pushed, NULL);
    pthread_testcancel();
    CHECK(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *cancels_itself(void *argument) {
    (void)argument;
    RETURNS(0, pthread_cancel(pthread_self()));
    usleep(1);
    CHECK(0);
    return NULL;
}

int main(void) {
    RETURNS(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    RETURNS(0, pipe(ends));
    set = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN};
    RETURNS(0, epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &wanted));
    listener = socket(AF_INET, SOCK_STREAM, 0);
    RETURNS(0, listen(listener, 5));
    RETURNS(0, sem_init(&never, 0, 0));
    RETURNS(0, pthread_key_create(&key, key_ends));
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    RETURNS(0, pthread_sigmask(SIG_BLOCK, &blocked, NULL));
    sleeper = create(sleeps, NULL);
    for (long call = 0; call < CALLS; call++) {
        begun = 0;
        key_ended = 0;
        pthread_t thread = create(body, (void *)call);
        while (!begun) usleep(100);
        usleep(2000);
        RETURNS(0, pthread_cancel(thread));
        void *value = join(thread);
        if (value != PTHREAD_CANCELED || seen_order != 21 || key_ended != 1) {
            printf("call %ld: %p, order %d, %d keys\n", call, value, seen_order, key_ended);
            return 1;
        }
    }
    RETURNS(0, pthread_mutex_trylock(&mutex));
    is_over = 1;
    join(sleeper);

    is_over = begun = 0;
    pthread_mutex_lock(&other);
    pthread_t thread = create(defers, NULL);
    while (!begun) usleep(100);
    RETURNS(0, pthread_cancel(thread));
    usleep(2000);
    is_over = 1;
    usleep(2000);
    pthread_mutex_unlock(&other);
    CHECK(join(thread) == PTHREAD_CANCELED && seen_order == 11);
    CHECK(join(create(cancels_itself, NULL)) == PTHREAD_CANCELED);
    return succeed();
}
