// kumihimo/thread.hpp: microprocesses as std::thread and std::jthread. See kumihimo.hpp.
#ifndef KUMIHIMO_THREAD_HPP
#define KUMIHIMO_THREAD_HPP

#include <compare>
#include <functional>
#include <memory>
#include <ostream>
#include <stop_token>
#include <tuple>
#include <type_traits>
#include <utility>

#include <kumihimo/error.hpp>
#include <kumihimo/thread.h>
#include <kumihimo/time.h>

namespace kumihimo {

namespace detail {

/// Calls a function in which the caller is not cancelled. For destructors, which must not throw.
template <class Function>
void without_cancellation(Function function) {
  auto call = [](void* arg) { (*static_cast<Function*>(arg))(); };
  check(kumi_thread_without_cancellation(call, &function));
}

}  // namespace detail

using std::stop_callback;
using std::stop_source;
using std::stop_token;

/// Options of a thread, which std::thread does not have: thread(attributes{.priority = 40}, f).
struct attributes {
  std::size_t stack_size = 0;
  const char* name = nullptr;
  int priority = -1;
};

/// std::thread, as a microprocess. An exception that leaves the function ends the program, as in
/// std.
class thread {
 public:
  using native_handle_type = kumi_thread;

  /// Number of a thread, never reused.
  class id {
   public:
    constexpr id() noexcept = default;
    explicit constexpr id(kumi_thread number) noexcept : number_(number) {}
    friend auto operator<=>(const id&, const id&) noexcept = default;
    template <class Char, class Traits>
    friend std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                                        id of) {
      return out << of.number_;
    }

   private:
    friend struct std::hash<id>;
    kumi_thread number_ = 0;
  };

  thread() noexcept = default;

  template <class Function, class... Arguments>
    requires(!std::is_same_v<std::remove_cvref_t<Function>, thread> &&
             !std::is_same_v<std::remove_cvref_t<Function>, attributes>)
  explicit thread(Function&& function, Arguments&&... arguments)
      : thread(attributes{}, std::forward<Function>(function),
               std::forward<Arguments>(arguments)...) {}

  template <class Function, class... Arguments>
  explicit thread(const attributes& wanted, Function&& function, Arguments&&... arguments) {
    using call = std::tuple<std::decay_t<Function>, std::decay_t<Arguments>...>;
    auto start = std::make_unique<call>(std::forward<Function>(function),
                                        std::forward<Arguments>(arguments)...);
    kumi_thread_options options = KUMI_THREAD_OPTIONS_INIT;
    options.stack_size = wanted.stack_size;
    options.name = wanted.name;
    options.priority = wanted.priority;
    detail::check(kumi_thread_create(&number_, &options, &thread::run<call>, start.get()));
    start.release();
  }

  ~thread() {
    if (joinable()) std::terminate();
  }

  thread(thread&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  thread& operator=(thread&& other) noexcept {
    if (joinable()) std::terminate();
    number_ = std::exchange(other.number_, 0);
    return *this;
  }

  void swap(thread& other) noexcept { std::swap(number_, other.number_); }
  friend void swap(thread& one, thread& other) noexcept { one.swap(other); }

  bool joinable() const noexcept { return number_ != 0; }

  /// Throws std::system_error: invalid_argument if not joinable, resource_deadlock_would_occur for
  /// the thread itself, operation_canceled if the caller was cancelled.
  void join() {
    require_joinable();
    detail::check(kumi_thread_join(number_, nullptr));
    number_ = 0;
  }

  void detach() {
    require_joinable();
    detail::check(kumi_thread_detach(number_));
    number_ = 0;
  }

  id get_id() const noexcept { return id(number_); }
  native_handle_type native_handle() const noexcept { return number_; }

  /// Number of processors that the system has online, as of std::thread.
  static unsigned hardware_concurrency() noexcept;

 private:
  void require_joinable() const {
    if (!joinable()) {
      throw std::system_error(std::make_error_code(std::errc::invalid_argument),
                              "the thread is not joinable");
    }
  }

  template <class Call>
  static void* run(void* arg) noexcept {
    std::unique_ptr<Call> call(static_cast<Call*>(arg));
    std::apply(
        [](auto&& function, auto&&... arguments) {
          std::invoke(std::move(function), std::move(arguments)...);
        },
        std::move(*call));
    return nullptr;
  }

  kumi_thread number_ = 0;
};

/// std::jthread, as a microprocess: requests a stop and joins at its end.
class jthread {
 public:
  using id = thread::id;
  using native_handle_type = thread::native_handle_type;

  jthread() noexcept : source_(std::nostopstate) {}

  template <class Function, class... Arguments>
    requires(!std::is_same_v<std::remove_cvref_t<Function>, jthread> &&
             !std::is_same_v<std::remove_cvref_t<Function>, attributes>)
  explicit jthread(Function&& function, Arguments&&... arguments)
      : jthread(attributes{}, std::forward<Function>(function),
                std::forward<Arguments>(arguments)...) {}

  template <class Function, class... Arguments>
  explicit jthread(const attributes& wanted, Function&& function, Arguments&&... arguments)
      : thread_(start(wanted, source_, std::forward<Function>(function),
                      std::forward<Arguments>(arguments)...)) {}

  ~jthread() { finish(); }

  jthread(jthread&&) noexcept = default;
  jthread& operator=(jthread&& other) noexcept {
    if (this != &other) {
      finish();
      source_ = std::move(other.source_);
      thread_ = std::move(other.thread_);
    }
    return *this;
  }

  void swap(jthread& other) noexcept {
    std::swap(source_, other.source_);
    thread_.swap(other.thread_);
  }
  friend void swap(jthread& one, jthread& other) noexcept { one.swap(other); }

  bool joinable() const noexcept { return thread_.joinable(); }
  void join() { thread_.join(); }
  void detach() { thread_.detach(); }
  id get_id() const noexcept { return thread_.get_id(); }
  native_handle_type native_handle() const noexcept { return thread_.native_handle(); }
  static unsigned hardware_concurrency() noexcept { return thread::hardware_concurrency(); }

  stop_source get_stop_source() noexcept { return source_; }
  stop_token get_stop_token() const noexcept { return source_.get_token(); }
  bool request_stop() noexcept { return source_.request_stop(); }

 private:
  template <class Function, class... Arguments>
  static thread start(const attributes& wanted, stop_source& source, Function&& function,
                      Arguments&&... arguments) {
    if constexpr (std::is_invocable_v<std::decay_t<Function>, stop_token,
                                      std::decay_t<Arguments>...>) {
      return thread(wanted, std::forward<Function>(function), source.get_token(),
                    std::forward<Arguments>(arguments)...);
    } else {
      return thread(wanted, std::forward<Function>(function),
                    std::forward<Arguments>(arguments)...);
    }
  }

  void finish() {
    if (joinable()) {
      request_stop();
      detail::without_cancellation([this] { join(); });
    }
  }

  stop_source source_;
  thread thread_;
};

namespace this_thread {

inline thread::id get_id() noexcept { return thread::id(kumi_thread_self()); }

/// A yield of a cancelled microprocess returns at once.
inline void yield() noexcept { kumi_thread_yield(); }

/// Throws std::system_error with operation_canceled if the caller was cancelled.
template <class Rep, class Period>
void sleep_for(const std::chrono::duration<Rep, Period>& time) {
  if (time > time.zero()) detail::check(kumi_sleep(detail::nanoseconds(time)));
}

template <class Clock, class Duration>
void sleep_until(const std::chrono::time_point<Clock, Duration>& time) {
  for (auto now = Clock::now(); now < time; now = Clock::now()) sleep_for(time - now);
}

}  // namespace this_thread

}  // namespace kumihimo

template <>
struct std::hash<kumihimo::thread::id> {
  std::size_t operator()(kumihimo::thread::id of) const noexcept {
    return std::hash<kumi_thread>()(of.number_);
  }
};

#include <thread>

inline unsigned kumihimo::thread::hardware_concurrency() noexcept {
  return std::thread::hardware_concurrency();
}

#endif
