//! Redis's protocol, RESP2 and RESP3: requests in, replies out.
//!
//! `request.rs` cuts commands out of the bytes that arrive, without a copy. `reply.rs` gathers
//! replies in the version that the client speaks. Bytes are all that passes through: sockets are in
//! `clients`, and the meaning of commands is in `commands`. Uses no other room.

pub mod reply;
pub mod request;
