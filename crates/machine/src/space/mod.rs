//! An address space's own side: its number, which is part of all its IDs, and its control socket.
//!
//! `number` holds the number. `control` starts and stops the kernel thread of the control socket,
//! `server` is its loop, and `connection` serves one client. `core_listener` is the socket at which
//! other address spaces notify this one. Requests arrive through `connection`, are answered by a
//! [`ControlHandler`](crate::handler::ControlHandler), and leave through `connection`. Uses
//! `directory`, `protocol` and `handler`, but not `client`.

mod connection;
mod control;
mod core_listener;
mod number;
mod server;
mod shared;
mod streams;

pub use control::Control;
pub use number::Number;
pub use shared::Limits;
