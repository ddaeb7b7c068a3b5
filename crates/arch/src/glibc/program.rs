//! The replaced functions that a library of the program replaces once more.
//!
//! `crates/interpose` puts its own definitions in front of those of this crate. Where it is linked
//! into the program, a name can have one definition only, so each of these names jumps to the
//! function that its [`Hook`] has: the one of this crate, until [`Hook::set`].

pub use super::hook::Hook;
pub use super::interpose::{
    CLOCK_GETTIME, PTHREAD_SIGMASK, SIGALTSTACK, SIGPROCMASK, SYSCALL, clock_gettime,
    pthread_sigmask, sigaltstack, sigprocmask, syscall,
};
pub use super::thread_start::{PTHREAD_CREATE, create as pthread_create};
pub use super::tls::interpose::attr::{
    PTHREAD_GETAFFINITY_NP, PTHREAD_GETATTR_NP, PTHREAD_GETCPUCLOCKID, PTHREAD_SETAFFINITY_NP,
    PTHREAD_SETSCHEDPARAM, pthread_getaffinity_np, pthread_getattr_np, pthread_getcpuclockid,
    pthread_setaffinity_np, pthread_setschedparam,
};
