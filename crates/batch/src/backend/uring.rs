//! The back end that enters the kernel once for all requests: a uring without requests in flight.
//!
//! A uring completes an armed request through the kernel thread that armed it. That thread may
//! sleep by then, and the completion interrupts its system calls. So every request here is
//! non-blocking (`MSG_DONTWAIT`, `RWF_NOWAIT`; `O_NONBLOCK` alone does not keep a request from
//! being armed), and ends inside its own `io_uring_enter`. Then any kernel thread may use the ring
//! next, and one ring for each virtual processor is enough.
//!
//! Source: io_uring_enter(2); io_uring/net.c, `io_recv`: a request with `MSG_DONTWAIT` completes
//! with `EAGAIN`.

use std::io;

use io_uring::{IoUring, opcode, squeue, types};

use super::interface::Backend;
use super::plain;
use crate::op::Outcome;
use crate::request::{Request, RequestKind, SEND};

/// Makes one `io_uring_enter` for up to as many requests as the ring has entries.
pub struct Uring {
    /// `None` after a failure that left requests in the submission queue. All calls are plain from
    /// then on.
    ring: Option<IoUring>,
    entries: usize,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("entries", &self.entries)
            .field("works", &self.ring.is_some())
            .finish()
    }
}

/// Up to this many requests are made by plain calls: entering a uring costs more than twice as much
/// as the entry of a plain call.
const FEW: usize = 3;

/// Marks a request without a completion. Completions carry the index of their request.
const PENDING: Outcome = Outcome::of_raw(i32::MIN);

impl Uring {
    /// Creates a ring with room for `entries` requests, and tests it.
    ///
    /// # Errors
    /// Those of io_uring_setup(2): `ENOSYS`, `EPERM` under seccomp or `kernel.io_uring_disabled`,
    /// `ENOMEM` at the locked-memory limit of kernels before 5.12, `EMFILE`. `Unsupported` if the
    /// kernel lacks an operation, or the test request failed.
    pub fn new(entries: u32) -> io::Result<Uring> {
        let entries = entries.next_power_of_two();
        // These flags need Linux 5.19 and 5.18. Cooperative task work: if a completion is deferred
        // after all, it does not interrupt user code.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_submit_all()
            .build(entries)
            .or_else(|_| IoUring::new(entries))
            .map_err(|e| io::Error::new(e.kind(), format!("io_uring_setup: {e}")))?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Nop::CODE,
            opcode::Recv::CODE,
            opcode::RecvMsg::CODE,
            opcode::Send::CODE,
            opcode::SendMsg::CODE,
            opcode::Readv::CODE,
        ];
        if let Some(missing) = needed.iter().find(|&&code| !probe.is_supported(code)) {
            let text = format!("io_uring: the kernel lacks operation {missing}; Linux 5.6 has it");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let mut uring = Uring { ring: Some(ring), entries: entries as usize };
        // SAFETY: the request has no pointers.
        let nop = unsafe { Request::new(RequestKind::Nop) };
        let mut outcomes = [Outcome::error(libc::EIO); FEW + 1];
        uring.enter(&[nop; FEW + 1], &mut outcomes);
        match (uring.ring.is_some(), outcomes.iter().any(|outcome| outcome.errno().is_some())) {
            (true, false) => Ok(uring),
            _ => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring: a no-op request failed"))
            }
        }
    }

    /// Submits the queued requests and waits until they have ended. Returns the numbers of
    /// submitted requests and of kernel entries.
    fn submit(ring: &mut IoUring, queued: usize, outcomes: &mut [Outcome]) -> (usize, u64) {
        let (mut submitted, mut entries) = (0, 0);
        while submitted < queued {
            entries += 1;
            match ring.submit() {
                // Without `IORING_SETUP_SUBMIT_ALL` the kernel stops after a request that fails.
                Ok(n) if n > 0 => submitted += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        let mut ended = reap(ring, outcomes);
        while ended < submitted {
            // Not expected, since every request ends in its submission. Returning early would leave
            // the kernel with buffers that the caller reuses.
            entries += 1;
            let _ = ring.submitter().submit_and_wait(1);
            ended += reap(ring, outcomes);
        }
        (submitted, entries)
    }
}

fn reap(ring: &mut IoUring, outcomes: &mut [Outcome]) -> usize {
    let mut n = 0;
    for completion in ring.completion() {
        n += 1;
        if let Some(outcome) =
            usize::try_from(completion.user_data()).ok().and_then(|i| outcomes.get_mut(i))
        {
            *outcome = Outcome::of_raw(completion.result());
        }
    }
    n
}

fn entry(request: &Request<'_>) -> squeue::Entry {
    match request.what {
        RequestKind::Recv { fd, into, len, flags } => {
            opcode::Recv::new(types::Fd(fd), into, length(len)).flags(flags).build()
        }
        RequestKind::RecvMessage { fd, message } => {
            opcode::RecvMsg::new(types::Fd(fd), message).flags(libc::MSG_DONTWAIT as u32).build()
        }
        RequestKind::Send { fd, from, len } => {
            opcode::Send::new(types::Fd(fd), from, length(len)).flags(SEND).build()
        }
        RequestKind::SendMessage { fd, message } => {
            opcode::SendMsg::new(types::Fd(fd), message).flags(SEND as u32).build()
        }
        RequestKind::ReadAt { fd, into, parts, at } => {
            opcode::Readv::new(types::Fd(fd), into, parts as u32)
                .offset(at)
                .rw_flags(libc::RWF_NOWAIT)
                .build()
        }
        RequestKind::Nop
        | RequestKind::WriteAt { .. }
        | RequestKind::Sync { .. }
        | RequestKind::Stat { .. } => opcode::Nop::new().build(),
    }
}

/// Limits a length to the 32 bits of a uring. One call moves at most 2^31 bytes less a page anyway.
fn length(len: usize) -> u32 {
    len.min(0x7fff_f000) as u32
}

impl Backend for Uring {
    fn name(&self) -> &'static str {
        if self.ring.is_some() { "uring" } else { "plain" }
    }

    fn enter(&mut self, requests: &[Request<'_>], outcomes: &mut [Outcome]) -> u64 {
        let mut entered = 0;
        for (requests, outcomes) in
            requests.chunks(self.entries).zip(outcomes.chunks_mut(self.entries))
        {
            let mut queued = 0;
            if requests.len() <= FEW {
                outcomes.fill(PENDING);
            } else if let Some(ring) = &mut self.ring {
                let mut submission = ring.submission();
                for (i, request) in requests.iter().enumerate() {
                    outcomes[i] = PENDING;
                    if request.is_always_plain() {
                        continue;
                    }
                    // SAFETY: the pointers are valid until `enter` returns, and no request is in
                    // flight after that.
                    let pushed = unsafe { submission.push(&entry(request).user_data(i as u64)) };
                    // The ring is empty between two calls and has room for a whole chunk.
                    debug_assert!(pushed.is_ok());
                    queued += usize::from(pushed.is_ok());
                }
            } else {
                outcomes.fill(PENDING);
            }
            if queued > 0
                && let Some(ring) = &mut self.ring
            {
                let (submitted, entries) = Uring::submit(ring, queued, outcomes);
                entered += entries;
                if submitted < queued {
                    // Requests cannot be taken out of the submission queue: the rest is dropped
                    // with the ring.
                    self.ring = None;
                }
            }
            for (request, outcome) in requests.iter().zip(outcomes) {
                if *outcome == PENDING {
                    entered += 1;
                    *outcome = plain::make(request);
                }
            }
        }
        entered
    }
}
