// kumihimo/mutex.hpp: mutexes that block microprocesses. See kumihimo.hpp.
//
// The types meet the named requirements Lockable, TimedLockable and SharedLockable, so that
// std::lock_guard, std::unique_lock, std::scoped_lock and std::shared_lock take them.
#ifndef KUMIHIMO_MUTEX_HPP
#define KUMIHIMO_MUTEX_HPP

#include <mutex>
#include <shared_mutex>

#include <kumihimo/error.hpp>
#include <kumihimo/mutex.h>
#include <kumihimo/rwlock.h>

namespace kumihimo {

using std::adopt_lock;
using std::adopt_lock_t;
using std::defer_lock;
using std::defer_lock_t;
using std::lock_guard;
using std::scoped_lock;
using std::shared_lock;
using std::try_to_lock;
using std::try_to_lock_t;
using std::unique_lock;

namespace detail {

/// Result of an attempt to lock: EBUSY and ETIMEDOUT are false.
inline bool locked(int error) {
  if (error == EBUSY || error == ETIMEDOUT) return false;
  check(error);
  return true;
}

/// A mutex with time limits.
template <std::uint32_t Flags>
class basic_mutex {
 public:
  using native_handle_type = kumi_mutex*;

  basic_mutex() noexcept
    requires(Flags != 0)
  {
    kumi_mutex_init(&mutex_, Flags);
  }
  constexpr basic_mutex() noexcept
    requires(Flags == 0)
  = default;
  ~basic_mutex() { kumi_mutex_destroy(&mutex_); }
  basic_mutex(const basic_mutex&) = delete;
  basic_mutex& operator=(const basic_mutex&) = delete;

  /// Throws std::system_error with resource_deadlock_would_occur if the caller holds a mutex that
  /// is not recursive.
  void lock() { check(kumi_mutex_lock(&mutex_)); }

  bool try_lock() { return locked(kumi_mutex_trylock(&mutex_)); }

  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& time) {
    return locked(kumi_mutex_timedlock(&mutex_, nanoseconds(time)));
  }

  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& time) {
    return try_lock_for(time - Clock::now());
  }

  /// The caller must hold the mutex. Another caller ends the program: unlock does not throw.
  void unlock() noexcept { check(kumi_mutex_unlock(&mutex_)); }

  native_handle_type native_handle() noexcept { return &mutex_; }

 private:
  kumi_mutex mutex_ = KUMI_MUTEX_INIT;
};

}  // namespace detail

using mutex = detail::basic_mutex<0>;
using timed_mutex = detail::basic_mutex<0>;
using recursive_mutex = detail::basic_mutex<KUMI_MUTEX_RECURSIVE>;
using recursive_timed_mutex = detail::basic_mutex<KUMI_MUTEX_RECURSIVE>;

/// std::shared_timed_mutex, and so std::shared_mutex.
class shared_timed_mutex {
 public:
  using native_handle_type = kumi_rwlock*;

  constexpr shared_timed_mutex() noexcept = default;
  ~shared_timed_mutex() { kumi_rwlock_destroy(&lock_); }
  shared_timed_mutex(const shared_timed_mutex&) = delete;
  shared_timed_mutex& operator=(const shared_timed_mutex&) = delete;

  void lock() { detail::check(kumi_rwlock_wrlock(&lock_)); }
  bool try_lock() { return detail::locked(kumi_rwlock_trywrlock(&lock_)); }

  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& time) {
    return detail::locked(kumi_rwlock_timedwrlock(&lock_, detail::nanoseconds(time)));
  }

  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& time) {
    return try_lock_for(time - Clock::now());
  }

  void unlock() noexcept { detail::check(kumi_rwlock_unlock(&lock_)); }

  void lock_shared() { detail::check(kumi_rwlock_rdlock(&lock_)); }
  bool try_lock_shared() { return detail::locked(kumi_rwlock_tryrdlock(&lock_)); }

  template <class Rep, class Period>
  bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& time) {
    return detail::locked(kumi_rwlock_timedrdlock(&lock_, detail::nanoseconds(time)));
  }

  template <class Clock, class Duration>
  bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& time) {
    return try_lock_shared_for(time - Clock::now());
  }

  void unlock_shared() noexcept { unlock(); }

  native_handle_type native_handle() noexcept { return &lock_; }

 private:
  kumi_rwlock lock_ = KUMI_RWLOCK_INIT;
};

using shared_mutex = shared_timed_mutex;

}  // namespace kumihimo

#endif
