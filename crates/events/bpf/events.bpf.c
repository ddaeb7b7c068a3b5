/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Runs when a kernel thread with a slot leaves its core: as the overflow filter of the thread's own perf event (software,
 * CONTEXT_SWITCHES, every one), with the run queue's lock held and interrupts off.
 *
 * If the thread really sleeps and carries an unmasked VP, its VP is marked LENT and a spare is told. The return value is
 * whether the event's SIGTRAP goes through; the kernel delivers it on the thread's way back to user mode.
 *
 * User code may write anything into a slot, at any time. So every word is read once, none is used as an address, an index or
 * a bound, and there is no loop: the worst that a scribbled slot does is to tell its own process something untrue.
 *
 * The loader (src/linux/bpf/load.rs) supplies the four symbols. It loads instructions, not this ELF file.
 */
#include "events.h"

extern char pages;   /* ARRAY_OF_MAPS, seat -> ARRAY of struct slot */
extern char buffers; /* ARRAY_OF_MAPS, seat -> RINGBUF of struct record */
extern char owners;  /* ARRAY, seat -> u32 user */
extern char state;   /* not an address: the offset of task_struct.__state in the running kernel */

#define READ_ONCE(word) (*(const volatile __typeof__(word) *)&(word))

__attribute__((section("perf_event"), used)) int switched_out(void *context)
{
	/* 0: TASK_RUNNING, so it was preempted. A thread that is preempted on its way into a sleep counts as asleep. */
	if (*(const volatile __u32 *)(get_current_task_btf() + (__u64)&state) == 0)
		return 0;

	__u64 cookie = get_attach_cookie(context);
	__u32 seat = cookie >> 32, index = cookie;
	if (index == 0)
		return 0;
	void *page = map_lookup(&pages, &seat);
	if (!page)
		return 0;
	struct slot *slot = map_lookup(page, &index);
	if (!slot || READ_ONCE(slot->masked))
		return 0;
	__u64 token = READ_ONCE(slot->vp);
	/* LENT: it lost its VP and sleeps again; its trap is pending. */
	if (token >> VP_SHIFT == 0 || token & (CLAIMING | LENT))
		return 0;
	__u32 wanted = READ_ONCE(slot->wanted);
	if (!(wanted & WANTS_BLOCKED))
		return 0;

	/* The cookie is the user's word: the seat has to be his. Nothing has been written before this. */
	__u32 *owner = map_lookup(&owners, &seat);
	if (!owner || *owner == OWNER_NONE)
		return 0;
	if (*owner != OWNER_PRIVATE && *owner != (__u32)get_current_uid_gid())
		return 0;
	void *buffer = map_lookup(&buffers, &seat);
	if (!buffer)
		return 0;

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
	struct pt_regs *regs = task_pt_regs(get_current_task_btf());
	if (regs->orig_ax == NR_EXECVE || regs->orig_ax == NR_EXECVEAT)
		return 0;
	slot->traps++;
	return 1;
}
