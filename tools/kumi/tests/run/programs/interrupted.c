// signal(7): which waits a handler ends, with SA_RESTART and without. The handler runs in the thread
// that the signal was sent to, on its stack.
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include "check.h"

static __thread int own;
static atomic_int handled, begun;
static int pair[2], ends[2], full[2], counter, set, listener;
static sem_t never;
static uint32_t word;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_spinlock_t spin;
static atomic_int is_over, has_returned;
static pthread_t sleeper;

static void handler(int signal, siginfo_t *info, void *context) {
    (void)context;
    CHECK(own == 42 && signal == SIGUSR1);
    CHECK(info->si_code == SI_TKILL && info->si_pid == getpid());
    // Only the first time: a further signal may come after the wait and before its errno is read.
    if (handled++ == 0) errno = E2BIG;
}

static struct timespec in(int clock, int milliseconds) {
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_nsec += milliseconds % 1000 * 1000000L;
    at.tv_sec += milliseconds / 1000 + at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void *sleeps(void *unused) {
    (void)unused;
    while (!is_over) usleep(1000);
    return NULL;
}

enum { FAR = 20000 };
static const struct timespec far = {FAR / 1000, 0};

// Waits for the call of this name; returns its result, and leaves its error in errno.
static long wait_in(int call) {
    char byte;
    struct pollfd one = {ends[0], POLLIN, 0}, two[2] = {{ends[0], POLLIN, 0}, {pair[0], POLLIN, 0}};
    struct epoll_event event;
    struct timespec at, left;
    struct timeval time = {FAR / 1000, 0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    uint64_t value;
    fd_set read_set;
    FD_ZERO(&read_set);
    FD_SET(ends[0], &read_set);
    static char much[1 << 20];
    switch (call) {
    case 0: return read(pair[0], &byte, 1);
    case 1: return recv(pair[0], &byte, 1, 0);
    case 2: return recvmsg(pair[0], &message, 0);
    case 3: return readv(pair[0], &part, 1);
    case 4: return read(ends[0], &byte, 1);
    case 5: return read(counter, &value, 8);
    case 6: return accept(listener, NULL, NULL);
    case 7: return send(full[0], much, sizeof much, 0);
    case 8: return sem_wait(&never);
    case 9: at = in(CLOCK_REALTIME, FAR); return sem_timedwait(&never, &at);
    case 10: return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL);
    case 11: return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &far);
    case 12: return poll(&one, 1, FAR);
    case 13: return poll(two, 2, -1);
    case 14: return ppoll(&one, 1, &far, NULL);
    case 15: return select(ends[0] + 1, &read_set, NULL, NULL, &time);
    case 16: return epoll_wait(set, &event, 1, FAR);
    case 17: left.tv_sec = 0; return nanosleep(&far, &left) + (left.tv_sec >= FAR / 1000 - 5 ? 0 : 100);
    case 18: errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &far, &left); return errno ? -1 : 0;
    case 19: at = in(CLOCK_MONOTONIC, FAR); errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL); return errno ? -1 : 0;
    case 20: return usleep(FAR * 1000);
    case 21: return sleep(FAR / 1000) > FAR / 1000 - 5 ? (errno = EINTR, -1) : 0;
    case 22: return pause();
    case 23: { sigset_t none; sigemptyset(&none); return sigsuspend(&none); }
    case 24: errno = pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); return errno ? -1 : 0;
    case 25: errno = pthread_rwlock_rdlock(&lock); pthread_rwlock_unlock(&lock); return errno ? -1 : 0;
    case 26: errno = pthread_rwlock_wrlock(&lock); pthread_rwlock_unlock(&lock); return errno ? -1 : 0;
    case 27: at = in(CLOCK_REALTIME, FAR); errno = pthread_mutex_timedlock(&mutex, &at); pthread_mutex_unlock(&mutex); return errno ? -1 : 0;
    case 28:
        pthread_mutex_lock(&mutex);
        int error = 0;
        while (!is_over && !error) error = pthread_cond_wait(&condition, &mutex);
        pthread_mutex_unlock(&mutex);
        errno = error;
        return error ? -1 : 0;
    case 29: errno = pthread_barrier_wait(&barrier) > 0; return errno ? -1 : 0;
    case 30: errno = pthread_spin_lock(&spin); pthread_spin_unlock(&spin); return errno ? -1 : 0;
    case 31: errno = pthread_join(sleeper, NULL); return errno ? -1 : 0;
    default: return -2;
    }
}

// Ends the waits that a handler has not ended.
static void let_go(int call) {
    char byte = 'x';
    uint64_t one = 1;
    static char drain[1 << 16];
    is_over = 1;
    switch (call) {
    case 0: case 1: case 2: case 3: CHECK(write(pair[1], &byte, 1) == 1); break;
    case 4: CHECK(write(ends[1], &byte, 1) == 1); break;
    case 5: CHECK(write(counter, &one, 8) == 8); break;
    case 6: shutdown(listener, SHUT_RDWR); break;
    case 7: while (!has_returned) recv(full[1], drain, sizeof drain, MSG_DONTWAIT); break;
    case 8: case 9: sem_post(&never); break;
    case 10: case 11: word = 1; syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1); break;
    case 24: case 27: pthread_mutex_unlock(&mutex); break;
    case 25: case 26: pthread_rwlock_unlock(&lock); break;
    case 28: pthread_mutex_lock(&mutex); pthread_cond_signal(&condition); pthread_mutex_unlock(&mutex); break;
    case 29: pthread_barrier_wait(&barrier); break;
    case 30: pthread_spin_unlock(&spin); break;
    }
}

// 1: a handler ends the wait. 2: it does unless it has SA_RESTART. 0: it never does.
static const int ENDS[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 2, 1, 1, 1, 1, 1,
                           1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};

static void *target(void *call) {
    int which = (int)(long)call;
    own = 42;
    begun = 1;
    errno = 0;
    long result = wait_in(which);
    has_returned = 1;
    if (result == -1 && errno == EINTR) return (void *)1;
    if (result == -1 && which != 6) return (void *)(100L + errno);
    return NULL;
}

int main(void) {
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_sigaction = handler};
        action.sa_flags = SA_SIGINFO | (restarts ? SA_RESTART : 0);
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        for (int call = 0; call < (int)(sizeof ENDS / sizeof *ENDS); call++) {
            pthread_t thread;
            void *interrupted;
            int is_ended = ENDS[call] == 1 || (ENDS[call] == 2 && !restarts);
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(ends) == 0);
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, full) == 0);
            while (send(full[0], "0123456789", 10, MSG_DONTWAIT) > 0) ;
            counter = eventfd(0, 0);
            set = epoll_create1(0);
            struct epoll_event wanted = {.events = EPOLLIN};
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &wanted) == 0);
            listener = socket(AF_INET, SOCK_STREAM, 0);
            CHECK(listen(listener, 5) == 0);
            sem_init(&never, 0, 0);
            pthread_barrier_init(&barrier, NULL, 2);
            pthread_spin_init(&spin, 0);
            word = 0;
            is_over = begun = handled = has_returned = 0;
            if (call == 24 || call == 27) pthread_mutex_lock(&mutex);
            if (call == 25 || call == 26) pthread_rwlock_wrlock(&lock);
            if (call == 30) pthread_spin_lock(&spin);
            CHECK(pthread_create(&sleeper, NULL, sleeps, NULL) == 0);
            CHECK(pthread_create(&thread, NULL, target, (void *)(long)call) == 0);
            while (!begun) usleep(100);
            // A signal that comes before the wait ends nothing: until the first one has been handled
            // in the wait, further ones are sent.
            usleep(20000);
            CHECK(pthread_kill(thread, SIGUSR1) == 0);
            while (!handled) usleep(100);
            if (is_ended) {
                while (pthread_tryjoin_np(thread, &interrupted) == EBUSY) {
                    pthread_kill(thread, SIGUSR1);
                    usleep(1000);
                }
            } else {
                usleep(5000);
                CHECK(pthread_tryjoin_np(thread, &interrupted) == EBUSY);
                let_go(call);
                CHECK(pthread_join(thread, &interrupted) == 0);
            }
            if ((long)interrupted != is_ended) {
                printf("call %d, restarts %d: %ld\n", call, restarts, (long)interrupted);
                return 1;
            }
            is_over = 1;
            if (call != 31 || is_ended) pthread_join(sleeper, NULL);
            close(pair[0]), close(pair[1]), close(ends[0]), close(ends[1]), close(full[0]), close(full[1]);
            close(counter), close(set), close(listener);
        }
    }
    puts("ok");
}
