//! Sections in which no handler of the program runs, and the handling of signals at their end.
//!
//! A handler may call sem_post(3) and other functions of this library, and may leave by
//! siglongjmp(3). So none runs while this library holds a lock, or is in one of its lists. What
//! arrives meanwhile waits in the queue of the thread ([`crate::signal::entry`]).

use std::sync::atomic::Ordering;

use kumihimo_runtime::signals::{interrupts_program, is_on_runtimes_thread};

use crate::real::libc;
use crate::signal::action::{self, Disposition};
use crate::signal::kick::kick;
use crate::signal::mask;
use crate::signal::set::bit;
use crate::signal::thread::Signals;
use crate::thread::record::{RECORD, own_signals};

/// While it lives, no handler runs in the calling thread. Sections nest.
pub(crate) struct Section(());

impl Section {
    #[inline]
    pub(crate) fn enter() -> Section {
        let own = own_signals();
        own.depth.set(own.depth.get() + 1);
        Section(())
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        let own = own_signals();
        own.depth.set(own.depth.get() - 1);
        look(own);
    }
}

/// Runs `f` in a section.
#[inline]
pub(crate) fn within<R>(f: impl FnOnce() -> R) -> R {
    let _section = Section::enter();
    f()
}

#[inline]
fn is_scheduling_due() -> bool {
    RECORD.with(|record| record.scheduling.is_due())
}

/// Handles what waits, and applies what is due, if the calling thread may run handlers here.
#[inline]
pub(super) fn look(own: &Signals) {
    if (own.queue.pending() != 0 || is_scheduling_due()) && own.depth.get() == 0 {
        look_closely(own);
    }
}

#[cold]
fn look_closely(own: &Signals) {
    if !is_on_runtimes_thread() || interrupts_program() {
        // The function that the caller is in has set it.
        // SAFETY: errno belongs to the calling thread.
        let errno = unsafe { *libc::__errno_location() };
        RECORD.with(|record| record.scheduling.apply_due());
        handle_all(own);
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
}

/// Has signals looked for after each event of the runtime.
pub(crate) fn watch_events() {
    kumihimo_runtime::signals::set_after_events(|| look(own_signals()));
}

/// The mask of the calling thread.
fn current_mask(own: &Signals) -> u64 {
    match is_on_runtimes_thread() {
        true => own.mask.load(Ordering::SeqCst),
        false => mask::of_caller(),
    }
}

/// Whether the calling thread's wait has to end: for a signal, or, where that is a cancellation
/// point, for a cancellation.
#[inline]
pub(crate) fn is_interrupted(is_point: bool) -> bool {
    let own = own_signals();
    let pending = own.queue.pending();
    pending != 0 && pending & !current_mask(own) != 0 || is_point && own.cancel.is_due()
}

/// What a wait that was interrupted does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing was handled, or by handlers with SA_RESTART only.
    GoOn,
    /// Calls with a time-out, and those that never restart, fail with EINTR; signal(7).
    GoOnUnlessTimed,
    /// The call fails with EINTR.
    Fail,
}

impl Then {
    /// Whether the call fails with EINTR. `never_restarts`: it has a time-out, or is of a kind that
    /// fails in any case.
    pub(crate) fn ends(self, never_restarts: bool) -> bool {
        match self {
            Then::GoOn => false,
            Then::GoOnUnlessTimed => never_restarts,
            Then::Fail => true,
        }
    }
}

/// Handles what has interrupted a wait, in the midst of its section. No lock is held, and the
/// caller is in no list that a handler, or a jump out of it, could meet.
pub(crate) fn handle_interruption() -> Then {
    let own = own_signals();
    let (handled, interrupting) = (own.handled.get(), own.interrupting.get());
    let depth = own.depth.replace(0);
    look(own);
    own.depth.set(depth);
    if own.cancel.is_due() || own.interrupting.get() != interrupting {
        Then::Fail
    } else if own.handled.get() != handled {
        Then::GoOnUnlessTimed
    } else {
        Then::GoOn
    }
}

/// Handles the signals that wait and are open: each by a kick of the kernel thread on which the
/// caller runs, whose handler finds it in the queue.
///
/// Called at the end of each handler as well. There it leaves the rest to the call that has begun
/// that handler: the frames of handlers do not pile up while signals keep coming.
fn handle_all(own: &Signals) {
    if !own.is_handling.replace(true) {
        handle_each(own);
        own.is_handling.set(false);
    }
}

fn handle_each(own: &Signals) {
    /// A kick may arrive after the caller has moved to another kernel thread. And the program may
    /// block the signal in the kernel by a system call of its own: then it waits on in the queue.
    const ATTEMPTS: u32 = 1000;
    let mut attempts = 0;
    loop {
        let ready = own.queue.pending() & !current_mask(own);
        if ready == 0 || attempts == ATTEMPTS {
            return;
        }
        let signal = ready.trailing_zeros() as i32 + 1;
        if action::disposition(signal) == Disposition::Ignored {
            own.depth.set(own.depth.get() + 1);
            own.queue.take(signal);
            own.depth.set(own.depth.get() - 1);
            continue;
        }
        let before = own.handled.get();
        // SAFETY: takes nothing.
        kick(unsafe { libc::gettid() }.cast_unsigned(), signal);
        if own.queue.pending() & bit(signal) != 0 && own.handled.get() == before {
            attempts += 1;
        }
    }
}
