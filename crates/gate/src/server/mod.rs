//! The server's side of a gate.

pub(crate) mod serve;
pub(crate) mod server_link;
pub(crate) mod service;
pub(crate) mod sink;
