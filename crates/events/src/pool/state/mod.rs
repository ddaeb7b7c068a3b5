//! State that the threads of the pool share. Uses `handoff` and what lies below it.

pub(crate) mod pending_starts;
pub(crate) mod ready_list;
pub mod record;
pub(crate) mod timekeeper;
