//! Load generators and peers of benchmarks: hidden subcommands, each a process beside the measured
//! one, and the same for all contenders.
//!
//! - `echo`: the closed loop of `echo`; `priority`: both loops of `priority-io`.
//! - `requests`: the clients of the unmodified servers of `run`.
//! - `outside`: the requests and the stalls of `stall`.
//! - `peer`: the processes at the other end of the sockets of `unwrapped`.
//!
//! Commands are arguments and lines of standard input. Counts and latencies are lines of standard
//! output. From the rest of the crate, these modules may use only `contender`.

pub mod echo;
pub mod outside;
pub mod peer;
pub mod priority;
pub mod requests;

use std::io::{Error, ErrorKind};
use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// Time limit for a reply.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for replies to `under_way` requests. Returns no event if a signal interrupts the wait.
///
/// # Errors
/// If nothing arrives within the time limit.
fn await_replies<'a>(
    epoll: &OwnedFd,
    events: &'a mut [MaybeUninit<epoll::Event>],
    under_way: usize,
) -> std::io::Result<&'a mut [epoll::Event]> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    match epoll::wait(epoll, events, Some(&patience)) {
        Ok(([], _)) => {
            let message = format!("{under_way} replies are missing after {} s", PATIENCE.as_secs());
            Err(Error::new(ErrorKind::TimedOut, message))
        }
        Ok((ready, _)) => Ok(ready),
        Err(Errno::INTR) => Ok(&mut []),
        Err(error) => Err(error.into()),
    }
}
