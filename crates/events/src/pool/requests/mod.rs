//! Requests: what the user scheduler asks of the pool, and what is done about one that does not
//! answer. Uses `interface` and `state`.

mod carrier_requests;
mod raise;
mod supervision;
