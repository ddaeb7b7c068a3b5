//! Runs each example as a user does, and checks its output.

mod files;
mod futures;
mod http;
mod pprof;
mod program;
mod proxy;
mod redis;
mod resources;
mod start;
mod tls;
