/* kumihimo/tcp.h: TCP sockets. See kumihimo.h and kumihimo_sockets(3). */
#ifndef KUMIHIMO_TCP_H
#define KUMIHIMO_TCP_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* Sockets are descriptors of these functions. They may be passed to setsockopt(2), getsockname(2)
 * and the like, but not to close(2). A call that waits blocks the microprocess. An error of the
 * operating system is its errno. A socket that another thread closes meanwhile is EBADF, at
 * once. */

/* Listens on `address`, "host:port" or "[address]:port"; port 0 lets the kernel choose. *out is -1
 * unless the result is 0. EADDRNOTAVAIL if the host has no address; EADDRINUSE, EACCES, EINVAL. */
int kumi_tcp_listen(int *out, const char *address);

/* Accepts a connection within a time limit. ETIMEDOUT, EBADF, ECANCELED, EMFILE, EINVAL. */
int kumi_tcp_accept(int *out, int listener, int64_t timeout_ns);

/* Connects to `address` within a time limit. The look-up of a host name is not limited.
 * ECONNREFUSED, EADDRNOTAVAIL, ETIMEDOUT, ECANCELED, EINVAL. */
int kumi_tcp_connect(int *out, const char *address, int64_t timeout_ns);

/* Reads at least one byte and at most `length`, and stores the number: 0 at the end of the stream.
 * ETIMEDOUT, ECONNRESET, EBADF, ENOTCONN for a listener, ECANCELED, EINVAL. */
int kumi_tcp_read(int socket, void *data, size_t length, size_t *count, int64_t timeout_ns);

/* Writes all bytes. Stores the number of written bytes, also of a call that fails, unless `count`
 * is NULL. EPIPE raises no signal. Errors as of kumi_tcp_read. */
int kumi_tcp_write(int socket, const void *data, size_t length, size_t *count, int64_t timeout_ns);

/* Ends one direction or both: SHUT_RD, SHUT_WR or SHUT_RDWR of <sys/socket.h>. EBADF, EINVAL. */
int kumi_tcp_shutdown(int socket, int how);

/* Closes a socket. Calls of other threads on it return EBADF, and the descriptor is closed after
 * them. EBADF if it is no open socket. */
int kumi_tcp_close(int socket);

KUMI_END

#endif
