/* kumihimo/rwlock.h: readers-writer locks. See kumihimo.h and kumihimo_locks(3). */
#ifndef KUMIHIMO_RWLOCK_H
#define KUMIHIMO_RWLOCK_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* A lock that many readers or one writer hold. Zeroes are an unlocked one. The program must not
 * copy it or write its fields. */
typedef struct kumi_rwlock {
  uint64_t kumi_private[KUMI_OBJECT_WORDS];
} kumi_rwlock;

#define KUMI_RWLOCK_INIT {{0}}

/* Initialises a lock. EINVAL. */
int kumi_rwlock_init(kumi_rwlock *lock);

/* Destroys a lock. EBUSY, without effect, if it is held or a thread waits for it. EINVAL. */
int kumi_rwlock_destroy(kumi_rwlock *lock);

/* Lock for reading: wait, only if possible at once, or within a time limit. A waiting writer comes
 * before new readers. EDEADLK if the caller holds the lock for writing; EBUSY, ETIMEDOUT,
 * EINVAL. */
int kumi_rwlock_rdlock(kumi_rwlock *lock);
int kumi_rwlock_tryrdlock(kumi_rwlock *lock);
int kumi_rwlock_timedrdlock(kumi_rwlock *lock, int64_t timeout_ns);

/* Lock for writing. As above. A caller that holds the lock for reading waits for ever: readers are
 * counted, not remembered. */
int kumi_rwlock_wrlock(kumi_rwlock *lock);
int kumi_rwlock_trywrlock(kumi_rwlock *lock);
int kumi_rwlock_timedwrlock(kumi_rwlock *lock, int64_t timeout_ns);

/* Unlocks, whichever way the caller holds the lock. EPERM, without effect, if no thread holds it
 * for reading, and the caller does not hold it for writing. EINVAL. */
int kumi_rwlock_unlock(kumi_rwlock *lock);

KUMI_END

#endif
