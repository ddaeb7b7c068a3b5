/* C++: thread_local objects and their destructors, exceptions across waits, and the library's own
 * threads, futures and locks. */
#include "check.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> alive{0};
static std::atomic<int> made{0};

struct Counted {
    std::string name;
    Counted() : name("thread") {
        alive++;
        made++;
    }
    ~Counted() {
        CHECK(name == "thread" || name == "renamed");
        alive--;
    }
};

thread_local Counted counted;
thread_local int number = 7;

/* Destructors of a thread's objects run in the reverse order of their construction, before those of
 * its keys, and may wait. */
static pthread_key_t key;
static thread_local std::string *order;

struct Ordered {
    char name;
    explicit Ordered(char name) : name(name) {}
    ~Ordered() {
        usleep(50);
        *order += name;
    }
};

static void ends_with_key(void *to) {
    *static_cast<std::string *>(to) += 'k';
}

static void has_ordered_objects(std::string *to) {
    order = to;
    CHECK(pthread_setspecific(key, to) == 0);
    static thread_local Ordered first('1');
    CHECK(first.name == '1');
    static thread_local Ordered second('2');
    CHECK(second.name == '2');
}

struct Unwound {
    int &count;
    ~Unwound() { count++; }
};

static int throws(int depth, int &unwound) {
    Unwound here{unwound};
    if (depth == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        throw std::runtime_error("deep");
    }
    return throws(depth - 1, unwound) + 1;
}

static void works() {
    CHECK(number == 7);
    number = 8;
    counted.name = "renamed";
    int unwound = 0;
    try {
        throws(20, unwound);
        CHECK(false);
    } catch (const std::runtime_error &error) {
        /* Another exception while one is handled. */
        std::this_thread::yield();
        CHECK(std::string(error.what()) == "deep");
        CHECK(std::uncaught_exceptions() == 0);
    }
    CHECK(unwound == 21);
    CHECK(number == 8);
}

int main() {
    for (int round = 0; round < 20; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 10; i++) {
            threads.emplace_back(works);
        }
        for (auto &thread : threads) {
            thread.join();
        }
        CHECK(alive == 0);
    }
    CHECK(made == 200);

    CHECK(pthread_key_create(&key, ends_with_key) == 0);
    std::string orders[10];
    std::vector<std::thread> ordered;
    for (auto &order : orders) {
        ordered.emplace_back(has_ordered_objects, &order);
    }
    for (int i = 0; i < 10; i++) {
        ordered[i].join();
        CHECK(orders[i] == "21k");
    }

    std::vector<std::future<int>> futures;
    for (int i = 0; i < 20; i++) {
        futures.push_back(std::async(std::launch::async, [i] {
            if (i % 5 == 0) {
                throw i;
            }
            return i * i;
        }));
    }
    for (int i = 0; i < 20; i++) {
        try {
            CHECK(futures[i].get() == i * i && i % 5 != 0);
        } catch (int thrown) {
            CHECK(thrown == i && i % 5 == 0);
        }
    }

    std::timed_mutex timed;
    timed.lock();
    std::thread([&] {
        CHECK(!timed.try_lock_for(std::chrono::milliseconds(5)));
    }).join();
    timed.unlock();

    std::mutex lock;
    std::condition_variable changed;
    std::shared_mutex shared;
    int turn = 0;
    auto takes_turns = [&](int own) {
        for (int i = 0; i < 200; i++) {
            std::unique_lock<std::mutex> guard(lock);
            changed.wait(guard, [&] { return turn == own; });
            std::shared_lock<std::shared_mutex> reading(shared);
            turn = 1 - own;
            changed.notify_all();
        }
    };
    std::thread one(takes_turns, 0), two(takes_turns, 1);
    one.join();
    two.join();
    std::unique_lock<std::mutex> guard(lock);
    auto none = changed.wait_for(guard, std::chrono::milliseconds(5));
    CHECK(none == std::cv_status::timeout);
    return succeed();
}
