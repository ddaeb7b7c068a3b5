//! Sticky microprocesses: a microprocess that blocks often in calls unknown to the runtime (std's
//! sockets and locks, a C library) keeps its kernel thread and has no VP.
//!
//! Reporting a block and handing the VP over twice costs more than ten times as much as the block
//! itself costs a kernel thread. So only the first one or two blocks are reported. A microprocess
//! that blocks again soon becomes *sticky*, and runs like an ordinary kernel thread. Its sleeps are
//! not reported, it owns no event, and the kernel schedules it. It never stalls other
//! microprocesses, because its thread carries no VP.
//!
//! ```text
//!           unwrapped sleep               reported or detected: a spare has the VP
//!   ON A VP ───────────────> LENT ─────────────────────────────> LOST
//!      ^ ^                    │ back before the spare               │ back
//!      │ └────────────────────┤                                     │
//!      │  first block, or     │ second block within WITHIN of its   │
//!      │  levels differ:      │ own run time, or no spare is left   │
//!      │  waits for its turn  v                                     │
//!      └──────────────────── STICKY <───────────────────────────────┘
//!        it waits in the runtime and has hardly blocked elsewhere since, or waits there for
//!        longer than STAYS; it ends; or levels come to differ, or it is suspended: then it is
//!        recalled
//! ```
//! For calls into the runtime, a sticky microprocess behaves as before: it is woken, cancelled,
//! suspended and shown as a microprocess. A wait in the runtime blocks its kernel thread
//! ([`crate::microprocess::protocol::sticky_parker`]), and a yield leaves the choice to the kernel.
//! Outside of the runtime it costs no bookkeeping. The kernel counts its blocks there (voluntary
//! context switches, getrusage(2)), and a wait in the runtime reads that count.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::kernel_thread::gs_record::{KernelThread, Standing, set_standing, standing};
use crate::microprocess::protocol::state::{Park, Wake};
use crate::microprocess::record::Mp;
use crate::microprocess::sticky_state::{Reason, WEIGHT};
use crate::microprocess::wait_reason::Wait;
use crate::process::clock::cpu_time;
use crate::scheduler::instance::Instance;
use crate::scheduler::thread_place;
use crate::trace_hooks;

/// Decides whether `mp` continues without a VP after a block outside of the runtime, and why. `mp`
/// is the caller or the microprocess that was interrupted on this kernel thread. Async-signal-safe.
pub(crate) fn reason(instance: &Instance, mp: &Mp) -> Option<Reason> {
    if mp.sticky.is_bound.get() {
        return Some(Reason::Bound);
    }
    if !instance.settings.sticky || instance.levels_differ_for(mp) || mp.state.is_suspended() {
        return None;
    }
    let again = mp.sticky.blocked_again(cpu_time());
    if !instance.kernel.has_spare() {
        // Without a spare, the VP may stay with a kernel thread that sleeps, and a waiter would
        // wait for that one.
        return Some(Reason::NoSpare);
    }
    again.then_some(Reason::Often)
}

/// Makes `mp`, the caller or the interrupted microprocess, sticky. Its kernel thread has no VP.
/// Async-signal-safe.
pub(crate) fn begin(instance: &Instance, kt: &KernelThread, mp: &Mp, reason: Reason) {
    debug_assert!(kt.vp.get().is_null());
    trace_hooks::sticks(&instance.trace, kt.tid(), mp, true);
    let own = &mp.sticky;
    // A microprocess that is sticky only for lack of a spare returns to a VP at its next wait in
    // the runtime.
    let waits_elsewhere = matches!(reason, Reason::Often | Reason::EventLoop);
    own.weight.set(if waits_elsewhere { WEIGHT } else { 1 });
    own.yields.set(0);
    own.since.set(cpu_time());
    // As if a wait in the runtime had just ended: the next check subtracts one.
    own.switches.set(voluntary_switches().saturating_sub(1));
    own.set_reason(reason);
    instance.sticky.now.fetch_add(1, Ordering::SeqCst);
    instance.sticky.changes.fetch_add(1, Ordering::Relaxed);
    if reason == Reason::Often {
        instance.sticky.last.store(kt.tid(), Ordering::Relaxed);
    }
    kt.keep_to_no_core();
    kt.events().detach();
    set_standing(Standing::Sticky);
    // Pairs with `recall_sticky`, which a thread calls after it has made levels differ: either that
    // thread observes the count above, or this one observes the levels (SeqCst).
    if is_recalled(instance, mp) {
        instance.kernel.call_back(kt.events().index());
    }
}

/// Makes `mp` no longer sticky. It has no VP yet.
pub(crate) fn end(instance: &Instance, kt: &KernelThread, mp: &Mp) {
    let own = &mp.sticky;
    let (_, sleeps) = own.weigh(voluntary_switches());
    instance.sticky.sleeps.fetch_add(sleeps, Ordering::Relaxed);
    // Its CPU time while sticky is accounted as if it had had a VP.
    let mut account = mp.account.get();
    account.ran_ns = account.ran_ns.saturating_add(cpu_time().saturating_sub(own.since.get()));
    mp.account.set(account);
    own.has_blocked.set(false);
    own.reason.store(0, Ordering::Relaxed);
    instance.sticky.now.fetch_sub(1, Ordering::Relaxed);
    instance.sticky.changes.fetch_add(1, Ordering::Relaxed);
    set_standing(Standing::OnVp);
    trace_hooks::sticks(&instance.trace, kt.tid(), mp, false);
}

/// Whether `mp` must obtain a VP before it continues in its own code. The kernel schedules a bound
/// one whatever levels exist.
pub(crate) fn is_recalled(instance: &Instance, mp: &Mp) -> bool {
    mp.state.is_suspended() || !mp.sticky.is_bound.get() && instance.has_levels()
}

/// Returns the caller and its kernel thread, if the caller is sticky.
pub(crate) fn current() -> Option<(&'static KernelThread, &'static Mp)> {
    if standing() != Standing::Sticky {
        return None;
    }
    // SAFETY: sticky: GS is set, and stays the same, because without a VP the caller keeps its
    // kernel thread. That thread cannot end while a microprocess is bound to it, so it outlives the
    // caller's use of it.
    let (kt, mp) =
        unsafe { (KernelThread::here(), crate::kernel_thread::gs_record::running_here()) };
    mp.map(|mp| (kt, mp))
}

/// The time that a wait in the runtime keeps a kernel thread. It is about as long as an idle kernel
/// thread stays in the pool: to return to a VP costs little beside such a wait.
const STAYS: Duration = Duration::from_millis(100);

/// Blocks the kernel thread of the caller, which is sticky, until it is woken, with the semantics
/// of [`park`](crate::wait::park::park). `(kind, object)` is an encoded [`Wait`]. Returns whether
/// the wait is long: whether it has lasted for [`STAYS`] and goes on, so that it needs a VP.
pub(crate) fn park(
    kt: &KernelThread,
    mp: &'static Mp,
    (kind, object): (u8, usize),
    deadline: Option<Instant>,
) -> bool {
    if mp.state.take_permit() {
        return false;
    }
    let bound =
        mp.scope_deadline().filter(|b| deadline.is_none_or(|d| *b < d) && !mp.state.is_cancelled());
    let until = bound.or(deadline);
    let timed = if until.is_some() { Wait::TIMED } else { 0 };
    mp.wait_kind.store(kind | timed, Ordering::Relaxed);
    mp.wait_object.store(object, Ordering::Relaxed);
    mp.waits_since.store(kt.instance().now(), Ordering::Relaxed);
    // A bound one keeps its kernel thread however long it waits.
    let stays = (!mp.sticky.is_bound.get()).then(|| Instant::now() + STAYS);
    let stays = stays.filter(|stays| until.is_none_or(|until| *stays < until));
    let waiting = &kt.instance().sticky.waiting;
    waiting.fetch_add(1, Ordering::Relaxed);
    let is_woken = sleep(mp, stays.or(until));
    waiting.fetch_sub(1, Ordering::Relaxed);
    if bound.is_some_and(|bound| Instant::now() >= bound) {
        mp.state.cancel(mp.state.generation());
    }
    !is_woken && stays.is_some()
}

/// Returns false if the time has passed without a wake-up.
fn sleep(mp: &Mp, until: Option<Instant>) -> bool {
    let parker = &mp.sticky.parker;
    parker.prepare();
    if mp.state.commit_park() == Park::Permit {
        parker.reset();
        return true;
    }
    if parker.sleep(until) {
        return true;
    }
    // The deadline has passed. If another thread wakes or suspends the microprocess at this moment,
    // that thread also wakes the parker, so that wake-up is consumed.
    match mp.state.wake(mp.state.generation()) {
        Wake::Queue => {
            parker.reset();
            false
        }
        Wake::Permit | Wake::Gone => parker.sleep(None),
    }
}

/// Returns the number of voluntary context switches of the calling kernel thread. A system call,
/// 0.3 us.
pub(crate) fn voluntary_switches() -> u64 {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live rusage to be written. The call cannot fail.
    unsafe { kumihimo_arch::kernel::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw as u64
}

impl Instance {
    /// Recalls the sticky microprocesses if another address space on the board runs another level.
    /// Returns whether there are sticky microprocesses and other address spaces. Called by the
    /// timekeeper.
    pub(crate) fn recall_sticky_if_levels_differ(&self) -> bool {
        if self.sticky.now.load(Ordering::Relaxed) == 0 || crate::process::board::others() == 0 {
            return false;
        }
        if self.has_levels() {
            self.recall_sticky();
        }
        true
    }

    /// Recalls all sticky microprocesses, because levels differ from now on. Each takes a VP before
    /// it continues in its own code, or when it next enters the runtime if it cannot wait in a
    /// signal handler.
    pub(crate) fn recall_sticky(&self) {
        if self.sticky.now.load(Ordering::SeqCst) == 0 {
            return;
        }
        for (index, slot) in (1..).zip(self.kernel.slots()) {
            let is_without = !slot.has_vp() && thread_place::has_microprocess(slot);
            if is_without && slot.tid.load(Ordering::Relaxed) != 0 {
                self.kernel.call_back(index);
            }
        }
    }
}
