// kumihimo/latch.hpp: latches, barriers and semaphores that block microprocesses. See kumihimo.hpp.
#ifndef KUMIHIMO_LATCH_HPP
#define KUMIHIMO_LATCH_HPP

#include <cstddef>
#include <limits>
#include <utility>

#include <kumihimo/condition_variable.hpp>
#include <kumihimo/semaphore.h>

namespace kumihimo {

class latch {
 public:
  explicit latch(std::ptrdiff_t expected) : left_(expected) {}
  latch(const latch&) = delete;
  latch& operator=(const latch&) = delete;

  static constexpr std::ptrdiff_t max() noexcept {
    return std::numeric_limits<std::ptrdiff_t>::max();
  }

  void count_down(std::ptrdiff_t update = 1) {
    std::lock_guard<mutex> lock(mutex_);
    left_ -= update;
    if (left_ == 0) zero_.notify_all();
  }

  bool try_wait() const noexcept {
    std::lock_guard<mutex> lock(mutex_);
    return left_ == 0;
  }

  void wait() const {
    std::unique_lock<mutex> lock(mutex_);
    zero_.wait(lock, [this] { return left_ == 0; });
  }

  void arrive_and_wait(std::ptrdiff_t update = 1) {
    count_down(update);
    wait();
  }

 private:
  mutable mutex mutex_;
  mutable condition_variable zero_;
  std::ptrdiff_t left_;
};

namespace detail {

struct no_completion {
  void operator()() noexcept {}
};

}  // namespace detail

/// std::barrier. The last thread of a phase runs the completion.
template <class Completion = detail::no_completion>
class barrier {
 public:
  class arrival_token {
    friend class barrier;
    explicit arrival_token(std::size_t phase) : phase_(phase) {}
    std::size_t phase_;
  };

  explicit barrier(std::ptrdiff_t expected, Completion completion = Completion())
      : expected_(expected), left_(expected), completion_(std::move(completion)) {}
  barrier(const barrier&) = delete;
  barrier& operator=(const barrier&) = delete;

  static constexpr std::ptrdiff_t max() noexcept {
    return std::numeric_limits<std::ptrdiff_t>::max();
  }

  [[nodiscard]] arrival_token arrive(std::ptrdiff_t update = 1) {
    std::lock_guard<mutex> lock(mutex_);
    arrival_token token(phase_);
    left_ -= update;
    complete();
    return token;
  }

  void wait(arrival_token&& token) const {
    std::unique_lock<mutex> lock(mutex_);
    begun_.wait(lock, [&] { return phase_ != token.phase_; });
  }

  void arrive_and_wait() { wait(arrive()); }

  void arrive_and_drop() {
    std::lock_guard<mutex> lock(mutex_);
    expected_--;
    left_--;
    complete();
  }

 private:
  void complete() {
    if (left_ != 0) return;
    completion_();
    left_ = expected_;
    phase_++;
    begun_.notify_all();
  }

  mutable mutex mutex_;
  mutable condition_variable begun_;
  std::ptrdiff_t expected_, left_;
  std::size_t phase_ = 0;
  Completion completion_;
};

/// std::counting_semaphore.
template <std::ptrdiff_t Max = KUMI_SEMAPHORE_MAX>
  requires(Max >= 0 && Max <= KUMI_SEMAPHORE_MAX)
class counting_semaphore {
 public:
  explicit counting_semaphore(std::ptrdiff_t desired) {
    detail::check(kumi_semaphore_init(&semaphore_, static_cast<std::uint32_t>(desired)));
  }
  ~counting_semaphore() { kumi_semaphore_destroy(&semaphore_); }
  counting_semaphore(const counting_semaphore&) = delete;
  counting_semaphore& operator=(const counting_semaphore&) = delete;

  static constexpr std::ptrdiff_t max() noexcept { return Max; }

  void release(std::ptrdiff_t update = 1) {
    for (; update > 0; update--) detail::check(kumi_semaphore_post(&semaphore_));
  }

  void acquire() { detail::check(kumi_semaphore_wait(&semaphore_)); }

  bool try_acquire() noexcept { return kumi_semaphore_trywait(&semaphore_) == 0; }

  template <class Rep, class Period>
  bool try_acquire_for(const std::chrono::duration<Rep, Period>& time) {
    return detail::locked(kumi_semaphore_timedwait(&semaphore_, detail::nanoseconds(time)));
  }

  template <class Clock, class Duration>
  bool try_acquire_until(const std::chrono::time_point<Clock, Duration>& time) {
    return try_acquire_for(time - Clock::now());
  }

 private:
  kumi_semaphore semaphore_ = KUMI_SEMAPHORE_INIT;
};

using binary_semaphore = counting_semaphore<1>;

}  // namespace kumihimo

#endif
