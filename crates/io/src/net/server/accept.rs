//! The accept loop: admission, refusals, and reports of trouble.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kumihimo_runtime::thread;
use socket2::SockRef;

use super::connection::{Connection, ServeCall};
use super::memory::Resident;
use super::trouble::{Cause, Failure, Trouble};
use super::{Listener, Server};

/// Shortest time between two reports of one cause.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// First pause after the kernel had no resources to accept with; each further pause doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Upper bound of the doubling.
const LONGEST_PAUSE: Duration = Duration::from_millis(256);

impl Server {
    /// Accepts until cancelled, until a deadline has passed, or until the listener fails for good.
    pub(super) fn accept<'a, L: Listener>(
        &'a self,
        listener: &L,
        resident: Option<&Resident>,
        call: &'a ServeCall,
        begin: impl Fn(Connection<'a>, L::Stream, L::Addr) -> io::Result<()>,
    ) -> io::Result<()> {
        // A spare descriptor: closed under EMFILE so that one connection can be accepted, and
        // refused.
        let mut reserve = listener.as_fd().try_clone_to_owned().ok();
        let mut pause = FIRST_PAUSE;
        loop {
            let e = match listener.accept() {
                Ok((stream, addr)) => {
                    pause = FIRST_PAUSE;
                    if reserve.is_none() {
                        reserve = listener.as_fd().try_clone_to_owned().ok();
                    }
                    match self.admit(resident, call) {
                        Ok(connection) => {
                            if let Err(e) = begin(connection, stream, addr) {
                                call.tally.refused.fetch_add(1, Ordering::Relaxed);
                                self.report(listener, Cause::Microprocesses, e.to_string());
                            }
                        }
                        Err((cause, detail)) => {
                            self.refuse(&stream, call);
                            // Closed before the next connection is accepted.
                            drop(stream);
                            self.report(listener, cause, detail);
                        }
                    }
                    continue;
                }
                Err(e) => e,
            };
            match Failure::of(&e) {
                Failure::Connection => continue,
                Failure::Descriptors => {
                    self.refuse_one(listener, &mut reserve, call);
                    self.report(listener, Cause::Descriptors, e.to_string());
                }
                Failure::Memory => self.report(listener, Cause::Kernel, e.to_string()),
                Failure::Deadline => return Ok(()),
                Failure::Final => return Err(e),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Counts a connection as open, unless that would exceed a limit.
    fn admit<'a>(
        &'a self,
        resident: Option<&Resident>,
        call: &'a ServeCall,
    ) -> Result<Connection<'a>, (Cause, String)> {
        let now = resident.map_or(0, Resident::bytes);
        if now > self.memory {
            let text = format!("{} MiB are resident, {} allowed", now >> 20, self.memory >> 20);
            return Err((Cause::Memory, text));
        }
        self.load
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < self.connections).then_some(n + 1)
            })
            .map_err(|n| (Cause::Connections, format!("{n} are open")))?;
        call.open.fetch_add(1, Ordering::SeqCst);
        Ok(Connection { load: &self.load, call, is_complete: false })
    }

    /// Sends the refusal and ends the connection. Never waits.
    fn refuse(&self, stream: &impl AsFd, call: &ServeCall) {
        call.tally.refused.fetch_add(1, Ordering::Relaxed);
        let socket = SockRef::from(stream);
        // Errors do not matter: the connection is about to be closed.
        let _ = socket.send_with_flags(&self.refusal, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        // Closing a socket with unread data sends a reset (RFC 2525, section 2.17), which may make
        // the peer discard the refusal.
        let mut unread = [MaybeUninit::uninit(); 4096];
        for _ in 0..16 {
            if !matches!(socket.recv_with_flags(&mut unread, libc::MSG_DONTWAIT), Ok(4096)) {
                break;
            }
        }
    }

    /// Refuses one connection by means of the spare descriptor, so that a waiting client gets an
    /// answer. If another thread takes the descriptor first, the client keeps waiting.
    fn refuse_one<L: Listener>(
        &self,
        listener: &L,
        reserve: &mut Option<OwnedFd>,
        call: &ServeCall,
    ) {
        if reserve.take().is_some()
            // Does not wait: O_NONBLOCK is set on every listener of this crate.
            && let Ok((stream, _)) = SockRef::from(listener).accept()
        {
            self.refuse(&stream, call);
            *reserve = duplicate_onto(stream.into(), listener.as_fd());
        }
        if reserve.is_none() {
            *reserve = listener.as_fd().try_clone_to_owned().ok();
        }
    }

    fn report<L: Listener>(&self, listener: &L, cause: Cause, detail: String) {
        let count = self.with(|state| {
            let (last, count) = &mut state.reported[cause as usize];
            *count += 1;
            let now = Instant::now();
            if last.is_some_and(|last| now < last + REPORT_INTERVAL) {
                return 0;
            }
            *last = Some(now);
            std::mem::take(count)
        });
        if count == 0 {
            return;
        }
        let trouble = Trouble { listener: listener.address(), cause, count, detail };
        match &self.hook {
            Some(hook) => hook(&trouble),
            None => eprintln!("kumihimo: {trouble}"),
        }
    }
}

/// Closes `old` and makes its number refer to the open file of `new`, in one step (dup3(2)): no
/// other thread can take the number in between.
fn duplicate_onto(old: OwnedFd, new: BorrowedFd<'_>) -> Option<OwnedFd> {
    // SAFETY: no pointers; both are open, and `old` owns its number before and after.
    let number =
        unsafe { kumihimo_arch::kernel::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    (number >= 0).then_some(old)
}
