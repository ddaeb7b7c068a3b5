//! A signal that requests a dump of all microprocesses.
//!
//! The handler may interrupt any code, including malloc or a switch, so it only executes one
//! write(2) to an eventfd. A dedicated kernel thread waits there and writes the dump
//! ([`crate::observe::dump`]). It needs no VP, because all VPs may be busy or waiting.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use kumihimo_arch::descriptor::Descriptor;
use kumihimo_arch::signal_mask;
use kumihimo_events::wakeup::add_to_eventfd;

use crate::kernel_thread::fork;
use crate::observe::dump;

/// The eventfd, or -1 before it is created. It stays open for the lifetime of the process.
static CALL: AtomicI32 = AtomicI32::new(-1);
/// The signal whose handler is installed.
static INSTALLED: Mutex<Option<i32>> = Mutex::new(None);

/// Installs the handler for the signal that the program, or else the environment, specifies.
///
/// # Errors
/// `InvalidInput` if there is no such signal, if it is not allowed, or if another dump signal was
/// installed before; `AlreadyExists` if the signal has a handler. Otherwise the error of the
/// kernel.
pub(crate) fn prepare(asked: Option<i32>) -> io::Result<()> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let signal = match asked.or(kumihimo_config::get().dump_signal) {
        Some(signal) if kumihimo_config::is_dump_signal(signal) => signal,
        Some(signal) => {
            return Err(invalid(format!(
                "dump_signal({signal}): expected one of {}",
                kumihimo_config::DUMP_SIGNALS
            )));
        }
        None => return Ok(()),
    };
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    match *installed {
        Some(before) if before == signal => Ok(()),
        Some(before) => Err(invalid(format!(
            "the dump signal of this process is already {before} and cannot change to {signal}"
        ))),
        None => {
            install(signal)?;
            *installed = Some(signal);
            Ok(())
        }
    }
}

fn install(signal: i32) -> io::Result<()> {
    // SAFETY: all zeroes are a valid sigaction, SIG_DFL.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only queries, into a live structure.
    if unsafe { kumihimo_arch::kernel::sigaction(signal, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN {
        let text =
            format!("signal {signal} has a handler already: choose another signal for dumps");
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // SAFETY: no pointers.
    let fd = unsafe { kumihimo_arch::kernel::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor without another owner.
    let call = unsafe { Descriptor::from_raw_fd(fd) };
    let calls = Descriptor::from(call.as_fd().try_clone_to_owned()?);
    let builder = std::thread::Builder::new().name("kumihimo-dump".into()).stack_size(2 << 20);
    signal_mask::spawn_blocked(builder, move || {
        // Several requests meanwhile are served as one.
        while next(&calls) {
            dump::to_standard_error();
        }
    })?;
    CALL.store(call.as_raw_fd(), Ordering::Release);
    std::mem::forget(call);
    let mut action = before;
    action.sa_sigaction = on_signal as extern "C" fn(i32) as *const () as usize;
    // On the alternate stack, because the stack of a microprocess may be small or full.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: a live structure with an async-signal-safe handler and an empty mask.
    unsafe { libc::sigemptyset(&raw mut action.sa_mask) };
    // SAFETY: as above.
    if unsafe { kumihimo_arch::kernel::sigaction(signal, &raw const action, std::ptr::null_mut()) }
        != 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits for a request. False if the program has closed the eventfd: then there are no more.
fn next(calls: &Descriptor) -> bool {
    let mut count = 0u64;
    // SAFETY: 8 live bytes.
    let read =
        unsafe { kumihimo_arch::kernel::read(calls.as_raw_fd(), (&raw mut count).cast(), 8) };
    read == 8 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// Async-signal-safe: two atomic loads and system calls, with errno preserved.
extern "C" fn on_signal(_: i32) {
    // A forked child shares the eventfd with its parent, and has no microprocesses to dump.
    if fork::is_child() {
        return;
    }
    // SAFETY: the calling thread's errno; no switch happens in between.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; the eventfd is never closed by the runtime.
    unsafe {
        let before = *errno;
        add_to_eventfd(BorrowedFd::borrow_raw(CALL.load(Ordering::Acquire)));
        *errno = before;
    }
}
