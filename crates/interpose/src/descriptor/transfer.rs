//! Attempts on sockets, and waits between them.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumihimo_arch::system_call;
use kumihimo_runtime::readiness::{Interest, Source};

use crate::descriptor::table::Place;

/// Whether any socket may have a time-out (SO_RCVTIMEO, SO_SNDTIMEO): the program has set one.
pub(super) static HAS_TIMEOUTS: AtomicBool = AtomicBool::new(false);

const AGAIN: isize = -(libc::EAGAIN as isize);

/// Whether the program wants calls on this file to wait.
fn waits(fd: c_int) -> bool {
    // SAFETY: integers.
    let flags =
        unsafe { system_call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) };
    flags >= 0 && flags as c_int & libc::O_NONBLOCK == 0
}

/// When a call that begins now times out.
fn deadline(fd: c_int, interest: Interest) -> Option<Instant> {
    if !HAS_TIMEOUTS.load(Ordering::Relaxed) {
        return None;
    }
    let option = match interest {
        Interest::Read => libc::SO_RCVTIMEO,
        Interest::Write => libc::SO_SNDTIMEO,
    };
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut bytes = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: a live structure and its size.
    let done = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, option, (&raw mut time).cast(), &raw mut bytes)
    };
    let time = Duration::new(time.tv_sec.cast_unsigned(), time.tv_usec as u32 * 1000);
    if done != 0 || time.is_zero() { None } else { Instant::now().checked_add(time) }
}

/// How often a source is looked up: a call that never waits does so once.
struct Attempts<'a> {
    fd: c_int,
    place: &'a Place,
    interest: Interest,
    source: Option<Arc<Source>>,
    /// The time-out of the call, once it was asked for.
    deadline: Option<Option<Instant>>,
}

/// Calls `attempt`, which does not wait, until it returns anything but `EAGAIN`, and waits in
/// between. `is_drained` says of a result that the next attempt would have to wait. Returns the
/// kernel's result, and `EAGAIN` if the program wants no wait, or at the time-out of the socket.
pub(super) fn repeat(
    fd: c_int,
    place: &Place,
    interest: Interest,
    may_wait: bool,
    mut attempt: impl FnMut() -> isize,
    is_drained: impl Fn(isize) -> bool,
) -> isize {
    let mut attempts = Attempts { fd, place, interest, source: place.source(), deadline: None };
    loop {
        let seen = attempts.source.as_ref().map(|source| source.seen(interest));
        // After a read that emptied the buffer nothing has come: the attempt would be in vain. Not
        // for a call that must not wait, which asks the kernel in any case.
        let is_empty = may_wait
            && attempts.source.as_ref().is_some_and(|source| !source.likely_ready(interest));
        if !is_empty {
            let result = attempt();
            if result != AGAIN {
                if let (Some(source), Some(seen)) = (&attempts.source, seen)
                    && is_drained(result)
                {
                    source.drained(interest, seen);
                }
                return result;
            }
        }
        if !may_wait || !waits(fd) {
            // A poll(2) that follows need not look.
            if let (Some(source), Some(seen), false) = (&attempts.source, seen, is_empty) {
                source.drained(interest, seen);
            }
            if is_empty {
                // The file does not wait (any more), so the program gets the kernel's answer.
                return attempt();
            }
            return AGAIN;
        }
        if let Err(error) = attempts.wait(seen) {
            return error;
        }
    }
}

impl Attempts<'_> {
    /// Waits for an edge after `seen`. Returns the call's result if it must not be tried again.
    fn wait(&mut self, seen: Option<kumihimo_runtime::readiness::Seen>) -> Result<(), isize> {
        let deadline = *self.deadline.get_or_insert_with(|| deadline(self.fd, self.interest));
        let source = match &self.source {
            Some(source) => source,
            None => self.source.insert(self.place.source_of(self.fd)),
        };
        // Before the first registration no edge was counted.
        let seen = seen.unwrap_or_else(|| Source::new(self.fd).seen(self.interest));
        let waited = source.wait(self.interest, seen, deadline);
        if source.is_retired() {
            // Closed by another thread while this one waited; the number may mean another file.
            return Err(-(libc::EBADF as isize));
        }
        match waited {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(AGAIN),
            Err(error) => Err(-(error.raw_os_error().unwrap_or(libc::EIO) as isize)),
        }
    }
}
