// Benchmarks on the fibers of Boost.Fiber, with a kernel thread for each of `--vps`.
//
// Called as `rival BENCH [--vps N] [KEY=VALUE ...]`, it prints one line per sample:
// `metric value unit [key=value ...] [key:=value ...]`.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/fiber/all.hpp>

namespace fibers = boost::fibers;
using Clock = std::chrono::steady_clock;

namespace {

struct Request {
  std::string bench;
  unsigned vps = 1;
  std::map<std::string, std::string> keys;

  size_t value(const std::string &key, size_t otherwise) const {
    auto found = keys.find(key);
    return found == keys.end() ? otherwise : std::stoul(found->second);
  }

  // Without `part`, every part is wanted.
  bool wants(const std::string &part) const {
    auto found = keys.find("part");
    return found == keys.end() || found->second == part;
  }
};

[[noreturn]] void fail(const std::string &why) {
  std::fprintf(stderr, "rival-boost: %s\n", why.c_str());
  std::exit(2);
}

void check(bool holds, const char *what) {
  if (!holds) fail(what);
}

double nanoseconds(Clock::duration time) {
  return std::chrono::duration<double, std::nano>(time).count();
}

void sample(const std::string &metric, double value, const char *unit, const std::string &keys = "") {
  std::printf("%s %.9g %s %s\n", metric.c_str(), value, unit, keys.c_str());
}

constexpr uint32_t INSIDE = 10, OUTSIDE = 40;
constexpr size_t CROWD = 100000;

// Whether fibers move between kernel threads.
bool are_shared = false;

// Stacks are kept for the next fiber. The pool is for one kernel thread; where fibers end on
// another one, stacks are malloc's.
template <class Body> fibers::fiber spawn(Body body, fibers::launch first = fibers::launch::post) {
  thread_local fibers::pooled_fixedsize_stack pool;
  if (are_shared) return fibers::fiber(first, std::allocator_arg, fibers::fixedsize_stack(), std::move(body));
  return fibers::fiber(first, std::allocator_arg, pool, std::move(body));
}

// As `kumihimo_bench_kit::work::spin`.
uint64_t spin(uint64_t x, uint32_t rounds) {
  for (uint32_t i = 0; i < rounds; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  return x;
}

// --- communication

// Two fibers on each kernel thread, which take turns.
void yield(const Request &request) {
  constexpr int rounds = 500000;
  auto one = [] {
    std::vector<fibers::fiber> pair;
    Clock::duration took{};
    for (int i = 0; i < 2; i++) {
      pair.push_back(spawn([&took] {
        for (int n = 0; n < rounds / 10; n++) boost::this_fiber::yield();
        auto start = Clock::now();
        for (int n = 0; n < rounds; n++) boost::this_fiber::yield();
        took = std::max(took, Clock::now() - start);
      }));
    }
    for (auto &fiber : pair) fiber.join();
    return took;
  };
  std::vector<Clock::duration> took(request.vps);
  std::vector<std::thread> others;
  for (unsigned vp = 1; vp < request.vps; vp++) others.emplace_back([&, vp] { took[vp] = one(); });
  took[0] = one();
  for (auto &other : others) other.join();
  sample("switch", nanoseconds(*std::max_element(took.begin(), took.end())) / (2 * rounds), "ns");
}

void message(const Request &) {
  constexpr int rounds = 300000;
  fibers::unbuffered_channel<int> asked, answered;
  auto server = spawn([&] {
    for (int request : asked) answered.push(request + 1);
  });
  auto exchange = [&](int count) {
    for (int i = 0; i < count; i++) {
      asked.push(i);
      check(answered.value_pop() == i + 1, "a wrong answer");
    }
  };
  exchange(rounds / 10);
  auto start = Clock::now();
  exchange(rounds);
  sample("roundtrip", nanoseconds(Clock::now() - start) / rounds, "ns");
  asked.close();
  server.join();
}

struct Found {
  size_t primes = 0;
  uint64_t sum = 0;
};

using Numbers = fibers::unbuffered_channel<uint32_t>;

// A filter for each prime, created by the preceding filter.
void filter(std::shared_ptr<Numbers> from, Found &found) {
  uint32_t prime = from->value_pop();
  std::shared_ptr<Numbers> to;
  fibers::fiber next;
  Found rest;
  for (uint32_t n : *from) {
    if (n % prime == 0) continue;
    if (!to) {
      to = std::make_shared<Numbers>();
      next = spawn([to, &rest] { filter(to, rest); });
    }
    to->push(n);
  }
  if (to) {
    to->close();
    next.join();
  }
  found = {rest.primes + 1, rest.sum + prime};
}

void sieve(const Request &request) {
  struct Sieve { const char *part; uint32_t limit; size_t primes; uint64_t sum; int rounds; };
  for (auto &sieve : {Sieve{"primes700", 700, 125, 39612, 20}, Sieve{"primes2000", 17389, 2000, 16274627, 1}}) {
    if (!request.wants(sieve.part)) continue;
    auto run = [&] {
      auto first = std::make_shared<Numbers>();
      Found found;
      auto filters = spawn([&] { filter(first, found); });
      for (uint32_t n = 2; n <= sieve.limit; n++) first->push(n);
      first->close();
      filters.join();
      check(found.primes == sieve.primes && found.sum == sieve.sum, "wrong primes");
    };
    run();
    auto start = Clock::now();
    for (int i = 0; i < sieve.rounds; i++) run();
    sample(sieve.part, nanoseconds(Clock::now() - start) / sieve.rounds / 1e9, "s");
  }
}

void mutex(const Request &request) {
  constexpr int contenders = 64;
  const size_t rounds = request.value("rounds", 20000);
  fibers::mutex lock;
  uint64_t count = 0, inside = 1;
  std::atomic<uint64_t> kept{0};
  fibers::barrier gate(contenders + 1);
  std::vector<fibers::fiber> all;
  for (int seed = 0; seed < contenders; seed++) {
    all.push_back(spawn([&, seed] {
      gate.wait();
      uint64_t own = seed + 1;
      for (size_t i = 0; i < rounds; i++) {
        {
          std::lock_guard<fibers::mutex> held(lock);
          count += 1;
          inside = spin(inside, INSIDE);
        }
        own = spin(own, OUTSIDE);
      }
      kept += own;
    }));
  }
  auto start = Clock::now();
  gate.wait();
  for (auto &one : all) one.join();
  double took = nanoseconds(Clock::now() - start) / 1e9;
  check(count == contenders * rounds, "a lost update");
  sample("ops", contenders * rounds / took, "1/s");
}

// --- creation

// All fibers wait until the last one has been created, so all are alive at once.
struct Gate {
  fibers::mutex lock;
  fibers::condition_variable opens;
  bool open = false;

  void wait() {
    std::unique_lock<fibers::mutex> held(lock);
    opens.wait(held, [this] { return open; });
  }

  void let_go() {
    std::unique_lock<fibers::mutex> held(lock);
    open = true;
    opens.notify_all();
  }
};

void null_fork(const Request &request) {
  if (request.wants("sequential")) {
    constexpr int count = 200000;
    auto once = [] { spawn([] {}).join(); };
    for (int i = 0; i < count / 10; i++) once();
    auto start = Clock::now();
    for (int i = 0; i < count; i++) once();
    sample("sequential", nanoseconds(Clock::now() - start) / count, "ns");
  }
  if (request.wants("bulk")) {
    const size_t count = request.value("count", CROWD);
    for (auto metric : {"bulk_cold", "bulk_warm"}) {
      auto start = Clock::now();
      Gate gate;
      std::vector<fibers::fiber> made;
      for (size_t i = 0; i < count; i++) made.push_back(spawn([&gate] { gate.wait(); }));
      gate.let_go();
      for (auto &one : made) one.join();
      sample(metric, nanoseconds(Clock::now() - start) / count, "ns", "alive_max:=" + std::to_string(count));
    }
  }
}

uint64_t node(uint64_t first, uint64_t leaves) {
  if (leaves == 1) return first;
  const uint64_t share = leaves / 10;
  std::array<uint64_t, 10> sums;
  std::array<fibers::fiber, 10> children;
  for (uint64_t i = 0; i < 10; i++) {
    auto body = [&sum = sums[i], from = first + i * share, share] { sum = node(from, share); };
    // The child runs first.
    children[i] = spawn(body, fibers::launch::dispatch);
  }
  uint64_t total = 0;
  for (uint64_t i = 0; i < 10; i++) {
    children[i].join();
    total += sums[i];
  }
  return total;
}

uint64_t status(const char *name) {
  std::ifstream lines("/proc/self/status");
  for (std::string word; lines >> word;) {
    uint64_t kib;
    if (word == name && lines >> kib) return kib << 10;
  }
  fail("/proc/self/status has no memory");
}

void skynet(const Request &) {
  auto start = Clock::now();
  check(node(0, 1000000) == 499999500000, "a wrong sum");
  sample("total", nanoseconds(Clock::now() - start) / 1e9, "s");
  sample("peak_rss", status("VmHWM:"), "bytes");
}

void parked(const Request &request) {
  const size_t count = request.value("count", CROWD);
  std::atomic<size_t> stands{0};
  Gate gate;
  std::vector<fibers::fiber> made;
  const uint64_t before = status("VmRSS:");
  for (size_t i = 0; i < count; i++) {
    made.push_back(spawn([&, i] {
      auto kept = std::make_unique<size_t>(i);
      stands += 1;
      gate.wait();
      check(*kept == i, "a lost stack");
    }));
  }
  while (stands < count) boost::this_fiber::yield();
  const double rss = double(status("VmRSS:") - before) / count;
  auto stack = request.keys.count("stack") ? request.keys.at("stack") : std::string("default");
  const std::string n = std::to_string(count);
  sample("rss", rss, "bytes", "count=" + n + " stack=" + stack + " alive_max:=" + n);
  gate.let_go();
  for (auto &one : made) one.join();
}

Request parse(int count, char **args) {
  Request request;
  for (int i = 1; i < count; i++) {
    std::string arg = args[i];
    auto equals = arg.find('=');
    if (arg == "--vps") {
      if (++i == count) fail("--vps needs a value");
      request.vps = unsigned(std::stoul(args[i]));
    } else if (equals != std::string::npos) {
      request.keys[arg.substr(0, equals)] = arg.substr(equals + 1);
    } else {
      request.bench = arg;
    }
  }
  if (request.vps < 1) fail("--vps: not a number of at least 1");
  return request;
}

}  // namespace

int main(int count, char **args) {
  const Request request = parse(count, args);
  const std::map<std::string, void (*)(const Request &)> benches = {
      {"yield", yield},   {"null-fork", null_fork}, {"message", message}, {"sieve", sieve},
      {"skynet", skynet}, {"mutex", mutex},         {"parked", parked},
  };
  auto bench = benches.find(request.bench);
  if (bench == benches.end()) fail(request.bench + ": unknown benchmark");
  // `yield` pairs fibers on each thread; elsewhere all threads share one queue.
  if (request.vps == 1 || request.bench == "yield") {
    bench->second(request);
    return 0;
  }
  are_shared = true;
  // The threads end with the process.
  std::atomic<unsigned> ready{0};
  for (unsigned vp = 1; vp < request.vps; vp++) {
    std::thread([&ready] {
      fibers::use_scheduling_algorithm<fibers::algo::shared_work>(true);
      ready += 1;
      fibers::mutex lock;
      fibers::condition_variable never;
      std::unique_lock<fibers::mutex> held(lock);
      never.wait(held, [] { return false; });
    }).detach();
  }
  fibers::use_scheduling_algorithm<fibers::algo::shared_work>(true);
  while (ready + 1 < request.vps) std::this_thread::yield();
  bench->second(request);
  std::fflush(stdout);
  std::_Exit(0);
}
