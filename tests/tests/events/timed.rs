//! Calls with timeouts: none is cut short, and none fails with EINTR. Only lower bounds are
//! checked, because a call may return late.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::calls::{an_epoll, epoll_wait_for};
use crate::case::case;

/// Duration of each wait.
const TIME: Duration = Duration::from_millis(200);
/// Granularity of socket timeouts: the kernel's tick, at least 100 a second.
const TICK: Duration = Duration::from_millis(10);

#[test]
fn nanosleep_is_not_cut_short() {
    case("timed::nanosleep_is_not_cut_short", |case| {
        case.timed(|| {
            let since = Instant::now();
            let time = libc::timespec { tv_sec: 0, tv_nsec: TIME.as_nanos() as libc::c_long };
            // SAFETY: a live timespec.
            assert_eq!(unsafe { libc::nanosleep(&time, std::ptr::null_mut()) }, 0);
            assert!(since.elapsed() >= TIME, "not too short");
        });
    });
}

#[test]
fn recv_returns_after_its_timeout() {
    case("timed::recv_returns_after_its_timeout", |case| {
        let (mine, _its) = UnixStream::pair().expect("a pair");
        mine.set_read_timeout(Some(TIME)).expect("a timeout");
        case.timed(move || {
            let (since, mut byte) = (Instant::now(), 0u8);
            // SAFETY: one live byte.
            let n = unsafe { libc::recv(mine.as_raw_fd(), (&raw mut byte).cast(), 1, 0) };
            let error = std::io::Error::last_os_error();
            assert_eq!((n, error.raw_os_error()), (-1, Some(libc::EAGAIN)));
            assert!(since.elapsed() >= TIME - TICK, "not too early");
        });
    });
}

#[test]
fn epoll_wait_returns_after_its_timeout() {
    case("timed::epoll_wait_returns_after_its_timeout", |case| {
        let (epoll, _event) = an_epoll();
        case.timed(move || {
            let since = Instant::now();
            assert_eq!(epoll_wait_for(&epoll, TIME.as_millis() as i32), ((0, None), 0));
            assert!(since.elapsed() >= TIME, "not too early");
        });
    });
}
