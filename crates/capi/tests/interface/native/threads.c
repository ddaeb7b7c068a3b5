/* Threads, sleeps and timers: threads CASE. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

static _Thread_local int own;

static void *square(void *arg) {
  int number = *(int *)arg;
  own = number;
  RETURNS(0, kumi_sleep(MS));
  CHECK(own == number && kumi_thread_is_microprocess());
  *(int *)arg = number * number;
  return arg;
}

static void work(void) {
  kumi_thread threads[100];
  int numbers[100], i;
  own = -1;
  for (i = 0; i < 100; i++) {
    numbers[i] = i;
    threads[i] = start(square, &numbers[i]);
    CHECK(threads[i] != kumi_thread_self());
  }
  for (i = 0; i < 100; i++) {
    CHECK(join(threads[i]) == &numbers[i]);
    CHECK(numbers[i] == i * i);
  }
  CHECK(own == -1);
}

static void *wait_for(void *arg) {
  RETURNS(0, kumi_semaphore_timedwait(arg, LONG));
  return NULL;
}

static void *detach_self(void *arg) {
  RETURNS(0, kumi_thread_detach(kumi_thread_self()));
  RETURNS(EINVAL, kumi_thread_detach(kumi_thread_self()));
  RETURNS(0, kumi_semaphore_post(arg));
  return NULL;
}

static void *join_self(void *arg) {
  RETURNS(EDEADLK, kumi_thread_join(kumi_thread_self(), NULL));
  RETURNS(EDEADLK, kumi_thread_timedjoin(kumi_thread_self(), NULL, 0));
  return arg;
}

struct joiner {
  kumi_thread thread;
  kumi_semaphore done;
};

static void *join_other(void *arg) {
  struct joiner *joiner = arg;
  RETURNS(0, kumi_thread_timedjoin(joiner->thread, NULL, LONG));
  RETURNS(0, kumi_semaphore_post(&joiner->done));
  return NULL;
}

static void joins(void) {
  /* Detached threads may use them after the return. */
  static kumi_semaphore gate = KUMI_SEMAPHORE_INIT;
  static struct joiner joiner = {0, KUMI_SEMAPHORE_INIT};
  kumi_thread thread, other;
  int failed;
  RETURNS(EDEADLK, kumi_thread_join(kumi_thread_self(), NULL));
  RETURNS(ESRCH, kumi_thread_join(0, NULL));
  RETURNS(ESRCH, kumi_thread_join(UINT64_MAX, NULL));
  RETURNS(ESRCH, kumi_thread_detach(UINT64_MAX));
  thread = start(join_self, NULL);
  join(thread);
  RETURNS(EINVAL, kumi_thread_join(thread, NULL));
  RETURNS(EINVAL, kumi_thread_detach(thread));
  RETURNS(EINVAL, kumi_thread_cancel(thread));
  thread = start(wait_for, &gate);
  RETURNS(EINVAL, kumi_thread_timedjoin(thread, NULL, -2));
  RETURNS(ETIMEDOUT, kumi_thread_timedjoin(thread, NULL, 0));
  RETURNS(ETIMEDOUT, kumi_thread_timedjoin(thread, NULL, MS));
  joiner.thread = thread;
  other = start(join_other, &joiner);
  /* Until the other thread joins. */
  while ((failed = kumi_thread_timedjoin(thread, NULL, 0)) == ETIMEDOUT) kumi_sleep(MS / 10);
  CHECK(failed == EINVAL);
  RETURNS(0, kumi_semaphore_post(&gate));
  RETURNS(0, kumi_semaphore_timedwait(&joiner.done, LONG));
  join(other);
  thread = start(wait_for, &gate);
  RETURNS(0, kumi_thread_detach(thread));
  RETURNS(EINVAL, kumi_thread_join(thread, NULL));
  RETURNS(0, kumi_semaphore_post(&gate));
  thread = start(detach_self, &joiner.done);
  RETURNS(0, kumi_semaphore_timedwait(&joiner.done, LONG));
  RETURNS(EINVAL, kumi_thread_join(thread, NULL));
}

static void options(void) {
  kumi_thread_options wanted = KUMI_THREAD_OPTIONS_INIT;
  kumi_thread thread = 7;
  int number = 3, priority = -1;
  RETURNS(EINVAL, kumi_thread_create(NULL, NULL, square, &number));
  RETURNS(EINVAL, kumi_thread_create(&thread, NULL, NULL, NULL));
  CHECK(thread == 0);
  wanted.size = 8;
  RETURNS(EINVAL, kumi_thread_create(&thread, &wanted, square, &number));
  wanted.size = sizeof wanted;
  wanted.flags = 4;
  RETURNS(EINVAL, kumi_thread_create(&thread, &wanted, square, &number));
  wanted.flags = 0;
  wanted.priority = 64;
  RETURNS(EINVAL, kumi_thread_create(&thread, &wanted, square, &number));
  wanted.priority = -2;
  RETURNS(EINVAL, kumi_thread_create(&thread, &wanted, square, &number));
  wanted.priority = 40;
  wanted.name = "\xff";
  RETURNS(EINVAL, kumi_thread_create(&thread, &wanted, square, &number));
  wanted.name = "squares";
  wanted.stack_size = (size_t)1 << 40;
  RETURNS(EINVAL, kumi_thread_create(&thread, &wanted, square, &number));
  CHECK(thread == 0 && number == 3);
  wanted.stack_size = 256 << 10;
  RETURNS(0, kumi_thread_create(&thread, &wanted, square, &number));
  RETURNS(EINVAL, kumi_thread_priority(thread, NULL));
  RETURNS(EINVAL, kumi_thread_set_priority(thread, 64));
  RETURNS(EINVAL, kumi_thread_set_priority(thread, -1));
  RETURNS(ESRCH, kumi_thread_set_priority(UINT64_MAX, 1));
  RETURNS(0, kumi_thread_priority(thread, &priority));
  CHECK(priority == 40);
  RETURNS(0, kumi_thread_set_priority(thread, 10));
  join(thread);
  CHECK(number == 9);
  {
    struct {
      kumi_thread_options known;
      uint64_t later;
    } extended = {KUMI_THREAD_OPTIONS_INIT, 0};
    extended.known.size = sizeof extended;
    RETURNS(0, kumi_thread_create(&thread, &extended.known, square, &number));
    join(thread);
    extended.later = 1;
    RETURNS(E2BIG, kumi_thread_create(&thread, &extended.known, square, &number));
  }
}

static void finish(void *arg) {
  RETURNS(0, kumi_sleep(MS));
  CHECK(kumi_thread_cancelled());
  *(int *)arg = 1;
}

static void *wait_until_cancelled(void *arg) {
  int finished = 0;
  RETURNS(ECANCELED, kumi_sleep(LONG));
  RETURNS(ECANCELED, kumi_sleep(0));
  RETURNS(0, kumi_thread_without_cancellation(finish, &finished));
  CHECK(finished);
  RETURNS(EINVAL, kumi_thread_without_cancellation(NULL, NULL));
  RETURNS(ECANCELED, kumi_sleep_until(kumi_now() + LONG));
  RETURNS(ECANCELED, kumi_thread_yield());
  RETURNS(ECANCELED, kumi_thread_join(*(kumi_thread *)arg, NULL));
  return arg;
}

static void cancellation(void) {
  kumi_semaphore gate = KUMI_SEMAPHORE_INIT;
  kumi_thread waits = start(wait_for, &gate), thread = start(wait_until_cancelled, &waits);
  RETURNS(0, kumi_sleep(MS));
  RETURNS(0, kumi_thread_cancel(thread));
  /* Twice has no further effect. */
  RETURNS(0, kumi_thread_cancel(thread));
  CHECK(join(thread) == &waits);
  /* A join that was cancelled has not joined. */
  RETURNS(0, kumi_semaphore_post(&gate));
  join(waits);
  CHECK(!kumi_thread_cancelled());
}

static void *on_kernel_thread(void *arg) {
  kumi_semaphore gate = KUMI_SEMAPHORE_INIT;
  kumi_thread thread;
  CHECK(!kumi_thread_is_microprocess() && kumi_thread_self() != 0);
  RETURNS(0, kumi_sleep(MS));
  RETURNS(0, kumi_thread_yield());
  thread = start(wait_for, &gate);
  RETURNS(ETIMEDOUT, kumi_thread_timedjoin(thread, NULL, MS));
  RETURNS(0, kumi_semaphore_post(&gate));
  join(thread);
  /* Nobody can cancel, or join, a thread of pthreads here. */
  RETURNS(0, kumi_thread_cancel(kumi_thread_self()));
  RETURNS(0, kumi_sleep(0));
  RETURNS(0, kumi_thread_set_priority(kumi_thread_self(), 50));
  *(kumi_thread *)arg = kumi_thread_self();
  return NULL;
}

static void kernel_threads(void) {
  pthread_t thread;
  kumi_thread number = 0;
  CHECK(pthread_create(&thread, NULL, on_kernel_thread, &number) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  RETURNS(EINVAL, kumi_thread_join(number, NULL));
  RETURNS(EINVAL, kumi_thread_cancel(number));
}

static void tick(void *arg) { RETURNS(0, kumi_semaphore_post(arg)); }

struct suicidal {
  kumi_semaphore created, done;
  kumi_timer *timer;
};

static void destroy_itself(void *arg) {
  struct suicidal *own_timer = arg;
  RETURNS(0, kumi_semaphore_wait(&own_timer->created));
  RETURNS(EDEADLK, kumi_timer_destroy(own_timer->timer));
  RETURNS(0, kumi_semaphore_post(&own_timer->done));
}

static void read_byte(void *arg) {
  char byte;
  CHECK(read(*(int *)arg, &byte, 1) == 1);
}

static void *write_byte(void *arg) {
  CHECK(write(*(int *)arg, "x", 1) == 1);
  return NULL;
}

static void times(void) {
  kumi_semaphore ticks = KUMI_SEMAPHORE_INIT;
  struct suicidal own_timer = {KUMI_SEMAPHORE_INIT, KUMI_SEMAPHORE_INIT, NULL};
  kumi_timer *timer = (kumi_timer *)&ticks;
  int64_t before;
  int i, ends[2];
  uint32_t value;
  kumi_thread thread;
  RETURNS(EINVAL, kumi_sleep(-1));
  RETURNS(EINVAL, kumi_sleep(INT64_MIN));
  RETURNS(EINVAL, kumi_sleep_until(-1));
  RETURNS(0, kumi_sleep(0));
  RETURNS(0, kumi_sleep_until(0));
  before = kumi_now();
  RETURNS(0, kumi_sleep(2 * MS));
  CHECK(kumi_now() - before >= 2 * MS);
  RETURNS(0, kumi_sleep_until(before + 4 * MS));
  CHECK(kumi_now() >= before + 4 * MS);

  RETURNS(EINVAL, kumi_timer_create(NULL, 0, 0, tick, &ticks));
  RETURNS(EINVAL, kumi_timer_create(&timer, 0, 0, NULL, NULL));
  CHECK(timer == NULL);
  RETURNS(EINVAL, kumi_timer_create(&timer, -1, 0, tick, &ticks));
  RETURNS(EINVAL, kumi_timer_create(&timer, 0, -1, tick, &ticks));
  RETURNS(0, kumi_timer_create(&timer, MS, MS, tick, &ticks));
  for (i = 0; i < 5; i++) RETURNS(0, kumi_semaphore_timedwait(&ticks, LONG));
  RETURNS(0, kumi_timer_destroy(timer));
  RETURNS(0, kumi_semaphore_init(&ticks, 0));
  RETURNS(0, kumi_timer_create(&timer, LONG, 0, tick, &ticks));
  RETURNS(0, kumi_timer_destroy(timer));
  RETURNS(0, kumi_timer_create(&timer, INT64_MAX, INT64_MAX, tick, &ticks));
  RETURNS(0, kumi_timer_destroy(timer));
  RETURNS(0, kumi_semaphore_value(&ticks, &value));
  CHECK(value == 0);
  RETURNS(0, kumi_timer_destroy(NULL));
  RETURNS(0, kumi_timer_create(&own_timer.timer, 0, 0, destroy_itself, &own_timer));
  RETURNS(0, kumi_semaphore_post(&own_timer.created));
  RETURNS(0, kumi_semaphore_timedwait(&own_timer.done, LONG));
  RETURNS(0, kumi_timer_destroy(own_timer.timer));

  RETURNS(EINVAL, kumi_thread_blocking(NULL, NULL));
  CHECK(pipe(ends) == 0);
  thread = start(write_byte, &ends[1]);
  RETURNS(0, kumi_thread_blocking(read_byte, &ends[0]));
  join(thread);
  close(ends[0]);
  close(ends[1]);
}

int main(int count, char **arguments) {
  static const struct named_case cases[] = {
      {"work", work},   {"joins", joins},         {"options", options},
      {"times", times}, {"cancellation", cancellation}, {"kernel-threads", kernel_threads},
      {NULL, NULL},
  };
  return run_cases(count, arguments, cases);
}
