/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Reports that a kernel thread with a slot leaves its core to sleep. Runs as the overflow filter of
 * the thread's own perf event (software, CONTEXT_SWITCHES, period 1), with the run queue's lock
 * held and interrupts disabled.
 *
 * If the thread sleeps and carries an unmasked VP, the program marks the VP LENT and reports it to
 * a spare. The return value decides whether the event's SIGTRAP is sent; the kernel delivers it on
 * the thread's way back to user mode.
 *
 * User code may write anything into a slot at any time. So every word is read once, no word is used
 * as an address, an index or a bound, and there is no loop. The worst effect of an overwritten slot
 * is a false report to its own process.
 *
 * The loader (src/linux/bpf/load.rs) supplies the four symbols. It loads instructions, not this ELF
 * file.
 */
#include "events.h"

extern char pages;   /* ARRAY_OF_MAPS, seat -> ARRAY of struct slot */
extern char buffers; /* ARRAY_OF_MAPS, seat -> RINGBUF of struct record */
extern char owners;  /* ARRAY, seat -> u32 user */
extern char state;   /* not an address: the offset of task_struct.__state in the running kernel */

#define READ_ONCE(word) (*(const volatile __typeof__(word) *)&(word))

__attribute__((section("perf_event"), used)) int switched_out(void *context)
{
	if (!sleeps(*(const volatile __u32 *)(get_current_task_btf() + (__u64)&state)))
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
	/* LENT: the thread has lost its VP and sleeps again; its trap is pending. */
	if (token >> VP_SHIFT == 0 || token & (CLAIMING | LENT))
		return 0;
	__u32 wanted = READ_ONCE(slot->wanted);
	if (!(wanted & WANTS_BLOCKED))
		return 0;

	/*
	 * User code chooses the cookie, so the seat must belong to this user. Nothing has been written
	 * before this check.
	 */
	__u32 *owner = map_lookup(&owners, &seat);
	if (!owner || *owner == OWNER_NONE)
		return 0;
	if (*owner != OWNER_PRIVATE && *owner != (__u32)get_current_uid_gid())
		return 0;
	void *buffer = map_lookup(&buffers, &seat);
	if (!buffer)
		return 0;

	/* Reserved before the VP is lent, so that every VP that is LENT has a record. */
	struct record *record = ringbuf_reserve(buffer, sizeof(*record), 0);
	if (!record) {
		slot->missed++;
		return 0;
	}
	/*
	 * Fails only against a claimer. A full barrier: a thread that reads the record also reads
	 * LENT.
	 */
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
	if (!(wanted & WANTS_UNBLOCKED))
		return 0;
	/*
	 * No trap during execve(2): it would be delivered to the new program, which has no handler,
	 * and would end it.
	 */
	struct pt_regs *regs = task_pt_regs(get_current_task_btf());
	if (regs->orig_ax == NR_EXECVE || regs->orig_ax == NR_EXECVEAT)
		return 0;
	slot->traps++;
	return 1;
}
