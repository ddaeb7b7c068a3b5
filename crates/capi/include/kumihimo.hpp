// kumihimo.hpp: microprocesses for C++20 with the interface of the standard library: thread,
// jthread, mutex, shared_mutex, condition_variable, latch, barrier, counting_semaphore, future,
// promise, packaged_task, async and this_thread, in the namespace kumihimo. Header-only, above the
// C interface.
//
// A wait blocks the microprocess, and a kernel thread where there is no microprocess; both kinds of
// thread may use the same objects. Types of std that have nothing to do with threads are std's:
// unique_lock, scoped_lock, stop_token, future_error.
//
// An error of the C interface is a std::system_error. Waits of a microprocess that
// kumi_thread_cancel has cancelled throw one with std::errc::operation_canceled; locking does not.
#ifndef KUMIHIMO_HPP
#define KUMIHIMO_HPP

#include <kumihimo.h>

#include <kumihimo/condition_variable.hpp>
#include <kumihimo/error.hpp>
#include <kumihimo/future.hpp>
#include <kumihimo/latch.hpp>
#include <kumihimo/mutex.hpp>
#include <kumihimo/thread.hpp>

#endif
