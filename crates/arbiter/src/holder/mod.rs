//! The holder of a core as a waiter sees it.
//!
//! `thread_status` reads its state from /proc; `holder_watch` derives from that state and from the
//! slot's word what the waiter does next. Pure functions but for /proc. Uses `slot` and the reasons
//! of `board::overrides`; used by `seat` alone.

pub(crate) mod holder_watch;
pub(crate) mod thread_status;
