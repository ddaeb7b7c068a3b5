//! Attempts on sockets, and waits between them.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumihimo_arch::system_call;
use kumihimo_runtime::readiness::{Interest, Source};

use crate::descriptor::table::{self, Place};
use crate::real::libc;
use crate::signal::section::{Section, handle_interruption, is_interrupted};

/// Whether any socket may have a time-out (SO_RCVTIMEO, SO_SNDTIMEO): the program has set one, or
/// has got a socket from another process or an earlier program.
pub(super) static HAS_TIMEOUTS: AtomicBool = AtomicBool::new(false);

/// Notes `fd`, which this program has not made. An earlier program may have set its time-outs.
pub(super) fn note_foreign(fd: c_int) {
    if table::option(fd, libc::SO_TYPE).is_some() {
        HAS_TIMEOUTS.store(true, Ordering::Relaxed);
    }
}

pub(super) const AGAIN: isize = -(libc::EAGAIN as isize);

/// Whether a call in this direction waits: the file is open for it, and the program wants that.
fn waits(fd: c_int, interest: Interest) -> bool {
    // SAFETY: integers.
    let flags =
        unsafe { system_call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) };
    let flags = flags as c_int;
    let other = match interest {
        Interest::Read => libc::O_WRONLY,
        Interest::Write => libc::O_RDONLY,
    };
    flags >= 0 && flags & libc::O_NONBLOCK == 0 && flags & libc::O_ACCMODE != other
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

/// A call between its attempts.
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
/// kernel's result, or `EAGAIN` at the time-out of the socket. `None`: the call is not to wait, and
/// nothing was there.
pub(super) fn repeat(
    fd: c_int,
    place: &Place,
    interest: Interest,
    may_wait: bool,
    mut attempt: impl FnMut() -> isize,
    is_drained: impl Fn(isize) -> bool,
) -> Option<isize> {
    let _section = Section::enter();
    let mut attempts = Attempts { fd, place, interest, source: place.source(), deadline: None };
    loop {
        let seen = attempts.source.as_ref().map(|source| source.seen(interest));
        // After a read that emptied the buffer nothing has come: the attempt would be in vain. Not
        // for a call that must not wait, which asks the kernel in any case.
        let is_empty = may_wait
            && attempts.source.as_ref().is_some_and(|source| !source.likely_ready(interest))
            && waits(fd, interest);
        if !is_empty {
            let result = attempt();
            if let (Some(source), Some(seen)) = (&attempts.source, seen)
                && (result == AGAIN || is_drained(result))
            {
                // A poll(2) that follows need not look.
                source.drained(interest, seen);
            }
            if result != AGAIN {
                return Some(result);
            }
            if !may_wait || !waits(fd, interest) {
                return None;
            }
        }
        if let Err(error) = attempts.wait(seen) {
            return Some(error);
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
            Ok(()) if is_interrupted(true) && handle_interruption().ends(deadline.is_some()) => {
                Err(-(libc::EINTR as isize))
            }
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => Err(AGAIN),
            Err(error) => Err(-(error.raw_os_error().unwrap_or(libc::EIO) as isize)),
        }
    }
}
