// The floor of `echo`: the cost of a server that only echoes. Called as `rival-floor echo calls=epoll|uring [...]`. Prints its port on
// 127.0.0.1.
#include "floor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

static int listening(void)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK("socket", listener >= 0);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK("bind", bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
	CHECK("listen", listen(listener, 4096) == 0);
	return listener;
}

void ready(int listener)
{
	struct sockaddr_in at;
	socklen_t size = sizeof at;
	CHECK("getsockname", getsockname(listener, (struct sockaddr *)&at, &size) == 0);
	printf("listening %d\n", ntohs(at.sin_port));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int echo = 0, uring = 0;
	for (int i = 1; i < argc; i++) {
		echo |= strcmp(argv[i], "echo") == 0;
		uring |= strcmp(argv[i], "calls=uring") == 0;
	}
	if (!echo) {
		fprintf(stderr, "rival-floor: unknown benchmark; only echo is supported\n");
		return 2;
	}
	struct rlimit descriptors;
	CHECK("getrlimit", getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
	descriptors.rlim_cur = descriptors.rlim_max < MOST ? descriptors.rlim_max : MOST;
	// If the limit cannot be raised, accept fails for the connections beyond it.
	setrlimit(RLIMIT_NOFILE, &descriptors);
	if (uring)
		serve_uring(listening());
	else
		serve_epoll(listening());
}
