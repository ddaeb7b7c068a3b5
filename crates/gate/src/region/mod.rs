//! Regions: payloads that are passed by reference.
//!
//! Lives here: sealed memory that address spaces share; the table of the regions that one side of a
//! link has passed; the regions that it has received.
//!
//! Data: a descriptor goes over a link's socket once; requests and replies name the region by
//! number from then on.
//!
//! Uses `lane` for the numbers of cells, and `memory`.

pub(crate) mod received_regions;
pub(crate) mod region_table;
pub(crate) mod sealed;
