//! A link: the connection between one client and a gate, as both sides have it.
//!
//! Lives here: its socket; the link poller, which serves the sockets of all links; the link index,
//! which VPs poll for entries in lanes; the notifier, which tells the other side of new entries.
//!
//! Data: rings, regions and the end of a link come over the socket to the link poller, which calls
//! the link's `LinkHandler`. Posts of the other side come by the board to the link index.
//!
//! Uses `handshake`, `wire`, `region`; `client` and `server` implement its traits.

pub(crate) mod endpoint;
pub(crate) mod fork;
pub(crate) mod link_index;
pub(crate) mod link_poller;
pub(crate) mod notifier;
pub(crate) mod socket;
pub(crate) mod wake_address;
