//! The handshake of a link: the client names a gate and what it wants; the server admits it, or
//! refuses with a reason.

pub(crate) mod client;
pub(crate) mod record;
