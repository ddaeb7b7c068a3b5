//! Copying from a pipe inside the kernel.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};

use kumihimo_runtime::readiness::Interest;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::ends::{End, FileType};
use crate::descriptor::brief;
use crate::fs::KernelCopy;

/// Bytes of one call: a pipe's largest size by default.
const PART: usize = 1 << 20;

/// Copies at most `limit` bytes for as long as splice(2) goes on.
pub(super) fn copy(from: &dyn End, to: &dyn End, limit: u64) -> KernelCopy {
    let mut copied = 0;
    // Whether `from` was ready when splice(2) last had to wait. So `to` was not.
    let mut had_data = false;
    while copied < limit {
        let len = usize::try_from(limit - copied).map_or(PART, |rest| rest.min(PART));
        match splice(from.as_fd(), to.as_fd(), len) {
            Ok(0) => break,
            Ok(n) => (copied, had_data) = (copied + n, false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let waited = if had_data { wait_for_room(to) } else { from.ready(Interest::Read) };
                if let Err(e) = waited {
                    return KernelCopy::Failed(copied, e);
                }
                // splice(2) waits for room before it looks for the end (`opipe_prep`,
                // fs/splice.c).
                if !had_data && is_at_its_end(from.as_fd()) {
                    break;
                }
                // Another reader or writer may have been first: then the other one is asked.
                had_data = !had_data;
            }
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)) =>
            {
                return KernelCopy::Unsupported(copied);
            }
            Err(e) => return KernelCopy::Failed(copied, e),
        }
    }
    KernelCopy::Ended(copied)
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<u64> {
    let null = std::ptr::null_mut();
    let (source, target) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: no offsets are given.
    match brief(|| unsafe {
        libc::splice(source, null, target, null, len, libc::SPLICE_F_NONBLOCK)
    }) {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n as u64),
    }
}

fn wait_for_room(to: &dyn End) -> io::Result<()> {
    match to.file_type() {
        // The kernel waits for a stored file.
        FileType::Empty | FileType::Regular | FileType::BlockDevice => Ok(()),
        _ => to.ready(Interest::Write),
    }
}

/// Whether a pipe is empty and has no writers.
fn is_at_its_end(pipe: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok_and(|n| n == 1) && fds[0].revents() == PollFlags::HUP
}
