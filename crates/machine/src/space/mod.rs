//! An address space's own side: it takes a number, which is in all of its ids, and then answers at
//! the control socket of that number.
//!
//! `number` holds the number; `control` starts and stops the kernel thread of the control socket,
//! `server` is its loop, and `connection` one client of it. `core_listener` is the socket at which
//! other address spaces notify this one. Requests come in through `connection`, are answered by a
//! [`ControlHandler`](crate::handler::ControlHandler), and go out through `connection`. Uses
//! `directory`, `protocol`, `handler`; never the asking side.

mod connection;
mod control;
mod core_listener;
mod number;
mod server;
mod shared;

pub use control::Control;
pub use number::Number;
pub use shared::Limits;
