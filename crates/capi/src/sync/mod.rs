//! Locks, semaphores, barriers and channels: the headers of the same names.

pub mod barrier;
pub mod channel;
pub mod condition;
pub mod mutex;
pub mod rwlock;
pub mod semaphore;
