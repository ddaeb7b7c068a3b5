/* Every lock of the C library at once, by threads that compute, sleep, allocate and time out at
 * random: fire THREADS ROUNDS SEED. A lost wake-up hangs the program, since the waits between
 * partners and for the barrier have no time-out. */
#include "check.h"
#include <linux/futex.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { MUTEXES = 6, BLOCKS = 64, UNITS = 3, MOST = 256 };

static pthread_mutex_t mutexes[MUTEXES];
static long protected_by_mutex[MUTEXES];
static pthread_rwlock_t rwlocks[2];
static long protected_by_rwlock[2];
static pthread_spinlock_t spin;
static long protected_by_spin;
static sem_t units;
static atomic_int units_in_use;
static pthread_mutex_t box_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t box_filled = PTHREAD_COND_INITIALIZER;
static long in_box;
static atomic_int futex_word;
static pthread_barrier_t barrier;
static _Atomic(unsigned char *) blocks[BLOCKS];

static struct partners {
    pthread_mutex_t mutex;
    pthread_cond_t met;
    int has_first;
    long meetings;
    sem_t ping, pong;
    atomic_int turn;
} partners[MOST / 2];

static int threads, rounds;
static uint64_t seed;

struct self {
    int number;
    uint64_t state;
    long by_mutex[MUTEXES], by_rwlock[2], by_spin, put, taken;
};

static uint64_t next(struct self *self) {
    uint64_t mixed = self->state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

static int below(struct self *self, int bound) { return (int)(next(self) % (uint64_t)bound); }

static void compute(int steps) {
    for (volatile int i = 0; i < steps; i++) {
    }
}

/* What a thread does while it holds a lock: nothing, a computation, a sleep, an allocation. */
static void dwell(struct self *self) {
    switch (below(self, 12)) {
    case 0:
        usleep((useconds_t)below(self, 300));
        break;
    case 1:
        compute(below(self, 20000));
        break;
    case 2:
        free(malloc((size_t)below(self, 5000) + 1));
        break;
    case 3:
        sched_yield();
        break;
    default:
        break;
    }
}

static struct timespec soon(struct self *self, clockid_t clock) {
    return in_milliseconds(clock, below(self, 3));
}

static void use_mutex(struct self *self) {
    int which = below(self, MUTEXES);
    pthread_mutex_t *mutex = &mutexes[which];
    struct timespec at;
    int done;
    switch (below(self, 4)) {
    case 0:
        at = soon(self, CLOCK_REALTIME);
        done = pthread_mutex_timedlock(mutex, &at);
        break;
    case 1:
        at = soon(self, CLOCK_MONOTONIC);
        done = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &at);
        break;
    case 2:
        done = pthread_mutex_trylock(mutex);
        CHECK(done == 0 || done == EBUSY);
        break;
    default:
        done = pthread_mutex_lock(mutex);
        CHECK(done == 0);
    }
    if (done == 0) {
        long seen = protected_by_mutex[which];
        dwell(self);
        protected_by_mutex[which] = seen + 1;
        self->by_mutex[which]++;
        RETURNS(0, pthread_mutex_unlock(mutex));
    } else {
        CHECK(done == ETIMEDOUT || done == EBUSY);
    }
}

static void use_rwlock(struct self *self) {
    int which = below(self, 2);
    pthread_rwlock_t *lock = &rwlocks[which];
    struct timespec at = soon(self, CLOCK_REALTIME);
    int is_writer = below(self, 3) == 0, is_timed = below(self, 2), done;
    if (is_writer) {
        done = is_timed ? pthread_rwlock_timedwrlock(lock, &at) : pthread_rwlock_wrlock(lock);
    } else {
        done = is_timed ? pthread_rwlock_timedrdlock(lock, &at) : pthread_rwlock_rdlock(lock);
    }
    if (done != 0) {
        CHECK(is_timed && done == ETIMEDOUT);
        return;
    }
    long seen = protected_by_rwlock[which];
    dwell(self);
    CHECK(protected_by_rwlock[which] == seen);
    if (is_writer) {
        protected_by_rwlock[which] = seen + 1;
        self->by_rwlock[which]++;
    }
    RETURNS(0, pthread_rwlock_unlock(lock));
}

static void use_unit(struct self *self) {
    struct timespec at = soon(self, CLOCK_REALTIME);
    int done = below(self, 2) ? sem_wait(&units) : sem_timedwait(&units, &at);
    if (done != 0) {
        CHECK(errno == ETIMEDOUT);
        return;
    }
    CHECK(atomic_fetch_add(&units_in_use, 1) < UNITS);
    dwell(self);
    atomic_fetch_sub(&units_in_use, 1);
    RETURNS(0, sem_post(&units));
}

static void use_spin(struct self *self) {
    RETURNS(0, pthread_spin_lock(&spin));
    long seen = protected_by_spin;
    dwell(self);
    protected_by_spin = seen + 1;
    self->by_spin++;
    RETURNS(0, pthread_spin_unlock(&spin));
}

static void use_box(struct self *self) {
    if (below(self, 2)) {
        RETURNS(0, pthread_mutex_lock(&box_mutex));
        in_box++;
        self->put++;
        RETURNS(0, pthread_mutex_unlock(&box_mutex));
        RETURNS(0, below(self, 4) ? pthread_cond_signal(&box_filled)
                                  : pthread_cond_broadcast(&box_filled));
        return;
    }
    struct timespec at = soon(self, CLOCK_REALTIME);
    RETURNS(0, pthread_mutex_lock(&box_mutex));
    int done = 0;
    while (in_box == 0 && done == 0) {
        done = pthread_cond_timedwait(&box_filled, &box_mutex, &at);
        CHECK(done == 0 || done == ETIMEDOUT);
    }
    if (in_box > 0) {
        in_box--;
        self->taken++;
    }
    RETURNS(0, pthread_mutex_unlock(&box_mutex));
}

static void use_futex(struct self *self) {
    if (below(self, 2)) {
        atomic_fetch_add(&futex_word, 1);
        CHECK(syscall(SYS_futex, &futex_word, FUTEX_WAKE_PRIVATE, 1 + below(self, 3)) >= 0);
        return;
    }
    struct timespec length = {0, below(self, 1000000)};
    if (syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, atomic_load(&futex_word), &length)) {
        CHECK(errno == EAGAIN || errno == ETIMEDOUT);
    }
}

/* Frees the block that another thread has left, and leaves one. */
static void use_heap(struct self *self) {
    for (int i = 0; i < 20; i++) {
        size_t size = (size_t)below(self, below(self, 20) ? 600 : 200000) + 2;
        unsigned char *block = malloc(size);
        CHECK(block != NULL);
        block[0] = block[size - 1] = (unsigned char)size;
        block[1] = (unsigned char)(size == 2 ? size : 0x5a);
        block = atomic_exchange(&blocks[below(self, BLOCKS)], block);
        CHECK(block == NULL || block[1] == 0x5a || block[0] == 2);
        free(block);
    }
}

/* Both partners meet. Each way of waiting is used in turn, and none has a time-out. */
static void meet(struct self *self, int round) {
    struct partners *pair = &partners[self->number / 2];
    int is_first = self->number % 2 == 0;
    switch (round % 3) {
    case 0: {
        RETURNS(0, pthread_mutex_lock(&pair->mutex));
        if (pair->has_first) {
            pair->has_first = 0;
            pair->meetings++;
            RETURNS(0, pthread_cond_signal(&pair->met));
        } else {
            pair->has_first = 1;
            long seen = pair->meetings;
            while (pair->meetings == seen) {
                RETURNS(0, pthread_cond_wait(&pair->met, &pair->mutex));
            }
        }
        RETURNS(0, pthread_mutex_unlock(&pair->mutex));
        break;
    }
    case 1:
        RETURNS(0, sem_post(is_first ? &pair->ping : &pair->pong));
        RETURNS(0, sem_wait(is_first ? &pair->pong : &pair->ping));
        break;
    default:
        for (int i = 0; i < 4; i++) {
            int seen;
            while ((seen = atomic_load(&pair->turn)) % 2 != !is_first) {
                syscall(SYS_futex, &pair->turn, FUTEX_WAIT_PRIVATE, seen, NULL);
            }
            atomic_fetch_add(&pair->turn, 1);
            syscall(SYS_futex, &pair->turn, FUTEX_WAKE_PRIVATE, 1);
        }
    }
}

static void *run(void *argument) {
    struct self *self = argument;
    for (int round = 0; round < rounds; round++) {
        switch (below(self, 12)) {
        case 0:
        case 1:
        case 2:
            use_mutex(self);
            break;
        case 3:
        case 4:
            use_rwlock(self);
            break;
        case 5:
            use_unit(self);
            break;
        case 6:
            use_spin(self);
            break;
        case 7:
        case 8:
            use_box(self);
            break;
        case 9:
            use_futex(self);
            break;
        case 10:
            use_heap(self);
            break;
        default:
            compute(below(self, 400000));
        }
        if (round % 7 == 6) {
            meet(self, round / 7);
        }
        if (round % 50 == 49) {
            int done = pthread_barrier_wait(&barrier);
            CHECK(done == 0 || done == PTHREAD_BARRIER_SERIAL_THREAD);
        }
    }
    return NULL;
}

int main(int arguments, char **words) {
    CHECK(arguments == 4);
    threads = atoi(words[1]);
    rounds = atoi(words[2]);
    seed = strtoull(words[3], NULL, 10);
    CHECK(threads > 0 && threads % 2 == 0 && threads <= MOST);
    int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                   PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int i = 0; i < MUTEXES; i++) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        RETURNS(0, pthread_mutexattr_settype(&attributes, kinds[i % 4]));
        RETURNS(0, pthread_mutex_init(&mutexes[i], &attributes));
    }
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    RETURNS(0, pthread_rwlock_init(&rwlocks[0], &attributes));
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    RETURNS(0, pthread_rwlock_init(&rwlocks[1], &attributes));
    RETURNS(0, pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    RETURNS(0, sem_init(&units, 0, UNITS));
    RETURNS(0, pthread_barrier_init(&barrier, NULL, (unsigned)threads));
    for (int i = 0; i < threads / 2; i++) {
        RETURNS(0, pthread_mutex_init(&partners[i].mutex, NULL));
        RETURNS(0, pthread_cond_init(&partners[i].met, NULL));
        RETURNS(0, sem_init(&partners[i].ping, 0, 0));
        RETURNS(0, sem_init(&partners[i].pong, 0, 0));
    }
    static struct self selves[MOST];
    static pthread_t started[MOST];
    for (int i = 0; i < threads; i++) {
        selves[i].number = i;
        selves[i].state = seed * MOST + (uint64_t)i;
        started[i] = create(run, &selves[i]);
    }
    struct self sum = {0};
    for (int i = 0; i < threads; i++) {
        join(started[i]);
        for (int k = 0; k < MUTEXES; k++) {
            sum.by_mutex[k] += selves[i].by_mutex[k];
        }
        sum.by_rwlock[0] += selves[i].by_rwlock[0];
        sum.by_rwlock[1] += selves[i].by_rwlock[1];
        sum.by_spin += selves[i].by_spin;
        sum.put += selves[i].put;
        sum.taken += selves[i].taken;
    }
    for (int k = 0; k < MUTEXES; k++) {
        CHECK(sum.by_mutex[k] == protected_by_mutex[k]);
    }
    CHECK(sum.by_rwlock[0] == protected_by_rwlock[0] && sum.by_rwlock[1] == protected_by_rwlock[1]);
    CHECK(sum.by_spin == protected_by_spin);
    CHECK(sum.put == sum.taken + in_box);
    int left;
    RETURNS(0, sem_getvalue(&units, &left));
    CHECK(left == UNITS);
    return succeed();
}
