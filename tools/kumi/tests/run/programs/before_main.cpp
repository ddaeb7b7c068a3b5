/* Threads before `main` and after it: in constructors, in destructors of static objects, and in
 * handlers of the exit. */
#include "check.h"

#include <atomic>
#include <mutex>
#include <thread>

static std::atomic<int> ran{0};

static void *counts(void *argument) {
    usleep(100);
    ran++;
    return argument;
}

__attribute__((constructor)) static void constructor() {
    CHECK(join(create(counts, &ran)) == &ran);
}

struct Early {
    std::thread thread;
    std::mutex lock;
    Early() : thread([] { ran++; }) { thread.join(); }
    ~Early() {
        lock.lock();
        std::atomic<bool> has_lock{false};
        std::thread waits([&] {
            std::lock_guard<std::mutex> guard(lock);
            has_lock = true;
        });
        usleep(500);
        CHECK(!has_lock);
        lock.unlock();
        waits.join();
        CHECK(has_lock && ran == 6);
        /* The last word of the program. */
        succeed();
        fflush(stdout);
    }
};

static Early early;

static void at_exit() {
    join(create(counts, nullptr));
    join(create(counts, nullptr));
}

int main() {
    CHECK(ran == 2);
    atexit(at_exit);
    std::thread([] { ran++; }).join();
    static std::thread unfinished([] { pause(); });
    unfinished.detach();
    join(create(counts, nullptr));
    return 0;
}
