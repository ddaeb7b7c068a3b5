//! Handlers of requests, which call the store: one file for each group of operations.

mod attributes;
mod directories;
mod files;
mod names;
mod xattrs;

use fuse_abi::linux::{FUSE_ROOT_ID, fuse_attr, fuse_entry_out};
use kumihimo_store::{Attributes, Entry, Time};

use crate::protocol::service::Service;

/// Seconds in two's complement, as the protocol encodes them.
fn seconds(time: Time) -> u64 {
    time.seconds.cast_unsigned()
}

fn attributes(of: &Attributes) -> fuse_attr {
    fuse_attr {
        ino: of.node.0,
        size: of.size,
        blocks: of.blocks,
        atime: seconds(of.atime),
        mtime: seconds(of.mtime),
        ctime: seconds(of.ctime),
        atimensec: of.atime.nanoseconds,
        mtimensec: of.mtime.nanoseconds,
        ctimensec: of.ctime.nanoseconds,
        mode: of.kind.mode() | of.permissions,
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        rdev: of.device,
        blksize: of.block_size,
        flags: 0,
    }
}

impl Service {
    fn entry(&self, entry: &Entry) -> fuse_entry_out {
        let node = entry.attributes.node;
        let timeout = self.settings.timeout;
        fuse_entry_out {
            nodeid: if node == self.store.root() { FUSE_ROOT_ID } else { node.0 },
            generation: entry.generation,
            entry_valid: timeout.as_secs(),
            attr_valid: timeout.as_secs(),
            entry_valid_nsec: timeout.subsec_nanos(),
            attr_valid_nsec: timeout.subsec_nanos(),
            attr: attributes(&entry.attributes),
        }
    }
}
