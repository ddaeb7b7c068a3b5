//! Calls of gates over machines.
//!
//! A program calls the border's own gate with the request and its destination
//! (`kumihimo_gate::remote_call`). `near` sends it to the other machine's border, whose `far` calls
//! the gate there. `seen` refuses what comes twice.
//!
//! A border never repeats a call. An outcome is [`Gone`](kumihimo::gate::ErrorKind::Gone) if the
//! call may have been sent, and [`Unreachable`](kumihimo::gate::ErrorKind::Unreachable) if it
//! certainly was not.

pub mod far;
pub mod near;
mod seen;
