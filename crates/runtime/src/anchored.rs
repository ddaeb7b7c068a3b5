//! Reads that go to the disk whatever is in memory: by the [`Anchor`], on behalf of a microprocess
//! that waits meanwhile as it does for a socket.
//!
//! By a call of its own the microprocess would sleep in the kernel and its virtual processor be
//! given up: right too, and several times as dear as the read.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use kumihimo_batch::Anchor;

use crate::carrier::Carrier;
use crate::handoff::blocking;
use crate::park::{self, Wait};

/// The instance's part. The anchor starts when it is needed first, and ends with the instance.
#[derive(Debug, Default)]
pub(crate) struct Anchored {
    /// Somebody starts it, or has.
    begun: AtomicBool,
    /// Counted: one whose runtime has ended around it may still be waiting.
    anchor: OnceLock<Arc<Anchor>>,
    refused: OnceLock<String>,
}

/// Reads from `file` at the place `at`, as pread(2) does from a regular file; may be short. `None`:
/// there is no anchor for the caller (not on a virtual processor, no io_uring, or it is being
/// started): a plain call has to do.
///
/// Blocks the microprocess; the first one to come also waits for the start of a kernel thread. No
/// cancellation point, and neither deadline nor cancellation ends the wait: the kernel has the
/// buffer.
///
/// # Errors
/// As pread(2); `EAGAIN`, `EINTR`, `EOPNOTSUPP`: a plain call has to do.
pub fn read_at(file: BorrowedFd<'_>, into: &mut [u8], at: u64) -> Option<io::Result<usize>> {
    // One that is sticky comes to a VP: read plainly it would block once more, and stay as it is.
    let carrier = Carrier::come().filter(Carrier::is_running)?;
    let anchored = &carrier.vp().instance().anchored;
    let anchor = match anchored.anchor.get() {
        Some(anchor) => anchor.clone(),
        None if anchored.begun.swap(true, Ordering::Relaxed) => return None,
        None => {
            let instance = carrier.vp().instance().counted();
            // It makes system calls, and allocates.
            drop(carrier);
            return instance.anchored.start().then(|| read_at(file, into, at))?;
        }
    };
    drop(carrier);
    let me = park::current();
    let fd = file.as_raw_fd();
    Some(anchor.read(file, into, at, crate::future::waker(&me), || park::park(Wait::Io(fd), None)))
}

impl Anchored {
    fn start(&self) -> bool {
        let started = if kumihimo_config::get().lab.uring == Some(false) {
            Err(io::Error::other("KUMI_LAB=uring=off"))
        } else {
            blocking(Anchor::start)
        };
        match started {
            Ok(anchor) => self.anchor.set(Arc::new(anchor)).is_ok(),
            Err(why) => {
                let _ = self.refused.set(why.to_string());
                false
            }
        }
    }

    pub(crate) fn metrics(&self) -> AnchorMetrics {
        let reads = self.anchor.get().map(|anchor| anchor.reads());
        AnchorMetrics {
            runs: reads.is_some(),
            reads: reads.unwrap_or(0),
            refused: self.refused.get().cloned(),
        }
    }
}

/// What the anchor has done: the kernel thread for reads of files that were opened for direct ones
/// (`O_DIRECT`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnchorMetrics {
    /// Whether there is one: it starts with the first such read.
    pub runs: bool,
    /// Reads that it has made.
    pub reads: u64,
    /// Why there is none, if one was wanted.
    pub refused: Option<String>,
}
