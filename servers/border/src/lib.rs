//! The border of a machine: connects the address spaces of one user on this machine with those on
//! others.
//!
//! A border is one process of each user and machine, `kumi border`. Programs and the command `kumi`
//! reach it at a socket in the run-time directory, and it reaches the borders of other machines. So
//! no program has a network connection, certificates or an asynchronous runtime of its own.
//!
//! From low to high:
//!
//! - `tls`: certificates, and what they state.
//! - `rights`: what an identity may do here.
//! - `config`: the configuration.
//! - [`site`]: an authority and certificates for a small site.
//! - `engine`: the connections between borders.
//! - `peers`: the other machines and their state.
//! - `calls`: calls of gates, to other machines and from them.
//! - `control`: what other machines may ask.
//! - `local`: what programs of this machine may ask.
//! - [`serve`]: the process.
#![forbid(unsafe_code)]

mod calls;
pub mod config;
mod control;
mod engine;
mod local;
mod peers;
mod rights;
pub mod serve;
pub mod site;
mod tls;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value that is never half changed when a panic comes: each change is one step.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
