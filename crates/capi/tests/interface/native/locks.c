/* Locks, condition variables, semaphores and barriers: locks CASE. */
#include "check.h"

#define THREADS 50
#define TURNS 200

static kumi_mutex mutex = KUMI_MUTEX_INIT;
static kumi_cond cond = KUMI_COND_INIT;
static kumi_rwlock rwlock = KUMI_RWLOCK_INIT;
static kumi_semaphore semaphore = KUMI_SEMAPHORE_INIT;
static kumi_barrier barrier;
static int shared, waiting;

static void *count(void *arg) {
  int i;
  (void)arg;
  for (i = 0; i < TURNS; i++) {
    RETURNS(0, kumi_mutex_lock(&mutex));
    shared++;
    RETURNS(0, kumi_mutex_unlock(&mutex));
    RETURNS(0, kumi_rwlock_wrlock(&rwlock));
    shared++;
    RETURNS(0, kumi_rwlock_unlock(&rwlock));
    RETURNS(0, kumi_rwlock_rdlock(&rwlock));
    RETURNS(0, kumi_rwlock_unlock(&rwlock));
  }
  RETURNS(0, kumi_semaphore_post(&semaphore));
  return NULL;
}

static void *count_one(void *arg) {
  int i;
  for (i = 0; i < TURNS; i++) {
    RETURNS(0, kumi_mutex_timedlock(&mutex, LONG));
    ++*(int *)arg;
    RETURNS(0, kumi_mutex_unlock(&mutex));
  }
  return NULL;
}

static void *pass(void *arg) {
  int is_last = -1;
  RETURNS(0, kumi_barrier_wait(arg, &is_last));
  CHECK(is_last == 0 || is_last == 1);
  return is_last ? arg : NULL;
}

static void *await(void *arg) {
  (void)arg;
  RETURNS(0, kumi_mutex_lock(&mutex));
  waiting = 1;
  while (shared == 0) RETURNS(0, kumi_cond_timedwait(&cond, &mutex, LONG));
  waiting = 0;
  RETURNS(0, kumi_mutex_unlock(&mutex));
  return NULL;
}

static void work(void) {
  kumi_thread threads[THREADS];
  int i, lasts = 0, total = 0;
  shared = 0;
  for (i = 0; i < THREADS; i++) threads[i] = start(count_one, &total);
  for (i = 0; i < THREADS; i++) join(threads[i]);
  CHECK(total == THREADS * TURNS);
  for (i = 0; i < THREADS; i++) threads[i] = start(count, NULL);
  for (i = 0; i < THREADS; i++) RETURNS(0, kumi_semaphore_timedwait(&semaphore, LONG));
  for (i = 0; i < THREADS; i++) join(threads[i]);
  shared = 0;
  for (i = 0; i < THREADS; i++) threads[i] = start(await, NULL);
  RETURNS(0, kumi_mutex_lock(&mutex));
  shared = 1;
  RETURNS(0, kumi_cond_broadcast(&cond));
  RETURNS(0, kumi_mutex_unlock(&mutex));
  for (i = 0; i < THREADS; i++) join(threads[i]);
  RETURNS(0, kumi_barrier_init(&barrier, THREADS));
  for (i = 0; i < THREADS; i++) threads[i] = start(pass, &barrier);
  for (i = 0; i < THREADS; i++) lasts += join(threads[i]) != NULL;
  CHECK(lasts == 1);
  RETURNS(0, kumi_barrier_destroy(&barrier));
}

static void null(void) {
  RETURNS(EINVAL, kumi_mutex_init(NULL, 0));
  RETURNS(EINVAL, kumi_mutex_destroy(NULL));
  RETURNS(EINVAL, kumi_mutex_lock(NULL));
  RETURNS(EINVAL, kumi_mutex_trylock(NULL));
  RETURNS(EINVAL, kumi_mutex_timedlock(NULL, 0));
  RETURNS(EINVAL, kumi_mutex_unlock(NULL));
  RETURNS(EINVAL, kumi_rwlock_init(NULL));
  RETURNS(EINVAL, kumi_rwlock_destroy(NULL));
  RETURNS(EINVAL, kumi_rwlock_rdlock(NULL));
  RETURNS(EINVAL, kumi_rwlock_tryrdlock(NULL));
  RETURNS(EINVAL, kumi_rwlock_timedrdlock(NULL, 0));
  RETURNS(EINVAL, kumi_rwlock_wrlock(NULL));
  RETURNS(EINVAL, kumi_rwlock_trywrlock(NULL));
  RETURNS(EINVAL, kumi_rwlock_timedwrlock(NULL, 0));
  RETURNS(EINVAL, kumi_rwlock_unlock(NULL));
  RETURNS(EINVAL, kumi_cond_init(NULL));
  RETURNS(EINVAL, kumi_cond_destroy(NULL));
  RETURNS(EINVAL, kumi_cond_wait(NULL, &mutex));
  RETURNS(EINVAL, kumi_cond_wait(&cond, NULL));
  RETURNS(EINVAL, kumi_cond_timedwait(NULL, NULL, 0));
  RETURNS(EINVAL, kumi_cond_wait_until(NULL, NULL, 0));
  RETURNS(EINVAL, kumi_cond_signal(NULL));
  RETURNS(EINVAL, kumi_cond_broadcast(NULL));
  RETURNS(EINVAL, kumi_semaphore_init(NULL, 0));
  RETURNS(EINVAL, kumi_semaphore_destroy(NULL));
  RETURNS(EINVAL, kumi_semaphore_wait(NULL));
  RETURNS(EINVAL, kumi_semaphore_trywait(NULL));
  RETURNS(EINVAL, kumi_semaphore_timedwait(NULL, 0));
  RETURNS(EINVAL, kumi_semaphore_post(NULL));
  RETURNS(EINVAL, kumi_semaphore_value(NULL, NULL));
  RETURNS(EINVAL, kumi_semaphore_value(&semaphore, NULL));
  RETURNS(EINVAL, kumi_barrier_init(NULL, 1));
  RETURNS(EINVAL, kumi_barrier_destroy(NULL));
  RETURNS(EINVAL, kumi_barrier_wait(NULL, NULL));
}

/* Memory that is no live object of the type, and arguments out of range. */
static void invalid(void) {
  kumi_mutex lock;
  kumi_barrier meeting;
  uint32_t value;
  memset(&lock, 0x5a, sizeof lock);
  RETURNS(EINVAL, kumi_mutex_lock(&lock));
  RETURNS(EINVAL, kumi_mutex_destroy(&lock));
  RETURNS(EINVAL, kumi_mutex_init(&lock, 2));
  RETURNS(0, kumi_mutex_init(&lock, 0));
  RETURNS(EINVAL, kumi_cond_signal((kumi_cond *)(void *)&lock));
  RETURNS(EINVAL, kumi_mutex_lock((kumi_mutex *)(void *)((char *)&lock + 1)));
  RETURNS(0, kumi_mutex_destroy(&lock));
  RETURNS(EINVAL, kumi_mutex_lock(&lock));
  RETURNS(EINVAL, kumi_mutex_destroy(&lock));
  memset(&meeting, 0, sizeof meeting);
  RETURNS(EINVAL, kumi_barrier_wait(&meeting, NULL));
  RETURNS(EINVAL, kumi_barrier_init(&meeting, 0));
  RETURNS(EINVAL, kumi_semaphore_init(&semaphore, KUMI_SEMAPHORE_MAX + 1));
  RETURNS(0, kumi_semaphore_init(&semaphore, KUMI_SEMAPHORE_MAX));
  RETURNS(EOVERFLOW, kumi_semaphore_post(&semaphore));
  RETURNS(0, kumi_semaphore_value(&semaphore, &value));
  CHECK(value == KUMI_SEMAPHORE_MAX);
}

static void times(void) {
  kumi_mutex lock = KUMI_MUTEX_INIT;
  const int64_t bad[] = {-2, INT64_MIN};
  int i;
  RETURNS(0, kumi_semaphore_init(&semaphore, 0));
  for (i = 0; i < 2; i++) {
    RETURNS(EINVAL, kumi_mutex_timedlock(&lock, bad[i]));
    RETURNS(EINVAL, kumi_rwlock_timedrdlock(&rwlock, bad[i]));
    RETURNS(EINVAL, kumi_rwlock_timedwrlock(&rwlock, bad[i]));
    RETURNS(EINVAL, kumi_semaphore_timedwait(&semaphore, bad[i]));
    RETURNS(EINVAL, kumi_cond_timedwait(&cond, &lock, bad[i]));
    RETURNS(EINVAL, kumi_cond_wait_until(&cond, &lock, bad[i]));
  }
  RETURNS(0, kumi_mutex_timedlock(&lock, INT64_MAX));
  RETURNS(ETIMEDOUT, kumi_cond_timedwait(&cond, &lock, MS));
  RETURNS(ETIMEDOUT, kumi_cond_timedwait(&cond, &lock, 0));
  RETURNS(ETIMEDOUT, kumi_cond_wait_until(&cond, &lock, kumi_now() + MS));
  RETURNS(ETIMEDOUT, kumi_cond_wait_until(&cond, &lock, 0));
  RETURNS(0, kumi_mutex_unlock(&lock));
  RETURNS(ETIMEDOUT, kumi_semaphore_timedwait(&semaphore, 0));
  RETURNS(ETIMEDOUT, kumi_semaphore_timedwait(&semaphore, MS));
  RETURNS(EAGAIN, kumi_semaphore_trywait(&semaphore));
  RETURNS(0, kumi_rwlock_timedwrlock(&rwlock, KUMI_FOREVER));
  RETURNS(0, kumi_rwlock_unlock(&rwlock));
}

static kumi_mutex held = KUMI_MUTEX_INIT;

/* What another thread than the owner may do. */
static void *intrude(void *arg) {
  (void)arg;
  RETURNS(EPERM, kumi_mutex_unlock(&held));
  RETURNS(EBUSY, kumi_mutex_trylock(&held));
  RETURNS(ETIMEDOUT, kumi_mutex_timedlock(&held, MS));
  RETURNS(EBUSY, kumi_mutex_destroy(&held));
  RETURNS(EPERM, kumi_cond_wait(&cond, &held));
  RETURNS(EPERM, kumi_rwlock_unlock(&rwlock));
  RETURNS(EBUSY, kumi_rwlock_tryrdlock(&rwlock));
  RETURNS(EBUSY, kumi_rwlock_trywrlock(&rwlock));
  RETURNS(ETIMEDOUT, kumi_rwlock_timedrdlock(&rwlock, MS));
  RETURNS(EBUSY, kumi_rwlock_destroy(&rwlock));
  return NULL;
}

static void owners(void) {
  kumi_mutex again;
  RETURNS(EPERM, kumi_mutex_unlock(&held));
  RETURNS(EPERM, kumi_cond_wait(&cond, &held));
  RETURNS(EPERM, kumi_rwlock_unlock(&rwlock));
  RETURNS(0, kumi_mutex_lock(&held));
  RETURNS(EDEADLK, kumi_mutex_lock(&held));
  RETURNS(EDEADLK, kumi_mutex_timedlock(&held, LONG));
  RETURNS(EBUSY, kumi_mutex_trylock(&held));
  RETURNS(0, kumi_rwlock_wrlock(&rwlock));
  RETURNS(EDEADLK, kumi_rwlock_wrlock(&rwlock));
  RETURNS(EDEADLK, kumi_rwlock_rdlock(&rwlock));
  RETURNS(EDEADLK, kumi_rwlock_timedrdlock(&rwlock, LONG));
  RETURNS(EDEADLK, kumi_rwlock_timedwrlock(&rwlock, LONG));
  RETURNS(EBUSY, kumi_rwlock_trywrlock(&rwlock));
  join(start(intrude, NULL));
  RETURNS(0, kumi_rwlock_unlock(&rwlock));
  RETURNS(0, kumi_mutex_unlock(&held));
  RETURNS(EPERM, kumi_mutex_unlock(&held));
  RETURNS(EPERM, kumi_rwlock_unlock(&rwlock));
  RETURNS(0, kumi_mutex_init(&again, KUMI_MUTEX_RECURSIVE));
  RETURNS(0, kumi_mutex_lock(&again));
  RETURNS(0, kumi_mutex_lock(&again));
  RETURNS(0, kumi_mutex_trylock(&again));
  RETURNS(EINVAL, kumi_cond_wait(&cond, &again));
  RETURNS(0, kumi_mutex_unlock(&again));
  RETURNS(0, kumi_mutex_unlock(&again));
  RETURNS(EBUSY, kumi_mutex_destroy(&again));
  RETURNS(0, kumi_mutex_unlock(&again));
  RETURNS(EPERM, kumi_mutex_unlock(&again));
  RETURNS(0, kumi_mutex_destroy(&again));
}

#define ATTEMPTS 200

/* A thread that begins to wait in an object when it is destroyed finds it destroyed, or makes that
 * fail. Each attempt has an object of its own. */
static void *meet(void *arg) {
  int failed = kumi_barrier_wait(arg, NULL);
  CHECK(failed == 0 || failed == EINVAL);
  return NULL;
}

static void *take(void *arg) {
  int failed = kumi_semaphore_timedwait(arg, LONG);
  CHECK(failed == 0 || failed == EINVAL);
  return NULL;
}

static void *lock_and_unlock(void *arg) {
  RETURNS(0, kumi_mutex_lock(arg));
  RETURNS(0, kumi_mutex_unlock(arg));
  return NULL;
}

/* Destroys objects in which a thread waits, and again once none does. */
static void waiters(void) {
  static kumi_barrier barriers[ATTEMPTS];
  static kumi_semaphore semaphores[ATTEMPTS];
  kumi_thread thread;
  int failed, i;
  shared = 0;
  thread = start(await, NULL);
  /* The thread has the mutex, or waits: with the mutex here, it waits. */
  for (i = 0; i == 0;) {
    RETURNS(0, kumi_mutex_lock(&mutex));
    i = waiting;
    RETURNS(0, kumi_mutex_unlock(&mutex));
    RETURNS(0, kumi_thread_yield());
  }
  RETURNS(EBUSY, kumi_cond_destroy(&cond));
  RETURNS(0, kumi_mutex_lock(&mutex));
  shared = 1;
  RETURNS(0, kumi_cond_signal(&cond));
  /* Does not wait for the thread that was signalled, which needs the mutex. */
  RETURNS(0, kumi_cond_destroy(&cond));
  RETURNS(0, kumi_mutex_unlock(&mutex));
  join(thread);
  RETURNS(0, kumi_cond_init(&cond));

  for (i = 0, failed = 0; failed == 0; i++) {
    CHECK(i < ATTEMPTS);
    RETURNS(0, kumi_semaphore_init(&semaphores[i], 0));
    thread = start(take, &semaphores[i]);
    RETURNS(0, kumi_sleep(i * MS / 10));
    failed = kumi_semaphore_destroy(&semaphores[i]);
    if (failed == 0) join(thread);
  }
  CHECK(failed == EBUSY);
  RETURNS(0, kumi_semaphore_post(&semaphores[i - 1]));
  join(thread);
  RETURNS(0, kumi_semaphore_destroy(&semaphores[i - 1]));

  for (i = 0, failed = 0; failed == 0; i++) {
    CHECK(i < ATTEMPTS);
    RETURNS(0, kumi_barrier_init(&barriers[i], 2));
    thread = start(meet, &barriers[i]);
    RETURNS(0, kumi_sleep(i * MS / 10));
    failed = kumi_barrier_destroy(&barriers[i]);
    if (failed == 0) join(thread);
  }
  CHECK(failed == EBUSY);
  RETURNS(0, kumi_barrier_wait(&barriers[i - 1], NULL));
  /* Waits for the other thread's return. */
  RETURNS(0, kumi_barrier_destroy(&barriers[i - 1]));
  join(thread);

  RETURNS(0, kumi_mutex_lock(&held));
  thread = start(lock_and_unlock, &held);
  RETURNS(EBUSY, kumi_mutex_destroy(&held));
  RETURNS(0, kumi_mutex_unlock(&held));
  join(thread);
  RETURNS(0, kumi_mutex_destroy(&held));
  RETURNS(0, kumi_mutex_init(&held, 0));
}

struct counted {
  kumi_mutex lock;
  int references;
};

static void *drop(void *arg) {
  struct counted *object = arg;
  int is_last;
  RETURNS(0, kumi_mutex_lock(&object->lock));
  is_last = --object->references == 0;
  RETURNS(0, kumi_mutex_unlock(&object->lock));
  if (is_last) {
    RETURNS(0, kumi_mutex_destroy(&object->lock));
    memset(object, 0xff, sizeof *object);
    free(object);
  }
  return NULL;
}

/* The last user of a mutex destroys and frees it, while others are about to return from unlock. */
static void last_user(void) {
  int round, i;
  for (round = 0; round < 300; round++) {
    kumi_thread threads[8];
    struct counted *object = malloc(sizeof *object);
    CHECK(object != NULL);
    RETURNS(0, kumi_mutex_init(&object->lock, 0));
    object->references = 8;
    for (i = 0; i < 8; i++) threads[i] = start(drop, object);
    for (i = 0; i < 8; i++) join(threads[i]);
  }
}

static void *wait_for_cancellation(void *arg) {
  (void)arg;
  RETURNS(0, kumi_mutex_lock(&mutex));
  RETURNS(ECANCELED, kumi_cond_timedwait(&cond, &mutex, LONG));
  /* The mutex is locked again, and locks go on. */
  RETURNS(0, kumi_mutex_unlock(&mutex));
  RETURNS(0, kumi_mutex_lock(&mutex));
  RETURNS(0, kumi_mutex_unlock(&mutex));
  RETURNS(ECANCELED, kumi_semaphore_timedwait(&semaphore, LONG));
  RETURNS(ECANCELED, kumi_barrier_wait(&barrier, NULL));
  CHECK(kumi_thread_cancelled());
  return NULL;
}

static void cancellation(void) {
  kumi_thread thread;
  RETURNS(0, kumi_semaphore_init(&semaphore, 0));
  RETURNS(0, kumi_barrier_init(&barrier, 2));
  thread = start(wait_for_cancellation, NULL);
  RETURNS(0, kumi_sleep(2 * MS));
  RETURNS(0, kumi_thread_cancel(thread));
  join(thread);
  RETURNS(0, kumi_barrier_destroy(&barrier));
  CHECK(!kumi_thread_cancelled());
}

int main(int count_of, char **arguments) {
  static const struct named_case cases[] = {
      {"work", work},         {"null", null},           {"invalid", invalid},
      {"times", times},       {"owners", owners},       {"waiters", waiters},
      {"last-user", last_user}, {"cancellation", cancellation}, {NULL, NULL},
  };
  return run_cases(count_of, arguments, cases);
}
