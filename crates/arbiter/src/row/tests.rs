//! Tests of a row and its cells.

#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod plain;
