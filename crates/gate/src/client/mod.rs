//! The client's side of a gate.
//!
//! Lives here: calls, one-way requests and streams; the link of a client, with its calls under way.
//!
//! Data: [`crate::gate`] passes encoded requests down to a `ClientLink`, which writes them into a
//! cell of the lane. Replies come from the lane by the link index, when a VP polls the link, and
//! wake the microprocess that waits in their cell.
//!
//! Uses `link`, `handshake`, `wire`, `region` and `lane`; nothing of `server`.

pub(crate) mod call;
mod calls;
mod cell_queue;
mod client_link;
mod connect;
mod destination;
mod reply_slot;
pub(crate) mod stream;
