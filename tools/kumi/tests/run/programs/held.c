/* Threads that lose the processor while they hold something: a spin lock whose holder sleeps, an
 * arena of malloc. held THREADS SECONDS spin|malloc prints the rounds, and the most kernel threads
 * that the process has had. Without arguments it runs both shortly, and checks that by `kumi run`
 * holders of spin locks need no kernel threads. */
#include "check.h"
#include <dirent.h>
#include <stdatomic.h>

enum { LOCKS = 8, BLOCKS = 256, MOST = 2000 };

static pthread_spinlock_t locks[LOCKS];
static long counts[LOCKS];
static _Atomic(char *) blocks[BLOCKS];
static atomic_int is_over, are_kernel_threads;
static atomic_long rounds;

static void note_kind(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)gettid());
    if (access(path, F_OK) == 0) {
        are_kernel_threads = 1;
    }
}

static int kernel_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    int count = -2; /* . and .. */
    while (readdir(tasks) != NULL) {
        count++;
    }
    closedir(tasks);
    return count;
}

static void *sleeps_with_a_lock(void *argument) {
    long which = (long)argument % LOCKS;
    note_kind();
    while (!is_over) {
        RETURNS(0, pthread_spin_lock(&locks[which]));
        long seen = counts[which];
        usleep(200);
        counts[which] = seen + 1;
        RETURNS(0, pthread_spin_unlock(&locks[which]));
        rounds++;
    }
    return NULL;
}

static void *allocates(void *argument) {
    uint64_t random = (uint64_t)argument * 77777 + 1;
    for (long round = 1; !is_over; round++) {
        for (int i = 0; i < 50; i++) {
            random = random * 6364136223846793005u + 1;
            size_t size = (random >> 33) % 40000 + 1;
            char *block = malloc(size);
            CHECK(block != NULL);
            block[0] = block[size - 1] = 1;
            free(atomic_exchange(&blocks[(random >> 20) % BLOCKS], block));
        }
        if (round % 20 == 0) {
            usleep(100);
        }
        rounds++;
    }
    return NULL;
}

/* Returns the most kernel threads that were seen. */
static int run(int threads, int milliseconds, void *(*routine)(void *)) {
    static pthread_t started[MOST];
    is_over = 0;
    rounds = 0;
    for (long i = 0; i < threads; i++) {
        started[i] = create(routine, (void *)i);
    }
    int most = 0;
    for (int i = 0; i < milliseconds / 10; i++) {
        usleep(10000);
        int now = kernel_threads();
        most = now > most ? now : most;
    }
    is_over = 1;
    for (int i = 0; i < threads; i++) {
        join(started[i]);
    }
    return most;
}

int main(int arguments, char **words) {
    for (int i = 0; i < LOCKS; i++) {
        RETURNS(0, pthread_spin_init(&locks[i], PTHREAD_PROCESS_PRIVATE));
    }
    if (arguments == 4) {
        int threads = atoi(words[1]);
        CHECK(threads > 0 && threads <= MOST);
        int is_spin = strcmp(words[3], "spin") == 0;
        int most = run(threads, atoi(words[2]) * 1000, is_spin ? sleeps_with_a_lock : allocates);
        printf("%ld rounds, %d kernel threads\n", rounds, most);
        return 0;
    }
    int most = run(100, 200, sleeps_with_a_lock);
    if (getenv("KUMIHIMO_RUN")) {
        CHECK(!are_kernel_threads);
        CHECK(most < 50);
    }
    long sum = 0;
    for (int i = 0; i < LOCKS; i++) {
        sum += counts[i];
    }
    CHECK(sum == rounds);
    run(100, 200, allocates);
    CHECK(rounds > 0);
    return succeed();
}
