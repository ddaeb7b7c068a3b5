/* Values of threads: by return, by pthread_exit from nested calls, of detached threads, and the
 * errors of joins that cannot be. */
#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ended;

static void *returns(void *argument) {
    return (char *)argument + 1;
}

static void __attribute__((noinline)) leave(int depth, void *value) {
    char room[256];
    if (depth < 0) {
        return;
    }
    memset(room, depth, sizeof room);
    if (depth == 0) {
        pthread_exit((char *)value + (room[0] != depth));
    }
    leave(depth - 1, value);
    CHECK(!"pthread_exit returned");
}

static void *exits(void *argument) {
    leave(10, argument);
    return NULL;
}

static void *detaches_itself(void *argument) {
    (void)argument;
    RETURNS(0, pthread_detach(pthread_self()));
    pthread_mutex_lock(&lock);
    ended++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *joins_itself(void *argument) {
    (void)argument;
    return (void *)(intptr_t)pthread_join(pthread_self(), NULL);
}

static void *joins(void *argument) {
    return join(*(pthread_t *)argument);
}

/* Waits until `*argument` is not 0. */
static void *waits(void *argument) {
    pthread_mutex_lock(&lock);
    while (*(int *)argument == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void release(int *flag) {
    pthread_mutex_lock(&lock);
    *flag = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void *creates(void *argument) {
    pthread_t inner = create(returns, argument);
    CHECK(!pthread_equal(inner, pthread_self()));
    return join(inner);
}

int main(void) {
    char place[4];
    for (int i = 0; i < 200; i++) {
        CHECK(join(create(returns, place)) == place + 1);
        CHECK(join(create(exits, place)) == place);
        CHECK(join(create(creates, place)) == place + 1);
    }
    RETURNS(0, pthread_join(create(returns, place), NULL));
    CHECK(join(create(joins_itself, NULL)) == (void *)(intptr_t)EDEADLK);

    /* A thread joins one that another thread has created. */
    pthread_t first = create(returns, place);
    CHECK(join(create(joins, &first)) == place + 1);

    /* Detached by its attributes, by itself, by its creator. */
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    RETURNS(0, pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    for (int i = 0; i < 100; i++) {
        create(detaches_itself, NULL);
    }
    pthread_mutex_lock(&lock);
    while (ended < 100) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    pthread_t thread;
    static int held, other;
    RETURNS(0, pthread_create(&thread, &attributes, waits, &held));
    RETURNS(EINVAL, pthread_join(thread, NULL));
    RETURNS(EINVAL, pthread_detach(thread));
    release(&held);
    thread = create(waits, &other);
    RETURNS(0, pthread_detach(thread));
    RETURNS(EINVAL, pthread_join(thread, NULL));
    release(&other);
    return succeed();
}
