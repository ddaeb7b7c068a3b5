/* A collector stops a thousand threads by one signal, and lets them go on by another one that comes
 * while their handler waits in sigsuspend. Threads compute, wait, sleep and allocate. */
#include "check.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

enum { THREADS = 1000, ROUNDS = 3 };

static struct world {
    pthread_t id;
    char *low, *high;
    char *volatile stopped_at;
    volatile long steps;
} all[THREADS];

static __thread struct world *mine;
static sem_t acknowledged, never;
static atomic_int is_over, round_now;

static void stops(int signal) {
    char here;
    int before = errno, round = round_now;
    sigset_t but;
    (void)signal;
    sigfillset(&but);
    sigdelset(&but, SIGUSR2);
    mine->stopped_at = &here;
    sem_post(&acknowledged);
    while (round_now == round) CHECK(sigsuspend(&but) == -1 && errno == EINTR);
    sem_post(&acknowledged);
    errno = before;
}

static void goes_on(int signal) {
    (void)signal;
}

static void *body(void *argument) {
    pthread_attr_t own;
    size_t size;
    void *low;
    mine = argument;
    RETURNS(0, pthread_getattr_np(pthread_self(), &own));
    RETURNS(0, pthread_attr_getstack(&own, &low, &size));
    pthread_attr_destroy(&own);
    mine->low = low;
    mine->high = mine->low + size;
    sem_post(&acknowledged);
    while (!is_over) {
        long index = mine - all;
        mine->steps++;
        if (index % 100 == 0) continue;
        if (index % 4 == 1) usleep(2000);
        else if (index % 4 == 2) free(malloc(64 + (size_t)index));
        else while (!is_over && sem_wait(&never) && errno == EINTR) ;
        if (index % 4 == 2) usleep(1000);
    }
    return NULL;
}

static void acknowledge(void) {
    for (int i = 0; i < THREADS; i++) {
        while (sem_wait(&acknowledged)) CHECK(errno == EINTR);
    }
}

int main(void) {
    struct sigaction action = {.sa_handler = stops, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    RETURNS(0, sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = goes_on;
    RETURNS(0, sigaction(SIGUSR2, &action, NULL));
    RETURNS(0, sem_init(&acknowledged, 0, 0));
    RETURNS(0, sem_init(&never, 0, 0));
    pthread_attr_t small;
    RETURNS(0, pthread_attr_init(&small));
    RETURNS(0, pthread_attr_setstacksize(&small, 64 << 10));
    for (int i = 0; i < THREADS; i++) RETURNS(0, pthread_create(&all[i].id, &small, body, &all[i]));
    acknowledge();
    for (int round = 0; round < ROUNDS; round++) {
        static long before[THREADS];
        for (int i = 0; i < THREADS; i++) RETURNS(0, pthread_kill(all[i].id, SIGUSR1));
        acknowledge();
        for (int i = 0; i < THREADS; i++) {
            CHECK(all[i].stopped_at > all[i].low && all[i].stopped_at < all[i].high);
            before[i] = all[i].steps;
        }
        usleep(2000);
        for (int i = 0; i < THREADS; i++) CHECK(all[i].steps == before[i]);
        round_now++;
        for (int i = 0; i < THREADS; i++) RETURNS(0, pthread_kill(all[i].id, SIGUSR2));
        acknowledge();
    }
    is_over = 1;
    for (int i = 0; i < THREADS; i++) sem_post(&never);
    for (int i = 0; i < THREADS; i++) join(all[i].id);
    return succeed();
}
