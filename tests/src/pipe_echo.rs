//! A kernel thread that echoes bytes over std's pipes. The runtime does not control these pipes, so
//! a microprocess that waits for an echo blocks in the kernel.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Duration;

/// The client's ends of the two pipes. The thread ends when this value is dropped.
#[derive(Debug)]
pub struct PipeEcho {
    to: PipeWriter,
    from: PipeReader,
}

impl PipeEcho {
    /// Starts a thread that echoes each byte at once.
    ///
    /// # Panics
    /// If no descriptors are available.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> PipeEcho {
        PipeEcho::delayed(|_| None)
    }

    /// Starts a thread that sleeps for the duration that `delay` returns before it echoes a byte.
    ///
    /// # Panics
    /// If no descriptors are available.
    #[must_use]
    pub fn delayed(delay: fn(u8) -> Option<Duration>) -> PipeEcho {
        let ((mut asked, to), (from, mut answers)) =
            (pipe().expect("a pipe"), pipe().expect("a pipe"));
        std::thread::spawn(move || {
            let mut byte = [0];
            // A read or write fails after the other end of the pipe has been closed.
            while asked.read(&mut byte).is_ok_and(|n| n == 1) {
                if let Some(time) = delay(byte[0]) {
                    std::thread::sleep(time);
                }
                if answers.write_all(&byte).is_err() {
                    return;
                }
            }
        });
        PipeEcho { to, from }
    }

    /// Sends `byte` and waits for the echo.
    ///
    /// # Panics
    /// If the echo differs or the thread has ended.
    pub fn ask(&mut self, byte: u8) {
        let mut got = [0];
        self.to.write_all(&[byte]).expect("the thread reads");
        self.from.read_exact(&mut got).expect("the thread answers");
        assert_eq!(got, [byte]);
    }
}
