//! Writes to standard error where neither an allocator nor std's lock of it may be used: in signal
//! handlers, and in code that looks after stuck threads.

use std::fmt::{self, Write};

/// Text of a bounded length; what does not fit is dropped.
struct Line {
    text: [u8; 1024],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let n = s.len().min(self.text.len() - self.len);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Writes `what`, of which 1,024 bytes at most. Async-signal-safe if its parts are.
pub(crate) fn say(what: fmt::Arguments<'_>) {
    let mut line = Line { text: [0; 1024], len: 0 };
    let _ = line.write_fmt(what);
    write_out(&line.text[..line.len]);
}

/// All of it, past std's lock. Async-signal-safe.
pub(crate) fn write_out(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: as many live bytes.
        let n = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => bytes = &bytes[n..],
            _ => return,
        }
    }
}
