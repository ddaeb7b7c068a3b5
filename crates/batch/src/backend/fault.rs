//! A back end with injected failures that real kernels rarely produce, for tests of code that uses
//! batches.

use super::interface::Backend;
use crate::op::Outcome;
use crate::request::{Request, RequestKind};

/// Passes the requests to another back end, shortens some of them, and makes others fail without
/// passing them on.
///
/// Every failure is one that the system call may have at any time (`EINTR`, `ECONNRESET`, `EIO`,
/// `ENOBUFS`; `EAGAIN` for a read that is not in memory). Every short count is one that it may
/// return.
pub struct Faulty {
    inner: Box<dyn Backend>,
    state: u64,
    one_in: u64,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty")
            .field("inner", &self.inner.name())
            .field("one_in", &self.one_in)
            .finish_non_exhaustive()
    }
}

impl Faulty {
    /// Creates a back end that disturbs about one request in `one_in` (at least 1). The same seed
    /// causes the same disturbances.
    pub fn new(inner: Box<dyn Backend>, seed: u64, one_in: u64) -> Faulty {
        Faulty { inner, state: seed | 1, one_in: one_in.max(1) }
    }

    /// xorshift64* (Marsaglia 2003, Vigna 2016).
    fn draw(&mut self, below: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    /// Returns a number of at least 1 and less than `whole`, which is at least 2.
    fn fewer(&mut self, whole: usize) -> usize {
        1 + self.draw(whole as u64 - 1) as usize
    }

    fn disturb(&mut self, request: &Request<'_>) -> Injected {
        if self.draw(self.one_in) != 0 {
            return Injected::No;
        }
        let errors: &[i32] = match request.what {
            RequestKind::Nop => &[libc::EINTR],
            RequestKind::Recv { .. } | RequestKind::RecvMessage { .. } => {
                &[libc::EINTR, libc::ECONNRESET]
            }
            RequestKind::Send { .. } | RequestKind::SendMessage { .. } => {
                &[libc::EINTR, libc::ENOBUFS]
            }
            RequestKind::ReadAt { .. }
            | RequestKind::WriteAt { .. }
            | RequestKind::Sync { .. }
            | RequestKind::Stat { .. } => &[libc::EIO, libc::EAGAIN],
        };
        match (self.draw(2), request.what) {
            (0, RequestKind::Recv { fd, into, len, flags }) if len > 1 => {
                Injected::Short(RequestKind::Recv { fd, into, len: self.fewer(len), flags })
            }
            (0, RequestKind::Send { fd, from, len }) if len > 1 => {
                Injected::Short(RequestKind::Send { fd, from, len: self.fewer(len) })
            }
            (0, RequestKind::ReadAt { fd, into, parts, at }) if parts > 1 => {
                Injected::Short(RequestKind::ReadAt { fd, into, parts: self.fewer(parts), at })
            }
            _ => Injected::Fails(Outcome::error(errors[self.draw(errors.len() as u64) as usize])),
        }
    }
}

enum Injected {
    No,
    Short(RequestKind),
    Fails(Outcome),
}

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn enter(&mut self, requests: &[Request<'_>], outcomes: &mut [Outcome]) -> u64 {
        let mut entered = 0;
        for (request, outcome) in requests.iter().zip(outcomes) {
            let request = match self.disturb(request) {
                Injected::No => *request,
                // SAFETY: the same pointers with a shorter length.
                Injected::Short(what) => unsafe { Request::new(what) },
                Injected::Fails(with) => {
                    *outcome = with;
                    continue;
                }
            };
            entered += self.inner.enter(&[request], std::slice::from_mut(outcome));
        }
        entered
    }
}
