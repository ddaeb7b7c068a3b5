//! epoll_wait(2): the program's set is itself a descriptor that becomes readable.

use std::ffi::c_int;
use std::time::Duration;

use kumihimo_runtime::park;
use kumihimo_runtime::readiness::{Interest, Source};

use crate::deadline::Deadline;
use crate::descriptor::poll::has_ended_wait;
use crate::descriptor::table;
use crate::real::libc;
use crate::signal::section::Section;
use crate::{cancel, failed};

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
    let section = Section::enter();
    let mut source = place.source();
    loop {
        let seen = source.as_ref().map(|source| source.seen(Interest::Read));
        match look(0) {
            0 if deadline.has_passed() => return 0,
            0 => {}
            done => return done,
        }
        let own = source.get_or_insert_with(|| place.source_of(set));
        // Several threads may wait for one set: each edge wakes all, and those that find nothing
        // wait again.
        let seen = seen.unwrap_or_else(|| Source::new(set).seen(Interest::Read));
        let waited = own.wait(Interest::Read, seen, deadline.instant());
        if own.is_retired() {
            source = None;
        } else if has_ended_wait() {
            return failed(libc::EINTR);
        } else if waited.is_err_and(|error| error.kind() != std::io::ErrorKind::TimedOut) {
            drop(section);
            return look(time);
        }
    }
}
