//! Models of the lot and of the locks on it: the files that ship, on a C library and a runtime of a
//! few lines. A lost wake-up is a thread that sleeps for ever, which loom reports as a deadlock.
//!
//! `RUSTFLAGS='--cfg loom' cargo test -p kumihimo-interpose --release --test loom`
#![cfg(loom)]
#![allow(dead_code, clippy::missing_safety_doc)]

#[path = "../src/lock/mod.rs"]
mod lock;
#[path = "../src/loom.rs"]
mod loom;
#[path = "loom/model.rs"]
mod model;
#[path = "loom/models.rs"]
mod models;

use model::special;

// The rooms of the crate, of which the models have a part.
mod signal {
    pub(crate) use crate::model::{cancel, signal::section};
}
mod start {
    pub(crate) use crate::model::phase;
}
mod thread {
    pub(crate) use crate::model::record;
}
mod time {
    pub(crate) use crate::model::deadline;
}

fn failed(_error: std::ffi::c_int) -> std::ffi::c_int {
    -1
}
