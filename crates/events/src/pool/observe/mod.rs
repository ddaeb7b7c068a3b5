//! Observation of the pool: counters, stack samples, a shortage of threads, stalled VPs. Uses
//! `interface` and `state`.

pub mod counts;
mod sampling;
mod shortage;
mod vp_wait;
