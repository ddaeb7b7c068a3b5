/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The layouts that the BPF programs and src/handoff/slot.rs share. */
#ifndef KUMIHIMO_EVENTS_H
#define KUMIHIMO_EVENTS_H

#include <linux/bpf.h>

/* The low bits of a slot's `vp`; the bits above them hold the VP's number + 1. */
enum { CLAIMING = 1, LENT = 2, VP_SHIFT = 2 };
/* Bits of `wanted`. */
enum { WANTS_BLOCKED = 1, WANTS_UNBLOCKED = 2 };
/*
 * Values in `owners`: no seat, and a seat that only its creator's processes can reach. Other values
 * are user IDs.
 */
#define OWNER_NONE 0xffffffffu
#define OWNER_PRIVATE 0xfffffffeu

/*
 * The record of one kernel thread; entries 1.. of a page. Entry 0 is the page's header, which the
 * program never accesses.
 */
struct slot {
	__u64 this;
	__u64 vp;
	__u32 masked;
	__u32 wanted;
	__u32 pending;
	__s32 priority;
	__u64 microprocess;
	__u32 tid;
	__u32 state;
	__u64 blocked;
	__u64 traps;
	__u64 missed;
	__u64 stamp;
	__u64 reserved[6];
	__u64 users[16];
};
_Static_assert(sizeof(struct slot) == 256, "slot size");
_Static_assert(__builtin_offsetof(struct slot, blocked) == 48, "slot layout");
_Static_assert(__builtin_offsetof(struct slot, users) == 128, "slot layout");

struct record {
	__u32 slot;
	__u32 vp;
};

/* Bits of task_struct.__state: stopped by a signal, or by a tracer (ptrace(2)). */
enum { TASK_STOPPED = 4, TASK_TRACED = 8 };

/*
 * Returns whether a thread that leaves its core with this state sleeps. 0 is TASK_RUNNING: it was
 * preempted. A thread that is preempted on its way into a sleep counts as asleep.
 *
 * A stopped thread does not: strace(1) stops a thread twice in each system call, and each hand-off
 * would make further system calls.
 */
static inline __attribute__((always_inline)) int sleeps(__u32 task_state)
{
	return task_state != 0 && !(task_state & (TASK_STOPPED | TASK_TRACED));
}

/*
 * The kernel's struct pt_regs up to the number of the system call. Its order is that of struct
 * user_regs_struct, which is an ABI.
 */
struct pt_regs {
	__u64 before[15];
	__u64 orig_ax;
};
enum { NR_EXECVE = 59, NR_EXECVEAT = 322 };

/*
 * The helper functions, by number (linux/bpf.h, an ABI). Declared here, so that libbpf's headers
 * are not needed.
 */
static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u64 (*get_current_uid_gid)(void) = (void *)BPF_FUNC_get_current_uid_gid;
static void *(*get_current_task_btf)(void) = (void *)BPF_FUNC_get_current_task_btf;
static struct pt_regs *(*task_pt_regs)(void *task) = (void *)BPF_FUNC_task_pt_regs;
static __u64 (*get_attach_cookie)(void *context) = (void *)BPF_FUNC_get_attach_cookie;
static void *(*task_storage_get)(void *map, void *task, void *value, __u64 flags) = (void *)BPF_FUNC_task_storage_get;
static void *(*ringbuf_reserve)(void *buffer, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*ringbuf_submit)(void *record, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static void (*ringbuf_discard)(void *record, __u64 flags) = (void *)BPF_FUNC_ringbuf_discard;

#endif
