/* kumihimo/thread.h: threads. See kumihimo.h and kumihimo_threads(3). */
#ifndef KUMIHIMO_THREAD_H
#define KUMIHIMO_THREAD_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* Number of a thread, never reused. 0 is no thread. */
typedef uint64_t kumi_thread;

#define KUMI_THREAD_DETACHED 1u /* nobody joins the thread */
#define KUMI_THREAD_BOUND 2u    /* with a kernel thread of its own, like a thread of pthreads */

/* Result of a thread that a cancellation has ended outside of its function. */
#define KUMI_THREAD_CANCELED ((void *)-1)

/* Options of a thread; NULL means all defaults. Later versions may append fields: `size` identifies
 * the version with which the program was built. */
typedef struct kumi_thread_options {
  size_t size;       /* sizeof(kumi_thread_options) */
  size_t stack_size; /* bytes; 0: the runtime's, 160 KiB by default */
  const char *name;  /* UTF-8; NULL: none */
  int32_t priority;  /* 0 to 63, 63 is the highest; -1: 32 */
  uint32_t flags;    /* KUMI_THREAD_DETACHED, KUMI_THREAD_BOUND */
} kumi_thread_options;

#define KUMI_THREAD_OPTIONS_INIT {sizeof(kumi_thread_options), 0, NULL, -1, 0}

/* Starts a microprocess that calls routine(arg), and stores its number. Starts the runtime if there
 * is none. The routine ends by returning: it must not be left by longjmp, a C++ exception or
 * pthread_exit. EINVAL, E2BIG, EAGAIN, ENOMEM, EOPNOTSUPP. */
int kumi_thread_create(kumi_thread *out, const kumi_thread_options *options,
                       void *(*routine)(void *), void *arg);

/* Waits for the end of a thread and stores its result, unless `result` is NULL. A thread is joined
 * once. EDEADLK for the caller itself; EINVAL if the thread was joined, is being joined or is
 * detached; ESRCH if there has been no such thread; ECANCELED. */
int kumi_thread_join(kumi_thread thread, void **result);

/* Joins like kumi_thread_join within a time limit. ETIMEDOUT: the thread can still be joined. */
int kumi_thread_timedjoin(kumi_thread thread, void **result, int64_t timeout_ns);

/* Lets a thread end without a join. EINVAL, ESRCH as for kumi_thread_join. */
int kumi_thread_detach(kumi_thread thread);

/* Returns the number of the caller, never 0. Threads that kumi_thread_create did not start have one
 * too. */
kumi_thread kumi_thread_self(void);

/* Returns 1 if the caller is a microprocess, and 0 if it is a kernel thread. */
int kumi_thread_is_microprocess(void);

/* Lets other threads run. ECANCELED. */
int kumi_thread_yield(void);

/* Requests the cancellation of a thread: its next call that may wait, and each later one, returns
 * ECANCELED, and a wait under way ends. Calls that lock a mutex or an rwlock are not affected. The
 * routine then returns by itself. No effect on kernel threads and on threads that have ended.
 * EINVAL, ESRCH. */
int kumi_thread_cancel(kumi_thread thread);

/* Returns 1 if the cancellation of the caller was requested, otherwise 0. */
int kumi_thread_cancelled(void);

/* Calls function(arg), in which the caller is not cancelled: for code that must not stop halfway.
 * Nests. EINVAL. */
int kumi_thread_without_cancellation(void (*function)(void *), void *arg);

/* Sets the priority of a thread, 0 to 63. No effect on kernel threads. EINVAL, ESRCH. */
int kumi_thread_set_priority(kumi_thread thread, int priority);

/* Stores the priority of a thread. EINVAL, ESRCH. */
int kumi_thread_priority(kumi_thread thread, int *out);

/* Calls function(arg), which may block in the kernel for long. The runtime notices such blocks by
 * itself; the announcement saves time, and works with event source `off`. EINVAL. */
int kumi_thread_blocking(void (*function)(void *), void *arg);

KUMI_END

#endif
