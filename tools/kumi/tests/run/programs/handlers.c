/* Handlers: installed by each function, with each flag; nested, with masks of their own; on the
 * alternate stack of the thread; waiting; left by siglongjmp; and faults of the thread itself. */
#include "check.h"

#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* Volatile: raise(3) is declared to call nothing of this file. */
static __thread volatile int depth, deepest, order, faults;
static __thread sigjmp_buf back;
static __thread char *low, *high, *other_low, *other_high;
static sem_t unit;
static atomic_int resets;

static void note_stack(void) {
    pthread_attr_t own;
    void *at;
    size_t size;
    RETURNS(0, pthread_getattr_np(pthread_self(), &own));
    RETURNS(0, pthread_attr_getstack(&own, &at, &size));
    low = at;
    high = low + size;
}

static int is_blocked(int signal) {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    return sigismember(&now, signal);
}

static void inner(int signal) {
    (void)signal;
    order = order * 10 + 2;
}

/* Has SIGUSR2 in its mask: it comes after the end. */
static void outer(int signal) {
    char here;
    CHECK(&here > low && &here < high);
    CHECK(is_blocked(signal) && is_blocked(SIGUSR2) && !is_blocked(SIGTERM));
    RETURNS(0, raise(SIGUSR2));
    usleep(1000);
    order = order * 10 + 1;
}

static void nests(int signal) {
    depth++;
    if (depth > deepest) deepest = depth;
    if (depth < 5) raise(signal);
    depth--;
}

static void waits(int signal) {
    (void)signal;
    while (sem_wait(&unit)) CHECK(errno == EINTR);
    usleep(500);
    order = 7;
}

static void once(int signal) {
    (void)signal;
    resets++;
}

static void on_other_stack(int signal) {
    char here;
    (void)signal;
    CHECK(&here > other_low && &here < other_high);
    order = 5;
}

static void jumps(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    CHECK(signal == SIGSEGV && info->si_code == SEGV_ACCERR);
    faults++;
    usleep(200);
    siglongjmp(back, 2);
}

static void install(int signal, void (*handler)(int), int flags, int blocked) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, now;
    if (blocked) sigaddset(&action.sa_mask, blocked);
    RETURNS(0, sigaction(signal, &action, NULL));
    RETURNS(0, sigaction(signal, NULL, &now));
    CHECK(now.sa_handler == handler && (now.sa_flags & ~0x04000000) == flags);
    CHECK(!blocked || sigismember(&now.sa_mask, blocked) == 1);
}

static void *waits_once(void *argument) {
    (void)argument;
    while (resets < 3) usleep(200);
    usleep(3000);
    return NULL;
}

static void *returns(void *argument) {
    return argument;
}

/* A handler that serves once: further signals are ignored by default. */
static void *sends_twice(void *to) {
    for (int i = 0; i < 2; i++) {
        RETURNS(0, pthread_kill(*(pthread_t *)to, SIGURG));
        usleep(1000);
    }
    return NULL;
}

static void *body(void *page) {
    static __thread char other[64 << 10];
    note_stack();
    order = 0;
    raise(SIGUSR1);
    CHECK(order == 12 && !is_blocked(SIGUSR1) && !is_blocked(SIGUSR2));

    raise(SIGRTMIN);
    CHECK(deepest == 5 && depth == 0);

    sem_post(&unit);
    raise(SIGRTMIN + 1);
    CHECK(order == 7);

    stack_t stack = {.ss_sp = other, .ss_size = sizeof other}, before;
    RETURNS(0, sigaltstack(&stack, &before));
    CHECK(before.ss_flags == SS_DISABLE);
    other_low = other;
    other_high = other + sizeof other;
    raise(SIGRTMIN + 2);
    CHECK(order == 5);

    for (int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0) {
            raise(SIGRTMIN + 3);
            CHECK(0);
        }
        CHECK(!is_blocked(SIGRTMIN + 3));
        usleep(300);
        if (sigsetjmp(back, 1) == 0) {
            *(volatile char *)page = 1;
            CHECK(0);
        }
        CHECK(!is_blocked(SIGSEGV));
    }
    CHECK(faults == 3);
    stack.ss_flags = SS_DISABLE;
    RETURNS(0, sigaltstack(&stack, NULL));
    return NULL;
}

int main(void) {
    sem_init(&unit, 0, 0);
    install(SIGUSR1, outer, 0, SIGUSR2);
    join(create(returns, NULL));
    /* From here on through the library. */
    install(SIGUSR2, inner, SA_RESTART, 0);
    install(SIGRTMIN, nests, SA_NODEFER, 0);
    install(SIGRTMIN + 1, waits, 0, 0);
    install(SIGRTMIN + 2, on_other_stack, SA_ONSTACK, 0);
    install(SIGRTMIN + 3, jumps, 0, 0);
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    RETURNS(0, sigaction(SIGSEGV, &action, NULL));

    CHECK(signal(SIGTERM, once) == SIG_DFL && signal(SIGTERM, SIG_IGN) == once);
    RETURNS(0, raise(SIGTERM));
    CHECK(signal(SIGTERM, SIG_DFL) == SIG_IGN && resets == 0);
    RETURNS(-1, sigaction(SIGKILL, &action, NULL));
    CHECK(errno == EINVAL);
    RETURNS(-1, sigaction(0, &action, NULL));
    CHECK(errno == EINVAL);
    RETURNS(-1, sigaction(65, &action, NULL));
    CHECK(errno == EINVAL);

    install(SIGWINCH, once, SA_RESETHAND, 0);
    RETURNS(0, raise(SIGWINCH));
    RETURNS(0, raise(SIGWINCH));
    CHECK(resets == 1 && sigaction(SIGWINCH, NULL, &action) == 0 && action.sa_handler == SIG_DFL);

    install(SIGURG, once, SA_RESETHAND, 0);
    pthread_t self = pthread_self();
    pthread_t other = create(sends_twice, &self);
    join(other);
    CHECK(resets == 2);
    install(SIGURG, once, SA_RESETHAND, 0);
    pthread_t waiter = create(waits_once, NULL);
    join(create(sends_twice, &waiter));
    join(waiter);
    CHECK(resets == 3 && sigaction(SIGURG, NULL, &action) == 0 && action.sa_handler == SIG_DFL);

    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) threads[i] = create(body, page);
    for (int i = 0; i < 8; i++) join(threads[i]);
    return succeed();
}
