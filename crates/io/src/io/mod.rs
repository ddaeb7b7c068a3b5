//! Input and output: `std::io`, with `use std` changed to `use kumihimo`.
//!
//! Traits, buffers and errors are std's own. Of Kumihimo are the standard streams, [`pipe`] and
//! [`copy`], which block the calling microprocess only; from a plain std thread, that thread.
//!
//! - The standard streams are waited for by readiness where they can be polled (terminals, pipes,
//!   sockets). `O_NONBLOCK` is never set on them, since that would change the open file that other
//!   processes share; where another one has set it, Kumihimo's calls wait all the same. Redirected
//!   to a file they are written as [`fs`](crate::fs) says.
//! - `print!` and the like are std's, with a buffer of its own and a lock that blocks the kernel
//!   thread: use `writeln!` with [`stdout`], and in one program the one or the other.
//! - Waits end at the deadline of a scope, with `TimedOut`, and by cancellation.
//! - A closed standard descriptor reads as empty and takes everything, as in std. Writing to a
//!   pipe without a reader is `BrokenPipe`: Rust programs ignore SIGPIPE. In one that does not
//!   (`main` in C, `-Zon-broken-pipe`), that signal ends the process.
//!
//! Source: the manual pages pipe(7), splice(2), stdin(3).

mod copy;
pub(crate) mod pipe;
mod raw;
mod reentrant;
mod stdin;
mod stdout;

pub use std::io::*;

pub use copy::copy;
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use stdin::{Stdin, StdinLock, stdin};
pub use stdout::{Stderr, StderrLock, Stdout, StdoutLock, stderr, stdout};
