//! A running child process.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::{ExitStatus, Output};
use std::time::Duration;

use kumihimo_resource::id::Id;
use kumihimo_runtime::readiness::Interest;
use kumihimo_runtime::{cancel, thread};
use kumihimo_sync::{Mutex, PoisonError};

use crate::descriptor::{Descriptor, FileClass, patient, poll};
use crate::fd_traits::{pipe_end, reads, writes};

/// The pipe to a child's standard input, as [`std::process::ChildStdin`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::Write;
/// use kumihimo::process::{Command, Stdio};
///
/// let mut child = Command::new("grep").args(["-q", "silk"]).stdin(Stdio::piped()).spawn()?;
/// let mut stdin = child.stdin.take().unwrap();
/// stdin.write_all(b"cotton\nsilk\n")?;
/// drop(stdin); // the end of the input
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ChildStdin(pub(crate) Descriptor<std::process::ChildStdin>);

/// The pipe from a child's standard output, as [`std::process::ChildStdout`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{BufRead, BufReader};
/// use kumihimo::process::{Command, Stdio};
///
/// let mut child = Command::new("echo").arg("one two").stdout(Stdio::piped()).spawn()?;
/// let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
/// assert_eq!(lines.next().unwrap()?, "one two");
/// child.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ChildStdout(pub(crate) Descriptor<std::process::ChildStdout>);

/// The pipe from a child's standard error, as [`std::process::ChildStderr`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::Read;
/// use kumihimo::process::{Command, Stdio};
///
/// let mut shell = Command::new("sh");
/// let mut child = shell.args(["-c", "echo oops >&2"]).stderr(Stdio::piped()).spawn()?;
/// let mut complaint = String::new();
/// child.stderr.take().unwrap().read_to_string(&mut complaint)?;
/// assert_eq!(complaint, "oops\n");
/// child.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ChildStderr(pub(crate) Descriptor<std::process::ChildStderr>);

pipe_end!(ChildStdin, std::process::ChildStdin);
pipe_end!(ChildStdout, std::process::ChildStdout);
pipe_end!(ChildStderr, std::process::ChildStderr);
writes!(ChildStdin);
reads!(ChildStdout);
reads!(ChildStderr);

impl ChildStdin {
    /// ID of this handle in the resource table, of kind `file`. `None` if the table was full when
    /// the handle was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::process::{Command, Stdio};
    /// use kumihimo::resource::Kind;
    ///
    /// let mut child = Command::new("true").stdin(Stdio::piped()).spawn()?;
    /// assert_eq!(child.stdin.as_ref().unwrap().resource().unwrap().kind(), Kind::FILE);
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }
}

impl ChildStdout {
    /// ID of this handle in the resource table, of kind `file`. `None` if the table was full when
    /// the handle was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::process::{Command, Stdio};
    /// use kumihimo::resource::Kind;
    ///
    /// let mut child = Command::new("true").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.stdout.as_ref().unwrap().resource().unwrap().kind(), Kind::FILE);
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }
}

impl ChildStderr {
    /// ID of this handle in the resource table, of kind `file`. `None` if the table was full when
    /// the handle was made.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::process::{Command, Stdio};
    /// use kumihimo::resource::Kind;
    ///
    /// let mut child = Command::new("true").stderr(Stdio::piped()).spawn()?;
    /// assert_eq!(child.stderr.as_ref().unwrap().resource().unwrap().kind(), Kind::FILE);
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn resource(&self) -> Option<Id> {
        self.0.resource()
    }
}

/// A child process, as [`std::process::Child`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{Read, Write};
/// use kumihimo::process::{Command, Stdio};
///
/// let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
/// child.stdin.take().unwrap().write_all(b"round trip")?;
/// let mut reply = String::new();
/// child.stdout.take().unwrap().read_to_string(&mut reply)?;
/// assert_eq!(reply, "round trip");
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    /// Its standard input, if piped.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if piped.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, if piped.
    pub stderr: Option<ChildStderr>,
}

impl From<std::process::Child> for Child {
    fn from(mut inner: std::process::Child) -> Child {
        let (stdin, stdout, stderr) =
            (inner.stdin.take(), inner.stdout.take(), inner.stderr.take());
        Child {
            inner,
            stdin: stdin.map(Into::into),
            stdout: stdout.map(Into::into),
            stderr: stderr.map(Into::into),
        }
    }
}

impl Child {
    /// The process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Kills the process by SIGKILL. It must still be waited for.
    ///
    /// # Errors
    /// As kill(2). None after a successful wait.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.kill()
    }

    /// Closes its standard input and waits for its exit. Blocks the microprocess. A cancellation
    /// point, unless the process has exited.
    ///
    /// # Errors
    /// As waitpid(2); `TimedOut` when the deadline of a scope has passed; the wait may be
    /// repeated.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(status) = self.inner.try_wait()? {
            return Ok(status);
        }
        // Ours, and not waited for: the number is nobody else's.
        // SAFETY: no pointers.
        let fd = unsafe { kumihimo_arch::call!(libc::SYS_pidfd_open, self.inner.id(), 0) };
        if fd < 0 {
            cancel::point();
            return thread::blocking(|| self.inner.wait());
        }
        // SAFETY: fresh from the kernel, owned by nobody else.
        let pidfd = Descriptor::new(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        pidfd.attempt(Interest::Read, || {
            self.inner.try_wait()?.ok_or(io::ErrorKind::WouldBlock.into())
        })
    }

    /// The exit status, if the process has exited. Never blocks.
    ///
    /// # Errors
    /// As waitpid(2).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait()
    }

    /// Closes its standard input, collects its standard output and standard error if they are
    /// piped, and waits for its exit. Blocks the microprocess. A cancellation point.
    ///
    /// # Errors
    /// As read(2) and waitpid(2); `TimedOut` when the deadline of a scope has passed: the
    /// collected output is lost, and the child is not awaited any more.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        self.collect()
    }

    pub(super) fn collect(&mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        match (self.stdout.take(), self.stderr.take()) {
            (None, None) => {}
            (Some(mut out), None) => {
                out.read_to_end(&mut stdout)?;
            }
            (None, Some(mut err)) => {
                err.read_to_end(&mut stderr)?;
            }
            (Some(out), Some(err)) => read_both(out.0, &mut stdout, err.0, &mut stderr)?,
        }
        Ok(Output { status: self.wait()?, stdout, stderr })
    }

    /// As [`wait`](Child::wait), for a child without another owner: if the wait is interrupted,
    /// later calls reap the child.
    pub(super) fn left_if_cut_short<T>(
        self,
        wait: fn(&mut Child) -> io::Result<T>,
    ) -> io::Result<T> {
        struct Left(Option<Child>);
        impl Drop for Left {
            fn drop(&mut self) {
                if let Some(mut child) = self.0.take()
                    && matches!(child.try_wait(), Ok(None))
                {
                    LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(child.inner);
                }
            }
        }
        wait(Left(Some(self)).0.as_mut().expect("put in just now"))
    }
}

/// Children without an owner, still to be reaped.
static LEFT: Mutex<Vec<std::process::Child>> = Mutex::new(Vec::new());

/// Reaps the orphaned children that have exited.
pub(super) fn reap_left() {
    LEFT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// Reads both to their ends, whichever is ready.
fn read_both(
    out: Descriptor<std::process::ChildStdout>,
    stdout: &mut Vec<u8>,
    err: Descriptor<std::process::ChildStderr>,
    stderr: &mut Vec<u8>,
) -> io::Result<()> {
    // Readable when one of them is. None: no descriptor is left for it, and a kernel thread waits.
    let set = epoll_set(&[out.inner.as_fd(), err.inner.as_fd()])
        .map(|set| Descriptor::with_class(set, FileClass::Polled))
        .ok();
    let (mut out, mut err) = (Some(out), Some(err));
    loop {
        let mut attempt = || {
            drain(&mut out, stdout)?;
            drain(&mut err, stderr)?;
            if out.is_none() && err.is_none() {
                Ok(())
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        if let Some(set) = &set {
            return set.attempt(Interest::Read, attempt);
        }
        match patient(&mut attempt) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        cancel::point();
        thread::blocking(|| {
            poll_both([out.as_ref().map(Descriptor::fd), err.as_ref().map(Descriptor::fd)])
        });
    }
}

/// Sleeps until one is readable; may return spuriously.
fn poll_both(fds: [Option<RawFd>; 2]) {
    // poll(2) ignores negative descriptors.
    let mut all =
        fds.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    // SAFETY: two live pollfds.
    unsafe { kumihimo_arch::kernel::poll(all.as_mut_ptr(), 2, -1) };
}

/// Reads the available bytes; `None` at the end.
fn drain<S: AsFd>(end: &mut Option<Descriptor<S>>, into: &mut Vec<u8>) -> io::Result<()> {
    while let Some(open) = end
        && poll(open.inner.as_fd(), Interest::Read, Some(Duration::ZERO))?
    {
        into.try_reserve(4096)?;
        if open.read_spare(into)? == 0 {
            *end = None;
        }
    }
    Ok(())
}

fn epoll_set(fds: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let set = unsafe { kumihimo_arch::kernel::epoll_create1(libc::EPOLL_CLOEXEC) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    let set = unsafe { OwnedFd::from_raw_fd(set) };
    for fd in fds {
        let (set, fd) = (set.as_raw_fd(), fd.as_raw_fd());
        kumihimo_arch::kernel::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, 0)?;
    }
    Ok(set)
}
