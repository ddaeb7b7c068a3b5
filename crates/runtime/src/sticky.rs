//! *Sticky*: a microprocess that waits in calls of which the runtime knows nothing (std's sockets
//! and locks, a C library) keeps its kernel thread and has no virtual processor.
//!
//! To tell a block and to hand the VP over twice costs more than ten times what the block itself
//! costs a kernel thread. So it is told once or twice. One that blocks again soon is then as any
//! kernel thread of the machine: nobody is told of its sleeps, it owns no event, and the kernel
//! shares the cores out to it. It never stalls another one, since no VP is under it.
//!
//! ```text
//!           unwrapped sleep               told, or found out: a spare has the VP
//!   ON A VP ───────────────> LENT ─────────────────────────────> LOST
//!      ^ ^                    │ back before the spare               │ back
//!      │ └────────────────────┤                                     │
//!      │  first block, or     │ second block within WITHIN of its   │
//!      │  levels differ:      │ own run time, or no spare is left   │
//!      │  waits for its turn  v                                     │
//!      └──────────────────── STICKY <───────────────────────────────┘
//!        it waits in the runtime and has hardly blocked elsewhere since; it ends; or levels
//!        come to differ, or it is suspended: then it is called back
//! ```
//! In the runtime it is what it was: it is woken, cancelled, suspended and shown as a microprocess.
//! A wait in the runtime blocks its kernel thread ([`crate::berth`]); a yield is one to the
//! kernel's choice. Its state costs nothing while it stays outside: the kernel has counted its
//! blocks there (voluntary switches, getrusage(2)), and the count is read where it waits in the
//! runtime.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::berth::Berth;
use crate::carrier::{Carrier, KernelThread, Standing, cpu_time, set_standing, standing};
use crate::handoff;
use crate::instance::Instance;
use crate::park::Wait;
use crate::record::Mp;
use crate::state::{Park, Wake};
use crate::tracing;

/// A second block makes it sticky if it comes within so many nanoseconds of its own run time.
const WITHIN: u64 = 10_000_000;
/// The weight of its blocks elsewhere when it becomes sticky, and the most that it has. Halved at
/// each wait in the runtime; at 0 it goes back. A change costs about what five waits on the kernel
/// thread cost more than on a VP.
const WEIGHT: u8 = 16;
/// So many times in a row it yields before it is asked whether it still blocks elsewhere.
const YIELDS: u8 = 64;

/// Why a microprocess is sticky.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// It blocked twice within [`WITHIN`].
    Often = 1,
    /// No kernel thread was left that could have taken its VP over, or handed it one.
    NoSpare = 2,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Often => "blocks often in calls that the runtime does not know",
            Reason::NoSpare => "no kernel thread was left",
        }
    }
}

/// What is kept of a microprocess. Cells are its own.
#[derive(Debug)]
pub(crate) struct Sticky {
    pub(crate) berth: Berth,
    /// [`Reason`]; 0: it is not. Anybody may read.
    reason: AtomicU8,
    weight: Cell<u8>,
    yields: Cell<u8>,
    /// It has blocked elsewhere since it was on a VP.
    has_blocked: Cell<bool>,
    /// CPU time of its kernel thread: at that block; while it is sticky, when it became so.
    since: Cell<u64>,
    /// Voluntary switches of its kernel thread as of the last look.
    switches: Cell<u64>,
}

impl Sticky {
    pub(crate) fn new() -> Sticky {
        Sticky {
            berth: Berth::new(),
            reason: AtomicU8::new(0),
            weight: Cell::new(0),
            yields: Cell::new(0),
            has_blocked: Cell::new(false),
            since: Cell::new(0),
            switches: Cell::new(0),
        }
    }

    /// Another life begins.
    pub(crate) fn begin(&self) {
        self.has_blocked.set(false);
    }

    /// Why it is sticky, if it is. By anybody; out of date at once.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self.reason.load(Ordering::Relaxed) {
            1 => Some(Reason::Often),
            2 => Some(Reason::NoSpare),
            _ => None,
        }
    }

    /// It has blocked elsewhere. True: not for the first time lately.
    fn blocked_again(&self, now: u64) -> bool {
        // On another kernel thread since, it is as if that was long ago.
        if self.has_blocked.replace(true) && now.wrapping_sub(self.since.get()) <= WITHIN {
            return true;
        }
        self.since.set(now);
        false
    }

    /// What it did since the last look: so many voluntary switches of its kernel thread, of which
    /// the last wait in the runtime was one. Whether it blocks elsewhere still; and how often it
    /// did.
    fn weigh(&self, now: u64) -> (bool, u64) {
        let since = now.saturating_sub(self.switches.replace(now)).saturating_sub(1);
        let weight = (u64::from(self.weight.get() / 2) + since).min(u64::from(WEIGHT)) as u8;
        self.weight.set(weight);
        (weight != 0, since)
    }
}

/// Of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Those that are sticky.
    pub(crate) now: AtomicUsize,
    /// Of these, those that wait in the runtime.
    pub(crate) waiting: AtomicUsize,
    /// Times that one became sticky, or ceased to be.
    pub(crate) changes: AtomicU64,
    /// Times that those that are sticky slept in the kernel elsewhere than in the runtime, as of
    /// their last waits there.
    pub(crate) sleeps: AtomicU64,
}

/// Decides whether `mp`, the caller or the microprocess that was interrupted on this kernel thread,
/// goes on without a VP after a block elsewhere, and why. Async-signal-safe.
pub(crate) fn reason(instance: &Instance, mp: &Mp) -> Option<Reason> {
    if !instance.settings.sticky || instance.levels_differ_for(mp) || mp.state.is_suspended() {
        return None;
    }
    let again = mp.sticky.blocked_again(cpu_time());
    if !instance.kernel.has_spare() {
        // A waiter for a turn might wait for a sleeping one.
        return Some(Reason::NoSpare);
    }
    again.then_some(Reason::Often)
}

/// Makes `mp`, the caller or the interrupted microprocess, sticky. Its kernel thread has no VP.
/// Async-signal-safe.
pub(crate) fn begin(instance: &Instance, kt: &KernelThread, mp: &Mp, reason: Reason) {
    debug_assert!(kt.vp.get().is_null());
    tracing::sticks(instance, kt, mp, true);
    let own = &mp.sticky;
    // One that only lacks a spare goes back as soon as it waits in the runtime.
    own.weight.set(if reason == Reason::Often { WEIGHT } else { 1 });
    own.yields.set(0);
    own.since.set(cpu_time());
    // As if a wait in the runtime had just been: the next look takes one off.
    own.switches.set(voluntary_switches().saturating_sub(1));
    own.reason.store(reason as u8, Ordering::Relaxed);
    instance.sticky.now.fetch_add(1, Ordering::SeqCst);
    instance.sticky.changes.fetch_add(1, Ordering::Relaxed);
    kt.keep_to_no_core();
    kt.events().detach();
    set_standing(Standing::Sticky);
    // A thread that makes levels differ counts the sticky ones afterwards: one of both sees the
    // other.
    if is_called_back(instance, mp) {
        instance.kernel.call_back(kt.events().index());
    }
}

/// It is sticky no longer, and has no VP yet.
pub(crate) fn end(instance: &Instance, kt: &KernelThread, mp: &Mp) {
    let own = &mp.sticky;
    let (_, sleeps) = own.weigh(voluntary_switches());
    instance.sticky.sleeps.fetch_add(sleeps, Ordering::Relaxed);
    // Its time there counts as if it had had a VP.
    let mut account = mp.account.get();
    account.ran_ns = account.ran_ns.saturating_add(cpu_time().saturating_sub(own.since.get()));
    mp.account.set(account);
    own.has_blocked.set(false);
    own.reason.store(0, Ordering::Relaxed);
    instance.sticky.now.fetch_sub(1, Ordering::Relaxed);
    instance.sticky.changes.fetch_add(1, Ordering::Relaxed);
    set_standing(Standing::OnVp);
    tracing::sticks(instance, kt, mp, false);
}

/// Whether it has to have a VP before it goes on in its own code.
pub(crate) fn is_called_back(instance: &Instance, mp: &Mp) -> bool {
    instance.has_levels() || mp.state.is_suspended()
}

/// The caller, if it is sticky.
pub(crate) fn current() -> Option<(&'static KernelThread, &'static Mp)> {
    if standing() != Standing::Sticky {
        return None;
    }
    // SAFETY: sticky: GS is set, and stays: without a VP the caller keeps its kernel thread, which
    // outlives the caller's use of this: it cannot end while a microprocess is bound to it.
    let (kt, mp) = unsafe { (KernelThread::here(), crate::carrier::running_here()) };
    mp.map(|mp| (kt, mp))
}

/// The caller is sticky: it waits for its turn on a VP. May switch.
#[cold]
pub(crate) fn leave(kt: &KernelThread, mp: &'static Mp) -> Carrier {
    end(kt.instance(), kt, mp);
    handoff::come_back()
}

/// The caller enters the runtime: if it is sticky and was called back, on a VP from here.
#[cold]
pub(crate) fn obey() -> Option<Carrier> {
    let (kt, mp) = current()?;
    is_called_back(kt.instance(), mp).then(|| leave(kt, mp))
}

/// The caller is about to wait in the runtime: on a VP, if it hardly blocks elsewhere any more.
#[cold]
pub(crate) fn leave_to_wait() -> Option<Carrier> {
    let (kt, mp) = current()?;
    let (blocks, sleeps) = mp.sticky.weigh(voluntary_switches());
    kt.instance().sticky.sleeps.fetch_add(sleeps, Ordering::Relaxed);
    mp.sticky.yields.set(0);
    (!blocks || is_called_back(kt.instance(), mp)).then(|| leave(kt, mp))
}

/// The caller yields. If it is sticky, and has done nothing else for long, on a VP from here.
#[cold]
pub(crate) fn leave_to_yield() -> Option<Carrier> {
    let (kt, mp) = current()?;
    let yields = mp.sticky.yields.get() + 1;
    mp.sticky.yields.set(yields);
    if yields >= YIELDS {
        return leave_to_wait();
    }
    is_called_back(kt.instance(), mp).then(|| leave(kt, mp))
}

/// Blocks the kernel thread of the caller, which is sticky, until it is woken, as
/// [`park`](crate::park::park) says. `why` is encoded.
pub(crate) fn park(
    kt: &KernelThread,
    mp: &'static Mp,
    (kind, object): (u8, usize),
    deadline: Option<Instant>,
) {
    if mp.state.take_permit() {
        return;
    }
    let bound =
        mp.scope_deadline().filter(|b| deadline.is_none_or(|d| *b < d) && !mp.state.is_cancelled());
    let until = bound.or(deadline);
    let timed = if until.is_some() { Wait::TIMED } else { 0 };
    mp.wait_kind.store(kind | timed, Ordering::Relaxed);
    mp.wait_object.store(object, Ordering::Relaxed);
    let waiting = &kt.instance().sticky.waiting;
    waiting.fetch_add(1, Ordering::Relaxed);
    sleep(mp, until);
    waiting.fetch_sub(1, Ordering::Relaxed);
    if bound.is_some_and(|bound| Instant::now() >= bound) {
        mp.state.cancel(mp.state.generation());
    }
}

fn sleep(mp: &Mp, until: Option<Instant>) {
    let berth = &mp.sticky.berth;
    berth.lie_down();
    if mp.state.commit_park() == Park::Permit {
        return berth.get_up();
    }
    if berth.sleep(until) {
        return;
    }
    // Its time is over. Woken by another one at this moment, or suspended, it is called.
    match mp.state.wake(mp.state.generation()) {
        Wake::Queue => berth.get_up(),
        Wake::Permit | Wake::Gone => {
            berth.sleep(None);
        }
    }
}

/// Of the calling kernel thread. A system call, 0.3 us.
fn voluntary_switches() -> u64 {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live one to be written. The call cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw as u64
}

impl Instance {
    /// Called by the timekeeper. Returns whether some are sticky while others are at the board. If
    /// those run another level, the sticky ones are called back.
    pub(crate) fn call_back_if_others_differ(&self) -> bool {
        if self.sticky.now.load(Ordering::Relaxed) == 0 || crate::board::others() == 0 {
            return false;
        }
        if self.has_levels() {
            self.call_the_sticky_back();
        }
        true
    }

    /// Levels differ from here on: those that are sticky take a VP before they go on in their own
    /// code. Where none can be waited for in a signal handler, when they next enter the runtime.
    pub(crate) fn call_the_sticky_back(&self) {
        if self.sticky.now.load(Ordering::SeqCst) == 0 {
            return;
        }
        for (index, slot) in (1..).zip(self.kernel.slots()) {
            let is_without = !slot.has_vp() && crate::dump::has_microprocess(slot);
            if is_without && slot.tid.load(Ordering::Relaxed) != 0 {
                self.kernel.call_back(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_block_within_the_time_counts() {
        let sticky = Sticky::new();
        assert!(!sticky.blocked_again(1_000));
        assert!(sticky.blocked_again(1_000 + WITHIN));
        assert!(!sticky.blocked_again(2_000 + 2 * WITHIN), "that was long ago");
        assert!(!sticky.blocked_again(5), "on another kernel thread");
        sticky.begin();
        assert!(!sticky.blocked_again(6), "in another life");
    }

    #[test]
    fn it_stays_as_long_as_it_blocks_elsewhere() {
        let sticky = Sticky::new();
        sticky.weight.set(WEIGHT);
        let mut switches = 0;
        let mut waits = |elsewhere: u64| {
            switches += 1 + elsewhere;
            sticky.weigh(switches)
        };
        for _ in 0..100 {
            assert_eq!(waits(1), (true, 1), "each wait in the runtime has one elsewhere beside it");
        }
        assert_eq!(waits(0), (true, 0));
        assert_eq!(waits(0), (false, 0), "half of one is nothing");
        sticky.weight.set(WEIGHT);
        let stays = (0..).take_while(|_| waits(0).0).count();
        assert_eq!(stays, 4);
        assert_eq!(waits(1_000).1, 1_000);
        assert_eq!(sticky.weight.get(), WEIGHT);
    }
}
