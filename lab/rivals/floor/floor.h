// What both servers share. Each runs on one kernel thread and ends with its standard input.
#ifndef FLOOR_H
#define FLOOR_H

#include <stdio.h>
#include <stdlib.h>

// Descriptors that a server can tell apart; a connection's is its index in arrays of so many.
#define MOST 65536

#define CHECK(what, holds) \
	do { \
		if (!(holds)) { \
			perror("rival-floor: " what); \
			exit(1); \
		} \
	} while (0)

// Says on which port it listens.
void ready(int listener);

// Both take a listening socket and never return, but by exit(3).
void serve_epoll(int listener);
void serve_uring(int listener);

#endif
