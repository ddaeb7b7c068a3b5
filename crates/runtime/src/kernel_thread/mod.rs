//! Kernel threads of the runtime: the record behind GS, masking of events, cores, time slices, and
//! what fork(2) leaves of them.
//!
//! Every lock of the runtime is taken through `no_events`, which keeps the virtual processor in
//! place. May use `microprocess` and `process`.

pub(crate) mod affinity;
pub(crate) mod fork;
pub(crate) mod gs_record;
pub(crate) mod kernel_slice;
pub(crate) mod no_events;
