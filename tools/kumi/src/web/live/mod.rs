//! What pages show, once a second.
//!
//! A `view` is what a page asks for, `look` obtains it from the address spaces, and `hub` hands one
//! result to all pages that have the same view, so that many tabs cost what one costs. Uses no
//! other room of `web`.

pub mod hub;
pub mod look;
pub mod view;
