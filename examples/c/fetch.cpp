// kumihimo.hpp in a page: futures, a stop, and locks of std.
#include <iostream>
#include <kumihimo.hpp>
#include <numeric>
#include <vector>

using namespace std::chrono_literals;

int main() {
  std::mutex output;  // blocks a kernel thread for a moment, which the runtime makes good
  std::vector<kumihimo::future<int>> parts;
  for (int i = 0; i < 1000; i++) {
    parts.push_back(kumihimo::async([i] {
      kumihimo::this_thread::sleep_for(1ms);
      return i;
    }));
  }
  kumihimo::mutex mutex;
  kumihimo::condition_variable_any changed;
  kumihimo::jthread watcher([&](kumihimo::stop_token token) {
    std::unique_lock lock(mutex);
    changed.wait(lock, token, [] { return false; });
    std::lock_guard line(output);
    std::cout << "stopped\n";
  });
  int sum = 0;
  for (auto& part : parts) sum += part.get();
  watcher.request_stop();
  watcher.join();
  std::lock_guard line(output);
  std::cout << sum << '\n';
}
