// Nanoseconds of an uncontended pthread_mutex_lock and unlock, in a thread that is not the first:
// the median of batches. Prints one number.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCHES = 15, OPERATIONS = 1000000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *one, const void *other) {
	double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

static void *measure(void *argument) {
	double each[BATCHES];
	for (int batch = 0; batch < BATCHES; batch++) {
		double begun = now();
		for (int i = 0; i < OPERATIONS; i++) {
			pthread_mutex_lock(&lock);
			pthread_mutex_unlock(&lock);
		}
		each[batch] = (now() - begun) / OPERATIONS;
	}
	qsort(each, BATCHES, sizeof *each, ascending);
	printf("%.3f\n", each[BATCHES / 2]);
	return argument;
}

int main(void) {
	pthread_t thread;
	if (pthread_create(&thread, NULL, measure, NULL) || pthread_join(thread, NULL))
		return 1;
	return 0;
}
