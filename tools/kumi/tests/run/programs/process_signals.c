/* Signals for the process: the first thread blocks them, and threads that wait have them open. What
 * waits, in which order, and who takes it: sigwait, sigtimedwait, sigsuspend, signalfd, sigpending. */
#include "check.h"

#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>

static atomic_int handled, last;
static _Atomic pthread_t by;
static sem_t never, begun, heard;

static void handler(int signal) {
    by = pthread_self();
    last = signal;
    handled++;
    sem_post(&heard);
}

static sigset_t set_of(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    if (a) sigaddset(&set, a);
    if (b) sigaddset(&set, b);
    return set;
}

static void unblock(int signal) {
    sigset_t set = set_of(signal, 0);
    RETURNS(0, pthread_sigmask(SIG_UNBLOCK, &set, NULL));
}

/* Has one signal open, and waits for its handler, which may also run before the wait. */
static void *hears(void *signal) {
    unblock((int)(long)signal);
    sem_post(&begun);
    while (sem_wait(&heard) != 0) CHECK(errno == EINTR);
    return NULL;
}

/* Waits with everything blocked. */
static void *is_deaf(void *argument) {
    (void)argument;
    sem_post(&begun);
    RETURNS(0, sem_wait(&never));
    return NULL;
}

static void *suspends(void *argument) {
    (void)argument;
    sigset_t all_but, before, after;
    sigfillset(&all_but);
    sigdelset(&all_but, SIGALRM);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    sem_post(&begun);
    RETURNS(-1, sigsuspend(&all_but));
    CHECK(errno == EINTR && last == SIGALRM);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHECK(sigismember(&before, SIGALRM) == 1 && sigismember(&after, SIGALRM) == 1);
    return NULL;
}

/* Real-time signals wait in the order in which they were sent, others once. */
static void *takes_in_order(void *argument) {
    (void)argument;
    sigset_t set = set_of(SIGRTMIN + 1, SIGUSR2), pending;
    siginfo_t info;
    for (int i = 0; i < 3; i++) {
        union sigval value = {.sival_int = i};
        RETURNS(0, pthread_sigqueue(pthread_self(), SIGRTMIN + 1, value));
        RETURNS(0, pthread_kill(pthread_self(), SIGUSR2));
    }
    RETURNS(0, sigpending(&pending));
    CHECK(sigismember(&pending, SIGRTMIN + 1) == 1 && sigismember(&pending, SIGUSR2) == 1);
    CHECK(sigismember(&pending, SIGUSR1) == 0);
    RETURNS(SIGUSR2, sigwaitinfo(&set, &info));
    /* As the C library tells it. */
    CHECK(info.si_code == SI_USER && info.si_pid == getpid());
    for (int i = 0; i < 3; i++) {
        RETURNS(SIGRTMIN + 1, sigwaitinfo(&set, &info));
        CHECK(info.si_value.sival_int == i && info.si_code == SI_QUEUE);
    }
    struct timespec soon = {0, 2000000}, wrong = {0, 1000000000};
    RETURNS(-1, sigtimedwait(&set, &info, &soon));
    CHECK(errno == EAGAIN);
    RETURNS(-1, sigtimedwait(&set, &info, &wrong));
    CHECK(errno == EINVAL);
    return NULL;
}

/* Takes a signal that another thread sends to it while it waits. */
static void *waits_for_one(void *argument) {
    int signal;
    sigset_t set = set_of(SIGUSR2, 0);
    sem_post(&begun);
    RETURNS(0, sigwait(&set, &signal));
    CHECK(signal == SIGUSR2);
    *(atomic_int *)argument = 1;
    return NULL;
}

static void *reads_descriptor(void *descriptor) {
    struct signalfd_siginfo info;
    sem_post(&begun);
    RETURNS(sizeof info, read((int)(long)descriptor, &info, sizeof info));
    CHECK(info.ssi_signo == SIGCHLD);
    return NULL;
}

int main(void) {
    sigset_t all;
    sigfillset(&all);
    RETURNS(0, pthread_sigmask(SIG_SETMASK, &all, NULL));
    struct sigaction action = {.sa_handler = handler};
    int numbers[] = {SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGRTMIN + 3};
    for (int i = 0; i < 5; i++) RETURNS(0, sigaction(numbers[i], &action, NULL));
    sem_init(&never, 0, 0);
    sem_init(&begun, 0, 0);
    sem_init(&heard, 0, 0);

    pthread_t deaf[5];
    for (int i = 0; i < 5; i++) deaf[i] = create(is_deaf, NULL);
    for (int i = 0; i < 5; i++) sem_wait(&begun);

    /* Each goes to the one thread that has it open. */
    for (int i = 0; i < 5; i++) {
        pthread_t thread = create(hears, (void *)(long)numbers[i]);
        sem_wait(&begun);
        usleep(5000);
        int before = handled;
        if (numbers[i] == SIGALRM) {
            struct itimerval soon = {{0, 0}, {0, 1000}};
            RETURNS(0, setitimer(ITIMER_REAL, &soon, NULL));
        } else if (numbers[i] == SIGCHLD) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            CHECK(waitpid(child, NULL, 0) == child);
        } else {
            RETURNS(0, kill(getpid(), numbers[i]));
        }
        join(thread);
        CHECK(handled == before + 1 && last == numbers[i] && pthread_equal(by, thread));
    }

    /* What nobody has open waits for the process, until a thread opens it. */
    int before = handled;
    RETURNS(0, kill(getpid(), SIGUSR1));
    usleep(20000);
    sigset_t pending;
    RETURNS(0, sigpending(&pending));
    CHECK(sigismember(&pending, SIGUSR1) == 1 && handled == before);
    unblock(SIGUSR1);
    CHECK(handled == before + 1 && pthread_equal(by, pthread_self()));
    RETURNS(0, pthread_sigmask(SIG_SETMASK, &all, NULL));

    pthread_t thread = create(suspends, NULL);
    sem_wait(&begun);
    usleep(5000);
    RETURNS(0, kill(getpid(), SIGALRM));
    join(thread);

    join(create(takes_in_order, NULL));

    atomic_int is_taken = 0;
    thread = create(waits_for_one, &is_taken);
    sem_wait(&begun);
    usleep(5000);
    RETURNS(0, pthread_kill(thread, SIGUSR2));
    join(thread);
    CHECK(is_taken == 1);
    is_taken = 0;
    thread = create(waits_for_one, &is_taken);
    sem_wait(&begun);
    usleep(5000);
    RETURNS(0, kill(getpid(), SIGUSR2));
    join(thread);
    CHECK(is_taken == 1);

    sigset_t child_set = set_of(SIGCHLD, 0);
    int descriptor = signalfd(-1, &child_set, SFD_CLOEXEC);
    CHECK(descriptor >= 0);
    thread = create(reads_descriptor, (void *)(long)descriptor);
    sem_wait(&begun);
    usleep(5000);
    pid_t child = fork();
    if (child == 0) _exit(0);
    join(thread);
    CHECK(waitpid(child, NULL, 0) == child);

    for (int i = 0; i < 5; i++) sem_post(&never);
    for (int i = 0; i < 5; i++) join(deaf[i]);
    return succeed();
}
