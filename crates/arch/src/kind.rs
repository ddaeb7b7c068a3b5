//! How a microprocess gets its thread-local storage, on every architecture.

/// How a microprocess gets its thread-local storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Blocks are copied from a template.
    Clone,
    /// Each block is created by a kernel thread of its own, which ends at once.
    Donor,
    /// Microprocesses are kernel threads, which bring their own thread-local storage.
    Kernel,
}
