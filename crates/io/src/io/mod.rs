//! Input and output: `std::io`, with `use std` changed to `use kumihimo`.
//!
//! Traits, buffers and errors are std's own. The standard streams, [`pipe`] and [`copy`] are
//! Kumihimo's: they block the calling microprocess only, or a calling std thread.
//!
//! - The standard streams are waited for by readiness where they can be polled (terminals, pipes,
//!   sockets). `O_NONBLOCK` is never set on them, since that would change the open file that other
//!   processes share; where another process has set it, Kumihimo's calls still wait. Streams that
//!   are redirected to a file behave as described in [`fs`](crate::fs).
//! - `print!` and the like are std's, with a buffer of its own and a lock that blocks the kernel
//!   thread: use `writeln!` with [`stdout`], and do not mix the two in one program.
//! - Waits end at the deadline of a scope, with `TimedOut`, and by cancellation.
//! - A closed standard descriptor reads as empty and takes everything, as in std. Writing to a
//!   pipe without a reader is `BrokenPipe`: Rust programs ignore SIGPIPE. In a program that
//!   does not (`main` in C, `-Zon-broken-pipe`), the signal terminates the process.
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
