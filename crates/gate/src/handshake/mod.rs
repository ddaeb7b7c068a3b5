//! The handshake of a link: the client names a gate and what it wants; the server admits it, or
//! refuses with a reason.
//!
//! Lives here: the records of the handshake; the client's half, which blocks; the server's half,
//! with the clients whose hello has not come yet.
//!
//! Data: hello from client to server; welcome and the lane's descriptor, or a refusal, back.
//!
//! Uses `wire` and `options`. The link poller calls the server's half.

pub(crate) mod client;
pub(crate) mod record;
pub(crate) mod server;
