/* kumihimo/barrier.h: barriers. See kumihimo.h and kumihimo_locks(3). */
#ifndef KUMIHIMO_BARRIER_H
#define KUMIHIMO_BARRIER_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* A barrier. Zeroes are none: kumi_barrier_init is needed. The program must not copy it or write
 * its fields. */
typedef struct kumi_barrier {
  uint64_t kumi_private[KUMI_OBJECT_WORDS];
} kumi_barrier;

/* Initialises a barrier for `count` threads. EINVAL. */
int kumi_barrier_init(kumi_barrier *barrier, uint32_t count);

/* Destroys a barrier. EBUSY, without effect, if a thread waits for others. EINVAL. */
int kumi_barrier_destroy(kumi_barrier *barrier);

/* Waits until `count` threads have called it, and then begins anew. Stores 1 for one of the threads
 * and 0 for the others, unless `is_last` is NULL. ECANCELED: the caller does not count. EINVAL. */
int kumi_barrier_wait(kumi_barrier *barrier, int *is_last);

KUMI_END

#endif
