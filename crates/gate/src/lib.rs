//! Calls between address spaces at the price of a hand-off (P0, section 4).
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod board;
#[cfg(not(loom))]
mod call;
#[cfg(not(loom))]
mod chain;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod codec;
#[cfg(not(loom))]
mod entered;
#[cfg_attr(loom, allow(dead_code))]
mod error;
#[cfg(not(loom))]
mod gate;
#[cfg(not(loom))]
mod hello;
#[cfg(not(loom))]
mod hosted;
#[cfg(not(loom))]
mod knock;
#[doc(hidden)]
pub mod lane;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod looks;
#[cfg(not(loom))]
mod memory;
#[cfg(all(test, not(loom)))]
mod memory_tests;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod packet;
#[cfg(not(loom))]
mod passed;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod porter;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod regions;
#[cfg(not(loom))]
mod serve;
#[cfg(not(loom))]
mod side;
#[cfg(not(loom))]
mod stream;
#[cfg(not(loom))]
mod types;
#[cfg(not(loom))]
mod wire;

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
