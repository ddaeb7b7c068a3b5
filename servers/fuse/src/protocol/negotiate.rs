//! First request of a mount: negotiation of the features that kernel and server support.

use fuse_abi::linux::{
    FUSE_ASYNC_READ, FUSE_AUTO_INVAL_DATA, FUSE_BIG_WRITES, FUSE_CACHE_SYMLINKS,
    FUSE_DO_READDIRPLUS, FUSE_DONT_MASK, FUSE_INIT_EXT, FUSE_KERNEL_MINOR_VERSION,
    FUSE_KERNEL_VERSION, FUSE_MAX_PAGES, FUSE_PARALLEL_DIROPS, FUSE_POSIX_ACL,
    FUSE_READDIRPLUS_AUTO, FUSE_SETXATTR_EXT, FUSE_WRITEBACK_CACHE, fuse_init_in, fuse_init_out,
};
use kumihimo::fuse::uring;
use kumihimo::sync::atomic::Ordering;
use kumihimo_store::{Errno, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::protocol::service::{Request, Service};
use crate::protocol::wire::{Arguments, Reply};

/// Maximum size of a read or a write in one request, in bytes.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
/// Size of a request with the largest write. Header and arguments precede the data, and the kernel
/// requires a page for them.
pub(crate) const REQUEST: usize = MAX_WRITE as usize + 4096;
/// Maximum number of requests in flight for which no process waits (read-ahead, write-back,
/// asynchronous requests). At three quarters of it the kernel considers the connection congested.
const BACKGROUND: u16 = 256;
/// Minimum minor version of the protocol: before 7.23 the reply to `FUSE_INIT` is shorter.
const OLDEST_MINOR: u32 = 23;

/// `FUSE_DIRECT_IO_ALLOW_MMAP` of Linux 6.6, in the upper half of the flags.
const DIRECT_IO_ALLOW_MMAP: u32 = 1 << (36 - 32);
/// `FUSE_OVER_IO_URING` of Linux 6.14, also in the upper half of the flags.
const OVER_IO_URING: u32 = 1 << (41 - 32);

impl Service {
    /// Handles `FUSE_INIT`.
    pub(crate) fn negotiate(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let kernel = said(&mut request.arguments)?;
        if kernel.major < FUSE_KERNEL_VERSION
            || kernel.major == FUSE_KERNEL_VERSION && kernel.minor < OLDEST_MINOR
        {
            eprintln!(
                "fuse: the kernel's protocol version is {}.{}; at least 7.{OLDEST_MINOR} is needed (Linux 3.15)",
                kernel.major, kernel.minor
            );
            return Err(Errno::PROTO);
        }
        // Without it the kernel would check the mode alone, and allow what a list denies.
        if kernel.flags & FUSE_POSIX_ACL == 0 {
            eprintln!(
                "fuse: the kernel does not enforce access control lists of a mount; Linux 4.9 or later is needed"
            );
            return Err(Errno::PROTO);
        }
        // Not FUSE_ASYNC_DIO: it would make all direct reads background requests, whose number the
        // kernel limits even while a process waits for them.
        let mut flags = FUSE_ASYNC_READ
            | FUSE_BIG_WRITES
            | FUSE_PARALLEL_DIROPS
            | FUSE_MAX_PAGES
            | FUSE_CACHE_SYMLINKS
            | FUSE_POSIX_ACL
            | FUSE_DONT_MASK
            | FUSE_SETXATTR_EXT
            | FUSE_INIT_EXT;
        if !self.settings.keep_cache {
            flags |= FUSE_AUTO_INVAL_DATA;
        }
        if self.settings.writeback {
            flags |= FUSE_WRITEBACK_CACHE;
        }
        if self.settings.readdirplus {
            flags |= FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO;
        }
        let flags = flags & kernel.flags;
        // Without FUSE_MAX_PAGES a request has at most 32 pages.
        let max_write =
            if flags & FUSE_MAX_PAGES == 0 { MAX_WRITE.min(128 << 10) } else { MAX_WRITE };
        self.max_write.store(max_write, Ordering::Relaxed);
        let uring =
            self.settings.uring && uring::is_enabled() && kernel.flags2 & OVER_IO_URING != 0;
        self.long_set_xattr.store(flags & FUSE_SETXATTR_EXT != 0, Ordering::Relaxed);
        self.by_uring.store(uring, Ordering::Relaxed);
        let mut flags2 = if uring { OVER_IO_URING } else { 0 };
        // If other programs change the files, the kernel requests the attributes before each read.
        // It does not for a file opened with FOPEN_DIRECT_IO, which this flag allows to be mapped.
        if !self.settings.keep_cache && !self.settings.direct && !self.settings.writeback {
            flags2 |= kernel.flags2 & DIRECT_IO_ALLOW_MMAP;
        }
        self.passes_direct.store(flags2 & DIRECT_IO_ALLOW_MMAP != 0, Ordering::Relaxed);
        reply.push(&fuse_init_out {
            flags2,
            major: FUSE_KERNEL_VERSION,
            minor: FUSE_KERNEL_MINOR_VERSION.min(kernel.minor.max(OLDEST_MINOR)),
            max_readahead: kernel.max_readahead,
            flags,
            max_background: BACKGROUND,
            congestion_threshold: BACKGROUND / 4 * 3,
            max_write,
            time_gran: 1,
            max_pages: u16::try_from(max_write / 4096).unwrap_or(u16::MAX),
            ..Default::default()
        });
        Ok(())
    }
}

/// Reads the arguments of `FUSE_INIT`. Kernels before 7.36 send the first sixteen bytes only.
fn said(arguments: &mut Arguments<'_>) -> Result<fuse_init_in> {
    let whole = *arguments;
    arguments.take::<fuse_init_in>().or_else(|_| {
        let mut old = [0; size_of::<fuse_init_in>()];
        old[..16].copy_from_slice(whole.clone().bytes(16)?);
        fuse_init_in::read_from_bytes(old.as_bytes()).map_err(|_| Errno::INVAL)
    })
}

#[cfg(test)]
mod tests;
