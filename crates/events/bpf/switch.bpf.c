/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What events.bpf.c does, without a perf event on each kernel thread: at the scheduler's own tracepoint, whoever switches. An
 * event costs a thread half a microsecond each time that it leaves its core or comes back, for no reason but that it has one;
 * this costs others 20 ns and ours 60.
 *
 * SIGTRAP comes by task work, as an event's does: on the thread's way back to user mode. From Linux 6.18.
 *
 * Of a slot the same holds: user code may write anything into it, at any time. So every word is read once, none is used as an
 * address, an index or a bound, and there is no loop.
 *
 * The loader (src/linux/bpf/follow.rs) supplies the symbols, and type information for the two functions of the first program.
 */
#include "events.h"

extern char threads; /* TASK_STORAGE: u32 slot. Goes with the thread */
extern char page;    /* ARRAY of struct slot */
extern char works;   /* ARRAY of struct work, by slot */
extern char buffer;  /* RINGBUF of struct record */

/* The kernel's struct bpf_task_work, which is opaque. */
struct work {
	__u64 opaque;
};

extern int bpf_task_work_schedule_resume_impl(void *task, struct work *work, void *map, void *callback, void *aux);
extern int bpf_send_signal_task(void *task, int signal, int type, __u64 value);

enum { SIGTRAP = 5, PIDTYPE_PID = 0 };
/* SIG_DATA of src/linux/bpf/abi.rs: by this the handler knows the trap for ours. */
#define SIG_DATA 0x4b554d4954524150ull

#define READ_ONCE(word) (*(const volatile __typeof__(word) *)&(word))

/* The token of the VP that the slot's thread carries, and would lend; 0: none, or nothing is to be told. */
static __attribute__((always_inline)) __u64 to_lend(struct slot *slot, __u32 *wanted)
{
	if (READ_ONCE(slot->masked))
		return 0;
	__u64 token = READ_ONCE(slot->vp);
	/* LENT: it lost its VP and sleeps again; its trap is pending. */
	if (token >> VP_SHIFT == 0 || token & (CLAIMING | LENT))
		return 0;
	*wanted = READ_ONCE(slot->wanted);
	return *wanted & WANTS_BLOCKED ? token : 0;
}

/* Marks the VP LENT and tells a spare. Returns whether the thread is to be told, by SIGTRAP, when it is back. */
static __attribute__((always_inline)) int lend(struct slot *slot, __u64 token, __u32 wanted, void *buffer, __u32 index, void *task)
{
	/* Reserved before the VP is lent: a VP that is LENT has its record, always. */
	struct record *record = ringbuf_reserve(buffer, sizeof(*record), 0);
	if (!record) {
		slot->missed++;
		return 0;
	}
	/* It fails only against a claimer. A full barrier: LENT is seen by whoever sees the record. */
	if (__sync_val_compare_and_swap(&slot->vp, token, token | LENT) != token) {
		ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return 0;
	}
	slot->stamp = ktime_get_ns();
	slot->blocked++;
	record->slot = index;
	record->vp = (token >> VP_SHIFT) - 1;
	/* Forced: without it the kernel wakes only a reader that had caught up, and the reader may be another kernel thread. */
	ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
	if (!(wanted & WANTS_UNBLOCKED))
		return 0;
	/* The trap would come on the way to user mode: in a program that knows nothing of it, and that it would end. */
	struct pt_regs *regs = task_pt_regs(task);
	return regs->orig_ax != NR_EXECVE && regs->orig_ax != NR_EXECVEAT;
}

/* The thread is on its way to user mode. */
__attribute__((section("back"), used)) int came_back(void *map, void *key, void *value)
{
	(void)map, (void)key, (void)value;
	bpf_send_signal_task(get_current_task_btf(), SIGTRAP, PIDTYPE_PID, SIG_DATA);
	return 0;
}

/* tp_btf/sched_switch: preempt, previous, next, the previous one's state. With the run queue's lock held and interrupts off. */
__attribute__((section("switch"), used)) int switched(__u64 *context)
{
	/* As in events.bpf.c: 0 is TASK_RUNNING. */
	if ((__u32)context[3] == 0)
		return 0;
	void *previous = (void *)context[1];
	const __u32 *number = task_storage_get(&threads, previous, 0, 0);
	/* 0: it has executed another program. */
	if (!number || *number == 0)
		return 0;
	__u32 index = *number;
	struct slot *slot = map_lookup(&page, &index);
	if (!slot)
		return 0;
	__u32 wanted;
	__u64 token = to_lend(slot, &wanted);
	if (!token || !lend(slot, token, wanted, &buffer, index, previous))
		return 0;
	struct work *work = map_lookup(&works, &index);
	/* No memory for it: then it finds out when it next enters the runtime. */
	if (work && bpf_task_work_schedule_resume_impl(previous, work, &works, came_back, 0) == 0)
		slot->traps++;
	return 0;
}

/* tp_btf/sched_process_exec: the task. Whatever it runs now knows nothing of slots, and a fork's child may keep the programs attached. */
__attribute__((section("exec"), used)) int executed(__u64 *context)
{
	/* Not deleted: that fails while another task's storage is being changed on this core. */
	__u32 *number = task_storage_get(&threads, (void *)context[0], 0, 0);
	if (number)
		*number = 0;
	return 0;
}
