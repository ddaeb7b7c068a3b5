//! Calls between address spaces at the price of a hand-off (P0, section 4).
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(loom))]
mod call_chain;
#[cfg(not(loom))]
mod client_link;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod codec;
#[cfg(not(loom))]
mod endpoint;
#[cfg_attr(loom, allow(dead_code))]
mod error;
#[cfg(not(loom))]
mod gate;
#[cfg(not(loom))]
mod handshake;
#[doc(hidden)]
pub mod lane;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod link_index;
#[cfg(not(loom))]
mod link_poller;
#[cfg(not(loom))]
mod memory;
#[cfg(all(test, not(loom)))]
mod memory_tests;
#[cfg(not(loom))]
mod message;
#[cfg(not(loom))]
mod notifier;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod packet;
#[cfg(not(loom))]
mod received_regions;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod region_table;
#[cfg(not(loom))]
mod resource_entry;
#[cfg(not(loom))]
mod serve;
#[cfg(not(loom))]
mod server_link;
#[cfg(not(loom))]
mod service;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod type_hash;
#[cfg(not(loom))]
mod wake_address;

pub use error::{Error, ErrorKind};
#[cfg(not(loom))]
pub use gate::{Gate, RawGate};
#[cfg(not(loom))]
pub use options::{Options, Placement};
#[cfg(not(loom))]
pub use region::{Region, RegionMut};
#[cfg(not(loom))]
pub use serve::{Context, Item, Server, Serving};
#[cfg(not(loom))]
pub use stream::{Sink, Stream};
