/* The state of a thread that the processor and the C library keep: rounding modes, errno, locale,
 * signal mask; inherited at creation where POSIX or Linux says so, and own to each from then on. */
#include "check.h"

#include <fenv.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <sys/rseq.h>
#include <xmmintrin.h>

#pragma weak __rseq_size

static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

static void *keeps_mode(void *argument) {
    int inherited = (int)(intptr_t)argument;
    CHECK(fegetround() == inherited);
    for (int i = 0; i < 50; i++) {
        int own = modes[(i + inherited / 1024) % 4];
        RETURNS(0, fesetround(own));
        errno = own + 1;
        if (i % 2 == 0) {
            usleep(50);
        } else {
            sched_yield();
        }
        CHECK(fegetround() == own);
        CHECK(errno == own + 1);
        volatile double one = 1, three = 3;
        double up = one / three;
        fesetround(FE_TONEAREST);
        double nearest = one / three;
        CHECK(own == FE_UPWARD ? up > nearest : up <= nearest);
    }
    return NULL;
}

static void *flushes(void *argument) {
    CHECK(_MM_GET_FLUSH_ZERO_MODE() == (unsigned)(intptr_t)argument);
    usleep(50);
    CHECK(_MM_GET_FLUSH_ZERO_MODE() == (unsigned)(intptr_t)argument);
    return NULL;
}

static void *has_locale(void *argument) {
    (void)argument;
    locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    CHECK(own != (locale_t)0);
    CHECK(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
    uselocale(own);
    for (int i = 0; i < 10; i++) {
        usleep(50);
        CHECK(uselocale((locale_t)0) == own);
    }
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(own);
    return NULL;
}

/* Precision and masks of x87, which no function of <fenv.h> sets together with MXCSR. */
static void *keeps_x87(void *argument) {
    unsigned short control, own = (unsigned short)(uintptr_t)argument;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    CHECK(control == own);
    for (int i = 0; i < 20; i++) {
        own = (unsigned short)(0x007f | i % 4 << 10 | (i % 2 ? 0x300 : 0x200));
        __asm__ volatile("fldcw %0" : : "m"(own));
        usleep(50);
        __asm__ volatile("fnstcw %0" : "=m"(control));
        CHECK(control == own);
    }
    return NULL;
}

/* A microprocess has no registered area for restartable sequences: it moves between kernel threads.
 * Its area says so, as that of a thread for which the C library registers none. */
static void *has_no_rseq(void *argument) {
    (void)argument;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
    int is_kernel_thread = access(path, F_OK) == 0;
    if (&__rseq_size != NULL && __rseq_size != 0) {
        const volatile struct rseq *area =
            (const void *)((const char *)__builtin_thread_pointer() + __rseq_offset);
        CHECK(is_kernel_thread || (int)area->cpu_id == RSEQ_CPU_ID_REGISTRATION_FAILED);
        CHECK(is_kernel_thread || (int)area->cpu_id_start == 0);
        usleep(50);
        CHECK(is_kernel_thread || (int)area->cpu_id == RSEQ_CPU_ID_REGISTRATION_FAILED);
    }
    CHECK(sched_getcpu() >= 0);
    return NULL;
}

static void *has_mask(void *argument) {
    sigset_t mask;
    RETURNS(0, pthread_sigmask(SIG_SETMASK, NULL, &mask));
    CHECK(sigismember(&mask, SIGUSR1) == 1);
    CHECK(sigismember(&mask, SIGUSR2) == 0);
    sigaddset(&mask, SIGUSR2);
    if (argument != NULL) {
        RETURNS(0, pthread_sigmask(SIG_SETMASK, &mask, NULL));
    }
    for (int i = 0; i < 10; i++) {
        usleep(50);
        RETURNS(0, pthread_sigmask(SIG_SETMASK, NULL, &mask));
        CHECK(sigismember(&mask, SIGUSR2) == (argument != NULL));
    }
    return NULL;
}

int main(void) {
    unsigned short control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    unsigned short narrow = 0x027f;
    __asm__ volatile("fldcw %0" : : "m"(narrow));
    pthread_t both[2] = {create(keeps_x87, (void *)0x027f), create(keeps_x87, (void *)0x027f)};
    join(both[0]);
    join(both[1]);
    __asm__ volatile("fldcw %0" : : "m"(control));
    join(create(has_no_rseq, NULL));
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) {
        fesetround(modes[i % 4]);
        threads[i] = create(keeps_mode, (void *)(intptr_t)modes[i % 4]);
    }
    CHECK(fegetround() == modes[3]);
    fesetround(FE_TONEAREST);
    for (int i = 0; i < 16; i++) {
        join(threads[i]);
    }
    CHECK(fegetround() == FE_TONEAREST);
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    threads[0] = create(flushes, (void *)_MM_FLUSH_ZERO_ON);
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_OFF);
    threads[1] = create(flushes, (void *)_MM_FLUSH_ZERO_OFF);
    join(threads[0]);
    join(threads[1]);

    for (int i = 0; i < 8; i++) {
        threads[i] = create(has_locale, NULL);
    }
    for (int i = 0; i < 8; i++) {
        join(threads[i]);
    }
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    RETURNS(0, pthread_sigmask(SIG_BLOCK, &mask, NULL));
    for (intptr_t i = 0; i < 8; i++) {
        threads[i] = create(has_mask, (void *)(i % 2));
    }
    for (int i = 0; i < 8; i++) {
        join(threads[i]);
    }
    return succeed();
}
