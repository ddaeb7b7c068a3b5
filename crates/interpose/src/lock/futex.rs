//! futex(2) through `syscall`: the locks of Rust, of the JVM and of InnoDB wait there.
//!
//! A wait at a private futex is one in the lot. A wake-up serves the lot first, and then those that
//! wait in the kernel: threads of code that makes the system call itself.

use std::ffi::{c_int, c_long};
use std::time::Duration;

#[cfg(not(loom))]
use crate::descriptor;
use crate::failed;
use crate::lock::lot::{self, End, Kind, Waiting};
use crate::loom::atomic::{Ordering, fence};
use crate::loom::park::{self, Wait};
use crate::loom::{libc, read};
use crate::signal::section::{Section, handle_interruption};
#[cfg(not(loom))]
use crate::signal::send;
#[cfg(not(loom))]
use crate::start::phase;
#[cfg(not(loom))]
use crate::thread::identity;
use crate::time::deadline::{Deadline, check};

/// Replaces syscall(2). Variadic in C: see `arch`, whose definition makes all calls but these.
#[cfg(not(loom))]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's promise. `libc::syscall` is the definition of `arch`.
    unsafe {
        if phase::has_started() {
            match number {
                libc::SYS_futex
                    if b as c_int & libc::FUTEX_PRIVATE_FLAG != 0 && park::is_in_runtime() =>
                {
                    // A lock of std that the program uses in a section without events has waiters
                    // in the lot.
                    if matches!(b as c_int & COMMAND, libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET) {
                        lot::post(a);
                    }
                }
                libc::SYS_futex if b as c_int & libc::FUTEX_PRIVATE_FLAG != 0 => {
                    if let Some(done) = futex(a, b as c_int, c as u32, d, e, f as u32) {
                        return done;
                    }
                }
                libc::SYS_gettid => return c_long::from(identity::gettid()),
                libc::SYS_close_range => {
                    let done = descriptor::open::close_range(a as u32, b as u32, c as c_int);
                    return c_long::from(done);
                }
                libc::SYS_tgkill => {
                    let signal = c as c_int;
                    return c_long::from(send::kumi_interpose_tgkill(a as _, b as _, signal));
                }
                libc::SYS_tkill => {
                    return c_long::from(send::kumi_interpose_tgkill(-1, a as _, b as c_int));
                }
                libc::SYS_sched_yield => {
                    return c_long::from(identity::kumi_interpose_sched_yield());
                }
                libc::SYS_nanosleep => {
                    return c_long::from(crate::time::sleep::kumi_interpose_nanosleep(
                        std::ptr::with_exposed_provenance(a),
                        std::ptr::with_exposed_provenance_mut(b),
                    ));
                }
                libc::SYS_clock_nanosleep => {
                    let error = crate::time::sleep::kumi_interpose_clock_nanosleep(
                        a as libc::clockid_t,
                        b as c_int,
                        std::ptr::with_exposed_provenance(c),
                        std::ptr::with_exposed_provenance_mut(d),
                    );
                    return c_long::from(if error == 0 { 0 } else { failed(error) });
                }
                _ => {}
            }
        }
        kumihimo_arch::program::syscall(number, a, b, c, d, e, f)
    }
}

/// The operation without its flags.
const COMMAND: c_int = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);

/// All bits of `FUTEX_WAIT_BITSET`.
const ANY: u32 = u32::MAX;

/// Handles the operation, or returns `None` if the kernel must.
///
/// # Safety
/// The requirements of futex(2).
pub(crate) unsafe fn futex(
    word: usize,
    operation: c_int,
    value: u32,
    time: usize,
    other: usize,
    bits: u32,
) -> Option<c_long> {
    let is_realtime = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    let command = operation & COMMAND;
    // SAFETY: the caller's promise.
    unsafe {
        match command {
            libc::FUTEX_WAIT => wait(word, value, ANY, || relative(time)),
            libc::FUTEX_WAIT_BITSET if bits != 0 => {
                let clock = if is_realtime { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
                wait(word, value, bits, || absolute(clock, time))
            }
            libc::FUTEX_WAKE => Some(wake(word, value, ANY)),
            libc::FUTEX_WAKE_BITSET if bits != 0 => Some(wake(word, value, bits)),
            libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
                requeue(word, command, value, time, other, bits)
            }
            libc::FUTEX_WAKE_OP => {
                let woken = real(word, libc::FUTEX_WAKE_OP, value, time, other, bits);
                if woken >= 0 {
                    // The kernel has changed the second word, and knows whether to wake there; a
                    // superfluous wake-up is allowed.
                    lot::wake(word, value as usize, is_futex(ANY));
                    lot::wake(other, time, is_futex(ANY));
                }
                Some(woken)
            }
            _ => None,
        }
    }
}

fn is_futex(bits: u32) -> impl FnMut(Kind) -> bool {
    move |kind| matches!(kind, Kind::Futex(own) if own & bits != 0)
}

unsafe fn real(
    word: usize,
    command: c_int,
    value: u32,
    time: usize,
    other: usize,
    bits: u32,
) -> c_long {
    let operation = command | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value as usize, time, other, bits) }
}

unsafe fn wait(
    word: usize,
    value: u32,
    bits: u32,
    deadline: impl FnOnce() -> Result<Deadline, c_int>,
) -> Option<c_long> {
    if !park::may_switch() || word == 0 || !word.is_multiple_of(4) {
        return None;
    }
    let deadline = match deadline() {
        Ok(deadline) => deadline,
        Err(error) => return Some(c_long::from(failed(error))),
    };
    let at = std::ptr::with_exposed_provenance::<u32>(word);
    // SAFETY: the caller's promise: a readable word. Read before the lock is held, so that a bad
    // address faults here.
    if unsafe { read(at) } != value {
        return Some(c_long::from(failed(libc::EAGAIN)));
    }
    let _section = Section::enter();
    loop {
        // SAFETY: as above.
        let must_wait = |_: &Waiting<'_>| unsafe { read(at) == value };
        let kind = Kind::Futex(bits);
        return Some(
            match lot::wait(word, kind, Wait::Futex(word), deadline.instant(), must_wait) {
                End::Woken => 0,
                End::NotNeeded => c_long::from(failed(libc::EAGAIN)),
                End::TimedOut if deadline.has_passed() => c_long::from(failed(libc::ETIMEDOUT)),
                // The clock was set back.
                End::TimedOut => continue,
                End::Interrupted if handle_interruption().ends(deadline.is_some()) => {
                    c_long::from(failed(libc::EINTR))
                }
                End::Interrupted => continue,
            },
        );
    }
}

unsafe fn wake(word: usize, value: u32, bits: u32) -> c_long {
    // As the kernel: a count that is no positive int wakes one (kernel/futex/waitwake.c).
    let most = usize::try_from(value.cast_signed()).unwrap_or(1).max(1);
    // The program has changed the word by whatever instruction it likes.
    fence(Ordering::SeqCst);
    let woken = lot::wake(word, most, is_futex(bits));
    if woken >= most {
        return woken as c_long;
    }
    let left = (most - woken) as u32;
    // SAFETY: the caller's promise.
    let more = unsafe { real(word, libc::FUTEX_WAKE_BITSET, left, 0, 0, bits) };
    if more < 0 { more } else { woken as c_long + more }
}

unsafe fn requeue(
    word: usize,
    command: c_int,
    wakes: u32,
    moves: usize,
    other: usize,
    expected: u32,
) -> Option<c_long> {
    // As in `wake`.
    fence(Ordering::SeqCst);
    if !lot::may_wait(word) {
        return None;
    }
    let at = std::ptr::with_exposed_provenance::<u32>(word);
    // SAFETY: the caller's promise.
    if command == libc::FUTEX_CMP_REQUEUE && unsafe { read(at) } != expected {
        return Some(c_long::from(failed(libc::EAGAIN)));
    }
    let moves = usize::try_from(moves as c_int).unwrap_or(0);
    let woken = lot::wake(word, wakes as usize, is_futex(ANY));
    let moved = lot::requeue(word, other, moves, is_futex(ANY));
    let wakes = wakes.saturating_sub(woken as u32);
    // SAFETY: as above.
    let more = unsafe { real(word, libc::FUTEX_REQUEUE, wakes, moves - moved, other, 0) };
    let own = if command == libc::FUTEX_CMP_REQUEUE { woken + moved } else { woken };
    Some(if more < 0 { more } else { own as c_long + more })
}

/// The deadline of `FUTEX_WAIT`: a time from now on.
unsafe fn relative(time: usize) -> Result<Deadline, c_int> {
    if time == 0 {
        return Ok(Deadline::Never);
    }
    // SAFETY: the caller's promise: a readable time.
    let time = unsafe { *std::ptr::with_exposed_provenance::<libc::timespec>(time) };
    check(&time)?;
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    let length = Duration::new(seconds, time.tv_nsec as u32);
    Ok(Deadline::after(length))
}

/// The deadline of `FUTEX_WAIT_BITSET`.
unsafe fn absolute(clock: libc::clockid_t, at: usize) -> Result<Deadline, c_int> {
    match at {
        0 => Ok(Deadline::Never),
        // SAFETY: the caller's promise: a readable time.
        at => unsafe { Deadline::at(clock, std::ptr::with_exposed_provenance(at)) },
    }
}
