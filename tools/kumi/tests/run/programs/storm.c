/* A handler of a timer, a thousand times a second, that posts a semaphore and writes to a pipe, while
 * a hundred threads wait for objects of one bucket; and signals to each of them at the same time. */
#include "check.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

enum { THREADS = 100, TICKS = 300 };

static sem_t ticks;
static int ends[2];
static atomic_int handled, told;
static atomic_long bytes;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int is_over;
static long turns;

static void tick(int signal) {
    (void)signal;
    int before = errno;
    sem_post(&ticks);
    if (write(ends[1], "t", 1) == 1) bytes++;
    errno = before;
    handled++;
}

static void is_told(int signal) {
    (void)signal;
    told++;
}

static void *waits(void *argument) {
    long own = (long)argument;
    pthread_mutex_lock(&mutex);
    while (!is_over) {
        struct timespec at = in_milliseconds(CLOCK_REALTIME, 1 + own % 5);
        int error = own % 2 ? pthread_cond_wait(&condition, &mutex)
                            : pthread_cond_timedwait(&condition, &mutex, &at);
        CHECK(error == 0 || error == ETIMEDOUT);
        turns++;
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void *takes(void *argument) {
    (void)argument;
    for (int i = 0; i < TICKS; i++) {
        while (sem_wait(&ticks)) CHECK(errno == EINTR);
        pthread_mutex_lock(&mutex);
        if (i % 3) pthread_cond_signal(&condition);
        else pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *reads(void *argument) {
    (void)argument;
    char buffer[64];
    long got = 0;
    while (got < TICKS) {
        long part = read(ends[0], buffer, sizeof buffer);
        if (part < 0) CHECK(errno == EINTR);
        else got += part;
    }
    return NULL;
}

int main(void) {
    RETURNS(0, sem_init(&ticks, 0, 0));
    RETURNS(0, pipe(ends));
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    RETURNS(0, sigaction(SIGALRM, &action, NULL));
    action.sa_handler = is_told;
    RETURNS(0, sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) threads[i] = create(waits, (void *)i);
    pthread_t taker = create(takes, NULL), reader = create(reads, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    RETURNS(0, setitimer(ITIMER_REAL, &often, NULL));
    int sent = 0;
    while (handled < TICKS) {
        for (int i = 0; i < THREADS; i += 7) {
            RETURNS(0, pthread_kill(threads[i], SIGUSR1));
            sent++;
        }
        usleep(500);
    }
    join(taker);
    join(reader);
    RETURNS(0, setitimer(ITIMER_REAL, &never, NULL));
    CHECK(told > 0 && told <= sent);
    pthread_mutex_lock(&mutex);
    is_over = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    CHECK(turns > 0 && bytes >= TICKS);
    return succeed();
}
