/* kumihimo/time.h: clock, sleeps and timers. See kumihimo.h and kumihimo_time(3). */
#ifndef KUMIHIMO_TIME_H
#define KUMIHIMO_TIME_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* Returns the time of CLOCK_MONOTONIC in nanoseconds. */
int64_t kumi_now(void);

/* Block the caller for `ns` nanoseconds, or until kumi_now() reaches `deadline_ns`. 0 and a time in
 * the past let others run. EINVAL if negative; ECANCELED. */
int kumi_sleep(int64_t ns);
int kumi_sleep_until(int64_t deadline_ns);

typedef struct kumi_timer kumi_timer;

/* Starts a microprocess that calls function(arg) after `first_ns` nanoseconds, and then every
 * `interval_ns`, or once if that is 0. A call that takes longer than the interval delays the next
 * one. *out is NULL unless the result is 0. EINVAL if negative; EAGAIN, ENOMEM. */
int kumi_timer_create(kumi_timer **out, int64_t first_ns, int64_t interval_ns,
                      void (*function)(void *), void *arg);

/* Stops a timer, waits for a call under way, and frees the timer. Not cancellable. EDEADLK, without
 * effect, in the timer's own function. NULL has no effect. */
int kumi_timer_destroy(kumi_timer *timer);

KUMI_END

#endif
