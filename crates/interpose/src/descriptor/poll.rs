//! poll(2) and ppoll(2): for one socket, as clients and servers wait with a time-out; and for
//! several descriptors of any kind.
//!
//! Calls with a signal mask, or for very many descriptors, go to the C library.

use std::ffi::{c_int, c_short};
use std::sync::Arc;
use std::time::Duration;

use kumihimo_arch::system_call;
use kumihimo_runtime::any_ready::{self, Awaited};
use kumihimo_runtime::park;
use kumihimo_runtime::readiness::{Interest, Seen, Source};
use libc::{nfds_t, pollfd};

use crate::descriptor::{check_room, returned, table};
use crate::failed;
use crate::real::libc;
use crate::signal::cancel;
use crate::signal::section::{Section, handle_interruption, is_interrupted};
use crate::time::deadline::{Deadline, check};

const READ: c_short = libc::POLLIN | libc::POLLRDNORM;
const WRITE: c_short = libc::POLLOUT | libc::POLLWRNORM;

/// Looks without waiting.
fn look(one: *mut pollfd) -> isize {
    // SAFETY: the caller passes a live structure.
    unsafe { system_call(libc::SYS_poll, [one.expose_provenance(), 1, 0, 0, 0, 0]) }
}

/// Polls one socket for one direction. `None`: the call is for the C library.
///
/// # Safety
/// `one` is a live structure.
unsafe fn poll_one(one: *mut pollfd, deadline: Deadline) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let (fd, events) = unsafe { ((*one).fd, (*one).events) };
    let interest = match (events & READ != 0, events & WRITE != 0) {
        (true, false) => Interest::Read,
        (false, true) => Interest::Write,
        _ => return None,
    };
    if !park::may_switch() {
        return None;
    }
    let place = table::place(fd).filter(|place| place.is_socket(fd))?;
    let mut source = place.source();
    loop {
        let seen = source.as_ref().map(|source| source.seen(interest));
        // Not after a call that found nothing (`transfer`), unless something has come since.
        if source.as_ref().is_none_or(|source| source.likely_ready(interest)) {
            match look(one) {
                0 => {}
                result => return Some(returned(result) as c_int),
            }
        }
        if deadline.has_passed() {
            // SAFETY: the caller's promise.
            unsafe { (*one).revents = 0 };
            return Some(0);
        }
        let own = source.get_or_insert_with(|| place.source_of(fd));
        let seen = seen.unwrap_or_else(|| Source::new(fd).seen(interest));
        let waited = own.wait(interest, seen, deadline.instant());
        // Closed meanwhile, or not to be waited for: the kernel says what there is to say.
        if own.is_retired() {
            source = None;
        } else if has_ended_wait() {
            return Some(failed(libc::EINTR));
        } else if let Err(error) = waited {
            if error.kind() != std::io::ErrorKind::TimedOut {
                return None;
            }
        } else if own.seen(interest) != seen && !own.has_lasting_edge(interest) {
            // An edge says that the descriptor is ready, and nothing else that poll(2) reports
            // unasked. What came may be gone, as after any poll(2).
            // SAFETY: as above.
            unsafe { (*one).revents = events & (READ | WRITE) };
            return Some(1);
        }
    }
}

/// Whether a signal or a cancellation has ended a wait that never restarts.
pub(super) fn has_ended_wait() -> bool {
    is_interrupted(true) && handle_interruption().ends(true)
}

/// Descriptors of one wait at most. A wait costs a look-up for each, and a kernel thread costs
/// little beside so many.
const MOST: usize = 64;

/// Several descriptors to wait for.
pub(super) struct Several(Vec<(c_int, Interest, Arc<Source>, Option<Seen>)>);

/// Whether a wait for several descriptors was possible.
#[derive(PartialEq, Eq)]
pub(super) enum Chance {
    /// One may be ready, or the time is over.
    Look,
    /// A handler has run.
    Interrupted,
    /// The kernel must wait.
    None,
}

impl Several {
    /// `None` if there are too many, or one has no place in the table.
    pub(super) fn new(all: impl Iterator<Item = (c_int, Interest)>) -> Option<Several> {
        let mut several = Vec::new();
        for (fd, interest) in all {
            if several.len() == MOST {
                return None;
            }
            several.push((fd, interest, table::place(fd)?.source_of(fd), None));
        }
        Some(Several(several))
    }

    /// Notes the edges so far, before a look.
    pub(super) fn note(&mut self) {
        for (fd, interest, source, seen) in &mut self.0 {
            if source.is_retired()
                && let Some(place) = table::place(*fd)
            {
                *source = place.source_of(*fd);
            }
            *seen = Some(source.seen(*interest));
        }
    }

    /// Waits after a look that found nothing ready.
    pub(super) fn wait(&self, deadline: Deadline) -> Chance {
        let all: Vec<Awaited<'_>> = self
            .0
            .iter()
            .filter_map(|(_, interest, source, seen)| Some((&**source, *interest, (*seen)?)))
            .collect();
        match any_ready::wait_any(&all, deadline.instant()) {
            Err(error) if error.kind() != std::io::ErrorKind::TimedOut => Chance::None,
            Ok(()) if has_ended_wait() => Chance::Interrupted,
            _ => Chance::Look,
        }
    }
}

/// Polls several descriptors. `None`: the call is for the C library.
///
/// # Safety
/// `all` has `count` live structures.
unsafe fn poll_several(all: *mut pollfd, count: usize, deadline: Deadline) -> Option<c_int> {
    if !park::may_switch() || count > MOST {
        return None;
    }
    let entries = match count {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(all, count) },
    };
    // Ends of files and errors are reported unasked, and come as edges of the reading direction.
    let awaited = entries.iter().filter(|entry| entry.fd >= 0).flat_map(|entry| {
        let write = (entry.events & WRITE != 0).then_some((entry.fd, Interest::Write));
        std::iter::once((entry.fd, Interest::Read)).chain(write)
    });
    let mut several = Several::new(awaited)?;
    loop {
        several.note();
        // SAFETY: as above.
        let arguments = [all.expose_provenance(), count, 0, 0, 0, 0];
        // SAFETY: as above.
        match unsafe { system_call(libc::SYS_poll, arguments) } {
            0 if deadline.has_passed() => return Some(0),
            0 => {}
            done => return Some(returned(done) as c_int),
        }
        match several.wait(deadline) {
            Chance::Look => {}
            Chance::Interrupted => return Some(failed(libc::EINTR)),
            Chance::None => return None,
        }
    }
}

/// Polls until the deadline. `None`: the call is for the C library.
///
/// # Safety
/// As poll(2).
unsafe fn poll_until(all: *mut pollfd, count: nfds_t, deadline: Deadline) -> Option<c_int> {
    if all.is_null() && count > 0 {
        return None;
    }
    let _section = Section::enter();
    // SAFETY: the caller's promise.
    unsafe {
        if count == 1
            && let Some(done) = poll_one(all, deadline)
        {
            return Some(done);
        }
        poll_several(all, usize::try_from(count).ok()?, deadline)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_poll(
    all: *mut pollfd,
    count: nfds_t,
    time: c_int,
) -> c_int {
    cancel::point();
    if time != 0 && park::may_switch() {
        let deadline = match u64::try_from(time) {
            Ok(time) => Deadline::after(Duration::from_millis(time)),
            Err(_) => Deadline::Never,
        };
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { poll_until(all, count, deadline) } {
            if done == -1 {
                cancel::point();
            }
            return done;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { libc::poll(all, count, time) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_ppoll(
    all: *mut pollfd,
    count: nfds_t,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    cancel::point();
    if mask.is_null() && park::may_switch() {
        // SAFETY: the caller's promise.
        let deadline = match unsafe { time.as_ref() } {
            None => Deadline::Never,
            Some(time) => match (check(time), u64::try_from(time.tv_sec)) {
                (Ok(()), Ok(seconds)) => {
                    Deadline::after(Duration::new(seconds, time.tv_nsec as u32))
                }
                _ => return failed(libc::EINVAL),
            },
        };
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { poll_until(all, count, deadline) } {
            if done == -1 {
                cancel::point();
            }
            return done;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { libc::ppoll(all, count, time, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose___poll_chk(
    all: *mut pollfd,
    count: nfds_t,
    time: c_int,
    room: usize,
) -> c_int {
    check_room(count as usize, room / size_of::<pollfd>());
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_poll(all, count, time) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose___ppoll_chk(
    all: *mut pollfd,
    count: nfds_t,
    time: *const libc::timespec,
    mask: *const libc::sigset_t,
    room: usize,
) -> c_int {
    check_room(count as usize, room / size_of::<pollfd>());
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_ppoll(all, count, time, mask) }
}
