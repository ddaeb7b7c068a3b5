//! The standard descriptors without buffers.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{BorrowedFd, RawFd};

use crate::descriptor::Descriptor;

/// Descriptor 0, 1 or 2. Other code may replace the open file (dup2(2)), so no state is cached.
pub(super) struct Raw(pub(super) RawFd);

impl Raw {
    pub(super) fn fd(&self) -> BorrowedFd<'static> {
        // SAFETY: not -1. Only system calls use it, which fail with EBADF if it is closed.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    pub(super) fn descriptor(&self) -> Descriptor<BorrowedFd<'static>> {
        Descriptor::new(self.fd()).insisting()
    }
}

/// `done` in place of the error that a closed descriptor gives.
fn if_open(outcome: io::Result<usize>, done: usize) -> io::Result<usize> {
    match outcome {
        Err(e) if e.raw_os_error() == Some(libc::EBADF) => Ok(done),
        other => other,
    }
}

impl Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if_open(self.descriptor().read(buf), 0)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if_open(self.descriptor().read_vectored(bufs), 0)
    }
}

impl Write for Raw {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if_open(self.descriptor().write(buf), buf.len())
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if_open(self.descriptor().write_vectored(bufs), bufs.iter().map(|b| b.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
