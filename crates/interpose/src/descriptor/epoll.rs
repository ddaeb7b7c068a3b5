//! epoll_wait(2): the program's set is itself a descriptor that becomes readable.

use std::ffi::c_int;
use std::time::Duration;

use kumihimo_runtime::event_loop::{self, EventLoop, IDLE};
use kumihimo_runtime::park;
use kumihimo_runtime::readiness::{Interest, Source};

use crate::descriptor::poll::has_ended_wait;
use crate::descriptor::table::{self, Place};
use crate::real::libc;
use crate::signal::cancel;
use crate::signal::section::Section;
use crate::time::deadline::Deadline;
use crate::{errno, failed};

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_epoll_wait(
    set: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    time: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    cancel::around(|| unsafe { epoll_wait(set, events, most, time) })
}

thread_local! {
    /// The waits of the calling thread, whichever set they were for.
    static LOOP: EventLoop = const { EventLoop::new() };
}

/// # Safety
/// As epoll_wait(2).
unsafe fn epoll_wait(
    set: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    time: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let look = |time| unsafe { libc::epoll_wait(set, events, most, time) };
    let place = if time != 0 && park::may_switch() { table::place(set) } else { None };
    let Some(place) = place else { return look(time) };
    let deadline = match u64::try_from(time) {
        Ok(time) => Deadline::after(Duration::from_millis(time)),
        Err(_) => Deadline::Never,
    };
    loop {
        let done = if event_loop::has_left_vp() {
            wait_in_kernel(look, deadline)
        } else {
            wait_as_microprocess(set, place, look, deadline)
        };
        if let Some(done) = done {
            return done;
        }
    }
}

/// Returns the result for the program, or `None` if the caller is to go on as a microprocess.
fn wait_in_kernel(look: impl Fn(c_int) -> c_int, deadline: Deadline) -> Option<c_int> {
    match look(milliseconds(deadline.left().map_or(IDLE, |left| left.min(IDLE)))) {
        0 if deadline.has_passed() => Some(0),
        0 => {
            event_loop::return_to_vp();
            None
        }
        // The runtime has interrupted it, since levels differ from now on.
        -1 if errno() == libc::EINTR && !event_loop::has_left_vp() => None,
        done => Some(done),
    }
}

/// As [`wait_in_kernel`], but `None` tells the caller to go on in the kernel.
fn wait_as_microprocess(
    set: c_int,
    place: &Place,
    look: impl Fn(c_int) -> c_int,
    deadline: Deadline,
) -> Option<c_int> {
    let section = Section::enter();
    let mut source = place.source();
    loop {
        let seen = source.as_ref().map(|source| source.seen(Interest::Read));
        match look(0) {
            0 if deadline.has_passed() => return Some(0),
            0 => {}
            done => return Some(done),
        }
        if LOOP.with(EventLoop::leaves_vp) {
            // Else each event would wake a VP, too.
            place.unwatch();
            return None;
        }
        let own = source.get_or_insert_with(|| place.source_of(set));
        // Several threads may wait for one set: each edge wakes all, and those that find nothing
        // wait again.
        let seen = seen.unwrap_or_else(|| Source::new(set).seen(Interest::Read));
        let waited = own.wait(Interest::Read, seen, deadline.instant());
        if own.is_retired() {
            source = None;
        } else if has_ended_wait() {
            return Some(failed(libc::EINTR));
        } else if waited.is_err_and(|error| error.kind() != std::io::ErrorKind::TimedOut) {
            // The program's set cannot be watched.
            drop(section);
            return Some(look(deadline.left().map_or(-1, milliseconds)));
        }
    }
}

/// The time in the unit of epoll_wait(2), rounded up: a deadline has passed after it.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}
