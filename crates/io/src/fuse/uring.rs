//! Requests through io_uring: the answer to one and the wait for the next in a single kernel entry.
//!
//! The kernel has a queue of entries for each core; a request arrives at an entry of the core on
//! which its caller runs. A waiting entry belongs to the kernel thread inside `receive`, and
//! fetches again only at the next call. So no operation is in flight on the ring of a kernel thread
//! that has left `receive` and may run another microprocess.
//!
//! Source: `Documentation/filesystems/fuse/fuse-io-uring.rst`, `fs/fuse/dev_uring.c` and
//! `include/uapi/linux/fuse.h` of the kernel, Linux 6.14.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use super::Device;
use crate::descriptor::brief;

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// Bytes of a `fuse_in_header`.
const IN_HEADER: usize = 40;
/// Bytes of a `fuse_out_header`.
const OUT_HEADER: usize = 16;
/// Where an SQE has its `len`: `struct io_uring_sqe`.
const SQE_LEN: usize = 24;

/// `struct fuse_uring_req_header`: headers that kernel and server write besides the payload.
#[repr(C)]
struct Headers {
    /// `fuse_in_header`, and in its place `fuse_out_header`.
    in_out: [u8; 128],
    /// The first argument of a request.
    op_in: [u8; 128],
    flags: u64,
    /// ID of the request that is answered.
    commit_id: u64,
    /// Bytes in use of the payload.
    payload_size: u32,
    padding: u32,
    reserved: u64,
}

/// Memory that the kernel writes to while an entry waits. It is accessed through pointers only, and
/// never moves.
struct Shared {
    headers: Headers,
    payload: Vec<u8>,
    /// The buffers of the registration: headers, payload. The kernel reads them once.
    vectors: [libc::iovec; 2],
}

/// The command that makes [`is_enabled`] true.
pub const REMEDY: &str =
    "Linux 6.14 and: echo Y | sudo tee /sys/module/fuse/parameters/enable_uring";

/// Whether this kernel allows FUSE over io_uring: the module parameter `enable_uring` of fuse,
/// which root may set.
///
/// # Examples
///
/// ```
/// use kumihimo::fuse::uring;
/// use std::fs;
///
/// let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
/// assert_eq!(uring::is_enabled(), parameter.is_ok_and(|text| text == "Y\n"));
/// ```
#[must_use]
pub fn is_enabled() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
        .is_ok_and(|text| text.trim() == "Y")
}

/// Number of queues: one for each core that the machine may ever have. Every queue needs an entry
/// before the kernel sends the first request.
///
/// # Examples
///
/// ```
/// use kumihimo::fuse::uring;
/// use std::thread;
///
/// assert!(usize::from(uring::queues()) >= thread::available_parallelism()?.get());
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn queues() -> u16 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    last.map_or(1, |last| last.saturating_add(1))
}

/// An entry in the queue of one core.
///
/// # Examples
///
/// ```no_run
/// use kumihimo::fuse::Device;
/// use kumihimo::fuse::uring::Entry;
/// use std::sync::Arc;
///
/// let device = Arc::new(Device::open()?);
/// // ... mount(2), and a reply to FUSE_INIT with the flag FUSE_OVER_IO_URING ...
/// let mut entry = Entry::new(device, 0, 1 << 20)?;
/// loop {
///     let request = entry.receive()?;
///     // A `fuse_out_header`: length, error, and the ID of the request.
///     let mut reply = Vec::new();
///     reply.extend(16_u32.to_ne_bytes());
///     reply.extend((-38_i32).to_ne_bytes()); // ENOSYS
///     reply.extend(&request.header[8..16]);
///     entry.answer(&reply)?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Entry {
    ring: IoUring<squeue::Entry128>,
    device: Arc<Device>,
    queue: u16,
    /// Boxed; never moved or reborrowed as a whole while the kernel uses it.
    shared: *mut Shared,
    /// Whether the kernel uses the memory.
    waits: bool,
}

// SAFETY: `shared` is owned by this value, and nothing in it belongs to a kernel thread.
unsafe impl Send for Entry {}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// A request: its header, its first argument, and the other arguments.
///
/// # Examples
///
/// ```
/// use kumihimo::fuse::uring::Request;
///
/// /// The operation of a request, from its `fuse_in_header`.
/// fn operation(request: &Request<'_>) -> u32 {
///     u32::from_ne_bytes(request.header[4..8].try_into().unwrap())
/// }
///
/// # let mut header = [0; 40];
/// # header[4] = 1;
/// let request = Request { header: &header, first: &[], rest: b"file.txt\0" };
/// assert_eq!(operation(&request), 1, "FUSE_LOOKUP");
/// ```
#[derive(Debug)]
pub struct Request<'a> {
    /// `fuse_in_header`.
    pub header: &'a [u8],
    /// The first argument, a structure.
    pub first: &'a [u8],
    /// The other arguments: names, data.
    pub rest: &'a [u8],
}

impl Entry {
    /// Creates an entry in the queue `queue` of the mount of `device`. `payload` is the maximum
    /// length of a request or reply without its headers: the largest write, and 8 KiB at least.
    ///
    /// # Errors
    /// As io_uring_setup(2).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kumihimo::fuse::Device;
    /// use kumihimo::fuse::uring::{self, Entry};
    /// use std::sync::Arc;
    ///
    /// // Every queue needs an entry before the kernel sends the first request.
    /// let device = Arc::new(Device::open()?);
    /// let entries = (0..uring::queues())
    ///     .map(|queue| Entry::new(device.clone(), queue, 1 << 20))
    ///     .collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(entries.len(), usize::from(uring::queues()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(device: Arc<Device>, queue: u16, payload: usize) -> io::Result<Entry> {
        let ring = IoUring::<squeue::Entry128>::builder().build(2)?;
        let headers = Headers {
            in_out: [0; 128],
            op_in: [0; 128],
            flags: 0,
            commit_id: 0,
            payload_size: 0,
            padding: 0,
            reserved: 0,
        };
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let shared = Box::into_raw(Box::new(Shared {
            headers,
            payload: vec![0; payload],
            vectors: [none; 2],
        }));
        // SAFETY: just made, and nobody else has it.
        unsafe {
            let payload = &mut (*shared).payload;
            (*shared).vectors = [
                libc::iovec {
                    iov_base: (&raw mut (*shared).headers).cast(),
                    iov_len: size_of::<Headers>(),
                },
                libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() },
            ];
        }
        let mut entry = Entry { ring, device, queue, shared, waits: false };
        entry.push(REGISTER, 0)?;
        Ok(entry)
    }

    /// Queues a command, which `receive` submits.
    fn push(&mut self, command: u32, commit_id: u64) -> io::Result<()> {
        // struct fuse_uring_cmd_req: flags, commit_id, qid.
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        arguments[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        // SAFETY: `shared` lives as long as `self`.
        let vectors = unsafe { &raw const (*self.shared).vectors };
        let fd = types::Fd(self.device.as_fd().as_raw_fd());
        let mut command =
            opcode::UringCmd80::new(fd, command).cmd(arguments).addr(Some(vectors as u64)).build();
        // SAFETY: an `Entry128` is an SQE of 128 bytes, of plain integers (repr(C), asserted
        // below); the crate has no setter for this one.
        unsafe { (&raw mut command).cast::<u8>().add(SQE_LEN).cast::<u32>().write(2) };
        const { assert!(size_of::<squeue::Entry128>() == 128) };
        // SAFETY: what the command points to lives until the entry's end, which waits for the
        // kernel to be done with it.
        unsafe { self.ring.submission().push(&command) }
            .map_err(|_| io::Error::other("the ring is full"))
    }

    /// Sends the answer, if there is one, and waits for the next request. Blocks the kernel thread.
    /// For a microprocess, the event source reports the block, and its virtual processor runs
    /// others.
    ///
    /// # Errors
    /// - `ENOTCONN`, `ECONNABORTED`: the file system was unmounted.
    /// - `EOPNOTSUPP`: io_uring was not negotiated for the mount.
    /// - `EINVAL`: there is no such queue, or the payload is too small.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kumihimo::fuse::Device;
    /// use kumihimo::fuse::uring::{Entry, Request};
    /// use std::sync::Arc;
    ///
    /// let mut entry = Entry::new(Arc::new(Device::open()?), 0, 1 << 20)?;
    /// let Request { header, .. } = entry.receive()?;
    /// let operation = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    /// assert_ne!(operation, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn receive(&mut self) -> io::Result<Request<'_>> {
        let result = loop {
            if let Some(completion) = self.ring.completion().next() {
                self.waits = false;
                break completion.result();
            }
            self.waits = true;
            match brief(|| self.ring.submit_and_wait(1)) {
                Ok(_) => {}
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ) => {}
                Err(e) => return Err(e),
            }
        };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: the kernel is done with it until the next command, which takes `self`
        // exclusively.
        let shared = unsafe { &*self.shared };
        let header = &shared.headers.in_out[..IN_HEADER];
        let whole = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let payload = shared.headers.payload_size as usize;
        // The first argument is what the others leave of the whole.
        let first = whole
            .checked_sub(IN_HEADER + payload)
            .and_then(|first| shared.headers.op_in.get(..first));
        match (first, shared.payload.get(..payload)) {
            (Some(first), Some(rest)) => Ok(Request { header, first, rest }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a request that is longer than it can be",
            )),
        }
    }

    /// Stores the answer to the last request, header and arguments in one piece. The next `receive`
    /// sends it.
    ///
    /// # Errors
    /// The answer is longer than the payload.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kumihimo::fuse::Device;
    /// use kumihimo::fuse::uring::Entry;
    /// use std::sync::Arc;
    ///
    /// let mut entry = Entry::new(Arc::new(Device::open()?), 0, 1 << 20)?;
    /// let id: [u8; 8] = entry.receive()?.header[8..16].try_into().unwrap();
    /// // A `fuse_out_header` without an error, and no data.
    /// let reply = [&16_u32.to_ne_bytes()[..], &0_i32.to_ne_bytes(), &id].concat();
    /// entry.answer(&reply)?;
    /// assert!(entry.receive().is_ok(), "sends the answer, and waits for the next request");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn answer(&mut self, message: &[u8]) -> io::Result<()> {
        let (header, rest) =
            message.split_at_checked(OUT_HEADER).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: as in `receive`.
        let shared = unsafe { &mut *self.shared };
        shared.headers.in_out[..OUT_HEADER].copy_from_slice(header);
        shared
            .payload
            .get_mut(..rest.len())
            .ok_or(io::ErrorKind::InvalidInput)?
            .copy_from_slice(rest);
        shared.headers.payload_size =
            u32::try_from(rest.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let commit_id = shared.headers.commit_id;
        self.push(COMMIT_AND_FETCH, commit_id)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.waits {
            // The kernel still writes to it. The ring's end cancels the command, but not before
            // this returns: the memory is left to it.
            return;
        }
        // SAFETY: made by `Box::into_raw`, and the kernel has it no more.
        drop(unsafe { Box::from_raw(self.shared) });
    }
}
