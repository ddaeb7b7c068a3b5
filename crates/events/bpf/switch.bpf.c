/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Events at the scheduler's tracepoint: the same reports as events.bpf.c, without a perf event on
 * each kernel thread. The programs run at every switch of the machine, so they are loaded once for
 * all processes (src/linux/bpf/tracepoint.rs).
 *
 * A thread that takes part has its process's key and its slot in task storage. No other thread is
 * touched. The key leads to the process's own maps. It is the ID of a BPF map, which the kernel
 * assigns once: it is unique over all pid namespaces, and a stale key finds no map.
 *
 * SIGTRAP is sent by task work, as an event's is: on the thread's way back to user mode (Linux
 * 6.18). On an older kernel the section `block` is loaded instead of `switch`: it reports the block
 * and sends no SIGTRAP.
 *
 * User code may write anything into a slot at any time. So every word is read once, no word is used
 * as an address, an index or a bound, and there is no loop.
 *
 * The loader supplies the symbols, and type information for the functions of the first program.
 */
#include "events.h"

extern char threads; /* TASK_STORAGE: struct place. Ends with the thread */
extern char pages;   /* HASH_OF_MAPS, process -> ARRAY of struct slot */
extern char buffers; /* HASH_OF_MAPS, process -> RINGBUF of struct record */
extern char works;   /* HASH_OF_MAPS, process -> ARRAY of struct work, by slot */

/* The process and the slot of a kernel thread. */
struct place {
	__u32 process;
	__u32 slot; /* 0: none; the thread has executed another program */
};

/* The kernel's struct bpf_task_work, which is opaque. */
struct work {
	__u64 opaque;
};

extern int bpf_task_work_schedule_resume_impl(void *task, struct work *work, void *map, void *callback, void *aux);
extern int bpf_send_signal_task(void *task, int signal, int type, __u64 value);

enum { SIGTRAP = 5, PIDTYPE_PID = 0 };
/* SIG_DATA of src/linux/bpf/abi.rs: identifies the trap for the handler. */
#define SIG_DATA 0x4b554d4954524150ull

#define READ_ONCE(word) (*(const volatile __typeof__(word) *)&(word))

/*
 * Returns the token of the VP that the slot's thread carries and may lend; 0 if there is none, or
 * no event is wanted.
 */
static __attribute__((always_inline)) __u64 to_lend(struct slot *slot, __u32 *wanted)
{
	if (READ_ONCE(slot->masked))
		return 0;
	__u64 token = READ_ONCE(slot->vp);
	/* LENT: the thread has lost its VP and sleeps again; its trap is pending. */
	if (token >> VP_SHIFT == 0 || token & (CLAIMING | LENT))
		return 0;
	*wanted = READ_ONCE(slot->wanted);
	return *wanted & WANTS_BLOCKED ? token : 0;
}

/* Marks the VP LENT and wakes a spare. Returns whether the VP was lent. */
static __attribute__((always_inline)) int lend(struct slot *slot, __u64 token, void *buffer, __u32 index)
{
	/* Reserved before the VP is lent, so that every VP that is LENT has a record. */
	struct record *record = ringbuf_reserve(buffer, sizeof(*record), 0);
	if (!record) {
		slot->missed++;
		return 0;
	}
	/* Fails only against a claimer. A full barrier: a reader of the record sees LENT. */
	if (__sync_val_compare_and_swap(&slot->vp, token, token | LENT) != token) {
		ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return 0;
	}
	slot->stamp = ktime_get_ns();
	slot->blocked++;
	record->slot = index;
	record->vp = (token >> VP_SHIFT) - 1;
	/*
	 * Forced: by default the kernel wakes the reader only if it has consumed all earlier records,
	 * and that reader may be another kernel thread.
	 */
	ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
	return 1;
}

/*
 * The arguments of tp_btf/sched_switch: preempt, previous, next, the previous thread's state. Runs
 * with the run queue's lock held and interrupts disabled. Returns the previous thread's slot if its
 * VP was lent, and fills `place`.
 */
static __attribute__((always_inline)) struct slot *blocked(__u64 *context, struct place *place, __u32 *wanted)
{
	if (!sleeps(context[3]))
		return 0;
	const struct place *stored = task_storage_get(&threads, (void *)context[1], 0, 0);
	if (!stored || stored->slot == 0)
		return 0;
	*place = *stored;
	void *page = map_lookup(&pages, &place->process);
	if (!page)
		return 0;
	struct slot *slot = map_lookup(page, &place->slot);
	if (!slot)
		return 0;
	__u64 token = to_lend(slot, wanted);
	if (!token)
		return 0;
	void *buffer = map_lookup(&buffers, &place->process);
	if (!buffer || !lend(slot, token, buffer, place->slot))
		return 0;
	return slot;
}

/* The thread is on its way to user mode. */
__attribute__((section("back"), used)) int came_back(void *map, void *key, void *value)
{
	(void)map, (void)key, (void)value;
	bpf_send_signal_task(get_current_task_btf(), SIGTRAP, PIDTYPE_PID, SIG_DATA);
	return 0;
}

__attribute__((section("switch"), used)) int switched(__u64 *context)
{
	struct place place;
	__u32 wanted;
	struct slot *slot = blocked(context, &place, &wanted);
	if (!slot || !(wanted & WANTS_UNBLOCKED))
		return 0;
	void *previous = (void *)context[1];
	/*
	 * No trap during execve(2): it would be delivered to the new program, which has no handler,
	 * and would end it.
	 */
	struct pt_regs *regs = task_pt_regs(previous);
	if (regs->orig_ax == NR_EXECVE || regs->orig_ax == NR_EXECVEAT)
		return 0;
	void *all = map_lookup(&works, &place.process);
	if (!all)
		return 0;
	struct work *work = map_lookup(all, &place.slot);
	/*
	 * Fails without memory: the thread then detects the loss of its VP when it next enters the
	 * runtime.
	 */
	if (work && bpf_task_work_schedule_resume_impl(previous, work, all, came_back, 0) == 0)
		slot->traps++;
	return 0;
}

/* Loaded instead of `switched` on kernels without task work for programs. */
__attribute__((section("block"), used)) int switched_without_trap(__u64 *context)
{
	struct place place;
	__u32 wanted;
	blocked(context, &place, &wanted);
	return 0;
}

/*
 * The argument of tp_btf/sched_process_exec: the task. The new program has no slots, and a child of
 * fork(2) may keep the programs attached.
 */
__attribute__((section("exec"), used)) int executed(__u64 *context)
{
	/* Not deleted: that fails while another task's storage is being changed on this core. */
	struct place *place = task_storage_get(&threads, (void *)context[0], 0, 0);
	if (place)
		place->slot = 0;
	return 0;
}
