// kumihimo.hpp against the behaviour of the standard library: standard CASE.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <kumihimo.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using namespace kumihimo;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                   \
    }                                                                 \
  } while (0)

/// The code of the exception that a function throws.
template <class Exception, class Function>
std::error_code thrown(Function function) {
  try {
    function();
  } catch (const Exception& exception) {
    CHECK(exception.what()[0] != 0);
    return exception.code();
  }
  return {};
}

template <class Mutex>
void exclude(int threads) {
  Mutex mutex;
  int sum = 0;
  std::vector<thread> all;
  for (int i = 0; i < threads; i++) {
    all.emplace_back([&] {
      for (int j = 0; j < 100; j++) {
        std::scoped_lock lock(mutex);
        sum++;
      }
    });
  }
  for (auto& one : all) one.join();
  CHECK(sum == threads * 100);
}

void threads() {
  thread none;
  CHECK(!none.joinable() && none.get_id() == thread::id());
  CHECK(thrown<std::system_error>([&] { none.join(); }) == std::errc::invalid_argument);
  CHECK(thrown<std::system_error>([&] { none.detach(); }) == std::errc::invalid_argument);
  thread::id inside;
  std::string text = "moved";
  thread one([&](std::string&& got, int& number) {
    inside = this_thread::get_id();
    CHECK(got == "moved");
    number++;
  }, std::move(text), std::ref(*new int(1)));
  thread other = std::move(one);
  CHECK(!one.joinable() && other.joinable());
  auto id = other.get_id();
  other.join();
  CHECK(inside == id && id != this_thread::get_id() && std::hash<thread::id>()(id) != 0);
  thread first(attributes{.stack_size = 256 << 10, .name = "first", .priority = 40}, [] {
    int priority = 0;
    CHECK(kumi_thread_priority(kumi_thread_self(), &priority) == 0 && priority == 40);
  });
  first.join();
  CHECK(thrown<std::system_error>([] {
          thread(attributes{.priority = 64}, [] {});
        }) == std::errc::invalid_argument);
  CHECK(thread::hardware_concurrency() > 0);
  auto until = std::chrono::steady_clock::now() + 3ms;
  this_thread::sleep_until(until);
  CHECK(std::chrono::steady_clock::now() >= until);
  this_thread::sleep_for(-1s);
  this_thread::yield();

  // A stop ends the wait of a jthread, whose destructor requests it.
  mutex mutex;
  condition_variable_any changed;
  bool stopped = false;
  {
    jthread waiter([&](stop_token token) {
      std::unique_lock lock(mutex);
      CHECK(!changed.wait(lock, token, [] { return false; }));
      stopped = token.stop_requested();
    });
    jthread plain([](int number) { CHECK(number == 7); }, 7);
    this_thread::sleep_for(1ms);
  }
  CHECK(stopped);
}

void locks() {
  exclude<mutex>(20);
  exclude<timed_mutex>(20);
  exclude<recursive_mutex>(20);
  exclude<shared_mutex>(20);
  mutex one, two;
  static_assert(!std::is_copy_constructible_v<mutex>);
  {
    std::scoped_lock both(one, two);
    CHECK(thrown<std::system_error>([&] { one.lock(); }) ==
          std::errc::resource_deadlock_would_occur);
    jthread([&] {
      CHECK(!one.try_lock());
      CHECK(!one.try_lock_for(1ms));
      CHECK(!one.try_lock_until(std::chrono::system_clock::now() - 1s));
      std::unique_lock<timed_mutex> late(two, 1ms);
      CHECK(!late);
    });
  }
  recursive_mutex again;
  std::lock_guard first(again);
  std::lock_guard second(again);
  shared_timed_mutex shared;
  {
    std::shared_lock reader(shared);
    CHECK(shared.try_lock_shared() && !shared.try_lock() && !shared.try_lock_for(1ms));
    shared.unlock_shared();
  }
  std::unique_lock writer(shared);
  CHECK(!shared.try_lock_shared() && !jthread([&] {
           CHECK(!shared.try_lock_shared_for(1ms));
         }).get_stop_token().stop_requested());
}

void conditions() {
  mutex mutex;
  condition_variable changed;
  int state = 0;
  std::vector<jthread> all;
  for (int i = 0; i < 20; i++) {
    all.emplace_back([&] {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return state == 1; });
      CHECK(lock.owns_lock());
    });
  }
  {
    std::lock_guard lock(mutex);
    state = 1;
  }
  changed.notify_all();
  all.clear();
  std::unique_lock lock(mutex);
  CHECK(changed.wait_for(lock, 1ms) == cv_status::timeout);
  CHECK(!changed.wait_for(lock, 1ms, [] { return false; }));
  CHECK(changed.wait_until(lock, std::chrono::system_clock::now(), [] { return true; }));
  lock.unlock();

  // Any lock, also one of std that blocks the kernel thread.
  std::mutex of_std;
  condition_variable_any any;
  {
    jthread setter([&] {
      std::lock_guard inner(of_std);
      state = 2;
      any.notify_all();
    });
    std::unique_lock outer(of_std);
    CHECK(any.wait_for(outer, 30s, [&] { return state == 2; }));
    CHECK(any.wait_for(outer, 1ms) == cv_status::timeout || true);
    stop_source source;
    CHECK(!any.wait_for(outer, source.get_token(), 1ms, [] { return false; }));
    source.request_stop();
    CHECK(!any.wait(outer, source.get_token(), [] { return false; }));
  }

  latch done(10);
  barrier meeting(10, [&]() noexcept { state++; });
  counting_semaphore<10> free(3);
  state = 0;
  for (int i = 0; i < 10; i++) {
    all.emplace_back([&] {
      meeting.arrive_and_wait();
      CHECK(state == 1);
      meeting.arrive_and_wait();
      CHECK(state == 2);
      free.acquire();
      free.release();
      done.count_down();
    });
  }
  done.wait();
  CHECK(done.try_wait());
  all.clear();
  CHECK(free.try_acquire() && free.try_acquire_for(1ms) && free.try_acquire());
  CHECK(!free.try_acquire() && !free.try_acquire_for(1ms));
  barrier<> left(2);
  jthread dropper([&] { left.arrive_and_drop(); });
  left.arrive_and_wait();
  left.arrive_and_wait();
}

struct only_moved {
  explicit only_moved(int number) : number(std::make_unique<int>(number)) {}
  std::unique_ptr<int> number;
};

void futures() {
  promise<only_moved> later;
  auto future_of = later.get_future();
  CHECK(thrown<future_error>([&] { (void)later.get_future(); }) ==
        future_errc::future_already_retrieved);
  CHECK(future_of.wait_for(1ms) == future_status::timeout);
  jthread setter([&] { later.set_value(only_moved(5)); });
  CHECK(*future_of.get().number == 5);
  CHECK(!future_of.valid());
  CHECK(thrown<future_error>([&] { future_of.get(); }) == future_errc::no_state);
  setter.join();
  CHECK(thrown<future_error>([&] { later.set_value(only_moved(6)); }) ==
        future_errc::promise_already_satisfied);

  kumihimo::future<void> broken;
  {
    promise<void> abandoned;
    broken = abandoned.get_future();
  }
  CHECK(thrown<future_error>([&] { broken.get(); }) == future_errc::broken_promise);

  int number = 3;
  promise<int&> reference;
  auto shared = reference.get_future().share();
  reference.set_value(number);
  auto copy = shared;
  CHECK(&shared.get() == &number && &copy.get() == &number);

  auto sum = kumihimo::async([](int a, int b) {
    CHECK(kumi_thread_is_microprocess());
    this_thread::sleep_for(1ms);
    return a + b;
  }, 3, 4);
  auto throws = kumihimo::async(kumihimo::launch::async, []() -> int {
    throw std::runtime_error("from the thread");
  });
  auto deferred = kumihimo::async(kumihimo::launch::deferred, [&] { number = 8; });
  CHECK(deferred.wait_for(0s) == future_status::deferred && number == 3);
  CHECK(sum.get() == 7);
  try {
    throws.get();
    CHECK(false);
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "from the thread");
  }
  deferred.get();
  CHECK(number == 8);
  // Nobody waits for the result: the destructor does.
  (void)kumihimo::async([&] { number = 9; });
  CHECK(number == 9);

  packaged_task<int(int)> twice([kept = std::make_unique<int>(2)](int n) { return *kept * n; });
  auto product = twice.get_future();
  twice(21);
  CHECK(product.get() == 42);
  CHECK(thrown<future_error>([&] { twice(1); }) == future_errc::promise_already_satisfied);
  twice.reset();
  product = twice.get_future();
  jthread runs(std::move(twice), 4);
  CHECK(product.get() == 8);
}

void cancellation() {
  mutex mutex;
  condition_variable changed;
  int unwound = 0;
  thread waiter([&] {
    struct count {
      int& number;
      ~count() { number++; }
    } counted{unwound};
    jthread inner([](stop_token token) {
      while (!token.stop_requested()) this_thread::sleep_for(1ms);
    });
    std::unique_lock lock(mutex);
    auto cancelled = std::make_error_code(std::errc::operation_canceled);
    auto wait = [&] { changed.wait(lock, [] { return false; }); };
    CHECK(thrown<std::system_error>(wait) == cancelled);
    CHECK(lock.owns_lock());
    CHECK(thrown<std::system_error>([] { this_thread::sleep_for(1h); }) == cancelled);
    // The inner thread's destructor waits nevertheless.
  });
  this_thread::sleep_for(2ms);
  CHECK(kumi_thread_cancel(waiter.native_handle()) == 0);
  waiter.join();
  CHECK(unwound == 1);
}

int main(int count, char** arguments) {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"threads", threads},
               {"locks", locks},
               {"conditions", conditions},
               {"futures", futures},
               {"cancellation", cancellation}};
  for (auto& one : cases) {
    if (count > 1 && std::strcmp(arguments[1], one.name) == 0) {
      one.run();
      thread(one.run).join();
      std::puts("all is well");
      return 0;
    }
  }
  return 2;
}
