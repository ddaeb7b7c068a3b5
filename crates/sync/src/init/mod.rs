//! One-time initialisation: `once` runs a closure once; `oncelock` and `lazylock` keep a value that
//! it computed. Uses `wait`.

pub(crate) mod lazylock;
pub(crate) mod once;
pub(crate) mod oncelock;
