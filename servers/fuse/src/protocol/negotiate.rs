//! The first request of a mount: what the kernel and this server can do together.

use fuse_abi::linux::{
    FUSE_ASYNC_READ, FUSE_AUTO_INVAL_DATA, FUSE_BIG_WRITES, FUSE_CACHE_SYMLINKS,
    FUSE_DO_READDIRPLUS, FUSE_INIT_EXT, FUSE_KERNEL_MINOR_VERSION, FUSE_KERNEL_VERSION,
    FUSE_MAX_PAGES, FUSE_PARALLEL_DIROPS, FUSE_READDIRPLUS_AUTO, FUSE_WRITEBACK_CACHE,
    fuse_init_in, fuse_init_out,
};
use kumihimo::fuse::uring;
use kumihimo::sync::atomic::Ordering;
use kumihimo_store::{Errno, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::protocol::service::{Request, Service};
use crate::protocol::wire::{Arguments, Reply};

/// The largest write, and with it read, in one request: bytes.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
/// A request with the largest write: header and arguments come before the data, and the kernel
/// wants a page for them.
pub(crate) const REQUEST: usize = MAX_WRITE as usize + 4096;
/// The kernel sends so many requests at once that nobody waits for (read-ahead, write-back,
/// asynchronous ones), and calls itself congested at three quarters of them.
const BACKGROUND: u16 = 256;
/// Before 7.23 a reply to this request is shorter, and 7.12 is the first with all that is used
/// here: Linux 2.6.31.
const OLDEST_MINOR: u32 = 23;

/// `FUSE_DIRECT_IO_ALLOW_MMAP` of Linux 6.6, in the upper half of the flags.
const DIRECT_IO_ALLOW_MMAP: u32 = 1 << (36 - 32);
/// `FUSE_OVER_IO_URING` of Linux 6.14, there too.
const OVER_IO_URING: u32 = 1 << (41 - 32);

impl Service {
    /// `FUSE_INIT`.
    pub(crate) fn negotiate(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let kernel = said(&mut request.arguments)?;
        if kernel.major < FUSE_KERNEL_VERSION
            || kernel.major == FUSE_KERNEL_VERSION && kernel.minor < OLDEST_MINOR
        {
            eprintln!(
                "fuse: the kernel speaks {}.{}; 7.{OLDEST_MINOR} is wanted (Linux 3.15)",
                kernel.major, kernel.minor
            );
            return Err(Errno::PROTO);
        }
        // Not FUSE_ASYNC_DIO: direct reads would all be background requests, of which the kernel
        // sends so many and no more, even while a process waits for them.
        let mut flags = FUSE_ASYNC_READ
            | FUSE_BIG_WRITES
            | FUSE_PARALLEL_DIROPS
            | FUSE_MAX_PAGES
            | FUSE_CACHE_SYMLINKS
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
        // Without the flag a request has 32 pages at most.
        let max_write =
            if flags & FUSE_MAX_PAGES == 0 { MAX_WRITE.min(128 << 10) } else { MAX_WRITE };
        self.max_write.store(max_write, Ordering::Relaxed);
        let uring =
            self.settings.uring && uring::is_enabled() && kernel.flags2 & OVER_IO_URING != 0;
        self.by_uring.store(uring, Ordering::Relaxed);
        let mut flags2 = if uring { OVER_IO_URING } else { 0 };
        // Where others change files the kernel asks for the attributes before each read; and not
        // for a file that may be mapped, and is in no cache.
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

/// Kernels before 7.36 send the first sixteen bytes only.
fn said(arguments: &mut Arguments<'_>) -> Result<fuse_init_in> {
    let whole = *arguments;
    arguments.take::<fuse_init_in>().or_else(|_| {
        let mut old = [0; size_of::<fuse_init_in>()];
        old[..16].copy_from_slice(whole.clone().bytes(16)?);
        fuse_init_in::read_from_bytes(old.as_bytes()).map_err(|_| Errno::INVAL)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fuse_abi::linux::{
        FOPEN_DIRECT_IO, FUSE_ROOT_ID, fuse_entry_out, fuse_in_header, fuse_opcode as Op,
        fuse_open_in, fuse_open_out,
    };
    use kumihimo::sync::Arc;
    use kumihimo_host::Host;
    use rustix::fs::OFlags;
    use zerocopy::Immutable;

    use super::*;
    use crate::protocol::service::{Answer, Settings};
    use crate::protocol::wire::Message;

    /// Asks as the kernel does; what was answered after the header.
    fn ask(service: &Service, op: Op, nodeid: u64, arguments: &[u8]) -> Vec<u8> {
        let len = u32::try_from(size_of::<fuse_in_header>() + arguments.len()).expect("short");
        let header =
            fuse_in_header { len, opcode: op as u32, unique: 7, nodeid, ..Default::default() };
        let mut reply = Reply::default();
        let answer =
            service.handle(Message::whole(&[header.as_bytes(), arguments].concat()), &mut reply);
        assert_eq!(answer, Answer::Send);
        assert_eq!(reply.message()[4..8], [0; 4], "no error");
        reply.message()[16..].to_vec()
    }

    fn as_struct<T: FromBytes + Immutable>(bytes: &[u8]) -> T {
        T::read_from_prefix(bytes).expect("as long").0
    }

    /// A service that a kernel with `flags2` has spoken to, which says how it opens a file with
    /// these flags.
    fn opens(settings: Settings, flags2: u32, flags: OFlags) -> u32 {
        let host =
            Host::open(Path::new(env!("CARGO_MANIFEST_DIR")), kumihimo_host::Settings::default())
                .expect("a directory");
        let service = Service::new(Arc::new(host), settings);
        let kernel = fuse_init_in {
            major: FUSE_KERNEL_VERSION,
            minor: FUSE_KERNEL_MINOR_VERSION,
            flags: FUSE_INIT_EXT,
            flags2,
            ..Default::default()
        };
        let agreed: fuse_init_out = as_struct(&ask(&service, Op::FUSE_INIT, 0, kernel.as_bytes()));
        assert_eq!(agreed.flags2 & !flags2, 0, "nothing that the kernel did not offer");
        let entry: fuse_entry_out =
            as_struct(&ask(&service, Op::FUSE_LOOKUP, FUSE_ROOT_ID, b"Cargo.toml\0"));
        let how = fuse_open_in { flags: flags.bits(), ..Default::default() };
        as_struct::<fuse_open_out>(&ask(&service, Op::FUSE_OPEN, entry.nodeid, how.as_bytes()))
            .open_flags
    }

    #[test]
    fn uncached_reads_pass_the_cache_where_others_change_files() {
        let shared = || Settings { keep_cache: false, ..Settings::default() };
        let (offered, direct) = (DIRECT_IO_ALLOW_MMAP, OFlags::DIRECT);
        assert_eq!(opens(shared(), offered, direct) & FOPEN_DIRECT_IO, FOPEN_DIRECT_IO);
        for (settings, flags2, flags) in [
            (shared(), offered, OFlags::empty()),
            // Such a file could not be mapped.
            (shared(), 0, direct),
            // The kernel's cache is right, or is what is to be written.
            (Settings::default(), offered, direct),
            (Settings { writeback: true, ..shared() }, offered, direct),
        ] {
            let what = format!("{settings:?} {flags2:x} {flags:?}");
            assert_eq!(opens(settings, flags2, flags) & FOPEN_DIRECT_IO, 0, "{what}");
        }
    }
}
