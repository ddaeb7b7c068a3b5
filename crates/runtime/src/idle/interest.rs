//! The two directions of readiness.

/// A direction of readiness to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable: data, a connection to accept, end of file or an error.
    Read,
    /// Writable: room in the buffer, a finished connect or an error.
    Write,
}
