//! Requests: calls of the user scheduler to the pool, and the supervision of that scheduler. Uses
//! `interface` and `state`.

mod carrier_requests;
mod raise;
mod supervision;
pub(super) mod unparker;
