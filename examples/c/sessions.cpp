// 10,000 threads at once, each of which waits while it holds a std::mutex, thread_local objects, an
// exception in flight and state of OpenSSL: sessions [THREADS].
//
// Nothing of this is written for microprocesses but the type of the threads and of what they wait
// for. Each microprocess has its own thread-local storage, so libraries and the C++ runtime find
// theirs after each wait, on whatever kernel thread it continues.
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <kumihimo.hpp>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tls.hpp"

using namespace std::chrono_literals;

static std::atomic<int> constructed, destroyed, waiting;

/// An object with a destructor in thread-local storage.
struct trail {
  trail() { constructed++; }
  ~trail() { destroyed++; }
  std::string steps;
};
static thread_local trail own;

/// A session is locked by std::mutex, which knows nothing of microprocesses.
struct session {
  std::mutex mutex;
  std::string digest;
};

static void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

/// Begins everything that belongs to a thread, waits, and finds it as it was.
static void serve(session& of, int number, kumihimo::latch& everybody) {
  std::lock_guard<std::mutex> held(of.mutex);
  own.steps = "session " + std::to_string(number);
  ERR_raise_data(ERR_LIB_USER, 1 + number % 100, "session %d", number);
  digest half(own.steps);
  try {
    throw std::runtime_error(own.steps);
  } catch (const std::runtime_error& error) {
    // The exception is alive, and the mutex held, while all the others run.
    waiting++;
    everybody.arrive_and_wait();
    require(error.what() == own.steps, "another thread's exception");
    of.digest = half.finish();
    try {
      throw;
    } catch (const std::exception& again) {
      require(&again == &error, "another exception");
    }
  }
  require(of.digest == digest(own.steps).finish(), "another thread's digest");
  const char* data = nullptr;
  unsigned long code = ERR_get_error_all(nullptr, nullptr, nullptr, &data, nullptr);
  require(ERR_GET_REASON(code) == 1 + number % 100, "another thread's error");
  require(data == own.steps, "another thread's message");
}

static int kernel_threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::atoi(line.c_str() + 8);
  }
  throw std::runtime_error("/proc/self/status has no number of threads");
}

/// Returns the number of kernel threads once it is below `limit`. A thread that waits for a lock of
/// glibc's allocator blocks a kernel thread. Kernel threads end when they have been idle for 100 ms.
static int idle_kernel_threads(int limit) {
  int threads = kernel_threads();
  for (; threads >= limit; threads = kernel_threads()) kumihimo::this_thread::sleep_for(10ms);
  return threads;
}

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 10000;
  std::vector<session> sessions(threads);
  kumihimo::latch everybody(threads + 1);
  std::vector<kumihimo::future<void>> running;
  for (int i = 0; i < threads; i++) {
    running.push_back(kumihimo::async([&, i] { serve(sessions[i], i, everybody); }));
  }
  // Reads sessions that are locked: it waits in the kernel, in pthread_mutex_lock(3), and the
  // runtime goes on with the others meanwhile.
  auto reader = kumihimo::async([&] {
    std::size_t bytes = 0;
    for (auto& one : sessions) {
      std::lock_guard<std::mutex> lock(one.mutex);
      bytes += one.digest.size();
    }
    return bytes;
  });
  while (waiting < threads) kumihimo::this_thread::sleep_for(1ms);
  const int beside = idle_kernel_threads(100);
  everybody.arrive_and_wait();
  for (auto& one : running) one.get();
  reader.get();
  running.clear();
  require(destroyed == constructed && constructed >= threads, "a thread_local object is left");
  std::printf("%d sessions on %d kernel threads\n", threads, beside);

  const int connections = threads < 100 ? threads : 100;
  std::printf("%d TLS connections: %s\n", connections, tls::talk(connections) ? "done" : "failed");
  return 0;
}
