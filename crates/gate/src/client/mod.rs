//! The client's side of a gate: calls, one-way requests and streams.

pub(crate) mod client_link;
pub(crate) mod stream;
