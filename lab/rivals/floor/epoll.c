// Edge-triggered readiness: one read and one write per request, and one wait for all ready descriptors.
#define _GNU_SOURCE
#include "floor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void watch(int epoll, int fd, unsigned events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };
	CHECK("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void take_all(int epoll, int listener)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			CHECK("accept", errno == EAGAIN || errno == ECONNABORTED);
			return;
		}
		int one = 1;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		watch(epoll, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
	}
}

static void echo(int fd)
{
	char buffer[1024];
	for (;;) {
		ssize_t n = recv(fd, buffer, sizeof buffer, 0);
		if (n <= 0) {
			if (n == 0 || errno != EAGAIN)
				close(fd);
			return;
		}
		// The clients of this benchmark read all replies, so a short send is an error.
		if (send(fd, buffer, n, MSG_NOSIGNAL) != n) {
			close(fd);
			return;
		}
		// A short read: the socket is empty, and new data causes another edge.
		if (n < (ssize_t)sizeof buffer)
			return;
	}
}

void serve_epoll(int listener)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	CHECK("epoll_create", epoll >= 0);
	watch(epoll, listener, EPOLLIN);
	watch(epoll, STDIN_FILENO, EPOLLIN | EPOLLHUP);
	ready(listener);
	for (;;) {
		struct epoll_event events[256];
		int count = epoll_wait(epoll, events, 256, -1);
		CHECK("epoll_wait", count >= 0 || errno == EINTR);
		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;
			char said[64];
			if (fd == listener)
				take_all(epoll, listener);
			else if (fd != STDIN_FILENO)
				echo(fd);
			else if (read(STDIN_FILENO, said, sizeof said) <= 0)
				exit(0);
		}
	}
}
