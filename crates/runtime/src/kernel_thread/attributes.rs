//! Application of a microprocess's attributes to the kernel thread that carries it.
//!
//! A kernel thread that runs no microprocess has the usual attributes, and blocks besides the
//! signals that a thread outside of the runtime has blocked since the start ([`hold_back`]): only
//! then can that thread, or one that inherits its mask, wait for them (sigwait(3)). The usual mask
//! alone would let the kernel choose a sleeping thread of the pool to handle them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kumihimo_arch::{kernel_attributes, signal_mask, tls};

use crate::kernel_thread::gs_record::{KernelThread, Standing, standing};
use crate::microprocess::attributes::{self, Attributes, SignalStack, USUAL};
use crate::microprocess::record::Mp;

/// Signals that threads outside of the runtime have blocked since its start.
static HELD_BACK: AtomicU64 = AtomicU64::new(0);
/// The version of the attributes of a kernel thread that runs no microprocess.
static IDLE_VERSION: AtomicU64 = AtomicU64::new(USUAL);
/// The round of renewals in progress or last made (upper half), and the number of kernel threads
/// that have answered in it.
static RENEWED: AtomicU64 = AtomicU64::new(0);
/// Whether a thread is in [`hold_back`].
static IS_RENEWING: AtomicBool = AtomicBool::new(false);
/// Whether a thread outside of the runtime may have unusual attributes.
static FOREIGN_CHANGED: AtomicBool = AtomicBool::new(false);

/// The version of the attributes of a kernel thread that runs no microprocess.
#[inline(always)]
pub(crate) fn idle_version() -> u64 {
    IDLE_VERSION.load(Ordering::Relaxed)
}

/// As the kernel has it: a thread of the runtime blocks SIGBUS no more than SIGKILL.
fn idle_mask() -> u64 {
    (attributes::usual().signal_mask | HELD_BACK.load(Ordering::SeqCst)) & signal_mask::BLOCKABLE
}

impl KernelThread {
    /// Gives the kernel thread the attributes of the microprocess that runs here, `mp`, or those of
    /// a thread that runs none. Up to five system calls. Async-signal-safe.
    ///
    /// The caller runs on the stack of that microprocess, because the kernel does not replace a
    /// signal stack that is in use (sigaltstack(2)).
    #[cold]
    pub(crate) fn apply_attributes(&self, mp: Option<&Mp>) {
        let applied = &self.applied;
        applied.is_changing.set(true);
        self.stop_cpu_clock();
        loop {
            let (version, wanted) = match mp {
                Some(mp) => (mp.attributes_version.get(), mp.attributes()),
                None => {
                    // Before the mask: `hold_back` stores them in the other order.
                    let version = IDLE_VERSION.load(Ordering::SeqCst);
                    (version, Attributes { signal_mask: idle_mask(), ..attributes::usual() })
                }
            };
            self.change_to(&wanted);
            applied.version.set(version);
            // A renewal that has arrived meanwhile has changed nothing.
            if mp.is_some() || IDLE_VERSION.load(Ordering::SeqCst) == version {
                break;
            }
        }
        applied.is_changing.set(false);
        if let Some(mp) = mp.filter(|mp| mp.attributes().has_cpu_clock) {
            self.start_cpu_clock(mp);
        }
    }

    fn change_to(&self, wanted: &Attributes) {
        let before = self.applied.values.replace(*wanted);
        if wanted.nice != before.nice && kernel_attributes::set_nice(wanted.nice).is_err() {
            // The process has dropped the right to lower the value since `nice` found it. The
            // kernel thread keeps its value, and the next switch tries again.
            let values = Attributes { nice: before.nice, ..*wanted };
            self.applied.values.set(values);
        }
        if wanted.timer_slack != before.timer_slack {
            let is_usual = wanted.timer_slack == attributes::usual().timer_slack;
            kernel_attributes::set_timer_slack(if is_usual { 1 } else { wanted.timer_slack });
        }
        if wanted.signal_stack != before.signal_stack {
            self.change_signal_stack(wanted.signal_stack);
        }
        // Last, because a signal that this unblocks is handled at once.
        signal_mask::set(wanted.signal_mask);
    }

    /// Sets the signal stack, or the thread's own one.
    fn change_signal_stack(&self, wanted: Option<SignalStack>) {
        let own = self.applied.own_signal_stack.get();
        let to = wanted.or(own).map(SignalStack::to_kernel);
        if let Ok(before) = kernel_attributes::swap_signal_stack(to.as_ref())
            && own.is_none()
        {
            self.applied.own_signal_stack.set(Some(SignalStack::of(before)));
        }
    }

    /// Sets the signal stack of the running microprocess, the caller.
    ///
    /// # Errors
    /// The kernel's error; nothing has changed then.
    pub(crate) fn set_signal_stack(
        &self,
        mp: &Mp,
        new: Option<SignalStack>,
    ) -> std::io::Result<()> {
        let values = Attributes { signal_stack: new, ..mp.attributes() };
        let own = self.applied.own_signal_stack.get();
        let to = new.or(own).map(SignalStack::to_kernel);
        let before = kernel_attributes::swap_signal_stack(to.as_ref())?;
        if own.is_none() {
            self.applied.own_signal_stack.set(Some(SignalStack::of(before)));
        }
        self.note(mp, values);
        Ok(())
    }

    /// Sets nice value and timer slack of the running microprocess, the caller.
    ///
    /// # Errors
    /// The kernel's error for the nice value; nothing has changed then.
    pub(crate) fn set_scheduling(&self, mp: &Mp, values: Attributes) -> std::io::Result<()> {
        if values.nice != mp.attributes().nice {
            kernel_attributes::set_nice(values.nice)?;
        }
        if values.timer_slack != mp.attributes().timer_slack {
            let is_usual = values.timer_slack == attributes::usual().timer_slack;
            kernel_attributes::set_timer_slack(if is_usual { 1 } else { values.timer_slack });
        }
        self.note(mp, values);
        Ok(())
    }

    /// Records in `mp`, the caller, and in the thread that both have `values`.
    fn note(&self, mp: &Mp, values: Attributes) {
        let was_known = self.applied.version.get() == mp.attributes_version.get();
        mp.set_attributes(values);
        self.applied.values.set(values);
        if was_known {
            self.applied.version.set(mp.attributes_version.get());
        }
    }

    /// Records the signal mask of `mp`, the caller, which sets it afterwards. In between it may be
    /// moved to another kernel thread, so the thread's mask counts as unknown until the next
    /// switch.
    pub(crate) fn note_signal_mask(&self, mp: &Mp, signal_mask: u64) {
        let values = Attributes { signal_mask, ..mp.attributes() };
        mp.set_attributes(values);
        self.applied.values.set(values);
        self.applied.version.set(attributes::UNKNOWN);
    }

    /// Returns the CPU time of `mp`, the caller, in nanoseconds. The first call begins the count.
    pub(crate) fn cpu_time_of(&self, mp: &Mp) -> u64 {
        if self.applied.counts_for.get() != std::ptr::from_ref(mp) {
            if !mp.attributes().has_cpu_clock {
                self.note(mp, Attributes { has_cpu_clock: true, ..mp.attributes() });
                mp.own_attributes.cpu_clock.reset();
            }
            self.start_cpu_clock(mp);
        }
        mp.own_attributes.cpu_clock.own(kernel_attributes::cpu_time())
    }

    fn start_cpu_clock(&self, mp: &Mp) {
        mp.own_attributes.cpu_clock.start(self.tid(), kernel_attributes::cpu_time());
        self.applied.counts_for.set(mp);
    }

    fn stop_cpu_clock(&self) {
        let mp = self.applied.counts_for.replace(std::ptr::null());
        // SAFETY: null or a record, which lives for ever. The thread still holds the microprocess:
        // a switch publishes it only after it has applied the attributes of the next one.
        if let Some(mp) = unsafe { mp.as_ref() } {
            mp.own_attributes.cpu_clock.stop(kernel_attributes::cpu_time());
        }
    }
}

/// Returns the attributes that a microprocess inherits from the calling kernel thread, which is not
/// of the runtime, if they are unusual.
#[inline]
pub(crate) fn of_foreign_parent() -> Option<Attributes> {
    if !FOREIGN_CHANGED.load(Ordering::Relaxed) {
        return None;
    }
    Some(Attributes::of_this_kernel_thread()).filter(|own| *own != attributes::usual())
}

/// Whether the process may lower a nice value to the usual one: by a capability, or within the
/// limit RLIMIT_NICE (getrlimit(2)).
pub(crate) fn may_lower_nice() -> bool {
    kernel_attributes::may_lower_nice_to(attributes::usual().nice)
}

/// Notes that a thread outside of the runtime may have unusual attributes.
pub(crate) fn note_foreign_change() {
    FOREIGN_CHANGED.store(true, Ordering::Relaxed);
}

/// Keeps the runtime's kernel threads, unless they run a microprocess, from handling the signals in
/// `mask`, which the caller, a thread outside of the runtime, has blocked. `threads` lists the
/// runtime's kernel threads. Blocks the caller until those have set their masks, because a signal
/// may be sent right after.
pub(crate) fn hold_back<I: Iterator<Item = u32>>(mask: u64, threads: impl Fn() -> I) {
    /// Number of yields after which all are asked once more. A thread may have ended, or was in
    /// another signal handler.
    const PATIENCE: u32 = 1000;
    let mask = mask & signal_mask::BLOCKABLE;
    // A handler on this thread that changes its mask would wait for itself.
    signal_mask::while_blocked(|| {
        while IS_RENEWING.swap(true, Ordering::SeqCst) {
            std::thread::yield_now();
        }
        if mask & !idle_mask() != 0 {
            HELD_BACK.fetch_or(mask, Ordering::SeqCst);
            IDLE_VERSION.store(attributes::new_version(), Ordering::SeqCst);
            while !all_renew(PATIENCE, &threads) {}
        }
        IS_RENEWING.store(false, Ordering::SeqCst);
    });
}

/// Asks all kernel threads to renew their masks. Returns whether all have answered within that many
/// yields.
fn all_renew<I: Iterator<Item = u32>>(yields: u32, threads: &impl Fn() -> I) -> bool {
    let round = (RENEWED.load(Ordering::SeqCst) >> 32) as u32;
    let round = round.wrapping_add(1);
    let begun = u64::from(round) << 32;
    RENEWED.store(begun, Ordering::SeqCst);
    let asked = threads().filter(|tid| tls::setxid::renew_mask(*tid, round).is_ok()).count();
    (0..yields).any(|_| {
        let have_all = RENEWED.load(Ordering::SeqCst) - begun >= asked as u64;
        if !have_all {
            std::thread::yield_now();
        }
        have_all
    })
}

/// Answers a renewal on a kernel thread of the runtime: returns the mask for the interrupted code,
/// which has `mask`, unless the thread runs a microprocess. Called in a signal handler.
pub(crate) fn renewed_mask(round: u32, mask: u64) -> Option<u64> {
    let mut renewed = None;
    if standing() != Standing::Foreign {
        // SAFETY: not foreign: GS is set, and a signal handler stays on its kernel thread.
        let applied = unsafe { &KernelThread::here().applied };
        // SAFETY: as above.
        let is_idle = unsafe { KernelThread::here() }.current.get().is_null();
        if is_idle && !applied.is_changing.get() {
            let values = applied.values.get();
            if (values.signal_mask ^ mask) & signal_mask::BLOCKABLE != 0 {
                // Another handler was interrupted, or a section that blocks all signals, whose end
                // would restore the earlier mask. Not counted, so `hold_back` asks again.
                return None;
            }
            applied.version.set(IDLE_VERSION.load(Ordering::SeqCst));
            applied.values.set(Attributes { signal_mask: idle_mask(), ..values });
            renewed = Some(idle_mask());
        }
    }
    // An answer to an earlier round comes too late to be counted.
    let _ = RENEWED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
        (word >> 32 == u64::from(round)).then_some(word + 1)
    });
    renewed
}
