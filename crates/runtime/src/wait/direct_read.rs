//! Reads that go to the disk whatever is in memory.

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
    let carrier = Carrier::obtain().filter(Carrier::is_running)?;
    let direct_read = &carrier.vp().instance().direct_read;
    let anchor = match direct_read.anchor.get() {
        Some(anchor) => anchor.clone(),
        None if direct_read.begun.swap(true, Ordering::Relaxed) => return None,
        None => {
            let instance = carrier.vp().instance().counted();
            // It makes system calls, and allocates.
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
