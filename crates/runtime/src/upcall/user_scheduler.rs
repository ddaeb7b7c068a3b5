//! Implementation of the user scheduler interface that the kernel's half calls
//! ([`kumihimo_events::sched`]).

use std::sync::atomic::Ordering;

use kumihimo_arch::overflow;
use kumihimo_events as events;
use kumihimo_events::cpu_profiler::{NAME, Running};
use kumihimo_events::sched::{Answer, Starved, StarvedReply, Tick, UserScheduler};

use crate::kernel_thread::gs_record::{KernelThread, Standing, current_mp, standing};
use crate::kernel_thread::{affinity, kernel_slice};
use crate::memory::pool;
use crate::microprocess::sticky_state::Reason;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;
use crate::upcall::{bound, handoff, preempt, sticky};

impl UserScheduler for Instance {
    fn thread(&self, thread: &events::KernelThread, live: &mut dyn FnMut()) {
        // A failed allocation is not fatal. In a Rust program, std has given this kernel thread an
        // alternate stack, which is used instead. Under a `main` that is not Rust's, an overflow
        // then ends in a bare SIGSEGV.
        let _alt_stack = overflow::alt_stack_for_this_thread().ok();
        affinity::begin_on_all_cores();
        kernel_slice::begin();
        // SAFETY: the address of this instance, of which the kernel's half holds a reference
        // count for each kernel thread.
        unsafe { KernelThread::with(std::ptr::from_ref(self).cast(), thread, live) };
    }

    fn sets_signal_masks(&self) -> bool {
        true
    }

    fn blocked(&self, vp: u32) -> Answer {
        trace_hooks::blocked(&self.vps[vp as usize].trace);
        self.vps[vp as usize].account_block();
        let levels = self.vps[vp as usize].queue().levels();
        // `Answer::Next` even without a runnable microprocess: a carrier must serve the VP's timers
        // and descriptors.
        Answer::Next(levels.checked_ilog2().map(|level| level as u8))
    }

    fn resumed(&self, vp: u32, _thread: &events::KernelThread) {
        // SAFETY: a kernel thread of the pool: GS is set, its slot masked once.
        let kt = unsafe { KernelThread::here() };
        kt.attach_vp(&raw const self.vps[vp as usize]);
        self.kernel.start_timekeeper();
        // SAFETY: as above.
        unsafe { Carrier::here() }.run();
        // When the thread carries a VP again, its slot shows no microprocess until it has chosen
        // one.
        kt.clear_shown();
        if kt.vp.get().is_null() {
            bound::publish_bound(self, kt);
        }
        // Includes its time without a VP, since this thread may never carry one again.
        self.book(vp as usize, kt.take_cpu_time(), self.now());
        trace_hooks::pooled(&self.trace, kt.tid());
    }

    fn unblocked(&self) {
        // `Bound`: `blocking` checks for the VP itself when it returns.
        if standing() != Standing::OnVp {
            return;
        }
        // SAFETY: not foreign: GS is set.
        let kt = unsafe { KernelThread::here() };
        kt.in_handler(|| {
            let carrier = Carrier::current();
            // SAFETY: null or a record, which lives for ever.
            let Some(mp) = (unsafe { kt.current.get().as_ref() }) else { return };
            let reason = sticky::reason(self, mp);
            match (carrier, reason) {
                // The microprocess is back before a spare came, but it blocked all the same. If two
                // microprocesses that communicate kept their VPs here, every one of their blocks
                // would be reported. So it gives the VP away.
                (Some(carrier), Some(Reason::Often)) => {
                    handoff::give_away(kt);
                    let _ = carrier.release();
                    sticky::begin(self, kt, mp, Reason::Often);
                }
                (Some(_), _) => {}
                (None, Some(reason)) => sticky::begin(self, kt, mp, reason),
                (None, None) => {
                    handoff::await_turn(self, mp);
                }
            }
        });
    }

    fn notified(&self, _events: u32) {
        // Delivered by `preempt::deliver` instead.
    }

    unsafe fn interrupted(&self, context: *mut libc::ucontext_t, vain: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { preempt::interrupted(context, vain) }
    }

    fn running(&self, stack_pointer: usize) -> Option<Running> {
        let mp = current_mp()?;
        let stack = pool::bounds(mp).0.addr()..mp.stack_top().addr();
        if !stack.contains(&stack_pointer) {
            return None;
        }
        let mut name = [0; NAME];
        let name_length = mp.label(&mut name);
        Some(Running { stack_end: stack.end, name, name_length })
    }

    fn outranked(&self, vp: u32, _priority: i32) -> Option<u64> {
        // Injected work must be collected after Preempted was delivered, whatever its priority: the
        // priority is not known before that.
        let vp = &self.vps[vp as usize];
        let moves = vp
            .counters
            .switches
            .load(Ordering::Relaxed)
            .wrapping_add(vp.turn_clock.answers.load(Ordering::Relaxed));
        self.queues.has_injected(vp.index).then_some(moves)
    }

    fn overridden(&self, vp: u32, off: bool) {
        if off {
            // Traced before any thread treats the VP as stuck.
            trace_hooks::overridden(&self.trace, vp);
        }
        self.queues.set_stuck(vp as usize, off);
        if off {
            self.closed_vps.fetch_add(1, Ordering::Relaxed);
            self.adjust_open();
            // Sleeping VPs can pull the surplus of the stuck VP.
            self.vps.iter().filter(|vp| !vp.is_retired()).for_each(|vp| vp.idle.wake());
        } else {
            self.closed_vps.fetch_sub(1, Ordering::Relaxed);
            self.adjust_open();
        }
    }

    fn starved(&self, starved: Starved) -> StarvedReply {
        self.report_starvation(starved)
    }

    fn no_spare(&self) {
        if !self.has_levels() {
            (0..self.vps.len()).for_each(|vp| self.kernel.release_waiters(vp as u32));
        }
    }

    fn name_of(&self, id: u64, out: &mut [u8]) -> usize {
        crate::microprocess::identity::find(id).map_or(0, |mp| mp.label(out))
    }

    fn tick(&self) -> Tick {
        self.follow_cores();
        self.look_at_unknown_wait();
        self.look_at_turns()
    }

    fn ready(&self, vp: u32) {
        self.is_ready(vp);
    }
}
