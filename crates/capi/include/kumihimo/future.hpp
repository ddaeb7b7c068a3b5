// kumihimo/future.hpp: futures whose waits block microprocesses. See kumihimo.hpp.
#ifndef KUMIHIMO_FUTURE_HPP
#define KUMIHIMO_FUTURE_HPP

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <kumihimo/condition_variable.hpp>
#include <kumihimo/thread.hpp>

namespace kumihimo {

using std::future_errc;
using std::future_error;
using std::future_status;

/// How async runs a function, as std::launch.
enum class launch { async = 1, deferred = 2 };

constexpr launch operator|(launch one, launch other) {
  return static_cast<launch>(static_cast<int>(one) | static_cast<int>(other));
}

template <class T>
class future;
template <class T>
class shared_future;

namespace detail {

struct unit {};

/// What a shared state stores.
template <class T>
using stored =
    std::conditional_t<std::is_void_v<T>, unit,
                       std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, T>>;

/// The state that a promise and its futures share.
template <class T>
class state {
 public:
  template <class... Value>
  void set_value(Value&&... value) {
    std::lock_guard<mutex> lock(mutex_);
    require_empty();
    value_.emplace(std::forward<Value>(value)...);
    ready_.notify_all();
  }

  void set_exception(std::exception_ptr exception) {
    std::lock_guard<mutex> lock(mutex_);
    require_empty();
    exception_ = std::move(exception);
    ready_.notify_all();
  }

  /// Stores the result of a function, or its exception.
  template <class Function>
  void set_result(Function&& function) {
    try {
      if constexpr (std::is_void_v<T>) {
        std::forward<Function>(function)();
        set_value();
      } else if constexpr (std::is_reference_v<T>) {
        set_value(std::addressof(std::forward<Function>(function)()));
      } else {
        set_value(std::forward<Function>(function)());
      }
    } catch (...) {
      set_exception(std::current_exception());
    }
  }

  /// Makes the promise's end an error unless it has set a result.
  void abandon() {
    std::lock_guard<mutex> lock(mutex_);
    if (is_ready()) return;
    exception_ = std::make_exception_ptr(future_error(future_errc::broken_promise));
    ready_.notify_all();
  }

  /// Makes the first wait without a time limit run the function.
  void defer(std::function<void()> function) { deferred_ = std::move(function); }

  void wait() {
    std::unique_lock<mutex> lock(mutex_);
    if (deferred_) {
      std::function<void()> function = std::exchange(deferred_, nullptr);
      lock.unlock();
      function();
      lock.lock();
    }
    ready_.wait(lock, [this] { return is_ready(); });
  }

  template <class Clock, class Duration>
  future_status wait_until(const std::chrono::time_point<Clock, Duration>& time) {
    std::unique_lock<mutex> lock(mutex_);
    if (deferred_) return future_status::deferred;
    bool in_time = ready_.wait_until(lock, time, [this] { return is_ready(); });
    return in_time ? future_status::ready : future_status::timeout;
  }

  /// The value; throws the exception.
  stored<T>& get() {
    wait();
    if (exception_) std::rethrow_exception(exception_);
    return *value_;
  }

  void retrieve() {
    std::lock_guard<mutex> lock(mutex_);
    if (std::exchange(retrieved_, true)) {
      throw future_error(future_errc::future_already_retrieved);
    }
  }

  /// Joins the thread of async when the last future ends.
  void run_on(thread of) { thread_ = std::move(of); }

  ~state() {
    if (!thread_.joinable()) return;
    // The last owner may be the thread itself, which cannot wait for its own end.
    if (thread_.get_id() == this_thread::get_id()) {
      thread_.detach();
    } else {
      without_cancellation([this] { thread_.join(); });
    }
  }

 private:
  bool is_ready() const { return value_.has_value() || exception_ != nullptr; }

  void require_empty() const {
    if (is_ready()) throw future_error(future_errc::promise_already_satisfied);
  }

  mutex mutex_;
  condition_variable ready_;
  std::optional<stored<T>> value_;
  std::exception_ptr exception_;
  std::function<void()> deferred_;
  bool retrieved_ = false;
  thread thread_;
};

/// What future and shared_future have in common.
template <class T>
class future_base {
 public:
  bool valid() const noexcept { return state_ != nullptr; }
  void wait() const { get_state().wait(); }

  template <class Rep, class Period>
  future_status wait_for(const std::chrono::duration<Rep, Period>& time) const {
    return wait_until(std::chrono::steady_clock::now() + time);
  }

  template <class Clock, class Duration>
  future_status wait_until(const std::chrono::time_point<Clock, Duration>& time) const {
    return get_state().wait_until(time);
  }

 protected:
  future_base() noexcept = default;
  explicit future_base(std::shared_ptr<state<T>> of) : state_(std::move(of)) {}

  state<T>& get_state() const {
    if (!state_) throw future_error(future_errc::no_state);
    return *state_;
  }

  std::shared_ptr<state<T>> state_;
};

struct access {
  template <class T>
  static future<T> make(std::shared_ptr<state<T>> of) {
    return future<T>(std::move(of));
  }
};

}  // namespace detail

template <class T>
class future : public detail::future_base<T> {
 public:
  future() noexcept = default;
  future(future&&) noexcept = default;
  future& operator=(future&&) noexcept = default;

  /// The result, once; throws the exception of the promise.
  T get() {
    this->get_state();
    std::shared_ptr<detail::state<T>> state = std::exchange(this->state_, nullptr);
    if constexpr (std::is_void_v<T>) {
      state->get();
    } else if constexpr (std::is_reference_v<T>) {
      return *state->get();
    } else {
      return std::move(state->get());
    }
  }

  shared_future<T> share() noexcept { return shared_future<T>(std::move(*this)); }

 private:
  friend struct detail::access;
  friend class shared_future<T>;
  using detail::future_base<T>::future_base;
};

template <class T>
class shared_future : public detail::future_base<T> {
 public:
  shared_future() noexcept = default;
  shared_future(future<T>&& of) noexcept
      : detail::future_base<T>(std::exchange(of.state_, nullptr)) {}

  std::conditional_t<std::is_void_v<T> || std::is_reference_v<T>, T,
                     std::add_lvalue_reference_t<const T>>
  get() const {
    detail::state<T>& state = this->get_state();
    if constexpr (std::is_void_v<T>) {
      state.get();
    } else if constexpr (std::is_reference_v<T>) {
      return *state.get();
    } else {
      return state.get();
    }
  }
};

namespace detail {

template <class T>
class promise_base {
 public:
  promise_base() : state_(std::make_shared<state<T>>()) {}
  promise_base(promise_base&&) noexcept = default;
  promise_base& operator=(promise_base&& other) noexcept {
    if (state_) state_->abandon();
    state_ = std::move(other.state_);
    return *this;
  }
  ~promise_base() {
    if (state_) state_->abandon();
  }

  future<T> get_future() {
    require_state().retrieve();
    return access::make<T>(state_);
  }

  void set_exception(std::exception_ptr exception) {
    require_state().set_exception(std::move(exception));
  }

 protected:
  state<T>& require_state() const {
    if (!state_) throw future_error(future_errc::no_state);
    return *state_;
  }

  std::shared_ptr<state<T>> state_;
};

}  // namespace detail

template <class T>
class promise : public detail::promise_base<T> {
 public:
  void set_value(const T& value) { this->require_state().set_value(value); }
  void set_value(T&& value) { this->require_state().set_value(std::move(value)); }
};

template <class T>
class promise<T&> : public detail::promise_base<T&> {
 public:
  void set_value(T& value) { this->require_state().set_value(std::addressof(value)); }
};

template <>
class promise<void> : public detail::promise_base<void> {
 public:
  void set_value() { require_state().set_value(); }
};

template <class Signature>
class packaged_task;

template <class T, class... Arguments>
class packaged_task<T(Arguments...)> {
 public:
  packaged_task() noexcept = default;

  template <class Function>
    requires(!std::is_same_v<std::remove_cvref_t<Function>, packaged_task>)
  explicit packaged_task(Function&& function)
      : state_(std::make_shared<detail::state<T>>()),
        function_(std::make_unique<call<std::decay_t<Function>>>(
            std::forward<Function>(function))) {}

  packaged_task(packaged_task&&) noexcept = default;
  packaged_task& operator=(packaged_task&& other) noexcept {
    if (state_) state_->abandon();
    state_ = std::move(other.state_);
    function_ = std::move(other.function_);
    return *this;
  }
  ~packaged_task() {
    if (state_) state_->abandon();
  }

  bool valid() const noexcept { return state_ != nullptr; }

  future<T> get_future() {
    require_state().retrieve();
    return detail::access::make<T>(state_);
  }

  void operator()(Arguments... arguments) {
    require_state().set_result([&]() -> T {
      return function_->run(std::forward<Arguments>(arguments)...);
    });
  }

  void reset() {
    require_state().abandon();
    state_ = std::make_shared<detail::state<T>>();
  }

 private:
  /// A function of any type, also one that cannot be copied.
  struct callable {
    virtual ~callable() = default;
    virtual T run(Arguments... arguments) = 0;
  };

  template <class Function>
  struct call final : callable {
    template <class From>
    explicit call(From&& from) : function(std::forward<From>(from)) {}
    T run(Arguments... arguments) override {
      return std::invoke(function, std::forward<Arguments>(arguments)...);
    }
    Function function;
  };

  detail::state<T>& require_state() const {
    if (!state_) throw future_error(future_errc::no_state);
    return *state_;
  }

  std::shared_ptr<detail::state<T>> state_;
  std::unique_ptr<callable> function_;
};

/// Runs a function on a microprocess, or with launch::deferred at the first wait. The last future's
/// end waits for the function, as in std.
template <class Function, class... Arguments>
auto async(launch policy, Function&& function, Arguments&&... arguments) {
  using T = std::invoke_result_t<std::decay_t<Function>, std::decay_t<Arguments>...>;
  auto of = std::make_shared<detail::state<T>>();
  auto call = [function = std::decay_t<Function>(std::forward<Function>(function)),
               arguments = std::make_tuple(std::forward<Arguments>(arguments)...)]() mutable -> T {
    return std::apply(
        [&](auto&&... all) -> T { return std::invoke(std::move(function), std::move(all)...); },
        std::move(arguments));
  };
  if ((static_cast<int>(policy) & static_cast<int>(launch::async)) != 0) {
    // A raw pointer: the state joins the thread before it ends.
    of->run_on(thread([state = of.get(), call = std::move(call)]() mutable {
      state->set_result(std::move(call));
    }));
  } else {
    // std::function requires a function that can be copied.
    auto shared = std::make_shared<decltype(call)>(std::move(call));
    of->defer([state = of.get(), shared] { state->set_result(std::move(*shared)); });
  }
  return detail::access::make<T>(std::move(of));
}

template <class Function, class... Arguments>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, launch>)
auto async(Function&& function, Arguments&&... arguments) {
  return async(launch::async, std::forward<Function>(function),
               std::forward<Arguments>(arguments)...);
}

}  // namespace kumihimo

#endif
