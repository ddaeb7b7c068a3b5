//! Models of the protocols of the whole crate.

mod loom;
