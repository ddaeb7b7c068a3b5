// `threads COUNT`: creates threads that wait for a condition, and joins them. Prints the seconds
// of the creation, and the growth of resident memory and of page tables in bytes for each thread,
// while all of them wait.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long waiting;
static int over;

static double now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// The value of a line of /proc/self/status, in bytes.
static double status(const char *name) {
	char line[256];
	char *value = NULL;
	FILE *file = fopen("/proc/self/status", "r");
	while (file && !value && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)))
			value = line + strlen(name);
	if (!value) {
		fprintf(stderr, "/proc/self/status has no %s\n", name);
		exit(1);
	}
	double kilobytes = atof(value);
	fclose(file);
	return kilobytes * 1024;
}

static void *wait_for_the_end(void *argument) {
	pthread_mutex_lock(&lock);
	waiting++;
	while (!over)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return argument;
}

static void *nothing(void *argument) { return argument; }

int main(int arguments, char **words) {
	long count = arguments == 2 ? atol(words[1]) : 0;
	pthread_t *threads = calloc((size_t)(count > 0 ? count : 1), sizeof *threads);
	if (count <= 0 || !threads) {
		fprintf(stderr, "usage: %s COUNT\n", words[0]);
		return 2;
	}
	memset(threads, 1, (size_t)count * sizeof *threads);
	// What the first thread costs alone, such as a runtime, is not counted.
	if (pthread_create(&threads[0], NULL, nothing, NULL) || pthread_join(threads[0], NULL))
		return 1;
	double resident = status("VmRSS:"), tables = status("VmPTE:"), begun = now();
	for (long i = 0; i < count; i++) {
		int error = pthread_create(&threads[i], NULL, wait_for_the_end, (void *)(intptr_t)i);
		if (error) {
			fprintf(stderr, "pthread_create after %ld threads: %s\n", i, strerror(error));
			return 1;
		}
	}
	double seconds = now() - begun;
	for (long seen = 0; seen < count;) {
		pthread_mutex_lock(&lock);
		seen = waiting;
		pthread_mutex_unlock(&lock);
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	resident = status("VmRSS:") - resident;
	tables = status("VmPTE:") - tables;
	pthread_mutex_lock(&lock);
	over = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	for (long i = 0; i < count; i++) {
		void *result;
		if (pthread_join(threads[i], &result) || (intptr_t)result != i) {
			fprintf(stderr, "thread %ld did not return its number\n", i);
			return 1;
		}
	}
	printf("%.3f %.0f %.0f\n", seconds, resident / (double)count, tables / (double)count);
	return 0;
}
