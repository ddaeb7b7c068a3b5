//! Discrete-event simulations for machines with more than two cores: the three locking designs of
//! the resource interface (P3) on 1 to 64 cores (`locks`), and the queue designs (P4) on 2 to 128
//! processors ([`spread`]). The times of single steps are input, measured or from a paper. Both
//! simulations are checked against the papers' own figures ([`tender`], [`lesser_bear`]).
#![forbid(unsafe_code)]

pub mod engine;
pub mod lesser_bear;
pub mod locks;
pub mod spread;
pub mod tender;
