// kumihimo/condition_variable.hpp: condition variables that block microprocesses. See kumihimo.hpp.
#ifndef KUMIHIMO_CONDITION_VARIABLE_HPP
#define KUMIHIMO_CONDITION_VARIABLE_HPP

#include <condition_variable>
#include <memory>
#include <stop_token>

#include <kumihimo/cond.h>
#include <kumihimo/mutex.hpp>

namespace kumihimo {

using std::cv_status;

/// Condition variable for std::unique_lock<kumihimo::mutex>. A wait of a cancelled microprocess
/// throws std::system_error with operation_canceled, after it has locked the mutex again.
class condition_variable {
 public:
  using native_handle_type = kumi_cond*;

  constexpr condition_variable() noexcept = default;
  ~condition_variable() { kumi_cond_destroy(&cond_); }
  condition_variable(const condition_variable&) = delete;
  condition_variable& operator=(const condition_variable&) = delete;

  void notify_one() noexcept { kumi_cond_signal(&cond_); }
  void notify_all() noexcept { kumi_cond_broadcast(&cond_); }

  void wait(std::unique_lock<mutex>& lock) {
    detail::check(kumi_cond_wait(&cond_, lock.mutex()->native_handle()));
  }

  template <class Predicate>
  void wait(std::unique_lock<mutex>& lock, Predicate predicate) {
    while (!predicate()) wait(lock);
  }

  template <class Rep, class Period>
  cv_status wait_for(std::unique_lock<mutex>& lock,
                     const std::chrono::duration<Rep, Period>& time) {
    int error = kumi_cond_timedwait(&cond_, lock.mutex()->native_handle(),
                                    detail::nanoseconds(time));
    if (error == ETIMEDOUT) return cv_status::timeout;
    detail::check(error);
    return cv_status::no_timeout;
  }

  template <class Rep, class Period, class Predicate>
  bool wait_for(std::unique_lock<mutex>& lock, const std::chrono::duration<Rep, Period>& time,
                Predicate predicate) {
    return wait_until(lock, std::chrono::steady_clock::now() + time, std::move(predicate));
  }

  template <class Clock, class Duration>
  cv_status wait_until(std::unique_lock<mutex>& lock,
                       const std::chrono::time_point<Clock, Duration>& time) {
    wait_for(lock, time - Clock::now());
    return Clock::now() < time ? cv_status::no_timeout : cv_status::timeout;
  }

  template <class Clock, class Duration, class Predicate>
  bool wait_until(std::unique_lock<mutex>& lock,
                  const std::chrono::time_point<Clock, Duration>& time, Predicate predicate) {
    while (!predicate()) {
      if (wait_until(lock, time) == cv_status::timeout) return predicate();
    }
    return true;
  }

  native_handle_type native_handle() noexcept { return &cond_; }

 private:
  kumi_cond cond_ = KUMI_COND_INIT;
};

/// Condition variable for any lock, also std::unique_lock<std::mutex>, with std::stop_token.
class condition_variable_any {
 public:
  condition_variable_any() : mutex_(std::make_shared<mutex>()) {}
  condition_variable_any(const condition_variable_any&) = delete;
  condition_variable_any& operator=(const condition_variable_any&) = delete;

  void notify_one() noexcept {
    std::lock_guard<mutex> inner(*mutex_);
    cond_.notify_one();
  }

  void notify_all() noexcept {
    std::lock_guard<mutex> inner(*mutex_);
    cond_.notify_all();
  }

  template <class Lock>
  void wait(Lock& lock) {
    waiting(lock, [this](std::unique_lock<mutex>& inner) { cond_.wait(inner); });
  }

  template <class Lock, class Predicate>
  void wait(Lock& lock, Predicate predicate) {
    while (!predicate()) wait(lock);
  }

  template <class Lock, class Rep, class Period>
  cv_status wait_for(Lock& lock, const std::chrono::duration<Rep, Period>& time) {
    return wait_until(lock, std::chrono::steady_clock::now() + time);
  }

  template <class Lock, class Rep, class Period, class Predicate>
  bool wait_for(Lock& lock, const std::chrono::duration<Rep, Period>& time, Predicate predicate) {
    return wait_until(lock, std::chrono::steady_clock::now() + time, std::move(predicate));
  }

  template <class Lock, class Clock, class Duration>
  cv_status wait_until(Lock& lock, const std::chrono::time_point<Clock, Duration>& time) {
    return waiting(lock, [&](std::unique_lock<mutex>& inner) {
      return cond_.wait_until(inner, time);
    });
  }

  template <class Lock, class Clock, class Duration, class Predicate>
  bool wait_until(Lock& lock, const std::chrono::time_point<Clock, Duration>& time,
                  Predicate predicate) {
    while (!predicate()) {
      if (wait_until(lock, time) == cv_status::timeout) return predicate();
    }
    return true;
  }

  /// Waits until the predicate holds or a stop is requested, and returns the predicate.
  template <class Lock, class Predicate>
  bool wait(Lock& lock, std::stop_token token, Predicate predicate) {
    std::stop_callback wake(token, [this] { notify_all(); });
    while (!predicate()) {
      bool stopped = waiting(lock, [&](std::unique_lock<mutex>& inner) {
        // The callback takes the inner mutex: it has run, or comes after the wait has begun.
        if (token.stop_requested()) return true;
        cond_.wait(inner);
        return false;
      });
      if (stopped) return predicate();
    }
    return true;
  }

  template <class Lock, class Clock, class Duration, class Predicate>
  bool wait_until(Lock& lock, std::stop_token token,
                  const std::chrono::time_point<Clock, Duration>& time, Predicate predicate) {
    std::stop_callback wake(token, [this] { notify_all(); });
    while (!predicate()) {
      bool over = waiting(lock, [&](std::unique_lock<mutex>& inner) {
        return token.stop_requested() || cond_.wait_until(inner, time) == cv_status::timeout;
      });
      if (over) return predicate();
    }
    return true;
  }

  template <class Lock, class Rep, class Period, class Predicate>
  bool wait_for(Lock& lock, std::stop_token token, const std::chrono::duration<Rep, Period>& time,
                Predicate predicate) {
    return wait_until(lock, std::move(token), std::chrono::steady_clock::now() + time,
                      std::move(predicate));
  }

 private:
  /// Unlocks `lock` for the time of `wait`, in which a notification is not lost.
  template <class Lock, class Wait>
  auto waiting(Lock& lock, Wait wait) {
    // Another thread may destroy the condition variable after the notification.
    std::shared_ptr<mutex> kept = mutex_;
    std::unique_lock<mutex> inner(*kept);
    lock.unlock();
    // Locks again in the reverse order, without the inner mutex, also when the wait throws.
    struct relock {
      Lock& lock;
      std::unique_lock<mutex>& inner;
      ~relock() {
        inner.unlock();
        lock.lock();
      }
    } again{lock, inner};
    return wait(inner);
  }

  std::shared_ptr<mutex> mutex_;
  condition_variable cond_;
};

}  // namespace kumihimo

#endif
