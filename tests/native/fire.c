/* Work whose result is known, to be interrupted anywhere. Each returns the number of errors that it found. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* Twice the same, with everything in registers. */
int fire_integer(uint64_t seed, int rounds)
{
	uint64_t a[2];
	for (int k = 0; k < 2; k++) {
		uint64_t x = seed, y = 1, z = ~seed;
		for (int i = 0; i < rounds * 64; i++) {
			x = mix(x + y);
			y = (y << 7 | y >> 57) ^ x;
			z += __builtin_popcountll(x) * y;
		}
		a[k] = x ^ y ^ z;
	}
	return a[0] != a[1];
}

#ifdef __x86_64__
int fire_sse(uint64_t seed, int rounds)
{
	__m128d r[2];
	for (int k = 0; k < 2; k++) {
		__m128d x = _mm_set_pd((double)(seed & 1023), 1.5), y = _mm_set1_pd(0.75), z = _mm_setzero_pd();
		for (int i = 0; i < rounds * 64; i++) {
			x = _mm_add_pd(_mm_mul_pd(x, y), _mm_set1_pd(1.0 / 3));
			z = _mm_add_pd(z, _mm_sqrt_pd(x));
		}
		r[k] = _mm_add_pd(x, z);
	}
	return memcmp(&r[0], &r[1], sizeof r[0]) != 0;
}

__attribute__((target("avx2"))) static int avx2(uint64_t seed, int rounds)
{
	__m256i r[2];
	for (int k = 0; k < 2; k++) {
		__m256i x = _mm256_set1_epi64x((long long)seed), y = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8), z = x, w = y;
		for (int i = 0; i < rounds * 64; i++) {
			x = _mm256_add_epi32(_mm256_mullo_epi32(x, _mm256_set1_epi32(1664525)), y);
			z = _mm256_xor_si256(z, _mm256_permutevar8x32_epi32(x, y));
			w = _mm256_sub_epi64(_mm256_slli_epi64(w, 3), z);
		}
		r[k] = _mm256_xor_si256(x, _mm256_xor_si256(z, w));
	}
	return memcmp(&r[0], &r[1], sizeof r[0]) != 0;
}

__attribute__((target("avx512f,avx512bw"))) static int avx512(uint64_t seed, int rounds)
{
	__m512i r[2];
	for (int k = 0; k < 2; k++) {
		__m512i x = _mm512_set1_epi64((long long)seed), y = _mm512_set1_epi32(77), z = x;
		__mmask16 m = (__mmask16)seed;
		for (int i = 0; i < rounds * 64; i++) {
			x = _mm512_add_epi32(_mm512_mullo_epi32(x, y), _mm512_set1_epi32(12345));
			z = _mm512_mask_xor_epi32(z, m, z, x);
			m = (__mmask16)(m * 5 + _mm512_cmplt_epi32_mask(x, z));
		}
		r[k] = _mm512_mask_add_epi32(z, m, z, x);
	}
	return memcmp(&r[0], &r[1], sizeof r[0]) != 0;
}

int fire_wide(uint64_t seed, int rounds)
{
	int errors = 0;
	if (__builtin_cpu_supports("avx2"))
		errors += avx2(seed, rounds);
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
		errors += avx512(seed, rounds);
	return errors;
}
#else
/* The same with vectors of 16 bytes, in whatever registers the compiler has for them. */
typedef double doubles __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));

int fire_sse(uint64_t seed, int rounds)
{
	doubles r[2];
	for (int k = 0; k < 2; k++) {
		doubles x = {(double)(seed & 1023), 1.5}, y = {0.75, 0.75}, z = {0, 0};
		for (int i = 0; i < rounds * 64; i++) {
			x = x * y + 1.0 / 3;
			z += x;
		}
		r[k] = x + z;
	}
	return memcmp(&r[0], &r[1], sizeof r[0]) != 0;
}

int fire_wide(uint64_t seed, int rounds)
{
	words r[2];
	for (int k = 0; k < 2; k++) {
		words x = {(uint32_t)seed, 1, 2, 3}, y = {5, 6, 7, 8}, z = x, w = y;
		for (int i = 0; i < rounds * 64; i++) {
			x = x * 1664525 + y;
			z ^= x >> 7;
			w = (w << 3) - z;
		}
		r[k] = x ^ z ^ w;
	}
	return memcmp(&r[0], &r[1], sizeof r[0]) != 0;
}
#endif

/* A leaf that keeps its locals below the stack pointer. */
__attribute__((noinline)) static uint64_t red_zone(uint64_t seed)
{
	volatile uint64_t a[12];
	for (int i = 0; i < 12; i++)
		a[i] = seed + i;
	for (int k = 0; k < 40; k++)
		for (int i = 0; i < 12; i++)
			a[i] = a[i] + 1;
	uint64_t sum = 0;
	for (int i = 0; i < 12; i++)
		sum += a[i] - seed - i - 40;
	return sum;
}

int fire_red_zone(uint64_t seed, int rounds)
{
	int errors = 0;
	for (int i = 0; i < rounds; i++)
		errors += red_zone(mix(seed + i)) != 0;
	return errors;
}

int fire_strings(uint64_t seed, int rounds)
{
	enum { N = 4096 };
	char *a = malloc(N), *b = malloc(N);
	int errors = 0;
	for (int i = 0; i < N; i++)
		a[i] = (char)(seed + i * 7);
	for (int k = 0; k < rounds / 16 + 1; k++) {
#ifdef __x86_64__
		void *to = b, *from = a;
		size_t n = N;
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
		errors += n != 0 || (char *)to != b + N || memcmp(a, b, N) != 0;
		to = b + N - 1;
		n = N;
		__asm__ volatile("std; rep stosb; cld" : "+D"(to), "+c"(n) : "a"((int)seed & 255) : "memory");
#else
		memcpy(b, a, N);
		errors += memcmp(a, b, N) != 0;
		memset(b, (char)seed, N);
#endif
		for (int i = 0; i < N; i++)
			errors += b[i] != (char)seed;
	}
	free(a);
	free(b);
	return errors;
}

int fire_x87(uint64_t seed, int rounds)
{
	long double r[2];
	for (int k = 0; k < 2; k++) {
		long double x = (long double)(seed & 0xffff) + 1, y = 0;
		for (int i = 0; i < rounds * 16; i++) {
			x = x * 1.0000001L + 1.0L / 7;
			y += x / 3;
		}
		r[k] = x + y;
	}
	return r[0] != r[1];
}

int fire_malloc(uint64_t seed, int rounds)
{
	enum { N = 64 };
	unsigned char *p[N] = {0};
	size_t size[N] = {0};
	int errors = 0;
	for (int i = 0; i < rounds * 4; i++) {
		seed = mix(seed + 1);
		int k = seed % N;
		if (p[k]) {
			for (size_t j = 0; j < size[k]; j += 61)
				errors += p[k][j] != (unsigned char)(k + j);
			free(p[k]);
			p[k] = 0;
		} else {
			/* Now and then one that is mapped by itself. */
			size[k] = (seed >> 8) % 64 == 0 ? 200000 : (seed >> 8) % 3000 + 1;
			p[k] = malloc(size[k]);
			for (size_t j = 0; j < size[k]; j += 61)
				p[k][j] = (unsigned char)(k + j);
		}
	}
	for (int k = 0; k < N; k++)
		free(p[k]);
	return errors;
}

static FILE *sink;
static pthread_once_t sink_once = PTHREAD_ONCE_INIT;
static void open_sink(void) { sink = fopen("/dev/null", "w"); }

int fire_printf(uint64_t seed, int rounds)
{
	int errors = 0;
	pthread_once(&sink_once, open_sink);
	for (int i = 0; i < rounds; i++) {
		char text[100], again[100];
		seed = mix(seed + i);
		double d = (double)(seed >> 11) / 1024;
		snprintf(text, sizeof text, "%llu %.10g %s", (unsigned long long)seed, d, "words");
		unsigned long long n = 0;
		double e = 0;
		sscanf(text, "%llu %lf", &n, &e);
		snprintf(again, sizeof again, "%llu %.10g %s", n, e, "words");
		errors += strcmp(text, again) != 0;
		errors += fprintf(sink, "%s\n", text) != (int)strlen(text) + 1;
	}
	return errors;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

int fire_qsort(uint64_t seed, int rounds)
{
	int n = rounds + 200, errors = 0;
	uint64_t *a = malloc(n * sizeof *a), sum = 0, after = 0;
	for (int i = 0; i < n; i++)
		sum += a[i] = mix(seed + i);
	qsort(a, n, sizeof *a, ascending);
	for (int i = 0; i < n; i++) {
		after += a[i];
		errors += i > 0 && a[i - 1] > a[i];
	}
	free(a);
	return errors + (sum != after);
}

int fire_time(uint64_t seed, int rounds)
{
	struct timespec a, b;
	int errors = 0;
	(void)seed;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < rounds * 4; i++) {
		clock_gettime(CLOCK_MONOTONIC, &b);
		errors += b.tv_sec < a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec < a.tv_nsec);
		a = b;
	}
	return errors;
}

static int wrong(const char *call, int is)
{
	if (is)
		fprintf(stderr, "%s: errno %d\n", call, errno);
	return is;
}

/* System calls that wait: none ends early. */
int fire_calls(uint64_t seed, int rounds)
{
	int errors = 0, pipes[2], pair[2], set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;
	char byte = (char)seed;
	struct timeval limit = {0, 500};
	if (pipe2(pipes, O_CLOEXEC) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) || set < 0)
		return 1000;
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	for (int i = 0; i < rounds / 64 + 1; i++) {
		struct timespec time = {0, 200000};
		volatile uint64_t busy = 0;
		for (int k = 0; k < 30000; k++)
			busy += k;
		struct pollfd p = {pair[0], POLLIN, 0};
		errors += wrong("epoll_wait", epoll_wait(set, &event, 1, 1) != 0);
		errors += wrong("nanosleep", nanosleep(&time, 0) != 0);
		errors += wrong("poll", poll(&p, 1, 1) != 0);
		errors += wrong("recv", !(recv(pair[0], &byte, 1, 0) == -1 && errno == EAGAIN));
		errors += wrong("pipe", write(pipes[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 1);
	}
	close(pipes[0]);
	close(pipes[1]);
	close(pair[0]);
	close(pair[1]);
	close(set);
	return errors;
}
