//! Tests of the stores: the required behaviour ([`model`]), random [`operations`] on the model and
//! on a store under test, and the comparison of their results and contents ([`compare`]).
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
