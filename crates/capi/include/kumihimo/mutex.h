/* kumihimo/mutex.h: mutexes. See kumihimo.h and kumihimo_locks(3). */
#ifndef KUMIHIMO_MUTEX_H
#define KUMIHIMO_MUTEX_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* A mutex. Zeroes are an unlocked mutex, so that KUMI_MUTEX_INIT or static storage suffices. The
 * program must not copy it or write its fields. */
typedef struct kumi_mutex {
  uint64_t kumi_private[KUMI_OBJECT_WORDS];
} kumi_mutex;

#define KUMI_MUTEX_INIT {{0}}

#define KUMI_MUTEX_RECURSIVE 1u /* the owner may lock again, and unlocks as often */

/* Initialises a mutex; `flags` is 0 or KUMI_MUTEX_RECURSIVE. EINVAL. */
int kumi_mutex_init(kumi_mutex *mutex, uint32_t flags);

/* Destroys a mutex. EBUSY, without effect, if it is locked or a thread waits for it. EINVAL. */
int kumi_mutex_destroy(kumi_mutex *mutex);

/* Locks a mutex. Waiters of higher priority come first; the owner inherits their priority. EDEADLK
 * if the caller holds it; EAGAIN if a recursive mutex is locked too many times; EINVAL. */
int kumi_mutex_lock(kumi_mutex *mutex);

/* Locks a mutex if it is free. EBUSY, EAGAIN, EINVAL. */
int kumi_mutex_trylock(kumi_mutex *mutex);

/* Locks a mutex within a time limit. ETIMEDOUT, EDEADLK, EAGAIN, EINVAL. */
int kumi_mutex_timedlock(kumi_mutex *mutex, int64_t timeout_ns);

/* Unlocks a mutex. EPERM, without effect, if the caller does not hold it. EINVAL. */
int kumi_mutex_unlock(kumi_mutex *mutex);

KUMI_END

#endif
