//! Proof of the stores, for tests only: what a store must do ([`model`]), random [`operations`] on
//! it and on a store under test, and whether both say and keep the same ([`compare`]).
#![forbid(unsafe_code)]

pub mod clock;
pub mod compare;
pub mod disks;
pub mod ext2;
pub mod fuzz;
pub mod hostile;
pub mod images;
pub mod model;
pub mod operations;
pub mod paths;
pub mod power;
pub mod run;
pub mod watch;
