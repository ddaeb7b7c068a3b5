/* kumihimo/semaphore.h: counting semaphores. See kumihimo.h and kumihimo_locks(3). */
#ifndef KUMIHIMO_SEMAPHORE_H
#define KUMIHIMO_SEMAPHORE_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* A semaphore. Zeroes are one with the value 0. The program must not copy it or write its
 * fields. */
typedef struct kumi_semaphore {
  uint64_t kumi_private[KUMI_OBJECT_WORDS];
} kumi_semaphore;

#define KUMI_SEMAPHORE_INIT {{0}}

#define KUMI_SEMAPHORE_MAX 0x7fffffffu /* the largest value */

/* Initialises a semaphore. EINVAL. */
int kumi_semaphore_init(kumi_semaphore *semaphore, uint32_t value);

/* Destroys a semaphore. EBUSY, without effect, if a thread waits. EINVAL. */
int kumi_semaphore_destroy(kumi_semaphore *semaphore);

/* Decrement, and wait for a positive value before: without limit, not at all (EAGAIN), or within a
 * time limit (ETIMEDOUT). ECANCELED, EINVAL. */
int kumi_semaphore_wait(kumi_semaphore *semaphore);
int kumi_semaphore_trywait(kumi_semaphore *semaphore);
int kumi_semaphore_timedwait(kumi_semaphore *semaphore, int64_t timeout_ns);

/* Increments, and wakes a waiter. EOVERFLOW, EINVAL. */
int kumi_semaphore_post(kumi_semaphore *semaphore);

/* Stores the value, which other threads may change at any time. EINVAL. */
int kumi_semaphore_value(kumi_semaphore *semaphore, uint32_t *value);

KUMI_END

#endif
