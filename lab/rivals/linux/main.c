// The kernel's processes, memory mappings and pipes under the loads of `resources`, as in P3 (5.2.1): 24 processes (for `message`, 24 pairs),
// assigned to the cores in turn, both processes of a pair to the same core. The time is from the start of the first process to the end of the
// last one. Called as `rival-linux resources load=create|region|message [iterations=N] [--vps N]`, on an affinity mask of the cores to use.
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 24
#define BYTES 4096

#define CHECK(what, good) do { if (!(good)) { perror(what); exit(1); } } while (0)

// Memory shared by all processes.
static struct shared {
	_Atomic int ready;
	_Atomic int failed;
	struct { double begun, ended; } worker[2 * WORKERS];
} *shared;

// A read of this pipe waits until the other end is closed.
static int gate[2];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void await(pid_t pid)
{
	int status;
	CHECK("waitpid", waitpid(pid, &status, 0) == pid);
	if (status != 0)
		shared->failed = 1;
}

// Starts processes that end at once: this program, which does nothing without arguments.
static void create(int iterations, int pipe)
{
	(void)pipe;
	for (int i = 0; i < iterations; i++) {
		pid_t pid = fork();
		CHECK("fork", pid >= 0);
		if (pid == 0) {
			execl("/proc/self/exe", "rival-linux", (char *)NULL);
			_exit(127);
		}
		await(pid);
	}
}

// Maps and writes memory. Without the write, the kernel would allocate none.
static void region(int iterations, int pipe)
{
	(void)pipe;
	for (int i = 0; i < iterations; i++) {
		volatile char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK("mmap", at != MAP_FAILED);
		at[0] = 1;
		CHECK("munmap", munmap((void *)at, BYTES) == 0);
	}
}

static void sender(int iterations, int pipe)
{
	char message[BYTES];
	for (int i = 0; i < iterations; i++) {
		memset(message, i, BYTES);
		CHECK("write", write(pipe, message, BYTES) == BYTES);
	}
}

static void receiver(int iterations, int pipe)
{
	char message[BYTES];
	for (int i = 0; i < iterations; i++)
		for (ssize_t got = 0; got < BYTES;) {
			ssize_t n = read(pipe, message + got, BYTES - got);
			CHECK("read", n > 0);
			got += n;
		}
}

// Starts process `n` on core `core`. The process first waits at the gate.
static pid_t begin(int n, int core, void (*load)(int, int), int iterations, int pipe)
{
	pid_t pid = fork();
	CHECK("fork", pid >= 0);
	if (pid != 0)
		return pid;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	CHECK("sched_setaffinity", sched_setaffinity(0, sizeof set, &set) == 0);
	close(gate[1]);
	shared->ready++;
	char none;
	CHECK("gate", read(gate[0], &none, 1) == 0);
	shared->worker[n].begun = now();
	load(iterations, pipe);
	shared->worker[n].ended = now();
	_exit(0);
}

static double run(const char *load, int iterations)
{
	cpu_set_t set;
	CHECK("sched_getaffinity", sched_getaffinity(0, sizeof set, &set) == 0);
	int cores[CPU_SETSIZE], count = 0;
	for (int core = 0; core < CPU_SETSIZE; core++)
		if (CPU_ISSET(core, &set))
			cores[count++] = core;
	pid_t pids[2 * WORKERS];
	int many = 0;
	memset(shared, 0, sizeof *shared);
	CHECK("pipe", pipe(gate) == 0);
	for (int i = 0; i < WORKERS; i++) {
		int core = cores[i % count];
		if (strcmp(load, "message") != 0) {
			pids[many] = begin(many, core, strcmp(load, "region") == 0 ? region : create, iterations, -1);
			many++;
			continue;
		}
		int ends[2];
		CHECK("pipe", pipe(ends) == 0);
		pids[many] = begin(many, core, sender, iterations, ends[1]);
		many++;
		pids[many] = begin(many, core, receiver, iterations, ends[0]);
		many++;
		close(ends[0]);
		close(ends[1]);
	}
	while (shared->ready < many)
		usleep(1000);
	// Time for the last processes to reach the gate.
	usleep(10000);
	close(gate[1]);
	double first = 0, last = 0;
	for (int n = 0; n < many; n++) {
		await(pids[n]);
		if (n == 0 || shared->worker[n].begun < first)
			first = shared->worker[n].begun;
		if (shared->worker[n].ended > last)
			last = shared->worker[n].ended;
	}
	close(gate[0]);
	if (shared->failed) {
		fprintf(stderr, "rival-linux: a process failed\n");
		exit(1);
	}
	return last - first;
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return 0;
	const char *load = "create";
	int iterations = 0;
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "load=", 5) == 0)
			load = argv[i] + 5;
		else if (strncmp(argv[i], "iterations=", 11) == 0)
			iterations = atoi(argv[i] + 11);
	}
	int creates = strcmp(load, "create") == 0;
	if (strcmp(argv[1], "resources") != 0 || (!creates && strcmp(load, "region") != 0 && strcmp(load, "message") != 0)) {
		fprintf(stderr, "rival-linux: expected resources load=create, load=region or load=message\n");
		return 2;
	}
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK("mmap", shared != MAP_FAILED);
	printf("time %f ms load=%s iterations=100\n", run(load, 100) * 1e3, load);
	fflush(stdout);
	// 10,000 iterations would take minutes for `create`; its 100 iterations take seconds, which is long enough for a measurement.
	if (iterations == 0 && !creates)
		iterations = 10000;
	if (iterations != 0)
		printf("time %f ms load=%s iterations=%d\n", run(load, iterations) * 1e3, load, iterations);
	return 0;
}
