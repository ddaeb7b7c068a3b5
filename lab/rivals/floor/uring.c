// One multishot receive per connection, into buffers that the kernel takes from a ring. The replies are sent from these buffers. One system
// call submits all replies and waits for the next completions. No library: io_uring(7), io_uring_enter(2), io_uring_register(2).
#define _GNU_SOURCE
#include "floor.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES 4096u
#define BUFFERS 16384u
#define BUFFER 1024u
#define NONE 0xffffu

// Kind of a completion: the upper half of its user data. The lower half is the descriptor.
enum { ACCEPT, RECEIVE, SEND, INPUT };

static int ring;
static unsigned *sq_head, *sq_tail, *cq_head, *cq_tail, sq_next, sq_told;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static unsigned cq_mask;

static struct io_uring_buf_ring *given;
static unsigned short given_tail;
static char *memory;

// Linked lists of the buffers that each connection still has to send. Only one send is in progress, to keep their order.
static unsigned short first[MOST], last[MOST], next[BUFFERS], length[BUFFERS];

static void *map(size_t size, int flags, int fd, off_t at)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, at);
	CHECK("mmap", p != MAP_FAILED);
	return p;
}

static void refused(const char *what)
{
	printf("refused: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void set_up(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
		.cq_entries = MOST };
	ring = syscall(SYS_io_uring_setup, ENTRIES, &p);
	if (ring < 0)
		refused("io_uring_setup");
	// Both rings in one mapping since Linux 5.4.
	size_t size = p.cq_off.cqes + p.cq_entries * sizeof *cqes;
	size_t other = p.sq_off.array + p.sq_entries * sizeof(unsigned);
	char *at = map(size > other ? size : other, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	sqes = map(p.sq_entries * sizeof *sqes, MAP_SHARED, ring, IORING_OFF_SQES);
	sq_head = (unsigned *)(at + p.sq_off.head);
	sq_tail = (unsigned *)(at + p.sq_off.tail);
	cq_head = (unsigned *)(at + p.cq_off.head);
	cq_tail = (unsigned *)(at + p.cq_off.tail);
	cq_mask = *(unsigned *)(at + p.cq_off.ring_mask);
	cqes = (struct io_uring_cqe *)(at + p.cq_off.cqes);
	unsigned *array = (unsigned *)(at + p.sq_off.array);
	for (unsigned i = 0; i < p.sq_entries; i++)
		array[i] = i;

	given = map(BUFFERS * sizeof(struct io_uring_buf), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memory = map((size_t)BUFFERS * BUFFER, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct io_uring_buf_reg reg = { .ring_addr = (unsigned long)given, .ring_entries = BUFFERS };
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &reg, 1) != 0)
		refused("IORING_REGISTER_PBUF_RING");
}

static void give(unsigned short id)
{
	struct io_uring_buf *buffer = &given->bufs[given_tail++ & (BUFFERS - 1)];
	buffer->addr = (unsigned long)(memory + (size_t)id * BUFFER);
	buffer->len = BUFFER;
	buffer->bid = id;
}

// Submits all prepared requests, and waits for `wanted` completions.
static void enter(unsigned wanted)
{
	__atomic_store_n(&given->tail, given_tail, __ATOMIC_RELEASE);
	__atomic_store_n(sq_tail, sq_next, __ATOMIC_RELEASE);
	int taken = syscall(SYS_io_uring_enter, ring, sq_next - sq_told, wanted, IORING_ENTER_GETEVENTS, NULL, 0);
	CHECK("io_uring_enter", taken >= 0 || errno == EINTR || errno == EBUSY || errno == EAGAIN);
	if (taken > 0)
		sq_told += taken;
}

static struct io_uring_sqe *request(int op, unsigned long what, int fd)
{
	while (sq_next - __atomic_load_n(sq_head, __ATOMIC_ACQUIRE) >= ENTRIES)
		enter(0);
	struct io_uring_sqe *sqe = &sqes[sq_next++ & (ENTRIES - 1)];
	memset(sqe, 0, sizeof *sqe);
	sqe->opcode = op;
	sqe->fd = fd;
	sqe->user_data = what << 32 | (unsigned)fd;
	return sqe;
}

static void accept_on(int listener)
{
	request(IORING_OP_ACCEPT, ACCEPT, listener)->ioprio = IORING_ACCEPT_MULTISHOT;
}

static void receive_from(int fd)
{
	struct io_uring_sqe *sqe = request(IORING_OP_RECV, RECEIVE, fd);
	sqe->ioprio = IORING_RECV_MULTISHOT;
	sqe->flags = IOSQE_BUFFER_SELECT;
}

static void send_first(int fd)
{
	unsigned short id = first[fd];
	struct io_uring_sqe *sqe = request(IORING_OP_SEND, SEND, fd);
	sqe->addr = (unsigned long)(memory + (size_t)id * BUFFER);
	sqe->len = length[id];
	// With MSG_WAITALL, the kernel continues short sends: the send is complete or an error.
	sqe->msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
}

static void received(int fd, const struct io_uring_cqe *cqe)
{
	if (cqe->res <= 0) {
		// No free buffer: the receive is repeated. Other errors close the connection.
		if (cqe->res == -ENOBUFS)
			receive_from(fd);
		else
			close(fd);
		return;
	}
	unsigned short id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
	length[id] = cqe->res;
	next[id] = NONE;
	if (first[fd] == NONE) {
		first[fd] = last[fd] = id;
		send_first(fd);
	} else {
		next[last[fd]] = id;
		last[fd] = id;
	}
	if (!(cqe->flags & IORING_CQE_F_MORE))
		receive_from(fd);
}

static void sent(int fd)
{
	unsigned short id = first[fd];
	// The descriptor may belong to a newer connection.
	if (id == NONE)
		return;
	first[fd] = next[id];
	give(id);
	// If the send failed, the receive of the same connection fails too.
	if (first[fd] != NONE)
		send_first(fd);
}

static void completed(int listener, const struct io_uring_cqe *cqe)
{
	int fd = (int)(unsigned)cqe->user_data, one = 1;
	char said[64];
	switch (cqe->user_data >> 32) {
	case ACCEPT:
		if (cqe->res >= 0 && cqe->res < MOST) {
			setsockopt(cqe->res, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
			first[cqe->res] = NONE;
			receive_from(cqe->res);
		}
		if (!(cqe->flags & IORING_CQE_F_MORE))
			accept_on(listener);
		break;
	case RECEIVE:
		received(fd, cqe);
		break;
	case SEND:
		sent(fd);
		break;
	case INPUT:
		if (read(STDIN_FILENO, said, sizeof said) <= 0)
			exit(0);
		request(IORING_OP_POLL_ADD, INPUT, STDIN_FILENO)->poll32_events = POLLIN;
		break;
	}
}

void serve_uring(int listener)
{
	set_up();
	for (unsigned id = 0; id < BUFFERS; id++)
		give(id);
	accept_on(listener);
	request(IORING_OP_POLL_ADD, INPUT, STDIN_FILENO)->poll32_events = POLLIN;
	ready(listener);
	for (;;) {
		enter(1);
		unsigned head = *cq_head, tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
		for (; head != tail; head++)
			completed(listener, &cqes[head & cq_mask]);
		__atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
	}
}
