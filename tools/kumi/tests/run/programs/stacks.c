/* Stacks: of the program's own memory, of a size that is asked for, and what pthread_getattr_np says
 * about them. */
#include "check.h"

#include <sys/mman.h>

static char *own_memory;
static size_t own_size;

/* The stack of the calling thread as the C library describes it. */
static void describe(char **lowest, size_t *size, int *detach_state) {
    pthread_attr_t attributes;
    RETURNS(0, pthread_getattr_np(pthread_self(), &attributes));
    RETURNS(0, pthread_attr_getstack(&attributes, (void **)lowest, size));
    RETURNS(0, pthread_attr_getdetachstate(&attributes, detach_state));
    RETURNS(0, pthread_attr_destroy(&attributes));
}

/* Uses about `depth` KiB of the stack. */
static size_t __attribute__((noinline)) dig(size_t depth) {
    volatile unsigned char room[1024];
    room[0] = room[1023] = (unsigned char)depth;
    return depth == 0 ? room[0] : dig(depth - 1) + room[1023];
}

static void *uses(void *argument) {
    size_t wanted = (size_t)argument;
    char here, *lowest;
    size_t size;
    int detach_state;
    describe(&lowest, &size, &detach_state);
    CHECK(&here > lowest && &here < lowest + size);
    CHECK(detach_state == PTHREAD_CREATE_JOINABLE);
    CHECK(size >= wanted);
    dig((size_t)(&here - lowest) / 1024 * 3 / 5);
    usleep(100);
    return &own_memory;
}

static void *uses_own(void *argument) {
    (void)argument;
    char here, *lowest;
    size_t size;
    int detach_state;
    CHECK(&here > own_memory && &here < own_memory + own_size);
    describe(&lowest, &size, &detach_state);
    CHECK(lowest == own_memory && size == own_size);
    dig(own_size / 1024 / 2);
    usleep(100);
    CHECK(&here > own_memory && &here < own_memory + own_size);
    if (argument != NULL) {
        pthread_exit(&own_size);
    }
    return &own_memory;
}

int main(void) {
    uses((void *)(64 << 10));
    CHECK(join(create(uses, (void *)(64 << 10))) == &own_memory);
    pthread_attr_t attributes;
    RETURNS(0, pthread_attr_init(&attributes));
    RETURNS(EINVAL, pthread_attr_setstacksize(&attributes, 1024));
    const size_t sizes[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        RETURNS(0, pthread_attr_setstacksize(&attributes, sizes[i]));
        RETURNS(0, pthread_attr_setguardsize(&attributes, i % 2 * 65536));
        /* glibc takes its guard and its block out of the size. */
        size_t usable = sizes[i] > 256 << 10 ? sizes[i] / 2 : 0;
        RETURNS(0, pthread_create(&thread, &attributes, uses, (void *)usable));
        CHECK(join(thread) == &own_memory);
    }
    own_size = 256 << 10;
    own_memory = mmap(NULL, own_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own_memory != MAP_FAILED);
    RETURNS(0, pthread_attr_init(&attributes));
    RETURNS(0, pthread_attr_setstack(&attributes, own_memory, own_size));
    for (intptr_t i = 0; i < 40; i++) {
        pthread_t thread;
        RETURNS(0, pthread_create(&thread, &attributes, uses_own, (void *)(i % 2)));
        CHECK(join(thread) == (i % 2 == 0 ? (void *)&own_memory : (void *)&own_size));
        /* The program's memory is the program's again after the join. */
        memset(own_memory, 0x11, own_size);
    }
    RETURNS(0, munmap(own_memory, own_size));
    return succeed();
}
