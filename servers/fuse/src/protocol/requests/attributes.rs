//! Attributes: getattr, setattr, statfs.

use fuse_abi::linux::{
    FATTR_ATIME, FATTR_ATIME_NOW, FATTR_CTIME, FATTR_GID, FATTR_KILL_SUIDGID, FATTR_MODE,
    FATTR_MTIME, FATTR_MTIME_NOW, FATTR_SIZE, FATTR_UID, fuse_attr_out, fuse_kstatfs,
    fuse_setattr_in, fuse_statfs_out,
};
use kumihimo_store::{Attributes, Changes, Result, Stamp, Time};

use super::attributes;
use crate::protocol::service::{Request, Service};
use crate::protocol::wire::Reply;

impl Service {
    pub(crate) fn get_attributes(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let found = self.store.attributes(request.node)?;
        self.push_attributes(&found, reply);
        Ok(())
    }

    fn push_attributes(&self, of: &Attributes, reply: &mut Reply) {
        let timeout = self.settings.timeout;
        reply.push(&fuse_attr_out {
            attr_valid: timeout.as_secs(),
            attr_valid_nsec: timeout.subsec_nanos(),
            dummy: 0,
            attr: attributes(of),
        });
    }

    pub(crate) fn set_attributes(
        &self,
        request: &mut Request<'_>,
        reply: &mut Reply,
    ) -> Result<()> {
        let changes = changes(&request.arguments.take()?);
        let found = self.store.change(request.node, &changes)?;
        self.push_attributes(&found, reply);
        Ok(())
    }

    pub(crate) fn statistics(&self, reply: &mut Reply) -> Result<()> {
        let found = self.store.statistics()?;
        let st = fuse_kstatfs {
            blocks: found.blocks,
            bfree: found.free,
            bavail: found.available,
            files: found.inodes,
            ffree: found.free_inodes,
            bsize: found.block_size,
            namelen: found.longest_name,
            frsize: found.block_size,
            ..Default::default()
        };
        reply.push(&fuse_statfs_out { st });
        Ok(())
    }
}

fn changes(asked: &fuse_setattr_in) -> Changes {
    let valid = |flag: u32| asked.valid & flag != 0;
    let stamp = |set: u32, now: u32, seconds: u64, nanoseconds: u32| match (valid(set), valid(now))
    {
        (_, true) => Some(Stamp::Now),
        (true, false) => Some(Stamp::At(Time { seconds: seconds.cast_signed(), nanoseconds })),
        (false, false) => None,
    };
    Changes {
        permissions: valid(FATTR_MODE).then_some(asked.mode & 0o7777),
        uid: valid(FATTR_UID).then_some(asked.uid),
        gid: valid(FATTR_GID).then_some(asked.gid),
        size: valid(FATTR_SIZE).then_some(asked.size),
        atime: stamp(FATTR_ATIME, FATTR_ATIME_NOW, asked.atime, asked.atimensec),
        mtime: stamp(FATTR_MTIME, FATTR_MTIME_NOW, asked.mtime, asked.mtimensec),
        ctime: valid(FATTR_CTIME)
            .then_some(Time { seconds: asked.ctime.cast_signed(), nanoseconds: asked.ctimensec }),
        kill_privileges: valid(FATTR_KILL_SUIDGID),
    }
}
