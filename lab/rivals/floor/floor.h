// Common parts of both servers. Each server runs on one kernel thread and ends with its standard input.
#ifndef FLOOR_H
#define FLOOR_H

#include <stdio.h>
#include <stdlib.h>

// Maximum number of descriptors. The descriptor of a connection is its index in arrays of this size.
#define MOST 65536

#define CHECK(what, holds) \
	do { \
		if (!(holds)) { \
			perror("rival-floor: " what); \
			exit(1); \
		} \
	} while (0)

// Prints the port.
void ready(int listener);

// Both functions serve a listening socket, and end the process with exit(3).
void serve_epoll(int listener);
void serve_uring(int listener);

#endif
