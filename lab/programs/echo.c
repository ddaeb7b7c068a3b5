// An echo server with a thread per connection: `echo PORT`.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *argument) {
	int fd = (int)(intptr_t)argument, one = 1;
	char buffer[256];
	ssize_t got;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
		if (send(fd, buffer, (size_t)got, MSG_NOSIGNAL) != got)
			break;
	close(fd);
	return NULL;
}

int main(int count, char **words) {
	if (count != 2) {
		fprintf(stderr, "usage: %s PORT\n", words[0]);
		return 2;
	}
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(words[1])),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
		perror("listen");
		return 1;
	}
	pthread_attr_t detached;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0) {
			perror("accept");
			return 1;
		}
		pthread_t thread;
		int error = pthread_create(&thread, &detached, serve, (void *)(intptr_t)fd);
		if (error) {
			fprintf(stderr, "pthread_create: %s\n", strerror(error));
			close(fd);
		}
	}
}
