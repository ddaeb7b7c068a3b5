//! Kernel threads of the runtime: the record that GS points to, masking of events, core affinity,
//! time slices, and fork(2).
//!
//! Every lock of the runtime is taken through `no_events`, which keeps the holder's VP from being
//! taken over. May use `microprocess` and `process`.

pub(crate) mod affinity;
pub(crate) mod applied;
pub(crate) mod attributes;
pub(crate) mod fork;
pub(crate) mod gs_record;
pub(crate) mod kernel_slice;
pub(crate) mod known;
pub(crate) mod no_events;
