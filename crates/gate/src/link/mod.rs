//! A link: one client's connection to a gate, as both sides have it.

pub(crate) mod endpoint;
pub(crate) mod link_index;
pub(crate) mod link_poller;
pub(crate) mod notifier;
pub(crate) mod socket;
pub(crate) mod wake_address;
