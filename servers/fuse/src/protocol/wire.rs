//! Encoding of requests and replies as `/dev/fuse` carries them.
//!
//! The layouts come from the crate `fuse_abi`. Requests come from the kernel, which is trusted.
//! Nevertheless a request that is too short, or a name without a terminating zero, is an error and
//! never a panic.

use fuse_abi::linux::{fuse_in_header, fuse_out_header};
use kumihimo::fuse::uring::Request;
use kumihimo_store::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of a reply's header.
const HEADER: usize = size_of::<fuse_out_header>();

/// Request as received.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    header: &'a [u8],
    /// The first argument, if it was received separately from the others.
    first: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    /// Creates a message from a request in one piece, as `/dev/fuse` delivers it.
    #[must_use]
    pub fn whole(bytes: &'a [u8]) -> Message<'a> {
        let (header, rest) = bytes.split_at(bytes.len().min(size_of::<fuse_in_header>()));
        Message { header, first: &[], rest }
    }

    /// Creates a message from a request in pieces, as io_uring delivers it.
    pub(crate) fn parts(request: &Request<'a>) -> Message<'a> {
        Message { header: request.header, first: request.first, rest: request.rest }
    }

    /// Returns header and arguments. `None` if the message is too short, or if its length differs
    /// from the length in the header.
    pub(crate) fn split(self) -> Option<(fuse_in_header, Arguments<'a>)> {
        let header = fuse_in_header::read_from_bytes(self.header).ok()?;
        let length = self.header.len() + self.first.len() + self.rest.len();
        (usize::try_from(header.len).ok()? == length)
            .then_some((header, Arguments { first: self.first, rest: self.rest }))
    }

    /// Returns the total number of bytes.
    pub(crate) fn length(&self) -> usize {
        self.header.len() + self.first.len() + self.rest.len()
    }
}

/// Arguments of a request, which are consumed from the front.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'a> {
    first: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Returns the bytes from which the next argument is taken.
    fn front(&mut self) -> &mut &'a [u8] {
        if self.first.is_empty() { &mut self.rest } else { &mut self.first }
    }

    /// Takes a structure.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T> {
        let front = self.front();
        let (value, rest) = T::read_from_prefix(front).map_err(|_| Errno::INVAL)?;
        *front = rest;
        Ok(value)
    }

    /// Takes a name, up to its terminating zero.
    pub(crate) fn name(&mut self) -> Result<&'a [u8]> {
        let front = self.front();
        let end = front.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (name, rest) = front.split_at(end);
        *front = &rest[1..];
        Ok(name)
    }

    /// Takes `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let front = self.front();
        let (bytes, rest) = front.split_at_checked(count).ok_or(Errno::INVAL)?;
        *front = rest;
        Ok(bytes)
    }
}

/// Reply under construction. Its memory is reused for later replies.
#[derive(Debug, Default)]
pub struct Reply {
    /// As long as the longest reply so far. Bytes beyond `length` are left over from earlier
    /// replies, and are overwritten before they are sent.
    bytes: Vec<u8>,
    length: usize,
}

impl Reply {
    /// Starts a new reply, with room for `capacity` bytes.
    pub(crate) fn begin(&mut self, capacity: usize) {
        self.length = HEADER;
        self.reserve(capacity);
    }

    fn reserve(&mut self, more: usize) {
        let wanted = self.length + more;
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
    }

    /// Returns the number of bytes written after the header.
    pub(crate) fn written(&self) -> usize {
        self.length - HEADER
    }

    /// Appends a structure.
    pub(crate) fn push<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.extend(value.as_bytes());
    }

    /// Appends bytes.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends zeros up to a multiple of 8.
    pub(crate) fn pad(&mut self) {
        let padding = self.length.next_multiple_of(8) - self.length;
        self.extend(&[0; 8][..padding]);
    }

    /// Returns room for `count` bytes at the end, with arbitrary content. `keep` then adds a part
    /// of it to the reply.
    pub(crate) fn room(&mut self, count: usize) -> &mut [u8] {
        self.reserve(count);
        &mut self.bytes[self.length..self.length + count]
    }

    /// Adds the first `count` bytes of `room` to the reply.
    pub(crate) fn keep(&mut self, count: usize) {
        self.length += count;
        debug_assert!(self.length <= self.bytes.len());
    }

    /// Writes the header. After an error, discards the content.
    pub(crate) fn finish(&mut self, unique: u64, outcome: Result<()>) {
        let error = match outcome {
            Ok(()) => 0,
            Err(errno) => {
                self.length = HEADER;
                -errno.raw_os_error()
            }
        };
        let len = u32::try_from(self.length).unwrap_or(u32::MAX);
        let header = fuse_out_header { len, error, unique };
        self.bytes[..HEADER].copy_from_slice(header.as_bytes());
    }

    /// Returns the complete message, for the fuzzers.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    #[must_use]
    pub fn sent(&self) -> &[u8] {
        self.message()
    }

    /// Returns the memory in use, for the fuzzers.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the complete message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests;
