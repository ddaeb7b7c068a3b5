//! One-time initialisation: `once` runs a closure once; `oncelock` and `lazylock` store a value
//! that the closure computes. Depends on `wait`.

pub(crate) mod lazylock;
pub(crate) mod once;
pub(crate) mod oncelock;
