//! Calls between address spaces at the price of a hand-off (P0, section 4).
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(loom, allow(dead_code))]

// Rooms, from low to high: lane, region, wire, handshake, link, client and server.
mod error;
#[doc(hidden)]
pub mod lane;
mod loom;

#[cfg(not(loom))]
mod call_chain;
#[cfg(not(loom))]
mod client;
#[cfg(all(not(loom), feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(loom))]
mod gate;
#[cfg(not(loom))]
mod handshake;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod metrics;
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod quota;
#[cfg(not(loom))]
mod raw_gate;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod resource_entry;
#[cfg(not(loom))]
mod server;
#[cfg(not(loom))]
mod wire;

#[cfg(loom)]
use model::{client, link, options};

pub use error::{Error, ErrorKind};
#[cfg(not(loom))]
#[doc(hidden)]
pub use wire::{codec, remote_call};
#[cfg(not(loom))]
pub use {
    client::stream::Stream,
    gate::Gate,
    options::{Options, Placement},
    quota::Quotas,
    raw_gate::RawGate,
    region::sealed::{Region, RegionMut},
    server::request::Context,
    server::server_loop::{Item, Server},
    server::serving::Serving,
    server::sink::Sink,
};
