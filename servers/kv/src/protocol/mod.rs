//! Redis's protocol, RESP2 and RESP3: requests in, replies out.
//!
//! `request.rs` splits the incoming bytes into commands without copying. `reply.rs` collects
//! replies in the client's protocol version. The module handles bytes only: sockets are in
//! `clients`, and the meaning of commands is in `commands`. Of the crate, it uses only
//! the budget.

pub mod reply;
pub mod request;
