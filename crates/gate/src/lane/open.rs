//! Both ends of a lane from its memory: the server creates it, the client opens it.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::client_end::ClientEnd;
use super::geometry::Geometry;
use super::memory::LaneMemory;
use super::server_end::ServerEnd;
use crate::error::Error;

impl ClientEnd {
    /// Opens a lane that the server has created, from its descriptor and geometry. The descriptor
    /// is not needed after this.
    ///
    /// # Errors
    /// `Malformed`: it is no sealed memfd of that size, or no lane. `Exhausted`, `Io`: what the
    /// operating system says.
    pub fn open(fd: BorrowedFd<'_>, geometry: Geometry) -> Result<ClientEnd, Error> {
        LaneMemory::open(fd, geometry).map(ClientEnd::new)
    }
}

impl ServerEnd {
    /// A new lane, and the descriptor by which the client opens it. `name` is seen in
    /// `/proc/PID/maps`.
    ///
    /// # Errors
    /// `Exhausted`: no memory, address space or descriptors for it. `Io`: what memfd_create(2)
    /// says, for instance where it is not allowed.
    pub fn create(name: &str, geometry: Geometry) -> Result<(ServerEnd, OwnedFd), Error> {
        let (lane, fd) = LaneMemory::create(name, geometry)?;
        Ok((ServerEnd::new(lane), fd))
    }
}
