//! Direct reads: bypass the page cache through an io_uring reader.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kumihimo_batch::DirectReader;

use crate::microprocess::wait_reason::Wait;
use crate::scheduler::carrier::Carrier;
use crate::syscall::direct_read::DirectRead;
use crate::wait::blocking::blocking;
use crate::wait::{future, park};

/// Reads from `file` at offset `at`, as pread(2) does for a regular file; the read may be short.
/// Returns `None` if the caller must use a plain read instead: it is not on a VP, io_uring is
/// unavailable, or the reader is still starting.
///
/// Blocks the microprocess. The first caller also waits for the start of a kernel thread. Not a
/// cancellation point: neither deadline nor cancellation ends the wait, because the kernel owns the
/// buffer meanwhile.
///
/// # Errors
/// As pread(2). After `EAGAIN`, `EINTR` and `EOPNOTSUPP` the caller must use a plain read.
pub fn read_at(file: BorrowedFd<'_>, into: &mut [u8], at: u64) -> Option<io::Result<usize>> {
    // A sticky caller first returns to a VP. A plain read would block it once more, and it would
    // stay sticky.
    let carrier = Carrier::obtain().filter(Carrier::is_running)?;
    let direct_read = &carrier.vp().instance().direct_read;
    let anchor = match direct_read.anchor.get() {
        Some(anchor) => anchor.clone(),
        None if direct_read.begun.swap(true, Ordering::Relaxed) => return None,
        None => {
            let instance = carrier.vp().instance().counted();
            // `start` makes system calls and allocates, so the slot must not be masked.
            drop(carrier);
            return instance.direct_read.start().then(|| read_at(file, into, at))?;
        }
    };
    drop(carrier);
    let me = park::current();
    let fd = file.as_raw_fd();
    Some(anchor.read(file, into, at, future::waker(&me), || park::park(Wait::Io(fd), None)))
}

impl DirectRead {
    fn start(&self) -> bool {
        let started = if kumihimo_config::get().lab.uring == Some(false) {
            Err(io::Error::other("KUMI_LAB=uring=off"))
        } else {
            blocking(DirectReader::start)
        };
        match started {
            Ok(anchor) => self.anchor.set(Arc::new(anchor)).is_ok(),
            Err(why) => {
                let _ = self.refused.set(why.to_string());
                false
            }
        }
    }
}
