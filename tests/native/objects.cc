// Exceptions in flight and thread_local objects while a microprocess waits and moves (`wait` does both).
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>

static std::atomic<int> constructed;
static std::atomic<int> destroyed;

struct Object {
    int value;
    std::string text;
    Object() : value(++constructed), text("a text that is long enough to be on the heap") {}
    ~Object() { destroyed++; }
};
static thread_local Object object;

struct Counts {
    int &count;
    void (*wait)();
    ~Counts() { wait(); count++; }
};

static void throw_deep(int depth, void (*wait)(), int &unwound) {
    Counts counts{unwound, wait};
    if (depth == 0) {
        wait();
        throw std::runtime_error("deep");
    }
    throw_deep(depth - 1, wait, unwound);
}

extern "C" int cpp_object() { return object.value; }
extern "C" int cpp_constructed() { return constructed; }
extern "C" int cpp_destroyed() { return destroyed; }

// 0: all as it should be; otherwise the number of the check that failed.
extern "C" int cpp_exceptions(void (*wait)()) {
    int unwound = 0;
    bool caught = false;
    try {
        throw_deep(4, wait, unwound);
    } catch (std::exception &e) {
        wait();
        if (std::string(e.what()) != "deep") return 1;
        try {
            wait();
            throw 5;
        } catch (int x) {
            wait();
            if (x != 5) return 2;
        }
        if (!std::current_exception()) return 3;
        caught = true;
    }
    if (!caught || unwound != 5) return 4;
    if (std::uncaught_exceptions() != 0 || std::current_exception()) return 5;
    int before = object.value;
    wait();
    return object.value == before && object.text.size() > 20 ? 0 : 6;
}
