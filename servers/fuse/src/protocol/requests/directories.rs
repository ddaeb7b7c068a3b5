//! Directory listings, with and without the attributes of the entries.

use fuse_abi::linux::{
    FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, fuse_dirent, fuse_entry_out, fuse_open_in, fuse_open_out,
    fuse_read_in,
};
use kumihimo_store::{Errno, Handle, Listed, Node, Result};
use rustix::fs::OFlags;

use crate::protocol::negotiate::MAX_WRITE;
use crate::protocol::service::{Request, Service};
use crate::protocol::wire::Reply;

/// Size of an entry's structure without the name.
const DIRENT: usize = size_of::<fuse_dirent>();

fn push_name(listed: &Listed<'_>, reply: &mut Reply) {
    reply.push(&fuse_dirent {
        ino: listed.node.0,
        off: listed.next,
        namelen: u32::try_from(listed.name.len()).unwrap_or(0),
        // d_type is the file type of the mode, shifted right by twelve bits.
        type_: listed.kind.map_or(0, |kind| kind.mode() >> 12),
        name: Default::default(),
    });
    reply.extend(listed.name);
    reply.pad();
}

impl Service {
    pub(crate) fn open_directory(
        &self,
        request: &mut Request<'_>,
        reply: &mut Reply,
    ) -> Result<()> {
        let flags = request.arguments.take::<fuse_open_in>()?.flags | OFlags::DIRECTORY.bits();
        let handle = self.store.open(request.node, flags)?;
        let cached = self.settings.keep_cache && !self.settings.timeout.is_zero();
        let open_flags = if cached { FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE } else { 0 };
        reply.push(&fuse_open_out { fh: handle.0, open_flags, backing_id: 0 });
        Ok(())
    }

    pub(crate) fn read_directory(
        &self,
        request: &mut Request<'_>,
        reply: &mut Reply,
    ) -> Result<()> {
        let asked = request.arguments.take::<fuse_read_in>()?;
        let size = usize::try_from(asked.size.min(MAX_WRITE)).map_err(|_| Errno::INVAL)?;
        self.store.read_directory(request.node, Handle(asked.fh), asked.offset, &mut |listed| {
            let fits = reply.written() + (DIRENT + listed.name.len()).next_multiple_of(8) <= size;
            if fits {
                push_name(&listed, reply);
            }
            fits
        })
    }

    /// Lists entries with their attributes. Each name except `.` and `..` counts as looked up.
    pub(crate) fn read_directory_plus(
        &self,
        request: &mut Request<'_>,
        reply: &mut Reply,
    ) -> Result<()> {
        let asked = request.arguments.take::<fuse_read_in>()?;
        let size = usize::try_from(asked.size.min(MAX_WRITE)).map_err(|_| Errno::INVAL)?;
        let (store, directory) = (&self.store, request.node);
        // The names are collected first, because a store need not support lookups during a listing.
        let mut names: Vec<(Node, u64, Option<kumihimo_store::Kind>, Vec<u8>)> = Vec::new();
        let mut room = size;
        store.read_directory(directory, Handle(asked.fh), asked.offset, &mut |listed| {
            let wanted =
                (size_of::<fuse_entry_out>() + DIRENT + listed.name.len()).next_multiple_of(8);
            let fits = wanted <= room;
            if fits {
                room -= wanted;
                names.push((listed.node, listed.next, listed.kind, listed.name.to_vec()));
            }
            fits
        })?;
        for (node, next, kind, name) in &names {
            let looked_up = match &name[..] {
                b"." | b".." => None,
                // If the lookup fails, because the name was removed or is unreadable, the reply
                // contains the name only. The kernel looks it up when it needs the inode.
                name => store.lookup(directory, name).ok(),
            };
            reply.push(&looked_up.map_or_else(fuse_entry_out::default, |entry| self.entry(&entry)));
            push_name(&Listed { node: *node, next: *next, kind: *kind, name }, reply);
        }
        Ok(())
    }
}
