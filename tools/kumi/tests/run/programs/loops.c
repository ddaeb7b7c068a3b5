/* Threads that compute without a call: as many as there are processors and more spin until another
 * thread, which is created after them, changes a word. Others hold the heap's locks meanwhile. */
#include "check.h"

#include <stdatomic.h>

static atomic_int flag, stop;

static void *spins(void *argument) {
    (void)argument;
    while (!atomic_load_explicit(&flag, memory_order_relaxed)) {
    }
    return NULL;
}

static void *sets(void *argument) {
    (void)argument;
    flag = 1;
    return NULL;
}

static void *allocates(void *argument) {
    (void)argument;
    while (!stop) {
        char *blocks[16];
        for (int i = 0; i < 16; i++) {
            blocks[i] = malloc(16 << (i % 12));
            CHECK(blocks[i] != NULL);
            blocks[i][0] = (char)i;
        }
        for (int i = 0; i < 16; i++) {
            CHECK(blocks[i][0] == (char)i);
            free(blocks[i]);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[8], allocators[4];
    for (int i = 0; i < 4; i++) {
        allocators[i] = create(allocates, NULL);
    }
    for (int i = 0; i < 8; i++) {
        threads[i] = create(spins, NULL);
    }
    join(create(sets, NULL));
    for (int i = 0; i < 8; i++) {
        join(threads[i]);
    }
    stop = 1;
    for (int i = 0; i < 4; i++) {
        join(allocators[i]);
    }
    return succeed();
}
