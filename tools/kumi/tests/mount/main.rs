//! Tests of `kumi mount` from the outside: POSIX conformance compared with the kernel's file
//! systems, real workloads, crashes, and refused requests.
//!
//! All five organisations run the same suite. The large workloads (`git`, `tar`, `rsync`, sqlite3
//! with many commits) run in all of them on ext2. On the host store, which takes the same path
//! through the server, they run in two.

mod crash;
mod denials;
mod full;
mod ground;
mod lives;
mod organisations;
mod posix;
mod refused;
mod work;
