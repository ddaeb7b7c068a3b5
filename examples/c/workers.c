/* 10,000 threads that wait for a start, count, and are joined: locks, conditions, a barrier. */
#include <inttypes.h>
#include <kumihimo.h>
#include <stdio.h>

#define THREADS 10000

static kumi_mutex lock = KUMI_MUTEX_INIT; /* guards the two below */
static kumi_cond changed = KUMI_COND_INIT;
static int started;
static uint64_t sum;
static kumi_barrier end;

static void *work(void *arg) {
  const uint64_t *number = arg;
  kumi_mutex_lock(&lock);
  while (!started) kumi_cond_wait(&changed, &lock);
  sum += *number;
  kumi_mutex_unlock(&lock);
  kumi_barrier_wait(&end, NULL);
  return arg;
}

int main(void) {
  static uint64_t numbers[THREADS];
  static kumi_thread threads[THREADS];
  int i;
  if (kumi_barrier_init(&end, THREADS) != 0) return 1;
  for (i = 0; i < THREADS; i++) {
    numbers[i] = (uint64_t)i;
    if (kumi_thread_create(&threads[i], NULL, work, &numbers[i]) != 0) {
      fprintf(stderr, "%s\n", kumi_error_text());
      return 1;
    }
  }
  kumi_mutex_lock(&lock);
  started = 1;
  kumi_mutex_unlock(&lock);
  kumi_cond_broadcast(&changed);
  for (i = 0; i < THREADS; i++) kumi_thread_join(threads[i], NULL);
  printf("%" PRIu64 "\n", sum);
  return kumi_barrier_destroy(&end);
}
