//! Regions: payloads that are passed by reference.

pub(crate) mod received_regions;
pub(crate) mod region_table;
pub(crate) mod sealed;
