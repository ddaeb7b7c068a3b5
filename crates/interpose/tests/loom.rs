//! Models of the lot and of the locks on it: the files that ship, on a C library and a runtime of a
//! few lines. A lost wake-up is a thread that sleeps for ever, which loom reports as a deadlock.
//!
//! `RUSTFLAGS='--cfg loom' cargo test -p kumihimo-interpose --release --test loom`
#![cfg(loom)]
#![allow(dead_code, clippy::missing_safety_doc)]

#[path = "../src/barrier.rs"]
mod barrier;
#[path = "../src/condition.rs"]
mod condition;
#[path = "../src/futex.rs"]
mod futex;
#[path = "../src/loom.rs"]
mod loom;
#[path = "../src/lot.rs"]
mod lot;
#[path = "loom/model.rs"]
mod model;
#[path = "loom/models.rs"]
mod models;
#[path = "../src/mutex.rs"]
mod mutex;
#[path = "../src/rwlock.rs"]
mod rwlock;
#[path = "../src/semaphore.rs"]
mod semaphore;
#[path = "../src/spin.rs"]
mod spin;

use model::{cancel, deadline, phase, record, signal, special};

fn failed(_error: std::ffi::c_int) -> std::ffi::c_int {
    -1
}
