/* A pipeline of channels, a semaphore that limits it, a lock for readers, and a timer. */
#include <kumihimo.h>
#include <stdio.h>

static kumi_channel *numbers, *squares;
static kumi_semaphore seats = KUMI_SEMAPHORE_INIT; /* of the slow step */
static kumi_rwlock settings = KUMI_RWLOCK_INIT;    /* guards the exponent */
static int exponent = 1;

static void *square(void *arg) {
  long number;
  while (kumi_channel_receive(numbers, &number, KUMI_FOREVER) == 0) {
    kumi_semaphore_wait(&seats);
    kumi_sleep(100000); /* 0.1 ms */
    kumi_semaphore_post(&seats);
    kumi_rwlock_rdlock(&settings);
    number = exponent == 2 ? number * number : number;
    kumi_rwlock_unlock(&settings);
    kumi_channel_send(squares, &number, KUMI_FOREVER);
  }
  return arg;
}

static void tick(void *arg) { ++*(unsigned *)arg; }

int main(void) {
  kumi_thread workers[20];
  kumi_timer *timer;
  unsigned ticks = 0;
  long number, sum = 0;
  int i;
  if (kumi_channel_create(&numbers, sizeof(long), 10) != 0 ||
      kumi_channel_create(&squares, sizeof(long), 1000) != 0 ||
      kumi_semaphore_init(&seats, 5) != 0 ||
      kumi_timer_create(&timer, 0, 1000000, tick, &ticks) != 0) {
    fprintf(stderr, "%s\n", kumi_error_text());
    return 1;
  }
  kumi_rwlock_wrlock(&settings);
  exponent = 2;
  kumi_rwlock_unlock(&settings);
  for (i = 0; i < 20; i++) kumi_thread_create(&workers[i], NULL, square, NULL);
  for (number = 1; number <= 1000; number++) kumi_channel_send(numbers, &number, KUMI_FOREVER);
  kumi_channel_close(numbers);
  for (i = 0; i < 20; i++) kumi_thread_join(workers[i], NULL);
  kumi_channel_close(squares);
  while (kumi_channel_receive(squares, &number, KUMI_FOREVER) == 0) sum += number;
  kumi_timer_destroy(timer);
  printf("%ld, %s\n", sum, ticks > 0 ? "with ticks" : "without ticks");
  kumi_channel_destroy(numbers);
  return kumi_channel_destroy(squares);
}
