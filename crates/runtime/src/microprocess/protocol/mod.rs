//! Protocols on one word of a microprocess's record: the state, the parker of a sticky
//! microprocess, and the wake flag of a future's driver.
//!
//! Wakers call in from any thread; the thread that moves the state to LIVE queues the record in a
//! higher room. Each protocol has loom models in its `tests/loom.rs`. The modules do not depend
//! on the record, and may use `loom` only.

pub(crate) mod state;
pub(crate) mod sticky_parker;
pub(crate) mod wake_flag;
