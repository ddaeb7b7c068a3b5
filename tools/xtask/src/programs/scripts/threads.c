/* Twenty threads that take turns until SIGUSR1, and then one more turn each. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static volatile sig_atomic_t over;
static long turn, end_at;

static void end(int signal) {
  (void)signal;
  over = 1;
}

static void *take_turns(void *argument) {
  long own = (long)argument;
  for (int is_last = 0; !is_last; usleep(100)) {
    pthread_mutex_lock(&mutex);
    while (turn % THREADS != own) pthread_cond_wait(&turned, &mutex);
    if (over && !end_at) end_at = turn + THREADS;
    is_last = end_at != 0;
    turn++;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  signal(SIGUSR1, end);
  for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, take_turns, (void *)i);
  puts("ready");
  fflush(stdout);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  puts(turn == end_at ? "all threads have ended" : "a turn is missing");
  return 0;
}
