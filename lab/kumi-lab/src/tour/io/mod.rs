//! Chapters about input and output, with a microprocess for each file or connection.
//!
//! - `files`, `echo`, `many`: chapters 4 to 6, a directory tree and sockets.
//! - `mounts`: chapter 12, a file server in five organisations.
//!
//! Each runs the same blocking code on kernel threads and on microprocesses, and shows both. `many`
//! uses the benchmarks' contenders, `mounts` this program's own `mount`.

pub mod echo;
pub mod files;
pub mod many;
pub mod mounts;
