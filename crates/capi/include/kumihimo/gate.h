/* kumihimo/gate.h: gates, that is, calls between processes at the cost of a hand-off. See
 * kumihimo.h and kumihimo_gates(3).
 *
 * Handlers run on microprocesses. Their stacks have 160 KiB by default; an overflow ends the
 * process with a message. Each has its own thread-local storage. A blocking system call, a mutex or
 * a loop in one handler does not stop the others. Set kumi_options.threads to run handlers on
 * kernel threads with stacks of 8 MiB, for interpreters, deep recursion, and libraries that depend
 * on the calling thread. A handler must not be left by longjmp, a C++ exception or pthread_exit.
 */
#ifndef KUMIHIMO_GATE_H
#define KUMIHIMO_GATE_H

#include <kumihimo/base.h>

KUMI_BEGIN

typedef struct kumi_gate kumi_gate;       /* a client's connection to a gate */
typedef struct kumi_serving kumi_serving; /* a served gate */
typedef struct kumi_reply kumi_reply;     /* a handler's request and its reply */
typedef struct kumi_region kumi_region;   /* memory passed by reference */

/* Where the two sides of a call run. */
enum kumi_placement {
  KUMI_ADAPTIVE = 0, /* chosen automatically */
  KUMI_HANDOFF = 1,  /* the server on the caller's core; no side spins */
  KUMI_SCHEDULED = 2, /* where the kernel schedules them; no side spins */
  KUMI_SPIN = 3      /* both sides spin, for at most a millisecond */
};

#define KUMI_ALLOW_EVERYBODY 1u /* server: every user may call */
#define KUMI_NO_INHERITANCE 2u  /* server: handlers run at the server's priority */

/* Options for serving or calling a gate; NULL means all defaults. Later versions may append fields:
 * `size` identifies the version with which the program was built. */
typedef struct kumi_options {
  size_t size;           /* sizeof(kumi_options) */
  uint32_t in_flight;    /* server: concurrent calls of a client, 2 to 32768; 0: 1024 */
  uint32_t inline_bytes; /* server: bytes passed in the lane itself, 64 to 65536; 0: 4096 */
  uint64_t largest;      /* largest request or reply in bytes; 0: 64 MiB */
  uint32_t handlers;     /* server: concurrent handlers; 0: 10000, or twice `threads` */
  uint32_t threads;      /* server: kernel threads for handlers, at most 1024; 0: microprocesses */
  uint32_t placement;    /* client: enum kumi_placement */
  int32_t priority;      /* client: priority of its calls, 0 to 63; -1: the caller's own */
  uint32_t flags;        /* KUMI_ALLOW_EVERYBODY, KUMI_NO_INHERITANCE */
  uint32_t reserved;     /* 0 */
  uint64_t patience_ns;  /* client: time limit of connecting; 0: 5 s */
  const uint32_t *allow; /* server: users that may call besides its own and root, at most 4096 */
  size_t allow_count;
} kumi_options;

#define KUMI_OPTIONS_INIT {sizeof(kumi_options), 0, 0, 0, 0, 0, KUMI_ADAPTIVE, -1, 0, 0, 0, NULL, 0}

/* Initialises options like KUMI_OPTIONS_INIT, for languages without the macro. `size` is
 * sizeof(kumi_options). EINVAL. */
int kumi_options_init(kumi_options *options, size_t size);

/* Buffer that the library allocates and that calls fill repeatedly. The program may read `data` and
 * `length`, but must not write any field or copy the structure. */
typedef struct kumi_bytes {
  void *data;
  size_t length;
  size_t capacity;
} kumi_bytes;

#define KUMI_BYTES_INIT {NULL, 0, 0}

/* Frees the buffer, which can then be used again. NULL has no effect. */
void kumi_bytes_free(kumi_bytes *bytes);

/* --- Calling --- */

/* Connects to gate `name` (UTF-8). *out is NULL unless the result is 0. ENOENT, EACCES,
 * EPROTONOSUPPORT, ETIMEDOUT, ENOMEM, EINVAL, E2BIG. */
int kumi_gate_connect(kumi_gate **out, const char *name, const kumi_options *options);

/* Sends a request and waits for the reply, for at most `timeout_ns`, or without limit if that is
 * negative. `request` may be NULL if `length` is 0; `reply` may be NULL to discard the reply. A
 * failed call leaves the reply empty. If the server was replaced, the next call connects again. */
int kumi_gate_call(kumi_gate *gate, const void *request, size_t length, kumi_bytes *reply,
                   int64_t timeout_ns);

/* Calls like kumi_gate_call, and passes up to 4 sealed regions. `back` receives the regions of the
 * reply, which the caller must free. *back_count is the size of `back` before the call, and the
 * number of received regions after it. If both are NULL, the regions are discarded. */
int kumi_gate_call_regions(kumi_gate *gate, const void *request, size_t length,
                           const kumi_region *const *regions, size_t count, kumi_bytes *reply,
                           kumi_region **back, size_t *back_count, int64_t timeout_ns);

/* Sends a request without a reply. It is handled at most once, and later errors are not reported.
 * Blocks only while the lane is full. */
int kumi_gate_send(kumi_gate *gate, const void *request, size_t length);

/* Closes the connection. No call may be in progress. NULL has no effect. */
void kumi_gate_close(kumi_gate *gate);

/* --- Serving --- */

/* The caller, as identified by the kernel. Later versions may append fields. */
typedef struct kumi_caller {
  size_t size; /* number of bytes that the library has filled */
  uint32_t uid;
  uint32_t pid;      /* 0: in a pid namespace that is not visible to this process */
  uint32_t priority; /* 0 to 63 */
  uint32_t reserved;
  uint64_t left_ns; /* time until the call times out; UINT64_MAX: never */
} kumi_caller;

/* Handles a request. Returns 0 after kumi_reply_set (otherwise the reply is empty), or an errno for
 * the caller. `request`, `reply` and `caller` are valid until the handler returns. Several handlers
 * run concurrently, on any kernel thread, with the same `arg`. */
typedef int (*kumi_handler)(const void *request, size_t length, kumi_reply *reply,
                            const kumi_caller *caller, void *arg);

/* Serves gate `name` (UTF-8) until it is closed or the process ends. Does not block. *out is NULL
 * unless the result is 0. EADDRINUSE, EINVAL, E2BIG, ENOMEM, EAGAIN, EIO (no run-time directory).
 */
int kumi_gate_serve(kumi_serving **out, const char *name, const kumi_options *options,
                    kumi_handler handler, void *arg);

/* Closes the gate, fails requests that wait for a handler, and waits for running handlers. No
 * handler runs afterwards, so `arg` can be freed. EDEADLK if called by a handler of this gate: the
 * gate then stays open. NULL has no effect. */
int kumi_serving_close(kumi_serving *serving);

/* Returns the number of requests handled so far; 0 for NULL. */
uint64_t kumi_serving_handled(const kumi_serving *serving);

/* Set the reply to a copy of these bytes, or append a copy to it. EINVAL, ENOMEM. */
int kumi_reply_set(kumi_reply *reply, const void *data, size_t length);
int kumi_reply_append(kumi_reply *reply, const void *data, size_t length);

/* Sets the message of a failing handler, in UTF-8. Returns `error`, or EREMOTEIO if that is 0:
 * `return kumi_reply_fail(reply, EINVAL, "no such book");` */
int kumi_reply_fail(kumi_reply *reply, int error, const char *text);

/* Returns 1 if the caller has ended or has given up the call (on kernel threads: only if it has
 * ended). Does not block. */
int kumi_reply_unwanted(const kumi_reply *reply);

/* Returns region `index` (from 0) of the request. The handler must free it. ERANGE if there is no
 * such region. EBADMSG, ECONNRESET. */
int kumi_request_region(const kumi_reply *reply, size_t index, kumi_region **out);

/* Passes a sealed region with the reply. The limit of 4 regions is checked when the reply is sent.
 * The handler must still free the region. */
int kumi_reply_region(kumi_reply *reply, const kumi_region *region);

/* --- Regions: memory of up to 1 GiB, passed by reference between processes. No process can change
 * a sealed region. --- */

/* Creates a sealed region with a copy of these bytes. ENOMEM. */
int kumi_region_copy(kumi_region **out, const void *data, size_t length);

/* Creates a region of `length` zero bytes, which its owner writes at *data until it is sealed.
 * ENOMEM. */
int kumi_region_new(kumi_region **out, size_t length, void **data);

/* Seals the region. Its bytes may move: use kumi_region_data. A sealed region stays unchanged. */
int kumi_region_seal(kumi_region *region);

/* Returns the region's bytes, and their number in *length unless that is NULL. Valid until the
 * region is freed. Returns NULL if `region` is NULL. */
const void *kumi_region_data(const kumi_region *region, size_t *length);

/* Frees the region; other holders keep it. NULL has no effect. */
void kumi_region_free(kumi_region *region);

KUMI_END

#endif
