/*
 * kumihimo.h: gates of Kumihimo, from C and C++. Calls between processes at the price of a hand-off. See kumihimo_gates(3).
 *
 * Return values. A function that returns int returns 0, or a positive errno as those of pthreads do; kumi_error_text() then says what happened, to
 * which gate, and what to do.
 *   ENOENT           nobody serves a gate of this name
 *   EADDRINUSE       a gate of this name is served already
 *   EACCES           this user may not
 *   EPROTONOSUPPORT  the other side is of another version of Kumihimo, or serves typed requests of Rust
 *   ECONNRESET       the other side has ended or closed the gate; a request under way may or may not have been carried out: at most once
 *   ETIMEDOUT        the time is over; the request may still be carried out
 *   ECANCELED        the calling microprocess was cancelled, or the server dropped the request
 *   EMSGSIZE         the request or the reply is larger than the gate takes
 *   EBADMSG          what came does not follow the protocol
 *   EREMOTEIO        the handler panicked, or failed with this number
 *   EDEADLK          the call would come back to a server that waits for it
 *   ENOMEM, EAGAIN   no room: gates, connections, memory, descriptors; kernel threads
 *   EINVAL, E2BIG    a wrong argument; options that this version of the library does not know
 *   EIO              what the operating system says; a handler's number that is none of these
 *   EOPNOTSUPP       no gates on this architecture
 *   ENOTRECOVERABLE  a defect of the library
 *
 * Threads. Every function may be called on any thread and in any handler, on one gate by many at once. One kumi_bytes, one kumi_reply, and a
 * region that is not sealed yet are for one thread at a time. In a handler a call blocks the microprocess, elsewhere the thread. None may be
 * called in a signal handler, or in the child of a fork(2) that has not called exec.
 *
 * Handlers run on microprocesses: stacks of 160 KiB by default (an overflow ends the process with a line that says so), thread-local storage of
 * their own; a blocking system call, a mutex or a loop in one stops no other. Set kumi_options.threads to run them on kernel threads with stacks
 * of 8 MiB: for interpreters, deep recursion, and libraries that mind which thread calls them. No handler may be left by longjmp, a C++ exception
 * or pthread_exit.
 */
#ifndef KUMIHIMO_H
#define KUMIHIMO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KUMI_VERSION_MAJOR 0
#define KUMI_VERSION_MINOR 1
#define KUMI_VERSION_PATCH 0
#define KUMI_VERSION ((KUMI_VERSION_MAJOR << 16) | (KUMI_VERSION_MINOR << 8) | KUMI_VERSION_PATCH)

/* The library's version, to be held against KUMI_VERSION: they go together if the major numbers are equal and, while those are 0, the minor ones.
 * */
uint32_t kumi_version(void);

/* What the last function that failed on this thread, or microprocess, says of it; "" before. Never NULL. Holds until the next one fails there. */
const char *kumi_error_text(void);

typedef struct kumi_gate kumi_gate;       /* a caller's hold of a gate */
typedef struct kumi_serving kumi_serving; /* a gate that is served */
typedef struct kumi_reply kumi_reply;     /* a request in a handler's hands, and the reply to be */
typedef struct kumi_region kumi_region;   /* bytes that go by reference */

/* Where the two sides of a call run. */
enum kumi_placement {
  KUMI_ADAPTIVE = 0, /* by what is found */
  KUMI_HANDOFF = 1,  /* the server on the caller's core; nobody spins */
  KUMI_SCHEDULED = 2, /* wherever the kernel's scheduler likes; nobody spins */
  KUMI_SPIN = 3      /* both sides spin, for a millisecond at most */
};

#define KUMI_ALLOW_EVERYBODY 1u /* server: every user may call */
#define KUMI_NO_INHERITANCE 2u  /* server: handlers run at the server's priority, not at the caller's */

/* How a gate is served or called. NULL in its place is all defaults. It may grow at its end: `size` says which one the program was built with. */
typedef struct kumi_options {
  size_t size;           /* sizeof(kumi_options) */
  uint32_t in_flight;    /* server: calls of a client under way at once, 2 to 32768; 0: 1024 */
  uint32_t inline_bytes; /* server: bytes that lie in the lane itself, 64 to 65536; 0: 4096 */
  uint64_t largest;      /* largest request or reply, bytes; 0: 64 MiB */
  uint32_t handlers;     /* server: requests handled at once; 0: 10000, or twice `threads` */
  uint32_t threads;      /* server: kernel threads that run the handlers, at most 1024; 0: microprocesses run them */
  uint32_t placement;    /* client: enum kumi_placement */
  int32_t priority;      /* client: of its calls, 0 to 63; -1: the caller's own */
  uint32_t flags;        /* KUMI_ALLOW_EVERYBODY, KUMI_NO_INHERITANCE */
  uint32_t reserved;     /* 0 */
  uint64_t patience_ns;  /* client: for the server's answer while connecting; 0: 5 s */
  const uint32_t *allow; /* server: users that may call beside the own one and root, at most 4096 */
  size_t allow_count;
} kumi_options;

#define KUMI_OPTIONS_INIT {sizeof(kumi_options), 0, 0, 0, 0, 0, KUMI_ADAPTIVE, -1, 0, 0, 0, NULL, 0}

/* KUMI_OPTIONS_INIT for those who cannot use it: `size` is sizeof(kumi_options). EINVAL. */
int kumi_options_init(kumi_options *options, size_t size);

/* A buffer of the library's that its user keeps, and that calls fill again and again. Read `data` and `length`, write nothing; copy none. */
typedef struct kumi_bytes {
  void *data;
  size_t length;
  size_t capacity;
} kumi_bytes;

#define KUMI_BYTES_INIT {NULL, 0, 0}

/* Frees the buffer; it can be used again. NULL: nothing. */
void kumi_bytes_free(kumi_bytes *bytes);

/* --- Calling --- */

/* Connects to gate `name` (UTF-8). *out is NULL unless it returns 0. ENOENT, EACCES, EPROTONOSUPPORT, ETIMEDOUT, ENOMEM, EINVAL, E2BIG. */
int kumi_gate_connect(kumi_gate **out, const char *name, const kumi_options *options);

/* Calls and waits for the reply, `timeout_ns` at most; below 0 without end. `request` may be NULL if `length` is 0; `reply` may be NULL: it is not
 * wanted. A failed call leaves an empty reply. When the server was replaced, the next call connects anew. */
int kumi_gate_call(kumi_gate *gate, const void *request, size_t length, kumi_bytes *reply, int64_t timeout_ns);

/* As kumi_gate_call, with up to 4 sealed regions. `back` gets the regions that come with the reply, of which *back_count is the
 * number of places before, and of regions after; each is the caller's to free. Both NULL: none is wanted. */
int kumi_gate_call_regions(kumi_gate *gate, const void *request, size_t length, const kumi_region *const *regions, size_t count, kumi_bytes *reply,
                           kumi_region **back, size_t *back_count, int64_t timeout_ns);

/* Sends a request that nobody waits for: handled at most once; what goes wrong with it nobody hears. Blocks only while the lane is full. */
int kumi_gate_send(kumi_gate *gate, const void *request, size_t length);

/* Closes. No call may be under way. NULL: nothing. */
void kumi_gate_close(kumi_gate *gate);

/* --- Serving --- */

/* Who calls, as the kernel says, and how. May grow at its end. */
typedef struct kumi_caller {
  size_t size; /* of what the library has filled */
  uint32_t uid;
  uint32_t pid;      /* 0: in a pid namespace that this process cannot see into */
  uint32_t priority; /* 0 to 63 */
  uint32_t reserved;
  uint64_t left_ns; /* time until the caller gives up; UINT64_MAX: never */
} kumi_caller;

/* Handles a request: returns 0 after kumi_reply_set (without it the reply is empty), or the errno that the caller gets. `request`, `reply` and
 * `caller` hold until it returns. Several run at once, on any kernel thread; all get the same `arg`. */
typedef int (*kumi_handler)(const void *request, size_t length, kumi_reply *reply, const kumi_caller *caller, void *arg);

/* Serves gate `name` (UTF-8) until it is closed or the process ends. Does not block. *out is NULL unless it returns 0. EADDRINUSE, EINVAL, E2BIG,
 * ENOMEM, EAGAIN, EIO (no run-time directory). */
int kumi_gate_serve(kumi_serving **out, const char *name, const kumi_options *options, kumi_handler handler, void *arg);

/* Closes the gate, tells the callers whose requests wait for a handler, and waits for the handlers that run; none runs after it, and `arg` can be
 * freed. EDEADLK: called by a handler of this gate; nothing was done. NULL: nothing. */
int kumi_serving_close(kumi_serving *serving);

/* Requests handled so far. NULL: 0. */
uint64_t kumi_serving_handled(const kumi_serving *serving);

/* Sets the reply to a copy of these bytes, or adds them to it. EINVAL, ENOMEM. */
int kumi_reply_set(kumi_reply *reply, const void *data, size_t length);
int kumi_reply_append(kumi_reply *reply, const void *data, size_t length);

/* Says why the handler fails, in UTF-8; returns `error`, or EREMOTEIO if that is 0: `return kumi_reply_fail(reply, EINVAL, "no such book");` */
int kumi_reply_fail(kumi_reply *reply, int error, const char *text);

/* 1 if the caller has gone, or wants no reply any more (on kernel threads: only if it has gone). Does not block. */
int kumi_reply_unwanted(const kumi_reply *reply);

/* The region `index` (from 0) that came with the request; the handler's to free. ERANGE: there are not so many. EBADMSG, ECONNRESET. */
int kumi_request_region(const kumi_reply *reply, size_t index, kumi_region **out);

/* Passes a sealed region along with the reply, 4 at most, which is checked when it is sent. It stays the handler's to free. */
int kumi_reply_region(kumi_reply *reply, const kumi_region *region);

/* --- Regions: memory that goes from process to process by reference, 1 GiB at most. Nobody can change one that is sealed. --- */

/* A sealed region of a copy of these bytes. ENOMEM. */
int kumi_region_copy(kumi_region **out, const void *data, size_t length);

/* A region of `length` bytes of zero, which its owner writes at *data until it seals it. ENOMEM. */
int kumi_region_new(kumi_region **out, size_t length, void **data);

/* Seals it. Its bytes lie elsewhere afterwards: kumi_region_data. A sealed one stays so. */
int kumi_region_seal(kumi_region *region);

/* Where its bytes are, and how many if `length` is not NULL; they hold until it is freed. NULL: `region` is. */
const void *kumi_region_data(const kumi_region *region, size_t *length);

/* Lets it go; others that have it keep it. NULL: nothing. */
void kumi_region_free(kumi_region *region);

#ifdef __cplusplus
}
#endif

#endif
