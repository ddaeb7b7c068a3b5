//! Files: open, read, write and related operations.

use fuse_abi::linux::{
    FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FUSE_FSYNC_FDATASYNC, FUSE_WRITE_CACHE, fuse_create_in,
    fuse_fallocate_in, fuse_fsync_in, fuse_lseek_in, fuse_lseek_out, fuse_open_in, fuse_open_out,
    fuse_read_in, fuse_release_in, fuse_write_in, fuse_write_out,
};
use kumihimo::sync::atomic::Ordering;
use kumihimo_store::{Errno, Handle, New, Result, Seek};
use rustix::fs::OFlags;

use crate::protocol::negotiate::MAX_WRITE;
use crate::protocol::service::{Request, Service};
use crate::protocol::wire::Reply;

/// Bytes of a read after which the request is checked for an interruption. This bounds the work for
/// an interrupted request.
const PIECE: usize = 128 << 10;

impl Service {
    fn push_open(&self, handle: Handle, flags: u32, reply: &mut Reply) {
        let mut open_flags = 0;
        // For an open with O_DIRECT. Without FOPEN_DIRECT_IO the kernel requests the attributes
        // before each read even then, to invalidate pages that it may have cached.
        let wants_none =
            flags & OFlags::DIRECT.bits() != 0 && self.passes_direct.load(Ordering::Relaxed);
        if self.settings.direct || wants_none {
            open_flags |= FOPEN_DIRECT_IO;
        }
        if self.settings.keep_cache {
            open_flags |= FOPEN_KEEP_CACHE;
        }
        reply.push(&fuse_open_out { fh: handle.0, open_flags, backing_id: 0 });
    }

    /// Adapts open flags to a write-back cache, with which the kernel reads the surroundings of a
    /// write and tracks the end of the file itself.
    fn flags(&self, flags: u32) -> u32 {
        if !self.settings.writeback {
            return flags;
        }
        let write_only = flags & OFlags::ACCMODE.bits() == OFlags::WRONLY.bits();
        let flags = flags & !OFlags::APPEND.bits();
        if write_only { flags & !OFlags::ACCMODE.bits() | OFlags::RDWR.bits() } else { flags }
    }

    pub(crate) fn open(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let flags = request.arguments.take::<fuse_open_in>()?.flags;
        let handle = self.store.open(request.node, self.flags(flags))?;
        self.push_open(handle, flags, reply);
        Ok(())
    }

    pub(crate) fn create(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let asked = request.arguments.take::<fuse_create_in>()?;
        let name = request.arguments.name()?;
        let new = New::File { mode: asked.mode & 0o7777 };
        let entry = match self.store.make(&request.caller(asked.umask), request.node, name, new) {
            // Another request created the file first, which only matters for O_EXCL.
            Err(Errno::EXIST) if asked.flags & OFlags::EXCL.bits() == 0 => {
                self.store.lookup(request.node, name)?
            }
            other => other?,
        };
        let flags = asked.flags & !(OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC).bits();
        match self.store.open(entry.attributes.node, self.flags(flags)) {
            Ok(handle) => {
                reply.push(&self.entry(&entry));
                self.push_open(handle, asked.flags, reply);
                Ok(())
            }
            Err(errno) => {
                // The kernel receives no entry, so it will not send a forget for it.
                self.store.forget(entry.attributes.node, 1);
                Err(errno)
            }
        }
    }

    pub(crate) fn read(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let asked = request.arguments.take::<fuse_read_in>()?;
        let size = usize::try_from(asked.size).map_err(|_| Errno::INVAL)?;
        // The kernel reads no more in one request: FUSE_INIT limits its pages.
        if asked.size > MAX_WRITE {
            return Err(Errno::INVAL);
        }
        let room = reply.room(size);
        let mut done = 0;
        while done < size {
            let piece = &mut room[done..size.min(done + PIECE)];
            let wanted = piece.len();
            let at = asked.offset.checked_add(done as u64).ok_or(Errno::INVAL)?;
            let got = self.store.read(request.node, Handle(asked.fh), at, piece)?;
            done += got;
            if got < wanted {
                break;
            }
            self.interrupts.check(request.header.unique)?;
        }
        reply.keep(done);
        Ok(())
    }

    pub(crate) fn write(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let asked = request.arguments.take::<fuse_write_in>()?;
        let size = usize::try_from(asked.size).map_err(|_| Errno::INVAL)?;
        if asked.size > self.max_write.load(Ordering::Relaxed) {
            return Err(Errno::INVAL);
        }
        let data = request.arguments.bytes(size)?;
        // Not checked for interruptions: a partial write would have to be reported.
        let (node, handle, kept) =
            (request.node, Handle(asked.fh), asked.write_flags & FUSE_WRITE_CACHE != 0);
        let done = if kept && self.settings.writeback {
            self.store.write_kept(node, handle, asked.offset, data)?
        } else {
            self.store.write(node, handle, asked.offset, data)?
        };
        reply.push(&fuse_write_out {
            size: u32::try_from(done).map_err(|_| Errno::IO)?,
            padding: 0,
        });
        Ok(())
    }

    pub(crate) fn release(&self, request: &mut Request<'_>) -> Result<()> {
        let asked = request.arguments.take::<fuse_release_in>()?;
        self.store.release(request.node, Handle(asked.fh));
        Ok(())
    }

    pub(crate) fn sync(&self, request: &mut Request<'_>) -> Result<()> {
        let asked = request.arguments.take::<fuse_fsync_in>()?;
        self.store.sync(
            request.node,
            Handle(asked.fh),
            asked.fsync_flags & FUSE_FSYNC_FDATASYNC != 0,
        )
    }

    pub(crate) fn allocate(&self, request: &mut Request<'_>) -> Result<()> {
        let asked = request.arguments.take::<fuse_fallocate_in>()?;
        self.store.allocate(request.node, Handle(asked.fh), asked.mode, asked.offset, asked.length)
    }

    pub(crate) fn seek(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let asked = request.arguments.take::<fuse_lseek_in>()?;
        // SEEK_DATA and SEEK_HOLE of lseek(2); the kernel handles the other values itself.
        let what = match asked.whence {
            3 => Seek::Data,
            4 => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let offset = self.store.seek(request.node, Handle(asked.fh), asked.offset, what)?;
        reply.push(&fuse_lseek_out { offset });
        Ok(())
    }
}
