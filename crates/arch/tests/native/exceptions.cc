// Exceptions and thread_local objects while a microprocess moves: `pause` lets another kernel thread take it over.
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>

static std::atomic<int> destroyed;
static std::atomic<int> seed;

struct Object {
    int value;
    std::string text;
    Object() : value(1000 + seed++), text("a text that is long enough to be on the heap") {}
    ~Object() { destroyed++; }
};
static thread_local Object object;

struct Local {
    std::atomic<int> &count;
    ~Local() { count++; }
};

static void throw_deep(int depth, void (*pause)(), std::atomic<int> &unwound) {
    Local local{unwound};
    if (depth == 0) {
        pause();
        throw std::runtime_error("deep");
    }
    throw_deep(depth - 1, pause, unwound);
}

extern "C" int object_value() { return object.value; }
extern "C" int objects_destroyed() { return destroyed; }

// 0: all as it should be; otherwise the number of the check that failed.
extern "C" int exceptions(void (*pause)()) {
    std::atomic<int> unwound{0};
    bool caught = false;
    try {
        throw_deep(5, pause, unwound);
    } catch (std::exception &e) {
        pause();
        if (std::string(e.what()) != "deep") return 1;
        try {
            pause();
            throw 5;
        } catch (int x) {
            pause();
            if (x != 5) return 2;
        }
        if (!std::current_exception()) return 3;
        caught = true;
    }
    if (!caught || unwound != 6) return 4;
    if (std::uncaught_exceptions() != 0 || std::current_exception()) return 5;
    int before = object.value;
    pause();
    if (object.value != before || object.text.size() < 20) return 6;
    return 0;
}
