//! How a microprocess gets its thread-local storage, on every architecture.

/// How a microprocess gets its thread-local storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Blocks are written from a template.
    Clone,
    /// Each block is left behind by a kernel thread of its own.
    Donor,
    /// No own thread-local storage: microprocesses must be kernel threads.
    Kernel,
}
