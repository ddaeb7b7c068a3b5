/* kumihimo/cond.h: condition variables. See kumihimo.h and kumihimo_locks(3). */
#ifndef KUMIHIMO_COND_H
#define KUMIHIMO_COND_H

#include <kumihimo/base.h>
#include <kumihimo/mutex.h>

KUMI_BEGIN

/* A condition variable. Zeroes are one without waiters. The program must not copy it or write its
 * fields. */
typedef struct kumi_cond {
  uint64_t kumi_private[KUMI_OBJECT_WORDS];
} kumi_cond;

#define KUMI_COND_INIT {{0}}

/* Initialises a condition variable. EINVAL. */
int kumi_cond_init(kumi_cond *cond);

/* Destroys a condition variable. EBUSY, without effect, if a thread waits that no signal has
 * reached. EINVAL. */
int kumi_cond_destroy(kumi_cond *cond);

/* Unlocks the mutex, waits for a signal, and locks the mutex again, also when it fails after having
 * waited. May return 0 without a signal. Several mutexes may be used with one condition variable.
 * EPERM if the caller does not hold the mutex; EINVAL if it holds it more than once; ECANCELED. */
int kumi_cond_wait(kumi_cond *cond, kumi_mutex *mutex);

/* As kumi_cond_wait, within a time limit, or until kumi_now() reaches `deadline_ns`. ETIMEDOUT. */
int kumi_cond_timedwait(kumi_cond *cond, kumi_mutex *mutex, int64_t timeout_ns);
int kumi_cond_wait_until(kumi_cond *cond, kumi_mutex *mutex, int64_t deadline_ns);

/* Wake one waiter, the one of the highest priority, or all. EINVAL. */
int kumi_cond_signal(kumi_cond *cond);
int kumi_cond_broadcast(kumi_cond *cond);

KUMI_END

#endif
