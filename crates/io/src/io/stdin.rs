//! Standard input.

use std::fmt;
use std::io::{self, BufRead, BufReader, IoSliceMut, IsTerminal, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;

use kumihimo_sync::{Mutex, MutexGuard, PoisonError};

use super::raw::Raw;

struct Input {
    buffer: Mutex<BufReader<Raw>>,
}

static INPUT: OnceLock<Input> = OnceLock::new();

/// The process's standard input, as [`std::io::Stdin`]; made by [`stdin`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, Read};
///
/// # let (input, mut writer) = kumihimo::io::pipe()?;
/// # std::io::Write::write_all(&mut writer, b"warp and weft")?;
/// # drop(writer);
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&input), 0) }, 0);
/// // The input is "warp and weft".
/// let mut text = String::new();
/// io::stdin().read_to_string(&mut text)?;
/// assert_eq!(text.split(' ').count(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Stdin(&'static Input);

/// Exclusive access to standard input; made by [`Stdin::lock`].
///
/// # Examples
///
/// ```
/// use kumihimo::io::{self, BufRead};
///
/// # let (input, mut writer) = kumihimo::io::pipe()?;
/// # std::io::Write::write_all(&mut writer, b"key=value")?;
/// # drop(writer);
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&input), 0) }, 0);
/// // The input is "key=value".
/// let mut input = io::stdin().lock();
/// let (mut key, mut value) = (Vec::new(), Vec::new());
/// input.read_until(b'=', &mut key)?;
/// input.read_until(b'\n', &mut value)?;
/// assert_eq!((&key[..], &value[..]), (&b"key="[..], &b"value"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StdinLock<'a>(MutexGuard<'a, BufReader<Raw>>);

// As in std: a panic in the middle of a read leaves a stream that can be read from.
impl UnwindSafe for Stdin {}
impl RefUnwindSafe for Stdin {}
impl UnwindSafe for StdinLock<'_> {}
impl RefUnwindSafe for StdinLock<'_> {}

/// The process's standard input, with one buffer for the process. The buffer is not std's: input
/// that std has buffered is not returned here.
///
/// # Examples
///
/// ```
/// use kumihimo::io;
///
/// # let (input, mut writer) = kumihimo::io::pipe()?;
/// # std::io::Write::write_all(&mut writer, b"3\n4\n")?;
/// # drop(writer);
/// # assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&input), 0) }, 0);
/// // The input is "3\n4\n".
/// let mut sum = 0;
/// for line in io::stdin().lines() {
///     sum += line?.parse::<i32>().unwrap();
/// }
/// assert_eq!(sum, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn stdin() -> Stdin {
    Stdin(
        INPUT.get_or_init(|| Input { buffer: Mutex::new(BufReader::new(Raw(libc::STDIN_FILENO))) }),
    )
}

impl Stdin {
    /// Acquires exclusive access. Blocks the microprocess.
    #[must_use]
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock(self.0.buffer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends the next line, its end included, and returns its length; 0 at the end of the input.
    /// Blocks the microprocess until there is a line. A cancellation point.
    ///
    /// # Errors
    /// As read(2); `InvalidData` if it is not UTF-8; `TimedOut` when the deadline of a scope has
    /// passed.
    pub fn read_line(&self, line: &mut String) -> io::Result<usize> {
        self.lock().read_line(line)
    }

    /// The lines, without their ends. Each item blocks the microprocess until there is a line.
    #[must_use]
    pub fn lines(self) -> io::Lines<StdinLock<'static>> {
        self.lock().lines()
    }

    /// Whether it is a terminal ([`std::io::IsTerminal`] is for std's own types only).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::io;
    /// use std::io::IsTerminal;
    ///
    /// assert_eq!(io::stdin().is_terminal(), std::io::stdin().is_terminal());
    /// ```
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.as_fd().is_terminal()
    }
}

impl StdinLock<'_> {
    /// The buffer of the process's standard input.
    pub(super) fn buffered(&mut self) -> &mut BufReader<Raw> {
        &mut self.0
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.lock().read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.lock().read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        self.lock().read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.lock().read_exact(buf)
    }
}

impl Read for &Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buf)
    }
}

impl Read for StdinLock<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.0.read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        self.0.read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(buf)
    }
}

impl BufRead for StdinLock<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.0.consume(n);
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdin").finish_non_exhaustive()
    }
}

impl fmt::Debug for StdinLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdinLock").finish_non_exhaustive()
    }
}

macro_rules! descriptor {
    ($type:ty, $number:expr) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                Raw($number).fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                $number
            }
        }
    };
}

pub(super) use descriptor;

descriptor!(Stdin, libc::STDIN_FILENO);
descriptor!(StdinLock<'_>, libc::STDIN_FILENO);
