//! Copying from a reader to a writer, inside the kernel if both are descriptors.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use kumihimo_runtime::readiness::Interest;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::pipe::{PipeReader, PipeWriter};
use crate::descriptor::{Descriptor, FileClass, brief, poll};
use crate::fs::{File, copy_ranges};
use crate::process::{ChildStderr, ChildStdin, ChildStdout};
use crate::type_view::view;

/// Copies from `reader` to `writer` until the end, and returns the number of bytes.
///
/// Between two of Kumihimo's own descriptors ([`File`], pipes, a child's standard streams, or
/// references to them) the bytes stay in the kernel: copy_file_range(2) from file to file,
/// splice(2) from a pipe. Other types, including sockets (splice(2) has no nonblocking mode for
/// them), are copied through a buffer, as in std. So is a file into a pipe: splice(2) would put the
/// file's own pages there, and what is written to the file later would reach the pipe's reader.
/// Blocks the microprocess, or its kernel thread, as reader and writer do; a cancellation point.
///
/// # Errors
/// Of the reader or the writer; `Interrupted` is retried.
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Read, Write};
///
/// let (mut source, mut input) = io::pipe()?;
/// let (mut output, mut target) = io::pipe()?;
/// input.write_all(b"braided cord")?;
/// drop(input);
///
/// assert_eq!(io::copy(&mut source, &mut target)?, 12);
/// drop(target);
/// let mut copied = String::new();
/// output.read_to_string(&mut copied)?;
/// assert_eq!(copied, "braided cord");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    let copied = match (source(reader), target(writer)) {
        (Some(End::File(from)), Some(End::File(to))) => copy_ranges(from.as_fd(), to.as_fd())?,
        (Some(End::Pipe(from)), Some(to)) => splice_all(from, &to)?,
        _ => 0,
    };
    // The rest, if the kernel stopped early.
    Ok(copied + io::copy(reader, writer)?)
}

/// A descriptor that was recognised.
enum End<'a> {
    File(&'a File),
    Pipe(&'a dyn Pipe),
}

trait Pipe: AsFd {
    /// Waits until it is ready.
    fn ready(&self, interest: Interest) -> io::Result<()>;
}

macro_rules! pipes {
    ($($type:ty),*) => {
        $(impl Pipe for $type {
            fn ready(&self, interest: Interest) -> io::Result<()> {
                ready(&self.0, interest)
            }
        })*
    };
}

pipes!(PipeReader, PipeWriter, ChildStdin, ChildStdout, ChildStderr, File);

fn ready<S: AsFd>(descriptor: &Descriptor<S>, interest: Interest) -> io::Result<()> {
    descriptor.attempt(interest, || {
        match poll(descriptor.inner.as_fd(), interest, Some(Duration::ZERO))? {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    })
}

/// `A` seen as a `T` or a `&T`.
fn known<A: ?Sized, T>(a: &A) -> Option<&T> {
    // SAFETY: the result is used only while `a` is borrowed.
    unsafe { view::<A, T>(a).or_else(|| view::<A, &T>(a).copied()) }
}

impl End<'_> {
    fn of(file: &File) -> End<'_> {
        match file.0.class() {
            Ok(FileClass::Stored | FileClass::StoredWithoutNowait) => End::File(file),
            // A FIFO, or a file that splice(2) refuses.
            _ => End::Pipe(file),
        }
    }

    fn wait(&self, interest: Interest) -> io::Result<()> {
        match self {
            // The kernel waits for a stored file.
            End::File(_) => Ok(()),
            End::Pipe(pipe) => pipe.ready(interest),
        }
    }
}

fn source<R: ?Sized>(reader: &R) -> Option<End<'_>> {
    None.or_else(|| known::<R, File>(reader).map(End::of))
        .or_else(|| known::<R, PipeReader>(reader).map(|pipe| End::Pipe(pipe)))
        .or_else(|| known::<R, ChildStdout>(reader).map(|pipe| End::Pipe(pipe)))
        .or_else(|| known::<R, ChildStderr>(reader).map(|pipe| End::Pipe(pipe)))
}

fn target<W: ?Sized>(writer: &W) -> Option<End<'_>> {
    None.or_else(|| known::<W, File>(writer).map(End::of))
        .or_else(|| known::<W, PipeWriter>(writer).map(|pipe| End::Pipe(pipe)))
        .or_else(|| known::<W, ChildStdin>(writer).map(|pipe| End::Pipe(pipe)))
}

impl AsFd for End<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            End::File(file) => file.as_fd(),
            End::Pipe(pipe) => pipe.as_fd(),
        }
    }
}

/// As long as splice(2) goes on.
fn splice_all(from: &dyn Pipe, to: &End<'_>) -> io::Result<u64> {
    let mut copied = 0;
    // Whether `from` was ready when splice(2) last had to wait. So `to` was not.
    let mut had_data = false;
    loop {
        let null = std::ptr::null_mut();
        let (source, target) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
        let n = brief(|| {
            let flags = libc::SPLICE_F_NONBLOCK;
            // SAFETY: no offsets are given.
            match unsafe { libc::splice(source, null, target, null, 1 << 20, flags) } {
                -1 => Err(io::Error::last_os_error()),
                n => Ok(n as u64),
            }
        });
        match n {
            Ok(0) => return Ok(copied),
            Ok(n) => (copied, had_data) = (copied + n, false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if had_data {
                    to.wait(Interest::Write)?;
                } else {
                    from.ready(Interest::Read)?;
                    // splice(2) waits for room before it looks for the end (`opipe_prep`,
                    // fs/splice.c).
                    if is_at_its_end(from.as_fd()) {
                        return Ok(copied);
                    }
                }
                // Another reader or writer may have been first: then the other one is asked.
                had_data = !had_data;
            }
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)) =>
            {
                return Ok(copied);
            }
            Err(e) => return Err(e),
        }
    }
}

/// Whether a pipe is empty and has no writers.
fn is_at_its_end(pipe: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok_and(|n| n == 1) && fds[0].revents() == PollFlags::HUP
}
