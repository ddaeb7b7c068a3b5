//! Standard output and standard error.

use std::fmt;
use std::io::{self, IoSlice, IsTerminal, LineWriter, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;

use kumihimo_runtime::cancel::masked;

use super::raw::Raw;
use super::reentrant::{Reentrant, ReentrantGuard};
use super::stdin::descriptor;

static OUT: OnceLock<Reentrant<LineWriter<Raw>>> = OnceLock::new();
static ERR: OnceLock<Reentrant<Raw>> = OnceLock::new();

/// The process's standard output, as [`std::io::Stdout`]; made by [`stdout`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Write};
///
/// # let (mut reader, writer) = kumihimo::io::pipe()?;
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), 1) }, 1);
/// let mut out = io::stdout();
/// write!(out, "{} of ", 3)?;
/// writeln!(out, "{}", 4)?;
/// # let mut printed = [0; 64];
/// # let n = std::io::Read::read(&mut reader, &mut printed)?;
/// # let printed = std::str::from_utf8(&printed[..n]).unwrap();
/// assert_eq!(printed, "3 of 4\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Stdout(&'static Reentrant<LineWriter<Raw>>);

/// Exclusive access to standard output; made by [`Stdout::lock`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Write};
///
/// # let (mut reader, writer) = kumihimo::io::pipe()?;
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), 1) }, 1);
/// let mut out = io::stdout().lock();
/// // No other thread can print between these lines.
/// writeln!(out, "over")?;
/// writeln!(out, "under")?;
/// drop(out);
/// # let mut printed = [0; 64];
/// # let n = std::io::Read::read(&mut reader, &mut printed)?;
/// # let printed = std::str::from_utf8(&printed[..n]).unwrap();
/// assert_eq!(printed, "over\nunder\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StdoutLock<'a>(ReentrantGuard<LineWriter<Raw>>, PhantomData<&'a ()>);

/// The process's standard error, as [`std::io::Stderr`]; made by [`stderr`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Write};
///
/// # let (mut reader, writer) = kumihimo::io::pipe()?;
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), 2) }, 2);
/// write!(io::stderr(), "50%")?; // shown at once: there is no buffer
/// # let mut printed = [0; 64];
/// # let n = std::io::Read::read(&mut reader, &mut printed)?;
/// # let printed = std::str::from_utf8(&printed[..n]).unwrap();
/// assert_eq!(printed, "50%");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Stderr(&'static Reentrant<Raw>);

/// Exclusive access to standard error; made by [`Stderr::lock`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Write};
///
/// # let (mut reader, writer) = kumihimo::io::pipe()?;
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), 2) }, 2);
/// let mut log = io::stderr().lock();
/// log.write_all(b"warning: ")?;
/// log.write_all(b"loose end\n")?;
/// drop(log);
/// # let mut printed = [0; 64];
/// # let n = std::io::Read::read(&mut reader, &mut printed)?;
/// # let printed = std::str::from_utf8(&printed[..n]).unwrap();
/// assert_eq!(printed, "warning: loose end\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StderrLock<'a>(ReentrantGuard<Raw>, PhantomData<&'a ()>);

// As in std: a panic in the middle of a write leaves a stream that can be written to.
impl UnwindSafe for Stdout {}
impl RefUnwindSafe for Stdout {}
impl UnwindSafe for StdoutLock<'_> {}
impl RefUnwindSafe for StdoutLock<'_> {}
impl UnwindSafe for Stderr {}
impl RefUnwindSafe for Stderr {}
impl UnwindSafe for StderrLock<'_> {}
impl RefUnwindSafe for StderrLock<'_> {}

/// The process's standard output, line-buffered. The buffer is not std's. It is flushed at `exit`,
/// as in std, unless the lock is held then.
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Write};
/// use kumihimo::thread;
///
/// # let (mut reader, writer) = kumihimo::io::pipe()?;
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), 1) }, 1);
/// let printer = thread::spawn(|| writeln!(io::stdout(), "hello"));
/// printer.join().unwrap()?;
/// # let mut printed = [0; 64];
/// # let n = std::io::Read::read(&mut reader, &mut printed)?;
/// # let printed = std::str::from_utf8(&printed[..n]).unwrap();
/// assert_eq!(printed, "hello\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn stdout() -> Stdout {
    Stdout(OUT.get_or_init(|| {
        // SAFETY: the function may run at any later time. If registration fails, buffered output is
        // lost at exit.
        unsafe { libc::atexit(flush_at_exit) };
        Reentrant::new(LineWriter::new(Raw(libc::STDOUT_FILENO)))
    }))
}

/// The process's standard error, without a buffer.
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Write};
///
/// # let (mut reader, writer) = kumihimo::io::pipe()?;
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writer), 2) }, 2);
/// writeln!(io::stderr(), "cannot open {:?}", "loom.toml")?;
/// # let mut printed = [0; 64];
/// # let n = std::io::Read::read(&mut reader, &mut printed)?;
/// # let printed = std::str::from_utf8(&printed[..n]).unwrap();
/// assert_eq!(printed, "cannot open \"loom.toml\"\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn stderr() -> Stderr {
    Stderr(ERR.get_or_init(|| Reentrant::new(Raw(libc::STDERR_FILENO))))
}

extern "C" fn flush_at_exit() {
    // Nothing may unwind out of this function, and no caller is left to report an error to.
    masked(|| {
        if let Some(out) = OUT.get().and_then(Reentrant::try_lock)
            && let Ok(mut out) = out.try_borrow_mut()
        {
            let _ = out.flush();
        }
    });
}

macro_rules! output {
    ($stream:ident, $lock:ident, $number:expr) => {
        impl $stream {
            /// Acquires exclusive access; the lock is reentrant. Blocks the microprocess.
            #[must_use]
            pub fn lock(&self) -> $lock<'static> {
                $lock(self.0.lock(), PhantomData)
            }

            /// Whether it is a terminal ([`std::io::IsTerminal`] is for std's own types only).
            ///
            /// # Examples
            ///
            /// ```
            /// use kumihimo::io;
            /// use std::io::IsTerminal;
            ///
            /// assert_eq!(io::stdout().is_terminal(), std::io::stdout().is_terminal());
            /// assert_eq!(io::stderr().is_terminal(), std::io::stderr().is_terminal());
            /// ```
            #[must_use]
            pub fn is_terminal(&self) -> bool {
                self.as_fd().is_terminal()
            }
        }

        output!(through $stream);
        output!(through &$stream);
        output!(debug $stream);
        output!(debug $lock<'_>);
        descriptor!($stream, $number);
        descriptor!($lock<'_>, $number);

        impl Write for $lock<'_> {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.0.borrow_mut().write(buf)
            }
            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0.borrow_mut().write_vectored(bufs)
            }
            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                self.0.borrow_mut().write_all(buf)
            }
            fn flush(&mut self) -> io::Result<()> {
                self.0.borrow_mut().flush()
            }
        }
    };
    // Each call locks: its output is not interleaved with that of other threads.
    (through $type:ty) => {
        impl Write for $type {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.lock().write(buf)
            }
            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.lock().write_vectored(bufs)
            }
            fn write_all(&mut self, buf: &[u8]) -> io::Result<()> {
                self.lock().write_all(buf)
            }
            fn write_fmt(&mut self, args: fmt::Arguments<'_>) -> io::Result<()> {
                self.lock().write_fmt(args)
            }
            fn flush(&mut self) -> io::Result<()> {
                self.lock().flush()
            }
        }
    };
    (debug $type:ty) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($type), " { .. }"))
            }
        }
    };
}

output!(Stdout, StdoutLock, libc::STDOUT_FILENO);
output!(Stderr, StderrLock, libc::STDERR_FILENO);
