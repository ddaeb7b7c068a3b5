//! Async-signal-safe writes to standard error, without an allocation and without std's lock.
//!
//! For signal handlers, and for code that reports stuck threads: a stuck thread may hold std's lock
//! or the allocator's (signal-safety(7)).

use std::fmt::{self, Write};

/// A line of bounded length. Text beyond it is dropped.
struct LineBuffer {
    text: [u8; 1024],
    len: usize,
}

impl Write for LineBuffer {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let n = s.len().min(self.text.len() - self.len);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Writes the first 1,024 bytes of `what`. Async-signal-safe if its parts are.
pub(crate) fn print_signal_safe(what: fmt::Arguments<'_>) {
    let mut line = LineBuffer { text: [0; 1024], len: 0 };
    let _ = line.write_fmt(what);
    write_signal_safe(&line.text[..line.len]);
}

/// Writes all of `bytes`. Async-signal-safe.
pub(crate) fn write_signal_safe(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: `bytes` has as many live bytes.
        let n = unsafe {
            kumihimo_arch::kernel::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len())
        };
        match usize::try_from(n) {
            Ok(n) if n > 0 => bytes = &bytes[n..],
            _ => return,
        }
    }
}
