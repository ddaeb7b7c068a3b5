//! Standard input.

use std::fmt;
use std::io::{self, BufRead, BufReader, IoSliceMut, IsTerminal, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;

use kumihimo_sync::{Mutex, MutexGuard, PoisonError};

use super::raw::Raw;

struct Input {
    buffer: Mutex<BufReader<Raw>>,
}

static INPUT: OnceLock<Input> = OnceLock::new();

/// The process's standard input, as [`std::io::Stdin`]; made by [`stdin`].
#[derive(Clone, Copy)]
pub struct Stdin(&'static Input);

/// Exclusive access to standard input; made by [`Stdin::lock`].
pub struct StdinLock<'a>(MutexGuard<'a, BufReader<Raw>>);

/// The process's standard input, with one buffer for the process. The buffer is not std's: input
/// that std has buffered is not returned here.
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
    /// A cancellation point.
    ///
    /// # Errors
    /// As read(2); `InvalidData` if it is not UTF-8; `TimedOut` when the deadline of a scope has
    /// passed.
    pub fn read_line(&self, line: &mut String) -> io::Result<usize> {
        self.lock().read_line(line)
    }

    /// The lines, without their ends.
    #[must_use]
    pub fn lines(self) -> io::Lines<StdinLock<'static>> {
        self.lock().lines()
    }

    /// Whether it is a terminal ([`std::io::IsTerminal`] is for std's own types only).
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.as_fd().is_terminal()
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
