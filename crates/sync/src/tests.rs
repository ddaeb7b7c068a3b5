//! loom models of this crate's protocols.

mod loom;
