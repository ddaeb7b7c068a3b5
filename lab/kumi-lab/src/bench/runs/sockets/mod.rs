//! Servers on sockets, each on separate cores, with a load on the others.
//!
//! - `echo`: many connections in a closed loop; `connections`: as many as memory allows, idle.
//! - `kv`: the key-value servers under Redis's own benchmark; `http`: servers of HTTP under wrk.
//! - `priority_io`: few timed connections beside many busy ones.
//!
//! A server and its load form a pair of `contender`. Slices of their counters become samples.

pub mod connections;
pub mod echo;
pub mod http;
pub mod kv;
pub mod priority_io;
