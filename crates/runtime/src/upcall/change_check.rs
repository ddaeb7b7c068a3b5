//! Check of debug builds that a microprocess leaves its kernel thread as it found it.
//!
//! A system call instruction in the program's own code can change credentials, filters and the
//! like without the runtime's notice. Where a microprocess enters the runtime and may switch, debug
//! builds compare the kernel thread with what is known of it. If it has changed, the microprocess
//! is bound, as if the C library's function had been called, and a message says so. A changed
//! signal mask is noted, as by pthread_sigmask(3).
//!
//! A build without debug assertions has no check: it would cost some fifteen system calls a switch.

use std::io::Write;

use kumihimo_arch::signal_mask;

use crate::kernel_thread::gs_record::KernelThread;
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::upcall::bind;

/// Binds the running microprocess if it has changed the kernel thread of `carrier`, in a debug
/// build. Returns the carrier otherwise.
#[inline(always)]
pub(crate) fn bind_if_changed(carrier: Carrier) -> Option<Carrier> {
    if cfg!(debug_assertions) { compare(carrier) } else { Some(carrier) }
}

fn compare(carrier: Carrier) -> Option<Carrier> {
    let kt: *const KernelThread = carrier.kernel_thread();
    // SAFETY: the caller's kernel thread, where it stays until the carrier is dropped, and beyond
    // if it is bound.
    let kt = unsafe { &*kt };
    let Some(mp) = carrier.running() else { return Some(carrier) };
    if !kt.known.is_compared() || !carrier.has_vp() {
        return Some(carrier);
    }
    note_signal_mask(kt, mp);
    let Some(difference) = kt.known.changed() else { return Some(carrier) };
    let what = difference.what;
    if bind::stay_after_change(kt, mp, carrier) {
        say_bound(mp, what);
    } else {
        say(mp, what, "no other thread is there to run the other microprocesses: aborting");
        std::process::abort();
    }
    None
}

/// As [`bind_if_changed`] for `mp`, the caller, which has lost its VP, before it leaves its kernel
/// thread `kt`. Masked. Returns what has changed; the caller then becomes sticky, and
/// [reports](say_bound) it.
pub(crate) fn bind_without_vp(kt: &KernelThread, mp: &Mp) -> Option<&'static str> {
    if !cfg!(debug_assertions) || !kt.known.is_compared() || mp.sticky.is_bound.get() {
        return None;
    }
    note_signal_mask(kt, mp);
    let difference = kt.known.changed()?;
    bind::mark(mp);
    Some(difference.what)
}

/// Reports that `mp` keeps its kernel thread, of which it has changed `what`.
pub(crate) fn say_bound(mp: &Mp, what: &str) {
    say(mp, what, "keeps that thread from here on");
}

fn note_signal_mask(kt: &KernelThread, mp: &Mp) {
    let own = mp.attributes().signal_mask;
    // What the kernel thread never blocks counts as blocked if the microprocess blocked it.
    let mask = signal_mask::current() | own & signal_mask::NEVER_BLOCKED;
    if mask != own {
        kt.note_signal_mask(mp, mask);
    }
}

#[cold]
fn say(mp: &Mp, what: &str, then: &str) {
    let mut name = [0; 16];
    let length = mp.thread_name(&mut name);
    let text = format!(
        "kumihimo: microprocess {} ({}) has changed the {what} of its kernel thread by a system \
         call of its own, and {then}; call thread::bind before such a change, because builds \
         without debug assertions do not notice it\n",
        mp.id(),
        String::from_utf8_lossy(&name[..length]),
    );
    // SAFETY: descriptor 2, which is not closed at the end. Not through std's lock, which the
    // interrupted code may hold.
    let mut stderr = unsafe {
        std::mem::ManuallyDrop::new(<std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(2))
    };
    let _ = stderr.write_all(text.as_bytes());
}
