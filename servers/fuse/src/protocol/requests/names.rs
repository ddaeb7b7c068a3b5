//! Names: lookup, forget, creation and removal, and symbolic links.

use fuse_abi::linux::{
    fuse_batch_forget_in, fuse_entry_out, fuse_forget_in, fuse_forget_one, fuse_interrupt_in,
    fuse_link_in, fuse_mkdir_in, fuse_mknod_in, fuse_opcode as Op, fuse_rename_in, fuse_rename2_in,
};
use kumihimo_store::{Errno, Kind, New, Result};

use crate::protocol::service::{Request, Service};
use crate::protocol::wire::Reply;

/// `RENAME_NOREPLACE` of renameat2(2).
const NOREPLACE: u32 = 1;

impl Service {
    pub(crate) fn lookup(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let name = request.arguments.name()?;
        match self.store.lookup(request.node, name) {
            Ok(entry) => reply.push(&self.entry(&entry)),
            // An entry with node 0 lets the kernel cache the absence of the name, for as long as a
            // name.
            Err(Errno::NOENT) if !self.settings.timeout.is_zero() => reply.push(&fuse_entry_out {
                entry_valid: self.settings.timeout.as_secs(),
                entry_valid_nsec: self.settings.timeout.subsec_nanos(),
                ..Default::default()
            }),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    pub(crate) fn forget(&self, op: Op, request: &mut Request<'_>) -> Result<()> {
        if op == Op::FUSE_FORGET {
            self.store.forget(request.node, request.arguments.take::<fuse_forget_in>()?.nlookup);
            return Ok(());
        }
        for _ in 0..request.arguments.take::<fuse_batch_forget_in>()?.count {
            let one = request.arguments.take::<fuse_forget_one>()?;
            self.store.forget(self.node(one.nodeid), one.nlookup);
        }
        Ok(())
    }

    pub(crate) fn interrupt(&self, request: &mut Request<'_>) -> Result<()> {
        self.interrupts.note(request.arguments.take::<fuse_interrupt_in>()?.unique);
        Ok(())
    }

    fn make(
        &self,
        (request, umask): (&Request<'_>, u32),
        name: &[u8],
        what: New<'_>,
        reply: &mut Reply,
    ) -> Result<()> {
        let entry = self.store.make(&request.caller(umask), request.node, name, what)?;
        reply.push(&self.entry(&entry));
        Ok(())
    }

    pub(crate) fn make_node(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let asked = request.arguments.take::<fuse_mknod_in>()?;
        let name = request.arguments.name()?;
        let mode = asked.mode & 0o7777;
        let what = match Kind::of_mode(asked.mode).ok_or(Errno::INVAL)? {
            Kind::File => New::File { mode },
            Kind::Directory | Kind::Symlink => return Err(Errno::INVAL),
            kind => New::Special { kind, mode, device: asked.rdev },
        };
        self.make((request, asked.umask), name, what, reply)
    }

    pub(crate) fn make_directory(
        &self,
        request: &mut Request<'_>,
        reply: &mut Reply,
    ) -> Result<()> {
        let asked = request.arguments.take::<fuse_mkdir_in>()?;
        let name = request.arguments.name()?;
        let what = New::Directory { mode: asked.mode & 0o7777 };
        self.make((request, asked.umask), name, what, reply)
    }

    pub(crate) fn symlink(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let name = request.arguments.name()?;
        let target = request.arguments.name()?;
        self.make((request, 0), name, New::Symlink { target }, reply)
    }

    pub(crate) fn read_link(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        reply.extend(&self.store.read_link(request.node)?);
        Ok(())
    }

    pub(crate) fn unlink(&self, request: &mut Request<'_>) -> Result<()> {
        self.store.unlink(request.node, request.arguments.name()?)
    }

    pub(crate) fn remove_directory(&self, request: &mut Request<'_>) -> Result<()> {
        self.store.remove_directory(request.node, request.arguments.name()?)
    }

    pub(crate) fn rename(&self, request: &mut Request<'_>) -> Result<()> {
        let to = request.arguments.take::<fuse_rename_in>()?.newdir;
        self.renamed(request, to, false)
    }

    pub(crate) fn rename_with_flags(&self, request: &mut Request<'_>) -> Result<()> {
        let asked = request.arguments.take::<fuse_rename2_in>()?;
        // No store here can exchange two names (RENAME_EXCHANGE).
        if asked.flags & !NOREPLACE != 0 {
            return Err(Errno::INVAL);
        }
        self.renamed(request, asked.newdir, asked.flags & NOREPLACE != 0)
    }

    fn renamed(&self, request: &mut Request<'_>, to: u64, keep: bool) -> Result<()> {
        let (name, new_name) = (request.arguments.name()?, request.arguments.name()?);
        self.store.rename(request.node, name, self.node(to), new_name, keep)
    }

    pub(crate) fn link(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let node = self.node(request.arguments.take::<fuse_link_in>()?.oldnodeid);
        let entry = self.store.link(node, request.node, request.arguments.name()?)?;
        reply.push(&self.entry(&entry));
        Ok(())
    }
}
