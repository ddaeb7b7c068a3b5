//! Which requests are admitted.
//!
//! `peer` checks the user at the other end of a local connection, `host` the name under which the
//! browser reached the server and the page from which a request comes. `sessions` admits browsers
//! by a token or by `password`, whose `attempts` are limited. Uses `http` alone.

pub mod attempts;
pub mod host;
pub mod password;
pub mod peer;
pub mod secret;
pub mod sessions;
