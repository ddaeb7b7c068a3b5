//! A signal that asks for a dump of all microprocesses.
//!
//! The handler may come anywhere, in the middle of malloc or of a switch, so it does one write(2)
//! to an eventfd. A kernel thread of its own waits there and writes the dump
//! ([`crate::observe::dump`]): it needs no virtual processor, which may all be busy or waiting.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kernel_thread::fork;
use crate::observe::dump;

/// The eventfd; -1: none yet. It stays open as long as the process lives.
static CALL: AtomicI32 = AtomicI32::new(-1);
/// The signal whose handler is installed.
static INSTALLED: Mutex<Option<i32>> = Mutex::new(None);

/// Installs what the program, or else the environment, asks for.
///
/// # Errors
/// `InvalidInput`: no such signal, one that cannot be had, another one than before;
/// `AlreadyExists`: it has a handler. Else what the kernel says.
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
            "the dump signal of this process is {before} already, not {signal}"
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
    // SAFETY: asks only, into a live structure.
    if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN {
        let text = format!("signal {signal} has a handler already: another one for dumps, please");
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let call = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut calls = std::fs::File::from(call.try_clone()?);
    std::thread::Builder::new().name("kumihimo-dump".into()).stack_size(2 << 20).spawn(
        move || {
            // Several calls meanwhile are one.
            while calls.read_exact(&mut [0; 8]).is_ok() {
                dump::to_standard_error();
            }
        },
    )?;
    CALL.store(call.as_raw_fd(), Ordering::Release);
    std::mem::forget(call);
    let mut action = before;
    action.sa_sigaction = on_signal as extern "C" fn(i32) as *const () as usize;
    // On the alternate stack: a microprocess's may be small or full.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: a live structure with an async-signal-safe handler and an empty mask.
    unsafe { libc::sigemptyset(&raw mut action.sa_mask) };
    // SAFETY: as above.
    if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Async-signal-safe: two atomic loads, a write(2), errno as it was.
extern "C" fn on_signal(_: i32) {
    // A forked child shares the eventfd with its parent, and has nobody to dump.
    if fork::is_child() {
        return;
    }
    // SAFETY: the calling thread's errno; no switch comes in between.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; 8 live bytes for the write, whose failure means that it is readable anyway.
    unsafe {
        let before = *errno;
        libc::write(CALL.load(Ordering::Acquire), (&raw const ONE).cast(), 8);
        *errno = before;
    }
}

static ONE: u64 = 1;
