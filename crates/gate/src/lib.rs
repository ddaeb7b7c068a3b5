//! Calls between address spaces at the price of a hand-off (P0, section 4).
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(loom))]
mod call_chain;
#[cfg(not(loom))]
mod client;
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
mod memory;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod resource_entry;
#[cfg(not(loom))]
mod server;
#[cfg(not(loom))]
mod wire;

#[cfg(not(loom))]
pub use client::stream::Stream;
pub use error::{Error, ErrorKind};
#[cfg(not(loom))]
pub use gate::{Gate, RawGate};
#[cfg(not(loom))]
pub use options::{Options, Placement};
#[cfg(not(loom))]
pub use region::sealed::{Region, RegionMut};
#[cfg(not(loom))]
pub use server::request::Context;
#[cfg(not(loom))]
pub use server::server_loop::{Item, Server};
#[cfg(not(loom))]
pub use server::serving::Serving;
#[cfg(not(loom))]
pub use server::sink::Sink;
#[cfg(not(loom))]
#[doc(hidden)]
pub use wire::codec;
