/*
 * kumihimo.h: Kumihimo for C and C++. Microprocesses, which are user-level threads that block and
 * run beside each other like threads, what they share, and gates, which are calls between
 * processes. Each header below has a manual page, such as kumihimo_threads(3). C++ programs may
 * include kumihimo.hpp instead.
 *
 * Return values. A function that returns int returns 0 or a positive errno, like pthreads
 * functions, unless its comment says otherwise. kumi_error_text() then describes what happened.
 * The common ones:
 *   EINVAL           invalid argument: NULL, an object that was not initialised or was destroyed, a
 *                    negative time, a priority outside of 0 to 63
 *   ETIMEDOUT        the time limit expired
 *   ECANCELED        the calling microprocess was cancelled
 *   EBUSY            a thread holds the object or waits in it
 *   EDEADLK          the call would wait for its own caller
 *   EPERM            the caller does not hold the lock
 *   ENOMEM, EAGAIN   out of memory, descriptors, gates or connections; out of kernel threads
 *   E2BIG            options that this version of the library does not support
 *   EOPNOTSUPP       not available on this architecture, or in the child of a fork
 *   ENOTRECOVERABLE  a defect of the library
 * Those of gates:
 *   EHOSTUNREACH     another machine is not reachable, or no border runs
 *   ENOENT           no process serves a gate of this name
 *   EADDRINUSE       a gate of this name is already served
 *   EACCES           the user has no permission
 *   EPROTONOSUPPORT  the other side is another version of Kumihimo, or serves typed Rust requests
 *   ECONNRESET       the other side has ended or closed the gate; a pending request may or may not
 *                    have been handled, at most once
 *   EMSGSIZE         the request or the reply is larger than the gate allows
 *   EBADMSG          received data violates the protocol
 *   EREMOTEIO        the handler panicked, or failed with this number
 *   EIO              an error of the operating system, or a handler's number not listed here
 *
 * Threads. Every function may be called on any thread, a microprocess or not, and in any handler,
 * and by several threads on one object. A kumi_bytes, a kumi_reply, and a region that is not sealed
 * must be used by one thread at a time. A call that waits blocks the microprocess, and the kernel
 * thread elsewhere. The first call that needs a runtime starts it; locks need none. No function may
 * be called in a signal handler, or in the child of a fork(2) before exec.
 */
#ifndef KUMIHIMO_H
#define KUMIHIMO_H

#include <kumihimo/barrier.h>
#include <kumihimo/base.h>
#include <kumihimo/channel.h>
#include <kumihimo/cond.h>
#include <kumihimo/gate.h>
#include <kumihimo/mutex.h>
#include <kumihimo/rwlock.h>
#include <kumihimo/semaphore.h>
#include <kumihimo/tcp.h>
#include <kumihimo/thread.h>
#include <kumihimo/time.h>

#endif
