//! Proof of the stores, for tests only: what a store must do ([`model`]), random [`operations`] on
//! it and on a store under test, and whether both say and keep the same ([`compare`]).
#![forbid(unsafe_code)]

pub mod compare;
pub mod fuzz;
pub mod hostile;
pub mod model;
pub mod operations;
pub mod power;
pub mod run;
pub mod subject;
pub mod watch;

pub use subject::{clock, disks, ext2, images, paths};
