//! Discrete-event simulations of what two cores cannot measure: the three locking designs of the
//! resource interface (P3) on 1 to 64 cores (`locks`), and the queue designs (P4) on 2 to 128
//! processors ([`spread`]). Both take the times of single steps as input, measured or from a paper,
//! and both are checked against the papers' own figures ([`tender`], [`lesser_bear`]).
#![forbid(unsafe_code)]

pub mod engine;
pub mod lesser_bear;
pub mod locks;
pub mod spread;
pub mod tender;
